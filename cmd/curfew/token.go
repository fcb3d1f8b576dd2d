package main

import (
	"strings"

	"github.com/spf13/cobra"

	"curfew.dev/curfew"
	"curfew.dev/curfew/api"
)

func (a *app) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Create, list and revoke tokens for the HTTP interface",
		Long: `Create, list and revoke tokens for the HTTP interface. The ledger keeps their hashes only:
a token that is lost cannot be shown again, and is replaced by another.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(`"curfew token --help" lists them`, "curfew token needs one of create, list, revoke")
			}
			hint := `"curfew token --help" lists them`
			if near := nearest(args[0], []string{"create", "list", "revoke"}); near != "" {
				hint = `did you mean "curfew token ` + near + `"?`
			}
			return usageError(hint, "no command %q", "token "+args[0])
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	cmd.AddCommand(a.tokenCreateCommand(), a.tokenListCommand(), a.tokenRevokeCommand())
	return cmd
}

const tokenCreateLong = `Create a token and print it, alone, on stdout. This is the one time that it can be seen.

  trigger  start runs of policies
  read     read runs, occurrences, calls and the state of policies
  defer    call tasks
  admin    all of these, and start runs for an instant that has passed`

func (a *app) tokenCreateCommand() *cobra.Command {
	var name string
	var scopes []string
	cmd := &cobra.Command{
		Use:   "create --scope SCOPE,…",
		Short: "Create a token and print it, this once",
		Long:  tokenCreateLong,
		Example: `  curfew token create --scope trigger --name nightly > /etc/curfew/nightly.token
  curfew token create --scope trigger,read`,
		Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f := cmd.Flags().Lookup("name"); f.Changed && strings.TrimSpace(name) == "" {
				return usageError("leave the flag out, or give it a value; an unset variable in a script gives none", "--name is empty")
			}
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			token, err := c.CreateToken(cmd.Context(), name, scopes)
			if err != nil {
				return err
			}
			a.note("this is the token %s (%s); it is not shown again", token.Name, strings.Join(token.Scopes, ", "))
			return a.answer(token, func(p *printer) { p.linef("%s", token.Token) })
		},
	}
	cmd.Flags().StringSliceVar(&scopes, "scope", nil, "what its bearer may do: `SCOPE`s separated by commas, of "+strings.Join(curfew.Scopes(), ", "))
	cmd.Flags().StringVar(&name, "name", "", "a `NAME` to know it by in calls and logs (default made from its first scope)")
	_ = cmd.RegisterFlagCompletionFunc("scope", cobra.FixedCompletions(curfew.Scopes(), cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("name", cobra.NoFileCompletions)
	return cmd
}

func (a *app) tokenListCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the tokens: names, scopes and when they were used",
		Example: `  curfew token list`,
		Args:    args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			tokens, err := c.Tokens(cmd.Context())
			if err != nil {
				return err
			}
			if len(tokens) == 0 {
				a.note("no tokens yet; curfew token create makes one")
			}
			return a.answer(tokens, func(p *printer) { p.tokens(tokens) })
		},
	}
}

func (a *app) tokenRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "revoke NAME",
		Short:             "Make a token worthless, at once and for good",
		Example:           `  curfew token revoke nightly`,
		Args:              args(1, 1, "a token's name"),
		ValidArgsFunction: a.completeTokens,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			token, err := c.RevokeToken(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.answer(token, func(p *printer) { p.tokens([]api.TokenInfo{token}) })
		},
	}
}

// completeTokens offers the names of the tokens that are worth something.
func (a *app) completeTokens(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, func(c *curfew.Curfew) []string {
		tokens, err := c.Tokens(cmd.Context())
		if err != nil {
			return nil
		}
		var names []string
		for _, t := range tokens {
			if t.RevokedAt == nil {
				names = append(names, cobra.CompletionWithDesc(t.Name, strings.Join(t.Scopes, ", ")))
			}
		}
		return names
	})
}

// tokens writes a list of tokens.
func (p *printer) tokens(tokens []api.TokenInfo) {
	if len(tokens) == 0 {
		return
	}
	rows := [][]cell{heads("NAME", "SCOPES", "CREATED", "LAST USED", "REVOKED")}
	for _, t := range tokens {
		rows = append(rows, []cell{
			text(t.Name), text(strings.Join(t.Scopes, ", ")), text(second(t.CreatedAt)), text(secondOr(t.LastUsed, "never")), colored(warn, secondOr(t.RevokedAt, "-")),
		})
	}
	p.table(rows)
}

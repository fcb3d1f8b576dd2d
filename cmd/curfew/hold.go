package main

import (
	"strings"

	"github.com/spf13/cobra"

	"curfew.dev/curfew"
	"curfew.dev/curfew/api"
)

const holdLong = `Keep rows from every policy, by order of a court or whoever may give one, until the hold is
released by name. A hold outranks every policy and every run; it is no pause.

The ledger is the authority for holds. Each governed database has a copy, which every batch
reads in its own transaction: a hold is in force when "hold place" returns.`

func (a *app) holdCommand() *cobra.Command {
	names := []string{"list", "place", "release", "replay"}
	cmd := &cobra.Command{
		Use:   "hold",
		Short: "Place, release and list legal holds",
		Long:  holdLong,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(`"curfew hold --help" lists them`, "curfew hold needs one of %s", strings.Join(names, ", "))
			}
			hint := `"curfew hold --help" lists them`
			if near := nearest(args[0], names); near != "" {
				hint = `did you mean "curfew hold ` + near + `"?`
			}
			return usageError(hint, "no command %q", "hold "+args[0])
		},
		RunE: func(*cobra.Command, []string) error { return nil },
	}
	cmd.AddCommand(a.holdPlaceCommand(), a.holdReleaseCommand(), a.holdListCommand(), a.holdReplayCommand())
	return cmd
}

const holdPlaceLong = `Place a legal hold: on the rows of one table that have these values, all of them, or on a
data subject, in every table whose policy says how it names one (subject:).

Rows whose own rows in other tables would go along (cascade:) are kept when one of those is
held. When the command returns with 0 the hold is in force: batches under way have ended, and
every later one sees it. With 3 it is not in force in a database that is out of reach; nothing
is changed there until it is, and the same command, or curfew serve, goes on with it.

The name is shown in logs, statuses and reasons, and is given once. Take a docket number
rather than a person's name. Values appear in no log and no error; the ledger keeps them
sealed, and the governed database in the clear, beside the rows that have them.`

func (a *app) holdPlaceCommand() *cobra.Command {
	var req curfew.HoldRequest
	var where []string
	cmd := &cobra.Command{
		Use:   "place --name NAME --reason WHY (--policy POLICY | --database D --table T) --where COLUMN=VALUE… | --subject VALUE",
		Short: "Place a hold; it is in force when the command returns",
		Long:  holdPlaceLong,
		Example: `  curfew hold place --name 12-C-345 --reason "district court, 12 C 345/26" --subject 4711
  curfew hold place --name audit-26 --reason "auditor's sample" --policy circulation --where branch=north --where patron_id=4711
  curfew hold place --name audit-27 --reason "auditor's sample" --database library --table fine --where id=17`,
		Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, text := range where {
				cond, err := curfew.Condition(text)
				if err != nil {
					return err
				}
				req.Where = append(req.Where, cond)
			}
			if f := cmd.Flags().Lookup("subject"); f.Changed && req.Subject == "" {
				return usageError("give it a value; an unset variable in a script gives none", "--subject is empty")
			}
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			h, err := c.PlaceHold(cmd.Context(), req)
			if h.Name != "" {
				if aerr := a.answer(h, func(p *printer) { p.hold(h) }); err == nil {
					err = aerr
				}
			}
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&req.Name, "name", "", "`NAME` to know it by, for good: letters, digits, dots, _ and -")
	f.StringVar(&req.Reason, "reason", "", "`WHY`, for the list and the audit trail")
	f.StringVar(&req.Policy, "policy", "", "hold rows of this `POLICY`'s table")
	f.StringVar(&req.Database, "database", "", "hold rows of a table of this `DATABASE`")
	f.StringVar(&req.Table, "table", "", "hold rows of this `TABLE`, as a policy would write it")
	f.StringArrayVar(&where, "where", nil, "rows that have this `COLUMN=VALUE`; given several times, all of them")
	f.StringVar(&req.Subject, "subject", "", "hold the data subject with this `VALUE`, wherever policies name one")
	_ = cmd.RegisterFlagCompletionFunc("policy", func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return a.complete(cmd, func(c *curfew.Curfew) []string { return c.PolicyNames() })
	})
	_ = cmd.RegisterFlagCompletionFunc("database", func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return a.complete(cmd, func(c *curfew.Curfew) []string { return c.DatabaseNames() })
	})
	for _, free := range []string{"name", "reason", "table", "where", "subject"} {
		_ = cmd.RegisterFlagCompletionFunc(free, cobra.NoFileCompletions)
	}
	return cmd
}

func (a *app) holdReleaseCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:               "release NAME",
		Short:             "Release a hold; its rows go at the next run that finds them due",
		Example:           `  curfew hold release 12-C-345 --reason "settled, letter of 3 March"`,
		Args:              args(1, 1, "a hold's name"),
		ValidArgsFunction: a.completeHolds,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			h, err := c.ReleaseHold(cmd.Context(), args[0], "", reason)
			if h.Name != "" {
				if aerr := a.answer(h, func(p *printer) { p.hold(h) }); err == nil {
					err = aerr
				}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`WHY`, for the list and the audit trail")
	_ = cmd.RegisterFlagCompletionFunc("reason", cobra.NoFileCompletions)
	return cmd
}

func (a *app) holdListCommand() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the holds, with what they hold",
		Long: `List the holds, with the values that they hold: whoever runs this has the installation's key.
Over HTTP they are shown to a token with the scope admin alone.`,
		Example: `  curfew hold list
  curfew hold list --all --output json | jq -r '.[] | select(.state == "released") | .name'`,
		Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			holds, err := c.Holds(cmd.Context(), all, true)
			if err != nil {
				return err
			}
			if len(holds) == 0 {
				a.note("no holds; curfew hold place places one")
			}
			return a.answer(holds, func(p *printer) { p.holds(holds) })
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "released ones too")
	return cmd
}

func (a *app) holdReplayCommand() *cobra.Command {
	var adopt bool
	cmd := &cobra.Command{
		Use:   "replay DATABASE",
		Short: "Bring a restored database to the holds of the ledger",
		Long: `Bring a database to the holds that the ledger has: place there what is missing, remove what
was released, and go on with what was left unfinished. A database that was restored to an
older state is refused (holds_stale) until this was done.

Holds that the database has and the ledger does not know are never dropped. They mean that
the ledger was restored to an older state, or that another ledger has governed the database;
--adopt takes them into this ledger, in force.`,
		Example: `  curfew hold replay library
  curfew hold replay library --adopt`,
		Args:              args(1, 1, "a database"),
		ValidArgsFunction: a.completeDatabases,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			r, err := c.ReplayHolds(cmd.Context(), args[0], adopt)
			if err != nil {
				return err
			}
			return a.answer(r, func(p *printer) {
				p.facts("", [2]string{"database", r.Database}, [2]string{"placed", orNone(r.Placed)}, [2]string{"removed", orNone(r.Removed)}, [2]string{"adopted", orNone(r.Adopted)})
			})
		},
	}
	cmd.Flags().BoolVar(&adopt, "adopt", false, "take holds into the ledger that only the database has")
	return cmd
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// completeHolds offers the names of the holds that are not released.
func (a *app) completeHolds(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, func(c *curfew.Curfew) []string {
		holds, err := c.Holds(cmd.Context(), false, false)
		if err != nil {
			return nil
		}
		var names []string
		for _, h := range holds {
			names = append(names, cobra.CompletionWithDesc(h.Name, h.Reason))
		}
		return names
	})
}

// hold writes one hold.
func (p *printer) hold(h api.Hold) {
	p.facts("",
		[2]string{"hold", h.Name},
		[2]string{"state", h.State},
		[2]string{"on", heldWhat(h)},
		[2]string{"reason", h.Reason},
		[2]string{"asked by", h.AskedBy},
		[2]string{"asked at", second(h.AskedAt)},
		[2]string{"in force", secondOr(h.PlacedAt, "")},
		[2]string{"databases", strings.Join(h.Databases, ", ")},
		[2]string{"pending in", strings.Join(h.Pending, ", ")},
		[2]string{"released", secondOr(h.ReleasedAt, "")},
		[2]string{"released by", h.ReleasedBy},
		[2]string{"because", h.ReleaseReason},
	)
}

// heldWhat says in words what a hold is on.
func heldWhat(h api.Hold) string {
	if h.Table == "" {
		return "subject " + h.Subject
	}
	return h.Database + " " + h.Table + ": " + strings.Join(h.Where, ", ")
}

// holds writes a list of holds.
func (p *printer) holds(holds []api.Hold) {
	if len(holds) == 0 {
		return
	}
	rows := [][]cell{heads("NAME", "STATE", "ON", "SINCE", "BY", "REASON")}
	for _, h := range holds {
		state := text(h.State)
		if len(h.Pending) > 0 {
			state = colored(bad, h.State+" in "+strings.Join(h.Pending, ", "))
		}
		rows = append(rows, []cell{text(h.Name), state, text(heldWhat(h)), text(secondOr(h.PlacedAt, "-")), text(h.AskedBy), text(h.Reason)})
	}
	p.list(rows)
}

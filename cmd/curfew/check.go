package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"curfew.dev/curfew/api"
)

func (a *app) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check [POLICY…]",
		Short: "Check the file, then the live databases",
		Long: `Check the policy file, then what it says against the live databases: the key and the
trigger, indexes and the plan the database would use, foreign keys and what they do,
triggers, row security, permissions, values that look wrong. Changes nothing.

Every finding is good, a warning, or a reason to refuse; where SQL would settle it,
the statement is printed. Without names all policies are checked.

Exit codes: 0 nothing refuses (there may be warnings), 2 something refuses, 3 a
database is out of reach.`,
		Example: `  curfew check
  curfew check circulation
  curfew check --output json | jq -r '.[] | select(.statement != "") | .statement'`,
		Args:              args(0, -1, ""),
		ValidArgsFunction: a.completePolicies(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			findings, err := c.Check(cmd.Context(), args...)
			if err != nil {
				return err
			}
			for _, f := range findings {
				switch {
				case f.Level == api.LevelUnreachable:
					a.code = exitFailed
				case f.Level == api.LevelRefuse && a.code == exitDone:
					a.code = exitRefused
				}
			}
			return a.answer(findings, func(p *printer) { p.findings(findings) })
		},
	}
}

// findings writes findings under the policy that they are about, and a last line that sums up.
func (p *printer) findings(findings []api.Finding) {
	var title string
	levels := map[string]int64{}
	for i, f := range findings {
		t := f.Policy
		switch {
		case f.Code == "mail_server":
			t = "mail"
		case f.Code == api.CodeStrayVariable:
			t = "environment"
		case t == "" && f.Database == "":
			t = "ledger"
		case t == "":
			t = "database " + f.Database
		}
		if t != title {
			if i > 0 {
				p.linef("")
			}
			title = t
			p.linef("%s", p.paint(bold, title))
		}
		levels[f.Level]++
		p.finding(f)
	}
	p.linef("")
	parts := []string{fmt.Sprintf("%d good", levels[api.LevelGood]), plural(levels[api.LevelWarn], "warning")}
	if n := levels[api.LevelRefuse]; n > 0 {
		parts = append(parts, p.paint(bad, fmt.Sprintf("%d refused", n)))
	}
	if n := levels[api.LevelUnreachable]; n > 0 {
		parts = append(parts, p.paint(bad, fmt.Sprintf("%d out of reach", n)))
	}
	p.linef("%s", strings.Join(parts, ", "))
}

func (p *printer) finding(f api.Finding) {
	label, color := strings.Replace(f.Level, "unreachable", "away", 1), ""
	switch f.Level {
	case api.LevelGood:
		label, color = "ok", good
	case api.LevelInfo:
		label = "note"
	case api.LevelWarn:
		color = warn
	case api.LevelRefuse, api.LevelUnreachable:
		color = bad
	}
	const indent = "             "
	p.linef("  %s  %s", p.paint(color, fmt.Sprintf("%-9s", label)), wrap(f.Message, indent, p.columns()))
	if f.Hint != "" {
		p.linef("%s%s", indent, p.paint(faint, wrap(f.Hint, indent, p.columns())))
	}
	if f.Statement != "" {
		p.linef("%s%s", indent, strings.ReplaceAll(f.Statement, "\n", "\n"+indent))
	}
}

// wrap breaks a sentence into lines of width columns, all but the first behind indent. The first is taken to stand as far in.
func wrap(s, indent string, width int) string {
	var b strings.Builder
	column := len(indent)
	for i, word := range strings.Fields(s) {
		n := len([]rune(word))
		switch {
		case i == 0:
		case column+1+n > width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += n
	}
	return b.String()
}

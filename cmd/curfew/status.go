package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"curfew.dev/curfew/api"
)

const statusLong = `Say of each policy whether it is well: when it last did its work, when it is next due, and
what is wrong and what to do about it when it is not. Tasks that have a schedule are among
them, and those whose calls failed for good, or wait and nobody takes them up.

The answer comes from the ledger alone, so it does not need curfew serve to be running,
and says so when it should be. Exit code 1 means that a policy is not well: the command
can be called by a monitor as it is.`

func (a *app) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status [POLICY…]",
		Short: "Is every policy well, and what is wrong?",
		Long:  statusLong,
		Example: `  curfew status
  curfew status circulation
  curfew status --output json | jq -r '.[] | select(.well | not) | .policy + ": " + .problem'`,
		ValidArgsFunction: a.completePolicies(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			statuses, err := c.Status(cmd.Context(), args...)
			if err != nil {
				return err
			}
			for _, s := range statuses {
				if !s.Well {
					a.code = exitNotWell
				}
			}
			return a.answer(statuses, func(p *printer) { p.statuses(statuses) })
		},
	}
}

// statuses writes how policies are: a line each, and below the table what is wrong.
func (p *printer) statuses(all []api.PolicyStatus) {
	if len(all) == 0 {
		return
	}
	rows := [][]cell{heads("POLICY", "MODE", "IS", "LAST OK", "NEXT DUE", "MISSED", "OLDEST DUE")}
	holds := slices.ContainsFunc(all, func(s api.PolicyStatus) bool { return s.Holds > 0 }) // a column that most installations do not need
	if holds {
		rows[0] = append(rows[0], heads("HOLDS")...)
	}
	for _, s := range all {
		row := []cell{
			text(policyStage(s.Policy, s.Stage)), text(s.Mode), health(s), text(secondOr(s.LastOK, "never")), text(secondOr(s.NextDue, "-")),
			number(s.Missed), text(lag(s.LagSeconds)),
		}
		if holds {
			row = append(row, number(s.Holds))
		}
		rows = append(rows, row)
	}
	p.table(rows)
	for _, s := range all {
		if s.Waiting != "" {
			p.linef("")
			p.linef("%s waits %s", p.paint(bold, policyStage(s.Policy, s.Stage)), s.Waiting)
		}
		if s.Well {
			continue
		}
		p.linef("")
		p.linef("%s", p.paint(bold, policyStage(s.Policy, s.Stage)))
		p.facts("  ", [2]string{"problem", wrap(s.Problem, "", p.columns()-11)}, [2]string{"do", wrap(s.Hint, "", p.columns()-11)})
	}
}

// health is a policy's state in a word.
func health(s api.PolicyStatus) cell {
	switch {
	case !s.Well:
		return colored(bad, "not well")
	case s.Paused:
		return colored(warn, "paused")
	case s.Waiting != "":
		return text("waiting")
	case s.OpenRun != "":
		return text("running")
	default:
		return colored(good, "well")
	}
}

// lag says how late the oldest due row is.
func lag(seconds *int64) string {
	switch {
	case seconds == nil:
		return "-"
	case *seconds <= 0:
		return "none"
	default:
		return roughly(time.Duration(*seconds)*time.Second) + " late"
	}
}

// secondOr writes a time that may be unset, to the second.
func secondOr(t *time.Time, otherwise string) string {
	if t == nil {
		return otherwise
	}
	return second(*t)
}

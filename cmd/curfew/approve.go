package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"curfew.dev/curfew/api"
)

func (a *app) approveCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "approve RUN",
		Short: "Let a run go on that waits for approval",
		Long: `Let a run go on that waits for approval: because it would change more than the policy's
limits allow, or because the policy was changed and would remove rows that it would not
have removed before. "curfew show" has the plan. Who approved it, when and why is in the
audit trail.

curfew serve takes the run up within a second. Without it, curfew run POLICY goes on with
it. When it begins and more than 10 % more is due than was approved, it waits again.

To end such a run instead: curfew cancel.`,
		Example:           `  curfew approve 9f2c41aa07d3 --reason "first run after the import, agreed with the records office"`,
		Args:              args(1, 1, "a run"),
		ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			run, err := c.Approve(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			a.note("run %s may go on: curfew serve takes it up, or %s goes on with it now", shortID(run.ID), runCommandOf(run))
			return a.answer(run, func(p *printer) { p.run(run) })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`WHY`, for the audit trail")
	return cmd
}

func (a *app) adoptCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "adopt DATABASE",
		Short: "Accept a restored or cloned database as the one to keep the policies in",
		Long: `Accept a database that is not the one that the ledger knows by that name: it was
restored, cloned or moved, or another ledger worked on it. Until then every run that
would change something there is refused, so that a copy does not start deleting.

Prints what differs. The database then belongs to this ledger, and no other one works
on it: a run of another ledger is refused there.`,
		Example:           `  curfew adopt library`,
		Args:              args(1, 1, "a database"),
		ValidArgsFunction: a.completeDatabases,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			adoption, err := c.Adopt(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.answer(adoption, func(p *printer) { p.adoption(adoption) })
		},
	}
}

// adoption writes what adopt found.
func (p *printer) adoption(d api.Adoption) {
	if len(d.Differs) == 0 {
		p.linef("%s is the database that the ledger knows; nothing differed", d.Database)
	} else {
		p.linef("%s is from now on the database that the ledger knows. What differed:", d.Database)
		for _, what := range d.Differs {
			p.linef("  %s", what)
		}
	}
	if !d.Claimed {
		p.linef("it keeps nothing of whose it is: run curfew install %s with a role that may create tables, and grant what it prints", d.Database)
	}
}

// approval writes why a run waits, or waited, and who let it go on.
func (p *printer) approval(a *api.Approval) {
	if a == nil {
		return
	}
	state := "asked for since " + second(a.AskedAt)
	if a.ApprovedAt != nil {
		state = fmt.Sprintf("by %s at %s", a.ApprovedBy, second(*a.ApprovedAt))
		if a.Reason != "" {
			state += ": " + a.Reason
		}
	}
	var why []string
	for _, e := range a.Exceeded {
		why = append(why, e.Message)
	}
	usual, changed := "", ""
	if h := a.History; h != nil {
		usual = fmt.Sprintf("%s an interval, the median of %d runs; this one covers %d", strconv.FormatFloat(h.Usual, 'f', -1, 64), h.Runs, h.Intervals)
	}
	if c := a.Change; c != nil {
		changed = fmt.Sprintf("since revision %s of run %s", shortID(c.Was), shortID(c.WasID))
		if c.Old != nil {
			changed += fmt.Sprintf("; that one would remove %s", count(*c.Old))
		}
	}
	p.linef("")
	p.facts("",
		[2]string{"approval", state},
		[2]string{"because", strings.Join(why, "\n")},
		[2]string{"would remove", maybe(a.Due)},
		[2]string{"in scope", maybe(a.InScope)},
		[2]string{"usual", usual},
		[2]string{"changed", changed},
	)
}

// maybe writes a number that may not be known.
func maybe(n *int64) string {
	if n == nil {
		return ""
	}
	return count(*n)
}

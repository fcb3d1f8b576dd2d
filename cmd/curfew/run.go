package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"curfew.dev/curfew"
	"curfew.dev/curfew/api"
)

const runLong = `Accept a run of a policy and drain it in the foreground.

Without --as-of, the policy's open run is resumed if there is one; else a new run
starts at the ledger's now. With --as-of, the run stands for that instant: asked for
the same instant again, curfew resumes that run, or shows it if it has ended. Rows
become due strictly before the cutoff, which is as_of minus the policy's period; a
row that is refreshed while the run is under way stays.

A policy with stages has a run for each: --stage names the one.

A run that would remove more than the policy's limits allow, or more than the policy did
before it was changed, waits for curfew approve, and changes nothing. Outside the policy's
windows it waits for the next one.

The policy's mode decides whether rows are changed. --shadow plans, counts and
records everything and changes nothing, whatever the mode.

Ctrl-C finishes the batch in hand and leaves the run to be resumed; a second Ctrl-C
aborts the batch as well. Nothing is lost and nothing is done twice either way.

Progress goes to stderr: a line on a terminal, elsewhere a log line every 10 s.
The answer on stdout is the run. Exit codes: 0 it succeeded (rows that were blocked
included), 1 it was skipped, expired or cancelled or waits for approval, 2 refused,
3 failed, 130 interrupted.`

const runExample = `  curfew run circulation
  curfew run circulation --shadow
  curfew run trials --stage pause
  curfew run circulation --as-of 2026-07-01T02:00:00Z
  curfew run circulation --output json | jq .outcomes`

func (a *app) runCommand() *cobra.Command {
	var asOf string
	var req curfew.RunRequest
	cmd := &cobra.Command{
		Use:               "run POLICY",
		Short:             "Run a policy now, in the foreground",
		Long:              runLong,
		Example:           runExample,
		Args:              args(1, 1, "a policy"),
		ValidArgsFunction: a.completePolicies(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req.Policy = args[0]
			for _, name := range []string{"operation", "as-of", "stage"} {
				if f := cmd.Flags().Lookup(name); f.Changed && strings.TrimSpace(f.Value.String()) == "" {
					return usageError("leave the flag out, or give it a value; an unset variable in a script gives none", "--%s is empty", name)
				}
			}
			if asOf != "" {
				t, err := parseInstant(asOf)
				if err != nil {
					return err
				}
				req.AsOf = &t
			}
			return a.run(cmd.Context(), req)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&asOf, "as-of", "", "the `INSTANT` the run stands for, in RFC 3339, never in the future")
	flags.StringVar(&req.Operation, "operation", "", "a key of your own; the same `KEY` again is the same run")
	flags.StringVar(&req.Stage, "stage", "", "the `STAGE` to run, where the policy has several")
	flags.BoolVar(&req.Shadow, "shadow", false, "change nothing; count and record what would be changed")
	_ = cmd.RegisterFlagCompletionFunc("as-of", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("operation", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("stage", a.completeStages)
	return cmd
}

// parseInstant reads --as-of.
func parseInstant(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}, usageError("write it like 2026-07-01T02:00:00Z or 2026-07-01T04:00:00+02:00, with the zone",
			"--as-of %q is no RFC 3339 instant", s)
	}
	if t.Nanosecond()%1000 != 0 {
		return time.Time{}, usageError("microseconds are the finest that databases keep", "--as-of %q is finer than a microsecond", s)
	}
	return t.UTC(), nil
}

// run drains a run and answers with it.
func (a *app) run(ctx context.Context, req curfew.RunRequest) error {
	c, err := a.open(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	m := newMeter(policyStage(req.Policy, req.Stage), a.stderr, a.logger(), time.Now)
	req.Progress = m.report
	req.Outside = func(opens time.Time) {
		a.note("%s is outside its windows, and goes on at %s; Ctrl-C leaves the run open", policyStage(req.Policy, req.Stage), second(opens))
	}
	req.Waiting = func(lock string) {
		a.note("waiting for the lock %s, which a task or another policy has; Ctrl-C leaves the run open", lock)
	}
	req.Stop = a.interrupts.graceful()
	run, err := c.Run(ctx, req)
	a.endProgress()
	if run.ID != "" {
		if werr := a.answer(run, func(p *printer) { p.run(run) }); werr != nil {
			return werr
		}
	}
	if err != nil {
		return err
	}
	return a.judge(run)
}

// judge turns the state of a run that was drained into an exit code.
func (a *app) judge(run api.Run) error {
	switch run.State {
	case api.StateSucceeded:
		return nil
	case api.StateFailed:
		return &curfew.Error{
			Kind: curfew.KindFailed,
			Hint: fmt.Sprintf("%q has the details; %q starts another run", "curfew show "+shortID(run.ID), runCommandOf(run)),
			Err:  fmt.Errorf("run %s failed: %s", shortID(run.ID), reason(run)),
		}
	default:
		a.note("run %s is %s: %s", shortID(run.ID), strings.ReplaceAll(run.State, "_", " "), reason(run))
		if run.State == api.StateAwaitingApproval {
			a.note("nothing was changed; %q has the plan, %q lets it go on, %q ends it",
				"curfew show "+shortID(run.ID), "curfew approve "+shortID(run.ID), "curfew cancel "+shortID(run.ID))
		}
		a.code = exitNotWell
		return nil
	}
}

// runCommandOf is the command that starts another run of the policy's stage.
func runCommandOf(run api.Run) string {
	if run.Stage == "" {
		return "curfew run " + run.Policy
	}
	return "curfew run " + run.Policy + " --stage " + run.Stage
}

// reason says why a run is as it is.
func reason(run api.Run) string {
	switch {
	case run.Detail != "" && run.WhyEnded != "":
		return run.WhyEnded + ": " + run.Detail
	case run.Detail != "":
		return run.Detail
	default:
		return run.WhyEnded
	}
}

// run writes a run.
func (p *printer) run(r api.Run) {
	state := p.paint(stateColor(r.State), r.State)
	if why := reason(r); why != "" && why != "done" {
		state += ": " + why
	}
	p.facts("",
		[2]string{"run", r.ID},
		[2]string{"policy", policyStage(r.Policy, r.Stage)},
		[2]string{"operation", r.Operation},
		[2]string{"mode", r.Mode},
		[2]string{"as of", instant(r.AsOf)},
		[2]string{"cutoff", instant(r.Cutoff)},
		[2]string{"state", state},
		[2]string{"batches", fmt.Sprintf("%s of %s settled", count(r.Batches.Settled), count(r.Batches.Total))},
		[2]string{"took", took(r)},
		[2]string{"revision", r.Revision},
	)
	p.linef("")
	rows := [][]cell{{text("planned"), number(r.Planned)}}
	for _, name := range r.Outcomes.Names() {
		rows = append(rows, []cell{text("  " + strings.ReplaceAll(name, "_", " ")), number(r.Outcomes[name])})
	}
	if r.Cascaded > 0 {
		rows = append(rows, []cell{text("cascaded"), number(r.Cascaded)})
	}
	p.table(rows)
}

// took says how long a run took and how fast it was.
func took(r api.Run) string {
	if r.StartedAt == nil || r.EndedAt == nil {
		return ""
	}
	d := r.EndedAt.Sub(*r.StartedAt)
	s := d.Round(time.Millisecond).String()
	if d > 0 && r.Planned > 0 {
		s += fmt.Sprintf(" (%s rows a second)", count(int64(float64(r.Planned)/d.Seconds())))
	}
	return s
}

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"curfew.dev/curfew/api"
)

func (a *app) explainCommand() *cobra.Command {
	var stage string
	cmd := &cobra.Command{
		Use:   "explain POLICY KEY…",
		Short: "Say of one row whether it would go now, and why",
		Long: `Say of one row whether a run that started now would change it, and why: each condition
with its answer, the instants that count, and a verdict. Changes nothing.

KEY is the row's key; of a key with several columns give each value as an argument of
its own, in the order of the policy's key. The row's hash in the answer is the name
under which the ledger knows it.

Of a policy with stages it says what the row has passed and what comes next, and
explains that; --stage explains another one.`,
		Example: `  curfew explain circulation 4711
  curfew explain memberships north 42       # key: [branch, number]
  curfew explain sessions -- -17            # a value that begins with a dash`,
		Args:              args(2, -1, "a policy and a row's key"),
		ValidArgsFunction: a.completePolicies(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			e, err := c.ExplainStage(cmd.Context(), args[0], stage, args[1:])
			if err != nil {
				return err
			}
			return a.answer(e, func(p *printer) { p.explanation(e) })
		},
	}
	cmd.Flags().StringVar(&stage, "stage", "", "the `STAGE` to explain, where the policy has several")
	_ = cmd.RegisterFlagCompletionFunc("stage", a.completeStages)
	return cmd
}

// explanation writes why a row would go or stay.
func (p *printer) explanation(e api.Explanation) {
	p.facts("",
		[2]string{"policy", policyStage(e.Policy, e.Stage)},
		[2]string{"row", e.Row},
		[2]string{"as of", instant(e.AsOf)},
		[2]string{"cutoff", instant(e.Cutoff)},
		[2]string{"trigger", instantOr(e.Trigger, "")},
		[2]string{"due at", instantOr(e.DueAt, "")},
		[2]string{"deleted", instantOr(e.DeletedAt, "")},
		[2]string{"archived", instantOr(e.ArchivedAt, "")},
		[2]string{"by run", e.DeletedBy},
	)
	p.linef("")
	rows := [][]cell{}
	for _, c := range e.Conditions {
		answer := colored(warn, "unknown")
		if c.Passes != nil && *c.Passes {
			answer = colored(good, "yes")
		} else if c.Passes != nil {
			answer = colored(bad, "no")
		}
		rows = append(rows, []cell{text("  " + question(c.Name)), answer, text(c.Detail)})
	}
	p.table(rows)
	p.stageStates(e.Stages)
	p.linef("")
	p.linef("%s", p.paint(bold, e.Verdict))
}

// stageStates writes what a row has passed, and what comes.
func (p *printer) stageStates(states []api.StageState) {
	if len(states) == 0 {
		return
	}
	rows := [][]cell{{text("  STAGE"), text("ACTION"), text("AT"), text("STATE"), text("")}}
	for _, s := range states {
		color, detail := faint, s.Why
		switch s.State {
		case api.StagePassed:
			color, detail = good, "by run "+shortID(s.Run)+" as of "+instantOr(s.PassedAt, "")
		case api.StageNow:
			color = bold
		case api.StageWaits:
			color = warn
		}
		rows = append(rows, []cell{text("  " + s.Stage), text(s.Action), text(instantOr(s.At, "-")), colored(color, s.State), text(detail)})
	}
	p.linef("")
	p.table(rows)
}

// question is a condition as a question whose "yes" speaks for the change.
func question(name string) string {
	questions := map[string]string{
		"exists":   "is the row there?",
		"in_scope": "is it in the policy's scope?",
		"open":     "is it still to be done?",
		"trigger":  "does its trigger name an instant?",
		"due":      "is its time up?",
		"stage":    "has it passed what comes before, and not this?",
		"told":     "is nobody told of it yet?",
		"guard":    "does no guard keep it?",
		"hold":     "is it free of holds?",
		"children": "does no other row keep it?",
	}
	if q, ok := questions[name]; ok {
		return q
	}
	return fmt.Sprintf("%s?", name)
}

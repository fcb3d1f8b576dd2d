package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"curfew.dev/curfew"
	"curfew.dev/curfew/api"
)

var runStates = []string{
	api.StateAccepted, api.StateRunning, api.StateSucceeded, api.StateFailed, api.StateSkipped,
	api.StateExpired, api.StateCancelled, api.StateAwaitingApproval,
}

func (a *app) runsCommand() *cobra.Command {
	filter := curfew.RunFilter{Limit: 20}
	cmd := &cobra.Command{
		Use:   "runs",
		Short: "List the runs in the ledger, the newest first",
		Long: `List the runs in the ledger, the newest first.

The short id in the first column is enough for "curfew show".`,
		Example: `  curfew runs
  curfew runs --policy circulation --limit 0
  curfew runs --state failed --output json`,
		Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if filter.Limit < 0 {
				return usageError("--limit 0 lists all", "--limit must not be negative")
			}
			if filter.State != "" && !known(runStates, filter.State) {
				return usageError("one of "+strings.Join(runStates, ", "), "no run state %q", filter.State)
			}
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			runs, err := c.Runs(cmd.Context(), filter)
			if err != nil {
				return err
			}
			switch {
			case len(runs) == 0 && (filter.Policy != "" || filter.State != ""):
				a.note("no run matches")
			case len(runs) == 0:
				a.note("no runs yet")
			}
			return a.answer(runs, func(p *printer) { p.runs(runs) })
		},
	}
	cmd.Flags().StringVar(&filter.Policy, "policy", "", "only runs of this `POLICY`")
	cmd.Flags().StringVar(&filter.State, "state", "", "only runs in this `STATE`: "+strings.Join(runStates, ", "))
	cmd.Flags().IntVar(&filter.Limit, "limit", filter.Limit, "at most `N` runs; 0: all")
	_ = cmd.RegisterFlagCompletionFunc("policy", a.completePolicies(-1))
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(runStates, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
	return cmd
}

func known(all []string, s string) bool {
	for _, k := range all {
		if k == s {
			return true
		}
	}
	return false
}

// runs writes a list of runs.
func (p *printer) runs(runs []api.Run) {
	if len(runs) == 0 {
		return
	}
	rows := [][]cell{heads("RUN", "POLICY", "MODE", "AS OF", "STATE", "PLANNED", "OUTCOMES")}
	for _, r := range runs {
		rows = append(rows, []cell{
			text(shortID(r.ID)), text(policyStage(r.Policy, r.Stage)), text(r.Mode), text(second(r.AsOf)),
			colored(stateColor(r.State), stateInWords(r)), number(r.Planned), text(outcomes(r.Outcomes)),
		})
	}
	p.list(rows)
}

// stateInWords is a run's state, and of one that waits for a window that it does.
func stateInWords(r api.Run) string {
	if r.State == api.StateRunning && strings.HasPrefix(r.Detail, "outside its window") {
		return r.State + ", " + r.Detail
	}
	return r.State
}

// outcomes writes outcomes on one line.
func outcomes(o api.Outcomes) string {
	var parts []string
	for _, name := range o.Names() {
		parts = append(parts, fmt.Sprintf("%s %s", count(o[name]), strings.ReplaceAll(name, "_", " ")))
	}
	return strings.Join(parts, ", ")
}

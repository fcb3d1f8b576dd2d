package main

import (
	"github.com/spf13/cobra"
)

func (a *app) cancelCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "cancel RUN",
		Short: "End an open run, so that it does not go on",
		Long: `End an open run, so that it does not go on. What it has changed stays changed, and stays
in the ledger. A process that works on the run ends after the batches in hand. A run that
waits for approval has changed nothing, and does not then.

An open run keeps the text of the policy it was accepted with. To correct a policy in the
middle of a run: interrupt it, cancel it, change the file, run again.`,
		Example: `  curfew cancel 9f2c41aa07d3
  curfew cancel 9f2c41aa07d3 --reason "period was wrong"`,
		Args:              args(1, 1, "a run"),
		ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			run, err := c.Cancel(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			return a.answer(run, func(p *printer) { p.run(run) })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`WHY`, for the ledger and the audit trail")
	return cmd
}

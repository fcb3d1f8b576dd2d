package main

import (
	"github.com/spf13/cobra"

	"curfew.dev/curfew"
)

const workerLong = `Execute the batches of runs, and nothing else: schedules, paging and HTTP are left to curfew
serve. Start it on as many machines as reach the ledger and the governed databases, with
the same policy file and the same key.

Signals are as for curfew serve.`

func (a *app) workerCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "worker",
		Short:   "Execute batches for a curfew serve elsewhere",
		Long:    workerLong,
		Example: `  curfew worker --config /etc/curfew/curfew.yaml`,
		Args:    args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.serve(cmd.Context(), curfew.ServeOptions{WorkersOnly: true})
		},
	}
}

package main

import (
	"github.com/spf13/cobra"

	"curfew.dev/curfew/api"
)

const pauseLong = `Keep a policy from being started by its schedule or by a call over HTTP, until it is
resumed. The scheduled instants meanwhile are recorded as skipped, calls are refused. A
run that is under way goes on: curfew cancel ends one. Every status shows the pause, and
after a week it counts as forgotten. Given again with another --reason, that one stands.

A pause is not a legal hold: a hold keeps rows from every policy and every run, while a
paused policy still runs by hand, with curfew run.`

func (a *app) pauseCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:               "pause POLICY",
		Short:             "Keep a policy from starting by schedule or call",
		Long:              pauseLong,
		Example:           `  curfew pause circulation --reason "moving to the new server"`,
		Args:              args(1, 1, "a policy"),
		ValidArgsFunction: a.completePolicies(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			pause, err := c.Pause(cmd.Context(), args[0], reason)
			if err != nil {
				return err
			}
			a.note("curfew resume %s ends it", pause.Policy)
			return a.answer(pause, func(p *printer) { p.pause(pause) })
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`WHY`, for the status and the audit trail")
	_ = cmd.RegisterFlagCompletionFunc("reason", cobra.NoFileCompletions)
	return cmd
}

func (a *app) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "resume POLICY",
		Short:             "End a pause",
		Long:              `Let a paused policy start on its own again, at its next scheduled instant. The answer is the pause that was.`,
		Example:           `  curfew resume circulation`,
		Args:              args(1, 1, "a policy"),
		ValidArgsFunction: a.completePolicies(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			pause, err := c.Resume(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			a.note("%s is resumed", pause.Policy)
			return a.answer(pause, func(p *printer) { p.pause(pause) })
		},
	}
}

// pause writes a pause.
func (p *printer) pause(pause api.Pause) {
	p.facts("", [2]string{"policy", pause.Policy}, [2]string{"paused", second(pause.Since)}, [2]string{"by", pause.Actor}, [2]string{"reason", pause.Reason})
}

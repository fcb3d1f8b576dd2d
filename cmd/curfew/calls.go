package main

import (
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"curfew.dev/curfew"
	"curfew.dev/curfew/api"
)

const callsLong = `List who asked for runs over HTTP, when, and what the answer was, the newest first: to be
held against the log of the scheduler that should have called.

Each call with a valid token is here, a repeated or refused one too. A call without one
leaves no trace but a count in the metrics.`

func (a *app) callsCommand() *cobra.Command {
	filter := curfew.CallFilter{Limit: 50}
	var since string
	cmd := &cobra.Command{
		Use:   "calls",
		Short: "List who triggered runs over HTTP, and what came of it",
		Long:  callsLong,
		Example: `  curfew calls
  curfew calls --policy circulation --since 7d
  curfew calls --output json | jq '.[] | select(.answer != 202)'`,
		Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if filter.Limit < 0 {
				return usageError("--limit 0 lists all", "--limit must not be negative")
			}
			if since != "" {
				from, err := parseSince(since, time.Now())
				if err != nil {
					return err
				}
				filter.Since = from
			}
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			calls, err := c.Calls(cmd.Context(), filter)
			if err != nil {
				return err
			}
			switch {
			case len(calls) == 0 && (filter.Policy != "" || since != ""):
				a.note("no call matches")
			case len(calls) == 0:
				a.note("nobody has called yet")
			}
			return a.answer(calls, func(p *printer) { p.calls(calls) })
		},
	}
	cmd.Flags().StringVar(&filter.Policy, "policy", "", "only calls for this `POLICY`")
	cmd.Flags().StringVar(&since, "since", "", "from this `TIME` on: 2026-01-15, an RFC 3339 instant, or 36h, 7d for so long ago")
	cmd.Flags().IntVar(&filter.Limit, "limit", filter.Limit, "at most `N` calls; 0: all")
	_ = cmd.RegisterFlagCompletionFunc("policy", a.completePolicies(-1))
	_ = cmd.RegisterFlagCompletionFunc("since", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
	return cmd
}

// calls writes a list of calls.
func (p *printer) calls(calls []api.Call) {
	if len(calls) == 0 {
		return
	}
	rows := [][]cell{heads("AT", "TOKEN", "POLICY", "ANSWER", "RUN", "CAME OF IT")}
	for _, k := range calls {
		color, came := good, k.Detail
		switch {
		case k.Answer >= 400:
			color = bad
		case k.Fresh && came == "":
			came = "a new run"
		case came == "":
			came = "the run that was there"
		}
		run := "-"
		if k.Run != "" {
			run = shortID(k.Run)
		}
		rows = append(rows, []cell{
			text(second(k.At)), text(k.Token), text(policyStage(k.Policy, k.Stage)), colored(color, strconv.Itoa(k.Answer)), text(run), text(came),
		})
	}
	p.list(rows)
}

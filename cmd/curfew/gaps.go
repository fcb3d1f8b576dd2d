package main

import (
	"regexp"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"curfew.dev/curfew"
	"curfew.dev/curfew/api"
)

const gapsLong = `Show, by month of each policy's calendar, what became of the scheduled instants, and how
many rows were changed.

Every instant that passed is counted once: ok, failed, skipped, expired, missed, or shadow
for a policy that changes nothing yet. A missed one stays missed, also when a later run
caught up. Runs and rows count what was started by hand or by a call as well.

With --each, every single instant that did not end well is listed instead, the newest first.`

func (a *app) gapsCommand() *cobra.Command {
	var since string
	var each bool
	limit := 100
	cmd := &cobra.Command{
		Use:   "gaps [POLICY]",
		Short: "Show month by month what ran, what was missed and what it changed",
		Long:  gapsLong,
		Example: `  curfew gaps
  curfew gaps circulation --since 2026-01
  curfew gaps circulation --each
  curfew gaps --output json | jq '.[] | select(.missed > 0)'`,
		Args:              args(0, 1, ""),
		ValidArgsFunction: a.completePolicies(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 {
				return usageError("the default is 100", "--limit must be positive")
			}
			filter := curfew.GapFilter{}
			if len(args) > 0 {
				filter.Policy = args[0]
			}
			if since != "" {
				from, err := parseSince(since, time.Now())
				if err != nil {
					return err
				}
				filter.From = from
			}
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			if each {
				items, err := failures(cmd, c, filter, limit)
				if err != nil {
					return err
				}
				if len(items) == 0 {
					a.note("no occurrence in the ledger ended other than well")
				}
				return a.answer(items, func(p *printer) { p.occurrences(items) })
			}
			months, err := c.Gaps(cmd.Context(), filter)
			if err != nil {
				return err
			}
			if len(months) == 0 {
				a.note("nothing was due and nothing ran")
			}
			return a.answer(months, func(p *printer) { p.gaps(months) })
		},
	}
	cmd.Flags().StringVar(&since, "since", "", "from this `TIME` on: 2026-01, 2026-01-15, an RFC 3339 instant, or 90d for so long ago")
	cmd.Flags().BoolVar(&each, "each", false, "list the instants that did not end well")
	cmd.Flags().IntVar(&limit, "limit", limit, "with --each: at most `N`")
	_ = cmd.RegisterFlagCompletionFunc("since", cobra.NoFileCompletions)
	_ = cmd.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
	return cmd
}

// failures are the occurrences that ended as something other than ok and shadow.
func failures(cmd *cobra.Command, c *curfew.Curfew, f curfew.GapFilter, limit int) ([]api.OccurrenceItem, error) {
	items := []api.OccurrenceItem{}
	for _, state := range []string{api.OccurrenceFailed, api.OccurrenceSkipped, api.OccurrenceExpired, api.OccurrenceMissed} {
		some, err := c.Occurrences(cmd.Context(), curfew.OccurrenceFilter{Policy: f.Policy, State: state, From: f.From, Limit: limit})
		if err != nil {
			return nil, err
		}
		items = append(items, some...)
	}
	if len(items) == 0 {
		_, err := c.Gaps(cmd.Context(), f) // is there such a policy?
		return items, err
	}
	slices.SortStableFunc(items, func(a, b api.OccurrenceItem) int { return b.At.Compare(a.At) })
	return items[:min(limit, len(items))], nil
}

var sinceSpan = regexp.MustCompile(`^([1-9]\d{0,4})(h|d|w)$`)

// parseSince reads --since: a month, a day or an instant, or how long ago.
func parseSince(s string, now time.Time) (time.Time, error) {
	for _, layout := range []string{"2006-01", time.DateOnly, time.RFC3339Nano} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	if m := sinceSpan.FindStringSubmatch(s); m != nil {
		n := time.Duration(0)
		for _, digit := range m[1] {
			n = n*10 + time.Duration(digit-'0')
		}
		return now.Add(-n * map[string]time.Duration{"h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour}[m[2]]), nil
	}
	return time.Time{}, usageError("write it like 2026-01, 2026-01-15, 2026-01-15T08:00:00Z, 36h, 90d or 12w", "--since %q is no time", s)
}

// gaps writes months, a line each.
func (p *printer) gaps(months []api.GapMonth) {
	if len(months) == 0 {
		return
	}
	rows := [][]cell{heads("POLICY", "MONTH", "DUE", "OK", "FAILED", "SKIPPED", "EXPIRED", "MISSED", "SHADOW", "RUNS", "CHANGED")}
	for _, m := range months {
		rows = append(rows, []cell{
			text(policyStage(m.Policy, m.Stage)), text(m.Month), number(m.Occurrences), number(m.OK), numberIf(bad, m.Failed), numberIf(warn, m.Skipped),
			numberIf(bad, m.Expired), numberIf(bad, m.Missed), number(m.Shadow), number(m.Runs), number(m.Changed),
		})
	}
	p.table(rows)
}

// numberIf is a number in colour, unless it is zero.
func numberIf(color string, n int64) cell {
	c := number(n)
	if n != 0 {
		c.color = color
	}
	return c
}

// occurrences writes scheduled instants, a line each.
func (p *printer) occurrences(items []api.OccurrenceItem) {
	if len(items) == 0 {
		return
	}
	rows := [][]cell{heads("POLICY", "AT", "STATE", "RUN", "WHY")}
	for _, o := range items {
		run := "-"
		if o.Run != "" {
			run = shortID(o.Run)
		}
		rows = append(rows, []cell{
			text(policyStage(o.Policy, o.Stage)), text(second(o.At)), colored(occurrenceColor(o.State), o.State), text(run), text(o.Why),
		})
	}
	p.list(rows)
}

// occurrenceColor is the colour of an occurrence's state.
func occurrenceColor(state string) string {
	switch state {
	case api.OccurrenceFailed, api.OccurrenceMissed, api.OccurrenceExpired:
		return bad
	case api.OccurrenceSkipped:
		return warn
	default:
		return ""
	}
}

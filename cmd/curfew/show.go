package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"curfew.dev/curfew/api"
)

func (a *app) showCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show RUN",
		Short: "Show a run: its counts, batches, blocked rows and audit trail",
		Long: `Show a run: its counts, its batches, the rows that could not go and why, and its
entries in the audit trail. Of a run that waits for approval, or did: the plan, which is
what was counted, which limit that is beyond, and what is usual.

RUN is the id that "curfew runs" and "curfew run" print; its first digits will do.
Rows are named by a keyed hash, never by their key: "curfew explain" prints the hash
of a row you know.`,
		Example: `  curfew show 9f2c41aa07d3
  curfew show 9f2c41aa07d3 --output json | jq .blocked_rows`,
		Args:              args(1, 1, "a run"),
		ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			detail, err := c.Show(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.answer(detail, func(p *printer) { p.detail(detail) })
		},
	}
}

// detail writes a run with what stands behind it.
func (p *printer) detail(d api.RunDetail) {
	p.run(d.Run)
	p.approval(d.Approval)
	if t := d.BatchTimes; d.Batches.Settled > 1 {
		p.linef("")
		p.linef("each batch took %s at least, %s in the middle, %s at most", ms(t.MinMS), ms(t.MedianMS), ms(t.MaxMS))
	}
	if len(d.Blocked) > 0 {
		p.linef("")
		rows := [][]cell{heads("ROW", "OUTCOME", "SINCE", "REASON")}
		for _, b := range d.Blocked[:min(len(d.Blocked), blockedShown)] {
			rows = append(rows, []cell{text(b.Row), text(b.Outcome), text(second(b.FirstSeen)), text(b.Reason)})
		}
		p.list(rows)
		if more := len(d.Blocked) - blockedShown; more > 0 {
			p.linef("and %s more (--output json has them)", count(int64(more)))
		}
	}
	p.audit(d.Audit)
}

// blockedShown is how many rows a table shows one by one.
const blockedShown = 20

// audit writes the audit trail; what concerns single batches and rows only as a number.
func (p *printer) audit(entries []api.AuditEntry) {
	if len(entries) == 0 {
		return
	}
	p.linef("")
	rows := [][]cell{heads("ENTRY", "AT", "EVENT", "BY", "DATA")}
	var single int64
	for _, e := range entries {
		if strings.HasPrefix(e.Event, "batch_") || strings.HasPrefix(e.Event, "row_") {
			single++
			continue
		}
		rows = append(rows, []cell{{text: strconv.FormatInt(e.Seq, 10), number: true}, text(second(e.At)), text(e.Event), text(e.Actor), text(pairs(e.Data))})
	}
	p.list(rows)
	if single > 0 {
		p.linef("and %s about single batches and rows (--output json has them)", count(single))
	}
}

// pairs writes a flat JSON object as key=value, ids cut short.
func pairs(data json.RawMessage) string {
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) != nil {
		return string(data)
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(object)) {
		v := string(object[k])
		var s string
		if json.Unmarshal(object[k], &s) == nil {
			v = s
		}
		if len(v) == 64 {
			v = shortID(v)
		}
		if v != "" {
			parts = append(parts, k+"="+v)
		}
	}
	return strings.Join(parts, " ")
}

func ms(n int64) string { return fmt.Sprint(time.Duration(n) * time.Millisecond) }

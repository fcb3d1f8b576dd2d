package curfew

import (
	"context"
	"encoding/hex"
	"slices"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
)

// RunFilter narrows a list of runs.
type RunFilter struct {
	Policy string
	State  string
	Limit  int // 0: all
}

// Runs lists runs, the newest first.
func (c *Curfew) Runs(ctx context.Context, f RunFilter) ([]api.Run, error) {
	runs := []api.Run{}
	if c.noLedgerYet() {
		return runs, nil
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return nil, err
	}
	const page = 500
	filter := ledger.Filter{Policy: f.Policy, State: ledger.State(f.State)}
	for f.Limit == 0 || len(runs) < f.Limit {
		filter.Limit = page
		if f.Limit > 0 {
			filter.Limit = min(page, f.Limit-len(runs))
		}
		some, err := l.List(ctx, filter)
		if err != nil {
			return nil, ledgerError(err)
		}
		for _, r := range some {
			runs = append(runs, wireRun(r))
		}
		if len(some) < filter.Limit {
			break
		}
		filter.Before = some[len(some)-1].ID
	}
	return runs, nil
}

// wireRun is a run as it is shown.
func wireRun(r ledger.Run) api.Run {
	outcomes := api.Outcomes{}
	for name, n := range r.Outcomes {
		outcomes[name] = n
	}
	return api.Run{
		ID: r.ID, Policy: r.Policy, Stage: r.Stage, Operation: r.Operation, Cause: r.Cause, AsOf: r.AsOf.UTC(), Cutoff: r.Cutoff.UTC(),
		Mode: r.Mode, State: string(r.State), WhyEnded: r.WhyEnded, Detail: r.Detail, Revision: r.Revision,
		Planned: r.Planned, Outcomes: outcomes, Cascaded: r.Cascaded,
		Batches:    api.BatchCount{Total: r.BatchesTotal, Settled: r.BatchesSettled},
		AcceptedAt: r.AcceptedAt.UTC(), StartedAt: orNil(r.StartedAt), EndedAt: orNil(r.EndedAt),
	}
}

// orNil is an instant, or nil when it has not come.
func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}

// Show gives a run with what stands behind it. The id may be shortened to any prefix that names one run.
func (c *Curfew) Show(ctx context.Context, id string) (api.RunDetail, error) {
	if c.noLedgerYet() {
		return api.RunDetail{}, fail(KindNotFound, "curfew run POLICY makes one", "there is no run yet")
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return api.RunDetail{}, err
	}
	run, err := l.Get(ctx, id)
	if err != nil {
		return api.RunDetail{}, ledgerError(err)
	}
	detail := api.RunDetail{Run: wireRun(run)}
	batches, err := l.Batches(ctx, run.ID, 0, 0)
	if err != nil {
		return api.RunDetail{}, ledgerError(err)
	}
	detail.BatchTimes = batchTimes(batches)
	if detail.Approval, err = wireApproval(ctx, l, run.ID); err != nil {
		return api.RunDetail{}, ledgerError(err)
	}
	if detail.Blocked, err = blockedRows(ctx, l, run); err != nil {
		return api.RunDetail{}, ledgerError(err)
	}
	if detail.Audit, err = auditTrail(ctx, l, run.ID); err != nil {
		return api.RunDetail{}, ledgerError(err)
	}
	return detail, nil
}

// batchTimes sums up the settled batches.
func batchTimes(batches []ledger.Batch) api.BatchTimes {
	var t api.BatchTimes
	var took []int64
	for _, b := range batches {
		if b.State == ledger.Settled {
			t.Rows += b.Planned
			took = append(took, b.Duration.Milliseconds())
		}
	}
	if len(took) == 0 {
		return t
	}
	slices.Sort(took)
	t.MinMS, t.MedianMS, t.MaxMS = took[0], took[len(took)/2], took[len(took)-1]
	return t
}

// blockedLimit is how many blocked rows are shown of a run.
const blockedLimit = 1000

// blockedRows are the rows that the run met and could not change, as far as no later run has met them since.
func blockedRows(ctx context.Context, l *ledger.Ledger, run ledger.Run) ([]api.BlockedRow, error) {
	all, err := l.BlockedRows(ctx, run.Policy, run.Stage, blockedLimit)
	if err != nil {
		return nil, err
	}
	rows := []api.BlockedRow{}
	for _, b := range all {
		if b.LastRun == run.ID || b.FirstRun == run.ID {
			rows = append(rows, api.BlockedRow{
				Row: hex.EncodeToString(b.Hash[:]), Outcome: b.Outcome, Reason: b.Reason,
				FirstSeen: b.FirstSeen.UTC(), LastSeen: b.LastSeen.UTC(),
			})
		}
	}
	return rows, nil
}

// auditTrail are the entries about a run, in order.
func auditTrail(ctx context.Context, l *ledger.Ledger, run string) ([]api.AuditEntry, error) {
	trail := []api.AuditEntry{}
	const page = 1000
	for after := int64(0); ; {
		entries, err := l.AuditEntries(ctx, after, page)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			after = e.Seq
			if e.Run == run {
				trail = append(trail, api.AuditEntry{Seq: e.Seq, At: e.At.UTC(), Event: e.Action, Actor: e.Actor, Run: e.Run, Data: e.Body})
			}
		}
		if len(entries) < page {
			return trail, nil
		}
	}
}

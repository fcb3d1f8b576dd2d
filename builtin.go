package curfew

import (
	"context"
	"slices"
	"time"

	"curfew.dev/curfew/api"
)

// The lists that curfew itself keeps have retention too. It is shown like any policy, under names that no policy of a file can have.
const (
	finishedCalls = "curfew.finished_calls"
	failedCalls   = "curfew.failed_calls"
)

// builtIn says what of the calls goes next. The audit trail and the runs are in no such list: they stay.
func (c *Curfew) builtIn(ctx context.Context, names []string) ([]api.PolicyPlan, error) {
	wanted := func(name string) bool { return len(names) == 0 && len(c.tasks) > 0 || slices.Contains(names, name) }
	if !wanted(finishedCalls) && !wanted(failedCalls) {
		return nil, nil
	}
	now, err := c.now(ctx)
	if err != nil {
		return nil, err
	}
	keep := c.file.Retention
	var succeeded, failed int64
	if !c.noLedgerYet() {
		q, err := c.inserter(ctx)
		if err != nil {
			return nil, err
		}
		if succeeded, failed, err = q.OldCalls(ctx, now.Add(-keep.FinishedCalls), now.Add(-keep.FailedCalls)); err != nil {
			return nil, ledgerError(err)
		}
	}
	var plans []api.PolicyPlan
	for _, b := range []struct {
		name, what string
		keep       time.Duration
		due        int64
	}{
		{finishedCalls, "calls of tasks that succeeded", keep.FinishedCalls, succeeded},
		{failedCalls, "calls of tasks that failed for good or were discarded", keep.FailedCalls, failed},
	} {
		if wanted(b.name) {
			plans = append(plans, api.PolicyPlan{Policy: b.name, Mode: api.ModeEnforce, Action: "delete", Authority: "built in: retention in the policy file",
				Database: "the ledger", Table: "river_job", Rule: b.what + ", " + length(b.keep) + " after they ended", AsOf: now, Cutoff: now.Add(-b.keep), Due: b.due,
				Schedule: "every " + span(pruneEvery) + ", by curfew serve", Next: []time.Time{}})
		}
	}
	return plans, nil
}

// policyNames are the names that are not of what is built in.
func policyNames(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == finishedCalls || n == failedCalls })
}

package curfew

import (
	"context"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
)

// CallFilter narrows a list of calls.
type CallFilter struct {
	Policy string
	Since  time.Time // zero: from the first
	Limit  int       // 0: all
}

// Calls lists who asked for runs over HTTP and what the answer was, the newest first.
func (c *Curfew) Calls(ctx context.Context, f CallFilter) ([]api.Call, error) {
	calls := []api.Call{}
	if c.noLedgerYet() {
		return calls, nil
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return nil, err
	}
	const page = 500
	filter := ledger.CallFilter{Policy: f.Policy, Since: f.Since}
	for f.Limit == 0 || len(calls) < f.Limit {
		filter.Limit = page
		if f.Limit > 0 {
			filter.Limit = min(page, f.Limit-len(calls))
		}
		some, err := l.Calls(ctx, filter)
		if err != nil {
			return nil, ledgerError(err)
		}
		for _, k := range some {
			calls = append(calls, wireCall(k))
		}
		if len(some) < filter.Limit {
			break
		}
		filter.Before = some[len(some)-1].ID
	}
	return calls, nil
}

// wireCall is a call as it is shown.
func wireCall(k ledger.Call) api.Call {
	return api.Call{At: k.At.UTC(), Token: k.Token, Policy: k.Policy, Stage: k.Stage, Answer: k.Answer, Run: k.Run, Fresh: k.Fresh, Detail: k.Detail}
}

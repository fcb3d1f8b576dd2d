package curfew

import (
	"context"
	"database/sql"
	"slices"
	"strconv"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/riverq"
	"curfew.dev/curfew/internal/web"
)

var _ web.Tasks = front{}

// Defer has a task called. With a key of the caller's own the same request gives the same call for ever.
func (f front) Defer(ctx context.Context, req web.DeferRequest) (api.TaskCall, error) {
	c := f.current().c
	l, err := c.ledger(ctx)
	if err != nil {
		return api.TaskCall{}, err
	}
	paused := c.notPaused(ctx, l, req.Task)
	if paused != nil && (req.Key == "" || KindOf(paused) != KindRefused) {
		return api.TaskCall{}, paused
	}
	var opts []DeferOption
	if req.At != nil {
		opts = append(opts, At(*req.At))
	}
	if req.In > 0 {
		opts = append(opts, In(req.In))
	}
	if req.Unique != "" {
		opts = append(opts, Unique(req.Unique))
	}
	if req.Priority > 0 {
		opts = append(opts, Priority(req.Priority))
	}
	if req.Key == "" {
		made, err := c.deferCall(ctx, req.Task, req.Args, nil, "http", opts)
		if err != nil {
			return api.TaskCall{}, err
		}
		return c.deferred(ctx, made)
	}
	q, err := c.inserter(ctx)
	if err != nil {
		return api.TaskCall{}, err
	}
	call, err := c.deferral(ctx, req.Task, req.Args, nil, "http", opts)
	if err != nil {
		return api.TaskCall{}, err
	}
	var made riverq.Deferred
	id, fresh, err := l.DeferOperation(ctx, req.Task, req.Key, req.BodyHash, func(ctx context.Context, tx *sql.Tx) (string, error) {
		if paused != nil { // only what was deferred before is answered
			return "", paused
		}
		all, err := q.DeferTx(ctx, tx, []riverq.Call{call})
		if err != nil {
			return "", err
		}
		made = all[0]
		return strconv.FormatInt(made.ID, 10), nil
	})
	if err != nil {
		return api.TaskCall{}, ledgerError(err)
	}
	if !fresh {
		if made.ID, err = strconv.ParseInt(id, 10, 64); err != nil {
			return api.TaskCall{}, err
		}
		made.Duplicate = true
	}
	c.wakeCalls(call.Queue)
	got, err := c.deferred(ctx, Deferred(made))
	if KindOf(err) == KindNotFound { // it was done long ago, and is not kept any more
		return api.TaskCall{ID: made.ID, Task: req.Task, State: api.CallSucceeded, Argv: []string{}, Duplicate: true}, nil
	}
	return got, err
}

// deferred is a call for who deferred it.
func (c *Curfew) deferred(ctx context.Context, made Deferred) (api.TaskCall, error) {
	call, err := c.TaskCall(ctx, made.ID)
	call.Duplicate = made.Duplicate
	return call, err
}

// Tasks says how each task is doing.
func (f front) Tasks(ctx context.Context) ([]api.Task, error) { return f.current().c.Tasks(ctx) }

// Calls lists calls, the newest first.
func (f front) Calls(ctx context.Context, filter web.CallFilter) ([]api.TaskCall, string, error) {
	c := f.current().c
	if filter.State != "" && !slices.Contains(callStates, filter.State) {
		return nil, "", fail(KindUsage, "one of them, or none", "no state %q of a call", filter.State)
	}
	calls, err := c.TaskCalls(ctx, TaskCallFilter{Task: filter.Task, State: filter.State, Before: filter.Before, Limit: filter.Limit})
	if err == nil && len(calls) == 0 {
		_, err = c.taskRecord(ctx, filter.Task)
	}
	next := ""
	if len(calls) == filter.Limit {
		next = strconv.FormatInt(calls[len(calls)-1].ID, 10)
	}
	return calls, next, err
}

// callStates are the states of a call.
var callStates = []string{api.CallWaiting, api.CallRunning, api.CallRetrying, api.CallSucceeded, api.CallFailed, api.CallDiscarded}

// TaskCall gives one call of a task.
func (f front) Call(ctx context.Context, task string, id int64) (api.TaskCall, error) {
	call, err := f.current().c.TaskCall(ctx, id)
	if err == nil && call.Task != task {
		return api.TaskCall{}, fail(KindNotFound, "", "task %s has no call %d", task, id)
	}
	return call, err
}

// RetryCall has a call that failed for good executed again.
func (f front) RetryCall(ctx context.Context, task string, id int64, actor string) (api.TaskCall, error) {
	if _, err := f.Call(ctx, task, id); err != nil {
		return api.TaskCall{}, err
	}
	c := f.current().c
	if _, err := c.retryCalls(ctx, TaskCallFilter{Task: task, IDs: []int64{id}}, false, "token:"+actor); err != nil {
		return api.TaskCall{}, err
	}
	return c.TaskCall(ctx, id)
}

// DiscardCall gives a call up.
func (f front) DiscardCall(ctx context.Context, task string, id int64, actor, reason string) (api.TaskCall, error) {
	if _, err := f.Call(ctx, task, id); err != nil {
		return api.TaskCall{}, err
	}
	c := f.current().c
	if _, err := c.discardCalls(ctx, TaskCallFilter{Task: task, IDs: []int64{id}}, reason, false, "token:"+actor); err != nil {
		return api.TaskCall{}, err
	}
	return c.TaskCall(ctx, id)
}

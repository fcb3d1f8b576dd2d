package curfew

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/riverq"
	"curfew.dev/curfew/policy"
)

// TaskNames lists the tasks that this process can do, sorted.
func (c *Curfew) TaskNames() []string { return slices.Sorted(maps.Keys(c.tasks)) }

// TaskCallFilter selects calls of tasks. Zero fields select all.
type TaskCallFilter struct {
	IDs    []int64
	Task   string
	State  string // as in api
	Match  string // part of the last error
	Before int64  // calls older than this one, to read on from the last answer
	Limit  int    // default 100
}

func (f TaskCallFilter) list() riverq.CallFilter {
	return riverq.CallFilter{IDs: f.IDs, Task: f.Task, State: riverq.CallState(f.State), Match: f.Match, Before: f.Before, Limit: f.Limit}
}

// TaskCalls lists calls of tasks, the newest first.
func (c *Curfew) TaskCalls(ctx context.Context, f TaskCallFilter) ([]api.TaskCall, error) {
	calls := []api.TaskCall{}
	if c.noLedgerYet() {
		return calls, nil
	}
	q, err := c.inserter(ctx)
	if err != nil {
		return nil, err
	}
	found, err := q.Calls(ctx, f.list())
	if err != nil {
		return nil, ledgerError(err)
	}
	for _, r := range found {
		calls = append(calls, wireTaskCall(r))
	}
	return calls, nil
}

// TaskCall gives one call of a task.
func (c *Curfew) TaskCall(ctx context.Context, id int64) (api.TaskCall, error) {
	calls, err := c.TaskCalls(ctx, TaskCallFilter{IDs: []int64{id}, Limit: 1})
	if err == nil && len(calls) == 0 {
		err = fail(KindNotFound, "curfew task calls lists them; those that are done are kept for a while only", "no call %d", id)
	}
	if err != nil {
		return api.TaskCall{}, err
	}
	return calls[0], nil
}

// wireTaskCall is a call as it is shown.
func wireTaskCall(r riverq.CallRecord) api.TaskCall {
	call := api.TaskCall{
		ID: r.ID, Task: r.Task, State: string(r.State), Cause: r.Cause, ScheduledAt: orNil(r.Scheduled), Run: r.Run, Args: r.Args, Argv: r.Argv, Key: r.Key,
		Attempt: r.Attempt, Attempts: r.Attempts, Error: r.Error, Result: r.Output, CreatedAt: r.Created.UTC(), StartedAt: orNil(r.Started), EndedAt: orNil(r.Ended),
		DiscardedBy: r.DiscardedBy, Reason: r.Reason,
	}
	if call.Argv == nil {
		call.Argv = []string{}
	}
	if r.State == riverq.Waiting || r.State == riverq.Retrying {
		call.NotBefore = orNil(r.Due)
	}
	for _, text := range []*json.RawMessage{&call.Args, &call.Result} {
		if len(*text) == 0 {
			*text = json.RawMessage("null")
		}
	}
	return call
}

// RetryCalls has calls that failed for good executed again, each with all its attempts. With count they are only counted. The
// filter names some of them: everything is none.
func (c *Curfew) RetryCalls(ctx context.Context, f TaskCallFilter, count bool) (api.CallsChanged, error) {
	return c.retryCalls(ctx, f, count, c.actor)
}

func (c *Curfew) retryCalls(ctx context.Context, f TaskCallFilter, count bool, actor string) (api.CallsChanged, error) {
	f.State = api.CallFailed
	changed, err := c.changeCalls(ctx, f, count, "calls_retried", "", actor, func(ctx context.Context, q *riverq.Client, tx *sql.Tx) (int64, error) {
		return q.RetryTx(ctx, tx, f.list())
	})
	if err == nil && changed.Done {
		c.wakeCalls(riverq.Interactive)
	}
	return changed, err
}

// DiscardCalls gives up calls that failed for good, or, when they are named by their ids, that wait. A reason is needed.
func (c *Curfew) DiscardCalls(ctx context.Context, f TaskCallFilter, reason string, count bool) (api.CallsChanged, error) {
	return c.discardCalls(ctx, f, reason, count, c.actor)
}

func (c *Curfew) discardCalls(ctx context.Context, f TaskCallFilter, reason string, count bool, actor string) (api.CallsChanged, error) {
	if strings.TrimSpace(reason) == "" {
		return api.CallsChanged{}, fail(KindUsage, "say why, for whoever finds it in the audit trail", "no reason was given")
	}
	if len(f.IDs) == 0 {
		f.State = api.CallFailed
	}
	return c.changeCalls(ctx, f, count, "calls_discarded", reason, actor, func(ctx context.Context, q *riverq.Client, tx *sql.Tx) (int64, error) {
		return q.DiscardTx(ctx, tx, f.list(), actor, reason)
	})
}

func (c *Curfew) changeCalls(ctx context.Context, f TaskCallFilter, count bool, action, reason, actor string,
	change func(context.Context, *riverq.Client, *sql.Tx) (int64, error)) (api.CallsChanged, error) {
	if len(f.IDs) == 0 && f.Task == "" && f.Match == "" {
		return api.CallsChanged{}, fail(KindUsage, "name calls by their numbers, or a task", "it was not said which calls")
	}
	if c.noLedgerYet() {
		return api.CallsChanged{}, fail(KindNotFound, "curfew task failed lists them", "there is no call yet")
	}
	q, err := c.inserter(ctx)
	if err != nil {
		return api.CallsChanged{}, err
	}
	if len(f.IDs) > 0 {
		if err := c.allThere(ctx, f); err != nil {
			return api.CallsChanged{}, err
		}
	}
	if count {
		n, err := q.CountCalls(ctx, f.list())
		return api.CallsChanged{Calls: n}, ledgerError(err)
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return api.CallsChanged{}, err
	}
	body := struct {
		Task   string  `json:"task,omitempty"`
		IDs    []int64 `json:"calls,omitempty"`
		Match  string  `json:"match,omitempty"`
		Reason string  `json:"reason,omitempty"`
		By     string  `json:"by"`
		Count  int64   `json:"count"`
	}{Task: f.Task, IDs: f.IDs, Match: f.Match, Reason: reason, By: actor}
	err = l.Note(ctx, action, f.Task, &body, func(ctx context.Context, tx *sql.Tx) (err error) {
		body.Count, err = change(ctx, q, tx)
		return err
	})
	if err != nil {
		return api.CallsChanged{}, ledgerError(err)
	}
	return api.CallsChanged{Calls: body.Count, Done: true}, nil
}

// allThere makes sure that each call that was named can be meant.
func (c *Curfew) allThere(ctx context.Context, f TaskCallFilter) error {
	found, err := c.TaskCalls(ctx, TaskCallFilter{IDs: f.IDs, Limit: len(f.IDs)})
	if err != nil {
		return err
	}
	for _, id := range f.IDs {
		i := slices.IndexFunc(found, func(call api.TaskCall) bool { return call.ID == id })
		switch {
		case i < 0:
			return fail(KindNotFound, "curfew task failed lists those that failed", "no call %d", id)
		case f.State != "" && found[i].State != f.State:
			return fail(KindRefused, "nothing was changed", "call %d is %s", id, found[i].State)
		case found[i].State == api.CallRunning || found[i].State == api.CallSucceeded || found[i].State == api.CallDiscarded:
			return fail(KindRefused, "nothing was changed", "call %d is %s", id, found[i].State)
		}
	}
	return nil
}

// Tasks says how the named tasks are, or all: those of this process, and those that others on the ledger have.
func (c *Curfew) Tasks(ctx context.Context, names ...string) ([]api.Task, error) {
	k, err := c.known(ctx)
	if err != nil {
		return nil, err
	}
	records := map[string]ledger.TaskRecord{}
	stats := map[string]map[riverq.CallState]int64{}
	var left map[string]riverq.Backlog
	if !c.noLedgerYet() {
		l, err := c.ledger(ctx)
		if err != nil {
			return nil, err
		}
		known, err := l.Tasks(ctx)
		if err != nil {
			return nil, ledgerError(err)
		}
		for _, r := range known {
			records[r.Name] = r
		}
		q, err := c.inserter(ctx)
		if err != nil {
			return nil, err
		}
		if stats, err = q.CallStats(ctx); err != nil {
			return nil, ledgerError(err)
		}
		if left, err = q.Backlogs(ctx); err != nil {
			return nil, ledgerError(err)
		}
	}
	all := map[string]bool{}
	for name := range records {
		all[name] = true
	}
	for name := range stats {
		all[name] = true // of a task that everybody forgot, and that has calls
	}
	for name := range c.tasks {
		all[name] = true
	}
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(all))
	}
	tasks := []api.Task{}
	for _, name := range names {
		if !all[name] {
			_, err := c.taskRecord(ctx, name)
			return nil, errors.Join(err)
		}
		tasks = append(tasks, k.task(name, c.tasks[name], records[name], stats[name], left[name]))
	}
	return tasks, nil
}

// task is how one task is doing.
func (k known) task(name string, d *definition, r ledger.TaskRecord, calls map[riverq.CallState]int64, left riverq.Backlog) api.Task {
	t := api.Task{Name: name, Waiting: calls[riverq.Waiting], Running: calls[riverq.Running], Retrying: calls[riverq.Retrying], Failed: calls[riverq.Failed]}
	var problems, hints []string
	if d == nil {
		t.Kind = ofBody(r.Body)
		if parts := strings.Split(r.Expr, ";"); len(parts) == 3 {
			t.Cron, t.Timezone = parts[0], parts[1]
			t.Schedule = keptInWords(r.Expr)
			if s, ok := scheduleOf(&policy.Policy{Timezone: parts[1], Schedule: &policy.Schedule{Cron: parts[0]}}); ok {
				t.Schedule = s.Words()
				if next, comes := s.Next(k.now); comes {
					t.NextDue = &next
				}
			}
		}
		switch {
		case r.Name == "":
			problems, hints = append(problems, "no process has the task any more, and calls of it are left"), append(hints, "curfew task failed discard --task "+name+" --reason … gives up what failed; a process that has the task does the rest")
		case t.Cron != "" || t.Waiting+t.Retrying > 0:
			if s := k.schedules[stageName{name, ""}]; t.Cron != "" && k.now.Sub(s.TickedAt) > unseenFor {
				problems, hints = append(problems, "this process does not know it, and no other has kept its schedule since "+stampInWords(s.TickedAt)), append(hints, "start the application that has it: "+strings.TrimPrefix(r.Source, "program:"))
			}
		}
	} else {
		t.Kind, t.Here, t.Description = d.kind, true, d.o.Description
		s := k.status(d.timing)
		t.LastOK, t.NextDue = s.LastOK, s.NextDue
		if d.timing.Schedule != nil {
			t.Cron, t.Timezone, t.Schedule = d.o.Cron, d.timing.Timezone, scheduleInWords(d.timing)
			if !s.Well {
				problems, hints = append(problems, s.Problem), append(hints, s.Hint)
			}
		}
	}
	t.LastRun = k.health[stageName{name, ""}].Last.ID
	if ok := k.health[stageName{name, ""}].LastOK; t.LastOK == nil && ok.ID != "" {
		t.LastOK = orNil(ok.AsOf)
	}
	for _, a := range k.neglected(name, left) {
		problems, hints = append(problems, a.problem), append(hints, a.hint)
	}
	_, paused := k.pauses[name]
	t.State = stateOf(t, paused)
	t.Well, t.Problem, t.Hint = len(problems) == 0, strings.Join(problems, "; "), strings.Join(hints, "; ")
	return t
}

// unseenFor is how long a schedule is not looked at before its processes are down. A tick that finds nothing says so less often.
const unseenFor = time.Minute

func stateOf(t api.Task, paused bool) string {
	switch {
	case t.Running > 0:
		return "running"
	case paused:
		return "paused"
	case t.Retrying > 0:
		return "retrying"
	case t.Waiting > 0:
		return "waiting"
	}
	return "idle"
}

// ofBody is how a task of another process is done.
func ofBody(body []byte) string {
	var b struct {
		Kind    string          `json:"kind"`
		Command json.RawMessage `json:"command"`
		HTTP    json.RawMessage `json:"http"`
	}
	if json.Unmarshal(body, &b) != nil {
		return ""
	}
	switch {
	case b.Kind != "":
		return b.Kind
	case len(b.Command) > 0:
		return api.TaskCommand
	case len(b.HTTP) > 0:
		return api.TaskHTTP
	}
	return ""
}

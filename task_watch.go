package curfew

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/riverq"
)

const (
	// callsEvery is how often the periodic calls are looked after, unless something wakes the loop.
	callsEvery = time.Second
	// lostEvery is how often it is looked whether the job of each is still there.
	lostEvery = 5 * time.Second
)

// watchCalls puts the calls of periodic tasks into the queue, and ends those that nobody will execute any more. Any process that
// knows the task does so; each run has one job ever.
func (e *engine) watchCalls(ctx context.Context, beat func()) error {
	every := time.NewTicker(callsEvery)
	defer every.Stop()
	var looked time.Time // a process that is killed again and again looks at once, too
	for {
		thorough := time.Since(looked) >= lostEvery
		if err := e.callsOnce(ctx, thorough); err != nil {
			return err
		}
		if thorough {
			looked = time.Now()
		}
		beat()
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		case <-e.kickCalls:
		}
	}
}

// callsOnce looks once after the periodic calls of the tasks that this process knows.
func (e *engine) callsOnce(ctx context.Context, thorough bool) error {
	begun := e.calling.begun() // before: what begins while the ledger answers is not in its answer
	runs, err := e.l.OpenCalls(ctx)
	if err != nil {
		return err
	}
	e.callsOver(begun, runs)
	for _, run := range runs {
		d := e.c.tasks[run.Policy]
		if d == nil { // another process's
			continue
		}
		switch {
		case len(run.Plan) == 0:
			err = e.enqueueCall(ctx, d, run)
		case thorough:
			err = e.findCall(ctx, run)
		}
		if err != nil {
			return fmt.Errorf("task %s: %w", run.Policy, err)
		}
	}
	return nil
}

// nudgeCalls has the periodic calls looked after at once.
func (e *engine) nudgeCalls() {
	select {
	case e.kickCalls <- struct{}{}:
	default:
	}
}

// enqueueCall makes the job of a periodic call. A crash here leaves neither the job nor that there is one.
func (e *engine) enqueueCall(ctx context.Context, d *definition, run ledger.Run) error {
	call := callOf(d.record())
	call.Run, call.Scheduled, call.Cause = run.ID, run.AsOf, run.Cause
	err := e.l.EnqueueCall(ctx, run.ID, func(ctx context.Context, tx *sql.Tx) (int64, error) {
		made, err := e.queue.DeferTx(ctx, tx, []riverq.Call{call})
		if err != nil {
			return 0, err
		}
		return made[0].ID, nil
	})
	if errors.Is(err, ledger.ErrRunEnded) {
		return nil
	}
	if err == nil {
		e.queue.Wake(call.Queue)
	}
	return err
}

// findCall ends a run whose job has ended without it: it used up its attempts in processes that died, or somebody removed it.
func (e *engine) findCall(ctx context.Context, run ledger.Run) error {
	id, err := strconv.ParseInt(string(run.Plan), 10, 64)
	if err != nil {
		return fmt.Errorf("run %s: its call's number: %w", shortID(run.ID), err)
	}
	calls, err := e.queue.Calls(ctx, riverq.CallFilter{IDs: []int64{id}, Limit: 1})
	if err != nil {
		return err
	}
	state, why, detail := ledger.Failed, "call_lost", fmt.Sprintf("its call %d is not in the queue any more", id)
	if len(calls) > 0 {
		switch call := calls[0]; call.State {
		case riverq.Failed:
			why, detail = "task_failed", fmt.Sprintf("attempt %d of %d: %s", call.Attempt, call.Attempts, call.Error)
		case riverq.Discarded:
			state, why, detail = ledger.Cancelled, "discarded", call.Reason
		default: // one that succeeded has ended its run before
			return nil
		}
	}
	ended, err := e.l.EndCall(ctx, run.ID, "", state, why, detail)
	if errors.Is(err, ledger.ErrRunEnded) {
		return nil
	}
	if err == nil && ended.State == ledger.Failed {
		e.c.event(ctx, "run_failed", ended)
	}
	return err
}

// callDied writes down that a call fails for good which nobody could say so of: its processes died. That of a periodic one is in its
// run, see findCall.
func (e *engine) callDied(ctx context.Context, id int64, why string) error {
	calls, err := e.queue.Calls(ctx, riverq.CallFilter{IDs: []int64{id}, Limit: 1})
	if err != nil || len(calls) == 0 || calls[0].Run != "" {
		return err
	}
	call := calls[0]
	e.c.log.ErrorContext(ctx, "call_failed", "task", call.Task, "call", id, "attempt", call.Attempt, "err", why)
	return e.c.noteFailed(ctx, e.l, riverq.Attempt{Call: call.Call, ID: id, Attempt: call.Attempt, Last: true}, errors.New(why))
}

// calling are the periodic calls that this process executes, so that cancelling a run reaches its work.
type calling struct {
	mu   sync.Mutex
	runs map[string]context.CancelCauseFunc
}

func (k *calling) begin(run string, cancel context.CancelCauseFunc) (end func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.runs == nil {
		k.runs = map[string]context.CancelCauseFunc{}
	}
	k.runs[run] = cancel
	return func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.runs, run)
	}
}

// callBegins is told of each periodic call that executes here, and of its end: what waited for that may begin.
func (e *engine) callBegins(task, run string, cancel context.CancelCauseFunc) (end func()) {
	over := e.calling.begin(run, cancel)
	return func() {
		over()
		e.mu.Lock()
		e.ended[task] = true
		e.mu.Unlock()
	}
}

// begun are the runs whose work is under way.
func (k *calling) begun() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Collect(maps.Keys(k.runs))
}

// callsOver cancels the work of runs that somebody ended: those that had begun when the open ones were asked for, and are not among them.
func (e *engine) callsOver(begun []string, open []ledger.Run) {
	e.calling.mu.Lock()
	defer e.calling.mu.Unlock()
	for _, id := range begun {
		cancel := e.calling.runs[id]
		if cancel != nil && !slices.ContainsFunc(open, func(r ledger.Run) bool { return r.ID == id }) {
			cancel(&cancelledError{"curfew cancel, or its task left"})
		}
	}
}

// watchOver goes on with that while the service stops, until the function that it returns is called: a run that ends then, or whose task
// left with the file of before, is not waited for.
func (e *engine) watchOver(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for begun := e.calling.begun(); len(begun) > 0; begun = e.calling.begun() {
			if runs, err := e.l.OpenCalls(ctx); err == nil {
				e.callsOver(begun, runs)
			}
			if pause(ctx, callsEvery) != nil {
				return
			}
		}
	}()
	return func() { cancel(); <-done }
}

// dropCall discards the call of a run that was ended, unless it executes: then whoever executes it finds out.
func (c *Curfew) dropCall(ctx context.Context, l *ledger.Ledger, run ledger.Run, reason string) error {
	id, err := strconv.ParseInt(string(run.Plan), 10, 64)
	if run.Mode != ledger.ModeTask || err != nil { // it has none
		return nil
	}
	q, err := c.inserter(ctx)
	if err != nil {
		return err
	}
	return ledgerError(l.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := q.DiscardTx(ctx, tx, riverq.CallFilter{IDs: []int64{id}}, "curfew", reason)
		return err
	}))
}

// putTasks says in the ledger which tasks this process has, and ends what is under way of those that left.
func (e *engine) putTasks(ctx context.Context) error {
	for source, records := range e.c.taskSources() {
		gone, err := e.l.PutTasks(ctx, source, records)
		if err != nil {
			return err
		}
		for _, name := range gone {
			if err := e.retireTask(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

// retireTask ends the schedule of a task that left, and its runs that nobody will go on with. What was deferred waits for a process
// that knows it.
func (e *engine) retireTask(ctx context.Context, name string) error {
	runs, err := e.l.OpenCalls(ctx)
	if err != nil {
		return err
	}
	for _, run := range runs {
		if run.Policy != name {
			continue
		}
		ended, err := e.l.EndCall(ctx, run.ID, "", ledger.Cancelled, "task_gone", "the task left")
		if err != nil && !errors.Is(err, ledger.ErrRunEnded) {
			return err
		}
		if err == nil {
			e.c.event(ctx, "run_ended", ended)
			if err := e.c.dropCall(ctx, e.l, ended, "its run was ended: the task left"); err != nil {
				return err
			}
		}
	}
	if err := e.l.Unschedule(ctx, name, ""); err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return err
	}
	return nil
}

const (
	// pruneEvery is how often old calls are looked for, and pruneRows how many one transaction drops.
	pruneEvery = 10 * time.Minute
	pruneRows  = 1000
)

// pruneCalls drops calls whose time is up: those that finished, and those that failed for good.
func (e *engine) pruneCalls(ctx context.Context, beat func()) error {
	for {
		now, err := e.l.Now(ctx)
		if err != nil {
			return err
		}
		keep := e.c.file.Retention
		for n := int64(pruneRows); n >= pruneRows; {
			if n, err = e.queue.PruneCalls(ctx, now.Add(-keep.FinishedCalls), now.Add(-keep.FailedCalls), pruneRows); err != nil {
				return err
			}
			if beat(); ctx.Err() != nil {
				return nil
			}
		}
		for until := time.Now().Add(pruneEvery); time.Now().Before(until); {
			beat()
			if pause(ctx, quietFor/3) != nil {
				return nil
			}
		}
	}
}

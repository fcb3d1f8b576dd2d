package curfew

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/policy"
)

// mostRuns bounds how many runs a process works on at once. What is beyond waits for another process, or for one of these to end.
const mostRuns = 64

// superviseEvery is how often the open runs are looked at, unless something wakes the supervisor.
const superviseEvery = time.Second

// nudge wakes the supervisor.
func (e *engine) nudge() {
	select {
	case e.kick <- struct{}{}:
	default:
	}
}

// supervise sees to it that every open run has a process at work on it: it takes those that nobody has, and those whose process
// gave no sign of life for long.
func (e *engine) supervise(ctx context.Context, beat func()) error {
	every := time.NewTicker(superviseEvery)
	defer every.Stop()
	for {
		if _, err := e.superviseOnce(ctx); err != nil {
			return err
		}
		beat()
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		case <-e.kick:
		}
	}
}

// superviseOnce takes the open runs that nobody has, and reports how many there are that this process could work on.
func (e *engine) superviseOnce(ctx context.Context) (open int, err error) {
	runs, err := e.l.OpenRuns(ctx)
	if err != nil {
		return 0, err
	}
	now, err := e.l.Now(ctx)
	if err != nil {
		return 0, err
	}
	for _, run := range runs {
		mine, n := e.draining(run.ID)
		if mine || run.Owner != "" && now.Sub(run.Heartbeat) < staleAfter {
			continue
		}
		if n >= mostRuns {
			break
		}
		if !e.has(ctx, run) {
			continue
		}
		open++
		if err := e.take(ctx, run); err != nil {
			return open, err
		}
	}
	return open, nil
}

// has reports whether the run's database is in this process's policy file. A run whose database is not is another process's.
func (e *engine) has(ctx context.Context, run ledger.Run) bool {
	e.mu.Lock()
	name, known := e.databases[run.Revision]
	e.mu.Unlock()
	if !known {
		p, err := e.c.storedPolicy(ctx, e.l, run)
		if err != nil {
			return true // whoever takes it finds out what is wrong with it
		}
		name = p.Database
		e.mu.Lock()
		e.databases[run.Revision] = name
		e.mu.Unlock()
	}
	_, ok := e.c.file.Databases[name]
	return ok
}

// draining reports whether this process works on the run, and on how many in all.
func (e *engine) draining(run string) (bool, int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, ok := e.drains[run]
	return ok, len(e.drains)
}

// take claims a run and works on it until it ends, is lost to another process, or ctx is done.
func (e *engine) take(ctx context.Context, run ledger.Run) error {
	err := e.l.Claim(ctx, run.ID, e.owner, staleAfter)
	if errors.As(err, new(*ledger.OwnedError)) || errors.Is(err, ledger.ErrRunEnded) {
		return nil // another one was first
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	e.mu.Lock()
	e.drains[run.ID] = cancel
	e.mu.Unlock()
	e.drain.Go(func() {
		var signs sync.WaitGroup
		defer func() {
			cancel()
			signs.Wait()
			e.mu.Lock()
			delete(e.drains, run.ID)
			e.ended[run.Policy] = true
			e.mu.Unlock()
			e.nudge() // another run may have waited for this one
		}()
		signs.Go(func() {
			if !e.c.heartbeat(ctx, e.l, run.ID, e.owner) {
				cancel() // it ended, or another process has it: that one took ours for dead
			}
		})
		// A panic in one run must not take the others along; what the ledger has of it stays, and another try is made.
		err := guarded(func() error { return e.see(ctx, run) })
		if err != nil && ctx.Err() == nil {
			e.c.log.ErrorContext(ctx, "run_dropped", "run", run.ID, "policy", run.Policy, "err", err)
		}
		e.release(context.WithoutCancel(ctx), run)
	})
	return nil
}

// release gives a run up that has not ended, so that any process may take it at once.
func (e *engine) release(ctx context.Context, run ledger.Run) {
	now, err := e.l.Get(ctx, run.ID)
	if err != nil || now.State.Ended() || now.Owner != e.owner {
		return
	}
	if _, err := e.l.Interrupt(ctx, run.ID, "its process was stopped"); err != nil && !errors.Is(err, ledger.ErrRunEnded) {
		e.c.log.WarnContext(ctx, "run_not_released", "run", run.ID, "err", err)
	}
}

// see works on a run until it ends. While a database is out of reach it tries again with the policy's patience.
func (e *engine) see(ctx context.Context, run ledger.Run) error {
	p, err := e.c.storedPolicy(ctx, e.l, run)
	if err != nil {
		return e.fail(ctx, run, "revision_unreadable", err)
	}
	wait, settled := p.Retry.Backoff, run.BatchesSettled
	for attempt := 1; ; attempt++ {
		ready, err := e.mayStart(ctx, run, p)
		if err == nil && ready {
			run, err = e.drainQueued(ctx, run)
		}
		switch {
		case ctx.Err() != nil || over(run):
			return nil
		case err == nil && !ready:
			attempt = 0
			if err := pause(ctx, superviseEvery); err != nil {
				return nil
			}
			if run, err = e.l.Get(ctx, run.ID); err != nil {
				return err
			}
			if over(run) {
				return nil
			}
			continue
		case err == nil:
			return nil
		}
		if now, gerr := e.l.Get(ctx, run.ID); gerr == nil && now.BatchesSettled > settled {
			attempt, wait, settled = 1, p.Retry.Backoff, now.BatchesSettled // it got on: this is another trouble
		}
		if changed, cerr := e.databaseChanged(ctx, run, err); changed {
			return cerr
		}
		if why := lasting(err); why != "" || attempt >= p.Retry.Attempts {
			if why == "" {
				why = "gave_up"
			}
			return e.fail(ctx, run, why, err)
		}
		e.c.log.WarnContext(ctx, "run_retried", "run", run.ID, "policy", run.Policy, "attempt", attempt, "wait", wait.String(), "err", err)
		if werr := e.l.Wait(ctx, run.ID, err.Error()); werr != nil {
			return werr
		}
		if pause(ctx, wait) != nil {
			return nil
		}
		wait *= time.Duration(p.Retry.Factor)
	}
}

// lasting is why a run cannot go on after an error that another try would meet again; "" for one that may pass.
func lasting(err error) string {
	switch KindOf(err) {
	case KindRefused, KindConfig, KindUsage:
		return "refused"
	}
	return ""
}

// pause waits, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

// mayStart reports whether the run's turn has come and, where its policy shares a lock, whether it has that now.
func (e *engine) mayStart(ctx context.Context, run ledger.Run, p *policy.Policy) (bool, error) {
	if ready, err := e.itsTurn(ctx, run, p); !ready || err != nil {
		return false, err
	}
	return e.c.takeLock(ctx, e.l, e.queue, run, p)
}

// itsTurn reports whether the run that this one comes after is done. When that one did not succeed, this one is skipped.
func (e *engine) itsTurn(ctx context.Context, run ledger.Run, p *policy.Policy) (bool, error) {
	if run.State != ledger.Accepted || !live(run) {
		return true, nil
	}
	if done, err := e.earlierRuns(ctx, run, p); !done || err != nil {
		return false, err
	}
	if p.After == "" {
		return true, nil
	}
	found := false
	for _, stage := range e.stagesAt(p.After, run.AsOf) {
		before, err := e.l.Get(ctx, ledger.RunID(p.After, stage.name, run.Mode, ledger.IdentityAsOf(run.AsOf)))
		switch {
		case errors.Is(err, ledger.ErrNotFound) && !stage.expected:
			continue
		case errors.Is(err, ledger.ErrNotFound):
			return false, e.expireWaiting(ctx, run, p) // it may still come
		case err == nil && !before.State.Ended():
			return false, nil
		case err != nil:
			return false, err
		case before.State == ledger.Succeeded:
			found = true
			continue
		}
		_, err = e.l.End(ctx, run.ID, ledger.Skipped, "after_"+string(before.State), fmt.Sprintf("%s, which it comes after, ended as %s", p.After, before.State))
		return false, err
	}
	if !found {
		return false, e.expireWaiting(ctx, run, p)
	}
	return true, nil
}

// stageAt is a stage that may have a run at an instant; expected says that its schedule has the instant.
type stageAt struct {
	name     string
	expected bool
}

// stagesAt are the stages of a policy, and which of them are expected to run as of an instant.
func (e *engine) stagesAt(name string, at time.Time) []stageAt {
	p, err := e.c.file.Policy(name)
	if err != nil {
		return []stageAt{{}}
	}
	var out []stageAt
	for _, q := range stages(p) {
		cron, ok := scheduleOf(q)
		out = append(out, stageAt{q.StageName(), ok && len(between(cron)(at.Add(-time.Nanosecond), at, 1)) > 0})
	}
	return out
}

// expireWaiting ends a run that waits for another policy's run which did not come in time. Where the schedule made the run, its
// occurrence does the same.
func (e *engine) expireWaiting(ctx context.Context, run ledger.Run, p *policy.Policy) error {
	now, err := e.l.Now(ctx)
	if err != nil || p.Schedule == nil || now.Sub(run.AcceptedAt) <= p.Schedule.StartWithin {
		return err
	}
	ended, err := e.l.End(ctx, run.ID, ledger.Expired, "not_started", "no run of "+p.After+" came for this instant")
	if err == nil {
		e.c.event(ctx, "run_ended", ended)
	}
	return err
}

// drainQueued pages the run and sees its batches through the queue.
func (e *engine) drainQueued(ctx context.Context, run ledger.Run) (ledger.Run, error) {
	w, err := e.c.bind(ctx, e.l, run)
	if err != nil {
		return run, err
	}
	if err := w.start(ctx); err != nil || over(w.run) {
		return w.run, err
	}
	o := w.options()
	if w.remote != nil {
		o.Waited, w.retried = e.metrics.AdmissionWaited, e.metrics.BatchRetried
	} else {
		o.Worker, o.Enqueue, o.Wake = queued{e, run.ID}, e.enqueue(w), e.wake
	}
	ran, err := dispatch.Drain(ctx, run.ID, o)
	if ended := (*dispatch.EndedError)(nil); errors.As(err, &ended) {
		return ended.Run, nil // whoever ended it has said so
	}
	if ran.ID == "" {
		ran = w.run
	}
	if ran.State.Ended() {
		if ran.State == ledger.Succeeded {
			e.c.event(ctx, "run_ended", ran)
			e.c.tidy(ctx, e.l, ran)
		}
		return ran, nil
	}
	return ran, err
}

// source names the policy file, so that a service which reads it again knows what left it.
func (c *Curfew) source() string {
	path, err := filepath.Abs(c.fileName())
	if err != nil {
		return c.fileName()
	}
	return path
}

// retireGone ends what has left the policy file since a service read it last, in this process or in another one, before or after a
// restart: such a policy's open runs are cancelled, and its schedule ends. So are the open runs of a policy that has another database
// now, when the old one is not in the file any more: nobody could work on them, and they would be in the way of all that follow.
func (e *engine) retireGone(ctx context.Context) error {
	names, err := e.l.InForceFrom(ctx, e.c.source())
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := e.c.file.Policy(name); err == nil {
			continue
		}
		if err := e.retire(ctx, name); err != nil {
			return err
		}
	}
	if err := e.putTasks(ctx); err != nil {
		return err
	}
	if err := e.retireStages(ctx); err != nil {
		return err
	}
	runs, err := e.l.OpenRuns(ctx)
	if err != nil {
		return err
	}
	for _, run := range runs {
		if _, err := e.c.file.Policy(run.Policy); err != nil || e.has(ctx, run) {
			continue
		}
		if err := e.cancel(ctx, run, "database_gone", "the policy has another database now, and this run's is not in the file"); err != nil {
			return err
		}
	}
	return nil
}

// cancel ends an open run, whoever works on it.
func (e *engine) cancel(ctx context.Context, run ledger.Run, why, detail string) error {
	ended, err := e.l.End(ctx, run.ID, ledger.Cancelled, why, detail)
	if err == nil {
		e.c.event(ctx, "run_ended", ended)
	}
	return err
}

// retire ends what a policy that left the file has under way.
func (e *engine) retire(ctx context.Context, name string) error {
	runs, err := e.l.OpenRuns(ctx)
	if err != nil {
		return err
	}
	for _, run := range runs {
		if run.Policy != name {
			continue
		}
		if err := e.cancel(ctx, run, "policy_gone", "the policy left the file"); err != nil {
			return err
		}
	}
	kept, err := e.l.Schedules(ctx)
	if err != nil {
		return err
	}
	for _, s := range kept {
		if s.Policy == name {
			if err := e.l.Unschedule(ctx, name, s.Stage); err != nil {
				return err
			}
		}
	}
	return e.l.PutOutOfForce(ctx, name)
}

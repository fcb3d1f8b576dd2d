package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ModeTask is the mode of the runs that are periodic calls of tasks. Such a run has the task's name for its policy, no stage and no
// batches. It is executing while it has an owner; without one it rests between two attempts, and is in nobody's way.
const ModeTask = "task"

// errNoCall refuses to treat a policy's run as a call, whose batches would be forgotten.
var errNoCall = errors.New("the run is no call of a task")

// OpenCalls returns the runs of tasks that are accepted or running, the oldest first.
func (l *Ledger) OpenCalls(ctx context.Context) ([]Run, error) {
	rows, err := l.query(ctx, `SELECT `+runColumns+` FROM @run WHERE ended_at IS NULL AND mode = 'task' AND state IN ('accepted', 'running')
		ORDER BY accepted_at, id`)
	if err != nil {
		return nil, fmt.Errorf("list open calls: %w", err)
	}
	runs, err := collectRuns(rows)
	if err != nil {
		return nil, fmt.Errorf("list open calls: %w", err)
	}
	return runs, nil
}

// lockCall is lock of a task's run.
func (t *txn) lockCall(ctx context.Context, id string) (Run, error) {
	r, err := t.lock(ctx, id)
	if err == nil && r.Mode != ModeTask {
		err = errNoCall
	}
	return r, err
}

// BeginCall begins an attempt of a task's run: the first takes it from accepted to running, unless that is too late for its
// occurrence; then it expires. A run that has ended, also so, is ErrRunEnded: nothing is to be executed. Its plan stays.
func (l *Ledger) BeginCall(ctx context.Context, id, owner string) (Run, error) {
	if owner == "" {
		return Run{}, errors.New("begin a call: an owner is needed")
	}
	var r Run
	err := l.tx(ctx, func(t *txn) (err error) {
		if r, err = t.lockCall(ctx, id); err != nil || r.State.Ended() {
			return err
		}
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		action := ActionRunResumed
		if r.State == Accepted {
			late, err := t.startsLate(ctx, id, now)
			if err != nil {
				return err
			}
			if late {
				r.State, r.WhyEnded, r.EndedAt = Expired, WhyNotStarted, now
				return t.end(ctx, &r)
			}
			action, r.State, r.StartedAt = ActionRunStarted, Running, now
		}
		r.Owner, r.Heartbeat, r.Detail = owner, now, ""
		if _, err := t.exec(ctx, `UPDATE @run SET state = $1, started_at = $2, owner = $3, heartbeat = $4, detail = '' WHERE id = $5`,
			string(r.State), stamp(r.StartedAt), owner, stamp(now), id); err != nil {
			return err
		}
		return t.audit(entry{action: action, policy: r.Policy, run: id, body: struct {
			AsOf     time.Time `json:"as_of"`
			Revision string    `json:"revision"`
		}{r.AsOf, r.Revision}})
	})
	if err == nil && r.State.Ended() {
		err = fmt.Errorf("%w: %s", ErrRunEnded, r.State)
	}
	if err != nil {
		return Run{}, fmt.Errorf("begin run %s: %w", short(id), err)
	}
	return r, nil
}

// ErrOvertaken refuses what an attempt says of a run that another attempt has begun meanwhile: this one was taken for dead.
var ErrOvertaken = errors.New("another attempt has the run")

// RestCall gives a task's run up until its next attempt; detail says why, and when that is. The run is owner's, or it is
// ErrOvertaken.
func (l *Ledger) RestCall(ctx context.Context, id, owner, detail string) error {
	detail = text(detail)
	err := l.tx(ctx, func(t *txn) error {
		r, err := t.lockCall(ctx, id)
		if err != nil {
			return err
		}
		if r.State.Ended() {
			return fmt.Errorf("%w: %s", ErrRunEnded, r.State)
		}
		if r.Owner != owner {
			return ErrOvertaken
		}
		if _, err := t.exec(ctx, `UPDATE @run SET detail = $1, owner = '', heartbeat = NULL WHERE id = $2`, detail, id); err != nil {
			return err
		}
		return t.audit(entry{action: ActionRunInterrupted, policy: r.Policy, run: id, body: struct {
			Detail string `json:"detail"`
		}{detail}})
	})
	if err != nil {
		return fmt.Errorf("rest run %s: %w", short(id), err)
	}
	return nil
}

// EndCall ends a task's run and returns it as it then stands. Like End it leaves a run that has ended as it is. An open one that is
// not owner's is ErrOvertaken; without an owner it is ended whoever has it.
func (l *Ledger) EndCall(ctx context.Context, id, owner string, state State, why, detail string) (Run, error) {
	if !state.Ended() {
		return Run{}, fmt.Errorf("end run %s: %q is no final state", short(id), state)
	}
	var r Run
	err := l.tx(ctx, func(t *txn) (err error) {
		if r, err = t.lockCall(ctx, id); err != nil || r.State.Ended() {
			return err
		}
		if owner != "" && r.Owner != owner {
			return ErrOvertaken
		}
		if state == Succeeded && r.State != Running {
			return fmt.Errorf("a run that is %s cannot succeed: it was not started", r.State)
		}
		if r.EndedAt, err = t.clock(ctx); err != nil {
			return err
		}
		r.State, r.WhyEnded, r.Detail = state, why, text(detail)
		return t.end(ctx, &r)
	})
	if err != nil {
		return Run{}, fmt.Errorf("end run %s: %w", short(id), err)
	}
	return r, nil
}

package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

const (
	// tickLimit is how many instants one tick takes: a transaction of well under a second on both engines.
	tickLimit = 500
	// tickNote is how often a tick that found nothing says that there was one.
	tickNote = 10 * time.Second
	// callEarly is how long before the instant an expected call may come.
	callEarly = time.Minute
	// catchUpCap is how many missed instants are caught up when the schedule does not say.
	catchUpCap = 100
)

// Tick turns what of a schedule has come by the ledger's clock into occurrences and runs, in one transaction. Any number of
// processes may tick at any time: each instant gets one occurrence. A crash before the commit leaves nothing, and the next
// tick, of whatever process, goes on from the schedule's cursor.
//
// It also ends what waited too long, accepts what queued, and makes the run that catches up. The clock going back makes it
// do nothing; a clock that cannot be right is a *ClockError, and nothing is written.
func (l *Ledger) Tick(ctx context.Context, s Scheduled) (Ticked, error) {
	if err := s.check(); err != nil {
		return Ticked{}, fmt.Errorf("tick of %s: %w", s.Policy, err)
	}
	var done Ticked
	err := l.tx(ctx, func(t *txn) error {
		k := &tick{t: t, s: s}
		err := k.run(ctx)
		done = k.done
		return err
	})
	if err != nil {
		return Ticked{}, fmt.Errorf("tick of %s: %w", s.Policy, err)
	}
	return done, nil
}

// tick is one tick in its transaction.
type tick struct {
	t      *txn
	s      Scheduled
	now    time.Time // what is due is decided by this; the transaction's clock goes on when it waits for a run
	paused time.Time // since when; zero: not
	done   Ticked

	looked   bool // the next two are known
	busy     bool // a run of the stage and mode is in the way: accepted or running, and not between two attempts
	awaiting []Run
}

func (k *tick) run(ctx context.Context) error {
	st, fresh, err := k.t.lockSchedule(ctx, &k.s)
	if err != nil {
		return err
	}
	if fresh {
		k.done.FirstSeen = true
		return k.audit(ActionScheduleSeen, "", time.Time{})
	}
	if k.now, err = k.t.clock(ctx); err != nil {
		return err
	}
	if st.Expr != k.s.Expr && !k.s.Read.IsZero() && !k.s.Read.After(st.ReadAt) {
		// Another process read its file after us: its schedule is the one that is kept, by us too. Two that took turns would each
		// pass over the other's instants.
		k.done.Older = true
		if k.s.Between = k.s.was(st.Expr); k.s.Between == nil {
			return nil
		}
		k.s.Expr = st.Expr
	}
	back := st.Cursor.Sub(k.now)
	if back > 0 && back <= clockBehind {
		return nil // the clock went back a little: it will be here again
	}
	if err := k.t.checkClock(ctx, k.now); err != nil {
		return err
	}
	if back > 0 {
		// The clock was ahead when it ticked, was put right and was accepted. What was recorded of the time ahead stays.
		k.done.Changed = true
		if err := k.audit(ActionScheduleChanged, st.Expr, st.Cursor); err != nil {
			return err
		}
		return k.move(ctx, k.s.Expr, k.now)
	}
	if err := k.readPause(ctx); err != nil {
		return err
	}
	if err := k.waiting(ctx); err != nil {
		return err
	}
	if err := k.enumerate(ctx, st); err != nil {
		return err
	}
	if k.done.More {
		return nil
	}
	return k.catchUp(ctx)
}

func (k *tick) audit(action, was string, since time.Time) error {
	return k.t.audit(entry{action: action, policy: k.s.Policy, body: struct {
		Stage string     `json:"stage"`
		Expr  string     `json:"expr"`
		Was   string     `json:"was,omitempty"`
		Since *time.Time `json:"since,omitempty"` // the cursor of the old one
	}{k.s.Stage, k.s.Expr, was, stamp(since).pointer()}})
}

func (k *tick) move(ctx context.Context, expr string, cursor time.Time) error {
	read := time.Time{}
	if expr == k.s.Expr { // else it is still the one of before, which has a file of its own
		read = k.s.Read
	}
	_, err := k.t.exec(ctx, `UPDATE @schedule SET expr = $1, cursor = $2, ticked_at = $3, read_at = CASE WHEN $4 > read_at THEN $4 ELSE read_at END
		WHERE policy = $5 AND stage = $6`, expr, stamp(cursor), stamp(k.now), stamp(read), k.s.Policy, k.s.Stage)
	return err
}

func (k *tick) readPause(ctx context.Context) error {
	err := k.t.queryRow(ctx, `SELECT since FROM @pause WHERE policy = $1`, k.s.Policy).Scan((*stamp)(&k.paused))
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// enumerate takes the instants since the cursor, and moves it.
func (k *tick) enumerate(ctx context.Context, st ScheduleState) error {
	between, changed := k.s.Between, st.Expr != k.s.Expr
	if changed {
		between = k.s.was(st.Expr)
	}
	var instants []time.Time
	if between != nil {
		instants = between(st.Cursor, k.now, tickLimit)
	}
	last := st.Cursor
	for i, at := range instants {
		if at = micros(at); !at.After(last) || at.After(k.now) || i == tickLimit {
			return fmt.Errorf("the schedule %q says %s, asked for instants after %s and until %s", st.Expr, at, last, k.now)
		}
		if err := k.due(ctx, at); err != nil {
			return err
		}
		last = at
	}
	switch {
	case len(instants) == tickLimit:
		k.done.More = true
		return k.move(ctx, st.Expr, last)
	case changed:
		k.done.Changed = true
		if err := k.audit(ActionScheduleChanged, st.Expr, st.Cursor); err != nil {
			return err
		}
	case len(instants) == 0 && k.now.Sub(st.TickedAt) < tickNote:
		return nil // the cursor may stay behind: there was nothing
	}
	return k.move(ctx, k.s.Expr, k.now)
}

// due decides what becomes of an instant that has come.
func (k *tick) due(ctx context.Context, at time.Time) error {
	o := Occurrence{Policy: k.s.Policy, Stage: k.s.Stage, At: at, StartBy: at.Add(k.s.StartWithin), External: k.s.External,
		State: OccurrencePending, Created: k.now}
	late := k.now.After(o.StartBy)
	switch {
	case !k.paused.IsZero() && !(late && at.Before(k.paused)): // what was missed before the pause is no skip
		return k.record(ctx, &o, OccurrenceSkipped, WhyPaused)
	case k.s.External:
		return k.expect(ctx, &o, late)
	case late:
		return k.record(ctx, &o, OccurrenceMissed, WhyNoProcess)
	}
	id := RunID(k.s.Policy, k.s.Stage, k.s.Mode, IdentityAsOf(at))
	_, err := k.t.run(ctx, id)
	if errors.Is(err, ErrNotFound) {
		var free bool
		if free, err = k.free(ctx); err == nil && !free {
			if k.s.Overlap == "queue" {
				_, err = k.t.insertOccurrence(ctx, &o)
				return err
			}
			return k.record(ctx, &o, OccurrenceSkipped, WhyOverlap)
		}
	}
	if err != nil {
		return err
	}
	o.Run = id
	if created, err := k.t.insertOccurrence(ctx, &o); err != nil || !created {
		return err
	}
	return k.accept(ctx, &o)
}

// record writes an occurrence that has ended already.
func (k *tick) record(ctx context.Context, o *Occurrence, state OccurrenceState, why string) error {
	o.State, o.Why, o.Ended = state, why, k.now
	created, err := k.t.insertOccurrence(ctx, o)
	if created {
		k.done.Ended = append(k.done.Ended, *o)
	}
	return err
}

// end ends an occurrence that was pending.
func (k *tick) end(ctx context.Context, o *Occurrence, state OccurrenceState, why string) error {
	ended, err := k.t.endOccurrence(ctx, o, state, why)
	if ended {
		k.done.Ended = append(k.done.Ended, *o)
	}
	return err
}

// accept makes the run of a pending occurrence that names it. Somebody may have made it already, and it may have ended.
func (k *tick) accept(ctx context.Context, o *Occurrence) error {
	r, err := k.insert(ctx, o.At, "schedule")
	if err != nil || !r.State.Ended() {
		return err
	}
	state, why := r.became()
	return k.end(ctx, o, state, why)
}

func (k *tick) insert(ctx context.Context, at time.Time, cause string) (Run, error) {
	identity := IdentityAsOf(at)
	id := RunID(k.s.Policy, k.s.Stage, k.s.Mode, identity)
	created, err := k.t.insertRun(ctx, id, Acceptance{
		Policy: k.s.Policy, Stage: k.s.Stage, Mode: k.s.Mode, Identity: identity, Cause: cause,
		Cutoff: k.s.Cutoff, RevisionID: k.s.RevisionID, Revision: k.s.Revision,
	}, &at)
	if err != nil {
		return Run{}, err
	}
	r, err := k.t.lock(ctx, id) // whoever ends it from here on sees what waits for it
	if err != nil {
		return Run{}, err
	}
	if created {
		k.done.Accepted = append(k.done.Accepted, r)
	}
	if !r.State.Ended() {
		k.busy = true
	}
	return r, nil
}

// look finds the open runs of the stage and mode, and keeps others from making one.
func (k *tick) look(ctx context.Context) error {
	if k.looked {
		return nil
	}
	if err := k.t.lockOpen(ctx, k.s.Policy, k.s.Stage, k.s.Mode); err != nil {
		return err
	}
	rows, err := k.t.query(ctx, `SELECT `+runColumns+` FROM @run WHERE policy = $1 AND stage = $2 AND mode = $3 AND ended_at IS NULL`,
		k.s.Policy, k.s.Stage, k.s.Mode)
	if err != nil {
		return err
	}
	open, err := collectRuns(rows)
	if err != nil {
		return err
	}
	k.looked = true
	for _, r := range open {
		switch {
		case r.State == AwaitingApproval:
			k.awaiting = append(k.awaiting, r)
		case !r.rests():
			k.busy = true
		}
	}
	return nil
}

// rests reports whether a task's run waits for its next attempt. It may do so for hours, and others need not wait for it.
func (r *Run) rests() bool { return r.Mode == ModeTask && r.State == Running && r.Owner == "" }

// free reports whether a run may be accepted for the next instant. A run that still awaits approval makes way for it.
func (k *tick) free(ctx context.Context) (bool, error) {
	if k.s.Overlap == "allow" {
		return true, nil
	}
	if err := k.look(ctx); err != nil {
		return false, err
	}
	for !k.busy && len(k.awaiting) > 0 {
		r, err := k.t.lock(ctx, k.awaiting[0].ID)
		if err != nil {
			return false, err
		}
		k.awaiting = k.awaiting[1:]
		switch {
		case r.State == AwaitingApproval:
			if err := k.endRun(ctx, r, Cancelled, WhySuperseded); err != nil {
				return false, err
			}
		case !r.State.Ended():
			k.busy = true // it was approved just now
		}
	}
	return !k.busy, nil
}

// endRun ends a locked run, and with it what waited for it.
func (k *tick) endRun(ctx context.Context, r Run, state State, why string) (err error) {
	if r.EndedAt, err = k.t.clock(ctx); err != nil {
		return err
	}
	rows, err := k.t.query(ctx, `SELECT `+occurrenceColumns+` FROM @occurrence o WHERE o.run = $1 AND o.run <> '' AND o.state = 'pending'`, r.ID)
	if err != nil {
		return err
	}
	waiting, err := collectOccurrences(rows)
	if err != nil {
		return err
	}
	r.State, r.WhyEnded = state, why
	if err := k.t.end(ctx, &r); err != nil {
		return err
	}
	for _, o := range waiting {
		o.State, o.Why = r.became()
		o.Ended = r.EndedAt
		k.done.Ended = append(k.done.Ended, o)
	}
	return nil
}

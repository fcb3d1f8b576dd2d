package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// waiting looks after what is pending: it ends what waited too long or whose run has ended, and accepts what queued.
func (k *tick) waiting(ctx context.Context) error {
	pending, err := k.t.pending(ctx, k.s.Policy, k.s.Stage)
	if err != nil {
		return err
	}
	var queue []*Occurrence
	for i := range pending {
		p := &pending[i]
		late := k.now.After(p.StartBy)
		switch {
		case p.Run == "" && p.External:
			err = k.awaitCall(ctx, &p.Occurrence, late)
		case p.Run == "" && !k.paused.IsZero():
			err = k.end(ctx, &p.Occurrence, OccurrenceSkipped, WhyPaused)
		case p.Run == "" && late:
			err = k.end(ctx, &p.Occurrence, OccurrenceExpired, WhyNotStarted)
		case p.Run == "":
			queue = append(queue, &p.Occurrence)
		case p.runState.Ended():
			err = k.settle(ctx, &p.Occurrence, p.Run)
		case p.runState == Accepted && late && !p.External: // a call made its run wait for nobody's deadline
			err = k.expire(ctx, p.Run)
		}
		if err != nil {
			return err
		}
	}
	for _, o := range queue {
		if err := k.dequeue(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// dequeue accepts the run of an occurrence that queued, when its turn has come.
func (k *tick) dequeue(ctx context.Context, o *Occurrence) error {
	if free, err := k.free(ctx); err != nil || !free {
		return err
	}
	o.Run = RunID(k.s.Policy, k.s.Stage, k.s.Mode, IdentityAsOf(o.At))
	if _, err := k.link(ctx, o); err != nil {
		return err
	}
	return k.accept(ctx, o)
}

// link gives a pending occurrence its run.
func (k *tick) link(ctx context.Context, o *Occurrence) (bool, error) {
	return k.t.execOne(ctx, `UPDATE @occurrence SET run = $1 WHERE policy = $2 AND stage = $3 AND at = $4 AND state = 'pending'`,
		o.Run, o.Policy, o.Stage, stamp(o.At))
}

// settle ends an occurrence whose run ended before it was linked, or without saying so.
func (k *tick) settle(ctx context.Context, o *Occurrence, run string) error {
	r, err := k.t.run(ctx, run)
	if err != nil || !r.State.Ended() {
		return err
	}
	o.Run = run
	state, why := r.became()
	return k.end(ctx, o, state, why)
}

// expire ends a run that nobody began in time.
func (k *tick) expire(ctx context.Context, run string) error {
	r, err := k.t.lock(ctx, run)
	if err != nil || r.State != Accepted { // begun at the last moment
		return err
	}
	return k.endRun(ctx, r, Expired, WhyNotStarted)
}

// expect records an instant at which somebody calls.
func (k *tick) expect(ctx context.Context, o *Occurrence, late bool) error {
	created, err := k.t.insertOccurrence(ctx, o)
	if err != nil || !created {
		return err
	}
	if late {
		// No process was there to be called; but one may have made a run past it.
		return k.called(ctx, o, func() error { return k.end(ctx, o, OccurrenceMissed, WhyNoProcess) })
	}
	// A call before this instant that still awaits approval makes way for the one of this instant; the one that came for it does not.
	if err := k.called(ctx, o, nil); err != nil || o.Run != "" || o.State != OccurrencePending {
		return err
	}
	_, err = k.free(ctx)
	return err
}

// awaitCall looks whether the expected call has come.
func (k *tick) awaitCall(ctx context.Context, o *Occurrence, late bool) error {
	return k.called(ctx, o, func() error {
		switch {
		case !late:
			return nil
		case !k.paused.IsZero() && !k.paused.After(o.StartBy):
			return k.end(ctx, o, OccurrenceSkipped, WhyPaused)
		}
		return k.end(ctx, o, OccurrenceMissed, WhyNoCall)
	})
}

// called links an expected instant with the run that a call made for it: the first one since shortly before the instant that
// stands for no other, nor for a time long past. A call that was answered with the run before, still open, is an overlap.
// Accept does not link: it knows neither whether a tick is about to record the instant, nor which mode is the policy's.
func (k *tick) called(ctx context.Context, o *Occurrence, otherwise func() error) error {
	from := o.At.Add(-callEarly)
	r, err := scanRun(k.t.queryRow(ctx, `SELECT `+runColumns+` FROM @run r WHERE policy = $1 AND stage = $2 AND mode = $3
		AND accepted_at >= $4 AND accepted_at <= $5 AND as_of >= $4 AND cause NOT IN ('schedule', 'catch_up')
		AND NOT EXISTS (SELECT 1 FROM @occurrence o WHERE o.run = r.id AND o.run <> '') ORDER BY accepted_at, id LIMIT 1`,
		k.s.Policy, k.s.Stage, k.s.Mode, stamp(from), stamp(o.StartBy)))
	if err == nil {
		// Whoever ends the run from here on sees the link.
		if r, err = k.t.lock(ctx, r.ID); err != nil {
			return err
		}
		if o.Run = r.ID; r.State.Ended() {
			return k.settle(ctx, o, r.ID)
		}
		_, err = k.link(ctx, o)
		return err
	}
	if !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	err = k.t.queryRow(ctx, `SELECT r.id FROM @call c JOIN @run r ON r.id = c.run WHERE c.policy = $1 AND r.stage = $2 AND r.mode = $3
		AND c.at >= $4 AND c.at <= $5 AND c.answer = 202 AND NOT c.fresh AND r.accepted_at < $4 AND (r.ended_at IS NULL OR r.ended_at >= c.at)
		LIMIT 1`, k.s.Policy, k.s.Stage, k.s.Mode, stamp(from), stamp(o.StartBy)).Scan(new(string))
	switch {
	case err == nil:
		return k.end(ctx, o, OccurrenceSkipped, WhyOverlap)
	case !errors.Is(err, sql.ErrNoRows):
		return err
	case otherwise != nil:
		return otherwise()
	}
	return nil
}

// uncaught is what was missed and no run stands for.
const uncaught = ` FROM @occurrence o WHERE policy = $1 AND stage = $2 AND state = 'missed' AND run = '' AND why = 'no_process' AND NOT external`

// catchUp makes the run for what was missed. What is to be caught up is in the table and not in this tick: a process that
// dies, a pause and an open run only put it off.
func (k *tick) catchUp(ctx context.Context) error {
	if k.s.External || k.s.CatchUp == "none" || !k.paused.IsZero() {
		return nil
	}
	if k.s.CatchUp == "all" {
		return k.catchUpAll(ctx)
	}
	// A later instant that got a run stands for those before: its cutoff is later.
	var floor time.Time
	err := k.t.queryRow(ctx, `SELECT at FROM @occurrence WHERE policy = $1 AND stage = $2 AND run <> ''
		AND state IN ('pending', 'ok', 'shadow', 'failed') ORDER BY at DESC LIMIT 1`, k.s.Policy, k.s.Stage).Scan((*stamp)(&floor))
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if floor.IsZero() {
		floor = time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC) // before all
	}
	var latest time.Time
	err = k.t.queryRow(ctx, `SELECT at`+uncaught+` AND at > $3 ORDER BY at DESC LIMIT 1`,
		k.s.Policy, k.s.Stage, stamp(floor)).Scan((*stamp)(&latest))
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	var run string
	err = k.t.queryRow(ctx, `SELECT id FROM @run WHERE policy = $1 AND stage = $2 AND mode = $3 AND state = 'succeeded' AND as_of >= $4
		ORDER BY as_of LIMIT 1`, k.s.Policy, k.s.Stage, k.s.Mode, stamp(latest)).Scan(&run)
	if errors.Is(err, sql.ErrNoRows) { // nobody has run it by hand meanwhile
		run, err = k.catchUpOne(ctx, latest)
	}
	if err != nil || run == "" {
		return err
	}
	_, err = k.t.exec(ctx, `UPDATE @occurrence SET run = $4 WHERE policy = $1 AND stage = $2 AND state = 'missed' AND run = ''
		AND why = 'no_process' AND NOT external AND at > $3 AND at <= $5`, k.s.Policy, k.s.Stage, stamp(floor), run, stamp(latest))
	return err
}

// catchUpOne accepts the run that catches up an instant, unless another is open: then it is "".
func (k *tick) catchUpOne(ctx context.Context, at time.Time) (run string, err error) {
	if k.s.Overlap != "allow" {
		if err := k.look(ctx); err != nil || k.busy || len(k.awaiting) > 0 {
			return "", err
		}
	}
	r, err := k.insert(ctx, at, "catch_up")
	return r.ID, err
}

// catchUpAll makes one run for each missed instant, the oldest first and one after the other.
func (k *tick) catchUpAll(ctx context.Context) error {
	limit := k.s.CatchUpCap
	if limit <= 0 {
		limit = catchUpCap
	}
	rows, err := k.t.query(ctx, `SELECT `+occurrenceColumns+uncaught+` ORDER BY at DESC LIMIT $3`, k.s.Policy, k.s.Stage, limit+1)
	if err != nil {
		return err
	}
	missed, err := collectOccurrences(rows)
	if err != nil || len(missed) == 0 {
		return err
	}
	if len(missed) > limit {
		if err := k.drop(ctx, missed[limit].At); err != nil {
			return err
		}
		missed = missed[:limit]
	}
	oldest := missed[len(missed)-1]
	run, err := k.catchUpOne(ctx, oldest.At)
	if err != nil || run == "" {
		return err
	}
	_, err = k.t.exec(ctx, `UPDATE @occurrence SET run = $1 WHERE policy = $2 AND stage = $3 AND at = $4`,
		run, k.s.Policy, k.s.Stage, stamp(oldest.At))
	return err
}

// drop gives up catching up the missed instants up to one, because there are too many.
func (k *tick) drop(ctx context.Context, until time.Time) error {
	res, err := k.t.exec(ctx, `UPDATE @occurrence SET why = 'catch_up_cap' WHERE policy = $1 AND stage = $2 AND state = 'missed'
		AND run = '' AND why = 'no_process' AND NOT external AND at <= $3`, k.s.Policy, k.s.Stage, stamp(until))
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return fmt.Errorf("count what is not caught up: %w", err)
	}
	return k.t.audit(entry{action: ActionCatchUpDropped, policy: k.s.Policy, body: struct {
		Stage   string    `json:"stage"`
		Dropped int64     `json:"dropped"`
		Until   time.Time `json:"until"`
	}{k.s.Stage, n, until}})
}

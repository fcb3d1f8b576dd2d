package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
)

// shadow is the mode that changes nothing, and so frees no blocked row either.
const shadow = "shadow"

// Start takes a run from accepted to running and fixes its plan. Starting a run
// that is running already is how a process takes it up again: the first plan
// stays, the detail of an interruption goes, and the returned run says both. A
// run whose occurrence should have begun by now ends as expired instead, whether a
// tick has seen that or not: like any run that has ended, that is ErrRunEnded.
func (l *Ledger) Start(ctx context.Context, id string, plan []byte) (Run, error) {
	var r Run
	err := l.tx(ctx, func(t *txn) (err error) {
		if r, err = t.lock(ctx, id); err != nil {
			return err
		}
		if r.State.Ended() {
			return fmt.Errorf("%w: %s", ErrRunEnded, r.State)
		}
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		switch r.State {
		case Running:
			r.Detail = ""
			if _, err := t.exec(ctx, `UPDATE @run SET detail = '' WHERE id = $1`, id); err != nil {
				return err
			}
			return t.audit(entry{action: ActionRunResumed, policy: r.Policy, run: id, body: struct {
				Settled int64 `json:"batches_settled"`
				Total   int64 `json:"batches_total"`
			}{r.BatchesSettled, r.BatchesTotal}})
		case Accepted:
			late, err := t.startsLate(ctx, id, now)
			if err != nil {
				return err
			}
			if late {
				r.State, r.WhyEnded, r.EndedAt = Expired, WhyNotStarted, now
				return t.end(ctx, &r)
			}
			r.State, r.StartedAt, r.Plan, r.Detail = Running, now, plan, ""
			if _, err := t.exec(ctx, `UPDATE @run SET state = $1, started_at = $2, plan = $3, detail = '' WHERE id = $4`,
				string(Running), stamp(now), blob(plan), id); err != nil {
				return err
			}
			return t.audit(entry{action: ActionRunStarted, policy: r.Policy, run: id, body: struct {
				AsOf     time.Time `json:"as_of"`
				Cutoff   time.Time `json:"cutoff"`
				Revision string    `json:"revision"`
			}{r.AsOf, r.Cutoff, r.Revision}})
		case AwaitingApproval:
			return ErrAwaiting
		}
		return fmt.Errorf("a run that is %s cannot start", r.State)
	})
	if err == nil && r.State.Ended() {
		err = fmt.Errorf("%w: %s", ErrRunEnded, r.State)
	}
	if err != nil {
		return Run{}, fmt.Errorf("start run %s: %w", short(id), err)
	}
	return r, nil
}

// Interrupt notes why work on a run stopped before its end, and gives the run up.
// It stays open; Start takes it up again.
func (l *Ledger) Interrupt(ctx context.Context, id, detail string) (Run, error) {
	detail = text(detail)
	if !strings.HasPrefix(detail, "interrupted") {
		detail = strings.TrimSuffix("interrupted: "+detail, ": ")
	}
	var r Run
	err := l.tx(ctx, func(t *txn) (err error) {
		if r, err = t.lock(ctx, id); err != nil {
			return err
		}
		if r.State.Ended() {
			return fmt.Errorf("%w: %s", ErrRunEnded, r.State)
		}
		if r.Owner, r.Heartbeat = "", (time.Time{}); r.State != AwaitingApproval { // else its detail says what for
			r.Detail = detail
		}
		if _, err := t.exec(ctx, `UPDATE @run SET detail = $1, owner = '', heartbeat = NULL WHERE id = $2`, r.Detail, id); err != nil {
			return err
		}
		if r.State == AwaitingApproval {
			return nil
		}
		return t.audit(entry{action: ActionRunInterrupted, policy: r.Policy, run: id, body: struct {
			Detail  string `json:"detail"`
			Settled int64  `json:"batches_settled"`
			Total   int64  `json:"batches_total"`
		}{detail, r.BatchesSettled, r.BatchesTotal}})
	})
	if err != nil {
		return Run{}, fmt.Errorf("interrupt run %s: %w", short(id), err)
	}
	return r, nil
}

// Waiting begins the detail of an open run that waits for something to come back.
const Waiting = "waiting: "

// Wait notes what an open run waits for, until it is started again. It is no change of state, and has no audit entry.
func (l *Ledger) Wait(ctx context.Context, id, what string) error {
	err := l.tx(ctx, func(t *txn) error {
		_, err := t.exec(ctx, `UPDATE @run SET detail = $1 WHERE id = $2 AND state IN ('accepted', 'running')`, text(Waiting+what), id)
		return err
	})
	if err != nil {
		return fmt.Errorf("note what run %s waits for: %w", short(id), err)
	}
	return nil
}

// Claim makes owner the run's worker unless another one gave a sign of life less
// than stale ago, by the ledger's clock: then it is an *OwnedError. A stale of 0
// takes the run from whoever has it.
func (l *Ledger) Claim(ctx context.Context, id, owner string, stale time.Duration) error {
	err := l.tx(ctx, func(t *txn) error {
		r, err := t.lock(ctx, id)
		if err != nil {
			return err
		}
		if r.State.Ended() {
			return fmt.Errorf("%w: %s", ErrRunEnded, r.State)
		}
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		if r.Owner != "" && r.Owner != owner && now.Sub(r.Heartbeat) < stale {
			return &OwnedError{Run: id, Owner: r.Owner, Heartbeat: r.Heartbeat}
		}
		_, err = t.exec(ctx, `UPDATE @run SET owner = $1, heartbeat = $2 WHERE id = $3`, owner, stamp(now), id)
		return err
	})
	if err != nil {
		return fmt.Errorf("claim run %s: %w", short(id), err)
	}
	return nil
}

// Heartbeat is the owner's sign of life. It reports whether the run is still its
// own: false means that it ended or another process took it.
func (l *Ledger) Heartbeat(ctx context.Context, id, owner string) (bool, error) {
	var mine bool
	err := l.tx(ctx, func(t *txn) error {
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		mine, err = t.execOne(ctx, `UPDATE @run SET heartbeat = $1 WHERE id = $2 AND owner = $3 AND ended_at IS NULL`,
			stamp(now), id, owner)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("heartbeat of run %s: %w", short(id), err)
	}
	return mine, nil
}

// End ends a run and returns it as it then stands. A run that has ended stays as
// it is: look at the state that comes back. A run that is to be Succeeded and is
// not finished stays open, and that is ErrUnfinished. One that is finished and
// does not add up ends as Failed with WhyOutcomesDiffer instead, and its detail
// says what differs.
func (l *Ledger) End(ctx context.Context, id string, state State, why, detail string) (Run, error) {
	if !state.Ended() {
		return Run{}, fmt.Errorf("end run %s: %q is no final state", short(id), state)
	}
	var r Run
	err := l.tx(ctx, func(t *txn) (err error) {
		if r, err = t.lock(ctx, id); err != nil || r.State.Ended() {
			return err
		}
		final, why, detail := state, why, text(detail)
		if state == Succeeded {
			if r.State != Running {
				return fmt.Errorf("a run that is %s cannot succeed: it was not started", r.State)
			}
			sum, err := t.sum(ctx, &r)
			if err != nil {
				return err
			}
			if open := sum.unfinished(&r); open != "" {
				return fmt.Errorf("%w: %s", ErrUnfinished, open)
			}
			if differs := sum.differs(&r); differs != "" {
				final, why, detail = Failed, WhyOutcomesDiffer, strings.TrimSuffix(differs+"; "+detail, "; ")
			}
		}
		if r.EndedAt, err = t.clock(ctx); err != nil {
			return err
		}
		r.State, r.WhyEnded, r.Detail = final, why, detail
		return t.end(ctx, &r)
	})
	if err != nil {
		return Run{}, fmt.Errorf("end run %s: %w", short(id), err)
	}
	return r, nil
}

func (t *txn) end(ctx context.Context, r *Run) error {
	r.Cursor, r.Owner, r.Heartbeat = nil, "", time.Time{}
	if _, err := t.exec(ctx, `UPDATE @run SET state = $1, why_ended = $2, detail = $3, ended_at = $4,
		cursor = NULL, owner = '', heartbeat = NULL WHERE id = $5`,
		string(r.State), r.WhyEnded, r.Detail, stamp(r.EndedAt), r.ID); err != nil {
		return err
	}
	// Nobody executes these any more, and keys are kept no longer than needed.
	for _, q := range []string{
		`UPDATE @batch SET keys = NULL WHERE run = $1 AND state <> 'settled' AND keys IS NOT NULL`,
		`UPDATE @batch SET deferred_keys = NULL WHERE run = $1 AND deferred > 0 AND NOT deferred_taken`,
	} {
		if _, err := t.exec(ctx, q, r.ID); err != nil {
			return err
		}
	}
	if err := t.audit(entry{action: ActionRunEnded, policy: r.Policy, run: r.ID, body: struct {
		State    State    `json:"state"`
		Why      string   `json:"why_ended"`
		Detail   string   `json:"detail,omitempty"`
		Planned  int64    `json:"planned"`
		Outcomes Outcomes `json:"outcomes"`
		Cascaded int64    `json:"cascaded,omitempty"`
		Settled  int64    `json:"batches_settled"`
		Total    int64    `json:"batches_total"`
	}{r.State, r.WhyEnded, r.Detail, r.Planned, r.Outcomes, r.Cascaded, r.BatchesSettled, r.BatchesTotal}}); err != nil {
		return err
	}
	if err := t.settleOccurrences(ctx, r); err != nil {
		return err
	}
	if r.State == Succeeded && r.Mode != shadow && r.Mode != ModeTask {
		return t.release(ctx, r)
	}
	return nil
}

// sum adds up a run's batches.
func (t *txn) sum(ctx context.Context, r *Run) (*tally, error) {
	rows, err := t.query(ctx, `SELECT state, planned, outcomes, cascaded, deferred > 0 AND NOT deferred_taken FROM @batch WHERE run = $1`, r.ID)
	if err != nil {
		return nil, err
	}
	var sum tally
	return &sum, sum.read(rows)
}

// unfinished says what is still to do in a run, or "".
func (s *tally) unfinished(r *Run) string {
	return faults([]fault{
		{!r.PagedOut, "the scan has not finished"},
		{s.settled != s.total, fmt.Sprintf("%d of %d batches are settled", s.settled, s.total)},
		{s.waiting > 0, fmt.Sprintf("the deferred rows of %d batches were not tried again", s.waiting)},
	})
}

// differs says what does not add up in a run that is finished, or "". It does not
// trust the run's counters: they are compared with the batches they come from.
func (s *tally) differs(r *Run) string {
	return faults([]fault{
		{s.total != r.BatchesTotal || s.settled != r.BatchesSettled, fmt.Sprintf(
			"the run counts %d of %d batches settled, there are %d of %d", r.BatchesSettled, r.BatchesTotal, s.settled, s.total)},
		{r.Planned != r.Outcomes.Sum(), fmt.Sprintf("%d rows planned, %d in the outcomes", r.Planned, r.Outcomes.Sum())},
		{s.planned != r.Planned || !s.outcomes.Equal(r.Outcomes) || s.cascaded != r.Cascaded, fmt.Sprintf(
			"the batches' sum is %v of %d, the run says %v of %d", s.outcomes, s.planned, r.Outcomes, r.Planned)},
	})
}

type fault struct {
	is   bool
	what string
}

func faults(all []fault) string {
	var found []string
	for _, f := range all {
		if f.is {
			found = append(found, f.what)
		}
	}
	return strings.Join(found, "; ")
}

// tally is what a run's batches add up to.
type tally struct {
	total, settled, waiting, planned, cascaded int64
	outcomes                                   Outcomes
}

func (s *tally) read(rows *sql.Rows) (err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	s.outcomes = Outcomes{}
	for rows.Next() {
		var (
			state             BatchState
			planned, cascaded int64
			outcomes          Outcomes
			waiting           bool
		)
		if err := rows.Scan(&state, &planned, &outcomes, &cascaded, &waiting); err != nil {
			return err
		}
		s.total++
		if state != Settled {
			continue
		}
		s.settled++
		s.planned += planned
		s.cascaded += cascaded
		for name, n := range outcomes {
			s.outcomes[name] += n
		}
		if waiting {
			s.waiting++
		}
	}
	return rows.Err()
}

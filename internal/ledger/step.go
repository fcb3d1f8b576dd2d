package ledger

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// StepRequest is what happened in a run since the last step, and what comes next.
type StepRequest struct {
	Settle []Settlement
	Admit  *Admission
	// Enqueue, when set, is called in the step's transaction with the batches that
	// Admit has just admitted, if any: what it writes through tx happens with the
	// step or not at all. It may be called more than once, in another transaction
	// each time. Its error fails the step.
	Enqueue func(ctx context.Context, tx *sql.Tx, batches []NewBatchRef) error
}

// Admission advances a run's cursor and records the batches between the old and
// the new one: the intent, without which nothing may execute.
type Admission struct {
	OldCursor []byte // the stored bytes, nil before the first page
	NewCursor []byte
	PagedOut  bool // the scan has finished; stays true once said
	PageRows  int  // the page size in use, 0 to leave it
	Batches   []NewBatch
	// FromDeferred names settled batches whose deferred rows go into these
	// batches. Each is taken once.
	FromDeferred []BatchKey
	// Outbox says that the run's batches are admitted by another system: while an
	// offer stands, this admission is ErrOffered. See Admitted.
	Outbox bool
}

// NewBatch is a batch to admit. The ledger gives it its seq.
type NewBatch struct {
	Key     BatchKey
	Phase   string
	Bounds  []byte // sealed
	Keys    []byte // sealed; kept until the batch settles
	Planned int64  // as scanned
	Offered bool   // true: not admitted by its pool yet
}

// Settlement is what a batch's receipt says.
type Settlement struct {
	Batch    BatchKey
	Planned  int64
	Outcomes Outcomes
	Cascaded int64
	// Deferred rows were taken out of this batch, to be tried in a later one:
	// they are in neither Planned nor Outcomes.
	Deferred     int64
	DeferredKeys []byte // sealed
	Attempts     int64
	Root         []byte // of the evidence
	KeyID        string // of the key that made the hashes
	Duration     time.Duration
	Blocked      []BlockedRow
}

func (s *Settlement) check() error {
	for name, n := range s.Outcomes {
		if n < 0 || name == "" {
			return fmt.Errorf("settle batch %s: %d rows are %q", s.Batch, n, name)
		}
	}
	if s.Planned != s.Outcomes.Sum() {
		return fmt.Errorf("settle batch %s: %w: %d planned, %d in %v", s.Batch, ErrOutcomesDiffer, s.Planned, s.Outcomes.Sum(), s.Outcomes)
	}
	if s.Cascaded < 0 || s.Deferred < 0 || (s.Deferred == 0) != (len(s.DeferredKeys) == 0) {
		return fmt.Errorf("settle batch %s: cascaded %d, deferred %d with %d bytes of keys", s.Batch, s.Cascaded, s.Deferred, len(s.DeferredKeys))
	}
	return nil
}

// Step settles batches and admits new ones in one transaction, and returns the
// run after it. All of the request happens or none of it.
//
// Settling is idempotent: a batch that is settled with the same result stays as
// it is, with another it is ErrSettledDifferently. It is allowed in a run that
// has ended, because the receipt is a fact. Admitting is a compare-and-set on the
// cursor: ErrCursorMoved, ErrOffered, ErrDeferredTaken and ErrRunEnded mean that another
// process was there first, and that what was to be settled is still to be settled.
func (l *Ledger) Step(ctx context.Context, run string, req StepRequest) (Run, error) {
	for i := range req.Settle {
		if err := req.Settle[i].check(); err != nil {
			return Run{}, err
		}
	}
	var r Run
	err := l.tx(ctx, func(t *txn) (err error) {
		if r, err = t.lock(ctx, run); err != nil {
			return err
		}
		for i := range req.Settle {
			if err := t.settle(ctx, &r, &req.Settle[i]); err != nil {
				return err
			}
		}
		if req.Admit != nil {
			if err := t.admit(ctx, &r, req.Admit); err != nil {
				return err
			}
			if err := t.enqueue(ctx, &r, &req); err != nil {
				return err
			}
		}
		return t.saveCounts(ctx, &r)
	})
	if err != nil {
		return Run{}, fmt.Errorf("step of run %s: %w", short(run), err)
	}
	return r, nil
}

// Admit is a Step that only admits.
func (l *Ledger) Admit(ctx context.Context, run string, a Admission) (Run, error) {
	return l.Step(ctx, run, StepRequest{Admit: &a})
}

// Settle is a Step that only settles.
func (l *Ledger) Settle(ctx context.Context, run string, s ...Settlement) (Run, error) {
	return l.Step(ctx, run, StepRequest{Settle: s})
}

// hotStatements are the statements of a step. SQLite's are prepared once.
var hotStatements = []string{
	lockRun, settleBatch, insertBatch, saveRun, auditTexts[1], auditTexts[2], auditTexts[3], auditTexts[4],
}

const (
	readRun = `SELECT ` + runColumns + ` FROM @run WHERE id = $1`
	// The clock is read outside of what locks, so after any wait for the lock:
	// within a run, the order of the audit entries is also their order in time.
	lockRun = `WITH r AS (` + readRun + ` {lock}) SELECT ` + runColumns + `, {now} FROM r`

	settleBatch = `UPDATE @batch SET state = 'settled', planned = $1, outcomes = $2, cascaded = $3, deferred = $4,
		deferred_keys = $5, attempts = $6, root = $7, key_id = $8, duration_us = $9, settled_at = $10, keys = NULL
		WHERE key = $11 AND run = $12 AND state <> 'settled' RETURNING seq`

	selectBatch = `SELECT state, planned, outcomes, cascaded, deferred, root FROM @batch WHERE key = $1 AND run = $2`

	insertBatch = `INSERT INTO @batch (key, run, seq, phase, bounds, keys, planned, state, created)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`

	saveRun = `UPDATE @run SET planned = $1, outcomes = $2, cascaded = $3, batches_total = $4, batches_settled = $5,
		cursor = $6, paged_out = $7, page_rows = $8 WHERE id = $9`
)

// run reads a run.
func (t *txn) run(ctx context.Context, id string) (Run, error) {
	return found(id)(scanRun(t.queryRow(ctx, readRun, id)))
}

// lock reads a run, keeps it from other transactions until this one ends, and
// reads the clock.
func (t *txn) lock(ctx context.Context, id string) (Run, error) {
	var now stamp
	r, err := found(id)(scanRun(t.queryRow(ctx, lockRun, id), &now))
	if t.now = micros(time.Time(now)); t.l.sqlite {
		t.now = micros(t.l.clock())
	}
	return r, err
}

func found(id string) func(Run, error) (Run, error) {
	return func(r Run, err error) (Run, error) {
		if errors.Is(err, sql.ErrNoRows) {
			err = fmt.Errorf("%w: no run %s", ErrNotFound, id)
		}
		return r, err
	}
}

func (t *txn) settle(ctx context.Context, r *Run, s *Settlement) error {
	now, err := t.clock(ctx)
	if err != nil {
		return err
	}
	outcomes, err := s.Outcomes.text()
	if err != nil {
		return err
	}
	deferredKeys := s.DeferredKeys
	if r.State.Ended() {
		deferredKeys = nil // no later batch will come
	}
	var seq int64
	err = t.queryRow(ctx, settleBatch, s.Planned, outcomes, s.Cascaded, s.Deferred, blob(deferredKeys), s.Attempts,
		blob(s.Root), s.KeyID, s.Duration.Microseconds(), stamp(now), s.Batch[:], r.ID).Scan(&seq)
	if errors.Is(err, sql.ErrNoRows) {
		return t.settledAlready(ctx, r, s)
	}
	if err != nil {
		return err
	}
	r.Planned += s.Planned
	r.Outcomes = r.Outcomes.add(s.Outcomes)
	r.Cascaded += s.Cascaded
	r.BatchesSettled++
	if err := t.audit(entry{action: ActionBatchSettled, policy: r.Policy, run: r.ID, batch: s.Batch[:], body: struct {
		Seq      int64    `json:"seq"`
		Planned  int64    `json:"planned"`
		Outcomes Outcomes `json:"outcomes"`
		Cascaded int64    `json:"cascaded,omitempty"`
		Deferred int64    `json:"deferred,omitempty"`
		Root     string   `json:"root,omitempty"`
		KeyID    string   `json:"key_id,omitempty"`
	}{seq, s.Planned, s.Outcomes.compact(), s.Cascaded, s.Deferred, fmt.Sprintf("%x", s.Root), s.KeyID}}); err != nil {
		return err
	}
	return t.block(ctx, r, s, now)
}

// settledAlready compares a settlement with the one on record.
func (t *txn) settledAlready(ctx context.Context, r *Run, s *Settlement) error {
	var was Settlement
	var state BatchState
	err := t.queryRow(ctx, selectBatch, s.Batch[:], r.ID).Scan(
		&state, &was.Planned, &was.Outcomes, &was.Cascaded, &was.Deferred, &was.Root)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return fmt.Errorf("%w: no batch %s in run %s", ErrNotFound, s.Batch, short(r.ID))
	case err != nil:
		return err
	case state != Settled:
		return fmt.Errorf("batch %s is %s and could not be settled", s.Batch, state)
	case was.Planned != s.Planned || was.Cascaded != s.Cascaded || was.Deferred != s.Deferred ||
		!was.Outcomes.Equal(s.Outcomes) || !bytes.Equal(was.Root, s.Root):
		return fmt.Errorf("batch %s: %w: %v of %d planned, now %v of %d", s.Batch, ErrSettledDifferently,
			was.Outcomes, was.Planned, s.Outcomes, s.Planned)
	}
	return nil
}

func (t *txn) admit(ctx context.Context, r *Run, a *Admission) error {
	switch {
	case r.State.Ended():
		return fmt.Errorf("%w: %s", ErrRunEnded, r.State)
	case r.State == AwaitingApproval:
		return ErrAwaiting
	case r.State != Running:
		return fmt.Errorf("admit batches: the run is %s and was not started", r.State)
	case !bytes.Equal(r.Cursor, a.OldCursor):
		return ErrCursorMoved
	}
	if a.Outbox {
		if err := t.noOffer(ctx, r); err != nil {
			return err
		}
	}
	now, err := t.clock(ctx)
	if err != nil {
		return err
	}
	for _, key := range a.FromDeferred {
		taken, err := t.execOne(ctx, `UPDATE @batch SET deferred_taken = true, deferred_keys = NULL
			WHERE key = $1 AND run = $2 AND deferred > 0 AND NOT deferred_taken`, key[:], r.ID)
		if err != nil {
			return err
		}
		if !taken {
			return fmt.Errorf("batch %s: %w", key, ErrDeferredTaken)
		}
	}
	for _, b := range a.Batches {
		if b.Planned < 0 {
			return fmt.Errorf("admit batch %s: %d planned", b.Key, b.Planned)
		}
		r.BatchesTotal++
		state := Pending
		if b.Offered {
			state = Offered
		}
		if _, err := t.exec(ctx, insertBatch, b.Key[:], r.ID, r.BatchesTotal, b.Phase, blob(b.Bounds), blob(b.Keys),
			b.Planned, string(state), stamp(now)); err != nil {
			return fmt.Errorf("admit batch %s: %w", b.Key, err)
		}
		if err := t.audit(entry{action: ActionBatchIntent, policy: r.Policy, run: r.ID, batch: b.Key[:], body: struct {
			Seq     int64  `json:"seq"`
			Phase   string `json:"phase"`
			Planned int64  `json:"planned"`
		}{r.BatchesTotal, b.Phase, b.Planned}}); err != nil {
			return err
		}
	}
	r.Cursor = a.NewCursor
	r.PagedOut = r.PagedOut || a.PagedOut
	if a.PageRows > 0 {
		r.PageRows = a.PageRows
	}
	return nil
}

func (t *txn) saveCounts(ctx context.Context, r *Run) error {
	outcomes, err := r.Outcomes.text()
	if err != nil {
		return err
	}
	_, err = t.exec(ctx, saveRun, r.Planned, outcomes, r.Cascaded, r.BatchesTotal, r.BatchesSettled,
		blob(r.Cursor), r.PagedOut, r.PageRows, r.ID)
	return err
}

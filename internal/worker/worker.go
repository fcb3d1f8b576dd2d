// Package worker executes one batch: it asks the target to do the work, tries again what may be tried again, and turns what
// came of it into the ledger's words. Its invariant: a batch is never tried under another key, so that trying twice is safe.
package worker

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"curfew.dev/curfew/internal/hold"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/target"
)

// A Worker executes batches of one run. It is safe for concurrent use.
type Worker struct {
	Job    *target.Job
	AsOf   time.Time
	KeyID  string          // of the key that row hashes are made with
	Waits  []time.Duration // between attempts while the database is out of reach
	Logger *slog.Logger
	Tell   *Telling // for a policy whose action is done outside of the database
	// AwaitHolds waits until no hold is being placed or released. Nil: such a batch is an error at once.
	AwaitHolds func(context.Context) error
}

// Result is a batch that was executed.
type Result struct {
	Settlement ledger.Settlement
	Deferred   []byte // keys of rows for a later batch, in the clear
	TooLong    bool
	Took       time.Duration
}

// Stop says that the run cannot go on, and why.
type Stop struct {
	Why string
	Err error
}

func (s *Stop) Error() string { return s.Err.Error() }

// Unwrap gives the cause.
func (s *Stop) Unwrap() error { return s.Err }

var stops = []struct {
	err error
	why string
}{
	{target.ErrSchemaChanged, "schema_changed"},
	{target.ErrPolicySQL, "policy_sql"},
	{target.ErrDiverged, "ledger_diverged"},
	{target.ErrLate, "late_batch"},
	{target.ErrHold, "hold_unreadable"},
	{hold.ErrStale, "holds_stale"},
}

// AsStop returns the reason why a run cannot go on after this error of the target, or nil when it can.
func AsStop(err error) *Stop {
	for _, s := range stops {
		if errors.Is(err, s.err) {
			return &Stop{s.why, err}
		}
	}
	return nil
}

// Execute does the batch, or answers from its receipt.
func (w *Worker) Execute(ctx context.Context, work target.Work) (Result, error) {
	for attempt := 0; ; attempt++ {
		res, err := w.once(ctx, work)
		if err == nil || ctx.Err() != nil {
			return res, err
		}
		if stop := AsStop(err); stop != nil {
			return Result{}, stop
		}
		if errors.Is(err, hold.ErrPending) && w.AwaitHolds != nil {
			if err := w.AwaitHolds(ctx); err != nil {
				return Result{}, err
			}
			attempt--
			continue
		}
		if !target.Transient(err) || attempt >= len(w.Waits) {
			return Result{}, err
		}
		w.Logger.WarnContext(ctx, "batch_retried", "seq", work.Seq, "wait", w.Waits[attempt], "err", err)
		select {
		case <-ctx.Done():
			return Result{}, ctx.Err()
		case <-time.After(w.Waits[attempt]):
		}
	}
}

func (w *Worker) once(ctx context.Context, work target.Work) (Result, error) {
	res, err := w.do(ctx, work)
	tooLong := errors.Is(err, target.ErrTooLong)
	if tooLong {
		res, err = w.Job.Void(ctx, w.AsOf, work, err)
	}
	if err != nil {
		return Result{}, err
	}
	r := w.result(res)
	r.TooLong = tooLong
	return r, nil
}

func (w *Worker) do(ctx context.Context, work target.Work) (*target.Result, error) {
	if w.Tell != nil && work.Phase != target.Unreadable {
		return w.tell(ctx, work)
	}
	return w.Job.Execute(ctx, w.AsOf, work)
}

// GiveUp settles a batch that failed for good: each of its rows is recorded as failed, with the reason.
func (w *Worker) GiveUp(ctx context.Context, work target.Work, reason error) (Result, error) {
	giveUp := func() (*target.Result, error) { return w.Job.GiveUp(ctx, w.AsOf, work, reason) }
	if w.Tell != nil && work.Phase != target.Unreadable {
		giveUp = func() (*target.Result, error) { return w.giveUpTelling(ctx, work, reason) }
	}
	res, err := giveUp()
	if stop := AsStop(err); stop != nil {
		return Result{}, stop
	}
	if err != nil {
		return Result{}, err
	}
	return w.result(res), nil
}

func (w *Worker) result(res *target.Result) Result {
	s := ledger.Settlement{Planned: res.Planned, Outcomes: ledger.Outcomes(res.Outcomes), Cascaded: res.Cascaded,
		Deferred: int64(res.NDefer), Root: res.Root, KeyID: w.KeyID, Duration: res.Took}
	for _, r := range res.Rows {
		s.Blocked = append(s.Blocked, ledger.BlockedRow{Hash: r.Hash, Outcome: r.Outcome, Reason: r.Reason})
	}
	return Result{Settlement: s, Deferred: res.Deferred, Took: res.Took}
}

package pool

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/ledger"
)

// RemoteOptions say how a run is worked on by a pool.
type RemoteOptions struct {
	Run      Run
	Attempts int           // at a batch, at least one; then its rows are recorded as failed
	Backoff  time.Duration // between the first two, growing by Factor
	Factor   int
	Now      func(context.Context) (time.Time, error) // the ledger's clock
	MaxSkew  time.Duration                            // by how much the database's may differ from it
	Retried  func()                                   // called each time a batch is tried again; may be nil
}

// Remote is a run that a pool works on: the dispatcher's pager, pool and worker. It is safe for concurrent use.
type Remote struct {
	c *Client
	o RemoteOptions

	mu    sync.Mutex     // guards what follows
	run   Run            // with its plan, once there is one
	first *dispatch.Page // the first page, when it came with the plan
	timed bool           // the clocks were compared
}

var (
	_ dispatch.Pager  = (*Remote)(nil)
	_ dispatch.Pool   = (*Remote)(nil)
	_ dispatch.Worker = (*Remote)(nil)
)

// Remote makes the client work on a run.
func (c *Client) Remote(o RemoteOptions) *Remote {
	return &Remote{c: c, o: o, run: o.Run}
}

// Begin has the pool look at the table and choose how the run pages. What it says is to be stored with the run, and Adopt be told
// what then stands there.
func (r *Remote) Begin(ctx context.Context, rows int) (plan []byte, err error) {
	a, page, err := r.pages(ctx, nil, rows)
	if err != nil {
		return nil, err
	}
	if len(a.Plan) == 0 || !json.Valid(a.Plan) {
		return nil, &Unreachable{fmt.Errorf("what answers at %s gives no plan: is it a worker pool?", r.c.Host())}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.run.Plan, r.first = a.Plan, &page
	return a.Plan, nil
}

// Adopt takes the plan that the run has. When it is another than Begin gave, another process began the run first.
func (r *Remote) Adopt(plan []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !bytes.Equal(plan, r.run.Plan) {
		r.run.Plan, r.first = slices.Clone(plan), nil
	}
}

func (r *Remote) know() Run {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.run
}

// Page implements dispatch.Pager.
func (r *Remote) Page(ctx context.Context, cursor []byte, rows int) (dispatch.Page, error) {
	r.mu.Lock()
	first := r.first
	r.first = nil
	r.mu.Unlock()
	if first != nil && len(cursor) == 0 {
		return *first, nil
	}
	_, page, err := r.pages(ctx, cursor, rows)
	return page, err
}

func (r *Remote) pages(ctx context.Context, cursor []byte, rows int) (pageAnswer, dispatch.Page, error) {
	var a pageAnswer
	before, err := r.o.Now(ctx)
	if err != nil {
		return a, dispatch.Page{}, err
	}
	err = r.patiently(ctx, func() error {
		a = pageAnswer{}
		_, err := r.c.do(ctx, http.MethodPost, pathPages, nil, pageRequest{Run: r.know(), Cursor: cursor, Rows: rows}, &a)
		return err
	})
	if err != nil {
		return a, dispatch.Page{}, err
	}
	if err := r.sameClock(ctx, before, a.Clock); err != nil {
		return a, dispatch.Page{}, err
	}
	page := dispatch.Page{Cursor: a.Cursor, Done: a.Done}
	if a.Batch != nil {
		b, err := a.Batch.open()
		if err != nil {
			return a, page, err
		}
		page.Batch = &b
	}
	return a, page, nil
}

// sameClock refuses a database whose clock and the ledger's tell different times. It is asked once for each drain.
func (r *Remote) sameClock(ctx context.Context, before, there time.Time) error {
	r.mu.Lock()
	timed := r.timed
	r.timed = true
	r.mu.Unlock()
	if timed {
		return nil
	}
	after, err := r.o.Now(ctx)
	if err != nil {
		return err
	}
	if there.Before(before.Add(-r.o.MaxSkew)) || there.After(after.Add(r.o.MaxSkew)) {
		return &Refused{Detail: fmt.Sprintf("the ledger's clock says %s and that of the database beside the pool %s: more than %s apart",
			before.Format(time.RFC3339), there.Format(time.RFC3339), r.o.MaxSkew), Hint: "set the clocks (NTP); nothing was changed"}
	}
	return nil
}

// Split implements dispatch.Pager.
func (r *Remote) Split(ctx context.Context, handedOn []byte, rows int) ([]dispatch.Batch, error) {
	var a splitAnswer
	err := r.patiently(ctx, func() error {
		a = splitAnswer{}
		_, err := r.c.do(ctx, http.MethodPost, pathSplits, nil, splitRequest{Run: r.know(), HandedOn: handedOn, Rows: rows}, &a)
		return err
	})
	if err != nil {
		return nil, err
	}
	var out []dispatch.Batch
	for _, w := range a.Batches {
		b, err := w.open()
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}

// open makes a batch of what the pool gave. Bounds and keys stay as they are: only the pool can read them.
func (w wireBatch) open() (dispatch.Batch, error) {
	key, err := hex.DecodeString(w.Key)
	if err != nil || len(key) != len(ledger.BatchKey{}) || w.Rows < 0 {
		return dispatch.Batch{}, &Unreachable{errors.New("the pool gave a batch without a key")}
	}
	return dispatch.Batch{Key: ledger.BatchKey(key), Phase: w.Phase, Rows: w.Rows, Bounds: w.Bounds, Keys: w.Keys}, nil
}

// patiently repeats what the pool is too busy for.
func (r *Remote) patiently(ctx context.Context, fn func() error) error {
	for backoff := (dispatch.Backoff{}); ; {
		err := fn()
		var busy *dispatch.BusyError
		if !errors.As(err, &busy) {
			return err
		}
		wait := backoff.Next(busy)
		r.c.o.Logger.InfoContext(ctx, "pool_busy", "pool", r.c.Host(), "run", r.o.Run.ID, "reason", busy.Reason, "wait", wait)
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// Offer implements dispatch.Pool.
func (r *Remote) Offer(ctx context.Context, b dispatch.Batch) error {
	_, _, err := r.ask(ctx, b, 0, "")
	if errors.As(err, new(*attemptError)) {
		return nil // the pool had it from an earlier offer, and one attempt failed: Execute makes the next
	}
	return err
}

// ask offers a batch, and waits so long for what comes of it. Every request has the whole batch: the pool may have been started
// anew since the last one.
func (r *Remote) ask(ctx context.Context, b dispatch.Batch, wait time.Duration, giveUp string) (done dispatch.Done, settled bool, err error) {
	header := map[string]string{headerKey: b.Key.String()}
	if wait > 0 {
		header["Prefer"] = fmt.Sprintf("wait=%d", int(wait.Seconds()))
	}
	var a batchAnswer
	req := batchRequest{Run: r.know(), Batch: wireBatch{Seq: b.Seq, Phase: b.Phase, Rows: b.Rows, Bounds: b.Bounds, Keys: b.Keys}, GiveUp: giveUp}
	status, err := r.c.do(ctx, http.MethodPost, pathBatches, header, req, &a)
	if err != nil || status == http.StatusAccepted {
		return done, false, err
	}
	if a.State != stateSettled {
		return done, false, &Unreachable{fmt.Errorf("what answers at %s says of a batch that it is %q: is it a worker pool?", r.c.Host(), a.State)}
	}
	done, err = a.done()
	return done, err == nil, err
}

const (
	poll     = 10 * time.Second // for so long a request waits for its batch
	lastPoll = 2 * time.Second  // when we are to stop
	repoll   = 250 * time.Millisecond
)

// Execute implements dispatch.Worker: it waits until the pool has done the batch, and has it tried again when that failed, as the
// policy says. When ctx ends it asks once more: what was done is a fact, and only we can record it now.
func (r *Remote) Execute(ctx context.Context, b dispatch.Batch) (dispatch.Done, error) {
	done, err := r.execute(ctx, b)
	if err == nil || ctx.Err() == nil {
		return done, err
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastPoll+time.Second)
	defer cancel()
	if done, settled, err := r.ask(last, b, lastPoll, ""); err == nil && settled {
		return done, nil
	}
	return dispatch.Done{}, ctx.Err()
}

func (r *Remote) execute(ctx context.Context, b dispatch.Batch) (dispatch.Done, error) {
	var backoff dispatch.Backoff
	giveUp, pause := "", r.o.Backoff
	for attempt := 1; ; {
		began := time.Now()
		done, settled, err := r.ask(ctx, b, poll, giveUp)
		var (
			busy   *dispatch.BusyError
			failed *attemptError
			wait   time.Duration
		)
		switch {
		case settled:
			done.Settlement.Attempts = int64(attempt)
			return done, nil
		case err == nil: // still at work; a pool or proxy that does not wait is not asked all the time
			wait = max(0, repoll-time.Since(began))
		case errors.As(err, &busy):
			wait = backoff.Next(busy)
		case !errors.As(err, &failed):
			return done, err
		case giveUp != "":
			return done, &dispatch.StopError{Why: "batch_failed", Err: fmt.Errorf("after %d attempts: %w", attempt, err)}
		case attempt >= r.o.Attempts:
			giveUp = failed.detail
		default:
			attempt++
			wait, pause = pause, min(pause*time.Duration(max(1, r.o.Factor)), longestTold)
			if r.o.Retried != nil {
				r.o.Retried()
			}
			r.c.o.Logger.WarnContext(ctx, "batch_retried", "run", r.o.Run.ID, "seq", b.Seq, "attempt", attempt, "of", r.o.Attempts, "wait", wait, "err", err)
		}
		if err := sleep(ctx, wait); err != nil {
			return done, err
		}
	}
}

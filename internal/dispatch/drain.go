package dispatch

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"curfew.dev/curfew/internal/ledger"
)

// TestHook, when set, is called between the steps of a run, also by workers. Tests stop the process there; it is nil in
// every program.
var TestHook func(point string)

func hook(point string) {
	if TestHook != nil {
		TestHook(point)
	}
}

// Drain works a started run to its end, or until it is stopped. It may be called for a run that another process works on or
// left behind: what is in the ledger decides, and executing a batch twice does its work once.
func Drain(ctx context.Context, runID string, o Options) (ledger.Run, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // workers end with us
	d := &drain{Options: o, results: make(chan result), known: map[ledger.BatchKey]bool{}, offering: offering{answers: make(chan error, 1)}}
	if err := d.load(ctx, runID); err != nil {
		return d.run, err
	}
	err := d.loop(ctx)
	if err == nil {
		return d.run, nil
	}
	// What is in hand is done or not by the time we are back; what is done is settled, whatever became of the rest.
	err = errors.Join(err, d.settleInHand(ctx))
	if stop := (*StopError)(nil); errors.As(err, &stop) {
		hook("ending")
		run, eerr := o.Ledger.End(context.WithoutCancel(ctx), runID, ledger.Failed, stop.Why, stop.Error())
		if eerr != nil {
			return d.run, errors.Join(err, eerr)
		}
		d.run = run
	}
	return d.run, err
}

type result struct {
	batch Batch
	done  Done
	err   error
}

// drain is one process's work on one run.
type drain struct {
	Options
	run     ledger.Run
	cursor  []byte // in the clear; run.Cursor is the same, sealed
	results chan result
	working int
	queue   []Batch                  // admitted, not yet handed to a worker
	known   map[ledger.BatchKey]bool // batches that this process has or had in hand
	settle  []ledger.Settlement
	stale   bool      // the ledger has more of the run than we do
	rows    int       // page size
	next    time.Time // no page before: the pace
	weighed bool
	offering
	gate
}

// load takes the run as the ledger has it.
func (d *drain) load(ctx context.Context, id string) error {
	run, err := d.Ledger.Get(ctx, id)
	if err != nil {
		return err
	}
	d.run = run
	d.cursor, err = d.open(run.ID, run.Cursor)
	if d.rows == 0 {
		d.rows = run.PageRows
	}
	if d.rows == 0 {
		d.rows = d.Batch.Rows
	}
	return err
}

func (d *drain) stopping() bool {
	select {
	case <-d.Stop:
		return true
	default:
		return false
	}
}

func (d *drain) loop(ctx context.Context) error {
	if err := d.adopt(ctx); err != nil {
		return err
	}
	for {
		if err := d.collect(ctx); err != nil {
			return err
		}
		stopping := d.stopping()
		ended := over(d.run)
		if !stopping && !ended {
			if err := d.look(ctx); err != nil {
				return err
			}
		}
		open := !d.closed || ended
		if stopping || ended || !open {
			d.withdraw()
		} else {
			d.offer(ctx)
		}
		if !stopping && open {
			d.launch(ctx)
		}
		switch {
		case !ended && !stopping && open && d.room() && d.paced():
			if err := d.page(ctx); err != nil {
				return err
			}
		case len(d.settle) > 0:
			if err := d.step(ctx, nil); err != nil {
				return err
			}
		case d.stale:
			if err := d.refresh(ctx); err != nil {
				return err
			}
		case d.working > 0, d.asking, !ended && !stopping && !d.run.PagedOut, !open && !stopping && len(d.queue)+len(d.offers) > 0:
			if err := d.wait(ctx, stopping); err != nil {
				return err
			}
		case ended:
			return d.endedElsewhere() // what was done is settled: it is a fact, whoever ended the run
		case stopping:
			return ErrInterrupted
		default:
			again, err := d.finish(ctx)
			if err != nil || !again {
				return err
			}
		}
	}
}

// adopt takes up the batches that are admitted and not settled: those of a process that died, and those of one that is
// alive, whose receipt then answers.
func (d *drain) adopt(ctx context.Context) error {
	pending, err := d.Ledger.Unsettled(ctx, d.run.ID)
	if err != nil {
		return err
	}
	var taken []Batch
	for _, b := range pending {
		if d.known[b.Key] {
			continue
		}
		batch, err := d.FromLedger(d.run.ID, b)
		if err != nil {
			return err
		}
		d.known[b.Key] = true
		if d.Pool != nil {
			standing, err := d.fromOutbox(&batch)
			if err != nil {
				return err
			}
			if b.State == ledger.Offered {
				d.offers = append(d.offers, standing)
				continue
			}
		}
		taken = append(taken, batch)
	}
	d.queue = append(d.queue, taken...)
	return d.requeue(ctx, taken)
}

// launch hands queued batches to workers.
func (d *drain) launch(ctx context.Context) {
	for len(d.queue) > 0 && d.working < d.Batch.InFlight {
		b := d.queue[0]
		d.queue = d.queue[1:]
		d.working++
		go func() {
			hook("executing")
			done, err := d.Worker.Execute(ctx, b)
			d.results <- result{b, done, err}
		}()
	}
}

// collect takes the results that are there.
func (d *drain) collect(ctx context.Context) error {
	for {
		select {
		case r := <-d.results:
			if err := d.take(r); err != nil {
				return err
			}
		case err := <-d.answers:
			if err := d.answered(ctx, err); err != nil {
				return err
			}
		default:
			return ctx.Err()
		}
	}
}

// wait blocks until there is something to do: a result, a page that the pace allows, or the word to stop.
func (d *drain) wait(ctx context.Context, stopping bool) error {
	var pace <-chan time.Time
	if !stopping && !over(d.run) && (d.closed || d.room()) {
		until := d.next
		if d.closed {
			until = d.again
		}
		timer := time.NewTimer(time.Until(until))
		defer timer.Stop()
		pace = timer.C
	}
	stop := d.Stop
	if stopping {
		stop = nil // known already
	}
	select {
	case r := <-d.results:
		return d.take(r)
	case err := <-d.answers:
		return d.answered(ctx, err)
	case <-pace:
	case <-stop:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (d *drain) take(r result) error {
	d.working--
	hook("executed")
	if r.err != nil {
		return fmt.Errorf("batch %d: %w", r.batch.Seq, r.err)
	}
	d.adapt(r)
	if r.done.Settled {
		d.stale = true
		return nil
	}
	s := r.done.Settlement
	s.Batch = r.batch.Key
	s.DeferredKeys = d.Seal(d.run.ID, r.done.Deferred)
	d.settle = append(d.settle, s)
	return nil
}

// refresh takes the counts of the run as the ledger has them, and its end when somebody ended it.
func (d *drain) refresh(ctx context.Context) error {
	rows := d.rows
	err := errors.Join(d.gotOn(ctx), d.load(ctx, d.run.ID))
	d.rows, d.stale = rows, false
	if err == nil && d.Report != nil {
		d.Report(d.run)
	}
	return err
}

// adapt keeps batches near the time they should take. A batch that was much smaller than a page says nothing.
func (d *drain) adapt(r result) {
	full := max(r.batch.Rows, int(r.done.Settlement.Planned)) >= d.rows*3/4
	switch target := d.Batch.Target; {
	case r.done.TooLong:
		d.rows = max(1, min(d.rows, r.batch.Rows)/2)
	case target <= 0 || r.done.Took == 0 || !full:
	case r.done.Took > target:
		d.rows = max(1, d.rows/2, int(int64(d.rows)*int64(target)/int64(r.done.Took)))
	case r.done.Took < target/2 && d.rows < d.Batch.Rows:
		d.rows = min(d.Batch.Rows, d.rows*2)
	}
}

// room reports whether there is something to page and a place for it. One batch is admitted ahead, so that a worker need not wait;
// not so where the queue or a pool would hand it to one. Nothing is paged while an offer stands.
func (d *drain) room() bool {
	return !d.run.PagedOut && len(d.queue) == 0 && len(d.offers) == 0 && (d.Enqueue == nil && d.Pool == nil || d.working < d.Batch.InFlight)
}

// paceCredit is how far a run may lag behind its pace and still make up for it.
const paceCredit = 100 * time.Millisecond

func (d *drain) paced() bool { return d.Batch.Pace <= 0 || !time.Now().Before(d.next) }

// page reads the next page and admits it, together with what there is to settle.
func (d *drain) page(ctx context.Context) error {
	if ok, err := d.weigh(ctx); err != nil || !ok {
		return err
	}
	hook("paging")
	p, err := d.Pager.Page(ctx, d.cursor, d.rows)
	if err != nil {
		return err
	}
	hook("paged")
	a := &ledger.Admission{OldCursor: d.run.Cursor, NewCursor: d.Seal(d.run.ID, p.Cursor), PagedOut: p.Done, PageRows: d.rows}
	var batches []Batch
	if p.Batch != nil {
		batches = []Batch{*p.Batch}
		if d.Batch.Pace > 0 {
			// What was lost to a short wait is made up for; a long one earns no burst.
			if floor := time.Now().Add(-paceCredit); d.next.Before(floor) {
				d.next = floor
			}
			d.next = d.next.Add(time.Duration(int64(time.Second) * int64(p.Batch.Rows) / int64(d.Batch.Pace)))
		}
	}
	return d.admit(ctx, a, batches, p.Cursor)
}

func (d *drain) admit(ctx context.Context, a *ledger.Admission, batches []Batch, cursor []byte) error {
	for i := range batches {
		nb := d.newBatch(d.run.ID, batches[i])
		batches[i].Key = nb.Key
		a.Batches = append(a.Batches, nb)
	}
	var offers []offer
	if d.Pool != nil {
		offers = d.outbox(a, batches, cursor)
	}
	err := d.step(ctx, a)
	if errors.Is(err, ledger.ErrCursorMoved) || errors.Is(err, ledger.ErrOffered) || errors.Is(err, ledger.ErrDeferredTaken) || errors.Is(err, ledger.ErrRunEnded) || errors.Is(err, ledger.ErrAwaiting) {
		// Another process is at work on this run and was first: take the run as it is now.
		if err := d.load(ctx, d.run.ID); err != nil {
			return err
		}
		return d.adopt(ctx)
	}
	if err != nil {
		return err
	}
	if len(offers) > 0 {
		d.stand(offers)
		return nil
	}
	d.cursor = cursor
	for i, b := range batches {
		b.Seq = d.run.BatchesTotal - int64(len(batches)-1-i)
		d.known[b.Key] = true
		d.queue = append(d.queue, b)
	}
	return nil
}

// step commits settlements and an admission in one transaction.
func (d *drain) step(ctx context.Context, a *ledger.Admission) error {
	hook("stepping")
	// What was done is recorded also when we were told to stop: the rows are gone.
	run, err := d.Ledger.Step(context.WithoutCancel(ctx), d.run.ID, ledger.StepRequest{Settle: d.settle, Admit: a, Enqueue: d.enqueue()})
	if errors.Is(err, ledger.ErrSettledDifferently) && d.run.Mode == "shadow" {
		// A shadow batch leaves no receipt: another process looked at it too, at another moment, and was first.
		d.settle = nil
		if a != nil {
			return ledger.ErrCursorMoved // nothing of this step happened
		}
		return d.load(ctx, d.run.ID)
	}
	if err != nil {
		return err
	}
	hook("stepped")
	if d.Wake != nil && a != nil && len(a.Batches) > 0 {
		d.Wake()
	}
	for _, s := range d.settle {
		d.Logger.DebugContext(ctx, "batch_settled", "run", run.ID, "policy", run.Policy, "stage", run.Stage, "as_of", run.AsOf, "cutoff", run.Cutoff,
			"batch", s.Batch.String(), "planned", s.Planned, "outcomes", map[string]int64(s.Outcomes), "deferred", s.Deferred, "took", s.Duration)
	}
	if len(d.settle) > 0 {
		if err := d.gotOn(ctx); err != nil {
			return err
		}
	}
	d.settle, d.stale = nil, false
	if a == nil && !bytes.Equal(run.Cursor, d.run.Cursor) {
		// Another process pages too. The cursor in the clear must stay the one that the next admission is compared by.
		if d.cursor, err = d.open(run.ID, run.Cursor); err != nil {
			return err
		}
	}
	d.run = run
	if d.Report != nil {
		d.Report(d.run)
	}
	return nil
}

// enqueue hands the batches that a step admits to the queue, when there is one.
func (d *drain) enqueue() func(context.Context, *sql.Tx, []ledger.NewBatchRef) error {
	if d.Enqueue == nil {
		return nil
	}
	return func(ctx context.Context, tx *sql.Tx, batches []ledger.NewBatchRef) error {
		seqs := make([]int64, len(batches))
		for i, b := range batches {
			seqs[i] = b.Seq
		}
		return d.Enqueue(ctx, tx, d.run.ID, seqs)
	}
}

// requeue puts batches that are admitted and not settled into the queue again: they may be of a process that had none. One that
// is in it twice is done once.
func (d *drain) requeue(ctx context.Context, batches []Batch) error {
	if d.Enqueue == nil || len(batches) == 0 {
		return nil
	}
	seqs := make([]int64, len(batches))
	for i, b := range batches {
		seqs[i] = b.Seq
	}
	err := d.Ledger.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { return d.Enqueue(ctx, tx, d.run.ID, seqs) })
	if err == nil && d.Wake != nil {
		d.Wake()
	}
	return err
}

// finish is called when the scan is over and nothing is in hand: it takes up what is left, or ends the run.
func (d *drain) finish(ctx context.Context) (again bool, err error) {
	clear(d.known) // a batch still open was lost on the way, or is another process's: execute it, its receipt decides
	if err := d.adopt(ctx); err != nil || len(d.queue) > 0 || len(d.offers) > 0 {
		return true, err
	}
	hook("finishing")
	deferred, err := d.Ledger.Deferred(ctx, d.run.ID)
	if err != nil {
		return false, err
	}
	if len(deferred) > 0 {
		return true, d.retry(ctx, deferred)
	}
	hook("ending")
	run, err := d.Ledger.End(context.WithoutCancel(ctx), d.run.ID, ledger.Succeeded, "done", "")
	if errors.Is(err, ledger.ErrUnfinished) {
		// Another process took up deferred rows since we looked. Help it: if it lives, its receipts answer us.
		return true, d.load(ctx, d.run.ID)
	}
	if err != nil {
		return false, err
	}
	hook("ended")
	d.run = run
	return false, d.endedElsewhere()
}

// retry makes batches of the rows that were handed on.
func (d *drain) retry(ctx context.Context, deferred []ledger.DeferredRows) error {
	a := &ledger.Admission{OldCursor: d.run.Cursor, NewCursor: d.run.Cursor, PagedOut: true, PageRows: d.rows}
	var batches []Batch
	for _, b := range deferred {
		keys, err := d.open(d.run.ID, b.Keys)
		if err != nil {
			return err
		}
		// A batch that took too long comes back in halves at least, so that this ends.
		parts, err := d.Pager.Split(ctx, keys, max(1, min(d.rows, (int(b.Rows)+1)/2)))
		if err != nil {
			return err
		}
		batches = append(batches, parts...)
		a.FromDeferred = append(a.FromDeferred, b.From)
	}
	return d.admit(ctx, a, batches, d.cursor)
}

// endedElsewhere makes an error of an end that is not the one we worked for.
func (d *drain) endedElsewhere() error {
	if d.run.State == ledger.Succeeded {
		return nil
	}
	return &EndedError{Run: d.run}
}

// settleInHand lets the batches in hand come to their end and settles those that were done: their rows are gone, and a run that
// ends now has nobody else who would say so.
func (d *drain) settleInHand(ctx context.Context) error {
	for d.working > 0 {
		r := <-d.results
		if r.err != nil {
			d.working--
			continue
		}
		if err := d.take(r); err != nil {
			return err
		}
	}
	if len(d.settle) == 0 {
		return nil
	}
	return d.step(ctx, nil)
}

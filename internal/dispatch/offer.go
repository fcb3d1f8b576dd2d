package dispatch

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"curfew.dev/curfew/internal/ledger"
)

// A Pool is the worker pool of another system. It must be safe for concurrent use.
type Pool interface {
	// Offer asks the pool to take a batch. Nil says that the pool has it, from this offer or an earlier one under the same key. A
	// *BusyError says: not now. A *StopError ends the run. After any other error nobody knows, and the batch is to be offered
	// again, under the same key.
	Offer(ctx context.Context, b Batch) error
}

// BusyError says that a pool takes no batch now.
type BusyError struct {
	Reason string        // one of the program's own words: it becomes the label of a metric
	After  time.Duration // how long the pool says to wait; negative when it did not say
}

func (e *BusyError) Error() string { return "the pool takes no batch now: " + e.Reason }

// The wait after a refusal of which the pool did not say how long it lasts, before jitter; it doubles up to the longest.
const (
	firstWait   = 30 * time.Second
	longestWait = 10 * time.Minute
	shortest    = 100 * time.Millisecond // whatever the pool says
)

// Backoff paces what a pool refuses. The zero value has met no refusal.
type Backoff struct{ wait time.Duration }

// Next is how long to wait after this refusal: as long as the pool says or, when it does not, for 30 s, doubling to 10 min, with
// a quarter more or less so that those who were refused together do not come back together.
func (b *Backoff) Next(e *BusyError) time.Duration {
	if e.After >= 0 {
		return max(e.After, shortest)
	}
	b.wait = min(max(2*b.wait, firstWait), longestWait)
	return b.wait*3/4 + rand.N(b.wait/2)
}

// An offer is a batch that stands in the ledger as offered, and what is to happen once the pool has it.
type offer struct {
	batch    Batch
	moves    bool   // the cursor moves, to:
	cursor   []byte // in the clear
	pagedOut bool
}

// offering is the part of a drain that lets batches into a pool. The ledger has every offer before the pool does.
type offering struct {
	offers   []offer // standing; the first one is what the pool is asked about
	asking   bool
	withdrew bool
	cancel   context.CancelFunc // while asking
	answers  chan error         // of room 1: who asks never waits to say what came of it
}

// outbox makes an admission one of batches that are offered: the cursor stays, and where it is to move is kept with the batch, so
// that a process which finds it can go on.
func (d *drain) outbox(a *ledger.Admission, batches []Batch, cursor []byte) []offer {
	a.Outbox = true
	var offers []offer
	for i, b := range batches {
		o := offer{batch: b}
		if len(a.FromDeferred) == 0 {
			o.moves, o.cursor, o.pagedOut = true, cursor, a.PagedOut
		}
		a.Batches[i].Offered, a.Batches[i].Keys = true, d.Seal(d.run.ID, o.encode())
		offers = append(offers, o)
	}
	if len(batches) > 0 && len(a.FromDeferred) == 0 {
		a.NewCursor, a.PagedOut = a.OldCursor, false
	}
	return offers
}

// stand takes the offers that were just written to the ledger.
func (d *drain) stand(offers []offer) {
	hook("offered")
	for i, o := range offers {
		o.batch.Seq = d.run.BatchesTotal - int64(len(offers)-1-i)
		d.known[o.batch.Key] = true
		d.offers = append(d.offers, o)
	}
}

// What an offer keeps beside the keys: a byte of flags, the cursor's length, the cursor, the keys.
const (
	offerMark     = 0x40 // always set, so that other keys are not taken for an offer's
	offerMoves    = 1
	offerPagedOut = 2
)

func (o offer) encode() []byte {
	flags := byte(offerMark)
	if o.moves {
		flags |= offerMoves
	}
	if o.pagedOut {
		flags |= offerPagedOut
	}
	b := binary.AppendUvarint([]byte{flags}, uint64(len(o.cursor)))
	return append(append(b, o.cursor...), o.batch.Keys...)
}

// fromOutbox makes an offer of a batch that the ledger had, and leaves the batch its own keys.
func (d *drain) fromOutbox(b *Batch) (offer, error) {
	stored := b.Keys
	if len(stored) < 2 || stored[0]&^(offerMoves|offerPagedOut) != offerMark {
		return offer{}, &StopError{Why: "worked_otherwise", Err: fmt.Errorf("batch %d was not made for a worker pool: the run began while its database was worked on otherwise", b.Seq)}
	}
	n, size := binary.Uvarint(stored[1:])
	rest := stored[1+max(size, 0):]
	if size <= 0 || n > uint64(len(rest)) {
		return offer{}, fmt.Errorf("batch %d in the outbox of run %.12s cannot be read", b.Seq, d.run.ID)
	}
	b.Keys = rest[n:]
	return offer{batch: *b, moves: stored[0]&offerMoves != 0, pagedOut: stored[0]&offerPagedOut != 0, cursor: rest[:n]}, nil
}

// offer asks the pool about the first standing offer, beside the other work, when there is room for the batch.
func (d *drain) offer(ctx context.Context) {
	if d.asking || len(d.offers) == 0 || d.working+len(d.queue) >= d.Batch.InFlight {
		return
	}
	ctx, d.cancel = context.WithCancel(ctx)
	d.asking, d.withdrew = true, false
	b, run := d.offers[0].batch, d.run
	go func() { d.answers <- d.ask(ctx, run, b) }()
}

// withdraw stops asking. The offer stands in the ledger, and whoever works on the run next makes it again.
func (d *drain) withdraw() {
	if d.asking && !d.withdrew {
		d.withdrew = true
		d.cancel()
	}
}

// ask offers a batch until the pool has it.
func (d *drain) ask(ctx context.Context, run ledger.Run, b Batch) error {
	for backoff := (Backoff{}); ; {
		hook("offering")
		err := d.Pool.Offer(ctx, b)
		var busy *BusyError
		if !errors.As(err, &busy) {
			return err
		}
		wait := backoff.Next(busy)
		if d.Waited != nil {
			d.Waited(busy.Reason)
		}
		d.Logger.InfoContext(ctx, "admission_wait", "run", run.ID, "policy", run.Policy, "stage", run.Stage, "as_of", run.AsOf, "cutoff", run.Cutoff,
			"batch", b.Key.String(), "planned", b.Rows, "reason", busy.Reason, "wait", wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
}

// answered is told what came of asking. When the pool has the batch, the cursor moves: a crash before that leaves the offer, which
// the pool then answers as one that it has.
func (d *drain) answered(ctx context.Context, err error) error {
	d.asking = false
	d.cancel()
	o := d.offers[0]
	if err != nil && d.withdrew {
		if d.run.State.Ended() {
			d.offers = nil // nobody will make them
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("offer batch %d: %w", o.batch.Seq, err)
	}
	hook("admitted")
	a := ledger.Admission{OldCursor: d.run.Cursor, NewCursor: d.run.Cursor, PageRows: d.rows}
	if o.moves {
		a.NewCursor, a.PagedOut = d.Seal(d.run.ID, o.cursor), o.pagedOut
	}
	run, err := d.Ledger.Admitted(context.WithoutCancel(ctx), d.run.ID, o.batch.Key, a)
	switch {
	case errors.Is(err, ledger.ErrRunEnded):
		// It was ended meanwhile, and the pool has the batch all the same: what becomes of it is to be recorded.
		d.offers, d.queue = nil, append(d.queue, o.batch)
		return d.refresh(ctx)
	case errors.Is(err, ledger.ErrCursorMoved):
		// Another process was first, with this offer or after it: take the run as it is now.
		d.offers = d.offers[1:]
		delete(d.known, o.batch.Key)
		if err := d.load(ctx, d.run.ID); err != nil {
			return err
		}
		return d.adopt(ctx)
	case err != nil:
		return err
	}
	hook("moved")
	d.offers, d.queue = d.offers[1:], append(d.queue, o.batch)
	d.run = run
	if d.cursor, err = d.open(run.ID, run.Cursor); err != nil {
		return err
	}
	if d.Report != nil {
		d.Report(d.run)
	}
	return nil
}

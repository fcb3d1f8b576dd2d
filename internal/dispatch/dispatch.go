// Package dispatch turns an accepted run into batches and sees them settled.
//
// Its one invariant: the cursor of a run never outruns what is durably admitted. A batch row, the intent to execute it and
// the cursor behind it commit together, by compare-and-set on the old cursor; a process that died is followed by any other
// from what the ledger says, through the same code.
package dispatch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/policy"
)

// A Pager reads the governed table page by page. Cursors and bounds are opaque to this package.
type Pager interface {
	// Page returns at most rows due rows after the cursor (empty: from the start). A page may hold no rows and not be the
	// last one; then it only moves the cursor.
	Page(ctx context.Context, cursor []byte, rows int) (Page, error)
	// Split makes batches of about rows rows of what another batch handed on.
	Split(ctx context.Context, handedOn []byte, rows int) ([]Batch, error)
}

// A Page is one step of the scan.
type Page struct {
	Cursor []byte
	Batch  *Batch // nil: no due row in this step
	Done   bool
}

// A Batch is a bounded part of a run. Bounds and Keys hold key values: they are sealed before they are stored.
type Batch struct {
	Key    ledger.BatchKey // a function of the run and what the batch covers; given by this package where the pager gave none
	Seq    int64           // given by the ledger
	Phase  string
	Rows   int
	Bounds []byte
	Keys   []byte
}

// A Worker executes one batch. It must be safe for concurrent use, and executing a batch twice must do its work once.
type Worker interface {
	// Execute returns what became of the batch. A *StopError ends the run; any other error leaves the batch as it was.
	Execute(ctx context.Context, b Batch) (Done, error)
}

// Done is a batch that was executed.
type Done struct {
	Settlement ledger.Settlement
	Settled    bool          // the settlement is in the ledger already: another process did the batch
	Deferred   []byte        // what is left for later batches, for Split, in the clear
	TooLong    bool          // the statement timeout struck: batches must get smaller
	Took       time.Duration // in the governed database
}

// A StopError says that the run cannot go on: it ends as failed.
type StopError struct {
	Why string // why_ended
	Err error
}

func (e *StopError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *StopError) Unwrap() error { return e.Err }

// EndedError says that the run ended as something else than succeeded: cancelled while it was worked on, or its numbers did
// not add up. One that waits for approval has not ended, and goes on when somebody approves it.
type EndedError struct{ Run ledger.Run }

func (e *EndedError) Error() string {
	if !e.Run.State.Ended() {
		return fmt.Sprintf("run %.12s is %s: %s", e.Run.ID, e.Run.State, e.Run.Detail)
	}
	return fmt.Sprintf("run %.12s ended as %s (%s)", e.Run.ID, e.Run.State, e.Run.WhyEnded)
}

// HeartbeatEvery is how often a process says of a run that it is at work on it. A variable for tests, in which time runs faster.
var HeartbeatEvery = 10 * time.Second

// ErrInterrupted says that the drain was asked to stop: the batches in hand are settled and the run is open.
var ErrInterrupted = errors.New("interrupted")

// A Sealer keeps key values out of the ledger's text; internal/keyring has the one.
type Sealer interface {
	Seal(plaintext, context []byte) []byte
	Open(sealed, context []byte) ([]byte, error)
	MAC(label string, parts ...[]byte) [32]byte
}

// Options say what to drain a run with.
type Options struct {
	Ledger *ledger.Ledger
	Pager  Pager
	Worker Worker
	Sealer Sealer
	Batch  policy.Batch
	Logger *slog.Logger
	// Enqueue, when set, puts admitted batches into a queue, in the transaction of their admission: then Worker does no work and
	// waits until somebody has done it.
	Enqueue func(ctx context.Context, tx *sql.Tx, run string, seqs []int64) error
	Wake    func() // called when a transaction in which Enqueue was called has committed; may be nil
	// Pool, when set, is the worker pool of another system, which lets batches in: then Worker waits until it has done them.
	Pool   Pool
	Waited func(reason string) // called each time Pool refused a batch for now; may be nil
	// Weigh, when set, judges a run of which nothing was let in yet, and returns it as it then stands: one that waits for approval
	// admits nothing.
	Weigh func(ctx context.Context, run ledger.Run) (ledger.Run, error)
	// Window, when set, is the first instant from one on at which batches may begin.
	Window  func(from time.Time) time.Time
	Outside func(opens time.Time) // called when the run begins to wait for a window; may be nil
	Stop    <-chan struct{}       // closed: finish the batches in hand and return ErrInterrupted
	Report  func(ledger.Run)      // called after each step, never concurrently; may be nil
}

// Seal seals a run's key values for the ledger; nothing stays nothing.
func (o Options) Seal(run string, plain []byte) []byte {
	if len(plain) == 0 {
		return nil
	}
	return o.Sealer.Seal(plain, []byte("run\x00"+run))
}

func (o Options) open(run string, sealed []byte) ([]byte, error) {
	if len(sealed) == 0 {
		return nil, nil
	}
	plain, err := o.Sealer.Open(sealed, []byte("run\x00"+run))
	if err != nil {
		return nil, fmt.Errorf("stored state of run %.12s: %w", run, err)
	}
	return plain, nil
}

// newBatch seals a batch for the ledger, under the key that follows from what it covers.
func (o Options) newBatch(run string, b Batch) ledger.NewBatch {
	key := b.Key
	if key == (ledger.BatchKey{}) {
		key = o.Sealer.MAC("batch", []byte(run), []byte(b.Phase), b.Bounds, b.Keys)
	}
	return ledger.NewBatch{Key: key, Phase: b.Phase, Planned: int64(b.Rows), Bounds: o.Seal(run, b.Bounds), Keys: o.Seal(run, b.Keys)}
}

// FromLedger opens a batch that the ledger has.
func (o Options) FromLedger(run string, b ledger.Batch) (Batch, error) {
	out := Batch{Key: b.Key, Seq: b.Seq, Phase: b.Phase, Rows: int(b.Planned)}
	var err error
	if out.Bounds, err = o.open(run, b.Bounds); err != nil {
		return out, err
	}
	out.Keys, err = o.open(run, b.Keys)
	return out, err
}

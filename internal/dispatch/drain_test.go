package dispatch

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/policy"
)

// fakeTable pages batches of one row; each is executed when the test lets it.
type fakeTable struct {
	batches int
	execute func(ctx context.Context, b Batch) (Done, error)
}

func (f *fakeTable) Page(_ context.Context, at []byte, _ int) (Page, error) {
	n := len(at) + 1
	cursor := make([]byte, n)
	return Page{Cursor: cursor, Batch: &Batch{Phase: "main", Rows: 1, Bounds: cursor}, Done: n == f.batches}, nil
}

func (f *fakeTable) Split(context.Context, []byte, int) ([]Batch, error) { return nil, nil }

func (f *fakeTable) Execute(ctx context.Context, b Batch) (Done, error) { return f.execute(ctx, b) }

// openSealer leaves everything as it is.
type openSealer struct{}

func (openSealer) Seal(p, _ []byte) []byte          { return p }
func (openSealer) Open(p, _ []byte) ([]byte, error) { return p, nil }
func (openSealer) MAC(_ string, parts ...[]byte) (k [32]byte) {
	for _, p := range parts {
		k[0] += byte(len(p))
	}
	return k
}

func startedRun(t *testing.T) (*ledger.Ledger, ledger.Run) {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Options{URL: "sqlite:" + filepath.Join(t.TempDir(), "l.db"), Actor: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	body := []byte("{}")
	run, _, err := l.Accept(t.Context(), ledger.Acceptance{Policy: "p", Mode: "enforce", Identity: ledger.IdentityOnce(), Cause: "cli",
		Cutoff: func(at time.Time) time.Time { return at }, RevisionID: ledger.RevisionID(body), Revision: body})
	if err != nil {
		t.Fatal(err)
	}
	if run, err = l.Start(t.Context(), run.ID, nil); err != nil {
		t.Fatal(err)
	}
	return l, run
}

var deleted = Done{Settlement: ledger.Settlement{Planned: 1, Outcomes: ledger.Outcomes{"deleted": 1}, Root: make([]byte, 32), KeyID: "k"}}

// A batch that stops the run does not take with it what others have done meanwhile: their rows are gone, and it is settled.
func TestStopSettlesWhatWasDone(t *testing.T) {
	l, run := startedRun(t)
	begun, stopped := make(chan struct{}), make(chan struct{})
	f := &fakeTable{batches: 2}
	f.execute = func(_ context.Context, b Batch) (Done, error) {
		if b.Seq == 1 {
			<-begun // the other is in hand
			close(stopped)
			return Done{}, &StopError{Why: "hold_unreadable", Err: errors.New("a hold cannot be read")}
		}
		close(begun)
		<-stopped
		return deleted, nil
	}
	got, err := Drain(t.Context(), run.ID, Options{Ledger: l, Pager: f, Worker: f, Sealer: openSealer{}, Logger: slog.New(slog.DiscardHandler),
		Batch: policy.Batch{Rows: 1, InFlight: 2}})
	if stop := (*StopError)(nil); !errors.As(err, &stop) {
		t.Fatalf("got %v", err)
	}
	if got.State != ledger.Failed || got.WhyEnded != "hold_unreadable" || got.Outcomes["deleted"] != 1 || got.BatchesSettled != 1 {
		t.Errorf("the run ended as %s (%s) with %v, %d settled", got.State, got.WhyEnded, got.Outcomes, got.BatchesSettled)
	}
}

// A run that somebody cancels ends after the batches in hand, which are settled.
func TestCancelledElsewhere(t *testing.T) {
	l, run := startedRun(t)
	f := &fakeTable{batches: 50}
	f.execute = func(ctx context.Context, b Batch) (Done, error) {
		if b.Seq == 3 {
			if _, err := l.End(ctx, run.ID, ledger.Cancelled, "cancelled", ""); err != nil {
				return Done{}, err
			}
		}
		return deleted, nil
	}
	got, err := Drain(t.Context(), run.ID, Options{Ledger: l, Pager: f, Worker: f, Sealer: openSealer{}, Logger: slog.New(slog.DiscardHandler),
		Batch: policy.Batch{Rows: 1, InFlight: 2}})
	if ended := (*EndedError)(nil); !errors.As(err, &ended) {
		t.Fatalf("got %v", err)
	}
	if got.State != ledger.Cancelled || got.Outcomes["deleted"] < 3 || got.Outcomes["deleted"] > 6 {
		t.Errorf("the run ended as %s with %v", got.State, got.Outcomes)
	}
}

// TestWake: the queue is woken for what is committed, and only then.
func TestWake(t *testing.T) {
	l, run := startedRun(t)
	f := &fakeTable{batches: 3, execute: func(context.Context, Batch) (Done, error) { return deleted, nil }}
	var enqueued, woken []int64
	o := Options{Ledger: l, Pager: f, Worker: f, Sealer: openSealer{}, Logger: slog.New(slog.DiscardHandler),
		Batch: policy.Batch{Rows: 1, InFlight: 1},
		Enqueue: func(_ context.Context, _ *sql.Tx, _ string, seqs []int64) error {
			enqueued = append(enqueued, seqs...)
			return nil
		},
		Wake: func() {
			seq := enqueued[len(enqueued)-1]
			if _, err := l.BatchOf(t.Context(), run.ID, seq); err != nil {
				t.Errorf("woken for batch %d: %v", seq, err)
			}
			woken = append(woken, seq)
		}}
	if _, err := Drain(t.Context(), run.ID, o); err != nil {
		t.Fatal(err)
	}
	if want := []int64{1, 2, 3}; !slices.Equal(woken, want) {
		t.Errorf("woken for %v, want %v", woken, want)
	}
}

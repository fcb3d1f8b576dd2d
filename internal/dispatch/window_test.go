package dispatch

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/policy"
)

// setClock is a clock that a test sets.
type setClock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *setClock) read() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *setClock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

// at is a night in July.
func at(clock string) time.Time {
	t, err := time.Parse("2006-01-02T15:04:05", "2026-07-01T"+clock)
	if err != nil {
		panic(err)
	}
	return t
}

func nightRun(t *testing.T, c *setClock) (*ledger.Ledger, ledger.Run) {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Options{URL: "sqlite:" + filepath.Join(t.TempDir(), "l.db"), Actor: "test", Clock: c.read})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	if _, _, err := l.AcceptClock(t.Context(), "test"); err != nil { // SQLite made it by the clock outside
		t.Fatal(err)
	}
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

// onOutside calls fn each time a run is found outside its window.
func onOutside(t *testing.T, fn func()) {
	t.Helper()
	look := LookAgain
	LookAgain = time.Millisecond
	TestHook = func(point string) {
		if point == "outside" {
			fn()
		}
	}
	t.Cleanup(func() { TestHook, LookAgain = nil, look })
}

// A run whose window closes in its middle begins nothing more, ends what it has in hand, and goes on when the next one opens.
func TestWindowCloses(t *testing.T) {
	c := &setClock{now: at("01:30:00")}
	l, run := nightRun(t, c)
	p := &policy.Policy{Windows: []policy.Window{{From: 60, To: 120}, {From: 240, To: 300}}}
	var mu sync.Mutex
	begun, closed := 0, 0
	f := &fakeTable{batches: 6}
	f.execute = func(_ context.Context, b Batch) (Done, error) {
		mu.Lock()
		defer mu.Unlock()
		begun++
		if !p.InWindow(c.read()) && b.Seq != 3 {
			t.Errorf("batch %d began outside the windows", b.Seq)
		}
		if b.Seq == 3 {
			c.set(at("02:00:00"))
		}
		return deleted, nil
	}
	onOutside(t, func() {
		mu.Lock()
		defer mu.Unlock()
		closed++
		now, err := l.Get(t.Context(), run.ID)
		if err != nil || now.State != ledger.Running || now.Detail != ledger.OutsideWindow+"2026-07-01T04:00:00Z" {
			t.Errorf("while it waits: %+v, %v", now, err)
		}
		c.set(at("04:00:00"))
	})
	o := Options{Ledger: l, Pager: f, Worker: f, Sealer: openSealer{}, Logger: slog.New(slog.DiscardHandler), Batch: policy.Batch{Rows: 1, InFlight: 1}, Window: p.NextWindow}
	got, err := Drain(t.Context(), run.ID, o)
	if err != nil || got.State != ledger.Succeeded || got.Outcomes["deleted"] != 6 || got.Detail != "" {
		t.Fatalf("%+v, %v", got, err)
	}
	if begun != 6 || closed != 1 {
		t.Errorf("%d batches began, and it waited %d times", begun, closed)
	}
}

// Told to stop while it waits, it stops; batches that another process left stay for when the window opens.
func TestWindowStops(t *testing.T) {
	c := &setClock{now: at("03:00:00")}
	l, run := nightRun(t, c)
	p := &policy.Policy{Windows: []policy.Window{{From: 240, To: 300}}}
	f := &fakeTable{batches: 2, execute: func(_ context.Context, b Batch) (Done, error) {
		t.Errorf("batch %d was executed", b.Seq)
		return deleted, nil
	}}
	if _, err := l.Admit(t.Context(), run.ID, ledger.Admission{NewCursor: []byte{0}, PagedOut: true, Batches: []ledger.NewBatch{{Key: ledger.BatchKey{1}, Phase: "main", Planned: 1, Bounds: []byte{0}}}}); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	onOutside(t, sync.OnceFunc(func() { close(stop) }))
	var queued []int64
	got, err := Drain(t.Context(), run.ID, Options{Ledger: l, Pager: f, Worker: f, Sealer: openSealer{}, Logger: slog.New(slog.DiscardHandler), Batch: policy.Batch{Rows: 1, InFlight: 1},
		Window: p.NextWindow, Stop: stop, Enqueue: func(_ context.Context, _ *sql.Tx, _ string, seqs []int64) error {
			queued = append(queued, seqs...)
			return nil
		}})
	if !errors.Is(err, ErrInterrupted) || got.State.Ended() || got.BatchesSettled != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

// A run is weighed once, before anything of it is let in, and one that waits admits nothing; one that has begun is not weighed.
func TestWeigh(t *testing.T) {
	l, run := startedRun(t)
	f := &fakeTable{batches: 3, execute: func(context.Context, Batch) (Done, error) { return deleted, nil }}
	weighed := 0
	o := Options{Ledger: l, Pager: f, Worker: f, Sealer: openSealer{}, Logger: slog.New(slog.DiscardHandler), Batch: policy.Batch{Rows: 1, InFlight: 1}}
	o.Weigh = func(ctx context.Context, r ledger.Run) (ledger.Run, error) {
		weighed++
		return l.Await(ctx, r.ID, "too much", []byte(`{}`))
	}
	got, err := Drain(t.Context(), run.ID, o)
	if ended := (*EndedError)(nil); !errors.As(err, &ended) || ended.Run.State != ledger.AwaitingApproval || !strings.Contains(err.Error(), "too much") {
		t.Fatalf("%+v, %v", got, err)
	}
	if got.BatchesTotal != 0 || weighed != 1 {
		t.Errorf("%d batches, weighed %d times", got.BatchesTotal, weighed)
	}
	if _, err := l.Approve(t.Context(), run.ID, "eve", ""); err != nil {
		t.Fatal(err)
	}
	o.Weigh = func(_ context.Context, r ledger.Run) (ledger.Run, error) { weighed++; return r, nil }
	stop := make(chan struct{})
	o.Stop = stop
	f.execute = func(_ context.Context, b Batch) (Done, error) {
		if b.Seq == 1 {
			close(stop)
		}
		return deleted, nil
	}
	if got, err := Drain(t.Context(), run.ID, o); !errors.Is(err, ErrInterrupted) || got.BatchesSettled < 1 || weighed != 2 {
		t.Fatalf("%+v, %v; weighed %d times", got, err, weighed)
	}
	o.Stop, f.execute = nil, func(context.Context, Batch) (Done, error) { return deleted, nil }
	if got, err := Drain(t.Context(), run.ID, o); err != nil || got.Outcomes["deleted"] != 3 || weighed != 2 {
		t.Errorf("%+v, %v; weighed %d times", got, err, weighed)
	}
}

// Another process has the run wait between our look and our first admission: nothing is let in.
func TestWeighedElsewhere(t *testing.T) {
	l, run := startedRun(t)
	f := &fakeTable{batches: 3, execute: func(context.Context, Batch) (Done, error) { panic("executed") }}
	o := Options{Ledger: l, Pager: f, Worker: f, Sealer: openSealer{}, Logger: slog.New(slog.DiscardHandler), Batch: policy.Batch{Rows: 1, InFlight: 1}}
	TestHook = func(point string) {
		if point == "paged" {
			if _, err := l.Await(t.Context(), run.ID, "too much", []byte(`{}`)); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(func() { TestHook = nil })
	o.Weigh = func(_ context.Context, r ledger.Run) (ledger.Run, error) { return r, nil }
	got, err := Drain(t.Context(), run.ID, o)
	if ended := (*EndedError)(nil); !errors.As(err, &ended) || got.State != ledger.AwaitingApproval || got.BatchesTotal != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

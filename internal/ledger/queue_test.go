package ledger

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// jobs makes a table of a queue, as some other package has it.
func jobs(t *testing.T, l *Ledger) {
	t.Helper()
	if _, err := l.write.Exec(l.q(`CREATE TABLE @job (run TEXT, seq BIGINT)`)); err != nil {
		t.Fatal(err)
	}
}

// enqueue puts batches into that table.
func enqueue(l *Ledger, run string, then error) func(context.Context, *sql.Tx, []NewBatchRef) error {
	return func(ctx context.Context, tx *sql.Tx, batches []NewBatchRef) error {
		for _, b := range batches {
			if b.Key != key(run, int(b.Seq)) {
				return errors.New("another batch's key")
			}
			if _, err := tx.ExecContext(ctx, l.q(`INSERT INTO @job VALUES ($1, $2)`), run, b.Seq); err != nil {
				return err
			}
		}
		return then
	}
}

// TestEnqueue: a batch and its job are there together or not at all.
func TestEnqueue(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		jobs(t, l)
		r := started(t, l, "p")
		count := func() int { return one[int](t, l, `SELECT count(*) FROM @job`) }
		admission := func(numbers ...int) *Admission {
			a := &Admission{OldCursor: r.Cursor, NewCursor: []byte("cursor")}
			for _, n := range numbers {
				a.Batches = append(a.Batches, batch(r.ID, n, 10))
			}
			return a
		}

		full := errors.New("the queue is full")
		if _, err := l.Step(t.Context(), r.ID, StepRequest{Admit: admission(1, 2), Enqueue: enqueue(l, r.ID, full)}); !errors.Is(err, full) {
			t.Fatalf("got %v", err)
		}
		if got := checkRun(t, l, r.ID); got.BatchesTotal != 0 || got.Cursor != nil || count() != 0 {
			t.Fatalf("%d batches, cursor %q, %d jobs of a step that failed", got.BatchesTotal, got.Cursor, count())
		}

		var err error
		if r, err = l.Step(t.Context(), r.ID, StepRequest{Admit: admission(1, 2), Enqueue: enqueue(l, r.ID, nil)}); err != nil {
			t.Fatal(err)
		}
		if r, err = l.Step(t.Context(), r.ID, StepRequest{Admit: admission(3), Enqueue: enqueue(l, r.ID, nil)}); err != nil {
			t.Fatal(err)
		}
		if r, err = l.Step(t.Context(), r.ID, StepRequest{Settle: []Settlement{settlement(r.ID, 1, Outcomes{"deleted": 10})},
			Admit: &Admission{OldCursor: r.Cursor, NewCursor: r.Cursor, PagedOut: true}, Enqueue: func(context.Context, *sql.Tx, []NewBatchRef) error {
				return errors.New("asked to enqueue nothing")
			}}); err != nil {
			t.Fatal(err)
		}
		if sum := one[int](t, l, `SELECT sum(seq) FROM @job WHERE run = $1`, r.ID); count() != 3 || sum != 1+2+3 {
			t.Errorf("%d jobs, the sum of their numbers is %d", count(), sum)
		}
		checkRun(t, l, r.ID)
	})
}

func TestTx(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		jobs(t, l)
		no := errors.New("no")
		if err := l.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			return enqueue(l, "r", no)(ctx, tx, []NewBatchRef{{Key: key("r", 1), Seq: 1}})
		}); !errors.Is(err, no) {
			t.Fatalf("got %v", err)
		}
		if n := one[int](t, l, `SELECT count(*) FROM @job`); n != 0 {
			t.Fatalf("%d rows of a transaction that failed", n)
		}
		if err := l.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			return enqueue(l, "r", nil)(ctx, tx, []NewBatchRef{{Key: key("r", 1), Seq: 1}})
		}); err != nil {
			t.Fatal(err)
		}
		if n := one[int](t, l, `SELECT count(*) FROM @job`); n != 1 {
			t.Fatalf("%d rows", n)
		}
	})
}

func TestBatchOf(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		r := started(t, l, "p")
		if _, err := l.BatchOf(t.Context(), r.ID, 1); !errors.Is(err, ErrNotFound) {
			t.Errorf("no such batch: %v", err)
		}
		if _, _, err := l.SettledBatch(t.Context(), r.ID, 1); !errors.Is(err, ErrNotFound) {
			t.Errorf("no such batch: %v", err)
		}
		r = admitOne(t, l, r, 1, 10)
		r = admitOne(t, l, r, 2, 20)
		b, err := l.BatchOf(t.Context(), r.ID, 2)
		if err != nil {
			t.Fatal(err)
		}
		if b.Key != key(r.ID, 2) || b.State != Pending || string(b.Bounds) != "bounds 2" || string(b.Keys) != "keys 2" || b.Planned != 20 {
			t.Errorf("got %+v", b)
		}
		if _, settled, err := l.SettledBatch(t.Context(), r.ID, 2); settled || err != nil {
			t.Errorf("settled %v, %v", settled, err)
		}

		want := settlement(r.ID, 2, Outcomes{"deleted": 18, "blocked": 1})
		want.Cascaded, want.Attempts, want.Duration = 7, 3, 2*time.Second
		with := want
		with.Deferred, with.DeferredKeys = 1, []byte("sealed")
		if _, err := l.Settle(t.Context(), r.ID, with); err != nil {
			t.Fatal(err)
		}
		want.Deferred = 1
		got, settled, err := l.SettledBatch(t.Context(), r.ID, 2)
		if !settled || err != nil {
			t.Fatalf("settled %v, %v", settled, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		// The same settlement again is no other one.
		got.DeferredKeys = []byte("sealed")
		if _, err := l.Settle(t.Context(), r.ID, got); err != nil {
			t.Errorf("settled from what was read: %v", err)
		}
		if b, err = l.BatchOf(t.Context(), r.ID, 2); err != nil || b.State != Settled || b.Keys != nil {
			t.Errorf("%s with keys %q, %v", b.State, b.Keys, err)
		}
	})
}

// TestQueueDB: the queue's handle is on the ledger's own database, and writes
// beside the ledger.
func TestQueueDB(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		jobs(t, l)
		q, err := l.QueueDB(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if q.SQLite != l.sqlite || (q.Schema == "curfew") == q.SQLite {
			t.Errorf("SQLite %v, schema %q", q.SQLite, q.Schema)
		}
		var epoch string
		if err := q.DB.QueryRow(l.q(`SELECT epoch FROM @meta`)).Scan(&epoch); err != nil {
			t.Fatal(err)
		}
		if want, _, err := l.Epoch(t.Context()); err != nil || epoch != want {
			t.Errorf("epoch %s, the ledger's is %s, %v", epoch, want, err)
		}
		if !l.sqlite {
			var idle string
			if err := q.DB.QueryRow(`SHOW idle_in_transaction_session_timeout`).Scan(&idle); err != nil || idle == "0" {
				t.Errorf("a frozen transaction lasts %q, %v", idle, err)
			}
			if q.DB == l.write {
				t.Error("the queue may starve the ledger")
			}
		}
		done := make(chan error)
		go func() {
			for range 50 {
				if _, err := q.DB.Exec(l.q(`INSERT INTO @job VALUES ('q', 1)`)); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		r := started(t, l, "p")
		for n := range 50 {
			r = admitOne(t, l, r, n+1, 1)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
		if _, err := l.Get(t.Context(), r.ID); err != nil {
			t.Errorf("the ledger after the queue's close: %v", err)
		}
	})
}

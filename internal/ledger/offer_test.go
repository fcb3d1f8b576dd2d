package ledger

import (
	"errors"
	"sync"
	"testing"
)

// An offer leaves the cursor where it is, and keeps everything else out until the pool has the batch; then the cursor moves, with an
// entry in the audit log, once.
func TestOffer(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		r := started(t, l, "circulation")
		offered := func(n int) NewBatch {
			b := batch(r.ID, n, 10)
			b.Offered = true
			return b
		}
		offer := func(n int, old []byte) error {
			_, err := l.Admit(t.Context(), r.ID, Admission{OldCursor: old, NewCursor: old, Outbox: true, Batches: []NewBatch{offered(n)}})
			return err
		}
		if err := offer(1, nil); err != nil {
			t.Fatal(err)
		}
		if err := offer(2, nil); !errors.Is(err, ErrOffered) {
			t.Errorf("a second offer: %v", err)
		}
		if _, err := l.Admit(t.Context(), r.ID, Admission{NewCursor: []byte("empty page"), Outbox: true}); !errors.Is(err, ErrOffered) {
			t.Errorf("a page without rows while an offer stands: %v", err)
		}
		if got := checkRun(t, l, r.ID); got.Cursor != nil || got.BatchesTotal != 1 {
			t.Errorf("offered: %+v", got)
		}
		if _, err := l.Admitted(t.Context(), r.ID, key(r.ID, 1), Admission{OldCursor: []byte("elsewhere"), NewCursor: []byte("one")}); !errors.Is(err, ErrCursorMoved) {
			t.Errorf("another cursor: %v", err)
		}
		if _, err := l.Admitted(t.Context(), r.ID, key(r.ID, 9), Admission{NewCursor: []byte("one")}); !errors.Is(err, ErrNotFound) {
			t.Errorf("no such batch: %v", err)
		}
		// Several processes hear of the admission: one moves the cursor.
		var wg sync.WaitGroup
		for range 5 {
			wg.Go(func() {
				got, err := l.Admitted(t.Context(), r.ID, key(r.ID, 1), Admission{NewCursor: []byte("one"), PagedOut: true, PageRows: 7})
				if err != nil || string(got.Cursor) != "one" || !got.PagedOut || got.PageRows != 7 {
					t.Errorf("%v: %+v", err, got)
				}
			})
		}
		wg.Wait()
		if n := count(t, l, ActionBatchAdmitted); n != 1 {
			t.Errorf("%d entries in the audit log", n)
		}
		b, err := l.BatchOf(t.Context(), r.ID, 1)
		if err != nil || b.State != Pending || string(b.Keys) != "keys 1" {
			t.Errorf("%v: %+v", err, b)
		}
		if err := offer(2, []byte("one")); err != nil {
			t.Fatal(err)
		}
		if _, err := l.End(t.Context(), r.ID, Succeeded, "done", ""); !errors.Is(err, ErrUnfinished) {
			t.Errorf("a run with an offer ends well: %v", err)
		}
		if _, err := l.End(t.Context(), r.ID, Cancelled, "cancelled", ""); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Admitted(t.Context(), r.ID, key(r.ID, 2), Admission{OldCursor: []byte("one"), NewCursor: []byte("two")}); !errors.Is(err, ErrRunEnded) {
			t.Errorf("after the end: %v", err)
		}
		// The pool has it all the same, and what it did is recorded.
		settleOne(t, l, r, 2, Outcomes{"deleted": 10})
	})
}

// Of many that offer at once one does.
func TestOfferAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		r := started(t, l, "circulation")
		var wg sync.WaitGroup
		var mu sync.Mutex
		won := 0
		for n := range 8 {
			wg.Go(func() {
				b := batch(r.ID, n, 1)
				b.Offered = true
				_, err := l.Admit(t.Context(), r.ID, Admission{Outbox: true, Batches: []NewBatch{b}})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won++
				} else if !errors.Is(err, ErrOffered) {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if won != 1 {
			t.Errorf("%d offers stand", won)
		}
	})
}

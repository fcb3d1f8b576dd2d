package ledger

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStep(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		r := started(t, l, "p")
		r, err := l.Step(ctx, r.ID, StepRequest{Admit: &Admission{NewCursor: []byte("c1"), PageRows: 1000,
			Batches: []NewBatch{batch(r.ID, 1, 1000), batch(r.ID, 2, 500)}}})
		if err != nil {
			t.Fatal(err)
		}
		if r.BatchesTotal != 2 || string(r.Cursor) != "c1" || r.PageRows != 1000 || r.Planned != 0 {
			t.Errorf("after admission: %+v", r)
		}
		open, err := l.Unsettled(ctx, r.ID)
		if err != nil || len(open) != 2 {
			t.Fatalf("%d unsettled, %v", len(open), err)
		}
		want := Batch{Key: key(r.ID, 1), Run: r.ID, Seq: 1, Phase: "trigger", Planned: 1000, State: Pending, Outcomes: Outcomes{},
			Created: open[0].Created, Bounds: []byte("bounds 1"), Keys: []byte("keys 1")}
		if d := cmp.Diff(want, open[0]); d != "" {
			t.Error(d)
		}

		// One settles while the next is admitted. Three of its rows were locked,
		// and two more had become due.
		s := settlement(r.ID, 1, Outcomes{"deleted": 990, "gone": 9, "held": 0})
		s.Cascaded, s.Deferred, s.DeferredKeys = 40, 3, []byte("locked ones")
		r, err = l.Step(ctx, r.ID, StepRequest{Settle: []Settlement{s}, Admit: &Admission{OldCursor: []byte("c1"), NewCursor: []byte("c2"),
			PagedOut: true, Batches: []NewBatch{batch(r.ID, 3, 7)}}})
		if err != nil {
			t.Fatal(err)
		}
		stored := checkRun(t, l, r.ID)
		if d := cmp.Diff(stored, r); d != "" {
			t.Errorf("what Step returns is not what is stored: %s", d)
		}
		if r.Planned != 999 || r.Cascaded != 40 || r.BatchesSettled != 1 || r.BatchesTotal != 3 || !r.PagedOut || r.PageRows != 1000 {
			t.Errorf("after the step: %+v", r)
		}
		if d := cmp.Diff(Outcomes{"deleted": 990, "gone": 9}, r.Outcomes); d != "" {
			t.Error(d)
		}
		batches, err := l.Batches(ctx, r.ID, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		want = Batch{Key: key(r.ID, 1), Run: r.ID, Seq: 1, Phase: "trigger", Planned: 999, State: Settled, Outcomes: r.Outcomes, Cascaded: 40,
			Deferred: 3, Attempts: 1, Root: []byte{1}, KeyID: "6c1d3b0a", Duration: 1234 * time.Microsecond,
			Created: batches[0].Created, SettledAt: batches[0].SettledAt}
		if d := cmp.Diff([]Batch{want}, batches); d != "" {
			t.Error(d)
		}
		if rest, err := l.Batches(ctx, r.ID, 1, 0); err != nil || len(rest) != 2 || rest[0].Seq != 2 {
			t.Errorf("after seq 1: %d batches, %v", len(rest), err)
		}

		// Deferred rows are taken once.
		deferred, err := l.Deferred(ctx, r.ID)
		if d := cmp.Diff([]DeferredRows{{From: key(r.ID, 1), Seq: 1, Rows: 3, Keys: []byte("locked ones")}}, deferred); err != nil || d != "" {
			t.Fatal(d, err)
		}
		take := Admission{OldCursor: r.Cursor, NewCursor: r.Cursor, FromDeferred: []BatchKey{deferred[0].From}, Batches: []NewBatch{batch(r.ID, 4, 3)}}
		if r, err = l.Admit(ctx, r.ID, take); err != nil || !r.PagedOut {
			t.Fatalf("take the deferred: paged out %v, %v", r.PagedOut, err)
		}
		take.Batches = []NewBatch{batch(r.ID, 5, 3)}
		if _, err := l.Admit(ctx, r.ID, take); !errors.Is(err, ErrDeferredTaken) {
			t.Errorf("take them twice: %v", err)
		}
		if deferred, err := l.Deferred(ctx, r.ID); err != nil || len(deferred) != 0 {
			t.Errorf("still deferred: %v, %v", deferred, err)
		}
		r = settleOne(t, l, r, 2, Outcomes{"deleted": 500})
		r = settleOne(t, l, r, 3, Outcomes{"deleted": 6, "blocked": 1})
		settleOne(t, l, r, 4, Outcomes{"locked": 3})
		r, err = l.End(ctx, r.ID, Succeeded, WhyDone, "")
		if err != nil || r.State != Succeeded {
			t.Fatalf("ended as %s %q, %v", r.State, r.Detail, err)
		}
		if d := cmp.Diff(checkRun(t, l, r.ID), r); d != "" {
			t.Errorf("what End returns is not what is stored: %s", d)
		}
	})
}

// TestStepIsAllOrNothing: a lost race for the cursor settles nothing either.
func TestStepIsAllOrNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		r := admitOne(t, l, started(t, l, "p"), 1, 10)
		before := len(entries(t, l))
		for name, c := range map[string]struct {
			req  StepRequest
			want error
		}{
			"stale cursor": {StepRequest{Settle: []Settlement{settlement(r.ID, 1, Outcomes{"deleted": 10})},
				Admit: &Admission{OldCursor: []byte("stale"), NewCursor: []byte("x")}}, ErrCursorMoved},
			"no cursor given": {StepRequest{Settle: []Settlement{settlement(r.ID, 1, Outcomes{"deleted": 10})},
				Admit: &Admission{NewCursor: []byte("x")}}, ErrCursorMoved},
			"deferred of another batch": {StepRequest{Settle: []Settlement{settlement(r.ID, 1, Outcomes{"deleted": 10})},
				Admit: &Admission{OldCursor: r.Cursor, NewCursor: []byte("x"), FromDeferred: []BatchKey{key(r.ID, 1)}}}, ErrDeferredTaken},
			"unknown batch": {StepRequest{Settle: []Settlement{settlement(r.ID, 1, Outcomes{"deleted": 10}), settlement(r.ID, 99, nil)}}, ErrNotFound},
			"batch admitted before": {StepRequest{Settle: []Settlement{settlement(r.ID, 1, Outcomes{"deleted": 10})},
				Admit: &Admission{OldCursor: r.Cursor, NewCursor: []byte("x"), Batches: []NewBatch{batch(r.ID, 1, 10)}}}, nil},
			"outcomes differ": {StepRequest{Settle: []Settlement{{Batch: key(r.ID, 1), Planned: 10, Outcomes: Outcomes{"deleted": 9}}}}, ErrOutcomesDiffer},
			"negative":        {StepRequest{Settle: []Settlement{settlement(r.ID, 1, Outcomes{"deleted": 11, "gone": -1})}}, nil},
			"deferred without keys": {StepRequest{Settle: []Settlement{{Batch: key(r.ID, 1), Planned: 1,
				Outcomes: Outcomes{"deleted": 1}, Deferred: 9}}}, nil},
		} {
			_, err := l.Step(ctx, r.ID, c.req)
			if err == nil || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%s: %v, want %v", name, err, c.want)
			}
		}
		if d := cmp.Diff(r, checkRun(t, l, r.ID)); d != "" {
			t.Error(d)
		}
		if after := len(entries(t, l)); after != before {
			t.Errorf("%d audit entries came from steps that failed", after-before)
		}
		if _, err := l.Step(ctx, "feedfacefeedface", StepRequest{}); !errors.Is(err, ErrNotFound) {
			t.Errorf("unknown run: %v", err)
		}
		// A batch is settled by its own run only.
		other := started(t, l, "q")
		if _, err := l.Settle(ctx, other.ID, settlement(r.ID, 1, Outcomes{"deleted": 10})); !errors.Is(err, ErrNotFound) {
			t.Errorf("another run's batch: %v", err)
		}
	})
}

func TestSettleTwice(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		r := admitOne(t, l, started(t, l, "p"), 1, 10)
		s := settlement(r.ID, 1, Outcomes{"deleted": 9, "gone": 1})
		s.Cascaded, s.Deferred, s.DeferredKeys = 2, 1, []byte("k")
		first, err := l.Settle(ctx, r.ID, s)
		if err != nil {
			t.Fatal(err)
		}
		before := len(entries(t, l))
		again := s
		again.Duration, again.Attempts = 5*time.Second, 2
		again.DeferredKeys = []byte("sealed anew") // seals are random
		again.Outcomes = Outcomes{"deleted": 9, "gone": 1, "held": 0}
		second, err := l.Settle(ctx, r.ID, again)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(first, second); d != "" {
			t.Error(d)
		}
		for name, edit := range map[string]func(*Settlement){
			"outcomes": func(s *Settlement) { s.Outcomes = Outcomes{"deleted": 10} },
			"planned":  func(s *Settlement) { s.Planned, s.Outcomes = 9, Outcomes{"deleted": 9} },
			"cascaded": func(s *Settlement) { s.Cascaded = 3 },
			"deferred": func(s *Settlement) { s.Deferred = 2 },
			"root":     func(s *Settlement) { s.Root = []byte{9} },
		} {
			other := s
			edit(&other)
			if _, err := l.Settle(ctx, r.ID, other); !errors.Is(err, ErrSettledDifferently) {
				t.Errorf("another %s: %v", name, err)
			}
		}
		if after := len(entries(t, l)); after != before {
			t.Errorf("%d audit entries too many", after-before)
		}
		checkRun(t, l, r.ID)
	})
}

// TestSettleAfterTheEnd: the rows are gone, whatever became of the run meanwhile.
func TestSettleAfterTheEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		r := admitOne(t, l, started(t, l, "p"), 1, 10)
		r = admitOne(t, l, r, 2, 10)
		cancelled, err := l.End(ctx, r.ID, Cancelled, WhyCancelled, "by ann")
		if err != nil {
			t.Fatal(err)
		}
		checkRun(t, l, r.ID)
		if _, err := l.Admit(ctx, r.ID, Admission{OldCursor: cancelled.Cursor, NewCursor: []byte("x")}); !errors.Is(err, ErrRunEnded) {
			t.Errorf("admit: %v, want ErrRunEnded", err)
		}
		late := settleOne(t, l, r, 1, Outcomes{"deleted": 10})
		if late.State != Cancelled || late.Planned != 10 || late.BatchesSettled != 1 {
			t.Errorf("%+v", late)
		}
		checkRun(t, l, r.ID)
	})
}

func TestAdmitBeforeStart(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		r := accept(t, l, an("p", "key:1"))
		if _, err := l.Admit(t.Context(), r.ID, Admission{NewCursor: []byte("x"), Batches: []NewBatch{batch(r.ID, 1, 1)}}); err == nil {
			t.Error("a run that was not started admits batches")
		}
		checkRun(t, l, r.ID)
	})
}

// TestAdmitAtOnce: of several processes that page one run, one wins each step.
func TestAdmitAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		r := started(t, l, "p")
		const pages, pagers = 40, 6
		var lost atomic.Int64
		var wg sync.WaitGroup
		for range pagers {
			wg.Go(func() {
				for {
					now, err := l.Get(ctx, r.ID)
					if err != nil {
						t.Error(err)
						return
					}
					n := int(now.BatchesTotal)
					if n >= pages {
						return
					}
					_, err = l.Admit(ctx, r.ID, Admission{OldCursor: now.Cursor, NewCursor: fmt.Appendf(nil, "c%d", n+1),
						Batches: []NewBatch{batch(r.ID, n+1, 1)}})
					if errors.Is(err, ErrCursorMoved) {
						lost.Add(1)
					} else if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		if got := checkRun(t, l, r.ID); got.BatchesTotal != pages {
			t.Errorf("%d batches, want %d", got.BatchesTotal, pages)
		}
		t.Logf("%d admissions lost the race", lost.Load())
	})
}

// TestManySettlements: one step settles more batches, with more news, than fit
// into one statement.
func TestManySettlements(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		r := started(t, l, "p")
		a := Admission{NewCursor: []byte("c"), PagedOut: true}
		var settle []Settlement
		for n := range 130 {
			a.Batches = append(a.Batches, batch(r.ID, n, 1))
			settle = append(settle, settlement(r.ID, n, Outcomes{"deleted": 1}))
		}
		if _, err := l.Admit(t.Context(), r.ID, a); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Settle(t.Context(), r.ID, settle...); err != nil {
			t.Fatal(err)
		}
		if got := checkRun(t, l, r.ID); got.Planned != 130 {
			t.Errorf("planned %d", got.Planned)
		}
	})
}

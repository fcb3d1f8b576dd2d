package ledger

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"curfew.dev/curfew/internal/dbtest"
)

// model is a run as it should be, next to the run in the ledger.
type model struct {
	l       *Ledger
	run     string
	cursor  []byte
	state   State
	batches []*modelBatch
	paged   bool
	moves   int
}

type modelBatch struct {
	key      BatchKey
	settled  *Settlement
	deferred bool // rows of it wait
}

func (m *model) open() (open []*modelBatch) {
	for _, b := range m.batches {
		if b.settled == nil {
			open = append(open, b)
		}
	}
	return open
}

func (m *model) drawSettlement(t *rapid.T, b *modelBatch) Settlement {
	o := Outcomes{}
	for _, name := range []string{"deleted", "gone", "held", "locked"} {
		o[name] = int64(rapid.IntRange(0, 5).Draw(t, name))
	}
	s := Settlement{Batch: b.key, Planned: o.Sum(), Outcomes: o, Cascaded: int64(rapid.IntRange(0, 3).Draw(t, "cascaded"))}
	if rapid.Bool().Draw(t, "defers") {
		s.Deferred, s.DeferredKeys = 1, []byte("k")
	}
	return s
}

// step settles some batches and admits some, as a dispatcher does.
func (m *model) step(t *rapid.T) {
	var req StepRequest
	settled := map[*modelBatch]Settlement{}
	for _, b := range m.open() {
		if rapid.Bool().Draw(t, "settle") {
			s := m.drawSettlement(t, b)
			settled[b] = s
			req.Settle = append(req.Settle, s)
		}
	}
	var admitted []*modelBatch
	next := m.cursor
	admits := m.state == Running && rapid.Bool().Draw(t, "admit")
	stale := admits && rapid.IntRange(0, 3).Draw(t, "stale") == 0
	var taken *modelBatch
	if admits {
		m.moves++
		next = fmt.Appendf(nil, "c%d", m.moves)
		req.Admit = &Admission{OldCursor: m.cursor, NewCursor: next, PagedOut: rapid.Bool().Draw(t, "paged out")}
		if stale {
			req.Admit.OldCursor = []byte("stale")
		}
		for _, b := range m.batches {
			if b.deferred && b.settled != nil && taken == nil {
				taken = b
				req.Admit.FromDeferred = []BatchKey{b.key}
			}
		}
		for range rapid.IntRange(0, 3).Draw(t, "batches") {
			n := len(m.batches) + len(admitted) + 1000*m.moves
			b := &modelBatch{key: key(m.run, n)}
			admitted = append(admitted, b)
			req.Admit.Batches = append(req.Admit.Batches, NewBatch{Key: b.key, Planned: 3, Keys: []byte("k")})
		}
	}
	_, err := m.l.Step(context.Background(), m.run, req)
	if stale {
		if !errors.Is(err, ErrCursorMoved) {
			t.Fatalf("a stale cursor: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatalf("step: %v", err)
	}
	for b, s := range settled {
		b.settled, b.deferred = &s, s.Deferred > 0
	}
	if admits {
		m.cursor, m.paged = next, m.paged || req.Admit.PagedOut
		m.batches = append(m.batches, admitted...)
		if taken != nil {
			taken.deferred = false
		}
	}
}

// again settles a settled batch once more, equally or not.
func (m *model) again(t *rapid.T) {
	var done []*modelBatch
	for _, b := range m.batches {
		if b.settled != nil {
			done = append(done, b)
		}
	}
	if len(done) == 0 {
		t.Skip("nothing is settled")
	}
	s := *rapid.SampledFrom(done).Draw(t, "batch").settled
	var want error
	if rapid.Bool().Draw(t, "differently") {
		s.Outcomes = s.Outcomes.add(Outcomes{"failed": 1})
		s.Planned++
		want = ErrSettledDifferently
	}
	if _, err := m.l.Settle(context.Background(), m.run, s); !errors.Is(err, want) {
		t.Fatalf("%v, want %v", err, want)
	}
}

func (m *model) end(t *rapid.T) {
	ready := m.paged && len(m.open()) == 0
	for _, b := range m.batches {
		ready = ready && !b.deferred
	}
	final := rapid.SampledFrom([]State{Succeeded, Succeeded, Cancelled}).Draw(t, "as")
	r, err := m.l.End(context.Background(), m.run, final, WhyDone, "")
	if m.state == Running && final == Succeeded && !ready {
		if !errors.Is(err, ErrUnfinished) {
			t.Fatalf("end: %v, want %v", err, ErrUnfinished)
		}
		return
	}
	if err != nil {
		t.Fatalf("end: %v", err)
	}
	if m.state == Running {
		m.state, m.cursor = final, nil
	}
	if r.State != m.state {
		t.Fatalf("ended as %s %q, want %s", r.State, r.Detail, m.state)
	}
}

func (m *model) check(t *rapid.T) {
	r := checkRun(t, m.l, m.run)
	want := Outcomes{}
	for _, b := range m.batches {
		if b.settled != nil {
			want = want.add(b.settled.Outcomes)
		}
	}
	if !r.Outcomes.Equal(want) || r.Planned != want.Sum() || r.BatchesTotal != int64(len(m.batches)) || r.State != m.state ||
		string(r.Cursor) != string(m.cursor) || r.PagedOut != m.paged {
		t.Fatalf("the run is %+v, want %v in %d batches, %s", r, want, len(m.batches), m.state)
	}
}

// TestModel: whatever is done to a run, in whatever order, its counts are the sums
// of its batches, and it succeeds exactly when all is done.
func TestModel(t *testing.T) {
	test := func(t *testing.T, l *Ledger) {
		rapid.Check(t, func(t *rapid.T) {
			ctx := context.Background()
			r, _, err := l.Accept(ctx, an("p", IdentityOnce()))
			if err != nil {
				t.Fatalf("accept: %v", err)
			}
			if _, err := l.Start(ctx, r.ID, nil); err != nil {
				t.Fatalf("start: %v", err)
			}
			m := &model{l: l, run: r.ID, state: Running}
			ends := rapid.IntRange(0, 2).Draw(t, "end early") == 0
			t.Repeat(map[string]func(*rapid.T){
				"":      m.check,
				"step":  m.step,
				"step2": m.step, // twice as often
				"again": m.again,
				"end": func(t *rapid.T) {
					if !ends && (len(m.open()) > 0 || !m.paged) {
						t.Skip("not yet")
					}
					m.end(t)
				},
			})
		})
	}
	t.Run("sqlite", func(t *testing.T) {
		l := open(t, Options{URL: "sqlite:" + dbtest.SQLite(t)})
		if _, err := l.write.ExecContext(t.Context(), `PRAGMA synchronous = OFF`); err != nil { // no crash here
			t.Fatal(err)
		}
		test(t, l)
	})
	t.Run("postgres", func(t *testing.T) { test(t, open(t, Options{URL: migrated(t, dbtest.Postgres(t))})) })
}

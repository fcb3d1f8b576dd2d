package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/internal/dbtest"
)

// hands is a clock that the test moves, and a ledger goes by it on both engines.
type hands struct {
	mu  sync.Mutex
	now time.Time
	db  *sql.DB // PostgreSQL: what its clock_timestamp() reads
}

func (h *hands) set(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now = now
	if h.db != nil {
		if _, err := h.db.ExecContext(context.Background(), `UPDATE fake.hands SET at = $1`, stamp(now)); err != nil {
			panic(err)
		}
	}
}

func (h *hands) add(d time.Duration) { h.set(h.read().Add(d)) }

func (h *hands) read() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// handsStart is where the hands stand at first: real ledgers are created by the real clock, and checkClock looks at that.
func handsStart() time.Time { return time.Now().UTC().Truncate(24 * time.Hour).Add(24 * time.Hour) }

// onHands runs a test on both engines with a clock that it moves. more opens the same ledger again, as another process does.
func onHands(t *testing.T, test func(t *testing.T, l *Ledger, h *hands, more func() *Ledger)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		h := &hands{now: handsStart()}
		url := "sqlite:" + dbtest.SQLite(t)
		more := func() *Ledger {
			l := open(t, Options{URL: url, Clock: h.read})
			run(t, l.write, `PRAGMA synchronous = OFF`) // no crash here
			return l
		}
		test(t, more(), h, more)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		url := migrated(t, dbtest.Postgres(t))
		h := &hands{now: handsStart(), db: raw(t, url)}
		run(t, h.db, `CREATE SCHEMA fake`, `CREATE TABLE fake.hands (at timestamptz)`,
			`INSERT INTO fake.hands VALUES ('`+h.now.Format(time.RFC3339)+`')`,
			`CREATE FUNCTION fake.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS 'SELECT at FROM fake.hands'`)
		more := func() *Ledger { return open(t, Options{URL: url + "&search_path=fake,pg_catalog"}) }
		test(t, more(), h, more)
	})
}

// every is a schedule of one instant each d.
func every(d time.Duration) func(after, until time.Time, limit int) []time.Time {
	return func(after, until time.Time, limit int) (all []time.Time) {
		for at := after.Truncate(d).Add(d); !at.After(until) && len(all) < limit; at = at.Add(d) {
			all = append(all, at)
		}
		return all
	}
}

// nightly is a schedule at midnight, changed by edit.
func nightly(edit ...func(*Scheduled)) Scheduled {
	s := Scheduled{Policy: "p", Mode: "enforce", Expr: "0 0 * * * UTC", Between: every(24 * time.Hour), StartWithin: time.Hour,
		RevisionID: RevisionID([]byte(policyText)), Revision: []byte(policyText),
		Cutoff: func(asOf time.Time) time.Time { return asOf.AddDate(-2, 0, 0) }}
	for _, e := range edit {
		e(&s)
	}
	return s
}

func tickOf(t testing.TB, l *Ledger, s Scheduled) Ticked {
	t.Helper()
	got, err := l.Tick(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// firstTick makes the schedule known.
func firstTick(t testing.TB, l *Ledger, s Scheduled) {
	t.Helper()
	if got := tickOf(t, l, s); !got.FirstSeen || len(got.Accepted)+len(got.Ended) > 0 {
		t.Fatalf("the first tick did %+v", got)
	}
}

// states is what became of a stage's occurrences, the oldest first: "state why run's cause".
func states(t testing.TB, l *Ledger) (all []string) {
	t.Helper()
	os, err := l.Occurrences(t.Context(), OccurrenceFilter{Limit: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	for i := len(os) - 1; i >= 0; i-- {
		s := string(os[i].State)
		if os[i].Why != "" {
			s += " " + os[i].Why
		}
		if os[i].Run != "" {
			r, err := l.Get(t.Context(), os[i].Run)
			if err != nil {
				t.Fatal(err)
			}
			s += " " + r.Cause
		}
		all = append(all, s)
	}
	return all
}

func wantStates(t testing.TB, l *Ledger, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, states(t, l)); d != "" {
		t.Error(d)
	}
}

// succeed drives a run without rows to its end.
func succeed(t testing.TB, l *Ledger, r Run) Run {
	t.Helper()
	r, err := l.Start(t.Context(), r.ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	pagedOut(t, l, r)
	return ended(t, l, r, Succeeded, WhyDone)
}

func ended(t testing.TB, l *Ledger, r Run, state State, why string) Run {
	t.Helper()
	r, err := l.End(t.Context(), r.ID, state, why, "")
	if err != nil || r.State != state {
		t.Fatalf("ended as %s: %v", r.State, err)
	}
	return r
}

func onlyRun(t testing.TB, got Ticked) Run {
	t.Helper()
	if len(got.Accepted) != 1 {
		t.Fatalf("%d runs were accepted, want 1: %+v", len(got.Accepted), got)
	}
	return got.Accepted[0]
}

func TestTick(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s, start := nightly(), h.read()
		firstTick(t, l, s)
		wantStates(t, l)
		h.add(23 * time.Hour)
		if d := cmp.Diff(Ticked{}, tickOf(t, l, s)); d != "" {
			t.Error(d)
		}
		h.add(time.Hour + 5*time.Second)
		r := onlyRun(t, tickOf(t, l, s))
		at := start.Add(24 * time.Hour)
		if r.AsOf != at || r.Identity != IdentityAsOf(at) || r.Cause != "schedule" || r.Cutoff != at.AddDate(-2, 0, 0) || r.State != Accepted {
			t.Errorf("%+v", r)
		}
		wantStates(t, l, "pending schedule")
		if got := tickOf(t, l, s); len(got.Accepted)+len(got.Ended) > 0 || got.More {
			t.Errorf("again: %+v", got)
		}
		succeed(t, l, r)
		wantStates(t, l, "ok schedule")
		os, err := l.Occurrences(t.Context(), OccurrenceFilter{Policy: "p", State: OccurrenceOK, Before: at.Add(time.Microsecond)})
		want := []Occurrence{{Policy: "p", At: at, StartBy: at.Add(time.Hour), State: OccurrenceOK, Run: r.ID,
			Created: h.read(), Ended: h.read()}}
		if d := cmp.Diff(want, os); err != nil || d != "" {
			t.Error(d, err)
		}
		if n := count(t, l, ActionScheduleSeen); n != 1 {
			t.Errorf("seen %d times", n)
		}
		checkRun(t, l, r.ID)
	})
}

// TestOccurrenceEndsWithItsRun: the state of the one follows from the state of the other, in one transaction.
func TestOccurrenceEndsWithItsRun(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		for i, c := range []struct {
			mode  string
			state State
			why   string
			want  string
		}{
			{"shadow", Succeeded, WhyDone, "shadow schedule"},
			{"enforce", Failed, WhyError, "failed error schedule"},
			{"enforce", Cancelled, "", "failed cancelled schedule"},
			{"enforce", Cancelled, WhySuperseded, "failed superseded schedule"},
			{"enforce", Skipped, "after", "skipped after schedule"},
			{"enforce", Expired, WhyNotStarted, "expired not_started schedule"},
		} {
			s := nightly(func(s *Scheduled) { s.Mode, s.Policy = c.mode, fmt.Sprintf("p%d", i) })
			h.add(time.Hour)
			firstTick(t, l, s)
			h.set(h.read().Truncate(24 * time.Hour).Add(24 * time.Hour))
			r := onlyRun(t, tickOf(t, l, s))
			if c.state == Succeeded {
				succeed(t, l, r)
			} else {
				ended(t, l, r, c.state, c.why)
			}
			all := states(t, l)
			if got := all[len(all)-1]; got != c.want {
				t.Errorf("%s %s: %q, want %q", c.state, c.why, got, c.want)
			}
		}
		if n := count(t, l, ActionOccurrenceEnded); n != 0 {
			t.Errorf("%d entries beside those of the runs", n)
		}
	})
}

// TestLate: a tick that comes late starts the run as long as start_within has not passed.
func TestLate(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := nightly(func(s *Scheduled) { s.CatchUp = "none" })
		firstTick(t, l, s)
		h.add(24*time.Hour + time.Hour)
		succeed(t, l, onlyRun(t, tickOf(t, l, s)))
		h.add(24*time.Hour + time.Microsecond)
		got := tickOf(t, l, s)
		if len(got.Accepted) != 0 || len(got.Ended) != 1 || got.Ended[0].State != OccurrenceMissed {
			t.Errorf("%+v", got)
		}
		wantStates(t, l, "ok schedule", "missed no_process")
		if n := count(t, l, ActionOccurrenceEnded); n != 1 {
			t.Errorf("%d occurrence_ended entries", n)
		}
		if got := tickOf(t, l, s); len(got.Accepted)+len(got.Ended) != 0 {
			t.Errorf("again: %+v", got)
		}
	})
}

func TestExpired(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := nightly()
		firstTick(t, l, s)
		h.add(24 * time.Hour)
		r := onlyRun(t, tickOf(t, l, s))
		h.add(time.Hour)
		if got := tickOf(t, l, s); len(got.Ended) != 0 {
			t.Errorf("there was time left: %+v", got)
		}
		h.add(time.Second)
		if got := tickOf(t, l, s); len(got.Ended) != 1 || got.Ended[0].State != OccurrenceExpired || got.Ended[0].Ended != h.read() {
			t.Errorf("%+v", got)
		}
		wantStates(t, l, "expired not_started schedule")
		if r := checkRun(t, l, r.ID); r.State != Expired || r.WhyEnded != WhyNotStarted {
			t.Errorf("%s %s", r.State, r.WhyEnded)
		}
		if _, err := l.Start(t.Context(), r.ID, nil); !errors.Is(err, ErrRunEnded) {
			t.Errorf("an expired run started: %v", err)
		}
		// It needs no tick for that.
		h.set(h.read().Truncate(24 * time.Hour).Add(24 * time.Hour))
		r = onlyRun(t, tickOf(t, l, s))
		h.add(time.Hour + time.Second)
		if _, err := l.Start(t.Context(), r.ID, nil); !errors.Is(err, ErrRunEnded) {
			t.Errorf("it was started too late: %v", err)
		}
		wantStates(t, l, "expired not_started schedule", "expired not_started schedule")
		checkRun(t, l, r.ID)
		// One that was begun has all the time in the world, and the next one overlaps.
		h.set(h.read().Truncate(24 * time.Hour).Add(24 * time.Hour))
		r = onlyRun(t, tickOf(t, l, s))
		if _, err := l.Start(t.Context(), r.ID, nil); err != nil {
			t.Fatal(err)
		}
		h.add(24 * time.Hour)
		tickOf(t, l, s)
		wantStates(t, l, "expired not_started schedule", "expired not_started schedule", "pending schedule", "skipped overlap")
		// An unstarted run of a process that was down does not stand in the way of what is due now.
		ended(t, l, r, Failed, WhyError)
		h.add(24 * time.Hour)
		tickOf(t, l, s)
		h.add(24 * time.Hour)
		onlyRun(t, tickOf(t, l, s))
		if got := states(t, l); got[4] != "expired not_started schedule" || got[5] != "pending schedule" {
			t.Errorf("%q", got)
		}
	})
}

func TestOverlapQueue(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := nightly(func(s *Scheduled) { s.Overlap, s.Between = "queue", every(time.Hour); s.StartWithin = 2 * time.Hour })
		firstTick(t, l, s)
		h.add(time.Hour)
		r := onlyRun(t, tickOf(t, l, s))
		if _, err := l.Start(t.Context(), r.ID, nil); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			h.add(time.Hour)
			tickOf(t, l, s)
		}
		wantStates(t, l, "pending schedule", "pending", "pending")
		ended(t, l, r, Failed, WhyError)
		second := onlyRun(t, tickOf(t, l, s))
		wantStates(t, l, "failed error schedule", "pending schedule", "pending")
		if _, err := l.Start(t.Context(), second.ID, nil); err != nil {
			t.Fatal(err)
		}
		h.add(2*time.Hour + time.Minute)
		if got := tickOf(t, l, s); len(got.Ended) != 1 || got.Ended[0].State != OccurrenceExpired || got.Ended[0].Run != "" {
			t.Errorf("%+v", got)
		}
		wantStates(t, l, "failed error schedule", "pending schedule", "expired not_started", "pending", "pending")
		if n := count(t, l, ActionOccurrenceEnded); n != 1 {
			t.Errorf("%d occurrence_ended entries", n)
		}
	})
}

func TestPaused(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := nightly(func(s *Scheduled) { s.Between, s.Overlap = every(time.Hour), "queue" })
		firstTick(t, l, s)
		h.add(time.Hour)
		r := onlyRun(t, tickOf(t, l, s))
		h.add(time.Hour)
		tickOf(t, l, s) // one queues
		h.add(30 * time.Minute)
		run(t, l.write, l.q(`INSERT INTO @pause (policy, since, actor) VALUES ('p', '`+h.read().Format(stampLayout)+`', 'ann')`))
		tickOf(t, l, s)
		wantStates(t, l, "expired not_started schedule", "skipped paused")
		if r := checkRun(t, l, r.ID); r.State != Expired {
			t.Errorf("the run is %s", r.State)
		}
		// Nobody ticks for five hours; the first instant of them is not missed but paused as well.
		h.add(5 * time.Hour)
		tickOf(t, l, s)
		if got := states(t, l); len(got) != 7 || got[2] != "skipped paused" || got[6] != "skipped paused" {
			t.Errorf("%q", got)
		}
		run(t, l.write, l.q(`DELETE FROM @pause`))
		h.add(30 * time.Minute)
		onlyRun(t, tickOf(t, l, s))
		// What had been missed before the pause began was missed.
		h.add(3 * time.Hour)
		run(t, l.write, l.q(`INSERT INTO @pause (policy, since, actor) VALUES ('p', '`+h.read().Add(-90*time.Minute).Format(stampLayout)+`', 'ann')`))
		tickOf(t, l, s)
		if got := states(t, l); len(got) != 11 || got[8] != "missed no_process" || got[9] != "skipped paused" {
			t.Errorf("%q", got)
		}
	})
}

func TestSupersedes(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := nightly()
		firstTick(t, l, s)
		h.add(24 * time.Hour)
		r := onlyRun(t, tickOf(t, l, s))
		if _, err := l.write.ExecContext(t.Context(), l.q(`UPDATE @run SET state = 'awaiting_approval' WHERE id = $1`), r.ID); err != nil {
			t.Fatal(err)
		}
		h.add(2 * time.Hour)
		if got := tickOf(t, l, s); len(got.Ended) != 0 {
			t.Errorf("a run that awaits approval expired: %+v", got)
		}
		h.add(22 * time.Hour)
		got := tickOf(t, l, s)
		next := onlyRun(t, got)
		if len(got.Ended) != 1 || got.Ended[0].Why != WhySuperseded || got.Ended[0].Run != r.ID {
			t.Errorf("%+v", got.Ended)
		}
		wantStates(t, l, "failed superseded schedule", "pending schedule")
		if r := checkRun(t, l, r.ID); r.State != Cancelled || r.WhyEnded != WhySuperseded {
			t.Errorf("%s %s", r.State, r.WhyEnded)
		}
		if open, err := l.OpenRuns(t.Context()); err != nil || len(open) != 1 || open[0].ID != next.ID {
			t.Errorf("open: %v, %v", open, err)
		}
	})
}

// TestSameInstantByHand: somebody ran the instant before its tick came. It is that run, and not an overlap with it.
func TestSameInstantByHand(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := nightly()
		firstTick(t, l, s)
		for _, end := range []bool{true, false} {
			h.set(h.read().Truncate(24 * time.Hour).Add(24*time.Hour + time.Minute))
			at := h.read().Truncate(24 * time.Hour)
			r := accept(t, l, an("p", IdentityAsOf(at), func(a *Acceptance) { a.AsOf = &at }))
			if end {
				succeed(t, l, r)
			}
			if got := tickOf(t, l, s); len(got.Accepted) != 0 || (len(got.Ended) == 1) != end {
				t.Errorf("%+v", got)
			}
			if !end {
				succeed(t, l, r)
			}
		}
		wantStates(t, l, "ok cli", "ok cli")
	})
}

// TestSettlesLate: an occurrence whose run ended without it is settled by the next tick.
func TestSettlesLate(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := nightly()
		firstTick(t, l, s)
		h.add(24 * time.Hour)
		succeed(t, l, onlyRun(t, tickOf(t, l, s)))
		run(t, l.write, l.q(`UPDATE @occurrence SET state = 'pending', ended = NULL`))
		if got := tickOf(t, l, s); len(got.Ended) != 1 || got.Ended[0].State != OccurrenceOK {
			t.Errorf("%+v", got)
		}
		wantStates(t, l, "ok schedule")
	})
}

func TestTickRefuses(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		for name, edit := range map[string]func(*Scheduled){
			"no policy":      func(s *Scheduled) { s.Policy = "" },
			"no mode":        func(s *Scheduled) { s.Mode = "" },
			"no expr":        func(s *Scheduled) { s.Expr = "" },
			"no between":     func(s *Scheduled) { s.Between = nil },
			"no cutoff":      func(s *Scheduled) { s.Cutoff = nil },
			"negative grace": func(s *Scheduled) { s.StartWithin = -1 },
			"overlap":        func(s *Scheduled) { s.Overlap = "cancel" },
			"catch up":       func(s *Scheduled) { s.CatchUp = "some" },
			"other revision": func(s *Scheduled) { s.Revision = []byte("{}") },
		} {
			if _, err := l.Tick(t.Context(), nightly(edit)); err == nil {
				t.Errorf("%s: ticked", name)
			}
		}
		if n := one[int64](t, l, `SELECT count(*) FROM @schedule`); n != 0 {
			t.Errorf("%d rows were left behind", n)
		}
		// A schedule that answers with other instants than it was asked for moves nothing.
		firstTick(t, l, nightly())
		now := h.read()
		h.add(48 * time.Hour)
		for name, answer := range map[string][]time.Time{
			"before":    {now},
			"future":    {h.read().Add(1e6)},
			"unordered": {now.Add(48 * time.Hour), now.Add(24 * time.Hour)},
			"twice":     {now.Add(24 * time.Hour), now.Add(24 * time.Hour)},
		} {
			_, err := l.Tick(t.Context(), nightly(func(s *Scheduled) {
				s.Between = func(_, _ time.Time, _ int) []time.Time { return answer }
			}))
			if err == nil {
				t.Errorf("%s: ticked", name)
			}
		}
		wantStates(t, l)
	})
}

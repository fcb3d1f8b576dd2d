package ledger

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const day = 24 * time.Hour

// TestCatchUpLatest: a week without any process makes one run, and every night of it says which.
func TestCatchUpLatest(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s, start := nightly(), h.read()
		firstTick(t, l, s)
		h.add(5*day + 12*time.Hour)
		got := tickOf(t, l, s)
		r := onlyRun(t, got)
		if r.Cause != "catch_up" || r.AsOf != start.Add(5*day) || len(got.Ended) != 5 {
			t.Errorf("%+v", got)
		}
		want := []string{"missed no_process catch_up", "missed no_process catch_up", "missed no_process catch_up",
			"missed no_process catch_up", "missed no_process catch_up"}
		wantStates(t, l, want...)
		h.add(2 * time.Hour) // a catch-up has no hour to begin in
		if got := tickOf(t, l, s); len(got.Accepted)+len(got.Ended) != 0 {
			t.Errorf("again: %+v", got)
		}
		ended(t, l, r, Failed, WhyError)
		if got := tickOf(t, l, s); len(got.Accepted)+len(got.Ended) != 0 {
			t.Errorf("after it failed: %+v", got)
		}
		h.set(start.Add(6 * day))
		succeed(t, l, onlyRun(t, tickOf(t, l, s)))
		wantStates(t, l, append(want, "ok schedule")...)
	})
}

// TestCatchUpWaits: an open run and a pause put it off, and lose nothing.
func TestCatchUpWaits(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, more func() *Ledger) {
		s := nightly()
		firstTick(t, l, s)
		byHand := accept(t, l, an("p", IdentityOnce()))
		h.add(2*day + 12*time.Hour)
		if got := tickOf(t, l, s); len(got.Accepted) != 0 || len(got.Ended) != 2 {
			t.Errorf("%+v", got)
		}
		wantStates(t, l, "missed no_process", "missed no_process")
		run(t, l.write, l.q(`UPDATE @run SET state = 'awaiting_approval'`))
		if got := tickOf(t, l, s); len(got.Accepted) != 0 {
			t.Errorf("beside a run that awaits approval: %+v", got)
		}
		run(t, l.write, l.q(`INSERT INTO @pause (policy, since, actor) VALUES ('p', '`+h.read().Format(stampLayout)+`', 'ann')`))
		ended(t, l, byHand, Cancelled, WhyCancelled)
		if got := tickOf(t, l, s); len(got.Accepted) != 0 {
			t.Errorf("paused: %+v", got)
		}
		run(t, l.write, l.q(`DELETE FROM @pause`))
		onlyRun(t, tickOf(t, more(), s)) // another process takes it up
		wantStates(t, l, "missed no_process catch_up", "missed no_process catch_up")
	})
}

// TestCatchUpNotNeeded: a later instant that is run, and a run made by hand since, stand for what was missed.
func TestCatchUpNotNeeded(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := nightly()
		firstTick(t, l, s)
		h.add(3*day + time.Minute)
		r := onlyRun(t, tickOf(t, l, s))
		if r.Cause != "schedule" {
			t.Errorf("%+v", r)
		}
		ended(t, l, r, Failed, WhyError)
		if got := tickOf(t, l, s); len(got.Accepted) != 0 {
			t.Errorf("%+v", got)
		}
		wantStates(t, l, "missed no_process", "missed no_process", "failed error schedule")

		h.add(2*day + time.Hour)
		byHand := accept(t, l, an("p", IdentityOnce()))
		tickOf(t, l, s)
		succeed(t, l, byHand)
		if got := tickOf(t, l, s); len(got.Accepted) != 0 {
			t.Errorf("%+v", got)
		}
		wantStates(t, l, "missed no_process", "missed no_process", "failed error schedule",
			"missed no_process cli", "missed no_process cli")
	})
}

// TestCatchUpExpired: a later run that was never begun stands for nothing.
func TestCatchUpExpired(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := nightly()
		firstTick(t, l, s)
		h.add(2 * day)
		onlyRun(t, tickOf(t, l, s)) // for the second night
		h.add(2 * time.Hour)
		r := onlyRun(t, tickOf(t, l, s))
		if r.Cause != "catch_up" {
			t.Errorf("%+v", r)
		}
		wantStates(t, l, "missed no_process catch_up", "expired not_started schedule")
	})
}

func TestCatchUpAll(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s, start := nightly(func(s *Scheduled) { s.CatchUp, s.CatchUpCap = "all", 3 }), h.read()
		firstTick(t, l, s)
		h.add(5*day + 12*time.Hour)
		tick := tickOf(t, l, s)
		for n := 3; n <= 5; n++ {
			r := onlyRun(t, tick)
			if r.Cause != "catch_up" || r.AsOf != start.Add(time.Duration(n)*day) {
				t.Errorf("night %d: %+v", n, r)
			}
			if got := tickOf(t, l, s); len(got.Accepted) != 0 {
				t.Errorf("two at once: %+v", got)
			}
			if n == 4 {
				ended(t, l, r, Failed, WhyError)
			} else {
				succeed(t, l, r)
			}
			tick = tickOf(t, l, s)
		}
		if len(tick.Accepted) != 0 {
			t.Errorf("one too many: %+v", tick)
		}
		wantStates(t, l, "missed catch_up_cap", "missed catch_up_cap", "missed no_process catch_up",
			"missed no_process catch_up", "missed no_process catch_up")
		if n := count(t, l, ActionCatchUpDropped); n != 1 {
			t.Errorf("%d catch_up_dropped entries", n)
		}
	})
}

// TestLongDown: a minutely schedule that nobody ticked for 1,200 minutes goes on, and says what it lost.
func TestLongDown(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := nightly(func(s *Scheduled) { s.Between, s.StartWithin = every(time.Minute), 30*time.Second })
		firstTick(t, l, s)
		h.add(1200*time.Minute + 45*time.Second)
		ticks, ends := 0, 0
		var accepted []Run
		for more := true; more; ticks++ {
			got := tickOf(t, l, s)
			more, ends, accepted = got.More, ends+len(got.Ended), append(accepted, got.Accepted...)
		}
		if ticks != 3 || ends != 1200 || len(accepted) != 1 || accepted[0].Cause != "catch_up" || accepted[0].AsOf != h.read().Truncate(time.Minute) {
			t.Errorf("%d ticks, %d ended, accepted %+v", ticks, ends, accepted)
		}
		if n := one[int64](t, l, `SELECT count(*) FROM @occurrence WHERE state = 'missed' AND run = $1`, accepted[0].ID); n != 1200 {
			t.Errorf("%d stand for it", n)
		}
		if n := count(t, l, ActionOccurrenceEnded); n != 1200 {
			t.Errorf("%d occurrence_ended entries", n)
		}
		succeed(t, l, accepted[0])
		h.add(30 * time.Second)
		onlyRun(t, tickOf(t, l, s))
	})
}

func TestScheduleChanges(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := nightly()
		firstTick(t, l, s)
		h.add(day)
		r := onlyRun(t, tickOf(t, l, s))
		hourly := nightly(func(s *Scheduled) { s.Expr, s.Between = "hourly", every(time.Hour) })
		h.add(10*time.Hour + time.Minute)
		got := tickOf(t, l, hourly)
		if !got.Changed || len(got.Accepted) != 0 {
			t.Errorf("%+v", got)
		}
		wantStates(t, l, "expired not_started schedule")
		checkRun(t, l, r.ID)
		h.add(time.Hour)
		succeed(t, l, onlyRun(t, tickOf(t, l, hourly)))
		if n := count(t, l, ActionScheduleChanged); n != 1 {
			t.Errorf("%d schedule_changed entries", n)
		}
		// With a reading of the old one, what was due under it is not lost.
		s.Was = func(expr string) func(after, until time.Time, limit int) []time.Time {
			if expr != "hourly" {
				t.Errorf("asked for %q", expr)
			}
			return hourly.Between
		}
		h.add(3 * time.Hour)
		got = tickOf(t, l, s)
		if !got.Changed || len(got.Ended) != 2 || onlyRun(t, got).AsOf != h.read().Truncate(time.Hour) {
			t.Errorf("%+v", got)
		}
		st, err := l.Schedules(t.Context())
		want := []ScheduleState{{Policy: "p", Expr: s.Expr, Cursor: h.read(), TickedAt: h.read()}}
		if d := cmp.Diff(want, st); err != nil || d != "" {
			t.Error(d, err)
		}
	})
}

func TestUnschedule(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := nightly(func(s *Scheduled) { s.Overlap, s.Between = "queue", every(time.Hour) })
		firstTick(t, l, s)
		h.add(time.Hour)
		tickOf(t, l, s)
		h.add(time.Hour)
		tickOf(t, l, s)
		for range 2 {
			if err := l.Unschedule(t.Context(), "p", ""); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Unschedule(t.Context(), "nobody", ""); err != nil {
			t.Fatal(err)
		}
		wantStates(t, l, "pending schedule", "skipped unscheduled")
		if st, err := l.Schedules(t.Context()); err != nil || len(st) != 0 {
			t.Errorf("%v, %v", st, err)
		}
		if n := count(t, l, ActionScheduleRemoved); n != 1 {
			t.Errorf("%d schedule_removed entries", n)
		}
		s.Was = func(expr string) func(after, until time.Time, limit int) []time.Time {
			t.Errorf("asked for %q", expr)
			return nil
		}
		h.add(10 * time.Hour)
		if got := tickOf(t, l, s); !got.Changed || len(got.Accepted) != 0 {
			t.Errorf("it came back with a past: %+v", got)
		}
	})
}

func TestTickClock(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s, start := nightly(func(s *Scheduled) { s.Between = every(time.Minute) }), h.read()
		firstTick(t, l, s)
		h.add(10 * time.Minute)
		succeed(t, l, onlyRun(t, tickOf(t, l, s)))
		before := states(t, l)
		h.add(-4 * time.Minute)
		if d := cmp.Diff(Ticked{}, tickOf(t, l, s)); d != "" {
			t.Error(d)
		}
		var ce *ClockError
		for _, now := range []time.Time{start, start.Add(301 * day)} {
			h.set(now)
			if _, err := l.Tick(t.Context(), s); !errors.As(err, &ce) {
				t.Errorf("at %s: %v, want a *ClockError", now, err)
			}
		}
		h.set(start.Add(10*time.Minute + 30*time.Second))
		if got := tickOf(t, l, s); len(got.Accepted)+len(got.Ended) != 0 {
			t.Errorf("%+v", got)
		}
		wantStates(t, l, before...)
		// A clock that was a day ahead, was put right and accepted: the schedule goes on.
		h.add(day)
		for tickOf(t, l, s).More {
		}
		h.add(-day)
		if _, err := l.Tick(t.Context(), s); !errors.As(err, &ce) {
			t.Errorf("%v, want a *ClockError", err)
		}
		if _, _, err := l.AcceptClock(t.Context(), "ann"); err != nil {
			t.Fatal(err)
		}
		if got := tickOf(t, l, s); !got.Changed {
			t.Errorf("%+v", got)
		}
		h.add(time.Minute)
		tickOf(t, l, s)
	})
}

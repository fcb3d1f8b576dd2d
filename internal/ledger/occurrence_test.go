package ledger

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// called is a schedule at midnight that somebody else keeps, with 15 minutes of grace.
func called(edit ...func(*Scheduled)) Scheduled {
	return nightly(append([]func(*Scheduled){func(s *Scheduled) { s.External, s.StartWithin = true, 15*time.Minute }}, edit...)...)
}

// TestExternal: a call shortly before, at or after the instant is the expected one, whether the tick came before it or after.
func TestExternal(t *testing.T) {
	for _, c := range []struct {
		name             string
		call, tick, then time.Duration // from the instant; no tick when it is 0 and the call is earlier
		mode             string
		asOf             time.Duration // 0: now
		want             string
	}{
		{name: "half a minute early", call: -30 * time.Second, tick: time.Second, then: time.Hour, want: "ok http"},
		{name: "two minutes early", call: -2 * time.Minute, tick: time.Second, then: time.Hour, want: "missed no_call"},
		{name: "before the tick", call: 10 * time.Second, tick: 20 * time.Second, then: time.Hour, want: "ok http"},
		{name: "after the tick", call: 10 * time.Minute, tick: time.Second, then: 11 * time.Minute, want: "ok http"},
		{name: "after the tick, the next tick late", call: 10 * time.Minute, tick: time.Second, then: time.Hour, want: "ok http"},
		{name: "at the last moment", call: 15 * time.Minute, tick: time.Second, then: time.Hour, want: "ok http"},
		{name: "too late", call: 16 * time.Minute, tick: time.Second, then: time.Hour, want: "missed no_call"},
		{name: "no tick in time", call: 10 * time.Minute, tick: time.Hour, then: 2 * time.Hour, want: "ok http"},
		{name: "in another mode", call: 10 * time.Second, tick: time.Second, then: time.Hour, mode: "shadow", want: "missed no_call"},
		{name: "a backfill", call: 10 * time.Minute, tick: time.Second, then: time.Hour, asOf: -90 * day, want: "missed no_call"},
		{name: "with the instant as as_of", call: 10 * time.Minute, tick: time.Second, then: time.Hour, asOf: -time.Nanosecond, want: "ok http"},
	} {
		t.Run(c.name, func(t *testing.T) {
			onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
				s, at := called(), h.read().Add(day)
				firstTick(t, l, s)
				call := func() {
					h.set(at.Add(c.call))
					a := an("p", IdentityOnce(), func(a *Acceptance) { a.Cause = "http" })
					if c.mode != "" {
						a.Mode = c.mode
					}
					if c.asOf != 0 {
						asOf := at.Add(c.asOf)
						a.AsOf = &asOf
					}
					succeed(t, l, accept(t, l, a))
				}
				if c.call < c.tick {
					call()
				}
				h.set(at.Add(c.tick))
				tickOf(t, l, s)
				if c.call >= c.tick {
					call()
				}
				h.set(at.Add(c.then))
				tickOf(t, l, s)
				wantStates(t, l, c.want)
				if got := tickOf(t, l, s); len(got.Accepted)+len(got.Ended) != 0 {
					t.Errorf("again: %+v", got)
				}
			})
		})
	}
}

// TestExternalDeadline: the grace is the caller's and not the run's; a call stands for one instant; nobody was there.
func TestExternalDeadline(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s, start := called(), h.read()
		firstTick(t, l, s)
		h.add(day + time.Minute)
		tickOf(t, l, s)
		r := accept(t, l, an("p", IdentityOnce(), func(a *Acceptance) { a.Cause = "http" }))
		tickOf(t, l, s)
		h.add(3 * time.Hour)
		tickOf(t, l, s)
		wantStates(t, l, "pending http")
		succeed(t, l, r)
		h.set(start.Add(3*day + time.Hour))
		if got := tickOf(t, l, s); len(got.Accepted) != 0 {
			t.Errorf("a call was caught up: %+v", got)
		}
		wantStates(t, l, "ok http", "missed no_process", "missed no_process")
		if got := tickOf(t, l, s); len(got.Accepted) != 0 {
			t.Errorf("a call was caught up: %+v", got)
		}
	})
}

// TestExternalOneCall: a call within the grace of two instants is the call for one of them.
func TestExternalOneCall(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := called(func(s *Scheduled) { s.Between = every(10 * time.Minute) })
		firstTick(t, l, s)
		h.add(19*time.Minute + 30*time.Second)
		succeed(t, l, accept(t, l, an("p", IdentityOnce(), func(a *Acceptance) { a.Cause = "http" })))
		h.add(21 * time.Minute)
		tickOf(t, l, s)
		wantStates(t, l, "ok http", "missed no_process", "pending", "pending")
	})
}

// TestExternalOverlap: a call that was answered with the run before came, and is not a missed one.
func TestExternalOverlap(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := called()
		firstTick(t, l, s)
		r := accept(t, l, an("p", IdentityOnce(), func(a *Acceptance) { a.Cause = "http" }))
		h.add(day + time.Second)
		tickOf(t, l, s)
		h.add(time.Second)
		tickOf(t, l, s)
		wantStates(t, l, "pending")
		run(t, l.write, l.q(`INSERT INTO @call (at, token, policy, stage, answer, run, fresh)
			VALUES ('`+h.read().Format(stampLayout)+`', 'cron', 'p', '', 202, '`+r.ID+`', false)`))
		tickOf(t, l, s)
		wantStates(t, l, "skipped overlap")
	})
}

// TestExternalPaused: nobody is told that a call did not come while the policy was paused.
func TestExternalPaused(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := called()
		firstTick(t, l, s)
		h.add(day + time.Second)
		tickOf(t, l, s)
		run(t, l.write, l.q(`INSERT INTO @pause (policy, since, actor) VALUES ('p', '`+h.read().Format(stampLayout)+`', 'ann')`))
		h.add(2 * day)
		tickOf(t, l, s)
		wantStates(t, l, "skipped paused", "skipped paused", "skipped paused")
	})
}

func TestOccurrences(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		for _, stage := range []string{"pause", "remind"} {
			for _, policy := range []string{"p", "q"} {
				s := nightly(func(s *Scheduled) { s.Policy, s.Stage, s.CatchUp = policy, stage, "none" })
				firstTick(t, l, s)
			}
		}
		start := h.read()
		h.add(3 * day)
		for _, stage := range []string{"pause", "remind"} {
			for _, policy := range []string{"p", "q"} {
				tickOf(t, l, nightly(func(s *Scheduled) { s.Policy, s.Stage, s.CatchUp = policy, stage, "none" }))
			}
		}
		list := func(f OccurrenceFilter) (got []string) {
			t.Helper()
			all, err := l.Occurrences(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			for _, o := range all {
				got = append(got, fmt.Sprintf("%s/%s %d %s", o.Policy, o.Stage, int(o.At.Sub(start)/day), o.State))
			}
			return got
		}
		if got := list(OccurrenceFilter{}); len(got) != 12 || got[0] != "p/pause 3 pending" || got[11] != "q/remind 1 missed" {
			t.Errorf("%q", got)
		}
		if d := cmp.Diff([]string{"p/remind 3 pending", "p/remind 2 missed"}, list(OccurrenceFilter{Policy: "p", Stage: "remind", Limit: 2})); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff([]string{"p/pause 1 missed", "p/remind 1 missed"},
			list(OccurrenceFilter{Policy: "p", State: OccurrenceMissed, Before: start.Add(2 * day)})); d != "" {
			t.Error(d)
		}
	})
}

// TestManyTick: four processes with eight goroutines each tick one schedule while a thousand instants come due. Each gets one
// occurrence and one run, in order, and the cursor never goes back.
func TestManyTick(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, more func() *Ledger) {
		const instants = 1000
		s := nightly(func(s *Scheduled) { s.Between, s.StartWithin, s.CatchUp = every(time.Minute), 2000*time.Minute, "none" })
		firstTick(t, l, s)
		start := h.read()
		processes := []*Ledger{l, more(), more(), more()}
		done := make(chan struct{})
		var mu sync.Mutex
		accepted := map[string]bool{}
		var wg sync.WaitGroup
		for i := range 8 {
			p := processes[i%len(processes)]
			wg.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					got, err := p.Tick(t.Context(), s)
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					for _, r := range got.Accepted {
						if accepted[r.ID] {
							t.Errorf("run %s was accepted twice", r.ID)
						}
						accepted[r.ID] = true
					}
					mu.Unlock()
				}
			})
		}
		for range instants / 20 { // twenty come due at once, and one of them is free to run
			h.add(20 * time.Minute)
			for {
				n := one[int64](t, l, `SELECT count(*) FROM @occurrence`)
				if n == int64(h.read().Sub(start)/time.Minute) || t.Failed() {
					break
				}
			}
			open, err := l.OpenRuns(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range open {
				ended(t, l, r, Failed, WhyError)
			}
		}
		close(done)
		wg.Wait()
		var failed, skipped int
		all, err := l.Occurrences(t.Context(), OccurrenceFilter{Limit: 2 * instants})
		if err != nil || len(all) != instants {
			t.Fatalf("%d occurrences, %v", len(all), err)
		}
		for i, o := range all {
			if want := start.Add(time.Duration(instants-i) * time.Minute); o.At != want {
				t.Fatalf("occurrence %d is of %s, want %s", i, o.At, want)
			}
			switch {
			case o.State == OccurrenceFailed && accepted[o.Run]:
				failed++
			case o.State == OccurrenceSkipped && o.Why == WhyOverlap:
				skipped++
			default:
				t.Errorf("%+v", o)
			}
		}
		runs := int(one[int64](t, l, `SELECT count(*) FROM @run`))
		if failed != len(accepted) || runs != failed || failed < instants/20 {
			t.Errorf("%d runs, %d accepted, %d occurrences failed with theirs, %d skipped", runs, len(accepted), failed, skipped)
		}
		if n := count(t, l, ActionOccurrenceEnded); n != skipped {
			t.Errorf("%d occurrence_ended entries for %d", n, skipped)
		}
	})
}

// TestFirstTicks: of any number of processes that see a schedule for the first time at once, one makes it.
func TestFirstTicks(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, _ *hands, more func() *Ledger) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		fresh := 0
		for range 4 {
			p := more()
			for range 4 {
				wg.Go(func() {
					got, err := p.Tick(t.Context(), nightly())
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					defer mu.Unlock()
					if got.FirstSeen {
						fresh++
					}
				})
			}
		}
		wg.Wait()
		if n := count(t, l, ActionScheduleSeen); n != 1 || fresh != 1 {
			t.Errorf("seen for the first time %d times, %d entries", fresh, n)
		}
	})
}

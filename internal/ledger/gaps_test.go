package ledger

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// insertOccurrence writes an occurrence as it is, for what reads them.
func insertOccurrence(t testing.TB, l *Ledger, policy, stage string, at time.Time, state OccurrenceState) {
	t.Helper()
	end := at
	if state == OccurrencePending {
		end = time.Time{}
	}
	if _, err := l.write.ExecContext(t.Context(), l.q(`INSERT INTO @occurrence (policy, stage, at, start_by, state, created, ended)
		VALUES ($1, $2, $3, $3, $4, $3, $5)`), policy, stage, stamp(at), string(state), stamp(end)); err != nil {
		t.Fatal(err)
	}
}

func TestGaps(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		berlin, err := time.LoadLocation("Europe/Berlin")
		if err != nil {
			t.Fatal(err)
		}
		day := func(month time.Month, day, hour int) time.Time {
			return time.Date(2026, month, day, hour, 30, 0, 0, time.UTC)
		}
		// 22:30 UTC on the last day of a month is the next month in Berlin, in summer.
		for i, state := range []OccurrenceState{OccurrenceOK, OccurrenceOK, OccurrenceFailed, OccurrenceSkipped, OccurrenceExpired,
			OccurrenceMissed, OccurrenceShadow, OccurrencePending} {
			insertOccurrence(t, l, "p", "", day(4, 1+i, 2), state)
		}
		insertOccurrence(t, l, "p", "", day(4, 30, 22), OccurrenceMissed)
		insertOccurrence(t, l, "q", "remind", day(4, 30, 22), OccurrenceMissed)
		insertOccurrence(t, l, "q", "pause", day(3, 1, 0), OccurrenceOK) // before from

		month := h.read()
		r := admitOne(t, l, started(t, l, "p"), 1, 6)
		settleOne(t, l, r, 1, Outcomes{"deleted": 3, "set": 1, "held": 2})
		settled := admitOne(t, l, started(t, l, "p", func(a *Acceptance) { a.Mode = "shadow" }), 1, 6)
		settleOne(t, l, settled, 1, Outcomes{"due": 6})
		accept(t, l, an("r", IdentityOnce()))

		zone := func(policy string) *time.Location {
			if policy == "p" {
				return berlin
			}
			return nil
		}
		got, err := l.Gaps(t.Context(), "", day(4, 1, 0), zone)
		if err != nil {
			t.Fatal(err)
		}
		want := []Gap{
			{Policy: "p", Month: "2026-04", Occurrences: 8, OK: 2, Failed: 1, Skipped: 1, Expired: 1, Missed: 1, Shadow: 1, Pending: 1},
			{Policy: "p", Month: "2026-05", Occurrences: 1, Missed: 1},
			{Policy: "p", Month: month.In(berlin).Format("2006-01"), Runs: 2, Changed: 4},
			{Policy: "q", Stage: "remind", Month: "2026-04", Occurrences: 1, Missed: 1},
			{Policy: "r", Month: month.Format("2006-01"), Runs: 1},
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		got, err = l.Gaps(t.Context(), "q", day(4, 1, 0), nil)
		if d := cmp.Diff(want[3:4], got); err != nil || d != "" {
			t.Error(d, err)
		}
	})
}

func TestLastRuns(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		if got, err := l.LastRuns(t.Context()); err != nil || len(got) != 0 {
			t.Fatalf("%v, %v", got, err)
		}
		s := nightly(func(s *Scheduled) { s.CatchUp = "none" })
		firstTick(t, l, s)
		health := func() string {
			t.Helper()
			all, err := l.LastRuns(t.Context())
			if err != nil || len(all) != 1 {
				t.Fatalf("%+v, %v", all, err)
			}
			g := all[0]
			return fmt.Sprintf("ok %v last %s, missed %d failed %d expired %d skips %d", g.LastOK.ID != "", g.Last.State, g.Missed, g.Failed, g.Expired, g.Skips)
		}
		expect := func(want string) {
			t.Helper()
			if got := health(); got != want {
				t.Errorf("%s, want %s", got, want)
			}
		}
		expect("ok false last , missed 0 failed 0 expired 0 skips 0")
		h.add(2 * day)
		r := onlyRun(t, tickOf(t, l, s))
		expect("ok false last , missed 1 failed 0 expired 0 skips 0")
		ended(t, l, r, Failed, WhyError)
		expect("ok false last failed, missed 1 failed 1 expired 0 skips 0")
		h.add(day)
		onlyRun(t, tickOf(t, l, s))
		h.add(day)
		tickOf(t, l, s)
		h.add(day)
		byHand := accept(t, l, an("p", IdentityOnce()))
		tickOf(t, l, s)
		h.add(day)
		tickOf(t, l, s)
		expect("ok false last expired, missed 1 failed 1 expired 2 skips 2")
		h.add(time.Hour)
		succeed(t, l, byHand)
		h.add(time.Hour)
		expect("ok true last succeeded, missed 0 failed 0 expired 0 skips 1") // that of after the run's as_of
		shadowRun := succeed(t, l, accept(t, l, an("p", IdentityOnce(), func(a *Acceptance) { a.Mode = "shadow" })))
		all, err := l.LastRuns(t.Context())
		if err != nil || all[0].LastOK.ID != byHand.ID || all[0].Last.ID != shadowRun.ID {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

func TestOldestDue(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		due := h.read().Add(-5 * day)
		if err := l.SetOldestDue(t.Context(), "p", "", &due); !errors.Is(err, ErrNotFound) {
			t.Errorf("%v, want ErrNotFound", err)
		}
		firstTick(t, l, nightly())
		first := h.read()
		for _, d := range []*time.Time{&due, nil} {
			h.add(time.Minute)
			now := h.read()
			if err := l.SetOldestDue(t.Context(), "p", "", d); err != nil {
				t.Fatal(err)
			}
			got, err := l.Schedules(t.Context())
			want := []ScheduleState{{Policy: "p", Expr: nightly().Expr, Cursor: first, TickedAt: first, OldestDue: d, OldestAt: &now}}
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Error(diff, err)
			}
		}
	})
}

func TestOpenRuns(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		var want []string
		for i := range 3 {
			h.add(time.Second)
			want = append(want, accept(t, l, an(fmt.Sprintf("p%d", 3-i), IdentityOnce())).ID)
		}
		h.add(time.Second)
		ended(t, l, accept(t, l, an("p", IdentityOnce())), Cancelled, WhyCancelled)
		if _, err := l.Start(t.Context(), want[1], nil); err != nil {
			t.Fatal(err)
		}
		if err := l.Claim(t.Context(), want[1], "me", 0); err != nil {
			t.Fatal(err)
		}
		waits := accept(t, l, an("q", IdentityOnce()))
		run(t, l.write, l.q(`UPDATE @run SET state = 'awaiting_approval' WHERE id = '`+waits.ID+`'`))
		open, err := l.OpenRuns(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range open {
			got = append(got, r.ID)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatal(d)
		}
		if open[1].Owner != "me" || open[1].Heartbeat != h.read() || open[1].State != Running {
			t.Errorf("%+v", open[1])
		}
	})
}

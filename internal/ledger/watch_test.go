package ledger

import (
	"fmt"
	"testing"
	"time"
)

var midnight = time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)

// occurrences writes a policy's occurrences, an hour apart: o ok, f failed,
// s skipped, p skipped by a pause, - pending.
func occurrences(t testing.TB, l *Ledger, policy, states string) {
	t.Helper()
	for i, c := range states {
		at := midnight.Add(time.Duration(i) * time.Hour)
		state, why, ended := map[rune]string{'o': "ok", 'f': "failed", 's': "skipped", 'p': "skipped", '-': "pending"}[c], "", at
		switch c {
		case 's':
			why = "overlap"
		case 'p':
			why = WhyPaused
		case '-':
			ended = time.Time{}
		}
		if _, err := l.write.ExecContext(t.Context(), l.q(`INSERT INTO @occurrence (policy, stage, at, start_by, state, why, created, ended)
			VALUES ($1, '', $2, $3, $4, $5, $6, $7)`), policy, stamp(at), stamp(at.Add(time.Hour)), state, why, stamp(at), stamp(ended)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSkipStreak(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		for i, c := range []struct {
			states   string
			at       int // of which instant
			n, first int
		}{
			{"", 0, 0, -1}, {"o", 0, 0, -1}, {"s", 0, 1, 0}, {"sss", 2, 3, 0}, {"sss", 1, 2, 0}, {"osfss", 4, 2, 3},
			{"ospss", 4, 3, 1}, {"oppp", 3, 0, -1}, {"ss-s", 3, 3, 0}, {"ssso", 3, 0, -1}, {"sssos", 4, 1, 4},
		} {
			policy := fmt.Sprint("p", i)
			occurrences(t, l, policy, c.states)
			n, first, err := l.SkipStreak(t.Context(), policy, "", midnight.Add(time.Duration(c.at)*time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			want := time.Time{}
			if c.first >= 0 {
				want = midnight.Add(time.Duration(c.first) * time.Hour)
			}
			if n != int64(c.n) || !first.Equal(want) {
				t.Errorf("%s at %d: %d from %v, want %d from %v", c.states, c.at, n, first, c.n, want)
			}
		}
	})
}

func TestStalled(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		accepted := accept(t, l, an("accepted", IdentityOnce()))
		waiting := accept(t, l, an("waiting", IdentityOnce()))
		idle := started(t, l, "idle")
		busy := admitOne(t, l, started(t, l, "busy"), 1, 1)
		ended := started(t, l, "ended")
		if _, err := l.End(t.Context(), ended.ID, Failed, WhyError, ""); err != nil {
			t.Fatal(err)
		}
		mark, err := l.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// PostgreSQL's clock and SQLite's both move on by a microsecond at least.
		for now := mark; !now.After(mark.Add(time.Microsecond)); {
			if now, err = l.Now(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		settleOne(t, l, busy, 1, Outcomes{"deleted": 1})
		if err := l.Claim(t.Context(), waiting.ID, "me", 0); err != nil {
			t.Fatal(err)
		}
		if err := l.Claim(t.Context(), idle.ID, "me", 0); err != nil { // it lives, and does nothing
			t.Fatal(err)
		}
		stalls, err := l.Stalled(t.Context(), mark.Add(time.Microsecond))
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]time.Time{}
		for _, s := range stalls {
			got[s.Run.ID] = s.Last
		}
		if len(got) != 2 || !got[accepted.ID].Equal(accepted.AcceptedAt) || !got[idle.ID].Equal(idle.StartedAt) {
			t.Errorf("%v", got)
		}
		if stalls, err := l.Stalled(t.Context(), midnight); err != nil || stalls != nil {
			t.Errorf("long ago: %v, %v", stalls, err)
		}
	})
}

func TestRunsBefore(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		var runs []Run
		for i, mode := range []string{"enforce", "enforce", "shadow", "enforce", "enforce"} {
			r := pagedOut(t, l, started(t, l, "p", func(a *Acceptance) {
				if a.Mode = mode; mode == "shadow" {
					a.Cause = "schedule"
				}
			}))
			state := Succeeded
			if i == 1 {
				state = Failed
			}
			r, err := l.End(t.Context(), r.ID, state, WhyDone, "")
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, r)
		}
		started(t, l, "q")
		before, err := l.RunsBefore(t.Context(), runs[4], 10)
		if err != nil || len(before) != 2 || before[0].ID != runs[3].ID || before[1].ID != runs[0].ID {
			t.Errorf("%v, %v", before, err)
		}
		if before, err = l.RunsBefore(t.Context(), runs[4], 1); err != nil || len(before) != 1 || before[0].ID != runs[3].ID {
			t.Errorf("%v, %v", before, err)
		}
		for name, c := range map[string]struct {
			run       Run
			mode      string
			scheduled bool
			want      string
		}{
			"same mode": {runs[3], "enforce", false, runs[1].ID}, "other mode": {runs[4], "shadow", true, runs[2].ID},
			"by hand": {runs[4], "enforce", true, ""}, "first": {runs[0], "enforce", false, ""},
		} {
			last, found, err := l.LastBefore(t.Context(), c.run, c.mode, c.scheduled)
			if err != nil || found != (c.want != "") || last.ID != c.want {
				t.Errorf("%s: %s, %v, want %s", name, last.ID, err, c.want)
			}
		}
	})
}

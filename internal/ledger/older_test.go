package ledger

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Two processes have files with different schedules: the one that read its file later decides, and the other keeps that schedule too.
// No instant of it is lost, whoever ticks.
func TestOlderFile(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		every := func(step time.Duration) func(after, until time.Time, limit int) []time.Time {
			return func(after, until time.Time, limit int) (out []time.Time) {
				for at := after.Truncate(step).Add(step); !at.After(until) && len(out) < limit; at = at.Add(step) {
					out = append(out, at)
				}
				return out
			}
		}
		was := func(expr string) func(after, until time.Time, limit int) []time.Time {
			step, err := time.ParseDuration(expr)
			if err != nil {
				return nil
			}
			return every(step)
		}
		file := func(expr string, read time.Time) Scheduled {
			return nightly(func(s *Scheduled) { s.Expr, s.Between, s.Was, s.Read = expr, was(expr), was, read })
		}
		older, newer := file("1h", h.read()), file("2h", h.read().Add(time.Minute))
		tickOf(t, l, older)
		h.add(5 * time.Minute)
		if got := tickOf(t, l, newer); !got.Changed || got.Older {
			t.Errorf("the newer file: %+v", got)
		}
		for i := range 6 {
			h.add(time.Hour)
			s := older
			if i%3 == 2 {
				s = newer
			}
			got := tickOf(t, l, s)
			if got.Changed || got.Older != (i%3 != 2) {
				t.Errorf("hour %d: %+v", i+1, got)
			}
			for _, r := range got.Accepted {
				succeedRun(t, l, r)
			}
		}
		var at []int
		all, err := l.Occurrences(t.Context(), OccurrenceFilter{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range all {
			at = append([]int{int(o.At.Sub(handsStart()) / time.Hour)}, at...)
		}
		if diff := cmp.Diff([]int{2, 4, 6}, at); diff != "" {
			t.Error(diff)
		}
		if err := l.Unschedule(t.Context(), older.Policy, older.Stage); err != nil {
			t.Fatal(err)
		}
		h.add(3 * time.Hour)
		if got := tickOf(t, l, older); !got.Older || len(got.Accepted) > 0 {
			t.Errorf("an older file brought back what left: %+v", got)
		}
	})
}

func succeedRun(t *testing.T, l *Ledger, r Run) {
	t.Helper()
	if _, err := l.Start(t.Context(), r.ID, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Step(t.Context(), r.ID, StepRequest{Admit: &Admission{PagedOut: true}}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.End(t.Context(), r.ID, Succeeded, "done", ""); err != nil {
		t.Fatal(err)
	}
}

// The zero time of a client that forgot to set one is no as_of, and nothing is accepted for it.
func TestUnsetAsOf(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		for _, year := range []int{1, 1601, 1900, 1970} {
			asOf := time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)
			a := an("p", IdentityKey("k"), func(a *Acceptance) { a.AsOf, a.Operation = &asOf, "k" })
			if _, _, err := l.Accept(t.Context(), a); !errors.As(err, new(*UnsetError)) {
				t.Errorf("%d: %v", year, err)
			}
			if _, _, err := l.AcceptOperation(t.Context(), a, [32]byte{1}); !errors.As(err, new(*UnsetError)) {
				t.Errorf("%d: %v", year, err)
			}
		}
		if runs, err := l.List(t.Context(), Filter{}); err != nil || len(runs) != 0 {
			t.Errorf("%v, %v", runs, err)
		}
	})
}

package alert

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/internal/ledger"
)

// TestThreeNightsDown: no process for three nights, and the first that comes up
// tells of them all at once, and of the schedule that somebody changed.
func TestThreeNightsDown(t *testing.T) {
	b := onlySQLite(t)
	text := []byte(`{"name":"nightly"}`)
	s := ledger.Scheduled{Policy: "nightly", Mode: "enforce", Expr: "0 2 * * *", StartWithin: time.Hour, CatchUp: "latest",
		RevisionID: ledger.RevisionID(text), Revision: text, Cutoff: func(at time.Time) time.Time { return at },
		Between: func(after, until time.Time, limit int) (all []time.Time) {
			for at := after.Truncate(24 * time.Hour).Add(2 * time.Hour); !at.After(until) && len(all) < limit; at = at.Add(24 * time.Hour) {
				if at.After(after) {
					all = append(all, at)
				}
			}
			return all
		}}
	tick := func() {
		t.Helper()
		for more := true; more; {
			done, err := b.l.Tick(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			more = done.More
		}
	}
	b.mu.Lock()
	b.now = b.now.Truncate(24 * time.Hour).Add(12 * time.Hour) // noon
	b.mu.Unlock()
	tick()
	b.pass(b.loop())
	b.later(3 * 24 * time.Hour)
	tick()
	b.pass(b.loop())
	all := b.alerts()
	if len(all) != 1 || all[0].Kind != Missed {
		t.Fatalf("%v", b.kinds())
	}
	if d := b.said(all[0]); d.Count != 3 || d.Why != ledger.WhyNoProcess || d.Last.Sub(*d.First) != 48*time.Hour {
		t.Errorf("%+v", d)
	}
	if err := b.l.Unschedule(t.Context(), s.Policy, s.Stage); err != nil {
		t.Fatal(err)
	}
	b.pass(b.loop())
	if diff := cmp.Diff([]string{Missed, ScheduleRemoved}, b.kinds()); diff != "" {
		t.Error(diff)
	}
}

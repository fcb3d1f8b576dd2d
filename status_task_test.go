package curfew

import (
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/riverq"
	"curfew.dev/curfew/policy"
)

// A task is no policy: what status tells to do about one must be possible, and a call that takes long, or waits long for its next
// attempt, is not forgotten.
func TestStatusOfTask(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	p := &policy.Policy{Name: "reports", Mode: ledger.ModeTask, Timezone: "UTC", Schedule: &policy.Schedule{Cron: "42 2 * * 1", StartWithin: time.Hour}}
	name := stageName{"reports", ""}
	open := ledger.Run{ID: strings.Repeat("a", 64), Policy: "reports", Mode: ledger.ModeTask, State: ledger.Running, AcceptedAt: now.Add(-9 * time.Hour), StartedAt: now.Add(-9 * time.Hour)}
	k := known{now: now, open: map[stageName]ledger.Run{name: open}, health: map[stageName]ledger.StageHealth{},
		schedules: map[stageName]ledger.ScheduleState{name: {Policy: "reports", Expr: expression(p), Cursor: now, TickedAt: now}}}
	if s := k.status(p); !s.Well {
		t.Errorf("a call that waits for another attempt: %s", s.Problem)
	}
	for _, c := range []struct {
		left riverq.Backlog
		want int
	}{
		{riverq.Backlog{}, 0}, {riverq.Backlog{Failed: 1}, 1}, {riverq.Backlog{Oldest: now.Add(-silentFor)}, 1}, {riverq.Backlog{Oldest: now.Add(-silentFor + time.Second)}, 0},
		{riverq.Backlog{Oldest: now.Add(-time.Hour), Running: 1}, 0}, {riverq.Backlog{Oldest: now.Add(time.Hour)}, 0}, {riverq.Backlog{Failed: 1, Oldest: now.Add(-time.Hour)}, 2},
	} {
		if got := k.neglected("mail", c.left); len(got) != c.want {
			t.Errorf("%+v: %+v", c.left, got)
		}
	}
	open.Mode = "enforce"
	if _, stuck := k.stuck(open); !stuck {
		t.Error("a run that nobody works on is not stuck")
	}
	k.health[name] = ledger.StageHealth{Policy: "reports", Missed: 2, Last: ledger.Run{ID: strings.Repeat("b", 64), Mode: ledger.ModeTask, State: ledger.Failed}}
	s := k.status(p)
	for _, want := range []string{"curfew task run reports does its work now", "when the schedule's next call has succeeded"} {
		if !strings.Contains(s.Hint, want) || strings.Contains(s.Hint, "curfew run reports") {
			t.Errorf("the hint is %q", s.Hint)
		}
	}
}

package curfew

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/policy"
)

const statusFile = `
version: 1
databases: {library: {url: "sqlite:library.db"}}
policies:
  circulation:
    database: library
    table: event
    keep: 2y
    since: occurred_at
    action: delete
    mode: enforce
    timezone: Europe/Berlin
    schedule: {cron: "0 2 * * *", start_within: 1h}
    limits: {retention_lag: 26h}
  called:
    database: library
    table: event
    keep: 2y
    since: occurred_at
    action: delete
    mode: enforce
    schedule: {cron: "0 3 * * *", by: external, grace: 15m}
  byhand:
    database: library
    table: event
    keep: 2y
    since: occurred_at
    action: delete
    mode: shadow
`

func statusPolicy(t *testing.T, name string) *policy.Policy {
	t.Helper()
	f, err := policy.Parse([]byte(statusFile), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p, err := f.Policy(name)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestStatus(t *testing.T) {
	instant := func(s string) time.Time {
		at, err := time.Parse(time.RFC3339, s)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	// In July, 02:00 in Berlin is midnight UTC.
	now := instant("2026-07-10T08:00:00Z")
	ok := ledger.Run{ID: "0123456789abcdef", Policy: "circulation", Mode: "enforce", State: ledger.Succeeded, AsOf: instant("2026-07-10T00:00:00Z")}
	kept := func(cursor string) map[stageName]ledger.ScheduleState {
		at := instant(cursor)
		return map[stageName]ledger.ScheduleState{
			{"circulation", ""}: {Expr: "0 2 * * *;Europe/Berlin;", Cursor: at, TickedAt: at},
			{"called", ""}:      {Expr: "0 3 * * *;UTC;external", Cursor: at, TickedAt: at},
		}
	}
	fares := func(h ledger.StageHealth) map[stageName]ledger.StageHealth {
		return map[stageName]ledger.StageHealth{{"circulation", ""}: h, {"called", ""}: h}
	}
	lag := func(due string) map[stageName]ledger.ScheduleState {
		s, oldest := kept("2026-07-10T08:00:00Z"), instant(due)
		state := s[stageName{"circulation", ""}]
		state.OldestDue, state.OldestAt = &oldest, &now
		s[stageName{"circulation", ""}] = state
		return s
	}
	failed := ledger.Run{ID: "fedcba9876543210", Mode: "enforce", State: ledger.Failed, WhyEnded: "schema_changed", Detail: "no column occurred_at"}
	open := func(r ledger.Run) map[stageName]ledger.Run { return map[stageName]ledger.Run{{"circulation", ""}: r} }
	paused := func(since string) map[string]api.Pause {
		return map[string]api.Pause{"circulation": {Policy: "circulation", Since: instant(since), Actor: "eve@desk", Reason: "moving"}}
	}
	const showFailed = "curfew show fedcba987654 has the details"
	for _, test := range []struct {
		name, policy string
		known        known
		problem      string
		hint         string
		missed       int64
		next         string
	}{
		{"well", "circulation", known{schedules: kept("2026-07-10T07:59:59Z"), health: fares(ledger.StageHealth{LastOK: ok, Last: ok})}, "", "", 0, "2026-07-11T00:00:00Z"},
		{"no schedule", "byhand", known{}, "", "", 0, ""},
		{"never served", "circulation", known{}, "no process has seen its schedule yet", "curfew serve keeps the schedules of the file", 0, "2026-07-11T00:00:00Z"},
		{"late, but not too late", "circulation", known{now: instant("2026-07-10T00:59:59Z"), schedules: kept("2026-07-09T08:00:00Z")}, "", "", 0, "2026-07-11T00:00:00Z"},
		{"no process", "circulation", known{schedules: kept("2026-07-07T08:00:00Z"), health: fares(ledger.StageHealth{LastOK: ok})},
			"no process has ticked since 2026-07-07T08:00:00Z, and 3 scheduled instants passed", "start curfew serve; if it runs, does it use this file and this ledger?", 3, "2026-07-11T00:00:00Z"},
		{"another schedule", "circulation", known{schedules: map[stageName]ledger.ScheduleState{{"circulation", ""}: {Expr: "0 5 * * 0;UTC;", Cursor: now, TickedAt: now}}},
			"another schedule is kept than the file's: 0 5 * * 0 UTC", "reload curfew serve (SIGHUP), and give this command the CURFEW_POLICY_…_CRON that it has", 0, "2026-07-11T00:00:00Z"},
		{"missed", "circulation", known{schedules: kept("2026-07-10T08:00:00Z"), health: fares(ledger.StageHealth{Missed: 1})}, "1 occurrence missed since the last ok run",
			"curfew gaps circulation --each lists them; curfew run circulation makes up for them now", 1, "2026-07-11T00:00:00Z"},
		{"no call", "called", known{schedules: kept("2026-07-10T08:00:00Z"), health: fares(ledger.StageHealth{Missed: 2})}, "2 occurrences missed since the last ok run",
			"curfew calls --policy called shows which calls came; the caller is silent, or its token is refused", 2, "2026-07-11T03:00:00Z"},
		{"failed", "circulation", known{schedules: kept("2026-07-10T08:00:00Z"), health: fares(ledger.StageHealth{Last: failed, Failed: 2})},
			"the last run failed: schema_changed: no column occurred_at", showFailed, 0, "2026-07-11T00:00:00Z"},
		{"failed and missed", "circulation", known{schedules: kept("2026-07-10T08:00:00Z"), health: fares(ledger.StageHealth{Last: failed, Missed: 1})},
			"the last run failed: schema_changed: no column occurred_at; 1 occurrence missed since the last ok run",
			showFailed + "; curfew gaps circulation --each lists them; curfew run circulation makes up for them now", 1, "2026-07-11T00:00:00Z"},
		{"expired", "circulation", known{schedules: kept("2026-07-10T08:00:00Z"), health: fares(ledger.StageHealth{Expired: 1})}, "1 occurrence expired, accepted and not begun in time",
			"curfew runs --policy circulation shows them; are there too few workers, or is a database out of reach?", 0, "2026-07-11T00:00:00Z"},
		{"two skips", "circulation", known{schedules: kept("2026-07-10T08:00:00Z"), health: fares(ledger.StageHealth{Skips: 2})}, "", "", 0, "2026-07-11T00:00:00Z"},
		{"three skips", "circulation", known{schedules: kept("2026-07-10T08:00:00Z"), health: fares(ledger.StageHealth{Skips: 3})}, "3 occurrences skipped in a row",
			"curfew runs --policy circulation shows which run is in the way; run it more rarely, or let it do less", 0, "2026-07-11T00:00:00Z"},
		{"running", "circulation", known{schedules: kept("2026-07-10T08:00:00Z"), open: open(ledger.Run{ID: "ab", State: ledger.Running, AcceptedAt: instant("2026-07-10T00:00:00Z"), Heartbeat: instant("2026-07-10T07:46:00Z")})},
			"", "", 0, "2026-07-11T00:00:00Z"},
		{"stuck", "circulation", known{schedules: kept("2026-07-10T08:00:00Z"), open: open(ledger.Run{ID: "ab", Policy: "circulation", State: ledger.Running, AcceptedAt: instant("2026-07-10T00:00:00Z"), Heartbeat: instant("2026-07-10T07:45:00Z")})},
			"run ab is running, and nobody has worked on it since 2026-07-10T07:45:00Z", "curfew serve takes it over, curfew run circulation goes on with it by hand", 0, "2026-07-11T00:00:00Z"},
		{"waits", "circulation", known{schedules: kept("2026-07-10T08:00:00Z"), open: open(ledger.Run{ID: "ab", State: ledger.AwaitingApproval, Detail: "it would remove 9 rows, and max_rows is 8"})},
			"run ab waits for approval: it would remove 9 rows, and max_rows is 8", "curfew show ab has the plan; curfew approve ab lets it go on, curfew cancel ab ends it", 0, "2026-07-11T00:00:00Z"},
		{"lag within its limit", "circulation", known{schedules: lag("2026-07-09T08:00:00Z")}, "", "", 0, "2026-07-11T00:00:00Z"},
		{"lag", "circulation", known{schedules: lag("2026-07-09T05:59:00Z")}, "its oldest due row is 26h 1m late, the limit is 26h",
			"curfew explain and curfew show say what keeps old rows; a run that is too slow may need more rows a batch, or a higher pace", 0, "2026-07-11T00:00:00Z"},
		{"paused", "circulation", known{schedules: kept("2026-07-10T08:00:00Z"), health: fares(ledger.StageHealth{Skips: 5}), pauses: paused("2026-07-05T08:00:00Z")}, "", "", 0, "2026-07-11T00:00:00Z"},
		{"forgotten", "circulation", known{schedules: kept("2026-07-10T08:00:00Z"), health: fares(ledger.StageHealth{Skips: 9}), pauses: paused("2026-07-03T08:00:00Z")},
			"paused since 2026-07-03T08:00:00Z by eve@desk", "curfew resume circulation", 0, "2026-07-11T00:00:00Z"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.known.now.IsZero() {
				test.known.now = now
			}
			s := test.known.status(statusPolicy(t, test.policy))
			next := ""
			if s.NextDue != nil {
				next = s.NextDue.Format(time.RFC3339)
			}
			got := []any{s.Well, s.Problem, s.Hint, s.Missed, next}
			if diff := cmp.Diff([]any{test.problem == "", test.problem, test.hint, test.missed, test.next}, got); diff != "" {
				t.Errorf("well, problem, hint, missed, next (-want +got):\n%s", diff)
			}
		})
	}
}

// TestStatusOfShadow: what a policy in shadow mode last did well is a shadow run.
func TestStatusOfShadow(t *testing.T) {
	asOf := time.Date(2026, 7, 9, 0, 0, 0, 0, time.UTC)
	k := known{now: asOf.Add(time.Hour), shadowed: map[stageName]ledger.Run{{"byhand", ""}: {ID: "ab", AsOf: asOf}}}
	if s := k.status(statusPolicy(t, "byhand")); s.LastOKRun != "ab" || s.LastOK == nil || !s.LastOK.Equal(asOf) || !s.Well {
		t.Errorf("status %+v, want run ab as the last ok one", s)
	}
}

// TestOverdue: an instant is overdue once it can no longer be kept, through the night in which clocks go forward too.
func TestOverdue(t *testing.T) {
	p := statusPolicy(t, "circulation")
	cursor := time.Date(2026, 3, 27, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		now  time.Time
		want []string
	}{
		{time.Date(2026, 3, 28, 1, 59, 59, 0, time.UTC), nil},
		{time.Date(2026, 3, 28, 2, 0, 0, 0, time.UTC), []string{"2026-03-28T01:00:00Z"}},
		{time.Date(2026, 3, 30, 1, 0, 0, 0, time.UTC), []string{"2026-03-28T01:00:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:00:00Z"}},
	} {
		var got []string
		for _, at := range overdue(p, ledger.ScheduleState{Expr: expression(p), Cursor: cursor}, test.now, maxUnrecorded) {
			got = append(got, at.Format(time.RFC3339))
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("overdue at %s (-want +got):\n%s", test.now, diff)
		}
	}
}

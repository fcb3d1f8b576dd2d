package curfew

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/policy"
	"curfew.dev/curfew/schedule"
)

var beltsStart = time.Date(2026, 7, 1, 1, 0, 0, 0, time.UTC)

// beltPolicy is a policy over sessions, enforced, with more settings.
func beltPolicy(more string) string {
	return "  sessions: {database: app, table: session, until: {column: expires, unit: s}, action: delete, mode: enforce, " + more + "}\n"
}

// run runs the policy by hand, and the run must end without an error.
func (d *daemon) run(c *Curfew, req RunRequest) api.Run {
	d.Helper()
	req.Policy = "sessions"
	run, err := c.Run(d.Context(), req)
	if err != nil {
		d.Fatalf("run: %v (%s)\n%s", err, HintOf(err), d.logs)
	}
	return run
}

// dies runs something that is stopped at a point for good, as by a kill: it answers "killed", or the error.
func (d *daemon) dies(point string, do func() error) (r any) {
	dispatch.TestHook = func(at string) {
		if at == point {
			panic("killed")
		}
	}
	defer func() {
		dispatch.TestHook = nil
		if p := recover(); p != nil {
			r = p
		}
	}()
	return do()
}

// awaits checks that a run waits for approval, for these limits, and that nothing was changed.
func (d *daemon) awaits(c *Curfew, run api.Run, rows int, limits ...string) *api.Approval {
	d.Helper()
	if run.State != api.StateAwaitingApproval || run.Batches.Total != 0 {
		d.Fatalf("the run does not wait: %+v", run)
	}
	if n := d.rows(); n != rows {
		d.Fatalf("there are %d rows, want %d: a run that waits changes nothing", n, rows)
	}
	detail, err := c.Show(d.Context(), run.ID)
	if err != nil || detail.Approval == nil {
		d.Fatalf("show: %+v, %v", detail, err)
	}
	if plans, err := c.Plan(d.Context(), "sessions"); err != nil || plans[0].WouldWait == "" {
		d.Errorf("the plan does not say that a run would wait: %+v, %v", plans, err)
	}
	var got []string
	for _, e := range detail.Approval.Exceeded {
		got = append(got, e.Limit)
		if e.Message == "" || !strings.Contains(run.Detail, e.Message) {
			d.Errorf("%s says %q, and the run %q", e.Limit, e.Message, run.Detail)
		}
	}
	if !slices.Equal(got, limits) {
		d.Fatalf("it waits for %v, want %v: %s", got, limits, run.Detail)
	}
	if detail.Approval.ApprovedAt != nil {
		d.Errorf("approved already: %+v", detail.Approval)
	}
	return detail.Approval
}

func (d *daemon) approve(c *Curfew, run api.Run) {
	d.Helper()
	if _, err := c.Approve(d.Context(), run.ID[:12], "agreed"); err != nil {
		d.Fatal(err)
	}
}

func (d *daemon) succeeded(run api.Run, deleted int64) {
	d.Helper()
	if run.State != api.StateSucceeded || run.Outcomes["deleted"] != deleted {
		d.Fatalf("the run is %s (%s) with %v, want %d deleted\n%s", run.State, run.Detail, run.Outcomes, deleted, d.logs)
	}
}

// Each limit has a run wait with nothing changed; approved it goes on with exactly what was approved, cancelled it has ended.
func TestLimits(t *testing.T) {
	for name, test := range map[string]struct {
		limits, exceeded string
		due, fresh       int
		counted, allowed int64
	}{
		"rows":       {"max_rows: 10", api.LimitMaxRows, 11, 100, 11, 10},
		"rows, just": {"max_rows: 10", "", 10, 100, 0, 0},
		"share":      {"max_share: 20%", api.LimitMaxShare, 21, 79, 21, 20},
		"share, just": {
			"max_share: 20%", "", 20, 80, 0, 0},
		"share of nearly nothing": {"max_share: 99.5%", api.LimitMaxShare, 3, 0, 3, 2},
		"no history":              {"spike: 2x", "", 50, 0, 0, 0},
		"first of two":            {"max_rows: 10, max_share: 99%", api.LimitMaxRows, 11, 100, 11, 10},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDaemon(t, beltsStart, beltPolicy("limits: {"+test.limits+"}"))
			d.sessions(test.due, beltsStart.Add(-time.Hour))
			if test.fresh > 0 {
				d.sessions(test.fresh, beltsStart.Add(time.Hour))
			}
			c := d.open()
			run := d.run(c, RunRequest{})
			if test.exceeded == "" {
				d.succeeded(run, int64(test.due))
				return
			}
			a := d.awaits(c, run, test.due+test.fresh, test.exceeded)
			if e := a.Exceeded[0]; e.Counted != test.counted || e.Allowed != test.allowed || a.Due == nil || *a.Due != int64(test.due) {
				t.Errorf("%+v; due %v", a, a.Due)
			}
			if again := d.run(c, RunRequest{}); again.ID != run.ID || again.State != api.StateAwaitingApproval {
				t.Errorf("asked for again: %+v", again)
			}
			s, err := c.Status(t.Context())
			if err != nil || s[0].Well || !strings.Contains(s[0].Problem, "waits for approval") || !strings.Contains(s[0].Hint, "curfew approve "+run.ID[:12]) {
				t.Errorf("status: %+v, %v", s, err)
			}
			d.approve(c, run)
			after := d.run(c, RunRequest{AsOf: &run.AsOf})
			if d.succeeded(after, int64(test.due)); after.ID != run.ID || d.rows() != test.fresh {
				t.Errorf("%d rows are left, want %d; run %s, was %s", d.rows(), test.fresh, after.ID, run.ID)
			}
			detail, err := c.Show(t.Context(), run.ID)
			if err != nil || detail.Approval.ApprovedBy != "test" || detail.Approval.Reason != "agreed" || detail.Approval.ApprovedAt == nil {
				t.Errorf("the approval: %+v, %v", detail.Approval, err)
			}
			if !slices.ContainsFunc(detail.Audit, func(e api.AuditEntry) bool {
				return e.Event == "run_approved" && e.Actor == "test" && strings.Contains(string(e.Data), "agreed") && strings.Contains(string(e.Data), test.exceeded)
			}) {
				t.Errorf("the audit trail: %+v", detail.Audit)
			}

			d.sessions(test.due, beltsStart.Add(-time.Hour))
			run = d.run(c, RunRequest{})
			if _, err := c.Cancel(t.Context(), run.ID, "not this time"); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Approve(t.Context(), run.ID, ""); KindOf(err) != KindRefused {
				t.Errorf("a cancelled run was approved: %v", err)
			}
			if d.rows() != test.due+test.fresh {
				t.Errorf("%d rows are left", d.rows())
			}
		})
	}
}

// Rows that a guard keeps are due for ever, and make no run too large; nor do rows outside the scope.
func TestLimitsCountWhatGoes(t *testing.T) {
	d := newDaemon(t, beltsStart, beltPolicy(`where: "id <= 60", unless: "id <= 50", limits: {max_rows: 10, max_share: 50%}`))
	d.sessions(100, beltsStart.Add(-time.Hour))
	d.succeeded(d.run(d.open(), RunRequest{}), 10)
}

// A run that removes far more than usual waits; one that makes up for three missed nights is judged by three nights.
func TestSpike(t *testing.T) {
	d := newDaemon(t, beltsStart, beltPolicy(`schedule: {cron: "0 2 * * *"}, limits: {spike: 2x}`))
	c := d.open()
	night := func(n int) time.Time { return time.Date(2026, 7, 1+n, 2, 0, 0, 0, time.UTC) }
	rows := func(n int, nights ...int) {
		for _, i := range nights {
			d.sessions(n, night(i).Add(-time.Hour))
		}
	}
	run := func(n int) api.Run {
		d.clock.set(night(n).Add(time.Minute))
		at := night(n)
		return d.run(c, RunRequest{AsOf: &at})
	}
	rows(500, 0)
	d.succeeded(run(0), 500) // the backlog: there is nothing that is usual
	for n := 1; n <= 4; n++ {
		rows(10, n)
		d.succeeded(run(n), 10)
	}
	rows(15, 5, 6, 7, 8)
	d.succeeded(run(8), 60) // four nights' worth, and 15 a night is no spike
	rows(25, 9)
	spike := run(9)
	a := d.awaits(c, spike, 25, api.LimitSpike)
	if h := a.History; h.Usual != 10 || h.Intervals != 1 || h.Runs != 6 || a.Exceeded[0].Allowed != 20 {
		t.Errorf("history %+v, %+v", h, a.Exceeded)
	}
	// While somebody thinks, far more comes: that was not approved.
	d.approve(c, spike)
	rows(3, 9)
	d.awaits(c, run(9), 28, api.LimitSpike)
	// Hardly more does not ask again.
	d.approve(c, spike)
	rows(2, 9)
	d.succeeded(run(9), 30)
}

// The median is of what the runs changed an interval, and a run covers at least one.
func TestUsual(t *testing.T) {
	night := func(n int) time.Time { return time.Date(2026, 7, 1+n, 2, 0, 0, 0, time.UTC) }
	past := func(n int, changed int64) ledger.Run {
		return ledger.Run{AsOf: night(n), Outcomes: ledger.Outcomes{"deleted": changed, "held": 1000}}
	}
	cron, err := schedule.Parse("0 2 * * *")
	if err != nil {
		t.Fatal(err)
	}
	nightly := schedule.Schedule{Cron: cron}
	covers := func(from, to time.Time) int64 { return scheduledBetween(nightly, from, to) }
	many := make([]ledger.Run, 11)
	for i := range many {
		many[i] = past(i, int64(i))
	}
	for name, c := range map[string]struct {
		before []ledger.Run
		at     time.Time
		want   *api.History
	}{
		"none":                    {nil, night(1), nil},
		"only later ones":         {[]ledger.Run{past(5, 10)}, night(1), nil},
		"one":                     {[]ledger.Run{past(0, 10)}, night(1), &api.History{Runs: 1, Usual: 10, Intervals: 1}},
		"of two the smaller":      {[]ledger.Run{past(0, 1000), past(1, 10)}, night(2), &api.History{Runs: 2, Usual: 10, Intervals: 1}},
		"in whatever order":       {[]ledger.Run{past(2, 30), past(0, 10), past(1, 20)}, night(3), &api.History{Runs: 3, Usual: 20, Intervals: 1}},
		"three nights in one":     {[]ledger.Run{past(0, 10), past(3, 30)}, night(7), &api.History{Runs: 2, Usual: 10, Intervals: 4}},
		"by hand between":         {[]ledger.Run{past(0, 10)}, night(0).Add(time.Minute), &api.History{Runs: 1, Usual: 10, Intervals: 1}},
		"the last ten":            {many, night(11), &api.History{Runs: 10, Usual: 5, Intervals: 1}},
		"a run that took nothing": {[]ledger.Run{past(0, 0), past(1, 0)}, night(2), &api.History{Runs: 2, Usual: 0, Intervals: 1}},
	} {
		got := usual(c.before, c.at, covers)
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	for _, c := range []struct {
		factor  policy.Factor
		history api.History
		want    int64
	}{
		{5000, api.History{Usual: 10, Intervals: 1}, 50}, {5000, api.History{Usual: 10, Intervals: 4}, 200},
		{5000, api.History{Usual: 0, Intervals: 3}, 5}, {1500, api.History{Usual: 0.2, Intervals: 1}, 1}, {1500, api.History{Usual: 7, Intervals: 1}, 10},
	} {
		if got := allowedSpike(c.factor, c.history); got != c.want {
			t.Errorf("%s of %+v: %d, want %d", c.factor, c.history, got, c.want)
		}
	}
}

// Without a schedule the usual time between the runs is the interval.
func TestIntervalsUnscheduled(t *testing.T) {
	at := func(h int) ledger.Run { return ledger.Run{AsOf: beltsStart.Add(time.Duration(h) * time.Hour)} }
	w := &work{p: &policy.Policy{}}
	covers := w.intervals([]ledger.Run{at(72), at(0), at(24), at(48)})
	for h, want := range map[int]int64{1: 1, 24: 1, 47: 1, 48: 2, 72: 3} {
		if got := covers(beltsStart, beltsStart.Add(time.Duration(h)*time.Hour)); got != want {
			t.Errorf("%d h: %d intervals, want %d", h, got, want)
		}
	}
	if got := w.intervals(nil)(beltsStart, beltsStart.AddDate(1, 0, 0)); got != 1 {
		t.Errorf("with nothing to go by: %d", got)
	}
}

// A process that dies anywhere between the count and the answer leaves a run that is weighed, or answered, by the next.
func TestKilledWhileWeighing(t *testing.T) {
	for _, point := range []string{"weighing", "awaiting", "weighed"} {
		t.Run(point, func(t *testing.T) {
			d := newDaemon(t, beltsStart, beltPolicy("limits: {max_rows: 10}"))
			d.sessions(11, beltsStart.Add(-time.Hour))
			died := d.dies(point, func() error {
				_, err := d.open().Run(t.Context(), RunRequest{Policy: "sessions"})
				return err
			})
			if died != "killed" {
				t.Fatalf("it was not killed: %v", died)
			}
			c := d.open()
			run := d.run(c, RunRequest{})
			d.awaits(c, run, 11, api.LimitMaxRows)
			d.approve(c, run)
			d.succeeded(d.run(c, RunRequest{}), 11)
			runs, err := c.Runs(t.Context(), RunFilter{})
			if err != nil || len(runs) != 1 {
				t.Errorf("%d runs, %v", len(runs), err)
			}
		})
	}
}

// Of many who approve at once one does.
func TestApproveAtOnce(t *testing.T) {
	d := newDaemon(t, beltsStart, beltPolicy("limits: {max_rows: 10}"))
	d.sessions(11, beltsStart.Add(-time.Hour))
	c := d.open()
	run := d.run(c, RunRequest{})
	var mu sync.Mutex
	var wg sync.WaitGroup
	approved, refused := 0, 0
	for i := range 6 {
		other := c
		if i%2 == 0 {
			other = d.open()
		}
		wg.Go(func() {
			_, err := other.Approve(t.Context(), run.ID, fmt.Sprint(i))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				approved++
			case KindOf(err) == KindRefused && errors.As(err, new(*ledger.NotAwaitingError)):
				refused++
			default:
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if approved != 1 || refused != 5 {
		t.Errorf("%d approved, %d were refused", approved, refused)
	}
	d.succeeded(d.run(c, RunRequest{}), 11)
}

// A policy that was changed so that it removes more waits once; one that keeps longer is told and goes on; what does not decide which
// rows go is not asked about.
func TestChangedPolicy(t *testing.T) {
	const scope = `where: "id <= 10"`
	begin := func(t *testing.T, more string) (*daemon, func(more string) *Curfew) {
		d := newDaemon(t, beltsStart, beltPolicy(more))
		return d, func(more string) *Curfew { d.file = beltPolicy(more); return d.open() }
	}
	t.Run("more", func(t *testing.T) {
		d, under := begin(t, scope)
		d.sessions(30, beltsStart.Add(-time.Hour))
		d.succeeded(d.run(d.open(), RunRequest{}), 10) // a first text has nothing to be compared with
		c := under(`where: "id <= 15"`)
		run := d.run(c, RunRequest{})
		a := d.awaits(c, run, 20, api.LimitPolicyChanged)
		if a.Change == nil || a.Change.Old == nil || *a.Change.Old != 0 || *a.Change.Extra != 5 || *a.Due != 5 {
			t.Errorf("%+v", a.Change)
		}
		d.approve(c, run)
		d.succeeded(d.run(c, RunRequest{}), 5)
		d.app("UPDATE session SET id = id - 16 WHERE id IN (16, 17)") // to 0 and 1
		d.succeeded(d.run(c, RunRequest{}), 2)                        // once approved, the text is the one to compare with
	})
	t.Run("cancelled is not accepted", func(t *testing.T) {
		d, under := begin(t, scope)
		d.sessions(30, beltsStart.Add(-time.Hour))
		d.succeeded(d.run(d.open(), RunRequest{}), 10)
		c := under(`where: "id <= 15"`)
		run := d.run(c, RunRequest{})
		if _, err := c.Cancel(t.Context(), run.ID, ""); err != nil {
			t.Fatal(err)
		}
		d.awaits(c, d.run(c, RunRequest{}), 20, api.LimitPolicyChanged)
	})
	t.Run("elsewhere as many", func(t *testing.T) {
		d, under := begin(t, `where: "id <= 5"`)
		d.sessions(5, beltsStart.Add(-time.Hour))
		d.succeeded(d.run(d.open(), RunRequest{}), 5)
		d.app(fmt.Sprintf("INSERT INTO session VALUES (1, %[1]d), (21, %[1]d)", beltsStart.Add(-time.Hour).Unix()))
		c := under(`where: "id > 20"`)
		a := d.awaits(c, d.run(c, RunRequest{}), 2, api.LimitPolicyChanged)
		if *a.Due != 1 || *a.Change.Old != 1 || *a.Change.Extra != 1 {
			t.Errorf("due %d, %+v", *a.Due, a.Change)
		}
	})
	t.Run("keeps longer", func(t *testing.T) {
		d, under := begin(t, scope)
		d.sessions(10, beltsStart.Add(-time.Hour))
		d.succeeded(d.run(d.open(), RunRequest{}), 10)
		d.sessions(10, beltsStart.Add(-time.Hour))
		d.succeeded(d.run(under(`where: "id <= 3"`), RunRequest{}), 3)
		if !strings.Contains(d.logs.String(), "policy_keeps_longer") || !strings.Contains(d.logs.String(), "as_it_was=10") {
			t.Errorf("nobody was told:\n%s", d.logs)
		}
	})
	t.Run("what decides nothing", func(t *testing.T) {
		d, under := begin(t, scope)
		d.sessions(5, beltsStart.Add(-time.Hour))
		d.succeeded(d.run(d.open(), RunRequest{}), 5)
		for i, more := range []string{`description: words`, `schedule: {cron: "0 2 * * *"}`, `batch: {rows: 7}`, `retry: {attempts: 2}`, `limits: {max_rows: 100}`, `windows: ["00:00-24:00"]`} {
			d.app(fmt.Sprintf("INSERT INTO session VALUES (%d, %d)", i+1, beltsStart.Add(-time.Hour).Unix()))
			run := d.run(under(scope+", "+more), RunRequest{})
			if d.succeeded(run, 1); strings.Contains(d.logs.String(), "compare") {
				t.Errorf("%s: it was compared", more)
			}
		}
	})
	t.Run("from shadow to enforce", func(t *testing.T) {
		d, under := begin(t, scope)
		d.sessions(30, beltsStart.Add(-time.Hour))
		d.file = strings.Replace(beltPolicy(scope), "enforce", "shadow", 1)
		if run := d.run(d.open(), RunRequest{}); run.Outcomes["due"] != 10 {
			t.Fatalf("%+v", run)
		}
		c := under(`where: "id <= 11"`) // other rows than the shadow run showed
		d.awaits(c, d.run(c, RunRequest{}), 30, api.LimitPolicyChanged)
		if _, err := c.Cancel(t.Context(), d.run(c, RunRequest{}).ID, ""); err != nil {
			t.Fatal(err)
		}
		d.succeeded(d.run(under(scope), RunRequest{}), 10) // the very rows
	})
	t.Run("the old text cannot be asked", func(t *testing.T) {
		d, under := begin(t, `where: "state = 'x'"`)
		d.app("ALTER TABLE session ADD COLUMN state TEXT NOT NULL DEFAULT 'x'")
		d.sessions(5, beltsStart.Add(-time.Hour))
		d.succeeded(d.run(d.open(), RunRequest{}), 5)
		d.app("ALTER TABLE session DROP COLUMN state")
		d.sessions(5, beltsStart.Add(-time.Hour))
		c := under(scope)
		a := d.awaits(c, d.run(c, RunRequest{}), 5, api.LimitPolicyChanged)
		if a.Change.Old != nil || !strings.Contains(a.Change.Fault, "state") || *a.Due != 5 {
			t.Errorf("%+v", a.Change)
		}
		d.approve(c, d.run(c, RunRequest{}))
		d.succeeded(d.run(c, RunRequest{}), 5)
	})
	t.Run("another table", func(t *testing.T) {
		d, under := begin(t, scope)
		d.sessions(1, beltsStart.Add(-time.Hour))
		d.succeeded(d.run(d.open(), RunRequest{}), 1)
		d.app("CREATE TABLE other (id INTEGER PRIMARY KEY, expires INTEGER NOT NULL)")
		under(scope)
		d.file = strings.Replace(d.file, "table: session", "table: other", 1)
		c := d.open()
		d.awaits(c, d.run(c, RunRequest{}), 0, api.LimitPolicyChanged)
	})
}

// What is approved is compared with what is due when the run begins.
func TestCovers(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	rows := func(due int64) api.ApprovalPlan {
		return api.ApprovalPlan{Due: n(due), Exceeded: []api.Limit{{Limit: api.LimitMaxRows, Counted: due}}}
	}
	changed := func(due, extra int64) api.ApprovalPlan {
		return api.ApprovalPlan{Due: n(due), Exceeded: []api.Limit{{Limit: api.LimitPolicyChanged, Counted: extra}}}
	}
	for name, c := range map[string]struct {
		approved, now api.ApprovalPlan
		want          bool
	}{
		"the same": {rows(100), rows(100), true}, "less": {rows(100), rows(50), true}, "hardly more": {rows(100), rows(110), true}, "more": {rows(100), rows(111), false},
		"few":     {rows(5), rows(6), false},
		"changed": {changed(100, 10), changed(100, 11), true}, "others than were approved": {changed(100, 10), changed(100, 12), false},
		"a change that nobody approved":      {rows(100), changed(100, 1), false},
		"approved as a change, now too many": {changed(100, 10), rows(105), true}, "not counted": {api.ApprovalPlan{}, rows(1), false},
	} {
		if got := covers(c.approved, c.now); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

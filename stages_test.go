package curfew

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
)

// staged has three stages, with a schedule of its own for one. In shadow mode, so that none of them changes anything.
const staged = `  trials:
    {database: app, table: session, until: {column: expires, unit: s}, mode: shadow, schedule: {cron: "0 2 * * *"}, stages: [
      {name: remind, at: -7d, action: {notify: {webhook: {url: "https://example.org/"}}}, schedule: {cron: "1 2 * * *"}},
      {name: pause, at: 0d, where: "id > 0", action: {set: {state: paused}}},
      {name: teardown, at: 14d, where: "id <> 99", action: delete}]}
`

func newStaged(t *testing.T, policies string) *daemon {
	t.Helper()
	d := newDaemon(t, night, policies)
	d.app("ALTER TABLE session ADD COLUMN state TEXT")
	return d
}

const day = 24 * time.Hour

// Each stage has its occurrences and its runs, and all that lists them tells them apart.
func TestServeStages(t *testing.T) {
	d := newStaged(t, staged)
	d.sessions(3, night.Add(3*day))
	d.sessions(5, night.Add(-day))
	d.sessions(7, night.Add(-20*day))
	d.start()
	c := d.open()
	d.eventually("the schedules are seen", func() bool {
		s, err := mustLedger(d, c).Schedules(t.Context())
		return err == nil && len(s) == 3
	})
	d.clock.set(night.Add(80 * time.Second))
	d.eventually("the occurrences end", func() bool { return d.states(c)["shadow"] == 3 })
	runs, err := c.Runs(t.Context(), RunFilter{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, r := range runs {
		got[r.Stage] = fmt.Sprintf("%s %s, cutoff %s: %d due, %d guarded", r.Cause, r.AsOf.Format(time.TimeOnly), r.Cutoff.Format(time.DateTime), r.Outcomes["due"], r.Outcomes["guarded"])
	}
	want := map[string]string{
		"remind":   "schedule 02:01:00, cutoff 2026-07-08 02:01:00: 3 due, 0 guarded",
		"pause":    "schedule 02:00:00, cutoff 2026-07-01 02:00:00: 12 due, 0 guarded",
		"teardown": "schedule 02:00:00, cutoff 2026-06-17 02:00:00: 0 due, 7 guarded",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	statuses, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	months, err := c.Gaps(t.Context(), GapFilter{})
	if err != nil {
		t.Fatal(err)
	}
	if len(statuses) != 3 || len(months) != 3 {
		t.Fatalf("%d statuses, %d months", len(statuses), len(months))
	}
	for i, stage := range []string{"remind", "pause", "teardown"} {
		if s := statuses[i]; s.Stage != stage || !s.Well || s.LastOK == nil || s.NextDue == nil || s.Mode != "shadow" {
			t.Errorf("status %+v", s)
		}
	}
	for i, stage := range []string{"pause", "remind", "teardown"} {
		if m := months[i]; m.Stage != stage || m.Shadow != 1 || m.Occurrences != 1 {
			t.Errorf("month %+v", m)
		}
	}
	for _, r := range runs {
		if show, err := c.Show(t.Context(), r.ID); err != nil || show.Stage != r.Stage || r.Stage == "teardown" && (len(show.Blocked) != 7 || show.Blocked[0].Outcome != "guarded" || show.Blocked[0].Reason != "it has not passed stage pause, which comes before") {
			t.Errorf("show %+v, %v", show, err)
		}
	}
}

// Over HTTP, too, a stage must be named where there are several; the answer names them.
func TestTriggerStage(t *testing.T) {
	d := newStaged(t, staged+nightly)
	d.start()
	c := d.open()
	token, err := mustLedger(d, c).CreateToken(t.Context(), "scheduler", []string{"trigger"})
	if err != nil {
		t.Fatal(err)
	}
	for _, call := range []struct {
		policy, body string
		status       int
		text         string
	}{
		{"trials", `{}`, 422, "policy trials has several stages: remind, pause, teardown"},
		{"trials", `{"stage": "delete"}`, 422, `policy trials has no stage \"delete\"`},
		{"sessions", `{"stage": "pause"}`, 422, "policy sessions has no stages"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+d.addr+"/v1/policies/"+call.policy+"/runs", strings.NewReader(call.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != call.status || !strings.Contains(string(text), call.text) {
			t.Errorf("%s %s: %d %s", call.policy, call.body, resp.StatusCode, text)
		}
	}
	one, first := d.post(token, "/v1/policies/trials/runs", `{"stage": "pause"}`)
	two, second := d.post(token, "/v1/policies/trials/runs", `{"stage": "teardown"}`)
	if one != 202 || two != 202 || first.Stage != "pause" || second.Stage != "teardown" || first.ID == second.ID {
		t.Errorf("%d %+v, %d %+v", one, first, two, second)
	}
}

// From the command line the same; where there is one stage only, that is the one.
func TestRunStage(t *testing.T) {
	d := newStaged(t, staged+`  one: {database: app, table: session, until: {column: expires, unit: s}, mode: enforce, stages: [{name: end, at: 14d, action: delete}]}
`)
	d.sessions(4, night.Add(-15*day))
	d.sessions(4, night.Add(-13*day))
	c := d.open()
	for _, bad := range []struct{ policy, stage, text string }{
		{"trials", "", "policy trials has several stages: remind, pause, teardown"},
		{"trials", "ende", `policy trials has no stage "ende"`},
		{"one", "pause", `policy one has no stage "pause"`},
	} {
		if _, err := c.Run(t.Context(), RunRequest{Policy: bad.policy, Stage: bad.stage}); err == nil || err.Error() != bad.text || KindOf(err) != KindUsage {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	r, err := c.Run(t.Context(), RunRequest{Policy: "one"})
	if err != nil || r.Stage != "end" || r.Outcomes["deleted"] != 4 || d.rows() != 4 {
		t.Errorf("%+v, %v", r, err)
	}
	asOf := night.Add(-time.Hour)
	var ids []string
	for _, stage := range []string{"pause", "teardown", "pause"} {
		r, err := c.Run(t.Context(), RunRequest{Policy: "trials", Stage: stage, AsOf: &asOf})
		if err != nil || r.Stage != stage {
			t.Fatalf("%+v, %v", r, err)
		}
		ids = append(ids, r.ID)
	}
	if ids[0] == ids[1] || ids[0] != ids[2] {
		t.Errorf("one as_of is one run of each stage: %v", ids)
	}
}

// Plans count what a stage would do, and explain says what a row has passed and what comes next.
func TestExplainStages(t *testing.T) {
	d := newStaged(t, strings.Replace(staged, "mode: shadow", "mode: enforce", 1))
	due := night.Add(-20 * day)
	d.app(fmt.Sprintf("INSERT INTO session (id, expires) VALUES (1, %d), (2, %d), (3, %d)", due.Unix(), due.Unix(), night.Add(day).Unix()))
	c := d.open()
	next := func(id string) (api.Explanation, string) {
		t.Helper()
		e, err := c.Explain(t.Context(), "trials", []string{id})
		if err != nil {
			t.Fatal(err)
		}
		var states []string
		for _, s := range e.Stages {
			states = append(states, s.Stage+" "+s.State)
		}
		return e, e.Stage + ": " + strings.Join(states, ", ")
	}
	e, got := next("1")
	if got != "pause: remind over, pause now, teardown waits" || !e.Due || e.Verdict != "Stage pause would act on it now." {
		t.Errorf("%s: %s", got, e.Verdict)
	}
	if e, got := next("3"); got != "remind: remind now, pause later, teardown later" || e.Verdict != "Stage remind would act on it now." {
		t.Errorf("%s: %s", got, e.Verdict)
	}
	paused := night.Add(-2 * day)
	d.app(fmt.Sprintf("INSERT INTO curfew_passage VALUES ('trials', x'%s', 'pause', %d, 'done', %d, 'run of the pause', NULL, 1, '', '')", e.Row, due.UnixMicro(), paused.UnixMicro()))
	e, got = next("1")
	if got != "teardown: remind over, pause passed, teardown later" || e.Verdict != "Stage teardown leaves it as it is: stage pause came late, and this one counts from it: not before 2026-07-13T01:59:50Z." {
		t.Errorf("%s: %s", got, e.Verdict)
	}
	if s := e.Stages[1]; s.Run != "run of the pause" || !s.PassedAt.Equal(paused) || !e.Stages[2].NotBefore.Equal(paused.Add(14*day)) || !e.Stages[2].At.Equal(due.Add(14*day)) {
		t.Errorf("stages %+v", e.Stages)
	}
	if e, err := c.ExplainStage(t.Context(), "trials", "pause", []string{"1"}); err != nil || e.Verdict != "Stage pause leaves it as it is: it has passed stage pause." {
		t.Errorf("%s, %v", e.Verdict, err)
	}
	plans, err := c.Plan(t.Context(), "trials")
	if err != nil {
		t.Fatal(err)
	}
	var counts []string
	for _, p := range plans {
		counts = append(counts, fmt.Sprintf("%s %s: %d due, %d guarded; %s", p.Stage, p.Action, p.Due, p.Guarded, p.Rule))
	}
	want := []string{
		"remind notify: 1 due, 0 guarded; notify once expires has passed (read in seconds); stage remind 7 days before that",
		"pause set: 1 due, 0 guarded; set state to paused once expires has passed (read in seconds); stage pause then",
		"teardown delete: 1 due, 1 guarded; delete once expires has passed (read in seconds); stage teardown 14 days after that, once stage pause is passed",
	}
	if diff := cmp.Diff(want, counts); diff != "" {
		t.Error(diff)
	}
	findings, err := c.Check(t.Context(), "trials")
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]int{}
	for _, f := range findings {
		count[f.Code]++
	}
	if count["ready"] != 3 || count["schedule"] != 3 {
		t.Errorf("findings %v", count)
	}
}

// A stage that leaves its policy leaves nothing behind: its schedule ends, and its open runs are cancelled.
func TestStageLeaves(t *testing.T) {
	d := newStaged(t, staged)
	c := d.open()
	d.start()
	kept := func() (names []string) {
		s, err := mustLedger(d, c).Schedules(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range s {
			names = append(names, s.Stage)
		}
		return names
	}
	d.eventually("the schedules are seen", func() bool { return len(kept()) == 3 })
	d.halt()
	p, err := c.policy("trials")
	if err != nil {
		t.Fatal(err)
	}
	q, _ := p.Narrow("pause")
	a := ledger.Acceptance{Policy: "trials", Stage: "pause", Mode: "shadow", Identity: ledger.IdentityOnce(), Cause: "cli", Cutoff: q.Cutoff}
	a.RevisionID, a.Revision = q.Revision()
	open, _, err := mustLedger(d, c).Accept(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	d.file = strings.Replace(staged, "name: pause", "name: freeze", 1)
	d.start()
	d.eventually("the new schedules are seen", func() bool { return slices.Contains(kept(), "freeze") })
	if got := kept(); slices.Contains(got, "pause") || len(got) != 3 {
		t.Errorf("schedules of %v", got)
	}
	if r, err := mustLedger(d, c).Get(t.Context(), open.ID); err != nil || r.State != ledger.Cancelled || r.WhyEnded != "stage_gone" {
		t.Errorf("its open run: %s %s, %v", r.State, r.WhyEnded, err)
	}
}

// What comes after a policy with stages waits for those of them that have the same instant.
func TestAfterStages(t *testing.T) {
	d := newStaged(t, staged+strings.Replace(nightly, `action: delete, mode: enforce`, `action: delete, mode: shadow, after: trials`, 1))
	d.sessions(20, night.Add(-day))
	d.start()
	c := d.open()
	d.eventually("the schedules are seen", func() bool {
		s, err := mustLedger(d, c).Schedules(t.Context())
		return err == nil && len(s) == 4
	})
	d.clock.set(night.Add(11 * time.Second))
	d.eventually("all are done", func() bool { return d.states(c)["shadow"] == 3 })
	runs, err := c.Runs(t.Context(), RunFilter{})
	if err != nil {
		t.Fatal(err)
	}
	ended := map[string]time.Time{}
	for _, r := range runs {
		if r.State != api.StateSucceeded {
			t.Errorf("%s %s: %s", r.Policy, r.Stage, r.State)
		}
		ended[r.Policy+r.Stage] = *r.EndedAt
	}
	for _, before := range []string{"trialspause", "trialsteardown"} {
		for _, r := range runs {
			if r.Policy == "sessions" && r.StartedAt.Before(ended[before]) {
				t.Errorf("it began at %s, before %s ended at %s", r.StartedAt, before, ended[before])
			}
		}
	}
	if ended["trialsteardown"].Before(ended["trialspause"]) {
		t.Error("the teardown did not wait for the pause of the same instant")
	}
}

// A worker pool passes stages as this process would; it is told which one, and what may come before the due instant it decides itself.
func TestPoolStages(t *testing.T) {
	g := newRegion(t, `  loans: {database: app, table: loan, until: ended, mode: shadow, stages: [
    {name: remind, at: -7d, action: {notify: {webhook: {url: "https://example.org/"}}}},
    {name: pause, at: 0d, action: {set: {state: paused}}},
    {name: end, at: 14d, action: delete}]}
  ends: {database: app, table: loan, until: ended, mode: enforce, stages: [{name: end, at: 14d, action: delete}]}
  tells: {database: app, table: loan, until: ended, mode: enforce, action: {notify: {webhook: {url: "https://example.org/"}}}}
`)
	g.exec("ALTER TABLE loan ADD COLUMN state text")
	g.exec("INSERT INTO loan (id, ended) SELECT 'r' || i, now() + interval '1 day' FROM generate_series(1, 3) i", "INSERT INTO loan (id, ended) SELECT 'd' || i, now() - interval '20 days' FROM generate_series(1, 5) i")
	g.startPool()
	c := g.dispatcher()
	for stage, want := range map[string]api.Outcomes{"remind": {"due": 3}, "pause": {"due": 5}, "end": {"guarded": 5}} {
		r, err := c.Run(t.Context(), RunRequest{Policy: "loans", Stage: stage})
		if err != nil || r.Stage != stage || !cmp.Equal(r.Outcomes, want) {
			t.Errorf("%s: %+v, %v", stage, r, err)
		}
	}
	// Its secrets would be the pool's, and sent wherever a dispatcher says.
	if _, err := c.Run(t.Context(), RunRequest{Policy: "tells"}); err == nil || !strings.Contains(err.Error(), "action notify is not available in a worker pool") {
		t.Error(err)
	}
	if r, err := c.Run(t.Context(), RunRequest{Policy: "ends"}); err != nil || r.Outcomes["deleted"] != 5 || g.count("SELECT count(*) FROM loan") != 3 {
		t.Errorf("%+v, %v\n%s", r, err, g.logs)
	}
}

// The daemon's sweep, which a day passes before, called at once.
func TestSweepPolicy(t *testing.T) {
	d := newStaged(t, strings.Replace(staged, "mode: shadow", "mode: enforce", 1))
	d.app(fmt.Sprintf("INSERT INTO session (id, expires) VALUES (1, %d)", night.Unix()))
	c := d.open()
	e, err := c.Explain(t.Context(), "trials", []string{"1"})
	if err != nil {
		t.Fatal(err)
	}
	for i, row := range []string{e.Row, "000102030405060708090a0b0c0d0e0f"} {
		for _, changed := range []time.Time{night.Add(-31 * day), night.Add(-29 * day)}[:2-i] {
			d.app(fmt.Sprintf("INSERT INTO curfew_passage VALUES ('trials', x'%s', 'pause', %d, 'done', 0, 'r', NULL, 1, '', '%s')", row, changed.Unix(), changed.Format("2006-01-02 15:04:05.000")))
		}
	}
	p, err := c.policy("trials")
	if err != nil {
		t.Fatal(err)
	}
	keys, err := c.keys()
	if err != nil {
		t.Fatal(err)
	}
	beats := 0
	if n, err := c.sweepPolicy(t.Context(), stages(p)[0], keys, func() { beats++ }); n != 1 || err != nil || beats == 0 {
		t.Errorf("%d rows, %v, %d beats", n, err, beats)
	}
}

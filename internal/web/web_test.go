package web

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
)

func TestRoutes(t *testing.T) {
	onBoth(t, func(s *site) {
		t := s.t
		for _, c := range []struct {
			method, target, scope string
			status                int
			body                  string // or a part of it
		}{
			{"GET", "/v1/runs", "read", 200, `{"items":[],"next":""}`},
			{"GET", "/v1/policies", "read", 200, `{"items":[],"next":""}`},
			{"GET", "/v1/calls", "read", 200, `{"items":[],"next":""}`},
			{"GET", "/v1/occurrences", "read", 200, `"next":"more"`},
			{"GET", "/v1/runs", "admin", 200, `{"items":[],"next":""}`},
			{"HEAD", "/v1/runs", "read", 200, ``},
			{"GET", "/v1/runs", "trigger", 403, ``},
			{"GET", "/v1/runs", "", 401, ``},
			{"GET", "/v1/runs?polcy=x", "read", 422, ``},
			{"GET", "/v1/runs?policy=x&policy=y", "read", 422, ``},
			{"GET", "/v1/runs?limit=0", "read", 422, ``},
			{"GET", "/v1/runs?limit=many", "read", 422, ``},
			{"GET", "/v1/calls?since=yesterday", "read", 422, ``},
			{"GET", "/v1/calls?before=x", "read", 422, ``},
			{"GET", "/v1/policies?x=1", "read", 422, ``},
			{"GET", "/v1/runs/" + strings.Repeat("ab", 32), "read", 404, ``},
			{"GET", "/v1/runs/zz", "read", 404, ``},
			{"POST", "/v1/runs/" + strings.Repeat("ab", 32) + "/cancel", "admin", 404, ``},
			{"POST", "/v1/runs/" + strings.Repeat("ab", 32) + "/cancel", "trigger", 403, ``},
			{"POST", "/v1/runs/" + strings.Repeat("ab", 32) + "/approve", "admin", 404, ``},
			{"POST", "/v1/runs/" + strings.Repeat("ab", 32) + "/approve", "trigger", 403, ``},
			{"GET", "/v1/nothing", "admin", 404, `nothing at this address`},
			{"GET", "/", "", 404, ``},
			{"DELETE", "/v1/runs", "admin", 405, `takes GET, HEAD`},
			{"GET", runsOf, "admin", 405, `takes POST`},
			{"PUT", runsOf, "admin", 405, ``},
			{"GET", "/healthz", "", 200, `"ok"`},
			{"GET", "/readyz", "", 200, `"ready":true`},
			{"GET", "/metrics", "", 200, `curfew_ledger_up 1`},
		} {
			edit := func(*http.Request) {}
			if c.scope != "" {
				edit = s.as(c.scope)
			}
			a := s.do(c.method, c.target, "", edit)
			if a.status != c.status || !strings.Contains(a.body, c.body) {
				t.Errorf("%s %s as %q: %d %.200s, want %d and %q", c.method, c.target, c.scope, a.status, a.body, c.status, c.body)
			}
			if a.status == 405 && a.header.Get("Allow") == "" {
				t.Errorf("%s %s: no Allow", c.method, c.target)
			}
		}
		if n := len(s.calls()); n != 0 {
			t.Errorf("%d calls were recorded, none asked for a run", n)
		}
		s.do("GET", "/v1/runs?policy=a%26b&state=failed&before=x&limit=5000", "", s.as("read"))
		if got, want := s.e.runs[len(s.e.runs)-1], (RunFilter{Policy: "a&b", State: "failed", Before: "x", Limit: listMost}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
}

func TestCancelAndCalls(t *testing.T) {
	onBoth(t, func(s *site) {
		t := s.t
		var run api.Run
		if err := json.Unmarshal([]byte(s.do("POST", runsOf, `{}`, s.as("trigger")).body), &run); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			s.do("POST", runsOf, `{}`, s.as("trigger"))
		}
		if a := s.do("POST", "/v1/runs/"+run.ID+"/cancel", "", s.as("admin")); a.status != 200 || !strings.Contains(a.body, `"state":"cancelled"`) {
			t.Errorf("%d %s", a.status, a.body)
		}
		var seen []api.Call
		for next := ""; ; {
			target := "/v1/calls?policy=circulation&limit=2&since=2020-01-01T00:00:00Z"
			if next != "" {
				target += "&before=" + next
			}
			var page page[api.Call]
			if err := json.Unmarshal([]byte(s.do("GET", target, "", s.as("read")).body), &page); err != nil {
				t.Fatal(err)
			}
			seen = append(seen, page.Items...)
			if next = page.Next; next == "" {
				break
			}
		}
		if len(seen) != 5 || !seen[4].Fresh || seen[0].Fresh || seen[2].Run != run.ID || seen[1].At.IsZero() {
			t.Errorf("%+v", seen)
		}
	})
}

// TestCrossOrigin: a page of another site gets nowhere, also with a token.
func TestCrossOrigin(t *testing.T) {
	onBoth(t, func(s *site) {
		a := s.do("POST", runsOf, `{}`, s.as("trigger"), with("Sec-Fetch-Site", "cross-site"))
		if a.status != 403 || len(s.e.requests) != 0 {
			s.t.Errorf("%d %s", a.status, a.body)
		}
	})
}

func TestPanic(t *testing.T) {
	onBoth(t, func(s *site) {
		s.e.l = nil // whatever: the engine breaks
		a := s.do("POST", runsOf, `{}`, s.as("trigger"))
		if a.status != 500 || !strings.Contains(s.logged.String(), "http_panic") {
			s.t.Errorf("%d %s; %s", a.status, a.body, s.logged)
		}
	})
}

// TestReady: it names what failed and not how, and asks once a second at most.
func TestReady(t *testing.T) {
	onBoth(t, func(s *site) {
		t := s.t
		s.e.checks = []Check{{"ledger", nil}, {"tick", errors.New("no sign of life, host=10.0.0.1")}}
		a := s.do("GET", "/readyz", "")
		if a.status != 503 || strings.TrimSpace(a.body) != `{"ready":false,"failed":["tick"],"passed":["ledger"]}` || !strings.Contains(s.logged.String(), "no sign of life") {
			t.Errorf("%d %s; logged %s", a.status, a.body, s.logged)
		}
		s.e.checks = []Check{{"ledger", nil}, {"tick", nil}}
		for range 50 {
			s.do("GET", "/readyz", "")
		}
		if s.e.asked != 1 {
			t.Errorf("asked %d times within a second", s.e.asked)
		}
		s.clock.pass(readyFor)
		if a := s.do("GET", "/readyz", ""); a.status != 200 || s.e.asked != 2 || !strings.Contains(s.logged.String(), "check_passed") {
			t.Errorf("%d %s, asked %d times", a.status, a.body, s.e.asked)
		}
		if a := s.do("GET", "/healthz", ""); a.status != 200 {
			t.Errorf("healthz: %d", a.status)
		}
	})
}

func TestMetrics(t *testing.T) {
	m := NewMetrics()
	onBoth(t, func(s *site) {
		t := s.t
		next := time.Date(2026, 7, 1, 2, 0, 0, 0, time.UTC)
		s.e.statuses = []api.PolicyStatus{{Policy: "circulation", Mode: "enforce", Well: true, NextDue: &next}, {Policy: "trials", Stage: "pause", Mode: "shadow", Paused: true}}
		s.do("POST", runsOf, `{}`, s.as("trigger"))
		s.do("POST", "/v1/policies/"+strings.Repeat("x", 30)+"/runs", `{}`, s.as("trigger"))
		a := s.do("GET", "/metrics", "")
		for _, line := range []string{
			`curfew_ledger_up 1`,
			`curfew_undispatched_runs 1`,
			`curfew_runs_open{cause="http",mode="enforce",policy="circulation",stage="",state="accepted"} 1`,
			`curfew_runs_ended_total{cause="schedule",mode="enforce",policy="circulation",stage="",state="failed"} 0`,
			`curfew_runs_ended_total{cause="catch_up",mode="shadow",policy="trials",stage="pause",state="failed"} 0`,
			`curfew_next_due_timestamp_seconds{policy="circulation",stage=""} 1.7828712e+09`,
			`curfew_policy_well{policy="circulation",stage=""} 1`,
			`curfew_policy_well{policy="trials",stage="pause"} 0`,
			`curfew_policy_paused{policy="trials",stage="pause"} 1`,
			`curfew_batch_retries_total`,
			`go_goroutines`,
		} {
			if !strings.Contains(a.body, line) {
				t.Errorf("%s is missing in\n%s", line, grep(a.body, strings.SplitN(line, "{", 2)[0]))
			}
		}
		if strings.Contains(a.body, "xxxx") {
			t.Error("a caller made a label")
		}
		if problems, err := testutil.CollectAndLint(newGauges(s.l.NewMeter(), s.e, nil, s.clock.Now)); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
		// The ledger goes away: the scrape says so, and tells nothing old.
		if err := s.l.Close(); err != nil {
			t.Fatal(err)
		}
		if a := s.do("GET", "/metrics", ""); !strings.Contains(a.body, "curfew_ledger_up 1") {
			t.Error("a reading is not good for a second")
		}
		s.clock.pass(gaugesFor)
		if a := s.do("GET", "/metrics", ""); a.status != 200 || !strings.Contains(a.body, "curfew_ledger_up 0") || strings.Contains(a.body, "curfew_runs_open{") ||
			!strings.Contains(a.body, "curfew_triggers_total") {
			t.Errorf("without the ledger: %d %s", a.status, grep(a.body, "curfew_"))
		}
	}, func(o *Options) { o.Metrics = m })
	t.Cleanup(func() {
		m.BatchRetried()
		m.AdmissionWaited("in_flight")
		if n := testutil.ToFloat64(m.retries) + testutil.ToFloat64(m.waits.WithLabelValues("in_flight")); n != 2 {
			t.Errorf("counted %v", n)
		}
	})
}

// TestGaugesOfSchedules: what the ledger knows of schedules becomes series, with zeros from the start.
func TestGaugesOfSchedules(t *testing.T) {
	now := time.Date(2026, 7, 1, 2, 0, 0, 0, time.UTC)
	k, done, never := ledger.StageSeries{Policy: "p"}, ledger.StageSeries{Policy: "q"}, ledger.StageSeries{Policy: "r"}
	g := &gauges{up: true, counts: ledger.Counts{
		Now: now, LastSuccess: map[ledger.StageSeries]time.Time{k: now},
		Occurrences: map[ledger.OccurrenceSeries]int64{{Policy: "p", State: "missed"}: 3, {Policy: "p", State: "pending"}: 1},
		Rows:        map[ledger.RowSeries]int64{{Policy: "p", Mode: "enforce", Outcome: "no_longer_due"}: 2},
		Cascaded:    map[ledger.RowSeries]int64{{Policy: "p", Mode: "enforce"}: 4},
		Schedules: map[ledger.StageSeries]ledger.Scheduling{k: {Ticked: now, OldestDue: now.Add(-time.Hour), OldestAt: now},
			done: {Ticked: now, OldestAt: now}, never: {Ticked: now}},
	}}
	want := `
# HELP curfew_cascaded_rows_total Rows that went along by an accepted cascade.
# TYPE curfew_cascaded_rows_total counter
curfew_cascaded_rows_total{mode="enforce",policy="p",stage=""} 4
# HELP curfew_occurrences_pending Scheduled instants that have passed and have not ended.
# TYPE curfew_occurrences_pending gauge
curfew_occurrences_pending{policy="p",stage=""} 1
curfew_occurrences_pending{policy="q",stage=""} 0
curfew_occurrences_pending{policy="r",stage=""} 0
# HELP curfew_oldest_due_age_seconds Age of the oldest due row past its due instant, as last looked up; 0 when none was due.
# TYPE curfew_oldest_due_age_seconds gauge
curfew_oldest_due_age_seconds{policy="p",stage=""} 3600
curfew_oldest_due_age_seconds{policy="q",stage=""} 0
# HELP curfew_rows_total Rows of settled batches, by what became of them.
# TYPE curfew_rows_total counter
curfew_rows_total{mode="enforce",outcome="no_longer_due",policy="p",stage=""} 2
# HELP curfew_last_success_timestamp_seconds When the last enforcing run succeeded.
# TYPE curfew_last_success_timestamp_seconds gauge
curfew_last_success_timestamp_seconds{policy="p",stage=""} 1.7828712e+09
`
	if err := testutil.CollectAndCompare(g, strings.NewReader(want), "curfew_cascaded_rows_total", "curfew_occurrences_pending",
		"curfew_oldest_due_age_seconds", "curfew_rows_total", "curfew_last_success_timestamp_seconds"); err != nil {
		t.Error(err)
	}
	if n := testutil.CollectAndCount(g, "curfew_occurrences_total"); n != 3*len(occurrenceStates) {
		t.Errorf("%d series of occurrences, want zeros too", n)
	}
}

func TestNewNeedsItsParts(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("a site without a ledger")
	}
}

// TestAlertRules runs the rules that come with the program through promtool.
func TestAlertRules(t *testing.T) {
	promtool := os.Getenv("CURFEW_TEST_PROMTOOL")
	if promtool == "" {
		var err error
		if promtool, err = exec.LookPath("promtool"); err != nil {
			const why = "the alert rules are NOT tested: there is no promtool; it is in Debian's package prometheus (see scripts/promtool.sh)"
			if os.Getenv("CI") == "true" {
				t.Fatal(why)
			}
			t.Skip(why)
		}
	}
	dir := t.TempDir()
	for _, name := range []string{"../../docs/alerts.prometheus.yml", "testdata/alerts_test.yml"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(name)), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"check", "rules", "alerts.prometheus.yml"}, {"test", "rules", "alerts_test.yml"}} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

// TestAlertsNameSeries: every series that a rule asks for is one that there is.
func TestAlertsNameSeries(t *testing.T) {
	text, err := os.ReadFile("../../docs/alerts.prometheus.yml")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{"curfew_triggers_total": true, "curfew_unauthorised_total": true}
	for _, d := range allDescs {
		_, name, _ := strings.Cut(d.String(), `fqName: "`)
		name, _, _ = strings.Cut(name, `"`)
		known[name] = true
	}
	var unknown []string
	for _, word := range strings.FieldsFunc(string(text), func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') }) {
		if strings.HasPrefix(word, "curfew_") && !known[word] {
			unknown = append(unknown, word)
		}
	}
	if d := cmp.Diff([]string(nil), unknown); d != "" {
		t.Error(d)
	}
}

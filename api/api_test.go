package api_test

import (
	"encoding/json"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/api"
)

func at(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		panic(err)
	}
	return t
}

func ptr[T any](v T) *T { return &v }

// TestJSON pins the text that other programs read.
func TestJSON(t *testing.T) {
	run := api.Run{
		ID: strings.Repeat("ab", 32), Policy: "circulation", Cause: "schedule", AsOf: at("2026-07-01T02:00:00Z"), Cutoff: at("2024-07-01T02:00:00Z"),
		Mode: "enforce", State: "succeeded", WhyEnded: "done", Revision: "cd", Planned: 38120,
		Outcomes: api.Outcomes{"deleted": 38117, "no_longer_due": 2, "held": 1, "blocked": 0},
		Batches:  api.BatchCount{Total: 39, Settled: 39}, AcceptedAt: at("2026-07-01T02:00:00.000412Z"),
		StartedAt: ptr(at("2026-07-01T02:00:01Z")), EndedAt: ptr(at("2026-07-01T02:00:03.5Z")),
	}
	accepted := run
	accepted.State, accepted.WhyEnded, accepted.Outcomes, accepted.Planned = "accepted", "", nil, 0
	accepted.StartedAt, accepted.EndedAt, accepted.Batches = nil, nil, api.BatchCount{}
	const runJSON = `{"id":"abababababababababababababababababababababababababababababababab","policy":"circulation","stage":"","operation":"",` +
		`"cause":"schedule","as_of":"2026-07-01T02:00:00Z","cutoff":"2024-07-01T02:00:00Z","mode":"enforce","state":"succeeded","why_ended":"done",` +
		`"detail":"","revision":"cd","planned":38120,"outcomes":{"deleted":38117,"held":1,"no_longer_due":2},"cascaded":0,` +
		`"batches":{"total":39,"settled":39},"accepted_at":"2026-07-01T02:00:00.000412Z","started_at":"2026-07-01T02:00:01Z","ended_at":"2026-07-01T02:00:03.5Z"`
	for _, test := range []struct {
		name string
		v    any
		want string
	}{
		{"run", run, runJSON + `}`},
		{"run not started", accepted, `{"id":"abababababababababababababababababababababababababababababababab","policy":"circulation","stage":"","operation":"",` +
			`"cause":"schedule","as_of":"2026-07-01T02:00:00Z","cutoff":"2024-07-01T02:00:00Z","mode":"enforce","state":"accepted","why_ended":"",` +
			`"detail":"","revision":"cd","planned":0,"outcomes":{},"cascaded":0,` +
			`"batches":{"total":0,"settled":0},"accepted_at":"2026-07-01T02:00:00.000412Z","started_at":null,"ended_at":null}`},
		{"run in detail", api.RunDetail{
			Run: run, BatchTimes: api.BatchTimes{Rows: 38120, MinMS: 4, MedianMS: 19, MaxMS: 80},
			Blocked: []api.BlockedRow{{Row: "0f", Outcome: "blocked", Reason: "damage_claim", FirstSeen: at("2026-06-30T02:00:00Z"), LastSeen: at("2026-07-01T02:00:00Z")}},
			Audit:   []api.AuditEntry{{Seq: 7, At: at("2026-07-01T02:00:00Z"), Event: "run_accepted", Actor: "root@box", Run: "ab", Data: json.RawMessage(`{"mode":"enforce"}`)}},
		}, runJSON + `,"batch_times":{"rows":38120,"min_ms":4,"median_ms":19,"max_ms":80},"approval":null,` +
			`"blocked_rows":[{"row":"0f","outcome":"blocked","reason":"damage_claim","first_seen":"2026-06-30T02:00:00Z","last_seen":"2026-07-01T02:00:00Z"}],` +
			`"audit":[{"seq":7,"at":"2026-07-01T02:00:00Z","event":"run_accepted","actor":"root@box","run":"ab","data":{"mode":"enforce"}}]}`},
		{"finding", api.Finding{Policy: "circulation", Database: "library", Level: api.LevelWarn, Code: "no_index", Message: "m", Hint: "h", Statement: "s"},
			`{"policy":"circulation","database":"library","level":"warn","code":"no_index","message":"m","hint":"h","statement":"s"}`},
		{"plan of nothing due", api.PolicyPlan{Policy: "circulation", Mode: "shadow", Action: "delete", Database: "library", Table: "circulation_event",
			Rule: "r", AsOf: at("2026-07-01T02:00:00Z"), Cutoff: at("2024-07-01T02:00:00Z"), Next: []time.Time{}},
			`{"policy":"circulation","stage":"","mode":"shadow","action":"delete","authority":"","database":"library","table":"circulation_event","rule":"r","where":"","unless":"",` +
				`"as_of":"2026-07-01T02:00:00Z","cutoff":"2024-07-01T02:00:00Z","due":0,"oldest":"","nulls":0,"unreadable":0,"guarded":0,"held":0,"blocked":0,"cascaded":0,"schedule":"","next":[],"open_run":"","would_wait":""}`},
		{"explanation", api.Explanation{Policy: "circulation", Row: "0f", AsOf: at("2026-07-01T02:00:00Z"), Cutoff: at("2024-07-01T02:00:00Z"),
			Conditions: []api.Condition{{Name: "exists", Passes: ptr(false), Detail: "d"}, {Name: "guard"}}, Verdict: "v"},
			`{"policy":"circulation","stage":"","row":"0f","as_of":"2026-07-01T02:00:00Z","cutoff":"2024-07-01T02:00:00Z","exists":false,"trigger":null,` +
				`"due_at":null,"due":false,"deleted_at":null,"deleted_by":"","conditions":[{"name":"exists","passes":false,"detail":"d"},{"name":"guard","passes":null,"detail":""}],"verdict":"v"}`},
		{"status", api.PolicyStatus{Policy: "circulation", Mode: "enforce", Schedule: "s", Problem: "p", Hint: "h", LastOK: ptr(at("2026-07-01T02:00:00Z")), LastOKRun: "ab", Missed: 3, LagSeconds: ptr(int64(7))},
			`{"policy":"circulation","stage":"","mode":"enforce","schedule":"s","well":false,"problem":"p","hint":"h","last_ok":"2026-07-01T02:00:00Z","last_ok_run":"ab",` +
				`"next_due":null,"open_run":"","waiting":"","missed":3,"failed":0,"skipped":0,"expired":0,"lag_seconds":7,"paused":false,"paused_since":null,"holds":0}`},
		{"occurrence", api.OccurrenceItem{Policy: "circulation", At: at("2026-07-01T02:00:00Z"), StartBy: at("2026-07-01T03:00:00Z"), State: api.OccurrencePending, CreatedAt: at("2026-07-01T02:00:01Z")},
			`{"policy":"circulation","stage":"","at":"2026-07-01T02:00:00Z","start_by":"2026-07-01T03:00:00Z","external":false,"state":"pending","why":"","run":"",` +
				`"created_at":"2026-07-01T02:00:01Z","ended_at":null}`},
		{"gap", api.GapMonth{Policy: "circulation", Month: "2026-04", Occurrences: 30, Missed: 30},
			`{"policy":"circulation","stage":"","month":"2026-04","occurrences":30,"ok":0,"failed":0,"skipped":0,"expired":0,"missed":30,"shadow":0,"runs":0,"changed":0}`},
		{"call", api.Call{At: at("2026-07-01T02:00:00Z"), Token: "nightly", Policy: "circulation", Answer: 202, Run: "ab", Fresh: true},
			`{"at":"2026-07-01T02:00:00Z","token":"nightly","policy":"circulation","stage":"","answer":202,"run":"ab","fresh":true,"detail":""}`},
		{"token", api.TokenInfo{Name: "nightly", Scopes: []string{"trigger"}, CreatedAt: at("2026-07-01T02:00:00Z")},
			`{"name":"nightly","scopes":["trigger"],"created_at":"2026-07-01T02:00:00Z","last_used":null,"revoked_at":null}`},
		{"new token", api.NewToken{Name: "nightly", Scopes: []string{"trigger"}, Token: "cfw_x"}, `{"name":"nightly","scopes":["trigger"],"token":"cfw_x"}`},
		{"pause", api.Pause{Policy: "circulation", Since: at("2026-07-01T02:00:00Z"), Actor: "root@box", Reason: "audit"},
			`{"policy":"circulation","since":"2026-07-01T02:00:00Z","actor":"root@box","reason":"audit"}`},
		{"problem", api.Problem{Type: "about:blank", Title: "Not Found", Status: 404, Detail: "no run abc"},
			`{"type":"about:blank","title":"Not Found","status":404,"detail":"no run abc"}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := json.Marshal(test.v)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, string(got)); diff != "" {
				t.Errorf("JSON (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRunRoundTrip(t *testing.T) {
	want := api.Run{ID: "ab", AsOf: at("2026-07-01T02:00:00.123456Z"), Outcomes: api.Outcomes{"deleted": 3}, StartedAt: ptr(at("2026-07-01T02:00:01Z"))}
	text, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got api.Run
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("a run came back different (-want +got):\n%s", diff)
	}
}

func TestOutcomes(t *testing.T) {
	o := api.Outcomes{"blocked": 1, "deleted": 5, "held": 0, "zapped": 2, "no_longer_due": 3}
	if got := o.Sum(); got != 11 {
		t.Errorf("sum %d, want 11", got)
	}
	want := []string{"deleted", "no_longer_due", "blocked", "zapped"}
	if diff := cmp.Diff(want, o.Names()); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
}

func TestEnded(t *testing.T) {
	for state, want := range map[string]bool{
		api.StateAccepted: false, api.StateRunning: false, api.StateAwaitingApproval: false,
		api.StateSucceeded: true, api.StateFailed: true, api.StateSkipped: true, api.StateExpired: true, api.StateCancelled: true,
	} {
		if got := (api.Run{State: state}).Ended(); got != want {
			t.Errorf("a run that is %s has ended: %v, want %v", state, got, want)
		}
	}
}

// TestImportsNothing keeps the package one that others can take alone.
func TestImportsNothing(t *testing.T) {
	files, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") || strings.HasSuffix(f.Name(), "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.Name(), nil, parser.ImportsOnly)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range parsed.Imports {
			if strings.Contains(i.Path.Value, ".") {
				t.Errorf("%s imports %s: only the standard library may be", f.Name(), i.Path.Value)
			}
		}
	}
}

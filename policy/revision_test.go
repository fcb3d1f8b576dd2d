package policy_test

import (
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/policy"
	"github.com/google/go-cmp/cmp"
)

// full is a policy with every field set.
func full() *policy.Policy {
	return &policy.Policy{
		Name: "circulation", Description: "words", Authority: "law", Database: "library", Table: "circulation_event", Key: []string{"id"},
		Trigger: policy.Trigger{Column: "occurred_at", Zone: "UTC", Null: policy.NullNever, ImplausibleBefore: &policy.Date{Year: 2000, Month: 1, Day: 31}},
		Keep:    policy.Period{Years: 1, Months: 6}, Where: "branch <> 'a&b'", Unless: "open", Subject: "patron_id", Action: policy.Action{Kind: policy.Delete},
		Cascade: []string{"fine"}, Triggers: []string{"audit_copy"}, After: "old_issues", Mode: policy.Enforce, Timezone: "Europe/Berlin",
		Schedule: &policy.Schedule{Cron: "0 2 * * *", StartWithin: time.Hour, Overlap: "skip", CatchUp: "latest", By: "external", Grace: time.Hour},
		Batch:    policy.DefaultBatch(), Retry: policy.DefaultRetry(), Limits: policy.Limits{RetentionLag: 26 * time.Hour}, AtCutoff: policy.DueAtCutoff,
	}
}

// The texts below are in ledgers. If this test fails, stored revisions change
// their ids: add fields with omitempty, and change nothing else.
func TestRevisionIsStable(t *testing.T) {
	for name, c := range map[string]struct {
		policy   *policy.Policy
		id, text string
	}{
		"full": {full(), "8c223c4a5b87964005eeb5892b8cf35538d02f5182279d4338e6fe846c30f11a", `{"name":"circulation","description":"words","authority":"law","database":"library","table":"circulation_event","key":["id"],` +
			`"trigger":{"column":"occurred_at","zone":"UTC","null":"never","implausible_before":"2000-01-31"},"keep":"P1Y6M","where":"branch <> 'a&b'","unless":"open","subject":"patron_id",` +
			`"action":"delete","cascade":["fine"],"triggers":["audit_copy"],"after":"old_issues","mode":"enforce","timezone":"Europe/Berlin",` +
			`"schedule":{"cron":"0 2 * * *","start_within_ns":3600000000000,"overlap":"skip","catch_up":"latest","by":"external","grace_ns":3600000000000},` +
			`"batch":{"rows":1000,"in_flight":2,"target_ns":500000000,"pace":50000},"retry":{"attempts":5,"backoff_ns":10000000000,"factor":10},"limits":{"retention_lag_ns":93600000000000},"at_cutoff":"due"}`},
		"least": {
			&policy.Policy{Name: "s", Database: "d", Table: "t", Trigger: policy.Trigger{Until: true, Column: "u"}, Action: policy.Action{Kind: policy.Delete}, Mode: policy.Shadow, Timezone: "UTC", Batch: policy.DefaultBatch(), Retry: policy.DefaultRetry()},
			"356fcf5bb7c61f8a516c53a15eefb4d3ba294c2094ab34ef700b0195fb99245b", `{"name":"s","database":"d","table":"t","trigger":{"until":true,"column":"u"},"action":"delete","mode":"shadow","timezone":"UTC",` +
				`"batch":{"rows":1000,"in_flight":2,"target_ns":500000000,"pace":50000},"retry":{"attempts":5,"backoff_ns":10000000000,"factor":10}}`,
		},
	} {
		id, canonical := c.policy.Revision()
		if id != c.id || string(canonical) != c.text {
			t.Errorf("%s: revision %s\n%s", name, id, cmp.Diff(c.text, string(canonical)))
		}
		again, err := policy.FromRevision(canonical)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.policy, again, unexported); diff != "" {
			t.Errorf("%s (-policy +revision):\n%s", name, diff)
		}
	}
}

func TestRevisionSeesEveryChange(t *testing.T) {
	base, _ := full().Revision()
	for name, change := range map[string]func(*policy.Policy){
		"keep": func(p *policy.Policy) { p.Keep.Months++ }, "where": func(p *policy.Policy) { p.Where = "" }, "mode": func(p *policy.Policy) { p.Mode = policy.Shadow },
		"null": func(p *policy.Policy) { p.Trigger.Null = policy.NullDue }, "cascade": func(p *policy.Policy) { p.Cascade = nil }, "zone": func(p *policy.Policy) { p.Timezone = "UTC" },
		"boundary": func(p *policy.Policy) { p.AtCutoff = policy.StaysAtCutoff }, "pace": func(p *policy.Policy) { p.Batch.Pace = 0 },
		"max_rows": func(p *policy.Policy) { p.Limits.MaxRows = 1 }, "max_share": func(p *policy.Policy) { p.Limits.MaxShare = 20_000 },
		"spike": func(p *policy.Policy) { p.Limits.Spike = 5000 }, "windows": func(p *policy.Policy) { p.Windows = []policy.Window{{From: 1320, To: 300}} },
	} {
		p := full()
		change(p)
		if id, _ := p.Revision(); id == base {
			t.Errorf("%s: the revision is the same", name)
		}
	}
}

// TestFromRevisionRefuses has what a later version or a careless hand may
// leave in the ledger.
func TestFromRevisionRefuses(t *testing.T) {
	_, canonical := full().Revision()
	for _, c := range []struct{ old, new, want string }{
		{`"mode":`, `"hold_for":"3d","mode":`, "unknown field"},
		{`"mode":"enforce"`, `"mode":"rehearse"`, "mode"},
		{`"action":"delete"`, `"action":"archive"`, "action"},
		{`"null":"never"`, `"null":"sometimes"`, "null"},
		{`"zone":"UTC"`, `"zone":"Mars/Olympus"`, "Mars/Olympus"},
		{`"timezone":"Europe/Berlin"`, `"timezone":""`, "zone"},
		{`"keep":"P1Y6M"`, `"keep":"0d"`, "greater than zero"},
		{`"keep":"P1Y6M",`, ``, "no period"},
		{`"column":"occurred_at",`, ``, "column"},
		{`"at_cutoff":"due"`, `"at_cutoff":"gone"`, "at_cutoff"},
		{`"rows":1000`, `"rows":0`, "batch"},
		{`"attempts":5`, `"attempts":0`, "retry"},
		{`"name":"circulation"`, `"name":""`, "no name"},
		{`"keep":"P1Y6M"`, `"keep":"P18M"`, ""},
		{`"keep":"P1Y6M"`, `"keep":"P0001Y6M"`, "leading zeros"},
		{`"keep":"P1Y6M"`, `"keep":"P1Y6M0D"`, "canonical"},
		{`"where":`, ` "where":`, "canonical"},
		{`"at_cutoff":"due"}`, `"at_cutoff":"due"} {}`, "trailing"},
		{`{"name"`, `["name"`, "cannot read"},
	} {
		text := strings.Replace(string(canonical), c.old, c.new, 1)
		if text == string(canonical) {
			t.Fatalf("%s is not in the revision", c.old)
		}
		_, err := policy.FromRevision([]byte(text))
		if c.want == "" {
			if err == nil || !strings.Contains(err.Error(), "canonical") { // P18M prints as 18mo
				t.Errorf("%s: %v", c.new, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s → %s: %v, want %q", c.old, c.new, err, c.want)
		}
	}
}

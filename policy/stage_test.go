package policy_test

import (
	"testing"
	"time"

	"curfew.dev/curfew/policy"
	"pgregory.net/rapid"
)

func at(t *testing.T, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// trials is a policy with reminders, a pause at nine and an end.
func trials(t *testing.T) *policy.Policy {
	t.Helper()
	offset := func(text string) policy.Offset {
		o, err := policy.ParseOffset(text)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	notify := policy.Action{Kind: policy.Notify, Message: &policy.Message{Email: "owner"}}
	return &policy.Policy{Name: "trials", Timezone: "Europe/Berlin", Where: "demo", Stages: []policy.Stage{
		{Name: "week", At: offset("-7d"), Action: notify},
		{Name: "days", At: offset("-3d"), Action: notify},
		{Name: "pause", At: offset("0d"), Snap: &policy.Clock{Hour: 9}, Where: "state = 'active'"},
		{Name: "tell", At: offset("1d"), Action: notify},
		{Name: "end", At: offset("14d"), Action: policy.Action{Kind: policy.Delete}},
	}}
}

func narrow(t *testing.T, p *policy.Policy, stage string) *policy.Policy {
	t.Helper()
	q, ok := p.Narrow(stage)
	if !ok {
		t.Fatalf("no stage %q", stage)
	}
	return q
}

func TestNarrow(t *testing.T) {
	p := trials(t)
	end := narrow(t, p, "end")
	if end.Action.Kind != policy.Delete || end.StageName() != "end" || end.Where != "demo" || end.Whole() != p {
		t.Errorf("narrowed to %+v", end)
	}
	if got := narrow(t, p, "pause").Where; got != "(\ndemo\n) AND (\nstate = 'active'\n)" {
		t.Errorf("scope %q", got)
	}
	whole, _ := p.Revision()
	if part, _ := end.Revision(); part != whole {
		t.Error("a narrowed policy has a revision of its own")
	}
	if again := narrow(t, end, "week"); again.Action.Kind != policy.Notify || again.Whole() != p || again.Where != "demo" {
		t.Errorf("narrowed again to %+v", again)
	}
	if _, ok := p.Narrow(""); ok {
		t.Error("a policy with stages has one without a name")
	}
	if q, ok := (&policy.Policy{}).Narrow(""); !ok || q.StageName() != "" {
		t.Error("a policy without stages is not its own stage")
	}
	names := func(stages []policy.Stage) (out []string) {
		for _, s := range stages {
			out = append(out, s.Name)
		}
		return out
	}
	if got := names(end.Earlier()); len(got) != 2 || got[0] != "pause" || got[1] != "tell" {
		t.Errorf("before the end come %v", got)
	}
	if got := names(narrow(t, p, "days").Earlier()); got != nil {
		t.Errorf("before a reminder come %v", got)
	}
}

func TestFloor(t *testing.T) {
	p, asOf := trials(t), at(t, "2026-05-10T12:00:00Z")
	for stage, want := range map[string]string{"week": "2026-05-13T12:00:00Z", "days": "2026-05-10T12:00:00Z"} {
		got, ok := narrow(t, p, stage).Floor(asOf)
		if !ok || !got.Equal(at(t, want)) {
			t.Errorf("%s: from %s, want %s", stage, got, want)
		}
	}
	if _, ok := narrow(t, p, "pause").Floor(asOf); ok {
		t.Error("a pause has a lower bound")
	}
}

func TestSnap(t *testing.T) {
	pause := narrow(t, trials(t), "pause")
	for trigger, want := range map[string]string{
		"2026-05-10T06:59:59Z": "2026-05-10T07:00:00Z", // 09:00 in summer
		"2026-05-10T07:00:00Z": "2026-05-10T07:00:00Z",
		"2026-05-10T07:00:01Z": "2026-05-11T07:00:00Z",
		"2026-10-24T07:00:01Z": "2026-10-25T08:00:00Z", // the clocks went back
	} {
		if got := pause.StageAt(at(t, trigger)); !got.Equal(at(t, want)) {
			t.Errorf("%s acts at %s, want %s", trigger, got.UTC(), want)
		}
	}
}

// TestStageIsDue: what a run takes by its cutoff is exactly what has come, row by row, whatever the clocks did.
func TestStageIsDue(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		zone := rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/Havana", "Australia/Lord_Howe", "Africa/Cairo"}).Draw(r, "zone")
		o, err := policy.ParseOffset(rapid.SampledFrom([]string{"-7d", "-1h", "0d", "14d", "36h"}).Draw(r, "at"))
		if err != nil {
			t.Fatal(err)
		}
		s := policy.Stage{Name: "s", At: o, Action: policy.Action{Kind: policy.Notify}}
		if rapid.Bool().Draw(r, "snaps") {
			s.Snap = &policy.Clock{Hour: rapid.IntRange(0, 23).Draw(r, "hour"), Minute: rapid.SampledFrom([]int{0, 15, 30}).Draw(r, "minute")}
		}
		whole := &policy.Policy{Timezone: zone, Stages: []policy.Stage{s}, Keep: policy.Period{Exact: time.Duration(rapid.IntRange(0, 100).Draw(r, "keep")) * time.Hour}}
		p, _ := whole.Narrow("s")
		asOf := time.Unix(rapid.Int64Range(1700000000, 1800000000).Draw(r, "as_of"), 0).UTC()
		trigger := p.Cutoff(asOf).Add(time.Duration(rapid.IntRange(-200000, 200000).Draw(r, "off")) * time.Second)
		if rapid.Bool().Draw(r, "at the cutoff") {
			trigger = p.Cutoff(asOf).Truncate(time.Second)
		}
		if due, comes := trigger.Before(p.Cutoff(asOf)), p.StageAt(trigger); due != comes.Before(asOf) {
			r.Fatalf("as of %s the cutoff is %s; a trigger at %s is due: %v, and acts at %s", asOf, p.Cutoff(asOf), trigger, due, comes)
		}
	})
}

func FuzzParseOffset(f *testing.F) {
	for _, text := range []string{"-7d", "0d", "14d", "+1mo", "-P1D", "P1Y6M", "-", "0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		o, err := policy.ParseOffset(text)
		if err != nil {
			return
		}
		again, err := policy.ParseOffset(o.String())
		if err != nil || again != o {
			t.Errorf("%q is %q, which is %v (%v)", text, o, again, err)
		}
	})
}

package policy_test

import (
	"testing"
	"time"

	"curfew.dev/curfew/policy"
	"pgregory.net/rapid"
)

func windowed(t testing.TB, zone string, texts ...string) *policy.Policy {
	t.Helper()
	p := &policy.Policy{Timezone: zone}
	for _, text := range texts {
		w, err := policy.ParseWindow(text)
		if err != nil {
			t.Fatal(err)
		}
		p.Windows = append(p.Windows, w)
	}
	return p
}

func instant(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

func TestWindows(t *testing.T) {
	const berlin = "Europe/Berlin"
	night := []string{"22:00-05:00"}
	for _, c := range []struct {
		name    string
		zone    string
		windows []string
		at      string
		next    string // "" when at is inside
	}{
		{"inside before midnight", "UTC", night, "2026-06-10T22:00:00Z", ""},
		{"inside after midnight", "UTC", night, "2026-06-10T04:59:59Z", ""},
		{"the end is outside", "UTC", night, "2026-06-10T05:00:00Z", "2026-06-10T22:00:00Z"},
		{"a moment before", "UTC", night, "2026-06-10T21:59:59Z", "2026-06-10T22:00:00Z"},
		{"in the policy's zone", berlin, night, "2026-06-10T19:59:59Z", "2026-06-10T20:00:00Z"},
		{"in the policy's zone, in winter", berlin, night, "2026-01-10T20:00:00Z", "2026-01-10T21:00:00Z"},
		{"until midnight", "UTC", []string{"22:00-24:00"}, "2026-06-10T23:59:59Z", ""},
		{"not after midnight", "UTC", []string{"22:00-24:00"}, "2026-06-11T00:00:00Z", "2026-06-11T22:00:00Z"},
		{"the whole weekend", "UTC", []string{"sat,sun 00:00-24:00"}, "2026-06-12T12:00:00Z", "2026-06-13T00:00:00Z"}, // a Friday
		{"Sunday's last moment", "UTC", []string{"sat,sun 00:00-24:00"}, "2026-06-14T23:59:59Z", ""},
		{"a night is of the day it begins on", "UTC", []string{"fri 22:00-05:00"}, "2026-06-13T04:00:00Z", ""},
		{"not of the day it ends on", "UTC", []string{"sat 22:00-05:00"}, "2026-06-13T04:00:00Z", "2026-06-13T22:00:00Z"},
		{"over the weekend", "UTC", []string{"sun-mon 01:00-02:00"}, "2026-06-09T01:30:00Z", "2026-06-14T01:00:00Z"}, // a Tuesday
		{"the earlier of two", "UTC", []string{"22:00-05:00", "12:00-13:00"}, "2026-06-10T05:00:00Z", "2026-06-10T12:00:00Z"},
		// Spring 2026: at 01:00Z clocks in Berlin go from 02:00 to 03:00.
		{"six hours in spring", berlin, night, "2026-03-29T02:59:59Z", ""},
		{"and no seventh", berlin, night, "2026-03-29T03:00:00Z", "2026-03-29T20:00:00Z"},
		{"a start that is skipped", berlin, []string{"02:30-04:00"}, "2026-03-29T00:59:59Z", "2026-03-29T01:00:00Z"},
		{"open from the change on", berlin, []string{"02:30-04:00"}, "2026-03-29T01:00:00Z", ""},
		{"a window that is skipped", berlin, []string{"02:15-02:45"}, "2026-03-28T12:00:00Z", "2026-03-30T00:15:00Z"},
		// Autumn 2026: at 01:00Z clocks in Berlin go from 03:00 to 02:00.
		{"eight hours in autumn", berlin, night, "2026-10-25T03:59:59Z", ""},
		{"and no ninth", berlin, night, "2026-10-25T04:00:00Z", "2026-10-25T21:00:00Z"},
		{"shown twice, the first time", berlin, []string{"02:15-02:45"}, "2026-10-25T00:15:00Z", ""},
		{"between the two", berlin, []string{"02:15-02:45"}, "2026-10-25T00:45:00Z", "2026-10-25T01:15:00Z"},
		{"shown twice, the second time", berlin, []string{"02:15-02:45"}, "2026-10-25T01:44:59Z", ""},
		{"set back into it", berlin, []string{"02:00-02:30"}, "2026-10-25T00:30:00Z", "2026-10-25T01:00:00Z"},
		{"no windows", berlin, nil, "2026-10-25T00:30:00Z", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, at := windowed(t, c.zone, c.windows...), instant(t, c.at)
			next := p.NextWindow(at)
			if p.InWindow(at) != (c.next == "") {
				t.Fatalf("inside: %v; next %s", p.InWindow(at), next)
			}
			want := at
			if c.next != "" {
				want = instant(t, c.next)
			}
			if !next.Equal(want) {
				t.Errorf("next is %s, want %s", next, want)
			}
		})
	}
}

// Whatever the window, the zone and the time: the next opening is open, and no
// minute before it is.
func TestNextWindowIsTheFirst(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zone := rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/Sao_Paulo", "Australia/Lord_Howe", "America/St_Johns", "Africa/Cairo"}).Draw(t, "zone")
		w := policy.Window{Days: policy.Days(rapid.IntRange(0, 127).Draw(t, "days")), From: rapid.IntRange(0, 1439).Draw(t, "from"), To: rapid.IntRange(1, 1440).Draw(t, "to")}
		if w.From == w.To {
			return
		}
		again, err := policy.ParseWindow(w.String())
		if err != nil || again.String() != w.String() {
			t.Fatalf("%s reads back as %s: %v", w, again, err)
		}
		p := &policy.Policy{Timezone: zone, Windows: []policy.Window{w}}
		at := time.Date(2010+rapid.IntRange(0, 20).Draw(t, "year"), time.Month(rapid.IntRange(1, 12).Draw(t, "month")), rapid.IntRange(1, 31).Draw(t, "day"),
			rapid.IntRange(0, 23).Draw(t, "hour"), rapid.IntRange(0, 59).Draw(t, "minute"), 0, 0, time.UTC)
		next := p.NextWindow(at)
		if next.Sub(at) >= 15*24*time.Hour {
			return // a short window that the clock skipped
		}
		if !p.InWindow(next) {
			t.Fatalf("%s in %s: after %s comes %s, which is outside", w, zone, at, next)
		}
		for m := at; m.Before(next); m = m.Add(time.Minute) {
			if p.InWindow(m) {
				t.Fatalf("%s in %s: after %s comes %s, and %s is inside", w, zone, at, next, m)
			}
		}
	})
}

func TestShareAndFactor(t *testing.T) {
	for _, text := range []string{"20%", "0.5%", "100%", "0.001%", "33.333%"} {
		s, err := policy.ParseShare(text)
		if err != nil || s.String() != text {
			t.Errorf("%s: %s, %v", text, s, err)
		}
	}
	for _, text := range []string{"20", "%", "0%", "0.000%", "100.001%", "-1%", "+1%", "1e1%", "020%", "5 %", "20%%", "0.0001%", ".5%", "５%"} {
		if s, err := policy.ParseShare(text); err == nil {
			t.Errorf("%s is accepted as %s", text, s)
		}
	}
	for _, text := range []string{"5x", "1.5x", "1.001x", "100x"} {
		f, err := policy.ParseFactor(text)
		if err != nil || f.String() != text {
			t.Errorf("%s: %s, %v", text, f, err)
		}
	}
	for _, text := range []string{"5", "x", "1x", "1.000x", "0x", "0.5x", "-2x", "5X", "5 x", "05x", "1000000x"} {
		if f, err := policy.ParseFactor(text); err == nil {
			t.Errorf("%s is accepted as %s", text, f)
		}
	}
	if got := policy.Factor(1500).Times(10); got != 15 {
		t.Errorf("1.5 times 10 is %v", got)
	}
	// Of due rows, the share is exceeded exactly when the table has fewer rows than Whole says.
	rapid.Check(t, func(t *rapid.T) {
		s := policy.Share(rapid.Int64Range(1, 100_000).Draw(t, "share"))
		due := rapid.Int64Range(0, 1_000_000_000_000).Draw(t, "due")
		whole := s.Whole(due)
		if s.Of(whole) < due {
			t.Fatalf("%s of %d are %d, less than %d", s, whole, s.Of(whole), due)
		}
		if whole > 0 && s.Of(whole-1) >= due {
			t.Fatalf("%s of %d are %d, not less than %d", s, whole-1, s.Of(whole-1), due)
		}
	})
}

// What cannot change which rows go has no effect; all else has, by default.
func TestEffect(t *testing.T) {
	base := full()
	for name, c := range map[string]struct {
		same   bool
		change func(*policy.Policy)
	}{
		"description": {true, func(p *policy.Policy) { p.Description = "" }},
		"authority":   {true, func(p *policy.Policy) { p.Authority = "" }},
		"mode":        {true, func(p *policy.Policy) { p.Mode = policy.Shadow }},
		"schedule":    {true, func(p *policy.Policy) { p.Schedule = nil }},
		"batch":       {true, func(p *policy.Policy) { p.Batch.Rows = 1 }},
		"retry":       {true, func(p *policy.Policy) { p.Retry.Attempts = 1 }},
		"limits":      {true, func(p *policy.Policy) { p.Limits.MaxRows = 1 }},
		"after":       {true, func(p *policy.Policy) { p.After = "" }},
		"windows":     {true, func(p *policy.Policy) { p.Windows = []policy.Window{{From: 1, To: 2}} }},
		"keep":        {false, func(p *policy.Policy) { p.Keep.Months++ }},
		"where":       {false, func(p *policy.Policy) { p.Where = "" }},
		"unless":      {false, func(p *policy.Policy) { p.Unless = "" }},
		"subject":     {false, func(p *policy.Policy) { p.Subject = "" }},
		"cascade":     {false, func(p *policy.Policy) { p.Cascade = nil }},
		"triggers":    {false, func(p *policy.Policy) { p.Triggers = nil }},
		"timezone":    {false, func(p *policy.Policy) { p.Timezone = "UTC" }},
		"at_cutoff":   {false, func(p *policy.Policy) { p.AtCutoff = policy.StaysAtCutoff }},
		"database":    {false, func(p *policy.Policy) { p.Database = "other" }},
		"table":       {false, func(p *policy.Policy) { p.Table = "other" }},
		"key":         {false, func(p *policy.Policy) { p.Key = nil }},
		"trigger":     {false, func(p *policy.Policy) { p.Trigger.Column = "other" }},
	} {
		p := full()
		c.change(p)
		if (p.Effect() == base.Effect()) != c.same {
			t.Errorf("%s: the effect is the same: %v", name, !c.same)
		}
	}
	if id, _ := base.Revision(); base.Mode != policy.Enforce || id == "" {
		t.Error("asking for the effect changed the policy")
	}
}

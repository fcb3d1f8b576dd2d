package curfew

import (
	"testing"
	"time"

	"curfew.dev/curfew/policy"
)

// parse reads one policy named p with these lines.
func parse(t *testing.T, lines string) *policy.Policy {
	t.Helper()
	f, err := policy.Parse([]byte("version: 1\ndatabases: {d: {url: 'sqlite:d.db'}}\npolicies:\n  p:\n    database: d\n    table: t\n    action: delete\n    mode: shadow\n"+lines), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return f.Policies[0]
}

func TestRuleInWords(t *testing.T) {
	for lines, want := range map[string]string{
		"    keep: 2y\n    since: occurred_at\n":                                             "delete 2 years after occurred_at",
		"    until: expires_at\n":                                                            "delete once expires_at has passed",
		"    keep: 36h\n    until: expires_at\n    at_cutoff: due\n":                         "delete 36 hours after expires_at has passed; at the very cutoff too",
		"    keep: 6mo\n    since: {column: at, unit: ms}\n    timezone: Europe/Berlin\n":    "delete 6 months after at (read in milliseconds), by the calendar of Europe/Berlin",
		"    keep: 90d\n    since: {column: at, format: iso8601, zone: UTC, null: never}\n":  "delete 90 days after at (read as iso8601 in UTC); never when it is NULL",
		"    keep: 1y\n    since: {column: at, null: due, implausible_before: 2000-01-01}\n": "delete 1 year after at; at once when it is NULL; not when it is before 2000-01-01",
		"    keep: 1y\n    since: {expr: 'COALESCE(a, b)', type: timestamptz}\n":             "delete 1 year after COALESCE(a, b)",
	} {
		if got := ruleInWords(parse(t, lines)); got != want {
			t.Errorf("%sis %q, want %q", lines, got, want)
		}
	}
}

func TestActionInWords(t *testing.T) {
	for action, want := range map[string]string{
		"{set: {state: paused, ends: {as_of_plus: 14d}, seen: null}}":      "set state to paused, ends to 14 days after the run's as_of and seen to NULL 1 year after at",
		"{anonymise: {borrowernumber: {sentinel: 1}, name: {hash: true}}}": "anonymise borrowernumber and name 1 year after at",
		"{anonymise: {note: null}}":                                        "anonymise note 1 year after at",
		"{archive: {to: app.old_event}}":                                   "archive to app.old_event 1 year after at",
	} {
		f, err := policy.Parse([]byte("version: 1\ndatabases: {d: {url: 'sqlite:d.db'}}\npolicies:\n  p: {database: d, table: t, mode: shadow, keep: 1y, since: at, action: "+action+"}\n"), policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := ruleInWords(f.Policies[0]); got != want {
			t.Errorf("%s is %q, want %q", action, got, want)
		}
	}
}

func TestPeriodInWords(t *testing.T) {
	for text, want := range map[string]string{
		"2m": "2 minutes", "2mo": "2 months", "2y": "2 years", "730d": "730 days", "1d": "1 day", "24h": "1 day", "36h": "36 hours", "2w": "14 days",
		"90s": "90 seconds", "120s": "2 minutes", "P1Y6M": "1 year and 6 months", "P1Y6M3D": "1 year, 6 months and 3 days",
	} {
		p, err := policy.ParsePeriod(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := periodInWords(p); got != want {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
	}
}

func TestScheduleInWords(t *testing.T) {
	const rule = "    until: expires_at\n"
	for lines, want := range map[string]string{
		"":                                    "",
		"    schedule: {cron: '0 2 * * *'}\n": `every day at 02:00 UTC, or up to 1h later`,
		"    schedule: {cron: '0 2 * * *', start_within: 90m}\n    timezone: Europe/Berlin\n":        `every day at 02:00 Europe/Berlin, or up to 1h30m later`,
		"    schedule: {cron: '0 * * * *', by: external, grace: 10m}\n    timezone: Europe/Berlin\n": `called from outside, expected every hour at minute 0 or up to 10m later`,
	} {
		if got := scheduleInWords(parse(t, rule+lines)); got != want {
			t.Errorf("%q is %q, want %q", lines, got, want)
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		time.Hour: "1h", 90 * time.Minute: "1h30m", time.Minute: "1m", 90 * time.Second: "1m30s", 10 * time.Second: "10s", 20 * time.Minute: "20m", 10 * time.Hour: "10h",
	} {
		if got := span(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

func TestLength(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 10 * time.Second: "10s", time.Minute: "1m", 90 * time.Second: "1m 30s", time.Hour: "1h", 26 * time.Hour: "26h", 26*time.Hour + time.Second: "26h 1m",
		48 * time.Hour: "2d", 76*time.Hour - time.Minute: "3d 4h", 365 * 24 * time.Hour: "365d",
	} {
		if got := length(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

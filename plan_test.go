package curfew

import "testing"

func TestOldest(t *testing.T) {
	for _, c := range []struct{ since, printed, want string }{
		{"at", "2020-01-02 03:04:05.5+00", "2020-01-02T03:04:05.5Z"},
		{"at", "2020-01-02 03:04:05", "2020-01-02T03:04:05Z"},
		{"{column: at, zone: Europe/Berlin}", "2020-07-02 03:04:05", "2020-07-02T01:04:05Z"},
		{"{column: at, zone: Europe/Berlin}", "2020-07-02", "2020-07-02"},
		{"{column: at, unit: ms}", "1577934245500", "2020-01-02T03:04:05.5Z"},
		{"{column: at, unit: julian_day}", "2460000.5", "2460000.5"},
		{"{column: at, format: iso8601}", "2020-01-02T03:04:05+02:00", "2020-01-02T01:04:05Z"},
		{"{column: at, format: yyyymmddhhmmss, zone: UTC}", "20200102030405", "2020-01-02T03:04:05Z"},
		{"at", "-infinity", "-infinity"},
		{"at", "", ""},
	} {
		if got := oldest(parse(t, "    keep: 1y\n    since: "+c.since+"\n"), c.printed); got != c.want {
			t.Errorf("%s %q is %q, want %q", c.since, c.printed, got, c.want)
		}
	}
}

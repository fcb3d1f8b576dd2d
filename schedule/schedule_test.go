package schedule_test

import (
	"slices"
	"testing"
	"time"

	"curfew.dev/curfew/schedule"
	"github.com/google/go-cmp/cmp"
)

type fatal interface{ Fatal(...any) }

func location(t fatal, name string) *time.Location {
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

func parse(t fatal, expr string) schedule.Cron {
	c, err := schedule.Parse(expr)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func at(t fatal, text string) time.Time {
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// between lists the instants in (from, to] as clocks in the zone show them.
func between(t fatal, expr, zone, from, to string) []string {
	s := schedule.Schedule{Cron: parse(t, expr), Location: location(t, zone)}
	var all []string
	for i := range s.Between(at(t, from), at(t, to)) {
		all = append(all, i.In(s.Location).Format("2006-01-02 15:04 -0700"))
	}
	return all
}

// TestInstants goes through the cases that libraries are known to get wrong.
func TestInstants(t *testing.T) {
	for _, c := range []struct {
		name, expr, zone, from, to string
		want                       []string
	}{
		{
			"a skipped hour runs at its end", "30 2 * * *", "Europe/Berlin", "2026-03-28T00:00:00+01:00", "2026-03-31T00:00:00+02:00",
			[]string{"2026-03-28 02:30 +0100", "2026-03-29 03:00 +0200", "2026-03-30 02:30 +0200"},
		},
		{
			"a repeated hour runs the first time", "30 2 * * *", "Europe/Berlin", "2026-10-24T00:00:00+02:00", "2026-10-27T00:00:00+01:00",
			[]string{"2026-10-24 02:30 +0200", "2026-10-25 02:30 +0200", "2026-10-26 02:30 +0100"},
		},
		{
			"several skipped times are one instant, and so is the time that follows", "0,15,30 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00:00+01:00", "2026-03-30T00:00:00+02:00",
			[]string{"2026-03-29 03:00 +0200", "2026-03-29 03:15 +0200", "2026-03-29 03:30 +0200"},
		},
		{
			"hours follow real time", "0 * * * *", "Europe/Berlin", "2026-10-25T00:00:00+02:00", "2026-10-25T05:00:00+01:00",
			[]string{"2026-10-25 01:00 +0200", "2026-10-25 02:00 +0200", "2026-10-25 02:00 +0100", "2026-10-25 03:00 +0100", "2026-10-25 04:00 +0100", "2026-10-25 05:00 +0100"},
		},
		{
			"and so they do in spring", "@hourly", "Europe/Berlin", "2026-03-29T00:00:00+01:00", "2026-03-29T04:00:00+02:00",
			[]string{"2026-03-29 01:00 +0100", "2026-03-29 03:00 +0200", "2026-03-29 04:00 +0200"},
		},
		{
			"an interval in a skipped hour does not come", "*/30 2 * * *", "Europe/Berlin", "2026-03-29T00:00:00+01:00", "2026-03-30T03:00:00+02:00",
			[]string{"2026-03-30 02:00 +0200", "2026-03-30 02:30 +0200"},
		},
		{
			"an interval in a repeated hour comes twice", "*/30 2 * * *", "Europe/Berlin", "2026-10-25T00:00:00+02:00", "2026-10-25T23:00:00+01:00",
			[]string{"2026-10-25 02:00 +0200", "2026-10-25 02:30 +0200", "2026-10-25 02:00 +0100", "2026-10-25 02:30 +0100"},
		},
		{
			"a weekly job in the skipped hour", "42 2 * * 0", "Europe/Berlin", "2026-03-23T00:00:00+01:00", "2026-04-06T00:00:00+02:00",
			[]string{"2026-03-29 03:00 +0200", "2026-04-05 02:42 +0200"},
		},
		{
			"months without a 31st", "0 0 31 * *", "UTC", "2025-12-31T12:00:00Z", "2026-12-31T12:00:00Z",
			[]string{
				"2026-01-31 00:00 +0000", "2026-03-31 00:00 +0000", "2026-05-31 00:00 +0000", "2026-07-31 00:00 +0000",
				"2026-08-31 00:00 +0000", "2026-10-31 00:00 +0000", "2026-12-31 00:00 +0000",
			},
		},
		{
			"2100 is no leap year", "0 12 29 2 *", "UTC", "2092-03-01T00:00:00Z", "2105-01-01T00:00:00Z",
			[]string{"2096-02-29 12:00 +0000", "2104-02-29 12:00 +0000"},
		},
		{
			"two kinds of day are alternatives", "0 0 13 * 5", "UTC", "2026-02-01T00:00:00Z", "2026-02-28T00:00:00Z",
			[]string{"2026-02-06 00:00 +0000", "2026-02-13 00:00 +0000", "2026-02-20 00:00 +0000", "2026-02-27 00:00 +0000"},
		},
		{
			"with a star they must both suit", "0 0 */2 * 5", "UTC", "2026-02-01T00:00:00Z", "2026-02-28T00:00:00Z",
			[]string{"2026-02-13 00:00 +0000", "2026-02-27 00:00 +0000"},
		},
		{
			"the star may be in the other", "0 0 13 * */5", "UTC", "2026-01-01T00:00:00Z", "2026-12-31T00:00:00Z",
			[]string{"2026-02-13 00:00 +0000", "2026-03-13 00:00 +0000", "2026-09-13 00:00 +0000", "2026-11-13 00:00 +0000", "2026-12-13 00:00 +0000"},
		},
		{
			"Sunday is 7", "0 0 * * 7", "UTC", "2026-02-01T12:00:00Z", "2026-02-15T12:00:00Z",
			[]string{"2026-02-08 00:00 +0000", "2026-02-15 00:00 +0000"},
		},
		{
			"and may end a range", "0 0 * * 5-7", "UTC", "2026-02-01T12:00:00Z", "2026-02-08T12:00:00Z",
			[]string{"2026-02-06 00:00 +0000", "2026-02-07 00:00 +0000", "2026-02-08 00:00 +0000"},
		},
		{
			"midnight is skipped", "@daily", "Africa/Cairo", "2026-04-22T12:00:00+02:00", "2026-04-25T12:00:00+03:00",
			[]string{"2026-04-23 00:00 +0200", "2026-04-24 01:00 +0300", "2026-04-25 00:00 +0300"},
		},
		{
			"midnight is repeated", "@daily", "America/Havana", "2026-10-31T12:00:00-04:00", "2026-11-02T12:00:00-05:00",
			[]string{"2026-11-01 00:00 -0400", "2026-11-02 00:00 -0500"},
		},
		{
			"half an hour is skipped", "15 2 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00+10:30", "2026-10-05T12:00:00+11:00",
			[]string{"2026-10-03 02:15 +1030", "2026-10-04 02:30 +1100", "2026-10-05 02:15 +1100"},
		},
		{
			"a day is skipped at the date line", "0 12 * * *", "Pacific/Apia", "2011-12-28T00:00:00-10:00", "2012-01-01T00:00:00+14:00",
			[]string{"2011-12-28 12:00 -1000", "2011-12-29 12:00 -1000", "2011-12-31 12:00 +1400"},
		},
		{
			"a day is repeated at the date line", "0 15 * * *", "Pacific/Kwajalein", "1969-09-29T00:00:00+11:00", "1969-10-01T00:00:00-12:00",
			[]string{"1969-09-29 15:00 +1100", "1969-09-30 15:00 +1100", "1969-09-30 15:00 -1200"},
		},
		{
			"three hours are adapted to", "0 1 * * *", "Antarctica/Casey", "2020-10-02T12:00:00+08:00", "2020-10-05T12:00:00+11:00",
			[]string{"2020-10-03 01:00 +0800", "2020-10-04 03:01 +1100", "2020-10-05 01:00 +1100"},
		},
		{
			"in both directions", "30 1 * * *", "Antarctica/Casey", "2010-03-04T12:00:00+11:00", "2010-03-06T12:00:00+08:00",
			[]string{"2010-03-05 01:30 +1100", "2010-03-06 01:30 +0800"},
		},
		{
			"a change within a minute", "20,59 0 * * *", "Africa/Monrovia", "1972-01-06T12:00:00Z", "1972-01-07T12:00:00Z",
			[]string{"1972-01-07 00:44 +0000", "1972-01-07 00:59 +0000"},
		},
		{
			"a zone 45 minutes off", "0 6 * * *", "Asia/Kathmandu", "2026-01-01T00:15:00Z", "2026-01-02T00:15:00Z",
			[]string{"2026-01-02 06:00 +0545"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, between(t, c.expr, c.zone, c.from, c.to)); diff != "" {
				t.Errorf("%s in %s (-want +got):\n%s", c.expr, c.zone, diff)
			}
		})
	}
}

func TestCounts(t *testing.T) {
	for _, c := range []struct {
		expr, zone, from, to string
		want                 int
	}{
		{"*/7 * * * *", "Europe/Berlin", "2026-03-29T00:00:00+01:00", "2026-03-29T23:59:00+02:00", 206},
		{"*/7 * * * *", "Europe/Berlin", "2026-10-25T00:00:00+02:00", "2026-10-25T23:59:00+01:00", 224},
		{"* 3 * * *", "Australia/Lord_Howe", "2026-10-03T00:00:00+10:30", "2026-10-04T00:00:00+10:30", 60},
		{"* 3 * * *", "Australia/Lord_Howe", "2026-10-04T00:00:00+10:30", "2026-10-05T00:00:00+11:00", 60},
		{"* 3 * * *", "Australia/Lord_Howe", "2026-10-05T00:00:00+11:00", "2026-10-06T00:00:00+11:00", 60},
		{"0 12 * * *", "Pacific/Apia", "2011-12-01T00:00:00-10:00", "2012-01-01T00:00:00+14:00", 30},
		{"0 0 31 * *", "UTC", "2025-12-31T23:00:00Z", "2026-12-31T23:00:00Z", 7},
		{"* * * * *", "America/Sao_Paulo", "2018-01-01T00:00:00-02:00", "2019-01-01T00:00:00-02:00", 365 * 24 * 60},
		{"0 2 * * *", "America/New_York", "2026-01-01T00:00:00-05:00", "2027-01-01T00:00:00-05:00", 365},
		{"0 0 * * *", "America/Sao_Paulo", "2018-01-01T00:00:00-02:00", "2019-01-01T00:00:00-02:00", 365},
	} {
		if got := len(between(t, c.expr, c.zone, c.from, c.to)); got != c.want {
			t.Errorf("%s in %s from %s to %s: %d times, want %d", c.expr, c.zone, c.from, c.to, got, c.want)
		}
	}
}

// TestEnds is about which ends belong to a window: from does not, to does.
func TestEnds(t *testing.T) {
	s := schedule.Schedule{Cron: parse(t, "0 2 * * *")} // no location is UTC
	two := at(t, "2026-03-01T02:00:00Z")
	day := 24 * time.Hour
	for _, c := range []struct {
		name     string
		from, to time.Time
		want     []time.Time
	}{
		{"from is out, to is in", two, two.Add(day), []time.Time{two.Add(day)}},
		{"a nanosecond makes the difference at from", two.Add(-1), two, []time.Time{two}},
		{"and at to", two.Add(-day), two.Add(-1), nil},
		{"an empty window", two, two, nil},
		{"a window that runs backwards", two.Add(day), two.Add(-day), nil},
		{"other zones are the same instants", two.In(time.FixedZone("", 3600)), two.Add(day), []time.Time{two.Add(day)}},
	} {
		if diff := cmp.Diff(c.want, slices.Collect(s.Between(c.from, c.to))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
	if got, ok := s.Next(two); !ok || got != two.Add(day) {
		t.Errorf("next after %v is %v, %v", two, got, ok)
	}
	if got, ok := s.Prev(two); !ok || got != two.Add(-day) {
		t.Errorf("previous before %v is %v, %v", two, got, ok)
	}
	if got, ok := s.Prev(two.Add(1)); !ok || got != two {
		t.Errorf("previous before a nanosecond past %v is %v, %v", two, got, ok)
	}
	seq := s.Between(two, two.Add(2*day))
	if a, b := slices.Collect(seq), slices.Collect(seq); len(a) != 2 || !slices.Equal(a, b) {
		t.Errorf("ranging twice gives %v and %v", a, b)
	}
	for range s.Between(two, two.Add(2*day)) {
		break // must be possible
	}
}

func TestNever(t *testing.T) {
	now := at(t, "2026-03-01T00:00:00Z")
	var never schedule.Schedule
	if got, ok := never.Next(now); ok {
		t.Errorf("the zero schedule comes at %v", got)
	}
	if got, ok := never.Prev(now); ok {
		t.Errorf("the zero schedule came at %v", got)
	}
	if got := slices.Collect(never.Between(now, now.AddDate(1, 0, 0))); got != nil {
		t.Errorf("the zero schedule comes at %v", got)
	}
	yearly := schedule.Schedule{Cron: parse(t, "@yearly"), Location: location(t, "Europe/Berlin")}
	last := at(t, "9999-12-31T23:00:00Z")
	if got, ok := yearly.Next(last); ok {
		t.Errorf("past the last year it comes at %v", got)
	}
	for _, far := range []time.Time{last.Add(1), at(t, "9999-12-31T23:59:59Z"), time.Unix(1<<40, 0)} {
		if got, ok := yearly.Prev(far); !ok || got != last {
			t.Errorf("before %v it came at %v, %v, want %v", far, got, ok, last)
		}
	}
	first, ok := yearly.Next(time.Unix(-1<<40, 0))
	if want := time.Date(1, 12, 31, 23, 6, 32, 0, time.UTC); !ok || first != want { // local mean time
		t.Errorf("it first comes at %v, %v, want %v", first, ok, want)
	}
	for _, early := range []time.Time{first, {}, time.Unix(-1<<40, 0)} {
		if got, ok := yearly.Prev(early); ok {
			t.Errorf("before %v it came at %v", early, got)
		}
	}
}

// TestLastDayOfLeapYears is about a fault of Time.ZoneBounds, whose end is not
// after the time asked about on some days: a loop over it never ends.
func TestLastDayOfLeapYears(t *testing.T) {
	for _, zone := range zones {
		loc := location(t, zone)
		for _, year := range []int{2036, 2040, 2044, 2096, 2400} {
			s := schedule.Schedule{Cron: parse(t, "30 * * * *"), Location: loc}
			from := time.Date(year, 12, 30, 0, 0, 0, 0, time.UTC)
			to := time.Date(year+1, 1, 2, 0, 0, 0, 0, time.UTC)
			got := slices.Collect(s.Between(from, to))
			if want := simulate(jobOf(t, "30 * * * *"), loc, from, to); !slices.Equal(got, want) || len(got) != 72 {
				t.Errorf("%s, end of %d: %v, want %v", zone, year, got, want)
			}
			// From one end of the year to the other, over whatever is in between.
			s.Cron = parse(t, "0 12 31 12 *")
			next, ok := s.Next(time.Date(year, 12, 31, 18, 0, 0, 0, loc))
			if want := time.Date(year+1, 12, 31, 12, 0, 0, 0, loc); !ok || !next.Equal(want) {
				t.Errorf("%s: the year after %d ends at %v, %v, want %v", zone, year, next, ok, want)
			}
			prev, ok := s.Prev(time.Date(year+1, 12, 31, 6, 0, 0, 0, loc))
			if want := time.Date(year, 12, 31, 12, 0, 0, 0, loc); !ok || !prev.Equal(want) {
				t.Errorf("%s: the year %d ended at %v, %v, want %v", zone, year, prev, ok, want)
			}
		}
	}
}

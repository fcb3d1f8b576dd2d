package policy_test

import (
	"fmt"
	"testing"
	"time"

	"curfew.dev/curfew/policy"
	"pgregory.net/rapid"
)

// The zones of the trouble: gaps and folds of an hour, of half an hour, at
// midnight, twice a year around Ramadan, and a day that never was.
var zones = []string{
	"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Africa/Cairo",
	"Pacific/Apia", "America/Sao_Paulo", "America/St_Johns", "Africa/Casablanca", "Asia/Tehran", "Antarctica/Troll", "UTC",
}

func location(t interface{ Fatal(...any) }, name string) *time.Location {
	loc, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return loc
}

// drawNearChange draws an instant, mostly within two days of a change of the
// clock, on a whole minute as all these changes are.
func drawNearChange(t *rapid.T, loc *time.Location, label string) time.Time {
	from := time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC)
	at := from.Add(time.Duration(rapid.Int64Range(0, 24*365*79).Draw(t, label+" hour")) * time.Hour)
	if _, end := at.In(loc).ZoneBounds(); !end.IsZero() && rapid.IntRange(0, 9).Draw(t, label+" near") > 0 {
		within := rapid.SampledFrom([]int{48 * 60, 130, 65}).Draw(t, label+" within")
		at = end.UTC().Add(time.Duration(rapid.IntRange(-within, within).Draw(t, label+" minutes")) * time.Minute)
	} else {
		at = at.Add(time.Duration(rapid.IntRange(0, 1439).Draw(t, label+" minute of day")) * time.Minute)
	}
	return at
}

func drawZone(t *rapid.T) *time.Location {
	return location(t, rapid.SampledFrom(zones).Draw(t, "zone"))
}

// shown is what the clock shows, by the standard library alone.
func shown(at time.Time, loc *time.Location) time.Time {
	y, m, d := at.In(loc).Date()
	h, min, s := at.In(loc).Clock()
	return time.Date(y, m, d, h, min, s, at.Nanosecond(), time.UTC)
}

// slowInstants finds the first and the last instant that shows w by looking at
// every minute around it. Where the clock skips w, first is the change and last
// reads w with the offset before it.
func slowInstants(w time.Time, loc *time.Location) (first, last time.Time) {
	for t := w.Add(-40 * time.Hour); t.Before(w.Add(40 * time.Hour)); t = t.Add(time.Minute) {
		if shown(t, loc).Equal(w) {
			if first.IsZero() {
				first = t
			}
			last = t
		}
	}
	if !first.IsZero() {
		return first, last
	}
	for t := w.Add(-40 * time.Hour); ; t = t.Add(time.Minute) {
		if next := t.Add(time.Minute); shown(t, loc).Before(w) && shown(next, loc).After(w) {
			return next, t.Add(w.Sub(shown(t, loc)))
		}
	}
}

// slowAddMonths is the clamped arithmetic by looking for the day.
func slowAddMonths(w time.Time, months int) time.Time {
	for day := w.Day(); ; day-- {
		r := time.Date(w.Year(), w.Month()+time.Month(months), day, w.Hour(), w.Minute(), w.Second(), w.Nanosecond(), time.UTC)
		if r.Day() == day {
			return r
		}
	}
}

func TestWallInstant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loc := drawZone(t)
		w := shown(drawNearChange(t, loc, "w"), time.UTC)
		_, want := slowInstants(w, loc)
		if got := policy.WallFromUTC(w).Instant(loc); !got.Equal(want) {
			t.Fatalf("%v in %v is %v, want %v", w, loc, got, want)
		}
	})
}

func TestWallCutoff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loc := drawZone(t)
		c := drawNearChange(t, loc, "c")
		b := policy.WallCutoff(c, loc)
		for range 5 {
			w := shown(c, loc).Add(time.Duration(rapid.IntRange(-26*60, 26*60).Draw(t, "minutes")) * time.Minute)
			if rapid.Bool().Draw(t, "close") {
				w = shown(c, loc).Add(time.Duration(rapid.IntRange(-125, 125).Draw(t, "few minutes")) * time.Minute)
			}
			_, at := slowInstants(w, loc)
			if got, want := b.Before(policy.WallFromUTC(w)), at.Before(c); got != want {
				t.Fatalf("c=%v in %v: bound %v says %v of %v, whose instant is %v", c, loc, b, got, w, at)
			}
		}
	})
}

func TestDateCutoff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loc := drawZone(t)
		c := drawNearChange(t, loc, "c")
		bound := policy.DateCutoff(c, loc)
		for n := -3; n <= 3; n++ {
			d := policy.DateOf(c, loc).AddDays(n)
			over := slowDayOver(d, loc)
			if got := policy.DayOver(d, loc); !got.Equal(over) {
				t.Fatalf("%v in %v is over at %v, want %v", d, loc, got, over)
			}
			if got, want := d.Compare(bound) < 0, over.Before(c); got != want {
				t.Fatalf("c=%v in %v: bound %v says %v of %v, which is over at %v", c, loc, bound, got, d, over)
			}
		}
	})
}

// slowDayOver looks at every minute for the last one that shows the day or an
// earlier one.
func slowDayOver(d policy.Date, loc *time.Location) time.Time {
	midnight := d.AddDays(1).Midnight().UTC()
	for t := midnight.Add(40 * time.Hour); ; t = t.Add(-time.Minute) {
		if shown(t, loc).Before(midnight) {
			return t.Add(time.Minute)
		}
	}
}

func calendarPolicy(loc *time.Location, keep policy.Period) *policy.Policy {
	return &policy.Policy{Timezone: loc.String(), Keep: keep}
}

// monthsPeriods are the calendar periods whose two ends can both be near a
// change of the clock, and some others.
var monthsPeriods = []policy.Period{{Months: 1}, {Months: 5}, {Months: 7}, {Months: 12}, {Years: 1}, {Years: 2}, {Years: 4}, {Years: 1, Months: 6}}

// TestCutoffIsTheLaterOfTwoReadings compares the cutoff with both readings,
// each found by search: no trigger before the cutoff may have trigger + keep at
// or after as_of, nor be at or after as_of − keep, and the cutoff is no earlier
// than that asks for.
func TestCutoffIsTheLaterOfTwoReadings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loc := drawZone(t)
		asOf := drawNearChange(t, loc, "as_of")
		keep := rapid.SampledFrom(monthsPeriods).Draw(t, "keep")
		months := 12*keep.Years + keep.Months
		got := calendarPolicy(loc, keep).Cutoff(asOf)

		backward, _ := slowInstants(slowAddMonths(shown(asOf, loc), -months), loc)
		forward := firstAtOrAfter(t, asOf, months, loc, got)
		want := forward
		if backward.Before(want) {
			want = backward
		}
		if got.After(want) {
			t.Fatalf("as_of %v − %v in %v is %v; forward reading %v, backward %v", asOf, keep, loc, got, forward, backward)
		}
		if slack := want.Sub(got); slack > ambiguity(asOf, loc) {
			t.Fatalf("as_of %v − %v in %v is %v, %v too early; forward reading %v, backward %v", asOf, keep, loc, got, slack, forward, backward)
		}
	})
}

// firstAtOrAfter searches the minutes around the cutoff for the first trigger
// whose trigger + keep, read late, is not before asOf.
func firstAtOrAfter(t *rapid.T, asOf time.Time, months int, loc *time.Location, cutoff time.Time) time.Time {
	// One day at coarse steps, then the minutes around the cutoff.
	reaches := func(at time.Time) bool {
		end := slowAddMonths(shown(at, loc), months)
		return !policy.WallFromUTC(end).Instant(loc).Before(asOf) // checked by TestWallInstant
	}
	for at := cutoff.Add(-30 * time.Hour); at.Before(cutoff.Add(5 * 24 * time.Hour)); at = at.Add(time.Minute) {
		if reaches(at) {
			return at
		}
	}
	t.Fatalf("nothing around %v reaches %v", cutoff, asOf)
	return time.Time{}
}

// ambiguity is how much of a change of the clock asOf is in: the length of the
// jump just after a gap and in the first pass of a fold, else nothing.
func ambiguity(asOf time.Time, loc *time.Location) time.Duration {
	least := time.Duration(0)
	for _, step := range []time.Duration{-25 * time.Hour, 25 * time.Hour} {
		_, here := asOf.In(loc).Zone()
		_, there := asOf.Add(step).In(loc).Zone()
		if jump := time.Duration(here-there) * time.Second; step < 0 && jump > 0 || step > 0 && jump > 0 {
			least = max(least, jump)
		}
	}
	return least
}

// TestDueAt checks that DueAt and Cutoff are two views of one rule.
func TestDueAt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loc := drawZone(t)
		at := drawNearChange(t, loc, "trigger")
		keep := rapid.SampledFrom(append([]policy.Period{{Exact: 36 * time.Hour}, {}}, monthsPeriods...)).Draw(t, "keep")
		p := calendarPolicy(loc, keep)
		due := p.DueAt(at)
		for _, early := range []time.Duration{1, time.Second, time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 24 * time.Hour, 25 * time.Hour, 70 * time.Hour} {
			if asOf := due.Add(-early); at.Before(p.Cutoff(asOf)) {
				t.Fatalf("%v kept %v in %v: due at %v, but a run at %v finds it due", at, keep, loc, due, asOf)
			}
		}
		if asOf := due.Add(1); !at.Before(p.Cutoff(asOf)) {
			t.Fatalf("%v kept %v in %v: due at %v, but a run at %v with cutoff %v does not find it due", at, keep, loc, due, asOf, p.Cutoff(asOf))
		}
		if asOf := due.Add(5 * 24 * time.Hour); !at.Before(p.Cutoff(asOf)) {
			t.Fatalf("%v kept %v in %v: due at %v, but a run at %v does not find it due", at, keep, loc, due, asOf)
		}
	})
}

// TestMixedPeriods checks that both orders of a calendar and an exact part are
// kept.
func TestMixedPeriods(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loc := drawZone(t)
		asOf := drawNearChange(t, loc, "as_of")
		months := policy.Period{Months: rapid.IntRange(1, 30).Draw(t, "months")}
		exact := time.Duration(rapid.IntRange(1, 100*24).Draw(t, "hours")) * time.Hour
		p := calendarPolicy(loc, policy.Period{Months: months.Months, Exact: exact})
		first := calendarPolicy(loc, months).Cutoff(asOf).Add(-exact)
		second := calendarPolicy(loc, months).Cutoff(asOf.Add(-exact))
		got := p.Cutoff(asOf)
		if got.After(first) || got.After(second) || !got.Equal(first) && !got.Equal(second) {
			t.Fatalf("cutoff %v, the two orders give %v and %v", got, first, second)
		}
		at := drawNearChange(t, loc, "trigger")
		due := p.DueAt(at)
		for _, early := range []time.Duration{time.Second, time.Hour, 25 * time.Hour, 70 * time.Hour} {
			if at.Before(p.Cutoff(due.Add(-early))) {
				t.Fatalf("a row of %v is due at %v, but a run %v earlier finds it due", at, due, early)
			}
		}
	})
}

// TestCutoffDoesNotGoBack checks monotony as far as the calendar allows: over
// a day or more the cutoff never moves backwards by more than the time of day.
func TestCutoffDoesNotGoBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loc := drawZone(t)
		asOf := drawNearChange(t, loc, "as_of")
		p := calendarPolicy(loc, rapid.SampledFrom(monthsPeriods).Draw(t, "keep"))
		later := asOf.Add(time.Duration(rapid.IntRange(0, 10*24*60).Draw(t, "minutes later")) * time.Minute)
		c1, c2 := p.Cutoff(asOf), p.Cutoff(later)
		if c2.Before(c1) && (policy.DateOf(c2, loc) != policy.DateOf(c1, loc) || later.Sub(asOf) > 4*24*time.Hour) {
			t.Fatalf("as_of %v: cutoff %v; as_of %v: cutoff %v", asOf, c1, later, c2)
		}
		if !c1.Before(asOf) {
			t.Fatalf("as_of %v has the cutoff %v, which is not before it", asOf, c1)
		}
	})
}

// TestLastDayOfLeapYears is about a fault of Time.ZoneBounds, which would make
// an endless loop of it.
func TestLastDayOfLeapYears(t *testing.T) {
	loc := location(t, "Europe/Berlin")
	at := time.Date(2040, 12, 31, 12, 0, 0, 0, time.UTC)
	p := calendarPolicy(loc, policy.Period{Years: 1})
	if got, want := p.Cutoff(at), time.Date(2039, 12, 31, 12, 0, 0, 0, time.UTC); !got.Equal(want) {
		t.Errorf("cutoff %v, want %v", got, want)
	}
	if got, want := p.DueAt(at), time.Date(2041, 12, 31, 12, 0, 0, 0, time.UTC); !got.Equal(want) {
		t.Errorf("due at %v, want %v", got, want)
	}
	if got, want := policy.DayOver(policy.DateOf(at, loc), loc), time.Date(2040, 12, 31, 23, 0, 0, 0, time.UTC); !got.Equal(want) {
		t.Errorf("day over at %v, want %v", got, want)
	}
}

func TestCutoffTable(t *testing.T) {
	for _, c := range []struct{ zone, asOf, keep, want, why string }{
		{"UTC", "2026-03-31T12:00:00Z", "1mo", "2026-02-28T12:00:00Z", "clamped; AddDate would give 3 March"},
		{"UTC", "2024-03-31T12:00:00Z", "1mo", "2024-02-29T12:00:00Z", "clamped in a leap year"},
		{"UTC", "2026-03-30T12:00:00Z", "1mo", "2026-02-28T12:00:00Z", "clamped"},
		{"UTC", "2026-03-28T12:00:00Z", "1mo", "2026-02-28T12:00:00Z", "the same day"},
		{"UTC", "2026-03-01T00:00:00Z", "1mo", "2026-02-01T00:00:00Z", "28 days, not 30"},
		{"UTC", "2024-02-29T00:00:00Z", "1y", "2023-02-28T00:00:00Z", "29 February minus a year"},
		{"UTC", "2024-02-29T00:00:00Z", "4y", "2020-02-29T00:00:00Z", "29 February to 29 February"},
		{"UTC", "2025-02-28T00:00:00Z", "1y", "2024-02-28T00:00:00Z", "28 February minus a year is not the 29th"},
		{"UTC", "2100-03-01T00:00:00Z", "1y", "2099-03-01T00:00:00Z", "2100 is no leap year"},
		{"UTC", "2026-07-01T02:00:00Z", "2y", "2024-07-01T02:00:00Z", "the design's example"},
		{"UTC", "2026-07-01T02:00:00Z", "730d", "2024-07-01T02:00:00Z", "exact days"},
		{"UTC", "2026-07-01T02:00:00Z", "P1Y6M", "2025-01-01T02:00:00Z", "ISO"},
		{"UTC", "2026-01-15T00:00:00Z", "13mo", "2024-12-15T00:00:00Z", "across two years"},
		{"UTC", "2026-05-31T00:00:00Z", "P1M1D", "2026-04-29T00:00:00Z", "a month, then a day (the 30th, then the 29th); a day first gives the 30th"},
		{"Europe/Berlin", "2026-03-29T01:00:00Z", "30d", "2026-02-27T01:00:00Z", "exact days know no daylight saving"},
		{"Europe/Berlin", "2026-04-15T10:00:00Z", "1mo", "2026-03-15T11:00:00Z", "12:00 summer time is 12:00 winter time"},
		{"Europe/Berlin", "2026-03-29T01:15:00Z", "1y", "2025-03-29T01:15:00Z", "03:15 just after the gap reads as 02:15, an hour earlier"},
		{"Europe/Berlin", "2026-04-29T00:30:00Z", "1mo", "2026-03-29T01:00:00Z", "02:30 was skipped on 29 March: the moment of the change"},
		{"Europe/Berlin", "2026-10-25T00:30:00Z", "1mo", "2026-09-25T00:00:00Z", "02:30 the first time reads as 02:00, where the repeated hour begins"},
		{"Europe/Berlin", "2026-10-25T01:30:00Z", "1mo", "2026-09-25T00:30:00Z", "02:30 the second time"},
		{"Europe/Berlin", "2026-11-25T01:30:00Z", "1mo", "2026-10-25T00:30:00Z", "back to 02:30, the first of the two"},
		{"Australia/Lord_Howe", "2026-10-03T15:40:00Z", "1mo", "2026-09-03T15:40:00Z", "half an hour's gap: 02:40+11 reads as 02:10"},
		{"America/Havana", "2026-12-01T05:30:00Z", "1mo", "2026-11-01T04:30:00Z", "00:30 was shown twice; the first"},
		{"Africa/Cairo", "2026-05-23T21:30:00Z", "1mo", "2026-04-23T22:00:00Z", "00:30 on 24 April was skipped"},
		{"Pacific/Apia", "2012-01-30T00:00:00-10:00", "1mo", "2011-12-30T10:00:00Z", "30 December 2011 never was"},
		{"America/Sao_Paulo", "2018-12-04T02:30:00Z", "1mo", "2018-11-04T03:00:00Z", "midnight was skipped"},
	} {
		t.Run(fmt.Sprintf("%s %s %s", c.zone, c.asOf, c.keep), func(t *testing.T) {
			asOf, err := time.Parse(time.RFC3339, c.asOf)
			if err != nil {
				t.Fatal(err)
			}
			keep, err := policy.ParsePeriod(c.keep)
			if err != nil {
				t.Fatal(err)
			}
			got := calendarPolicy(location(t, c.zone), keep).Cutoff(asOf).Format(time.RFC3339Nano)
			if got != c.want {
				t.Errorf("cutoff %s, want %s: %s", got, c.want, c.why)
			}
		})
	}
}

func TestDueAtTable(t *testing.T) {
	for _, c := range []struct{ zone, trigger, keep, want, why string }{
		{"UTC", "2026-02-28T12:00:00Z", "1mo", "2026-03-28T12:00:00Z", "not 30 days"},
		{"UTC", "2026-01-31T12:00:00Z", "1mo", "2026-03-01T00:00:00Z", "February has no 31st: due as March begins"},
		{"UTC", "2024-02-29T12:00:00Z", "1y", "2025-03-01T00:00:00Z", "2025 has no 29 February"},
		{"UTC", "2026-01-01T00:00:00Z", "36h", "2026-01-02T12:00:00Z", "exact"},
		{"Europe/Berlin", "2026-03-15T11:00:00Z", "1mo", "2026-04-15T10:00:00Z", "noon to noon"},
		{"Europe/Berlin", "2026-02-28T01:30:00Z", "1mo", "2026-03-28T01:30:00Z", "the day before the change"},
		{"Europe/Berlin", "2025-03-29T01:30:00Z", "1y", "2026-03-29T01:30:00Z", "02:30 is skipped: read with the offset before"},
		{"Europe/Berlin", "2025-10-25T00:30:00Z", "1y", "2026-10-25T01:30:00Z", "02:30 comes twice: the second"},
		{"Europe/Berlin", "2026-10-25T00:30:00Z", "1mo", "2026-11-25T01:30:00Z", "02:30 the first time"},
		{"Europe/Berlin", "2026-10-25T01:30:00Z", "1mo", "2026-11-25T02:00:00Z", "02:30 the second time: the cutoff passes it when the repeated hour is over"},
		{"Europe/Berlin", "2025-03-29T02:15:00Z", "1y", "2026-03-29T02:00:00Z", "03:15 just after a gap: when the gap's length has passed too"},
	} {
		at, err := time.Parse(time.RFC3339, c.trigger)
		if err != nil {
			t.Fatal(err)
		}
		keep, err := policy.ParsePeriod(c.keep)
		if err != nil {
			t.Fatal(err)
		}
		if got := calendarPolicy(location(t, c.zone), keep).DueAt(at).Format(time.RFC3339Nano); got != c.want {
			t.Errorf("%s kept %s in %s is due at %s, want %s: %s", c.trigger, c.keep, c.zone, got, c.want, c.why)
		}
	}
}

func TestDayOverTable(t *testing.T) {
	for _, c := range []struct{ zone, day, want, why string }{
		{"UTC", "2026-02-28", "2026-03-01T00:00:00Z", "midnight"},
		{"Europe/Berlin", "2026-03-29", "2026-03-29T22:00:00Z", "a day of 23 hours"},
		{"Africa/Cairo", "2026-04-23", "2026-04-23T22:00:00Z", "the next day begins at 01:00"},
		{"America/Havana", "2026-10-31", "2026-11-01T04:00:00Z", "the repeated hour is the next day's"},
		{"America/Sao_Paulo", "2018-02-17", "2018-02-18T03:00:00Z", "the last hour of the day comes twice"},
		{"America/St_Johns", "2006-10-28", "2006-10-29T03:30:00Z", "the day comes back for a minute short of an hour: over only then"},
		{"Pacific/Apia", "2011-12-29", "2011-12-30T10:00:00Z", "the last day before the skip"},
		{"Pacific/Apia", "2011-12-30", "2011-12-30T10:00:00Z", "the day that never was"},
	} {
		d, err := policy.ParseDate(c.day)
		if err != nil {
			t.Fatal(err)
		}
		if got := policy.DayOver(d, location(t, c.zone)).Format(time.RFC3339); got != c.want {
			t.Errorf("%s in %s is over at %s, want %s: %s", c.day, c.zone, got, c.want, c.why)
		}
	}
}

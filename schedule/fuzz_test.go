package schedule_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/schedule"
)

var seeds = []string{
	"0 2 * * *", "*/7 * * * *", "30 2 29 2 */7", "0 0 13 * 5", "@daily", "@hourly", "0 0 30 2 *", "0-59/2,5 22-2 * jan-Mar fri-7", "* * * * *",
	"5/10 * * * *", "0 0 ? * L", "0 0 2 * * *", "", "@", "\u00a00 2 * * *", "٣ * * * *", "0 0 31 2,4 sun", "0 0 1 1 0,",
}

// FuzzParse looks for expressions that end the process, for errors that do not
// help, and for accepted ones that never come or whose words are wrong about it.
func FuzzParse(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	start := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	f.Fuzz(func(t *testing.T, expr string) {
		c, err := schedule.Parse(expr)
		if err != nil {
			e, ok := errors.AsType[*schedule.Error](err)
			if !ok || e.Problem == "" || e.Hint == "" || e.Column < 0 || e.Column > len([]rune(expr)) {
				t.Fatalf("%q: %#v", expr, err)
			}
			return
		}
		if c.String() != expr || c.Words() == "" {
			t.Fatalf("%q is written %q, %q", expr, c, c.Words())
		}
		s := schedule.Schedule{Cron: c}
		next, ok := s.Next(start)
		if !ok || next.Year() > start.Year()+40 {
			t.Fatalf("%q next comes at %v, %v", expr, next, ok)
		}
		if strings.HasPrefix(expr, "@") {
			return
		}
		if j := jobOf(t, expr); !j.matches(next) {
			t.Fatalf("%q does not come at %v", expr, next)
		}
	})
}

// FuzzNext compares with the simulation of cron wherever the fuzzer goes.
func FuzzNext(f *testing.F) {
	for i, s := range seeds {
		f.Add(s, int64(1774742400+i*3600), uint8(i))
	}
	f.Fuzz(func(t *testing.T, expr string, second int64, zone uint8) {
		c, err := schedule.Parse(expr)
		if err != nil || strings.HasPrefix(expr, "@") {
			return
		}
		loc := location(t, zones[int(zone)%len(zones)])
		s := schedule.Schedule{Cron: c, Location: loc}
		from := time.Unix(second, 0).UTC()
		next, ok := s.Next(from)
		if !ok {
			if from.Year() < 9950 {
				t.Fatalf("%q never comes after %v", expr, from)
			}
			return
		}
		if prev, ok := s.Prev(next); ok && prev.After(from) {
			t.Fatalf("%q: %v is between %v and %v", expr, prev, from, next)
		}
		if from.Year() < 1975 || from.Year() > 2400 { // seconds in the offsets
			return
		}
		to := from.Add(12 * time.Hour)
		if got, want := slices.Collect(s.Between(from, to)), simulate(jobOf(t, expr), loc, from, to); !slices.Equal(got, want) {
			t.Fatalf("%q in %v from %v: %v, want %v", expr, loc, from, got, want)
		}
	})
}

package schedule_test

import (
	"slices"
	"testing"
	"time"

	"curfew.dev/curfew/schedule"
	"pgregory.net/rapid"
)

func drawSchedule(t *rapid.T) schedule.Schedule {
	return schedule.Schedule{
		Cron:     parse(t, drawExpr(t)),
		Location: location(t, rapid.SampledFrom(zones).Draw(t, "zone")),
	}
}

func drawInstant(t *rapid.T) time.Time {
	return time.Unix(rapid.Int64Range(-5e9, 20e9).Draw(t, "second"), rapid.SampledFrom([]int64{0, 1, 999999999}).Draw(t, "nanosecond")).UTC()
}

// TestNextAndPrev holds for every schedule and instant, however rarely it comes.
func TestNextAndPrev(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, from := drawSchedule(t), drawInstant(t)
		for range 5 {
			next, ok := s.Next(from)
			if !ok || !next.After(from) {
				t.Fatalf("%s: next after %v is %v, %v", s.Cron, from, next, ok)
			}
			if next.Location() != time.UTC {
				t.Fatalf("%v is not in UTC", next)
			}
			if again, ok := s.Next(next.Add(-1)); !ok || again != next {
				t.Fatalf("%s: just before %v comes %v", s.Cron, next, again)
			}
			if self, ok := s.Prev(next.Add(1)); !ok || self != next {
				t.Fatalf("%s: just after %v came %v", s.Cron, next, self)
			}
			prev, ok := s.Prev(next)
			if !ok || prev.After(from) {
				t.Fatalf("%s: between %v and %v is %v, which Next left out", s.Cron, from, next, prev)
			}
			if back, ok := s.Next(prev); !ok || back != next {
				t.Fatalf("%s: after %v comes %v, not %v", s.Cron, prev, back, next)
			}
			from = next
		}
	})
}

// TestWindowsAddUp cuts a window into pieces at random instants: a process that
// looks every now and then sees what one sees that looks once.
func TestWindowsAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, from := drawSchedule(t), drawInstant(t)
		cuts := []time.Time{from, from.Add(time.Duration(rapid.Int64Range(0, int64(96*time.Hour)).Draw(t, "length")))}
		whole := slices.Collect(s.Between(cuts[0], cuts[1]))
		for range rapid.IntRange(0, 10).Draw(t, "cuts") {
			cut := from.Add(time.Duration(rapid.Int64Range(0, int64(cuts[1].Sub(from))).Draw(t, "cut")))
			if len(whole) > 0 && rapid.Bool().Draw(t, "on an instant") {
				cut = rapid.SampledFrom(whole).Draw(t, "instant")
			}
			cuts = append(cuts, cut)
		}
		slices.SortFunc(cuts, time.Time.Compare)
		var pieces []time.Time
		for i := range cuts[1:] {
			pieces = slices.AppendSeq(pieces, s.Between(cuts[i], cuts[i+1]))
		}
		if !slices.Equal(whole, pieces) {
			t.Fatalf("%s: %v in one window, %v in pieces %v", s.Cron, whole, pieces, cuts)
		}
		if !slices.IsSortedFunc(whole, time.Time.Compare) || len(slices.Compact(slices.Clone(whole))) != len(whole) {
			t.Fatalf("%s: not in order, or twice: %v", s.Cron, whole)
		}
	})
}

// TestOnceADay is the promise to whoever writes "0 2 * * *": a run for every
// day that the zone's calendar has, changes of the clock or not.
func TestOnceADay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		expr := drawValue(t, 0, 59, "minute") + " " + drawValue(t, 0, 23, "hour") + " * * *"
		zone := rapid.SampledFrom([]string{"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Africa/Cairo", "America/Sao_Paulo", "Antarctica/Troll"}).Draw(t, "zone")
		loc := location(t, zone)
		s := schedule.Schedule{Cron: parse(t, expr), Location: loc}
		year := rapid.IntRange(1975, 2060).Draw(t, "year")
		seen := map[int]int{}
		for at := range s.Between(time.Date(year, 1, 1, 0, 0, 0, 0, loc).Add(-1), time.Date(year+1, 1, 1, 0, 0, 0, 0, loc).Add(-1)) {
			seen[at.In(loc).YearDay()]++
		}
		for day := 1; day <= time.Date(year, 12, 31, 0, 0, 0, 0, time.UTC).YearDay(); day++ {
			if seen[day] != 1 {
				t.Fatalf("%s in %s comes %d times on day %d of %d", expr, zone, seen[day], day, year)
			}
		}
	})
}

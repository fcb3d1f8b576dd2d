package schedule_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/schedule"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// zones have every kind of change: whole and half hours, at midnight, in the
// south, over the date line both ways, three hours, none at all.
var zones = []string{
	"Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Havana", "Africa/Cairo", "Pacific/Apia",
	"America/Sao_Paulo", "Asia/Kathmandu", "UTC", "America/St_Johns", "Africa/Casablanca", "Antarctica/Casey",
	"Antarctica/Troll", "Pacific/Kwajalein",
}

// job is what cron knows of a line in a crontab.
type job struct {
	wild    bool // the minute or the hour begins with *
	matches func(shown time.Time) bool
}

// simulate is the main loop of cron(8), woken every minute of real time, with
// its two clocks: the one on the wall and the one that follows it.
func simulate(j job, loc *time.Location, from, to time.Time) []time.Time {
	const threeHours = 3 * 60
	var fired []time.Time
	reading := func(t time.Time) int {
		_, offset := t.In(loc).Zone()
		return int((t.Unix() + int64(offset)) / 60)
	}
	comes := func(reading int) bool { return j.matches(time.Unix(int64(reading)*60, 0).UTC()) }
	start := from.Truncate(time.Minute).Add(-36 * time.Hour)
	virtual := reading(start)
	for t := start.Add(time.Minute); !t.After(to); t = t.Add(time.Minute) {
		fire := false
		now := reading(t)
		switch late := now - virtual; {
		case late > threeHours+1 || late <= -threeHours: // the clock was set
			virtual = now
			fire = comes(now)
		case late > 0: // the clock went forward, or it is just the next minute
			if j.wild {
				fire = comes(now)
				virtual = now
			}
			for virtual < now {
				virtual++
				fire = comes(virtual) || fire
			}
		default: // the clock went back: fixed times wait until it is where it was
			fire = j.wild && comes(now)
		}
		if fire && t.After(from) {
			fired = append(fired, t)
		}
	}
	return fired
}

var ordinals = map[string]int{
	"jan": 1, "feb": 2, "mar": 3, "apr": 4, "may": 5, "jun": 6, "jul": 7, "aug": 8, "sep": 9, "oct": 10, "nov": 11, "dec": 12,
	"sun": 0, "mon": 1, "tue": 2, "wed": 3, "thu": 4, "fri": 5, "sat": 6,
}

// has reports whether a field of a valid expression has a value.
func has(field string, least, most, v int) bool {
	number := func(s string) int {
		if n, ok := ordinals[strings.ToLower(s)]; ok {
			return n
		}
		n, _ := strconv.Atoi(s)
		return n
	}
	for part := range strings.SplitSeq(field, ",") {
		span, step, _ := strings.Cut(part, "/")
		low, high := least, most
		if span != "*" {
			a, b, ranged := strings.Cut(span, "-")
			low, high = number(a), number(a)
			if ranged {
				high = number(b)
			}
		}
		if low <= v && v <= high && (v-low)%max(1, number(step)) == 0 {
			return true
		}
	}
	return false
}

// jobOf reads five fields, field by field and value by value.
func jobOf(t fatal, expr string) job {
	f := strings.Fields(expr)
	if len(f) != 5 {
		t.Fatal("not five fields: " + expr)
	}
	table := func(field string, least, most int) (set [61]bool) {
		for v := least; v <= most; v++ {
			set[v] = has(field, least, most, v)
		}
		return set
	}
	minutes, hours, days, months, weekdays := table(f[0], 0, 59), table(f[1], 0, 23), table(f[2], 1, 31), table(f[3], 1, 12), table(f[4], 0, 7)
	weekdays[0] = weekdays[0] || weekdays[7]
	star := func(i int) bool { return strings.HasPrefix(f[i], "*") }
	return job{star(0) || star(1), func(w time.Time) bool {
		if !minutes[w.Minute()] || !hours[w.Hour()] || !months[w.Month()] {
			return false
		}
		day, weekday := days[w.Day()], weekdays[w.Weekday()]
		if star(2) || star(4) {
			return day && weekday
		}
		return day || weekday
	}}
}

// changes are days on which clocks in the zone are changed.
func changes(loc *time.Location) []time.Time {
	offset := func(t time.Time) int { _, o := t.In(loc).Zone(); return o }
	var all []time.Time
	for d := time.Date(1965, 1, 1, 0, 0, 0, 0, time.UTC); d.Year() < 2060; d = d.AddDate(0, 0, 1) {
		if offset(d) != offset(d.AddDate(0, 0, 1)) && offset(d)%60 == 0 {
			all = append(all, d)
		}
	}
	return append(all, time.Date(2040, 12, 31, 0, 0, 0, 0, time.UTC))
}

func drawValue(t *rapid.T, least, most int, label string) string {
	return strconv.Itoa(rapid.IntRange(least, most).Draw(t, label))
}

func drawField(t *rapid.T, least, most int, names []string, stars int, label string) string {
	if rapid.IntRange(1, 10).Draw(t, label+" is a star") <= stars {
		return "*"
	}
	part := func() string {
		a := rapid.IntRange(least, most).Draw(t, label+" from")
		b := rapid.IntRange(a, most).Draw(t, label+" to")
		step := drawValue(t, 1, max(1, most/2), label+" step")
		switch rapid.IntRange(0, 6).Draw(t, label+" kind") {
		case 0:
			return "*/" + step
		case 1:
			return strconv.Itoa(a) + "-" + strconv.Itoa(b)
		case 2:
			return strconv.Itoa(a) + "-" + strconv.Itoa(b) + "/" + step
		case 3:
			if len(names) > 0 {
				return names[(a-least)%len(names)]
			}
		case 4:
			if rapid.IntRange(0, 3).Draw(t, label+" odd star") == 0 {
				return "*"
			}
		}
		return strconv.Itoa(a)
	}
	parts := make([]string, rapid.SampledFrom([]int{1, 1, 1, 2, 3}).Draw(t, label+" parts"))
	for i := range parts {
		parts[i] = part()
	}
	return strings.Join(parts, ",")
}

var (
	monthNames   = []string{"jan", "Feb", "MAR", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"}
	weekdayNames = []string{"sun", "Mon", "TUE", "wed", "thu", "fri", "sat"}
)

// drawExpr draws an expression that comes; most come every day and often near
// the hours at which clocks are changed.
func drawExpr(t *rapid.T) string {
	hours := 23
	if rapid.Bool().Draw(t, "early hours") {
		hours = 4
	}
	expr := strings.Join([]string{
		drawField(t, 0, 59, nil, 2, "minute"), drawField(t, 0, hours, nil, 2, "hour"), drawField(t, 1, 31, nil, 7, "day"),
		drawField(t, 1, 12, monthNames, 8, "month"), drawField(t, 0, 7, weekdayNames, 7, "weekday"),
	}, " ")
	if _, err := schedule.Parse(expr); err != nil {
		if !strings.Contains(err.Error(), "never comes") {
			t.Fatal(err)
		}
		t.Skip("never comes")
	}
	return expr
}

// TestAgainstCron compares every instant of some days with the simulation of
// cron, forwards and backwards, around changes of the clock.
func TestAgainstCron(t *testing.T) {
	for _, zone := range zones {
		t.Run(zone, func(t *testing.T) {
			loc := location(t, zone)
			days := changes(loc)
			rapid.Check(t, func(t *rapid.T) {
				expr := drawExpr(t)
				day := rapid.SampledFrom(days).Draw(t, "day")
				from := day.Add(time.Duration(rapid.IntRange(-36*60, 36*60).Draw(t, "from")) * time.Minute)
				to := from.Add(time.Duration(rapid.IntRange(0, 72*60).Draw(t, "length")) * time.Minute)
				s := schedule.Schedule{Cron: parse(t, expr), Location: loc}
				want := simulate(jobOf(t, expr), loc, from, to)

				if diff := cmp.Diff(want, slices.Collect(s.Between(from, to))); diff != "" {
					t.Fatalf("%s from %v to %v (-cron +ours):\n%s", expr, from, to, diff)
				}
				checkSteps(t, s, from, to, want)
			})
		})
	}
}

// checkSteps walks the same way with Next and with Prev.
func checkSteps(t *rapid.T, s schedule.Schedule, from, to time.Time, want []time.Time) {
	if len(want) > 200 { // enough is enough
		to = want[199]
		want = want[:200]
	}
	var forth, back []time.Time
	for at, ok := s.Next(from); ok && !at.After(to); at, ok = s.Next(at) {
		forth = append(forth, at)
	}
	for at, ok := s.Prev(to.Add(1)); ok && at.After(from); at, ok = s.Prev(at) {
		back = append(back, at)
	}
	slices.Reverse(back)
	if diff := cmp.Diff(want, forth); diff != "" {
		t.Fatalf("%s with Next (-want +got):\n%s", s.Cron, diff)
	}
	if diff := cmp.Diff(want, back); diff != "" {
		t.Fatalf("%s with Prev (-want +got):\n%s", s.Cron, diff)
	}
}

// Package schedule says when: a cron expression and a time zone become the
// instants at which a policy is due to run, forwards and backwards, and words
// for a reader.
//
// Its one invariant: the instants are those of crontab(5) and cron(8), through
// every change of the clock, and depend on nothing but the expression, the zone
// and the two ends asked for. Whoever asks again, on any machine, gets the same.
//
// # What cron(8) says about changes of the clock
//
// A job whose minute or hour begins with * is an interval job: it comes
// whenever the clock shows a time that matches. In the hour that the clock skips
// in spring it does not come, in the hour that it shows twice in autumn it comes
// both times: "0 * * * *" is every real hour.
//
// Any other job has fixed times. What the clock skips comes once, in the instant
// of the change; what it shows twice comes the first time only: "30 2 * * *" is
// once a day, every day.
//
// Both hold for changes of up to three hours. A larger one, such as a zone moving
// to the other side of the date line, is a correction of the clock: the new time
// counts at once, what was skipped does not come and what is shown twice comes
// twice.
//
// The package is pure: it takes instants and never asks for the time.
package schedule

import (
	"iter"
	"time"
	_ "time/tzdata" // schedules name zones; the binary must know them on any machine
)

// Schedule is a cron expression read in a time zone. The zero Schedule never
// comes.
type Schedule struct {
	Cron     Cron
	Location *time.Location // nil means UTC
}

// Instants are looked for between these two, which RFC 3339 can write.
var (
	earliest = time.Date(1, 1, 1, 0, 0, 0, 0, time.UTC)
	latest   = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
)

// Next is the first instant strictly after another, in UTC. It is false when
// there is none before the year 10000, which for a parsed expression only
// happens close to that year.
func (s Schedule) Next(after time.Time) (time.Time, bool) {
	for t := range s.Between(after, latest) {
		return t, true
	}
	return time.Time{}, false
}

// Prev is the last instant strictly before another, in UTC. It is false when
// there is none since the year 1.
func (s Schedule) Prev(before time.Time) (time.Time, bool) {
	if s.Cron == (Cron{}) {
		return time.Time{}, false
	}
	at := before.UTC()
	if end := latest.Add(1); at.After(end) {
		at = end
	}
	for at.After(earliest) {
		r := regimeAt(at.Add(-1), s.Location)
		if m, ok := s.Cron.last(s.firstShown(r), ceilMinute(at.Add(r.offset))); ok {
			t := r.instant(m)
			return t, !t.Before(earliest)
		}
		if s.catchesUp(r) {
			return r.start, !r.start.Before(earliest)
		}
		at = r.start
	}
	return time.Time{}, false
}

// Between yields the instants after from and up to and including to, in order
// and in UTC: the windows (a, b] and (b, c] have together what (a, c] has.
// The sequence can be ranged over more than once.
func (s Schedule) Between(from, to time.Time) iter.Seq[time.Time] {
	return func(yield func(time.Time) bool) {
		if s.Cron == (Cron{}) {
			return
		}
		// From here on start is included and end is not.
		start, end := from.UTC().Add(1), to.UTC().Add(1)
		if start.Before(earliest) {
			start = earliest
		}
		if limit := latest.Add(1); end.After(limit) {
			end = limit
		}
		for at := start; at.Before(end); {
			r := regimeAt(at, s.Location)
			caught := r.start.Equal(at) && s.catchesUp(r)
			if caught && !yield(r.start) {
				return
			}
			until := r.end
			if end.Before(until) {
				until = end
			}
			low, high := max(s.firstShown(r), ceilMinute(at.Add(r.offset))), ceilMinute(until.Add(r.offset))
			for m, ok := s.Cron.first(low, high); ok; m, ok = s.Cron.first(m+1, high) {
				t := r.instant(m)
				if caught && t.Equal(r.start) {
					continue // skipped and shown at once is still one instant
				}
				if !yield(t) {
					return
				}
			}
			at = r.end
		}
	}
}

// special is the largest change of the clock to which fixed times adapt.
const special = 3 * time.Hour

// adapts reports whether the change at the start of the regime is one that
// jobs at fixed times do not follow.
func (s Schedule) adapts(r regime) bool {
	return !s.Cron.interval() && (r.offset-r.before).Abs() <= special
}

// catchesUp reports whether the job comes at the start of the regime because
// the clock skipped its time there.
func (s Schedule) catchesUp(r regime) bool {
	if !s.adapts(r) {
		return false
	}
	_, skipped := s.Cron.first(ceilMinute(r.start.Add(r.before)), ceilMinute(r.start.Add(r.offset)))
	return skipped
}

// firstShown is the first minute on the clock at which the job may come in the
// regime. For fixed times that excludes what the regime before has shown; to
// look at one suffices, no zone has ever changed twice within 36 hours.
func (s Schedule) firstShown(r regime) minute {
	if s.adapts(r) {
		return ceilMinute(r.start.Add(max(r.before, r.offset)))
	}
	return ceilMinute(r.start.Add(r.offset))
}

// regime is a stretch of time, start ≤ t < end, with one offset from UTC.
type regime struct {
	start, end     time.Time
	offset, before time.Duration // before is the offset that ended at start
}

// A regime without a beginning or an end is cut off here, out of reach.
var (
	dawn = earliest.AddDate(-1, 0, 0)
	dusk = latest.AddDate(1, 0, 0)
)

// regimeAt is the regime that holds t. Two in a row may have the same offset:
// the standard library also splits where only a name changes.
func regimeAt(t time.Time, loc *time.Location) regime {
	if loc == nil {
		loc = time.UTC
	}
	local := t.In(loc)
	start, end := local.ZoneBounds()
	r := regime{start: dawn, end: dusk, offset: offsetOf(local)}
	r.before = r.offset
	if !start.IsZero() {
		r.start, r.before = start.UTC(), offsetOf(start.Add(-1))
	}
	if !end.IsZero() {
		r.end = end.UTC()
	}
	if !r.end.After(t) {
		// Beyond the table of changes the standard library ends every year
		// after 365 days (seen in Go 1.26, for 31 December 2040 and each leap
		// year after it). No rule has a change on that day.
		r.end = t.Truncate(24 * time.Hour).Add(24 * time.Hour)
	}
	return r
}

func offsetOf(t time.Time) time.Duration {
	_, seconds := t.Zone()
	return time.Duration(seconds) * time.Second
}

// instant is when the clock shows m, given that this regime shows it.
func (r regime) instant(m minute) time.Time {
	return time.Unix(int64(m)*60, 0).UTC().Add(-r.offset)
}

// minute is what a clock on the wall shows, date and time in no zone, in
// minutes since the midnight that began 1970.
type minute int64

// ceilMinute is the first whole minute at or after the reading of a clock, held
// as if it were UTC.
func ceilMinute(reading time.Time) minute {
	seconds := reading.Unix()
	if reading.Nanosecond() > 0 {
		seconds++
	}
	return minute(-floorDiv(-seconds, 60))
}

func floorDiv(a, b int64) int64 {
	q := a / b
	if a%b < 0 {
		q--
	}
	return q
}

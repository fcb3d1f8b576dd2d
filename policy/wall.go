package policy

import (
	"fmt"
	"time"
)

// Date is a day of the calendar, in no zone.
type Date struct {
	Year  int
	Month time.Month
	Day   int
}

// DateOf is the local date of an instant.
func DateOf(t time.Time, loc *time.Location) Date {
	y, m, d := t.In(loc).Date()
	return Date{y, m, d}
}

// ParseDate reads a date of the form 2006-01-02, years 0001 to 9999.
func ParseDate(text string) (Date, error) {
	t, err := time.Parse(time.DateOnly, text)
	if err != nil || t.Year() < 1 || len(text) != len(time.DateOnly) {
		return Date{}, &fault{"this is not a date", "write for example 2000-01-31"}
	}
	return DateOf(t, time.UTC), nil
}

// String is the date as 2006-01-02.
func (d Date) String() string { return fmt.Sprintf("%04d-%02d-%02d", d.Year, int(d.Month), d.Day) }

// Midnight is the first wall time of the day.
func (d Date) Midnight() Wall { return Wall{time.Date(d.Year, d.Month, d.Day, 0, 0, 0, 0, time.UTC)} }

// AddDays is the day n days later.
func (d Date) AddDays(n int) Date { return DateOf(d.Midnight().t.AddDate(0, 0, n), time.UTC) }

// Compare is -1, 0 or +1, as d is before, equal to or after e.
func (d Date) Compare(e Date) int { return d.Midnight().Compare(e.Midnight()) }

// MarshalText writes the date as [Date.String] does.
func (d Date) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads a date, see [ParseDate].
func (d *Date) UnmarshalText(text []byte) (err error) {
	*d, err = ParseDate(string(text))
	return err
}

// Wall is a civil date and time in no zone: what a clock on the wall shows and
// what a timestamp without time zone holds. The zero Wall is no time.
type Wall struct{ t time.Time } // the reading, held as if it were UTC

// WallOf is what clocks in loc show at t.
func WallOf(t time.Time, loc *time.Location) Wall {
	l := t.In(loc)
	_, offset := l.Zone()
	return Wall{t.UTC().Add(time.Duration(offset) * time.Second)}
}

// WallFromUTC takes the reading of t in UTC, which is how drivers hand over a
// timestamp without time zone.
func WallFromUTC(t time.Time) Wall { return Wall{t.UTC()} }

// UTC is the time.Time that reads the same in UTC: the value to bind to a
// column without a zone.
func (w Wall) UTC() time.Time { return w.t }

// IsZero reports whether w is no time at all.
func (w Wall) IsZero() bool { return w.t.IsZero() }

// Compare is -1, 0 or +1, as w reads before, equal to or after v.
func (w Wall) Compare(v Wall) int { return w.t.Compare(v.t) }

// Before reports whether w reads before v.
func (w Wall) Before(v Wall) bool { return w.t.Before(v.t) }

// Date is the day of the reading.
func (w Wall) Date() Date { return DateOf(w.t, time.UTC) }

// String is the reading as 2006-01-02 15:04:05, with a fraction when it has
// one.
func (w Wall) String() string { return w.t.Format("2006-01-02 15:04:05.999999999") }

func (w Wall) add(d time.Duration) Wall { return Wall{w.t.Add(d)} }

// Instant is the instant at which clocks in loc show w. Where they show it
// twice (clocks went back) it is the second time; where they never do (clocks
// went forward) it is read with the offset before the change. In both cases
// that is the later of the two readings.
func (w Wall) Instant(loc *time.Location) time.Time {
	rs := regimes(w.t, loc)
	var at time.Time
	found := false
	for _, r := range rs {
		if t := w.t.Add(-r.offset); r.holds(t) {
			at, found = t, true // later regimes come later
		}
	}
	if found {
		return at
	}
	for i, r := range rs[:len(rs)-1] {
		before, after := r.end.Add(r.offset), r.end.Add(rs[i+1].offset)
		if !w.t.Before(before) && w.t.Before(after) {
			at, found = w.t.Add(-r.offset), true
		}
	}
	if !found {
		panic(fmt.Sprintf("policy: %v is neither shown nor skipped in %v", w, loc))
	}
	return at
}

// first is the earliest instant at which clocks in loc show w or later: the
// first time they show it, and the moment of the change where they skip it.
func (w Wall) first(loc *time.Location) time.Time {
	for _, r := range regimes(w.t, loc) {
		t := w.t.Add(-r.offset)
		if r.hasStart && t.Before(r.start) {
			t = r.start
		}
		if r.holds(t) {
			return t
		}
	}
	panic(fmt.Sprintf("policy: %v never comes in %v", w, loc))
}

// end is the instant before which clocks in loc show readings before w and
// after which they never do again. It differs from [Wall.first] where clocks
// go back across w.
func (w Wall) end(loc *time.Location) time.Time {
	var last time.Time
	found := false
	for _, r := range regimes(w.t, loc) {
		t := w.t.Add(-r.offset)
		if r.hasEnd && r.end.Before(t) {
			t = r.end
		}
		if !r.hasStart || t.After(r.start) {
			last, found = t, true
		}
	}
	if !found {
		panic(fmt.Sprintf("policy: %v never ends in %v", w, loc))
	}
	return last
}

// regime is a stretch of time with one offset from UTC: start ≤ t < end.
type regime struct {
	start, end       time.Time
	hasStart, hasEnd bool
	offset           time.Duration
}

func (r regime) holds(t time.Time) bool {
	return (!r.hasStart || !t.Before(r.start)) && (!r.hasEnd || t.Before(r.end))
}

// reach is how far the regimes around a reading are looked up. Offsets reach 16
// hours to either side and the largest jump in the database is 24 hours.
const reach = 48 * time.Hour

// regimes returns the regimes of loc around a time, in order, without gaps.
func regimes(around time.Time, loc *time.Location) []regime {
	var rs []regime
	until := around.Add(reach)
	for t := around.Add(-reach); ; {
		l := t.In(loc)
		_, offset := l.Zone()
		start, end := l.ZoneBounds()
		r := regime{start.UTC(), end.UTC(), !start.IsZero(), !end.IsZero(), time.Duration(offset) * time.Second}
		if r.hasEnd && !r.end.After(t) {
			// Beyond the table of changes the standard library ends every year
			// after 365 days (seen in Go 1.26, for 31 December 2040 and each
			// leap year after it). No rule has a change on that day.
			r.end = t.Truncate(24 * time.Hour).Add(24 * time.Hour)
		}
		switch n := len(rs); {
		case n > 0 && rs[n-1].offset == r.offset: // a change of the name alone
			rs[n-1].end, rs[n-1].hasEnd = r.end, r.hasEnd
		case n > 0:
			r.start, r.hasStart = rs[n-1].end, true
			rs = append(rs, r)
		default:
			rs = append(rs, r)
		}
		if !r.hasEnd || r.end.After(until) {
			return rs
		}
		t = r.end
	}
}

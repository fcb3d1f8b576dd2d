package schedule

import (
	"math/bits"
	"time"
)

// Cron is a parsed cron expression: five fields as in crontab(5), or one of the
// descriptors @yearly, @annually, @monthly, @weekly, @daily, @midnight and
// @hourly. [Parse] makes one; the zero Cron never comes. Crons can be compared
// with ==; equal ones have the same text.
type Cron struct {
	text string
	// One bit for each value; Sunday is bit 0 of weekday only.
	minute, hour, day, month, weekday uint64
	// Whether a field begins with *, which says more than which values it has.
	anyMinute, anyHour, anyDay, anyWeekday bool
}

// String is the expression as it was given to [Parse].
func (c Cron) String() string { return c.text }

// interval reports whether the job follows real time through a change of the
// clock, rather than having fixed times.
func (c Cron) interval() bool { return c.anyMinute || c.anyHour }

// comesOn reports whether the day of the month and the day of the week suit:
// one of them, or both where one field begins with *. Two restricted fields are
// alternatives, a star is no restriction to choose instead.
func (c Cron) comesOn(day int, weekday time.Weekday) bool {
	d, w := c.day&(1<<day) != 0, c.weekday&(1<<weekday) != 0
	if c.anyDay || c.anyWeekday {
		return d && w
	}
	return d || w
}

const minutesPerDay = 24 * 60

// first is the first minute that matches, from ≤ m < to.
func (c Cron) first(from, to minute) (minute, bool) {
	day, start := from.split()
	for ; minute(day)*minutesPerDay < to; start = 0 {
		y, month, d := dateOf(day)
		if c.month&(1<<month) == 0 {
			day = dayOf(y, month+1, 1)
			continue
		}
		if c.comesOn(d, weekdayOf(day)) {
			if inDay, ok := c.firstInDay(start); ok {
				m := minute(day)*minutesPerDay + minute(inDay)
				return m, m < to
			}
		}
		day++
	}
	return 0, false
}

// last is the last minute that matches, from ≤ m < to.
func (c Cron) last(from, to minute) (minute, bool) {
	day, end := (to - 1).split()
	for ; minute(day+1)*minutesPerDay > from; end = minutesPerDay - 1 {
		y, month, d := dateOf(day)
		if c.month&(1<<month) == 0 {
			day = dayOf(y, month, 0)
			continue
		}
		if c.comesOn(d, weekdayOf(day)) {
			if inDay, ok := c.lastInDay(end); ok {
				m := minute(day)*minutesPerDay + minute(inDay)
				return m, m >= from
			}
		}
		day--
	}
	return 0, false
}

// firstInDay is the first minute of a day that matches, at or after another.
func (c Cron) firstInDay(from int) (int, bool) {
	hour, min := from/60, from%60
	if c.hour&(1<<hour) != 0 {
		if rest := c.minute >> min << min; rest != 0 {
			return hour*60 + bits.TrailingZeros64(rest), true
		}
	}
	if rest := c.hour >> (hour + 1) << (hour + 1); rest != 0 {
		return bits.TrailingZeros64(rest)*60 + bits.TrailingZeros64(c.minute), true
	}
	return 0, false
}

// lastInDay is the last minute of a day that matches, at or before another.
func (c Cron) lastInDay(to int) (int, bool) {
	hour, min := to/60, to%60
	if c.hour&(1<<hour) != 0 {
		if rest := c.minute & (1<<(min+1) - 1); rest != 0 {
			return hour*60 + bits.Len64(rest) - 1, true
		}
	}
	if rest := c.hour & (1<<hour - 1); rest != 0 {
		return (bits.Len64(rest)-1)*60 + bits.Len64(c.minute) - 1, true
	}
	return 0, false
}

// split returns the days since 1970 and the minute of the day.
func (m minute) split() (day int64, inDay int) {
	day = floorDiv(int64(m), minutesPerDay)
	return day, int(int64(m) - day*minutesPerDay)
}

const secondsPerDay = 24 * 60 * 60

func dateOf(day int64) (int, time.Month, int) { return time.Unix(day*secondsPerDay, 0).UTC().Date() }

// dayOf counts the days since 1970 up to a date; month and day may lie outside
// their ranges, as for time.Date.
func dayOf(year int, month time.Month, day int) int64 {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC).Unix() / secondsPerDay
}

func weekdayOf(day int64) time.Weekday {
	return time.Weekday(day - 7*floorDiv(day+4, 7) + 4) // 1 January 1970 was a Thursday
}

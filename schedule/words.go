package schedule

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"
	"time"
)

// Words says when it comes, with the zone: "every day at 02:00 Europe/Berlin".
// The zone is left out where it makes no difference: hours begin at the same
// instants in all zones that are whole hours apart.
func (s Schedule) Words() string {
	loc := s.Location
	if loc == nil {
		loc = time.UTC
	}
	words, clock := s.Cron.words()
	switch {
	case s.Cron == Cron{}:
		return words
	case clock:
		return words + " " + loc.String()
	case s.Cron.hourly() && (s.Cron.minute == full(0, 59) || wholeHours(loc)):
		return words
	default:
		return words + ", " + loc.String()
	}
}

// Words says when it comes, by the clock of whatever zone it is read in: "every
// hour at minute 42", "Mondays at 02:42". What has no short words is quoted.
// Expressions with the same words come at the same times in every zone.
func (c Cron) Words() string {
	words, _ := c.words()
	return words
}

// words reports also whether the words end in a time of day.
func (c Cron) words() (words string, clock bool) {
	if c == (Cron{}) {
		return "never", false
	}
	days, ok := c.dayWords()
	if !ok {
		return c.quoted(), false
	}
	if times := c.timeList(); times != "" {
		return days + " at " + times, true
	}
	rate, clock := c.rateWords()
	switch {
	case rate == "":
		return c.quoted(), false
	case days == everyDay:
		return rate, clock
	default:
		return rate + ", " + strings.TrimSuffix(days, ","), false
	}
}

const everyDay = "every day"

func (c Cron) quoted() string { return fmt.Sprintf("at the times of cron %q", c.text) }

// hourly reports whether every hour of every day is like the other.
func (c Cron) hourly() bool {
	days, ok := c.dayWords()
	return c.interval() && c.hour == full(0, 23) && ok && days == everyDay
}

// most is how many things a list in words may have.
const most = 6

// timeList names the times of day of a job with fixed times, "" when they are
// too many.
func (c Cron) timeList() string {
	if c.interval() || bits.OnesCount64(c.hour)*bits.OnesCount64(c.minute) > most {
		return ""
	}
	var times []string
	for _, h := range values(c.hour) {
		for _, m := range values(c.minute) {
			times = append(times, clockTime(h, m))
		}
	}
	return list(times)
}

// rateWords says how often it comes in a day, "" when that takes too many words.
func (c Cron) rateWords() (words string, clock bool) {
	hours, minutes := values(c.hour), values(c.minute)
	hourStep, even := stepOf(hours)
	first, last := hours[0], hours[len(hours)-1]
	switch {
	case !even:
		return "", false
	case !c.interval():
		// Fixed times: neither "every 15 minutes" nor "every hour" alone would be
		// true when the clock changes.
		if len(minutes) == 1 && hourStep == 1 {
			return fmt.Sprintf("every hour from %s to %s", clockTime(first, minutes[0]), clockTime(last, minutes[0])), true
		}
		return "", false
	case c.hour == full(0, 23):
		return c.minuteWords(minutes), false
	case len(minutes) == 1 && last+hourStep == 24: // on into the next day
		return fmt.Sprintf("every %d hours from %s", hourStep, clockTime(first, minutes[0])), true
	case len(hours) == 1 || hourStep == 1:
		if rate := everyMinutes(minutes); rate != "" {
			return fmt.Sprintf("%s from %s to %s", rate, clockTime(first, 0), clockTime(last, minutes[len(minutes)-1])), true
		}
	}
	return "", false
}

// minuteWords says at which minutes it comes in each hour.
func (c Cron) minuteWords(minutes []int) string {
	if rate := everyMinutes(minutes); rate != "" {
		return rate
	}
	if len(minutes) == 1 {
		return fmt.Sprintf("every hour at minute %d", minutes[0])
	}
	if len(minutes) <= most {
		return "every hour at minutes " + numbers(minutes)
	}
	step, even := stepOf(minutes)
	switch {
	case !even:
		return ""
	case step == 1:
		return fmt.Sprintf("every hour at every minute from %d to %d", minutes[0], minutes[len(minutes)-1])
	default:
		return fmt.Sprintf("every hour at every %s minute from %d to %d", ordinal(step), minutes[0], minutes[len(minutes)-1])
	}
}

// everyMinutes says "every 15 minutes" where that is true across the full hour.
func everyMinutes(minutes []int) string {
	step, even := stepOf(minutes)
	switch {
	case !even || len(minutes) < 2 || minutes[0] != 0 || minutes[len(minutes)-1]+step != 60:
		return ""
	case step == 1:
		return "every minute"
	default:
		return fmt.Sprintf("every %d minutes", step)
	}
}

// dayWords says on which days it comes; not ok when that takes too many words.
// They may end in a comma that belongs before the time.
func (c Cron) dayWords() (words string, ok bool) {
	months := values(c.month)
	allMonths, allDays, allWeekdays := len(months) == 12, c.day == full(1, 31), c.weekday == full(0, 6)
	both := c.anyDay || c.anyWeekday
	if !allMonths && len(months) > most {
		return "", false
	}
	in := ""
	if !allMonths {
		in = " in " + list(namesOf(months, monthName))
	}
	switch {
	case allDays && allWeekdays, !both && (allDays || allWeekdays):
		return everyDay + in, true
	case allDays:
		return weekdayWords(values(c.weekday)) + in, true
	case allWeekdays:
		return c.dateWords(months, allMonths)
	case !both && allMonths:
		dates, ok := c.dateWords(months, allMonths)
		return dates + " and " + weekdayWords(values(c.weekday)), ok
	default:
		return "", false
	}
}

// dateWords says "on the 1st and 15th of every month", or of the months named.
func (c Cron) dateWords(months []int, allMonths bool) (words string, ok bool) {
	days := values(c.day)
	if len(days) > most {
		return "", false
	}
	on := "on the " + list(namesOf(days, ordinal)) + " of "
	switch last := days[len(days)-1]; {
	case !allMonths:
		return on + list(namesOf(months, monthName)), true
	case last <= 28:
		return on + "every month", true
	case len(days) == 1:
		return on + "every month, if it has one,", true
	default:
		return on + "every month, if it has them,", true
	}
}

func weekdayWords(days []int) string {
	if slices.Equal(days, []int{0, 6}) {
		return "Saturdays and Sundays"
	}
	if step, _ := stepOf(days); step == 1 && len(days) > 2 {
		return time.Weekday(days[0]).String() + " to " + time.Weekday(days[len(days)-1]).String()
	}
	return list(namesOf(days, func(d int) string { return time.Weekday(d).String() + "s" }))
}

func monthName(m int) string { return time.Month(m).String() }

func clockTime(hour, minute int) string { return fmt.Sprintf("%02d:%02d", hour, minute) }

func ordinal(n int) string {
	suffix := "th"
	if tens := n / 10 % 10; tens != 1 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}

func namesOf(values []int, name func(int) string) []string {
	names := make([]string, len(values))
	for i, v := range values {
		names[i] = name(v)
	}
	return names
}

func numbers(values []int) string {
	return list(namesOf(values, func(v int) string { return fmt.Sprint(v) }))
}

// list joins with commas and a last "and".
func list(items []string) string {
	last := len(items) - 1
	if last == 0 {
		return items[0]
	}
	return strings.Join(items[:last], ", ") + " and " + items[last]
}

// values lists the bits that are set.
func values(set uint64) []int {
	all := make([]int, 0, bits.OnesCount64(set))
	for ; set != 0; set &= set - 1 {
		all = append(all, bits.TrailingZeros64(set))
	}
	return all
}

func full(low, high int) uint64 { return 1<<(high+1) - 1<<low }

// stepOf is the distance between neighbours, 0 for a single value; not even
// when it is not always the same.
func stepOf(values []int) (step int, even bool) {
	if len(values) < 2 {
		return 0, true
	}
	step = values[1] - values[0]
	for i := 2; i < len(values); i++ {
		if values[i]-values[i-1] != step {
			return 0, false
		}
	}
	return step, true
}

// wholeHours reports whether the zone has been whole hours from UTC, and will
// be, from 2000 until its rules repeat themselves.
func wholeHours(loc *time.Location) bool {
	until := time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)
	for at := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC); at.Before(until); {
		r := regimeAt(at, loc)
		if r.offset%time.Hour != 0 {
			return false
		}
		at = r.end
	}
	return true
}

package policy

import (
	"regexp"
	"strconv"
	"time"
)

// The texts that [ParseInstant] accepts, as regular expressions of the common
// subset of POSIX ERE (PostgreSQL ~), ICU and PCRE (MySQL and MariaDB REGEXP)
// and RE2 (Go). They know the calendar: days per month, leap years, years 0001
// to 9999. A value that does not match is unreadable and its row stays.
//
// Two things a regular expression cannot say alike everywhere, and the SQL
// around it must: in ICU and PCRE a $ also matches before a final line break
// (exclude values that contain one), and MySQL matches without regard to case
// unless the value has a binary collation.
const (
	// ISO8601Pattern is a date, or a date and a time:
	//
	//	2026-03-29
	//	2026-03-29T01:00  2026-03-29 01:00:00  2026-03-29T01:00:00.123456789
	//	…, followed by Z, ±hh, ±hhmm or ±hh:mm
	//
	// with a T or one space between them, one to nine digits of fraction, and
	// offsets up to 15:59. No leap seconds and no 24:00.
	ISO8601Pattern = `^(` + yearPattern + `-(` + monthDayDash + `)|` + leapPattern + `-02-29)` +
		`([T ]` + hour + `:` + sixty + `(:` + sixty + `(\.[0-9]{1,9})?)?(Z|[+-](0[0-9]|1[0-5])(:?` + sixty + `)?)?)?$`

	// CompactPattern is fourteen digits, yyyymmddhhmmss.
	CompactPattern = `^(` + yearPattern + `(` + monthDay + `)|` + leapPattern + `0229)` + hour + sixty + sixty + `$`

	hour        = `([01][0-9]|2[0-3])`
	sixty       = `[0-5][0-9]`
	yearPattern = `([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)`
	leapPattern = `([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)`

	day28        = `(0[1-9]|1[0-9]|2[0-8])`
	day30        = `(0[1-9]|[12][0-9]|30)`
	day31        = `(0[1-9]|[12][0-9]|3[01])`
	monthDay     = `(0[13578]|1[02])` + day31 + `|(0[469]|11)` + day30 + `|02` + day28
	monthDayDash = `(0[13578]|1[02])-` + day31 + `|(0[469]|11)-` + day30 + `|02-` + day28
)

var isoText = regexp.MustCompile(`^([0-9]{4})-([0-9]{2})-([0-9]{2})(?:[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]{1,9}))?)?(Z|[+-][0-9]{2}(?::?[0-9]{2})?)?)?$`)
var compactText = regexp.MustCompile(`^([0-9]{4})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})([0-9]{2})$`)

// ParseInstant reads a text in a declared format as an instant. It accepts
// exactly what [ISO8601Pattern] and [CompactPattern] match; anything else is an
// error, and so is a text without an offset when loc is nil. The errors do not
// repeat the text, which may be personal data.
//
// A text without an offset is a reading of clocks in loc; of two readings the
// later one is taken, see [Wall.Instant]. A date alone means the whole day and
// reads as the instant at which that day is over, see [DayOver].
func ParseInstant(text string, format Format, loc *time.Location) (time.Time, error) {
	if t, ok := parsePlain(text, format, loc); ok {
		return t, nil
	}
	return parseByPattern(text, format, loc)
}

func parseByPattern(text string, format Format, loc *time.Location) (time.Time, error) {
	var m []string
	switch format {
	case ISO8601:
		m = isoText.FindStringSubmatch(text)
	case Compact:
		if m = compactText.FindStringSubmatch(text); m != nil {
			m = append(m, "", "") // no fraction, no offset
		}
	default:
		return time.Time{}, &fault{problem: "there is no format " + strconv.Quote(string(format))}
	}
	if m == nil {
		return time.Time{}, &fault{problem: "the text is not in the format " + string(format)}
	}
	d := Date{atoi(m[1]), time.Month(atoi(m[2])), atoi(m[3])}
	h, min, sec := atoi(m[4]), atoi(m[5]), atoi(m[6])
	if d.Year < 1 || d.Month < 1 || d.Month > 12 || d.Day < 1 || d.Day > daysIn(d.Year, d.Month) || h > 23 || min > 59 || sec > 59 {
		return time.Time{}, &fault{problem: "there is no such date or time"}
	}
	if offset := m[8]; offset != "" {
		seconds, ok := parseOffset(offset)
		if !ok {
			return time.Time{}, &fault{problem: "there is no such offset from UTC"}
		}
		return time.Date(d.Year, d.Month, d.Day, h, min, sec-seconds, nanos(m[7]), time.UTC), nil
	}
	if loc == nil {
		return time.Time{}, &fault{problem: "the text carries no offset and the trigger declares no zone"}
	}
	if m[4] == "" {
		return DayOver(d, loc), nil
	}
	return Wall{time.Date(d.Year, d.Month, d.Day, h, min, sec, nanos(m[7]), time.UTC)}.Instant(loc), nil
}

// parsePlain reads the two shapes that nearly all stored texts have, 2006-01-02T15:04:05[.000]Z and the same without Z, without
// the regular expression: a table of them is read several times faster. It reports false for anything it is not sure of.
func parsePlain(text string, format Format, loc *time.Location) (time.Time, bool) {
	if format != ISO8601 || len(text) < 19 || len(text) > 30 ||
		text[4] != '-' || text[7] != '-' || (text[10] != 'T' && text[10] != ' ') || text[13] != ':' || text[16] != ':' {
		return time.Time{}, false
	}
	ok := true
	two := func(i int) int {
		a, b := text[i]-'0', text[i+1]-'0'
		ok = ok && a <= 9 && b <= 9
		return int(a)*10 + int(b)
	}
	d := Date{two(0)*100 + two(2), time.Month(two(5)), two(8)}
	h, min, sec := two(11), two(14), two(17)
	rest, ns := text[19:], 0
	if rest != "" && rest[0] == '.' {
		digits := 1
		for scale := 100_000_000; digits < len(rest) && digits <= 9 && rest[digits] >= '0' && rest[digits] <= '9'; digits++ {
			ns += int(rest[digits]-'0') * scale
			scale /= 10
		}
		ok = ok && digits > 1
		rest = rest[digits:]
	}
	if !ok || rest != "" && rest != "Z" || rest == "" && loc == nil ||
		d.Year < 1 || d.Month < 1 || d.Month > 12 || d.Day < 1 || d.Day > daysIn(d.Year, d.Month) || h > 23 || min > 59 || sec > 59 {
		return time.Time{}, false
	}
	t := time.Date(d.Year, d.Month, d.Day, h, min, sec, ns, time.UTC)
	if rest == "" && loc != time.UTC {
		return Wall{t}.Instant(loc), true
	}
	return t, true
}

// atoi reads digits that a regular expression counted; "" is 0.
func atoi(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

func nanos(fraction string) int { return atoi((fraction + "000000000")[:9]) }

// parseOffset reads Z, ±hh, ±hhmm or ±hh:mm.
func parseOffset(text string) (seconds int, ok bool) {
	if text == "Z" {
		return 0, true
	}
	h, m := atoi(text[1:3]), 0
	if len(text) > 3 {
		m = atoi(text[len(text)-2:])
	}
	if h > 15 || m > 59 {
		return 0, false
	}
	seconds = 3600*h + 60*m
	if text[0] == '-' {
		seconds = -seconds
	}
	return seconds, true
}

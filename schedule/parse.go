package schedule

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Error is what is wrong with a cron expression, where, and what to write.
type Error struct {
	Expr    string // the expression, as given
	Column  int    // the character at which it goes wrong, from 1; 0 when the whole is meant
	Problem string
	Hint    string
}

// Error is the message on one line.
func (e *Error) Error() string {
	where := ""
	if e.Column > 0 {
		where = fmt.Sprintf(", column %d", e.Column)
	}
	return fmt.Sprintf("cron %q%s: %s; %s", e.Expr, where, e.Problem, e.Hint)
}

// field is one of the five fields of crontab(5).
type field struct {
	name        string
	least, most int
	names       []string // of the values from least on
}

var fields = [5]field{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of month", 1, 31, nil},
	{"month", 1, 12, strings.Fields("jan feb mar apr may jun jul aug sep oct nov dec")},
	{"day of week", 0, 7, strings.Fields("sun mon tue wed thu fri sat")},
}

var descriptors = map[string]string{
	"@yearly":   "0 0 1 1 *",
	"@annually": "0 0 1 1 *",
	"@monthly":  "0 0 1 * *",
	"@weekly":   "0 0 * * 0",
	"@daily":    "0 0 * * *",
	"@midnight": "0 0 * * *",
	"@hourly":   "0 * * * *",
}

const example = "write for example 0 2 * * *"

// Parse reads a cron expression: minute, hour, day of month, month and day of
// week, each a list of values, ranges a-b and steps */n and a-b/n. Months and
// days of the week have names too, of three letters; Sunday is 0 and 7.
//
// It is strict: an expression that it does not understand in full, or that never
// comes, is an [*Error].
func Parse(expr string) (Cron, error) {
	text := expr
	if strings.HasPrefix(expr, "@") {
		var known bool
		if text, known = descriptors[expr]; !known {
			return Cron{}, &Error{expr, 1, "there is no such descriptor", "write @hourly, @daily, @weekly, @monthly or @yearly, or five fields"}
		}
	}
	parts := strings.Fields(text)
	if len(parts) != len(fields) {
		e := &Error{
			Expr: expr, Problem: fmt.Sprintf("a cron has five fields, this has %d", len(parts)),
			Hint: "write minute, hour, day of month, month and day of week, for example 0 2 * * *",
		}
		if len(parts) > len(fields) {
			e.Hint = "there are none for seconds and years: " + e.Hint
		}
		return Cron{}, e
	}
	var sets [len(fields)]uint64
	var columns [len(fields)]int
	at := 0
	for i, f := range fields {
		at += strings.Index(text[at:], parts[i])
		columns[i] = utf8.RuneCountInString(text[:at]) + 1
		set, e := f.parse(parts[i])
		if e != nil {
			e.Expr, e.Column = expr, e.Column+columns[i]
			return Cron{}, e
		}
		sets[i] = set
		at += len(parts[i])
	}
	star := func(i int) bool { return parts[i][0] == '*' }
	c := Cron{
		text: expr, minute: sets[0], hour: sets[1], day: sets[2], month: sets[3], weekday: sets[4],
		anyMinute: star(0), anyHour: star(1), anyDay: star(2), anyWeekday: star(4),
	}
	if !c.comes() {
		return Cron{}, &Error{expr, columns[2], "it never comes: no such month has that day", "write for example 0 0 28 2 *"}
	}
	return c, nil
}

// comes reports whether there is any day for it. Where the day of the week must
// suit as well, the two meet within 40 years.
func (c Cron) comes() bool {
	if !c.anyDay && !c.anyWeekday {
		return true // the days of the week alone will do
	}
	for month := time.January; month <= time.December; month++ {
		days := time.Date(2000, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
		if c.month&(1<<month) != 0 && c.day&(1<<(days+1)-1) != 0 {
			return true
		}
	}
	return false
}

// parse reads a field. The column of its error counts from 0, within the field.
func (f field) parse(text string) (uint64, *Error) {
	var set uint64
	at := 0
	for part := range strings.SplitSeq(text, ",") {
		values, e := f.parsePart(part)
		if e != nil {
			if part == "" && at > 0 {
				at-- // point at the comma
			}
			e.Column = utf8.RuneCountInString(text[:at])
			return 0, e
		}
		set |= values
		at += len(part) + 1
	}
	return set, nil
}

func (f field) parsePart(part string) (uint64, *Error) {
	span, stepText, stepped := strings.Cut(part, "/")
	step := 1
	if stepped {
		n, ok := digits(stepText)
		if !ok || n < 1 || n > f.most {
			return 0, f.fault(part, "its step must be from 1 to "+strconv.Itoa(f.most), example)
		}
		step = n
	}
	low, high := f.least, f.most
	if span != "*" {
		from, to, ranged := strings.Cut(span, "-")
		var ok bool
		if low, ok = f.value(from); !ok {
			return 0, f.unknown(part)
		}
		high = low
		if ranged {
			if high, ok = f.value(to); !ok {
				return 0, f.unknown(part)
			}
		}
		switch {
		case high < low:
			return 0, f.fault(part, "the range runs backwards", "write "+f.around(low, high))
		case stepped && !ranged:
			return 0, f.fault(part, "a step needs a range or *", fmt.Sprintf("write %s-%d/%d", from, f.last(), step))
		}
	}
	var set uint64
	for v := low; v <= high; v += step {
		set |= 1 << f.fold(v)
	}
	return set, nil
}

// fold maps the second number of Sunday to the first.
func (f field) fold(v int) int {
	if f.most == 7 {
		return v % 7
	}
	return v
}

// last is the highest value that is not another name of the lowest.
func (f field) last() int {
	if f.most == 7 {
		return 6
	}
	return f.most
}

// around writes the range that was meant by one that runs backwards.
func (f field) around(low, high int) string {
	span := func(a, b int) string {
		if a == b {
			return strconv.Itoa(a)
		}
		return fmt.Sprintf("%d-%d", a, b)
	}
	if f.fold(low) <= high {
		return span(f.fold(low), high)
	}
	return span(low, f.last()) + "," + span(f.least, high)
}

func (f field) value(text string) (int, bool) {
	if i := slices.Index(f.names, strings.ToLower(text)); i >= 0 {
		return f.least + i, true
	}
	v, ok := digits(text)
	return v, ok && v >= f.least && v <= f.most
}

// unknown is the error for what is no value of the field.
func (f field) unknown(part string) *Error {
	why := fmt.Sprintf("it must be from %d to %d", f.least, f.most)
	if n := len(f.names); n > 0 {
		why += " or from " + f.names[0] + " to " + f.names[n-1]
	}
	hint := example
	switch {
	case part == "":
		hint = "take out a comma that is too many"
	case strings.Contains(part, "?"):
		hint = "write * instead of ?"
	case strings.HasPrefix(part, "*"):
		hint = "write * alone, or with a step as in */5"
	}
	return f.fault(part, why, hint)
}

func (f field) fault(part, why, hint string) *Error {
	return &Error{Problem: fmt.Sprintf("the %s %q cannot be read: %s", f.name, part, why), Hint: hint}
}

// digits reads a short number without sign.
func digits(text string) (int, bool) {
	if text == "" || len(text) > 2 || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}

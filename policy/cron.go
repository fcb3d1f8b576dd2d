package policy

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// cronField is one of the five fields of crontab(5).
type cronField struct {
	name        string
	least, most int
	names       map[string]int
}

var cronFields = []cronField{
	{"minute", 0, 59, nil},
	{"hour", 0, 23, nil},
	{"day of month", 1, 31, nil},
	{"month", 1, 12, ordinals(1, "jan feb mar apr may jun jul aug sep oct nov dec")},
	{"day of week", 0, 7, ordinals(0, "sun mon tue wed thu fri sat")},
}

func ordinals(from int, names string) map[string]int {
	m := make(map[string]int)
	for name := range strings.FieldsSeq(names) {
		m[name] = from
		from++
	}
	return m
}

var cronDescriptors = words("@yearly @annually @monthly @weekly @daily @midnight @hourly")

// checkCron judges whether a schedule can be read; when it fires is another
// package's matter.
func checkCron(text string) error {
	if strings.HasPrefix(text, "@") {
		if cronDescriptors[text] {
			return nil
		}
		return &fault{"there is no such descriptor", "write @hourly, @daily, @weekly, @monthly or @yearly, or five fields"}
	}
	fields := strings.Fields(text)
	if len(fields) != len(cronFields) {
		return &fault{fmt.Sprintf("a cron has five fields, this has %d", len(fields)), "write minute, hour, day of month, month and day of week, for example 0 2 * * *"}
	}
	sets := make([]uint64, len(fields))
	for i, f := range cronFields {
		set, err := f.parse(fields[i])
		if err != nil {
			return err
		}
		sets[i] = set
	}
	// The two kinds of day are or-ed, unless one is a star.
	if !strings.HasPrefix(fields[2], "*") && strings.HasPrefix(fields[4], "*") && !comes(sets[2], sets[3]) {
		return &fault{"that day never comes", "no such month has it"}
	}
	return nil
}

// comes reports whether one of the months has one of the days.
func comes(days, months uint64) bool {
	for m := 1; m <= 12; m++ {
		for d := 1; months&(1<<m) != 0 && d <= daysIn(2000, time.Month(m)); d++ {
			if days&(1<<d) != 0 {
				return true
			}
		}
	}
	return false
}

func (f cronField) parse(text string) (uint64, error) {
	var set uint64
	for part := range strings.SplitSeq(text, ",") {
		span, stepText, stepped := strings.Cut(part, "/")
		step := 1
		if stepped {
			n, ok := digits(stepText)
			if !ok || n < 1 || n > f.most {
				return 0, f.fault(part, "its step must be from 1 to "+strconv.Itoa(f.most))
			}
			step = n
		}
		low, high := f.least, f.most
		if span != "*" {
			from, to, ranged := strings.Cut(span, "-")
			var ok bool
			if low, ok = f.value(from); !ok {
				return 0, f.fault(part, f.bounds())
			}
			high = low
			if ranged {
				if high, ok = f.value(to); !ok {
					return 0, f.fault(part, f.bounds())
				}
				if high < low {
					return 0, f.fault(part, "the range runs backwards")
				}
			} else if stepped {
				return 0, f.fault(part, "a step needs a range or *")
			}
		}
		for v := low; v <= high; v += step {
			set |= 1 << v
		}
	}
	return set, nil
}

func (f cronField) value(text string) (int, bool) {
	if v, ok := f.names[strings.ToLower(text)]; ok {
		return v, true
	}
	v, ok := digits(text)
	return v, ok && v >= f.least && v <= f.most
}

func (f cronField) bounds() string { return fmt.Sprintf("it must be from %d to %d", f.least, f.most) }

func (f cronField) fault(part, why string) error {
	return &fault{fmt.Sprintf("the %s %q cannot be read: %s", f.name, part, why), "write for example 0 2 * * *"}
}

// digits reads a short number without sign.
func digits(text string) (int, bool) {
	if text == "" || len(text) > 2 || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}

package schedule_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/schedule"
)

func TestParseErrors(t *testing.T) {
	for _, c := range []struct {
		expr          string
		column        int
		problem, hint string
	}{
		{"", 0, "five fields, this has 0", "minute, hour, day of month, month and day of week"},
		{"0 2 * *", 0, "five fields, this has 4", "minute, hour"},
		{"0 0 2 * * *", 0, "five fields, this has 6", "none for seconds and years"},
		{"0 2 * * * 2026", 0, "five fields, this has 6", "none for seconds and years"},
		{"@fortnightly", 1, "no such descriptor", "@weekly"},
		{"@every 5m", 1, "no such descriptor", "five fields"},
		{"@reboot", 1, "no such descriptor", "@hourly"},
		{"@DAILY", 1, "no such descriptor", "@daily"},
		{" @daily", 0, "this has 1", "0 2 * * *"},
		{"60 2 * * *", 1, `the minute "60" cannot be read: it must be from 0 to 59`, "0 2 * * *"},
		{"0 24 * * *", 3, `the hour "24" cannot be read: it must be from 0 to 23`, "0 2 * * *"},
		{"0 2 0 * *", 5, `the day of month "0" cannot be read: it must be from 1 to 31`, ""},
		{"0 2 32 * *", 5, "from 1 to 31", ""},
		{"0 2 * 0 *", 7, "from 1 to 12 or from jan to dec", ""},
		{"0 2 * 13 *", 7, "from 1 to 12", ""},
		{"0 2 * * 8", 9, "from 0 to 7 or from sun to sat", ""},
		{"0 2 * * monday", 9, `the day of week "monday"`, ""},
		{"0 2 mon * *", 5, "from 1 to 31", ""},
		{"0 2 * * jan", 9, "from sun to sat", ""},
		{"0   2 *  *\tx", 12, `the day of week "x"`, ""},
		{"0,5,99 2 * * *", 5, `the minute "99"`, ""},
		{"0,5, 2 * * *", 4, `the minute ""`, "comma"},
		{"0 2 * * 1,", 10, `the day of week ""`, "comma"},
		{",5 2 * * *", 1, `the minute ""`, "comma"},
		{"-5 2 * * *", 1, `the minute "-5"`, ""},
		{"5- 2 * * *", 1, `the minute "5-"`, ""},
		{"+5 2 * * *", 1, `the minute "+5"`, ""},
		{"005 2 * * *", 1, `the minute "005"`, ""},
		{"1.5 2 * * *", 1, `the minute "1.5"`, ""},
		{"1-2-3 2 * * *", 1, `the minute "1-2-3"`, ""},
		{"٣ 2 * * *", 1, `the minute "٣"`, ""},
		{"é 2 * * *", 1, `the minute "é"`, ""},
		{"1,é,é 2 * * *", 3, `the minute "é"`, ""},
		{"*5 2 * * *", 1, `the minute "*5"`, "write * alone"},
		{"**  2 * * *", 1, `the minute "**"`, "write * alone"},
		{"*-5 2 * * *", 1, `the minute "*-5"`, "write * alone"},
		{"0 2 ? * 1", 5, `the day of month "?"`, "write * instead of ?"},
		{"0 2 L * *", 5, `the day of month "L"`, ""},
		{"0 2 * * 5#2", 9, `the day of week "5#2"`, ""},
		{"*/0 * * * *", 1, "its step must be from 1 to 59", ""},
		{"*/60 * * * *", 1, "its step must be from 1 to 59", ""},
		{"*/ * * * *", 1, "its step must be from 1 to 59", ""},
		{"*/-5 * * * *", 1, "its step must be from 1 to 59", ""},
		{"*/5/5 * * * *", 1, "its step must be from 1 to 59", ""},
		{"0 */24 * * *", 3, "its step must be from 1 to 23", ""},
		{"5/10 * * * *", 1, "a step needs a range or *", "write 5-59/10"},
		{"0 0 * * mon/2", 9, "a step needs a range or *", "write mon-6/2"},
		{"0 22-2 * * *", 3, "the range runs backwards", "write 22-23,0-2"},
		{"0 0 * * fri-sun", 9, "the range runs backwards", "write 5-6,0"},
		{"0 0 * * 6-1", 9, "the range runs backwards", "write 6,0-1"},
		{"0 0 * * 7-3", 9, "the range runs backwards", "write 0-3"},
		{"0 0 * nov-feb *", 7, "the range runs backwards", "write 11-12,1-2"},
		{"0 0 30 2 *", 5, "it never comes", "0 0 28 2 *"},
		{"0 0 31 2,4,6,9,11 *", 5, "it never comes", ""},
		{"0 0 30-31 feb */2", 5, "it never comes", ""},
	} {
		got, err := schedule.Parse(c.expr)
		e, ok := errors.AsType[*schedule.Error](err)
		if !ok {
			t.Errorf("%q is read as %v, with the error %v", c.expr, got, err)
			continue
		}
		if e.Expr != c.expr || e.Column != c.column || !strings.Contains(e.Problem, c.problem) || e.Hint == "" || !strings.Contains(e.Hint, c.hint) {
			t.Errorf("%q: column %d, %s; %s\nwant: column %d, …%s…; …%s…", e.Expr, e.Column, e.Problem, e.Hint, c.column, c.problem, c.hint)
		}
		if got != (schedule.Cron{}) {
			t.Errorf("%q: an error and %v", c.expr, got)
		}
		if _, hinted, ok := strings.Cut(e.Hint, "write "); ok && strings.Contains(e.Problem, "cannot be read") && !strings.Contains(hinted, " ") {
			fixed := strings.Fields(c.expr)
			for i, f := range fixed {
				if strings.Contains(e.Problem, `"`+f+`"`) {
					fixed[i] = hinted
				}
			}
			if _, err := schedule.Parse(strings.Join(fixed, " ")); err != nil {
				t.Errorf("%q: the hint is no better: %v", c.expr, err)
			}
		}
	}
}

func TestErrorText(t *testing.T) {
	for expr, want := range map[string]string{
		"0 25 * * *": `cron "0 25 * * *", column 3: the hour "25" cannot be read: it must be from 0 to 23; write for example 0 2 * * *`,
		"daily":      `cron "daily": a cron has five fields, this has 1; write minute, hour, day of month, month and day of week, for example 0 2 * * *`,
	} {
		if _, err := schedule.Parse(expr); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %v", err, want)
		}
	}
}

// TestParseValues reads every value of every field by itself, with its names.
func TestParseValues(t *testing.T) {
	year := [2]time.Time{at(t, "2027-12-31T23:59:00Z"), at(t, "2028-12-31T23:59:00Z")}
	instants := func(expr string) []time.Time {
		return slices.Collect(schedule.Schedule{Cron: parse(t, expr)}.Between(year[0], year[1]))
	}
	for m := range 60 {
		for _, got := range instants(two(m) + " 2 1 * *") {
			if got.Minute() != m {
				t.Errorf("minute %d comes at %v", m, got)
			}
		}
	}
	for h := range 24 {
		for _, got := range instants("7 " + two(h) + " 1 * *") {
			if got.Hour() != h {
				t.Errorf("hour %d comes at %v", h, got)
			}
		}
	}
	for d := 1; d <= 31; d++ {
		got := instants("0 0 " + two(d) + " * *")
		if want := map[bool]int{true: 12, false: 7}[d < 30] + map[int]int{30: 4}[d]; len(got) != want {
			t.Errorf("day %d comes %d times, want %d", d, len(got), want)
		}
		for _, got := range got {
			if got.Day() != d {
				t.Errorf("day %d comes at %v", d, got)
			}
		}
	}
	for i, name := range monthNames {
		got := instants("0 0 1 " + name + " *")
		if same := instants("0 0 1 " + two(i+1) + " *"); len(got) != 1 || got[0].Month() != time.Month(i+1) || !slices.Equal(got, same) {
			t.Errorf("%s comes at %v, by number at %v", name, got, same)
		}
	}
	for i, name := range weekdayNames {
		got := instants("0 0 * * " + name)
		if same := instants("0 0 * * " + two(i)); len(got) < 52 || got[0].Weekday() != time.Weekday(i) || !slices.Equal(got, same) {
			t.Errorf("%s comes at %v, by number at %v", name, got, same)
		}
	}
	for expr, same := range map[string]string{
		"@yearly":            "0 0 1 1 *",
		"@annually":          "0 0 1 jan *",
		"@monthly":           "0 0 1 * *",
		"@weekly":            "0 0 * * sun",
		"@daily":             "0 0 * * *",
		"@midnight":          "0 0 * * *",
		"@hourly":            "0 * * * *",
		" 0\t2  * * *\n":     "0 2 * * *",
		"10-30/10 2 * * *":   "10,20,30 2 * * *",
		"0 0 * * 7":          "0 0 * * 0",
		"0 0 * * sat,7":      "0 0 * * 0,6",
		"0 0 * * 0-7":        "0 0 * * *",
		"0 0 * * */7":        "0 0 * * sun",
		"0 0 * * 1-7/2":      "0 0 * * mon,wed,fri,sun",
		"0 0 * Mar-oct/3 *":  "0 0 * 3,6,9 *",
		"0 0 1,1,1 1,1 *":    "0 0 1 1 *",
		"1-1 2-2 3-3 4-4 *":  "1 2 3 4 *",
		"0 0 1-31/30 * *":    "0 0 1,31 * *",
		"0 0 31 2,3 *":       "0 0 31 3 *",
		"0 0 30 2 1":         "0 0 * 2 1", // the weekday is the alternative
		"*/59 0-23/23 1 * *": "0,59 0,23 1 * *",
	} {
		if got, want := instants(expr), instants(same); len(want) == 0 || !slices.Equal(got, want) {
			t.Errorf("%q comes %d times, %q %d times: %v", expr, len(got), same, len(want), got)
		}
		if got := parse(t, expr).String(); got != expr {
			t.Errorf("%q is written %q", expr, got)
		}
	}
	nightly, again := parse(t, "0 2 * * *"), parse(t, "0 2 * * *")
	if parse(t, "@daily") == parse(t, "0 0 * * *") || nightly != again {
		t.Error("== does not go by the text")
	}
}

func two(n int) string { return string([]byte{byte('0' + n/10), byte('0' + n%10)}) }

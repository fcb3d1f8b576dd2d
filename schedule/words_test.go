package schedule_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/schedule"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestWords(t *testing.T) {
	seen := map[string]string{}
	for _, c := range [][2]string{
		{"0 2 * * *", "every day at 02:00"},
		{"42 2 * * 1", "Mondays at 02:42"},
		{"42 * * * *", "every hour at minute 42"},
		{"@hourly", "every hour at minute 0"},
		{"*/15 * * * *", "every 15 minutes"},
		{"* * * * *", "every minute"},
		{"@daily", "every day at 00:00"},
		{"@weekly", "Sundays at 00:00"},
		{"@monthly", "on the 1st of every month at 00:00"},
		{"@yearly", "on the 1st of January at 00:00"},
		{"30 9,17 * * *", "every day at 09:30 and 17:30"},
		{"0,30 8-10 * * *", "every day at 08:00, 08:30, 09:00, 09:30, 10:00 and 10:30"},
		{"0 9 * * 1-5", "Monday to Friday at 09:00"},
		{"0 9 * * 0,6", "Saturdays and Sundays at 09:00"},
		{"0 9 * * mon,wed,fri", "Mondays, Wednesdays and Fridays at 09:00"},
		{"0 9 * * 5-7", "Sundays, Fridays and Saturdays at 09:00"},
		{"0 9 * * */2", "Sundays, Tuesdays, Thursdays and Saturdays at 09:00"},
		{"0 0 1,15 * *", "on the 1st and 15th of every month at 00:00"},
		{"0 0 2,3,11,21 * *", "on the 2nd, 3rd, 11th and 21st of every month at 00:00"},
		{"0 0 31 * *", "on the 31st of every month, if it has one, at 00:00"},
		{"0 0 28,29,30 * *", "on the 28th, 29th and 30th of every month, if it has them, at 00:00"},
		{"0 12 29 2 *", "on the 29th of February at 12:00"},
		{"0 0 1 1,7 *", "on the 1st of January and July at 00:00"},
		{"0 0 13 * 5", "on the 13th of every month and Fridays at 00:00"},
		{"*/15 9-17 29-31 * *", "every 15 minutes from 09:00 to 17:45, on the 29th, 30th and 31st of every month, if it has them"},
		{"0 0 31 * 5", "on the 31st of every month, if it has one, and Fridays at 00:00"},
		{"0 6 * 12 *", "every day in December at 06:00"},
		{"0 6 * 6-8 1", "Mondays in June, July and August at 06:00"},
		{"* 3 * * *", "every minute from 03:00 to 03:59"},
		{"*/15 9-17 * * 1-5", "every 15 minutes from 09:00 to 17:45, Monday to Friday"},
		{"*/20 8,9 * * *", "every 20 minutes from 08:00 to 09:40"},
		{"0 */6 * * *", "every 6 hours from 00:00"},
		{"30 */12 * * 1", "every 12 hours from 00:30, Mondays"},
		{"0 9-17 * * *", "every hour from 09:00 to 17:00"},
		{"30 0-23 * * *", "every hour from 00:30 to 23:30"},
		{"42 * * * 1", "every hour at minute 42, Mondays"},
		{"5,20,35 * * * *", "every hour at minutes 5, 20 and 35"},
		{"*/7 * * * *", "every hour at every 7th minute from 0 to 56"},
		{"10-20 * * * *", "every hour at every minute from 10 to 20"},
		{"*/2 * 1 1 *", "every 2 minutes, on the 1st of January"},
		{"*/45 * * * *", "every hour at minutes 0 and 45"},
		{"40-50/10 * * * *", "every hour at minutes 40 and 50"},
		{"0 0 28 * *", "on the 28th of every month at 00:00"},
		{"0 0 29 * *", "on the 29th of every month, if it has one, at 00:00"},
		// What has no short words is quoted.
		{"0 0 1 * */2", `at the times of cron "0 0 1 * */2"`},
		{"0 8-22/2 * * *", `at the times of cron "0 8-22/2 * * *"`},
		{"0 */5 * * *", `at the times of cron "0 */5 * * *"`},
		{"0 0 */2 * 5", `at the times of cron "0 0 */2 * 5"`},
		{"0-59 0-23 * * *", `at the times of cron "0-59 0-23 * * *"`},
		{"0 0 13 2 5", `at the times of cron "0 0 13 2 5"`},
		{"*/10 1,5 * * *", `at the times of cron "*/10 1,5 * * *"`},
		{"0 0 1-20 * *", `at the times of cron "0 0 1-20 * *"`},
		{"1-7,30-37 * * * *", `at the times of cron "1-7,30-37 * * * *"`},
		{"0 0 1 1-10 *", `at the times of cron "0 0 1 1-10 *"`},
	} {
		expr, want := c[0], c[1]
		if got := parse(t, expr).Words(); got != want {
			t.Errorf("%q\n is %q\nwant %q", expr, got, want)
		}
		if other, twice := seen[want]; twice {
			t.Errorf("%q and %q are both %q", expr, other, want)
		}
		seen[want] = expr
	}
	// What is written in another way and comes at the same times has the same words.
	for _, c := range [][2]string{
		{"@daily", "0 0 1-31 jan-dec 0-6"}, {"@daily", "0 0 1-31 * 5"}, {"* * * * *", "0-59 * * * *"}, {"@hourly", "0 */1 * * *"},
		{"0 0 * * sun", "0 0 * * 7"}, {"*/15 * * * *", "0,15,30,45 * * * *"}, {"0 0 28-31 2 *", "0 0 28,29,30,31 2 *"},
	} {
		if a, b := parse(t, c[0]).Words(), parse(t, c[1]).Words(); a != b {
			t.Errorf("%q is %q, %q is %q", c[0], a, c[1], b)
		}
	}
}

func TestWordsWithZone(t *testing.T) {
	for _, c := range [][3]string{
		{"0 2 * * *", "Europe/Berlin", "every day at 02:00 Europe/Berlin"},
		{"0 2 * * *", "UTC", "every day at 02:00 UTC"},
		{"* 3 * * *", "Australia/Lord_Howe", "every minute from 03:00 to 03:59 Australia/Lord_Howe"},
		{"*/15 9-17 * * 1-5", "America/New_York", "every 15 minutes from 09:00 to 17:45, Monday to Friday, America/New_York"},
		{"42 * * * *", "Europe/Berlin", "every hour at minute 42"},
		{"42 * * * *", "Asia/Kathmandu", "every hour at minute 42, Asia/Kathmandu"},
		{"42 * * * *", "Australia/Lord_Howe", "every hour at minute 42, Australia/Lord_Howe"},
		{"* * * * *", "Asia/Kathmandu", "every minute"},
		{"42 * * * 1", "Europe/Berlin", "every hour at minute 42, Mondays, Europe/Berlin"},
		{"0 */6 * * *", "Europe/Berlin", "every 6 hours from 00:00 Europe/Berlin"},
		{"0 0 */2 * 5", "Europe/Berlin", `at the times of cron "0 0 */2 * 5", Europe/Berlin`},
	} {
		s := schedule.Schedule{Cron: parse(t, c[0]), Location: location(t, c[1])}
		if got := s.Words(); got != c[2] {
			t.Errorf("%q in %s\n is %q\nwant %q", c[0], c[1], got, c[2])
		}
	}
	if got := (schedule.Schedule{Cron: parse(t, "0 2 * * *")}).Words(); got != "every day at 02:00 UTC" {
		t.Errorf("without a location: %q", got)
	}
	if got := (schedule.Schedule{}).Words(); got != "never" {
		t.Errorf("the zero schedule: %q", got)
	}
}

// The grammar of the words, for a reader who has never seen the expression.
var (
	listOf       = func(item string) string { return `(` + item + `(?:(?:, | and )` + item + `)*)` }
	fixedTimes   = regexp.MustCompile(`^(.+) at ` + listOf(`\d\d:\d\d`) + `$`)
	fixedHours   = regexp.MustCompile(`^every hour from (\d\d):(\d\d) to (\d\d):(\d\d)(?:, (.+))?$`)
	everyHours   = regexp.MustCompile(`^every (\d+) hours from 00:(\d\d)(?:, (.+))?$`)
	atMinutes    = regexp.MustCompile(`^every hour at minutes? ` + `(\d+(?:(?:, \d+)* and \d+)?)` + `(?:, (.+))?$`)
	nthMinutes   = regexp.MustCompile(`^every hour at every (?:(\d+)(?:st|nd|rd|th) )?minute from (\d+) to (\d+)(?:, (.+))?$`)
	everyMinutes = regexp.MustCompile(`^every (?:minute|(\d+) minutes)(?: from (\d\d):(\d\d) to (\d\d):(\d\d))?(?:, (.+))?$`)
	dayOfMonth   = regexp.MustCompile(`^on the ` + listOf(`\d+(?:st|nd|rd|th)`) + ` of (every month|[A-Z].*?)(?:, if it has (?:one|them),?)?(?: and ([A-Z].*days?|Monday to .*))?$`)
	separator    = regexp.MustCompile(`, | and `)
)

// jobFromWords is the job that a reader of the words expects, not ok for quotes.
func jobFromWords(t fatal, words string) (j job, ok bool) {
	if strings.HasPrefix(words, "at the times of cron") {
		return job{}, false
	}
	number := func(s string) int {
		n, err := strconv.Atoi(strings.TrimRight(s, "stndrh"))
		if err != nil {
			t.Fatal(words, err)
		}
		return n
	}
	var times [24 * 60]bool
	days, wild := "", true
	mark := func(from, to, step int) {
		for m := from; m <= to; m += step {
			times[m] = true
		}
	}
	if m := fixedTimes.FindStringSubmatch(words); m != nil {
		days, wild = m[1], false
		for _, c := range separator.Split(m[2], -1) {
			times[number(c[:2])*60+number(c[3:])] = true
		}
	} else if m := fixedHours.FindStringSubmatch(words); m != nil {
		days, wild = m[5], false
		mark(number(m[1])*60+number(m[2]), number(m[3])*60+number(m[4]), 60)
	} else if m := everyHours.FindStringSubmatch(words); m != nil {
		days = m[3]
		mark(number(m[2]), 24*60-1, 60*number(m[1]))
	} else if m := atMinutes.FindStringSubmatch(words); m != nil {
		days = m[2]
		for _, c := range separator.Split(m[1], -1) {
			mark(number(c), 24*60-1, 60)
		}
	} else if m := nthMinutes.FindStringSubmatch(words); m != nil {
		days = m[4]
		for h := 0; h < 24*60; h += 60 {
			mark(h+number(m[2]), h+number(m[3]), max(1, number("0"+m[1])))
		}
	} else if m := everyMinutes.FindStringSubmatch(words); m != nil {
		days = m[6]
		from, to := 0, 24*60-1
		if m[2] != "" {
			from, to = number(m[2])*60+number(m[3]), number(m[4])*60+number(m[5])
		}
		mark(from, to, max(1, number("0"+m[1])))
	} else {
		t.Fatal("these words are not understood: " + words)
	}
	suits, known := daysFromWords(days, number), map[int64]bool{}
	return job{wild, func(w time.Time) bool {
		day := w.Unix() / (24 * 60 * 60)
		if _, ok := known[day]; !ok {
			known[day] = suits(w)
		}
		return known[day] && times[w.Hour()*60+w.Minute()]
	}}, true
}

func daysFromWords(days string, number func(string) int) func(time.Time) bool {
	weekday := func(names string, w time.Time) bool {
		if from, to, ranged := strings.Cut(names, " to "); ranged {
			i := func(name string) int {
				return slices.IndexFunc(weekdayNames, func(n string) bool { return strings.EqualFold(n, name[:3]) })
			}
			return i(from) <= int(w.Weekday()) && int(w.Weekday()) <= i(to)
		}
		return slices.Contains(separator.Split(names, -1), w.Weekday().String()+"s")
	}
	if m := dayOfMonth.FindStringSubmatch(days); m != nil {
		return func(w time.Time) bool {
			date := slices.ContainsFunc(separator.Split(m[1], -1), func(d string) bool { return number(d) == w.Day() }) &&
				(m[2] == "every month" || slices.Contains(separator.Split(m[2], -1), w.Month().String()))
			return date || m[3] != "" && weekday(m[3], w)
		}
	}
	days, months, some := strings.Cut(days, " in ")
	return func(w time.Time) bool {
		if some && !slices.Contains(separator.Split(months, -1), w.Month().String()) {
			return false
		}
		return days == "" || days == "every day" || weekday(days, w)
	}
}

// TestWordsAreTrue reads the words back and compares with cron: on every day of
// a leap year, and through both changes of the clock.
func TestWordsAreTrue(t *testing.T) {
	berlin := location(t, "Europe/Berlin")
	inWords, total := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		expr := rapid.OneOf(rapid.Custom(drawExpr), rapid.Custom(drawPlain)).Draw(t, "expr")
		words := parse(t, expr).Words()
		said, ok := jobFromWords(t, words)
		total++
		if !ok {
			if !strings.Contains(words, expr) {
				t.Fatalf("%q is not quoted in %q", expr, words)
			}
			return
		}
		inWords++
		meant := jobOf(t, expr)
		minutes := rapid.SliceOfN(rapid.IntRange(0, 24*60-1), 10, 10).Draw(t, "minutes")
		first, _ := schedule.Schedule{Cron: parse(t, expr)}.Next(time.Date(2027, 12, 31, 23, 59, 0, 0, time.UTC))
		for d := time.Date(2028, 1, 1, 0, 0, 0, 0, time.UTC); d.Year() == 2028; d = d.AddDate(0, 0, 1) {
			in := minutes
			if d.Equal(first.Truncate(24 * time.Hour)) {
				in = wholeDay
			}
			for _, m := range in {
				if w := d.Add(time.Duration(m) * time.Minute); said.matches(w) != meant.matches(w) {
					t.Fatalf("%q is %q, which is wrong about %v", expr, words, w)
				}
			}
		}
		for _, day := range []time.Time{at(t, "2026-03-28T18:00:00Z"), at(t, "2026-10-24T18:00:00Z")} {
			want := simulate(meant, berlin, day, day.AddDate(0, 0, 1))
			if diff := cmp.Diff(want, simulate(said, berlin, day, day.AddDate(0, 0, 1))); diff != "" {
				t.Fatalf("%q is %q, which is wrong when the clock changes (-cron +words):\n%s", expr, words, diff)
			}
		}
	})
	if inWords*5 < total {
		t.Errorf("only %d of %d expressions have words: nothing is shown", inWords, total)
	}
}

var wholeDay = func() (all []int) {
	for m := range 24 * 60 {
		all = append(all, m)
	}
	return all
}()

// drawPlain draws what people write, most of which has words.
func drawPlain(t *rapid.T) string {
	pick := func(label string, of ...string) string { return rapid.SampledFrom(of).Draw(t, label) }
	minute := pick("minute", "0", "0", "42", "0,30", "*", "*/5", "*/15", "*/7", "*/30", "5-10", "0-59", "0-59/20", "1,2,40")
	hour := pick("hour", "*", "*", "2", "9-17", "*/6", "*/5", "9,17", "0-23", "22,23", "*/12", "2-3")
	day := pick("day", "*", "*", "*", "*", "1", "1,15", "31", "29,30", "1-31", "*/2", "1-7")
	month := pick("month", "*", "*", "*", "1", "2,8", "6-8", "1-12")
	weekday := pick("weekday", "*", "*", "*", "1", "1-5", "0,6", "5-7", "*/2", "0-6", "1-6", "6,7")
	expr := strings.Join([]string{minute, hour, day, month, weekday}, " ")
	if _, err := schedule.Parse(expr); err != nil {
		t.Skip("never comes")
	}
	return expr
}

package curfew

import (
	"fmt"
	"strings"
	"time"

	"curfew.dev/curfew/policy"
	"curfew.dev/curfew/schedule"
)

// ruleInWords says in a sentence when a row goes: "2 years after occurred_at, a text in iso8601 read in UTC".
func ruleInWords(p *policy.Policy) string {
	t := p.Trigger
	what := t.Column
	if what == "" {
		what = t.Expr
	}
	var b strings.Builder
	switch {
	case t.Until && p.Keep.IsZero():
		fmt.Fprintf(&b, "%s once %s has passed", actionInWords(p.Action), what)
	case t.Until:
		fmt.Fprintf(&b, "%s %s after %s has passed", actionInWords(p.Action), periodInWords(p.Keep), what)
	default:
		fmt.Fprintf(&b, "%s %s after %s", actionInWords(p.Action), periodInWords(p.Keep), what)
	}
	var reading []string
	if t.Unit != "" {
		reading = append(reading, map[policy.Unit]string{
			policy.Seconds: "in seconds", policy.Milliseconds: "in milliseconds", policy.Microseconds: "in microseconds",
			policy.Nanoseconds: "in nanoseconds", policy.JulianDay: "in Julian days",
		}[t.Unit])
	}
	if t.Format != "" {
		reading = append(reading, "as "+string(t.Format))
	}
	if t.Zone != "" {
		reading = append(reading, "in "+t.Zone)
	}
	if len(reading) > 0 {
		b.WriteString(" (read " + strings.Join(reading, " ") + ")")
	}
	if p.Timezone != policy.DefaultTimezone {
		b.WriteString(", by the calendar of " + p.Timezone)
	}
	switch t.Null {
	case policy.NullNever:
		b.WriteString("; never when it is NULL")
	case policy.NullDue:
		b.WriteString("; at once when it is NULL")
	}
	if t.ImplausibleBefore != nil {
		fmt.Fprintf(&b, "; not when it is before %s", t.ImplausibleBefore)
	}
	if s := p.Stage(); s != nil {
		b.WriteString("; " + stageInWords(p, s))
	}
	if p.AtCutoff == policy.DueAtCutoff {
		b.WriteString("; at the very cutoff too")
	}
	return b.String()
}

// actionInWords says what is done to a row: "delete", "set state to paused", "anonymise name and email", "archive to old_event".
func actionInWords(a policy.Action) string {
	var parts []string
	for _, c := range a.Columns {
		what := c.Column
		if a.Kind == policy.Set {
			what += " to " + becomesInWords(c)
		}
		parts = append(parts, what)
	}
	switch {
	case len(parts) > 0:
		return string(a.Kind) + " " + andList(parts)
	case a.Kind == policy.Archive:
		return "archive to " + a.To
	}
	return string(a.Kind)
}

func becomesInWords(c policy.Change) string {
	switch v := c.Constant(); {
	case c.AsOfPlus != nil:
		return periodInWords(*c.AsOfPlus) + " after the run's as_of"
	case v == nil || v.Kind == policy.NullValue:
		return "NULL"
	case v.Text == "":
		return "an empty text"
	default:
		return v.Text
	}
}

// andList writes a, b and c.
func andList(parts []string) string {
	if n := len(parts); n > 1 {
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
	return strings.Join(parts, "")
}

// stageInWords says when a stage acts: "stage teardown 14 days after that, once stage pause is passed".
func stageInWords(p *policy.Policy, s *policy.Stage) string {
	words := "stage " + s.Name + " then"
	switch {
	case s.At.Before:
		words = "stage " + s.Name + " " + periodInWords(s.At.Length) + " before that"
	case !s.At.Length.IsZero():
		words = "stage " + s.Name + " " + periodInWords(s.At.Length) + " after that"
	}
	if s.Snap != nil {
		words += ", at the next " + s.Snap.String()
	}
	if earlier := p.Earlier(); len(earlier) > 0 {
		words += ", once stage " + earlier[len(earlier)-1].Name + " is passed"
	}
	if s.MinNotice > 0 {
		words += ", and " + periodInWords(policy.Period{Exact: s.MinNotice}) + " after notice was given"
	}
	return words
}

// periodInWords writes a period so that nobody takes 2m for two months: "2 minutes", "1 year and 6 months". An exact one is told in
// the largest unit that leaves nothing over, up to days: 730d is not two years.
func periodInWords(p policy.Period) string {
	var parts []string
	add := func(n int64, unit string) {
		if n == 1 {
			parts = append(parts, "1 "+unit)
		} else if n > 1 {
			parts = append(parts, fmt.Sprintf("%d %ss", n, unit))
		}
	}
	add(int64(p.Years), "year")
	add(int64(p.Months), "month")
	for _, u := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "day"}, {time.Hour, "hour"}, {time.Minute, "minute"}, {time.Second, "second"}} {
		if p.Exact > 0 && p.Exact%u.length == 0 {
			add(int64(p.Exact/u.length), u.name)
			break
		}
	}
	return andList(parts)
}

// nextInstants are the next five at which a policy's schedule fires, in UTC.
func nextInstants(p *policy.Policy, now time.Time) []time.Time {
	next := []time.Time{}
	if p.Schedule == nil {
		return next
	}
	cron, err := schedule.Parse(p.Schedule.Cron)
	if err != nil {
		return next
	}
	for t := range (schedule.Schedule{Cron: cron, Location: p.Location()}).Between(now, now.AddDate(100, 0, 0)) {
		if next = append(next, t); len(next) == 5 {
			break
		}
	}
	return next
}

// instantsInWords lists instants as clocks in the policy's zone show them.
func instantsInWords(p *policy.Policy, at []time.Time) string {
	words := make([]string, len(at))
	for i, t := range at {
		words[i] = t.In(p.Location()).Format("Mon 2006-01-02 15:04 -07:00")
	}
	return strings.Join(words, ", ")
}

// scheduleInWords says when a policy is started; "" when nothing starts it.
func scheduleInWords(p *policy.Policy) string {
	s := p.Schedule
	if s == nil {
		return ""
	}
	if s.By == "external" {
		words := "called from outside, expected " + cronInWords(p)
		if s.Grace > 0 {
			words += " or up to " + span(s.Grace) + " later"
		}
		return words
	}
	words := cronInWords(p)
	if s.StartWithin > 0 {
		words += ", or up to " + span(s.StartWithin) + " later"
	}
	return words
}

// cronInWords is a policy's cron expression in its zone. The file's parser accepts what schedule does.
func cronInWords(p *policy.Policy) string {
	cron, err := schedule.Parse(p.Schedule.Cron)
	if err != nil {
		return fmt.Sprintf("at %q (%s)", p.Schedule.Cron, p.Timezone)
	}
	return schedule.Schedule{Cron: cron, Location: p.Location()}.Words()
}

// span writes a length of time without its zeros: 1h, not 1h0m0s.
func span(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = s[:len(s)-2]
	}
	if strings.HasSuffix(s, "h0m") {
		s = s[:len(s)-2]
	}
	return s
}

// strayInWords says of a variable that overrides no cron why, and what may have been meant.
func strayInWords(v policy.StrayVariable) (message, hint string) {
	message = "the environment variable " + v.Name + " has no effect: there is no such policy"
	if v.Task {
		message = "the environment variable " + v.Name + " has no effect: there is no such task"
	}
	switch {
	case v.Nearest == "":
		return message, "unset it"
	case v.For != "":
		return message, "the nearest is " + v.Nearest + ", for task " + v.For
	}
	return message, "the nearest is " + v.Nearest + ", for policy " + v.Policy
}

// length writes a length of time as people say it, in two units at most: 10s, 26h 5m, 3d 4h. What is left over counts as one more, so
// that what is beyond a limit never reads as the limit itself.
func length(d time.Duration) string {
	for _, u := range []struct {
		from, large, small time.Duration
		names              [2]string
	}{{48 * time.Hour, 24 * time.Hour, time.Hour, [2]string{"d", "h"}}, {time.Hour, time.Hour, time.Minute, [2]string{"h", "m"}}, {time.Minute, time.Minute, time.Second, [2]string{"m", "s"}}} {
		if d < u.from {
			continue
		}
		up := (d + u.small - 1).Truncate(u.small)
		words := fmt.Sprintf("%d%s", up/u.large, u.names[0])
		if rest := up % u.large / u.small; rest > 0 {
			words += fmt.Sprintf(" %d%s", rest, u.names[1])
		}
		return words
	}
	return fmt.Sprintf("%ds", (d+time.Second-1)/time.Second)
}

package policy

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Stage is one action of a policy at an offset from the due instant.
type Stage struct {
	Name      string        `json:"name"`
	At        Offset        `json:"at"`
	Snap      *Clock        `json:"snap,omitempty"`
	Where     string        `json:"where,omitempty"` // besides the policy's own
	MinNotice time.Duration `json:"min_notice_ns,omitempty"`
	Action    Action        `json:"action"`
	Schedule  *Schedule     `json:"schedule,omitempty"` // nil: the policy's
}

// Offset is how far from the due instant a stage acts.
type Offset struct {
	Before bool // Length is before the due instant, and exact
	Length Period
}

// ParseOffset reads a period with an optional sign, or 0 with a unit: -7d, 0d,
// 14d, 6mo. An offset before the due instant is exact.
func ParseOffset(text string) (Offset, error) {
	bare := text
	var o Offset
	if len(text) > 1 && (text[0] == '-' || text[0] == '+') {
		o.Before, bare = text[0] == '-', text[1:]
	}
	if m := simplePeriod.FindStringSubmatch(bare); m != nil && m[1] == "0" {
		if bare != text {
			return Offset{}, &fault{"zero has no sign", "write 0d"}
		}
		return Offset{}, nil
	}
	length, err := ParsePeriod(bare)
	if err != nil {
		problem, _ := split(err)
		return Offset{}, &fault{problem, "an offset is a period with a sign or without, or zero: -7d, 0d, 14d"}
	}
	if o.Length = length; o.Before && (length.Years != 0 || length.Months != 0) {
		return Offset{}, &fault{"an offset before the due instant is counted in days or less", "write for example -30d"}
	}
	return o, nil
}

// String is the text that [ParseOffset] reads back.
func (o Offset) String() string {
	switch {
	case o.Length.IsZero():
		return "0d"
	case o.Before:
		return "-" + o.Length.String()
	}
	return o.Length.String()
}

// MarshalText writes the offset as [Offset.String] does.
func (o Offset) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads an offset, see [ParseOffset].
func (o *Offset) UnmarshalText(text []byte) (err error) {
	*o, err = ParseOffset(string(text))
	return err
}

// before is at − o.
func (o Offset) before(at time.Time, loc *time.Location) time.Time {
	if o.Before {
		return at.UTC().Add(o.Length.Exact)
	}
	return o.Length.before(at, loc)
}

// After is the instant at which a stage with this offset acts on a row that is
// due at at.
func (o Offset) After(at time.Time, loc *time.Location) time.Time {
	if o.Before {
		return at.UTC().Add(-o.Length.Exact)
	}
	return o.Length.after(at, loc)
}

// compare orders offsets by when they come. Lengths are compared as if each
// year had 365 days and each month 30, which orders all that differ by days.
func (o Offset) compare(p Offset) int {
	days := func(o Offset) time.Duration {
		d := o.Length.Exact + time.Duration(365*o.Length.Years+30*o.Length.Months)*24*time.Hour
		if o.Before {
			return -d
		}
		return d
	}
	return cmp.Compare(days(o), days(p))
}

// Clock is a time of day.
type Clock struct{ Hour, Minute int }

// ParseClock reads a time of day: 09:00.
func ParseClock(text string) (Clock, error) {
	t, err := time.Parse("15:04", text)
	if err != nil || len(text) != len("15:04") {
		return Clock{}, &fault{"this is no time of day", `write for example "09:00"`}
	}
	return Clock{t.Hour(), t.Minute()}, nil
}

func (c Clock) String() string { return fmt.Sprintf("%02d:%02d", c.Hour, c.Minute) }

// MarshalText writes the time as [Clock.String] does.
func (c Clock) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a time, see [ParseClock].
func (c *Clock) UnmarshalText(text []byte) (err error) {
	*c, err = ParseClock(string(text))
	return err
}

// on is the first instant of the day at which clocks in loc show this time, or
// a later one where they skip it.
func (c Clock) on(d Date, loc *time.Location) time.Time {
	return d.Midnight().add(time.Duration(c.Hour)*time.Hour + time.Duration(c.Minute)*time.Minute).first(loc)
}

// After is the first such time at or after at.
func (c Clock) After(at time.Time, loc *time.Location) time.Time {
	for d := DateOf(at, loc).AddDays(-1); ; d = d.AddDays(1) {
		if t := c.on(d, loc); !t.Before(at) {
			return t
		}
	}
}

// last is the last such time before at, or at it when that counts too.
func (c Clock) last(at time.Time, loc *time.Location, inclusive bool) time.Time {
	for d := DateOf(at, loc).AddDays(1); ; d = d.AddDays(-1) {
		if t := c.on(d, loc); t.Before(at) || inclusive && t.Equal(at) {
			return t
		}
	}
}

// StageNames are the stages of the policy in their order; one without stages
// has one, named "".
func (p *Policy) StageNames() []string {
	if len(p.Stages) == 0 {
		return []string{""}
	}
	names := make([]string, len(p.Stages))
	for i, s := range p.Stages {
		names[i] = s.Name
	}
	return names
}

// Narrow is the policy with one stage for all it does: its action, its scope
// (besides the policy's), its schedule, and cutoffs that have the stage's
// offset in them. A policy without stages is its own stage "". The revision of
// a narrowed policy is that of the whole.
func (p *Policy) Narrow(stage string) (*Policy, bool) {
	if len(p.Stages) == 0 {
		return p, stage == ""
	}
	i := slices.IndexFunc(p.Stages, func(s Stage) bool { return s.Name == stage })
	if i < 0 {
		return nil, false
	}
	s := &p.Stages[i]
	q := *p
	q.whole, q.stage = p.Whole(), s
	q.Action = s.Action
	if s.Schedule != nil {
		q.Schedule = s.Schedule
	}
	switch {
	case q.Where == "":
		q.Where = s.Where
	case s.Where != "":
		q.Where = "(\n" + q.Where + "\n) AND (\n" + s.Where + "\n)"
	}
	return &q, true
}

// Stage is the stage that the policy was narrowed to, nil for a policy that has
// none.
func (p *Policy) Stage() *Stage { return p.stage }

// StageName is the name of the stage that the policy was narrowed to.
func (p *Policy) StageName() string {
	if p.stage == nil {
		return ""
	}
	return p.stage.Name
}

// Whole is the policy that this one was narrowed from, itself when it was not.
func (p *Policy) Whole() *Policy {
	if p.whole != nil {
		return p.whole
	}
	return p
}

// StageAt is the instant at which the (narrowed) policy acts on a row with this
// trigger: its due instant, moved by the stage's offset and to its hour.
func (p *Policy) StageAt(t time.Time) time.Time { return p.stageInstant(p.DueAt(t)) }

func (p *Policy) stageInstant(due time.Time) time.Time {
	if p.stage == nil {
		return due
	}
	at := p.stage.At.After(due, p.Location())
	if p.stage.Snap != nil {
		at = p.stage.Snap.After(at, p.Location())
	}
	return at
}

// dueBefore is the instant that a row's due instant must be before, for the
// stage to act on it at asOf.
func (p *Policy) dueBefore(asOf time.Time) time.Time {
	if p.stage == nil {
		return asOf
	}
	if p.stage.Snap != nil {
		// A row acts at the first such hour at or after its instant x: that is past exactly when x is not after the last one.
		inclusive := p.AtCutoff == DueAtCutoff
		asOf = p.stage.Snap.last(asOf, p.Location(), inclusive)
		if !inclusive {
			asOf = asOf.Add(time.Microsecond)
		}
	}
	return p.stage.At.before(asOf, p.Location())
}

// Floor is, for a reminder, the cutoff of what comes next: the next reminder or
// the due instant itself. Rows before it stay, because a nearer stage is for
// them. ok is false for all other stages.
func (p *Policy) Floor(asOf time.Time) (floor time.Time, ok bool) {
	if p.stage == nil || !p.stage.At.Before {
		return time.Time{}, false
	}
	return p.after().Cutoff(asOf), true
}

// after is, for a reminder, the next one, or the due instant as a stage without
// a name.
func (p *Policy) after() *Policy {
	next := *p
	next.stage = &Stage{}
	for i := range p.Stages {
		if s := &p.Stages[i]; s.At.Before && s.At.compare(p.stage.At) > 0 && (!next.stage.At.Before || s.At.compare(next.stage.At) < 0) {
			next.stage = s
		}
	}
	return &next
}

// Earlier are the stages that a row must have passed before this one: those
// from the due instant on. Reminders are none of them: of several in reach only
// the nearest goes out.
func (p *Policy) Earlier() []Stage {
	var out []Stage
	if p.stage == nil || p.stage.At.Before {
		return nil
	}
	for _, s := range p.Stages {
		if s.Name == p.stage.Name {
			break
		}
		if !s.At.Before {
			out = append(out, s)
		}
	}
	return out
}

// Reminders are the stages before the due instant.
func (p *Policy) Reminders() []Stage {
	var out []Stage
	for _, s := range p.Stages {
		if s.At.Before {
			out = append(out, s)
		}
	}
	return out
}

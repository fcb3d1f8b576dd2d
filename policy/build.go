package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// policy judges one policy. What it returns is used only when nothing in the
// file was wrong.
func (b *builder) policy(name string, raw *rawPolicy, file *rawFile) *Policy {
	p := &Policy{
		Name: name, Description: raw.Description.String(), Authority: raw.Authority.String(),
		Database: raw.Database.String(), Table: b.table(raw.Table),
		Key: b.names(raw.Key), Triggers: b.names(raw.Triggers),
		Where: b.sql(raw.Where), Unless: b.sql(raw.Unless), Subject: b.identifier(raw.Subject),
		Action: b.action(raw.Action), Stages: b.stages(raw.Stages), KeepLast: b.keepLast(raw.KeepLast), Privacy: b.privacy(raw.Privacy),
		After: raw.After.String(), Timezone: DefaultTimezone,
		Batch: b.batch(raw.Batch), Retry: b.retry(raw.Retry), Schedule: b.schedule(raw.Schedule), Limits: b.limits(raw.Limits),
		Windows: b.windows(raw.Windows), Lock: b.lock(raw.Lock),
	}
	p.Cascade, p.CascadeSubjects = b.children(raw.Cascade)
	b.required(raw)
	if d := raw.Database; d.set() && file.Databases[d.String()] == nil && !b.failed("databases") {
		names := slices.Sorted(maps.Keys(file.Databases))
		b.bad(d.leaf, &fault{"there is no such database", "name one under databases: " + cmp.Or(strings.Join(names, ", "), "it is empty")})
	}
	if raw.Action != nil && raw.Stages != nil {
		b.fail(raw.Action.at, raw.Action.field, "action and stages are both given", "keep one; each stage has an action of its own")
	}
	if raw.Privacy != nil && raw.Stages != nil && p.Privacy != nil && len(p.Privacy.Never) > 0 {
		b.fail(raw.Privacy.at, raw.Privacy.field, "a row that is due at once has no instant that stages could be counted from", "leave never out, or write a policy for each stage")
	}
	if m := raw.Mode; m.set() {
		p.Mode = Mode(m.String())
		if p.Mode != Shadow && p.Mode != Enforce {
			b.bad(m.leaf, &fault{"there is no such mode", "write shadow (plan and count only) or enforce"})
		}
	}
	if raw.Timezone.set() {
		p.Timezone = b.zone(raw.Timezone)
	}
	if raw.AtCutoff.set() {
		p.AtCutoff = choice(b, raw.AtCutoff, DueAtCutoff)
	}
	if raw.Keep.set() {
		keep, err := ParsePeriod(raw.Keep.String())
		if err != nil {
			b.bad(raw.Keep.leaf, err)
		}
		p.Keep = keep
	}
	p.Trigger = b.clock(raw)
	return p
}

// required reports what a policy cannot do without.
func (b *builder) required(raw *rawPolicy) {
	for _, need := range []struct {
		name string
		set  bool
		hint string
	}{
		{"database", raw.Database.set(), "name one of the databases above"},
		{"table", raw.Table.set(), "write table: name or schema.name"},
		{"action", raw.Action != nil || raw.Stages != nil, "write action: delete"},
		{"mode", raw.Mode.set(), "begin with mode: shadow, which changes nothing"},
	} {
		if !need.set && !b.failed(join(raw.field, need.name)) && !b.malformed(raw.place) && !(need.name == "action" && b.failed(raw.field+".stages")) {
			b.missing(raw.place, need.name, need.hint)
		}
	}
}

// malformed reports whether a section was no mapping at all.
func (b *builder) malformed(p place) bool {
	return slices.ContainsFunc(b.errs, func(e *Error) bool {
		return e.Field == p.field && strings.HasPrefix(e.Problem, "this is ")
	})
}

// clock judges since, until and keep, which make sense only together.
func (b *builder) clock(raw *rawPolicy) Trigger {
	since, until := raw.Since != nil, raw.Until != nil
	bad := b.malformed(raw.place) || b.failed(raw.field+".since") || b.failed(raw.field+".until")
	switch {
	case since && until:
		b.fail(raw.Until.at, raw.Until.field, "since and until are both given", "write since with keep, or until alone")
	case since && !raw.Keep.set() && !b.failed(raw.field+".keep"):
		b.missing(raw.place, "keep", "since needs a period, for example keep: 2y; a column that states the end itself is until:")
	case !since && !until && !bad:
		b.missing(raw.place, "since", "write since: COLUMN with keep: PERIOD, or until: COLUMN")
	}
	switch {
	case since:
		return b.trigger(raw.Since)
	case until:
		t := b.trigger(raw.Until)
		t.Until = true
		return t
	}
	return Trigger{}
}

// trigger judges one trigger. A column's type is the database's to say, an
// expression's is declared here.
func (b *builder) trigger(raw *rawTrigger) Trigger {
	t := Trigger{Column: b.identifier(raw.Column), Expr: b.sql(raw.Expr)}
	if strings.ContainsAny(raw.Column.String(), "()") {
		b.bad(raw.Column.leaf, &fault{"this is no column name", "write an expression as {expr: \"…\", type: timestamptz}"})
	}
	switch usable := !b.failed(raw.field); {
	case raw.Column.set() && raw.Expr.set():
		b.fail(raw.Expr.n, raw.Expr.field, "column and expr are both given", "keep one of them")
	case !raw.Column.set() && !raw.Expr.set() && usable:
		b.missing(raw.place, "column", "name the column, or give an expr")
	}
	if raw.Unit.set() {
		t.Unit = choice(b, raw.Unit, Seconds, Milliseconds, Microseconds, Nanoseconds, JulianDay)
	}
	if raw.Format.set() {
		t.Format = choice(b, raw.Format, ISO8601, Compact)
	}
	if raw.Null.set() {
		t.Null = choice(b, raw.Null, NullNever, NullDue)
	}
	if raw.Type.set() {
		if t.Type = choice(b, raw.Type, TimestampTZ, Timestamp, "datetime", DateType); t.Type == "datetime" {
			t.Type = Timestamp
		}
	}
	if raw.Zone.set() {
		t.Zone = b.zone(raw.Zone)
	}
	if raw.ImplausibleBefore.set() {
		if d, err := ParseDate(raw.ImplausibleBefore.String()); err != nil {
			b.bad(raw.ImplausibleBefore.leaf, err)
		} else {
			t.ImplausibleBefore = &d
		}
	}
	b.consistent(raw)
	return t
}

// consistent refuses combinations of a trigger's settings that contradict each
// other or leave its meaning open.
func (b *builder) consistent(raw *rawTrigger) {
	kind := raw.Type.String()
	naive := kind == string(Timestamp) || kind == "datetime" || kind == string(DateType)
	switch {
	case raw.Unit.set() && raw.Format.set():
		b.fail(raw.Format.n, raw.Format.field, "unit and format exclude each other", "unit is for a number, format for a text")
	case raw.Type.set() && raw.Column.set() && !raw.Expr.set():
		b.fail(raw.Type.n, raw.Type.field, "the type of a column is what the database says", "remove it; a text takes a format, a number a unit")
	case raw.Type.set() && (raw.Unit.set() || raw.Format.set()):
		b.fail(raw.Type.n, raw.Type.field, "type excludes unit and format", "a number takes a unit, a text a format, all else a type")
	case raw.Expr.set() && !raw.Type.set() && !raw.Unit.set() && !raw.Format.set() && !b.failed(raw.field):
		b.fail(raw.Expr.n, raw.Expr.field, "the expression declares neither type nor unit nor format", "add type: timestamptz, timestamp or date, unit: s for a number, or format: iso8601 for a text")
	case raw.Unit.set() && raw.Zone.set():
		b.fail(raw.Zone.n, raw.Zone.field, "a number with a unit is an instant and takes no zone", "remove the zone")
	case kind == string(TimestampTZ) && raw.Zone.set():
		b.fail(raw.Zone.n, raw.Zone.field, "a timestamptz is an instant and takes no zone", "remove the zone, or write type: timestamp")
	case raw.Expr.set() && naive && !raw.Zone.set() && !b.failed(join(raw.field, "zone")):
		b.fail(raw.Type.n, raw.Type.field, fmt.Sprintf("a %s carries no zone", kind), "add zone: UTC or the zone the values were written in")
	case raw.Format.String() == string(Compact) && !raw.Zone.set() && !b.failed(join(raw.field, "zone")):
		b.fail(raw.Format.n, raw.Format.field, "yyyymmddhhmmss carries no zone", "add zone: UTC or the zone the values were written in")
	}
}

// choice is a value of an enumeration.
func choice[T ~string](b *builder, t text, all ...T) T {
	if oneOf(T(t.String()), all...) {
		return T(t.String())
	}
	names := make([]string, len(all))
	for i, a := range all {
		names[i] = string(a)
	}
	b.bad(t.leaf, &fault{"there is no such choice", "write " + strings.Join(names, ", ")})
	return ""
}

func (b *builder) zone(t text) string {
	if _, err := loadLocation(t.String()); err != nil {
		b.bad(t.leaf, &fault{"there is no such time zone", "write an IANA name, for example Europe/Berlin or UTC"})
	}
	return t.String()
}

func (b *builder) sql(t text) string {
	if !t.set() {
		return ""
	}
	if err := CheckSQL(t.String()); err != nil {
		b.bad(t.leaf, err)
	}
	return t.String()
}

// identifier accepts a name as the database spells it; it is quoted before it
// is used.
func (b *builder) identifier(t text) string {
	if t.set() {
		if err := checkIdentifier(t.String()); err != nil {
			b.bad(t.leaf, err)
		}
	}
	return t.String()
}

func checkIdentifier(name string) error {
	switch {
	case strings.TrimSpace(name) != name:
		return &fault{"a name has no spaces around it", "remove them"}
	case len(name) > 128:
		return &fault{"a name is at most 128 bytes long", "write it as the database spells it"}
	}
	for _, r := range name {
		if strings.ContainsRune("\"'`;[]\\", r) || unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) {
			return &fault{fmt.Sprintf("a name cannot contain %q", r), "write it as the database spells it, without SQL quotes; curfew quotes it"}
		}
	}
	return nil
}

// table accepts name or schema.name.
func (b *builder) table(t text) string {
	if !t.set() {
		return ""
	}
	parts := strings.Split(t.String(), ".")
	if len(parts) > 2 || slices.Contains(parts, "") {
		b.bad(t.leaf, &fault{"this is no table name", "write name or schema.name"})
		return ""
	}
	for _, part := range parts {
		if err := checkIdentifier(part); err != nil {
			b.bad(t.leaf, err)
			return ""
		}
	}
	return t.String()
}

func (b *builder) names(l list) []string {
	var names []string
	for _, t := range l.items {
		names = append(names, b.identifier(t))
	}
	return names
}

func (b *builder) duration(a amount, otherwise, least, most time.Duration) time.Duration {
	if !a.set() {
		return otherwise
	}
	d, err := parseDuration(a.String())
	if err == nil && (d < least || d > most) {
		err = &fault{fmt.Sprintf("it must be from %s to %s", exactText(least), exactText(most)), ""}
	}
	if err != nil {
		b.bad(a.leaf, err)
		return otherwise
	}
	return d
}

func (b *builder) batch(raw *rawBatch) Batch {
	d := DefaultBatch()
	if raw == nil {
		return d
	}
	d.Rows = b.bounded(raw.Rows, d.Rows, 1, 100000)
	d.InFlight = b.bounded(raw.InFlight, d.InFlight, 1, 64)
	d.Target = b.duration(raw.Target, d.Target, 10*time.Millisecond, 10*time.Minute)
	switch n, err := strconv.Atoi(raw.Pace.String()); {
	case !raw.Pace.set():
	case raw.Pace.String() == "none":
		d.Pace = 0
	case err != nil || n < 1 || strconv.Itoa(n) != raw.Pace.String() || raw.Pace.n.scalar != integerScalar:
		b.bad(raw.Pace.leaf, &fault{"this is not a number of rows a second", "write for example 50000, or none for flat out"})
	case n > 100_000_000:
		b.bad(raw.Pace.leaf, &fault{"no database deletes that many rows a second", "write none for flat out"})
	default:
		d.Pace = n
	}
	return d
}

func (b *builder) retry(raw *rawRetry) Retry {
	d := DefaultRetry()
	if raw == nil {
		return d
	}
	d.Attempts = b.bounded(raw.Attempts, d.Attempts, 1, 100)
	d.Backoff = b.duration(raw.Backoff, d.Backoff, time.Millisecond, 24*time.Hour)
	d.Factor = b.bounded(raw.Factor, d.Factor, 1, 100)
	return d
}

func (b *builder) schedule(raw *rawSchedule) *Schedule {
	if raw == nil {
		return nil
	}
	s := DefaultSchedule()
	s.Cron = raw.Cron.String()
	s.StartWithin = b.duration(raw.StartWithin, s.StartWithin, time.Minute, 31*24*time.Hour)
	s.Grace = b.duration(raw.Grace, 0, time.Minute, 31*24*time.Hour)
	switch {
	case raw.Cron.set():
		if err := checkCron(s.Cron); err != nil {
			b.bad(raw.Cron.leaf, err)
		}
	case !b.failed(raw.field):
		b.missing(raw.place, "cron", `write for example cron: "0 2 * * *"`)
	}
	if raw.Overlap.set() {
		s.Overlap = choice(b, raw.Overlap, "skip", "queue")
	}
	if raw.CatchUp.set() {
		s.CatchUp = choice(b, raw.CatchUp, "latest", "all", "none")
	}
	if raw.By.set() {
		if s.By = choice(b, raw.By, External); s.By == External {
			b.external(raw, &s)
		}
	} else if raw.Grace.set() && !b.failed(join(raw.field, "by")) {
		b.fail(raw.Grace.n, raw.Grace.field, "grace is for a call that is expected", "add by: external, or write start_within")
	}
	return &s
}

// external makes s a schedule by which others call. What says how curfew would
// start a run itself has no meaning there; that it starts none may be said.
func (b *builder) external(raw *rawSchedule, s *Schedule) {
	for _, own := range []struct {
		leaf
		name, harmless string
	}{{raw.StartWithin.leaf, "start_within", ""}, {raw.Overlap.leaf, "overlap", "skip"}, {raw.CatchUp.leaf, "catch_up", "none"}} {
		if own.set() && own.n.text != own.harmless {
			b.fail(own.n, own.field, own.name+" is for runs that curfew starts, and with by: external it starts none", "remove it; grace says how late the call may be")
		}
	}
	s.StartWithin, s.Overlap, s.CatchUp = 0, "", ""
	if !raw.Grace.set() {
		s.Grace = DefaultGrace
	}
}

package target

import (
	"context"
	"fmt"
	"strings"
	"time"

	"curfew.dev/curfew/policy"
)

// sampleRows bounds what is looked at.
const sampleRows = 10_000

// A triggerSample counts what kinds of values the trigger has in some rows.
type triggerSample struct {
	rows       int64
	nulls      int64
	unreadable int64 // no instant: zero dates, text that does not parse, another type
	blank      int64 // of these, empty text
	low        int64 // instants up to 1970-01-01: the sentinels -infinity, epoch 0, negatives
	future     int64 // later than now, by more than a day
	positive   int64 // numbers above zero
	fits       map[policy.Unit]int64
}

// units in the order in which they are tried.
var units = []policy.Unit{policy.Seconds, policy.Milliseconds, policy.Microseconds, policy.Nanoseconds, policy.JulianDay}

// plausible is the span in which a stored instant of a living system lies.
var plausibleFrom, plausibleTo = time.Date(1990, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

// inUnit writes an instant as a number literal.
func inUnit(at time.Time, u policy.Unit) string {
	if u == policy.JulianDay {
		return newBound(at, nil).exact(u).FloatString(6)
	}
	return newBound(at, nil).whole(u).String()
}

// some is a subselect of up to sampleRows values of the SQL expression x, as column x.
func (d *DB) some(t *Table, x string) string {
	dl := dialectFor(d.server)
	from := " FROM " + dl.rows(t)
	switch {
	case d.Engine == Postgres && t.EstRows > 2*sampleRows && t.Storage == "":
		// Blocks from all over the heap; a little more than needed, since LIMIT takes from the front.
		percent := 110 * float64(sampleRows) / float64(t.EstRows)
		return fmt.Sprintf("(SELECT %s AS x%s TABLESAMPLE SYSTEM (%.6f) REPEATABLE (1) LIMIT %d) s", x, from, percent, sampleRows)
	case d.Engine != Postgres && (t.EstRows < 0 || t.EstRows > sampleRows):
		// Half from each end of the key: old rows and new ones.
		key, err := ResolveKey(&policy.Policy{Table: t.Label}, t)
		if err != nil {
			break
		}
		half := func(order string) string {
			cols := make([]string, len(key))
			for i, c := range key {
				cols[i] = dl.ident(c.Name) + order
			}
			return fmt.Sprintf("SELECT x FROM (SELECT %s AS x%s ORDER BY %s LIMIT %d) e", x, from, strings.Join(cols, ", "), sampleRows/2)
		}
		return "(" + half("") + " UNION ALL " + half(" DESC") + ") s"
	}
	return fmt.Sprintf("(SELECT %s AS x%s LIMIT %d) s", x, from, sampleRows)
}

// take samples the trigger.
func (d *DB) take(ctx context.Context, t *Table, tr *trigger) (triggerSample, error) {
	now, err := d.Now(ctx)
	if err != nil {
		return triggerSample{}, err
	}
	late := now.AddDate(0, 0, 1)
	switch tr.domain {
	case numberDomain:
		return d.takeNumbers(ctx, t, tr, late)
	case isoDomain, compactDomain:
		return d.takeText(ctx, t, tr, late)
	}
	zero := "FALSE"
	if d.Engine == MySQL {
		zero = "YEAR(x) = 0 OR MONTH(x) = 0 OR DAY(x) = 0"
	}
	s := triggerSample{}
	query := fmt.Sprintf(`SELECT count(*), count(*) - count(x), %s, %s, %s FROM %s`,
		countIf(zero), countIf("NOT ("+zero+") AND x < '1970-01-02'"), countIf("x > '"+late.Format("2006-01-02 15:04:05")+"'"),
		d.some(t, tr.sql(dialectFor(d.server))))
	err = d.SQL.QueryRowContext(ctx, query).Scan(&s.rows, &s.nulls, &s.unreadable, &s.low, &s.future)
	return s, err
}

func countIf(cond string) string { return "coalesce(sum(CASE WHEN " + cond + " THEN 1 ELSE 0 END), 0)" }

func (d *DB) takeNumbers(ctx context.Context, t *Table, tr *trigger, late time.Time) (triggerSample, error) {
	number := "x IS NOT NULL"
	if d.Engine == SQLite {
		number = "typeof(x) IN ('integer', 'real')"
	}
	s := triggerSample{fits: map[policy.Unit]int64{}}
	day := inUnit(time.Unix(86400, 0), tr.unit)
	columns := []string{"count(*)", "count(*) - count(x)", countIf("x IS NOT NULL AND NOT (" + number + ")"),
		countIf(number + " AND x < " + day), countIf(number + " AND x > " + inUnit(late, tr.unit)), countIf(number + " AND x > 0")}
	dest := []any{&s.rows, &s.nulls, &s.unreadable, &s.low, &s.future, &s.positive}
	found := make([]int64, len(units))
	for i, u := range units {
		columns = append(columns, countIf(fmt.Sprintf("%s AND x >= %s AND x < %s", number, inUnit(plausibleFrom, u), inUnit(plausibleTo, u))))
		dest = append(dest, &found[i])
	}
	query := "SELECT " + strings.Join(columns, ", ") + " FROM " + d.some(t, tr.sql(dialectFor(d.server)))
	if err := d.SQL.QueryRowContext(ctx, query).Scan(dest...); err != nil {
		return s, err
	}
	for i, u := range units {
		s.fits[u] = found[i]
	}
	return s, nil
}

// takeText reads text here: what it means is for policy.ParseInstant to say, as it is in a run.
func (d *DB) takeText(ctx context.Context, t *Table, tr *trigger, late time.Time) (triggerSample, error) {
	s := triggerSample{}
	x := tr.sql(dialectFor(d.server))
	text := map[Engine]string{
		Postgres: "x::text", MySQL: "CAST(x AS CHAR)", SQLite: "CASE typeof(x) WHEN 'null' THEN NULL WHEN 'text' THEN +x WHEN 'blob' THEN CAST(x AS TEXT) ELSE 'number' END",
	}[d.Engine]
	if tr.bytes && d.Engine == Postgres {
		text = "convert_from(x, 'LATIN1')"
	}
	rows, err := d.SQL.QueryContext(ctx, "SELECT "+text+" FROM "+d.some(t, x))
	if err != nil {
		return s, err
	}
	defer rows.Close()
	for rows.Next() {
		var v *string
		if err := rows.Scan(&v); err != nil {
			return s, err
		}
		s.rows++
		if v == nil {
			s.nulls++
			continue
		}
		at, err := policy.ParseInstant(*v, tr.format, tr.zone)
		switch {
		case err != nil:
			s.unreadable++
			if strings.TrimSpace(*v) == "" {
				s.blank++
			}
		case at.Unix() < 86400:
			s.low++
		case at.After(late):
			s.future++
		}
	}
	return s, rows.Err()
}

func (d *DB) examineSample(ctx context.Context, j *judgement) error {
	tr, err := resolveTrigger(j.p, j.t, d.server)
	if err != nil {
		return err
	}
	s, err := d.take(ctx, j.t, tr)
	switch class := classify(err); {
	case class == classCancelled || class == classConnection || class == classStatementTimeout:
		return err
	case err != nil:
		j.add(LevelRefuse, "trigger_sql", "correct the trigger", "the database cannot read the trigger: %v", redact(err))
		return nil
	}
	j.sampled(s, tr)
	return nil
}

// sampled says what the sample tells.
func (j *judgement) sampled(s triggerSample, tr *trigger) {
	if s.rows == 0 {
		return
	}
	of := fmt.Sprintf("of a sample of %d rows", s.rows)
	if s.nulls > 0 {
		switch j.p.Trigger.Null {
		case policy.NullDue:
			j.add(LevelWarn, "null_share", "", "%s %s have no trigger (NULL) and are due at once", percent(s.nulls, s.rows), of)
		case policy.NullNever:
			j.add(LevelInfo, "null_share", "", "%s %s have no trigger (NULL) and stay for ever", percent(s.nulls, s.rows), of)
		default:
			j.add(LevelWarn, "null_share", "say null: never or null: due", "%s %s have no trigger: the expression is NULL, and they stay for ever", percent(s.nulls, s.rows), of)
		}
	}
	if s.unreadable > 0 {
		level, hint := LevelWarn, ""
		if told := s.rows - s.nulls - s.blank; (tr.domain == isoDomain || tr.domain == compactDomain) && 2*(s.unreadable-s.blank) > told {
			level, hint = LevelRefuse, "declare the format that the column really holds, or an expr that makes one of it"
		}
		j.add(level, "unreadable_share", hint, "%s %s hold a value that is no instant; they stay", percent(s.unreadable, s.rows), of)
	}
	if tr.domain == numberDomain && j.unit(s, of) {
		return // the rest would only say it again
	}
	if s.low > 0 {
		if j.p.Trigger.ImplausibleBefore != nil {
			j.add(LevelInfo, "sentinel_share", "", "%s %s hold an instant of 1970 or before; implausible_before decides whether they stay", percent(s.low, s.rows), of)
		} else {
			j.add(LevelWarn, "sentinel_share", "if that stands for something else, implausible_before: 1990-01-01 keeps them",
				"%s %s hold an instant of 1970 or before (-infinity, 0, negative) and are due", percent(s.low, s.rows), of)
		}
	}
	if s.future > 0 {
		level, hint, what := LevelInfo, "", "have their time still before them"
		if !j.p.Trigger.Until {
			what = "say that it happened in the future"
		}
		if !j.p.Trigger.Until && 100*s.future > s.rows {
			level, hint = LevelWarn, "since: names what has happened; is it the right column, unit and zone, or is until: meant"
		}
		j.add(level, "future_share", hint, "%s %s %s, by more than a day", percent(s.future, s.rows), of, what)
	}
}

// unit judges whether the numbers can be counts of the declared unit: most of those above zero should be of this age.
func (j *judgement) unit(s triggerSample, of string) bool {
	outside := s.positive - s.fits[j.p.Trigger.Unit]
	if 2*outside <= s.positive {
		return false
	}
	best := j.p.Trigger.Unit
	for _, u := range units {
		if s.fits[u] > s.fits[best] {
			best = u
		}
	}
	hint := "declare the unit in which the column counts"
	if best != j.p.Trigger.Unit {
		hint = fmt.Sprintf("%s of them would, read as %s: write unit: %s if that is right", percent(s.fits[best], s.positive), best, best)
	}
	j.add(LevelRefuse, "unit_implausible", hint, "read as %s, %s of the numbers above zero %s do not lie between 1990 and 2100", j.p.Trigger.Unit, percent(outside, s.positive), of)
	return true
}

// percent rounds so that a few never read as none, and most never as all.
func percent(n, of int64) string {
	switch p := 100 * float64(n) / float64(of); {
	case n == of:
		return "all"
	case p < 1:
		return "less than 1 %"
	case p > 99:
		return "more than 99 %"
	default:
		return fmt.Sprintf("%.0f %%", p)
	}
}

package target

import (
	"fmt"
	"slices"
	"strings"

	"curfew.dev/curfew/policy"
)

// Guards: what keeps a due row. Each is a condition that every statement repeats.

// guarded reports whether the policy has a guard at all.
func (j *Job) guarded() bool { return j.p.Unless != "" || j.p.KeepLast != nil || j.p.Privacy != nil }

// unguarded writes "no guard keeps the row". A guard whose answer is unknown (NULL) does not keep it, but for the data subject's
// choice: one that is not there does.
func (j *Job) unguarded(q *query) {
	j.unlessNot(q)
	j.notLast(q)
	j.notChosen(q)
}

func (j *Job) unlessNot(q *query) {
	if j.p.Unless != "" {
		q.add(" AND ").operator(j.p.Unless).add(" IS NOT TRUE")
	}
}

// repeat writes what a DELETE by key repeats of "due, in scope, not guarded". The rows are locked by us then, and all of it was
// asked in statements of their own after that. On MySQL a DELETE that reads another table waits for rows locked there, of
// whatever parent, and may not read its own; and with dependents, what a condition would ask about them is gone by now: there
// conditions that read tables are left out.
func (j *Job) repeat(q *query) {
	mysql, family := j.db.Engine == MySQL, j.family != nil
	skip := func(sql string) bool { return (mysql || family) && readsTables.MatchString(sql) }
	if !family || !readsTables.MatchString(j.p.Trigger.Expr) {
		q.add(" AND ")
		j.isDueBy(q, j.p.Privacy == nil || !skip(j.p.Privacy.Expr))
	}
	j.undone(q)
	if !skip(j.p.Where) {
		j.inWhere(q)
	}
	if !skip(j.p.Unless) {
		j.unlessNot(q)
	}
	if !mysql && !skip(j.p.Where) {
		j.notLast(q)
	}
	if j.p.Privacy != nil && !skip(j.p.Privacy.Expr) {
		j.notChosen(q)
	}
}

// notLast writes "there are n later rows in scope with the same value of per": rows that are deleted by this condition always
// leave the last n, also when several batches delete at once, since none of the last n ever meets it. NULL is a value of per like
// any other; a row without a trigger is older than all that have one, and the key decides between rows of one instant.
func (j *Job) notLast(q *query) {
	k := j.p.KeepLast
	if k == nil {
		return
	}
	d, per, at := j.d, j.d.ident(k.Per), j.sortable()
	q.add(" AND (SELECT 1 FROM (SELECT ", per, " AS curfew_per, ", at, " AS curfew_at")
	var later, mine []string
	for i, c := range j.key {
		name := "curfew_k" + itoa(i)
		q.add(", ", d.ident(c.Name), " AS ", name)
		later, mine = append(later, "curfew_last."+name), append(mine, d.ident(c.Name))
	}
	q.add(" FROM ", d.rows(j.t))
	if j.p.Where != "" {
		q.add(" WHERE ").operator(j.p.Where)
	}
	q.add(") curfew_last WHERE ")
	c, _ := j.t.Column(k.Per)
	switch {
	case j.db.Engine == MySQL:
		q.add("curfew_last.curfew_per <=> ", per)
	case j.db.Engine == SQLite:
		q.add("curfew_last.curfew_per IS ", per)
	case c.NotNull:
		q.add("curfew_last.curfew_per = ", per)
	default: // IS NOT DISTINCT FROM would not use an index
		q.add("(curfew_last.curfew_per = ", per, " OR curfew_last.curfew_per IS NULL AND ", per, " IS NULL)")
	}
	q.add(" AND (curfew_last.curfew_at > ", at, " OR curfew_last.curfew_at IS NOT NULL AND ", at, " IS NULL",
		" OR (curfew_last.curfew_at = ", at, " OR curfew_last.curfew_at IS NULL AND ", at, " IS NULL) AND ")
	if len(j.key) > 1 {
		q.add("(", strings.Join(later, ", "), ") > (", strings.Join(mine, ", "), ")")
	} else {
		q.add(later[0], " > ", mine[0])
	}
	q.add(") LIMIT 1 OFFSET ", itoa(k.N-1), ") IS NOT NULL")
}

// sortable is the trigger as an expression that sorts as the instants do, and is NULL for what is none.
func (j *Job) sortable() string {
	x, tr := j.trig.sql(j.d), j.trig
	switch {
	case j.db.Engine == SQLite && tr.domain == numberDomain:
		return "CASE WHEN typeof(" + x + ") IN ('integer', 'real') THEN " + x + " END"
	case j.db.Engine == SQLite:
		return sqliteInstant(x, tr)
	case j.db.Engine == MySQL && (tr.domain == instantDomain || tr.domain == wallDomain || tr.domain == dateDomain):
		return "CASE WHEN NOT " + zeroDate(x) + " THEN " + x + " END"
	case j.db.Engine == MySQL && tr.domain == compactDomain:
		return "CASE WHEN " + matches(x, policy.CompactPattern) + " THEN CAST(" + x + " AS BINARY) END"
	case tr.domain == compactDomain:
		if tr.bytes {
			x = "convert_from(" + x + ", 'LATIN1')"
		}
		return "CASE WHEN " + x + " ~ '" + policy.CompactPattern + "' THEN " + x + ` COLLATE "C" END`
	case tr.domain == isoDomain:
		at := x + "::timestamptz"
		if tr.zone != nil {
			at = "CASE WHEN length(" + x + ") > 10 AND " + x + " ~ '" + isoOffset + "' THEN " + at + " ELSE " + x + "::timestamp AT TIME ZONE " + literal(tr.zone.String()) + " END"
		}
		return "CASE WHEN " + x + " ~ '" + policy.ISO8601Pattern + "' THEN " + at + " END"
	}
	return x
}

// literal quotes a text that has no backslash.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// chosen writes "the data subject's choice is one of these"; it is NULL where there is none. Constants are compared as texts,
// but on PostgreSQL, where they take the type of what they are compared with: elsewhere 'abc' = 0 could be true.
func (j *Job) chosen(q *query, values []policy.Value) {
	q.add(j.choice(), " IN (")
	for i, v := range values {
		if i > 0 {
			q.add(", ")
		}
		text := v.Text
		if v.Kind == policy.BoolValue && j.db.Engine != Postgres {
			text = map[string]string{"true": "1", "false": "0"}[text]
		}
		q.add(literal(text))
	}
	q.add(")")
}

func (j *Job) choice() string {
	p := j.p.Privacy
	x := "(\n" + p.Expr + "\n)"
	if p.Column != "" {
		x = j.d.ident(p.Column)
	}
	switch j.db.Engine {
	case MySQL:
		return "CONVERT(" + x + " USING utf8mb4) COLLATE utf8mb4_bin"
	case SQLite:
		return "CAST(" + x + " AS TEXT)"
	}
	return x
}

// notChosen writes "the data subject's choice does not keep the row". No choice keeps it, and so does one that is not listed
// where default lists what means the policy's period.
func (j *Job) notChosen(q *query) {
	p := j.p.Privacy
	if p == nil {
		return
	}
	q.add(" AND ")
	switch {
	case len(p.Default) > 0:
		j.chosen(q, slices.Concat(p.Default, p.Never))
		q.add(" IS TRUE")
	case len(p.Forever) > 0:
		j.chosen(q, p.Forever)
		q.add(" IS FALSE")
	default:
		q.add(j.choice(), " IS NOT NULL")
	}
}

// guardSettings judges keep_last and privacy.
func (j *judgement) guardSettings() {
	if k := j.p.KeepLast; k != nil {
		if _, ok := j.t.Column(k.Per); !ok {
			j.add(LevelRefuse, "keep_last_missing", j.columns(k.Per), "keep_last: table %s has no column %q", j.t.Label, k.Per)
		}
		if j.s.Engine == MySQL && j.p.Trigger.Format == policy.ISO8601 {
			j.add(LevelRefuse, "keep_last_order", "keep the time in a column of type DATETIME or TIMESTAMP", "keep_last: %s cannot put ISO 8601 texts in the order of their instants", j.t.Label)
		}
		j.add(LevelInfo, "keep_last", "", "the last %d rows of each %s stay, counted among the rows in scope; a row that another program removes at the same moment may still be counted (best effort)", k.N, k.Per)
	}
	p := j.p.Privacy
	if p == nil {
		return
	}
	c, ok := j.t.Column(p.Column)
	switch {
	case p.Column != "" && !ok:
		j.add(LevelRefuse, "privacy_missing", j.columns(p.Column), "privacy: table %s has no column %q", j.t.Label, p.Column)
	case p.Column != "" && j.s.Engine != Postgres && (c.Kind == KindDecimal || c.Kind == KindFloat || c.Kind == KindBytes):
		j.add(LevelRefuse, "privacy_type", "write an expr that yields a whole number or a text", "privacy: values of %s (%s) cannot be compared with constants of the file", p.Column, c.Declared)
	}
}

// privacyReads says how far a choice that is read from other tables can be relied on.
func (j *judgement) privacyReads() {
	if j.p.Privacy == nil {
		return
	}
	if tables := tablesRead(j.p.Privacy.Expr); len(tables) > 0 && j.s.Engine != SQLite {
		j.add(LevelWarn, "guard_best_effort", "", "privacy reads %s: a choice that is changed there at the same moment may be missed (best effort)", strings.Join(tables, ", "))
	}
}

// keepLastIndex is the statement for the index that keep_last needs, or "".
func (j *judgement) keepLastIndex() {
	k := j.p.KeepLast
	if k == nil || leads(j.t, k.Per) {
		return
	}
	cols := []string{k.Per}
	if j.p.Trigger.Column != "" {
		cols = distinct(append(cols, j.p.Trigger.Column))
	}
	j.add(LevelWarn, "keep_last_index", "", "%s", fmt.Sprintf("no index leads with %s: keep_last looks through the whole table for each due row", k.Per))
	j.out[len(j.out)-1].Statement = j.createIndex(j.t.Schema, j.t.Name, cols)
}

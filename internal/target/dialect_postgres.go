package target

import (
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"curfew.dev/curfew/policy"
)

type postgresDialect struct{}

func (postgresDialect) placeholder(n int) string { return "$" + itoa(n) }

func (postgresDialect) ident(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

func (postgresDialect) own(table string) string { return "curfew." + table }

func (d postgresDialect) rows(t *Table) string {
	name := quoted(d, t.Schema, t.Name)
	if t.Partitioned {
		return name // ONLY would see no rows of a partitioned table
	}
	return "ONLY " + name
}

// read leaves whole numbers and uuids to the array that they are packed into, which prints them alike and faster.
func (d postgresDialect) read(c Column) string {
	if c.Kind == KindInt || c.Kind == KindUUID {
		return d.ident(c.Name)
	}
	return d.ident(c.Name) + "::text"
}

func (postgresDialect) scan(_ Column, raw any) (value, error) { return scanText(textValue, raw) }

// bind sends the text that read gave, cast to the column's own type: the round trip is exact for every key type, floats and
// timestamps included, under the session settings that every connection has (DateStyle ISO, extra_float_digits 1).
func (postgresDialect) bind(q *query, c Column, v value) {
	if v.kind == nullValue {
		q.add("NULL")
		return
	}
	q.arg(v.s).add("::text::", c.Type)
}

func (d postgresDialect) keyIn(q *query, cols []Column, keys []tuple) {
	if len(cols) == 1 {
		q.add(d.ident(cols[0].Name), " = ANY(").arg(textArray(keys, 0)).add("::text[]::", cols[0].Type, "[])")
		return
	}
	q.add("(", list(cols, func(c Column) string { return d.ident(c.Name) }), ") IN (SELECT * FROM unnest(")
	for i, c := range cols {
		if i > 0 {
			q.add(", ")
		}
		q.arg(textArray(keys, i)).add("::text[]::", c.Type, "[]")
	}
	q.add("))")
}

// textArray renders column i of the keys as a PostgreSQL array literal.
func textArray(keys []tuple, i int) string {
	var sb strings.Builder
	sb.WriteByte('{')
	for n, k := range keys {
		if n > 0 {
			sb.WriteByte(',')
		}
		sb.WriteByte('"')
		for _, c := range []byte(k[i].s) {
			if c == '"' || c == '\\' {
				sb.WriteByte('\\')
			}
			sb.WriteByte(c)
		}
		sb.WriteByte('"')
	}
	sb.WriteByte('}')
	return sb.String()
}

func (postgresDialect) beyond(q *query, cols []Column, op string, v tuple) { rowBeyond(q, cols, op, v) }

func (postgresDialect) lockRows(wait bool) string {
	if wait {
		return " FOR UPDATE"
	}
	return " FOR UPDATE SKIP LOCKED"
}

func (postgresDialect) returning() bool { return true }
func (postgresDialect) maxKeys() int    { return 1 << 20 }

func (d postgresDialect) due(q *query, x string, tr *trigger, b bound) {
	switch tr.domain {
	case instantDomain:
		q.add(x, " < ").arg(pgInstant(b.instant))
	case wallDomain:
		pgWall(q, x, b)
	case dateDomain:
		q.add(x, " < ").arg(pgDate(b.date))
	case numberDomain:
		if tr.whole {
			q.add(x, " < ").arg(b.whole(tr.unit).String()).add("::text::numeric::", tr.castInt())
			return
		}
		q.add(x, " < ").arg(b.decimal(tr.unit)).add("::text::", tr.cast)
	case isoDomain:
		pgISO(q, x, b)
	case compactDomain:
		d.compact(q, x, tr, b)
	}
}

// Bounds go out in their own types: a cast of text to a time is not immutable, so it would be made again for every row that a
// scan looks at, which costs more than the scan.

func pgInstant(t time.Time) pgtype.Timestamptz { return pgtype.Timestamptz{Time: t.UTC(), Valid: true} }

func pgClock(w policy.Wall) pgtype.Timestamp { return pgtype.Timestamp{Time: w.UTC(), Valid: true} }

func pgDate(d policy.Date) pgtype.Date {
	return pgtype.Date{Time: d.Midnight().UTC(), Valid: true}
}

func pgWall(q *query, x string, b bound) {
	q.add("(", x, " < ").arg(pgClock(b.wall.End))
	if !b.wall.GapFrom.IsZero() {
		q.add(" AND NOT (", x, " >= ").arg(pgClock(b.wall.GapFrom)).add(" AND ", x, " < ").
			arg(pgClock(b.wall.GapTo)).add(")")
	}
	q.add(")")
}

// pgISO casts only text that the pattern admits: a cast of anything else would raise an error and sink the batch.
func pgISO(q *query, x string, b bound) {
	q.add("CASE WHEN ", x, " IS NULL OR NOT ", x, " ~ '", policy.ISO8601Pattern, "' THEN FALSE")
	q.add(" WHEN length(", x, ") = 10 THEN ")
	if b.zoned {
		q.add(x, "::date < ").arg(pgDate(b.date))
	} else {
		q.add("FALSE")
	}
	q.add(" WHEN ", x, " ~ '", isoOffset, "' THEN ", x, "::timestamptz < ").arg(pgInstant(b.instant))
	q.add(" ELSE ")
	if b.zoned {
		pgWall(q, x+"::timestamp", b)
	} else {
		q.add("FALSE")
	}
	q.add(" END")
}

// compact compares fourteen digits as text: byte order is time order.
func (d postgresDialect) compact(q *query, x string, tr *trigger, b bound) {
	if tr.bytes {
		x = "convert_from(" + x + ", 'LATIN1')"
	}
	x = `(` + x + ` COLLATE "C")`
	q.add("(", x, " ~ '", policy.CompactPattern, "' AND ")
	compactWall(q, x, b)
	q.add(")")
}

// compactWall writes the wall comparison over fourteen-digit text. The bound keeps its fraction by moving up to the next
// whole second: a value of whole seconds is before 12:00:00.5 exactly when it is before 12:00:01.
func compactWall(q *query, x string, b bound) {
	q.add(x, " < ").arg(compactCeil(b.wall.End))
	if !b.wall.GapFrom.IsZero() {
		q.add(" AND NOT (", x, " >= ").arg(compactCeil(b.wall.GapFrom)).add(" AND ", x, " < ").arg(compactCeil(b.wall.GapTo)).add(")")
	}
}

func compactCeil(w policy.Wall) string {
	return w.UTC().Add(time.Second - time.Nanosecond).Truncate(time.Second).Format("20060102150405")
}

func (d postgresDialect) unreadable(q *query, x string, tr *trigger) {
	switch tr.domain {
	case isoDomain:
		q.add("(", x, " IS NOT NULL AND (NOT ", x, " ~ '", policy.ISO8601Pattern, "'")
		if tr.zone == nil {
			q.add(" OR length(", x, ") = 10 OR NOT ", x, " ~ '", isoOffset, "'")
		}
		q.add("))")
	case compactDomain:
		if tr.bytes {
			x = "convert_from(" + x + ", 'LATIN1')"
		}
		q.add("(", x, " IS NOT NULL AND NOT ", x, " ~ '", policy.CompactPattern, "')")
	default:
		q.add("FALSE")
	}
}

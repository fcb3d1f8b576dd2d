package target

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"curfew.dev/curfew/policy"
)

// mysqlDialect speaks to MariaDB and MySQL.
type mysqlDialect struct{ maria bool }

func (mysqlDialect) placeholder(int) string { return "?" }

func (mysqlDialect) ident(name string) string {
	return "`" + strings.ReplaceAll(name, "`", "``") + "`"
}

func (mysqlDialect) own(table string) string { return "curfew_" + table }
func (d mysqlDialect) rows(t *Table) string  { return quoted(d, t.Schema, t.Name) }
func (d mysqlDialect) returning() bool       { return d.maria }
func (mysqlDialect) maxKeys() int            { return 1000 }
func (mysqlDialect) lockRows(wait bool) string {
	if wait {
		return " FOR UPDATE"
	}
	return " FOR UPDATE SKIP LOCKED"
}

func (d mysqlDialect) read(c Column) string {
	switch c.Kind {
	case KindBytes:
		return "HEX(" + d.ident(c.Name) + ")"
	case KindInt, KindText:
		return d.ident(c.Name)
	default:
		return "CAST(" + d.ident(c.Name) + " AS CHAR)"
	}
}

func (mysqlDialect) scan(c Column, raw any) (value, error) {
	switch c.Kind {
	case KindInt:
		return scanText(intValue, raw)
	case KindBytes:
		v, err := scanText(bytesValue, raw)
		if err != nil || v.kind == nullValue {
			return v, err
		}
		b, err := hex.DecodeString(v.s)
		return value{bytesValue, string(b)}, err
	default:
		return scanText(textValue, raw)
	}
}

// bind sends whole numbers as numbers: a number compared with text would be compared as a double, and two ids beyond 2^53
// would be one.
func (mysqlDialect) bind(q *query, c Column, v value) {
	switch {
	case v.kind == nullValue:
		q.add("NULL")
	case v.kind == intValue:
		if n, err := strconv.ParseInt(v.s, 10, 64); err == nil {
			q.arg(n)
		} else if n, err := strconv.ParseUint(v.s, 10, 64); err == nil {
			q.arg(n)
		} else {
			q.arg(v.s) // not reached: a whole number of MySQL fits one of the two
		}
	case v.kind == bytesValue:
		q.add("UNHEX(").arg(hex.EncodeToString([]byte(v.s))).add(")")
	case c.Kind == KindDecimal:
		// The value's own scale: with a fixed one the widest integers would be cut to another value.
		_, fraction, _ := strings.Cut(v.s, ".")
		q.add("CAST(").arg(v.s).add(" AS DECIMAL(65,", itoa(len(fraction)), "))")
	case c.Kind == KindTime || c.Kind == KindInstant:
		q.add("CAST(").arg(v.s).add(" AS DATETIME(6))")
	case c.Kind == KindDate:
		q.add("CAST(").arg(v.s).add(" AS DATE)")
	case c.Kind == KindText && c.Collation != "" && !strings.HasPrefix(c.Collation, "utf8mb4_"):
		// MariaDB does not convert what it compares inside a row list: (a, b) IN (('é', 1)) would miss a latin1 é.
		charset, _, _ := strings.Cut(c.Collation, "_")
		q.add("CONVERT(").arg(v.s).add(" USING ", charset, ") COLLATE ", c.Collation)
	default:
		q.arg(v.s)
	}
}

func (d mysqlDialect) keyIn(q *query, cols []Column, keys []tuple) { inList(q, cols, keys, "") }

// inList writes (a, b) IN ((?, ?), …); values is the word SQLite wants before a list of rows.
func inList(q *query, cols []Column, keys []tuple, values string) {
	d := q.d
	if len(cols) > 1 {
		q.add("(")
	}
	q.add(list(cols, func(c Column) string { return d.ident(c.Name) }))
	if len(cols) > 1 {
		q.add(")")
	} else {
		values = ""
	}
	q.add(" IN (", values)
	for n, k := range keys {
		if n > 0 {
			q.add(", ")
		}
		if len(cols) > 1 {
			q.add("(")
		}
		for i, c := range cols {
			if i > 0 {
				q.add(", ")
			}
			d.bind(q, c, k[i])
		}
		if len(cols) > 1 {
			q.add(")")
		}
	}
	q.add(")")
}

func (mysqlDialect) beyond(q *query, cols []Column, op string, v tuple) { orBeyond(q, cols, op, v) }

func (d mysqlDialect) due(q *query, x string, tr *trigger, b bound) {
	switch tr.domain {
	case instantDomain: // a TIMESTAMP, shown in UTC on our sessions
		q.add("(", x, " < ").arg(b.instant.UTC().Format("2006-01-02 15:04:05.000000"))
		q.add(" AND NOT ", zeroDate(x), ")")
	case wallDomain:
		q.add("(")
		mysqlWall(q, x, b)
		q.add(" AND NOT ", zeroDate(x), ")")
	case dateDomain:
		q.add("(", x, " < CAST(").arg(b.date.String()).add(" AS DATE) AND NOT ", zeroDate(x), ")")
	case numberDomain:
		if tr.whole {
			q.add(x, " < ").add(b.whole(tr.unit).String())
			return
		}
		q.add(x, " < CAST(").arg(b.decimal(tr.unit)).add(" AS DECIMAL(65,12))")
	case isoDomain:
		mysqlISO(q, x, b)
	case compactDomain:
		q.add("(", matches(x, policy.CompactPattern), " AND ")
		if tr.bytes {
			compactWall(q, x, b)
		} else {
			compactWall(q, "CAST("+x+" AS BINARY)", b)
		}
		q.add(")")
	}
}

// matches compares with case, and not up to a line break at the end, which a $ of this engine's regular expressions overlooks.
func matches(x, pattern string) string {
	text := "CONVERT(" + x + " USING utf8mb4)"
	return "(" + text + " COLLATE utf8mb4_bin REGEXP '" + pattern + "' AND LOCATE(CHAR(10), " + text + ") = 0)"
}

// zeroDate is true of '0000-00-00' and of dates with a zero month or day: values that are no instant. They sort before
// every date, so a comparison alone would call them long overdue.
func zeroDate(x string) string { return "(MONTH(" + x + ") = 0 OR DAYOFMONTH(" + x + ") = 0)" }

func mysqlWall(q *query, x string, b bound) {
	at := func(w policy.Wall) { q.add("CAST(").arg(w.String()).add(" AS DATETIME(6))") }
	q.add("(", x, " < ")
	at(b.wall.End)
	if !b.wall.GapFrom.IsZero() {
		q.add(" AND NOT (", x, " >= ")
		at(b.wall.GapFrom)
		q.add(" AND ", x, " < ")
		at(b.wall.GapTo)
		q.add(")")
	}
	q.add(")")
}

// mysqlISO reads ISO text: the first 19 characters and the fraction are the wall time, what follows is the offset.
func mysqlISO(q *query, x string, b bound) {
	off := fmt.Sprintf("REGEXP_SUBSTR(%s, '%s')", x, isoOffset) // the text matches already
	wall := func(text string) string { return "CAST(REPLACE(" + text + ", 'T', ' ') AS DATETIME(6))" }
	body := fmt.Sprintf("LEFT(%s, CHAR_LENGTH(%s) - CHAR_LENGTH(%s))", x, x, off)
	digits := "REPLACE(" + off + ", ':', '')"
	minutes := fmt.Sprintf("(CASE WHEN %s = 'Z' THEN 0 ELSE (CASE WHEN LEFT(%s, 1) = '-' THEN -1 ELSE 1 END) * "+
		"(CAST(SUBSTR(%s, 2, 2) AS SIGNED) * 60 + CAST(CONCAT('0', SUBSTR(%s, 4, 2)) AS SIGNED)) END)", off, off, digits, digits)
	q.add("(CASE WHEN ", x, " IS NULL OR NOT ", matches(x, policy.ISO8601Pattern), " THEN FALSE")
	q.add(" WHEN CHAR_LENGTH(", x, ") = 10 THEN ")
	if b.zoned {
		q.add("CAST(", x, " AS DATE) < CAST(").arg(b.date.String()).add(" AS DATE)")
	} else {
		q.add("FALSE")
	}
	q.add(" WHEN ", matches(x, isoOffset), " THEN ", wall(body), " < TIMESTAMPADD(MINUTE, ", minutes, ", CAST(").
		arg(b.instant.UTC().Format("2006-01-02 15:04:05.000000")).add(" AS DATETIME(6)))")
	q.add(" ELSE ")
	if b.zoned {
		mysqlWall(q, wall(x), b)
	} else {
		q.add("FALSE")
	}
	q.add(" END)")
}

func (d mysqlDialect) unreadable(q *query, x string, tr *trigger) {
	switch tr.domain {
	case instantDomain, wallDomain, dateDomain:
		q.add("COALESCE(", zeroDate(x), ", FALSE)")
	case isoDomain:
		q.add("(", x, " IS NOT NULL AND (NOT ", matches(x, policy.ISO8601Pattern))
		if tr.zone == nil {
			q.add(" OR CHAR_LENGTH(", x, ") = 10 OR NOT ", matches(x, isoOffset))
		}
		q.add("))")
	case compactDomain:
		q.add("(", x, " IS NOT NULL AND NOT ", matches(x, policy.CompactPattern), ")")
	default:
		q.add("FALSE")
	}
}

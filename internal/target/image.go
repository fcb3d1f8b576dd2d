package target

import (
	"database/sql/driver"
	"fmt"
	"regexp"
	"strings"

	"modernc.org/sqlite"

	"curfew.dev/curfew/policy"
)

// What anonymise makes of a value, as SQL. Each image is its own image: that is how a row that was changed is known. A value of
// which there is none (a text that is no date, a zero date) stays.

const hashedPattern = "^" + policy.HashPrefix + "[0-9a-f]{32}$"

// PostgreSQL

// same compares texts byte by byte, whatever the column's collation calls equal, and types without an equality as texts.
func (d postgresDialect) same(q *query, c Column, write func()) {
	cast := ""
	switch c.Kind {
	case KindText:
		cast = `::text COLLATE "C"`
	case KindOther:
		cast = "::text"
	}
	if cast == "" {
		q.add(d.ident(c.Name), " IS NOT DISTINCT FROM ")
		write()
		return
	}
	q.add(d.ident(c.Name), cast, " IS NOT DISTINCT FROM (")
	write()
	q.add(")::text")
}

func (d postgresDialect) isHashed(q *query, c Column) {
	q.add("COALESCE(", d.ident(c.Name), "::text ~ '", hashedPattern, "', TRUE)")
}

func (d postgresDialect) prefixed(c Column, n int) string {
	return "left(" + d.ident(c.Name) + "::text, " + itoa(n) + ")"
}

func (d postgresDialect) banded(c Column, n int) string {
	x := d.ident(c.Name)
	if c.Kind == KindFloat {
		return fmt.Sprintf("(floor(%s / %d) * %d)::%s", x, n, n, c.Type)
	}
	// mod is exact; a division may round up to the next multiple.
	return fmt.Sprintf("(%[1]s::numeric - mod(mod(%[1]s::numeric, %[2]d) + %[2]d, %[2]d))::%[3]s", x, n, c.Type)
}

func (d postgresDialect) truncated(c Column, to policy.CalendarBit, zone string) string {
	x, z := d.ident(c.Name), "'"+strings.ReplaceAll(zone, "'", "''")+"'"
	switch c.Kind {
	case KindDate:
		return fmt.Sprintf("date_trunc('%s', %s::timestamp)::date", to, x)
	case KindTime:
		return fmt.Sprintf("date_trunc('%s', %s)", to, x)
	case KindInstant:
		return fmt.Sprintf("(date_trunc('%s', %s AT TIME ZONE %s) AT TIME ZONE %s)", to, x, z, z)
	}
	x += "::text"
	return isoImage(x, to, x+" ~ '"+policy.ISO8601Pattern+"'", "length("+x+")", "substring("+x+" from '"+isoOffset+"')")
}

// isoImage cuts an ISO 8601 text whose date and time stand at fixed places. It keeps the form: a date alone, seconds or none, and
// the offset.
func isoImage(x string, to policy.CalendarBit, matches, length, offset string) string {
	day := "concat(substr(" + x + ", 1, 8), '01')"
	if to == policy.ToYear {
		day = "concat(substr(" + x + ", 1, 5), '01-01')"
	}
	return fmt.Sprintf("(CASE WHEN %[1]s IS NULL OR NOT %[2]s THEN %[1]s WHEN %[3]s = 10 THEN %[4]s ELSE concat(%[4]s, substr(%[1]s, 11, 1), "+
		"CASE WHEN substr(%[1]s, 17, 1) = ':' THEN '00:00:00' ELSE '00:00' END, COALESCE(%[5]s, '')) END)", x, matches, length, day, offset)
}

// MariaDB and MySQL

// same compares texts byte by byte: to a collation that ignores case or accents, what is still there may seem done.
func (d mysqlDialect) same(q *query, c Column, write func()) {
	if c.Kind != KindText && c.Kind != KindEnum {
		q.add(d.ident(c.Name), " <=> ")
		write()
		return
	}
	q.add("CAST(CONVERT(", d.ident(c.Name), " USING utf8mb4) AS BINARY) <=> CAST(CONVERT(")
	write()
	q.add(" USING utf8mb4) AS BINARY)")
}

func (d mysqlDialect) isHashed(q *query, c Column) {
	q.add("COALESCE(", matches(d.ident(c.Name), hashedPattern), ", TRUE)")
}

func (d mysqlDialect) prefixed(c Column, n int) string {
	return "LEFT(" + d.ident(c.Name) + ", " + itoa(n) + ")"
}

func (d mysqlDialect) banded(c Column, n int) string {
	x := d.ident(c.Name)
	if c.Kind == KindFloat {
		return fmt.Sprintf("(FLOOR(%s / %d) * %d)", x, n, n)
	}
	return fmt.Sprintf("(%[1]s - MOD(MOD(%[1]s, %[2]d) + %[2]d, %[2]d))", x, n)
}

func (d mysqlDialect) truncated(c Column, to policy.CalendarBit, _ string) string {
	x := d.ident(c.Name)
	format := map[policy.CalendarBit]string{policy.ToMonth: "%Y-%m-01", policy.ToYear: "%Y-01-01"}[to]
	switch c.Kind {
	case KindDate:
		return fmt.Sprintf("(CASE WHEN %s THEN %s ELSE CAST(DATE_FORMAT(%s, '%s') AS DATE) END)", zeroDate(x), x, x, format)
	case KindTime, KindInstant: // an instant is truncated in UTC, our sessions' zone
		return fmt.Sprintf("(CASE WHEN %s THEN %s ELSE CAST(DATE_FORMAT(%s, '%s') AS DATETIME) END)", zeroDate(x), x, x, format)
	}
	offset := fmt.Sprintf("CASE WHEN %s THEN REGEXP_SUBSTR(%s, '%s') END", matches(x, isoOffset), x, isoOffset)
	return isoImage(x, to, matches(x, policy.ISO8601Pattern), "CHAR_LENGTH("+x+")", offset)
}

// SQLite

// same compares byte by byte, and as the column's affinity has it.
func (d sqliteDialect) same(q *query, c Column, write func()) {
	q.add(d.ident(c.Name), " COLLATE BINARY IS ")
	write()
}

func (d sqliteDialect) isHashed(q *query, c Column) {
	x := d.ident(c.Name)
	q.add("(", x, " IS NULL OR typeof(", x, ") = 'text' AND ", x, " GLOB '", policy.HashPrefix, strings.Repeat("[0-9a-f]", 32), "')")
}

func (d sqliteDialect) prefixed(c Column, n int) string {
	x := d.ident(c.Name)
	return fmt.Sprintf("(CASE WHEN typeof(%[1]s) = 'text' THEN substr(%[1]s, 1, %[2]d) WHEN length(%[1]s) <= %[2]d THEN %[1]s ELSE substr(CAST(%[1]s AS TEXT), 1, %[2]d) END)", x, n)
}

func (d sqliteDialect) banded(c Column, n int) string {
	x := d.ident(c.Name)
	return fmt.Sprintf("(CASE typeof(%[1]s) WHEN 'integer' THEN %[1]s - ((%[1]s %% %[2]d) + %[2]d) %% %[2]d "+
		"WHEN 'real' THEN %[2]d.0 * (CAST(%[1]s / %[2]d AS INTEGER) - (%[1]s / %[2]d < CAST(%[1]s / %[2]d AS INTEGER))) ELSE %[1]s END)", x, n)
}

func (d sqliteDialect) truncated(c Column, to policy.CalendarBit, _ string) string {
	return fmt.Sprintf("curfew_truncated(%s, '%s')", d.ident(c.Name), to)
}

// errTruncated is what came of giving SQLite the function curfew_truncated(value, 'month' or 'year'); see errRegister.
var errTruncated = sqlite.RegisterDeterministicScalarFunction("curfew_truncated", 2, sqliteTruncated)

var isoShape = regexp.MustCompile(policy.ISO8601Pattern)

// sqliteTruncated is isoImage.
func sqliteTruncated(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	x, ok := args[0].(string)
	if !ok || strings.Contains(x, "\n") || !isoShape.MatchString(x) {
		return args[0], nil
	}
	day := x[:8] + "01"
	if to, _ := args[1].(string); to == string(policy.ToYear) {
		day = x[:5] + "01-01"
	}
	if len(x) == 10 {
		return day, nil
	}
	clock := "00:00"
	if len(x) > 16 && x[16] == ':' {
		clock = "00:00:00"
	}
	offset := ""
	if i := strings.LastIndexAny(x[11:], "Z+-"); i >= 0 {
		offset = x[11+i:]
	}
	return day + x[10:11] + clock + offset, nil
}

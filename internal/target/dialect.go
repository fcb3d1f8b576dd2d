package target

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"curfew.dev/curfew/policy"
)

// A dialect returns SQL text for one engine. It runs nothing: the logic that does is written once, in the other files.
type dialect interface {
	placeholder(n int) string
	ident(name string) string
	// own is the name of one of curfew's tables in the governed database: receipt, hold, tombstone, …
	own(table string) string
	// rows names the governed table where rows are read or changed; inheritance children are never included.
	rows(t *Table) string

	// read selects a key or trigger column so that scan and bind carry its value there and back unchanged.
	read(c Column) string
	scan(c Column, raw any) (value, error)
	bind(q *query, c Column, v value)
	// keyIn writes "the key is one of keys".
	keyIn(q *query, cols []Column, keys []tuple)
	// beyond writes the row comparison (cols) op (v), op being > or <=, in the form that the engine's index can serve. v may
	// be shorter than cols: then the leading columns decide.
	beyond(q *query, cols []Column, op string, v tuple)

	// due writes "the trigger is an instant before the bound" for trigger expression x; unreadable writes "x holds a
	// value that is no instant". Neither is ever NULL-valued true.
	due(q *query, x string, tr *trigger, b bound)
	unreadable(q *query, x string, tr *trigger)

	// same writes "the column is what write writes", byte for byte, NULL being NULL; it is never NULL itself.
	same(q *query, c Column, write func())
	// isHashed writes "the column is NULL or holds what anonymise made with a hash", which is never NULL.
	isHashed(q *query, c Column)
	// truncated, prefixed and banded are what anonymise makes of the column's value; see image.go.
	truncated(c Column, to policy.CalendarBit, zone string) string
	prefixed(c Column, n int) string
	banded(c Column, n int) string

	// lockRows ends a SELECT that locks what it finds; wait says whether to wait for rows locked by others or to skip them.
	lockRows(wait bool) string
	// returning says whether DELETE … RETURNING is spoken.
	returning() bool
	// maxKeys bounds the keys of one keyIn.
	maxKeys() int
}

func dialectFor(s Server) dialect {
	switch s.Engine {
	case Postgres:
		return postgresDialect{}
	case MySQL:
		return mysqlDialect{maria: s.MariaDB}
	default:
		return sqliteDialect{}
	}
}

// parts splits a table name as the policy writes it, schema.table or table.
func parts(name string) (schema, table string) {
	if i := strings.IndexByte(name, '.'); i >= 0 {
		return name[:i], name[i+1:]
	}
	return "", name
}

func quoted(d dialect, schema, name string) string {
	if schema == "" {
		return d.ident(name)
	}
	return d.ident(schema) + "." + d.ident(name)
}

// list joins what f says of each column.
func list(cols []Column, f func(Column) string) string {
	out := make([]string, len(cols))
	for i, c := range cols {
		out[i] = f(c)
	}
	return strings.Join(out, ", ")
}

// rowBeyond writes (a, b) > (x, y), which PostgreSQL and SQLite serve from an index.
func rowBeyond(q *query, cols []Column, op string, v tuple) {
	d, cols := q.d, cols[:len(v)]
	if len(cols) == 1 {
		q.add(d.ident(cols[0].Name), " ", op, " ")
		d.bind(q, cols[0], v[0])
		return
	}
	q.add("(", list(cols, func(c Column) string { return d.ident(c.Name) }), ") ", op, " (")
	for i, c := range cols {
		if i > 0 {
			q.add(", ")
		}
		d.bind(q, c, v[i])
	}
	q.add(")")
}

// orBeyond writes a > x OR (a = x AND b > y): the form of which MySQL makes index ranges.
func orBeyond(q *query, cols []Column, op string, v tuple) {
	d, cols := q.d, cols[:len(v)]
	strict := op[:1]
	q.add("(")
	for i := range cols {
		if i > 0 {
			q.add(" OR ")
		}
		q.add("(")
		for j := range i {
			q.add(d.ident(cols[j].Name), " = ")
			d.bind(q, cols[j], v[j])
			q.add(" AND ")
		}
		last := strict
		if i == len(cols)-1 {
			last = op
		}
		q.add(d.ident(cols[i].Name), " ", last, " ")
		d.bind(q, cols[i], v[i])
		q.add(")")
	}
	q.add(")")
}

// scanText reads what PostgreSQL and MySQL return for a column that was selected as text.
func scanText(kind valueKind, raw any) (value, error) {
	switch x := raw.(type) {
	case nil:
		return value{kind: nullValue}, nil
	case []byte:
		return value{kind, string(x)}, nil
	case string:
		return value{kind, x}, nil
	case int64:
		return value{kind, strconv.FormatInt(x, 10)}, nil
	case uint64:
		return value{kind, strconv.FormatUint(x, 10)}, nil
	case bool:
		return value{kind, strconv.FormatBool(x)}, nil
	case time.Time:
		return value{}, fmt.Errorf("the driver turned a stored value into a time: it cannot be carried unchanged")
	default:
		return value{}, fmt.Errorf("a value of Go type %T cannot be carried", raw)
	}
}

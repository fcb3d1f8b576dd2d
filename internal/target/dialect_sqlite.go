package target

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// sqliteDialect speaks to SQLite, where each value has a type of its own whatever its column says.
type sqliteDialect struct{}

func (sqliteDialect) placeholder(n int) string { return "?" + itoa(n) }

func (sqliteDialect) ident(name string) string {
	return `"` + strings.ReplaceAll(name, `"`, `""`) + `"`
}

func (sqliteDialect) own(table string) string { return "curfew_" + table }
func (d sqliteDialect) rows(t *Table) string  { return quoted(d, t.Schema, t.Name) }
func (sqliteDialect) lockRows(bool) string    { return "" } // the writer holds the whole file
func (sqliteDialect) returning() bool         { return true }
func (sqliteDialect) maxKeys() int            { return 500 }

// read hides the column behind a unary plus, which changes nothing but keeps the driver from turning text into times.
func (d sqliteDialect) read(c Column) string { return "+" + d.ident(c.Name) }

func (sqliteDialect) scan(_ Column, raw any) (value, error) {
	switch x := raw.(type) {
	case nil:
		return value{kind: nullValue}, nil
	case int64:
		return value{intValue, strconv.FormatInt(x, 10)}, nil
	case float64:
		return value{floatValue, strconv.FormatFloat(x, 'g', -1, 64)}, nil
	case string:
		return value{textValue, x}, nil
	case []byte:
		return value{bytesValue, string(x)}, nil
	case time.Time:
		return value{}, fmt.Errorf("the driver turned a stored value into a time: it cannot be carried unchanged")
	default:
		return value{}, fmt.Errorf("a value of Go type %T cannot be carried", raw)
	}
}

func (sqliteDialect) bind(q *query, _ Column, v value) {
	switch v.kind {
	case intValue:
		n, _ := strconv.ParseInt(v.s, 10, 64)
		q.arg(n)
	case floatValue:
		f, _ := strconv.ParseFloat(v.s, 64)
		q.arg(f)
	case bytesValue:
		q.arg([]byte(v.s))
	case nullValue:
		q.add("NULL")
	default:
		q.arg(v.s)
	}
}

func (sqliteDialect) keyIn(q *query, cols []Column, keys []tuple) { inList(q, cols, keys, "VALUES ") }

func (sqliteDialect) beyond(q *query, cols []Column, op string, v tuple) { rowBeyond(q, cols, op, v) }

func (sqliteDialect) due(q *query, x string, tr *trigger, b bound) {
	switch tr.domain {
	case numberDomain:
		q.add("(typeof(", x, ") IN ('integer', 'real') AND ", x, " < ")
		if tr.unit == unitJulian {
			q.arg(b.julian())
		} else if n := b.exact(tr.unit); n.IsInt() {
			// Compared exactly with integers and reals alike.
			q.add(n.Num().String())
		} else {
			f, _ := n.Float64()
			q.arg(f)
		}
		q.add(")")
	default:
		q.add("(", sqliteInstant(x, tr), " < ").add(strconv.FormatInt(b.instant.UnixMicro(), 10)).add(")")
	}
}

// sqliteInstant calls the function that this package registers with the driver: microseconds since 1970 of the text's
// instant, rounded up, or NULL when it is none.
func sqliteInstant(x string, tr *trigger) string {
	zone := ""
	if tr.zone != nil {
		zone = tr.zone.String()
	}
	return fmt.Sprintf("curfew_instant(%s, '%s', '%s')", x, tr.format, strings.ReplaceAll(zone, "'", "''"))
}

func (sqliteDialect) unreadable(q *query, x string, tr *trigger) {
	if tr.domain == numberDomain {
		q.add("(", x, " IS NOT NULL AND typeof(", x, ") NOT IN ('integer', 'real'))")
		return
	}
	q.add("(", x, " IS NOT NULL AND ", sqliteInstant(x, tr), " IS NULL)")
}

package target

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// A recorder is a database that keeps every statement and answers as one would in which the row of the golden policy exists.
type recorder struct {
	statements []string
	deletes    bool // whether a DELETE finds the row
	settled    bool // whether there is a receipt for the batch already
	orphans    bool // whether a child references the row
}

func (r *recorder) Connect(context.Context) (driver.Conn, error) { return recorderConn{r}, nil }
func (r *recorder) Driver() driver.Driver                        { return nil }

type recorderConn struct{ *recorder }

func (recorderConn) Prepare(string) (driver.Stmt, error) { return nil, errors.New("not prepared") }
func (recorderConn) Close() error                        { return nil }
func (recorderConn) Begin() (driver.Tx, error)           { return recorderTx{}, nil }

type recorderTx struct{}

func (recorderTx) Commit() error   { return nil }
func (recorderTx) Rollback() error { return nil }

// CheckNamedValue lets every argument pass as it is.
func (recorderConn) CheckNamedValue(*driver.NamedValue) error { return nil }

func (c recorderConn) note(query string, args []driver.NamedValue) {
	var sb strings.Builder
	sb.WriteString(query + ";\n")
	for _, a := range args {
		switch v := a.Value.(type) {
		case []byte:
			fmt.Fprintf(&sb, "-- %d: %d bytes\n", a.Ordinal, len(v))
		default:
			fmt.Fprintf(&sb, "-- %d: %T %v\n", a.Ordinal, v, v)
		}
	}
	c.statements = append(c.statements, sb.String())
}

func (c recorderConn) ExecContext(_ context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	c.note(query, args)
	if c.settled && strings.HasPrefix(query, "INSERT") || !c.deletes && strings.HasPrefix(query, "DELETE") {
		return driver.RowsAffected(0), nil
	}
	return driver.RowsAffected(1), nil
}

func (c recorderConn) QueryContext(_ context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	c.note(query, args)
	return &recorderRows{left: c.answer(query)}, nil
}

var (
	selected  = regexp.MustCompile("(?:\"([^\"]+)\"|`([^`]+)`|(ctid))(?:[^,]*?|[^,]*, '[^']*'\\)) AS (curfew_\\w+)")
	goldenRow = map[string]string{"id": "42", "tenant": "acme", "no": "7", "at": "2026-01-02 03:04:05+00", "ctid": "(3,9)"}
)

func (c recorderConn) answer(query string) [][]driver.Value {
	switch {
	case strings.HasPrefix(query, "SELECT id, name, relation, conditions"):
		return [][]driver.Value{{"1", "court", "*", `[{"column": "owner", "value": "7"}]`}}
	case strings.HasPrefix(query, "SELECT batch_key"):
		return [][]driver.Value{{goldenKey, int64(1), `{"deleted":1}`, int64(0), `{}`, []byte{}, []byte{}}}
	case strings.Contains(query, "DELETE FROM") && !c.deletes && !strings.Contains(query, "array_agg"):
		return nil
	case strings.HasPrefix(query, "SELECT pg_relation_size"):
		return [][]driver.Value{{int64(10), "16385", int64(1)}}
	case strings.HasPrefix(query, "SELECT pg_relation_filenode"):
		return [][]driver.Value{{"16385"}}
	case strings.HasPrefix(query, "SELECT stage, row_hash"):
		return nil
	case strings.HasPrefix(query, "SELECT row_hash"):
		return [][]driver.Value{{goldenKey[:16]}}
	case strings.HasPrefix(query, "SELECT EXISTS"):
		return [][]driver.Value{{c.orphans}}
	}
	values := map[string]driver.Value{}
	var row, inner []driver.Value
	for _, m := range selected.FindAllStringSubmatch(query, -1) {
		v := driver.Value(goldenRow[m[1]+m[2]+m[3]])
		values[m[4]] = v
		inner = append(inner, v)
	}
	_, outer, packed := strings.Cut(query, "\n) SELECT ")
	switch {
	case !packed && len(inner) > 0:
		return [][]driver.Value{inner}
	case !packed && strings.HasPrefix(query, "SELECT count(*), "):
		return [][]driver.Value{{int64(1), "2026-01-02"}}
	case !packed && strings.HasPrefix(query, "SELECT count(*)") && strings.Contains(query, "old_event"):
		return [][]driver.Value{{int64(1)}} // the copy has arrived
	case !packed:
		return [][]driver.Value{{int64(0)}}
	}
	n := 0
	for item := range strings.SplitSeq(strings.TrimSuffix(outer, " FROM p"), ", ") {
		switch {
		case strings.Contains(item, "pg_snapshot_xmin"):
			row = append(row, "750")
			continue
		case strings.Contains(item, "pg_relation_filenode"):
			row = append(row, "16385")
			continue
		case strings.Contains(query, "DELETE FROM") && !c.deletes:
			row = append(row, nil)
		case strings.Contains(item, "[count(*)]"):
			row = append(row, inner[n])
		default:
			row = append(row, fmt.Sprintf("{%q}", inner[n]))
		}
		n++
	}
	return [][]driver.Value{row}
}

type recorderRows struct{ left [][]driver.Value }

func (r *recorderRows) Columns() []string {
	if len(r.left) == 0 {
		return []string{"?"}
	}
	return make([]string, len(r.left[0]))
}
func (*recorderRows) Close() error { return nil }
func (r *recorderRows) Next(dest []driver.Value) error {
	if len(r.left) == 0 {
		return io.EOF
	}
	copy(dest, r.left[0])
	r.left = r.left[1:]
	return nil
}

var goldenKey = []byte("the key of the batch, 32 bytes ..")

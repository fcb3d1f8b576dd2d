package target

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// PostgreSQL sends keys packed: one row with an array for each column, not a row for each key. For a thousand keys that is
// several times cheaper on both sides, and it is most of what a batch costs beside the change itself.

// packed wraps a query over cols so that each column comes as one array.
func packed(q *query, cols []Column) string {
	var aggs, names []string
	for i := range cols {
		aggs = append(aggs, "array_agg(c"+itoa(i)+")::text")
		names = append(names, "c"+itoa(i))
	}
	head := "WITH p(" + strings.Join(names, ", ") + ") AS (\n"
	return head + q.String() + "\n) SELECT " + strings.Join(aggs, ", ") + " FROM p"
}

// readPacked reads the one row that packed gives.
func readPacked(ctx context.Context, c querier, text string, args []any, width int) ([]tuple, error) {
	raw, dest := make([]sql.NullString, width), make([]any, width)
	for i := range raw {
		dest[i] = &raw[i]
	}
	if err := c.QueryRowContext(ctx, text, args...).Scan(dest...); err != nil {
		return nil, err
	}
	return unpack(raw)
}

// unpack turns arrays of columns into tuples, which share one allocation.
func unpack(raw []sql.NullString) ([]tuple, error) {
	if !raw[0].Valid {
		return nil, nil // array_agg of no rows
	}
	n := 1 + strings.Count(raw[0].String, ",") // at least as many as there are elements
	var slab []value
	var out []tuple
	for col, text := range raw {
		i := 0
		err := eachElement(text.String, func(v value) {
			if col == 0 {
				if slab == nil {
					slab, out = make([]value, 0, n*len(raw)), make([]tuple, 0, n)
				}
				if len(slab)+len(raw) > cap(slab) {
					slab = make([]value, 0, n*len(raw))
				}
				slab = slab[:len(slab)+len(raw)]
				out = append(out, tuple(slab[len(slab)-len(raw):len(slab):len(slab)]))
			}
			if i < len(out) {
				out[i][col] = v
			}
			i++
		})
		if err != nil {
			return nil, err
		}
		if i != len(out) {
			return nil, fmt.Errorf("column %d of a key list has %d values, the first has %d", col, i, len(out))
		}
	}
	return out, nil
}

// eachElement walks a one-dimensional PostgreSQL array literal. Elements without quotes are slices of the text.
func eachElement(s string, f func(value)) error {
	bad := fmt.Errorf("an array of %d bytes cannot be read", len(s))
	if len(s) < 2 || s[0] != '{' || s[len(s)-1] != '}' {
		return bad
	}
	s = s[1 : len(s)-1]
	for len(s) > 0 {
		if s[0] != '"' {
			end := strings.IndexByte(s, ',')
			if end < 0 {
				end = len(s)
			}
			if e := s[:end]; e == "NULL" {
				f(value{kind: nullValue})
			} else {
				f(value{textValue, e})
			}
			s = s[min(end+1, len(s)):]
			continue
		}
		e, rest, ok := unquote(s[1:])
		if !ok {
			return bad
		}
		f(value{textValue, e})
		s = rest
	}
	return nil
}

// unquote reads up to the closing quote and the comma after it.
func unquote(s string) (element, rest string, ok bool) {
	end := strings.IndexAny(s, `"\`)
	if end >= 0 && s[end] == '"' {
		return s[:end], strings.TrimPrefix(s[end+1:], ","), true
	}
	var sb strings.Builder
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i == len(s) {
				return "", "", false
			}
			sb.WriteByte(s[i])
		case '"':
			return sb.String(), strings.TrimPrefix(s[i+1:], ","), true
		default:
			sb.WriteByte(s[i])
		}
	}
	return "", "", false
}

// pagePacked selects the next n due rows in order like pageRows, but brings only the last row's trigger: turning a thousand
// timestamps into text costs as much as finding the rows.
func (j *Job) pagePacked(ctx context.Context, q *query, cols []Column) (keys []tuple, last tuple, err error) {
	text := "WITH p AS (\n" + q.String() + "\n) SELECT (array_agg(curfew_0))[count(*)]::text"
	for i := 1; i < len(cols); i++ {
		text += ", array_agg(curfew_" + itoa(i) + ")::text"
	}
	raw, dest := make([]sql.NullString, len(cols)), make([]any, len(cols))
	for i := range raw {
		dest[i] = &raw[i]
	}
	if err := j.db.SQL.QueryRowContext(ctx, text+" FROM p", q.args...).Scan(dest...); err != nil {
		return nil, nil, err
	}
	if keys, err = unpack(raw[1:]); err != nil || len(keys) == 0 {
		return nil, nil, err
	}
	last = append(tuple{{textValue, raw[0].String}}, keys[len(keys)-1]...)
	return keys, last, nil
}

package target

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
)

// Reading in physical order (PostgreSQL): where the trigger does not follow the heap, an index on it leads to a block of its
// own for almost every row. A range of row addresses reads each block once. It is used within one table only: an address says
// nothing across partitions. Every statement repeats the conditions; an address is a place to look, never a row's name.

// wholeBlock is beyond every address in a block: a block has fewer than 65536 rows.
const wholeBlock = math.MaxUint16

// placeable reports whether addresses can be ranges here.
func (j *Job) placeable() bool {
	return j.db.Engine == Postgres && j.db.server.Major >= 14 && !j.t.Partitioned && !j.t.IsView
}

// ChooseStrategy decides how the run pages, from the planner's estimate and the table's statistics. It costs one EXPLAIN.
func (j *Job) ChooseStrategy(ctx context.Context) error {
	if !j.placeable() || j.t.Blocks <= 8 {
		return nil
	}
	q := newQuery(j.d).add("EXPLAIN (FORMAT JSON) SELECT 1 FROM ", j.d.rows(j.t))
	j.where(q, phaseMain, nil, nil)
	var text string
	if err := j.db.SQL.QueryRowContext(ctx, q.String(), q.args...).Scan(&text); err != nil {
		return redact(err)
	}
	var top []struct{ Plan pgPlan }
	if err := json.Unmarshal([]byte(text), &top); err != nil || len(top) == 0 {
		return fmt.Errorf("the plan of a count cannot be read: %w", err)
	}
	due := top[0].Plan.Rows
	if j.strategy == ByTrigger {
		r := j.t.Correlation[j.trig.column.Name]
		// What an index visits: every block once where the heap follows it, one block a row where it does not.
		visits := due * (1 - r*r)
		if visits < 2*float64(j.t.Blocks) {
			return nil
		}
	}
	j.strategy = ByPlace
	j.blocks.Store(int64(1 + float64(j.t.Blocks)*1000/max(due, 1)))
	return nil
}

// address is the place of a row: block and line.
type address struct{ block, line int64 }

func (a address) String() string { return fmt.Sprintf("(%d,%d)", a.block, a.line) }

func parseAddress(s string) (a address, err error) {
	if _, err = fmt.Sscanf(s, "(%d,%d)", &a.block, &a.line); err != nil {
		return a, errBadTuples
	}
	return a, nil
}

// placed writes the address range of a batch: from lo, up to and without hi.
func placed(q *query, lo, hi tuple) {
	if len(lo) > 0 {
		q.add(" AND ctid >= ").arg(lo[0].s).add("::text::tid")
	}
	if len(hi) > 0 {
		q.add(" AND ctid < ").arg(hi[0].s).add("::text::tid")
	}
}

func place(a address) tuple { return tuple{{textValue, a.String()}} }

// maxWindow bounds the blocks that one page looks at (64 MiB), so that it ends in time where few rows are due.
const maxWindow = 8192

// pagePlace hands out the due rows of the next blocks. The number of blocks follows the number of rows wanted.
func (j *Job) pagePlace(ctx context.Context, c cursor, n int) (Page, error) {
	var at address
	var size int64
	var heap string
	err := j.db.SQL.QueryRowContext(ctx, "SELECT pg_relation_size($1::text::regclass) / current_setting('block_size')::bigint, "+j.heapFile(),
		quoted(j.d, j.t.Schema, j.t.Name)).Scan(&size, &heap)
	if err != nil {
		return Page{}, err
	}
	if len(c.at) == 2 && c.at[1].s == heap { // else the table was rewritten: its rows are elsewhere, and are looked for anew
		if at, err = parseAddress(c.at[0].s); err != nil {
			return Page{}, err
		}
	}
	if at.block >= size {
		return j.next(c), nil
	}
	for blocks := min(max(j.blocks.Load(), 1), maxWindow); ; blocks = max(1, blocks/2) {
		end := address{min(at.block+blocks, size), 0}
		keys, horizon, now, err := j.spanKeys(ctx, cursor{phaseMain, place(at)}, place(end), n+1)
		if err != nil {
			return Page{}, err
		}
		if now != heap {
			return j.pagePlace(ctx, c, n) // rewritten this moment
		}
		if len(keys) > n && blocks == 1 {
			return j.pageBlock(ctx, at, n, heap)
		}
		if len(keys) > n {
			continue
		}
		// Three quarters of a full page: a window that holds too many rows is looked at twice.
		j.blocks.Store(min(maxWindow, 1+blocks*int64(n)*3/4/int64(max(len(keys), 1))))
		return j.placePage(at, end, keys, horizon, heap), nil
	}
}

func (j *Job) placePage(from, to address, keys []tuple, horizon, heap string) Page {
	p := Page{Cursor: cursor{phaseMain, append(place(to), value{textValue, heap})}.encode()}
	if len(keys) > 0 {
		p.Batch = &Batch{Phase: phaseMain, Rows: len(keys), Keys: encodeTuples(keys), Bounds: span{place(from), place(to), horizon, heap}.encode()}
	}
	return p
}

// pageBlock hands out the next n rows of a single block that holds more.
func (j *Job) pageBlock(ctx context.Context, from address, n int, heap string) (Page, error) {
	to := address{from.block, wholeBlock}
	q := newQuery(j.d).add("SELECT ctid::text AS curfew_place, ", j.readKey(), " FROM ", j.d.rows(j.t))
	j.where(q, phaseMain, place(from), place(to))
	q.add(" ORDER BY ctid LIMIT ", itoa(n))
	cols := append([]Column{{Name: "ctid"}}, j.key...)
	found, err := j.tuples(ctx, j.db.SQL, q, cols)
	if err != nil {
		return Page{}, err
	}
	if len(found) == 0 {
		return j.placePage(from, address{from.block + 1, 0}, nil, "", heap), nil
	}
	last, err := parseAddress(found[len(found)-1][0].s)
	if err != nil {
		return Page{}, err
	}
	keys := make([]tuple, len(found))
	for i, f := range found {
		keys[i] = f[1:]
	}
	return j.placePage(from, address{last.block, last.line + 1}, keys, "", heap), nil
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

package target

import (
	"context"
	"encoding/json"
	"fmt"
)

// Reading in physical order (PostgreSQL): where the trigger does not follow the heap, an index on it leads to a block of its
// own for almost every row. A range of row addresses reads each block once. It is used within one table only: an address says
// nothing across partitions. Every statement repeats the conditions; an address is a place to look, never a row's name.
//
// A batch is a range of addresses and no list of keys: it finds its rows itself, in its own transaction. How many there will be
// is an estimate. One that finds far more, or the table rewritten, changes nothing and hands its range on, to be cut smaller.

// placeable reports whether addresses can be ranges here: not where rows are told of, one by one and by their keys.
func (j *Job) placeable() bool {
	return !j.byRow() && j.db.Engine == Postgres && j.db.server.Major >= 14 && !j.t.Partitioned && !j.t.IsView
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
		s := j.t.Spread[j.trig.column.Name]
		// What an index visits: every block once where the heap follows it, one block a row where it does not.
		scattered := due*(1-s.Correlation*s.Correlation) >= 2*float64(j.t.Blocks)
		// Rows of one value that are more than two pages are put in order for each page again, which may be more than to read
		// the table once.
		n := float64(j.p.Batch.Rows)
		tied := s.Ties > 2*n && due*s.Ties/(2*n) > float64(j.t.EstRows)
		if !scattered && !tied {
			return nil
		}
	}
	j.strategy = ByPlace
	j.blocks.Store(int64(1 + float64(j.t.Blocks)*float64(j.p.Batch.Rows)/max(due, 1)))
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

// maxWindow bounds the blocks that one statement looks at (64 MiB), so that it ends in time where few rows are due.
const maxWindow = 8192

// fewRows is how many due rows a look at some blocks must find before anything is concluded from it.
const fewRows = 16

// fewBlocks is up to how many blocks a page is cut by the row: in so few, a count of the first says nothing about the others.
const fewBlocks = 4

// pagePlace hands out the next blocks, as many as are likely to hold n due rows: it counts those in the first few. The batch is
// the blocks, and reads its rows when it executes (see find); what only the pager knew would be older, and would have to be kept
// in the ledger.
func (j *Job) pagePlace(ctx context.Context, c cursor, n int) (Page, error) {
	var at address
	var heap string
	if len(c.at) == 2 {
		var err error
		if at, err = parseAddress(c.at[0].s); err != nil {
			return Page{}, err
		}
		heap = c.at[1].s
	}
	look := j.sample(n)
	for looked := int64(0); ; {
		s, err := j.survey(ctx, at, look)
		if err != nil {
			return Page{}, err
		}
		if heap != "" && s.heap != heap { // the table was rewritten: its rows are elsewhere, and are looked for anew
			at, heap = address{}, s.heap
			continue
		}
		heap = s.heap
		if at.block >= s.size {
			return j.next(c), nil
		}
		if s.due == 0 {
			at = address{at.block + look, 0}
			if looked += look; looked >= maxWindow {
				return placePage(at, at, 0, heap), nil
			}
			look = min(2*look, maxWindow)
			continue
		}
		if s.due < fewRows && int(s.due) < n && look < min(maxWindow, s.size-at.block) {
			look = min(4*look, maxWindow) // too few to conclude from
			continue
		}
		seen := min(look, s.size-at.block)
		blocks := min(seen*int64(n)/s.due, maxWindow, s.size-at.block)
		j.blocks.Store(max(1, blocks))
		if blocks < fewBlocks {
			return j.pageFew(ctx, at, n, heap)
		}
		p := placePage(at, address{at.block + blocks, 0}, max(1, int(s.due*blocks/seen)), heap)
		if at.block+blocks == s.size {
			// The last one is open: a row that moves before it executes most likely goes to a new block.
			p.Batch.Bounds = span{lo: place(at), heap: heap}.encode()
		}
		return p, nil
	}
}

// pageMoved hands out due rows that were changed by others since the run began: such a row has another address, which the scan
// may have passed already. Where nobody changed any row of the table, as the server counts, it does not look.
func (j *Job) pageMoved(ctx context.Context, c cursor, n int) (Page, error) {
	var updates, size int64
	err := j.db.SQL.QueryRowContext(ctx, "SELECT "+j.updates()+", pg_relation_size("+j.regclass()+") / current_setting('block_size')::bigint").Scan(&updates, &size)
	if err != nil {
		return Page{}, err
	}
	at := address{}
	if len(c.at) == 0 && updates >= 0 && updates == j.began.Updates {
		return j.next(c), nil
	}
	if len(c.at) > 0 {
		if at, err = parseAddress(c.at[0].s); err != nil {
			return Page{}, err
		}
	}
	if at.block >= size {
		return j.next(c), nil
	}
	end := address{at.block + maxWindow, 0}
	q := newQuery(j.d).add("SELECT ctid::text AS curfew_place, ", j.readKey(), " FROM ", j.d.rows(j.t))
	j.where(q, phaseMoved, place(at), place(end))
	q.add(" ORDER BY ctid LIMIT ", itoa(n))
	found, err := j.tuples(ctx, j.db.SQL, q, append([]Column{{Name: "ctid"}}, j.key...))
	if err != nil {
		return Page{}, err
	}
	if len(found) == n {
		if end, err = parseAddress(found[n-1][0].s); err != nil {
			return Page{}, err
		}
		end.line++
	}
	keys := make([]tuple, len(found))
	for i, f := range found {
		keys[i] = f[1:]
	}
	return Page{Cursor: cursor{phaseMoved, place(end)}.encode(), Batch: j.batch(c, keys, place(end))}, nil
}

// updates is how many rows of the table were ever updated, as far as the server has heard; -1 where it does not count.
func (j *Job) updates() string {
	return "CASE WHEN current_setting('track_counts')::bool THEN pg_stat_get_tuples_updated(" + j.regclass() + ") ELSE -1 END"
}

// sample is how many blocks to count in: those of about 32 due rows, and of a thirty-second of the page at least.
func (j *Job) sample(n int) int64 {
	return min(max(1, j.blocks.Load()*max(1, int64(min(n, 32)))/int64(n), j.blocks.Load()/32), maxWindow)
}

// A survey is what a look at a few blocks says.
type survey struct {
	size int64  // of the table, in blocks
	heap string // its file
	due  int64  // rows due in the blocks looked at
}

func (j *Job) survey(ctx context.Context, from address, blocks int64) (survey, error) {
	q := newQuery(j.d).add("SELECT pg_relation_size(", j.regclass(), ") / current_setting('block_size')::bigint, ", j.heapFile(),
		", (SELECT count(*) FROM ", j.d.rows(j.t))
	j.where(q, phaseMain, place(from), place(address{from.block + blocks, 0}))
	q.add(")")
	var s survey
	err := j.db.SQL.QueryRowContext(ctx, q.String(), q.args...).Scan(&s.size, &s.heap, &s.due)
	return s, err
}

// placePage is a page of the rows between two addresses; of none when rows is 0.
func placePage(from, to address, rows int, heap string) Page {
	p := Page{Cursor: cursor{phaseMain, append(place(to), value{textValue, heap})}.encode()}
	if rows > 0 {
		p.Batch = &Batch{Phase: phaseMain, Rows: rows, Bounds: span{lo: place(from), hi: place(to), heap: heap}.encode()}
	}
	return p
}

// pageFew hands out the next n rows of few blocks that hold more, or what there is in them.
func (j *Job) pageFew(ctx context.Context, from address, n int, heap string) (Page, error) {
	to := address{from.block + fewBlocks, 0}
	q := newQuery(j.d).add("SELECT ctid::text AS curfew_place FROM ", j.d.rows(j.t))
	j.where(q, phaseMain, place(from), place(to))
	q.add(" ORDER BY ctid LIMIT ", itoa(n))
	found, err := j.tuples(ctx, j.db.SQL, q, []Column{{Name: "ctid"}})
	if err != nil {
		return Page{}, err
	}
	if len(found) == n {
		last, err := parseAddress(found[n-1][0].s)
		if err != nil {
			return Page{}, err
		}
		to = address{last.block, last.line + 1}
	}
	return placePage(from, to, len(found), heap), nil
}

// lines is more than a block of the heap has room for, at any size.
const lines = 2048

// splitPlace cuts the addresses of a batch in four to eight, as far as they can be cut.
func splitPlace(s span) ([]span, error) {
	lo, err := parseAddress(s.lo[0].s)
	if err != nil {
		return nil, err
	}
	hi, err := parseAddress(s.hi[0].s)
	if err != nil {
		return nil, err
	}
	first, last := lo.block*lines+min(lo.line, lines-1), hi.block*lines+min(hi.line, lines-1)
	step := max(1, (last-first+3)/4)
	if step > lines {
		step = step / lines * lines // whole blocks, while there are some
	}
	var out []span
	for from := first; from < last; from += step {
		to := min(from+step, last)
		out = append(out, span{lo: place(address{from / lines, from % lines}), hi: place(address{to / lines, to % lines}), heap: s.heap, from: s.from})
	}
	return out, nil
}

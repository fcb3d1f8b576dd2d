package target

import (
	"context"
	"fmt"
	"time"
)

// The phases of a run, in order. Each is paged to its end before the next begins.
const (
	phaseUnreadable = "unreadable" // rows whose trigger is no instant: counted, never changed
	phaseMain       = "main"
	phaseMoved      = "moved" // by place: due rows that others changed since the run began, and that moved behind the cursor so
	phaseNulls      = "nulls" // NULL triggers that the policy calls due
	phaseRetry      = "retry" // rows that an earlier batch handed on: found locked, or in a batch that took too long
)

// Unreadable is the phase of the batch that only counts.
const Unreadable = phaseUnreadable

// A cursor is how far the scan came: everything up to and including at in this phase has been handed out.
type cursor struct {
	phase string
	at    tuple
}

func (c cursor) encode() []byte {
	return append([]byte{byte(len(c.phase))}, append([]byte(c.phase), encodeTuples([]tuple{c.at})...)...)
}

func decodeCursor(b []byte) (cursor, error) {
	if len(b) == 0 {
		return cursor{phase: phaseUnreadable}, nil
	}
	n := int(b[0])
	if len(b) < 1+n {
		return cursor{}, errBadTuples
	}
	ts, err := decodeTuples(b[1+n:])
	if err != nil || len(ts) != 1 {
		return cursor{}, errBadTuples
	}
	return cursor{phase: string(b[1 : 1+n]), at: ts[0]}, nil
}

// A Page is one step of the scan. Bytes are opaque and hold key values: seal them before they leave the process.
type Page struct {
	Cursor []byte // where the next page begins
	Batch  *Batch // nil when the step found no due row
	Done   bool   // the scan is over
}

// A Batch is a bounded set of rows to be worked on together, under one key. It is what Page found due: the work is done on
// what is still due when the batch executes.
type Batch struct {
	Phase  string
	Rows   int    // planned
	Bounds []byte // the range, exclusive and inclusive ends; empty when the batch is its keys alone
	Keys   []byte // the keys found; empty when the batch is a range that finds its rows itself, and Rows an estimate
}

// window is how many rows of the table one page by key looks at: enough to make the statement worth its price, few enough
// that it ends in time where only few rows are due.
var window = 20000 // tests make it small

// emptySteps bounds how long Page looks for a due row before it lets the cursor be stored.
const emptySteps = 250 * time.Millisecond

// Page hands out the next rows, about n of them, after the cursor (empty: from the start). It may find none and not be done:
// then it only moves the cursor.
func (j *Job) Page(ctx context.Context, at []byte, n int) (Page, error) {
	for start := time.Now(); ; {
		p, err := j.pageStep(ctx, at, n)
		if err != nil && (classify(err) == classUndefined || isSQLError(err)) {
			return p, j.undefined(ctx, err)
		}
		if err == nil {
			p.Batch, err = j.planned(ctx, p.Batch)
		}
		if err == nil {
			p.Batch, err = j.untold(ctx, p.Batch)
		}
		if err != nil || p.Done || p.Batch != nil || time.Since(start) > emptySteps {
			return p, redact(err)
		}
		at = p.Cursor
	}
}

func (j *Job) pageStep(ctx context.Context, at []byte, n int) (Page, error) {
	c, err := decodeCursor(at)
	if err != nil {
		return Page{}, err
	}
	switch c.phase {
	case phaseUnreadable:
		return j.pageUnreadable(ctx)
	case phaseMain:
		switch j.strategy {
		case ByTrigger:
			if j.spans() {
				return j.pageSpan(ctx, c, n)
			}
			return j.pageRows(ctx, c, n, nil)
		case ByPlace:
			return j.pagePlace(ctx, c, n)
		}
		return j.pageWindow(ctx, c, n)
	case phaseMoved:
		return j.pageMoved(ctx, c, n)
	case phaseNulls:
		return j.pageWindow(ctx, c, n)
	}
	return Page{}, fmt.Errorf("the stored cursor is in a phase this program does not know")
}

// next is the page that ends a phase.
func (j *Job) next(c cursor) Page {
	switch {
	case c.phase == phaseMain && j.strategy == ByPlace && j.began.Horizon != "":
		return Page{Cursor: cursor{phase: phaseMoved}.encode()}
	case c.phase != phaseNulls && j.trig.nulls == "due":
		return Page{Cursor: cursor{phase: phaseNulls}.encode()}
	}
	return Page{Cursor: c.encode(), Done: true}
}

func (j *Job) pageUnreadable(ctx context.Context) (Page, error) {
	p := Page{Cursor: cursor{phase: phaseMain}.encode()}
	n, err := j.countUnreadable(ctx)
	if err != nil || n == 0 {
		return p, err
	}
	p.Batch = &Batch{Phase: phaseUnreadable, Rows: n}
	return p, nil
}

// countUnreadable counts rows in scope whose trigger holds a value that is no instant. Where such values sort before the
// cutoff only those are counted, so that an index serves; text is looked through whole.
func (j *Job) countUnreadable(ctx context.Context) (int, error) {
	q := newQuery(j.d).add("SELECT count(*) FROM ", j.d.rows(j.t), " WHERE ")
	before := q.sb.Len()
	j.d.unreadable(q, j.trig.sql(j.d), j.trig)
	if q.String()[before:] == "FALSE" {
		return 0, nil
	}
	bound := j.bound
	if j.atOnce != nil {
		bound = *j.atOnce
	}
	if x := j.trig.sql(j.d); j.db.Engine == MySQL && j.trig.column != nil {
		switch j.trig.domain {
		case instantDomain:
			q.add(" AND ", x, " < ").arg(bound.instant.UTC().Format("2006-01-02 15:04:05.000000"))
		case wallDomain:
			q.add(" AND ", x, " < CAST(").arg(bound.wall.End.String()).add(" AS DATETIME(6))")
		case dateDomain:
			q.add(" AND ", x, " < CAST(").arg(bound.date.String()).add(" AS DATE)")
		}
	}
	j.inScope(q)
	var n int
	err := j.db.SQL.QueryRowContext(ctx, q.String(), q.args...).Scan(&n)
	return n, err
}

// where writes the condition of a page: due, in scope, after lo, up to hi.
func (j *Job) where(q *query, phase string, lo, hi tuple) {
	q.add(" WHERE ")
	switch {
	case phase == phaseNulls:
		q.add(j.trig.sql(j.d), " IS NULL")
	case phase == phaseRetry:
		j.isDue(q)
	default:
		j.dueNow(q)
	}
	if phase == phaseMoved {
		younger(q, j.began.Horizon)
	}
	j.within(q, phase, lo, hi)
	j.inScope(q)
}

// named leaves out rows whose key is NULL, which only SQLite has: nothing names them.
func (j *Job) named(q *query) {
	for _, c := range j.key {
		if !c.NotNull {
			q.add(" AND ", j.d.ident(c.Name), " IS NOT NULL")
		}
	}
}

func (j *Job) within(q *query, phase string, lo, hi tuple) {
	j.named(q)
	if (phase == phaseMain || phase == phaseMoved) && j.strategy == ByPlace {
		placed(q, lo, hi)
		return
	}
	cols := j.orderedCols(phase)
	if len(lo) > 0 {
		q.add(" AND ")
		j.d.beyond(q, cols, ">", lo)
	}
	if len(hi) > 0 {
		q.add(" AND ")
		j.d.beyond(q, cols, "<=", hi)
	}
}

// pageRows selects the next n due rows in order, up to hi when given.
func (j *Job) pageRows(ctx context.Context, c cursor, n int, hi tuple) (Page, error) {
	keys, last, err := j.nextRows(ctx, c, n, hi)
	if err != nil {
		return Page{}, err
	}
	if len(keys) == n {
		return Page{Batch: j.batch(c, keys, last), Cursor: cursor{c.phase, last}.encode()}, nil
	}
	if len(hi) > 0 {
		// The window is used up; the phase is not.
		return Page{Batch: j.batch(c, keys, hi), Cursor: cursor{c.phase, hi}.encode()}, nil
	}
	batch := j.batch(c, keys, last)
	if len(keys) > 0 {
		c.at = last
	}
	p := j.next(c)
	p.Batch = batch
	return p, nil
}

// nextRows are the keys of the next n due rows in order, and where the last of them stands in it.
func (j *Job) nextRows(ctx context.Context, c cursor, n int, hi tuple) (keys []tuple, last tuple, err error) {
	cols := j.orderedCols(c.phase)
	leading := len(cols) - len(j.key)
	q := newQuery(j.d).add("SELECT ")
	if leading > 0 && j.db.Engine == Postgres {
		q.add(j.d.ident(cols[0].Name), " AS curfew_0")
		for i, k := range j.key {
			q.add(", ", j.d.read(k), " AS curfew_", itoa(i+1))
		}
	} else {
		q.add(j.selectList(cols))
	}
	q.add(" FROM ", j.d.rows(j.t))
	j.where(q, c.phase, c.at, hi)
	q.add(j.orderBy(cols), " LIMIT ", itoa(n))
	if leading > 0 && j.db.Engine == Postgres {
		return j.pagePacked(ctx, q, cols)
	}
	found, err := j.tuples(ctx, j.db.SQL, q, cols)
	if err != nil || len(found) == 0 {
		return nil, nil, err
	}
	keys = found
	if leading > 0 {
		keys = make([]tuple, len(found))
		for i, f := range found {
			keys[i] = f[leading:]
		}
	}
	return keys, found[len(found)-1], nil
}

// batch is the rows found after the cursor, in a range that ends at end.
func (j *Job) batch(c cursor, keys []tuple, end tuple) *Batch {
	if len(keys) == 0 {
		return nil
	}
	return &Batch{Phase: c.phase, Rows: len(keys), Keys: encodeTuples(keys), Bounds: encodeTuples([]tuple{c.at, end})}
}

// pageWindow finds where a window of the key ends, then selects the due rows inside: a statement never looks at more rows
// than that, however few are due.
func (j *Job) pageWindow(ctx context.Context, c cursor, n int) (Page, error) {
	q := newQuery(j.d).add("SELECT ", j.readKey(), " FROM ", j.d.rows(j.t))
	q.add(" WHERE 1 = 1")
	j.named(q) // a window that ended at a row without a name would never be left
	if len(c.at) > 0 {
		q.add(" AND ")
		j.d.beyond(q, j.key, ">", c.at)
	}
	q.add(j.orderBy(j.key), " LIMIT 1 OFFSET ", itoa(max(window, 2*n)-1))
	end, err := j.tuples(ctx, j.db.SQL, q, j.key)
	if err != nil {
		return Page{}, err
	}
	if len(end) == 0 {
		return j.pageRows(ctx, c, n, nil)
	}
	return j.pageRows(ctx, c, n, end[0])
}

// PageSQL is the text of a first page, for showing the plan the database would use.
func (j *Job) PageSQL(n int) (string, []any) {
	cols := j.orderedCols(phaseMain)
	q := newQuery(j.d).add("SELECT ", j.selectList(cols), " FROM ", j.d.rows(j.t))
	j.where(q, phaseMain, nil, nil)
	if j.strategy != ByPlace {
		q.add(j.orderBy(cols))
	}
	q.add(" LIMIT ", itoa(n))
	return q.String(), q.args
}

package target

import (
	"context"
	"database/sql"
	"errors"
	"strings"
)

// On PostgreSQL a page by the trigger is a span of it: an index-only look finds where n entries end, and the keys inside are
// read without being sorted, together with the oldest transaction that was under way then: a row version older than that, which
// is still due in the span, was among the keys. So a DELETE that takes only such versions, and takes as many as there are keys,
// took exactly these, and need not say which: RETURNING costs more than the delete itself.

// A span is what a batch of this kind, or of a range of addresses, has for bounds.
type span struct {
	lo, hi  tuple  // hi is empty when the span is open
	horizon string // the oldest transaction under way when the keys were read
	heap    string // ByPlace: the file that the addresses are of; a rewrite of the table (VACUUM FULL, CLUSTER) makes another
	from    string // the seq of the batch that handed this range on: a range looked through again is another batch
}

func (s span) encode() []byte {
	return encodeTuples([]tuple{s.lo, s.hi, {{textValue, s.horizon}, {textValue, s.heap}, {textValue, s.from}}})
}

func decodeSpan(b []byte) (span, error) {
	ts, err := decodeTuples(b)
	if err != nil || len(ts) != 0 && len(ts) != 2 && len(ts) != 3 || len(ts) == 3 && len(ts[2]) != 3 {
		return span{}, errBadTuples
	}
	var s span
	if len(ts) > 0 {
		s.lo, s.hi = ts[0], ts[1]
	}
	if len(ts) == 3 {
		s.horizon, s.heap, s.from = ts[2][0].s, ts[2][1].s, ts[2][2].s
	}
	return s, nil
}

// spans reports whether the job pages by spans. Not where rows stay and their keys are asked for anyway; not over partitions: attaching one brings old versions that were not there when
// the keys were read.
func (j *Job) spans() bool {
	return j.db.Engine == Postgres && j.strategy == ByTrigger && !j.t.Partitioned && !j.byRow()
}

// regclass is the table as an expression.
func (j *Job) regclass() string {
	return "'" + strings.ReplaceAll(quoted(j.d, j.t.Schema, j.t.Name), "'", "''") + "'::regclass"
}

// heapFile is the file of the table's rows, as an expression.
func (j *Job) heapFile() string { return "pg_relation_filenode(" + j.regclass() + ")::text" }

// older writes "this version of the row is older than the horizon". The comparison by age survives the wrap-around of
// transaction ids: a version that is too old to tell is taken for a young one, and then the careful way decides.
func older(q *query, horizon string) {
	if horizon != "" {
		q.add(" AND age(xmin) > (SELECT age(").arg(horizon).add("::text::xid8::xid))")
	}
}

// younger writes "this version of the row may be younger than the horizon".
func younger(q *query, horizon string) {
	q.add(" AND NOT age(xmin) > (SELECT age(").arg(horizon).add("::text::xid8::xid))")
}

// pageSpan hands out the rows of the next n entries of the trigger's index. Where many rows share one instant the span would
// have no bound: then the page is cut by the key as well.
func (j *Job) pageSpan(ctx context.Context, c cursor, n int) (Page, error) {
	hi, err := j.spanEnd(ctx, c, n)
	if err != nil {
		return Page{}, err
	}
	keys, horizon, _, err := j.spanKeys(ctx, j.db.SQL, c.phase, c.at, hi, n+1)
	if err != nil {
		return Page{}, err
	}
	if len(keys) > n {
		return j.pageRows(ctx, c, n, nil)
	}
	p := Page{Cursor: cursor{c.phase, hi}.encode()}
	if len(hi) == 0 {
		p = j.next(c)
	}
	if len(keys) > 0 {
		p.Batch = &Batch{Phase: c.phase, Rows: len(keys), Keys: encodeTuples(keys), Bounds: span{lo: c.at, hi: hi, horizon: horizon}.encode()}
	}
	return p, nil
}

// spanEnd is the trigger of the n-th entry from here; empty when there are fewer.
func (j *Job) spanEnd(ctx context.Context, c cursor, n int) (tuple, error) {
	x := j.d.ident(j.trig.column.Name)
	// The cast is outside: inside it would be made of every entry that OFFSET passes over.
	q := newQuery(j.d).add("SELECT curfew_end::text FROM (SELECT ", x, " AS curfew_end FROM ", j.d.rows(j.t), " WHERE ")
	j.dueNow(q)
	j.within(q, c.phase, c.at, nil)
	q.add(" ORDER BY ", x, " OFFSET ", itoa(n-1), " LIMIT 1) s")
	var end string
	err := j.db.SQL.QueryRowContext(ctx, q.String(), q.args...).Scan(&end)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	return tuple{{textValue, end}}, err
}

// spanKeys reads the keys inside, at most limit, the horizon of the view that they were read in, and the heap's file.
func (j *Job) spanKeys(ctx context.Context, c querier, phase string, lo, hi tuple, limit int) (keys []tuple, horizon, heap string, err error) {
	q := newQuery(j.d).add("SELECT ", j.readKey(), " FROM ", j.d.rows(j.t))
	j.where(q, phase, lo, hi)
	q.add(" LIMIT ", itoa(limit))
	text := "WITH p AS (\n" + q.String() + "\n) SELECT pg_snapshot_xmin(pg_current_snapshot())::text, " + j.heapFile()
	raw, dest := make([]sql.NullString, len(j.key)+2), make([]any, len(j.key)+2)
	dest[0], dest[1] = &raw[0], &raw[1]
	for i := range j.key {
		text += ", array_agg(curfew_" + itoa(i) + ")::text"
		dest[i+2] = &raw[i+2]
	}
	if err := c.QueryRowContext(ctx, text+" FROM p", q.args...).Scan(dest...); err != nil {
		return nil, "", "", err
	}
	keys, err = unpack(raw[2:])
	return keys, raw[0].String, raw[1].String, err
}

// errUnclear says that the quick way does not tell which rows went.
var errUnclear = errors.New("some rows went otherwise")

// deleteSpan deletes the rows of a span, and returns which went: all keys when as many went, else those that are there no
// more, when nobody else can have taken any of them.
func (x *execution) deleteSpan(ctx context.Context, w Work, s span, keys []tuple) ([]tuple, error) {
	j := x.j
	q := newQuery(j.d).add("DELETE FROM ", j.d.rows(j.t))
	j.where(q, w.Phase, s.lo, s.hi)
	j.unguarded(q)
	x.notHeld(q)
	older(q, s.horizon)
	r, err := x.c.ExecContext(ctx, q.String(), q.args...)
	if err != nil {
		return nil, err
	}
	n, err := r.RowsAffected()
	if err != nil {
		return nil, err
	}
	if n == int64(len(keys)) {
		return keys, nil
	}
	if n < int64(len(keys)/2) {
		// Most are too young to tell: a transaction that is open for long holds the horizon back.
		return nil, errUnclear
	}
	still, err := x.only(ctx, keys, nil)
	if err != nil {
		return nil, err
	}
	if int64(len(keys)-len(still)) != n {
		return nil, errUnclear
	}
	return without(keys, still), nil
}

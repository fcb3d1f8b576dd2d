package target

import (
	"context"
	"slices"
	"time"
)

// sweepMost bounds how many rows one sweep looks for.
var sweepMost = 20_000 // tests make it small

// SweepPassages drops what is recorded of rows that are not there any more and of which nothing was recorded since the instant:
// others removed them, and nobody told us. Only their hashes are known, so that all keys of the table are read once for it. What is
// recorded of a row that is there stays, however old: without it the row would pass its stages again. beat is called now and then.
func (j *Job) SweepPassages(ctx context.Context, before time.Time, beat func()) (dropped int, err error) {
	dropped, err = j.sweep(ctx, before, beat)
	return dropped, redact(err)
}

func (j *Job) sweep(ctx context.Context, before time.Time, beat func()) (int, error) {
	old := func(q *query) {
		q.add("changed_at < ").arg(before.UTC().Format("2006-01-02 15:04:05.000000"))
		if j.db.Engine == Postgres {
			q.add("::text::timestamptz")
		}
	}
	gone, err := j.oldRows(ctx, old)
	if err != nil || len(gone) == 0 {
		return 0, err
	}
	for at := tuple(nil); ; {
		keys, err := j.keysAfter(ctx, at, window)
		if err != nil {
			return 0, err
		}
		beat()
		for _, h := range j.rowHashes(keys) {
			delete(gone, h)
		}
		if len(keys) < window || len(gone) == 0 {
			break
		}
		at = keys[len(keys)-1]
	}
	rows := make([][16]byte, 0, len(gone))
	for h := range gone {
		rows = append(rows, h)
	}
	slices.SortFunc(rows, func(a, b [16]byte) int { return slices.Compare(a[:], b[:]) })
	// A row that came meanwhile, with the key of one that went, is another one: nothing that is older is about it.
	return len(rows), j.forget(ctx, j.db.SQL, rows, func(q *query) { q.add(" AND "); old(q) })
}

// oldRows are the rows of which nothing was recorded lately.
func (j *Job) oldRows(ctx context.Context, old func(*query)) (map[[16]byte]bool, error) {
	q := newQuery(j.d).add("SELECT row_hash FROM ", j.d.own("passage"), " WHERE policy = ").arg(j.p.Name).add(" GROUP BY row_hash HAVING COUNT(CASE WHEN ")
	old(q)
	q.add(" THEN 1 END) = COUNT(*) ORDER BY row_hash LIMIT ", itoa(sweepMost))
	rows, err := j.db.SQL.QueryContext(ctx, q.String(), q.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := map[[16]byte]bool{}
	for rows.Next() {
		var h []byte
		if err := rows.Scan(&h); err != nil {
			return nil, err
		}
		if len(h) == 16 {
			out[[16]byte(h)] = true
		}
	}
	return out, rows.Err()
}

// keysAfter are the next n keys of the table, whatever the rows are like.
func (j *Job) keysAfter(ctx context.Context, at tuple, n int) ([]tuple, error) {
	q := newQuery(j.d).add("SELECT ", j.readKey(), " FROM ", j.d.rows(j.t), " WHERE 1 = 1")
	j.named(q)
	if len(at) > 0 {
		q.add(" AND ")
		j.d.beyond(q, j.key, ">", at)
	}
	q.add(j.orderBy(j.key), " LIMIT ", itoa(n))
	return j.tuples(ctx, j.db.SQL, q, j.key)
}

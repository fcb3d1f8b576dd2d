package target

import (
	"context"
	"database/sql"
)

// Count is what is due now, for plans: how many rows, and what would become of those that would not simply go. Held, guarded
// and blocked rows are among the due ones; a row is counted for the first that keeps it.
type Count struct {
	Due        int64
	Nulls      int64 // of these, rows without a trigger
	Unreadable int64
	Held       int64
	Guarded    int64
	Blocked    int64 // a foreign key would refuse: what is there now, without other batches' effect
	Cascaded   int64 // rows of other tables that would go along
	// Along is the same by table, of a policy with dependents, in the order in which they would go. Partial says that only some of
	// the due rows were looked at for it, so that there are more.
	Along   []Along
	Partial bool
	Oldest  string
}

// Count looks at the table without changing anything.
func (j *Job) Count(ctx context.Context) (Count, error) {
	c, err := j.count(ctx)
	return c, redact(err)
}

func (j *Job) count(ctx context.Context) (c Count, err error) {
	if j.byRow() {
		return j.countStage(ctx)
	}
	c, err = j.CountDue(ctx)
	if err != nil || c.Due == 0 {
		return c, err
	}
	x := &execution{j: j, c: j.db.SQL}
	if err = x.obeyHolds(ctx); err != nil && classify(err) != classUndefined {
		return c, err
	}
	open := func(q *query) {
		j.isDue(q)
		j.inScope(q)
	}
	left := c.Due
	// narrow adds a condition and answers how many rows it keeps.
	narrow := func(cond func(*query)) (int64, error) {
		before := open
		open = func(q *query) { before(q); cond(q) }
		n, err := x.countWhere(ctx, open)
		kept := left - n
		left = n
		return max(kept, 0), err // the table lives on while we count
	}
	if x.held() {
		if c.Held, err = narrow(x.free); err != nil {
			return c, err
		}
	}
	if j.guarded() {
		if c.Guarded, err = narrow(j.unguarded); err != nil {
			return c, err
		}
	}
	for _, fk := range j.restricting {
		if !fk.ChildSelect || fk.Child == j.t.Label {
			continue
		}
		n, err := narrow(func(q *query) { q.add(" AND NOT "); j.referencedBy(q, fk) })
		if err != nil {
			return c, err
		}
		c.Blocked += n
	}
	switch {
	case j.family != nil:
		err = x.preview(ctx, &c, open)
	case len(j.cascading) > 0:
		c.Cascaded, err = x.countAlong(ctx, &roots{j: j, cond: open})
	}
	return c, err
}

func (x *execution) countWhere(ctx context.Context, cond func(*query)) (n int64, err error) {
	q := newQuery(x.j.d).add("SELECT count(*) FROM ", x.j.d.rows(x.j.t), " WHERE ")
	cond(q)
	err = x.c.QueryRowContext(ctx, q.String(), q.args...).Scan(&n)
	return n, err
}

// CountDue counts the due rows and nothing else: one look where an index serves.
func (j *Job) CountDue(ctx context.Context) (Count, error) {
	var c Count
	n, err := j.countUnreadable(ctx)
	if err != nil {
		return c, err
	}
	c.Unreadable = int64(n)
	oldest := "MIN(" + j.trig.sql(j.d) + ")"
	switch j.db.Engine {
	case Postgres:
		oldest += "::text"
	case MySQL:
		oldest = "CAST(" + oldest + " AS CHAR)"
	}
	q := newQuery(j.d).add("SELECT count(*), ", oldest, " FROM ", j.d.rows(j.t))
	j.where(q, phaseMain, nil, nil)
	var first sql.NullString
	if err := j.db.SQL.QueryRowContext(ctx, q.String(), q.args...).Scan(&c.Due, &first); err != nil {
		return c, err
	}
	c.Oldest = first.String
	if j.trig.nulls == "due" {
		q := newQuery(j.d).add("SELECT count(*) FROM ", j.d.rows(j.t))
		j.where(q, phaseNulls, nil, nil)
		if err := j.db.SQL.QueryRowContext(ctx, q.String(), q.args...).Scan(&c.Nulls); err != nil {
			return c, err
		}
		c.Due += c.Nulls
	}
	return c, nil
}

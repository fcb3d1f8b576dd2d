package target

import (
	"context"
	"errors"
	"strconv"
)

// This file counts what a run is about to do, before it does anything. The rows that a run would change are those that are due
// and in scope, and that no guard, no hold and no row that references them keeps: a guarded row stays due for ever, and must not
// look like a run that is too large.

// CountChanging counts the rows that the run would change. With a limit above 0 it stops there.
func (j *Job) CountChanging(ctx context.Context, limit int64) (int64, error) {
	n, err := j.countChanging(ctx, limit)
	return n, redact(err)
}

func (j *Job) countChanging(ctx context.Context, limit int64) (n int64, err error) {
	if j.byRow() {
		return j.countByRow(ctx, limit)
	}
	x, err := j.counting(ctx)
	if err != nil {
		return 0, err
	}
	phases := []string{phaseMain}
	if j.trig.nulls == "due" {
		phases = append(phases, phaseNulls) // one after the other, so that an index serves both
	}
	for _, phase := range phases {
		left := int64(0)
		if limit > 0 {
			if left = limit - n; left <= 0 {
				break
			}
		}
		found, err := j.countSome(ctx, left, func(q *query) { x.changes(q, phase) })
		if err != nil {
			return n, err
		}
		n += found
	}
	return n, nil
}

// countByRow is countChanging where what is recorded of a row decides.
func (j *Job) countByRow(ctx context.Context, limit int64) (n int64, err error) {
	err = j.eachPage(ctx, func(b *Batch, _ []tuple) error {
		res, err := j.rehearse(ctx, Work{Phase: b.Phase, Rows: b.Rows, Bounds: b.Bounds, Keys: b.Keys})
		if err != nil {
			return err
		}
		if n += res.Outcomes["due"]; limit > 0 && n >= limit {
			return errFound
		}
		return nil
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return n, err
}

// CountScope counts the rows that the policy is about, due or not. With a limit above 0 it stops there.
func (j *Job) CountScope(ctx context.Context, limit int64) (int64, error) {
	n, err := j.countSome(ctx, limit, func(q *query) {
		q.add("1 = 1")
		j.inScope(q)
	})
	return n, redact(err)
}

// CountBeyond counts the rows that this job would change and another one over the same table would not.
func (j *Job) CountBeyond(ctx context.Context, other *Job) (int64, error) {
	n, err := j.countBeyond(ctx, other)
	return n, redact(err)
}

func (j *Job) countBeyond(ctx context.Context, other *Job) (int64, error) {
	x, err := j.counting(ctx)
	if err != nil {
		return 0, err
	}
	y, err := other.counting(ctx)
	if err != nil {
		return 0, err
	}
	return j.countSome(ctx, 0, func(q *query) {
		x.changes(q, phaseRetry)
		q.add(" AND (")
		y.changes(q, phaseRetry)
		q.add(") IS NOT TRUE")
	})
}

// counting is an execution that only looks.
func (j *Job) counting(ctx context.Context) (*execution, error) {
	x := &execution{j: j, c: j.db.SQL}
	if err := x.obeyHolds(ctx); err != nil && classify(err) != classUndefined { // without curfew's tables there are no holds
		return nil, err
	}
	return x, nil
}

// changes writes the conditions of the rows that a run would change: those of a phase, or with phaseRetry of all.
func (x *execution) changes(q *query, phase string) {
	j := x.j
	switch phase {
	case phaseNulls:
		q.add(j.trig.sql(j.d), " IS NULL")
	case phaseRetry:
		j.isDue(q)
	default:
		j.dueNow(q)
	}
	j.named(q)
	j.inScope(q)
	j.unguarded(q)
	x.free(q)
	for _, fk := range j.restricting {
		if fk.ChildSelect && fk.Child != j.t.Label {
			q.add(" AND NOT ")
			j.referencedBy(q, fk)
		}
	}
}

// countSome counts the rows of the table that a condition holds for, up to a limit when there is one.
func (j *Job) countSome(ctx context.Context, limit int64, cond func(*query)) (n int64, err error) {
	q := newQuery(j.d).add("SELECT count(*) FROM (SELECT 1 AS curfew_one FROM ", j.d.rows(j.t), " WHERE ")
	cond(q)
	if limit > 0 {
		q.add(" LIMIT ", strconv.FormatInt(limit, 10))
	}
	q.add(") curfew_counted")
	err = j.db.SQL.QueryRowContext(ctx, q.String(), q.args...).Scan(&n)
	return n, err
}

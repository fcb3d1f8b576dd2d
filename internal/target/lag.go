package target

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// OldestDue is when the oldest row that a run at this instant would remove became due; nil when there is none, or when its
// trigger is out of time.Time's reach. Rows that are guarded, held or referenced by others are left out. known is false where no
// index would serve the question: it is not worth a scan.
func (j *Job) OldestDue(ctx context.Context) (due *time.Time, known bool, err error) {
	if !j.trig.ordered() {
		return nil, false, nil
	}
	if j.byRow() {
		due, known, err = j.oldestOfStage(ctx)
		return due, known, redact(err)
	}
	x := &execution{j: j, c: j.db.SQL}
	if err = x.obeyHolds(ctx); err != nil && classify(err) != classUndefined {
		return nil, false, redact(err)
	}
	if j.atOnce == nil {
		at, err := x.oldest(ctx, func(*query) {})
		return j.lagOf(at, j.p.DueAt), err == nil, redact(err)
	}
	// A data subject who chose that nothing is kept made the row due at its trigger; the others are due by the policy's period.
	at, err := x.oldest(ctx, func(q *query) { q.add(" AND "); j.d.due(q, j.trig.sql(j.d), j.trig, j.bound) })
	if err != nil {
		return nil, false, redact(err)
	}
	never, err := x.oldest(ctx, func(q *query) { q.add(" AND "); j.chosen(q, j.p.Privacy.Never) })
	if err != nil {
		return nil, false, redact(err)
	}
	due = j.lagOf(at, j.p.DueAt)
	if n := j.lagOf(never, func(at time.Time) time.Time { return at }); due == nil || n != nil && n.Before(*due) {
		due = n
	}
	return due, true, nil
}

func (j *Job) lagOf(at *time.Time, dueAt func(time.Time) time.Time) *time.Time {
	if at == nil {
		return nil
	}
	due := dueAt(*at)
	return &due
}

// oldest is the smallest trigger of the rows that are due and kept by nothing, and meet the condition.
func (x *execution) oldest(ctx context.Context, cond func(*query)) (*time.Time, error) {
	j := x.j
	q := newQuery(j.d).add("SELECT ", j.printed(), " AS curfew_oldest FROM ", j.d.rows(j.t))
	j.where(q, phaseMain, nil, nil)
	cond(q)
	j.unguarded(q)
	x.free(q)
	for _, fk := range j.restricting { // what the database will not let go is told by the runs
		if fk.ChildSelect && fk.Child != j.t.Label {
			q.add(" AND NOT ")
			j.referencedBy(q, fk)
		}
	}
	q.add(" ORDER BY ", j.d.ident(j.trig.column.Name), " LIMIT 1")
	var text sql.NullString
	switch err := j.db.SQL.QueryRowContext(ctx, q.String(), q.args...).Scan(&text); {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	}
	return j.trig.instantOf(text.String), nil
}

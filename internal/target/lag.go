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
	x := &execution{j: j, c: j.db.SQL}
	if err = x.obeyHolds(ctx); err != nil && classify(err) != classUndefined {
		return nil, false, redact(err)
	}
	q := newQuery(j.d).add("SELECT ", j.printed(), " AS curfew_oldest FROM ", j.d.rows(j.t))
	j.where(q, phaseMain, nil, nil)
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
		return nil, true, nil
	case err != nil:
		return nil, false, redact(err)
	}
	at := j.trig.instantOf(text.String)
	if at == nil {
		return nil, true, nil
	}
	t := j.p.DueAt(*at)
	return &t, true, nil
}

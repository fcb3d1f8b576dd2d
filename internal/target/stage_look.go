package target

import (
	"context"
	"errors"
	"time"

	"curfew.dev/curfew/policy"
)

// Which rows a stage acts on is more than a condition of a statement can say, so that they are counted, and looked for, page by
// page.

// countPage is how many rows are asked about at once.
const countPage = 2000

// countStage is Count for one stage.
func (j *Job) countStage(ctx context.Context) (c Count, err error) {
	n, err := j.countUnreadable(ctx)
	if err != nil {
		return c, err
	}
	c.Unreadable = int64(n)
	oldest := int64(neverDue)
	err = j.eachPage(ctx, func(b *Batch, keys []tuple) error {
		res, err := j.rehearse(ctx, Work{Phase: b.Phase, Rows: b.Rows, Bounds: b.Bounds, Keys: b.Keys})
		if err != nil {
			return err
		}
		due := res.Planned - res.Outcomes["gone"] - res.Outcomes["no_longer_due"]
		c.Due, c.Held, c.Guarded = c.Due+due, c.Held+res.Outcomes["held"], c.Guarded+res.Outcomes["guarded"]
		c.Blocked, c.Cascaded = c.Blocked+res.Outcomes["blocked"], c.Cascaded+res.Cascaded
		if b.Phase == phaseNulls {
			c.Nulls += due
			return nil
		}
		rows, err := (&execution{j: j, c: j.db.SQL}).dueRows(ctx, keys)
		for _, r := range rows {
			if at := j.trig.instantOf(r.printed); at != nil && r.due < oldest {
				oldest, c.Oldest = r.due, at.UTC().Format(time.RFC3339Nano)
			}
		}
		return err
	})
	return c, err
}

// eachPage hands out what a run would plan.
func (j *Job) eachPage(ctx context.Context, look func(b *Batch, keys []tuple) error) error {
	for at := (cursor{phase: phaseMain}).encode(); ; {
		p, err := j.Page(ctx, at, countPage)
		if err != nil {
			return err
		}
		if p.Batch != nil {
			keys, err := decodeTuples(p.Batch.Keys)
			if err == nil {
				err = look(p.Batch, keys)
			}
			if err != nil {
				return err
			}
		}
		if at = p.Cursor; p.Done {
			return nil
		}
	}
}

// lagLook bounds how long the oldest row of a stage is looked for among those that have passed it.
const lagLook = 2 * time.Second

var (
	errFound   = errors.New("found")
	errTooLong = errors.New("looked for long enough")
)

// oldestOfStage is OldestDue for one stage: since when the row that has waited longest could have been acted on.
func (j *Job) oldestOfStage(ctx context.Context) (due *time.Time, known bool, err error) {
	x := &execution{j: j, c: j.db.SQL}
	if err = x.obeyHolds(ctx); err != nil && classify(err) != classUndefined {
		return nil, false, err
	}
	began := time.Now()
	err = j.eachPage(ctx, func(b *Batch, keys []tuple) error {
		if b.Phase == phaseNulls { // out of time.Time's reach
			return errFound
		}
		free, err := x.only(ctx, keys, func(q *query) {
			j.unguarded(q)
			x.free(q)
			for _, fk := range j.restricting {
				if fk.ChildSelect && fk.Child != j.t.Label {
					q.add(" AND NOT ")
					j.referencedBy(q, fk)
				}
			}
		})
		if err != nil {
			return err
		}
		rulings, err := x.rulings(ctx, free)
		if err != nil {
			return err
		}
		for _, r := range rulings {
			at, ok := j.p.StageOf(r.due)
			if r.Turn != policy.TurnNow || !ok {
				continue
			}
			if at.Before(r.From) {
				at = r.From
			}
			if due == nil || at.Before(*due) {
				due = &at
			}
		}
		switch {
		case due != nil: // pages are in the order of the trigger
			return errFound
		case time.Since(began) > lagLook:
			return errTooLong
		}
		return nil
	})
	if errors.Is(err, errTooLong) {
		return nil, false, nil
	}
	if err != nil && !errors.Is(err, errFound) {
		return nil, false, err
	}
	return due, true, nil
}

// explainStages reads what is recorded of a row, and the due instant that it is compared with.
func (x *execution) explainStages(ctx context.Context, one []tuple, a *Answers) error {
	j := x.j
	if !j.byRow() || a.Null && j.p.Trigger.Null != policy.NullDue {
		return nil
	}
	rows, err := x.dueRows(ctx, one)
	if err != nil || len(rows) == 0 {
		return a.failing(AskTrigger, err)
	}
	if !a.Readable && !a.Null {
		return nil
	}
	hashes := j.rowHashes([]tuple{rows[0].key})
	have, err := j.passages(ctx, x.c, hashes)
	if err != nil && classify(err) != classUndefined {
		return err
	}
	a.DueUS, a.Passages = &rows[0].due, have[hashes[0]]
	return nil
}

package target

import (
	"context"
	"errors"
	"slices"
)

// removeAtOnce is how many rows of a dependent table one statement deletes: a row with very many of them must not need a
// statement longer than the server allows.
const removeAtOnce = 5000

var refusedMany = errRefused{"failed", "more rows hang on it than can go in one transaction; make a policy for the largest of their tables"}

// tearDownCounted deletes the rows inside a savepoint, with all that hangs on them, and counts. One of them that went along with
// another row of the batch before is counted once, as deleted.
func (x *execution) tearDownCounted(ctx context.Context, keys []tuple, t *tally) error {
	var rest, went []tuple
	for _, k := range keys {
		if t.followed[k.id()] {
			went = append(went, k)
		} else {
			rest = append(rest, k)
		}
	}
	var d *doomed
	if len(rest) > 0 {
		err := x.savepoint(ctx, func() (err error) {
			d, err = x.tearDown(ctx, rest)
			return err
		})
		if err != nil {
			return err
		}
		t.cascaded += int64(d.n)
		for _, k := range d.extra {
			t.followed[k.id()] = true
		}
	}
	for _, k := range went {
		delete(t.followed, k.id())
	}
	t.cascaded -= int64(len(went))
	t.put("deleted", keys...)
	return nil
}

// tearDown deletes rows of the governed table with all that hangs on them, inside the caller's savepoint: all of it, or an error
// and nothing. It returns what went along.
func (x *execution) tearDown(ctx context.Context, rows []tuple) (*doomed, error) {
	j := x.j
	d, err := x.gather(ctx, rows, true, maxHanging)
	if errors.Is(err, errMany) {
		return nil, refusedMany
	}
	if err != nil {
		return nil, err
	}
	hook("gathered")
	if j.db.Engine == SQLite && j.family.defers {
		// A deferred constraint of SQLite speaks only at COMMIT, and says no more than that something is wrong. Nobody else
		// writes now: what is asked here is what it would find.
		kept, err := x.keepers(ctx, rows, d)
		if err != nil {
			return nil, err
		}
		if len(kept) > 0 {
			return nil, errOrphans{kept[0]}
		}
	}
	if err := x.constraints(ctx, "DEFERRED"); err != nil {
		return nil, err
	}
	for _, knot := range j.family.knots {
		if err := x.removeKnot(ctx, knot, rows, d); err != nil {
			return nil, err
		}
	}
	return d, x.constraints(ctx, "IMMEDIATE")
}

// constraints has PostgreSQL judge those that can be deferred later, so that rows which reference each other in a circle may go
// one after the other, or now: then it names the one that is violated. The end of a savepoint restores what was before.
func (x *execution) constraints(ctx context.Context, when string) error {
	if x.j.db.Engine != Postgres || !x.j.family.defers {
		return nil
	}
	_, err := x.c.ExecContext(ctx, "SET CONSTRAINTS ALL "+when)
	return err
}

// removeKnot deletes what is doomed in the tables of a knot.
func (x *execution) removeKnot(ctx context.Context, knot []int, rows []tuple, d *doomed) error {
	j := x.j
	left := map[int][]tuple{}
	for _, i := range knot {
		if left[i] = slices.Concat(rows, d.extra); i >= 0 {
			left[i] = d.keys[i]
		}
	}
	inner := j.family.within(knot)
	if len(inner) == 0 || j.db.Engine == Postgres && !slices.ContainsFunc(inner, func(l link) bool { return !l.fk.Deferrable }) {
		for _, i := range knot {
			if err := x.remove(ctx, i, left[i]); err != nil {
				return err
			}
		}
		return nil
	}
	// What nothing references goes first, over and over, until all is gone or the rest is a circle.
	for {
		progress := false
		for _, i := range knot {
			free, err := x.unreferenced(ctx, i, inner, left[i])
			if err != nil {
				return err
			}
			if len(free) > 0 {
				if err := x.remove(ctx, i, free); err != nil {
					return err
				}
				left[i], progress = without(left[i], free), true
			}
		}
		if progress {
			continue
		}
		// A circle. In one statement the database may let the rows of a table go; if none does, it names a constraint.
		var refused error
		for _, i := range slices.Backward(knot) {
			if len(left[i]) == 0 {
				continue
			}
			err := x.savepoint(ctx, func() error { return x.remove(ctx, i, left[i]) })
			if err == nil {
				left[i], progress = nil, true
				break
			}
			if !isolated(err) {
				return err
			}
			if refused == nil {
				refused = err
			}
		}
		if !progress {
			return refused // nil: all is gone
		}
	}
}

// unreferenced are those of the rows that no other row references, by these foreign keys.
func (x *execution) unreferenced(ctx context.Context, place int, inner []link, keys []tuple) ([]tuple, error) {
	j := x.j
	s := j.node(place)
	var out []tuple
	for chunk := range slices.Chunk(keys, j.d.maxKeys()) {
		q := newQuery(j.d).add("SELECT ", j.selectList(s.key), " FROM ", j.d.rows(s.t), " WHERE ")
		j.d.keyIn(q, s.key, chunk)
		for _, l := range inner {
			if l.parent != place {
				continue
			}
			q.add(" AND NOT EXISTS (SELECT 1 FROM ", j.d.rows(j.node(l.child).t), " curfew_child WHERE ")
			for i := range l.fk.ChildColumns {
				if i > 0 {
					q.add(" AND ")
				}
				q.add("curfew_child.", j.d.ident(l.fk.ChildColumns[i]), " = ", quoted(j.d, s.t.Schema, s.t.Name), ".", j.d.ident(l.fk.ParentColumns[i]))
			}
			if l.child == place { // a row may reference itself
				q.add(" AND NOT (")
				for i, c := range s.key {
					if i > 0 {
						q.add(" AND ")
					}
					q.add("curfew_child.", j.d.ident(c.Name), " = ", quoted(j.d, s.t.Schema, s.t.Name), ".", j.d.ident(c.Name))
				}
				q.add(")")
			}
			q.add(")")
		}
		free, err := j.tuples(ctx, x.c, q, s.key)
		if err != nil {
			return nil, err
		}
		out = append(out, free...)
	}
	return out, nil
}

// remove deletes rows by their keys. Those of a step are locked and were judged, so no condition is repeated.
func (x *execution) remove(ctx context.Context, place int, keys []tuple) error {
	j := x.j
	s := j.node(place)
	if place == governed {
		return x.removeRows(ctx, keys)
	}
	if !s.explicit {
		return nil // the database takes them along
	}
	for chunk := range slices.Chunk(keys, min(removeAtOnce, j.d.maxKeys())) {
		q := newQuery(j.d).add(j.deleteFrom(s.t, s.key))
		j.d.keyIn(q, s.key, chunk)
		r, err := x.c.ExecContext(ctx, q.String(), q.args...)
		if err != nil {
			return err
		}
		if n, err := r.RowsAffected(); err != nil || n == int64(len(chunk)) {
			if err != nil {
				return err
			}
			continue
		}
		left, err := x.anyOf(ctx, s, chunk, func(q *query) { q.add("1 = 1") })
		if err != nil {
			return err
		}
		if left {
			return errRefused{"blocked", "a trigger of the database kept a row of " + s.t.Label}
		}
	}
	return nil
}

// removeRows deletes rows of the governed table, with the conditions repeated.
func (x *execution) removeRows(ctx context.Context, keys []tuple) error {
	for chunk := range slices.Chunk(keys, x.j.d.maxKeys()) {
		gone, err := x.deleteKeys(ctx, chunk)
		if err != nil {
			return err
		}
		if len(gone) < len(chunk) {
			left, err := x.only(ctx, without(chunk, gone), nil)
			if err != nil {
				return err
			}
			if len(left) > 0 {
				return errRefused{"blocked", reasonVeto}
			}
		}
	}
	return nil
}

// tearDownInGroups deletes the rows in groups on which no more hangs than a batch may take along, and hands on what is left once
// it has taken that much: a transaction stays short also where very much hangs on a few rows.
func (x *execution) tearDownInGroups(ctx context.Context, keys []tuple, t *tally, last bool) error {
	most := hangingFactor * max(1, x.j.p.Batch.Rows)
	start := t.cascaded
	for n := len(keys); len(keys) > 0; {
		if t.cascaded-start >= int64(most) {
			t.deferred = append(t.deferred, keys...)
			return nil
		}
		n = min(n, len(keys))
		if n > 1 {
			_, err := x.gather(ctx, keys[:n], false, most)
			if errors.Is(err, errMany) {
				n = (n + 1) / 2
				continue
			}
			if err != nil && !isolated(err) {
				return err
			}
		}
		if err := x.changeIsolated(ctx, keys[:n], t, last); err != nil {
			return err
		}
		keys = keys[n:]
	}
	return nil
}

// rehearseAlong says what would become of the rows, with what hangs on them: the same questions, and no change. It calls each
// with what would go.
func (x *execution) rehearseAlong(ctx context.Context, keys []tuple, t *tally, each func(*doomed)) error {
	if len(keys) == 0 {
		return nil
	}
	d, err := x.gather(ctx, keys, false, maxHanging)
	var kept []string
	if err == nil {
		kept, err = x.keepers(ctx, keys, d)
	}
	var r errRefused
	switch {
	case err == nil && len(kept) == 0:
		t.put("due", keys...)
		t.cascaded += int64(d.n)
		each(d)
		return nil
	case err == nil:
		r = errRefused{"blocked", kept[0]}
	case errors.Is(err, errMany):
		r = refusedMany
	case !errors.As(err, &r):
		return err
	}
	if len(keys) == 1 {
		t.refuse(keys[0], r)
		return nil
	}
	if err := x.rehearseAlong(ctx, keys[:len(keys)/2], t, each); err != nil {
		return err
	}
	return x.rehearseAlong(ctx, keys[len(keys)/2:], t, each)
}

// refuse notes a single row that cannot go.
func (t *tally) refuse(key tuple, r errRefused) {
	t.note(r.outcome, r.reason, key)
}

// At how many due rows, and at how many others that hang on them, a plan looks.
const (
	previewRows = 1000
	previewMost = 100_000
)

// preview counts into c what hangs on the rows that meet the condition, by table, and which of them are kept for it.
func (x *execution) preview(ctx context.Context, c *Count, cond func(*query)) error {
	j := x.j
	q := newQuery(j.d).add("SELECT ", j.readKey(), " FROM ", j.d.rows(j.t), " WHERE ")
	cond(q)
	j.named(q)
	q.add(j.orderBy(j.key), " LIMIT ", itoa(previewRows+1))
	keys, err := j.tuples(ctx, x.c, q, j.key)
	if err != nil {
		return err
	}
	c.Partial = len(keys) > previewRows
	keys = keys[:min(len(keys), previewRows)]
	t, sum := newTally(), map[string]int64{}
	for chunk := range slices.Chunk(keys, 50) {
		if t.cascaded >= previewMost {
			c.Partial = true
			break
		}
		err := x.rehearseAlong(ctx, chunk, t, func(d *doomed) {
			for _, a := range d.along(j) {
				sum[a.Table] += a.Rows
			}
		})
		if err != nil {
			return err
		}
	}
	for _, knot := range j.family.knots {
		for _, i := range knot {
			if i == governed {
				continue
			}
			label := j.family.steps[i].t.Label
			c.Along = append(c.Along, Along{label, sum[label]})
		}
	}
	if n := sum[j.t.Label]; n > 0 {
		c.Along = append(c.Along, Along{j.t.Label, n})
	}
	c.Cascaded = t.cascaded
	c.Blocked += int64(len(t.byOutcome["blocked"]))
	c.Held += int64(len(t.byOutcome["held"]))
	return nil
}

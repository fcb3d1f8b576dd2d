package target

import (
	"context"
	"errors"
	"slices"
)

// maxHanging bounds the rows that may hang on one row: their keys are held in memory.
var maxHanging = 1_000_000

// hangingFactor is how many times the rows of a batch may go along with it before it hands the rest of its rows on.
const hangingFactor = 10

// errMany says that more rows hang on these than was asked for.
var errMany = errors.New("too many rows hang on these")

// errRefused says that rows cannot go, and what is told of a single one.
type errRefused struct{ outcome, reason string }

func (e errRefused) Error() string { return e.outcome + ": " + e.reason }

// doomed are the rows that hang on some rows of the governed table, found before the first of them is deleted: a condition
// that joins a table to rows of another would find nothing once those are gone.
type doomed struct {
	keys  [][]tuple // by step
	extra []tuple   // rows of the governed table that hang on others of it, or on a step
	seen  []map[string]bool
	n     int
}

// add keeps those of the keys that are new.
func (d *doomed) add(step int, keys []tuple) []tuple {
	var fresh []tuple
	for _, k := range keys {
		if id := k.id(); !d.seen[step][id] {
			d.seen[step][id] = true
			fresh = append(fresh, k)
		}
	}
	d.keys[step] = append(d.keys[step], fresh...)
	d.n += len(fresh)
	return fresh
}

// gather finds what hangs on the rows, level by level, each level locked before its children are looked for: from then on
// nothing new can come to hang on it by a foreign key. So locks are taken on the rows first, then on what references them, in
// the order of each table's key. It is errMany when it is more than most.
//
// Of the governed table a row goes only by its own time: one that references a row which goes must be due itself, and then it
// goes along; else it keeps that row.
func (x *execution) gather(ctx context.Context, rows []tuple, lock bool, most int) (*doomed, error) {
	f := x.j.family
	d := &doomed{keys: make([][]tuple, len(f.steps)), seen: make([]map[string]bool, len(f.steps))}
	fresh := make([][]tuple, len(f.steps))
	for i, s := range f.steps {
		d.seen[i] = map[string]bool{}
		if s.on == "" {
			continue
		}
		found, err := x.hangingOn(ctx, s, rows, lock)
		if err != nil {
			return nil, err
		}
		fresh[i] = d.add(i, found)
	}
	own, mine := rows, among(rows)
	for more := true; more; {
		if d.n > most {
			return nil, errMany
		}
		more = false
		next, nextOwn := make([][]tuple, len(f.steps)), []tuple(nil)
		for _, l := range f.links {
			parents := own
			if l.parent >= 0 {
				parents = fresh[l.parent]
			}
			if len(parents) == 0 {
				continue
			}
			found, err := x.hanging(ctx, l, parents, lock && l.child >= 0 && f.steps[l.child].locked(f))
			if err != nil {
				return nil, err
			}
			if l.child == governed {
				found = slices.DeleteFunc(found, mine)
				if err := x.mayFollow(ctx, found, l.fk, lock); err != nil {
					return nil, err
				}
				d.extra, nextOwn, d.n = append(d.extra, found...), append(nextOwn, found...), d.n+len(found)
				mine = among(slices.Concat(rows, d.extra))
			} else if found = d.add(l.child, found); len(found) > 0 {
				next[l.child] = append(next[l.child], found...)
			}
			more = more || len(found) > 0
		}
		fresh, own = next, nextOwn
	}
	return d, x.heldAlong(ctx, d)
}

// locked reports whether rows of the step are locked when they are found: those that we delete, and those on which others hang.
func (s *step) locked(f *family) bool {
	return s.explicit || slices.ContainsFunc(f.links, func(l link) bool { return l.parent >= 0 && f.steps[l.parent] == s && l.child != l.parent })
}

// hangingOn finds the rows that the policy's own SQL joins to these rows.
func (x *execution) hangingOn(ctx context.Context, s *step, rows []tuple, lock bool) ([]tuple, error) {
	j := x.j
	var all []tuple
	seen := map[string]bool{}
	for chunk := range slices.Chunk(rows, j.d.maxKeys()) {
		found, err := x.selectRows(ctx, s, lock, func(q *query) { j.joined(q, s, &roots{j: j, keys: chunk}) })
		if err != nil {
			return nil, err
		}
		for _, k := range found {
			if !seen[k.id()] {
				seen[k.id()] = true
				all = append(all, k)
			}
		}
	}
	return all, nil
}

// joined writes "the policy's on joins this row of the step's table to one of the rows".
func (j *Job) joined(q *query, s *step, r *roots) {
	q.add("EXISTS (SELECT 1 FROM ", j.d.rows(j.t), " WHERE ")
	r.write(q)
	q.add(" AND ").operator(s.on).add(")")
}

// hanging finds the rows that reference these, by one foreign key.
func (x *execution) hanging(ctx context.Context, l link, parents []tuple, lock bool) ([]tuple, error) {
	j := x.j
	var all []tuple
	for chunk := range slices.Chunk(parents, j.d.maxKeys()) {
		found, err := x.selectRows(ctx, j.node(l.child), lock, func(q *query) { j.references(q, l, chunk) })
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// node is the table at a place; the governed one is as a step of its own.
func (j *Job) node(place int) *step {
	if place == governed {
		return &step{t: j.t, key: j.key}
	}
	return j.family.steps[place]
}

// references writes "this row of the child references one of the parents".
func (j *Job) references(q *query, l link, parents []tuple) {
	parent := j.node(l.parent)
	if cols, ok := matching(parent.key, l.fk); ok {
		j.d.keyIn(q, cols, parents)
		return
	}
	cols := func(names []string) {
		if len(names) > 1 {
			q.add("(")
		}
		for i, c := range names {
			if i > 0 {
				q.add(", ")
			}
			q.add(j.d.ident(c))
		}
		if len(names) > 1 {
			q.add(")")
		}
	}
	cols(l.fk.ChildColumns)
	q.add(" IN (SELECT ")
	for i, c := range l.fk.ParentColumns {
		if i > 0 {
			q.add(", ")
		}
		q.add(j.d.ident(c))
	}
	q.add(" FROM ", j.d.rows(parent.t), " WHERE ")
	j.d.keyIn(q, parent.key, parents)
	q.add(")")
}

// selectRows reads the keys of a step's rows that meet the condition, and locks them in the order of the key, waiting as long as
// the transaction may. MySQL would wait for every row that it looks at, so there they are found first and then locked by key,
// with the condition asked again.
func (x *execution) selectRows(ctx context.Context, s *step, lock bool, cond func(*query)) ([]tuple, error) {
	j := x.j
	q := newQuery(j.d).add("SELECT ", j.selectList(s.key), " FROM ", j.d.rows(s.t), " WHERE ")
	cond(q)
	if !lock || j.db.Engine == MySQL {
		found, err := j.tuples(ctx, x.c, q, s.key)
		if err != nil || !lock || len(found) == 0 {
			return found, err
		}
		var all []tuple
		for chunk := range slices.Chunk(found, j.d.maxKeys()) {
			q := newQuery(j.d).add("SELECT ", j.selectList(s.key), " FROM ", j.d.rows(s.t), j.keyIndex(s.t, s.key), " WHERE ")
			j.d.keyIn(q, s.key, chunk)
			q.add(" AND ")
			cond(q)
			q.add(j.orderBy(s.key), j.d.lockRows(true))
			locked, err := j.tuples(ctx, x.c, q, s.key)
			if err != nil {
				return nil, err
			}
			all = append(all, locked...)
		}
		return all, nil
	}
	q.add(j.orderBy(s.key), j.d.lockRows(true))
	return j.tuples(ctx, x.c, q, s.key)
}

// mayFollow is errRefused unless all these rows of the governed table may go: due, in scope, and kept by nothing.
func (x *execution) mayFollow(ctx context.Context, keys []tuple, fk ForeignKey, lock bool) error {
	j := x.j
	for chunk := range slices.Chunk(keys, j.d.maxKeys()) {
		q := newQuery(j.d).add("SELECT ", j.readKey(), " FROM ", j.d.rows(j.t), j.byKeyIndex(), " WHERE ")
		j.d.keyIn(q, j.key, chunk)
		q.add(" AND ")
		j.isDue(q)
		j.inScope(q)
		j.unguarded(q)
		x.notHeld(q)
		if lock {
			q.add(j.orderBy(j.key), j.d.lockRows(true))
		}
		may, err := j.tuples(ctx, x.c, q, j.key)
		if err != nil {
			return err
		}
		if len(may) < len(chunk) {
			return errRefused{"blocked", fkName(fk)}
		}
	}
	return nil
}

// heldAlong is errRefused when a hold names a row that would go along.
func (x *execution) heldAlong(ctx context.Context, d *doomed) error {
	for i, s := range x.j.family.steps {
		if len(d.keys[i]) == 0 {
			continue
		}
		for _, h := range x.along[s.t.Label] {
			held, err := x.anyOf(ctx, s, d.keys[i], func(q *query) { h.write(q, "") })
			if err != nil {
				return err
			}
			if held {
				return errRefused{"held", "hold " + h.name}
			}
		}
	}
	return nil
}

// anyOf reports whether one of the rows meets the condition.
func (x *execution) anyOf(ctx context.Context, s *step, keys []tuple, cond func(*query)) (bool, error) {
	for chunk := range slices.Chunk(keys, x.j.d.maxKeys()) {
		q := newQuery(x.j.d).add("SELECT EXISTS (SELECT 1 FROM ", x.j.d.rows(s.t), " WHERE ")
		x.j.d.keyIn(q, s.key, chunk)
		q.add(" AND ")
		cond(q)
		var found bool
		if err := x.c.QueryRowContext(ctx, q.add(")").String(), q.args...).Scan(&found); err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// keepers names the constraints by which rows that need not go keep rows that would.
func (x *execution) keepers(ctx context.Context, rows []tuple, d *doomed) ([]string, error) {
	j := x.j
	var out []string
	for _, l := range j.family.keeps {
		parents := slices.Concat(rows, d.extra)
		if l.parent >= 0 {
			parents = d.keys[l.parent]
		}
		if !l.fk.ChildSelect || len(parents) == 0 {
			continue
		}
		kept, err := x.keptAlong(ctx, l, parents, d)
		if classify(err) == classPermission && j.db.Engine == MySQL {
			continue
		}
		if err != nil {
			return nil, err
		}
		if kept {
			out = append(out, fkName(l.fk))
		}
	}
	return out, nil
}

// keptAlong reports whether one of the parents is referenced by a row that does not go.
func (x *execution) keptAlong(ctx context.Context, l link, parents []tuple, d *doomed) (bool, error) {
	if l.child >= 0 {
		found, err := x.hanging(ctx, l, parents, false)
		stays := slices.ContainsFunc(found, func(k tuple) bool { return !d.seen[l.child][k.id()] })
		return stays, err
	}
	for chunk := range slices.Chunk(parents, x.j.d.maxKeys()) {
		q := newQuery(x.j.d).add("SELECT EXISTS (SELECT 1 FROM ", childTable(x.j.d, l.fk.Child), " WHERE ")
		x.j.references(q, l, chunk)
		var found bool
		if err := x.c.QueryRowContext(ctx, q.add(")").String(), q.args...).Scan(&found); err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// Along is a table of which rows would go along, and how many.
type Along struct {
	Table string
	Rows  int64
}

// along lists what was gathered, in the order in which it would go.
func (d *doomed) along(j *Job) []Along {
	var out []Along
	for _, knot := range j.family.knots {
		for _, i := range knot {
			if i == governed {
				continue
			}
			out = append(out, Along{j.family.steps[i].t.Label, int64(len(d.keys[i]))})
		}
	}
	if len(d.extra) > 0 {
		out = append(out, Along{j.t.Label, int64(len(d.extra))})
	}
	return out
}

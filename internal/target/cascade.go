package target

import (
	"context"
	"slices"
)

// maxCascadeDepth bounds how deep rows that go along are counted where tables reference each other in a circle.
const maxCascadeDepth = 8

// countCascade counts the rows of other tables (and of this one) that go along when the rows with these keys are deleted.
// The rows are locked by us, so no row can come to hang on them between the count and the delete.
func (x *execution) countCascade(ctx context.Context, keys []tuple) (int64, error) {
	j := x.j
	if len(keys) == 0 || len(j.cascading) == 0 {
		return 0, nil
	}
	return x.countAlong(ctx, &roots{j: j, keys: keys})
}

// roots are the rows of the governed table that go: by their keys, or by a condition over the table.
type roots struct {
	j    *Job
	keys []tuple
	cond func(*query)
}

func (r *roots) write(q *query) {
	if r.cond != nil {
		r.cond(q)
		return
	}
	q.d.keyIn(q, r.j.key, r.keys)
}

// countAlong counts the rows that go along with the roots.
func (x *execution) countAlong(ctx context.Context, r *roots) (int64, error) {
	j := x.j
	var tables []string
	for _, fk := range j.cascading {
		if !slices.Contains(tables, fk.Child) {
			tables = append(tables, fk.Child)
		}
	}
	var total int64
	for _, table := range tables {
		q := newQuery(j.d).add("SELECT count(*) FROM ", childTable(j.d, table), " WHERE (")
		if !j.goesAlong(q, table, r, maxCascadeDepth) {
			continue
		}
		q.add(")")
		if table == j.t.Label {
			q.add(" AND NOT (")
			r.write(q)
			q.add(")")
		}
		var n int64
		if err := x.c.QueryRowContext(ctx, q.String(), q.args...).Scan(&n); err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}

// goesAlong writes the condition under which a row of the table goes along: one of its cascading foreign keys leads to a row
// that goes. It reports false, having written nothing, when the depth is used up.
func (j *Job) goesAlong(q *query, table string, r *roots, depth int) bool {
	wrote := false
	for _, fk := range j.cascading {
		if fk.Child != table || depth == 0 {
			continue
		}
		sub := &query{d: q.d, args: q.args}
		if !j.leadsTo(sub, fk, r, depth) {
			continue
		}
		if wrote {
			q.add(" OR ")
		}
		q.add(sub.String())
		q.args = sub.args
		wrote = true
	}
	return wrote
}

func (j *Job) leadsTo(q *query, fk ForeignKey, r *roots, depth int) bool {
	d := q.d
	if fk.Parent == j.t.Label {
		if cols, ok := matching(j.key, fk); ok && fk.Child != j.t.Label && r.cond == nil {
			d.keyIn(q, cols, r.keys)
			return true
		}
	}
	row := func(cols []string) {
		if len(cols) > 1 {
			q.add("(")
		}
		for i, c := range cols {
			if i > 0 {
				q.add(", ")
			}
			q.add(d.ident(c))
		}
		if len(cols) > 1 {
			q.add(")")
		}
	}
	row(fk.ChildColumns)
	q.add(" IN (SELECT ")
	for i, c := range fk.ParentColumns {
		if i > 0 {
			q.add(", ")
		}
		q.add(d.ident(c))
	}
	q.add(" FROM ", childTable(d, fk.Parent), " WHERE ")
	if fk.Parent != j.t.Label {
		q.add("(")
		if !j.goesAlong(q, fk.Parent, r, depth-1) {
			return false
		}
		q.add("))")
		return true
	}
	q.add("(")
	r.write(q)
	deeper := &query{d: d, args: q.args}
	if j.goesAlong(deeper, fk.Parent, r, depth-1) {
		q.add(" OR ", deeper.String())
		q.args = deeper.args
	}
	q.add("))")
	return true
}

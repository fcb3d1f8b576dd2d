package target

import (
	"fmt"
	"slices"
	"strings"
)

// Rows that change with ours are looked through for holds down to this depth, where tables reference each other in a circle, and
// with no more looks than that in one statement. A row with more below it is taken for held: it stays for another run, which finds
// less below it.
const (
	maxHoldDepth = 12
	maxHoldLooks = 60
)

// alters are the tables whose rows change when ours go: they go along, or lose their reference. Our own is one of them when its
// rows reference each other.
func (j *Job) alters() []string {
	var tables []string
	for _, fk := range j.altering {
		if !slices.Contains(tables, fk.Child) {
			tables = append(tables, fk.Child)
		}
	}
	if j.family != nil {
		for _, s := range j.family.steps {
			if !slices.Contains(tables, s.t.Label) {
				tables = append(tables, s.t.Label)
			}
		}
	}
	return tables
}

// dependent is the step of a delete with dependents that is about the table, or nil.
func (j *Job) dependent(label string) *step {
	if j.family == nil {
		return nil
	}
	i := slices.IndexFunc(j.family.steps, func(s *step) bool { return s.t.Label == label })
	if i < 0 {
		return nil
	}
	return j.family.steps[i]
}

// childSubject is the column that names the data subject in such a table, or "": then our own decides.
func (j *Job) childSubject(label string) string {
	if label == j.t.Label {
		return j.p.Subject
	}
	if s := j.dependent(label); s != nil && s.subject != "" {
		return s.subject
	}
	for _, s := range j.p.CascadeSubjects {
		if j.t.names(s.Table, label) {
			return s.Subject
		}
	}
	return ""
}

// childColumn finds columns of such a table.
func (j *Job) childColumn(label string) func(string) (Column, bool) {
	if label == j.t.Label {
		return j.t.Column
	}
	if s := j.dependent(label); s != nil {
		return s.t.Column
	}
	child := Table{Engine: j.t.Engine, Columns: j.t.ChildColumns[label]}
	return child.Column
}

// names reports whether a name in the policy means the table with the label: as the catalog labels it, or with the schema it
// shares with us.
func (t *Table) names(name, label string) bool {
	schema, table := parts(name)
	return t.sameName(name, label) || t.sameName(table, label) && schema != "" && schema == t.Schema
}

// notHeldAlong writes "and no hold names a row that would change with this one". It reads other tables: to be sure, ask when the
// row is locked. From then on no row can come to hang on it.
func (x *execution) notHeldAlong(q *query) {
	sub := &query{d: q.d, args: q.args}
	if len(x.along) == 0 || !x.heldBelow(sub, x.j.t.Label, quoted(q.d, x.j.t.Schema, x.j.t.Name)+".", 0, x.holdDepth()) {
		return
	}
	q.add(" AND (", sub.String(), ") IS NOT TRUE")
	q.args = sub.args
}

// heldBelow writes "a row that changes with this one, of the parent table under that prefix, is held". It reports false, having
// written nothing, when no hold is on any table below.
func (x *execution) heldBelow(q *query, parent, prefix string, depth, last int) bool {
	wrote := false
	for _, fk := range x.j.altering {
		if fk.Parent != parent || len(x.along[fk.Child]) == 0 && (fk.OnDelete != Cascade || !x.holdBelow(fk.Child, nil)) {
			continue
		}
		if wrote {
			q.add(" OR ")
		}
		wrote = true
		alias := "curfew_h" + itoa(depth)
		q.add("EXISTS (SELECT 1 FROM ", childTable(q.d, fk.Child), " ", alias, " WHERE ")
		for i := range fk.ChildColumns {
			q.add(alias, ".", q.d.ident(fk.ChildColumns[i]), " = ", prefix, q.d.ident(fk.ParentColumns[i]), " AND ")
		}
		q.add("(")
		some := false
		for _, h := range x.along[fk.Child] {
			if some {
				q.add(" OR ")
			}
			h.write(q, alias+".")
			some = true
		}
		if fk.OnDelete == Cascade && x.holdBelow(fk.Child, nil) {
			if some {
				q.add(" OR ")
			}
			if depth+1 >= last && x.circular(fk.Child) {
				q.add("1 = 1") // deeper than we look
			} else {
				x.heldBelow(q, fk.Child, alias+".", depth+1, last)
			}
		}
		q.add(")")
		if _, postgres := q.d.(postgresDialect); postgres {
			q.add(" OFFSET 0") // else it plans each look twice, and each look inside it twice as often
		}
		q.add(")")
	}
	return wrote
}

// holdDepth is how deep heldBelow can look with a bounded number of looks.
func (x *execution) holdDepth() int {
	level, looks := map[string]int{x.j.t.Label: 1}, 0
	for depth := range maxHoldDepth {
		next := map[string]int{}
		for _, fk := range x.j.altering {
			n := level[fk.Parent]
			if n == 0 || len(x.along[fk.Child]) == 0 && (fk.OnDelete != Cascade || !x.holdBelow(fk.Child, nil)) {
				continue
			}
			looks += n
			if fk.OnDelete == Cascade {
				next[fk.Child] += n
			}
		}
		if looks > maxHoldLooks && depth > 0 {
			return depth
		}
		level = next
	}
	return maxHoldDepth
}

// holdBelow reports whether a hold is on a table whose rows change when rows of this one go.
func (x *execution) holdBelow(table string, seen []string) bool {
	if slices.Contains(seen, table) {
		return false
	}
	seen = append(seen, table)
	for _, fk := range x.j.altering {
		if fk.Parent == table && (len(x.along[fk.Child]) > 0 || fk.OnDelete == Cascade && x.holdBelow(fk.Child, seen)) {
			return true
		}
	}
	return false
}

// circular reports whether rows of a table can go along with rows of the same table.
func (x *execution) circular(table string) bool {
	reached := []string{table}
	for i := 0; i < len(reached); i++ {
		for _, fk := range x.j.altering {
			if fk.Parent != reached[i] || fk.OnDelete != Cascade {
				continue
			}
			if fk.Child == table {
				return true
			}
			if !slices.Contains(reached, fk.Child) {
				reached = append(reached, fk.Child)
			}
		}
	}
	return false
}

// reachesAll refuses holds on tables to which the foreign keys lead by a way that we cannot write down.
func (x *execution) reachesAll() error {
	if len(x.along) == 0 {
		return nil
	}
	reached := []string{x.j.t.Label}
	for i := 0; i < len(reached); i++ {
		for _, fk := range x.j.altering {
			if fk.Parent == reached[i] && !slices.Contains(reached, fk.Child) {
				reached = append(reached, fk.Child)
			}
		}
	}
	for label, holds := range x.along {
		if !slices.Contains(reached, label) && x.j.dependent(label) == nil { // what depends on a row is looked through whole
			var names []string
			for _, h := range holds {
				names = append(names, h.name)
			}
			return fmt.Errorf("%w: %s is on %s, whose rows would change by a way that curfew cannot follow", ErrHold, strings.Join(names, ", "), label)
		}
	}
	return nil
}

package target

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"curfew.dev/curfew/policy"
)

// inspectDependents reads the tables whose rows go along.
func (d *DB) inspectDependents(ctx context.Context, t *Table, deps *policy.Dependents) error {
	if !deps.Auto {
		for _, dep := range deps.List {
			c, err := d.Inspect(ctx, dep.Table)
			if err != nil && !errors.Is(err, ErrNoTable) {
				return err
			}
			t.Dependents = append(t.Dependents, c) // nil: Judge says that it is not there
		}
		return nil
	}
	seen := []string{t.Label}
	for level := []*Table{t}; len(level) > 0; {
		var next []*Table
		for _, of := range level {
			for _, fk := range of.Children {
				if fk.Parent != of.Label || !fk.takes() || slices.Contains(seen, fk.Child) {
					continue
				}
				seen = append(seen, fk.Child)
				c, err := d.Inspect(ctx, fk.Child)
				if err != nil {
					return err
				}
				next = append(next, c)
			}
		}
		t.Dependents = append(t.Dependents, next...)
		level = next
	}
	return nil
}

// takes reports whether a row with this foreign key cannot outlive the row that it references.
func (fk ForeignKey) takes() bool { return fk.OnDelete == Cascade || fk.restricts() }

// restricts reports whether the foreign key keeps the row that it references.
func (fk ForeignKey) restricts() bool { return fk.OnDelete == NoAction || fk.OnDelete == Restrict }

// A step is a table whose rows go along with a row of the governed table. This list, and how its rows are joined (via, on), is
// the whole of what a delete with dependents takes: batches, plans, holds and checks all ask here.
type step struct {
	t   *Table
	key []Column
	// via are the foreign keys to the governed table or to a step: a row goes along when one of them leads to a row that goes.
	via []ForeignKey
	on  string // instead: the policy's own SQL, over this table and the governed one
	// explicit steps are deleted by us; rows of the others go by ON DELETE CASCADE.
	explicit bool
	subject  string // the column that names the data subject; "" when there is none
}

// governed is the governed table's place among the nodes that foreign keys lead to; the steps have theirs in j.steps.
const governed = -1

// A link is a foreign key along which rows are found. Of rows of the governed table itself, see gather.
type link struct {
	fk            ForeignKey
	child, parent int
}

// family is the tables that a delete with dependents is about.
type family struct {
	steps  []*step
	links  []link
	knots  [][]int      // the places in the order in which their rows are deleted, governed last; those of one knot reference each other in a circle
	keeps  []link       // restricting foreign keys that lead to rows that go, from rows that need not go; child is noStep for another table
	loose  []ForeignKey // SET NULL and SET DEFAULT
	defers bool         // some of the constraints are deferrable
}

// noStep is the place of a table that is no step.
const noStep = -2

// familyOf resolves the dependents of a policy; it is nil for a policy without. Judge has said before what does not fit.
func familyOf(p *policy.Policy, t *Table) (*family, error) {
	deps := p.Action.Dependents
	if deps == nil {
		return nil, nil
	}
	f := &family{}
	for i, c := range t.Dependents {
		if c == nil {
			return nil, fmt.Errorf("there is no table %s", deps.List[i].Table)
		}
		key, err := ResolveKey(&policy.Policy{Table: c.Label}, c)
		if err != nil {
			return nil, err
		}
		s := &step{t: c, key: key, explicit: !deps.Auto}
		if !deps.Auto {
			s.on, s.subject = deps.List[i].On, deps.List[i].Subject
		}
		f.steps = append(f.steps, s)
	}
	for _, fk := range f.references(t) {
		child, parent := f.place(t, fk.Child), f.place(t, fk.Parent)
		f.defers = f.defers || fk.Deferrable
		switch {
		case !fk.takes():
			f.loose = append(f.loose, fk)
		case child == governed:
			// Of the governed table only rows go that are due by themselves.
			f.links = append(f.links, link{fk, child, parent})
		case child == noStep, f.steps[child].on != "":
			if fk.restricts() {
				f.keeps = append(f.keeps, link{fk, child, parent})
			}
		default:
			f.links = append(f.links, link{fk, child, parent})
			s := f.steps[child]
			s.via = append(s.via, fk)
			s.explicit = s.explicit || fk.restricts()
		}
	}
	f.order(deps.Auto)
	return f, nil
}

// references are the foreign keys that lead to the governed table or to a step.
func (f *family) references(t *Table) []ForeignKey {
	var out []ForeignKey
	add := func(of *Table) {
		for _, fk := range of.Children {
			if fk.Parent == of.Label && !slices.ContainsFunc(out, func(o ForeignKey) bool { return sameReference(o, fk) }) {
				out = append(out, fk)
			}
		}
	}
	add(t)
	for _, s := range f.steps {
		add(s.t)
	}
	return out
}

func sameReference(a, b ForeignKey) bool {
	return a.Name == b.Name && a.Child == b.Child && a.Parent == b.Parent && slices.Equal(a.ChildColumns, b.ChildColumns)
}

// place finds a table among the nodes.
func (f *family) place(t *Table, label string) int {
	if label == t.Label {
		return governed
	}
	i := slices.IndexFunc(f.steps, func(s *step) bool { return s.t.Label == label })
	if i < 0 {
		return noStep
	}
	return i
}

// order makes the knots: as the list says, or children before their parents.
func (f *family) order(auto bool) {
	if !auto {
		for i := range f.steps {
			f.knots = append(f.knots, []int{i})
		}
		f.knots = append(f.knots, []int{governed})
		return
	}
	// Tarjan: a component is complete when all that hangs on it is. All hangs on the governed table, so it comes last.
	index, low, on := map[int]int{}, map[int]int{}, map[int]bool{}
	var stack []int
	var visit func(v int)
	visit = func(v int) {
		index[v] = len(index) + 1
		low[v], on[v] = index[v], true
		stack = append(stack, v)
		for _, l := range f.links {
			if l.parent != v {
				continue
			}
			if index[l.child] == 0 {
				visit(l.child)
				low[v] = min(low[v], low[l.child])
			} else if on[l.child] {
				low[v] = min(low[v], index[l.child])
			}
		}
		if low[v] != index[v] {
			return
		}
		at := slices.Index(stack, v)
		knot := slices.Clone(stack[at:])
		stack = stack[:at]
		for _, w := range knot {
			on[w] = false
			if w >= 0 && len(knot) > 1 {
				f.steps[w].explicit = true // what the database took along might have to go before or after others
			}
		}
		f.knots = append(f.knots, knot)
	}
	visit(governed)
}

// within are the foreign keys between tables of a knot by which the order of its rows matters.
func (f *family) within(knot []int) []link {
	var out []link
	for _, l := range slices.Concat(f.links, f.keeps) {
		if (l.fk.restricts() || len(knot) > 1) && slices.Contains(knot, l.child) && slices.Contains(knot, l.parent) {
			out = append(out, l)
		}
	}
	return out
}

// cascading are the links as the counting of plans and the holds walk them.
func (f *family) cascading() []ForeignKey {
	var out []ForeignKey
	for _, l := range f.links {
		if l.child >= 0 {
			out = append(out, l.fk)
		}
	}
	return out
}

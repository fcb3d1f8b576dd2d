package target

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"curfew.dev/curfew/policy"
)

// A model of a few tables whose rows reference each other: what must go when all that hangs on a row goes with it, or nothing.

type modelRef struct {
	child, parent int
	rule          string // of the foreign key
}

type modelRow struct{ table, id int }

type model struct {
	tables int
	refs   []modelRef
	rows   []modelRow
	to     map[modelRow]map[int]modelRow // by index of the reference
	due    map[int]bool                  // of table 0
}

// doomed is the row of table 0 and all that hangs on it; ok is false when something keeps it.
func (m *model) doomed(root modelRow, follows func(modelRef) bool, gone map[modelRow]bool) (all map[modelRow]bool, ok bool) {
	all = map[modelRow]bool{root: true}
	for grew := true; grew; {
		grew = false
		for _, r := range m.rows {
			if all[r] || gone[r] {
				continue
			}
			for i, to := range m.to[r] {
				if !all[to] {
					continue
				}
				if !follows(m.refs[i]) || r.table == 0 && !m.due[r.id] {
					return nil, false
				}
				all[r], grew = true, true
			}
		}
	}
	return all, true
}

func drawModel(rt *rapid.T) *model {
	m := &model{tables: rapid.IntRange(2, 4).Draw(rt, "tables"), to: map[modelRow]map[int]modelRow{}, due: map[int]bool{}}
	rules := rapid.SampledFrom([]string{"", "", "DEFERRABLE INITIALLY DEFERRED", "ON DELETE CASCADE"})
	for child := 1; child < m.tables; child++ {
		m.refs = append(m.refs, modelRef{child, rapid.IntRange(0, child-1).Draw(rt, "parent"), rules.Draw(rt, "rule")})
	}
	for range rapid.IntRange(0, 3).Draw(rt, "references") {
		m.refs = append(m.refs, modelRef{rapid.IntRange(0, m.tables-1).Draw(rt, "child"), rapid.IntRange(0, m.tables-1).Draw(rt, "parent"), rules.Draw(rt, "rule")})
	}
	byTable := make([][]int, m.tables)
	for t := range m.tables {
		for id := range rapid.IntRange(1, 7).Draw(rt, "rows") {
			m.rows = append(m.rows, modelRow{t, id})
			byTable[t] = append(byTable[t], id)
			if t == 0 {
				m.due[id] = rapid.Bool().Draw(rt, "due")
			}
		}
	}
	for _, r := range m.rows {
		m.to[r] = map[int]modelRow{}
		for i, ref := range m.refs {
			if ref.child == r.table && len(byTable[ref.parent]) > 0 && rapid.IntRange(0, 3).Draw(rt, "set") > 0 {
				m.to[r][i] = modelRow{ref.parent, rapid.SampledFrom(byTable[ref.parent]).Draw(rt, "to")}
			}
		}
	}
	return m
}

// make writes the model into the database: a table t0, t1, … each, with a column f0, f1, … for each of its references.
func (m *model) make(l *lab) {
	for t := range 4 {
		l.exec(fmt.Sprintf("DROP TABLE IF EXISTS t%d", t))
	}
	for t := range m.tables {
		cols, values := "id integer PRIMARY KEY, at text NOT NULL", ""
		for i, ref := range m.refs {
			if ref.child == t {
				cols += fmt.Sprintf(", f%d integer REFERENCES t%d (id) %s", i, ref.parent, ref.rule)
				values += ", NULL"
			}
		}
		l.exec(fmt.Sprintf("CREATE TABLE t%d (%s)", t, cols))
		for _, r := range m.rows {
			if r.table == t {
				at := asOf.Add(time.Hour)
				if m.due[r.id] {
					at = asOf.Add(-time.Hour)
				}
				l.exec(fmt.Sprintf("INSERT INTO t%d VALUES (%d, %s%s)", t, r.id, l.lit(at), values))
			}
		}
	}
	for r, tos := range m.to {
		for i, to := range tos {
			l.exec(fmt.Sprintf("UPDATE t%d SET f%d = %d WHERE id = %d", r.table, i, to.id, r.id))
		}
	}
}

// TestDependentsLikeModel: whatever references whatever, after a run all that hung on a row which is gone is gone, nothing of a
// row that stayed is, nothing else is, and no reference leads nowhere. A row that the model would let go may stay only where rows
// reference each other in a circle through constraints that are not deferred, which no order of statements can delete.
func TestDependentsLikeModel(t *testing.T) {
	l := newLab(t, SQLite)
	l.other.SQL.SetMaxOpenConns(1)
	run, tried, along := 0, 0, int64(0)
	rapid.Check(t, func(rt *rapid.T) {
		run++
		l.salt = fmt.Sprint(run)
		if _, err := l.other.SQL.Exec("PRAGMA foreign_keys = OFF; PRAGMA synchronous = OFF"); err != nil {
			rt.Fatal(err)
		}
		m := drawModel(rt)
		m.make(l)
		p := l.policy("t0", func(p *policy.Policy) { auto(p); p.Name = fmt.Sprint("model", run) })
		all := func(modelRef) bool { return true }
		// What may be reached at all; and, of an explicit list, what is listed.
		listed := rapid.Bool().Draw(rt, "listed")
		if listed {
			tables, err := l.db.InspectFor(t.Context(), p)
			if err != nil {
				rt.Fatal(err)
			}
			f, err := familyOf(p, tables)
			if err != nil {
				rt.Fatal(err)
			}
			deps := &policy.Dependents{}
			leave := rapid.IntRange(-1, len(f.knots)-1).Draw(rt, "left out")
			in := map[int]bool{0: true}
			for i, knot := range f.knots {
				for _, s := range knot {
					if i != leave && s != governed {
						var n int
						fmt.Sscanf(f.steps[s].t.Label, "t%d", &n)
						in[n] = true
						deps.List = append(deps.List, policy.Dependent{Table: f.steps[s].t.Label})
					}
				}
			}
			p.Action.Dependents = deps
			if len(deps.List) == 0 {
				return
			}
			all = func(ref modelRef) bool { return in[ref.child] }
		}
		if Refused(l.fit(p)) != nil {
			return // a cascade that is not listed, or an order that no row survives
		}
		before := map[modelRow]bool{}
		for _, r := range m.rows {
			before[r] = true
		}
		got := l.drain(l.job(p), rapid.IntRange(1, 8).Draw(rt, "batch"))
		tried, along = tried+1, along+got.cascaded
		after := map[modelRow]bool{}
		for tab := range m.tables {
			for _, id := range l.ids(fmt.Sprintf("SELECT id FROM t%d", tab)) {
				after[modelRow{tab, id}] = true
			}
		}
		must := map[modelRow]bool{} // what went, by the model, of the rows of table 0 that are gone
		for _, r := range m.rows {
			if r.table != 0 || after[r] {
				continue
			}
			of, ok := m.doomed(r, all, nil)
			if !ok {
				rt.Fatalf("row %v went, and something keeps it: %v", r, got)
			}
			maps.Copy(must, of)
		}
		for _, r := range m.rows {
			if must[r] == after[r] {
				rt.Fatalf("row %v: must go %v, there %v; outcomes %v %v", r, must[r], after[r], got.outcomes, got.rows)
			}
			for _, to := range m.to[r] {
				if after[r] && !after[to] {
					rt.Fatalf("row %v is an orphan of %v", r, to)
				}
			}
		}
		if n := int64(len(before)-len(after)) - got.outcomes["deleted"]; n != got.cascaded {
			rt.Fatalf("%d rows went along, %d were counted", n, got.cascaded)
		}
		// What stayed although it might have gone: only for a circle.
		for id, due := range m.due {
			r := modelRow{0, id}
			if of, ok := m.doomed(r, all, nil); due && ok && after[r] && !m.circle(of) && !(listed && m.back(of)) {
				rt.Fatalf("row %v stayed: %v %v", r, got.outcomes, got.rows)
			}
		}
	})
	if t.Logf("%d runs of %d, %d rows went along", tried, run, along); 2*tried < run || along == 0 {
		t.Errorf("%d runs of %d were fit, %d rows went along: that shows nothing", tried, run, along)
	}
}

// back reports whether one of the rows of table 0 references one of another table: of a list these go first.
func (m *model) back(rows map[modelRow]bool) bool {
	for r := range rows {
		for _, to := range m.to[r] {
			if r.table == 0 && to.table != 0 && rows[to] {
				return true
			}
		}
	}
	return false
}

// circle reports whether some of the rows reference each other in a circle.
func (m *model) circle(rows map[modelRow]bool) bool {
	left := maps.Clone(rows)
	for len(left) > 0 {
		free := slices.Collect(maps.Keys(left))
		free = slices.DeleteFunc(free, func(r modelRow) bool {
			for o := range left {
				for _, to := range m.to[o] {
					if to == r {
						return true
					}
				}
			}
			return false
		})
		if len(free) == 0 {
			return true
		}
		for _, r := range free {
			delete(left, r)
		}
	}
	return false
}

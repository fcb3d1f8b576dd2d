package target

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/policy"
)

// nullable makes a table of n rows without a trigger (1 to n), n due ones (101 …) and n that are not due (201 …).
func (l *lab) nullable(n int) {
	l.Helper()
	typ, _, lit := l.clock()
	l.exec("CREATE TABLE doc (id int NOT NULL PRIMARY KEY, at " + typ + ", state varchar(20), owner int)")
	l.exec("CREATE INDEX doc_at ON doc (at)")
	var rows []string
	for i := 1; i <= n; i++ {
		rows = append(rows, fmt.Sprintf("(%d, NULL, 'open', %d)", i, i), fmt.Sprintf("(%d, %s, 'open', %d)", 100+i, lit(asOf.Add(-time.Duration(i)*time.Hour)), i),
			fmt.Sprintf("(%d, %s, 'open', %d)", 200+i, lit(asOf.Add(time.Duration(i)*time.Hour)), i))
	}
	l.exec("INSERT INTO doc VALUES " + strings.Join(rows, ", "))
}

func strategies(e Engine) []Strategy {
	if e == Postgres {
		return []Strategy{ByTrigger, ByKey, ByPlace}
	}
	return []Strategy{ByTrigger, ByKey}
}

// Rows without a trigger go or stay as the policy says, whatever the order of pages and their size, and come after the others.
func TestNullTriggers(t *testing.T) {
	defer func(n int) { window = n }(window)
	window = 3
	onEach(t, func(l *lab) {
		l.nullable(10)
		l.exec("CREATE TABLE docs AS SELECT * FROM doc")
		for _, null := range []policy.NullRule{policy.NullNever, policy.NullDue} {
			for _, s := range strategies(l.engine) {
				for _, n := range []int{1, 3, 1000} {
					l.exec("DELETE FROM doc")
					l.exec("INSERT INTO doc SELECT * FROM docs")
					j := l.job(l.clocked("doc", func(p *policy.Policy) { p.Trigger.Null = null; p.Name = fmt.Sprint(null, s, n) }))
					l.exec("DELETE FROM " + j.d.own("receipt"))
					if err := j.SetStrategy(s); err != nil {
						l.Fatal(err)
					}
					pages := l.pages(j, n)
					last := slices.IndexFunc(pages, func(b *Batch) bool { return b.Phase == phaseNulls })
					if null == policy.NullDue && (last < 1 || slices.ContainsFunc(pages[last:], func(b *Batch) bool { return b.Phase != phaseNulls })) {
						l.Errorf("%s: rows without a trigger are not paged by themselves, after the others", j.p.Name)
					}
					want := map[policy.NullRule]int{policy.NullNever: 10, policy.NullDue: 20}[null]
					if diff := cmp.Diff(map[string]int64{"deleted": int64(want)}, l.execute(j, pages).outcomes); diff != "" {
						l.Errorf("%s: %s", j.p.Name, diff)
					}
					if left := l.ids("SELECT count(*) FROM doc WHERE id > 200")[0]; left != 10 {
						l.Errorf("%s: %d rows left that were not due", j.p.Name, left)
					}
				}
			}
		}
	})
}

// A row that gets a trigger, or loses it, between scan and commit is judged by what it has then. It is never blamed on a trigger
// of the database.
func TestNullTriggerChanges(t *testing.T) {
	onEach(t, func(l *lab) {
		l.nullable(6)
		l.exec("CREATE TABLE docs AS SELECT * FROM doc")
		_, _, lit := l.clock()
		old, fresh := lit(asOf.Add(-time.Minute)), lit(asOf.Add(time.Minute))
		for _, s := range strategies(l.engine) {
			for _, careful := range []bool{false, true} {
				l.exec("DELETE FROM doc")
				l.exec("INSERT INTO doc SELECT * FROM docs")
				j := l.job(l.clocked("doc", func(p *policy.Policy) { p.Trigger.Null = policy.NullDue }))
				l.exec("DELETE FROM " + j.d.own("receipt"))
				if err := j.SetStrategy(s); err != nil {
					l.Fatal(err)
				}
				j.careful = j.careful || careful
				pages := l.pages(j, 1000)
				change := func() {
					l.exec("UPDATE doc SET at = " + fresh + " WHERE id IN (1, 101)") // renewed
					l.exec("UPDATE doc SET at = " + old + " WHERE id IN (2, 102)")   // due in another way, or at another place of the index
					l.exec("UPDATE doc SET at = NULL WHERE id IN (103, 203)")        // 203 becomes due behind every cursor, or not
				}
				if s == ByPlace { // whose batches read their rows themselves
					l.atPoint("found", sync.OnceFunc(change))
				} else {
					change()
				}
				got := l.execute(j, pages)
				gone := got.outcomes["gone"] // a row that moved may be met twice
				delete(got.outcomes, "gone")
				deleted := got.outcomes["deleted"]
				delete(got.outcomes, "deleted")
				if diff := cmp.Diff(map[string]int64{"no_longer_due": 2}, got.outcomes); diff != "" || gone > 2 || deleted < 10 || deleted > 11 {
					l.Errorf("%s careful=%v: %d deleted, %d gone, rest:\n%s", s, careful, deleted, gone, diff)
				}
				left := slices.DeleteFunc(l.ids("SELECT id FROM doc ORDER BY id"), func(id int) bool { return id == 203 })
				if diff := cmp.Diff([]int{1, 101, 201, 202, 204, 205, 206}, left); diff != "" {
					l.Errorf("%s careful=%v: %s", s, careful, diff)
				}
			}
		}
	})
}

// An expression that yields NULL follows the same rule as a column.
func TestNullExpressions(t *testing.T) {
	onEach(t, func(l *lab) {
		l.exec("CREATE TABLE doc (id int NOT NULL PRIMARY KEY, a bigint, b bigint)")
		due, fresh := asOf.Add(-time.Hour).Unix(), asOf.Add(time.Hour).Unix()
		l.exec(fmt.Sprintf("INSERT INTO doc VALUES (1, %d, NULL), (2, NULL, %d), (3, NULL, NULL), (4, %d, %d), (5, %d, %d), (6, NULL, %d)", due, due, fresh, due, due, fresh, fresh))
		l.exec("CREATE TABLE docs AS SELECT * FROM doc")
		for _, c := range []struct {
			expr string
			null policy.NullRule
			stay []int
		}{
			{"COALESCE(a, b)", policy.NullNever, []int{3, 4, 6}},
			{"COALESCE(a, b)", policy.NullDue, []int{4, 6}},
			{"a + b - b", policy.NullNever, []int{1, 2, 3, 4, 6}},
			{"a + b - b", policy.NullDue, []int{4}},
			{"CASE WHEN b IS NULL THEN a END", policy.NullNever, []int{2, 3, 4, 5, 6}},
			{"NULLIF(b, b)", policy.NullNever, []int{1, 2, 3, 4, 5, 6}},
		} {
			l.exec("DELETE FROM doc")
			l.exec("INSERT INTO doc SELECT * FROM docs")
			j := l.job(l.policy("doc", func(p *policy.Policy) {
				p.Trigger = policy.Trigger{Until: true, Expr: c.expr, Unit: policy.Seconds, Null: c.null}
				p.Name = c.expr + string(c.null)
			}))
			l.exec("DELETE FROM " + j.d.own("receipt"))
			l.drain(j, 2)
			if diff := cmp.Diff(c.stay, l.ids("SELECT id FROM doc ORDER BY id")); diff != "" {
				l.Errorf("%s, null %s: %s", c.expr, c.null, diff)
			}
		}
	})
}

// Conditions that are neither true nor false: a scope that is unknown does not hold, a guard that is unknown does not keep, and
// a hold on a value does not hold a row that has none.
func TestUnknownConditions(t *testing.T) {
	onEach(t, func(l *lab) {
		l.nullable(4)
		l.exec("DELETE FROM doc WHERE id < 100")
		l.exec("UPDATE doc SET state = NULL, owner = NULL WHERE id IN (101, 102)")
		for _, careful := range []bool{false, true} {
			for _, c := range []struct {
				where, unless string
				want          map[string]int64
			}{
				{"state <> 'closed'", "", map[string]int64{"deleted": 2}},
				{"NOT (state = 'closed')", "", map[string]int64{"deleted": 2}},
				{"", "state <> 'closed'", map[string]int64{"deleted": 2, "guarded": 2}},
				{"", "NOT (state = 'closed')", map[string]int64{"deleted": 2, "guarded": 2}},
				{"state IS NULL", "owner > 0", map[string]int64{"deleted": 2}},
				{"owner IN (3, NULL) OR state IS NULL", "owner NOT IN (3, NULL)", map[string]int64{"deleted": 3}},
			} {
				l.exec("CREATE TABLE kept AS SELECT * FROM doc")
				j := l.job(l.clocked("doc", func(p *policy.Policy) {
					p.Where, p.Unless, p.Trigger.Null = c.where, c.unless, policy.NullNever
				}))
				l.exec("DELETE FROM " + j.d.own("receipt"))
				j.careful = j.careful || careful
				if diff := cmp.Diff(c.want, l.drain(j, 1000).outcomes); diff != "" {
					l.Errorf("where %q unless %q careful=%v: %s", c.where, c.unless, careful, diff)
				}
				l.exec("DELETE FROM doc")
				l.exec("INSERT INTO doc SELECT * FROM kept")
				l.exec("DROP TABLE kept")
			}
		}
		l.exec("INSERT INTO " + dialectFor(l.db.server).own("hold") + ` (id, name, relation, conditions, placed_at) VALUES ('1', 'court', 'doc', '[{"column": "owner", "value": "3"}, {"column": "state", "value": "open"}]', '2026-01-01 00:00:00')`)
		got := l.drain(l.job(l.clocked("doc", func(p *policy.Policy) { p.Trigger.Null = policy.NullNever; p.Name = "held" })), 1000)
		if diff := cmp.Diff(map[string]int64{"deleted": 3, "held": 1}, got.outcomes); diff != "" {
			l.Error(diff)
		}
	})
}

// SQLite keeps 7, 7 as text and both in one column: a hold on 7 holds them all, whatever the column was declared as.
func TestHoldOnAnyValue(t *testing.T) {
	for _, declared := range []string{"", "INTEGER", "TEXT", "BLOB", "NUMERIC", "REAL", "ANY", "TEXT COLLATE NOCASE"} {
		t.Run(declared, func(t *testing.T) {
			l := newLab(t, SQLite)
			l.exec("CREATE TABLE doc (id INTEGER PRIMARY KEY, at INTEGER NOT NULL, owner " + declared + ")")
			l.exec("INSERT INTO doc VALUES (1, 0, 7), (2, 0, '7'), (3, 0, 8), (4, 0, 'x7'), (5, 0, NULL), (6, 0, 'Abc'), (7, 0, 0)")
			p := l.policy("doc", func(p *policy.Policy) {
				p.Trigger = policy.Trigger{Until: true, Column: "at", Unit: policy.Seconds}
				p.Subject = "owner"
			})
			for i, v := range []string{"7", "Abc"} {
				l.exec("INSERT INTO curfew_hold (id, name, relation, conditions, placed_at) VALUES ('" + fmt.Sprint(i) + `', 'court', '*', '[{"column": "", "value": "` + v + `"}]', '2026-01-01 00:00:00')`)
			}
			if diff := cmp.Diff(map[string]int64{"deleted": 4, "held": 3}, l.drain(l.job(p), 3).outcomes); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]int{1, 2, 6}, l.ids("SELECT id FROM doc ORDER BY id")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Where the ends of time are: a row exactly at the cutoff, one before what is plausible, and the last instants on either side.
func TestEndsOfTheRange(t *testing.T) {
	onEach(t, func(l *lab) {
		typ, _, lit := l.clock()
		l.exec("CREATE TABLE doc (id int NOT NULL PRIMARY KEY, at " + typ + " NOT NULL)")
		l.exec("CREATE INDEX doc_at ON doc (at)")
		floor := time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)
		us := time.Microsecond
		rows := []string{}
		for i, at := range []time.Time{floor.Add(-us), floor, floor.Add(us), asOf.Add(-us), asOf, asOf.Add(us), time.Unix(0, 0), time.Date(1971, 1, 1, 0, 0, 0, 0, time.UTC)} {
			rows = append(rows, fmt.Sprintf("(%d, %s)", i, lit(at)))
		}
		for _, c := range []struct {
			at    policy.AtCutoff
			floor bool
			stay  []int
		}{
			{policy.StaysAtCutoff, false, []int{4, 5}},
			{policy.DueAtCutoff, false, []int{5}},
			{policy.StaysAtCutoff, true, []int{0, 4, 5, 6, 7}},
			{policy.DueAtCutoff, true, []int{0, 5, 6, 7}},
		} {
			for _, s := range strategies(l.engine) {
				l.exec("DELETE FROM doc")
				l.exec("INSERT INTO doc VALUES " + strings.Join(rows, ", "))
				j := l.job(l.clocked("doc", func(p *policy.Policy) {
					p.AtCutoff = c.at
					if c.floor {
						d := policy.DateOf(floor, time.UTC)
						p.Trigger.ImplausibleBefore = &d
					}
				}))
				l.exec("DELETE FROM " + j.d.own("receipt"))
				if err := j.SetStrategy(s); err != nil {
					l.Fatal(err)
				}
				got := l.drain(j, 2)
				if diff := cmp.Diff(c.stay, l.ids("SELECT id FROM doc ORDER BY id")); diff != "" || got.outcomes["deleted"] != int64(len(rows)-len(c.stay)) {
					l.Errorf("at_cutoff %q, implausible %v, by %s: %v\n%s", c.at, c.floor, s, got.outcomes, diff)
				}
			}
		}
	})
}

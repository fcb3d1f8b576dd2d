package target

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/policy"
)

// An acting is an action with what it needs: set, anonymise or archive over a table of visits.
type acting struct {
	kind       policy.ActionKind
	action     policy.Action
	done, open string // which ids it was done to, and to which not
}

func text(s string) *policy.Value { return &policy.Value{Kind: policy.TextValue, Text: s} }

func num(s string) *policy.Value { return &policy.Value{Kind: policy.NumberValue, Text: s} }

var null = &policy.Value{Kind: policy.NullValue}

func actings() []acting {
	fortnight, _ := policy.ParsePeriod("14d")
	return []acting{
		{policy.Set, policy.Action{Kind: policy.Set, Columns: []policy.Change{{Column: "state", Value: text("paused")}, {Column: "seen", AsOfPlus: &fortnight}}},
			"SELECT id FROM visit WHERE state = 'paused' ORDER BY id", "SELECT id FROM visit WHERE state = 'open' AND seen IS NULL ORDER BY id"},
		{policy.Anonymise, policy.Action{Kind: policy.Anonymise, Columns: []policy.Change{{Column: "name", Hash: true}, {Column: "state", Value: null}}},
			"SELECT id FROM visit WHERE name LIKE 'anon:%' AND state IS NULL ORDER BY id", "SELECT id FROM visit WHERE name LIKE 'Name%' AND state = 'open' ORDER BY id"},
		{policy.Archive, policy.Action{Kind: policy.Archive, To: "visit_old"},
			"SELECT id FROM visit_old ORDER BY id", "SELECT id FROM visit ORDER BY id"},
	}
}

// visits makes a table of n rows, ids 1 to n, all long overdue, and an archive for it.
func (l *lab) visits(n int) {
	l.Helper()
	typ, _ := l.instant()
	for _, name := range []string{"visit", "visit_old"} {
		l.exec("CREATE TABLE " + name + " (id bigint NOT NULL PRIMARY KEY, at " + typ + " NOT NULL, name varchar(60) NOT NULL, state varchar(20), seen " + typ + ")")
	}
	for i := range n {
		l.visit(i+1, asOf.Add(-time.Duration(n-i)*time.Hour))
	}
	l.exec("CREATE INDEX visit_at ON visit (at)")
}

func (l *lab) visit(id int, at time.Time) {
	l.Helper()
	l.exec(fmt.Sprintf("INSERT INTO visit (id, at, name, state) VALUES (%d, %s, 'Name %d', 'open')", id, l.lit(at), id))
}

func (l *lab) acting(a acting, edit func(*policy.Policy)) *policy.Policy {
	return l.policy("visit", func(p *policy.Policy) {
		p.Name, p.Action = string(a.kind), a.action
		if edit != nil {
			edit(p)
		}
	})
}

// eachAction runs the test for each action on each of the engines.
func eachAction(t *testing.T, engines []Engine, test func(l *lab, a acting)) {
	for _, a := range actings() {
		t.Run(string(a.kind), func(t *testing.T) { engineIn(t, engines, func(l *lab) { test(l, a) }) })
	}
}

var everyEngine = []Engine{Postgres, MySQL, SQLite}

// expectRows compares what is done and what is open.
func (l *lab) expectRows(a acting, done, open []int) {
	l.Helper()
	if diff := cmp.Diff(done, l.ids(a.done)); diff != "" {
		l.Errorf("done (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(open, l.ids(a.open)); diff != "" {
		l.Errorf("open (-want +got):\n%s", diff)
	}
}

func upTo(n int, but ...int) []int {
	out := []int{}
	for i := range n {
		if !slices.Contains(but, i+1) {
			out = append(out, i+1)
		}
	}
	return out
}

// Each due row is changed once, whatever the size of a batch and the way of paging, and never again.
func TestActionsWholeRun(t *testing.T) {
	for _, n := range []int{1, 7, 1000} {
		eachAction(t, everyEngine, func(l *lab, a acting) {
			l.visits(20)
			l.visit(100, asOf) // exactly at the cutoff: stays
			l.visit(101, asOf.Add(time.Microsecond))
			strategies := []Strategy{ByTrigger, ByKey}
			if l.engine == SQLite { // whose texts are in no index's order
				strategies = strategies[1:]
			}
			for i, s := range strategies {
				j := l.job(l.acting(a, func(p *policy.Policy) { p.Name += string(s) }))
				if err := j.SetStrategy(s); err != nil {
					l.Fatal(err)
				}
				got := l.drain(j, n)
				want := map[string]int64{}
				if i == 0 {
					want[a.kind.Outcome()] = 20
				}
				if diff := cmp.Diff(want, got.outcomes); diff != "" {
					l.Errorf("%s: outcomes (-want +got):\n%s", s, diff)
				}
				c, err := j.Count(t.Context())
				if err != nil || c.Due != 0 {
					l.Errorf("%d due after the run, %v", c.Due, err)
				}
				if due, _, err := j.OldestDue(t.Context()); due != nil || err != nil {
					l.Errorf("the oldest due row after the run is of %v, %v", due, err)
				}
			}
			l.expectRows(a, upTo(20), []int{100, 101})
		})
	}
}

// What was changed between the scan and the commit is judged as it is by then.
func TestActionsChangedBetween(t *testing.T) {
	eachAction(t, everyEngine, func(l *lab, a acting) {
		l.visits(10)
		j := l.job(l.acting(a, nil))
		pages := l.pages(j, 1000)
		l.exec("UPDATE visit SET at = " + l.lit(asOf.Add(time.Hour)) + " WHERE id = 3")
		l.exec("DELETE FROM visit WHERE id = 4")
		got := l.execute(j, pages)
		if diff := cmp.Diff(map[string]int64{a.kind.Outcome(): 8, "no_longer_due": 1, "gone": 1}, got.outcomes); diff != "" {
			l.Error(diff)
		}
		l.expectRows(a, upTo(10, 3, 4), []int{3})
	})
}

// A row that is renewed, and committed while the batch waits for it, stays as it is.
func TestActionsRenewedUnderLock(t *testing.T) {
	eachAction(t, []Engine{Postgres, MySQL}, func(l *lab, a acting) {
		l.visits(9)
		j := l.job(l.acting(a, nil))
		pages := l.pages(j, 1000)
		commit := l.hold("UPDATE visit SET at = " + l.lit(asOf.Add(time.Hour)) + " WHERE id IN (3, 7)")
		res, err := j.Execute(t.Context(), asOf, l.work(pages[0]))
		if err != nil {
			l.Fatal(err)
		}
		if res.Outcomes[a.kind.Outcome()] != 7 || res.NDefer != 2 {
			l.Fatalf("outcomes %v, %d handed on", res.Outcomes, res.NDefer)
		}
		more, err := Split(res.Deferred, 1000)
		if err != nil || len(more) != 1 {
			l.Fatal(err, len(more))
		}
		waiting := make(chan sums, 1)
		go func() { waiting <- l.execute(j, []*Batch{&more[0]}) }()
		l.waitBlocked()
		commit()
		if diff := cmp.Diff(map[string]int64{"no_longer_due": 2}, (<-waiting).outcomes); diff != "" {
			l.Error(diff)
		}
		l.expectRows(a, upTo(9, 3, 7), []int{3, 7})
	})
}

// A guard over another table, whose row is committed while the batch waits for ours.
func TestActionsGuardedWhileWaiting(t *testing.T) {
	eachAction(t, []Engine{Postgres, MySQL}, func(l *lab, a acting) {
		l.visits(9)
		l.exec(`CREATE TABLE fine (id bigint PRIMARY KEY, visit_id bigint NOT NULL, FOREIGN KEY (visit_id) REFERENCES visit (id) ON DELETE CASCADE)`)
		j := l.job(l.acting(a, func(p *policy.Policy) {
			p.Unless = "EXISTS (SELECT 1 FROM fine WHERE fine.visit_id = visit.id)"
			p.Cascade = []string{"fine"}
		}))
		pages := l.pages(j, 1000)
		more, err := splitKeys(pages[0].Keys, 1000)
		if err != nil {
			l.Fatal(err)
		}
		commit := l.hold("INSERT INTO fine VALUES (1, 4)") // locks visit 4 against us
		waiting := make(chan sums, 1)
		go func() { waiting <- l.execute(j, []*Batch{&more[0]}) }()
		l.waitBlocked()
		commit()
		if diff := cmp.Diff(map[string]int64{a.kind.Outcome(): 8, "guarded": 1}, (<-waiting).outcomes); diff != "" {
			l.Error(diff)
		}
		l.expectRows(a, upTo(9, 4), []int{4})
	})
}

// A hold placed after the scan keeps its rows, and one placed while a batch is under way waits for it.
func TestActionsHeld(t *testing.T) {
	eachAction(t, everyEngine, func(l *lab, a acting) {
		l.visits(9)
		j := l.job(l.acting(a, func(p *policy.Policy) { p.Subject = "id" }))
		pages := l.pages(j, 1000)
		l.exec("INSERT INTO " + j.d.own("hold") + ` (id, name, relation, conditions, placed_at) VALUES ('1', 'court', 'visit', '[{"column": "name", "value": "Name 3"}]', '2026-01-01 00:00:00')`)
		l.exec("INSERT INTO " + j.d.own("hold") + ` (id, name, relation, conditions, placed_at) VALUES ('2', 'court', '*', '[{"column": "", "value": "5"}]', '2026-01-01 00:00:00')`)
		got := l.execute(j, pages)
		if diff := cmp.Diff(map[string]int64{a.kind.Outcome(): 7, "held": 2}, got.outcomes); diff != "" {
			l.Error(diff)
		}
		l.expectRows(a, upTo(9, 3, 5), []int{3, 5})
	})
}

// A hold that is placed while a batch waits for a row waits for the batch: its row is done by then, or is held.
func TestActionsHoldWhileWaiting(t *testing.T) {
	eachAction(t, []Engine{Postgres, MySQL}, func(l *lab, a acting) {
		l.visits(9)
		j := l.job(l.acting(a, nil))
		keys := l.pages(j, 1000)[0].Keys
		more, err := splitKeys(keys, 1000)
		if err != nil {
			l.Fatal(err)
		}
		commit := l.hold("UPDATE visit SET seen = at WHERE id = 7")
		waiting := make(chan sums, 1)
		go func() { waiting <- l.execute(j, []*Batch{&more[0]}) }()
		l.waitBlocked()
		placed := make(chan error, 1)
		go func() {
			tx, err := l.other.SQL.BeginTx(t.Context(), nil)
			if err == nil {
				defer tx.Rollback()
				stmt := "UPDATE curfew_hold_epoch SET epoch = epoch + 1"
				if l.engine == Postgres {
					stmt = "SELECT pg_advisory_xact_lock(" + holdLock + ")"
				}
				if _, err = tx.Exec(stmt); err == nil {
					_, err = tx.Exec("INSERT INTO " + j.d.own("hold") + ` (id, name, relation, conditions, placed_at) VALUES ('1', 'court', 'visit', '[{"column": "id", "value": "7"}]', '2026-01-01 00:00:00')`)
				}
				if err == nil {
					err = tx.Commit()
				}
			}
			placed <- err
		}()
		commit()
		first := (<-waiting).outcomes
		if err := <-placed; err != nil {
			l.Fatal(err)
		}
		if diff := cmp.Diff(map[string]int64{a.kind.Outcome(): 9}, first); diff != "" {
			l.Error(diff)
		}
		// In force from now on.
		l.visit(20, asOf.Add(-time.Hour))
		l.exec("UPDATE " + j.d.own("hold") + ` SET conditions = '[{"column": "id", "value": "20"}]'`)
		if got := l.drain(j, 1000); got.outcomes["held"] != 1 || got.planned != 1 {
			l.Errorf("outcomes %v", got.outcomes)
		}
	})
}

// A column that is another one by the time the batch commits, of the table or of its archive: nothing is changed.
func TestActionsSchemaChanged(t *testing.T) {
	eachAction(t, everyEngine, func(l *lab, a acting) {
		for _, table := range []string{"visit", "visit_old"} {
			if table == "visit_old" && a.kind != policy.Archive {
				continue
			}
			l.exec("DROP TABLE IF EXISTS visit")
			l.exec("DROP TABLE IF EXISTS visit_old")
			l.visits(5)
			j := l.job(l.acting(a, func(p *policy.Policy) { p.Name += table }))
			l.begin(j)
			pages := l.pages(j, 2)
			l.exec("ALTER TABLE " + table + " ADD COLUMN more bigint")
			if _, err := j.Execute(t.Context(), asOf, l.work(pages[0])); !errors.Is(err, ErrSchemaChanged) {
				l.Errorf("%s: got %v, want %v", table, err, ErrSchemaChanged)
			}
			if open := l.ids("SELECT count(*) FROM visit WHERE name LIKE 'Name%' AND state = 'open'")[0]; open != 5 {
				l.Errorf("%s: %d rows are as they were", table, open)
			}
			if n := l.ids("SELECT count(*) FROM visit_old")[0]; n != 0 {
				l.Errorf("%s: %d rows in the archive", table, n)
			}
		}
	})
}

// A trigger that appears while the run is under way was accepted by nobody.
func TestActionsTriggerAppears(t *testing.T) {
	eachAction(t, []Engine{Postgres, SQLite}, func(l *lab, a acting) {
		l.visits(5)
		j := l.job(l.acting(a, nil))
		l.begin(j)
		pages := l.pages(j, 2)
		event, row := "UPDATE", "NEW"
		if a.kind == policy.Archive {
			event, row = "DELETE", "OLD"
		}
		if l.engine == Postgres {
			l.exec("CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN " + row + "; END $$")
			l.exec("CREATE TRIGGER late BEFORE " + event + " ON visit FOR EACH ROW EXECUTE FUNCTION keep()")
		} else {
			l.exec("CREATE TRIGGER late BEFORE " + event + " ON visit BEGIN SELECT 1; END")
		}
		if _, err := j.Execute(t.Context(), asOf, l.work(pages[0])); !errors.Is(err, ErrSchemaChanged) {
			l.Errorf("got %v, want %v", err, ErrSchemaChanged)
		}
		l.expectRows(a, []int{}, upTo(5))
	})
}

// The same batch twice does its work once.
func TestActionsReceipts(t *testing.T) {
	eachAction(t, everyEngine, func(l *lab, a acting) {
		l.visits(10)
		j := l.job(l.acting(a, nil))
		w := l.work(l.pages(j, 4)[0])
		first, err := j.Execute(t.Context(), asOf, w)
		if err != nil {
			l.Fatal(err)
		}
		second, err := j.Execute(t.Context(), asOf, w)
		if err != nil {
			l.Fatal(err)
		}
		if !second.Settled || first.Settled || first.Outcomes[a.kind.Outcome()] != 4 || string(first.Root) != string(second.Root) {
			l.Errorf("first %+v, second %+v", first, second)
		}
		l.expectRows(a, upTo(4), []int{5, 6, 7, 8, 9, 10})
	})
}

// A shadow run asks every question and changes nothing.
func TestActionsShadow(t *testing.T) {
	eachAction(t, everyEngine, func(l *lab, a acting) {
		l.visits(10)
		j := l.job(l.acting(a, func(p *policy.Policy) { p.Mode = policy.Shadow; p.Unless = "id = 7" }))
		got := l.drain(j, 3)
		if diff := cmp.Diff(map[string]int64{"due": 9, "guarded": 1}, got.outcomes); diff != "" {
			l.Error(diff)
		}
		l.expectRows(a, []int{}, upTo(10))
	})
}

// A trigger that keeps some rows as they are, without a word: those are blocked, and the rest is done.
func TestActionsTriggerVetoes(t *testing.T) {
	eachAction(t, everyEngine, func(l *lab, a acting) {
		l.visits(20)
		switch column := map[policy.ActionKind]string{policy.Set: "state", policy.Anonymise: "name"}[a.kind]; {
		case a.kind == policy.Archive && l.engine == Postgres:
			l.exec(`CREATE FUNCTION veto() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.id % 5 = 0 THEN RETURN NULL; END IF; RETURN OLD; END $$`)
			l.exec(`CREATE TRIGGER veto BEFORE DELETE ON visit FOR EACH ROW EXECUTE FUNCTION veto()`)
		case a.kind == policy.Archive && l.engine == MySQL:
			return // has no such triggers
		case a.kind == policy.Archive:
			l.exec(`CREATE TRIGGER veto BEFORE DELETE ON visit WHEN OLD.id % 5 = 0 BEGIN SELECT RAISE(IGNORE); END`)
		case l.engine == Postgres: // half of them are kept whole, of the other half one column
			l.exec(`CREATE FUNCTION veto() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.id % 10 = 0 THEN RETURN NULL; END IF; IF OLD.id % 5 = 0 THEN NEW.` + column + ` = OLD.` + column + `; END IF; RETURN NEW; END $$`)
			l.exec(`CREATE TRIGGER veto BEFORE UPDATE ON visit FOR EACH ROW EXECUTE FUNCTION veto()`)
		case l.engine == MySQL:
			l.exec(`CREATE TRIGGER veto BEFORE UPDATE ON visit FOR EACH ROW BEGIN IF OLD.id % 5 = 0 THEN SET NEW.` + column + ` = OLD.` + column + `; END IF; END`)
		default:
			l.exec(`CREATE TRIGGER veto BEFORE UPDATE ON visit WHEN OLD.id % 5 = 0 BEGIN SELECT RAISE(IGNORE); END`)
		}
		got := l.drain(l.job(l.acting(a, func(p *policy.Policy) { p.Triggers = []string{"veto"} })), 7)
		if diff := cmp.Diff(map[string]int64{a.kind.Outcome(): 16, "blocked": 4}, got.outcomes); diff != "" {
			l.Error(diff)
		}
		for _, r := range got.rows {
			if r.Reason != reasonVeto {
				l.Errorf("reason %q", r.Reason)
			}
		}
		l.expectRows(a, upTo(20, 5, 10, 15, 20), []int{5, 10, 15, 20})
	})
}

// A trigger that refuses some rows in words.
func TestActionsTriggerRefuses(t *testing.T) {
	eachAction(t, everyEngine, func(l *lab, a acting) {
		l.visits(9)
		event, row := "UPDATE", "NEW"
		if a.kind == policy.Archive {
			event, row = "DELETE", "OLD"
		}
		switch l.engine {
		case Postgres:
			l.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.id = 5 THEN RAISE 'no, % stays', OLD.name; END IF; RETURN ` + row + `; END $$`)
			l.exec(`CREATE TRIGGER refuse BEFORE ` + event + ` ON visit FOR EACH ROW EXECUTE FUNCTION refuse()`)
		case MySQL:
			l.exec(`CREATE TRIGGER refuse BEFORE ` + event + ` ON visit FOR EACH ROW BEGIN IF OLD.id = 5 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'; END IF; END`)
		default:
			l.exec(`CREATE TRIGGER refuse BEFORE ` + event + ` ON visit WHEN OLD.id = 5 BEGIN SELECT RAISE(ABORT, 'no'); END`)
		}
		got := l.drain(l.job(l.acting(a, func(p *policy.Policy) { p.Triggers = []string{"refuse"} })), 7)
		if diff := cmp.Diff(map[string]int64{a.kind.Outcome(): 8, "blocked": 1}, got.outcomes); diff != "" {
			l.Error(diff)
		}
		l.expectRows(a, upTo(9, 5), []int{5})
	})
}

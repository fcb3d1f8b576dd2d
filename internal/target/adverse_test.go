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

// A table that is rewritten (VACUUM FULL) between the scan and the commit, or between two pages, has its rows at other
// addresses: no due row is missed, and none is counted that is still there.
func TestRewrittenHeap(t *testing.T) {
	build := func(t *testing.T) (*lab, *Job) {
		l := newLab(t, Postgres)
		l.exec(`CREATE TABLE session (id bigint NOT NULL PRIMARY KEY, at timestamptz NOT NULL, note text)`)
		l.exec(`INSERT INTO session SELECT g, '2026-03-29 01:00:00+00'::timestamptz + (random() - 0.7) * interval '100 days', repeat('x', 100) FROM generate_series(1, 3000) g`)
		l.exec(`CREATE INDEX ON session (at)`)
		l.exec(`ANALYZE session`)
		l.exec(`DELETE FROM session WHERE id % 3 = 0`) // the holes that the rewrite closes
		j := l.job(l.policy("session", nil))
		if err := j.ChooseStrategy(t.Context()); err != nil || j.Strategy() != ByPlace {
			t.Fatalf("strategy %s, %v", j.Strategy(), err)
		}
		return l, j
	}
	due := "SELECT count(*) FROM session WHERE at < '2026-03-29 01:00:00+00'"
	t.Run("before the commit", func(t *testing.T) {
		l, j := build(t)
		want := l.ids(due)[0]
		pages := l.pages(j, 200)
		l.exec("VACUUM FULL session")
		got := l.execute(j, pages)
		if got.outcomes["deleted"] != int64(want) || l.ids(due)[0] != 0 {
			t.Errorf("%d were due, outcomes %v, %d left", want, got.outcomes, l.ids(due)[0])
		}
	})
	t.Run("between pages", func(t *testing.T) {
		l, j := build(t)
		want := l.ids(due)[0]
		first, err := j.Page(t.Context(), nil, 200)
		for err == nil && first.Batch == nil {
			first, err = j.Page(t.Context(), first.Cursor, 200)
		}
		if err != nil {
			t.Fatal(err)
		}
		got := l.execute(j, []*Batch{first.Batch})
		l.exec("VACUUM FULL session")
		for at := first.Cursor; ; {
			p, err := j.Page(t.Context(), at, 200)
			if err != nil {
				t.Fatal(err)
			}
			if p.Batch != nil {
				got.outcomes["deleted"] += l.execute(j, []*Batch{p.Batch}).outcomes["deleted"]
			}
			if at = p.Cursor; p.Done {
				break
			}
		}
		if got.outcomes["deleted"] != int64(want) || l.ids(due)[0] != 0 {
			t.Errorf("%d were due, %d deleted, %d left", want, got.outcomes["deleted"], l.ids(due)[0])
		}
	})
}

// A scope over another table, whose row is committed while the batch waits for the lock on ours: the row is out of scope now.
func TestScopeLeftWhileWaiting(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.sessions(10)
		l.exec(`CREATE TABLE fine (id bigint PRIMARY KEY, session_id bigint NOT NULL, FOREIGN KEY (session_id) REFERENCES session (id) ON DELETE CASCADE)`)
		j := l.job(l.policy("session", func(p *policy.Policy) {
			p.Where = "NOT EXISTS (SELECT 1 FROM fine WHERE fine.session_id = session.id)"
			p.Cascade = []string{"fine"}
		}))
		pages := l.pages(j, 1000)
		commit := l.hold("INSERT INTO fine VALUES (1, 4)")
		// In the pass that waits: InnoDB has its view of the fines from the first row on, and waits at the fourth.
		more, err := splitKeys(pages[0].Keys, 1000)
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan sums, 1)
		go func() { waiting <- l.execute(j, []*Batch{&more[0]}) }()
		l.waitBlocked()
		commit()
		if got := <-waiting; got.outcomes["no_longer_due"] != 1 {
			t.Errorf("outcomes %v", got.outcomes)
		}
		if diff := cmp.Diff([]int{4}, l.ids("SELECT id FROM session")); diff != "" {
			t.Error(diff)
		}
		if n := l.ids("SELECT count(*) FROM fine")[0]; n != 1 {
			t.Errorf("%d fines left", n)
		}
	})
}

// A trigger that fails in its own way, without raising, keeps its row like one that raises.
func TestTriggerFails(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.sessions(20)
		if l.engine == Postgres {
			l.exec(`CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.id = 5 THEN PERFORM 1 / (OLD.id - 5); ELSIF OLD.id = 6 THEN PERFORM nothing_there FROM session; END IF; RETURN OLD; END $$`)
			l.exec(`CREATE TRIGGER fails BEFORE DELETE ON session FOR EACH ROW EXECUTE FUNCTION fails()`)
		} else {
			l.exec(`CREATE TRIGGER fails BEFORE DELETE ON session FOR EACH ROW BEGIN IF OLD.id IN (5, 6) THEN INSERT INTO nothing_there VALUES (1); END IF; END`)
		}
		got := l.drain(l.job(l.policy("session", func(p *policy.Policy) { p.Triggers = []string{"fails"} })), 7)
		if diff := cmp.Diff(map[string]int64{"deleted": 18, "blocked": 2}, got.outcomes); diff != "" {
			t.Error(diff)
		}
	})
}

// A hold on a child's row keeps the row that it would go along with; one that names our table in another spelling is obeyed.
func TestHoldsThroughCascadeAndSpelling(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(5)
		l.exec(`CREATE TABLE fine (id bigint PRIMARY KEY, session_id bigint NOT NULL, FOREIGN KEY (session_id) REFERENCES session (id) ON DELETE CASCADE)`)
		l.exec("INSERT INTO fine VALUES (7, 2)")
		j := l.job(l.policy("session", func(p *policy.Policy) { p.Cascade = []string{"fine"} }))
		pages := l.pages(j, 1000)
		place := func(id, relation, column, value string) {
			l.exec("INSERT INTO " + j.d.own("hold") + fmt.Sprintf(` (id, name, relation, conditions, placed_at) VALUES ('%s', 'court', '%s', '[{"column": "%s", "value": "%s"}]', '2026-01-01 00:00:00')`, id, relation, column, value))
		}
		place("0", "fine", "nothing", "7")
		if _, err := j.Execute(t.Context(), asOf, l.work(pages[0])); !errors.Is(err, ErrHold) {
			t.Errorf("a hold on a column that the child does not have: %v", err)
		}
		l.exec("DELETE FROM " + j.d.own("hold"))
		place("1", "fine", "id", "7")
		place("2", "any.session", "id", "3")
		l.execute(j, pages)
		if diff := cmp.Diff([]int{2, 3}, l.ids("SELECT id FROM session ORDER BY id")); diff != "" {
			t.Error(diff)
		}
	})
}

// Rows that our own cascade took are deleted, not gone by another hand.
func TestSelfCascade(t *testing.T) {
	onEach(t, func(l *lab) {
		typ, _ := l.instant()
		l.exec("CREATE TABLE node (id bigint NOT NULL PRIMARY KEY, up bigint, at " + typ + " NOT NULL, FOREIGN KEY (up) REFERENCES node (id) ON DELETE CASCADE)")
		for i, up := range []string{"NULL", "1", "2", "NULL"} {
			l.exec(fmt.Sprintf("INSERT INTO node VALUES (%d, %s, %s)", i+1, up, l.lit(asOf.Add(-time.Hour))))
		}
		got := l.drain(l.job(l.policy("node", func(p *policy.Policy) { p.Cascade = []string{"node"} })), 1000)
		if got.outcomes["gone"] != 0 || got.outcomes["deleted"]+got.cascaded != 4 || len(l.ids("SELECT id FROM node")) != 0 {
			t.Errorf("outcomes %v, cascaded %d", got.outcomes, got.cascaded)
		}
	})
}

// MySQL reads "column" as a text: a condition written so is about a constant, and is refused.
func TestDoubleQuotesOnMySQL(t *testing.T) {
	l := newLab(t, MySQL)
	l.sessions(1)
	tab, err := l.db.Inspect(t.Context(), "session")
	if err != nil {
		t.Fatal(err)
	}
	for where, refused := range map[string]bool{`"state" <> 'open'`: true, "`state` <> 'op\"en'": false} {
		p := l.policy("session", func(p *policy.Policy) { p.Where = where })
		got := slices.ContainsFunc(Judge(p, tab, l.db.Described()), func(f Finding) bool { return f.Code == "double_quotes" && f.Level == LevelRefuse })
		if got != refused {
			t.Errorf("%s: refused %v, want %v", where, got, refused)
		}
	}
}

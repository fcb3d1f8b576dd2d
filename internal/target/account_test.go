package target

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/policy"
)

// engineIn runs the test on the engines named.
func engineIn(t *testing.T, engines []Engine, test func(l *lab)) {
	for _, e := range engines {
		t.Run(string(e), func(t *testing.T) { test(newLab(t, e)) })
	}
}

// One row that a foreign key keeps does not sink the other ninety-nine, whether the constraint speaks at once or at COMMIT.
func TestBlockedByForeignKey(t *testing.T) {
	for _, deferred := range []bool{false, true} {
		for _, n := range []int{1, 7, 1000} {
			engines := []Engine{Postgres, MySQL, SQLite}
			if deferred {
				engines = []Engine{Postgres, SQLite} // InnoDB has no deferred constraints
			}
			t.Run(fmt.Sprintf("deferred=%v/rows=%d", deferred, n), func(t *testing.T) {
				engineIn(t, engines, func(l *lab) {
					l.sessions(100)
					clause := ""
					if deferred {
						clause = " DEFERRABLE INITIALLY DEFERRED"
					}
					l.exec("CREATE TABLE claim (id bigint PRIMARY KEY, session_id bigint NOT NULL, CONSTRAINT claim_session FOREIGN KEY (session_id) REFERENCES session (id)" + clause + ")")
					l.exec("INSERT INTO claim VALUES (1, 42)")
					got := l.drain(l.job(l.policy("session", nil)), n)
					if diff := cmp.Diff(map[string]int64{"deleted": 99, "blocked": 1}, got.outcomes); diff != "" {
						t.Error(diff)
					}
					if len(got.rows) != 1 || got.rows[0].Outcome != "blocked" || !strings.Contains(got.rows[0].Reason, "claim") {
						t.Errorf("rows told of: %+v", got.rows)
					}
					if diff := cmp.Diff([]int{42}, l.ids("SELECT id FROM session")); diff != "" {
						t.Error(diff)
					}
				})
			})
		}
	}
}

// A table whose rows reference each other goes as a whole when all of it is due, and keeps what a living row references.
func TestSelfReference(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(0)
		typ, _ := l.instant()
		l.exec("CREATE TABLE node (id bigint NOT NULL PRIMARY KEY, up bigint, at " + typ + " NOT NULL, FOREIGN KEY (up) REFERENCES node (id))")
		old := l.lit(asOf.Add(-time.Hour))
		for _, row := range []string{"1, NULL", "2, 1", "3, 2", "4, NULL"} {
			l.exec("INSERT INTO node VALUES (" + row + ", " + old + ")")
		}
		l.exec("INSERT INTO node VALUES (5, 4, " + l.lit(asOf.Add(time.Hour)) + ")")
		got := l.drain(l.job(l.policy("node", nil)), 1000)
		if diff := cmp.Diff(map[string]int64{"deleted": 3, "blocked": 1}, got.outcomes); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]int{4, 5}, l.ids("SELECT id FROM node ORDER BY id")); diff != "" {
			t.Error(diff)
		}
	})
}

// A trigger that raises keeps its row; the rest goes.
func TestTriggerRefuses(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(20)
		switch l.engine {
		case Postgres:
			l.exec(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.id = 5 THEN RAISE EXCEPTION 'no, 5 stays'; END IF; RETURN OLD; END $$`)
			l.exec(`CREATE TRIGGER refuse BEFORE DELETE ON session FOR EACH ROW EXECUTE FUNCTION refuse()`)
		case MySQL:
			l.exec(`CREATE TRIGGER refuse BEFORE DELETE ON session FOR EACH ROW BEGIN IF OLD.id = 5 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no, 5 stays'; END IF; END`)
		default:
			l.exec(`CREATE TRIGGER refuse BEFORE DELETE ON session WHEN OLD.id = 5 BEGIN SELECT RAISE(ABORT, 'no, 5 stays'); END`)
		}
		got := l.drain(l.job(l.policy("session", func(p *policy.Policy) { p.Triggers = []string{"refuse"} })), 7)
		if diff := cmp.Diff(map[string]int64{"deleted": 19, "blocked": 1}, got.outcomes); diff != "" {
			t.Error(diff)
		}
	})
}

// A trigger that vetoes in silence: the statement succeeds, the row is still there, and is accounted for.
func TestTriggerVetoes(t *testing.T) {
	engineIn(t, []Engine{Postgres, SQLite}, func(l *lab) {
		l.sessions(20)
		if l.engine == Postgres {
			l.exec(`CREATE FUNCTION veto() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.id % 5 = 0 THEN RETURN NULL; END IF; RETURN OLD; END $$`)
			l.exec(`CREATE TRIGGER veto BEFORE DELETE ON session FOR EACH ROW EXECUTE FUNCTION veto()`)
		} else {
			l.exec(`CREATE TRIGGER veto BEFORE DELETE ON session WHEN OLD.id % 5 = 0 BEGIN SELECT RAISE(IGNORE); END`)
		}
		for _, careful := range []bool{false, true} {
			j := l.job(l.policy("session", func(p *policy.Policy) { p.Triggers = []string{"veto"} }))
			j.careful = careful
			if careful {
				j.run = strings.Repeat("b", 64)
			}
			got := l.drain(j, 7)
			if got.outcomes["blocked"] != 4 || len(l.ids("SELECT id FROM session")) != 4 {
				t.Errorf("careful=%v: outcomes %v", careful, got.outcomes)
			}
			for _, r := range got.rows {
				if r.Reason != reasonVeto {
					t.Errorf("reason %q", r.Reason)
				}
			}
		}
	})
}

// A trigger that removes other rows of the table: some of them are planned in this page, some in the next.
func TestTriggerRemovesSiblings(t *testing.T) {
	engineIn(t, []Engine{Postgres, SQLite}, func(l *lab) { // MySQL forbids such triggers
		l.sessions(20)
		if l.engine == Postgres {
			l.exec(`CREATE FUNCTION siblings() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM session WHERE id IN (OLD.id + 1, OLD.id + 10); RETURN NULL; END $$`)
			l.exec(`CREATE TRIGGER siblings AFTER DELETE ON session FOR EACH ROW WHEN (OLD.id IN (2, 9)) EXECUTE FUNCTION siblings()`)
		} else {
			l.exec(`CREATE TRIGGER siblings AFTER DELETE ON session WHEN OLD.id IN (2, 9) BEGIN DELETE FROM session WHERE id IN (OLD.id + 1, OLD.id + 10); END`)
		}
		got := l.drain(l.job(l.policy("session", func(p *policy.Policy) { p.Triggers = []string{"siblings"} })), 5)
		if got.planned != 20 || got.outcomes["deleted"]+got.outcomes["gone"] != 20 || len(l.ids("SELECT id FROM session")) != 0 {
			t.Errorf("planned %d, outcomes %v", got.planned, got.outcomes)
		}
	})
}

// Children that go along are counted apart, through two levels, and set-null children are not.
func TestCascadeIsCounted(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(10)
		l.exec(`CREATE TABLE token (id bigint PRIMARY KEY, session_id bigint, FOREIGN KEY (session_id) REFERENCES session (id) ON DELETE CASCADE)`)
		l.exec(`CREATE TABLE scope (id bigint PRIMARY KEY, token_id bigint, FOREIGN KEY (token_id) REFERENCES token (id) ON DELETE CASCADE)`)
		l.exec(`CREATE TABLE visit (id bigint PRIMARY KEY, session_id bigint, FOREIGN KEY (session_id) REFERENCES session (id) ON DELETE SET NULL)`)
		l.exec(`INSERT INTO session VALUES (50, ` + l.lit(asOf.Add(time.Hour)) + `, 'open')`)
		for i := range 30 {
			parent := []int{1, 2, 50}[i%3]
			l.exec(fmt.Sprintf("INSERT INTO token VALUES (%d, %d)", i, parent))
			l.exec(fmt.Sprintf("INSERT INTO scope VALUES (%d, %d)", i, i))
			l.exec(fmt.Sprintf("INSERT INTO visit VALUES (%d, %d)", i, parent))
		}
		got := l.drain(l.job(l.policy("session", func(p *policy.Policy) { p.Cascade = []string{"token", "scope", "visit"} })), 3)
		if got.outcomes["deleted"] != 10 || got.cascaded != 40 {
			t.Errorf("outcomes %v, cascaded %d", got.outcomes, got.cascaded)
		}
		left := []int{l.ids("SELECT count(*) FROM token")[0], l.ids("SELECT count(*) FROM scope")[0], l.ids("SELECT count(*) FROM visit WHERE session_id IS NOT NULL")[0]}
		if diff := cmp.Diff([]int{10, 10, 10}, left); diff != "" {
			t.Error(diff)
		}
	})
}

// A guard over another table, whose row is committed while the batch waits for the lock on ours.
func TestGuardPlacedWhileWaiting(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.sessions(10)
		l.exec(`CREATE TABLE fine (id bigint PRIMARY KEY, session_id bigint NOT NULL, paid boolean NOT NULL, FOREIGN KEY (session_id) REFERENCES session (id) ON DELETE CASCADE)`)
		j := l.job(l.policy("session", func(p *policy.Policy) {
			p.Unless = "EXISTS (SELECT 1 FROM fine WHERE fine.session_id = session.id AND NOT fine.paid)"
			p.Cascade = []string{"fine"}
		}))
		pages := l.pages(j, 1000)
		commit := l.hold("INSERT INTO fine VALUES (1, 4, false)") // locks session 4 against us
		res, err := j.Execute(t.Context(), asOf, l.work(pages[0]))
		if err != nil {
			t.Fatal(err)
		}
		if res.Outcomes["deleted"] != 9 || res.NDefer != 1 {
			t.Fatalf("outcomes %v, handed on %d", res.Outcomes, res.NDefer)
		}
		more, err := Split(res.Deferred, 1000)
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan sums, 1)
		go func() { waiting <- l.execute(j, []*Batch{&more[0]}) }()
		l.waitBlocked()
		commit()
		if diff := cmp.Diff(map[string]int64{"guarded": 1}, (<-waiting).outcomes); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]int{4}, l.ids("SELECT id FROM session")); diff != "" {
			t.Error(diff)
		}
	})
}

// Rows under a legal hold stay and are told apart; the hold counts from the moment it is committed.
func TestHeld(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(10)
		j := l.job(l.policy("session", func(p *policy.Policy) { p.Subject = "id" }))
		pages := l.pages(j, 1000)
		l.exec("INSERT INTO " + j.d.own("hold") + ` (id, name, relation, conditions, placed_at) VALUES ('1', 'court', 'session', '[{"column": "id", "value": "3"}]', '2026-01-01 00:00:00')`)
		l.exec("INSERT INTO " + j.d.own("hold") + ` (id, name, relation, conditions, placed_at) VALUES ('2', 'court', '*', '[{"column": "", "value": "5"}]', '2026-01-01 00:00:00')`)
		got := l.execute(j, pages)
		if diff := cmp.Diff(map[string]int64{"deleted": 8, "held": 2}, got.outcomes); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]int{3, 5}, l.ids("SELECT id FROM session ORDER BY id")); diff != "" {
			t.Error(diff)
		}
		l.exec("INSERT INTO " + j.d.own("hold") + ` (id, name, relation, conditions, placed_at) VALUES ('3', 'court', 'session', '[{"column": "nothing", "value": "3"}]', '2026-01-01 00:00:00')`)
		if _, err := j.Execute(t.Context(), asOf, l.work(l.pages(j, 1000)[0])); !errors.Is(err, ErrHold) {
			t.Errorf("a hold on a column that is not there: %v", err)
		}
	})
}

// A shadow run asks every question and writes nothing, not even a receipt.
func TestShadow(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(10)
		l.exec("CREATE TABLE claim (id bigint PRIMARY KEY, session_id bigint NOT NULL, CONSTRAINT claim_session FOREIGN KEY (session_id) REFERENCES session (id))")
		l.exec("INSERT INTO claim VALUES (1, 4)")
		j := l.job(l.policy("session", func(p *policy.Policy) { p.Mode = policy.Shadow; p.Unless = "id = 7" }))
		got := l.drain(j, 3)
		if diff := cmp.Diff(map[string]int64{"due": 8, "guarded": 1, "blocked": 1}, got.outcomes); diff != "" {
			t.Error(diff)
		}
		if n := l.ids("SELECT count(*) FROM session")[0]; n != 10 {
			t.Errorf("%d rows left", n)
		}
		if n := l.ids("SELECT count(*) FROM " + j.d.own("receipt"))[0]; n != 0 {
			t.Errorf("%d receipts", n)
		}
	})
}

// A row that moves to another partition while the batch waits for it is due no longer, or still goes; either way the sums hold.
func TestMovedPartition(t *testing.T) {
	engineIn(t, []Engine{Postgres}, func(l *lab) {
		l.exec(`CREATE TABLE part (id bigint NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)`)
		l.exec(`CREATE TABLE part_old PARTITION OF part FOR VALUES FROM (MINVALUE) TO ('2026-03-29 01:00:00+00')`)
		l.exec(`CREATE TABLE part_new PARTITION OF part FOR VALUES FROM ('2026-03-29 01:00:00+00') TO (MAXVALUE)`)
		l.exec(`INSERT INTO part SELECT g, '2026-03-01 00:00:00+00'::timestamptz + g * interval '1 minute' FROM generate_series(1, 50) g`)
		l.exec(`CREATE INDEX ON part (at)`)
		j := l.job(l.policy("part", nil))
		pages := l.pages(j, 1000)
		commit := l.hold(`UPDATE part SET at = '2026-04-29 01:00:00+00' WHERE id IN (7, 9)`)
		waiting := make(chan sums, 1)
		go func() { waiting <- l.execute(j, pages) }()
		l.waitBlocked()
		commit()
		got := <-waiting
		if got.planned != 50 || got.outcomes["deleted"] != 48 || got.outcomes["gone"]+got.outcomes["no_longer_due"] != 2 {
			t.Errorf("planned %d, outcomes %v", got.planned, got.outcomes)
		}
		if diff := cmp.Diff([]int{7, 9}, l.ids("SELECT id FROM part ORDER BY id")); diff != "" {
			t.Error(diff)
		}
	})
}

// Rows of an inheritance child are not ours.
func TestInheritance(t *testing.T) {
	engineIn(t, []Engine{Postgres}, func(l *lab) {
		l.sessions(5)
		l.exec(`CREATE TABLE special () INHERITS (session)`)
		l.exec(`INSERT INTO special SELECT id + 100, at, state FROM ONLY session`)
		got := l.drain(l.job(l.policy("session", nil)), 2)
		if got.outcomes["deleted"] != 5 || l.ids("SELECT count(*) FROM special")[0] != 5 {
			t.Errorf("outcomes %v", got.outcomes)
		}
	})
}

// A trigger that ends the whole transaction: the batch is refused, and nothing was changed behind the receipt's back.
func TestTriggerRollsBack(t *testing.T) {
	engineIn(t, []Engine{SQLite}, func(l *lab) {
		l.sessions(20)
		l.exec(`CREATE TRIGGER rollback BEFORE DELETE ON session WHEN OLD.id = 5 BEGIN SELECT RAISE(ROLLBACK, 'all or nothing'); END`)
		j := l.job(l.policy("session", func(p *policy.Policy) { p.Triggers = []string{"rollback"} }))
		if _, err := j.Execute(t.Context(), asOf, l.work(l.pages(j, 1000)[0])); err == nil || !strings.Contains(err.Error(), "rolled the whole batch back") {
			t.Errorf("got %v", err)
		}
		if n := l.ids("SELECT count(*) FROM session")[0]; n != 20 {
			t.Errorf("%d rows left", n)
		}
		if n := l.ids("SELECT count(*) FROM curfew_receipt")[0]; n != 0 {
			t.Errorf("%d receipts", n)
		}
	})
}

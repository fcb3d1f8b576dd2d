package target

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/policy"
)

// sessions makes a table of n rows, ids 1 to n, all long overdue.
func (l *lab) sessions(n int) {
	typ, _ := l.instant()
	l.exec("CREATE TABLE session (id bigint NOT NULL PRIMARY KEY, at " + typ + " NOT NULL, state varchar(20) NOT NULL)")
	for i := range n {
		l.exec(fmt.Sprintf("INSERT INTO session VALUES (%d, %s, 'open')", i+1, l.lit(asOf.Add(-time.Duration(n-i)*time.Hour))))
	}
	l.exec("CREATE INDEX session_at ON session (at)")
}

func TestWholeRun(t *testing.T) {
	for _, n := range []int{1, 7, 1000} {
		onEach(t, func(l *lab) {
			l.sessions(20)
			l.exec("INSERT INTO session VALUES (100, " + l.lit(asOf) + ", 'open')") // exactly at the cutoff: stays
			l.exec("INSERT INTO session VALUES (101, " + l.lit(asOf.Add(time.Microsecond)) + ", 'open')")
			j := l.job(l.policy("session", nil))
			got := l.drain(j, n)
			if got.planned != 20 || got.outcomes["deleted"] != 20 {
				t.Errorf("planned %d, outcomes %v", got.planned, got.outcomes)
			}
			if diff := cmp.Diff([]int{100, 101}, l.ids("SELECT id FROM session ORDER BY id")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A row that was renewed after the scan stays; one that was removed is gone by another hand; a new due row behind the cursor
// is left for the next run.
func TestChangedBetweenScanAndCommit(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(10)
		j := l.job(l.policy("session", nil))
		pages := l.pages(j, 1000)
		l.exec("UPDATE session SET at = " + l.lit(asOf.Add(time.Hour)) + " WHERE id = 3")
		l.exec("DELETE FROM session WHERE id = 4")
		got := l.execute(j, pages)
		want := map[string]int64{"deleted": 8, "no_longer_due": 1, "gone": 1}
		if diff := cmp.Diff(want, got.outcomes); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]int{3}, l.ids("SELECT id FROM session")); diff != "" {
			t.Error(diff)
		}
	})
}

// A renewal that is not yet committed when the batch comes by: the row is left alone until the pass at the end, and stays.
func TestRenewedUnderLock(t *testing.T) {
	for _, e := range []Engine{Postgres, MySQL} { // SQLite has one writer: there is no such moment
		for _, careful := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/careful=%v", e, careful), func(t *testing.T) {
				l := newLab(t, e)
				l.sessions(10)
				j := l.job(l.policy("session", nil))
				j.careful = j.careful || careful
				pages := l.pages(j, 1000)
				commit := l.hold("UPDATE session SET at = " + l.lit(asOf.Add(time.Hour)) + " WHERE id IN (3, 7)")
				res, err := j.Execute(t.Context(), asOf, l.work(pages[0]))
				if err != nil {
					t.Fatal(err)
				}
				if res.Outcomes["deleted"] != 8 || res.NDefer != 2 {
					t.Fatalf("outcomes %v, %d handed on", res.Outcomes, res.NDefer)
				}
				more, err := Split(res.Deferred, 1000)
				if err != nil || len(more) != 1 {
					t.Fatal(err, len(more))
				}
				// The pass at the end waits; the renewal commits while it does.
				waiting := make(chan sums, 1)
				go func() { waiting <- l.execute(j, []*Batch{&more[0]}) }()
				l.waitBlocked()
				commit()
				got := <-waiting
				if diff := cmp.Diff(map[string]int64{"no_longer_due": 2}, got.outcomes); diff != "" {
					t.Error(diff)
				}
				if diff := cmp.Diff([]int{3, 7}, l.ids("SELECT id FROM session ORDER BY id")); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// Every row of the batch locked: none is blamed on the database, all wait for their second chance, and what is locked even
// then is told.
func TestAllLocked(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.sessions(3)
		j := l.job(l.policy("session", nil))
		pages := l.pages(j, 1000)
		commit := l.hold("UPDATE session SET state = 'busy'")
		res, err := j.Execute(t.Context(), asOf, l.work(pages[0]))
		if err != nil {
			t.Fatal(err)
		}
		if res.Planned != 0 || res.NDefer != 3 {
			t.Fatalf("outcomes %v, %d handed on", res.Outcomes, res.NDefer)
		}
		more, err := Split(res.Deferred, 1000)
		if err != nil {
			t.Fatal(err)
		}
		got := l.execute(j, []*Batch{&more[0]})
		if diff := cmp.Diff(map[string]int64{"locked": 3}, got.outcomes); diff != "" {
			t.Error(diff)
		}
		commit()
		if n := l.ids("SELECT count(*) FROM session")[0]; n != 3 {
			t.Errorf("%d rows left", n)
		}
	})
}

// waitBlocked returns when a session of this database waits for a lock.
func (l *lab) waitBlocked() {
	l.Helper()
	query := map[Engine]string{
		Postgres: "SELECT count(*) FROM pg_locks WHERE NOT granted",
		// InnoDB's own view is a picture that is renewed only while nobody looks. A statement this long is one that waits.
		MySQL: "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND command <> 'Sleep' AND id <> CONNECTION_ID() AND time_ms > 300",
	}[l.engine]
	ctx, cancel := context.WithTimeout(l.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for range tick.C {
		var n int
		if err := l.other.SQL.QueryRowContext(ctx, query).Scan(&n); err != nil {
			l.Fatal(err)
		}
		if n > 0 {
			return
		}
	}
}

// The same batch twice does its work once; another batch in its place, a late one and one under another table are refused.
func TestReceipts(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(10)
		j := l.job(l.policy("session", nil))
		pages := l.pages(j, 4)
		w := l.work(pages[0])
		first, err := j.Execute(t.Context(), asOf, w)
		if err != nil {
			t.Fatal(err)
		}
		l.exec("INSERT INTO session VALUES (1, " + l.lit(asOf.Add(-100*time.Hour)) + ", 'again')")
		second, err := j.Execute(t.Context(), asOf, w)
		if err != nil {
			t.Fatal(err)
		}
		if !second.Settled || first.Settled || second.Planned != 4 || !cmp.Equal(first.Outcomes, second.Outcomes) || string(first.Root) != string(second.Root) {
			t.Errorf("first %+v, second %+v", first, second)
		}
		if got := l.ids("SELECT count(*) FROM session"); got[0] != 7 {
			t.Errorf("%d rows left: the second execution changed something", got[0])
		}
		other := l.work(pages[1])
		other.Seq = w.Seq
		if _, err := j.Execute(t.Context(), asOf, other); !errors.Is(err, ErrDiverged) {
			t.Errorf("other rows under the same number: %v", err)
		}
		l.exec("DELETE FROM " + j.d.own("receipt"))
		l.exec("INSERT INTO " + j.d.own("tombstone") + " (run, receipts, dropped_at) VALUES ('" + j.run + "', 1, '2026-01-01 00:00:00')")
		if _, err := j.Execute(t.Context(), asOf, w); !errors.Is(err, ErrLate) {
			t.Errorf("a batch whose receipt was dropped: %v", err)
		}
		if got := l.ids("SELECT count(*) FROM session"); got[0] != 7 {
			t.Errorf("%d rows left", got[0])
		}
	})
}

// A key column that is another one by the time the batch commits: nothing is deleted.
func TestSchemaChanged(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(5)
		l.exec("ALTER TABLE session ADD COLUMN x bigint")
		l.exec("UPDATE session SET x = 6 - id")
		j := l.job(l.policy("session", func(p *policy.Policy) { p.Where = "id <> 99" }))
		pages := l.pages(j, 2)
		l.exec("ALTER TABLE session RENAME COLUMN id TO old_id")
		l.exec("ALTER TABLE session RENAME COLUMN x TO id")
		if _, err := j.Execute(t.Context(), asOf, l.work(pages[0])); !errors.Is(err, ErrSchemaChanged) {
			t.Errorf("got %v, want %v", err, ErrSchemaChanged)
		}
		if got := l.ids("SELECT count(*) FROM session"); got[0] != 5 {
			t.Errorf("%d rows left", got[0])
		}
	})
}

// Receipts that were dropped leave a tombstone: a batch of that run which comes late is refused, one of another run is not.
func TestDropReceipts(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(10)
		j := l.job(l.policy("session", nil))
		pages := l.pages(j, 5)
		late := l.work(pages[0])
		if _, err := j.Execute(t.Context(), asOf, late); err != nil {
			t.Fatal(err)
		}
		if runs, err := l.db.ReceiptRuns(t.Context(), time.Now().Add(-time.Hour)); err != nil || len(runs) != 0 {
			t.Errorf("receipts of before an hour ago: %v, %v", runs, err)
		}
		runs, err := l.db.ReceiptRuns(t.Context(), time.Now().Add(time.Hour))
		if err != nil || len(runs) != 1 || runs[0] != j.run {
			t.Fatalf("runs with receipts: %v, %v", runs, err)
		}
		for range 2 { // again changes nothing
			if _, err := l.db.DropReceipts(t.Context(), j.run); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := j.Execute(t.Context(), asOf, late); !errors.Is(err, ErrLate) {
			t.Errorf("a late batch: %v", err)
		}
		other := l.job(l.policy("session", func(p *policy.Policy) { p.Name = "other" }))
		if _, err := other.Execute(t.Context(), asOf, l.work(pages[1])); err != nil {
			t.Errorf("a batch of another run: %v", err)
		}
		if n := l.ids("SELECT count(*) FROM session")[0]; n != 0 {
			t.Errorf("%d rows left", n)
		}
	})
}

// A cascade, or a delete trigger, that comes after the run began was not accepted by anybody.
func TestCascadeAppears(t *testing.T) {
	engineIn(t, []Engine{Postgres, SQLite}, func(l *lab) {
		if l.engine == Postgres {
			l.exec("CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$")
		}
		for _, ddl := range []string{
			"CREATE TABLE late (id bigint PRIMARY KEY, session_id bigint REFERENCES session (id) ON DELETE CASCADE)",
			map[Engine]string{
				Postgres: "CREATE TRIGGER late BEFORE DELETE ON session FOR EACH ROW EXECUTE FUNCTION keep()",
				SQLite:   "CREATE TRIGGER late BEFORE DELETE ON session BEGIN SELECT 1; END",
			}[l.engine],
		} {
			l.exec("DROP TABLE IF EXISTS late")
			l.exec("DROP TABLE IF EXISTS session")
			l.sessions(5)
			j := l.job(l.policy("session", nil))
			pages := l.pages(j, 2)
			l.exec(ddl)
			if _, err := j.Execute(t.Context(), asOf, l.work(pages[0])); !errors.Is(err, ErrSchemaChanged) {
				t.Errorf("%s: %v", ddl, err)
			}
			if n := l.ids("SELECT count(*) FROM session")[0]; n != 5 {
				t.Errorf("%s: %d rows left", ddl, n)
			}
		}
	})
}

// The same on a table from which rows go along: a grandchild that is taken along, and a trigger on the child.
func TestCascadeAppearsFurtherDown(t *testing.T) {
	engineIn(t, []Engine{Postgres, SQLite}, func(l *lab) {
		if l.engine == Postgres {
			l.exec("CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN OLD; END $$")
		}
		for _, ddl := range []string{
			"CREATE TABLE grandchild (id bigint PRIMARY KEY, child_id bigint REFERENCES child (id) ON DELETE CASCADE)",
			map[Engine]string{
				Postgres: "CREATE TRIGGER late BEFORE DELETE ON child FOR EACH ROW EXECUTE FUNCTION keep()",
				SQLite:   "CREATE TRIGGER late BEFORE DELETE ON child BEGIN SELECT 1; END",
			}[l.engine],
		} {
			for _, table := range []string{"grandchild", "child", "session"} {
				l.exec("DROP TABLE IF EXISTS " + table)
			}
			l.sessions(5)
			l.exec("CREATE TABLE child (id bigint PRIMARY KEY, session_id bigint REFERENCES session (id) ON DELETE CASCADE)")
			l.exec("INSERT INTO child SELECT id, id FROM session")
			j := l.job(l.policy("session", func(p *policy.Policy) { p.Cascade = []string{"child"} }))
			l.exec("DELETE FROM " + j.d.own("receipt"))
			pages := l.pages(j, 2)
			if _, err := j.Execute(t.Context(), asOf, l.work(pages[0])); err != nil {
				t.Fatal(err)
			}
			l.exec(ddl)
			if _, err := j.Execute(t.Context(), asOf, l.work(pages[1])); !errors.Is(err, ErrSchemaChanged) {
				t.Errorf("%s: %v", ddl, err)
			}
			if n := l.ids("SELECT count(*) FROM child")[0]; n != 3 {
				t.Errorf("%s: %d rows left", ddl, n)
			}
		}
	})
}

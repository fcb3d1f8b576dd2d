package target

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/policy"
)

// atPoint calls f in every batch that comes to the point.
func (l *lab) atPoint(point string, f func()) {
	TestHook = func(p string) {
		if p == point {
			f()
		}
	}
	l.Cleanup(func() { TestHook = nil })
}

// waits sets how long batches wait for rows that others hold.
func (l *lab) waits(quick, patient time.Duration) {
	q, p := quickWait, patientWait
	quickWait, patientWait = quick, patient
	l.Cleanup(func() { quickWait, patientWait = q, p })
}

// reopen replaces our connections with new ones.
func (l *lab) reopen() {
	l.Helper()
	db, err := Open(l.Context(), "lab", l.url, OpenOptions{MaxConns: 8})
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { db.Close() })
	l.db = db
}

// rival is the same job on connections of its own, as another process would have it.
func (l *lab) rival(j *Job) *Job {
	r := *l
	r.db = l.other
	k := r.job(j.p)
	k.run, k.fingerprint, k.careful, k.strategy = j.run, j.fingerprint, j.careful, j.strategy
	return k
}

// A trigger that takes its time for each row, and a limit for each statement: a batch that does not fit is voided and its rows
// go on in halves, so that there is progress at every size, down to the one row that never fits.
func TestStatementTimeout(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.sessions(20)
		if l.engine == Postgres {
			l.exec(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(CASE WHEN OLD.id = 13 THEN 5 ELSE 0.04 END); RETURN OLD; END $$`)
			l.exec(`CREATE TRIGGER slow BEFORE DELETE ON session FOR EACH ROW EXECUTE FUNCTION slow()`)
			l.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET statement_timeout = 600', current_database()); END $$`)
			l.reopen()
		} else {
			l.exec(`CREATE TRIGGER slow BEFORE DELETE ON session FOR EACH ROW BEGIN SET @slept = SLEEP(IF(OLD.id = 13, 5, 0.04)); END`)
			l.db.SQL.SetMaxOpenConns(1) // so that the setting of the session is every statement's
			if _, err := l.db.SQL.ExecContext(t.Context(), "SET SESSION max_statement_time = 0.6"); err != nil {
				t.Fatal(err)
			}
		}
		j := l.job(l.policy("session", func(p *policy.Policy) { p.Triggers = []string{"slow"} }))
		batches := l.pages(j, 1000)
		got, tooLong := map[string]int64{}, 0
		for len(batches) > 0 {
			w := l.work(batches[0])
			n := batches[0].Rows
			batches = batches[1:]
			res, err := j.Execute(t.Context(), asOf, w)
			if errors.Is(err, ErrTooLong) {
				tooLong++
				if left := l.ids("SELECT count(*) FROM session WHERE id <> 13")[0]; left < 19 && got["deleted"] == 0 {
					t.Fatalf("a batch that took too long left %d rows", left)
				}
				if res, err = j.Void(t.Context(), asOf, w, err); err != nil {
					t.Fatal(err)
				}
				again, err := j.Execute(t.Context(), asOf, w)
				if err != nil || !again.Settled || again.NDefer != res.NDefer || again.Outcomes["deleted"] != 0 {
					t.Fatalf("the voided batch once more: %+v, %v", again, err)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			for o, k := range res.Outcomes {
				got[o] += k
			}
			if res.NDefer > 0 {
				halves, err := Split(res.Deferred, (n+1)/2)
				if err != nil {
					t.Fatal(err)
				}
				for i := range halves {
					batches = append(batches, &halves[i])
				}
			}
		}
		// A machine under load may let another row fail as well; what counts is that there is an end, and progress before it.
		if got["deleted"]+got["failed"] != 20 || got["failed"] < 1 || got["deleted"] < 15 || len(got) != 2 {
			t.Errorf("outcomes %v", got)
		}
		if tooLong < 3 {
			t.Errorf("%d batches took too long", tooLong)
		}
		left := l.ids("SELECT id FROM session")
		if !slices.Contains(left, 13) || int64(len(left)) != got["failed"] {
			t.Errorf("rows left: %v", left)
		}
	})
}

// A lock that is held for ever costs its row, which is told, and nothing else.
func TestLockedForEver(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.waits(50*time.Millisecond, 300*time.Millisecond)
		l.sessions(12)
		for _, careful := range []bool{false, true} {
			j := l.job(l.policy("session", nil))
			j.careful = j.careful || careful
			l.exec("DELETE FROM " + j.d.own("receipt"))
			commit := l.hold("UPDATE session SET state = 'busy' WHERE id = 4")
			got := l.drain(j, 5)
			commit()
			want := map[string]int64{"deleted": 11, "locked": 1}
			if careful {
				want["deleted"] = 0
				delete(want, "deleted")
			}
			if diff := cmp.Diff(want, got.outcomes); diff != "" {
				t.Errorf("careful %v: %s", careful, diff)
			}
		}
		if diff := cmp.Diff([]int{4}, l.ids("SELECT id FROM session")); diff != "" {
			t.Error(diff)
		}
	})
}

// While a batch is open, before its commit, what is not in it is free: inserts beside and between its rows, updates of its
// neighbours, also on MariaDB with its gap locks.
func TestOthersAreNotBlocked(t *testing.T) {
	for _, s := range []Strategy{ByTrigger, ByKey, ByPlace} {
		for _, careful := range []bool{false, true} {
			engines := []Engine{Postgres, MySQL}
			if s == ByPlace {
				engines = []Engine{Postgres}
			}
			t.Run(fmt.Sprintf("%s/careful=%v", s, careful), func(t *testing.T) {
				engineIn(t, engines, func(l *lab) { l.checkFree(s, careful) })
			})
		}
	}
}

func (l *lab) checkFree(s Strategy, careful bool) {
	typ, _ := l.instant()
	l.exec("CREATE TABLE session (id bigint NOT NULL PRIMARY KEY, at " + typ + " NOT NULL, state varchar(20) NOT NULL)")
	l.exec("CREATE INDEX session_at ON session (at)")
	var rows []string
	for i := 10; i <= 200; i += 10 { // every second row is due, in the order of the key as in that of the trigger
		at := asOf.Add(-time.Duration(300-i) * time.Hour)
		if i%20 == 0 {
			at = asOf.Add(time.Duration(i) * time.Hour)
		}
		rows = append(rows, fmt.Sprintf("(%d, %s, 'open')", i, l.lit(at)))
	}
	l.exec("INSERT INTO session VALUES " + strings.Join(rows, ", "))
	j := l.job(l.policy("session", nil))
	j.careful = j.careful || careful
	if err := j.SetStrategy(s); err != nil {
		l.Fatal(err)
	}
	first := l.pages(j, 4)[0]
	conn, err := l.other.SQL.Conn(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	defer conn.Close()
	wait := map[Engine]string{Postgres: "SET lock_timeout = '500ms'", MySQL: "SET innodb_lock_wait_timeout = 1"}[l.engine]
	if _, err := conn.ExecContext(l.Context(), wait); err != nil {
		l.Fatal(err)
	}
	hours := func(h int) string { return l.lit(asOf.Add(time.Duration(h) * time.Hour)) }
	called := false
	l.atPoint("changed", func() {
		called = true
		for _, stmt := range []string{
			"INSERT INTO session VALUES (1, " + hours(-999) + ", 'before'), (999, " + hours(999) + ", 'after')",
			"INSERT INTO session VALUES (15, " + hours(5) + ", 'between the keys')",
			"INSERT INTO session VALUES (998, " + hours(-285) + ", 'between the triggers')",
			"UPDATE session SET state = 'busy' WHERE id = 20",
			"UPDATE session SET state = 'busy' WHERE id IN (190, 200)",
			"UPDATE session SET at = " + hours(7) + " WHERE id = 190",
			"DELETE FROM session WHERE id = 40",
		} {
			if _, err := conn.ExecContext(l.Context(), stmt); err != nil {
				l.Errorf("blocked: %s: %v", stmt, err)
			}
		}
	})
	got := l.execute(j, []*Batch{first})
	if !called || got.outcomes["deleted"] < 2 {
		l.Errorf("called %v, outcomes %v", called, got.outcomes)
	}
}

// Another session takes the same locks in the opposite order, and we are the victim: the batch is tried again, and its work is
// done once.
func TestDeadlock(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.waits(20*time.Second, 20*time.Second)
		l.sessions(9)
		l.exec("CREATE TABLE heavy (id int NOT NULL PRIMARY KEY)")
		tx, err := l.other.SQL.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		var rows []string // InnoDB ends the transaction that changed less
		for i := range 500 {
			rows = append(rows, fmt.Sprintf("(%d)", i))
		}
		for _, stmt := range []string{"INSERT INTO heavy VALUES " + strings.Join(rows, ", "), "UPDATE session SET state = 'busy' WHERE id = 8"} {
			if _, err := tx.ExecContext(t.Context(), stmt); err != nil {
				t.Fatal(err)
			}
		}
		j := l.job(l.policy("session", nil))
		pages := l.pages(j, 1000)
		var attempts atomic.Int64
		l.atPoint("begun", func() { attempts.Add(1) })
		done := make(chan sums, 1)
		go func() { done <- l.execute(j, pages) }()
		l.waitBlocked()
		if _, err := tx.ExecContext(t.Context(), "UPDATE session SET state = 'busy' WHERE id = 1"); err != nil {
			t.Fatalf("the other session was the victim: %v", err)
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]int64{"deleted": 9}, (<-done).outcomes); diff != "" {
			t.Error(diff)
		}
		if n := attempts.Load(); n < 2 {
			t.Errorf("%d attempts: there was no deadlock", n)
		}
		if n := l.ids("SELECT count(*) FROM session")[0]; n != 0 {
			t.Errorf("%d rows left", n)
		}
	})
}

// Two executions of one batch at the same time: the second waits at the receipt and answers from it. When the first gives up,
// the second does the work.
func TestRivals(t *testing.T) {
	for _, gives := range []bool{false, true} {
		t.Run(map[bool]string{false: "the first commits", true: "the first gives up"}[gives], func(t *testing.T) {
			onEach(t, func(l *lab) { l.checkRivals(gives) })
		})
	}
}

func (l *lab) checkRivals(gives bool) {
	l.sessions(10)
	j := l.job(l.policy("session", nil))
	j.strategy = ByKey // by spans, a transaction that is long under way anywhere on the server makes the batch hand its rows on
	k := l.rival(j)
	w := l.work(l.pages(j, 1000)[0])
	reached, goOn := make(chan struct{}), make(chan struct{})
	var once sync.Once
	l.atPoint("changed", func() {
		first := false
		once.Do(func() { first = true })
		if first {
			close(reached)
			<-goOn
		}
	})
	ctx, cancel := context.WithCancel(l.Context())
	defer cancel()
	type answer struct {
		res *Result
		err error
	}
	run := func(ctx context.Context, j *Job) chan answer {
		out := make(chan answer, 1)
		go func() { res, err := j.Execute(ctx, asOf, w); out <- answer{res, err} }()
		return out
	}
	a := run(ctx, j)
	<-reached
	b := run(l.Context(), k)
	if l.engine != SQLite { // where the second waits for the file, which nothing shows
		l.waitBlocked()
	}
	if gives {
		cancel()
	}
	close(goOn)
	first, second := <-a, <-b
	if second.err != nil {
		l.Fatal(second.err)
	}
	want := map[string]int64{"deleted": 10}
	if gives {
		if !errors.Is(first.err, context.Canceled) || second.res.Settled {
			l.Errorf("first %v, second settled %v", first.err, second.res.Settled)
		}
	} else if first.err != nil || first.res.Settled || !second.res.Settled || string(first.res.Root) != string(second.res.Root) {
		l.Errorf("first %+v %v, second %+v", first.res, first.err, second.res)
	}
	if diff := cmp.Diff(want, second.res.Outcomes); diff != "" {
		l.Error(diff)
	}
	if n := l.ids("SELECT count(*) FROM session")[0]; n != 0 {
		l.Errorf("%d rows left", n)
	}
}

// Placing a hold waits for a batch that is under way and is in force when it returns: it never returns while a batch could
// still take the row.
func TestHoldWaitsForBatches(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.sessions(10)
		j := l.job(l.policy("session", nil))
		pages := l.pages(j, 1000)
		var placed atomic.Bool
		placing := make(chan struct{})
		l.atPoint("claimed", func() {
			go func() {
				l.transact(l.placing("5"))()
				placed.Store(true)
				close(placing)
			}()
			l.waitBlocked()
			TestHook = func(p string) {
				if p == "completed" && placed.Load() {
					l.Error("the hold is placed while a batch that knows nothing of it can still commit")
				}
			}
		})
		if got := l.execute(j, pages); got.outcomes["deleted"] != 10 {
			t.Errorf("outcomes %v", got.outcomes)
		}
		<-placing
		TestHook = nil
		l.exec("INSERT INTO session VALUES (5, " + l.lit(asOf.Add(-time.Hour)) + ", 'open'), (6, " + l.lit(asOf.Add(-time.Hour)) + ", 'open')")
		if diff := cmp.Diff(map[string]int64{"deleted": 1, "held": 1}, l.execute(j, l.pages(j, 1000)).outcomes); diff != "" {
			t.Error(diff)
		}
	})
}

// A hold whose placing takes longer than a batch waits for a row: the batch waits for it all the same, and obeys it.
func TestHoldPlacedSlowly(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.waits(50*time.Millisecond, 300*time.Millisecond)
		l.db.SQL.SetMaxOpenConns(1)
		l.sessions(10)
		j := l.job(l.policy("session", nil))
		pages := l.pages(j, 4)
		l.execute(j, pages[:1]) // leaves its patience behind in the session
		commit := l.transact(l.placing("9"))
		done := make(chan sums, 1)
		var ended atomic.Bool
		go func() { done <- l.execute(j, pages[1:]); ended.Store(true) }()
		query := map[Engine]string{
			Postgres: "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > interval '400 milliseconds'",
			MySQL:    "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND command <> 'Sleep' AND id <> CONNECTION_ID() AND time_ms > 1600",
		}[l.engine]
		for l.ids(query)[0] == 0 && !ended.Load() && !l.Failed() {
		}
		commit()
		if diff := cmp.Diff(map[string]int64{"deleted": 5, "held": 1}, (<-done).outcomes); diff != "" {
			t.Error(diff)
		}
	})
}

// A batch of PostgreSQL that counts its rows and does not ask which they were: a row that another transaction had inserted
// but not committed when the page was read is not one of them, though it is due and in the range; least of all in place of
// one that was removed by another hand.
func TestCountedRowsAreTheScannedOnes(t *testing.T) {
	for _, s := range []Strategy{ByTrigger, ByPlace} {
		t.Run(string(s), func(t *testing.T) {
			l := newLab(t, Postgres)
			l.sessions(10)
			late := l.transact([]string{"INSERT INTO session VALUES (100, " + l.lit(asOf.Add(-5*time.Hour)) + ", 'late')"})
			j := l.job(l.policy("session", nil))
			if err := j.SetStrategy(s); err != nil {
				t.Fatal(err)
			}
			pages := l.pages(j, 1000)
			l.atPoint("found", func() {
				late()
				l.exec("DELETE FROM session WHERE id = 3")
			})
			got := l.execute(j, pages)
			if diff := cmp.Diff(map[string]int64{"deleted": 9, "gone": 1}, got.outcomes); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]int{100}, l.ids("SELECT id FROM session")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Of all who execute batches in a database no more are at work at once than its seats, whichever process they are of and whichever
// table they are about. None loses its seat, and none keeps it.
func TestSeats(t *testing.T) {
	const seats, batches = 3, 40
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.sessions(batches)
		var now, most, full atomic.Int64
		TestHook = func(point string) {
			switch point {
			case "claimed":
				n := now.Add(1)
				for m := most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
				}
			case "completed":
				now.Add(-1)
			case "full":
				full.Add(1)
			}
		}
		l.Cleanup(func() { TestHook = nil })
		pages := l.pages(l.job(l.policy("session", nil)), 1)
		var jobs []*Job
		for range 3 { // of three processes, each with room for all seats
			db, err := Open(t.Context(), "lab", l.url, OpenOptions{MaxConns: seats})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			one := l.at(t)
			one.db = db
			jobs = append(jobs, one.job(l.policy("session", nil)))
		}
		var work []Work
		for _, b := range pages {
			work = append(work, l.work(b))
		}
		var all sync.WaitGroup
		for i, w := range work {
			all.Go(func() {
				if res, err := jobs[i%len(jobs)].Execute(t.Context(), asOf, w); err != nil || res.Outcomes["deleted"] != 1 {
					t.Errorf("%+v, %v", res, err)
				}
			})
		}
		all.Wait()
		if most.Load() > seats || most.Load() < 2 || full.Load() == 0 {
			t.Errorf("%d batches were at work at once, and %d times there was no seat of %d", most.Load(), full.Load(), seats)
		}
		if n := l.ids("SELECT count(*) FROM session")[0]; n != 0 {
			t.Errorf("%d rows left", n)
		}
		taken := map[Engine]string{
			Postgres: "SELECT count(*) FROM pg_locks JOIN pg_database ON oid = database WHERE datname = current_database() AND locktype = 'advisory' AND classid = " + seatLock,
			MySQL:    "SELECT IS_USED_LOCK(CONCAT('curfew_', CRC32(DATABASE()), '_1')) IS NOT NULL OR IS_USED_LOCK(CONCAT('curfew_', CRC32(DATABASE()), '_2')) IS NOT NULL",
		}[l.engine]
		if n := l.ids(taken)[0]; n != 0 {
			t.Errorf("%d seats are taken, and nobody is at work", n)
		}
	})
}

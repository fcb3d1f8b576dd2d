package target

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/internal/dbtest"
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
				halves, err := SplitKeys(res.Deferred, (n+1)/2)
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

// An intrusion is what another session does to row 5 while a batch with it is on its way, and what becomes of the row.
type intrusion struct {
	name    string
	outcome string
	edit    func(*policy.Policy)
	script  func(l *lab) []string // in one transaction
}

func intrusions() []intrusion {
	fresh := func(l *lab) string { return l.lit(asOf.Add(time.Hour)) }
	return []intrusion{
		{"renewed", "no_longer_due", nil, func(l *lab) []string { return []string{"UPDATE session SET at = " + fresh(l) + " WHERE id = 5"} }},
		{"renewed to the cutoff", "no_longer_due", nil, func(l *lab) []string { return []string{"UPDATE session SET at = " + l.lit(asOf) + " WHERE id = 5"} }},
		{"deleted and inserted anew", "no_longer_due", nil, func(l *lab) []string {
			return []string{"DELETE FROM session WHERE id = 5", "INSERT INTO session VALUES (5, " + fresh(l) + ", 'open')"}
		}},
		{"out of scope", "no_longer_due", func(p *policy.Policy) { p.Where = "state = 'open'" }, func(*lab) []string { return []string{"UPDATE session SET state = 'kept' WHERE id = 5"} }},
		{"guarded by its own column", "guarded", func(p *policy.Policy) { p.Unless = "state = 'kept'" }, func(*lab) []string { return []string{"UPDATE session SET state = 'kept' WHERE id = 5"} }},
		{"guarded by another row", "guarded", func(p *policy.Policy) {
			p.Unless = "EXISTS (SELECT 1 FROM fine WHERE fine.session_id = session.id AND fine.paid = 0)"
			p.Cascade = []string{"fine"}
		}, func(*lab) []string { return []string{"INSERT INTO fine VALUES (1, 5, 0)"} }},
		{"held", "held", nil, func(l *lab) []string { return l.placing("5") }},
	}
}

// placing is what placing a hold on a row does.
func (l *lab) placing(id string) []string {
	insert := "INSERT INTO " + dialectFor(l.db.server).own("hold") + " (id, name, relation, conditions, placed_at) VALUES ('" + id + `', 'court', 'session', '[{"column": "id", "value": "` + id + `"}]', '2026-01-01 00:00:00')`
	switch l.engine {
	case Postgres:
		return []string{"SELECT pg_advisory_xact_lock(" + holdLock + ")", insert}
	case MySQL:
		return []string{"SELECT epoch FROM curfew_hold_epoch WHERE one = 1 FOR UPDATE", "UPDATE curfew_hold_epoch SET epoch = epoch + 1 WHERE one = 1", insert}
	default:
		return []string{insert}
	}
}

// transact runs the statements in one transaction and returns how to commit it.
func (l *lab) transact(script []string) (commit func()) {
	l.Helper()
	tx, err := l.other.SQL.BeginTx(context.WithoutCancel(l.Context()), nil)
	if err != nil {
		l.Fatal(err)
	}
	for _, stmt := range script {
		if _, err := tx.Exec(stmt); err != nil {
			l.Fatalf("%s: %v", stmt, err)
		}
	}
	return func() {
		if err := tx.Commit(); err != nil {
			l.Error(err)
		}
	}
}

// Every statement that destroys, on every way to it, at every moment of a batch at which another session can step in: a row
// that is renewed, replaced, moved out of scope, guarded or held stays.
func TestNothingThatChangedGoes(t *testing.T) {
	onEach(t, func(l *lab) {
		typ, _ := l.instant()
		l.exec("CREATE TABLE session (id bigint NOT NULL PRIMARY KEY, at " + typ + " NOT NULL, state varchar(20) NOT NULL)")
		l.exec("CREATE INDEX session_at ON session (at)")
		l.exec("CREATE TABLE fine (id bigint NOT NULL PRIMARY KEY, session_id bigint NOT NULL, paid int NOT NULL, FOREIGN KEY (session_id) REFERENCES session (id))")
		moments := []string{"scanned", "waiting"}
		if l.engine != SQLite { // whose writers take turns: nobody steps in once a batch has begun
			moments = []string{"scanned", "begun", "claimed", "waiting"}
		}
		for _, c := range intrusions() {
			for _, path := range []string{"quick", "by key", "by place", "careful", "retry"} {
				if path == "by place" && l.engine != Postgres {
					continue
				}
				for _, moment := range moments {
					if l.engine == MySQL && moment == "waiting" && c.name != "renewed" && (path == "careful" || path == "by key") {
						continue // these wait as "quick" and "retry" do, and each wait is a third of a second
					}
					if moment == "claimed" && c.name == "held" {
						continue // see TestHoldWaitsForBatches
					}
					l.Run(c.name+"/"+path+"/"+moment, func(t *testing.T) { l.at(t).stepIn(c, path, moment) })
				}
			}
		}
	})
}

func (l *lab) stepIn(c intrusion, path, moment string) {
	l.waits(20*time.Second, 20*time.Second)
	own := dialectFor(l.db.server).own
	for _, table := range []string{"fine", "session", own("hold"), own("receipt")} {
		l.exec("DELETE FROM " + table)
	}
	var rows []string
	for i := range 10 {
		rows = append(rows, fmt.Sprintf("(%d, %s, 'open')", i+1, l.lit(asOf.Add(-time.Duration(20-i)*time.Hour))))
	}
	l.exec("INSERT INTO session VALUES " + strings.Join(rows, ", "))
	j := l.job(l.policy("session", c.edit))
	j.careful = j.careful || path == "careful"
	switch path {
	case "by key":
		j.strategy = ByKey
	case "by place":
		j.strategy = ByPlace
	}
	pages := l.pages(j, 1000)
	if path == "retry" {
		all, err := SplitKeys(pages[0].Keys, 1000)
		if err != nil || len(pages) != 1 {
			l.Fatal(err, len(pages))
		}
		pages = []*Batch{&all[0]}
	}
	var got sums
	switch moment {
	case "scanned":
		l.transact(c.script(l))()
		got = l.execute(j, pages)
	case "waiting":
		commit := l.transact(c.script(l))
		done := make(chan sums, 1)
		go func() { done <- l.execute(j, pages) }()
		if l.engine != SQLite {
			l.waitBlocked()
		}
		commit()
		got = <-done
	default:
		var once sync.Once
		l.atPoint(moment, func() { once.Do(func() { l.transact(c.script(l))() }) })
		got = l.execute(j, pages)
	}
	if diff := cmp.Diff(map[string]int64{"deleted": 9, c.outcome: 1}, got.outcomes); diff != "" {
		l.Error(diff)
	}
	if diff := cmp.Diff([]int{5}, l.ids("SELECT id FROM session")); diff != "" {
		l.Error(diff)
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

// The time zone that the server, the database or the role has as its default is nobody's business: each kind of trigger gives
// the same answer, also when the zone changes while a run is under way and connections are made anew.
func TestServerTimeZones(t *testing.T) {
	cutoff := time.Date(2025, 10, 26, 0, 40, 0, 0, time.UTC) // the repeated hour in Zurich
	zones := map[Engine][]string{Postgres: {"UTC", "America/New_York", "Asia/Tokyo"}, MySQL: {"+00:00", "-05:00", "+09:00"}}
	for _, e := range []Engine{Postgres, MySQL} {
		for i, zone := range zones[e] {
			t.Run(string(e)+"/"+zone, func(t *testing.T) {
				l := newLab(t, e)
				l.zone(zone, i%2 == 0)
				for _, d := range declarations() {
					if slices.Contains(d.engines, e) {
						l.Run(d.name, func(t *testing.T) { l.at(t).checkTrigger(d, cutoff, policy.StaysAtCutoff, true) })
					}
				}
				l.checkZoneChange(zones[e][(i+1)%3])
			})
		}
	}
}

// zone makes the zone the default of new sessions, and our sessions new.
func (l *lab) zone(zone string, ofRole bool) {
	l.Helper()
	switch {
	case l.engine == MySQL:
		dbtest.MariaDBTimeZone(l.T, zone)
	case ofRole:
		l.exec(`DO $$ BEGIN EXECUTE format('ALTER ROLE %I IN DATABASE %I SET timezone = ''` + zone + `''', current_user, current_database()); END $$`)
	default:
		l.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''` + zone + `''', current_database()); END $$`)
	}
	l.db.SQL.SetMaxIdleConns(0)
	l.db.SQL.SetMaxIdleConns(8)
}

func (l *lab) checkZoneChange(zone string) {
	l.exec("DROP TABLE IF EXISTS session")
	typ := map[Engine]string{Postgres: "timestamp", MySQL: "timestamp(6) NULL"}[l.engine]
	tr := map[Engine]policy.Trigger{Postgres: {Column: "at", Zone: "Europe/Zurich", Until: true}, MySQL: {Column: "at", Until: true, Null: policy.NullNever}}[l.engine]
	l.exec("CREATE TABLE session (id int NOT NULL PRIMARY KEY, at " + typ + ")")
	l.exec("CREATE INDEX session_at ON session (at)")
	var rows []string
	zurich, err := time.LoadLocation("Europe/Zurich")
	if err != nil {
		l.Fatal(err)
	}
	for i := range 24 { // an hour apart, twelve of them due, in the column's own zone
		at := asOf.Add(time.Duration(i-12) * time.Hour)
		if l.engine == Postgres {
			at = at.In(zurich)
		}
		rows = append(rows, fmt.Sprintf("(%d, '%s')", i, at.Format("2006-01-02 15:04:05")))
	}
	l.exec("INSERT INTO session VALUES " + strings.Join(rows, ", "))
	p := l.policy("session", func(p *policy.Policy) { p.Trigger = tr })
	tab, err := l.db.Inspect(l.Context(), "session")
	if err != nil {
		l.Fatal(err)
	}
	j, err := NewJob(l.db, JobOptions{Policy: p, Table: tab, AsOf: asOf, Cutoff: asOf, Run: fmt.Sprintf("%x", sha256.Sum256([]byte(l.Name()))), Keys: l.keys})
	if err != nil {
		l.Fatal(err)
	}
	pages := l.pages(j, 5)
	l.exec("UPDATE session SET at = '" + asOf.Add(4*time.Hour).Format("2006-01-02 15:04:05") + "' WHERE id = 3") // renewed by four hours
	if l.engine == Postgres {
		l.zone(zone, true)
	} else {
		l.exec("SET GLOBAL time_zone = '" + zone + "'") // put back by the test's own change
		l.db.SQL.SetMaxIdleConns(0)
		l.db.SQL.SetMaxIdleConns(8)
	}
	got := l.execute(j, pages)
	if diff := cmp.Diff(map[string]int64{"deleted": 11, "no_longer_due": 1}, got.outcomes); diff != "" {
		l.Error(diff)
	}
	want := []int{3}
	for i := 12; i < 24; i++ {
		want = append(want, i)
	}
	if diff := cmp.Diff(want, l.ids("SELECT id FROM session ORDER BY id")); diff != "" {
		l.Error(diff)
	}
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
			late()
			l.exec("DELETE FROM session WHERE id = 3")
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

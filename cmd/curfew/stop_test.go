//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/api"
)

// oneByOne is twoPolicies with one batch at a time, so that a process which is stopped in one has no other open.
const oneByOne = `
  plain: {database: d, table: session, keep: 30d, since: {SINCE}, action: delete, mode: enforce, batch: {rows: 20, in_flight: 1, pace: none}}
  rich:
    {database: d, table: loan, keep: 30d, since: {SINCE}, where: "branch <> 'archive'", unless: "EXISTS (SELECT 1 FROM fine WHERE fine.loan = loan.id)",
     cascade: [note], action: delete, mode: enforce, batch: {rows: 20, in_flight: 1, pace: none}}
`

// TestStoppedBeforeTheCommit freezes a process that has changed rows and not committed. Its successor waits for it; when it
// wakes, nothing is lost and nothing was done twice.
func TestStoppedBeforeTheCommit(t *testing.T) {
	onEachSite(t, oneByOne, twoTables, func(s *site) {
		for _, policy := range []string{"plain", "rich"} {
			for _, point := range []string{"claimed", "changed", "completed"} {
				k := s.fill(policy, 100)
				// In one SQLite file the dispatcher may be waiting for the worker's transaction, and never come to rest.
				first := s.start(point+map[string]string{sqlite: ":2:stop", postgres: ":2:pause", mariadb: ":2:pause"}[s.engine], runArgs(policy, k.asOf)...)
				first.stopped(point)
				second := s.start("accepted:1:say", runArgs(policy, k.asOf)...)
				second.says(marker + "accepted")
				s.waitsForALock(second)
				if !second.running() {
					s.Fatalf("the successor did not wait: it ended with %d\n%s", second.code, second.stderr.String())
				}
				first.signal(syscall.SIGCONT)
				s.well(first)
				s.well(second)
				s.exact(k, s.answer(first))
				s.exact(k, s.answer(second))
			}
		}
	})
}

// waitsForALock waits until a session of the governed database does. In SQLite nobody can see that.
func (s *site) waitsForALock(p *process) {
	s.Helper()
	query := map[string]string{
		postgres: "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE NOT granted AND datname = current_database()",
		// InnoDB's own view is a picture that is renewed only while nobody looks. A statement this long is one that waits.
		mariadb: "SELECT count(*) FROM information_schema.processlist WHERE db = DATABASE() AND command <> 'Sleep' AND id <> CONNECTION_ID() AND time_ms > 300",
	}[s.engine]
	if query == "" {
		return
	}
	s.eventually(p, "wait for a lock", func() bool { return s.count(s.db, query) > 0 })
}

// eventually asks again and again, as long as the process runs.
func (s *site) eventually(p *process, what string, is func() bool) {
	s.Helper()
	deadline := time.After(patience)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-p.ended:
			s.Fatalf("%v ended with %d and did not %s:\n%s", p.cmd.Args, p.code, what, p.stderr.String())
		case <-deadline:
			s.Fatalf("%v did not %s:\n%s", p.cmd.Args, what, p.stderr.String())
		}
	}
}

// TestStoppedAfterTheCommit freezes a process whose batch is committed and not settled. Its successor settles the batch from
// the receipt and ends the run; when the first wakes, it finds it so.
func TestStoppedAfterTheCommit(t *testing.T) {
	onEachSite(t, oneByOne, twoTables, func(s *site) {
		for _, policy := range []string{"plain", "rich"} {
			for _, point := range []string{"committed", "executing"} {
				k := s.fill(policy, 100)
				first := s.start(point+":2:pause", runArgs(policy, k.asOf)...)
				first.stopped(point)
				second := s.must(runArgs(policy, k.asOf)...)
				s.exact(k, s.answer(second))
				first.signal(syscall.SIGCONT)
				s.well(first)
				if diff := cmp.Diff(s.answer(second), s.answer(first)); diff != "" {
					s.Errorf("two answers (-second +first):\n%s", diff)
				}
				s.exact(k, s.answer(first))
			}
		}
	})
}

// TestServerEndsTheStopped: the server ends the transaction of a process that is frozen in it (idle_in_transaction_session_timeout,
// idle_transaction_timeout; here by hand, a minute early). The successor finishes alone, and the zombie does no harm.
func TestServerEndsTheStopped(t *testing.T) {
	for _, kind := range sites[:2] { // nobody ends a transaction of SQLite but its process
		t.Run(kind.engine, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, kind.engine, kind.ledger, oneByOne, twoTables...)
			for _, point := range []string{"claimed", "changed", "completed"} {
				k := s.fill("plain", 100)
				first := s.start(point+":2:pause", runArgs("plain", k.asOf)...)
				first.stopped(point)
				idle := s.openTransactions()
				if len(idle) != 1 {
					s.Fatalf("%d transactions are open, want that of the process that is stopped", len(idle))
				}
				second := s.start("", runArgs("plain", k.asOf)...)
				s.waitsForALock(second)
				s.exec(map[string]string{postgres: "SELECT pg_terminate_backend(" + idle[0] + ")", mariadb: "KILL " + idle[0]}[s.engine])
				s.well(second)
				s.exact(k, s.answer(second))

				// A row that is due comes back under its old key: it is not this run's any more.
				back := k.due[0]
				s.exec("INSERT INTO session VALUES ('" + back + "', " + s.instant(k.asOf.AddDate(-1, 0, 0)) + ", 'main')")
				k.stay = append(k.stay, back)
				first.signal(syscall.SIGCONT)
				s.well(first)
				s.exact(k, s.answer(first))
			}
		})
	}
}

// openTransactions are the sessions of the governed database that are idle in a transaction.
func (s *site) openTransactions() []string {
	s.Helper()
	return s.column(s.db, map[string]string{
		postgres: "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction' AND pid <> pg_backend_pid()",
		mariadb: "SELECT t.trx_mysql_thread_id FROM information_schema.innodb_trx t JOIN information_schema.processlist p " +
			"ON p.id = t.trx_mysql_thread_id WHERE p.db = DATABASE() AND p.id <> CONNECTION_ID()",
	}[s.engine])
}

// TestLateBatch freezes a process before a batch, lets the run end and its receipts be dropped, and wakes it: without a
// receipt nobody can tell whether the batch was done, so it is refused.
func TestLateBatch(t *testing.T) {
	onEachSite(t, oneByOne, twoTables, func(s *site) {
		for _, policy := range []string{"plain", "rich"} {
			k := s.fill(policy, 100)
			first := s.start("executing:2:pause", runArgs(policy, k.asOf)...)
			first.stopped("executing")
			done := s.answer(s.must(runArgs(policy, k.asOf)...))
			s.exact(k, done)

			s.exec("DELETE FROM " + s.inDatabase("receipt") + " WHERE run = '" + done.ID + "'")
			s.exec("INSERT INTO " + s.inDatabase("tombstone") + " (run, receipts, dropped_at) VALUES ('" + done.ID + "', 1, '2026-01-01 00:00:00')")
			for _, id := range k.due { // every row is back, and due
				s.exec("INSERT INTO " + k.table + " VALUES ('" + id + "', " + s.instant(k.asOf.AddDate(-1, 0, 0)) + ", 'main')")
			}
			first.signal(syscall.SIGCONT)
			s.well(first)
			if diff := cmp.Diff(done, s.answer(first)); diff != "" {
				s.Errorf("the run changed (-before +after):\n%s", diff)
			}
			if n := len(s.left(k)); n != 100 {
				s.Errorf("%d rows are left of 100: the late batch was executed", n)
			}
			if n := s.count(s.db, "SELECT count(*) FROM "+s.inDatabase("receipt")+" WHERE run = '"+done.ID+"'"); n != 0 {
				s.Errorf("the late batch left %d receipts", n)
			}
		}
	})
}

// TestInterruptedInABatch sends Ctrl-C while a batch is in hand: the batch is finished and the run left open. With a second
// Ctrl-C the batch is given up, and nothing of it was done.
func TestInterruptedInABatch(t *testing.T) {
	onEachSite(t, oneByOne, twoTables, func(s *site) {
		k := s.fill("plain", 100)
		p := s.start("changed:2:stop", runArgs("plain", k.asOf)...)
		p.stopped("changed")
		p.signal(syscall.SIGINT)
		p.signal(syscall.SIGCONT)
		s.refused(p, exitInterrupted, "finishing the batch in hand", "hint: curfew run plain goes on where it stopped")
		r := s.answer(p)
		if r.State != api.StateRunning || r.Detail != "interrupted" || r.EndedAt != nil || r.Batches.Settled != 2 {
			s.Errorf("the run is %+v, want an open one with the batch in hand settled, and none after it", r)
		}
		if gone := 100 - len(s.left(k)); int64(gone) != r.Outcomes["deleted"] {
			s.Errorf("%d rows are gone, the run says %v", gone, r.Outcomes)
		}

		if s.engine != sqlite { // there a batch waits for nothing that it could be interrupted in
			letGo := s.hold(k, k.due)
			p = s.start("", "run", "plain", "--output", "json")
			s.waitsForALock(p)
			p.signal(syscall.SIGINT)
			p.says("finishing the batch in hand")
			p.signal(syscall.SIGINT)
			s.refused(p, exitInterrupted)
			letGo()
			if again := s.answer(p); again.ID != r.ID || again.State != api.StateRunning {
				s.Errorf("the run is %+v", again)
			}
		}
		// Without --as-of the open run is resumed.
		s.exact(k, s.answer(s.must("run", "plain", "--output", "json")))
	})
}

// hold locks rows and returns how to let them go.
func (s *site) hold(k *stock, ids []string) (letGo func()) {
	s.Helper()
	tx, err := s.db.BeginTx(s.Context(), nil)
	if err != nil {
		s.Fatal(err)
	}
	if _, err := tx.Exec("UPDATE " + k.table + " SET branch = branch WHERE id IN ('" + strings.Join(ids, "', '") + "')"); err != nil {
		s.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(); err != nil {
			s.Error(err)
		}
	}
}

//go:build unix

package main

import (
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dbtest"
)

// TestForeignWriter keeps an application writing into the SQLite file while curfew works there, with the ledger in the same
// file and in one of its own, in both journal modes. Both get on, and the file's journal mode stays as the application chose it.
func TestForeignWriter(t *testing.T) {
	for _, ledger := range []string{ledgerWithin, ledgerFile} {
		for _, mode := range []string{"delete", "wal"} {
			t.Run("ledger="+ledger+"/"+mode, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, sqlite, ledger, twoPolicies, twoTables...)
				if got := s.column(s.db, "PRAGMA journal_mode = "+mode); got[0] != mode {
					t.Fatalf("the journal mode is %s", got[0])
				}
				for _, policy := range []string{"plain", "rich"} {
					k := s.fill(policy, 200)
					stop := s.writeOn()
					r := s.answer(s.must(runArgs(policy, k.asOf)...))
					if n := stop(); n == 0 {
						t.Error("the application wrote nothing during the run: the test shows nothing")
					}
					s.exact(k, r)
				}
				k := s.fill("plain", 200)
				stop := s.writeOn()
				s.kill(k, "changed:2")
				s.finish(k)
				stop()
				db := dbtest.Open(t, s.url)
				if got := s.column(db, "PRAGMA journal_mode"); got[0] != mode {
					t.Errorf("the journal mode is %s, the application chose %s", got[0], mode)
				}
				if got := s.column(db, "PRAGMA integrity_check"); got[0] != "ok" {
					t.Errorf("the file is damaged: %s", got[0])
				}
			})
		}
	}
}

// writeOn writes into the database, one transaction after another, until it is told to stop; then it says how many they were.
func (s *site) writeOn() (stop func() int) {
	s.Helper()
	db, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(s.url, "sqlite:")+"?_pragma=busy_timeout(30000)&_txlock=immediate")
	if err != nil {
		s.Fatal(err)
	}
	done, written := make(chan struct{}), 0
	var writer sync.WaitGroup
	writer.Go(func() {
		pace := time.NewTicker(10 * time.Millisecond) // SQLite's lock is not fair: who never pauses has it all
		defer pace.Stop()
		for {
			select {
			case <-done:
				return
			case <-pace.C:
			}
			if _, err := db.Exec("INSERT INTO unrelated VALUES (?)", written); err != nil {
				s.Errorf("the application's write %d: %v", written, err)
				return
			}
			written++
		}
	})
	return func() int {
		close(done)
		writer.Wait()
		db.Close()
		return written
	}
}

// TestClockFarFromTheLedger: a clock that is a year ahead of all that the ledger knows would make a year of rows due at once.
// No run is accepted until somebody vouches for it.
func TestClockFarFromTheLedger(t *testing.T) {
	for _, kind := range []struct{ engine, ledger string }{{sqlite, ledgerWithin}, {sqlite, ledgerFile}, {postgres, ledgerWithin}} {
		t.Run(kind.engine+"/ledger="+kind.ledger, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, kind.engine, kind.ledger, twoPolicies, twoTables...)
			k := s.fill("plain", 40)
			if kind.ledger == ledgerFile {
				s.must("migrate") // makes it
			}
			for _, days := range []int{-366, 1} {
				s.moveAudit(days)
				s.refused(s.start("", runArgs("plain", k.asOf)...), exitRefused, "the ledger's clock says", "hint: correct the clock, or say that it is right with curfew migrate --accept-clock")
				if n := s.count(s.led, "SELECT count(*) FROM "+s.inLedger("run")); n != 0 || len(s.left(k)) != 40 {
					t.Errorf("%d runs, %d rows left: something was done under a clock in doubt", n, len(s.left(k)))
				}
			}
			s.must("migrate", "--accept-clock")
			s.exact(k, s.answer(s.must(runArgs("plain", k.asOf)...)))
		})
	}
}

// moveAudit gives the audit log's entries another time, as if the machine's clock had been another. The database itself
// forbids that to who has not the right to drop its triggers.
func (s *site) moveAudit(days int) {
	s.Helper()
	at := time.Now().UTC().AddDate(0, 0, days).Format("2006-01-02T15:04:05.000000Z")
	update := "UPDATE " + s.inLedger("audit") + " SET at = '" + at + "'"
	if _, err := s.led.Exec(update); err == nil {
		s.Error("the audit log could be changed")
	}
	statements := []string{"ALTER TABLE curfew.audit DISABLE TRIGGER USER", update, "ALTER TABLE curfew.audit ENABLE TRIGGER USER"}
	if strings.HasPrefix(s.ledger, sqlite) {
		made := s.column(s.led, "SELECT sql FROM sqlite_master WHERE name = 'curfew_audit_no_update'")
		statements = []string{"DROP TRIGGER curfew_audit_no_update", update, made[0]}
	}
	for _, stmt := range statements {
		if _, err := s.led.Exec(stmt); err != nil {
			s.Fatalf("%s: %v", stmt, err)
		}
	}
}

// TestOneOfAHundredBlocked: a row that a foreign key keeps does not sink its batch, also when the key is deferred and would
// speak only at COMMIT. The next day it is blocked again, which is no news; once it is free it goes.
func TestOneOfAHundredBlocked(t *testing.T) {
	constraints := map[string]string{
		postgres: "ON DELETE RESTRICT", postgres + " deferred": "DEFERRABLE INITIALLY DEFERRED", mariadb: "ON DELETE RESTRICT",
		sqlite: "ON DELETE RESTRICT", sqlite + " deferred": "DEFERRABLE INITIALLY DEFERRED",
	}
	for name, constraint := range constraints {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			engine, _, _ := strings.Cut(name, " ")
			ledger := map[string]string{postgres: ledgerPostgres, mariadb: ledgerFile, sqlite: ledgerWithin}[engine]
			s := newSite(t, engine, ledger, twoPolicies, twoTables[0], twoTables[1],
				"CREATE TABLE pin (session VARCHAR(64) NOT NULL, CONSTRAINT pin_session FOREIGN KEY (session) REFERENCES session (id) "+constraint+")",
				"CREATE INDEX pin_session_index ON pin (session)")
			var rows []string
			for i := range 100 {
				rows = append(rows, fmt.Sprintf("('%s-%d', %s, 'main')", keyMark, i, s.instant(s.asOf.AddDate(-1, 0, i))))
			}
			s.exec("INSERT INTO session VALUES " + strings.Join(rows, ", "))
			s.exec("INSERT INTO pin VALUES ('" + keyMark + "-61')")

			day := func(want api.Outcomes, left, news int) {
				t.Helper()
				s.asOf = s.asOf.AddDate(0, 0, 1)
				r := s.answer(s.must(runArgs("plain", s.asOf)...))
				if diff := cmp.Diff(want, r.Outcomes); diff != "" || r.State != api.StateSucceeded || r.WhyEnded != "done" {
					t.Errorf("the run %s (%s); outcomes (-want +got):\n%s", r.State, r.WhyEnded, diff)
				}
				s.consistent(r)
				if n := s.count(s.db, "SELECT count(*) FROM session"); n != left {
					t.Errorf("%d rows are left, want %d", n, left)
				}
				if n := s.count(s.led, "SELECT count(*) FROM "+s.inLedger("audit")+" WHERE action = 'row_blocked'"); n != news {
					t.Errorf("%d audit entries say that a row is blocked, want %d", n, news)
				}
			}
			day(api.Outcomes{"deleted": 99, "blocked": 1}, 1, 1)
			day(api.Outcomes{"blocked": 1}, 1, 1)
			day(api.Outcomes{"blocked": 1}, 1, 1)
			s.exec("DELETE FROM pin")
			day(api.Outcomes{"deleted": 1}, 0, 1)
		})
	}
}

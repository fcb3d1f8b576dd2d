//go:build unix

package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"curfew.dev/curfew/internal/dbtest"
)

// fastTime is how much faster time passes for the ledger and the governed database than for us.
const fastTime = 20

// firePolicies are policies that fire each minute of the ledger's time, each over its own branch of one table.
func firePolicies(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "  p%d: {database: d, table: session, keep: 30d, since: {SINCE}, where: \"branch = 'b%d'\", action: delete, mode: enforce,\n"+
			"    schedule: {cron: \"* * * * *\", overlap: queue}, batch: {rows: 20, in_flight: 2, pace: none}, retry: {attempts: 8, backoff: 1s, factor: 2}}\n", i, i)
	}
	return b.String()
}

// hasten makes the clock of the governed database, and of a ledger in it, run faster: a function of ours is found before the
// server's own.
func (s *site) hasten() {
	s.Helper()
	if s.engine != postgres {
		return // the program's own clock runs faster (see installHooks)
	}
	s.exec("CREATE SCHEMA fast")
	s.exec("CREATE TABLE fast.since AS SELECT pg_catalog.clock_timestamp() AS at")
	s.exec(fmt.Sprintf(`CREATE FUNCTION fast.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
		'SELECT at + %d * (pg_catalog.clock_timestamp() - at) FROM fast.since'`, fastTime))
	s.exec("ALTER DATABASE " + s.column(s.db, "SELECT current_database()")[0] + " SET search_path = fast, pg_catalog, public")
}

// a fire is the processes of a service and what happens to them.
type fire struct {
	*site
	args [][]string
	mu   sync.Mutex
	gate sync.Mutex // held while rows are put in, and while there is no server to put them into
	live []*process
	fed  int // rows put in
	kept int // of those, renewed
	hits map[string]int
}

func (f *fire) launch(i int) {
	p := f.startIn(f.dir, []string{fmt.Sprintf("%s=%d", speedVar, fastTime)}, f.args[i]...)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live[i] = p
}

// strike does something bad to one of the processes, or to the database's sessions.
func (f *fire) strike() {
	i := f.rand.IntN(len(f.args))
	p := f.live[i]
	switch n := f.rand.IntN(10); {
	case !p.running():
		f.Errorf("%v ended by itself:\n%s", p.cmd.Args, tail(p.stderr.String()))
		f.ended(p)
		f.launch(i)
	case n < 4:
		f.hits["killed"]++
		_ = p.cmd.Process.Kill()
		f.ended(p)
		f.launch(i)
	case n < 8:
		f.hits["frozen"]++
		_ = p.cmd.Process.Signal(syscall.SIGSTOP)
		f.sleep(200 + f.rand.IntN(3000))
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
	case f.engine == postgres:
		f.hits["cut off"]++ // what a restart of the database does to those connected
		f.exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name <> '' AND pid <> pg_backend_pid() AND application_name ILIKE '%curfew%'")
	}
}

// sleep lets the storm go on; nothing is waited for.
func (f *fire) sleep(ms int) {
	select {
	case <-f.Context().Done():
	case <-time.After(time.Duration(ms) * time.Millisecond):
	}
}

// feed puts rows in that are due, and renews and touches others, until the storm is over.
func (f *fire) feed(ctx context.Context, db *sql.DB, policies int) {
	for n := 0; ctx.Err() == nil; n++ {
		at := f.asOf.Add(-365 * 24 * time.Hour)
		var rows []string
		for i := range 30 {
			rows = append(rows, fmt.Sprintf("('%s-%d-%d', %s, 'b%d')", keyMark, n, i, f.instant(at), (n+i)%policies))
		}
		// One of them is renewed the moment after it was put in, and must stay.
		stmts := []string{"INSERT INTO session VALUES " + strings.Join(rows, ", ")}
		if f.engine == postgres {
			stmts = append(stmts, fmt.Sprintf("UPDATE session SET at = pg_catalog.now() + interval '1000 days' WHERE id IN (SELECT id FROM session WHERE branch = 'b%d' AND at < pg_catalog.now() LIMIT 3)", n%policies))
		}
		for k, stmt := range stmts {
			f.gate.Lock()
			r, err := db.ExecContext(context.WithoutCancel(ctx), stmt)
			f.gate.Unlock()
			if err != nil {
				if strings.Contains(err.Error(), "deadlock") || strings.Contains(err.Error(), "locked") {
					if k == 0 {
						n--
					}
					break
				}
				f.Errorf("feeding: %v", err)
				return
			}
			if done, _ := r.RowsAffected(); k == 0 {
				f.fed += int(done)
			} else {
				f.kept += int(done)
			}
		}
		f.sleep(100)
	}
}

// TestServeUnderFire: two services and three workers on one PostgreSQL ledger, and two services on one SQLite file, are killed,
// frozen and cut off at random for a while. Every instant has exactly one occurrence and every occurrence one run; every due row
// is gone once, by the counts of the runs; a row that was renewed is there.
func TestServeUnderFire(t *testing.T) {
	for _, c := range []struct {
		engine, ledger    string
		services, workers int
		policies, seconds int
	}{{postgres, ledgerWithin, 2, 3, 10, 90}, {sqlite, ledgerFile, 2, 0, 4, 40}} {
		t.Run(c.engine, func(t *testing.T) {
			t.Parallel()
			if testing.Short() {
				t.Skip("takes a minute")
			}
			s := newSite(t, c.engine, c.ledger, firePolicies(c.policies), twoTables...)
			s.hasten()
			f := &fire{site: s, hits: map[string]int{}}
			for range c.services {
				f.args = append(f.args, []string{"serve", "--listen", "127.0.0.1:0"})
			}
			for range c.workers {
				f.args = append(f.args, []string{"worker"})
			}
			f.live = make([]*process, len(f.args))
			for i := range f.args {
				f.launch(i)
			}
			ctx, over := context.WithCancel(t.Context())
			var fed sync.WaitGroup
			url := s.url
			if c.engine == sqlite {
				url = strings.TrimPrefix(url, "sqlite:")
			}
			db := dbtest.Open(t, url)
			fed.Go(func() { f.feed(ctx, db, c.policies) })
			for end := time.Now().Add(time.Duration(c.seconds) * time.Second); time.Now().Before(end); {
				f.sleep(300 + s.rand.IntN(1500))
				f.strike()
			}
			over()
			fed.Wait()
			f.settle()
			f.reckon(c.policies)
		})
	}
}

// settle waits until whatever had come when the storm ended is done, and stops the processes in good order.
func (f *fire) settle() {
	f.Helper()
	for i, p := range f.live {
		_ = p.cmd.Process.Signal(syscall.SIGCONT)
		if !p.running() {
			f.ended(p)
			f.launch(i)
		}
	}
	occ := f.inLedger("occurrence")
	last := f.column(f.led, "SELECT max(at) FROM "+occ)[0]
	f.eventually(f.live[0], "see every occurrence to its end", func() bool {
		return f.count(f.led, "SELECT count(*) FROM "+occ+" WHERE state = 'pending' AND at <= '"+last+"'") == 0
	})
	f.eventually(f.live[0], "remove every due row", func() bool {
		return f.count(f.db, "SELECT count(*) FROM session WHERE at < "+f.instant(f.asOf)) == 0
	})
	for _, p := range f.live {
		p.signal(syscall.SIGTERM)
	}
	for _, p := range f.live {
		if code := f.ended(p); code != 0 {
			f.Errorf("%v ended with exit code %d:\n%s", p.cmd.Args, code, tail(p.stderr.String()))
		}
	}
}

func tail(s string) string { return s[max(0, len(s)-3000):] }

// reckon compares what is there with what the ledger says.
func (f *fire) reckon(policies int) {
	f.Helper()
	occ, run, batch := f.inLedger("occurrence"), f.inLedger("run"), f.inLedger("batch")
	minutes := "extract(epoch FROM max(at) - min(at)) / 60 + 1"
	if strings.HasPrefix(f.ledger, sqlite) {
		minutes = "(julianday(max(at)) - julianday(min(at))) * 1440 + 1"
	}
	if n := f.count(f.led, "SELECT count(*) FROM (SELECT policy FROM "+occ+" GROUP BY policy HAVING abs(count(*) - ("+minutes+")) < 0.01) p"); n != policies {
		f.Errorf("%d of %d policies have an occurrence for each minute: %v", n, policies, f.column(f.led, "SELECT policy || ' ' || count(*) || ' ' || min(at) || ' ' || max(at) FROM "+occ+" GROUP BY policy"))
	}
	total := f.count(f.led, "SELECT count(*) FROM "+occ)
	f.Logf("%d occurrences: %v", total, f.column(f.led, "SELECT state || ' ' || why || ' ' || count(*) FROM "+occ+" GROUP BY state, why ORDER BY 1"))
	if n := f.count(f.led, "SELECT count(*) FROM "+occ+" WHERE state NOT IN ('ok', 'pending')"); n > 0 {
		f.Errorf("%d occurrences did not end well", n)
	}
	if n := f.count(f.led, "SELECT count(*) FROM (SELECT run FROM "+occ+" WHERE run <> '' GROUP BY run HAVING count(*) > 1) r"); n > 0 {
		f.Errorf("%d runs stand for two occurrences", n)
	}
	if n := f.count(f.led, "SELECT count(*) FROM "+occ+" WHERE state = 'ok' AND run NOT IN (SELECT id FROM "+run+" WHERE state = 'succeeded')"); n > 0 {
		f.Errorf("%d occurrences ended well without a run that did", n)
	}
	if n := f.count(f.led, "SELECT count(*) FROM "+run+" WHERE id NOT IN (SELECT run FROM "+occ+")"); n > 0 {
		f.Errorf("%d runs stand for no occurrence", n)
	}
	if n := f.count(f.led, "SELECT count(*) FROM "+run+" r WHERE ended_at IS NOT NULL AND (planned <> (SELECT coalesce(sum(planned), 0) FROM "+batch+" b WHERE b.run = r.id) OR batches_total <> batches_settled)"); n > 0 {
		f.Errorf("%d runs do not add up", n)
	}
	deleted := "coalesce(sum((outcomes->>'deleted')::bigint), 0)"
	if strings.HasPrefix(f.ledger, sqlite) {
		deleted = "coalesce(sum(json_extract(outcomes, '$.deleted')), 0)"
	}
	gone := f.count(f.led, "SELECT "+deleted+" FROM "+run)
	left := f.count(f.db, "SELECT count(*) FROM session")
	if gone+left != f.fed {
		f.Errorf("%d rows were put in, %d are there and the runs say that they removed %d", f.fed, left, gone)
	}
	if left != f.kept {
		f.Errorf("%d rows were renewed, and %d are left", f.kept, left)
	}
	f.Logf("%v; %d rows put in, %d removed, %d renewed", f.hits, f.fed, gone, f.kept)
	if gone == 0 {
		f.Error("nothing was removed")
	}
}

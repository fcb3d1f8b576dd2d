package curfew

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/internal/ledger"
)

// changed checks that a run is refused because the database is not the one on record, and that nothing is changed.
func (d *daemon) changed(c *Curfew, words string) {
	d.Helper()
	before := d.rows()
	run, err := c.Run(d.Context(), RunRequest{Policy: "sessions"})
	if KindOf(err) != KindRefused || !errors.As(err, new(*changedError)) || !strings.Contains(err.Error(), words) || !strings.Contains(HintOf(err), "curfew adopt app") {
		d.Fatalf("%+v, %v (%s), want it refused: %s", run, err, HintOf(err), words)
	}
	if d.rows() != before {
		d.Fatalf("%d rows were %d", d.rows(), before)
	}
	s, err := c.Status(d.Context())
	if err != nil || s[0].Well || !strings.Contains(s[0].Problem, words) || !strings.Contains(s[0].Hint, "curfew adopt app") {
		d.Errorf("status: %+v, %v", s, err)
	}
}

// adopted adopts the database, upon which the policies are kept in it.
func (d *daemon) adopted(c *Curfew, words string, deleted int64) {
	d.Helper()
	a, err := c.Adopt(d.Context(), "app")
	if err != nil || !a.Claimed || !strings.Contains(strings.Join(a.Differs, "; "), words) {
		d.Fatalf("%+v, %v", a, err)
	}
	d.succeeded(d.run(c, RunRequest{}), deleted)
	s, err := c.Status(d.Context())
	if err != nil || !s[0].Well {
		d.Errorf("status: %+v, %v", s, err)
	}
	l, err := c.ledger(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	var told int
	entries, err := l.AuditEntries(d.Context(), 0, 1000)
	for _, e := range entries {
		if e.Action == ledger.ActionDatabaseAdopted && strings.Contains(string(e.Body), "app") {
			told++
		}
	}
	if err != nil || told == 0 {
		d.Errorf("the audit log has %d adoptions, %v", told, err)
	}
}

// another opens a ledger that is made just now, by the clock outside.
func (d *daemon) another() *Curfew {
	d.Helper()
	c := d.open()
	if _, _, err := c.AcceptClock(d.Context()); err != nil {
		d.Fatal(err)
	}
	return c
}

func (d *daemon) copyFile(from, to string) {
	d.Helper()
	b, err := os.ReadFile(filepath.Join(d.dir, from))
	if err != nil {
		d.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(d.dir, to), b, 0o600); err != nil {
		d.Fatal(err)
	}
}

// A file that is the copy of another is not taken for it, whatever is in it.
func TestCopiedFile(t *testing.T) {
	d := newDaemon(t, beltsStart, beltPolicy("description: words"))
	d.sessions(3, beltsStart.Add(-time.Hour))
	d.succeeded(d.run(d.open(), RunRequest{}), 3)
	d.sessions(4, beltsStart.Add(-time.Hour))
	d.copyFile("app.db", "clone.db")
	opts := d.options()
	opts.Config.Databases["app"].URL = "sqlite:clone.db"
	clone, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { clone.Close() })
	d.changed(clone, "the file was")
	d.adopted(clone, "the file was", 4)
	if d.rows() != 4 {
		t.Errorf("the original has %d rows", d.rows())
	}
	d.changed(d.open(), "the file was") // now it is that one that the ledger does not know
}

// A database restored to an older state is missing receipts that the ledger knows of.
func TestRestoredDatabase(t *testing.T) {
	d := newDaemon(t, beltsStart, beltPolicy("description: words"))
	d.sessions(3, beltsStart.Add(-time.Hour))
	c := d.open()
	d.succeeded(d.run(c, RunRequest{}), 3)
	c.Close()
	d.copyFile("app.db", "backup.db")
	d.sessions(4, beltsStart.Add(-time.Hour))
	c = d.open()
	d.succeeded(d.run(c, RunRequest{}), 4)
	c.Close()
	d.copyFile("backup.db", "app.db")
	d.sessions(5, beltsStart.Add(-time.Hour))
	c = d.open()
	d.changed(c, "restored to an older state")
	d.adopted(c, "restored to an older state", 5)
	// From the start, when curfew was not even there.
	c.Close()
	d.app("DROP TABLE curfew_claim", "DROP TABLE curfew_receipt", "DROP TABLE curfew_layout")
	c = d.open()
	if _, err := c.Install(t.Context(), "app", false); err != nil {
		t.Fatal(err)
	}
	d.changed(c, "installation")
	d.adopted(c, "claim", 0)
}

// A ledger restored to an older state does not know what was done last.
func TestRestoredLedger(t *testing.T) {
	d := newDaemon(t, beltsStart, beltPolicy("description: words"))
	d.sessions(3, beltsStart.Add(-time.Hour))
	c := d.open()
	d.succeeded(d.run(c, RunRequest{}), 3)
	db := dbtest.Open(t, "sqlite:"+filepath.Join(d.dir, "curfew.db"))
	if _, err := db.Exec("VACUUM INTO '" + filepath.Join(d.dir, "restored.db") + "'"); err != nil {
		t.Fatal(err)
	}
	d.copyFile("curfew.key", "restored.key")
	d.sessions(4, beltsStart.Add(-time.Hour))
	d.succeeded(d.run(c, RunRequest{}), 4)
	d.led = "sqlite:restored.db"
	d.sessions(5, beltsStart.Add(-time.Hour))
	c = d.open()
	d.changed(c, "which the ledger does not know")
	d.adopted(c, "which the ledger does not know", 5)
}

// A second ledger that claims a database is refused, until it is adopted; then the first one is.
func TestSecondLedger(t *testing.T) {
	d := newDaemon(t, beltsStart, beltPolicy("description: words"))
	d.sessions(3, beltsStart.Add(-time.Hour))
	first := d.open()
	d.succeeded(d.run(first, RunRequest{}), 3)
	d.sessions(4, beltsStart.Add(-time.Hour))
	d.led = "sqlite:second.db"
	second := d.another()
	d.changed(second, "belongs to another ledger")
	d.adopted(second, "belongs to another ledger", 4)
	d.sessions(5, beltsStart.Add(-time.Hour))
	d.changed(first, "belongs to another ledger")
}

// A crash of adopt in between leaves the database as it was for the ledger: another one's, or ours without a record.
func TestAdoptKilled(t *testing.T) {
	d := newDaemon(t, beltsStart, beltPolicy("description: words"))
	d.sessions(3, beltsStart.Add(-time.Hour))
	c := d.open()
	d.succeeded(d.run(c, RunRequest{}), 3)
	d.sessions(1, beltsStart.Add(-time.Hour))
	died := d.dies("claimed", func() error { _, err := c.Adopt(t.Context(), "app"); return err })
	if died != "killed" {
		t.Fatalf("it was not killed: %v", died)
	}
	c = d.open()
	d.changed(c, "agreed on last")
	d.adopted(c, "agreed on last", 1)
}

// Nothing stands in the way of a shadow run, which changes nothing, nor of a database that is itself again.
func TestChangedAndBack(t *testing.T) {
	d := newDaemon(t, beltsStart, beltPolicy("description: words"))
	d.sessions(3, beltsStart.Add(-time.Hour))
	c := d.open()
	d.succeeded(d.run(c, RunRequest{}), 3)
	d.sessions(2, beltsStart.Add(-time.Hour))
	d.app("UPDATE curfew_claim SET ledger = 'x' || ledger")
	d.changed(c, "belongs to another ledger")
	if run := d.run(c, RunRequest{Shadow: true}); run.Outcomes["due"] != 2 {
		t.Errorf("a shadow run: %+v", run)
	}
	d.app("UPDATE curfew_claim SET ledger = substr(ledger, 2)")
	d.succeeded(d.run(c, RunRequest{}), 2)
	s, err := c.Status(t.Context())
	if err != nil || !s[0].Well {
		t.Errorf("%+v, %v", s, err)
	}
}

// A database in which curfew was installed before there were claims is put on record without one.
func TestInstalledBeforeClaims(t *testing.T) {
	d := newDaemon(t, beltsStart, beltPolicy("description: words"))
	d.app("DROP TABLE curfew_claim")
	d.sessions(3, beltsStart.Add(-time.Hour))
	c := d.open()
	d.succeeded(d.run(c, RunRequest{}), 3)
	if _, err := c.Install(t.Context(), "app", false); err != nil { // which makes the claim
		t.Fatal(err)
	}
	d.sessions(2, beltsStart.Add(-time.Hour))
	d.succeeded(d.run(c, RunRequest{}), 2)
	d.led = "sqlite:second.db"
	d.changed(d.another(), "belongs to another ledger")
}

// In a service the runs of such a database are left out, and people are told, once.
func TestServeChangedDatabase(t *testing.T) {
	d := newDaemon(t, beltsStart.Add(30*time.Minute), beltPolicy(`schedule: {cron: "0 * * * *"}`))
	d.sessions(3, beltsStart.Add(-time.Hour))
	c := d.open()
	d.succeeded(d.run(c, RunRequest{}), 3)
	d.app("UPDATE curfew_claim SET epoch = 'another'")
	d.sessions(2, beltsStart.Add(-time.Hour))
	d.start()
	l, err := c.ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.eventually("the schedule is seen", func() bool { s, err := l.Schedules(t.Context()); return err == nil && len(s) == 1 })
	for h := 1; h <= 2; h++ {
		d.clock.set(beltsStart.Add(time.Duration(h)*time.Hour + time.Second))
		d.eventually("the occurrence is skipped", func() bool { return d.states(c)["skipped"] == h })
	}
	runs, err := c.Runs(t.Context(), RunFilter{State: api.StateSkipped})
	if err != nil || len(runs) != 2 || runs[0].WhyEnded != "database_changed" || d.rows() != 2 {
		t.Errorf("%+v, %v; %d rows", runs, err, d.rows())
	}
	d.eventually("people are told", func() bool {
		a, err := l.Alerts(t.Context(), ledger.AlertFilter{Kind: "database.changed"})
		return err == nil && len(a) == 1 && strings.Contains(string(a[0].Body), "curfew adopt app")
	})
	if _, err := c.Adopt(t.Context(), "app"); err != nil {
		t.Fatal(err)
	}
	d.clock.set(beltsStart.Add(3*time.Hour + time.Second))
	d.eventually("the next run does its work", func() bool { return d.states(c)["ok"] == 1 })
	if d.rows() != 0 {
		t.Errorf("%d rows", d.rows())
	}
}

// CREATE DATABASE … TEMPLATE makes a clone that has all that the original has, but for its oid.
func TestClonedPostgres(t *testing.T) {
	original := dbtest.Postgres(t)
	d := newDaemon(t, beltsStart, beltPolicy("description: words"))
	db := dbtest.Open(t, original)
	for _, stmt := range []string{"CREATE TABLE session (id bigint PRIMARY KEY, expires bigint NOT NULL)", "INSERT INTO session VALUES (1, 1000), (2, 2000)"} {
		if _, err := db.Exec(stmt); err != nil {
			t.Fatal(err)
		}
	}
	at := func(url string) *Curfew {
		opts := d.options()
		opts.Config.Databases["app"].URL, opts.Clock = url, nil
		c, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	os.Remove(filepath.Join(d.dir, "curfew.db")) // its clock is another one
	c := at(original)
	if _, err := c.Install(t.Context(), "app", false); err != nil {
		t.Fatal(err)
	}
	d.succeeded(d.run(c, RunRequest{}), 2)
	c.Close()
	db.Close()
	u, err := url.Parse(original)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/")
	u.Path = "/postgres"
	admin := dbtest.Open(t, u.String())
	if _, err := admin.Exec("CREATE DATABASE " + name + "_clone TEMPLATE " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { admin.Exec("DROP DATABASE IF EXISTS " + name + "_clone WITH (FORCE)") })
	u.Path = "/" + name + "_clone"
	clone := dbtest.Open(t, u.String())
	if _, err := clone.Exec("INSERT INTO session VALUES (3, 3000)"); err != nil {
		t.Fatal(err)
	}
	c = at(u.String())
	if _, err := c.Run(t.Context(), RunRequest{Policy: "sessions"}); KindOf(err) != KindRefused || !strings.Contains(err.Error(), "the database was") {
		t.Fatalf("the clone: %v", err)
	}
	var n int
	if err := clone.QueryRow("SELECT count(*) FROM session").Scan(&n); err != nil || n != 1 {
		t.Errorf("the clone has %d rows, %v", n, err)
	}
	if _, err := c.Adopt(t.Context(), "app"); err != nil {
		t.Fatal(err)
	}
	d.succeeded(d.run(c, RunRequest{}), 1)
}

// A copy of a schema on MariaDB has another name, and is not taken for the original.
func TestClonedMariaDB(t *testing.T) {
	original, clone := dbtest.MariaDB(t), dbtest.MariaDB(t)
	d := newDaemon(t, beltsStart, beltPolicy("description: words"))
	os.Remove(filepath.Join(d.dir, "curfew.db")) // its clock is another one
	at := func(url string) *Curfew {
		opts := d.options()
		opts.Config.Databases["app"].URL, opts.Clock = url, nil
		c, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	db := dbtest.Open(t, original)
	if _, err := db.Exec("CREATE TABLE session (id bigint PRIMARY KEY, expires bigint NOT NULL); INSERT INTO session VALUES (1, 1000), (2, 2000)"); err != nil {
		t.Fatal(err)
	}
	c := at(original)
	if _, err := c.Install(t.Context(), "app", false); err != nil {
		t.Fatal(err)
	}
	d.succeeded(d.run(c, RunRequest{}), 2)
	from, err := url.Parse(original)
	if err != nil {
		t.Fatal(err)
	}
	copied := dbtest.Open(t, clone)
	var tables []string
	rows, err := db.Query("SHOW TABLES")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		tables = append(tables, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	for _, name := range tables {
		source := "`" + strings.TrimPrefix(from.Path, "/") + "`.`" + name + "`"
		if _, err := copied.Exec("CREATE TABLE `" + name + "` LIKE " + source + "; INSERT INTO `" + name + "` SELECT * FROM " + source); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := copied.Exec("INSERT INTO session VALUES (3, 3000)"); err != nil {
		t.Fatal(err)
	}
	c = at(clone)
	if _, err := c.Run(t.Context(), RunRequest{Policy: "sessions"}); KindOf(err) != KindRefused || !strings.Contains(err.Error(), "the database was") {
		t.Fatalf("the clone: %v", err)
	}
	var n int
	if err := copied.QueryRow("SELECT count(*) FROM session").Scan(&n); err != nil || n != 1 {
		t.Errorf("the clone has %d rows, %v", n, err)
	}
	if _, err := c.Adopt(t.Context(), "app"); err != nil {
		t.Fatal(err)
	}
	d.succeeded(d.run(c, RunRequest{}), 1)
}

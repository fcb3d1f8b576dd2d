package dbtest_test

import (
	"database/sql"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"curfew.dev/curfew/internal/dbtest"
)

func one[T any](t *testing.T, db *sql.DB, query string, args ...any) T {
	t.Helper()
	var v T
	if err := db.QueryRow(query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func exec1(t *testing.T, db *sql.DB, query string) {
	t.Helper()
	if _, err := db.Exec(query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func TestPostgresIsFreshAndDropped(t *testing.T) {
	var name string
	admin := dbtest.Open(t, dbtest.Postgres(t))
	t.Run("inner", func(t *testing.T) {
		a, b := dbtest.Open(t, dbtest.Postgres(t)), dbtest.Open(t, dbtest.Postgres(t))
		exec1(t, a, "CREATE TABLE x (id int); INSERT INTO x VALUES (1)") // several statements in one
		if got := one[bool](t, b, "SELECT to_regclass('x') IS NULL"); !got {
			t.Error("a table made in one database is visible in the other")
		}
		name = one[string](t, a, "SELECT current_database()")
	})
	if n := one[int](t, admin, "SELECT count(*) FROM pg_database WHERE datname = $1", name); n != 0 {
		t.Errorf("database %s outlived its test", name)
	}
}

func TestPostgresOptions(t *testing.T) {
	db := dbtest.Open(t, dbtest.PostgresWith(t, dbtest.PostgresOptions{ICULocale: "en-US", TimeZone: "Asia/Tokyo"}))
	if tz := one[string](t, db, "SHOW timezone"); tz != "Asia/Tokyo" {
		t.Errorf("time zone %q", tz)
	}
	if !one[bool](t, db, "SELECT 'a' < 'B'") {
		t.Error("text is ordered by bytes, not by the ICU locale")
	}
	if one[bool](t, dbtest.Open(t, dbtest.Postgres(t)), "SELECT 'a' < 'B'") {
		t.Error("the default collation is not the order of bytes")
	}
}

func TestPostgresTemplate(t *testing.T) {
	first := dbtest.Postgres(t)
	db := dbtest.Open(t, first)
	exec1(t, db, "CREATE TABLE x (id int); INSERT INTO x VALUES (1)")
	db.Close() // or it could not be copied
	second := dbtest.Open(t, dbtest.PostgresWith(t, dbtest.PostgresOptions{Template: first}))
	exec1(t, second, "INSERT INTO x VALUES (2)")
	if n := one[int](t, second, "SELECT count(*) FROM x"); n != 2 {
		t.Errorf("the copy has %d rows, want 2", n)
	}
	if n := one[int](t, dbtest.Open(t, first), "SELECT count(*) FROM x"); n != 1 {
		t.Errorf("the original has %d rows, want 1", n)
	}
}

func TestPostgresRole(t *testing.T) {
	var role string
	admin := dbtest.Open(t, dbtest.Postgres(t))
	t.Run("inner", func(t *testing.T) {
		target := dbtest.Postgres(t)
		owner := dbtest.Open(t, target)
		exec1(t, owner, "CREATE TABLE x (id int); INSERT INTO x VALUES (1)")
		asRole, name := dbtest.PostgresRole(t, target)
		role = name
		db := dbtest.Open(t, asRole)
		if got := one[string](t, db, "SELECT current_user"); got != role {
			t.Fatalf("connected as %q, want %q", got, role)
		}
		if _, err := db.Exec("SELECT * FROM x"); err == nil {
			t.Error("a new role may read a table")
		}
		exec1(t, owner, "GRANT SELECT ON x TO "+role)
		if n := one[int](t, db, "SELECT count(*) FROM x"); n != 1 {
			t.Errorf("%d rows after the grant", n)
		}
		if _, err := db.Exec("DELETE FROM x"); err == nil {
			t.Error("a role that may only read deleted a row")
		}
	})
	if n := one[int](t, admin, "SELECT count(*) FROM pg_roles WHERE rolname = $1", role); n != 0 {
		t.Errorf("role %s outlived its database", role)
	}
}

func TestMariaDBIsFreshAndDropped(t *testing.T) {
	var name string
	admin := dbtest.Open(t, dbtest.MariaDB(t))
	t.Run("inner", func(t *testing.T) {
		a, b := dbtest.Open(t, dbtest.MariaDB(t)), dbtest.Open(t, dbtest.MariaDB(t))
		exec1(t, a, "CREATE TABLE x (id int); INSERT INTO x VALUES (1)")
		if _, err := b.Exec("SELECT * FROM x"); err == nil {
			t.Error("a table made in one database is visible in the other")
		}
		name = one[string](t, a, "SELECT DATABASE()")
	})
	if n := one[int](t, admin, "SELECT COUNT(*) FROM information_schema.schemata WHERE schema_name = ?", name); n != 0 {
		t.Errorf("database %s outlived its test", name)
	}
}

func TestMariaDBUser(t *testing.T) {
	target := dbtest.MariaDB(t)
	owner := dbtest.Open(t, target)
	exec1(t, owner, "CREATE TABLE x (id int); INSERT INTO x VALUES (1)")
	asUser, account := dbtest.MariaDBUser(t, target)
	db := dbtest.Open(t, asUser)
	if err := db.Ping(); err == nil {
		t.Error("a user without rights may use the database")
	}
	exec1(t, owner, "GRANT SELECT ON x TO "+account)
	if n := one[int](t, db, "SELECT COUNT(*) FROM x"); n != 1 {
		t.Errorf("%d rows after the grant", n)
	}
	if _, err := db.Exec("DELETE FROM x"); err == nil {
		t.Error("a user who may only read deleted a row")
	}
}

func TestMariaDBTimeZone(t *testing.T) {
	target := dbtest.MariaDB(t)
	zone := func(t *testing.T) string { // a new session's
		return one[string](t, dbtest.Open(t, target), "SELECT @@time_zone")
	}
	// The server's, while nobody has another one set: other packages' tests do so meanwhile.
	own := func() string {
		db := dbtest.Open(t, target)
		db.SetMaxOpenConns(1) // the lock belongs to the connection
		one[int](t, db, "SELECT GET_LOCK('curfew_dbtest_time_zone', 600)")
		defer one[int](t, db, "SELECT RELEASE_LOCK('curfew_dbtest_time_zone')")
		return one[string](t, db, "SELECT @@GLOBAL.time_zone")
	}
	before := own()
	for _, z := range []string{"+09:00", "+00:00"} {
		t.Run(z, func(t *testing.T) {
			dbtest.MariaDBTimeZone(t, z)
			if got := zone(t); got != z {
				t.Errorf("new sessions have %q, want %q", got, z)
			}
		})
	}
	if got := own(); got != before {
		t.Errorf("afterwards the zone is %q, was %q", got, before)
	}
}

func TestSQLite(t *testing.T) {
	path := dbtest.SQLite(t)
	if _, err := os.Stat(path); err == nil {
		t.Error("the file is there already")
	}
	db := dbtest.Open(t, path)
	exec1(t, db, "CREATE TABLE p (id INTEGER PRIMARY KEY); CREATE TABLE c (p REFERENCES p)")
	if _, err := db.Exec("INSERT INTO c VALUES (1)"); err == nil {
		t.Error("foreign keys are not checked")
	}
	if other := dbtest.SQLite(t); filepath.Dir(other) == filepath.Dir(path) {
		t.Error("two files share a directory")
	}
}

// TestWithoutServers runs this test binary without the variables: skipped on a
// laptop, a failure in CI.
func TestWithoutServers(t *testing.T) {
	if os.Getenv("DBTEST_INNER") != "" {
		t.Run("postgres", func(t *testing.T) { dbtest.Postgres(t) })
		t.Run("mariadb", func(t *testing.T) { dbtest.MariaDB(t) })
		return
	}
	for _, ci := range []string{"", "true"} {
		cmd := exec.Command(os.Args[0], "-test.run=^TestWithoutServers$", "-test.v")
		cmd.Env = append(os.Environ(), "DBTEST_INNER=1", "CI="+ci, dbtest.PostgresVar+"=", dbtest.MariaDBVar+"=")
		out, err := cmd.CombinedOutput()
		if failed := err != nil; failed != (ci == "true") {
			t.Errorf("CI=%q: failed=%v\n%s", ci, failed, out)
		}
		for _, want := range []string{dbtest.PostgresVar, dbtest.MariaDBVar, "make test"} {
			if !strings.Contains(string(out), want) {
				t.Errorf("CI=%q: the message does not name %s:\n%s", ci, want, out)
			}
		}
	}
}

package target

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/internal/dbtest"
)

func TestOpenSettingsPostgres(t *testing.T) {
	base := dbtest.PostgresWith(t, dbtest.PostgresOptions{TimeZone: "Asia/Tokyo"})
	execAll(t, base, `ALTER DATABASE `+mustParse(t, base).Path[1:]+` SET DateStyle = 'SQL, DMY'`)
	u := mustParse(t, base)
	q := u.Query()
	q.Set("timezone", "America/New_York")
	q.Set("row_security", "on")
	q.Set("application_name", "mine")
	u.RawQuery = q.Encode()
	d := openDB(t, u.String())
	for name, want := range map[string]string{
		"TimeZone": "UTC", "DateStyle": "ISO, YMD", "IntervalStyle": "postgres", "row_security": "off", "bytea_output": "hex",
		"standard_conforming_strings": "on", "extra_float_digits": "1", "jit": "off", "application_name": "curfew",
		"default_transaction_isolation": "read committed", "idle_in_transaction_session_timeout": "1min",
	} {
		var got string
		if err := d.SQL.QueryRow("SELECT current_setting($1)", name).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %q, want %q (%v)", name, got, want, err)
		}
	}
}

// A connection whose settings were changed, by a function for instance, is not given out again.
func TestOpenDropsChangedConnection(t *testing.T) {
	d := arrange(t, Postgres)
	d.SQL.SetMaxOpenConns(1)
	pid := func() (pid int, zone string) {
		t.Helper()
		if err := d.SQL.QueryRow("SELECT pg_backend_pid(), current_setting('TimeZone')").Scan(&pid, &zone); err != nil {
			t.Fatal(err)
		}
		return pid, zone
	}
	first, _ := pid()
	if second, _ := pid(); second != first {
		t.Fatalf("the pool does not keep its connection: %d, %d", first, second)
	}
	if _, err := d.SQL.Exec("SET TimeZone = 'Asia/Tokyo'"); err != nil {
		t.Fatal(err)
	}
	if second, zone := pid(); second == first || zone != "UTC" {
		t.Errorf("connection %d (zone %s) came back", second, zone)
	}
}

func TestOpenRefusesReplicationRole(t *testing.T) {
	base := dbtest.Postgres(t)
	execAll(t, base, `ALTER DATABASE `+mustParse(t, base).Path[1:]+` SET session_replication_role = replica`)
	_, err := Open(t.Context(), "test", base, OpenOptions{})
	if err == nil || !strings.Contains(err.Error(), "session_replication_role") {
		t.Errorf("Open = %v", err)
	}
}

func TestOpenSettingsMariaDB(t *testing.T) {
	dbtest.MariaDBTimeZone(t, "+09:00")
	d := arrange(t, MySQL)
	var got string
	err := d.SQL.QueryRow(`SELECT CONCAT_WS(' ', @@time_zone, @@tx_isolation, @@foreign_key_checks, @@unique_checks, @@sql_safe_updates, @@sql_auto_is_null,
		@@innodb_lock_wait_timeout, @@idle_transaction_timeout, @@autocommit, @@character_set_client)`).Scan(&got)
	if want := "+00:00 READ-COMMITTED ON ON OFF OFF 50 60 ON utf8mb4"; err != nil || got != want {
		t.Errorf("settings %q, want %q (%v)", got, want, err)
	}
	if err := d.SQL.QueryRow(`SELECT @@sql_mode`).Scan(&got); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"NO_BACKSLASH_ESCAPES", "NO_UNSIGNED_SUBTRACTION"} {
		if !strings.Contains(got, mode) {
			t.Errorf("sql_mode %s lacks %s", got, mode)
		}
	}
	for _, mode := range []string{"STRICT", "ANSI", "NO_ZERO_DATE", "PIPES"} {
		if strings.Contains(got, mode) {
			t.Errorf("sql_mode %s has %s", got, mode)
		}
	}
	var n int
	if err := d.SQL.QueryRow(`SELECT CHAR_LENGTH('\')`).Scan(&n); err != nil || n != 1 {
		t.Errorf("a backslash is %d characters, %v", n, err)
	}
}

func TestOpenSQLite(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(t.Context(), "test", "sqlite:"+dir+"/none.db", OpenOptions{}); err == nil || !strings.Contains(err.Error(), "no SQLite file") {
		t.Errorf("missing file: %v", err)
	}
	if _, err := os.Stat(dir + "/none.db"); !os.IsNotExist(err) {
		t.Errorf("the file was made: %v", err)
	}
	if _, err := Open(t.Context(), "test", "sqlite:"+dir, OpenOptions{}); err == nil || !strings.Contains(err.Error(), "not a file") {
		t.Errorf("directory: %v", err)
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("not a database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), "test", "sqlite:"+text, OpenOptions{}); err == nil || !strings.Contains(err.Error(), "not a SQLite database") {
		t.Errorf("text file: %v", err)
	}

	path := filepath.Join(dir, "a b?c#d%41.db")
	execAll(t, "sqlite:"+path[:len(dir)]+"/plain.db", `CREATE TABLE t (id INTEGER PRIMARY KEY, status TEXT)`, `INSERT INTO t VALUES (1, 'x')`, `PRAGMA journal_mode = TRUNCATE`)
	if err := os.Rename(dir+"/plain.db", path); err != nil {
		t.Fatal(err)
	}
	d := openDB(t, "sqlite:"+path)
	for pragma, want := range map[string]string{"foreign_keys": "1", "journal_mode": "delete", "busy_timeout": "10000"} {
		var got string
		if err := d.SQL.QueryRow("PRAGMA " + pragma).Scan(&got); err != nil || got != want {
			t.Errorf("%s is %s, want %s (%v)", pragma, got, want, err)
		}
	}
	var n int
	err := d.SQL.QueryRow(`SELECT count(*) FROM t WHERE "statsu" <> 'active'`).Scan(&n)
	if classify(err) != classUndefined {
		t.Errorf("a misspelt column in double quotes: %d rows, %v", n, err)
	}
}

// journal_mode WAL is a property of the file; it must be what it was after we have written.
func TestOpenSQLiteKeepsJournalMode(t *testing.T) {
	for _, mode := range []string{"delete", "wal"} {
		path := dbtest.SQLite(t)
		execAll(t, "sqlite:"+path, `PRAGMA journal_mode = `+mode, `CREATE TABLE t (id INTEGER PRIMARY KEY)`)
		d := openDB(t, "sqlite:"+path)
		if _, err := d.SQL.Exec(`INSERT INTO t VALUES (1)`); err != nil {
			t.Fatal(err)
		}
		d.Close()
		var got string
		if err := dbtest.Open(t, path).QueryRow(`PRAGMA journal_mode`).Scan(&got); err != nil || got != mode {
			t.Errorf("journal_mode was %s and is %s (%v)", mode, got, err)
		}
	}
}

func TestServer(t *testing.T) {
	eachEngine(t, func(t *testing.T, e Engine) {
		a, b := arrange(t, e), arrange(t, e)
		again, err := a.Server(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		same(t, "the same server", again, a.server)
		if again.Engine != e || again.Identity == "" || again.Identity == b.server.Identity || again.Major == 0 || again.Version == "" || again.ReadOnly {
			t.Errorf("server %+v, another %+v", again, b.server)
		}
		if e == MySQL && (!again.MariaDB || again.Major < 10) {
			t.Errorf("server %+v", again)
		}
		if e != SQLite && (again.Role == "" || !strings.Contains(again.Database, "_")) {
			t.Errorf("no role, no database: %+v", again)
		}
	})
}

func TestServerReadOnlyFile(t *testing.T) {
	if os.Getuid() == 0 {
		t.Skip("root may write any file")
	}
	path := dbtest.SQLite(t)
	execAll(t, "sqlite:"+path, `CREATE TABLE t (id INTEGER PRIMARY KEY)`)
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	d := openDB(t, "sqlite:"+path)
	if !d.server.ReadOnly || inspect(t, d, "t").Privileges.Delete {
		t.Error("the file may not be written")
	}
}

// Whatever is wrong with a URL or a server, the password in it is not in the message.
func TestOpenNeverTellsThePassword(t *testing.T) {
	const pw = "hunter2-s3cr3t"
	urls := []string{
		"postgres://u:" + pw + "@127.0.0.1:1/db", "postgres://u:" + pw + "@127.0.0.1:notaport/db", "postgres://u:" + pw + "/x@127.0.0.1/db",
		"postgres://u:" + pw + "#x@127.0.0.1/db", "postgres://u:" + pw + "%zz@127.0.0.1/db", "postgres://u:" + pw + "@[::1/db",
		"postgres://u:" + pw + "@127.0.0.1:1/db?sslmode=" + pw, "postgres:u:" + pw, "postgresql://u@127.0.0.1:1/db?password=" + pw,
		"mysql://u:" + pw + "@127.0.0.1:1/db", "mysql://u:" + pw + "@127.0.0.1:notaport/db", "mysql://u:" + pw + "@tcp(127.0.0.1)/db",
		"mysql://u:" + pw + "/x@127.0.0.1/db", "mysql://u:" + pw + "@127.0.0.1:1/", "mysql://u:" + pw + "@127.0.0.1:1/db?parseTime=true",
		"mysql://u:" + pw + "@127.0.0.1:1/db?timeout=" + pw, "mysql://u:" + pw + "@127.0.0.1:1/db?tls=nothing", "mysql:u:" + pw,
		"mariadb://u:" + pw + "@127.0.0.1:1/db", "oracle://u:" + pw + "@h/db", pw, "",
	}
	for _, env := range []string{dbtest.PostgresVar, dbtest.MariaDBVar} {
		if v := os.Getenv(env); v != "" {
			u := mustParse(t, v)
			u.User = url.UserPassword("nobody_of_that_name", pw)
			u.Path = "/none"
			urls = append(urls, u.String())
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	for _, u := range urls {
		d, err := Open(ctx, "test", u, OpenOptions{})
		if err == nil {
			d.Close()
			t.Errorf("Open(%q) succeeded", u)
			continue
		}
		if strings.Contains(err.Error(), pw) || !strings.Contains(err.Error(), `"test"`) {
			t.Errorf("Open(%q) = %v", u, err)
		}
	}
}

func mustParse(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

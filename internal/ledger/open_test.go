package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/internal/dbtest"
)

// allMigrations are what a new ledger gets, in order.
var allMigrations = func() (names []string) {
	files, err := migrations.ReadDir("migrations/sqlite")
	if err != nil {
		panic(err)
	}
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".sql"))
	}
	return names
}()

func value[T any](t testing.TB, db *sql.DB, query string) T {
	t.Helper()
	var v T
	if err := db.QueryRowContext(t.Context(), query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func run(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func TestOpenNewFile(t *testing.T) {
	path := dbtest.SQLite(t)
	l := open(t, Options{URL: "sqlite:" + path})
	if mode := value[string](t, l.write, `PRAGMA journal_mode`); mode != "wal" {
		t.Errorf("journal mode %s", mode)
	}
	for _, db := range []*sql.DB{l.write, l.read} {
		if s := value[int](t, db, `PRAGMA synchronous`); s != 2 {
			t.Errorf("synchronous %d, want FULL", s)
		}
		if f := value[int](t, db, `PRAGMA foreign_keys`); f != 1 {
			t.Error("foreign keys are off")
		}
	}
	epoch, created, err := l.Epoch(t.Context())
	if err != nil || len(epoch) != 32 || created.IsZero() {
		t.Errorf("epoch %q, created %v, %v", epoch, created, err)
	}
	r := accept(t, l, an("p", "key:1"))
	again := open(t, Options{URL: "sqlite:" + path})
	if e, _, err := again.Epoch(t.Context()); err != nil || e != epoch {
		t.Errorf("epoch %q became %q, %v", epoch, e, err)
	}
	if got, err := again.Get(t.Context(), r.ID); err != nil || got.ID != r.ID {
		t.Error(err)
	}
	other := open(t, Options{URL: "sqlite:" + dbtest.SQLite(t)})
	if e, _, err := other.Epoch(t.Context()); err != nil || e == epoch {
		t.Errorf("two ledgers with one epoch, %v", err)
	}
}

// TestCloseFoldsTheLog: a closed ledger is one file, to be copied as one.
func TestCloseFoldsTheLog(t *testing.T) {
	path := dbtest.SQLite(t)
	l, err := Open(t.Context(), Options{URL: "sqlite:" + path})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.List(t.Context(), Filter{}); err != nil { // a reader was there too
		t.Fatal(err)
	}
	accept(t, l, an("p", "key:1"))
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if files, err := filepath.Glob(path + "*"); err != nil || len(files) != 1 {
		t.Errorf("left: %v, %v", files, err)
	}
}

// TestOpenUsersFile: the ledger moves into a file that an application lives in.
// Its data, its migrations' table and its journal mode stay what they were.
func TestOpenUsersFile(t *testing.T) {
	for _, mode := range []string{"delete", "truncate", "wal"} {
		t.Run(mode, func(t *testing.T) {
			path := dbtest.SQLite(t)
			app := raw(t, path)
			run(t, app, `PRAGMA journal_mode = `+mode,
				`CREATE TABLE loan (id INTEGER PRIMARY KEY, due TEXT)`, `INSERT INTO loan VALUES (1, '2020-01-01'), (2, NULL)`,
				`CREATE TABLE goose_db_version (id INTEGER PRIMARY KEY, version_id INTEGER NOT NULL, is_applied INTEGER NOT NULL, tstamp TEXT)`,
				`INSERT INTO goose_db_version VALUES (1, 99, 1, 'then')`)
			l := open(t, Options{URL: "sqlite:" + path})
			r := admitOne(t, l, started(t, l, "p"), 1, 2)
			settleOne(t, l, r, 1, Outcomes{"deleted": 2})
			checkRun(t, l, r.ID)
			want := mode
			if mode == "truncate" {
				want = "delete" // a connection's choice, not kept in the file
			}
			fresh := raw(t, path)
			if got := value[string](t, fresh, `PRAGMA journal_mode`); got != want {
				t.Errorf("the journal mode became %s", got)
			}
			if n := value[int](t, fresh, `SELECT count(*) FROM loan`); n != 2 {
				t.Errorf("%d loans", n)
			}
			if v := value[int](t, fresh, `SELECT max(version_id) FROM goose_db_version`); v != 99 {
				t.Errorf("the application's schema version became %d", v)
			}
			again := open(t, Options{URL: "sqlite:" + path})
			checkRun(t, again, r.ID)
		})
	}
}

// TestForeignWriter: the application keeps writing to the file that the ledger is in.
func TestForeignWriter(t *testing.T) {
	path := dbtest.SQLite(t)
	app := raw(t, path)
	app.SetMaxOpenConns(1)
	run(t, app, `CREATE TABLE loan (id INTEGER PRIMARY KEY)`, `PRAGMA busy_timeout = 10000`)
	l := open(t, Options{URL: "sqlite:" + path})
	r := started(t, l, "p")
	var wg sync.WaitGroup
	done := make(chan struct{})
	written := 0
	wg.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			if _, err := app.ExecContext(t.Context(), `INSERT INTO loan DEFAULT VALUES`); err != nil {
				t.Errorf("the application's insert: %v", err)
				return
			}
			written++
		}
	})
	for n := 1; n <= 50; n++ {
		r = admitOne(t, l, r, n, 1)
		r = settleOne(t, l, r, n, Outcomes{"deleted": 1})
	}
	close(done)
	wg.Wait()
	checkRun(t, l, r.ID)
	if n := value[int](t, app, `SELECT count(*) FROM loan`); n != written || n == 0 {
		t.Errorf("%d of the application's %d rows are there", n, written)
	}
}

func TestOpenPaths(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"plain.db", "a b.db", "100%25.db", "what?mode=ro", "x#y.db", "ü.db"} {
		open(t, Options{URL: "sqlite:" + filepath.Join(dir, name)})
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	open(t, Options{URL: "sqlite://" + filepath.Join(dir, "slashes.db")})
	t.Chdir(dir)
	open(t, Options{URL: "sqlite:relative.db"})
	for _, name := range []string{"slashes.db", "relative.db"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	notOurs := filepath.Join(t.TempDir(), "letter.txt")
	if err := os.WriteFile(notOurs, []byte(strings.Repeat("Dear auditor, ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, url := range map[string]string{
		"empty":           "",
		"no scheme":       "curfew.db",
		"other scheme":    "mysql://root:s3cret@localhost/x",
		"no path":         "sqlite:",
		"memory":          "sqlite::memory:",
		"no directory":    "sqlite:" + filepath.Join(t.TempDir(), "no", "such", "dir.db"),
		"a directory":     "sqlite:" + t.TempDir(),
		"not a database":  "sqlite:" + notOurs,
		"unreachable":     "postgres://curfew:s3cret@127.0.0.1:1/x?connect_timeout=1",
		"bad parameter":   "postgres://curfew:s3cret@127.0.0.1:99999/x",
		"unparsable":      "postgres://curfew:s3cret@[::1/x",
		"unknown sslmode": "postgres://curfew:s3cret@127.0.0.1/x?sslmode=perhaps",
	} {
		l, err := Open(t.Context(), Options{URL: url})
		if err == nil {
			l.Close()
			t.Errorf("%s: opened", name)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the message has the password: %v", name, err)
		}
	}
	text, err := os.ReadFile(notOurs)
	if err != nil || !strings.HasPrefix(string(text), "Dear auditor") {
		t.Errorf("the letter was changed: %v", err)
	}
}

func TestPostgresNeedsMigrate(t *testing.T) {
	url := dbtest.Postgres(t)
	_, err := Open(t.Context(), Options{URL: url})
	var need *MigrationNeededError
	if !errors.As(err, &need) || need.Have != 0 || !strings.Contains(err.Error(), "curfew migrate") {
		t.Fatalf("%v, want a *MigrationNeededError", err)
	}
	db := raw(t, url)
	if n := value[int](t, db, `SELECT count(*) FROM pg_namespace WHERE nspname = 'curfew'`); n != 0 {
		t.Error("looking at the database made something in it")
	}
	applied, err := Migrate(t.Context(), Options{URL: url})
	if d := cmp.Diff(allMigrations, applied); err != nil || d != "" {
		t.Error(d, err)
	}
	applied, err = Migrate(t.Context(), Options{URL: url})
	if err != nil || len(applied) != 0 {
		t.Errorf("again: %v, %v", applied, err)
	}
	open(t, Options{URL: url})
}

// TestPostgresSchemaGiven: an administrator made the schema, and the migrating
// role may make no other. What a governed database gets from curfew is there too.
func TestPostgresSchemaGiven(t *testing.T) {
	url := dbtest.Postgres(t)
	asRole, role := dbtest.PostgresRole(t, url)
	run(t, raw(t, url), `CREATE SCHEMA curfew AUTHORIZATION `+role, `SET ROLE `+role,
		`CREATE TABLE curfew.receipt (x int)`, `CREATE TABLE curfew.hold (x int)`,
		`CREATE TABLE curfew.hold_epoch (x int)`, `CREATE TABLE curfew.tombstone (x int)`)
	if _, err := Migrate(t.Context(), Options{URL: asRole}); err != nil {
		t.Fatal(err)
	}
	l := open(t, Options{URL: asRole})
	checkRun(t, l, accept(t, l, an("p", "key:1")).ID)
}

func TestNewerLedger(t *testing.T) {
	onBothURLs(t, func(t *testing.T, url string) {
		l := open(t, Options{URL: url})
		run(t, l.write, l.q(`INSERT INTO @version (version_id, is_applied) VALUES (1000, true)`))
		for name, try := range map[string]func() error{
			"open": func() error {
				l, err := Open(t.Context(), Options{URL: url})
				if err == nil {
					l.Close()
				}
				return err
			},
			"migrate": func() error { _, err := Migrate(t.Context(), Options{URL: url}); return err },
		} {
			var newer *NewerLedgerError
			if err := try(); !errors.As(err, &newer) || newer.Have != 1000 {
				t.Errorf("%s: %v, want a *NewerLedgerError", name, err)
			}
		}
	})
}

// TestMigrateAtOnce: any number of processes may start on a new ledger.
func TestMigrateAtOnce(t *testing.T) {
	for engine, url := range map[string]func(t testing.TB) string{
		"sqlite":   func(t testing.TB) string { return "sqlite:" + dbtest.SQLite(t) },
		"postgres": dbtest.Postgres,
	} {
		t.Run(engine, func(t *testing.T) {
			url := url(t)
			var mu sync.Mutex
			var all []string
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					applied, err := Migrate(t.Context(), Options{URL: url})
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					all = append(all, applied...)
					mu.Unlock()
				})
			}
			wg.Wait()
			slices.Sort(all) // one may have made the first and another the second, and said so first
			if d := cmp.Diff(allMigrations, all); d != "" {
				t.Error(d)
			}
			l := open(t, Options{URL: url})
			if n := count(t, l, ActionLedgerCreated); n != 1 {
				t.Errorf("the ledger was created %d times", n)
			}
		})
	}
}

// TestMigrateLosesTheRace: between goose's look at the version and its first
// change, another process has migrated the file, and the change fails.
func TestMigrateLosesTheRace(t *testing.T) {
	l, err := connect(t.Context(), Options{URL: "sqlite:" + dbtest.SQLite(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	calls, broken := 0, errors.New("table curfew_meta already exists")
	up := func(ctx context.Context) ([]string, error) {
		if calls++; calls > 1 {
			return l.up(ctx)
		}
		if applied, err := l.up(ctx); err != nil || len(applied) != len(allMigrations) { // the rival
			t.Fatalf("%v, %v", applied, err)
		}
		return nil, broken
	}
	if applied, err := l.migrateSQLite(t.Context(), up); err != nil || len(applied) != 0 || calls != 2 {
		t.Errorf("applied %v in %d calls, %v", applied, calls, err)
	}
	calls = 0
	always := func(context.Context) ([]string, error) { calls++; return nil, broken }
	if _, err := l.migrateSQLite(t.Context(), always); !errors.Is(err, broken) || calls != 1 {
		t.Errorf("an error that is no lost race: %d calls, %v", calls, err)
	}
}

// TestMigrationsMatch: both engines have the same versions, tables and columns.
func TestMigrationsMatch(t *testing.T) {
	if p, s := newest("migrations/postgres"), newest("migrations/sqlite"); p != s {
		t.Fatalf("PostgreSQL is at version %d, SQLite at %d", p, s)
	}
	lite := open(t, Options{URL: "sqlite:" + dbtest.SQLite(t)})
	pg := open(t, Options{URL: migrated(t, dbtest.Postgres(t))})
	columns := func(l *Ledger, query string) (all []string) {
		rows, err := l.query(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var table, column string
			if err := rows.Scan(&table, &column); err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprintf("%s.%s", table, column))
		}
		slices.Sort(all)
		return all
	}
	d := cmp.Diff(
		columns(lite, `SELECT substr(m.name, 8), c.name FROM sqlite_master m, pragma_table_info(m.name) c
			WHERE m.type = 'table' AND m.name LIKE 'curfew\_%' ESCAPE '\' AND m.name <> 'curfew_version'`),
		columns(pg, `SELECT table_name, column_name FROM information_schema.columns
			WHERE table_schema = 'curfew' AND table_name <> 'version'`))
	if d != "" {
		t.Error(d)
	}
}

// TestDurableCommits: a database whose default gives durability up does not get
// its way with the ledger.
func TestDurableCommits(t *testing.T) {
	url := migrated(t, dbtest.Postgres(t))
	db := raw(t, url)
	run(t, db, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET synchronous_commit = off', current_database()); END $$`,
		`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = serializable', current_database()); END $$`)
	l := open(t, Options{URL: url})
	if got := value[string](t, l.write, `SHOW synchronous_commit`); got != "on" {
		t.Errorf("synchronous_commit is %s", got)
	}
	if got := value[string](t, l.write, `SHOW idle_in_transaction_session_timeout`); got != "1min" {
		t.Errorf("idle_in_transaction_session_timeout is %s", got)
	}
	err := l.tx(t.Context(), func(tx *txn) error {
		var level string
		if err := tx.queryRow(t.Context(), `SHOW transaction_isolation`).Scan(&level); err != nil || level != "read committed" {
			t.Errorf("isolation %s, %v", level, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

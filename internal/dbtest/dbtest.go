// Package dbtest gives a test a real, fresh database of its own, and nothing
// but a real one: no fake, no shared schema, no truncation between tests.
//
// Invariant: what it made (databases, roles, users, a changed server setting)
// is gone or put back when the test that asked for it has ended, and two tests,
// packages or processes on one server never see each other's.
//
// The servers are named by two administrator URLs in the environment, which
// `make test` sets after it has started both:
//
//	CURFEW_TEST_POSTGRES   postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable
//	CURFEW_TEST_MARIADB    mysql://root@127.0.0.1:3306/
//
// Without them a test is skipped, saying what to do; with CI=true it fails, so
// that a broken set-up can never pass for a green run.
package dbtest

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"
)

// The variables that name the servers.
const (
	PostgresVar = "CURFEW_TEST_POSTGRES"
	MariaDBVar  = "CURFEW_TEST_MARIADB"
)

// patience bounds every administrative statement: a test that left a lock
// behind must fail with a message, not hang until the test binary is killed.
const patience = 60 * time.Second

// names makes an identifier no other test has: the process, a random part
// (process ids come back) and a counter.
var names = struct {
	prefix  string
	counter atomic.Int64
}{prefix: fmt.Sprintf("t%d_%06x", os.Getpid(), rand.Uint32()>>8)}

func freshName() string {
	return fmt.Sprintf("%s_%d", names.prefix, names.counter.Add(1))
}

// SQLite returns the path of a SQLite file that does not exist yet, in a
// directory of its own that goes with the test.
func SQLite(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "test.db")
}

// Open opens what the other functions return: a postgres:// or mysql:// URL,
// or the path of a SQLite file (with or without a leading "sqlite:").
//
// The handle is for arranging and looking, and is closed with the test. MariaDB
// accepts several statements in one Exec, as PostgreSQL does when there are no
// parameters. Times are read as UTC. SQLite checks foreign keys.
func Open(t testing.TB, target string) *sql.DB {
	t.Helper()
	db, err := Connect(target)
	if err != nil {
		t.Fatalf("dbtest: open %s: %v", target, err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// Connect is Open for who closes the handle before the test has ended.
func Connect(target string) (*sql.DB, error) {
	switch scheme, _, _ := strings.Cut(target, ":"); scheme {
	case "postgres", "postgresql":
		return sql.Open("pgx", target)
	case "mysql", "mariadb":
		cfg, err := mysqlConfig(target)
		if err != nil {
			return nil, err
		}
		c, err := mysql.NewConnector(cfg)
		if err != nil {
			return nil, err
		}
		return sql.OpenDB(c), nil
	}
	path := strings.TrimPrefix(target, "sqlite:")
	return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)")
}

// mysqlConfig reads a mysql:// URL. It knows no options: a test that needs one
// sets it on its own connection.
func mysqlConfig(target string) (*mysql.Config, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, err
	}
	cfg := mysql.NewConfig()
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.Net, cfg.Addr = "tcp", u.Host
	cfg.DBName = strings.TrimPrefix(u.Path, "/")
	cfg.ParseTime, cfg.Loc = true, time.UTC
	cfg.MultiStatements = true
	cfg.InterpolateParams = true // so that several statements may share parameters
	return cfg, nil
}

// server returns the administrator URL in the variable, or ends the test.
func server(t testing.TB, variable, what string) string {
	t.Helper()
	v := os.Getenv(variable)
	if v != "" {
		return v
	}
	msg := fmt.Sprintf("dbtest: no %s to test against: %s is not set.\n"+
		"  make test                            starts one, runs everything and stops it\n"+
		"  make test PKG=./internal/x RUN=TestY the same for one package or test\n"+
		`  eval "$(make -s servers)"            starts one and leaves it running for go test`, what, variable)
	if os.Getenv("CI") == "true" {
		t.Fatal(msg)
	}
	t.Skip(msg)
	return ""
}

// admin runs statements on a connection of its own, and closes it: a shared
// pool would show up in the goroutine leak checks of the packages under test.
func admin(target string, statements ...string) error {
	db, err := Connect(target)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, s := range statements {
		if _, err := db.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

func must(t testing.TB, target string, statements ...string) {
	t.Helper()
	if err := admin(target, statements...); err != nil {
		t.Fatalf("dbtest: %v", err)
	}
}

// withDatabase returns the URL with another database, and with another user
// unless user is empty; the password is then the user's name.
func withDatabase(t testing.TB, target, database, user string) string {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	u.Path = "/" + database
	if user != "" {
		u.User = url.UserPassword(user, user)
	}
	return u.String()
}

// databaseOf returns the name of the database a URL points at.
func databaseOf(t testing.TB, target string) string {
	t.Helper()
	u, err := url.Parse(target)
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	return strings.TrimPrefix(u.Path, "/")
}

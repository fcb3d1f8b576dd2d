package riverq

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"curfew.dev/curfew/internal/dbtest"
)

func TestMain(m *testing.M) {
	switch job := os.Getenv(childVar); job {
	case "":
	case "call":
		os.Exit(callChild())
	default:
		os.Exit(child(job))
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// place is a database for a queue; open opens it as one more process would.
type place struct {
	url    string
	sqlite bool
}

func (p place) schema() string {
	if p.sqlite {
		return ""
	}
	return "curfew"
}

func (p place) connect() (*sql.DB, error) {
	if !p.sqlite {
		db, err := dbtest.Connect(p.url)
		if err == nil {
			db.SetMaxOpenConns(4)
		}
		return db, err
	}
	db, err := sql.Open("sqlite", "file:"+p.url+
		"?_txlock=immediate&_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)")
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

func (p place) open(t testing.TB) *sql.DB {
	t.Helper()
	db, err := p.connect()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// job is the table of the queue's jobs.
func (p place) job() string {
	if p.sqlite {
		return "river_job"
	}
	return "curfew.river_job"
}

// onBoth runs a test against a fresh queue on each engine.
func onBoth(t *testing.T, test func(t *testing.T, p place)) {
	onBothEmpty(t, func(t *testing.T, p place) {
		if err := Migrate(t.Context(), p.open(t), p.sqlite, p.schema()); err != nil {
			t.Fatal(err)
		}
		test(t, p)
	})
}

// onBothEmpty does without the tables.
func onBothEmpty(t *testing.T, test func(t *testing.T, p place)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, place{url: dbtest.SQLite(t), sqlite: true})
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		p := place{url: dbtest.Postgres(t)}
		mustExec(t, p.open(t), `CREATE SCHEMA curfew`)
		test(t, p)
	})
}

// postgresPlace is a fresh queue on PostgreSQL.
func postgresPlace(t *testing.T) place {
	p := place{url: dbtest.Postgres(t)}
	db := p.open(t)
	mustExec(t, db, `CREATE SCHEMA curfew`)
	if err := Migrate(t.Context(), db, false, "curfew"); err != nil {
		t.Fatal(err)
	}
	return p
}

func mustExec(t testing.TB, db *sql.DB, query string, args ...any) {
	t.Helper()
	if _, err := db.Exec(query, args...); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

func one[T any](t testing.TB, db *sql.DB, query string, args ...any) T {
	t.Helper()
	var v T
	if err := db.QueryRow(query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

type execute = func(ctx context.Context, b Batch, attempt int, last bool) error

// client returns a client, on a handle of its own unless edit gives it one.
func (p place) client(t testing.TB, f execute, edit ...func(*Options)) *Client {
	t.Helper()
	o := Options{SQLite: p.sqlite, Schema: p.schema(), Workers: 4, Reserved: 1, Execute: f,
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), ID: "test"}
	for _, e := range edit {
		e(&o)
	}
	if o.DB == nil {
		o.DB = p.open(t)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// start starts a client and stops it with the test.
func start(t testing.TB, c *Client) *Client {
	t.Helper()
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, c) })
	return c
}

func stop(t testing.TB, c *Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := c.Stop(ctx); err != nil {
		t.Error(err)
	}
}

func insert(t testing.TB, c *Client, batches ...Batch) {
	t.Helper()
	tx, err := c.o.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := c.InsertTx(t.Context(), tx, batches); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

func batch(seq int64, edit ...func(*Batch)) Batch {
	b := Batch{Run: "r", Seq: seq, Attempts: 5, Backoff: time.Millisecond, Factor: 2}
	for _, e := range edit {
		e(&b)
	}
	return b
}

// eventually waits for what other goroutines and processes bring about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(60 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func receive[T any](t testing.TB, what string, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(60 * time.Second):
		t.Fatalf("not within a minute: %s", what)
		panic("unreachable")
	}
}

// tally counts by batch.
type tally struct {
	mu sync.Mutex
	n  map[int64]int
}

func (c *tally) add(seq int64) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[int64]int{}
	}
	c.n[seq]++
	return c.n[seq]
}

func (c *tally) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.n)
}

package curfewtest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	"curfew.dev/curfew"
	"curfew.dev/curfew/api"
	"curfew.dev/curfew/curfewtest"
	"curfew.dev/curfew/policy"
	"curfew.dev/curfew/task"
)

// A policy over a database of the test's: a day later its due rows are gone, the others are not.
func TestPolicy(t *testing.T) {
	path := filepath.Join(t.TempDir(), "app.db")
	db, err := sql.Open("sqlite", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(`CREATE TABLE user_session (id TEXT PRIMARY KEY, expires_at INTEGER NOT NULL);
		CREATE INDEX user_session_expires ON user_session (expires_at)`); err != nil {
		t.Fatal(err)
	}
	file, err := policy.Parse([]byte(fmt.Sprintf(`
version: 1
databases: {app: {url: "sqlite:%s"}}
policies:
  sessions:
    database: app
    table: user_session
    until: {column: expires_at, unit: s}
    keep: 1h
    action: delete
    mode: enforce
    schedule: {cron: "0 3 * * *"}
`, path)), policy.Options{Path: "curfew.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	k := curfewtest.New(t, curfewtest.Options{Config: file, Logger: quiet()})
	for i, expires := range []time.Duration{-time.Hour, 30 * time.Minute, 119 * time.Minute, 2 * time.Hour, 25 * time.Hour} {
		if _, err := db.Exec(`INSERT INTO user_session VALUES ($1, $2)`, i, k.Now().Add(expires).Unix()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := k.App().Install(t.Context(), "app", false); err != nil {
		t.Fatal(err)
	}
	k.Advance(24 * time.Hour)
	var left string
	if err := db.QueryRow(`SELECT group_concat(id) FROM user_session`).Scan(&left); err != nil || left != "3,4" {
		t.Errorf("left are %q (%v), want 3,4", left, err)
	}
	runs, err := k.App().Runs(t.Context(), curfew.RunFilter{})
	if err != nil || len(runs) != 1 || runs[0].State != "succeeded" || runs[0].Outcomes["deleted"] != 3 {
		t.Errorf("%+v, %v", runs, err)
	}
	k.RequireWell()
}

// A handler defers another call, in a transaction of its own, and one for later.
func TestHandlerDefers(t *testing.T) {
	var did diary
	var k *curfewtest.Kit
	send := task.New("mail.send", func(_ context.Context, c task.Call[letter]) error {
		did.add("%s %s", c.Args.To, k.Now().Format("15:04"))
		return nil
	}, task.Options{})
	each := task.New("mail.each", func(ctx context.Context, c task.Call[none]) error {
		for _, to := range []string{"ada", "grace"} {
			if _, err := k.App().Defer(ctx, send, letter{to}, curfew.Unique(to)); err != nil {
				return err
			}
		}
		return k.Tx(func(tx *sql.Tx) error {
			_, err := k.App().DeferTx(ctx, tx, send, letter{"later"}, curfew.In(10*time.Minute))
			return err
		})
	}, task.Options{Cron: "0 1 * * *"})
	k = curfewtest.New(t, curfewtest.Options{Tasks: []*task.Task{send, each}, Logger: quiet()})
	k.Advance(time.Hour)
	if len(did.lines) != 2 || !strings.HasSuffix(did.lines[0], " 01:00") {
		t.Errorf("%q", did.lines)
	}
	did.lines = nil
	k.RequireDeferred(send, letter{"later"})
	k.Advance(time.Hour)
	did.want(t, "later 01:10")
	k.RequireWell()
}

// Kits share nothing.
func TestParallel(t *testing.T) {
	var all sync.Mutex
	ids := map[string]int{}
	for i := range 6 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			var did diary
			send := task.New("mail.send", func(_ context.Context, c task.Call[letter]) error { did.add("%s", c.Args.To); return nil }, task.Options{Cron: ""})
			k := curfewtest.New(t, curfewtest.Options{Tasks: []*task.Task{send}, Logger: quiet(), Start: time.Date(2020+i, 1, 1, 0, 0, 0, 0, time.UTC)})
			if _, err := k.App().DeferIn(t.Context(), time.Hour, send, letter{t.Name()}); err != nil {
				t.Fatal(err)
			}
			k.Advance(2 * time.Hour)
			did.want(t, t.Name())
			if calls := k.Calls(send); len(calls) != 1 || k.Now().Year() != 2020+i {
				t.Errorf("%d calls, in %d", len(calls), k.Now().Year())
			}
			all.Lock()
			defer all.Unlock()
			ids[t.Name()]++
		})
	}
}

// recorded is a test that is allowed to fail.
type recorded struct {
	testing.TB
	failed []string
}

func (r *recorded) Helper() {}
func (r *recorded) Errorf(format string, args ...any) {
	r.failed = append(r.failed, fmt.Sprintf(format, args...))
}
func (r *recorded) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	panic(r)
}

// fails runs fn, which is to fail the test.
func (r *recorded) fails(t *testing.T, want string, fn func()) {
	t.Helper()
	r.failed = nil
	func() {
		defer func() {
			if p := recover(); p != nil && p != any(r) {
				panic(p)
			}
		}()
		fn()
	}()
	if len(r.failed) != 1 || !strings.Contains(r.failed[0], want) {
		t.Errorf("it failed with %q, want %q", r.failed, want)
	}
}

// What is required and is not so fails the test, and says how it is.
func TestRequire(t *testing.T) {
	r := &recorded{TB: t}
	bad := task.New("bad", func(context.Context, task.Call[letter]) error { return task.Fail(errors.New("no such address")) }, task.Options{})
	k := curfewtest.New(r, curfewtest.Options{Tasks: []*task.Task{bad}, Logger: quiet()})
	r.fails(t, "no call of bad waits", func() { k.RequireDeferred(bad, letter{"ada"}) })
	if _, err := k.App().Defer(t.Context(), bad, letter{"ada"}); err != nil {
		t.Fatal(err)
	}
	r.fails(t, `{"to":"ada"}`, func() { k.RequireDeferred(bad, letter{"grace"}) })
	r.fails(t, `a call of bad waits`, func() { k.RequireNone(bad) })
	k.RequireWell()
	k.Drain()
	if c := k.Calls(bad)[0]; c.State != api.CallFailed {
		t.Errorf("%+v", c)
	}
	r.fails(t, "task bad: ", k.RequireWell)
}

// A ledger in a file is opened before a transaction on it begins: within it nobody could.
func TestDeferTxInAFile(t *testing.T) {
	send := task.New("mail.send", func(context.Context, task.Call[letter]) error { return nil }, task.Options{})
	path := filepath.Join(t.TempDir(), "app.db")
	c, err := curfew.New(curfew.Options{Ledger: "sqlite:" + path, Tasks: []*task.Task{send}, Logger: quiet()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	db, err := sql.Open("sqlite", "file:"+path+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	inTx := func() error {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := c.DeferTx(t.Context(), tx, send, letter{"ada"}, curfew.In(time.Hour)); err != nil {
			return err
		}
		return tx.Commit()
	}
	if err := inTx(); curfew.KindOf(err) != curfew.KindUsage || !strings.Contains(curfew.HintOf(err), "Open") {
		t.Errorf("before Open: %v", err)
	}
	if err := c.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := inTx(); err != nil {
		t.Error(err)
	}
	if calls, err := c.TaskCalls(t.Context(), curfew.TaskCallFilter{}); err != nil || len(calls) != 1 {
		t.Errorf("%d calls, %v", len(calls), err)
	}
}

// A queue of the application's own has workers, though nothing else speaks of it.
func TestQueue(t *testing.T) {
	var did diary
	send := task.New("mail.send", func(_ context.Context, c task.Call[letter]) error { did.add("%s", c.Args.To); return nil }, task.Options{Queue: "mail"})
	k := curfewtest.New(t, curfewtest.Options{Tasks: []*task.Task{send}, Logger: quiet()})
	if _, err := k.App().Defer(t.Context(), send, letter{"ada"}); err != nil {
		t.Fatal(err)
	}
	k.Drain()
	did.want(t, "ada")
}

// What an application gets wrong is said where it does, with what to do.
func TestMistakes(t *testing.T) {
	send := task.New("mail.send", func(context.Context, task.Call[letter]) error { return nil }, task.Options{})
	for _, c := range []struct {
		what string
		o    curfew.Options
		want string
	}{
		{"no ledger", curfew.Options{}, "nothing says where the ledger is"},
		{"a ledger twice", curfew.Options{Ledger: "sqlite:a.db", ConfigPath: "curfew.yaml"}, "so does Options.Ledger"},
		{"a file for a ledger", curfew.Options{Ledger: "app.db"}, "is not the URL"},
		{"another server", curfew.Options{Ledger: "mysql://me:secret@h/app"}, "is not the URL"},
	} {
		c.o.Tasks = []*task.Task{send}
		if _, err := curfew.New(c.o); err == nil || !strings.Contains(err.Error(), c.want) || curfew.HintOf(err) == "" || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v (%s)", c.what, err, curfew.HintOf(err))
		}
	}
	k := curfewtest.New(t, curfewtest.Options{Tasks: []*task.Task{send}, Logger: quiet()})
	if _, err := k.App().Defer(t.Context(), nil, letter{"ada"}); err == nil || !strings.Contains(err.Error(), "nil") {
		t.Errorf("no task: %v", err)
	}
	other, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	tx, err := other.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := k.App().DeferTx(t.Context(), tx, send, letter{"ada"}); !strings.Contains(curfew.HintOf(err), "on the ledger's database") {
		t.Errorf("a transaction elsewhere: %v (%s)", err, curfew.HintOf(err))
	}
}

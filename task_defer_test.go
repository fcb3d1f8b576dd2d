package curfew

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/task"
)

// aLedger is a migrated ledger, with the application's own handle to its database.
type aLedger struct {
	*testing.T
	url      string
	db       *sql.DB
	postgres bool
	log      *lockedBuffer
}

// onLedgers runs a test on both kinds of ledger.
func onLedgers(t *testing.T, test func(t *testing.T, l *aLedger)) {
	t.Run("postgres", func(t *testing.T) { test(t, ledgerOn(t, dbtest.Postgres(t))) })
	t.Run("sqlite", func(t *testing.T) { test(t, ledgerOn(t, "sqlite:"+dbtest.SQLite(t))) })
}

func ledgerOn(t *testing.T, url string) *aLedger {
	t.Helper()
	l := &aLedger{T: t, url: url, postgres: strings.HasPrefix(url, "postgres"), log: &lockedBuffer{}}
	c := l.app(nil)
	if _, err := c.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if l.postgres {
		l.db = dbtest.Open(t, url)
		return l
	}
	db, err := sql.Open("sqlite", "file:"+strings.TrimPrefix(url, "sqlite:")+"?_pragma=busy_timeout(10000)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	l.db = db
	return l
}

// app is an application with these tasks, which does nothing by itself.
func (l *aLedger) app(tasks []*task.Task, change ...func(*Options)) *Curfew {
	l.Helper()
	o := Options{Ledger: l.url, Tasks: tasks, Logger: slog.New(slog.NewTextHandler(l.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Actor: "test"}
	for _, f := range change {
		f(&o)
	}
	c, err := New(o)
	if err != nil {
		l.Fatal(err)
	}
	l.Cleanup(func() { _ = c.Close() })
	return c
}

// start is an application that works.
func (l *aLedger) start(tasks []*task.Task, change ...func(*Options)) *Curfew {
	l.Helper()
	c := l.app(tasks, change...)
	startApp(l.T, c)
	return c
}

func startApp(t *testing.T, c *Curfew) {
	t.Helper()
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopApp(t, c) })
}

func stopApp(t *testing.T, c *Curfew) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := c.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// eventually waits until something is so.
func (l *aLedger) eventually(what string, f func() bool) {
	l.Helper()
	deadline := time.After(60 * time.Second)
	for !f() {
		select {
		case <-deadline:
			log := l.log.String()
			l.Fatalf("not so after a minute: %s\n%s", what, log[max(0, len(log)-4000):])
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// call waits until a call is in a state.
func (l *aLedger) call(c *Curfew, id int64, state string) (got api.TaskCall) {
	l.Helper()
	l.eventually(fmt.Sprintf("call %d is %s", id, state), func() bool {
		var err error
		if got, err = c.TaskCall(l.Context(), id); err != nil {
			l.Fatal(err)
		}
		return got.State == state
	})
	return got
}

func (l *aLedger) calls(c *Curfew) []api.TaskCall {
	l.Helper()
	calls, err := c.TaskCalls(l.Context(), TaskCallFilter{Limit: 1000})
	if err != nil {
		l.Fatal(err)
	}
	return calls
}

type letter struct {
	To string `json:"to"`
}

// A call is there exactly when the caller's transaction committed, on the application's own handle, also from a process that works
// nothing. It is done once.
func TestDeferTx(t *testing.T) {
	onLedgers(t, func(t *testing.T, l *aLedger) {
		var mu sync.Mutex
		did := map[string]int{}
		send := task.New("mail.send", func(_ context.Context, c task.Call[letter]) error {
			mu.Lock()
			defer mu.Unlock()
			did[c.Args.To]++
			return nil
		}, task.Options{Priority: 2})
		here := l.app([]*task.Task{send})
		if err := here.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := l.db.Exec(`CREATE TABLE account (name TEXT)`); err != nil {
			t.Fatal(err)
		}
		back := errors.New("back")
		in := func(name string, end error, opts ...DeferOption) (d Deferred, err error) {
			t.Helper()
			tx, err := l.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.Exec(`INSERT INTO account VALUES ('` + name + `')`); err != nil { // whoever else wants to write waits from here on
				t.Fatal(err)
			}
			if d, err = here.DeferTx(t.Context(), tx, send, letter{name}, opts...); err != nil {
				return d, err
			}
			if end != nil {
				return d, end
			}
			return d, tx.Commit()
		}
		if _, err := in("nobody", back); !errors.Is(err, back) {
			t.Fatal(err)
		}
		if calls := l.calls(here); len(calls) != 0 {
			t.Fatalf("after the rollback: %+v", calls)
		}
		first, err := in("ada", nil)
		if err != nil || first.Duplicate {
			t.Fatalf("%+v, %v", first, err)
		}
		one, err := in("grace", nil, Unique("grace"))
		if err != nil {
			t.Fatal(err)
		}
		two, err := in("grace", nil, Unique("grace"), Priority(1))
		if err != nil || two.ID != one.ID || !two.Duplicate || one.Duplicate {
			t.Errorf("%+v, then %+v, %v", one, two, err)
		}
		later, err := in("late", nil, In(time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		if calls := l.calls(here); len(calls) != 3 || calls[2].State != api.CallWaiting || calls[2].Cause != "defer" {
			t.Errorf("%+v", calls)
		}
		for _, bad := range [][]DeferOption{{At(time.Now()), In(time.Hour)}, {In(-time.Second)}, {Priority(5)}} {
			if _, err := in("bad", nil, bad...); KindOf(err) != KindUsage {
				t.Errorf("options that make no sense: %v", err)
			}
		}
		there := l.start([]*task.Task{send})
		l.call(there, first.ID, api.CallSucceeded)
		l.call(there, one.ID, api.CallSucceeded)
		mu.Lock()
		if diff := cmp.Diff(map[string]int{"ada": 1, "grace": 1}, did); diff != "" {
			t.Error(diff)
		}
		mu.Unlock()
		if got, err := here.TaskCall(t.Context(), later.ID); err != nil || got.State != api.CallWaiting || time.Until(*got.NotBefore) < 50*time.Minute {
			t.Errorf("%+v, %v", got, err)
		}
		if s := l.log.String(); strings.Contains(s, "grace") || strings.Contains(s, "ada\"") {
			t.Errorf("arguments are in the log:\n%s", s)
		}
	})
}

// Calls have a queue, a limit and a lock of their own where their tasks say so, over two processes that work.
func TestConcurrency(t *testing.T) {
	onLedgers(t, func(t *testing.T, l *aLedger) {
		const calls = 24
		var mu sync.Mutex
		now, most, did := 0, 0, 0
		both := make(chan struct{})
		work := func(context.Context, task.Call[struct{}]) error {
			mu.Lock()
			now++
			most = max(most, now)
			if now == 2 && did == 0 {
				did++
				close(both) // the first two are executed at once
			}
			mu.Unlock()
			<-both
			mu.Lock()
			now--
			mu.Unlock()
			return nil
		}
		tasks := []*task.Task{task.New("two", work, task.Options{Concurrency: 2})}
		c, _ := l.start(tasks), l.start(tasks)
		for range calls {
			if _, err := c.Defer(t.Context(), tasks[0], nil); err != nil {
				t.Fatal(err)
			}
		}
		l.eventually("all are done", func() bool {
			s, err := c.Tasks(t.Context(), "two")
			return err == nil && s[0].Waiting+s[0].Running+s[0].Retrying == 0
		})
		if most != 2 {
			t.Errorf("%d at once", most)
		}
		for _, call := range l.calls(c) {
			if call.State != api.CallSucceeded || call.Attempt != 1 {
				t.Errorf("%+v", call)
			}
		}
	})
}

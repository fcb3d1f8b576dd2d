// Package curfewtest is for the tests of applications that embed curfew: the engine itself, with its ledger in memory and a clock
// that the test moves. Nothing happens by itself: [Kit.Drain] does what is due now, [Kit.Advance] lets time pass and does what comes due
// on the way, each at its instant, and [Kit.Sleep] lets it pass while nobody works.
//
//	func TestWelcome(t *testing.T) {
//		k := curfewtest.New(t, curfewtest.Options{Tasks: []*task.Task{Welcome}})
//		signUp(k.App(), "ada@example.org")
//		k.RequireDeferred(Welcome, WelcomeArgs{To: "ada@example.org"})
//		k.Drain()
//		…
//	}
//
// Handlers execute in goroutines of the engine, several at once, but only while Drain or Advance do: what they leave behind can be read
// without a lock when those have returned, and needs one where two handlers write it. An application that asks what time it is takes
// [Kit.Now] under test. A day of an hourly task is tested in about a tenth of a second.
//
// Each kit has a ledger of its own, so tests may run in parallel. When the test ends the kit is stopped, and leaves no goroutine.
package curfewtest

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"curfew.dev/curfew"
	"curfew.dev/curfew/api"
	"curfew.dev/curfew/policy"
	"curfew.dev/curfew/task"
)

// Options say what to test.
type Options struct {
	Tasks []*task.Task
	// Config is a policy file, for policies over a test database of yours (SQLite has the kit's clock; a server has its own), and for
	// tasks that are commands or requests. Its ledger is not used.
	Config *policy.File
	Start  time.Time         // of the clock; default 2026-01-01 00:00 UTC
	Env    map[string]string // variables, for crons; default none
	Logger *slog.Logger      // default: t's log, when the test fails or is verbose
	Within time.Duration     // how long Drain and Advance may take, by the real clock; default a minute
}

// Kit is curfew under test. Its methods fail the test rather than return errors, and are to be called from its goroutine.
type Kit struct {
	t      testing.TB
	app    *curfew.Curfew
	within time.Duration
	clock  *clock
}

// clock is moved by the test and read by everybody.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) get() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

// New opens curfew for the test, and closes it when the test ends. Schedules begin at the start of the clock: their first instant
// is after it.
func New(t testing.TB, o Options) *Kit {
	t.Helper()
	k := &Kit{t: t, within: o.Within, clock: &clock{now: o.Start.UTC()}}
	if o.Start.IsZero() {
		k.clock.now = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	if k.within <= 0 {
		k.within = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(logged{t}, nil))
	}
	opts := curfew.Options{Ledger: "sqlite::memory:", Tasks: o.Tasks, Logger: o.Logger, Actor: "test", Clock: k.clock.get,
		Getenv: func(name string) (string, bool) { v, ok := o.Env[name]; return v, ok }}
	if o.Config != nil {
		file := *o.Config
		file.Ledger, file.Key = "sqlite::memory:", ""
		opts.Config, opts.Ledger = &file, ""
	}
	app, err := curfew.New(opts)
	if err != nil {
		t.Fatalf("curfew: %v", err)
	}
	k.app = app
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), k.within)
		defer cancel()
		if err := app.Stop(ctx); err != nil {
			t.Errorf("curfew: stop: %v", err)
		}
	})
	k.Drain() // the schedules are seen
	return k
}

// App is curfew as the application has it. It must not be started.
func (k *Kit) App() *curfew.Curfew { return k.app }

// Now is the time by the kit's clock.
func (k *Kit) Now() time.Time { return k.clock.get() }

// DB is the ledger's database, in which a test may make the application's tables: as in a deployment where both are in one. It has
// one connection, so whoever has a transaction open keeps everybody else waiting.
func (k *Kit) DB() *sql.DB {
	k.t.Helper()
	ctx, cancel := k.context()
	defer cancel()
	db, err := k.app.LedgerDB(ctx)
	if err != nil {
		k.t.Fatalf("curfew: %v", err)
	}
	return db
}

// Tx runs fn in a transaction on the ledger's database, for DeferTx: it commits when fn returns nil, and is rolled back otherwise.
// fn's error is returned.
func (k *Kit) Tx(fn func(tx *sql.Tx) error) error {
	k.t.Helper()
	ctx, cancel := k.context()
	defer cancel()
	tx, err := k.DB().BeginTx(ctx, nil)
	if err != nil {
		k.t.Fatalf("curfew: %v", err)
	}
	if err := fn(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	if err := tx.Commit(); err != nil {
		k.t.Fatalf("curfew: %v", err)
	}
	return nil
}

// Drain does what is due now: calls that wait, also those that these make, the retries that have come, runs, occurrences.
func (k *Kit) Drain() {
	k.t.Helper()
	ctx, cancel := k.context()
	defer cancel()
	if err := k.app.Drain(ctx); err != nil {
		k.t.Fatalf("curfew: drain at %s: %v", k.Now().Format(time.RFC3339), err)
	}
}

// Advance lets time pass and does what comes due, each at its own instant and in order.
func (k *Kit) Advance(d time.Duration) {
	k.t.Helper()
	until := k.Now().Add(d)
	k.Drain()
	for {
		ctx, cancel := k.context()
		next, comes, err := k.app.NextDue(ctx)
		cancel()
		if err != nil {
			k.t.Fatalf("curfew: %v", err)
		}
		if !comes || next.After(until) {
			break
		}
		k.clock.set(next)
		k.Drain()
	}
	k.clock.set(until)
	k.Drain()
}

// Sleep lets time pass while nobody works, as when every process is down: what comes due is found late by the next Drain.
func (k *Kit) Sleep(d time.Duration) { k.clock.set(k.Now().Add(d)) }

// Calls are the calls of a task that the ledger still has, the oldest first.
func (k *Kit) Calls(t *task.Task) []api.TaskCall {
	k.t.Helper()
	ctx, cancel := k.context()
	defer cancel()
	var all []api.TaskCall
	f := curfew.TaskCallFilter{Task: t.Name(), Limit: 1000}
	for {
		some, err := k.app.TaskCalls(ctx, f)
		if err != nil {
			k.t.Fatalf("curfew: %v", err)
		}
		for _, c := range some {
			all = append([]api.TaskCall{c}, all...)
		}
		if len(some) < f.Limit {
			return all
		}
		f.Before = some[len(some)-1].ID
	}
}

// RequireDeferred fails the test unless a call of the task with these arguments waits, and returns it, the oldest.
func (k *Kit) RequireDeferred(t *task.Task, args any) api.TaskCall {
	k.t.Helper()
	want, err := t.Encode(args)
	if err != nil {
		k.t.Fatalf("curfew: %v", err)
	}
	var others []string
	for _, c := range k.Calls(t) {
		if c.State != api.CallWaiting {
			continue
		}
		if same(c.Args, want) {
			return c
		}
		others = append(others, string(c.Args))
	}
	switch {
	case len(others) == 0:
		k.t.Fatalf("curfew: no call of %s waits", t.Name())
	default:
		k.t.Fatalf("curfew: no call of %s waits with %s; there are:\n%s", t.Name(), want, strings.Join(others, "\n"))
	}
	return api.TaskCall{}
}

// RequireNone fails the test when a call of the task waits.
func (k *Kit) RequireNone(t *task.Task) {
	k.t.Helper()
	for _, c := range k.Calls(t) {
		if c.State == api.CallWaiting {
			k.t.Fatalf("curfew: a call of %s waits, with %s", t.Name(), c.Args)
		}
	}
}

// RequireWell fails the test unless every policy and task is well.
func (k *Kit) RequireWell() {
	k.t.Helper()
	ctx, cancel := k.context()
	defer cancel()
	statuses, err := k.app.Status(ctx)
	if err != nil {
		k.t.Fatalf("curfew: %v", err)
	}
	for _, s := range statuses {
		if !s.Well && s.Mode != "task" {
			k.t.Errorf("curfew: %s %s: %s (%s)", s.Policy, s.Stage, s.Problem, s.Hint)
		}
	}
	tasks, err := k.app.Tasks(ctx)
	if err != nil {
		k.t.Fatalf("curfew: %v", err)
	}
	for _, s := range tasks {
		if !s.Well {
			k.t.Errorf("curfew: task %s: %s (%s)", s.Name, s.Problem, s.Hint)
		}
	}
}

func (k *Kit) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(k.t.Context(), k.within)
}

// same compares JSON by its meaning.
func same(a, b json.RawMessage) bool {
	norm := func(r json.RawMessage) []byte {
		dec := json.NewDecoder(bytes.NewReader(r))
		dec.UseNumber()
		var v any
		if dec.Decode(&v) != nil {
			return r
		}
		out, err := json.Marshal(v)
		if err != nil {
			return r
		}
		return out
	}
	return bytes.Equal(norm(a), norm(b))
}

// logged writes to a test's log.
type logged struct{ t testing.TB }

func (l logged) Write(b []byte) (int, error) {
	l.t.Log(strings.TrimRight(string(b), "\n"))
	return len(b), nil
}

var _ io.Writer = logged{}

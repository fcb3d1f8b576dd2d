package curfew

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/alert"
	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/task"
)

// An application starts the engine and stops it: nothing is left behind, on either ledger, also when a call takes long, when the start
// fails, and with two of them in one process.
func TestEmbedded(t *testing.T) {
	onLedgers(t, func(t *testing.T, l *aLedger) {
		before := goleak.IgnoreCurrent()
		begun := make(chan struct{}, 8)
		var mu sync.Mutex
		interrupted := 0
		long := task.New("long", func(ctx context.Context, _ task.Call[struct{}]) error {
			begun <- struct{}{}
			<-ctx.Done()
			mu.Lock()
			defer mu.Unlock()
			interrupted++
			return ctx.Err()
		}, task.Options{Retry: task.Retry{Attempts: 1}})
		quick := task.New("quick", func(context.Context, task.Call[struct{}]) error { return nil }, task.Options{})
		tasks := []*task.Task{long, quick}
		a, b := l.app(tasks), l.app(tasks)
		unavailable := httptest.NewRecorder()
		a.Handler().ServeHTTP(unavailable, httptest.NewRequest("GET", "/readyz", nil))
		if unavailable.Code != http.StatusServiceUnavailable {
			t.Errorf("before the start: %d", unavailable.Code)
		}
		for _, c := range []*Curfew{a, b} {
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := c.Start(t.Context()); KindOf(err) != KindUsage {
				t.Errorf("started twice: %v", err)
			}
			if err := c.Drain(t.Context()); KindOf(err) != KindUsage {
				t.Errorf("drained while it works: %v", err)
			}
		}
		l.eventually("it is ready", func() bool {
			w := httptest.NewRecorder()
			a.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/readyz", nil))
			return w.Code == http.StatusOK
		})
		made, err := a.Defer(t.Context(), long, nil)
		if err != nil {
			t.Fatal(err)
		}
		<-begun
		for range 20 {
			d, err := b.Defer(t.Context(), quick, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = d }()
		}
		l.eventually("the quick ones are done", func() bool {
			s, err := b.Tasks(t.Context(), "quick")
			return err == nil && s[0].Waiting+s[0].Running == 0
		})
		for _, c := range []*Curfew{a, b} {
			ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
			if err := c.Stop(ctx); err != nil {
				t.Error(err)
			}
			cancel()
			if err := c.Stop(context.Background()); err != nil {
				t.Errorf("stopped twice: %v", err)
			}
		}
		mu.Lock()
		if interrupted == 0 {
			t.Error("the long call was not interrupted")
		}
		mu.Unlock()
		after := l.app(tasks)
		if call, err := after.TaskCall(t.Context(), made.ID); err != nil || call.State != api.CallWaiting || call.Attempt != 0 {
			t.Errorf("the attempt that was interrupted counts: %+v, %v", call, err)
		}
		if err := after.Close(); err != nil {
			t.Error(err)
		}
		goleak.VerifyNone(t, before)
	})
}

// What keeps a start from succeeding leaves nothing open, and it may be tried again.
func TestStartFails(t *testing.T) {
	url := dbtest.Postgres(t)
	nothing := task.New("nothing", func(context.Context, task.Call[struct{}]) error { return nil }, task.Options{})
	l := &aLedger{T: t, url: url, log: &lockedBuffer{}}
	before := goleak.IgnoreCurrent()
	c := l.app([]*task.Task{nothing})
	if err := c.Start(t.Context()); KindOf(err) != KindRefused || !strings.Contains(HintOf(err), "curfew migrate") {
		t.Fatalf("without tables: %v (%s)", err, HintOf(err))
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	goleak.VerifyNone(t, before)
	if _, err := c.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	stopApp(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	again := l.app([]*task.Task{nothing})
	if err := again.Start(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that is over: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	goleak.VerifyNone(t, before)
}

// A program that is started from time to time does what is due, and knows when to come back.
func TestDrainNextDue(t *testing.T) {
	onLedgers(t, func(t *testing.T, l *aLedger) {
		did := 0
		work := task.New("work", func(context.Context, task.Call[struct{}]) error { did++; return nil }, task.Options{})
		c := l.app([]*task.Task{work})
		if _, comes, err := c.NextDue(t.Context()); err != nil || comes {
			t.Errorf("%t, %v", comes, err)
		}
		for _, in := range []time.Duration{0, time.Hour} {
			if _, err := c.DeferIn(t.Context(), in, work, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		next, comes, err := c.NextDue(t.Context())
		if err != nil || !comes || did != 1 || time.Until(next) < 50*time.Minute || time.Until(next) > time.Hour {
			t.Errorf("%d done; next %s, %t, %v", did, next, comes, err)
		}
		stopApp(t, c)
	})
}

// One worker is enough for policies and for tasks. A file without policies needs no key on PostgreSQL, and a process that only works
// executes its tasks.
func TestFewWorkers(t *testing.T) {
	url := dbtest.Postgres(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "curfew.yaml")
	write := func(more string) {
		t.Helper()
		text := fmt.Sprintf("version: 1\nledger: %q\nengine: {workers: 1}\ntasks:\n  hello: {command: [sh, -c, \"cat >/dev/null; echo hello\"]}\n%s", url, more)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("")
	l := &aLedger{T: t, url: url, log: &lockedBuffer{}}
	c := l.app(nil, func(o *Options) { o.Ledger, o.ConfigPath = "", path })
	if _, err := c.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	serve := func(workersOnly bool, test func()) {
		t.Helper()
		stop, done, ready := make(chan struct{}), make(chan error, 1), make(chan string, 1)
		go func() {
			done <- Serve(context.WithoutCancel(t.Context()), Options{ConfigPath: path, Logger: c.log, Actor: "test"},
				ServeOptions{Listen: "127.0.0.1:0", WorkersOnly: workersOnly, Stop: stop, Listening: func(a string) { ready <- a }})
		}()
		select {
		case <-ready:
			test()
			close(stop)
			if err := <-done; err != nil {
				t.Error(err)
			}
		case err := <-done:
			t.Fatal(err)
		}
	}
	for _, workersOnly := range []bool{true, false} {
		serve(workersOnly, func() {
			made, err := c.DeferNamed(t.Context(), "hello", nil)
			if err != nil {
				t.Fatal(err)
			}
			if got := l.call(c, made.ID, api.CallSucceeded); !strings.Contains(string(got.Result), "hello") {
				t.Errorf("%+v", got)
			}
		})
	}
	app := dbtest.Open(t, filepath.Join(dir, "app.db"))
	for _, stmt := range []string{"CREATE TABLE session (id INTEGER PRIMARY KEY, expires INTEGER NOT NULL)", "INSERT INTO session VALUES (1, 1000), (2, 99999999999)"} {
		if _, err := app.Exec(stmt); err != nil {
			t.Fatal(err)
		}
	}
	write("key: 7f2c9b4e1a6d8035f0c2e4b6a8d0917365c4e2f0b1a39d8c7e6f5a4b3c2d1e0f\ndatabases: {app: {url: \"sqlite:app.db\"}}\npolicies:\n" + strings.Replace(nightly, "0 2 * * *", "0 2 1 1 *", 1))
	p := l.app(nil, func(o *Options) { o.Ledger, o.ConfigPath = "", path })
	if _, err := p.Install(t.Context(), "app", false); err != nil {
		t.Fatal(err)
	}
	serve(false, func() {
		made, err := p.DeferNamed(t.Context(), "hello", nil)
		if err != nil {
			t.Fatal(err)
		}
		l.call(p, made.ID, api.CallSucceeded)
		led, err := p.ledger(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rule, err := p.policy("sessions")
		if err != nil {
			t.Fatal(err)
		}
		run, err := p.accept(t.Context(), led, rule, RunRequest{Policy: "sessions"})
		if err != nil {
			t.Fatal(err)
		}
		l.eventually("the run is done", func() bool { r, err := led.Get(t.Context(), run.ID); return err == nil && r.State == ledger.Succeeded })
	})
}

// Of calls that fail for good somebody is told once in an hour for each task.
func TestFailedCallsAreTold(t *testing.T) {
	l := ledgerOn(t, "sqlite:"+dbtest.SQLite(t))
	clock := clockAt(noon.Add(-30 * time.Minute))
	bad := func(name string) *task.Task {
		return task.New(name, func(context.Context, task.Call[struct{}]) error { return task.Fail(errors.New("no such address")) }, task.Options{})
	}
	tasks := []*task.Task{bad("one"), bad("two")}
	c := l.start(tasks, func(o *Options) { o.Clock = clock.now })
	led, err := c.ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	told := func() (n int) {
		alerts, err := led.Alerts(t.Context(), ledger.AlertFilter{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range alerts {
			if a.Kind == alert.TaskFailed {
				n++
			}
		}
		return n
	}
	fails := func(work *task.Task) {
		t.Helper()
		made, err := c.Defer(t.Context(), work, nil)
		if err != nil {
			t.Fatal(err)
		}
		l.call(c, made.ID, api.CallFailed)
	}
	for range 3 {
		fails(tasks[0])
	}
	fails(tasks[1])
	l.eventually("of both tasks", func() bool { return told() == 2 })
	clock.set(noon.Add(30 * time.Minute))
	fails(tasks[0])
	l.eventually("again after an hour", func() bool { return told() == 3 })
}

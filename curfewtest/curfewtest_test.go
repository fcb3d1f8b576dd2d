package curfewtest_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"curfew.dev/curfew"
	"curfew.dev/curfew/api"
	"curfew.dev/curfew/curfewtest"
	"curfew.dev/curfew/task"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type letter struct {
	To string `json:"to"`
}

type none = struct{}

// diary is what a task did, by the kit's clock.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) add(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf(format, args...))
}

func (d *diary) want(t *testing.T, want ...string) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if !slices.Equal(d.lines, want) {
		t.Errorf("it did\n  %s\nwant\n  %s", strings.Join(d.lines, "\n  "), strings.Join(want, "\n  "))
	}
	d.lines = nil
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func TestDefer(t *testing.T) {
	var did diary
	send := task.New("mail.send", func(_ context.Context, c task.Call[letter]) error {
		did.add("%s %v %d/%d", c.Args.To, c.Scheduled.IsZero(), c.Attempt, c.Attempts)
		return c.SetResult(len(c.Args.To))
	}, task.Options{})
	k := curfewtest.New(t, curfewtest.Options{Tasks: []*task.Task{send}})
	ctx := t.Context()
	if _, err := k.App().Defer(ctx, send, letter{"ada"}); err != nil {
		t.Fatal(err)
	}
	if _, err := k.App().DeferIn(ctx, time.Hour, send, letter{"grace"}); err != nil {
		t.Fatal(err)
	}
	first := k.RequireDeferred(send, letter{"ada"})
	k.RequireDeferred(send, letter{"grace"})
	k.Drain()
	did.want(t, "ada true 1/5")
	call, err := k.App().TaskCall(ctx, first.ID)
	if err != nil || call.State != api.CallSucceeded || string(call.Result) != "3" || !call.EndedAt.Equal(k.Now()) {
		t.Errorf("%+v, %v", call, err)
	}
	k.Advance(59 * time.Minute)
	did.want(t)
	k.Advance(time.Minute)
	did.want(t, "grace true 1/5")
	k.RequireNone(send)
	k.RequireWell()
	// What it does not take is refused before anything is written.
	if _, err := k.App().Defer(ctx, send, 7); err == nil {
		t.Error("arguments of another type were taken")
	}
	k.RequireNone(send)
}

func TestDeferTx(t *testing.T) {
	var did diary
	send := task.New("mail.send", func(_ context.Context, c task.Call[letter]) error { did.add("%s", c.Args.To); return nil }, task.Options{})
	k := curfewtest.New(t, curfewtest.Options{Tasks: []*task.Task{send}})
	back := errors.New("no")
	if err := k.Tx(func(tx *sql.Tx) error {
		if _, err := k.App().DeferTx(t.Context(), tx, send, letter{"ada"}); err != nil {
			return err
		}
		return back
	}); !errors.Is(err, back) {
		t.Fatal(err)
	}
	k.RequireNone(send)
	for range 2 {
		if err := k.Tx(func(tx *sql.Tx) error {
			_, err := k.App().DeferTx(t.Context(), tx, send, letter{"grace"}, curfew.Unique("grace"))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	k.Drain()
	did.want(t, "grace")
}

// The waits are exactly the policy's, and what failed for good can be retried and given up.
func TestRetry(t *testing.T) {
	var did diary
	down := errors.New("connection refused")
	var k *curfewtest.Kit
	var start time.Time
	send := task.New("mail.send", func(context.Context, task.Call[none]) error {
		did.add("%s", k.Now().Sub(start))
		return down
	}, task.Options{})
	k = curfewtest.New(t, curfewtest.Options{Tasks: []*task.Task{send}, Logger: quiet()})
	start = k.Now()
	if _, err := k.App().Defer(t.Context(), send, nil); err != nil {
		t.Fatal(err)
	}
	k.Advance(24 * time.Hour)
	did.want(t, "0s", "10s", "1m50s", "18m30s", "3h5m10s")
	call := k.Calls(send)[0]
	if call.State != api.CallFailed || call.Attempt != 5 || call.Error != "connection refused" {
		t.Errorf("%+v", call)
	}
	f := curfew.TaskCallFilter{Task: "mail.send", Match: "refused"}
	if n, err := k.App().RetryCalls(t.Context(), f, true); err != nil || n.Calls != 1 || n.Done {
		t.Errorf("%+v, %v", n, err)
	}
	if n, err := k.App().RetryCalls(t.Context(), f, false); err != nil || n.Calls != 1 || !n.Done {
		t.Errorf("%+v, %v", n, err)
	}
	down, start = nil, k.Now()
	k.Drain()
	did.want(t, "0s")
	k.RequireWell()
}

func TestFinalAndPanic(t *testing.T) {
	var did diary
	final := task.New("final", func(context.Context, task.Call[none]) error {
		did.add("final")
		return task.Fail(errors.New("no such address"))
	}, task.Options{})
	panics := task.New("panics", func(context.Context, task.Call[none]) error { did.add("panic"); panic("oh") }, task.Options{Retry: task.Retry{Attempts: 2, Backoff: time.Minute, Factor: 1}})
	later := task.New("later", func(_ context.Context, c task.Call[none]) error {
		did.add("later")
		if c.Attempt == 1 {
			return task.RetryAfter(time.Hour, errors.New("busy"))
		}
		return nil
	}, task.Options{})
	k := curfewtest.New(t, curfewtest.Options{Tasks: []*task.Task{final, panics, later}, Logger: quiet()})
	for _, one := range []*task.Task{final, panics} {
		if _, err := k.App().Defer(t.Context(), one, nil); err != nil {
			t.Fatal(err)
		}
		k.Advance(time.Hour)
	}
	did.want(t, "final", "panic", "panic")
	if c := k.Calls(final)[0]; c.State != api.CallFailed || c.Attempt != 1 || c.Error != "no such address" {
		t.Errorf("%+v", c)
	}
	if c := k.Calls(panics)[0]; c.State != api.CallFailed || !strings.Contains(c.Error, "oh") {
		t.Errorf("%+v", c)
	}
	if _, err := k.App().Defer(t.Context(), later, nil); err != nil {
		t.Fatal(err)
	}
	k.Advance(59 * time.Minute)
	did.want(t, "later")
	k.Advance(time.Minute)
	did.want(t, "later")
}

// A periodic call is an occurrence. One that fails is tried again while the next instants come, and nothing of the task executes twice
// at once.
func TestPeriodic(t *testing.T) {
	var did diary
	var k *curfewtest.Kit
	hourly := task.New("hourly", func(_ context.Context, c task.Call[none]) error {
		did.add("%s for %s, attempt %d", k.Now().Format("15:04:05"), c.Scheduled.Format("15:04"), c.Attempt)
		if c.Scheduled.Hour() == 1 && c.Attempt < 5 {
			return errors.New("not yet")
		}
		return nil
	}, task.Options{Cron: "0 * * * *"})
	k = curfewtest.New(t, curfewtest.Options{Tasks: []*task.Task{hourly}, Logger: quiet()})
	k.Advance(5 * time.Hour)
	did.want(t, "01:00:00 for 01:00, attempt 1", "01:00:10 for 01:00, attempt 2", "01:01:50 for 01:00, attempt 3", "01:18:30 for 01:00, attempt 4",
		"02:00:00 for 02:00, attempt 1", "03:00:00 for 03:00, attempt 1", "04:00:00 for 04:00, attempt 1", "04:05:10 for 01:00, attempt 5", "05:00:00 for 05:00, attempt 1")
	occurrences, err := k.App().Occurrences(t.Context(), curfew.OccurrenceFilter{Policy: "hourly"})
	if err != nil || len(occurrences) != 5 {
		t.Fatalf("%d occurrences, %v", len(occurrences), err)
	}
	for _, o := range occurrences {
		if o.State != api.OccurrenceOK {
			t.Errorf("%s: %s %s", o.At, o.State, o.Why)
		}
	}
	k.RequireWell()
}

// Nobody worked for 200 minutes: one call catches up, and what was dropped is on record.
func TestCatchUp(t *testing.T) {
	for catchUp, want := range map[string]int{"": 1, "all": 101, "none": 1} { // the last instant is not too late; a call for it makes up for the latest
		t.Run(catchUp, func(t *testing.T) {
			var did diary
			minutely := task.New("minutely", func(_ context.Context, c task.Call[none]) error {
				did.add("%s", c.Scheduled.Format("15:04"))
				return nil
			},
				task.Options{Cron: "* * * * *", StartWithin: time.Minute, CatchUp: catchUp})
			k := curfewtest.New(t, curfewtest.Options{Tasks: []*task.Task{minutely}, Logger: quiet()})
			k.Sleep(201*time.Minute + 40*time.Second)
			k.Drain()
			if len(did.lines) != want {
				t.Errorf("%d calls caught up: %v", len(did.lines), did.lines)
			}
			months, err := k.App().Gaps(t.Context(), curfew.GapFilter{Policy: "minutely"})
			if err != nil || len(months) != 1 || months[0].Missed != 200 {
				t.Errorf("%+v, %v", months, err)
			}
		})
	}
}

func TestCrons(t *testing.T) {
	one := func(name, cron string) *task.Task {
		return task.New(name, func(context.Context, task.Call[none]) error { return nil }, task.Options{Cron: cron})
	}
	env := func(name, value string) func(string) (string, bool) {
		return func(n string) (string, bool) { return value, n == name }
	}
	for _, c := range []struct {
		what  string
		tasks []*task.Task
		env   func(string) (string, bool)
		want  string
	}{
		{"a wrong cron", []*task.Task{one("a", "61 * * * *")}, nil, "task a"},
		{"a wrong cron in the environment", []*task.Task{one("a.b", "0 * * * *")}, env("CURFEW_TASK_A_B_CRON", "hourly"), "CURFEW_TASK_A_B_CRON"},
		{"an empty one", []*task.Task{one("a.b", "0 * * * *")}, env("CURFEW_TASK_A_B_CRON", ""), "CURFEW_TASK_A_B_CRON"},
		{"a name twice", []*task.Task{one("a", ""), one("a", "")}, nil, "task a is there twice"},
		{"two names for one variable", []*task.Task{one("a.b", ""), one("a_b", "")}, nil, "CURFEW_TASK_A_B_CRON"},
		{"a name that is none", []*task.Task{one("7 days", "")}, nil, "7 days"},
		{"nil", []*task.Task{nil}, nil, "nil"},
	} {
		if c.env == nil {
			c.env = env("", "")
		}
		_, err := curfew.New(curfew.Options{Ledger: "sqlite::memory:", Tasks: c.tasks, Getenv: c.env})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	var did diary
	daily := task.New("daily", func(_ context.Context, c task.Call[none]) error {
		did.add("%s", c.Scheduled.Format("15:04"))
		return nil
	}, task.Options{Cron: "0 3 * * *"})
	k := curfewtest.New(t, curfewtest.Options{Tasks: []*task.Task{daily}, Env: map[string]string{"CURFEW_TASK_DAILY_CRON": "30 4 * * *"}})
	k.Advance(24 * time.Hour)
	did.want(t, "04:30")
}

// The engine in an application: what is deferred is done by itself, and Stop leaves nothing behind.
func TestStartStop(t *testing.T) {
	done := make(chan string, 1)
	send := task.New("mail.send", func(_ context.Context, c task.Call[letter]) error { done <- c.Args.To; return nil }, task.Options{})
	c, err := curfew.New(curfew.Options{Ledger: "sqlite:" + t.TempDir() + "/app.db", Tasks: []*task.Task{send}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err == nil {
		t.Error("it started twice")
	}
	if _, err := c.Defer(t.Context(), send, letter{"ada"}); err != nil {
		t.Fatal(err)
	}
	select {
	case to := <-done:
		if to != "ada" {
			t.Error(to)
		}
	case <-time.After(20 * time.Second):
		t.Error("it was not done")
	}
	if err := c.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

package curfew

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/task"
)

// Cleanup is queued for as long as one likes: a call that somebody waits for has workers of its own.
func TestServeReservesWorkers(t *testing.T) {
	d := newDaemon(t, night, `  sessions: {database: app, table: session, until: {column: expires, unit: s}, action: delete, mode: enforce, batch: {rows: 10, in_flight: 20, pace: none}}
`)
	d.sessions(200, night.Add(-day))
	done := make(chan int, 10)
	count := task.New("count", func(_ context.Context, c task.Call[int]) error { done <- c.Args; return nil }, task.Options{})
	d.tasks = []*task.Task{count}
	stuck, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	target.TestHook = func(string) {
		once.Do(func() { close(stuck) })
		<-release
	}
	t.Cleanup(func() { target.TestHook = nil }) // when the service has stopped, which cleans up before
	d.start()
	free := sync.OnceFunc(func() { close(release) })
	t.Cleanup(free)
	c := d.open()
	p, err := c.policy("sessions")
	if err != nil {
		t.Fatal(err)
	}
	a := ledger.Acceptance{Policy: p.Name, Mode: string(p.Mode), Identity: ledger.IdentityOnce(), Cause: "cli", Cutoff: p.Cutoff}
	a.RevisionID, a.Revision = p.Revision()
	if _, _, err := mustLedger(d, c).Accept(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	<-stuck
	for i := range 5 {
		if _, err := c.Defer(t.Context(), count, i); err != nil {
			t.Fatal(err)
		}
		select {
		case <-done:
		case <-time.After(30 * time.Second):
			t.Fatalf("call %d waits for the cleanup\n%s", i, d.logs)
		}
	}
	if n := d.rows(); n != 200 {
		t.Errorf("%d rows: the cleanup was not stuck", n)
	}
	free()
	d.eventually("the cleanup goes on", func() bool { return d.rows() == 0 })
}

// A program that embeds curfew asks for runs as a caller over HTTP does.
func TestTriggerOfAnApplication(t *testing.T) {
	d := newDaemon(t, night, nightly)
	d.sessions(20, night.Add(-day))
	c := d.open()
	var ids []string
	for _, req := range []TriggerRequest{{Policy: "sessions", Operation: "migration-7"}, {Policy: "sessions", Operation: "migration-7"}, {Policy: "sessions"}} {
		run, err := c.Trigger(t.Context(), req)
		if err != nil || run.Cause != "cli" || run.State != api.StateAccepted {
			t.Fatalf("%+v, %v", run, err)
		}
		ids = append(ids, run.ID)
	}
	if ids[0] != ids[1] || ids[0] != ids[2] {
		t.Errorf("runs %s: the same operation again, and no name at all while one is open, are that run", ids)
	}
	if _, err := c.Trigger(t.Context(), TriggerRequest{Policy: "sessions", Operation: "migration-7", Shadow: true}); err == nil {
		t.Error("the same operation for something else was taken")
	}
	d.start()
	d.eventually("it is done", func() bool { return d.rows() == 0 })
}

// hourly is a task of the file that tells when it begins, and ends when it is let.
const hourly = `tasks:
  clean: {command: [sh, -c, "echo $CURFEW_SCHEDULED_AT >> began; until [ -e go ]; do sleep 0.02; done"], cron: "0 * * * *", timeout: 1m, kill_after: 1s}
`

func (d *daemon) tasksFile(more string) { d.file = nightly + more }

// began are the instants for which the command began.
func (d *daemon) began() []string {
	d.Helper()
	text, err := os.ReadFile(filepath.Join(d.dir, "began"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		d.Fatal(err)
	}
	return strings.Fields(string(text))
}

func (d *daemon) letGo() {
	d.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o600); err != nil {
		d.Fatal(err)
	}
}

// of counts what became of a task's instants.
func (d *daemon) of(c *Curfew, name string) map[string]int {
	d.Helper()
	list, err := c.Occurrences(d.Context(), OccurrenceFilter{Policy: name})
	if err != nil {
		d.Fatal(err)
	}
	out := map[string]int{}
	for _, o := range list {
		out[o.State]++
	}
	return out
}

// Any number of services keep a task's schedule; each instant is one call. The next instant does not find it executing.
func TestServeTasks(t *testing.T) {
	d := newDaemon(t, night, nightly)
	d.tasksFile(hourly)
	d.start()
	other := *d
	other.start()
	c := d.open()
	d.eventually("the schedules are seen", func() bool {
		s, err := mustLedger(d, c).Schedules(t.Context())
		return err == nil && len(s) == 2
	})
	d.clock.set(night.Add(11 * time.Second)) // 02:00
	d.eventually("it begins", func() bool { return len(d.began()) == 1 })
	tasks, err := c.Tasks(t.Context(), "clean")
	if err != nil || tasks[0].State != "running" || tasks[0].Running != 1 {
		t.Errorf("%+v, %v", tasks, err)
	}
	d.clock.set(night.Add(time.Hour + 11*time.Second)) // 03:00
	d.eventually("the next one is skipped", func() bool { return d.of(c, "clean")["skipped"] == 1 })
	d.letGo()
	d.eventually("it is done", func() bool { return d.of(c, "clean")["ok"] == 1 })
	d.clock.set(night.Add(2*time.Hour + 11*time.Second)) // 04:00
	d.eventually("and the one after", func() bool { return d.of(c, "clean")["ok"] == 2 })
	if got := d.began(); len(got) != 2 || !strings.HasPrefix(got[0], "2026-07-01T02:00:00") || !strings.HasPrefix(got[1], "2026-07-01T04:00:00") {
		t.Errorf("it began for %v", got)
	}
	runs, err := c.Runs(t.Context(), RunFilter{Policy: "clean"})
	if err != nil || len(runs) != 2 || runs[0].Mode != "task" || runs[0].State != api.StateSucceeded || runs[0].Cause != "schedule" {
		t.Errorf("%+v, %v", runs, err)
	}
	months, err := c.Gaps(t.Context(), GapFilter{Policy: "clean"})
	if err != nil || len(months) != 1 || months[0].OK != 2 || months[0].Skipped != 1 || months[0].Occurrences != 3 {
		t.Errorf("%+v, %v", months, err)
	}
	other.halt()
}

// One worker for all: cleanup and tasks both get on.
func TestServeOneWorker(t *testing.T) {
	d := newDaemon(t, night, nightly)
	d.file = nightly + "tasks:\n  noop: {command: [\"true\"]}\nengine: {workers: 1}\n"
	d.sessions(200, night.Add(-day))
	d.start()
	c := d.open()
	if _, err := c.DeferNamed(t.Context(), "noop", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Trigger(t.Context(), TriggerRequest{Policy: "sessions"}); err != nil {
		t.Fatal(err)
	}
	d.eventually("both are done", func() bool {
		calls, err := c.TaskCalls(t.Context(), TaskCallFilter{State: api.CallSucceeded})
		return err == nil && len(calls) == 1 && d.rows() == 0
	})
}

package curfew

import (
	"context"
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
	d.sessions(2000, night.Add(-day))
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
	if n := d.rows(); n != 2000 {
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

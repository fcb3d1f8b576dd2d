package curfew

import (
	"context"
	"sync"
	"testing"
	"time"

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

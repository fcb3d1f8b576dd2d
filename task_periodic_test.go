package curfew

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/task"
)

// noon is when the clocks of these tests start: a little before a minute begins.
var noon = time.Date(2026, 7, 1, 11, 59, 58, 0, time.UTC)

// minutely is two processes on one ledger with a minutely task, whose work says what it does and waits to be let go.
type minutely struct {
	*aLedger
	a, b  *Curfew
	clock *fakeClock
	begun chan string // "12:00/1": the instant and the attempt
	let   chan error  // what an attempt that has begun returns

	mu        sync.Mutex
	now, most int
}

func newMinutely(t *testing.T, o task.Options) *minutely {
	t.Helper()
	m := &minutely{aLedger: ledgerOn(t, "sqlite:"+dbtest.SQLite(t)), clock: clockAt(noon), begun: make(chan string, 100), let: make(chan error)}
	o.Cron = "* * * * *"
	work := task.New("minutely", func(ctx context.Context, c task.Call[struct{}]) error {
		m.mu.Lock()
		m.now++
		m.most = max(m.most, m.now)
		m.mu.Unlock()
		defer func() {
			m.mu.Lock()
			m.now--
			m.mu.Unlock()
		}()
		m.begun <- fmt.Sprintf("%s/%d", c.Scheduled.Format("15:04"), c.Attempt)
		select {
		case err := <-m.let:
			return err
		case <-ctx.Done():
			m.begun <- "interrupted"
			return ctx.Err()
		}
	}, o)
	with := func(o *Options) { o.Clock = m.clock.now }
	m.a, m.b = m.start([]*task.Task{work}, with), m.start([]*task.Task{work}, with)
	m.eventually("the schedule is seen", func() bool {
		l, err := m.a.ledger(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		s, err := l.Schedules(t.Context())
		return err == nil && len(s) == 1
	})
	return m
}

// at puts the clock to so many minutes and seconds past noon.
func (m *minutely) at(minutes, seconds int) {
	m.clock.set(noon.Add(time.Duration(minutes)*time.Minute + time.Duration(seconds)*time.Second + 2*time.Second))
}

func (m *minutely) begins(want string) {
	m.Helper()
	select {
	case got := <-m.begun:
		if got != want {
			m.Fatalf("%s begins, want %s", got, want)
		}
	case <-time.After(30 * time.Second):
		log := m.log.String()
		m.Fatalf("%s does not begin\n%s", want, log[max(0, len(log)-3000):])
	}
}

// quiet makes sure that nothing more begins, once everybody has had the occasion.
func (m *minutely) quiet() {
	m.Helper()
	l, err := m.a.ledger(m.Context())
	if err != nil {
		m.Fatal(err)
	}
	looked := m.a.emb.Load().e.queue.Looks()
	m.eventually("the queue has been looked at", func() bool { return m.a.emb.Load().e.queue.Looks() >= looked+20 })
	if _, err := l.OpenCalls(m.Context()); err != nil {
		m.Fatal(err)
	}
	select {
	case got := <-m.begun:
		m.Fatalf("%s begins", got)
	default:
	}
}

// becomes waits until the occurrence of a minute is in a state.
func (m *minutely) becomes(minute int, state, why string) {
	m.Helper()
	at := noon.Add(2*time.Second + time.Duration(minute)*time.Minute)
	var last string
	m.eventually(fmt.Sprintf("12:%02d is %s %s", minute, state, why), func() bool {
		list, err := m.a.Occurrences(m.Context(), OccurrenceFilter{Policy: "minutely"})
		if err != nil {
			m.Fatal(err)
		}
		for _, o := range list {
			if o.At.Equal(at) {
				last = o.State + " " + o.Why
				return o.State == state && (why == "" || o.Why == why)
			}
		}
		return false
	})
	_ = last
}

// One run for each instant, whoever ticks; what comes while a call executes is skipped, and what a retry is in the way of is not.
func TestTaskOverlapSkip(t *testing.T) {
	m := newMinutely(t, task.Options{Retry: task.Retry{Attempts: 3, Backoff: 90 * time.Second, Factor: 1}})
	m.at(0, 1)
	m.begins("12:00/1")
	m.at(1, 1)
	m.becomes(1, api.OccurrenceSkipped, "overlap")
	m.let <- errors.New("once more") // at 12:01:01; comes back at 12:02:31
	first := m.call(m.a, m.calls(m.a)[0].ID, api.CallRetrying).ID
	m.at(2, 1)
	m.begins("12:02/1")
	m.at(2, 40)
	m.eventually("the retry has come, and was put off because the other executes", func() bool {
		call, err := m.a.TaskCall(t.Context(), first)
		return err == nil && call.NotBefore != nil && call.NotBefore.After(noon.Add(2*time.Minute+40*time.Second))
	})
	m.quiet()
	m.let <- nil
	m.becomes(2, api.OccurrenceOK, "")
	m.begins("12:00/2")
	m.let <- nil
	m.becomes(0, api.OccurrenceOK, "")
	if m.most != 1 {
		t.Errorf("%d at once", m.most)
	}
	runs, err := m.a.Runs(t.Context(), RunFilter{})
	if err != nil || len(runs) != 2 {
		t.Errorf("%+v, %v", runs, err)
	}
}

func TestTaskOverlapQueue(t *testing.T) {
	m := newMinutely(t, task.Options{Overlap: task.Queue, CatchUp: task.None})
	m.at(0, 1)
	m.begins("12:00/1")
	m.at(1, 1)
	m.becomes(1, api.OccurrencePending, "")
	m.quiet()
	m.let <- nil
	m.begins("12:01/1")
	m.let <- nil
	m.becomes(1, api.OccurrenceOK, "")
	if m.most != 1 {
		t.Errorf("%d at once", m.most)
	}
}

func TestTaskOverlapAllow(t *testing.T) {
	m := newMinutely(t, task.Options{Overlap: task.Allow})
	m.at(0, 1)
	m.begins("12:00/1")
	m.at(1, 1)
	m.begins("12:01/1")
	m.let <- nil
	m.let <- nil
	m.becomes(0, api.OccurrenceOK, "")
	m.becomes(1, api.OccurrenceOK, "")
}

// Ending the run of a call that executes ends its context, and the call is discarded. A pause skips what comes while it lasts.
func TestTaskCancelAndPause(t *testing.T) {
	m := newMinutely(t, task.Options{})
	m.at(0, 1)
	m.begins("12:00/1")
	runs, err := m.b.Runs(t.Context(), RunFilter{})
	if err != nil || len(runs) != 1 {
		t.Fatalf("%+v, %v", runs, err)
	}
	if _, err := m.b.Cancel(t.Context(), runs[0].ID, "enough"); err != nil {
		t.Fatal(err)
	}
	m.begins("interrupted")
	calls := m.calls(m.a)
	if got := m.call(m.a, calls[0].ID, api.CallDiscarded); got.Run != runs[0].ID || got.DiscardedBy != "curfew" {
		t.Errorf("%+v", got)
	}
	m.becomes(0, api.OccurrenceFailed, "")
	if _, err := m.b.Pause(t.Context(), "minutely", "maintenance"); err != nil {
		t.Fatal(err)
	}
	m.at(1, 1)
	m.becomes(1, api.OccurrenceSkipped, "paused")
	if s, err := m.a.Tasks(t.Context(), "minutely"); err != nil || s[0].State != "paused" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := m.b.Resume(t.Context(), "minutely"); err != nil {
		t.Fatal(err)
	}
	m.at(2, 1)
	m.begins("12:02/1")
	m.let <- nil
	m.becomes(2, api.OccurrenceOK, "")
}

// A call that is stopped with its process did not have its attempt, and another process goes on with it.
func TestTaskStopped(t *testing.T) {
	m := newMinutely(t, task.Options{Retry: task.Retry{Attempts: 1}})
	m.at(0, 1)
	m.begins("12:00/1")
	which := m.a
	if len(m.a.emb.Load().e.calling.begun()) == 0 {
		which = m.b
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := which.Stop(ctx); err != nil {
		t.Error(err)
	}
	m.begins("interrupted")
	if which == m.a {
		m.a = m.b
	}
	m.begins("12:00/1")
	m.let <- nil
	m.becomes(0, api.OccurrenceOK, "")
}

// A discarded call ends its run; a run that failed stays so when its call is retried.
func TestTaskRunAndCall(t *testing.T) {
	m := newMinutely(t, task.Options{Retry: task.Retry{Attempts: 2, Backoff: time.Hour, Factor: 1}})
	m.at(0, 1)
	m.begins("12:00/1")
	m.let <- errors.New("no")
	call := m.call(m.a, m.calls(m.a)[0].ID, api.CallRetrying)
	if _, err := m.a.DiscardCalls(t.Context(), TaskCallFilter{IDs: []int64{call.ID}}, "no use", false); err != nil {
		t.Fatal(err)
	}
	m.becomes(0, api.OccurrenceFailed, "")
	runs, err := m.a.Runs(t.Context(), RunFilter{})
	if err != nil || runs[0].State != api.StateCancelled || runs[0].WhyEnded != "discarded" {
		t.Errorf("%+v, %v", runs, err)
	}
	m.at(1, 1)
	m.begins("12:01/1")
	m.let <- task.Fail(errors.New("never"))
	m.becomes(1, api.OccurrenceFailed, "")
	failed := m.call(m.a, m.calls(m.a)[0].ID, api.CallFailed)
	if n, err := m.a.RetryCalls(t.Context(), TaskCallFilter{IDs: []int64{failed.ID}}, false); err != nil || n.Calls != 1 {
		t.Fatalf("%+v, %v", n, err)
	}
	m.begins("12:01/1")
	m.let <- nil
	m.call(m.a, failed.ID, api.CallSucceeded)
	m.becomes(1, api.OccurrenceFailed, "")
}

const locked = `  sessions: {database: app, table: session, until: {column: expires, unit: s}, action: delete, mode: enforce, lock: sessions,
    schedule: {cron: "0 5 1 1 *"}}
`

// A task and a policy that share a lock never work at once, whichever is first; a run by hand waits too, and says so.
func TestTaskAndPolicyLock(t *testing.T) {
	var second atomic.Bool
	var once sync.Once
	holds, goOn := make(chan struct{}), make(chan struct{})
	dispatch.TestHook = func(point string) {
		if point == "started" && second.Load() {
			once.Do(func() { close(holds); <-goOn })
		}
	}
	t.Cleanup(func() { dispatch.TestHook = nil })
	d := newDaemon(t, night, locked)
	begun, let := make(chan struct{}), make(chan struct{})
	work := task.New("work", func(context.Context, task.Call[struct{}]) error {
		begun <- struct{}{}
		<-let
		return nil
	}, task.Options{Lock: "sessions"})
	open := func() *Curfew {
		o := d.options()
		o.Tasks = []*task.Task{work}
		c, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := open()
	startApp(t, c)
	l := mustLedger(d, c)
	d.sessions(10, night.Add(-time.Hour))
	// The task is first.
	if _, err := c.Defer(t.Context(), work, nil); err != nil {
		t.Fatal(err)
	}
	<-begun
	p, err := c.policy("sessions")
	if err != nil {
		t.Fatal(err)
	}
	run, err := c.accept(t.Context(), l, p, RunRequest{Policy: "sessions"})
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan string, 1)
	ran := make(chan error, 1)
	byHand := open()
	defer byHand.Close()
	go func() {
		r, err := byHand.Run(t.Context(), RunRequest{Policy: "sessions", Waiting: func(lock string) { waiting <- lock }})
		if err == nil && (r.ID != run.ID || r.State != api.StateSucceeded) {
			err = fmt.Errorf("run by hand: %+v", r)
		}
		ran <- err
	}()
	if lock := <-waiting; lock != "sessions" {
		t.Errorf("it waits for %q", lock)
	}
	if r, err := c.Show(t.Context(), run.ID); err != nil || r.EndedAt != nil || d.rows() != 10 {
		t.Errorf("%s, %d rows, %v", r.State, d.rows(), err)
	}
	close(let)
	if err := <-ran; err != nil {
		t.Error(err)
	}
	if d.rows() != 0 {
		t.Errorf("%d rows", d.rows())
	}
	// The policy is first.
	second.Store(true)
	d.sessions(5, night.Add(-time.Hour))
	if run, err = c.accept(t.Context(), l, p, RunRequest{Policy: "sessions"}); err != nil {
		t.Fatal(err)
	}
	<-holds
	made, err := c.Defer(t.Context(), work, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := c.emb.Load().e
	beats := e.queue.Looks()
	d.eventually("the queue was looked at", func() bool { return e.queue.Looks() >= beats+20 })
	select {
	case <-begun:
		t.Error("the task works while the policy has the lock")
	default:
	}
	if call, err := c.TaskCall(t.Context(), made.ID); err != nil || call.State == api.CallSucceeded {
		t.Errorf("%+v, %v", call, err)
	}
	close(goOn)
	<-begun
	d.eventually("the call is done", func() bool {
		call, err := c.TaskCall(t.Context(), made.ID)
		return err == nil && call.State == api.CallSucceeded
	})
	if call, _ := c.TaskCall(t.Context(), made.ID); call.Attempt != 1 {
		t.Errorf("waiting counted as attempts: %+v", call)
	}
	d.eventually("the run is done", func() bool { r, err := c.Show(t.Context(), run.ID); return err == nil && r.State == api.StateSucceeded })
}

// A task that leaves the file takes its open runs and its schedule along; one of another program is left alone, and shown.
func TestTaskLeaves(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "curfew.yaml")
	file := func(tasks string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("version: 1\nledger: sqlite:curfew.db\ntasks:\n"+tasks), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const stays, leaves = "  stays: {command: [\"true\"]}\n", "  leaves: {command: [sleep, '1000'], cron: '* * * * *'}\n"
	file(stays + leaves)
	l := &aLedger{T: t, log: &lockedBuffer{}}
	clock := clockAt(noon)
	opts := Options{ConfigPath: path, Logger: slog.New(slog.NewTextHandler(l.log, nil)), Actor: "test", Clock: clock.now}
	other, err := New(Options{Ledger: "sqlite:" + filepath.Join(dir, "curfew.db"), Clock: clock.now, Logger: opts.Logger,
		Tasks: []*task.Task{task.New("of.program", func(context.Context, task.Call[struct{}]) error { return nil }, task.Options{Cron: "0 6 * * *"})}})
	if err != nil {
		t.Fatal(err)
	}
	startApp(t, other)
	stopApp(t, other)
	stop, reload, done, ready := make(chan struct{}), make(chan struct{}), make(chan error, 1), make(chan string, 1)
	go func() {
		done <- Serve(context.WithoutCancel(t.Context()), opts, ServeOptions{Listen: "127.0.0.1:0", Stop: stop, Reload: reload, Listening: func(a string) { ready <- a }})
	}()
	select {
	case <-ready:
	case err := <-done:
		t.Fatal(err)
	}
	defer func() {
		close(stop)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	c, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	schedules := func() (names []string) {
		t.Helper()
		led, err := c.ledger(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		all, err := led.Schedules(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range all {
			names = append(names, s.Policy)
		}
		return names
	}
	l.eventually("its schedule is seen", func() bool { return slices.Contains(schedules(), "leaves") })
	clock.set(noon.Add(3 * time.Second))
	l.eventually("it executes", func() bool {
		calls, err := c.TaskCalls(t.Context(), TaskCallFilter{Task: "leaves", State: api.CallRunning})
		return err == nil && len(calls) == 1
	})
	file(stays)
	reload <- struct{}{}
	l.eventually("its run is cancelled, and its call discarded", func() bool {
		runs, err := c.Runs(t.Context(), RunFilter{Policy: "leaves"})
		if err != nil || len(runs) != 1 {
			t.Fatalf("%+v, %v", runs, err)
		}
		calls, err := c.TaskCalls(t.Context(), TaskCallFilter{Task: "leaves"})
		return err == nil && runs[0].State == api.StateCancelled && runs[0].WhyEnded == "task_gone" && calls[0].State == api.CallDiscarded
	})
	if names := schedules(); slices.Contains(names, "leaves") {
		t.Errorf("schedules of %q", names)
	}
	now, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer now.Close()
	clock.set(noon.Add(10 * time.Minute))
	tasks, err := now.Tasks(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]api.Task{}
	for _, k := range tasks {
		shown[k.Name] = k
	}
	if k := shown["of.program"]; k.Here || k.Kind != api.TaskGo || k.Schedule == "" || k.NextDue == nil || k.Well || !strings.Contains(k.Problem, "does not know it") {
		t.Errorf("another program's: %+v", k)
	}
	if k := shown["stays"]; !k.Here || !k.Well {
		t.Errorf("%+v", k)
	}
	if k, there := shown["leaves"]; there && k.Here {
		t.Errorf("%+v", k)
	}
}

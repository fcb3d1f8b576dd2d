package curfew

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/riverq"
)

// In a service: the schedule's run waits and is told, the next instant takes its place, and approved over HTTP it goes on.
func TestServeAwaits(t *testing.T) {
	d := newDaemon(t, beltsStart.Add(30*time.Minute), beltPolicy(`schedule: {cron: "0 * * * *"}, limits: {max_rows: 10}`))
	d.sessions(11, beltsStart.Add(-time.Hour))
	c := d.open()
	admin, err := c.CreateToken(t.Context(), "boss", []string{"admin"})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := c.CreateToken(t.Context(), "reader", []string{"read", "trigger"})
	if err != nil {
		t.Fatal(err)
	}
	d.start()
	l, err := c.ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.eventually("the schedule is seen", func() bool { s, err := l.Schedules(t.Context()); return err == nil && len(s) == 1 })
	awaiting := func() []ledger.Run {
		runs, err := l.List(t.Context(), ledger.Filter{State: ledger.AwaitingApproval})
		if err != nil {
			t.Fatal(err)
		}
		return runs
	}
	d.clock.set(beltsStart.Add(time.Hour + time.Second))
	d.eventually("the run waits", func() bool { return len(awaiting()) == 1 })
	first := awaiting()[0]
	d.clock.set(beltsStart.Add(2*time.Hour + time.Second))
	d.eventually("the next one waits in its place", func() bool { r := awaiting(); return len(r) == 1 && r[0].ID != first.ID })
	second := awaiting()[0]
	if was, err := l.Get(t.Context(), first.ID); err != nil || was.State != ledger.Cancelled || was.WhyEnded != ledger.WhySuperseded {
		t.Errorf("the first one: %+v, %v", was, err)
	}
	if second.Owner != "" || d.rows() != 11 {
		t.Errorf("owner %q, %d rows", second.Owner, d.rows())
	}
	d.eventually("people are told", func() bool {
		a, err := l.Alerts(t.Context(), ledger.AlertFilter{Kind: "run.awaiting_approval", Run: second.ID})
		return err == nil && len(a) == 1 && strings.Contains(string(a[0].Body), "max_rows is 10")
	})
	path := "/v1/runs/" + second.ID + "/approve"
	if status, _ := d.post(reader.Token, path, `{}`); status != http.StatusForbidden {
		t.Errorf("without the scope: %d", status)
	}
	if status, _ := d.post(admin.Token, path, `{"why": "x"}`); status != http.StatusUnprocessableEntity {
		t.Errorf("another field: %d", status)
	}
	// Hours late by now: it began in time, and only somebody's word was missing.
	d.clock.set(beltsStart.Add(2*time.Hour + 50*time.Minute))
	if status, _ := d.post(admin.Token, path, `{"reason": "agreed"}`); status != http.StatusOK {
		t.Errorf("approve: %d", status)
	}
	d.eventually("it goes on", func() bool { r, err := l.Get(t.Context(), second.ID); return err == nil && r.State == ledger.Succeeded })
	if status, _ := d.post(admin.Token, path, ``); status != http.StatusConflict {
		t.Errorf("approve again: %d", status)
	}
	a, _, err := l.Approval(t.Context(), second.ID)
	if err != nil || a.Actor != "token:boss" || a.Reason != "agreed" || d.rows() != 0 {
		t.Errorf("%+v, %v; %d rows", a, err, d.rows())
	}
	var plan api.ApprovalPlan
	if err := json.Unmarshal(a.Plan, &plan); err != nil || *plan.Due != 11 {
		t.Errorf("%s, %v", a.Plan, err)
	}
	d.eventually("the occurrences say so", func() bool {
		s := d.states(c)
		return s["ok"] == 1 && s["failed"] == 1
	})
}

// Outside its windows a run is open and begins nothing; it goes on when one opens.
func TestServeWindow(t *testing.T) {
	look, beat := dispatch.LookAgain, dispatch.HeartbeatEvery
	dispatch.LookAgain, dispatch.HeartbeatEvery = 20*time.Millisecond, 20*time.Millisecond
	t.Cleanup(func() { dispatch.LookAgain, dispatch.HeartbeatEvery = look, beat })
	d := newDaemon(t, beltsStart.Add(30*time.Minute), beltPolicy(`schedule: {cron: "0 2 * * *", start_within: 1h}, windows: ["04:00-05:00"]`))
	d.sessions(11, beltsStart.Add(-time.Hour))
	c := d.open()
	d.start()
	l, err := c.ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	d.eventually("the schedule is seen", func() bool { s, err := l.Schedules(t.Context()); return err == nil && len(s) == 1 })
	d.clock.set(beltsStart.Add(time.Hour + time.Second))
	var run ledger.Run
	d.eventually("the run waits for its window", func() bool {
		runs, err := l.OpenRuns(t.Context())
		if err != nil || len(runs) != 1 {
			return false
		}
		run = runs[0]
		return run.Detail == "outside its window, which opens at 2026-07-01T04:00:00Z"
	})
	d.clock.set(beltsStart.Add(2*time.Hour + 59*time.Minute)) // long past start_within, and 03:59
	d.eventually("ticked", func() bool {
		s, err := l.Schedules(t.Context())
		return err == nil && s[0].TickedAt.After(beltsStart.Add(2*time.Hour+58*time.Minute))
	})
	if run, err = l.Get(t.Context(), run.ID); err != nil || run.State != ledger.Running || run.BatchesTotal != 0 || d.rows() != 11 {
		t.Fatalf("%+v, %v; %d rows", run, err, d.rows())
	}
	d.eventually("it is worked on", func() bool {
		r, err := l.Get(t.Context(), run.ID)
		return err == nil && r.Heartbeat.After(beltsStart.Add(2*time.Hour+58*time.Minute))
	})
	s, err := c.Status(t.Context())
	if err != nil || !s[0].Well || !strings.Contains(s[0].Waiting, "outside its window") {
		t.Errorf("status: %+v, %v", s, err)
	}
	if !strings.Contains(d.logs.String(), "admission_wait") || !strings.Contains(d.logs.String(), "reason=window") {
		t.Error("the log does not say what it waits for")
	}
	d.clock.set(beltsStart.Add(3*time.Hour + time.Second))
	d.eventually("it goes on", func() bool { r, err := l.Get(t.Context(), run.ID); return err == nil && r.State == ledger.Succeeded })
	if d.rows() != 0 {
		t.Errorf("%d rows", d.rows())
	}
}

// A batch that was let in before its window closed, and is taken from the queue after, is put off.
func TestQueuedOutsideWindow(t *testing.T) {
	d := newDaemon(t, beltsStart, beltPolicy(`windows: ["02:00-03:00"]`))
	c := d.open()
	l, err := c.ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run, err := c.accept(t.Context(), l, c.file.Policies[0], RunRequest{Policy: "sessions"})
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{c: c, l: l}
	for at, want := range map[time.Time]time.Duration{beltsStart: time.Hour, beltsStart.Add(90 * time.Minute): 0, beltsStart.Add(2 * time.Hour): 23 * time.Hour} {
		d.clock.set(at)
		err := e.inWindow(t.Context(), run)
		later := (*riverq.LaterError)(nil)
		if errors.As(err, &later) != (want > 0) || later != nil && (later.After > want || later.After < want-time.Minute) {
			t.Errorf("at %s: %v, %+v", at, err, later)
		}
	}
}

// In the foreground a run waits for its window too, and says so; told to stop, it stays open.
func TestRunOutsideWindow(t *testing.T) {
	look := dispatch.LookAgain
	dispatch.LookAgain = 10 * time.Millisecond
	t.Cleanup(func() { dispatch.LookAgain = look })
	d := newDaemon(t, beltsStart, beltPolicy(`windows: ["02:00-03:00"], limits: {max_rows: 10}`))
	d.sessions(11, beltsStart.Add(-time.Hour))
	c := d.open()
	stop := make(chan struct{})
	run, err := c.Run(t.Context(), RunRequest{Policy: "sessions", Stop: stop, Outside: func(opens time.Time) {
		if !opens.Equal(beltsStart.Add(time.Hour)) {
			t.Errorf("it opens at %s", opens)
		}
		close(stop)
	}})
	if KindOf(err) != KindInterrupted || run.State != api.StateRunning {
		t.Fatalf("%+v, %v", run, err)
	}
	told := 0
	open := func(time.Time) { told++; d.clock.set(beltsStart.Add(time.Hour)) }
	waits := d.run(c, RunRequest{Outside: open})
	d.awaits(c, waits, 11, api.LimitMaxRows) // it is counted in its window
	if waits.ID != run.ID || told != 1 {
		t.Errorf("run %s, was %s; told %d times", waits.ID, run.ID, told)
	}
	d.approve(c, waits)
	d.clock.set(beltsStart.Add(2 * time.Hour))
	open = func(time.Time) { told++; d.clock.set(beltsStart.Add(25 * time.Hour)) }
	if d.succeeded(d.run(c, RunRequest{Outside: open}), 11); told != 2 {
		t.Errorf("told %d times", told)
	}
}

package curfew

import (
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/policy"
)

const called = `  sessions: {database: app, table: session, until: {column: expires, unit: s}, action: delete, mode: enforce,
    schedule: {by: external, cron: "0 2 * * *", grace: 15m}, batch: {rows: 100, in_flight: 2, target: 500ms, pace: none}}
`

// A caller that stays silent for a night is noticed; curfew starts nothing in its place. The call of the next night is that night's.
func TestServeExpectsCalls(t *testing.T) {
	d := newDaemon(t, night, called)
	d.sessions(10, night.Add(-time.Hour))
	d.start()
	c := d.open()
	token, err := mustLedger(d, c).CreateToken(t.Context(), "scheduler", []string{"trigger"})
	if err != nil {
		t.Fatal(err)
	}
	d.seen(c)
	d.clock.set(night.Add(10 * time.Minute))
	d.eventually("the call is expected", func() bool { return d.states(c)["pending"] == 1 })
	d.clock.set(night.Add(17 * time.Minute))
	d.eventually("the missed call is noticed", func() bool { return d.states(c)["missed"] == 1 })
	d.eventually("it is told", func() bool {
		alerts, err := mustLedger(d, c).Alerts(t.Context(), ledger.AlertFilter{})
		return err == nil && len(alerts) == 1 && alerts[0].Kind == "occurrence.missed"
	})
	if st, err := c.Status(t.Context()); err != nil || st[0].Well {
		t.Errorf("%+v, %v", st, err)
	}
	if n := d.rows(); n != 10 {
		t.Errorf("%d rows left: somebody started a run", n)
	}
	next := night.AddDate(0, 0, 1)
	d.clock.set(next.Add(30 * time.Second))
	status, run := d.post(token, "/v1/policies/sessions/runs", "{}")
	if status != http.StatusAccepted || run.Cause != "http" {
		t.Fatalf("status %d, run %+v", status, run)
	}
	d.eventually("the occurrence is the call's", func() bool { return d.states(c)["ok"] == 1 })
	if n := d.rows(); n != 0 {
		t.Errorf("%d rows left", n)
	}
	if st, err := c.Status(t.Context()); err != nil || !st[0].Well {
		t.Errorf("%+v, %v", st, err)
	}
}

// A paused policy is not started, neither by its schedule nor by a call; both are on record.
func TestServePaused(t *testing.T) {
	d := newDaemon(t, night, nightly)
	d.sessions(10, night.Add(-time.Hour))
	d.start()
	c := d.open()
	token, err := mustLedger(d, c).CreateToken(t.Context(), "scheduler", []string{"trigger"})
	if err != nil {
		t.Fatal(err)
	}
	d.seen(c)
	if _, err := c.Pause(t.Context(), "sessions", "moving house"); err != nil {
		t.Fatal(err)
	}
	d.clock.set(night.Add(time.Minute))
	d.eventually("the instant is skipped", func() bool { return d.states(c)["skipped"] == 1 })
	if status, _ := d.post(token, "/v1/policies/sessions/runs", "{}"); status != http.StatusConflict {
		t.Errorf("a call: status %d", status)
	}
	calls, err := mustLedger(d, c).Calls(t.Context(), ledger.CallFilter{})
	if err != nil || len(calls) != 1 || calls[0].Answer != http.StatusConflict || calls[0].Token != "scheduler" {
		t.Errorf("calls %+v, %v", calls, err)
	}
	if n := d.rows(); n != 10 {
		t.Errorf("%d rows left", n)
	}
}

// A policy that comes after another starts when the other's run of the same instant is done, and is skipped when that one fails.
func TestServeAfter(t *testing.T) {
	for _, fails := range []bool{false, true} {
		first := strings.Replace(nightly, "sessions:", "first:", 1)
		if fails {
			first = strings.Replace(first, "table: session,", "table: session, where: \"nothing_there = 1\",", 1)
		}
		d := newDaemon(t, night, strings.Replace(nightly, "action:", "after: first, action:", 1)+first)
		d.sessions(10, night.Add(-time.Hour))
		d.start()
		c := d.open()
		d.eventually("both schedules are seen", func() bool { s, err := mustLedger(d, c).Schedules(t.Context()); return err == nil && len(s) == 2 })
		d.clock.set(night.Add(11 * time.Second))
		d.eventually("both occurrences end", func() bool {
			got := d.states(c)
			return got["pending"] == 0 && len(got) > 0 && got["ok"]+got["failed"]+got["skipped"] == 2
		})
		runs, err := c.Runs(t.Context(), RunFilter{Policy: "sessions"})
		before, berr := c.Runs(t.Context(), RunFilter{Policy: "first"})
		if err != nil || berr != nil || len(runs) != 1 || len(before) != 1 {
			t.Fatal(runs, before, err, berr)
		}
		switch got := d.states(c); {
		case !fails && (got["ok"] != 2 || runs[0].StartedAt.Before(*before[0].EndedAt)):
			t.Errorf("%v: started %s, the one before ended %s", got, runs[0].StartedAt, before[0].EndedAt)
		case fails && (got["failed"] != 1 || got["skipped"] != 1 || runs[0].WhyEnded != "after_failed"):
			t.Errorf("%v: %+v", got, runs[0])
		}
		d.halt()
	}
}

// Without an index, and with the rows that are not due lying first, a page is an estimate that may be far off. The daemon cuts such a
// batch and goes on with pages as large as before.
func TestServeScatteredRows(t *testing.T) {
	url := dbtest.Postgres(t)
	db := dbtest.Open(t, url)
	for _, stmt := range []string{
		"CREATE TABLE session (token uuid PRIMARY KEY DEFAULT gen_random_uuid(), account_id bigint, expires timestamptz NOT NULL, ip inet)",
		"INSERT INTO session (account_id, expires) SELECT 1 + g % 1000, now() - g * interval '2 minutes' + interval '14 days' FROM generate_series(1, 50000) g",
		"ANALYZE session",
	} {
		if _, err := db.ExecContext(t.Context(), stmt); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	file, err := policy.Parse([]byte("version: 1\ndatabases: {app: {url: \""+url+"\"}}\npolicies:\n"+
		"  sessions: {database: app, table: session, until: expires, keep: 7d, action: delete, mode: enforce, batch: {rows: 1000, in_flight: 2, target: 500ms, pace: none}}\n"),
		policy.Options{Path: filepath.Join(dir, "curfew.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{Config: file, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Actor: "test"}
	c, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Install(t.Context(), "app", false); err != nil {
		t.Fatal(err)
	}
	l, err := c.ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p, err := c.policy("sessions")
	if err != nil {
		t.Fatal(err)
	}
	run, err := c.accept(t.Context(), l, p, RunRequest{Policy: "sessions"})
	if err != nil {
		t.Fatal(err)
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- Serve(t.Context(), opts, ServeOptions{Listen: "127.0.0.1:0", Stop: stop}) }()
	for deadline := time.After(60 * time.Second); !run.State.Ended(); {
		select {
		case err := <-done:
			t.Fatal(err)
		case <-deadline:
			t.Fatalf("%+v", run)
		case <-time.After(50 * time.Millisecond):
		}
		if run, err = l.Get(t.Context(), run.ID); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if run.State != ledger.Succeeded || run.Outcomes["deleted"] < 34000 || run.BatchesTotal > 120 {
		t.Errorf("%s, %v in %d batches", run.State, run.Outcomes, run.BatchesTotal)
	}
}

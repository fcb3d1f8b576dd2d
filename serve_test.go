package curfew

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/policy"
	"curfew.dev/curfew/task"
)

// fakeClock is a clock that a test sets. It runs on by itself, so that waiting works.
type fakeClock struct{ ahead atomic.Int64 }

func clockAt(t time.Time) *fakeClock {
	c := &fakeClock{}
	c.set(t)
	return c
}

func (c *fakeClock) set(t time.Time) { c.ahead.Store(int64(time.Until(t))) }
func (c *fakeClock) now() time.Time  { return time.Now().Add(time.Duration(c.ahead.Load())) }

// daemon is a service on a small SQLite application, in this process.
type daemon struct {
	*testing.T
	dir   string
	clock *fakeClock
	logs  *lockedBuffer
	file  string // the policies
	led   string // the ledger
	more  string // databases beside the application's
	name  string // of the application's database in the file
	tasks []*task.Task

	reload chan struct{}
	stop   chan struct{}
	done   chan error
	addr   string
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newDaemon(t *testing.T, at time.Time, policies string) *daemon {
	t.Helper()
	return newDaemonOn(t, "sqlite:curfew.db", at, policies)
}

func newDaemonOn(t *testing.T, ledger string, at time.Time, policies string) *daemon {
	t.Helper()
	d := &daemon{T: t, dir: t.TempDir(), led: ledger, name: "app", clock: clockAt(at), logs: &lockedBuffer{}}
	d.app("CREATE TABLE session (id INTEGER PRIMARY KEY, expires INTEGER NOT NULL)")
	d.file = policies
	c := d.open()
	if _, err := c.Install(t.Context(), "app", false); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.AcceptClock(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

// app runs statements in the application's database.
func (d *daemon) app(statements ...string) {
	d.Helper()
	db, err := sql.Open("sqlite", filepath.Join(d.dir, "app.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		d.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			d.Fatal(s, err)
		}
	}
}

func (d *daemon) rows() (n int) {
	d.Helper()
	db, err := sql.Open("sqlite", filepath.Join(d.dir, "app.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		d.Fatal(err)
	}
	defer db.Close()
	if err := db.QueryRow("SELECT count(*) FROM session").Scan(&n); err != nil {
		d.Fatal(err)
	}
	return n
}

// sessions adds rows that expire then.
func (d *daemon) sessions(n int, at time.Time) {
	d.Helper()
	d.app(fmt.Sprintf("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) INSERT INTO session (expires) SELECT %d FROM n", n, at.Unix()))
}

func (d *daemon) options() Options {
	file, err := policy.Parse([]byte("version: 1\nledger: "+d.led+"\ndatabases: {"+d.more+d.name+": {url: \"sqlite:app.db\"}}\npolicies:\n"+d.file), policy.Options{Path: filepath.Join(d.dir, "curfew.yaml")})
	if err != nil {
		d.Fatal(err)
	}
	return Options{Config: file, Logger: slog.New(slog.NewTextHandler(d.logs, &slog.HandlerOptions{Level: slog.LevelDebug})), Actor: "test", Clock: d.clock.now, Tasks: d.tasks}
}

func (d *daemon) open() *Curfew {
	d.Helper()
	c, err := New(d.options())
	if err != nil {
		d.Fatal(err)
	}
	d.Cleanup(func() { c.Close() })
	return c
}

// start serves until halt.
func (d *daemon) start() {
	d.Helper()
	d.stop, d.reload, d.done = make(chan struct{}), make(chan struct{}), make(chan error, 1)
	addr := make(chan string, 1)
	opts := d.options()
	if path := filepath.Join(d.dir, "curfew.yaml"); exists(path) {
		opts.Config, opts.ConfigPath = nil, path
	}
	go func() {
		d.done <- Serve(context.WithoutCancel(d.Context()), opts, ServeOptions{Listen: "127.0.0.1:0", Stop: d.stop, Reload: d.reload, Listening: func(a string) { addr <- a }})
	}()
	select {
	case d.addr = <-addr:
	case err := <-d.done:
		d.Fatalf("serve: %v\n%s", err, d.logs)
	}
	d.Cleanup(d.halt)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (d *daemon) halt() {
	if d.stop == nil {
		return
	}
	close(d.stop)
	d.stop = nil
	if err := <-d.done; err != nil {
		d.Errorf("serve: %v", err)
	}
}

// eventually waits until something is so. A real process is at work: there is nothing to wait for but what it leaves.
func (d *daemon) eventually(what string, f func() bool) {
	d.Helper()
	deadline := time.After(20 * time.Second)
	for !f() {
		select {
		case <-deadline:
			d.Fatalf("not so after 20 s: %s\n%s", what, d.logs)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// post asks for a run.
func (d *daemon) post(token, path, body string, header ...string) (status int, run api.Run) {
	d.Helper()
	req, err := http.NewRequestWithContext(d.Context(), "POST", "http://"+d.addr+path, strings.NewReader(body))
	if err != nil {
		d.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		d.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		d.Fatal(err)
	}
	if resp.StatusCode == http.StatusAccepted {
		if err := json.Unmarshal(text, &run); err != nil {
			d.Fatalf("%s: %v", text, err)
		}
	}
	return resp.StatusCode, run
}

// states counts the occurrences by what became of them.
func (d *daemon) states(c *Curfew) map[string]int {
	d.Helper()
	l, err := c.ledger(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	list, err := l.Occurrences(d.Context(), ledger.OccurrenceFilter{Limit: 1000})
	if err != nil {
		d.Fatal(err)
	}
	out := map[string]int{}
	for _, o := range list {
		out[string(o.State)]++
	}
	return out
}

const nightly = `  sessions: {database: app, table: session, until: {column: expires, unit: s}, action: delete, mode: enforce,
    schedule: {cron: "0 2 * * *"}, batch: {rows: 100, in_flight: 2, target: 500ms, pace: none}}
`

var night = time.Date(2026, 7, 1, 1, 59, 50, 0, time.UTC)

// At its time the schedule becomes a run, whose batches go through the queue; its rows are gone and the occurrence is ok.
func TestServeKeepsASchedule(t *testing.T) {
	for name, ledger := range map[string]string{"a file of its own": "sqlite:curfew.db", "the application's file": "sqlite:app.db"} {
		t.Run(name, func(t *testing.T) {
			d := newDaemonOn(t, ledger, night, nightly)
			d.sessions(950, night.Add(-time.Hour))
			d.sessions(50, night.Add(time.Hour))
			d.start()
			c := d.open()
			d.seen(c)
			d.clock.set(night.Add(11 * time.Second))
			d.eventually("the occurrence ends", func() bool { return d.states(c)["ok"] == 1 })
			runs, err := c.Runs(t.Context(), RunFilter{})
			if err != nil || len(runs) != 1 {
				t.Fatalf("%d runs, %v", len(runs), err)
			}
			r := runs[0]
			if r.Cause != "schedule" || r.State != api.StateSucceeded || !r.AsOf.Equal(night.Add(10*time.Second)) || r.Outcomes["deleted"] != 950 || r.Batches.Total < 9 || d.rows() != 50 {
				t.Errorf("%d rows left, run %+v", d.rows(), r)
			}
			d.halt()
			if s := d.logs.String(); strings.Contains(s, "level=ERROR") || strings.Contains(s, "level=WARN") {
				t.Errorf("complaints:\n%s", s)
			}
		})
	}
}

// seen waits until the service has seen the schedule, which has no past from then on.
func (d *daemon) seen(c *Curfew) {
	d.Helper()
	d.eventually("the schedule is seen", func() bool {
		s, err := mustLedger(d, c).Schedules(d.Context())
		return err == nil && len(s) == 1
	})
}

func mustLedger(d *daemon, c *Curfew) *ledger.Ledger {
	d.Helper()
	l, err := c.ledger(d.Context())
	if err != nil {
		d.Fatal(err)
	}
	return l
}

// Nobody served for three nights: three occurrences are missed and stay so; one run catches up, at the last of them.
func TestServeAfterThreeNights(t *testing.T) {
	d := newDaemon(t, night, nightly)
	d.start()
	c := d.open()
	d.seen(c)
	d.halt()
	d.sessions(10, night.Add(60*time.Hour))
	d.clock.set(night.AddDate(0, 0, 2).Add(8 * time.Hour)) // ten in the morning after the third night
	if st, err := c.Status(t.Context()); err != nil || len(st) != 1 || st[0].Well {
		t.Errorf("before anybody serves again: %+v, %v", st, err)
	}
	d.sessions(10, night.Add(-time.Hour))
	d.start()
	d.eventually("the run that catches up is done", func() bool {
		runs, err := c.Runs(t.Context(), RunFilter{State: api.StateSucceeded})
		return err == nil && len(runs) == 1 && runs[0].Cause == "catch_up"
	})
	if got := d.states(c); got["missed"] != 3 || len(got) != 1 {
		t.Errorf("occurrences %v", got)
	}
	runs, _ := c.Runs(t.Context(), RunFilter{})
	if want := night.AddDate(0, 0, 2).Add(10 * time.Second); len(runs) != 1 || !runs[0].AsOf.Equal(want) || d.rows() != 10 {
		t.Errorf("%d rows left; runs %+v", d.rows(), runs)
	}
	if st, err := c.Status(t.Context()); err != nil || len(st) != 1 || !st[0].Well {
		t.Errorf("after it: %+v, %v", st, err)
	}
}

// A hundred calls at once, and one on the other side of a minute's boundary while the run is open, are one run and one scan.
func TestTriggerIsOneRun(t *testing.T) {
	d := newDaemon(t, night, strings.Replace(nightly, `cron: "0 2 * * *"`, `cron: "0 5 1 1 *"`, 1))
	d.sessions(300, night.Add(-time.Hour))
	d.start()
	c := d.open()
	token, err := mustLedger(d, c).CreateToken(t.Context(), "scheduler", []string{"trigger"})
	if err != nil {
		t.Fatal(err)
	}
	ids := make(chan string, 100)
	var wg sync.WaitGroup
	for range 40 { // the burst that one token has
		wg.Go(func() {
			status, run := d.post(token, "/v1/policies/sessions/runs", "{}")
			if status != http.StatusAccepted {
				t.Errorf("status %d", status)
			}
			ids <- run.ID
		})
	}
	wg.Wait()
	close(ids)
	seen := map[string]bool{}
	for id := range ids {
		seen[id] = true
	}
	if len(seen) != 1 {
		t.Errorf("%d runs", len(seen))
	}
	d.eventually("it is done", func() bool { return d.rows() == 0 })
	for _, bad := range []struct {
		token string
		want  int
	}{{"cfw_nobody", 401}, {"", 401}} {
		if status, _ := d.post(bad.token, "/v1/policies/sessions/runs", "{}"); status != bad.want {
			t.Errorf("token %q: %d, want %d", bad.token, status, bad.want)
		}
	}
	if s := d.logs.String(); strings.Contains(s, token) {
		t.Error("the token is in the log")
	}
}

// A reload puts another text in force, says so, and ends what left the file; a file that is wrong changes nothing.
func TestServeReloads(t *testing.T) {
	d := newDaemon(t, night, nightly+strings.Replace(nightly, "sessions:", "going:", 1))
	path := filepath.Join(d.dir, "curfew.yaml")
	file := func(policies string) {
		t.Helper()
		if err := os.WriteFile(path, []byte("version: 1\nledger: sqlite:curfew.db\ndatabases: {app: {url: \"sqlite:app.db\"}}\npolicies:\n"+policies), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	file(d.file)
	d.start()
	c := d.open()
	d.eventually("both schedules are seen", func() bool { s, err := mustLedger(d, c).Schedules(t.Context()); return err == nil && len(s) == 2 })
	file("  sessions: {keep: nonsense}\n")
	d.reload <- struct{}{}
	d.eventually("the wrong file is refused", func() bool { return strings.Contains(d.logs.String(), "reload_refused") })
	file(strings.Replace(nightly, "0 2 * * *", "0 3 * * *", 1))
	d.reload <- struct{}{}
	d.eventually("the new file is in force", func() bool {
		s, err := mustLedger(d, c).Schedules(t.Context())
		return err == nil && len(s) == 1 && strings.HasPrefix(s[0].Expr, "0 3 ")
	})
	d.clock.set(night.Add(11 * time.Second))
	d.clock.set(night.Add(time.Hour + 11*time.Second))
	d.eventually("the new schedule is kept", func() bool { return d.states(c)["ok"] == 1 })
	if got := d.states(c); len(got) != 1 || got["ok"] != 1 {
		t.Errorf("occurrences %v", got)
	}
	entries, err := mustLedger(d, c).AuditEntries(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	revisions := 0
	for _, e := range entries {
		if e.Action == ledger.ActionRevisionSeen {
			revisions++
		}
	}
	if revisions != 3 {
		t.Errorf("%d revisions were seen, want two at the start and one with the reload", revisions)
	}
}

// A run whose process is gone, in the foreground or not, is taken over by whoever serves.
func TestServeTakesOver(t *testing.T) {
	d := newDaemon(t, night, nightly)
	d.sessions(250, night.Add(-time.Hour))
	c := d.open()
	l := mustLedger(d, c)
	p, err := c.policy("sessions")
	if err != nil {
		t.Fatal(err)
	}
	run, err := c.accept(t.Context(), l, p, RunRequest{Policy: "sessions"})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Claim(t.Context(), run.ID, "a process that died", time.Hour); err != nil {
		t.Fatal(err)
	}
	d.start()
	d.clock.set(night.Add(5 * time.Second))
	if r, err := l.Get(t.Context(), run.ID); err != nil || r.Owner != "a process that died" {
		t.Errorf("taken too early: %+v, %v", r, err)
	}
	d.clock.set(night.Add(staleAfter + 5*time.Second)) // past the schedule's instant too
	d.eventually("the run is done", func() bool { r, err := l.Get(t.Context(), run.ID); return err == nil && r.State == ledger.Succeeded })
	if n := d.rows(); n != 0 {
		t.Errorf("%d rows left", n)
	}
}

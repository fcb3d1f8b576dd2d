package curfew

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"curfew.dev/curfew/internal/ledger"
)

const lockedFile = `  sessions: {database: app, table: session, until: {column: expires, unit: s}, action: delete, mode: enforce, lock: nightly}
tasks:
  backup: {command: [sh, -c, "touch began; until [ -e go ]; do sleep 0.02; done"], lock: nightly}
`

// A run in the foreground waits for the lock of its policy as one of the service does.
func TestRunWaitsForItsLock(t *testing.T) {
	d := newDaemon(t, night, lockedFile)
	d.sessions(5, night.AddDate(-1, 0, 0))
	task, run := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := d.open().RunTask(context.WithoutCancel(t.Context()), TaskRunRequest{Task: "backup"})
		task <- err
	}()
	d.eventually("the task executes", func() bool { return exists(filepath.Join(d.dir, "began")) })
	stop := make(chan struct{})
	go func() {
		_, err := d.open().Run(context.WithoutCancel(t.Context()), RunRequest{Policy: "sessions", Stop: stop})
		run <- err
	}()
	d.eventually("the run waits", func() bool { return strings.Contains(d.logs.String(), "reason=lock") || d.rows() == 0 })
	if n := d.rows(); n != 5 {
		t.Fatalf("%d rows are left while the task has the lock", n)
	}
	close(stop)
	if err := <-run; KindOf(err) != KindInterrupted {
		t.Errorf("the run that was stopped: %v", err)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-task; err != nil {
		t.Fatal(err)
	}
	if _, err := d.open().Run(t.Context(), RunRequest{Policy: "sessions"}); err != nil || d.rows() != 0 {
		t.Errorf("%d rows are left, %v", d.rows(), err)
	}
}

// A run that was cancelled has the lock for as long as a batch of it executes.
func TestCancelledRunKeepsItsLock(t *testing.T) {
	d := newDaemon(t, night, lockedFile)
	d.sessions(5, night.AddDate(-1, 0, 0))
	if err := os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	d.start()
	c := d.open()
	l := mustLedger(d, c)
	token, err := l.CreateToken(t.Context(), "scheduler", []string{"trigger"})
	if err != nil {
		t.Fatal(err)
	}
	app, err := sql.Open("sqlite", filepath.Join(d.dir, "app.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	defer app.Close()
	other, err := app.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := other.ExecContext(t.Context(), "BEGIN IMMEDIATE"); err != nil { // what the batch wants to write is another's
		t.Fatal(err)
	}
	_, run := d.post(token, "/v1/policies/sessions/runs", "")
	q, err := c.inserter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	executes := func() (is bool) {
		err := l.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) (err error) {
			is, err = q.ExecutesTx(ctx, tx, run.ID)
			return err
		})
		return is && err == nil
	}
	d.eventually("a batch executes", executes)
	if _, err := c.Cancel(t.Context(), run.ID, ""); err != nil {
		t.Fatal(err)
	}
	waits, done := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := d.open().RunTask(context.WithoutCancel(t.Context()), TaskRunRequest{Task: "backup", Waiting: func() { close(waits) }})
		done <- err
	}()
	select {
	case <-waits:
	case err := <-done:
		t.Fatalf("the task was done while a batch executed: %v", err)
	}
	if _, err := other.ExecContext(t.Context(), "COMMIT"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	if r, err := l.Get(t.Context(), run.ID); err != nil || r.State != ledger.Cancelled {
		t.Errorf("%s, %v", r.State, err)
	}
}

//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"curfew.dev/curfew/api"
)

// within waits for something that a signal causes.
func within[T any](t *testing.T, c <-chan T, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s did not happen", what)
	}
}

func interrupt(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
}

func TestFirstInterruptCancels(t *testing.T) {
	ctx, stop := new(interrupts).watch(t.Context())
	defer stop()
	interrupt(t)
	within(t, ctx.Done(), "cancelling")
}

func TestGracefulInterrupt(t *testing.T) {
	i := &interrupts{}
	told := make(chan struct{})
	i.onSignal = func() { close(told) }
	ctx, stop := i.watch(t.Context())
	defer stop()
	finish := i.graceful()
	select {
	case <-finish:
		t.Fatal("stopped before any signal")
	default:
	}
	interrupt(t)
	within(t, finish, "finishing")
	within(t, told, "the message")
	if ctx.Err() != nil {
		t.Fatal("the first signal aborted the batch in hand")
	}
	interrupt(t)
	within(t, ctx.Done(), "aborting")
}

// TestInterruptedExitCode: whatever a cancelled command was doing, its exit code says that it was interrupted.
func TestInterruptedExitCode(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var stdout, stderr bytes.Buffer
	none := func(string) (string, bool) { return "", false }
	if code := newApp(nil, &stdout, &stderr, none).execute(ctx, []string{"demo", "--dir", t.TempDir() + "/x"}); code != exitInterrupted {
		t.Errorf("exit code %d, want %d\n%s", code, exitInterrupted, stderr.String())
	}
}

// TestInterruptedRunIsResumed interrupts the real program in the middle of a run, and lets the next one finish it.
func TestInterruptedRunIsResumed(t *testing.T) {
	const rows = 24
	dir := t.TempDir()
	write(t, filepath.Join(dir, "curfew.yaml"), `
version: 1
databases: {d: {url: "sqlite:d.db"}}
policies:
  p: {database: d, table: t, until: {column: at, format: iso8601}, action: delete, mode: enforce, batch: {rows: 2, in_flight: 1, pace: 12}}
`[1:])
	db, err := sql.Open("sqlite", filepath.Join(dir, "d.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	left := func() (n int64) {
		if err := db.QueryRow("SELECT count(*) FROM t").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if _, err := db.Exec(fmt.Sprintf("CREATE TABLE t (id INTEGER PRIMARY KEY, at TEXT NOT NULL); INSERT INTO t "+
		"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) SELECT i, '2020-01-01T00:00:00Z' FROM n", rows)); err != nil {
		t.Fatal(err)
	}
	program := func(args ...string) *exec.Cmd {
		cmd := exec.CommandContext(t.Context(), "curfew", args...)
		cmd.Dir = dir
		return cmd
	}
	if out, err := program("install", "d").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	cmd := program("run", "p", "--output", "json")
	var stdout bytes.Buffer
	cmd.Stdout = &stdout
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stderr)
	for lines.Scan() && !strings.Contains(lines.Text(), `"run_started"`) {
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	rest := new(strings.Builder)
	for lines.Scan() {
		fmt.Fprintln(rest, lines.Text())
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitInterrupted {
		t.Fatalf("the run ended with %v, want exit code %d\n%s%s", err, exitInterrupted, stdout.String(), rest)
	}
	for _, want := range []string{"curfew: finishing the batch in hand; press Ctrl-C again", "curfew: error: run ", "curfew: hint: curfew run p goes on"} {
		if !strings.Contains(rest.String(), want) {
			t.Errorf("stderr lacks %q:\n%s", want, rest)
		}
	}
	interrupted := decodeRun(t, &stdout)
	// Batches in hand are settled; the one that was to be next may stand in the ledger, not begun.
	if interrupted.State != api.StateRunning || interrupted.EndedAt != nil || interrupted.Batches.Total-interrupted.Batches.Settled > 1 {
		t.Errorf("the interrupted run is %+v, want one that is running with no batch begun", interrupted)
	}
	if gone := rows - left(); gone != interrupted.Outcomes["deleted"] || gone == rows {
		t.Errorf("%d rows are gone, the run says %d", gone, interrupted.Outcomes["deleted"])
	}

	out, err := program("run", "p", "--output", "json").Output()
	if err != nil {
		t.Fatal(err)
	}
	resumed := decodeRun(t, bytes.NewReader(out))
	if resumed.ID != interrupted.ID || resumed.State != api.StateSucceeded || resumed.Outcomes["deleted"] != rows || left() != 0 {
		t.Errorf("the resumed run is %+v with %d rows left, want %s with all deleted", resumed, left(), interrupted.ID)
	}
}

func decodeRun(t *testing.T, r io.Reader) api.Run {
	t.Helper()
	var run api.Run
	if err := json.NewDecoder(r).Decode(&run); err != nil {
		t.Fatal(err)
	}
	return run
}

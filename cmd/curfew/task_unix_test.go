//go:build unix

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"curfew.dev/curfew/api"
)

const withTasks = `
version: 1
ledger: sqlite:curfew.db
tasks:
  slow:
    lock: slow
    kill_after: 1s
    command: [sh, -c, "echo begun; while ! test -e go; do sleep 0.05; done; echo done"]
  fails:
    command: [sh, -c, "test -e go || { echo not yet; exit 1; }"]
`

// taskBench is a folder with tasks.
type taskBench struct {
	*testing.T
	dir string
}

func newTaskBench(t *testing.T) *taskBench {
	t.Helper()
	b := &taskBench{t, t.TempDir()}
	write(t, filepath.Join(b.dir, "curfew.yaml"), withTasks[1:])
	return b
}

// run runs the program to its end.
func (b *taskBench) run(code int, args ...string) string {
	b.Helper()
	cmd := exec.CommandContext(b.Context(), "curfew", args...)
	cmd.Dir = b.dir
	out, err := cmd.Output()
	if got := cmd.ProcessState.ExitCode(); got != code {
		b.Fatalf("curfew %s: %d, %v, want %d\n%s", strings.Join(args, " "), got, err, code, out)
	}
	return string(out)
}

func (b *taskBench) calls(args ...string) (calls []api.TaskCall) {
	b.Helper()
	if err := json.Unmarshal([]byte(b.run(0, append([]string{"task", "calls", "--output", "json"}, args...)...)), &calls); err != nil {
		b.Fatal(err)
	}
	return calls
}

// state waits until the only call of a task is in a state.
func (b *taskBench) state(task, state string) {
	b.Helper()
	for deadline := time.Now().Add(patience); ; {
		calls := b.calls("--task", task)
		if len(calls) > 0 && calls[0].State == state {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("not %s: %+v", state, calls)
		}
	}
}

// TestTaskInterrupted: Ctrl-C ends the command of a task that was run by hand, and leaves a call that was given up, and nothing else.
func TestTaskInterrupted(t *testing.T) {
	b := newTaskBench(t)
	p := launch(t, b.dir, nil, "task", "run", "slow")
	p.says("begun")
	p.signal(syscall.SIGINT)
	if code := p.wait(); code != exitInterrupted {
		t.Errorf("exit code %d, and\n%s", code, p.stderr.String())
	}
	if calls := b.calls(); len(calls) != 1 || calls[0].State != api.CallDiscarded || !strings.Contains(calls[0].Reason, "interrupted by hand") {
		t.Errorf("%+v", calls)
	}
	if s := p.stderr.String(); !strings.Contains(s, "curfew: error: call 1 of slow was interrupted\ncurfew: hint: curfew task calls 1 ") {
		t.Errorf("it says\n%s", s)
	}
	// The lock is free.
	write(t, filepath.Join(b.dir, "go"), "")
	b.run(0, "task", "run", "slow")
}

// TestTaskWaits: a task that a service executes is waited for by who runs it by hand, which says so; and what failed by hand can be retried
// by the service.
func TestTaskWaits(t *testing.T) {
	b := newTaskBench(t)
	b.run(exitFailed, "task", "run", "fails")
	s := startService(t, b.dir, "serve", "--listen", "127.0.0.1:0")
	s.until("listening")
	b.run(0, "task", "defer", "slow")
	b.state("slow", api.CallRunning)
	p := launch(t, b.dir, nil, "task", "run", "slow")
	p.says("curfew: waiting: it is being done elsewhere, or its lock is taken")
	if strings.Contains(p.stderr.String(), "begun") {
		t.Error("both work at once")
	}
	write(t, filepath.Join(b.dir, "go"), "")
	if code := p.wait(); code != 0 || !strings.Contains(p.stderr.String(), "done") {
		t.Errorf("exit code %d, and\n%s", code, p.stderr.String())
	}
	b.run(0, "task", "failed", "retry", "--task", "fails", "--yes")
	b.state("fails", api.CallSucceeded)
	if _, err := os.Stat(filepath.Join(b.dir, "go")); err != nil {
		t.Error(err)
	}
	s.stop()
	if calls := b.calls("--state", "succeeded"); len(calls) != 3 {
		t.Errorf("%+v", calls)
	}
}

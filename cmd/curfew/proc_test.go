//go:build unix

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/target"
)

// The real program, killed and stopped at points that a test names. This test binary is the program (see TestMain), and
// what it does at a point is in its environment.

const (
	// atVar is what to do where: point:n:action, separated by commas. n counts how often the point was reached, "any" being
	// each of them. The actions:
	//
	//	kill   SIGKILL to itself
	//	stop   say it, and SIGSTOP to itself
	//	pause  the same as soon as the dispatcher is between two steps, so that no transaction of its own stays open
	//	say    say it, and go on
	atVar = "CURFEW_TEST_AT"
	// traceVar names a file that gets a line for each point reached.
	traceVar = "CURFEW_TEST_TRACE"

	// speedVar is how much faster the ledger's clock runs than ours.
	speedVar = "CURFEW_TEST_SPEED"

	// withinVar is how long a message may be under way before its process is taken for dead.
	withinVar = "CURFEW_TEST_WITHIN"
	// stopWithinVar is how long a service may take to stop.
	stopWithinVar = "CURFEW_TEST_STOP_WITHIN"

	marker = "curfew-test: at "
)

// stopper is the program's side.
type stopper struct {
	mu    sync.Mutex
	idle  *sync.Cond
	busy  bool              // the dispatcher reads a page or writes a step
	plan  map[string]string // by point and number
	seen  map[string]int
	trace io.Writer
}

// zeroVar is the zero of fast time: the same for all processes, also of those that are started after midnight.
const zeroVar = "CURFEW_TEST_ZERO"

// fastZero is not long ago. The first process to ask decides.
func fastZero() time.Time {
	if at, err := time.Parse(time.RFC3339, os.Getenv(zeroVar)); err == nil {
		return at
	}
	zero := time.Now().UTC().Truncate(24 * time.Hour)
	os.Setenv(zeroVar, zero.Format(time.RFC3339))
	return zero
}

// installHooks obeys the environment.
func installHooks() {
	fastZero()
	if n, err := strconv.Atoi(os.Getenv(speedVar)); err == nil {
		dispatch.HeartbeatEvery /= time.Duration(n)
		zero := fastZero()
		ledgerClock = func() time.Time { return zero.Add(time.Since(zero) * time.Duration(n)) }
	}
	if d, err := time.ParseDuration(os.Getenv(withinVar)); err == nil {
		target.TellWithin = d
	}
	if d, err := time.ParseDuration(os.Getenv(stopWithinVar)); err == nil {
		stopWithin = d
	}
	at, trace := os.Getenv(atVar), os.Getenv(traceVar)
	if at == "" && trace == "" {
		return
	}
	s := &stopper{plan: map[string]string{}, seen: map[string]int{}, trace: io.Discard}
	s.idle = sync.NewCond(&s.mu)
	for item := range strings.SplitSeq(at, ",") {
		if i := strings.LastIndex(item, ":"); i > 0 {
			s.plan[item[:i]] = item[i+1:]
		}
	}
	if trace != "" {
		f, err := os.OpenFile(trace, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			panic(err)
		}
		s.trace = f
	}
	dispatch.TestHook, target.TestHook = s.reached, s.reached
}

func (s *stopper) reached(point string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintln(s.trace, point)
	switch point {
	case "paging", "stepping":
		s.busy = true
	case "paged", "stepped":
		s.busy = false
		s.idle.Broadcast()
	}
	action := ""
	for _, name := range []string{point, "any"} {
		s.seen[name]++
		if a := s.plan[name+":"+strconv.Itoa(s.seen[name])]; a != "" {
			action = a
		}
	}
	for action == "pause" && s.busy {
		s.idle.Wait()
	}
	switch action {
	case "kill":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "stop", "pause":
		goOn := make(chan os.Signal, 1)
		signal.Notify(goOn, syscall.SIGCONT)
		fmt.Fprintln(os.Stderr, marker+point)
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
		<-goOn
		signal.Stop(goOn)
	case "say":
		fmt.Fprintln(os.Stderr, marker+point)
	}
}

// process is a curfew that was started.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr watched
	ended  chan struct{}
	code   int // once ended; -1 when a signal ended it
}

// patience is for what must happen, on a machine that is busy with other tests. Nothing waits for it to pass.
const patience = 60 * time.Second

// launch starts curfew in dir, with more in its environment.
func launch(t *testing.T, dir string, env []string, args ...string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.CommandContext(t.Context(), "curfew", args...), ended: make(chan struct{})}
	p.stderr.grown = sync.NewCond(&p.stderr.mu)
	p.cmd.Dir, p.cmd.Env = dir, append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		err := p.cmd.Wait()
		p.code = p.cmd.ProcessState.ExitCode()
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) && t.Context().Err() == nil {
			p.code = -2
		}
		p.stderr.end()
		close(p.ended)
	}()
	return p
}

// wait waits for the end and returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		p.t.Fatalf("%v does not end; it said:\n%s", p.cmd.Args, p.stderr.String())
	}
	return p.code
}

// running reports whether the process has not ended yet.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// says waits until the process has written the text to stderr.
func (p *process) says(text string) {
	p.t.Helper()
	timer := time.AfterFunc(patience, p.stderr.end)
	defer timer.Stop()
	if !p.stderr.waitFor(text) {
		_ = p.cmd.Process.Kill()
		p.t.Fatalf("%v did not say %q but:\n%s", p.cmd.Args, text, p.stderr.String())
	}
}

// stopped waits until the process has stopped itself at the point.
func (p *process) stopped(point string) {
	p.t.Helper()
	p.says(marker + point)
	for {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err == nil && status.Stopped() {
			return
		} else if !errors.Is(err, syscall.EINTR) {
			p.t.Fatalf("%v did not stop at %s (%v, %v)", p.cmd.Args, point, status, err)
		}
	}
}

func (p *process) signal(sig syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.t.Fatal(err)
	}
}

// watched is a buffer that somebody waits on.
type watched struct {
	mu    sync.Mutex
	grown *sync.Cond
	text  bytes.Buffer
	over  bool
}

func (w *watched) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer w.grown.Broadcast()
	return w.text.Write(b)
}

func (w *watched) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.grown.Broadcast()
}

func (w *watched) waitFor(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !strings.Contains(w.text.String(), text) {
		if w.over {
			return false
		}
		w.grown.Wait()
	}
	return true
}

func (w *watched) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

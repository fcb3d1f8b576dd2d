package ledger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// These tests run this test binary again as real processes, which share one
// ledger and are killed.

const (
	childVar = "CURFEW_LEDGER_CHILD" // what the process shall do
	urlVar   = "CURFEW_LEDGER_URL"
	runVar   = "CURFEW_LEDGER_RUN"
)

func child(job string) int {
	ctx := context.Background()
	l, err := Open(ctx, Options{URL: os.Getenv(urlVar), Actor: fmt.Sprintf("pid %d", os.Getpid())})
	if err == nil {
		run := os.Getenv(runVar)
		switch job {
		case "open":
		case "page":
			err = page(ctx, l, run)
		case "work":
			err = work(ctx, l, run)
		default:
			err = errors.New("unknown job " + job)
		}
		err = errors.Join(err, l.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func childCommand(t testing.TB, job, url, run string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^$")
	cmd.Env = append(os.Environ(), childVar+"="+job, urlVar+"="+url, runVar+"="+run)
	cmd.Stderr = os.Stderr
	return cmd
}

const pages = 60

// page admits batches 1 to pages, each under the key of its number, against
// whoever else does the same.
func page(ctx context.Context, l *Ledger, run string) error {
	won := 0
	for {
		r, err := l.Get(ctx, run)
		if err != nil || r.PagedOut {
			fmt.Println(won)
			return err
		}
		n := int(r.BatchesTotal) + 1
		_, err = l.Admit(ctx, run, Admission{OldCursor: r.Cursor, NewCursor: fmt.Appendf(nil, "cursor %d", n), PagedOut: n == pages,
			Batches: []NewBatch{batch(run, n, 1)}})
		if err == nil {
			won++
		} else if !errors.Is(err, ErrCursorMoved) {
			return err
		}
	}
}

// TestProcessesShareARun: two processes page one run. No batch is lost, none is
// there twice, and both got some.
func TestProcessesShareARun(t *testing.T) {
	onBothURLs(t, func(t *testing.T, url string) {
		l := open(t, Options{URL: url})
		r := started(t, l, "p")
		var outs [2]strings.Builder
		var cmds [2]*exec.Cmd
		for i := range cmds {
			cmds[i] = childCommand(t, "page", url, r.ID)
			cmds[i].Stdout = &outs[i]
			if err := cmds[i].Start(); err != nil {
				t.Fatal(err)
			}
		}
		sum := 0
		for i, cmd := range cmds {
			if err := cmd.Wait(); err != nil {
				t.Fatalf("process %d: %v", i, err)
			}
			var won int
			if _, err := fmt.Sscan(outs[i].String(), &won); err != nil {
				t.Fatal(err)
			}
			sum += won
		}
		got := checkRun(t, l, r.ID)
		if got.BatchesTotal != pages || sum != pages {
			t.Errorf("%d batches, the processes say they admitted %d; want %d", got.BatchesTotal, sum, pages)
		}
		batches, err := l.Batches(t.Context(), r.ID, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range batches {
			if b.Key != key(r.ID, i+1) {
				t.Errorf("batch %d has another's key", i+1)
			}
		}
	})
}

// TestProcessesMakeOneLedger: processes that start at once on a file that is not
// there yet all find a ledger.
func TestProcessesMakeOneLedger(t *testing.T) {
	path := t.TempDir() + "/new.db"
	var cmds []*exec.Cmd
	for range 6 {
		cmd := childCommand(t, "open", "sqlite:"+path, "")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		cmds = append(cmds, cmd)
	}
	for _, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
	l := open(t, Options{URL: "sqlite:" + path})
	if n := count(t, l, ActionLedgerCreated); n != 1 {
		t.Errorf("the ledger was created %d times", n)
	}
}

// workUntil is the last batch of the scan in work. Of its batches, every third
// defers two of its ten rows, and every fifth has a blocked one.
const workUntil = 120

func outcomeOf(run string, b Batch) Settlement {
	n := int(b.Seq)
	rows := b.Planned
	var s Settlement
	if b.Phase == "trigger" && n%3 == 0 {
		rows -= 2
		s.Deferred, s.DeferredKeys = 2, []byte("two rows")
	}
	o := Outcomes{"deleted": rows}
	if n%5 == 0 {
		o = Outcomes{"deleted": rows - 1, "blocked": 1}
		s.Blocked = []BlockedRow{{Hash: [16]byte{byte(n), byte(n >> 8)}, Outcome: "blocked", Reason: "fine_fk"}}
	}
	s.Batch, s.Planned, s.Outcomes, s.Cascaded, s.Root = b.Key, rows, o, int64(n%2), b.Key[:4]
	return s
}

// work drives a run to its end from wherever it is, one step after the other, and
// says so after each. Nothing but the ledger tells it where it is: going on after
// a crash is what it always does.
func work(ctx context.Context, l *Ledger, run string) error {
	for {
		r, err := l.Get(ctx, run)
		if err != nil {
			return err
		}
		if r.State.Ended() {
			return nil
		}
		open, err := l.Unsettled(ctx, run)
		if err != nil {
			return err
		}
		var req StepRequest
		for _, b := range open {
			if len(b.Keys) == 0 {
				return fmt.Errorf("batch %d is open and its keys are gone", b.Seq)
			}
			req.Settle = append(req.Settle, outcomeOf(run, b))
		}
		if !r.PagedOut {
			a := &Admission{OldCursor: r.Cursor, PageRows: 10}
			for range 2 {
				a.Batches = append(a.Batches, batch(run, int(r.BatchesTotal)+len(a.Batches)+1, 10))
			}
			last := int(r.BatchesTotal) + len(a.Batches)
			a.NewCursor, a.PagedOut = fmt.Appendf(nil, "cursor %d", last), last >= workUntil
			req.Admit = a
		} else if len(open) == 0 {
			deferred, err := l.Deferred(ctx, run)
			if err != nil {
				return err
			}
			if len(deferred) == 0 {
				_, err := l.End(ctx, run, Succeeded, WhyDone, "")
				return err
			}
			d := deferred[0]
			b := batch(run, int(r.BatchesTotal)+1, d.Rows)
			b.Phase = "retry"
			req.Admit = &Admission{OldCursor: r.Cursor, NewCursor: r.Cursor, Batches: []NewBatch{b}, FromDeferred: []BatchKey{d.From}}
		}
		if _, err := l.Step(ctx, run, req); err != nil {
			return err
		}
		fmt.Println("step")
	}
}

// TestKill kills a process that works on a run, thirty times at any moment, and
// looks at the whole ledger after each. The last one may finish.
func TestKill(t *testing.T) {
	if testing.Short() {
		t.Skip("starts dozens of processes")
	}
	onBothURLs(t, func(t *testing.T, url string) {
		l := open(t, Options{URL: url})
		r := started(t, l, "p")
		kills := 0
		for kills < 30 {
			cmd := childCommand(t, "work", url, r.ID)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			alive := true
			for range 1 + rand.IntN(3) {
				alive = alive && lines.Scan()
			}
			for range rand.IntN(2_000_000) { // somewhere within the next step
			}
			if err := cmd.Process.Kill(); err != nil && alive {
				t.Fatal(err)
			}
			cmd.Wait()
			if checkRun(t, l, r.ID).State.Ended() {
				break
			}
			kills++
		}
		last := childCommand(t, "work", url, r.ID)
		if err := last.Run(); err != nil {
			t.Fatal(err)
		}
		got := checkRun(t, l, r.ID)
		// 120 batches of ten rows: all are accounted for, deferred or not.
		if got.State != Succeeded || got.Planned != 10*workUntil || got.BatchesTotal != workUntil+workUntil/3 {
			t.Errorf("%s %q: %d planned in %d batches", got.State, got.Detail, got.Planned, got.BatchesTotal)
		}
		blocked, err := l.CountBlocked(t.Context(), "p", "")
		if err != nil || blocked != got.Outcomes["blocked"] || int(blocked) != count(t, l, ActionRowBlocked) {
			t.Errorf("%d blocked rows, %d in the outcomes, %d audited (%v)", blocked, got.Outcomes["blocked"], count(t, l, ActionRowBlocked), err)
		}
		for action, want := range map[string]int{ActionRunAccepted: 1, ActionRunStarted: 1, ActionRunEnded: 1} {
			if n := count(t, l, action); n != want {
				t.Errorf("%d %s entries, want %d", n, action, want)
			}
		}
		if kills < 10 {
			t.Errorf("only %d processes were killed before the run was over", kills)
		}
		t.Logf("%d processes killed", kills)
	})
}

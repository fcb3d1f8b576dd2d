package curfew

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"curfew.dev/curfew/internal/deliver"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/riverq"
	"curfew.dev/curfew/policy"
	"curfew.dev/curfew/task"
)

// lockWait is how long a call whose lock somebody has is put off. The attempt does not count.
const lockWait = time.Second

// An executing does calls of tasks: the service does, and "curfew task run".
type executing struct {
	c      *Curfew
	l      *ledger.Ledger
	queue  func() *riverq.Client
	owner  string
	stdout io.Writer                                                           // of commands, beside what is kept of it; nil: nowhere
	begun  func(task, run string, cancel context.CancelCauseFunc) (end func()) // of periodic calls; nil: nobody asks
}

// do executes one attempt of a call.
func (x *executing) do(ctx context.Context, a riverq.Attempt) (json.RawMessage, error) {
	d := x.c.tasks[a.Task]
	if d == nil {
		return nil, riverq.ErrElsewhere
	}
	free, unlock, err := x.lock(ctx, d, a)
	if err != nil {
		return nil, err
	}
	if !free {
		return nil, &riverq.LaterError{After: lockWait}
	}
	defer unlock()
	if a.Run == "" {
		out, err := d.do(ctx, x.c, a, x.stdout)
		return out, x.outcome(ctx, a, err)
	}
	run, err := x.l.BeginCall(ctx, a.Run, x.owns(a))
	if errors.Is(err, ledger.ErrRunEnded) || errors.Is(err, ledger.ErrNotFound) {
		return nil, x.ended(ctx, a)
	}
	if err != nil {
		return nil, err
	}
	x.c.event(ctx, "run_started", run)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if x.begun != nil {
		defer x.begun(a.Task, a.Run, cancel)()
	}
	out, err := d.do(ctx, x.c, a, x.stdout)
	return out, x.settle(ctx, a, err)
}

// owns names an attempt, so that one that was taken for dead is told from its successor, in this process too.
func (x *executing) owns(a riverq.Attempt) string {
	return fmt.Sprintf("%s/%d.%d", x.owner, a.ID, a.Attempt)
}

// lock takes what the call needs, all or nothing.
func (x *executing) lock(ctx context.Context, d *definition, a riverq.Attempt) (bool, func(), error) {
	h := ledger.Holder{Run: x.owner, Job: a.ID, Attempt: a.Attempt}
	var taken []slot
	unlock := func() {
		for _, s := range taken {
			// Whoever wants it next finds out that the attempt has ended; this only makes that sooner.
			if err := x.l.Unlock(context.WithoutCancel(ctx), s.name, h); err != nil {
				x.c.log.WarnContext(ctx, "lock_kept", "lock", s.name, "task", d.name, "err", err)
			}
		}
	}
	for _, s := range d.locks() {
		free, err := x.l.Lock(ctx, s.name, s.n, h, x.live)
		if err != nil || !free {
			unlock()
			return false, nil, err
		}
		taken = append(taken, s)
	}
	return true, unlock, nil
}

// live says which attempts are still executing.
func (x *executing) live(ctx context.Context, tx *sql.Tx, jobs []ledger.Holder) ([]bool, error) {
	return liveAttempts(ctx, x.queue(), tx, jobs)
}

// liveAttempts says of attempts whether they execute, and of runs whether a batch of theirs does: one that was cancelled, or whose
// process gave it up, may have a batch in hand.
func liveAttempts(ctx context.Context, q *riverq.Client, tx *sql.Tx, asked []ledger.Holder) ([]bool, error) {
	var attempts []riverq.JobAttempt
	out := make([]bool, len(asked))
	for i, h := range asked {
		if h.Job != 0 {
			attempts = append(attempts, riverq.JobAttempt{ID: h.Job, Attempt: h.Attempt, By: h.Run})
			continue
		}
		var err error
		if out[i], err = q.ExecutesTx(ctx, tx, h.Run); err != nil {
			return nil, err
		}
	}
	running, err := q.RunningTx(ctx, tx, attempts)
	if err != nil {
		return nil, err
	}
	for i, h := range asked {
		if h.Job != 0 {
			out[i], running = running[0], running[1:]
		}
	}
	return out, nil
}

// ended is how a call ends whose run has ended without it.
func (x *executing) ended(ctx context.Context, a riverq.Attempt) error {
	run, err := x.l.Get(ctx, a.Run)
	if err != nil {
		return &riverq.FinalError{Err: fmt.Errorf("its run cannot be read: %w", err)}
	}
	switch run.State {
	case ledger.Succeeded:
		return nil // the process that did it died before it could say so
	case ledger.Failed:
		return &riverq.FinalError{Err: errors.New(cmp.Or(run.Detail, run.WhyEnded))}
	}
	return &riverq.DroppedError{Reason: fmt.Sprintf("its run was %s: %s", run.State, why(run))}
}

// settle ends the run of a periodic call, or says when it is tried again. A crash after it leaves an ended run, and the next
// attempt finds that.
func (x *executing) settle(ctx context.Context, a riverq.Attempt, err error) error {
	after := context.WithoutCancel(ctx)
	if err == nil {
		run, eerr := x.l.EndCall(after, a.Run, x.owns(a), ledger.Succeeded, ledger.WhyDone, "")
		if eerr == nil && run.State == ledger.Succeeded {
			x.c.event(ctx, "run_ended", run)
		}
		return eerr
	}
	if stop := (*cancelledError)(nil); errors.As(context.Cause(ctx), &stop) {
		return &riverq.DroppedError{Reason: stop.Error()}
	}
	if errors.Is(ctx.Err(), context.Canceled) { // the service stops: the attempt does not count
		if rerr := x.l.RestCall(after, a.Run, x.owns(a), fmt.Sprintf("interrupted in attempt %d of %d", a.Attempt, a.Attempts)); rerr != nil {
			x.c.log.WarnContext(ctx, "run_not_released", "run", a.Run, "err", rerr)
		}
		return err
	}
	detail := fmt.Sprintf("attempt %d of %d: %s", a.Attempt, a.Attempts, err)
	if a.Last || final(err) {
		run, eerr := x.l.EndCall(after, a.Run, x.owns(a), ledger.Failed, "task_failed", detail)
		if eerr != nil {
			return eerr
		}
		x.c.event(ctx, "run_failed", run)
		return &riverq.FinalError{Err: err}
	}
	if rerr := x.l.RestCall(after, a.Run, x.owns(a), detail); rerr != nil {
		return rerr
	}
	return retried(err)
}

// cancelledError is the cause of a call's end whose run somebody ended.
type cancelledError struct{ why string }

func (e *cancelledError) Error() string { return "its run was ended: " + e.why }

// outcome is what a call that is not periodic comes to. One that failed for good is told.
func (x *executing) outcome(ctx context.Context, a riverq.Attempt, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return err
	case !a.Last && !final(err):
		x.c.log.WarnContext(ctx, "call_retried", "task", a.Task, "call", a.ID, "attempt", a.Attempt, "of", a.Attempts, "err", err)
		return retried(err)
	}
	x.c.log.ErrorContext(ctx, "call_failed", "task", a.Task, "call", a.ID, "attempt", a.Attempt, "err", err)
	return errors.Join(x.c.noteFailed(context.WithoutCancel(ctx), x.l, a, err), &riverq.FinalError{Err: err})
}

// noteFailed writes down that a call failed for good, for whoever is told of it.
func (c *Curfew) noteFailed(ctx context.Context, l *ledger.Ledger, a riverq.Attempt, cause error) error {
	body := struct {
		Task     string `json:"task"`
		Call     int64  `json:"call"`
		Attempts int    `json:"attempts"`
		Error    string `json:"error"`
	}{a.Task, a.ID, a.Attempt, cause.Error()}
	return l.Note(ctx, "call_failed", a.Task, body, func(context.Context, *sql.Tx) error { return nil })
}

func final(err error) bool { return task.IsFinal(err) }

// retried is an error after which the call is tried again, not before the receiver said.
func retried(err error) error {
	if after, told := task.After(err); told {
		return &riverq.PutOffError{After: after, Err: err}
	}
	return err
}

// do does the task's work once.
func (d *definition) do(ctx context.Context, c *Curfew, a riverq.Attempt, stdout io.Writer) (json.RawMessage, error) {
	info := task.Info{Task: a.Task, ID: a.ID, Scheduled: a.Scheduled, Attempt: a.Attempt, Attempts: a.Attempts, Run: a.Run}
	switch {
	case d.fn != nil:
		return d.fn.Do(ctx, info, a.Args)
	case d.spec.HTTP != nil:
		return nil, d.request(ctx, c, info, a.Args)
	}
	cmd, err := d.command(c)
	if err != nil {
		return nil, task.Fail(err)
	}
	tail, err := cmd.Run(ctx, info, a.Args, a.Argv, stdout)
	if tail == "" {
		return nil, err
	}
	out, merr := json.Marshal(tail)
	return out, errors.Join(err, merr)
}

// command is the task's command with its secrets in place.
func (d *definition) command(c *Curfew) (task.Command, error) {
	s := d.spec
	cmd := task.Command{Argv: s.Command, Dir: c.file.TaskDir(s), KillAfter: s.KillAfter, RetryCodes: s.ExitCodes.Retry, FailCodes: s.ExitCodes.Fail}
	for _, name := range sortedKeys(s.Env) {
		value, err := c.file.Expand(s.Env[name])
		if err != nil {
			return cmd, fmt.Errorf("task %s: %s: %w", d.name, name, err)
		}
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	return cmd, nil
}

// request asks another system to do the task's work: always under the call's own key, so that it can tell a retry.
func (d *definition) request(ctx context.Context, c *Curfew, info task.Info, args json.RawMessage) error {
	h := d.spec.HTTP
	r := deliver.Request{Method: cmp.Or(h.Method, "POST"), Timeout: d.o.Timeout, IdempotencyKey: callKey(info), Headers: map[string]string{}}
	var err error
	if r.URL, err = c.file.Expand(h.URL); err != nil {
		return task.Fail(fmt.Errorf("the url: %w", err))
	}
	if h.Token != "" {
		if r.Token, err = c.file.Expand(h.Token); err != nil {
			return task.Fail(fmt.Errorf("the token: %w", err))
		}
	}
	for _, name := range sortedKeys(h.Headers) {
		if r.Headers[name], err = c.file.Expand(h.Headers[name]); err != nil {
			return task.Fail(fmt.Errorf("header %s: %w", name, err))
		}
	}
	if r.Body = []byte(h.Body); h.Body == "" && r.Method != "GET" {
		if r.Body, err = info.Input(args); err != nil {
			return task.Fail(err)
		}
	}
	err = c.caller().Send(ctx, r)
	f := (*deliver.Failure)(nil)
	if !errors.As(err, &f) {
		return err
	}
	switch {
	case f.Kind == deliver.Refused:
		return task.Fail(err)
	case f.After > 0:
		return task.RetryAfter(f.After, err)
	}
	return err
}

// callKey is the idempotency key of a call, the same in every attempt.
func callKey(info task.Info) string {
	if info.Run != "" {
		return info.Run
	}
	return info.Task + "-" + strconv.FormatInt(info.ID, 10)
}

// takeLock takes the lock that the run's policy shares with others, if it does. It is free again when the run has ended, or has no
// process, and no batch of it executes.
func (c *Curfew) takeLock(ctx context.Context, l *ledger.Ledger, q *riverq.Client, run ledger.Run, p *policy.Policy) (bool, error) {
	if p.Lock == "" {
		return true, nil
	}
	return l.Lock(ctx, "lock "+p.Lock, 1, ledger.Holder{Run: run.ID}, func(ctx context.Context, tx *sql.Tx, asked []ledger.Holder) ([]bool, error) {
		return liveAttempts(ctx, q, tx, asked)
	})
}

// awaitLock waits in the foreground for the lock of a run that this process owns. It returns the run as it is then, which may be
// over: somebody else helped it along, or ended it.
func (c *Curfew) awaitLock(ctx context.Context, l *ledger.Ledger, run ledger.Run, p *policy.Policy, req RunRequest) (ledger.Run, error) {
	if p.Lock == "" {
		return run, nil
	}
	q, err := c.inserter(ctx)
	if err != nil {
		return run, err
	}
	for told := false; ; told = true {
		free, err := c.takeLock(ctx, l, q, run, p)
		if err != nil {
			return run, ledgerError(err)
		}
		if free {
			return run, nil
		}
		if !told {
			c.log.InfoContext(ctx, "admission_wait", "run", run.ID, "policy", run.Policy, "reason", "lock", "lock", p.Lock)
			if req.Waiting != nil {
				req.Waiting(p.Lock)
			}
		}
		select {
		case <-ctx.Done():
			return run, ctx.Err()
		case <-req.Stop:
			return run, context.Canceled
		case <-time.After(lockWait):
		}
		if run, err = l.Get(ctx, run.ID); err != nil || over(run) {
			return run, ledgerError(err)
		}
	}
}

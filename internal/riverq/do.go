package riverq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/riverqueue/river"
)

// Attempt is one attempt at a call.
type Attempt struct {
	Call
	ID      int64
	Attempt int  // from 1
	Last    bool // no further one is allowed
	Created time.Time
}

// FinalError is what Do returns when no further attempt could help: the call has
// failed for good, whatever attempts are left.
type FinalError struct{ Err error }

func (e *FinalError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *FinalError) Unwrap() error { return e.Err }

// DroppedError is what Do returns for a call that is not to be done any more: it is
// discarded, for the reason.
type DroppedError struct{ Reason string }

func (e *DroppedError) Error() string { return e.Reason }

// longestError is what is kept of an error's text, and longestOutput of an output.
const (
	longestError  = 8 << 10
	longestOutput = 1 << 20
)

type callWorker struct {
	river.WorkerDefaults[callArgs]
	c    *Client
	task string
}

func (w *callWorker) Timeout(job *river.Job[callArgs]) time.Duration {
	return positive(job.Args.Timeout, w.c.o.JobTimeout)
}

func (w *callWorker) NextRetry(job *river.Job[callArgs]) time.Time {
	return w.c.again(job.ID, wait(job.Args.Backoff, max(1, job.Args.Factor), job.Attempt))
}

func (w *callWorker) Work(ctx context.Context, job *river.Job[callArgs]) error {
	me := hold{job.ID, job.Attempt}
	hand := w.c.pulse.take(job.Queue, me, w.Timeout(job)+w.c.margin)
	defer hand.release()
	call, err := job.Args.call(w.task)
	if err != nil {
		return gone(err.Error())
	}
	call.Queue, call.Priority, call.Attempts = w.c.queueOf(job.Queue), job.Priority, job.MaxAttempts
	if job.ScheduledAt.After(job.CreatedAt) && job.Attempt == 1 {
		call.At = job.ScheduledAt
	}
	a := Attempt{Call: call, ID: job.ID, Attempt: job.Attempt, Last: job.Attempt >= job.MaxAttempts, Created: job.CreatedAt}
	var output json.RawMessage
	err = w.c.attempt(ctx, func() (err error) {
		output, err = w.c.o.Do(ctx, a)
		return err
	})
	if hand.doubtful() && w.c.overtaken(ctx, me) {
		return w.c.drop(ctx, a)
	}
	w.c.keep(ctx, a, output) // of one that failed too: it may say why
	if err == nil {
		if w.c.o.Clock != nil {
			return w.c.complete(ctx, job)
		}
		return nil
	}
	if dropped := (*DroppedError)(nil); errors.As(err, &dropped) {
		return w.c.discard(ctx, a, dropped.Reason)
	}
	return w.c.report(ctx, a, err)
}

// report says to River what becomes of a call whose attempt did not succeed.
func (c *Client) report(ctx context.Context, a Attempt, err error) error {
	if errors.Is(err, ErrElsewhere) {
		return river.JobSnooze(elsewhereWait) // which gives the attempt back
	}
	if later := (*LaterError)(nil); errors.As(err, &later) {
		return river.JobSnooze(min(max(later.After, elsewhereWait), longestLater))
	}
	if !errors.Is(err, errAttempt) {
		return err // stopped
	}
	cause := errors.Unwrap(err)
	text := readable(cause.Error())
	if final := (*FinalError)(nil); errors.As(err, &final) {
		return gone(text)
	}
	if put := (*PutOffError)(nil); errors.As(err, &put) && !a.Last {
		c.told.Store(a.ID, put.After)
	}
	return errors.New(text)
}

// gone is an error upon which River ends a job, and of which it keeps the text.
func gone(text string) error { return &goneError{text, river.JobCancel(errors.New(text))} }

type goneError struct {
	text  string
	river error
}

func (e *goneError) Error() string { return e.text }
func (e *goneError) Unwrap() error { return e.river }

// readable makes an error's text one that the database can keep.
func readable(text string) string {
	text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
	if len(text) > longestError {
		text = strings.ToValidUTF8(text[:longestError], "") + "…"
	}
	if text == "" {
		text = "an error without a text"
	}
	return text
}

// keep has the output of a call kept with it. What cannot be kept is left out: the
// call is done.
func (c *Client) keep(ctx context.Context, a Attempt, output json.RawMessage) {
	if len(output) == 0 {
		return
	}
	err := checkJSON(output)
	if err == nil && len(output) > longestOutput {
		err = fmt.Errorf("%d bytes; at most %d are kept", len(output), longestOutput)
	}
	if err == nil {
		err = river.RecordOutput(ctx, output)
	}
	if err != nil {
		c.log.WarnContext(ctx, "queue_output_left_out", "task", a.Task, "call", a.ID, "err", err)
	}
}

// An attempt that hung, or whose process did, may have been taken for dead: its job
// was given to another attempt, and River would write this one's result into it. So
// an attempt with reason to doubt asks whether it still has its job.
var holdsStill = text{
	`SELECT count(*) FROM %river_job WHERE id = $1 AND state = 'running' AND attempt = $2 AND attempted_by[cardinality(attempted_by)] = $3`,
	`SELECT count(*) FROM %river_job WHERE id = $1 AND state = 'running' AND attempt = $2 AND json_extract(attempted_by, '$[#-1]') = $3`,
}

// overtaken reports whether another attempt has the job. While that cannot be found
// out, it has not.
func (c *Client) overtaken(ctx context.Context, me hold) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), beatPatience)
	defer cancel()
	var n int
	err := c.o.DB.QueryRowContext(ctx, c.text(holdsStill), me.job, me.attempt, c.id).Scan(&n)
	return err == nil && n == 0
}

// drop keeps River from writing down what became of an attempt. There is no way to
// ask it to; but what it cannot encode it does not write.
func (c *Client) drop(ctx context.Context, a Attempt) error {
	c.log.WarnContext(ctx, "queue_attempt_overtaken", "task", a.Task, "call", a.ID, "attempt", a.Attempt)
	if err := river.MetadataSet(ctx, "overtaken", unwritable{}); err != nil {
		return err
	}
	return nil
}

type unwritable struct{}

var errOvertaken = errors.New("another attempt has the job: the result of this one is dropped")

func (unwritable) MarshalJSON() ([]byte, error) { return nil, errOvertaken }

package riverq

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
)

// endless is River's own limit of attempts, a smallint's. River discards a job
// at its limit without a word to anybody, also when it was the process that died
// and not the batch that failed. So the limit that counts is ours, and the
// attempts above it are there to report.
const endless = 32_000

const (
	longestWait = 24 * time.Hour
	reportWait  = time.Minute // between attempts that only report, at least
	// elsewhereWait leaves a batch, or a call, to the other processes for so long.
	elsewhereWait = 200 * time.Millisecond
	// longestLater is how long a batch rests at most before it is looked at
	// again: clocks are set.
	longestLater = time.Minute
)

// errAttempt is all that River's table learns of a failure: an error of a
// database may quote a row.
var errAttempt = errors.New("the attempt failed; the log of the process says why")

// A PutOffError is what Execute and Do return for what is to come back no sooner than After from now: whoever it depends on has
// said so. The attempt counts.
type PutOffError struct {
	After time.Duration
	Err   error
}

func (e *PutOffError) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *PutOffError) Unwrap() error { return e.Err }

// batchArgs is what a job holds. The tagged fields name the batch.
type batchArgs struct {
	Run      string        `json:"run" river:"unique"`
	Seq      int64         `json:"seq" river:"unique"`
	Attempts int           `json:"attempts"`
	Backoff  time.Duration `json:"backoff_ns"`
	Factor   int           `json:"factor"`
}

func (batchArgs) Kind() string { return "curfew_batch" }

// InsertOpts makes a batch unique while a job of it is alive, and only then: one
// that River has finished with can be inserted anew.
func (batchArgs) InsertOpts() river.InsertOpts {
	return river.InsertOpts{MaxAttempts: endless, UniqueOpts: river.UniqueOpts{ByArgs: true, ByState: []rivertype.JobState{
		rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable,
		rivertype.JobStateRunning, rivertype.JobStateScheduled,
	}}}
}

// wait is how long a batch rests after an attempt that failed.
func (a *batchArgs) wait(attempt int) time.Duration {
	if attempt >= a.Attempts {
		return min(max(a.Backoff, reportWait), longestWait)
	}
	return wait(a.Backoff, a.Factor, attempt)
}

// wait is backoff * factor^(attempt-1), at most a day.
func wait(backoff time.Duration, factor, attempt int) time.Duration {
	for range attempt - 1 {
		if backoff == 0 || factor == 1 {
			break
		}
		if backoff > longestWait/time.Duration(factor) {
			return longestWait
		}
		backoff *= time.Duration(factor)
	}
	return min(backoff, longestWait)
}

type batchWorker struct {
	river.WorkerDefaults[batchArgs]
	c *Client
}

func (w *batchWorker) NextRetry(job *river.Job[batchArgs]) time.Time {
	return w.c.again(job.ID, job.Args.wait(job.Attempt))
}

// again is when a job that failed comes back: after its wait, or after what it was
// told when that is longer.
func (c *Client) again(job int64, wait time.Duration) time.Time {
	if told, ok := c.told.LoadAndDelete(job); ok {
		wait = max(wait, min(told.(time.Duration), longestWait))
	}
	return c.now().Add(wait)
}

func (w *batchWorker) Work(ctx context.Context, job *river.Job[batchArgs]) error {
	a := &job.Args
	b := Batch{Run: a.Run, Seq: a.Seq, Attempts: a.Attempts, Backoff: a.Backoff, Factor: a.Factor, Queue: job.Queue}
	defer w.c.pulse.take(job.Queue, hold{job.ID, job.Attempt}, w.c.o.JobTimeout+w.c.margin).release()
	err := w.c.attempt(ctx, func() error { return w.c.o.Execute(ctx, b, job.Attempt, job.Attempt >= a.Attempts) })
	if errors.Is(err, ErrElsewhere) {
		return river.JobSnooze(elsewhereWait) // which gives the attempt back
	}
	if later := (*LaterError)(nil); errors.As(err, &later) {
		return river.JobSnooze(min(max(later.After, elsewhereWait), longestLater))
	}
	if put := (*PutOffError)(nil); errors.As(err, &put) {
		w.c.told.Store(job.ID, put.After)
	}
	if errors.Is(err, errAttempt) {
		w.c.log.WarnContext(ctx, "queue_attempt_failed", "run", a.Run, "batch", a.Seq, "attempt", job.Attempt, "of", a.Attempts,
			"again_in", a.wait(job.Attempt), "err", errors.Unwrap(err))
		return errAttempt
	}
	return err
}

// attempt runs work and says to River what became of it: nil, errAttempt with
// the cause inside, or context.Canceled, upon which River gives the attempt back
// when it was itself that cancelled.
func (c *Client) attempt(ctx context.Context, work func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &failure{fmt.Errorf("panic: %v\n%s", p, debug.Stack())}
		}
	}()
	switch err := work(); {
	case err == nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return context.Canceled // whatever the driver made of it
	default:
		return &failure{err}
	}
}

// failure is errAttempt with its cause, which goes no further than our log.
type failure struct{ cause error }

func (f *failure) Error() string        { return errAttempt.Error() }
func (f *failure) Unwrap() error        { return f.cause }
func (f *failure) Is(target error) bool { return target == errAttempt }

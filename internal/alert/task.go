package alert

import (
	"context"
	"fmt"
	"strings"
	"time"

	"curfew.dev/curfew/internal/ledger"
)

// called is what a run is of, in words: "circulation/warn", or "task mail.send".
func called(run ledger.Run) string {
	if run.Mode == ledger.ModeTask {
		return "task " + run.Policy
	}
	return name(run.Policy, run.Stage)
}

// subject is the same of what an entry about no run, or an occurrence, is about, with the mode of a task.
func (r *reading) subject(ctx context.Context, policy, stage string) (words, mode string, err error) {
	is, known := r.tasks[policy]
	if !known {
		if is, err = r.a.l.IsTask(ctx, policy); err != nil {
			return "", "", err
		}
		if r.tasks == nil {
			r.tasks = map[string]bool{}
		}
		r.tasks[policy] = is
	}
	if is {
		return "task " + policy, ledger.ModeTask, nil
	}
	return name(policy, stage), "", nil
}

// failures are the calls of one task that failed for good within one hour: a receiver that is down for a night is not told of
// ten thousand times.
type failures struct {
	task     string
	hour     time.Time
	d        data
	call     int64 // the last one
	attempts int64
}

// callFailed collects a call without a run that failed for good. Those with a run are told by its end.
func (r *reading) callFailed(e ledger.Entry) error {
	b, err := body[struct {
		Task           string
		Call, Attempts int64
		Error          string
	}](e)
	if err != nil {
		return err
	}
	if b.Task == "" {
		b.Task = e.Policy
	}
	hour := e.At.UTC().Truncate(time.Hour)
	var f *failures
	for _, had := range r.failed {
		if had.task == b.Task && had.hour.Equal(hour) {
			f = had
		}
	}
	if f == nil {
		f = &failures{task: b.Task, hour: hour, d: data{Policy: b.Task, Mode: ledger.ModeTask, First: when(e.At)}}
		r.failed = append(r.failed, f)
	}
	f.d.Count++
	f.d.Last, f.d.Detail, f.call, f.attempts = when(e.At), b.Error, b.Call, b.Attempts
	return nil
}

// tellFailed makes one alert of each task and hour. What fails later in the hour is in the list that it points to.
func (r *reading) tellFailed() error {
	for _, f := range r.failed {
		calls := fmt.Sprintf("call %d", f.call)
		if f.d.Count > 1 {
			calls = fmt.Sprintf("%d calls, the last of them %d,", f.d.Count, f.call)
		}
		tries := "1 attempt"
		if f.attempts != 1 {
			tries = fmt.Sprintf("%d attempts", f.attempts)
		}
		first, _, _ := strings.Cut(f.d.Detail, "\n") // a panic has lines
		f.d.Message = fmt.Sprintf("task %s: %s failed for good after %s: %s. `curfew task failed --task %[1]s` lists them", f.task, calls, tries, first)
		if err := r.add(f.d, TaskFailed, join(f.task, shown(f.hour)), *f.d.Last); err != nil {
			return err
		}
	}
	return nil
}

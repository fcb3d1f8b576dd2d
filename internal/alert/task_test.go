package alert

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/internal/ledger"
)

// hourlyTask is the schedule of a task.
func hourlyTask(name string) ledger.Scheduled {
	text := fmt.Appendf(nil, `{"name":%q}`, name)
	return ledger.Scheduled{Policy: name, Mode: ledger.ModeTask, Expr: "0 * * * *;UTC", StartWithin: 10 * time.Minute, CatchUp: "none",
		Between: func(after, until time.Time, limit int) (all []time.Time) {
			for at := after.Truncate(time.Hour).Add(time.Hour); !at.After(until) && len(all) < limit; at = at.Add(time.Hour) {
				all = append(all, at)
			}
			return all
		},
		RevisionID: ledger.RevisionID(text), Revision: text, Cutoff: func(t time.Time) time.Time { return t }}
}

// TestTaskWords: what is told of a task's schedule and runs says that it is a task, and what of a policy does not.
func TestTaskWords(t *testing.T) {
	b := onlySQLite(t)
	a := b.loop()
	b.pass(a)
	s := hourlyTask("mail")
	tick := func() ledger.Ticked {
		t.Helper()
		got, err := b.l.Tick(b.Context(), s)
		if err != nil {
			b.Fatal(err)
		}
		return got
	}
	tick()
	next := func(past time.Duration) {
		at := b.clock()
		b.later(at.Truncate(time.Hour).Add(time.Hour + past).Sub(at))
	}
	next(time.Minute)
	failed := tick().Accepted[0]
	if _, err := b.l.BeginCall(b.Context(), failed.ID, "me"); err != nil {
		b.Fatal(err)
	}
	if _, err := b.l.EndCall(b.Context(), failed.ID, "", ledger.Failed, "task_failed", "attempt 5 of 5: no"); err != nil {
		b.Fatal(err)
	}
	next(time.Minute)
	tick()
	b.later(20 * time.Minute)
	tick() // expired
	next(2*time.Hour + 30*time.Minute)
	tick() // missed
	next(3 * time.Minute)
	s.StartWithin = 10 * time.Hour // a run waits, and the three after it are skipped
	tick()
	for range 3 {
		next(time.Minute)
		tick()
	}
	b.later(time.Hour) // a run of a task without batches is no run without progress
	b.end(b.accept("p", "enforce", "schedule", "1d"), ledger.Failed, ledger.WhyError, "")
	if err := b.l.Pause(b.Context(), "mail", "ann", ""); err != nil {
		b.Fatal(err)
	}
	if err := b.l.Unschedule(b.Context(), "mail", ""); err != nil {
		b.Fatal(err)
	}
	b.later(8 * 24 * time.Hour)
	b.pass(b.loop())
	var got []string
	for _, x := range b.alerts() {
		d := b.said(x)
		subject, _, _ := strings.Cut(d.Message, ":")
		got = append(got, strings.Join([]string{x.Kind, subject, d.Mode}, "; "))
	}
	slices.Sort(got)
	want := []string{
		"occurrence.missed; task mail; task", "occurrence.skipped_streak; task mail; task", "policy.pause_forgotten; task mail; task",
		"run.expired; task mail; task", "run.failed; p; enforce", "run.failed; task mail; task", "schedule.removed; task mail; task",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.Error(diff)
	}
	for _, x := range b.alerts() {
		if m := b.said(x).Message; x.Policy == "mail" && (strings.Contains(m, "polic") || strings.Contains(m, "delete")) {
			b.Errorf("of a task: %s", m)
		}
	}
}

// TestTaskFailed: calls that fail for good are one alert a task and hour.
func TestTaskFailed(t *testing.T) {
	onBoth(t, func(b *lab) {
		a := b.loop()
		b.pass(a)
		fails := func(task string, call, attempts int64, reason string) {
			b.Helper()
			err := b.l.Note(b.Context(), ledger.ActionCallFailed, task, struct {
				Task     string `json:"task"`
				Call     int64  `json:"call"`
				Attempts int64  `json:"attempts"`
				Error    string `json:"error"`
			}{task, call, attempts, reason}, nil)
			if err != nil {
				b.Fatal(err)
			}
		}
		if !b.postgres { // else the hour may end in between, and then there are more alerts
			now := b.clock()
			b.later(now.Truncate(time.Hour).Add(time.Hour + time.Minute).Sub(now))
		}
		fails("mail", 1, 5, "no")
		fails("mail", 2, 5, "panic: ouch\nmain.go:7")
		fails("sms", 3, 1, "gone")
		b.entry(ledger.ActionCallFailed, "torn", `["what is this"]`)
		b.pass(a)
		var got []string
		for _, x := range b.alerts() {
			d := b.said(x)
			if x.Kind != TaskFailed || d.Mode != ledger.ModeTask || d.First.After(*d.Last) {
				b.Errorf("%s %+v", x.Kind, d)
			}
			got = append(got, fmt.Sprintf("%d %s", d.Count, d.Message))
		}
		want := []string{
			"2 task mail: 2 calls, the last of them 2, failed for good after 5 attempts: panic: ouch. `curfew task failed --task mail` lists them",
			"1 task sms: call 3 failed for good after 1 attempt: gone. `curfew task failed --task sms` lists them",
		}
		if diff := cmp.Diff(want, got); diff != "" && !b.postgres || len(got) < 2 {
			b.Error(diff)
		}
		if b.postgres {
			return
		}
		fails("mail", 4, 5, "no") // in the hour that was told of
		b.pass(a)
		b.pass(b.loop())
		if n := len(b.alerts()); n != 2 {
			b.Errorf("%d alerts", n)
		}
		b.later(time.Hour)
		fails("mail", 5, 5, "no")
		b.pass(a)
		if all := b.alerts(); len(all) != 3 || b.said(all[2]).Count != 1 {
			b.Errorf("the next hour: %v", b.kinds())
		}
		if sent := len(b.receiver.requests()); sent != 3 {
			b.Errorf("%d were sent", sent)
		}
	})
}

package task_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/task"
	"github.com/google/go-cmp/cmp"
)

var info = task.Info{Task: "core.clear", ID: 7, Scheduled: time.Date(2026, 3, 2, 3, 42, 0, 0, time.FixedZone("", 3600)), Attempt: 2, Attempts: 5, Run: "run"}

type member struct {
	Address string `json:"address"`
	Level   int    `json:"level,omitempty"`
}

func TestDo(t *testing.T) {
	var got task.Call[member]
	var value any = "of the context"
	type key struct{}
	w := task.New("mail.welcome", func(ctx context.Context, call task.Call[member]) error {
		got = call
		value = ctx.Value(key{})
		return call.SetResult(map[string]int{"sent": 1})
	}, task.Options{})
	args, err := w.Encode(member{Address: "a@example.org"})
	if err != nil || string(args) != `{"address":"a@example.org"}` {
		t.Fatalf("%s, %v", args, err)
	}
	result, err := w.Do(context.WithValue(t.Context(), key{}, 1), info, args)
	if err != nil || string(result) != `{"sent":1}` || value != 1 {
		t.Errorf("%s, %v, context with %v", result, err, value)
	}
	if got.Args.Address != "a@example.org" || got.Info != info || w.Name() != "mail.welcome" {
		t.Errorf("%+v", got)
	}
}

func TestArguments(t *testing.T) {
	var last member
	m := task.New("m", func(_ context.Context, call task.Call[member]) error { last = call.Args; return nil }, task.Options{})
	for args, want := range map[string]member{
		"": {}, "null": {}, " {} ": {}, `{"level":3}`: {Level: 3}, `{"address":"a","level":1}` + "\n": {"a", 1},
	} {
		last = member{"old", 9}
		if _, err := m.Do(t.Context(), info, json.RawMessage(args)); err != nil || last != want {
			t.Errorf("%q: %+v, %v", args, last, err)
		}
	}
	for args, want := range map[string]string{
		`{"adress":"a"}`: `the arguments of task m cannot be read: unknown field "adress"`, `{"level":"x"}`: "level", `[]`: "array", `{} {}`: "follows", `{`: "EOF", `{}]`: "follows",
	} {
		last = member{"old", 9}
		_, err := m.Do(t.Context(), info, json.RawMessage(args))
		if !task.IsFinal(err) || !strings.Contains(err.Error(), want) || last.Address != "old" {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
		if err := m.CheckArgs(json.RawMessage(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is accepted: %v", args, err)
		}
	}
	for want, args := range map[string]any{`{"address":"a"}`: &member{Address: "a"}, `{"address":""}`: member{}, "": nil} {
		if got, err := m.Encode(args); err != nil || string(got) != want {
			t.Errorf("Encode(%v) = %s, %v", args, got, err)
		}
	}
	for _, args := range []any{7, "x", map[string]any{}, (*member)(nil), &[]member{}, json.RawMessage("{}")} {
		if _, err := m.Encode(args); err == nil || !strings.Contains(err.Error(), "task m takes arguments of type task_test.member, not ") {
			t.Errorf("Encode(%T): %v", args, err)
		}
	}
	c := task.New("c", func(context.Context, task.Call[chan int]) error { return nil }, task.Options{})
	if _, err := c.Encode(make(chan int)); err == nil || !strings.Contains(err.Error(), "have no JSON") {
		t.Error(err)
	}
	// An interface takes anything, and nothing can be read into it again.
	e := task.New("e", func(context.Context, task.Call[fmt.Stringer]) error { return nil }, task.Options{})
	if _, err := e.Encode(reflect.ValueOf(7)); err == nil || !strings.Contains(err.Error(), "cannot be read") {
		t.Error(err)
	}
	p := task.New("p", func(_ context.Context, call task.Call[*member]) error { last = *call.Args; return nil }, task.Options{})
	if args, err := p.Encode(&member{Level: 4}); err != nil {
		t.Error(err)
	} else if _, err := p.Do(t.Context(), info, args); err != nil || last.Level != 4 {
		t.Errorf("%+v, %v", last, err)
	}
	n := task.New("n", func(context.Context, task.Call[struct{}]) error { return nil }, task.Options{})
	if _, err := n.Do(t.Context(), info, json.RawMessage(`{"a":1}`)); err == nil {
		t.Error("a task without arguments takes one")
	}
}

func burst() { panic(errors.New("boiler")) }

func TestPanic(t *testing.T) {
	p := task.New("p", func(_ context.Context, call task.Call[string]) error {
		_ = call.SetResult(1)
		switch call.Args {
		case "nil map":
			func(m map[string]int) { m["a"] = 1 }(nil)
		case "final":
			panic(task.Fail(errors.New("x")))
		}
		burst()
		return nil
	}, task.Options{})
	for args, want := range map[string]string{`""`: "panic: boiler\ncurfew.dev/curfew/task_test.burst\n\t", `"nil map"`: "panic: assignment to entry in nil map\n", `"final"`: "panic: x\n"} {
		result, err := p.Do(t.Context(), info, json.RawMessage(args))
		if err == nil || task.IsFinal(err) || !strings.HasPrefix(err.Error(), want) || !strings.Contains(err.Error(), "task_test.go:") {
			t.Errorf("%s: %v", args, err)
		}
		if lines := strings.Count(err.Error(), "\n"); lines > 16 || strings.Contains(err.Error(), "runtime.") {
			t.Errorf("%s: %d lines: %v", args, lines, err)
		}
		if string(result) != "1" {
			t.Errorf("%s: the result is lost: %s", args, result)
		}
	}
}

func TestSetResult(t *testing.T) {
	call := task.Call[struct{}]{Info: task.Info{Task: "t"}} // as a test of a handler makes one
	for want, v := range map[string]any{"": 1, "has no JSON": make(chan int), "at most 65536": strings.Repeat("x", task.MaxResult)} {
		if err := call.SetResult(v); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%T: %v", v, err)
		}
	}
	w := task.New("w", func(_ context.Context, call task.Call[struct{}]) error {
		_ = call.SetResult("first")
		_ = call.SetResult("second")
		_ = call.SetResult(make(chan int))
		return errors.New("no")
	}, task.Options{})
	if result, err := w.Do(t.Context(), info, nil); err == nil || string(result) != `"second"` {
		t.Errorf("%s, %v", result, err)
	}
}

func TestErrors(t *testing.T) {
	cause := errors.New("cause")
	for name, c := range map[string]struct {
		err   error
		final bool
		after time.Duration // -1: not said
		text  string
	}{
		"none":            {nil, false, -1, ""},
		"plain":           {cause, false, -1, "cause"},
		"fail":            {task.Fail(cause), true, -1, "cause"},
		"wrapped fail":    {fmt.Errorf("sending: %w", task.Fail(cause)), true, -1, "sending: cause"},
		"joined fail":     {errors.Join(cause, task.Fail(cause)), true, -1, "cause\ncause"},
		"fail nil":        {task.Fail(nil), false, -1, ""},
		"later":           {task.RetryAfter(time.Minute, cause), false, time.Minute, "cause"},
		"wrapped later":   {fmt.Errorf("sending: %w", task.RetryAfter(time.Minute, cause)), false, time.Minute, "sending: cause"},
		"at once":         {task.RetryAfter(-time.Minute, cause), false, 0, "cause"},
		"later nil":       {task.RetryAfter(time.Minute, nil), false, time.Minute, "the task asked to be called again later"},
		"later and final": {task.RetryAfter(time.Minute, task.Fail(cause)), true, -1, "cause"},
		"final and later": {task.Fail(task.RetryAfter(time.Minute, cause)), true, -1, "cause"},
	} {
		after, said := task.After(c.err)
		if !said {
			after = -1
		}
		if task.IsFinal(c.err) != c.final || after != c.after || (c.err == nil) != (c.text == "") {
			t.Errorf("%s: final %v, after %v", name, task.IsFinal(c.err), after)
		}
		if c.err != nil && (c.err.Error() != c.text || !errors.Is(c.err, cause) && name != "later nil") {
			t.Errorf("%s: %v", name, c.err)
		}
	}
}

func TestNames(t *testing.T) {
	for name, good := range map[string]bool{
		"a": true, "core.clear_sessions": true, "A-1.b_C": true, strings.Repeat("a", 100): true,
		"": false, "1a": false, "_a": false, ".a": false, "a b": false, "a/b": false, "ä": false, "a:b": false, "a\n": false, strings.Repeat("a", 101): false,
	} {
		w := task.New(name, func(context.Context, task.Call[struct{}]) error { return nil }, task.Options{})
		if err := w.Check(); (err == nil) != good || err != nil && !strings.Contains(err.Error(), "is not a name") {
			t.Errorf("%q: %v", name, err)
		}
		if _, err := w.Do(t.Context(), info, nil); (err == nil) != good || task.IsFinal(err) == good {
			t.Errorf("%q is executed: %v", name, err)
		}
	}
	if err := task.New[int]("a", nil, task.Options{}).Check(); err == nil || !strings.Contains(err.Error(), "no handler") {
		t.Error(err)
	}
}

func TestDefaults(t *testing.T) {
	want := task.Options{Timezone: "UTC", StartWithin: time.Hour, Overlap: "skip", CatchUp: "latest", Retry: task.Retry{Attempts: 5, Backoff: 10 * time.Second, Factor: 10}, Timeout: 10 * time.Minute, Priority: 1}
	if diff := cmp.Diff(want, task.Options{}.WithDefaults()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	given := task.Options{Description: "d", Cron: "@daily", Timezone: "Europe/Berlin", StartWithin: time.Minute, Overlap: "queue", CatchUp: "none",
		Retry: task.Retry{Attempts: 1, Backoff: time.Second, Factor: 1}, Timeout: time.Second, Priority: 4, Queue: "mail", Concurrency: 1, Lock: "l"}
	if diff := cmp.Diff(given, given.WithDefaults()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := (task.Options{Concurrency: 2}).WithDefaults().Overlap; got != "allow" {
		t.Errorf("two at once, and overlap %s", got)
	}
	if got := (task.Options{Retry: task.Retry{Attempts: 3}}).WithDefaults().Retry; got != (task.Retry{Attempts: 3, Backoff: 10 * time.Second, Factor: 10}) {
		t.Errorf("%+v", got)
	}
	w := task.New("w", func(context.Context, task.Call[int]) error { return nil }, task.Options{Priority: 2})
	if got := w.Options(); got.Priority != 2 || got.Timeout != 10*time.Minute {
		t.Errorf("%+v", got)
	}
}

// TestCheck breaks one option at a time.
func TestCheck(t *testing.T) {
	valid := func() task.Options {
		return task.Options{Cron: "42 2 * * mon", Timezone: "Europe/Berlin", Overlap: "queue", CatchUp: "all", Queue: "mail-2_b", Lock: "core.sessions"}
	}
	if err := valid().Check(); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change func(*task.Options)
		want   string // "" is accepted
	}{
		"no cron":            {func(o *task.Options) { o.Cron = "" }, ""},
		"descriptor":         {func(o *task.Options) { o.Cron = "@hourly" }, ""},
		"four fields":        {func(o *task.Options) { o.Cron = "42 2 * *" }, `Cron: "42 2 * *" has 4 fields`},
		"zone":               {func(o *task.Options) { o.Timezone = "Berlin" }, `Timezone: "Berlin" is no IANA time zone`},
		"local":              {func(o *task.Options) { o.Timezone = "Local" }, "Timezone"},
		"start within":       {func(o *task.Options) { o.StartWithin = time.Second }, "StartWithin: 1s"},
		"start within long":  {func(o *task.Options) { o.StartWithin = 32 * 24 * time.Hour }, "StartWithin"},
		"overlap":            {func(o *task.Options) { o.Overlap = "forbid" }, `Overlap: there is no "forbid"`},
		"contradiction":      {func(o *task.Options) { o.Queue, o.Concurrency = "", 2 }, "Overlap: queue lets one call be executed at a time, and Concurrency 2"},
		"one at a time":      {func(o *task.Options) { o.Queue, o.Concurrency = "", 1 }, ""},
		"catch up":           {func(o *task.Options) { o.CatchUp = "newest" }, `CatchUp: there is no "newest"`},
		"attempts":           {func(o *task.Options) { o.Retry.Attempts = -1 }, "Retry: -1 attempts"},
		"attempts many":      {func(o *task.Options) { o.Retry.Attempts = 101 }, "Retry: 101 attempts"},
		"backoff":            {func(o *task.Options) { o.Retry.Backoff = time.Microsecond }, "Retry: a backoff of 1µs"},
		"backoff long":       {func(o *task.Options) { o.Retry.Backoff = 25 * time.Hour }, "Retry: a backoff of 25h"},
		"factor":             {func(o *task.Options) { o.Retry.Factor = -2 }, "Retry: a factor of -2"},
		"timeout":            {func(o *task.Options) { o.Timeout = -1 }, "Timeout"},
		"timeout long":       {func(o *task.Options) { o.Timeout = 8 * 24 * time.Hour }, "Timeout"},
		"priority":           {func(o *task.Options) { o.Priority = 5 }, "Priority: 5"},
		"concurrency":        {func(o *task.Options) { o.Queue, o.Concurrency = "", -1 }, "Concurrency: -1"},
		"queue":              {func(o *task.Options) { o.Queue = "Mail" }, `Queue: "Mail" is no name`},
		"queue dashes":       {func(o *task.Options) { o.Queue = "a--b" }, "Queue"},
		"queue dash":         {func(o *task.Options) { o.Queue = "a-" }, "Queue"},
		"queue of its own":   {func(o *task.Options) { o.Concurrency = 1 }, "Queue: a task with a Concurrency has a queue of its own"},
		"lock":               {func(o *task.Options) { o.Lock = "task:x" }, `Lock: "task:x" is not a name`},
		"two things at once": {func(o *task.Options) { o.Lock, o.Priority = " ", 9 }, "Priority: 9; it must be from 1, which goes first, to 4\nLock: "},
	} {
		o := valid()
		c.change(&o)
		err := o.Check()
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if err := task.New("w", func(context.Context, task.Call[int]) error { return nil }, task.Options{Priority: 9}).Check(); err == nil || !strings.HasPrefix(err.Error(), `task "w": Priority: 9`) {
		t.Error(err)
	}
}

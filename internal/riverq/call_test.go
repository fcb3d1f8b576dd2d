package riverq

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type do = func(ctx context.Context, a Attempt) (json.RawMessage, error)

// doer returns a client that does calls of the tasks and knows no batches.
func (p place) doer(t testing.TB, f do, tasks []string, edit ...func(*Options)) *Client {
	t.Helper()
	return p.client(t, nil, append([]func(*Options){func(o *Options) {
		o.Workers, o.Reserved, o.Tasks, o.Do = 4, 4, tasks, f
	}}, edit...)...)
}

// inserter returns a client that only inserts.
func (p place) inserter(t testing.TB, edit ...func(*Options)) *Client {
	t.Helper()
	return p.client(t, nil, append([]func(*Options){func(o *Options) { o.Workers, o.Reserved = 0, 0 }}, edit...)...)
}

func call(task string, edit ...func(*Call)) Call {
	c := Call{Task: task, Attempts: 5, Backoff: 10 * time.Second, Factor: 10, Timeout: time.Minute, Cause: "defer"}
	for _, e := range edit {
		e(&c)
	}
	return c
}

// within runs f in a transaction and commits it.
func within[T any](t testing.TB, c *Client, f func(tx *sql.Tx) (T, error)) T {
	t.Helper()
	tx, err := c.o.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	v, err := f(tx)
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func deferred(t testing.TB, c *Client, calls ...Call) []Deferred {
	t.Helper()
	return within(t, c, func(tx *sql.Tx) ([]Deferred, error) { return c.DeferTx(t.Context(), tx, calls) })
}

func calls(t testing.TB, c *Client, f CallFilter) []CallRecord {
	t.Helper()
	list, err := c.Calls(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func count(t testing.TB, c *Client, f CallFilter) int64 {
	t.Helper()
	n, err := c.CountCalls(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// settle waits until a call is in a state, and returns it.
func settle(t testing.TB, c *Client, id int64, s CallState) (r CallRecord) {
	t.Helper()
	eventually(t, fmt.Sprintf("call %d %s", id, s), func() bool {
		list := calls(t, c, CallFilter{IDs: []int64{id}, State: s})
		if len(list) == 1 {
			r = list[0]
		}
		return len(list) == 1
	})
	return r
}

// TestDefer: what a transaction that was rolled back deferred is not there; what was
// committed runs once, with all that it was deferred with.
func TestDefer(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		in := p.inserter(t)
		tx, err := in.o.DB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.DeferTx(t.Context(), tx, []Call{call("mail"), call("mail")}); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if n := count(t, in, CallFilter{}); n != 0 {
			t.Fatalf("%d calls of a transaction that was rolled back", n)
		}
		full := Call{Task: "core.clear_sessions", Args: json.RawMessage(`{"who":"Zoë 😀 \ud83d\ude00 \\u0000 <&>","n":12345678901234567890}`), Argv: []string{"--dry-run", "ü"},
			Scheduled: time.Date(2026, 3, 1, 2, 42, 0, 123456000, time.UTC), Run: "r-1", Cause: "schedule",
			Queue: "Mail", Priority: 2, Attempts: 3, Backoff: time.Second, Factor: 2, Timeout: time.Minute}
		got := make(chan Attempt, 10)
		c := start(t, p.doer(t, func(_ context.Context, a Attempt) (json.RawMessage, error) {
			got <- a
			return json.RawMessage(`{"sent":"1 ✉"}`), nil
		}, []string{"mail", "core.clear_sessions"}, func(o *Options) { o.Queues = map[string]int{"Mail": 2} }))
		ids := deferred(t, in, full, call("mail"))
		c.Wake("Mail")
		seen := map[string]Attempt{}
		for range 2 {
			a := receive(t, "done", got)
			seen[a.Task] = a
		}
		a := seen["core.clear_sessions"]
		if a.ID != ids[0].ID || a.Attempt != 1 || a.Last || a.Created.IsZero() || ids[0].Duplicate {
			t.Errorf("attempt %+v of %+v", a, ids)
		}
		want := full
		if sameJSON(t, a.Args, want.Args) {
			a.Args, want.Args = nil, nil
		}
		if diff := cmp.Diff(want, a.Call); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if b := seen["mail"]; b.Args != nil || b.Run != "" || !b.Scheduled.IsZero() || b.Queue != Interactive {
			t.Errorf("%+v", b)
		}
		r := settle(t, c, ids[0].ID, Succeeded)
		if !sameJSON(t, r.Output, json.RawMessage(`{"sent":"1 ✉"}`)) || r.Attempt != 1 || r.Ended.Before(r.Started) || r.Started.IsZero() || r.Error != "" {
			t.Errorf("%+v", r)
		}
		if len(got) > 0 {
			t.Errorf("done again: %+v", <-got)
		}
	})
}

func sameJSON(t testing.TB, a, b json.RawMessage) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal(a, &x), json.Unmarshal(b, &y)); err != nil {
		t.Error(err)
		return false
	}
	return cmp.Equal(x, y)
}

// TestDeferRefused: a bad call is an error that says what is wrong, and leaves the
// caller's transaction to go on.
func TestDeferRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		c := p.inserter(t)
		tx, err := c.o.DB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		big := json.RawMessage(`"` + strings.Repeat("x", maxArgs-2) + `"`)
		for want, edit := range map[string]func(*Call){
			"no name":          func(k *Call) { k.Task = "so what" },
			"1048577 bytes":    func(k *Call) { k.Args, k.Argv = big, []string{"x"} },
			"0 attempts":       func(k *Call) { k.Attempts = 0 },
			"factor 0":         func(k *Call) { k.Factor = 0 },
			"timeout 0s":       func(k *Call) { k.Timeout = 0 },
			"priority 5":       func(k *Call) { k.Priority = 5 },
			"has no key":       func(k *Call) { k.Key, k.Run = "a", "b" },
			"501 bytes":        func(k *Call) { k.Key = strings.Repeat("k", 501) },
			"without NUL":      func(k *Call) { k.Key = "a\x00b" },
			"UTF-8 without":    func(k *Call) { k.Argv = []string{"\xff"} },
			"no JSON":          func(k *Call) { k.Args = json.RawMessage(`{"a":`) },
			"has no NUL":       func(k *Call) { k.Args = json.RawMessage(`"\\\u0000"`) },
			"half of a surrog": func(k *Call) { k.Args = json.RawMessage(`["\ud83d\ude00", "\uD83Dx"]`) },
			"f a surrogate":    func(k *Call) { k.Args = json.RawMessage(`"\ude00"`) },
			"queue's name":     func(k *Call) { k.Queue = strings.Repeat("q", 201) },
		} {
			if _, err := c.DeferTx(t.Context(), tx, []Call{call("mail", edit)}); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v", want, err)
			}
		}
		ids, err := c.DeferTx(t.Context(), tx, []Call{call("mail", func(k *Call) { k.Args = big })})
		if err == nil {
			err = tx.Commit()
		}
		if err != nil {
			t.Fatal(err)
		}
		if r := calls(t, c, CallFilter{IDs: []int64{ids[0].ID}}); len(r) != 1 || len(r[0].Args) != maxArgs {
			t.Errorf("arguments of just a megabyte: %d calls", len(r))
		}
	})
}

// TestUnique: one open call a key, whoever defers it, and how often.
func TestUnique(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		c := p.inserter(t)
		key := func(key string) func(*Call) { return func(k *Call) { k.Key = key } }
		run := func(run string) func(*Call) { return func(k *Call) { k.Run = run } }
		ids := deferred(t, c, call("a", key("ключ")), call("a", key("ключ")), call("b", key("ключ")), call("a", run("ключ")), call("a"), call("a"), call("a", run("ключ")))
		want := []bool{false, true, false, false, false, false, true}
		for i, d := range ids {
			if d.Duplicate != want[i] {
				t.Errorf("call %d: %+v", i, d)
			}
		}
		if ids[1].ID != ids[0].ID || ids[6].ID != ids[3].ID || ids[0].ID == ids[2].ID {
			t.Errorf("%+v", ids)
		}
		again := deferred(t, c, call("a", key("ключ")))
		if !again[0].Duplicate || again[0].ID != ids[0].ID {
			t.Errorf("again: %+v", again)
		}
		got, release := make(chan Attempt, 10), make(chan error)
		w := start(t, p.doer(t, func(_ context.Context, a Attempt) (json.RawMessage, error) { got <- a; return nil, <-release }, []string{"b"}))
		receive(t, "b", got)
		if d := deferred(t, c, call("b", key("ключ"))); !d[0].Duplicate { // running
			t.Error("a second one beside one that runs")
		}
		release <- errors.New("no")
		settle(t, w, ids[2].ID, Retrying)
		if d := deferred(t, c, call("b", key("ключ"))); !d[0].Duplicate {
			t.Error("a second one beside one that will be retried")
		}
		within(t, c, func(tx *sql.Tx) (int64, error) { return c.DiscardTx(t.Context(), tx, CallFilter{Task: "b"}, "me", "") })
		d := deferred(t, c, call("b", key("ключ")))
		if d[0].Duplicate {
			t.Error("the key of one that was discarded is not free")
		}
		receive(t, "b again", got)
		release <- nil
		settle(t, w, d[0].ID, Succeeded)
		if d := deferred(t, c, call("b", key("ключ"))); d[0].Duplicate {
			t.Error("the key of one that is done is not free")
		}
		receive(t, "b at last", got)
		release <- nil
	})
}

// fake is a clock that stands still until it is moved.
type fake struct {
	mu sync.Mutex
	t  time.Time
}

func newFake() *fake { return &fake{t: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)} }

func (f *fake) now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.t
}

func (f *fake) add(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.t = f.t.Add(d)
}

// TestRetryTiming: the waits are those of the policy, to the microsecond of the
// clock, and a moment before nothing happens.
func TestRetryTiming(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		clock := newFake()
		began := clock.now()
		got := make(chan Attempt, 10)
		c := start(t, p.doer(t, func(_ context.Context, a Attempt) (json.RawMessage, error) {
			got <- a
			return nil, fmt.Errorf("no %d: ñ\x00\xff", a.Attempt)
		}, []string{"a"}, func(o *Options) { o.Clock = clock.now }))
		id := deferred(t, c, call("a"))[0].ID
		c.Wake(Interactive)
		due := began
		for i, wait := range []time.Duration{10 * time.Second, 100 * time.Second, 1000 * time.Second, 10000 * time.Second} {
			if a := receive(t, "an attempt", got); a.Attempt != i+1 || a.Last {
				t.Fatalf("%+v", a)
			}
			due = due.Add(wait)
			if r := settle(t, c, id, Retrying); !r.Due.Equal(due) || r.Attempt != i+1 || r.Error != fmt.Sprintf("no %d: ñ\uFFFD\uFFFD", i+1) {
				t.Fatalf("after attempt %d: due %s, want %s: %q", i+1, r.Due, due, r.Error)
			}
			clock.add(wait - time.Millisecond)
			if err := c.MakeDue(t.Context()); err != nil {
				t.Fatal(err)
			}
			looks(t, c, 3)
			if len(got) > 0 {
				t.Fatalf("tried %s early", time.Millisecond)
			}
			clock.add(time.Millisecond)
			if err := c.MakeDue(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if a := receive(t, "the last attempt", got); a.Attempt != 5 || !a.Last {
			t.Fatalf("%+v", a)
		}
		r := settle(t, c, id, Failed)
		if len(r.Errors) != 5 || r.Errors[4].Attempt != 5 || !r.Errors[4].At.Equal(due) || !r.Ended.Equal(due) || !r.Created.Equal(began) {
			t.Errorf("%+v", r)
		}
	})
}

// looks waits until a client has looked at its queues some times more.
func looks(t testing.TB, c *Client, n int64) {
	t.Helper()
	before := c.pulse.looks.Load()
	eventually(t, "looks at the queues", func() bool { return c.pulse.looks.Load() > before+n*int64(len(c.pulse.slots)) })
}

// TestSaid: each error that Do may return means what it says.
func TestSaid(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		clock := newFake()
		got := make(chan Attempt, 20)
		said := map[string][]error{
			"elsewhere": {ErrElsewhere, nil},
			"later":     {&LaterError{After: 30 * time.Second}, nil},
			"put":       {fmt.Errorf("x: %w", &PutOffError{After: time.Hour, Err: errors.New("429")})},
			"sooner":    {&PutOffError{After: time.Second, Err: errors.New("429")}},
			"final":     {fmt.Errorf("x: %w", &FinalError{errors.New("no such customer")})},
		}
		var mu sync.Mutex
		c := p.doer(t, func(_ context.Context, a Attempt) (json.RawMessage, error) {
			got <- a
			if a.Task == "panic" {
				panic("ouch")
			}
			mu.Lock()
			defer mu.Unlock()
			err := said[a.Task][0]
			said[a.Task] = said[a.Task][1:]
			return nil, err
		}, []string{"elsewhere", "later", "put", "sooner", "final", "panic"}, func(o *Options) { o.Clock = clock.now })
		ids := deferred(t, c, call("elsewhere"), call("later"), call("put"), call("sooner"), call("final"), call("panic"))
		start(t, c)
		for range ids {
			receive(t, "first attempts", got)
		}
		begin := clock.now()
		due := func(i int, s CallState, attempt int, d time.Duration) {
			t.Helper()
			var r CallRecord
			eventually(t, fmt.Sprintf("call %d due in %s", i, d), func() bool {
				r = calls(t, c, CallFilter{IDs: []int64{ids[i].ID}})[0]
				return r.State == s && r.Due.Equal(begin.Add(d))
			})
			if r.Attempt != attempt {
				t.Errorf("call %d: attempt %d", i, r.Attempt)
			}
		}
		due(0, Waiting, 0, elsewhereWait)
		due(1, Waiting, 0, 30*time.Second)
		due(2, Retrying, 1, time.Hour)
		due(3, Retrying, 1, 10*time.Second)
		due(5, Retrying, 1, 10*time.Second)
		if r := settle(t, c, ids[4].ID, Failed); r.Error != "x: no such customer" || r.Attempt != 1 {
			t.Errorf("%+v", r)
		}
		if r := settle(t, c, ids[5].ID, Retrying); !strings.HasPrefix(r.Error, "panic: ouch\n") {
			t.Errorf("%+v", r)
		}
		clock.add(elsewhereWait)
		if a := receive(t, "elsewhere again", got); a.Task != "elsewhere" || a.Attempt != 1 {
			t.Errorf("%+v", a)
		}
	})
}

// TestAt: a call does not begin before its time, and begins at it.
func TestAt(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		clock := newFake()
		got := make(chan Attempt, 10)
		c := start(t, p.doer(t, func(_ context.Context, a Attempt) (json.RawMessage, error) { got <- a; return nil, nil },
			[]string{"a"}, func(o *Options) { o.Clock = clock.now }))
		for _, in := range []time.Duration{-time.Hour, 2 * time.Second, 48 * time.Hour} {
			at := clock.now().Add(in)
			deferred(t, c, call("a", func(k *Call) { k.At = at }))
			if in > 0 {
				clock.add(in - time.Millisecond)
				if err := c.MakeDue(t.Context()); err != nil {
					t.Fatal(err)
				}
				looks(t, c, 3)
				if len(got) > 0 {
					t.Fatal("before its time")
				}
				clock.add(time.Millisecond)
			}
			if err := c.MakeDue(t.Context()); err != nil {
				t.Fatal(err)
			}
			if a := receive(t, "at its time", got); in > 0 && !a.At.Equal(at) {
				t.Errorf("at %s, want %s", a.At, at)
			}
		}
	})
}

// TestUnknownTask: a call that nobody here can do is left alone, takes no slot, and
// is there when somebody comes who can.
func TestUnknownTask(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		got := make(chan Attempt, 10)
		f := func(_ context.Context, a Attempt) (json.RawMessage, error) { got <- a; return nil, nil }
		c := start(t, p.doer(t, f, []string{"known"}, func(o *Options) { o.Workers, o.Reserved = 1, 1 }))
		ids := deferred(t, c, call("unknown"), call("unknown"), call("known"))
		if a := receive(t, "the known one", got); a.Task != "known" {
			t.Errorf("%+v", a)
		}
		looks(t, c, 5)
		for _, r := range calls(t, c, CallFilter{Task: "unknown"}) {
			if r.State != Waiting || r.Attempt != 0 {
				t.Errorf("%+v", r)
			}
		}
		start(t, p.doer(t, f, []string{"unknown"}))
		for range 2 {
			receive(t, "the unknown ones", got)
		}
		settle(t, c, ids[0].ID, Succeeded)
	})
}

func TestQueueName(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"", Cleanup, "mail", "Mail", "MAIL", "core.clear_sessions", "core-clear_sessions", "core--clear", "Ü", "ü", "-", "_a", strings.Repeat("x", 64), strings.Repeat("x", 65), strings.Repeat("ab.", 60)} {
		got := QueueName(name)
		if other, ok := seen[got]; ok {
			t.Errorf("%q and %q are both %q", name, other, got)
		}
		seen[got] = name
		if !riverQueue.MatchString(got) || len(got) > longestRiverQueue || QueueName(got) != got {
			t.Errorf("%q becomes %q", name, got)
		}
	}
	if QueueName("mail") != "mail" || QueueName("") != Interactive {
		t.Error("a good name was changed")
	}
}

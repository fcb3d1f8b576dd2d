package riverq

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// callChild does calls in a process of its own, until it is killed. A call of "poison"
// kills it; one of "receipt" leaves a row, whose key is its number.
func callChild() int {
	p := place{url: os.Getenv(urlVar), sqlite: os.Getenv(sqliteVar) != ""}
	db, err := p.connect()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer db.Close()
	c, err := New(Options{DB: db, SQLite: p.sqlite, Schema: p.schema(), Workers: 4, Reserved: 4, ID: "test", Beat: quick, Tasks: []string{"poison", "receipt"},
		Do: func(ctx context.Context, a Attempt) (json.RawMessage, error) {
			if a.Task == "poison" {
				os.Exit(137)
			}
			var n int
			if err := json.Unmarshal(a.Args, &n); err != nil {
				return nil, err
			}
			_, err := db.ExecContext(ctx, `INSERT INTO receipt VALUES ($1) ON CONFLICT DO NOTHING`, n)
			return nil, err
		}})
	if err == nil {
		err = c.Start(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("works")
	select {}
}

// TestPoisonCall: a call that kills its process has failed when its attempts are used
// up, and others go on. Whoever finds it need not know its task.
func TestPoisonCall(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		look := p.inserter(t)
		mustExec(t, look.o.DB, `CREATE TABLE receipt (n bigint PRIMARY KEY)`)
		ids := deferred(t, look, call("poison", func(k *Call) { k.Attempts, k.Backoff, k.Key = 3, time.Millisecond, "k" }), call("receipt", func(k *Call) { k.Args, k.At = json.RawMessage(`1`), time.Now().Add(-time.Hour) }))
		// A process that knows nothing, and lives.
		start(t, p.doer(t, func(context.Context, Attempt) (json.RawMessage, error) { return nil, nil }, nil, func(o *Options) { o.Beat = quick }))
		for n := 1; n <= 3; n++ {
			if err := childCommand(t, "call", p).Run(); err == nil || err.Error() != "exit status 137" {
				t.Fatalf("process %d: %v", n, err)
			}
			if n < 3 {
				if r := settle(t, look, ids[0].ID, Retrying); r.Attempt != n || r.Error != "its process died" {
					t.Errorf("%+v", r)
				}
			}
		}
		if r := settle(t, look, ids[0].ID, Failed); r.Attempt != 3 || len(r.Errors) != 3 || r.Errors[2].Attempt != 3 {
			t.Errorf("%+v", r)
		}
		cmd := childCommand(t, "call", p)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		settle(t, look, ids[1].ID, Succeeded)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	})
}

// TestCallsSurviveKills: two thousand calls while the processes that do them are
// killed again and again. Each is done, and each attempt counted.
func TestCallsSurviveKills(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		total, kills := 2000, 10
		if p.sqlite && raced() {
			total = 300
		}
		look := p.inserter(t)
		mustExec(t, look.o.DB, `CREATE TABLE receipt (n bigint PRIMARY KEY)`)
		for from := 0; from < total; from += 100 {
			var some []Call
			for n := range 100 {
				some = append(some, call("receipt", func(k *Call) {
					k.Args, k.Attempts, k.Backoff, k.Factor = fmt.Appendf(nil, "%d", from+n), 100, time.Millisecond, 1
				}))
			}
			deferred(t, look, some...)
		}
		receipts := func() int { return one[int](t, look.o.DB, `SELECT count(*) FROM receipt`) }
		for kill := range kills {
			cmd := childCommand(t, "call", p)
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			var word string
			if _, err := fmt.Fscan(out, &word); err != nil {
				t.Fatal(err)
			}
			want := min(total, (kill+1)*total/(kills+2))
			eventually(t, "some more receipts", func() bool { return receipts() >= want })
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
		}
		cmd := childCommand(t, "call", p)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "all of it", func() bool { return count(t, look, CallFilter{State: Succeeded}) == int64(total) })
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		if n := receipts(); n != total {
			t.Errorf("%d of %d effects", n, total)
		}
		again := 0
		for _, r := range calls(t, look, CallFilter{Limit: total}) {
			// Each attempt before the last has an error that says why it was none.
			if r.Attempt != len(r.Errors)+1 {
				t.Errorf("%d attempts, %d errors: %+v", r.Attempt, len(r.Errors), r)
			}
			again += r.Attempt - 1
		}
		t.Logf("%d attempts died in %d kills", again, kills)
		if again == 0 {
			t.Error("no kill hit an attempt: the test shows nothing")
		}
	})
}

// TestHangingCall: a call that ignores its end is taken from the process that lives,
// its slot is given to another, and what it says later does not count.
func TestHangingCall(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		got, wake := make(chan Attempt, 10), make(chan struct{})
		hold2 := make(chan error)
		var log bytes.Buffer
		c := start(t, p.doer(t, func(ctx context.Context, a Attempt) (json.RawMessage, error) {
			got <- a
			if a.Attempt == 1 {
				<-wake // and not ctx
				return json.RawMessage(`"late"`), nil
			}
			return json.RawMessage(`"second"`), <-hold2
		}, []string{"a"}, func(o *Options) {
			o.Workers, o.Reserved, o.Beat, o.margin = 1, 1, quick, 50*time.Millisecond
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
		}))
		id := deferred(t, c, call("a", func(k *Call) { k.Timeout, k.Backoff, k.Attempts = 200*time.Millisecond, 0, 2 }))[0].ID
		if a := receive(t, "the one that hangs", got); a.Attempt != 1 {
			t.Fatalf("%+v", a)
		}
		// With one worker, only a freed slot lets this begin.
		if a := receive(t, "the second attempt", got); a.Attempt != 2 {
			t.Fatalf("%+v", a)
		}
		close(wake)
		eventually(t, "the first one returns", func() bool {
			c.pulse.mu.Lock()
			defer c.pulse.mu.Unlock()
			return slices.ContainsFunc(c.pulse.inHand[id], func(h *hand) bool { return !h.done.IsZero() })
		})
		if r := settle(t, c, id, Running); r.Attempt != 2 || r.Output != nil {
			t.Errorf("%+v", r)
		}
		hold2 <- nil
		r := settle(t, c, id, Succeeded)
		if string(r.Output) != `"second"` || len(r.Errors) != 1 || !strings.Contains(r.Error, "long after its timeout") {
			t.Errorf("%+v", r)
		}
		if err := c.Alive(); err != nil {
			t.Error(err)
		}
		stop(t, c)
		if s := log.String(); !strings.Contains(s, "queue_attempt_hangs") || !strings.Contains(s, "queue_attempt_overtaken") || strings.Contains(s, "marshal") {
			t.Errorf("the log: %s", s)
		}
	})
}

// TestTimeout: a call's own timeout ends its context, and that attempt counts.
func TestTimeout(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		c := start(t, p.doer(t, func(ctx context.Context, _ Attempt) (json.RawMessage, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, []string{"a"}))
		id := deferred(t, c, call("a", func(k *Call) { k.Timeout, k.Attempts = 50*time.Millisecond, 1 }))[0].ID
		if r := settle(t, c, id, Failed); !strings.Contains(r.Error, "deadline") {
			t.Errorf("%+v", r)
		}
	})
}

// TestStopCall: the attempt that a stop cancels does not count.
func TestStopCall(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		began := make(chan Attempt, 10)
		f := func(ctx context.Context, a Attempt) (json.RawMessage, error) {
			began <- a
			<-ctx.Done()
			return nil, errors.New("interrupted")
		}
		c := start(t, p.doer(t, f, []string{"a"}))
		id := deferred(t, c, call("a"))[0].ID
		receive(t, "an attempt", began)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := c.Stop(ctx); err != nil {
			t.Fatal(err)
		}
		if r := settle(t, c, id, Waiting); r.Attempt != 0 || len(r.Errors) != 0 {
			t.Errorf("%+v", r)
		}
	})
}

// TestListen: a process that polls once in an hour starts what another one deferred,
// also after its connection was cut, under load, and says that once.
func TestListen(t *testing.T) {
	p := postgresPlace(t)
	var log heard
	got := make(chan Attempt, 1000)
	c := start(t, p.doer(t, func(_ context.Context, a Attempt) (json.RawMessage, error) { got <- a; return nil, nil },
		[]string{"a"}, func(o *Options) {
			o.PollInterval, o.Beat = time.Hour, 100*time.Millisecond
			o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			o.Queues = map[string]int{"Further": 2}
		}))
	in := p.inserter(t)
	listens := func() bool {
		return one[int](t, in.o.DB, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'`) == 1
	}
	eventually(t, "listens", listens)
	for i := range 5 {
		in.notified = notified{}
		d := deferred(t, in, call("a", func(k *Call) { k.Queue = []string{"", "Further"}[i%2] }))
		if a := receive(t, "what another process deferred", got); a.ID != d[0].ID {
			t.Errorf("%+v", a)
		}
	}
	const load = 200
	cuts := 0
	for i := range load {
		in.notified = notified{} // what is deferred within a millisecond is not told again, and waits for the next poll
		deferred(t, in, call("a"))
		if i%50 == 25 {
			mustExec(t, in.o.DB, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN %'`)
			cuts++ // the connection that is ended counts as one for a moment: the process says when it has another
			eventually(t, "listens again", func() bool { return log.count("queue_listens_again") == cuts })
		}
	}
	for range load {
		receive(t, "all of it", got)
	}
	stop(t, c)
	eventually(t, "its connection is gone", func() bool { return !listens() })
	if lost := log.count("queue_listens_no_more"); cuts != 4 || lost != 4 {
		t.Errorf("it was cut %d times, and says so %d times", cuts, lost)
	}
}

// heard is a log that can be read while it is written.
type heard struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (h *heard) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.Write(p)
}

func (h *heard) count(words string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Count(h.b.String(), words)
}

// TestDoubt: a process that was frozen for so long that it looked dead drops the
// result of what another has taken over.
func TestDoubt(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		got, release := make(chan Attempt, 10), make(chan struct{})
		c := start(t, p.doer(t, func(context.Context, Attempt) (json.RawMessage, error) {
			got <- Attempt{}
			<-release
			return json.RawMessage(`1`), nil
		}, []string{"a"}))
		id := deferred(t, c, call("a", func(k *Call) { k.Backoff = time.Hour }))[0].ID
		receive(t, "an attempt", got)
		// As another process would, had this one been silent.
		if err := c.giveBack(t.Context(), stray{hold: hold{id, 1}, most: 5, kind: "task:a", args: `{"backoff_ns":3600000000000,"factor":1}`}, "its process died"); err != nil {
			t.Fatal(err)
		}
		c.pulse.mu.Lock()
		c.pulse.silent = time.Now()
		c.pulse.mu.Unlock()
		close(release)
		stop(t, c)
		if r := settle(t, c, id, Retrying); r.Attempt != 1 || r.Output != nil || r.Error != "its process died" {
			t.Errorf("%+v", r)
		}
	})
}

package riverq

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func nothing(context.Context, Batch, int, bool) error { return nil }

func TestMigrate(t *testing.T) {
	onBothEmpty(t, func(t *testing.T, p place) {
		c := p.client(t, nothing)
		if err := c.Start(t.Context()); !errors.Is(err, ErrNotMigrated) {
			t.Fatalf("start without tables: %v", err)
		}
		errs := make(chan error)
		for range 4 {
			db := p.open(t)
			go func() { errs <- Migrate(t.Context(), db, p.sqlite, p.schema()) }()
		}
		for range 4 {
			if err := receive(t, "migrated", errs); err != nil {
				t.Error(err)
			}
		}
		start(t, c)
		if err := Migrate(t.Context(), p.open(t), p.sqlite, p.schema()); err != nil {
			t.Errorf("again, with a client at work: %v", err)
		}
	})
}

func TestOptions(t *testing.T) {
	p := place{url: t.TempDir() + "/x.db", sqlite: true}
	good := Options{DB: p.open(t), SQLite: true, Workers: 2, Reserved: 1, Execute: nothing}
	if _, err := New(good); err != nil {
		t.Fatal(err)
	}
	for name, edit := range map[string]func(*Options){
		"no database":         func(o *Options) { o.DB = nil },
		"more reserved":       func(o *Options) { o.Reserved = 3 },
		"none reserved":       func(o *Options) { o.Reserved = 0 },
		"reserved of nothing": func(o *Options) { o.Workers = 0 },
		"nothing to execute":  func(o *Options) { o.Execute = nil },
		"long id":             func(o *Options) { o.ID = strings.Repeat("x", 61) },
	} {
		o := good
		edit(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	inserts := good
	inserts.Workers, inserts.Reserved, inserts.Execute = 0, 0, nil
	c, err := New(inserts)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err == nil {
		t.Error("a client that only inserts was started")
	}
}

// TestInsert: what a transaction that was rolled back inserted is not there, and
// a batch is in its queue once, however often it was inserted.
func TestInsert(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		inserter := p.client(t, nil, func(o *Options) { o.Workers, o.Reserved, o.Execute = 0, 0, nil })
		tx, err := inserter.o.DB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := inserter.InsertTx(t.Context(), tx, []Batch{batch(1), batch(2)}); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		jobs := func() int { return one[int](t, inserter.o.DB, `SELECT count(*) FROM `+p.job()) }
		if n := jobs(); n != 0 {
			t.Fatalf("%d jobs of a transaction that was rolled back", n)
		}
		insert(t, inserter, batch(1), batch(2))
		insert(t, inserter, batch(2), batch(3), batch(1, func(b *Batch) { b.Run = "other" }))
		insert(t, inserter)
		if n := jobs(); n != 4 {
			t.Fatalf("%d jobs for 4 batches", n)
		}

		got, release := make(chan Batch, 10), make(chan struct{})
		start(t, p.client(t, func(_ context.Context, b Batch, _ int, _ bool) error {
			got <- b
			<-release
			return nil
		}, func(o *Options) { o.Workers = 5 }))
		seen := map[Batch]bool{}
		for range 4 {
			seen[receive(t, "executing", got)] = true
		}
		want := map[Batch]bool{}
		for _, b := range []Batch{batch(1), batch(2), batch(3), batch(1, func(b *Batch) { b.Run = "other" })} {
			b.Queue = Cleanup
			want[b] = true
		}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("executed (-want +got)\n%s", diff)
		}
		insert(t, inserter, batch(1)) // executing: stays as it is
		if n := jobs(); n != 4 {
			t.Errorf("%d jobs for 4 batches", n)
		}
		close(release)
		eventually(t, "all done", func() bool {
			return one[int](t, inserter.o.DB, `SELECT count(*) FROM `+p.job()+` WHERE state = 'completed'`) == 4
		})
		insert(t, inserter, batch(1)) // finished: may be asked for again
		if b := receive(t, "executed again", got); b.Seq != 1 {
			t.Errorf("executed %v", b)
		}
	})
}

func TestInsertRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		c := p.client(t, nothing)
		for name, edit := range map[string]func(*Batch){
			"no run":          func(b *Batch) { b.Run = "" },
			"no seq":          func(b *Batch) { b.Seq = 0 },
			"no attempts":     func(b *Batch) { b.Attempts = 0 },
			"negative wait":   func(b *Batch) { b.Backoff = -1 },
			"no factor":       func(b *Batch) { b.Factor = 0 },
			"a strange queue": func(b *Batch) { b.Queue = "default" },
		} {
			tx, err := c.o.DB.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.InsertTx(t.Context(), tx, []Batch{batch(1, edit)}); err == nil {
				t.Errorf("%s: accepted", name)
			}
			tx.Rollback()
		}
	})
}

// TestWait: the numbers of the policy, exactly.
func TestWait(t *testing.T) {
	for _, c := range []struct {
		a    batchArgs
		want []time.Duration
	}{
		{batchArgs{Attempts: 5, Backoff: 10 * time.Second, Factor: 10},
			// The last two are between attempts that only report.
			[]time.Duration{10 * time.Second, 100 * time.Second, 1000 * time.Second, 10000 * time.Second, time.Minute, time.Minute}},
		{batchArgs{Attempts: 3, Backoff: 250 * time.Millisecond, Factor: 1},
			[]time.Duration{250 * time.Millisecond, 250 * time.Millisecond, time.Minute}},
		{batchArgs{Attempts: 3, Backoff: 0, Factor: 3}, []time.Duration{0, 0, time.Minute}},
		{batchArgs{Attempts: 5, Backoff: 5 * time.Hour, Factor: 4},
			[]time.Duration{5 * time.Hour, 20 * time.Hour, 24 * time.Hour, 24 * time.Hour, 5 * time.Hour}},
		{batchArgs{Attempts: 1000, Backoff: 48 * time.Hour, Factor: 1 << 40}, []time.Duration{24 * time.Hour, 24 * time.Hour}},
	} {
		var got []time.Duration
		for i := range c.want {
			got = append(got, c.a.wait(i+1))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%+v (-want +got)\n%s", c.a, diff)
		}
	}
	last := batchArgs{Attempts: 1000, Backoff: time.Nanosecond, Factor: 2}
	if got := last.wait(999); got != longestWait {
		t.Errorf("after attempt 999: %s", got)
	}
}

// TestAttempts: a batch is tried as often as its policy says, each time with the
// right number, and then goes on only to be reported. A panic is an attempt like
// another, and no word of an error goes into River's table.
func TestAttempts(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		type call struct {
			Attempt int
			Last    bool
		}
		calls := make(chan call, 10)
		var log bytes.Buffer
		c := start(t, p.client(t, func(_ context.Context, _ Batch, attempt int, last bool) error {
			calls <- call{attempt, last}
			switch attempt {
			case 1:
				return errors.New("invalid input syntax: 4711-SECRET")
			case 2:
				panic("4711-SECRET")
			default:
				return nil
			}
		}, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) }))
		insert(t, c, batch(1, func(b *Batch) { b.Attempts = 3 }))
		var got []call
		for range 3 {
			got = append(got, receive(t, "attempts", calls))
		}
		if diff := cmp.Diff([]call{{1, false}, {2, false}, {3, true}}, got); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		eventually(t, "done", func() bool {
			return one[int](t, c.o.DB, `SELECT count(*) FROM `+p.job()+` WHERE state = 'completed'`) == 1
		})
		text := `errors::text`
		if p.sqlite {
			text = `json(errors)`
		}
		if s := one[string](t, c.o.DB, `SELECT `+text+` FROM `+p.job()); strings.Contains(s, "SECRET") || !strings.Contains(s, "the attempt failed") {
			t.Errorf("River's table: %s", s)
		}
		stop(t, c)
		if s := log.String(); strings.Count(s, "queue_attempt_failed") != 2 || !strings.Contains(s, "4711-SECRET") {
			t.Errorf("the log: %s", s)
		}
	})
}

// TestRetryInstant: an attempt that failed comes back when the policy says, or later when it was told to wait longer.
func TestRetryInstant(t *testing.T) {
	for _, told := range []time.Duration{0, 10 * time.Second, 300 * time.Second} {
		t.Run(told.String(), func(t *testing.T) { testRetryInstant(t, told) })
	}
}

func testRetryInstant(t *testing.T, told time.Duration) {
	onBoth(t, func(t *testing.T, p place) {
		failed := make(chan time.Time, 1)
		c := start(t, p.client(t, func(_ context.Context, _ Batch, _ int, last bool) error {
			failed <- time.Now()
			if told > 0 {
				return fmt.Errorf("wrapped: %w", &PutOffError{After: told, Err: errors.New("no")})
			}
			return errors.New("no")
		}))
		insert(t, c, batch(1, func(b *Batch) { b.Backoff = 100 * time.Second }))
		at := receive(t, "an attempt", failed)
		eventually(t, "retryable", func() bool {
			return one[string](t, c.o.DB, `SELECT state FROM `+p.job()) == "retryable"
		})
		var when time.Time
		if p.sqlite {
			var err error
			text := one[string](t, c.o.DB, `SELECT strftime('%Y-%m-%dT%H:%M:%fZ', scheduled_at) FROM `+p.job())
			if when, err = time.Parse(time.RFC3339, text); err != nil {
				t.Fatal(err)
			}
		} else {
			when = one[time.Time](t, c.o.DB, `SELECT scheduled_at FROM `+p.job())
		}
		want := max(told, 100*time.Second)
		if d := when.Sub(at) - want; d < -2*time.Millisecond || d > time.Second {
			t.Errorf("comes back %s after the attempt, want %s", when.Sub(at), want)
		}
	})
}

// TestReserved: cleanup that has taken all it may have, for as long as it likes,
// does not keep an interactive batch waiting.
func TestReserved(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		busy, release, interactive := make(chan struct{}, 100), make(chan struct{}), make(chan time.Time, 1)
		c := start(t, p.client(t, func(_ context.Context, b Batch, _ int, _ bool) error {
			if b.Queue == Interactive {
				interactive <- time.Now()
				return nil
			}
			busy <- struct{}{}
			<-release
			return nil
		}))
		defer close(release)
		for i := range int64(50) {
			insert(t, c, batch(i+1))
		}
		for range 3 {
			receive(t, "cleanup", busy)
		}
		sent := time.Now()
		insert(t, c, batch(100, func(b *Batch) { b.Queue = Interactive }))
		if d := receive(t, "the interactive batch", interactive).Sub(sent); d > time.Second {
			t.Errorf("started after %s", d)
		}
		if len(busy) > 0 {
			t.Error("cleanup took a reserved slot")
		}
		if err := c.Alive(); err != nil {
			t.Errorf("with all its slots taken: %v", err)
		}
	})
}

// A batch whose time has not come is put off, and that is no attempt.
func TestLater(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		attempts := make(chan int)
		put := 0
		c := p.client(t, func(_ context.Context, _ Batch, attempt int, _ bool) error {
			attempts <- attempt
			if put++; put <= 2 {
				return &LaterError{After: time.Millisecond}
			}
			return nil
		})
		start(t, c)
		insert(t, c, batch(1))
		for range 3 {
			if n := receive(t, "executed", attempts); n != 1 {
				t.Errorf("attempt %d, want the first", n)
			}
		}
	})
}

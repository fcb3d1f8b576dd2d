package riverq

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/internal/dbtest"
)

// TestEachBatchOnce: three clients and a thousand batches, of which some fail at
// first, while PostgreSQL's connections are cut: each has its effect once.
func TestEachBatchOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		if !p.sqlite {
			eachOnce(t, p, 1000, p.open(t), p.open(t), p.open(t))
			return
		}
		// On SQLite a process has one handle, as the ledger gives it. The race
		// detector makes its C, translated to Go, some twenty times slower.
		batches := int64(1000)
		if raced() {
			batches = 100
		}
		db := p.open(t)
		eachOnce(t, p, batches, db, db, db)
	})
}

// TestEachBatchOnceFile: three processes on one SQLite file, where each waits for
// the others in SQLite's busy loop.
func TestEachBatchOnceFile(t *testing.T) {
	p := place{url: dbtest.SQLite(t), sqlite: true}
	if err := Migrate(t.Context(), p.open(t), true, ""); err != nil {
		t.Fatal(err)
	}
	eachOnce(t, p, 100, p.open(t), p.open(t), p.open(t))
}

func raced() bool {
	info, _ := debug.ReadBuildInfo()
	return slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func eachOnce(t *testing.T, p place, batches int64, handles ...*sql.DB) {
	db := handles[0]
	mustExec(t, db, `CREATE TABLE receipt (seq bigint PRIMARY KEY, by_client bigint)`)
	inserter := p.client(t, nil, func(o *Options) { o.DB, o.Workers, o.Reserved, o.Execute = db, 0, 0, nil })
	for first := int64(1); first <= batches; first += 100 {
		var some []Batch
		for seq := range int64(100) {
			some = append(some, batch(first+seq))
		}
		insert(t, inserter, some...)
	}
	var executed tally
	for who, own := range handles {
		start(t, p.client(t, func(ctx context.Context, b Batch, attempt int, last bool) error {
			executed.add(b.Seq)
			if attempt == 1 && rand.N(10) == 0 {
				return errors.New("on purpose")
			}
			_, err := own.ExecContext(ctx, `INSERT INTO receipt VALUES ($1, $2) ON CONFLICT DO NOTHING`, b.Seq, who)
			return err
		}, func(o *Options) {
			o.DB, o.Logger = own, slog.New(slog.DiscardHandler)
			if !p.sqlite {
				o.Beat = 200 * time.Millisecond // what goes with the connections comes back by the beat
			}
		}))
	}
	// Asking the database all the time would keep it from its work.
	eventually(t, "half of it", func() bool { return int64(executed.len()) >= batches/2 })
	if !p.sqlite {
		// From outside: our own connections are among those that go.
		mustExec(t, p.open(t), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()`)
	}
	eventually(t, "each executed", func() bool { return int64(executed.len()) == batches })
	look := p.open(t)
	eventually(t, "all of it", func() bool {
		return one[int64](t, look, `SELECT count(*) FROM `+p.job()+` WHERE state = 'completed'`) == batches
	})
	if n := one[int64](t, look, `SELECT count(*) FROM receipt`); n != batches || int64(executed.len()) != batches {
		t.Errorf("%d effects, %d executed, of %d", n, executed.len(), batches)
	}
	if n := one[int](t, look, `SELECT count(DISTINCT by_client) FROM receipt`); n != len(handles) {
		t.Errorf("%d of %d clients did something", n, len(handles))
	}
}

// TestStop: a stop waits for what executes; when it cannot wait any longer it
// cancels, and that attempt does not count.
func TestStop(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		began, cancelled := make(chan int, 10), make(chan struct{})
		first := p.client(t, func(ctx context.Context, b Batch, attempt int, _ bool) error {
			began <- attempt
			<-ctx.Done()
			close(cancelled)
			return errors.New("driver: bad connection") // what drivers make of it
		})
		start(t, first)
		insert(t, first, batch(1))
		receive(t, "an attempt", began)
		soft, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := first.Stop(soft); err != nil {
			t.Fatal(err)
		}
		receive(t, "cancelled", cancelled)
		if err := first.Alive(); err == nil {
			t.Error("alive after its stop")
		}
		if err := first.Stop(t.Context()); err != nil {
			t.Errorf("stopped again: %v", err)
		}
		if err := first.Start(t.Context()); err == nil {
			t.Error("started again")
		}

		release := make(chan struct{})
		second := start(t, p.client(t, func(_ context.Context, _ Batch, attempt int, _ bool) error {
			began <- attempt
			<-release
			return nil
		}))
		if attempt := receive(t, "an attempt", began); attempt != 1 {
			t.Errorf("attempt %d: the one that was stopped counted", attempt)
		}
		stopped := make(chan error)
		go func() { stopped <- second.Stop(context.Background()) }()
		eventually(t, "stopping", func() bool { return second.Alive() != nil })
		select {
		case err := <-stopped:
			t.Fatalf("did not wait: %v", err)
		default:
		}
		close(release)
		if err := receive(t, "stopped", stopped); err != nil {
			t.Error(err)
		}
		if s := one[string](t, first.o.DB, `SELECT state FROM `+p.job()); s != "completed" {
			t.Errorf("the job is %s", s)
		}
	})
}

// The context of the start is not what stops.
func TestStartContext(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		done := make(chan error, 1)
		c := p.client(t, func(ctx context.Context, _ Batch, _ int, _ bool) error { done <- ctx.Err(); return nil })
		ctx, cancel := context.WithCancel(t.Context())
		if err := c.Start(ctx); err != nil {
			t.Fatal(err)
		}
		defer stop(t, c)
		cancel()
		insert(t, c, batch(1))
		if err := receive(t, "an attempt", done); err != nil {
			t.Error(err)
		}
	})
}

func TestAlive(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		took, release := make(chan struct{}, 10), make(chan struct{})
		c := p.client(t, func(context.Context, Batch, int, bool) error { took <- struct{}{}; <-release; return nil },
			func(o *Options) { o.Workers = 2 })
		if err := c.Alive(); err == nil {
			t.Error("alive before its start")
		}
		start(t, c)
		if err := c.Alive(); err != nil {
			t.Error(err)
		}
		insert(t, c, batch(1), batch(2, func(b *Batch) { b.Queue = Interactive }))
		receive(t, "executing", took)
		receive(t, "executing", took)
		future := time.Now().Add(c.pulse.patience + time.Second)
		if err := c.pulse.alive(future); err != nil {
			t.Errorf("with all slots taken: %v", err)
		}
		if err := c.pulse.alive(time.Now().Add(time.Hour)); err == nil {
			t.Error("alive without a sign of life for an hour")
		}
		close(release)
		eventually(t, "slots to spare, and no look at the queues", func() bool { return c.pulse.alive(future) != nil })
	})
}

// TestFetchFails: a queue that cannot be looked at shows, and recovers by itself.
func TestFetchFails(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		done := make(chan struct{}, 1)
		c := p.client(t, func(context.Context, Batch, int, bool) error { done <- struct{}{}; return nil },
			func(o *Options) { o.Logger = slog.New(slog.DiscardHandler) })
		c.pulse.patience = 300 * time.Millisecond
		start(t, c)
		insert(t, c, batch(1))
		receive(t, "executed", done)
		mustExec(t, c.o.DB, `ALTER TABLE `+p.job()+` RENAME TO elsewhere`)
		eventually(t, "not alive", func() bool { return c.Alive() != nil })
		back := `ALTER TABLE elsewhere RENAME TO river_job`
		if !p.sqlite {
			back = `ALTER TABLE curfew.elsewhere RENAME TO river_job`
		}
		mustExec(t, c.o.DB, back)
		eventually(t, "alive", func() bool { return c.Alive() == nil })
		insert(t, c, batch(2))
		receive(t, "executed", done)
	})
}

// TestLost: a job that counts as a living process's own, and that it does not
// have, comes back; what it has does not.
func TestLost(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		took, release := make(chan [2]int64, 10), make(chan struct{})
		c := start(t, p.client(t, func(_ context.Context, b Batch, attempt int, _ bool) error {
			took <- [2]int64{b.Seq, int64(attempt)}
			if b.Seq == 2 {
				<-release
			}
			return nil
		}, func(o *Options) { o.Beat = quick }))
		defer close(release)
		insert(t, c, batch(1), batch(2))
		receive(t, "executing", took)
		receive(t, "executing", took)
		done := `SELECT count(*) FROM ` + p.job() + ` WHERE state = 'completed'`
		eventually(t, "done", func() bool { return one[int](t, c.o.DB, done) == 1 })
		// As it would look had River not been able to write the result.
		mustExec(t, c.o.DB, `UPDATE `+p.job()+` SET state = 'running', finalized_at = NULL WHERE state = 'completed'`)
		if got := receive(t, "executed again", took); got != [2]int64{1, 2} {
			t.Errorf("batch %d, attempt %d", got[0], got[1])
		}
		eventually(t, "done", func() bool { return one[int](t, c.o.DB, done) == 1 })
		before := beats(c)
		eventually(t, "a good number of beats", func() bool { return beats(c) > before+4*deadBeats })
		if len(took) > 0 {
			t.Errorf("batch %v was executed twice at once", <-took)
		}
	})
}

// TestNoLeader: with a leader that only claims to lead, what is due again still
// comes back.
func TestNoLeader(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		took := make(chan int, 10)
		c := p.client(t, func(_ context.Context, _ Batch, attempt int, _ bool) error {
			took <- attempt
			if attempt == 1 {
				return errors.New("no")
			}
			return nil
		}, func(o *Options) { o.Beat = quick })
		mustExec(t, c.o.DB, `INSERT INTO `+strings.Replace(p.job(), "river_job", "river_leader", 1)+` (elected_at, expires_at, leader_id)
			VALUES ('2026-01-01 00:00:00', '2999-01-01 00:00:00', 'nobody')`)
		start(t, c)
		insert(t, c, batch(1, func(b *Batch) { b.Backoff = time.Hour }))
		receive(t, "an attempt", took)
		eventually(t, "retryable", func() bool { return one[string](t, c.o.DB, `SELECT state FROM `+p.job()) == "retryable" })
		before := beats(c)
		eventually(t, "a good number of beats", func() bool { return beats(c) > before+deadBeats })
		if len(took) > 0 {
			t.Fatal("tried again before its time")
		}
		mustExec(t, c.o.DB, `UPDATE `+p.job()+` SET scheduled_at = created_at`)
		if attempt := receive(t, "another attempt", took); attempt != 2 {
			t.Errorf("attempt %d", attempt)
		}
	})
}

// TestRole: a role that owns none of the tables needs these rights and no more.
func TestRole(t *testing.T) {
	p := place{url: dbtest.Postgres(t)}
	owner := p.open(t)
	mustExec(t, owner, `CREATE SCHEMA curfew`)
	if err := Migrate(t.Context(), owner, false, "curfew"); err != nil {
		t.Fatal(err)
	}
	url, role := dbtest.PostgresRole(t, p.url)
	for _, s := range []string{
		`GRANT USAGE ON SCHEMA curfew TO `,
		`GRANT SELECT, INSERT, UPDATE, DELETE ON curfew.river_job, curfew.river_leader, curfew.river_queue, curfew.queue_client TO `,
		`GRANT SELECT ON curfew.river_migration TO `,
		`GRANT USAGE ON SEQUENCE curfew.river_job_id_seq TO `,
	} {
		mustExec(t, owner, s+role)
	}
	took := make(chan int, 10)
	var log bytes.Buffer
	c := place{url: url}.client(t, func(_ context.Context, _ Batch, attempt int, _ bool) error {
		took <- attempt
		if attempt == 1 {
			return errors.New("no")
		}
		return nil
	}, func(o *Options) { o.Beat = quick; o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	start(t, c)
	insert(t, c, batch(1))
	receive(t, "an attempt", took)
	receive(t, "another", took)
	before := beats(c)
	eventually(t, "led", func() bool { return one[int](t, owner, `SELECT count(*) FROM curfew.river_leader`) == 1 })
	eventually(t, "a good number of beats", func() bool { return beats(c) > before+2*deadBeats })
	stop(t, c)
	if strings.Contains(log.String(), "permission") {
		t.Errorf("the log: %s", log.String())
	}
}

const (
	childVar  = "CURFEW_RIVERQ_CHILD" // what the process shall do
	urlVar    = "CURFEW_RIVERQ_URL"
	sqliteVar = "CURFEW_RIVERQ_SQLITE"

	quick  = 50 * time.Millisecond  // a beat for processes that are to die
	slower = 300 * time.Millisecond // for those that must not look dead on a machine that is busy
)

// child works the queue in a process of its own, until it has executed one batch.
func child(job string) int {
	p := place{url: os.Getenv(urlVar), sqlite: os.Getenv(sqliteVar) != ""}
	db, err := p.connect()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer db.Close()
	done := make(chan struct{})
	beat := quick
	if job == "hang" {
		beat = slower
	}
	c, err := New(Options{DB: db, SQLite: p.sqlite, Schema: p.schema(), Workers: 2, Reserved: 1, ID: "test", Beat: beat,
		Execute: func(_ context.Context, b Batch, attempt int, last bool) error {
			fmt.Println(b.Seq, attempt, last)
			switch {
			case job == "hang":
				select {}
			case attempt <= b.Attempts:
				os.Exit(137)
			}
			close(done)
			return nil
		}})
	if err == nil {
		err = c.Start(context.Background())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	<-done
	if err := c.Stop(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func childCommand(t testing.TB, job string, p place) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^$")
	cmd.Env = append(os.Environ(), childVar+"="+job, urlVar+"="+p.url)
	if p.sqlite {
		cmd.Env = append(cmd.Env, sqliteVar+"=1")
	}
	cmd.Stderr = os.Stderr
	return cmd
}

// TestKilled: the batch of a process that was killed goes to another process
// soon, and that attempt counts. One that only takes long in a living process
// stays where it is.
func TestKilled(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		inserter := p.client(t, nil, func(o *Options) { o.Workers, o.Reserved, o.Execute = 0, 0, nil })
		insert(t, inserter, batch(1))
		cmd := childCommand(t, "hang", p)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer cmd.Wait()
		defer cmd.Process.Kill()
		var seq, attempt int
		var last bool
		if _, err := fmt.Fscan(out, &seq, &attempt, &last); err != nil || seq != 1 || attempt != 1 {
			t.Fatalf("the process executes %d, attempt %d: %v", seq, attempt, err)
		}

		took := make(chan int, 10)
		c := start(t, p.client(t, func(_ context.Context, _ Batch, attempt int, _ bool) error { took <- attempt; return nil },
			func(o *Options) { o.Beat = slower }))
		before := beats(c)
		eventually(t, "a good number of beats", func() bool { return beats(c) > before+2*deadBeats })
		if len(took) > 0 {
			t.Fatal("taken from a process that lives")
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		killed := time.Now()
		if attempt := receive(t, "taken over", took); attempt != 2 {
			t.Errorf("attempt %d", attempt)
		}
		t.Logf("taken over %s after the kill, with a beat of %s", time.Since(killed).Round(time.Millisecond), slower)
	})
}

// beats counts the beats of a client by what they leave.
func beats(c *Client) int64 { return c.pulse.count.Load() }

// TestPoison: a batch that kills every process that executes it is executed as
// often as its policy says and no more, and then reported.
func TestPoison(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		inserter := p.client(t, nil, func(o *Options) { o.Workers, o.Reserved, o.Execute = 0, 0, nil })
		insert(t, inserter, batch(1, func(b *Batch) { b.Attempts = 2 }))
		var said []string
		for range 3 {
			out, err := childCommand(t, "poison", p).Output()
			said = append(said, fmt.Sprintf("%s%v", out, err))
		}
		want := []string{"1 1 false\nexit status 137", "1 2 true\nexit status 137", "1 3 true\n<nil>"}
		if !slices.Equal(said, want) {
			t.Errorf("got %q", said)
		}
		if s := one[string](t, inserter.o.DB, `SELECT state FROM `+p.job()); s != "completed" {
			t.Errorf("the job is %s", s)
		}
	})
}

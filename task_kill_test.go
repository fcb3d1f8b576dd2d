package curfew

import (
	"context"
	"database/sql"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/riverq"
	"curfew.dev/curfew/task"
)

// An effect is what the killed processes are asked for, by its number.
type effect struct {
	N int64 `json:"n"`
}

// effects are tasks whose work is a row with a key, so that a second time changes nothing; each attempt that begins leaves a row, too.
func effects(db *sql.DB) []*task.Task {
	retry := task.Retry{Attempts: 30, Backoff: time.Second, Factor: 1}
	try := func(ctx context.Context, info task.Info) error {
		_, err := db.ExecContext(ctx, "INSERT INTO tried (call, attempt) VALUES ($1, $2)", info.ID, info.Attempt)
		return err
	}
	return []*task.Task{
		task.New("effect", func(ctx context.Context, c task.Call[effect]) error {
			if err := try(ctx, c.Info); err != nil {
				return err
			}
			_, err := db.ExecContext(ctx, "INSERT INTO effect (n) VALUES ($1) ON CONFLICT (n) DO NOTHING", c.Args.N)
			return err
		}, task.Options{Retry: retry}),
		task.New("poison", func(ctx context.Context, c task.Call[effect]) error {
			if err := try(ctx, c.Info); err != nil {
				return err
			}
			os.Exit(137)
			return nil
		}, task.Options{Retry: task.Retry{Attempts: 2, Backoff: time.Second, Factor: 1}, Concurrency: 1}),
	}
}

// effectsDB is the application's database: the ledger's own on PostgreSQL, a file of its own beside one on SQLite.
func effectsDB(t *testing.T, ledger string) *sql.DB {
	t.Helper()
	driver, dsn := "pgx", ledger
	if path, ok := strings.CutPrefix(ledger, "sqlite:"); ok {
		driver, dsn = "sqlite", "file:"+path+".app?_txlock=immediate&_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
	}
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// TestEffectProcess is no test: it is the process that the next one kills.
func TestEffectProcess(t *testing.T) {
	ledger := os.Getenv("CURFEW_TEST_EFFECTS")
	if ledger == "" {
		return
	}
	dispatch.HeartbeatEvery = time.Second // the dead are missed in three
	c, err := New(Options{Ledger: ledger, Tasks: effects(effectsDB(t, ledger)), Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until our parent closes it, or is gone
	if err := c.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// Calls survive their processes: each is done, its effect is there once, and its attempts are counted. One that kills whoever takes it
// fails for good after its attempts, and the others get on.
func TestCallsOfKilledProcesses(t *testing.T) {
	if testing.Short() {
		t.Skip("kills processes for half a minute")
	}
	onEachLedger(t, func(t *testing.T, ledger string) {
		n := 10_000
		if strings.HasPrefix(ledger, "sqlite") {
			n = 3000
		}
		db := effectsDB(t, ledger)
		for _, s := range []string{"CREATE TABLE effect (n BIGINT PRIMARY KEY)", "CREATE TABLE tried (call BIGINT, attempt BIGINT, PRIMARY KEY (call, attempt))"} {
			if _, err := db.ExecContext(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		tasks := effects(db)
		o := newOffice(t, ledger, tasks...)
		poison, err := o.c.Defer(t.Context(), tasks[1], effect{})
		if err != nil {
			t.Fatal(err)
		}
		deferMany(t, o.c, tasks[0], n)

		type proc struct {
			kill func() error
			dead chan struct{} // closed
		}
		procs := make([]proc, 2)
		start := func(i int) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEffectProcess$")
			cmd.Env = append(os.Environ(), "CURFEW_TEST_EFFECTS="+ledger)
			cmd.Stderr = o.logs
			if _, err := cmd.StdinPipe(); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			procs[i] = proc{cmd.Process.Kill, make(chan struct{})}
			dead := procs[i].dead
			go func() { defer close(dead); _ = cmd.Wait() }()
		}
		for i := range procs {
			start(i)
		}
		count := func(state string, task string) int64 {
			t.Helper()
			q, err := o.c.inserter(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			found, err := q.CountCalls(t.Context(), riverq.CallFilter{Task: task, State: riverq.CallState(state)})
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		kills, deadline := 0, time.Now().Add(4*time.Minute)
		for count(api.CallSucceeded, "effect") < int64(n) || count(api.CallFailed, "poison") == 0 {
			if time.Now().After(deadline) {
				t.Fatalf("%d of %d are done, %d failed, after %d kills\n%s", count(api.CallSucceeded, "effect"), n, count(api.CallFailed, "effect"), kills, o.logs)
			}
			if kills < 12 {
				_ = procs[rand.IntN(len(procs))].kill()
				kills++
			}
			for i, p := range procs {
				select {
				case <-p.dead: // by us, or by the call that kills
					start(i)
				default:
				}
			}
			if err := pause(t.Context(), time.Duration(300+rand.IntN(500))*time.Millisecond); err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range procs {
			_ = p.kill()
			<-p.dead
		}
		var effects, attempts, most int64
		if err := db.QueryRowContext(t.Context(), "SELECT count(*), COALESCE(min(n), 0) * 0 + (SELECT count(*) FROM tried), (SELECT max(attempt) FROM tried) FROM effect").Scan(&effects, &attempts, &most); err != nil {
			t.Fatal(err)
		}
		if effects != int64(n) || attempts < int64(n) {
			t.Errorf("%d effects of %d calls, in %d attempts", effects, n, attempts)
		}
		// An attempt that began is among those that the call counts.
		rows, err := db.QueryContext(t.Context(), "SELECT call, max(attempt) FROM tried GROUP BY call HAVING max(attempt) > 1")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		again := 0
		for rows.Next() {
			var id int64
			var tried int
			if err := rows.Scan(&id, &tried); err != nil {
				t.Fatal(err)
			}
			again++
			call, err := o.c.TaskCall(t.Context(), id)
			if err != nil || call.Attempt < tried {
				t.Errorf("call %d began attempt %d, and counts %d, %v", id, tried, call.Attempt, err)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		call, err := o.c.TaskCall(t.Context(), poison.ID)
		if err != nil || call.State != api.CallFailed || call.Attempt != 2 || !strings.Contains(call.Error, "died") {
			t.Errorf("the one that kills: %+v, %v", call, err)
		}
		t.Logf("%d calls, %d kills, %d attempts, %d calls with more than one", n, kills, attempts, again)
	})
}

// deferMany defers calls numbered from 0, some hundred in a transaction.
func deferMany(t *testing.T, c *Curfew, one *task.Task, n int) {
	t.Helper()
	q, err := c.inserter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for from := 0; from < n; from += 500 {
		var calls []riverq.Call
		for i := from; i < min(n, from+500); i++ {
			args, err := one.Encode(effect{int64(i)})
			if err != nil {
				t.Fatal(err)
			}
			call, err := c.deferral(t.Context(), one.Name(), args, nil, "defer", nil)
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, call)
		}
		if err := l.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			_, err := q.DeferTx(ctx, tx, calls)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}

}

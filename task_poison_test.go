package curfew

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/alert"
	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/task"
)

const (
	childVar      = "CURFEW_TEST_CHILD"       // the ledger of a process that works and is killed: this test binary
	childAheadVar = "CURFEW_TEST_CHILD_AHEAD" // how far its clock is ahead
)

type number struct {
	N int `json:"n"`
}

// childTasks are those of the process, with its handle to the application's tables.
func childTasks(db *sql.DB) []*task.Task {
	often := task.Retry{Attempts: 100, Backoff: time.Millisecond, Factor: 1}
	die := func(context.Context, task.Call[struct{}]) error { os.Exit(137); return nil }
	return []*task.Task{
		task.New("count", func(ctx context.Context, c task.Call[number]) error {
			_, err := db.ExecContext(ctx, `INSERT INTO effect (n, tries) VALUES ($1, 1) ON CONFLICT (n) DO UPDATE SET tries = effect.tries + 1`, c.Args.N)
			return err
		}, task.Options{Retry: often}),
		task.New("killer", die, task.Options{Retry: task.Retry{Attempts: 3, Backoff: time.Millisecond, Factor: 1}}),
		task.New("killer.minutely", die, task.Options{Cron: "* * * * *", Retry: task.Retry{Attempts: 2, Backoff: time.Millisecond, Factor: 1}}),
	}
}

func openChildDB(url string) (*sql.DB, error) {
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok {
		return sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(20000)&_txlock=immediate")
	}
	return sql.Open("pgx", url)
}

// This test binary is the process, when the environment says so.
func init() {
	if os.Getenv(childVar) != "" {
		taskChild()
	}
}

// taskChild works until it is killed.
func taskChild() {
	url := os.Getenv(childVar)
	ahead, err := time.ParseDuration(os.Getenv(childAheadVar))
	if err != nil {
		ahead = 0
	}
	dispatch.HeartbeatEvery = time.Second // dead after three
	db, err := openChildDB(url)
	if err == nil {
		tasks := childTasks(db)
		if ahead == 0 {
			tasks = tasks[:2]
		}
		o := Options{Ledger: url, Tasks: tasks, Actor: "child", Logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
		if ahead != 0 {
			o.Clock = func() time.Time { return time.Now().Add(ahead) }
		}
		var c *Curfew
		if c, err = New(o); err == nil {
			err = c.Start(context.Background())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("working")
	select {}
}

// child is such a process.
type child struct {
	cmd  *exec.Cmd
	log  lockedBuffer
	done chan struct{}
}

func (l *aLedger) child(ahead time.Duration) *child {
	l.Helper()
	p := &child{cmd: exec.CommandContext(context.WithoutCancel(l.Context()), os.Args[0]), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childVar+"="+l.url, childAheadVar+"="+ahead.String())
	p.cmd.Stderr = &p.log
	if err := p.cmd.Start(); err != nil {
		l.Fatal(err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	l.Cleanup(p.kill)
	return p
}

func (p *child) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// A task that kills its process has failed for good after its attempts, which is told, and others go on. So it is with a periodic one,
// whose occurrence has failed.
func TestTaskThatKills(t *testing.T) {
	onLedgers(t, func(t *testing.T, l *aLedger) {
		if _, err := l.db.Exec(`CREATE TABLE effect (n INTEGER PRIMARY KEY, tries INTEGER NOT NULL)`); err != nil {
			t.Fatal(err)
		}
		tasks, ahead := childTasks(nil), time.Duration(0)
		if !l.postgres { // a server has a clock of its own: no minute comes there within a test
			ahead = time.Until(time.Now().Truncate(time.Minute).Add(time.Minute - 3*time.Second))
		} else {
			tasks = tasks[:2]
		}
		c := l.app(tasks, func(o *Options) {
			if ahead != 0 {
				o.Clock = func() time.Time { return time.Now().Add(ahead) }
			}
		})
		killer, err := c.Defer(t.Context(), tasks[1], nil)
		if err != nil {
			t.Fatal(err)
		}
		var others []Deferred
		for n := range 20 {
			d, err := c.Defer(t.Context(), tasks[0], number{n})
			if err != nil {
				t.Fatal(err)
			}
			others = append(others, d)
		}
		// A supervisor starts what has died.
		stop := make(chan struct{})
		var wg sync.WaitGroup
		deaths := 0
		wg.Go(func() {
			for {
				p := l.child(ahead)
				select {
				case <-p.done:
					deaths++
				case <-stop:
					p.kill()
					return
				}
			}
		})
		defer wg.Wait()
		defer close(stop)
		got := l.call(c, killer.ID, api.CallFailed)
		if got.Attempt != 3 || got.Error != "its process died" {
			t.Errorf("%+v", got)
		}
		for _, d := range others {
			l.call(c, d.ID, api.CallSucceeded)
		}
		led, err := c.ledger(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		told := func(kind string) (n int) {
			t.Helper()
			alerts, err := led.Alerts(t.Context(), ledger.AlertFilter{Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range alerts {
				if a.Kind == kind {
					n++
				}
			}
			return n
		}
		l.eventually("somebody is told", func() bool { return told(alert.TaskFailed) == 1 })
		if ahead == 0 {
			return
		}
		l.eventually("the occurrence has failed", func() bool {
			list, err := c.Occurrences(t.Context(), OccurrenceFilter{Policy: "killer.minutely"})
			return err == nil && len(list) > 0 && list[len(list)-1].State == api.OccurrenceFailed
		})
		runs, err := c.Runs(t.Context(), RunFilter{Policy: "killer.minutely", State: api.StateFailed})
		if err != nil || len(runs) == 0 || runs[len(runs)-1].WhyEnded != "task_failed" || !strings.Contains(runs[len(runs)-1].Detail, "its process died") {
			t.Errorf("%+v, %v", runs, err)
		}
		l.eventually("somebody is told of the run", func() bool { return told("run.failed") >= 1 })
	})
}

package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func aTask(name, revision string) TaskRecord {
	return TaskRecord{Name: name, Revision: revision, Body: []byte(`{"cron":"42 2 * * 1"}`), Queue: "mail", Priority: 2, Attempts: 5,
		Backoff: 10 * time.Second, Factor: 10, Timeout: 10 * time.Minute, Expr: "42 2 * * 1;UTC"}
}

func putTasks(t testing.TB, l *Ledger, source string, tasks ...TaskRecord) (gone []string) {
	t.Helper()
	gone, err := l.PutTasks(t.Context(), source, tasks)
	if err != nil {
		t.Fatal(err)
	}
	return gone
}

// TestTasks: a service's tasks are there as it has them. What it no longer has is gone, but for what another has taken over.
func TestTasks(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		sources := func() map[string]string {
			t.Helper()
			all, err := l.Tasks(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			m := map[string]string{}
			for _, r := range all {
				m[r.Name] = r.Source
			}
			return m
		}
		began := h.read()
		a, b := aTask("a", "1"), aTask("b", "1")
		if gone := putTasks(t, l, "file", b, a); len(gone) != 0 {
			t.Errorf("gone: %q", gone)
		}
		want := a
		want.Source, want.Since, want.SeenAt = "file", began, began
		got, err := l.TaskOf(t.Context(), "a")
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
		if _, err := l.TaskOf(t.Context(), "c"); !errors.Is(err, ErrNotFound) {
			t.Errorf("a task that there is not: %v", err)
		}

		h.add(time.Hour)
		putTasks(t, l, "file", a, aTask("b", "2"))
		for name, since := range map[string]time.Time{"a": began, "b": h.read()} {
			if r, err := l.TaskOf(t.Context(), name); err != nil || !r.Since.Equal(since) || !r.SeenAt.Equal(h.read()) {
				t.Errorf("%s: since %s, seen %s, %v", name, r.Since, r.SeenAt, err)
			}
		}
		if gone := putTasks(t, l, "program", b, aTask("c", "1")); len(gone) != 0 {
			t.Errorf("another source made %q leave", gone)
		}
		if diff := cmp.Diff(map[string]string{"a": "file", "b": "program", "c": "program"}, sources()); diff != "" {
			t.Error(diff)
		}
		if gone := putTasks(t, l, "file"); !cmp.Equal(gone, []string{"a"}) {
			t.Errorf("gone: %q, want a: b is the program's now", gone)
		}
		if diff := cmp.Diff(map[string]string{"b": "program", "c": "program"}, sources()); diff != "" {
			t.Error(diff)
		}
		if gone := putTasks(t, l, "file"); len(gone) != 0 {
			t.Errorf("gone again: %q", gone)
		}
		// a, b; b changed; b taken over, c. And a left.
		if in, out := count(t, l, ActionTaskInForce), count(t, l, ActionTaskOutOfForce); in != 5 || out != 1 {
			t.Errorf("%d entries of tasks in force, %d out of force", in, out)
		}
		for _, bad := range [][]TaskRecord{{a, a}, {{}}} {
			if _, err := l.PutTasks(t.Context(), "file", bad); err == nil {
				t.Errorf("took %v", bad)
			}
		}
	})
}

// TestPutTasksAtOnce: services that start at the same moment, with one file, see nobody leave.
func TestPutTasksAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				tasks := []TaskRecord{aTask("a", "1"), aTask("b", "1"), aTask("c", "1")}
				if gone, err := l.PutTasks(t.Context(), fmt.Sprint("source ", i%2), tasks); err != nil || len(gone) > 0 {
					t.Errorf("gone %q, %v", gone, err)
				}
			})
		}
		wg.Wait()
	})
}

// TestNote: what is done and that it was done commit together or not at all.
func TestNote(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		type noted struct {
			N int64 `json:"n"`
		}
		no := errors.New("no")
		for _, fail := range []error{no, nil} {
			var body noted
			err := l.Note(t.Context(), "calls_retried", "mail", &body, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, l.q(`INSERT INTO @lock (name) VALUES ('x')`)); err != nil {
					return err
				}
				body.N = 7
				return fail
			})
			if !errors.Is(err, fail) {
				t.Fatal(err)
			}
			want := 1
			if fail != nil {
				want = 0
			}
			if n := one[int](t, l, `SELECT count(*) FROM @lock`); n != want || count(t, l, "calls_retried") != want {
				t.Errorf("with %v: %d rows, %d entries", fail, n, count(t, l, "calls_retried"))
			}
		}
		if err := l.Note(t.Context(), ActionCallFailed, "mail", noted{1}, nil); err != nil {
			t.Error(err)
		}
		if err := l.Note(t.Context(), "", "mail", noted{1}, nil); err == nil {
			t.Error("noted nothing in particular")
		}
		last := entries(t, l)
		got := last[len(last)-2:]
		want := []Entry{{Actor: "test", Action: "calls_retried", Policy: "mail", Body: json.RawMessage(`{"n":7}`)},
			{Actor: "test", Action: ActionCallFailed, Policy: "mail", Body: json.RawMessage(`{"n":1}`)}}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(Entry{}, "Seq", "At")); diff != "" {
			t.Error(diff)
		}
	})
}

// TestMemory: a ledger in memory is a ledger, for all its connections at once, and nobody else's.
func TestMemory(t *testing.T) {
	l, other := open(t, Options{Memory: true}), open(t, Options{Memory: true})
	if _, err := l.migrate(t.Context()); err != nil {
		t.Error(err)
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 5 {
				r := accept(t, l, an(fmt.Sprint("p", i), IdentityOnce()))
				if _, err := l.Get(t.Context(), r.ID); err != nil {
					t.Error(err)
				}
				if _, err := l.Start(t.Context(), r.ID, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	// Whatever the pools do with what nobody uses.
	l.write.SetConnMaxIdleTime(time.Nanosecond)
	l.read.SetMaxIdleConns(0)
	l.write.SetMaxIdleConns(0)
	if runs, err := l.OpenRuns(t.Context()); err != nil || len(runs) != 40 {
		t.Errorf("%d runs, %v", len(runs), err)
	}
	if runs, err := other.OpenRuns(t.Context()); err != nil || len(runs) != 0 {
		t.Errorf("another ledger has %d runs, %v", len(runs), err)
	}
	q, err := l.QueueDB(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := q.DB.QueryRow(`SELECT count(*) FROM curfew_run`).Scan(new(int)); err != nil {
		t.Error(err)
	}
}

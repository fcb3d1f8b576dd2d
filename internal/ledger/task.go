package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"
)

// The actions of tasks in the audit log.
const (
	ActionTaskInForce    = "task_in_force"
	ActionTaskOutOfForce = "task_out_of_force"
	ActionCallFailed     = "call_failed" // a call without a run, for good; see Note
)

// TaskRecord is a task as a service has it: who wants to call it needs no more.
type TaskRecord struct {
	Name     string
	Source   string // the file or program that it is from
	Revision string
	Body     []byte // its settings as JSON, without secrets
	Queue    string
	Priority int
	Attempts int
	Backoff  time.Duration
	Factor   int
	Timeout  time.Duration
	Expr     string    // of its schedule; "": it has none
	Since    time.Time // since when it has this revision
	SeenAt   time.Time // when a service said last that it has it
}

const taskColumns = `name, source, revision, body, queue, priority, attempts, backoff_ns, factor, timeout_ns, expr, since, seen`

func scanTask(row scanner) (r TaskRecord, err error) {
	var body string
	err = row.Scan(&r.Name, &r.Source, &r.Revision, &body, &r.Queue, &r.Priority, &r.Attempts, (*int64)(&r.Backoff), &r.Factor,
		(*int64)(&r.Timeout), &r.Expr, (*stamp)(&r.Since), (*stamp)(&r.SeenAt))
	r.Body = []byte(body)
	return r, err
}

// PutTasks notes the tasks that a service has from now on, and returns those of the same source that it has no longer and nobody
// knows any more: they can be called no longer, and their schedules and open runs are the caller's to end. A task that another
// source has taken over is left alone. Of several services the one that says it last decides.
func (l *Ledger) PutTasks(ctx context.Context, source string, tasks []TaskRecord) (gone []string, err error) {
	tasks = slices.SortedFunc(slices.Values(tasks), func(a, b TaskRecord) int { return cmp.Compare(a.Name, b.Name) })
	for i, r := range tasks {
		if r.Name == "" || i > 0 && r.Name == tasks[i-1].Name {
			return nil, fmt.Errorf("put the tasks of %s in force: the name %q is there twice, or none", source, r.Name)
		}
	}
	err = l.tx(ctx, func(t *txn) error {
		gone = nil
		if err := t.lockTasks(ctx); err != nil {
			return err
		}
		rows, err := t.query(ctx, `SELECT `+taskColumns+` FROM @task ORDER BY name`)
		if err != nil {
			return err
		}
		all, err := collect(rows, scanTask)
		if err != nil {
			return err
		}
		was := map[string]TaskRecord{}
		for _, r := range all {
			was[r.Name] = r
			there := slices.ContainsFunc(tasks, func(k TaskRecord) bool { return k.Name == r.Name })
			if r.Source == source && !there {
				gone = append(gone, r.Name)
			}
		}
		for _, r := range tasks {
			if err := t.putTask(ctx, r, source, was[r.Name]); err != nil {
				return err
			}
		}
		for _, name := range gone {
			if _, err := t.exec(ctx, `DELETE FROM @task WHERE name = $1`, name); err != nil {
				return err
			}
			if err := t.audit(entry{action: ActionTaskOutOfForce, policy: name, body: struct {
				Source string `json:"source"`
			}{source}}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("put the tasks of %s in force: %w", source, err)
	}
	return gone, nil
}

// lockTasks keeps others from putting tasks in force until this transaction ends: what is gone is decided on all of them.
func (t *txn) lockTasks(ctx context.Context) error {
	if t.l.sqlite { // its writers take turns anyway
		return nil
	}
	_, err := t.exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('curfew tasks', 0))`)
	return err
}

func (t *txn) putTask(ctx context.Context, r TaskRecord, source string, was TaskRecord) error {
	now, err := t.clock(ctx)
	if err != nil {
		return err
	}
	since := now
	if was.Revision == r.Revision && was.Name != "" {
		since = was.Since
	}
	if _, err := t.exec(ctx, `INSERT INTO @task (`+taskColumns+`) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
		ON CONFLICT (name) DO UPDATE SET source = excluded.source, revision = excluded.revision, body = excluded.body, queue = excluded.queue,
			priority = excluded.priority, attempts = excluded.attempts, backoff_ns = excluded.backoff_ns, factor = excluded.factor,
			timeout_ns = excluded.timeout_ns, expr = excluded.expr, since = excluded.since, seen = excluded.seen`,
		r.Name, source, r.Revision, text(string(r.Body)), r.Queue, r.Priority, r.Attempts, int64(r.Backoff), r.Factor, int64(r.Timeout), r.Expr,
		stamp(since), stamp(now)); err != nil || was.Revision == r.Revision && was.Source == source {
		return err
	}
	return t.audit(entry{action: ActionTaskInForce, policy: r.Name, body: struct {
		Revision string `json:"revision"`
		Was      string `json:"was"`
		Source   string `json:"source"`
	}{r.Revision, was.Revision, source}})
}

// Tasks returns the tasks that services have, by name.
func (l *Ledger) Tasks(ctx context.Context) ([]TaskRecord, error) {
	rows, err := l.query(ctx, `SELECT `+taskColumns+` FROM @task ORDER BY name`)
	if err != nil {
		return nil, fmt.Errorf("list the tasks: %w", err)
	}
	all, err := collect(rows, scanTask)
	if err != nil {
		return nil, fmt.Errorf("list the tasks: %w", err)
	}
	return all, nil
}

// TaskOf returns the task of a name. One that no service has is ErrNotFound.
func (l *Ledger) TaskOf(ctx context.Context, name string) (TaskRecord, error) {
	r, err := scanTask(l.queryRow(ctx, `SELECT `+taskColumns+` FROM @task WHERE name = $1`, name))
	if errors.Is(err, sql.ErrNoRows) {
		return TaskRecord{}, fmt.Errorf("%w: no task %s", ErrNotFound, name)
	}
	if err != nil {
		return TaskRecord{}, fmt.Errorf("read task %s: %w", name, err)
	}
	return r, nil
}

// IsTask reports whether what a schedule, an occurrence or a run is of is, or was, a task: no policy has the name of one.
func (l *Ledger) IsTask(ctx context.Context, name string) (is bool, err error) {
	err = l.queryRow(ctx, `SELECT EXISTS (SELECT 1 FROM @task WHERE name = $1)
		OR EXISTS (SELECT 1 FROM @run WHERE policy = $1 AND stage = '' AND mode = 'task')`, name).Scan(&is)
	if err != nil {
		return false, fmt.Errorf("look whether %s is a task: %w", name, err)
	}
	return is, nil
}

// Note does something in the ledger's database and writes down that it was done, in one transaction. fn may be called more than
// once, in another transaction each time, and may fill the body in, which is JSON; nil does nothing.
func (l *Ledger) Note(ctx context.Context, action, policy string, body any, fn func(ctx context.Context, tx *sql.Tx) error) error {
	if action == "" {
		return errors.New("note: an action is needed")
	}
	err := l.tx(ctx, func(t *txn) error {
		if fn != nil {
			if err := fn(ctx, t.tx); err != nil {
				return err
			}
		}
		return t.audit(entry{action: action, policy: policy, body: body})
	})
	if err != nil {
		return fmt.Errorf("note %s of %s: %w", action, policy, err)
	}
	return nil
}

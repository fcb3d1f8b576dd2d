package ledger

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

const ModeTask = "task"

type TaskRecord struct {
	Name, Source, Revision string
	Body                   []byte
	Queue                  string
	Priority, Attempts     int
	Backoff                time.Duration
	Factor                 int
	Timeout                time.Duration
	Expr                   string
	Since, SeenAt          time.Time
}

const taskColumns = `name, source, revision, body, queue, priority, attempts, backoff_ns, factor, timeout_ns, expr, since, seen`

func scanTask(row scanner) (r TaskRecord, err error) {
	err = row.Scan(&r.Name, &r.Source, &r.Revision, &r.Body, &r.Queue, &r.Priority, &r.Attempts, &r.Backoff, &r.Factor, &r.Timeout, &r.Expr, (*stamp)(&r.Since), (*stamp)(&r.SeenAt))
	return r, err
}

func (l *Ledger) PutTasks(ctx context.Context, source string, tasks []TaskRecord) (gone []string, err error) {
	err = l.tx(ctx, func(t *txn) error {
		gone = nil
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		keep := map[string]bool{}
		for _, r := range tasks {
			keep[r.Name] = true
			if _, err := t.exec(ctx, `INSERT INTO @task (`+taskColumns+`) VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$12)
				ON CONFLICT (name) DO UPDATE SET source=$2, revision=$3, body=$4, queue=$5, priority=$6, attempts=$7, backoff_ns=$8, factor=$9, timeout_ns=$10, expr=$11, seen=$12`,
				r.Name, source, r.Revision, string(r.Body), r.Queue, r.Priority, r.Attempts, int64(r.Backoff), r.Factor, int64(r.Timeout), r.Expr, stamp(now)); err != nil {
				return err
			}
		}
		rows, err := t.query(ctx, `SELECT `+taskColumns+` FROM @task WHERE source = $1`, source)
		if err != nil {
			return err
		}
		all, err := collect(rows, scanTask)
		if err != nil {
			return err
		}
		for _, r := range all {
			if !keep[r.Name] {
				gone = append(gone, r.Name)
				if _, err := t.exec(ctx, `DELETE FROM @task WHERE name = $1`, r.Name); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return gone, err
}

func (l *Ledger) Tasks(ctx context.Context) ([]TaskRecord, error) {
	rows, err := l.query(ctx, `SELECT `+taskColumns+` FROM @task ORDER BY name`)
	if err != nil {
		return nil, err
	}
	return collect(rows, scanTask)
}

func (l *Ledger) TaskOf(ctx context.Context, name string) (TaskRecord, error) {
	r, err := scanTask(l.queryRow(ctx, `SELECT `+taskColumns+` FROM @task WHERE name = $1`, name))
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	return r, err
}

func (l *Ledger) OpenCalls(ctx context.Context) ([]Run, error) {
	rows, err := l.query(ctx, `SELECT `+runColumns+` FROM @run WHERE ended_at IS NULL AND mode = 'task' ORDER BY accepted_at, id`)
	if err != nil {
		return nil, err
	}
	return collectRuns(rows)
}

func (l *Ledger) BeginCall(ctx context.Context, id, owner string) (Run, error) {
	was, err := l.Get(ctx, id)
	if err != nil {
		return Run{}, err
	}
	if _, err := l.Start(ctx, id, was.Plan); err != nil {
		return Run{}, err
	}
	err = l.tx(ctx, func(t *txn) error {
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		_, err = t.exec(ctx, `UPDATE @run SET owner = $1, heartbeat = $2 WHERE id = $3 AND ended_at IS NULL`, owner, stamp(now), id)
		return err
	})
	if err != nil {
		return Run{}, err
	}
	return l.Get(ctx, id)
}

func (l *Ledger) RestCall(ctx context.Context, id, detail string) error {
	return l.tx(ctx, func(t *txn) error {
		_, err := t.exec(ctx, `UPDATE @run SET detail = $1, owner = '', heartbeat = NULL WHERE id = $2 AND ended_at IS NULL`, text(detail), id)
		return err
	})
}

func (l *Ledger) EndCall(ctx context.Context, id string, state State, why, detail string) (r Run, err error) {
	err = l.tx(ctx, func(t *txn) (err error) {
		if r, err = t.lock(ctx, id); err != nil || r.State.Ended() {
			return err
		}
		if r.EndedAt, err = t.clock(ctx); err != nil {
			return err
		}
		r.State, r.WhyEnded, r.Detail = state, why, text(detail)
		return t.end(ctx, &r)
	})
	return r, err
}

type Holder struct {
	Run     string
	Job     int64
	Attempt int
}

func (l *Ledger) Lock(ctx context.Context, name string, limit int, h Holder, live func(ctx context.Context, tx *sql.Tx, jobs []Holder) ([]bool, error)) (got bool, err error) {
	err = l.tx(ctx, func(t *txn) error {
		got = false
		rows, err := t.query(ctx, `SELECT run, job, attempt FROM @task_lock WHERE name = $1`, name)
		if err != nil {
			return err
		}
		all, err := collect(rows, func(row scanner) (h Holder, err error) {
			err = row.Scan(&h.Run, &h.Job, &h.Attempt)
			return h, err
		})
		if err != nil {
			return err
		}
		alive, err := live(ctx, t.tx, all)
		if err != nil {
			return err
		}
		n := 0
		for i, o := range all {
			if o == h {
				got = true
				return nil
			}
			if alive[i] {
				n++
				continue
			}
			if _, err := t.exec(ctx, `DELETE FROM @task_lock WHERE name = $1 AND run = $2 AND job = $3`, name, o.Run, o.Job); err != nil {
				return err
			}
		}
		if n >= limit {
			return nil
		}
		got = true
		_, err = t.exec(ctx, `INSERT INTO @task_lock (name, run, job, attempt) VALUES ($1, $2, $3, $4)`, name, h.Run, h.Job, h.Attempt)
		return err
	})
	return got, err
}

func (l *Ledger) Unlock(ctx context.Context, name string, h Holder) error {
	return l.tx(ctx, func(t *txn) error {
		_, err := t.exec(ctx, `DELETE FROM @task_lock WHERE name = $1 AND run = $2 AND job = $3 AND attempt = $4`, name, h.Run, h.Job, h.Attempt)
		return err
	})
}

func (l *Ledger) Note(ctx context.Context, action, policy string, body any, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return l.tx(ctx, func(t *txn) error {
		if err := fn(ctx, t.tx); err != nil {
			return err
		}
		return t.audit(entry{action: action, policy: policy, body: body})
	})
}

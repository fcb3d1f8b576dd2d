package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
)

// Holder is who holds a lock. It is a fact that others can look up, and no promise that runs out: a run holds while it is open and
// has an owner, or the queue says that a batch of it executes; an attempt of a call while the queue says that it executes.
type Holder struct {
	Run     string // a policy's run; of a call the process that makes the attempt: one that is retried counts its attempts anew
	Job     int64  // the call; 0: a run
	Attempt int    // of the call
}

func (h Holder) check() error {
	if h.Run == "" && h.Job == 0 {
		return errors.New("a holder is a run or an attempt of a call")
	}
	return nil
}

// lockRow reads a lock's row and keeps others from the lock until this transaction ends. Under READ COMMITTED only a statement after
// it sees what those before us wrote, so it reads nothing else.
const lockRow = `SELECT name FROM @lock WHERE name = $1 {lock}`

// Lock takes a lock that at most limit may hold, and reports whether h holds it now. Who holds it already goes on holding it. Of the
// others a holder counts until it is found not to live, which is asked only when there is no place otherwise: of runs the ledger
// itself; of calls, and of runs that have ended or no owner, live, in the lock's transaction and in the order given. A crash leaves the row of a holder that lives no longer.
func (l *Ledger) Lock(ctx context.Context, name string, limit int, h Holder,
	live func(ctx context.Context, tx *sql.Tx, asked []Holder) ([]bool, error)) (held bool, err error) {
	if err = h.check(); err == nil && (name == "" || limit < 1) {
		err = fmt.Errorf("a lock for %d", limit)
	}
	if err != nil {
		return false, fmt.Errorf("take the lock %q: %w", name, err)
	}
	err = l.tx(ctx, func(t *txn) (err error) {
		held, err = t.takeLock(ctx, name, limit, h, live)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("take the lock %q: %w", name, err)
	}
	return held, nil
}

func (t *txn) takeLock(ctx context.Context, name string, limit int, h Holder,
	live func(ctx context.Context, tx *sql.Tx, asked []Holder) ([]bool, error)) (bool, error) {
	err := t.queryRow(ctx, lockRow, name).Scan(new(string))
	if errors.Is(err, sql.ErrNoRows) {
		// A rival's uncommitted row makes this wait; then it inserts nothing.
		if _, err = t.exec(ctx, `INSERT INTO @lock (name) VALUES ($1) ON CONFLICT (name) DO NOTHING`, name); err == nil {
			err = t.queryRow(ctx, lockRow, name).Scan(new(string))
		}
	}
	if err != nil {
		return false, err
	}
	rows, err := t.query(ctx, `SELECT run, job, attempt FROM @lock_holder WHERE name = $1 ORDER BY since, run, job, attempt`, name)
	if err != nil {
		return false, err
	}
	holders, err := collect(rows, func(row scanner) (o Holder, err error) {
		err = row.Scan(&o.Run, &o.Job, &o.Attempt)
		return o, err
	})
	if err != nil {
		return false, err
	}
	if slices.Contains(holders, h) {
		return true, nil
	}
	if len(holders) >= limit {
		n, err := t.dropStale(ctx, name, holders, live)
		if err != nil || n >= limit {
			return false, err
		}
	}
	now, err := t.clock(ctx)
	if err != nil {
		return false, err
	}
	_, err = t.exec(ctx, `INSERT INTO @lock_holder (name, run, job, attempt, since) VALUES ($1, $2, $3, $4, $5)`, name, h.Run, h.Job, h.Attempt, stamp(now))
	return err == nil, err
}

// dropStale drops the holders that live no longer, and returns how many are left.
func (t *txn) dropStale(ctx context.Context, name string, holders []Holder,
	live func(ctx context.Context, tx *sql.Tx, asked []Holder) ([]bool, error)) (left int, err error) {
	var asked []Holder
	for _, o := range holders {
		if o.Job != 0 {
			asked = append(asked, o)
			continue
		}
		var owned bool
		if err := t.queryRow(ctx, `SELECT EXISTS (SELECT 1 FROM @run WHERE id = $1 AND ended_at IS NULL AND owner <> '')`, o.Run).Scan(&owned); err != nil {
			return 0, err
		}
		if owned {
			left++
		} else {
			asked = append(asked, o)
		}
	}
	if len(asked) == 0 {
		return left, nil
	}
	if live == nil {
		return 0, errors.New("others hold it, and nobody says which of them execute")
	}
	alive, err := live(ctx, t.tx, asked)
	if err != nil {
		return 0, err
	}
	if len(alive) != len(asked) {
		return 0, fmt.Errorf("of %d of %d holders it is said whether they execute", len(alive), len(asked))
	}
	for i, o := range asked {
		if alive[i] {
			left++
			continue
		}
		if err := t.dropHolder(ctx, name, o); err != nil {
			return 0, err
		}
	}
	return left, nil
}

func (t *txn) dropHolder(ctx context.Context, name string, h Holder) error {
	_, err := t.exec(ctx, `DELETE FROM @lock_holder WHERE name = $1 AND run = $2 AND job = $3 AND attempt = $4`, name, h.Run, h.Job, h.Attempt)
	return err
}

// Unlock gives a lock up; one that h does not hold, whoever does, stays as it is.
func (l *Ledger) Unlock(ctx context.Context, name string, h Holder) error {
	err := l.tx(ctx, func(t *txn) error { return t.dropHolder(ctx, name, h) })
	if err != nil {
		return fmt.Errorf("give up the lock %q: %w", name, err)
	}
	return nil
}

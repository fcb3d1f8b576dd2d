package main

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// foreground is an application at work: at a fixed rate, whatever the answers take, it reads a living row of the table and
// changes an account. A late answer does not delay the next question, and the time that a question waits for a free connection
// counts: otherwise the worst moments would be asked about least.
type foreground struct {
	cancel context.CancelFunc
	done   sync.WaitGroup
	mu     sync.Mutex
	ops    []operation
	err    error
}

type operation struct {
	due  time.Time
	took time.Duration
}

const (
	foregroundConns = 8
	accounts        = 100_000
)

func startForeground(ctx context.Context, a *arena, perSecond int) *foreground {
	ctx, cancel := context.WithCancel(ctx)
	f := &foreground{cancel: cancel}
	asked := make(chan time.Time, 1<<16)
	f.done.Go(func() {
		defer close(asked)
		every := time.Second / time.Duration(perSecond)
		for due := time.Now(); sleep(ctx, time.Until(due)) == nil; due = due.Add(every) {
			select {
			case asked <- due:
			default: // minutes behind: what is asked already says so
			}
		}
	})
	for range foregroundConns {
		f.done.Go(func() {
			for due := range asked {
				err := operate(ctx, a)
				if ctx.Err() != nil {
					continue
				}
				f.mu.Lock()
				f.ops = append(f.ops, operation{due, time.Since(due)})
				f.err = errors.Join(f.err, err)
				f.mu.Unlock()
			}
		})
	}
	return f
}

// operate is one operation: a read and a durable change, both by primary key.
func operate(ctx context.Context, a *arena) error {
	row := 1 + rand.IntN(a.table.rows)
	if !a.table.scattered { // the due ones come first: read one that stays
		row = a.table.due + 1 + rand.IntN(a.table.rows-a.table.due)
	}
	read, change := `SELECT note FROM ev WHERE id = ?`, `UPDATE account SET balance = balance + 1 WHERE id = ?`
	if a.postgres {
		read, change = `SELECT note FROM ev WHERE id = $1`, `UPDATE account SET balance = balance + 1 WHERE id = $1`
	}
	var note string
	if err := a.db.QueryRowContext(ctx, read, row).Scan(&note); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	_, err := a.db.ExecContext(ctx, change, 1+rand.IntN(accounts))
	return err
}

// stop ends the load and answers its first errors. It may be called again.
func (f *foreground) stop() error {
	f.cancel()
	f.done.Wait()
	return f.err
}

// between are the latencies of what was asked in that time.
func (f *foreground) between(from, to time.Time) []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var took []time.Duration
	for _, o := range f.ops {
		if !o.due.Before(from) && o.due.Before(to) {
			took = append(took, o.took)
		}
	}
	return took
}

package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// queueConns bounds what the queue takes from PostgreSQL: two queues that fetch,
// one that completes, one sign of life. It is a pool of its own, so that neither
// the ledger nor the queue can starve the other.
const queueConns = 4

// QueueDB is the ledger's database for the queue of batches, whose jobs commit
// with the batches that they name.
type QueueDB struct {
	DB     *sql.DB
	SQLite bool
	Schema string // of the queue's tables: "curfew" on PostgreSQL, "" on SQLite
	close  func() error
}

// Close releases what QueueDB opened. Stop the queue first, and close the ledger
// after.
func (q *QueueDB) Close() error { return q.close() }

// QueueDB opens the ledger's database for the queue. On SQLite it is the ledger's
// own writer: one process's writers wait in one line, in order, and do not fight
// for the file.
func (l *Ledger) QueueDB(ctx context.Context) (*QueueDB, error) {
	if l.sqlite {
		return &QueueDB{DB: l.write, SQLite: true, close: func() error { return nil }}, nil
	}
	cfg, err := l.postgresConfig(ctx)
	if err != nil {
		return nil, fmt.Errorf("open the queue's database: %w", err)
	}
	db := stdlib.OpenDB(*cfg, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		// As in connectPostgres: a frozen process must not hold locks on jobs.
		_, err := c.Exec(ctx, `SELECT CASE WHEN current_setting('idle_in_transaction_session_timeout') = '0'
			THEN set_config('idle_in_transaction_session_timeout', '`+idleInTxAtMost+`', false) END`)
		return err
	}))
	db.SetMaxOpenConns(queueConns)
	db.SetMaxIdleConns(queueConns)
	db.SetConnMaxIdleTime(5 * time.Minute)
	return &QueueDB{DB: db, Schema: "curfew", close: db.Close}, nil
}

// postgresConfig is what the ledger was connected with.
func (l *Ledger) postgresConfig(ctx context.Context) (*pgx.ConnConfig, error) {
	conn, err := l.write.Conn(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var cfg *pgx.ConnConfig
	err = conn.Raw(func(c any) error {
		cfg = c.(*stdlib.Conn).Conn().Config()
		return nil
	})
	return cfg, err
}

// NewBatchRef names a batch that a step has just admitted.
type NewBatchRef struct {
	Key BatchKey
	Seq int64
}

// enqueue tells the request's Enqueue what was admitted. A crash here leaves
// neither batch nor job.
func (t *txn) enqueue(ctx context.Context, r *Run, req *StepRequest) error {
	admitted := req.Admit.Batches
	if req.Enqueue == nil || len(admitted) == 0 {
		return nil
	}
	refs := make([]NewBatchRef, len(admitted))
	for i, b := range admitted {
		refs[i] = NewBatchRef{Key: b.Key, Seq: r.BatchesTotal - int64(len(admitted)-1-i)}
	}
	return req.Enqueue(ctx, t.tx, refs)
}

// Tx runs fn in a transaction of the ledger's database and commits: for what a
// queue or an outbox writes beside the ledger. fn may be called more than once,
// in another transaction each time.
func (l *Ledger) Tx(ctx context.Context, fn func(ctx context.Context, tx *sql.Tx) error) error {
	return l.tx(ctx, func(t *txn) error { return fn(ctx, t.tx) })
}

// BatchOf returns one batch of a run, with what is needed to execute it while it
// is not settled. ErrNotFound when there is none.
func (l *Ledger) BatchOf(ctx context.Context, run string, seq int64) (Batch, error) {
	batches, err := l.batches(ctx, true, `SELECT `+batchColumns+`, bounds, keys FROM @batch WHERE run = $1 AND seq = $2`, run, seq)
	if err == nil && len(batches) == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return Batch{}, fmt.Errorf("read batch %d of run %s: %w", seq, short(run), err)
	}
	return batches[0], nil
}

// SettledBatch returns what a batch was settled with, and false while it is not.
// The blocked rows are not in it, and the deferred rows are only counted: they
// have moved on. ErrNotFound when there is no such batch.
func (l *Ledger) SettledBatch(ctx context.Context, run string, seq int64) (Settlement, bool, error) {
	b, err := l.BatchOf(ctx, run, seq)
	if err != nil || b.State != Settled {
		return Settlement{}, false, err
	}
	return Settlement{Batch: b.Key, Planned: b.Planned, Outcomes: b.Outcomes, Cascaded: b.Cascaded, Deferred: b.Deferred,
		Attempts: b.Attempts, Root: b.Root, KeyID: b.KeyID, Duration: b.Duration}, true, nil
}

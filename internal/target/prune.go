package target

import (
	"context"
	"fmt"
	"time"
)

// ReceiptRuns lists the runs that have receipts and completed none after the instant.
func (db *DB) ReceiptRuns(ctx context.Context, before time.Time) ([]string, error) {
	d := dialectFor(db.server)
	at := before.UTC().Format("2006-01-02 15:04:05.000000")
	q := newQuery(d).add("SELECT run FROM ", d.own("receipt"), " GROUP BY run HAVING MAX(completed_at) < ").arg(at)
	if db.Engine == Postgres {
		q.add("::text::timestamptz")
	}
	rows, err := db.SQL.QueryContext(ctx, q.add(" ORDER BY run").String(), q.args...)
	if err != nil {
		return nil, redact(err)
	}
	defer rows.Close()
	var runs []string
	for rows.Next() {
		var run string
		if err := rows.Scan(&run); err != nil {
			return nil, redact(err)
		}
		runs = append(runs, run)
	}
	return runs, redact(rows.Err())
}

// DropReceipts drops the receipts of a run and leaves a tombstone in one transaction: a batch of the run that comes later is
// refused, because nobody could tell any more whether it was done. The caller has made sure that the ledger settled them.
func (db *DB) DropReceipts(ctx context.Context, run string) (dropped int64, err error) {
	d := dialectFor(db.server)
	tx, err := db.SQL.BeginTx(ctx, nil)
	if err != nil {
		return 0, redact(err)
	}
	defer tx.Rollback()
	// Alone, like the placing of a hold: no batch is between its look at the tombstones and its commit.
	if err := db.alone(ctx, tx); err != nil {
		return 0, redact(err)
	}
	q := newQuery(d).add("SELECT count(*) FROM ", d.own("receipt"), " WHERE run = ").arg(run)
	if err := tx.QueryRowContext(ctx, q.String(), q.args...).Scan(&dropped); err != nil {
		return 0, redact(err)
	}
	q = newQuery(d).add("INSERT INTO ", d.own("tombstone"), " (run, receipts, dropped_at) SELECT ").arg(run)
	if db.Engine == Postgres {
		q.add("::text")
	}
	q.add(", ", fmt.Sprint(dropped), ", ", now(db.Engine), " WHERE NOT EXISTS (SELECT 1 FROM ", d.own("tombstone"), " WHERE run = ").arg(run).add(")")
	if _, err := tx.ExecContext(ctx, q.String(), q.args...); err != nil {
		return 0, redact(err)
	}
	q = newQuery(d).add("DELETE FROM ", d.own("receipt"), " WHERE run = ").arg(run)
	if _, err := tx.ExecContext(ctx, q.String(), q.args...); err != nil {
		return 0, redact(err)
	}
	return dropped, redact(tx.Commit())
}

// now is the database's clock as an expression for our own tables.
func now(e Engine) string {
	return map[Engine]string{Postgres: "clock_timestamp()", MySQL: "UTC_TIMESTAMP(6)", SQLite: "strftime('%Y-%m-%d %H:%M:%f', 'now')"}[e]
}

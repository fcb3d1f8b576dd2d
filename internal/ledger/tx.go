package ledger

import (
	"context"
	"database/sql"
	"errors"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlitelib "modernc.org/sqlite/lib"
)

// maxTries bounds the retries of one transaction. SQLite has waited its
// busy_timeout before each.
const maxTries = 8

// txn is one transaction of the ledger. It reads the ledger's clock once, so
// everything it writes happened at one instant, and collects its audit entries,
// which go in together just before the commit.
type txn struct {
	l       *Ledger
	tx      *sql.Tx
	now     time.Time
	entries []entry
}

// tx runs fn in a transaction and commits. fn may run more than once (see retry),
// so it must set what it returns from scratch. A crash before the commit leaves
// nothing.
func (l *Ledger) tx(ctx context.Context, fn func(*txn) error) error {
	return l.retry(ctx, func() error { return l.txOnce(ctx, fn) })
}

// retry repeats fn while the database asks for that: a busy SQLite, a deadlock, a
// serialisation failure.
func (l *Ledger) retry(ctx context.Context, fn func() error) error {
	for try := 1; ; try++ {
		err := fn()
		if err == nil || try == maxTries || ctx.Err() != nil || !retryable(err) {
			return err
		}
		l.log.DebugContext(ctx, "ledger_retry", "try", try, "err", err)
		wait := time.Duration(1<<try) * time.Millisecond
		select {
		case <-time.After(wait/2 + rand.N(wait)):
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

func (l *Ledger) txOnce(ctx context.Context, fn func(*txn) error) error {
	// READ COMMITTED whatever the server's default: each operation locks the
	// run first and reads after, and needs to see what its predecessor wrote.
	opts := &sql.TxOptions{Isolation: sql.LevelReadCommitted}
	if l.sqlite {
		opts = nil // the DSN makes every transaction immediate
	}
	tx, err := l.write.BeginTx(ctx, opts)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	t := &txn{l: l, tx: tx}
	if err := fn(t); err != nil {
		return err
	}
	if err := t.flushAudit(ctx); err != nil {
		return err
	}
	return tx.Commit()
}

// retryable reports whether the same transaction may succeed when repeated. A
// connection lost during a commit is not among them: the commit may have
// happened, and the caller's own idempotency decides.
func retryable(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "40001" || pg.Code == "40P01"
	}
	var lite *sqlite.Error
	if errors.As(err, &lite) {
		code := lite.Code() & 0xff
		return code == sqlitelib.SQLITE_BUSY || code == sqlitelib.SQLITE_LOCKED
	}
	return false
}

// q turns the ledger's one SQL text into the engine's: @run is curfew.run or
// curfew_run, {lock} locks the selected row where a transaction does not hold the
// whole database anyway, {now} is the database's clock where it has one.
func (l *Ledger) q(text string) string {
	if s, ok := l.texts.Load(text); ok {
		return s.(string)
	}
	prefix, lock, now := "curfew.", "FOR UPDATE", "clock_timestamp()"
	if l.sqlite {
		prefix, lock, now = "curfew_", "", "NULL" // the clock is the machine's
	}
	s := strings.NewReplacer("@", prefix, "{lock}", lock, "{now}", now).Replace(text)
	l.texts.Store(text, s)
	return s
}

// stmt returns the cached statement for a text, or nil where the driver keeps
// its own cache (pgx does).
func (t *txn) stmt(ctx context.Context, query string) *sql.Stmt {
	s := t.l.hot[query]
	if s == nil {
		return nil
	}
	return t.tx.StmtContext(ctx, s)
}

func (t *txn) exec(ctx context.Context, query string, args ...any) (sql.Result, error) {
	if s := t.stmt(ctx, query); s != nil {
		return s.ExecContext(ctx, args...)
	}
	return t.tx.ExecContext(ctx, t.l.q(query), args...)
}

func (t *txn) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if s := t.stmt(ctx, query); s != nil {
		return s.QueryContext(ctx, args...)
	}
	return t.tx.QueryContext(ctx, t.l.q(query), args...)
}

func (t *txn) queryRow(ctx context.Context, query string, args ...any) *sql.Row {
	if s := t.stmt(ctx, query); s != nil {
		return s.QueryRowContext(ctx, args...)
	}
	return t.tx.QueryRowContext(ctx, t.l.q(query), args...)
}

// execOne runs a statement that must change exactly one row.
func (t *txn) execOne(ctx context.Context, query string, args ...any) (bool, error) {
	res, err := t.exec(ctx, query, args...)
	if err != nil {
		return false, err
	}
	n, err := res.RowsAffected()
	return n == 1, err
}

// clock is the ledger's now, read once per transaction; lock has read it already.
func (t *txn) clock(ctx context.Context) (time.Time, error) {
	if !t.now.IsZero() {
		return t.now, nil
	}
	if t.l.sqlite {
		t.now = micros(t.l.clock())
		return t.now, nil
	}
	var now stamp
	if err := t.queryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return time.Time{}, err
	}
	t.now = micros(time.Time(now))
	return t.now, nil
}

// query reads outside a transaction.
func (l *Ledger) query(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return l.read.QueryContext(ctx, l.q(query), args...)
}

func (l *Ledger) queryRow(ctx context.Context, query string, args ...any) *sql.Row {
	return l.read.QueryRowContext(ctx, l.q(query), args...)
}

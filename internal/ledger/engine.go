package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite" // registers "sqlite"
)

const (
	sqliteReaders  = 4
	postgresConns  = 10
	busyTimeout    = 10 * time.Second
	idleInTxAtMost = "60s"
)

// connectSQLite opens the file with one writer and a few readers. It sets no
// journal mode: that is a property of the file, and the file may be the user's.
func (l *Ledger) connectSQLite(ctx context.Context, path string) error {
	path = strings.TrimPrefix(path, "//") // sqlite:///abs and sqlite:abs alike
	if path == "" || strings.Contains(path, ":memory:") {
		return errors.New("a SQLite ledger is a file: sqlite:PATH")
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("open the ledger: %w", err)
	}
	if _, err := os.Stat(filepath.Dir(abs)); err != nil {
		return fmt.Errorf("open the ledger: its directory: %w", err)
	}
	at := (&url.URL{Scheme: "file", Path: filepath.ToSlash(abs)}).String()
	if err := l.openSQLite(ctx, at, "synchronous(FULL)"); err != nil { // a commit that returned survives a power cut
		return fmt.Errorf("open the ledger %s: %w", abs, err)
	}
	return nil
}

// memories numbers the ledgers in memory of this process: each is another database.
var memories atomic.Int64

// connectMemory makes a ledger in memory, which the connections of this Ledger share.
func (l *Ledger) connectMemory(ctx context.Context) (err error) {
	if err := l.openSQLite(ctx, fmt.Sprintf("file:/curfew-%d?vfs=memdb", memories.Add(1))); err != nil {
		return fmt.Errorf("open a ledger in memory: %w", err)
	}
	// The pools may close what they keep; with the last connection everything would be gone.
	l.read.SetMaxOpenConns(sqliteReaders + 1)
	if l.keep, err = l.read.Conn(ctx); err != nil {
		return errors.Join(fmt.Errorf("open a ledger in memory: %w", err), l.Close())
	}
	return nil
}

// openSQLite opens one writer and a few readers.
func (l *Ledger) openSQLite(ctx context.Context, at string, pragmas ...string) (err error) {
	dsn := func(more ...string) string {
		q := url.Values{"_pragma": slices.Concat([]string{fmt.Sprintf("busy_timeout(%d)", busyTimeout.Milliseconds()), "foreign_keys(1)"}, pragmas, more)}
		if len(more) == 0 {
			q.Set("_txlock", "immediate") // a write lock taken late cannot be waited for
		}
		if strings.Contains(at, "?") {
			return at + "&" + q.Encode()
		}
		return at + "?" + q.Encode()
	}
	if l.write, err = sql.Open("sqlite", dsn()); err != nil {
		return err
	}
	l.write.SetMaxOpenConns(1)
	// The first connection makes the file, so a reader never does.
	if err := l.write.PingContext(ctx); err != nil {
		return errors.Join(err, l.write.Close())
	}
	if l.read, err = sql.Open("sqlite", dsn("query_only(1)")); err != nil {
		return errors.Join(err, l.write.Close())
	}
	l.read.SetMaxOpenConns(sqliteReaders)
	l.read.SetMaxIdleConns(sqliteReaders)
	return nil
}

// ensureWAL turns on write-ahead logging in a file that holds nothing but ours.
// A file with other tables belongs to an application, and keeps its journal mode
// whatever it is.
func (l *Ledger) ensureWAL(ctx context.Context) error {
	return l.retry(ctx, func() error {
		var foreign int
		err := l.write.QueryRowContext(ctx, `SELECT count(*) FROM sqlite_master
			WHERE type = 'table' AND name NOT LIKE 'curfew\_%' ESCAPE '\' AND name NOT LIKE 'sqlite\_%' ESCAPE '\'`).Scan(&foreign)
		if err != nil || foreign > 0 {
			return err
		}
		var mode string
		if err := l.write.QueryRowContext(ctx, `PRAGMA journal_mode`).Scan(&mode); err != nil || mode == "wal" {
			return err
		}
		return l.write.QueryRowContext(ctx, `PRAGMA journal_mode = WAL`).Scan(&mode)
	})
}

// prepareHot prepares the statements of a step on the one writing connection.
// pgx caches statements by itself; modernc.org/sqlite parses anew each time.
func (l *Ledger) prepareHot(ctx context.Context) error {
	l.hot = make(map[string]*sql.Stmt, len(hotStatements))
	for _, text := range hotStatements {
		s, err := l.write.PrepareContext(ctx, l.q(text))
		if err != nil {
			return fmt.Errorf("open the ledger: %w", err)
		}
		l.hot[text] = s
	}
	return nil
}

func (l *Ledger) connectPostgres(ctx context.Context, dsn string) error {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return fmt.Errorf("open the ledger: %w", err) // pgx blanks the password
	}
	if cfg.RuntimeParams["application_name"] == "" {
		cfg.RuntimeParams["application_name"] = "curfew"
	}
	l.write = stdlib.OpenDB(*cfg, stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
		// Durable commits even where the database's default gives them up, and
		// a frozen process must not hold a run's lock for ever: PostgreSQL
		// ends its session. Asked by SET, because poolers refuse unknown
		// start-up parameters.
		_, err := c.Exec(ctx, `SELECT
			CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', false) END,
			CASE WHEN current_setting('idle_in_transaction_session_timeout') = '0'
				THEN set_config('idle_in_transaction_session_timeout', '`+idleInTxAtMost+`', false) END`)
		return err
	}))
	l.write.SetMaxOpenConns(postgresConns)
	l.write.SetMaxIdleConns(postgresConns / 2)
	l.write.SetConnMaxIdleTime(5 * time.Minute)
	l.read = l.write
	if err := l.write.PingContext(ctx); err != nil {
		return errors.Join(fmt.Errorf("open the ledger: %w", err), l.write.Close())
	}
	return nil
}

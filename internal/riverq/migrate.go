package riverq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
)

// migrateLock keys the advisory lock that keeps two migrations apart. Not the
// ledger's: that one may be held by who calls us.
const migrateLock = 0x7269766572 // "river"

// Migrate brings River's tables and ours, of living clients, to this program's
// version: on PostgreSQL in schema, which exists, on SQLite in the file, where
// River's begin with river_ and ours with curfew_. Any number of processes may call it at once. On PostgreSQL db has room
// for two connections.
func Migrate(ctx context.Context, db *sql.DB, sqlite bool, schema string) (err error) {
	if sqlite {
		return migrateSQLite(ctx, db)
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("migrate the queue: %w", err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock($1)`, int64(migrateLock)); err != nil {
		return fmt.Errorf("migrate the queue: %w", err)
	}
	defer conn.ExecContext(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock($1)`, int64(migrateLock))
	m, err := migrator(db, sqlite, schema)
	if err != nil {
		return fmt.Errorf("migrate the queue: %w", err)
	}
	if _, err := m.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return fmt.Errorf("migrate the queue: %w", err)
	}
	for _, t := range []text{makeAlive, dropIdle} {
		if _, err := conn.ExecContext(ctx, t.on(sqlite, schema, time.Time{})); err != nil {
			return fmt.Errorf("migrate the queue: %w", err)
		}
	}
	return nil
}

// dropIdle drops two indexes of River's, over all words of the arguments and of the
// metadata. Neither River nor we ask by them, and each step of each job writes into
// both.
var dropIdle = text{postgres: `DROP INDEX IF EXISTS %river_job_args_index, %river_job_metadata_index`}

// migrateSQLite has no lock that spans River's look at the version and its
// transactions. Each migration commits with its version, so a process that loses
// the race fails, sees that the version has moved, and goes on from it.
func migrateSQLite(ctx context.Context, db *sql.DB) error {
	m, err := migrator(db, true, "")
	if err != nil {
		return fmt.Errorf("migrate the queue: %w", err)
	}
	for {
		before, err := m.ExistingVersions(ctx)
		if err != nil {
			return fmt.Errorf("migrate the queue: %w", err)
		}
		_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
		if err == nil {
			break
		}
		after, verr := m.ExistingVersions(ctx)
		if verr != nil || len(after) == len(before) {
			return fmt.Errorf("migrate the queue: %w", errors.Join(err, verr))
		}
	}
	if _, err := db.ExecContext(ctx, makeAlive.on(true, "", time.Time{})); err != nil {
		return fmt.Errorf("migrate the queue: %w", err)
	}
	return nil
}

func migrator(db *sql.DB, sqlite bool, schema string) (*rivermigrate.Migrator[*sql.Tx], error) {
	cfg := &rivermigrate.Config{Schema: schema, Logger: slog.New(slog.DiscardHandler)}
	if sqlite {
		return rivermigrate.New(riversqlite.New(db), cfg)
	}
	return rivermigrate.New(riverdatabasesql.New(db), cfg)
}

// migrated returns ErrNotMigrated unless River's tables are there.
func migrated(ctx context.Context, db *sql.DB, sqlite bool, schema string) error {
	m, err := migrator(db, sqlite, schema)
	if err != nil {
		return err
	}
	res, err := m.Validate(ctx, nil)
	if err != nil {
		return err
	}
	if !res.OK {
		return fmt.Errorf("%w: %s", ErrNotMigrated, strings.Join(res.Messages, "; "))
	}
	exists := `SELECT to_regclass($1 || '.queue_client') IS NOT NULL`
	if sqlite {
		exists, schema = `SELECT count(*) FROM sqlite_master WHERE name = 'curfew_queue_client' AND $1 = ''`, ""
	}
	var there bool
	if err := db.QueryRowContext(ctx, exists, schema).Scan(&there); err != nil {
		return err
	}
	if !there {
		return fmt.Errorf("%w: no table of living clients", ErrNotMigrated)
	}
	return nil
}

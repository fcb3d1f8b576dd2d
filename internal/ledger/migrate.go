package ledger

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"
)

//go:embed migrations
var migrations embed.FS

// migrateLock keys the advisory lock that keeps two migrations apart.
const migrateLock = 0x637572666577 // "curfew"

// Migrate brings the ledger at opts.URL to this program's schema and returns the
// names of the migrations it applied. Any number of processes may call it at
// once; each migration happens once. A newer ledger is a *NewerLedgerError.
func Migrate(ctx context.Context, opts Options) (applied []string, err error) {
	l, err := connect(ctx, opts)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	have, err := l.version(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate the ledger: %w", err)
	}
	if want := latestVersion(); have > want {
		return nil, &NewerLedgerError{Have: have, Know: want}
	}
	if l.sqlite {
		if err := l.ensureWAL(ctx); err != nil {
			return nil, fmt.Errorf("migrate the ledger: %w", err)
		}
	}
	return l.migrate(ctx)
}

func (l *Ledger) migrate(ctx context.Context) ([]string, error) {
	if l.sqlite {
		return l.migrateSQLite(ctx, l.up)
	}
	return l.migratePostgres(ctx)
}

// migrateSQLite has no lock that spans goose's look at the version and its
// transactions. Each migration commits with its version, so a process that loses
// the race fails on a table that is already there, sees that the version has
// moved, and goes on from it.
func (l *Ledger) migrateSQLite(ctx context.Context, up func(context.Context) ([]string, error)) ([]string, error) {
	var applied []string
	for {
		before, err := l.version(ctx)
		if err != nil {
			return applied, fmt.Errorf("migrate the ledger: %w", err)
		}
		names, err := up(ctx)
		applied = append(applied, names...)
		if err == nil {
			return applied, nil
		}
		after, verr := l.version(ctx)
		if verr != nil || after == before {
			return applied, errors.Join(err, verr)
		}
		l.log.DebugContext(ctx, "ledger_migrate_retry", "err", err)
	}
}

func (l *Ledger) migratePostgres(ctx context.Context) (applied []string, err error) {
	conn, err := l.write.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate the ledger: %w", err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, `SELECT pg_advisory_lock($1)`, int64(migrateLock)); err != nil {
		return nil, fmt.Errorf("migrate the ledger: %w", err)
	}
	defer conn.ExecContext(context.WithoutCancel(ctx), `SELECT pg_advisory_unlock($1)`, int64(migrateLock))

	// CREATE SCHEMA IF NOT EXISTS wants the privilege to create one even when
	// there is one, and an administrator may have made it for us.
	var missing bool
	if err := conn.QueryRowContext(ctx, `SELECT to_regnamespace('curfew') IS NULL`).Scan(&missing); err != nil {
		return nil, fmt.Errorf("migrate the ledger: %w", err)
	}
	if missing {
		if _, err := conn.ExecContext(ctx, `CREATE SCHEMA curfew`); err != nil {
			return nil, fmt.Errorf("migrate the ledger: %w", err)
		}
	}
	return l.up(ctx)
}

// up runs goose with a version table of our own name: an application in the same
// database may use goose too.
func (l *Ledger) up(ctx context.Context) ([]string, error) {
	dialect := goose.DialectPostgres
	if l.sqlite {
		dialect = goose.DialectSQLite3
	}
	sub, err := fs.Sub(migrations, l.migrationDir())
	if err != nil {
		return nil, err
	}
	p, err := goose.NewProvider(dialect, l.write, sub,
		goose.WithTableName(l.q("@version")), goose.WithDisableGlobalRegistry(true))
	if err != nil {
		return nil, fmt.Errorf("migrate the ledger: %w", err)
	}
	results, err := p.Up(ctx)
	var partial *goose.PartialError
	if errors.As(err, &partial) {
		results = partial.Applied
	}
	var applied []string
	for _, r := range results {
		applied = append(applied, strings.TrimSuffix(r.Source.Path, ".sql"))
	}
	if err != nil {
		return applied, fmt.Errorf("migrate the ledger: %w", err)
	}
	return applied, nil
}

func (l *Ledger) migrationDir() string {
	if l.sqlite {
		return "migrations/sqlite"
	}
	return "migrations/postgres"
}

// version is the ledger's schema version, 0 for none. It only looks: goose's own
// question would create the version table.
func (l *Ledger) version(ctx context.Context) (int64, error) {
	exists := `SELECT to_regclass('curfew.version') IS NOT NULL`
	if l.sqlite {
		exists = `SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'curfew_version'`
	}
	var v int64
	err := l.retry(ctx, func() error {
		var there bool
		if err := l.write.QueryRowContext(ctx, exists).Scan(&there); err != nil || !there {
			return err
		}
		return l.write.QueryRowContext(ctx,
			l.q(`SELECT COALESCE(max(version_id), 0) FROM @version WHERE is_applied`)).Scan(&v)
	})
	return v, err
}

// latestVersion is the newest schema this program knows. Both engines' migrations
// carry the same numbers; a test says so.
func latestVersion() int64 { return newest("migrations/postgres") }

func newest(dir string) int64 {
	var last int64
	files, err := migrations.ReadDir(dir)
	if err != nil {
		panic("ledger: " + err.Error()) // embedded: it is there or the build is broken
	}
	for _, f := range files {
		number, _, _ := strings.Cut(f.Name(), "_")
		v, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			panic("ledger: migration without a number: " + f.Name())
		}
		last = max(last, v)
	}
	return last
}

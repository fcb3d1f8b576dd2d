// Package ledger owns what curfew remembers: runs, batches, policy revisions,
// blocked rows and the append-only audit log, on SQLite or PostgreSQL. Its one
// invariant: a state changes only together with its audit entry, and the counts
// of a run are at every moment the sums over its settled batches.
//
// The SQL is one text for both engines; "@run" in it is curfew_run on SQLite and
// curfew.run on PostgreSQL. Instants are UTC with microseconds everywhere.
package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Options says which ledger to open, and for whom.
type Options struct {
	// URL is sqlite:PATH or postgres://….
	URL string
	// Actor names this process or its user in audit entries. Default "curfew".
	Actor string
	// Logger gets retries and migrations. Default: none.
	Logger *slog.Logger
	// Clock replaces the machine's clock, which is a SQLite ledger's clock.
	// PostgreSQL is asked for its own and ignores this. Default time.Now.
	Clock func() time.Time
	// Memory has a SQLite ledger in memory instead of what URL says: no other process sees it, and Close is its end. For tests.
	Memory bool
}

// Ledger is an open ledger, safe for concurrent use.
type Ledger struct {
	sqlite bool
	// write has one connection on SQLite: its writers queue here, in order,
	// rather than in SQLite's busy loop, which is neither fair nor cheap.
	write *sql.DB
	read  *sql.DB   // the same as write on PostgreSQL
	keep  *sql.Conn // of a ledger in memory: it lasts as long as a connection to it
	log   *slog.Logger
	actor string
	clock func() time.Time

	texts sync.Map             // SQL text as written → as this engine reads it
	hot   map[string]*sql.Stmt // SQLite only: what every step runs, prepared once
}

// Open opens a ledger. A SQLite ledger is created and migrated as needed; on
// PostgreSQL a missing or older one is a *MigrationNeededError. A ledger of a
// newer program is a *NewerLedgerError on both, and is left as it is.
func Open(ctx context.Context, opts Options) (*Ledger, error) {
	l, err := connect(ctx, opts)
	if err != nil {
		return nil, err
	}
	if err := l.ready(ctx); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// connect opens the database and looks at nothing in it.
func connect(ctx context.Context, opts Options) (*Ledger, error) {
	l := &Ledger{log: opts.Logger, actor: opts.Actor, clock: opts.Clock}
	if l.log == nil {
		l.log = slog.New(slog.DiscardHandler)
	}
	if l.actor == "" {
		l.actor = "curfew"
	}
	if l.clock == nil {
		l.clock = time.Now
	}
	if opts.Memory {
		l.sqlite = true
		return l, l.connectMemory(ctx)
	}
	// The URL may hold a password: it appears in no message of ours.
	switch scheme, rest, _ := strings.Cut(opts.URL, ":"); scheme {
	case "sqlite":
		l.sqlite = true
		return l, l.connectSQLite(ctx, rest)
	case "postgres", "postgresql":
		return l, l.connectPostgres(ctx, opts.URL)
	default:
		return nil, errors.New("a ledger is sqlite:PATH or postgres://…")
	}
}

// ready brings a connected ledger to this program's schema, or says why not.
func (l *Ledger) ready(ctx context.Context) error {
	have, err := l.version(ctx)
	if err != nil {
		return fmt.Errorf("open the ledger: %w", err)
	}
	want := latestVersion()
	switch {
	case have > want:
		return &NewerLedgerError{Have: have, Know: want}
	case have < want && !l.sqlite:
		return &MigrationNeededError{Have: have, Want: want}
	}
	if !l.sqlite {
		return nil
	}
	if err := l.ensureWAL(ctx); err != nil {
		return fmt.Errorf("open the ledger: %w", err)
	}
	if have < want {
		if _, err := l.migrate(ctx); err != nil {
			return err
		}
	}
	return l.prepareHot(ctx)
}

// Close releases the connections. On SQLite the last process to close folds the
// write-ahead log into the file.
func (l *Ledger) Close() error {
	var errs []error
	for _, s := range l.hot {
		errs = append(errs, s.Close())
	}
	if l.keep != nil {
		errs = append(errs, l.keep.Close())
	}
	if l.read != nil && l.read != l.write {
		errs = append(errs, l.read.Close())
	}
	if l.write != nil {
		errs = append(errs, l.write.Close())
	}
	return errors.Join(errs...)
}

// Now is the ledger's clock, to the microsecond, in UTC: PostgreSQL's own, and
// on SQLite the machine's.
func (l *Ledger) Now(ctx context.Context) (time.Time, error) {
	if l.sqlite {
		return micros(l.clock()), nil
	}
	var now stamp
	if err := l.queryRow(ctx, `SELECT clock_timestamp()`).Scan(&now); err != nil {
		return time.Time{}, fmt.Errorf("read the ledger's clock: %w", err)
	}
	return micros(time.Time(now)), nil
}

// Epoch is the ledger's random identity and when it was made. Another epoch is
// another ledger, whatever its URL.
func (l *Ledger) Epoch(ctx context.Context) (epoch string, created time.Time, err error) {
	err = l.queryRow(ctx, `SELECT epoch, created FROM @meta`).Scan(&epoch, (*stamp)(&created))
	if err != nil {
		return "", time.Time{}, fmt.Errorf("read the ledger's epoch: %w", err)
	}
	return epoch, created, nil
}

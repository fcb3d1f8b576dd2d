package main

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"curfew.dev/curfew/examples/internal/stage"
)

// engine is what differs between the databases.
type engine struct {
	schema  []string
	analyze string
	until   string // the policy's trigger
}

const (
	idPrefix = "ses_" // of a session's id, so that one would be found where none belongs
	index    = "CREATE INDEX user_session_expires ON user_session (expires_at, id)"
)

var engines = map[string]engine{
	"sqlite": {[]string{`CREATE TABLE user_session (
		id TEXT NOT NULL PRIMARY KEY, user_id INTEGER NOT NULL, user_agent TEXT NOT NULL,
		created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL)`, index}, "ANALYZE", "{column: expires_at, unit: s}"},
	"postgres": {[]string{`CREATE TABLE user_session (
		id text PRIMARY KEY, user_id bigint NOT NULL, user_agent text NOT NULL,
		created_at timestamptz NOT NULL, expires_at timestamptz NOT NULL)`, index}, "ANALYZE user_session", "expires_at"},
	"mysql": {[]string{`CREATE TABLE user_session (
		id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, user_id BIGINT NOT NULL, user_agent VARCHAR(200) NOT NULL,
		created_at DATETIME(6) NOT NULL, expires_at DATETIME(6) NOT NULL) ENGINE=InnoDB`, index}, "ANALYZE TABLE user_session", "{column: expires_at, zone: UTC}"},
}

// application is the service whose sessions they are. It knows nothing of curfew.
type application struct {
	stage.Database
	engine

	made    int64    // rows at first
	expired []string // ids of the expired ones, the oldest first
	live    []string

	mu   sync.Mutex
	kept []string // expired ones that were refreshed: the update found its row
	late int      // those whose row was gone by then: their users sign in again
}

// connect opens the database that the URL names.
func connect(address string) (*application, error) {
	db, err := stage.Open("SESSIONS_URL", address)
	return &application{Database: db, engine: engines[db.Engine]}, err
}

var agents = []string{"Firefox on Linux", "Safari on an iPhone", "Chrome on Windows", "the app on Android"}

// populate makes the table with n sessions: four in five have expired in the last sixty days, the rest live for another
// hour to two weeks. A table of that name that is there already is somebody's, and an error.
func (a *application) populate(ctx context.Context, n int) error {
	for _, statement := range a.schema {
		if _, err := a.DB.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("the example makes a table user_session, in a database that has none: %w", err)
		}
	}
	rnd, now := rand.New(rand.NewPCG(1, 2)), time.Now()
	id := func() string {
		var b [20]byte
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return idPrefix + hex.EncodeToString(b[:])
	}
	dead := n * 4 / 5
	row := func(i int) []any {
		expires := now.Add(-time.Minute - time.Duration(dead-i)*(60*day/time.Duration(dead)))
		if i >= dead {
			expires = now.Add(time.Hour + time.Duration(i-dead)*(lifetime/time.Duration(n-dead)))
		}
		r := []any{id(), 1 + rnd.IntN(n/3), agents[rnd.IntN(len(agents))], a.At(expires.Add(-lifetime)), a.At(expires)}
		if i >= dead {
			a.live = append(a.live, r[0].(string))
		} else {
			a.expired = append(a.expired, r[0].(string))
		}
		return r
	}
	tx, err := a.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	const chunk = 500
	for from := 0; from < n; from += chunk {
		var values []any
		for i := from; i < min(from+chunk, n); i++ {
			values = append(values, row(i)...)
		}
		insert := "INSERT INTO user_session VALUES (?, ?, ?, ?, ?)" + strings.Repeat(", (?, ?, ?, ?, ?)", len(values)/5-1)
		if _, err := tx.ExecContext(ctx, a.SQL(insert), values...); err != nil {
			return err
		}
	}
	a.made = int64(n)
	if err := tx.Commit(); err != nil {
		return err
	}
	_, err = a.DB.ExecContext(ctx, a.analyze)
	return err
}

const (
	day      = 24 * time.Hour
	lifetime = 14 * day // of a session, from its last use
	refresh  = "UPDATE user_session SET expires_at = ? WHERE id = ?"
)

// signIn refreshes sessions that have expired, and leaves the transaction open: their users are still about it.
func (a *application) signIn(ctx context.Context, ids []string) (*sql.Tx, error) {
	tx, err := a.DB.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		if _, err := tx.ExecContext(ctx, a.SQL(refresh), a.At(time.Now().Add(lifetime)), id); err != nil {
			return nil, errors.Join(err, tx.Rollback())
		}
	}
	return tx, nil
}

// keepRefreshing refreshes one of the sessions after the other, as their users come back, until ctx is done.
func (a *application) keepRefreshing(ctx context.Context, ids []string) error {
	ids = append([]string(nil), ids...)
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	next := time.NewTicker(2 * time.Millisecond)
	defer next.Stop()
	for _, id := range ids {
		// Not cancelled in the middle: nobody would know whether the session was refreshed.
		n, err := a.update(context.WithoutCancel(ctx), refresh, a.At(time.Now().Add(lifetime)), id)
		if err != nil {
			return err
		}
		a.mu.Lock()
		if n == 1 {
			a.kept = append(a.kept, id)
		} else {
			a.late++
		}
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return nil
		case <-next.C:
		}
	}
	return nil
}

// signOut ends sessions before their time.
func (a *application) signOut(ctx context.Context, ids []string) error {
	for _, id := range ids {
		if _, err := a.update(ctx, refresh, a.At(time.Now().Add(-time.Minute)), id); err != nil {
			return err
		}
	}
	return nil
}

// update changes rows, again where MariaDB has chosen this transaction to resolve a deadlock.
func (a *application) update(ctx context.Context, statement string, args ...any) (int64, error) {
	for {
		res, err := a.DB.ExecContext(ctx, a.SQL(statement), args...)
		if refused := (*mysql.MySQLError)(nil); errors.As(err, &refused) && refused.Number == 1213 {
			continue
		}
		if err != nil {
			return 0, err
		}
		return res.RowsAffected()
	}
}

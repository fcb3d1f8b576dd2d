package target

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"curfew.dev/curfew/internal/hold"
)

// placeWait is how long the placing of a hold waits for the batches in flight.
const placeWait = 60 * time.Second

// Holds reads the holds of the database.
func (db *DB) Holds(ctx context.Context) ([]hold.Row, error) {
	rows, err := db.holdRows(ctx, db.SQL)
	return rows, redact(err)
}

// CheckHolds has check compare the holds of the database, at a moment at which none is being placed or released there.
func (db *DB) CheckHolds(ctx context.Context, check func(context.Context, []hold.Row) error) error {
	if db.Engine == SQLite {
		// Its one writer may be somebody else for long. What is committed can be read all the same; only when that does not agree,
		// it is asked again at a moment at which nobody writes.
		if rows, err := db.holdRows(ctx, db.SQL); err == nil && check(ctx, rows) == nil {
			return nil
		}
	}
	tx, err := db.SQL.BeginTx(ctx, nil)
	if err != nil {
		return redact(err)
	}
	defer tx.Rollback()
	x := &execution{j: &Job{db: db}, c: tx}
	if err := x.waitFor(ctx, rivalWait); err != nil {
		return redact(err)
	}
	if err := db.shareHolds(ctx, tx); err != nil {
		return redact(err)
	}
	rows, err := db.holdRows(ctx, tx)
	if err != nil {
		return redact(err)
	}
	return check(ctx, rows)
}

// HoldChange is what is to be done to the holds of a database.
type HoldChange struct {
	Add  []hold.Row
	Drop []string // ids
}

// SettleHolds has decide say what is to be done to the holds of the database, and does it, while no batch is between its look at
// the holds and its commit. It waits for the batches in flight; every later one sees what was done. When decide fails nothing was
// changed. Doing it again changes nothing.
func (db *DB) SettleHolds(ctx context.Context, decide func(context.Context, []hold.Row) (HoldChange, error)) error {
	tx, end, err := db.beginAlone(ctx)
	if err != nil {
		return redact(err)
	}
	defer end(false)
	hook("hold_locked")
	have, err := db.holdRows(ctx, tx)
	if err != nil {
		return redact(err)
	}
	change, err := decide(ctx, have)
	if err != nil {
		return err
	}
	if len(change.Add)+len(change.Drop) == 0 {
		return nil
	}
	if err := db.applyHolds(ctx, tx, change); err != nil {
		return redact(err)
	}
	hook("hold_written")
	// A crash before this leaves the ledger's word that something is pending, and no batch begins; one after it, too.
	if err := end(true); err != nil {
		return redact(err)
	}
	hook("hold_committed")
	return nil
}

// beginAlone begins a transaction in which no batch is under way; end commits it, or undoes it if that is not done yet.
func (db *DB) beginAlone(ctx context.Context) (c querier, end func(commit bool) error, err error) {
	if db.Engine == SQLite {
		return db.beginSQLite(ctx)
	}
	tx, err := db.SQL.BeginTx(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	if err := db.alone(ctx, tx); err != nil {
		return nil, nil, errors.Join(err, tx.Rollback())
	}
	return tx, func(commit bool) error {
		if commit {
			return tx.Commit()
		}
		return tx.Rollback()
	}, nil
}

// beginSQLite looks for the moment between two writers every few milliseconds. SQLite's own way of waiting looks ever more rarely,
// and among writers without a pause may not be there at the right moment for seconds.
func (db *DB) beginSQLite(ctx context.Context) (querier, func(bool) error, error) {
	conn, err := db.SQL.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	var patience int
	err = conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&patience)
	if err == nil {
		_, err = conn.ExecContext(ctx, "PRAGMA busy_timeout = 0")
	}
	for deadline := time.Now().Add(placeWait); err == nil; {
		if _, err = conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err == nil || classify(err) != classRetryable || time.Now().After(deadline) {
			break
		}
		select {
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(2 * time.Millisecond):
			err = nil
		}
	}
	after := context.WithoutCancel(ctx) // the connection goes back as it was
	if _, perr := conn.ExecContext(after, "PRAGMA busy_timeout = "+itoa(patience)); err == nil {
		err = perr
	}
	if err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn }) // whatever it is in, nobody gets it
		return nil, nil, errors.Join(err, ignoreClosed(conn.Close()))
	}
	open := true
	return conn, func(commit bool) error {
		if !open {
			return nil
		}
		word := "ROLLBACK"
		if commit {
			word = "COMMIT"
		}
		_, err := conn.ExecContext(after, word)
		if err != nil && commit { // a reader was in the way, and may be gone by the time it is asked again
			return err
		}
		open = false
		return errors.Join(err, conn.Close())
	}, nil
}

func ignoreClosed(err error) error {
	if errors.Is(err, sql.ErrConnDone) {
		return nil
	}
	return err
}

// alone takes what batches share for this transaction alone.
func (db *DB) alone(ctx context.Context, c querier) error {
	x := &execution{j: &Job{db: db}, c: c}
	if err := x.waitFor(ctx, placeWait); err != nil {
		return err
	}
	var err error
	switch db.Engine {
	case Postgres:
		_, err = c.ExecContext(ctx, "SELECT set_config('row_security', 'off', true), pg_advisory_xact_lock("+holdLock+")")
	case MySQL:
		var epoch int64
		err = c.QueryRowContext(ctx, "SELECT epoch FROM curfew_hold_epoch WHERE one = 1 FOR UPDATE").Scan(&epoch)
	}
	return err
}

func (db *DB) applyHolds(ctx context.Context, c querier, change HoldChange) error {
	d := dialectFor(db.server)
	for _, r := range change.Add {
		q := newQuery(d).add("INSERT INTO ", d.own("hold"), " (id, name, relation, conditions, placed_at) VALUES (")
		for _, v := range []string{r.ID, r.Name, r.Relation, r.Conditions} {
			q.arg(v).add(", ")
		}
		if _, err := c.ExecContext(ctx, q.add(now(db.Engine), ")").String(), q.args...); err != nil {
			return err
		}
	}
	for _, id := range change.Drop {
		q := newQuery(d).add("DELETE FROM ", d.own("hold"), " WHERE id = ").arg(id)
		if _, err := c.ExecContext(ctx, q.String(), q.args...); err != nil {
			return err
		}
	}
	if db.Engine == MySQL {
		_, err := c.ExecContext(ctx, "UPDATE curfew_hold_epoch SET epoch = epoch + 1 WHERE one = 1")
		return err
	}
	return nil
}

// FitHold says what keeps a hold from being applied to a table: a column that is not there, or one whose values cannot be compared
// with what a person writes. Values are not told. subject is the column that names the data subject there, or "".
func FitHold(t *Table, h hold.Hold, subject string) error {
	r := hold.Row{Name: h.Name}
	rows, err := heldRows(r, h.Conditions, t.Label, t.Column, subject)
	if err != nil {
		return err
	}
	for _, v := range rows.conditions {
		if v.never && !h.OnSubject() {
			return fmt.Errorf("%w: the value given for column %s of %s is none that its type %s can have", ErrHold, v.column.Name, t.Label, v.column.Declared)
		}
	}
	return nil
}

// HoldGrantSQL is what the role of who places and releases holds needs, and nothing more: no row of the governed tables.
func HoldGrantSQL(e Engine, role string) []string {
	if role == "" {
		role = "HOLDS_ROLE"
	}
	switch e {
	case Postgres:
		to := " TO " + postgresDialect{}.ident(role)
		return []string{"GRANT USAGE ON SCHEMA curfew" + to, "GRANT SELECT ON curfew.layout" + to, "GRANT SELECT, INSERT, DELETE ON curfew.hold" + to}
	case MySQL:
		to := " TO " + role
		return []string{"GRANT SELECT ON curfew_layout" + to, "GRANT SELECT, INSERT, DELETE ON curfew_hold" + to,
			"GRANT SELECT, UPDATE ON curfew_hold_epoch" + to,
			"GRANT REFERENCES ON *" + to} // to see which columns there are
	}
	return nil // SQLite has no roles
}

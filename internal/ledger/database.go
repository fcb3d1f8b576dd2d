package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// The actions of governed databases in the audit log; ActionDatabaseSeen is the first.
const (
	ActionDatabaseChanged = "database_changed" // it is not the one on record
	ActionDatabaseBack    = "database_back"    // it is again
	ActionDatabaseAdopted = "database_adopted"
)

// WhyDatabaseChanged is why a run was skipped whose database is not the one on record.
const WhyDatabaseChanged = "database_changed"

// Database is what the ledger knows a governed database by.
type Database struct {
	Name     string
	Identity string // what the target tells databases apart by; "" when it was never accepted
	Epoch    string // agreed on with the database; "" when nothing was
	Baseline string // the run of the newest receipt in it by then, which the ledger need not know; ""
	Seen     time.Time
	Differs  string    // how the database that the name leads to now differs; "": it does not
	Noticed  time.Time // when that was found
}

const databaseColumns = `name, identity, epoch, baseline, seen, differs, noticed`

func scanDatabase(row scanner) (d Database, err error) {
	err = row.Scan(&d.Name, &d.Identity, &d.Epoch, &d.Baseline, (*stamp)(&d.Seen), &d.Differs, (*stamp)(&d.Noticed))
	return d, err
}

// ID is the ledger's own: another one is another ledger. A copy of a ledger has the same.
func (l *Ledger) ID(ctx context.Context) (id string, err error) {
	if err = l.queryRow(ctx, `SELECT epoch FROM @meta`).Scan(&id); err != nil {
		return "", fmt.Errorf("read the ledger's id: %w", err)
	}
	return id, nil
}

// SeeDatabase records which physical database a configured name leads to, the
// first time, and returns what is on record. Another identity or epoch means that
// the name now leads to a restored or cloned database; the record stays. A record
// without an identity or an epoch takes the one given.
func (l *Ledger) SeeDatabase(ctx context.Context, name, identity, epoch, baseline string) (d Database, err error) {
	err = l.tx(ctx, func(t *txn) error {
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		fresh, err := t.execOne(ctx, `INSERT INTO @database (name, identity, epoch, baseline, seen) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (name) DO UPDATE SET identity = excluded.identity, epoch = excluded.epoch, baseline = excluded.baseline, seen = excluded.seen
			WHERE @database.identity = ''`, name, identity, epoch, baseline, stamp(now))
		if err != nil {
			return err
		}
		if fresh {
			if err := t.checkClock(ctx, now); err != nil { // what is written under it would vouch for it
				return err
			}
			if err := t.auditDatabase(ActionDatabaseSeen, "", databaseEntry{Database: name, Identity: identity, Epoch: epoch}); err != nil {
				return err
			}
		} else if epoch != "" {
			if _, err := t.exec(ctx, `UPDATE @database SET epoch = $1 WHERE name = $2 AND epoch = ''`, epoch, name); err != nil {
				return err
			}
		}
		d, err = scanDatabase(t.queryRow(ctx, `SELECT `+databaseColumns+` FROM @database WHERE name = $1`, name))
		return err
	})
	if err != nil {
		return Database{}, fmt.Errorf("record database %s: %w", name, err)
	}
	return d, nil
}

type databaseEntry struct {
	Database string `json:"database"`
	Identity string `json:"identity,omitempty"`
	Epoch    string `json:"epoch,omitempty"`
	Was      string `json:"was,omitempty"`
	Differs  string `json:"differs,omitempty"`
}

func (t *txn) auditDatabase(action, actor string, e databaseEntry) error {
	return t.audit(entry{actor: actor, action: action, body: e})
}

// DatabaseDiffers notes how a database differs from the one on record, or with "" that it does not. Only a change of that has
// an audit entry.
func (l *Ledger) DatabaseDiffers(ctx context.Context, name, differs string) error {
	differs = text(differs)
	err := l.tx(ctx, func(t *txn) error {
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		if err := t.checkClock(ctx, now); err != nil {
			return err
		}
		if _, err := t.exec(ctx, `INSERT INTO @database (name, identity, seen) VALUES ($1, '', $2) ON CONFLICT (name) DO NOTHING`, name, stamp(now)); err != nil {
			return err
		}
		var was string
		if err := t.queryRow(ctx, `SELECT differs FROM @database WHERE name = $1 {lock}`, name).Scan(&was); err != nil || was == differs {
			return err
		}
		action, noticed := ActionDatabaseChanged, now
		if differs == "" {
			action, noticed = ActionDatabaseBack, time.Time{}
		}
		if _, err := t.exec(ctx, `UPDATE @database SET differs = $1, noticed = $2 WHERE name = $3`, differs, stamp(noticed), name); err != nil {
			return err
		}
		if was != "" && differs != "" {
			return nil // told already; only the words are others
		}
		return t.auditDatabase(action, "", databaseEntry{Database: name, Differs: differs, Was: was})
	})
	if err != nil {
		return fmt.Errorf("note how database %s differs: %w", name, err)
	}
	return nil
}

// AdoptDatabase makes the database that a name leads to now the one on record.
func (l *Ledger) AdoptDatabase(ctx context.Context, name, identity, epoch, baseline, differs string) error {
	err := l.tx(ctx, func(t *txn) error {
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		if err := t.checkClock(ctx, now); err != nil {
			return err
		}
		var was string
		err = t.queryRow(ctx, `SELECT identity FROM @database WHERE name = $1 {lock}`, name).Scan(&was)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if _, err := t.exec(ctx, `INSERT INTO @database (name, identity, epoch, baseline, seen) VALUES ($1, $2, $3, $4, $5) ON CONFLICT (name) DO UPDATE SET
			identity = excluded.identity, epoch = excluded.epoch, baseline = excluded.baseline, seen = excluded.seen, differs = '', noticed = NULL`,
			name, identity, epoch, baseline, stamp(now)); err != nil {
			return err
		}
		return t.auditDatabase(ActionDatabaseAdopted, "", databaseEntry{Database: name, Identity: identity, Epoch: epoch, Was: was, Differs: text(differs)})
	})
	if err != nil {
		return fmt.Errorf("adopt database %s: %w", name, err)
	}
	return nil
}

// Databases are those on record, by name.
func (l *Ledger) Databases(ctx context.Context) ([]Database, error) {
	rows, err := l.query(ctx, `SELECT `+databaseColumns+` FROM @database ORDER BY name`)
	if err != nil {
		return nil, fmt.Errorf("list the databases: %w", err)
	}
	all, err := collect(rows, scanDatabase)
	if err != nil {
		return nil, fmt.Errorf("list the databases: %w", err)
	}
	return all, nil
}

// LastChange is the last enforcing run of a policy, in whatever stage, that was accepted after an instant and of which a batch
// is settled.
func (l *Ledger) LastChange(ctx context.Context, policy string, since time.Time) (r Run, found bool, err error) {
	r, err = scanRun(l.queryRow(ctx, `SELECT `+runColumns+` FROM @run
		WHERE policy = $1 AND mode = 'enforce' AND batches_settled > 0 AND accepted_at > $2 ORDER BY accepted_at DESC, id DESC LIMIT 1`,
		policy, stamp(since)))
	if errors.Is(err, sql.ErrNoRows) {
		return Run{}, false, nil
	}
	if err != nil {
		return Run{}, false, fmt.Errorf("read the last run of %s: %w", policy, err)
	}
	return r, true, nil
}

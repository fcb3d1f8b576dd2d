package target

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"curfew.dev/curfew/policy"
)

// ErrNotInstalled says that the governed database has none of curfew's tables yet.
var ErrNotInstalled = errors.New("curfew is not installed in this database")

// ErrOldLayout says that the tables there are of an older curfew, and lack what this one needs.
var ErrOldLayout = errors.New("curfew's tables there are of an older version")

// ErrHidden says that our role may not read curfew's tables, if they are there: MySQL does not tell the one from the other.
var ErrHidden = errors.New("our role may not read curfew's tables")

// layout is the version of the tables below. A database with a newer one is refused.
const layout = 2

// InstallSQL is what curfew needs in a governed database: one statement an element, each safe to run again.
//
// receipt holds what each batch did; it is written in the transaction of the change. hold holds the legal holds in force.
// hold_epoch is what a batch locks in share and the placing of a hold locks alone, so that a hold waits for the batches
// in flight and every later batch sees it (PostgreSQL uses an advisory lock instead, which waits for milliseconds also
// under load). tombstone remembers a run whose receipts were dropped, and refuses its late batches. claim says which ledger
// the database belongs to, so that a copy of it or another ledger is noticed. passage (layout 2) holds which
// stages a row has passed, for each due instant that it had; the row is named by its keyed hash.
func InstallSQL(e Engine) []string {
	switch e {
	case Postgres:
		return []string{
			`CREATE SCHEMA IF NOT EXISTS curfew`,
			`CREATE TABLE IF NOT EXISTS curfew.layout (version int NOT NULL, installed_at timestamptz NOT NULL DEFAULT clock_timestamp(), installation uuid NOT NULL DEFAULT gen_random_uuid())`,
			`INSERT INTO curfew.layout (version) SELECT 2 WHERE NOT EXISTS (SELECT 1 FROM curfew.layout)`,
			`CREATE TABLE IF NOT EXISTS curfew.receipt (
  batch_key bytea PRIMARY KEY, run text NOT NULL, seq bigint NOT NULL, policy text NOT NULL, stage text NOT NULL, relation text NOT NULL,
  as_of timestamptz NOT NULL, cutoff timestamptz NOT NULL, planned bigint, outcomes text, cascaded bigint, detail text,
  evidence bytea, evidence_root bytea, key_id text NOT NULL, deferred bytea,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(), completed_at timestamptz, UNIQUE (run, seq))`,
			`ALTER TABLE curfew.receipt ALTER COLUMN evidence SET STORAGE EXTERNAL`, // hashes do not compress
			`CREATE TABLE IF NOT EXISTS curfew.tombstone (run text PRIMARY KEY, receipts bigint NOT NULL, dropped_at timestamptz NOT NULL DEFAULT clock_timestamp())`,
			`CREATE TABLE IF NOT EXISTS curfew.hold (id text PRIMARY KEY, name text NOT NULL, relation text NOT NULL, conditions text NOT NULL, placed_at timestamptz NOT NULL DEFAULT clock_timestamp())`,
			`CREATE INDEX IF NOT EXISTS hold_relation ON curfew.hold (relation)`,
			`CREATE TABLE IF NOT EXISTS curfew.passage (
  policy text NOT NULL, row_hash bytea NOT NULL, stage text NOT NULL, due_us bigint NOT NULL, state text NOT NULL, as_of_us bigint NOT NULL,
  run text NOT NULL, batch_key bytea, attempt int NOT NULL, detail text NOT NULL, changed_at timestamptz NOT NULL,
  PRIMARY KEY (policy, row_hash, stage, due_us))`,
			`CREATE TABLE IF NOT EXISTS curfew.claim (one int PRIMARY KEY CHECK (one = 1), ledger text NOT NULL, epoch text NOT NULL, claimed_at timestamptz NOT NULL)`,
			`UPDATE curfew.layout SET version = 2 WHERE version < 2`, // last: all that it stands for is there
		}
	case MySQL:
		return []string{
			`CREATE TABLE IF NOT EXISTS curfew_layout (one TINYINT NOT NULL PRIMARY KEY DEFAULT 1, version INT NOT NULL, installed_at DATETIME(6) NOT NULL, installation CHAR(36) NOT NULL) ENGINE=InnoDB`,
			`INSERT IGNORE INTO curfew_layout (one, version, installed_at, installation) VALUES (1, 2, UTC_TIMESTAMP(6), UUID())`,
			`CREATE TABLE IF NOT EXISTS curfew_receipt (
  batch_key VARBINARY(32) NOT NULL PRIMARY KEY, run CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, seq BIGINT NOT NULL,
  policy VARCHAR(255) NOT NULL, stage VARCHAR(255) NOT NULL, relation VARCHAR(255) NOT NULL, as_of DATETIME(6) NOT NULL, cutoff DATETIME(6) NOT NULL,
  planned BIGINT NULL, outcomes TEXT NULL, cascaded BIGINT NULL, detail MEDIUMTEXT NULL, evidence LONGBLOB NULL, evidence_root VARBINARY(32) NULL,
  key_id VARCHAR(64) NOT NULL, deferred LONGBLOB NULL, started_at DATETIME(6) NOT NULL, completed_at DATETIME(6) NULL, UNIQUE KEY run_seq (run, seq)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4`,
			`CREATE TABLE IF NOT EXISTS curfew_tombstone (run CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, receipts BIGINT NOT NULL, dropped_at DATETIME(6) NOT NULL) ENGINE=InnoDB`,
			`CREATE TABLE IF NOT EXISTS curfew_hold (id VARCHAR(64) NOT NULL PRIMARY KEY, name VARCHAR(255) NOT NULL, relation VARCHAR(255) NOT NULL, conditions TEXT NOT NULL, placed_at DATETIME(6) NOT NULL, KEY relation (relation)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4`,
			`CREATE TABLE IF NOT EXISTS curfew_hold_epoch (one TINYINT NOT NULL PRIMARY KEY, epoch BIGINT NOT NULL) ENGINE=InnoDB`,
			`INSERT IGNORE INTO curfew_hold_epoch (one, epoch) VALUES (1, 0)`,
			`CREATE TABLE IF NOT EXISTS curfew_passage (
  policy VARCHAR(255) NOT NULL, row_hash BINARY(16) NOT NULL, stage VARCHAR(255) NOT NULL, due_us BIGINT NOT NULL, state VARCHAR(16) NOT NULL, as_of_us BIGINT NOT NULL,
  run VARCHAR(64) NOT NULL, batch_key VARBINARY(32) NULL, attempt INT NOT NULL, detail TEXT NOT NULL, changed_at DATETIME(6) NOT NULL,
  PRIMARY KEY (policy, row_hash, stage, due_us)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_bin`,
			`CREATE TABLE IF NOT EXISTS curfew_claim (one TINYINT NOT NULL PRIMARY KEY, ledger VARCHAR(64) NOT NULL, epoch VARCHAR(64) NOT NULL, claimed_at DATETIME(6) NOT NULL) ENGINE=InnoDB`,
			`UPDATE curfew_layout SET version = 2 WHERE version < 2`,
		}
	default:
		return []string{
			`CREATE TABLE IF NOT EXISTS curfew_layout (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, installed_at TEXT NOT NULL, installation TEXT NOT NULL)`,
			`INSERT INTO curfew_layout (one, version, installed_at, installation) VALUES (1, 2, strftime('%Y-%m-%d %H:%M:%f', 'now'), lower(hex(randomblob(16)))) ON CONFLICT DO NOTHING`,
			`CREATE TABLE IF NOT EXISTS curfew_receipt (
  batch_key BLOB NOT NULL PRIMARY KEY, run TEXT NOT NULL, seq INTEGER NOT NULL, policy TEXT NOT NULL, stage TEXT NOT NULL, relation TEXT NOT NULL,
  as_of TEXT NOT NULL, cutoff TEXT NOT NULL, planned INTEGER, outcomes TEXT, cascaded INTEGER, detail TEXT, evidence BLOB, evidence_root BLOB,
  key_id TEXT NOT NULL, deferred BLOB, started_at TEXT NOT NULL, completed_at TEXT, UNIQUE (run, seq))`,
			`CREATE TABLE IF NOT EXISTS curfew_tombstone (run TEXT NOT NULL PRIMARY KEY, receipts INTEGER NOT NULL, dropped_at TEXT NOT NULL)`,
			`CREATE TABLE IF NOT EXISTS curfew_hold (id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, relation TEXT NOT NULL, conditions TEXT NOT NULL, placed_at TEXT NOT NULL)`,
			`CREATE INDEX IF NOT EXISTS curfew_hold_relation ON curfew_hold (relation)`,
			`CREATE TABLE IF NOT EXISTS curfew_passage (
  policy TEXT NOT NULL, row_hash BLOB NOT NULL, stage TEXT NOT NULL, due_us INTEGER NOT NULL, state TEXT NOT NULL, as_of_us INTEGER NOT NULL,
  run TEXT NOT NULL, batch_key BLOB, attempt INTEGER NOT NULL, detail TEXT NOT NULL, changed_at TEXT NOT NULL,
  PRIMARY KEY (policy, row_hash, stage, due_us)) WITHOUT ROWID`,
			`CREATE TABLE IF NOT EXISTS curfew_claim (one INTEGER PRIMARY KEY CHECK (one = 1), ledger TEXT NOT NULL, epoch TEXT NOT NULL, claimed_at TEXT NOT NULL)`,
			`UPDATE curfew_layout SET version = 2 WHERE version < 2`,
		}
	}
}

// A Use is what policies do with a table, named as they name it.
type Use struct {
	Table  string
	Delete bool     // rows are removed
	Insert bool     // rows are put into it: it is an archive, and nothing else is done
	Update []string // columns that are changed
}

// UsesOf are the tables that policies work on and what they do there, sorted by name.
func UsesOf(policies []*policy.Policy) []Use {
	by := map[string]*Use{}
	use := func(table string) *Use {
		if by[table] == nil {
			by[table] = &Use{Table: table}
		}
		return by[table]
	}
	for _, p := range policies {
		actions := []policy.Action{p.Action}
		for _, s := range p.Stages {
			actions = append(actions, s.Action)
		}
		for _, a := range actions {
			switch a.Kind {
			case policy.Set, policy.Anonymise:
				for _, c := range a.Columns {
					if u := use(p.Table); !slices.Contains(u.Update, c.Column) {
						u.Update = append(u.Update, c.Column)
					}
				}
			case policy.Archive:
				use(p.Table).Delete = true
				use(a.To).Insert = true
			case policy.Delete:
				use(p.Table).Delete = true
				if a.Dependents != nil {
					for _, d := range a.Dependents.List {
						use(d.Table).Delete = true
					}
				}
			}
		}
	}
	var out []Use
	for _, name := range slices.Sorted(maps.Keys(by)) {
		out = append(out, *by[name])
	}
	return out
}

// rights are the privileges that a use needs. To lock rows PostgreSQL asks for UPDATE, be it on one column; MySQL is content with
// DELETE, and to leave a column as it is that it would set anew itself it must be set too, which the policy does not name.
func (u Use) rights(d dialect, e Engine) string {
	var out []string
	if u.Delete || len(u.Update) > 0 || u.Insert { // an archive is asked whether the rows arrived
		out = append(out, "SELECT")
	}
	if u.Delete {
		out = append(out, "DELETE")
	}
	switch {
	case u.Delete || e == MySQL && len(u.Update) > 0:
		out = append(out, "UPDATE")
	case len(u.Update) > 0:
		out = append(out, "UPDATE ("+list(columnsNamed(u.Update), func(c Column) string { return d.ident(c.Name) })+")")
	}
	if u.Insert {
		out = append(out, "INSERT")
	}
	return strings.Join(out, ", ")
}

func columnsNamed(names []string) []Column {
	out := make([]Column, len(names))
	for i, n := range names {
		out[i].Name = n
	}
	return out
}

// GrantSQL is what a role needs to govern the tables: the least of it. Reads are tables whose rows are only looked at, because
// they go along or because a guard asks.
func GrantSQL(e Engine, role string, tables []Use, reads []string) []string {
	if role == "" {
		role = "CURFEW_ROLE"
	}
	switch e {
	case Postgres:
		d := postgresDialect{}
		out := []string{
			"GRANT USAGE ON SCHEMA curfew TO " + d.ident(role),
			"GRANT SELECT ON curfew.layout, curfew.hold TO " + d.ident(role),
			"GRANT SELECT, INSERT, UPDATE, DELETE ON curfew.receipt TO " + d.ident(role),
			"GRANT SELECT, INSERT ON curfew.tombstone TO " + d.ident(role),
			"GRANT SELECT, INSERT, UPDATE, DELETE ON curfew.passage TO " + d.ident(role),
			"GRANT SELECT, INSERT, UPDATE ON curfew.claim TO " + d.ident(role),
		}
		for _, t := range tables {
			schema, name := parts(t.Table)
			if schema != "" {
				out = append(out, "GRANT USAGE ON SCHEMA "+d.ident(schema)+" TO "+d.ident(role))
			}
			out = append(out, "GRANT "+t.rights(d, e)+" ON "+quoted(d, schema, name)+" TO "+d.ident(role))
		}
		for _, t := range reads {
			out = append(out, "GRANT SELECT ON "+childTable(d, t)+" TO "+d.ident(role))
		}
		return out
	case MySQL:
		d := mysqlDialect{}
		to := " TO " + role
		out := []string{
			"GRANT SELECT ON curfew_layout" + to,
			"GRANT SELECT ON curfew_hold" + to,
			"GRANT SELECT, UPDATE ON curfew_hold_epoch" + to,
			"GRANT SELECT, INSERT, UPDATE, DELETE ON curfew_receipt" + to,
			"GRANT SELECT, INSERT ON curfew_tombstone" + to,
			"GRANT SELECT, INSERT, UPDATE, DELETE ON curfew_passage" + to,
			"GRANT SELECT, INSERT, UPDATE ON curfew_claim" + to,
			// Without it MySQL hides which tables reference ours, and with them what a delete would take along.
			"GRANT REFERENCES ON *" + to,
		}
		for _, t := range tables {
			schema, name := parts(t.Table)
			out = append(out, "GRANT "+t.rights(d, e)+" ON "+quoted(d, schema, name)+to)
		}
		for _, t := range reads {
			out = append(out, "GRANT SELECT ON "+childTable(d, t)+to)
		}
		return out
	}
	return nil // SQLite has no roles: whoever may write the file may do all
}

// Install creates what is missing of curfew's tables. Running it again changes nothing.
func (db *DB) Install(ctx context.Context) error {
	for _, stmt := range InstallSQL(db.Engine) {
		if _, err := db.SQL.ExecContext(ctx, stmt); err != nil {
			first, _, _ := strings.Cut(stmt, "(")
			return fmt.Errorf("%s: %w", strings.TrimSpace(first), redact(err))
		}
	}
	return nil
}

// Installed answers nil when curfew's tables are there in a layout this program knows, and the holds can be read.
func (db *DB) Installed(ctx context.Context) error {
	var version, holds int
	d := dialectFor(db.server)
	err := db.SQL.QueryRowContext(ctx, "SELECT version, (SELECT count(*) FROM "+d.own("hold")+") FROM "+d.own("layout")).Scan(&version, &holds)
	switch {
	case errors.Is(err, sql.ErrNoRows), err != nil && classify(err) == classUndefined:
		return ErrNotInstalled
	case err != nil && classify(err) == classPermission:
		return fmt.Errorf("%w: %w", ErrHidden, redact(err))
	case err != nil:
		return redact(err)
	case version > layout:
		return fmt.Errorf("curfew's tables there have layout %d; this program knows up to %d: use a newer curfew", version, layout)
	case version < layout:
		return fmt.Errorf("%w: they have layout %d, and %d is needed", ErrOldLayout, version, layout)
	}
	return nil
}

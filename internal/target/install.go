package target

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

// ErrNotInstalled says that the governed database has none of curfew's tables yet.
var ErrNotInstalled = errors.New("curfew is not installed in this database")

// ErrHidden says that our role may not read curfew's tables, if they are there: MySQL does not tell the one from the other.
var ErrHidden = errors.New("our role may not read curfew's tables")

// layout is the version of the tables below. A database with a newer one is refused.
const layout = 1

// InstallSQL is what curfew needs in a governed database: one statement an element, each safe to run again.
//
// receipt holds what each batch did; it is written in the transaction of the change. hold holds the legal holds in force.
// hold_epoch is what a batch locks in share and the placing of a hold locks alone, so that a hold waits for the batches
// in flight and every later batch sees it (PostgreSQL uses an advisory lock instead, which waits for milliseconds also
// under load). tombstone remembers a run whose receipts were dropped, and refuses its late batches. claim says which ledger
// the database belongs to, so that a copy of it or another ledger is noticed.
func InstallSQL(e Engine) []string {
	switch e {
	case Postgres:
		return []string{
			`CREATE SCHEMA IF NOT EXISTS curfew`,
			`CREATE TABLE IF NOT EXISTS curfew.layout (version int NOT NULL, installed_at timestamptz NOT NULL DEFAULT clock_timestamp(), installation uuid NOT NULL DEFAULT gen_random_uuid())`,
			`INSERT INTO curfew.layout (version) SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM curfew.layout)`,
			`CREATE TABLE IF NOT EXISTS curfew.receipt (
  batch_key bytea PRIMARY KEY, run text NOT NULL, seq bigint NOT NULL, policy text NOT NULL, stage text NOT NULL, relation text NOT NULL,
  as_of timestamptz NOT NULL, cutoff timestamptz NOT NULL, planned bigint, outcomes text, cascaded bigint, detail text,
  evidence bytea, evidence_root bytea, key_id text NOT NULL, deferred bytea,
  started_at timestamptz NOT NULL DEFAULT clock_timestamp(), completed_at timestamptz, UNIQUE (run, seq))`,
			`ALTER TABLE curfew.receipt ALTER COLUMN evidence SET STORAGE EXTERNAL`, // hashes do not compress
			`CREATE TABLE IF NOT EXISTS curfew.tombstone (run text PRIMARY KEY, receipts bigint NOT NULL, dropped_at timestamptz NOT NULL DEFAULT clock_timestamp())`,
			`CREATE TABLE IF NOT EXISTS curfew.hold (id text PRIMARY KEY, name text NOT NULL, relation text NOT NULL, conditions text NOT NULL, placed_at timestamptz NOT NULL DEFAULT clock_timestamp())`,
			`CREATE INDEX IF NOT EXISTS hold_relation ON curfew.hold (relation)`,
			`CREATE TABLE IF NOT EXISTS curfew.claim (one int PRIMARY KEY CHECK (one = 1), ledger text NOT NULL, epoch text NOT NULL, claimed_at timestamptz NOT NULL)`,
		}
	case MySQL:
		return []string{
			`CREATE TABLE IF NOT EXISTS curfew_layout (one TINYINT NOT NULL PRIMARY KEY DEFAULT 1, version INT NOT NULL, installed_at DATETIME(6) NOT NULL, installation CHAR(36) NOT NULL) ENGINE=InnoDB`,
			`INSERT IGNORE INTO curfew_layout (one, version, installed_at, installation) VALUES (1, 1, UTC_TIMESTAMP(6), UUID())`,
			`CREATE TABLE IF NOT EXISTS curfew_receipt (
  batch_key VARBINARY(32) NOT NULL PRIMARY KEY, run CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, seq BIGINT NOT NULL,
  policy VARCHAR(255) NOT NULL, stage VARCHAR(255) NOT NULL, relation VARCHAR(255) NOT NULL, as_of DATETIME(6) NOT NULL, cutoff DATETIME(6) NOT NULL,
  planned BIGINT NULL, outcomes TEXT NULL, cascaded BIGINT NULL, detail MEDIUMTEXT NULL, evidence LONGBLOB NULL, evidence_root VARBINARY(32) NULL,
  key_id VARCHAR(64) NOT NULL, deferred LONGBLOB NULL, started_at DATETIME(6) NOT NULL, completed_at DATETIME(6) NULL, UNIQUE KEY run_seq (run, seq)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4`,
			`CREATE TABLE IF NOT EXISTS curfew_tombstone (run CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY, receipts BIGINT NOT NULL, dropped_at DATETIME(6) NOT NULL) ENGINE=InnoDB`,
			`CREATE TABLE IF NOT EXISTS curfew_hold (id VARCHAR(64) NOT NULL PRIMARY KEY, name VARCHAR(255) NOT NULL, relation VARCHAR(255) NOT NULL, conditions TEXT NOT NULL, placed_at DATETIME(6) NOT NULL, KEY relation (relation)) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4`,
			`CREATE TABLE IF NOT EXISTS curfew_hold_epoch (one TINYINT NOT NULL PRIMARY KEY, epoch BIGINT NOT NULL) ENGINE=InnoDB`,
			`INSERT IGNORE INTO curfew_hold_epoch (one, epoch) VALUES (1, 0)`,
			`CREATE TABLE IF NOT EXISTS curfew_claim (one TINYINT NOT NULL PRIMARY KEY, ledger VARCHAR(64) NOT NULL, epoch VARCHAR(64) NOT NULL, claimed_at DATETIME(6) NOT NULL) ENGINE=InnoDB`,
		}
	default:
		return []string{
			`CREATE TABLE IF NOT EXISTS curfew_layout (one INTEGER PRIMARY KEY CHECK (one = 1), version INTEGER NOT NULL, installed_at TEXT NOT NULL, installation TEXT NOT NULL)`,
			`INSERT INTO curfew_layout (one, version, installed_at, installation) VALUES (1, 1, strftime('%Y-%m-%d %H:%M:%f', 'now'), lower(hex(randomblob(16)))) ON CONFLICT DO NOTHING`,
			`CREATE TABLE IF NOT EXISTS curfew_receipt (
  batch_key BLOB NOT NULL PRIMARY KEY, run TEXT NOT NULL, seq INTEGER NOT NULL, policy TEXT NOT NULL, stage TEXT NOT NULL, relation TEXT NOT NULL,
  as_of TEXT NOT NULL, cutoff TEXT NOT NULL, planned INTEGER, outcomes TEXT, cascaded INTEGER, detail TEXT, evidence BLOB, evidence_root BLOB,
  key_id TEXT NOT NULL, deferred BLOB, started_at TEXT NOT NULL, completed_at TEXT, UNIQUE (run, seq))`,
			`CREATE TABLE IF NOT EXISTS curfew_tombstone (run TEXT NOT NULL PRIMARY KEY, receipts INTEGER NOT NULL, dropped_at TEXT NOT NULL)`,
			`CREATE TABLE IF NOT EXISTS curfew_hold (id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, relation TEXT NOT NULL, conditions TEXT NOT NULL, placed_at TEXT NOT NULL)`,
			`CREATE INDEX IF NOT EXISTS curfew_hold_relation ON curfew_hold (relation)`,
			`CREATE TABLE IF NOT EXISTS curfew_claim (one INTEGER PRIMARY KEY CHECK (one = 1), ledger TEXT NOT NULL, epoch TEXT NOT NULL, claimed_at TEXT NOT NULL)`,
		}
	}
}

// GrantSQL is what a role needs to govern the tables: the least of it. Tables are named as policies name them; reads are those
// whose rows are only looked at, because they go along or because a guard asks.
func GrantSQL(e Engine, role string, tables, reads []string) []string {
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
			"GRANT SELECT, INSERT, UPDATE ON curfew.claim TO " + d.ident(role),
		}
		for _, t := range tables {
			schema, name := parts(t)
			if schema != "" {
				out = append(out, "GRANT USAGE ON SCHEMA "+d.ident(schema)+" TO "+d.ident(role))
			}
			// PostgreSQL asks for UPDATE before it lets a row be locked.
			out = append(out, "GRANT SELECT, DELETE, UPDATE ON "+quoted(d, schema, name)+" TO "+d.ident(role))
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
			"GRANT SELECT, INSERT, UPDATE ON curfew_claim" + to,
			// Without it MySQL hides which tables reference ours, and with them what a delete would take along.
			"GRANT REFERENCES ON *" + to,
		}
		for _, t := range tables {
			schema, name := parts(t)
			out = append(out, "GRANT SELECT, DELETE, UPDATE ON "+quoted(d, schema, name)+to)
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
	}
	return nil
}

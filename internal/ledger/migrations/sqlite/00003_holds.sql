-- +goose Up

-- Legal holds: what the ledger says is in force, whatever a governed database has.
CREATE TABLE curfew_legal_hold (
  id             TEXT NOT NULL PRIMARY KEY, -- random; the copies in governed databases have it too
  name           TEXT NOT NULL UNIQUE, -- given once: a name in the audit log means one hold
  reason         TEXT NOT NULL,
  state          TEXT NOT NULL CHECK (state IN ('placing', 'in_force', 'releasing', 'released')),
  database       TEXT NOT NULL,      -- '': a data subject, in every database
  relation       TEXT NOT NULL,                  -- a table; '*': whatever the table
  columns        TEXT NOT NULL,                  -- names of the columns compared, a list separated by commas
  conditions     BLOB NOT NULL,                 -- sealed: values are as good as keys
  asked_at       TEXT NOT NULL,
  asked_by       TEXT NOT NULL,
  placed_at      TEXT,                    -- in force everywhere since
  release_reason TEXT NOT NULL DEFAULT '',
  released_by    TEXT NOT NULL DEFAULT '',
  released_at    TEXT,                    -- when that was asked for
  CHECK ((released_at IS NOT NULL) = (state IN ('releasing', 'released')))
);
CREATE INDEX curfew_legal_hold_open ON curfew_legal_hold (name) WHERE state <> 'released';

-- What each governed database should have of them.
CREATE TABLE curfew_hold_copy (
  hold     TEXT NOT NULL REFERENCES curfew_legal_hold (id),
  database TEXT NOT NULL,
  state    TEXT NOT NULL CHECK (state IN ('placing', 'in_force', 'releasing', 'released')),
  PRIMARY KEY (hold, database)
);
CREATE INDEX curfew_hold_copy_pending ON curfew_hold_copy (database) WHERE state IN ('placing', 'releasing');


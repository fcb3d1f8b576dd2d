-- +goose Up

-- Legal holds: what the ledger says is in force, whatever a governed database has.
CREATE TABLE curfew.legal_hold (
  id             text COLLATE "C" PRIMARY KEY,   -- random; the copies in governed databases have it too
  name           text COLLATE "C" NOT NULL UNIQUE, -- given once: a name in the audit log means one hold
  reason         text NOT NULL,
  state          text NOT NULL CHECK (state IN ('placing', 'in_force', 'releasing', 'released')),
  database       text COLLATE "C" NOT NULL,      -- '': a data subject, in every database
  relation       text NOT NULL,                  -- a table; '*': whatever the table
  columns        text NOT NULL,                  -- names of the columns compared, a list separated by commas
  conditions     bytea NOT NULL,                 -- sealed: values are as good as keys
  asked_at       timestamptz NOT NULL,
  asked_by       text NOT NULL,
  placed_at      timestamptz,                    -- in force everywhere since
  release_reason text NOT NULL DEFAULT '',
  released_by    text NOT NULL DEFAULT '',
  released_at    timestamptz,                    -- when that was asked for
  CHECK ((released_at IS NOT NULL) = (state IN ('releasing', 'released')))
);
CREATE INDEX legal_hold_open ON curfew.legal_hold (name) WHERE state <> 'released';

-- What each governed database should have of them.
CREATE TABLE curfew.hold_copy (
  hold     text COLLATE "C" NOT NULL REFERENCES curfew.legal_hold (id),
  database text COLLATE "C" NOT NULL,
  state    text NOT NULL CHECK (state IN ('placing', 'in_force', 'releasing', 'released')),
  PRIMARY KEY (hold, database)
);
CREATE INDEX hold_copy_pending ON curfew.hold_copy (database) WHERE state IN ('placing', 'releasing');

-- On top of what 00001 and 00002 say, for a role that only works with the ledger:
--   GRANT SELECT ON ALL TABLES IN SCHEMA curfew TO curfew_app;
--   GRANT INSERT, UPDATE ON curfew.legal_hold, curfew.hold_copy TO curfew_app;

-- +goose Up

-- These tables may live in a file that an application owns. Nothing here may
-- keep an older SQLite in that application from opening it: no STRICT tables
-- (3.37), no generated columns. Instants are UTC text of one width,
-- 2026-07-01T02:00:00.000000Z, so that they sort and people can read them.

CREATE TABLE curfew_meta (
  one     INTEGER PRIMARY KEY CHECK (one = 1),
  epoch   TEXT NOT NULL,              -- random: another epoch is another ledger
  created TEXT NOT NULL
);

CREATE TABLE curfew_revision (
  id         TEXT PRIMARY KEY,        -- hex SHA-256 of body
  policy     TEXT NOT NULL,
  body       TEXT NOT NULL,
  first_seen TEXT NOT NULL
);

CREATE TABLE curfew_run (
  id              TEXT PRIMARY KEY,   -- hex SHA-256 of policy, stage, mode, identity
  policy          TEXT NOT NULL,
  stage           TEXT NOT NULL,
  mode            TEXT NOT NULL,
  identity        TEXT NOT NULL,
  operation       TEXT NOT NULL,      -- the caller's own key, or ''
  cause           TEXT NOT NULL,
  as_of           TEXT NOT NULL,
  cutoff          TEXT NOT NULL,
  revision        TEXT NOT NULL REFERENCES curfew_revision (id),
  state           TEXT NOT NULL,
  why_ended       TEXT NOT NULL DEFAULT '',
  detail          TEXT NOT NULL DEFAULT '',
  planned         INTEGER NOT NULL DEFAULT 0,
  outcomes        TEXT NOT NULL DEFAULT '{}',
  cascaded        INTEGER NOT NULL DEFAULT 0,
  batches_total   INTEGER NOT NULL DEFAULT 0,
  batches_settled INTEGER NOT NULL DEFAULT 0,
  cursor          BLOB,               -- sealed; cleared when the run ends
  paged_out       BOOLEAN NOT NULL DEFAULT 0,
  page_rows       INTEGER NOT NULL DEFAULT 0,
  plan            BLOB,
  owner           TEXT NOT NULL DEFAULT '',
  heartbeat       TEXT,
  accepted_at     TEXT NOT NULL,
  started_at      TEXT,
  ended_at        TEXT,
  CHECK (batches_settled <= batches_total),
  CHECK ((ended_at IS NULL) = (state IN ('accepted', 'running', 'awaiting_approval')))
);
CREATE INDEX curfew_run_newest ON curfew_run (accepted_at, id);
CREATE INDEX curfew_run_policy ON curfew_run (policy, stage, mode, accepted_at);

CREATE TABLE curfew_batch (
  key            BLOB PRIMARY KEY,    -- 32 bytes, a function of the run and the bounds
  run            TEXT NOT NULL REFERENCES curfew_run (id),
  seq            INTEGER NOT NULL,
  phase          TEXT NOT NULL,
  bounds         BLOB,                -- sealed
  keys           BLOB,                -- sealed; cleared when the batch settles
  planned        INTEGER NOT NULL,
  state          TEXT NOT NULL CHECK (state IN ('offered', 'pending', 'settled')),
  outcomes       TEXT NOT NULL DEFAULT '{}',
  cascaded       INTEGER NOT NULL DEFAULT 0,
  deferred       INTEGER NOT NULL DEFAULT 0,
  deferred_keys  BLOB,                -- sealed; cleared when a later batch takes them
  deferred_taken BOOLEAN NOT NULL DEFAULT 0,
  attempts       INTEGER NOT NULL DEFAULT 0,
  root           BLOB,
  key_id         TEXT NOT NULL DEFAULT '',  -- the key that made the hashes under root
  duration_us    INTEGER NOT NULL DEFAULT 0,
  created        TEXT NOT NULL,
  settled_at     TEXT,
  UNIQUE (run, seq)
);
CREATE INDEX curfew_batch_open ON curfew_batch (run, seq) WHERE state <> 'settled';
CREATE INDEX curfew_batch_deferred ON curfew_batch (run, seq) WHERE deferred > 0;

CREATE TABLE curfew_blocked (
  policy      TEXT NOT NULL,
  stage       TEXT NOT NULL,
  row_hash    BLOB NOT NULL,          -- 16 bytes
  key_id      TEXT NOT NULL,
  outcome     TEXT NOT NULL,
  reason      TEXT NOT NULL,
  first_run   TEXT NOT NULL,
  first_batch BLOB NOT NULL,
  first_seen  TEXT NOT NULL,
  last_run    TEXT NOT NULL,
  last_as_of  TEXT NOT NULL,
  last_seen   TEXT NOT NULL,
  PRIMARY KEY (policy, stage, row_hash)
);

CREATE TABLE curfew_database (
  name     TEXT PRIMARY KEY,
  identity TEXT NOT NULL,
  seen     TEXT NOT NULL
);

CREATE TABLE curfew_audit (
  seq    INTEGER PRIMARY KEY,         -- without gaps: one writer, and nothing is ever deleted
  at     TEXT NOT NULL,
  actor  TEXT NOT NULL,
  action TEXT NOT NULL,
  policy TEXT NOT NULL,
  run    TEXT NOT NULL,
  batch  BLOB,
  body   TEXT NOT NULL
);
CREATE INDEX curfew_audit_run ON curfew_audit (run, seq) WHERE run <> '';

-- +goose StatementBegin
CREATE TRIGGER curfew_audit_no_update BEFORE UPDATE ON curfew_audit
BEGIN
  SELECT RAISE(ABORT, 'curfew_audit is append-only');
END;
-- +goose StatementEnd
-- +goose StatementBegin
CREATE TRIGGER curfew_audit_no_delete BEFORE DELETE ON curfew_audit
BEGIN
  SELECT RAISE(ABORT, 'curfew_audit is append-only');
END;
-- +goose StatementEnd
-- INSERT OR REPLACE removes the old row without firing a DELETE trigger.
-- +goose StatementBegin
CREATE TRIGGER curfew_audit_no_replace BEFORE INSERT ON curfew_audit
WHEN EXISTS (SELECT 1 FROM curfew_audit WHERE seq = NEW.seq)
BEGIN
  SELECT RAISE(ABORT, 'curfew_audit is append-only');
END;
-- +goose StatementEnd

INSERT INTO curfew_meta (one, epoch, created)
VALUES (1, lower(hex(randomblob(16))), strftime('%Y-%m-%dT%H:%M:%f000Z', 'now'));
INSERT INTO curfew_audit (at, actor, action, policy, run, body)
SELECT created, 'migrate', 'ledger_created', '', '', '{"epoch":"' || epoch || '"}' FROM curfew_meta;

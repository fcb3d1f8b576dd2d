-- +goose Up

-- The schema may also hold what curfew installs in a governed database
-- (receipt, hold, hold_epoch, tombstone): those names are taken.
-- json, not jsonb: revisions and audit entries are kept byte for byte.

CREATE TABLE curfew.meta (
  one     boolean PRIMARY KEY CHECK (one),
  epoch   text NOT NULL,              -- random: another epoch is another ledger
  created timestamptz NOT NULL
);

CREATE TABLE curfew.revision (
  id         text COLLATE "C" PRIMARY KEY,  -- hex SHA-256 of body
  policy     text NOT NULL,
  body       json NOT NULL,
  first_seen timestamptz NOT NULL
);

CREATE TABLE curfew.run (
  id              text COLLATE "C" PRIMARY KEY, -- hex SHA-256 of policy, stage, mode, identity
  policy          text NOT NULL,
  stage           text NOT NULL,
  mode            text NOT NULL,
  identity        text NOT NULL,
  operation       text NOT NULL,      -- the caller's own key, or ''
  cause           text NOT NULL,
  as_of           timestamptz NOT NULL,
  cutoff          timestamptz NOT NULL,
  revision        text COLLATE "C" NOT NULL REFERENCES curfew.revision (id),
  state           text NOT NULL,
  why_ended       text NOT NULL DEFAULT '',
  detail          text NOT NULL DEFAULT '',
  planned         bigint NOT NULL DEFAULT 0,
  outcomes        json NOT NULL DEFAULT '{}',
  cascaded        bigint NOT NULL DEFAULT 0,
  batches_total   bigint NOT NULL DEFAULT 0,
  batches_settled bigint NOT NULL DEFAULT 0,
  cursor          bytea,              -- sealed; cleared when the run ends
  paged_out       boolean NOT NULL DEFAULT false,
  page_rows       bigint NOT NULL DEFAULT 0,
  plan            bytea,
  owner           text NOT NULL DEFAULT '',
  heartbeat       timestamptz,
  accepted_at     timestamptz NOT NULL,
  started_at      timestamptz,
  ended_at        timestamptz,
  CHECK (batches_settled <= batches_total),
  CHECK ((ended_at IS NULL) = (state IN ('accepted', 'running', 'awaiting_approval')))
) WITH (fillfactor = 50);             -- every step updates the row; leave room to do it in the page
CREATE INDEX run_newest ON curfew.run (accepted_at, id);
CREATE INDEX run_policy ON curfew.run (policy, stage, mode, accepted_at);

CREATE TABLE curfew.batch (
  key            bytea PRIMARY KEY,   -- 32 bytes, a function of the run and the bounds
  run            text COLLATE "C" NOT NULL REFERENCES curfew.run (id),
  seq            bigint NOT NULL,
  phase          text NOT NULL,
  bounds         bytea,               -- sealed
  keys           bytea,               -- sealed; cleared when the batch settles
  planned        bigint NOT NULL,
  state          text NOT NULL CHECK (state IN ('offered', 'pending', 'settled')),
  outcomes       json NOT NULL DEFAULT '{}',
  cascaded       bigint NOT NULL DEFAULT 0,
  deferred       bigint NOT NULL DEFAULT 0,
  deferred_keys  bytea,               -- sealed; cleared when a later batch takes them
  deferred_taken boolean NOT NULL DEFAULT false,
  attempts       bigint NOT NULL DEFAULT 0,
  root           bytea,
  key_id         text NOT NULL DEFAULT '',  -- the key that made the hashes under root
  duration_us    bigint NOT NULL DEFAULT 0,
  created        timestamptz NOT NULL,
  settled_at     timestamptz,
  UNIQUE (run, seq)
);
-- Sealed bytes do not compress; trying costs time.
ALTER TABLE curfew.batch ALTER COLUMN bounds SET STORAGE EXTERNAL,
  ALTER COLUMN keys SET STORAGE EXTERNAL, ALTER COLUMN deferred_keys SET STORAGE EXTERNAL;
CREATE INDEX batch_open ON curfew.batch (run, seq) WHERE state <> 'settled';
CREATE INDEX batch_deferred ON curfew.batch (run, seq) WHERE deferred > 0;

CREATE TABLE curfew.blocked (
  policy      text NOT NULL,
  stage       text NOT NULL,
  row_hash    bytea NOT NULL,         -- 16 bytes
  key_id      text NOT NULL,
  outcome     text NOT NULL,
  reason      text NOT NULL,
  first_run   text NOT NULL,
  first_batch bytea NOT NULL,
  first_seen  timestamptz NOT NULL,
  last_run    text NOT NULL,
  last_as_of  timestamptz NOT NULL,
  last_seen   timestamptz NOT NULL,
  PRIMARY KEY (policy, stage, row_hash)
);

CREATE TABLE curfew.database (
  name     text PRIMARY KEY,
  identity text NOT NULL,
  seen     timestamptz NOT NULL
);

-- Identities are handed out before commit: seq grows, but it may have gaps, and
-- an entry with a smaller seq may become visible after one with a larger.
-- Within one run the row lock on the run puts both in order.
CREATE TABLE curfew.audit (
  seq    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at     timestamptz NOT NULL,
  actor  text NOT NULL,
  action text NOT NULL,
  policy text NOT NULL,
  run    text COLLATE "C" NOT NULL,
  batch  bytea,
  body   json NOT NULL
);
CREATE INDEX audit_run ON curfew.audit (run, seq) WHERE run <> '';

-- +goose StatementBegin
CREATE FUNCTION curfew.audit_is_append_only() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'curfew.audit is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;
-- +goose StatementEnd
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON curfew.audit
  FOR EACH STATEMENT EXECUTE FUNCTION curfew.audit_is_append_only();
-- Also for sessions that replay a replication stream.
ALTER TABLE curfew.audit ENABLE ALWAYS TRIGGER append_only;
REVOKE ALL ON curfew.audit FROM PUBLIC;

-- The owner of these tables can drop the trigger. Migrate as the owner and run
-- curfew as another role, which is granted no more than it needs:
--   GRANT USAGE ON SCHEMA curfew TO curfew_app;
--   GRANT SELECT ON ALL TABLES IN SCHEMA curfew TO curfew_app;
--   GRANT INSERT ON curfew.audit, curfew.revision TO curfew_app;
--   GRANT INSERT, UPDATE ON curfew.run, curfew.batch, curfew.database TO curfew_app;
--   GRANT INSERT, UPDATE, DELETE ON curfew.blocked TO curfew_app;

INSERT INTO curfew.meta (one, epoch, created)
VALUES (true, replace(gen_random_uuid()::text, '-', ''), clock_timestamp());
INSERT INTO curfew.audit (at, actor, action, policy, run, body)
SELECT created, 'migrate', 'ledger_created', '', '', json_build_object('epoch', epoch) FROM curfew.meta;

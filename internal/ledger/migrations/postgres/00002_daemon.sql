-- +goose Up

-- How far the schedule of a policy stage has been turned into occurrences.
CREATE TABLE curfew.schedule (
  policy     text COLLATE "C" NOT NULL,
  stage      text COLLATE "C" NOT NULL,
  expr       text NOT NULL,           -- what fires: cron, zone and by whom; another one starts afresh
  cursor     timestamptz NOT NULL,    -- every instant up to and with this one has its occurrence
  ticked_at  timestamptz NOT NULL,
  read_at    timestamptz NOT NULL,  -- when the file was read that expr is from: the latest decides
  oldest_due timestamptz,             -- due instant of the oldest due row, as last looked up; NULL: none was due
  oldest_at  timestamptz,             -- when that was
  PRIMARY KEY (policy, stage)
);

-- Every scheduled instant, and what became of it.
CREATE TABLE curfew.occurrence (
  policy   text COLLATE "C" NOT NULL,
  stage    text COLLATE "C" NOT NULL,
  at       timestamptz NOT NULL,
  start_by timestamptz NOT NULL,      -- begun later than this it would be too late; of an external schedule: the call must have come
  external boolean NOT NULL DEFAULT false,
  state    text NOT NULL CHECK (state IN ('pending', 'ok', 'failed', 'skipped', 'expired', 'missed', 'shadow')),
  why      text NOT NULL DEFAULT '',
  run      text COLLATE "C" NOT NULL DEFAULT '',  -- the run that stands for it; of a missed one: the run that caught up
  created  timestamptz NOT NULL,
  ended    timestamptz,
  PRIMARY KEY (policy, stage, at),
  CHECK ((ended IS NULL) = (state = 'pending'))
);
CREATE INDEX occurrence_open ON curfew.occurrence (policy, stage, at) WHERE state = 'pending';
CREATE INDEX occurrence_missed ON curfew.occurrence (policy, stage, at) WHERE state = 'missed' AND run = '';
CREATE INDEX occurrence_run ON curfew.occurrence (run) WHERE run <> '';

CREATE INDEX run_open ON curfew.run (accepted_at, id) WHERE ended_at IS NULL;

-- The text of each policy that services keep, as the last one to start or reload read it.
CREATE TABLE curfew.policy (
  name     text COLLATE "C" PRIMARY KEY,
  revision text COLLATE "C" NOT NULL,
  source   text NOT NULL,             -- the file, by its path
  since    timestamptz NOT NULL
);

-- What a caller's own key was used for: the same key with another body is refused.
CREATE TABLE curfew.operation (
  policy    text COLLATE "C" NOT NULL,
  key       text COLLATE "C" NOT NULL,
  body_hash bytea NOT NULL,
  run       text COLLATE "C" NOT NULL,
  PRIMARY KEY (policy, key)
);

-- Who asked for a run over HTTP, and what the answer was.
CREATE TABLE curfew.call (
  id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at     timestamptz NOT NULL,
  token  text NOT NULL,               -- the token's name
  policy text COLLATE "C" NOT NULL,
  stage  text COLLATE "C" NOT NULL,
  answer bigint NOT NULL,             -- HTTP status
  run    text COLLATE "C" NOT NULL DEFAULT '',
  fresh  boolean NOT NULL DEFAULT false,  -- the call made the run
  detail text NOT NULL DEFAULT ''
);
CREATE INDEX call_newest ON curfew.call (at, id);

CREATE TABLE curfew.token (
  hash      bytea PRIMARY KEY,        -- SHA-256 of the token
  name      text COLLATE "C" NOT NULL UNIQUE,
  scopes    text NOT NULL,            -- a list, separated by commas
  created   timestamptz NOT NULL,
  last_used timestamptz,
  revoked   timestamptz
);

CREATE TABLE curfew.pause (
  policy text COLLATE "C" PRIMARY KEY,
  since  timestamptz NOT NULL,
  actor  text NOT NULL,
  reason text NOT NULL DEFAULT ''
);

-- What was or is to be told to people. The key makes one thing one alert.
CREATE TABLE curfew.alert (
  id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  key       text COLLATE "C" NOT NULL UNIQUE,
  kind      text NOT NULL,
  policy    text COLLATE "C" NOT NULL,
  stage     text COLLATE "C" NOT NULL,
  run       text COLLATE "C" NOT NULL DEFAULT '',
  at        timestamptz NOT NULL,
  body      json NOT NULL,            -- JSON, as it is sent
  attempts  bigint NOT NULL DEFAULT 0,
  next_try  timestamptz,              -- NULL: sent, or given up
  sent      timestamptz,
  error     text NOT NULL DEFAULT ''
);
CREATE INDEX alert_open ON curfew.alert (next_try) WHERE next_try IS NOT NULL;

-- How far a reader of the audit log has come.
CREATE TABLE curfew.tail (
  name text COLLATE "C" PRIMARY KEY,
  seq  bigint NOT NULL
);

-- On top of what 00001 says, for a role that only works with the ledger:
--   GRANT SELECT ON ALL TABLES IN SCHEMA curfew TO curfew_app;
--   GRANT INSERT, UPDATE ON curfew.schedule, curfew.occurrence, curfew.token, curfew.alert, curfew.tail TO curfew_app;
--   GRANT INSERT ON curfew.operation TO curfew_app;
--   GRANT INSERT, DELETE ON curfew.call TO curfew_app;
--   GRANT INSERT, UPDATE, DELETE ON curfew.pause, curfew.policy TO curfew_app;

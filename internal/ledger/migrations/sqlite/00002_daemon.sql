-- +goose Up

-- How far the schedule of a policy stage has been turned into occurrences.
CREATE TABLE curfew_schedule (
  policy     TEXT NOT NULL,
  stage      TEXT NOT NULL,
  expr       TEXT NOT NULL,           -- what fires: cron, zone and by whom; another one starts afresh
  cursor     TEXT NOT NULL,           -- every instant up to and with this one has its occurrence
  ticked_at  TEXT NOT NULL,
  read_at    TEXT NOT NULL,           -- when the file was read that expr is from: the latest decides
  oldest_due TEXT,                    -- due instant of the oldest due row, as last looked up; NULL: none was due
  oldest_at  TEXT,                    -- when that was
  PRIMARY KEY (policy, stage)
);

-- Every scheduled instant, and what became of it.
CREATE TABLE curfew_occurrence (
  policy   TEXT NOT NULL,
  stage    TEXT NOT NULL,
  at       TEXT NOT NULL,
  start_by TEXT NOT NULL,             -- begun later than this it would be too late; of an external schedule: the call must have come
  external BOOLEAN NOT NULL DEFAULT 0,
  state    TEXT NOT NULL CHECK (state IN ('pending', 'ok', 'failed', 'skipped', 'expired', 'missed', 'shadow')),
  why      TEXT NOT NULL DEFAULT '',
  run      TEXT NOT NULL DEFAULT '',  -- the run that stands for it; of a missed one: the run that caught up
  created  TEXT NOT NULL,
  ended    TEXT,
  PRIMARY KEY (policy, stage, at),
  CHECK ((ended IS NULL) = (state = 'pending'))
);
CREATE INDEX curfew_occurrence_open ON curfew_occurrence (policy, stage, at) WHERE state = 'pending';
CREATE INDEX curfew_occurrence_missed ON curfew_occurrence (policy, stage, at) WHERE state = 'missed' AND run = '';
CREATE INDEX curfew_occurrence_run ON curfew_occurrence (run) WHERE run <> '';

CREATE INDEX curfew_run_open ON curfew_run (accepted_at, id) WHERE ended_at IS NULL;

-- The text of each policy that services keep, as the last one to start or reload read it.
CREATE TABLE curfew_policy (
  name     TEXT PRIMARY KEY,
  revision TEXT NOT NULL,
  source   TEXT NOT NULL,             -- the file, by its path
  since    TEXT NOT NULL
);

-- What a caller's own key was used for: the same key with another body is refused.
CREATE TABLE curfew_operation (
  policy    TEXT NOT NULL,
  key       TEXT NOT NULL,
  body_hash BLOB NOT NULL,
  run       TEXT NOT NULL,
  PRIMARY KEY (policy, key)
);

-- Who asked for a run over HTTP, and what the answer was.
CREATE TABLE curfew_call (
  id     INTEGER PRIMARY KEY,
  at     TEXT NOT NULL,
  token  TEXT NOT NULL,               -- the token's name
  policy TEXT NOT NULL,
  stage  TEXT NOT NULL,
  answer INTEGER NOT NULL,            -- HTTP status
  run    TEXT NOT NULL DEFAULT '',
  fresh  BOOLEAN NOT NULL DEFAULT 0,  -- the call made the run
  detail TEXT NOT NULL DEFAULT ''
);
CREATE INDEX curfew_call_newest ON curfew_call (at, id);

CREATE TABLE curfew_token (
  hash      BLOB PRIMARY KEY,         -- SHA-256 of the token
  name      TEXT NOT NULL UNIQUE,
  scopes    TEXT NOT NULL,            -- a list, separated by commas
  created   TEXT NOT NULL,
  last_used TEXT,
  revoked   TEXT
);

CREATE TABLE curfew_pause (
  policy TEXT PRIMARY KEY,
  since  TEXT NOT NULL,
  actor  TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT ''
);

-- What was or is to be told to people. The key makes one thing one alert.
CREATE TABLE curfew_alert (
  id        INTEGER PRIMARY KEY,
  key       TEXT NOT NULL UNIQUE,
  kind      TEXT NOT NULL,
  policy    TEXT NOT NULL,
  stage     TEXT NOT NULL,
  run       TEXT NOT NULL DEFAULT '',
  at        TEXT NOT NULL,
  body      TEXT NOT NULL,            -- JSON, as it is sent
  attempts  INTEGER NOT NULL DEFAULT 0,
  next_try  TEXT,                     -- NULL: sent, or given up
  sent      TEXT,
  error     TEXT NOT NULL DEFAULT ''
);
CREATE INDEX curfew_alert_open ON curfew_alert (next_try) WHERE next_try IS NOT NULL;

-- How far a reader of the audit log has come.
CREATE TABLE curfew_tail (
  name TEXT PRIMARY KEY,
  seq  INTEGER NOT NULL
);

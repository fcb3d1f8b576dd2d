-- +goose Up

-- The tasks that services have, with what is needed to call one.
CREATE TABLE curfew_task (
  name       TEXT PRIMARY KEY,
  source     TEXT NOT NULL,           -- the file or the program that it is from, as the last one to start said
  revision   TEXT NOT NULL,
  body       TEXT NOT NULL,           -- JSON: its settings, without secrets
  queue      TEXT NOT NULL,
  priority   INTEGER NOT NULL,
  attempts   INTEGER NOT NULL,
  backoff_ns INTEGER NOT NULL,
  factor     INTEGER NOT NULL,
  timeout_ns INTEGER NOT NULL,
  expr       TEXT NOT NULL,           -- of its schedule; '': it has none
  since      TEXT NOT NULL,           -- since when it has this revision
  seen       TEXT NOT NULL            -- when a service said last that it has it
);

-- What only so many may hold at once: tasks, and what tasks and policies share. Whoever takes one locks its row.
CREATE TABLE curfew_lock (
  name TEXT PRIMARY KEY
);

-- Who holds it. A row says so only while its holder lives: a run that is open and has an owner, an attempt of a call that executes.
CREATE TABLE curfew_lock_holder (
  name    TEXT NOT NULL REFERENCES curfew_lock (name),
  run     TEXT NOT NULL,              -- '': a call
  job     INTEGER NOT NULL,           -- the call; 0: a run
  attempt INTEGER NOT NULL,
  since   TEXT NOT NULL,
  PRIMARY KEY (name, run, job, attempt)
);

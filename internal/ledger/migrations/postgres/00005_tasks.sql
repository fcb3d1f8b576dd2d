-- +goose Up

-- The tasks that services have, with what is needed to call one.
CREATE TABLE curfew.task (
  name       text COLLATE "C" PRIMARY KEY,
  source     text NOT NULL,           -- the file or the program that it is from, as the last one to start said
  revision   text COLLATE "C" NOT NULL,
  body       text NOT NULL,           -- JSON: its settings, without secrets
  queue      text COLLATE "C" NOT NULL,
  priority   bigint NOT NULL,
  attempts   bigint NOT NULL,
  backoff_ns bigint NOT NULL,
  factor     bigint NOT NULL,
  timeout_ns bigint NOT NULL,
  expr       text NOT NULL,           -- of its schedule; '': it has none
  since      timestamptz NOT NULL,    -- since when it has this revision
  seen       timestamptz NOT NULL     -- when a service said last that it has it
);

-- What only so many may hold at once: tasks, and what tasks and policies share. Whoever takes one locks its row.
CREATE TABLE curfew.lock (
  name text COLLATE "C" PRIMARY KEY
);

-- Who holds it. A row says so only while its holder lives: a run that is open and has an owner, an attempt of a call that executes.
CREATE TABLE curfew.lock_holder (
  name    text COLLATE "C" NOT NULL REFERENCES curfew.lock (name),
  run     text COLLATE "C" NOT NULL,  -- '': a call
  job     bigint NOT NULL,            -- the call; 0: a run
  attempt bigint NOT NULL,
  since   timestamptz NOT NULL,
  PRIMARY KEY (name, run, job, attempt)
);

-- A call of a task out of the caller's own transaction, in any language: the row that a service's own client would insert (riverq.DeferTx;
-- a test compares both). The answer is the call's number; with a unique_key of which a call is open already, that one's. It works with
-- its owner's rights, so that the caller needs none in the queue; who may call it is for the owner to grant, and not everybody.
-- +goose StatementBegin
CREATE FUNCTION curfew.defer(task text, args jsonb DEFAULT '{}', run_at timestamptz DEFAULT NULL, unique_key text DEFAULT NULL)
RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $defer$
#variable_conflict use_column
DECLARE
  called curfew.task%ROWTYPE;
  at     timestamptz := pg_catalog.clock_timestamp();
  soon   boolean;
  hash   bytea;
  river  text COLLATE "C";
  word   text COLLATE "C";
  call   bigint;
BEGIN
  SELECT t.* INTO called FROM curfew.task t WHERE t.name = defer.task;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'curfew knows no task "%"', defer.task USING ERRCODE = 'undefined_object',
      HINT = 'A task is known once a service that has it has started; curfew task list shows them.';
  END IF;
  IF octet_length(defer.args::text) > 1048576 THEN
    RAISE EXCEPTION 'the arguments of a call of task % have % bytes, at most 1048576', defer.task, octet_length(defer.args::text)
      USING ERRCODE = 'program_limit_exceeded', HINT = 'Put what is larger into a table, and its key into the arguments.';
  END IF;
  IF octet_length(defer.unique_key) > 500 THEN
    RAISE EXCEPTION 'the unique_key of a call of task % has % bytes, at most 500', defer.task, octet_length(defer.unique_key)
      USING ERRCODE = 'program_limit_exceeded';
  END IF;
  IF NOT isfinite(defer.run_at) THEN
    RAISE EXCEPTION 'run_at of a call of task % is %: it is no instant', defer.task, defer.run_at USING ERRCODE = 'datetime_field_overflow';
  END IF;
  IF defer.unique_key <> '' THEN
    hash := sha256(convert_to('task:' || called.name || E'\nkey:' || defer.unique_key, 'UTF8'));
  END IF;
  -- The queue by the name that it has in the queue's tables: riverq.QueueName.
  river := CASE called.queue WHEN '' THEN 'interactive' ELSE called.queue END;
  IF length(river) > 64 OR river !~ '^[a-z0-9]+([_-][a-z0-9]+)*$' THEN
    word := rtrim(left(btrim(regexp_replace(lower(river), '[^a-z0-9]+', '-', 'g'), '-'), 40), '-');
    river := CASE word WHEN '' THEN 'queue' ELSE word END || '-' || left(encode(sha256(convert_to(river, 'UTF8')), 'hex'), 12);
  END IF;
  -- What is due within five seconds is fetched when it is due, without a step between.
  soon := coalesce(defer.run_at <= at + interval '5 seconds', true);
  INSERT INTO curfew.river_job AS j (args, created_at, kind, max_attempts, metadata, priority, queue, scheduled_at, state, tags, unique_key, unique_states)
  VALUES (
    CASE WHEN defer.args IS NULL THEN '{}' ELSE jsonb_build_object('args', defer.args) END
      || jsonb_build_object('cause', 'sql')
      || CASE WHEN hash IS NULL THEN '{}' ELSE jsonb_build_object('key', defer.unique_key) END
      || CASE called.backoff_ns WHEN 0 THEN '{}' ELSE jsonb_build_object('backoff_ns', called.backoff_ns) END
      || CASE called.factor WHEN 0 THEN '{}' ELSE jsonb_build_object('factor', called.factor) END
      || CASE called.timeout_ns WHEN 0 THEN '{}' ELSE jsonb_build_object('timeout_ns', called.timeout_ns) END,
    at, 'task:' || called.name, called.attempts, '{}', greatest(1, called.priority), river, coalesce(defer.run_at, at),
    (CASE WHEN soon THEN 'available' ELSE 'scheduled' END)::curfew.river_job_state, '{}', hash, CASE WHEN hash IS NOT NULL THEN B'11110001' END)
  ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND unique_states IS NOT NULL AND curfew.river_job_state_in_bitmask(unique_states, state)
  DO UPDATE SET kind = excluded.kind -- changes nothing, and gives the open one
  RETURNING j.id INTO call;
  IF soon THEN
    PERFORM pg_notify('curfew.river_insert', '{"queue":"' || river || '"}');
  END IF;
  RETURN call;
END
$defer$;
-- +goose StatementEnd

REVOKE ALL ON FUNCTION curfew.defer(text, jsonb, timestamptz, text) FROM PUBLIC;

-- What the daemon's role needs beside what 00004 says:
--
--   GRANT SELECT ON ALL TABLES IN SCHEMA curfew TO curfew_app;
--   GRANT INSERT, UPDATE ON curfew.lock TO curfew_app;
--   GRANT INSERT, DELETE ON curfew.lock_holder TO curfew_app;
--   GRANT INSERT, UPDATE, DELETE ON curfew.task TO curfew_app;
--
-- and the role of an application that defers:
--
-- GRANT USAGE ON SCHEMA curfew TO application;
-- GRANT EXECUTE ON FUNCTION curfew.defer(text, jsonb, timestamptz, text) TO application;

-- +goose Up
CREATE TABLE curfew.task (
  name TEXT PRIMARY KEY, source TEXT NOT NULL, revision TEXT NOT NULL, body TEXT NOT NULL, queue TEXT NOT NULL, priority bigint NOT NULL,
  attempts bigint NOT NULL, backoff_ns bigint NOT NULL, factor bigint NOT NULL, timeout_ns bigint NOT NULL, expr TEXT NOT NULL, since timestamptz NOT NULL, seen timestamptz NOT NULL
);
CREATE TABLE curfew.task_lock (
  name TEXT NOT NULL, run TEXT NOT NULL, job bigint NOT NULL, attempt bigint NOT NULL, PRIMARY KEY (name, run, job)
);

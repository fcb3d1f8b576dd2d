-- +goose Up
CREATE TABLE curfew_task (
  name TEXT PRIMARY KEY, source TEXT NOT NULL, revision TEXT NOT NULL, body TEXT NOT NULL, queue TEXT NOT NULL, priority INTEGER NOT NULL,
  attempts INTEGER NOT NULL, backoff_ns INTEGER NOT NULL, factor INTEGER NOT NULL, timeout_ns INTEGER NOT NULL, expr TEXT NOT NULL, since TEXT NOT NULL, seen TEXT NOT NULL
);
CREATE TABLE curfew_task_lock (
  name TEXT NOT NULL, run TEXT NOT NULL, job INTEGER NOT NULL, attempt INTEGER NOT NULL, PRIMARY KEY (name, run, job)
);

-- +goose Up

-- What a run was found to be about to do, and who approved it. A run that was asked about again has the last question.
CREATE TABLE curfew.approval (
  run     text COLLATE "C" PRIMARY KEY REFERENCES curfew.run (id),
  asked   timestamptz NOT NULL,
  plan    text NOT NULL,              -- JSON: what was counted, and what it is beyond
  granted timestamptz,                -- NULL: nobody has approved it
  actor   text NOT NULL DEFAULT '',
  reason  text NOT NULL DEFAULT ''
);

-- What curfew and the governed database have agreed on, to tell it from its copies; and how it differs from what is on record.
ALTER TABLE curfew.database ADD COLUMN epoch text NOT NULL DEFAULT '';
ALTER TABLE curfew.database ADD COLUMN baseline text NOT NULL DEFAULT ''; -- run of the newest receipt in it by then, which the ledger need not know
ALTER TABLE curfew.database ADD COLUMN differs text NOT NULL DEFAULT '';  -- '': it does not
ALTER TABLE curfew.database ADD COLUMN noticed timestamptz;               -- when that was found

-- What the daemon's role needs beside what 00002 says:
--
--   GRANT SELECT ON ALL TABLES IN SCHEMA curfew TO curfew_app;
--   GRANT INSERT, UPDATE ON curfew.approval TO curfew_app;

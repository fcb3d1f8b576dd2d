-- +goose Up

-- What a run was found to be about to do, and who approved it. A run that was asked about again has the last question.
CREATE TABLE curfew_approval (
  run     TEXT PRIMARY KEY REFERENCES curfew_run (id),
  asked   TEXT NOT NULL,
  plan    TEXT NOT NULL,              -- JSON: what was counted, and what it is beyond
  granted TEXT,                       -- NULL: nobody has approved it
  actor   TEXT NOT NULL DEFAULT '',
  reason  TEXT NOT NULL DEFAULT ''
);

-- What curfew and the governed database have agreed on, to tell it from its copies; and how it differs from what is on record.
ALTER TABLE curfew_database ADD COLUMN epoch TEXT NOT NULL DEFAULT '';
ALTER TABLE curfew_database ADD COLUMN baseline TEXT NOT NULL DEFAULT ''; -- run of the newest receipt in it by then, which the ledger need not know
ALTER TABLE curfew_database ADD COLUMN differs TEXT NOT NULL DEFAULT '';  -- '': it does not
ALTER TABLE curfew_database ADD COLUMN noticed TEXT;                      -- when that was found

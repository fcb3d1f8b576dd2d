CREATE TABLE branch (
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL
);
CREATE TABLE patron (
  id        INTEGER PRIMARY KEY,
  card      TEXT NOT NULL UNIQUE,
  name      TEXT NOT NULL,
  branch_id INTEGER NOT NULL REFERENCES branch (id),
  joined_on TEXT NOT NULL
);
CREATE TABLE item (
  id      INTEGER PRIMARY KEY,
  barcode TEXT NOT NULL,
  title   TEXT NOT NULL
);
CREATE TABLE circulation_event (
  id          INTEGER PRIMARY KEY,
  patron_id   INTEGER NOT NULL REFERENCES patron (id),
  item_id     INTEGER NOT NULL REFERENCES item (id),
  branch_id   INTEGER NOT NULL REFERENCES branch (id),
  kind        TEXT NOT NULL CHECK (kind IN ('checkout', 'renewal', 'return')),
  occurred_at INTEGER NOT NULL -- seconds since 1970
);
CREATE TABLE fine (
  id             INTEGER PRIMARY KEY,
  circulation_id INTEGER NOT NULL REFERENCES circulation_event (id) ON DELETE CASCADE,
  cents          INTEGER NOT NULL,
  issued_on      TEXT NOT NULL,
  paid           INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE damage_claim (
  id             INTEGER PRIMARY KEY,
  circulation_id INTEGER NOT NULL REFERENCES circulation_event (id), -- refuses to let its record go
  insurer        TEXT NOT NULL,
  opened_on      TEXT NOT NULL
);
CREATE TABLE catalogue_search (
  id          INTEGER PRIMARY KEY,
  patron_id   INTEGER REFERENCES patron (id),
  words       TEXT NOT NULL,
  searched_at INTEGER NOT NULL -- milliseconds since 1970
);
-- For people.
CREATE VIEW circulation AS
  SELECT e.id, datetime(e.occurred_at, 'unixepoch') AS at, e.kind, p.name AS patron, i.title, b.name AS branch
  FROM circulation_event e
  JOIN patron p ON p.id = e.patron_id JOIN item i ON i.id = e.item_id JOIN branch b ON b.id = e.branch_id;

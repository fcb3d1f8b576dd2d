-- # a key of 1: by trigger: first page

SELECT curfew_end::text FROM (SELECT "at" AS curfew_end FROM ONLY "public"."event" WHERE "at" < $1 ORDER BY "at" OFFSET 99 LIMIT 1) s;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "at" < $1 AND "at" <= $2::text::timestamp with time zone AND (
kind <> 'keep'
) LIMIT 101
) SELECT pg_snapshot_xmin(pg_current_snapshot())::text, pg_relation_filenode('"public"."event"'::regclass)::text, array_agg(curfew_0)::text FROM p;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string 2026-01-02 03:04:05+00

-- # a key of 1: by trigger: next page

SELECT curfew_end::text FROM (SELECT "at" AS curfew_end FROM ONLY "public"."event" WHERE "at" < $1 AND ("at", "id") > ($2::text::timestamp with time zone, $3::text::bigint) ORDER BY "at" OFFSET 99 LIMIT 1) s;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string 2026-01-02 03:04:05+00
-- 3: string 42

WITH p AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "at" < $1 AND ("at", "id") > ($2::text::timestamp with time zone, $3::text::bigint) AND "at" <= $4::text::timestamp with time zone AND (
kind <> 'keep'
) LIMIT 101
) SELECT pg_snapshot_xmin(pg_current_snapshot())::text, pg_relation_filenode('"public"."event"'::regclass)::text, array_agg(curfew_0)::text FROM p;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string 2026-01-02 03:04:05+00
-- 3: string 42
-- 4: string 2026-01-02 03:04:05+00

-- # a key of 1: by trigger: a batch whose row is not found

SET LOCAL lock_timeout = 90000;

SELECT set_config('row_security', 'off', true), CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, pg_advisory_xact_lock_shared(1668244070, 1);

INSERT INTO curfew.receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES ($1, $2, $3, $4, $5, $6, $7::text::timestamptz, $8::text::timestamptz, $9, clock_timestamp()) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew.tombstone WHERE run = $1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

SET CONSTRAINTS ALL IMMEDIATE;

SET LOCAL lock_timeout = 100;

SAVEPOINT curfew_1;

DELETE FROM ONLY "public"."event" WHERE "at" < $1 AND ("at", "id") > ($2::text::timestamp with time zone, $3::text::bigint) AND "at" <= $4::text::timestamp with time zone AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = $5::text::bigint) IS NOT TRUE AND age(xmin) > (SELECT age($6::text::xid8::xid));
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string 2026-01-02 03:04:05+00
-- 3: string 42
-- 4: string 2026-01-02 03:04:05+00
-- 5: string 7
-- 6: string 750

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[])
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

RELEASE SAVEPOINT curfew_1;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[])
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND (
kind <> 'keep'
)
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("owner" = $2::text::bigint) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: string 7

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

UPDATE curfew.receipt SET planned = $1, outcomes = $2, cascaded = $3, detail = $4, evidence = $5, evidence_root = $6, deferred = $7, completed_at = clock_timestamp() WHERE batch_key = $8;
-- 1: int64 0
-- 2: string {}
-- 3: int64 0
-- 4: string {"deferred":1}
-- 5: 0 bytes
-- 6: 32 bytes
-- 7: 40 bytes
-- 8: 33 bytes

-- # a key of 1: by key: first page

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE 1 = 1 ORDER BY "id" LIMIT 1 OFFSET 19999
) SELECT array_agg(c0)::text FROM p;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "at" < $1 AND "id" <= $2::text::bigint AND (
kind <> 'keep'
) ORDER BY "id" LIMIT 100
) SELECT array_agg(c0)::text FROM p;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string 42

-- # a key of 1: by key: next page

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE 1 = 1 AND "id" > $1::text::bigint ORDER BY "id" LIMIT 1 OFFSET 19999
) SELECT array_agg(c0)::text FROM p;
-- 1: string 42

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "at" < $1 AND "id" > $2::text::bigint AND "id" <= $3::text::bigint AND (
kind <> 'keep'
) ORDER BY "id" LIMIT 100
) SELECT array_agg(c0)::text FROM p;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string 42
-- 3: string 42

-- # a key of 1: by key: a batch whose row is not found

SET LOCAL lock_timeout = 90000;

SELECT set_config('row_security', 'off', true), CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, pg_advisory_xact_lock_shared(1668244070, 1);

INSERT INTO curfew.receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES ($1, $2, $3, $4, $5, $6, $7::text::timestamptz, $8::text::timestamptz, $9, clock_timestamp()) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew.tombstone WHERE run = $1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

SET CONSTRAINTS ALL IMMEDIATE;

SET LOCAL lock_timeout = 100;

SAVEPOINT curfew_1;

WITH p(c0) AS (
DELETE FROM ONLY "public"."event" WHERE "at" < $1 AND "id" > $2::text::bigint AND "id" <= $3::text::bigint AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = $4::text::bigint) IS NOT TRUE RETURNING "id" AS curfew_0
) SELECT array_agg(c0)::text FROM p;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string 42
-- 3: string 42
-- 4: string 7

RELEASE SAVEPOINT curfew_1;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[])
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND (
kind <> 'keep'
)
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("owner" = $2::text::bigint) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: string 7

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

UPDATE curfew.receipt SET planned = $1, outcomes = $2, cascaded = $3, detail = $4, evidence = $5, evidence_root = $6, deferred = $7, completed_at = clock_timestamp() WHERE batch_key = $8;
-- 1: int64 0
-- 2: string {}
-- 3: int64 0
-- 4: string {"deferred":1}
-- 5: 0 bytes
-- 6: 32 bytes
-- 7: 40 bytes
-- 8: 33 bytes

-- # a key of 1: by place: first page

SELECT pg_relation_size('"public"."event"'::regclass) / current_setting('block_size')::bigint, pg_relation_filenode('"public"."event"'::regclass)::text, (SELECT count(*) FROM ONLY "public"."event" WHERE "at" < $1 AND ctid >= $2::text::tid AND ctid < $3::text::tid AND (
kind <> 'keep'
));
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string (0,0)
-- 3: string (20,0)

-- # a key of 1: by place: a batch whose row is not found

SET LOCAL lock_timeout = 90000;

SELECT set_config('row_security', 'off', true), CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, pg_advisory_xact_lock_shared(1668244070, 1);

INSERT INTO curfew.receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES ($1, $2, $3, $4, $5, $6, $7::text::timestamptz, $8::text::timestamptz, $9, clock_timestamp()) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew.tombstone WHERE run = $1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

SET CONSTRAINTS ALL IMMEDIATE;

WITH p AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "at" < $1 AND ctid >= $2::text::tid AND (
kind <> 'keep'
) LIMIT 67
) SELECT pg_snapshot_xmin(pg_current_snapshot())::text, pg_relation_filenode('"public"."event"'::regclass)::text, array_agg(curfew_0)::text FROM p;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string (0,0)

SET LOCAL lock_timeout = 100;

SAVEPOINT curfew_1;

DELETE FROM ONLY "public"."event" WHERE "at" < $1 AND ctid >= $2::text::tid AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = $3::text::bigint) IS NOT TRUE AND age(xmin) > (SELECT age($4::text::xid8::xid));
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string (0,0)
-- 3: string 7
-- 4: string 750

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[])
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

RELEASE SAVEPOINT curfew_1;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[])
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND (
kind <> 'keep'
)
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("owner" = $2::text::bigint) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: string 7

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

UPDATE curfew.receipt SET planned = $1, outcomes = $2, cascaded = $3, detail = $4, evidence = $5, evidence_root = $6, deferred = $7, completed_at = clock_timestamp() WHERE batch_key = $8;
-- 1: int64 0
-- 2: string {}
-- 3: int64 0
-- 4: string {"deferred":1}
-- 5: 0 bytes
-- 6: 32 bytes
-- 7: 40 bytes
-- 8: 33 bytes

-- # a key of 1: NULL triggers: first page

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE 1 = 1 ORDER BY "id" LIMIT 1 OFFSET 19999
) SELECT array_agg(c0)::text FROM p;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "at" IS NULL AND "id" <= $1::text::bigint AND (
kind <> 'keep'
) ORDER BY "id" LIMIT 100
) SELECT array_agg(c0)::text FROM p;
-- 1: string 42

-- # a key of 1: NULL triggers: next page

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE 1 = 1 AND "id" > $1::text::bigint ORDER BY "id" LIMIT 1 OFFSET 19999
) SELECT array_agg(c0)::text FROM p;
-- 1: string 42

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "at" IS NULL AND "id" > $1::text::bigint AND "id" <= $2::text::bigint AND (
kind <> 'keep'
) ORDER BY "id" LIMIT 100
) SELECT array_agg(c0)::text FROM p;
-- 1: string 42
-- 2: string 42

-- # a key of 1: NULL triggers: a batch whose row is not found

SET LOCAL lock_timeout = 90000;

SELECT set_config('row_security', 'off', true), CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, pg_advisory_xact_lock_shared(1668244070, 1);

INSERT INTO curfew.receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES ($1, $2, $3, $4, $5, $6, $7::text::timestamptz, $8::text::timestamptz, $9, clock_timestamp()) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew.tombstone WHERE run = $1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

SET CONSTRAINTS ALL IMMEDIATE;

SET LOCAL lock_timeout = 100;

SAVEPOINT curfew_1;

WITH p(c0) AS (
DELETE FROM ONLY "public"."event" WHERE "at" IS NULL AND "id" > $1::text::bigint AND "id" <= $2::text::bigint AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = $3::text::bigint) IS NOT TRUE RETURNING "id" AS curfew_0
) SELECT array_agg(c0)::text FROM p;
-- 1: string 42
-- 2: string 42
-- 3: string 7

RELEASE SAVEPOINT curfew_1;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[])
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND (
kind <> 'keep'
)
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("owner" = $2::text::bigint) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: string 7

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

UPDATE curfew.receipt SET planned = $1, outcomes = $2, cascaded = $3, detail = $4, evidence = $5, evidence_root = $6, deferred = $7, completed_at = clock_timestamp() WHERE batch_key = $8;
-- 1: int64 0
-- 2: string {}
-- 3: int64 0
-- 4: string {"deferred":1}
-- 5: 0 bytes
-- 6: 32 bytes
-- 7: 40 bytes
-- 8: 33 bytes

-- # a key of 1: a batch done carefully

SET LOCAL lock_timeout = 90000;

SELECT set_config('row_security', 'off', true), CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, pg_advisory_xact_lock_shared(1668244070, 1);

INSERT INTO curfew.receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES ($1, $2, $3, $4, $5, $6, $7::text::timestamptz, $8::text::timestamptz, $9, clock_timestamp()) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew.tombstone WHERE run = $1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

SET CONSTRAINTS ALL IMMEDIATE;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND (
kind <> 'keep'
) AND ("owner" = $3::text::bigint) IS NOT TRUE ORDER BY "id" FOR UPDATE SKIP LOCKED
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 3: string 7

SET LOCAL lock_timeout = 100;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

SAVEPOINT curfew_1;

WITH p(c0) AS (
DELETE FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = $3::text::bigint) IS NOT TRUE RETURNING "id" AS curfew_0
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 3: string 7

RELEASE SAVEPOINT curfew_1;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[])
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND (
kind <> 'keep'
)
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("owner" = $2::text::bigint) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: string 7

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

UPDATE curfew.receipt SET planned = $1, outcomes = $2, cascaded = $3, detail = $4, evidence = $5, evidence_root = $6, deferred = $7, completed_at = clock_timestamp() WHERE batch_key = $8;
-- 1: int64 2
-- 2: string {"blocked":1,"deleted":1}
-- 3: int64 0
-- 4: string {"rows":[{"row":"64c99d7c4dc5033e6a95ef9415fadbc3","outcome":"blocked","reason":"a trigger of the database kept the row"}]}
-- 5: 42 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # a key of 1: a batch of rows found locked

SET LOCAL lock_timeout = 90000;

SELECT set_config('row_security', 'off', true), CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, pg_advisory_xact_lock_shared(1668244070, 1);

INSERT INTO curfew.receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES ($1, $2, $3, $4, $5, $6, $7::text::timestamptz, $8::text::timestamptz, $9, clock_timestamp()) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew.tombstone WHERE run = $1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

SET CONSTRAINTS ALL IMMEDIATE;

SET LOCAL lock_timeout = 10000;

SAVEPOINT curfew_1;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND (
kind <> 'keep'
) AND ("owner" = $3::text::bigint) IS NOT TRUE ORDER BY "id" FOR UPDATE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 3: string 7

RELEASE SAVEPOINT curfew_1;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

SAVEPOINT curfew_2;

WITH p(c0) AS (
DELETE FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = $3::text::bigint) IS NOT TRUE RETURNING "id" AS curfew_0
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 3: string 7

RELEASE SAVEPOINT curfew_2;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[])
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND (
kind <> 'keep'
)
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("owner" = $2::text::bigint) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: string 7

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

UPDATE curfew.receipt SET planned = $1, outcomes = $2, cascaded = $3, detail = $4, evidence = $5, evidence_root = $6, deferred = $7, completed_at = clock_timestamp() WHERE batch_key = $8;
-- 1: int64 2
-- 2: string {"blocked":1,"deleted":1}
-- 3: int64 0
-- 4: string {"rows":[{"row":"64c99d7c4dc5033e6a95ef9415fadbc3","outcome":"blocked","reason":"a trigger of the database kept the row"}]}
-- 5: 42 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # a key of 1: a batch of a shadow run

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[])
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND (
kind <> 'keep'
)
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("owner" = $2::text::bigint) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: string 7

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

-- # a key of 2: by trigger: first page

SELECT curfew_end::text FROM (SELECT "at" AS curfew_end FROM ONLY "public"."event" WHERE "at" < $1 ORDER BY "at" OFFSET 99 LIMIT 1) s;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE "at" < $1 AND "at" <= $2::text::timestamp with time zone AND (
kind <> 'keep'
) LIMIT 101
) SELECT pg_snapshot_xmin(pg_current_snapshot())::text, pg_relation_filenode('"public"."event"'::regclass)::text, array_agg(curfew_0)::text, array_agg(curfew_1)::text FROM p;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string 2026-01-02 03:04:05+00

-- # a key of 2: by trigger: next page

SELECT curfew_end::text FROM (SELECT "at" AS curfew_end FROM ONLY "public"."event" WHERE "at" < $1 AND ("at", "tenant", "no") > ($2::text::timestamp with time zone, $3::text::text, $4::text::bigint) ORDER BY "at" OFFSET 99 LIMIT 1) s;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string 2026-01-02 03:04:05+00
-- 3: string acme
-- 4: string 7

WITH p AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE "at" < $1 AND ("at", "tenant", "no") > ($2::text::timestamp with time zone, $3::text::text, $4::text::bigint) AND "at" <= $5::text::timestamp with time zone AND (
kind <> 'keep'
) LIMIT 101
) SELECT pg_snapshot_xmin(pg_current_snapshot())::text, pg_relation_filenode('"public"."event"'::regclass)::text, array_agg(curfew_0)::text, array_agg(curfew_1)::text FROM p;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string 2026-01-02 03:04:05+00
-- 3: string acme
-- 4: string 7
-- 5: string 2026-01-02 03:04:05+00

-- # a key of 2: by trigger: a batch whose row is not found

SET LOCAL lock_timeout = 90000;

SELECT set_config('row_security', 'off', true), CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, pg_advisory_xact_lock_shared(1668244070, 1);

INSERT INTO curfew.receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES ($1, $2, $3, $4, $5, $6, $7::text::timestamptz, $8::text::timestamptz, $9, clock_timestamp()) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew.tombstone WHERE run = $1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

SET CONSTRAINTS ALL IMMEDIATE;

SET LOCAL lock_timeout = 100;

SAVEPOINT curfew_1;

DELETE FROM ONLY "public"."event" WHERE "at" < $1 AND ("at", "tenant", "no") > ($2::text::timestamp with time zone, $3::text::text, $4::text::bigint) AND "at" <= $5::text::timestamp with time zone AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = $6::text::bigint) IS NOT TRUE AND age(xmin) > (SELECT age($7::text::xid8::xid));
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string 2026-01-02 03:04:05+00
-- 3: string acme
-- 4: string 7
-- 5: string 2026-01-02 03:04:05+00
-- 6: string 7
-- 7: string 750

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[]))
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}

RELEASE SAVEPOINT curfew_1;

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[]))
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND ("at" IS NULL OR ("at" < $3)) AND (
kind <> 'keep'
)
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}
-- 3: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND ("owner" = $3::text::bigint) IS NOT TRUE
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}
-- 3: string 7

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}

UPDATE curfew.receipt SET planned = $1, outcomes = $2, cascaded = $3, detail = $4, evidence = $5, evidence_root = $6, deferred = $7, completed_at = clock_timestamp() WHERE batch_key = $8;
-- 1: int64 0
-- 2: string {}
-- 3: int64 0
-- 4: string {"deferred":1}
-- 5: 0 bytes
-- 6: 32 bytes
-- 7: 45 bytes
-- 8: 33 bytes

-- # a key of 2: by key: first page

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE 1 = 1 ORDER BY "tenant", "no" LIMIT 1 OFFSET 19999
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE "at" < $1 AND ("tenant", "no") <= ($2::text::text, $3::text::bigint) AND (
kind <> 'keep'
) ORDER BY "tenant", "no" LIMIT 100
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string acme
-- 3: string 7

-- # a key of 2: by key: next page

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE 1 = 1 AND ("tenant", "no") > ($1::text::text, $2::text::bigint) ORDER BY "tenant", "no" LIMIT 1 OFFSET 19999
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string acme
-- 2: string 7

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE "at" < $1 AND ("tenant", "no") > ($2::text::text, $3::text::bigint) AND ("tenant", "no") <= ($4::text::text, $5::text::bigint) AND (
kind <> 'keep'
) ORDER BY "tenant", "no" LIMIT 100
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string acme
-- 3: string 7
-- 4: string acme
-- 5: string 7

-- # a key of 2: by key: a batch whose row is not found

SET LOCAL lock_timeout = 90000;

SELECT set_config('row_security', 'off', true), CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, pg_advisory_xact_lock_shared(1668244070, 1);

INSERT INTO curfew.receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES ($1, $2, $3, $4, $5, $6, $7::text::timestamptz, $8::text::timestamptz, $9, clock_timestamp()) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew.tombstone WHERE run = $1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

SET CONSTRAINTS ALL IMMEDIATE;

SET LOCAL lock_timeout = 100;

SAVEPOINT curfew_1;

WITH p(c0, c1) AS (
DELETE FROM ONLY "public"."event" WHERE "at" < $1 AND ("tenant", "no") > ($2::text::text, $3::text::bigint) AND ("tenant", "no") <= ($4::text::text, $5::text::bigint) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = $6::text::bigint) IS NOT TRUE RETURNING "tenant"::text AS curfew_0, "no" AS curfew_1
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string acme
-- 3: string 7
-- 4: string acme
-- 5: string 7
-- 6: string 7

RELEASE SAVEPOINT curfew_1;

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[]))
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND ("at" IS NULL OR ("at" < $3)) AND (
kind <> 'keep'
)
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}
-- 3: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND ("owner" = $3::text::bigint) IS NOT TRUE
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}
-- 3: string 7

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}

UPDATE curfew.receipt SET planned = $1, outcomes = $2, cascaded = $3, detail = $4, evidence = $5, evidence_root = $6, deferred = $7, completed_at = clock_timestamp() WHERE batch_key = $8;
-- 1: int64 0
-- 2: string {}
-- 3: int64 0
-- 4: string {"deferred":1}
-- 5: 0 bytes
-- 6: 32 bytes
-- 7: 45 bytes
-- 8: 33 bytes

-- # a key of 2: by place: first page

SELECT pg_relation_size('"public"."event"'::regclass) / current_setting('block_size')::bigint, pg_relation_filenode('"public"."event"'::regclass)::text, (SELECT count(*) FROM ONLY "public"."event" WHERE "at" < $1 AND ctid >= $2::text::tid AND ctid < $3::text::tid AND (
kind <> 'keep'
));
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string (0,0)
-- 3: string (20,0)

-- # a key of 2: by place: a batch whose row is not found

SET LOCAL lock_timeout = 90000;

SELECT set_config('row_security', 'off', true), CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, pg_advisory_xact_lock_shared(1668244070, 1);

INSERT INTO curfew.receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES ($1, $2, $3, $4, $5, $6, $7::text::timestamptz, $8::text::timestamptz, $9, clock_timestamp()) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew.tombstone WHERE run = $1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

SET CONSTRAINTS ALL IMMEDIATE;

WITH p AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE "at" < $1 AND ctid >= $2::text::tid AND (
kind <> 'keep'
) LIMIT 67
) SELECT pg_snapshot_xmin(pg_current_snapshot())::text, pg_relation_filenode('"public"."event"'::regclass)::text, array_agg(curfew_0)::text, array_agg(curfew_1)::text FROM p;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string (0,0)

SET LOCAL lock_timeout = 100;

SAVEPOINT curfew_1;

DELETE FROM ONLY "public"."event" WHERE "at" < $1 AND ctid >= $2::text::tid AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = $3::text::bigint) IS NOT TRUE AND age(xmin) > (SELECT age($4::text::xid8::xid));
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string (0,0)
-- 3: string 7
-- 4: string 750

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[]))
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}

RELEASE SAVEPOINT curfew_1;

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[]))
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND ("at" IS NULL OR ("at" < $3)) AND (
kind <> 'keep'
)
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}
-- 3: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND ("owner" = $3::text::bigint) IS NOT TRUE
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}
-- 3: string 7

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}

UPDATE curfew.receipt SET planned = $1, outcomes = $2, cascaded = $3, detail = $4, evidence = $5, evidence_root = $6, deferred = $7, completed_at = clock_timestamp() WHERE batch_key = $8;
-- 1: int64 0
-- 2: string {}
-- 3: int64 0
-- 4: string {"deferred":1}
-- 5: 0 bytes
-- 6: 32 bytes
-- 7: 45 bytes
-- 8: 33 bytes

-- # a key of 2: NULL triggers: first page

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE 1 = 1 ORDER BY "tenant", "no" LIMIT 1 OFFSET 19999
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE "at" IS NULL AND ("tenant", "no") <= ($1::text::text, $2::text::bigint) AND (
kind <> 'keep'
) ORDER BY "tenant", "no" LIMIT 100
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string acme
-- 2: string 7

-- # a key of 2: NULL triggers: next page

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE 1 = 1 AND ("tenant", "no") > ($1::text::text, $2::text::bigint) ORDER BY "tenant", "no" LIMIT 1 OFFSET 19999
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string acme
-- 2: string 7

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE "at" IS NULL AND ("tenant", "no") > ($1::text::text, $2::text::bigint) AND ("tenant", "no") <= ($3::text::text, $4::text::bigint) AND (
kind <> 'keep'
) ORDER BY "tenant", "no" LIMIT 100
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string acme
-- 2: string 7
-- 3: string acme
-- 4: string 7

-- # a key of 2: NULL triggers: a batch whose row is not found

SET LOCAL lock_timeout = 90000;

SELECT set_config('row_security', 'off', true), CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, pg_advisory_xact_lock_shared(1668244070, 1);

INSERT INTO curfew.receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES ($1, $2, $3, $4, $5, $6, $7::text::timestamptz, $8::text::timestamptz, $9, clock_timestamp()) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew.tombstone WHERE run = $1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

SET CONSTRAINTS ALL IMMEDIATE;

SET LOCAL lock_timeout = 100;

SAVEPOINT curfew_1;

WITH p(c0, c1) AS (
DELETE FROM ONLY "public"."event" WHERE "at" IS NULL AND ("tenant", "no") > ($1::text::text, $2::text::bigint) AND ("tenant", "no") <= ($3::text::text, $4::text::bigint) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = $5::text::bigint) IS NOT TRUE RETURNING "tenant"::text AS curfew_0, "no" AS curfew_1
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string acme
-- 2: string 7
-- 3: string acme
-- 4: string 7
-- 5: string 7

RELEASE SAVEPOINT curfew_1;

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[]))
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND ("at" IS NULL OR ("at" < $3)) AND (
kind <> 'keep'
)
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}
-- 3: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND ("owner" = $3::text::bigint) IS NOT TRUE
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}
-- 3: string 7

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}

UPDATE curfew.receipt SET planned = $1, outcomes = $2, cascaded = $3, detail = $4, evidence = $5, evidence_root = $6, deferred = $7, completed_at = clock_timestamp() WHERE batch_key = $8;
-- 1: int64 0
-- 2: string {}
-- 3: int64 0
-- 4: string {"deferred":1}
-- 5: 0 bytes
-- 6: 32 bytes
-- 7: 45 bytes
-- 8: 33 bytes

-- # a key of 2: a batch done carefully

SET LOCAL lock_timeout = 90000;

SELECT set_config('row_security', 'off', true), CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, pg_advisory_xact_lock_shared(1668244070, 1);

INSERT INTO curfew.receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES ($1, $2, $3, $4, $5, $6, $7::text::timestamptz, $8::text::timestamptz, $9, clock_timestamp()) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew.tombstone WHERE run = $1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

SET CONSTRAINTS ALL IMMEDIATE;

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND ("at" IS NULL OR ("at" < $3)) AND (
kind <> 'keep'
) AND ("owner" = $4::text::bigint) IS NOT TRUE ORDER BY "tenant", "no" FOR UPDATE SKIP LOCKED
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}
-- 3: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 4: string 7

SET LOCAL lock_timeout = 100;

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}

SAVEPOINT curfew_1;

WITH p(c0, c1) AS (
DELETE FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND ("at" IS NULL OR ("at" < $3)) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = $4::text::bigint) IS NOT TRUE RETURNING "tenant"::text AS curfew_0, "no" AS curfew_1
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}
-- 3: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 4: string 7

RELEASE SAVEPOINT curfew_1;

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[]))
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND ("at" IS NULL OR ("at" < $3)) AND (
kind <> 'keep'
)
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}
-- 3: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND ("owner" = $3::text::bigint) IS NOT TRUE
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}
-- 3: string 7

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}

UPDATE curfew.receipt SET planned = $1, outcomes = $2, cascaded = $3, detail = $4, evidence = $5, evidence_root = $6, deferred = $7, completed_at = clock_timestamp() WHERE batch_key = $8;
-- 1: int64 2
-- 2: string {"blocked":1,"deleted":1}
-- 3: int64 0
-- 4: string {"rows":[{"row":"5616c2a335a0c5212a44dbcdda6d336e","outcome":"blocked","reason":"a trigger of the database kept the row"}]}
-- 5: 42 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # a key of 2: a batch of rows found locked

SET LOCAL lock_timeout = 90000;

SELECT set_config('row_security', 'off', true), CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, pg_advisory_xact_lock_shared(1668244070, 1);

INSERT INTO curfew.receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES ($1, $2, $3, $4, $5, $6, $7::text::timestamptz, $8::text::timestamptz, $9, clock_timestamp()) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew.tombstone WHERE run = $1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

SET CONSTRAINTS ALL IMMEDIATE;

SET LOCAL lock_timeout = 10000;

SAVEPOINT curfew_1;

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND ("at" IS NULL OR ("at" < $3)) AND (
kind <> 'keep'
) AND ("owner" = $4::text::bigint) IS NOT TRUE ORDER BY "tenant", "no" FOR UPDATE
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}
-- 3: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 4: string 7

RELEASE SAVEPOINT curfew_1;

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}

SAVEPOINT curfew_2;

WITH p(c0, c1) AS (
DELETE FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND ("at" IS NULL OR ("at" < $3)) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = $4::text::bigint) IS NOT TRUE RETURNING "tenant"::text AS curfew_0, "no" AS curfew_1
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}
-- 3: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 4: string 7

RELEASE SAVEPOINT curfew_2;

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[]))
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND ("at" IS NULL OR ("at" < $3)) AND (
kind <> 'keep'
)
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}
-- 3: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND ("owner" = $3::text::bigint) IS NOT TRUE
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}
-- 3: string 7

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}

UPDATE curfew.receipt SET planned = $1, outcomes = $2, cascaded = $3, detail = $4, evidence = $5, evidence_root = $6, deferred = $7, completed_at = clock_timestamp() WHERE batch_key = $8;
-- 1: int64 2
-- 2: string {"blocked":1,"deleted":1}
-- 3: int64 0
-- 4: string {"rows":[{"row":"5616c2a335a0c5212a44dbcdda6d336e","outcome":"blocked","reason":"a trigger of the database kept the row"}]}
-- 5: 42 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # a key of 2: a batch of a shadow run

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[]))
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND ("at" IS NULL OR ("at" < $3)) AND (
kind <> 'keep'
)
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}
-- 3: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND ("owner" = $3::text::bigint) IS NOT TRUE
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}
-- 3: string 7

WITH p(c0, c1) AS (
SELECT "tenant"::text AS curfew_0, "no" AS curfew_1 FROM ONLY "public"."event" WHERE ("tenant", "no") IN (SELECT * FROM unnest($1::text[]::text[], $2::text[]::bigint[])) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"acme"}
-- 2: string {"7"}

-- # rows that go along

SELECT count(*) FROM "note" WHERE ("event_id" = ANY($1::text[]::bigint[]));
-- 1: string {"42","43"}

SELECT count(*) FROM "word" WHERE (("note_a", "note_b") IN (SELECT "a", "b" FROM "note" WHERE ("event_id" = ANY($1::text[]::bigint[]))));
-- 1: string {"42","43"}

SELECT count(*) FROM "event" WHERE ("up" IN (SELECT "id" FROM "event" WHERE ("id" = ANY($1::text[]::bigint[]) OR "up" IN (SELECT "id" FROM "event" WHERE ("id" = ANY($2::text[]::bigint[]) OR "up" IN (SELECT "id" FROM "event" WHERE ("id" = ANY($3::text[]::bigint[]) OR "up" IN (SELECT "id" FROM "event" WHERE ("id" = ANY($4::text[]::bigint[]) OR "up" IN (SELECT "id" FROM "event" WHERE ("id" = ANY($5::text[]::bigint[]) OR "up" IN (SELECT "id" FROM "event" WHERE ("id" = ANY($6::text[]::bigint[]) OR "up" IN (SELECT "id" FROM "event" WHERE ("id" = ANY($7::text[]::bigint[]) OR "up" IN (SELECT "id" FROM "event" WHERE ("id" = ANY($8::text[]::bigint[])))))))))))))))))) AND NOT ("id" = ANY($9::text[]::bigint[]));
-- 1: string {"42","43"}
-- 2: string {"42","43"}
-- 3: string {"42","43"}
-- 4: string {"42","43"}
-- 5: string {"42","43"}
-- 6: string {"42","43"}
-- 7: string {"42","43"}
-- 8: string {"42","43"}
-- 9: string {"42","43"}

-- # rows that a foreign key keeps

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND EXISTS (SELECT 1 FROM "claim" curfew_child WHERE curfew_child."event_id" = "public"."event"."id")
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42","43"}

-- # set: first page

SELECT curfew_end::text FROM (SELECT "at" AS curfew_end FROM ONLY "public"."event" WHERE "at" < $1 ORDER BY "at" OFFSET 99 LIMIT 1) s;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "at" < $1 AND "at" <= $2::text::timestamp with time zone AND NOT ("kind"::text COLLATE "C" IS NOT DISTINCT FROM ($3::text::text)::text) AND (
kind <> 'keep'
) LIMIT 101
) SELECT pg_snapshot_xmin(pg_current_snapshot())::text, pg_relation_filenode('"public"."event"'::regclass)::text, array_agg(curfew_0)::text FROM p;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string 2026-01-02 03:04:05+00
-- 3: string paused

-- # set: a batch

SET LOCAL lock_timeout = 90000;

SELECT set_config('row_security', 'off', true), CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, pg_advisory_xact_lock_shared(1668244070, 1);

INSERT INTO curfew.receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES ($1, $2, $3, $4, $5, $6, $7::text::timestamptz, $8::text::timestamptz, $9, clock_timestamp()) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew.tombstone WHERE run = $1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

SET CONSTRAINTS ALL IMMEDIATE;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND NOT ("kind"::text COLLATE "C" IS NOT DISTINCT FROM ($3::text::text)::text) AND (
kind <> 'keep'
) AND ("owner" = $4::text::bigint) IS NOT TRUE ORDER BY "id" FOR UPDATE SKIP LOCKED
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 3: string paused
-- 4: string 7

SET LOCAL lock_timeout = 100;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

SAVEPOINT curfew_1;

SAVEPOINT curfew_2;

UPDATE ONLY "public"."event" SET "kind" = $1::text::text, "seen" = $2::text::timestamp with time zone WHERE "id" = ANY($3::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $4)) AND NOT ("kind"::text COLLATE "C" IS NOT DISTINCT FROM ($5::text::text)::text) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = $6::text::bigint) IS NOT TRUE;
-- 1: string paused
-- 2: string 2026-03-30 01:00:00.000000+00
-- 3: string {"42"}
-- 4: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 5: string paused
-- 6: string 7

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND "kind"::text COLLATE "C" IS NOT DISTINCT FROM ($2::text::text)::text AND "seen" IS NOT DISTINCT FROM $3::text::timestamp with time zone
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: string paused
-- 3: string 2026-03-30 01:00:00.000000+00

RELEASE SAVEPOINT curfew_2;

RELEASE SAVEPOINT curfew_1;

UPDATE curfew.receipt SET planned = $1, outcomes = $2, cascaded = $3, detail = $4, evidence = $5, evidence_root = $6, deferred = $7, completed_at = clock_timestamp() WHERE batch_key = $8;
-- 1: int64 1
-- 2: string {"set":1}
-- 3: int64 0
-- 4: string {}
-- 5: 21 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # anonymise: first page

SELECT curfew_end::text FROM (SELECT "at" AS curfew_end FROM ONLY "public"."event" WHERE "at" < $1 ORDER BY "at" OFFSET 99 LIMIT 1) s;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "at" < $1 AND "at" <= $2::text::timestamp with time zone AND NOT (COALESCE("kind"::text ~ '^anon:[0-9a-f]{32}$', TRUE) AND "pinned" IS NOT DISTINCT FROM ("pinned"::numeric - mod(mod("pinned"::numeric, 10) + 10, 10))::bigint AND "owner" IS NOT DISTINCT FROM $3::text::bigint) AND (
kind <> 'keep'
) LIMIT 101
) SELECT pg_snapshot_xmin(pg_current_snapshot())::text, pg_relation_filenode('"public"."event"'::regclass)::text, array_agg(curfew_0)::text FROM p;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string 2026-01-02 03:04:05+00
-- 3: string 1

-- # anonymise: a batch

SET LOCAL lock_timeout = 90000;

SELECT set_config('row_security', 'off', true), CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, pg_advisory_xact_lock_shared(1668244070, 1);

INSERT INTO curfew.receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES ($1, $2, $3, $4, $5, $6, $7::text::timestamptz, $8::text::timestamptz, $9, clock_timestamp()) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew.tombstone WHERE run = $1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

SET CONSTRAINTS ALL IMMEDIATE;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND NOT (COALESCE("kind"::text ~ '^anon:[0-9a-f]{32}$', TRUE) AND "pinned" IS NOT DISTINCT FROM ("pinned"::numeric - mod(mod("pinned"::numeric, 10) + 10, 10))::bigint AND "owner" IS NOT DISTINCT FROM $3::text::bigint) AND (
kind <> 'keep'
) AND ("owner" = $4::text::bigint) IS NOT TRUE ORDER BY "id" FOR UPDATE SKIP LOCKED
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 3: string 1
-- 4: string 7

SET LOCAL lock_timeout = 100;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

SAVEPOINT curfew_1;

SAVEPOINT curfew_2;

WITH p(c0, c1) AS (
SELECT "id" AS curfew_0, "kind"::text AS curfew_1 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND NOT COALESCE("kind"::text ~ '^anon:[0-9a-f]{32}$', TRUE)
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"42"}

UPDATE ONLY "public"."event" SET "kind" = CASE WHEN "id" = ANY($1::text[]::bigint[]) THEN $2::text::text ELSE "kind" END, "pinned" = ("pinned"::numeric - mod(mod("pinned"::numeric, 10) + 10, 10))::bigint, "owner" = $3::text::bigint WHERE "id" = ANY($4::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $5)) AND NOT (COALESCE("kind"::text ~ '^anon:[0-9a-f]{32}$', TRUE) AND "pinned" IS NOT DISTINCT FROM ("pinned"::numeric - mod(mod("pinned"::numeric, 10) + 10, 10))::bigint AND "owner" IS NOT DISTINCT FROM $6::text::bigint) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = $7::text::bigint) IS NOT TRUE;
-- 1: string {"42"}
-- 2: string anon:3236bb7be21c1623f4784bad51f4b013
-- 3: string 1
-- 4: string {"42"}
-- 5: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 6: string 1
-- 7: string 7

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND COALESCE("kind"::text ~ '^anon:[0-9a-f]{32}$', TRUE) AND "pinned" IS NOT DISTINCT FROM ("pinned"::numeric - mod(mod("pinned"::numeric, 10) + 10, 10))::bigint AND "owner" IS NOT DISTINCT FROM $2::text::bigint
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: string 1

RELEASE SAVEPOINT curfew_2;

RELEASE SAVEPOINT curfew_1;

UPDATE curfew.receipt SET planned = $1, outcomes = $2, cascaded = $3, detail = $4, evidence = $5, evidence_root = $6, deferred = $7, completed_at = clock_timestamp() WHERE batch_key = $8;
-- 1: int64 1
-- 2: string {"anonymised":1}
-- 3: int64 0
-- 4: string {}
-- 5: 21 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # archive: first page

SELECT curfew_end::text FROM (SELECT "at" AS curfew_end FROM ONLY "public"."event" WHERE "at" < $1 ORDER BY "at" OFFSET 99 LIMIT 1) s;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "at" < $1 AND "at" <= $2::text::timestamp with time zone AND (
kind <> 'keep'
) LIMIT 101
) SELECT pg_snapshot_xmin(pg_current_snapshot())::text, pg_relation_filenode('"public"."event"'::regclass)::text, array_agg(curfew_0)::text FROM p;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string 2026-01-02 03:04:05+00

-- # archive: a batch

SET LOCAL lock_timeout = 90000;

SELECT set_config('row_security', 'off', true), CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, pg_advisory_xact_lock_shared(1668244070, 1);

INSERT INTO curfew.receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES ($1, $2, $3, $4, $5, $6, $7::text::timestamptz, $8::text::timestamptz, $9, clock_timestamp()) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew.tombstone WHERE run = $1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

SET CONSTRAINTS ALL IMMEDIATE;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND (
kind <> 'keep'
) AND ("owner" = $3::text::bigint) IS NOT TRUE ORDER BY "id" FOR UPDATE SKIP LOCKED
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 3: string 7

SET LOCAL lock_timeout = 100;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

SAVEPOINT curfew_1;

SAVEPOINT curfew_2;

INSERT INTO "public"."old_event" ("id", "at", "owner", "kind", "pinned", "seen") OVERRIDING SYSTEM VALUE SELECT "id", "at", "owner", "kind", "pinned", "seen" FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]);
-- 1: string {"42"}

WITH p(c0) AS (
DELETE FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = $3::text::bigint) IS NOT TRUE RETURNING "id" AS curfew_0
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 3: string 7

SELECT count(*) FROM ONLY "public"."old_event" WHERE "id" = ANY($1::text[]::bigint[]);
-- 1: string {"42"}

RELEASE SAVEPOINT curfew_2;

RELEASE SAVEPOINT curfew_1;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[])
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND (
kind <> 'keep'
)
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("owner" = $2::text::bigint) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: string 7

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

UPDATE curfew.receipt SET planned = $1, outcomes = $2, cascaded = $3, detail = $4, evidence = $5, evidence_root = $6, deferred = $7, completed_at = clock_timestamp() WHERE batch_key = $8;
-- 1: int64 2
-- 2: string {"archived":1,"blocked":1}
-- 3: int64 0
-- 4: string {"rows":[{"row":"64c99d7c4dc5033e6a95ef9415fadbc3","outcome":"blocked","reason":"a trigger of the database kept the row"}]}
-- 5: 42 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # count

SELECT count(*), MIN("at")::text FROM ONLY "public"."event" WHERE "at" < $1 AND (
kind <> 'keep'
);
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

SELECT count(*) FROM ONLY "public"."event" WHERE "at" IS NULL AND (
kind <> 'keep'
);

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

SELECT count(*) FROM ONLY "public"."event" WHERE ("at" IS NULL OR ("at" < $1)) AND (
kind <> 'keep'
) AND ("owner" = $2::text::bigint) IS NOT TRUE;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string 7

SELECT count(*) FROM ONLY "public"."event" WHERE ("at" IS NULL OR ("at" < $1)) AND (
kind <> 'keep'
) AND ("owner" = $2::text::bigint) IS NOT TRUE AND (
pinned = 1
) IS NOT TRUE;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: string 7

-- # implausible_before

SELECT curfew_end::text FROM (SELECT "at" AS curfew_end FROM ONLY "public"."event" WHERE "at" < $1 AND NOT "at" < $2 ORDER BY "at" OFFSET 99 LIMIT 1) s;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: pgtype.Timestamptz {-0001-11-30 00:00:00 +0000 UTC finite true}

WITH p AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "at" < $1 AND NOT "at" < $2 AND "at" <= $3::text::timestamp with time zone AND (
kind <> 'keep'
) LIMIT 101
) SELECT pg_snapshot_xmin(pg_current_snapshot())::text, pg_relation_filenode('"public"."event"'::regclass)::text, array_agg(curfew_0)::text FROM p;
-- 1: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 2: pgtype.Timestamptz {-0001-11-30 00:00:00 +0000 UTC finite true}
-- 3: string 2026-01-02 03:04:05+00

-- # a batch of a stage

SET LOCAL lock_timeout = 90000;

SELECT set_config('row_security', 'off', true), CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, pg_advisory_xact_lock_shared(1668244070, 1);

INSERT INTO curfew.receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES ($1, $2, $3, $4, $5, $6, $7::text::timestamptz, $8::text::timestamptz, $9, clock_timestamp()) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string end
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew.tombstone WHERE run = $1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew.hold ORDER BY name, id;

SET CONSTRAINTS ALL IMMEDIATE;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND (
(
kind <> 'keep'
) AND (
owner > 0
)
) AND ("owner" = $3::text::bigint) IS NOT TRUE ORDER BY "id" FOR UPDATE SKIP LOCKED
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 3: string 7

SET LOCAL lock_timeout = 100;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

WITH p(c0, c1) AS (
SELECT "id" AS curfew_0, to_char("at" AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US BC') AS curfew_trigger FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[])
) SELECT array_agg(c0)::text, array_agg(c1)::text FROM p;
-- 1: string {"42"}

SELECT stage, row_hash, due_us, state, as_of_us, run, batch_key, attempt, detail FROM curfew.passage WHERE policy = $1 AND row_hash = ANY($2::text::bytea[]) ORDER BY row_hash, stage, due_us;
-- 1: string events
-- 2: string {"\\x64c99d7c4dc5033e6a95ef9415fadbc3"}

SAVEPOINT curfew_1;

WITH p(c0) AS (
DELETE FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND (
(
kind <> 'keep'
) AND (
owner > 0
)
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = $3::text::bigint) IS NOT TRUE RETURNING "id" AS curfew_0
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}
-- 3: string 7

RELEASE SAVEPOINT curfew_1;

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[])
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("at" IS NULL OR ("at" < $2)) AND (
(
kind <> 'keep'
) AND (
owner > 0
)
)
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: pgtype.Timestamptz {2026-03-29 01:00:00 +0000 UTC finite true}

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND ("owner" = $2::text::bigint) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}
-- 2: string 7

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE "id" = ANY($1::text[]::bigint[]) AND (
pinned = 1
) IS NOT TRUE
) SELECT array_agg(c0)::text FROM p;
-- 1: string {"42"}

DELETE FROM curfew.passage WHERE policy = $1 AND row_hash = ANY($2::text::bytea[]);
-- 1: string events
-- 2: string {"\\x40ccb7edc0b0491db41c4371504cd8b9"}

UPDATE curfew.receipt SET planned = $1, outcomes = $2, cascaded = $3, detail = $4, evidence = $5, evidence_root = $6, deferred = $7, completed_at = clock_timestamp() WHERE batch_key = $8;
-- 1: int64 2
-- 2: string {"blocked":1,"deleted":1}
-- 3: int64 0
-- 4: string {"rows":[{"row":"64c99d7c4dc5033e6a95ef9415fadbc3","outcome":"blocked","reason":"a trigger of the database kept the row"}]}
-- 5: 42 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # what a row passed, recorded, changed and swept

INSERT INTO curfew.passage (policy, stage, row_hash, due_us, state, as_of_us, run, batch_key, attempt, detail, changed_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, clock_timestamp()), ($11, $12, $13, $14, $15, $16, $17, $18, $19, $20, clock_timestamp()) ON CONFLICT DO NOTHING;
-- 1: string events
-- 2: string end
-- 3: 16 bytes
-- 4: int64 7
-- 5: string claimed
-- 6: int64 1774746000000000
-- 7: string run
-- 8: 33 bytes
-- 9: int 1
-- 10: string 
-- 11: string events
-- 12: string end
-- 13: 16 bytes
-- 14: int64 7
-- 15: string claimed
-- 16: int64 1774746000000000
-- 17: string run
-- 18: 33 bytes
-- 19: int 1
-- 20: string 

SELECT stage, row_hash, due_us, state, as_of_us, run, batch_key, attempt, detail FROM curfew.passage WHERE policy = $1 AND row_hash = ANY($2::text::bytea[]) ORDER BY row_hash, stage, due_us;
-- 1: string events
-- 2: string {"\\x01000000000000000000000000000000","\\x01000000000000000000000000000000"}

UPDATE curfew.passage SET state = $1, as_of_us = $2, run = $3, batch_key = $4, attempt = $5, detail = $6, changed_at = clock_timestamp() WHERE policy = $7 AND row_hash = $8 AND stage = $9 AND due_us = $10 AND state = $11 AND attempt = $12;
-- 1: string claimed
-- 2: int64 1774746000000000
-- 3: string run
-- 4: 33 bytes
-- 5: int 1
-- 6: string 
-- 7: string events
-- 8: 16 bytes
-- 9: string end
-- 10: int64 7
-- 11: string sending
-- 12: int 2

SELECT row_hash FROM curfew.passage WHERE policy = $1 GROUP BY row_hash HAVING COUNT(CASE WHEN changed_at < $2::text::timestamptz THEN 1 END) = COUNT(*) ORDER BY row_hash LIMIT 20000;
-- 1: string events
-- 2: string 2026-03-29 01:00:00.000000

WITH p(c0) AS (
SELECT "id" AS curfew_0 FROM ONLY "public"."event" WHERE 1 = 1 ORDER BY "id" LIMIT 20000
) SELECT array_agg(c0)::text FROM p;

DELETE FROM curfew.passage WHERE policy = $1 AND row_hash = ANY($2::text::bytea[]) AND changed_at < $3::text::timestamptz;
-- 1: string events
-- 2: string {"\\x746865206b6579206f66207468652062"}
-- 3: string 2026-03-29 01:00:00.000000

-- # the answer of an earlier execution

SELECT batch_key, planned, outcomes, cascaded, detail, evidence_root, deferred FROM curfew.receipt WHERE run = $1 AND seq = $2;
-- 1: string run
-- 2: int64 9


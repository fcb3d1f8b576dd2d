-- # a key of 1: by trigger: first page

SELECT +"at" AS curfew_0, +"id" AS curfew_1 FROM "event" WHERE (typeof("at") IN ('integer', 'real') AND "at" < 1774746000) AND (
kind <> 'keep'
) ORDER BY "at", "id" LIMIT 100;

-- # a key of 1: by trigger: next page

SELECT +"at" AS curfew_0, +"id" AS curfew_1 FROM "event" WHERE (typeof("at") IN ('integer', 'real') AND "at" < 1774746000) AND ("at", "id") > (?1, ?2) AND (
kind <> 'keep'
) ORDER BY "at", "id" LIMIT 100;
-- 1: int64 0
-- 2: int64 42

-- # a key of 1: by trigger: a batch whose row is not found

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, strftime('%Y-%m-%d %H:%M:%f', 'now')) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SAVEPOINT curfew_1;

DELETE FROM "event" WHERE (typeof("at") IN ('integer', 'real') AND "at" < 1774746000) AND ("at", "id") > (?1, ?2) AND ("at", "id") <= (?3, ?4) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = ?5) IS NOT TRUE RETURNING +"id" AS curfew_0;
-- 1: int64 0
-- 2: int64 42
-- 3: string 2026-01-02 03:04:05+00
-- 4: string 42
-- 5: int64 7

RELEASE SAVEPOINT curfew_1;

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1);
-- 1: string 42

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
);
-- 1: string 42

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("owner" = ?2) IS NOT TRUE;
-- 1: string 42
-- 2: int64 7

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string 42

UPDATE curfew_receipt SET planned = ?1, outcomes = ?2, cascaded = ?3, detail = ?4, evidence = ?5, evidence_root = ?6, deferred = ?7, completed_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE batch_key = ?8;
-- 1: int64 0
-- 2: string {}
-- 3: int64 0
-- 4: string {"deferred":1}
-- 5: 0 bytes
-- 6: 32 bytes
-- 7: 40 bytes
-- 8: 33 bytes

-- # a key of 1: by key: first page

SELECT +"id" AS curfew_0 FROM "event" WHERE 1 = 1 ORDER BY "id" LIMIT 1 OFFSET 19999;

SELECT +"id" AS curfew_0 FROM "event" WHERE (typeof("at") IN ('integer', 'real') AND "at" < 1774746000) AND "id" <= ?1 AND (
kind <> 'keep'
) ORDER BY "id" LIMIT 100;
-- 1: string 42

-- # a key of 1: by key: next page

SELECT +"id" AS curfew_0 FROM "event" WHERE 1 = 1 AND "id" > ?1 ORDER BY "id" LIMIT 1 OFFSET 19999;
-- 1: int64 42

SELECT +"id" AS curfew_0 FROM "event" WHERE (typeof("at") IN ('integer', 'real') AND "at" < 1774746000) AND "id" > ?1 AND "id" <= ?2 AND (
kind <> 'keep'
) ORDER BY "id" LIMIT 100;
-- 1: int64 42
-- 2: string 42

-- # a key of 1: by key: a batch whose row is not found

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, strftime('%Y-%m-%d %H:%M:%f', 'now')) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SAVEPOINT curfew_1;

DELETE FROM "event" WHERE (typeof("at") IN ('integer', 'real') AND "at" < 1774746000) AND "id" > ?1 AND "id" <= ?2 AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = ?3) IS NOT TRUE RETURNING +"id" AS curfew_0;
-- 1: int64 42
-- 2: string 42
-- 3: int64 7

RELEASE SAVEPOINT curfew_1;

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1);
-- 1: string 42

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
);
-- 1: string 42

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("owner" = ?2) IS NOT TRUE;
-- 1: string 42
-- 2: int64 7

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string 42

UPDATE curfew_receipt SET planned = ?1, outcomes = ?2, cascaded = ?3, detail = ?4, evidence = ?5, evidence_root = ?6, deferred = ?7, completed_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE batch_key = ?8;
-- 1: int64 0
-- 2: string {}
-- 3: int64 0
-- 4: string {"deferred":1}
-- 5: 0 bytes
-- 6: 32 bytes
-- 7: 40 bytes
-- 8: 33 bytes

-- # a key of 1: NULL triggers: first page

SELECT +"id" AS curfew_0 FROM "event" WHERE 1 = 1 ORDER BY "id" LIMIT 1 OFFSET 19999;

SELECT +"id" AS curfew_0 FROM "event" WHERE "at" IS NULL AND "id" <= ?1 AND (
kind <> 'keep'
) ORDER BY "id" LIMIT 100;
-- 1: string 42

-- # a key of 1: NULL triggers: next page

SELECT +"id" AS curfew_0 FROM "event" WHERE 1 = 1 AND "id" > ?1 ORDER BY "id" LIMIT 1 OFFSET 19999;
-- 1: int64 42

SELECT +"id" AS curfew_0 FROM "event" WHERE "at" IS NULL AND "id" > ?1 AND "id" <= ?2 AND (
kind <> 'keep'
) ORDER BY "id" LIMIT 100;
-- 1: int64 42
-- 2: string 42

-- # a key of 1: NULL triggers: a batch whose row is not found

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, strftime('%Y-%m-%d %H:%M:%f', 'now')) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SAVEPOINT curfew_1;

DELETE FROM "event" WHERE "at" IS NULL AND "id" > ?1 AND "id" <= ?2 AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = ?3) IS NOT TRUE RETURNING +"id" AS curfew_0;
-- 1: int64 42
-- 2: string 42
-- 3: int64 7

RELEASE SAVEPOINT curfew_1;

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1);
-- 1: string 42

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
);
-- 1: string 42

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("owner" = ?2) IS NOT TRUE;
-- 1: string 42
-- 2: int64 7

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string 42

UPDATE curfew_receipt SET planned = ?1, outcomes = ?2, cascaded = ?3, detail = ?4, evidence = ?5, evidence_root = ?6, deferred = ?7, completed_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE batch_key = ?8;
-- 1: int64 0
-- 2: string {}
-- 3: int64 0
-- 4: string {"deferred":1}
-- 5: 0 bytes
-- 6: 32 bytes
-- 7: 40 bytes
-- 8: 33 bytes

-- # a key of 1: a batch done carefully

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, strftime('%Y-%m-%d %H:%M:%f', 'now')) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
) AND ("owner" = ?2) IS NOT TRUE ORDER BY "id";
-- 1: string 42
-- 2: int64 7

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string 42

SAVEPOINT curfew_1;

DELETE FROM "event" WHERE "id" IN (?1) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = ?2) IS NOT TRUE RETURNING +"id" AS curfew_0;
-- 1: string 42
-- 2: int64 7

RELEASE SAVEPOINT curfew_1;

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1);
-- 1: string 42

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
);
-- 1: string 42

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("owner" = ?2) IS NOT TRUE;
-- 1: string 42
-- 2: int64 7

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string 42

UPDATE curfew_receipt SET planned = ?1, outcomes = ?2, cascaded = ?3, detail = ?4, evidence = ?5, evidence_root = ?6, deferred = ?7, completed_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE batch_key = ?8;
-- 1: int64 2
-- 2: string {"blocked":1,"deleted":1}
-- 3: int64 0
-- 4: string {"rows":[{"row":"64c99d7c4dc5033e6a95ef9415fadbc3","outcome":"blocked","reason":"a trigger of the database kept the row"}]}
-- 5: 42 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # a key of 1: a batch of rows found locked

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, strftime('%Y-%m-%d %H:%M:%f', 'now')) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SAVEPOINT curfew_1;

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
) AND ("owner" = ?2) IS NOT TRUE ORDER BY "id";
-- 1: string 42
-- 2: int64 7

RELEASE SAVEPOINT curfew_1;

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string 42

SAVEPOINT curfew_2;

DELETE FROM "event" WHERE "id" IN (?1) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = ?2) IS NOT TRUE RETURNING +"id" AS curfew_0;
-- 1: string 42
-- 2: int64 7

RELEASE SAVEPOINT curfew_2;

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1);
-- 1: string 42

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
);
-- 1: string 42

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("owner" = ?2) IS NOT TRUE;
-- 1: string 42
-- 2: int64 7

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string 42

UPDATE curfew_receipt SET planned = ?1, outcomes = ?2, cascaded = ?3, detail = ?4, evidence = ?5, evidence_root = ?6, deferred = ?7, completed_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE batch_key = ?8;
-- 1: int64 2
-- 2: string {"blocked":1,"deleted":1}
-- 3: int64 0
-- 4: string {"rows":[{"row":"64c99d7c4dc5033e6a95ef9415fadbc3","outcome":"blocked","reason":"a trigger of the database kept the row"}]}
-- 5: 42 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # a key of 1: a batch of a shadow run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1);
-- 1: string 42

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
);
-- 1: string 42

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("owner" = ?2) IS NOT TRUE;
-- 1: string 42
-- 2: int64 7

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string 42

-- # a key of 2: by trigger: first page

SELECT +"at" AS curfew_0, +"tenant" AS curfew_1, +"no" AS curfew_2 FROM "event" WHERE (typeof("at") IN ('integer', 'real') AND "at" < 1774746000) AND (
kind <> 'keep'
) ORDER BY "at", "tenant", "no" LIMIT 100;

-- # a key of 2: by trigger: next page

SELECT +"at" AS curfew_0, +"tenant" AS curfew_1, +"no" AS curfew_2 FROM "event" WHERE (typeof("at") IN ('integer', 'real') AND "at" < 1774746000) AND ("at", "tenant", "no") > (?1, ?2, ?3) AND (
kind <> 'keep'
) ORDER BY "at", "tenant", "no" LIMIT 100;
-- 1: int64 0
-- 2: string acme
-- 3: int64 7

-- # a key of 2: by trigger: a batch whose row is not found

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, strftime('%Y-%m-%d %H:%M:%f', 'now')) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SAVEPOINT curfew_1;

DELETE FROM "event" WHERE (typeof("at") IN ('integer', 'real') AND "at" < 1774746000) AND ("at", "tenant", "no") > (?1, ?2, ?3) AND ("at", "tenant", "no") <= (?4, ?5, ?6) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = ?7) IS NOT TRUE RETURNING +"tenant" AS curfew_0, +"no" AS curfew_1;
-- 1: int64 0
-- 2: string acme
-- 3: int64 7
-- 4: string 2026-01-02 03:04:05+00
-- 5: string acme
-- 6: string 7
-- 7: int64 7

RELEASE SAVEPOINT curfew_1;

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2));
-- 1: string acme
-- 2: string 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
);
-- 1: string acme
-- 2: string 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND ("owner" = ?3) IS NOT TRUE;
-- 1: string acme
-- 2: string 7
-- 3: int64 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string acme
-- 2: string 7

UPDATE curfew_receipt SET planned = ?1, outcomes = ?2, cascaded = ?3, detail = ?4, evidence = ?5, evidence_root = ?6, deferred = ?7, completed_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE batch_key = ?8;
-- 1: int64 0
-- 2: string {}
-- 3: int64 0
-- 4: string {"deferred":1}
-- 5: 0 bytes
-- 6: 32 bytes
-- 7: 45 bytes
-- 8: 33 bytes

-- # a key of 2: by key: first page

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE 1 = 1 ORDER BY "tenant", "no" LIMIT 1 OFFSET 19999;

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE (typeof("at") IN ('integer', 'real') AND "at" < 1774746000) AND ("tenant", "no") <= (?1, ?2) AND (
kind <> 'keep'
) ORDER BY "tenant", "no" LIMIT 100;
-- 1: string acme
-- 2: string 7

-- # a key of 2: by key: next page

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE 1 = 1 AND ("tenant", "no") > (?1, ?2) ORDER BY "tenant", "no" LIMIT 1 OFFSET 19999;
-- 1: string acme
-- 2: int64 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE (typeof("at") IN ('integer', 'real') AND "at" < 1774746000) AND ("tenant", "no") > (?1, ?2) AND ("tenant", "no") <= (?3, ?4) AND (
kind <> 'keep'
) ORDER BY "tenant", "no" LIMIT 100;
-- 1: string acme
-- 2: int64 7
-- 3: string acme
-- 4: string 7

-- # a key of 2: by key: a batch whose row is not found

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, strftime('%Y-%m-%d %H:%M:%f', 'now')) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SAVEPOINT curfew_1;

DELETE FROM "event" WHERE (typeof("at") IN ('integer', 'real') AND "at" < 1774746000) AND ("tenant", "no") > (?1, ?2) AND ("tenant", "no") <= (?3, ?4) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = ?5) IS NOT TRUE RETURNING +"tenant" AS curfew_0, +"no" AS curfew_1;
-- 1: string acme
-- 2: int64 7
-- 3: string acme
-- 4: string 7
-- 5: int64 7

RELEASE SAVEPOINT curfew_1;

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2));
-- 1: string acme
-- 2: string 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
);
-- 1: string acme
-- 2: string 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND ("owner" = ?3) IS NOT TRUE;
-- 1: string acme
-- 2: string 7
-- 3: int64 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string acme
-- 2: string 7

UPDATE curfew_receipt SET planned = ?1, outcomes = ?2, cascaded = ?3, detail = ?4, evidence = ?5, evidence_root = ?6, deferred = ?7, completed_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE batch_key = ?8;
-- 1: int64 0
-- 2: string {}
-- 3: int64 0
-- 4: string {"deferred":1}
-- 5: 0 bytes
-- 6: 32 bytes
-- 7: 45 bytes
-- 8: 33 bytes

-- # a key of 2: NULL triggers: first page

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE 1 = 1 ORDER BY "tenant", "no" LIMIT 1 OFFSET 19999;

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE "at" IS NULL AND ("tenant", "no") <= (?1, ?2) AND (
kind <> 'keep'
) ORDER BY "tenant", "no" LIMIT 100;
-- 1: string acme
-- 2: string 7

-- # a key of 2: NULL triggers: next page

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE 1 = 1 AND ("tenant", "no") > (?1, ?2) ORDER BY "tenant", "no" LIMIT 1 OFFSET 19999;
-- 1: string acme
-- 2: int64 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE "at" IS NULL AND ("tenant", "no") > (?1, ?2) AND ("tenant", "no") <= (?3, ?4) AND (
kind <> 'keep'
) ORDER BY "tenant", "no" LIMIT 100;
-- 1: string acme
-- 2: int64 7
-- 3: string acme
-- 4: string 7

-- # a key of 2: NULL triggers: a batch whose row is not found

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, strftime('%Y-%m-%d %H:%M:%f', 'now')) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SAVEPOINT curfew_1;

DELETE FROM "event" WHERE "at" IS NULL AND ("tenant", "no") > (?1, ?2) AND ("tenant", "no") <= (?3, ?4) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = ?5) IS NOT TRUE RETURNING +"tenant" AS curfew_0, +"no" AS curfew_1;
-- 1: string acme
-- 2: int64 7
-- 3: string acme
-- 4: string 7
-- 5: int64 7

RELEASE SAVEPOINT curfew_1;

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2));
-- 1: string acme
-- 2: string 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
);
-- 1: string acme
-- 2: string 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND ("owner" = ?3) IS NOT TRUE;
-- 1: string acme
-- 2: string 7
-- 3: int64 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string acme
-- 2: string 7

UPDATE curfew_receipt SET planned = ?1, outcomes = ?2, cascaded = ?3, detail = ?4, evidence = ?5, evidence_root = ?6, deferred = ?7, completed_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE batch_key = ?8;
-- 1: int64 0
-- 2: string {}
-- 3: int64 0
-- 4: string {"deferred":1}
-- 5: 0 bytes
-- 6: 32 bytes
-- 7: 45 bytes
-- 8: 33 bytes

-- # a key of 2: a batch done carefully

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, strftime('%Y-%m-%d %H:%M:%f', 'now')) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
) AND ("owner" = ?3) IS NOT TRUE ORDER BY "tenant", "no";
-- 1: string acme
-- 2: string 7
-- 3: int64 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string acme
-- 2: string 7

SAVEPOINT curfew_1;

DELETE FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = ?3) IS NOT TRUE RETURNING +"tenant" AS curfew_0, +"no" AS curfew_1;
-- 1: string acme
-- 2: string 7
-- 3: int64 7

RELEASE SAVEPOINT curfew_1;

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2));
-- 1: string acme
-- 2: string 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
);
-- 1: string acme
-- 2: string 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND ("owner" = ?3) IS NOT TRUE;
-- 1: string acme
-- 2: string 7
-- 3: int64 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string acme
-- 2: string 7

UPDATE curfew_receipt SET planned = ?1, outcomes = ?2, cascaded = ?3, detail = ?4, evidence = ?5, evidence_root = ?6, deferred = ?7, completed_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE batch_key = ?8;
-- 1: int64 2
-- 2: string {"blocked":1,"deleted":1}
-- 3: int64 0
-- 4: string {"rows":[{"row":"5616c2a335a0c5212a44dbcdda6d336e","outcome":"blocked","reason":"a trigger of the database kept the row"}]}
-- 5: 42 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # a key of 2: a batch of rows found locked

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, strftime('%Y-%m-%d %H:%M:%f', 'now')) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SAVEPOINT curfew_1;

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
) AND ("owner" = ?3) IS NOT TRUE ORDER BY "tenant", "no";
-- 1: string acme
-- 2: string 7
-- 3: int64 7

RELEASE SAVEPOINT curfew_1;

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string acme
-- 2: string 7

SAVEPOINT curfew_2;

DELETE FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = ?3) IS NOT TRUE RETURNING +"tenant" AS curfew_0, +"no" AS curfew_1;
-- 1: string acme
-- 2: string 7
-- 3: int64 7

RELEASE SAVEPOINT curfew_2;

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2));
-- 1: string acme
-- 2: string 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
);
-- 1: string acme
-- 2: string 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND ("owner" = ?3) IS NOT TRUE;
-- 1: string acme
-- 2: string 7
-- 3: int64 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string acme
-- 2: string 7

UPDATE curfew_receipt SET planned = ?1, outcomes = ?2, cascaded = ?3, detail = ?4, evidence = ?5, evidence_root = ?6, deferred = ?7, completed_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE batch_key = ?8;
-- 1: int64 2
-- 2: string {"blocked":1,"deleted":1}
-- 3: int64 0
-- 4: string {"rows":[{"row":"5616c2a335a0c5212a44dbcdda6d336e","outcome":"blocked","reason":"a trigger of the database kept the row"}]}
-- 5: 42 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # a key of 2: a batch of a shadow run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2));
-- 1: string acme
-- 2: string 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
);
-- 1: string acme
-- 2: string 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND ("owner" = ?3) IS NOT TRUE;
-- 1: string acme
-- 2: string 7
-- 3: int64 7

SELECT +"tenant" AS curfew_0, +"no" AS curfew_1 FROM "event" WHERE ("tenant", "no") IN (VALUES (?1, ?2)) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string acme
-- 2: string 7

-- # rows that go along

SELECT count(*) FROM "note" WHERE ("event_id" IN (?1, ?2));
-- 1: int64 42
-- 2: int64 43

SELECT count(*) FROM "word" WHERE (("note_a", "note_b") IN (SELECT "a", "b" FROM "note" WHERE ("event_id" IN (?1, ?2))));
-- 1: int64 42
-- 2: int64 43

SELECT count(*) FROM "event" WHERE ("up" IN (SELECT "id" FROM "event" WHERE ("id" IN (?1, ?2) OR "up" IN (SELECT "id" FROM "event" WHERE ("id" IN (?3, ?4) OR "up" IN (SELECT "id" FROM "event" WHERE ("id" IN (?5, ?6) OR "up" IN (SELECT "id" FROM "event" WHERE ("id" IN (?7, ?8) OR "up" IN (SELECT "id" FROM "event" WHERE ("id" IN (?9, ?10) OR "up" IN (SELECT "id" FROM "event" WHERE ("id" IN (?11, ?12) OR "up" IN (SELECT "id" FROM "event" WHERE ("id" IN (?13, ?14) OR "up" IN (SELECT "id" FROM "event" WHERE ("id" IN (?15, ?16)))))))))))))))))) AND NOT ("id" IN (?17, ?18));
-- 1: int64 42
-- 2: int64 43
-- 3: int64 42
-- 4: int64 43
-- 5: int64 42
-- 6: int64 43
-- 7: int64 42
-- 8: int64 43
-- 9: int64 42
-- 10: int64 43
-- 11: int64 42
-- 12: int64 43
-- 13: int64 42
-- 14: int64 43
-- 15: int64 42
-- 16: int64 43
-- 17: int64 42
-- 18: int64 43

-- # rows that a foreign key keeps

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1, ?2) AND EXISTS (SELECT 1 FROM "claim" curfew_child WHERE curfew_child."event_id" = "event"."id");
-- 1: int64 42
-- 2: int64 43

-- # deferred foreign keys

SELECT EXISTS (SELECT 1 FROM "claim" WHERE "event_id" IN (?1, ?2));
-- 1: int64 42
-- 2: int64 43

-- # set: first page

SELECT +"at" AS curfew_0, +"id" AS curfew_1 FROM "event" WHERE (typeof("at") IN ('integer', 'real') AND "at" < 1774746000) AND NOT ("kind" COLLATE BINARY IS ?1) AND (
kind <> 'keep'
) ORDER BY "at", "id" LIMIT 100;
-- 1: string paused

-- # set: a batch

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, strftime('%Y-%m-%d %H:%M:%f', 'now')) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND NOT ("kind" COLLATE BINARY IS ?2) AND (
kind <> 'keep'
) AND ("owner" = ?3) IS NOT TRUE ORDER BY "id";
-- 1: string 42
-- 2: string paused
-- 3: int64 7

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string 42

SAVEPOINT curfew_1;

SAVEPOINT curfew_2;

UPDATE "event" SET "kind" = ?1, "seen" = ?2 WHERE "id" IN (?3) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND NOT ("kind" COLLATE BINARY IS ?4) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = ?5) IS NOT TRUE;
-- 1: string paused
-- 2: string 2026-03-30T01:00:00Z
-- 3: string 42
-- 4: string paused
-- 5: int64 7

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND "kind" COLLATE BINARY IS ?2 AND "seen" COLLATE BINARY IS ?3;
-- 1: string 42
-- 2: string paused
-- 3: string 2026-03-30T01:00:00Z

RELEASE SAVEPOINT curfew_2;

RELEASE SAVEPOINT curfew_1;

UPDATE curfew_receipt SET planned = ?1, outcomes = ?2, cascaded = ?3, detail = ?4, evidence = ?5, evidence_root = ?6, deferred = ?7, completed_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE batch_key = ?8;
-- 1: int64 1
-- 2: string {"set":1}
-- 3: int64 0
-- 4: string {}
-- 5: 21 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # anonymise: first page

SELECT +"at" AS curfew_0, +"id" AS curfew_1 FROM "event" WHERE (typeof("at") IN ('integer', 'real') AND "at" < 1774746000) AND NOT (("kind" IS NULL OR typeof("kind") = 'text' AND "kind" GLOB 'anon:[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]') AND "pinned" COLLATE BINARY IS (CASE typeof("pinned") WHEN 'integer' THEN "pinned" - (("pinned" % 10) + 10) % 10 WHEN 'real' THEN 10.0 * (CAST("pinned" / 10 AS INTEGER) - ("pinned" / 10 < CAST("pinned" / 10 AS INTEGER))) ELSE "pinned" END) AND "owner" COLLATE BINARY IS ?1) AND (
kind <> 'keep'
) ORDER BY "at", "id" LIMIT 100;
-- 1: int64 1

-- # anonymise: a batch

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, strftime('%Y-%m-%d %H:%M:%f', 'now')) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND NOT (("kind" IS NULL OR typeof("kind") = 'text' AND "kind" GLOB 'anon:[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]') AND "pinned" COLLATE BINARY IS (CASE typeof("pinned") WHEN 'integer' THEN "pinned" - (("pinned" % 10) + 10) % 10 WHEN 'real' THEN 10.0 * (CAST("pinned" / 10 AS INTEGER) - ("pinned" / 10 < CAST("pinned" / 10 AS INTEGER))) ELSE "pinned" END) AND "owner" COLLATE BINARY IS ?2) AND (
kind <> 'keep'
) AND ("owner" = ?3) IS NOT TRUE ORDER BY "id";
-- 1: string 42
-- 2: int64 1
-- 3: int64 7

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string 42

SAVEPOINT curfew_1;

SAVEPOINT curfew_2;

SELECT +"id" AS curfew_0, +"kind" AS curfew_1 FROM "event" WHERE "id" IN (?1) AND NOT ("kind" IS NULL OR typeof("kind") = 'text' AND "kind" GLOB 'anon:[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]');
-- 1: string 42

UPDATE "event" SET "kind" = CASE WHEN "id" IN (?1) THEN ?2 ELSE "kind" END, "pinned" = (CASE typeof("pinned") WHEN 'integer' THEN "pinned" - (("pinned" % 10) + 10) % 10 WHEN 'real' THEN 10.0 * (CAST("pinned" / 10 AS INTEGER) - ("pinned" / 10 < CAST("pinned" / 10 AS INTEGER))) ELSE "pinned" END), "owner" = ?3 WHERE "id" IN (?4) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND NOT (("kind" IS NULL OR typeof("kind") = 'text' AND "kind" GLOB 'anon:[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]') AND "pinned" COLLATE BINARY IS (CASE typeof("pinned") WHEN 'integer' THEN "pinned" - (("pinned" % 10) + 10) % 10 WHEN 'real' THEN 10.0 * (CAST("pinned" / 10 AS INTEGER) - ("pinned" / 10 < CAST("pinned" / 10 AS INTEGER))) ELSE "pinned" END) AND "owner" COLLATE BINARY IS ?5) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = ?6) IS NOT TRUE;
-- 1: string 42
-- 2: string anon:3236bb7be21c1623f4784bad51f4b013
-- 3: int64 1
-- 4: string 42
-- 5: int64 1
-- 6: int64 7

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("kind" IS NULL OR typeof("kind") = 'text' AND "kind" GLOB 'anon:[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]') AND "pinned" COLLATE BINARY IS (CASE typeof("pinned") WHEN 'integer' THEN "pinned" - (("pinned" % 10) + 10) % 10 WHEN 'real' THEN 10.0 * (CAST("pinned" / 10 AS INTEGER) - ("pinned" / 10 < CAST("pinned" / 10 AS INTEGER))) ELSE "pinned" END) AND "owner" COLLATE BINARY IS ?2;
-- 1: string 42
-- 2: int64 1

RELEASE SAVEPOINT curfew_2;

RELEASE SAVEPOINT curfew_1;

UPDATE curfew_receipt SET planned = ?1, outcomes = ?2, cascaded = ?3, detail = ?4, evidence = ?5, evidence_root = ?6, deferred = ?7, completed_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE batch_key = ?8;
-- 1: int64 1
-- 2: string {"anonymised":1}
-- 3: int64 0
-- 4: string {}
-- 5: 21 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # archive: first page

SELECT +"at" AS curfew_0, +"id" AS curfew_1 FROM "event" WHERE (typeof("at") IN ('integer', 'real') AND "at" < 1774746000) AND (
kind <> 'keep'
) ORDER BY "at", "id" LIMIT 100;

-- # archive: a batch

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, strftime('%Y-%m-%d %H:%M:%f', 'now')) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
) AND ("owner" = ?2) IS NOT TRUE ORDER BY "id";
-- 1: string 42
-- 2: int64 7

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string 42

SAVEPOINT curfew_1;

SAVEPOINT curfew_2;

INSERT INTO "old_event" ("id", "at", "owner", "kind", "pinned", "seen") SELECT "id", "at", "owner", "kind", "pinned", "seen" FROM "event" WHERE "id" IN (?1);
-- 1: string 42

DELETE FROM "event" WHERE "id" IN (?1) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = ?2) IS NOT TRUE RETURNING +"id" AS curfew_0;
-- 1: string 42
-- 2: int64 7

SELECT count(*) FROM "old_event" WHERE "id" IN (?1);
-- 1: string 42

RELEASE SAVEPOINT curfew_2;

RELEASE SAVEPOINT curfew_1;

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1);
-- 1: string 42

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
);
-- 1: string 42

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("owner" = ?2) IS NOT TRUE;
-- 1: string 42
-- 2: int64 7

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string 42

UPDATE curfew_receipt SET planned = ?1, outcomes = ?2, cascaded = ?3, detail = ?4, evidence = ?5, evidence_root = ?6, deferred = ?7, completed_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE batch_key = ?8;
-- 1: int64 2
-- 2: string {"archived":1,"blocked":1}
-- 3: int64 0
-- 4: string {"rows":[{"row":"64c99d7c4dc5033e6a95ef9415fadbc3","outcome":"blocked","reason":"a trigger of the database kept the row"}]}
-- 5: 42 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # count

SELECT count(*) FROM "event" WHERE ("at" IS NOT NULL AND typeof("at") NOT IN ('integer', 'real')) AND (
kind <> 'keep'
);

SELECT count(*), MIN("at") FROM "event" WHERE (typeof("at") IN ('integer', 'real') AND "at" < 1774746000) AND (
kind <> 'keep'
);

SELECT count(*) FROM "event" WHERE "at" IS NULL AND (
kind <> 'keep'
);

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT count(*) FROM "event" WHERE ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
) AND ("owner" = ?1) IS NOT TRUE;
-- 1: int64 7

SELECT count(*) FROM "event" WHERE ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
kind <> 'keep'
) AND ("owner" = ?1) IS NOT TRUE AND (
pinned = 1
) IS NOT TRUE;
-- 1: int64 7

-- # implausible_before

SELECT +"at" AS curfew_0, +"id" AS curfew_1 FROM "event" WHERE (typeof("at") IN ('integer', 'real') AND "at" < 1774746000) AND NOT (typeof("at") IN ('integer', 'real') AND "at" < -62169984000) AND (
kind <> 'keep'
) ORDER BY "at", "id" LIMIT 100;

-- # a batch of a stage

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, strftime('%Y-%m-%d %H:%M:%f', 'now')) ON CONFLICT DO NOTHING;
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string end
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?1;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
(
kind <> 'keep'
) AND (
owner > 0
)
) AND ("owner" = ?2) IS NOT TRUE ORDER BY "id";
-- 1: string 42
-- 2: int64 7

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string 42

SELECT +"id" AS curfew_0, +"at" AS curfew_trigger FROM "event" WHERE "id" IN (?1);
-- 1: string 42

SELECT stage, row_hash, due_us, state, as_of_us, run, batch_key, attempt, detail FROM curfew_passage WHERE policy = ?1 AND row_hash IN (?2) ORDER BY row_hash, stage, due_us;
-- 1: string events
-- 2: 16 bytes

SAVEPOINT curfew_1;

DELETE FROM "event" WHERE "id" IN (?1) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
(
kind <> 'keep'
) AND (
owner > 0
)
) AND (
pinned = 1
) IS NOT TRUE AND ("owner" = ?2) IS NOT TRUE RETURNING +"id" AS curfew_0;
-- 1: string 42
-- 2: int64 7

RELEASE SAVEPOINT curfew_1;

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1);
-- 1: string 42

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("at" IS NULL OR ((typeof("at") IN ('integer', 'real') AND "at" < 1774746000))) AND (
(
kind <> 'keep'
) AND (
owner > 0
)
);
-- 1: string 42

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND ("owner" = ?2) IS NOT TRUE;
-- 1: string 42
-- 2: int64 7

SELECT +"id" AS curfew_0 FROM "event" WHERE "id" IN (?1) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string 42

DELETE FROM curfew_passage WHERE policy = ?1 AND row_hash IN (?2);
-- 1: string events
-- 2: 16 bytes

UPDATE curfew_receipt SET planned = ?1, outcomes = ?2, cascaded = ?3, detail = ?4, evidence = ?5, evidence_root = ?6, deferred = ?7, completed_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE batch_key = ?8;
-- 1: int64 2
-- 2: string {"blocked":1,"deleted":1}
-- 3: int64 0
-- 4: string {"rows":[{"row":"64c99d7c4dc5033e6a95ef9415fadbc3","outcome":"blocked","reason":"a trigger of the database kept the row"}]}
-- 5: 42 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # what a row passed, recorded, changed and swept

INSERT INTO curfew_passage (policy, stage, row_hash, due_us, state, as_of_us, run, batch_key, attempt, detail, changed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, strftime('%Y-%m-%d %H:%M:%f', 'now')), (?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, strftime('%Y-%m-%d %H:%M:%f', 'now')) ON CONFLICT DO NOTHING;
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

SELECT stage, row_hash, due_us, state, as_of_us, run, batch_key, attempt, detail FROM curfew_passage WHERE policy = ?1 AND row_hash IN (?2, ?3) ORDER BY row_hash, stage, due_us;
-- 1: string events
-- 2: 16 bytes
-- 3: 16 bytes

UPDATE curfew_passage SET state = ?1, as_of_us = ?2, run = ?3, batch_key = ?4, attempt = ?5, detail = ?6, changed_at = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE policy = ?7 AND row_hash = ?8 AND stage = ?9 AND due_us = ?10 AND state = ?11 AND attempt = ?12;
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

SELECT row_hash FROM curfew_passage WHERE policy = ?1 GROUP BY row_hash HAVING COUNT(CASE WHEN changed_at < ?2 THEN 1 END) = COUNT(*) ORDER BY row_hash LIMIT 20000;
-- 1: string events
-- 2: string 2026-03-29 01:00:00.000000

SELECT +"id" AS curfew_0 FROM "event" WHERE 1 = 1 ORDER BY "id" LIMIT 20000;

DELETE FROM curfew_passage WHERE policy = ?1 AND row_hash IN (?2) AND changed_at < ?3;
-- 1: string events
-- 2: 16 bytes
-- 3: string 2026-03-29 01:00:00.000000

-- # the answer of an earlier execution

SELECT batch_key, planned, outcomes, cascaded, detail, evidence_root, deferred FROM curfew_receipt WHERE run = ?1 AND seq = ?2;
-- 1: string run
-- 2: int64 9


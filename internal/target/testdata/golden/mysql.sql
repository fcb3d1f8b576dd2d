-- # a key of 1: by trigger: first page

SELECT CAST(`at` AS CHAR) AS curfew_0, `id` AS curfew_1 FROM `event` WHERE (`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)) AND (
kind <> 'keep'
) ORDER BY `at`, `id` LIMIT 100;
-- 1: string 2026-03-29 01:00:00.000000

-- # a key of 1: by trigger: next page

SELECT CAST(`at` AS CHAR) AS curfew_0, `id` AS curfew_1 FROM `event` WHERE (`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)) AND ((`at` > CAST(? AS DATETIME(6))) OR (`at` = CAST(? AS DATETIME(6)) AND `id` > ?)) AND (
kind <> 'keep'
) ORDER BY `at`, `id` LIMIT 100;
-- 1: string 2026-03-29 01:00:00.000000
-- 2: string 2026-01-02 03:04:05+00
-- 3: string 2026-01-02 03:04:05+00
-- 4: int64 42

-- # a key of 1: by trigger: a batch whose row is not found

SET SESSION innodb_lock_wait_timeout = 90;

SELECT epoch FROM curfew_hold_epoch WHERE one = 1 LOCK IN SHARE MODE;

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6));
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT `id` AS curfew_0 FROM `event` FORCE INDEX (`PRIMARY`) WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (`owner` = ?) IS NOT TRUE ORDER BY `id` FOR UPDATE SKIP LOCKED;
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000
-- 3: int64 7

SET SESSION innodb_lock_wait_timeout = 1;

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (
pinned = 1
) IS NOT TRUE;
-- 1: int64 42

SAVEPOINT curfew_1;

DELETE `event` FROM `event` FORCE INDEX (`PRIMARY`) WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND (`owner` = ?) IS NOT TRUE;
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000
-- 3: int64 7

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?);
-- 1: int64 42

RELEASE SAVEPOINT curfew_1;

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?);
-- 1: int64 42

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
);
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (`owner` = ?) IS NOT TRUE;
-- 1: int64 42
-- 2: int64 7

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (
pinned = 1
) IS NOT TRUE;
-- 1: int64 42

UPDATE curfew_receipt SET planned = ?, outcomes = ?, cascaded = ?, detail = ?, evidence = ?, evidence_root = ?, deferred = ?, completed_at = UTC_TIMESTAMP(6) WHERE batch_key = ?;
-- 1: int64 1
-- 2: string {"blocked":1}
-- 3: int64 0
-- 4: string {"rows":[{"row":"ab62a4ce1e1bf93dd772bdf04acc81bf","outcome":"blocked","reason":"a trigger of the database kept the row"}]}
-- 5: 21 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # a key of 1: by key: first page

SELECT `id` AS curfew_0 FROM `event` WHERE 1 = 1 ORDER BY `id` LIMIT 1 OFFSET 19999;

SELECT `id` AS curfew_0 FROM `event` WHERE (`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)) AND ((`id` <= ?)) AND (
kind <> 'keep'
) ORDER BY `id` LIMIT 100;
-- 1: string 2026-03-29 01:00:00.000000
-- 2: int64 42

-- # a key of 1: by key: next page

SELECT `id` AS curfew_0 FROM `event` WHERE 1 = 1 AND ((`id` > ?)) ORDER BY `id` LIMIT 1 OFFSET 19999;
-- 1: int64 42

SELECT `id` AS curfew_0 FROM `event` WHERE (`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)) AND ((`id` > ?)) AND ((`id` <= ?)) AND (
kind <> 'keep'
) ORDER BY `id` LIMIT 100;
-- 1: string 2026-03-29 01:00:00.000000
-- 2: int64 42
-- 3: int64 42

-- # a key of 1: by key: a batch whose row is not found

SET SESSION innodb_lock_wait_timeout = 90;

SELECT epoch FROM curfew_hold_epoch WHERE one = 1 LOCK IN SHARE MODE;

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6));
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT `id` AS curfew_0 FROM `event` FORCE INDEX (`PRIMARY`) WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (`owner` = ?) IS NOT TRUE ORDER BY `id` FOR UPDATE SKIP LOCKED;
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000
-- 3: int64 7

SET SESSION innodb_lock_wait_timeout = 1;

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (
pinned = 1
) IS NOT TRUE;
-- 1: int64 42

SAVEPOINT curfew_1;

DELETE `event` FROM `event` FORCE INDEX (`PRIMARY`) WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND (`owner` = ?) IS NOT TRUE;
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000
-- 3: int64 7

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?);
-- 1: int64 42

RELEASE SAVEPOINT curfew_1;

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?);
-- 1: int64 42

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
);
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (`owner` = ?) IS NOT TRUE;
-- 1: int64 42
-- 2: int64 7

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (
pinned = 1
) IS NOT TRUE;
-- 1: int64 42

UPDATE curfew_receipt SET planned = ?, outcomes = ?, cascaded = ?, detail = ?, evidence = ?, evidence_root = ?, deferred = ?, completed_at = UTC_TIMESTAMP(6) WHERE batch_key = ?;
-- 1: int64 1
-- 2: string {"blocked":1}
-- 3: int64 0
-- 4: string {"rows":[{"row":"ab62a4ce1e1bf93dd772bdf04acc81bf","outcome":"blocked","reason":"a trigger of the database kept the row"}]}
-- 5: 21 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # a key of 1: NULL triggers: first page

SELECT `id` AS curfew_0 FROM `event` WHERE 1 = 1 ORDER BY `id` LIMIT 1 OFFSET 19999;

SELECT `id` AS curfew_0 FROM `event` WHERE `at` IS NULL AND ((`id` <= ?)) AND (
kind <> 'keep'
) ORDER BY `id` LIMIT 100;
-- 1: int64 42

-- # a key of 1: NULL triggers: next page

SELECT `id` AS curfew_0 FROM `event` WHERE 1 = 1 AND ((`id` > ?)) ORDER BY `id` LIMIT 1 OFFSET 19999;
-- 1: int64 42

SELECT `id` AS curfew_0 FROM `event` WHERE `at` IS NULL AND ((`id` > ?)) AND ((`id` <= ?)) AND (
kind <> 'keep'
) ORDER BY `id` LIMIT 100;
-- 1: int64 42
-- 2: int64 42

-- # a key of 1: NULL triggers: a batch whose row is not found

SET SESSION innodb_lock_wait_timeout = 90;

SELECT epoch FROM curfew_hold_epoch WHERE one = 1 LOCK IN SHARE MODE;

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6));
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT `id` AS curfew_0 FROM `event` FORCE INDEX (`PRIMARY`) WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (`owner` = ?) IS NOT TRUE ORDER BY `id` FOR UPDATE SKIP LOCKED;
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000
-- 3: int64 7

SET SESSION innodb_lock_wait_timeout = 1;

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (
pinned = 1
) IS NOT TRUE;
-- 1: int64 42

SAVEPOINT curfew_1;

DELETE `event` FROM `event` FORCE INDEX (`PRIMARY`) WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND (`owner` = ?) IS NOT TRUE;
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000
-- 3: int64 7

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?);
-- 1: int64 42

RELEASE SAVEPOINT curfew_1;

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?);
-- 1: int64 42

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
);
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (`owner` = ?) IS NOT TRUE;
-- 1: int64 42
-- 2: int64 7

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (
pinned = 1
) IS NOT TRUE;
-- 1: int64 42

UPDATE curfew_receipt SET planned = ?, outcomes = ?, cascaded = ?, detail = ?, evidence = ?, evidence_root = ?, deferred = ?, completed_at = UTC_TIMESTAMP(6) WHERE batch_key = ?;
-- 1: int64 1
-- 2: string {"blocked":1}
-- 3: int64 0
-- 4: string {"rows":[{"row":"ab62a4ce1e1bf93dd772bdf04acc81bf","outcome":"blocked","reason":"a trigger of the database kept the row"}]}
-- 5: 21 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # a key of 1: a batch done carefully

SET SESSION innodb_lock_wait_timeout = 90;

SELECT epoch FROM curfew_hold_epoch WHERE one = 1 LOCK IN SHARE MODE;

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6));
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT `id` AS curfew_0 FROM `event` FORCE INDEX (`PRIMARY`) WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (`owner` = ?) IS NOT TRUE ORDER BY `id` FOR UPDATE SKIP LOCKED;
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000
-- 3: int64 7

SET SESSION innodb_lock_wait_timeout = 1;

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (
pinned = 1
) IS NOT TRUE;
-- 1: int64 42

SAVEPOINT curfew_1;

DELETE `event` FROM `event` FORCE INDEX (`PRIMARY`) WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND (`owner` = ?) IS NOT TRUE;
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000
-- 3: int64 7

RELEASE SAVEPOINT curfew_1;

UPDATE curfew_receipt SET planned = ?, outcomes = ?, cascaded = ?, detail = ?, evidence = ?, evidence_root = ?, deferred = ?, completed_at = UTC_TIMESTAMP(6) WHERE batch_key = ?;
-- 1: int64 1
-- 2: string {"deleted":1}
-- 3: int64 0
-- 4: string {}
-- 5: 21 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # a key of 1: a batch of rows found locked

SET SESSION innodb_lock_wait_timeout = 90;

SELECT epoch FROM curfew_hold_epoch WHERE one = 1 LOCK IN SHARE MODE;

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6));
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SET SESSION innodb_lock_wait_timeout = 10;

SAVEPOINT curfew_1;

SELECT `id` AS curfew_0 FROM `event` FORCE INDEX (`PRIMARY`) WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (`owner` = ?) IS NOT TRUE ORDER BY `id` FOR UPDATE;
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000
-- 3: int64 7

RELEASE SAVEPOINT curfew_1;

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (
pinned = 1
) IS NOT TRUE;
-- 1: int64 42

SAVEPOINT curfew_2;

DELETE `event` FROM `event` FORCE INDEX (`PRIMARY`) WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND (`owner` = ?) IS NOT TRUE;
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000
-- 3: int64 7

RELEASE SAVEPOINT curfew_2;

UPDATE curfew_receipt SET planned = ?, outcomes = ?, cascaded = ?, detail = ?, evidence = ?, evidence_root = ?, deferred = ?, completed_at = UTC_TIMESTAMP(6) WHERE batch_key = ?;
-- 1: int64 1
-- 2: string {"deleted":1}
-- 3: int64 0
-- 4: string {}
-- 5: 21 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # a key of 1: a batch of a shadow run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?);
-- 1: int64 42

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
);
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (`owner` = ?) IS NOT TRUE;
-- 1: int64 42
-- 2: int64 7

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (
pinned = 1
) IS NOT TRUE;
-- 1: int64 42

-- # a key of 2: by trigger: first page

SELECT CAST(`at` AS CHAR) AS curfew_0, `tenant` AS curfew_1, `no` AS curfew_2 FROM `event` WHERE (`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)) AND (
kind <> 'keep'
) ORDER BY `at`, `tenant`, `no` LIMIT 100;
-- 1: string 2026-03-29 01:00:00.000000

-- # a key of 2: by trigger: next page

SELECT CAST(`at` AS CHAR) AS curfew_0, `tenant` AS curfew_1, `no` AS curfew_2 FROM `event` WHERE (`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)) AND ((`at` > CAST(? AS DATETIME(6))) OR (`at` = CAST(? AS DATETIME(6)) AND `tenant` > ?) OR (`at` = CAST(? AS DATETIME(6)) AND `tenant` = ? AND `no` > ?)) AND (
kind <> 'keep'
) ORDER BY `at`, `tenant`, `no` LIMIT 100;
-- 1: string 2026-03-29 01:00:00.000000
-- 2: string 2026-01-02 03:04:05+00
-- 3: string 2026-01-02 03:04:05+00
-- 4: string acme
-- 5: string 2026-01-02 03:04:05+00
-- 6: string acme
-- 7: int64 7

-- # a key of 2: by trigger: a batch whose row is not found

SET SESSION innodb_lock_wait_timeout = 90;

SELECT epoch FROM curfew_hold_epoch WHERE one = 1 LOCK IN SHARE MODE;

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6));
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` FORCE INDEX (`PRIMARY`) WHERE (`tenant`, `no`) IN ((?, ?)) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (`owner` = ?) IS NOT TRUE ORDER BY `tenant`, `no` FOR UPDATE SKIP LOCKED;
-- 1: string acme
-- 2: int64 7
-- 3: string 2026-03-29 01:00:00.000000
-- 4: int64 7

SET SESSION innodb_lock_wait_timeout = 1;

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?)) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string acme
-- 2: int64 7

SAVEPOINT curfew_1;

DELETE `event` FROM `event` FORCE INDEX (`PRIMARY`) WHERE (`tenant`, `no`) IN ((?, ?)) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND (`owner` = ?) IS NOT TRUE;
-- 1: string acme
-- 2: int64 7
-- 3: string 2026-03-29 01:00:00.000000
-- 4: int64 7

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?));
-- 1: string acme
-- 2: int64 7

RELEASE SAVEPOINT curfew_1;

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?));
-- 1: string acme
-- 2: int64 7

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?)) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
);
-- 1: string acme
-- 2: int64 7
-- 3: string 2026-03-29 01:00:00.000000

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?)) AND (`owner` = ?) IS NOT TRUE;
-- 1: string acme
-- 2: int64 7
-- 3: int64 7

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?)) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string acme
-- 2: int64 7

UPDATE curfew_receipt SET planned = ?, outcomes = ?, cascaded = ?, detail = ?, evidence = ?, evidence_root = ?, deferred = ?, completed_at = UTC_TIMESTAMP(6) WHERE batch_key = ?;
-- 1: int64 1
-- 2: string {"blocked":1}
-- 3: int64 0
-- 4: string {"rows":[{"row":"d0c0458231a6325b2b05c68ff3b6f681","outcome":"blocked","reason":"a trigger of the database kept the row"}]}
-- 5: 21 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # a key of 2: by key: first page

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE 1 = 1 ORDER BY `tenant`, `no` LIMIT 1 OFFSET 19999;

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)) AND ((`tenant` < ?) OR (`tenant` = ? AND `no` <= ?)) AND (
kind <> 'keep'
) ORDER BY `tenant`, `no` LIMIT 100;
-- 1: string 2026-03-29 01:00:00.000000
-- 2: string acme
-- 3: string acme
-- 4: int64 7

-- # a key of 2: by key: next page

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE 1 = 1 AND ((`tenant` > ?) OR (`tenant` = ? AND `no` > ?)) ORDER BY `tenant`, `no` LIMIT 1 OFFSET 19999;
-- 1: string acme
-- 2: string acme
-- 3: int64 7

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)) AND ((`tenant` > ?) OR (`tenant` = ? AND `no` > ?)) AND ((`tenant` < ?) OR (`tenant` = ? AND `no` <= ?)) AND (
kind <> 'keep'
) ORDER BY `tenant`, `no` LIMIT 100;
-- 1: string 2026-03-29 01:00:00.000000
-- 2: string acme
-- 3: string acme
-- 4: int64 7
-- 5: string acme
-- 6: string acme
-- 7: int64 7

-- # a key of 2: by key: a batch whose row is not found

SET SESSION innodb_lock_wait_timeout = 90;

SELECT epoch FROM curfew_hold_epoch WHERE one = 1 LOCK IN SHARE MODE;

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6));
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` FORCE INDEX (`PRIMARY`) WHERE (`tenant`, `no`) IN ((?, ?)) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (`owner` = ?) IS NOT TRUE ORDER BY `tenant`, `no` FOR UPDATE SKIP LOCKED;
-- 1: string acme
-- 2: int64 7
-- 3: string 2026-03-29 01:00:00.000000
-- 4: int64 7

SET SESSION innodb_lock_wait_timeout = 1;

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?)) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string acme
-- 2: int64 7

SAVEPOINT curfew_1;

DELETE `event` FROM `event` FORCE INDEX (`PRIMARY`) WHERE (`tenant`, `no`) IN ((?, ?)) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND (`owner` = ?) IS NOT TRUE;
-- 1: string acme
-- 2: int64 7
-- 3: string 2026-03-29 01:00:00.000000
-- 4: int64 7

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?));
-- 1: string acme
-- 2: int64 7

RELEASE SAVEPOINT curfew_1;

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?));
-- 1: string acme
-- 2: int64 7

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?)) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
);
-- 1: string acme
-- 2: int64 7
-- 3: string 2026-03-29 01:00:00.000000

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?)) AND (`owner` = ?) IS NOT TRUE;
-- 1: string acme
-- 2: int64 7
-- 3: int64 7

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?)) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string acme
-- 2: int64 7

UPDATE curfew_receipt SET planned = ?, outcomes = ?, cascaded = ?, detail = ?, evidence = ?, evidence_root = ?, deferred = ?, completed_at = UTC_TIMESTAMP(6) WHERE batch_key = ?;
-- 1: int64 1
-- 2: string {"blocked":1}
-- 3: int64 0
-- 4: string {"rows":[{"row":"d0c0458231a6325b2b05c68ff3b6f681","outcome":"blocked","reason":"a trigger of the database kept the row"}]}
-- 5: 21 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # a key of 2: NULL triggers: first page

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE 1 = 1 ORDER BY `tenant`, `no` LIMIT 1 OFFSET 19999;

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE `at` IS NULL AND ((`tenant` < ?) OR (`tenant` = ? AND `no` <= ?)) AND (
kind <> 'keep'
) ORDER BY `tenant`, `no` LIMIT 100;
-- 1: string acme
-- 2: string acme
-- 3: int64 7

-- # a key of 2: NULL triggers: next page

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE 1 = 1 AND ((`tenant` > ?) OR (`tenant` = ? AND `no` > ?)) ORDER BY `tenant`, `no` LIMIT 1 OFFSET 19999;
-- 1: string acme
-- 2: string acme
-- 3: int64 7

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE `at` IS NULL AND ((`tenant` > ?) OR (`tenant` = ? AND `no` > ?)) AND ((`tenant` < ?) OR (`tenant` = ? AND `no` <= ?)) AND (
kind <> 'keep'
) ORDER BY `tenant`, `no` LIMIT 100;
-- 1: string acme
-- 2: string acme
-- 3: int64 7
-- 4: string acme
-- 5: string acme
-- 6: int64 7

-- # a key of 2: NULL triggers: a batch whose row is not found

SET SESSION innodb_lock_wait_timeout = 90;

SELECT epoch FROM curfew_hold_epoch WHERE one = 1 LOCK IN SHARE MODE;

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6));
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` FORCE INDEX (`PRIMARY`) WHERE (`tenant`, `no`) IN ((?, ?)) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (`owner` = ?) IS NOT TRUE ORDER BY `tenant`, `no` FOR UPDATE SKIP LOCKED;
-- 1: string acme
-- 2: int64 7
-- 3: string 2026-03-29 01:00:00.000000
-- 4: int64 7

SET SESSION innodb_lock_wait_timeout = 1;

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?)) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string acme
-- 2: int64 7

SAVEPOINT curfew_1;

DELETE `event` FROM `event` FORCE INDEX (`PRIMARY`) WHERE (`tenant`, `no`) IN ((?, ?)) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND (`owner` = ?) IS NOT TRUE;
-- 1: string acme
-- 2: int64 7
-- 3: string 2026-03-29 01:00:00.000000
-- 4: int64 7

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?));
-- 1: string acme
-- 2: int64 7

RELEASE SAVEPOINT curfew_1;

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?));
-- 1: string acme
-- 2: int64 7

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?)) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
);
-- 1: string acme
-- 2: int64 7
-- 3: string 2026-03-29 01:00:00.000000

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?)) AND (`owner` = ?) IS NOT TRUE;
-- 1: string acme
-- 2: int64 7
-- 3: int64 7

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?)) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string acme
-- 2: int64 7

UPDATE curfew_receipt SET planned = ?, outcomes = ?, cascaded = ?, detail = ?, evidence = ?, evidence_root = ?, deferred = ?, completed_at = UTC_TIMESTAMP(6) WHERE batch_key = ?;
-- 1: int64 1
-- 2: string {"blocked":1}
-- 3: int64 0
-- 4: string {"rows":[{"row":"d0c0458231a6325b2b05c68ff3b6f681","outcome":"blocked","reason":"a trigger of the database kept the row"}]}
-- 5: 21 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # a key of 2: a batch done carefully

SET SESSION innodb_lock_wait_timeout = 90;

SELECT epoch FROM curfew_hold_epoch WHERE one = 1 LOCK IN SHARE MODE;

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6));
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` FORCE INDEX (`PRIMARY`) WHERE (`tenant`, `no`) IN ((?, ?)) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (`owner` = ?) IS NOT TRUE ORDER BY `tenant`, `no` FOR UPDATE SKIP LOCKED;
-- 1: string acme
-- 2: int64 7
-- 3: string 2026-03-29 01:00:00.000000
-- 4: int64 7

SET SESSION innodb_lock_wait_timeout = 1;

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?)) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string acme
-- 2: int64 7

SAVEPOINT curfew_1;

DELETE `event` FROM `event` FORCE INDEX (`PRIMARY`) WHERE (`tenant`, `no`) IN ((?, ?)) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND (`owner` = ?) IS NOT TRUE;
-- 1: string acme
-- 2: int64 7
-- 3: string 2026-03-29 01:00:00.000000
-- 4: int64 7

RELEASE SAVEPOINT curfew_1;

UPDATE curfew_receipt SET planned = ?, outcomes = ?, cascaded = ?, detail = ?, evidence = ?, evidence_root = ?, deferred = ?, completed_at = UTC_TIMESTAMP(6) WHERE batch_key = ?;
-- 1: int64 1
-- 2: string {"deleted":1}
-- 3: int64 0
-- 4: string {}
-- 5: 21 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # a key of 2: a batch of rows found locked

SET SESSION innodb_lock_wait_timeout = 90;

SELECT epoch FROM curfew_hold_epoch WHERE one = 1 LOCK IN SHARE MODE;

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6));
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SET SESSION innodb_lock_wait_timeout = 10;

SAVEPOINT curfew_1;

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` FORCE INDEX (`PRIMARY`) WHERE (`tenant`, `no`) IN ((?, ?)) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (`owner` = ?) IS NOT TRUE ORDER BY `tenant`, `no` FOR UPDATE;
-- 1: string acme
-- 2: int64 7
-- 3: string 2026-03-29 01:00:00.000000
-- 4: int64 7

RELEASE SAVEPOINT curfew_1;

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?)) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string acme
-- 2: int64 7

SAVEPOINT curfew_2;

DELETE `event` FROM `event` FORCE INDEX (`PRIMARY`) WHERE (`tenant`, `no`) IN ((?, ?)) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND (`owner` = ?) IS NOT TRUE;
-- 1: string acme
-- 2: int64 7
-- 3: string 2026-03-29 01:00:00.000000
-- 4: int64 7

RELEASE SAVEPOINT curfew_2;

UPDATE curfew_receipt SET planned = ?, outcomes = ?, cascaded = ?, detail = ?, evidence = ?, evidence_root = ?, deferred = ?, completed_at = UTC_TIMESTAMP(6) WHERE batch_key = ?;
-- 1: int64 1
-- 2: string {"deleted":1}
-- 3: int64 0
-- 4: string {}
-- 5: 21 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # a key of 2: a batch of a shadow run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?));
-- 1: string acme
-- 2: int64 7

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?)) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
);
-- 1: string acme
-- 2: int64 7
-- 3: string 2026-03-29 01:00:00.000000

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?)) AND (`owner` = ?) IS NOT TRUE;
-- 1: string acme
-- 2: int64 7
-- 3: int64 7

SELECT `tenant` AS curfew_0, `no` AS curfew_1 FROM `event` WHERE (`tenant`, `no`) IN ((?, ?)) AND (
pinned = 1
) IS NOT TRUE;
-- 1: string acme
-- 2: int64 7

-- # rows that go along

SELECT count(*) FROM `note` WHERE (`event_id` IN (?, ?));
-- 1: int64 42
-- 2: int64 43

SELECT count(*) FROM `word` WHERE ((`note_a`, `note_b`) IN (SELECT `a`, `b` FROM `note` WHERE (`event_id` IN (?, ?))));
-- 1: int64 42
-- 2: int64 43

SELECT count(*) FROM `event` WHERE (`up` IN (SELECT `id` FROM `event` WHERE (`id` IN (?, ?) OR `up` IN (SELECT `id` FROM `event` WHERE (`id` IN (?, ?) OR `up` IN (SELECT `id` FROM `event` WHERE (`id` IN (?, ?) OR `up` IN (SELECT `id` FROM `event` WHERE (`id` IN (?, ?) OR `up` IN (SELECT `id` FROM `event` WHERE (`id` IN (?, ?) OR `up` IN (SELECT `id` FROM `event` WHERE (`id` IN (?, ?) OR `up` IN (SELECT `id` FROM `event` WHERE (`id` IN (?, ?) OR `up` IN (SELECT `id` FROM `event` WHERE (`id` IN (?, ?)))))))))))))))))) AND NOT (`id` IN (?, ?));
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

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?, ?) AND EXISTS (SELECT 1 FROM `claim` curfew_child WHERE curfew_child.`event_id` = `event`.`id`);
-- 1: int64 42
-- 2: int64 43

-- # set: first page

SELECT CAST(`at` AS CHAR) AS curfew_0, `id` AS curfew_1 FROM `event` WHERE (`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)) AND NOT (CAST(CONVERT(`kind` USING utf8mb4) AS BINARY) <=> CAST(CONVERT(? USING utf8mb4) AS BINARY)) AND (
kind <> 'keep'
) ORDER BY `at`, `id` LIMIT 100;
-- 1: string 2026-03-29 01:00:00.000000
-- 2: string paused

-- # set: a batch

SET SESSION innodb_lock_wait_timeout = 90;

SELECT epoch FROM curfew_hold_epoch WHERE one = 1 LOCK IN SHARE MODE;

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6));
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT `id` AS curfew_0 FROM `event` FORCE INDEX (`PRIMARY`) WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND NOT (CAST(CONVERT(`kind` USING utf8mb4) AS BINARY) <=> CAST(CONVERT(? USING utf8mb4) AS BINARY)) AND (
kind <> 'keep'
) AND (`owner` = ?) IS NOT TRUE ORDER BY `id` FOR UPDATE SKIP LOCKED;
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000
-- 3: string paused
-- 4: int64 7

SET SESSION innodb_lock_wait_timeout = 1;

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (
pinned = 1
) IS NOT TRUE;
-- 1: int64 42

SAVEPOINT curfew_1;

SAVEPOINT curfew_2;

UPDATE `event` FORCE INDEX (`PRIMARY`) SET `kind` = ?, `seen` = CAST(? AS DATETIME(6)) WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND NOT (CAST(CONVERT(`kind` USING utf8mb4) AS BINARY) <=> CAST(CONVERT(? USING utf8mb4) AS BINARY)) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND (`owner` = ?) IS NOT TRUE;
-- 1: string paused
-- 2: string 2026-03-30 01:00:00.000000
-- 3: int64 42
-- 4: string 2026-03-29 01:00:00.000000
-- 5: string paused
-- 6: int64 7

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND CAST(CONVERT(`kind` USING utf8mb4) AS BINARY) <=> CAST(CONVERT(? USING utf8mb4) AS BINARY) AND `seen` <=> CAST(? AS DATETIME(6));
-- 1: int64 42
-- 2: string paused
-- 3: string 2026-03-30 01:00:00.000000

RELEASE SAVEPOINT curfew_2;

RELEASE SAVEPOINT curfew_1;

UPDATE curfew_receipt SET planned = ?, outcomes = ?, cascaded = ?, detail = ?, evidence = ?, evidence_root = ?, deferred = ?, completed_at = UTC_TIMESTAMP(6) WHERE batch_key = ?;
-- 1: int64 1
-- 2: string {"set":1}
-- 3: int64 0
-- 4: string {}
-- 5: 21 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # anonymise: first page

SELECT CAST(`at` AS CHAR) AS curfew_0, `id` AS curfew_1 FROM `event` WHERE (`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)) AND NOT (COALESCE((CONVERT(`kind` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^anon:[0-9a-f]{32}$' AND LOCATE(CHAR(10), CONVERT(`kind` USING utf8mb4)) = 0), TRUE) AND `pinned` <=> (`pinned` - MOD(MOD(`pinned`, 10) + 10, 10)) AND `owner` <=> ?) AND (
kind <> 'keep'
) ORDER BY `at`, `id` LIMIT 100;
-- 1: string 2026-03-29 01:00:00.000000
-- 2: int64 1

-- # anonymise: a batch

SET SESSION innodb_lock_wait_timeout = 90;

SELECT epoch FROM curfew_hold_epoch WHERE one = 1 LOCK IN SHARE MODE;

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6));
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT `id` AS curfew_0 FROM `event` FORCE INDEX (`PRIMARY`) WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND NOT (COALESCE((CONVERT(`kind` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^anon:[0-9a-f]{32}$' AND LOCATE(CHAR(10), CONVERT(`kind` USING utf8mb4)) = 0), TRUE) AND `pinned` <=> (`pinned` - MOD(MOD(`pinned`, 10) + 10, 10)) AND `owner` <=> ?) AND (
kind <> 'keep'
) AND (`owner` = ?) IS NOT TRUE ORDER BY `id` FOR UPDATE SKIP LOCKED;
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000
-- 3: int64 1
-- 4: int64 7

SET SESSION innodb_lock_wait_timeout = 1;

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (
pinned = 1
) IS NOT TRUE;
-- 1: int64 42

SAVEPOINT curfew_1;

SAVEPOINT curfew_2;

SELECT `id` AS curfew_0, `kind` AS curfew_1 FROM `event` WHERE `id` IN (?) AND NOT COALESCE((CONVERT(`kind` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^anon:[0-9a-f]{32}$' AND LOCATE(CHAR(10), CONVERT(`kind` USING utf8mb4)) = 0), TRUE);
-- 1: int64 42

UPDATE `event` FORCE INDEX (`PRIMARY`) SET `kind` = CASE WHEN `id` IN (?) THEN ? ELSE `kind` END, `pinned` = (`pinned` - MOD(MOD(`pinned`, 10) + 10, 10)), `owner` = ? WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND NOT (COALESCE((CONVERT(`kind` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^anon:[0-9a-f]{32}$' AND LOCATE(CHAR(10), CONVERT(`kind` USING utf8mb4)) = 0), TRUE) AND `pinned` <=> (`pinned` - MOD(MOD(`pinned`, 10) + 10, 10)) AND `owner` <=> ?) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND (`owner` = ?) IS NOT TRUE;
-- 1: int64 42
-- 2: string anon:3236bb7be21c1623f4784bad51f4b013
-- 3: int64 1
-- 4: int64 42
-- 5: string 2026-03-29 01:00:00.000000
-- 6: int64 1
-- 7: int64 7

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND COALESCE((CONVERT(`kind` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^anon:[0-9a-f]{32}$' AND LOCATE(CHAR(10), CONVERT(`kind` USING utf8mb4)) = 0), TRUE) AND `pinned` <=> (`pinned` - MOD(MOD(`pinned`, 10) + 10, 10)) AND `owner` <=> ?;
-- 1: int64 42
-- 2: int64 1

RELEASE SAVEPOINT curfew_2;

RELEASE SAVEPOINT curfew_1;

UPDATE curfew_receipt SET planned = ?, outcomes = ?, cascaded = ?, detail = ?, evidence = ?, evidence_root = ?, deferred = ?, completed_at = UTC_TIMESTAMP(6) WHERE batch_key = ?;
-- 1: int64 1
-- 2: string {"anonymised":1}
-- 3: int64 0
-- 4: string {}
-- 5: 21 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # archive: first page

SELECT CAST(`at` AS CHAR) AS curfew_0, `id` AS curfew_1 FROM `event` WHERE (`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)) AND (
kind <> 'keep'
) ORDER BY `at`, `id` LIMIT 100;
-- 1: string 2026-03-29 01:00:00.000000

-- # archive: a batch

SET SESSION innodb_lock_wait_timeout = 90;

SELECT epoch FROM curfew_hold_epoch WHERE one = 1 LOCK IN SHARE MODE;

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6));
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string 
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT `id` AS curfew_0 FROM `event` FORCE INDEX (`PRIMARY`) WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (`owner` = ?) IS NOT TRUE ORDER BY `id` FOR UPDATE SKIP LOCKED;
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000
-- 3: int64 7

SET SESSION innodb_lock_wait_timeout = 1;

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (
pinned = 1
) IS NOT TRUE;
-- 1: int64 42

SAVEPOINT curfew_1;

SAVEPOINT curfew_2;

SET @curfew_mode = @@sql_mode, SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO');

INSERT INTO `old_event` (`id`, `at`, `owner`, `kind`, `pinned`, `seen`) SELECT `id`, `at`, `owner`, `kind`, `pinned`, `seen` FROM `event` WHERE `id` IN (?);
-- 1: int64 42

SET SESSION sql_mode = @curfew_mode;

DELETE `event` FROM `event` FORCE INDEX (`PRIMARY`) WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (
pinned = 1
) IS NOT TRUE AND (`owner` = ?) IS NOT TRUE;
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000
-- 3: int64 7

SELECT count(*) FROM `old_event` WHERE `id` IN (?);
-- 1: int64 42

RELEASE SAVEPOINT curfew_2;

RELEASE SAVEPOINT curfew_1;

UPDATE curfew_receipt SET planned = ?, outcomes = ?, cascaded = ?, detail = ?, evidence = ?, evidence_root = ?, deferred = ?, completed_at = UTC_TIMESTAMP(6) WHERE batch_key = ?;
-- 1: int64 1
-- 2: string {"archived":1}
-- 3: int64 0
-- 4: string {}
-- 5: 21 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # count

SELECT count(*) FROM `event` WHERE COALESCE((MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0), FALSE) AND `at` < ? AND (
kind <> 'keep'
);
-- 1: string 2026-03-29 01:00:00.000000

SELECT count(*), CAST(MIN(`at`) AS CHAR) FROM `event` WHERE (`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)) AND (
kind <> 'keep'
);
-- 1: string 2026-03-29 01:00:00.000000

SELECT count(*) FROM `event` WHERE `at` IS NULL AND (
kind <> 'keep'
);

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT count(*) FROM `event` WHERE (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (`owner` = ?) IS NOT TRUE;
-- 1: string 2026-03-29 01:00:00.000000
-- 2: int64 7

SELECT count(*) FROM `event` WHERE (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
kind <> 'keep'
) AND (`owner` = ?) IS NOT TRUE AND (
pinned = 1
) IS NOT TRUE;
-- 1: string 2026-03-29 01:00:00.000000
-- 2: int64 7

-- # implausible_before

SELECT CAST(`at` AS CHAR) AS curfew_0, `id` AS curfew_1 FROM `event` WHERE (`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)) AND NOT (`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)) AND (
kind <> 'keep'
) ORDER BY `at`, `id` LIMIT 100;
-- 1: string 2026-03-29 01:00:00.000000
-- 2: string -0001-11-30 00:00:00.000000

-- # a batch of a stage

SET SESSION innodb_lock_wait_timeout = 90;

SELECT epoch FROM curfew_hold_epoch WHERE one = 1 LOCK IN SHARE MODE;

INSERT INTO curfew_receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6));
-- 1: 33 bytes
-- 2: string run
-- 3: int64 9
-- 4: string events
-- 5: string end
-- 6: string event
-- 7: string 2026-03-29 01:00:00.000000
-- 8: string 2026-03-29 01:00:00.000000
-- 9: string 15874bff

SELECT count(*) FROM curfew_tombstone WHERE run = ?;
-- 1: string run

SELECT id, name, relation, conditions FROM curfew_hold ORDER BY name, id;

SELECT `id` AS curfew_0 FROM `event` FORCE INDEX (`PRIMARY`) WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
(
kind <> 'keep'
) AND (
owner > 0
)
) AND (`owner` = ?) IS NOT TRUE ORDER BY `id` FOR UPDATE SKIP LOCKED;
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000
-- 3: int64 7

SET SESSION innodb_lock_wait_timeout = 1;

SELECT `id` AS curfew_0 FROM `event` WHERE `id` IN (?) AND (
pinned = 1
) IS NOT TRUE;
-- 1: int64 42

SELECT `id` AS curfew_0, CAST(`at` AS CHAR) AS curfew_trigger FROM `event` WHERE `id` IN (?);
-- 1: int64 42

SELECT stage, row_hash, due_us, state, as_of_us, run, batch_key, attempt, detail FROM curfew_passage WHERE policy = ? AND row_hash IN (?) ORDER BY row_hash, stage, due_us;
-- 1: string events
-- 2: 16 bytes

SAVEPOINT curfew_1;

DELETE `event` FROM `event` FORCE INDEX (`PRIMARY`) WHERE `id` IN (?) AND (`at` IS NULL OR ((`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0)))) AND (
(
kind <> 'keep'
) AND (
owner > 0
)
) AND (
pinned = 1
) IS NOT TRUE AND (`owner` = ?) IS NOT TRUE;
-- 1: int64 42
-- 2: string 2026-03-29 01:00:00.000000
-- 3: int64 7

RELEASE SAVEPOINT curfew_1;

DELETE FROM curfew_passage WHERE policy = ? AND row_hash IN (?);
-- 1: string events
-- 2: 16 bytes

UPDATE curfew_receipt SET planned = ?, outcomes = ?, cascaded = ?, detail = ?, evidence = ?, evidence_root = ?, deferred = ?, completed_at = UTC_TIMESTAMP(6) WHERE batch_key = ?;
-- 1: int64 1
-- 2: string {"deleted":1}
-- 3: int64 0
-- 4: string {}
-- 5: 21 bytes
-- 6: 32 bytes
-- 7: 0 bytes
-- 8: 33 bytes

-- # what a row passed, recorded, changed and swept

INSERT INTO curfew_passage (policy, stage, row_hash, due_us, state, as_of_us, run, batch_key, attempt, detail, changed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6)), (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, UTC_TIMESTAMP(6));
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

SELECT stage, row_hash, due_us, state, as_of_us, run, batch_key, attempt, detail FROM curfew_passage WHERE policy = ? AND row_hash IN (?, ?) ORDER BY row_hash, stage, due_us;
-- 1: string events
-- 2: 16 bytes
-- 3: 16 bytes

UPDATE curfew_passage SET state = ?, as_of_us = ?, run = ?, batch_key = ?, attempt = ?, detail = ?, changed_at = UTC_TIMESTAMP(6) WHERE policy = ? AND row_hash = ? AND stage = ? AND due_us = ? AND state = ? AND attempt = ?;
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

SELECT row_hash FROM curfew_passage WHERE policy = ? GROUP BY row_hash HAVING COUNT(CASE WHEN changed_at < ? THEN 1 END) = COUNT(*) ORDER BY row_hash LIMIT 20000;
-- 1: string events
-- 2: string 2026-03-29 01:00:00.000000

SELECT `id` AS curfew_0 FROM `event` WHERE 1 = 1 ORDER BY `id` LIMIT 20000;

DELETE FROM curfew_passage WHERE policy = ? AND row_hash IN (?) AND changed_at < ?;
-- 1: string events
-- 2: 16 bytes
-- 3: string 2026-03-29 01:00:00.000000

-- # the answer of an earlier execution

SELECT batch_key, planned, outcomes, cascaded, detail, evidence_root, deferred FROM curfew_receipt WHERE run = ? AND seq = ?;
-- 1: string run
-- 2: int64 9


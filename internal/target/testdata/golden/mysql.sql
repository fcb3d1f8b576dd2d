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

-- # the answer of an earlier execution

SELECT batch_key, planned, outcomes, cascaded, detail, evidence_root, deferred FROM curfew_receipt WHERE run = ? AND seq = ?;
-- 1: string run
-- 2: int64 9


-- # timestamp: due
(`at` < ? AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0));
-- 1: string 2025-10-26 00:40:00.000000

-- # timestamp: unreadable
COALESCE((MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0), FALSE);

-- # wall: due
((`at` < CAST(? AS DATETIME(6))) AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0));
-- 1: string 2025-10-26 02:00:00

-- # wall: unreadable
COALESCE((MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0), FALSE);

-- # date: due
(`at` < CAST(? AS DATE) AND NOT (MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0));
-- 1: string 2025-10-26

-- # date: unreadable
COALESCE((MONTH(`at`) = 0 OR DAYOFMONTH(`at`) = 0), FALSE);

-- # seconds: due
`at` < 1761439200;

-- # seconds: unreadable
FALSE;

-- # milliseconds: due
`at` < 1761439200000;

-- # milliseconds: unreadable
FALSE;

-- # microseconds: due
`at` < 1761439200000000;

-- # microseconds: unreadable
FALSE;

-- # nanoseconds: due
`at` < 1761439200000000000;

-- # nanoseconds: unreadable
FALSE;

-- # unsigned seconds: due
`at` < 1761439200;

-- # unsigned seconds: unreadable
FALSE;

-- # decimal seconds: due
`at` < CAST(? AS DECIMAL(65,12));
-- 1: string 1761439200.000000000000

-- # decimal seconds: unreadable
FALSE;

-- # iso8601 with offsets: due
(CASE WHEN `at` IS NULL OR NOT (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^(([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?(Z|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?)?)?$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0) THEN FALSE WHEN CHAR_LENGTH(`at`) = 10 THEN FALSE WHEN (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0) THEN CAST(REPLACE(LEFT(`at`, CHAR_LENGTH(`at`) - CHAR_LENGTH(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'))), 'T', ' ') AS DATETIME(6)) < TIMESTAMPADD(MINUTE, (CASE WHEN REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$') = 'Z' THEN 0 ELSE (CASE WHEN LEFT(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'), 1) = '-' THEN -1 ELSE 1 END) * (CAST(SUBSTR(REPLACE(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'), ':', ''), 2, 2) AS SIGNED) * 60 + CAST(CONCAT('0', SUBSTR(REPLACE(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'), ':', ''), 4, 2)) AS SIGNED)) END), CAST(? AS DATETIME(6))) ELSE FALSE END);
-- 1: string 2025-10-26 00:40:00.000000

-- # iso8601 with offsets: unreadable
(`at` IS NOT NULL AND (NOT (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^(([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?(Z|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?)?)?$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0) OR CHAR_LENGTH(`at`) = 10 OR NOT (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0)));

-- # iso8601 compact offsets: due
(CASE WHEN `at` IS NULL OR NOT (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^(([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?(Z|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?)?)?$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0) THEN FALSE WHEN CHAR_LENGTH(`at`) = 10 THEN FALSE WHEN (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0) THEN CAST(REPLACE(LEFT(`at`, CHAR_LENGTH(`at`) - CHAR_LENGTH(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'))), 'T', ' ') AS DATETIME(6)) < TIMESTAMPADD(MINUTE, (CASE WHEN REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$') = 'Z' THEN 0 ELSE (CASE WHEN LEFT(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'), 1) = '-' THEN -1 ELSE 1 END) * (CAST(SUBSTR(REPLACE(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'), ':', ''), 2, 2) AS SIGNED) * 60 + CAST(CONCAT('0', SUBSTR(REPLACE(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'), ':', ''), 4, 2)) AS SIGNED)) END), CAST(? AS DATETIME(6))) ELSE FALSE END);
-- 1: string 2025-10-26 00:40:00.000000

-- # iso8601 compact offsets: unreadable
(`at` IS NOT NULL AND (NOT (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^(([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?(Z|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?)?)?$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0) OR CHAR_LENGTH(`at`) = 10 OR NOT (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0)));

-- # iso8601 without offsets: due
(CASE WHEN `at` IS NULL OR NOT (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^(([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?(Z|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?)?)?$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0) THEN FALSE WHEN CHAR_LENGTH(`at`) = 10 THEN CAST(`at` AS DATE) < CAST(? AS DATE) WHEN (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0) THEN CAST(REPLACE(LEFT(`at`, CHAR_LENGTH(`at`) - CHAR_LENGTH(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'))), 'T', ' ') AS DATETIME(6)) < TIMESTAMPADD(MINUTE, (CASE WHEN REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$') = 'Z' THEN 0 ELSE (CASE WHEN LEFT(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'), 1) = '-' THEN -1 ELSE 1 END) * (CAST(SUBSTR(REPLACE(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'), ':', ''), 2, 2) AS SIGNED) * 60 + CAST(CONCAT('0', SUBSTR(REPLACE(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'), ':', ''), 4, 2)) AS SIGNED)) END), CAST(? AS DATETIME(6))) ELSE (CAST(REPLACE(`at`, 'T', ' ') AS DATETIME(6)) < CAST(? AS DATETIME(6))) END);
-- 1: string 2025-10-26
-- 2: string 2025-10-26 00:40:00.000000
-- 3: string 2025-10-26 02:00:00

-- # iso8601 without offsets: unreadable
(`at` IS NOT NULL AND (NOT (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^(([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?(Z|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?)?)?$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0)));

-- # iso8601 of minutes: due
(CASE WHEN `at` IS NULL OR NOT (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^(([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?(Z|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?)?)?$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0) THEN FALSE WHEN CHAR_LENGTH(`at`) = 10 THEN CAST(`at` AS DATE) < CAST(? AS DATE) WHEN (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0) THEN CAST(REPLACE(LEFT(`at`, CHAR_LENGTH(`at`) - CHAR_LENGTH(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'))), 'T', ' ') AS DATETIME(6)) < TIMESTAMPADD(MINUTE, (CASE WHEN REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$') = 'Z' THEN 0 ELSE (CASE WHEN LEFT(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'), 1) = '-' THEN -1 ELSE 1 END) * (CAST(SUBSTR(REPLACE(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'), ':', ''), 2, 2) AS SIGNED) * 60 + CAST(CONCAT('0', SUBSTR(REPLACE(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'), ':', ''), 4, 2)) AS SIGNED)) END), CAST(? AS DATETIME(6))) ELSE (CAST(REPLACE(`at`, 'T', ' ') AS DATETIME(6)) < CAST(? AS DATETIME(6))) END);
-- 1: string 2025-10-26
-- 2: string 2025-10-26 00:40:00.000000
-- 3: string 2025-10-26 02:00:00

-- # iso8601 of minutes: unreadable
(`at` IS NOT NULL AND (NOT (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^(([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?(Z|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?)?)?$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0)));

-- # iso8601 of days: due
(CASE WHEN `at` IS NULL OR NOT (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^(([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?(Z|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?)?)?$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0) THEN FALSE WHEN CHAR_LENGTH(`at`) = 10 THEN CAST(`at` AS DATE) < CAST(? AS DATE) WHEN (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0) THEN CAST(REPLACE(LEFT(`at`, CHAR_LENGTH(`at`) - CHAR_LENGTH(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'))), 'T', ' ') AS DATETIME(6)) < TIMESTAMPADD(MINUTE, (CASE WHEN REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$') = 'Z' THEN 0 ELSE (CASE WHEN LEFT(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'), 1) = '-' THEN -1 ELSE 1 END) * (CAST(SUBSTR(REPLACE(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'), ':', ''), 2, 2) AS SIGNED) * 60 + CAST(CONCAT('0', SUBSTR(REPLACE(REGEXP_SUBSTR(`at`, '([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$'), ':', ''), 4, 2)) AS SIGNED)) END), CAST(? AS DATETIME(6))) ELSE (CAST(REPLACE(`at`, 'T', ' ') AS DATETIME(6)) < CAST(? AS DATETIME(6))) END);
-- 1: string 2025-10-26
-- 2: string 2025-10-26 00:40:00.000000
-- 3: string 2025-10-26 02:00:00

-- # iso8601 of days: unreadable
(`at` IS NOT NULL AND (NOT (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^(([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)-02-29)([T ]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9](\.[0-9]{1,9})?)?(Z|[+-](0[0-9]|1[0-5])(:?[0-5][0-9])?)?)?$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0)));

-- # fourteen digits: due
((CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^(([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)((0[13578]|1[02])(0[1-9]|[12][0-9]|3[01])|(0[469]|11)(0[1-9]|[12][0-9]|30)|02(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)0229)([01][0-9]|2[0-3])[0-5][0-9][0-5][0-9]$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0) AND CAST(`at` AS BINARY) < ?);
-- 1: string 20251026020000

-- # fourteen digits: unreadable
(`at` IS NOT NULL AND NOT (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^(([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)((0[13578]|1[02])(0[1-9]|[12][0-9]|3[01])|(0[469]|11)(0[1-9]|[12][0-9]|30)|02(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)0229)([01][0-9]|2[0-3])[0-5][0-9][0-5][0-9]$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0));

-- # fourteen bytes: due
((CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^(([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)((0[13578]|1[02])(0[1-9]|[12][0-9]|3[01])|(0[469]|11)(0[1-9]|[12][0-9]|30)|02(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)0229)([01][0-9]|2[0-3])[0-5][0-9][0-5][0-9]$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0) AND `at` < ?);
-- 1: string 20251026004000

-- # fourteen bytes: unreadable
(`at` IS NOT NULL AND NOT (CONVERT(`at` USING utf8mb4) COLLATE utf8mb4_bin REGEXP '^(([0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)((0[13578]|1[02])(0[1-9]|[12][0-9]|3[01])|(0[469]|11)(0[1-9]|[12][0-9]|30)|02(0[1-9]|1[0-9]|2[0-8]))|([0-9]{2}(0[48]|[2468][048]|[13579][26])|(0[48]|[2468][048]|[13579][26])00)0229)([01][0-9]|2[0-3])[0-5][0-9][0-5][0-9]$' AND LOCATE(CHAR(10), CONVERT(`at` USING utf8mb4)) = 0));


-- # seconds: due
(typeof("at") IN ('integer', 'real') AND "at" < 1761439200);

-- # seconds: unreadable
("at" IS NOT NULL AND typeof("at") NOT IN ('integer', 'real'));

-- # milliseconds: due
(typeof("at") IN ('integer', 'real') AND "at" < 1761439200000);

-- # milliseconds: unreadable
("at" IS NOT NULL AND typeof("at") NOT IN ('integer', 'real'));

-- # microseconds: due
(typeof("at") IN ('integer', 'real') AND "at" < 1761439200000000);

-- # microseconds: unreadable
("at" IS NOT NULL AND typeof("at") NOT IN ('integer', 'real'));

-- # nanoseconds: due
(typeof("at") IN ('integer', 'real') AND "at" < 1761439200000000000);

-- # nanoseconds: unreadable
("at" IS NOT NULL AND typeof("at") NOT IN ('integer', 'real'));

-- # decimal seconds: due
(typeof("at") IN ('integer', 'real') AND "at" < 1761439200);

-- # decimal seconds: unreadable
("at" IS NOT NULL AND typeof("at") NOT IN ('integer', 'real'));

-- # julian days: due
(typeof("at") IN ('integer', 'real') AND "at" < ?1);
-- 1: float64 2.460974527777778e+06

-- # julian days: unreadable
("at" IS NOT NULL AND typeof("at") NOT IN ('integer', 'real'));

-- # iso8601 with offsets: due
(curfew_instant("at", 'iso8601', '') < 1761439200000000);

-- # iso8601 with offsets: unreadable
("at" IS NOT NULL AND curfew_instant("at", 'iso8601', '') IS NULL);

-- # iso8601 compact offsets: due
(curfew_instant("at", 'iso8601', '') < 1761439200000000);

-- # iso8601 compact offsets: unreadable
("at" IS NOT NULL AND curfew_instant("at", 'iso8601', '') IS NULL);

-- # iso8601 without offsets: due
(curfew_instant("at", 'iso8601', 'Europe/Zurich') < 1761439200000000);

-- # iso8601 without offsets: unreadable
("at" IS NOT NULL AND curfew_instant("at", 'iso8601', 'Europe/Zurich') IS NULL);

-- # iso8601 of minutes: due
(curfew_instant("at", 'iso8601', 'Europe/Zurich') < 1761439200000000);

-- # iso8601 of minutes: unreadable
("at" IS NOT NULL AND curfew_instant("at", 'iso8601', 'Europe/Zurich') IS NULL);

-- # iso8601 of days: due
(curfew_instant("at", 'iso8601', 'Europe/Zurich') < 1761439200000000);

-- # iso8601 of days: unreadable
("at" IS NOT NULL AND curfew_instant("at", 'iso8601', 'Europe/Zurich') IS NULL);

-- # fourteen digits: due
(curfew_instant("at", 'yyyymmddhhmmss', 'Europe/Zurich') < 1761439200000000);

-- # fourteen digits: unreadable
("at" IS NOT NULL AND curfew_instant("at", 'yyyymmddhhmmss', 'Europe/Zurich') IS NULL);


package policy_test

import (
	"strings"
	"testing"

	"curfew.dev/curfew/policy"
	"pgregory.net/rapid"
)

// TestCheckSQLAccepts is what operators write. A check that refuses these would
// be switched off.
func TestCheckSQLAccepts(t *testing.T) {
	for _, text := range []string{
		"revoked",
		"branch <> 'archive'",
		`"emailVerified" = 0`,
		"`group` = 'staff' AND t.`order key` IS NULL",
		"EXISTS (SELECT 1 FROM fine f WHERE f.circulation_id = circulation_event.id AND NOT f.paid)",
		"module NOT IN ('AUTH', 'SYSTEMPREFERENCE') OR module IS NULL",
		"a = 1\n  AND b = 2\n\tOR c IS NOT NULL\r\n",
		"name = 'it''s; -- fine /* here */ # and ? $1 :x @y (['",
		`note = "say ""hi"" -- (;"`,
		"COALESCE(last_seen, created_at)",
		"created_at::date < closed_at::timestamptz AT TIME ZONE 'UTC'",
		"CAST(x AS timestamp(6)) = y",
		"data->>'state' = 'done' AND data->'a' @> '{}'",
		"tags @> ARRAY['x'::text] IS NOT TRUE AND 1 = 1",
		"tags <@ other AND arr[1] = 5 AND arr[i + 1] > 2",
		"n BETWEEN 1 AND 1e6 OR x = .5 OR y = 0x1F OR z = -1 OR q = - -1",
		"blob = x'53514C' OR blob = X'00'",
		"substring(code FROM 1 FOR 2) = 'AB'",
		"TRUNCATE(price, 2) = 0 AND REPLACE(x, 'a', 'b') = ''",
		"t.delete = 1 AND \"update\" IS NULL AND public.t.lock",
		"date(created_at) = '2026-01-01' AND strftime('%Y', created_at) = '2026'",
		"unix_timestamp(created_at) > 5 AND age(closed, opened) > interval '1 day'",
		"timezone('utc', created_at) > '2026-01-01'",
		"größe > 5 AND имя = 'а'",
		"updated_by = 1 AND deleted_at IS NULL AND insertion > 2 AND nowhere = 3 AND current_state = 4",
		"status IN ('today only', 'buy now', 'known', 'tomorrowland') AND title <> 'Yesterday and today'",
		"a ~ '^x' AND b !~* 'y' AND c LIKE '%z_' AND d || e = 'f' AND (g & 4) = 4",
		"case when a then 1 else 0 end = 1",
		"now > 5", // a column; SQL has no now without parentheses
		strings.Repeat("(", 300) + "a" + strings.Repeat(")", 300),
	} {
		if err := policy.CheckSQL(text); err != nil {
			t.Errorf("%.80q: %v", text, err)
		}
	}
}

// TestCheckSQLRefuses has texts that some database would accept and that would
// mean something else inside our statement, with a word of the reason.
func TestCheckSQLRefuses(t *testing.T) {
	for text, reason := range map[string]string{
		"": "blank", " \n\t ": "blank", strings.Repeat("a ", 9000): "too long", "a = '\xff'": "UTF-8",
		"a = 1 --": "comment", "a = 1 -- x\n AND b": "comment", "a--1": "comment", "a = 1 /* x": "comment", "a = 1 */ b": "comment",
		"a = 1 /*! OR 1=1 */": "comment", "a = 1 # x": "comment", "a #>> '{b}' = 'c'": "comment",
		"a = 1;": "semicolon", "a; DROP TABLE t": "semicolon",
		"a)": "never opened", "x) OR (1=1": "never opened", "(a": "never closed", "((a)": "never closed", "f(a]": "closes", "a[1)": "closes", "a[1": "never closed", "]": "never opened",
		"a = 'x": "never closed", `a = "x`: "never closed", "a = `x": "never closed", "a = '''": "never closed", `"a'" = 'b`: "never closed",
		`a = 'x\' OR 1=1 --'`: "backslash", `a = "x\"`: "backslash", `a = \N`: "backslash",
		"a = $1": "$", "a = $$x$$": "$", "a = $q$x$q$": "$", "a$b = 1": "$",
		"a = E'x'": "right after", "a = e'x'": "right after", "a = N'x'": "right after", "a = _utf8'x'": "right after", "a = U&'x'": "U&", `u&"x" = 1`: "U&", "a = 1'x'": "touches", `a = 'x'"y"`: "touches", "a = `x`'y'": "touches",
		"a = ?": "bound", "a ? 'b'": "bound", "a = :x": "bound", "a[1:2] = b": "bound", "a := 1": "bound", "a = @x": "bound", "a = @@version": "bound", "a = @'x'": "bound", "a = @`x`": "bound", "a ::: b": "bound",
		"{fn now()}": "escape", "a = {d '2026-01-01'}": "escape",
		"a[['x']] = 1": "nested", "a['b]'] = 1": "contains a ]", "a[\"b] OR (1=1) OR [c\"]": "contains a ]", "[ '] OR (1=1) OR [ ']": "contains a ]", "[a'] OR (1=1) OR ['b]": "right after", "a[(b[1])]": "nested",
		"`a) OR (1=1` = 1": "backquotes", "`a--b` = 1": "backquotes", "`a;b` = 1": "backquotes",
		"a < now()": "time", "a < NOW ( )": "time", "a < pg_catalog.now()": "time", "a < CURRENT_TIMESTAMP": "time", "a < current_date": "time", "a < Current_Time": "time", "a < localtimestamp(3)": "time", "a < LOCALTIME": "time",
		"a < clock_timestamp()": "time", "a < statement_timestamp()": "time", "a < transaction_timestamp()": "time", "timeofday() > a": "time",
		"a < getdate()": "time", "a < SYSDATE": "time", "a < sysdate()": "time", "a < CURDATE()": "time", "a < curtime()": "time", "a < UNIX_TIMESTAMP()": "time", "a < unix_timestamp( )": "time",
		"a < UTC_TIMESTAMP": "time", "a < utc_date()": "time", "a < utc_time": "time", "a < date()": "time", "a < datetime()": "time", "a < julianday()": "time", "a < unixepoch()": "time", "a < strftime('%s')": "time", "a < strftime('%Y-' || '%m')": "time", "age(a) > interval '1 day'": "time",
		"a < 'now'": "time", "a < ' NOW '::timestamptz": "time", "a < 'today'": "time", "a < timestamp 'tomorrow'": "time", "a < 'yesterday 12:00'": "time", "a < 'now Europe/Berlin'": "time", "a < 'today UTC'": "time", "a < 'allballs today'": "time",
		"a < datetime('now', '-1 day')": "time", "a < datetime('subsec')": "time", "a < unixepoch('subsecond')": "time", "a < date(\"now\")": "time", "a < datetime(b, 'localtime')": "zone", "a < strftime('%s', b, 'utc')": "zone",
		`"f"() > a`: "quoted name", `"now"() > a`: "time", "`sleep`(5)": "quoted name", `"pg_catalog"."sleep"() > a`: "quoted name",
		"random() < 0.5": "not the same", "rand() < 0.5": "not the same", "RANDOMBLOB(4) = a": "not the same", "a = uuid()": "not the same", "a = gen_random_uuid()": "not the same", "uuid_generate_v4() = a": "not the same", "setseed(1) IS NULL": "not the same",
		"nextval('s') > 0": "not the same", "setval('s', 1) > 0": "not the same", "NEXT VALUE FOR s > 0": "sequence",
		"pg_sleep(5) IS NULL": "not the same", "sleep(5) = 0": "not the same", "benchmark(9, md5(1)) = 0": "not the same", "pg_advisory_lock(1) IS NULL": "not the same", "pg_notify('a','b') IS NULL": "not the same",
		"get_lock('a', 1) = 1": "not the same", "load_file('/etc/passwd') = a": "not the same", "load_extension('x') = 1": "not the same", "pg_read_file('x') = a": "not the same", "lo_import('x') > 0": "not the same", "dblink('x','y') IS NULL": "not the same", "dblink_exec('x','y') IS NULL": "not the same",
		"txid_current() > 0": "not the same", "changes() > 0": "not the same", "last_insert_rowid() = a": "not the same", "LAST_INSERT_ID() = a": "not the same", "version() = a": "not the same", "current_setting('x') = a": "not the same", "set_config('a','b',true) = c": "not the same", "user() = a": "not the same",
		"EXISTS (DELETE FROM a RETURNING 1)": "statement", "a IN (WITH x AS (UPDATE t SET a = 1) SELECT 1)": "statement", "a = (INSERT INTO b VALUES (1))": "statement", "drop": "statement", "a OR TRUNCATE t": "statement",
		"a = 1 INTO OUTFILE '/tmp/x'": "statement", "a IN (SELECT b INTO c FROM d)": "statement", "a IN (SELECT 1 FROM b FOR UPDATE)": "statement", "a IN (SELECT 1 FROM b FOR SHARE)": "locks", "a IN (SELECT 1 FROM b FOR NO KEY UPDATE)": "locks", "a IN (SELECT 1 FROM b FOR KEY SHARE)": "locks", "a IN (SELECT 1 FROM b LOCK IN SHARE MODE)": "statement",
		"a IN (SELECT 1 FROM b TABLESAMPLE system(1))": "TABLESAMPLE", "CALL x": "statement", "PRAGMA foreign_keys": "statement",
		"a = 1\x00": "control", "a = '\x1b'": "control", "a\x0b= 1": "control", "a = '\u202e'": "direction", "a\u00a0= 1": "looks like", "a\u200b= 1": "looks like", "a = ’x’": "looks like", "a\u2028OR b": "looks like",
	} {
		switch err := policy.CheckSQL(text); {
		case err == nil:
			t.Errorf("%.80q is accepted, want a refusal because of %q", text, reason)
		case !strings.Contains(err.Error(), reason):
			t.Errorf("%.80q is refused for another reason than %q: %v", text, reason, err)
		}
	}
}

// slowBalanced is the other way to see what CheckSQL promises: strip strings
// and quoted names, and what is left has no comment, semicolon or placeholder,
// and its parentheses balance without going negative.
func slowBalanced(text string) bool {
	var bare strings.Builder
	quote := rune(0)
	for _, r := range text {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0 // a doubled quote closes and opens again
			}
		case r == '\'' || r == '"' || r == '`':
			quote = r
			bare.WriteByte(' ')
		default:
			bare.WriteRune(r)
		}
	}
	if quote != 0 || strings.ContainsAny(text, "\\\x00") || strings.ContainsAny(bare.String(), ";?$#{}") {
		return false
	}
	if strings.Contains(bare.String(), "--") || strings.Contains(bare.String(), "/*") || strings.Contains(bare.String(), "*/") {
		return false
	}
	depth := 0
	for _, r := range bare.String() {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		if depth < 0 {
			return false
		}
	}
	return depth == 0
}

// TestCheckSQLKeepsItsPromise builds hostile texts from the pieces that
// matter.
func TestCheckSQLKeepsItsPromise(t *testing.T) {
	piece := rapid.SampledFrom([]string{
		"a", " ", "=", "1", "'", "''", `"`, "`", "(", ")", "[", "]", "--", "-", "/*", "*/", "/", "*", "#", ";", "?", "$", "$$", ":", "::", "@", "\\", "\n",
		"{", "}", " OR ", "x'", "'x'", `"y"`, "now", "now()", "f(", ",", ".", "é", "\x00", "E'",
	})
	accepted := 0
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(piece, 1, 12).Draw(t, "text"), "")
		if policy.CheckSQL(text) != nil {
			return
		}
		accepted++
		if !slowBalanced(text) {
			t.Fatalf("%q is accepted, and is not balanced or has a comment", text)
		}
		// What follows and precedes it in a statement stays what it was.
		if wrapped := "(a) AND (\n" + text + "\n) AND b < 1"; policy.CheckSQL(wrapped) != nil {
			t.Fatalf("%q is accepted alone and refused in its place", text)
		}
	})
	if accepted == 0 {
		t.Error("no text was accepted: the test shows nothing")
	}
}

func FuzzCheckSQL(f *testing.F) {
	for _, s := range []string{"a = 1", "x) OR (1=1", "a = 'it''s'", "`a` = \"b\"", "a[1]", "EXISTS (SELECT 1)", "a::b", "now()", "'now'", "e'x'"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if policy.CheckSQL(text) == nil && !slowBalanced(text) {
			t.Fatalf("%q is accepted, and is not balanced or has a comment", text)
		}
	})
}

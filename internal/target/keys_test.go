package target

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/policy"
)

// A keyCase is a kind of key: its columns as DDL, and rows of literals for them.
type keyCase struct {
	name    string
	engines []Engine
	columns []string // "name type …", in the order of the key
	rows    func(l *lab, rng *rand.Rand) [][]string
	before  string // statements that make the types; "\x00" in it separates them
	suffix  string // after the table's closing parenthesis
}

func (k keyCase) names() string {
	var out []string
	for _, c := range k.columns {
		end := strings.IndexByte(c, ' ')
		if q := c[0]; q == '"' || q == '`' { // a quoted name ends at its quote, which is doubled inside
			for end = 1; ; end++ {
				if c[end] != q {
					continue
				}
				if c[end+1] != q {
					end++
					break
				}
				end++
			}
		}
		out = append(out, c[:end])
	}
	return strings.Join(out, ", ")
}

// nasty are texts that break what was not written with them in mind: quoting, padding, case, normal forms, collation orders in
// which bytes and letters disagree, and what looks like something else.
var nasty = []string{"", " ", "  ", "a", "A", "a ", "a  ", " a", "b", "B", "ab", "aB", "XeLu", "XGeU", "xelu", "a'b", `a"b`, `a\b`, `\`, `\\`, `\x41`, "'", `"`, "NULL", "null", "{}", "{a,b}", "a,b", "(1,2)",
	"\t", "a\nb", "\r\n", "%", "_", "$1", "?", ":x", "--", "/*", "é", "e\u0301", "É", "ß", "ss", "SS", "İ", "i", "I", "ı", "ﬁ", "fi", "œ", "日本", "日本語", "ｱ", "ア", "😀", "😀😀", "👩‍👩‍👧", "\ufeff", "\u200b", "zz", "Z", "z", "0", "00", "-0", "1", "10", "2", "1e3",
	"1.0", "infinity", "NaN", "\uffff", "𐐀", strings.Repeat("a", 60), strings.Repeat("é", 30), "co-op", "coop", "co op"}

func texts32(rng *rand.Rand) []string {
	out := slices.Clone(nasty)
	alphabet := []rune("aAbBeéÉzZ0 '\"\\,{}-_ßλЖ日😀")
	for range 12 {
		var sb strings.Builder
		for range rng.IntN(6) {
			sb.WriteRune(alphabet[rng.IntN(len(alphabet))])
		}
		out = append(out, sb.String())
	}
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out[:30]
}

// textLit writes any text, also one with NUL, so that no literal syntax is in question.
func (l *lab) textLit(s string) string {
	h := hex.EncodeToString([]byte(s))
	switch l.engine {
	case Postgres:
		return `convert_from('\x` + h + `', 'UTF8')`
	case MySQL:
		return "CONVERT(X'" + h + "' USING utf8mb4)"
	default:
		return "CAST(X'" + h + "' AS TEXT)"
	}
}

func (l *lab) bytesLit(b []byte) string {
	if l.engine == Postgres {
		return `'\x` + hex.EncodeToString(b) + `'::bytea`
	}
	return "X'" + hex.EncodeToString(b) + "'"
}

// single makes rows of one column out of literals.
func single(lits ...string) [][]string {
	var out [][]string
	for _, x := range lits {
		out = append(out, []string{x})
	}
	return out
}

func lits(values ...string) func(*lab, *rand.Rand) [][]string {
	return func(*lab, *rand.Rand) [][]string { return single(values...) }
}

// quotedLits quotes the values.
func quotedLits(values ...string) func(*lab, *rand.Rand) [][]string {
	return func(*lab, *rand.Rand) [][]string {
		var out [][]string
		for _, v := range values {
			out = append(out, []string{quote(v)})
		}
		return out
	}
}

func textRows(l *lab, rng *rand.Rand) [][]string {
	var out [][]string
	for _, s := range texts32(rng) {
		out = append(out, []string{l.textLit(s)})
	}
	if l.engine != Postgres { // which has no NUL in texts
		out = append(out, []string{l.textLit("a\x00b")}, []string{l.textLit("a\x00")}, []string{l.textLit("\x00")})
	}
	return out
}

func bytesRows(l *lab, rng *rand.Rand) [][]string {
	out := [][]string{}
	for _, b := range [][]byte{{}, {0}, {0, 0}, {255}, {255, 255}, []byte("a"), []byte("a "), []byte("A"), []byte("\\x41"), []byte(`"`), {0xc3, 0x28}, []byte("{NULL}")} {
		out = append(out, []string{l.bytesLit(b)})
	}
	for range 20 {
		b := make([]byte, rng.IntN(12))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		out = append(out, []string{l.bytesLit(b)})
	}
	return out
}

func intRows(lo, hi string) func(*lab, *rand.Rand) [][]string {
	return func(_ *lab, rng *rand.Rand) [][]string {
		out := single(lo, hi, "0", "1", "2", "9", "10", "11", "100")
		if lo != "0" {
			out = append(out, single("-1", "-2", "-10", "-9")...)
		}
		for range 15 {
			out = append(out, []string{fmt.Sprint(rng.IntN(120))})
		}
		return out
	}
}

func uuidRows(_ *lab, rng *rand.Rand) [][]string {
	out := single("'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'", "'FFFFFFFF-0000-0000-0000-000000000001'")
	for range 25 {
		b := make([]byte, 16)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		h := hex.EncodeToString(b)
		out = append(out, []string{quote(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:])})
	}
	return out
}

// pairs makes composite rows of the product of the first columns with small numbers, so that there are many ties in front.
func pairs(first func(*lab, *rand.Rand) [][]string, n int) func(*lab, *rand.Rand) [][]string {
	return func(l *lab, rng *rand.Rand) [][]string {
		var out [][]string
		for _, f := range first(l, rng)[:14] {
			for i := range n {
				out = append(out, append(slices.Clone(f), fmt.Sprint(i*7%5)))
			}
		}
		return out
	}
}

func keyCases() []keyCase {
	pg, my, li := []Engine{Postgres}, []Engine{MySQL}, []Engine{SQLite}
	all := []Engine{Postgres, MySQL, SQLite}
	triple := func(l *lab, rng *rand.Rand) (out [][]string) {
		for _, s := range []string{"a", "A", "XeLu", "XGeU", "", "😀"} {
			for i := range 3 {
				for _, d := range []string{"'2024-02-29'", "'1999-12-31'"} {
					out = append(out, []string{l.textLit(s), fmt.Sprint(i), d})
				}
			}
		}
		return out
	}
	return []keyCase{
		{name: "smallint", engines: []Engine{Postgres, MySQL}, columns: []string{"k smallint NOT NULL"}, rows: intRows("-32768", "32767")},
		{name: "int", engines: all, columns: []string{"k int NOT NULL"}, rows: intRows("-2147483648", "2147483647")},
		{name: "bigint", engines: all, columns: []string{"k bigint NOT NULL"}, rows: intRows("-9223372036854775808", "9223372036854775807")},
		{name: "beyond the exact doubles", engines: all, columns: []string{"k bigint NOT NULL"}, rows: lits("9007199254740992", "9007199254740993", "9007199254740994", "9007199254740995", "9223372036854775806", "9223372036854775807", "-9007199254740993", "-9007199254740992")},
		{name: "text and int", engines: []Engine{Postgres, SQLite}, columns: []string{"a text NOT NULL", "b int NOT NULL"}, rows: pairs(textRows, 4)},
		{name: "varchar and int", engines: my, columns: []string{"a varchar(80) NOT NULL", "b int NOT NULL"}, rows: pairs(textRows, 4)},
		{name: "three columns", engines: all, columns: []string{"a varchar(20) NOT NULL", "b int NOT NULL", "c date NOT NULL"}, rows: triple},
		{name: "varchar", engines: all, columns: []string{"k varchar(80) NOT NULL"}, rows: textRows},
		{name: "char", engines: all, columns: []string{"k char(64) NOT NULL"}, rows: textRows},
		{name: "numeric", engines: all, columns: []string{"k decimal(30, 10) NOT NULL"}, rows: lits("0", "1", "1.5", "1.0000000001", "1.0000000002", "-1.5", "12345678901234567890.0000000001", "12345678901234567890.0000000002", "-0.0000000001", "99999999999999999999.9999999999")},
		{name: "date", engines: []Engine{Postgres, MySQL}, columns: []string{"k date NOT NULL"}, rows: quotedLits("0001-01-01", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31", "2026-03-29")},

		{name: "numeric without bounds", engines: pg, columns: []string{"k numeric NOT NULL"}, rows: quotedLits("NaN", "infinity", "-infinity", "0", "-0", "1.0", "1.00001", "1e50", "1e50", "-1e50", "1e-40", "123456789012345678901234567890123456789.5", "123456789012345678901234567890123456789.6")},
		{name: "uuid", engines: pg, columns: []string{"k uuid NOT NULL"}, rows: uuidRows},
		{name: "collation C", engines: pg, columns: []string{`k text COLLATE "C" NOT NULL`}, rows: textRows},
		{name: "collation en-US", engines: pg, columns: []string{`k text COLLATE "en-US-x-icu" NOT NULL`}, rows: textRows},
		{name: "collation without case and accents", engines: pg, before: `CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)`, columns: []string{`k text COLLATE loose NOT NULL`}, rows: textRows},
		{name: "collation en-US and int", engines: pg, columns: []string{`a text COLLATE "en-US-x-icu" NOT NULL`, "b int NOT NULL"}, rows: pairs(textRows, 4)},
		{name: "two collations", engines: pg, columns: []string{`a text COLLATE "en-US-x-icu" NOT NULL`, `b text COLLATE "C" NOT NULL`, "c int NOT NULL"}, rows: func(l *lab, rng *rand.Rand) (out [][]string) {
			for i, s := range texts32(rng) {
				out = append(out, []string{l.textLit("XeLu"), l.textLit(s), "1"}, []string{l.textLit(s), l.textLit("XGeU"), fmt.Sprint(i)})
			}
			return out
		}},
		{name: "citext", engines: pg, before: "CREATE EXTENSION IF NOT EXISTS citext", columns: []string{"k citext NOT NULL"}, rows: textRows},
		{name: "a domain", engines: pg, before: "CREATE DOMAIN code AS varchar(70) CHECK (VALUE IS NOT NULL)", columns: []string{"k code NOT NULL"}, rows: textRows},
		{name: "the type of one char", engines: pg, columns: []string{`k "char" NOT NULL`}, rows: quotedLits("", "a", "A", "b", `"`, `\`, ",", "{")},
		{name: "name", engines: pg, columns: []string{"k name NOT NULL"}, rows: quotedLits("a", "A", "b c", `"x"`, "é", "")},
		{name: "bytea", engines: pg, columns: []string{"k bytea NOT NULL"}, rows: bytesRows},
		{name: "timestamp", engines: pg, columns: []string{"k timestamp NOT NULL"}, rows: quotedLits("infinity", "-infinity", "epoch", "0044-03-15 12:00:00 BC", "2026-03-29 02:30:00", "2026-03-29 02:30:00.000001", "2026-03-29 02:30:00.000002", "294276-12-31 23:59:59")},
		{name: "timestamptz", engines: pg, columns: []string{"k timestamptz NOT NULL"}, rows: quotedLits("infinity", "-infinity", "epoch", "0044-03-15 12:00:00+00 BC", "2025-10-26 02:30:00+02", "2025-10-26 02:30:00+01", "2026-03-29 02:30:00.000001+00", "2026-03-29 02:30:00.000002+00")},
		{name: "date with infinity", engines: pg, columns: []string{"k date NOT NULL"}, rows: quotedLits("infinity", "-infinity", "0044-03-15 BC", "2024-02-29", "5874897-12-31")},
		{name: "boolean", engines: pg, columns: []string{"k boolean NOT NULL", "n int NOT NULL"}, rows: lits2("true", "false")},
		{name: "double", engines: pg, columns: []string{"k float8 NOT NULL"}, rows: quotedLits("NaN", "infinity", "-infinity", "0", "-0", "0.1", "0.30000000000000004", "0.3", "1e308", "5e-324", "-5e-324", "1", "1.0000000000000002")},
		{name: "real", engines: pg, columns: []string{"k real NOT NULL"}, rows: quotedLits("NaN", "infinity", "-infinity", "0", "0.1", "0.3", "16777216", "16777217", "1e-45", "3.4e38")},
		{name: "enum", engines: pg, before: `CREATE TYPE "Mood" AS ENUM ('zz', 'aa', 'it''s', 'Ünder', '', 'a b')`, columns: []string{`k "Mood" NOT NULL`}, rows: quotedLits("zz", "aa", "it''s", "Ünder", "", "a b")},
		{name: "identity and serial", engines: pg, columns: []string{"k bigint GENERATED BY DEFAULT AS IDENTITY"}, rows: intRows("-5", "99")},

		{name: "bigint unsigned", engines: my, columns: []string{"k bigint unsigned NOT NULL"}, rows: lits("0", "1", "9223372036854775807", "9223372036854775808", "9223372036854775809", "18446744073709551614", "18446744073709551615", "9007199254740993", "9007199254740992")},
		{name: "tiny and year", engines: my, columns: []string{"a tinyint NOT NULL", "b year NOT NULL"}, rows: func(*lab, *rand.Rand) [][]string {
			return [][]string{{"-128", "0"}, {"-128", "1901"}, {"127", "2155"}, {"0", "2000"}, {"0", "1999"}, {"1", "2024"}}
		}},
		{name: "wide decimal", engines: my, columns: []string{"k decimal(65, 0) NOT NULL"}, rows: lits("0", "1", strings.Repeat("9", 65), strings.Repeat("9", 64)+"8", strings.Repeat("9", 36), strings.Repeat("9", 35), "-"+strings.Repeat("9", 65), "-"+strings.Repeat("9", 64), "1"+strings.Repeat("0", 40))},
		{name: "deep decimal", engines: my, columns: []string{"k decimal(40, 30) NOT NULL"}, rows: lits("0", "0."+strings.Repeat("0", 29)+"1", "0."+strings.Repeat("0", 29)+"2", "9999999999."+strings.Repeat("9", 30), "-0."+strings.Repeat("0", 29)+"1")},
		{name: "utf8mb4_bin", engines: my, columns: []string{"k varchar(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"}, rows: textRows},
		{name: "utf8mb4_general_ci", engines: my, columns: []string{"k varchar(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci NOT NULL"}, rows: textRows},
		{name: "utf8mb4_unicode_520_ci", engines: my, columns: []string{"k varchar(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_520_ci NOT NULL"}, rows: textRows},
		{name: "no padding", engines: my, columns: []string{"k varchar(80) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin NOT NULL"}, rows: textRows},
		{name: "latin1", engines: my, columns: []string{"k varchar(80) CHARACTER SET latin1 COLLATE latin1_swedish_ci NOT NULL"}, rows: textRows},
		{name: "latin1 bin and int", engines: my, columns: []string{"a varchar(80) CHARACTER SET latin1 COLLATE latin1_bin NOT NULL", "b int NOT NULL"}, rows: pairs(textRows, 3)},
		{name: "ascii", engines: my, columns: []string{"k char(36) CHARACTER SET ascii NOT NULL"}, rows: uuidRows},
		{name: "utf16", engines: my, columns: []string{"k varchar(60) CHARACTER SET utf16 NOT NULL"}, rows: textRows},
		{name: "binary", engines: my, columns: []string{"k binary(12) NOT NULL"}, rows: bytesRows},
		{name: "varbinary", engines: my, columns: []string{"k varbinary(30) NOT NULL"}, rows: bytesRows},
		{name: "varchar of bytes", engines: my, columns: []string{"k varchar(30) CHARACTER SET binary NOT NULL"}, rows: bytesRows},
		{name: "datetime(6)", engines: my, columns: []string{"k datetime(6) NOT NULL"}, rows: quotedLits("0000-00-00 00:00:00", "1000-01-01 00:00:00", "2024-00-00 00:00:00", "2026-03-29 02:30:00", "2026-03-29 02:30:00.000001", "2026-03-29 02:30:00.000002", "9999-12-31 23:59:59.999999")},
		{name: "datetime", engines: my, columns: []string{"k datetime NOT NULL"}, rows: quotedLits("0000-00-00 00:00:00", "2026-03-29 02:30:00", "2026-03-29 02:30:01", "9999-12-31 23:59:59")},
		{name: "timestamp(6)", engines: my, columns: []string{"k timestamp(6) NOT NULL DEFAULT '0000-00-00 00:00:00'"}, rows: quotedLits("0000-00-00 00:00:00", "1970-01-01 00:00:01", "2025-10-26 00:30:00", "2025-10-26 01:30:00", "2038-01-19 03:14:07.999999", "2026-03-29 02:30:00.000001")},
		{name: "zero dates", engines: my, columns: []string{"k date NOT NULL"}, rows: quotedLits("0000-00-00", "2024-00-00", "2024-01-00", "2024-01-01", "9999-12-31", "1000-01-01")},
		{name: "uuid", engines: my, columns: []string{"k uuid NOT NULL"}, rows: uuidRows},
		{name: "unsigned and text", engines: my, columns: []string{"a bigint unsigned NOT NULL", "b varchar(70) NOT NULL"}, rows: func(l *lab, rng *rand.Rand) (out [][]string) {
			for _, s := range texts32(rng)[:15] {
				out = append(out, []string{"18446744073709551615", l.textLit(s)}, []string{"18446744073709551614", l.textLit(s)})
			}
			return out
		}},

		{name: "integer primary key", engines: li, columns: []string{"k INTEGER NOT NULL"}, rows: intRows("-9223372036854775808", "9223372036854775807")},
		{name: "text", engines: li, columns: []string{"k TEXT NOT NULL"}, rows: textRows},
		{name: "blob", engines: li, columns: []string{"k BLOB NOT NULL"}, rows: bytesRows},
		{name: "real", engines: li, columns: []string{"k REAL NOT NULL"}, rows: lits("0.1", "0.30000000000000004", "0.3", "1e308", "9e999", "-9e999", "5e-324", "1", "9007199254740993", "-0.0")},
		{name: "whatever a row holds", engines: li, columns: []string{"k NOT NULL"}, rows: mixedRows},
		{name: "numbers by affinity", engines: li, columns: []string{"k NUMERIC NOT NULL"}, rows: mixedRows},
		{name: "text by affinity", engines: li, columns: []string{"k VARCHAR(10) NOT NULL"}, rows: mixedRows},
		{name: "declared as a time", engines: li, columns: []string{"k DATETIME NOT NULL"}, rows: lits("'2026-03-29 01:00:00'", "'2026-03-29T01:00:00Z'", "'2026-03-29'", "0", "1774746000", "2461128.5", "'soon'", "''", "X'00'")},
		{name: "declared as a boolean", engines: li, columns: []string{"k BOOLEAN NOT NULL"}, rows: lits("0", "1", "2", "'true'", "'t'", "-1", "0.5")},
		{name: "without rowid", engines: li, columns: []string{"a TEXT NOT NULL", "b NOT NULL"}, suffix: " WITHOUT ROWID", rows: func(l *lab, rng *rand.Rand) (out [][]string) {
			for _, m := range mixedRows(l, rng) {
				out = append(out, []string{"'x'", m[0]}, []string{"'X'", m[0]})
			}
			return out
		}},
		{name: "NOCASE", engines: li, columns: []string{"k TEXT COLLATE NOCASE NOT NULL"}, rows: textRows},
		{name: "NOCASE and int", engines: li, columns: []string{"a TEXT COLLATE NOCASE NOT NULL", "b INTEGER NOT NULL"}, rows: pairs(textRows, 4)},
		{name: "RTRIM", engines: li, columns: []string{"k TEXT COLLATE RTRIM NOT NULL"}, rows: textRows},
		{name: "strict", engines: li, columns: []string{"a TEXT NOT NULL", "b ANY NOT NULL"}, suffix: " STRICT, WITHOUT ROWID", rows: func(l *lab, rng *rand.Rand) (out [][]string) {
			for _, m := range mixedRows(l, rng) {
				out = append(out, []string{"'x'", m[0]})
			}
			return out
		}},

		{name: "words and signs in names", engines: []Engine{Postgres, SQLite}, columns: []string{`"select" int NOT NULL`, `"userId" int NOT NULL`, `"a ""b"" c" int NOT NULL`, `"50%'s $1?" int NOT NULL`, `"naïve 😀" int NOT NULL`}, rows: fiveInts},
		{name: "words and signs in names", engines: my, columns: []string{"`select` int NOT NULL", "`userId` int NOT NULL", "`a ``b`` c` int NOT NULL", "`50%'s $1?\"` int NOT NULL", "`naïve` int NOT NULL"}, rows: fiveInts},
		{name: "names like ours", engines: all, columns: []string{"curfew_0 int NOT NULL", "curfew_1 int NOT NULL", "c0 int NOT NULL", "p int NOT NULL", "q int NOT NULL"}, rows: fiveInts},
	}
}

func fiveInts(*lab, *rand.Rand) (out [][]string) {
	for i := range 24 {
		out = append(out, []string{fmt.Sprint(i % 2), fmt.Sprint(i % 3 * 9), fmt.Sprint(i), fmt.Sprint(100 - i), fmt.Sprint(i * i % 12)})
	}
	return out
}

func lits2(values ...string) func(*lab, *rand.Rand) [][]string {
	return func(*lab, *rand.Rand) (out [][]string) {
		for _, v := range values {
			for i := range 6 {
				out = append(out, []string{v, fmt.Sprint(i)})
			}
		}
		return out
	}
}

func mixedRows(l *lab, _ *rand.Rand) [][]string {
	return single("0", "1", "'1'", "1.5", "'1.5'", "'01'", "-1", "9007199254740993", "9007199254740992.0", "9223372036854775807", "9.3e18", "'9223372036854775807'", "''", "'a'", "'A'", "'a '", "X''", "X'00'", "X'31'", "X'61'", "1e300", "9e999",
		"-9e999", "'10'", "10", "2", "'2'", "'NULL'", "'true'", "0.1", l.textLit("😀"), l.textLit("a\x00b"), "CAST(X'c328' AS TEXT)")
}

// Every kind of key that an engine offers, with values that are out to break it, at page sizes of one, three and all, by the
// trigger and by windows of the key: what goes is what was due, each row once, and the sums hold.
func TestKeys(t *testing.T) {
	defer func(n int) { window = n }(window)
	window = 4
	onEach(t, func(l *lab) {
		for i, k := range keyCases() {
			if !slices.Contains(k.engines, l.engine) {
				continue
			}
			l.Run(k.name, func(t *testing.T) { l.at(t).checkKey(k, fmt.Sprint("keyed", i)) })
		}
	})
}

// clock is like instant, but of a kind that every engine orders: pages can follow it.
func (l *lab) clock() (columnType string, tr policy.Trigger, lit func(time.Time) string) {
	typ, tr := l.instant()
	if l.engine != SQLite {
		return typ, tr, l.lit
	}
	return "integer", policy.Trigger{Column: "at", Unit: policy.Microseconds}, func(t time.Time) string { return fmt.Sprint(t.UnixMicro()) }
}

// clocked is a policy over a column of that kind.
func (l *lab) clocked(table string, edit func(*policy.Policy)) *policy.Policy {
	_, tr, _ := l.clock()
	tr.Until = true
	return l.policy(table, func(p *policy.Policy) {
		p.Trigger = tr
		if edit != nil {
			edit(p)
		}
	})
}

// at is the lab in a test below its own.
func (l *lab) at(t *testing.T) *lab {
	return &lab{T: t, engine: l.engine, db: l.db, other: l.other, keys: l.keys, url: l.url}
}

// insertNew begins an INSERT that leaves out rows whose key is there already.
func (l *lab) insertNew(table string, rows []string) {
	l.Helper()
	text := "INSERT INTO " + table + " VALUES " + strings.Join(rows, ", ")
	switch l.engine {
	case MySQL:
		text = strings.Replace(text, "INSERT", "INSERT IGNORE", 1)
	default:
		text += " ON CONFLICT DO NOTHING"
	}
	l.exec(text)
}

func (l *lab) checkKey(k keyCase, table string) {
	rng := rand.New(rand.NewPCG(7, 11))
	typ, _, lit := l.clock()
	l.exec(k.before)
	l.exec("DROP TABLE IF EXISTS corpus")
	for _, name := range []string{"corpus", table} {
		l.exec("CREATE TABLE " + name + " (" + strings.Join(k.columns, ", ") + ", at " + typ + " NOT NULL, serial int NOT NULL, PRIMARY KEY (" + k.names() + "))" + k.suffix)
	}
	l.exec("CREATE INDEX " + table + "_at ON " + table + " (at)")
	var rows []string
	for i, r := range k.rows(l, rng) {
		at := asOf.Add(-time.Duration(1+i%3) * time.Hour) // many ties
		if rng.IntN(3) == 0 {
			at = asOf.Add(time.Duration(i) * time.Minute)
		}
		rows = append(rows, "("+strings.Join(r, ", ")+", "+lit(at)+fmt.Sprintf(", %d)", i))
	}
	l.insertNew("corpus", rows)
	stay := l.ids("SELECT serial FROM corpus WHERE at >= " + lit(asOf) + " ORDER BY serial")
	due := l.ids("SELECT count(*) FROM corpus")[0] - len(stay)
	if due < 2 {
		l.Fatalf("%d rows are due: that shows nothing", due)
	}
	small := map[bool]Strategy{true: ByTrigger, false: ByKey}[len(k.name)%2 == 0] // one row a page is dear: each case does it one way
	for _, s := range []Strategy{ByTrigger, ByKey, ByPlace} {
		for _, n := range []int{1, 3, 1000} {
			if n == 1 && s != small || s == ByPlace && l.engine != Postgres {
				continue
			}
			l.exec("INSERT INTO " + table + " SELECT * FROM corpus")
			j, err := l.keyJob(table, fmt.Sprint(s, n))
			if err != nil {
				l.Fatal(err)
			}
			if err := j.SetStrategy(s); err != nil {
				l.Fatal(err)
			}
			// Half of the cases go the way of policies that read other tables.
			j.careful = j.careful || n == 3 && s != small
			got := l.drain(j, n)
			if diff := cmp.Diff(map[string]int64{"deleted": int64(due)}, got.outcomes); diff != "" || got.planned != int64(due) {
				l.Errorf("by %s, page %d: planned %d of %d, outcomes:\n%s", s, n, got.planned, due, diff)
			}
			if diff := cmp.Diff(stay, l.ids("SELECT serial FROM "+table+" ORDER BY serial")); diff != "" {
				l.Errorf("by %s, page %d: rows that stay (-want +got):\n%s", s, n, diff)
			}
			if l.Failed() {
				return
			}
			l.exec("DELETE FROM " + table)
		}
	}
}

func (l *lab) keyJob(table, salt string) (*Job, error) {
	l.Helper()
	tab, err := l.db.Inspect(l.Context(), table)
	if err != nil {
		l.Fatal(err)
	}
	p := l.clocked(table, nil)
	for _, f := range Judge(p, tab, l.db.Described()) {
		if f.Level == LevelRefuse {
			return nil, fmt.Errorf("%s: %s", f.Code, f.Message)
		}
	}
	run := fmt.Sprintf("%x", sha256.Sum256([]byte(l.Name()+salt)))
	j, err := NewJob(l.db, JobOptions{Policy: p, Table: tab, AsOf: asOf, Cutoff: asOf, Run: run, Keys: l.keys})
	if err != nil {
		return nil, err
	}
	j.fingerprint, err = j.FingerprintNow(l.Context())
	l.exec("DELETE FROM " + j.d.own("receipt"))
	return j, err
}

// A table that was altered between two runs of one process: what the driver had prepared for the first is not the second's
// end. The error is one after which the same again works.
func TestPlansOfAnAlteredTable(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.sessions(12)
		l.exec("CREATE TABLE copy_of AS SELECT * FROM session")
		work := func(run string) {
			j := l.job(l.policy("session", nil))
			j.run = run
			var at []byte
			for done := false; !done; {
				p, err := j.Page(l.Context(), at, 5)
				if err != nil && Transient(err) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if p.Batch != nil {
					res, err := j.Execute(l.Context(), asOf, l.work(p.Batch))
					if err != nil {
						t.Fatal(err)
					}
					if res.Outcomes["deleted"] != int64(p.Batch.Rows) {
						t.Errorf("outcomes %v of %d", res.Outcomes, p.Batch.Rows)
					}
				}
				at, done = p.Cursor, p.Done
			}
		}
		work("first")
		to := map[Engine]string{Postgres: `ALTER TABLE session ALTER COLUMN id TYPE varchar(20) COLLATE "en-US-x-icu" USING id::text`, MySQL: "ALTER TABLE session MODIFY id varchar(20) CHARACTER SET latin1"}[l.engine]
		l.exec(to)
		l.exec("INSERT INTO session SELECT " + map[Engine]string{Postgres: "id::text", MySQL: "id"}[l.engine] + ", at, state FROM copy_of")
		l.exec("DELETE FROM " + dialectFor(l.db.server).own("receipt"))
		work("second")
		if n := l.ids("SELECT count(*) FROM session")[0]; n != 0 {
			t.Errorf("%d rows left", n)
		}
	})
}

// A kind of key that cannot be carried or compared reliably is refused before anything is paged.
func TestKeysRefused(t *testing.T) {
	cases := map[Engine][]string{
		Postgres: {"k int[] NOT NULL", "k jsonb NOT NULL", "k inet NOT NULL", "k cidr NOT NULL", "k macaddr NOT NULL", "k time NOT NULL", "k timetz NOT NULL", "k interval NOT NULL", "k money NOT NULL", "k bit(3) NOT NULL", "k tsvector NOT NULL", "k int4range NOT NULL", "k oid NOT NULL", "k pg_lsn NOT NULL"},
		MySQL:    {"k enum('b', 'a') NOT NULL", "k set('b', 'a') NOT NULL", "k float NOT NULL", "k double NOT NULL", "k bit(3) NOT NULL", "k time NOT NULL", "k inet6 NOT NULL"},
	}
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		typ, _ := l.instant()
		for _, c := range cases[l.engine] {
			l.Run(c, func(t *testing.T) {
				l := l.at(t)
				l.exec("DROP TABLE IF EXISTS keyed")
				l.exec("CREATE TABLE keyed (" + c + ", at " + typ + " NOT NULL, PRIMARY KEY (k))")
				l.refused("key_unusable")
			})
		}
		more := map[Engine]map[string]string{
			Postgres: {
				"nothing unique":          "CREATE TABLE keyed (k int NOT NULL, at timestamptz NOT NULL)",
				"unique but NULL":         "CREATE TABLE keyed (k int UNIQUE, at timestamptz NOT NULL)",
				"unique in part":          "CREATE TABLE keyed (k int NOT NULL, at timestamptz NOT NULL);\nCREATE UNIQUE INDEX ON keyed (k) WHERE k > 5",
				"unique by an expression": "CREATE TABLE keyed (k text NOT NULL, at timestamptz NOT NULL);\nCREATE UNIQUE INDEX ON keyed (lower(k))",
				"in another collation":    "CREATE TABLE keyed (k text NOT NULL, at timestamptz NOT NULL);\nCREATE UNIQUE INDEX ON keyed (k COLLATE \"en-US-x-icu\")",
				"by a pattern":            "CREATE TABLE keyed (k text NOT NULL, at timestamptz NOT NULL);\nCREATE UNIQUE INDEX ON keyed (k text_pattern_ops)",
			},
			MySQL: {
				"nothing unique":   "CREATE TABLE keyed (k int NOT NULL, at datetime(6) NOT NULL)",
				"unique but NULL":  "CREATE TABLE keyed (k int UNIQUE, at datetime(6) NOT NULL)",
				"unique by prefix": "CREATE TABLE keyed (k varchar(50) NOT NULL, at datetime(6) NOT NULL, UNIQUE (k(10)))",
				"unique by a hash": "CREATE TABLE keyed (k text NOT NULL, at datetime(6) NOT NULL, UNIQUE (k))",
			},
		}
		for name, ddl := range more[l.engine] {
			l.Run(name, func(t *testing.T) {
				l := l.at(t)
				l.exec("DROP TABLE IF EXISTS keyed")
				l.exec(ddl)
				l.refused("key_")
			})
		}
	})
}

func (l *lab) refused(code string) {
	l.Helper()
	tab, err := l.db.Inspect(l.Context(), "keyed")
	if err != nil {
		l.Fatal(err)
	}
	p := l.policy("keyed", nil)
	if _, err := NewJob(l.db, JobOptions{Policy: p, Table: tab, AsOf: asOf, Cutoff: asOf, Run: "r", Keys: l.keys}); err == nil {
		l.Error("a job is made for it")
	}
	if !slices.ContainsFunc(Judge(p, tab, l.db.Described()), func(f Finding) bool { return f.Level == LevelRefuse && strings.HasPrefix(f.Code, code) }) {
		l.Errorf("no finding %s", code)
	}
}

// SQLite lets NULL into a primary key that is not declared NOT NULL. Such rows have no name: they stay, and they hide no
// others, however many there are.
func TestKeysOfSQLiteWithNull(t *testing.T) {
	defer func(n int) { window = n }(window)
	window = 4
	for name, key := range map[string]string{"k": "one", "k, b": "two", "b, k": "the other way"} {
		for _, null := range []policy.NullRule{policy.NullNever, policy.NullDue} {
			for _, index := range []bool{false, true} {
				for _, n := range []int{1, 3, 1000} {
					t.Run(fmt.Sprintf("%s/null %s/index=%v/page=%d", key, null, index, n), func(t *testing.T) {
						newLab(t, SQLite).checkNullKeys(name, null, index, n)
					})
				}
			}
		}
	}
}

func (l *lab) checkNullKeys(key string, null policy.NullRule, index bool, n int) {
	l.exec("CREATE TABLE keyed (k TEXT, b INT, at INTEGER, serial INT, PRIMARY KEY (" + key + "))")
	if index {
		l.exec("CREATE INDEX keyed_at ON keyed (at)")
	}
	var rows []string
	for i := range 30 {
		rows = append(rows, fmt.Sprintf("(NULL, %d, %d, %d)", i, i, 100+i), fmt.Sprintf("(NULL, %d, NULL, %d)", i, 200+i))
		if strings.Contains(key, "b") {
			rows = append(rows, fmt.Sprintf("('x', NULL, %d, %d)", i, 300+i), fmt.Sprintf("('x', NULL, NULL, %d)", 400+i))
		}
	}
	nameless := len(rows)
	for i := range 12 {
		rows = append(rows, fmt.Sprintf("('x%d', %d, %d, %d)", i, i, i%3, i), fmt.Sprintf("('y%d', %d, NULL, %d)", i, i, 50+i))
	}
	l.exec("INSERT INTO keyed VALUES " + strings.Join(rows, ", "))
	got := l.drain(l.job(l.policy("keyed", func(p *policy.Policy) {
		p.Trigger = policy.Trigger{Until: true, Column: "at", Unit: policy.Seconds, Null: null}
	})), n)
	due := map[policy.NullRule]int{policy.NullNever: 12, policy.NullDue: 24}[null]
	if diff := cmp.Diff(map[string]int64{"deleted": int64(due)}, got.outcomes); diff != "" {
		l.Error(diff)
	}
	if left := l.ids("SELECT count(*) FROM keyed WHERE serial >= 100")[0]; left != nameless {
		l.Errorf("%d rows without a key are left of %d", left, nameless)
	}
	if left := l.ids("SELECT count(*) FROM keyed WHERE serial < 100")[0]; left != 24-due {
		l.Errorf("%d rows with a key are left, want %d", left, 24-due)
	}
}

// Names that must be quoted, everywhere a name is written: the table, its trigger, its scope, children that keep rows and
// children that go along, and holds.
func TestNamesMustBeQuoted(t *testing.T) {
	onEach(t, func(l *lab) {
		q := func(s string) string { return dialectFor(l.db.server).ident(s) }
		typ, tr := l.instant()
		table, key, trig, up := "order by \"x\" 50%?$1", "Select", "group`s at", "from"
		l.exec("CREATE TABLE " + q(table) + " (" + q(key) + " int NOT NULL PRIMARY KEY, " + q(trig) + " " + typ + " NOT NULL, " + q("userId") + " int)")
		l.exec("CREATE INDEX " + q("an index") + " ON " + q(table) + " (" + q(trig) + ")")
		l.exec("CREATE TABLE " + q("Where") + " (id int PRIMARY KEY, " + q(up) + " int, FOREIGN KEY (" + q(up) + ") REFERENCES " + q(table) + " (" + q(key) + "))")
		l.exec("CREATE TABLE " + q("and \"or\"") + " (id int PRIMARY KEY, " + q(up) + " int, FOREIGN KEY (" + q(up) + ") REFERENCES " + q(table) + " (" + q(key) + ") ON DELETE CASCADE)")
		var rows []string
		for i := range 12 {
			rows = append(rows, fmt.Sprintf("(%d, %s, %d)", i, l.lit(asOf.Add(-time.Hour)), i))
		}
		l.exec("INSERT INTO " + q(table) + " VALUES " + strings.Join(rows, ", ") + ", (50, " + l.lit(asOf) + ", 1)")
		l.exec("INSERT INTO " + q("Where") + " VALUES (1, 3)")
		l.exec("INSERT INTO " + q("and \"or\"") + " VALUES (1, 4), (2, 4), (3, 50)")
		tr.Column, tr.Until = trig, true
		p := l.policy(table, func(p *policy.Policy) {
			p.Trigger, p.Cascade, p.Subject = tr, []string{"and \"or\""}, "userId"
			p.Unless = q(key) + " = 7"
		})
		j := l.job(p)
		l.exec("INSERT INTO " + j.d.own("hold") + ` (id, name, relation, conditions, placed_at) VALUES ('1', 'court', '*', '[{"column": "", "value": "9"}]', '2026-01-01 00:00:00')`)
		got := l.drain(j, 5)
		if diff := cmp.Diff(map[string]int64{"deleted": 9, "blocked": 1, "guarded": 1, "held": 1}, got.outcomes); diff != "" {
			l.Error(diff)
		}
		if got.cascaded != 2 {
			l.Errorf("cascaded %d", got.cascaded)
		}
		if diff := cmp.Diff([]int{3, 7, 9, 50}, l.ids("SELECT "+q(key)+" FROM "+q(table)+" ORDER BY 1")); diff != "" {
			l.Error(diff)
		}
		if c, err := j.Count(context.Background()); err != nil || c.Due != 3 || c.Guarded != 1 {
			l.Errorf("count %+v, %v", c, err)
		}
	})
}

package target

import (
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
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

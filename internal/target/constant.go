package target

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"curfew.dev/curfew/policy"
)

// size reads the numbers in a declared type: varchar(40), decimal(10,2), timestamp(3) with time zone.
var size = regexp.MustCompile(`\(([0-9]+)(?:,([0-9]+))?\)`)

// sizes are the numbers in the column's declared type; ok is false when it has none.
func sizes(c Column) (n, scale int, ok bool) {
	m := size.FindStringSubmatch(c.Declared)
	if m == nil {
		return 0, 0, false
	}
	n, _ = strconv.Atoi(m[1])
	scale, _ = strconv.Atoi(m[2])
	return n, scale, true
}

// room is how many characters a text column takes; 0 when there is no limit worth a word. SQLite enforces none.
func room(e Engine, c Column) int {
	if e == SQLite || c.Kind != KindText {
		return 0
	}
	if n, _, ok := sizes(c); ok {
		return n
	}
	return map[string]int{"tinytext": 255, "name": 63, `"char"`: 1, "char": 1}[strings.ToLower(c.Type)]
}

// precision is how many digits of a second the column keeps.
func precision(e Engine, c Column) int {
	n, _, ok := sizes(c)
	switch {
	case ok:
		return n
	case e == MySQL:
		return 0
	}
	return 6
}

// cut drops what a column of that precision does not keep, so that what is read back is what was written.
func cut(t time.Time, e Engine, c Column) time.Time {
	step := time.Second
	for range min(precision(e, c), 6) {
		step /= 10
	}
	return t.Truncate(step)
}

const stamp = "2006-01-02 15:04:05.000000"

// constantFor is a constant of the file as the column takes it, or why it does not.
func constantFor(p *policy.Policy, e Engine, c Column, v policy.Value) (value, string) {
	text := v.Text
	if v.Kind == policy.BoolValue && slices.Contains([]Kind{KindInt, KindDecimal, KindFloat, KindAny}, c.Kind) {
		text = map[string]string{"true": "1", "false": "0"}[text]
	}
	switch {
	case v.Kind == policy.NullValue && c.NotNull:
		return value{}, "it may not be NULL"
	case v.Kind == policy.NullValue:
		return value{kind: nullValue}, ""
	}
	switch c.Kind {
	case KindInt, KindDecimal, KindFloat:
		return numberFor(e, c, text)
	case KindText:
		if n := room(e, c); n > 0 && len([]rune(text)) > n {
			return value{}, fmt.Sprintf("the text has %d characters, and the column takes %d", len([]rune(text)), n)
		}
		return value{textValue, text}, ""
	case KindBytes:
		if e == Postgres {
			return value{textValue, `\x` + hex.EncodeToString([]byte(text))}, ""
		}
		return value{bytesValue, text}, ""
	case KindBool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return value{}, "it is true or false"
		}
		return value{textValue, strconv.FormatBool(b)}, ""
	case KindDate:
		d, err := policy.ParseDate(text)
		if err != nil {
			return value{}, "it is a date, such as 2000-01-31"
		}
		return value{textValue, d.String()}, ""
	case KindTime, KindInstant:
		return timeFor(p, e, c, text)
	case KindAny:
		return anyFor(v, text), ""
	case KindEnum:
		if e == MySQL && !slices.Contains(enumValues(c.Declared), text) {
			return value{}, "it is none of " + c.Declared
		}
		return value{textValue, text}, ""
	case KindOther:
		if e != Postgres {
			return value{}, fmt.Sprintf("a column of type %s takes no constant but null", c.Declared)
		}
	}
	return value{textValue, text}, ""
}

// anyFor is a constant for a column of SQLite that takes anything, as it was written.
func anyFor(v policy.Value, text string) value {
	if v.Kind == policy.TextValue {
		return value{textValue, text}
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return value{intValue, strconv.FormatInt(n, 10)}
	}
	return value{floatValue, text}
}

func enumValues(declared string) []string {
	_, list, _ := strings.Cut(strings.TrimSuffix(declared, ")"), "(")
	var out []string
	for _, t := range sqlTokens(list) {
		if t != "," {
			out = append(out, tokenName(t))
		}
	}
	return out
}

var intBits = map[string]int{"smallint": 16, "integer": 32, "bigint": 64, "tinyint": 8, "mediumint": 24, "int": 32}

// numberFor is a number that the column holds exactly: MySQL would store the nearest it can without a word.
func numberFor(e Engine, c Column, text string) (value, string) {
	r, ok := new(big.Rat).SetString(text)
	if !ok || strings.ContainsAny(text, "/eEpPxX_") {
		return value{}, fmt.Sprintf("a column of type %s takes a number", c.Declared)
	}
	switch c.Kind {
	case KindInt:
		if !r.IsInt() {
			return value{}, fmt.Sprintf("a column of type %s takes a whole number", c.Declared)
		}
		bits := intBits[strings.ToLower(c.Type)]
		if bits == 0 || e == SQLite {
			bits = 64
		}
		least, most := new(big.Int), new(big.Int).Lsh(big.NewInt(1), uint(bits))
		if !c.Unsigned {
			most.Rsh(most, 1)
			least.Neg(most)
		}
		if n := r.Num(); n.Cmp(least) < 0 || n.Cmp(most) >= 0 {
			return value{}, fmt.Sprintf("the number is out of the range of type %s", c.Declared)
		}
		kind := intValue
		if e == Postgres {
			kind = textValue
		}
		return value{kind, r.Num().String()}, ""
	case KindDecimal:
		if n, scale, ok := sizes(c); ok {
			shifted := new(big.Rat).Mul(r, new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(scale)), nil)))
			if !shifted.IsInt() || len(strings.TrimPrefix(shifted.Num().String(), "-")) > n {
				return value{}, fmt.Sprintf("a column of type %s does not hold %s", c.Declared, text)
			}
		}
		return value{textValue, text}, ""
	}
	f, _ := r.Float64()
	if e == MySQL && strings.EqualFold(c.Type, "float") && (f != math.Trunc(f) || math.Abs(f) > 1<<24) {
		return value{}, "a FLOAT is never equal to a fraction that is written out, so a row that has it could not be known; use a DOUBLE or a whole number"
	}
	if e == SQLite {
		return value{floatValue, text}, ""
	}
	return value{textValue, text}, ""
}

// timeFor is a date and time as the column takes it. Without an offset it is a reading of clocks in the policy's zone, for a
// column of instants, and what it says for one without a zone.
func timeFor(p *policy.Policy, e Engine, c Column, text string) (value, string) {
	const how = "it is a date and time, such as 2000-01-31 12:00:00"
	if _, err := policy.ParseDate(text); err == nil {
		text += " 00:00:00"
	}
	loc := p.Location()
	if c.Kind == KindTime {
		if regexp.MustCompile(isoOffset).MatchString(text) {
			return value{}, "the column carries no zone, so its value names no offset"
		}
		loc = time.UTC
	}
	t, err := policy.ParseInstant(text, policy.ISO8601, loc)
	if err != nil {
		return value{}, how
	}
	return value{textValue, pgZone(e, c, cut(t.UTC(), e, c).Format(stamp))}, ""
}

// pgZone marks a reading in UTC as one where the type has a place for that.
func pgZone(e Engine, c Column, text string) string {
	if e == Postgres && c.Kind == KindInstant {
		return text + "+00"
	}
	return text
}

// momentFor is an instant as the column stores one, or why that is not known. A column without a zone gets what clocks show in
// the trigger's declared zone, or in the policy's when the trigger declares none.
func momentFor(p *policy.Policy, e Engine, c Column, tr *trigger, at time.Time) (value, string) {
	loc := p.Location()
	if tr != nil && tr.zone != nil {
		loc = tr.zone
	}
	own := tr != nil && tr.column != nil && tr.column.Name == c.Name // the trigger's declaration is about this column
	switch c.Kind {
	case KindInstant:
		return value{textValue, pgZone(e, c, cut(at.UTC(), e, c).Format(stamp))}, ""
	case KindTime:
		return value{textValue, cut(policy.WallOf(at, loc).UTC(), e, c).Format(stamp)}, ""
	case KindDate:
		return value{textValue, policy.DateOf(at, loc).String()}, ""
	case KindText, KindAny:
		if own && tr.unit != "" {
			return unitsFor(e, c, tr.unit, at)
		}
		if own && tr.domain == compactDomain {
			return value{textValue, policy.WallOf(at, loc).UTC().Format("20060102150405")}, ""
		}
		if c.Kind == KindAny && c.Type == "INTEGER" || c.Type == "REAL" {
			break
		}
		text := at.UTC().Format("2006-01-02T15:04:05.999999Z")
		if tr != nil && tr.zone != nil && tr.format == policy.ISO8601 { // the table's texts are readings of that zone
			text = policy.WallOf(at, loc).UTC().Format("2006-01-02 15:04:05.999999")
		}
		if strings.EqualFold(c.Declared, "date") {
			text = policy.DateOf(at, loc).String()
		}
		if n := room(e, c); n > 0 && n < len("2006-01-02T15:04:05.999999Z") {
			return value{}, fmt.Sprintf("it takes %d characters, and an ISO 8601 time has up to 27", n)
		}
		return value{textValue, text}, ""
	case KindInt, KindDecimal, KindFloat:
		if own && tr.unit != "" {
			return unitsFor(e, c, tr.unit, at)
		}
	default:
		return value{}, fmt.Sprintf("a column of type %s holds no instant", c.Declared)
	}
	return value{}, "it holds numbers, and nothing says which unit they are in"
}

// unitsFor is an instant as a count of units, cut to a whole one where the column holds no fraction.
func unitsFor(e Engine, c Column, unit policy.Unit, at time.Time) (value, string) {
	b := newBound(at, nil)
	if unit == unitJulian {
		kind := textValue
		if e == SQLite {
			kind = floatValue
		}
		return value{kind, strconv.FormatFloat(b.julian(), 'f', -1, 64)}, ""
	}
	r := b.exact(unit)
	return numberFor(e, Column{Kind: KindInt, Type: c.Type, Declared: c.Declared, Unsigned: c.Unsigned}, new(big.Int).Div(r.Num(), r.Denom()).String())
}

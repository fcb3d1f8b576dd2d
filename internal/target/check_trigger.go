package target

import (
	"fmt"
	"strings"

	"curfew.dev/curfew/policy"
)

// trigger judges whether the declaration says how the trigger's values denote instants, no less and no more: each of zone,
// unit and format that is missing would be a guess, and one that does not apply shows that something else was meant.
func (j *judgement) trigger() {
	tr := j.p.Trigger
	if tr.Column == "" {
		j.expression()
		return
	}
	c, ok := j.t.Column(tr.Column)
	if !ok {
		j.add(LevelRefuse, "trigger_missing", j.columns(tr.Column), "table %s has no column %q for the trigger", j.t.Label, tr.Column)
		return
	}
	switch c.Kind {
	case KindInstant:
		j.declared(c, "is an instant", nil, "zone", "unit", "format")
	case KindTime:
		j.declared(c, "carries no time zone", []string{"zone"}, "unit", "format")
	case KindDate:
		j.declared(c, "carries no time zone", []string{"zone"}, "unit", "format")
	case KindInt, KindDecimal, KindFloat:
		j.declared(c, "holds numbers", []string{"unit"}, "zone", "format")
	case KindText, KindBytes:
		j.textual(c)
	case KindAny:
		j.untyped(c)
	default:
		j.add(LevelRefuse, "trigger_kind", "name another column, or an expr with a type that yields one",
			"column %s of type %s cannot be read as a time", c.Name, c.Declared)
	}
	if !c.NotNull && tr.Null == policy.NullUnset {
		j.add(LevelRefuse, "trigger_null", "add null: never (a row without it stays) or null: due (it goes)",
			"column %s may be NULL and the policy does not say what that means", c.Name)
	}
	if c.OnUpdate {
		j.add(LevelInfo, "trigger_on_update", "", "column %s is set anew by every UPDATE of the row, whatever it changes", c.Name)
	}
}

var settingHints = map[string]string{
	"zone":   "add zone: the IANA name of the zone its values are in, such as Europe/Berlin or UTC",
	"unit":   "add unit: s, ms, us or ns since 1970, or julian_day",
	"format": "add format: iso8601 or yyyymmddhhmmss",
}

func (j *judgement) given(setting string) bool {
	switch setting {
	case "zone":
		return j.p.Trigger.Zone != ""
	case "unit":
		return j.p.Trigger.Unit != ""
	default:
		return j.p.Trigger.Format != ""
	}
}

// declared refuses settings that are missing and settings that do not belong.
func (j *judgement) declared(c Column, is string, need []string, never ...string) {
	for _, n := range never {
		if j.given(n) {
			j.add(LevelRefuse, "trigger_"+n, "remove "+n, "column %s of type %s %s: %s does not apply to it", c.Name, c.Declared, is, n)
		}
	}
	for _, n := range need {
		if !j.given(n) {
			j.add(LevelRefuse, "trigger_"+n, settingHints[n], "column %s of type %s %s, and the policy does not say which %s it is in", c.Name, c.Declared, is, n)
		}
	}
}

func (j *judgement) textual(c Column) {
	format := j.p.Trigger.Format
	if format == policy.ISO8601 && c.Kind == KindBytes {
		j.add(LevelRefuse, "trigger_format", "use an expr that converts it to text", "column %s of type %s holds bytes, and only yyyymmddhhmmss is read from those", c.Name, c.Declared)
		return
	}
	need := []string{"format"}
	if format == policy.Compact {
		need = append(need, "zone")
	}
	j.declared(c, "holds text", need, "unit")
	j.offsets(c.Name)
}

// offsets warns where text that says no offset of its own could be read only with a zone.
func (j *judgement) offsets(what string) {
	if j.p.Trigger.Format == policy.ISO8601 && j.p.Trigger.Zone == "" {
		j.add(LevelInfo, "trigger_offset", "add zone if there are such values",
			"values of %s that name no offset (as Z or +02:00 do) are unreadable without a zone, and stay", what)
	}
}

// untyped is for SQLite, where a declared type is a hint at most. One hint is taken: a zone given for a column declared as a
// date or time says that it holds such text.
func (j *judgement) untyped(c Column) {
	u := strings.ToUpper(c.Declared)
	implied := j.given("zone") && (strings.Contains(u, "DATE") || strings.Contains(u, "TIME"))
	switch {
	case j.given("unit") && j.given("format"):
		j.add(LevelRefuse, "trigger_format", "remove one of them", "column %s cannot be both a number with a unit and a text with a format", c.Name)
	case j.given("unit"):
		j.declared(c, "holds numbers", nil, "zone")
	case j.given("format"):
		j.textual(c)
	case !implied:
		j.add(LevelRefuse, "trigger_format", settingHints["unit"]+"; or "+settingHints["format"],
			"SQLite has no time type, and the policy does not say how column %s holds one", c.Name)
	}
}

func (j *judgement) expression() {
	tr := j.p.Trigger
	n := 0
	for _, set := range []bool{tr.Type != "", tr.Unit != "", tr.Format != ""} {
		if set {
			n++
		}
	}
	if n != 1 {
		j.add(LevelRefuse, "trigger_type", "give one of type (timestamptz, timestamp, date), unit and format", "the trigger is an expression, and the policy does not say what it yields")
		return
	}
	civil := tr.Type == policy.Timestamp || tr.Type == policy.DateType || tr.Format == policy.Compact
	switch {
	case j.s.Engine == SQLite && tr.Type != "":
		j.add(LevelRefuse, "trigger_type", settingHints["unit"]+"; or "+settingHints["format"], "SQLite has no type %s for an expression", tr.Type)
	case civil && tr.Zone == "":
		j.add(LevelRefuse, "trigger_zone", settingHints["zone"], "the trigger's expression yields a %s without a time zone", expressionKind(tr))
	case !civil && tr.Zone != "" && tr.Format == "":
		j.add(LevelRefuse, "trigger_zone", "remove zone", "the trigger's expression yields %s: zone does not apply to it", expressionKind(tr))
	}
	j.offsets("the expression")
}

func expressionKind(tr policy.Trigger) string {
	switch {
	case tr.Type == policy.TimestampTZ:
		return "an instant"
	case tr.Unit != "":
		return "a number"
	case tr.Format != "":
		return fmt.Sprintf("text %s", tr.Format)
	}
	return string(tr.Type)
}

// tablesRead lists the tables that a piece of the policy's SQL reads, as it names them: what follows FROM and JOIN in a SELECT,
// and the commas after FROM. EXTRACT(… FROM …) and IS DISTINCT FROM read none.
func tablesRead(sql string) []string { return tablesReadBy(sql, tokenName) }

// TablesRead is tablesRead with names as the engine's catalog has them: PostgreSQL folds those without quotes.
func TablesRead(e Engine, sql string) []string {
	if e != Postgres {
		return tablesRead(sql)
	}
	return tablesReadBy(sql, func(token string) string {
		if name := tokenName(token); name != token {
			return name
		}
		return strings.ToLower(token)
	})
}

func tablesReadBy(sql string, nameOf func(string) string) []string {
	type level struct{ query, from bool } // of parentheses: whether a SELECT was met, whether a list of tables is open
	t := sqlTokens(sql)
	var out []string
	levels := []level{{}}
	for i := 0; i < len(t); i++ {
		in := &levels[len(levels)-1]
		switch {
		case t[i] == "(":
			levels = append(levels, level{})
			continue
		case t[i] == ")":
			levels = levels[:max(1, len(levels)-1)]
			continue
		case tokensAt(t, i, "SELECT"):
			*in = level{query: true}
			continue
		case in.query && (tokensAt(t, i, "FROM") && !tokensAt(t, i-1, "DISTINCT") || tokensAt(t, i, "JOIN")):
			in.from = true
		case t[i] == "," && in.from:
		default:
			for _, end := range []string{"WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "UNION", "EXCEPT", "INTERSECT"} {
				in.from = in.from && !tokensAt(t, i, end)
			}
			continue
		}
		if tokensAt(t, i+1, "LATERAL") || tokensAt(t, i+1, "ONLY") {
			i++
		}
		if i+1 >= len(t) || t[i+1] == "(" {
			continue
		}
		i++
		name := nameOf(t[i])
		for tokensAt(t, i+1, ".") && i+2 < len(t) {
			name += "." + nameOf(t[i+2])
			i += 2
		}
		out = append(out, name)
	}
	return out
}

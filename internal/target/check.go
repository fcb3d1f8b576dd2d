package target

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"curfew.dev/curfew/policy"
)

// A Level says what a finding means for a run.
type Level string

// The levels.
const (
	LevelRefuse Level = "refuse" // no run starts
	LevelWarn   Level = "warn"   // a run may do other than what was meant, or do it slowly
	LevelInfo   Level = "info"   // worth knowing
)

// A Finding is one thing that check has to say. It never holds a value of a row.
type Finding struct {
	Level     Level
	Code      string // a stable word for programs
	Message   string
	Hint      string // what to do
	Statement string // SQL that would settle it
}

// Refused returns the findings that keep a run from starting, as one error, or nil.
func Refused(findings []Finding) error {
	var errs []error
	for _, f := range findings {
		if f.Level == LevelRefuse {
			text := f.Message
			if f.Hint != "" {
				text += "; " + f.Hint
			}
			errs = append(errs, errors.New(text))
		}
	}
	return errors.Join(errs...)
}

// A judgement collects the findings about one policy on one table.
type judgement struct {
	p   *policy.Policy
	t   *Table
	s   Server
	out []Finding
	// family is the tables of a delete with dependents, once they have been found fit.
	family *family
}

func (j *judgement) add(level Level, code, hint, format string, args ...any) {
	j.out = append(j.out, Finding{Level: level, Code: code, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// onlyEnforce is for what matters only to a run that changes rows: a shadow run is told, and goes on.
func (j *judgement) onlyEnforce() Level {
	if j.p.Mode == policy.Enforce {
		return LevelRefuse
	}
	return LevelWarn
}

// Judge says what stands between the policy and the table, of what the catalog alone can tell; t is nil when there is no such
// table. A run starts only when nothing is refused: what is accepted here, the statements of a run rely on.
func Judge(p *policy.Policy, t *Table, s Server) []Finding {
	j := &judgement{p: p, t: t, s: s}
	if t == nil {
		j.add(LevelRefuse, "table_missing", "check the spelling and the schema, and that our role may use them", "there is no table %s", p.Table)
		return j.out
	}
	j.server()
	if !j.table() {
		return j.out
	}
	j.key()
	j.trigger()
	switch {
	case p.Action.Kind.Tells():
		j.message()
	case j.dependents():
		j.cascades()
		j.triggers()
	}
	j.action()
	j.rights()
	j.guardSettings()
	j.guards()
	j.privacyReads()
	j.doubleQuotes()
	if p.Subject != "" {
		if _, ok := t.Column(p.Subject); !ok {
			j.add(LevelRefuse, "subject_missing", j.columns(p.Subject), "subject: table %s has no column %q", t.Label, p.Subject)
		}
	}
	return j.out
}

// doubleQuotes refuses "column" on MySQL, which reads it as a text: the condition would be about a constant.
func (j *judgement) doubleQuotes() {
	if j.s.Engine != MySQL {
		return
	}
	privacy, query := "", ""
	if j.p.Privacy != nil {
		privacy = j.p.Privacy.Expr
	}
	if m := j.p.Action.Message; m != nil {
		query = m.Query
	}
	for _, part := range []struct{ name, sql string }{
		{"where", j.p.Where}, {"unless", j.p.Unless}, {"expr", j.p.Trigger.Expr}, {"privacy", privacy}, {"the query of email", query},
	} {
		if strings.Contains(literalOrName.ReplaceAllString(part.sql, ""), `"`) {
			j.add(LevelRefuse, "double_quotes", "write `column` with backquotes, and 'text' with single quotes",
				"%s has a double quote: MySQL reads \"word\" as a text and not as a column, so the condition would not be about the row", part.name)
		}
	}
}

// literalOrName matches what a double quote may stand in without harm.
var literalOrName = regexp.MustCompile("'(?:[^']|'')*'|`(?:[^`]|``)*`")

func (j *judgement) server() {
	s, at := j.s, 0
	switch {
	case s.Engine == Postgres:
		at = 12
	case s.MariaDB:
		at = 1006
	case s.Engine == MySQL:
		at = 800
	}
	have := s.Major
	if s.Engine == MySQL {
		have = s.Major*100 + s.Minor
	}
	if have < at {
		j.add(LevelRefuse, "server_too_old", "PostgreSQL 12, MariaDB 10.6 and MySQL 8.0 are the oldest that will do", "the server is version %s", s.Version)
	}
	if s.ReadOnly {
		j.add(j.onlyEnforce(), "read_only", "give the url of the primary, or write permission on the file", "the database cannot be written: it is a standby, read only, or a file of another user")
	}
}

// table judges the table as a whole, and says whether there is more to judge.
func (j *judgement) table() bool {
	t := j.t
	switch {
	case t.IsView:
		j.add(LevelRefuse, "table_is_view", "name the table whose rows are to go", "%s is a view", t.Label)
		return false
	case t.System:
		j.add(LevelRefuse, "table_is_system", "", "%s belongs to the database system", t.Label)
		return false
	case t.Temporary:
		j.add(LevelRefuse, "table_is_temporary", "", "%s is a temporary table", t.Label)
		return false
	case t.Storage == "virtual":
		j.add(LevelRefuse, "table_is_virtual", "", "%s is a virtual table", t.Label)
		return false
	case t.Storage == "foreign":
		j.add(LevelRefuse, "table_is_foreign", "connect curfew to the server that holds the rows", "%s is a foreign table: a receipt here would not commit with the rows there", t.Label)
		return false
	case j.s.Engine == MySQL && !strings.EqualFold(t.Storage, "InnoDB"):
		j.add(LevelRefuse, "storage_engine", "", "%s is stored by %s, which has no transactions: a receipt could not commit with the rows", t.Label, t.Storage)
		j.out[len(j.out)-1].Statement = fmt.Sprintf("ALTER TABLE %s ENGINE=InnoDB", j.name())
		return false
	}
	if t.RowSecurity {
		j.add(LevelRefuse, "row_security", "give curfew a role with BYPASSRLS, or the table's owner where it is not forced",
			"row security is active on %s for role %s: it would hide rows and a run would seem complete", t.Label, j.s.Role)
	}
	if t.Inherited {
		j.add(LevelInfo, "inheritance", "make a policy for each child that has rows to go", "%s has inheritance children; their rows are not touched", t.Label)
	}
	if t.Versioned {
		what := "a deleted row"
		if edits(j.p.Action.Kind) {
			what = "what a row was before"
		}
		j.add(LevelWarn, "system_versioned", "", "%s is system-versioned: %s lives on in its history", t.Label, what)
		j.out[len(j.out)-1].Statement = fmt.Sprintf("DELETE HISTORY FROM %s BEFORE SYSTEM_TIME '…'", j.name())
	}
	if t.Partitioned {
		j.add(LevelInfo, "partitions", "", "%s has %d partitions", t.Label, len(t.Partitions))
	}
	return true
}

func (j *judgement) name() string { return quoted(dialectFor(j.s), j.t.Schema, j.t.Name) }

// columns is the hint for a column that is not there.
func (j *judgement) columns(name string) string {
	var all []string
	for _, c := range j.t.Columns {
		if strings.EqualFold(strings.ReplaceAll(c.Name, "_", ""), strings.ReplaceAll(name, "_", "")) {
			return fmt.Sprintf("there is a column %q", c.Name)
		}
		all = append(all, c.Name)
	}
	const most = 12
	if len(all) > most {
		all = append(all[:most], "…")
	}
	return "its columns are " + strings.Join(all, ", ")
}

func (j *judgement) key() {
	missing := false
	for _, k := range j.p.Key {
		if _, ok := j.t.Column(k); !ok {
			missing = true
			j.add(LevelRefuse, "key_missing", j.columns(k), "key: table %s has no column %q", j.t.Label, k)
		}
	}
	if missing {
		return
	}
	cols, err := ResolveKey(j.p, j.t)
	if errors.Is(err, errUnordered) {
		j.add(LevelRefuse, "key_unordered", "add a unique index without an operator class or collation of its own", "%s",
			strings.TrimPrefix(err.Error(), ErrNoKey.Error()+": "))
		return
	}
	if err != nil {
		hint := "add a primary key or a unique index over NOT NULL columns"
		if len(j.p.Key) > 0 && len(j.t.Indexes) > 0 && j.t.Indexes[0].Primary {
			hint = fmt.Sprintf("leave key out to use the primary key (%s), or add a unique index over the NOT NULL columns (%s)",
				strings.Join(j.t.Indexes[0].Columns, ", "), strings.Join(j.p.Key, ", "))
		}
		j.add(LevelRefuse, "key_unusable", hint, "%s", strings.TrimPrefix(err.Error(), ErrNoKey.Error()+": "))
		return
	}
	for _, c := range cols {
		if !c.NotNull {
			j.add(LevelWarn, "key_nullable", fmt.Sprintf("declare %s NOT NULL", c.Name),
				"SQLite lets NULL into the primary key column %s; rows without a key are never touched", c.Name)
		}
	}
}

// Children whose rows change when ours go, by their foreign keys.
func (j *judgement) cascades() {
	if edits(j.p.Action.Kind) {
		for _, name := range j.p.Cascade {
			j.add(LevelWarn, "cascade_unknown", "remove it", "cascade: %s does nothing to rows of %s", j.p.Action.Kind, name)
		}
		return
	}
	if slices.Contains(j.t.Hidden, "foreign keys") {
		j.add(j.onlyEnforce(), "foreign_keys_hidden", "REFERENCES on the database shows the foreign keys and nothing of the rows",
			"role %s cannot see which tables reference %s, so a cascade could go unnoticed", j.s.Role, j.t.Label)
		j.out[len(j.out)-1].Statement = fmt.Sprintf("GRANT REFERENCES ON %s.* TO %s", mysqlDialect{}.ident(cmp.Or(j.t.Schema, j.s.Database)), grantee(j.s))
	}
	var refused, names, keepers, along, unlisted []string
	used := map[string]bool{}
	for _, fk := range j.references() {
		if j.followed(fk) {
			continue
		}
		what := fmt.Sprintf("%s (%s) ON DELETE %s", fk.Child, strings.Join(fk.ChildColumns, ", "), fk.OnDelete)
		switch fk.OnDelete {
		case Cascade, SetNull, SetDefault:
			if j.family != nil && fk.OnDelete == Cascade {
				unlisted = append(unlisted, what)
				continue
			}
			if name, ok := j.accepts(fk.Child); ok {
				used[name] = true
				word := "go along"
				if fk.OnDelete != Cascade {
					word = "lose their reference"
				}
				along = append(along, fmt.Sprintf("rows of %s %s (accepted): (%s) ON DELETE %s", fk.Child, word, strings.Join(fk.ChildColumns, ", "), fk.OnDelete))
				continue
			}
			refused = append(refused, what)
			if !slices.Contains(names, fk.Child) {
				names = append(names, fk.Child)
			}
		default:
			if j.keeper(fk) {
				keepers = append(keepers, what)
			}
		}
	}
	if len(refused) > 0 {
		all := append(slices.Clone(j.p.Cascade), names...)
		j.add(LevelRefuse, "cascade_not_accepted", fmt.Sprintf("if that is meant, write cascade: [%s]", strings.Join(all, ", ")),
			"rows of other tables change when rows of %s go: %s", j.t.Label, strings.Join(refused, "; "))
	}
	if len(unlisted) > 0 {
		j.add(LevelRefuse, "dependent_unlisted", "put their tables into the list, where their rows go", "dependents: rows that are not listed go along: %s", strings.Join(unlisted, "; "))
	}
	for _, name := range j.p.Cascade {
		if !used[name] {
			j.add(LevelWarn, "cascade_unknown", "remove it, or correct its name", "cascade: %s is not a child of %s whose rows would change", name, j.t.Label)
		}
	}
	if len(keepers) > 0 {
		j.add(LevelInfo, "restricting_children", "", "a row of %s stays, and is reported as blocked, while it is referenced by %s", j.t.Label, strings.Join(keepers, "; "))
	}
	for _, what := range along {
		j.add(LevelInfo, "cascade_accepted", "", "%s", what)
	}
	j.cascadeSubjects(used)
}

// Children that go along: a hold on a data subject must know how they name one.
func (j *judgement) cascadeSubjects(used map[string]bool) {
	for _, name := range j.p.Cascade {
		i := slices.IndexFunc(j.p.CascadeSubjects, func(c policy.CascadeSubject) bool { return c.Table == name })
		switch {
		case !used[name]:
		case i < 0 && j.p.Subject != "":
			j.add(LevelWarn, "cascade_subject", fmt.Sprintf("write {table: %s, subject: COLUMN} under cascade:, or {table: %s, no_subject: true}", name, name),
				"cascade: %s does not say how it names the data subject, so that a hold on one asks %s alone", name, j.t.Label)
		case i >= 0 && j.p.CascadeSubjects[i].Subject != "":
			column := j.p.CascadeSubjects[i].Subject
			for label, columns := range j.t.ChildColumns {
				if child := (Table{Engine: j.t.Engine, Columns: columns}); j.t.names(name, label) {
					if _, ok := child.Column(column); !ok {
						j.add(LevelRefuse, "cascade_subject", "write the column as the database spells it", "cascade: %s has no column %q, which is to name the data subject", name, column)
					}
				}
			}
		}
	}
}

// accepts returns the entry of cascade that names the child: as the catalog labels it, or with the schema it shares with us.
func (j *judgement) accepts(child string) (string, bool) {
	for _, name := range j.p.Cascade {
		if j.t.names(name, child) {
			return name, true
		}
	}
	return "", false
}

func (j *judgement) triggers() {
	if slices.Contains(j.t.Hidden, "triggers") {
		j.add(LevelWarn, "triggers_hidden", "grant TRIGGER on the table", "role %s cannot see the triggers of %s", j.s.Role, j.t.Label)
	}
	var refused, names []string
	used := map[string]bool{}
	for _, g := range j.setOff() {
		event := cmp.Or(g.Event, "DELETE")
		if g.Timing == "RULE" {
			a := map[string]string{"INSERT": "an INSERT", "UPDATE": "an UPDATE", "DELETE": "a DELETE"}[event]
			j.add(LevelRefuse, strings.ToLower(event)+"_rule", "drop the rule, or name the table it leads to", "rule %s rewrites %s on %s into something else", g.Name, a, g.Table)
			continue
		}
		i := slices.IndexFunc(j.p.Triggers, func(n string) bool { return j.t.sameName(n, g.Name) })
		if i >= 0 {
			used[j.p.Triggers[i]] = true
			continue
		}
		refused = append(refused, fmt.Sprintf("%s %s %s ON %s", g.Name, g.Timing, event, g.Table))
		names = append(names, g.Name)
	}
	if len(refused) > 0 {
		all := append(slices.Clone(j.p.Triggers), names...)
		j.add(LevelRefuse, "triggers_not_accepted", fmt.Sprintf("see what they do; if that is meant, write triggers: [%s]", strings.Join(all, ", ")),
			"triggers fire when rows %s: %s", map[bool]string{true: "change", false: "go"}[edits(j.p.Action.Kind)], strings.Join(refused, "; "))
	}
	for _, name := range j.p.Triggers {
		if !used[name] {
			j.add(LevelWarn, "trigger_unknown", "remove it, or correct its name", "triggers: no trigger %s fires for a row that %s", name, map[bool]string{true: "changes", false: "goes"}[edits(j.p.Action.Kind)])
		}
	}
}

// setOff are the triggers that the policy's statements set off.
func (j *judgement) setOff() []Trigger {
	of := func(t *Table, event string) []Trigger {
		return slices.DeleteFunc(slices.Clone(t.Writes), func(g Trigger) bool { return g.Event != event })
	}
	switch to := j.t.Archive; {
	case edits(j.p.Action.Kind):
		return of(j.t, "UPDATE")
	case to != nil:
		return append(slices.Clone(j.t.Triggers), of(to, "INSERT")...)
	}
	return j.firing()
}

func (j *judgement) rights() {
	pr, grant := j.t.Privileges, func(what string) string {
		return fmt.Sprintf("GRANT %s ON %s TO %s", what, j.name(), grantee(j.s))
	}
	refuse := func(level Level, code, statement, format string, args ...any) {
		j.add(level, code, "", format, args...)
		j.out[len(j.out)-1].Statement = statement
	}
	if !pr.Select {
		refuse(LevelRefuse, "no_select", grant("SELECT"), "role %s may not SELECT from %s", j.s.Role, j.t.Label)
	}
	switch {
	case j.s.Engine == SQLite, j.p.Action.Kind.Tells(): // see read_only; a row that is told of stays as it is
	case edits(j.p.Action.Kind):
		if !pr.Update {
			refuse(j.onlyEnforce(), "no_update", grant("UPDATE"), "role %s may not UPDATE %s", j.s.Role, j.t.Label)
		}
		return
	case !pr.Delete && j.p.Mode == policy.Shadow:
		j.add(LevelInfo, "no_delete", "", "role %s may not DELETE from %s: a shadow run needs no more", j.s.Role, j.t.Label)
	case !pr.Delete:
		refuse(LevelRefuse, "no_delete", grant("DELETE"), "role %s may not DELETE from %s", j.s.Role, j.t.Label)
	}
	if j.s.Engine == Postgres && !pr.Update && j.p.Mode == policy.Enforce {
		cols := "…"
		if key, err := ResolveKey(j.p, j.t); err == nil {
			cols = postgresDialect{}.ident(key[0].Name)
		}
		refuse(LevelRefuse, "no_lock", grant("UPDATE ("+cols+")"),
			"role %s may not lock rows of %s: PostgreSQL asks for UPDATE on a column of it for SELECT … FOR UPDATE", j.s.Role, j.t.Label)
	}
}

// grantee writes the role as GRANT wants it.
func grantee(s Server) string {
	if s.Engine == MySQL {
		user, host, _ := strings.Cut(s.Role, "@")
		return fmt.Sprintf("'%s'@'%s'", user, host)
	}
	return postgresDialect{}.ident(s.Role)
}

// guards says how far a condition over other tables can be relied on. Our row is locked before the condition is judged, and
// an insert of a row that references ours waits for that lock; nothing makes other changes wait.
func (j *judgement) guards() {
	for _, c := range []struct{ what, sql string }{{"unless", j.p.Unless}, {"where", j.p.Where}, {"the trigger's expr", j.p.Trigger.Expr}} {
		var loose []string
		for _, table := range tablesRead(c.sql) {
			child := slices.ContainsFunc(j.t.Children, func(fk ForeignKey) bool {
				return fk.Parent == j.t.Label && j.t.sameName(fk.Child, table)
			})
			if !child && j.s.Engine != SQLite && !slices.Contains(loose, table) {
				loose = append(loose, table)
			}
		}
		if len(loose) > 0 {
			j.add(LevelWarn, "guard_best_effort", fmt.Sprintf("a foreign key from it to %s makes an insert wait for a delete in progress", j.t.Label),
				"%s reads %s, which has no foreign key to %s: a row inserted there at the same moment may be missed (best effort)",
				c.what, strings.Join(loose, ", "), j.t.Label)
		}
	}
}

package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"curfew.dev/curfew/policy"
)

// A Suggestion is a policy that a table looks as if it wanted: the pieces of one, in shadow mode, for a person to read.
type Suggestion struct {
	Name    string // of the policy: unique among the suggestions
	Table   string
	Key     []string // empty when the table has no usable key
	Column  string
	Until   bool   // the column states the due instant; else it starts the clock
	Zone    string // "" when the column needs none
	Unit    policy.Unit
	Format  policy.Format
	Null    policy.NullRule
	Keep    string // a starting point for since; "" for until
	Subject string // a column that names a person; "" when none was seen
	Rows    int64  // -1 when unknown
	// Cascade and Triggers would have to be accepted before the policy is enforced.
	Cascade, Triggers []string
	Why               []string // what spoke for it
	Caveats           []string // what a person must look at
	// Refusals are what keeps it from running as it stands, other than Cascade and Triggers.
	Refusals []string
	score    int
}

// Policy is the suggestion as a policy of the database.
func (s Suggestion) Policy(database string) *policy.Policy {
	p := &policy.Policy{Name: s.Name, Database: database, Table: s.Table, Key: s.Key, Subject: s.Subject, Action: policy.Action{Kind: policy.Delete},
		Mode: policy.Shadow, Timezone: policy.DefaultTimezone, Batch: policy.DefaultBatch(), Retry: policy.DefaultRetry(),
		Trigger: policy.Trigger{Until: s.Until, Column: s.Column, Zone: s.Zone, Unit: s.Unit, Format: s.Format, Null: s.Null}}
	if keep, err := policy.ParsePeriod(s.Keep); err == nil && s.Keep != "" {
		p.Keep = keep
	}
	return p
}

// Suggest looks at all tables of the user and proposes a policy for each that looks as if its rows should not stay for ever,
// the surest first. It reads the catalog and bounded samples.
func (d *DB) Suggest(ctx context.Context) ([]Suggestion, error) {
	_, tables, err := d.userTables(ctx)
	if err != nil {
		return nil, fmt.Errorf("tables of database %q: %w", d.Name, redact(err))
	}
	var out []Suggestion
	for _, name := range tables {
		t, err := d.Inspect(ctx, name)
		if errors.Is(err, ErrNoTable) || classify(err) == classPermission {
			continue // gone meanwhile, or none of ours
		}
		if err != nil {
			return nil, err
		}
		s, err := d.suggest(ctx, t)
		if classify(err) == classPermission {
			continue // rows that we may not see
		}
		if err != nil {
			return nil, fmt.Errorf("table %s of database %q: %w", name, d.Name, redact(err))
		}
		if s != nil {
			out = append(out, *s)
		}
	}
	slices.SortFunc(out, func(a, b Suggestion) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(b.Rows, a.Rows), cmp.Compare(a.Table, b.Table))
	})
	used := map[string]int{}
	for i := range out {
		name := policyName(out[i].Table)
		if used[name]++; used[name] > 1 {
			name = fmt.Sprintf("%s_%d", name, used[name])
		}
		out[i].Name = name
	}
	return out, nil
}

// Tables lists the tables that Suggest goes through, proposed or not.
func (d *DB) Tables(ctx context.Context) ([]string, error) {
	all, _, err := d.userTables(ctx)
	return all, redact(err)
}

// userTables lists the tables of the user, and those in which some column's name speaks of time: most tables of a large schema
// need not be looked at any closer.
func (d *DB) userTables(ctx context.Context) (all, candidates []string, err error) {
	query := map[Engine]string{
		Postgres: `SELECT ` + pgLabel + `, a.attname::text
			FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid
			WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND c.relpersistence <> 't' AND a.attnum > 0 AND NOT a.attisdropped
			  AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'curfew') AND n.nspname NOT LIKE 'pg\_%'
			  AND NOT EXISTS (SELECT FROM pg_depend e WHERE e.classid = 'pg_class'::regclass AND e.objid = c.oid AND e.deptype = 'e')
			ORDER BY 1, a.attnum`,
		MySQL: `SELECT TABLE_NAME, COLUMN_NAME FROM information_schema.COLUMNS c JOIN information_schema.TABLES t USING (TABLE_SCHEMA, TABLE_NAME)
			WHERE TABLE_SCHEMA = DATABASE() AND t.TABLE_TYPE LIKE '%BASE TABLE%' OR TABLE_SCHEMA = DATABASE() AND t.TABLE_TYPE = 'SYSTEM VERSIONED'
			ORDER BY TABLE_NAME, ORDINAL_POSITION`,
		SQLite: `SELECT m.name, x.name FROM main.sqlite_master m, pragma_table_xinfo(m.name, 'main') x
			WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite\_%' ESCAPE '\' AND m.sql NOT LIKE 'CREATE VIRTUAL%' ORDER BY m.name, x.cid`,
	}
	rows, err := d.SQL.QueryContext(ctx, query[d.Engine])
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var table, column string
		if err := rows.Scan(&table, &column); err != nil {
			return nil, nil, err
		}
		if toolTable(table) {
			continue
		}
		if n := len(all); n == 0 || all[n-1] != table { // the rows are in the order of the tables
			all = append(all, table)
		}
		if readName(table, column).score > 0 && !slices.Contains(candidates, table) {
			candidates = append(candidates, table)
		}
	}
	return all, candidates, rows.Err()
}

// toolTable says whether the table belongs to curfew or to a tool that keeps its own state in it.
func toolTable(table string) bool {
	_, name := parts(table)
	name = strings.ToLower(name)
	for _, prefix := range []string{"curfew_", "river_", "goose_", "flyway_", "knex_", "databasechangelog", "alembic_", "schema_migration", "sqlx_"} {
		if strings.HasPrefix(name, prefix) || strings.HasPrefix(name, "_"+prefix) {
			return true
		}
	}
	return strings.HasSuffix(name, "_migrations") || name == "migrations" || name == "schema_version"
}

// suggest makes the best of a table's columns, or nil when none will do.
func (d *DB) suggest(ctx context.Context, t *Table) (*Suggestion, error) {
	type candidate struct {
		Column
		reading
	}
	var found []candidate
	for _, c := range t.Columns {
		r := readName(t.Label, c.Name)
		switch c.Kind {
		case KindInt, KindDecimal, KindFloat, KindText, KindBytes, KindDate, KindTime, KindInstant, KindAny:
			if r.score >= leastScore {
				found = append(found, candidate{c, r})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b candidate) int { return cmp.Compare(b.score, a.score) })
	for _, c := range found {
		s := &Suggestion{Table: t.Label, Column: c.Name, Until: c.until, Keep: c.keep, Rows: t.EstRows, score: c.score,
			Why: []string{fmt.Sprintf("%s: %s", c.Name, c.why)}}
		ok, err := d.declare(ctx, t, c.Column, s)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		for _, other := range found {
			if other.Name != c.Name {
				s.Why = append(s.Why, fmt.Sprintf("also %s: %s", other.Name, other.why))
			}
		}
		s.surroundings(t, d.server)
		return s, nil
	}
	return nil, nil
}

// declare finds out what the column's type leaves open: zone, unit, format, null. It says whether the column can be a trigger.
func (d *DB) declare(ctx context.Context, t *Table, c Column, s *Suggestion) (bool, error) {
	if !c.NotNull {
		s.Null = policy.NullNever
	}
	switch c.Kind {
	case KindInstant:
		return true, nil
	case KindTime, KindDate:
		s.Zone = "UTC"
		s.Caveats = append(s.Caveats, fmt.Sprintf("%s has no time zone: in which zone does the application write it? UTC is a guess", c.Name))
		return true, nil
	}
	now, err := d.Now(ctx)
	if err != nil {
		return false, err
	}
	late := now.AddDate(0, 0, 1)
	if c.Kind != KindText && c.Kind != KindBytes {
		n, err := d.takeNumbers(ctx, t, &trigger{domain: numberDomain, column: &c, unit: policy.Seconds}, late)
		if err != nil {
			return false, err
		}
		if n.rows-n.nulls == 0 {
			return s.guess(c), nil
		}
		best := policy.Unit("")
		for _, u := range units {
			if n.fits[u] > n.fits[best] {
				best = u
			}
		}
		if 2*n.fits[best] > n.positive && n.positive > 0 && 2*n.unreadable < n.rows-n.nulls {
			s.Unit = best
			s.Why = append(s.Why, fmt.Sprintf("%s of a sample of %d rows are of this age when read as %s", percent(n.fits[best], n.rows-n.nulls), n.rows, best))
			return true, nil
		}
		if c.Kind != KindAny {
			return false, nil
		}
	}
	return d.declareText(ctx, t, c, s)
}

// declareText tries the formats; one that reads nearly all of the texts is the column's.
func (d *DB) declareText(ctx context.Context, t *Table, c Column, s *Suggestion) (bool, error) {
	now, err := d.Now(ctx)
	if err != nil {
		return false, err
	}
	utc := policy.Policy{Trigger: policy.Trigger{Zone: "UTC"}}
	for _, try := range []struct {
		format policy.Format
		zone   string
	}{{policy.ISO8601, ""}, {policy.ISO8601, "UTC"}, {policy.Compact, "UTC"}} {
		tr := &trigger{domain: domain(try.format), format: try.format, column: &c, bytes: c.Kind == KindBytes}
		if try.zone != "" {
			tr.zone = utc.TriggerLocation()
		}
		if c.Kind == KindBytes && try.format == policy.ISO8601 {
			continue
		}
		n, err := d.takeText(ctx, t, tr, now)
		if err != nil {
			return false, err
		}
		told := n.rows - n.nulls - n.blank
		if told == 0 {
			return s.guess(c), nil
		}
		if 10*(n.unreadable-n.blank) > told {
			continue
		}
		s.Format, s.Zone = try.format, try.zone
		s.Why = append(s.Why, fmt.Sprintf("%s of a sample of %d rows read as %s", percent(n.rows-n.nulls-n.unreadable, n.rows-n.nulls), n.rows, try.format))
		if try.zone != "" {
			s.Caveats = append(s.Caveats, fmt.Sprintf("values of %s name no time zone: in which zone does the application write them? UTC is a guess", c.Name))
		}
		return true, nil
	}
	return false, nil
}

// guess declares a column of which no row says anything, by its type; text alone is too little.
func (s *Suggestion) guess(c Column) bool {
	u := strings.ToUpper(c.Declared)
	switch {
	case c.Kind == KindInt, c.Kind == KindAny && c.Type == "INTEGER":
		s.Unit = policy.Seconds
		s.Caveats = append(s.Caveats, fmt.Sprintf("no row has a %s yet: unit: s is a guess", c.Name))
	case c.Kind == KindAny && (strings.Contains(u, "DATE") || strings.Contains(u, "TIME")):
		s.Format, s.Zone = policy.ISO8601, "UTC"
		s.Caveats = append(s.Caveats, fmt.Sprintf("no row has a %s yet: its format and zone are guesses", c.Name))
	default:
		return false
	}
	return true
}

// surroundings adds what the rest of the table means for the policy.
func (s *Suggestion) surroundings(t *Table, server Server) {
	if key, err := ResolveKey(&policy.Policy{Table: s.Table}, t); err == nil {
		s.Key = names(key)
	}
	s.Subject = subjectOf(t, s.Key)
	for _, fk := range t.Children {
		if fk.OnDelete != NoAction && fk.OnDelete != Restrict && !slices.Contains(s.Cascade, fk.Child) {
			s.Cascade = append(s.Cascade, fk.Child)
		}
	}
	if len(s.Cascade) > 0 {
		s.Caveats = append(s.Caveats, "rows of "+strings.Join(s.Cascade, ", ")+" go along or lose their reference; accepting that takes cascade: ["+strings.Join(s.Cascade, ", ")+"]")
	}
	for _, g := range t.Triggers {
		s.Triggers = append(s.Triggers, g.Name)
	}
	if len(s.Triggers) > 0 {
		s.Caveats = append(s.Caveats, "triggers fire on delete; accepting them takes triggers: ["+strings.Join(s.Triggers, ", ")+"]")
	}
	p := s.Policy("database")
	p.Cascade, p.Triggers = s.Cascade, s.Triggers
	for _, f := range Judge(p, t, server) {
		switch {
		case f.Level == LevelRefuse:
			s.Refusals = append(s.Refusals, strings.TrimSuffix(f.Message+"; "+f.Hint, "; "))
		case f.Code == "restricting_children" || f.Level == LevelWarn:
			s.Caveats = append(s.Caveats, f.Message)
		}
	}
	if tr, err := resolveTrigger(p, t, server); err == nil && !tr.ordered() {
		if tr.unsorted() {
			s.Caveats = append(s.Caveats, "no index can serve "+s.Column+", whose values do not compare as they are stored: every run looks at every row")
		} else {
			s.Caveats = append(s.Caveats, "no index serves "+s.Column+": every run looks at every row")
		}
	}
}

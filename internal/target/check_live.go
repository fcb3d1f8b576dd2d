package target

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"curfew.dev/curfew/policy"
)

// PageQuery is the text of a run's first page, of which Examine shows the plan; see Job.PageSQL.
type PageQuery struct {
	SQL  string
	Args []any
}

// largeTable is from how many rows on a scan of the whole table is worth a warning.
const largeTable = 100_000

// Examine looks at the live table for what Judge cannot know from the catalog: how it would be read, what a sample of the
// trigger holds, and whether the server can be worked with. It reads a bounded number of rows, whatever the table's size, and
// tells shares of them, never a value. The policy must have passed Judge.
func (d *DB) Examine(ctx context.Context, p *policy.Policy, t *Table, page PageQuery) ([]Finding, error) {
	j := &judgement{p: p, t: t, s: d.server}
	j.size()
	j.indexes()
	for _, look := range []func(context.Context, *judgement) error{
		d.examineBinlog, d.examineClock,
		func(ctx context.Context, j *judgement) error { return d.examinePlan(ctx, j, page) },
		d.examineSample,
	} {
		if err := look(ctx, j); err != nil {
			return j.out, fmt.Errorf("table %s of database %q: %w", t.Label, d.Name, redact(err))
		}
	}
	return j.out, nil
}

func (j *judgement) size() {
	switch n := j.t.EstRows; {
	case n < 0:
		j.add(LevelInfo, "size", "ANALYZE the table", "the size of %s is not known", j.t.Label)
	default:
		j.add(LevelInfo, "size", "", "%s has about %d rows", j.t.Label, n)
	}
}

// indexes looks for the one that pages by the trigger need, and for those that the children need.
func (j *judgement) indexes() {
	tr, err := resolveTrigger(j.p, j.t, j.s)
	if err == nil && !tr.ordered() {
		key, _ := ResolveKey(j.p, j.t)
		switch {
		case tr.column == nil:
			j.add(LevelInfo, "paged_by_key", "", "the trigger is an expression, so every run looks at every row, in the order of the key")
		case tr.unsorted():
			j.add(LevelInfo, "paged_by_key", "", "values of %s do not compare as they are stored, so every run looks at every row, in the order of the key", tr.column.Name)
		default:
			j.add(LevelWarn, "trigger_index", "", "no index leads with %s, so every run looks at every row, in the order of the key", tr.column.Name)
			j.out[len(j.out)-1].Statement = j.createIndex(j.t.Schema, j.t.Name, distinct(append([]string{tr.column.Name}, names(key)...)))
		}
	}
	j.keepLastIndex()
	if edits(j.p.Action.Kind) || j.p.Action.Kind.Tells() {
		return // no row goes, and none is asked for its children
	}
	j.family, _ = familyOf(j.p, j.t)
	seen := map[string]bool{}
	for _, fk := range j.references() {
		schema, table := parts(fk.Child)
		what := fk.Child + " " + strings.Join(fk.ChildColumns, " ")
		if fk.Indexed || seen[what] {
			continue
		}
		seen[what] = true
		j.add(LevelWarn, "child_index", "", "no index of %s leads with (%s): each row that goes costs a scan of it", fk.Child, strings.Join(fk.ChildColumns, ", "))
		j.out[len(j.out)-1].Statement = j.createIndex(schema, table, fk.ChildColumns)
	}
}

func names(cols []Column) []string {
	out := make([]string, len(cols))
	for i, c := range cols {
		out[i] = c.Name
	}
	return out
}

// distinct leaves out what is there already.
func distinct(all []string) []string {
	var out []string
	for _, s := range all {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// createIndex writes a statement that does not keep writers out while it runs, where the engine has one.
func (j *judgement) createIndex(schema, table string, cols []string) string {
	d := dialectFor(j.s)
	on := quoted(d, schema, table)
	list := make([]string, len(cols))
	for i, c := range cols {
		list[i] = d.ident(c)
	}
	switch j.s.Engine {
	case Postgres:
		how := "CREATE INDEX CONCURRENTLY ON "
		if j.t.Partitioned && table == j.t.Name {
			how = "CREATE INDEX ON " // CONCURRENTLY is not for partitioned tables
		}
		return how + on + " (" + strings.Join(list, ", ") + ")"
	case MySQL: // whose indexes hold the primary key anyway
		if table == j.t.Name {
			list = list[:1]
		}
		return "ALTER TABLE " + on + " ADD INDEX (" + strings.Join(list, ", ") + "), ALGORITHM=INPLACE, LOCK=NONE"
	default:
		return "CREATE INDEX " + d.ident(table+"_"+strings.Join(cols, "_")) + " ON " + on + " (" + strings.Join(list, ", ") + ")"
	}
}

// examineBinlog finds the one setting of a MySQL server under which no DELETE of ours would be accepted.
func (d *DB) examineBinlog(ctx context.Context, j *judgement) error {
	if d.Engine != MySQL {
		return nil
	}
	var on bool
	var format string
	if err := d.SQL.QueryRowContext(ctx, `SELECT @@log_bin, @@binlog_format`).Scan(&on, &format); err != nil {
		return err
	}
	if on && format == "STATEMENT" {
		j.add(LevelRefuse, "binlog_statement", "", "the server logs statements and not rows (binlog_format STATEMENT), and takes no changes from a READ COMMITTED transaction then")
		j.out[len(j.out)-1].Statement = "SET GLOBAL binlog_format = 'ROW'"
	}
	return nil
}

// maxSkew is by how much the database's clock may differ from ours before it is worth a word. Runs use the ledger's clock.
const maxSkew = 30 * time.Second

func (d *DB) examineClock(ctx context.Context, j *judgement) error {
	before := time.Now()
	theirs, err := d.Now(ctx)
	if err != nil {
		return err
	}
	j.skew(theirs, before, time.Now())
	return nil
}

// skew compares the database's clock with the moments before and after it was asked.
func (j *judgement) skew(theirs, before, after time.Time) {
	var by time.Duration
	switch {
	case theirs.Before(before):
		by = before.Sub(theirs)
	case theirs.After(after):
		by = theirs.Sub(after)
	}
	if by > maxSkew {
		j.add(LevelWarn, "clock_skew", "run a time service on both machines", "the database's clock and this machine's differ by %s", by.Round(time.Second))
	}
}

func (d *DB) examinePlan(ctx context.Context, j *judgement, page PageQuery) error {
	if page.SQL == "" {
		return nil
	}
	summary, indexed, err := d.explainPlan(ctx, page.SQL, page.Args)
	switch class := classify(err); {
	case class == classCancelled || class == classConnection:
		return err
	case err != nil:
		// The database read the policy's SQL for the first time.
		j.add(LevelRefuse, "policy_sql", "correct where, unless or the trigger's expr", "the database does not accept the policy's SQL: %v", redact(err))
		return nil
	case !indexed && j.t.EstRows >= largeTable:
		j.add(LevelWarn, "plan", "", "a page is read without an index: %s", summary)
	default:
		j.add(LevelInfo, "plan", "", "a page is read by: %s", summary)
	}
	return nil
}

package target

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// Probe has the database read each piece of the policy's own SQL on its own, without running it, and names the one that it does
// not accept: it is misspelt, or reads a table that is not there or not ours to read. An error means that nothing was found out.
func (j *Job) Probe(ctx context.Context) ([]Finding, error) {
	pieces := []struct {
		setting, sql string
		write        func(*query)
	}{
		{"the trigger's expr", j.p.Trigger.Expr, func(q *query) { j.isDue(q) }},
		{"where", j.p.Where, func(q *query) { q.operator(j.p.Where).add(" IS TRUE") }},
		{"unless", j.p.Unless, func(q *query) { j.isDue(q); q.add(" AND ").operator(j.p.Unless).add(" IS TRUE") }},
	}
	if p := j.p.Privacy; p != nil {
		text := p.Expr
		if text == "" {
			text = p.Column // its constants must be of the column's type
		}
		pieces = append(pieces, struct {
			setting, sql string
			write        func(*query)
		}{"privacy", text, func(q *query) {
			q.add("1 = 1")
			j.notChosen(q)
			q.add(" AND ")
			j.chosen(q, slices.Concat(p.Never, p.Default, p.Forever))
		}})
	}
	if m := j.p.Action.Message; m != nil && m.Query != "" {
		pieces = append(pieces, struct {
			setting, sql string
			write        func(*query)
		}{"the query of email", m.Query, func(q *query) { j.address(q, 0); q.add(" IS NOT NULL") }})
	}
	out, err := j.probeDependents(ctx)
	if err != nil {
		return out, err
	}
	for _, p := range pieces {
		if p.sql == "" {
			continue
		}
		q := newQuery(j.d).add("SELECT 1 FROM ", j.d.rows(j.t), " WHERE ")
		p.write(q)
		err := j.db.dryRun(ctx, q.String(), q.args...)
		switch classify(err) {
		case classNone:
			continue
		case classUndefined, classPermission, classOther:
		default:
			return out, redact(err)
		}
		f := Finding{Level: LevelRefuse, Code: "policy_sql", Hint: "correct it in the policy file",
			Message: fmt.Sprintf("the database does not accept %s: %v", p.setting, redact(err))}
		if classify(err) == classPermission {
			f.Hint = "a role that may read the tables it names"
			f.Statement = j.db.grantSelect(TablesRead(j.db.Engine, p.sql))
		}
		out = append(out, f)
		if p.setting == "the trigger's expr" {
			break // the others repeat it
		}
	}
	return out, nil
}

// probeDependents does the same for the conditions that join dependents, and says where finding their rows takes long.
func (j *Job) probeDependents(ctx context.Context) ([]Finding, error) {
	var out []Finding
	if j.family == nil {
		return nil, nil
	}
	for _, s := range j.family.steps {
		if s.on == "" {
			continue
		}
		q := newQuery(j.d).add("SELECT ", j.selectList(s.key), " FROM ", j.d.rows(s.t), " WHERE ")
		j.joined(q, s, &roots{j: j, cond: func(q *query) { j.isDue(q); j.inScope(q) }})
		summary, indexed, err := j.db.explainPlan(ctx, q.String(), q.args)
		switch classify(err) {
		case classNone:
			if !indexed && s.t.EstRows >= largeTable {
				out = append(out, Finding{Level: LevelWarn, Code: "dependent_plan", Message: fmt.Sprintf("each batch looks through all of %s for the rows that go along: %s", s.t.Label, summary)})
			}
			continue
		case classUndefined, classPermission, classOther:
		default:
			return out, redact(err)
		}
		f := Finding{Level: LevelRefuse, Code: "policy_sql", Hint: "correct it in the policy file",
			Message: fmt.Sprintf("the database does not accept on of %s: %v", s.t.Label, redact(err))}
		if classify(err) == classPermission {
			f.Hint = "a role that may read the tables it names"
			f.Statement = j.db.grantSelect(TablesRead(j.db.Engine, s.on))
		}
		out = append(out, f)
	}
	return out, nil
}

// dryRun has the database parse and plan a statement, and look at our privileges, without running it.
func (d *DB) dryRun(ctx context.Context, stmt string, args ...any) error {
	rows, err := d.SQL.QueryContext(ctx, "EXPLAIN "+stmt, args...)
	if err != nil {
		return err
	}
	for rows.Next() { // MySQL may answer first and fail afterwards
	}
	if err := rows.Err(); err != nil {
		rows.Close()
		return err
	}
	return rows.Close()
}

func (d *DB) grantSelect(tables []string) string {
	if len(tables) == 0 || d.Engine == SQLite {
		return ""
	}
	var out []string
	for _, t := range tables {
		out = append(out, "GRANT SELECT ON "+childTable(dialectFor(d.server), t)+" TO "+grantee(d.server))
	}
	return strings.Join(out, ";\n")
}

// ownNeed is something that a run does with one of curfew's own tables.
type ownNeed struct{ table, what, stmt string }

// ownNeeds are what a batch needs, each as a statement that a dry run judges.
var ownNeeds = []ownNeed{
	{"hold", "SELECT", "SELECT conditions FROM @hold"},
	{"receipt", "SELECT", "SELECT run FROM @receipt"},
	{"receipt", "INSERT", "INSERT INTO @receipt (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) " +
		"VALUES ('', '', 0, '', '', '', '2000-01-01', '2000-01-01', '', '2000-01-01')"},
	{"receipt", "UPDATE", "UPDATE @receipt SET planned = 0 WHERE run = ''"},
	{"tombstone", "SELECT", "SELECT run FROM @tombstone"},
	{"passage", "SELECT", "SELECT run FROM @passage"},
	{"passage", "INSERT", "INSERT INTO @passage (policy, row_hash, stage, due_us, state, as_of_us, run, attempt, detail, changed_at) VALUES ('', '', '', 0, '', 0, '', 0, '', '2000-01-01')"},
	{"passage", "UPDATE", "UPDATE @passage SET attempt = 0 WHERE run = ''"},
	{"passage", "DELETE", "DELETE FROM @passage WHERE run = ''"},
}

// CheckOwn says what our role may not do with curfew's own tables, which are there. What is missing keeps a run from changing
// anything; a shadow run needs only the holds.
func (d *DB) CheckOwn(ctx context.Context) ([]Finding, error) {
	if d.Engine == SQLite { // has no roles
		return nil, nil
	}
	dl := dialectFor(d.server)
	needs := ownNeeds
	if d.Engine == MySQL {
		needs = append(needs[:len(needs):len(needs)], ownNeed{"hold_epoch", "SELECT", "SELECT epoch FROM @hold_epoch WHERE one = 1 LOCK IN SHARE MODE"})
	}
	var out []Finding
	for _, n := range needs {
		err := d.dryRun(ctx, strings.ReplaceAll(n.stmt, "@", dl.own("")))
		switch classify(err) {
		case classNone:
			continue
		case classPermission:
		default:
			return out, redact(err)
		}
		out = append(out, Finding{Level: LevelRefuse, Code: "own_tables", Message: fmt.Sprintf("role %s may not %s %s", d.server.Role, n.what, dl.own(n.table)),
			Hint: "curfew install --print shows all that a role needs", Statement: fmt.Sprintf("GRANT %s ON %s TO %s", n.what, dl.own(n.table), grantee(d.server))})
	}
	return out, nil
}

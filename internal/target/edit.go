package target

import (
	"fmt"
	"slices"
	"time"

	"curfew.dev/curfew/internal/keyring"
	"curfew.dev/curfew/policy"
)

// edits reports whether the action changes columns and leaves the row where it is.
func edits(k policy.ActionKind) bool { return k == policy.Set || k == policy.Anonymise }

// An edit is what becomes of one column of a live table.
type edit struct {
	policy.Change
	col   Column
	value value // of a constant, a sentinel and as_of_plus
}

// resolveEdits binds the columns of set and anonymise. What does not fit was judged before (see Judge), and is an error here.
func resolveEdits(p *policy.Policy, t *Table, tr *trigger, asOf time.Time) ([]edit, error) {
	var out []edit
	for _, c := range p.Action.Columns {
		col, ok := t.Column(c.Column)
		if !ok {
			return nil, fmt.Errorf("table %s has no column %q", p.Table, c.Column)
		}
		e := edit{Change: c, col: col}
		why := ""
		switch {
		case c.AsOfPlus != nil:
			e.value, why = momentFor(p, t.Engine, col, tr, p.AsOfPlus(asOf, *c.AsOfPlus))
		case c.Constant() != nil:
			e.value, why = constantFor(p, t.Engine, col, *c.Constant())
		}
		if why != "" {
			return nil, fmt.Errorf("column %s of table %s: %s", col.Name, p.Table, why)
		}
		out = append(out, e)
	}
	return out, nil
}

// lasting reports whether the value tells a row to which the action was done from one to which it was not. One that moves with
// as_of does not.
func (e edit) lasting() bool { return e.AsOfPlus == nil }

// hashLen is how many characters a hashed value has.
const hashLen = len(policy.HashPrefix) + 32

// hashed is what a value becomes: the same text for the same value of the same column, and nothing that tells the value to who
// has not the installation's key.
func (j *Job) hashed(c Column, v value) string {
	return hashedBy(j.keys, j.p.Database, j.p.Table, c.Name, v)
}

func hashedBy(keys *keyring.Keyring, database, table, column string, v value) string {
	sum := keys.MAC("anonymised value", []byte(database), []byte(table), []byte(column), []byte(v.s))
	return fmt.Sprintf("%s%x", policy.HashPrefix, sum[:16])
}

// hasIt writes "the column already has its value", which is never NULL.
func (j *Job) hasIt(q *query, e edit) {
	if e.Hash {
		j.d.isHashed(q, e.col)
		return
	}
	j.d.same(q, e.col, func() { j.becomes(q, e) })
}

// becomes writes what the column becomes, from its own value where it depends on that. Hashes are not made by the database.
func (j *Job) becomes(q *query, e edit) {
	switch {
	case e.Truncate != "":
		q.add(j.d.truncated(e.col, e.Truncate, j.p.Location().String()))
	case e.Prefix > 0:
		q.add(j.d.prefixed(e.col, e.Prefix))
	case e.Band > 0:
		q.add(j.d.banded(e.col, e.Band))
	default:
		j.d.bind(q, e.col, e.value)
	}
}

// undone writes "and not every lasting column already has its value": a row to which the action was done is not planned, judged
// or changed again. In a stage it is what is recorded of the row that says so: its columns may have their values from before.
func (j *Job) undone(q *query) {
	if len(j.edits) == 0 || j.staged() {
		return
	}
	q.add(" AND NOT (")
	first := true
	for _, e := range j.edits {
		if !e.lasting() {
			continue
		}
		if !first {
			q.add(" AND ")
		}
		first = false
		j.hasIt(q, e)
	}
	q.add(")")
}

// took writes "and every column has its value", those that move with as_of included.
func (j *Job) took(q *query) {
	for _, e := range j.edits {
		q.add(" AND ")
		j.hasIt(q, e)
	}
}

// untouched are the columns that MySQL would set anew by itself.
func (j *Job) untouched() []Column {
	return slices.DeleteFunc(slices.Clone(j.t.Columns), func(c Column) bool {
		return !c.OnUpdate || slices.ContainsFunc(j.edits, func(e edit) bool { return e.col.Name == c.Name })
	})
}

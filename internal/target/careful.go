package target

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// reasonVeto is told of a row that was still there, still due and ours after the statement that should have removed it.
const reasonVeto = "a trigger of the database kept the row"

// changeCarefully locks the rows first and then judges and changes what it holds: nothing that another session does can come
// between. It is the way for policies whose SQL reads other tables, for batches in which something got in the way, and for
// rows that an earlier batch found locked (those it waits for).
func (x *execution) changeCarefully(ctx context.Context, w Work, keys []tuple) (*tally, error) {
	t := newTally()
	for chunk := range slices.Chunk(keys, x.j.d.maxKeys()) {
		if err := x.changeChunk(ctx, w, chunk, t); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (x *execution) changeChunk(ctx context.Context, w Work, keys []tuple, t *tally) error {
	ours, err := x.lock(ctx, keys, w.Phase == phaseRetry)
	if err != nil {
		return err
	}
	last := w.Phase == phaseRetry
	if !last { // the pass at the end has time, for what holds the rows' children too
		if err := x.waitFor(ctx, quickWait); err != nil {
			return err
		}
	}
	free := ours
	if x.j.readsOthers() {
		// What another table said may be as old as the moment when the lock was asked for. The rows are ours now: ask again.
		if free, err = x.only(ctx, ours, func(q *query) { q.add(" AND "); x.j.isDue(q); x.j.inScope(q) }); err != nil {
			return err
		}
	}
	var held []tuple
	if len(x.along) > 0 { // the rows are ours, so that none can come to hang on them: what is asked now stays so
		open, err := x.only(ctx, free, x.notHeldAlong)
		if err != nil {
			return err
		}
		held, free = without(free, open), open
		if err := x.noteHeld(ctx, t, held); err != nil {
			return err
		}
	}
	if x.j.guarded() {
		if free, err = x.unguardedOf(ctx, free); err != nil {
			return err
		}
	}
	free, settled, err := x.gate(ctx, free, t)
	if err != nil {
		return err
	}
	outcome := x.j.outcome()
	before, noted := len(t.byOutcome[outcome]), len(t.rows)
	if x.j.family != nil {
		err = x.tearDownInGroups(ctx, free, t, last)
	} else {
		err = x.changeIsolated(ctx, free, t, last)
	}
	if err != nil {
		return err
	}
	done := slices.Concat(t.byOutcome[outcome][before:], held, t.byOutcome["locked"], t.deferred, settled)
	for _, n := range t.rows[noted:] {
		done = append(done, n.key)
	}
	return x.account(ctx, t, without(keys, done), among(ours), last)
}

// lock locks those of the keys that are still due, in scope and not held, in the order of the key. Rows that others hold are
// left out; with wait they are waited for first.
func (x *execution) lock(ctx context.Context, keys []tuple, wait bool) ([]tuple, error) {
	if !wait {
		return x.lockNow(ctx, keys, false)
	}
	if err := x.waitFor(ctx, patientWait); err != nil {
		return nil, err
	}
	var ours []tuple
	err := x.savepoint(ctx, func() (err error) {
		ours, err = x.lockNow(ctx, keys, true)
		return err
	})
	if err != nil && classify(err) == classLockTimeout {
		return x.lockNow(ctx, keys, false)
	}
	return ours, err
}

func (x *execution) lockNow(ctx context.Context, keys []tuple, wait bool) ([]tuple, error) {
	j := x.j
	q := newQuery(j.d).add("SELECT ", j.readKey(), " FROM ", j.d.rows(j.t), j.byKeyIndex(), " WHERE ")
	j.d.keyIn(q, j.key, keys)
	q.add(" AND ")
	j.isDue(q)
	j.inScope(q)
	x.notHeld(q)
	q.add(j.orderBy(j.key), j.d.lockRows(wait))
	return j.tuples(ctx, x.c, q, j.key)
}

// byKeyIndex makes MySQL find rows by their key. By the trigger's index, which it may prefer where few rows are due, it would
// sort them afterwards and keep every row locked that it looked at, one beyond the cutoff included.
func (j *Job) byKeyIndex() string { return j.keyIndex(j.t, j.key) }

func (j *Job) keyIndex(t *Table, key []Column) string {
	if j.db.Engine != MySQL {
		return ""
	}
	ix, ok := t.KeyIndex(names(key))
	if !ok {
		return ""
	}
	return " FORCE INDEX (" + j.d.ident(ix.Name) + ")"
}

// unguardedOf asks, in a statement of its own and so with a fresh view of the other tables, which rows no guard keeps.
func (x *execution) unguardedOf(ctx context.Context, keys []tuple) ([]tuple, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	j := x.j
	q := newQuery(j.d).add("SELECT ", j.readKey(), " FROM ", j.d.rows(j.t), " WHERE ")
	j.d.keyIn(q, j.key, keys)
	j.unguarded(q)
	return j.tuples(ctx, x.c, q, j.key)
}

// changeIsolated does to the rows what the policy says; those that the database refuses are found, set aside with the reason, and the rest goes; last
// says that rows found locked have had their second chance.
func (x *execution) changeIsolated(ctx context.Context, keys []tuple, t *tally, last bool) error {
	if len(keys) == 0 {
		return nil
	}
	err := x.changeCounted(ctx, keys, t)
	if err == nil || !x.ofRows(ctx, err) {
		return err
	}
	if classify(err) == classConstraint || errors.As(err, new(errOrphans)) {
		// What a foreign key keeps is asked for at once: halving alone would take many statements where many rows are kept,
		// and SQLite does not say which constraint spoke.
		kept, kerr := x.keptBy(ctx, keys, t)
		if kerr != nil {
			return kerr
		}
		keys = without(keys, kept)
	}
	refused, err := x.halve(ctx, keys, t)
	for err == nil && len(refused) > 1 && x.j.selfRef {
		// A row may have been kept by another of this table which is gone by now.
		var again []refusal
		var rows []tuple
		for _, r := range refused {
			rows = append(rows, r.key)
		}
		if again, err = x.halve(ctx, rows, t); len(again) == len(refused) {
			break
		}
		refused = again
	}
	if err != nil {
		return err
	}
	for _, r := range refused {
		if r.outcome == "locked" && last {
			t.put("locked", r.key)
			continue
		}
		if r.outcome == "locked" {
			t.deferred = append(t.deferred, r.key)
			continue
		}
		if r.outcome == "" {
			continue // account finds out
		}
		t.refuse(r.key, errRefused{r.outcome, r.reason})
	}
	return nil
}

type refusal struct {
	key             tuple
	outcome, reason string
}

// halve changes by halves and returns the single rows that the database refuses.
func (x *execution) halve(ctx context.Context, keys []tuple, t *tally) ([]refusal, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	err := x.changeCounted(ctx, keys, t)
	switch {
	case err == nil:
		return nil, nil
	case !x.ofRows(ctx, err):
		return nil, err
	case len(keys) == 1:
		r, err := x.named(ctx, refusalOf(keys[0], err), err)
		return []refusal{r}, err
	case classify(err) == classLockTimeout:
		// Each half would wait again. After a few such waits the rest is left for the pass at the end.
		if x.waits++; x.waits > 5 {
			var all []refusal
			for _, k := range keys {
				all = append(all, refusal{key: k, outcome: "locked"})
			}
			return all, nil
		}
	}
	left, err := x.halve(ctx, keys[:len(keys)/2], t)
	if err != nil {
		return nil, err
	}
	right, err := x.halve(ctx, keys[len(keys)/2:], t)
	return append(left, right...), err
}

// named gives the constraint that keeps something of what hangs on the row, where the engine does not say which it was.
func (x *execution) named(ctx context.Context, r refusal, cause error) (refusal, error) {
	if x.j.family == nil || classify(cause) != classConstraint || faultOf(cause).Constraint != "" {
		return r, nil
	}
	d, err := x.gather(ctx, []tuple{r.key}, false, maxHanging)
	if err != nil {
		return r, err
	}
	kept, err := x.keepers(ctx, []tuple{r.key}, d)
	if len(kept) > 0 {
		r.reason = kept[0]
	}
	return r, err
}

func refusalOf(key tuple, err error) refusal {
	r := refusal{key: key, outcome: "blocked"}
	var f *Fault
	var o errOrphans
	var e errRefused
	switch class := classify(err); {
	case errors.Is(err, errUneven):
		r.outcome = ""
	case errors.As(err, new(errArchiving)) && class != classLockTimeout:
		return archiveRefusal(key, err)
	case errors.As(err, &o):
		r.reason = o.constraint
	case errors.As(err, &e):
		r.outcome, r.reason = e.outcome, e.reason
	case class == classLockTimeout:
		r.outcome = "locked"
	case errors.As(redact(err), &f) && f.Constraint != "":
		r.reason = f.Constraint
	default:
		r.reason = redact(err).Error()
	}
	return r
}

// changeCounted changes the rows inside a savepoint, with every condition repeated, and counts what goes along.
func (x *execution) changeCounted(ctx context.Context, keys []tuple, t *tally) error {
	var gone []tuple
	var along int64
	if x.j.family != nil {
		return x.tearDownCounted(ctx, keys, t)
	}
	err := x.savepoint(ctx, func() (err error) {
		if along, err = x.countCascade(ctx, keys); err != nil {
			return err
		}
		switch {
		case len(x.j.edits) > 0:
			gone, err = x.editKeys(ctx, keys)
			return err
		case x.j.t.Archive != nil:
			gone, err = x.archiveKeys(ctx, keys)
		default:
			gone, err = x.deleteKeys(ctx, keys)
		}
		if err != nil {
			return err
		}
		return x.orphans(ctx, gone)
	})
	if err != nil {
		return err
	}
	if along > 0 && len(gone) < len(keys) {
		// A trigger kept some: what went along is then what hung on the others. Their children are gone, so what is left
		// is subtracted.
		left, err := x.countCascade(ctx, without(keys, gone))
		if err != nil {
			return err
		}
		along -= left
	}
	t.put(x.j.outcome(), gone...)
	t.cascaded += along
	return nil
}

// deleteKeys deletes by key, and answers which rows went.
func (x *execution) deleteKeys(ctx context.Context, keys []tuple) ([]tuple, error) {
	j := x.j
	q := newQuery(j.d).add(j.deleteFrom(j.t, j.key))
	j.d.keyIn(q, j.key, keys)
	x.conditions(q)
	if j.d.returning() && j.db.Engine != MySQL {
		q.add(" RETURNING ", j.readKey())
		return j.tuples(ctx, x.c, q, j.key)
	}
	r, err := x.c.ExecContext(ctx, q.String(), q.args...)
	if err != nil {
		return nil, err
	}
	n, err := r.RowsAffected()
	if err != nil || n == int64(len(keys)) {
		return keys, err
	}
	// Some stayed: look which. The rows are ours, so nobody else can have removed them.
	still := newQuery(j.d).add("SELECT ", j.readKey(), " FROM ", j.d.rows(j.t), " WHERE ")
	j.d.keyIn(still, j.key, keys)
	left, err := j.tuples(ctx, x.c, still, j.key)
	return without(keys, left), err
}

// deleteFrom begins a DELETE by key. On MySQL the form for several tables is the one that takes an index by name: through another,
// the statement would wait for rows that it looks at and does not mean. It has no RETURNING.
func (j *Job) deleteFrom(t *Table, key []Column) string {
	if j.db.Engine == MySQL {
		return "DELETE " + j.d.rows(t) + " FROM " + j.d.rows(t) + j.keyIndex(t, key) + " WHERE "
	}
	return "DELETE FROM " + j.d.rows(t) + " WHERE "
}

// keptBy finds the rows that a foreign key without an action keeps, and notes them as blocked by it.
func (x *execution) keptBy(ctx context.Context, keys []tuple, t *tally) ([]tuple, error) {
	j := x.j
	var kept []tuple
	for _, fk := range j.restricting {
		if !fk.ChildSelect || fk.Child == j.t.Label {
			continue
		}
		rest := without(keys, kept)
		if len(rest) == 0 {
			break
		}
		q := newQuery(j.d).add("SELECT ", j.readKey(), " FROM ", j.d.rows(j.t), " WHERE ")
		j.d.keyIn(q, j.key, rest)
		q.add(" AND ")
		j.referencedBy(q, fk)
		found, err := j.tuples(ctx, x.c, q, j.key)
		if classify(err) == classPermission && j.db.Engine == MySQL {
			continue // what MySQL lets us see of our rights is not all; without this look the halves find the rows
		}
		if err != nil {
			return nil, err
		}
		for _, k := range found {
			t.note("blocked", fkName(fk), k)
		}
		kept = append(kept, found...)
	}
	return kept, nil
}

// referencedBy writes "a row of the child references this one".
func (j *Job) referencedBy(q *query, fk ForeignKey) {
	q.add("EXISTS (SELECT 1 FROM ", childTable(j.d, fk.Child), " curfew_child WHERE ")
	for i := range fk.ChildColumns {
		if i > 0 {
			q.add(" AND ")
		}
		q.add("curfew_child.", j.d.ident(fk.ChildColumns[i]), " = ", quoted(j.d, j.t.Schema, j.t.Name), ".", j.d.ident(fk.ParentColumns[i]))
	}
	q.add(")")
}

func childTable(d dialect, name string) string {
	schema, table := parts(name)
	return quoted(d, schema, table)
}

// fkName names the constraint, or describes it where the engine gives it no name.
func fkName(fk ForeignKey) string {
	if fk.Name != "" {
		return fk.Name
	}
	return fmt.Sprintf("foreign key of %s (%s)", fk.Child, strings.Join(fk.ChildColumns, ", "))
}

// errOrphans stands for a deferred foreign key of SQLite, which would speak only at COMMIT.
type errOrphans struct{ constraint string }

func (e errOrphans) Error() string { return "foreign key violated: " + e.constraint }

// orphans looks, on SQLite, for rows that a deferred foreign key would find at COMMIT. The other engines check by statement.
func (x *execution) orphans(ctx context.Context, gone []tuple) error {
	j := x.j
	if j.db.Engine != SQLite || len(gone) == 0 {
		return nil
	}
	for _, fk := range j.restricting {
		if !fk.Deferred {
			continue
		}
		for chunk := range slices.Chunk(gone, j.d.maxKeys()) {
			ok, err := x.referenced(ctx, fk, chunk)
			if err != nil {
				return err
			}
			if ok {
				return errOrphans{fkName(fk)}
			}
		}
	}
	return nil
}

// referenced asks whether a row of the child references one of the (deleted) keys. Where the foreign key does not reference
// the key's own columns, the whole child is looked at for orphans.
func (x *execution) referenced(ctx context.Context, fk ForeignKey, gone []tuple) (bool, error) {
	j := x.j
	q := newQuery(j.d).add("SELECT EXISTS (SELECT 1 FROM ", childTable(j.d, fk.Child), " WHERE ")
	if cols, ok := matching(j.key, fk); ok {
		j.d.keyIn(q, cols, gone)
	} else {
		for _, c := range fk.ChildColumns {
			q.add(j.d.ident(c), " IS NOT NULL AND ")
		}
		q.add("NOT EXISTS (SELECT 1 FROM ", quoted(j.d, j.t.Schema, j.t.Name), " curfew_parent WHERE ")
		for i := range fk.ChildColumns {
			if i > 0 {
				q.add(" AND ")
			}
			q.add("curfew_parent.", j.d.ident(fk.ParentColumns[i]), " = ", childTable(j.d, fk.Child), ".", j.d.ident(fk.ChildColumns[i]))
		}
		q.add(")")
	}
	var found bool
	err := x.c.QueryRowContext(ctx, q.add(")").String(), q.args...).Scan(&found)
	return found, err
}

// matching maps the key's columns to the child's, in the key's order, when the foreign key references exactly the key.
func matching(key []Column, fk ForeignKey) ([]Column, bool) {
	if len(key) != len(fk.ParentColumns) {
		return nil, false
	}
	var cols []Column
	for _, c := range key {
		i := slices.Index(fk.ParentColumns, c.Name)
		if i < 0 {
			return nil, false
		}
		c.Name = fk.ChildColumns[i]
		cols = append(cols, c)
	}
	return cols, true
}

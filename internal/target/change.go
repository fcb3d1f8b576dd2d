package target

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// What set, anonymise and archive do to rows that are locked and judged. Each is one attempt inside a savepoint: it is done to all
// of the keys, or undone and answered with an error.

// errUneven says that the database did to some of the rows something else than what it was told, and named no error: a trigger
// kept a row, or put a value of its own in it, or what another table says changed this moment. The rows are told apart by halves;
// what is to be said of one alone is found out when it is accounted for.
var errUneven = errors.New("the database did not change each row as it was told")

// errArchiving is an error of the archive: its constraints, its triggers.
type errArchiving struct{ err error }

func (e errArchiving) Error() string { return e.err.Error() }
func (e errArchiving) Unwrap() error { return e.err }

// editKeys sets the columns of the rows, with every condition repeated, and looks whether they took. Where some did not it is
// undone, and done again to those that did.
func (x *execution) editKeys(ctx context.Context, keys []tuple) ([]tuple, error) {
	for again := false; ; again = true {
		var changed []tuple
		err := x.savepoint(ctx, func() (err error) {
			for chunk := range slices.Chunk(keys, x.j.editsAtOnce()) {
				if err := x.update(ctx, chunk); err != nil {
					return err
				}
			}
			if changed, err = x.only(ctx, keys, x.j.took); err == nil && len(changed) < len(keys) {
				return errUneven
			}
			return err
		})
		if !errors.Is(err, errUneven) || again || len(changed) == 0 {
			if errors.Is(err, errUneven) && len(changed) == 0 {
				err = nil // nothing was changed, or what was is undone: nothing to tell apart
			}
			return changed, err
		}
		keys = changed
	}
}

// editsAtOnce bounds the rows of one UPDATE. One that writes a hash into each row has a branch for each.
func (j *Job) editsAtOnce() int {
	if slices.ContainsFunc(j.edits, func(e edit) bool { return e.Hash }) {
		return 100
	}
	return j.d.maxKeys()
}

func (x *execution) update(ctx context.Context, keys []tuple) error {
	j := x.j
	hashes, err := x.hashes(ctx, keys)
	if err != nil {
		return err
	}
	q := newQuery(j.d).add("UPDATE ", j.d.rows(j.t), j.byKeyIndex(), " SET ")
	for i, e := range j.edits {
		if i > 0 {
			q.add(", ")
		}
		q.add(j.d.ident(e.col.Name), " = ")
		if e.Hash {
			hashes.write(q, e.col)
			continue
		}
		j.becomes(q, e)
	}
	for _, c := range j.untouched() {
		q.add(", ", j.d.ident(c.Name), " = ", j.d.ident(c.Name))
	}
	q.add(" WHERE ")
	j.d.keyIn(q, j.key, keys)
	x.conditions(q)
	_, err = x.c.ExecContext(ctx, q.String(), q.args...)
	return err
}

// conditions writes what every statement that changes rows repeats after their keys.
func (x *execution) conditions(q *query) {
	x.j.repeat(q)
	x.notHeld(q)
	if x.j.db.Engine != MySQL && x.j.family == nil { // there it was asked in a statement of its own
		x.notHeldAlong(q)
	}
}

// rowHashes are the texts that take the place of values, by column: row by row, in the order of the keys.
type rowHashes struct {
	j    *Job
	keys []tuple
	by   map[string][]string // "" for a value that stays: NULL, and what is hashed already
}

// hashes reads what the rows hold now. They are ours: it stays so until they are changed.
func (x *execution) hashes(ctx context.Context, keys []tuple) (*rowHashes, error) {
	j := x.j
	h := &rowHashes{j: j, by: map[string][]string{}}
	for _, e := range j.edits {
		if !e.Hash {
			continue
		}
		cols := append(slices.Clone(j.key), e.col)
		q := newQuery(j.d).add("SELECT ", j.selectList(cols), " FROM ", j.d.rows(j.t), " WHERE ")
		j.d.keyIn(q, j.key, keys)
		q.add(" AND NOT ")
		j.d.isHashed(q, e.col)
		found, err := j.tuples(ctx, x.c, q, cols)
		if err != nil {
			return nil, err
		}
		now := map[string]value{}
		for _, t := range found {
			now[t[:len(j.key)].id()] = t[len(j.key)]
		}
		texts := make([]string, len(keys))
		for i, k := range keys {
			if v, ok := now[k.id()]; ok {
				texts[i] = j.hashed(e.col, v)
			}
		}
		h.keys, h.by[e.col.Name] = keys, texts
	}
	return h, nil
}

// write writes what the column becomes in each row.
func (h *rowHashes) write(q *query, c Column) {
	none := true
	for i, text := range h.by[c.Name] {
		if text == "" {
			continue
		}
		if none {
			q.add("CASE")
		}
		none = false
		q.add(" WHEN ")
		h.j.d.keyIn(q, h.j.key, h.keys[i:i+1])
		q.add(" THEN ")
		h.j.d.bind(q, c, value{textValue, text})
	}
	if none {
		q.add(h.j.d.ident(c.Name))
		return
	}
	q.add(" ELSE ", h.j.d.ident(c.Name), " END")
}

// archiveKeys copies the rows and removes them. A row that is there twice, or in neither, is undone with all the others. The archive
// is asked last: a trigger may have changed the copy's key, or rows of the archive may go along with what went.
func (x *execution) archiveKeys(ctx context.Context, keys []tuple) ([]tuple, error) {
	var gone []tuple
	err := x.savepoint(ctx, func() error {
		n, err := x.copyKeys(ctx, keys)
		if err != nil {
			return errArchiving{err}
		}
		hook("copied")
		if gone, err = x.deleteKeys(ctx, keys); err != nil {
			return err
		}
		if int(n) != len(keys) || len(gone) != len(keys) {
			return errUneven
		}
		q := newQuery(x.j.d).add("SELECT count(*) FROM ", x.j.d.rows(x.j.t.Archive), " WHERE ")
		x.j.d.keyIn(q, x.j.archiveKey(), keys)
		var there int
		if err := x.c.QueryRowContext(ctx, q.String(), q.args...).Scan(&there); err != nil {
			return err
		}
		if there != len(keys) {
			return errUneven
		}
		return nil
	})
	return gone, err
}

// copyKeys inserts the rows into the archive. It is about rows that are locked and judged, and names them by their key alone; the
// DELETE that follows repeats every condition, and must remove each of them.
func (x *execution) copyKeys(ctx context.Context, keys []tuple) (n int64, err error) {
	j := x.j
	if j.db.Engine == MySQL {
		// What does not fit must be an error here, not be made to fit, and 0 is no wish for another number. The policy's own SQL is
		// not in this statement.
		if _, err := x.c.ExecContext(ctx, "SET @curfew_mode = @@sql_mode, SESSION sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO')"); err != nil {
			return 0, err
		}
		defer func() {
			_, rerr := x.c.ExecContext(ctx, "SET SESSION sql_mode = @curfew_mode")
			err = errors.Join(err, rerr)
		}()
	}
	into, from := "", ""
	for i, c := range j.copied() {
		if i > 0 {
			into, from = into+", ", from+", "
		}
		to, _ := j.t.Archive.Column(c.Name)
		into += j.d.ident(to.Name)
		from += j.d.ident(c.Name)
	}
	overriding := ""
	if j.db.Engine == Postgres {
		overriding = " OVERRIDING SYSTEM VALUE" // an identity column keeps the row's number
	}
	q := newQuery(j.d).add("INSERT INTO ", quoted(j.d, j.t.Archive.Schema, j.t.Archive.Name), " (", into, ")", overriding, " SELECT ", from, " FROM ", j.d.rows(j.t), " WHERE ")
	j.d.keyIn(q, j.key, keys)
	r, err := x.c.ExecContext(ctx, q.String(), q.args...)
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

// copied are the columns that a row takes along: all but those that the archive makes itself, or has no place for because ours
// makes them.
func (j *Job) copied() []Column {
	return slices.DeleteFunc(slices.Clone(j.t.Columns), func(c Column) bool {
		to, ok := j.t.Archive.Column(c.Name)
		return !ok || to.Generated
	})
}

// archiveKey is the key by the names of the archive.
func (j *Job) archiveKey() []Column {
	var out []Column
	for _, k := range j.key {
		c, _ := j.t.Archive.Column(k.Name)
		out = append(out, c)
	}
	return out
}

// archiveRefusal is what is said of a row that the archive does not take.
func archiveRefusal(key tuple, err error) refusal {
	f := faultOf(err)
	reason := f.Constraint
	if reason == "" {
		reason = fmt.Sprintf("the archive does not take it: %s", redact(err))
	}
	return refusal{key: key, outcome: "failed", reason: reason}
}

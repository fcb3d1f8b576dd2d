package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"curfew.dev/curfew/internal/hold"
)

// ErrHold says that a legal hold cannot be applied, so that nothing may be changed.
var ErrHold = errors.New("a legal hold cannot be applied")

// holdLock is the advisory lock that batches share and the placing of a hold takes alone (PostgreSQL).
const holdLock = "1668244070, 1" // "curf"

// heldBy is one hold on the rows of one table: those whose columns have these values stay.
type heldBy struct {
	id, name   string
	conditions []heldValue
}

type heldValue struct {
	column Column
	value  string
	never  bool // no value of the column's type is written so: no row is meant
}

// shareHolds makes the placing of a hold wait until this transaction ends, and this transaction wait until the placing of a
// hold under way has committed. SQLite needs nothing: its writers take turns.
func (x *execution) shareHolds(ctx context.Context) error { return x.j.db.shareHolds(ctx, x.c) }

func (db *DB) shareHolds(ctx context.Context, c querier) error {
	var err error
	switch db.Engine {
	case Postgres:
		// row_security is each connection's already; a pooler between us and the server may have given us another's. And where
		// the database gives up durable commits for speed, this one must not be lost: the ledger, which may be elsewhere, would
		// count rows as deleted that are back after a crash.
		_, err = c.ExecContext(ctx, "SELECT set_config('row_security', 'off', true), "+
			"CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, pg_advisory_xact_lock_shared("+holdLock+")")
	case MySQL:
		var epoch int64
		err = c.QueryRowContext(ctx, "SELECT epoch FROM curfew_hold_epoch WHERE one = 1 LOCK IN SHARE MODE").Scan(&epoch)
	}
	return err
}

// holdRows reads all holds of the database.
func (db *DB) holdRows(ctx context.Context, c querier) ([]hold.Row, error) {
	q := newQuery(dialectFor(db.server))
	q.add("SELECT id, name, relation, conditions FROM ", q.d.own("hold"), " ORDER BY name, id")
	rows, err := c.QueryContext(ctx, q.String(), q.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []hold.Row
	for rows.Next() {
		var r hold.Row
		if err := rows.Scan(&r.ID, &r.Name, &r.Relation, &r.Conditions); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

// obeyHolds reads the holds that concern the table or the rows that change with its rows, in a statement after shareHolds: its
// view is newer than any hold placed before the lock was ours.
func (x *execution) obeyHolds(ctx context.Context) error {
	all, err := x.j.db.holdRows(ctx, x.c)
	if err != nil {
		return err
	}
	if x.j.checkHolds != nil && !x.j.shadow {
		if err := x.j.checkHolds(ctx, all); err != nil {
			return err
		}
	}
	x.holds, x.along = nil, nil
	for _, r := range all {
		if err := x.obey(r); err != nil {
			return err
		}
	}
	return x.reachesAll()
}

// obey takes one hold in.
func (x *execution) obey(r hold.Row) error {
	j := x.j
	var conditions []hold.Condition
	if err := json.Unmarshal([]byte(r.Conditions), &conditions); err != nil || len(conditions) == 0 {
		return fmt.Errorf("%w: the conditions of %s cannot be read", ErrHold, r.Name)
	}
	onAny := r.Relation == hold.AnyTable
	if onAny && j.p.Subject != "" || !onAny && (r.Relation == j.p.Table || sameRelation(r.Relation, j.t.Label)) {
		h, err := heldRows(r, conditions, j.p.Table, j.t.Column, j.p.Subject)
		if err != nil {
			return err
		}
		x.holds = append(x.holds, h)
	}
	for _, label := range j.alters() {
		subject := j.childSubject(label)
		if onAny && subject == "" || !onAny && !sameRelation(r.Relation, label) {
			continue
		}
		h, err := heldRows(r, conditions, label, j.childColumn(label), subject)
		if err != nil {
			return err
		}
		if x.along == nil {
			x.along = map[string][]heldBy{}
		}
		x.along[label] = append(x.along[label], h)
	}
	return nil
}

// heldRows is what a hold means in a table. subject is the column that names the data subject there.
func heldRows(r hold.Row, conditions []hold.Condition, table string, column func(string) (Column, bool), subject string) (heldBy, error) {
	h := heldBy{id: r.ID, name: r.Name}
	for _, cond := range conditions {
		name := cond.Column
		if name == "" {
			name = subject
		}
		c, ok := column(name)
		if !ok {
			return h, fmt.Errorf("%w: %s is on column %q, and table %s has none", ErrHold, r.Name, name, table)
		}
		v, err := holdValue(c, cond.Value)
		if err != nil {
			return h, fmt.Errorf("%w: %s is on column %s of %s, %w", ErrHold, r.Name, c.Name, table, err)
		}
		h.conditions = append(h.conditions, v)
	}
	return h, nil
}

var uuidText = regexp.MustCompile(`^\{?[0-9A-Fa-f]{8}-?([0-9A-Fa-f]{4}-?){3}[0-9A-Fa-f]{12}\}?$`)

var decimalText = regexp.MustCompile(`^-?[0-9]{1,64}(\.[0-9]{1,30})?$`)

// holdValue is a value as it is compared with a column: a database that could not read it as the column's type would fail each
// statement in which it stands.
func holdValue(c Column, text string) (heldValue, error) {
	v := heldValue{column: c, value: text}
	switch c.Kind {
	case KindInt:
		n, err := strconv.ParseInt(text, 10, 64)
		v.value = strconv.FormatInt(n, 10)
		if err != nil {
			u, uerr := strconv.ParseUint(text, 10, 64)
			v.value, v.never = strconv.FormatUint(u, 10), uerr != nil
		}
	case KindDecimal:
		v.never = !decimalText.MatchString(text)
	case KindUUID:
		v.never = !uuidText.MatchString(text)
	case KindBool:
		b, err := strconv.ParseBool(text)
		v.value, v.never = strconv.FormatBool(b), err != nil
	case KindDate:
		_, err := time.Parse(time.DateOnly, text)
		v.never = err != nil
	case KindText, KindEnum, KindAny:
	default:
		return v, errors.New("whose values are not told apart by what a person writes: hold by another column")
	}
	return v, nil
}

// SameTable reports whether two names may mean one table: one that leaves the schema out may mean any.
func SameTable(a, b string) bool { return sameRelation(a, b) }

// sameRelation compares names of tables, with or without a schema: one that leaves it out may mean either, and is obeyed.
func sameRelation(a, b string) bool {
	sa, ta := parts(a)
	sb, tb := parts(b)
	return strings.EqualFold(ta, tb) && (sa == "" || sb == "" || strings.EqualFold(sa, sb))
}

// notHeld writes "and no hold names the row". It asks nothing of other tables.
func (x *execution) notHeld(q *query) {
	for _, h := range x.holds {
		q.add(" AND ")
		h.write(q, "")
		q.add(" IS NOT TRUE")
	}
}

// free writes "and no hold names the row, nor one that would change with it".
func (x *execution) free(q *query) {
	x.notHeld(q)
	x.notHeldAlong(q)
}

// held reports whether there is a hold to look for.
func (x *execution) held() bool { return len(x.holds)+len(x.along) > 0 }

// write writes "the row meets the hold's conditions", in parentheses. prefix names the row's table, or is empty.
func (h heldBy) write(q *query, prefix string) {
	q.add("(")
	for i, cond := range h.conditions {
		if i > 0 {
			q.add(" AND ")
		}
		cond.write(q, prefix)
	}
	q.add(")")
}

func (v heldValue) write(q *query, prefix string) {
	c, id := v.column, prefix+q.d.ident(v.column.Name)
	_, postgres := q.d.(postgresDialect)
	switch {
	case v.never:
		q.add("1 = 0")
	case c.Kind == KindAny: // SQLite: 7 and '7' are not equal in a column without a type, and the hold means both
		q.add("(CAST(", id, " AS TEXT) = ").arg(v.value).add(" OR ", id, " = ").arg(v.value).add(")")
	case postgres && c.Kind == KindInt: // a number beyond the column's range is no error so
		q.add(id, " = ").arg(v.value).add("::text::", v.wide())
	case postgres && (c.Kind == KindEnum || c.Type == "character"): // a cast would refuse an unknown label, and cut text short
		q.add(id, "::text = ").arg(v.value).add("::text")
	default:
		kind := textValue
		if c.Kind == KindInt {
			kind = intValue
		}
		q.add(id, " = ")
		q.d.bind(q, c, value{kind, v.value})
	}
}

// wide is a type of PostgreSQL that has the whole number.
func (v heldValue) wide() string {
	if _, err := strconv.ParseInt(v.value, 10, 64); err != nil {
		return "numeric"
	}
	return "bigint"
}

// under is the execution with these holds alone.
func (x *execution) under(ids []string) *execution {
	only := func(all []heldBy) []heldBy {
		return slices.DeleteFunc(slices.Clone(all), func(h heldBy) bool { return !slices.Contains(ids, h.id) })
	}
	y := *x
	y.holds, y.along = only(x.holds), nil
	for label, all := range x.along {
		if some := only(all); len(some) > 0 {
			if y.along == nil {
				y.along = map[string][]heldBy{}
			}
			y.along[label] = some
		}
	}
	return &y
}

// holdNames are the holds in question, by id, and their names.
func (x *execution) holdNames() (ids []string, names map[string]string) {
	names = map[string]string{}
	add := func(all []heldBy) {
		for _, h := range all {
			if names[h.id] == "" {
				ids, names[h.id] = append(ids, h.id), h.name
			}
		}
	}
	add(x.holds)
	for _, label := range x.j.alters() {
		add(x.along[label])
	}
	slices.SortFunc(ids, func(a, b string) int { return strings.Compare(names[a]+"\x00"+a, names[b]+"\x00"+b) })
	return ids, names
}

// noteHeld records of each of the rows, which are held, by which hold: of several, the first by name.
func (x *execution) noteHeld(ctx context.Context, t *tally, keys []tuple) error {
	ids, names := x.holdNames()
	return x.noteHeldBy(ctx, t, keys, ids, names)
}

func (x *execution) noteHeldBy(ctx context.Context, t *tally, keys []tuple, ids []string, names map[string]string) error {
	if len(keys) == 0 || len(ids) == 0 {
		return nil
	}
	if len(ids) == 1 {
		for _, k := range keys {
			t.note("held", "hold "+names[ids[0]], k)
		}
		return nil
	}
	half := ids[:len(ids)/2]
	y := x.under(half)
	rest, err := y.only(ctx, keys, y.free)
	if err != nil {
		return err
	}
	if err := x.noteHeldBy(ctx, t, without(keys, rest), half, names); err != nil {
		return err
	}
	return x.noteHeldBy(ctx, t, rest, ids[len(half):], names)
}

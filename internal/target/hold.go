package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// ErrHold says that a legal hold cannot be applied, so that nothing may be changed.
var ErrHold = errors.New("a legal hold cannot be applied")

// holdLock is the advisory lock that batches share and the placing of a hold takes alone (PostgreSQL).
const holdLock = "1668244070, 1" // "curf"

// heldCondition is one hold on this table: rows whose columns have these values stay.
type heldCondition []struct {
	Column string `json:"column"` // "": the policy's subject
	Value  string `json:"value"`
}

// anyRelation marks a hold on a data subject, whatever the table.
const anyRelation = "*"

// shareHolds makes the placing of a hold wait until this transaction ends, and this transaction wait until the placing of a
// hold under way has committed. SQLite needs nothing: its writers take turns.
func (x *execution) shareHolds(ctx context.Context) error {
	var err error
	switch x.j.db.Engine {
	case Postgres:
		// row_security is each connection's already; a pooler between us and the server may have given us another's. And where
		// the database gives up durable commits for speed, this one must not be lost: the ledger, which may be elsewhere, would
		// count rows as deleted that are back after a crash.
		_, err = x.c.ExecContext(ctx, "SELECT set_config('row_security', 'off', true), "+
			"CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', true) END, pg_advisory_xact_lock_shared("+holdLock+")")
	case MySQL:
		var epoch int64
		err = x.c.QueryRowContext(ctx, "SELECT epoch FROM curfew_hold_epoch WHERE one = 1 LOCK IN SHARE MODE").Scan(&epoch)
	}
	return err
}

// readHolds reads the holds that concern the table, in a statement after shareHolds: its view is newer than any hold placed
// before the lock was ours.
func (x *execution) readHolds(ctx context.Context) ([]heldCondition, error) {
	j := x.j
	q := newQuery(j.d).add("SELECT relation, conditions FROM ", j.d.own("hold"))
	rows, err := x.c.QueryContext(ctx, q.String(), q.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var holds []heldCondition
	for rows.Next() {
		var relation, text string
		if err := rows.Scan(&relation, &text); err != nil {
			return nil, err
		}
		for _, fk := range j.cascading {
			if fk.Child != j.t.Label && sameRelation(relation, fk.Child) {
				return nil, fmt.Errorf("%w: it is on %s, whose rows would go along", ErrHold, fk.Child)
			}
		}
		if relation != anyRelation && relation != j.p.Table && !sameRelation(relation, j.t.Label) {
			continue
		}
		var h heldCondition
		if err := json.Unmarshal([]byte(text), &h); err != nil || len(h) == 0 {
			return nil, fmt.Errorf("%w: its conditions cannot be read", ErrHold)
		}
		for i := range h {
			if h[i].Column == "" {
				h[i].Column = j.p.Subject
			}
			if _, ok := j.t.Column(h[i].Column); !ok {
				return nil, fmt.Errorf("%w: table %s has no column %q; policy %s must name its data subject (subject: COLUMN)", ErrHold, j.p.Table, h[i].Column, j.p.Name)
			}
		}
		holds = append(holds, h)
	}
	return holds, rows.Err()
}

// sameRelation compares names of tables, with or without a schema: one that leaves it out may mean either, and is obeyed.
func sameRelation(a, b string) bool {
	sa, ta := parts(a)
	sb, tb := parts(b)
	return strings.EqualFold(ta, tb) && (sa == "" || sb == "" || strings.EqualFold(sa, sb))
}

// notHeld writes "and no hold names the row".
func (x *execution) notHeld(q *query) {
	for _, h := range x.holds {
		q.add(" AND (")
		for i, cond := range h {
			if i > 0 {
				q.add(" AND ")
			}
			c, _ := x.j.t.Column(cond.Column)
			kind := textValue
			if c.Kind == KindInt {
				kind = intValue
			}
			id := q.d.ident(c.Name)
			if c.Kind == KindAny { // SQLite: 7 and '7' are not equal in a column without a type, and the hold means both
				q.add("(CAST(", id, " AS TEXT) = ").arg(cond.Value).add(" OR ", id, " = ").arg(cond.Value).add(")")
				continue
			}
			q.add(id, " = ")
			q.d.bind(q, c, value{kind, cond.Value})
		}
		q.add(") IS NOT TRUE")
	}
}

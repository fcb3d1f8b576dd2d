package target

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync/atomic"
	"time"

	"curfew.dev/curfew/internal/hold"
	"curfew.dev/curfew/internal/keyring"
	"curfew.dev/curfew/policy"
)

// JobOptions bind a policy to a live table at one instant.
type JobOptions struct {
	Policy *policy.Policy
	Table  *Table
	AsOf   time.Time
	Cutoff time.Time
	Shadow bool
	Run    string // run id; names the receipts
	Keys   *keyring.Keyring
	Logger *slog.Logger
	// CheckHolds compares the holds of the database with what the ledger says, in each batch's transaction: an error of it ends the
	// batch before anything is changed. Nil where there is no ledger to ask.
	CheckHolds func(context.Context, []hold.Row) error
}

// A Job makes every statement of one run: all of them carry the same cutoff. It is safe for concurrent use.
type Job struct {
	db     *DB
	d      dialect
	p      *policy.Policy
	t      *Table
	run    string
	shadow bool
	log    *slog.Logger

	key      []Column
	trig     *trigger
	bound    bound  // the cutoff; a row at it is due too when the policy says at_cutoff: due
	floor    *bound // implausible_before
	strategy Strategy
	blocks   atomic.Int64 // ByPlace: how many blocks the next page looks at
	// careful is set when one statement would not be safe: the policy's own SQL reads other tables, or rows that go along
	// must be counted. Then rows are locked first, and judged and changed by statements that follow.
	careful     bool
	restricting []ForeignKey // children whose rows keep ours from going
	cascading   []ForeignKey // children whose rows go along
	altering    []ForeignKey // children whose rows go along or lose their reference
	checkHolds  func(context.Context, []hold.Row) error
	selfRef     bool // a row of this table may reference another

	keys        *keyring.Keyring
	fingerprint string
	began       Start
}

// A Strategy is the order in which due rows are paged. It is chosen when the run starts and does not change.
type Strategy string

// The strategies.
const (
	ByTrigger Strategy = "trigger" // an index serves (trigger, key)
	ByKey     Strategy = "key"     // windows of the key: every row is looked at once
	ByPlace   Strategy = "place"   // PostgreSQL: blocks of the heap in physical order
)

// readsTables matches a sub-select in the policy's own SQL.
var readsTables = regexp.MustCompile(`(?i)\b(select|table|with)\b`)

// readsOthers reports whether which rows are due and in scope depends on other tables.
func (j *Job) readsOthers() bool {
	return readsTables.MatchString(j.p.Where) || readsTables.MatchString(j.p.Trigger.Expr)
}

// NewJob binds the policy. The table must have been judged fit (Judge) before.
func NewJob(db *DB, o JobOptions) (*Job, error) {
	d := dialectFor(db.server)
	j := &Job{db: db, d: d, p: o.Policy, t: o.Table, run: o.Run, shadow: o.Shadow, keys: o.Keys, log: o.Logger, checkHolds: o.CheckHolds}
	if j.log == nil {
		j.log = slog.New(slog.DiscardHandler)
	}
	key, err := ResolveKey(o.Policy, o.Table)
	if err != nil {
		return nil, err
	}
	j.key = key
	if j.trig, err = resolveTrigger(o.Policy, o.Table, db.server); err != nil {
		return nil, err
	}
	at := o.Cutoff
	if o.Policy.AtCutoff == "due" {
		// Nothing stored is finer than a microsecond, but for numbers counted in nanoseconds.
		step := time.Microsecond
		switch j.trig.unit {
		case policy.Nanoseconds:
			step = time.Nanosecond
		case policy.JulianDay: // a double of that size tells 40 µs apart
			step = 50 * time.Microsecond
		}
		at = at.Add(step)
	}
	j.bound = newBound(at, j.trig.zone)
	if from := o.Policy.Trigger.ImplausibleBefore; from != nil {
		zone := j.trig.zone
		if zone == nil {
			zone = o.Policy.Location()
		}
		f := newBound(from.Midnight().Instant(zone), j.trig.zone)
		j.floor = &f
	}
	j.strategy = ByKey
	if j.trig.ordered() {
		j.strategy = ByTrigger
	}
	for _, fk := range o.Table.Children {
		if fk.Child == o.Table.Label && fk.Parent == o.Table.Label {
			j.selfRef = true
		}
		if fk.OnDelete == Cascade || fk.OnDelete == SetNull || fk.OnDelete == SetDefault {
			j.altering = append(j.altering, fk)
		}
		switch fk.OnDelete {
		case Cascade:
			j.cascading = append(j.cascading, fk)
		case NoAction, Restrict:
			if fk.Parent == o.Table.Label {
				j.restricting = append(j.restricting, fk)
			}
		}
	}
	j.careful = len(j.cascading) > 0 || !d.returning()
	if db.Engine != SQLite { // SQLite has one writer: what a statement reads cannot change under it
		j.careful = j.careful || o.Policy.Unless != "" || readsTables.MatchString(o.Policy.Where) || readsTables.MatchString(o.Policy.Trigger.Expr)
	}
	return j, nil
}

// Strategy is how the job pages.
func (j *Job) Strategy() Strategy { return j.strategy }

// SetStrategy pages as a run that is under way began; a strategy the table no longer offers is an error.
func (j *Job) SetStrategy(s Strategy) error {
	if s == ByTrigger && !j.trig.ordered() {
		return fmt.Errorf("%w: the index on the trigger is gone", ErrSchemaChanged)
	}
	if s == ByPlace && !j.placeable() {
		return fmt.Errorf("%w: the table cannot be read in physical order any more", ErrSchemaChanged)
	}
	j.strategy = s
	return nil
}

// dueNow writes "the trigger is an instant before the cutoff", for rows whose trigger is set.
func (j *Job) dueNow(q *query) {
	x := j.trig.sql(j.d)
	j.d.due(q, x, j.trig, j.bound)
	if j.floor != nil {
		q.add(" AND NOT ")
		j.d.due(q, x, j.trig, *j.floor)
	}
}

// isDue writes the whole of "due": before the cutoff, or NULL where the policy says that NULL is due.
func (j *Job) isDue(q *query) {
	if j.trig.nulls != "due" {
		j.dueNow(q)
		return
	}
	q.add("(", j.trig.sql(j.d), " IS NULL OR (")
	j.dueNow(q)
	q.add("))")
}

// inScope writes the policy's where, after our own conditions.
func (j *Job) inScope(q *query) {
	if j.p.Where != "" {
		q.add(" AND ").operator(j.p.Where)
	}
}

// unguarded writes "no guard keeps the row". A guard whose answer is unknown (NULL) does not keep it.
func (j *Job) unguarded(q *query) {
	if j.p.Unless != "" {
		q.add(" AND ").operator(j.p.Unless).add(" IS NOT TRUE")
	}
}

// selectList selects columns under names of their own: ORDER BY "id" would otherwise mean the text that read makes of the
// column, and order numbers as text.
func (j *Job) selectList(cols []Column) string {
	out := make([]string, len(cols))
	for i, c := range cols {
		out[i] = j.d.read(c) + " AS curfew_" + itoa(i)
	}
	return strings.Join(out, ", ")
}

// readKey selects the key's columns.
func (j *Job) readKey() string { return j.selectList(j.key) }

// orderBy orders by the columns as the database compares them.
func (j *Job) orderBy(cols []Column) string {
	return " ORDER BY " + list(cols, func(c Column) string { return j.d.ident(c.Name) })
}

// orderedCols are the columns pages are ordered by.
func (j *Job) orderedCols(phase string) []Column {
	if phase == phaseMain && j.strategy == ByTrigger {
		return append([]Column{*j.trig.column}, j.key...)
	}
	return j.key
}

// scanTuples reads rows of columns cols.
func (j *Job) scanTuples(rows *sql.Rows, cols []Column) ([]tuple, error) {
	defer rows.Close()
	var out []tuple
	raw, dest := make([]any, len(cols)), make([]any, len(cols))
	for i := range raw {
		dest[i] = &raw[i]
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		t := make(tuple, len(cols))
		for i, c := range cols {
			v, err := j.d.scan(c, raw[i])
			if err != nil {
				return nil, fmt.Errorf("column %s: %w", c.Name, err)
			}
			t[i] = v
		}
		out = append(out, t)
	}
	return out, rows.Err()
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// tuples runs a query whose columns are cols as read selects them.
func (j *Job) tuples(ctx context.Context, c querier, q *query, cols []Column) ([]tuple, error) {
	if j.db.Engine == Postgres {
		return readPacked(ctx, c, packed(q, cols), q.args, len(cols))
	}
	rows, err := c.QueryContext(ctx, q.String(), q.args...)
	if err != nil {
		return nil, err
	}
	return j.scanTuples(rows, cols)
}

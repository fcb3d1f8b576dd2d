package target

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
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
	// Live says that nobody chose the as_of: a run whose instant has long passed, because it makes up for missed ones or was
	// interrupted, records its stage as passed when it was, so that what counts from the stage is not due at once.
	Live   bool
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
	atOnce   *bound // the run's instant, where a data subject may choose that nothing is kept
	floor    *bound // implausible_before
	reached  *bound // of a reminder: rows before it are a nearer stage's
	asOf     time.Time
	live     bool
	strategy Strategy
	blocks   atomic.Int64 // ByPlace: how many blocks the next page looks at
	// careful is set when one statement would not be safe: the policy's own SQL reads other tables, or rows that go along
	// must be counted. Then rows are locked first, and judged and changed by statements that follow.
	careful     bool
	restricting []ForeignKey // children whose rows keep ours from going
	cascading   []ForeignKey // children whose rows go along
	altering    []ForeignKey // children whose rows go along or lose their reference
	checkHolds  func(context.Context, []hold.Row) error
	selfRef     bool    // a row of this table may reference another
	family      *family // of a delete with dependents; else nil

	edits       []edit // set and anonymise: what becomes of each row
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
	return readsTables.MatchString(j.p.Where) || readsTables.MatchString(j.p.Trigger.Expr) || j.p.Privacy != nil && readsTables.MatchString(j.p.Privacy.Expr)
}

// NewJob binds the policy. The table must have been judged fit (Judge) before.
func NewJob(db *DB, o JobOptions) (*Job, error) {
	d := dialectFor(db.server)
	j := &Job{db: db, d: d, p: o.Policy, t: o.Table, run: o.Run, shadow: o.Shadow, keys: o.Keys, log: o.Logger, asOf: o.AsOf, live: o.Live, checkHolds: o.CheckHolds}
	if o.Cutoff.After(o.AsOf) && o.Policy.Action.Kind != policy.Notify {
		return nil, fmt.Errorf("the cutoff %s is after as_of %s, and only notify may come before the due instant", o.Cutoff.Format(time.RFC3339), o.AsOf.Format(time.RFC3339))
	}
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
	step := time.Duration(0)
	if o.Policy.AtCutoff == "due" {
		// Nothing stored is finer than a microsecond, but for numbers counted in nanoseconds.
		step = time.Microsecond
		switch j.trig.unit {
		case policy.Nanoseconds:
			step = time.Nanosecond
		case policy.JulianDay: // a double of that size tells 40 µs apart
			step = 50 * time.Microsecond
		}
	}
	j.bound = newBound(o.Cutoff.Add(step), j.trig.zone)
	if p := o.Policy.Privacy; p != nil && len(p.Never) > 0 && o.AsOf.After(o.Cutoff) {
		b := newBound(o.AsOf.Add(step), j.trig.zone)
		j.atOnce = &b
	}
	if from := o.Policy.Trigger.ImplausibleBefore; from != nil {
		zone := j.trig.zone
		if zone == nil {
			zone = o.Policy.Location()
		}
		f := newBound(from.Midnight().Instant(zone), j.trig.zone)
		j.floor = &f
	}
	if j.family, err = familyOf(o.Policy, o.Table); err != nil {
		return nil, err
	}
	j.strategy = ByKey
	if j.trig.ordered() {
		j.strategy = ByTrigger
	}
	if j.edits, err = resolveEdits(o.Policy, o.Table, j.trig, o.AsOf); err != nil {
		return nil, err
	}
	if o.Policy.Action.Kind == policy.Archive && o.Table.Archive == nil {
		return nil, fmt.Errorf("there is no table %s to archive rows to", o.Policy.Action.To)
	}
	for _, fk := range o.Table.Children {
		if len(j.edits) > 0 {
			break // the row stays, and with it what references it
		}
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
	if o.Policy.Action.Kind.Tells() { // rows stay, and so does all that hangs on them
		j.restricting, j.cascading, j.altering = nil, nil, nil
	}
	if j.family != nil {
		j.cascading = j.family.cascading()
		j.restricting = slices.DeleteFunc(j.restricting, func(fk ForeignKey) bool {
			return !slices.ContainsFunc(j.family.keeps, func(l link) bool { return l.child == noStep && sameReference(l.fk, fk) })
		})
	}
	j.careful = len(j.cascading) > 0 || !d.returning() || !j.quick() || j.family != nil || o.Policy.KeepLast != nil
	if db.Engine != SQLite { // SQLite has one writer: what a statement reads cannot change under it
		j.careful = j.careful || o.Policy.Unless != "" || j.readsOthers()
	}
	j.bindStage(step)
	return j, nil
}

// quick reports whether one statement can do a batch: it changes nothing but which rows there are.
func (j *Job) quick() bool { return len(j.edits) == 0 && j.t.Archive == nil }

// outcome is the word for a row to which the action was done.
func (j *Job) outcome() string {
	if j.quick() {
		return "deleted"
	}
	return j.p.Action.Kind.Outcome()
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
func (j *Job) dueNow(q *query) { j.dueBy(q, true) }

// dueBy is dueNow. Where a data subject may choose that nothing is kept, a row is due before the run's instant already, and
// choice says whether to ask for the choice: without, the answer includes rows that only such a choice makes due.
func (j *Job) dueBy(q *query, choice bool) {
	x := j.trig.sql(j.d)
	if j.atOnce == nil {
		j.d.due(q, x, j.trig, j.bound)
	} else {
		j.d.due(q, x, j.trig, *j.atOnce) // alone, so that an index serves
		if choice {
			q.add(" AND (")
			j.d.due(q, x, j.trig, j.bound)
			q.add(" OR ")
			j.chosen(q, j.p.Privacy.Never)
			q.add(")")
		}
	}
	if j.floor != nil {
		q.add(" AND NOT ")
		j.d.due(q, x, j.trig, *j.floor)
	}
	if j.reached != nil {
		q.add(" AND NOT ")
		j.d.due(q, x, j.trig, *j.reached)
	}
}

// isDue writes the whole of "due": before the cutoff, or NULL where the policy says that NULL is due.
func (j *Job) isDue(q *query) { j.isDueBy(q, true) }

func (j *Job) isDueBy(q *query, choice bool) {
	if j.trig.nulls != "due" {
		j.dueBy(q, choice)
		return
	}
	q.add("(", j.trig.sql(j.d), " IS NULL OR (")
	j.dueBy(q, choice)
	q.add("))")
}

// inScope writes that the action was not done to the row, and the policy's where, after our own conditions.
func (j *Job) inScope(q *query) {
	j.undone(q)
	j.inWhere(q)
}

// inWhere writes the policy's where.
func (j *Job) inWhere(q *query) {
	if j.p.Where != "" {
		q.add(" AND ").operator(j.p.Where)
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

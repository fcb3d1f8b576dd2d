package target

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// TestHook, when set, is called at the named points of a batch. Tests stop the process there; it is nil in every program.
var TestHook func(point string)

func hook(point string) {
	if TestHook != nil {
		TestHook(point)
	}
}

const (
	// attempts at one batch that met a deadlock or a serialisation failure.
	maxAttempts = 8
	// rivalWait is how long a batch waits for another execution of itself. The server ends a stopped rival's transaction
	// after a minute.
	rivalWait = 90 * time.Second
)

// Variables, for tests.
var (
	// quickWait is how long the first try of a batch waits for a locked row before it works around it.
	quickWait = 100 * time.Millisecond
	// patientWait is how long the pass at the end of a run waits for rows found locked.
	patientWait = 10 * time.Second
)

// Execute does the work of one batch in one transaction: the receipt first, then the change, then the receipt's outcomes.
// Whatever it returns, the batch was done once or not at all. It answers from the receipt when the work was done before.
//
// ErrTooLong means that nothing was done and that it should not be tried again as it is (see Void); ErrSchemaChanged,
// ErrDiverged and ErrLate stop the run. Any other error leaves the batch as it was, to be tried again under the same key.
func (j *Job) Execute(ctx context.Context, asOf time.Time, w Work) (*Result, error) {
	start := time.Now()
	if w.Phase == phaseUnreadable {
		n := int64(w.Rows)
		return &Result{Planned: n, Outcomes: map[string]int64{"unreadable": n}}, nil
	}
	if j.shadow {
		res, err := j.rehearse(ctx, w)
		if err != nil && (classify(err) == classUndefined || isSQLError(err)) {
			return nil, j.undefined(ctx, err)
		}
		return res, err
	}
	var res *Result
	err := j.again(ctx, func() (err error) {
		start = time.Now() // a batch is not slow for having waited for its turn
		res, err = j.attempt(ctx, asOf, w)
		return err
	})
	if err != nil {
		return nil, err
	}
	res.Took = time.Since(start)
	return res, nil
}

// errAgain marks an error of a transaction that is to be tried again at once.
var errAgain = errors.New("the same again")

// again does a transaction until it met no deadlock and no serialisation failure, and says what its error means for the batch.
func (j *Job) again(ctx context.Context, do func() error) error {
	for attempt := 1; ; attempt++ {
		err := do()
		if errors.Is(err, errFull) && ctx.Err() == nil {
			hook("full")
			select {
			case <-ctx.Done():
			case <-time.After(untilSeat()):
			}
			attempt = 0
			continue
		}
		switch class := classify(err); {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case class == classStatementTimeout:
			return fmt.Errorf("%w: %w", ErrTooLong, redact(err))
		case class == classUndefined, isSQLError(err):
			return j.undefined(ctx, err)
		case class != classRetryable && !errors.Is(err, errAgain) || attempt == maxAttempts:
			return redact(err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(1+rand.IntN(20*attempt)) * time.Millisecond):
		}
	}
}

// isSQLError is true of statements that PostgreSQL does not accept as they are written: a wrong type, a syntax error.
func isSQLError(err error) bool {
	f := faultOf(err)
	return f.Engine == Postgres && strings.HasPrefix(f.Code, "42") && f.Class == classOther
}

// undefined tells a table that changed from a policy whose SQL names what is not there.
func (j *Job) undefined(ctx context.Context, err error) error {
	if now, ferr := j.fingerprintIn(ctx, j.db.SQL); ferr == nil && now == j.fingerprint {
		return fmt.Errorf("%w: %w", ErrPolicySQL, redact(err))
	}
	return fmt.Errorf("%w: %w", ErrSchemaChanged, redact(err))
}

// An execution is one attempt at a batch, inside its transaction.
type execution struct {
	j    *Job
	c    querier // the transaction; for a shadow run the pool
	asOf time.Time
	// holds narrow every statement to rows that no legal hold names; nil when there is none for this table. along are those on
	// rows that would change with ours, by table.
	holds  []heldBy
	along  map[string][]heldBy
	ruled  map[string]ruling // of a stage: the rows it acts on, by key
	stands time.Time         // and as of when it is recorded
	points int               // numbers the savepoints
	waits  int               // lock timeouts met so far
}

func (j *Job) attempt(ctx context.Context, asOf time.Time, w Work) (*Result, error) {
	tx, leave, err := j.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	defer tx.Rollback()
	x := &execution{j: j, c: tx, asOf: asOf}
	hook("begun")
	done, err := x.open(ctx, w)
	if err != nil || done != nil {
		return done, err
	}
	hook("claimed")
	f, err := x.find(ctx, w)
	if err != nil {
		return nil, err
	}
	hook("found")
	t := f.tally()
	if t == nil {
		if t, err = x.change(ctx, w, f); err != nil {
			return nil, err
		}
		if err := x.pass(ctx, w, t); err != nil {
			return nil, err
		}
	}
	hook("changed")
	if err := x.sameTable(ctx); err != nil {
		return nil, err
	}
	res, err := x.complete(ctx, w, t)
	if err != nil {
		return nil, err
	}
	hook("completed")
	// A crash here leaves nothing: the receipt and the change go together. A commit whose answer is lost is found again as
	// a receipt by the next attempt.
	if err := tx.Commit(); err != nil {
		return nil, err
	}
	leave()
	hook("committed")
	return res, nil
}

// open takes the locks in their order (holds, then receipt, then rows) and reads what must be read under them.
func (x *execution) open(ctx context.Context, w Work) (*Result, error) {
	j := x.j
	if err := x.waitFor(ctx, rivalWait); err != nil { // first: a MySQL session still has the last transaction's patience
		return nil, err
	}
	if err := x.shareHolds(ctx); err != nil {
		return nil, err
	}
	if err := x.stand(ctx); err != nil {
		return nil, err
	}
	done, err := x.claim(ctx, w)
	if err != nil || done != nil {
		return done, err
	}
	var closed int
	q := newQuery(j.d).add("SELECT count(*) FROM ", j.d.own("tombstone"), " WHERE run = ").arg(j.run)
	if err := x.c.QueryRowContext(ctx, q.String(), q.args...).Scan(&closed); err != nil {
		return nil, err
	}
	if closed > 0 {
		return nil, ErrLate
	}
	if err := x.obeyHolds(ctx); err != nil {
		return nil, err
	}
	if j.db.Engine == Postgres {
		// A deferred constraint would speak only at COMMIT, and sink the batch whole.
		_, err = x.c.ExecContext(ctx, "SET CONSTRAINTS ALL IMMEDIATE")
	}
	return nil, err
}

// waitFor sets how long a statement may wait for a lock.
func (x *execution) waitFor(ctx context.Context, d time.Duration) error {
	var err error
	switch x.j.db.Engine {
	case Postgres:
		_, err = x.c.ExecContext(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", d.Milliseconds()))
	case MySQL: // whole seconds; the setting outlives the transaction, and every one of ours begins with it
		_, err = x.c.ExecContext(ctx, fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d", max(1, int(d.Seconds()))))
	}
	return err
}

// sameTable compares the table with the one the run began with. It comes after the change: from then on our locks keep the
// table as it is until we commit.
func (x *execution) sameTable(ctx context.Context) error {
	if x.j.fingerprint == "" {
		return nil
	}
	now, err := x.j.fingerprintIn(ctx, x.c)
	if err != nil {
		return err
	}
	if now != x.j.fingerprint {
		return ErrSchemaChanged
	}
	return nil
}

// savepoint runs fn and undoes what it did in the database when it fails. A deadlock on MySQL ends the whole transaction:
// then the error is passed on untouched.
func (x *execution) savepoint(ctx context.Context, fn func() error) error {
	x.points++
	name := "curfew_" + itoa(x.points)
	if _, err := x.c.ExecContext(ctx, "SAVEPOINT "+name); err != nil {
		return err
	}
	err := fn()
	if err == nil {
		_, err = x.c.ExecContext(ctx, "RELEASE SAVEPOINT "+name)
		return err
	}
	if class := classify(err); class == classRetryable || class == classConnection || class == classStatementTimeout {
		return err
	}
	if _, rerr := x.c.ExecContext(ctx, "ROLLBACK TO SAVEPOINT "+name); rerr != nil {
		// The database ended the whole transaction (RAISE(ROLLBACK) in a trigger, innodb_rollback_on_timeout), our receipt with
		// it: whatever came now would be committed by itself. The cause is told in words only, so that nobody acts on its class.
		return fmt.Errorf("the database rolled the whole batch back: %s", redact(err))
	}
	return err
}

// Void settles a batch that is not to be tried as it is, because it takes too long: its receipt says that nothing was done
// and hands the rows on, so that a rival still at work on it is refused. A batch of one row is recorded as failed.
func (j *Job) Void(ctx context.Context, asOf time.Time, w Work, reason error) (*Result, error) {
	return j.void(ctx, asOf, w, func(keys []tuple, t *tally) {
		if len(keys) == 1 {
			t.note("failed", reason.Error(), keys[0])
		} else {
			t.deferred = keys
		}
	})
}

// GiveUp settles a batch that failed for good: its receipt says of each row that it failed, and why, so that a rival still at
// work on it is refused. A later run finds the rows again.
func (j *Job) GiveUp(ctx context.Context, asOf time.Time, w Work, reason error) (*Result, error) {
	if j.shadow { // which writes no receipts
		return nil, reason
	}
	return j.void(ctx, asOf, w, func(keys []tuple, t *tally) {
		for _, k := range keys {
			t.note("failed", reason.Error(), k)
		}
	})
}

// void writes a receipt in which nothing was changed.
func (j *Job) void(ctx context.Context, asOf time.Time, w Work, account func([]tuple, *tally)) (*Result, error) {
	tx, err := j.db.SQL.BeginTx(ctx, nil)
	if err != nil {
		return nil, redact(err)
	}
	defer tx.Rollback()
	x := &execution{j: j, c: tx, asOf: asOf}
	done, err := x.open(ctx, w)
	if err != nil || done != nil {
		return done, redact(err)
	}
	f, err := x.find(ctx, w)
	if err != nil {
		return nil, redact(err)
	}
	t := f.tally()
	if t == nil {
		t = newTally()
		account(f.keys, t)
	}
	res, err := x.complete(ctx, w, t)
	if err != nil {
		return nil, redact(err)
	}
	return res, redact(tx.Commit())
}

// isolated reports whether err speaks of rows, so that the batch can go on without them.
func isolated(err error) bool {
	if errors.As(err, new(errOrphans)) || errors.As(err, new(errRefused)) || errors.Is(err, errUneven) {
		return true
	}
	switch classify(err) {
	case classConstraint, classRaised, classLockTimeout:
		return true
	}
	return false
}

// ofRows reports whether err, of a change that was undone, speaks of rows, so that the batch can go on without them. A trigger
// may fail in any way there is, also by naming what does not exist: when our own conditions can be asked, it was a trigger.
func (x *execution) ofRows(ctx context.Context, err error) bool {
	if isolated(err) {
		return true
	}
	switch classify(err) {
	case classOther, classUndefined:
	default:
		return false
	}
	if faultOf(err).Code == "" { // not the database's word
		return false
	}
	return x.savepoint(ctx, func() error {
		q := newQuery(x.j.d).add("SELECT 1 FROM ", x.j.d.rows(x.j.t), " WHERE ")
		x.j.isDue(q)
		x.j.inScope(q)
		x.j.unguarded(q)
		x.free(q)
		rows, err := x.c.QueryContext(ctx, q.add(" LIMIT 1").String(), q.args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		rows.Next()
		return rows.Err()
	}) == nil
}

// change does what the policy says to the rows of the batch and accounts for each of them.
func (x *execution) change(ctx context.Context, w Work, f *finding) (*tally, error) {
	if x.j.careful || x.j.staged() || len(x.along) > 0 || w.Phase == phaseRetry || w.Phase == phaseMoved {
		return x.changeCarefully(ctx, w, f.keys)
	}
	if err := x.waitFor(ctx, quickWait); err != nil {
		return nil, err
	}
	var gone []tuple
	err := x.savepoint(ctx, func() (err error) {
		gone, err = x.deleteRange(ctx, w, f)
		if err == nil {
			err = x.orphans(ctx, gone)
		}
		return err
	})
	if err != nil && (errors.Is(err, errUnclear) || x.ofRows(ctx, err)) {
		return x.changeCarefully(ctx, w, f.keys)
	}
	if err != nil {
		return nil, err
	}
	t := newTally()
	t.put("deleted", gone...)
	// Whatever was planned and is not gone by our hand is looked up; rows that became due since go along. A row that is still
	// due was kept by a trigger, or moved out of the range: the pass at the end finds out, by its key.
	return t, x.account(ctx, t, without(f.keys, gone), none, false)
}

// deleteRange is the quick way: one statement that repeats every condition, and the rows that it took.
func (x *execution) deleteRange(ctx context.Context, w Work, f *finding) ([]tuple, error) {
	j := x.j
	if f.horizon != "" {
		return x.deleteSpan(ctx, w, f.span, f.keys)
	}
	q := newQuery(j.d).add("DELETE FROM ", j.d.rows(j.t))
	j.where(q, w.Phase, f.lo, f.hi)
	j.unguarded(q)
	x.notHeld(q)
	q.add(" RETURNING ", j.readKey())
	return j.tuples(ctx, x.c, q, j.key)
}

// without returns the keys of all that are not in some. The common case, the same rows in the same order, is one pass.
func without(all, some []tuple) []tuple {
	same := len(all) == len(some)
	for i := 0; same && i < len(all); i++ {
		same = equal(all[i], some[i])
	}
	if same {
		return nil
	}
	have := among(some)
	var rest []tuple
	for _, k := range all {
		if !have(k) {
			rest = append(rest, k)
		}
	}
	return rest
}

func equal(a, b tuple) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func decodeHash(s string, to *[16]byte) error {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(to) {
		return fmt.Errorf("a row hash in a receipt cannot be read")
	}
	copy(to[:], b)
	return nil
}

// Transient reports whether the same work may succeed a moment later: the database was out of reach or busy.
func Transient(err error) bool {
	switch classify(err) {
	case classConnection, classRetryable, classLockTimeout:
		return true
	}
	return false
}

// Denied reports whether our role lacks a right.
func Denied(err error) bool { return classify(err) == classPermission }

// Unevaluable reports whether the policy's own SQL is what the database does not accept.
func Unevaluable(err error) bool {
	return err != nil && (classify(err) == classUndefined || isSQLError(err))
}

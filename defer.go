package curfew

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/riverq"
	"curfew.dev/curfew/task"
)

// Deferred names a call that was deferred.
type Deferred struct {
	ID        int64 // in curfew task calls, and over HTTP
	Duplicate bool  // an open call of the task had the unique key already: this is its id, and there is no second
}

// A DeferOption says how a call is to be executed, other than its task says.
type DeferOption func(*deferral)

type deferral struct {
	call riverq.Call
	in   time.Duration
}

// At has the call wait for an instant.
func At(at time.Time) DeferOption { return func(d *deferral) { d.call.At = at } }

// In has the call wait so long, by the ledger's clock.
func In(in time.Duration) DeferOption { return func(d *deferral) { d.in = in } }

// Unique makes the call the only open one of its task with this key: while one waits, executes or is tried again, deferring
// another gives that one. A key that was used for a call which has ended is free again.
func Unique(key string) DeferOption { return func(d *deferral) { d.call.Key = key } }

// Priority has calls with a lower number execute before others of the same queue: 1 to 4.
func Priority(p int) DeferOption { return func(d *deferral) { d.call.Priority = p } }

// Defer has a task called as soon as a worker is free, by this process or any other on the ledger that has the task. args is
// what the task takes, or nil where it takes nothing. When Defer has returned the call survives every process.
//
// A call is executed at least once: a process that dies between the work and saying so leaves it to be done again.
func (c *Curfew) Defer(ctx context.Context, t *task.Task, args any, opts ...DeferOption) (Deferred, error) {
	text, err := t.Encode(args)
	if err != nil {
		return Deferred{}, &Error{Kind: KindUsage, Err: err, Hint: "nothing was deferred"}
	}
	return c.deferCall(ctx, t.Name(), text, nil, "defer", opts)
}

// DeferAt is Defer with [At].
func (c *Curfew) DeferAt(ctx context.Context, at time.Time, t *task.Task, args any, opts ...DeferOption) (Deferred, error) {
	return c.Defer(ctx, t, args, append(opts, At(at))...)
}

// DeferIn is Defer with [In].
func (c *Curfew) DeferIn(ctx context.Context, in time.Duration, t *task.Task, args any, opts ...DeferOption) (Deferred, error) {
	return c.Defer(ctx, t, args, append(opts, In(in))...)
}

// DeferTx is Defer in a transaction of the caller's own, on the ledger's database: the call is there when tx commits, and never
// was when it is rolled back. With a ledger on SQLite, the transaction is on the ledger's file, and began with BEGIN IMMEDIATE; before
// the first of them there was a Start, or an Open.
func (c *Curfew) DeferTx(ctx context.Context, tx *sql.Tx, t *task.Task, args any, opts ...DeferOption) (Deferred, error) {
	text, err := t.Encode(args)
	if err != nil {
		return Deferred{}, &Error{Kind: KindUsage, Err: err, Hint: "nothing was deferred"}
	}
	if _, file := c.ledgerFile(); file && !c.queueOpen() {
		// To open it now would be to wait for the caller's own transaction.
		return Deferred{}, fail(KindUsage, "call Open, or Start, before the transaction begins", "a ledger on SQLite is not opened within a transaction on it")
	}
	q, err := c.inserter(ctx)
	if err != nil {
		return Deferred{}, err
	}
	call, err := c.deferral(ctx, t.Name(), text, nil, "defer", opts)
	if err != nil {
		return Deferred{}, err
	}
	made, err := q.DeferTx(ctx, tx, []riverq.Call{call})
	if err != nil {
		return Deferred{}, &Error{Kind: KindFailed, Err: fmt.Errorf("defer %s: %w", t.Name(), err), Hint: "roll the transaction back; it is to be one on the ledger's database, " + withoutSecrets(c.file.Ledger)}
	}
	return Deferred(made[0]), nil
}

// DeferNamed is Defer for a task that is known by its name only, and arguments in JSON.
func (c *Curfew) DeferNamed(ctx context.Context, name string, args json.RawMessage, opts ...DeferOption) (Deferred, error) {
	return c.deferCall(ctx, name, args, nil, "cli", opts)
}

// deferCall defers in a transaction of its own.
func (c *Curfew) deferCall(ctx context.Context, name string, args json.RawMessage, argv []string, cause string, opts []DeferOption) (Deferred, error) {
	q, err := c.inserter(ctx)
	if err != nil {
		return Deferred{}, err
	}
	call, err := c.deferral(ctx, name, args, argv, cause, opts)
	if err != nil {
		return Deferred{}, err
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return Deferred{}, err
	}
	var made []riverq.Deferred
	err = l.Tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		made, err = q.DeferTx(ctx, tx, []riverq.Call{call})
		return err
	})
	if err != nil {
		return Deferred{}, ledgerError(fmt.Errorf("defer %s: %w", name, err))
	}
	c.wakeCalls(call.Queue)
	return Deferred(made[0]), nil
}

// deferral is a call with what its task and the caller say of it.
func (c *Curfew) deferral(ctx context.Context, name string, args json.RawMessage, argv []string, cause string, opts []DeferOption) (riverq.Call, error) {
	r, err := c.taskRecord(ctx, name)
	if err != nil {
		return riverq.Call{}, err
	}
	d := deferral{call: callOf(r)}
	d.call.Args, d.call.Argv, d.call.Cause = args, argv, cause
	for _, o := range opts {
		o(&d)
	}
	switch {
	case d.in != 0 && !d.call.At.IsZero():
		return riverq.Call{}, fail(KindUsage, "give one of them", "a call comes at an instant or after a while, not both")
	case d.in < 0:
		return riverq.Call{}, fail(KindUsage, "give a length such as 10m", "a call cannot come %s ago", -d.in)
	case d.call.Priority < 1 || d.call.Priority > 4:
		return riverq.Call{}, fail(KindUsage, "1 comes first, 4 last", "no priority %d", d.call.Priority)
	case len(args) > 0 && !json.Valid(args):
		return riverq.Call{}, fail(KindUsage, `for example {"order": 4711}`, "the arguments are not JSON")
	}
	if k := c.tasks[name]; k != nil && k.fn != nil && len(args) > 0 { // else every attempt would fail
		if err := k.fn.CheckArgs(args); err != nil {
			return riverq.Call{}, &Error{Kind: KindUsage, Err: err, Hint: "nothing was deferred"}
		}
	}
	if d.in > 0 {
		now, err := c.clockNow(ctx)
		if err != nil {
			return riverq.Call{}, err
		}
		d.call.At = now.Add(d.in)
	}
	if err := d.call.Check(); err != nil {
		return riverq.Call{}, &Error{Kind: KindUsage, Err: fmt.Errorf("a call of %s: %w", name, err), Hint: "nothing was deferred"}
	}
	return d.call, nil
}

// taskRecord is what there is to know about calling a task: of this process, or what others have said in the ledger.
func (c *Curfew) taskRecord(ctx context.Context, name string) (ledger.TaskRecord, error) {
	if d := c.tasks[name]; d != nil {
		return d.record(), nil
	}
	hint := "the tasks are in " + c.fileName() + ", or in an application that has started with this ledger"
	if c.noLedgerYet() {
		return ledger.TaskRecord{}, fail(KindNotFound, hint, "no task %q", name)
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return ledger.TaskRecord{}, err
	}
	r, err := l.TaskOf(ctx, name)
	if errors.Is(err, ledger.ErrNotFound) {
		if near := nearestTask(name, c.TaskNames()); near != "" {
			hint = "did you mean " + near + "?"
		}
		return ledger.TaskRecord{}, fail(KindNotFound, hint, "no task %q", name)
	}
	if err != nil {
		return ledger.TaskRecord{}, ledgerError(err)
	}
	return r, nil
}

// nearestTask is a name that differs in case or marks only.
func nearestTask(name string, names []string) string {
	plain := strings.NewReplacer("_", "", "-", "", ".", "")
	for _, n := range names {
		if strings.EqualFold(plain.Replace(n), plain.Replace(name)) {
			return n
		}
	}
	return ""
}

// inserting is the client that puts calls into the queue, also where no service works.
type inserting struct {
	db *ledger.QueueDB
	q  *riverq.Client
}

func (i *inserting) close() error {
	if i == nil {
		return nil
	}
	return i.db.Close()
}

// clockNow is the ledger's time. That of SQLite is the machine's or the clock that we were given: it is not asked, as its connection may be
// waiting for the transaction of who wants to know.
func (c *Curfew) clockNow(ctx context.Context) (time.Time, error) {
	_, file := c.ledgerFile()
	switch {
	case !file && c.file.Ledger != inMemory:
		return c.now(ctx)
	case c.clock != nil:
		return c.clock(), nil
	}
	return time.Now(), nil
}

// Open opens the ledger and the queue in it, which else the first call that needs them does. A program that defers in transactions of
// its own on a SQLite ledger, and does not Start, calls it before the first of them.
func (c *Curfew) Open(ctx context.Context) error {
	_, err := c.inserter(ctx)
	return err
}

// queueOpen reports whether Open has done its work.
func (c *Curfew) queueOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inserts != nil
}

// inserter opens the queue to put calls into it, and to look at them.
func (c *Curfew) inserter(ctx context.Context) (*riverq.Client, error) {
	l, err := c.ledger(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.inserts != nil {
		return c.inserts.q, nil
	}
	db, err := l.QueueDB(ctx)
	if err != nil {
		return nil, ledgerError(err)
	}
	if err := migrateQueue(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	q, err := riverq.New(riverq.Options{DB: db.DB, SQLite: db.SQLite, Schema: db.Schema, Logger: c.log, Clock: c.queueClock(db)})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	c.inserts = &inserting{db, q}
	return q, nil
}

// migrateQueue makes the queue's tables in a SQLite ledger; on PostgreSQL curfew migrate does it.
func migrateQueue(ctx context.Context, db *ledger.QueueDB) error {
	if !db.SQLite {
		return nil
	}
	return ledgerError(riverq.Migrate(ctx, db.DB, true, db.Schema))
}

// queueClock is the clock that a SQLite ledger was given, for the queue in it. A server has its own.
func (c *Curfew) queueClock(db *ledger.QueueDB) func() time.Time {
	if !db.SQLite {
		return nil
	}
	return c.clock
}

// wakeCalls has the service of this process, if there is one, look at a queue at once.
func (c *Curfew) wakeCalls(queue string) {
	if b := c.emb.Load(); b != nil {
		b.e.queue.Wake(queue)
	}
}

// LedgerDB is the ledger's database, for DeferTx in an application that has no handle of its own to it. On SQLite it has one
// connection, which the service writes with too: a transaction is to be short.
func (c *Curfew) LedgerDB(ctx context.Context) (*sql.DB, error) {
	if _, err := c.inserter(ctx); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inserts.db.DB, nil
}

package curfew

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/hold"
	"curfew.dev/curfew/internal/keyring"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/riverq"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/internal/web"
	"curfew.dev/curfew/internal/worker"
	"curfew.dev/curfew/policy"
)

// engine is the service under one text of the policy file: it turns schedules into runs, drains them through the queue, and
// executes batches. Everything that it must not forget is in the ledger; any other engine on the same ledger goes on from there.
type engine struct {
	c       *Curfew
	l       *ledger.Ledger
	keys    *keyring.Keyring
	owner   string
	read    time.Time // when the policy file was read, by the ledger's clock
	qdb     *ledger.QueueDB
	queue   *riverq.Client
	metrics *web.Metrics
	loops   *loops
	done    *settled
	kick    chan struct{} // something happened that the supervisor should look at now
	calling calling       // periodic calls that execute here

	kickCalls  chan struct{}    // the same for who looks after calls
	stepStages []*stageSchedule // of Drain
	begun      *atomic.Bool     // the service has begun to work, with this text of the file or one before

	mu        sync.Mutex
	drains    map[string]context.CancelFunc // runs that this process drains
	works     map[string]*cached            // runs that it has executed batches of lately
	databases map[string]string             // of policy revisions
	ended     map[string]bool               // policies and tasks of which a run ended here: what waited for that may begin
	drain     sync.WaitGroup
}

// newEngine opens what the service cannot do without: the ledger, the key and the queue.
func newEngine(ctx context.Context, c *Curfew, metrics *web.Metrics) (*engine, error) {
	l, err := c.ledger(ctx)
	if err != nil {
		return nil, err
	}
	var keys *keyring.Keyring
	if len(c.file.Policies) > 0 || c.file.Key != "" { // tasks name no rows, and seal nothing
		if keys, err = c.keys(); err != nil {
			return nil, err
		}
	}
	e := &engine{c: c, l: l, keys: keys, metrics: metrics, owner: newOwner(), loops: &loops{log: c.log}, done: newSettled(),
		kick: make(chan struct{}, 1), kickCalls: make(chan struct{}, 1),
		drains: map[string]context.CancelFunc{}, works: map[string]*cached{}, ended: map[string]bool{}, databases: map[string]string{}}
	if e.read, err = l.Now(ctx); err != nil {
		return nil, ledgerError(err)
	}
	if e.qdb, err = l.QueueDB(ctx); err != nil {
		return nil, ledgerError(err)
	}
	if err := migrateQueue(ctx, e.qdb); err != nil {
		return nil, errors.Join(err, e.qdb.Close())
	}
	x := &executing{c: c, l: l, queue: func() *riverq.Client { return e.queue }, owner: e.owner, begun: e.callBegins}
	o := riverq.Options{DB: e.qdb.DB, SQLite: e.qdb.SQLite, Schema: e.qdb.Schema, ID: e.owner, Logger: c.log, Clock: c.queueClock(e.qdb),
		Execute: e.execute, Beat: dispatch.HeartbeatEvery / 2,
		Tasks: c.TaskNames(), Do: x.do, Died: e.callDied, Queues: maps.Clone(c.file.Engine.Queues)}
	o.Workers, o.Reserved = c.workers()
	if o.Queues == nil {
		o.Queues = map[string]int{}
	}
	maps.Copy(o.Queues, c.queues)
	for _, d := range c.tasks {
		switch name := d.queue(); {
		case d.o.Queue == "" && d.o.Concurrency > 0:
			o.Queues[name] = d.o.Concurrency
		case name != riverq.Interactive && o.Queues[name] == 0: // of an application, which nothing else speaks of
			o.Queues[name] = queueWorkers
		}
	}
	e.queue, err = riverq.New(o)
	if err != nil {
		return nil, errors.Join(ledgerError(err), e.qdb.Close())
	}
	return e, nil
}

// queueWorkers is how many each process has for a queue of which nobody says it.
const queueWorkers = 4

// workers are how many this process has, and how many of them cleanup may never take: all, where there are no policies, and one at
// least.
func (c *Curfew) workers() (all, reserved int) {
	all, reserved = c.file.Engine.Workers, max(1, c.file.Engine.Reserved)
	if len(c.file.Policies) == 0 {
		return all, all
	}
	return max(all, reserved+1), reserved
}

// run works until ctx is done, then lets what is in hand end.
func (e *engine) run(ctx context.Context, end *ending, workersOnly bool, more func(ctx context.Context)) error {
	loopCtx, stopLoops := context.WithCancel(ctx)
	defer stopLoops()
	switch err := e.begin(ctx); {
	case err != nil && ctx.Err() != nil: // it was told to stop before it began
	case err != nil:
		return err
	default:
		e.loops.Go(loopCtx, "queue", e.watchQueue)
		if !workersOnly {
			e.loops.Go(loopCtx, "schedules", e.tick)
			e.loops.Go(loopCtx, "runs", e.supervise)
			e.loops.Go(loopCtx, "holds", e.watchHolds)
			e.loops.Go(loopCtx, "calls", e.watchCalls)
			e.loops.Go(loopCtx, "old_calls", e.pruneCalls)
		}
		if more != nil {
			more(loopCtx)
		}
	}
	<-ctx.Done()
	stopLoops()
	return e.wind(ctx, end)
}

// begin has the queue fetch and execute.
func (e *engine) begin(ctx context.Context) error {
	switch err := e.queue.Start(ctx); {
	case errors.Is(err, riverq.ErrNotMigrated):
		return &Error{Kind: KindRefused, Err: err, Hint: "curfew migrate brings the ledger up to date"}
	case err != nil:
		return ledgerError(err)
	}
	e.begun.Store(true)
	return nil
}

// wind lets what is in hand come to its end. A ledger that does not answer must not keep us: what it did not hear, another process
// finds out.
func (e *engine) wind(ctx context.Context, end *ending) error {
	var stopped error
	abort, late, cancel := end.from()
	defer cancel()
	if !within(late, func() {
		e.loops.wait()
		defer e.watchOver(late)()
		e.drain.Wait()
		if err := e.queue.Stop(abort); err != nil {
			e.c.log.WarnContext(ctx, "queue_stopped_late", "err", err)
		}
		stopped = e.qdb.Close()
	}) {
		e.c.log.WarnContext(ctx, "stopped_late", "after", end.within.String())
		return nil
	}
	return stopped
}

// watchQueue makes the service not ready when the queue fetches no more.
func (e *engine) watchQueue(ctx context.Context, beat func()) error {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		if err := e.queue.Alive(); err != nil {
			return err
		}
		beat()
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
	}
}

// enqueue puts a run's batches into the queue. It is called in the transaction that admits them.
func (e *engine) enqueue(w *work) func(context.Context, *sql.Tx, string, []int64) error {
	return func(ctx context.Context, tx *sql.Tx, run string, seqs []int64) error {
		batches := make([]riverq.Batch, len(seqs))
		for i, seq := range seqs {
			batches[i] = riverq.Batch{Run: run, Seq: seq,
				Attempts: w.p.Retry.Attempts, Backoff: w.p.Retry.Backoff, Factor: w.p.Retry.Factor}
		}
		return e.queue.InsertTx(ctx, tx, batches)
	}
}

// wake makes this process look for what enqueue has committed.
func (e *engine) wake() { e.queue.Wake(riverq.Cleanup) }

// cached is a run bound to its table, kept while batches of it come.
type cached struct {
	once sync.Once
	w    *work
	err  error
	used time.Time
}

// idleWork is how long a bound run is kept without a batch.
const idleWork = 10 * time.Minute

// work binds a run that has begun, once in this process.
func (e *engine) work(ctx context.Context, run ledger.Run) (*work, error) {
	e.mu.Lock()
	k := e.works[run.ID]
	if k == nil {
		k = &cached{}
		e.works[run.ID] = k
		for id, old := range e.works {
			if id != run.ID && time.Since(old.used) > idleWork {
				delete(e.works, id)
			}
		}
	}
	k.used = time.Now()
	e.mu.Unlock()
	k.once.Do(func() {
		if k.w, k.err = e.c.bind(ctx, e.l, run); k.err != nil || k.w.remote != nil {
			return
		}
		var began target.Start
		if began, k.err = k.w.began(); k.err == nil {
			k.err = k.w.job.Adopt(began, began) // each batch compares the table itself
		}
	})
	if k.err != nil {
		e.forget(run.ID)
	}
	return k.w, k.err
}

func (e *engine) forget(run string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.works, run)
}

// execute is what the queue calls for one batch. Nil means that the batch needs no more work: it is settled, or its run has ended.
// Any other error brings it back later, under the same key.
func (e *engine) execute(ctx context.Context, b riverq.Batch, attempt int, last bool) error {
	defer e.done.tell(b.Run, b.Seq)
	lb, err := e.l.BatchOf(ctx, b.Run, b.Seq)
	if err != nil {
		return err
	}
	run, err := e.l.Get(ctx, b.Run)
	if err != nil {
		return err
	}
	if lb.State == ledger.Settled || run.State.Ended() {
		return nil
	}
	if err := e.inWindow(ctx, run); err != nil {
		return err
	}
	if attempt > b.Attempts {
		return e.fail(ctx, run, "batch_failed", fmt.Errorf("batch %d had its %d attempts, and none came to an end", b.Seq, b.Attempts))
	}
	w, err := e.work(ctx, run)
	if KindOf(err) == KindNotFound { // a database that is not in this process's file
		return riverq.ErrElsewhere
	}
	if err != nil {
		return e.failed(ctx, run, err, last)
	}
	if w.remote != nil {
		return nil // it was queued while the file had the database's url: whoever drains the run finds that out
	}
	o := w.options()
	batch, err := o.FromLedger(run.ID, lb)
	if errors.Is(err, keyring.ErrOtherKey) {
		e.c.log.ErrorContext(ctx, "other_key", "run", run.ID, "policy", run.Policy, "err", err, "hint", "give all processes on this ledger the same installation's key")
		return riverq.ErrElsewhere
	}
	if err != nil {
		return e.failed(ctx, run, &dispatch.StopError{Why: "sealed_otherwise", Err: err}, last)
	}
	// A run that was given up by its process keeps its batches in the queue, and may have lost its lock meanwhile.
	if free, err := e.c.takeLock(ctx, e.l, e.queue, run, w.p); err != nil {
		return err
	} else if !free {
		return &riverq.LaterError{After: lockWait}
	}
	done, err := w.executor(nil, nil).Execute(ctx, batch)
	if errors.Is(err, hold.ErrPending) { // it waited long enough; the attempt does not count
		e.c.log.WarnContext(ctx, "hold_pending", "run", run.ID, "policy", run.Policy, "err", err)
		return riverq.ErrElsewhere
	}
	if err != nil && last && ctx.Err() == nil && !errors.As(err, new(*dispatch.StopError)) {
		done, err = w.executor(nil, nil).giveUp(ctx, batch, err)
	}
	if err != nil {
		return e.failed(ctx, run, err, last)
	}
	s := done.Settlement
	s.Batch, s.Attempts = batch.Key, int64(attempt)
	s.DeferredKeys = o.Seal(run.ID, done.Deferred)
	// What was done is recorded also when we were told to stop: the rows are gone.
	settled, err := e.l.Settle(context.WithoutCancel(ctx), run.ID, s)
	if errors.Is(err, ledger.ErrSettledDifferently) && run.Mode == string(policy.Shadow) {
		return nil // a shadow batch leaves no receipt: another process looked at another moment, and was first
	}
	if err == nil {
		e.c.log.DebugContext(ctx, "batch_settled", "run", run.ID, "policy", run.Policy, "stage", run.Stage, "as_of", run.AsOf, "cutoff", run.Cutoff,
			"batch", s.Batch.String(), "planned", s.Planned, "outcomes", map[string]int64(s.Outcomes), "deferred", s.Deferred, "took", s.Duration,
			"settled", settled.BatchesSettled)
	}
	return err
}

// inWindow puts a batch off that would begin outside the windows of its policy. It is one that was let in before the window closed.
func (e *engine) inWindow(ctx context.Context, run ledger.Run) error {
	p, err := e.c.storedPolicy(ctx, e.l, run)
	if err != nil || len(p.Windows) == 0 {
		return nil // what is wrong with the text is found out when it is worked on
	}
	now, err := e.l.Now(ctx)
	if err != nil {
		return err
	}
	if next := p.NextWindow(now); next.After(now) {
		return &riverq.LaterError{After: next.Sub(now)}
	}
	return nil
}

// failed ends the run when the error says that it cannot go on, or when the batch had its last attempt.
func (e *engine) failed(ctx context.Context, run ledger.Run, err error, last bool) error {
	if ctx.Err() != nil {
		return err
	}
	if changed, cerr := e.databaseChanged(ctx, run, err); changed {
		e.forget(run.ID)
		return cerr
	}
	why := ""
	switch stop := (*dispatch.StopError)(nil); {
	case errors.As(err, &stop):
		why = stop.Why
	case KindOf(err) == KindRefused, KindOf(err) == KindConfig:
		why = "refused"
	case last:
		why = "batch_failed"
	default:
		e.metrics.BatchRetried()
		e.c.log.WarnContext(ctx, "batch_retried", "run", run.ID, "policy", run.Policy, "err", err)
		if off := (*worker.PutOffError)(nil); errors.As(err, &off) && off.After > 0 {
			return &riverq.PutOffError{After: off.After, Err: err}
		}
		return err
	}
	e.forget(run.ID)
	return e.fail(ctx, run, why, err)
}

// fail ends a run as failed.
func (e *engine) fail(ctx context.Context, run ledger.Run, why string, cause error) error {
	ended, err := e.l.End(context.WithoutCancel(ctx), run.ID, ledger.Failed, why, cause.Error())
	if err == nil && ended.WhyEnded == why {
		e.c.event(ctx, "run_failed", ended)
	}
	return err
}

// giveUp records each row of a batch that failed for good, so that nothing does it later and the run says so.
func (e executor) giveUp(ctx context.Context, b dispatch.Batch, cause error) (dispatch.Done, error) {
	return done(e.w.GiveUp(ctx, asWork(b), cause))
}

// settled tells who waits for a batch that this process is done with it. It only makes waiting shorter: the ledger decides.
type settled struct {
	mu      sync.Mutex
	waiting map[batchName]chan struct{} // closed when it may be settled
}

type batchName struct {
	run string
	seq int64
}

func newSettled() *settled { return &settled{waiting: map[batchName]chan struct{}{}} }

// next is closed when this process is done with the batch, from now on. A waiter that leaves tells, too, so that nothing stays.
func (s *settled) next(run string, seq int64) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := batchName{run, seq}
	if s.waiting[b] == nil {
		s.waiting[b] = make(chan struct{})
	}
	return s.waiting[b]
}

func (s *settled) tell(run string, seq int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := batchName{run, seq}
	if ch := s.waiting[b]; ch != nil {
		close(ch)
		delete(s.waiting, b)
	}
}

// lookEvery is how often a dispatcher asks the ledger for batches that other processes execute.
const lookEvery = 50 * time.Millisecond

// queued is the worker of a dispatcher that has a queue: it waits until somebody has done the batch.
type queued struct {
	e   *engine
	run string
}

func (q queued) Execute(ctx context.Context, b dispatch.Batch) (dispatch.Done, error) {
	defer q.e.done.tell(q.run, b.Seq)
	for {
		wake := q.e.done.next(q.run, b.Seq)
		s, ok, err := q.e.l.SettledBatch(ctx, q.run, b.Seq)
		if err != nil {
			return dispatch.Done{}, err
		}
		if ok {
			// A batch that was handed on because it took too long has no duration; one that found too many rows has.
			tooLong := s.Planned == 0 && s.Deferred > 0 && s.Duration == 0
			return dispatch.Done{Settlement: s, Settled: true, TooLong: tooLong, Took: s.Duration}, nil
		}
		run, err := q.e.l.Get(ctx, q.run)
		if err != nil {
			return dispatch.Done{}, err
		}
		if run.State.Ended() {
			return dispatch.Done{}, &dispatch.EndedError{Run: run}
		}
		select {
		case <-ctx.Done():
			return dispatch.Done{}, ctx.Err()
		case <-wake:
		case <-time.After(lookEvery):
		}
	}
}

package curfew

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/hold"
	"curfew.dev/curfew/internal/keyring"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/pool"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/internal/worker"
	"curfew.dev/curfew/policy"
)

// work is a run bound to the table that it is about. What it executes is the revision that the ledger stored with the run,
// whatever the local file says now.
type work struct {
	c    *Curfew
	l    *ledger.Ledger
	run  ledger.Run
	p    *policy.Policy
	job  *target.Job // nil when a pool does the work
	keys *keyring.Keyring
	tell *worker.Telling // for an action that is done outside of the database

	counts  counter      // what a run of this policy is about to do
	remote  *pool.Remote // nil when this process does the work
	retried func()       // counts batches that the pool tries again; may be nil
}

// bind opens what an open run needs. An error of KindRefused says that the run cannot begin as things stand.
func (c *Curfew) bind(ctx context.Context, l *ledger.Ledger, run ledger.Run) (*work, error) {
	p, err := c.storedPolicy(ctx, l, run)
	if err != nil {
		return nil, err
	}
	keys, err := c.keys()
	if err != nil {
		return nil, err
	}
	if client := c.pool(p.Database); client != nil {
		return c.bindPool(l, run, p, keys, client), nil
	}
	db, table, err := c.prepare(ctx, l, p)
	if err != nil {
		return nil, err
	}
	job, err := target.NewJob(db, target.JobOptions{Policy: p, Table: table, AsOf: run.AsOf, Cutoff: run.Cutoff,
		Live: live(run), CheckHolds: c.checkHolds(l, p), Shadow: run.Mode == string(policy.Shadow), Run: run.ID, Keys: keys, Logger: c.log})
	if err != nil {
		return nil, &Error{Kind: KindRefused, Err: err, Hint: "curfew check " + p.Name + " says more"}
	}
	tell, err := c.telling(p, run)
	if err != nil {
		return nil, err
	}
	return &work{c: c, l: l, run: run, p: p, job: job, keys: keys, tell: tell, counts: localCounter{c, job, run}}, nil
}

func (c *Curfew) storedPolicy(ctx context.Context, l *ledger.Ledger, run ledger.Run) (*policy.Policy, error) {
	body, err := l.RevisionBody(ctx, run.Revision)
	if err != nil {
		return nil, ledgerError(err)
	}
	p, err := policy.FromRevision(body)
	if err != nil {
		return nil, fmt.Errorf("the policy stored with run %.12s: %w", run.ID, err)
	}
	q, ok := p.Narrow(run.Stage)
	if !ok {
		return nil, fmt.Errorf("the policy stored with run %.12s has no stage %q", run.ID, run.Stage)
	}
	return q, nil
}

// live reports whether a schedule chose the as_of of a run, and not a person.
func live(run ledger.Run) bool { return run.Cause == "schedule" || run.Cause == "catch_up" }

// executor executes batches; without waits somebody else brings back what fails for now. Closing stop ends the waiting.
func (w *work) executor(waits []time.Duration, stop <-chan struct{}) executor {
	return executor{&worker.Worker{Job: w.job, AsOf: w.run.AsOf, KeyID: w.keys.ID(), Waits: waits, Logger: w.c.log, Tell: w.tellOptions(waits, stop),
		AwaitHolds: func(ctx context.Context) error { return w.c.awaitHolds(ctx, w.l, w.p) }}}
}

// options are those of a drain in this process.
func (w *work) options() dispatch.Options {
	if w.remote != nil {
		return w.remoteOptions()
	}
	return dispatch.Options{Ledger: w.l, Pager: pager{w.job}, Sealer: w.keys, Batch: batchOf(w.p), Logger: w.c.log, Worker: w.executor(shortWaits, nil),
		Weigh: w.weigh, Window: w.window()}
}

// window is when batches of the policy may begin; nil for at any time.
func (w *work) window() func(time.Time) time.Time {
	if len(w.p.Windows) == 0 {
		return nil
	}
	return w.p.NextWindow
}

// over reports whether nothing more happens in a run as it stands: it has ended, or waits for approval.
func over(r ledger.Run) bool { return r.State.Ended() || r.State == ledger.AwaitingApproval }

// drain works on an open run in the foreground.
func (c *Curfew) drain(ctx context.Context, l *ledger.Ledger, run ledger.Run, req RunRequest) (ledger.Run, error) {
	w, err := c.bind(ctx, l, run)
	if err != nil {
		return run, err
	}
	if err := w.start(ctx); err != nil || over(w.run) {
		return w.run, err
	}
	o := w.options()
	o.Stop, o.Outside = req.Stop, req.Outside
	if w.remote == nil {
		o.Worker = w.executor(shortWaits, req.Stop)
	}
	if req.Progress != nil {
		estimate := func(int64) int64 { return -1 }
		if w.job != nil && w.p.Stage() == nil { // of a stage the trigger alone does not tell how many there are
			estimate = c.estimate(ctx, w.job)
		}
		o.Report = func(r ledger.Run) { req.Progress(Progress{Run: r.ID, Estimate: estimate(r.Planned), Done: r.Planned}) }
	}
	defer c.own(ctx, l, run.ID)()
	if w.run, err = c.awaitLock(ctx, l, w.run, w.p, req); err != nil {
		return c.settleEnd(ctx, l, w.run, err)
	}
	if over(w.run) {
		return w.run, nil
	}
	w.run, err = dispatch.Drain(ctx, run.ID, o)
	return c.settleEnd(ctx, l, w.run, err)
}

// start fixes how the run pages and what table it is about. A run that was begun keeps both, or cannot go on: then it ends.
func (w *work) start(ctx context.Context) error {
	if err := w.holdsAgree(ctx); err != nil || w.run.State.Ended() {
		return err
	}
	if w.remote != nil {
		return w.startRemote(ctx)
	}
	now, err := w.job.Begin(ctx)
	if err != nil {
		return targetError("", err)
	}
	plan, err := json.Marshal(now)
	if err != nil {
		return err
	}
	if err := w.running(ctx, plan); err != nil || over(w.run) {
		return err
	}
	began, err := w.began()
	if err != nil {
		return err
	}
	if err := w.job.Adopt(began, now); err != nil {
		return w.fail(ctx, "schema_changed", err)
	}
	return nil
}

// running says in the ledger that the run is worked on, with this plan unless it has one.
func (w *work) running(ctx context.Context, plan []byte) error {
	begins := w.run.State == ledger.Accepted
	started, err := w.l.Start(ctx, w.run.ID, plan)
	if errors.Is(err, ledger.ErrRunEnded) || errors.Is(err, ledger.ErrAwaiting) { // another process was at work on it, and is done
		w.run, err = w.l.Get(ctx, w.run.ID)
		return ledgerError(err)
	}
	if err != nil {
		return ledgerError(err)
	}
	w.run = started
	hook("started")
	if begins {
		w.c.event(ctx, "run_started", w.run)
	}
	return nil
}

// fail ends the run, which cannot go on.
func (w *work) fail(ctx context.Context, why string, cause error) error {
	ended, err := w.l.End(ctx, w.run.ID, ledger.Failed, why, cause.Error())
	if err == nil {
		w.run = ended
		w.c.event(ctx, "run_failed", ended)
	}
	return ledgerError(err)
}

// began is what the first process that worked on the run fixed.
func (w *work) began() (target.Start, error) {
	var s target.Start
	if err := json.Unmarshal(w.run.Plan, &s); err != nil {
		return s, fmt.Errorf("the plan of run %.12s: %w", w.run.ID, err)
	}
	return s, nil
}

// countAfter is how long a run goes on before its rows are counted for the progress line: a short one is over by then, and
// counting may cost as much as deleting.
const countAfter = 3 * time.Second

// estimate says how many rows the run will settle, given how many it has: it counts what is left, once, beside the work. Until
// that is known, and when it takes too long to find out for a progress line, the answer is -1.
func (c *Curfew) estimate(ctx context.Context, job *target.Job) func(done int64) int64 {
	var known atomic.Int64
	known.Store(-1)
	begin, counting := time.Now(), false
	return func(done int64) int64 {
		if !counting && time.Since(begin) > countAfter {
			counting = true
			go func() {
				ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
				defer cancel()
				if n, err := job.CountDue(ctx); err == nil {
					known.Store(done + n.Due + n.Unreadable)
				}
			}()
		}
		return known.Load()
	}
}

// settleEnd turns what Drain says into what the caller is told, and records an interruption.
func (c *Curfew) settleEnd(ctx context.Context, l *ledger.Ledger, run ledger.Run, err error) (ledger.Run, error) {
	if run.State.Ended() {
		if run.State == ledger.Succeeded {
			c.event(ctx, "run_ended", run)
			c.tidy(ctx, l, run)
		} else {
			c.event(ctx, "run_failed", run)
		}
		return run, nil
	}
	if err == nil || run.State == ledger.AwaitingApproval {
		return run, nil
	}
	kind, detail := KindFailed, err.Error()
	hint := runWords(run.Policy, run.Stage) + " goes on where it stopped"
	switch {
	case errors.Is(err, dispatch.ErrInterrupted), errors.Is(err, context.Canceled):
		kind, detail, err = KindInterrupted, "", fmt.Errorf("run %.12s was interrupted after %d rows", run.ID, run.Planned)
	case errors.Is(err, hold.ErrPending):
		kind, hint = KindUnreachable, "curfew hold list shows what is pending; then "+hint
	case target.Transient(err), KindOf(err) == KindUnreachable:
		kind = KindUnreachable
	case KindOf(err) == KindRefused:
		kind, hint = KindRefused, HintOf(err)
	case target.Denied(err):
		hint = "curfew check " + run.Policy + " names the right that is missing; then " + hint
	}
	if noted, nerr := l.Interrupt(context.WithoutCancel(ctx), run.ID, detail); nerr == nil {
		run = noted
	} else if !errors.Is(nerr, ledger.ErrRunEnded) {
		err = errors.Join(err, nerr)
	}
	return run, &Error{Kind: kind, Hint: hint, Err: err}
}

// keepReceipts is how long after its run's end a receipt is kept.
const keepReceipts = 30 * 24 * time.Hour

// tidy drops the receipts of this database's runs that ended long ago. What cannot be dropped now is dropped another day.
func (c *Curfew) tidy(ctx context.Context, l *ledger.Ledger, run ledger.Run) {
	p, err := c.file.Policy(run.Policy)
	if err != nil || run.Mode == string(policy.Shadow) {
		return
	}
	db, err := c.database(ctx, p.Database)
	if err != nil {
		return
	}
	before := run.EndedAt.Add(-keepReceipts)
	runs, err := db.ReceiptRuns(ctx, before)
	for _, id := range runs {
		old, gerr := l.Get(ctx, id)
		// A run that this ledger does not know, or has not settled, keeps its receipts: they are all there is to settle it from.
		if gerr != nil || !old.State.Ended() || old.EndedAt.After(before) || old.BatchesSettled != old.BatchesTotal {
			continue
		}
		if _, derr := db.DropReceipts(ctx, id); derr != nil {
			err = derr
		}
	}
	if err != nil && ctx.Err() == nil { // whoever stops need not say so: the next run sees to them
		c.log.WarnContext(ctx, "receipts_kept", "database", p.Database, "err", err)
	}
}

// pager and executor give the dispatcher a target job.
type pager struct{ job *target.Job }

func (p pager) Page(ctx context.Context, cursor []byte, rows int) (dispatch.Page, error) {
	page, err := p.job.Page(ctx, cursor, rows)
	for i := 0; err != nil && target.Transient(err) && i < len(shortWaits); i++ {
		select {
		case <-ctx.Done():
			return dispatch.Page{}, ctx.Err()
		case <-time.After(shortWaits[i]):
		}
		page, err = p.job.Page(ctx, cursor, rows)
	}
	if stop := worker.AsStop(err); stop != nil {
		return dispatch.Page{}, &dispatch.StopError{Why: stop.Why, Err: stop}
	}
	if err != nil {
		return dispatch.Page{}, err
	}
	out := dispatch.Page{Cursor: page.Cursor, Done: page.Done}
	if b := page.Batch; b != nil {
		out.Batch = &dispatch.Batch{Phase: b.Phase, Rows: b.Rows, Bounds: b.Bounds, Keys: b.Keys}
	}
	return out, nil
}

func (p pager) Split(_ context.Context, handedOn []byte, rows int) ([]dispatch.Batch, error) {
	parts, err := target.Split(handedOn, rows)
	var out []dispatch.Batch
	for _, b := range parts {
		out = append(out, dispatch.Batch{Phase: b.Phase, Rows: b.Rows, Bounds: b.Bounds, Keys: b.Keys})
	}
	return out, err
}

type executor struct{ w *worker.Worker }

func (e executor) Execute(ctx context.Context, b dispatch.Batch) (dispatch.Done, error) {
	res, err := e.w.Execute(ctx, asWork(b))
	return done(res, stopped(err, dispatch.ErrInterrupted))
}

func asWork(b dispatch.Batch) target.Work {
	return target.Work{Key: b.Key[:], Seq: b.Seq, Phase: b.Phase, Rows: b.Rows, Bounds: b.Bounds, Keys: b.Keys}
}

func done(res worker.Result, err error) (dispatch.Done, error) {
	if stop := (*worker.Stop)(nil); errors.As(err, &stop) {
		return dispatch.Done{}, &dispatch.StopError{Why: stop.Why, Err: stop}
	}
	return dispatch.Done{Settlement: res.Settlement, Deferred: res.Deferred, TooLong: res.TooLong, Took: res.Took}, err
}

var _ dispatch.Sealer = (*keyring.Keyring)(nil)

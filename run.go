package curfew

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/policy"
)

// RunRequest asks for a run.
type RunRequest struct {
	Policy    string
	Stage     string
	AsOf      *time.Time // verbatim; nil: resume the policy's open run, else start one at the ledger's now
	Operation string     // the caller's own key; with it the same request is the same run
	Shadow    bool       // plan, count and record; change nothing

	// Stop, when it is closed, ends the run after the batches in hand, to be resumed later: Run then returns the run as it
	// is and an error of KindInterrupted. Cancelling the context aborts the batches in hand as well.
	Stop <-chan struct{}

	// Progress, when set, is called now and then, never concurrently, with how far the run is.
	Progress func(Progress)
	// Outside, when set, is called when the run begins to wait for a window of its policy, with when that opens.
	Outside func(opens time.Time)
	// Waiting, when set, is called when the run begins to wait for its policy's lock.
	Waiting func(lock string)
}

// Progress says how far a run is.
type Progress struct {
	Run      string
	Estimate int64 // rows the run will settle in all, as counted once it had gone on for a moment; -1 when unknown
	Done     int64 // rows settled so far, this process's and earlier ones'
}

// maxSkew is how far the ledger's clock and a governed database's may be apart.
const maxSkew = 30 * time.Second

// shortWaits are the pauses of a foreground run while a database is out of reach. A daemon would be more patient; here
// somebody is watching, and the run can be taken up again.
var shortWaits = []time.Duration{250 * time.Millisecond, time.Second, 3 * time.Second}

// Run accepts a run, or resumes the one that the request stands for, and drains it. A run that ended, however it ended, is
// no error; with an error the run is given too when there is one.
func (c *Curfew) Run(ctx context.Context, req RunRequest) (api.Run, error) {
	p, err := c.policy(req.Policy)
	if err != nil {
		return api.Run{}, err
	}
	if req.Shadow {
		p = shadowed(p)
	}
	if p, err = narrow(p, req.Stage, "--stage"); err != nil {
		return api.Run{}, err
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return api.Run{}, err
	}
	if _, err := c.keys(); err != nil { // before anything is written about a run that could not begin
		return api.Run{}, err
	}
	run, err := c.accept(ctx, l, p, req)
	if err != nil {
		return wireRun(run), err
	}
	hook("accepted")
	if over(run) {
		return wireRun(run), nil
	}
	run, err = c.drain(ctx, l, run, req)
	return wireRun(run), err
}

// hook is a point where tests stop the process.
func hook(point string) {
	if dispatch.TestHook != nil {
		dispatch.TestHook(point)
	}
}

// shadowed is the whole policy in shadow mode.
func shadowed(p *policy.Policy) *policy.Policy {
	q := *p
	q.Mode = policy.Shadow
	return &q
}

// accept finds the run that the request stands for, or makes it. A new run is accepted only when it could begin: nothing is
// written about a table that curfew would refuse to touch.
func (c *Curfew) accept(ctx context.Context, l *ledger.Ledger, p *policy.Policy, req RunRequest) (ledger.Run, error) {
	a := ledger.Acceptance{Policy: p.Name, Stage: p.StageName(), Mode: string(p.Mode), Operation: req.Operation, Cause: "cli", AsOf: req.AsOf, Cutoff: p.Cutoff, Actor: c.actor}
	switch {
	case req.Operation != "":
		a.Identity = ledger.IdentityKey(req.Operation)
	case req.AsOf != nil:
		a.Identity = ledger.IdentityAsOf(*req.AsOf)
	default:
		open, found, err := l.OpenRun(ctx, p.Name, p.StageName(), string(p.Mode))
		if err != nil {
			return ledger.Run{}, ledgerError(err)
		}
		if found {
			return open, c.sameRule(p, open)
		}
		a.Identity, a.JoinOpen = ledger.IdentityOnce(), true
	}
	known, err := l.Get(ctx, ledger.RunID(a.Policy, a.Stage, a.Mode, a.Identity))
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return ledger.Run{}, ledgerError(err)
	}
	if err == nil && (req.AsOf == nil || known.AsOf.Equal(req.AsOf.Truncate(time.Microsecond))) {
		return known, nil
	}
	if err != nil && req.AsOf != nil && req.Operation == "" {
		// A run that took its as_of from the ledger's clock is found by it too, while it is open.
		open, found, oerr := l.OpenRun(ctx, p.Name, p.StageName(), string(p.Mode))
		if oerr != nil {
			return ledger.Run{}, ledgerError(oerr)
		}
		if found && open.Operation == "" && open.AsOf.Equal(req.AsOf.Truncate(time.Microsecond)) {
			return open, nil
		}
	}
	if err != nil && c.pool(p.Database) == nil { // a pool looks at its database when the run begins
		if _, _, err := c.prepare(ctx, l, p); err != nil {
			return ledger.Run{}, err
		}
	}
	a.RevisionID, a.Revision = p.Revision()
	run, created, err := l.Accept(ctx, a)
	if err != nil {
		return ledger.Run{}, ledgerError(err)
	}
	if created {
		c.event(ctx, "run_accepted", run)
	} else if a.JoinOpen {
		return run, c.sameRule(p, run)
	}
	return run, nil
}

// sameRule refuses to go on with an open run, unasked, that was accepted under another text of the policy: it would execute
// the old one, and whoever corrected the file would not expect that. Named by its as_of it does go on.
func (c *Curfew) sameRule(p *policy.Policy, open ledger.Run) error {
	if id, _ := p.Revision(); id == open.Revision {
		return nil
	}
	id := open.ID[:12]
	resume := runWords(p.Name, p.StageName()) + " --as-of " + open.AsOf.UTC().Format(time.RFC3339Nano)
	if open.Operation != "" {
		resume = runWords(p.Name, p.StageName()) + " --operation " + open.Operation
	}
	return &Error{Kind: KindRefused, Err: fmt.Errorf("run %s of %s is open, and was accepted under another text of the policy than %s has now", id, p.Name, c.fileName()),
		Hint: "curfew cancel " + id + " ends it, so that the new text can run; " + resume + " finishes it under the old one"}
}

// Cancel ends an open run. Batches in hand end as they are; nothing more of the run begins. A run that has ended stays as it is.
func (c *Curfew) Cancel(ctx context.Context, id, reason string) (api.Run, error) {
	l, err := c.ledger(ctx)
	if err != nil {
		return api.Run{}, err
	}
	run, err := l.Get(ctx, id)
	if err != nil {
		return api.Run{}, ledgerError(err)
	}
	if run.State.Ended() {
		return wireRun(run), fail(KindRefused, "curfew show "+run.ID[:12]+" says what came of it", "run %.12s has ended already: %s", run.ID, run.State)
	}
	if run, err = l.End(ctx, run.ID, ledger.Cancelled, "cancelled", reason); err != nil {
		return wireRun(run), ledgerError(err)
	}
	c.event(ctx, "run_ended", run)
	return wireRun(run), c.dropCall(ctx, l, run, "its run was ended: "+cmp.Or(reason, "cancelled"))
}

// prepare opens the policy's database and answers an error when no run may begin there.
func (c *Curfew) prepare(ctx context.Context, l *ledger.Ledger, p *policy.Policy) (*target.DB, *target.Table, error) {
	db, table, err := c.usable(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	if err := c.sameClock(ctx, l, db); err != nil || p.Mode != policy.Enforce {
		return db, table, err
	}
	return db, table, c.sameDatabase(ctx, l, db)
}

// usable is prepare without a look at the clock.
func (c *Curfew) usable(ctx context.Context, p *policy.Policy) (*target.DB, *target.Table, error) {
	db, table, err := c.fit(ctx, p)
	if err != nil {
		return nil, nil, err
	}
	switch err := db.Installed(ctx); {
	case errors.Is(err, target.ErrNotInstalled):
		if p.Mode != policy.Enforce { // nothing is written, and there are no holds
			break
		}
		return nil, nil, &Error{Kind: KindRefused, Err: fmt.Errorf("database %s: %w", p.Database, err),
			Hint: "run curfew install " + p.Database + " once (--print shows what it would do)"}
	case errors.Is(err, target.ErrOldLayout):
		if p.Mode != policy.Enforce && len(p.Whole().Stages) == 0 { // the holds are where they were
			break
		}
		return nil, nil, &Error{Kind: KindRefused, Err: fmt.Errorf("database %s: %w", p.Database, err),
			Hint: "run curfew install " + p.Database + " once more: it adds what is missing (--print shows what it would do)"}
	case errors.Is(err, target.ErrHidden):
		return nil, nil, &Error{Kind: KindRefused, Err: fmt.Errorf("database %s: %w", p.Database, err),
			Hint: "curfew install " + p.Database + " --print shows the tables and the GRANTs; a shadow run needs those that begin with GRANT SELECT ON, for the holds"}
	case err != nil:
		return nil, nil, targetError(p.Database, err)
	}
	return db, table, nil
}

// sameClock refuses a database whose clock and the ledger's tell different times: due-ness would mean two things.
func (c *Curfew) sameClock(ctx context.Context, l *ledger.Ledger, db *target.DB) error {
	before, err := l.Now(ctx)
	if err != nil {
		return ledgerError(err)
	}
	there, err := db.Now(ctx)
	if err != nil {
		return targetError(db.Name, err)
	}
	after, err := l.Now(ctx)
	if err != nil {
		return ledgerError(err)
	}
	if there.Before(before.Add(-maxSkew)) || there.After(after.Add(maxSkew)) {
		return fail(KindRefused, "set the clocks (NTP); nothing was changed", "the ledger's clock says %s and that of database %s %s: more than %s apart",
			before.Format(time.RFC3339), db.Name, there.Format(time.RFC3339), maxSkew)
	}
	return nil
}

// event logs a state change of a run.
func (c *Curfew) event(ctx context.Context, name string, r ledger.Run) {
	args := []any{"run", r.ID, "policy", r.Policy, "stage", r.Stage, "mode", r.Mode, "as_of", r.AsOf, "cutoff", r.Cutoff}
	if r.State.Ended() {
		args = append(args, "state", string(r.State), "why_ended", r.WhyEnded, "planned", r.Planned, "outcomes", map[string]int64(r.Outcomes), "cascaded", r.Cascaded)
	}
	if name == "run_failed" {
		c.log.ErrorContext(ctx, name, append(args, "err", r.Detail)...)
		return
	}
	c.log.InfoContext(ctx, name, args...)
}

// targetError says which database an error comes from, and whether it is out of reach.
func targetError(database string, err error) error {
	kind := KindFailed
	if target.Transient(err) {
		kind = KindUnreachable
	}
	if database != "" {
		err = fmt.Errorf("database %s: %w", database, err)
	}
	return &Error{Kind: kind, Err: err}
}

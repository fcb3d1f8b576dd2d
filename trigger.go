package curfew

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/web"
	"curfew.dev/curfew/policy"
)

// front is what HTTP requests are about: the engine that is in force when they come.
type front struct{ current func() *engine }

var _ web.Engine = front{}

// Trigger accepts a run, or finds the one that the request stands for. It asks the ledger and nothing else, so that it answers at
// once whatever the governed databases and the workers are at: whether the run can begin is found out when it does.
func (f front) Trigger(ctx context.Context, req web.TriggerRequest) (web.Triggered, error) {
	e := f.current()
	p, err := e.c.policy(req.Policy)
	if err != nil {
		return web.Triggered{}, err
	}
	if req.Shadow {
		p = shadowed(p)
	}
	if p, err = narrow(p, req.Stage, "stage"); err != nil {
		return web.Triggered{}, err
	}
	if err := e.mayBegin(ctx, p, req); err != nil {
		return web.Triggered{}, err
	}
	if err := e.expect(ctx, p); err != nil {
		return web.Triggered{}, err
	}
	run, fresh, err := e.acceptCall(ctx, p, req)
	if err != nil {
		return web.Triggered{}, ledgerError(err)
	}
	if fresh {
		e.c.event(ctx, "run_accepted", run)
		e.nudge()
	}
	return web.Triggered{Run: wireRun(run), Fresh: fresh}, nil
}

// mayBegin refuses a call for a policy that is paused, unless it asks again for a run that it named before.
func (e *engine) mayBegin(ctx context.Context, p *policy.Policy, req web.TriggerRequest) error {
	paused := e.c.notPaused(ctx, e.l, p.Name)
	if paused == nil || req.Key == "" {
		return paused
	}
	if _, err := e.l.Get(ctx, ledger.RunID(p.Name, p.StageName(), string(p.Mode), ledger.IdentityKey(req.Key))); err != nil {
		return paused
	}
	return nil
}

func (e *engine) acceptCall(ctx context.Context, p *policy.Policy, req web.TriggerRequest) (ledger.Run, bool, error) {
	a := ledger.Acceptance{Policy: p.Name, Stage: p.StageName(), Mode: string(p.Mode), Cause: "http", AsOf: req.AsOf, Cutoff: p.Cutoff, Actor: "token:" + req.Token}
	if req.Token == "" { // not over HTTP
		a.Cause, a.Actor = "cli", e.c.actor
	}
	a.RevisionID, a.Revision = p.Revision()
	if req.Key != "" {
		a.Operation, a.Identity = req.Key, ledger.IdentityKey(req.Key)
		return e.l.AcceptOperation(ctx, a, req.BodyHash)
	}
	now, err := e.l.Now(ctx)
	if err != nil {
		return ledger.Run{}, false, err
	}
	// The open run if there is one, so that a retry on the other side of a minute's boundary is not a second scan; else that of
	// this minute.
	a.Identity, a.JoinOpen = "minute:"+now.Truncate(time.Minute).Format(time.RFC3339), true
	return e.l.Accept(ctx, a)
}

// expect makes sure that an instant at which a call is expected is in the ledger before the call is.
func (e *engine) expect(ctx context.Context, p *policy.Policy) error {
	if p.Schedule == nil || p.Schedule.By != "external" {
		return nil
	}
	stages, err := e.schedules()
	if err != nil {
		return err
	}
	for _, st := range stages {
		if st.p.Name != p.Name || st.p.StageName() != p.StageName() {
			continue
		}
		t, err := e.l.Tick(ctx, st.spec)
		if err != nil {
			return ledgerError(err)
		}
		e.told(ctx, t)
	}
	return nil
}

// Cancel ends an open run.
func (f front) Cancel(ctx context.Context, id, actor string) (api.Run, error) {
	return f.current().c.Cancel(ctx, id, "asked for by "+actor)
}

// Approve lets a run go on that waits for approval.
func (f front) Approve(ctx context.Context, id, actor, reason string) (api.Run, error) {
	e := f.current()
	run, err := e.c.approve(ctx, id, "token:"+actor, reason)
	if err == nil {
		e.nudge()
	}
	return run, err
}

// Run gives one run with what stands behind it.
func (f front) Run(ctx context.Context, id string) (api.RunDetail, error) {
	return f.current().c.Show(ctx, id)
}

// Runs lists runs, the newest first.
func (f front) Runs(ctx context.Context, filter web.RunFilter) ([]api.Run, string, error) {
	list := ledger.Filter{Policy: filter.Policy, State: ledger.State(filter.State), Before: filter.Before, Limit: filter.Limit}
	found, err := f.current().l.List(ctx, list)
	if err != nil {
		return nil, "", ledgerError(err)
	}
	runs := make([]api.Run, len(found))
	for i, r := range found {
		runs[i] = wireRun(r)
	}
	next := ""
	if len(runs) == filter.Limit {
		next = runs[len(runs)-1].ID
	}
	return runs, next, nil
}

// Policies says how each policy is doing.
func (f front) Policies(ctx context.Context) ([]api.PolicyStatus, error) {
	return f.current().c.Status(ctx)
}

// Occurrences lists scheduled instants, the latest first. A page never ends between two of the same instant.
func (f front) Occurrences(ctx context.Context, filter web.OccurrenceFilter) ([]api.OccurrenceItem, string, error) {
	list := ledger.OccurrenceFilter{Policy: filter.Policy, Stage: filter.Stage, State: ledger.OccurrenceState(filter.State), Limit: filter.Limit + 1}
	if filter.Before != "" {
		at, err := time.Parse(time.RFC3339Nano, filter.Before)
		if err != nil {
			return nil, "", fail(KindUsage, "give the next of the last answer", "before is no instant: %q", filter.Before)
		}
		list.Before = at
	}
	for {
		found, err := f.current().l.Occurrences(ctx, list)
		if err != nil {
			return nil, "", ledgerError(err)
		}
		next := ""
		if full := len(found) == list.Limit; full {
			cut := found[len(found)-1].At
			rest := slices.IndexFunc(found, func(o ledger.Occurrence) bool { return o.At.Equal(cut) })
			if rest == 0 { // more at one instant than a page holds
				list.Limit *= 2
				continue
			}
			found, next = found[:rest], found[rest-1].At.Format(time.RFC3339Nano)
		}
		items := make([]api.OccurrenceItem, len(found))
		for i, o := range found {
			items[i] = wireOccurrence(o)
		}
		return items, next, nil
	}
}

// Ready asks everything that must work.
func (f front) Ready(ctx context.Context) []web.Check {
	e := f.current()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	_, err := e.l.Now(ctx)
	checks := []web.Check{{Name: "ledger", Err: err}}
	if err == nil {
		checks = append(checks, e.rights(ctx)...)
	}
	if !e.begun.Load() {
		return append(checks, web.Check{Name: "queue", Err: errors.New("it has not begun")})
	}
	for name, err := range e.loops.checks(time.Now()) {
		checks = append(checks, web.Check{Name: name, Err: err})
	}
	return checks
}

// rights are the checks of what our role may do in the ledger: what it may not is else only seen when it is needed, which may be
// at night.
func (e *engine) rights(ctx context.Context) []web.Check {
	missing, err := e.l.MissingRights(ctx)
	checks := []web.Check{{Name: "ledger_rights", Err: err}, {Name: "queue_rights", Err: err}}
	for _, m := range missing {
		of := &checks[0]
		if m.Queue() {
			of = &checks[1]
		}
		of.Err = errors.Join(of.Err, errors.New("our role lacks "+m.String()))
	}
	return checks
}

// notPaused refuses calls for a policy that somebody paused. By hand it still runs.
func (c *Curfew) notPaused(ctx context.Context, l *ledger.Ledger, name string) error {
	pauses, err := l.Pauses(ctx)
	if err != nil {
		return ledgerError(err)
	}
	for _, p := range pauses {
		if p.Policy == name {
			return fail(KindRefused, "curfew resume "+name+" ends the pause", "policy %s is paused since %s by %s%s", name,
				p.Since.Format(time.RFC3339), p.Actor, because(p.Reason))
		}
	}
	return nil
}

func because(reason string) string {
	if reason == "" {
		return ""
	}
	return ": " + reason
}

// problem is what an error looks like over HTTP.
func problem(err error) api.Problem {
	status := http.StatusInternalServerError
	switch KindOf(err) {
	case KindUsage:
		status = http.StatusUnprocessableEntity
	case KindNotFound:
		status = http.StatusNotFound
	case KindRefused:
		status = http.StatusConflict
	case KindUnreachable:
		status = http.StatusServiceUnavailable
	}
	hint := HintOf(err)
	switch future := (*ledger.FutureError)(nil); {
	case errors.Is(err, ledger.ErrOtherBody):
		status, hint = http.StatusUnprocessableEntity, "use another Idempotency-Key; this one stands for the request that it was used with first"
	case errors.As(err, &future):
		hint = "give an as_of that has passed, or none for now"
	}
	p := api.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: err.Error(), Hint: hint}
	if status == http.StatusInternalServerError {
		p.Detail, p.Hint = "", "" // it is in the log
	}
	return p
}

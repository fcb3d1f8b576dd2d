package curfew

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/policy"
)

// Plan says what a run of each policy that started now would do, and changes nothing. Without names it plans all policies,
// and what curfew removes by itself.
func (c *Curfew) Plan(ctx context.Context, names ...string) ([]api.PolicyPlan, error) {
	plans := []api.PolicyPlan{}
	built, err := c.builtIn(ctx, names)
	if err != nil {
		return nil, err
	}
	var policies []*policy.Policy
	if rest := policyNames(names); len(rest) > 0 || len(names) == 0 {
		if policies, err = c.policies(rest); err != nil {
			return nil, err
		}
	}
	var first error // one policy that cannot run says nothing about the others
	for _, p := range stagesOf(policies) {
		plan, err := c.plan(ctx, p)
		if err != nil {
			first = cmp.Or(first, err)
			continue
		}
		plans = append(plans, plan)
	}
	return append(plans, built...), first
}

func (c *Curfew) plan(ctx context.Context, p *policy.Policy) (api.PolicyPlan, error) {
	now, err := c.now(ctx)
	if err != nil {
		return api.PolicyPlan{}, err
	}
	plan := api.PolicyPlan{
		Policy: p.Name, Stage: p.StageName(), Mode: string(p.Mode), Action: string(p.Action.Kind), Authority: p.Authority, Database: p.Database, Table: p.Table,
		Rule: ruleInWords(p), Where: p.Where, Unless: p.Unless, AsOf: now, Cutoff: p.Cutoff(now), Schedule: scheduleInWords(p), Next: nextInstants(p, now),
	}
	db, table, err := c.fit(ctx, p)
	if err != nil {
		return api.PolicyPlan{}, err
	}
	o := target.JobOptions{Policy: p, Table: table, AsOf: plan.AsOf, Cutoff: plan.Cutoff, Shadow: true, Logger: c.log}
	if p.Stage() != nil || p.Action.Kind.Tells() { // what a row has passed is recorded under its keyed name
		if o.Keys, err = c.keys(); err != nil {
			return api.PolicyPlan{}, err
		}
	}
	job, err := target.NewJob(db, o)
	if err != nil {
		return api.PolicyPlan{}, &Error{Kind: KindRefused, Err: fmt.Errorf("policy %s: %w", p.Name, err), Hint: "curfew check " + p.Name + " says more"}
	}
	n, err := job.Count(ctx)
	if target.Unevaluable(err) {
		return api.PolicyPlan{}, &Error{Kind: KindRefused, Err: fmt.Errorf("policy %s: its SQL cannot be evaluated: %w", p.Name, err), Hint: "curfew check " + p.Name + " says more"}
	}
	if err != nil {
		return api.PolicyPlan{}, targetError(p.Database, err)
	}
	plan.Due, plan.Nulls, plan.Oldest, plan.Guarded, plan.Unreadable = n.Due, n.Nulls, oldest(p, n.Oldest), n.Guarded, n.Unreadable
	if !c.noLedgerYet() {
		l, err := c.ledger(ctx)
		if err != nil {
			return api.PolicyPlan{}, err
		}
		open, found, err := l.OpenRun(ctx, p.Name, p.StageName(), string(p.Mode))
		if err != nil {
			return api.PolicyPlan{}, ledgerError(err)
		}
		if found {
			plan.OpenRun = open.ID
		}
		if plan.WouldWait, err = c.wouldWait(ctx, l, p, job, now); err != nil {
			return api.PolicyPlan{}, err
		}
	}
	plan.Held, plan.Blocked, plan.Cascaded = n.Held, n.Blocked, n.Cascaded
	for _, a := range n.Along {
		plan.Along = append(plan.Along, api.AlongRows{Table: a.Table, Rows: a.Rows})
	}
	plan.AlongPartial = n.Partial
	return plan, nil
}

// wouldWait says why a run that started now would wait for approval; "" when it would not.
func (c *Curfew) wouldWait(ctx context.Context, l *ledger.Ledger, p *policy.Policy, job *target.Job, now time.Time) (string, error) {
	if p.Mode != policy.Enforce {
		return "", nil
	}
	run := ledger.Run{Policy: p.Name, Stage: p.StageName(), Mode: string(p.Mode), AsOf: now, Cutoff: p.Cutoff(now), AcceptedAt: now}
	run.Revision, _ = p.Revision()
	judged, err := (&work{c: c, l: l, run: run, p: p, job: job, counts: localCounter{c, job, run}}).judge(ctx, run)
	if err != nil || len(judged.Exceeded) == 0 {
		return "", err
	}
	return inWords(judged), nil
}

// oldest is the smallest trigger as people read it: as an instant where it can be read as one, else as the database prints it.
func oldest(p *policy.Policy, printed string) string {
	n, err := strconv.ParseInt(printed, 10, 64)
	if p.Trigger.Unit == "" {
		zone := p.TriggerLocation()
		if zone == nil && p.Trigger.Format == "" {
			zone = time.UTC // a type of instants, printed in the session's zone
		}
		at, err := policy.ParseInstant(printed, cmp.Or(p.Trigger.Format, policy.ISO8601), zone)
		if err != nil || len(printed) == len(time.DateOnly) { // a date stays one
			return printed
		}
		return at.UTC().Format(time.RFC3339Nano)
	}
	if err != nil {
		return printed
	}
	switch p.Trigger.Unit {
	case policy.Seconds:
		return time.Unix(n, 0).UTC().Format(time.RFC3339)
	case policy.Milliseconds:
		return time.UnixMilli(n).UTC().Format(time.RFC3339Nano)
	case policy.Microseconds:
		return time.UnixMicro(n).UTC().Format(time.RFC3339Nano)
	case policy.Nanoseconds:
		return time.Unix(0, n).UTC().Format(time.RFC3339Nano)
	default:
		return printed
	}
}

// fit opens a policy's database and looks at its table; an error says why no run could begin there.
func (c *Curfew) fit(ctx context.Context, p *policy.Policy) (*target.DB, *target.Table, error) {
	db, table, err := c.look(ctx, p)
	if err == nil {
		err = c.probe(ctx, p, db, table)
	}
	if err != nil {
		return nil, nil, err
	}
	return db, table, nil
}

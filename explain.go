package curfew

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/policy"
)

// Explain says of one row whether it is due, and why. The key's values are given in the order of the policy's key.
func (c *Curfew) Explain(ctx context.Context, name string, key []string) (api.Explanation, error) {
	p, err := c.policy(name)
	if err != nil {
		return api.Explanation{}, err
	}
	keys, err := c.keys()
	if err != nil {
		return api.Explanation{}, err
	}
	asOf, err := c.now(ctx)
	if err != nil {
		return api.Explanation{}, err
	}
	db, table, err := c.look(ctx, p)
	if err != nil {
		return api.Explanation{}, err
	}
	e := api.Explanation{Policy: p.Name, AsOf: asOf, Cutoff: p.Cutoff(asOf)}
	job, err := target.NewJob(db, target.JobOptions{Policy: p, Table: table, AsOf: asOf, Cutoff: e.Cutoff, Keys: keys, Logger: c.log})
	if err != nil {
		return api.Explanation{}, &Error{Kind: KindRefused, Err: err}
	}
	a, err := job.Explain(ctx, key)
	if errors.Is(err, target.ErrKeyShape) {
		return api.Explanation{}, &Error{Kind: KindUsage, Err: err, Hint: "give the values of the key's columns, each as an argument of its own"}
	}
	if err != nil {
		return api.Explanation{}, targetError(p.Database, err)
	}
	e.Row, e.Exists, e.Trigger, e.DueAt = a.Row, a.Exists, a.Instant, a.DueAt
	e.Due = a.Exists && a.InScope && a.Due
	if f := a.Fate; f != nil {
		e.DeletedAt, e.DeletedBy = &f.At, f.Run
	}
	e.Conditions, e.Verdict = explainWords(p, e, a)
	return e, nil
}

// explainWords turns the answers into conditions and a verdict: the first condition that keeps the row decides.
func explainWords(p *policy.Policy, e api.Explanation, a *target.Answers) ([]api.Condition, string) {
	trigger := cmp.Or(p.Trigger.Column, "the trigger")
	if !a.Exists {
		no, detail := false, "there is no row with this key"
		out := []api.Condition{{Name: "exists", Passes: &no, Detail: detail}}
		if f := a.Fate; f != nil {
			return out, fmt.Sprintf("It was deleted on %s by run %s (policy %s).", f.At.UTC().Format(time.RFC3339), shortID(f.Run), f.Policy)
		}
		return out, "It is not there: " + detail + ", and no receipt names it."
	}
	out := []api.Condition{}
	stays, unknown := "", ""
	add := func(name string, passes bool, yes, no string) {
		c := api.Condition{Name: name, Passes: &passes, Detail: yes}
		fault, failed := a.Faults[target.Question(name)]
		switch {
		case failed:
			c.Passes, c.Detail = nil, "the database cannot answer: "+fault
			unknown = cmp.Or(unknown, fault)
		case !passes:
			c.Detail = no
			stays = cmp.Or(stays, no)
		}
		out = append(out, c)
	}
	add("exists", true, "", "")
	add("in_scope", a.InScope, "", "it is outside the policy's where")
	if a.Null {
		add("trigger", a.Due, trigger+" is NULL, which the policy calls due", trigger+" is NULL, which the policy calls never due")
	} else {
		add("trigger", a.Readable, "", trigger+" holds a value that is no instant")
	}
	before := trigger + " is before the cutoff"
	after := trigger + " is not before the cutoff"
	if e.DueAt != nil {
		before = "since " + e.DueAt.UTC().Format(time.RFC3339)
		after = "its time is up after " + e.DueAt.UTC().Format(time.RFC3339)
	}
	if a.Implausible {
		after = fmt.Sprintf("%s is before %s, and the policy calls that implausible (implausible_before)", trigger, p.Trigger.ImplausibleBefore)
	}
	add("due", a.Due, before, after)
	add("guard", !a.Guarded, "", "the policy's unless keeps it")
	add("hold", !a.Held, "", "a legal hold keeps it: "+strings.Join(a.HeldBy, ", "))
	add("children", len(a.Keeping) == 0, "", "rows that reference it keep it: "+strings.Join(a.Keeping, ", "))
	switch {
	case stays != "":
		return out, "It stays: " + stays + "."
	case unknown != "":
		return out, "It stays for now, as a run would fail: " + unknown + "."
	case a.Along > 0:
		return out, fmt.Sprintf("It would go now, and %d rows of other tables with it.", a.Along)
	}
	return out, "It would go now."
}

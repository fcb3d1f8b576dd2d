package curfew

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/target"
)

// Explain says of one row whether it is due, and why. The key's values are given in the order of the policy's key.
func (c *Curfew) Explain(ctx context.Context, policy string, key []string) (api.Explanation, error) {
	p, err := c.policy(policy)
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
	db, table, err := c.fit(ctx, p)
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
	e.Conditions, e.Verdict = explainWords(p.Trigger.Column, e, a)
	return e, nil
}

// explainWords turns the answers into conditions and a verdict: the first condition that keeps the row decides.
func explainWords(trigger string, e api.Explanation, a *target.Answers) ([]api.Condition, string) {
	if trigger == "" {
		trigger = "the trigger"
	}
	var out []api.Condition
	stays := ""
	add := func(name string, passes bool, yes, no string) {
		detail := yes
		if !passes {
			detail = no
			if stays == "" {
				stays = no
			}
		}
		out = append(out, api.Condition{Name: name, Passes: &passes, Detail: detail})
	}
	add("exists", a.Exists, "", "there is no row with this key")
	if !a.Exists {
		return out, "It is not there: " + stays + "."
	}
	add("in_scope", a.InScope, "", "it is outside the policy's where")
	switch {
	case a.Null:
		add("trigger", a.Due, trigger+" is NULL, which the policy calls due", trigger+" is NULL, which the policy calls never due")
	default:
		add("trigger", a.Readable, "", trigger+" holds a value that is no instant")
	}
	before := trigger + " is before the cutoff"
	after := trigger + " is not before the cutoff"
	if e.DueAt != nil {
		before = "since " + e.DueAt.UTC().Format(time.RFC3339)
		after = "its time is up after " + e.DueAt.UTC().Format(time.RFC3339)
	}
	add("due", a.Due, before, after)
	add("guard", !a.Guarded, "", "the policy's unless keeps it")
	add("hold", !a.Held, "", "a legal hold keeps it")
	add("children", len(a.Keeping) == 0, "", "rows that reference it keep it: "+strings.Join(a.Keeping, ", "))
	if stays != "" {
		return out, "It stays: " + stays + "."
	}
	if a.Along > 0 {
		return out, fmt.Sprintf("It would go now, and %d rows of other tables with it.", a.Along)
	}
	return out, "It would go now."
}

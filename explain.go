package curfew

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/policy"
)

// Explain says of one row whether it is due, and why. The key's values are given in the order of the policy's key. Of a policy with
// stages it explains the one that comes next.
func (c *Curfew) Explain(ctx context.Context, name string, key []string) (api.Explanation, error) {
	return c.ExplainStage(ctx, name, "", key)
}

// ExplainStage explains one row for one stage; "" is the one that comes next.
func (c *Curfew) ExplainStage(ctx context.Context, name, stage string, key []string) (api.Explanation, error) {
	p, err := c.policy(name)
	if err != nil {
		return api.Explanation{}, err
	}
	all := stages(p)
	if stage != "" {
		q, err := narrow(p, stage, "--stage")
		if err != nil {
			return api.Explanation{}, err
		}
		return c.explain(ctx, q, key)
	}
	// The last stage is asked first, whatever it says: what is recorded of the row is the same for all, and tells which comes next.
	e, err := c.explain(ctx, all[len(all)-1], key)
	if err != nil || len(all) == 1 {
		return e, err
	}
	for _, s := range e.Stages {
		if s.State != api.StagePassed && s.State != api.StageOver && s.Stage != e.Stage {
			i := slices.IndexFunc(all, func(q *policy.Policy) bool { return q.StageName() == s.Stage })
			return c.explain(ctx, all[i], key)
		}
		if s.Stage == e.Stage {
			break
		}
	}
	return e, nil
}

func (c *Curfew) explain(ctx context.Context, p *policy.Policy, key []string) (api.Explanation, error) {
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
	e := api.Explanation{Policy: p.Name, Stage: p.StageName(), AsOf: asOf, Cutoff: p.Cutoff(asOf)}
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
	e.Due = a.Exists && a.InScope && !a.Done && a.Due
	if f := a.Fate; f != nil {
		if e.DeletedBy = f.Run; f.Was == "archived" {
			e.ArchivedAt = &f.At
		} else {
			e.DeletedAt = &f.At
		}
	}
	e.Stages = explainStages(p, a, asOf)
	e.Conditions, e.Verdict = explainWords(p, e, a)
	return e, nil
}

// chosenInWords says what the data subject's choice means for a row; "" where the policy does not ask for one.
func chosenInWords(choice string) string {
	return map[string]string{
		policy.PrivacyNever:   "the data subject chose that nothing is kept: it is due at once",
		policy.PrivacyDefault: "the data subject chose the policy's period",
		policy.PrivacyForever: "the data subject chose that it stays",
		"none":                "the data subject's choice is not known, so it stays",
		"unlisted":            "the data subject's choice is none that the policy lists, so it stays",
	}[choice]
}

// guardInWords names the guard that keeps a row.
func guardInWords(p *policy.Policy, a *target.Answers) string {
	switch {
	case a.Last:
		return fmt.Sprintf("it is one of the last %d of its %s", p.KeepLast.N, p.KeepLast.Per)
	case a.Choice == policy.PrivacyForever, a.Choice == "none", a.Choice == "unlisted":
		return chosenInWords(a.Choice)
	}
	return "the policy's unless keeps it"
}

// explainStages says of each stage of a policy what the row has to do with it.
func explainStages(p *policy.Policy, a *target.Answers, asOf time.Time) []api.StageState {
	if p.Stage() == nil || !a.Exists || a.DueUS == nil {
		return nil
	}
	passed := target.Done(a.Passages)
	var out []api.StageState
	for _, q := range stages(p) {
		s := api.StageState{Stage: q.StageName(), Action: string(q.Action.Kind)}
		at, ok := q.StageOf(*a.DueUS)
		if ok {
			s.At = &at
		}
		judged := q.Judge(*a.DueUS, passed, asOf)
		s.Why = judged.Why()
		switch due := *a.DueUS == policy.AlwaysDue || ok && at.Before(asOf); {
		case judged.Turn == policy.TurnPassed:
			s.State, s.Why = api.StagePassed, ""
			r, _ := q.PassedAt(s.Stage, *a.DueUS, passed)
			s.PassedAt = &r.AsOf
			for _, x := range a.Passages {
				if x.Stage == s.Stage && x.Due == r.Due {
					s.Run = x.Run
				}
			}
		case judged.Turn == policy.TurnOver:
			s.State = api.StageOver
		case judged.Turn.Waits() && due:
			s.State = api.StageWaits
		case judged.Turn == policy.TurnNow && due:
			s.State = api.StageNow
		default:
			s.State = api.StageLater
			if judged.Turn.Waits() { // whose time has not come either
				s.Why = ""
			}
		}
		if !judged.From.IsZero() && (s.At == nil || judged.From.After(*s.At)) {
			from := judged.From.UTC()
			s.NotBefore = &from
		}
		out = append(out, s)
	}
	return out
}

// explainWords turns the answers into conditions and a verdict: the first condition that keeps the row decides.
func explainWords(p *policy.Policy, e api.Explanation, a *target.Answers) ([]api.Condition, string) {
	trigger := cmp.Or(p.Trigger.Column, "the trigger")
	if !a.Exists {
		no, detail := false, "there is no row with this key"
		out := []api.Condition{{Name: "exists", Passes: &no, Detail: detail}}
		if f := a.Fate; f != nil {
			return out, fmt.Sprintf("It was %s on %s by run %s (policy %s).", f.Was, f.At.UTC().Format(time.RFC3339), shortID(f.Run), f.Policy)
		}
		return out, "It is not there: " + detail + ", and no receipt names it."
	}
	out := []api.Condition{}
	stays, unknown, unseen := "", "", ""
	if len(a.Unseen) > 0 {
		unseen = "a row of " + strings.Join(a.Unseen, " or ") + " refers to it, which our role may not see"
	}
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
	if a.Done {
		add("open", false, "", "it was "+p.Action.Kind.Outcome()+" already: its columns have their values")
	}
	if a.Null {
		add("trigger", a.Due, trigger+" is NULL, which the policy calls due", trigger+" is NULL, which the policy calls never due")
	} else {
		add("trigger", a.Readable, "", trigger+" holds a value that is no instant")
	}
	before := trigger + " is before the cutoff"
	after := trigger + " is not before the cutoff"
	if e.DueAt != nil {
		at := *e.DueAt
		if a.DueUS != nil {
			if t, ok := p.StageOf(*a.DueUS); ok && p.Stage() != nil {
				at = t
			}
		}
		before = "since " + at.UTC().Format(time.RFC3339)
		after = "its time is up after " + at.UTC().Format(time.RFC3339)
		if p.Stage() != nil && p.Stage().At.Before && e.DueAt.Before(e.AsOf) {
			after = "its due instant has come, and this is a reminder before it"
		}
	}
	if a.Implausible {
		after = fmt.Sprintf("%s is before %s, and the policy calls that implausible (implausible_before)", trigger, p.Trigger.ImplausibleBefore)
	}
	add("due", a.Due, before, after)
	for _, s := range e.Stages {
		if s.Stage == p.StageName() {
			add("stage", s.State == api.StageNow || s.State == api.StageLater && s.NotBefore == nil, "", cmp.Or(s.Why, "it has passed stage "+s.Stage))
		}
	}
	if told, detail := toldOf(p, a); p.Action.Kind.Tells() {
		add("told", !told, "", detail)
	}
	add("guard", !a.Guarded, chosenInWords(a.Choice), guardInWords(p, a))
	add("hold", !a.Held, "", "a legal hold keeps it: "+strings.Join(a.HeldBy, ", "))
	add("children", len(a.Keeping) == 0, "", "rows that reference it keep it: "+strings.Join(a.Keeping, ", "))
	if children := &out[len(out)-1]; unseen != "" && children.Passes != nil {
		children.Passes, children.Detail = nil, "it stays if "+unseen
	}
	switch stage := p.StageName(); {
	case stage != "" && stays != "":
		return out, "Stage " + stage + " leaves it as it is: " + stays + "."
	case stage != "" && unknown == "" && unseen == "" && a.Along == 0:
		return out, "Stage " + stage + " would act on it now."
	case stays != "" && p.Action.Kind.Tells():
		return out, "Nobody is told: " + stays + "."
	case stays != "":
		return out, "It stays: " + stays + "."
	case unknown != "":
		return out, "It stays for now, as a run would fail: " + unknown + "."
	}
	would := "It would go now"
	switch {
	case p.Action.Kind.Tells():
		would = "It would be told of now"
	case p.Action.Kind != policy.Delete:
		would = "It would be " + p.Action.Kind.Outcome() + " now"
	}
	if a.Along > 0 {
		would += fmt.Sprintf(", and %d rows of other tables go with it", a.Along)
	}
	if unseen != "" {
		would += ", unless " + unseen
	}
	return out, would + "."
}

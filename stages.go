package curfew

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"curfew.dev/curfew/internal/keyring"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/policy"
)

// StageNames lists the stages of a policy in their order; none for a policy without, or one that is not in the file.
func (c *Curfew) StageNames(name string) []string {
	p, err := c.file.Policy(name)
	if err != nil || len(p.Stages) == 0 {
		return nil
	}
	return p.StageNames()
}

// stages are the policy's stages, each as a policy of its own; a policy without is its only one.
func stages(p *policy.Policy) []*policy.Policy {
	var out []*policy.Policy
	for _, name := range p.StageNames() {
		q, _ := p.Whole().Narrow(name)
		out = append(out, q)
	}
	return out
}

// stagesOf are the stages of several policies.
func stagesOf(policies []*policy.Policy) []*policy.Policy {
	var out []*policy.Policy
	for _, p := range policies {
		out = append(out, stages(p)...)
	}
	return out
}

// narrow is one stage of the policy, which the caller asked for with what flag names. Where there is only one it need not be named.
func narrow(p *policy.Policy, stage, flag string) (*policy.Policy, error) {
	if q, ok := p.Narrow(stage); ok {
		return q, nil
	}
	names := p.StageNames()
	all := strings.Join(names, ", ")
	switch {
	case len(p.Stages) == 0:
		return nil, fail(KindUsage, "leave "+flag+" out", "policy %s has no stages", p.Name)
	case stage != "":
		return nil, fail(KindUsage, "its stages are "+all, "policy %s has no stage %q", p.Name, stage)
	case len(names) == 1:
		q, _ := p.Narrow(names[0])
		return q, nil
	}
	return nil, fail(KindUsage, "name one of them with "+flag, "policy %s has several stages: %s", p.Name, all)
}

// runWords is the command that runs a policy's stage.
func runWords(name, stage string) string {
	if stage == "" {
		return "curfew run " + name
	}
	return "curfew run " + name + " --stage " + stage
}

// stageWords names a stage in a message about its policy.
func stageWords(p *policy.Policy) string {
	if p.StageName() == "" {
		return p.Name
	}
	return p.Name + ", stage " + p.StageName()
}

// retireStages ends the schedules and open runs of stages that left a policy which stays: nobody would keep them.
func (e *engine) retireStages(ctx context.Context) error {
	gone := func(name, stage string) bool {
		p, err := e.c.file.Policy(name)
		return err == nil && !slices.Contains(p.StageNames(), stage)
	}
	kept, err := e.l.Schedules(ctx)
	if err != nil {
		return err
	}
	for _, s := range kept {
		if gone(s.Policy, s.Stage) {
			if err := e.l.Unschedule(ctx, s.Policy, s.Stage); err != nil {
				return err
			}
		}
	}
	runs, err := e.l.OpenRuns(ctx)
	if err != nil {
		return err
	}
	for _, run := range runs {
		if gone(run.Policy, run.Stage) {
			if err := e.cancel(ctx, run, "stage_gone", "the stage left the policy"); err != nil {
				return err
			}
		}
	}
	return nil
}

// earlierRuns reports whether the runs of the stages before this one, for the same instant, have ended: a row that an earlier one is
// about to act on would be found to wait for it. How they ended the rows tell, and so would rows that are left to them: nobody waits
// for so long that the run comes too late itself.
func (e *engine) earlierRuns(ctx context.Context, run ledger.Run, p *policy.Policy) (bool, error) {
	now, err := e.l.Now(ctx)
	if err != nil || p.Schedule == nil || now.Sub(run.AcceptedAt) > p.Schedule.StartWithin/2 {
		return err == nil, err
	}
	for _, s := range p.Earlier() {
		before, err := e.l.Get(ctx, ledger.RunID(run.Policy, s.Name, run.Mode, ledger.IdentityAsOf(run.AsOf)))
		if errors.Is(err, ledger.ErrNotFound) {
			continue
		}
		if err != nil || !before.State.Ended() && before.State != ledger.AwaitingApproval {
			return false, err
		}
	}
	return true, nil
}

const (
	// sweepEvery is how often what is recorded of rows that are gone is looked for, and keepPassages how long it is kept at least.
	sweepEvery   = 24 * time.Hour
	keepPassages = 30 * 24 * time.Hour
	// sweepFor bounds one policy's sweep, beside which no lag is looked up.
	sweepFor = 10 * time.Minute
)

// sweepPassages drops what is recorded of rows that others removed.
func (e *engine) sweepPassages(ctx context.Context, beat func()) {
	for _, p := range e.c.file.Policies {
		if len(p.Stages) == 0 && !p.Action.Kind.Tells() || p.Mode != policy.Enforce || e.c.pool(p.Database) != nil {
			continue
		}
		n, err := e.c.sweepPolicy(ctx, stages(p)[0], e.keys, beat)
		if err != nil && ctx.Err() == nil {
			e.c.log.WarnContext(ctx, "passages_kept", "policy", p.Name, "err", err)
		} else if n > 0 {
			e.c.log.InfoContext(ctx, "passages_dropped", "policy", p.Name, "rows", n)
		}
		beat()
	}
}

func (c *Curfew) sweepPolicy(ctx context.Context, p *policy.Policy, keys *keyring.Keyring, beat func()) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, sweepFor)
	defer cancel()
	db, table, err := c.fit(ctx, p)
	if err != nil {
		return 0, err
	}
	now, err := db.Now(ctx)
	if err != nil {
		return 0, err
	}
	job, err := target.NewJob(db, target.JobOptions{Policy: p, Table: table, AsOf: now, Cutoff: p.Cutoff(now), Run: "sweep", Keys: keys, Logger: c.log})
	if err != nil {
		return 0, err
	}
	return job.SweepPassages(ctx, now.Add(-keepPassages), beat)
}

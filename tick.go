package curfew

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/policy"
	"curfew.dev/curfew/schedule"
)

const (
	// tickEvery is how often the schedules are compared with the ledger's clock.
	tickEvery = time.Second
	// tidyEvery is how often a schedule is looked at though nothing is due: runs that start too late, queued and missed ones.
	tidyEvery = 15 * time.Second
	// lagEvery is how often the oldest due row of a policy is looked up.
	lagEvery = 5 * time.Minute
)

// A stageSchedule is the schedule of a policy's stage as this process sees it.
type stageSchedule struct {
	p      *policy.Policy
	s      schedule.Schedule
	spec   ledger.Scheduled
	next   time.Time // the next instant, by the ledger's clock
	ticked time.Time
	older  bool // another process has read its file later, and there the schedule differs
}

// schedules are those of the policy file.
func (c *Curfew) schedules() ([]*stageSchedule, error) {
	var out []*stageSchedule
	for _, p := range c.timed() {
		if p.Schedule == nil {
			continue
		}
		cron, err := schedule.Parse(p.Schedule.Cron)
		if err != nil {
			return nil, &Error{Kind: KindConfig, Err: fmt.Errorf("policy %s: schedule: %w", stageWords(p), err)}
		}
		s := schedule.Schedule{Cron: cron, Location: p.Location()}
		st := &stageSchedule{p: p, s: s, spec: scheduled(p, s)}
		if d := c.tasks[p.Name]; isTask(p) && d != nil {
			st.spec.RevisionID, st.spec.Revision = d.revision, d.body
			st.spec.Cutoff = func(asOf time.Time) time.Time { return asOf }
		}
		out = append(out, st)
	}
	return out, nil
}

// expression names a schedule in the ledger: cron, zone and by whom, so that another one is told from it, and it can be read again.
func expression(p *policy.Policy) string {
	return strings.Join([]string{p.Schedule.Cron, p.Timezone, p.Schedule.By}, ";")
}

// enumerate gives the instants of an expression, or nil when it is none of ours.
func enumerate(expr string) func(after, until time.Time, limit int) []time.Time {
	parts := strings.Split(expr, ";")
	if len(parts) != 3 {
		return nil
	}
	cron, err := schedule.Parse(parts[0])
	if err != nil {
		return nil
	}
	zone, err := time.LoadLocation(parts[1])
	if err != nil {
		return nil
	}
	return between(schedule.Schedule{Cron: cron, Location: zone})
}

// scheduled is a policy's schedule as the ledger takes it.
func scheduled(p *policy.Policy, s schedule.Schedule) ledger.Scheduled {
	spec := ledger.Scheduled{Policy: p.Name, Stage: p.StageName(), Mode: string(p.Mode), Cutoff: p.Cutoff, StartWithin: p.Schedule.StartWithin,
		External: p.Schedule.By == "external", Overlap: p.Schedule.Overlap, CatchUp: p.Schedule.CatchUp,
		Expr: expression(p), Between: between(s), Was: enumerate}
	if spec.External {
		spec.StartWithin = p.Schedule.Grace
	}
	spec.RevisionID, spec.Revision = p.Revision()
	return spec
}

// between enumerates the instants after one and up to another, at most limit of them.
func between(s schedule.Schedule) func(after, until time.Time, limit int) []time.Time {
	return func(after, until time.Time, limit int) []time.Time {
		var out []time.Time
		for t := range s.Between(after, until.Add(1)) { // which leaves its end out
			if len(out) == limit {
				break
			}
			out = append(out, t)
		}
		return out
	}
}

// tick turns schedules into occurrences and runs, by the ledger's clock. Any number of processes may do so at once.
func (e *engine) tick(ctx context.Context, beat func()) error {
	stages, err := e.schedules()
	if err != nil {
		return err
	}
	every := time.NewTicker(tickEvery)
	defer every.Stop()
	for {
		now, err := e.l.Now(ctx)
		if err != nil {
			return err
		}
		var failed []error
		ended := e.takeEnded()
		for _, st := range stages {
			// A clock that was set back makes both waits look long: then it is looked again.
			if !ended[st.p.Name] && !st.next.IsZero() && now.Before(st.next) && now.Sub(st.ticked).Abs() < tidyEvery {
				continue
			}
			if _, err := e.tickOne(ctx, st, now); err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", subjectWords(st.p), err))
			}
		}
		if err := errors.Join(failed...); err != nil {
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

// schedules are those of the policy file, as this process read it.
func (e *engine) schedules() ([]*stageSchedule, error) {
	stages, err := e.c.schedules()
	for _, st := range stages {
		st.spec.Read = e.read
	}
	return stages, err
}

// subjectWords names what has a schedule.
func subjectWords(p *policy.Policy) string {
	if isTask(p) {
		return "task " + p.Name
	}
	return "policy " + stageWords(p)
}

// takeEnded are the policies of which a run ended here since it was last asked.
func (e *engine) takeEnded() map[string]bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	ended := e.ended
	e.ended = map[string]bool{}
	return ended
}

// tickOne reports whether there was something to do.
func (e *engine) tickOne(ctx context.Context, st *stageSchedule, now time.Time) (did bool, err error) {
	for {
		t, err := e.l.Tick(ctx, st.spec)
		if err != nil {
			return did, err
		}
		did = did || len(t.Accepted)+len(t.Ended) > 0
		e.told(ctx, t)
		if t.Older != st.older {
			if st.older = t.Older; st.older {
				e.c.log.WarnContext(ctx, "schedule_of_another_file", "policy", st.p.Name, "stage", st.p.StageName(), "hint", "another process read its policy file later, and there the schedule differs: reload this one (SIGHUP)")
			}
		}
		if !t.More {
			break
		}
	}
	st.ticked = now
	if next, ok := st.s.Next(now); ok {
		st.next = next
	} else {
		st.next = now.Add(tidyEvery)
	}
	return did, nil
}

// told logs what a tick did.
func (e *engine) told(ctx context.Context, t ledger.Ticked) {
	for _, r := range t.Accepted {
		e.c.event(ctx, "run_accepted", r)
	}
	for _, o := range t.Ended {
		args := []any{"run", o.Run, "policy", o.Policy, "stage", o.Stage, "as_of", o.At, "why", o.Why}
		switch o.State {
		case ledger.OccurrenceMissed:
			e.c.log.ErrorContext(ctx, "occurrence_missed", args...)
		case ledger.OccurrenceSkipped:
			e.c.log.WarnContext(ctx, "run_skipped", args...)
		case ledger.OccurrenceOK, ledger.OccurrenceShadow:
			e.c.log.DebugContext(ctx, "occurrence_ended", append(args, "state", string(o.State))...)
		default:
			e.c.log.WarnContext(ctx, "occurrence_ended", append(args, "state", string(o.State))...)
		}
	}
	if len(t.Accepted) > 0 {
		e.nudge()
		e.nudgeCalls()
	}
}

// watchLag looks up the oldest due row of each policy now and then.
func (e *engine) watchLag(ctx context.Context, beat func()) error {
	every := time.NewTicker(lagEvery)
	defer every.Stop()
	sweep := time.Now().Add(time.Hour) // not while a service that fails is restarted again and again
	for {
		if time.Now().After(sweep) {
			e.sweepPassages(ctx, beat)
			sweep = time.Now().Add(sweepEvery)
		}
		for _, p := range stagesOf(e.c.file.Policies) {
			if p.Schedule == nil || e.c.pool(p.Database) != nil { // a pool does not say how old its rows are
				continue
			}
			if err := e.lookLag(ctx, p); err != nil && ctx.Err() == nil {
				e.c.log.WarnContext(ctx, "lag_unknown", "policy", p.Name, "stage", p.StageName(), "err", err)
			}
			beat()
		}
		for waited := false; !waited; {
			beat()
			select {
			case <-ctx.Done():
				return nil
			case <-every.C:
				waited = true
			case <-time.After(quietFor / 3):
			}
		}
	}
}

// lookLag looks up how old the oldest due row of a policy is.
func (e *engine) lookLag(ctx context.Context, p *policy.Policy) error {
	ctx, cancel := context.WithTimeout(ctx, quietFor/3)
	defer cancel()
	now, err := e.l.Now(ctx)
	if err != nil {
		return err
	}
	db, table, err := e.c.fit(ctx, p)
	if err != nil {
		return err
	}
	job, err := target.NewJob(db, target.JobOptions{Policy: p, Table: table, AsOf: now, Cutoff: p.Cutoff(now), Shadow: true, Run: "lag", Keys: e.keys, Logger: e.c.log})
	if err != nil {
		return err
	}
	due, known, err := job.OldestDue(ctx)
	if err != nil || !known {
		return err
	}
	err = e.l.SetOldestDue(ctx, p.Name, p.StageName(), due)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil // its schedule was not seen yet
	}
	return err
}

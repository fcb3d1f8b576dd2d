package curfew

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/hold"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/riverq"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/policy"
	"curfew.dev/curfew/schedule"
)

const (
	// silentFor is how long nobody may show a sign of life in an open run. A run whose process died is taken over within a
	// minute where a process is left to do it.
	silentFor = 15 * time.Minute
	// pauseFor is how long a policy may be paused before somebody has probably forgotten it.
	pauseFor = 7 * 24 * time.Hour
	// skipsInARow is how many skipped occurrences are no coincidence.
	skipsInARow = 3
)

// stageName names a stage of a policy.
type stageName struct{ policy, stage string }

// Status says how the named policies are, or all of the file: when each last did its work, when it is next due, and what is
// wrong. Tasks that have a schedule are among them, and those whose calls failed for good, or wait and nobody takes them up. It asks the ledger only, so that it
// answers while every process and every governed database is down; then the schedules themselves tell which instants have passed unrecorded.
func (c *Curfew) Status(ctx context.Context, names ...string) ([]api.PolicyStatus, error) {
	statuses := []api.PolicyStatus{}
	subjects, err := c.subjects(names)
	if err != nil {
		return nil, err
	}
	k, err := c.known(ctx)
	if err != nil {
		return nil, err
	}
	left, err := c.backlogs(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range subjects {
		s := k.status(p)
		if isTask(p) {
			k.ailing(&s, left[p.Name])
			delete(left, p.Name)
		}
		statuses = append(statuses, s)
	}
	if len(names) > 0 {
		return statuses, nil
	}
	for _, name := range slices.Sorted(maps.Keys(left)) { // that have no schedule, those of other programs too: when something is wrong
		s := api.PolicyStatus{Policy: name, Mode: ledger.ModeTask, Well: true}
		if d := c.tasks[name]; d != nil {
			s = k.status(d.timing)
		}
		if k.ailing(&s, left[name]); !s.Well {
			statuses = append(statuses, s)
		}
	}
	return statuses, nil
}

// backlogs says of each task that has calls which are not done what is left of them.
func (c *Curfew) backlogs(ctx context.Context) (map[string]riverq.Backlog, error) {
	if c.noLedgerYet() {
		return nil, nil
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return nil, err
	}
	known, err := l.Tasks(ctx)
	if err != nil || len(known)+len(c.tasks) == 0 { // a ledger that never had tasks need not have the tables of the queue
		return nil, ledgerError(err)
	}
	q, err := c.inserter(ctx)
	if err != nil {
		return nil, err
	}
	left, err := q.Backlogs(ctx)
	return left, ledgerError(err)
}

// ailing adds to the status of a task what is wrong with its calls: nothing else brings them back to mind.
func (k known) ailing(s *api.PolicyStatus, left riverq.Backlog) {
	join := func(before, more string) string { return strings.TrimPrefix(before+"; "+more, "; ") }
	for _, a := range k.neglected(s.Policy, left) {
		s.Well, s.Problem, s.Hint = false, join(s.Problem, a.problem), join(s.Hint, a.hint)
	}
}

// neglected is what is wrong with a task's calls: they failed for good, or wait and nobody takes them up.
func (k known) neglected(task string, left riverq.Backlog) (all []ailment) {
	if left.Failed > 0 {
		all = append(all, ailment{times(left.Failed, "call") + " failed for good", "curfew task failed --task " + task + " lists them"})
	}
	if !left.Oldest.IsZero() && left.Running == 0 && k.now.Sub(left.Oldest) >= silentFor {
		all = append(all, ailment{"calls wait since " + stampInWords(left.Oldest) + ", and no process takes them up",
			"start curfew serve, or the application that has the task; if it runs, its workers are busy with others: curfew task calls --task " + task + " lists what waits"})
	}
	return all
}

// subjects are the stages of the named policies, and the named tasks; or all that the process has, of tasks those with a schedule.
func (c *Curfew) subjects(names []string) ([]*policy.Policy, error) {
	if len(names) == 0 {
		return c.timed(), nil
	}
	var out []*policy.Policy
	for _, name := range names {
		p, err := c.named(name)
		if err != nil {
			return nil, err
		}
		if isTask(p) {
			out = append(out, p)
		} else {
			out = append(out, stages(p)...)
		}
	}
	return out, nil
}

// known is what the ledger has about policies and their runs.
type known struct {
	now       time.Time
	schedules map[stageName]ledger.ScheduleState
	health    map[stageName]ledger.StageHealth
	shadowed  map[stageName]ledger.Run // of policies in shadow mode: the last run that succeeded
	open      map[stageName]ledger.Run // the oldest open run, in whatever mode
	pauses    map[string]api.Pause
	holds     []ledger.SealedHold // that are not released
	databases map[string]ledger.Database
}

func (c *Curfew) known(ctx context.Context) (known, error) {
	var k known
	var err error
	if k.now, err = c.now(ctx); err != nil || c.noLedgerYet() {
		return k, err
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return k, err
	}
	if k.schedules, err = c.scheduleStates(ctx, l); err != nil {
		return k, err
	}
	health, err := l.LastRuns(ctx)
	if err != nil {
		return k, ledgerError(err)
	}
	k.health = map[stageName]ledger.StageHealth{}
	for _, h := range health {
		if h.Skips, err = skips(ctx, l, h); err != nil {
			return k, err
		}
		k.health[stageName{h.Policy, h.Stage}] = h
	}
	open, err := l.OpenRuns(ctx)
	if err != nil {
		return k, ledgerError(err)
	}
	waiting, err := l.List(ctx, ledger.Filter{State: ledger.AwaitingApproval})
	if err != nil {
		return k, ledgerError(err)
	}
	k.open = map[stageName]ledger.Run{}
	for _, r := range append(open, waiting...) {
		if name := (stageName{r.Policy, r.Stage}); k.open[name].ID == "" {
			k.open[name] = r
		}
	}
	if k.shadowed, err = c.lastShadows(ctx, l); err != nil {
		return k, err
	}
	if k.holds, err = l.Holds(ctx, false); err != nil {
		return k, ledgerError(err)
	}
	databases, err := l.Databases(ctx)
	if err != nil {
		return k, ledgerError(err)
	}
	k.databases = map[string]ledger.Database{}
	for _, d := range databases {
		k.databases[d.Name] = d
	}
	k.pauses, err = c.pauses(ctx, l)
	return k, err
}

// skips is how many of the last occurrences in a row were skipped, since a pause.
func skips(ctx context.Context, l *ledger.Ledger, h ledger.StageHealth) (int64, error) {
	if h.Skips < skipsInARow {
		return h.Skips, nil
	}
	skipped, err := l.Occurrences(ctx, ledger.OccurrenceFilter{Policy: h.Policy, Stage: h.Stage, State: ledger.OccurrenceSkipped, Limit: int(min(h.Skips, 1000))})
	if err != nil {
		return 0, ledgerError(err)
	}
	for i, o := range skipped {
		if o.Why == ledger.WhyPaused {
			return int64(i), nil
		}
	}
	return h.Skips, nil
}

// lastShadows are the last shadow runs that succeeded, of the policies that only have such.
func (c *Curfew) lastShadows(ctx context.Context, l *ledger.Ledger) (map[stageName]ledger.Run, error) {
	last := map[stageName]ledger.Run{}
	for _, p := range c.file.Policies {
		if p.Mode != policy.Shadow {
			continue
		}
		runs, err := l.List(ctx, ledger.Filter{Policy: p.Name, State: ledger.Succeeded})
		if err != nil {
			return nil, ledgerError(err)
		}
		for _, r := range runs {
			name := stageName{r.Policy, r.Stage}
			if r.Mode == string(policy.Shadow) && r.AsOf.After(last[name].AsOf) {
				last[name] = r
			}
		}
	}
	return last, nil
}

// scheduleStates says how far the schedules have been kept.
func (c *Curfew) scheduleStates(ctx context.Context, l *ledger.Ledger) (map[stageName]ledger.ScheduleState, error) {
	all, err := l.Schedules(ctx)
	if err != nil {
		return nil, ledgerError(err)
	}
	states := make(map[stageName]ledger.ScheduleState, len(all))
	for _, s := range all {
		states[stageName{s.Policy, s.Stage}] = s
	}
	return states, nil
}

// scheduleOf is the schedule of a policy, if it has one.
func scheduleOf(p *policy.Policy) (schedule.Schedule, bool) {
	if p.Schedule == nil {
		return schedule.Schedule{}, false
	}
	cron, err := schedule.Parse(p.Schedule.Cron)
	if err != nil { // the file's parser has accepted it
		return schedule.Schedule{}, false
	}
	return schedule.Schedule{Cron: cron, Location: p.Location()}, true
}

// keptInWords is a schedule as the ledger names it.
func keptInWords(expr string) string {
	parts := strings.Split(expr, ";")
	if len(parts) != 3 {
		return expr
	}
	return strings.TrimSpace(parts[0] + " " + parts[1])
}

// status is that of one stage of a policy.
func (k known) status(p *policy.Policy) api.PolicyStatus {
	name := stageName{p.Name, p.StageName()}
	health := k.health[name]
	s := api.PolicyStatus{
		Policy: p.Name, Stage: p.StageName(), Mode: string(p.Mode), Schedule: scheduleInWords(p), OpenRun: k.open[name].ID,
		Missed: health.Missed, Failed: health.Failed, Skipped: health.Skips, Expired: health.Expired,
	}
	if open := k.open[name]; strings.HasPrefix(open.Detail, ledger.OutsideWindow) {
		s.Waiting = open.Detail
	}
	ok := health.LastOK
	if p.Mode == policy.Shadow {
		ok = k.shadowed[name]
	}
	if ok.ID != "" {
		s.LastOK, s.LastOKRun = orNil(ok.AsOf), ok.ID
	}
	for _, h := range k.holds {
		if concerns(h, p) {
			s.Holds++
		}
	}
	if pause, paused := k.pauses[p.Name]; paused {
		s.Paused, s.PausedSince = true, &pause.Since
	}
	state, seen := k.schedules[name]
	var late []time.Time
	if cron, scheduled := scheduleOf(p); scheduled {
		if next, comes := cron.Next(k.now); comes {
			s.NextDue = &next
		}
		if seen {
			late = overdue(p, state, k.now, maxUnrecorded)
		}
	}
	if !s.Paused {
		s.Missed += int64(len(late))
	}
	if seen && state.OldestAt != nil && !health.LastOK.EndedAt.After(*state.OldestAt) { // else a run has changed what there is
		lag := int64(0)
		if state.OldestDue != nil {
			lag = int64(k.now.Sub(*state.OldestDue) / time.Second)
		}
		s.LagSeconds = &lag
	}
	var problems, hints []string
	for _, a := range k.ailments(p, s, late) {
		problems, hints = append(problems, a.problem), append(hints, a.hint)
	}
	s.Well, s.Problem, s.Hint = len(problems) == 0, strings.Join(problems, "; "), strings.Join(hints, "; ")
	return s
}

// ailment is something that is wrong, and what to do about it.
type ailment struct{ problem, hint string }

// ailments is what is wrong with a policy, the cause before its effects.
func (k known) ailments(p *policy.Policy, s api.PolicyStatus, late []time.Time) []ailment {
	var all []ailment
	add := func(hint, problem string, args ...any) {
		all = append(all, ailment{fmt.Sprintf(problem, args...), hint})
	}
	name := stageName{p.Name, s.Stage}
	state, seen := k.schedules[name]
	switch {
	case p.Schedule != nil && !seen:
		add("curfew serve keeps the schedules of the file", "no process has seen its schedule yet")
	case len(late) > 0:
		add("start curfew serve; if it runs, does it use this file and this ledger?",
			"no process has ticked since %s, and %s passed", stampInWords(state.TickedAt), times(int64(len(late)), "scheduled instant"))
	}
	if p.Schedule != nil && seen && state.Expr != expression(p) {
		add("reload curfew serve (SIGHUP), and give this command the CURFEW_POLICY_…_CRON that it has", "another schedule is kept than the file's: %s", keptInWords(state.Expr))
	}
	if d := k.databases[p.Database]; d.Differs != "" && p.Mode == policy.Enforce {
		add("curfew adopt "+p.Database+" accepts it as it is; until then no run changes anything there", "its database %s is not the one that the ledger knows (since %s): %s", p.Database, stampInWords(d.Noticed), d.Differs)
	}
	health := k.health[name]
	if last := health.Last; last.Mode == s.Mode && last.State == ledger.Failed {
		hint := "curfew show " + shortID(last.ID) + " has the details"
		if isTask(p) { // a call by hand is no run
			hint += "; it is well again when the schedule's next call has succeeded"
		}
		add(hint, "the last run failed: %s", why(last))
	} else if s.Failed > 0 {
		add("curfew gaps "+p.Name+" --each lists them", "%s failed since the last ok run", times(s.Failed, "occurrence"))
	}
	if missed := s.Missed - int64(len(late)); missed > 0 {
		hint := "curfew gaps " + p.Name + " --each lists them; " + runWords(p.Name, s.Stage) + " makes up for them now"
		if isTask(p) {
			hint = "curfew gaps " + p.Name + " --each lists them; curfew task run " + p.Name + " does its work now, and it is well again when the schedule's next call has succeeded"
		}
		if p.Schedule != nil && p.Schedule.By == "external" {
			hint = "curfew calls --policy " + p.Name + " shows which calls came; the caller is silent, or its token is refused"
		}
		add(hint, "%s missed since the last ok run", times(missed, "occurrence"))
	}
	if s.Expired > 0 {
		add("curfew runs --policy "+p.Name+" shows them; are there too few workers, or is a database out of reach?", "%s expired, accepted and not begun in time", times(s.Expired, "occurrence"))
	}
	if s.Skipped >= skipsInARow && !s.Paused {
		add("curfew runs --policy "+p.Name+" shows which run is in the way; run it more rarely, or let it do less", "%s skipped in a row", times(s.Skipped, "occurrence"))
	}
	if a, stuck := k.stuck(k.open[name]); stuck {
		all = append(all, a)
	}
	if limit := p.Limits.RetentionLag; limit > 0 && s.LagSeconds != nil && p.Mode == policy.Enforce {
		if lag := time.Duration(*s.LagSeconds) * time.Second; lag > limit {
			add("curfew explain and curfew show say what keeps old rows; a run that is too slow may need more rows a batch, or a higher pace",
				"its oldest due row is %s late, the limit is %s", length(lag), length(limit))
		}
	}
	for _, h := range k.holds {
		if slices.Contains(h.Pending(), p.Database) {
			what := map[hold.State]string{hold.Releasing: "released"}[h.State]
			add("curfew hold replay "+p.Database+" goes on with it, and so does curfew serve, once the database answers", "hold %s is being %s in %s and until that is done nothing is changed there",
				h.Name, cmp.Or(what, "placed"), p.Database)
		}
	}
	if pause, paused := k.pauses[p.Name]; paused && k.now.Sub(pause.Since) >= pauseFor {
		add("curfew resume "+p.Name, "paused since %s by %s", stampInWords(pause.Since), pause.Actor)
	}
	return all
}

// concerns reports whether a hold may keep rows of a policy.
func concerns(h ledger.SealedHold, p *policy.Policy) bool {
	if h.OnSubject() {
		return p.Subjects()
	}
	same := func(table string) bool { return target.SameTable(h.Relation, table) }
	return h.Database == p.Database && (same(p.Table) || slices.ContainsFunc(p.Cascade, same))
}

// stuck is what is wrong with an open run, if anything.
func (k known) stuck(r ledger.Run) (ailment, bool) {
	if r.ID == "" || r.Mode == ledger.ModeTask { // a call may take long, and wait long for its next attempt: its queue takes care of it
		return ailment{}, false
	}
	if r.State == ledger.AwaitingApproval {
		return ailment{"run " + shortID(r.ID) + " waits for approval: " + r.Detail,
			"curfew show " + shortID(r.ID) + " has the plan; curfew approve " + shortID(r.ID) + " lets it go on, curfew cancel " + shortID(r.ID) + " ends it"}, true
	}
	if what, waits := strings.CutPrefix(r.Detail, ledger.Waiting); waits {
		return ailment{"run " + shortID(r.ID) + " waits and is tried again: " + what, "curfew check " + r.Policy + " tries the same database; curfew cancel " + shortID(r.ID) + " gives the run up"}, true
	}
	alive := r.AcceptedAt
	for _, t := range []time.Time{r.StartedAt, r.Heartbeat} {
		if t.After(alive) {
			alive = t
		}
	}
	if k.now.Sub(alive) < silentFor {
		return ailment{}, false
	}
	return ailment{
		fmt.Sprintf("run %s is %s, and nobody has worked on it since %s", shortID(r.ID), r.State, stampInWords(alive)),
		"curfew serve takes it over, " + runWords(r.Policy, r.Stage) + " goes on with it by hand",
	}, true
}

// why says why a run ended as it did.
func why(r ledger.Run) string {
	if r.Detail == "" {
		return r.WhyEnded
	}
	return r.WhyEnded + ": " + r.Detail
}

// stampInWords is an instant to the second.
func stampInWords(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// times writes "1 occurrence", "2 occurrences".
func times(n int64, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

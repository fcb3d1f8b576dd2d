package curfew

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/internal/worker"
	"curfew.dev/curfew/policy"
	"curfew.dev/curfew/schedule"
)

const (
	// historyRuns is how many runs say what is usual.
	historyRuns = 10
	// mostIntervals is how many instants of a schedule are counted between two runs.
	mostIntervals = 100_000
)

// A counter counts what a run is about to do, in the governed database.
type counter interface {
	// changing counts the rows that the run would change, up to limit when that is above 0.
	changing(ctx context.Context, limit int64) (int64, error)
	// scope counts the rows that the policy is about, up to limit.
	scope(ctx context.Context, limit int64) (int64, error)
	// compare counts what another text of the policy would change, and what the run would change beyond that. An error of
	// *incomparableError says that the text cannot be asked.
	compare(ctx context.Context, old *policy.Policy) (was, extra int64, err error)
}

// incomparableError says why an older text of a policy could not be asked what it would remove.
type incomparableError struct{ why string }

func (e *incomparableError) Error() string { return e.why }

// weigh judges an enforcing run of which nothing was let in yet: one that would change more than the policy's limits, or more than
// the policy did before it was changed, waits for approval, with what was counted. A crash in here leaves the run as it was, to be
// weighed again.
func (w *work) weigh(ctx context.Context, run ledger.Run) (ledger.Run, error) {
	if run.Mode != string(policy.Enforce) {
		return run, nil
	}
	answer, asked, err := w.l.Approval(ctx, run.ID)
	if err != nil {
		return run, ledgerError(err)
	}
	plan, err := w.judge(ctx, run)
	if stop := worker.AsStop(err); stop != nil {
		return run, &dispatch.StopError{Why: stop.Why, Err: stop}
	}
	if err != nil {
		return run, err
	}
	if len(plan.Exceeded) == 0 {
		return run, w.tellKept(ctx, run, plan)
	}
	if asked && !answer.Granted.IsZero() {
		var approved api.ApprovalPlan
		if err := json.Unmarshal(answer.Plan, &approved); err != nil {
			return run, fmt.Errorf("what was approved of run %.12s: %w", run.ID, err)
		}
		if covers(approved, plan) {
			return run, nil
		}
	}
	text, err := json.Marshal(plan)
	if err != nil {
		return run, err
	}
	hook("awaiting")
	run, err = w.l.Await(ctx, run.ID, inWords(plan), text)
	if err != nil {
		return run, ledgerError(err)
	}
	if run.State == ledger.AwaitingApproval {
		w.c.log.WarnContext(ctx, "run_awaiting_approval", "run", run.ID, "policy", run.Policy, "stage", run.Stage, "as_of", run.AsOf, "cutoff", run.Cutoff,
			"why", run.Detail, "hint", "curfew show "+shortID(run.ID)+" has the plan; curfew approve lets it go on, curfew cancel ends it")
	}
	return run, nil
}

// judge counts and compares.
func (w *work) judge(ctx context.Context, run ledger.Run) (api.ApprovalPlan, error) {
	plan := api.ApprovalPlan{Exceeded: []api.Limit{}}
	if w.p.Limits.Stop() {
		if err := w.judgeLimits(ctx, run, &plan); err != nil {
			return plan, err
		}
	}
	last, old, err := w.before(ctx, run)
	if err != nil || last.ID == "" {
		return plan, err
	}
	return plan, w.judgeChange(ctx, last, old, &plan)
}

// judgeLimits holds what a run would change against the policy's limits. It counts no further than it must, unless a limit is
// exceeded: who is to approve is told the number.
func (w *work) judgeLimits(ctx context.Context, run ledger.Run, plan *api.ApprovalPlan) error {
	l := w.p.Limits
	bound := l.MaxRows
	var spike int64
	if l.Spike > 0 {
		before, err := w.l.RunsBefore(ctx, run, historyRuns+1)
		if err != nil {
			return ledgerError(err)
		}
		if plan.History = usual(before, run.AsOf, w.intervals(before)); plan.History != nil {
			spike = allowedSpike(l.Spike, *plan.History)
			if bound == 0 || spike < bound {
				bound = spike
			}
		}
	}
	if bound == 0 && l.MaxShare == 0 {
		return nil // there is only a spike to look for, and nothing that is usual
	}
	limit := int64(0)
	if bound > 0 {
		limit = bound + 1
	}
	due, err := w.counts.changing(ctx, limit)
	if err == nil && limit > 0 && due >= limit {
		due, err = w.counts.changing(ctx, 0)
	}
	if err != nil {
		return w.countError(err)
	}
	plan.Due = &due
	beyond := func(limit, setting string, allowed int64, message string, args ...any) {
		plan.Exceeded = append(plan.Exceeded, api.Limit{Limit: limit, Setting: setting, Allowed: allowed, Counted: due, Message: fmt.Sprintf(message, args...)})
	}
	if l.MaxRows > 0 && due > l.MaxRows {
		beyond(api.LimitMaxRows, strconv.FormatInt(l.MaxRows, 10), l.MaxRows, "it would remove %s, and max_rows is %d", times(due, "row"), l.MaxRows)
	}
	if l.MaxShare > 0 && due > 0 {
		whole := l.MaxShare.Whole(due)
		scope, err := w.counts.scope(ctx, whole)
		if err != nil {
			return w.countError(err)
		}
		if scope < whole {
			plan.InScope = &scope
			beyond(api.LimitMaxShare, l.MaxShare.String(), l.MaxShare.Of(scope), "it would remove %d of the %s in its scope, and max_share is %s", due, times(scope, "row"), l.MaxShare)
		}
	}
	if h := plan.History; h != nil && due > spike {
		beyond(api.LimitSpike, l.Spike.String(), spike, "it would remove %s for %s, where %s each are usual (%s), and spike is %s", times(due, "row"),
			times(h.Intervals, "interval"), strconv.FormatFloat(h.Usual, 'f', -1, 64), "the median of "+times(int64(h.Runs), "run"), l.Spike)
	}
	return nil
}

func (w *work) countError(err error) error {
	if worker.AsStop(err) != nil || w.job == nil {
		return err
	}
	if target.Unevaluable(err) { // as it would be for a page
		return fmt.Errorf("%w: %w", target.ErrPolicySQL, err)
	}
	return targetError(w.p.Database, err)
}

// usual is what a policy's runs change an interval, by the runs before; nil when there are none. covers says how many intervals lie
// between two instants.
func usual(before []ledger.Run, asOf time.Time, covers func(from, to time.Time) int64) *api.History {
	before = slices.DeleteFunc(slices.Clone(before), func(r ledger.Run) bool { return !r.AsOf.Before(asOf) })
	slices.SortStableFunc(before, func(a, b ledger.Run) int { return a.AsOf.Compare(b.AsOf) })
	if len(before) == 0 {
		return nil
	}
	var rates []float64
	for i, r := range before {
		n := int64(1) // of the first one nobody knows what it covers
		if i > 0 {
			n = covers(before[i-1].AsOf, r.AsOf)
		}
		rates = append(rates, float64(changedRows(r.Outcomes))/float64(n))
	}
	rates = rates[max(0, len(rates)-historyRuns):]
	slices.Sort(rates)
	n := len(rates)
	// Of two in the middle the smaller: the first run of a policy often removes years of rows.
	return &api.History{Runs: n, Usual: rates[(n-1)/2], Intervals: covers(before[len(before)-1].AsOf, asOf)}
}

// changedRows counts the rows that are not as they were.
func changedRows(o ledger.Outcomes) int64 {
	var n int64
	for _, name := range []string{"deleted", "anonymised", "archived", "set", "notified", "called"} {
		n += o[name]
	}
	return n
}

// allowedSpike is how many rows are no spike: the factor times what is usual for the intervals covered, and times one row where
// nothing is usual.
func allowedSpike(f policy.Factor, h api.History) int64 {
	return int64(f.Times(max(h.Usual*float64(h.Intervals), 1)))
}

// intervals says how many intervals of the policy lie between two instants, at least one: instants of its schedule, and without one
// as many times the usual time between its runs as there is room for.
func (w *work) intervals(before []ledger.Run) func(from, to time.Time) int64 {
	if s, ok := scheduleOf(w.p); ok {
		return func(from, to time.Time) int64 { return scheduledBetween(s, from, to) }
	}
	before = slices.Clone(before)
	slices.SortFunc(before, func(a, b ledger.Run) int { return a.AsOf.Compare(b.AsOf) })
	var gaps []time.Duration
	for i := 1; i < len(before); i++ {
		if gap := before[i].AsOf.Sub(before[i-1].AsOf); gap > 0 {
			gaps = append(gaps, gap)
		}
	}
	if len(gaps) == 0 {
		return func(time.Time, time.Time) int64 { return 1 }
	}
	slices.Sort(gaps)
	usual := gaps[len(gaps)/2]
	return func(from, to time.Time) int64 { return max(1, int64(to.Sub(from)/usual)) }
}

func scheduledBetween(s schedule.Schedule, from, to time.Time) int64 {
	n := int64(0)
	for range s.Between(from, to) {
		if n++; n == mostIntervals {
			break
		}
	}
	return max(1, n)
}

// before is the last run of the policy that was let in, and its text when that removes other rows; no run when there is nothing to
// compare with. A policy that was never enforced is compared with what its shadow runs showed, if there were any.
func (w *work) before(ctx context.Context, run ledger.Run) (ledger.Run, *policy.Policy, error) {
	last, found, err := w.l.BegunBefore(ctx, run, string(policy.Enforce))
	if err == nil && !found {
		last, found, err = w.l.BegunBefore(ctx, run, string(policy.Shadow))
	}
	if err != nil || !found || last.Revision == run.Revision {
		return ledger.Run{}, nil, ledgerError(err)
	}
	body, err := w.l.RevisionBody(ctx, last.Revision)
	if err != nil {
		return ledger.Run{}, nil, ledgerError(err)
	}
	old, err := policy.FromRevision(body)
	if err != nil {
		return last, nil, nil // of a version that we do not understand: it cannot be asked
	}
	old, ok := old.Narrow(run.Stage)
	if !ok {
		return last, nil, nil
	}
	if old.Effect() == w.p.Effect() {
		return ledger.Run{}, nil, nil
	}
	return last, old, nil
}

// judgeChange counts what the policy removes now and would have removed before it was changed, at the same as_of.
func (w *work) judgeChange(ctx context.Context, last ledger.Run, old *policy.Policy, plan *api.ApprovalPlan) error {
	change := &api.Revision{Was: last.Revision, WasID: last.ID}
	plan.Change = change
	if plan.Due == nil {
		due, err := w.counts.changing(ctx, 0)
		if err != nil {
			return w.countError(err)
		}
		plan.Due = &due
	}
	var was, extra int64
	err := error(&incomparableError{"this version of curfew does not understand it, or it had other stages"})
	switch {
	case old == nil:
	case old.Database != w.p.Database || old.Table != w.p.Table:
		err = &incomparableError{fmt.Sprintf("it was about table %s of database %s", old.Table, old.Database)}
	default:
		was, extra, err = w.counts.compare(ctx, old)
	}
	incomparable := (*incomparableError)(nil)
	switch {
	case errors.As(err, &incomparable):
		change.Fault = incomparable.why
		plan.Exceeded = append(plan.Exceeded, api.Limit{Limit: api.LimitPolicyChanged, Counted: *plan.Due,
			Message: fmt.Sprintf("the policy was changed, it would remove %s, and the text of before cannot be asked what it would have removed: %s", times(*plan.Due, "row"), incomparable.why)})
	case err != nil:
		return w.countError(err)
	default:
		change.Old, change.Extra = &was, &extra
		if extra > 0 {
			plan.Exceeded = append(plan.Exceeded, api.Limit{Limit: api.LimitPolicyChanged, Allowed: was, Counted: extra,
				Message: changeInWords(*plan.Due, was, extra)})
		}
	}
	return nil
}

// changeInWords says what a changed policy removes now, what it would have removed before, and how many rows are due by it that were
// not. In a policy with stages these may be more than go now: the others wait for an earlier stage, and would follow unasked.
func changeInWords(now, was, extra int64) string {
	words := fmt.Sprintf("the policy was changed: it would remove %s, and %d as it was before; ", times(now, "row"), was)
	if extra > now {
		return words + times(extra, "row") + " would have stayed, of which some go only when an earlier stage is passed"
	}
	return words + times(extra, "row") + " would have stayed"
}

// tellKept says that a changed policy keeps rows which it would have removed before.
func (w *work) tellKept(ctx context.Context, run ledger.Run, plan api.ApprovalPlan) error {
	c := plan.Change
	if c == nil || c.Old == nil || plan.Due == nil || *c.Old <= *plan.Due {
		return nil
	}
	w.c.log.InfoContext(ctx, "policy_keeps_longer", "run", run.ID, "policy", run.Policy, "stage", run.Stage, "due", *plan.Due, "as_it_was", *c.Old, "revision", run.Revision, "was", c.Was)
	return ledgerError(w.l.Compared(ctx, run, struct {
		Revision string `json:"revision"`
		Was      string `json:"was"`
		Due      int64  `json:"due"`
		Old      int64  `json:"old"`
	}{run.Revision, c.Was, *plan.Due, *c.Old}))
}

// tolerated is how much more may be due when a run goes on than was approved, in percent: rows become due while somebody thinks,
// and a run that asks again for each of them would never begin.
const tolerated = 10

// covers reports whether what was approved is still what the run is about: hardly more rows, and of those hardly more that the policy
// would not have removed before it was changed.
func covers(approved, now api.ApprovalPlan) bool {
	hardlyMore := func(n, than int64) bool { return n <= than+than*tolerated/100 }
	if approved.Due == nil || now.Due == nil || !hardlyMore(*now.Due, *approved.Due) {
		return false
	}
	for _, n := range now.Exceeded {
		if n.Limit == api.LimitPolicyChanged && !slices.ContainsFunc(approved.Exceeded, func(a api.Limit) bool {
			return a.Limit == n.Limit && hardlyMore(n.Counted, a.Counted)
		}) {
			return false
		}
	}
	return true
}

func inWords(plan api.ApprovalPlan) string {
	messages := make([]string, len(plan.Exceeded))
	for i, e := range plan.Exceeded {
		messages[i] = e.Message
	}
	return strings.Join(messages, "; ")
}

// localCounter counts in a database that this process works on.
type localCounter struct {
	c   *Curfew
	job *target.Job
	run ledger.Run
}

func (l localCounter) changing(ctx context.Context, limit int64) (int64, error) {
	return l.job.CountChanging(ctx, limit)
}

func (l localCounter) scope(ctx context.Context, limit int64) (int64, error) {
	return l.job.CountScope(ctx, limit)
}

func (l localCounter) compare(ctx context.Context, old *policy.Policy) (was, extra int64, err error) {
	return l.c.compare(ctx, l.job, old, l.run.AsOf)
}

// compare asks another text of a job's policy what it would remove.
func (c *Curfew) compare(ctx context.Context, job *target.Job, old *policy.Policy, asOf time.Time) (was, extra int64, err error) {
	sort := func(err error) error {
		if ctx.Err() != nil || target.Transient(err) || KindOf(err) == KindUnreachable {
			return err
		}
		return &incomparableError{err.Error()}
	}
	keys, err := c.keys()
	if err != nil {
		return 0, 0, err
	}
	db, table, err := c.fit(ctx, old)
	if err != nil {
		return 0, 0, sort(err)
	}
	before, err := target.NewJob(db, target.JobOptions{Policy: old, Table: table, AsOf: asOf, Cutoff: old.Cutoff(asOf), Shadow: true, Run: "compare", Keys: keys, Logger: c.log})
	if err != nil {
		return 0, 0, sort(err)
	}
	if was, err = before.CountChanging(ctx, 0); err != nil {
		return 0, 0, sort(err)
	}
	extra, err = job.CountBeyond(ctx, before)
	if err != nil {
		return 0, 0, sort(err)
	}
	return was, extra, nil
}

// Approve lets a run go on that waits for approval.
func (c *Curfew) Approve(ctx context.Context, id, reason string) (api.Run, error) {
	return c.approve(ctx, id, c.actor, reason)
}

func (c *Curfew) approve(ctx context.Context, id, actor, reason string) (api.Run, error) {
	l, err := c.ledger(ctx)
	if err != nil {
		return api.Run{}, err
	}
	run, err := l.Get(ctx, id)
	if err != nil {
		return api.Run{}, ledgerError(err)
	}
	run, err = l.Approve(ctx, run.ID, actor, reason)
	if not := (*ledger.NotAwaitingError)(nil); errors.As(err, &not) {
		return wireRun(not.Run), &Error{Kind: KindRefused, Err: not, Hint: "curfew show " + shortID(not.Run.ID) + " says what came of it"}
	}
	if err != nil {
		return api.Run{}, ledgerError(err)
	}
	c.log.InfoContext(ctx, "run_approved", "run", run.ID, "policy", run.Policy, "stage", run.Stage, "as_of", run.AsOf, "cutoff", run.Cutoff, "by", actor)
	return wireRun(run), nil
}

// wireApproval is what was asked about a run, as it is shown; nil when nobody asked.
func wireApproval(ctx context.Context, l *ledger.Ledger, run string) (*api.Approval, error) {
	a, found, err := l.Approval(ctx, run)
	if err != nil || !found {
		return nil, err
	}
	out := &api.Approval{AskedAt: a.Asked.UTC(), ApprovedAt: orNil(a.Granted), ApprovedBy: a.Actor, Reason: a.Reason}
	return out, json.Unmarshal(a.Plan, &out.ApprovalPlan)
}

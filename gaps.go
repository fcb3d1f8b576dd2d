package curfew

import (
	"cmp"
	"context"
	"slices"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/policy"
)

// GapFilter narrows the months of Gaps.
type GapFilter struct {
	Policy string    // "": all that the ledger knows
	From   time.Time // zero: from the first
}

// Gaps counts, by policy stage and month of the policy's calendar, what became of its scheduled instants and how many rows
// its runs changed. Instants that passed while no process was there to record them count as missed, as the next process
// will record them. The months are in order.
func (c *Curfew) Gaps(ctx context.Context, f GapFilter) ([]api.GapMonth, error) {
	months := []api.GapMonth{}
	var unknown error // unless the ledger knows a policy that left the file
	if f.Policy != "" {
		_, unknown = c.named(f.Policy)
	}
	if c.noLedgerYet() {
		return months, unknown
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return nil, err
	}
	if f.From.IsZero() {
		f.From = time.Unix(0, 0)
	}
	gaps, err := l.Gaps(ctx, f.Policy, f.From, c.zone)
	if err != nil {
		return nil, ledgerError(err)
	}
	for _, g := range gaps {
		months = append(months, api.GapMonth{
			Policy: g.Policy, Stage: g.Stage, Month: g.Month, Occurrences: g.Occurrences, OK: g.OK, Failed: g.Failed, Skipped: g.Skipped,
			Expired: g.Expired, Missed: g.Missed, Shadow: g.Shadow, Runs: g.Runs, Changed: g.Changed,
		})
	}
	if months, err = c.addUnrecorded(ctx, l, months, f); err != nil {
		return nil, err
	}
	if len(months) == 0 && unknown != nil {
		return nil, unknown
	}
	slices.SortStableFunc(months, func(a, b api.GapMonth) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Month, b.Month))
	})
	return months, nil
}

// zone is the zone of a policy's calendar; UTC for one that left the file.
func (c *Curfew) zone(name string) *time.Location {
	p, err := c.named(name)
	if err != nil {
		return time.UTC
	}
	return p.Location()
}

// addUnrecorded adds the instants that no process has recorded to their months.
func (c *Curfew) addUnrecorded(ctx context.Context, l *ledger.Ledger, months []api.GapMonth, f GapFilter) ([]api.GapMonth, error) {
	now, err := l.Now(ctx)
	if err != nil {
		return nil, ledgerError(err)
	}
	states, err := c.scheduleStates(ctx, l)
	if err != nil {
		return nil, err
	}
	pauses, err := c.pauses(ctx, l)
	if err != nil {
		return nil, err
	}
	for _, p := range c.timed() {
		if f.Policy != "" && f.Policy != p.Name {
			continue
		}
		state, seen := states[stageName{p.Name, p.StageName()}]
		if !seen {
			continue
		}
		_, paused := pauses[p.Name]
		for _, at := range overdue(p, state, now, maxUnrecorded) {
			if at.Before(f.From) {
				continue
			}
			month := at.In(p.Location()).Format("2006-01")
			i := slices.IndexFunc(months, func(m api.GapMonth) bool { return m.Policy == p.Name && m.Stage == p.StageName() && m.Month == month })
			if i < 0 {
				i, months = len(months), append(months, api.GapMonth{Policy: p.Name, Stage: p.StageName(), Month: month})
			}
			months[i].Occurrences++
			if paused {
				months[i].Skipped++
			} else {
				months[i].Missed++
			}
		}
	}
	return months, nil
}

// maxUnrecorded bounds how many unrecorded instants of a policy are counted: a minutely schedule that nobody ticked for two
// months.
const maxUnrecorded = 100_000

// overdue are the instants after the schedule's cursor that are too late to be kept: at most limit, the oldest first. They are
// those of the schedule that was kept last, whatever the file says by now: as such the next process records them.
func overdue(p *policy.Policy, state ledger.ScheduleState, now time.Time, limit int) []time.Time {
	instants := enumerate(state.Expr)
	if p.Schedule == nil || instants == nil {
		return nil
	}
	return instants(state.Cursor, now.Add(-lateness(p)), limit)
}

// lateness is how long after its instant a run may begin, or a call may come.
func lateness(p *policy.Policy) time.Duration {
	if p.Schedule.By == "external" {
		return p.Schedule.Grace
	}
	return p.Schedule.StartWithin
}

// OccurrenceFilter narrows a list of occurrences.
type OccurrenceFilter struct {
	Policy string
	State  string
	From   time.Time // this instant and later ones; zero: from the first
	Before time.Time // older than this, to read on from the last answer
	Limit  int       // 0: all
}

// Occurrences lists scheduled instants and what became of them, the newest first. Those that passed while no process was there to
// record them are missed, as the next process will record them.
func (c *Curfew) Occurrences(ctx context.Context, f OccurrenceFilter) ([]api.OccurrenceItem, error) {
	items := []api.OccurrenceItem{}
	if c.noLedgerYet() {
		return items, nil
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return nil, err
	}
	if items, err = c.unrecorded(ctx, l, f); err != nil {
		return nil, err
	}
	const page = 500
	filter := ledger.OccurrenceFilter{Policy: f.Policy, State: ledger.OccurrenceState(f.State), Before: f.Before, Limit: page}
	for {
		some, err := l.Occurrences(ctx, filter)
		if err != nil {
			return nil, ledgerError(err)
		}
		last := len(some) < filter.Limit
		if !last {
			// Others may have the same instant as the last of these: all of them come with the next page.
			cut := slices.IndexFunc(some, func(o ledger.Occurrence) bool { return o.At.Equal(some[len(some)-1].At) })
			if cut == 0 {
				filter.Limit *= 2
				continue
			}
			some = some[:cut]
		}
		for _, o := range some {
			if o.At.Before(f.From) || f.Limit > 0 && len(items) >= f.Limit {
				return items[:min(len(items), cmp.Or(f.Limit, len(items)))], nil
			}
			items = append(items, wireOccurrence(o))
		}
		if last {
			return items[:min(len(items), cmp.Or(f.Limit, len(items)))], nil
		}
		filter.Before, filter.Limit = some[len(some)-1].At, page
	}
}

// unrecorded are the instants that passed and that no process has recorded, the newest first.
func (c *Curfew) unrecorded(ctx context.Context, l *ledger.Ledger, f OccurrenceFilter) ([]api.OccurrenceItem, error) {
	items := []api.OccurrenceItem{}
	now, err := l.Now(ctx)
	if err != nil {
		return nil, ledgerError(err)
	}
	states, err := c.scheduleStates(ctx, l)
	if err != nil {
		return nil, err
	}
	pauses, err := c.pauses(ctx, l)
	if err != nil {
		return nil, err
	}
	for _, p := range c.timed() {
		state, seen := states[stageName{p.Name, p.StageName()}]
		if f.Policy != "" && f.Policy != p.Name || !seen {
			continue
		}
		what, why := string(ledger.OccurrenceMissed), ledger.WhyNoProcess
		if _, paused := pauses[p.Name]; paused {
			what, why = string(ledger.OccurrenceSkipped), ledger.WhyPaused
		}
		if f.State != "" && f.State != what {
			continue
		}
		for _, at := range overdue(p, state, now, maxUnrecorded) {
			if at.Before(f.From) || !f.Before.IsZero() && !at.Before(f.Before) {
				continue
			}
			items = append(items, api.OccurrenceItem{Policy: p.Name, Stage: p.StageName(), At: at.UTC(), StartBy: at.Add(lateness(p)).UTC(),
				External: p.Schedule.By == "external", State: what, Why: why, CreatedAt: now, EndedAt: &now})
		}
	}
	slices.SortStableFunc(items, func(a, b api.OccurrenceItem) int { return b.At.Compare(a.At) })
	return items, nil
}

// wireOccurrence is an occurrence as it is shown.
func wireOccurrence(o ledger.Occurrence) api.OccurrenceItem {
	return api.OccurrenceItem{
		Policy: o.Policy, Stage: o.Stage, At: o.At.UTC(), StartBy: o.StartBy.UTC(), External: o.External, State: string(o.State),
		Why: o.Why, Run: o.Run, CreatedAt: o.Created.UTC(), EndedAt: orNil(o.Ended),
	}
}

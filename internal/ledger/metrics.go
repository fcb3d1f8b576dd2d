package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// meterLag is how old a run must be before it can count as final. Between reading the clock and its commit a transaction
// may take a while, and what it wrote is seen only then.
const meterLag = 5 * time.Minute

// RunSeries is what runs are counted by.
type RunSeries struct {
	Policy, Stage, Mode, Cause string
	State                      State
}

// RowSeries is what rows are counted by.
type RowSeries struct{ Policy, Stage, Mode, Outcome string }

// StageSeries names a policy stage.
type StageSeries struct{ Policy, Stage string }

// OccurrenceSeries is what occurrences are counted by.
type OccurrenceSeries struct{ Policy, Stage, State string }

// Scheduling is how far a stage's schedule has come, and what was last known of its due rows.
type Scheduling struct {
	Ticked    time.Time
	OldestDue time.Time // zero: no row was due, when somebody looked
	OldestAt  time.Time // when somebody looked; zero: never
}

// Counts are what a ledger adds up to.
type Counts struct {
	Now          time.Time // the ledger's
	Runs         map[RunSeries]int64
	Rows         map[RowSeries]int64        // by outcome
	Cascaded     map[RowSeries]int64        // without an outcome
	LastSuccess  map[StageSeries]time.Time  // end of the last run that changed what was due
	Undispatched int64                      // accepted runs that nobody has started
	Occurrences  map[OccurrenceSeries]int64 // since the schedule was first seen
	Schedules    map[StageSeries]Scheduling
}

// Meter adds up a ledger again and again, for metrics. The whole history is read once; after that only what can still
// change, so that a reading costs the same in the tenth year. It may be used concurrently.
type Meter struct {
	l   *Ledger
	now func(context.Context) (time.Time, error) // the ledger's clock

	mu sync.Mutex // guards what follows
	// Every run accepted before upto has ended and is in base: neither ever changes again.
	upto time.Time
	base Counts
	// The same of each stage's occurrences at instants up to and with stages[…]: they have ended, and are in base.
	stages map[StageSeries]time.Time
}

// NewMeter returns a meter that has read nothing.
func (l *Ledger) NewMeter() *Meter {
	return &Meter{l: l, now: l.Now, base: newCounts(), stages: map[StageSeries]time.Time{}}
}

func newCounts() Counts {
	return Counts{
		Runs: map[RunSeries]int64{}, Rows: map[RowSeries]int64{}, Cascaded: map[RowSeries]int64{}, LastSuccess: map[StageSeries]time.Time{},
		Occurrences: map[OccurrenceSeries]int64{}, Schedules: map[StageSeries]Scheduling{},
	}
}

// Read adds up.
func (m *Meter) Read(ctx context.Context) (Counts, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	sum := newCounts()
	err := m.readRuns(ctx, &sum)
	if err == nil {
		err = m.readOccurrences(ctx, &sum)
	}
	if err != nil {
		return Counts{}, fmt.Errorf("add up the ledger: %w", err)
	}
	sum.add(&m.base)
	return sum, nil
}

// add puts other's counts on top.
func (c *Counts) add(other *Counts) {
	for k, n := range other.Runs {
		c.Runs[k] += n
	}
	for k, n := range other.Rows {
		c.Rows[k] += n
	}
	for k, n := range other.Cascaded {
		c.Cascaded[k] += n
	}
	for k, at := range other.LastSuccess {
		if at.After(c.LastSuccess[k]) {
			c.LastSuccess[k] = at
		}
	}
	for k, n := range other.Occurrences {
		c.Occurrences[k] += n
	}
}

// count puts one run on top.
func (c *Counts) count(s RunSeries, outcomes Outcomes, cascaded int64, ended time.Time) {
	c.Runs[s]++
	if s.State == Accepted {
		c.Undispatched++
	}
	for outcome, n := range outcomes {
		c.Rows[RowSeries{s.Policy, s.Stage, s.Mode, outcome}] += n
	}
	if cascaded > 0 {
		c.Cascaded[RowSeries{s.Policy, s.Stage, s.Mode, ""}] += cascaded
	}
	if k := (StageSeries{s.Policy, s.Stage}); s.State == Succeeded && s.Mode != shadow && ended.After(c.LastSuccess[k]) {
		c.LastSuccess[k] = ended
	}
}

// readRuns counts the runs that can still change into sum, and moves those that no longer can into the base.
func (m *Meter) readRuns(ctx context.Context, sum *Counts) (err error) {
	if sum.Now, err = m.now(ctx); err != nil {
		return err
	}
	// What is found open here may end before it is counted below; then it is counted as it ended, and once.
	bound := sum.Now.Add(-meterLag)
	var open stamp
	if err := m.l.queryRow(ctx, `SELECT min(accepted_at) FROM @run WHERE ended_at IS NULL`).Scan(&open); err != nil {
		return err
	}
	if at := time.Time(open); !at.IsZero() && at.Before(bound) {
		bound = at
	}
	rows, err := m.l.query(ctx, `SELECT policy, stage, mode, cause, state, outcomes, cascaded, accepted_at, ended_at FROM @run
		WHERE accepted_at >= $1`, stamp(later(m.upto, time.Unix(0, 0))))
	if err != nil {
		return err
	}
	defer rows.Close()
	final := newCounts()
	for rows.Next() {
		var s RunSeries
		var outcomes Outcomes
		var cascaded int64
		var accepted, ended time.Time
		if err := rows.Scan(&s.Policy, &s.Stage, &s.Mode, &s.Cause, &s.State, &outcomes, &cascaded, (*stamp)(&accepted), (*stamp)(&ended)); err != nil {
			return err
		}
		into := sum
		if accepted.Before(bound) {
			into = &final
		}
		into.count(s, outcomes, cascaded, ended)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	m.base.add(&final)
	m.upto = later(m.upto, bound)
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// readOccurrences does the same with occurrences. A schedule's cursor is read before what is pending: an occurrence that
// appears in between is beyond the cursor, and is not taken for final.
func (m *Meter) readOccurrences(ctx context.Context, sum *Counts) error {
	cursors, err := m.readSchedules(ctx, sum)
	if err != nil {
		return err
	}
	rows, err := m.l.query(ctx, `SELECT policy, stage, min(at) FROM @occurrence WHERE state = 'pending' GROUP BY policy, stage`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var k StageSeries
		var pending time.Time
		if err := rows.Scan(&k.Policy, &k.Stage, (*stamp)(&pending)); err != nil {
			return err
		}
		if before := pending.Add(-time.Microsecond); before.Before(cursors[k]) {
			cursors[k] = before
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for k, bound := range cursors {
		if err := m.readStage(ctx, k, bound, sum); err != nil {
			return err
		}
	}
	return nil
}

// readSchedules returns up to where each stage has all its occurrences.
func (m *Meter) readSchedules(ctx context.Context, sum *Counts) (map[StageSeries]time.Time, error) {
	rows, err := m.l.query(ctx, `SELECT policy, stage, cursor, ticked_at, oldest_due, oldest_at FROM @schedule`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	cursors := map[StageSeries]time.Time{}
	for rows.Next() {
		var k StageSeries
		var s Scheduling
		var cursor time.Time
		if err := rows.Scan(&k.Policy, &k.Stage, (*stamp)(&cursor), (*stamp)(&s.Ticked), (*stamp)(&s.OldestDue), (*stamp)(&s.OldestAt)); err != nil {
			return nil, err
		}
		cursors[k], sum.Schedules[k] = cursor, s
	}
	return cursors, errors.Join(rows.Err(), rows.Close())
}

func (m *Meter) readStage(ctx context.Context, k StageSeries, bound time.Time, sum *Counts) error {
	from := later(m.stages[k], time.Unix(0, 0))
	rows, err := m.l.query(ctx, `SELECT state, at <= $1, count(*) FROM @occurrence WHERE policy = $2 AND stage = $3 AND at > $4 GROUP BY 1, 2`,
		stamp(bound), k.Policy, k.Stage, stamp(from))
	if err != nil {
		return err
	}
	defer rows.Close()
	final := newCounts()
	for rows.Next() {
		s := OccurrenceSeries{Policy: k.Policy, Stage: k.Stage}
		var isFinal bool
		var n int64
		if err := rows.Scan(&s.State, &isFinal, &n); err != nil {
			return err
		}
		if isFinal {
			final.Occurrences[s] += n
		} else {
			sum.Occurrences[s] += n
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	m.base.add(&final)
	m.stages[k] = later(m.stages[k], bound)
	return nil
}

package web

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
)

const (
	// gaugesFor is how long a reading of the ledger is good: whoever scrapes needs no token.
	gaugesFor    = time.Second
	gaugesWithin = 8 * time.Second // Prometheus gives up after ten
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(name, help, labels, nil)
}

// All of these say the same in every process on one ledger: take their max, not their sum.
var (
	descUp       = desc("curfew_ledger_up", "1 when the ledger could be read for this scrape, else 0; then the others about it are absent.")
	descEnded    = desc("curfew_runs_ended_total", "Runs that have ended, as the ledger has them.", "policy", "stage", "mode", "cause", "state")
	descOpen     = desc("curfew_runs_open", "Runs that have not ended.", "policy", "stage", "mode", "cause", "state")
	descWaiting  = desc("curfew_undispatched_runs", "Accepted runs that no process has started yet.")
	descRows     = desc("curfew_rows_total", "Rows of settled batches, by what became of them.", "policy", "stage", "mode", "outcome")
	descCascaded = desc("curfew_cascaded_rows_total", "Rows that went along by an accepted cascade.", "policy", "stage", "mode")
	descSuccess  = desc("curfew_last_success_timestamp_seconds", "When the last enforcing run succeeded.", "policy", "stage")
	descOccurred = desc("curfew_occurrences_total", "Scheduled instants that have passed, by what became of them.", "policy", "stage", "state")
	descPending  = desc("curfew_occurrences_pending", "Scheduled instants that have passed and have not ended.", "policy", "stage")
	descTicked   = desc("curfew_schedule_ticked_timestamp_seconds", "When a process last looked at the schedule.", "policy", "stage")
	descLag      = desc("curfew_oldest_due_age_seconds", "Age of the oldest due row past its due instant, as last looked up; 0 when none was due.", "policy", "stage")
	descNext     = desc("curfew_next_due_timestamp_seconds", "The next scheduled instant.", "policy", "stage")
	descWell     = desc("curfew_policy_well", "1 when curfew status has nothing to say against the policy stage, else 0.", "policy", "stage")
	descPaused   = desc("curfew_policy_paused", "1 while the policy is paused, else 0.", "policy", "stage")
	descCalls    = desc("curfew_task_calls", "Calls of tasks that have not succeeded, by how far they are; failed is for good, until somebody has dealt with it.", "task", "state")
	descTaskWell = desc("curfew_task_well", "1 when curfew task list has nothing to say against the task, else 0.", "task")
)

var allDescs = []*prometheus.Desc{descUp, descEnded, descOpen, descWaiting, descRows, descCascaded, descSuccess, descOccurred, descPending,
	descTicked, descLag, descNext, descWell, descPaused, descCalls, descTaskWell}

// The words that a series is shown for before it has counted anything, so that its first event is an increase.
var (
	causes           = []string{"schedule", "http", "cli", "catch_up"}
	occurrenceStates = []string{api.OccurrenceOK, api.OccurrenceFailed, api.OccurrenceSkipped, api.OccurrenceExpired,
		api.OccurrenceMissed, api.OccurrenceShadow}
)

// gauges are read from the ledger, so a restart forgets nothing. refresh reads, Collect tells what was read.
type gauges struct {
	meter  *ledger.Meter
	engine Engine
	tasks  Tasks // nil: none
	clock  func() time.Time

	reading sync.Mutex // held while the ledger is read, so that it is read once
	at      time.Time  // of the last reading; guarded by reading

	mu       sync.Mutex // guards what follows, and is never held while something is waited for
	counts   ledger.Counts
	up       bool
	policies []api.PolicyStatus
	calls    []api.Task
}

func newGauges(meter *ledger.Meter, engine Engine, tasks Tasks, clock func() time.Time) *gauges {
	return &gauges{meter: meter, engine: engine, tasks: tasks, clock: clock}
}

// refresh reads the ledger unless that was done a moment ago.
func (g *gauges) refresh(ctx context.Context) error {
	g.reading.Lock()
	defer g.reading.Unlock()
	if now := g.clock(); !g.at.IsZero() && !now.Before(g.at) && now.Sub(g.at) < gaugesFor {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), gaugesWithin) // the next scrape shares the reading
	defer cancel()
	counts, err := g.meter.Read(ctx)
	up := err == nil
	var policies []api.PolicyStatus
	var calls []api.Task
	if up {
		policies, err = g.engine.Policies(ctx)
	}
	if up && err == nil && g.tasks != nil {
		calls, err = g.tasks.Tasks(ctx)
	}
	g.at = g.clock()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.counts, g.up, g.policies, g.calls = counts, up, policies, calls
	return err
}

// Describe names every gauge.
func (g *gauges) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range allDescs {
		ch <- d
	}
}

// Collect tells what refresh has read.
func (g *gauges) Collect(ch chan<- prometheus.Metric) {
	g.mu.Lock()
	counts, up, policies, calls := g.counts, g.up, g.policies, g.calls
	g.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(descUp, truth(up))
	if !up {
		return
	}
	collectRuns(ch, counts, policies)
	collectSchedules(ch, counts)
	for _, p := range policies {
		if p.NextDue != nil {
			gauge(descNext, seconds(*p.NextDue), p.Policy, p.Stage)
		}
		gauge(descWell, truth(p.Well), p.Policy, p.Stage)
		gauge(descPaused, truth(p.Paused), p.Policy, p.Stage)
	}
	for _, t := range calls {
		for state, n := range map[string]int64{api.CallWaiting: t.Waiting, api.CallRunning: t.Running, api.CallRetrying: t.Retrying, api.CallFailed: t.Failed} {
			gauge(descCalls, float64(n), t.Name, state)
		}
		gauge(descTaskWell, truth(t.Well), t.Name)
	}
}

func collectRuns(ch chan<- prometheus.Metric, counts ledger.Counts, policies []api.PolicyStatus) {
	metric := func(d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, labels...)
	}
	for _, p := range policies {
		for _, cause := range causes {
			for _, state := range []ledger.State{ledger.Succeeded, ledger.Failed} {
				s := ledger.RunSeries{Policy: p.Policy, Stage: p.Stage, Mode: p.Mode, Cause: cause, State: state}
				if counts.Runs[s] == 0 {
					metric(descEnded, prometheus.CounterValue, 0, s.Policy, s.Stage, s.Mode, s.Cause, string(s.State))
				}
			}
		}
	}
	for s, n := range counts.Runs {
		if s.State.Ended() {
			metric(descEnded, prometheus.CounterValue, float64(n), s.Policy, s.Stage, s.Mode, s.Cause, string(s.State))
		} else {
			metric(descOpen, prometheus.GaugeValue, float64(n), s.Policy, s.Stage, s.Mode, s.Cause, string(s.State))
		}
	}
	metric(descWaiting, prometheus.GaugeValue, float64(counts.Undispatched))
	for s, n := range counts.Rows {
		metric(descRows, prometheus.CounterValue, float64(n), s.Policy, s.Stage, s.Mode, s.Outcome)
	}
	for s, n := range counts.Cascaded {
		metric(descCascaded, prometheus.CounterValue, float64(n), s.Policy, s.Stage, s.Mode)
	}
	for s, at := range counts.LastSuccess {
		metric(descSuccess, prometheus.GaugeValue, seconds(at), s.Policy, s.Stage)
	}
}

func collectSchedules(ch chan<- prometheus.Metric, counts ledger.Counts) {
	metric := func(d *prometheus.Desc, t prometheus.ValueType, v float64, k ledger.StageSeries, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, t, v, append([]string{k.Policy, k.Stage}, labels...)...)
	}
	for k, s := range counts.Schedules {
		n := func(state string) float64 {
			return float64(counts.Occurrences[ledger.OccurrenceSeries{Policy: k.Policy, Stage: k.Stage, State: state}])
		}
		for _, state := range occurrenceStates {
			metric(descOccurred, prometheus.CounterValue, n(state), k, state)
		}
		metric(descPending, prometheus.GaugeValue, n(api.OccurrencePending), k)
		metric(descTicked, prometheus.GaugeValue, seconds(s.Ticked), k)
		switch {
		case s.OldestAt.IsZero(): // nobody looked: no age is not an age of 0
		case s.OldestDue.IsZero():
			metric(descLag, prometheus.GaugeValue, 0, k)
		default:
			metric(descLag, prometheus.GaugeValue, max(0, counts.Now.Sub(s.OldestDue).Seconds()), k)
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds is an instant as Prometheus has them.
func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

package riverq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
)

// pulse remembers when each queue was last looked at with success. River logs a
// failed look and goes on; only the absence of good ones tells.
type pulse struct {
	river.HookDefaults
	patience time.Duration // without a good look, before it counts as dead
	slots    map[string]int

	mu      sync.Mutex
	running bool
	why     string               // why it is not running
	seen    map[string]time.Time // last good look, or a moment with a slot to spare
	taken   map[string]int
	inHand  map[int64]time.Time // jobs that this process has or had: when it was done with them, zero before
	beaten  time.Time           // last sign of life that the database took
	silence time.Duration
	count   atomic.Int64 // of beats
}

func newPulse(o Options) *pulse {
	return &pulse{
		patience: max(10*time.Second, 20*o.PollInterval),
		slots:    map[string]int{Cleanup: o.Workers - o.Reserved, Interactive: o.Reserved},
		why:      "it was not started",
		seen:     map[string]time.Time{},
		taken:    map[string]int{},
		inHand:   map[int64]time.Time{},
		silence:  deadBeats * o.Beat,
	}
}

// MetricEmit hears of each good look at a queue from River.
func (p *pulse) MetricEmit(_ context.Context, params *rivertype.HookMetricEmitParams) {
	if m, ok := params.Metric.(*rivertype.JobGetAvailableDurationMetric); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.seen[m.Queue] = time.Now()
	}
}

func (p *pulse) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = true
	for queue := range p.slots {
		p.seen[queue] = time.Now()
	}
}

func (p *pulse) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.running, p.why = false, "it was stopped"
}

func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.beaten = time.Now()
	p.count.Add(1)
}

// take occupies a slot for a job until the function that it returns is called.
// A queue with none to spare is not looked at, and that is no fault.
func (p *pulse) take(queue string, job int64) func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken[queue]++
	p.inHand[job] = time.Time{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.taken[queue]--
		p.seen[queue], p.inHand[job] = time.Now(), time.Now()
	}
}

// jobs are the jobs that this process has in hand, as JSON. River may still be
// writing down the result of one that was done lately.
func (p *pulse) jobs(now time.Time) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := []int64{}
	for id, done := range p.inHand {
		if !done.IsZero() && now.Sub(done) > 2*p.silence {
			delete(p.inHand, id)
			continue
		}
		ids = append(ids, id)
	}
	text, err := json.Marshal(ids)
	if err != nil {
		panic(err) // numbers
	}
	return string(text)
}

// Alive returns why the client is not fetching: it was not started, has stopped,
// or has not reached the database for a while. nil when all slots are taken.
func (c *Client) Alive() error { return c.pulse.alive(time.Now()) }

func (p *pulse) alive(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running {
		return fmt.Errorf("queue: %s", p.why)
	}
	var errs []error
	for _, queue := range []string{Cleanup, Interactive} {
		if silent := now.Sub(p.seen[queue]); p.taken[queue] < p.slots[queue] && silent > p.patience {
			errs = append(errs, fmt.Errorf("queue: nothing could be fetched from %q for %s", queue, silent.Round(time.Second)))
		}
	}
	if silent := now.Sub(p.beaten); silent > p.silence {
		errs = append(errs, fmt.Errorf("queue: no sign of life could be given for %s; others take this process's jobs", silent.Round(time.Second)))
	}
	return errors.Join(errs...)
}

// River alone would leave the jobs of a killed process alone until their timeout
// is over. So each process says in a table of ours, beside River's, that it
// lives, and takes the jobs of those that do not say so any more. The attempt
// counts: it may be the batch that kills.
//
// A process that was only frozen may still hold what is taken from it, and wake.
// Two attempts at one batch are for its receipt to tell apart.

// text is a statement on PostgreSQL and on SQLite, both with the database's own
// clock. % before a table's name is the schema, on SQLite the prefix of ours.
type text struct{ postgres, sqlite string }

var (
	makeAlive = text{
		`CREATE TABLE IF NOT EXISTS %queue_client (id text COLLATE "C" PRIMARY KEY, seen timestamptz NOT NULL)`,
		`CREATE TABLE IF NOT EXISTS %queue_client (id TEXT PRIMARY KEY, seen TEXT NOT NULL)`,
	}
	sayAlive = text{
		`INSERT INTO %queue_client (id, seen) VALUES ($1, now()) ON CONFLICT (id) DO UPDATE SET seen = now()`,
		`INSERT INTO %queue_client (id, seen) VALUES ($1, datetime('now', 'subsec')) ON CONFLICT (id) DO UPDATE SET seen = datetime('now', 'subsec')`,
	}
	// A job that was taken just now is left alone too: its process may be new.
	takeFromDead = text{
		`UPDATE %river_job AS j SET state = 'available', scheduled_at = now()
			WHERE state = 'running' AND kind IN ('curfew_batch', 'curfew_task') AND attempted_at < now() - make_interval(secs => $1)
			AND NOT EXISTS (SELECT 1 FROM %queue_client AS c
				WHERE c.id = j.attempted_by[cardinality(j.attempted_by)] AND c.seen >= now() - make_interval(secs => $1))`,
		`UPDATE %river_job AS j SET state = 'available', scheduled_at = datetime('now', 'subsec')
			WHERE state = 'running' AND kind IN ('curfew_batch', 'curfew_task') AND attempted_at < datetime('now', 'subsec', -$1 || ' seconds')
			AND NOT EXISTS (SELECT 1 FROM %queue_client AS c
				WHERE c.id = json_extract(j.attempted_by, '$[#-1]') AND c.seen >= datetime('now', 'subsec', -$1 || ' seconds'))`,
	}
	// A job that counts as this process's and is not in its hand: the answer to a
	// fetch was lost with its connection, or River could not write down a result
	// and gave up, which takes it seconds.
	takeLost = text{
		`UPDATE %river_job SET state = 'available', scheduled_at = now()
			WHERE state = 'running' AND kind IN ('curfew_batch', 'curfew_task') AND attempted_at < now() - make_interval(secs => $1)
			AND attempted_by[cardinality(attempted_by)] = $2 AND id NOT IN (SELECT value::bigint FROM json_array_elements_text($3::json))`,
		`UPDATE %river_job SET state = 'available', scheduled_at = datetime('now', 'subsec')
			WHERE state = 'running' AND kind IN ('curfew_batch', 'curfew_task') AND attempted_at < datetime('now', 'subsec', -$1 || ' seconds')
			AND json_extract(attempted_by, '$[#-1]') = $2 AND id NOT IN (SELECT value FROM json_each($3))`,
	}
	// What is due again. River's leader does that too, but a leader may be dead,
	// or alive and unable to, and nobody would notice.
	wake = text{
		`UPDATE %river_job SET state = 'available'
			WHERE state IN ('retryable', 'scheduled') AND kind IN ('curfew_batch', 'curfew_task') AND scheduled_at <= now()`,
		`UPDATE %river_job SET state = 'available'
			WHERE state IN ('retryable', 'scheduled') AND kind IN ('curfew_batch', 'curfew_task') AND scheduled_at <= datetime('now', 'subsec')`,
	}
	forgetDead = text{
		`DELETE FROM %queue_client WHERE seen < now() - interval '1 day'`,
		`DELETE FROM %queue_client WHERE seen < datetime('now', 'subsec', '-1 day')`,
	}
)

// on returns the statement for an engine.
func (t text) on(sqlite bool, schema string) string {
	if sqlite {
		return strings.NewReplacer("%river_", "river_", "%queue_", "curfew_queue_").Replace(t.sqlite)
	}
	if schema != "" {
		schema += "."
	}
	return strings.ReplaceAll(t.postgres, "%", schema)
}

func (c *Client) exec(ctx context.Context, t text, args ...any) (int64, error) {
	res, err := c.o.DB.ExecContext(ctx, t.on(c.o.SQLite, c.o.Schema), args...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (c *Client) beat(ctx context.Context) error {
	if _, err := c.exec(ctx, sayAlive, c.id); err != nil {
		return err
	}
	c.pulse.beat()
	return nil
}

// reclaim gives the jobs of dead processes, and those that this one lost, back to
// their queues.
func (c *Client) reclaim(ctx context.Context) error {
	silence := c.pulse.silence.Seconds()
	dead, err := c.exec(ctx, takeFromDead, silence)
	if err != nil {
		return err
	}
	lost, err := c.exec(ctx, takeLost, silence, c.id, c.pulse.jobs(time.Now()))
	if dead+lost > 0 {
		c.log.WarnContext(ctx, "queue_jobs_reclaimed", "of_the_dead", dead, "lost", lost)
	}
	return err
}

// wake makes available what is due again.
func (c *Client) wake(ctx context.Context) error {
	_, err := c.exec(ctx, wake)
	return err
}

func (c *Client) forget(ctx context.Context) error {
	_, err := c.exec(ctx, forgetDead)
	return err
}

// beatPatience is how long a beat waits for a busy database, as long as SQLite
// lets a writer wait: to give up sooner would be to look dead.
const beatPatience = 10 * time.Second

// keepBeating says every beat that the process lives, until the function that it
// returns is called.
func (c *Client) keepBeating(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(c.o.Beat)
		defer tick.Stop()
		for {
			once, cancel := context.WithTimeout(ctx, max(c.o.Beat, beatPatience))
			err := c.beat(once)
			if err == nil {
				err = errors.Join(c.reclaim(once), c.wake(once), c.forget(once))
			}
			if err != nil && ctx.Err() == nil {
				c.log.WarnContext(ctx, "queue_beat_failed", "err", err)
			}
			cancel()
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return func() { cancel(); <-done }
}

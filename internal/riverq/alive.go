package riverq

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
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
	patience time.Duration  // without a good look, before it counts as dead
	slots    map[string]int // by queue

	mu      sync.Mutex
	running bool
	why     string               // why it is not running
	seen    map[string]time.Time // last good look, or a moment with a slot to spare
	taken   map[string]int
	inHand  map[int64][]*hand // jobs that this process has or had, by id: one that hangs may have a second attempt beside it
	beaten  time.Time         // last sign of life that the database took
	silent  time.Time         // end of the last time without one that was long enough to look dead
	silence time.Duration
	count   atomic.Int64 // of beats
	looks   atomic.Int64 // at queues
}

func newPulse(o Options, slots map[string]int) *pulse {
	return &pulse{
		patience: max(10*time.Second, 20*slowly*o.PollInterval),
		slots:    slots,
		why:      "it was not started",
		seen:     map[string]time.Time{},
		taken:    map[string]int{},
		inHand:   map[int64][]*hand{},
		silence:  deadBeats * o.Beat,
	}
}

// MetricEmit hears of each good look at a queue from River.
func (p *pulse) MetricEmit(_ context.Context, params *rivertype.HookMetricEmitParams) {
	if m, ok := params.Metric.(*rivertype.JobGetAvailableDurationMetric); ok {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.seen[m.Queue] = time.Now()
		p.looks.Add(1)
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
	now := time.Now()
	if now.Sub(p.beaten) > p.silence/2 {
		p.silent = now
	}
	p.beaten = now
	p.count.Add(1)
}

// hold is one attempt at a job.
type hold struct {
	job     int64
	attempt int
}

// hand is a job in this process's hand, or one that it was done with lately.
type hand struct {
	p     *pulse
	queue string
	hold
	since time.Time
	limit time.Duration // after which it is taken away
	done  time.Time     // zero before
	freed bool          // its slot was given to another, because it hangs
}

// take occupies a slot for a job until release is called. A queue with none to
// spare is not looked at, and that is no fault.
func (p *pulse) take(queue string, h hold, limit time.Duration) *hand {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken[queue]++
	taken := &hand{p: p, queue: queue, hold: h, since: time.Now(), limit: limit}
	p.inHand[h.job] = append(p.inHand[h.job], taken)
	return taken
}

func (h *hand) release() {
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	if !h.freed {
		h.p.taken[h.queue]--
	}
	h.p.seen[h.queue], h.done = time.Now(), time.Now()
}

// doubtful reports whether another attempt may have the job by now.
func (h *hand) doubtful() bool {
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	now := time.Now()
	return h.freed || now.Sub(h.since) > h.limit ||
		h.p.silent.After(h.since) || now.Sub(h.p.beaten) > h.p.silence/2
}

// busy reports whether anything executes.
func (p *pulse) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.taken {
		if n > 0 {
			return true
		}
	}
	return false
}

// free gives the slot of a job that hangs to another.
func (p *pulse) free(job int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, h := range p.inHand[job] {
		if h.done.IsZero() && !h.freed {
			h.freed = true
			p.taken[h.queue]--
			return
		}
	}
}

// stuck hears from River of an attempt that does not return. Its slot is given to
// another, and its job is taken away at the next beat.
func (c *Client) stuck(ctx context.Context, p river.JobStuckHandlerParams) river.JobStuckHandlerResult {
	c.log.WarnContext(ctx, "queue_attempt_hangs", "job", p.ID, "kind", p.Kind, "hanging", p.TotalStuckJobs)
	c.pulse.free(p.ID)
	return river.JobStuckHandlerResult{AddWorkerSlot: true}
}

// jobs are the jobs that this process has in hand, as JSON, and those of them that
// have outlived their limit. River may still be writing down the result of one that
// was done lately.
func (p *pulse) jobs(now time.Time) (text string, outlived []hold) {
	p.mu.Lock()
	defer p.mu.Unlock()
	ids := []int64{}
	for id, hands := range p.inHand {
		hands = slices.DeleteFunc(hands, func(h *hand) bool { return !h.done.IsZero() && now.Sub(h.done) > 2*p.silence })
		if len(hands) == 0 {
			delete(p.inHand, id)
			continue
		}
		p.inHand[id] = hands
		ids = append(ids, id)
		for _, h := range hands {
			if h.done.IsZero() && now.Sub(h.since) > h.limit {
				outlived = append(outlived, h.hold)
			}
		}
	}
	b, err := json.Marshal(ids)
	if err != nil {
		panic(err) // numbers
	}
	return string(b), outlived
}

// Looks counts the looks at queues that found the database: whoever waits for what must not happen waits for some of them.
func (c *Client) Looks() int64 { return c.pulse.looks.Load() }

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
	for _, queue := range slices.Sorted(maps.Keys(p.slots)) {
		if silent := now.Sub(p.seen[queue]); p.taken[queue] < p.slots[queue] && silent > p.patience {
			errs = append(errs, fmt.Errorf("queue: nothing could be fetched from %q for %s", queue, silent.Round(time.Second)))
		}
	}
	if silent := now.Sub(p.beaten); silent > p.silence {
		errs = append(errs, fmt.Errorf("queue: no sign of life could be given for %s; others take this process's jobs", silent.Round(time.Second)))
	}
	return errors.Join(errs...)
}

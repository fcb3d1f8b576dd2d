// Package riverq is the queue: it carries the names of batches, and the calls of
// tasks, from the transaction that inserted them to a process that executes them,
// with River in the ledger's own database. It owns River's tables and one beside
// them, of processes that live.
//
// Its invariants: a batch that was inserted is handed to Execute again and again
// until Execute returns nil. No attempt is the last because a process died in it.
// A call that was inserted is handed to Do until Do returns nil, or it has used up
// its attempts, of which one in which its process died is one. Two attempts may run
// at once, when one process takes another for dead: that a batch counts once is for
// its receipt.
//
// A batch's job holds a run's id, a number and the retry numbers of its policy: no
// key, bound or error text of a batch goes into River's tables. A call's job is the
// call: its arguments, its errors and its result are kept there, until PruneCalls.
package riverq

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivertype"
)

// The queues. Work that nobody waits for never takes the slots of work that
// somebody does.
const (
	Cleanup     = "cleanup"
	Interactive = "interactive"
)

// Batch names a batch of a run, and says how often and when to try it.
type Batch struct {
	Run string
	Seq int64
	// Attempts are all the attempts, the first included. At least 1.
	Attempts int
	// The wait after attempt n is Backoff * Factor^(n-1), at most a day.
	Backoff time.Duration
	Factor  int
	Queue   string // Cleanup or Interactive; "" is Cleanup
}

// Options says whose queue to work, and with what.
type Options struct {
	// DB is where River's tables are; the client neither opens nor closes it.
	DB     *sql.DB
	SQLite bool
	Schema string // of River's tables on PostgreSQL; "" on SQLite

	// Workers is how many batches this process executes at once, Reserved how
	// many of them only for Interactive. 1 <= Reserved <= Workers; when they are
	// equal, this process leaves Cleanup to others. With Workers 0 the client only
	// inserts and cannot be started.
	Workers, Reserved int
	// Queues are further queues, with how many calls of each this process executes
	// at once, beside Workers.
	Queues map[string]int

	// Execute executes a batch. Attempts count from 1; last says that the policy
	// allows no more. nil ends the job, whatever became of the batch; an error
	// brings it back. An attempt above b.Attempts must execute nothing: the
	// earlier ones were used up without an answer, by processes that died or
	// could not write, and what is left to do is to say so in the ledger.
	//
	// When ctx is cancelled the process is stopping: return soon. That attempt
	// does not count, and the batch comes back at once.
	// nil: batches are left to other processes.
	Execute func(ctx context.Context, b Batch, attempt int, last bool) error

	// Tasks are the names of the tasks that this process can do. Calls of any other
	// are left alone, and take no slot.
	Tasks []string
	// Do does a call. nil ends the call with its output, which is JSON or nothing.
	// An error brings it back after its wait, or fails it for good when it was the
	// last attempt; ErrElsewhere, LaterError, PutOffError and FinalError say more.
	// What it returns after ctx has ended counts too, unless ctx was cancelled,
	// which says that the process is stopping: that attempt does not count.
	Do func(ctx context.Context, a Attempt) (output json.RawMessage, err error)

	// Died is called with a call that is about to fail for good because its processes
	// died or lost it, perhaps more than once: Do has had no word in that. May be nil.
	Died func(ctx context.Context, id int64, why string) error

	// Clock tells the time of everything that is due, waits, or has happened. nil:
	// the machine's, and the database's own in statements. What tells a process
	// that lives from one that is dead is real time in any case.
	Clock func() time.Time

	Logger       *slog.Logger  // default: none
	PollInterval time.Duration // how often each queue is looked at; default 50 ms
	JobTimeout   time.Duration // of one attempt; default 30 min
	// Beat is how often the process says that it lives. One that has said
	// nothing for six beats is dead: others take its jobs. Default 5 s.
	Beat time.Duration
	// ID names this process where River says who took a job. A random part is
	// appended, because two processes that share a name would vouch for each
	// other's life. At most 60 characters.
	ID string

	margin time.Duration // for tests: rescueMargin
}

// ErrElsewhere is what Execute and Do return for what this process cannot
// execute and another one can. It counts as no attempt.
var ErrElsewhere = errors.New("this process cannot execute it")

// LaterError is what Execute and Do return when the time has not come. It counts
// as no attempt.
type LaterError struct{ After time.Duration }

func (e *LaterError) Error() string { return "it is to be executed later" }

// ErrNotMigrated means that River's tables are missing or old: see Migrate.
var ErrNotMigrated = errors.New("the queue's tables are missing or old")

const (
	defaultPoll    = 50 * time.Millisecond
	defaultTimeout = 30 * time.Minute
	defaultBeat    = 5 * time.Second
	deadBeats      = 6

	// rescueMargin is how much longer than its timeout an attempt may run before
	// its job is taken away and its slot given to another. It is for what hangs in
	// a living process; the jobs of dead ones come back by the beat.
	rescueMargin = 5 * time.Minute
	cooldown     = time.Millisecond // between two looks at a queue, when jobs wait
	hardStop     = 10 * time.Second // for what was cancelled to return
	maxID        = 60

	// never keeps River's own rescue from our jobs: its leader discards those of
	// kinds that it does not know, and those whose attempts are used up without a
	// word. See alive.go for ours.
	never = 100 * 365 * 24 * time.Hour
	// slowly is how much less often a further queue is looked at than the two that
	// every process has: there may be many of them, and Wake and the database's
	// notifications say when there is something.
	slowly = 5
)

// Client works the queues. Safe for concurrent use.
type Client struct {
	o     Options
	id    string
	log   *slog.Logger
	river *river.Client[*sql.Tx]
	pulse *pulse
	woken woken
	held  atomic.Bool // fetches nothing
	told  sync.Map    // by job id: how long it is to be left alone, see PutOffError

	margin   time.Duration     // rescueMargin
	names    map[string]string // of queues, by River's
	notified notified
	// Of the goroutine that beats.
	suspects  map[hold]bool // what looked lost at the last beat
	pruned    time.Time
	pruneLeft int64 // what the last one removed: there may be more

	mu      sync.Mutex
	started bool
	stops   []func() // what Start started beside River; nil before Start
}

// New returns a client that works nothing yet. It does not touch the database.
func New(o Options) (*Client, error) {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.PollInterval = positive(o.PollInterval, defaultPoll)
	o.JobTimeout = positive(o.JobTimeout, defaultTimeout) // an endless attempt is never rescued
	o.Beat = positive(o.Beat, defaultBeat)
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	c := &Client{o: o, id: o.ID + "-" + strings.ToLower(rand.Text()[:12]), log: o.Logger, margin: positive(o.margin, rescueMargin)}
	slots := o.slots()
	c.pulse, c.woken, c.names = newPulse(o, slots), newWoken(slots), map[string]string{}
	for name := range o.Queues {
		c.names[QueueName(name)] = name
	}
	workers := river.NewWorkers()
	if o.Execute != nil {
		river.AddWorker(workers, &batchWorker{c: c})
	}
	for _, task := range o.Tasks {
		river.AddWorkerArgs(workers, callArgs{task: task}, &callWorker{c: c, task: task})
	}
	if o.Execute == nil && len(o.Tasks) == 0 {
		river.AddWorker(workers, river.WorkFunc(func(context.Context, *river.Job[none]) error { return nil })) // River will not start without
	}
	cfg := &river.Config{
		ID:                          c.id,
		Schema:                      o.Schema,
		Workers:                     workers,
		Logger:                      slog.New(newQuiet(o.Logger.Handler())),
		Hooks:                       []rivertype.Hook{c.pulse, &inserting{c: c}},
		FetchPollInterval:           o.PollInterval,
		FetchCooldown:               min(cooldown, o.PollInterval),
		FetchOnlyKnownKinds:         true, // a newer process's jobs wait for it
		SkipUnknownJobCheck:         true, // whoever inserts a call need not be able to do it
		JobTimeout:                  o.JobTimeout,
		JobStuckThreshold:           c.margin,
		JobStuckHandler:             c.stuck,
		RescueStuckJobsAfter:        never,
		CompletedJobRetentionPeriod: -1, // what goes, and when, is for us to say: see prune.go
		CancelledJobRetentionPeriod: -1,
		DiscardedJobRetentionPeriod: -1,
		ReindexerIndexNames:         []string{}, // REINDEX is the owner's business, and our role may not be it
	}
	if o.Clock != nil {
		cfg.Test.Time = clock(o.Clock)
	}
	if len(slots) > 0 {
		cfg.Queues = map[string]river.QueueConfig{}
		for queue, n := range slots {
			cfg.Queues[queue] = river.QueueConfig{MaxWorkers: n}
			if _, further := c.names[queue]; further {
				cfg.Queues[queue] = river.QueueConfig{MaxWorkers: n, FetchPollInterval: slowly * o.PollInterval}
			}
		}
	}
	var err error
	if o.SQLite {
		c.river, err = river.NewClient(waking{riversqlite.New(o.DB), c.woken, c}, cfg)
	} else {
		c.river, err = river.NewClient(waking{riverdatabasesql.New(o.DB), c.woken, c}, cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("queue: %w", err)
	}
	return c, nil
}

// none is a kind of which there are no jobs.
type none struct{}

func (none) Kind() string { return "curfew_nothing" }

// clock is Options.Clock as River asks for it.
type clock func() time.Time

func (c clock) Now() time.Time       { return c() }
func (c clock) NowOrNil() *time.Time { t := c(); return &t }

// now is the machine's time, or the clock's that was given.
func (c *Client) now() time.Time {
	if c.o.Clock != nil {
		return c.o.Clock()
	}
	return time.Now()
}

// slots are the queues that this process works, by River's names, with what it
// executes of each at once.
func (o *Options) slots() map[string]int {
	slots := map[string]int{}
	if o.Reserved > 0 {
		slots[Interactive] = o.Reserved
	}
	if o.Workers > o.Reserved {
		slots[Cleanup] = o.Workers - o.Reserved
	}
	for name, n := range o.Queues {
		slots[QueueName(name)] = n
	}
	return slots
}

func (o *Options) check() error {
	switch {
	case o.DB == nil:
		return errors.New("no database")
	case len(o.ID) > maxID:
		return fmt.Errorf("an id of %d characters, at most %d", len(o.ID), maxID)
	case o.Workers == 0 && o.Reserved == 0 && len(o.Queues) == 0:
		return nil // only inserts
	case o.Workers > 0 && o.Reserved < 1 || o.Reserved > o.Workers:
		return fmt.Errorf("%d workers, %d of them reserved: at least one, at most all of them", o.Workers, o.Reserved)
	case o.Execute == nil && o.Workers > o.Reserved:
		return errors.New("workers for batches and nothing to execute them")
	case o.Execute == nil && o.Do == nil:
		return errors.New("workers and nothing to execute")
	case o.Do == nil && len(o.Tasks) > 0:
		return errors.New("tasks and nothing to do them")
	}
	return errors.Join(o.checkTasks(), o.checkQueues())
}

func (o *Options) checkTasks() error {
	seen := map[string]bool{}
	for _, task := range o.Tasks {
		if !taskName.MatchString(task) {
			return fmt.Errorf("%q is no name of a task", task)
		}
		if seen[task] {
			return fmt.Errorf("task %q is there twice", task)
		}
		seen[task] = true
	}
	return nil
}

func (o *Options) checkQueues() error {
	seen := map[string]string{Cleanup: Cleanup, Interactive: Interactive}
	for name, n := range o.Queues {
		if err := checkQueue(name); err != nil {
			return err
		}
		if n < 1 {
			return fmt.Errorf("queue %q: %d workers", name, n)
		}
		if other, ok := seen[QueueName(name)]; ok {
			return fmt.Errorf("queue %q is the same as queue %q", name, other)
		}
		seen[QueueName(name)] = name
	}
	return nil
}

func positive(d, otherwise time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return otherwise
}

// Start begins to fetch and execute. ctx bounds the start only: it is Stop that
// stops. ErrNotMigrated without Migrate. A client starts once.
func (c *Client) Start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.started:
		return errors.New("start the queue: it was started before")
	case c.o.Workers == 0 && len(c.o.Queues) == 0:
		return errors.New("start the queue: this client only inserts")
	}
	if err := migrated(ctx, c.o.DB, c.o.SQLite, c.o.Schema); err != nil {
		return fmt.Errorf("start the queue: %w", err)
	}
	// The first sign of life comes before the first job.
	if err := c.beat(ctx); err != nil {
		return fmt.Errorf("start the queue: %w", err)
	}
	// A cancelled ctx would end the attempts, and they would count.
	background := context.WithoutCancel(ctx)
	if err := c.river.Start(background); err != nil {
		return fmt.Errorf("start the queue: %w", err)
	}
	c.started = true
	c.pulse.start()
	c.stops = []func(){c.keepBeating(background), c.keepListening(background)}
	return nil
}

// Stop fetches no more and waits for what is executing. When ctx ends first, it
// cancels what still executes and waits a little longer. Idempotent. A nil error
// means that nothing executes any more; after any other, the process had better
// end, and what it still held comes back when it has been silent for a while.
func (c *Client) Stop(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stops == nil {
		return nil
	}
	c.pulse.stop()
	err := c.river.Stop(ctx)
	if err != nil {
		hard, cancel := context.WithTimeout(context.WithoutCancel(ctx), hardStop)
		defer cancel()
		err = c.river.StopAndCancel(hard)
	}
	// It beat until here: what executes during a long stop is not dead.
	for _, stop := range c.stops {
		stop()
	}
	c.stops = nil
	if err != nil {
		return fmt.Errorf("stop the queue: something does not return: %w", err)
	}
	return nil
}

// InsertTx puts batches into their queues when tx commits, which is a
// transaction on the client's own database. A batch that is in a queue already,
// or executing, stays as it is: so whoever takes a run over may insert all its
// unsettled batches.
func (c *Client) InsertTx(ctx context.Context, tx *sql.Tx, batches []Batch) error {
	if len(batches) == 0 {
		return nil
	}
	params := make([]river.InsertManyParams, len(batches))
	for i, b := range batches {
		if err := b.check(); err != nil {
			return fmt.Errorf("enqueue batch %d of run %s: %w", b.Seq, b.Run, err)
		}
		params[i] = river.InsertManyParams{Args: batchArgs{Run: b.Run, Seq: b.Seq, Attempts: b.Attempts, Backoff: b.Backoff, Factor: b.Factor},
			InsertOpts: &river.InsertOpts{Queue: b.queue()}}
	}
	if _, err := c.river.InsertManyTx(ctx, tx, params); err != nil {
		return fmt.Errorf("enqueue %d batches of run %s: %w", len(batches), batches[0].Run, err)
	}
	return nil
}

func (b *Batch) queue() string {
	if b.Queue == "" {
		return Cleanup
	}
	return b.Queue
}

func (b *Batch) check() error {
	switch {
	case b.Run == "" || b.Seq < 1:
		return errors.New("it has no name")
	case b.Attempts < 1 || b.Backoff < 0 || b.Factor < 1:
		return fmt.Errorf("%d attempts, backoff %s, factor %d", b.Attempts, b.Backoff, b.Factor)
	case b.queue() != Cleanup && b.queue() != Interactive:
		return fmt.Errorf("no queue %q", b.Queue)
	}
	return nil
}

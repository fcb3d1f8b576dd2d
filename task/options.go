package task

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Options are the settings of a task. The zero value of each is its default.
type Options struct {
	Description string // in words; shown in lists

	// Cron makes the task periodic: five fields as in crontab(5), or @daily and
	// its kin. The environment may override it, or give one to a task without.
	Cron        string
	Timezone    string        // the IANA zone of Cron; default UTC
	StartWithin time.Duration // how late a scheduled call may start; default an hour

	// Overlap says what a scheduled call does while another of the task is in its
	// way: "skip" leaves it out, "queue" starts it afterwards, within StartWithin.
	// Under both no two calls of the task are executed at once, so that a second
	// attempt waits too. "allow" lets them. Default: skip; with a Concurrency of
	// more than 1, allow.
	Overlap string
	// CatchUp says what makes up for instants at which no process was there:
	// "latest" (the default) is one call for the last of them, "all" one each,
	// "none" nothing.
	CatchUp string

	Retry    Retry         // of a call that fails; a field at zero is that of DefaultRetry
	Timeout  time.Duration // of one attempt, whose context then ends; default ten minutes
	Priority int           // from 1, which goes first and is the default, to 4
	Queue    string        // the queue of the task's calls, by a name that the engine knows; "" is the common one

	// Concurrency is how many calls of the task are executed at once, by all
	// processes together; 0 sets no bound of its own. Such a task has a queue of
	// its own, so that it does not keep others waiting.
	Concurrency int
	// Lock names a lock: of all tasks and policies that name it, one is executed at
	// a time.
	Lock string
}

// The defaults of [Options].
const (
	DefaultTimezone    = "UTC"
	DefaultStartWithin = time.Hour
	DefaultTimeout     = 10 * time.Minute
	DefaultPriority    = 1
)

// The bounds of [Options].
const (
	minStartWithin = time.Minute
	maxStartWithin = 31 * 24 * time.Hour
	maxTimeout     = 7 * 24 * time.Hour
	maxConcurrency = 1000
)

// What a task does about calls in its way, and about missed ones.
const (
	Skip  = "skip"  // Overlap: leave the instant out
	Queue = "queue" // Overlap: start it afterwards
	Allow = "allow" // Overlap: let calls be executed side by side

	Latest = "latest" // CatchUp: one call for the last instant that was missed
	All    = "all"    // CatchUp: one call for each
	None   = "none"   // CatchUp: no call
)

// WithDefaults returns the options with every setting that is left out at its
// default.
func (o Options) WithDefaults() Options {
	overlap := Skip
	if o.Concurrency > 1 {
		overlap = Allow
	}
	o.Timezone = cmp.Or(o.Timezone, DefaultTimezone)
	o.StartWithin = cmp.Or(o.StartWithin, DefaultStartWithin)
	o.Overlap = cmp.Or(o.Overlap, overlap)
	o.CatchUp = cmp.Or(o.CatchUp, Latest)
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	o.Priority = cmp.Or(o.Priority, DefaultPriority)
	r := DefaultRetry()
	o.Retry.Attempts = cmp.Or(o.Retry.Attempts, r.Attempts)
	o.Retry.Backoff = cmp.Or(o.Retry.Backoff, r.Backoff)
	o.Retry.Factor = cmp.Or(o.Retry.Factor, r.Factor)
	return o
}

// Check returns everything that is wrong with the options, nil when nothing is.
// Of a cron it sees the number of fields; the engine reads it when it starts.
func (o Options) Check() error {
	o = o.WithDefaults()
	var errs []error
	bad := func(setting, format string, args ...any) {
		errs = append(errs, fmt.Errorf(setting+": "+format, args...))
	}
	if c := o.Cron; c != "" && !strings.HasPrefix(c, "@") && len(strings.Fields(c)) != 5 {
		bad("Cron", "%q has %d fields; write minute, hour, day of month, month and day of week, for example 0 2 * * *", c, len(strings.Fields(c)))
	}
	if _, err := time.LoadLocation(o.Timezone); err != nil || o.Timezone == "Local" {
		bad("Timezone", "%q is no IANA time zone; write for example Europe/Berlin", o.Timezone)
	}
	if o.StartWithin < minStartWithin || o.StartWithin > maxStartWithin {
		bad("StartWithin", "%s; it must be from %s to %s", o.StartWithin, minStartWithin, maxStartWithin)
	}
	if !slices.Contains([]string{Skip, Queue, Allow}, o.Overlap) {
		bad("Overlap", "there is no %q; write skip, queue or allow", o.Overlap)
	} else if o.Overlap != Allow && o.Concurrency > 1 {
		bad("Overlap", "%s lets one call be executed at a time, and Concurrency %d; leave one of them out", o.Overlap, o.Concurrency)
	}
	if !slices.Contains([]string{Latest, All, None}, o.CatchUp) {
		bad("CatchUp", "there is no %q; write latest, all or none", o.CatchUp)
	}
	if err := o.Retry.check(); err != nil {
		bad("Retry", "%w", err)
	}
	if o.Timeout < time.Millisecond || o.Timeout > maxTimeout {
		bad("Timeout", "%s; it must be from 1ms to %s", o.Timeout, maxTimeout)
	}
	if o.Priority < 1 || o.Priority > 4 {
		bad("Priority", "%d; it must be from 1, which goes first, to 4", o.Priority)
	}
	if o.Concurrency < 0 || o.Concurrency > maxConcurrency {
		bad("Concurrency", "%d; it must be from 1 to %d, or 0 for no bound of its own", o.Concurrency, maxConcurrency)
	}
	if o.Queue != "" && !isQueue(o.Queue) {
		bad("Queue", "%q is no name of a queue; use lower-case letters and digits, with single _ and - between them", o.Queue)
	}
	if o.Queue != "" && o.Concurrency > 0 {
		bad("Queue", "a task with a Concurrency has a queue of its own; leave one of them out")
	}
	if o.Lock != "" {
		if err := CheckName(o.Lock); err != nil {
			bad("Lock", "%w", err)
		}
	}
	return errors.Join(errs...)
}

const maxName = 100

// CheckName accepts what may name a task: letters, digits, _, - and ., a letter
// first, at most 100.
func CheckName(name string) error {
	letter := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
	bad := name == "" || len(name) > maxName || !letter(name[0])
	for i := 0; i < len(name) && !bad; i++ {
		c := name[i]
		bad = !letter(c) && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.'
	}
	if bad {
		return fmt.Errorf("%q is not a name; use a letter, then letters, digits, _, - and ., at most %d", name, maxName)
	}
	return nil
}

// isQueue reports whether the queue's own rules allow the name.
func isQueue(name string) bool {
	if len(name) > 63 {
		return false
	}
	apart := true // nothing, or a separator, came before
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			apart = false
		case (c == '_' || c == '-') && !apart:
			apart = true
		default:
			return false
		}
	}
	return !apart
}

// Retry says how often and how patiently a failed call is tried again.
type Retry struct {
	Attempts int           // the first one included
	Backoff  time.Duration // the wait before the second
	Factor   int           // by what each further wait is longer
}

// DefaultRetry is five attempts, with waits of 10 s, 100 s, 1000 s and 10000 s
// between them.
func DefaultRetry() Retry { return Retry{Attempts: 5, Backoff: 10 * time.Second, Factor: 10} }

// MaxWait is the longest wait between two attempts.
const MaxWait = 24 * time.Hour

// Wait is how long after its attempt of that number, from 1, has failed a call is
// tried again: Backoff times Factor to the power of attempt-1, at most [MaxWait].
func (r Retry) Wait(attempt int) time.Duration {
	wait := min(max(r.Backoff, 0), MaxWait)
	if r.Factor <= 1 || wait == 0 {
		return wait
	}
	for ; attempt > 1 && wait < MaxWait; attempt-- {
		if wait > math.MaxInt64/time.Duration(r.Factor) {
			return MaxWait
		}
		wait *= time.Duration(r.Factor)
	}
	return min(wait, MaxWait)
}

func (r Retry) check() error {
	switch {
	case r.Attempts < 1 || r.Attempts > 100:
		return fmt.Errorf("%d attempts; it must be from 1 to 100", r.Attempts)
	case r.Backoff < time.Millisecond || r.Backoff > 24*time.Hour:
		return fmt.Errorf("a backoff of %s; it must be from 1ms to 24h", r.Backoff)
	case r.Factor < 1 || r.Factor > 100:
		return fmt.Errorf("a factor of %d; it must be from 1 to 100", r.Factor)
	}
	return nil
}

package riverq

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
)

// Call is one piece of work of a task: what is to be done, when, and how often to
// try it.
type Call struct {
	Task      string          // the name: letters, digits and _ - . , a letter first
	Args      json.RawMessage // JSON; nil is null
	Argv      []string        // words added to a command
	Run       string          // the ledger's run of a periodic call, or ""
	Scheduled time.Time       // the instant of a periodic call, else zero
	Cause     string
	// Key: while a call of the task with this key is open (waiting, retrying,
	// running), there is no second. "" for none. A call has a key, or a run, or
	// neither: a run has one open call in any case.
	Key      string
	Queue    string    // "" is Interactive
	Priority int       // 1 (first) to 4; 0 is 1
	At       time.Time // not before; zero: at once
	Attempts int       // all of them, the first included. At least 1.
	// The wait after attempt n is Backoff * Factor^(n-1), at most a day.
	Backoff time.Duration
	Factor  int
	Timeout time.Duration // of one attempt; > 0
}

// Deferred says what became of a call that was deferred.
type Deferred struct {
	ID int64
	// Duplicate: an open call had the key or the run already. ID is that one's.
	Duplicate bool
}

const (
	kindPrefix = "task:"
	maxArgs    = 1 << 20 // of Args and Argv, together
	maxKey     = 500
	maxCause   = 100
	// soon is how long before its time a call is made available: as long as River's
	// own steps from scheduled to available are apart. It is fetched when it is due.
	soon = 5 * time.Second
)

var taskName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,99}$`)

// callArgs is what a call's job holds. The rest of the call is in River's columns.
type callArgs struct {
	task string

	Args      json.RawMessage `json:"args,omitempty"`
	Argv      []string        `json:"argv,omitempty"`
	Run       string          `json:"run,omitempty"`
	Scheduled string          `json:"scheduled,omitempty"` // RFC 3339, microseconds
	Key       string          `json:"key,omitempty"`
	Cause     string          `json:"cause,omitempty"`
	Backoff   time.Duration   `json:"backoff_ns,omitempty"`
	Factor    int             `json:"factor,omitempty"`
	Timeout   time.Duration   `json:"timeout_ns,omitempty"`
}

func (a callArgs) Kind() string { return kindPrefix + a.task }

const scheduledFormat = "2006-01-02T15:04:05.000000Z"

func argsOf(c *Call) callArgs {
	a := callArgs{task: c.Task, Args: c.Args, Argv: c.Argv, Run: c.Run, Key: c.Key, Cause: c.Cause,
		Backoff: c.Backoff, Factor: c.Factor, Timeout: c.Timeout}
	if !c.Scheduled.IsZero() {
		a.Scheduled = c.Scheduled.UTC().Format(scheduledFormat)
	}
	return a
}

// call is the call of a job, but for what is in River's columns.
func (a *callArgs) call(task string) (Call, error) {
	c := Call{Task: task, Args: a.Args, Argv: a.Argv, Run: a.Run, Key: a.Key, Cause: a.Cause,
		Backoff: a.Backoff, Factor: max(1, a.Factor), Timeout: a.Timeout}
	if a.Scheduled != "" {
		at, err := time.Parse(time.RFC3339Nano, a.Scheduled)
		if err != nil {
			return Call{}, fmt.Errorf("the instant of a call: %w", err)
		}
		c.Scheduled = at.UTC()
	}
	return c, nil
}

// unique is what no two open calls of a task have in common, or "". SQL that inserts
// calls hashes the same text.
func (a *callArgs) unique() string {
	switch {
	case a.Key != "":
		return a.Kind() + "\nkey:" + a.Key
	case a.Run != "":
		return a.Kind() + "\nrun:" + a.Run
	}
	return ""
}

// uniqueKey is what River's unique index has of it, or nil.
func (a *callArgs) uniqueKey() []byte {
	u := a.unique()
	if u == "" {
		return nil
	}
	hash := sha256.Sum256([]byte(u))
	return hash[:]
}

// uniqueStates are those of open calls, as bits that River reads.
const uniqueStates = 0b11110001

// inserting completes a call on its way into River's table.
type inserting struct {
	river.HookDefaults
	c *Client
}

func (h *inserting) InsertBegin(_ context.Context, p *rivertype.JobInsertParams) error {
	a, ok := p.Args.(callArgs)
	if !ok {
		return nil
	}
	if key := a.uniqueKey(); key != nil {
		p.UniqueKey, p.UniqueStates = key, uniqueStates
	}
	if p.State == rivertype.JobStateScheduled && p.ScheduledAt.Sub(h.c.now()) <= soon {
		p.State = rivertype.JobStateAvailable
	}
	return nil
}

// DeferTx puts calls into their queues when tx commits, which is a transaction on
// the client's own database and the caller's to end. What it returns is in the
// order of the calls. A call of which an open one has the key, or the run, is not
// inserted. An error that the database did not make leaves tx as it was.
func (c *Client) DeferTx(ctx context.Context, tx *sql.Tx, calls []Call) ([]Deferred, error) {
	if len(calls) == 0 {
		return nil, nil
	}
	var params []river.InsertManyParams
	place := make([]int, len(calls)) // of each call in params
	first := map[string]int{}        // by what is unique: its place
	var queues []string
	for i := range calls {
		k := &calls[i]
		if err := k.check(); err != nil {
			return nil, fmt.Errorf("defer a call of task %q: %w", k.Task, err)
		}
		a := argsOf(k)
		u := a.unique()
		if at, ok := first[u]; ok && u != "" {
			place[i] = at
			continue
		}
		place[i] = len(params)
		first[u] = place[i]
		queue := QueueName(k.Queue)
		params = append(params, river.InsertManyParams{Args: a, InsertOpts: &river.InsertOpts{
			Queue: queue, Priority: max(1, k.Priority), MaxAttempts: k.Attempts, ScheduledAt: k.At}})
		if k.At.Sub(c.now()) <= soon {
			queues = append(queues, queue)
		}
	}
	rows, err := c.insert(ctx, tx, params)
	if err != nil {
		return nil, fmt.Errorf("defer %d calls, the first of task %q: %w", len(calls), calls[0].Task, err)
	}
	if err := c.notify(ctx, tx, queues); err != nil {
		return nil, fmt.Errorf("defer %d calls: tell who waits for them: %w", len(calls), err)
	}
	out := make([]Deferred, len(calls))
	used := make([]bool, len(rows))
	for i, at := range place {
		out[i] = Deferred{ID: rows[at].id, Duplicate: rows[at].dupe || used[at]}
		used[at] = true
	}
	return out, nil
}

// Check says what of a call could not be deferred.
func (k *Call) Check() error { return k.check() }

func (k *Call) check() error {
	size := len(k.Args)
	for _, word := range k.Argv {
		size += len(word)
	}
	switch {
	case !taskName.MatchString(k.Task):
		return errors.New("that is no name of a task: letters, digits, _ - and . , a letter first, at most 100")
	case size > maxArgs:
		return fmt.Errorf("the arguments have %d bytes; at most %d: put what is larger into a table, and its key into the arguments", size, maxArgs)
	case k.Attempts < 1 || k.Attempts > endless || k.Backoff < 0 || k.Factor < 1:
		return fmt.Errorf("%d attempts, backoff %s, factor %d", k.Attempts, k.Backoff, k.Factor)
	case k.Timeout <= 0:
		return fmt.Errorf("timeout %s: an attempt must end some time", k.Timeout)
	case k.Priority < 0 || k.Priority > 4:
		return fmt.Errorf("priority %d: it is 1 to 4", k.Priority)
	case k.Key != "" && k.Run != "":
		return errors.New("a call of a run has no key")
	case len(k.Key) > maxKey || len(k.Run) > maxKey || len(k.Cause) > maxCause:
		return fmt.Errorf("a key of %d bytes; at most %d", len(k.Key), maxKey)
	case len(k.Queue) > longestQueue:
		return checkQueue(k.Queue)
	}
	for _, text := range append([]string{k.Key, k.Run, k.Cause}, k.Argv...) {
		if !storable(text) {
			return fmt.Errorf("%q: the database takes only UTF-8 without NUL", text)
		}
	}
	if len(k.Args) > 0 {
		if err := checkJSON(k.Args); err != nil {
			return fmt.Errorf("the arguments: %w", err)
		}
	}
	return nil
}

func storable(text string) bool { return utf8.ValidString(text) && !strings.Contains(text, "\x00") }

// checkJSON refuses what PostgreSQL's jsonb would, because its error would end the
// caller's transaction. SQLite must not take what PostgreSQL does not.
func checkJSON(b []byte) error {
	if !json.Valid(b) {
		var v any
		return fmt.Errorf("no JSON: %w", json.Unmarshal(b, &v))
	}
	if !utf8.Valid(b) {
		return errors.New("no UTF-8")
	}
	if !bytes.Contains(b, []byte(`\u`)) {
		return nil
	}
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		i++ // what is escaped; there is something, it is valid
		if b[i] != 'u' {
			continue
		}
		switch r := hex4(b[i+1:]); {
		case r == 0:
			return errors.New(`\u0000: the database has no NUL`)
		case r >= 0xdc00 && r <= 0xdfff:
			return errors.New(`half of a surrogate pair`)
		case r >= 0xd800 && r <= 0xdbff:
			next := b[i+5:]
			if len(next) < 6 || next[0] != '\\' || next[1] != 'u' || hex4(next[2:]) < 0xdc00 || hex4(next[2:]) > 0xdfff {
				return errors.New(`half of a surrogate pair`)
			}
			i += 6
		}
		i += 4
	}
	return nil
}

// hex4 is the number that four hexadecimal digits are.
func hex4(b []byte) (n int) {
	for _, d := range b[:4] {
		switch {
		case d <= '9':
			d -= '0'
		case d >= 'a':
			d -= 'a' - 10
		default:
			d -= 'A' - 10
		}
		n = n<<4 | int(d)
	}
	return n
}

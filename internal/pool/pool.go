// Package pool is a worker pool over HTTP, both sides of it: the server works beside a database whose data must not leave its
// region, and the client gives a dispatcher elsewhere a pager, a pool and a worker.
//
// Its one invariant: no key value crosses. Cursors, bounds, keys and what is handed on leave the server sealed with a key that only
// its side has, and come back as they left.
package pool

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/ledger"
)

// Run is what a pool must know of a run to work on it. Every request has it: a pool remembers nothing that counts.
type Run struct {
	ID       string          `json:"run"`
	Stage    string          `json:"stage,omitempty"`
	Live     bool            `json:"live,omitempty"` // a schedule chose as_of
	Revision string          `json:"revision"`       // the policy text stored with the run, to the byte
	AsOf     time.Time       `json:"as_of"`
	Cutoff   time.Time       `json:"cutoff"`
	Mode     string          `json:"mode"`
	Plan     json.RawMessage `json:"plan,omitempty"` // how the run pages, once it has begun; it holds no key values
}

// maxRows bounds a page, so that a batch fits into a body whatever the keys are like.
const maxRows = 10_000

// maxBody bounds requests and answers, in bytes.
const maxBody = 64 << 20

// The addresses.
const (
	pathPages     = "/v1/pages"
	pathBatches   = "/v1/batches"
	pathSplits    = "/v1/splits"
	pathDatabases = "/v1/databases"
	pathHealth    = "/healthz"
)

const headerKey = "Idempotency-Key"

// wireBatch is a batch whose bounds and keys are sealed.
type wireBatch struct {
	Key    string `json:"key,omitempty"` // hex; of a batch to execute it is in the header
	Seq    int64  `json:"seq,omitempty"`
	Phase  string `json:"phase"`
	Rows   int    `json:"rows"`
	Bounds []byte `json:"bounds,omitempty"`
	Keys   []byte `json:"keys,omitempty"`
}

type pageRequest struct {
	Run
	Cursor []byte `json:"cursor,omitempty"`
	Rows   int    `json:"rows"`
}

type pageAnswer struct {
	Clock  time.Time       `json:"clock"`          // of the governed database
	Plan   json.RawMessage `json:"plan,omitempty"` // when the request had none
	Cursor []byte          `json:"cursor"`
	Batch  *wireBatch      `json:"batch,omitempty"`
	Done   bool            `json:"done"`
}

type batchRequest struct {
	Run
	Batch  wireBatch `json:"batch"`
	GiveUp string    `json:"give_up,omitempty"` // why it is to be recorded as failed, row by row, and not tried again
}

// batchAnswer is what came of a batch. Only its state is set while that is not settled.
type batchAnswer struct {
	State    string           `json:"state"`
	Planned  int64            `json:"planned,omitempty"`
	Outcomes map[string]int64 `json:"outcomes,omitempty"`
	Cascaded int64            `json:"cascaded,omitempty"`
	Deferred int64            `json:"deferred,omitempty"`
	HandedOn []byte           `json:"handed_on,omitempty"` // the deferred rows, sealed
	Root     []byte           `json:"root,omitempty"`
	KeyID    string           `json:"key_id,omitempty"`
	Blocked  []blockedRow     `json:"blocked,omitempty"`
	TooLong  bool             `json:"too_long,omitempty"`
	Took     int64            `json:"took_us,omitempty"`
}

// The states of a batch in a pool.
const (
	stateWorking = "working"
	stateSettled = "settled"
)

type blockedRow struct {
	Row     string `json:"row"` // the keyed hash, in hex
	Outcome string `json:"outcome"`
	Reason  string `json:"reason"`
}

type splitRequest struct {
	Run
	HandedOn []byte `json:"handed_on"`
	Rows     int    `json:"rows"`
}

type splitAnswer struct {
	Batches []wireBatch `json:"batches"`
}

type databasesAnswer struct {
	Items []string `json:"items"`
}

// problem is api.Problem with what a program needs to know of it.
type problem struct {
	api.Problem
	Why string `json:"why,omitempty"`
}

// The whys of problems. A problem of whyStop has the why_ended of the run behind it.
const (
	whyRefused = "refused"      // as things stand beside the data, the run may not begin or go on
	whyBatch   = "batch_failed" // one attempt at the batch failed; the next request makes another
	whyStop    = "stop:"
)

// Refused says that the pool's side refuses the run, as curfew would with the database at hand.
type Refused struct {
	Detail string
	Hint   string
}

func (e *Refused) Error() string { return e.Detail }

// Unreachable says that the pool, or the database beside it, could not be asked. The same again may succeed.
type Unreachable struct{ Err error }

func (e *Unreachable) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Unreachable) Unwrap() error { return e.Err }

// answerOf tells a settlement over HTTP; handedOn is sealed.
func answerOf(d dispatch.Done, handedOn []byte) batchAnswer {
	s := d.Settlement
	a := batchAnswer{State: stateSettled, Planned: s.Planned, Outcomes: s.Outcomes, Cascaded: s.Cascaded, Deferred: s.Deferred, HandedOn: handedOn,
		Root: s.Root, KeyID: s.KeyID, TooLong: d.TooLong, Took: d.Took.Microseconds()}
	for _, b := range s.Blocked {
		a.Blocked = append(a.Blocked, blockedRow{Row: hex.EncodeToString(b.Hash[:]), Outcome: b.Outcome, Reason: b.Reason})
	}
	return a
}

// done reads a settlement.
func (a batchAnswer) done() (dispatch.Done, error) {
	took := time.Duration(a.Took) * time.Microsecond
	s := ledger.Settlement{Planned: a.Planned, Outcomes: a.Outcomes, Cascaded: a.Cascaded, Deferred: a.Deferred, Root: a.Root, KeyID: a.KeyID, Duration: took}
	if s.Outcomes == nil {
		s.Outcomes = ledger.Outcomes{}
	}
	for name := range s.Outcomes {
		if !word(name) {
			return dispatch.Done{}, fmt.Errorf("the pool names an outcome %q, which is none", name)
		}
	}
	for _, b := range a.Blocked {
		row := ledger.BlockedRow{Outcome: b.Outcome, Reason: b.Reason}
		hash, err := hex.DecodeString(b.Row)
		if err != nil || len(hash) != len(row.Hash) {
			return dispatch.Done{}, fmt.Errorf("the pool names a row by %q, which is no hash", b.Row)
		}
		copy(row.Hash[:], hash)
		s.Blocked = append(s.Blocked, row)
	}
	return dispatch.Done{Settlement: s, Deferred: a.HandedOn, TooLong: a.TooLong, Took: took}, nil
}

// Jobs binds runs to the databases beside a server.
type Jobs interface {
	// Databases names what is worked on here.
	Databases() []string
	// Bind makes a job of a run, whose plan may be missing. A *Refused or a *dispatch.StopError says why it may not be worked on;
	// any other error may pass.
	Bind(ctx context.Context, r Run) (Job, error)
}

// A Job works on one run. It must be safe for concurrent use.
type Job interface {
	dispatch.Pager
	dispatch.Worker
	// GiveUp settles a batch that failed for good: each row as failed, for that reason.
	GiveUp(ctx context.Context, b dispatch.Batch, reason string) (dispatch.Done, error)
	// CountChanging, CountScope and Compare count what the run is about to do; see Remote.
	CountChanging(ctx context.Context, limit int64) (int64, error)
	CountScope(ctx context.Context, limit int64) (int64, error)
	Compare(ctx context.Context, old string) (Comparison, error)
	// Plan is how the run pages.
	Plan() json.RawMessage
	// Clock is the clock of the database.
	Clock(ctx context.Context) (time.Time, error)
}

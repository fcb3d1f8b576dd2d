package api

import (
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// The states of a run. A run whose process died or was interrupted stays Running until somebody resumes it.
const (
	StateAccepted         = "accepted"
	StateRunning          = "running"
	StateSucceeded        = "succeeded"
	StateFailed           = "failed"
	StateSkipped          = "skipped"
	StateExpired          = "expired"
	StateCancelled        = "cancelled"
	StateAwaitingApproval = "awaiting_approval"
)

// The modes of a policy and of a run.
const (
	ModeEnforce = "enforce"
	ModeShadow  = "shadow"
)

// Run is one run: the work of one policy stage in one mode at one as_of.
type Run struct {
	ID        string     `json:"id"`
	Policy    string     `json:"policy"`
	Stage     string     `json:"stage"`
	Operation string     `json:"operation"`
	Cause     string     `json:"cause"` // schedule, http, cli or catch_up
	AsOf      time.Time  `json:"as_of"`
	Cutoff    time.Time  `json:"cutoff"`
	Mode      string     `json:"mode"`
	State     string     `json:"state"`
	WhyEnded  string     `json:"why_ended"`
	Detail    string     `json:"detail"`
	Revision  string     `json:"revision"`
	Planned   int64      `json:"planned"`
	Outcomes  Outcomes   `json:"outcomes"`
	Cascaded  int64      `json:"cascaded"`
	Batches   BatchCount `json:"batches"`

	AcceptedAt time.Time  `json:"accepted_at"`
	StartedAt  *time.Time `json:"started_at"`
	EndedAt    *time.Time `json:"ended_at"`
}

// Ended reports whether nothing more will happen in the run.
func (r Run) Ended() bool {
	switch r.State {
	case StateSucceeded, StateFailed, StateSkipped, StateExpired, StateCancelled:
		return true
	}
	return false
}

// BatchCount says how many batches a run has, and how many of them are settled.
type BatchCount struct {
	Total   int64 `json:"total"`
	Settled int64 `json:"settled"`
}

// Outcomes counts rows by what happened to them: deleted, held, blocked, … In JSON an outcome with no rows is left out,
// and no outcomes at all are {}.
type Outcomes map[string]int64

// MarshalJSON leaves the zeros out.
func (o Outcomes) MarshalJSON() ([]byte, error) {
	some := make(map[string]int64, len(o))
	for name, n := range o {
		if n != 0 {
			some[name] = n
		}
	}
	return json.Marshal(some)
}

// Sum is the number of rows over all outcomes.
func (o Outcomes) Sum() int64 {
	var sum int64
	for _, n := range o {
		sum += n
	}
	return sum
}

// reading is the order in which people read outcomes: what was done, what was not, and what went wrong.
var reading = []string{
	"deleted", "anonymised", "archived", "set", "notified", "called", "due",
	"no_longer_due", "gone", "held", "guarded", "blocked", "locked", "unreadable", "failed",
}

// Names lists the outcomes that have rows, in reading order; one that this version does not know comes last.
func (o Outcomes) Names() []string {
	names := slices.Sorted(maps.Keys(o))
	names = slices.DeleteFunc(names, func(n string) bool { return o[n] == 0 })
	slices.SortStableFunc(names, func(a, b string) int { return rank(a) - rank(b) })
	return names
}

func rank(outcome string) int {
	if i := slices.Index(reading, outcome); i >= 0 {
		return i
	}
	return len(reading)
}

// RunDetail is a run with what stands behind it.
type RunDetail struct {
	Run
	BatchTimes BatchTimes   `json:"batch_times"`
	Approval   *Approval    `json:"approval"` // null: it never had to wait for one
	Blocked    []BlockedRow `json:"blocked_rows"`
	Audit      []AuditEntry `json:"audit"`
}

// BatchTimes sums up the settled batches of a run.
type BatchTimes struct {
	Rows     int64 `json:"rows"`
	MinMS    int64 `json:"min_ms"`
	MedianMS int64 `json:"median_ms"`
	MaxMS    int64 `json:"max_ms"`
}

// BlockedRow is a row that a run could not change, named by its keyed hash.
type BlockedRow struct {
	Row       string    `json:"row"` // 32 hex digits
	Outcome   string    `json:"outcome"`
	Reason    string    `json:"reason"`
	FirstSeen time.Time `json:"first_seen"`
	LastSeen  time.Time `json:"last_seen"`
}

// AuditEntry is one line of the audit trail.
type AuditEntry struct {
	Seq   int64           `json:"seq"`
	At    time.Time       `json:"at"`
	Event string          `json:"event"`
	Actor string          `json:"actor"`
	Run   string          `json:"run"`
	Data  json.RawMessage `json:"data"`
}

package api

import (
	"encoding/json"
	"time"
)

// How a task is done.
const (
	TaskCommand = "command" // of the file
	TaskHTTP    = "http"    // of the file
	TaskGo      = "go"      // by a function of an application
)

// Task is a piece of recurring or deferred work, and how it is doing.
type Task struct {
	Name        string `json:"name"`
	Description string `json:"description"`
	Kind        string `json:"kind"`     // command, http or go; "" when only another process knows
	Here        bool   `json:"here"`     // this process can do it
	Cron        string `json:"cron"`     // "" when nothing starts it
	Timezone    string `json:"timezone"` // of the cron
	Schedule    string `json:"schedule"` // the same in words
	State       string `json:"state"`    // idle, waiting, running, retrying or paused
	Well        bool   `json:"well"`
	Problem     string `json:"problem"` // what is wrong; "" when it is well
	Hint        string `json:"hint"`    // what to do about it

	LastOK  *time.Time `json:"last_ok"`  // the scheduled instant that last was done
	LastRun string     `json:"last_run"` // id of the last periodic run; "" when there was none
	NextDue *time.Time `json:"next_due"`

	// Calls by their state.
	Waiting  int64 `json:"waiting"`
	Running  int64 `json:"running"`
	Retrying int64 `json:"retrying"`
	Failed   int64 `json:"failed"` // for good, and neither retried nor discarded since
}

// The states of a call.
const (
	CallWaiting   = "waiting"
	CallRunning   = "running"
	CallRetrying  = "retrying"
	CallSucceeded = "succeeded"
	CallFailed    = "failed"    // for good
	CallDiscarded = "discarded" // by somebody, with a reason
)

// TaskCall is one piece of work of a task. One with a scheduled instant is periodic, and is a run too.
type TaskCall struct {
	ID          int64           `json:"id"`
	Task        string          `json:"task"`
	State       string          `json:"state"`
	Cause       string          `json:"cause"` // schedule, catch_up, defer, http, cli or sql
	ScheduledAt *time.Time      `json:"scheduled_at"`
	Run         string          `json:"run"` // "" when it is not periodic
	Args        json.RawMessage `json:"args"`
	Argv        []string        `json:"argv"` // words added to a command
	Key         string          `json:"key"`  // no second call with it while this one is open; "" for none
	Attempt     int             `json:"attempt"`
	Attempts    int             `json:"attempts"` // how many it may have
	Error       string          `json:"error"`    // of the last attempt that failed
	Result      json.RawMessage `json:"result"`   // of a command: the end of its output, as a string
	CreatedAt   time.Time       `json:"created_at"`
	NotBefore   *time.Time      `json:"not_before"` // of one that waits or is tried again
	StartedAt   *time.Time      `json:"started_at"` // of the last attempt
	EndedAt     *time.Time      `json:"ended_at"`
	DiscardedBy string          `json:"discarded_by"`
	Reason      string          `json:"reason"`

	Duplicate bool `json:"duplicate"` // in the answer to who deferred it: an open call had the key, and is this one
}

// CallsChanged says how many failed calls were, or would be, retried or discarded.
type CallsChanged struct {
	Calls int64 `json:"calls"`
	Done  bool  `json:"done"` // false: they were only counted
}

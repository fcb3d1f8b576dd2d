package policy

import (
	"cmp"
	"path/filepath"
	"strings"
	"time"
)

// Task is work besides retention that the file says how to do: by a command or
// by a request. Exactly one of Command and HTTP is set. Its JSON form is its
// revision, see [Task.Revision]; like [Policy] it may get fields with omitempty,
// and none is renamed.
type Task struct {
	Name        string            `json:"name"`
	Description string            `json:"description,omitempty"`
	Command     []string          `json:"command,omitempty"`
	Dir         string            `json:"dir,omitempty"` // as written, see [File.TaskDir]
	Env         map[string]string `json:"env,omitempty"` // with ${…} as written, see [File.Expand]
	KillAfter   time.Duration     `json:"kill_after_ns,omitempty"`
	ExitCodes   ExitCodes         `json:"exit_codes,omitzero"`
	HTTP        *TaskRequest      `json:"http,omitempty"`
	Cron        string            `json:"cron,omitempty"` // "": it does not come by itself
	Timezone    string            `json:"timezone"`       // of Cron; an IANA name, never empty
	StartWithin time.Duration     `json:"start_within_ns"`
	Overlap     string            `json:"overlap"`  // skip, queue or allow
	CatchUp     string            `json:"catch_up"` // latest, all or none
	Timeout     time.Duration     `json:"timeout_ns"`
	Retry       Retry             `json:"retry"`
	Priority    int               `json:"priority"`
	Queue       string            `json:"queue,omitempty"`       // "": the common one
	Concurrency int               `json:"concurrency,omitempty"` // 0: no bound of its own
	Lock        string            `json:"lock,omitempty"`
}

// ExitCodes say what the exit codes of a command mean, as [Task] has them: a
// code of Fail is final, one of Retry is tried again. Any other is tried again
// too, unless Retry alone is given: then it is final.
type ExitCodes struct {
	Retry []int `json:"retry,omitempty"`
	Fail  []int `json:"fail,omitempty"`
}

// TaskRequest is a task done by another system, over HTTP. Its texts are with
// ${…} as written, because a revision holds no secret; see [File.Expand].
type TaskRequest struct {
	URL     string            `json:"url"`
	Method  string            `json:"method"`
	Body    string            `json:"body,omitempty"` // sent as it is; "": the call as JSON, nothing with GET
	Token   string            `json:"token,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
}

// Retention says how long what is over stays in lists.
type Retention struct {
	FinishedCalls time.Duration // of tasks; those that succeeded
	FailedCalls   time.Duration // those that failed for good or were discarded
}

// The defaults of tasks.
const (
	DefaultTaskTimeout = 10 * time.Minute
	DefaultKillAfter   = 10 * time.Second
)

// DefaultRetention is what a file without the section says.
func DefaultRetention() Retention {
	return Retention{FinishedCalls: 7 * 24 * time.Hour, FailedCalls: 90 * 24 * time.Hour}
}

// Location is the time zone of the task's cron.
func (t *Task) Location() *time.Location {
	return mustLocation(cmp.Or(t.Timezone, DefaultTimezone))
}

// Revision returns the settings of a task as canonical JSON, and the hex SHA-256
// of it, as [Policy.Revision] does. What is expanded when it is used is in it as
// written.
func (t *Task) Revision() (id string, canonical []byte) {
	return canonicalOf(t)
}

// Task returns the task of that name. The error of an unknown name suggests the
// nearest and lists the rest.
func (f *File) Task(name string) (*Task, error) {
	names := make([]string, len(f.Tasks))
	for i, t := range f.Tasks {
		if t.Name == name {
			return t, nil
		}
		names[i] = t.Name
	}
	return nil, f.unknown("task", "tasks", name, names)
}

// TaskDir is the directory in which the task's command works: a relative one
// starts from the file's folder, which is the default.
func (f *File) TaskDir(t *Task) string {
	if filepath.IsAbs(t.Dir) {
		return t.Dir
	}
	return filepath.Join(filepath.Dir(f.Path), t.Dir)
}

// isTaskName accepts what may name a task or a lock.
func isTaskName(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return s != "" && len(s) <= maxTaskName && strings.Contains(letters, s[:1]) && strings.Trim(s, letters+"0123456789_-.") == ""
}

const maxTaskName = 100

package curfew

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/riverq"
	"curfew.dev/curfew/policy"
	"curfew.dev/curfew/task"
)

// A definition is a task as this process can do it: a command or a request of the policy file, or a function of the application.
type definition struct {
	name string
	kind string // api.TaskCommand, api.TaskHTTP, api.TaskGo
	o    task.Options
	spec *policy.Task // of the file, or nil
	fn   *task.Task   // of the application, or nil

	revision string
	body     []byte // the settings as JSON, without secrets
	timing   *policy.Policy
}

// define makes one table of the file's tasks and the application's. A name stands for one thing.
func define(file *policy.File, own []*task.Task, prefix string, lookup func(string) (string, bool)) (map[string]*definition, error) {
	defs := map[string]*definition{}
	for _, s := range file.Tasks {
		d := &definition{name: s.Name, kind: api.TaskCommand, spec: s, o: task.Options{
			Description: s.Description, Cron: s.Cron, Timezone: s.Timezone, StartWithin: s.StartWithin, Overlap: s.Overlap, CatchUp: s.CatchUp,
			Retry:   task.Retry{Attempts: s.Retry.Attempts, Backoff: s.Retry.Backoff, Factor: s.Retry.Factor},
			Timeout: s.Timeout, Priority: s.Priority, Queue: s.Queue, Concurrency: s.Concurrency, Lock: s.Lock,
		}}
		if s.HTTP != nil {
			d.kind = api.TaskHTTP
		}
		d.revision, d.body = s.Revision()
		defs[s.Name] = d
	}
	for _, t := range own {
		d, err := ofApplication(t, prefix, lookup)
		if err != nil {
			return nil, &Error{Kind: KindConfig, Err: err, Hint: "nothing was started"}
		}
		if defs[d.name] != nil {
			return nil, fail(KindConfig, "give one of them another name", "task %s is there twice", d.name)
		}
		if _, err := file.Policy(d.name); err == nil {
			return nil, fail(KindConfig, "give one of them another name", "%s is the name of a task and of a policy", d.name)
		}
		defs[d.name] = d
	}
	names := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(defs)) {
		v := policy.TaskVariable(name, prefix)
		if other := names[v]; other != "" {
			return nil, fail(KindConfig, "give one of them another name", "tasks %s and %s would both have their cron from %s", other, name, v)
		}
		names[v] = name
		if err := defs[name].time(); err != nil {
			return nil, err
		}
	}
	return defs, nil
}

// ofApplication is a task that is done by a function. Its cron may come from the environment, as that of a task of the file.
func ofApplication(t *task.Task, prefix string, lookup func(string) (string, bool)) (*definition, error) {
	if t == nil {
		return nil, fmt.Errorf("a task is nil")
	}
	d := &definition{name: t.Name(), kind: api.TaskGo, fn: t, o: t.Options().WithDefaults()}
	if err := t.Check(); err != nil {
		return nil, err
	}
	cron, ok, err := policy.TaskCron(d.name, lookup, prefix)
	if err != nil {
		return nil, err
	}
	if ok {
		d.o.Cron = cron
	} else if d.o.Cron != "" {
		if err := policy.CheckCron(d.o.Cron); err != nil {
			return nil, fmt.Errorf("task %s: cron: %w", d.name, err)
		}
	}
	if err := d.o.Check(); err != nil {
		return nil, fmt.Errorf("task %s: %w", d.name, err)
	}
	body, err := json.Marshal(struct {
		Name string       `json:"name"`
		Kind string       `json:"kind"`
		O    task.Options `json:"options"`
	}{d.name, d.kind, d.o})
	if err != nil {
		return nil, err
	}
	d.body, d.revision = body, ledger.RevisionID(body)
	return d, nil
}

// time gives a periodic task the schedule of a policy: ticks, gaps and statuses treat both alike.
func (d *definition) time() error {
	zone := cmp.Or(d.o.Timezone, "UTC")
	if _, err := time.LoadLocation(zone); err != nil {
		return fail(KindConfig, "give an IANA name such as Europe/Berlin", "task %s: no time zone %q", d.name, zone)
	}
	d.timing = &policy.Policy{Name: d.name, Mode: ledger.ModeTask, Timezone: zone, Retry: policy.Retry{Attempts: d.o.Retry.Attempts, Backoff: d.o.Retry.Backoff, Factor: d.o.Retry.Factor}}
	if d.o.Cron != "" {
		d.timing.Schedule = &policy.Schedule{Cron: d.o.Cron, StartWithin: d.o.StartWithin, Overlap: d.o.Overlap, CatchUp: d.o.CatchUp}
	}
	return nil
}

// queue is the queue of the task's calls. One that bounds how many execute at once has a queue of its own, so that those that
// have to wait take nobody's place.
func (d *definition) queue() string {
	switch {
	case d.o.Queue != "":
		return d.o.Queue
	case d.o.Concurrency > 0:
		return ownQueue + d.name
	}
	return riverq.Interactive
}

// ownQueue begins the name of a queue of one task. No queue of the file has it.
const ownQueue = "task:"

// record is what the ledger keeps of the task, so that others can call it.
func (d *definition) record() ledger.TaskRecord {
	r := ledger.TaskRecord{Name: d.name, Revision: d.revision, Body: d.body, Queue: d.queue(), Priority: d.o.Priority,
		Attempts: d.o.Retry.Attempts, Backoff: d.o.Retry.Backoff, Factor: d.o.Retry.Factor, Timeout: d.o.Timeout}
	if d.timing.Schedule != nil {
		r.Expr = expression(d.timing)
	}
	return r
}

// locks are what must be free for a call to execute, with how many may have it at once.
func (d *definition) locks() []slot {
	var all []slot
	if n := d.o.Concurrency; n > 0 {
		all = append(all, slot{"task " + d.name, n})
	} else if d.o.Overlap != "allow" && d.o.Cron != "" {
		all = append(all, slot{"task " + d.name, 1})
	}
	if d.o.Lock != "" {
		all = append(all, slot{"lock " + d.o.Lock, 1})
	}
	return all
}

// slot is a lock by its name, and how many may hold it.
type slot struct {
	name string
	n    int
}

// call is a call of the task as its settings have it.
func callOf(r ledger.TaskRecord) riverq.Call {
	return riverq.Call{Task: r.Name, Queue: r.Queue, Priority: r.Priority, Attempts: r.Attempts, Backoff: r.Backoff, Factor: r.Factor, Timeout: r.Timeout}
}

// taskSources are the two places that tasks come from, as the ledger names them: the file, and the program. A program without tasks
// of its own is none: curfew itself, say, beside an application.
func (c *Curfew) taskSources() map[string][]ledger.TaskRecord {
	file, own := "file:"+c.source(), "program:"+programName()
	all := map[string][]ledger.TaskRecord{}
	if c.file.Path != "" {
		all[file] = nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.tasks)) {
		from := file
		if c.tasks[name].fn != nil {
			from = own
		}
		all[from] = append(all[from], c.tasks[name].record())
	}
	return all
}

// programName tells programs on one ledger apart: by the path of their main package, since many executables are called server.
func programName() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Path != "" && info.Path != "command-line-arguments" {
		return info.Path
	}
	if path, err := os.Executable(); err == nil {
		return filepath.Base(path)
	}
	return filepath.Base(os.Args[0])
}

// timed are the stages of the policies, and the tasks that have a schedule: whatever may end as an occurrence.
func (c *Curfew) timed() []*policy.Policy {
	all := stagesOf(c.file.Policies)
	for _, name := range slices.Sorted(maps.Keys(c.tasks)) {
		if d := c.tasks[name]; d.timing.Schedule != nil {
			all = append(all, d.timing)
		}
	}
	return all
}

// named is a policy of the file, or a task's schedule.
func (c *Curfew) named(name string) (*policy.Policy, error) {
	if d := c.tasks[name]; d != nil {
		return d.timing, nil
	}
	return c.policy(name)
}

// isTask reports whether what has a schedule is a task.
func isTask(p *policy.Policy) bool { return p.Mode == ledger.ModeTask }

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

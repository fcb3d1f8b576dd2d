package policy

import (
	"fmt"
	"maps"
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"time"
)

// task judges one task. What it returns is used only when nothing in the file
// was wrong.
func (b *builder) task(name string, raw *rawTask, file *rawFile) *Task {
	t := &Task{
		Name: name, Description: raw.Description.String(), Timezone: DefaultTimezone, Cron: raw.Cron.String(), CatchUp: "latest",
		StartWithin: b.duration(raw.StartWithin, DefaultStartWithin, time.Minute, 31*24*time.Hour),
		Timeout:     b.duration(raw.Timeout, DefaultTaskTimeout, time.Second, 7*24*time.Hour),
		Retry:       b.taskRetry(raw.Retry), Priority: b.bounded(raw.Priority, 1, 1, 4), Lock: b.lock(raw.Lock),
	}
	b.how(t, raw)
	if raw.Cron.set() {
		if err := checkCron(t.Cron); err != nil {
			b.bad(raw.Cron.leaf, err)
		}
	}
	if raw.Timezone.set() {
		t.Timezone = b.zone(raw.Timezone)
	}
	if raw.CatchUp.set() {
		t.CatchUp = choice(b, raw.CatchUp, "latest", "all", "none")
	}
	b.sideBySide(t, raw, file)
	if file.Policies[name] != nil {
		b.fail(raw.at, raw.field, fmt.Sprintf("there is a policy %q too", name), "rename one of them: runs, calls and the environment know them by their names alone")
	}
	return t
}

// how judges by what a task is done: a command or a request, each with settings
// that mean nothing to the other.
func (b *builder) how(t *Task, raw *rawTask) {
	switch command, request := raw.Command.set(), raw.HTTP != nil; {
	case command && request:
		b.fail(raw.HTTP.at, raw.HTTP.field, "command and http are both given", "keep one of them; a task is done in one way")
	case command:
		t.Command, t.Dir, t.Env = raw.Command.words, raw.Dir.String(), b.environment(raw.Env)
		t.KillAfter = b.duration(raw.KillAfter, DefaultKillAfter, 100*time.Millisecond, time.Hour)
		t.ExitCodes = b.exitCodes(raw.ExitCodes)
	case request:
		t.HTTP = b.taskRequest(raw.HTTP)
		if raw.Env.at != nil {
			b.ofCommands(raw.Env.at, raw.Env.field)
		}
		if raw.ExitCodes != nil {
			b.ofCommands(raw.ExitCodes.at, raw.ExitCodes.field)
		}
		for _, l := range []leaf{raw.Dir.leaf, raw.KillAfter.leaf} {
			if l.set() {
				b.ofCommands(l.n, l.field)
			}
		}
	case !b.failed(raw.field+".command") && !b.failed(raw.field+".http") && !b.malformed(raw.place):
		b.missing(raw.place, "command", "write for example command: [./manage, clearsessions], or http: {url: …}")
	}
}

func (b *builder) ofCommands(at *node, field string) {
	b.fail(at, field, "this is for a task with a command", "remove it; the task is a request")
}

// sideBySide judges what says how many calls are executed at once, which makes
// sense only together.
func (b *builder) sideBySide(t *Task, raw *rawTask, file *rawFile) {
	if raw.Concurrency.set() {
		t.Concurrency = b.count(raw.Concurrency, 1000)
	}
	t.Overlap = "skip"
	if t.Concurrency > 1 {
		t.Overlap = "allow"
	}
	if raw.Overlap.set() {
		t.Overlap = choice(b, raw.Overlap, "skip", "queue", "allow")
		if oneOf(t.Overlap, "skip", "queue") && t.Concurrency > 1 {
			b.fail(raw.Overlap.n, raw.Overlap.field, fmt.Sprintf("%s executes one call of the task at a time, and concurrency %d", t.Overlap, t.Concurrency), "leave one of them out")
		}
	}
	if !raw.Queue.set() {
		return
	}
	t.Queue = raw.Queue.String()
	queues := []string{CommonQueue}
	if file.Engine != nil {
		for _, q := range file.Engine.Queues.items {
			queues = append(queues, q.name.text)
		}
	}
	switch {
	case raw.Concurrency.set():
		b.fail(raw.Queue.n, raw.Queue.field, "a task with a concurrency has a queue of its own", "leave queue or concurrency out")
	case !oneOf(t.Queue, queues...) && !b.failed("engine.queues"):
		b.bad(raw.Queue.leaf, &fault{"there is no such queue, and nobody would do the task", fmt.Sprintf("add it, with workers: engine: {queues: {%s: 2}}; there is %s", queueOr(t.Queue), strings.Join(queues, ", "))})
	}
}

// queueOr is a name to show in an example.
func queueOr(name string) string {
	if queueName.MatchString(name) && len(name) <= 63 {
		return name
	}
	return "mail"
}

func (b *builder) taskRetry(raw *rawTaskRetry) Retry {
	d := DefaultRetry()
	if raw == nil {
		return d
	}
	d.Attempts = b.bounded(raw.Attempts, d.Attempts, 1, 100)
	d.Backoff = b.duration(raw.Backoff, d.Backoff, time.Millisecond, 24*time.Hour)
	d.Factor = b.bounded(raw.Factor, d.Factor, 1, 100)
	return d
}

// environment judges the variables of a command, which are expanded when it is
// started, and now to find out whether they can be.
func (b *builder) environment(raw variables) map[string]string {
	env := make(map[string]string, len(raw.items))
	for _, v := range raw.items {
		name := v.name.text
		switch {
		case !varName.MatchString(name):
			b.fail(v.name, v.value.field, "this is no name of a variable", "use letters, digits and _, no digit first")
		case strings.HasPrefix(name, EnvPrefix):
			b.fail(v.name, v.value.field, "the variables that begin with "+EnvPrefix+" are curfew's own", "rename it")
		}
		b.expand(v.value)
		env[name] = v.value.String()
	}
	if len(env) == 0 {
		return nil
	}
	return env
}

func (b *builder) exitCodes(raw *rawExitCodes) ExitCodes {
	if raw == nil {
		return ExitCodes{}
	}
	if !raw.Retry.set() && !raw.Fail.set() && !b.failed(raw.field) {
		b.fail(raw.at, raw.field, "it names no exit codes", "write for example exit_codes: {fail: [65, 78]}")
	}
	seen := make(map[int]string)
	read := func(name string, l codes) []int {
		var out []int
		for _, i := range l.items {
			if i.value < 1 || i.value > 255 {
				b.bad(i.leaf, &fault{"it must be from 1 to 255", "0 is success"})
				continue
			}
			if other, twice := seen[i.value]; twice {
				b.bad(i.leaf, &fault{"the code is under " + other + " already", "a code means one thing; remove one"})
				continue
			}
			seen[i.value] = name
			out = append(out, i.value)
		}
		slices.Sort(out)
		return out
	}
	return ExitCodes{Retry: read("retry", raw.Retry), Fail: read("fail", raw.Fail)}
}

var taskMethods = []string{"GET", "POST", "PUT", "PATCH", "DELETE"}

func (b *builder) taskRequest(raw *rawTaskHTTP) *TaskRequest {
	r := &TaskRequest{URL: b.later(raw.place, raw.URL, checkAddress), Method: "POST", Body: raw.Body.String(), Headers: b.headers(raw)}
	if raw.Method.set() {
		r.Method = choice(b, raw.Method, taskMethods...)
	}
	if raw.Body.set() && r.Method == "GET" {
		b.fail(raw.Body.n, raw.Body.field, "a GET has no body", "write method: POST, or leave the body out")
	}
	if raw.Token.set() {
		b.expand(raw.Token)
		r.Token = raw.Token.String()
	}
	return r
}

var headerName = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$")

// ownHeaders are those that the request itself decides, or curfew.
var ownHeaders = words("Host Content-Length Transfer-Encoding Connection Trailer Te Upgrade Expect Idempotency-Key")

func (b *builder) headers(raw *rawTaskHTTP) map[string]string {
	headers := make(map[string]string, len(raw.Headers.items))
	for _, h := range raw.Headers.items {
		name := textproto.CanonicalMIMEHeaderKey(h.name.text)
		_, twice := headers[name]
		switch {
		case !headerName.MatchString(h.name.text):
			b.fail(h.name, h.value.field, "this is no name of a header field", "write for example X-Tenant")
		case ownHeaders[name]:
			b.fail(h.name, h.value.field, name+" is set by curfew", "leave it out")
		case name == "Authorization" && raw.Token.set():
			b.fail(h.name, h.value.field, "token is given too, and becomes this field", "keep one of them")
		case twice:
			b.fail(h.name, h.value.field, "the field is given twice", "the case of its letters makes no difference; remove one")
		}
		if value, ok := b.expand(h.value); ok && strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			b.fail(h.value.n, h.value.field, "the value contains a line break or another control character", "check the variable or file it comes from")
		}
		headers[name] = h.value.String()
	}
	if len(headers) == 0 {
		return nil
	}
	return headers
}

// lock judges the name of a lock, of a task or a policy.
func (b *builder) lock(t text) string {
	if t.set() && !isTaskName(t.String()) {
		b.bad(t.leaf, &fault{"this is no name of a lock", taskNameHint})
	}
	return t.String()
}

// CommonQueue is the queue of tasks that name none; of cleanup it is apart.
const CommonQueue = "interactive"

// queueName is what the queue's own rules allow.
var queueName = regexp.MustCompile(`^[a-z0-9]+([_-][a-z0-9]+)*$`)

// queues judges the further queues of the engine.
func (b *builder) queues(raw numbers) map[string]int {
	if raw.at == nil {
		return nil
	}
	out := make(map[string]int, len(raw.items))
	for _, q := range raw.items {
		name := q.name.text
		switch {
		case oneOf(name, CommonQueue, "cleanup"):
			b.fail(q.name, q.value.field, fmt.Sprintf("%q is a queue of curfew's own", name), "workers and reserved say how many workers it has; name yours otherwise")
		case !queueName.MatchString(name) || len(name) > 63:
			b.fail(q.name, q.value.field, "this is no name of a queue", "use lower-case letters and digits, with single _ and - between them, at most 63")
		}
		out[name] = b.count(q.value, 256)
	}
	return out
}

// count is a number that is not there by default.
func (b *builder) count(i integer, most int) int {
	if i.value < 1 || i.value > most {
		b.bad(i.leaf, &fault{fmt.Sprintf("it must be from 1 to %d", most), "or leave it out"})
	}
	return i.value
}

func (b *builder) retention(raw *rawRetention) Retention {
	d := DefaultRetention()
	if raw == nil {
		return d
	}
	d.FinishedCalls = b.duration(raw.FinishedCalls, d.FinishedCalls, time.Minute, maxDays*24*time.Hour)
	d.FailedCalls = b.duration(raw.FailedCalls, d.FailedCalls, time.Minute, maxDays*24*time.Hour)
	return d
}

// tasks judges all tasks, and what the file needs where there are none.
func (b *builder) tasks(raw *rawFile) []*Task {
	var all []*Task
	for _, name := range slices.Sorted(maps.Keys(raw.Tasks)) {
		all = append(all, b.task(name, raw.Tasks[name], raw))
	}
	// With a ledger and no tasks at all a file leads to those of an application.
	if len(raw.Tasks) > 0 || raw.Tasks != nil && raw.Ledger.String() != "" || b.failed("tasks") {
		if raw.Databases == nil && raw.Policies != nil && !b.failed("databases") {
			b.missing(raw.place, "databases", "policies need one: databases: {main: {url: …}}")
		}
		return all
	}
	if raw.Databases == nil && !b.failed("databases") {
		b.missing(raw.place, "databases", "name at least one: databases: {main: {url: …}}")
	}
	if raw.Policies == nil && !b.failed("policies") {
		b.missing(raw.place, "policies", "state what goes when; curfew init proposes policies")
	}
	return all
}

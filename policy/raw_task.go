package policy

import (
	"fmt"
	"reflect"
)

// The raw form of tasks, see raw.go.

type rawTask struct {
	place       `yaml:"-"`
	Description text          `yaml:"description" jsonschema_description:"What the task does, in words; shown in lists."`
	Command     argv          `yaml:"command" jsonschema_description:"The program and its arguments, a list; never a shell. It gets the call as JSON on its standard input and in CURFEW_* variables."`
	HTTP        *rawTaskHTTP  `yaml:"http" jsonschema_description:"A request that does the task, instead of command."`
	Dir         text          `yaml:"dir" jsonschema_description:"The command's working directory; a relative one starts from the policy file's folder, which is the default."`
	Env         variables     `yaml:"env" jsonschema_description:"Further variables of the command's environment. ${VAR} and ${file:PATH} are expanded when it is started."`
	Cron        text          `yaml:"cron" jsonschema_description:"When the task comes by itself: five fields as in crontab(5), in its time zone, or @daily and its kin. Left out, it is called only."`
	Timezone    text          `yaml:"timezone" jsonschema:"default=UTC" jsonschema_description:"The IANA time zone of cron."`
	StartWithin amount        `yaml:"start_within" jsonschema:"default=1h" jsonschema_description:"How late a scheduled call may start."`
	Overlap     text          `yaml:"overlap" jsonschema:"enum=skip,enum=queue,enum=allow" jsonschema_description:"What a scheduled call does while another is in its way: skip leaves it out, queue starts it afterwards, within start_within; under both no two calls are executed at once. allow lets them. Default: skip; allow with a concurrency of more than 1."`
	CatchUp     text          `yaml:"catch_up" jsonschema:"enum=latest,enum=all,enum=none,default=latest" jsonschema_description:"What makes up for missed instants: latest is one call, for the last of them; all is one call each; none is nothing."`
	Timeout     amount        `yaml:"timeout" jsonschema:"default=10m" jsonschema_description:"How long one attempt may take."`
	KillAfter   amount        `yaml:"kill_after" jsonschema:"default=10s" jsonschema_description:"How long a command that was told to end (TERM) may take before it is killed (KILL), with all it started."`
	Retry       *rawTaskRetry `yaml:"retry" jsonschema_description:"How a failed call is tried again."`
	ExitCodes   *rawExitCodes `yaml:"exit_codes" jsonschema_description:"What the command's exit codes mean. 0 is success; by default any other is tried again."`
	Priority    integer       `yaml:"priority" jsonschema:"minimum=1,maximum=4,default=1" jsonschema_description:"From 1, which goes first, to 4."`
	Queue       text          `yaml:"queue" jsonschema_description:"The queue of the task's calls, one of engine.queues. Default: interactive, the common one."`
	Concurrency integer       `yaml:"concurrency" jsonschema:"minimum=1,maximum=1000" jsonschema_description:"How many calls of the task are executed at once, by all processes together, in a queue of its own. Left out, it has no bound of its own."`
	Lock        text          `yaml:"lock" jsonschema_description:"A lock, by name: of all tasks and policies that name it, one is executed at a time."`
}

type rawTaskHTTP struct {
	place   `yaml:"-"`
	URL     secret    `yaml:"url" jsonschema:"required" jsonschema_description:"https://…. ${VAR} and ${file:PATH} are expanded when it is used."`
	Method  text      `yaml:"method" jsonschema:"enum=GET,enum=POST,enum=PUT,enum=PATCH,enum=DELETE,default=POST" jsonschema_description:"The HTTP method."`
	Body    text      `yaml:"body" jsonschema_description:"The body, as it is sent. Default: the call as JSON, as a command gets it on its standard input; none with GET."`
	Token   secret    `yaml:"token" jsonschema_description:"A bearer token. ${VAR} and ${file:PATH} are expanded when it is used."`
	Headers variables `yaml:"headers" jsonschema_description:"Further header fields. ${VAR} and ${file:PATH} are expanded when they are used."`
}

type rawTaskRetry struct {
	place    `yaml:"-"`
	Attempts integer `yaml:"attempts" jsonschema:"minimum=1,maximum=100,default=5" jsonschema_description:"How often a call is tried, the first time included."`
	Backoff  amount  `yaml:"backoff" jsonschema:"default=10s" jsonschema_description:"The wait before the second attempt."`
	Factor   integer `yaml:"factor" jsonschema:"minimum=1,maximum=100,default=10" jsonschema_description:"By what each further wait is longer, up to a day."`
}

type rawExitCodes struct {
	place `yaml:"-"`
	Retry codes `yaml:"retry" jsonschema_description:"The codes after which the call is tried again. Without fail, all others are final."`
	Fail  codes `yaml:"fail" jsonschema_description:"The codes after which the call has failed for good."`
}

type rawRetention struct {
	place         `yaml:"-"`
	FinishedCalls amount `yaml:"finished_calls" jsonschema:"default=7d" jsonschema_description:"How long calls of tasks that succeeded are listed."`
	FailedCalls   amount `yaml:"failed_calls" jsonschema:"default=90d" jsonschema_description:"How long calls of tasks that failed for good, or were discarded, are listed."`
}

// argv is a program and its arguments: a list of texts, in which one may come
// twice, or be empty.
type argv struct {
	leaf
	words []string
}

// variables are texts by name, expanded and hidden like any secret.
type variables struct {
	place
	items []rawVariable
}

type rawVariable struct {
	name  *node
	value secret
}

// codes are exit codes.
type codes struct {
	leaf
	items []integer
}

// numbers are whole numbers by name.
type numbers struct {
	place
	items []rawNumber
}

type rawNumber struct {
	name  *node
	value integer
}

func (r *reader) argv(n *node, field string) argv {
	a := argv{leaf: leaf{n, field}}
	if n.kind != listNode {
		r.fail(n, field, "a command is a list of words, and no shell reads it", "write for example [./manage, clearsessions]")
		return argv{}
	}
	if len(n.items) == 0 {
		r.fail(n, field, "the list is empty", "name the program")
	}
	for i, item := range n.items {
		at := indexed(field, i)
		switch {
		case item.kind != scalarNode || item.scalar != stringScalar || i == 0:
			t, _ := r.text(item, at)
			a.words = append(a.words, t.String())
		default:
			a.words = append(a.words, item.text)
		}
	}
	return a
}

func (r *reader) variables(p pair, field string) variables {
	v := variables{place: place{p.key, field}}
	if p.value.kind != mapNode || len(p.value.pairs) == 0 {
		r.wrongKind(p.value, field, "a mapping from names to texts")
		return v
	}
	for _, entry := range p.value.pairs {
		var s secret
		child := join(field, entry.key.text)
		switch {
		case entry.value.kind == scalarNode && entry.value.scalar == stringScalar && entry.value.text == "":
			s.leaf = leaf{entry.value, child} // an empty variable is a value
		default:
			r.value(pair{entry.key, entry.value}, child, reflect.ValueOf(&s).Elem())
		}
		if s.set() {
			v.items = append(v.items, rawVariable{entry.key, s})
		}
	}
	return v
}

func (r *reader) codes(n *node, field string) codes {
	c := codes{leaf: leaf{n, field}}
	if n.kind != listNode || len(n.items) == 0 {
		r.wrongKind(n, field, "a list of exit codes, such as [65, 78]")
		return codes{}
	}
	for i, item := range n.items {
		l, value := r.integer(item, indexed(field, i))
		if l.set() {
			c.items = append(c.items, integer{l, value})
		}
	}
	return c
}

func (r *reader) numbers(p pair, field string) numbers {
	m := numbers{place: place{p.key, field}}
	if p.value.kind != mapNode || len(p.value.pairs) == 0 {
		r.wrongKind(p.value, field, "a mapping from names to numbers")
		return m
	}
	for _, entry := range p.value.pairs {
		if l, value := r.integer(entry.value, join(field, entry.key.text)); l.set() {
			m.items = append(m.items, rawNumber{entry.key, integer{l, value}})
		}
	}
	return m
}

func indexed(field string, i int) string { return fmt.Sprintf("%s[%d]", field, i) }

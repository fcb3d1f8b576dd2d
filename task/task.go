package task

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"time"
)

// Info is what a call is, besides its arguments.
type Info struct {
	Task      string    // the name
	ID        int64     // of the call, the same in all its attempts
	Scheduled time.Time // the instant that a periodic call is for; zero for any other
	Attempt   int       // from 1
	Attempts  int       // how many there may be
	Run       string    // the run in the ledger of a periodic call, or ""
}

// Call is what a handler gets.
type Call[A any] struct {
	Info
	Args A

	result *result // nil in a call that a test made
}

// MaxResult is how large the JSON of a result may be.
const MaxResult = 64 << 10

// SetResult keeps v, as JSON, to be shown with the call; the last one counts,
// whether the attempt then succeeds or not. What has no JSON, or one larger than
// [MaxResult], is an error, and nothing is kept.
func (c Call[A]) SetResult(v any) error {
	data, err := json.Marshal(v)
	switch {
	case err != nil:
		return fmt.Errorf("the result of task %s has no JSON: %w", c.Task, err)
	case len(data) > MaxResult:
		return fmt.Errorf("the result of task %s is %d bytes of JSON; at most %d are kept", c.Task, len(data), MaxResult)
	}
	if c.result != nil {
		c.result.set(data)
	}
	return nil
}

// result is where an attempt leaves its result.
type result struct {
	mu   sync.Mutex // a handler may set it from several goroutines
	data json.RawMessage
}

func (r *result) set(data json.RawMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.data = data
}

func (r *result) get() json.RawMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.data
}

// Task is a name, a handler and its settings, see [New]. It does not change.
type Task struct {
	name    string
	options Options
	args    reflect.Type
	encode  func(args any) (any, bool) // what to encode, and whether it is of the handler's type
	check   func(args json.RawMessage) error
	do      func(ctx context.Context, info Info, args json.RawMessage, r *result) error
	err     error
}

// New makes a task whose calls have arguments of type A, which is anything that
// encoding/json reads back; struct{} is none. What is wrong with the name or the
// options, [Task.Check] says, as does the engine that the task is given to.
func New[A any](name string, handle func(ctx context.Context, call Call[A]) error, o Options) *Task {
	t := &Task{name: name, options: o.WithDefaults(), args: reflect.TypeFor[A]()}
	t.encode = func(args any) (any, bool) {
		if p, ok := args.(*A); ok && p != nil {
			return *p, true
		}
		a, ok := args.(A)
		return a, ok
	}
	t.check = func(args json.RawMessage) error {
		_, err := decode[A](args)
		return err
	}
	t.do = func(ctx context.Context, info Info, args json.RawMessage, r *result) error {
		a, err := decode[A](args)
		if err != nil {
			return Fail(fmt.Errorf("the arguments of task %s cannot be read: %w", name, err))
		}
		return handle(ctx, Call[A]{Info: info, Args: a, result: r})
	}
	if err := errors.Join(CheckName(name), o.Check()); err != nil {
		t.err = fmt.Errorf("task %q: %w", name, err)
	} else if handle == nil {
		t.err = fmt.Errorf("task %q: it has no handler", name)
	}
	return t
}

// Name is the task's name.
func (t *Task) Name() string { return t.name }

// Options are the task's settings, with the defaults of what was left out.
func (t *Task) Options() Options { return t.options }

// Check says what is wrong with the task's name, handler and options.
func (t *Task) Check() error { return t.err }

// Encode is the JSON of a call's arguments: an A or a *A of the handler's type, or
// nil for none.
func (t *Task) Encode(args any) (json.RawMessage, error) {
	if t == nil {
		return nil, errors.New("the task is nil: is it a variable that was not set yet?")
	}
	if args == nil {
		return nil, nil
	}
	a, ok := t.encode(args)
	if !ok {
		return nil, fmt.Errorf("task %s takes arguments of type %s, not %T", t.name, t.args, args)
	}
	data, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("the arguments of task %s have no JSON: %w", t.name, err)
	}
	// What cannot be read back, such as an interface, would fail with every attempt.
	if err := t.CheckArgs(data); err != nil {
		return nil, err
	}
	return data, nil
}

// CheckArgs reports whether the handler could be given these arguments, which
// came from somewhere else.
func (t *Task) CheckArgs(args json.RawMessage) error {
	if err := t.check(args); err != nil {
		return fmt.Errorf("the arguments of task %s cannot be read: %w", t.name, err)
	}
	return nil
}

// Do executes one attempt and returns the result that it set, whether it
// succeeded or not. Arguments that cannot be read are a final error, a panic is
// one like any other.
func (t *Task) Do(ctx context.Context, info Info, args json.RawMessage) (json.RawMessage, error) {
	if t.err != nil {
		return nil, Fail(t.err)
	}
	r := new(result)
	err := t.attempt(ctx, info, args, r)
	return r.get(), err
}

func (t *Task) attempt(ctx context.Context, info Info, args json.RawMessage, r *result) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, panicked())
		}
	}()
	return t.do(ctx, info, args, r)
}

// decode reads arguments strictly: a field that the handler does not know was
// meant for something. Nothing and null are the zero value.
func decode[A any](data json.RawMessage) (A, error) {
	var a A
	if len(bytes.TrimSpace(data)) == 0 {
		return a, nil
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&a); err != nil {
		return a, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); err != io.EOF {
		return a, errors.New("something follows after them")
	}
	return a, nil
}

// panicked is where the panic that is being recovered came from: the first
// callers, one to a line.
func panicked() string {
	const most = 8
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	var b strings.Builder
	for n, seen := 0, false; n < most; {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			seen = true
		case seen && !strings.HasPrefix(f.Function, "runtime."):
			fmt.Fprintf(&b, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
			n++
		}
		if !more {
			break
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

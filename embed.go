package curfew

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"sync"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/web"
)

// An embedded is the service within an application.
type embedded struct {
	e     *engine
	steps bool   // nothing happens but in Drain
	stop  func() // tells it to end
	abort func() // has it undo what is in hand
	done  chan struct{}
	err   error // when done is closed
	http  http.Handler
}

// Start begins to keep the schedules, to work on runs and to execute calls in this process, as curfew serve does; only HTTP is left
// to the application, see [Curfew.Handler]. It returns when the work has begun. ctx bounds the start only: it is Stop that stops.
// A Curfew starts once.
func (c *Curfew) Start(ctx context.Context) error {
	return c.embed(ctx, false, func(s *service, e *engine, begun func()) error {
		_, err := s.generation(context.WithoutCancel(ctx), Options{}, e, begun)
		return err
	})
}

// embed opens what a service needs, and has it run until it is stopped. It returns when that has begun.
func (c *Curfew) embed(ctx context.Context, steps bool, run func(s *service, e *engine, begun func()) error) error {
	c.starting.Lock()
	defer c.starting.Unlock()
	if c.emb.Load() != nil {
		return fail(KindUsage, "make another one with New", "it was started before")
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return err
	}
	if err := c.Open(ctx); err != nil { // while nobody has a transaction open
		return err
	}
	base, abort := context.WithCancel(context.WithoutCancel(ctx))
	stop := make(chan struct{})
	s := &service{l: l, metrics: web.NewMetrics(), stop: func() {}}
	var over func()
	s.end, over = newEnding(base, stop, StopWithin)
	e, err := s.open(ctx, c)
	if err == nil {
		s.current.Store(e)
		b := &embedded{e: e, steps: steps, stop: sync.OnceFunc(func() { close(stop) }), abort: abort, done: make(chan struct{})}
		if b.http, err = s.handler(e); err == nil {
			begun := make(chan struct{})
			go func() {
				defer close(b.done)
				defer over()
				b.err = run(s, e, sync.OnceFunc(func() { close(begun) }))
			}()
			select {
			case <-begun:
				c.emb.Store(b)
				return nil
			case <-b.done:
				return errors.Join(b.err, c.Close())
			case <-ctx.Done():
				abort()
				<-b.done
				return errors.Join(ctx.Err(), c.Close())
			}
		}
	}
	over()
	abort()
	return err
}

// Stop ends what Start began: it begins nothing more, and waits for what is in hand, until ctx ends; then that is undone, and is
// done again by whoever comes next. It closes all that is open. A Curfew that was not started is only closed.
func (c *Curfew) Stop(ctx context.Context) error {
	b := c.emb.Load()
	if b == nil {
		return c.Close()
	}
	b.stop()
	select {
	case <-b.done:
	case <-ctx.Done():
		b.abort()
		<-b.done
	}
	b.abort()
	return errors.Join(b.err, c.Close())
}

// Handler is the HTTP interface, to be mounted at the root of a host, or with http.StripPrefix below a path: the API, /healthz,
// /readyz and /metrics. Until Start has returned it answers 503.
func (c *Curfew) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if b := c.emb.Load(); b != nil {
			b.http.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.Header().Set("Retry-After", "1")
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(w).Encode(api.Problem{Type: "about:blank", Title: http.StatusText(http.StatusServiceUnavailable),
			Status: http.StatusServiceUnavailable, Detail: "it has not been started"})
	})
}

const (
	// idleEvery is how often Drain looks whether what was begun is done.
	idleEvery = time.Millisecond
	// stepEvery is how long it waits for that before it looks at everything again.
	stepEvery = 50 * time.Millisecond
)

// Drain does in this process what is due by the ledger's clock, and returns when nothing is: occurrences that have come, the runs
// and the calls. It is for programs that are started from time to time instead of Start, and for tests; it goes on where the
// last Drain, or any other process, has stopped. What is due later is left, see [Curfew.NextDue].
func (c *Curfew) Drain(ctx context.Context) error {
	e, err := c.stepping(ctx)
	if err != nil {
		return err
	}
	e.queue.Release()
	defer e.queue.Hold()
	for first := true; ; first = false {
		busy, err := e.step(ctx, first)
		if err != nil || !busy {
			return err
		}
		if err := e.settle(ctx); err != nil {
			return err
		}
	}
}

// settle waits until nothing executes here, or for so long that there may be something else to do.
func (e *engine) settle(ctx context.Context) error {
	for until := time.Now().Add(stepEvery); time.Now().Before(until); {
		if err := pause(ctx, idleEvery); err != nil {
			return err
		}
		idle, err := e.queue.Idle(ctx)
		if err != nil {
			return err
		}
		if _, n := e.draining(""); idle && n == 0 {
			return nil
		}
	}
	return nil
}

// stepping is the engine of a Curfew that is not started: its queue works, and nothing happens by itself.
func (c *Curfew) stepping(ctx context.Context) (*engine, error) {
	if c.emb.Load() == nil {
		err := c.embed(ctx, true, func(s *service, e *engine, begun func()) error {
			told := s.end.told
			e.queue.Hold()
			err := e.begin(told)
			if err == nil {
				begun()
				<-told.Done()
			}
			return errors.Join(err, e.wind(told, s.end))
		})
		if err != nil {
			return nil, err
		}
	}
	b := c.emb.Load()
	if !b.steps {
		return nil, fail(KindUsage, "a service does what is due by itself", "it was started")
	}
	return b.e, nil
}

// step looks once at everything that may be due, and reports whether there is something to wait for. The first step of a drain looks at
// every schedule, for what others may have done since the last; those that follow at the ones that are due, or of which something
// ended here.
func (e *engine) step(ctx context.Context, first bool) (busy bool, err error) {
	if e.stepStages == nil {
		if e.stepStages, err = e.schedules(); err != nil {
			return false, err
		}
	}
	// What ends from here on may let something else begin that the ticks below did not see.
	still, err := e.queue.Idle(ctx)
	if err != nil {
		return false, err
	}
	_, before := e.draining("")
	ended := e.takeEnded()
	now, err := e.l.Now(ctx)
	if err != nil {
		return false, err
	}
	for _, st := range e.stepStages {
		if !first && !ended[st.p.Name] && now.Before(st.next) {
			continue
		}
		did, err := e.tickOne(ctx, st, now)
		if err != nil {
			return false, err
		}
		still = still && !did
	}
	runs, err := e.superviseOnce(ctx)
	if err != nil {
		return false, err
	}
	if err := e.callsOnce(ctx, false); err != nil {
		return false, err
	}
	if err := e.queue.MakeDue(ctx); err != nil {
		return false, err
	}
	idle, err := e.queue.Idle(ctx)
	if err != nil {
		return false, err
	}
	_, after := e.draining("")
	return runs > 0 || before > 0 || after > 0 || !still || !idle, nil
}

// NextDue is the next instant, after the ledger's now, at which Drain would find something to do: one of a schedule, or of a call
// that waits for its time or for another attempt. False when there is none.
func (c *Curfew) NextDue(ctx context.Context) (time.Time, bool, error) {
	now, err := c.now(ctx)
	if err != nil {
		return time.Time{}, false, err
	}
	var next time.Time
	sooner := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	for _, p := range c.timed() {
		if cron, ok := scheduleOf(p); ok {
			if t, comes := cron.Next(now); comes {
				sooner(t)
			}
		}
	}
	q, err := c.inserter(ctx)
	if err != nil {
		return time.Time{}, false, err
	}
	t, ok, err := q.NextCall(ctx)
	if err != nil {
		return time.Time{}, false, ledgerError(err)
	}
	if ok {
		sooner(t)
	}
	return next, !next.IsZero(), nil
}

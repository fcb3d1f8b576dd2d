package curfew

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"curfew.dev/curfew/internal/alert"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/web"
)

// ServeOptions say how to serve.
type ServeOptions struct {
	Listen      string // address of the HTTP interface; default DefaultListen. Workers alone have none
	WorkersOnly bool   // execute batches; leave schedules, runs and HTTP to other processes

	// Stop, when it is closed, ends the service within StopWithin: batches in hand are finished, everything else is left
	// where the ledger has it. That is no failure. Cancelling the context aborts the batches, too.
	Stop       <-chan struct{}
	StopWithin time.Duration // default the constant of that name
	// Reload makes the service read the policy file again, for each value received. A file that cannot be read is logged, and
	// the one before stays in force.
	Reload <-chan struct{}
	// Listening, when set, is called with the address once requests are answered, and with "" when workers alone are ready.
	Listening func(addr string)
}

// DefaultListen is where the HTTP interface is, unless said otherwise: on this machine only.
const DefaultListen = "127.0.0.1:8421"

// Serve opens the policy file and keeps its schedules until it is told to stop. Any number of processes may serve one ledger.
func Serve(ctx context.Context, opts Options, so ServeOptions) error {
	end, over := newEnding(ctx, so.Stop, cmp.Or(so.StopWithin, StopWithin))
	defer over()
	s := &service{so: so, end: end, metrics: web.NewMetrics()}
	c, err := New(opts)
	if err != nil {
		return err
	}
	if s.l, err = ledger.Open(end.told, c.ledgerOptions()); err != nil {
		return end.soft(ledgerError(err))
	}
	defer func() { _ = end.wait(s.l.Close) }()
	c.lent = s.l // one for the whole process: SQLite's writers queue in it, in order
	e, err := s.open(end.told, c)
	if err != nil {
		return end.soft(errors.Join(err, end.wait(c.Close)))
	}
	s.current.Store(e)
	s.stop = func() {}
	if !so.WorkersOnly {
		if s.stop, err = s.listen(ctx, e); err != nil {
			return errors.Join(err, end.wait(c.Close))
		}
	} else if so.Listening != nil {
		so.Listening("")
	}
	defer s.stop()
	for {
		next, err := s.generation(ctx, opts, e, func() {})
		if err != nil || next == nil {
			return err
		}
		e = next
	}
}

// service is what outlives a reload: the address it listens on, its counters, and the ledger.
type service struct {
	l       *ledger.Ledger
	stop    func() // answers no more requests
	so      ServeOptions
	end     *ending
	metrics *web.Metrics
	current atomic.Pointer[engine]
	begun   atomic.Bool
}

func (s *service) open(ctx context.Context, c *Curfew) (*engine, error) {
	if _, err := c.schedules(); err != nil {
		return nil, err
	}
	e, err := newEngine(ctx, c, s.metrics)
	if err != nil {
		return nil, err
	}
	if e.begun = &s.begun; s.so.WorkersOnly {
		return e, nil
	}
	for _, v := range c.stray {
		message, hint := strayInWords(v)
		c.log.WarnContext(ctx, "variable_without_effect", "variable", v.Name, "err", message, "hint", hint)
	}
	for _, p := range c.file.Policies { // a text that changed is told, whenever it runs next
		id, body := p.Revision()
		if err := e.l.PutInForce(ctx, p.Name, id, body, c.source()); err != nil {
			return nil, errors.Join(ledgerError(err), e.qdb.Close())
		}
	}
	if err := e.retireGone(ctx); err != nil {
		return nil, errors.Join(ledgerError(err), e.qdb.Close())
	}
	return e, nil
}

// generation serves under one policy file until the service stops (nil) or another file takes its place (its engine).
// begun is called when it has begun to work.
func (s *service) generation(ctx context.Context, opts Options, e *engine, begun func()) (*engine, error) {
	alerts, err := e.alerts()
	if err != nil {
		return nil, errors.Join(err, e.qdb.Close())
	}
	run, stop := context.WithCancel(s.end.told)
	defer stop()
	done := make(chan error, 1)
	go func() {
		done <- e.run(run, s.end, s.so.WorkersOnly, func(ctx context.Context) {
			if !s.so.WorkersOnly {
				e.loops.Go(ctx, "lag", e.watchLag)
				e.loops.Go(ctx, "alerts", watchAlerts(alerts))
			}
			begun()
		})
	}()
	for {
		var next *engine
		select {
		case err := <-done: // it could not begin, or ctx is done
			return nil, errors.Join(err, s.end.wait(e.c.Close))
		case <-s.end.told.Done():
			e.c.log.InfoContext(ctx, "stopping", "within", s.end.within.String())
			go s.stop() // answers while the batches in hand come to their end
		case <-s.so.Reload:
			if next = s.reload(s.end.told, opts, e); next == nil {
				continue
			}
			s.current.Store(next)
		}
		stop()
		return next, errors.Join(s.end.wait(func() error { return <-done }), s.end.wait(e.c.Close))
	}
}

// reload reads the policy file again and ends what left it. Nil when the file that is in force stays so.
func (s *service) reload(ctx context.Context, opts Options, old *engine) *engine {
	old.c.log.DebugContext(ctx, "reloading")
	c, err := New(opts)
	if err == nil {
		c.lent = s.l
		var e *engine
		if c.file.Ledger != old.c.file.Ledger {
			err = fail(KindRefused, "restart the service for another ledger", "the file names another ledger")
		} else if e, err = s.open(ctx, c); err == nil {
			c.log.InfoContext(ctx, "reloaded", "policies", len(c.file.Policies))
			return e
		}
		err = errors.Join(err, c.Close())
	}
	old.c.log.ErrorContext(ctx, "reload_refused", "err", err, "hint", "the policy file of before stays in force")
	return nil
}

// listen answers requests until the function that it returns is called.
func (s *service) listen(ctx context.Context, e *engine) (stop func(), err error) {
	addr := s.so.Listen
	if addr == "" {
		addr = DefaultListen
	}
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		hint := "give an address of this machine and a port, as in " + DefaultListen
		if errors.Is(err, syscall.EADDRINUSE) {
			hint = "is another curfew serving there? --listen names another address"
		}
		return nil, &Error{Kind: KindRefused, Err: fmt.Errorf("listen on %s: %w", addr, err), Hint: hint}
	}
	h, err := s.handler(e)
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	server := web.Server(h, e.c.log)
	go func() {
		if err := server.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			e.c.log.ErrorContext(ctx, "http_ended", "err", err)
		}
	}()
	e.c.log.InfoContext(ctx, "listening", "address", ln.Addr().String())
	if s.so.Listening != nil {
		s.so.Listening(ln.Addr().String())
	}
	return sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(s.end.late, 5*time.Second)
		defer cancel()
		if err := server.Shutdown(ctx); err != nil {
			server.Close()
		}
	}), nil
}

// handler answers requests, about whichever engine is in force when they come.
func (s *service) handler(e *engine) (http.Handler, error) {
	f := front{s.current.Load}
	return web.New(web.Options{Ledger: s.l, Engine: f, Holds: f, Tasks: f, Problem: problem, Metrics: s.metrics, Logger: e.c.log})
}

// alerts is the loop that tells people, as the policy file wants it.
func (e *engine) alerts() (*alert.Loop, error) {
	o := alert.Options{Ledger: e.l, Logger: e.c.log, Lag: func(name string) time.Duration {
		p, err := e.c.file.Policy(name)
		if err != nil {
			return 0
		}
		return p.Limits.RetentionLag
	}}
	if w := e.c.file.Alerts.Webhook; w != nil {
		o.WebhookURL, o.WebhookSecret = w.URL, w.Secret
	}
	if p := e.c.file.Alerts.Ping; p != nil {
		o.PingURL = p.URL
	}
	l, err := alert.New(o)
	if err != nil {
		return nil, &Error{Kind: KindConfig, Err: err}
	}
	return l, nil
}

// watchAlerts runs the loop, and makes the service not ready when it does not get through.
func watchAlerts(l *alert.Loop) func(context.Context, func()) error {
	return func(ctx context.Context, beat func()) error {
		ended := make(chan error, 1)
		go func() { ended <- l.Run(ctx) }()
		every := time.NewTicker(time.Second)
		defer every.Stop()
		for {
			select {
			case err := <-ended:
				return err
			case <-every.C:
			}
			if l.Alive() == nil {
				beat()
			}
		}
	}
}

package web

import (
	"cmp"
	"log/slog"
	"net/http"
	"runtime/debug"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
)

// server answers the requests.
type server struct {
	ledger  *ledger.Ledger
	engine  Engine
	problem func(error) api.Problem
	holds   Holds
	tasks   Tasks
	metrics *Metrics
	log     *slog.Logger
	clock   func() time.Time

	calls   *limiter // by token
	refused *limiter // by address
	full    *limiter // by token: how often the ledger is told that it calls too often
	ready   readiness
	mux     *http.ServeMux
}

func newServer(o Options) http.Handler {
	s := &server{ledger: o.Ledger, engine: o.Engine, holds: o.Holds, tasks: o.Tasks, problem: o.Problem, metrics: o.Metrics, log: o.Logger, clock: o.Clock, mux: http.NewServeMux()}
	if s.problem == nil {
		s.problem = func(error) api.Problem { return api.Problem{} }
	}
	if s.metrics == nil {
		s.metrics = NewMetrics()
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.clock == nil {
		s.clock = time.Now
	}
	s.calls = newLimiter(cmp.Or(o.CallsPerSecond, 10), cmp.Or(o.CallBurst, 50), s.clock)
	s.refused = newLimiter(cmp.Or(o.RefusedPerSecond, 1), cmp.Or(o.RefusedBurst, 20), s.clock)
	s.full = newLimiter(1, 1, s.clock)
	gauges := newGauges(o.Ledger.NewMeter(), s.engine, s.tasks, s.clock)

	s.mux.HandleFunc("POST /v1/policies/{policy}/runs", s.trigger)
	s.mux.Handle("POST /v1/runs/{id}/approve", s.answer(ledger.ScopeAdmin, s.approve))
	s.mux.Handle("POST /v1/runs/{id}/cancel", s.answer(ledger.ScopeAdmin, s.cancel))
	s.mux.Handle("GET /v1/runs", s.answer(ledger.ScopeRead, s.runs))
	s.mux.Handle("GET /v1/runs/{id}", s.answer(ledger.ScopeRead, s.run))
	s.mux.Handle("GET /v1/policies", s.answer(ledger.ScopeRead, s.policies))
	s.mux.Handle("GET /v1/occurrences", s.answer(ledger.ScopeRead, s.occurrences))
	s.mux.Handle("GET /v1/calls", s.answer(ledger.ScopeRead, s.listCalls))
	if s.holds != nil {
		s.mux.Handle("GET /v1/holds", s.answer(ledger.ScopeRead, s.listHolds))
		s.mux.Handle("POST /v1/holds", s.answer(ledger.ScopeAdmin, s.placeHold))
		s.mux.Handle("DELETE /v1/holds/{name}", s.answer(ledger.ScopeAdmin, s.releaseHold))
	}
	if s.tasks != nil {
		s.mux.HandleFunc("POST /v1/tasks/{task}/calls", s.deferCall)
		s.mux.Handle("GET /v1/tasks", s.answer(ledger.ScopeRead, s.listTasks))
		s.mux.Handle("GET /v1/tasks/{task}/calls", s.answer(ledger.ScopeRead, s.listTaskCalls))
		s.mux.Handle("GET /v1/tasks/{task}/calls/{id}", s.answer(ledger.ScopeRead, s.taskCall))
		s.mux.Handle("POST /v1/tasks/{task}/calls/{id}/retry", s.answer(ledger.ScopeAdmin, s.retryCall))
		s.mux.Handle("POST /v1/tasks/{task}/calls/{id}/discard", s.answer(ledger.ScopeAdmin, s.discardCall))
	}
	s.mux.HandleFunc("GET /healthz", s.healthz)
	s.mux.HandleFunc("GET /readyz", s.readyz)
	s.mux.Handle("GET /metrics", s.metrics.handler(gauges, s.log))

	// A browser has no business here yet; one that was lured here sends no token either, but need not get that far.
	foreign := http.NewCrossOriginProtection()
	foreign.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, api.Problem{Status: http.StatusForbidden, Detail: "this request came from another site's page"})
	}))
	return s.guard(foreign.Handler(http.HandlerFunc(s.route)))
}

// guard sets what every answer has, and turns a panic into an answer.
func (s *server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler {
				panic(p)
			}
			s.log.ErrorContext(r.Context(), "http_panic", "pattern", r.Pattern, "err", p, "stack", string(debug.Stack()))
			writeProblem(w, api.Problem{Status: http.StatusInternalServerError, Detail: "this is a bug of curfew; its log says more"})
		}()
		next.ServeHTTP(w, r)
	})
}

// route gives the mux's own two answers, 404 and 405, the form of all others.
func (s *server) route(w http.ResponseWriter, r *http.Request) {
	h, pattern := s.mux.Handler(r)
	if pattern != "" {
		s.mux.ServeHTTP(w, r)
		return
	}
	probe := &statusOnly{header: http.Header{}}
	h.ServeHTTP(probe, r)
	p := api.Problem{Status: cmp.Or(probe.status, http.StatusNotFound), Detail: "there is nothing at this address"}
	if allow := probe.header.Get("Allow"); allow != "" {
		w.Header().Set("Allow", allow)
		p.Detail = "this address takes " + allow
	}
	writeProblem(w, p)
}

// statusOnly is a response that keeps no body.
type statusOnly struct {
	header http.Header
	status int
}

func (p *statusOnly) Header() http.Header         { return p.header }
func (p *statusOnly) Write(b []byte) (int, error) { return len(b), nil }
func (p *statusOnly) WriteHeader(status int)      { p.status = status }

package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/internal/ledger"
)

// engine stands in for the root package, on a real ledger: it accepts every run of the policy "circulation".
type engine struct {
	l *ledger.Ledger

	mu       sync.Mutex
	requests []TriggerRequest
	runs     []RunFilter
	checks   []Check
	asked    int // how often Ready was
	statuses []api.PolicyStatus
	fail     error
}

var (
	errNoPolicy = errors.New("there is no such policy")
	errBroken   = errors.New("broken")
)

func (e *engine) Trigger(ctx context.Context, req TriggerRequest) (Triggered, error) {
	e.mu.Lock()
	e.requests = append(e.requests, req)
	fail := e.fail
	e.mu.Unlock()
	if fail != nil {
		return Triggered{}, fail
	}
	if req.Policy != "circulation" {
		return Triggered{}, errNoPolicy
	}
	body := []byte(`{}`)
	a := ledger.Acceptance{Policy: req.Policy, Stage: req.Stage, Mode: "enforce", Identity: "minute", Cause: "http", AsOf: req.AsOf,
		Cutoff:   func(at time.Time) time.Time { return at },
		Revision: body, RevisionID: ledger.RevisionID(body), Actor: req.Token}
	var r ledger.Run
	var fresh bool
	var err error
	if req.Key != "" {
		a.Operation, a.Identity = req.Key, ledger.IdentityKey(req.Key)
		r, fresh, err = e.l.AcceptOperation(ctx, a, req.BodyHash)
	} else {
		r, fresh, err = e.l.Accept(ctx, a)
	}
	if err != nil {
		return Triggered{}, err
	}
	return Triggered{Run: api.Run{ID: r.ID, Policy: r.Policy, Stage: r.Stage, State: string(r.State), AsOf: r.AsOf}, Fresh: fresh}, nil
}

func (e *engine) Cancel(ctx context.Context, id, _ string) (api.Run, error) {
	r, err := e.l.End(ctx, id, ledger.Cancelled, ledger.WhyCancelled, "")
	return api.Run{ID: r.ID, State: string(r.State)}, err
}

func (e *engine) Approve(ctx context.Context, id, actor, reason string) (api.Run, error) {
	r, err := e.l.Approve(ctx, id, "token:"+actor, reason)
	return api.Run{ID: r.ID, State: string(r.State)}, err
}

func (e *engine) Runs(_ context.Context, f RunFilter) ([]api.Run, string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.runs = append(e.runs, f)
	return nil, "", e.fail
}

func (e *engine) Run(ctx context.Context, id string) (api.RunDetail, error) {
	r, err := e.l.Get(ctx, id)
	return api.RunDetail{Run: api.Run{ID: r.ID}}, err
}

func (e *engine) Policies(context.Context) ([]api.PolicyStatus, error) { return e.statuses, nil }

func (e *engine) Occurrences(context.Context, OccurrenceFilter) ([]api.OccurrenceItem, string, error) {
	return []api.OccurrenceItem{{Policy: "circulation", State: api.OccurrenceMissed}}, "more", nil
}

func (e *engine) Ready(context.Context) []Check {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked++
	return e.checks
}

// site is the interface on a real ledger, with a token for each scope.
type site struct {
	t      *testing.T
	l      *ledger.Ledger
	e      *engine
	h      http.Handler
	tokens map[string]string
	logged *bytes.Buffer // everything that was logged, at every level
	clock  *clock
}

type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) pass(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

type lockedBuffer struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (b lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// onBoth runs a test against a fresh ledger on each engine.
func onBoth(t *testing.T, test func(s *site), edit ...func(*Options)) {
	for name, url := range map[string]func(*testing.T) string{
		"sqlite":   func(t *testing.T) string { return "sqlite:" + dbtest.SQLite(t) },
		"postgres": func(t *testing.T) string { return dbtest.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			opts := ledger.Options{URL: url(t), Actor: "test"}
			if _, err := ledger.Migrate(t.Context(), opts); err != nil {
				t.Fatal(err)
			}
			l, err := ledger.Open(t.Context(), opts)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { l.Close() })
			s := &site{t: t, l: l, e: &engine{l: l}, tokens: map[string]string{}, logged: &bytes.Buffer{}, clock: &clock{now: time.Now()}}
			for _, scope := range ledger.Scopes {
				if s.tokens[scope], err = l.CreateToken(t.Context(), scope+"-token", []string{scope}); err != nil {
					t.Fatal(err)
				}
			}
			o := Options{Ledger: l, Engine: s.e, Clock: s.clock.Now,
				Logger: slog.New(slog.NewJSONHandler(lockedBuffer{&sync.Mutex{}, s.logged}, &slog.HandlerOptions{Level: slog.LevelDebug})),
				Problem: func(err error) api.Problem {
					if errors.Is(err, errNoPolicy) {
						return api.Problem{Status: 404, Hint: "curfew check lists them"}
					}
					if errors.Is(err, errBroken) {
						return api.Problem{Status: 500}
					}
					return api.Problem{}
				}}
			for _, e := range edit {
				e(&o)
			}
			if s.h, err = New(o); err != nil {
				t.Fatal(err)
			}
			test(s)
			for _, secret := range s.tokens {
				if strings.Contains(s.logged.String(), secret[4:]) {
					t.Errorf("a token was logged:\n%s", s.logged)
				}
			}
		})
	}
}

// answer is a response, read.
type answer struct {
	status int
	header http.Header
	body   string
}

// as returns an edit that sends the token of a scope.
func (s *site) as(scope string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+s.tokens[scope]) }
}

func with(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

func (s *site) do(method, target, body string, edit ...func(*http.Request)) answer {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for _, e := range edit {
		e(r)
	}
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, r)
	res := w.Result()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		s.t.Error(err)
	}
	a := answer{res.StatusCode, res.Header, string(b)}
	if a.status >= 400 {
		s.checkProblem(method+" "+target, a)
	}
	if a.header.Get("X-Content-Type-Options") != "nosniff" {
		s.t.Errorf("%s %s: nosniff is missing", method, target)
	}
	return a
}

// checkProblem checks the form that every error has.
func (s *site) checkProblem(what string, a answer) {
	s.t.Helper()
	if strings.HasPrefix(what, "GET /readyz") {
		return
	}
	var p api.Problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || p.Status != a.status || p.Type == "" || p.Title == "" || p.Detail == "" ||
		a.header.Get("Content-Type") != "application/problem+json" {
		s.t.Errorf("%s: %d %v %s: no problem of RFC 9457: %v", what, a.status, a.header, a.body, err)
	}
	if (a.status == 429) != (a.header.Get("Retry-After") != "") && a.status != 503 {
		s.t.Errorf("%s: %d with Retry-After %q", what, a.status, a.header.Get("Retry-After"))
	}
}

const runsOf = "/v1/policies/circulation/runs"

// calls are what the ledger has recorded, the first first.
func (s *site) calls() []ledger.Call {
	s.t.Helper()
	calls, err := s.l.Calls(s.t.Context(), ledger.CallFilter{Limit: 1000})
	if err != nil {
		s.t.Fatal(err)
	}
	for i, j := 0, len(calls)-1; i < j; i, j = i+1, j-1 {
		calls[i], calls[j] = calls[j], calls[i]
	}
	return calls
}

package web

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
)

const (
	listDefault = 100
	listMost    = 1000
)

// page is how a list is sent.
type page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next"` // to be sent as before; "" at the end
}

func pageOf[T any](items []T, next string) page[T] {
	if items == nil {
		items = []T{}
	}
	return page[T]{items, next}
}

// answer makes a handler of what needs a token with a scope and returns what is to be sent.
func (s *server) answer(scope string, do func(r *http.Request, token ledger.Token) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := s.authorise(r, scope)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		if wait := s.calls.take(token.Name); wait > 0 {
			s.fail(w, r, tooMany(wait, "this token calls too often"))
			return
		}
		v, err := do(r, token)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		writeJSON(w, http.StatusOK, v)
	})
}

// fail answers with an error and returns what it was answered with.
func (s *server) fail(w http.ResponseWriter, r *http.Request, err error) *refusal {
	refused := s.problemOf(err)
	if refused.Status >= http.StatusInternalServerError {
		s.log.ErrorContext(r.Context(), "http_failed", "pattern", r.Pattern, "status", refused.Status, "err", err)
	}
	refused.write(w)
	return refused
}

// query reads the parameters of a list. One that does not exist is refused: without it the list would be another one.
type query struct {
	values url.Values
	err    error
}

func queryOf(r *http.Request, known ...string) *query {
	values, err := url.ParseQuery(r.URL.RawQuery)
	q := &query{values: values}
	if err != nil {
		q.refuse("the query is not well formed")
	}
	for name, v := range values {
		if !slices.Contains(known, name) || len(v) != 1 {
			q.refuse("the query has a parameter that does not exist or is there twice")
		}
	}
	return q
}

func (q *query) refuse(format string, args ...any) {
	if q.err == nil {
		q.err = refuse(http.StatusUnprocessableEntity, "", format, args...)
	}
}

func (q *query) get(name string) string { return q.values.Get(name) }

func (q *query) number(name string, otherwise int64) int64 {
	text := q.get(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 {
		q.refuse("%s is not a positive number", name)
	}
	return n
}

func (q *query) limit() int { return int(min(q.number("limit", listDefault), listMost)) }

func (q *query) instant(name string) time.Time {
	text := q.get(name)
	if text == "" {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339Nano, text)
	if err != nil || at.UTC().Year() < 1 || at.UTC().Year() > 9999 {
		q.refuse("%s is not an instant such as 2026-07-01T02:00:00Z", name)
	}
	return at
}

func (s *server) runs(r *http.Request, _ ledger.Token) (any, error) {
	q := queryOf(r, "policy", "state", "before", "limit")
	f := RunFilter{Policy: q.get("policy"), State: q.get("state"), Before: q.get("before"), Limit: q.limit()}
	if q.err != nil {
		return nil, q.err
	}
	items, next, err := s.engine.Runs(r.Context(), f)
	return pageOf(items, next), err
}

func (s *server) run(r *http.Request, _ ledger.Token) (any, error) {
	return s.engine.Run(r.Context(), r.PathValue("id"))
}

func (s *server) cancel(r *http.Request, token ledger.Token) (any, error) {
	// What ends a run must not end half-way because the caller hung up.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), within)
	defer cancel()
	return s.engine.Cancel(ctx, r.PathValue("id"), token.Name)
}

func (s *server) policies(r *http.Request, _ ledger.Token) (any, error) {
	if q := queryOf(r); q.err != nil {
		return nil, q.err
	}
	items, err := s.engine.Policies(r.Context())
	return pageOf(items, ""), err
}

func (s *server) occurrences(r *http.Request, _ ledger.Token) (any, error) {
	q := queryOf(r, "policy", "stage", "state", "before", "limit")
	f := OccurrenceFilter{Policy: q.get("policy"), Stage: q.get("stage"), State: q.get("state"), Before: q.get("before"), Limit: q.limit()}
	if q.err != nil {
		return nil, q.err
	}
	items, next, err := s.engine.Occurrences(r.Context(), f)
	return pageOf(items, next), err
}

func (s *server) listCalls(r *http.Request, _ ledger.Token) (any, error) {
	q := queryOf(r, "policy", "since", "before", "limit")
	f := ledger.CallFilter{Policy: q.get("policy"), Since: q.instant("since"), Before: q.number("before", 0), Limit: q.limit()}
	if q.err != nil {
		return nil, q.err
	}
	calls, err := s.ledger.Calls(r.Context(), f)
	if err != nil {
		return nil, err
	}
	items := make([]api.Call, len(calls))
	next := ""
	for i, c := range calls {
		items[i] = api.Call{At: c.At, Token: c.Token, Policy: c.Policy, Stage: c.Stage, Answer: c.Answer, Run: c.Run, Fresh: c.Fresh, Detail: c.Detail}
	}
	if len(calls) == f.Limit {
		next = strconv.FormatInt(calls[len(calls)-1].ID, 10)
	}
	return pageOf(items, next), nil
}

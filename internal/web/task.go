package web

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
)

// Tasks is what the requests about tasks are about; the root package implements it.
type Tasks interface {
	// Defer has a task called. It returns when the call is in the ledger.
	Defer(ctx context.Context, req DeferRequest) (api.TaskCall, error)
	// Tasks says how each task is doing.
	Tasks(ctx context.Context) ([]api.Task, error)
	// Calls lists calls, the newest first, and says where to read on.
	Calls(ctx context.Context, f CallFilter) (items []api.TaskCall, next string, err error)
	// Call gives one call of a task.
	Call(ctx context.Context, task string, id int64) (api.TaskCall, error)
	// RetryCall has a call that failed for good executed again.
	RetryCall(ctx context.Context, task string, id int64, actor string) (api.TaskCall, error)
	// DiscardCall gives a call up.
	DiscardCall(ctx context.Context, task string, id int64, actor, reason string) (api.TaskCall, error)
}

// DeferRequest asks for a call.
type DeferRequest struct {
	Task     string
	Args     json.RawMessage
	At       *time.Time
	In       time.Duration
	Unique   string
	Priority int
	Key      string   // Idempotency-Key, or ""
	BodyHash [32]byte // of what the body says
	Token    string   // the token's name
}

// CallFilter selects calls.
type CallFilter struct {
	Task, State string
	Before      int64
	Limit       int // always set
}

// deferBody is what may be asked for.
type deferBody struct {
	Args     json.RawMessage `json:"args"`
	At       *time.Time      `json:"at"`
	In       string          `json:"in"`
	Unique   string          `json:"unique"`
	Priority int             `json:"priority"`
}

const deferHint = `the body is {} or {"args": {…}, "in": "10m", "at": "2026-07-01T02:00:00Z", "unique": "…", "priority": 2}`

// deferCall answers a request for a call of a task: every one with a valid token is a row that says what came of it.
func (s *server) deferCall(w http.ResponseWriter, r *http.Request) {
	token, call, ok := s.letIn(w, r, ledger.ScopeDefer, r.PathValue("task"))
	if !ok {
		return
	}
	req, err := s.readDefer(w, r, token)
	var made api.TaskCall
	if err == nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), within)
		defer cancel()
		made, err = s.tasks.Defer(ctx, req)
	}
	if err != nil {
		s.record(r, call, s.problemOf(err))
		s.refusedTrigger(w, r, err)
		return
	}
	call.Run, call.Fresh = "call "+strconv.FormatInt(made.ID, 10), !made.Duplicate
	s.accepted(w, r, call, "/v1/tasks/"+made.Task+"/calls/"+strconv.FormatInt(made.ID, 10), made)
}

// readDefer reads the request.
func (s *server) readDefer(w http.ResponseWriter, r *http.Request, token ledger.Token) (DeferRequest, error) {
	req := DeferRequest{Task: r.PathValue("task"), Token: token.Name}
	if r.URL.RawQuery != "" {
		return req, refuse(http.StatusUnprocessableEntity, "put it in the body", "this address takes no query parameters")
	}
	var err error
	if req.Key, err = idempotencyKey(r); err != nil {
		return req, err
	}
	if err := checkType(r); err != nil {
		return req, err
	}
	text, err := readUpTo(w, r, maxArgs)
	if err != nil {
		return req, err
	}
	var b deferBody
	if len(text) > 0 {
		if err := decodeObject(text, map[string]any{"args": &b.Args, "at": &b.At, "in": &b.In, "unique": &b.Unique, "priority": &b.Priority}, deferHint); err != nil {
			return req, err
		}
	}
	req.Args, req.At, req.Unique, req.Priority = b.Args, b.At, b.Unique, b.Priority
	if b.In != "" {
		if req.In, err = time.ParseDuration(b.In); err != nil || req.In <= 0 {
			return req, refuse(http.StatusUnprocessableEntity, deferHint, "in is no length of time")
		}
	}
	switch {
	case b.At != nil && b.In != "":
		return req, refuse(http.StatusUnprocessableEntity, "give one of them", "at and in are both given")
	case b.At != nil && (b.At.UTC().Year() < 1970 || b.At.UTC().Year() > 9999):
		return req, refuse(http.StatusUnprocessableEntity, deferHint, "at is outside the years 1970 to 9999")
	case len(b.Unique) > maxKey:
		return req, refuse(http.StatusUnprocessableEntity, "", "unique is longer than %d bytes", maxKey)
	case b.Priority < 0 || b.Priority > 4:
		return req, refuse(http.StatusUnprocessableEntity, deferHint, "priority is 1, which comes first, to 4")
	}
	canonical, err := json.Marshal(b) // spaces and order make no other one
	if err != nil {
		return req, refuse(http.StatusUnprocessableEntity, deferHint, "the body is not JSON")
	}
	req.BodyHash = sha256.Sum256(canonical)
	return req, nil
}

func (s *server) listTasks(r *http.Request, _ ledger.Token) (any, error) {
	if q := queryOf(r); q.err != nil {
		return nil, q.err
	}
	items, err := s.tasks.Tasks(r.Context())
	return pageOf(items, ""), err
}

func (s *server) listTaskCalls(r *http.Request, _ ledger.Token) (any, error) {
	q := queryOf(r, "state", "before", "limit")
	f := CallFilter{Task: r.PathValue("task"), State: q.get("state"), Before: q.number("before", 0), Limit: q.limit()}
	if q.err != nil {
		return nil, q.err
	}
	items, next, err := s.tasks.Calls(r.Context(), f)
	return pageOf(items, next), err
}

func callID(r *http.Request) (int64, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil || id < 1 {
		return 0, refuse(http.StatusNotFound, "", "there is no such call")
	}
	return id, nil
}

func (s *server) taskCall(r *http.Request, _ ledger.Token) (any, error) {
	id, err := callID(r)
	if err != nil {
		return nil, err
	}
	return s.tasks.Call(r.Context(), r.PathValue("task"), id)
}

func (s *server) retryCall(r *http.Request, token ledger.Token) (any, error) {
	id, err := callID(r)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), within)
	defer cancel()
	return s.tasks.RetryCall(ctx, r.PathValue("task"), id, token.Name)
}

func (s *server) discardCall(r *http.Request, token ledger.Token) (any, error) {
	id, err := callID(r)
	if err != nil {
		return nil, err
	}
	var b struct {
		Reason string `json:"reason"`
	}
	if err := readStrictly(r, &b); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), within)
	defer cancel()
	return s.tasks.DiscardCall(ctx, r.PathValue("task"), id, token.Name, b.Reason)
}

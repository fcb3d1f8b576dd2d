package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
)

// refusal is an answer that a handler gives as an error.
type refusal struct {
	api.Problem
	retryAfter time.Duration // 0: none
}

func (r *refusal) Error() string { return r.Detail }

// refuse makes a refusal. The text goes to the caller, and into the ledger as the call's detail: it repeats no header and
// no body.
func refuse(status int, hint, format string, args ...any) *refusal {
	return &refusal{Problem: api.Problem{Status: status, Hint: hint, Detail: fmt.Sprintf(format, args...)}}
}

// busyFor is what a caller is told to wait when a database is out of reach.
const busyFor = 5 * time.Second

// problemOf says how an error is answered. What the ledger says about the request itself has its status here, wherever it
// was wrapped; everything else is for Options.Problem, and is the server's fault when that does not know it either.
func (s *server) problemOf(err error) *refusal {
	var own *refusal
	if errors.As(err, &own) {
		return own
	}
	r := &refusal{Problem: s.problem(err)}
	var sticks *ledger.AsOfSticksError
	var future *ledger.FutureError
	var ambiguous *ledger.AmbiguousError
	switch {
	case errors.Is(err, ledger.ErrOtherBody), errors.As(err, &sticks), errors.As(err, &future), errors.As(err, &ambiguous):
		r.Status = http.StatusUnprocessableEntity
	case errors.Is(err, ledger.ErrNotFound):
		r.Status = http.StatusNotFound
	case errors.Is(err, ledger.ErrRunEnded):
		r.Status = http.StatusConflict
	}
	if r.Status == 0 {
		r.Problem = api.Problem{Status: http.StatusInternalServerError}
	}
	if r.Status >= http.StatusInternalServerError {
		// Only Options.Problem may tell what is in such an error; otherwise it goes to the log alone.
		r.Detail = cmp.Or(r.Detail, "the request failed; curfew's log says why")
	}
	r.Detail = cmp.Or(r.Detail, err.Error())
	if r.Status == http.StatusServiceUnavailable {
		r.retryAfter = busyFor
	}
	return r
}

func (r *refusal) write(w http.ResponseWriter) {
	if r.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(max(1, int(math.Ceil(r.retryAfter.Seconds())))))
	}
	if r.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="curfew"`)
	}
	writeProblem(w, r.Problem)
}

// writeProblem fills in what a problem leaves open.
func writeProblem(w http.ResponseWriter, p api.Problem) {
	p.Type = cmp.Or(p.Type, "about:blank")
	p.Title = cmp.Or(p.Title, http.StatusText(p.Status))
	write(w, p.Status, "application/problem+json", p)
}

func writeJSON(w http.ResponseWriter, status int, v any) { write(w, status, "application/json", v) }

func write(w http.ResponseWriter, status int, contentType string, v any) {
	body, err := json.Marshal(v)
	if err != nil { // only types of api come here, and all of them can be told
		panic(err)
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that went away is no news
}

package web

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"curfew.dev/curfew/internal/ledger"
)

const (
	maxBody = 64 << 10
	maxArgs = 1 << 20 // of a call of a task, arguments and all
	maxKey  = 200     // of an Idempotency-Key
	// within bounds the work for one trigger, which goes on when the caller hangs up: what it asked for is then in the
	// ledger, and its next try finds it.
	within = 30 * time.Second
)

// trigger answers a request for a run. The scan is never waited for: pressure is the dispatcher's matter.
func (s *server) trigger(w http.ResponseWriter, r *http.Request) {
	token, call, ok := s.letIn(w, r, ledger.ScopeTrigger, r.PathValue("policy"))
	if !ok {
		return
	}
	req, err := s.readTrigger(w, r, token)
	call.Stage = req.Stage
	if err != nil {
		if refused := s.problemOf(err); refused.Status != http.StatusForbidden && refused.Status != http.StatusTooManyRequests {
			s.record(r, call, refused)
		}
		s.refusedTrigger(w, r, err)
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), within)
	defer cancel()
	triggered, err := s.engine.Trigger(ctx, req)
	if err != nil {
		s.record(r, call, s.problemOf(err))
		s.refusedTrigger(w, r, err)
		return
	}
	call.Run, call.Fresh = triggered.Run.ID, triggered.Fresh
	s.accepted(w, r, call, "/v1/runs/"+triggered.Run.ID, triggered.Run)
}

// letIn answers who may not ask for a run or a call: without a good token, without the scope, or too often. Of others it begins the
// record of what they asked.
func (s *server) letIn(w http.ResponseWriter, r *http.Request, scope, subject string) (ledger.Token, ledger.Call, bool) {
	token, err := s.authorise(r, scope)
	if err != nil {
		s.refusedTrigger(w, r, err)
		return token, ledger.Call{}, false
	}
	call := ledger.Call{Token: token.Name, Policy: subject}
	wait := s.calls.take(token.Name)
	if wait == 0 {
		return token, call, true
	}
	refused := tooMany(wait, "this token calls too often")
	// A row a second says as much as a thousand, and a caller in a loop cannot fill the ledger.
	if s.full.take(token.Name) == 0 {
		s.record(r, call, refused)
	}
	s.refusedTrigger(w, r, refused)
	return token, call, false
}

// accepted records a call that led to something, and says where that is.
func (s *server) accepted(w http.ResponseWriter, r *http.Request, call ledger.Call, location string, v any) {
	s.record(r, call, nil)
	s.metrics.triggers.WithLabelValues(strconv.Itoa(http.StatusAccepted)).Inc()
	w.Header().Set("Location", location)
	writeJSON(w, http.StatusAccepted, v)
}

func (s *server) refusedTrigger(w http.ResponseWriter, r *http.Request, err error) {
	refused := s.fail(w, r, err)
	s.metrics.triggers.WithLabelValues(strconv.Itoa(refused.Status)).Inc()
}

// record keeps the call. The run itself is in the ledger by then, with who asked for it: a call that cannot be recorded
// is told in the log, and answered all the same.
func (s *server) record(r *http.Request, call ledger.Call, refused *refusal) {
	call.Answer = http.StatusAccepted
	if refused != nil {
		call.Answer, call.Detail = refused.Status, refused.Detail
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), within)
	defer cancel()
	if err := s.ledger.RecordCall(ctx, call); err != nil {
		s.log.WarnContext(ctx, "call_not_recorded", "token", call.Token, "answer", call.Answer, "run", call.Run, "err", err)
	}
}

// triggerBody is what may be asked for.
type triggerBody struct {
	AsOf   *time.Time `json:"as_of"`
	Stage  string     `json:"stage"`
	Shadow bool       `json:"shadow"`
}

// hash is of what the body means.
func (b triggerBody) hash() [32]byte {
	if b.AsOf != nil {
		asOf := b.AsOf.UTC()
		b.AsOf = &asOf
	}
	text, err := json.Marshal(b)
	if err != nil { // an instant outside the years 0 to 9999, which readBody has refused
		panic(err)
	}
	return sha256.Sum256(text)
}

// readTrigger reads the request. What it returns beside an error is as much as could be read.
func (s *server) readTrigger(w http.ResponseWriter, r *http.Request, token ledger.Token) (TriggerRequest, error) {
	req := TriggerRequest{Policy: r.PathValue("policy"), Token: token.Name}
	if r.URL.RawQuery != "" {
		// ?shadow=true that nobody reads would delete rows.
		return req, refuse(http.StatusUnprocessableEntity, "put it in the body: {\"stage\": …, \"shadow\": true}", "this address takes no query parameters")
	}
	var err error
	if req.Key, err = idempotencyKey(r); err != nil {
		return req, err
	}
	body, err := readBody(w, r)
	req.Stage, req.AsOf, req.Shadow = body.Stage, body.AsOf, body.Shadow
	if err != nil {
		return req, err
	}
	if body.AsOf != nil {
		if !token.Allows(ledger.ScopeAdmin) {
			return req, s.lacks(r, token, ledger.ScopeAdmin, "as_of")
		}
		if req.Key == "" {
			return req, refuse(http.StatusUnprocessableEntity, "send a header Idempotency-Key that names this backfill", "as_of needs a key of your own")
		}
	}
	req.BodyHash = body.hash()
	return req, nil
}

func idempotencyKey(r *http.Request) (string, error) {
	keys := r.Header.Values("Idempotency-Key")
	if len(keys) == 0 {
		return "", nil
	}
	bad := func(c rune) bool { return c <= ' ' || c > '~' }
	if len(keys) > 1 || keys[0] == "" || len(keys[0]) > maxKey || strings.ContainsFunc(keys[0], bad) {
		return "", refuse(http.StatusUnprocessableEntity, "", "Idempotency-Key is one header of 1 to %d visible ASCII characters", maxKey)
	}
	return keys[0], nil
}

// readBody reads the body strictly: a field that is misspelt, in other letters, there twice or null is refused, because
// what it was meant to prevent would happen without it. No body at all is {}.
func readBody(w http.ResponseWriter, r *http.Request) (triggerBody, error) {
	var body triggerBody
	if err := checkType(r); err != nil {
		return body, err
	}
	text, err := readText(w, r)
	if err != nil {
		return body, err
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return body, nil
	}
	return body, body.decode(text)
}

// readText reads a body to its end.
func readText(w http.ResponseWriter, r *http.Request) ([]byte, error) { return readUpTo(w, r, maxBody) }

func readUpTo(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if err != nil {
		var big *http.MaxBytesError
		if errors.As(err, &big) {
			return nil, refuse(http.StatusRequestEntityTooLarge, "", "the body is larger than %d bytes", most)
		}
		return nil, refuse(http.StatusBadRequest, "", "the body could not be read to its end")
	}
	return text, nil
}

func (b *triggerBody) decode(text []byte) error {
	const hint = `the body is {} or {"as_of": "2026-07-01T02:00:00Z", "stage": "…", "shadow": true}`
	if err := decodeObject(text, map[string]any{"as_of": &b.AsOf, "stage": &b.Stage, "shadow": &b.Shadow}, hint); err != nil {
		return err
	}
	if b.AsOf != nil && (b.AsOf.UTC().Year() < 1 || b.AsOf.UTC().Year() > 9999) {
		return refuse(http.StatusUnprocessableEntity, hint, "as_of is outside the years 1 to 9999")
	}
	return nil
}

// decodeObject reads a JSON object into its fields, and refuses whatever is in it besides.
func decodeObject(text []byte, fields map[string]any, hint string) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return refuse(http.StatusUnprocessableEntity, hint, "the body is not a JSON object")
	}
	for dec.More() {
		name, err := dec.Token()
		if err != nil {
			return refuse(http.StatusUnprocessableEntity, hint, "the body is not JSON")
		}
		field, _ := name.(string)
		into := fields[field]
		if into == nil {
			return refuse(http.StatusUnprocessableEntity, hint, "the body has a field that does not exist or is there twice")
		}
		delete(fields, field)
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return refuse(http.StatusUnprocessableEntity, hint, "the body is not JSON")
		}
		if string(value) == "null" || json.Unmarshal(value, into) != nil {
			return refuse(http.StatusUnprocessableEntity, hint, "%s is not what it has to be", field)
		}
	}
	if _, err := dec.Token(); err != nil {
		return refuse(http.StatusUnprocessableEntity, hint, "the body is not JSON")
	}
	if _, err := dec.Token(); err != io.EOF {
		return refuse(http.StatusUnprocessableEntity, hint, "there is something after the body's JSON")
	}
	return nil
}

// checkType refuses what is said to be something else than JSON, but for what common clients say of any text.
func checkType(r *http.Request) error {
	wrong := refuse(http.StatusUnsupportedMediaType, "send Content-Type: application/json", "the body is not said to be JSON")
	if enc := r.Header.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return wrong
	}
	header := r.Header.Get("Content-Type")
	if header == "" {
		return nil
	}
	kind, _, err := mime.ParseMediaType(header)
	switch {
	case err != nil:
		return wrong
	case kind == "application/json", kind == "text/plain", kind == "application/octet-stream",
		kind == "application/x-www-form-urlencoded", // curl -d
		strings.HasPrefix(kind, "application/") && strings.HasSuffix(kind, "+json"):
		return nil
	}
	return wrong
}

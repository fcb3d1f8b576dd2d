package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/hold"
	"curfew.dev/curfew/internal/ledger"
)

// Holds is what the requests about legal holds are about; the root package implements it.
type Holds interface {
	// Holds lists the holds; released ones with all, values with values.
	Holds(ctx context.Context, all, values bool) ([]api.Hold, error)
	// PlaceHold places a hold. Beside an error the hold is given when it was recorded: then it is not in force everywhere.
	PlaceHold(ctx context.Context, req HoldRequest) (api.Hold, error)
	// ReleaseHold releases one.
	ReleaseHold(ctx context.Context, name, actor, reason string) (api.Hold, error)
}

// HoldRequest asks for a hold.
type HoldRequest struct {
	Name, Reason, Policy, Database, Table, Subject string
	Where                                          []hold.Condition
	Token                                          string // the token's name, for the audit log
}

func (s *server) listHolds(r *http.Request, token ledger.Token) (any, error) {
	q := queryOf(r, "all")
	if all := q.get("all"); all != "" && all != "true" {
		q.refuse("all is true, or left out")
	}
	if q.err != nil {
		return nil, q.err
	}
	items, err := s.holds.Holds(r.Context(), q.get("all") != "", token.Allows(ledger.ScopeAdmin))
	return pageOf(items, ""), err
}

// placeBody is what may be asked for.
type placeBody struct {
	Name     string            `json:"name"`
	Reason   string            `json:"reason"`
	Policy   string            `json:"policy"`
	Database string            `json:"database"`
	Table    string            `json:"table"`
	Where    map[string]string `json:"where"`
	Subject  string            `json:"subject"`
}

func (s *server) placeHold(r *http.Request, token ledger.Token) (any, error) {
	var b placeBody
	if err := readStrictly(r, &b); err != nil {
		return nil, err
	}
	req := HoldRequest{Name: b.Name, Reason: b.Reason, Policy: b.Policy, Database: b.Database, Table: b.Table, Subject: b.Subject, Token: token.Name}
	for column, value := range b.Where {
		req.Where = append(req.Where, hold.Condition{Column: column, Value: value})
	}
	ctx, cancel := holdContext(r)
	defer cancel()
	return s.holds.PlaceHold(ctx, req)
}

func (s *server) releaseHold(r *http.Request, token ledger.Token) (any, error) {
	var b struct {
		Reason string `json:"reason"`
	}
	if err := readStrictly(r, &b); err != nil {
		return nil, err
	}
	ctx, cancel := holdContext(r)
	defer cancel()
	return s.holds.ReleaseHold(ctx, r.PathValue("name"), token.Name, b.Reason)
}

// holdContext bounds what is asked for about a hold, which goes on when the caller hangs up: half done, it would stop every run.
func holdContext(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.Context()), within)
}

// readStrictly reads a body. What it says of it never repeats it.
func readStrictly(r *http.Request, into any) error {
	if r.URL.RawQuery != "" {
		return refuse(http.StatusUnprocessableEntity, "put it in the body", "this address takes no query parameters")
	}
	if err := checkType(r); err != nil {
		return err
	}
	text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if errors.As(err, new(*http.MaxBytesError)) {
		return refuse(http.StatusRequestEntityTooLarge, "", "the body is larger than %d bytes", maxBody)
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "", "the body could not be read to its end")
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	bad := refuse(http.StatusUnprocessableEntity, `{"name": "12-C-345", "reason": "…", "subject": "4711"} places a hold, {"reason": "…"} releases one`, "the body is not what it has to be")
	if dec.Decode(into) != nil {
		return bad
	}
	if _, err := dec.Token(); err != io.EOF {
		return bad
	}
	return nil
}

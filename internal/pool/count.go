package pool

import (
	"cmp"
	"context"
	"net/http"
)

// What is counted beside the data before a run begins: numbers cross, and nothing of a row.

const pathCounts = "/v1/counts"

// The questions.
const (
	askChanging = "changing" // rows that the run would change
	askScope    = "scope"    // rows that its policy is about
	askBeyond   = "beyond"   // rows that it would change and another text of the policy would not, and what that one would
)

type countRequest struct {
	Run
	Ask   string `json:"ask"`
	Limit int64  `json:"limit,omitempty"` // where to stop; 0: nowhere
	Old   string `json:"old,omitempty"`   // the other text, to the byte
}

type countAnswer struct {
	Rows  int64  `json:"rows"`
	Was   int64  `json:"was,omitempty"`
	Fault string `json:"fault,omitempty"` // why the other text cannot be asked
}

// A Comparison is what another text of a policy would change, and what the run would change beyond that.
type Comparison struct {
	Was, Extra int64
	Fault      string // why that text cannot be asked; "" when it can
}

func (s *Server) count(w http.ResponseWriter, r *http.Request) error {
	var req countRequest
	if err := cmp.Or(read(w, r, &req), req.check()); err != nil {
		return err
	}
	if req.Limit < 0 {
		return refuse(http.StatusUnprocessableEntity, "", "limit is negative")
	}
	job, err := s.o.Jobs.Bind(r.Context(), req.Run)
	if err != nil {
		return err
	}
	var a countAnswer
	switch req.Ask {
	case askChanging:
		a.Rows, err = job.CountChanging(r.Context(), req.Limit)
	case askScope:
		a.Rows, err = job.CountScope(r.Context(), req.Limit)
	case askBeyond:
		var c Comparison
		c, err = job.Compare(r.Context(), req.Old)
		a = countAnswer{Rows: c.Extra, Was: c.Was, Fault: c.Fault}
	default:
		return refuse(http.StatusUnprocessableEntity, "", "ask is none of the questions")
	}
	if err != nil {
		return err
	}
	write(w, http.StatusOK, a)
	return nil
}

func (r *Remote) counted(ctx context.Context, req countRequest) (countAnswer, error) {
	req.Run = r.know()
	var a countAnswer
	err := r.patiently(ctx, func() error {
		a = countAnswer{}
		_, err := r.c.do(ctx, http.MethodPost, pathCounts, nil, req, &a)
		return err
	})
	return a, err
}

// CountChanging counts the rows that the run would change, up to a limit when that is above 0.
func (r *Remote) CountChanging(ctx context.Context, limit int64) (int64, error) {
	a, err := r.counted(ctx, countRequest{Ask: askChanging, Limit: limit})
	return a.Rows, err
}

// CountScope counts the rows that the run's policy is about, up to a limit when that is above 0.
func (r *Remote) CountScope(ctx context.Context, limit int64) (int64, error) {
	a, err := r.counted(ctx, countRequest{Ask: askScope, Limit: limit})
	return a.Rows, err
}

// Compare asks another text of the policy what it would change at the run's as_of.
func (r *Remote) Compare(ctx context.Context, old string) (Comparison, error) {
	a, err := r.counted(ctx, countRequest{Ask: askBeyond, Old: old})
	return Comparison{Was: a.Was, Extra: a.Rows, Fault: a.Fault}, err
}

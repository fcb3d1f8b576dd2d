package web

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
)

// holds stands in for the root package.
type holds struct {
	placed   []HoldRequest
	released []string
}

func (h *holds) Holds(_ context.Context, all, values bool) ([]api.Hold, error) {
	one := api.Hold{Name: "court", State: api.HoldInForce, Where: []string{"id"}}
	if values {
		one.Where = []string{"id=secret"}
	}
	if all {
		return []api.Hold{one, {Name: "old", State: api.HoldReleased}}, nil
	}
	return []api.Hold{one}, nil
}

func (h *holds) PlaceHold(_ context.Context, req HoldRequest) (api.Hold, error) {
	h.placed = append(h.placed, req)
	return api.Hold{Name: req.Name, State: api.HoldInForce}, nil
}

func (h *holds) ReleaseHold(_ context.Context, name, actor, reason string) (api.Hold, error) {
	h.released = append(h.released, name+" "+actor+" "+reason)
	return api.Hold{Name: name, State: api.HoldReleased}, nil
}

// Reading holds takes the scope read and shows no values; placing and releasing them takes admin. A body that is not understood
// whole places nothing, and is not repeated.
func TestHolds(t *testing.T) {
	h := &holds{}
	onBoth(t, func(s *site) {
		*h = holds{}
		read, admin := s.as(ledger.ScopeRead), s.as(ledger.ScopeAdmin)
		if a := s.do("GET", "/v1/holds", "", read); a.status != http.StatusOK || strings.Contains(a.body, "secret") || !strings.Contains(a.body, `"court"`) || strings.Contains(a.body, `"old"`) {
			s.t.Errorf("%d %s", a.status, a.body)
		}
		if a := s.do("GET", "/v1/holds?all=true", "", admin); !strings.Contains(a.body, "id=secret") || !strings.Contains(a.body, `"old"`) {
			s.t.Errorf("%d %s", a.status, a.body)
		}
		place := `{"name": "court", "reason": "order", "policy": "circulation", "where": {"id": "secret"}}`
		for _, c := range []struct {
			what, method, path, body string
			as                       func(*http.Request)
			status                   int
		}{
			{"placing with read", "POST", "/v1/holds", place, read, http.StatusForbidden},
			{"releasing with read", "DELETE", "/v1/holds/court", "", read, http.StatusForbidden},
			{"placing with trigger", "POST", "/v1/holds", place, s.as(ledger.ScopeTrigger), http.StatusForbidden},
			{"a field that does not exist", "POST", "/v1/holds", `{"name": "court", "secret": 1}`, admin, http.StatusUnprocessableEntity},
			{"no JSON", "POST", "/v1/holds", `secret`, admin, http.StatusUnprocessableEntity},
			{"two bodies", "POST", "/v1/holds", place + place, admin, http.StatusUnprocessableEntity},
			{"values in the URL", "POST", "/v1/holds?subject=secret", place, admin, http.StatusUnprocessableEntity},
			{"a query that does not exist", "GET", "/v1/holds?secret=1", "", admin, http.StatusUnprocessableEntity},
			{"all as no flag", "GET", "/v1/holds?all=secret", "", admin, http.StatusUnprocessableEntity},
		} {
			if a := s.do(c.method, c.path, c.body, c.as); a.status != c.status || strings.Contains(a.body, "secret") {
				s.t.Errorf("%s: %d %s", c.what, a.status, a.body)
			}
		}
		if len(h.placed)+len(h.released) > 0 {
			s.t.Errorf("refused and done: %+v", h)
		}
		if a := s.do("POST", "/v1/holds", place, admin); a.status != http.StatusOK || len(h.placed) != 1 || h.placed[0].Token == "" || h.placed[0].Where[0].Value != "secret" {
			s.t.Errorf("%d %s %+v", a.status, a.body, h.placed)
		}
		if a := s.do("DELETE", "/v1/holds/court", `{"reason": "settled"}`, admin); a.status != http.StatusOK || len(h.released) != 1 || !strings.HasPrefix(h.released[0], "court ") || !strings.HasSuffix(h.released[0], " settled") {
			s.t.Errorf("%d %s %+v", a.status, a.body, h.released)
		}
	}, func(o *Options) { o.Holds = h })
}

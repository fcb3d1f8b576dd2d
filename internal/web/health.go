package web

import (
	"context"
	"net/http"
	"sync"
	"time"
)

const (
	// readyFor is how long an answer about readiness is good: whoever asks needs no token, and asking costs the ledger.
	readyFor    = time.Second
	readyWithin = 5 * time.Second
)

// readiness is the last answer. Who holds mu is asking; the others wait for what it is told.
type readiness struct {
	mu     sync.Mutex
	at     time.Time
	checks []Check
}

// healthz says that the process lives, and nothing about anything it depends on: restarting it would not help those.
func (s *server) healthz(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok"})
}

// health is the body of /readyz. It names what failed; how is in the log, for who may read that.
type health struct {
	Ready  bool     `json:"ready"`
	Failed []string `json:"failed"`
	Passed []string `json:"passed"`
}

func (s *server) readyz(w http.ResponseWriter, r *http.Request) {
	h := health{Ready: true, Failed: []string{}, Passed: []string{}}
	for _, c := range s.checks(r.Context()) {
		if c.Err != nil {
			h.Ready, h.Failed = false, append(h.Failed, c.Name)
		} else {
			h.Passed = append(h.Passed, c.Name)
		}
	}
	status := http.StatusOK
	if !h.Ready {
		status = http.StatusServiceUnavailable
	}
	writeJSON(w, status, h)
}

func (s *server) checks(ctx context.Context) []Check {
	s.ready.mu.Lock()
	defer s.ready.mu.Unlock()
	if now := s.clock(); s.ready.at.IsZero() || now.Sub(s.ready.at) >= readyFor || now.Before(s.ready.at) {
		// Not the asker's context: the next one gets the same answer, and may still be there.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyWithin)
		defer cancel()
		was := map[string]bool{}
		for _, c := range s.ready.checks {
			was[c.Name] = c.Err != nil
		}
		s.ready.checks = s.engine.Ready(ctx)
		s.ready.at = s.clock()
		for _, c := range s.ready.checks {
			switch failed := c.Err != nil; {
			case failed && !was[c.Name]:
				s.log.WarnContext(ctx, "check_failed", "check", c.Name, "err", c.Err)
			case !failed && was[c.Name]:
				s.log.InfoContext(ctx, "check_passed", "check", c.Name)
			}
		}
	}
	return s.ready.checks
}

package worker

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/policy"
)

// receiver is a web server that remembers.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	keys   []string
	bodies []string
	answer func(n int, w http.ResponseWriter, r *http.Request, body []byte)
}

func (l *lab) receiver(answer func(n int, w http.ResponseWriter, r *http.Request, body []byte)) *receiver {
	x := &receiver{answer: answer}
	x.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		x.mu.Lock()
		key := r.Header.Get("Idempotency-Key") + r.Header.Get("Webhook-Id")
		x.keys, x.bodies = append(x.keys, key), append(x.bodies, string(body))
		n := len(x.keys)
		x.mu.Unlock()
		if x.answer != nil {
			x.answer(n, w, r, body)
		}
	}))
	l.Cleanup(x.Close)
	return x
}

func (x *receiver) seen() (keys, bodies []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]string(nil), x.keys...), append([]string(nil), x.bodies...)
}

func (x *receiver) requests() int {
	keys, _ := x.seen()
	return len(keys)
}

func (x *receiver) byKey() map[string]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := map[string]int{}
	for _, k := range x.keys {
		out[k]++
	}
	return out
}

func (l *lab) call(x *receiver, per policy.Per) *policy.Policy {
	return l.notice(func(p *policy.Policy) {
		p.Action = policy.Action{Kind: policy.Call, Request: &policy.Request{URL: x.URL, Method: "POST", Token: "t0ken", Per: per, Timeout: 200 * time.Millisecond}}
	})
}

func TestCallPerRow(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(4)
		slow := make(chan struct{})
		defer close(slow)
		x := l.receiver(func(n int, w http.ResponseWriter, r *http.Request, body []byte) {
			var b callBody
			if err := json.Unmarshal(body, &b); err != nil || len(b.Rows) != 1 || b.Policy != "trials" || !b.AsOf.Equal(asOf) || r.Header.Get("Authorization") != "Bearer t0ken" {
				l.Errorf("%s %v", body, err)
			}
			switch id := fmt.Sprint(b.Rows[0].Key["id"]); {
			case id == "1" && n < 6:
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusServiceUnavailable)
			case id == "2" && n < 6:
				<-slow
			case id == "3":
				w.WriteHeader(http.StatusConflict)
			}
		})
		outcomes, reasons := l.run(l.call(x, policy.PerRow), "").all()
		l.want("outcomes", outcomes, map[string]int64{"called": 3, "failed": 1})
		l.want("reasons", reasons, map[string]int{"the receiver answered 409 Conflict": 1})
		if keys := x.byKey(); len(keys) != 4 || x.requests() < 6 {
			l.Errorf("%v", keys)
		}
	})
}

// A time-out is followed by the very same request, in this process or in the next one.
func TestCallPerBatch(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(4)
		slow := make(chan struct{})
		defer close(slow)
		x := l.receiver(func(n int, w http.ResponseWriter, r *http.Request, body []byte) {
			if n <= 2 {
				<-slow
			}
		})
		p := l.call(x, policy.PerBatch)
		first := l.run(p, "one")
		first.w.Tell.Waits = nil
		work := first.batches()[0]
		if _, err := first.w.Execute(l.Context(), work); err == nil || !strings.Contains(err.Error(), "no answer in time") {
			l.Fatal(err)
		}
		outcomes, reasons := map[string]int64{}, map[string]int{}
		l.run(p, "one").add(work, outcomes, reasons)
		l.want("outcomes", outcomes, map[string]int64{"called": 4})
		if keys, bodies := x.seen(); len(x.byKey()) != 1 || len(keys) != 3 || bodies[0] != bodies[2] {
			l.Errorf("%v %v", keys, bodies)
		}
	})
}

// Rows of a request that may have arrived are not sent without one of them: then nobody knows, and nobody is told again.
func TestCallPerBatchWithdrawn(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(3)
		slow := make(chan struct{})
		defer close(slow)
		x := l.receiver(func(int, http.ResponseWriter, *http.Request, []byte) { <-slow })
		hookAt(l, "sending", 2, func() { l.exec("UPDATE organization SET ends = '2027-01-01 00:00:00' WHERE id = 2") })
		outcomes, reasons := l.run(l.call(x, policy.PerBatch), "").all()
		l.want("outcomes", outcomes, map[string]int64{"failed": 3})
		l.want("reasons", reasons, map[string]int{"uncertain: it may have arrived, and is not sent again because the row is not due any more or is held": 3})
		if n := x.requests(); n != 1 {
			l.Errorf("%d requests", n)
		}
	})
}

func TestCallRefusesBatch(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(3)
		x := l.receiver(func(_ int, w http.ResponseWriter, _ *http.Request, _ []byte) { w.WriteHeader(http.StatusForbidden) })
		outcomes, _ := l.run(l.call(x, policy.PerBatch), "").all()
		l.want("outcomes", outcomes, map[string]int64{"failed": 3})
		if n := x.requests(); n != 1 {
			l.Errorf("%d requests", n)
		}
	})
}

// The next process repeats a request that was under way when the last one died, under its id.
func TestWebhookAfterDeath(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(2)
		x := l.receiver(nil)
		p := l.notice(func(p *policy.Policy) {
			p.Action.Message = &policy.Message{Webhook: &policy.Endpoint{URL: x.URL, Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}
		})
		first := l.run(p, "one")
		work := first.batches()[0]
		hookAt(l, "sent", 1, func() { panic("died") })
		func() {
			defer func() { recover() }()
			first.w.Execute(l.Context(), work)
		}()
		target.TestHook = nil
		outcomes, reasons := map[string]int64{}, map[string]int{}
		l.run(p, "one").add(work, outcomes, reasons)
		l.want("outcomes", outcomes, map[string]int64{"notified": 2})
		if keys := x.byKey(); len(keys) != 2 || x.requests() != 3 {
			l.Errorf("%v", keys)
		}
		for k := range x.byKey() {
			if !strings.HasPrefix(k, "msg_") {
				l.Errorf("id %q", k)
			}
		}
	})
}

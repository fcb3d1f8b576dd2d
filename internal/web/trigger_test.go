package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
)

func TestTrigger(t *testing.T) {
	onBoth(t, func(s *site) {
		t := s.t
		first := s.do("POST", runsOf, `{}`, s.as("trigger"))
		if first.status != http.StatusAccepted {
			t.Fatalf("%d %s", first.status, first.body)
		}
		var run api.Run
		if err := json.Unmarshal([]byte(first.body), &run); err != nil || first.header.Get("Location") != "/v1/runs/"+run.ID || run.State != "accepted" {
			t.Errorf("%v %s", first.header, first.body)
		}
		again := s.do("POST", runsOf, ``, s.as("admin"))
		if again.status != http.StatusAccepted || again.body != first.body {
			t.Errorf("again: %d %s", again.status, again.body)
		}
		if a := s.do("POST", "/v1/policies/nothing/runs", `{"stage":"x"}`, s.as("trigger")); a.status != 404 || !strings.Contains(a.body, "curfew check lists them") {
			t.Errorf("an unknown policy: %d %s", a.status, a.body)
		}
		want := []ledger.Call{
			{Token: "trigger-token", Policy: "circulation", Answer: 202, Run: run.ID, Fresh: true},
			{Token: "admin-token", Policy: "circulation", Answer: 202, Run: run.ID},
			{Token: "trigger-token", Policy: "nothing", Stage: "x", Answer: 404, Detail: errNoPolicy.Error()},
		}
		if d := cmp.Diff(want, s.calls(), cmpopts.IgnoreFields(ledger.Call{}, "ID", "At")); d != "" {
			t.Error(d)
		}
		if a := s.do("GET", first.header.Get("Location"), "", s.as("read")); a.status != 200 {
			t.Errorf("the run's address: %d %s", a.status, a.body)
		}
	})
}

// TestTriggerKey: the same key is the same answer, with another body it is refused; and what the body means counts, not
// how it is written.
func TestTriggerKey(t *testing.T) {
	onBoth(t, func(s *site) {
		t := s.t
		post := func(body string, edit ...func(*http.Request)) answer {
			return s.do("POST", runsOf, body, append(edit, s.as("admin"))...)
		}
		key := with("Idempotency-Key", "backfill-june")
		first := post(`{"as_of":"2025-07-01T02:00:00Z"}`, key)
		same := post(`{ "shadow" : false, "stage": "", "as_of" : "2025-07-01T04:00:00+02:00" }`, key)
		if first.status != 202 || same.status != 202 || first.body != same.body {
			t.Errorf("%d %s, then %d %s", first.status, first.body, same.status, same.body)
		}
		for _, body := range []string{``, `{}`, `{"as_of":"2025-07-01T02:00:00.000001Z"}`, `{"as_of":"2025-07-01T02:00:00Z","shadow":true}`} {
			if a := post(body, key); a.status != 422 {
				t.Errorf("another body, %s: %d %s", body, a.status, a.body)
			}
		}
		if a := post(`{"as_of":"2999-07-01T02:00:00Z"}`, with("Idempotency-Key", "future")); a.status != 422 {
			t.Errorf("the future: %d %s", a.status, a.body)
		}
		if a := post(`{"as_of":"2025-07-01T02:00:00Z"}`); a.status != 422 {
			t.Errorf("as_of without a key: %d %s", a.status, a.body)
		}
		rows := len(s.calls())
		if a := s.do("POST", runsOf, `{"as_of":"2025-07-01T02:00:00Z"}`, key, s.as("trigger")); a.status != 403 {
			t.Errorf("as_of without scope admin: %d %s", a.status, a.body)
		}
		if n := len(s.calls()); n != rows {
			t.Errorf("a call without the scope left %d rows", n-rows)
		}
	})
}

// TestTriggerRefused: what nobody understands starts nothing, and is a row.
func TestTriggerRefused(t *testing.T) {
	onBoth(t, func(s *site) {
		t := s.t
		n := 0
		for _, c := range []struct {
			status       int
			target, body string
			edit         func(*http.Request)
		}{
			{422, "", `{"shaddow":true}`, nil},
			{422, "", `{"Shadow":true}`, nil},
			{422, "", `{"shadow":true,"shadow":false}`, nil},
			{422, "", `{"shadow":"true"}`, nil},
			{422, "", `{"shadow":null}`, nil},
			{422, "", `{"stage":1}`, nil},
			{422, "", `{"as_of":"2026-07-01"}`, nil},
			{422, "", `{"as_of":"2026-07-01T02:00:00"}`, nil},
			{422, "", `{"as_of":"0000-07-01T02:00:00Z"}`, nil},
			{422, "", `{"as_of":1751335200}`, nil},
			{422, "", `[]`, nil},
			{422, "", `null`, nil},
			{422, "", `"x"`, nil},
			{422, "", `{`, nil},
			{422, "", `{"stage":"a"`, nil},
			{422, "", `{} {}`, nil},
			{422, "", `{}x`, nil},
			{422, "", `stage=pause`, nil},
			{422, "?shadow=true", `{}`, nil},
			{422, "?", `{"x":1}`, nil},
			{422, "", `{}`, with("Idempotency-Key", "")},
			{422, "", `{}`, with("Idempotency-Key", "a b")},
			{422, "", `{}`, with("Idempotency-Key", strings.Repeat("k", 201))},
			{422, "", `{}`, func(r *http.Request) { r.Header["Idempotency-Key"] = []string{"a", "b"} }},
			{415, "", `{}`, with("Content-Type", "multipart/form-data; boundary=x")},
			{415, "", `{}`, with("Content-Type", "text/html")},
			{415, "", `{}`, with("Content-Encoding", "gzip")},
			{413, "", `{"stage":"` + strings.Repeat("a", maxBody) + `"}`, nil},
		} {
			edit := []func(*http.Request){s.as("trigger")}
			if c.edit != nil {
				edit = append(edit, c.edit)
			}
			a := s.do("POST", runsOf+c.target, c.body, edit...)
			if a.status != c.status {
				t.Errorf("%s %.40s: %d %s, want %d", c.target, c.body, a.status, a.body, c.status)
			}
			n++
			s.clock.pass(time.Second)
		}
		calls := s.calls()
		if len(calls) != n || len(s.e.requests) != 0 {
			t.Errorf("%d rows of %d calls, %d reached the engine", len(calls), n, len(s.e.requests))
		}
		for _, c := range calls {
			if c.Answer < 400 || c.Run != "" || c.Detail == "" || strings.Contains(c.Detail, "shaddow") {
				t.Errorf("%+v", c)
			}
		}
		for _, kind := range []string{"application/json; charset=utf-8", "application/x-www-form-urlencoded", "application/vnd.x+json", "text/plain"} {
			if a := s.do("POST", runsOf, `{}`, s.as("trigger"), with("Content-Type", kind)); a.status != 202 {
				t.Errorf("%s: %d", kind, a.status)
			}
		}
	})
}

// TestTriggerTogether: a hundred calls at once are one run, and a hundred rows of which one made it.
func TestTriggerTogether(t *testing.T) {
	onBoth(t, func(s *site) {
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				if a := s.do("POST", runsOf, `{}`, s.as("trigger")); a.status != 202 {
					s.t.Errorf("%d %s", a.status, a.body)
				}
			})
		}
		wg.Wait()
		fresh, runs := 0, map[string]bool{}
		calls := s.calls()
		for _, c := range calls {
			runs[c.Run] = true
			if c.Fresh {
				fresh++
			}
		}
		if len(calls) != 100 || fresh != 1 || len(runs) != 1 {
			s.t.Errorf("%d rows, %d fresh, %d runs", len(calls), fresh, len(runs))
		}
	}, func(o *Options) { o.CallBurst = 100 })
}

func TestTriggerTooOften(t *testing.T) {
	onBoth(t, func(s *site) {
		t := s.t
		got := map[int]int{}
		var wait int
		for range 60 {
			a := s.do("POST", runsOf, `{}`, s.as("trigger"))
			if got[a.status]++; a.status == 429 {
				wait, _ = strconv.Atoi(a.header.Get("Retry-After"))
			}
		}
		if d := cmp.Diff(map[int]int{202: 50, 429: 10}, got); d != "" {
			t.Error(d)
		}
		if a := s.do("POST", runsOf, `{}`, s.as("admin")); a.status != 202 {
			t.Errorf("another token waits too: %d", a.status)
		}
		if n := len(s.calls()); n != 52 {
			t.Errorf("%d rows, want 50, one for those that were too many within the second, and the other token's", n)
		}
		s.clock.pass(time.Duration(wait) * time.Second)
		if a := s.do("POST", runsOf, `{}`, s.as("trigger")); a.status != 202 {
			t.Errorf("after Retry-After %d: %d", wait, a.status)
		}
	})
}

// TestTriggerFails: an error that nobody knows is not told to the caller, but in the log.
func TestTriggerFails(t *testing.T) {
	onBoth(t, func(s *site) {
		for _, fail := range []error{errors.New("dial tcp 10.0.0.1: password=hunter2"), fmt.Errorf("%w: password=hunter2", errBroken)} {
			s.e.fail = fail
			a := s.do("POST", runsOf, `{}`, s.as("trigger"))
			if a.status != 500 || strings.Contains(a.body, "hunter2") || !strings.Contains(s.logged.String(), fail.Error()) {
				s.t.Errorf("%d %s; logged %s", a.status, a.body, s.logged)
			}
		}
		s.e.fail = nil
		if calls := s.calls(); len(calls) != 2 || calls[0].Answer != 500 || calls[1].Answer != 500 || strings.Contains(calls[0].Detail+calls[1].Detail, "hunter2") {
			s.t.Errorf("%+v", calls)
		}
	})
}

func TestTurnedAway(t *testing.T) {
	onBoth(t, func(s *site) {
		t := s.t
		revoked, err := s.l.CreateToken(t.Context(), "old", []string{"admin"})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.l.RevokeToken(t.Context(), "old"); err != nil {
			t.Fatal(err)
		}
		good := s.tokens["trigger"]
		for _, c := range []struct {
			status int
			edit   func(*http.Request)
		}{
			{401, func(*http.Request) {}},
			{401, with("Authorization", "")},
			{401, with("Authorization", "Bearer")},
			{401, with("Authorization", "Bearer ")},
			{401, with("Authorization", "Basic "+good)},
			{401, with("Authorization", good)},
			{401, with("Authorization", "Bearer "+good+"x")},
			{401, with("Authorization", "Bearer cfw_"+strings.Repeat("A", 43))},
			{401, with("Authorization", "Bearer "+revoked)},
			{401, func(r *http.Request) { r.Header["Authorization"] = []string{"Bearer " + good, "Bearer " + good} }},
			{403, s.as("read")},
			{403, s.as("defer")},
		} {
			a := s.do("POST", runsOf, `{}`, c.edit)
			if a.status != c.status || (a.status == 401) != (a.header.Get("WWW-Authenticate") != "") {
				t.Errorf("%d %v %s, want %d", a.status, a.header, a.body, c.status)
			}
		}
		if a := s.do("POST", runsOf, `{}`, with("Authorization", "bearer "+good)); a.status != 202 {
			t.Errorf("a scheme is read in any letters: %d", a.status)
		}
		rows := len(s.calls())
		if rows != 1 {
			t.Errorf("%d rows, want only the good call's", rows)
		}
		// Who tries on is told to wait; another address is not, and a good token never.
		limited := 0
		for range 30 {
			if a := s.do("POST", runsOf, `{}`, with("Authorization", "Bearer cfw_"+strings.Repeat("B", 43))); a.status == 429 {
				limited++
			}
		}
		if limited != 30-(20-12) {
			t.Errorf("%d of 30 were told to wait, want 22", limited)
		}
		if a := s.do("POST", runsOf, `{}`, func(r *http.Request) { r.RemoteAddr = "198.51.100.7:1234" }); a.status != 401 {
			t.Errorf("another address: %d", a.status)
		}
		if a := s.do("POST", runsOf, `{}`, s.as("trigger")); a.status != 202 {
			t.Errorf("a good token from a bad neighbourhood: %d", a.status)
		}
		if a := s.do("GET", "/metrics", ""); !strings.Contains(a.body, `curfew_unauthorised_total{answer="401"} 41`) ||
			!strings.Contains(a.body, `curfew_unauthorised_total{answer="403"} 2`) {
			t.Errorf("%s", grep(a.body, "curfew_unauthorised"))
		}
		if n := len(s.calls()); n != rows+1 {
			t.Errorf("%d rows, want %d", n, rows+1)
		}
	})
}

func grep(text, with string) string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, with) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

// TestLimiter: it forgets nobody who still has to wait, and does not grow without end.
func TestLimiter(t *testing.T) {
	c := &clock{now: time.Date(2026, 7, 1, 2, 0, 0, 0, time.UTC)}
	l := newLimiter(1, 2, c.Now)
	for i := range limiterKeys {
		l.take(fmt.Sprint(i))
	}
	if wait := l.take("new") + l.take("newer"); wait != 0 || l.take("newest") == 0 {
		t.Error("those that came last do not share one limit")
	}
	l.take("7")
	if wait := l.take("7"); wait <= 0 || wait > time.Second {
		t.Errorf("waits %v", wait)
	}
	c.pass(time.Minute)
	if wait := l.take("another"); wait != 0 || len(l.keys) > 2 {
		t.Errorf("waits %v, %d keys are known", wait, len(l.keys))
	}
}

func TestAddress(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:9": "192.0.2.1", "[2001:db8:1:2:3::4]:9": "2001:db8:1:2::", "[::ffff:192.0.2.1]:9": "::ffff:192.0.2.1", "@": "@",
	} {
		if got := address(&http.Request{RemoteAddr: remote}); got != want {
			t.Errorf("%s is %s, want %s", remote, got, want)
		}
	}
}

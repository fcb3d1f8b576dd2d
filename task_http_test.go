package curfew

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/policy"
	"curfew.dev/curfew/task"
)

// office is an application with tasks, whose interface is asked without a network.
type office struct {
	*testing.T
	c    *Curfew
	logs *lockedBuffer
	full string // a token that may everything
}

type note struct {
	To string `json:"to"`
}

// newOffice opens one with its ledger where the URL says.
func newOffice(t *testing.T, ledger string, tasks ...*task.Task) *office {
	t.Helper()
	o := &office{T: t, logs: &lockedBuffer{}}
	var err error
	if o.c, err = New(Options{Ledger: ledger, Tasks: tasks, Actor: "test", Logger: slog.New(slog.NewTextHandler(o.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := o.c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if strings.HasPrefix(ledger, "postgres") {
		if _, err := o.c.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	o.drain()
	o.full = o.token(ledgerScopes...)
	return o
}

var ledgerScopes = []string{"trigger", "read", "defer", "admin"}

func (o *office) drain() {
	o.Helper()
	if err := o.c.Drain(o.Context()); err != nil {
		o.Fatalf("%v\n%s", err, o.logs)
	}
}

func (o *office) token(scopes ...string) string {
	o.Helper()
	made, err := o.c.CreateToken(o.Context(), "", scopes)
	if err != nil {
		o.Fatal(err)
	}
	return made.Token
}

// ask makes a request and reads the answer into v, which may be nil.
func (o *office) ask(token, method, path, body string, v any, header ...string) *httptest.ResponseRecorder {
	o.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	o.c.Handler().ServeHTTP(w, r)
	if v != nil {
		if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
			o.Errorf("%s %s: %d %s: %v", method, path, w.Code, w.Body, err)
		}
	}
	return w
}

// onEachLedger runs a test with a ledger in a file and with one on PostgreSQL.
func onEachLedger(t *testing.T, test func(t *testing.T, ledger string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, "sqlite:"+t.TempDir()+"/ledger.db") })
	t.Run("postgres", func(t *testing.T) { test(t, dbtest.Postgres(t)) })
}

func TestDeferOverHTTP(t *testing.T) {
	onEachLedger(t, func(t *testing.T, ledger string) {
		var did sync.Map
		send := task.New("mail.send", func(_ context.Context, c task.Call[note]) error {
			if n, was := did.LoadOrStore(c.Args.To, 1); was {
				did.Store(c.Args.To, n.(int)+1)
			}
			if c.Args.To == "nobody" {
				return task.Fail(errors.New("no such person"))
			}
			return nil
		}, task.Options{})
		o := newOffice(t, ledger, send)
		const calls = "/v1/tasks/mail.send/calls"

		// Who may not, and what is not so.
		deferrer := o.token("defer")
		for _, c := range []struct {
			token, method, path, body string
			header                    []string
			status                    int
		}{
			{"", "POST", calls, `{}`, nil, 401},
			{"cfw_nobody", "POST", calls, `{}`, nil, 401},
			{o.token("read", "trigger"), "POST", calls, `{}`, nil, 403},
			{deferrer, "POST", "/v1/tasks/mail.sent/calls", `{}`, nil, 404},
			{deferrer, "POST", calls, `{"arg": {}}`, nil, 422},
			{deferrer, "POST", calls, `{"args": {"to": "ada"}, "in": "soon"}`, nil, 422},
			{deferrer, "POST", calls, `{"in": "10m", "at": "2099-01-01T00:00:00Z"}`, nil, 422},
			{deferrer, "POST", calls, `{"priority": 5}`, nil, 422},
			{deferrer, "POST", calls, `[]`, nil, 422},
			{deferrer, "POST", calls, `{"args": {"to": "\u0000"}}`, nil, 422}, // PostgreSQL has no such text, so SQLite takes none
			{deferrer, "POST", calls, `{"args": {"too": "ada"}}`, nil, 422},   // the task could not read it, ever
			{deferrer, "POST", calls + "?in=10m", `{}`, nil, 422},
			{deferrer, "POST", calls, `{}`, []string{"Content-Type", "text/xml"}, 415},
			{deferrer, "POST", calls, `{"args": "` + strings.Repeat("x", 1<<20) + `"}`, nil, 413},
			{deferrer, "GET", calls, ``, nil, 403},
			{deferrer, "GET", "/v1/tasks", ``, nil, 403},
			{deferrer, "POST", calls + "/1/retry", ``, nil, 403},
			{o.full, "GET", calls + "/99", ``, nil, 404},
			{o.full, "GET", calls + "/x", ``, nil, 404},
			{o.full, "GET", calls + "?state=gone", ``, nil, 422},
			{o.full, "GET", "/v1/tasks/mail.sent/calls", ``, nil, 404},
		} {
			if w := o.ask(c.token, c.method, c.path, c.body, nil, c.header...); w.Code != c.status || w.Header().Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s %s %.60s: %d %s, want %d", c.method, c.path, c.body, w.Code, w.Body, c.status)
			}
		}

		// A call is in the ledger when it is answered.
		var call api.TaskCall
		w := o.ask(deferrer, "POST", calls, `{"args": {"to": "ada"}, "unique": "ada", "priority": 2}`, &call)
		if w.Code != 202 || w.Header().Get("Location") != fmt.Sprintf("%s/%d", calls, call.ID) || call.State != api.CallWaiting || call.Cause != "http" || call.Key != "ada" || call.Duplicate {
			t.Errorf("%d %v %+v", w.Code, w.Header(), call)
		}
		var again api.TaskCall
		if o.ask(deferrer, "POST", calls, `{"args": {"to": "ada"}, "unique": "ada"}`, &again); again.ID != call.ID || !again.Duplicate {
			t.Errorf("an open call had the key: %+v", again)
		}
		o.drain()
		if o.ask(o.full, "GET", w.Header().Get("Location"), "", &call); call.State != api.CallSucceeded || call.Attempt != 1 || call.EndedAt == nil {
			t.Errorf("%+v", call)
		}

		// The same request under the caller's own key is the same call for ever, from twenty at once too; another one is refused.
		ids := make([]int64, 20)
		var all sync.WaitGroup
		for i := range ids {
			all.Go(func() {
				var c api.TaskCall
				r := httptest.NewRequest("POST", calls, strings.NewReader(`{"args":   {"to":"grace"}}`))
				r.Header.Set("Authorization", "Bearer "+deferrer)
				r.Header.Set("Idempotency-Key", "welcome-grace")
				w := httptest.NewRecorder()
				o.c.Handler().ServeHTTP(w, r)
				if err := json.Unmarshal(w.Body.Bytes(), &c); err != nil || w.Code != 202 {
					t.Errorf("%d %s %v", w.Code, w.Body, err)
				}
				ids[i] = c.ID
			})
		}
		all.Wait()
		for _, id := range ids {
			if id != ids[0] || id == 0 {
				t.Fatalf("one request, calls %v", ids)
			}
		}
		o.drain()
		if o.ask(deferrer, "POST", calls, `{"args": {"to": "grace"}}`, &again, "Idempotency-Key", "welcome-grace"); again.ID != ids[0] || again.State != api.CallSucceeded {
			t.Errorf("afterwards: %+v", again)
		}
		if w := o.ask(deferrer, "POST", calls, `{"args": {"to": "ada"}}`, nil, "Idempotency-Key", "welcome-grace"); w.Code != 422 {
			t.Errorf("another request under the key: %d %s", w.Code, w.Body)
		}
		o.drain()
		if n, _ := did.Load("grace"); n != 1 {
			t.Errorf("grace got %v letters", n)
		}

		// One that waits; what failed for good is retried and given up by who may.
		if o.ask(deferrer, "POST", calls, `{"at": "2099-01-01T00:00:00+02:00"}`, &call); call.NotBefore == nil || !call.NotBefore.Equal(time.Date(2098, 12, 31, 22, 0, 0, 0, time.UTC)) {
			t.Errorf("%+v", call)
		}
		o.ask(deferrer, "POST", calls, `{"args": {"to": "nobody"}}`, &call)
		o.drain()
		one := fmt.Sprintf("%s/%d", calls, call.ID)
		var page struct{ Items []api.TaskCall }
		if o.ask(o.full, "GET", calls+"?state=failed", "", &page); len(page.Items) != 1 || page.Items[0].ID != call.ID || page.Items[0].Error != "no such person" {
			t.Errorf("failed: %+v", page)
		}
		if o.ask(o.full, "POST", one+"/retry", "", &call); call.State != api.CallWaiting {
			t.Errorf("retried: %+v", call)
		}
		o.drain()
		if w := o.ask(o.full, "POST", one+"/discard", `{}`, nil); w.Code != 422 {
			t.Errorf("discarded without a reason: %d %s", w.Code, w.Body)
		}
		if o.ask(o.full, "POST", one+"/discard", `{"reason": "gone"}`, &call); call.State != api.CallDiscarded || call.Reason != "gone" || !strings.HasPrefix(call.DiscardedBy, "token:") {
			t.Errorf("discarded: %+v", call)
		}
		if n, _ := did.Load("nobody"); n != 2 {
			t.Errorf("nobody was tried %v times", n)
		}
		var tasks struct{ Items []api.Task }
		if o.ask(o.full, "GET", "/v1/tasks", "", &tasks); len(tasks.Items) != 1 || tasks.Items[0].Name != "mail.send" || tasks.Items[0].Waiting != 1 || !tasks.Items[0].Well {
			t.Errorf("%+v", tasks)
		}

		if w := o.ask("", "GET", "/metrics", "", nil); !strings.Contains(w.Body.String(), `curfew_task_calls{state="waiting",task="mail.send"} 1`) || !strings.Contains(w.Body.String(), `curfew_task_well{task="mail.send"} 1`) {
			t.Errorf("the metrics say nothing of the call that waits:\n%s", w.Body)
		}

		// Every call with a good token is on record, and no word of what was in it in the log.
		recorded, err := o.c.Calls(t.Context(), CallFilter{Policy: "mail.send", Limit: 100})
		if err != nil || len(recorded) < 26 {
			t.Errorf("%d calls on record, %v", len(recorded), err)
		}
		if log := o.logs.String(); strings.Contains(log, "grace") || strings.Contains(log, deferrer) {
			t.Errorf("the log says too much:\n%s", log)
		}
	})
}

// A task may be a request to another system: one key in all its attempts, and its answer decides.
func TestTaskRequests(t *testing.T) {
	type seen struct{ key, body, token, header string }
	var mu sync.Mutex
	var got []seen
	answers := []func(w http.ResponseWriter){}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var b bytes.Buffer
		_, _ = b.ReadFrom(r.Body)
		got = append(got, seen{r.Header.Get("Idempotency-Key"), b.String(), r.Header.Get("Authorization"), r.Header.Get("X-Tenant")})
		answers[min(len(got), len(answers))-1](w)
	}))
	t.Cleanup(server.Close)
	status := func(code int, header ...string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			for i := 0; i+1 < len(header); i += 2 {
				w.Header().Set(header[i], header[i+1])
			}
			w.WriteHeader(code)
		}
	}
	t.Setenv("TASK_TOKEN", "s3cret-token")
	file, err := policy.Parse([]byte(`version: 1
ledger: sqlite:ledger.db
tasks:
  tear.down: {http: {url: "`+server.URL+`/teardown", token: "${TASK_TOKEN}", headers: {X-Tenant: north}}, retry: {attempts: 4, backoff: 10s, factor: 2}, timeout: 5s}
`), policy.Options{Path: t.TempDir() + "/curfew.yaml", Getenv: os.Getenv})
	if err != nil {
		t.Fatal(err)
	}
	clock := clockAt(time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC))
	for _, c := range []struct {
		what    string
		answers []func(http.ResponseWriter)
		state   string
		calls   int
		error   string
	}{
		{"done", []func(http.ResponseWriter){status(204)}, api.CallSucceeded, 1, ""},
		{"told to wait, then done", []func(http.ResponseWriter){status(429, "Retry-After", "600"), status(503), status(200)}, api.CallSucceeded, 3, ""},
		{"failing again and again", []func(http.ResponseWriter){status(500)}, api.CallFailed, 4, "500"},
		{"refused", []func(http.ResponseWriter){status(404)}, api.CallFailed, 1, "404"},
		{"sent elsewhere", []func(http.ResponseWriter){status(302, "Location", "https://elsewhere.example.org/")}, api.CallFailed, 1, "302"},
	} {
		t.Run(c.what, func(t *testing.T) {
			mu.Lock()
			got, answers = nil, c.answers
			mu.Unlock()
			logs := &lockedBuffer{}
			f := *file
			f.Ledger = inMemory
			app, err := New(Options{Config: &f, Logger: slog.New(slog.NewTextHandler(logs, nil)), Actor: "test", Clock: clock.now})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { app.Stop(context.Background()) })
			drain := func() {
				if err := app.Drain(t.Context()); err != nil {
					t.Fatalf("%v\n%s", err, logs)
				}
			}
			drain()
			made, err := app.DeferNamed(t.Context(), "tear.down", json.RawMessage(`{"organization":7}`))
			if err != nil {
				t.Fatal(err)
			}
			drain()
			for range 8 {
				next, ok, err := app.NextDue(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				clock.set(next.Add(time.Millisecond))
				drain()
			}
			call, err := app.TaskCall(t.Context(), made.ID)
			if err != nil || call.State != c.state || len(got) != c.calls || !strings.Contains(call.Error, c.error) {
				t.Errorf("%d requests, %+v, %v\n%s", len(got), call, err, logs)
			}
			for _, s := range got {
				if s.key != got[0].key || !strings.HasPrefix(s.key, "tear.down-") || s.token != "Bearer s3cret-token" || s.header != "north" || !strings.Contains(s.body, `"args":{"organization":7}`) {
					t.Errorf("a request: %+v", s)
				}
			}
			if strings.Contains(logs.String()+call.Error, "s3cret") || strings.Contains(logs.String()+call.Error, server.URL) {
				t.Errorf("a secret is in\n%s %s", logs, call.Error)
			}
		})
	}
}

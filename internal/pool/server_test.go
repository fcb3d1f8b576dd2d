package pool

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/ledger"
)

// fakeSide is what is beside a server: one run, of which a test says what becomes of each batch.
type fakeSide struct {
	execute func(ctx context.Context, b dispatch.Batch) (dispatch.Done, error)
	bind    error

	mu     sync.Mutex
	gaveUp []string
}

func (f *fakeSide) Databases() []string { return []string{"app"} }

func (f *fakeSide) Bind(context.Context, Run) (Job, error) { return f, f.bind }

func (f *fakeSide) Plan() json.RawMessage { return json.RawMessage(planText) }

func (f *fakeSide) Clock(context.Context) (time.Time, error) { return time.Now(), nil }

func (f *fakeSide) CountChanging(_ context.Context, limit int64) (int64, error) {
	return 100 + limit, nil
}

func (f *fakeSide) CountScope(_ context.Context, limit int64) (int64, error) {
	return 1000 + limit, nil
}

func (f *fakeSide) Compare(_ context.Context, old string) (Comparison, error) {
	if old == "" {
		return Comparison{Fault: "there is no text"}, nil
	}
	return Comparison{Was: 1, Extra: 2}, nil
}

func (f *fakeSide) Page(_ context.Context, cursor []byte, rows int) (dispatch.Page, error) {
	return dispatch.Page{Cursor: append(cursor, 'x'), Batch: &dispatch.Batch{Phase: "main", Rows: rows, Bounds: []byte("bounds of zebra"), Keys: []byte("zebra")}}, nil
}

func (f *fakeSide) Split(_ context.Context, handedOn []byte, rows int) ([]dispatch.Batch, error) {
	return []dispatch.Batch{{Phase: "retry", Rows: rows, Keys: handedOn}}, nil
}

func (f *fakeSide) Execute(ctx context.Context, b dispatch.Batch) (dispatch.Done, error) {
	return f.execute(ctx, b)
}

func (f *fakeSide) GiveUp(_ context.Context, _ dispatch.Batch, reason string) (dispatch.Done, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gaveUp = append(f.gaveUp, reason)
	return dispatch.Done{Settlement: ledger.Settlement{Planned: 1, Outcomes: ledger.Outcomes{"failed": 1}}}, nil
}

// mask is a sealer that hides what it seals, and knows it again in the same context only.
type mask struct{}

func (mask) mark(context []byte) []byte {
	sum := sha256.Sum256(context)
	return sum[:8]
}

func (m mask) Seal(p, context []byte) []byte {
	out := m.mark(context)
	for _, b := range p {
		out = append(out, b^0x5a)
	}
	return out
}

func (m mask) Open(p, context []byte) ([]byte, error) {
	if len(p) < 8 || !bytes.Equal(p[:8], m.mark(context)) {
		return nil, errors.New("the seal is broken")
	}
	out := []byte{}
	for _, b := range p[8:] {
		out = append(out, b^0x5a)
	}
	return out, nil
}

func (mask) MAC(label string, parts ...[]byte) [32]byte {
	h := hmac.New(sha256.New, []byte(label))
	for _, p := range parts {
		h.Write(append(p, 0))
	}
	return [32]byte(h.Sum(nil))
}

const secret = "a-token-of-thirty-two-characters"

// site is a server at its address, and a client of it.
type site struct {
	*testing.T
	side   *fakeSide
	server *Server
	url    string
	logs   *bytes.Buffer
}

func serve(t *testing.T, workers int, side *fakeSide) *site {
	t.Helper()
	logs := &bytes.Buffer{}
	s, err := New(Options{Token: secret, Jobs: side, Sealer: mask{}, Workers: workers, Logger: slog.New(slog.NewTextHandler(logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return &site{T: t, side: side, server: s, url: h.URL, logs: logs}
}

func (s *site) send(method, path, token, body string, header ...string) (*http.Response, string) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Add(header[i], header[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	return resp, string(text)
}

var aRun = Run{ID: strings.Repeat("ab", 32), Revision: "{}", AsOf: time.Now().UTC(), Cutoff: time.Now().UTC().Add(-time.Hour), Mode: "enforce", Plan: json.RawMessage(planText)}

// remote is the run as a dispatcher sees it.
func (s *site) remote() *Remote {
	return NewClient(ClientOptions{URL: s.url, Token: secret}).Remote(RemoteOptions{Run: aRun,
		Now: func(context.Context) (time.Time, error) { return time.Now(), nil }, MaxSkew: 30 * time.Second, Attempts: 3, Backoff: time.Millisecond, Factor: 1})
}

// batch pages one.
func (s *site) batch(r *Remote) dispatch.Batch {
	s.Helper()
	p, err := r.Page(s.Context(), nil, 5)
	if err != nil {
		s.Fatal(err)
	}
	if bytes.Contains(p.Batch.Keys, []byte("zebra")) || bytes.Contains(p.Batch.Bounds, []byte("zebra")) || bytes.Equal(p.Cursor, []byte("x")) {
		s.Errorf("a page that is not sealed: %+v", p)
	}
	p.Batch.Seq = 1
	return *p.Batch
}

var aSettlement = dispatch.Done{Settlement: ledger.Settlement{Planned: 2, Outcomes: ledger.Outcomes{"deleted": 1, "blocked": 1}, Cascaded: 4, Deferred: 1, Root: make([]byte, 32), KeyID: "k",
	Blocked: []ledger.BlockedRow{{Hash: [16]byte{1, 2}, Outcome: "blocked", Reason: "fine_loan_fkey"}}}, Deferred: []byte("zebra left"), TooLong: true, Took: 3 * time.Millisecond}

// A batch goes there and comes back whole, its keys sealed outward and open inside, and under the same key each time it is paged.
func TestThereAndBack(t *testing.T) {
	var got dispatch.Batch
	s := serve(t, 1, &fakeSide{})
	s.side.execute = func(_ context.Context, b dispatch.Batch) (dispatch.Done, error) { got = b; return aSettlement, nil }
	r := s.remote()
	b := s.batch(r)
	if again := s.batch(r); again.Key != b.Key || b.Key == (ledger.BatchKey{}) {
		t.Errorf("keys %s and %s", b.Key, again.Key)
	}
	done, err := r.Execute(t.Context(), b)
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Keys) != "zebra" || string(got.Bounds) != "bounds of zebra" || got.Key != b.Key || got.Seq != 1 || got.Rows != 5 {
		t.Errorf("executed: %+v", got)
	}
	st, want := done.Settlement, aSettlement.Settlement
	if st.Planned != 2 || !st.Outcomes.Equal(want.Outcomes) || st.Cascaded != 4 || st.Deferred != 1 || !bytes.Equal(st.Root, want.Root) || st.KeyID != "k" ||
		len(st.Blocked) != 1 || st.Blocked[0] != want.Blocked[0] || st.Attempts != 1 || !done.TooLong || done.Took != 3*time.Millisecond {
		t.Errorf("settled: %+v", done)
	}
	if bytes.Contains(done.Deferred, []byte("zebra")) {
		t.Errorf("handed on in the clear: %q", done.Deferred)
	}
	parts, err := r.Split(t.Context(), done.Deferred, 1)
	if err != nil || len(parts) != 1 || bytes.Contains(parts[0].Keys, []byte("zebra")) {
		t.Fatalf("%v: %+v", err, parts)
	}
	parts[0].Seq = 2
	if _, err := r.Execute(t.Context(), parts[0]); err != nil || string(got.Keys) != "zebra left" {
		t.Errorf("%v: %+v", err, got)
	}
	if _, err := r.Split(t.Context(), b.Keys, 1); !isStop(err, "sealed_otherwise") {
		t.Errorf("what was sealed as keys is taken for what was handed on: %v", err)
	}
}

// What is counted beside the data is told, and nothing else; a question that is none is refused.
func TestCounts(t *testing.T) {
	s := serve(t, 1, &fakeSide{})
	r := s.remote()
	for limit, want := range map[int64]int64{0: 100, 7: 107} {
		if n, err := r.CountChanging(t.Context(), limit); err != nil || n != want {
			t.Errorf("up to %d: %d, %v", limit, n, err)
		}
	}
	if n, err := r.CountScope(t.Context(), 5); err != nil || n != 1005 {
		t.Errorf("in scope: %d, %v", n, err)
	}
	if c, err := r.Compare(t.Context(), "text"); err != nil || c != (Comparison{Was: 1, Extra: 2}) {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := r.Compare(t.Context(), ""); err != nil || c.Fault == "" {
		t.Errorf("%+v, %v", c, err)
	}
	for _, req := range []countRequest{{Run: aRun, Ask: "keys"}, {Run: aRun}, {Run: aRun, Ask: askScope, Limit: -1}} {
		text, err := json.Marshal(req)
		if err != nil {
			t.Fatal(err)
		}
		if resp, body := s.send("POST", pathCounts, secret, string(text)); resp.StatusCode != 422 {
			t.Errorf("%s: %d %s", text, resp.StatusCode, body)
		}
	}
	if resp, _ := s.send("POST", pathCounts, "", "{}"); resp.StatusCode != 401 {
		t.Errorf("without a token: %d", resp.StatusCode)
	}
}

func isStop(err error, why string) bool {
	var stop *dispatch.StopError
	return errors.As(err, &stop) && stop.Why == why
}

// With every worker busy the answer is 429 with Retry-After; a batch in hand is 202 for whoever offers it again.
func TestFullPool(t *testing.T) {
	begun, release := make(chan struct{}), make(chan struct{})
	s := serve(t, 1, &fakeSide{})
	s.side.execute = func(context.Context, dispatch.Batch) (dispatch.Done, error) {
		close(begun)
		<-release
		return aSettlement, nil
	}
	r := s.remote()
	b := s.batch(r)
	if err := r.Offer(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	<-begun
	parts, err := r.Split(t.Context(), mask{}.Seal([]byte("other"), []byte("pool\x00handed on\x00"+aRun.ID)), 1)
	if err != nil {
		t.Fatal(err)
	}
	parts[0].Seq = 2
	var busy *dispatch.BusyError
	if err := r.Offer(t.Context(), parts[0]); !errors.As(err, &busy) || busy.After != time.Second || busy.Reason != "busy" {
		t.Errorf("offered to a full pool: %v", err)
	}
	if err := r.Offer(t.Context(), b); err != nil {
		t.Errorf("the batch in hand is offered again: %v", err)
	}
	closed := make(chan error, 1)
	go func() { closed <- s.server.Close(t.Context()) }()
	close(release)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if done, err := r.Execute(t.Context(), b); err != nil || done.Settlement.Planned != 2 {
		t.Errorf("%v: %+v", err, done)
	}
	if err := r.Offer(t.Context(), parts[0]); !errors.As(err, &busy) || busy.Reason != "unavailable" || busy.After != closingFor {
		t.Errorf("offered to a pool that is being stopped: %v", err)
	}
}

// A batch that fails is tried again under the same key, then given up with the reason.
func TestAttempts(t *testing.T) {
	tries := 0
	s := serve(t, 1, &fakeSide{})
	s.side.execute = func(context.Context, dispatch.Batch) (dispatch.Done, error) {
		tries++
		return dispatch.Done{}, errors.New("out of luck")
	}
	r := s.remote()
	done, err := r.Execute(t.Context(), s.batch(r))
	if err != nil || done.Settlement.Outcomes["failed"] != 1 || done.Settlement.Attempts != 3 || tries != 3 || len(s.side.gaveUp) != 1 || s.side.gaveUp[0] != "out of luck" {
		t.Errorf("%v: %+v after %d tries, given up for %q", err, done, tries, s.side.gaveUp)
	}
	s.side.execute = func(context.Context, dispatch.Batch) (dispatch.Done, error) {
		return dispatch.Done{}, &dispatch.StopError{Why: "hold_unreadable", Err: errors.New("a hold cannot be read")}
	}
	s.side.bind = nil
	b := s.batch(r)
	b.Key[0]++
	if _, err := r.Execute(t.Context(), b); !errors.As(err, new(*Refused)) {
		t.Errorf("a batch under another's key: %v", err)
	}
	parts, err := r.Split(t.Context(), mask{}.Seal([]byte("other"), []byte("pool\x00handed on\x00"+aRun.ID)), 1)
	if err != nil {
		t.Fatal(err)
	}
	parts[0].Seq = 2
	if _, err := r.Execute(t.Context(), parts[0]); !isStop(err, "hold_unreadable") {
		t.Errorf("a run that cannot go on: %v", err)
	}
	s.side.bind = &Refused{Detail: "no such table", Hint: "make it"}
	var refused *Refused
	if _, err := r.Page(t.Context(), nil, 1); !errors.As(err, &refused) || refused.Detail != "no such table" || refused.Hint != "make it" {
		t.Errorf("a run that is refused: %v", err)
	}
}

// What is no request of a dispatcher of ours is refused before anything is done.
func TestRefusedRequests(t *testing.T) {
	s := serve(t, 1, &fakeSide{execute: func(context.Context, dispatch.Batch) (dispatch.Done, error) { panic("executed") }})
	good := func(edit func(map[string]any)) string {
		text, err := json.Marshal(pageRequest{Run: aRun, Rows: 5})
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]any{}
		if err := json.Unmarshal(text, &m); err != nil {
			t.Fatal(err)
		}
		edit(m)
		text, _ = json.Marshal(m)
		return string(text)
	}
	key := strings.Repeat("0", 64)
	for _, tc := range []struct {
		name, method, path, token, body string
		header                          []string
		want                            int
	}{
		{"health needs no token", "GET", "/healthz", "", "", nil, 200},
		{"no token", "POST", pathPages, "", good(func(map[string]any) {}), nil, 401},
		{"another token", "POST", pathPages, secret + "x", good(func(map[string]any) {}), nil, 401},
		{"two tokens", "POST", pathPages, secret, good(func(map[string]any) {}), []string{"Authorization", "Bearer " + secret}, 401},
		{"good", "POST", pathPages, secret, good(func(map[string]any) {}), nil, 200},
		{"the databases", "GET", pathDatabases, secret, "", nil, 200},
		{"nowhere", "GET", "/v1/secrets", secret, "", nil, 404},
		{"no JSON", "POST", pathPages, secret, "{", nil, 422},
		{"a field from the future", "POST", pathPages, secret, good(func(m map[string]any) { m["dry"] = true }), nil, 422},
		{"more than one", "POST", pathPages, secret, good(func(map[string]any) {}) + "{}", nil, 422},
		{"no run", "POST", pathPages, secret, good(func(m map[string]any) { m["run"] = "../../etc" }), nil, 422},
		{"a cutoff after as_of", "POST", pathPages, secret, good(func(m map[string]any) { m["cutoff"] = "2999-01-01T00:00:00Z" }), nil, 422},
		{"no rows", "POST", pathPages, secret, good(func(m map[string]any) { m["rows"] = 0 }), nil, 422},
		{"a cursor of its own making", "POST", pathPages, secret, good(func(m map[string]any) { m["cursor"] = "AAAA" }), nil, 409},
		{"a batch without a key", "POST", pathBatches, secret, good(func(m map[string]any) {
			delete(m, "rows")
			m["batch"] = map[string]any{"seq": 1, "phase": "main", "rows": 1}
		}), nil, 422},
		{"a batch under a key that is not its own", "POST", pathBatches, secret,
			good(func(m map[string]any) {
				delete(m, "rows")
				m["batch"] = map[string]any{"seq": 1, "phase": "main", "rows": 1}
			}), []string{headerKey, key}, 422},
		{"a body too large", "POST", pathPages, secret, `{"revision": "` + strings.Repeat("x", maxBody) + `"}`, nil, 413},
	} {
		resp, text := s.send(tc.method, tc.path, tc.token, tc.body, tc.header...)
		if resp.StatusCode != tc.want {
			t.Errorf("%s: %d, want %d: %s", tc.name, resp.StatusCode, tc.want, text)
		}
		if tc.want >= 400 && resp.Header.Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: the answer is %s: %s", tc.name, resp.Header.Get("Content-Type"), text)
		}
		if strings.Contains(text, secret) {
			t.Errorf("%s: the answer has the token", tc.name)
		}
	}
	if strings.Contains(s.logs.String(), secret) || strings.Contains(s.logs.String(), "zebra") {
		t.Errorf("the log has the token or a key:\n%s", s.logs)
	}
}

// A database whose clock is wrong ends the run before anything is done.
func TestSkewedClock(t *testing.T) {
	s := serve(t, 1, &fakeSide{})
	r := s.remote()
	r.o.Now = func(context.Context) (time.Time, error) { return time.Now().Add(-time.Minute), nil }
	if _, err := r.Begin(t.Context(), 5); !errors.As(err, new(*Refused)) || !strings.Contains(err.Error(), "30s apart") {
		t.Errorf("got %v", err)
	}
}

// Who is no pool, or speaks for one, is found out.
func TestAnswersOfOthers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer script
		want   func(error) bool
	}{
		{"a page", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "<html>") }, func(err error) bool { return errors.As(err, new(*Unreachable)) }},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://elsewhere.test/", http.StatusTemporaryRedirect)
		}, func(err error) bool { return errors.As(err, new(*Unreachable)) }},
		{"a proxy", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, func(err error) bool { return errors.As(err, new(*Unreachable)) }},
		{"a reason that is no word", func(w http.ResponseWriter, _ *http.Request) {
			writeProblem(w, problem{Problem: refuse(http.StatusConflict, "", "x").Problem, Why: whyStop + "Robert'); --"})
		}, func(err error) bool { return errors.As(err, new(*Unreachable)) }},
		{"rows without a hash", func(w http.ResponseWriter, _ *http.Request) {
			a := settledAnswer()
			a.Blocked = []blockedRow{{Row: "zz", Outcome: "blocked"}}
			write(w, http.StatusOK, a)
		}, func(err error) bool { return strings.Contains(err.Error(), "no hash") }},
		{"an outcome that is no word", func(w http.ResponseWriter, _ *http.Request) {
			a := settledAnswer()
			a.Outcomes = map[string]int64{"<script>": 1}
			write(w, http.StatusOK, a)
		}, func(err error) bool { return strings.Contains(err.Error(), "outcome") }},
	} {
		c := NewClient(ClientOptions{URL: "http://pool.test", Token: secret, Transport: tc.answer})
		r := c.Remote(RemoteOptions{Run: aRun, Attempts: 1})
		if _, err := r.Execute(t.Context(), dispatch.Batch{Seq: 1}); err == nil || !tc.want(err) {
			t.Errorf("%s: got %v", tc.name, err)
		}
	}
}

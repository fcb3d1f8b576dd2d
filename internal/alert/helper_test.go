package alert

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/internal/ledger"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// lab is a ledger, a receiver and what was said.
type lab struct {
	*testing.T
	l        *ledger.Ledger
	url      string
	postgres bool
	receiver *receiver
	log      *logged

	mu  sync.Mutex
	now time.Time // a SQLite ledger's clock
}

func (b *lab) clock() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(time.Millisecond)
	return b.now
}

// later moves the clock of a SQLite ledger.
func (b *lab) later(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = b.now.Add(d)
}

// onBoth runs a test on a fresh ledger of each engine.
func onBoth(t *testing.T, test func(*lab)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(newLab(t, "sqlite:"+dbtest.SQLite(t)))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(newLab(t, dbtest.Postgres(t)))
	})
}

func newLab(t *testing.T, url string) *lab {
	t.Helper()
	b := &lab{T: t, url: url, postgres: strings.HasPrefix(url, "postgres"), now: time.Now().UTC(), log: new(logged)}
	o := ledger.Options{URL: url, Actor: "test", Clock: b.clock}
	if _, err := ledger.Migrate(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	l, err := ledger.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	b.l = l
	b.receiver = newReceiver(t)
	return b
}

// onlySQLite is for tests that need a ledger's clock of their own.
func onlySQLite(t *testing.T) *lab { return newLab(t, "sqlite:"+dbtest.SQLite(t)) }

// loop is a loop that tells the lab's receiver.
func (b *lab) loop(edit ...func(*Options)) *Loop {
	b.Helper()
	o := Options{Ledger: b.l, WebhookURL: b.receiver.URL + "/s3cret-hook", WebhookSecret: testSecret, Logger: slog.New(slog.NewTextHandler(b.log, nil)),
		Client: b.receiver.client, Interval: 5 * time.Millisecond}
	for _, e := range edit {
		e(&o)
	}
	a, err := New(o)
	if err != nil {
		b.Fatal(err)
	}
	return a
}

// pass lets a loop look and send once.
func (b *lab) pass(a *Loop) {
	b.Helper()
	for _, do := range []func(context.Context) error{a.watch, a.check, a.send} {
		if err := do(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

// kinds are the kinds of the alerts in the ledger, the oldest first.
func (b *lab) kinds() []string {
	b.Helper()
	all := b.alerts()
	kinds := make([]string, len(all))
	for i, a := range all {
		kinds[i] = a.Kind
	}
	return kinds
}

func (b *lab) alerts() []ledger.Alert {
	b.Helper()
	all, err := b.l.Alerts(b.Context(), ledger.AlertFilter{Limit: 10000})
	if err != nil {
		b.Fatal(err)
	}
	for i, j := 0, len(all)-1; i < j; i, j = i+1, j-1 {
		all[i], all[j] = all[j], all[i]
	}
	return all
}

// said is what an alert's document says.
func (b *lab) said(a ledger.Alert) data {
	b.Helper()
	var d document
	if err := json.Unmarshal(a.Body, &d); err != nil {
		b.Fatal(err)
	}
	if d.Type != a.Kind || d.Timestamp.IsZero() || d.Data.Message == "" || d.Data.Policy != a.Policy {
		b.Errorf("alert %s of %s says %s", a.Kind, a.Policy, a.Body)
	}
	return d.Data
}

// accept makes a run with a policy text of its own for keep and mode.
func (b *lab) accept(policy, mode, cause, keep string, asOf ...time.Time) ledger.Run {
	b.Helper()
	text := fmt.Appendf(nil, `{"name":%q,"keep":%q,"mode":%q}`, policy, keep, mode)
	a := ledger.Acceptance{Policy: policy, Mode: mode, Identity: ledger.IdentityOnce(), Cause: cause,
		Cutoff: func(t time.Time) time.Time { return t }, RevisionID: ledger.RevisionID(text), Revision: text}
	if len(asOf) > 0 {
		a.AsOf = &asOf[0]
	}
	if cause != "cli" { // a service accepts it, which has put the text in force before
		if err := b.l.PutInForce(b.Context(), policy, a.RevisionID, text, "test"); err != nil {
			b.Fatal(err)
		}
	}
	r, _, err := b.l.Accept(b.Context(), a)
	if err != nil {
		b.Fatal(err)
	}
	return r
}

func (b *lab) start(r ledger.Run) ledger.Run {
	b.Helper()
	r, err := b.l.Start(b.Context(), r.ID, nil)
	if err != nil {
		b.Fatal(err)
	}
	return r
}

func (b *lab) end(r ledger.Run, state ledger.State, why, detail string) ledger.Run {
	b.Helper()
	r, err := b.l.End(b.Context(), r.ID, state, why, detail)
	if err != nil {
		b.Fatal(err)
	}
	return r
}

// deletes is an enforcing run that deletes so many rows.
func (b *lab) deletes(policy string, asOf time.Time, rows int64) ledger.Run {
	b.Helper()
	r := b.start(b.accept(policy, "enforce", "schedule", "1d", asOf))
	key := ledger.BatchKey(sha256.Sum256([]byte(r.ID)))
	r, err := b.l.Admit(b.Context(), r.ID, ledger.Admission{NewCursor: []byte("c"), PagedOut: true,
		Batches: []ledger.NewBatch{{Key: key, Phase: "main", Planned: rows}}})
	if err != nil {
		b.Fatal(err)
	}
	if _, err = b.l.Settle(b.Context(), r.ID, ledger.Settlement{Batch: key, Planned: rows, Outcomes: ledger.Outcomes{"deleted": rows}, Attempts: 1}); err != nil {
		b.Fatal(err)
	}
	return b.end(r, ledger.Succeeded, ledger.WhyDone, "")
}

// entry writes an entry into the audit log, past the ledger.
func (b *lab) entry(action, policy, body string, args ...any) {
	b.Helper()
	table := "curfew_audit"
	if b.postgres {
		table = "curfew.audit"
	}
	now, err := b.l.Now(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	_, err = dbtest.Open(b.T, b.url).ExecContext(b.Context(), `INSERT INTO `+table+` (at, actor, action, policy, run, body) VALUES ($1, 'test', $2, $3, '', $4)`,
		now.Format("2006-01-02T15:04:05.000000Z"), action, policy, fmt.Sprintf(body, args...))
	if err != nil {
		b.Fatal(err)
	}
}

// receiver is a web server that remembers what it was told.
type receiver struct {
	*httptest.Server
	client *http.Client

	mu     sync.Mutex
	got    []request
	answer func(n int, w http.ResponseWriter, r *http.Request) // of the n-th request, from 0; nil: 204
}

type request struct {
	method, path string
	header       http.Header
	body         []byte
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	c := new(receiver)
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		c.mu.Lock()
		n, answer := len(c.got), c.answer
		c.got = append(c.got, request{r.Method, r.URL.RequestURI(), r.Header.Clone(), body})
		c.mu.Unlock()
		if answer != nil {
			answer(n, w, r)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}))
	t.Cleanup(c.Close)
	// As New makes it, with the test's own connections.
	c.client = &http.Client{Timeout: 10 * time.Second, Transport: c.Server.Client().Transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c
}

func (c *receiver) answers(f func(n int, w http.ResponseWriter, r *http.Request)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = f
}

func (c *receiver) requests() []request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]request(nil), c.got...)
}

// logged is a log that several goroutines write.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// eventually waits for something that a loop does in its own time.
func (b *lab) eventually(what string, is func() bool) {
	b.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for !is() {
		if time.Now().After(deadline) {
			b.Fatalf("%s: not within 20 s; log:\n%s", what, b.log)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

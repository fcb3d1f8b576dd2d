package alert

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/internal/ledger"
)

const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func TestNewRefuses(t *testing.T) {
	b := onlySQLite(t)
	for name, o := range map[string]Options{
		"no ledger":    {},
		"plain secret": {Ledger: b.l, WebhookURL: "https://example.org", WebhookSecret: "s3cret"},
		"no base64":    {Ledger: b.l, WebhookURL: "https://example.org", WebhookSecret: "whsec_s3cret!"},
		"no key":       {Ledger: b.l, WebhookURL: "https://example.org", WebhookSecret: "whsec_"},
		"no address":   {Ledger: b.l, WebhookURL: "https://s3cret:x"},
		"no ping":      {Ledger: b.l, PingURL: "https://s3cret:x"},
	} {
		if _, err := New(o); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWebhook(t *testing.T) {
	onBoth(t, func(b *lab) {
		a := b.loop()
		r := b.end(b.start(b.accept("circulation", "enforce", "schedule", "2y")), ledger.Failed, ledger.WhyError, "the database <went> away")
		b.pass(a)
		b.pass(a)
		got := b.receiver.requests()
		if len(got) != 1 {
			b.Fatalf("%d requests: %v", len(got), got)
		}
		q := got[0]
		if q.method != "POST" || q.path != "/s3cret-hook" || q.header.Get("Content-Type") != "application/json" {
			b.Errorf("%s %s %v", q.method, q.path, q.header)
		}
		id := q.header.Get("Webhook-Id")
		var seconds int64
		if _, err := fmt.Sscan(q.header.Get("Webhook-Timestamp"), &seconds); err != nil || !strings.HasPrefix(id, "msg_") || len(id) != 36 {
			b.Errorf("id %q, timestamp %q", id, q.header.Get("Webhook-Timestamp"))
		}
		signed := http.Header{}
		a.webhook.signer.Sign(signed, id, time.Unix(seconds, 0), q.body)
		if got := q.header.Get("Webhook-Signature"); got == "" || got != signed.Get("Webhook-Signature") {
			b.Errorf("signature %q, want %q", got, signed.Get("Webhook-Signature"))
		}
		var d map[string]any
		if err := json.Unmarshal(q.body, &d); err != nil {
			b.Fatal(err)
		}
		fields := d["data"].(map[string]any)
		if !strings.Contains(fields["message"].(string), "curfew show "+r.ID[:12]) {
			b.Errorf("message %v", fields["message"])
		}
		delete(fields, "message")
		want := map[string]any{"policy": "circulation", "stage": "", "run": r.ID, "mode": "enforce", "as_of": r.AsOf.Format(time.RFC3339Nano),
			"why": "error", "detail": "the database <went> away"}
		if diff := cmp.Diff(want, fields); diff != "" || d["type"] != "run.failed" || d["timestamp"] != r.EndedAt.Format(time.RFC3339Nano) || len(d) != 3 {
			b.Errorf("%s\n%s", q.body, diff)
		}
		if x := b.alerts()[0]; x.Sent.IsZero() || x.Attempts != 1 || x.Run != r.ID {
			b.Errorf("%+v", x)
		}
	})
}

func TestUnsignedWebhook(t *testing.T) {
	b := onlySQLite(t)
	a := b.loop(func(o *Options) { o.WebhookSecret = "" })
	b.end(b.accept("p", "enforce", "http", "1d"), ledger.Failed, ledger.WhyError, "")
	b.pass(a)
	got := b.receiver.requests()
	if len(got) != 1 || got[0].header.Get("Webhook-Signature") != "" || got[0].header.Get("Webhook-Id") == "" {
		t.Errorf("%v", got)
	}
}

func TestBackoff(t *testing.T) {
	var sum time.Duration
	for n, want := range map[int64]time.Duration{1: 10 * time.Second, 2: 20 * time.Second, 5: 160 * time.Second, 9: 2560 * time.Second, 10: time.Hour, 31: time.Hour} {
		if got := backoff(n); got != want {
			t.Errorf("after attempt %d: %v, want %v", n, got, want)
		}
	}
	for n := int64(1); n < maxAttempts; n++ {
		sum += backoff(n)
	}
	if sum < 23*time.Hour || sum > 25*time.Hour {
		t.Errorf("given up after %v", sum)
	}
}

// TestRetries: what a receiver refuses is sent again under the same id, when it
// asked to, and in the end given up and shown.
func TestRetries(t *testing.T) {
	b := onlySQLite(t)
	a := b.loop()
	b.receiver.answers(func(n int, w http.ResponseWriter, r *http.Request) {
		switch n {
		case 1:
			w.Header().Set("Retry-After", "90")
			w.WriteHeader(http.StatusTooManyRequests)
		case 2:
			w.Header().Set("Retry-After", "999999") // not longer than an hour
			w.WriteHeader(http.StatusServiceUnavailable)
		case 3:
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		default:
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	b.end(b.accept("p", "enforce", "http", "1d"), ledger.Failed, ledger.WhyError, "")
	for n := int64(1); n < maxAttempts; n++ {
		b.pass(a)
		x := b.alerts()[0]
		now, err := b.l.Now(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := backoff(n)
		switch n {
		case 2:
			want = 90 * time.Second
		case 3:
			want = time.Hour
		}
		if wait := x.NextTry.Sub(now); x.Attempts != n || wait > want || wait < want-time.Second || !strings.Contains(x.Error, "the receiver answered") {
			t.Fatalf("after attempt %d: %+v, waits %v, want %v", n, x, wait, want)
		}
		b.pass(a)
		if got := len(b.receiver.requests()); got != int(n) {
			t.Fatalf("%d requests after %d attempts", got, n)
		}
		if s, err := a.Undelivered(t.Context()); err != nil || s != "" {
			t.Fatalf("undelivered: %q, %v", s, err)
		}
		b.later(want)
	}
	b.pass(a)
	b.later(30 * time.Hour)
	b.pass(a)
	got := b.receiver.requests()
	for _, q := range got {
		if q.header.Get("Webhook-Id") != got[0].header.Get("Webhook-Id") || string(q.body) != string(got[0].body) {
			t.Error("another id or body")
		}
	}
	if x := b.alerts()[0]; !x.GivenUp() || len(got) != maxAttempts {
		t.Errorf("%+v after %d requests", x, len(got))
	}
	s, err := a.Undelivered(t.Context())
	if err != nil || !strings.Contains(s, "1 alerts") || !strings.Contains(s, "run.failed of p: the receiver answered 500") {
		t.Errorf("undelivered: %q, %v", s, err)
	}
	b.later(8 * 24 * time.Hour)
	if s, err := a.Undelivered(t.Context()); err != nil || s != "" {
		t.Errorf("undelivered after a week: %q, %v", s, err)
	}
	for _, q := range got {
		if q.path == "/elsewhere" {
			t.Error("a redirect was followed")
		}
	}
}

// TestNobodyListens: an address is a secret, and in no message.
func TestNobodyListens(t *testing.T) {
	b := onlySQLite(t)
	a := b.loop(func(o *Options) { o.PingURL = b.receiver.URL + "/s3cret-ping" })
	b.receiver.Close()
	b.end(b.start(b.accept("p", "enforce", "http", "1d")), ledger.Failed, ledger.WhyError, "")
	b.pass(a)
	for _, x := range b.alerts() {
		if x.Error == "" && x.Kind != pingStart || strings.Contains(x.Error, "s3cret") || !x.Sent.IsZero() {
			t.Errorf("%+v", x)
		}
	}
	if log := b.log.String(); strings.Contains(log, "s3cret") || !strings.Contains(log, "alert_not_sent") {
		t.Error(log)
	}
}

// TestDeadSender: a process took an alert and died. After its lease another sends it.
func TestDeadSender(t *testing.T) {
	b := onlySQLite(t)
	a := b.loop()
	b.end(b.accept("p", "enforce", "http", "1d"), ledger.Failed, ledger.WhyError, "")
	if err := a.watch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if due, err := b.l.NextAlerts(t.Context(), lease, 10); err != nil || len(due) != 1 {
		t.Fatalf("%v, %v", due, err)
	}
	b.pass(b.loop())
	if got := b.receiver.requests(); len(got) != 0 {
		t.Fatalf("sent while another has it: %v", got)
	}
	b.later(lease + time.Second)
	b.pass(b.loop())
	if got := b.receiver.requests(); len(got) != 1 || b.alerts()[0].Attempts != 2 {
		t.Errorf("%v", got)
	}
}

// TestNoReceiver: without a webhook alerts are kept, and one that comes later is
// not told what is old.
func TestNoReceiver(t *testing.T) {
	b := onlySQLite(t)
	b.end(b.accept("p", "enforce", "http", "1d"), ledger.Failed, ledger.WhyError, "")
	b.pass(b.loop(func(o *Options) { o.WebhookURL, o.WebhookSecret = "", "" }))
	b.pass(b.loop())
	if got := b.receiver.requests(); len(got) != 0 || len(b.alerts()) != 1 {
		t.Errorf("%v, %v", got, b.alerts())
	}
	// And one that was to be sent is given up when its receiver is gone.
	b.end(b.accept("p", "enforce", "http", "1d"), ledger.Failed, ledger.WhyError, "")
	a := b.loop()
	if err := a.watch(t.Context()); err != nil {
		t.Fatal(err)
	}
	b.pass(b.loop(func(o *Options) { o.WebhookURL, o.PingURL = "", b.receiver.URL }))
	if x := b.alerts()[1]; !x.GivenUp() || !strings.Contains(x.Error, "no receiver") {
		t.Errorf("%+v", x)
	}
}

func TestPing(t *testing.T) {
	onBoth(t, func(b *lab) {
		a := b.loop(func(o *Options) { o.WebhookURL, o.PingURL = "", b.receiver.URL+"/key/{policy}?rid=x" })
		b.pass(a)
		one := b.start(b.accept("good", "enforce", "schedule", "1d"))
		b.pass(a)
		b.end(admitNothing(b, one), ledger.Succeeded, ledger.WhyDone, "")
		b.end(b.start(b.accept("quiet", "shadow", "schedule", "1d")), ledger.Failed, ledger.WhyError, "")
		b.pass(a)
		two := b.start(b.accept("bad", "enforce", "schedule", "1d"))
		b.pass(a)
		b.end(two, ledger.Failed, ledger.WhyError, "")
		b.pass(a)
		b.end(b.accept("late", "enforce", "schedule", "1d"), ledger.Expired, "not_started", "")
		b.pass(a)
		var got []string
		for _, q := range b.receiver.requests() {
			got = append(got, q.method+" "+q.path)
		}
		want := []string{"GET /key/good/start?rid=x", "GET /key/good?rid=x", "GET /key/bad/start?rid=x", "GET /key/bad/fail?rid=x", "GET /key/late/fail?rid=x"}
		if diff := cmp.Diff(want, got); diff != "" {
			b.Error(diff)
		}
	})
}

func admitNothing(b *lab, r ledger.Run) ledger.Run {
	b.Helper()
	r, err := b.l.Admit(b.Context(), r.ID, ledger.Admission{PagedOut: true})
	if err != nil {
		b.Fatal(err)
	}
	return r
}

// TestLatePings: after an outage of the receiver only the last state is told.
func TestLatePings(t *testing.T) {
	b := onlySQLite(t)
	a := b.loop(func(o *Options) { o.WebhookURL, o.PingURL = "", b.receiver.URL+"/{policy}" })
	b.receiver.answers(func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	r := b.start(b.accept("p", "enforce", "schedule", "1d"))
	b.pass(a)
	b.end(r, ledger.Failed, ledger.WhyError, "")
	b.pass(a)
	b.end(admitNothing(b, b.start(b.accept("p", "enforce", "schedule", "1d"))), ledger.Succeeded, ledger.WhyDone, "")
	b.receiver.answers(nil)
	was := len(b.receiver.requests())
	b.later(time.Hour)
	b.pass(a)
	got := b.receiver.requests()[was:]
	if len(got) != 1 || got[0].path != "/p" {
		t.Errorf("%v", got)
	}
	if s, err := a.Undelivered(t.Context()); err != nil || s != "" {
		t.Errorf("undelivered: %q, %v", s, err)
	}
}

// TestManyLoops: any number of processes follow one ledger, and each thing is told
// once.
func TestManyLoops(t *testing.T) {
	onBoth(t, func(b *lab) {
		const runs = 30
		ctx, stop := contextOf(b)
		var wg sync.WaitGroup
		for range 4 {
			a := b.loop(func(o *Options) { o.PingURL = b.receiver.URL + "/ping" })
			wg.Go(func() {
				if err := a.Run(ctx); err != nil {
					b.Error(err)
				}
			})
		}
		for range runs {
			b.end(b.start(b.accept("p", "enforce", "http", "1d")), ledger.Failed, ledger.WhyError, "")
		}
		b.eventually("all alerts are settled", func() bool {
			if len(b.alerts()) < 3*runs {
				return false
			}
			open, err := b.l.Alerts(ctx, ledger.AlertFilter{Unsent: true})
			return err == nil && len(open) == 0
		})
		stop()
		wg.Wait()
		seen := make(map[string]int)
		for _, q := range b.receiver.requests() {
			if q.method == "POST" {
				seen[q.header.Get("Webhook-Id")]++
			}
		}
		for id, n := range seen {
			if n != 1 {
				b.Errorf("%s was sent %d times", id, n)
			}
		}
		if len(seen) != runs {
			b.Errorf("%d of %d failures were told", len(seen), runs)
		}
	})
}

// TestHangingReceiver: what happens is recorded while a receiver takes its time.
func TestHangingReceiver(t *testing.T) {
	b := onlySQLite(t)
	held := make(chan struct{})
	b.receiver.answers(func(_ int, w http.ResponseWriter, r *http.Request) {
		select {
		case <-held:
		case <-r.Context().Done():
		}
	})
	a := b.loop()
	ctx, stop := contextOf(b)
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	b.end(b.accept("p", "enforce", "http", "1d"), ledger.Failed, ledger.WhyError, "")
	b.eventually("the receiver hangs", func() bool { return len(b.receiver.requests()) == 1 })
	b.end(b.accept("q", "enforce", "http", "1d"), ledger.Failed, ledger.WhyError, "")
	b.eventually("the second failure is recorded", func() bool { return len(b.alerts()) == 2 })
	if err := a.Alive(); err != nil {
		t.Error(err)
	}
	stop() // the request under way does not keep it
	if err := <-done; err != nil {
		t.Error(err)
	}
	close(held)
	if x := b.alerts()[0]; !x.Sent.IsZero() || x.NextTry.IsZero() {
		t.Errorf("interrupted, and not to be sent again: %+v", x)
	}
}

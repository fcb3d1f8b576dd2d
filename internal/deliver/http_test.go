package deliver

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestRequest(t *testing.T) {
	var got *http.Request
	var body string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got, body = r, string(b)
		w.WriteHeader(http.StatusNoContent)
	}))
	defer s.Close()
	c := NewCaller()
	defer c.Close()
	r := Request{Method: "PUT", URL: s.URL + "/s3cret/x", Token: "t0ken", Body: []byte(`{"a":1}`), Timeout: time.Second, IdempotencyKey: "k"}
	if err := c.Send(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	if got.Method != "PUT" || got.URL.Path != "/s3cret/x" || got.Header.Get("Authorization") != "Bearer t0ken" || got.Header.Get("Idempotency-Key") != "k" ||
		got.Header.Get("Content-Type") != "application/json" || got.Header.Get("Webhook-Id") != "" || body != `{"a":1}` {
		t.Errorf("%v %s", got.Header, body)
	}
	signer, err := NewSigner("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Send(t.Context(), Request{Method: "POST", URL: s.URL, Timeout: time.Second, WebhookID: "msg_1", Signer: signer}); err != nil {
		t.Fatal(err)
	}
	if got.Header.Get("Webhook-Id") != "msg_1" || !strings.HasPrefix(got.Header.Get("Webhook-Signature"), "v1,") || got.Header.Get("Authorization") != "" {
		t.Errorf("%v", got.Header)
	}
}

func TestAnswers(t *testing.T) {
	for _, tc := range []struct {
		status int
		after  string
		kind   Kind
		wait   time.Duration
		reason string
	}{
		{301, "", Refused, 0, "the receiver answered 301 Moved Permanently"},
		{400, "", Refused, 0, "the receiver answered 400 Bad Request"},
		{404, "5", Refused, 0, "the receiver answered 404 Not Found"},
		{408, "", Uncertain, 0, "the receiver answered 408 Request Timeout"},
		{429, "7", Later, 7 * time.Second, "the receiver answered 429 Too Many Requests"},
		{429, "soon", Later, 0, "the receiver answered 429 Too Many Requests"},
		{500, "", Uncertain, 0, "the receiver answered 500 Internal Server Error"},
		{503, time.Now().Add(90 * time.Second).UTC().Format(http.TimeFormat), Uncertain, 90 * time.Second, "the receiver answered 503 Service Unavailable"},
		{599, "", Uncertain, 0, "the receiver answered 599"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if tc.after != "" {
				w.Header().Set("Retry-After", tc.after)
			}
			if r.URL.Path == "/elsewhere" {
				t.Error("the redirect was followed")
			}
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(tc.status)
			io.WriteString(w, "a body that nobody is to see")
		}))
		c := NewCaller()
		f, ok := errors.AsType[*Failure](c.Send(t.Context(), Request{Method: "POST", URL: s.URL, Timeout: 5 * time.Second}))
		if !ok || f.Kind != tc.kind || f.Reason != tc.reason || f.After > tc.wait || f.After < tc.wait-2*time.Second {
			t.Errorf("%d: %+v", tc.status, f)
		}
		c.Close()
		s.Close()
	}
}

func TestNoAnswer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	free := l.Addr().String()
	l.Close()
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/hang":
			<-release
		case "/die":
			c, _, _ := w.(http.Hijacker).Hijack()
			c.Close()
		}
	}))
	defer s.Close()
	defer close(release)
	c := NewCaller()
	defer c.Close()
	for _, tc := range []struct {
		url    string
		kind   Kind
		reason string
	}{
		{"http://" + free + "/s3cret", Later, "the receiver cannot be reached: connection refused"},
		{s.URL + "/hang", Uncertain, "the receiver did not answer: no answer in time"},
		{s.URL + "/die", Uncertain, "the receiver did not answer: connection lost"},
		{"http://s3cret\x7f/", Refused, "the address cannot be read"},
	} {
		f, ok := errors.AsType[*Failure](c.Send(t.Context(), Request{Method: "POST", URL: tc.url, Timeout: 200 * time.Millisecond}))
		if !ok || f.Kind != tc.kind || f.Reason != tc.reason {
			t.Errorf("%s: %+v", tc.url, f)
		}
	}
}

package deliver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync/atomic"
	"time"
)

// A Request is one HTTP request to another system.
type Request struct {
	Method  string
	URL     string // a secret, like all that follows but the body
	Token   string // a bearer token; "" is none
	Headers map[string]string
	Body    []byte // JSON
	Timeout time.Duration

	IdempotencyKey string // "" is none

	WebhookID string // "" is no webhook
	Signer    *Signer
}

// A Caller sends requests. It follows no redirects: a signature and a token are for one receiver.
type Caller struct{ client *http.Client }

// NewCaller returns a caller with connections of its own.
func NewCaller() *Caller {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 8
	return &Caller{&http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// Close closes the connections that nobody uses.
func (c *Caller) Close() { c.client.CloseIdleConnections() }

// Send makes the request. Nil is an answer of 2xx; any other answer is a *Failure. One of Later says that the receiver did
// nothing; one of Uncertain that it may have, so that only the same request under the same key may follow.
func (c *Caller) Send(ctx context.Context, r Request) error {
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(r.Body))
	if err != nil {
		return refused("the address cannot be read") // the error would repeat it
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "curfew")
	for name, value := range r.Headers {
		req.Header.Set(name, value)
	}
	if r.Token != "" {
		req.Header.Set("Authorization", "Bearer "+r.Token)
	}
	if r.IdempotencyKey != "" {
		req.Header.Set("Idempotency-Key", r.IdempotencyKey)
	}
	if r.WebhookID != "" {
		r.Signer.Sign(req.Header, r.WebhookID, time.Now(), r.Body)
	}
	res, err := c.client.Do(req)
	if err != nil {
		if u := (*url.Error)(nil); errors.As(err, &u) {
			err = u.Err
		}
		if !connected.Load() {
			return down("the receiver cannot be reached: %s", inWords(err))
		}
		return &Failure{Kind: Uncertain, Reason: "the receiver did not answer: " + inWords(err)}
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // so that the connection can be used again; nobody reads it
	return judge(res)
}

// judge goes by the status alone.
func judge(res *http.Response) error {
	reason := "the receiver answered " + statusInWords(res.StatusCode)
	after := RetryAfter(res.Header.Get("Retry-After"), time.Now())
	switch s := res.StatusCode; {
	case s >= 200 && s < 300:
		return nil
	case s == http.StatusTooManyRequests:
		return &Failure{Kind: Later, Reason: reason, After: after, Down: true}
	case s == http.StatusServiceUnavailable:
		return &Failure{Kind: Uncertain, Reason: reason, After: after, Down: true}
	case s == http.StatusRequestTimeout, s >= 500:
		return &Failure{Kind: Uncertain, Reason: reason}
	default:
		return refused("%s", reason)
	}
}

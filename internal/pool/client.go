package pool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"curfew.dev/curfew/internal/dispatch"
)

// ClientOptions say which pool to ask.
type ClientOptions struct {
	URL       string // without a / at its end
	Token     string
	Waits     []time.Duration   // between attempts at a request that the pool did not get
	Transport http.RoundTripper // default: as net/http's
	Logger    *slog.Logger      // default: none
}

// Client asks one pool. It is safe for concurrent use.
type Client struct {
	o    ClientOptions
	http *http.Client
}

// NewClient returns a client; it connects when it is first used.
func NewClient(o ClientOptions) *Client {
	if o.Transport == nil {
		o.Transport = http.DefaultTransport.(*http.Transport).Clone()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return &Client{o: o, http: &http.Client{Transport: o.Transport,
		// The token is for this address and no other.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// Close closes the connections that nobody uses.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Host is how messages name the pool.
func (c *Client) Host() string {
	if u, err := url.Parse(c.o.URL); err == nil {
		return u.Host
	}
	return "the pool"
}

// Databases asks the pool what it works on, once: somebody waits for the answer.
func (c *Client) Databases(ctx context.Context) ([]string, error) {
	var a databasesAnswer
	_, err := c.once(ctx, http.MethodGet, pathDatabases, nil, nil, &a)
	return a.Items, err
}

// requestTime bounds one request: a page may look at much, a poll waits for its batch.
const requestTime = 150 * time.Second

// do sends a request until the pool answers it, and reads the answer. Its errors are *Refused, *dispatch.StopError,
// *dispatch.BusyError, *attemptError, *Unreachable and the context's.
func (c *Client) do(ctx context.Context, method, path string, header map[string]string, req, into any) (status int, err error) {
	var body []byte
	if req != nil {
		if body, err = json.Marshal(req); err != nil {
			return 0, err
		}
		if len(body) > maxBody {
			return 0, &Refused{Detail: fmt.Sprintf("a request of %d bytes is too large for a pool", len(body)), Hint: "a smaller batch: rows: in the policy"}
		}
	}
	for try := 0; ; try++ {
		status, err = c.once(ctx, method, path, header, body, into)
		if ctx.Err() != nil {
			return status, ctx.Err()
		}
		if !errors.As(err, new(*Unreachable)) || status == http.StatusUnauthorized || try >= len(c.o.Waits) {
			return status, err
		}
		c.o.Logger.WarnContext(ctx, "pool_unreachable", "pool", c.Host(), "wait", c.o.Waits[try], "err", err)
		if err := sleep(ctx, c.o.Waits[try]); err != nil {
			return status, err
		}
	}
}

func (c *Client) once(ctx context.Context, method, path string, header map[string]string, body []byte, into any) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.o.URL+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.Header.Set("Authorization", "Bearer "+c.o.Token)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, &Unreachable{fmt.Errorf("the pool is out of reach: %w", err)}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err == nil && len(text) > maxBody {
		err = errors.New("it is too large")
	}
	if err != nil {
		return 0, &Unreachable{fmt.Errorf("the answer of the pool at %s broke off: %w", c.Host(), err)}
	}
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusAccepted {
		return resp.StatusCode, c.problem(resp, text)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return 0, &Unreachable{fmt.Errorf("what answers at %s is no worker pool: %w", c.Host(), err)}
	}
	return resp.StatusCode, nil
}

// attemptError says that one attempt at a batch failed beside the data.
type attemptError struct{ detail string }

func (e *attemptError) Error() string { return e.detail }

// problem makes an error of an answer that is none of the good ones.
func (c *Client) problem(resp *http.Response, text []byte) error {
	var p problem
	if !strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") || json.Unmarshal(text, &p) != nil {
		p = problem{} // a proxy spoke
	}
	if p.Detail == "" {
		p.Detail = fmt.Sprintf("the pool at %s answers %d", c.Host(), resp.StatusCode)
	}
	why, stopped := strings.CutPrefix(p.Why, whyStop)
	switch {
	case resp.StatusCode == http.StatusTooManyRequests:
		return &dispatch.BusyError{Reason: "busy", After: retryAfter(resp.Header, time.Now())}
	case resp.StatusCode == http.StatusServiceUnavailable:
		return &dispatch.BusyError{Reason: "unavailable", After: retryAfter(resp.Header, time.Now())}
	case stopped && word(why):
		return &dispatch.StopError{Why: why, Err: errors.New(p.Detail)}
	case p.Why == whyBatch:
		return &attemptError{p.Detail}
	case p.Why == whyRefused, resp.StatusCode == http.StatusUnprocessableEntity, resp.StatusCode == http.StatusRequestEntityTooLarge:
		return &Refused{Detail: p.Detail, Hint: p.Hint}
	}
	if p.Hint != "" {
		p.Detail += "; " + p.Hint
	}
	return &Unreachable{errors.New(p.Detail)}
}

// word accepts what can be an outcome, or the why_ended of a run: both are told in tables and become labels.
func word(s string) bool {
	return len(s) > 0 && len(s) <= 40 && !strings.ContainsFunc(s, func(r rune) bool { return r != '_' && (r < 'a' || r > 'z') })
}

// longestTold is the longest wait that is believed.
const longestTold = 24 * time.Hour

// retryAfter reads how long to wait: seconds, or a date by the clock of who sent it; -1 when there is neither.
func retryAfter(h http.Header, now time.Time) time.Duration {
	told := strings.TrimSpace(h.Get("Retry-After"))
	if seconds, err := strconv.ParseUint(told, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, longestTold)
	}
	at, err := http.ParseTime(told)
	if err != nil {
		return -1
	}
	if theirs, err := http.ParseTime(h.Get("Date")); err == nil {
		now = theirs
	}
	return min(max(at.Sub(now), 0), longestTold)
}

// sleep waits, or returns the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

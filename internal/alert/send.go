package alert

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"curfew.dev/curfew/internal/deliver"
	"curfew.dev/curfew/internal/ledger"
)

const (
	// sendAtOnce alerts are taken, for lease: long enough to send them one after
	// the other to a receiver that answers none of them.
	sendAtOnce = 8
	lease      = 3 * time.Minute

	firstRetry = 10 * time.Second
	lastRetry  = time.Hour
	// maxAttempts is about 24 hours of them: 9 within 85 minutes, then hourly.
	maxAttempts = 32
)

// backoff is the wait after the n-th attempt failed.
func backoff(n int64) time.Duration {
	if n > 9 {
		return lastRetry
	}
	return min(firstRetry<<max(n-1, 0), lastRetry)
}

// send sends what is due. What cannot be sent is no error: it is tried again.
func (a *Loop) send(ctx context.Context) error {
	for {
		due, err := a.l.NextAlerts(ctx, lease, sendAtOnce)
		if err != nil {
			return err
		}
		for _, x := range due {
			if err := a.sendOne(ctx, x); err != nil {
				return err
			}
		}
		if len(due) < sendAtOnce {
			return nil
		}
	}
}

func (a *Loop) sendOne(ctx context.Context, x ledger.Alert) error {
	late, err := a.superseded(ctx, x)
	if err != nil {
		return err
	}
	if late {
		return a.l.AlertDropped(ctx, x.ID, "superseded by a later ping")
	}
	if isPing(x.Kind) {
		err = a.ping(ctx, x)
	} else {
		err = a.post(ctx, x)
	}
	if err == nil {
		// Even when the process is told to stop just now: else it is sent again.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return a.l.AlertSent(ctx, x.ID)
	}
	if ctx.Err() != nil {
		return ctx.Err() // the lease ends, and somebody sends it
	}
	wait := backoff(x.Attempts)
	if answer, ok := errors.AsType[*answerError](err); ok {
		wait = max(wait, min(answer.after, lastRetry))
	}
	var next time.Time
	if x.Attempts < maxAttempts && !errors.Is(err, errNoReceiver) {
		now, err := a.l.Now(ctx)
		if err != nil {
			return err
		}
		next = now.Add(wait)
	}
	log := a.log.With("alert", x.ID, "kind", x.Kind, "policy", x.Policy, "run", x.Run, "attempts", x.Attempts)
	if next.IsZero() {
		log.ErrorContext(ctx, "alert_given_up", "err", err)
	} else {
		log.WarnContext(ctx, "alert_not_sent", "err", err, "next", next)
	}
	return a.l.AlertFailed(ctx, x.ID, err.Error(), next)
}

// superseded reports whether a ping has become wrong while it waited: the start of
// a run that has ended would begin it again, an old failure would hide a success.
func (a *Loop) superseded(ctx context.Context, x ledger.Alert) (bool, error) {
	switch x.Kind {
	case pingStart:
		return a.l.NewerPing(ctx, x, pingStart, pingSuccess, pingFail)
	case pingSuccess, pingFail:
		return a.l.NewerPing(ctx, x, pingSuccess, pingFail)
	}
	return false, nil
}

// errNoReceiver: the file that named the receiver has changed since.
var errNoReceiver = errors.New("no receiver is configured any more")

// answerError is a receiver that did not take an alert.
type answerError struct {
	status int
	after  time.Duration // what it asked to wait, or 0
}

func (e *answerError) Error() string {
	return strings.TrimSpace(fmt.Sprintf("the receiver answered %d %s", e.status, http.StatusText(e.status)))
}

// webhook is a receiver that is signed to.
type webhook struct {
	url    string
	signer *deliver.Signer
}

func newWebhook(address, secret string) (*webhook, error) {
	if _, err := url.Parse(address); err != nil {
		return nil, errors.New("alert: the webhook's address cannot be read") // the error would repeat it
	}
	signer, err := deliver.NewSigner(secret)
	if err != nil {
		return nil, fmt.Errorf("alert: %w", err)
	}
	return &webhook{address, signer}, nil
}

func (a *Loop) post(ctx context.Context, x ledger.Alert) error {
	if a.webhook == nil {
		return errNoReceiver
	}
	epoch, _, err := a.l.Epoch(ctx)
	if err != nil {
		return err
	}
	now, err := a.l.Now(ctx)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.webhook.url, bytes.NewReader(x.Body))
	if err != nil {
		return sayNoAddress(err)
	}
	// The same for each attempt, so that a receiver can tell a repetition.
	sum := sha256.Sum256([]byte(epoch + "/" + x.Key))
	id := "msg_" + hex.EncodeToString(sum[:16])
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "curfew")
	a.webhook.signer.Sign(req.Header, id, now, x.Body)
	return a.do(req, now)
}

// pingURL is where a ping of a policy goes.
func pingURL(address, policy, kind string) (string, error) {
	u, err := url.Parse(strings.ReplaceAll(address, "{policy}", policy))
	if err != nil {
		return "", errors.New("alert: the ping's address cannot be read")
	}
	switch kind {
	case pingStart:
		u = u.JoinPath("start")
	case pingFail:
		u = u.JoinPath("fail")
	}
	return u.String(), nil
}

func (a *Loop) ping(ctx context.Context, x ledger.Alert) error {
	if a.o.PingURL == "" {
		return errNoReceiver
	}
	address, err := pingURL(a.o.PingURL, x.Policy, x.Kind)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return sayNoAddress(err)
	}
	req.Header.Set("User-Agent", "curfew")
	return a.do(req, time.Now())
}

// do sends, and judges the answer by its status alone.
func (a *Loop) do(req *http.Request, now time.Time) error {
	res, err := a.o.Client.Do(req)
	if err != nil {
		return sayNoAddress(err)
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 64<<10)) // so that the connection can be used again
	if res.StatusCode >= 200 && res.StatusCode < 300 {
		return nil
	}
	return &answerError{res.StatusCode, deliver.RetryAfter(res.Header.Get("Retry-After"), now)}
}

// sayNoAddress takes the address out of an error of the client: it is a secret.
func sayNoAddress(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

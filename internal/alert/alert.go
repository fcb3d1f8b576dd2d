// Package alert tells people what nobody may miss: it follows the ledger's audit
// log, looks at the ledger from time to time, and sends what it finds to a
// webhook and to a ping URL.
//
// Its one invariant: an alert is in the ledger, in the transaction that moves the
// tail, before anybody is told, and leaves the list of what is to be sent only
// when its receiver took it. So it is told at least once, whatever dies, and one
// thing is one alert however many processes look at it. It never holds up a run.
package alert

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"curfew.dev/curfew/internal/ledger"
)

const (
	// tailName is the reader of the audit log that all processes share.
	tailName = "alert"
	// firstLook is how old an entry may be when a ledger is followed for the
	// first time: what happened while the process came up is told, history is not.
	firstLook = time.Hour
	// checkEvery is between two looks for what no entry says.
	checkEvery = time.Minute
	// deadAfter is how long the loop may fail before it says that it is not alive.
	deadAfter = 30 * time.Second
)

// Options says whom to tell. All processes on a ledger should be given the same
// receivers: whichever sees an alert first decides where it goes.
type Options struct {
	Ledger *ledger.Ledger
	// WebhookURL gets every alert; "" sends none, and they are recorded only.
	WebhookURL string
	// WebhookSecret signs: whsec_ and base64. "" sends without a signature.
	WebhookSecret string
	// PingURL is told of every enforcing run; {policy} in it stands for the
	// policy's name. "" sends no pings.
	PingURL string
	// Lag is the retention lag beyond which a policy is alerted; 0 is never. Nil:
	// no policy has one. It is asked anew each time, so a reload may change it.
	Lag func(policy string) time.Duration
	// Logger gets what goes wrong, and each alert. Default: none.
	Logger *slog.Logger
	// Client sends. Default: one with a timeout of 10 s that follows no redirects.
	Client *http.Client
	// Interval is between two looks at the ledger. Default 2 s.
	Interval time.Duration
	// Clock measures waits within this process. Instants are the ledger's. Default
	// time.Now.
	Clock func() time.Time
}

// Loop follows one ledger. Any number of them, in any number of processes, may
// follow the same.
type Loop struct {
	o       Options
	l       *ledger.Ledger
	log     *slog.Logger
	webhook *webhook // nil: none
	wake    chan struct{}
	gaps    gaps
	gapWait time.Duration

	mu     sync.Mutex
	lastOK time.Time // when the loop last got through; zero before Run
	err    error     // why it has not since
}

// New checks the options. Nothing is read or sent before [Loop.Run].
func New(o Options) (*Loop, error) {
	if o.Ledger == nil {
		return nil, errors.New("alert: a ledger is needed")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Client == nil {
		o.Client = &http.Client{Timeout: 10 * time.Second, CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // a signature is for one receiver
		}}
	}
	o.Interval = cmp.Or(o.Interval, 2*time.Second)
	if o.Clock == nil {
		o.Clock = time.Now
	}
	a := &Loop{o: o, l: o.Ledger, log: o.Logger, wake: make(chan struct{}, 1), gapWait: gapWait}
	if o.WebhookURL != "" {
		w, err := newWebhook(o.WebhookURL, o.WebhookSecret)
		if err != nil {
			return nil, err
		}
		a.webhook = w
	}
	if o.PingURL != "" {
		if _, err := pingURL(o.PingURL, "policy", pingSuccess); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// Run tells until the context ends, and returns nil then. Failures of the ledger
// or of a receiver do not end it: they are logged and tried again. It may be
// called again after it has returned.
func (a *Loop) Run(ctx context.Context) error {
	a.passed(nil)
	var sender sync.WaitGroup
	if a.webhook != nil || a.o.PingURL != "" {
		// A receiver that hangs must not keep what happens from being recorded.
		sender.Go(func() { a.every(ctx, a.wake, "alert_send", a.send) })
	}
	var checked time.Time
	a.every(ctx, nil, "alert_watch", func(ctx context.Context) error {
		err := a.watch(ctx)
		if now := a.o.Clock(); err == nil && now.Sub(checked) >= checkEvery {
			if err = a.check(ctx); err == nil {
				checked = now
			}
		}
		if ctx.Err() == nil {
			a.passed(err)
		}
		return err
	})
	sender.Wait()
	return nil
}

// every calls do until the context ends.
func (a *Loop) every(ctx context.Context, wake <-chan struct{}, event string, do func(context.Context) error) {
	ticker := time.NewTicker(a.o.Interval)
	defer ticker.Stop()
	failed := false
	for {
		err := safely(func() error { return do(ctx) })
		if ctx.Err() != nil {
			return
		}
		if err != nil && !failed { // once, not every two seconds of an outage
			a.log.WarnContext(ctx, event+"_failed", "err", err)
		} else if err == nil && failed {
			a.log.InfoContext(ctx, event+"_recovered")
		}
		failed = err != nil
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-wake:
		}
	}
}

// safely makes a panic an error: telling people must not end the process that
// does the work.
func safely(do func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return do()
}

func (a *Loop) passed(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err = err; err == nil {
		a.lastOK = a.o.Clock()
	}
}

// Alive is nil while the loop does its work: it has got through the ledger
// lately. It is for readiness.
func (a *Loop) Alive() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.lastOK.IsZero() {
		return errors.New("alerts: not running")
	}
	since := a.o.Clock().Sub(a.lastOK)
	if since <= max(deadAfter, 5*a.o.Interval) {
		return nil
	}
	if a.err != nil {
		return fmt.Errorf("alerts: the ledger has not been read for %s: %w", since.Round(time.Second), a.err)
	}
	return fmt.Errorf("alerts: the ledger has not been read for %s", since.Round(time.Second))
}

// Undelivered says which alerts of the last week were given up, in words, or "".
// It is a warning for readiness and status, and no reason to be unready.
func (a *Loop) Undelivered(ctx context.Context) (string, error) { return Undelivered(ctx, a.l) }

// Undelivered is [Loop.Undelivered] of a ledger that nobody need follow.
func Undelivered(ctx context.Context, l *ledger.Ledger) (string, error) {
	now, err := l.Now(ctx)
	if err != nil {
		return "", err
	}
	lost, err := l.Alerts(ctx, ledger.AlertFilter{GivenUp: true, Since: now.Add(-7 * 24 * time.Hour), Limit: 100})
	if err != nil || len(lost) == 0 {
		return "", err
	}
	last := lost[0]
	return fmt.Sprintf("%d alerts of the last 7 days reached nobody, the last one %s of %s: %s",
		len(lost), last.Kind, cmp.Or(last.Policy, "the ledger"), last.Error), nil
}

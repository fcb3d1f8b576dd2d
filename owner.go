package curfew

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"

	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/ledger"
)

// staleAfter is how long a process may be silent about a run before another one takes it over.
const staleAfter = 35 * time.Second

// newOwner names a process for the time it works: a name that another one never has, whatever its host and pid.
func newOwner() string {
	var b [8]byte
	rand.Read(b[:])
	return whoami() + "#" + hex.EncodeToString(b[:])
}

// own claims a run for the foreground and gives signs of life until the function that it returns is called. A run that somebody
// else is at work on is helped along without: both do the same, and each batch counts once.
func (c *Curfew) own(ctx context.Context, l *ledger.Ledger, run string) (release func()) {
	owner := newOwner()
	if err := l.Claim(ctx, run, owner, staleAfter); err != nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.heartbeat(ctx, l, run, owner)
	}()
	return func() { cancel(); <-done }
}

// heartbeat gives signs of life until ctx is done, or until the run is not ours any more, which it reports as false.
func (c *Curfew) heartbeat(ctx context.Context, l *ledger.Ledger, run, owner string) (ours bool) {
	every := time.NewTicker(dispatch.HeartbeatEvery)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return true
		case <-every.C:
		}
		mine, err := l.Heartbeat(ctx, run, owner)
		switch {
		case err != nil && !errors.Is(err, context.Canceled):
			c.log.WarnContext(ctx, "heartbeat_failed", "run", run, "err", err)
		case err == nil && !mine:
			return false
		}
	}
}

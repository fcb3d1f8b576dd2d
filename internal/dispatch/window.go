package dispatch

import (
	"context"
	"time"

	"curfew.dev/curfew/internal/ledger"
)

// LookAgain is how long the clock is not asked at most while a run waits for a window: it may have been set. A variable for tests,
// in which time runs faster.
var LookAgain = 10 * time.Second

// A gate keeps batches from beginning outside the policy's windows. The run stays open, and what is in hand comes to its end.
type gate struct {
	closed bool
	until  time.Time // while closed: when the next window opens, by the ledger's clock
	again  time.Time // while closed: when to look again, by the machine's
	noted  bool      // the ledger has that the run waits
}

// look asks the ledger's clock whether batches may begin now.
func (d *drain) look(ctx context.Context) error {
	if d.Window == nil || d.closed && time.Now().Before(d.again) {
		return nil
	}
	now, err := d.Ledger.Now(ctx)
	if err != nil {
		return err
	}
	next := d.Window(now)
	if d.closed = next.After(now); !d.closed {
		return nil
	}
	d.again = time.Now().Add(min(next.Sub(now), LookAgain))
	if d.noted && next.Equal(d.until) {
		return nil
	}
	if err := d.Ledger.WaitForWindow(ctx, d.run.ID, next); err != nil {
		return err
	}
	d.until, d.noted = next, true
	hook("outside")
	if d.Outside != nil {
		d.Outside(next)
	}
	d.Logger.InfoContext(ctx, "admission_wait", "run", d.run.ID, "policy", d.run.Policy, "stage", d.run.Stage, "as_of", d.run.AsOf, "cutoff", d.run.Cutoff,
		"reason", "window", "opens", next, "wait", next.Sub(now))
	return nil
}

// gotOn takes the note away once the run has got on.
func (d *drain) gotOn(ctx context.Context) error {
	if !d.noted || d.closed {
		return nil
	}
	d.noted = false
	return d.Ledger.WaitForWindow(ctx, d.run.ID, time.Time{})
}

// weigh has the run judged before anything of it is let in. It reports whether it may go on.
func (d *drain) weigh(ctx context.Context) (bool, error) {
	if d.Weigh == nil || d.weighed || d.run.Begun() {
		return true, nil
	}
	hook("weighing")
	run, err := d.Weigh(ctx, d.run)
	if err != nil {
		return false, err
	}
	d.run, d.weighed = run, true
	hook("weighed")
	return !over(run), nil
}

// over reports whether a run admits nothing more as it stands.
func over(r ledger.Run) bool { return r.State.Ended() || r.State == ledger.AwaitingApproval }

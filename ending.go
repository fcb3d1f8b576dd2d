package curfew

import (
	"context"
	"time"
)

// StopWithin is how long a service that was told to stop may take until it has.
const StopWithin = 30 * time.Second

// An ending is the end of a service, which comes in three steps: from told on it begins nothing; from abort on it no longer waits for
// the batches in hand but has them undone; from late on it waits for nothing. What is cut off is where the ledger and the receipts
// have it.
type ending struct {
	told, abort, late context.Context
	within            time.Duration
}

// newEnding watches for the word to stop until the function that it returns is called. A ctx that is done aborts at once.
func newEnding(ctx context.Context, stop <-chan struct{}, in time.Duration) (*ending, func()) {
	told, tell := context.WithCancel(ctx)
	abort, giveUp := context.WithCancel(ctx)
	late, leave := context.WithCancel(context.WithoutCancel(ctx))
	over := make(chan struct{})
	go func() {
		select {
		case <-over:
			return
		case <-stop:
			tell()
		case <-ctx.Done():
		}
		patient := time.NewTimer(in - in/6)
		defer patient.Stop()
		select {
		case <-over:
			return
		case <-ctx.Done():
		case <-patient.C:
			giveUp()
		}
		last := time.AfterFunc(in/6, leave)
		<-over
		last.Stop()
	}()
	return &ending{told, abort, late, in}, func() { close(over); tell(); giveUp(); leave() }
}

// from bounds what a part of the service still does that ends now, be it before the whole is told to: another policy file takes its
// place.
func (e *ending) from() (abort, late context.Context, cancel func()) {
	abort, one := context.WithTimeout(e.abort, e.within-e.within/6)
	late, two := context.WithTimeout(e.late, e.within)
	return abort, late, func() { one(); two() }
}

// soft makes no failure of what could not come up because the service was told to stop.
func (e *ending) soft(err error) error {
	if e.told.Err() != nil && e.abort.Err() == nil {
		return nil
	}
	return err
}

// wait is fn's error, unless fn takes too long: a connection to a server that hangs does not even close.
func (e *ending) wait(fn func() error) error {
	var err error
	if !within(e.late, func() { err = fn() }) {
		return nil
	}
	return err
}

// within waits for fn, and reports whether it came to its end before ctx did.
func within(ctx context.Context, fn func()) bool {
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

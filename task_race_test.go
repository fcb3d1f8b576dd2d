package curfew

import (
	"context"
	"errors"
	"testing"

	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/web"
)

// A call that begins while the ledger lists the open ones is not in the list, and is nobody's to cancel.
func TestCallBegunMeanwhile(t *testing.T) {
	e := &engine{}
	begin := func(run string) context.Context {
		ctx, cancel := context.WithCancelCause(t.Context())
		e.calling.begin(run, cancel)
		return ctx
	}
	open, ended := begin("open"), begin("ended")
	before := e.calling.begun()
	late := begin("late")
	e.callsOver(before, []ledger.Run{{ID: "open"}})
	if open.Err() != nil || late.Err() != nil || !errors.As(context.Cause(ended), new(*cancelledError)) {
		t.Errorf("open: %v, late: %v, ended: %v", context.Cause(open), context.Cause(late), context.Cause(ended))
	}
}

// While a task is paused a key of the caller's own gives the call that it gave before, and makes none.
func TestDeferWhilePaused(t *testing.T) {
	d := newDaemon(t, night, lockedFile)
	d.letGo()
	d.start()
	c := d.open()
	f := front{func() *engine { return &engine{c: c} }}
	made, err := f.Defer(t.Context(), web.DeferRequest{Task: "backup", Key: "before"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pause(t.Context(), "backup", ""); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := f.Defer(t.Context(), web.DeferRequest{Task: "backup", Key: "after"}); KindOf(err) != KindRefused {
			t.Errorf("a new call of a paused task: %v", err)
		}
	}
	if again, err := f.Defer(t.Context(), web.DeferRequest{Task: "backup", Key: "before"}); err != nil || again.ID != made.ID || !again.Duplicate {
		t.Errorf("%+v, %v", again, err)
	}
}

package ledger

import (
	"errors"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPause(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		if err := l.Resume(ctx, "circulation", "anna"); !errors.Is(err, ErrNotFound) {
			t.Errorf("resuming what is not paused: %v", err)
		}
		if err := l.Pause(ctx, "", "anna", ""); err == nil {
			t.Error("a pause of no policy")
		}
		var began []Pause
		for _, p := range [][3]string{{"circulation", "anna", "an audit\x00 is on"}, {"sessions", "", ""}, {"circulation", "bert", "it is over, but for one file"},
			{"circulation", "carl", "it is over, but for one file"}, {"circulation", "carl", ""}} {
			if err := l.Pause(ctx, p[0], p[1], p[2]); err != nil {
				t.Fatal(err)
			}
			if began == nil {
				var err error
				if began, err = l.Pauses(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		all, err := l.Pauses(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var got [][3]string
		for _, p := range all {
			if p.Since.IsZero() {
				t.Errorf("%s is paused since never", p.Policy)
			}
			if p.Policy == "circulation" && !p.Since.Equal(began[0].Since) {
				t.Errorf("another reason made the pause begin at %s, not %s", p.Since, began[0].Since)
			}
			got = append(got, [3]string{p.Policy, p.Actor, p.Reason})
		}
		want := [][3]string{{"circulation", "bert", "it is over, but for one file"}, {"sessions", "test", ""}}
		if d := cmp.Diff(want, got); d != "" {
			t.Error(d)
		}
		if err := l.Resume(ctx, "circulation", "bert"); err != nil {
			t.Fatal(err)
		}
		if err := l.Resume(ctx, "circulation", "bert"); !errors.Is(err, ErrNotFound) {
			t.Errorf("resumed twice: %v", err)
		}
		if all, err = l.Pauses(ctx); err != nil || len(all) != 1 || all[0].Policy != "sessions" {
			t.Errorf("%v, %v", all, err)
		}
		if p, r := count(t, l, ActionPolicyPaused), count(t, l, ActionPolicyResumed); p != 2 || r != 1 {
			t.Errorf("%d pauses and %d resumptions in the audit log, want 2 and 1", p, r)
		}
		if r := count(t, l, ActionPauseReason); r != 1 {
			t.Errorf("%d other reasons in the audit log, want 1", r)
		}
		for _, e := range entries(t, l) {
			if e.Action == ActionPauseReason && (e.Actor != "bert" || e.Policy != "circulation" || string(e.Body) != `{"reason":"it is over, but for one file"}`) {
				t.Errorf("%+v", e)
			}
			if e.Action == ActionPolicyPaused && e.Policy == "circulation" && (e.Actor != "anna" || string(e.Body) != "{\"reason\":\"an audit\uFFFD is on\"}") {
				t.Errorf("%+v", e)
			}
			if e.Action == ActionPolicyResumed && (e.Actor != "bert" || e.Policy != "circulation") {
				t.Errorf("%+v", e)
			}
		}
	})
}

// TestPauseAtOnce: of many who pause one policy, one does.
func TestPauseAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				if err := l.Pause(t.Context(), "p", "", ""); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := count(t, l, ActionPolicyPaused); n != 1 {
			t.Errorf("paused %d times", n)
		}
	})
}

package ledger

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestStartInterruptResume(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		r := accept(t, l, an("p", "key:1"))
		r, err := l.Start(ctx, r.ID, []byte("plan A"))
		if err != nil || r.State != Running || r.StartedAt.IsZero() || string(r.Plan) != "plan A" {
			t.Fatalf("%+v, %v", r, err)
		}
		if err := l.Claim(ctx, r.ID, "host/1", time.Minute); err != nil {
			t.Fatal(err)
		}
		r = admitOne(t, l, r, 1, 5)
		r, err = l.Interrupt(ctx, r.ID, "SIGINT \x00\xff")
		if err != nil || r.State != Running || r.Detail != "interrupted: SIGINT \uFFFD\uFFFD" || r.Owner != "" {
			t.Fatalf("%+v, %v", r, err)
		}
		if d := cmp.Diff(checkRun(t, l, r.ID), r); d != "" {
			t.Error(d)
		}
		again, err := l.Start(ctx, r.ID, []byte("plan B"))
		if err != nil || again.State != Running || again.Detail != "" || string(again.Plan) != "plan A" || again.StartedAt != r.StartedAt {
			t.Fatalf("%+v, %v", again, err)
		}
		if d := cmp.Diff(checkRun(t, l, r.ID), again); d != "" {
			t.Error(d)
		}
		if r, err = l.Interrupt(ctx, r.ID, ""); err != nil || r.Detail != "interrupted" {
			t.Errorf("%q, %v", r.Detail, err)
		}
		var log []string
		for _, e := range entries(t, l) {
			if e.Run == r.ID {
				log = append(log, e.Action)
			}
		}
		want := []string{ActionRunAccepted, ActionRunStarted, ActionBatchIntent, ActionRunInterrupted, ActionRunResumed, ActionRunInterrupted}
		if d := cmp.Diff(want, log); d != "" {
			t.Error(d)
		}
	})
}

func TestEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		r := accept(t, l, an("p", "key:1"))
		if _, err := l.End(ctx, r.ID, Succeeded, WhyDone, ""); err == nil {
			t.Error("a run that was not started succeeded")
		}
		if _, err := l.End(ctx, r.ID, Running, "", ""); err == nil {
			t.Error("running is no end")
		}
		r, err := l.End(ctx, r.ID, Expired, WhyError, "not started in time")
		if err != nil || r.State != Expired || r.EndedAt.IsZero() || r.Detail != "not started in time" {
			t.Fatalf("%+v, %v", r, err)
		}
		before := len(entries(t, l))
		again, err := l.End(ctx, r.ID, Cancelled, WhyCancelled, "too late")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(r, again); d != "" {
			t.Errorf("an end does not change: %s", d)
		}
		if len(entries(t, l)) != before {
			t.Error("an end that did not happen was audited")
		}
		for name, err := range map[string]error{
			"start":     second(l.Start(ctx, r.ID, nil)),
			"interrupt": second(l.Interrupt(ctx, r.ID, "")),
			"claim":     l.Claim(ctx, r.ID, "me", 0),
		} {
			if !errors.Is(err, ErrRunEnded) {
				t.Errorf("%s: %v, want ErrRunEnded", name, err)
			}
		}
		for name, err := range map[string]error{
			"start":     second(l.Start(ctx, "feedface", nil)),
			"interrupt": second(l.Interrupt(ctx, "feedface", "")),
			"end":       second(l.End(ctx, "feedface", Failed, WhyError, "")),
			"claim":     l.Claim(ctx, "feedface", "me", 0),
		} {
			if !errors.Is(err, ErrNotFound) {
				t.Errorf("%s: %v, want ErrNotFound", name, err)
			}
		}
	})
}

func second(_ Run, err error) error { return err }

// TestSucceedOnlyWhenItAddsUp takes a finished run and breaks one thing each time: what makes it unfinished leaves it open,
// what makes it differ ends it.
func TestSucceedOnlyWhenItAddsUp(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		for _, c := range []struct {
			name, breakIt, want string
			open                bool
		}{
			{"nothing", ``, "", false},
			{"scan unfinished", `UPDATE @run SET paged_out = false WHERE id = $1`, "scan has not finished", true},
			{"batch pending", `UPDATE @batch SET state = 'pending' WHERE seq = 1 AND run = $1`, "1 of 2 batches are settled", true},
			{"batch lost", `DELETE FROM @batch WHERE seq = 2 AND run = $1`, "there are 1 of 1", false},
			{"rows deferred", `UPDATE @batch SET deferred = 3 WHERE seq = 2 AND run = $1`, "were not tried again", true},
			{"run's planned", `UPDATE @run SET planned = 16 WHERE id = $1`, "16 rows planned, 15 in the outcomes", false},
			{"batch's planned", `UPDATE @batch SET planned = 11 WHERE seq = 1 AND run = $1`, "of 16, the run says", false},
			{"batch's outcomes", `UPDATE @batch SET outcomes = '{"gone":10}' WHERE seq = 1 AND run = $1`, "the batches' sum is", false},
			{"cascaded", `UPDATE @run SET cascaded = 1 WHERE id = $1`, "the batches' sum is", false},
		} {
			r := admitOne(t, l, started(t, l, c.name), 1, 10)
			r = pagedOut(t, l, admitOne(t, l, r, 2, 5))
			r = settleOne(t, l, r, 1, Outcomes{"deleted": 10})
			r = settleOne(t, l, r, 2, Outcomes{"deleted": 4, "gone": 1})
			if c.breakIt != "" {
				if _, err := l.write.ExecContext(ctx, l.q(c.breakIt), r.ID); err != nil {
					t.Fatal(err)
				}
			}
			got, err := l.End(ctx, r.ID, Succeeded, WhyDone, "")
			if c.open {
				if !errors.Is(err, ErrUnfinished) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: %v, want %v", c.name, err, ErrUnfinished)
				}
				if got, err := l.Get(ctx, r.ID); err != nil || got.State != Running {
					t.Errorf("%s: the run is %s, %v", c.name, got.State, err)
				}
				continue
			}
			if err != nil {
				t.Fatal(err)
			}
			if c.want == "" {
				if got.State != Succeeded || got.WhyEnded != WhyDone || got.Detail != "" {
					t.Errorf("%s: %s %s %q", c.name, got.State, got.WhyEnded, got.Detail)
				}
			} else if got.State != Failed || got.WhyEnded != WhyOutcomesDiffer || !strings.Contains(got.Detail, c.want) {
				t.Errorf("%s: %s %s %q, want %q", c.name, got.State, got.WhyEnded, got.Detail, c.want)
			}
		}
	})
}

func TestClaim(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		r := started(t, l, "p")
		if err := l.Claim(ctx, r.ID, "host/1", time.Hour); err != nil {
			t.Fatal(err)
		}
		if err := l.Claim(ctx, r.ID, "host/1", time.Hour); err != nil {
			t.Errorf("again: %v", err)
		}
		err := l.Claim(ctx, r.ID, "host/2", time.Hour)
		var owned *OwnedError
		if !errors.As(err, &owned) || owned.Owner != "host/1" {
			t.Errorf("of a living owner's: %v", err)
		}
		if mine, err := l.Heartbeat(ctx, r.ID, "host/1"); err != nil || !mine {
			t.Errorf("heartbeat: %v, %v", mine, err)
		}
		if mine, err := l.Heartbeat(ctx, r.ID, "host/2"); err != nil || mine {
			t.Errorf("a stranger's heartbeat: %v, %v", mine, err)
		}
		if err := l.Claim(ctx, r.ID, "host/2", 0); err != nil {
			t.Errorf("by force: %v", err)
		}
		if mine, err := l.Heartbeat(ctx, r.ID, "host/1"); err != nil || mine {
			t.Errorf("the old owner's heartbeat: %v, %v", mine, err)
		}
		if r, err = l.End(ctx, r.ID, Failed, WhyError, ""); err != nil || r.Owner != "" {
			t.Errorf("after the end: owner %q, %v", r.Owner, err)
		}
		if mine, err := l.Heartbeat(ctx, r.ID, "host/2"); err != nil || mine {
			t.Errorf("heartbeat after the end: %v, %v", mine, err)
		}
	})
}

func TestSeeDatabase(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		for _, c := range [][3]string{{"library", "id-1", "id-1"}, {"library", "id-1", "id-1"}, {"library", "id-2", "id-1"}, {"portal", "id-2", "id-2"}} {
			if got, err := l.SeeDatabase(t.Context(), c[0], c[1], "", ""); err != nil || got.Identity != c[2] {
				t.Errorf("%s %s: %+v, %v; want %s", c[0], c[1], got, err, c[2])
			}
		}
		if n := count(t, l, ActionDatabaseSeen); n != 2 {
			t.Errorf("%d database_seen entries, want 2", n)
		}
	})
}

package ledger

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// hourly is the schedule of a task, changed by edit.
func hourly(edit ...func(*Scheduled)) Scheduled {
	s := nightly(append([]func(*Scheduled){func(s *Scheduled) {
		s.Policy, s.Mode, s.Expr, s.Between = "mail", ModeTask, "0 * * * *;UTC", every(time.Hour)
		s.Cutoff = func(asOf time.Time) time.Time { return asOf }
	}}, edit...)...)
	return s
}

// accepted makes the schedule known, and has its next instant come.
func accepted(t testing.TB, l *Ledger, h *hands, s Scheduled) Run {
	t.Helper()
	firstTick(t, l, s)
	h.add(time.Hour)
	return acceptedOne(t, l, s)
}

func acceptedOne(t testing.TB, l *Ledger, s Scheduled) Run {
	t.Helper()
	got := tickOf(t, l, s)
	if len(got.Accepted) != 1 {
		t.Fatalf("%+v", got)
	}
	return got.Accepted[0]
}

func beginCall(t testing.TB, l *Ledger, run string) Run {
	t.Helper()
	r, err := l.BeginCall(t.Context(), run, "process")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func restCall(t testing.TB, l *Ledger, run string) {
	t.Helper()
	if err := l.RestCall(t.Context(), run, "process", "attempt 1 of 5: no"); err != nil {
		t.Fatal(err)
	}
}

func endCall(t testing.TB, l *Ledger, run string, state State) Run {
	t.Helper()
	why := map[State]string{Succeeded: WhyDone, Failed: WhyError, Cancelled: WhyCancelled}[state]
	r, err := l.EndCall(t.Context(), run, "", state, why, "")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestTaskRun: a periodic call from its instant to its end. Who looks after the runs of policies sees nothing of it.
func TestTaskRun(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := hourly()
		r := accepted(t, l, h, s)
		policy := accept(t, l, an("p", IdentityOnce()))
		ids := func(runs []Run, err error) (ids []string) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range runs {
				ids = append(ids, r.ID)
			}
			return ids
		}
		look := func(want ...string) {
			t.Helper()
			if diff := cmp.Diff(want, ids(l.OpenCalls(t.Context()))); diff != "" {
				t.Errorf("open calls (-want +got):\n%s", diff)
			}
			if got := ids(l.OpenRuns(t.Context())); !slices.Equal(got, []string{policy.ID}) {
				t.Errorf("open runs of policies: %v", got)
			}
			stalls, err := l.Stalled(t.Context(), h.read().Add(time.Hour))
			if err != nil || len(stalls) != 1 || stalls[0].Run.ID != policy.ID {
				t.Errorf("stalled: %v, %v", stalls, err)
			}
		}
		look(r.ID)
		if _, err := l.EndCall(t.Context(), r.ID, "", Succeeded, WhyDone, ""); err == nil {
			t.Error("succeeded without having begun")
		}
		got := beginCall(t, l, r.ID)
		if got.State != Running || got.Owner != "process" || !got.StartedAt.Equal(h.read()) || !got.Heartbeat.Equal(h.read()) {
			t.Errorf("%+v", got)
		}
		look(r.ID)
		began := got.StartedAt
		if _, err := l.write.ExecContext(t.Context(), l.q(`UPDATE @run SET plan = $1 WHERE id = $2`), []byte("17"), r.ID); err != nil {
			t.Fatal(err)
		}
		restCall(t, l, r.ID)
		resting, err := l.Get(t.Context(), r.ID)
		if err != nil || resting.State != Running || resting.Owner != "" || !resting.Heartbeat.IsZero() || resting.Detail != "attempt 1 of 5: no" {
			t.Errorf("%+v, %v", resting, err)
		}
		look(r.ID)
		if err := l.RestCall(t.Context(), r.ID, "process", ""); !errors.Is(err, ErrOvertaken) {
			t.Errorf("rests twice: %v", err)
		}
		h.add(2 * time.Hour) // long after the instant: it had begun in time
		got = beginCall(t, l, r.ID)
		if got.State != Running || !got.StartedAt.Equal(began) || got.Detail != "" || string(got.Plan) != "17" {
			t.Errorf("%+v", got)
		}
		// What was taken for dead wakes: it has no say.
		for _, state := range []State{Succeeded, Failed} {
			if _, err := l.EndCall(t.Context(), r.ID, "one before", state, WhyDone, ""); !errors.Is(err, ErrOvertaken) {
				t.Errorf("an attempt that was overtaken ends the run: %v", err)
			}
		}
		if err := l.RestCall(t.Context(), r.ID, "one before", ""); !errors.Is(err, ErrOvertaken) {
			t.Errorf("an attempt that was overtaken gives the run up: %v", err)
		}
		if now, err := l.Get(t.Context(), r.ID); err != nil || now.Owner != "process" {
			t.Errorf("%+v, %v", now, err)
		}
		got = endCall(t, l, r.ID, Succeeded)
		want, err := l.Get(t.Context(), r.ID)
		if diff := cmp.Diff(want, got); err != nil || diff != "" || got.State != Succeeded || got.WhyEnded != WhyDone || got.Owner != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		look()
		if diff := cmp.Diff([]string{"ok schedule"}, states(t, l)); diff != "" {
			t.Error(diff)
		}
		checkRun(t, l, policy.ID)

		// It is not executed again, and stays as it ended.
		if _, err := l.BeginCall(t.Context(), r.ID, "process"); !errors.Is(err, ErrRunEnded) {
			t.Errorf("begun again: %v", err)
		}
		if err := l.RestCall(t.Context(), r.ID, "process", ""); !errors.Is(err, ErrRunEnded) {
			t.Errorf("rests: %v", err)
		}
		if again := endCall(t, l, r.ID, Failed); again.State != Succeeded || !again.EndedAt.Equal(got.EndedAt) {
			t.Errorf("ended again: %+v", again)
		}
		actions := map[string]int{}
		for _, e := range entries(t, l) {
			if e.Run == r.ID {
				actions[e.Action]++
			}
		}
		if diff := cmp.Diff(map[string]int{ActionRunAccepted: 1, ActionRunStarted: 1, ActionRunInterrupted: 1, ActionRunResumed: 1, ActionRunEnded: 1}, actions); diff != "" {
			t.Error(diff)
		}
		health, err := l.LastRuns(t.Context())
		if i := slices.IndexFunc(health, func(g StageHealth) bool { return g.Policy == "mail" }); err != nil || i < 0 || health[i].LastOK.ID != r.ID {
			t.Errorf("%+v, %v", health, err)
		}
		for name, want := range map[string]bool{"mail": true, "p": false, "nobody": false} {
			if is, err := l.IsTask(t.Context(), name); err != nil || is != want {
				t.Errorf("%s is a task: %v, %v", name, is, err)
			}
		}
	})
}

// TestNoCall: a policy's run is not treated as a call.
func TestNoCall(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		r := started(t, l, "p")
		_, begin := l.BeginCall(t.Context(), r.ID, "me")
		_, end := l.EndCall(t.Context(), r.ID, "", Succeeded, WhyDone, "")
		for _, err := range []error{begin, end, l.RestCall(t.Context(), r.ID, "process", "")} {
			if !errors.Is(err, errNoCall) {
				t.Errorf("%v", err)
			}
		}
		if got, err := l.Get(t.Context(), r.ID); err != nil || !cmp.Equal(got, r) {
			t.Errorf("%+v, %v", got, err)
		}
		for _, bad := range []Scheduled{hourly(func(s *Scheduled) { s.External = true }), hourly(func(s *Scheduled) { s.Stage = "warn" }),
			hourly(func(s *Scheduled) { s.Overlap = "both" }), nightly(func(s *Scheduled) { s.Overlap = "allow" })} {
			if _, err := l.Tick(t.Context(), bad); err == nil {
				t.Errorf("ticked %+v", bad)
			}
		}
	})
}

// TestCallTooLate: a call that nobody began in time expires, whoever finds out, and is not executed.
func TestCallTooLate(t *testing.T) {
	for _, who := range []string{"worker", "tick"} {
		t.Run(who, func(t *testing.T) {
			onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
				s := hourly(func(s *Scheduled) { s.StartWithin = 10 * time.Minute })
				r := accepted(t, l, h, s)
				h.add(10*time.Minute + time.Second)
				if who == "tick" {
					tickOf(t, l, s)
				}
				if _, err := l.BeginCall(t.Context(), r.ID, "me"); !errors.Is(err, ErrRunEnded) {
					t.Errorf("begun: %v", err)
				}
				if diff := cmp.Diff([]string{"expired not_started schedule"}, states(t, l)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

// TestCallOverlap: what becomes of the next instant, by what the call before it does and by the task's overlap.
func TestCallOverlap(t *testing.T) {
	for _, c := range []struct {
		overlap, before string
		want            string // of the next instant
	}{
		{"skip", "accepted", "skipped overlap"},
		{"skip", "executing", "skipped overlap"},
		{"skip", "resting", "accepted"},
		{"skip", "ended", "accepted"},
		{"queue", "accepted", "waits"},
		{"queue", "executing", "waits"},
		{"queue", "resting", "accepted"},
		{"allow", "accepted", "accepted"},
		{"allow", "executing", "accepted"},
		{"allow", "resting", "accepted"},
	} {
		t.Run(c.overlap+" "+c.before, func(t *testing.T) {
			onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
				s := hourly(func(s *Scheduled) { s.Overlap, s.StartWithin = c.overlap, 90*time.Minute })
				first := accepted(t, l, h, s)
				if c.before != "accepted" {
					beginCall(t, l, first.ID)
				}
				switch c.before {
				case "resting":
					restCall(t, l, first.ID)
				case "ended":
					endCall(t, l, first.ID, Failed)
				}
				h.add(time.Hour)
				got := tickOf(t, l, s)
				all, err := l.Occurrences(t.Context(), OccurrenceFilter{Limit: 1})
				if err != nil {
					t.Fatal(err)
				}
				is := strings.TrimSpace(string(all[0].State) + " " + all[0].Why)
				switch {
				case len(got.Accepted) == 1 && all[0].Run == got.Accepted[0].ID:
					is = "accepted"
				case is == "pending":
					is = "waits"
				}
				if is != c.want {
					t.Errorf("%s, want %s", is, c.want)
				}
				if c.overlap != "queue" || c.want != "waits" {
					return
				}
				if c.before == "accepted" {
					beginCall(t, l, first.ID)
				}
				if got := tickOf(t, l, s); len(got.Accepted) != 0 {
					t.Errorf("did not wait: %+v", got)
				}
				restCall(t, l, first.ID) // its attempt failed: it is out of the way
				if second := acceptedOne(t, l, s); !second.AsOf.Equal(all[0].At) {
					t.Errorf("accepted %s", second.AsOf)
				}
			})
		})
	}
}

// TestLateRetry: a retry comes 2.8 hours after the call, when later instants have run. Each has its own record.
func TestLateRetry(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := hourly()
		first := accepted(t, l, h, s)
		beginCall(t, l, first.ID)
		restCall(t, l, first.ID)
		for range 2 {
			h.add(time.Hour)
			next := acceptedOne(t, l, s)
			beginCall(t, l, next.ID)
			endCall(t, l, next.ID, Succeeded)
		}
		h.add(48 * time.Minute)
		tickOf(t, l, s)
		if diff := cmp.Diff([]string{"pending schedule", "ok schedule", "ok schedule"}, states(t, l)); diff != "" {
			t.Error(diff)
		}
		beginCall(t, l, first.ID)
		endCall(t, l, first.ID, Failed)
		if diff := cmp.Diff([]string{"failed error schedule", "ok schedule", "ok schedule"}, states(t, l)); diff != "" {
			t.Error(diff)
		}
	})
}

// TestCallsCatchUp: of 200 missed minutes, by each rule: what is caught up, and that the rest is on record.
func TestCallsCatchUp(t *testing.T) {
	for _, c := range []struct {
		rule, overlap string
		cap, runs     int
	}{{"latest", "skip", 0, 1}, {"latest", "allow", 0, 1}, {"none", "skip", 0, 0}, {"all", "skip", 7, 7}, {"all", "allow", 7, 7}} {
		t.Run(c.rule+" "+c.overlap, func(t *testing.T) {
			onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
				s := hourly(func(s *Scheduled) {
					s.Between, s.CatchUp, s.CatchUpCap, s.Overlap, s.StartWithin = every(time.Minute), c.rule, c.cap, c.overlap, 30*time.Second
				})
				firstTick(t, l, s)
				h.add(200*time.Minute + 45*time.Second)
				runs := 0
				for range 20 {
					for _, r := range tickOf(t, l, s).Accepted {
						runs++
						if r.Cause != "catch_up" {
							t.Errorf("a run by %s", r.Cause)
						}
						beginCall(t, l, r.ID)
						endCall(t, l, r.ID, Succeeded)
					}
				}
				if runs != c.runs {
					t.Errorf("%d runs caught up, want %d", runs, c.runs)
				}
				if got := states(t, l); len(got) != 200 || slices.ContainsFunc(got, func(s string) bool { return !strings.HasPrefix(s, "missed ") }) {
					t.Errorf("%d: %q", len(got), got[0])
				}
				if dropped := count(t, l, ActionCatchUpDropped); (dropped > 0) != (c.rule == "all") {
					t.Errorf("%d entries say what was dropped", dropped)
				}
				// A pause by the task's name.
				if err := l.Pause(t.Context(), s.Policy, "ann", ""); err != nil {
					t.Fatal(err)
				}
				h.set(h.read().Truncate(time.Minute).Add(time.Minute))
				tickOf(t, l, s)
				if got := states(t, l); !strings.HasPrefix(got[len(got)-1], "skipped paused") {
					t.Errorf("paused: %q", got[len(got)-1])
				}
			})
		})
	}
}

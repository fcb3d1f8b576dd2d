package ledger

import (
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"time"
)

const planText = `{"due":11,"exceeded":[{"limit":"max_rows"}]}`

func await(t testing.TB, l *Ledger, r Run) Run {
	t.Helper()
	r, err := l.Await(t.Context(), r.ID, "it would remove 11 rows", []byte(planText))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A run that waits is nobody's, starts not, admits nothing, and keeps the reason until somebody says a word.
func TestAwait(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		r := started(t, l, "p")
		if err := l.Claim(t.Context(), r.ID, "me", 0); err != nil {
			t.Fatal(err)
		}
		r = await(t, l, r)
		if r.State != AwaitingApproval || r.Detail != "it would remove 11 rows" || r.Owner != "" {
			t.Fatalf("%+v", r)
		}
		if _, err := l.Start(t.Context(), r.ID, nil); !errors.Is(err, ErrAwaiting) {
			t.Errorf("start: %v", err)
		}
		if _, err := l.Admit(t.Context(), r.ID, Admission{NewCursor: []byte("x"), Batches: []NewBatch{batch(r.ID, 1, 5)}}); !errors.Is(err, ErrAwaiting) {
			t.Errorf("admit: %v", err)
		}
		if _, err := l.Interrupt(t.Context(), r.ID, "stopped"); err != nil {
			t.Error(err)
		}
		if err := errors.Join(l.Wait(t.Context(), r.ID, "a database"), l.WaitForWindow(t.Context(), r.ID, time.Now())); err != nil {
			t.Error(err)
		}
		if now, err := l.Get(t.Context(), r.ID); err != nil || now.State != AwaitingApproval || now.Detail != "it would remove 11 rows" || now.BatchesTotal != 0 {
			t.Errorf("%+v, %v", now, err)
		}
		if open, err := l.OpenRuns(t.Context()); err != nil || len(open) != 0 {
			t.Errorf("to be taken: %+v, %v", open, err)
		}
		if again := await(t, l, r); again.State != AwaitingApproval || count(t, l, ActionRunAwaiting) != 1 {
			t.Errorf("again: %+v", again)
		}
		a, found, err := l.Approval(t.Context(), r.ID)
		if err != nil || !found || string(a.Plan) != planText || !a.Granted.IsZero() || a.Asked.IsZero() {
			t.Errorf("%+v, %v, %v", a, found, err)
		}
	})
}

// Approved it goes on; asked about again, the answer of before is gone. What was let in is not asked about.
func TestApprove(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		r := started(t, l, "p")
		var not *NotAwaitingError
		if _, err := l.Approve(t.Context(), r.ID, "eve", ""); !errors.As(err, &not) || not.Run.ID != r.ID {
			t.Errorf("a run that does not wait: %v", err)
		}
		await(t, l, r)
		r, err := l.Approve(t.Context(), r.ID, "eve", "agreed")
		if err != nil || r.State != Running || r.Detail != "" {
			t.Fatalf("%+v, %v", r, err)
		}
		if open, err := l.OpenRuns(t.Context()); err != nil || len(open) != 1 {
			t.Errorf("to be taken: %+v, %v", open, err)
		}
		if a, _, err := l.Approval(t.Context(), r.ID); err != nil || a.Granted.IsZero() || a.Actor != "eve" || a.Reason != "agreed" {
			t.Errorf("%+v, %v", a, err)
		}
		if r, err = l.Await(t.Context(), r.ID, "now it would remove 99", []byte(`{"due":99}`)); err != nil || r.State != AwaitingApproval {
			t.Fatalf("%+v, %v", r, err)
		}
		if a, _, err := l.Approval(t.Context(), r.ID); err != nil || !a.Granted.IsZero() || a.Actor != "" || string(a.Plan) != `{"due":99}` {
			t.Errorf("%+v, %v", a, err)
		}
		if r, err = l.Approve(t.Context(), r.ID, "", ""); err != nil {
			t.Fatal(err)
		}
		r = admitOne(t, l, r, 1, 5)
		if r, err = l.Await(t.Context(), r.ID, "late", []byte(`{}`)); err != nil || r.State != Running {
			t.Errorf("a run that has begun: %+v, %v", r, err)
		}
		settleOne(t, l, r, 1, Outcomes{"deleted": 5})
		if count(t, l, ActionRunAwaiting) != 2 || count(t, l, ActionRunApproved) != 2 {
			t.Errorf("%d asked, %d approved", count(t, l, ActionRunAwaiting), count(t, l, ActionRunApproved))
		}
		if _, err := l.Await(t.Context(), r.ID, "", []byte(`{`)); err == nil {
			t.Error("a plan that is no JSON is taken")
		}
	})
}

// Approvals and a cancellation at once: one of them decides, and the others see it.
func TestApproveOrCancel(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		for range 5 {
			r := await(t, l, started(t, l, "p"))
			var mu sync.Mutex
			var wg sync.WaitGroup
			approved := 0
			for range 4 {
				wg.Go(func() {
					_, err := l.Approve(t.Context(), r.ID, "eve", "")
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						approved++
					} else if !errors.As(err, new(*NotAwaitingError)) {
						t.Error(err)
					}
				})
			}
			wg.Go(func() {
				if _, err := l.End(t.Context(), r.ID, Cancelled, WhyCancelled, ""); err != nil {
					t.Error(err)
				}
			})
			wg.Wait()
			now, err := l.Get(t.Context(), r.ID)
			if err != nil || now.State != Cancelled || approved > 1 {
				t.Errorf("%+v, %v; approved %d times", now, err, approved)
			}
		}
	})
}

// A scheduled run that began in time waits as long as it takes, and the next instant's run takes its place. One of an instant at
// which a call is expected makes way for the next instant, and not for its own.
func TestAwaitingIsSuperseded(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := nightly()
		firstTick(t, l, s)
		h.set(handsStart().Truncate(24 * time.Hour).Add(24*time.Hour + time.Minute))
		got := tickOf(t, l, s)
		if len(got.Accepted) != 1 {
			t.Fatalf("%+v", got)
		}
		r, err := l.Start(t.Context(), got.Accepted[0].ID, nil)
		if err != nil {
			t.Fatal(err)
		}
		await(t, l, r)
		h.add(5 * time.Hour) // long after start_within
		if got := tickOf(t, l, s); len(got.Ended) != 0 {
			t.Errorf("%+v", got)
		}
		if r, err = l.Approve(t.Context(), r.ID, "eve", ""); err != nil {
			t.Fatal(err)
		}
		if got := tickOf(t, l, s); len(got.Ended) != 0 {
			t.Errorf("approved, and then %+v", got)
		}
		if _, err := l.Start(t.Context(), r.ID, nil); err != nil {
			t.Errorf("it begins: %v", err)
		}
		await(t, l, r)
		h.add(19 * time.Hour)
		got = tickOf(t, l, s)
		if len(got.Accepted) != 1 || len(got.Ended) != 1 || got.Ended[0].Why != WhySuperseded || got.Ended[0].State != OccurrenceFailed {
			t.Fatalf("%+v", got)
		}
		if _, err := l.Approve(t.Context(), r.ID, "eve", ""); !errors.As(err, new(*NotAwaitingError)) {
			t.Errorf("approved too late: %v", err)
		}
	})
}

func TestAwaitingCallIsSuperseded(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		s := nightly(func(s *Scheduled) { s.External = true })
		firstTick(t, l, s)
		midnight := handsStart().Truncate(24 * time.Hour).Add(24 * time.Hour)
		call := func(at time.Time) Run {
			h.set(at)
			r := accept(t, l, an("p", IdentityKey(at.String()), func(a *Acceptance) { a.Cause = "http" }))
			r, err := l.Start(t.Context(), r.ID, nil)
			if err != nil {
				t.Fatal(err)
			}
			return await(t, l, r)
		}
		first := call(midnight.Add(-30 * time.Second)) // a little early: it is this instant's
		h.set(midnight.Add(time.Minute))
		tickOf(t, l, s)
		if r, err := l.Get(t.Context(), first.ID); err != nil || r.State != AwaitingApproval {
			t.Fatalf("the call of this instant: %+v, %v", r, err)
		}
		h.set(midnight.Add(24 * time.Hour))
		tickOf(t, l, s)
		if r, err := l.Get(t.Context(), first.ID); err != nil || r.State != Cancelled || r.WhyEnded != WhySuperseded {
			t.Errorf("the call of the instant before: %+v, %v", r, err)
		}
	})
}

// The last run that was let in is found, in its mode.
func TestBegunBefore(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		shadowed := func(a *Acceptance) { a.Mode = "shadow" }
		begun := pagedOut(t, l, started(t, l, "p"))
		started(t, l, "p") // nothing was let in
		shadow := pagedOut(t, l, started(t, l, "p", shadowed))
		pagedOut(t, l, started(t, l, "q"))
		r := started(t, l, "p")
		pagedOut(t, l, started(t, l, "p"))
		for mode, want := range map[string]string{"enforce": begun.ID, "shadow": shadow.ID} {
			if last, found, err := l.BegunBefore(t.Context(), r, mode); err != nil || !found || last.ID != want {
				t.Errorf("%s: %+v, %v, %v", mode, last, found, err)
			}
		}
		if _, found, err := l.BegunBefore(t.Context(), begun, "enforce"); found || err != nil {
			t.Errorf("before the first: %v, %v", found, err)
		}
	})
}

// A run that waits for its window is not stalled until the window has opened, and then not for a while.
func TestOutsideWindowIsNoStall(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, _ func() *Ledger) {
		r := started(t, l, "p")
		opens := h.read().Add(8 * time.Hour).Truncate(time.Second)
		if err := l.WaitForWindow(t.Context(), r.ID, opens); err != nil {
			t.Fatal(err)
		}
		stalled := func() int {
			s, err := l.Stalled(t.Context(), h.read().Add(-15*time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			return len(s)
		}
		for _, c := range []struct {
			at   time.Time
			want int
		}{{opens.Add(-time.Hour), 0}, {opens.Add(10 * time.Minute), 0}, {opens.Add(20 * time.Minute), 1}} {
			if h.set(c.at); stalled() != c.want {
				t.Errorf("at %s: %d are stalled, want %d", c.at, stalled(), c.want)
			}
		}
		if err := l.WaitForWindow(t.Context(), r.ID, time.Time{}); err != nil {
			t.Fatal(err)
		}
		if r, err := l.Get(t.Context(), r.ID); err != nil || r.Detail != "" {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestDatabases(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		one := func() Database {
			all, err := l.Databases(t.Context())
			if err != nil || len(all) != 1 {
				t.Fatalf("%+v, %v", all, err)
			}
			return all[0]
		}
		if err := l.DatabaseDiffers(t.Context(), "library", "it is another ledger's"); err != nil { // before it was ever accepted
			t.Fatal(err)
		}
		if d := one(); d.Identity != "" || d.Differs == "" || d.Noticed.IsZero() {
			t.Errorf("%+v", d)
		}
		if err := l.DatabaseDiffers(t.Context(), "library", "it is another ledger's, and older"); err != nil {
			t.Fatal(err)
		}
		if count(t, l, ActionDatabaseChanged) != 1 {
			t.Error("told twice")
		}
		if err := l.DatabaseDiffers(t.Context(), "library", ""); err != nil || count(t, l, ActionDatabaseBack) != 1 {
			t.Error(err)
		}
		if d, err := l.SeeDatabase(t.Context(), "library", "id-1", "", "run-1"); err != nil || d.Identity != "id-1" || d.Baseline != "run-1" || count(t, l, ActionDatabaseSeen) != 1 {
			t.Errorf("%+v, %v", d, err)
		}
		if d, err := l.SeeDatabase(t.Context(), "library", "id-2", "epoch-1", "run-2"); err != nil || d.Identity != "id-1" || d.Epoch != "epoch-1" || d.Baseline != "run-1" {
			t.Errorf("%+v, %v", d, err)
		}
		if d, err := l.SeeDatabase(t.Context(), "library", "id-2", "epoch-2", ""); err != nil || d.Epoch != "epoch-1" {
			t.Errorf("%+v, %v", d, err)
		}
		if err := l.DatabaseDiffers(t.Context(), "library", "x"); err != nil {
			t.Fatal(err)
		}
		if err := l.AdoptDatabase(t.Context(), "library", "id-3", "epoch-3", "run-3", "x"); err != nil {
			t.Fatal(err)
		}
		if d := one(); d.Identity != "id-3" || d.Epoch != "epoch-3" || d.Baseline != "run-3" || d.Differs != "" || !d.Noticed.IsZero() {
			t.Errorf("%+v", d)
		}
		var body struct{ Was, Identity, Differs string }
		entries, err := l.AuditEntries(t.Context(), 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.Action == ActionDatabaseAdopted {
				if err := json.Unmarshal(e.Body, &body); err != nil {
					t.Error(err)
				}
			}
		}
		if body.Was != "id-1" || body.Identity != "id-3" || body.Differs != "x" {
			t.Errorf("%+v", body)
		}
		if id, err := l.ID(t.Context()); err != nil || len(id) < 16 {
			t.Errorf("%q, %v", id, err)
		}
	})
}

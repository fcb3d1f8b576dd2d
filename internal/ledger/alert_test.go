package ledger

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func newAlert(key string, edit ...func(*NewAlert)) NewAlert {
	a := NewAlert{Key: key, Kind: "run.failed", Policy: "p", Stage: "s", Run: "r", Body: json.RawMessage(`{"b": 1,  "a": "<&>"}`)}
	for _, e := range edit {
		e(&a)
	}
	return a
}

func addAlerts(t testing.TB, l *Ledger, alerts ...NewAlert) {
	t.Helper()
	if n, err := l.AddAlerts(t.Context(), "", 0, 0, alerts); err != nil || n != len(alerts) {
		t.Fatalf("added %d of %d, %v", n, len(alerts), err)
	}
}

func next(t testing.TB, l *Ledger, lease time.Duration) []Alert {
	t.Helper()
	due, err := l.NextAlerts(t.Context(), lease, 10)
	if err != nil {
		t.Fatal(err)
	}
	return due
}

func theAlert(t testing.TB, l *Ledger) Alert {
	t.Helper()
	all, err := l.Alerts(t.Context(), AlertFilter{})
	if err != nil || len(all) != 1 {
		t.Fatalf("%d alerts, %v", len(all), err)
	}
	return all[0]
}

func TestTail(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		if _, err := l.Tail(ctx, "x"); !errors.Is(err, ErrNotFound) {
			t.Errorf("a tail nobody started: %v", err)
		}
		if _, err := l.AddAlerts(ctx, "x", 0, 1, nil); !errors.Is(err, ErrTailMoved) {
			t.Errorf("moving a tail nobody started: %v", err)
		}
		accept(t, l, an("p", IdentityOnce()))
		all := entries(t, l)
		last := all[len(all)-1].Seq
		for name, c := range map[string]struct {
			back time.Duration
			want int64
		}{"young": {-time.Hour, last}, "old": {time.Hour, 0}} {
			for range 2 {
				if seq, err := l.StartTail(ctx, name, c.back); err != nil || seq != c.want {
					t.Errorf("%s begins at %d, want %d, %v", name, seq, c.want, err)
				}
			}
		}
		if n, err := l.AddAlerts(ctx, "old", 0, 2, []NewAlert{newAlert("a"), newAlert("b"), newAlert("a")}); err != nil || n != 2 {
			t.Errorf("added %d, %v", n, err)
		}
		if n, err := l.AddAlerts(ctx, "old", 0, 2, []NewAlert{newAlert("c")}); !errors.Is(err, ErrTailMoved) || n != 0 {
			t.Errorf("from where the tail was before: %d, %v", n, err)
		}
		if seq, err := l.StartTail(ctx, "old", -time.Hour); err != nil || seq != 2 {
			t.Errorf("a tail is started twice: at %d, %v", seq, err)
		}
		if seq, err := l.Tail(ctx, "old"); err != nil || seq != 2 {
			t.Errorf("tail at %d, %v", seq, err)
		}
		if got, err := l.Alerts(ctx, AlertFilter{}); err != nil || len(got) != 2 {
			t.Errorf("%d alerts, %v", len(got), err)
		}
	})
}

// TestAddAlertsAtOnce: many processes read on at once; each thing is told once,
// and the tail moves once for each page.
func TestAddAlertsAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		if _, err := l.StartTail(ctx, "x", time.Hour); err != nil {
			t.Fatal(err)
		}
		const pages, processes = 10, 6
		moved := make([]int, processes)
		var wg sync.WaitGroup
		for p := range processes {
			wg.Go(func() {
				for {
					seq, err := l.Tail(ctx, "x")
					if err != nil {
						t.Error(err)
					}
					if err != nil || seq == pages {
						return
					}
					n, err := l.AddAlerts(ctx, "x", seq, seq+1, []NewAlert{newAlert(fmt.Sprint(seq)), newAlert(fmt.Sprint(seq, "b"))})
					switch {
					case err == nil && n == 2:
						moved[p]++
					case !errors.Is(err, ErrTailMoved):
						t.Errorf("added %d, %v", n, err)
						return
					}
				}
			})
		}
		wg.Wait()
		sum := 0
		for _, n := range moved {
			sum += n
		}
		if n := one[int](t, l, `SELECT count(*) FROM @alert`); sum != pages || n != 2*pages {
			t.Errorf("the tail moved %d times and there are %d alerts, want %d and %d", sum, n, pages, 2*pages)
		}
	})
}

func TestAlertIsSent(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		if due := next(t, l, time.Hour); due != nil {
			t.Errorf("due in an empty ledger: %v", due)
		}
		want := newAlert("a")
		addAlerts(t, l, want, newAlert("silent", func(a *NewAlert) { a.Silent = true }))
		due := next(t, l, time.Hour)
		if len(due) != 1 {
			t.Fatalf("%d are due", len(due))
		}
		a := due[0]
		got := NewAlert{Key: a.Key, Kind: a.Kind, Policy: a.Policy, Stage: a.Stage, Run: a.Run, Body: a.Body}
		if d := cmp.Diff(want, got); d != "" { // the body to the byte: it is signed
			t.Error(d)
		}
		if a.Attempts != 1 || a.At.IsZero() || !a.NextTry.Equal(a.At.Add(time.Hour)) && a.NextTry.Before(a.At.Add(time.Hour)) {
			t.Errorf("%+v", a)
		}
		if again := next(t, l, time.Hour); again != nil {
			t.Errorf("taken again within the lease: %v", again)
		}
		if err := l.AlertSent(ctx, a.ID); err != nil {
			t.Fatal(err)
		}
		// Somebody whose lease was over reports late.
		if err := l.AlertFailed(ctx, a.ID, "too late", a.At); err != nil {
			t.Fatal(err)
		}
		if err := l.AlertSent(ctx, a.ID); err != nil {
			t.Fatal(err)
		}
		all, err := l.Alerts(ctx, AlertFilter{})
		if err != nil || len(all) != 2 {
			t.Fatalf("%d alerts, %v", len(all), err)
		}
		if s := all[1]; s.Sent.IsZero() || !s.NextTry.IsZero() || s.Error != "" || s.GivenUp() {
			t.Errorf("%+v", s)
		}
		if s := all[0]; !s.Sent.IsZero() || !s.NextTry.IsZero() || s.Attempts != 0 || s.GivenUp() {
			t.Errorf("silent: %+v", s)
		}
		if due := next(t, l, 0); due != nil {
			t.Errorf("due after it was sent: %v", due)
		}
		if n := count(t, l, ActionAlertSent); n != 1 {
			t.Errorf("%d entries say that it was sent", n)
		}
	})
}

func TestAlertIsTriedAgainAndGivenUp(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		addAlerts(t, l, newAlert("a"))
		id := next(t, l, time.Hour)[0].ID
		// Due again at once, as when the wait is over.
		if err := l.AlertFailed(ctx, id, "no route", time.Now().Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		if a := theAlert(t, l); a.Error != "no route" || a.GivenUp() {
			t.Errorf("%+v", a)
		}
		// A process takes it and dies: the lease is over, the attempt counted.
		if due := next(t, l, -time.Minute); len(due) != 1 || due[0].Attempts != 2 {
			t.Fatalf("%+v", due)
		}
		if due := next(t, l, time.Hour); len(due) != 1 || due[0].Attempts != 3 {
			t.Fatalf("%+v", due)
		}
		if err := l.AlertFailed(ctx, id, "gone\x00", time.Time{}); err != nil {
			t.Fatal(err)
		}
		if a := theAlert(t, l); !a.GivenUp() || a.Error != "gone\uFFFD" || a.Attempts != 3 {
			t.Errorf("%+v", a)
		}
		if due := next(t, l, 0); due != nil {
			t.Errorf("due after it was given up: %v", due)
		}
		if err := l.AlertFailed(ctx, id, "once more", time.Now()); err != nil {
			t.Fatal(err)
		}
		if a := theAlert(t, l); !a.GivenUp() || a.Error == "once more" {
			t.Errorf("given up, and tried again: %+v", a)
		}
		if n := count(t, l, ActionAlertGivenUp); n != 1 {
			t.Errorf("%d entries say that it was given up", n)
		}
	})
}

// TestNextAlertsAtOnce: of many processes, one gets each alert.
func TestNextAlertsAtOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		const n = 40
		for i := range n {
			addAlerts(t, l, newAlert(fmt.Sprint(i)))
		}
		var mu sync.Mutex
		got := make(map[int64]int)
		var wg sync.WaitGroup
		for range 6 {
			wg.Go(func() {
				for {
					due, err := l.NextAlerts(t.Context(), time.Hour, 3)
					if err != nil {
						t.Error(err)
					}
					if left := one[int](t, l, `SELECT count(*) FROM @alert WHERE attempts = 0`); err != nil || len(due) == 0 && left == 0 {
						return
					}
					mu.Lock()
					for _, a := range due {
						got[a.ID]++
					}
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if len(got) != n {
			t.Errorf("%d of %d alerts were taken", len(got), n)
		}
		for id, times := range got {
			if times != 1 {
				t.Errorf("alert %d was taken %d times", id, times)
			}
		}
	})
}

func TestAlertsFilter(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		other := func(a *NewAlert) { a.Policy, a.Kind, a.Run, a.Silent = "q", "ping.fail", "", true }
		addAlerts(t, l, newAlert("1"), newAlert("2", other), newAlert("3"))
		first := next(t, l, time.Hour)[0]
		if err := l.AlertFailed(ctx, first.ID, "no", time.Time{}); err != nil {
			t.Fatal(err)
		}
		all, err := l.Alerts(ctx, AlertFilter{})
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range map[string]struct {
			f    AlertFilter
			want string
		}{
			"all": {AlertFilter{}, "321"}, "policy": {AlertFilter{Policy: "q"}, "2"}, "kind": {AlertFilter{Kind: "run.failed"}, "31"},
			"run": {AlertFilter{Run: "r", Limit: 1}, "3"}, "unsent": {AlertFilter{Unsent: true}, "31"}, "given up": {AlertFilter{GivenUp: true}, "1"},
			"before": {AlertFilter{Before: all[0].ID}, "21"}, "since": {AlertFilter{Since: time.Now().Add(time.Hour)}, ""},
			"lately": {AlertFilter{Since: time.Now().Add(-time.Hour)}, "321"},
		} {
			found, err := l.Alerts(ctx, c.f)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for _, a := range found {
				got += a.Key
			}
			if got != c.want {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		}
	})
}

func TestNewerPing(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ping := func(kind, policy string) func(*NewAlert) {
			return func(a *NewAlert) { a.Kind, a.Policy = PingKind+kind, policy }
		}
		addAlerts(t, l, newAlert("1", ping("start", "p")), newAlert("2", ping("fail", "q")), newAlert("3", ping("success", "p")))
		all, err := l.Alerts(t.Context(), AlertFilter{})
		if err != nil {
			t.Fatal(err)
		}
		for i, want := range []bool{false, false, true} {
			if newer, err := l.NewerPing(t.Context(), all[i], PingKind+"success", PingKind+"fail"); err != nil || newer != want {
				t.Errorf("%s of %s: %v, %v", all[i].Kind, all[i].Policy, newer, err)
			}
		}
		id := all[2].ID
		if err := l.AlertDropped(t.Context(), id, "superseded"); err != nil {
			t.Fatal(err)
		}
		if got, err := l.Alerts(t.Context(), AlertFilter{GivenUp: true}); err != nil || got != nil {
			t.Errorf("dropped counts as given up: %v, %v", got, err)
		}
		for _, a := range next(t, l, time.Hour) {
			if a.ID == id {
				t.Error("what was dropped is due")
			}
			if err := l.AlertSent(t.Context(), a.ID); err != nil {
				t.Fatal(err)
			}
		}
		if n := count(t, l, ActionAlertSent); n != 0 {
			t.Errorf("%d pings are in the audit log", n)
		}
	})
}

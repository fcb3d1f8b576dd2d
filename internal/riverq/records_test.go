package riverq

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestFailedForGood: the list of what failed, by its filters; retry and discard of
// what fits and of nothing else.
func TestFailedForGood(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		got := make(chan Attempt, 100)
		works := make(chan struct{})
		c := start(t, p.doer(t, func(_ context.Context, a Attempt) (json.RawMessage, error) {
			got <- a
			select {
			case <-works:
				return nil, nil
			default:
				return nil, fmt.Errorf("%s: 100%% \"größer\" '%d'", a.Task, a.ID)
			}
		}, []string{"a", "b"}))
		once := func(k *Call) { k.Attempts, k.Backoff = 1, 0 }
		ids := deferred(t, c, call("a", once), call("a", once, func(k *Call) { k.Key = "k" }), call("b", once), call("b", once), call("unknown", once))
		for _, d := range ids[:4] {
			settle(t, c, d.ID, Failed)
		}
		if n := count(t, c, CallFilter{State: Failed}); n != 4 {
			t.Fatalf("%d failed", n)
		}
		match := func(f CallFilter, want ...int) {
			t.Helper()
			var have, wanted []int64
			for _, r := range calls(t, c, f) {
				have = append(have, r.ID)
			}
			for _, i := range want {
				wanted = append(wanted, ids[i].ID)
			}
			if diff := cmp.Diff(wanted, have); diff != "" {
				t.Errorf("%+v (-want +got)\n%s", f, diff)
			}
		}
		match(CallFilter{}, 4, 3, 2, 1, 0)
		match(CallFilter{Task: "a"}, 1, 0)
		match(CallFilter{State: Failed, Match: `b: 100% "größer"`}, 3, 2)
		match(CallFilter{Match: "b_ 100"})
		match(CallFilter{Before: ids[2].ID}, 1, 0)
		match(CallFilter{Limit: 2}, 4, 3)
		match(CallFilter{IDs: []int64{ids[0].ID, ids[3].ID, 1 << 40}}, 3, 0)
		match(CallFilter{IDs: []int64{}})
		match(CallFilter{State: Waiting}, 4)
		if _, err := c.Calls(t.Context(), CallFilter{State: "x"}); err == nil {
			t.Error("a state that there is not")
		}
		stats, err := c.CallStats(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(map[string]map[CallState]int64{"a": {Failed: 2}, "b": {Failed: 2}, "unknown": {Waiting: 1}}, stats); diff != "" {
			t.Error(diff)
		}
		left, err := c.Backlogs(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if waits := left["unknown"]; waits.Oldest.IsZero() || waits.Failed+waits.Running != 0 {
			t.Errorf("%+v", waits)
		}
		delete(left, "unknown")
		if diff := cmp.Diff(map[string]Backlog{"a": {Failed: 2}, "b": {Failed: 2}}, left); diff != "" {
			t.Error(diff)
		}

		discard := func(f CallFilter) int64 {
			return within(t, c, func(tx *sql.Tx) (int64, error) { return c.DiscardTx(t.Context(), tx, f, "zoë", "wrong 'address'") })
		}
		if n := discard(CallFilter{Match: "b: ", Limit: 1}); n != 1 {
			t.Errorf("discarded %d", n)
		}
		if n := discard(CallFilter{Task: "unknown"}); n != 1 {
			t.Errorf("discarded %d that waited", n)
		}
		for _, i := range []int{3, 4} {
			r := settle(t, c, ids[i].ID, Discarded)
			if r.DiscardedBy != "zoë" || r.Reason != "wrong 'address'" || r.Ended.IsZero() {
				t.Errorf("%+v", r)
			}
		}
		if n := discard(CallFilter{State: Discarded}); n != 0 {
			t.Errorf("discarded %d again", n)
		}

		// An open call has the key of a failed one: that one stays failed.
		open := deferred(t, c, call("a", func(k *Call) { k.Key, k.At = "k", time.Now().Add(time.Hour) }))
		close(works)
		for len(got) > 0 {
			<-got
		}
		retry := func(f CallFilter) int64 {
			n := within(t, c, func(tx *sql.Tx) (int64, error) { return c.RetryTx(t.Context(), tx, f) })
			c.Wake(Interactive)
			return n
		}
		if n := retry(CallFilter{Task: "a"}); n != 1 {
			t.Errorf("retried %d", n)
		}
		if a := receive(t, "the retried one", got); a.ID != ids[0].ID || a.Attempt != 1 || !a.Last || a.Attempts != 1 {
			t.Errorf("%+v", a)
		}
		if r := settle(t, c, ids[0].ID, Succeeded); len(r.Errors) != 1 {
			t.Errorf("its error is forgotten: %+v", r)
		}
		settle(t, c, ids[1].ID, Failed)
		discard(CallFilter{IDs: []int64{open[0].ID}})
		if n := retry(CallFilter{}); n != 2 {
			t.Errorf("retried %d", n)
		}
		settle(t, c, ids[1].ID, Succeeded)
		settle(t, c, ids[2].ID, Succeeded)
		if n := retry(CallFilter{State: Succeeded}) + retry(CallFilter{}); n != 0 {
			t.Errorf("retried %d that had not failed", n)
		}
	})
}

// TestRunning: an attempt runs until it ends, and no other attempt is it.
func TestRunning(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		got, release := make(chan Attempt, 10), make(chan error)
		c := start(t, p.doer(t, func(_ context.Context, a Attempt) (json.RawMessage, error) { got <- a; return nil, <-release }, []string{"a"}))
		id := deferred(t, c, call("a", func(k *Call) { k.Backoff = 0 }))[0].ID
		for attempt := 1; attempt <= 2; attempt++ {
			receive(t, "an attempt", got)
			running := within(t, c, func(tx *sql.Tx) ([]bool, error) {
				return c.RunningTx(t.Context(), tx, []JobAttempt{{id, 1, ""}, {id, 2, c.o.ID}, {id + 1, 1, ""}, {id, attempt, "another"}})
			})
			if diff := cmp.Diff([]bool{attempt == 1, attempt == 2, false, false}, running); diff != "" {
				t.Errorf("attempt %d: %s", attempt, diff)
			}
			release <- map[int]error{1: errors.New("no")}[attempt]
		}
		settle(t, c, id, Succeeded)
	})
}

// TestPruneBesideRetry: a call that another session is retrying is not one whose time is up, whichever of the two commits first.
func TestPruneBesideRetry(t *testing.T) {
	p := postgresPlace(t)
	clock := newFake()
	c := p.client(t, nothing, func(o *Options) {
		o.Tasks, o.Clock, o.Beat = []string{"bad"}, clock.now, quick
		o.Do = func(context.Context, Attempt) (json.RawMessage, error) { return nil, &FinalError{errors.New("no")} }
	})
	start(t, c)
	id := deferred(t, c, call("bad"))[0].ID
	settle(t, c, id, Failed)
	stop(t, c)
	tx, err := c.o.DB.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if n, err := c.RetryTx(t.Context(), tx, CallFilter{IDs: []int64{id}}); err != nil || n != 1 {
		t.Fatalf("retried %d, %v", n, err)
	}
	later := clock.now().Add(time.Hour)
	for _, when := range []string{"before it commits", "after"} {
		if n, err := c.PruneCalls(t.Context(), later, later, 100); err != nil || n != 0 {
			t.Errorf("%s: removed %d, %v", when, n, err)
		}
		if when != "after" {
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	settle(t, c, id, Waiting)
}

// TestPrune: by the instants it is told, in bounded pieces; batches go by themselves.
func TestPrune(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		clock := newFake()
		c := p.client(t, nothing, func(o *Options) {
			o.Tasks, o.Clock, o.Beat = []string{"good", "bad"}, clock.now, quick
			o.Do = func(_ context.Context, a Attempt) (json.RawMessage, error) {
				if a.Task == "bad" {
					return nil, &FinalError{errors.New("no")}
				}
				return nil, nil
			}
		})
		start(t, c)
		var all []Call
		for range 5 {
			all = append(all, call("good"), call("bad"))
		}
		deferred(t, c, all...)
		deferred(t, c, call("unknown"))
		insert(t, c, batch(1))
		done := `SELECT count(*) FROM ` + p.job() + ` WHERE finalized_at IS NOT NULL`
		eventually(t, "all done", func() bool { return one[int](t, c.o.DB, done) == 11 })
		prune := func(good, bad time.Time, limit int, want int64) {
			t.Helper()
			if n, err := c.PruneCalls(t.Context(), good, bad, limit); err != nil || n != want {
				t.Errorf("removed %d, %v; want %d", n, err, want)
			}
		}
		at := clock.now()
		later := at.Add(time.Second)
		prune(at, at, 100, 0)
		prune(later, time.Time{}, 3, 3)
		prune(later, later, 4, 4)
		prune(time.Time{}, later, 1, 1)
		prune(later, later, 100, 2)
		prune(later, later, 100, 0)
		if n := count(t, c, CallFilter{}); n != 1 {
			t.Errorf("%d calls are left, of which one is open", n)
		}
		clock.add(keepDone + time.Second)
		if _, err := c.exec(t.Context(), doneBatches, keepDone.Seconds(), keepBroken.Seconds(), pruneAtOnce); err != nil {
			t.Fatal(err)
		}
		if n := one[int](t, c.o.DB, `SELECT count(*) FROM `+p.job()+` WHERE kind = 'curfew_batch'`); n != 0 {
			t.Errorf("%d batches that are long done", n)
		}
	})
}

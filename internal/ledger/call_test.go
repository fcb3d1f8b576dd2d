package ledger

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestCalls(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		base := time.Date(2026, 7, 1, 2, 0, 0, 0, time.UTC)
		var want []Call
		for i := range 7 {
			c := Call{At: base.Add(time.Duration(i/2) * time.Minute), Token: "k", Policy: fmt.Sprint("p", i%2), Stage: "pause", Answer: 202, Run: "ab", Fresh: i == 0}
			if i == 3 {
				c.Answer, c.Run, c.Detail = 404, "", "no policy"
			}
			if err := l.RecordCall(ctx, c); err != nil {
				t.Fatal(err)
			}
			want = append([]Call{c}, want...)
		}
		read := func(f CallFilter) []Call {
			t.Helper()
			calls, err := l.Calls(ctx, f)
			if err != nil {
				t.Fatal(err)
			}
			return calls
		}
		noID := cmpopts.IgnoreFields(Call{}, "ID")
		if d := cmp.Diff(want, read(CallFilter{}), noID); d != "" {
			t.Error(d)
		}
		var paged []Call
		for before := int64(0); ; {
			page := read(CallFilter{Before: before, Limit: 2})
			if paged = append(paged, page...); len(page) < 2 {
				break
			}
			before = page[1].ID
		}
		if d := cmp.Diff(want, paged, noID); d != "" {
			t.Error(d)
		}
		if got := read(CallFilter{Policy: "p1", Since: base.Add(time.Minute)}); len(got) != 2 || got[0].Policy != "p1" || got[1].Answer != 404 {
			t.Errorf("%+v", got)
		}
		// What a caller sent is no reason to lose the row.
		if err := l.RecordCall(ctx, Call{Token: "k", Policy: "\x00\xff" + strings.Repeat("é", 500), Answer: 404}); err != nil {
			t.Fatal(err)
		}
		if got := read(CallFilter{Limit: 1}); len(got[0].Policy) > callText+10 || got[0].At.Before(base) {
			t.Errorf("%+v", got)
		}
	})
}

// TestOperation: one key is one request, whatever else changes.
func TestOperation(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		asOf := time.Date(2025, 7, 1, 2, 0, 0, 0, time.UTC)
		op := func(edit ...func(*Acceptance)) Acceptance {
			return an("p", IdentityKey("june"), append([]func(*Acceptance){func(a *Acceptance) { a.Operation, a.Cause, a.AsOf = "june", "http", &asOf }}, edit...)...)
		}
		// A request that is refused leaves its key free.
		future := time.Now().Add(24 * time.Hour)
		var refused *FutureError
		if _, _, err := l.AcceptOperation(ctx, op(func(a *Acceptance) { a.AsOf = &future }), [32]byte{9}); !errors.As(err, &refused) {
			t.Fatalf("the future: %v", err)
		}
		first, created, err := l.AcceptOperation(ctx, op(), [32]byte{1})
		if err != nil || !created || first.Operation != "june" || !first.AsOf.Equal(asOf) {
			t.Fatalf("%+v, %v, %v", first, created, err)
		}
		again, created, err := l.AcceptOperation(ctx, op(func(a *Acceptance) { a.Mode = "shadow" }), [32]byte{1}) // the policy's mode has changed
		if err != nil || created || again.ID != first.ID {
			t.Errorf("again: run %s, created %v, %v", again.ID, created, err)
		}
		if _, _, err := l.AcceptOperation(ctx, op(func(a *Acceptance) { a.Stage = "other" }), [32]byte{2}); !errors.Is(err, ErrOtherBody) {
			t.Errorf("another body: %v", err)
		}
		other := op()
		other.Policy = "q"
		if _, created, err := l.AcceptOperation(ctx, other, [32]byte{2}); err != nil || !created {
			t.Errorf("another policy: %v, %v", created, err)
		}
		if n := one[int64](t, l, `SELECT count(*) FROM @run`); n != 2 {
			t.Errorf("%d runs, want 2", n)
		}
		if _, _, err := l.AcceptOperation(ctx, op(func(a *Acceptance) { a.Identity = "key:july" }), [32]byte{1}); err == nil {
			t.Error("key and identity differ")
		}
		// The command line knows the key, and no body.
		if _, _, err := l.Accept(ctx, an("p", IdentityKey("cli"), func(a *Acceptance) { a.Operation = "cli" })); err != nil {
			t.Fatal(err)
		}
		var sticks *AsOfSticksError
		cli := an("p", IdentityKey("cli"), func(a *Acceptance) { a.Operation, a.AsOf = "cli", &asOf })
		if _, _, err := l.AcceptOperation(ctx, cli, [32]byte{1}); !errors.As(err, &sticks) {
			t.Errorf("the command line's key at another instant: %v", err)
		}
	})
}

// TestOperationRace: of many callers with one key and two bodies, one body wins and has one run.
func TestOperationRace(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		var wg sync.WaitGroup
		var mu sync.Mutex
		runs, bodies := map[string]int{}, map[byte]bool{}
		for i := range 40 {
			wg.Go(func() {
				body := byte(i % 2)
				a := an("p", IdentityKey("k"), func(a *Acceptance) { a.Operation, a.Stage = "k", fmt.Sprint("stage", body) })
				r, created, err := l.AcceptOperation(t.Context(), a, [32]byte{body})
				if errors.Is(err, ErrOtherBody) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				bodies[body] = true
				if runs[r.ID] += 0; created {
					runs[r.ID]++
				}
			})
		}
		wg.Wait()
		if len(bodies) != 1 || len(runs) != 1 || one[int64](t, l, `SELECT count(*) FROM @run`) != 1 {
			t.Errorf("bodies %v, runs %v", bodies, runs)
		}
		for id, n := range runs {
			if n != 1 {
				t.Errorf("run %s was made %d times", id, n)
			}
		}
	})
}

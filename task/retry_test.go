package task_test

import (
	"math/big"
	"slices"
	"testing"
	"time"

	"curfew.dev/curfew/task"
	"pgregory.net/rapid"
)

func TestDefaultRetryWaits(t *testing.T) {
	var got []time.Duration
	for attempt := 1; attempt < task.DefaultRetry().Attempts; attempt++ {
		got = append(got, task.DefaultRetry().Wait(attempt))
	}
	if want := []time.Duration{10 * time.Second, 100 * time.Second, 1000 * time.Second, 10000 * time.Second}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestWaitIsExact compares with numbers that do not overflow.
func TestWaitIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := task.Retry{
			Attempts: 100,
			Backoff:  time.Duration(rapid.Int64Range(0, int64(25*time.Hour)).Draw(t, "backoff")),
			Factor:   rapid.IntRange(-1, 1000).Draw(t, "factor"),
		}
		attempt := rapid.IntRange(-1, 10000).Draw(t, "attempt")
		want := new(big.Int).Exp(big.NewInt(int64(max(r.Factor, 1))), big.NewInt(int64(max(attempt, 1)-1)), nil)
		want.Mul(want, big.NewInt(int64(r.Backoff)))
		if most := big.NewInt(int64(task.MaxWait)); want.Cmp(most) > 0 {
			want = most
		}
		if got := r.Wait(attempt); want.Cmp(big.NewInt(int64(got))) != 0 {
			t.Fatalf("%+v.Wait(%d) = %v, want %v", r, attempt, int64(got), want)
		}
	})
}

package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"curfew.dev/curfew/internal/dbtest"
)

type liveFunc = func(ctx context.Context, tx *sql.Tx, jobs []Holder) ([]bool, error)

// all says of each call what alive says.
func all(alive bool) liveFunc {
	return func(_ context.Context, _ *sql.Tx, jobs []Holder) ([]bool, error) {
		out := make([]bool, len(jobs))
		for i := range out {
			out[i] = alive
		}
		return out, nil
	}
}

func takes(t testing.TB, l *Ledger, name string, limit int, h Holder, live liveFunc, want bool) {
	t.Helper()
	if got, err := l.Lock(t.Context(), name, limit, h, live); err != nil || got != want {
		t.Errorf("%s of %d by %+v: %v, %v; want %v", name, limit, h, got, err, want)
	}
}

// TestLock: at most limit hold a lock; who holds it goes on; who lives no longer is in nobody's way, and cannot give up another's.
func TestLock(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		a, b, c := Holder{Job: 1, Attempt: 1}, Holder{Job: 2, Attempt: 1}, Holder{Job: 3, Attempt: 1}
		takes(t, l, "x", 2, a, nil, true)
		takes(t, l, "x", 2, b, nil, true) // there was a place, so nobody asks
		takes(t, l, "x", 2, a, nil, true)
		takes(t, l, "x", 2, c, all(true), false)
		takes(t, l, "y", 1, c, nil, true)
		if err := l.Unlock(t.Context(), "x", a); err != nil {
			t.Fatal(err)
		}
		takes(t, l, "x", 2, c, nil, true)
		takes(t, l, "x", 2, a, all(true), false)

		// The next attempt is another holder, and the one before it is stale.
		retry := Holder{Job: 2, Attempt: 2}
		asked := 0
		takes(t, l, "x", 2, retry, func(_ context.Context, tx *sql.Tx, jobs []Holder) ([]bool, error) {
			asked++
			if tx == nil || len(jobs) != 2 {
				t.Errorf("asked about %v", jobs)
			}
			out := make([]bool, len(jobs))
			for i, h := range jobs {
				out[i] = h != b
			}
			return out, nil
		}, true)
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		if err := l.Unlock(t.Context(), "x", b); err != nil { // too late: its place is taken
			t.Fatal(err)
		}
		takes(t, l, "x", 2, a, all(true), false)
		if n := one[int](t, l, `SELECT count(*) FROM @lock_holder WHERE name = 'x'`); n != 2 {
			t.Errorf("%d hold it", n)
		}
		takes(t, l, "x", 1, a, all(true), false) // fewer may than do
		takes(t, l, "x", 1, a, all(false), true)

		no := errors.New("no")
		if _, err := l.Lock(t.Context(), "x", 1, c, func(context.Context, *sql.Tx, []Holder) ([]bool, error) { return nil, no }); !errors.Is(err, no) {
			t.Errorf("%v", err)
		}
		for _, bad := range []func() (bool, error){
			func() (bool, error) { return l.Lock(t.Context(), "", 1, a, nil) },
			func() (bool, error) { return l.Lock(t.Context(), "x", 0, a, nil) },
			func() (bool, error) { return l.Lock(t.Context(), "x", 1, Holder{}, nil) },
			func() (bool, error) { return l.Lock(t.Context(), "x", 1, c, nil) },
			func() (bool, error) {
				return l.Lock(t.Context(), "x", 1, c, func(context.Context, *sql.Tx, []Holder) ([]bool, error) { return nil, nil })
			},
		} {
			if got, err := bad(); err == nil || got {
				t.Error("taken")
			}
		}
	})
}

// TestLockOfRun: a run holds a lock while it is open and owned, or a batch of it executes; then a call may have it, and the run no
// more until that is done.
func TestLockOfRun(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		r, call := started(t, l, "p"), Holder{Job: 1, Attempt: 1}
		run := Holder{Run: r.ID}
		if err := l.Claim(t.Context(), r.ID, "me", time.Minute); err != nil {
			t.Fatal(err)
		}
		takes(t, l, "x", 1, run, nil, true)
		takes(t, l, "x", 1, call, all(true), false)
		takes(t, l, "x", 1, run, nil, true)
		if _, err := l.Interrupt(t.Context(), r.ID, ""); err != nil {
			t.Fatal(err)
		}
		takes(t, l, "x", 1, call, all(true), false) // it was given up, with a batch in hand
		if _, err := l.Lock(t.Context(), "x", 1, call, nil); err == nil {
			t.Error("nobody says whether a batch executes, and it is no error")
		}
		takes(t, l, "x", 1, call, all(false), true)
		if err := l.Claim(t.Context(), r.ID, "another", time.Minute); err != nil {
			t.Fatal(err)
		}
		takes(t, l, "x", 1, run, all(true), false)
		takes(t, l, "x", 1, run, all(false), true) // the call's process died
		if _, err := l.End(t.Context(), r.ID, Cancelled, WhyCancelled, ""); err != nil {
			t.Fatal(err)
		}
		takes(t, l, "x", 1, call, all(true), false) // the same of one that was cancelled
		takes(t, l, "x", 1, call, all(false), true)
	})
}

// TestLockOfRetried: a call that is retried counts its attempts anew. One of before that was taken for dead, and wakes, cannot give
// up what the new one of its number holds.
func TestLockOfRetried(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		before, now, other := Holder{Run: "a", Job: 1, Attempt: 1}, Holder{Run: "b", Job: 1, Attempt: 1}, Holder{Run: "c", Job: 2, Attempt: 1}
		takes(t, l, "x", 1, before, nil, true)
		takes(t, l, "x", 1, now, all(true), false)
		takes(t, l, "x", 1, now, all(false), true)
		if err := l.Unlock(t.Context(), "x", before); err != nil {
			t.Fatal(err)
		}
		takes(t, l, "x", 1, other, all(true), false)
	})
}

// TestLockWaits: a rival that has a place in a transaction that is still open makes the next one wait, and counts. (On SQLite writers
// take turns in any case.)
func TestLockWaits(t *testing.T) {
	l := open(t, Options{URL: migrated(t, dbtest.Postgres(t))})
	inside, release := make(chan struct{}), make(chan struct{})
	takes(t, l, "x", 1, Holder{Job: 9, Attempt: 1}, nil, true)
	first, second := make(chan bool, 1), make(chan bool, 1)
	go func() {
		got, err := l.Lock(context.Background(), "x", 1, Holder{Job: 1, Attempt: 1}, func(context.Context, *sql.Tx, []Holder) ([]bool, error) {
			close(inside)
			<-release
			return []bool{false}, nil
		})
		first <- got && err == nil
	}()
	<-inside
	go func() {
		got, err := l.Lock(context.Background(), "x", 1, Holder{Job: 2, Attempt: 1}, func(_ context.Context, _ *sql.Tx, jobs []Holder) ([]bool, error) {
			return []bool{jobs[0].Job == 1}, nil // as a look at the queue would say
		})
		second <- got || err != nil
	}()
	for blocked := 0; blocked == 0 && len(second) == 0; { // the second session waits for the first
		if err := l.queryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&blocked); err != nil {
			t.Fatal(err)
		}
	}
	close(release)
	if !<-first || <-second {
		t.Error("two hold a lock for one")
	}
}

// TestLockRace: many sessions want a lock, some of their holders die with it, and never do more than limit hold it.
func TestLockRace(t *testing.T) {
	const workers, rounds = 12, 15
	for _, limit := range []int{1, 3} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			onBothURLs(t, func(t *testing.T, url string) {
				var (
					mu     sync.Mutex
					living = map[Holder]bool{} // what the queue knows
					inside atomic.Int64
					most   atomic.Int64
					wg     sync.WaitGroup
				)
				live := func(_ context.Context, _ *sql.Tx, jobs []Holder) ([]bool, error) {
					mu.Lock()
					defer mu.Unlock()
					out := make([]bool, len(jobs))
					for i, h := range jobs {
						out[i] = living[h]
					}
					return out, nil
				}
				lives := func(h Holder, is bool) {
					mu.Lock()
					defer mu.Unlock()
					living[h] = is
				}
				sessions := []*Ledger{open(t, Options{URL: url}), open(t, Options{URL: url}), open(t, Options{URL: url})}
				for w := range workers {
					wg.Go(func() {
						l := sessions[w%len(sessions)]
						for n := 1; n <= rounds; n++ {
							h := Holder{Job: int64(w + 1), Attempt: n}
							lives(h, true)
							for {
								held, err := l.Lock(t.Context(), "x", limit, h, live)
								if err != nil {
									t.Error(err)
									return
								}
								if held {
									break
								}
							}
							if now := inside.Add(1); now > int64(limit) {
								t.Errorf("%d hold a lock for %d", now, limit)
							} else if now > most.Load() {
								most.Store(now)
							}
							for range 3 { // rivals have time to come
								if _, err := l.ID(t.Context()); err != nil {
									t.Error(err)
								}
							}
							inside.Add(-1)
							lives(h, false)
							if rand.IntN(3) == 0 {
								continue // it died: nobody gives the lock up for it
							}
							if err := l.Unlock(t.Context(), "x", h); err != nil {
								t.Error(err)
							}
						}
					})
				}
				wg.Wait()
				if n := one[int](t, sessions[0], `SELECT count(*) FROM @lock_holder`); n > limit {
					t.Errorf("%d rows are left of a lock for %d", n, limit)
				}
				t.Logf("at most %d held it", most.Load())
			})
		})
	}
}

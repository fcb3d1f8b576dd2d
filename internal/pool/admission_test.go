package pool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/ledger"
)

// script is a pool that answers what a test says, without a network: so a test's clock can run by itself.
type script func(w http.ResponseWriter, r *http.Request)

func (s script) RoundTrip(r *http.Request) (*http.Response, error) {
	w := httptest.NewRecorder()
	s(w, r)
	return w.Result(), nil
}

func openLedger(t *testing.T, path string) *ledger.Ledger {
	t.Helper()
	l, err := ledger.Open(t.Context(), ledger.Options{URL: "sqlite:" + path, Actor: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

const planText = `{"strategy":"key","fingerprint":"f"}`

func startRun(t *testing.T, l *ledger.Ledger) ledger.Run {
	t.Helper()
	body := []byte("{}")
	run, _, err := l.Accept(t.Context(), ledger.Acceptance{Policy: "p", Mode: "enforce", Identity: ledger.IdentityOnce(), Cause: "cli",
		Cutoff: func(at time.Time) time.Time { return at }, RevisionID: ledger.RevisionID(body), Revision: body})
	if err != nil {
		t.Fatal(err)
	}
	if run, err = l.Start(t.Context(), run.ID, []byte(planText)); err != nil {
		t.Fatal(err)
	}
	return run
}

func remoteOf(l *ledger.Ledger, run ledger.Run, transport http.RoundTripper) *Remote {
	return NewClient(ClientOptions{URL: "http://pool.test", Token: strings.Repeat("t", 32), Transport: transport}).Remote(RemoteOptions{
		Run: Run{ID: run.ID, Revision: "{}", AsOf: run.AsOf, Cutoff: run.Cutoff, Mode: run.Mode, Plan: run.Plan},
		Now: l.Now, MaxSkew: 30 * time.Second, Attempts: 2, Backoff: time.Second, Factor: 10})
}

func drainOptions(l *ledger.Ledger, r *Remote) dispatch.Options {
	o := dispatch.Options{Ledger: l, Pager: r, Pool: r, Worker: r, Sealer: clear{}, Logger: slog.New(slog.DiscardHandler)}
	o.Batch.Rows, o.Batch.InFlight = 10, 2
	return o
}

func drainWith(t *testing.T, l *ledger.Ledger, run string, r *Remote, edit ...func(*dispatch.Options)) (ledger.Run, error) {
	t.Helper()
	o := drainOptions(l, r)
	for _, e := range edit {
		e(&o)
	}
	return dispatch.Drain(t.Context(), run, o)
}

// clear seals nothing.
type clear struct{}

func (clear) Seal(p, _ []byte) []byte          { return slices.Clone(p) }
func (clear) Open(p, _ []byte) ([]byte, error) { return p, nil }
func (clear) MAC(string, ...[]byte) [32]byte   { return [32]byte{1} }

// pages is what a scripted pool answers to the n-th page of a table of so many batches of one row.
func pages(n, of int) pageAnswer {
	return pageAnswer{Clock: time.Now(), Cursor: fmt.Appendf(nil, "cursor %d", n), Done: n == of,
		Batch: &wireBatch{Key: fmt.Sprintf("%064x", n), Phase: "main", Rows: 1, Keys: fmt.Appendf(nil, "sealed %d", n)}}
}

func settledAnswer() batchAnswer {
	return batchAnswer{State: stateSettled, Planned: 1, Outcomes: map[string]int64{"deleted": 1}, Root: make([]byte, 32), KeyID: "k", Took: 1000}
}

// A pool that is full answers 429 with Retry-After: 2, then with a date, then takes the batch: its key is the same in all three,
// no cursor moved before, nothing was paged meanwhile, and each wait was as long as told.
func TestAdmissionWaitsAsTold(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		l := openLedger(t, filepath.Join(dir, "l.db"))
		defer l.Close()
		if _, _, err := l.AcceptClock(t.Context(), "test"); err != nil { // SQLite made it by the clock outside
			t.Fatal(err)
		}
		run := startRun(t, l)
		begin := time.Now()
		type offer struct {
			key    string
			at     time.Duration
			cursor string
			state  ledger.BatchState
		}
		var mu sync.Mutex
		var offers []offer
		var pagedAt []time.Duration
		date := begin.Add(7 * time.Second)
		pool := script(func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			defer mu.Unlock()
			now, err := l.Get(context.Background(), run.ID)
			if err != nil {
				t.Error(err)
			}
			if r.URL.Path == pathPages {
				pagedAt = append(pagedAt, time.Since(begin))
				write(w, http.StatusOK, pages(len(pagedAt), 2))
				return
			}
			key := r.Header.Get(headerKey)
			b, err := l.BatchOf(context.Background(), run.ID, now.BatchesTotal)
			if err != nil {
				t.Error(err)
			}
			offers = append(offers, offer{key, time.Since(begin), string(now.Cursor), b.State})
			switch len(offers) {
			case 1:
				w.Header().Set("Retry-After", "2")
				writeProblem(w, refuse(http.StatusTooManyRequests, "", "full").problem)
			case 2:
				w.Header().Set("Retry-After", date.UTC().Format(http.TimeFormat))
				writeProblem(w, refuse(http.StatusTooManyRequests, "", "full").problem)
			case 3:
				write(w, http.StatusAccepted, batchAnswer{State: stateWorking})
			default:
				write(w, http.StatusOK, settledAnswer())
			}
		})
		var waits []string
		got, err := drainWith(t, l, run.ID, remoteOf(l, run, pool), func(o *dispatch.Options) { o.Waited = func(reason string) { waits = append(waits, reason) } })
		if err != nil || got.State != ledger.Succeeded || got.Outcomes["deleted"] != 2 {
			t.Fatalf("%v: %s (%s) with %v", err, got.State, got.WhyEnded, got.Outcomes)
		}
		for i, want := range []time.Duration{0, 2 * time.Second, 7 * time.Second} {
			o := offers[i]
			if o.key != fmt.Sprintf("%064x", 1) || o.cursor != "" || o.state != ledger.Offered || o.at < want || o.at > want+100*time.Millisecond {
				t.Errorf("offer %d: %+v; want the same key after %v, offered, before the cursor moved", i+1, o, want)
			}
		}
		if len(offers) < 4 || offers[3].cursor == "" {
			t.Errorf("after the admission: %+v", offers[3:])
		}
		if len(pagedAt) != 2 || pagedAt[0] > time.Second || pagedAt[1] < 7*time.Second {
			t.Errorf("paged at %v: nothing may be paged while an offer is refused", pagedAt)
		}
		if !slices.Equal(waits, []string{"busy", "busy"}) {
			t.Errorf("waits counted: %v", waits)
		}
	})
}

// Without Retry-After the waits double from half a minute to ten, a quarter more or less.
func TestBackoffUntold(t *testing.T) {
	var b dispatch.Backoff
	for i, want := range []time.Duration{30, 60, 120, 240, 480, 600, 600} {
		want *= time.Second
		if got := b.Next(&dispatch.BusyError{After: -1}); got < want*3/4 || got > want*5/4 {
			t.Errorf("wait %d is %v, want about %v", i+1, got, want)
		}
	}
	if got := b.Next(&dispatch.BusyError{After: 3 * time.Second}); got != 3*time.Second {
		t.Errorf("told 3 s, waits %v", got)
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		told, date string
		want       time.Duration
	}{
		{"2", "", 2 * time.Second},
		{"0", "", 0},
		{"", "", -1},
		{"-5", "", -1},
		{"soon", "", -1},
		{"99999999999999", "", -1},
		{"2000000000", "", longestTold},
		{"Wed, 01 Jul 2026 12:00:30 GMT", "", 30 * time.Second},
		{"Wed, 01 Jul 2026 11:59:00 GMT", "", 0},
		// The clock of who sent it is an hour behind ours.
		{"Wed, 01 Jul 2026 11:00:30 GMT", "Wed, 01 Jul 2026 11:00:00 GMT", 30 * time.Second},
	} {
		h := http.Header{}
		h.Set("Retry-After", tc.told)
		if tc.date != "" {
			h.Set("Date", tc.date)
		}
		if got := retryAfter(h, now); got != tc.want {
			t.Errorf("Retry-After %q (Date %q): %v, want %v", tc.told, tc.date, got, tc.want)
		}
	}
}

// A dispatcher that dies after the pool took the batch, and before the cursor moved, leaves the offer: the next one makes it again
// under the same key, with the cursor it was to move to, and pages nothing before.
func TestKilledBetweenOfferAndAdmission(t *testing.T) {
	for _, point := range []string{"offered", "offering", "admitted", "moved"} {
		t.Run(point, func(t *testing.T) {
			l := openLedger(t, filepath.Join(t.TempDir(), "l.db"))
			defer l.Close()
			run := startRun(t, l)
			var mu sync.Mutex
			var keys []string
			paged := 0
			pool := script(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				if r.URL.Path == pathPages {
					var req pageRequest
					if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
						t.Error(err)
					}
					if want := fmt.Sprintf("cursor %d", paged); paged > 0 && string(req.Cursor) != want {
						t.Errorf("page %d is asked for after %q", paged+1, req.Cursor)
					}
					paged++
					write(w, http.StatusOK, pages(paged, 3))
					return
				}
				if key := r.Header.Get(headerKey); !slices.Contains(keys, key) {
					keys = append(keys, key)
					write(w, http.StatusAccepted, batchAnswer{State: stateWorking})
					return
				}
				write(w, http.StatusOK, settledAnswer())
			})
			// The first process stops for good at the point: its goroutine waits for ever, and nothing of it is undone.
			dead, stopped, seen := make(chan struct{}), make(chan struct{}), 0
			dispatch.TestHook = func(at string) {
				mu.Lock()
				if at == point {
					seen++
				}
				here := at == point && seen == 1
				mu.Unlock()
				if here {
					close(stopped)
					<-dead
				}
			}
			ended := make(chan struct{})
			ctx, kill := context.WithCancel(t.Context())
			go func() {
				defer close(ended)
				_, _ = dispatch.Drain(ctx, run.ID, drainOptions(l, remoteOf(l, run, pool)))
			}()
			<-stopped
			before, err := l.Unsettled(t.Context(), run.ID)
			if err != nil || len(before) != 1 {
				t.Fatalf("%d batches, %v", len(before), err)
			}
			at, err := l.Get(t.Context(), run.ID)
			if err != nil {
				t.Fatal(err)
			}
			if moved := len(at.Cursor) > 0; moved != (point == "moved") || (before[0].State == ledger.Offered) == moved {
				t.Errorf("at %s: the batch is %s, the cursor %q", point, before[0].State, at.Cursor)
			}
			got, err := drainWith(t, l, run.ID, remoteOf(l, run, pool))
			if err != nil || got.State != ledger.Succeeded || got.Outcomes["deleted"] != 3 || got.BatchesTotal != 3 {
				t.Errorf("%v: %s (%s) with %v in %d batches", err, got.State, got.WhyEnded, got.Outcomes, got.BatchesTotal)
			}
			if len(keys) != 3 || paged != 3 {
				t.Errorf("%d pages, keys %v", paged, keys)
			}
			kill()
			close(dead)
			<-ended
			dispatch.TestHook = nil
		})
	}
}

// Two dispatchers at work on one run make one offer, not two that overlap.
func TestTwoDispatchers(t *testing.T) {
	l := openLedger(t, filepath.Join(t.TempDir(), "l.db"))
	defer l.Close()
	run := startRun(t, l)
	var mu sync.Mutex
	asked := map[string]int{}
	pool := script(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == pathPages {
			var req pageRequest
			if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
				t.Error(err)
			}
			n := 0
			_, _ = fmt.Sscanf(string(req.Cursor), "cursor %d", &n)
			write(w, http.StatusOK, pages(n+1, 40))
			return
		}
		key := r.Header.Get(headerKey)
		if asked[key]++; asked[key] == 1 {
			write(w, http.StatusAccepted, batchAnswer{State: stateWorking})
			return
		}
		write(w, http.StatusOK, settledAnswer())
	})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			if got, err := drainWith(t, l, run.ID, remoteOf(l, run, pool)); err != nil || got.State != ledger.Succeeded {
				t.Errorf("%v: %s", err, got.State)
			}
		})
	}
	wg.Wait()
	got, err := l.Get(t.Context(), run.ID)
	if err != nil || got.Outcomes["deleted"] != 40 || got.BatchesTotal != 40 || len(asked) != 40 {
		t.Errorf("%v: %v in %d batches, %d keys", err, got.Outcomes, got.BatchesTotal, len(asked))
	}
}

// A run that is stopped while its offer is refused does not wait for the pool; the offer stands, for whoever goes on.
func TestStoppedWhileRefused(t *testing.T) {
	l := openLedger(t, filepath.Join(t.TempDir(), "l.db"))
	defer l.Close()
	run := startRun(t, l)
	stop := make(chan struct{})
	var once sync.Once
	pool := script(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == pathPages {
			write(w, http.StatusOK, pages(1, 2))
			return
		}
		w.Header().Set("Retry-After", "3600")
		writeProblem(w, refuse(http.StatusServiceUnavailable, "", "not today").problem)
	})
	_, err := drainWith(t, l, run.ID, remoteOf(l, run, pool), func(o *dispatch.Options) {
		o.Stop, o.Waited = stop, func(string) { once.Do(func() { close(stop) }) }
	})
	if !errors.Is(err, dispatch.ErrInterrupted) {
		t.Fatalf("got %v", err)
	}
	b, err := l.BatchOf(t.Context(), run.ID, 1)
	if err != nil || b.State != ledger.Offered {
		t.Errorf("%v: %+v", err, b)
	}
}

// A run that is cancelled while the pool takes a batch ends as cancelled, and what the pool did is recorded.
func TestCancelledWhileOffered(t *testing.T) {
	l := openLedger(t, filepath.Join(t.TempDir(), "l.db"))
	defer l.Close()
	run := startRun(t, l)
	var mu sync.Mutex
	asked := 0
	pool := script(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if r.URL.Path == pathPages {
			write(w, http.StatusOK, pages(1, 2))
			return
		}
		if asked++; asked > 1 {
			write(w, http.StatusOK, settledAnswer())
			return
		}
		if _, err := l.End(context.Background(), run.ID, ledger.Cancelled, "cancelled", ""); err != nil {
			t.Error(err)
		}
		write(w, http.StatusAccepted, batchAnswer{State: stateWorking})
	})
	got, err := drainWith(t, l, run.ID, remoteOf(l, run, pool))
	if !errors.As(err, new(*dispatch.EndedError)) || got.State != ledger.Cancelled || got.Outcomes["deleted"] != 1 || got.BatchesSettled != 1 || got.BatchesTotal != 1 {
		t.Errorf("%v: %s with %v, %d of %d settled", err, got.State, got.Outcomes, got.BatchesSettled, got.BatchesTotal)
	}
}

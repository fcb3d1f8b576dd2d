package riverq

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestWake: between polls that are far apart, what is woken starts at once, in
// each queue. What is not woken, and an attempt that failed, come by the poll, and
// a stop waits for nothing.
func TestWake(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		type call struct{ seq, attempt int64 }
		began := make(chan call, 10)
		var log bytes.Buffer
		c := p.client(t, func(_ context.Context, b Batch, attempt int, _ bool) error {
			began <- call{b.Seq, int64(attempt)}
			if b.Seq == 6 && attempt == 1 {
				return errors.New("no")
			}
			return nil
		}, func(o *Options) {
			o.PollInterval, o.Beat, o.Logger = 10*time.Second, quick, slog.New(slog.NewTextHandler(&log, nil))
		})
		c.Wake(Cleanup) // not started: nothing to wake, and nothing to wait for
		c.Wake(Cleanup)
		start(t, c)
		c.Wake("no such queue")
		// The first of each queue may come by the look that a start begins with.
		for i, queue := range []string{Cleanup, Cleanup, Cleanup, Interactive, Interactive, Cleanup} {
			b := batch(int64(i+1), func(b *Batch) { b.Queue = queue })
			insert(t, c, b)
			at := time.Now()
			c.Wake(queue)
			if got, want := receive(t, "a batch that was woken", began), (call{b.Seq, 1}); got != want {
				t.Errorf("executes %v, want %v", got, want)
			}
			if d := time.Since(at); d > time.Second {
				t.Errorf("batch %d started after %s", b.Seq, d)
			}
		}
		insert(t, c, batch(7))
		got := []call{receive(t, "what nobody woke", began), receive(t, "what nobody woke", began)}
		slices.SortFunc(got, func(a, b call) int { return int(a.seq - b.seq) })
		if want := []call{{6, 2}, {7, 1}}; !slices.Equal(got, want) {
			t.Errorf("executes %v, want %v", got, want)
		}
		at := time.Now()
		stop(t, c)
		if d := time.Since(at); d > 4*time.Second {
			t.Errorf("stopped after %s", d)
		}
		for range 3 {
			c.Wake(Cleanup)
		}
		if s := log.String(); strings.Contains(s, "Notifier") { // River's, of a listener that it takes for broken
			t.Errorf("the log: %s", s)
		}
	})
}

// TestLatency says how long a batch waits when nothing else is to do.
func TestLatency(t *testing.T) {
	onBoth(t, func(t *testing.T, p place) {
		began := make(chan time.Time, 1)
		c := start(t, p.client(t, func(context.Context, Batch, int, bool) error { began <- time.Now(); return nil }))
		for run, wake := range map[string]func(string){"polled": func(string) {}, "woken": c.Wake} {
			var waits []time.Duration
			for i := range int64(40) {
				insert(t, c, batch(i+1, func(b *Batch) { b.Run = run }))
				sent := time.Now()
				wake(Cleanup)
				waits = append(waits, receive(t, "an attempt", began).Sub(sent))
				time.Sleep(rand.N(60 * time.Millisecond)) // out of step with the polling
			}
			slices.Sort(waits)
			t.Logf("insert to start, %s: p50 %s, p95 %s, max %s", run, waits[20], waits[38], waits[39])
			if waits[20] > time.Second {
				t.Errorf("half of the batches that were %s waited longer than %s", run, waits[20])
			}
		}
	})
}

package curfew

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"
)

// quietFor is how long a loop may go without a sign of life before it counts as dead.
const quietFor = 30 * time.Second

// loops are the goroutines of a service, by name. None runs unwatched: one that fails or panics is told, waits a moment and
// begins again; one that failed last, or has been quiet for long, makes the service not ready.
type loops struct {
	log *slog.Logger
	wg  sync.WaitGroup

	mu     sync.Mutex
	states []*loopState
}

type loopState struct {
	name string
	beat time.Time // the last sign of life
	err  error     // what ended it last, until the next sign of life
}

// Go runs fn until ctx is done. fn calls beat each time it has done its round; it must return when ctx is done.
func (l *loops) Go(ctx context.Context, name string, fn func(ctx context.Context, beat func()) error) {
	s := &loopState{name: name, beat: time.Now()}
	l.mu.Lock()
	l.states = append(l.states, s)
	l.mu.Unlock()
	l.wg.Go(func() {
		for wait := time.Second; ; wait = min(2*wait, quietFor) {
			began := time.Now()
			err := guarded(func() error { return fn(ctx, func() { l.note(s, nil) }) })
			if ctx.Err() != nil {
				return
			}
			if err == nil {
				err = errors.New("it ended by itself")
			}
			if time.Since(began) > time.Minute {
				wait = time.Second
			}
			l.note(s, err)
			l.log.ErrorContext(ctx, "loop_restarted", "loop", name, "wait", wait.String(), "err", err)
			select {
			case <-ctx.Done():
				return
			case <-time.After(wait):
			}
		}
	})
}

// guarded makes an error of a panic.
func guarded(fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return fn()
}

func (l *loops) note(s *loopState, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.err = err; err == nil {
		s.beat = time.Now()
	}
}

// checks says of each loop what is wrong with it, if anything.
func (l *loops) checks(now time.Time) map[string]error {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]error{}
	for _, s := range l.states {
		out[s.name] = s.err
		if quiet := now.Sub(s.beat); s.err == nil && quiet > quietFor {
			out[s.name] = fmt.Errorf("no sign of life for %s", quiet.Round(time.Second))
		}
	}
	return out
}

func (l *loops) wait() { l.wg.Wait() }

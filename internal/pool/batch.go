package pool

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/ledger"
)

const (
	// busyFor is what a caller is told to wait when all workers have something in hand: a batch is meant to take less.
	busyFor = time.Second
	// closingFor is what it is told when the pool is about to end: the next one is there soon.
	closingFor = 5 * time.Second
	// longestPoll is how long a request may wait for its batch.
	longestPoll = 20 * time.Second
	// keepAnswers is for how long, and for how many batches, an answer is kept that nobody may have got. After that it is read
	// from the receipt.
	keepAnswers = 10 * time.Minute
	maxAnswers  = 256
)

// batch takes a batch in hand, or tells what came of it.
func (s *Server) batch(w http.ResponseWriter, r *http.Request) error {
	var req batchRequest
	if err := cmp.Or(read(w, r, &req), req.check()); err != nil {
		return err
	}
	if req.Batch.Seq < 1 || req.Batch.Rows < 0 || len(req.Plan) == 0 {
		return refuse(http.StatusUnprocessableEntity, "", "a batch has a seq, and its run a plan")
	}
	b, err := s.openBatch(r, &req)
	if err != nil {
		return err
	}
	t, err := s.tasks.take(b.Key, func(t *task) {
		ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
		t.cancel = cancel
		go s.work(ctx, t, req.Run, b, req.GiveUp)
	})
	if err != nil {
		return err
	}
	timer := time.NewTimer(patience(r))
	defer timer.Stop()
	select {
	case <-t.done:
	case <-timer.C:
	case <-r.Context().Done():
	}
	select {
	case <-t.done:
	default:
		write(w, http.StatusAccepted, batchAnswer{State: stateWorking})
		return nil
	}
	if t.err != nil {
		s.tasks.forget(b.Key, t) // the next request makes another attempt
		return t.err
	}
	write(w, http.StatusOK, t.answer)
	return nil
}

// patience is how long the request may wait: Prefer: wait=SECONDS (RFC 7240), else not at all.
func patience(r *http.Request) time.Duration {
	for _, p := range strings.FieldsFunc(r.Header.Get("Prefer"), func(c rune) bool { return c == ',' || c == ';' || c == ' ' }) {
		if n, ok := strings.CutPrefix(p, "wait="); ok {
			if seconds, err := strconv.Atoi(n); err == nil && seconds > 0 {
				return min(time.Duration(seconds)*time.Second, longestPoll)
			}
		}
	}
	return 0
}

// openBatch opens a batch that this side sealed. Its key says that bounds and keys are those of this run.
func (s *Server) openBatch(r *http.Request, req *batchRequest) (dispatch.Batch, error) {
	b := dispatch.Batch{Seq: req.Batch.Seq, Phase: req.Batch.Phase, Rows: req.Batch.Rows}
	keys := r.Header.Values(headerKey)
	if len(keys) != 1 {
		return b, refuse(http.StatusUnprocessableEntity, "", "%s is to be one header, the batch's key", headerKey)
	}
	key, err := hex.DecodeString(keys[0])
	if err != nil || len(key) != len(b.Key) {
		return b, refuse(http.StatusUnprocessableEntity, "", "%s is not the key of a batch", headerKey)
	}
	if b.Bounds, err = s.open(req.ID, "bounds", req.Batch.Bounds); err != nil {
		return b, err
	}
	if b.Keys, err = s.open(req.ID, "keys", req.Batch.Keys); err != nil {
		return b, err
	}
	b.Key = s.key(req.ID, &b)
	if b.Key != ledger.BatchKey(key) {
		return b, refuse(http.StatusUnprocessableEntity, "", "the batch is not the one that %s names", headerKey)
	}
	return b, nil
}

// work executes a batch. The request that brought it may be long gone.
func (s *Server) work(ctx context.Context, t *task, run Run, b dispatch.Batch, giveUp string) {
	begin := time.Now()
	d, err := s.execute(ctx, run, b, giveUp)
	if err == nil {
		t.answer = answerOf(d, s.seal(run.ID, "handed on", d.Deferred))
		s.o.Logger.DebugContext(ctx, "pool_batch_done", "run", run.ID, "seq", b.Seq, "batch", b.Key.String(), "planned", t.answer.Planned,
			"outcomes", t.answer.Outcomes, "deferred", t.answer.Deferred, "took", time.Since(begin))
	} else {
		ref := refusalOf(err)
		if ref.Why == "" {
			ref.Why = whyBatch
		}
		t.err = ref
		s.o.Logger.WarnContext(ctx, "pool_batch_failed", "run", run.ID, "seq", b.Seq, "batch", b.Key.String(), "err", err)
	}
	s.tasks.end(t)
}

func (s *Server) execute(ctx context.Context, run Run, b dispatch.Batch, giveUp string) (d dispatch.Done, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.o.Logger.ErrorContext(ctx, "pool_panic", "run", run.ID, "seq", b.Seq, "err", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("this is a bug of curfew; the pool's log says more")
		}
	}()
	job, err := s.o.Jobs.Bind(ctx, run)
	if err != nil {
		return d, err
	}
	if giveUp != "" {
		return job.GiveUp(ctx, b, giveUp)
	}
	return job.Execute(ctx, b)
}

// tasks are the batches in hand and those done lately, by key. The zero value takes none.
type tasks struct {
	most int // in hand at once

	mu      sync.Mutex // guards what follows
	byKey   map[ledger.BatchKey]*task
	inHand  int
	closing bool
	wg      sync.WaitGroup // of those in hand
}

// task is one batch. What came of it is set before done is closed, and not changed after.
type task struct {
	cancel context.CancelFunc
	done   chan struct{}
	answer batchAnswer
	err    error
	ended  time.Time // guarded by tasks.mu; zero while it is in hand
}

// take returns the task of that key, or begins one with start when a worker is free.
func (k *tasks) take(key ledger.BatchKey, start func(*task)) (*task, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if t := k.byKey[key]; t != nil {
		return t, nil
	}
	busy := refuse(http.StatusTooManyRequests, "wait as Retry-After says, and offer the batch again under the same key", "all workers of the pool have a batch in hand")
	busy.retryAfter = busyFor
	switch {
	case k.closing:
		busy.Status, busy.Detail, busy.retryAfter = http.StatusServiceUnavailable, "the pool is being stopped", closingFor
		return nil, busy
	case k.inHand >= k.most:
		return nil, busy
	}
	if k.byKey == nil {
		k.byKey = map[ledger.BatchKey]*task{}
	}
	k.sweep(time.Now())
	t := &task{done: make(chan struct{})}
	k.byKey[key] = t
	k.inHand++
	k.wg.Add(1)
	start(t)
	return t, nil
}

// end is called when the task has its answer.
func (k *tasks) end(t *task) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t.ended = time.Now()
	t.cancel()
	close(t.done)
	k.inHand--
	k.wg.Done()
}

// forget drops a task that has ended.
func (k *tasks) forget(key ledger.BatchKey, t *task) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byKey[key] == t {
		delete(k.byKey, key)
	}
}

// sweep drops answers that are old, and the oldest when there are too many.
func (k *tasks) sweep(now time.Time) {
	for len(k.byKey) > 0 {
		var oldest ledger.BatchKey
		var found *task
		for key, t := range k.byKey {
			if !t.ended.IsZero() && (found == nil || t.ended.Before(found.ended)) {
				oldest, found = key, t
			}
		}
		if found == nil || len(k.byKey) < maxAnswers && now.Sub(found.ended) < keepAnswers {
			return
		}
		delete(k.byKey, oldest)
	}
}

// close takes nothing more and waits for what is in hand, until ctx is done; then it stops that.
func (k *tasks) close(ctx context.Context) error {
	k.mu.Lock()
	k.closing = true
	k.mu.Unlock()
	idle := make(chan struct{})
	go func() { k.wg.Wait(); close(idle) }()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	k.mu.Lock()
	for _, t := range k.byKey {
		t.cancel()
	}
	k.mu.Unlock()
	<-idle
	return ctx.Err()
}

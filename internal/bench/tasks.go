package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverdatabasesql"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"curfew.dev/curfew/internal/riverq"
)

const (
	taskLedger  = "curfew_bench_tasks"
	taskCalls   = 20_000
	taskSingles = 2_000 // deferred one a transaction
	taskWorkers = 50
	taskConns   = 4   // of whoever works, as curfew's queue has
	taskProbes  = 400 // of the latency, one at a time
)

// callQueue is a queue that calls are deferred into and done from: by another process, as far as the database can tell.
type callQueue interface {
	// put defers the calls [from, to) in one transaction, on a handle of its own.
	put(ctx context.Context, from, to int64) error
	// work begins to do calls, and returns what ends that.
	work(ctx context.Context, do func(i int64)) (stop func() error, err error)
	close() error
}

// callRival is one way to do it.
type callRival struct {
	name string
	open func(ctx context.Context, url string) (callQueue, error)
	ours bool // the tables, too
}

// migrate makes the tables: River's as River makes them, or as curfew does.
func (r callRival) migrate(ctx context.Context, db *sql.DB) error {
	if r.ours {
		return riverq.Migrate(ctx, db, false, "curfew")
	}
	m, err := rivermigrate.New(riverdatabasesql.New(db), &rivermigrate.Config{Schema: "curfew", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// Plain River with its defaults looks for more ten times a second at most: 500 calls of 50 workers, however fast they are. So it
// is told to look as often as ours does.
var callRivals = []callRival{
	{name: "River, riverpgxv5, listening", open: openRiverPgx},
	{name: "curfew", open: openOurs, ours: true},
	{name: "River, riverdatabasesql, polling", open: openRiverSQL},
}

// turn is what one contender did in one round.
type turn struct {
	many, single, done float64 // calls a second: deferred by the hundred, one by one, and done
	waits              []time.Duration
}

// measureTasks compares the calls of tasks with plain jobs of River's.
func measureTasks(ctx context.Context, s *settings) (_ string, err error) {
	p, err := openPostgres(ctx, s)
	if err != nil {
		return "", err
	}
	about, err := p.about(ctx)
	if err != nil {
		return "", err
	}
	turns := make([][]turn, len(callRivals))
	for round := range s.rounds {
		for i := range callRivals {
			at := i // every other round the other way round
			if round%2 == 1 {
				at = len(callRivals) - 1 - i
			}
			t, err := p.turn(ctx, callRivals[at])
			if err != nil {
				return "", fmt.Errorf("%s: %w", callRivals[at].name, err)
			}
			s.say("round %d, %s: %.0f deferred a second, %.0f one by one, %.0f done, p50 %.1f ms, p99 %.1f ms", round+1, callRivals[at].name,
				t.many, t.single, t.done, quantile(t.waits, 0.5), quantile(t.waits, 0.99))
			turns[at] = append(turns[at], t)
		}
	}
	r := newReport(s, about)
	r.tasks(turns)
	return r.String(), nil
}

// turn measures one contender on a database that nobody has used.
func (p *postgres) turn(ctx context.Context, rival callRival) (t turn, err error) {
	if err := p.exec(ctx, "DROP DATABASE IF EXISTS "+taskLedger+" WITH (FORCE)", "CREATE DATABASE "+taskLedger); err != nil {
		return t, err
	}
	defer func() {
		err = errors.Join(err, p.exec(context.WithoutCancel(ctx), "DROP DATABASE IF EXISTS "+taskLedger+" WITH (FORCE)"))
	}()
	url := p.url(taskLedger)
	db, err := pgOpen(url, 2)
	if err != nil {
		return t, err
	}
	defer db.Close()
	if err := execAll(ctx, db, []string{"CREATE SCHEMA curfew"}); err != nil {
		return t, err
	}
	if err := rival.migrate(ctx, db); err != nil {
		return t, err
	}
	q, err := rival.open(ctx, url)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, q.close()) }()

	began := time.Now()
	for from := int64(0); from < taskCalls-taskSingles; from += 100 {
		if err := q.put(ctx, from, from+100); err != nil {
			return t, err
		}
	}
	t.many = (taskCalls - taskSingles) / time.Since(began).Seconds()
	began = time.Now()
	for i := int64(taskCalls - taskSingles); i < taskCalls; i++ {
		if err := q.put(ctx, i, i+1); err != nil {
			return t, err
		}
	}
	t.single = taskSingles / time.Since(began).Seconds()
	if err := execAll(ctx, db, []string{"VACUUM ANALYZE", "CHECKPOINT"}); err != nil {
		return t, err
	}
	if t.done, err = drained(ctx, db, q); err != nil {
		return t, err
	}
	t.waits, err = probed(ctx, q)
	return t, err
}

// drained does all calls that wait, and counts them by the second.
func drained(ctx context.Context, db *sql.DB, q callQueue) (float64, error) {
	var done atomic.Int64
	all := make(chan struct{})
	began := time.Now()
	stop, err := q.work(ctx, func(int64) {
		if done.Add(1) == taskCalls {
			close(all)
		}
	})
	if err != nil {
		return 0, err
	}
	select {
	case <-all:
	case <-ctx.Done():
		return 0, errors.Join(ctx.Err(), stop())
	}
	took := time.Since(began)
	if err := stop(); err != nil {
		return 0, err
	}
	var n int64
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM curfew.river_job WHERE state = 'completed'`).Scan(&n)
	if err == nil && (n != taskCalls || done.Load() != taskCalls) {
		err = fmt.Errorf("%d calls are done and %d were, of %d", n, done.Load(), taskCalls)
	}
	return taskCalls / took.Seconds(), err
}

// probed is how long calls wait that come one at a time, from their commit to their start.
func probed(ctx context.Context, q callQueue) ([]time.Duration, error) {
	started := make(chan time.Time, 1)
	stop, err := q.work(ctx, func(int64) { started <- time.Now() })
	if err != nil {
		return nil, err
	}
	var waits []time.Duration
	for i := range int64(taskProbes + 20) {
		// Out of step with whoever polls.
		if err := sleep(ctx, time.Duration(3+i*7%20)*time.Millisecond); err != nil {
			return nil, errors.Join(err, stop())
		}
		if err := q.put(ctx, taskCalls+i, taskCalls+i+1); err != nil {
			return nil, errors.Join(err, stop())
		}
		at := time.Now()
		select {
		case t := <-started:
			if i >= 20 { // the first ones warm up
				waits = append(waits, t.Sub(at))
			}
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), stop())
		}
	}
	return waits, stop()
}

// ours is curfew's queue: a client that only inserts, and one that works, each on its own handle.
type ours struct {
	url    string
	db     *sql.DB
	client *riverq.Client
}

func openOurs(_ context.Context, url string) (callQueue, error) {
	o := &ours{url: url}
	var err error
	if o.db, err = pgOpen(url, 1); err != nil {
		return nil, err
	}
	o.client, err = riverq.New(riverq.Options{DB: o.db, Schema: "curfew", ID: "bench"})
	return o, err
}

func (o *ours) put(ctx context.Context, from, to int64) error {
	calls := make([]riverq.Call, 0, to-from)
	for i := from; i < to; i++ {
		calls = append(calls, riverq.Call{Task: "noop", Args: fmt.Appendf(nil, `{"i":%d}`, i), Cause: "defer",
			Attempts: 5, Backoff: 10 * time.Second, Factor: 10, Timeout: time.Minute})
	}
	return inTx(ctx, o.db, func(tx *sql.Tx) error {
		_, err := o.client.DeferTx(ctx, tx, calls)
		return err
	})
}

func inTx(ctx context.Context, db *sql.DB, f func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := f(tx); err != nil {
		return err
	}
	return tx.Commit()
}

func (o *ours) work(ctx context.Context, do func(int64)) (func() error, error) {
	db, err := pgOpen(o.url, taskConns)
	if err != nil {
		return nil, err
	}
	c, err := riverq.New(riverq.Options{DB: db, Schema: "curfew", ID: "bench", Workers: taskWorkers, Reserved: taskWorkers, Tasks: []string{"noop"},
		Do: func(_ context.Context, a riverq.Attempt) (json.RawMessage, error) {
			var args noopArgs
			if err := json.Unmarshal(a.Args, &args); err != nil {
				return nil, err
			}
			do(args.I)
			return nil, nil
		}})
	if err == nil {
		err = c.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return func() error { return errors.Join(c.Stop(context.WithoutCancel(ctx)), db.Close()) }, nil
}

func (o *ours) close() error { return o.db.Close() }

type noopArgs struct {
	I int64 `json:"i"`
}

func (noopArgs) Kind() string { return "noop" }

func noopParams(from, to int64) []river.InsertManyParams {
	params := make([]river.InsertManyParams, 0, to-from)
	for i := from; i < to; i++ {
		params = append(params, river.InsertManyParams{Args: noopArgs{i}})
	}
	return params
}

// riverConfig is plain River's, but for how soon it looks for more.
func riverConfig(do func(int64)) *river.Config {
	cfg := &river.Config{Schema: "curfew", Logger: slog.New(slog.DiscardHandler), FetchCooldown: time.Millisecond}
	if do != nil {
		cfg.Workers = river.NewWorkers()
		river.AddWorker(cfg.Workers, river.WorkFunc(func(_ context.Context, job *river.Job[noopArgs]) error {
			do(job.Args.I)
			return nil
		}))
		cfg.Queues = map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: taskWorkers}}
	}
	return cfg
}

type riverPgx struct {
	url    string
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

func pgxPool(ctx context.Context, url string, conns int32) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = conns
	return pgxpool.NewWithConfig(ctx, cfg)
}

func openRiverPgx(ctx context.Context, url string) (callQueue, error) {
	q := &riverPgx{url: url}
	var err error
	if q.pool, err = pgxPool(ctx, url, 1); err != nil {
		return nil, err
	}
	q.client, err = river.NewClient(riverpgxv5.New(q.pool), riverConfig(nil))
	return q, err
}

func (q *riverPgx) put(ctx context.Context, from, to int64) error {
	tx, err := q.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := q.client.InsertManyTx(ctx, tx, noopParams(from, to)); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

func (q *riverPgx) work(ctx context.Context, do func(int64)) (func() error, error) {
	pool, err := pgxPool(ctx, q.url, taskConns+1) // one of them listens
	if err != nil {
		return nil, err
	}
	c, err := river.NewClient(riverpgxv5.New(pool), riverConfig(do))
	if err == nil {
		err = c.Start(ctx)
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return func() error { defer pool.Close(); return c.Stop(context.WithoutCancel(ctx)) }, nil
}

func (q *riverPgx) close() error { q.pool.Close(); return nil }

type riverSQL struct {
	url    string
	db     *sql.DB
	client *river.Client[*sql.Tx]
}

func openRiverSQL(_ context.Context, url string) (callQueue, error) {
	q := &riverSQL{url: url}
	var err error
	if q.db, err = pgOpen(url, 1); err != nil {
		return nil, err
	}
	q.client, err = river.NewClient(riverdatabasesql.New(q.db), riverConfig(nil))
	return q, err
}

func (q *riverSQL) put(ctx context.Context, from, to int64) error {
	return inTx(ctx, q.db, func(tx *sql.Tx) error {
		_, err := q.client.InsertManyTx(ctx, tx, noopParams(from, to))
		return err
	})
}

func (q *riverSQL) work(ctx context.Context, do func(int64)) (func() error, error) {
	db, err := pgOpen(q.url, taskConns)
	if err != nil {
		return nil, err
	}
	cfg := riverConfig(do)
	cfg.FetchPollInterval = 50 * time.Millisecond // it cannot listen, so it polls as we do
	c, err := river.NewClient(riverdatabasesql.New(db), cfg)
	if err == nil {
		err = c.Start(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return func() error { return errors.Join(c.Stop(context.WithoutCancel(ctx)), db.Close()) }, nil
}

func (q *riverSQL) close() error { return q.db.Close() }

// tasks is the table of the comparison. The ratios are to the first line, round by round.
func (r *report) tasks(turns [][]turn) {
	fmt.Fprintf(r, "\n**Calls of tasks beside plain River**: %s no-op calls, %d workers, %d connections; ratios to the first line of the same round\n\n",
		thousands(taskCalls), taskWorkers, taskConns)
	r.WriteString("| | deferred a second, 100 a transaction | one a transaction | done a second | ratio | commit to start, p50 | ratio | p99 | ratio |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for i, rival := range callRivals {
		of := func(f func(turn) float64) (float64, string) {
			var own, ratio []float64
			for round, t := range turns[i] {
				own = append(own, f(t))
				ratio = append(ratio, f(t)/f(turns[0][round]))
			}
			return median(own), span(ratio)
		}
		many, _ := of(func(t turn) float64 { return t.many })
		single, _ := of(func(t turn) float64 { return t.single })
		done, doneRatio := of(func(t turn) float64 { return t.done })
		p50, p50Ratio := of(func(t turn) float64 { return quantile(t.waits, 0.5) })
		p99, p99Ratio := of(func(t turn) float64 { return quantile(t.waits, 0.99) })
		fmt.Fprintf(r, "| %s | %s | %s | %s | %s | %.1f ms | %s | %.1f ms | %s |\n", rival.name, thousands(int(many)), thousands(int(single)),
			thousands(int(done)), doneRatio, p50, p50Ratio, p99, p99Ratio)
	}
}

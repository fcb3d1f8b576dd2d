package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	acceptFor    = 2 * time.Second        // one measurement
	acceptPause  = 100 * time.Millisecond // between the calls of a caller who does not hurry
	acceptTokens = 100
	acceptSlots  = 6 // workers for cleanup that curfew serve has unless told otherwise
	callsBase    = "curfew_bench_calls"
)

// acceptPolicies are one that finds nothing, for the calls, and two that keep every worker busy: with waiting, and with work.
const acceptPolicies = `databases:
  bench: {url: %q, max_workers: 16}
policies:
  quiet: {authority: a benchmark, database: bench, table: quiet, until: at, action: delete, mode: enforce}
  waits:
    {authority: a benchmark, database: bench, table: waits, until: at, action: delete, mode: enforce,
     triggers: [asleep], batch: {rows: 200, in_flight: %[2]d, pace: none}}
  works:
    {authority: a benchmark, database: bench, table: works, until: at, action: delete, mode: enforce,
     triggers: [at_work], batch: {rows: 200, in_flight: %[2]d, pace: none}}
`

// acceptTables are their tables. A row trigger makes the workers' statements last: asleep, or by using a processor.
func acceptTables() []string {
	const rows = 200_000
	return []string{
		`CREATE TABLE quiet (id bigint PRIMARY KEY, at timestamptz NOT NULL)`,
		`CREATE INDEX quiet_at ON quiet (at)`,
		`INSERT INTO quiet SELECT g, now() + interval '1 year' FROM generate_series(1, 10000) g`,
		`CREATE TABLE waits (id bigint PRIMARY KEY, at timestamptz NOT NULL)`,
		`CREATE INDEX waits_at ON waits (at)`,
		fmt.Sprintf(`INSERT INTO waits SELECT g, timestamptz '2020-01-01' + g * interval '1 second' FROM generate_series(1, %d) g`, rows),
		`CREATE TABLE works (LIKE waits INCLUDING ALL)`,
		`INSERT INTO works SELECT * FROM waits`,
		`CREATE FUNCTION asleep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.0025); RETURN OLD; END'`,
		`CREATE FUNCTION at_work() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM count(*) FROM generate_series(1, 5000); RETURN OLD; END'`,
		`CREATE TRIGGER asleep BEFORE DELETE ON waits FOR EACH ROW EXECUTE FUNCTION asleep()`,
		`CREATE TRIGGER at_work BEFORE DELETE ON works FOR EACH ROW EXECUTE FUNCTION at_work()`,
		`VACUUM ANALYZE`, `CHECKPOINT`,
	}
}

// answers are what callers were answered in one measurement.
type answers struct {
	took []time.Duration
	rate float64 // a second
}

// String is three cells of the table.
func (a answers) String() string {
	return fmt.Sprintf("%.1f ms | %.1f ms | %s", quantile(a.took, 0.5), quantile(a.took, 0.99), thousands(int(a.rate)))
}

// acceptance measures how fast calls are answered, by what the workers are at and by how many call at once.
func acceptance(ctx context.Context, s *settings, p *postgres, _ table, r *report) error {
	for _, lite := range []bool{true, false} {
		fmt.Fprintf(r, "\n**A run is accepted**, ledger on %s: `POST /v1/policies/{policy}/runs`\n\n", ledgerName(lite))
		r.WriteString("| | callers | a new run: p50 | p99 | a second | the same run again: p50 | p99 | a second |\n" +
			"|---|---:|---:|---:|---:|---:|---:|---:|\n")
		for _, busy := range []struct{ policy, title string }{
			{"", "no worker has anything to do"},
			{"waits", fmt.Sprintf("all %d workers wait for the database", acceptSlots)},
			{"works", fmt.Sprintf("all %d workers, and the processors, are at work", acceptSlots)},
		} {
			s.say("acceptance: ledger on %s, %s", ledgerName(lite), busy.title)
			lines, err := accepting(ctx, s, p, lite, busy.policy)
			if err != nil {
				return fmt.Errorf("%s: %w", busy.title, err)
			}
			for _, line := range lines {
				fmt.Fprintf(r, "| %s | %s\n", busy.title, line)
			}
		}
	}
	return nil
}

// accepting measures with a ledger and a database that nobody has used.
func accepting(ctx context.Context, s *settings, p *postgres, lite bool, busy string) (lines []string, err error) {
	if err := p.exec(ctx, "DROP DATABASE IF EXISTS "+callsBase+" WITH (FORCE)", "CREATE DATABASE "+callsBase); err != nil {
		return nil, err
	}
	defer func() {
		err = errors.Join(err, p.exec(context.WithoutCancel(ctx), "DROP DATABASE IF EXISTS "+callsBase+" WITH (FORCE)"))
	}()
	db, err := pgOpen(p.url(callsBase), 1)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if err := execAll(ctx, db, acceptTables()); err != nil {
		return nil, err
	}
	w, err := newSite(ctx, s, p, lite, fmt.Sprintf(acceptPolicies, p.url(callsBase), acceptSlots+2))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	tokens, err := w.tokens(ctx, "admin", acceptTokens)
	if err != nil {
		return nil, err
	}
	d, err := w.start(ctx, "serve", "--listen", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	defer d.kill()
	c := &callers{d: d, w: w, tokens: tokens, client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}}
	if err := c.warm(ctx); err != nil {
		return nil, err
	}
	if busy != "" {
		if err := c.keepBusy(ctx, busy); err != nil {
			return nil, err
		}
	}
	for _, m := range []struct {
		n     int
		pause time.Duration
		title string
	}{{1, acceptPause, "1, at times"}, {1, 0, "1"}, {8, 0, "8"}} {
		again, err := c.measure(ctx, m.n, m.pause, false)
		if err != nil {
			return nil, err
		}
		fresh, err := c.measure(ctx, m.n, m.pause, true)
		if err != nil {
			return nil, err
		}
		line := fmt.Sprintf("%s | %s | %s |", m.title, fresh, again)
		s.say("  %s", line)
		lines = append(lines, line)
		if err := c.caughtUp(ctx, s); err != nil {
			return nil, err
		}
	}
	if busy != "" {
		if n, err := w.executing(ctx); err != nil || n < acceptSlots {
			return nil, errors.Join(err, fmt.Errorf("in the end %d workers were busy: the table was too small", n))
		}
	}
	return lines, nil
}

// callers call the daemon.
type callers struct {
	d      *service
	w      *site
	tokens []string
	client *http.Client
	calls  atomic.Int64
}

// post makes one call; each token has its turn, because each may call only ten times a second.
func (c *callers) post(ctx context.Context, fresh bool) error {
	n := c.calls.Add(1)
	key := ""
	if fresh {
		key = fmt.Sprintf("call-%d", n)
	}
	return c.d.call(ctx, c.client, c.tokens[n%int64(len(c.tokens))], http.MethodPost, runsOf("quiet"), key, "{}", nil)
}

// warm uses each token once: its first call in a minute is noted with it.
func (c *callers) warm(ctx context.Context) error {
	for range c.tokens {
		if err := c.post(ctx, false); err != nil {
			return err
		}
	}
	return nil
}

// measure lets n callers call for a while, each again a pause after its answer.
func (c *callers) measure(ctx context.Context, n int, pause time.Duration, fresh bool) (answers, error) {
	var a answers
	var mu sync.Mutex
	var all sync.WaitGroup
	var failed error
	began := time.Now()
	for range n {
		all.Go(func() {
			var took []time.Duration
			var err error
			for err == nil && time.Since(began) < acceptFor {
				start := time.Now()
				err = c.post(ctx, fresh)
				took = append(took, time.Since(start))
				err = errors.Join(err, sleep(ctx, pause))
			}
			mu.Lock()
			defer mu.Unlock()
			a.took, failed = append(a.took, took...), errors.Join(failed, err)
		})
	}
	all.Wait()
	a.rate = float64(len(a.took)) / time.Since(began).Seconds()
	return a, failed
}

// keepBusy starts the run that all workers work on, and waits until they do.
func (c *callers) keepBusy(ctx context.Context, policy string) error {
	if err := c.d.call(ctx, c.client, c.tokens[0], http.MethodPost, runsOf(policy), "", "{}", nil); err != nil {
		return err
	}
	for range 100 {
		n, err := c.w.executing(ctx)
		if err != nil || n == acceptSlots {
			return err
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return errors.New("the workers do not get busy")
}

// executing is how many batches workers are at.
func (w *site) executing(ctx context.Context) (n int, err error) {
	query := `SELECT count(*) FROM curfew.river_job WHERE state = 'running'`
	if w.lite {
		query = `SELECT count(*) FROM river_job WHERE state = 'running'`
	}
	err = w.ledger.QueryRowContext(ctx, query).Scan(&n)
	return n, err
}

// caughtUp waits until the runs that were accepted are done, so that one measurement is no burden for the next.
func (c *callers) caughtUp(ctx context.Context, s *settings) error {
	query := `SELECT count(*) FROM curfew.run WHERE policy = 'quiet' AND ended_at IS NULL`
	if c.w.lite {
		query = `SELECT count(*) FROM curfew_run WHERE policy = 'quiet' AND ended_at IS NULL`
	}
	for began, first := time.Now(), -1; ; {
		var n int
		if err := c.w.ledger.QueryRowContext(ctx, query).Scan(&n); err != nil {
			return err
		}
		if first < 0 {
			first = n
		}
		if n == 0 {
			s.say("  %d runs were open, and done after %s", first, time.Since(began).Round(time.Millisecond))
			return nil
		}
		if time.Since(began) > time.Minute {
			return fmt.Errorf("%d of %d runs are still open a minute later", n, first)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// through is a way to get a run done: in the foreground, or through the queue by so many workers in so many processes.
type through struct {
	name    string
	lite    bool // the ledger is on SQLite
	rows    int  // of a batch
	serve   bool
	slots   int // workers for cleanup of each process; 0 is the default
	workers int // curfew worker processes beside curfew serve
}

const queueInFlight = 4

// passage is what the ledger says of a run that was done one way.
type passage struct {
	wall    time.Duration // from its acceptance to its end
	rows    int
	batches int
	cpu     time.Duration // of all processes of ours
	waits   []time.Duration
	takes   []time.Duration // in the governed database
	totals  []time.Duration // from the admission to the settlement
}

func (g passage) rate() float64 { return float64(g.rows) / g.wall.Seconds() }

// idle is the part of the batches' time in which they were not executed.
func (g passage) idle() float64 { return 1 - float64(sum(g.takes))/float64(max(1, sum(g.totals))) }

func sum(v []time.Duration) (all time.Duration) {
	for _, d := range v {
		all += d
	}
	return all
}

// contender does the run and puts what the ledger says of it into into.
func (th through) contender(s *settings, p *postgres, into *[]passage) contender {
	var w *site
	return contender{
		name: th.name,
		prepare: func(ctx context.Context, a *arena) (err error) {
			w, err = newSite(ctx, s, p, th.lite, th.policies(a))
			return err
		},
		run: func(ctx context.Context, a *arena) (_ effort, err error) {
			defer func() { err = errors.Join(err, w.close()) }()
			run, e, err := th.do(ctx, w, a)
			if err != nil {
				return e, err
			}
			g, err := w.passage(ctx, run.ID, th.serve)
			g.wall, g.rows, g.cpu = run.Ended.Sub(run.Accepted), a.table.due, e.cpu
			*into = append(*into, g)
			e.batches = int64(g.batches)
			return e, err
		},
	}
}

func (th through) policies(a *arena) string {
	pool := ""
	if th.slots > 0 {
		pool = fmt.Sprintf("engine: {workers: %d, reserved: 1}\n", th.slots+1)
	}
	return fmt.Sprintf(`%sdatabases:
  bench: {url: %q}
policies:
  ev:
    {authority: a benchmark, database: bench, table: ev, until: at, action: delete, mode: enforce,
     batch: {rows: %d, in_flight: %d, pace: none}}
`, pool, a.url, th.rows, queueInFlight)
}

func (th through) do(ctx context.Context, w *site, a *arena) (run timed, e effort, err error) {
	if !th.serve {
		cmd := w.command(ctx, "run", "ev", "--as-of", a.table.cutoff().Format(time.RFC3339Nano), "--output", "json")
		var out []byte
		if e, out, err = watch(cmd); err != nil {
			return run, e, fmt.Errorf("curfew run: %w", err)
		}
		if err = json.Unmarshal(out, &run); err == nil && run.Ended == nil {
			err = fmt.Errorf("curfew's answer: %s", out)
		}
		return run, e, err
	}
	token, err := w.tokens(ctx, "admin", 1)
	if err != nil {
		return run, e, err
	}
	commands := [][]string{{"serve", "--listen", "127.0.0.1:0"}}
	for range th.workers {
		commands = append(commands, []string{"worker"})
	}
	var services []*service
	for _, args := range commands {
		r, err := w.start(ctx, args...)
		if err != nil {
			return run, e, err
		}
		defer r.kill()
		services = append(services, r)
	}
	if run, err = services[0].trigger(ctx, token[0], "ev", a.table.cutoff()); err != nil {
		return run, e, err
	}
	for _, r := range services {
		used, err := r.stop()
		if err != nil {
			return run, e, err
		}
		e.cpu += used.cpu
	}
	return run, e, nil
}

// passage reads from the ledger what became of a run's batches, and with queued when the queue handed each to a worker.
func (w *site) passage(ctx context.Context, run string, queued bool) (g passage, err error) {
	batches, jobs := `SELECT seq, created, settled_at, duration_us FROM curfew.batch WHERE run = $1 ORDER BY seq`,
		`SELECT (args->>'seq')::bigint, attempted_at FROM curfew.river_job WHERE args->>'run' = $1`
	if w.lite {
		batches = `SELECT seq, created, settled_at, duration_us FROM curfew_batch WHERE run = $1 ORDER BY seq`
		jobs = `SELECT json_extract(args, '$.seq'), CAST(attempted_at AS TEXT) FROM river_job WHERE json_extract(args, '$.run') = $1`
	}
	admitted := map[int64]time.Time{}
	err = each(ctx, w.ledger, batches, run, func(rows *sql.Rows) error {
		var seq, us int64
		var created, settled any
		if err := rows.Scan(&seq, &created, &settled, &us); err != nil {
			return err
		}
		from, err := instant(created)
		if err != nil {
			return err
		}
		to, err := instant(settled)
		if err != nil {
			return err
		}
		admitted[seq] = from
		g.batches++
		g.takes = append(g.takes, time.Duration(us)*time.Microsecond)
		g.totals = append(g.totals, to.Sub(from))
		return nil
	})
	if err != nil || !queued {
		return g, err
	}
	err = each(ctx, w.ledger, jobs, run, func(rows *sql.Rows) error {
		var seq int64
		var started any
		if err := rows.Scan(&seq, &started); err != nil {
			return err
		}
		at, err := instant(started)
		g.waits = append(g.waits, max(0, at.Sub(admitted[seq]))) // the queue's clock on SQLite has milliseconds only
		return err
	})
	if err == nil && len(g.waits) != g.batches {
		err = fmt.Errorf("the ledger has %d batches and the queue %d", g.batches, len(g.waits))
	}
	return g, err
}

func each(ctx context.Context, db *sql.DB, query, arg string, fn func(*sql.Rows) error) error {
	rows, err := db.QueryContext(ctx, query, arg)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// instant reads what either ledger and its queue have: on SQLite text, the queue's in milliseconds.
func instant(v any) (time.Time, error) {
	switch v := v.(type) {
	case time.Time:
		return v, nil
	case string:
		for _, layout := range []string{time.RFC3339Nano, time.DateTime} {
			if t, err := time.Parse(layout, v); err == nil {
				return t, nil
			}
		}
	}
	return time.Time{}, fmt.Errorf("%v is no instant", v)
}

// queueing compares curfew run with curfew serve, on the same data.
func queueing(ctx context.Context, s *settings, p *postgres, t table, r *report) error {
	for _, rows := range []int{1000, 10000} {
		fmt.Fprintf(r, "\n**A run through the queue**: %s rows in batches of %s, %d in flight, flat out\n\n", thousands(t.due), thousands(rows), queueInFlight)
		r.WriteString("| | rows a second | time, of `curfew run` | CPU s client | a batch: admitted to begun, p50 | p99 |" +
			" executed, p50 | admitted to settled, p50 | not executing |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
		for _, lite := range []bool{true, false} {
			ways := []through{{name: "`curfew run`", lite: lite, rows: rows}, {name: "`curfew serve`", lite: lite, rows: rows, serve: true}}
			got, err := done(ctx, s, p, t, ways, s.rounds)
			if err != nil {
				return err
			}
			for i, g := range got {
				r.passages(ways[i].name+", ledger on "+ledgerName(lite), g, got[0])
			}
		}
	}
	return nil
}

// done lets each way do its runs, in turns.
func done(ctx context.Context, s *settings, p *postgres, t table, ways []through, rounds int) ([][]passage, error) {
	got := make([][]passage, len(ways))
	var cs []contender
	for i, th := range ways {
		cs = append(cs, th.contender(s, p, &got[i]))
	}
	t.title = fmt.Sprintf("batches of %d, ledger on %s", ways[0].rows, ledgerName(ways[0].lite))
	_, err := compare(ctx, s, p, t, cs, rounds, 0)
	return got, err
}

// passages is a line about runs that were done one way, beside those of another way.
func (r *report) passages(name string, g, than []passage) {
	var ratios, rates, cpus, idle []float64
	var waits, takes, totals []time.Duration
	for i, one := range g {
		ratios = append(ratios, one.wall.Seconds()/than[i].wall.Seconds())
		rates, cpus, idle = append(rates, one.rate()), append(cpus, one.cpu.Seconds()/float64(one.rows)*1e6), append(idle, one.idle())
		waits, takes, totals = append(waits, one.waits...), append(takes, one.takes...), append(totals, one.totals...)
	}
	fmt.Fprintf(r, "| %s | %s | %s | %.1f | %s | %s | %.1f ms | %.1f ms | %.0f %% |\n",
		name, thousands(int(median(rates))), span(ratios), median(cpus),
		orDash("%.1f ms", quantile(waits, 0.5)), orDash("%.1f ms", quantile(waits, 0.99)), quantile(takes, 0.5), quantile(totals, 0.5), 100*median(idle))
}

// scaling gives one run more workers: slots of one process, and processes of one slot.
func scaling(ctx context.Context, s *settings, p *postgres, t table, r *report) error {
	way := func(name string, slots, workers int) through {
		return through{name: name, serve: true, slots: slots, workers: workers}
	}
	ways := []through{
		way("`curfew serve` with 1 worker", 1, 0), way("with 2", 2, 0), way("with 4", 4, 0),
		way("`curfew serve` with 1 worker, and 1 `curfew worker` with 1", 1, 1), way("and 3", 1, 3),
	}
	fmt.Fprintf(r, "\n**More workers**: the same run, %d in flight, ledger on PostgreSQL\n\n", queueInFlight)
	r.WriteString("| | batches of 1,000: rows a second | of the first line | batches of 10,000: rows a second | of the first line |\n" +
		"|---|---:|---:|---:|---:|\n")
	lines := make([]string, len(ways))
	for _, rows := range []int{1000, 10000} {
		for i := range ways {
			ways[i].rows = rows
		}
		got, err := done(ctx, s, p, t, ways, 2)
		if err != nil {
			return err
		}
		for i, g := range got {
			var rates, ratios []float64
			for j, one := range g {
				rates, ratios = append(rates, one.rate()), append(ratios, one.rate()/got[0][j].rate())
			}
			lines[i] += fmt.Sprintf(" %s | %s |", thousands(int(median(rates))), span(ratios))
		}
	}
	for i, th := range ways {
		fmt.Fprintf(r, "| %s |%s\n", th.name, lines[i])
	}
	return nil
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// single makes one table in a database of its own, for what is no comparison.
func single(ctx context.Context, s *settings, t table) (*postgres, *arena, error) {
	p, err := openPostgres(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	s.say("PostgreSQL: building %s rows", thousands(t.rows))
	if err := p.build(ctx, t); err != nil {
		return nil, nil, errors.Join(err, p.close(ctx, t))
	}
	db, err := pgOpen(p.url(t.name), 2)
	if err != nil {
		return nil, nil, errors.Join(err, p.close(ctx, t))
	}
	return p, &arena{table: t, url: p.url(t.name), db: db, postgres: true, drop: func() error {
		db.Close()
		return p.close(ctx, t)
	}}, nil
}

// measureIdle runs curfew where nothing is due, and looks how much of the table that touches.
func measureIdle(ctx context.Context, s *settings) (_ string, err error) {
	t := newTable("curfew_bench_idle", "", s.rows*5/3)
	t.due = 0
	p, a, err := single(ctx, s, t)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, a.drop()) }()
	about, err := p.about(ctx)
	if err != nil {
		return "", err
	}
	watching, err := p.watchStatements(ctx, t.name)
	if err != nil {
		return "", err
	}
	home := filepath.Join(s.dir, "idle")
	if err := prepareCurfew(ctx, s, home, a, batching{}); err != nil {
		return "", err
	}
	var walls, cpus []float64
	before, err := pagesTouched(ctx, a.db)
	if err != nil {
		return "", err
	}
	if err := p.resetStatements(ctx, watching); err != nil {
		return "", err
	}
	const runs = 10
	for i := range runs {
		start := time.Now()
		ans, e, err := runCurfew(ctx, s, home, t.cutoff().Add(-time.Duration(i)*time.Minute))
		if err != nil {
			return "", err
		}
		if ans.Planned != 0 {
			return "", fmt.Errorf("%d rows were planned where none is due", ans.Planned)
		}
		walls, cpus = append(walls, time.Since(start).Seconds()*1000), append(cpus, e.cpu.Seconds()*1000)
	}
	after, err := pagesTouched(ctx, a.db)
	if err != nil {
		return "", err
	}
	r := newReport(s, about)
	fmt.Fprintf(r, "\n%s rows with an index on the trigger, none due, %d runs:\n\n| | |\n|---|---:|\n", thousands(t.rows), runs)
	fmt.Fprintf(r, "| `curfew run`, from its start to its end | %s ms |\n", span(walls))
	fmt.Fprintf(r, "| processor time of it | %s ms |\n", span(cpus))
	if watching {
		sts, err := p.statements(ctx, t.name)
		if err != nil {
			return "", err
		}
		page, sum := 0.0, 0.0
		for _, st := range sts {
			sum += st.ms
			if st.onTable() {
				page += st.ms
			}
		}
		fmt.Fprintf(r, "| its statements on the table, in the server | %.2f ms |\n| all its statements, in the server | %.2f ms |\n", page/runs, sum/runs)
	}
	fmt.Fprintf(r, "| pages of the table and its indexes that it looked at | %s |\n", thousands((after.pages-before.pages)/runs))
	fmt.Fprintf(r, "| scans of the whole table | %d |\n", (after.scans-before.scans)/runs)
	return r.String(), nil
}

type touched struct{ pages, scans int64 }

// pagesTouched is what the server has counted for the table, once its processes have reported.
func pagesTouched(ctx context.Context, db *sql.DB) (touched, error) {
	if err := sleep(ctx, 1500*time.Millisecond); err != nil { // they report at least once a second
		return touched{}, err
	}
	var n touched
	err := db.QueryRowContext(ctx, `
		SELECT coalesce(heap_blks_read, 0) + coalesce(heap_blks_hit, 0) + coalesce(idx_blks_read, 0) + coalesce(idx_blks_hit, 0), t.seq_scan
		FROM pg_statio_user_tables io JOIN pg_stat_user_tables t USING (relid) WHERE io.relname = 'ev'`).Scan(&n.pages, &n.scans)
	return n, err
}

// measureBig deletes ten million rows while another session keeps an old snapshot, so that nothing dead can be cleaned up.
func measureBig(ctx context.Context, s *settings) (_ string, err error) {
	t := newTable("curfew_bench_big", "", s.rows*11/3)
	t.due = s.rows * 10 / 3
	p, a, err := single(ctx, s, t)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, a.drop()) }()
	about, err := p.about(ctx)
	if err != nil {
		return "", err
	}
	old, err := a.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return "", err
	}
	defer old.Rollback()
	var n int
	if err := old.QueryRowContext(ctx, `SELECT count(*) FROM account`).Scan(&n); err != nil {
		return "", err
	}
	b := batching{s.batchRows[0], s.inFlight[0]}
	home := filepath.Join(s.dir, "big")
	if err := prepareCurfew(ctx, s, home, a, b); err != nil {
		return "", err
	}
	s.say("deleting %s rows", thousands(t.due))
	start := time.Now()
	ans, e, err := runCurfew(ctx, s, home, t.cutoff())
	wall := time.Since(start)
	if err != nil {
		return "", err
	}
	if err := verify(ctx, a); err != nil {
		return "", err
	}
	took, err := batchTimes(ctx, filepath.Join(home, "ledger.db"), ans.ID)
	if err != nil {
		return "", err
	}
	first, last := ends(took)
	r := newReport(s, about)
	fmt.Fprintf(r, "\n%s due rows of %s, %s, with a snapshot from before open in another session:\n\n| | |\n|---|---:|\n",
		thousands(t.due), thousands(t.rows), b.title())
	fmt.Fprintf(r, "| rows a second | %s |\n| batches | %s |\n", thousands(int(float64(t.due)/wall.Seconds())), thousands(ans.Batches.Total))
	fmt.Fprintf(r, "| time of a batch, first tenth of them | %.0f ms |\n| time of a batch, last tenth | %.0f ms (%.2f times) |\n", first, last, last/first)
	fmt.Fprintf(r, "| most memory that the process had | %s MiB |\n", orDash("%.1f", float64(e.rss)/(1<<20)))
	return r.String(), nil
}

// batchTimes reads from a run's ledger how long each batch took, in milliseconds.
func batchTimes(ctx context.Context, ledger, run string) ([]float64, error) {
	db, err := sql.Open("sqlite", "file:"+ledger+"?mode=ro")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, `SELECT duration_us FROM curfew_batch WHERE run = ? ORDER BY seq`, run)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var took []float64
	for rows.Next() {
		var us int64
		if err := rows.Scan(&us); err != nil {
			return nil, err
		}
		took = append(took, float64(us)/1000)
	}
	return took, rows.Err()
}

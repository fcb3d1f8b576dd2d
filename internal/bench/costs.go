package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// statement is what pg_stat_statements says of one.
type statement struct {
	text  string
	calls int64
	ms    float64
	rows  int64
}

// onTable reports whether the statement reads or changes the table itself.
func (st statement) onTable() bool {
	return strings.Contains(st.text, ` ONLY "public"."ev"`)
}

// watchStatements makes the server count the statements of a database's new sessions. It answers false where the server
// was started without pg_stat_statements.
func (p *postgres) watchStatements(ctx context.Context, database string) (bool, error) {
	var loaded bool
	err := p.db.QueryRowContext(ctx, `SELECT current_setting('shared_preload_libraries') LIKE '%pg_stat_statements%'`).Scan(&loaded)
	if err != nil || !loaded {
		return false, err
	}
	return true, p.exec(ctx, "CREATE EXTENSION IF NOT EXISTS pg_stat_statements", "ALTER DATABASE "+database+" SET pg_stat_statements.track = 'all'")
}

func (p *postgres) resetStatements(ctx context.Context, watching bool) error {
	if !watching {
		return nil
	}
	return p.exec(ctx, "SELECT pg_stat_statements_reset()")
}

// statements are those of a database, the dearest first.
func (p *postgres) statements(ctx context.Context, database string) ([]statement, error) {
	rows, err := p.db.QueryContext(ctx, `
		SELECT query, calls, total_exec_time + total_plan_time, s.rows FROM pg_stat_statements s JOIN pg_database d ON d.oid = s.dbid
		WHERE d.datname = $1 ORDER BY 3 DESC`, database)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var sts []statement
	for rows.Next() {
		var st statement
		if err := rows.Scan(&st.text, &st.calls, &st.ms, &st.rows); err != nil {
			return nil, err
		}
		sts = append(sts, st)
	}
	return sts, rows.Err()
}

// measureCosts lists the statements of a run flat out. It is for those who work on curfew and goes into no document.
func measureCosts(ctx context.Context, s *settings) (_ string, err error) {
	p, err := openPostgres(ctx, s)
	if err != nil {
		return "", err
	}
	clustered := newTable("curfew_bench_clustered", "clustered", s.rows)
	scattered := newTable("curfew_bench_scattered", "scattered", s.rows)
	scattered.scattered = true
	family := newTable("curfew_bench_family", "with a child table", s.rows/10)
	family.child = true
	defer func() { err = errors.Join(err, p.close(ctx, clustered, scattered, family)) }()
	var sb strings.Builder
	for _, t := range []table{clustered, scattered, family} {
		s.say("PostgreSQL: building %s rows", thousands(t.rows))
		if err := p.build(ctx, t); err != nil {
			return "", err
		}
		for _, b := range []batching{{s.batchRows[0], s.inFlight[0]}, {}} {
			if err := p.costs(ctx, s, t, b, &sb); err != nil {
				return "", err
			}
		}
	}
	return sb.String(), nil
}

func (p *postgres) costs(ctx context.Context, s *settings, t table, b batching, sb *strings.Builder) error {
	// The copy has the name of the working database, and is made by fresh: settings of a database do not go with a copy,
	// so they are made once curfew is prepared.
	c := curfew(s, b)
	install := c.prepare
	var watching bool
	c.prepare = func(ctx context.Context, a *arena) error {
		if err := install(ctx, a); err != nil {
			return err
		}
		var err error
		if watching, err = p.watchStatements(ctx, pgWork); err != nil {
			return err
		}
		if !watching {
			return errors.New("the server was started without pg_stat_statements")
		}
		return p.resetStatements(ctx, true)
	}
	run := c.run
	var sts []statement
	c.run = func(ctx context.Context, a *arena) (effort, error) {
		e, err := run(ctx, a)
		if err == nil {
			sts, err = p.statements(ctx, pgWork)
		}
		return e, err
	}
	sm, err := bout(ctx, s, p, t, c, 0)
	if err != nil {
		return err
	}
	per := float64(max(sm.batches, 1))
	fmt.Fprintf(sb, "\n%s, %s: %s batches, CPU s a million rows: %.2f client, %.2f server, %.0f bytes of log a row, %.1f MiB at most\n\n",
		t.title, b.title(), thousands(sm.batches), sm.perMillion(sm.cpu), sm.perMillion(sm.server), float64(sm.logged)/float64(sm.rows), float64(sm.rss)/(1<<20))
	fmt.Fprintf(sb, "calls/batch  rows/call  ms/call   ms/batch  statement\n")
	var calls int64
	var ms float64
	for _, st := range sts {
		calls, ms = calls+st.calls, ms+st.ms
		if st.ms/per < 0.005 && float64(st.calls)/per < 0.5 {
			continue
		}
		text := strings.Join(strings.Fields(st.text), " ")
		fmt.Fprintf(sb, "%11.2f %10.0f %9.3f %9.3f  %.150s\n", float64(st.calls)/per, float64(st.rows)/float64(st.calls),
			st.ms/float64(st.calls), st.ms/per, text)
	}
	fmt.Fprintf(sb, "%11.2f %30.3f  all\n", float64(calls)/per, ms/per)
	return nil
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// postgres keeps each master table in a database of its own, whose copy is a copy of its files: statistics, visibility map
// and the state of every page included.
type postgres struct {
	root string
	db   *sql.DB
	pid  int // of the postmaster
}

const pgWork = "curfew_bench_work"

func openPostgres(ctx context.Context, s *settings) (*postgres, error) {
	if s.postgres == "" {
		return nil, errors.New("CURFEW_TEST_POSTGRES names no server (make bench starts one)")
	}
	p := &postgres{root: s.postgres}
	var err error
	if p.db, err = pgOpen(s.postgres, 2); err != nil {
		return nil, err
	}
	var backend int
	if err := p.db.QueryRowContext(ctx, `SELECT pg_backend_pid()`).Scan(&backend); err != nil {
		return nil, fmt.Errorf("reach PostgreSQL: %w", err)
	}
	p.pid = parentOf(backend)
	return p, nil
}

func pgOpen(dsn string, conns int) (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*cfg)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

// about says which server this is and whether it writes through.
func (p *postgres) about(ctx context.Context) (string, error) {
	rows, err := p.db.QueryContext(ctx, `SELECT name, current_setting(name) FROM pg_settings WHERE name IN
		('server_version', 'fsync', 'synchronous_commit', 'full_page_writes', 'autovacuum', 'shared_buffers', 'max_wal_size')`)
	if err != nil {
		return "", err
	}
	defer rows.Close()
	set := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return "", err
		}
		set[name] = value
	}
	version, _, _ := strings.Cut(set["server_version"], " ")
	text := fmt.Sprintf("PostgreSQL %s (shared_buffers %s, max_wal_size %s)", version, set["shared_buffers"], set["max_wal_size"])
	for _, name := range []string{"fsync", "synchronous_commit", "full_page_writes", "autovacuum"} {
		if set[name] != "on" {
			text += fmt.Sprintf(", **%s %s**", name, set[name])
		}
	}
	return text, rows.Err()
}

func (p *postgres) url(database string) string {
	u, err := url.Parse(p.root)
	if err != nil {
		return p.root
	}
	u.Path = "/" + database
	return u.String()
}

func (p *postgres) exec(ctx context.Context, statements ...string) error {
	return execAll(ctx, p.db, statements)
}

func execAll(ctx context.Context, db *sql.DB, statements []string) error {
	for _, q := range statements {
		if _, err := db.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("%.60s: %w", q, err)
		}
	}
	return nil
}

func (p *postgres) build(ctx context.Context, t table) error {
	if err := p.exec(ctx, "DROP DATABASE IF EXISTS "+t.name+" WITH (FORCE)", "CREATE DATABASE "+t.name); err != nil {
		return err
	}
	db, err := pgOpen(p.url(t.name), 1)
	if err != nil {
		return err
	}
	defer db.Close()
	place := "g"
	if t.scattered {
		place = "row_number() OVER (ORDER BY hashint8(g))"
	}
	statements := []string{
		`CREATE TABLE ev (id bigint NOT NULL, at timestamptz NOT NULL, branch int NOT NULL, note text NOT NULL)`,
		fmt.Sprintf(`INSERT INTO ev SELECT g, timestamptz '%s' + %s * interval '1 second', g %% 7, repeat('x', 60)
			FROM generate_series(1, %d) g ORDER BY g`, epoch.Format(time.RFC3339), place, t.rows),
		`ALTER TABLE ev ADD PRIMARY KEY (id)`,
		`CREATE INDEX ev_at ON ev (at)`,
		fmt.Sprintf(`CREATE TABLE account AS SELECT g AS id, 0::bigint AS balance, repeat('y', 60) AS note FROM generate_series(1, %d) g`, accounts),
		`ALTER TABLE account ADD PRIMARY KEY (id)`,
	}
	if t.child {
		statements = append(statements,
			fmt.Sprintf(`CREATE TABLE ev_item AS SELECT g AS id, g AS ev_id, repeat('z', 20) AS note FROM generate_series(1::bigint, %d) g`, t.rows),
			`ALTER TABLE ev_item ADD PRIMARY KEY (id), ALTER ev_id SET NOT NULL`,
			`CREATE INDEX ev_item_ev ON ev_item (ev_id)`,
			`ALTER TABLE ev_item ADD FOREIGN KEY (ev_id) REFERENCES ev ON DELETE CASCADE`)
	}
	return execAll(ctx, db, append(statements, `VACUUM ANALYZE`, `CHECKPOINT`))
}

func (p *postgres) fresh(ctx context.Context, t table) (*arena, error) {
	create := "CREATE DATABASE " + pgWork + " TEMPLATE " + t.name
	var version int
	if err := p.db.QueryRowContext(ctx, `SELECT current_setting('server_version_num')::int`).Scan(&version); err != nil {
		return nil, err
	}
	if version >= 150000 {
		create += " STRATEGY FILE_COPY" // before 15 there was no other
	}
	if err := p.exec(ctx, "DROP DATABASE IF EXISTS "+pgWork+" WITH (FORCE)", create, "CHECKPOINT"); err != nil {
		return nil, err
	}
	db, err := pgOpen(p.url(pgWork), foregroundConns+2)
	if err != nil {
		return nil, err
	}
	return &arena{table: t, url: p.url(pgWork), db: db, postgres: true, drop: func() error {
		db.Close()
		return p.exec(context.WithoutCancel(ctx), "DROP DATABASE IF EXISTS "+pgWork+" WITH (FORCE)")
	}}, nil
}

func (p *postgres) cpu(context.Context) time.Duration { return processCPU(p.pid, true) }

func (p *postgres) logged(ctx context.Context) int64 {
	var n int64
	if p.db.QueryRowContext(ctx, `SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint`).Scan(&n) != nil {
		return 0
	}
	return n
}

// close drops what was built.
func (p *postgres) close(ctx context.Context, tables ...table) error {
	var err error
	for _, t := range tables {
		err = errors.Join(err, p.exec(context.WithoutCancel(ctx), "DROP DATABASE IF EXISTS "+t.name+" WITH (FORCE)"))
	}
	return errors.Join(err, p.db.Close())
}

// chunk is how many rows the loops take at a time.
const chunk = 10000

var pgPlain = contender{name: "plain `DELETE`", run: func(ctx context.Context, a *arena) (effort, error) {
	_, err := a.db.ExecContext(ctx, `DELETE FROM ev WHERE at < '`+a.cutoff()+`'`)
	return effort{}, err
}}

var pgPlaces = contender{name: "loop of `DELETE … ctid … LIMIT 10000`", run: func(ctx context.Context, a *arena) (effort, error) {
	return untilNone(ctx, a, fmt.Sprintf(`DELETE FROM ev WHERE ctid = ANY(ARRAY(SELECT ctid FROM ev WHERE at < '%s' LIMIT %d))`,
		a.cutoff(), chunk))
}}

// untilNone repeats a statement until it changes nothing.
func untilNone(ctx context.Context, a *arena, statement string) (effort, error) {
	var e effort
	for {
		r, err := a.db.ExecContext(ctx, statement)
		if err != nil {
			return e, err
		}
		n, err := r.RowsAffected()
		if err != nil || n == 0 {
			return e, err
		}
		e.batches++
	}
}

// pgByID is what an application does: it reads ids, and deletes these. It would delete a row that was renewed in between.
var pgByID = contender{name: "`SELECT` 10,000 ids, `DELETE` them", run: func(ctx context.Context, a *arena) (effort, error) {
	var e effort
	for {
		rows, err := a.db.QueryContext(ctx, fmt.Sprintf(`SELECT id FROM ev WHERE at < '%s' LIMIT %d`, a.cutoff(), chunk))
		if err != nil {
			return e, err
		}
		var ids []int64
		for rows.Next() {
			var id int64
			if err := rows.Scan(&id); err != nil {
				return e, err
			}
			ids = append(ids, id)
		}
		if err := rows.Err(); err != nil || len(ids) == 0 {
			return e, err
		}
		if _, err := a.db.ExecContext(ctx, `DELETE FROM ev WHERE id = ANY($1)`, ids); err != nil {
			return e, err
		}
		e.batches++
	}
}}

// flatOut are curfew's turns without a pace.
func flatOut(s *settings) []contender {
	var cs []contender
	for _, rows := range s.batchRows {
		for _, n := range s.inFlight {
			cs = append(cs, curfew(s, batching{rows, n}))
		}
	}
	return cs
}

func measurePostgres(ctx context.Context, s *settings) (_ string, err error) {
	p, err := openPostgres(ctx, s)
	if err != nil {
		return "", err
	}
	about, err := p.about(ctx)
	if err != nil {
		return "", err
	}
	clustered := newTable("curfew_bench_clustered", "The trigger follows the physical order", s.rows)
	scattered := newTable("curfew_bench_scattered", "The trigger does not follow the physical order", s.rows)
	scattered.scattered = true
	family := newTable("curfew_bench_family", "With a child table, `ON DELETE CASCADE`", s.rows/10)
	family.child = true
	defer func() { err = errors.Join(err, p.close(ctx, clustered, scattered, family)) }()

	r := newReport(s, about)
	flat := flatOut(s)
	gentle := curfew(s, batching{})
	for _, t := range []table{clustered, scattered, family} {
		s.say("PostgreSQL: building %s rows", thousands(t.rows))
		if err := p.build(ctx, t); err != nil {
			return "", err
		}
		cs := append([]contender{pgPlain, pgPlaces, pgByID}, flat...)
		if t.child {
			cs = append([]contender{pgPlain}, flat...)
		}
		samples, err := compare(ctx, s, p, t, cs, s.rounds, 0)
		if err != nil {
			return "", err
		}
		r.speed(t, cs, samples)
		if t.child || s.load == 0 {
			continue
		}
		cs = []contender{pgPlain, pgPlaces, pgByID, flat[0], gentle}
		if samples, err = compare(ctx, s, p, t, cs, s.load, s.ops); err != nil {
			return "", err
		}
		r.latency(t, cs, samples, s.ops)
	}
	return r.String(), nil
}

// about the machine, in the words of the report.
func here() string { return machine(runtime.NumCPU()) }

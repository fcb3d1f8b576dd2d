package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// mariadb keeps the master tables in one database and copies them row by row: InnoDB's files cannot be copied under it.
type mariadb struct {
	root *url.URL
	db   *sql.DB
	pid  int
}

const (
	myMaster = "curfew_bench_master"
	myWork   = "curfew_bench_work"
)

func openMariaDB(ctx context.Context, s *settings) (*mariadb, error) {
	if s.mariadb == "" {
		return nil, errors.New("CURFEW_TEST_MARIADB names no server (make bench starts one)")
	}
	u, err := url.Parse(s.mariadb)
	if err != nil {
		return nil, errors.New("CURFEW_TEST_MARIADB is no URL")
	}
	m := &mariadb{root: u}
	if m.db, err = m.open("", 2); err != nil {
		return nil, err
	}
	var file string
	if err := m.db.QueryRowContext(ctx, `SELECT @@pid_file`).Scan(&file); err != nil {
		return nil, fmt.Errorf("reach MariaDB: %w", err)
	}
	if b, err := os.ReadFile(file); err == nil { // a server elsewhere has no processor time that we could see
		m.pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
	}
	if err := m.exec(ctx, "CREATE DATABASE IF NOT EXISTS "+myMaster); err != nil {
		return nil, err
	}
	m.db.Close()
	m.db, err = m.open(myMaster, 2) // its sequences want a database to be in
	return m, err
}

func (m *mariadb) open(database string, conns int) (*sql.DB, error) {
	cfg := mysql.NewConfig()
	cfg.Net, cfg.Addr, cfg.DBName = "tcp", m.root.Host, database
	cfg.User = m.root.User.Username()
	cfg.Passwd, _ = m.root.User.Password()
	cfg.InterpolateParams = true // one round trip a statement, as with PostgreSQL's cached statements
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(c)
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db, nil
}

func (m *mariadb) exec(ctx context.Context, statements ...string) error {
	return execAll(ctx, m.db, statements)
}

func (m *mariadb) about(ctx context.Context) (string, error) {
	var version, flush string
	var pool int64
	err := m.db.QueryRowContext(ctx, `SELECT version(), @@innodb_flush_log_at_trx_commit, @@innodb_buffer_pool_size`).Scan(&version, &flush, &pool)
	version, _, _ = strings.Cut(version, "-")
	text := fmt.Sprintf("MariaDB %s (buffer pool %d MiB)", version, pool>>20)
	if flush != "1" {
		text += ", **innodb_flush_log_at_trx_commit " + flush + "**"
	}
	return text, err
}

const myColumns = `(id bigint NOT NULL PRIMARY KEY, at datetime(6) NOT NULL, branch int NOT NULL, note varchar(200) NOT NULL)`

func (m *mariadb) build(ctx context.Context, t table) error {
	place := "seq"
	if t.scattered {
		place = "row_number() OVER (ORDER BY md5(seq))"
	}
	return m.exec(ctx,
		"DROP TABLE IF EXISTS "+t.name,
		"CREATE TABLE "+t.name+" "+myColumns+" ENGINE = InnoDB",
		fmt.Sprintf(`INSERT INTO %s SELECT seq, timestamp('%s') + INTERVAL %s SECOND, seq %% 7, repeat('x', 60) FROM seq_1_to_%d ORDER BY seq`,
			t.name, epoch.Format("2006-01-02 15:04:05"), place, t.rows))
}

func (m *mariadb) fresh(ctx context.Context, t table) (*arena, error) {
	err := m.exec(ctx,
		"DROP DATABASE IF EXISTS "+myWork, "CREATE DATABASE "+myWork,
		"CREATE TABLE "+myWork+".ev "+myColumns+" ENGINE = InnoDB",
		"INSERT INTO "+myWork+".ev SELECT * FROM "+t.name+" ORDER BY id",
		"ALTER TABLE "+myWork+".ev ADD INDEX ev_at (at)",
		"CREATE TABLE "+myWork+".account (id int NOT NULL PRIMARY KEY, balance bigint NOT NULL, note varchar(200) NOT NULL) ENGINE = InnoDB",
		fmt.Sprintf("INSERT INTO %s.account SELECT seq, 0, repeat('y', 60) FROM seq_1_to_%d", myWork, accounts),
		"ANALYZE TABLE "+myWork+".ev",
	)
	if err != nil {
		return nil, err
	}
	if err := m.settle(ctx); err != nil {
		return nil, err
	}
	db, err := m.open(myWork, foregroundConns+2)
	if err != nil {
		return nil, err
	}
	u := *m.root
	u.Path = "/" + myWork
	return &arena{table: t, url: u.String(), db: db, drop: func() error {
		db.Close()
		return m.exec(context.WithoutCancel(ctx), "DROP DATABASE IF EXISTS "+myWork)
	}}, nil
}

// settle writes out the pages that the copying changed: what a checkpoint is elsewhere.
func (m *mariadb) settle(ctx context.Context) error {
	c, err := m.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := c.ExecContext(ctx, "FLUSH TABLES "+myWork+".ev, "+myWork+".account FOR EXPORT"); err != nil {
		return err
	}
	_, err = c.ExecContext(ctx, "UNLOCK TABLES")
	return err
}

func (m *mariadb) cpu(context.Context) time.Duration {
	if m.pid == 0 {
		return 0
	}
	return processCPU(m.pid, false)
}

func (m *mariadb) logged(ctx context.Context) int64 {
	var name string
	var n int64
	if m.db.QueryRowContext(ctx, `SHOW GLOBAL STATUS LIKE 'Innodb_os_log_written'`).Scan(&name, &n) != nil {
		return 0
	}
	return n
}

func (m *mariadb) close(ctx context.Context) error {
	return errors.Join(m.exec(context.WithoutCancel(ctx), "DROP DATABASE IF EXISTS "+myMaster), m.db.Close())
}

var myPlain = contender{name: "plain `DELETE`", run: func(ctx context.Context, a *arena) (effort, error) {
	_, err := a.db.ExecContext(ctx, `DELETE FROM ev WHERE at < '`+a.cutoff()+`'`)
	return effort{}, err
}}

var myLimit = contender{name: "loop of `DELETE … LIMIT 10000`", run: func(ctx context.Context, a *arena) (effort, error) {
	return untilNone(ctx, a, fmt.Sprintf(`DELETE FROM ev WHERE at < '%s' ORDER BY at LIMIT %d`, a.cutoff(), chunk))
}}

// archiver is Percona's tool as its manual recommends it for purging in bulk. Its log, if it kept one, would be the rows.
func (m *mariadb) archiver() contender {
	return contender{name: "`pt-archiver --bulk-delete --limit 10000`", run: func(ctx context.Context, a *arena) (effort, error) {
		password, _ := m.root.User.Password()
		e, _, err := watch(exec.CommandContext(ctx, "pt-archiver",
			"--source", fmt.Sprintf("h=%s,P=%s,u=%s,p=%s,D=%s,t=ev", m.root.Hostname(), m.root.Port(), m.root.User.Username(), password, myWork),
			"--where", "at < '"+a.cutoff()+"'", "--purge", "--bulk-delete", "--limit", strconv.Itoa(chunk), "--commit-each",
			"--primary-key-only", "--no-check-charset"))
		return e, err
	}}
}

func measureMariaDB(ctx context.Context, s *settings) (_ string, err error) {
	m, err := openMariaDB(ctx, s)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, m.close(ctx)) }()
	about, err := m.about(ctx)
	if err != nil {
		return "", err
	}
	r := newReport(s, about)
	flat, gentle := curfew(s, batching{s.batchRows[0], s.inFlight[0]}), curfew(s, batching{})
	for _, scattered := range []bool{false, true} {
		t := newTable("clustered", "The trigger follows the primary key", s.rows/5)
		if scattered {
			t = newTable("scattered", "The trigger does not follow the primary key", s.rows/5)
			t.scattered = true
		}
		s.say("MariaDB: building %s rows", thousands(t.rows))
		if err := m.build(ctx, t); err != nil {
			return "", err
		}
		cs := []contender{myPlain, myLimit, m.archiver(), flat}
		samples, err := compare(ctx, s, m, t, cs, s.rounds, 0)
		if err != nil {
			return "", err
		}
		r.speed(t, cs, samples)
		if scattered || s.load == 0 {
			continue
		}
		cs = append(cs, gentle)
		if samples, err = compare(ctx, s, m, t, cs, s.load, s.ops); err != nil {
			return "", err
		}
		r.latency(t, cs, samples, s.ops)
	}
	return r.String(), nil
}

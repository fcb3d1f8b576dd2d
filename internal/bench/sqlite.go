package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // registers "sqlite"
)

// lite keeps each master table in a file, whose copy is the copy of a file.
type lite struct{ dir string }

func (l *lite) open(path string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=busy_timeout(10000)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)")
	if err == nil {
		db.SetMaxOpenConns(1)
	}
	return db, err
}

func (l *lite) build(ctx context.Context, t table) error {
	path := filepath.Join(l.dir, t.name+".db")
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	db, err := l.open(path)
	if err != nil {
		return err
	}
	defer db.Close()
	place := "g"
	if t.scattered {
		place = "row_number() OVER (ORDER BY g * 2654435761 % 4294967296)"
	}
	return execAll(ctx, db, []string{
		`PRAGMA journal_mode = WAL`,
		`CREATE TABLE ev (id INTEGER PRIMARY KEY, at TEXT NOT NULL, branch INTEGER NOT NULL, note TEXT NOT NULL)`,
		fmt.Sprintf(`WITH RECURSIVE n(g) AS (SELECT 1 UNION ALL SELECT g + 1 FROM n WHERE g < %d)
			INSERT INTO ev SELECT g, strftime('%%Y-%%m-%%d %%H:%%M:%%S', %d + p, 'unixepoch') || '.000000', g %% 7, '%060d'
			FROM (SELECT g, %s AS p FROM n) ORDER BY g`, t.rows, epoch.Unix(), 0, place),
		`CREATE INDEX ev_at ON ev (at)`,
		`ANALYZE`,
		`PRAGMA wal_checkpoint(TRUNCATE)`,
	})
}

func (l *lite) fresh(_ context.Context, t table) (*arena, error) {
	dir, err := os.MkdirTemp(l.dir, "copy.")
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "bench.db")
	if err := copyFile(filepath.Join(l.dir, t.name+".db"), path); err != nil {
		return nil, err
	}
	db, err := l.open(path)
	return &arena{table: t, url: "sqlite:" + path, db: db, drop: func() error {
		return errors.Join(db.Close(), os.RemoveAll(dir))
	}}, err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Sync(), out.Close())
}

// The database is in the process of whoever uses it: there is no server whose time could be told apart.
func (l *lite) cpu(context.Context) time.Duration { return 0 }
func (l *lite) logged(context.Context) int64      { return 0 }

var litePlain = contender{name: "plain `DELETE`", run: func(ctx context.Context, a *arena) (effort, error) {
	_, err := a.db.ExecContext(ctx, `DELETE FROM ev WHERE at < '`+a.cutoff()+`'`)
	return effort{}, err
}}

var liteLimit = contender{name: "loop of `DELETE … IN (SELECT … LIMIT 1000)`", run: func(ctx context.Context, a *arena) (effort, error) {
	return untilNone(ctx, a, `DELETE FROM ev WHERE id IN (SELECT id FROM ev WHERE at < '`+a.cutoff()+`' ORDER BY at LIMIT 1000)`)
}}

func measureSQLite(ctx context.Context, s *settings) (string, error) {
	l := &lite{dir: s.dir}
	db, err := l.open(":memory:")
	if err != nil {
		return "", err
	}
	defer db.Close()
	var version string
	if err := db.QueryRowContext(ctx, `SELECT sqlite_version()`).Scan(&version); err != nil {
		return "", err
	}
	r := newReport(s, "SQLite "+version+" (journal_mode WAL, synchronous FULL)")
	for _, scattered := range []bool{false, true} {
		t := newTable("clustered", "The trigger follows the rowid", s.rows/15)
		if scattered {
			t = newTable("scattered", "The trigger does not follow the rowid", s.rows/15)
			t.scattered = true
		}
		s.say("SQLite: building %s rows", thousands(t.rows))
		if err := l.build(ctx, t); err != nil {
			return "", err
		}
		cs := []contender{litePlain, liteLimit, curfew(s, batching{s.batchRows[0], 1}), curfew(s, batching{})}
		samples, err := compare(ctx, s, l, t, cs, s.rounds, 0)
		if err != nil {
			return "", err
		}
		r.speed(t, cs, samples)
	}
	return r.String(), nil
}

package main

import (
	"context"
	"database/sql"
	"fmt"
	"runtime"
	"time"
)

// A table is what the contenders are let loose on: rows with an id, an instant `at`, and some text.
type table struct {
	name      string // of the master copy
	title     string
	rows      int
	due       int
	scattered bool // the trigger does not follow the order of the ids, which is the physical one
	child     bool // a child row for each, with ON DELETE CASCADE
}

// epoch is the first row's instant less one second; the n-th in the order of time is n seconds later.
var epoch = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)

// cutoff lies between the last due row and the first that stays.
func (t table) cutoff() time.Time {
	return epoch.Add(time.Duration(t.due)*time.Second + 500*time.Millisecond)
}

func newTable(name, title string, rows int) table {
	return table{name: name, title: title, rows: rows, due: rows * 2 / 5}
}

// An engine is a database server, or what stands for one.
type engine interface {
	// build makes the master copy of a table. It is done once.
	build(ctx context.Context, t table) error
	// fresh gives a copy of a table that nobody has touched, with everything written out.
	fresh(ctx context.Context, t table) (*arena, error)
	// cpu is the processor time that the server has used so far; 0 where that cannot be told.
	cpu(ctx context.Context) time.Duration
	// logged is how many bytes of write-ahead log the server has written so far; 0 where that cannot be told.
	logged(ctx context.Context) int64
}

// An arena is a fresh copy of a table.
type arena struct {
	table    table
	url      string  // for curfew
	db       *sql.DB // the application's connections
	postgres bool    // PostgreSQL: parameters are $1, not ?
	drop     func() error
}

// cutoff is the table's, as the database takes it.
func (a *arena) cutoff() string {
	text := a.table.cutoff().Format("2006-01-02 15:04:05.000000")
	if a.postgres {
		text += "+00" // the type has a zone, and the server is somewhere else
	}
	return text
}

// A contender is one way to get rid of the due rows.
type contender struct {
	name    string
	prepare func(context.Context, *arena) error // not timed; may be nil
	run     func(context.Context, *arena) (effort, error)
}

// effort is what a contender that is a program of its own used. The others are this process.
type effort struct {
	cpu     time.Duration
	rss     int64 // bytes, at most
	batches int64
}

// sample is one contender's turn.
type sample struct {
	effort
	rows   int
	wall   time.Duration
	server time.Duration // processor time
	logged int64         // bytes
	idle   []time.Duration
	busy   []time.Duration // latencies of the foreground, before and meanwhile
}

func (s sample) rate() float64 { return float64(s.rows) / s.wall.Seconds() }

// perMillion is processor seconds for a million rows.
func (s sample) perMillion(d time.Duration) float64 { return d.Seconds() / float64(s.rows) * 1e6 }

// idleTime is how long the foreground is watched before the contender starts, after a second for its connections to warm up.
const (
	warmTime = time.Second
	idleTime = 5 * time.Second
)

// bout lets one contender have its turn on a fresh copy; ops > 0 with a foreground load of as many operations a second.
func bout(ctx context.Context, s *settings, e engine, t table, c contender, ops int) (sm sample, err error) {
	a, err := e.fresh(ctx, t)
	if err != nil {
		return sm, err
	}
	defer func() {
		if derr := a.drop(); err == nil {
			err = derr
		}
	}()
	if c.prepare != nil {
		if err := c.prepare(ctx, a); err != nil {
			return sm, err
		}
	}
	var fg *foreground
	var watched time.Time
	if ops > 0 {
		fg = startForeground(ctx, a, ops)
		defer fg.stop()
		if err := sleep(ctx, warmTime); err != nil {
			return sm, err
		}
		watched = time.Now()
		if err := sleep(ctx, idleTime); err != nil {
			return sm, err
		}
	}
	runtime.GC()
	server, logged, own := e.cpu(ctx), e.logged(ctx), ownCPU()
	start := time.Now()
	sm.effort, err = c.run(ctx, a)
	end := time.Now()
	if err != nil {
		return sm, err
	}
	sm.rows, sm.wall = t.due, end.Sub(start)
	sm.cpu += ownCPU() - own
	sm.logged = e.logged(ctx) - logged
	sm.server = e.cpu(ctx) - server
	if fg != nil {
		if err := fg.stop(); err != nil {
			return sm, fmt.Errorf("the foreground: %w", err)
		}
		sm.idle, sm.busy = fg.between(watched, start), fg.between(start, end)
	}
	s.say("  %-34s %9.0f rows/s, %6.2f CPU s a million", c.name, sm.rate(), sm.perMillion(sm.cpu+sm.server))
	return sm, verify(ctx, a)
}

// verify counts what is left: speed is worth nothing otherwise.
func verify(ctx context.Context, a *arena) error {
	var left, due int
	err := a.db.QueryRowContext(ctx, `SELECT count(*), count(CASE WHEN at < '`+a.cutoff()+`' THEN 1 END) FROM ev`).Scan(&left, &due)
	if err != nil {
		return err
	}
	if left != a.table.rows-a.table.due || due != 0 {
		return fmt.Errorf("%d rows are left, %d of them due; it should be %d and none", left, due, a.table.rows-a.table.due)
	}
	return nil
}

// compare gives every contender its turn in each round. samples[i] are contender i's.
func compare(ctx context.Context, s *settings, e engine, t table, cs []contender, rounds, ops int) ([][]sample, error) {
	samples := make([][]sample, len(cs))
	for r := range rounds {
		with := ""
		if ops > 0 {
			with = fmt.Sprintf(" beside %d operations a second", ops)
		}
		s.say("%s: round %d of %d%s", t.title, r+1, rounds, with)
		for i, c := range cs {
			sm, err := bout(ctx, s, e, t, c, ops)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", t.title, c.name, err)
			}
			samples[i] = append(samples[i], sm)
		}
	}
	return samples, nil
}

// sleep waits, unless the program is told to end.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

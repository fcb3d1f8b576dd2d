// Package demo makes up a public library with years of circulation records, to play with.
//
// Its one invariant: the same options make the same rows. Nothing in it is real, and nothing in it is random.
package demo

import (
	"cmp"
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	_ "modernc.org/sqlite" // the library is a SQLite file
)

// Options say which library to make.
type Options struct {
	Rows   int       // circulation events; default 200,000
	Years  int       // how far back they go; default 5
	Until  time.Time // when the last event may have happened
	Seed   uint64    // another seed, another library
	Closed Span      // a stretch in which nothing happens, on top of nights, Sundays and holidays
}

// Span is a stretch of time, From included, To not.
type Span struct{ From, To time.Time }

func (s Span) has(t time.Time) bool { return !t.Before(s.From) && t.Before(s.To) }

// Counts says how much a library holds.
type Counts struct {
	Branches, Patrons, Items, Events, Fines, OpenFines, Claims, Searches int
}

//go:embed schema.sql
var schema string

//go:embed indexes.sql
var indexes string

// Config is the policy file for the library, as a file named library.db beside it.
//
//go:embed curfew.yaml
var Config string

// Generate makes the library at path, where nothing may be yet.
func Generate(ctx context.Context, path string, o Options) (Counts, error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return Counts{}, fmt.Errorf("%s is there already", path)
	}
	o.Rows = cmp.Or(o.Rows, 200_000)
	o.Years = cmp.Or(o.Years, 5)
	o.Until = o.Until.UTC().Truncate(time.Second)
	db, err := sql.Open("sqlite", "file:"+path+"?_pragma=synchronous(OFF)&_pragma=journal_mode(MEMORY)")
	if err != nil {
		return Counts{}, err
	}
	defer db.Close()
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return Counts{}, err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, schema); err != nil {
		return Counts{}, err
	}
	g := &generator{Options: o, tx: tx, rnd: rand.New(rand.NewPCG(o.Seed, 0xC0FFEE))}
	for _, step := range []func(context.Context) error{g.branches, g.patrons, g.items, g.events, g.searches} {
		if err := step(ctx); err != nil {
			return Counts{}, err
		}
	}
	if _, err := tx.ExecContext(ctx, indexes); err != nil {
		return Counts{}, err
	}
	if err := tx.Commit(); err != nil {
		return Counts{}, err
	}
	if _, err := db.ExecContext(ctx, "ANALYZE"); err != nil {
		return Counts{}, err
	}
	return g.made, db.Close()
}

// generator fills one library.
type generator struct {
	Options
	tx   *sql.Tx
	rnd  *rand.Rand
	made Counts
}

// rows inserts n rows, each as row(i) says; i counts from 1 and is the row's id.
func (g *generator) rows(ctx context.Context, insert string, n int, row func(i int) []any) error {
	stmt, err := g.tx.PrepareContext(ctx, insert)
	if err != nil {
		return err
	}
	defer stmt.Close()
	for i := 1; i <= n; i++ {
		if _, err := stmt.ExecContext(ctx, row(i)...); err != nil {
			return err
		}
	}
	return nil
}

func (g *generator) pick(words []string) string { return words[g.rnd.IntN(len(words))] }

func (g *generator) branches(ctx context.Context) error {
	g.made.Branches = len(branchNames)
	return g.rows(ctx, "INSERT INTO branch VALUES (?, ?)", len(branchNames), func(i int) []any {
		return []any{i, branchNames[i-1]}
	})
}

func (g *generator) patrons(ctx context.Context) error {
	g.made.Patrons = max(g.Rows/80, 10)
	return g.rows(ctx, "INSERT INTO patron VALUES (?, ?, ?, ?, ?)", g.made.Patrons, func(i int) []any {
		joined := g.Until.AddDate(0, 0, -g.rnd.IntN(365*(g.Years+4)))
		return []any{i, fmt.Sprintf("P%06d", 100_000+i), g.pick(firstNames) + " " + g.pick(lastNames), 1 + g.rnd.IntN(len(branchNames)), joined.Format(time.DateOnly)}
	})
}

func (g *generator) items(ctx context.Context) error {
	g.made.Items = max(g.Rows/40, 20)
	return g.rows(ctx, "INSERT INTO item VALUES (?, ?, ?)", g.made.Items, func(i int) []any {
		return []any{i, fmt.Sprintf("3%09d", 7*i), fmt.Sprintf("The %s %s", g.pick(adjectives), g.pick(nouns))}
	})
}

// someone is a reader: a few borrow much, many borrow little.
func (g *generator) someone() int {
	f := g.rnd.Float64()
	return 1 + int(f*f*float64(g.made.Patrons))
}

func (g *generator) events(ctx context.Context) error {
	times := g.times(g.Rows, g.Years*12)
	kinds := make([]string, len(times))
	g.made.Events = len(times)
	err := g.rows(ctx, "INSERT INTO circulation_event VALUES (?, ?, ?, ?, ?, ?)", len(times), func(i int) []any {
		kind := "checkout"
		switch f := g.rnd.Float64(); {
		case f < 0.45:
			kind = "return"
		case f < 0.57:
			kind = "renewal"
		}
		kinds[i-1] = kind
		return []any{i, g.someone(), 1 + g.rnd.IntN(g.made.Items), 1 + g.rnd.IntN(g.made.Branches), kind, times[i-1].Unix()}
	})
	if err != nil {
		return err
	}
	claimed, err := g.claims(ctx, times, kinds)
	if err != nil {
		return err
	}
	return g.fines(ctx, times, kinds, claimed)
}

// claims are the damages for which an insurer still wants to see the record: a dozen in a library of the usual size,
// spread over the years. Nothing deletes them, so they keep the records that they point at.
func (g *generator) claims(ctx context.Context, times []time.Time, kinds []string) (map[int]bool, error) {
	n := max(len(times)/16_000, 2)
	claimed := map[int]bool{}
	for c := range n {
		i := (2*c + 1) * len(times) / (2 * n)
		for i < len(kinds)-1 && kinds[i] != "return" {
			i++
		}
		claimed[i+1] = true
	}
	ids := make([]int, 0, n)
	for id := range claimed {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	g.made.Claims = len(ids)
	return claimed, g.rows(ctx, "INSERT INTO damage_claim VALUES (?, ?, ?, ?)", len(ids), func(i int) []any {
		return []any{i, ids[i-1], g.pick(insurers), times[ids[i-1]-1].AddDate(0, 0, 9).Format(time.DateOnly)}
	})
}

// fines follow late returns. Most are paid within the year; some never are.
func (g *generator) fines(ctx context.Context, times []time.Time, kinds []string, claimed map[int]bool) error {
	var late []int
	for i, kind := range kinds {
		if kind == "return" && !claimed[i+1] && g.rnd.Float64() < 0.06 {
			late = append(late, i+1)
		}
	}
	g.made.Fines = len(late)
	return g.rows(ctx, "INSERT INTO fine VALUES (?, ?, ?, ?, ?)", len(late), func(i int) []any {
		at := times[late[i-1]-1]
		settled := 0.97
		if g.Until.Sub(at) < 365*24*time.Hour {
			settled = 0.7
		}
		paid := 0
		if g.rnd.Float64() < settled {
			paid = 1
		} else {
			g.made.OpenFines++
		}
		return []any{i, late[i-1], 25 * (1 + g.rnd.IntN(40)), at.Format(time.DateOnly), paid}
	})
}

// searches are what people typed into the catalogue in the last year; most were not logged in.
func (g *generator) searches(ctx context.Context) error {
	times := g.times(g.Rows/10, 12)
	g.made.Searches = len(times)
	return g.rows(ctx, "INSERT INTO catalogue_search VALUES (?, ?, ?, ?)", len(times), func(i int) []any {
		var patron any
		if g.rnd.Float64() < 0.2 {
			patron = g.someone()
		}
		return []any{i, patron, g.pick(adjectives) + " " + g.pick(nouns), times[i-1].UnixMilli()}
	})
}

// Rows counts the rows of each table of the library at path.
func Rows(ctx context.Context, path string) (map[string]int64, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		return nil, err
	}
	defer db.Close()
	counts := map[string]int64{}
	for _, table := range []string{"branch", "patron", "item", "circulation_event", "fine", "damage_claim", "catalogue_search"} {
		var n int64
		if err := db.QueryRowContext(ctx, "SELECT count(*) FROM "+table).Scan(&n); err != nil {
			return nil, err
		}
		counts[table] = n
	}
	return counts, nil
}

// Oldest is the id of the oldest circulation event that is still in the library at path.
func Oldest(ctx context.Context, path string) (int64, error) {
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		return 0, err
	}
	defer db.Close()
	var id int64
	err = db.QueryRowContext(ctx, "SELECT id FROM circulation_event ORDER BY occurred_at, id LIMIT 1").Scan(&id)
	return id, err
}

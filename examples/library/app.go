package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"curfew.dev/curfew/examples/internal/stage"
)

// engine is what differs between the databases.
type engine struct {
	instant string // the type of a column
	number  string
	after   string // each CREATE TABLE
	analyze string
	since   string // the policies' trigger
}

var engines = map[string]engine{
	"sqlite":   {"INTEGER", "INTEGER", "", "ANALYZE", "{column: returned_at, unit: s, null: never}"},
	"postgres": {"timestamptz", "bigint", "", "ANALYZE", "{column: returned_at, null: never}"},
	"mysql":    {"DATETIME(6)", "BIGINT", " ENGINE=InnoDB", "ANALYZE TABLE loan", "{column: returned_at, zone: UTC, null: never}"},
}

// schema is the library's. Its fines reference the loans: that is what makes a policy's guard over them free of races.
const schema = `CREATE TABLE patron (id NUMBER NOT NULL PRIMARY KEY, name VARCHAR(80) NOT NULL, email VARCHAR(80) NOT NULL, privacy VARCHAR(10) NOT NULL);
CREATE TABLE item (id NUMBER NOT NULL PRIMARY KEY, title VARCHAR(80) NOT NULL);
CREATE TABLE loan (id NUMBER NOT NULL PRIMARY KEY, item_id NUMBER NOT NULL, patron_id NUMBER NOT NULL,
	category VARCHAR(10) NOT NULL, postcode VARCHAR(10) NOT NULL, branch VARCHAR(20) NOT NULL,
	borrowed_at INSTANT NOT NULL, returned_at INSTANT, note VARCHAR(200),
	CONSTRAINT loan_item FOREIGN KEY (item_id) REFERENCES item (id), CONSTRAINT loan_patron FOREIGN KEY (patron_id) REFERENCES patron (id));
CREATE TABLE fine (id NUMBER NOT NULL PRIMARY KEY, loan_id NUMBER NOT NULL, cents NUMBER NOT NULL, paid_at INSTANT,
	CONSTRAINT fine_loan FOREIGN KEY (loan_id) REFERENCES loan (id) ON DELETE CASCADE);
CREATE INDEX loan_returned ON loan (returned_at);
CREATE INDEX loan_of_patron ON loan (patron_id);
CREATE INDEX fine_of_loan ON fine (loan_id)`

const (
	nobody  = 1                  // the patron who stands for nobody
	accused = 17                 // the one whom a court is interested in
	reader  = 20                 // one who has chosen that nothing is forgotten
	domain  = "@patrons.example" // of every e-mail address, so that one would be found where none belongs
)

// library is the application. It knows nothing of curfew.
type library struct {
	stage.Database
	engine
}

// connect opens the database that the URL names.
func connect(address string) (*library, error) {
	db, err := stage.Open("LIBRARY_URL", address)
	return &library{Database: db, engine: engines[db.Engine]}, err
}

// fill inserts rows, some hundred with each statement.
func fill(ctx context.Context, l *library, tx *sql.Tx, table string, rows [][]any) error {
	const chunk = 500
	for ; len(rows) > 0; rows = rows[min(chunk, len(rows)):] {
		some := rows[:min(chunk, len(rows))]
		var values []any
		for _, r := range some {
			values = append(values, r...)
		}
		row := "(?" + strings.Repeat(", ?", len(some[0])-1) + ")"
		insert := "INSERT INTO " + table + " VALUES " + row + strings.Repeat(", "+row, len(some)-1)
		if _, err := tx.ExecContext(ctx, l.SQL(insert), values...); err != nil {
			return err
		}
	}
	return nil
}

// populate makes the tables, and n loans of the four years before the night. A table of such a name that is there already is
// somebody's, and an error.
func (l *library) populate(ctx context.Context, n int, night time.Time) error {
	for statement := range strings.SplitSeq(schema, ";\n") {
		create := strings.NewReplacer("NUMBER", l.number, "INSTANT", l.instant).Replace(statement)
		if strings.HasPrefix(create, "CREATE TABLE") {
			create += l.after
		}
		if err := l.Exec(ctx, create); err != nil {
			return fmt.Errorf("the example makes tables patron, item, loan and fine, in a database that has none: %w", err)
		}
	}
	tx, err := l.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	made := makeUp(n, night, l.At)
	for _, t := range []struct {
		name string
		rows [][]any
	}{{"patron", made.patrons}, {"item", made.items}, {"loan", made.loans}, {"fine", made.fines}} {
		if err := fill(ctx, l, tx, t.name, t.rows); err != nil {
			return err
		}
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return l.Exec(ctx, l.analyze)
}

// season is rows of the four tables.
type season struct{ patrons, items, loans, fines [][]any }

const day = 24 * time.Hour

// makeUp invents a library: patrons with their choices, and loans of which some are still out, some lie just at the bounds of the
// policies, and some have fines.
func makeUp(n int, night time.Time, at func(time.Time) any) (s season) {
	rnd := rand.New(rand.NewPCG(3, 5))
	pick := func(of ...string) string { return of[rnd.IntN(len(of))] }
	patrons, items := max(n/20, 50), max(n/10, 50)
	s.patrons = append(s.patrons, []any{nobody, "Former patron", "", "default"})
	for id := nobody + 1; id <= patrons; id++ {
		choice := pick("default", "default", "default", "never", "forever")
		switch id {
		case accused:
			choice = "default"
		case reader:
			choice = "forever"
		}
		s.patrons = append(s.patrons, []any{id, pick("Ada", "Ben", "Zoë", "Ödön", "Mary") + " " + pick("Arden", "Quist", "O'Hara", "Weiß"), fmt.Sprintf("p%d%s", id, domain), choice})
	}
	for id := 1; id <= items; id++ {
		s.items = append(s.items, []any{id, pick("A Short", "The Long", "An Unfinished") + " " + pick("History", "Walk", "Letter") + " " + strconv.Itoa(id)})
	}
	// The first loans lie at the very bounds: a loan that was returned exactly thirty days or two years ago stays tonight.
	var bounds []time.Time
	for _, bound := range []time.Time{night, night.Add(-30 * day), night.AddDate(-2, 0, 0)} {
		bounds = append(bounds, bound.Add(-time.Second), bound, bound.Add(time.Second))
	}
	for id := 1; id <= n; id++ {
		patron := nobody + 1 + rnd.IntN(patrons-1)
		if id%200 == 0 {
			patron = accused
		}
		returned := night.Add(-time.Duration(rnd.Int64N(int64(4 * 365 * day)))).Truncate(time.Second)
		if id <= len(bounds) {
			if returned = bounds[id-1]; id > 6 {
				patron = reader
			}
		}
		var back, note any = at(returned), nil
		if rnd.IntN(40) == 0 && id > len(bounds) {
			back = nil // still out
		}
		if rnd.IntN(20) == 0 {
			note = fmt.Sprintf("called patron %d about the cover", patron)
		}
		s.loans = append(s.loans, []any{id, 1 + rnd.IntN(items), patron, pick("adult", "adult", "child", "senior"), fmt.Sprintf("%05d", 10000+rnd.IntN(80000)),
			pick("Main", "North", "Harbour"), at(returned.Add(-time.Duration(1+rnd.IntN(28)) * day)), back, note})
		for back != nil && id > len(bounds) && rnd.IntN(12) == 0 {
			var paid any = at(returned.Add(time.Hour))
			if rnd.IntN(4) == 0 {
				paid = nil // open
			}
			s.fines = append(s.fines, []any{len(s.fines) + 1, id, 50 * (1 + rnd.IntN(20)), paid})
		}
	}
	return s
}

// book books a fine for a loan, and leaves the transaction open: whoever sits at the desk is still about it.
func (l *library) book(ctx context.Context, loan int64) (*sql.Tx, error) {
	tx, err := l.DB.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, l.SQL("INSERT INTO fine (id, loan_id, cents) SELECT MAX(id) + 1, ?, 1200 FROM fine"), loan); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return tx, nil
}

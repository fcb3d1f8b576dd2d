package demo_test

import (
	"crypto/sha256"
	"database/sql"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"curfew.dev/curfew/internal/demo"
)

var until = time.Date(2026, 11, 30, 15, 0, 0, 0, time.UTC)

func generate(t *testing.T, o demo.Options) (*sql.DB, demo.Counts) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "library.db")
	counts, err := demo.Generate(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db, counts
}

func one[T any](t *testing.T, db *sql.DB, query string, args ...any) T {
	t.Helper()
	var v T
	if err := db.QueryRow(query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// digest is a hash over every row of the tables that are drawn.
func digest(t *testing.T, db *sql.DB) string {
	t.Helper()
	h := sha256.New()
	for _, table := range []string{"patron", "item", "circulation_event", "fine", "damage_claim", "catalogue_search"} {
		rows, err := db.Query("SELECT * FROM " + table + " ORDER BY id")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		columns, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range into {
			into[i] = &values[i]
		}
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(h, table, values)
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

func TestSameOptionsSameLibrary(t *testing.T) {
	a, _ := generate(t, demo.Options{Rows: 3000, Until: until, Seed: 1})
	b, _ := generate(t, demo.Options{Rows: 3000, Until: until, Seed: 1})
	c, _ := generate(t, demo.Options{Rows: 3000, Until: until, Seed: 2})
	if digest(t, a) != digest(t, b) {
		t.Error("two libraries of one seed differ")
	}
	if digest(t, a) == digest(t, c) {
		t.Error("two libraries of two seeds are the same")
	}
}

// TestStory checks what the demonstration lives on: rows of every fate, in a life-like year.
func TestStory(t *testing.T) {
	db, counts := generate(t, demo.Options{Rows: 40_000, Until: until, Seed: 7})
	if n := one[int](t, db, "SELECT count(*) FROM circulation_event"); n != 40_000 || counts.Events != n {
		t.Errorf("%d events, counted as %d, want 40000", n, counts.Events)
	}
	cutoff := until.AddDate(-2, 0, 0).Unix()
	due := one[int](t, db, "SELECT count(*) FROM circulation_event WHERE occurred_at < ?", cutoff)
	if due < 20_000 || due > 28_000 {
		t.Errorf("%d of 40000 events are older than two years, want around 24000", due)
	}
	const of = " JOIN circulation_event e ON e.id = circulation_id WHERE occurred_at < ?"
	for what, query := range map[string]string{
		"guarded by an open fine":       "SELECT count(*) FROM fine" + of + " AND NOT paid",
		"going with a paid fine":        "SELECT count(*) FROM fine" + of + " AND paid",
		"blocked by a claim":            "SELECT count(*) FROM damage_claim" + of,
		"blocked, and not also guarded": "SELECT count(*) FROM damage_claim d" + of + " AND NOT EXISTS (SELECT 1 FROM fine f WHERE f.circulation_id = e.id)",
	} {
		if n := one[int](t, db, query, cutoff); n == 0 || n > due/10 {
			t.Errorf("%d of %d due events are %s, want some, and few", n, due, what)
		}
	}
	if n := one[int](t, db, "SELECT count(*) FROM pragma_foreign_key_check"); n != 0 {
		t.Errorf("%d rows break a foreign key", n)
	}
	month := func(m string) int {
		return one[int](t, db, "SELECT count(*) FROM circulation_event WHERE strftime('%m', occurred_at, 'unixepoch') = ?", m)
	}
	if summer, autumn := month("07"), month("10"); summer*10 > autumn*7 {
		t.Errorf("%d events in Julys, %d in Octobers, want a dip in summer", summer, autumn)
	}
	if n := one[int](t, db, "SELECT count(*) FROM circulation_event WHERE strftime('%w', occurred_at, 'unixepoch') = '0'"); n != 0 {
		t.Errorf("%d events on Sundays", n)
	}
	if last := one[int64](t, db, "SELECT max(occurred_at) FROM circulation_event"); last > until.Unix() {
		t.Errorf("the last event is at %d, in the future", last)
	}
}

func TestClosedStretchIsEmpty(t *testing.T) {
	from := time.Date(2024, 11, 26, 14, 30, 0, 0, time.UTC) // a Tuesday
	closed := demo.Span{From: from, To: from.Add(2 * time.Hour)}
	const query = "SELECT count(*) FROM circulation_event WHERE occurred_at >= ? AND occurred_at < ?"
	args := []any{closed.From.Unix(), closed.To.Unix()}
	open, _ := generate(t, demo.Options{Rows: 40_000, Until: until})
	if n := one[int](t, open, query, args...); n == 0 {
		t.Fatal("nothing happens in the stretch anyway: the test shows nothing")
	}
	shut, _ := generate(t, demo.Options{Rows: 40_000, Until: until, Closed: closed})
	if n := one[int](t, shut, query, args...); n != 0 {
		t.Errorf("%d events while closed", n)
	}
}

func TestNeverOverwrites(t *testing.T) {
	path := filepath.Join(t.TempDir(), "library.db")
	o := demo.Options{Rows: 100, Until: until}
	if _, err := demo.Generate(t.Context(), path, o); err != nil {
		t.Fatal(err)
	}
	if _, err := demo.Generate(t.Context(), path, o); err == nil {
		t.Error("the second library replaced the first")
	}
}

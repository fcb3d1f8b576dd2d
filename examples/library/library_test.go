package main

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dbtest"
)

// claims is how many the example checks.
const claims = 16

func wantWell(t *testing.T, out string) {
	t.Helper()
	_, end, _ := strings.Cut(out, "Is that true?")
	if n := strings.Count(end, "\n  ok      "); n != claims || strings.Contains(end, "FAILED") {
		t.Errorf("%d claims hold, want %d:\n%s", n, claims, out)
	}
}

// program builds curfew, for tests that need not see the example do it.
func program(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "curfew")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", bin, "curfew.dev/curfew/cmd/curfew")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// The model is what a librarian would do with a list on paper: it knows the words of the policies, and nothing of how curfew goes about it.

type paperLoan struct {
	ID, Patron                 int64
	Postcode, Category, Branch string
	Returned                   *time.Time
	Note                       *string
}

type paperFine struct {
	ID, Loan int64
	Open     bool
}

type paper struct {
	choice map[int64]string
	Loans  []paperLoan
	Fines  []paperFine
}

// copyOut reads what is in the database.
func copyOut(t *testing.T, l *library) *paper {
	t.Helper()
	p := &paper{choice: map[int64]string{}}
	each := func(query string, scan func(*sql.Rows) error) {
		t.Helper()
		rows, err := l.DB.QueryContext(t.Context(), query)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			if err := scan(rows); err != nil {
				t.Fatal(err)
			}
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	each("SELECT id, privacy FROM patron", func(r *sql.Rows) error {
		var id int64
		var choice string
		err := r.Scan(&id, &choice)
		p.choice[id] = choice
		return err
	})
	seconds := map[string]string{"sqlite": "returned_at", "postgres": "CAST(EXTRACT(EPOCH FROM returned_at) AS bigint)", "mysql": "TIMESTAMPDIFF(SECOND, '1970-01-01', returned_at)"}[l.Engine]
	each("SELECT id, patron_id, postcode, category, branch, note, "+seconds+" FROM loan ORDER BY id", func(r *sql.Rows) error {
		var loan paperLoan
		var at sql.NullInt64
		err := r.Scan(&loan.ID, &loan.Patron, &loan.Postcode, &loan.Category, &loan.Branch, &loan.Note, &at)
		if at.Valid {
			back := time.Unix(at.Int64, 0).UTC()
			loan.Returned = &back
		}
		p.Loans = append(p.Loans, loan)
		return err
	})
	each("SELECT id, loan_id, paid_at IS NULL FROM fine ORDER BY id", func(r *sql.Rows) error {
		var fine paperFine
		err := r.Scan(&fine.ID, &fine.Loan, &fine.Open)
		p.Fines = append(p.Fines, fine)
		return err
	})
	return p
}

func (p *paper) fines(loan int64) (all int64, open bool) {
	for _, f := range p.Fines {
		if f.Loan == loan {
			all++
			open = open || f.Open
		}
	}
	return all, open
}

// yearsBefore is by the calendar: of 29 February it is the 28th.
func yearsBefore(n int, t time.Time) time.Time {
	d := t.Day()
	if t.Month() == time.February && d == 29 {
		d = 28
	}
	return time.Date(t.Year()-n, t.Month(), d, t.Hour(), t.Minute(), t.Second(), 0, time.UTC)
}

// destroy does what the policy circulation says.
func (p *paper) destroy(asOf time.Time, court bool) (outcomes api.Outcomes, along int64) {
	outcomes = api.Outcomes{}
	var left []paperLoan
	gone := map[int64]bool{}
	for _, loan := range p.Loans {
		fines, open := p.fines(loan.ID)
		switch {
		case loan.Returned == nil || !loan.Returned.Before(yearsBefore(2, asOf)):
		case court && loan.Patron == accused:
			outcomes["held"]++
		case open:
			outcomes["guarded"]++
		default:
			outcomes["deleted"]++
			along += fines
			gone[loan.ID] = true
			continue
		}
		left = append(left, loan)
	}
	p.Loans = left
	p.Fines = slices.DeleteFunc(p.Fines, func(f paperFine) bool { return gone[f.Loan] })
	return outcomes, along
}

// forget does what the policy reading_history says.
func (p *paper) forget(asOf time.Time, court bool) api.Outcomes {
	outcomes := api.Outcomes{}
	for i := range p.Loans {
		loan := &p.Loans[i]
		choice := p.choice[loan.Patron]
		month := asOf.Add(-30 * 24 * time.Hour)
		_, open := p.fines(loan.ID)
		switch {
		case loan.Returned == nil, choice == "never" && !loan.Returned.Before(asOf), choice != "never" && !loan.Returned.Before(month):
		case loan.Patron == nobody && len(loan.Postcode) == 2 && loan.Note == nil: // forgotten on another night
		case court && loan.Patron == accused:
			outcomes["held"]++
		case open || choice == "forever":
			outcomes["guarded"]++
		default:
			outcomes["anonymised"]++
			loan.Patron, loan.Postcode, loan.Note = nobody, loan.Postcode[:2], nil
		}
	}
	return outcomes
}

// databases are where the example can play.
var databases = map[string]func(testing.TB) string{
	"SQLite": func(testing.TB) string { return "" }, "PostgreSQL": dbtest.Postgres, "MariaDB": dbtest.MariaDB,
}

// TestCounts plays the story on each database, and holds every night against the model: what each run counted, and every single row.
func TestCounts(t *testing.T) {
	bin := program(t)
	for name, fresh := range databases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("LIBRARY_URL", fresh(t))
			var out bytes.Buffer
			s, err := open(t.Context(), []string{"-curfew", bin, "-dir", t.TempDir(), "-loans", "6000"}, &out)
			if err != nil {
				t.Fatal(err)
			}
			defer s.lib.DB.Close()
			do := func(chapter func(context.Context) error) {
				t.Helper()
				if err := chapter(t.Context()); err != nil {
					t.Fatalf("%v\n%s", err, out.String())
				}
			}
			night := func(n int, court bool, chapter func(context.Context) error) {
				t.Helper()
				want := copyOut(t, s.lib)
				do(chapter)
				if n == 1 { // the fine that was booked while the run was at work counts
					want.Fines = append(want.Fines, paperFine{want.Fines[len(want.Fines)-1].ID + 1, s.disputed, true})
				}
				destroyed, along := want.destroy(s.nights[n], court)
				first, second := s.runs[circulation][n], s.runs[history][n]
				if diff := cmp.Diff(destroyed, first.Outcomes); diff != "" || first.Planned != destroyed.Sum() || first.Cascaded != along {
					t.Errorf("night %d, circulation: planned %d, %d went along, want %d and %d; outcomes (-want +got):\n%s", n, first.Planned, first.Cascaded, destroyed.Sum(), along, diff)
				}
				forgotten := want.forget(s.nights[n], court)
				if diff := cmp.Diff(forgotten, second.Outcomes); diff != "" || second.Planned != forgotten.Sum() {
					t.Errorf("night %d, reading history: planned %d, want %d; outcomes (-want +got):\n%s", n, second.Planned, forgotten.Sum(), diff)
				}
				if destroyed["deleted"] == 0 || forgotten["anonymised"] == 0 || court != (destroyed["held"] > 0) || court != (forgotten["held"] > 0) {
					t.Errorf("night %d shows too little: %v and %v", n, destroyed, forgotten)
				}
				got := copyOut(t, s.lib)
				if diff := cmp.Diff(want.Loans, got.Loans); diff != "" {
					t.Errorf("night %d, loans (-want +got):\n%.3000s", n, diff)
				}
				if diff := cmp.Diff(want.Fines, got.Fines); diff != "" {
					t.Errorf("night %d, fines (-want +got):\n%.3000s", n, diff)
				}
			}
			do(s.prepare)
			do(s.court)
			night(0, true, s.firstNight)
			do(s.day)
			night(1, true, s.secondNight)
			do(s.released)
			night(2, false, s.thirdNight)
			do(s.auditor)
			do(s.verify)
			wantWell(t, out.String())
		})
	}
}

// blocks are README.md's of a language; those that TestDocuments of cmd/curfew leaves out included.
func blocks(t *testing.T, lang string) []string {
	t.Helper()
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range regexp.MustCompile("(?ms)^```"+lang+"( [^\n]*)?\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		found = append(found, m[2])
	}
	if len(found) == 0 {
		t.Fatalf("README.md has no block of %s", lang)
	}
	return found
}

// TestCommands runs the command on a server as README.md has it, with another address: all its other commands are run by TestDocuments.
func TestCommands(t *testing.T) {
	const written = "postgres://me@localhost/library"
	there := t.TempDir() // a createdb that has nothing left to do
	if err := os.WriteFile(filepath.Join(there, "createdb"), []byte("#!/bin/sh\n[ \"$1\" = library ]\n"), 0o777); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for _, script := range blocks(t, "sh") {
		if !strings.Contains(script, written) {
			continue
		}
		ran++
		for name, url := range map[string]string{"PostgreSQL": dbtest.Postgres(t), "MariaDB": dbtest.MariaDB(t)} {
			cmd := exec.CommandContext(t.Context(), "sh", "-c", "set -eu\n"+strings.ReplaceAll(script, written, "'"+url+"'"))
			cmd.Dir = "../.."
			cmd.Env = append(os.Environ(), "PATH="+there+":"+os.Getenv("PATH"), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "TMPDIR="+t.TempDir(), "GOTMPDIR="+t.TempDir())
			cmd.WaitDelay = time.Second
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, out)
			}
			wantWell(t, string(out))
		}
	}
	if ran != 1 {
		t.Errorf("README.md has %d blocks with %s", ran, written)
	}
}

// TestReadme: what README.md quotes is there.
func TestReadme(t *testing.T) {
	for _, quoted := range blocks(t, "yaml") {
		if !strings.Contains(policyFile, "\n"+quoted) {
			t.Errorf("curfew.yaml does not have this:\n%s", quoted)
		}
	}
	flat := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	for _, quoted := range blocks(t, "sql") {
		_, constraint, _ := strings.Cut(flat(quoted), " ADD ")
		if constraint == "" || !strings.Contains(flat(schema), constraint) {
			t.Errorf("the schema does not have this: %s", quoted)
		}
	}
}

// TestCheckSaysWhatIsFree: about the guard check has nothing to say as long as the fines reference the loans; about a choice in another
// table it has, except where there is one writer.
func TestCheckSaysWhatIsFree(t *testing.T) {
	bin := program(t)
	for name, fresh := range databases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("LIBRARY_URL", fresh(t))
			s, err := open(t.Context(), []string{"-curfew", bin, "-dir", t.TempDir(), "-loans", "2000"}, &bytes.Buffer{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.lib.DB.Close()
			if err := s.Command(t.Context(), 0, "install", "library"); err != nil {
				t.Fatal(err)
			}
			warnings := func() (list []string) {
				t.Helper()
				var findings []api.Finding
				if err := s.Answer(t.Context(), &findings, "check"); err != nil {
					t.Fatal(err)
				}
				for _, f := range findings {
					if f.Level != api.LevelGood && f.Level != api.LevelInfo {
						words := strings.Fields(f.Message)
						list = append(list, f.Policy+": "+strings.Join(words[:min(3, len(words))], " "))
					}
				}
				slices.Sort(list)
				return list
			}
			choice := []string{history + ": privacy reads patron:"}
			if name == "SQLite" {
				choice = nil
			}
			if diff := cmp.Diff(choice, warnings()); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			if name == "SQLite" {
				return // it has no ALTER TABLE for that, and one writer
			}
			if err := s.lib.Exec(t.Context(), "ALTER TABLE fine DROP FOREIGN KEY fine_loan"); err != nil {
				if err = s.lib.Exec(t.Context(), "ALTER TABLE fine DROP CONSTRAINT fine_loan"); err != nil {
					t.Fatal(err)
				}
			}
			var guards int
			for _, w := range warnings() {
				if strings.Contains(w, ": unless reads fine") {
					guards++
				}
			}
			if guards != 2 {
				t.Errorf("without the foreign key, warnings about the guard: %d; all %q", guards, warnings())
			}
		})
	}
}

// TestVerifyCatches: a claim that does not hold is told, and fails the example.
func TestVerifyCatches(t *testing.T) {
	t.Setenv("LIBRARY_URL", "")
	var out bytes.Buffer
	s, err := open(t.Context(), []string{"-curfew", program(t), "-dir", t.TempDir(), "-loans", "3000"}, &out)
	if err != nil {
		t.Fatal(err)
	}
	defer s.lib.DB.Close()
	if err := s.play(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	const loan = "INSERT INTO loan SELECT 900000, 1, %d, 'adult', '%s', 'Main', 0, returned_at, NULL FROM loan WHERE id = %d"
	recent, err := s.lib.Count(t.Context(), "SELECT MIN(id) FROM loan WHERE patron_id = 1 AND returned_at > ?", s.nights[2].AddDate(-2, 0, 40).Unix())
	if err != nil {
		t.Fatal(err)
	}
	named, err := s.lib.Count(t.Context(), "SELECT MIN(id) FROM patron WHERE privacy = 'never'")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, do, undo string
		want           []string // the claims that do not hold
	}{
		{"nothing", "SELECT 1", "SELECT 1", nil},
		{"an old loan is back", "INSERT INTO loan VALUES (900000, 1, 1, 'adult', '10', 'Main', 1, 2, NULL)", "DELETE FROM loan WHERE id = 900000", []string{"loans older than two years", "loans gone"}},
		{"a patron is named", fmt.Sprintf(loan, named, "10", recent), "DELETE FROM loan WHERE id = 900000", []string{"loans older than thirty", "returned loans that name", "loans gone", "loans of two years"}},
		{"a postcode", fmt.Sprintf(loan, nobody, "10117", recent), "DELETE FROM loan WHERE id = 900000", []string{"anonymised loans with", "loans gone", "loans of two years"}},
		{"the disputed loan is forgotten", fmt.Sprintf("UPDATE loan SET patron_id = 1, postcode = '10', note = NULL WHERE id = %d", s.disputed), fmt.Sprintf("UPDATE loan SET patron_id = %d WHERE id = %d", reader, s.disputed), []string{"the loan whose fine"}},
		{"a receipt is gone", fmt.Sprintf("DELETE FROM curfew_receipt WHERE run = '%s'", s.runs[history][0].ID), "SELECT 1", []string{"anonymised by the ledger"}},
		{"an open fine is gone", "DELETE FROM fine WHERE id = (SELECT MAX(id) FROM fine)", "SELECT 1", []string{"loans older than two years", "anonymised by", "fines that went", "open fines"}},
	} {
		if err := s.lib.Exec(t.Context(), c.do); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		out.Reset()
		if err := s.verify(t.Context()); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if n := strings.Count(out.String(), "FAILED"); n != len(c.want) {
			t.Errorf("%s: %d claims do not hold, want %d:\n%s", c.name, n, len(c.want), out.String())
		}
		for _, claim := range c.want {
			if !strings.Contains(out.String(), "FAILED  "+claim) {
				t.Errorf("%s: %q still holds", c.name, claim)
			}
		}
		if err := s.lib.Exec(t.Context(), c.undo); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Verdict(); err == nil {
		t.Error("the example ends well all the same")
	}
}

// TestRefuses: what is somebody's stays as it is.
func TestRefuses(t *testing.T) {
	for _, c := range []struct {
		name, url string
		args      []string
		want      string
	}{
		{"another database", "oracle://x", nil, "must begin with postgres:// or mysql://"},
		{"few loans", "", []string{"-loans", "10"}, "2000 or more"},
		{"something else", "", []string{"circulation"}, "nothing else is expected"},
	} {
		t.Setenv("LIBRARY_URL", c.url)
		err := run(t.Context(), append([]string{"-curfew", "nothing", "-dir", t.TempDir()}, c.args...), &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want one with %q", c.name, err, c.want)
		}
	}
	t.Run("a table that is there", func(t *testing.T) {
		t.Setenv("LIBRARY_URL", dbtest.Postgres(t))
		db := dbtest.Open(t, os.Getenv("LIBRARY_URL"))
		if _, err := db.Exec("CREATE TABLE patron (id int); INSERT INTO patron VALUES (1)"); err != nil {
			t.Fatal(err)
		}
		err := run(t.Context(), []string{"-curfew", "nothing", "-dir", t.TempDir()}, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), "a database that has none") {
			t.Errorf("%v", err)
		}
		var n int
		if err := db.QueryRow("SELECT count(*) FROM patron").Scan(&n); err != nil || n != 1 {
			t.Errorf("%d rows, %v", n, err)
		}
	})
}

package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	installHooks()
	testscript.Main(m, map[string]func(){
		"curfew": main,
	})
}

// library is a small one for the scripts. By July 2026 records 1 to 5 are older than two years; 2 has an open fine, 3 an
// insurance claim, 1 a fine that is paid.
const library = `
	CREATE TABLE event (id INTEGER PRIMARY KEY, occurred_at TEXT NOT NULL);
	CREATE TABLE fine (event INTEGER NOT NULL REFERENCES event ON DELETE CASCADE, paid INTEGER NOT NULL);
	CREATE TABLE claim (event INTEGER NOT NULL REFERENCES event);
	CREATE INDEX event_occurred_at ON event (occurred_at);
	CREATE INDEX fine_event ON fine (event);
	CREATE INDEX claim_event ON claim (event);
	INSERT INTO event VALUES (1, '2021-03-01 10:00:00'), (2, '2022-03-01 10:00:00'), (3, '2023-03-01 10:00:00'),
		(4, '2024-03-01 10:00:00'), (5, '2024-07-01 01:59:59'), (6, '2024-07-01 02:00:00'), (7, '2026-06-30 10:00:00');
	INSERT INTO fine VALUES (1, 1), (2, 0);
	INSERT INTO claim VALUES (3);`

// TestScripts runs testdata/*.txt against the real program. Beside testscript's own commands they have:
//
//	code N PROGRAM ARGS…  run a program that must end with exit code N
//	sqlite FILE SQL…    run SQL on a SQLite file, rows to stdout with | between the columns
//	same FILE WANT      compare like cmp, but with ids, present instants and lengths of time replaced by ID, NOW and TOOK
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("LIBRARY", library)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code":   codeCommand,
			"sqlite": sqliteCommand,
			"same":   sameCommand,
		},
	})
}

func codeCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM ARGS…")
	}
	err := ts.Exec(args[1], args[2:]...)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		ts.Fatalf("%v", err)
	}
	got := 0
	if exit != nil {
		got = exit.ExitCode()
	}
	if fmt.Sprint(got) != args[0] {
		ts.Fatalf("%s ended with exit code %d, want %s", strings.Join(args[1:], " "), got, args[0])
	}
}

func sqliteCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: sqlite FILE SQL…")
	}
	db, err := sql.Open("sqlite", "file:"+ts.MkAbs(args[0])+"?_pragma=foreign_keys(1)&_pragma=busy_timeout(5000)")
	ts.Check(err)
	defer db.Close()
	rows, err := db.QueryContext(context.Background(), strings.Join(args[1:], " "))
	ts.Check(err)
	defer rows.Close()
	columns, err := rows.Columns()
	ts.Check(err)
	for rows.Next() {
		values, into := make([]any, len(columns)), make([]any, len(columns))
		for i := range into {
			into[i] = &values[i]
		}
		ts.Check(rows.Scan(into...))
		for i, v := range values {
			if i > 0 {
				fmt.Fprint(ts.Stdout(), "|")
			}
			fmt.Fprint(ts.Stdout(), v)
		}
		fmt.Fprintln(ts.Stdout())
	}
	ts.Check(rows.Err())
}

var varying = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\b[0-9a-f]{12}(?:[0-9a-f]{20}|[0-9a-f]{52})?\b`), "ID"},
	{regexp.MustCompile(`\b\d[\d.]*(ns|µs|ms|s)\b`), "TOOK"},
	{regexp.MustCompile(`\([\d,]+ rows a second\)`), "(RATE)"},
	{regexp.MustCompile(`_ms": \d+`), `_ms": TOOK`},
	{regexp.MustCompile(` +`), " "},
}

var someInstant = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// settle replaces what is different each time. An instant is, unless it lies in the past.
func settle(s string) string {
	s = someInstant.ReplaceAllStringFunc(s, func(text string) string {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil && time.Since(at) > 24*time.Hour {
			return text
		}
		return "NOW"
	})
	for _, v := range varying {
		s = v.pattern.ReplaceAllString(s, v.name)
	}
	return s
}

func sameCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: same FILE WANT")
	}
	got, want := strings.TrimSpace(settle(ts.ReadFile(args[0]))), strings.TrimSpace(settle(ts.ReadFile(args[1])))
	if os.Getenv("UPDATE_SCRIPTS") != "" {
		ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(got), 0o666))
		ts.Logf("%s should be:\n%s", args[1], got)
		return
	}
	if diff := cmp.Diff(want, got); diff != "" {
		ts.Fatalf("%s and %s differ (-want +got):\n%s", args[1], filepath.Base(args[0]), diff)
	}
}

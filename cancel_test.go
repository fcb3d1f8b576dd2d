package curfew

import (
	"context"
	"database/sql"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/policy"
	_ "modernc.org/sqlite"
)

const cancelFile = `version: 1
databases: {app: {url: "sqlite:app.db"}}
policies:
  sessions: {database: app, table: session, until: {column: expires, unit: s}, action: delete, mode: enforce, where: "PLACE"}
`

// site opens curfew on a small SQLite application in dir, under a policy with the given scope.
func site(t *testing.T, dir, where string) *Curfew {
	t.Helper()
	file, err := policy.Parse([]byte(strings.Replace(cancelFile, "PLACE", where, 1)), policy.Options{Path: filepath.Join(dir, "curfew.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Options{Config: file, Logger: slog.New(slog.DiscardHandler), Actor: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func makeApp(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	db, err := sql.Open("sqlite", filepath.Join(dir, "app.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, stmt := range []string{
		"CREATE TABLE session (id INTEGER PRIMARY KEY, expires INTEGER NOT NULL)",
		"INSERT INTO session VALUES (1, 1000), (2, 2000), (3, 99999999999)",
	} {
		if _, err := db.Exec(stmt); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := site(t, dir, "id > 0").Install(t.Context(), "app", false); err != nil {
		t.Fatal(err)
	}
	return dir
}

// leaveOpen accepts a run under the policy as c has it and leaves it, as a process that died would.
func leaveOpen(t *testing.T, c *Curfew) ledger.Run {
	t.Helper()
	l, err := c.ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	run, err := c.accept(t.Context(), l, c.file.Policies[0], RunRequest{Policy: "sessions"})
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// Whoever corrects the file in the middle of a run does not have the old text executed unasked: the run is finished by name,
// under the text it was accepted with, or cancelled.
func TestOpenRunUnderAnotherText(t *testing.T) {
	dir := makeApp(t)
	open := leaveOpen(t, site(t, dir, "id = 1"))
	c := site(t, dir, "id = 2")
	if _, err := c.Run(t.Context(), RunRequest{Policy: "sessions"}); KindOf(err) != KindRefused || !strings.Contains(HintOf(err), "curfew cancel "+open.ID[:12]) {
		t.Fatalf("a run under another text went on: %v (%s)", err, HintOf(err))
	}
	plans, err := c.Plan(t.Context())
	if err != nil || len(plans) != 1 || plans[0].OpenRun != open.ID {
		t.Errorf("plan does not show the open run: %+v, %v", plans, err)
	}
	cancelled, err := c.Cancel(t.Context(), open.ID[:12], "period was wrong")
	if err != nil || cancelled.State != string(ledger.Cancelled) || cancelled.Detail != "period was wrong" {
		t.Fatalf("cancel: %+v, %v", cancelled, err)
	}
	if _, err := c.Cancel(t.Context(), open.ID, ""); KindOf(err) != KindRefused {
		t.Errorf("cancelled twice: %v", err)
	}
	run, err := c.Run(t.Context(), RunRequest{Policy: "sessions"})
	if err != nil || run.Outcomes["deleted"] != 1 {
		t.Fatalf("the new text: %+v, %v", run, err)
	}

	// By its as_of, as the hint says, an open run is finished under its own text.
	open = leaveOpen(t, site(t, dir, "id = 1"))
	run, err = c.Run(t.Context(), RunRequest{Policy: "sessions", AsOf: &open.AsOf})
	if err != nil || run.ID != open.ID || run.State != string(ledger.AwaitingApproval) {
		t.Fatalf("the old text, which removes what the last run would not have: %+v, %v", run, err)
	}
	if _, err := c.Approve(t.Context(), open.ID[:12], ""); err != nil {
		t.Fatal(err)
	}
	run, err = c.Run(t.Context(), RunRequest{Policy: "sessions", AsOf: &open.AsOf})
	if err != nil || run.ID != open.ID || run.Outcomes["deleted"] != 1 {
		t.Errorf("the run by its as_of: %+v, %v", run, err)
	}
}

// Runs of one policy that are asked for at the same moment are one run.
func TestOneOpenRun(t *testing.T) {
	dir := makeApp(t)
	ids := make([]string, 8)
	var wg sync.WaitGroup
	for i := range ids {
		c := site(t, dir, "id > 0")
		l, err := c.ledger(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			run, err := c.accept(context.Background(), l, c.file.Policies[0], RunRequest{Policy: "sessions"})
			if err != nil {
				t.Error(err)
			}
			ids[i] = run.ID
		})
	}
	wg.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("several runs: %v", ids)
		}
	}
}

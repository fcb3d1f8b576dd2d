package curfew

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/policy"
)

// A role with what docs/daemon.md grants it keeps a schedule from beginning to end.
func TestDocumentedGrants(t *testing.T) {
	doc, err := os.ReadFile("docs/daemon.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(doc), "```\nGRANT USAGE ON SCHEMA curfew TO curfew_app;")
	grants, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("docs/daemon.md has no list of grants")
	}
	grants = "GRANT USAGE ON SCHEMA curfew TO curfew_app;" + grants

	admin := dbtest.Postgres(t)
	asRole, role := dbtest.PostgresRole(t, admin)
	dir := t.TempDir()
	app := dbtest.Open(t, filepath.Join(dir, "app.db"))
	for _, stmt := range []string{"CREATE TABLE session (id INTEGER PRIMARY KEY, expires INTEGER NOT NULL)", "INSERT INTO session VALUES (1, 1000), (2, 99999999999)"} {
		if _, err := app.ExecContext(t.Context(), stmt); err != nil {
			t.Fatal(err)
		}
	}
	// Everybody's clock stands three seconds before a minute.
	ahead := time.Until(time.Now().Truncate(time.Minute).Add(time.Minute - 3*time.Second))
	options := func(url string) Options {
		file, err := policy.Parse([]byte("version: 1\nledger: \""+url+"\"\nkey: 7f2c9b4e1a6d8035f0c2e4b6a8d0917365c4e2f0b1a39d8c7e6f5a4b3c2d1e0f\ndatabases: {app: {url: \"sqlite:app.db\"}}\npolicies:\n"+
			strings.Replace(nightly, `"0 2 * * *"`, `"* * * * *"`, 1)), policy.Options{Path: filepath.Join(dir, "curfew.yaml")})
		if err != nil {
			t.Fatal(err)
		}
		return Options{Config: file, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Actor: "test",
			Clock: func() time.Time { return time.Now().Add(ahead) }}
	}
	owner, err := Open(t.Context(), options(admin))
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	if _, err := owner.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := owner.Install(t.Context(), "app", false); err != nil {
		t.Fatal(err)
	}
	db := dbtest.Open(t, admin)
	for _, stmt := range []string{
		strings.ReplaceAll(grants, "curfew_app", role),
		"CREATE SCHEMA shifted", "GRANT USAGE ON SCHEMA shifted TO " + role,
		fmt.Sprintf("CREATE FUNCTION shifted.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS "+
			"'SELECT pg_catalog.clock_timestamp() + %d * interval ''1 millisecond'''", ahead.Milliseconds()),
		"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = shifted, pg_catalog, public', current_database()); END $$",
	} {
		if _, err := db.ExecContext(t.Context(), stmt); err != nil {
			t.Fatal(err)
		}
	}
	owner.Close() // its connections are from before
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { done <- Serve(t.Context(), options(asRole), ServeOptions{Listen: "127.0.0.1:0", Stop: stop}) }()
	l, err := owner.ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	deadline := time.After(30 * time.Second)
	for ok := false; !ok; {
		select {
		case err := <-done:
			t.Fatal(err)
		case <-deadline:
			t.Fatal("no occurrence ended well")
		case <-time.After(100 * time.Millisecond):
		}
		list, err := l.Occurrences(t.Context(), ledger.OccurrenceFilter{State: ledger.OccurrenceOK})
		if err != nil {
			t.Fatal(err)
		}
		ok = len(list) > 0
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

package curfew

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/policy"
)

// documentedGrants are those of docs/daemon.md, for the role curfew_app.
func documentedGrants(t *testing.T) string {
	t.Helper()
	doc, err := os.ReadFile("docs/daemon.md")
	if err != nil {
		t.Fatal(err)
	}
	const first = "GRANT USAGE ON SCHEMA curfew TO curfew_app;"
	_, rest, found := strings.Cut(string(doc), "```\n"+first)
	grants, _, ended := strings.Cut(rest, "```")
	if !found || !ended {
		t.Fatal("docs/daemon.md has no list of grants")
	}
	return first + grants
}

// A role with what docs/daemon.md grants it keeps a schedule from beginning to end; curfew migrate prints the same.
func TestDocumentedGrants(t *testing.T) {
	grants := documentedGrants(t)
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
	owner, err := New(options(admin))
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	m, err := owner.Migrate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	printed := strings.ReplaceAll(strings.Join(m.Grants, "; ")+";", "CURFEW_ROLE", "curfew_app")
	if documented := strings.Join(strings.Fields(grants), " "); printed != documented {
		t.Errorf("curfew migrate prints\n%s\nand docs/daemon.md has\n%s", printed, documented)
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
	deferring, err := New(options(asRole))
	if err != nil {
		t.Fatal(err)
	}
	defer deferring.Close()
	own, err := deferring.ledger(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []bool{true, false} { // as a call is deferred over HTTP with an Idempotency-Key
		made, fresh, err := own.DeferOperation(t.Context(), "mail", "welcome-ada", [32]byte{1}, func(context.Context, *sql.Tx) (string, error) { return "7", nil })
		if err != nil || made != "7" || fresh != want {
			t.Errorf("deferred under a key: %q, %v, %v", made, fresh, err)
		}
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A right that is missing is named: by readiness while the service runs, by check, and by the service that cannot begin without it.
func TestMissingRight(t *testing.T) {
	admin := dbtest.Postgres(t)
	asRole, role := dbtest.PostgresRole(t, admin)
	open := func(url string) Options {
		t.Helper()
		file, err := policy.Parse([]byte("version: 1\nledger: \""+url+"\"\nkey: 7f2c9b4e1a6d8035f0c2e4b6a8d0917365c4e2f0b1a39d8c7e6f5a4b3c2d1e0f\ndatabases: {}\npolicies: {}\n"), policy.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return Options{Config: file, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Actor: "test"}
	}
	owner, err := New(open(admin))
	if err != nil {
		t.Fatal(err)
	}
	defer owner.Close()
	m, err := owner.Migrate(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	db := dbtest.Open(t, admin)
	exec := func(stmt string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), stmt); err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
	for _, g := range m.Grants {
		exec(strings.ReplaceAll(g, "CURFEW_ROLE", role))
	}

	stop, done, addr := make(chan struct{}), make(chan error, 1), make(chan string, 1)
	go func() {
		done <- Serve(context.WithoutCancel(t.Context()), open(asRole), ServeOptions{Listen: "127.0.0.1:0", Stop: stop, Listening: func(a string) { addr <- a }})
	}()
	url := "http://" + <-addr + "/readyz"
	until := func(want ...string) {
		t.Helper()
		for deadline := time.Now().Add(20 * time.Second); ; {
			res, err := http.Get(url)
			if err != nil {
				t.Fatal(err, <-done)
			}
			var body struct{ Failed []string }
			if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if slices.Equal(body.Failed, want) {
				if ok := len(want) == 0; ok != (res.StatusCode == http.StatusOK) {
					t.Errorf("%v failed, and the answer is %s", body.Failed, res.Status)
				}
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("%v failed, want %v", body.Failed, want)
			}
			<-time.After(50 * time.Millisecond)
		}
	}
	until()
	exec("REVOKE INSERT ON curfew.queue_client FROM " + role)
	until("queue_rights")
	exec("REVOKE INSERT ON curfew.call FROM " + role)
	until("ledger_rights", "queue_rights")
	exec("GRANT INSERT ON curfew.queue_client, curfew.call TO " + role)
	until()
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}

	exec("REVOKE INSERT ON curfew.queue_client FROM " + role)
	worker, err := New(open(asRole))
	if err != nil {
		t.Fatal(err)
	}
	defer worker.Close()
	findings, err := worker.Check(t.Context())
	if err != nil || !slices.ContainsFunc(findings, func(f api.Finding) bool {
		return f.Code == "ledger_rights" && f.Level == api.LevelWarn && f.Message == "our role lacks INSERT on curfew.queue_client"
	}) {
		t.Errorf("check does not say so: %+v, %v", findings, err)
	}
	err = Serve(t.Context(), open(asRole), ServeOptions{Listen: "127.0.0.1:0"})
	if err == nil || !strings.Contains(err.Error(), "queue_client") || HintOf(err) != "our role lacks a right in the ledger; curfew migrate prints the GRANTs that it needs" {
		t.Errorf("without the right it ends with %v (%s)", err, HintOf(err))
	}
}

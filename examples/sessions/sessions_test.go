package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/internal/dbtest"
)

// claims is how many the example checks.
const claims = 11

func wantWell(t *testing.T, out string) {
	t.Helper()
	_, end, _ := strings.Cut(out, "Is that true?")
	if n := strings.Count(end, "\n  ok      "); n != claims || strings.Contains(end, "FAILED") {
		t.Errorf("%d claims hold, want %d:\n%s", n, claims, out)
	}
}

// TestCommand runs the one command as README.md has it, and holds against it what README.md says it prints.
func TestCommand(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "go", "run", "./examples/sessions")
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-buildvcs=false", "SESSIONS_URL=", "TMPDIR="+t.TempDir(), "GOTMPDIR="+t.TempDir())
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	wantWell(t, string(out))

	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	numbers := regexp.MustCompile(`\b[0-9a-f]{12}\b|\d+(,\d+)*`)
	printed := numbers.ReplaceAllString(string(out), "N")
	excerpts := regexp.MustCompile("(?s)```text\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(excerpts) == 0 {
		t.Error("README.md shows nothing of what is printed")
	}
	for _, excerpt := range excerpts {
		for line := range strings.Lines(excerpt[1]) {
			if line != "…\n" && !strings.Contains(printed, "\n"+numbers.ReplaceAllString(line, "N")) {
				t.Errorf("README.md says that this is printed, and it is not: %s", line)
			}
		}
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

func TestServers(t *testing.T) {
	bin := program(t)
	for name, fresh := range map[string]func(testing.TB) string{"PostgreSQL": dbtest.Postgres, "MariaDB": dbtest.MariaDB} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SESSIONS_URL", fresh(t))
			var out bytes.Buffer
			if err := run(t.Context(), []string{"-curfew", bin, "-dir", t.TempDir(), "-rows", "20000"}, &out); err != nil {
				t.Fatalf("%v\n%s", err, out.String())
			}
			wantWell(t, out.String())
		})
	}
}

// TestVerifyCatches: a claim that does not hold is told, and fails the example.
func TestVerifyCatches(t *testing.T) {
	t.Setenv("SESSIONS_URL", "")
	var out bytes.Buffer
	s, err := open(t.Context(), []string{"-curfew", program(t), "-dir", t.TempDir(), "-rows", "2000"}, &out)
	if err != nil {
		t.Fatal(err)
	}
	defer s.app.DB.Close()
	if err := s.play(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	change := func(statement string, args ...any) func() error {
		return func() error {
			_, err := s.app.DB.Exec(statement, args...)
			return err
		}
	}
	for _, c := range []struct {
		name string
		do   func() error
		want []string // the claims that no longer hold
	}{
		{"nothing", func() error { return nil }, nil},
		{"a refreshed session is gone", change("DELETE FROM user_session WHERE id = ?", s.app.kept[0]), []string{"refreshed sessions kept", "deleted by the receipts", "deleted by the ledger", "expired, less"}},
		{"an expired one is back", change("INSERT INTO user_session VALUES ('x', 1, '', 1, 1)"), []string{"refreshed sessions kept", "sessions left"}},
		{"a receipt is gone", change("DELETE FROM curfew_receipt WHERE run = ?", s.first.ID), []string{"refreshed sessions kept", "sessions left", "deleted by the receipts"}},
		{"an id is in the log", func() error { return os.WriteFile(s.daemon.Log, []byte(s.app.kept[0]), 0o666) }, []string{"refreshed sessions kept", "sessions left", "deleted by the receipts", "ids of sessions"}},
	} {
		if err := c.do(); err != nil {
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
		if err := s.Verdict(); (err == nil) != (c.want == nil) {
			t.Errorf("%s: the verdict is %v", c.name, err)
		}
	}
}

// TestRefuses: what is somebody's stays as it is.
func TestRefuses(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "mine"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, url string
		args      []string
		want      string
	}{
		{"a folder with files", "", []string{"-dir", full}, "has files in it"},
		{"another database", "oracle://x", []string{"-dir", t.TempDir()}, "must begin with postgres:// or mysql://"},
		{"few rows", "", []string{"-rows", "10"}, "2000 or more"},
	} {
		t.Setenv("SESSIONS_URL", c.url)
		err := run(t.Context(), append(c.args, "-curfew", "nothing"), &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want one with %q", c.name, err, c.want)
		}
	}
	t.Run("a table that is there", func(t *testing.T) {
		t.Setenv("SESSIONS_URL", dbtest.Postgres(t))
		db := dbtest.Open(t, os.Getenv("SESSIONS_URL"))
		if _, err := db.Exec("CREATE TABLE user_session (id int); INSERT INTO user_session VALUES (1)"); err != nil {
			t.Fatal(err)
		}
		err := run(context.Background(), []string{"-curfew", "nothing", "-dir", t.TempDir()}, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), "a database that has none") {
			t.Errorf("%v", err)
		}
		var n int
		if err := db.QueryRow("SELECT count(*) FROM user_session").Scan(&n); err != nil || n != 1 {
			t.Errorf("%d rows, %v", n, err)
		}
	})
}

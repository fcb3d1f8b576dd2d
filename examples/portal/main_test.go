package main

import (
	"bufio"
	"database/sql"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"curfew.dev/curfew/internal/dbtest"
)

const isPortal = "PORTAL_TEST_MAIN"

// This test binary is the portal too.
func TestMain(m *testing.M) {
	if os.Getenv(isPortal) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// portal is the program as it runs.
type portal struct {
	t   *testing.T
	cmd *exec.Cmd
	log *bufio.Scanner
	url string
}

func start(t *testing.T, env []string, args ...string) *portal {
	t.Helper()
	p := &portal{t: t, cmd: exec.CommandContext(t.Context(), os.Args[0], append(args, "--listen", "127.0.0.1:0")...)}
	p.cmd.Env = append(append(os.Environ(), isPortal+"=1"), env...)
	out, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.log = bufio.NewScanner(out)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.url = "http://" + p.says(`msg=listening address=(\S+)|INFO listening address=(\S+)`)
	return p
}

// says waits for a line of the log, and returns what is in its parentheses.
func (p *portal) says(pattern string) string {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	late := time.AfterFunc(time.Minute, func() { _ = p.cmd.Process.Kill() })
	defer late.Stop()
	var seen []string
	for p.log.Scan() {
		seen = append(seen, p.log.Text())
		if m := re.FindStringSubmatch(p.log.Text()); m != nil {
			return strings.Join(m[1:], "")
		}
	}
	p.t.Fatalf("it did not say %q but:\n%s", pattern, strings.Join(seen, "\n"))
	return ""
}

// The program itself: a sign-up over HTTP, its welcome, a cron from the environment, and an end that leaves nothing undone.
func TestProgram(t *testing.T) {
	for name, fresh := range map[string]func(t *testing.T) (database string){
		"SQLite":     func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "portal.db") },
		"PostgreSQL": func(t *testing.T) string { return dbtest.Postgres(t) },
	} {
		t.Run(name, func(t *testing.T) {
			database := fresh(t)
			p := start(t, []string{"PORTAL_TASK_CORE_CLEANUP_EXPIRED_ORGANIZATIONS_CRON=17 3 * * *"}, "--database", database, "--migrate")
			answer, err := http.Post(p.url+"/signup", "application/json", strings.NewReader(`{"name": "ada", "email": "ada@example.org"}`))
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(answer.Body)
			answer.Body.Close()
			if answer.StatusCode != http.StatusCreated || string(body) != "{\"organization\": 1}\n" {
				t.Fatalf("%s %s", answer.Status, body)
			}
			p.says(`letter to=ada@example.org`)
			if answer, err = http.Get(p.url + "/readyz"); err != nil {
				t.Fatal(err)
			}
			body, _ = io.ReadAll(answer.Body)
			answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				t.Errorf("ready? %s %s", answer.Status, body)
			}
			db, err := open(database)
			if err != nil {
				t.Fatal(err)
			}
			defer db.Close()
			jobs, schedules := "curfew.river_job", "curfew.schedule"
			if name == "SQLite" {
				jobs, schedules = "river_job", "curfew_schedule"
			}
			for late := time.Now().Add(time.Minute); one(t, db, `SELECT CAST(COUNT(*) AS text) FROM `+schedules) != "3"; {
				if time.Now().After(late) {
					t.Fatal("the schedules are not kept")
				}
			}
			if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			for p.log.Scan() {
			}
			if err := p.cmd.Wait(); err != nil {
				t.Errorf("SIGTERM ended it with %v", err)
			}
			if body := one(t, db, `SELECT body FROM letter`); body != "Welcome!" {
				t.Errorf("the letter is %q", body)
			}
			if state := one(t, db, `SELECT CAST(state AS text) FROM `+jobs+` WHERE kind = 'task:core.welcome'`); state != "completed" {
				t.Errorf("the call is %s", state)
			}
			for task, cron := range map[string]string{"core.cleanup_expired_organizations": "17 3 * * *", "core.send_expiration_reminders": "42 6 * * *", "core.clear_sessions": "42 2 * * 1"} {
				if expr := one(t, db, `SELECT expr FROM `+schedules+` WHERE policy = $1`, task); !strings.HasPrefix(expr, cron+";") {
					t.Errorf("%s is due at %q", task, expr)
				}
			}
		})
	}
}

func one(t *testing.T, db *sql.DB, query string, args ...any) (text string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query, args...).Scan(&text); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return text
}

// A cron that is none is refused when the program starts, by its variable, and so is a PostgreSQL that was not migrated.
func TestProgramRefuses(t *testing.T) {
	for _, c := range []struct {
		name, env string
		database  func(t *testing.T) string
		want      string
	}{
		{"a wrong cron", "PORTAL_TASK_CORE_CLEAR_SESSIONS_CRON=on Mondays",
			func(t *testing.T) string { return "sqlite:" + filepath.Join(t.TempDir(), "portal.db") }, "PORTAL_TASK_CORE_CLEAR_SESSIONS_CRON"},
		{"not migrated", "X=", func(t *testing.T) string { return dbtest.Postgres(t) }, "migrate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), os.Args[0], "--database", c.database(t), "--listen", "127.0.0.1:0")
			cmd.Env = append(os.Environ(), isPortal+"=1", c.env)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), c.want) {
				t.Errorf("%v, want one with %s:\n%s", err, c.want, out)
			}
		})
	}
}

//go:build unix

package main

import (
	"bufio"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"curfew.dev/curfew/api"
)

const served = `
version: 1
databases: {d: {url: "sqlite:d.db"}}
policies:
  p: {database: d, table: t, until: {column: at, format: iso8601}, action: delete, mode: enforce, batch: {rows: 2}, schedule: {cron: "0 2 1 1 *"}}
`

// TestServe runs the real service: it answers, does what a call asks for, reads its file again, and ends well when it is told to.
func TestServe(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "curfew.yaml"), served[1:])
	db, err := sql.Open("sqlite", filepath.Join(dir, "d.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE t (id INTEGER PRIMARY KEY, at TEXT NOT NULL); " +
		"INSERT INTO t VALUES (1, '2020-01-01T00:00:00Z'), (2, '2020-01-01T00:00:00Z'), (3, '2020-01-01T00:00:00Z'), (4, '2999-01-01T00:00:00Z')"); err != nil {
		t.Fatal(err)
	}
	program := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "curfew", args...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("curfew %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	program("install", "d")
	token := strings.TrimSpace(program("token", "create", "--scope", "trigger,read"))
	s := startService(t, dir, "serve", "--listen", "127.0.0.1:0")
	url := "http://" + s.until("listening")["address"].(string)

	var run api.Run
	s.ask(http.MethodPost, url+"/v1/policies/p/runs", token, http.StatusAccepted, &run)
	s.until("run_ended")
	var detail api.RunDetail
	s.ask(http.MethodGet, url+"/v1/runs/"+run.ID, token, http.StatusOK, &detail)
	if detail.State != api.StateSucceeded || detail.Outcomes["deleted"] != 3 || detail.Cause != "http" {
		t.Errorf("the run is %+v, want one that a call started and that deleted 3 rows", detail.Run)
	}
	if got := program("status"); !strings.Contains(got, " well ") {
		t.Errorf("status is\n%s", got)
	}
	if got := program("calls"); !strings.Contains(got, "202") || !strings.Contains(got, shortID(run.ID)) {
		t.Errorf("calls are\n%s", got)
	}

	write(t, filepath.Join(dir, "curfew.yaml"), "version: 2\n")
	s.signal(syscall.SIGHUP)
	s.until("reload_refused")
	s.ask(http.MethodGet, url+"/v1/policies", token, http.StatusOK, nil)
	write(t, filepath.Join(dir, "curfew.yaml"), served[1:])
	s.signal(syscall.SIGHUP)
	s.until("reloaded")

	program("token", "revoke", strings.Fields(strings.Split(program("token", "list"), "\n")[1])[0])
	s.ask(http.MethodPost, url+"/v1/policies/p/runs", token, http.StatusUnauthorized, nil)
	s.stop()
	if strings.Contains(s.log.String(), "cfw_") {
		t.Errorf("a token is in the log:\n%s", s.log.String())
	}
}

// TestServeTwice: where another service listens already, the second one says so and does nothing.
func TestServeTwice(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "curfew.yaml"), served[1:])
	s := startService(t, dir, "serve", "--listen", "127.0.0.1:0")
	address := s.until("listening")["address"].(string)
	cmd := exec.CommandContext(t.Context(), "curfew", "serve", "--listen", address)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() != exitRefused || !strings.Contains(string(out), "curfew: hint: is another curfew serving there?") {
		t.Errorf("a second service ends with %v and says\n%s", err, out)
	}
	s.stop()
}

// TestServeStrayVariable: a variable that is meant for a cron and is no policy's is told, with the one that may have been meant.
func TestServeStrayVariable(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "curfew.yaml"), served[1:])
	p := launch(t, dir, []string{"CURFEW_POLICY_PP_CRON=@daily", "CURFEW_POLICY_P_CRON=@daily"}, "serve", "--listen", "127.0.0.1:0")
	p.address()
	p.signal(syscall.SIGTERM)
	p.wait()
	log := p.stderr.String()
	if strings.Count(log, `"msg":"variable_without_effect","variable":"CURFEW_POLICY_PP_CRON"`) != 1 || strings.Count(log, "variable_without_effect") != 1 ||
		!strings.Contains(log, "the nearest is CURFEW_POLICY_P_CRON, for policy p") {
		t.Errorf("it does not say that CURFEW_POLICY_PP_CRON, and no other, has no effect:\n%s", log)
	}
}

// TestWorkerStops: workers alone end well too.
func TestWorkerStops(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "curfew.yaml"), served[1:])
	s := startService(t, dir, "worker")
	s.until("working")
	s.stop()
}

// service is a process that runs until it is stopped.
type service struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines chan string
	log   *strings.Builder // all that it printed and that was read
}

func startService(t *testing.T, dir string, args ...string) *service {
	t.Helper()
	s := &service{t: t, cmd: exec.CommandContext(t.Context(), "curfew", args...), lines: make(chan string, 1000), log: &strings.Builder{}}
	s.cmd.Dir = dir
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.lines)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			s.lines <- lines.Text()
		}
	}()
	return s
}

// until reads the log up to an event, and returns that.
func (s *service) until(event string) map[string]any {
	s.t.Helper()
	patience := time.After(30 * time.Second)
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				s.t.Fatalf("the service ended before %s:\n%s", event, s.log)
			}
			fmt.Fprintln(s.log, line)
			var entry map[string]any
			if json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == event {
				return entry
			}
		case <-patience:
			s.t.Fatalf("no %s:\n%s", event, s.log)
		}
	}
}

func (s *service) signal(sig syscall.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// stop asks the service to end, which is no failure.
func (s *service) stop() {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	for line := range s.lines {
		fmt.Fprintln(s.log, line)
	}
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("the service ended with %v:\n%s", err, s.log)
	}
	if !strings.Contains(s.log.String(), "curfew: finishing the batches in hand") {
		s.t.Errorf("the service does not say that it ends:\n%s", s.log)
	}
}

// ask sends a request and decodes the answer.
func (s *service) ask(method, url, token string, status int, into any) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader("{}"))
	if err != nil {
		s.t.Fatal(err)
	}
	if method == http.MethodGet {
		req.Body = http.NoBody
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != status {
		s.t.Fatalf("%s %s is answered with %s, want %d", method, url, res.Status, status)
	}
	if into != nil {
		if err := json.NewDecoder(res.Body).Decode(into); err != nil {
			s.t.Fatal(err)
		}
	}
}

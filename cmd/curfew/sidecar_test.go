//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/policy"
)

const sidecarDir = "../../examples/portal/sidecar"

// sidecar is the example's policy file beside a stand-in for the application's program, which writes down how it was called.
func sidecar(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	text, err := os.ReadFile(filepath.Join(sidecarDir, "curfew.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(text, []byte("dir: /app")); n != 4 {
		t.Fatalf("%d commands work in /app", n)
	}
	const manage = "#!/bin/sh\necho \"$1 scheduled=${CURFEW_SCHEDULED_AT:-never} args=$CURFEW_ARGS attempt=$CURFEW_ATTEMPT/$CURFEW_ATTEMPTS stdin=$(cat)\" >> called\n" +
		"echo \"$1: 3 rows\"\n" +
		"if [ -e wrong-usage ]; then exit 2; fi\n"
	for name, content := range map[string]string{"curfew.yaml": strings.ReplaceAll(string(text), "dir: /app", "dir: "+dir), "manage": manage} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PORTAL_URL", "sqlite:portal.db")
	return dir
}

// at runs curfew to its end.
func at(t *testing.T, dir string, code int, args ...string) string {
	t.Helper()
	p := launch(t, dir, nil, args...)
	if got := p.wait(); got != code {
		t.Fatalf("%v ended with %d, want %d\n%s%s", args, got, code, p.stdout.String(), p.stderr.String())
	}
	return p.stdout.String()
}

var sidecarTasks = map[string]string{
	"core.clear_sessions": "clearsessions", "core.send_expiration_reminders": "send_expiration_reminders",
	"core.cleanup_expired_organizations": "cleanup_expired_organizations", "core.welcome": "send_welcome",
}

// Each of the tasks is the application's command, run by hand.
func TestSidecarByHand(t *testing.T) {
	dir := sidecar(t)
	for name, command := range sidecarTasks {
		out := at(t, dir, 0, "task", "run", name, "--args", `{"organization": 7}`)
		if !strings.Contains(out, command+": 3 rows") || !strings.Contains(out, "succeeded") {
			t.Errorf("%s:\n%s", name, out)
		}
		called, err := os.ReadFile(filepath.Join(dir, "called"))
		want := command + ` scheduled=never args={"organization": 7} attempt=1/1 stdin={`
		if plain := strings.ReplaceAll(string(called), `":7`, `": 7`); err != nil || !strings.Contains(plain, want) {
			t.Errorf("%s was called so:\n%s(%v), want %s", name, called, err, want)
		}
	}
	// Exit code 2 is wrong usage: failed for good, however many attempts are left.
	if err := os.WriteFile(filepath.Join(dir, "wrong-usage"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	at(t, dir, 3, "task", "run", "core.cleanup_expired_organizations")
	if out := at(t, dir, 0, "task", "failed"); !strings.Contains(out, "core.cleanup_expired_organizations") || !strings.Contains(out, "exit status 2") {
		t.Errorf("failed:\n%s", out)
	}
}

// The daemon keeps the three schedules, with crons from the environment, and does what was deferred.
func TestSidecarServe(t *testing.T) {
	dir := sidecar(t)
	env := []string{fmt.Sprintf("%s=%d", speedVar, fastTime)}
	for name := range sidecarTasks {
		if name != "core.welcome" {
			env = append(env, policy.TaskVariable(name, "")+"=* * * * *")
		}
	}
	p := launch(t, dir, env, "serve", "--listen", "127.0.0.1:0")
	p.says("listening")
	defer1 := launch(t, dir, env, "task", "defer", "core.welcome", "--args", `{"organization": 7}`)
	if code := defer1.wait(); code != 0 {
		t.Fatalf("defer: %d %s", code, defer1.stderr.String())
	}
	done := map[string]api.TaskCall{}
	for deadline := time.Now().Add(patience); len(done) < len(sidecarTasks); {
		look := launch(t, dir, env, "task", "calls", "--state", "succeeded", "--output", "json")
		look.wait()
		var calls []api.TaskCall
		if err := json.Unmarshal(look.stdout.Bytes(), &calls); err != nil {
			t.Fatalf("%v: %s%s", err, look.stdout.String(), look.stderr.String())
		}
		for _, c := range calls {
			done[c.Task] = c
		}
		if time.Now().After(deadline) {
			t.Fatalf("done: %v; the daemon said:\n%s", done, p.stderr.String())
		}
	}
	for name, c := range done {
		if periodic := name != "core.welcome"; (c.ScheduledAt != nil) != periodic || periodic && c.Cause != "schedule" {
			t.Errorf("%s: scheduled at %v, by %s", name, c.ScheduledAt, c.Cause)
		}
	}
	p.signal(syscall.SIGTERM)
	if code := p.wait(); code != 0 {
		t.Errorf("SIGTERM ended it with %d:\n%s", code, p.stderr.String())
	}
	called, err := os.ReadFile(filepath.Join(dir, "called"))
	if err != nil || !strings.Contains(string(called), "clearsessions scheduled=2") || !strings.Contains(string(called), "send_welcome scheduled=never") {
		t.Errorf("called, %v:\n%s", err, called)
	}
}

// The compose file and the manifest are YAML, and the policy file that they carry is the one beside them.
func TestSidecarManifests(t *testing.T) {
	read := func(name string) []byte {
		text, err := os.ReadFile(filepath.Join(sidecarDir, name))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var compose struct {
		Services map[string]struct {
			Command     []string
			Environment map[string]string
			Configs     []struct{ Source, Target string }
		}
		Configs map[string]struct{ File string }
	}
	if err := yaml.Unmarshal(read("compose.yaml"), &compose); err != nil {
		t.Fatal(err)
	}
	file := compose.Configs["curfew"].File
	for _, name := range []string{"migrate", "curfew"} {
		s := compose.Services[name]
		if len(s.Configs) != 1 || s.Configs[0].Source != "curfew" || !strings.Contains(strings.Join(s.Command, " "), "--config "+s.Configs[0].Target) || s.Environment["PORTAL_URL"] == "" {
			t.Errorf("compose: %s: %+v", name, s)
		}
	}
	embedded := map[string]string{"compose.yaml": string(read(filepath.Base(file)))}
	kinds := map[string]bool{}
	documents := yaml.NewDecoder(bytes.NewReader(read("kubernetes.yaml")))
	for {
		var doc struct {
			Kind string
			Data map[string]string
			Spec map[string]any
		}
		err := documents.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		kinds[doc.Kind] = true
		if text := doc.Data["curfew.yaml"]; text != "" {
			embedded["kubernetes.yaml"] = text
		}
	}
	if !kinds["ConfigMap"] || !kinds["Deployment"] {
		t.Errorf("kinds %v", kinds)
	}
	for _, where := range []string{"compose.yaml", "kubernetes.yaml"} {
		if strings.TrimSpace(embedded[where]) != strings.TrimSpace(string(read("curfew.yaml"))) {
			t.Errorf("%s carries another policy file than sidecar/curfew.yaml", where)
		}
		f, err := policy.Parse([]byte(embedded[where]), policy.Options{Path: "/etc/curfew/curfew.yaml", Getenv: func(string) string { return "postgres://x/portal" }})
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		if len(f.Tasks) != len(sidecarTasks) {
			t.Errorf("%s: %d tasks", where, len(f.Tasks))
		}
		for _, task := range f.Tasks {
			if command := sidecarTasks[task.Name]; len(task.Command) != 2 || task.Command[1] != command {
				t.Errorf("%s: %s is %q", where, task.Name, task.Command)
			}
		}
	}
}

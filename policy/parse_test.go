package policy_test

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"curfew.dev/curfew/policy"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// webhookKey is 32 bytes in base64.
const webhookKey = "aHVzaCBodXNoIGh1c2ggaHVzaCBodXNoIGh1c2ghISE="

// options is a world with a few variables and files, some of them secret.
func options(path string) policy.Options {
	env := map[string]string{
		"LIBRARY_URL":   "postgres://library:hush-library@db/library",
		"KOHA_PASSWORD": "hush-koha",
		"WRONG_URL":     "oracle://app:hush-wrong@db/library",
		"ALERT_URL":     "https://alerts.example.org/hush-alerts",
		"ALERT_TOKEN":   "hush-token",
		"POOL_URL":      "https://pool.example.org/frankfurt",
		"POOL_TOKEN":    "hush-pool-0123456789abcdef0123456789",
	}
	files := map[string]string{
		"/run/secrets/key":      "hush-key-0123456789abcdef\n",
		"/run/secrets/empty":    "\n",
		"/run/secrets/webhook":  "whsec_" + webhookKey + "\n",
		"/run/secrets/reminder": "Dear {{.owner}},\n\nyour trial ends on {{.due}}.\n",
		"/run/secrets/pool":     "hush-pool-fedcba9876543210fedcba9876\n",
	}
	return policy.Options{
		Path:   path,
		Getenv: func(name string) string { return env[name] },
		ReadFile: func(name string) ([]byte, error) {
			if text, ok := files[name]; ok {
				return []byte(text), nil
			}
			return nil, &os.PathError{Op: "open", Path: name, Err: errors.New("no such file or directory")}
		},
	}
}

// unexported leaves out what a policy and a file know of their own making.
var unexported = cmpopts.IgnoreUnexported(policy.Policy{}, policy.File{})

func golden(t *testing.T, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (run with -update to write it)", err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func glob(t *testing.T, pattern string, atLeast int) []string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < atLeast {
		t.Fatalf("%d files match %s, want %d or more (%v)", len(files), pattern, atLeast, err)
	}
	return files
}

func TestGoodFiles(t *testing.T) {
	for _, path := range glob(t, "testdata/good/*.yaml", 4) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			f, err := policy.Parse(data, options("curfew.yaml"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(f, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".json", append(got, '\n'))
			for _, p := range f.Policies {
				id, canonical := p.Revision()
				again, err := policy.FromRevision(canonical)
				if err != nil {
					t.Fatalf("revision of %s: %v", p.Name, err)
				}
				if diff := cmp.Diff(p, again, unexported); diff != "" {
					t.Errorf("revision of %s is not the policy (-policy +revision):\n%s", p.Name, diff)
				}
				if againID, _ := again.Revision(); againID != id {
					t.Errorf("revision id of %s changed from %s to %s", p.Name, id, againID)
				}
			}
		})
	}
}

// TestBadFiles is the corpus of refusals: one small file for each rule, and
// the message it is refused with.
func TestBadFiles(t *testing.T) {
	files := glob(t, "testdata/bad/*.yaml", 75)
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			f, err := policy.Parse(data, options("curfew.yaml"))
			if err == nil {
				t.Fatal("accepted")
			}
			if f != nil {
				t.Error("a refused file was returned as well")
			}
			golden(t, strings.TrimSuffix(path, ".yaml")+".txt", []byte(err.Error()+"\n"))

			var all policy.Errors
			if !errors.As(err, &all) || len(all) == 0 {
				t.Fatalf("the error is a %T", err)
			}
			for _, e := range all {
				if e.Problem == "" || e.Path == "" || e.Line == 0 && !strings.Contains("the file is empty", e.Problem) {
					t.Errorf("an error without problem or place: %+v", e)
				}
			}
			var one *policy.Error
			if !errors.As(err, &one) || one != all[0] {
				t.Errorf("errors.As finds %v, want the first error", one)
			}
			for _, secret := range []string{"hush", "s3cret", "123456789"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the message shows the secret %q:\n%v", secret, err)
				}
			}
		})
	}
}

// valid is a file in which every setting is given.
const valid = `version: 1
ledger: sqlite:curfew.db
databases:
  main: {url: "sqlite:app.db", max_workers: 4}
  far: {workers: {url: "https://example.org/pool", token: "hush-hush-hush-hush-hush-hush-hush"}}
engine: {workers: 8, reserved: 2, queues: {mail: 2}}
retention: {finished_calls: 6d, failed_calls: 80d}
policies:
  first: {database: main, table: t, until: u, action: delete, mode: shadow, schedule: {cron: "@daily", by: external, grace: 15m}}
  sessions:
    description: words
    authority: law
    database: main
    table: public.session
    key: [id]
    keep: 30d
    since: {column: last_seen, zone: UTC, null: never, implausible_before: 2000-01-01}
    where: "a = 1"
    unless: "b = 2"
    subject: user_id
    action: delete
    cascade: [fine]
    triggers: [audit]
    after: first
    mode: enforce
    timezone: Europe/Berlin
    at_cutoff: due
    schedule: {cron: "0 2 * * *", start_within: 1h, overlap: skip, catch_up: latest}
    batch: {rows: 1000, in_flight: 2, target: 500ms, pace: 50000}
    retry: {attempts: 5, backoff: 10s, factor: 10}
    limits: {retention_lag: 26h}
    lock: table
tasks:
  core.clear:
    description: tidies
    command: [./manage]
    dir: app
    env: {LANG: C}
    cron: "42 2 * * 1"
    timezone: Europe/Paris
    start_within: 2h
    overlap: queue
    catch_up: all
    timeout: 7m
    kill_after: 5s
    retry: {attempts: 4, backoff: 11s, factor: 2}
    exit_codes: {retry: [75], fail: [65]}
    priority: 3
    queue: mail
    lock: tidy
  Web: {http: {url: "https://example.org/task", method: PUT, body: all, token: hush-web, headers: {X-Tenant: library}}, concurrency: 2}
alerts:
  webhook: {url: "https://example.org/alerts", secret: "whsec_aHVzaCBodXNoIGh1c2ggaHVzaCBodXNoIGh1c2ghISE="}
  ping: {url: "https://example.org/ping/{policy}"}
`

// TestEveryFieldIsJudged breaks one field of a valid file at a time: every
// setting must refuse a blank, a null, a list of lists and a misspelt name, and
// say which field it was.
func TestEveryFieldIsJudged(t *testing.T) {
	if _, err := policy.Parse([]byte(valid), policy.Options{}); err != nil {
		t.Fatal(err)
	}
	settings := []struct{ field, text string }{
		{"version", "version: 1"}, {"ledger", "ledger: sqlite:curfew.db"},
		{"databases.main.url", `url: "sqlite:app.db"`}, {"databases.main.max_workers", "max_workers: 4"},
		{"databases.far.workers.url", `url: "https://example.org/pool"`}, {"databases.far.workers.token", `token: "hush-hush-hush-hush-hush-hush-hush"`},
		{"engine", "engine: {workers: 8, reserved: 2, queues: {mail: 2}}"}, {"engine.queues", "queues: {mail: 2}"}, {"policies.sessions.lock", "lock: table"},
		{"retention.finished_calls", "finished_calls: 6d"}, {"retention.failed_calls", "failed_calls: 80d"},
		{"tasks.Web.http.url", `url: "https://example.org/task"`}, {"tasks.Web.http.method", "method: PUT"}, {"tasks.Web.http.body", "body: all"}, {"tasks.Web.http.token", "token: hush-web"},
		{"tasks.Web.http.headers", "headers: {X-Tenant: library}"}, {"tasks.Web.concurrency", "concurrency: 2"},
		{"tasks.core.clear.exit_codes.retry", "retry: [75]"}, {"tasks.core.clear.exit_codes.fail", "fail: [65]"},
		{"tasks.core.clear.retry.attempts", "attempts: 4"}, {"tasks.core.clear.retry.backoff", "backoff: 11s"}, {"tasks.core.clear.retry.factor", "factor: 2"}, {"engine.workers", "workers: 8"}, {"engine.reserved", "reserved: 2"},
		{"policies.first.schedule.by", "by: external"}, {"policies.first.schedule.grace", "grace: 15m"},
		{"alerts.webhook.url", `url: "https://example.org/alerts"`}, {"alerts.ping.url", `url: "https://example.org/ping/{policy}"`},
		{"alerts.webhook.secret", `secret: "whsec_aHVzaCBodXNoIGh1c2ggaHVzaCBodXNoIGh1c2ghISE="`},
	}
	for _, s := range strings.Split(`description: words|authority: law|table: public.session|key: [id]|keep: 30d
where: "a = 1"|unless: "b = 2"|subject: user_id|cascade: [fine]|triggers: [audit]|after: first|mode: enforce
timezone: Europe/Berlin|at_cutoff: due`, "\n") {
		for _, text := range strings.Split(s, "|") {
			name, _, _ := strings.Cut(text, ":")
			settings = append(settings, struct{ field, text string }{"policies.sessions." + name, text})
		}
	}
	for text := range strings.SplitSeq(`description: tidies|command: [./manage]|dir: app|env: {LANG: C}|cron: "42 2 * * 1"|timezone: Europe/Paris|start_within: 2h|overlap: queue|`+
		`catch_up: all|timeout: 7m|kill_after: 5s|priority: 3|queue: mail|lock: tidy`, "|") {
		name, _, _ := strings.Cut(text, ":")
		settings = append(settings, struct{ field, text string }{"tasks.core.clear." + name, text})
	}
	for section, texts := range map[string]string{
		"since":    "column: last_seen|zone: UTC|null: never|implausible_before: 2000-01-01",
		"schedule": `cron: "0 2 * * *"|start_within: 1h|overlap: skip|catch_up: latest`,
		"batch":    "rows: 1000|in_flight: 2|target: 500ms|pace: 50000",
		"retry":    "attempts: 5|backoff: 10s|factor: 10",
		"limits":   "retention_lag: 26h",
	} {
		for text := range strings.SplitSeq(texts, "|") {
			name, _, _ := strings.Cut(text, ":")
			settings = append(settings, struct{ field, text string }{"policies.sessions." + section + "." + name, text})
		}
	}
	for _, s := range settings {
		if strings.Count(valid, s.text) != 1 {
			t.Fatalf("%q is not in the valid file exactly once", s.text)
		}
		name, _, _ := strings.Cut(s.text, ":")
		for what, broken := range map[string]string{
			"null": name + ": ~", "blank": name + `: ""`, "spaces": name + `: "  "`, "lists": name + ": [[]]",
			"variable": name + `: "${NO}"`, "anchor": name + ": &a x", "tag": name + ": !x y", "float": name + ": 1.5",
			"bool": name + ": true", "negative": name + ": -1", "zero": name + ": 0", "twice": s.text + ", " + s.text,
		} {
			if what == "zero" && name == "reserved" {
				continue // nothing reserved is a choice
			}
			if what == "twice" && !strings.Contains(valid, ", "+s.text) && !strings.Contains(valid, s.text+", ") && !strings.Contains(valid, "{"+s.text) {
				broken = s.text + "\n    " + s.text
				if !strings.HasPrefix(s.field, "policies") && !strings.HasPrefix(s.field, "tasks") {
					broken = s.text + "\n" + s.text
				}
			}
			_, err := policy.Parse([]byte(strings.Replace(valid, s.text, broken, 1)), policy.Options{})
			if err == nil {
				t.Errorf("%s: %s is accepted: %s", s.field, what, broken)
			} else if !strings.Contains(err.Error(), ": "+s.field) {
				t.Errorf("%s: %s is refused without naming the field: %v", s.field, what, err)
			}
		}
		_, err := policy.Parse([]byte(strings.Replace(valid, s.text, "x"+s.text, 1)), policy.Options{})
		if err == nil || !strings.Contains(err.Error(), `there is no field "x`+name+`"; did you mean `+name+"?") {
			t.Errorf("%s: a misspelt name is answered with %v", s.field, err)
		}
	}
}

func TestAllErrorsAreReported(t *testing.T) {
	text := strings.NewReplacer("keep: 30d", "keep: 0", "mode: enforce", "mode: on", `"a = 1"`, `"a = 1 --"`, "rows: 1000", "rows: 0").Replace(valid)
	_, err := policy.Parse([]byte(text), policy.Options{})
	var all policy.Errors
	if !errors.As(err, &all) {
		t.Fatal(err)
	}
	var fields []string
	for _, e := range all {
		fields = append(fields, strings.TrimPrefix(e.Field, "policies.sessions."))
	}
	if diff := cmp.Diff([]string{"keep", "where", "mode", "batch.rows"}, fields); diff != "" {
		t.Errorf("fields of the errors (-want +got):\n%s", diff)
	}
}

func TestManyErrorsAreCutOff(t *testing.T) {
	_, err := policy.Parse([]byte(valid+strings.Repeat("  x: {}\n", 80)), policy.Options{})
	var all policy.Errors
	if !errors.As(err, &all) || len(all) != 51 || !strings.Contains(all[50].Error(), "29 more problems") {
		t.Errorf("%d errors, the last: %v", len(all), all[len(all)-1])
	}
}

func TestLineEndingsAndMark(t *testing.T) {
	plain, err := policy.Parse([]byte(valid), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	windows, err := policy.Parse([]byte("\ufeff"+strings.ReplaceAll(valid, "\n", "\r\n")), policy.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(plain, windows, unexported); diff != "" {
		t.Errorf("a Windows file reads differently:\n%s", diff)
	}
}

func TestTooLarge(t *testing.T) {
	big := valid + strings.Repeat("#\n", 1<<19)
	if _, err := policy.Parse([]byte(big), policy.Options{}); err == nil || !strings.Contains(err.Error(), "larger than 1 MiB") {
		t.Errorf("a file of %d bytes: %v", len(big), err)
	}
	path := filepath.Join(t.TempDir(), "curfew.yaml")
	if err := os.WriteFile(path, []byte(strings.Repeat(big, 3)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := policy.Load(path); err == nil || !strings.Contains(err.Error(), "larger than 1 MiB") {
		t.Errorf("loading it: %v", err)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Setenv("APP_FILE", "app.db")
	t.Setenv("CURFEW_KEY", "from the environment")
	write("ledger.txt", "sqlite:beside.db\r\n")
	text := strings.NewReplacer("sqlite:curfew.db", `"${file:ledger.txt}"`, "app.db", "${APP_FILE}").Replace(valid)
	f, err := policy.Load(write("curfew.yaml", text))
	if err != nil {
		t.Fatal(err)
	}
	if f.Ledger != "sqlite:beside.db" || f.Databases["main"].URL != "sqlite:app.db" || f.Key != "from the environment" {
		t.Errorf("ledger %q, url %q, key %q", f.Ledger, f.Databases["main"].URL, f.Key)
	}
	if f.Path != filepath.Join(dir, "curfew.yaml") {
		t.Errorf("path %q", f.Path)
	}
	for _, path := range []string{filepath.Join(dir, "none.yaml"), dir} {
		if _, err := policy.Load(path); err == nil || !strings.HasPrefix(err.Error(), path+": cannot read the file: ") || !strings.Contains(err.Error(), "--config") {
			t.Errorf("loading %s: %v", path, err)
		}
	}
}

func TestPolicyByName(t *testing.T) {
	f, err := policy.Parse([]byte(valid), policy.Options{Path: "curfew.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := f.Policy("sessions"); err != nil || p.Name != "sessions" {
		t.Errorf("Policy(sessions) = %v, %v", p, err)
	}
	for name, want := range map[string]string{
		"session": `there is no policy "session" in curfew.yaml; did you mean "sessions"? (it has: first, sessions)`,
		"loans":   `there is no policy "loans" in curfew.yaml; it has: first, sessions`,
	} {
		if _, err := f.Policy(name); err == nil || err.Error() != want {
			t.Errorf("Policy(%s): %v, want %s", name, err, want)
		}
	}
	if _, err := (&policy.File{}).Policy("x"); err == nil || !strings.Contains(err.Error(), "has no policies") {
		t.Errorf("in an empty file: %v", err)
	}
}

package policy_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/policy"
	"github.com/google/go-cmp/cmp"
)

func parsed(t *testing.T, text string) *policy.File {
	t.Helper()
	f, err := policy.Parse([]byte(text), options("conf/curfew.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const twoTasks = `version: 1
databases: {main: {url: "sqlite:app.db"}}
policies:
  sessions: {database: main, table: t, until: u, action: delete, mode: shadow}
tasks:
  core.clear: {command: [./manage], cron: "42 2 * * 1", env: {PASSWORD: "${KOHA_PASSWORD}"}}
  Welcome: {http: {url: "${ALERT_URL}", token: "${ALERT_TOKEN}", headers: {X-Key: "${POOL_TOKEN}"}}}
`

// The texts below are in ledgers, as those of policies.
func TestTaskRevisionIsStable(t *testing.T) {
	f := parsed(t, twoTasks)
	for name, want := range map[string]struct{ id, text string }{
		"core.clear": {"2d85ab42f566", `{"name":"core.clear","command":["./manage"],"env":{"PASSWORD":"${KOHA_PASSWORD}"},"kill_after_ns":10000000000,"cron":"42 2 * * 1","timezone":"UTC",` +
			`"start_within_ns":3600000000000,"overlap":"skip","catch_up":"latest","timeout_ns":600000000000,"retry":{"attempts":5,"backoff_ns":10000000000,"factor":10},"priority":1}`},
		"Welcome": {"", `{"name":"Welcome","http":{"url":"${ALERT_URL}","method":"POST","token":"${ALERT_TOKEN}","headers":{"X-Key":"${POOL_TOKEN}"}},"timezone":"UTC",` +
			`"start_within_ns":3600000000000,"overlap":"skip","catch_up":"latest","timeout_ns":600000000000,"retry":{"attempts":5,"backoff_ns":10000000000,"factor":10},"priority":1}`},
	} {
		task, err := f.Task(name)
		if err != nil {
			t.Fatal(err)
		}
		id, canonical := task.Revision()
		if diff := cmp.Diff(want.text, string(canonical)); diff != "" || !strings.HasPrefix(id, want.id) || len(id) != 64 {
			t.Errorf("%s: revision %s\n%s", name, id, diff)
		}
		if strings.Contains(string(canonical), "hush") {
			t.Errorf("%s: the revision holds a secret: %s", name, canonical)
		}
	}
}

func TestTaskRevisionSeesEveryChange(t *testing.T) {
	base, err := parsed(t, twoTasks).Task("core.clear")
	if err != nil {
		t.Fatal(err)
	}
	id, _ := base.Revision()
	for name, change := range map[string]func(*policy.Task){
		"command": func(p *policy.Task) { p.Command = []string{"./manage", "x"} }, "cron": func(p *policy.Task) { p.Cron = "" }, "lock": func(p *policy.Task) { p.Lock = "l" },
		"env": func(p *policy.Task) { p.Env = nil }, "codes": func(p *policy.Task) { p.ExitCodes.Fail = []int{1} }, "timeout": func(p *policy.Task) { p.Timeout++ },
		"concurrency": func(p *policy.Task) { p.Concurrency = 1 }, "queue": func(p *policy.Task) { p.Queue = "q" }, "priority": func(p *policy.Task) { p.Priority = 2 },
	} {
		changed := *base
		change(&changed)
		if again, _ := changed.Revision(); again == id {
			t.Errorf("%s: the revision is the same", name)
		}
	}
}

func TestTaskByName(t *testing.T) {
	f := parsed(t, twoTasks)
	for name, want := range map[string]string{
		"welcome": `there is no task "welcome" in conf/curfew.yaml; did you mean "Welcome"? (it has: Welcome, core.clear)`,
		"reports": `there is no task "reports" in conf/curfew.yaml; it has: Welcome, core.clear`,
	} {
		if _, err := f.Task(name); err == nil || err.Error() != want {
			t.Errorf("Task(%s): %v, want %s", name, err, want)
		}
	}
	if _, err := (&policy.File{}).Task("x"); err == nil || !strings.Contains(err.Error(), "has no tasks") {
		t.Errorf("in an empty file: %v", err)
	}
}

func TestTaskDir(t *testing.T) {
	f := parsed(t, twoTasks)
	absolute, err := filepath.Abs("app")
	if err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{"": "conf", "app": filepath.Join("conf", "app"), "../app": "app", absolute: absolute} {
		if got := f.TaskDir(&policy.Task{Dir: dir}); got != want {
			t.Errorf("TaskDir(%q) = %q, want %q", dir, got, want)
		}
	}
}

// TestExpandOfTasks: what a task holds as written is what the file expands.
func TestExpandOfTasks(t *testing.T) {
	f := parsed(t, twoTasks)
	task, err := f.Task("core.clear")
	if err != nil {
		t.Fatal(err)
	}
	if got, err := f.Expand(task.Env["PASSWORD"]); err != nil || got != "hush-koha" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestLockAndRevision(t *testing.T) {
	p := full()
	p.Lock = "sessions"
	id, canonical := p.Revision()
	if base, _ := full().Revision(); id == base {
		t.Error("the revision does not see the lock")
	}
	if again, err := policy.FromRevision(canonical); err != nil || again.Lock != "sessions" {
		t.Errorf("%v", err)
	}
	if p.Effect() != full().Effect() {
		t.Error("a lock decides about rows")
	}
}

func TestTasksEnv(t *testing.T) {
	f := parsed(t, twoTasks)
	env := map[string]string{"CURFEW_TASK_CORE_CLEAR_CRON": "@daily", "CURFEW_TASK_WELCOME_CRON": "1 2 * * *", "CURFEW_TASK_SESSIONS_CRON": "nonsense", "CURFEW_POLICY_CORE_CLEAR_CRON": "nonsense"}
	if err := f.ApplyEnv(lookup(env), ""); err != nil {
		t.Fatal(err)
	}
	if f.Tasks[0].Cron != "1 2 * * *" || f.Tasks[1].Cron != "@daily" || f.Policies[0].Schedule != nil {
		t.Errorf("%q, %q, %v", f.Tasks[0].Cron, f.Tasks[1].Cron, f.Policies[0].Schedule)
	}
	for value, want := range map[string]string{
		"61 * * * *": `conf/curfew.yaml: tasks.core.clear.cron: the environment variable PORTAL_TASK_CORE_CLEAR_CRON is "61 * * * *": the minute "61" cannot be read`,
		"":           `tasks.core.clear.cron: the environment variable PORTAL_TASK_CORE_CLEAR_CRON is blank`,
		"0 0 30 2 *": `never comes`,
	} {
		f := parsed(t, twoTasks)
		err := f.ApplyEnv(lookup(map[string]string{"PORTAL_TASK_CORE_CLEAR_CRON": value, "PORTAL_TASK_WELCOME_CRON": "@daily"}), "PORTAL_")
		var all policy.Errors
		if !errors.As(err, &all) || len(all) != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", value, err, want)
		}
		if f.Tasks[0].Cron != "" || f.Tasks[1].Cron != "42 2 * * 1" {
			t.Errorf("%q: refused, and the file changed", value)
		}
	}
}

// TestTaskCron is for the tasks of an application.
func TestTaskCron(t *testing.T) {
	env := lookup(map[string]string{"CURFEW_TASK_A_B_CRON": "@daily", "P_TASK_BAD_CRON": "x"})
	if cron, ok, err := policy.TaskCron("a.B", env, ""); cron != "@daily" || !ok || err != nil {
		t.Errorf("%q, %v, %v", cron, ok, err)
	}
	if cron, ok, err := policy.TaskCron("a.B", env, "P_"); cron != "" || ok || err != nil {
		t.Errorf("%q, %v, %v", cron, ok, err)
	}
	if _, _, err := policy.TaskCron("bad", env, "P_"); err == nil || !strings.Contains(err.Error(), `the environment variable P_TASK_BAD_CRON is "x"`) {
		t.Error(err)
	}
	if err := policy.CheckCron("0 0 31 4 *"); err == nil {
		t.Error("a day that never comes is accepted")
	}
}

func TestStrayEnvOfTasks(t *testing.T) {
	environ := []string{"CURFEW_TASK_CORE_CLAER_CRON=@daily", "CURFEW_TASK_CORE_CLEAR_CRON=@daily", "CURFEW_TASK_MAIL_SEND_CRON=x", "CURFEW_TASK_MAIL_SENT_CRON=x"}
	want := []policy.StrayVariable{
		{Name: "CURFEW_TASK_CORE_CLAER_CRON", Task: true, Nearest: "CURFEW_TASK_CORE_CLEAR_CRON", For: "core.clear"},
		{Name: "CURFEW_TASK_MAIL_SENT_CRON", Task: true, Nearest: "CURFEW_TASK_MAIL_SEND_CRON", For: "mail.send"},
	}
	if diff := cmp.Diff(want, parsed(t, twoTasks).StrayEnv(environ, "", "mail.send")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTaskNameWithDots: a task's name may look like a path, and opens no door:
// ${…} is expanded where it is a secret, and nowhere else.
func TestTaskNameWithDots(t *testing.T) {
	_, err := policy.Parse([]byte("version: 1\ntasks:\n  a.env: {command: [./manage], description: \"${KOHA_PASSWORD}\"}\n"), options("curfew.yaml"))
	if err == nil || !strings.Contains(err.Error(), "tasks.a.env.description: ${…} is expanded in") {
		t.Error(err)
	}
}

func TestTaskDefaults(t *testing.T) {
	f := parsed(t, "version: 1\ntasks:\n  a: {command: [./manage]}\n")
	want := &policy.Task{Name: "a", Command: []string{"./manage"}, KillAfter: 10 * time.Second, Timezone: "UTC", StartWithin: time.Hour, Overlap: "skip", CatchUp: "latest",
		Timeout: 10 * time.Minute, Retry: policy.DefaultRetry(), Priority: 1}
	if diff := cmp.Diff(want, f.Tasks[0]); diff != "" || f.Retention != policy.DefaultRetention() || len(f.Policies) != 0 || len(f.Databases) != 0 {
		t.Errorf("(-want +got):\n%s%+v", diff, f)
	}
	if f.Tasks[0].Location() != time.UTC && f.Tasks[0].Location().String() != "UTC" {
		t.Error(f.Tasks[0].Location())
	}
}

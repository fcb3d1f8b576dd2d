package policy_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/policy"
	"github.com/google/go-cmp/cmp"
)

// scheduled is a file with and without schedules.
func scheduled(t *testing.T) *policy.File {
	t.Helper()
	f, err := policy.Parse([]byte(`version: 1
databases: {main: {url: "sqlite:app.db"}}
policies:
  nightly: {database: main, table: t, until: u, action: delete, mode: shadow, schedule: {cron: "0 2 * * *", overlap: queue, start_within: 30m}}
  called: {database: main, table: t, until: u, action: delete, mode: shadow, schedule: {cron: "0 3 * * *", by: external, grace: 10m}}
  old-issues_2: {database: main, table: t, until: u, action: delete, mode: shadow}
`), policy.Options{Path: "curfew.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func lookup(env map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := env[name]
		return v, ok
	}
}

func schedules(f *policy.File) map[string]policy.Schedule {
	all := make(map[string]policy.Schedule)
	for _, p := range f.Policies {
		if p.Schedule != nil {
			all[p.Name] = *p.Schedule
		}
	}
	return all
}

func TestApplyEnv(t *testing.T) {
	nightly := policy.Schedule{Cron: "0 2 * * *", StartWithin: 30 * time.Minute, Overlap: "queue", CatchUp: "latest"}
	called := policy.Schedule{Cron: "0 3 * * *", By: policy.External, Grace: 10 * time.Minute}
	with := func(s policy.Schedule, cron string) policy.Schedule {
		s.Cron = cron
		return s
	}
	for name, c := range map[string]struct {
		env    map[string]string
		prefix string
		want   map[string]policy.Schedule
	}{
		"nothing": {nil, "", map[string]policy.Schedule{"nightly": nightly, "called": called}},
		"all": {map[string]string{"CURFEW_POLICY_NIGHTLY_CRON": "15 4 * * 1", "CURFEW_POLICY_CALLED_CRON": "@hourly", "CURFEW_POLICY_OLD_ISSUES_2_CRON": "@weekly"}, "",
			map[string]policy.Schedule{"nightly": with(nightly, "15 4 * * 1"), "called": with(called, "@hourly"), "old-issues_2": with(policy.DefaultSchedule(), "@weekly")}},
		"prefix": {map[string]string{"CURFEW_POLICY_NIGHTLY_CRON": "nonsense", "PORTAL_RETENTION_POLICY_NIGHTLY_CRON": "@daily"}, "PORTAL_RETENTION_",
			map[string]policy.Schedule{"nightly": with(nightly, "@daily"), "called": called}},
		"other names": {map[string]string{"CURFEW_POLICY_NIGHTLY_2_CRON": "nonsense", "curfew_policy_nightly_cron": "nonsense", "POLICY_NIGHTLY_CRON": "nonsense"}, "CURFEW_",
			map[string]policy.Schedule{"nightly": nightly, "called": called}},
	} {
		f := scheduled(t)
		if err := f.ApplyEnv(lookup(c.env), c.prefix); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, schedules(f)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestApplyEnvChangesTheRevision(t *testing.T) {
	f := scheduled(t)
	before, _ := f.Policies[1].Revision()
	if err := f.ApplyEnv(lookup(map[string]string{"CURFEW_POLICY_NIGHTLY_CRON": "@daily"}), ""); err != nil {
		t.Fatal(err)
	}
	if after, _ := f.Policies[1].Revision(); f.Policies[1].Name != "nightly" || after == before {
		t.Errorf("%s: the revision is the same", f.Policies[1].Name)
	}
}

func TestApplyEnvRefuses(t *testing.T) {
	for value, want := range map[string]string{
		"61 * * * *":  `curfew.yaml: policies.nightly.schedule.cron: the environment variable CURFEW_POLICY_NIGHTLY_CRON is "61 * * * *": the minute "61" cannot be read`,
		"* * *":       `five fields`,
		"off":         `is "off": a cron has five fields`,
		"":            `the environment variable CURFEW_POLICY_NIGHTLY_CRON is blank; unset it`,
		" \t":         `is blank`,
		"@sometimes":  `no such descriptor`,
		"0 0 30 2 *":  `never comes`,
		"0 2 * * * *": `this has 6`,
	} {
		f := scheduled(t)
		before := schedules(f)
		err := f.ApplyEnv(lookup(map[string]string{"CURFEW_POLICY_NIGHTLY_CRON": value, "CURFEW_POLICY_CALLED_CRON": "@daily"}), "")
		var all policy.Errors
		if !errors.As(err, &all) || len(all) != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", value, err, want)
		}
		if diff := cmp.Diff(before, schedules(f)); diff != "" {
			t.Errorf("%q: refused, and the file changed:\n%s", value, diff)
		}
	}
	for _, prefix := range []string{"curfew_", "1_", "A-", "A B", "="} {
		if err := scheduled(t).ApplyEnv(lookup(nil), prefix); err == nil || !strings.Contains(err.Error(), "environment variable") {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
}

// TestApplyEnvSharedVariable: whether the variable is set is no matter, since
// somebody will set it.
func TestApplyEnvSharedVariable(t *testing.T) {
	f := &policy.File{Policies: []*policy.Policy{{Name: "old-issues"}, {Name: "old_issues"}}}
	err := f.ApplyEnv(lookup(nil), "")
	if err == nil || !strings.Contains(err.Error(), `policies "old-issues" and "old_issues" share the environment variable CURFEW_POLICY_OLD_ISSUES_CRON`) {
		t.Error(err)
	}
}

// TestApplyEnvStages: a stage has a variable of its own, which nothing else may mean.
func TestApplyEnvStages(t *testing.T) {
	parse := func(more string) (*policy.File, error) {
		return policy.Parse([]byte(`version: 1
databases: {main: {url: "sqlite:app.db"}}
mail: {server: "smtp://mail.example.org:25", from: a@example.org}
policies:
  trials:
    {database: main, table: t, until: u, mode: shadow, schedule: {cron: "0 2 * * *", start_within: 30m}, stages: [
      {name: remind, at: -7d, action: {notify: {email: e, subject: s, text: t}}, schedule: {cron: "42 6 * * *", overlap: queue}},
      {name: tear-down, at: 14d, action: delete}]}
`+more), policy.Options{Path: "curfew.yaml"})
	}
	f, err := parse("")
	if err != nil {
		t.Fatal(err)
	}
	before := f.Policies[0].Stages
	env := map[string]string{"CURFEW_POLICY_TRIALS_CRON": "0 3 * * *", "CURFEW_POLICY_TRIALS_REMIND_CRON": "1 1 * * *", "CURFEW_POLICY_TRIALS_TEAR_DOWN_CRON": "2 2 * * *"}
	if err := f.ApplyEnv(lookup(env), ""); err != nil {
		t.Fatal(err)
	}
	var got []policy.Schedule
	for _, s := range f.Policies[0].Stages {
		got = append(got, *s.Schedule)
	}
	want := []policy.Schedule{
		{Cron: "1 1 * * *", StartWithin: time.Hour, Overlap: "queue", CatchUp: "latest"},
		{Cron: "2 2 * * *", StartWithin: 30 * time.Minute, Overlap: "skip", CatchUp: "latest"},
	}
	if diff := cmp.Diff(want, got); diff != "" || f.Policies[0].Schedule.Cron != "0 3 * * *" {
		t.Errorf("%s\n%+v", diff, f.Policies[0].Schedule)
	}
	if before[0].Schedule.Cron != "42 6 * * *" || before[1].Schedule != nil {
		t.Error("an older reading of the file was changed")
	}
	if err := f.ApplyEnv(lookup(map[string]string{"CURFEW_POLICY_TRIALS_REMIND_CRON": "never"}), ""); err == nil || !strings.Contains(err.Error(), "policies.trials.stages.remind.schedule.cron") {
		t.Errorf("no cron: %v", err)
	}
	_, err = parse("  trials-remind: {database: main, table: t, until: u, mode: shadow, action: delete}\n")
	if err == nil || !strings.Contains(err.Error(), `stage "remind" of policy "trials" and policy "trials-remind" share the environment variable CURFEW_POLICY_TRIALS_REMIND_CRON`) {
		t.Errorf("one variable for two: %v", err)
	}
}

func TestStrayEnv(t *testing.T) {
	environ := []string{"CURFEW_POLICY_NIGHTLY_CRON=@daily", "CURFEW_POLICY_OLD_ISSUES_CRON=@daily", "CURFEW_POLICY_NIGTHLY_CRON=", "CURFEW_TASK_CALLED_IN_CRON=@daily",
		"CURFEW_POLICY_DATABASE_URL=x", "CURFEW_KEY=x", "POLICY_X_CRON=x", "MY_CURFEW_POLICY_X_CRON=x", "CURFEW_POLICY_CRON=x", "PORTAL_POLICY_NIGHTLY_2_CRON=x"}
	want := []policy.StrayVariable{
		{Name: "CURFEW_POLICY_CRON", Nearest: "CURFEW_POLICY_CALLED_CRON", Policy: "called"},
		{Name: "CURFEW_POLICY_NIGTHLY_CRON", Nearest: "CURFEW_POLICY_NIGHTLY_CRON", Policy: "nightly"},
		{Name: "CURFEW_POLICY_OLD_ISSUES_CRON", Nearest: "CURFEW_POLICY_OLD_ISSUES_2_CRON", Policy: "old-issues_2"},
		{Name: "CURFEW_TASK_CALLED_IN_CRON", Task: true, Nearest: "CURFEW_POLICY_CALLED_CRON", Policy: "called"},
	}
	if diff := cmp.Diff(want, scheduled(t).StrayEnv(environ, "")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	want = []policy.StrayVariable{{Name: "PORTAL_POLICY_NIGHTLY_2_CRON", Nearest: "PORTAL_POLICY_NIGHTLY_CRON", Policy: "nightly"}}
	if diff := cmp.Diff(want, scheduled(t).StrayEnv(environ, "PORTAL_")); diff != "" {
		t.Errorf("another prefix (-want +got):\n%s", diff)
	}
	if got := new(policy.File).StrayEnv(environ[:1], ""); len(got) != 1 || got[0].Nearest != "" {
		t.Errorf("a file without policies: %v", got)
	}
}

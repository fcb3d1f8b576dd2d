package policy

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// EnvPrefix begins the names of the variables of [File.ApplyEnv], unless an
// embedding application chose its own.
const EnvPrefix = "CURFEW_"

var envPrefix = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

// ApplyEnv overrides the crons of policies and tasks from the environment: policy
// old-issues takes its cron from CURFEW_POLICY_OLD_ISSUES_CRON when lookup (such
// as os.LookupEnv) knows that variable, and its stage remind, whatever schedule
// that has, from CURFEW_POLICY_OLD_ISSUES_REMIND_CRON. What has no schedule gets
// one: a stage that of its policy, else with the defaults of what else it says.
// Task core.clear takes its cron from CURFEW_TASK_CORE_CLEAR_CRON.
// The prefix "" is [EnvPrefix].
//
// A value that is no cron, a blank one included, is an error that names the
// variable and the policy; so is a variable that two of them would share. The
// error is [Errors], and the file is then as it was.
func (f *File) ApplyEnv(lookup func(name string) (string, bool), prefix string) error {
	if prefix == "" {
		prefix = EnvPrefix
	}
	if !envPrefix.MatchString(prefix) {
		return fmt.Errorf("%q cannot begin the name of an environment variable: use A-Z, 0-9 and _", prefix)
	}
	var errs Errors
	taken := make(map[string]scheduledName, len(f.Policies)+len(f.Tasks))
	crons := make(map[scheduledName]string)
	for _, n := range f.scheduledNames() {
		name := prefix + n.env()
		fail := func(field, problem, hint string) {
			errs = append(errs, &Error{Path: f.Path, Field: field, Problem: problem, Hint: hint})
		}
		if other, ok := taken[name]; ok {
			fail(n.field(), sharedVariable(other, n, name), "rename one of them")
			continue
		}
		taken[name] = n
		cron, ok, err := cronOf(name, lookup)
		if err != nil {
			problem, hint := split(err)
			fail(n.cronField(), problem, hint)
		} else if ok {
			crons[n] = cron
		}
	}
	if len(errs) > 0 {
		return errs.finish()
	}
	for _, p := range f.Policies {
		if cron, ok := crons[scheduledName{policy: p.Name}]; ok {
			p.Schedule = p.Schedule.with(cron)
		}
		p.Stages = slices.Clone(p.Stages)
		for i := range p.Stages {
			if cron, ok := crons[scheduledName{policy: p.Name, stage: p.Stages[i].Name}]; ok {
				p.Stages[i].Schedule = cmp.Or(p.Stages[i].Schedule, p.Schedule).with(cron)
			}
		}
	}
	for _, t := range f.Tasks {
		if cron, ok := crons[scheduledName{task: t.Name}]; ok {
			t.Cron = cron
		}
	}
	return nil
}

// cronOf is the cron in a variable, if that is set.
func cronOf(variable string, lookup func(name string) (string, bool)) (string, bool, error) {
	cron, ok := lookup(variable)
	if !ok {
		return "", false, nil
	}
	if strings.TrimSpace(cron) == "" {
		return "", false, &fault{fmt.Sprintf("the environment variable %s is blank", variable), "unset it to keep the cron of the file"}
	}
	if err := checkCron(cron); err != nil {
		problem, hint := split(err)
		return "", false, &fault{fmt.Sprintf("the environment variable %s is %s: %s", variable, quoted(cron), problem), hint}
	}
	return cron, true, nil
}

// TaskVariable is the environment variable that overrides the cron of the task of
// that name, of the file or of an application.
func TaskVariable(task, prefix string) string {
	return cmp.Or(prefix, EnvPrefix) + scheduledName{task: task}.env()
}

// TaskCron is the cron that [TaskVariable] gives to a task, and whether it is
// set. A value that is no cron is an error that names the variable.
func TaskCron(task string, lookup func(name string) (string, bool), prefix string) (cron string, ok bool, err error) {
	return cronOf(TaskVariable(task, prefix), lookup)
}

// CheckCron says what is wrong with a cron, of a task that no file has.
func CheckCron(text string) error { return checkCron(text) }

// A StrayVariable is an environment variable that is named as one for a cron, and
// overrides none.
type StrayVariable struct {
	Name    string
	Task    bool   // it would be a task's
	Nearest string // the variable of the policy, stage or task whose name is nearest; "" when there is none at all
	Policy  string // that policy, "" when it is a task's
	For     string // that task, "" when it is a policy's
}

// StrayEnv returns the variables in environ (such as os.Environ) that would
// override the cron of a policy or a task and belong to none of the file, nor to
// one of the tasks, which an application has: nobody else would say that they
// have no effect. prefix is as for [File.ApplyEnv].
func (f *File) StrayEnv(environ []string, prefix string, tasks ...string) []StrayVariable {
	if prefix == "" {
		prefix = EnvPrefix
	}
	names := make(map[string]scheduledName, len(f.Policies)+len(f.Tasks)+len(tasks))
	for _, n := range f.scheduledNames() {
		names[n.env()] = n
	}
	for _, task := range tasks {
		names[scheduledName{task: task}.env()] = scheduledName{task: task}
	}
	var stray []StrayVariable
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		full, _, _ := strings.Cut(entry, "=")
		name, ours := strings.CutPrefix(full, prefix)
		if _, known := names[name]; !ours || known || !strings.HasSuffix(name, "_CRON") || !strings.HasPrefix(name, "POLICY_") && !strings.HasPrefix(name, "TASK_") {
			continue
		}
		v := StrayVariable{Name: full, Task: strings.HasPrefix(name, "TASK_")}
		least := 0
		for _, known := range slices.Sorted(maps.Keys(names)) {
			d := distance(bareVariable(name), bareVariable(known))
			if v.Nearest == "" || d < least {
				v.Nearest, v.Policy, v.For, least = prefix+known, names[known].policy, names[known].task, d
			}
		}
		stray = append(stray, v)
	}
	return stray
}

func bareVariable(name string) string {
	return strings.TrimPrefix(strings.TrimPrefix(name, "TASK_"), "POLICY_")
}

// with is a copy with another cron: the schedule itself may be shared with an
// older reading of the file.
func (s *Schedule) with(cron string) *Schedule {
	c := DefaultSchedule()
	if s != nil {
		c = *s
	}
	c.Cron = cron
	return &c
}

// scheduledName names what can have a cron of its own: a policy, a stage of it,
// or a task.
type scheduledName struct{ policy, stage, task string }

// scheduledNames are those of the file, in its order.
func (f *File) scheduledNames() []scheduledName {
	var names []scheduledName
	for _, p := range f.Policies {
		names = append(names, scheduledName{policy: p.Name})
		for _, s := range p.Stages {
			names = append(names, scheduledName{policy: p.Name, stage: s.Name})
		}
	}
	for _, t := range f.Tasks {
		names = append(names, scheduledName{task: t.Name})
	}
	return names
}

func (n scheduledName) field() string {
	if n.task != "" {
		return "tasks." + n.task
	}
	if n.stage == "" {
		return "policies." + n.policy
	}
	return "policies." + n.policy + ".stages." + n.stage
}

func (n scheduledName) cronField() string {
	if n.task != "" {
		return n.field() + ".cron"
	}
	return n.field() + ".schedule.cron"
}

func (n scheduledName) String() string {
	if n.task != "" {
		return fmt.Sprintf("task %q", n.task)
	}
	if n.stage == "" {
		return fmt.Sprintf("policy %q", n.policy)
	}
	return fmt.Sprintf("stage %q of policy %q", n.stage, n.policy)
}

// env is the variable that overrides the cron, without its prefix.
func (n scheduledName) env() string {
	kind, name := "POLICY_", n.policy
	if n.stage != "" {
		name += "_" + n.stage
	}
	if n.task != "" {
		kind, name = "TASK_", n.task
	}
	return kind + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r - 'a' + 'A'
		}
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, name) + "_CRON"
}

func sharedVariable(one, other scheduledName, variable string) string {
	if one.task != "" && other.task != "" {
		return fmt.Sprintf("tasks %q and %q share the environment variable %s", one.task, other.task, variable)
	}
	if one.stage == "" && other.stage == "" {
		return fmt.Sprintf("policies %q and %q share the environment variable %s", one.policy, other.policy, variable)
	}
	return fmt.Sprintf("%s and %s share the environment variable %s", one, other, variable)
}

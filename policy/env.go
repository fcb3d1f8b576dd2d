package policy

import (
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

// ApplyEnv overrides the crons of policies from the environment: policy
// old-issues takes its cron from CURFEW_POLICY_OLD_ISSUES_CRON when lookup (such
// as os.LookupEnv) knows that variable. A policy without a schedule gets one,
// with the defaults of what else it says. The prefix "" is [EnvPrefix].
//
// A value that is no cron, a blank one included, is an error that names the
// variable and the policy; so is a variable that two policies would share. The
// error is [Errors], and the file is then as it was.
func (f *File) ApplyEnv(lookup func(name string) (string, bool), prefix string) error {
	if prefix == "" {
		prefix = EnvPrefix
	}
	if !envPrefix.MatchString(prefix) {
		return fmt.Errorf("%q cannot begin the name of an environment variable: use A-Z, 0-9 and _", prefix)
	}
	var errs Errors
	taken := make(map[string]string, len(f.Policies))
	crons := make(map[*Policy]string)
	for _, p := range f.Policies {
		name := prefix + envName(p.Name)
		fail := func(field, problem, hint string) {
			errs = append(errs, &Error{Path: f.Path, Field: field, Problem: problem, Hint: hint})
		}
		if other, ok := taken[name]; ok {
			fail("policies."+p.Name, sharedVariable(other, p.Name, name), "rename one of them")
			continue
		}
		taken[name] = p.Name
		cron, ok := lookup(name)
		if !ok {
			continue
		}
		field := "policies." + p.Name + ".schedule.cron"
		if strings.TrimSpace(cron) == "" {
			fail(field, fmt.Sprintf("the environment variable %s is blank", name), "unset it to keep the cron of the file")
			continue
		}
		if err := checkCron(cron); err != nil {
			problem, hint := split(err)
			fail(field, fmt.Sprintf("the environment variable %s is %s: %s", name, quoted(cron), problem), hint)
			continue
		}
		crons[p] = cron
	}
	if len(errs) > 0 {
		return errs.finish()
	}
	for p, cron := range crons {
		s := DefaultSchedule()
		if p.Schedule != nil {
			s = *p.Schedule // a copy: the file's own may be shared with an older reading of it
		}
		s.Cron = cron
		p.Schedule = &s
	}
	return nil
}

// A StrayVariable is an environment variable that is named as one for a cron, and
// overrides none.
type StrayVariable struct {
	Name    string
	Task    bool   // it would be a task's
	Nearest string // the variable of the policy whose name is nearest; "" in a file without policies
	Policy  string // that policy
}

// StrayEnv returns the variables in environ (such as os.Environ) that would
// override the cron of a policy or a task and belong to none of the file: nobody
// else would say that they have no effect. prefix is as for [File.ApplyEnv].
func (f *File) StrayEnv(environ []string, prefix string) []StrayVariable {
	if prefix == "" {
		prefix = EnvPrefix
	}
	names := make(map[string]string, len(f.Policies))
	for _, p := range f.Policies {
		names[envName(p.Name)] = p.Name
	}
	var stray []StrayVariable
	for _, entry := range slices.Sorted(slices.Values(environ)) {
		full, _, _ := strings.Cut(entry, "=")
		name, ours := strings.CutPrefix(full, prefix)
		if !ours || names[name] != "" || !strings.HasSuffix(name, "_CRON") || !strings.HasPrefix(name, "POLICY_") && !strings.HasPrefix(name, "TASK_") {
			continue
		}
		v := StrayVariable{Name: full, Task: strings.HasPrefix(name, "TASK_")}
		least := 0
		for _, known := range slices.Sorted(maps.Keys(names)) {
			d := distance(strings.TrimPrefix(strings.TrimPrefix(name, "TASK_"), "POLICY_"), strings.TrimPrefix(known, "POLICY_"))
			if v.Nearest == "" || d < least {
				v.Nearest, v.Policy, least = prefix+known, names[known], d
			}
		}
		stray = append(stray, v)
	}
	return stray
}

// envName is the variable that overrides the cron of a policy, without its
// prefix.
func envName(policy string) string {
	return "POLICY_" + strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r - 'a' + 'A'
		}
		if r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, policy) + "_CRON"
}

func sharedVariable(one, other, variable string) string {
	return fmt.Sprintf("policies %q and %q share the environment variable %s", one, other, variable)
}

package policy

import (
	"fmt"
	"regexp"
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

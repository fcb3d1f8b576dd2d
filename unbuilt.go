package curfew

import "curfew.dev/curfew/policy"

// evenUnbuilt lets tests open files whose other actions come to nothing, because they run in shadow mode.
var evenUnbuilt bool

// unbuilt refuses what the file can say and this version cannot do: to accept and ignore it would promise what nobody keeps.
func unbuilt(f *policy.File) error {
	if evenUnbuilt {
		return nil
	}
	for _, p := range stagesOf(f.Policies) {
		what := ""
		switch {
		case p.Action.Kind != policy.Delete && !p.Action.Kind.Tells():
			what = "action " + string(p.Action.Kind) + " is"
		case p.Action.Dependents != nil:
			what = "dependents are"
		case p.KeepLast != nil:
			what = "keep_last is"
		case p.Privacy != nil:
			what = "privacy is"
		default:
			continue
		}
		return fail(KindConfig, "remove it; a setting that is ignored would promise what nobody keeps", "policy %s: %s not available in this version of curfew", stageWords(p), what)
	}
	return nil
}

package policy

// SQL lists the pieces of SQL that an operator wrote for the policy: each is
// part of statements that are run for it. Those of a policy that was not
// narrowed are those of all its stages.
func (p *Policy) SQL() []string {
	all := []string{p.Where, p.Unless, p.Trigger.Expr}
	if p.Privacy != nil {
		all = append(all, p.Privacy.Expr)
	}
	all = append(all, p.Action.sql()...)
	if p.stage == nil {
		for _, s := range p.Stages {
			all = append(append(all, s.Where), s.Action.sql()...)
		}
	}
	var out []string
	for _, sql := range all {
		if sql != "" {
			out = append(out, sql)
		}
	}
	return out
}

func (a Action) sql() []string {
	var out []string
	if a.Dependents != nil {
		for _, dep := range a.Dependents.List {
			out = append(out, dep.On)
		}
	}
	if a.Message != nil {
		out = append(out, a.Message.Query)
	}
	return out
}

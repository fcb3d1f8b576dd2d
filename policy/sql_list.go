package policy

// SQL lists the pieces of SQL that an operator wrote for the policy: each is
// part of statements that are run for it.
func (p *Policy) SQL() []string {
	all := []string{p.Where, p.Unless, p.Trigger.Expr}
	if p.Privacy != nil {
		all = append(all, p.Privacy.Expr)
	}
	if d := p.Action.Dependents; d != nil {
		for _, dep := range d.List {
			all = append(all, dep.On)
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

package target

import (
	"fmt"
	"slices"
	"strings"

	"curfew.dev/curfew/policy"
)

// dependents judges the tables whose rows go along by the policy's action, and says whether they can be worked with.
func (j *judgement) dependents() bool {
	deps := j.p.Action.Dependents
	if deps == nil {
		return true
	}
	before := len(j.out)
	for i, d := range deps.List {
		switch {
		case i >= len(j.t.Dependents) || j.t.Dependents[i] == nil:
			j.add(LevelRefuse, "dependent_missing", "check the spelling and the schema, and that our role may use them", "dependents: there is no table %s", d.Table)
		case j.t.Dependents[i].Label == j.t.Label:
			j.add(LevelRefuse, "dependent_itself", "remove it; rows of the policy's own table go by their own time", "dependents: %s is the policy's own table", d.Table)
		case slices.ContainsFunc(j.t.Dependents[:i], func(c *Table) bool { return c != nil && c.Label == j.t.Dependents[i].Label }):
			j.add(LevelRefuse, "dependent_twice", "join its rows with OR in one on", "dependents: %s is listed twice", d.Table)
		}
	}
	if len(j.out) > before {
		return false
	}
	for i, c := range j.t.Dependents {
		own := &judgement{p: &policy.Policy{Table: c.Label, Mode: j.p.Mode}, t: c, s: j.s}
		if own.table() {
			own.key()
		}
		for _, f := range own.out {
			if f.Level == LevelRefuse {
				f.Message = "dependents: " + f.Message
				j.out = append(j.out, f)
			}
		}
		if deps.Auto {
			continue
		}
		d := deps.List[i]
		if _, ok := c.Column(d.Subject); d.Subject != "" && !ok {
			j.add(LevelRefuse, "subject_missing", (&judgement{t: c}).columns(d.Subject), "dependents: subject: table %s has no column %q", c.Label, d.Subject)
		}
		if j.s.Engine == MySQL && strings.Contains(literalOrName.ReplaceAllString(d.On, ""), `"`) {
			j.add(LevelRefuse, "double_quotes", "write `column` with backquotes, and 'text' with single quotes", "dependents: on of %s has a double quote, which MySQL reads as a text", c.Label)
		}
	}
	if Refused(j.out[before:]) != nil {
		return false
	}
	f, err := familyOf(j.p, j.t)
	if err != nil {
		j.add(LevelRefuse, "dependents", "", "dependents: %v", err)
		return false
	}
	j.family = f
	j.joins()
	j.deletionOrder()
	j.dependentRights()
	return Refused(j.out[before:]) == nil
}

// joins says which rows go along, and of which tables that cannot be relied on.
func (j *judgement) joins() {
	var names []string
	for _, knot := range j.family.knots {
		for _, i := range knot {
			if i == governed {
				continue
			}
			names = append(names, j.family.steps[i].t.Label)
		}
	}
	for _, s := range j.family.steps {
		switch {
		case s.on == "" && len(s.via) == 0:
			j.add(LevelRefuse, "dependent_unjoined", "write on: with the condition that joins them", "dependents: no foreign key leads from %s to %s, or to another table of the list", s.t.Label, j.t.Label)
		case s.on != "" && j.s.Engine != SQLite && !slices.ContainsFunc(j.t.Children, func(fk ForeignKey) bool { return fk.Child == s.t.Label && fk.Parent == j.t.Label }):
			j.add(LevelWarn, "dependent_best_effort", "a foreign key would make such an insert wait", "rows of %s have no foreign key to %s: one that is inserted while a batch is under way may stay behind (best effort)", s.t.Label, j.t.Label)
		}
	}
	if len(names) == 0 {
		j.add(LevelInfo, "dependents", "", "no table references %s: nothing goes along with its rows", j.t.Label)
		return
	}
	j.add(LevelInfo, "dependents", "", "with a row of %s go, in this order, the rows that hang on it of %s", j.t.Label, strings.Join(names, ", "))
}

// deletionOrder looks for constraints that would not let the rows go in the order in which they are deleted.
func (j *judgement) deletionOrder() {
	f := j.family
	place := map[int]int{}
	for n, knot := range f.knots {
		for _, i := range knot {
			place[i] = n
		}
	}
	for _, l := range slices.Concat(f.links, f.keeps) {
		if l.child == noStep || !l.fk.restricts() || l.fk.Deferrable || place[l.child] <= place[l.parent] {
			continue
		}
		child, parent := j.label(l.child), j.label(l.parent)
		if l.child == governed {
			j.add(LevelWarn, "dependents_circle", "a constraint that is DEFERRABLE lets both go", "%s (%s) references %s, whose rows go first: a row that references one which goes with it is blocked", child, strings.Join(l.fk.ChildColumns, ", "), parent)
			continue
		}
		j.add(LevelRefuse, "dependents_order", fmt.Sprintf("put %s before %s", child, parent), "dependents: rows of %s are deleted before those of %s, which reference them (%s)", parent, child, fkName(l.fk))
	}
}

func (j *judgement) label(place int) string {
	if place == governed {
		return j.t.Label
	}
	return j.family.steps[place].t.Label
}

func (j *judgement) dependentRights() {
	level := j.onlyEnforce()
	for _, s := range j.family.steps {
		if slices.Contains(s.t.Hidden, "foreign keys") && !slices.Contains(j.t.Hidden, "foreign keys") {
			j.add(level, "foreign_keys_hidden", "grant REFERENCES on its database", "role %s cannot see which tables reference %s, so a cascade could go unnoticed", j.s.Role, s.t.Label)
		}
		if slices.Contains(s.t.Hidden, "triggers") && s.explicit {
			j.add(LevelWarn, "triggers_hidden", "grant TRIGGER on the table", "role %s cannot see the triggers of %s", j.s.Role, s.t.Label)
		}
		var lacks []string
		pr := s.t.Privileges
		if !pr.Select {
			lacks = append(lacks, "SELECT")
		}
		if s.explicit && !pr.Delete && j.s.Engine != SQLite {
			lacks = append(lacks, "DELETE")
		}
		if s.locked(j.family) && !pr.Update && j.s.Engine == Postgres {
			lacks = append(lacks, "UPDATE ("+postgresDialect{}.ident(s.key[0].Name)+")")
		}
		if len(lacks) == 0 {
			continue
		}
		if !pr.Select {
			level = LevelRefuse
		}
		j.add(level, "dependent_rights", "", "role %s may not %s rows of %s, which go along", j.s.Role, strings.Join(lacks, ", "), s.t.Label)
		j.out[len(j.out)-1].Statement = fmt.Sprintf("GRANT %s ON %s TO %s", strings.Join(lacks, ", "), quoted(dialectFor(j.s), s.t.Schema, s.t.Name), grantee(j.s))
	}
}

// references are the foreign keys that matter to a delete: those reached from the table, and from the tables whose rows go along.
func (j *judgement) references() []ForeignKey {
	out := slices.Clone(j.t.Children)
	if j.family == nil {
		return out
	}
	for _, s := range j.family.steps {
		for _, fk := range s.t.Children {
			if !slices.ContainsFunc(out, func(o ForeignKey) bool { return sameReference(o, fk) }) {
				out = append(out, fk)
			}
		}
	}
	return out
}

// followed reports whether rows with this foreign key go along by the policy's action: then nothing has to be accepted.
func (j *judgement) followed(fk ForeignKey) bool {
	return j.family != nil && fk.takes() && slices.ContainsFunc(j.family.links, func(l link) bool { return sameReference(l.fk, fk) })
}

// keeper reports whether the foreign key keeps a row that would go.
func (j *judgement) keeper(fk ForeignKey) bool {
	if j.family == nil {
		return fk.Parent == j.t.Label
	}
	return slices.ContainsFunc(j.family.keeps, func(l link) bool { return sameReference(l.fk, fk) })
}

// firing are the triggers that fire when rows go.
func (j *judgement) firing() []Trigger {
	out := slices.Clone(j.t.Triggers)
	if j.family == nil {
		return out
	}
	for _, s := range j.family.steps {
		if !s.explicit && j.s.Engine == MySQL {
			continue // InnoDB's cascades fire none
		}
		for _, g := range s.t.Triggers {
			if !slices.Contains(out, g) {
				out = append(out, g)
			}
		}
	}
	return out
}

package policy

import (
	"fmt"
	"reflect"

	"github.com/invopop/jsonschema"
)

// children is a list of child tables, each a name or a mapping.
type children struct {
	leaf
	items []rawChild
}

// rawChild is one of them; of a name alone, only Table is set.
type rawChild struct {
	place     `yaml:"-"`
	Table     text `yaml:"table"`
	Subject   text `yaml:"subject"`
	NoSubject flag `yaml:"no_subject"`
}

// flag is a setting that is true or left out.
type flag struct{ leaf }

// children accepts a list of different tables, at least one.
func (r *reader) children(n *node, field string) children {
	c := children{leaf: leaf{n, field}}
	if n.kind != listNode {
		r.wrongKind(n, field, "a list, such as [a, b]")
		return children{}
	}
	if len(n.items) == 0 {
		r.fail(n, field, "the list is empty", "name something, or leave the line out")
	}
	seen := make(map[string]bool)
	for i, item := range n.items {
		at := fmt.Sprintf("%s[%d]", field, i)
		child := rawChild{place: place{item, at}}
		if item.kind == mapNode {
			before := len(r.errs)
			r.decode(item, item, at, reflect.ValueOf(&child).Elem())
			if !child.Table.set() && len(r.errs) == before {
				r.fail(item, at, "it has no table", "write {table: NAME, subject: COLUMN}")
			}
			if !child.Table.set() {
				continue
			}
		} else {
			t, ok := r.text(item, at)
			if !ok {
				continue
			}
			child.Table = t
		}
		if name := child.Table.String(); seen[name] {
			r.fail(item, at, fmt.Sprintf("%s is in the list twice", quoted(name)), "remove one")
			continue
		} else {
			seen[name] = true
		}
		c.items = append(c.items, child)
	}
	return c
}

// flag accepts true.
func (r *reader) flag(n *node, field string) flag {
	if n.kind != scalarNode || n.scalar == stringScalar || n.text != "true" {
		r.fail(n, field, "it can only be true", "write true, or leave the line out")
		return flag{}
	}
	return flag{leaf{n, field}}
}

// children judges the child tables. Those that say something of the data
// subject are named twice: as accepted, and with what they say.
func (b *builder) children(c children) (names []string, subjects []CascadeSubject) {
	for _, raw := range c.items {
		name := b.identifier(raw.Table)
		names = append(names, name)
		s := CascadeSubject{Table: name, Subject: b.identifier(raw.Subject), NoSubject: raw.NoSubject.set()}
		switch {
		case s.Subject != "" && s.NoSubject:
			b.fail(raw.NoSubject.n, raw.NoSubject.field, "subject and no_subject are both given", "keep one of them")
		case s.Subject != "" || s.NoSubject:
			subjects = append(subjects, s)
		}
	}
	return names, subjects
}

// childrenSchema is the schema of children.
func childrenSchema() *jsonschema.Schema {
	one := uint64(1)
	name := func(about string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: "string", Pattern: `\S`, Description: about}
	}
	properties := jsonschema.NewProperties()
	properties.Set("table", name("The child table."))
	properties.Set("subject", name("Its column that names the data subject."))
	properties.Set("no_subject", &jsonschema.Schema{Const: true, Description: "Its rows say nothing about a data subject."})
	mapping := &jsonschema.Schema{Type: "object", Properties: properties, Required: []string{"table"}, AdditionalProperties: jsonschema.FalseSchema,
		Not: &jsonschema.Schema{Required: []string{"subject", "no_subject"}}}
	return &jsonschema.Schema{Type: "array", MinItems: &one, UniqueItems: true,
		Items: &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string", Pattern: `\S`}, mapping}}}
}

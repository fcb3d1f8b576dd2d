package policy

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
)

// decode fills one of the raw structs from a mapping. It reports unknown
// fields, settings of a later version, values of the wrong kind and blank
// ones; all it lets through is there and of its type.
func (r *reader) decode(n *node, at *node, field string, into reflect.Value) {
	locate(into, place{at, field})
	known := make(map[string]reflect.Value)
	names := make([]string, 0, into.NumField())
	for i := range into.NumField() {
		name, ok := into.Type().Field(i).Tag.Lookup("yaml")
		if ok && name != "-" {
			known[name] = into.Field(i)
			names = append(names, name)
		}
	}
	for _, p := range n.pairs {
		name := p.key.text
		child := join(field, name)
		v, ok := known[name]
		switch {
		case !ok:
			r.unknown(p.key, field, names)
		case v.Type() == reflect.TypeFor[later]():
			r.fail(p.key, child, "not available in this version of curfew", "remove it; a setting that is ignored would promise what nobody keeps")
		case p.value.kind == scalarNode && p.value.scalar == nullScalar:
			r.fail(p.value, child, "it has no value", "give it one, or leave the line out")
		default:
			r.value(p, child, v)
		}
	}
}

// unknown reports a field that does not exist.
func (r *reader) unknown(key *node, field string, names []string) {
	hint := "the fields here are " + strings.Join(names, ", ")
	if near := nearest(key.text, names); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	r.fail(key, field, fmt.Sprintf("there is no field %s", quoted(key.text)), hint)
}

// value decodes one value into the field of a raw struct.
func (r *reader) value(p pair, field string, into reflect.Value) {
	switch v := into.Addr().Interface().(type) {
	case *text:
		*v, _ = r.text(p.value, field)
	case *secret:
		if p.value.kind == scalarNode && p.value.scalar != stringScalar {
			r.fail(p.value, field, "it is not text", "put it in quotes") // without repeating it
			return
		}
		v.text, _ = r.text(p.value, field)
	case *amount:
		if p.value.kind == scalarNode {
			v.leaf = leaf{p.value, field}
		} else {
			r.wrongKind(p.value, field, "one value, such as 30d")
		}
	case *integer:
		v.leaf, v.value = r.integer(p.value, field)
	case *list:
		*v = r.list(p.value, field)
	case *flag:
		*v = r.flag(p.value, field)
	case *children:
		*v = r.children(p.value, field)
	case **rawTrigger:
		*v = new(rawTrigger)
		(*v).place = place{p.key, field}
		if p.value.kind == scalarNode {
			(*v).Column, _ = r.text(p.value, field)
			return
		}
		if p.value.kind == listNode {
			r.wrongKind(p.value, field, "a column or a mapping")
			return
		}
		r.section(p, field, reflect.ValueOf(*v).Elem())
	case **rawAction:
		*v = r.action(p, field)
	case **rawDependents:
		*v = r.dependents(p, field)
	case **rawEmail:
		*v = &rawEmail{place: place{p.key, field}}
		if p.value.kind == mapNode {
			r.section(p, field, reflect.ValueOf(*v).Elem())
		} else {
			(*v).Column, _ = r.text(p.value, field)
		}
	case *columns:
		*v = r.columns(p, field)
	case *values:
		*v = r.constants(p.value, field)
	case *argv:
		*v = r.argv(p.value, field)
	case *variables:
		*v = r.variables(p, field)
	case *codes:
		*v = r.codes(p.value, field)
	case *numbers:
		*v = r.numbers(p, field)
	case *boolean:
		*v = r.boolean(p.value, field)
	case *[]*rawStage:
		*v = listOf[rawStage](r, p, field)
	case **rawSchedule:
		if p.value.kind == scalarNode { // other programs take a cron here
			r.fail(p.value, field, quoted(p.value.text)+" is a single value, and a schedule is a mapping", scheduleOf(p.value.text))
			return
		}
		*v = new(rawSchedule)
		r.section(p, field, reflect.ValueOf(*v).Elem())
	case *map[string]*rawDatabase:
		*v = sections[rawDatabase](r, p, field, isName, nameHint)
	case *map[string]*rawPolicy:
		*v = sections[rawPolicy](r, p, field, isName, nameHint)
	case *map[string]*rawTask:
		*v = sections[rawTask](r, p, field, isTaskName, taskNameHint)
	default: // a pointer to a section
		into.Set(reflect.New(into.Type().Elem()))
		r.section(p, field, into.Elem())
	}
}

// scheduleOf says how to write what somebody wrote for a schedule.
func scheduleOf(cron string) string {
	if checkCron(cron) != nil {
		return `write for example schedule: {cron: "0 2 * * *"}`
	}
	return fmt.Sprintf("write schedule: {cron: %s}", strconv.Quote(cron))
}

// locate tells a raw struct where it stood.
func locate(into reflect.Value, at place) {
	into.Addr().Interface().(interface{ locate(place) }).locate(at)
}

func (r *reader) section(p pair, field string, into reflect.Value) {
	locate(into, place{p.key, field})
	if p.value.kind != mapNode {
		r.wrongKind(p.value, field, "a mapping")
		return
	}
	r.decode(p.value, p.key, field, into)
}

// sections decodes a mapping from names of the operator's choice to sections.
// A nil map stands for one that was not usable and is reported.
func sections[T any](r *reader, p pair, field string, named func(string) bool, hint string) map[string]*T {
	if p.value.kind != mapNode {
		r.wrongKind(p.value, field, "a mapping from names to settings")
		return nil
	}
	m := make(map[string]*T, len(p.value.pairs))
	for _, entry := range p.value.pairs {
		name := entry.key.text
		child := join(field, name)
		if !named(name) {
			r.fail(entry.key, field, fmt.Sprintf("%s is not a name", quoted(name)), hint)
			continue
		}
		if entry.value.kind == scalarNode && entry.value.scalar == nullScalar {
			r.fail(entry.value, child, "it has no settings", "indent them below it")
			continue
		}
		m[name] = new(T)
		r.section(entry, child, reflect.ValueOf(m[name]).Elem())
	}
	return m
}

func (r *reader) wrongKind(n *node, field, want string) {
	have := map[nodeKind]string{scalarNode: "a single value", listNode: "a list", mapNode: "a mapping"}[n.kind]
	r.fail(n, field, fmt.Sprintf("this is %s, and must be %s", have, want), "")
}

// text accepts a string that is not blank. A number or true is no string: who
// means one quotes it.
func (r *reader) text(n *node, field string) (text, bool) {
	switch {
	case n.kind != scalarNode:
		r.wrongKind(n, field, "text")
	case n.scalar == nullScalar:
		r.fail(n, field, "it has no value", "give it one, or leave the line out")
	case n.scalar != stringScalar:
		r.fail(n, field, fmt.Sprintf("%s is not text", quoted(n.text)), "put it in quotes if it is meant as text")
	case strings.TrimSpace(n.text) == "":
		r.fail(n, field, "it is blank", "give it a value, or leave the line out")
	default:
		return text{leaf{n, field}}, true
	}
	return text{}, false
}

func (r *reader) integer(n *node, field string) (leaf, int) {
	if n.kind != scalarNode {
		r.wrongKind(n, field, "a whole number")
		return leaf{}, 0
	}
	i, err := strconv.Atoi(n.text)
	if n.scalar != integerScalar || err != nil || n.text != strconv.Itoa(i) {
		r.fail(n, field, fmt.Sprintf("%s is not a whole number", quoted(n.text)), "write digits only, without quotes")
		return leaf{}, 0
	}
	return leaf{n, field}, i
}

// list accepts a list of different texts, at least one.
func (r *reader) list(n *node, field string) list {
	l := list{leaf: leaf{n, field}}
	if n.kind != listNode {
		r.wrongKind(n, field, "a list, such as [a, b]")
		return list{}
	}
	if len(n.items) == 0 {
		r.fail(n, field, "the list is empty", "name something, or leave the line out")
	}
	seen := make(map[string]bool)
	for i, item := range n.items {
		t, ok := r.text(item, fmt.Sprintf("%s[%d]", field, i))
		if !ok {
			continue
		}
		if seen[t.String()] {
			r.fail(item, t.field, fmt.Sprintf("%s is in the list twice", quoted(t.String())), "remove one")
			continue
		}
		seen[t.String()] = true
		l.items = append(l.items, t)
	}
	return l
}

// quoted shows a value of the file in a message.
func quoted(s string) string {
	const most = 60
	if short := firstRunes(s, most); short != s {
		s = short + "…"
	}
	return strconv.Quote(s)
}

// What a name is, in words.
const (
	nameHint     = "use a lower-case letter, then lower-case letters, digits, _ and -, at most 63"
	taskNameHint = "use a letter, then letters, digits, _, - and ., at most 100"
)

// isName accepts what may name a policy or a database.
func isName(s string) bool {
	if s == "" || len(s) > 63 || s[0] < 'a' || s[0] > 'z' {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789_-") == ""
}

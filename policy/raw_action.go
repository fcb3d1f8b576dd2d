package policy

import (
	"fmt"
	"reflect"
	"strings"
)

// The raw form of what is done to rows, see raw.go.

// rawAction is an action by its name, or a mapping with one action. Exactly one
// field is set in what decode lets through.
type rawAction struct {
	place     `yaml:"-"`
	Delete    *rawDelete  `yaml:"delete" jsonschema_description:"Remove the row."`
	Anonymise columns     `yaml:"anonymise" jsonschema_description:"Change the named columns so that they tell of nobody: null, a constant, or one of sentinel, hash, truncate, prefix, band."`
	Archive   *rawArchive `yaml:"archive" jsonschema_description:"Move the row to another table of the same database."`
	Set       columns     `yaml:"set" jsonschema_description:"Give the named columns values: null, a constant, or {as_of_plus: PERIOD}."`
	Notify    *rawNotify  `yaml:"notify" jsonschema_description:"Tell somebody, once for each row and due instant."`
	Call      *rawCall    `yaml:"call" jsonschema_description:"Ask another system to act, over HTTP."`
}

type rawDelete struct {
	place      `yaml:"-"`
	Dependents *rawDependents `yaml:"dependents" jsonschema_description:"Rows of other tables that go along: auto follows the foreign keys; a list names the tables, children first."`
}

// rawDependents is the word auto, or a list.
type rawDependents struct {
	place `yaml:"-"`
	auto  text
	list  []*rawDependent
}

type rawDependent struct {
	place     `yaml:"-"`
	Table     text    `yaml:"table" jsonschema:"required" jsonschema_description:"The table, or schema.table."`
	On        text    `yaml:"on" jsonschema_description:"SQL that joins it to the policy's table. Left out, its foreign keys do."`
	Subject   text    `yaml:"subject" jsonschema_description:"Its column that names the data subject, for legal holds."`
	NoSubject boolean `yaml:"no_subject" jsonschema_description:"true: its rows are about nobody."`
}

type rawArchive struct {
	place `yaml:"-"`
	To    text `yaml:"to" jsonschema:"required" jsonschema_description:"The table that gets the rows: the same columns, and a unique key over the policy's key."`
}

type rawNotify struct {
	place    `yaml:"-"`
	Email    *rawEmail        `yaml:"email" jsonschema_description:"Who gets an e-mail: the column with the address, or {query: SQL}, a sub-select of addresses."`
	From     text             `yaml:"from" jsonschema_description:"The sender. Default: the file's mail section."`
	Subject  text             `yaml:"subject" jsonschema_description:"The subject line; {{.column}} stands for the row's values."`
	Template text             `yaml:"template" jsonschema_description:"The file with the text of the e-mail, beside the policy file; {{.column}} stands for the row's values."`
	Text     text             `yaml:"text" jsonschema_description:"The text itself, instead of template."`
	Webhook  *rawWebhookOfRow `yaml:"webhook" jsonschema_description:"A web address that gets a JSON document by POST, instead of an e-mail."`
}

type rawEmail struct {
	place  `yaml:"-"`
	Column text `yaml:"column" jsonschema_description:"The column with the address."`
	Query  text `yaml:"query" jsonschema_description:"SQL, a sub-select of addresses that may name the policy's table."`
}

type rawWebhookOfRow struct {
	place  `yaml:"-"`
	URL    secret `yaml:"url" jsonschema:"required" jsonschema_description:"https://…. ${VAR} and ${file:PATH} are expanded when it is used."`
	Secret secret `yaml:"secret" jsonschema_description:"What signs, as Standard Webhooks says: whsec_ and 24 to 64 bytes in base64. ${VAR} and ${file:PATH} are expanded when it is used."`
}

type rawCall struct {
	place   `yaml:"-"`
	URL     secret `yaml:"url" jsonschema:"required" jsonschema_description:"https://…. ${VAR} and ${file:PATH} are expanded when it is used."`
	Method  text   `yaml:"method" jsonschema:"enum=POST,enum=PUT,enum=PATCH,enum=DELETE,default=POST" jsonschema_description:"The HTTP method."`
	Token   secret `yaml:"token" jsonschema_description:"A bearer token. ${VAR} and ${file:PATH} are expanded when it is used."`
	Per     text   `yaml:"per" jsonschema:"enum=row,enum=batch,default=row" jsonschema_description:"row: one request for each row; batch: one for each batch."`
	Timeout amount `yaml:"timeout" jsonschema:"default=30s" jsonschema_description:"How long one request may take."`
}

type rawStage struct {
	place     `yaml:"-"`
	Name      text         `yaml:"name" jsonschema:"required" jsonschema_description:"What the stage is called (a-z, 0-9, _ and -)."`
	At        amount       `yaml:"at" jsonschema:"required" jsonschema_description:"The offset from the due instant: -7d, 0d, 14d."`
	Snap      text         `yaml:"snap" jsonschema_description:"A time of day in the policy's zone, such as 09:00: the stage acts at the first one at or after its instant."`
	Where     text         `yaml:"where" jsonschema_description:"The scope of the stage, besides the policy's: an SQL condition on the row."`
	MinNotice amount       `yaml:"min_notice" jsonschema_description:"How long ago a reminder must have gone out before this stage acts."`
	Action    *rawAction   `yaml:"action" jsonschema:"required" jsonschema_description:"What the stage does."`
	Schedule  *rawSchedule `yaml:"schedule" jsonschema_description:"When the daemon starts the stage. Default: the policy's schedule."`
}

type rawKeepLast struct {
	place `yaml:"-"`
	N     integer `yaml:"n" jsonschema:"required,minimum=1,maximum=100000" jsonschema_description:"How many stay."`
	Per   text    `yaml:"per" jsonschema:"required" jsonschema_description:"The column whose values they are counted by."`
}

type rawPrivacy struct {
	place   `yaml:"-"`
	Column  text   `yaml:"column" jsonschema_description:"The column with the choice."`
	Expr    text   `yaml:"expr" jsonschema_description:"SQL instead of a column, such as a sub-select."`
	Never   values `yaml:"never" jsonschema_description:"The values that mean: keep nothing. The row is due at once."`
	Default values `yaml:"default" jsonschema_description:"The values that mean: keep as the policy says. Left out: all others but NULL."`
	Forever values `yaml:"forever" jsonschema_description:"The values that mean: keep the row."`
}

type rawMail struct {
	place  `yaml:"-"`
	Server secret `yaml:"server" jsonschema:"required" jsonschema_description:"smtp://user:password@host:587 (STARTTLS where it is offered, required with a password), or smtps://host:465. ${VAR} and ${file:PATH} are expanded."`
	From   text   `yaml:"from" jsonschema:"required" jsonschema_description:"The sender of e-mails."`
}

// boolean is true or false.
type boolean struct {
	leaf
	value bool
}

// values is a list of constants.
type values struct {
	leaf
	items []Value
}

// columns are settings by column, in the order of the file.
type columns struct {
	place
	items []rawColumn
}

type rawColumn struct {
	name  *node
	field string
	value *node
}

func (c columns) set() bool { return c.at != nil }

// action decodes an action by its name alone, or a mapping with one action.
func (r *reader) action(p pair, field string) *rawAction {
	a := &rawAction{place: place{p.key, field}}
	if p.value.kind == scalarNode {
		t, ok := r.text(p.value, field)
		switch kind := ActionKind(t.String()); {
		case !ok:
			return nil
		case kind == Delete:
			a.Delete = &rawDelete{place: a.place}
			return a
		case oneOf(kind, Anonymise, Archive, Set, Notify, Call):
			r.fail(p.value, field, fmt.Sprintf("%q needs settings", kind), "write for example "+actionExamples[kind])
		default:
			r.fail(p.value, field, quoted(t.String())+": there is no such action", "write delete, or a mapping with one of anonymise, archive, set, notify and call")
		}
		return nil
	}
	r.section(p, field, reflect.ValueOf(a).Elem())
	if len(p.value.pairs) > 1 {
		r.fail(p.value.pairs[1].key, field, "an action is one thing", "keep one; stages are for several")
	}
	return a
}

var actionExamples = map[ActionKind]string{
	Anonymise: "action: {anonymise: {patron_id: null}}",
	Archive:   "action: {archive: {to: old_circulation}}",
	Set:       "action: {set: {state: paused}}",
	Notify:    "action: {notify: {email: owner_email, subject: …, template: reminder.txt}}",
	Call:      `action: {call: {url: "https://portal.internal/teardown"}}`,
}

func (r *reader) dependents(p pair, field string) *rawDependents {
	d := &rawDependents{place: place{p.key, field}}
	if p.value.kind == listNode {
		d.list = listOf[rawDependent](r, p, field)
		return d
	}
	t, ok := r.text(p.value, field)
	if ok && t.String() != "auto" {
		r.fail(p.value, field, quoted(t.String())+": there is no such choice", "write auto, or a list of tables: [{table: fine}]")
	}
	d.auto = t
	return d
}

// listOf decodes a list of sections, at least one.
func listOf[T any](r *reader, p pair, field string) []*T {
	if p.value.kind != listNode {
		r.wrongKind(p.value, field, "a list of mappings, each in a line that begins with -")
		return nil
	}
	if len(p.value.items) == 0 {
		r.fail(p.value, field, "the list is empty", "name something, or leave the line out")
	}
	var out []*T
	for i, item := range p.value.items {
		out = append(out, new(T))
		r.section(pair{item, item}, fmt.Sprintf("%s[%d]", field, i), reflect.ValueOf(out[i]).Elem())
	}
	return out
}

func (r *reader) columns(p pair, field string) columns {
	c := columns{place: place{p.key, field}}
	if p.value.kind != mapNode || len(p.value.pairs) == 0 {
		r.wrongKind(p.value, field, "a mapping from columns to what becomes of them")
		return c
	}
	for _, entry := range p.value.pairs {
		child := join(field, entry.key.text)
		if err := checkIdentifier(entry.key.text); err != nil || strings.TrimSpace(entry.key.text) == "" {
			r.fail(entry.key, child, "this is no column name", "write it as the database spells it, without SQL quotes")
			continue
		}
		c.items = append(c.items, rawColumn{entry.key, child, entry.value})
	}
	return c
}

// constant reads a plain value as what it was written: null, text, a number,
// true or false.
func (r *reader) constant(n *node, field string) (Value, bool) {
	switch {
	case n.kind != scalarNode:
		r.wrongKind(n, field, "one value")
		return Value{}, false
	case n.scalar == nullScalar:
		return Value{Kind: NullValue}, true
	case n.scalar == integerScalar:
		return Value{NumberValue, n.text}, true
	case n.scalar == stringScalar:
		return Value{TextValue, n.text}, true
	case oneOf(n.text, "true", "false"):
		return Value{BoolValue, n.text}, true
	case plainNumber.MatchString(n.text):
		return Value{NumberValue, n.text}, true
	}
	r.fail(n, field, fmt.Sprintf("%s is neither text nor a number nor true or false", quoted(n.text)), "put it in quotes if it is meant as text")
	return Value{}, false
}

func (r *reader) constants(n *node, field string) values {
	v := values{leaf: leaf{n, field}}
	if n.kind != listNode || len(n.items) == 0 {
		r.wrongKind(n, field, "a list of values, such as [0, 1]")
		return values{}
	}
	for i, item := range n.items {
		at := fmt.Sprintf("%s[%d]", field, i)
		c, ok := r.constant(item, at)
		if ok && c.Kind == NullValue {
			r.fail(item, at, "NULL is no choice", "a row without a choice stays; leave it out")
			continue
		}
		v.items = append(v.items, c)
	}
	return v
}

func (r *reader) boolean(n *node, field string) boolean {
	if n.kind != scalarNode || !oneOf(n.text, "true", "false") || n.scalar != otherScalar {
		r.fail(n, field, "it is neither true nor false", "write true or false, without quotes")
		return boolean{}
	}
	return boolean{leaf{n, field}, n.text == "true"}
}

package policy

import (
	"fmt"
	"maps"
	"net/mail"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"
)

var plainNumber = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

// action judges one action; nil is none.
func (b *builder) action(raw *rawAction) Action {
	switch {
	case raw == nil:
	case raw.Delete != nil:
		return Action{Kind: Delete, Dependents: b.dependents(raw.Delete.Dependents)}
	case raw.Anonymise.set():
		return Action{Kind: Anonymise, Columns: b.changes(raw.Anonymise, Anonymise)}
	case raw.Set.set():
		return Action{Kind: Set, Columns: b.changes(raw.Set, Set)}
	case raw.Archive != nil:
		if !raw.Archive.To.set() && !b.failed(raw.Archive.field) {
			b.missing(raw.Archive.place, "to", "name the table that gets the rows")
		}
		return Action{Kind: Archive, To: b.table(raw.Archive.To)}
	case raw.Notify != nil:
		return Action{Kind: Notify, Message: b.message(raw.Notify)}
	case raw.Call != nil:
		return Action{Kind: Call, Request: b.request(raw.Call)}
	case !b.failed(raw.field):
		b.fail(raw.at, raw.field, "it names no action", "write delete, or a mapping with one of anonymise, archive, set, notify and call")
	}
	return Action{}
}

func (b *builder) dependents(raw *rawDependents) *Dependents {
	if raw == nil {
		return nil
	}
	if raw.auto.set() {
		return &Dependents{Auto: true}
	}
	d := &Dependents{}
	for _, r := range raw.list {
		if !r.Table.set() && !b.failed(r.field) {
			b.missing(r.place, "table", "name the table")
		}
		if r.Subject.set() && r.NoSubject.value {
			b.fail(r.NoSubject.n, r.NoSubject.field, "subject and no_subject are both given", "keep one of them")
		}
		d.List = append(d.List, Dependent{Table: b.table(r.Table), On: b.sql(r.On), Subject: b.identifier(r.Subject), NoSubject: r.NoSubject.value})
	}
	return d
}

// changes judges what becomes of columns.
func (b *builder) changes(raw columns, kind ActionKind) []Change {
	var out []Change
	lasting := false
	for _, c := range raw.items {
		change := Change{Column: c.name.text}
		if c.value.kind != mapNode {
			if v, ok := b.constant(c.value, c.field); ok {
				change.Value = &v
			}
		} else {
			b.way(&change, c, kind)
		}
		lasting = lasting || change.AsOfPlus == nil
		out = append(out, change)
	}
	if !lasting && len(out) > 0 {
		b.fail(raw.at, raw.field, "nothing tells a row that was set from one that was not", "set a column to a constant too, such as a state")
	}
	return out
}

// way judges {sentinel: 1}, {truncate: year} and their kin.
func (b *builder) way(change *Change, c rawColumn, kind ActionKind) {
	ways := []string{"sentinel", "hash", "truncate", "prefix", "band"}
	if kind == Set {
		ways = []string{"as_of_plus"}
	}
	if len(c.value.pairs) != 1 {
		b.fail(c.value, c.field, "one thing becomes of a column", "write one of "+strings.Join(ways, ", "))
		return
	}
	name, v := c.value.pairs[0].key.text, c.value.pairs[0].value
	field := join(c.field, name)
	if !oneOf(name, ways...) {
		b.unknown(c.value.pairs[0].key, c.field, ways)
		return
	}
	least := func() int {
		l, n := b.integer(v, field)
		if l.set() && n < 1 {
			b.fail(v, field, "it must be 1 or more", "")
		}
		return n
	}
	switch name {
	case "sentinel":
		if val, ok := b.constant(v, field); ok {
			if val.Kind == NullValue {
				b.fail(v, field, "NULL names no row", "write null alone, or the key of the row that stands for nobody")
			}
			change.Sentinel = &val
		}
	case "hash":
		if t := b.boolean(v, field); t.set() && !t.value {
			b.fail(v, field, "false would leave the column as it is", "leave the column out")
		}
		change.Hash = true
	case "truncate":
		change.Truncate = choice(b, text{leaf{v, field}}, ToMonth, ToYear)
	case "prefix":
		change.Prefix = least()
	case "band":
		change.Band = least()
	case "as_of_plus":
		p, err := ParsePeriod(v.text)
		if err != nil {
			b.bad(leaf{v, field}, err)
		}
		change.AsOfPlus = &p
	}
}

func (b *builder) message(raw *rawNotify) *Message {
	m := &Message{From: b.sender(raw.From), Subject: raw.Subject.String()}
	if w := raw.Webhook; w != nil {
		for _, own := range []leaf{raw.From.leaf, raw.Subject.leaf, raw.Template.leaf, raw.Text.leaf} {
			if own.set() {
				b.fail(own.n, own.field, "it is for an e-mail", "remove it; a webhook gets the row's key and instants")
			}
		}
		if raw.Email != nil {
			b.fail(w.at, w.field, "email and webhook are both given", "keep one; a stage of its own is for the other")
		}
		m.Webhook = &Endpoint{URL: b.later(w.place, w.URL, checkAddress), Secret: b.laterSecret(w.Secret)}
		return m
	}
	switch e := raw.Email; {
	case e == nil:
		if !b.failed(raw.field) {
			b.missing(raw.place, "email", "name the column with the address, or write webhook: {url: …}")
		}
	case e.Column.set() == e.Query.set():
		if !b.failed(e.field) {
			b.fail(e.at, e.field, "it says not, or twice, who gets the e-mail", "write email: COLUMN, or email: {query: SQL}")
		}
	default:
		m.Email, m.Query = b.identifier(e.Column), b.sql(e.Query)
	}
	if !raw.Subject.set() && !b.failed(raw.field) {
		b.missing(raw.place, "subject", `write for example subject: "Your trial ends soon"`)
	}
	b.template(raw.Subject.leaf, m.Subject)
	switch {
	case raw.Text.set() && raw.Template.set():
		b.fail(raw.Text.n, raw.Text.field, "template and text are both given", "keep one of them")
	case raw.Text.set():
		m.Text = raw.Text.String()
		b.template(raw.Text.leaf, m.Text)
	case raw.Template.set():
		body, err := b.lookupFile(raw.Template.String())
		if err != nil {
			problem, _ := split(err)
			b.bad(raw.Template.leaf, &fault{problem, "a template is a text file; a relative path starts from the policy file's folder"})
			break
		}
		m.Text = body
		b.template(raw.Template.leaf, m.Text)
	case !b.failed(raw.field):
		b.missing(raw.place, "template", "name the file with the text of the e-mail, or write text: …")
	}
	return m
}

// template judges a text in which {{.column}} stands for values.
func (b *builder) template(l leaf, text string) {
	if _, err := template.New("").Option("missingkey=error").Parse(text); err != nil && l.set() {
		_, problem, _ := strings.Cut(err.Error(), "template: ")
		b.bad(l, &fault{"the template cannot be read: " + strings.TrimPrefix(problem, ":"), "write {{.column}} where a value of the row belongs"})
	}
}

func (b *builder) sender(t text) string {
	if t.set() {
		if _, err := mail.ParseAddress(t.String()); err != nil {
			b.bad(t.leaf, &fault{"this is no e-mail address", "write for example Portal <portal@example.org>"})
		}
	}
	return t.String()
}

// later judges a setting that is expanded when it is used, so that no revision
// holds a secret: it is expanded now too, to find out whether that can be done.
func (b *builder) later(p place, s secret, check func(string) error) string {
	if !s.set() {
		if !b.failed(p.field) {
			b.missing(p, "url", "write for example url: \"https://portal.internal/teardown\"")
		}
		return ""
	}
	if now, ok := b.expand(s); ok {
		if err := check(now); err != nil {
			problem, hint := split(err)
			b.fail(s.n, s.field, problem, hint)
		}
	}
	return s.String()
}

func (b *builder) laterSecret(s secret) string {
	b.webhookSecret(s)
	return s.String()
}

func (b *builder) request(raw *rawCall) *Request {
	r := &Request{URL: b.later(raw.place, raw.URL, checkAddress), Method: "POST", Per: PerRow, Timeout: b.duration(raw.Timeout, DefaultTimeout, time.Second, 10*time.Minute)}
	if raw.Method.set() {
		r.Method = choice(b, raw.Method, requestMethods...)
	}
	if raw.Per.set() {
		r.Per = choice(b, raw.Per, PerRow, PerBatch)
	}
	if raw.Token.set() {
		b.expand(raw.Token)
		r.Token = raw.Token.String()
	}
	return r
}

// Mail is the server that e-mails go through.
type Mail struct {
	Server string // expanded; a secret: smtp:// or smtps://, with user and password where it asks for them
	From   string
}

func (b *builder) mail(raw *rawMail) *Mail {
	if raw == nil {
		return nil
	}
	if !raw.From.set() && !b.failed(raw.field) {
		b.missing(raw.place, "from", "write for example from: Portal <portal@example.org>")
	}
	m := &Mail{From: b.sender(raw.From)}
	switch {
	case raw.Server.set():
		server, ok := b.expand(raw.Server)
		if ok {
			if err := checkMailServer(server); err != nil {
				problem, hint := split(err)
				b.fail(raw.Server.n, raw.Server.field, problem, hint)
			}
		}
		m.Server = server
	case !b.failed(raw.field):
		b.missing(raw.place, "server", `write for example server: "smtp://localhost:25"`)
	}
	return m
}

// keepLast and privacy judge the guards that are not SQL.
func (b *builder) keepLast(raw *rawKeepLast) *KeepLast {
	if raw == nil {
		return nil
	}
	for name, set := range map[string]bool{"n": raw.N.set(), "per": raw.Per.set()} {
		if !set && !b.failed(raw.field) {
			b.missing(raw.place, name, "write for example keep_last: {n: 3, per: patron_id}")
		}
	}
	return &KeepLast{N: b.bounded(raw.N, 1, 1, 100000), Per: b.identifier(raw.Per)}
}

func (b *builder) privacy(raw *rawPrivacy) *Privacy {
	if raw == nil {
		return nil
	}
	p := &Privacy{Column: b.identifier(raw.Column), Expr: b.sql(raw.Expr), Never: raw.Never.items, Default: raw.Default.items, Forever: raw.Forever.items}
	switch {
	case raw.Column.set() && raw.Expr.set():
		b.fail(raw.Expr.n, raw.Expr.field, "column and expr are both given", "keep one of them")
	case !raw.Column.set() && !raw.Expr.set() && !b.failed(raw.field):
		b.missing(raw.place, "column", "name the column with the choice, or give an expr")
	case len(p.Never)+len(p.Forever)+len(p.Default) == 0 && !b.failed(raw.field):
		b.fail(raw.at, raw.field, "it lists no choices", "write for example privacy: {column: privacy, forever: [0], never: [2]}")
	}
	seen := map[Value]string{}
	for _, list := range []struct {
		name string
		values
	}{{PrivacyNever, raw.Never}, {PrivacyDefault, raw.Default}, {PrivacyForever, raw.Forever}} {
		for _, v := range list.items {
			if other, ok := seen[v]; ok {
				b.fail(list.n, list.field, fmt.Sprintf("%s is under %s too", strconv.Quote(v.Text), other), "a value means one thing; remove one")
			}
			seen[v] = list.name
		}
	}
	return p
}

// withoutMail refuses e-mails where no server would take them.
func (b *builder) withoutMail(raw *rawFile) {
	for _, name := range slices.Sorted(maps.Keys(raw.Policies)) {
		p := raw.Policies[name]
		actions := []*rawAction{p.Action}
		for _, s := range p.Stages {
			actions = append(actions, s.Action)
		}
		for _, a := range actions {
			if a != nil && a.Notify != nil && a.Notify.Email != nil {
				b.fail(a.Notify.Email.at, a.Notify.Email.field, "the file has no mail section", `add for example mail: {server: "smtp://localhost:25", from: "Portal <portal@example.org>"}`)
			}
		}
	}
}

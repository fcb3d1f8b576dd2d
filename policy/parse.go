package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// Options are what [Parse] needs besides the text.
type Options struct {
	Path     string                       // named in errors; relative ${file:…} are beside it
	Getenv   func(string) string          // for ${VAR} and CURFEW_KEY; nil: no variable is set
	ReadFile func(string) ([]byte, error) // for ${file:PATH}; nil: no file can be read
}

// Load reads a policy file, with the process's environment and file system.
func Load(path string) (*File, error) {
	data, err := readBounded(path)
	if err != nil {
		return nil, Errors{{Path: path, Problem: "cannot read the file: " + cause(err), Hint: "name another with --config, or make one with curfew init"}}
	}
	return Parse(data, Options{Path: path, Getenv: os.Getenv, ReadFile: readBounded})
}

// readBounded reads a file, and of one that is far too large no more than shows
// that it is.
func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, errors.New("it is a directory")
	case info.Mode().IsRegular() && info.Size() > 2*maxFile:
		return make([]byte, 2*maxFile), nil
	}
	return os.ReadFile(path)
}

// cause is what an error of the file system says, without the path.
func cause(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// Parse reads the text of a policy file. The error, when there is one, is
// [Errors] with everything that is wrong; the File is then nil.
func Parse(data []byte, o Options) (*File, error) {
	r := &reader{path: o.Path, blank: make(map[int]bool)}
	root := r.read(data)
	if root == nil {
		return nil, r.errs.finish()
	}
	r.hideSecrets(root)
	r.strayVariables(root)
	b := &builder{reader: r, options: o}
	raw := new(rawFile)
	r.decode(root, &node{line: 1, col: 1}, "", reflect.ValueOf(raw).Elem())
	f := b.file(raw)
	if len(r.errs) > 0 {
		return nil, r.errs.finish()
	}
	return f, nil
}

// isSecret reports whether the setting at this path is expanded and hidden. The
// path is in its parts, as the name of a task may have dots in it.
func isSecret(path []string) bool {
	field := strings.Join(path, ".")
	if oneOf(field, "ledger", "key", "alerts.webhook.url", "alerts.webhook.secret", "alerts.ping.url", "mail.server") {
		return true
	}
	if len(path) < 3 {
		return false
	}
	setting := strings.Join(path[2:], ".")
	switch path[0] {
	case "databases":
		return oneOf(setting, "url", "workers.url", "workers.token")
	case "policies":
		return actionSecret.MatchString(field)
	case "tasks":
		return oneOf(setting, "http.url", "http.token") || isVariable(path)
	}
	return false
}

// isVariable reports whether the path is that of a variable of a task's command,
// or of a header field of its request.
func isVariable(path []string) bool {
	return path[0] == "tasks" && (len(path) == 4 && path[2] == "env" || len(path) == 5 && path[2] == "http" && path[3] == "headers")
}

// actionSecret matches the settings of actions that are expanded when they are
// used.
var actionSecret = regexp.MustCompile(`\.action\.(notify\.webhook\.(url|secret)|call\.(url|token))$`)

// hideSecrets keeps out of messages what masking cannot see in a line: the
// further lines of a secret that spans several, and what has a name of the
// operator's choice.
func (r *reader) hideSecrets(root *node) {
	walk(root, nil, func(n *node, path []string) {
		if n.kind == scalarNode && len(path) >= 3 && path[0] == "tasks" && strings.HasPrefix(path[2], "env") && !isVariable(path) {
			r.blank[n.line] = true // a list of A=b, or environment: {A: b}, is refused, and a secret none the less
		}
		if n.kind != scalarNode || !isSecret(path) {
			return
		}
		variable := isVariable(path) && !onlyVar.MatchString(n.text)
		if !variable && (!strings.Contains(n.text, "\n") && n.line < len(r.lines) && strings.Contains(r.lines[n.line-1], n.text)) {
			return
		}
		if variable {
			r.blank[n.line] = true
		}
		indent := func(s string) int { return len(s) - len(strings.TrimLeft(s, " ")) }
		for i := n.line; i < len(r.lines); i++ {
			if strings.TrimSpace(r.lines[i]) != "" && indent(r.lines[i]) <= indent(r.lines[n.line-1]) && n.line-1 != i {
				break
			}
			r.blank[i+1] = true
		}
	})
}

// walk visits every value with its path.
func walk(n *node, path []string, visit func(n *node, path []string)) {
	visit(n, path)
	for _, p := range n.pairs {
		walk(p.value, append(path[:len(path):len(path)], p.key.text), visit)
	}
	for i, item := range n.items {
		at := slices.Clone(path)
		at[len(at)-1] = indexed(at[len(at)-1], i) // the file itself is no list
		walk(item, at, visit)
	}
}

// strayVariables refuses ${ where it is not expanded: taken literally it would
// be a scope or a name that matches nothing.
func (r *reader) strayVariables(root *node) {
	walk(root, nil, func(n *node, path []string) {
		field := strings.Join(path, ".")
		if strings.Contains(n.text, "${") && !isSecret(path) {
			r.fail(n, field, "${…} is expanded in ledger, key, the url and the workers of a database, the addresses of actions, mail and alerts, and the env and http of tasks only", "write the value itself")
		}
		for _, p := range n.pairs {
			if strings.Contains(p.key.text, "${") {
				r.fail(p.key, field, "${…} is not expanded in a key", "write the name itself")
			}
		}
	})
}

// builder judges the raw file section by section and makes the public types.
type builder struct {
	*reader
	options Options
}

// missing reports a required setting that is not there.
func (b *builder) missing(p place, name, hint string) {
	b.fail(p.at, join(p.field, name), "it is missing", hint)
}

// bad reports a value, which is no secret.
func (b *builder) bad(l leaf, err error) {
	problem, hint := split(err)
	b.fail(l.n, l.field, quoted(l.n.text)+": "+problem, hint)
}

func (b *builder) file(raw *rawFile) *File {
	f := &File{Version: 1, Path: b.path, options: b.options, Databases: make(map[string]*Database), Engine: b.engine(raw.Engine)}
	switch {
	case !raw.Version.set() && !b.failed("version"):
		b.missing(raw.place, "version", "begin the file with version: 1")
	case raw.Version.set() && raw.Version.value != 1:
		b.fail(raw.Version.n, "version", quoted(raw.Version.n.text)+": this version of curfew reads version 1", "write version: 1, or update curfew")
	}
	f.Ledger = b.ledger(raw.Ledger)
	f.Key = b.key(raw.Key)
	for _, name := range slices.Sorted(maps.Keys(raw.Databases)) {
		f.Databases[name] = b.database(name, raw.Databases[name])
	}
	for _, name := range slices.Sorted(maps.Keys(raw.Policies)) {
		f.Policies = append(f.Policies, b.policy(name, raw.Policies[name], raw))
	}
	f.Tasks = b.tasks(raw)
	f.Retention = b.retention(raw.Retention)
	f.Alerts = b.alerts(raw.Alerts)
	f.Mail = b.mail(raw.Mail)
	b.across(raw)
	return f
}

// failed reports whether a setting is known to be unusable already, so that it
// is not called missing on top.
func (b *builder) failed(field string) bool {
	return slices.ContainsFunc(b.errs, func(e *Error) bool {
		return e.Field == field || strings.HasPrefix(e.Field, field+".") || strings.HasPrefix(e.Field, field+"[")
	})
}

// across judges what one policy cannot know by itself.
func (b *builder) across(raw *rawFile) {
	taken := make(map[string]scheduledName)
	take := func(p place, n scheduledName) {
		env := EnvPrefix + n.env()
		if other, ok := taken[env]; ok && other != n {
			b.fail(p.at, p.field, sharedVariable(other, n, env), "rename one of them")
		}
		taken[env] = n
	}
	for _, name := range slices.Sorted(maps.Keys(raw.Policies)) {
		p := raw.Policies[name]
		take(p.place, scheduledName{policy: name})
		for _, s := range p.Stages {
			if s.Name.set() {
				take(s.place, scheduledName{policy: name, stage: s.Name.String()})
			}
		}
		if p.After.set() && raw.Policies[p.After.String()] == nil && !b.failed("policies."+p.After.String()) {
			b.bad(p.After.leaf, &fault{"there is no such policy", "name a policy of this file: " + strings.Join(slices.Sorted(maps.Keys(raw.Policies)), ", ")})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(raw.Tasks)) {
		take(raw.Tasks[name].place, scheduledName{task: name})
	}
	b.cycles(raw)
	if raw.Mail == nil && !b.failed("mail") {
		b.withoutMail(raw)
	}
}

// cycles refuses policies that wait for each other.
func (b *builder) cycles(raw *rawFile) {
	for _, name := range slices.Sorted(maps.Keys(raw.Policies)) {
		way := []string{name}
		for at := raw.Policies[name]; at != nil && at.After.set() && len(way) <= len(raw.Policies); at = raw.Policies[at.After.String()] {
			way = append(way, at.After.String())
			if at.After.String() != name {
				continue
			}
			if name == slices.Min(way) { // report a ring once
				b.bad(raw.Policies[name].After.leaf, &fault{"the policies wait for each other: " + strings.Join(way, " → "), "remove one after"})
			}
			break
		}
	}
}

func (b *builder) ledger(s secret) string {
	if !s.set() {
		return DefaultLedger
	}
	return b.url(s, "sqlite", "postgres", "postgresql")
}

func (b *builder) key(s secret) string {
	if !s.set() {
		if b.options.Getenv == nil {
			return ""
		}
		return b.options.Getenv("CURFEW_KEY")
	}
	key, ok := b.expand(s)
	if ok && strings.TrimSpace(key) == "" {
		b.fail(s.n, s.field, "the key is blank", "put a random text into it, for example from: openssl rand -hex 32")
	}
	return key
}

func (b *builder) database(name string, raw *rawDatabase) *Database {
	d := &Database{Name: name, MaxWorkers: b.bounded(raw.MaxWorkers, DefaultMaxWorkers, 1, 64)}
	if raw.Workers != nil {
		d.Workers = b.workers(raw)
	} else if raw.URL.set() {
		d.URL = b.url(raw.URL, "postgres", "postgresql", "mysql", "mariadb", "sqlite")
	} else if !b.failed(raw.field) {
		b.missing(raw.place, "url", `write for example url: "${LIBRARY_URL}"`)
	}
	return d
}

func (b *builder) engine(raw *rawEngine) Engine {
	e := DefaultEngine()
	if raw == nil {
		return e
	}
	e.Workers = b.bounded(raw.Workers, e.Workers, 1, 256)
	if raw.Reserved.set() || e.Workers > e.Reserved {
		e.Reserved = b.bounded(raw.Reserved, e.Reserved, 0, 255)
	} else {
		e.Reserved = 0 // the default reserve would leave cleanup no worker
	}
	e.Queues = b.queues(raw.Queues)
	if e.Reserved >= e.Workers {
		b.fail(raw.Reserved.n, raw.Reserved.field, fmt.Sprintf("of %d workers, %d reserved leave none for cleanup", e.Workers, e.Reserved), "reserve fewer")
	}
	return e
}

// bounded is the value of an integer, or the default when it is left out.
func (b *builder) bounded(i integer, otherwise, least, most int) int {
	if !i.set() {
		return otherwise
	}
	if i.value < least || i.value > most {
		b.bad(i.leaf, &fault{fmt.Sprintf("it must be from %d to %d", least, most), fmt.Sprintf("the default is %d", otherwise)})
		return otherwise
	}
	return i.value
}

var (
	variable = regexp.MustCompile(`\$\{([^}]*)\}`)
	varName  = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// expand replaces ${VAR} and ${file:PATH}. No error of it, and none after it,
// repeats an expanded value.
func (b *builder) expand(s secret) (string, bool) {
	ok := true
	out := variable.ReplaceAllStringFunc(s.String(), func(m string) string {
		name := m[2 : len(m)-1]
		value, err := b.lookup(name)
		if err != nil {
			problem, hint := split(err)
			b.fail(s.n, s.field, problem, hint)
			ok = false
		}
		return value
	})
	if strings.Contains(variable.ReplaceAllString(s.String(), ""), "${") {
		b.fail(s.n, s.field, "a ${ is never closed", "write ${VAR} or ${file:PATH}")
		ok = false
	}
	return out, ok
}

// Expand replaces ${VAR} and ${file:PATH} in a text of an action, as they are
// now. The error never repeats a value.
func (f *File) Expand(text string) (string, error) {
	b := &builder{reader: &reader{path: f.Path}, options: f.options}
	out, ok := b.expand(secret{textOf(text)})
	if !ok {
		return "", b.errs[0]
	}
	return out, nil
}

func textOf(s string) text {
	return text{leaf{&node{kind: scalarNode, text: s, scalar: stringScalar}, ""}}
}

func (b *builder) lookup(name string) (string, error) {
	if path, isFile := strings.CutPrefix(name, "file:"); isFile {
		return b.lookupFile(path)
	}
	if !varName.MatchString(name) {
		return "", &fault{fmt.Sprintf("${%s} is not a variable", name), "write ${VAR} or ${file:PATH}"}
	}
	if b.options.Getenv != nil {
		if v := b.options.Getenv(name); v != "" {
			return v, nil
		}
	}
	return "", &fault{fmt.Sprintf("the environment variable %s is not set", name), "set it, or write ${file:PATH}"}
}

func (b *builder) lookupFile(path string) (string, error) {
	if path == "" || b.options.ReadFile == nil {
		return "", &fault{fmt.Sprintf("the file of ${file:%s} cannot be read here", path), "write ${VAR}"}
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(b.options.Path), path)
	}
	data, err := b.options.ReadFile(path)
	switch {
	case err != nil:
		return "", &fault{fmt.Sprintf("cannot read %s: %s", path, cause(err)), "check the path and who may read it"}
	case strings.TrimSpace(string(data)) == "":
		return "", &fault{fmt.Sprintf("the file %s is empty", path), "put the secret into it"}
	}
	return strings.TrimRight(string(data), "\r\n"), nil
}

// url expands and judges the address of a database. Its messages never show
// the address.
func (b *builder) url(s secret, schemes ...string) string {
	u, ok := b.expand(s)
	if !ok {
		return ""
	}
	if err := checkURL(u, schemes); err != nil {
		problem, hint := split(err)
		b.fail(s.n, s.field, problem, hint)
	}
	return u
}

func checkURL(u string, schemes []string) error {
	forms := map[string]string{"sqlite": "sqlite:PATH", "postgres": "postgres://…", "mysql": "mysql://…"}
	var offered []string
	for _, s := range schemes {
		if f := forms[s]; f != "" {
			offered = append(offered, f)
		}
	}
	scheme, rest, ok := strings.Cut(u, ":")
	if !ok || !slices.Contains(schemes, scheme) {
		return &fault{"the address has no kind of database that can be used here", "begin it with " + strings.Join(offered, " or ")}
	}
	if strings.ContainsFunc(u, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return &fault{"the address contains a control character", "check the variable or file it comes from"}
	}
	if scheme == "sqlite" {
		return checkSQLitePath(rest)
	}
	parsed, err := url.Parse(u) // its error repeats the address, password included
	switch {
	case err != nil:
		return &fault{"the address cannot be read", "write user:password@host:port/database, with special characters percent-encoded"}
	case !strings.HasPrefix(rest, "//"):
		return &fault{"the address lacks the // after its scheme", "write " + scheme + "://user@host/database"}
	case strings.Trim(parsed.Path, "/") == "" && scheme != "postgres" && scheme != "postgresql":
		return &fault{"the address names no database", "write " + scheme + "://user@host/database"}
	case parsed.Fragment != "" || strings.HasSuffix(u, "#"):
		return &fault{"the address contains a #", "percent-encode it as %23"}
	}
	return nil
}

func checkSQLitePath(path string) error {
	switch {
	case strings.TrimSpace(path) == "":
		return &fault{"the address names no file", "write for example sqlite:curfew.db"}
	case strings.HasPrefix(path, "//"):
		return &fault{"a SQLite address has no host", "write sqlite:relative/path.db or sqlite:/absolute/path.db"}
	case strings.HasPrefix(path, ":memory:"), strings.HasPrefix(path, "file:"), strings.ContainsAny(path, "?#"):
		return &fault{"a SQLite address is a path alone", "write for example sqlite:curfew.db"}
	}
	return nil
}

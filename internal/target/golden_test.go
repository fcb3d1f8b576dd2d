package target

import (
	"database/sql"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/internal/keyring"
	"curfew.dev/curfew/policy"
)

var update = flag.Bool("update", false, "write the files in testdata/golden anew")

// A goldenLab makes every statement of one dialect without a database.
type goldenLab struct {
	*testing.T
	s     Server
	rec   *recorder
	keys  *keyring.Keyring
	sb    strings.Builder
	every []string // all statements
}

func goldenServers() map[string]Server {
	return map[string]Server{
		"postgres": {Engine: Postgres, Major: 15},
		"mariadb":  {Engine: MySQL, MariaDB: true, Major: 10, Minor: 11},
		"mysql":    {Engine: MySQL, Major: 8},
		"sqlite":   {Engine: SQLite, Major: 3, Minor: 40},
	}
}

// types are the types of a golden table's columns in the engine.
func (g *goldenLab) column(name string, kind Kind) Column {
	c := Column{Name: name, Kind: kind, NotNull: true}
	switch g.s.Engine {
	case Postgres:
		c.Type = map[Kind]string{KindInt: "bigint", KindText: "text", KindInstant: "timestamp with time zone"}[kind]
	case MySQL:
		c.Type = map[Kind]string{KindInt: "bigint", KindText: "varchar", KindInstant: "timestamp"}[kind]
		if kind == KindText {
			c.Collation = "utf8mb4_unicode_ci"
		}
	default:
		c.Kind = map[Kind]Kind{KindInt: KindInt, KindText: KindAny, KindInstant: KindInt}[kind]
	}
	return c
}

func (g *goldenLab) table(key []Column, children ...ForeignKey) *Table {
	t := &Table{Engine: g.s.Engine, Name: "event", Label: "event", Children: children, Blocks: 100}
	if g.s.Engine == Postgres {
		t.Schema = "public"
	}
	t.Columns = append(slices.Clone(key), g.column("at", KindInstant), g.column("owner", KindInt), g.column("kind", KindText), g.column("pinned", KindInt))
	var names []string
	for _, k := range key {
		names = append(names, k.Name)
	}
	t.Indexes = []Index{{Name: "PRIMARY", Columns: names, Unique: true, Primary: true, Ordered: true, Valid: true}, {Name: "event_at", Columns: []string{"at"}, Ordered: true, Valid: true}}
	return t
}

func (g *goldenLab) job(key []Column, edit func(*policy.Policy), children ...ForeignKey) *Job {
	g.Helper()
	p := &policy.Policy{Name: "events", Database: "lab", Table: "event", Trigger: policy.Trigger{Until: true, Column: "at", Null: policy.NullDue},
		Where: "kind <> 'keep'", Unless: "pinned = 1", Subject: "owner", Action: policy.Action{Kind: policy.Delete}, Mode: policy.Enforce, Timezone: "UTC"}
	if g.s.Engine == SQLite {
		p.Trigger.Unit = policy.Seconds
	}
	if edit != nil {
		edit(p)
	}
	db := &DB{Name: "lab", Engine: g.s.Engine, SQL: sql.OpenDB(g.rec), server: g.s}
	g.Cleanup(func() { db.Close() })
	t := g.table(key, children...)
	t.Columns[len(key)].NotNull = p.Trigger.Null != policy.NullDue
	at := time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)
	j, err := NewJob(db, JobOptions{Policy: p, Table: t, AsOf: at, Cutoff: at, Run: "run", Keys: g.keys})
	if err != nil {
		g.Fatal(err)
	}
	j.careful = !j.d.returning() // each way is asked for by name
	return j
}

// show runs f and writes down the statements it made.
func (g *goldenLab) show(what string, f func() error) {
	g.Helper()
	g.rec.statements = nil
	if err := f(); err != nil {
		g.Errorf("%s: %v", what, err)
	}
	g.every = append(g.every, g.rec.statements...)
	fmt.Fprintf(&g.sb, "-- # %s\n\n%s\n", what, strings.Join(g.rec.statements, "\n"))
}

func (g *goldenLab) everything() {
	one := []Column{g.column("id", KindInt)}
	two := []Column{g.column("tenant", KindText), g.column("no", KindInt)}
	for _, key := range [][]Column{one, two} {
		name := fmt.Sprintf("a key of %d: ", len(key))
		j := g.job(key, nil)
		strategies := []Strategy{ByTrigger, ByKey}
		if g.s.Engine == Postgres {
			strategies = append(strategies, ByPlace)
		}
		for _, s := range strategies {
			if err := j.SetStrategy(s); err != nil {
				g.Fatal(err)
			}
			j.blocks.Store(64)
			g.batches(j, name+"by "+string(s), cursor{phase: phaseMain})
		}
		j.strategy = ByKey
		g.batches(j, name+"NULL triggers", cursor{phase: phaseNulls})
		g.careful(g.job(key, nil), name)
	}
	g.children(one)
	j := g.job(one, nil)
	g.show("count", func() error { _, err := j.Count(g.Context()); return err })
	p := g.job(one, func(p *policy.Policy) {
		d := policy.Date{}
		p.Trigger.ImplausibleBefore = &d
		p.Trigger.Null = policy.NullNever
	})
	g.show("implausible_before", func() error { _, err := p.Page(g.Context(), cursor{phase: phaseMain}.encode(), 100); return err })
	g.stage(one)
	g.show("the answer of an earlier execution", func() error {
		g.rec.settled = true
		defer func() { g.rec.settled = false }()
		x := &execution{j: j, c: j.db.SQL}
		_, err := x.earlier(g.Context(), Work{Key: goldenKey, Seq: 9})
		return err
	})
}

func (g *goldenLab) work(b *Batch) Work {
	return Work{Key: goldenKey, Seq: 9, Phase: b.Phase, Rows: b.Rows, Bounds: b.Bounds, Keys: b.Keys}
}

// batches shows the first page, the next one, and a batch of it in which the row is not found.
func (g *goldenLab) batches(j *Job, name string, c cursor) {
	g.Helper()
	var first, next Page
	g.show(name+": first page", func() (err error) { first, err = j.Page(g.Context(), c.encode(), 100); return err })
	if first.Batch == nil {
		g.Fatalf("%s: no batch", name)
	}
	if len(c.at) == 0 {
		k := tuple{}
		for _, col := range j.orderedCols(c.phase) {
			k = append(k, value{textValue, goldenRow[col.Name]})
			if col.Kind == KindInt {
				k[len(k)-1].kind = intValue
			}
		}
		if c.phase == phaseMain && j.strategy == ByPlace {
			k = place(address{3, 9})
		}
		c.at = k
	}
	if c.phase != phaseMain || j.strategy != ByPlace {
		g.show(name+": next page", func() (err error) { next, err = j.Page(g.Context(), c.encode(), 100); return err })
		if next.Batch == nil {
			g.Fatalf("%s: no second batch", name)
		}
		first = next
	}
	g.show(name+": a batch whose row is not found", func() error { _, err := j.Execute(g.Context(), asOf, g.work(first.Batch)); return err })
}

func (g *goldenLab) careful(j *Job, name string) {
	g.Helper()
	j.careful = true
	p, err := j.Page(g.Context(), cursor{phase: phaseMain}.encode(), 100)
	if err != nil {
		g.Fatal(err)
	}
	g.rec.deletes = true
	defer func() { g.rec.deletes = false }()
	g.show(name+"a batch done carefully", func() error { _, err := j.Execute(g.Context(), asOf, g.work(p.Batch)); return err })
	again, err := splitKeys(p.Batch.Keys, 10)
	if err != nil {
		g.Fatal(err)
	}
	g.show(name+"a batch of rows found locked", func() error { _, err := j.Execute(g.Context(), asOf, g.work(&again[0])); return err })
	j.shadow = true
	g.show(name+"a batch of a shadow run", func() error { _, err := j.Execute(g.Context(), asOf, g.work(p.Batch)); return err })
}

// stage shows a batch of the last stage of a policy, and what is asked and written about passages.
func (g *goldenLab) stage(key []Column) {
	g.Helper()
	j := g.job(key, func(p *policy.Policy) {
		p.Stages = []policy.Stage{{Name: "end", At: offset("14d"), Where: "owner > 0", Action: p.Action}}
		whole := *p
		*p = *g.narrowed(&whole, "end")
	})
	p, err := j.Page(g.Context(), cursor{phase: phaseMain}.encode(), 100)
	if err != nil || p.Batch == nil {
		g.Fatalf("a page of a stage: %+v, %v", p, err)
	}
	g.rec.deletes = true
	g.show("a batch of a stage", func() error { _, err := j.Execute(g.Context(), asOf, g.work(p.Batch)); return err })
	g.rec.deletes = false
	ps := []Passage{{Stage: "end", Row: [16]byte{1}, Due: 7, State: PassageClaimed, AsOf: asOf, Run: "run", BatchKey: goldenKey, Attempt: 1}}
	g.show("what a row passed, recorded, changed and swept", func() error {
		if _, err := j.record(g.Context(), j.db.SQL, append(ps, ps...)); err != nil {
			return err
		}
		if _, err := j.move(g.Context(), j.db.SQL, ps[0], PassageSending, 2); err != nil {
			return err
		}
		_, err := j.SweepPassages(g.Context(), asOf, func() {})
		return err
	})
}

func (g *goldenLab) narrowed(p *policy.Policy, stage string) *policy.Policy {
	q, ok := p.Narrow(stage)
	if !ok {
		g.Fatalf("no stage %s", stage)
	}
	return q
}

// children shows what is asked of tables that reference ours.
func (g *goldenLab) children(key []Column) {
	fk := func(child string, rule Rule) ForeignKey {
		return ForeignKey{Name: child + "_fk", Child: child, ChildColumns: []string{"event_id"}, Parent: "event", ParentColumns: []string{"id"}, OnDelete: rule, Deferred: rule == NoAction, ChildSelect: true}
	}
	j := g.job(key, nil, fk("note", Cascade), fk("claim", NoAction),
		ForeignKey{Name: "word_fk", Child: "word", ChildColumns: []string{"note_a", "note_b"}, Parent: "note", ParentColumns: []string{"a", "b"}, OnDelete: Cascade, ChildSelect: true},
		ForeignKey{Name: "event_up", Child: "event", ChildColumns: []string{"up"}, Parent: "event", ParentColumns: []string{"id"}, OnDelete: Cascade, ChildSelect: true})
	keys := []tuple{{{intValue, "42"}}, {{intValue, "43"}}}
	x := &execution{j: j, c: j.db.SQL}
	g.show("rows that go along", func() error { _, err := x.countCascade(g.Context(), keys); return err })
	g.show("rows that a foreign key keeps", func() error { _, err := x.keptBy(g.Context(), keys, newTally()); return err })
	if g.s.Engine == SQLite {
		g.show("deferred foreign keys", func() error { return x.orphans(g.Context(), keys) })
	}
}

// triggers writes what "due" and "unreadable" are for each kind of trigger, at a cutoff inside the repeated hour.
func (g *goldenLab) triggers() {
	d := dialectFor(g.s)
	cutoff := time.Date(2025, 10, 26, 0, 40, 0, 0, time.UTC)
	for _, decl := range declarations() {
		if !slices.Contains(decl.engines, g.s.Engine) {
			continue
		}
		tr := decl.tr
		tr.Column, tr.Until = "at", true
		kind := map[bool]Kind{true: KindText, false: KindInt}[tr.Format != ""]
		switch {
		case strings.HasPrefix(decl.typ, "decimal"):
			kind = KindDecimal
		case decl.typ == "real":
			kind = KindFloat
		case decl.typ == "date":
			kind = KindDate
		case decl.name == "timestamptz" || decl.name == "timestamp":
			kind = KindInstant
		case strings.HasPrefix(decl.name, "wall"):
			kind = KindTime
		case decl.typ == "":
			kind = KindBytes
		}
		t := &Table{Engine: g.s.Engine, Name: "event", Label: "event", Columns: []Column{{Name: "at", Kind: kind, Type: decl.typ}}}
		bt, err := resolveTrigger(&policy.Policy{Table: "event", Trigger: tr}, t, g.s)
		if err != nil {
			g.Fatalf("%s: %v", decl.name, err)
		}
		for _, f := range []struct {
			what  string
			write func(*query)
		}{
			{"due", func(q *query) { d.due(q, bt.sql(d), bt, newBound(cutoff, bt.zone)) }},
			{"unreadable", func(q *query) { d.unreadable(q, bt.sql(d), bt) }},
		} {
			q := newQuery(d)
			f.write(q)
			fmt.Fprintf(&g.sb, "-- # %s: %s\n%s;\n", decl.name, f.what, q)
			for i, a := range q.args {
				fmt.Fprintf(&g.sb, "-- %d: %T %v\n", i+1, a, a)
			}
			g.sb.WriteString("\n")
		}
	}
}

func newGoldenLab(t *testing.T, s Server) *goldenLab {
	keys, err := keyring.New([]byte("7f2c9b4e1a6d8035f0c2e4b6a8d0917365c4e2f0b1a39d8c7e6f5a4b3c2d1e0f"))
	if err != nil {
		t.Fatal(err)
	}
	return &goldenLab{T: t, s: s, rec: &recorder{}, keys: keys}
}

// The text of every statement of every dialect. What changes in a file here is what a reviewer must look at: go test -update.
func TestGoldenSQL(t *testing.T) {
	for name, s := range goldenServers() {
		for what, write := range map[string]func(*goldenLab){"": (*goldenLab).everything, "_triggers": (*goldenLab).triggers} {
			t.Run(name+what, func(t *testing.T) {
				g := newGoldenLab(t, s)
				write(g)
				path := filepath.Join("testdata", "golden", name+what+".sql")
				if *update {
					if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
						t.Fatal(err)
					}
					if err := os.WriteFile(path, []byte(g.sb.String()), 0o666); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(string(want), g.sb.String()); diff != "" {
					t.Errorf("%s (-want +got), go test -update accepts it:\n%s", path, diff)
				}
			})
		}
	}
}

// No statement destroys by name alone, or by age alone: each says which rows, that they are due, in scope, not guarded and
// not held.
func TestDestructiveStatements(t *testing.T) {
	for name, s := range goldenServers() {
		t.Run(name, func(t *testing.T) {
			g := newGoldenLab(t, s)
			g.everything()
			d := dialectFor(s)
			destructive := 0
			for _, stmt := range g.every {
				text, _, _ := strings.Cut(stmt, ";\n-- ")
				own := strings.Contains(text, "INSERT INTO "+d.own("receipt")) || strings.Contains(text, "UPDATE "+d.own("receipt")+" SET") || strings.Contains(text, " "+d.own("passage")+" ")
				verb := regexp.MustCompile(`\b(INSERT|UPDATE|DELETE|TRUNCATE|DROP|ALTER|REPLACE|MERGE)\b`).FindString(strings.ReplaceAll(text, "FOR UPDATE", ""))
				if verb == "" || own {
					continue
				}
				rows := d.rows(g.table(nil))
				if verb != "DELETE" || !strings.Contains(text, "DELETE FROM "+rows+" WHERE ") && !strings.Contains(text, "DELETE "+rows+" FROM "+rows+" FORCE INDEX (`PRIMARY`) WHERE ") {
					t.Errorf("a statement that changes something else:\n%s", text)
					continue
				}
				destructive++
				at := d.ident("at")
				for what, sign := range map[string]string{
					"the trigger":              at,
					"the scope":                "(\nkind <> 'keep'\n)",
					"the guard":                "(\npinned = 1\n) IS NOT TRUE",
					"the hold":                 "(" + d.ident("owner") + " = ",
					"the hold, not being NULL": ") IS NOT TRUE",
				} {
					if !strings.Contains(text, sign) {
						t.Errorf("without %s:\n%s", what, text)
					}
				}
				if !strings.Contains(text, at+" < ") && !strings.Contains(text, at+" IS NULL") {
					t.Errorf("without what makes a row due:\n%s", text)
				}
				if !regexp.MustCompile("(\"(id|tenant|no|at)\"|`(id|tenant|no|at)`|ctid)\\)? (>|<=|<|>=|IN|= ANY|=) ?\\(?(\\$|\\?|VALUES|\\(|SELECT|CAST)").MatchString(strings.Replace(text, at+" < ", "", 1)) {
					t.Errorf("without a key or a range:\n%s", text)
				}
			}
			if destructive < 4 {
				t.Errorf("%d destructive statements: that shows nothing", destructive)
			}
		})
	}
}

// Rows are deleted in these functions and nowhere else in the package.
func TestWhereRowsAreDeleted(t *testing.T) {
	allowed := []string{"deleteRange", "deleteKeys", "deleteSpan", "DropReceipts", "forget", "release", "unclaim"} // the last four remove rows of our own
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range f.Decls {
			fn, _ := decl.(*ast.FuncDecl)
			ast.Inspect(decl, func(n ast.Node) bool {
				lit, ok := n.(*ast.BasicLit)
				if !ok || lit.Kind != token.STRING || !regexp.MustCompile(`(?i)^.\s*(delete\s+from|truncate\s+table|drop\s+table)\b`).MatchString(lit.Value) {
					return true
				}
				if strings.Contains(lit.Value, "@passage WHERE run = ''") {
					return true // what a role may do, asked in a dry run
				}
				if fn == nil || !slices.Contains(allowed, fn.Name.Name) {
					t.Errorf("%s deletes outside of %v: %s", name, allowed, lit.Value)
					return true
				}
				seen[fn.Name.Name] = true
				return true
			})
		}
	}
	if !seen["deleteRange"] || !seen["deleteKeys"] {
		t.Errorf("seen: %v", seen)
	}
}

// Random text in place of a list of keys is an error or a list, never a panic, and never more rows than there is text.
func FuzzUnpack(f *testing.F) {
	for _, s := range []string{"", "{}", "{1,2}", `{"a","b\"c"}`, `{NULL,"NULL"}`, `{"`, `{"\`, "{,}", `{"a"b}`, "{{1},{2}}", "{\x00}"} {
		f.Add(s, s)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		ts, err := unpack([]sql.NullString{{String: a, Valid: true}, {String: b, Valid: true}})
		if err != nil {
			return
		}
		if len(ts) > len(a) || len(ts) > len(b) {
			t.Fatalf("%d rows out of %q and %q", len(ts), a, b)
		}
		for _, k := range ts {
			if len(k) != 2 || k[0].kind == 0 || k[1].kind == 0 {
				t.Fatalf("row %v out of %q and %q", k, a, b)
			}
		}
	})
}

// What the texts of a list say comes back, whatever they are.
func FuzzTextArray(f *testing.F) {
	f.Add("a", `b"\,{}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		want := []tuple{{{textValue, a}}, {{textValue, b}}}
		got, err := unpack([]sql.NullString{{String: textArray(want, 0), Valid: true}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(value{})); diff != "" {
			t.Error(diff)
		}
	})
}

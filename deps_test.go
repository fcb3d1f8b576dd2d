package curfew_test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const modulePath = "curfew.dev/curfew"

// mayImport is the architecture: which of our packages each of our packages may
// import, by directory, "" being the root. A package's tests may import the same,
// internal/dbtest, internal/mailtest, and what testsMayImport says. Leaves import nothing of ours.
//
// A new package gets a line here; think twice before a line gets longer.
var mayImport = map[string][]string{
	"policy":           {},
	"schedule":         {},
	"task":             {},
	"audit":            {},
	"api":              {},
	"internal/hold":    {},
	"internal/keyring": {},
	"internal/riverq":  {},
	"internal/demo":    {},
	"internal/deliver": {},

	"internal/ledger":   {"internal/hold"},
	"internal/target":   {"policy", "internal/hold", "internal/keyring"},
	"internal/dispatch": {"policy", "schedule", "internal/ledger"},
	"internal/worker":   {"policy", "task", "audit", "internal/hold", "internal/target", "internal/ledger", "internal/deliver"},
	"internal/alert":    {"internal/ledger", "internal/deliver"},
	"internal/pool":     {"api", "internal/dispatch", "internal/ledger"},
	"internal/web":      {"api", "audit", "policy", "internal/hold", "internal/dispatch", "internal/ledger"},

	// The hub wires them all together, and only it.
	"": {
		"policy", "schedule", "task", "audit", "api", "internal/hold", "internal/keyring", "internal/riverq",
		"internal/ledger", "internal/target", "internal/dispatch", "internal/worker", "internal/alert", "internal/web", "internal/pool", "internal/deliver",
	},
	"cmd/curfew": {"", "api", "internal/demo"}, // the demo brings its own library
	"curfewtest": {"", "api", "policy", "task"},

	"internal/bench":     {"internal/riverq"}, // it measures the program from outside; but its queue beside plain River, with no process in between
	"internal/dbtest":    {},
	"internal/mailtest":  {},
	"scripts/testreport": {},

	// What an outside program could import, and what the examples have in common.
	"examples/internal/stage": {},
	"examples/sessions":       {"", "api", "examples/internal/stage"},
	"examples/portal":         {"", "api", "task", "curfewtest"},
	"examples/library":        {"api", "examples/internal/stage"},
}

// testsMayImport is what a package's tests may import on top.
var testsMayImport = map[string][]string{
	"internal/worker": {"internal/keyring"},
	"cmd/curfew":      {"internal/dispatch", "internal/target", "policy"}, // to stop the real program at the points that they name; to read a file as it does
}

// confined names dependencies that only some packages may know, by import path
// prefix. Where tests is set, any package's tests may use them too.
var confined = []struct {
	prefix string
	in     []string
	tests  bool
}{
	{"github.com/riverqueue/", []string{"internal/riverq", "internal/bench"}, false}, // the benchmark has plain River beside ours
	{"github.com/spf13/", []string{"cmd/curfew"}, false},
	{"github.com/pressly/goose/", []string{"internal/ledger"}, false},
	{"github.com/goccy/go-yaml", []string{"policy"}, true},

	{"github.com/wneessen/", []string{"internal/deliver"}, false},

	// The databases' drivers.
	{"github.com/jackc/pgx/", []string{"internal/target", "internal/ledger", "internal/riverq", "internal/dbtest", "internal/bench", "examples/internal/stage", "examples/portal"}, true},
	{"github.com/go-sql-driver/mysql", []string{"internal/target", "internal/ledger", "internal/dbtest", "internal/bench", "examples/internal/stage", "examples/sessions"}, true},
	{"modernc.org/sqlite", []string{"internal/target", "internal/ledger", "internal/demo", "internal/dbtest", "internal/bench", "examples/internal/stage", "examples/portal"}, true},

	// What only tests need does not go into the binary.
	{"testing", []string{"internal/dbtest", "internal/mailtest", "curfewtest"}, true},
	{modulePath + "/internal/dbtest", nil, true},
	{modulePath + "/internal/mailtest", nil, true},
	{"github.com/google/go-cmp/", nil, true},
	{"github.com/rogpeppe/go-internal/", nil, true},
	{"github.com/emersion/", []string{"internal/mailtest"}, true},
	{"go.uber.org/goleak", nil, true},
	{"pgregory.net/rapid", nil, true},
}

// checkImports reads every Go file below fsys, a module's root, and returns a
// line for each import that the tables forbid. It parses the files itself: the
// go command's test cache knows which files a test has read, but not what a
// `go list` started by it has seen, and would go on saying "ok".
func checkImports(fsys fs.FS) ([]string, error) {
	var complaints []string
	unknown := map[string]bool{}
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if skipDir(fsys, name) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		dir := path.Dir(name)
		if dir == "." {
			dir = ""
		}
		if _, known := mayImport[dir]; !known {
			if !unknown[dir] {
				unknown[dir] = true
				complaints = append(complaints, fmt.Sprintf("%s: a package that the import table does not know: give %q a line in mayImport (deps_test.go)", name, dir))
			}
			return nil
		}
		imports, err := importsOf(fsys, name)
		if err != nil {
			return err
		}
		for _, imp := range imports {
			if why := forbidden(dir, imp.path, strings.HasSuffix(name, "_test.go")); why != "" {
				complaints = append(complaints, fmt.Sprintf("%s:%d: %s", name, imp.line, why))
			}
		}
		return nil
	})
	return complaints, err
}

// skipDir reports whether the go command would not look for our packages there.
func skipDir(fsys fs.FS, dir string) bool {
	if dir == "." {
		return false
	}
	base := path.Base(dir)
	if base == "testdata" || base[0] == '.' || base[0] == '_' {
		return true
	}
	_, err := fs.Stat(fsys, path.Join(dir, "go.mod"))
	return err == nil
}

type importSpec struct {
	path string
	line int
}

func importsOf(fsys fs.FS, name string) ([]importSpec, error) {
	src, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	var specs []importSpec
	for _, s := range f.Imports {
		p, err := strconv.Unquote(s.Path.Value)
		if err != nil {
			return nil, err
		}
		specs = append(specs, importSpec{p, fset.Position(s.Pos()).Line})
	}
	return specs, nil
}

// forbidden says why a file in dir may not import the path, or "".
func forbidden(dir, imported string, test bool) string {
	for _, c := range confined {
		if !hasPathPrefix(imported, c.prefix) || slices.Contains(c.in, dir) || c.tests && test {
			continue
		}
		if len(c.in) == 0 {
			return fmt.Sprintf("imports %s, which is for tests only", imported)
		}
		return fmt.Sprintf("imports %s, which only %s may", imported, strings.Join(c.in, ", "))
	}
	if !hasPathPrefix(imported, modulePath) || imported == modulePath+"/internal/dbtest" || imported == modulePath+"/internal/mailtest" {
		return ""
	}
	to := strings.TrimPrefix(strings.TrimPrefix(imported, modulePath), "/")
	if slices.Contains(mayImport[dir], to) || test && (to == dir || slices.Contains(testsMayImport[dir], to)) {
		return ""
	}
	may := "nothing of ours"
	if len(mayImport[dir]) > 0 {
		may = fmt.Sprintf("of ours only %q", mayImport[dir])
	}
	return fmt.Sprintf("imports %s, but %q may import %s (the table in deps_test.go)", imported, dir, may)
}

// hasPathPrefix reports whether p is prefix or lies below it.
func hasPathPrefix(p, prefix string) bool {
	prefix = strings.TrimSuffix(prefix, "/")
	return p == prefix || strings.HasPrefix(p, prefix+"/")
}

func TestImports(t *testing.T) {
	complaints, err := checkImports(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range complaints {
		t.Error(c)
	}
}

// TestImportsCatches shows the check illegal imports, each of which it must name,
// and legal ones, about which it must be silent.
func TestImportsCatches(t *testing.T) {
	const ours = modulePath + "/"
	for _, tc := range []struct {
		file, imports string
		want          string // "" for a legal import
	}{
		{"policy/a.go", ours + "internal/ledger", "nothing of ours"},
		{"internal/dispatch/a.go", ours + "internal/target", `"internal/dispatch" may import of ours only`},
		{"internal/dispatch/a.go", ours + "internal/ledger", ""},
		{"internal/dispatch/a_test.go", ours + "internal/target", "may import of ours only"},
		{"internal/dispatch/a_test.go", ours + "internal/dispatch", ""},
		{"internal/dispatch/a_test.go", ours + "internal/dbtest", ""},
		{"internal/dispatch/a.go", ours + "internal/dbtest", "for tests only"},
		{"internal/ledger/a.go", modulePath, "may import of ours only"},
		{"cmd/curfew/a.go", modulePath, ""},
		{"cmd/curfew/a.go", ours + "policy", "may import of ours only"},
		{"cmd/curfew/a.go", ours + "internal/target", "may import of ours only"},
		{"cmd/curfew/a_test.go", ours + "internal/target", ""},
		{"cmd/curfew/a_test.go", ours + "internal/ledger", "may import of ours only"},
		{"curfew.go", ours + "internal/target", ""},
		{"curfew.go", ours + "cmd/curfew", "may import of ours only"},
		{"examples/sessions/a.go", modulePath, ""},
		{"examples/sessions/a.go", ours + "internal/ledger", "may import of ours only"},
		{"examples/sessions/a_test.go", ours + "internal/ledger", "may import of ours only"},
		{"examples/sessions/a_test.go", ours + "internal/dbtest", ""},
		{"examples/sessions/a.go", ours + "internal/dbtest", "for tests only"},
		{"examples/internal/stage/a.go", modulePath, "nothing of ours"},
		{"examples/other/a.go", "fmt", "does not know"},
		{"internal/util/a.go", "fmt", "does not know"},
		{"internal/dispatch/a.go", "github.com/riverqueue/river", "only internal/riverq, internal/bench may"},
		{"internal/dispatch/a_test.go", "github.com/riverqueue/river", "only internal/riverq, internal/bench may"},
		{"internal/riverq/a.go", "github.com/riverqueue/river/riverdriver", ""},
		{"curfew.go", "github.com/spf13/cobra", "only cmd/curfew may"},
		{"internal/worker/a.go", "github.com/jackc/pgx/v5/stdlib", "only internal/target, internal/ledger"},
		{"internal/worker/a_test.go", "github.com/jackc/pgx/v5/stdlib", ""},
		{"internal/target/a.go", "modernc.org/sqlite/lib", ""},
		{"policy/a.go", "testing/fstest", "only internal/dbtest, internal/mailtest, curfewtest may"},
		{"policy/a.go", "pgregory.net/rapid", "for tests only"},
		{"policy/a_test.go", "pgregory.net/rapid", ""},
		{"policy/testdata/a.go", ours + "internal/ledger", ""},
		{"_old/a.go", ours + "internal/ledger", ""},
		{".build/a.go", ours + "internal/ledger", ""},
	} {
		fsys := fstest.MapFS{tc.file: {Data: []byte("package x\n\nimport _ " + strconv.Quote(tc.imports) + "\n")}}
		got, err := checkImports(fsys)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case tc.want == "" && len(got) > 0:
			t.Errorf("%s importing %s: %q, want no complaint", tc.file, tc.imports, got)
		case tc.want != "" && (len(got) != 1 || !strings.Contains(got[0], tc.want) || !strings.HasPrefix(got[0], tc.file+":")):
			t.Errorf("%s importing %s: %q, want one complaint with %q", tc.file, tc.imports, got, tc.want)
		}
	}

	// Another module below ours is its own business, and a broken file is an error, not a pass.
	nested := fstest.MapFS{
		"examples/x/go.mod": {Data: []byte("module x\n")},
		"examples/x/a.go":   {Data: []byte("package x\n\nimport _ \"" + modulePath + "\"\n")},
	}
	if got, err := checkImports(nested); err != nil || len(got) > 0 {
		t.Errorf("a nested module: %q, %v", got, err)
	}
	if _, err := checkImports(fstest.MapFS{"policy/a.go": {Data: []byte("not Go")}}); err == nil {
		t.Error("a file that does not parse goes unnoticed")
	}
}

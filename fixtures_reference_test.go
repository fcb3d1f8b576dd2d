package curfew_test

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"curfew.dev/curfew/internal/dbtest"
)

// The tests here try the fixtures themselves, with no part of curfew in them: a
// fixture that would pass a wrong policy, or fail the right one, proves nothing.

// TestFixturesReference runs a correct policy, written in plain SQL, and expects
// to be told that all is well; and to be told otherwise before it.
func TestFixturesReference(t *testing.T) {
	for _, f := range fixtures(t) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			w := f.load(t, "1", "")
			before := w.ask(t, "expect.sql")
			for name, meant := range w.labels {
				if before[name] != meant {
					t.Errorf("%s: the generator meant %v, expect.sql says %v", name, meant, before[name])
				}
			}
			if bad, _ := before.differences(w.ask(t, "after.sql")); len(bad) == 0 {
				t.Error("doing nothing passes")
			}
			w.execute(t, readFile(t, f.path("reference.sql")))
			bad, advisory := before.differences(w.ask(t, "after.sql"))
			for _, d := range append(bad, advisory...) {
				t.Error(d)
			}
		})
	}
}

// A mutant is a policy with one flaw.
type mutant struct {
	name, script string
}

func (f fixture) mutants(t *testing.T) []mutant {
	t.Helper()
	text := readFile(t, f.path("mutants.sql"))
	heads := regexp.MustCompile(`(?m)^-- @mutant (.*)$`).FindAllStringSubmatchIndex(text, -1)
	if len(heads) == 0 {
		t.Fatalf("%s has no mutants", f.name)
	}
	sub := regexp.MustCompile(`(?m)^-- @sub (.*?) => (.*)$`)
	var all []mutant
	for i, h := range heads {
		end := len(text)
		if i+1 < len(heads) {
			end = heads[i+1][0]
		}
		m := mutant{text[h[2]:h[3]], text[h[1]:end]}
		if subs := sub.FindAllStringSubmatch(m.script, -1); subs != nil { // the reference, but for this
			m.script = readFile(t, f.path("reference.sql"))
			for _, s := range subs {
				if !strings.Contains(m.script, s[1]) {
					t.Fatalf("mutant %q: %q is not in reference.sql", m.name, s[1])
				}
				m.script = strings.ReplaceAll(m.script, s[1], s[2])
			}
		}
		all = append(all, m)
	}
	return all
}

// TestFixturesMutants runs wrong policies, each of which must fail, or differ in
// at least one set.
func TestFixturesMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("the fixtures do not change often: not with -short")
	}
	for _, f := range fixtures(t) {
		t.Run(f.name, func(t *testing.T) {
			t.Parallel()
			w := f.load(t, "1", "")
			before := w.ask(t, "expect.sql")
			for _, m := range f.mutants(t) {
				t.Run(m.name, func(t *testing.T) {
					bad, advisory := w.mutate(t, m, before)
					if len(bad)+len(advisory) == 0 {
						t.Error("not caught")
					}
				})
			}
		})
	}
}

// mutate runs a mutant where it does no lasting harm, and returns what it did.
func (w *world) mutate(t *testing.T, m mutant, before sets) (bad, advisory []string) {
	t.Helper()
	if w.engine == "maria" { // copying would cost a load; InnoDB can take it all back
		rows, err := w.query(t.Context(), "START TRANSACTION;\n"+m.script+"\n;"+readFile(t, w.path("after.sql"))+"ROLLBACK;")
		if err != nil {
			return []string{"it fails: " + err.Error()}, nil
		}
		return before.differences(setsOf(t, rows))
	}
	c := *w
	if w.engine == "pg" {
		c.target = dbtest.PostgresWith(t, dbtest.PostgresOptions{Template: w.target})
	} else {
		c.target = "sqlite:" + dbtest.SQLite(t)
		copyFile(t, strings.TrimPrefix(c.target, "sqlite:"), strings.TrimPrefix(w.target, "sqlite:"))
	}
	if _, err := c.query(t.Context(), m.script); err != nil {
		return []string{"it fails: " + err.Error()}, nil
	}
	return before.differences(c.ask(t, "after.sql"))
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

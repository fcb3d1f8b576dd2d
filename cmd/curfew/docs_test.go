package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// The documentation runs. Of README.md, docs/*.md and the examples' that are named below every ```sh block is executed, and every ```console block too: its
// lines that begin with "$ " are commands, the others are what they print. Where the text says … anything may come, on a
// line or in place of lines; numbers, ids, instants and the width of gaps may differ. The blocks of one file share a
// folder, and run in order with the real program on the PATH. A block tagged yaml file=NAME is written into that folder
// first; those tagged go file=NAME make a module of their own, which must
// vet and pass its tests. A ```text above block is an excerpt of what the last sh block printed. A block that no test can run says so after its language: ```sh not-tested=REASON.

// block is a fenced block of a document.
type block struct {
	line   int
	lang   string
	info   map[string]string
	source string
}

var infoWord = regexp.MustCompile(`([a-z-]+)(?:=("[^"]*"|\S+))?`)

// blocksOf finds the fenced blocks.
func blocksOf(text string) []block {
	var found []block
	var open *block
	for i, line := range strings.Split(text, "\n") {
		fence := strings.HasPrefix(line, "```")
		switch {
		case fence && open == nil:
			lang, rest, _ := strings.Cut(strings.TrimPrefix(line, "```"), " ")
			open = &block{line: i + 1, lang: lang, info: map[string]string{}}
			for _, m := range infoWord.FindAllStringSubmatch(rest, -1) {
				open.info[m[1]] = strings.Trim(m[2], `"`)
			}
		case fence:
			found, open = append(found, *open), nil
		case open != nil:
			open.source += line + "\n"
		}
	}
	return found
}

// step is one command of a console block with what it should print.
type step struct{ command, want string }

func stepsOf(source string) []step {
	var steps []step
	for _, line := range strings.Split(strings.TrimSuffix(source, "\n"), "\n") {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			steps = append(steps, step{command: command})
			continue
		}
		if len(steps) > 0 {
			steps[len(steps)-1].want += line + "\n"
		}
	}
	return steps
}

var loose = []struct {
	pattern *regexp.Regexp
	name    string
}{
	{regexp.MustCompile(`\bbin/curfew\b`), "curfew"}, // under test the program does not know how it was called
	{regexp.MustCompile(`\b[0-9a-f]{12,64}\b`), "ID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+Z`), "TIME"},
	{regexp.MustCompile(`\d[\d,.]*(ns|µs|ms|s|m|h)?\b`), "N"},
	{regexp.MustCompile(`[ \t]+`), " "},
}

func loosen(s string) string {
	for _, l := range loose {
		s = l.pattern.ReplaceAllString(s, l.name)
	}
	return strings.TrimSpace(s)
}

// matches reports whether got is what the document says; … in the document stands for anything.
func matches(want, got string) bool {
	pattern := regexp.QuoteMeta(loosen(want))
	pattern = strings.ReplaceAll(pattern, "\n…\n", `\n(?:.*\n)*?`)
	if rest, ok := strings.CutPrefix(pattern, "…\n"); ok {
		pattern = `(?:.*\n)*?` + rest
	}
	pattern = strings.ReplaceAll(pattern, "…", ".*?")
	return regexp.MustCompile(`(?s)^` + pattern + `$`).MatchString(loosen(got))
}

func TestDocuments(t *testing.T) {
	if testing.Short() {
		t.Skip("runs every command of the documentation")
	}
	bin := buildForDocs(t)
	documents, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range append(documents, "../../README.md", "../../examples/library/README.md", "../../examples/portal/README.md") {
		t.Run(strings.TrimPrefix(document, "../../"), func(t *testing.T) {
			text, err := os.ReadFile(document)
			if err != nil {
				t.Fatal(err)
			}
			runDocument(t, bin, blocksOf(string(text)))
		})
	}
}

// runDocument runs the blocks of one document in one folder.
func runDocument(t *testing.T, bin string, blocks []block) {
	dir := t.TempDir()
	var printed string
	var modules bool
	for _, b := range blocks {
		if reason, ok := b.info["not-tested"]; ok {
			if reason == "" {
				t.Errorf("line %d: not-tested needs a reason", b.line)
			}
			continue
		}
		name := fmt.Sprintf("line %d", b.line)
		switch b.lang {
		case "yaml":
			if file := b.info["file"]; file != "" {
				if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), []byte(b.source), 0o666); err != nil {
					t.Fatal(err)
				}
			}
		case "sh":
			out, err := shell(t, bin, dir, "set -eu\n"+b.source)
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, out)
			}
			printed = out
		case "console":
			for _, s := range stepsOf(b.source) {
				// What the command exits with is for its output to tell.
				out, err := shell(t, bin, dir, s.command)
				if err != nil && out == "" {
					t.Fatalf("%s: %s: %v", name, s.command, err)
				}
				if !matches(s.want, out) {
					t.Errorf("%s: %s prints\n%s\nthe document says\n%s", name, s.command, out, s.want)
				}
			}
		case "text":
			if _, above := b.info["above"]; above && !matches("…\n"+b.source+"…\n", printed) {
				t.Errorf("%s: the commands above print\n%s\nthe document says\n%s", name, printed, b.source)
			}
		case "go":
			if file := b.info["file"]; file != "" {
				goModule(t, filepath.Join(dir, "module"), filepath.Base(file), b.source)
				modules = true
			}
		case "", "json", "sql", "python":
		default:
			t.Errorf("%s: what is a block of %q? sh and console run, text does not", name, b.lang)
		}
	}
	if modules {
		testModule(t, filepath.Join(dir, "module"))
	}
}

// goModule writes a file into a module that uses this repository.
func goModule(t *testing.T, dir, name, source string) {
	t.Helper()
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	ours, err := os.ReadFile(filepath.Join(repo, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile(filepath.Join(repo, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	// Its dependencies are ours, in the versions that we have: nothing is looked up.
	_, needs, _ := strings.Cut(string(ours), "\n")
	module := "module portal.example.org\n" + needs + "\nrequire curfew.dev/curfew v0.0.0\nreplace curfew.dev/curfew => " + repo + "\n"
	for file, content := range map[string]string{name: source, "go.mod": module, "go.sum": string(sums)} {
		if err := errors.Join(os.MkdirAll(dir, 0o777), os.WriteFile(filepath.Join(dir, file), []byte(content), 0o666)); err != nil {
			t.Fatal(err)
		}
	}
}

// testModule vets and tests it, offline.
func testModule(t *testing.T, dir string) {
	t.Helper()
	for _, args := range [][]string{{"vet", "./..."}, {"test", "./..."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off", "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("go %s: %v\n%s", args[0], err, out)
		}
	}
}

func shell(t *testing.T, bin, dir, script string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + bin + ":" + os.Getenv("PATH"), "HOME=" + dir, "USER=tester"}
	cmd.WaitDelay = time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// buildForDocs makes a folder with the program, and with stand-ins for git and go: from them the documentation only wants
// a copy of this repository and a build, which the test has already.
func buildForDocs(t *testing.T) string {
	t.Helper()
	bin := t.TempDir()
	self, err := exec.LookPath("curfew") // put there by testscript.Main: this test binary
	if err != nil {
		t.Fatal(err)
	}
	repo, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"git": "case \"$1\" in\n" +
			"clone) mkdir curfew && cp " + repo + "/Makefile curfew/ ;;\n" +
			"*) exit 1 ;;\nesac\n",
		"go": "case \"$1\" in\n" +
			"build) mkdir -p bin && cp -L " + self + " bin/curfew ;;\n" +
			"install) ;;\n" +
			goRunScript(t, repo) +
			"*) echo \"no stand-in for go $1\" >&2; exit 1 ;;\nesac\n",
	} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(self, filepath.Join(bin, "curfew")); err != nil {
		t.Fatal(err)
	}
	return bin
}

// goRunScript is go run as the examples' documents have it, from a copy of this repository: by the real go command, in this repository, and
// with -dir where the document is read.
func goRunScript(t *testing.T, repo string) string {
	t.Helper()
	goBin, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	env, err := exec.CommandContext(t.Context(), goBin, "env", "GOCACHE", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	caches := strings.Fields(string(env))
	portal := filepath.Join(t.TempDir(), "portal")
	return "run) example=$2 dir=$(mktemp -d " + t.TempDir() + "/XXXXXX)\n" +
		"  if [ \"${3:-}\" = -dir ]; then dir=$PWD/$4; fi\n" +
		"  export PATH=" + filepath.Dir(goBin) + ":$PATH CGO_ENABLED=0 GOFLAGS=-buildvcs=false GOCACHE=" + caches[0] + " GOMODCACHE=" + caches[1] + "\n" +
		"  if [ $example = ./examples/portal ]; then\n" + // an application that works where it was started
		"    shift 2; (cd " + repo + " && " + goBin + " build -o " + portal + " $example) && exec " + portal + " \"$@\"; fi\n" +
		"  cd " + repo + " && exec " + goBin + " run $example -dir $dir ;;\n"
}

func TestBlocksOf(t *testing.T) {
	const doc = "text\n```sh not-tested=\"needs a server\"\nfalse\n```\n```yaml file=a.yaml\na: 1\n```\n```console\n$ x y\nout\n…\n$ z\n```\n"
	blocks := blocksOf(doc)
	if len(blocks) != 3 || blocks[0].info["not-tested"] != "needs a server" || blocks[1].info["file"] != "a.yaml" || blocks[1].source != "a: 1\n" || blocks[2].line != 8 {
		t.Fatalf("found %+v", blocks)
	}
	steps := stepsOf(blocks[2].source)
	if len(steps) != 2 || steps[0] != (step{"x y", "out\n…\n"}) || steps[1] != (step{command: "z"}) {
		t.Errorf("steps %+v", steps)
	}
}

func TestMatches(t *testing.T) {
	for _, test := range []struct {
		want, got string
		ok        bool
	}{
		{"deleted  118,000\n", "deleted   120,431\n", true},
		{"deleted  118,000\n", "blocked   120,431\n", false},
		{"run 0123456789ab took 2.4s\n", "run ffffffffffffffff took 800ms\n", true},
		{"a\n…\nd\n", "a\nb\nc\nd\n", true},
		{"a\n…\nd\n", "a\nd\n", true},
		{"a\n…\nd\n", "a\nb\nc\n", false},
		{"a … d\n", "a b c d\n", true},
		{"a\n…\n", "a\nb\nc\n", true},
		{"…\nc\n", "a\nb\nc\n", true},
		{"a\n", "a\nb\n", false},
		{"", "anything\n", false},
		{"(x)", "(x)", true},
	} {
		if got := matches(test.want, test.got); got != test.ok {
			t.Errorf("document %q and output %q match: %v, want %v", test.want, test.got, got, test.ok)
		}
	}
}

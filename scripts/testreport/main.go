// Command testreport reads the events of `go test -json` and prints what a
// person wants of them: one line per package, the output of what failed, why
// something was skipped, and last the count. With -v also the output of what passed.
//
// Invariant: it exits with 0 only when it has seen at least one package, and
// every package it has seen passed.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
)

func main() {
	// After Ctrl-C go test still has something to say.
	signal.Ignore(os.Interrupt)
	os.Exit(run(os.Stdin, os.Stdout, slices.Contains(os.Args[1:], "-v")))
}

// event is one line of go test -json; see `go doc test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // of build-output
	Test        string
	Output      string
	FailedBuild string
}

type test struct{ pkg, name string }

func (t test) String() string { return t.pkg + " " + t.name }

type report struct {
	w         io.Writer
	verbose   bool
	output    map[test][]string // lines so far of what has not ended yet; a package has name ""
	build     map[string][]string
	parents   map[test]bool // tests with subtests: only the leaves are counted
	packages  int
	passed    int
	failed    []test
	skipped   []string
	pkgFailed map[string]bool // has at least one failed test
}

func run(r io.Reader, w io.Writer, verbose bool) int {
	p := &report{w: w, verbose: verbose, output: map[test][]string{}, build: map[string][]string{}, parents: map[test]bool{}, pkgFailed: map[string]bool{}}
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		if line != "" {
			var e event
			if json.Unmarshal([]byte(line), &e) != nil || e.Action == "" {
				fmt.Fprint(w, line) // go's own complaints are not JSON
			} else {
				p.add(e)
			}
		}
		if err != nil {
			return p.end()
		}
	}
}

func (p *report) add(e event) {
	t := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		p.build[e.ImportPath] = append(p.build[e.ImportPath], e.Output)
	case "run":
		for name := e.Test; ; {
			i := strings.LastIndexByte(name, '/')
			if i < 0 {
				break
			}
			name = name[:i]
			p.parents[test{e.Package, name}] = true
		}
	case "output":
		p.output[t] = append(p.output[t], e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			p.endPackage(e)
		} else {
			p.endTest(t, e.Action)
		}
		delete(p.output, t)
	}
}

func (p *report) endTest(t test, action string) {
	leaf := !p.parents[t]
	switch action {
	case "pass":
		if leaf {
			p.passed++
		}
	case "skip":
		if leaf {
			p.skipped = append(p.skipped, t.String()+": "+reason(p.output[t]))
		}
	case "fail":
		p.pkgFailed[t.pkg] = true
		if leaf || !p.childFailed(t) {
			p.failed = append(p.failed, t)
		}
	}
	if action == "fail" || p.verbose {
		p.print(t)
	}
}

// childFailed reports whether a subtest of t is already among the failures, so
// that t has failed because of it.
func (p *report) childFailed(t test) bool {
	return slices.ContainsFunc(p.failed, func(f test) bool {
		return f.pkg == t.pkg && strings.HasPrefix(f.name, t.name+"/")
	})
}

func (p *report) endPackage(e event) {
	p.packages++
	t := test{pkg: e.Package}
	if e.Action == "fail" {
		for _, line := range p.build[e.FailedBuild] {
			fmt.Fprint(p.w, line)
		}
		delete(p.build, e.FailedBuild) // once, although each package that needs it fails
		p.unfinished(e.Package)
		if !p.pkgFailed[e.Package] { // did not build, or ended outside a test
			p.failed = append(p.failed, t)
		}
		p.print(t)
		return
	}
	if p.verbose {
		p.print(t)
		return
	}
	// All that a passing package need say is its "ok" line, which comes last.
	if lines := p.output[t]; len(lines) > 0 {
		fmt.Fprint(p.w, lines[len(lines)-1])
	}
}

// unfinished prints the tests that a panic, an exit or a timeout cut short.
func (p *report) unfinished(pkg string) {
	var cut []test
	for t := range p.output {
		if t.pkg == pkg && t.name != "" {
			cut = append(cut, t)
		}
	}
	slices.SortFunc(cut, func(a, b test) int { return cmp.Compare(a.name, b.name) })
	for _, t := range cut {
		p.print(t)
		delete(p.output, t)
	}
}

// print shows all that a test or a package has said, but for go test's own marks.
func (p *report) print(t test) {
	for _, line := range p.output[t] {
		if !isMark(line) {
			fmt.Fprint(p.w, line)
		}
	}
}

func isMark(line string) bool {
	for _, mark := range []string{"=== RUN", "=== PAUSE", "=== CONT", "=== NAME", "PASS\n", "FAIL\n"} {
		if strings.HasPrefix(line, mark) {
			return true
		}
	}
	return false
}

// reason returns the first line a skipped test said.
func reason(lines []string) string {
	for _, line := range lines {
		if s := strings.TrimSpace(line); !isMark(line) && !strings.HasPrefix(s, "---") && s != "" {
			return s
		}
	}
	return "no reason given"
}

func (p *report) end() int {
	for _, s := range p.skipped {
		fmt.Fprintln(p.w, "skipped:", s)
	}
	for _, t := range p.failed {
		fmt.Fprintln(p.w, "FAILED:", strings.TrimSpace(t.String()))
	}
	if p.packages == 0 {
		for _, lines := range p.build {
			fmt.Fprint(p.w, strings.Join(lines, ""))
		}
		fmt.Fprintln(p.w, "no package was tested")
	}
	fmt.Fprintf(p.w, "%d passed, %d failed, %d skipped\n", p.passed, len(p.failed), len(p.skipped))
	if len(p.failed) > 0 || p.packages == 0 {
		return 1
	}
	return 0
}

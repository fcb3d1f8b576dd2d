package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// goTest runs go test -json over a module with the given files.
func goTest(t *testing.T, files map[string]string) []byte {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module m\n\ngo 1.26\n"
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-json", "-p=1", "./...") // in the order of their names
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
	out, _ := cmd.Output() // that it fails is the point of most cases
	return out
}

func file(body string) string { return "package p\n\nimport \"testing\"\n\n" + body }

func TestReport(t *testing.T) {
	const good = `func TestGood(t *testing.T) { t.Log("quiet") }`
	const bad = `func TestBad(t *testing.T) {
	t.Run("sub", func(t *testing.T) { t.Error("the reason") })
	t.Run("fine", func(t *testing.T) {})
}`
	for _, tc := range []struct {
		name  string
		files map[string]string
		code  int
		want  []string // in this order
		not   string
	}{
		{"all pass", map[string]string{"a/a_test.go": file(good), "b/b_test.go": file(good)},
			0, []string{"ok  \tm/a", "ok  \tm/b", "2 passed, 0 failed, 0 skipped"}, "quiet"},
		{"one fails", map[string]string{"a/a_test.go": file(bad + "\n" + good), "b/b_test.go": file(good)},
			1, []string{"the reason", "FAIL\tm/a", "ok  \tm/b", "FAILED: m/a TestBad/sub\n", "3 passed, 1 failed, 0 skipped"}, "quiet"},
		{"skipped", map[string]string{"a/a_test.go": file(`func TestS(t *testing.T) { t.Skip("no database\nstart one") }`)},
			0, []string{"ok  \tm/a", "skipped: m/a TestS: a_test.go:5: no database", "0 passed, 0 failed, 1 skipped"}, "FAIL"},
		{"panic", map[string]string{"a/a_test.go": file(`func TestP(t *testing.T) { panic("boom") }`), "b/b_test.go": file(good)},
			1, []string{"boom", "FAILED: m/a TestP", "1 passed, 1 failed, 0 skipped"}, ""},
		{"exit outside a test", map[string]string{"a/a_test.go": "package p\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestMain(m *testing.M) { m.Run(); os.Exit(1) }\n\n" + good},
			1, []string{"FAIL\tm/a", "FAILED: m/a\n", "1 passed, 1 failed, 0 skipped"}, ""},
		{"does not build", map[string]string{"a/a.go": "package p\n\nvar x int = \"text\"\n", "a/a_test.go": file(good), "b/b_test.go": file(good)},
			1, []string{"cannot use", "FAIL\tm/a [build failed]", "FAILED: m/a\n", "1 passed, 1 failed, 0 skipped"}, ""},
		{"nothing there", map[string]string{}, 1, []string{"no package was tested", "0 passed, 0 failed, 0 skipped"}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			code := run(bytes.NewReader(goTest(t, tc.files)), &out, false)
			if code != tc.code {
				t.Errorf("exit code %d, want %d", code, tc.code)
			}
			rest := out.String()
			for _, want := range tc.want {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Errorf("no %q in its place in\n%s", want, out.String())
					break
				}
				rest = after
			}
			if tc.not != "" && strings.Contains(out.String(), tc.not) {
				t.Errorf("%q should not be in\n%s", tc.not, out.String())
			}
			if strings.Contains(out.String(), "=== RUN") {
				t.Errorf("go test's marks are in\n%s", out.String())
			}
		})
	}
}

func TestReportVerbose(t *testing.T) {
	var out bytes.Buffer
	in := goTest(t, map[string]string{"a/a_test.go": file(`func TestGood(t *testing.T) { t.Log("loud") }`)})
	if code := run(bytes.NewReader(in), &out, true); code != 0 || !strings.Contains(out.String(), "loud") || !strings.Contains(out.String(), "ok  \tm/a") {
		t.Errorf("exit code %d\n%s", code, out.String())
	}
}

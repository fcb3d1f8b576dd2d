package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"curfew.dev/curfew"
	"curfew.dev/curfew/internal/demo"
)

// names lists what is in a folder.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

func TestPrepareDemo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "demo")
	if err := prepareDemo(dir, false); err != nil {
		t.Fatal(err)
	}
	for _, f := range demoFiles {
		write(t, filepath.Join(dir, f), demo.Config)
	}
	write(t, filepath.Join(dir, "mine.txt"), "mine")
	if err := prepareDemo(dir, false); err != nil {
		t.Fatalf("a second demo: %v", err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{demoManifest, "mine.txt"}) {
		t.Errorf("left are %v, want what demo did not make, and its mark", got)
	}
}

func TestPrepareDemoRefuses(t *testing.T) {
	full := t.TempDir()
	write(t, filepath.Join(full, "library.db"), "somebody's own")
	edited := t.TempDir()
	if err := prepareDemo(edited, false); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(edited, "curfew.yaml"), demo.Config+"# a thought\n")
	write(t, filepath.Join(edited, "library.db"), "x")
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "")
	garbled := t.TempDir()
	write(t, filepath.Join(garbled, demoManifest), "{")
	write(t, filepath.Join(garbled, "library.db"), "x")

	for name, dir := range map[string]string{"somebody's folder": full, "edited policies": edited, "a file": file, "a garbled mark": garbled} {
		err := prepareDemo(dir, false)
		if err == nil || curfew.KindOf(err) != curfew.KindUsage || curfew.HintOf(err) == "" {
			t.Errorf("%s: %v with hint %q, want a refusal with a hint", name, err, curfew.HintOf(err))
		}
	}
	if err := prepareDemo(full, true); err == nil {
		t.Error("force took a folder that demo did not make")
	}
	for _, path := range []string{filepath.Join(full, "library.db"), filepath.Join(edited, "library.db"), filepath.Join(garbled, "library.db")} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("a refusal removed something: %v", err)
		}
	}
	if err := prepareDemo(edited, true); err != nil {
		t.Errorf("force: %v", err)
	}
	if got := names(t, edited); !slices.Equal(got, []string{demoManifest}) {
		t.Errorf("after force there is %v", got)
	}
}

package policy_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/policy"
	"github.com/google/go-cmp/cmp"
)

// FuzzParse looks for files that end the process, for errors without a place
// or a reason, for secrets in errors, and for accepted files whose policies do
// not survive being stored.
func FuzzParse(f *testing.F) {
	for _, pattern := range []string{"testdata/good/*.yaml", "testdata/bad/*.yaml"} {
		files, err := globAll(pattern)
		if err != nil {
			f.Fatal(err)
		}
		for _, data := range files {
			f.Add(data)
		}
	}
	f.Add([]byte(valid))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := policy.Parse(data, options("curfew.yaml"))
		if err == nil {
			for _, p := range file.Policies {
				_, canonical := p.Revision()
				again, err := policy.FromRevision(canonical)
				if err != nil {
					t.Fatalf("policy %s: %v", p.Name, err)
				}
				if diff := cmp.Diff(p, again, unexported); diff != "" {
					t.Fatalf("policy %s:\n%s", p.Name, diff)
				}
				asOf := time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)
				if c := p.Cutoff(asOf); c.After(asOf) || !p.Trigger.Until && !c.Before(asOf) {
					t.Fatalf("policy %s: cutoff %v", p.Name, c)
				}
			}
			for _, task := range file.Tasks {
				if _, canonical := task.Revision(); strings.Contains(string(canonical), "hush") && !strings.Contains(string(data), "hush") {
					t.Fatalf("task %s: an expanded secret is in the revision: %s", task.Name, canonical)
				}
			}
			return
		}
		var all policy.Errors
		if !errors.As(err, &all) || len(all) == 0 || file != nil {
			t.Fatalf("error %T %v with file %v", err, err, file)
		}
		for _, e := range all {
			if e.Problem == "" || strings.ContainsRune(e.Source, '\n') {
				t.Fatalf("%#v", e)
			}
		}
		if strings.Contains(err.Error(), "hush") && !strings.Contains(string(data), "hush") {
			t.Fatalf("an expanded secret is in the message: %v", err)
		}
	})
}

func globAll(pattern string) ([][]byte, error) {
	dir := strings.TrimSuffix(pattern, "/*.yaml")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all [][]byte
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".yaml") {
			data, err := os.ReadFile(dir + "/" + e.Name())
			if err != nil {
				return nil, err
			}
			all = append(all, data)
		}
	}
	return all, nil
}

// TestHostileFilesEndSoon feeds shapes that make recursive or quadratic
// parsers suffer.
func TestHostileFilesEndSoon(t *testing.T) {
	for _, piece := range []string{"[", "{", "- ", "? ", "{a: ", "[a, ", "a: [\n", "!t ", "&a ", "*a ", "'", "\"", "a:\n ", "#\n", "-\n", "|\n", "a: |\n b\n", "%\n", "---\n", "...\n", "a: b: ", "<<: ", "\t", "a: ${", ",", "]", "}"} {
		data := []byte("version: 1\n" + strings.Repeat(piece, (32<<10)/len(piece)))
		done := make(chan error, 1)
		go func() {
			_, err := policy.Parse(data, options("curfew.yaml"))
			done <- err
		}()
		select {
		case err := <-done:
			if err == nil {
				t.Errorf("a file of %q is accepted", piece)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("a file of %q is still being read", piece)
		}
	}
	// Indented deeper and deeper.
	var b strings.Builder
	for i := range 400 {
		fmt.Fprintf(&b, "%sa:\n", strings.Repeat(" ", i))
	}
	if _, err := policy.Parse([]byte(b.String()), options("curfew.yaml")); err == nil || !strings.Contains(err.Error(), "nested too deeply") {
		t.Errorf("400 levels: %.200v", err)
	}
}

// Package stage is what the examples have in common: a folder with the real program in it, whose commands are shown with
// their answers, and a list of claims that are checked at the end.
//
// Its one invariant: nothing on the stage is acted. Every command is a process, and every answer is what that printed.
package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Stage is where an example plays.
type Stage struct {
	Dir string // the folder of the policy file, the ledger and the program
	out io.Writer
	bin string

	failed int
}

// New makes the folder, which must be empty or not there yet, and puts the program into it: the one at bin, or, where that is
// "", one that is built from this module. Without a folder it makes one below the system's for temporary files. Nothing in
// it is ever removed: it is there to be looked at.
func New(ctx context.Context, out io.Writer, name, dir, bin string) (*Stage, error) {
	var err error
	if dir == "" {
		dir, err = os.MkdirTemp("", "curfew-"+name+"-")
	} else if err = os.MkdirAll(dir, 0o777); err == nil {
		dir, err = filepath.Abs(dir)
	}
	if err != nil {
		return nil, err
	}
	if entries, err := os.ReadDir(dir); err != nil {
		return nil, err
	} else if len(entries) > 0 {
		return nil, fmt.Errorf("%s has files in it: -dir names an empty folder, or one that is not there yet", dir)
	}
	s := &Stage{Dir: dir, out: out, bin: bin}
	if bin != "" {
		s.bin, err = filepath.Abs(bin)
		return s, err
	}
	s.bin = filepath.Join(dir, "curfew")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", s.bin, "curfew.dev/curfew/cmd/curfew")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build of curfew: %w\n%s", err, said)
	}
	return s, nil
}

// Path is that of a file in the folder.
func (s *Stage) Path(name string) string { return filepath.Join(s.Dir, name) }

// Bin is the program.
func (s *Stage) Bin() string { return s.bin }

// Say tells what happens next.
func (s *Stage) Say(format string, args ...any) { fmt.Fprintf(s.out, "\n"+format+"\n", args...) }

// Line adds to what was said.
func (s *Stage) Line(format string, args ...any) { fmt.Fprintf(s.out, "  "+format+"\n", args...) }

// command is the program in the folder, quiet about what is no trouble.
func (s *Stage) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, s.bin, args...)
	cmd.Dir = s.Dir
	cmd.Env = append(os.Environ(), "CURFEW_LOG=warn", "NO_COLOR=1", "CURFEW_CONFIG=")
	return cmd
}

// Command shows a command and what it prints. Another exit code than the one that is expected is an error.
func (s *Stage) Command(ctx context.Context, code int, args ...string) error {
	fmt.Fprintf(s.out, "\n$ curfew %s\n", typed(args))
	cmd := s.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = s.out, s.out
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		return err
	}
	switch got := cmd.ProcessState.ExitCode(); {
	case got != code:
		return fmt.Errorf("curfew %s ended with exit code %d and not %d", strings.Join(args, " "), got, code)
	case got != 0:
		fmt.Fprintf(s.out, "(exit code %d)\n", got)
	}
	return nil
}

// typed is how somebody would type the arguments.
func typed(args []string) string {
	words := make([]string, len(args))
	for i, arg := range args {
		if words[i] = arg; strings.Contains(arg, " ") {
			words[i] = `"` + arg + `"`
		}
	}
	return strings.Join(words, " ")
}

// Text is what a command answers, without showing it.
func (s *Stage) Text(ctx context.Context, args ...string) (string, error) {
	var out, diag bytes.Buffer
	cmd := s.command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &diag
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("curfew %s: %w\n%s", strings.Join(args, " "), err, diag.String())
	}
	return strings.TrimSpace(out.String()), nil
}

// Answer reads what a command answers as JSON.
func (s *Stage) Answer(ctx context.Context, into any, args ...string) error {
	text, err := s.Text(ctx, append(args, "--output", "json")...)
	if err != nil {
		return err
	}
	return json.Unmarshal([]byte(text), into)
}

// Check states a claim, and whether it holds.
func (s *Stage) Check(holds bool, format string, args ...any) {
	word := "ok    "
	if !holds {
		word = "FAILED"
		s.failed++
	}
	s.Line(word+"  "+format, args...)
}

// Verdict is an error when a claim did not hold.
func (s *Stage) Verdict() error {
	if s.failed > 0 {
		return fmt.Errorf("%d of the claims above do not hold; the files are in %s", s.failed, s.Dir)
	}
	return nil
}

// Patience is for what must happen, on a machine that has much else to do.
const Patience = time.Minute

// Until waits for something that must come about.
func Until(ctx context.Context, patience time.Duration, what string, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, errors.New("it did not happen within "+patience.String()))
	defer cancel()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		switch ok, err := holds(); {
		case err != nil:
			return fmt.Errorf("waiting until %s: %w", what, err)
		case ok:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, context.Cause(ctx))
		case <-again.C:
		}
	}
}

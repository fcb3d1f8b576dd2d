//go:build unix

package task_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"curfew.dev/curfew/task"
)

// childArg makes this test binary the program of a command; the role follows.
const childArg = "-as-a-child"

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == childArg {
		os.Exit(child(os.Args[2], os.Args[3:]))
	}
	os.Exit(m.Run())
}

// child is what the programs of the tests do.
func child(role string, args []string) int {
	switch role {
	case "tell": // what it was told
		input, err := io.ReadAll(os.Stdin)
		if err != nil {
			return 99
		}
		env := slices.DeleteFunc(os.Environ(), func(e string) bool { return !strings.HasPrefix(e, "CURFEW_") && !strings.HasPrefix(e, "TASK_") })
		dir, _ := os.Getwd()
		_ = json.NewEncoder(os.Stdout).Encode(told{string(input), env, args, dir})
	case "exit":
		fmt.Println("to stdout")
		fmt.Fprintln(os.Stderr, "the reason")
		code, _ := strconv.Atoi(args[0])
		return code
	case "print":
		fmt.Print(args[0])
	case "flood":
		for i := range 20000 {
			fmt.Printf("line %d of many\n", i)
		}
		fmt.Print("the end")
	case "crash":
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case "obey":
		term := make(chan os.Signal, 1)
		signal.Notify(term, syscall.SIGTERM)
		fmt.Println("ready")
		<-term
		fmt.Println("ending")
	case "ignore":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		wait()
	case "hold": // until the connection is lost, which tells the test that it is no more
		signal.Ignore(syscall.SIGTERM)
		c, err := net.Dial("tcp", args[0])
		if err != nil {
			return 99
		}
		fmt.Println("ready")
		_, _ = c.Read(make([]byte, 1))
	case "leave", "lead": // a process that holds the output; lead waits with it
		cmd := exec.Command(os.Args[0], childArg, "hold", args[0])
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			return 99
		}
		if role == "lead" {
			wait()
		}
		fmt.Println("left")
	default:
		return 98
	}
	return 0
}

func wait() {
	for { // not select{}: with nothing else to do that is a deadlock
		time.Sleep(time.Hour)
	}
}

type told struct {
	Input string
	Env   []string
	Args  []string
	Dir   string
}

func command(t *testing.T, role string, args ...string) task.Command {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return task.Command{Argv: append([]string{exe, childArg, role}, args...)}
}

// seen calls do once, when the output contains text.
type seen struct {
	text string
	do   func()
	all  bytes.Buffer
	done bool
}

func (s *seen) Write(b []byte) (int, error) {
	s.all.Write(b)
	if !s.done && strings.Contains(s.all.String(), s.text) {
		s.done = true
		s.do()
	}
	return len(b), nil
}

func TestCommandIsTold(t *testing.T) {
	t.Setenv("CURFEW_KEY", "the installation's key")
	t.Setenv("TASK_INHERITED", "yes")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	manual := info
	manual.Scheduled = time.Time{}
	long := json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
	for name, c := range map[string]struct {
		info        task.Info
		args        json.RawMessage
		input, envs string
	}{
		"periodic": {info, json.RawMessage(`{"a":"<b> & ü"}`), `{"task":"core.clear","id":7,"scheduled_at":"2026-03-02T02:42:00Z","attempt":2,"attempts":5,"args":{"a":"<b> & ü"}}`,
			`CURFEW_ARGS={"a":"<b> & ü"}|CURFEW_SCHEDULED_AT=2026-03-02T02:42:00Z|`},
		"manual": {manual, nil, `{"task":"core.clear","id":7,"scheduled_at":"","attempt":2,"attempts":5,"args":null}`, `CURFEW_ARGS=null|CURFEW_SCHEDULED_AT=|`},
		"long":   {manual, long, `{"task":"core.clear","id":7,"scheduled_at":"","attempt":2,"attempts":5,"args":` + string(long) + `}`, `CURFEW_SCHEDULED_AT=|`},
	} {
		cmd := command(t, "tell", "a b", "$HOME", "*")
		cmd.Dir, cmd.Env = dir, []string{"TASK_OWN=x"}
		var out bytes.Buffer
		if _, err := cmd.Run(t.Context(), c.info, c.args, []string{"--dry-run", ""}, &out); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got told
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v in %s", name, err, out.String())
		}
		if strings.TrimSuffix(got.Input, "\n") != c.input {
			t.Errorf("%s: stdin %.300s", name, got.Input)
		}
		want := strings.Split(c.envs+"CURFEW_ATTEMPT=2|CURFEW_ATTEMPTS=5|CURFEW_CALL_ID=7|CURFEW_TASK=core.clear|TASK_INHERITED=yes|TASK_OWN=x", "|")
		slices.Sort(want)
		slices.Sort(got.Env)
		if !slices.Equal(got.Env, want) {
			t.Errorf("%s: environment\n%q, want\n%q", name, got.Env, want)
		}
		if want := []string{"a b", "$HOME", "*", "--dry-run", ""}; !slices.Equal(got.Args, want) || got.Dir != dir {
			t.Errorf("%s: words %q in %s, want %q in %s", name, got.Args, got.Dir, want, dir)
		}
	}
}

func TestCommandExitCodes(t *testing.T) {
	for name, c := range map[string]struct {
		code        int
		retry, fail []int
		failed      bool
		final       bool
	}{
		"done":           {code: 0},
		"any":            {code: 3, failed: true},
		"fail":           {code: 65, fail: []int{78, 65}, failed: true, final: true},
		"other of fail":  {code: 3, fail: []int{65}, failed: true},
		"retry":          {code: 75, retry: []int{75}, failed: true},
		"other of retry": {code: 3, retry: []int{75}, failed: true, final: true},
		"other of both":  {code: 3, retry: []int{75}, fail: []int{65}, failed: true},
	} {
		cmd := command(t, "exit", strconv.Itoa(c.code))
		cmd.RetryCodes, cmd.FailCodes = c.retry, c.fail
		tail, err := cmd.Run(t.Context(), info, nil, nil, nil)
		if (err != nil) != c.failed || task.IsFinal(err) != c.final {
			t.Errorf("%s: %v, final %v", name, err, task.IsFinal(err))
		}
		if c.failed && err.Error() != fmt.Sprintf("exit status %d: the reason", c.code) {
			t.Errorf("%s: %v", name, err)
		}
		if tail != "to stdout\nthe reason\n" {
			t.Errorf("%s: tail %q", name, tail)
		}
	}
}

// TestCommandDiesOfASignal: nobody's exit code, so it says nothing about the work.
func TestCommandDiesOfASignal(t *testing.T) {
	cmd := command(t, "crash")
	cmd.RetryCodes = []int{75}
	if _, err := cmd.Run(t.Context(), info, nil, nil, nil); err == nil || task.IsFinal(err) || !strings.Contains(err.Error(), "signal: killed") {
		t.Error(err)
	}
}

func TestCommandThatCannotStart(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, mode os.FileMode, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	write("plain", 0o644, "x")
	write("binary", 0o755, "neither a script nor a program")
	write("script", 0o755, "#!/no/such/shell\n")
	for name, c := range map[string]struct {
		cmd  task.Command
		want string
	}{
		"not in PATH":    {task.Command{Argv: []string{"no-such-program"}}, `there is no program "no-such-program" in PATH`},
		"not there":      {task.Command{Argv: []string{"./no-such-program"}, Dir: dir}, `there is no program "./no-such-program"`},
		"no directory":   {task.Command{Argv: []string{"./plain"}, Dir: filepath.Join(dir, "none")}, "working directory"},
		"not executable": {task.Command{Argv: []string{"./plain"}, Dir: dir}, "may not be executed"},
		"no program":     {task.Command{Argv: []string{"./binary"}, Dir: dir}, "cannot be executed by this system"},
		"no interpreter": {task.Command{Argv: []string{"./script"}, Dir: dir}, "interpreter"},
		"nothing":        {task.Command{}, "names no program"},
		"zero byte":      {task.Command{Argv: []string{"x", "a\x00b"}}, "zero byte"},
		"environment":    {task.Command{Argv: []string{"x"}, Env: []string{"hush"}}, "not NAME=value"},
		"two meanings":   {task.Command{Argv: []string{"x"}, RetryCodes: []int{3}, FailCodes: []int{3}}, "exit code 3 means both"},
		"no failure":     {task.Command{Argv: []string{"x"}, FailCodes: []int{0}}, "exit code 0"},
	} {
		if _, err := c.cmd.Run(t.Context(), info, nil, nil, nil); !task.IsFinal(err) || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: %v, want a final error with %q", name, err, c.want)
		}
	}
	if _, err := command(t, "tell").Run(t.Context(), info, json.RawMessage("{"), nil, nil); !task.IsFinal(err) {
		t.Errorf("arguments that are no JSON: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := command(t, "tell").Run(ctx, info, nil, nil, nil); !errors.Is(err, context.Canceled) || task.IsFinal(err) {
		t.Errorf("after the end: %v", err)
	}
}

func TestCommandDoesNotReadItsInput(t *testing.T) {
	args := json.RawMessage(`"` + strings.Repeat("x", 1<<20) + `"`)
	if tail, err := command(t, "print", "done").Run(t.Context(), info, args, nil, nil); err != nil || tail != "done" {
		t.Errorf("%q, %v", tail, err)
	}
}

func TestCommandEndsOnTERM(t *testing.T) {
	why := errors.New("the service stops")
	ctx, cancel := context.WithCancelCause(t.Context())
	tail, err := command(t, "obey").Run(ctx, info, nil, nil, &seen{text: "ready\n", do: func() { cancel(why) }})
	if !errors.Is(err, why) || task.IsFinal(err) || !strings.Contains(err.Error(), "(TERM)") {
		t.Errorf("%v", err) // its exit code was 0, and it was not done
	}
	if tail != "ready\nending\n" {
		t.Errorf("tail %q", tail)
	}
}

func TestCommandThatIgnoresTERM(t *testing.T) {
	cmd := command(t, "ignore")
	cmd.KillAfter = 50 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	tail, err := cmd.Run(ctx, info, nil, nil, &seen{text: "ready\n", do: cancel})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "(KILL)") || tail != "ready\n" {
		t.Errorf("%q, %v", tail, err)
	}
}

func TestCommandDeadline(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	cmd := command(t, "ignore")
	cmd.KillAfter = 50 * time.Millisecond
	if _, err := cmd.Run(ctx, info, nil, nil, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// listen gives processes somewhere to hold on to. Its second result waits until
// the one that did has ended.
func listen(t *testing.T) (address string, accept func() net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String(), func() net.Conn {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() }) // which ends it
		return c
	}
}

// TestCommandGroupIsEnded: what the program started does not survive it, though
// it ignores TERM.
func TestCommandGroupIsEnded(t *testing.T) {
	address, accept := listen(t)
	cmd := command(t, "lead", address)
	cmd.KillAfter = 100 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	_, err := cmd.Run(ctx, info, nil, nil, &seen{text: "ready\n", do: cancel})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "KILL") {
		t.Error(err)
	}
	c := accept()
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := bufio.NewReader(c).ReadByte(); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("what the program started is still there")
	}
}

// TestCommandLeavesAProcess: one that holds the output open is not waited for, nor
// ended.
func TestCommandLeavesAProcess(t *testing.T) {
	address, accept := listen(t)
	tail, err := command(t, "leave", address).Run(t.Context(), info, nil, nil, nil)
	if err != nil || !strings.Contains(tail, "left\n") {
		t.Errorf("%q, %v", tail, err)
	}
	if _, err := accept().Write([]byte("x")); err != nil {
		t.Errorf("what the program left behind was ended: %v", err)
	}
}

func TestCommandTail(t *testing.T) {
	tail, err := command(t, "flood").Run(t.Context(), info, nil, nil, nil)
	if err != nil || len(tail) != task.MaxTail || !strings.HasSuffix(tail, "line 19999 of many\nthe end") {
		t.Errorf("%d bytes, %v: …%q", len(tail), err, tail[max(0, len(tail)-60):])
	}
	var out bytes.Buffer
	if _, err := command(t, "flood").Run(t.Context(), info, nil, nil, &out); err != nil || strings.Count(out.String(), "\n") != 20000 {
		t.Errorf("%d lines, %v", strings.Count(out.String(), "\n"), err)
	}
	// A reader who left stops nobody.
	if tail, err := command(t, "flood").Run(t.Context(), info, nil, nil, gone{}); err != nil || !strings.HasSuffix(tail, "the end") {
		t.Error(err)
	}
}

type gone struct{}

func (gone) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestCommandHidesItsEnvironment(t *testing.T) {
	for name, c := range map[string]struct{ env, print, want string }{
		"value":    {"A=hush-1", "the password is hush-1!", "the password is …!"},
		"twice":    {"A=hush-1", "hush-1hush-1", "……"},
		"longest":  {"A=hush\nB=hush-1", "hush-1 hush", "… …"},
		"short":    {"A=no", "no", "no"},
		"lines":    {"A=hush-one\thush-two", "hush-two\nhush-one", "…\n…"}, // the tab stands for a line break
		"bad text": {"A=hush-1", "\xff\xfehush-1\xc3", "\uFFFD…\uFFFD"},
	} {
		cmd := command(t, "print", c.print)
		for _, entry := range strings.Split(c.env, "\n") {
			cmd.Env = append(cmd.Env, strings.ReplaceAll(entry, "\t", "\n"))
		}
		if tail, err := cmd.Run(t.Context(), info, nil, nil, nil); err != nil || tail != c.want {
			t.Errorf("%s: %q, %v, want %q", name, tail, err, c.want)
		}
	}
	cmd := command(t, "exit", "3")
	cmd.Env = []string{"A=reason"}
	if _, err := cmd.Run(t.Context(), info, nil, nil, nil); err == nil || strings.Contains(err.Error(), "reason") {
		t.Errorf("the error shows it: %v", err)
	}
}

// TestTailIsText cuts an output at every byte of a secret and of a character.
func TestTailIsText(t *testing.T) {
	const secret = "hush-hush-hush"
	for shift := range 40 {
		text := "ü" + secret + "ü" + strings.Repeat("é", (task.MaxTail-20)/2) + strings.Repeat("x", shift)
		tail := task.TailOf([]string{"A=" + secret}, text)
		if !utf8.ValidString(tail) || strings.Contains(tail, "\uFFFD") || len(tail) > task.MaxTail || len(tail) < task.MaxTail-40 {
			t.Errorf("shift %d: %d bytes, %.40q", shift, len(tail), tail)
		}
		if strings.Contains(tail, "sh") || strings.Contains(tail, "hu") {
			t.Errorf("shift %d shows a part of the secret: %.40q", shift, tail)
		}
		// Blanked out, the output is shorter than what is kept of it.
		if tail := task.TailOf([]string{"A=swordfish-0123"}, strings.Repeat("swordfish-0123", 1000)+strings.Repeat("x", shift)); strings.Trim(tail, "…x") != "" {
			t.Errorf("shift %d shows a part of the secret: %.40q", shift, tail)
		}
	}
}

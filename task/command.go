package task

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Command is a task done by a program. There is no shell: Argv[0] is the program,
// looked up in PATH when it has no slash, and each further word reaches it as it
// is.
type Command struct {
	Argv []string
	Dir  string // the working directory, from which a relative Argv[0] starts; "" is this process's
	// Env are NAME=value on top of this process's environment, of which the program
	// gets all but what begins with CURFEW_. Its values may be secrets: they are
	// blanked out in the tail and in errors.
	Env       []string
	KillAfter time.Duration // from TERM to KILL; default ten seconds

	// Exit code 0 is success. One of FailCodes is a final failure, one of RetryCodes
	// is tried again. Any other is tried again too, unless RetryCodes alone are
	// given: then it is final.
	RetryCodes, FailCodes []int
}

// DefaultKillAfter is how long a program may take to end once it was told to.
const DefaultKillAfter = 10 * time.Second

// lingering is how long the output of a program that has ended is waited for:
// something that it left behind may hold it open for ever.
const lingering = time.Second

// maxEnvArgs is how many bytes of arguments CURFEW_ARGS holds: systems bound the
// length of a variable, and refuse to start a program with a longer one.
const maxEnvArgs = 64 << 10

// Check says what of the command cannot be used.
func (c Command) Check() error {
	switch {
	case len(c.Argv) == 0 || c.Argv[0] == "":
		return errors.New("the command names no program")
	case c.KillAfter < 0:
		return fmt.Errorf("KillAfter is %s; it cannot be negative", c.KillAfter)
	}
	for _, word := range c.Argv {
		if strings.ContainsRune(word, 0) {
			return errors.New("a word of the command contains a zero byte")
		}
	}
	for _, entry := range c.Env {
		if name, value, ok := strings.Cut(entry, "="); !ok || name == "" || strings.ContainsRune(value, 0) {
			return errors.New("an entry of the environment is not NAME=value") // without repeating what may be a secret
		}
	}
	for _, code := range slices.Concat(c.RetryCodes, c.FailCodes) {
		if code < 1 || code > 255 {
			return fmt.Errorf("there is no exit code %d that could mean a failure; they are from 1 to 255", code)
		}
		if slices.Contains(c.RetryCodes, code) && slices.Contains(c.FailCodes, code) {
			return fmt.Errorf("exit code %d means both retry and fail", code)
		}
	}
	return nil
}

// Run executes one attempt, with more words after those of Argv. The program
// leads a process group of its own. When ctx ends, by its deadline or by
// cancellation, the whole group gets TERM and, KillAfter later, KILL; the error
// then wraps that of ctx.
//
// On its standard input the program gets the call as JSON,
//
//	{"task": "…", "id": 7, "scheduled_at": "2026-03-02T02:42:00Z", "attempt": 1, "attempts": 5, "args": {…}}
//
// with an empty scheduled_at when the call is not a periodic one, and null for no
// arguments; it need not read it. The same is in its environment, as CURFEW_TASK,
// CURFEW_CALL_ID, CURFEW_SCHEDULED_AT, CURFEW_ATTEMPT, CURFEW_ATTEMPTS and
// CURFEW_ARGS; the last is left out where it would be longer than 64 KiB.
//
// What the program writes to its standard output and standard error goes to out
// as it comes, unless that is nil. The tail is the last 4 KiB of it, as valid
// UTF-8 and without the values of Env. Processes that the program leaves behind
// when it ends are let be, but what they write after a second is lost.
//
// On systems without process groups and signals the program alone is ended, at
// once.
func (c Command) Run(ctx context.Context, info Info, args json.RawMessage, more []string, out io.Writer) (tail string, err error) {
	if err := c.Check(); err != nil {
		return "", Fail(err)
	}
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("the command was not started: %w", err)
	}
	input, err := info.Input(args)
	if err != nil {
		return "", Fail(err)
	}
	secrets := secretsOf(c.Env)
	p, err := c.start(info, args, more, input, newTail(secrets, out))
	if err != nil {
		return "", err
	}
	ended := p.wait(ctx, cmp.Or(c.KillAfter, DefaultKillAfter))
	tail = p.tail.String()
	switch cause := context.Cause(ctx); {
	case ended != "" && errors.Is(cause, context.DeadlineExceeded):
		return tail, fmt.Errorf("its timeout was over before the command was done, and it was ended (%s): %w", ended, cause)
	case ended != "":
		return tail, fmt.Errorf("the command was ended (%s) before it was done: %w", ended, cause)
	default:
		return tail, c.judge(p.cmd.ProcessState, tail)
	}
}

// judge says what the end of a program means.
func (c Command) judge(state *os.ProcessState, tail string) error {
	if state.Success() {
		return nil
	}
	text := state.String() // exit status 3, signal: killed
	if last := lastLine(tail); last != "" {
		text += ": " + last
	}
	err := errors.New(text)
	code := state.ExitCode() // -1 after a signal, which says nothing about the work
	onlyRetry := len(c.RetryCodes) > 0 && len(c.FailCodes) == 0
	if slices.Contains(c.FailCodes, code) || onlyRetry && code > 0 && !slices.Contains(c.RetryCodes, code) {
		return Fail(err)
	}
	return err
}

// process is a program that was started.
type process struct {
	cmd    *exec.Cmd
	exited chan struct{}
	output *os.File // our end
	tail   *tail
	copied chan struct{}
}

// start starts the program with pipes of our own: those of os/exec make Wait
// wait for whoever holds them.
func (c Command) start(info Info, args json.RawMessage, more []string, input []byte, t *tail) (*process, error) {
	cmd := exec.Command(c.Argv[0], slices.Concat(c.Argv[1:], more)...)
	cmd.Dir, cmd.Env = c.Dir, slices.Concat(inherited(os.Environ()), c.Env, variables(info, args))
	ownGroup(cmd)
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start the command: %w", err)
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		inRead.Close()
		inWrite.Close()
		return nil, fmt.Errorf("cannot start the command: %w", err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inRead, outWrite, outWrite
	err = cmd.Start()
	inRead.Close()
	outWrite.Close()
	if err != nil {
		inWrite.Close()
		outRead.Close()
		return nil, c.notStarted(err)
	}
	p := &process{cmd: cmd, exited: make(chan struct{}), output: outRead, tail: t, copied: make(chan struct{})}
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = inWrite.Write(input) // a program that does not read it is none the worse
		inWrite.Close()
	}()
	go func() {
		defer close(p.copied)
		_, _ = io.Copy(t, outRead)
	}()
	go func() {
		defer close(p.exited)
		_ = cmd.Wait() // its error is in ProcessState
		inWrite.Close()
		<-written
	}()
	return p, nil
}

// notStarted says why a program could not be started. What will not be different
// next time is final.
func (c Command) notStarted(err error) error {
	switch {
	case c.Dir != "" && !isDir(c.Dir):
		return Fail(fmt.Errorf("the command's working directory %q does not exist, or is none", c.Dir))
	case errors.Is(err, exec.ErrDot):
		return Fail(fmt.Errorf("the program %q is in the working directory; write ./%s to run it from there", c.Argv[0], c.Argv[0]))
	case errors.Is(err, exec.ErrNotFound):
		return Fail(fmt.Errorf("there is no program %q in PATH", c.Argv[0]))
	case errors.Is(err, os.ErrNotExist):
		return Fail(fmt.Errorf("there is no program %q, or not what it names as its interpreter", c.Argv[0]))
	case errors.Is(err, os.ErrPermission):
		return Fail(fmt.Errorf("the program %q may not be executed", c.Argv[0]))
	case badProgram(err):
		return Fail(fmt.Errorf("the program %q cannot be executed by this system; a script needs a first line such as #!/bin/sh", c.Argv[0]))
	}
	return fmt.Errorf("cannot start the program %q: %w", c.Argv[0], err)
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// wait waits for the program's end, which it brings about when ctx ends. It
// returns the signal that ended the program, or "" when it ended by itself.
func (p *process) wait(ctx context.Context, killAfter time.Duration) (ended string) {
	select {
	case <-p.exited:
	case <-ctx.Done():
		select {
		case <-p.exited: // both at once: the program was done
		default:
			ended = p.end(killAfter)
		}
	}
	linger := time.NewTimer(lingering)
	defer linger.Stop()
	select {
	case <-p.copied:
	case <-linger.C:
	}
	p.output.Close()
	<-p.copied
	return ended
}

// Input is the call as JSON: what a command reads on its standard input, and a
// request has as its body where it has no other.
func (info Info) Input(args json.RawMessage) ([]byte, error) {
	if len(bytes.TrimSpace(args)) == 0 {
		args = json.RawMessage("null")
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // the program may show it to people
	err := enc.Encode(struct {
		Task        string          `json:"task"`
		ID          int64           `json:"id"`
		ScheduledAt string          `json:"scheduled_at"`
		Attempt     int             `json:"attempt"`
		Attempts    int             `json:"attempts"`
		Args        json.RawMessage `json:"args"`
	}{info.Task, info.ID, scheduledText(info), info.Attempt, info.Attempts, args})
	if err != nil {
		return nil, errors.New("the arguments are no JSON")
	}
	return b.Bytes(), nil
}

func scheduledText(info Info) string {
	if info.Scheduled.IsZero() {
		return ""
	}
	return info.Scheduled.UTC().Format(time.RFC3339)
}

// inherited is what of our environment a program gets. What begins with CURFEW_
// is about this process, the installation's key among it.
func inherited(environ []string) []string {
	return slices.DeleteFunc(environ, func(entry string) bool { return strings.HasPrefix(entry, "CURFEW_") })
}

// variables are what the program learns from its environment.
func variables(info Info, args json.RawMessage) []string {
	env := []string{
		"CURFEW_TASK=" + info.Task,
		"CURFEW_CALL_ID=" + strconv.FormatInt(info.ID, 10),
		"CURFEW_SCHEDULED_AT=" + scheduledText(info),
		"CURFEW_ATTEMPT=" + strconv.Itoa(info.Attempt),
		"CURFEW_ATTEMPTS=" + strconv.Itoa(info.Attempts),
	}
	switch text := string(bytes.TrimSpace(args)); {
	case text == "":
		env = append(env, "CURFEW_ARGS=null")
	case len(text) <= maxEnvArgs:
		env = append(env, "CURFEW_ARGS="+text)
	}
	return env
}

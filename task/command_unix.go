//go:build unix

package task

import (
	"errors"
	"os/exec"
	"syscall"
	"time"
)

// ownGroup makes the program lead a process group, so that what it starts can be
// ended with it.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
}

// groupPoll is how often a group whose leader has ended is looked for. Nothing
// tells when the last process of a group goes.
const groupPoll = 10 * time.Millisecond

// end ends the whole group, and returns the signal that did.
func (p *process) end(killAfter time.Duration) string {
	group := -p.cmd.Process.Pid
	_ = syscall.Kill(group, syscall.SIGTERM) // there is no group: all have ended
	kill := time.NewTimer(killAfter)
	defer kill.Stop()
	select {
	case <-p.exited:
	case <-kill.C:
		_ = syscall.Kill(group, syscall.SIGKILL)
		<-p.exited
		return "KILL"
	}
	// The leader obeyed. Those that it started may need as long, or not obey.
	poll := time.NewTicker(groupPoll)
	defer poll.Stop()
	for syscall.Kill(group, 0) == nil {
		select {
		case <-poll.C:
		case <-kill.C:
			_ = syscall.Kill(group, syscall.SIGKILL)
			return "TERM, and KILL to what it had started"
		}
	}
	return "TERM"
}

// badProgram reports whether the system does not know how to execute a file.
func badProgram(err error) bool { return errors.Is(err, syscall.ENOEXEC) }

package curfew

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"curfew.dev/curfew/api"
)

// checkTasks says when each task is called, and whether this machine could do it.
func (c *Curfew) checkTasks(ctx context.Context, names []string) []api.Finding {
	var findings []api.Finding
	now, err := c.now(ctx)
	for _, name := range c.TaskNames() {
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		d := c.tasks[name]
		good := api.Finding{Policy: name, Level: api.LevelGood, Code: "task", Message: "called when somebody defers it"}
		if d.timing.Schedule != nil {
			good.Message = scheduleInWords(d.timing)
			if next := nextInstants(d.timing, now); err == nil && len(next) > 0 {
				good.Message += "; next " + instantsInWords(d.timing, next)
			}
		}
		findings = append(findings, good)
		if d.kind != api.TaskCommand {
			continue
		}
		dir := c.file.TaskDir(d.spec)
		if !isFolder(dir) {
			findings = append(findings, api.Finding{Policy: name, Level: api.LevelWarn, Code: "task_folder", Message: "there is no folder " + dir + " here",
				Hint: "make it, or correct dir; where curfew serve works, it must be there"})
			continue
		}
		if err := findCommand(dir, d.spec.Command[0]); err != nil {
			findings = append(findings, api.Finding{Policy: name, Level: api.LevelWarn, Code: "task_command", Message: err.Error(),
				Hint: "where curfew serve works, it must be there; a path that is relative starts from " + dir})
		}
	}
	return findings
}

// findCommand looks for a program as starting it in dir would.
func findCommand(dir, name string) error {
	path := name
	if strings.ContainsRune(name, filepath.Separator) && !filepath.IsAbs(name) {
		abs, err := filepath.Abs(filepath.Join(dir, name)) // joined to the folder "." it would lose its ./, and be looked for in PATH
		if err != nil {
			return err
		}
		path = abs
	}
	_, err := exec.LookPath(path)
	if err == nil || errors.Is(err, exec.ErrDot) {
		return nil
	}
	return fmt.Errorf("the command %s cannot be found here, or not be executed", name)
}

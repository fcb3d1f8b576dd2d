package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// batching is how curfew is told to go about it; the zero value is its defaults.
type batching struct{ rows, inFlight int }

func (b batching) title() string {
	if b.inFlight == 0 {
		return "`curfew run`, its defaults"
	}
	return fmt.Sprintf("`curfew run` flat out, %d × %s", b.inFlight, thousands(b.rows))
}

// curfew is the real program: it pages, keeps its ledger and writes receipts with an outcome for each row.
func curfew(s *settings, b batching) contender {
	home := filepath.Join(s.dir, fmt.Sprintf("home-%d-%d", b.rows, b.inFlight))
	return contender{
		name: b.title(),
		prepare: func(ctx context.Context, a *arena) error {
			return prepareCurfew(ctx, s, home, a, b)
		},
		run: func(ctx context.Context, a *arena) (effort, error) {
			_, e, err := runCurfew(ctx, s, home, a.table.cutoff())
			return e, err
		},
	}
}

// prepareCurfew gives curfew an empty folder with a policy for the arena, and installs what it needs in the database.
func prepareCurfew(ctx context.Context, s *settings, home string, a *arena, b batching) error {
	if err := os.RemoveAll(home); err != nil {
		return err
	}
	if err := os.Mkdir(home, 0o755); err != nil {
		return err
	}
	until, more := "at", ""
	if !strings.HasPrefix(a.url, "postgres") {
		until = "{column: at, zone: UTC}"
	}
	if strings.HasPrefix(a.url, "sqlite") {
		until = "{column: at, format: iso8601, zone: UTC}"
	}
	if a.table.child {
		more += "    cascade: [ev_item]\n"
	}
	if b.inFlight > 0 {
		more += fmt.Sprintf("    batch: {rows: %d, in_flight: %d, pace: none}\n", b.rows, b.inFlight)
	}
	text := fmt.Sprintf(`version: 1
ledger: sqlite:ledger.db
databases:
  bench: {url: %q}
policies:
  ev:
    description: rows whose time is up
    authority: a benchmark
    database: bench
    table: ev
    until: %s
    action: delete
    mode: enforce
%s`, a.url, until, more)
	if err := os.WriteFile(filepath.Join(home, "curfew.yaml"), []byte(text), 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, s.curfew, "install", "bench")
	cmd.Dir = home
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("curfew install: %w\n%s", err, out)
	}
	return nil
}

// answer is what of a run's JSON is of interest here.
type answer struct {
	ID       string           `json:"id"`
	State    string           `json:"state"`
	Planned  int64            `json:"planned"`
	Outcomes map[string]int64 `json:"outcomes"`
	Batches  struct {
		Total int64 `json:"total"`
	} `json:"batches"`
}

// runCurfew runs the policy in the folder at an instant.
func runCurfew(ctx context.Context, s *settings, home string, asOf time.Time) (answer, effort, error) {
	var ans answer
	cmd := exec.CommandContext(ctx, s.curfew, "run", "ev", "--as-of", asOf.Format(time.RFC3339Nano), "--output", "json")
	cmd.Dir = home
	e, out, err := watch(cmd)
	if err != nil {
		return ans, e, fmt.Errorf("curfew run: %w", err)
	}
	if err := json.Unmarshal(out, &ans); err != nil {
		return ans, e, fmt.Errorf("curfew's answer: %w\n%s", err, out)
	}
	e.batches = ans.Batches.Total
	if ans.State != "succeeded" || ans.Planned != ans.Outcomes["deleted"] {
		return ans, e, fmt.Errorf("curfew's answer: %s", out)
	}
	return ans, e, nil
}

// watch runs a program and looks at what it uses.
func watch(cmd *exec.Cmd) (effort, []byte, error) {
	var e effort
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		return e, nil, err
	}
	over, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		every := time.NewTicker(20 * time.Millisecond)
		defer every.Stop()
		for {
			select {
			case <-over:
				return
			case <-every.C:
				e.rss = max(e.rss, peakRSS(cmd.Process.Pid))
			}
		}
	}()
	err := cmd.Wait()
	close(over)
	<-watched
	e.cpu = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, errs.Bytes())
	}
	return e, out.Bytes(), err
}

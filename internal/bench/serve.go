package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// A site is a folder that services run in: a policy file, and a ledger that nobody has used.
type site struct {
	s      *settings
	dir    string
	ledger *sql.DB
	lite   bool     // the ledger is on SQLite, beside the policy file
	env    []string // of every process
	drop   func() error
}

// ledgerName is where a ledger is, in the words of the report.
func ledgerName(lite bool) string {
	if lite {
		return "SQLite"
	}
	return "PostgreSQL"
}

const benchLedger = "curfew_bench_ledger"

// benchKey is the installation's key: a ledger on PostgreSQL has none beside it.
const benchKey = "CURFEW_KEY=00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

// newSite makes the folder, the ledger, and what curfew needs in the governed database. rest is the policy file without its
// version and ledger.
func newSite(ctx context.Context, s *settings, p *postgres, lite bool, rest string) (_ *site, err error) {
	w := &site{s: s, lite: lite, env: append(os.Environ(), benchKey)}
	if w.dir, err = os.MkdirTemp(s.dir, "site."); err != nil {
		return nil, err
	}
	w.drop = func() error { return os.RemoveAll(w.dir) }
	url := "sqlite:ledger.db"
	if !lite {
		if err := p.exec(ctx, "DROP DATABASE IF EXISTS "+benchLedger+" WITH (FORCE)", "CREATE DATABASE "+benchLedger); err != nil {
			return nil, errors.Join(err, w.drop())
		}
		url = p.url(benchLedger)
		folder := w.drop
		w.drop = func() error {
			return errors.Join(p.exec(context.WithoutCancel(ctx), "DROP DATABASE IF EXISTS "+benchLedger+" WITH (FORCE)"), folder())
		}
	}
	text := fmt.Sprintf("version: 1\nledger: %q\n%s", url, rest)
	if err := os.WriteFile(filepath.Join(w.dir, "curfew.yaml"), []byte(text), 0o600); err != nil {
		return nil, errors.Join(err, w.drop())
	}
	for _, args := range [][]string{{"migrate"}, {"install", "bench"}} {
		if _, err := w.curfew(ctx, args...); err != nil {
			return nil, errors.Join(err, w.drop())
		}
	}
	if lite {
		w.ledger, err = sql.Open("sqlite", "file:"+filepath.Join(w.dir, "ledger.db")+"?mode=ro&_pragma=busy_timeout(10000)")
	} else {
		w.ledger, err = pgOpen(url, 1)
	}
	if err != nil {
		return nil, errors.Join(err, w.drop())
	}
	return w, nil
}

func (w *site) close() error { return errors.Join(w.ledger.Close(), w.drop()) }

func (w *site) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, w.s.curfew, args...)
	cmd.Dir, cmd.Env = w.dir, w.env
	return cmd
}

// curfew runs the program to its end and returns what it answers.
func (w *site) curfew(ctx context.Context, args ...string) ([]byte, error) {
	cmd := w.command(ctx, args...)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("curfew %s: %w\n%s%s", args[0], err, out, errs.Bytes())
	}
	return out, err
}

// tokens makes tokens of one scope. The limit of calls is each token's, so that many of them may call more often.
func (w *site) tokens(ctx context.Context, scope string, n int) ([]string, error) {
	var out []string
	for range n {
		secret, err := w.curfew(ctx, "token", "create", "--scope", scope)
		if err != nil {
			return nil, err
		}
		out = append(out, strings.TrimSpace(string(secret)))
	}
	return out, nil
}

// A service is curfew serve or curfew worker, running.
type service struct {
	cmd  *exec.Cmd
	url  string // of curfew serve
	over chan struct{}
	err  error // once over
	last string
}

// start begins a service and waits until it says that it works.
func (w *site) start(ctx context.Context, args ...string) (*service, error) {
	r := &service{cmd: w.command(ctx, append(args, "--log-level", "info")...), over: make(chan struct{})}
	log, err := r.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan string, 1)
	go func() {
		defer close(r.over)
		lines := bufio.NewReader(log)
		for {
			line, err := lines.ReadString('\n')
			if err != nil {
				break
			}
			var said struct{ Msg, Level, Address string }
			if json.Unmarshal([]byte(line), &said) == nil && (said.Msg == "listening" || said.Msg == "working") {
				select {
				case ready <- said.Address:
				default: // it has said so before
				}
			}
			if said.Level != "INFO" {
				r.last = line
			}
		}
		r.err = r.cmd.Wait()
	}()
	select {
	case addr := <-ready:
		r.url = "http://" + addr
		return r, nil
	case <-r.over:
		return nil, fmt.Errorf("curfew %s ended at once: %w\n%s", args[0], r.err, r.last)
	}
}

// stop ends a service as a person would, and answers what it used.
func (r *service) stop() (effort, error) {
	if err := r.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return effort{}, err
	}
	<-r.over
	if r.err != nil {
		return effort{}, fmt.Errorf("curfew ended with %w\n%s", r.err, r.last)
	}
	return effort{cpu: r.cmd.ProcessState.UserTime() + r.cmd.ProcessState.SystemTime()}, nil
}

// kill ends a service whose measurement went wrong. It does nothing after stop.
func (r *service) kill() {
	_ = r.cmd.Process.Kill()
	<-r.over
}

// call sends a request with a token and reads the answer into out, which may be nil. A POST is one for a run, under a key of the
// caller's if there is one.
func (r *service) call(ctx context.Context, c *http.Client, token, method, path, key, body string, out any) error {
	want := http.StatusOK
	if method == http.MethodPost {
		want = http.StatusAccepted
	}
	req, err := http.NewRequestWithContext(ctx, method, r.url+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode != want {
		return fmt.Errorf("%s %s: %s\n%s", method, path, res.Status, text)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(text, out)
}

func runsOf(policy string) string { return "/v1/policies/" + policy + "/runs" }

// timed is what of a run's JSON tells how long it took.
type timed struct {
	answer
	Accepted time.Time  `json:"accepted_at"`
	Ended    *time.Time `json:"ended_at"`
}

// trigger starts a run of a policy at an instant and waits for its end.
func (r *service) trigger(ctx context.Context, token, policy string, asOf time.Time) (timed, error) {
	var run timed
	body := fmt.Sprintf(`{"as_of": %q}`, asOf.Format(time.RFC3339Nano))
	if err := r.call(ctx, http.DefaultClient, token, http.MethodPost, runsOf(policy), "bench", body, &run); err != nil {
		return run, err
	}
	for run.Ended == nil {
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return run, err
		}
		if err := r.call(ctx, http.DefaultClient, token, http.MethodGet, "/v1/runs/"+run.ID, "", "", &run); err != nil {
			return run, err
		}
	}
	if run.State != "succeeded" || run.Planned != run.Outcomes["deleted"] {
		return run, fmt.Errorf("the run ended as %+v", run)
	}
	return run, nil
}

// measureServe measures the daemon: how fast it answers, and what its queue costs.
func measureServe(ctx context.Context, s *settings) (_ string, err error) {
	p, err := openPostgres(ctx, s)
	if err != nil {
		return "", err
	}
	about, err := p.about(ctx)
	if err != nil {
		return "", err
	}
	// 40 % are due: two hundred batches of a thousand rows, unless asked otherwise.
	t := newTable("curfew_bench_queue", "A run through the queue", s.rows/6)
	defer func() { err = errors.Join(err, p.close(ctx, t)) }()
	s.say("PostgreSQL: building %s rows", thousands(t.rows))
	if err := p.build(ctx, t); err != nil {
		return "", err
	}
	r := newReport(s, about)
	for _, part := range []func(context.Context, *settings, *postgres, table, *report) error{acceptance, queueing, scaling} {
		if err := part(ctx, s, p, t, r); err != nil {
			return "", err
		}
	}
	return r.String(), nil
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"curfew.dev/curfew"
	"curfew.dev/curfew/api"
	"curfew.dev/curfew/examples/internal/stage"
)

// prepare is what is done once.
func (s *story) prepare(ctx context.Context) error {
	s.Say("Once: curfew's tables for receipts in that database. Then: is everything in order, and what would go?")
	for _, args := range [][]string{{"install", "app"}, {"check"}, {"plan"}} {
		if err := s.Command(ctx, 0, args...); err != nil {
			return err
		}
	}
	s.Say("Tokens: one for the scheduler outside, one for a dashboard that may only look.")
	for _, who := range []struct {
		name, scope string
		token       *string
	}{{"scheduler", "trigger,read", &s.scheduler.token}, {"dashboard", "read", &s.dashboard.token}} {
		s.Line("$ curfew token create --scope %s --name %s > %s.token", who.scope, who.name, who.name)
		var err error
		if *who.token, err = s.Text(ctx, "token", "create", "--scope", who.scope, "--name", who.name); err != nil {
			return err
		}
	}
	return nil
}

// silence is what was missed before anybody watched. The ledger is a SQLite file, whose clock is that of this machine or one
// that its opener brings: here that of three hours ago, for as long as it takes to see the schedule for the first time.
func (s *story) silence(ctx context.Context) error {
	s.Say("For three hours curfew has known when calls are expected (its clock was set back for that), and the scheduler did not call.")
	opts := curfew.Options{ConfigPath: s.Path("curfew.yaml"), Logger: slog.New(slog.DiscardHandler),
		Clock: func() time.Time { return time.Now().Add(-3 * time.Hour) }}
	c, err := curfew.New(opts)
	if err != nil {
		return err
	}
	defer c.Close()
	stop, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- curfew.Serve(ctx, opts, curfew.ServeOptions{Listen: "127.0.0.1:0", Stop: stop}) }()
	err = stage.Until(ctx, stage.Patience, "the schedule has been seen", func() (bool, error) {
		status, err := c.Status(ctx)
		return err == nil && status[0].Well, err
	})
	close(stop)
	if err := errors.Join(err, <-ended); err != nil {
		return err
	}
	if s.daemon, err = s.Serve(ctx); err != nil {
		return err
	}
	s.scheduler.url, s.dashboard.url = s.daemon.URL, s.daemon.URL
	err = stage.Until(ctx, stage.Patience, "the missed calls are recorded", func() (bool, error) {
		text, err := s.scheduler.get(ctx, "/v1/occurrences?state=missed")
		if err != nil {
			return false, err
		}
		var missed struct{ Items []api.OccurrenceItem }
		err = json.Unmarshal(text, &missed)
		return len(missed.Items) >= 2, err
	})
	if err != nil {
		return err
	}
	return s.Command(ctx, 1, "status")
}

// refused are calls of those who may not.
func (s *story) refused(ctx context.Context) error {
	s.Say("Somebody calls without a token, and the dashboard with its own.")
	for _, who := range []struct {
		name   string
		caller scheduler
		want   int
	}{{"no token", scheduler{url: s.daemon.URL}, http.StatusUnauthorized}, {"token of scope read", s.dashboard, http.StatusForbidden}} {
		status, _, err := who.caller.call(ctx, http.DefaultClient, "")
		if err != nil {
			return err
		}
		s.Line("POST /v1/policies/sessions/runs  %-20s -> %d %s", who.name, status, http.StatusText(status))
		if status != who.want {
			return fmt.Errorf("%s: answered with %d and not %d", who.name, status, who.want)
		}
	}
	var runs []api.Run
	if err := s.Answer(ctx, &runs, "runs"); err != nil {
		return err
	}
	s.Line("runs in the ledger: %d", len(runs))
	metrics, err := s.scheduler.get(ctx, "/metrics")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(metrics)) {
		if strings.HasPrefix(line, "curfew_unauthorised_total{") {
			s.Line("in /metrics:        %s", strings.TrimSpace(line))
		}
	}
	s.strangers = len(runs)
	return nil
}

// signingIn is how many users are just about it when the run begins.
const signingIn = 5

// calls is the heart: the scheduler calls four times for one run, while the application goes on.
func (s *story) calls(ctx context.Context) error {
	s.Say("%d users with the oldest of the expired sessions are just signing in: refreshed, not committed yet. Now the scheduler calls.", signingIn)
	early, later := s.app.expired[:signingIn], s.app.expired[signingIn:]
	tx, err := s.app.signIn(ctx, early)
	if err != nil {
		return err
	}
	defer tx.Rollback()

	impatient := &http.Client{Timeout: impatience, Transport: &losing{}}
	_, _, err = s.scheduler.call(ctx, impatient, "")
	var lost *url.Error
	if !errors.As(err, &lost) || !lost.Timeout() {
		return fmt.Errorf("the first call should have timed out: %w", err)
	}
	s.Line("call 1            no answer within %v, and the scheduler gives up", impatience)
	status, run, err := s.scheduler.call(ctx, http.DefaultClient, "")
	if err != nil || status != http.StatusAccepted {
		return fmt.Errorf("the second call: answered with %d, %w", status, err)
	}
	s.Line("call 2, a retry   202, run %.12s", run.ID)
	both, err := s.scheduler.twice(ctx, "")
	if err != nil {
		return err
	}
	s.Line("calls 3 and 4     202, run %.12s and %.12s, at once", both[0].ID, both[1].ID)
	if both[0].ID != run.ID || both[1].ID != run.ID {
		return errors.New("they are not the same run")
	}
	s.first = run

	err = stage.Until(ctx, stage.Patience, "the scan has found the sessions of those who are signing in", func() (bool, error) {
		run, err = s.scheduler.run(ctx, run.ID)
		return run.Batches.Total > 0, err
	})
	if err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.app.kept = append(s.app.kept, early...)
	s.Line("The scan has found those sessions as they were, expired. Now their users are signed in, and others begin to come back.")
	back, stop := context.WithCancel(ctx)
	refreshed := make(chan error, 1)
	go func() { refreshed <- s.app.keepRefreshing(back, later) }()
	s.first, err = s.end(ctx, run.ID)
	stop()
	if err := errors.Join(err, <-refreshed); err != nil {
		return err
	}
	s.Line("While the run went on, %d of them came in time; %d came too late, and sign in again.", len(s.app.kept)-signingIn, s.app.late)
	return s.Command(ctx, 0, "show", s.first.ID[:12])
}

// end waits for the end of a run.
func (s *story) end(ctx context.Context, id string) (run api.Run, err error) {
	patience := stage.Patience + time.Duration(s.app.made)*time.Millisecond
	err = stage.Until(ctx, patience, "the run has ended", func() (bool, error) {
		run, err = s.scheduler.run(ctx, id)
		return run.Ended(), err
	})
	if err == nil && run.State != api.StateSucceeded {
		err = fmt.Errorf("run %.12s is %s: %s %s", id, run.State, run.WhyEnded, run.Detail)
	}
	return run, err
}

// signedOut is how many sessions end between the two runs.
const signedOut = 300

// key is a call that names what it is for, so that it means one run however often it is repeated, also much later.
func (s *story) key(ctx context.Context) error {
	s.Say("%d users sign out. The scheduler has learned to send an Idempotency-Key, and calls twice at once, then again later.", signedOut)
	if err := s.app.signOut(ctx, s.app.live[:signedOut]); err != nil {
		return err
	}
	const key = "hourly-cleanup-1"
	both, err := s.scheduler.twice(ctx, key)
	if err != nil {
		return err
	}
	s.Line("calls 5 and 6     202, run %.12s and %.12s, at once", both[0].ID, both[1].ID)
	if s.second, err = s.end(ctx, both[0].ID); err != nil {
		return err
	}
	status, again, err := s.scheduler.call(ctx, http.DefaultClient, key)
	if err != nil {
		return err
	}
	s.Line("call 7            %d, run %.12s, %s", status, again.ID, again.State)
	if both[0].ID != both[1].ID || again.ID != both[0].ID || both[0].ID == s.first.ID {
		return errors.New("one key is not one run of its own")
	}
	return nil
}

// lookBack is what anybody may ask for afterwards, and the end of the daemon.
func (s *story) lookBack(ctx context.Context) error {
	s.Say("What is on record.")
	for _, args := range [][]string{{"calls"}, {"runs"}, {"gaps"}, {"status"}} {
		if err := s.Command(ctx, 0, args...); err != nil {
			return err
		}
	}
	code, err := s.daemon.Stop()
	s.Say("$ kill -TERM $!\n(curfew serve ended with exit code %d)", code)
	s.clean = code == 0
	return err
}

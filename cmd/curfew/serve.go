package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"curfew.dev/curfew"
)

const serveLong = `Keep the schedules of the policy file: start each run when it is due, work on it, record what
was missed and catch up, and answer over HTTP. It is the one process to keep running; any
number of them may share a ledger on PostgreSQL, and what one leaves another takes over.

  POST /v1/policies/POLICY/runs   starts a run, with a token of scope trigger
  GET  /v1/runs, /v1/policies, /v1/occurrences, /v1/calls    with one of scope read
  GET  /healthz, /readyz, /metrics                           without

It listens on this machine only, unless --listen says otherwise; there is no TLS, that is
a proxy's work.

SIGHUP reads the policy file again; a file that is wrong is logged, and the one before stays
in force. SIGTERM or Ctrl-C finishes the batches in hand and ends with exit code 0; a second
one aborts them. Nothing is lost or done twice either way, nor by SIGKILL. Log lines go to stderr.`

func (a *app) serveCommand() *cobra.Command {
	so := curfew.ServeOptions{Listen: curfew.DefaultListen}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Keep the schedules, work on the runs, answer over HTTP",
		Long:  serveLong,
		Example: `  curfew serve
  curfew serve --listen 10.0.0.7:8421
  curl -fsS http://127.0.0.1:8421/readyz`,
		Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), so) },
	}
	cmd.Flags().StringVar(&so.Listen, "listen", so.Listen, "`ADDRESS` of the HTTP interface; port 0 for any free one")
	_ = cmd.RegisterFlagCompletionFunc("listen", cobra.NoFileCompletions)
	return cmd
}

// serve works until it is told to stop. Here people watch a service and not an answer: its log lines are on the screen too.
func (a *app) serve(ctx context.Context, so curfew.ServeOptions) error {
	if a.logLevel == "" {
		a.logLevel = "info"
	}
	a.interrupts.onSignal = func() {
		a.note("finishing the batches in hand; another signal aborts them")
	}
	so.Stop, so.StopWithin = a.interrupts.graceful(), stopWithin
	reload, done := onHangup()
	defer done()
	so.Reload = reload
	opts := a.options()
	so.Listening = func(addr string) {
		if addr == "" {
			opts.Logger.InfoContext(ctx, "working") // what listens says so itself
		}
	}
	return curfew.Serve(ctx, opts, so)
}

// onHangup sends a value for each SIGHUP; several that come at once may be one.
func onHangup() (<-chan struct{}, func()) {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGHUP)
	reload, quit := make(chan struct{}), make(chan struct{})
	go func() {
		for {
			select {
			case <-quit:
				return
			case <-signals:
			}
			select {
			case <-quit:
				return
			case reload <- struct{}{}:
			}
		}
	}()
	return reload, func() { signal.Stop(signals); close(quit) }
}

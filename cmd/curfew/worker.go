package main

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"curfew.dev/curfew"
)

const workerLong = `Execute the batches of runs, and nothing else: schedules, paging and HTTP are left to curfew
serve. Start it on as many machines as reach the ledger and the governed databases, with
the same policy file and the same key.

With --listen it is a worker pool beside a database whose data must not leave its region: it
reads and changes the rows there for a curfew serve elsewhere, which has that database under
workers: {url, token} in its policy file. The pool needs no ledger. Its policy file names the
databases, with their urls, and its key is its own: key values cross sealed with it. Callers
must show the token in CURFEW_POOL_TOKEN, 32 characters or more. There is no TLS, that is a
proxy's work.

Signals are as for curfew serve, but that a pool does not read its policy file again.`

func (a *app) workerCommand() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:   "worker",
		Short: "Execute batches for a curfew serve elsewhere",
		Long:  workerLong,
		Example: `  curfew worker --config /etc/curfew/curfew.yaml
  CURFEW_POOL_TOKEN=… curfew worker --listen 127.0.0.1:8422`,
		Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("listen") {
				token, _ := a.getenv("CURFEW_POOL_TOKEN")
				return a.servePool(cmd.Context(), curfew.PoolOptions{Listen: listen, Token: token})
			}
			return a.serve(cmd.Context(), curfew.ServeOptions{WorkersOnly: true})
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "", "be a worker pool at `ADDRESS`; port 0 for any free one")
	_ = cmd.RegisterFlagCompletionFunc("listen", cobra.NoFileCompletions)
	return cmd
}

// servePool works as a pool until it is told to stop.
func (a *app) servePool(ctx context.Context, po curfew.PoolOptions) error {
	a.logLevel = cmp.Or(a.logLevel, "info")
	a.interrupts.onSignal = func() {
		a.note("finishing the batches in hand; another signal aborts them")
	}
	po.Stop = a.interrupts.graceful()
	opts := a.options()
	hangup, done := onHangup()
	defer done()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-ended:
				return
			case <-hangup:
				opts.Logger.WarnContext(ctx, "reload_refused", "hint", "a pool does not read its policy file again; restart it")
			}
		}
	}()
	return curfew.ServePool(ctx, opts, po)
}

// Command curfew is the command line of curfew: it deletes rows when their time is up, exactly once, and
// leaves proof.
package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"curfew.dev/curfew"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.LookupEnv))
}

// Exit codes.
const (
	exitDone        = 0   // blocked rows included
	exitNotWell     = 1   // the answer is "not well"
	exitRefused     = 2   // usage, configuration, or refused
	exitFailed      = 3   // failed, or a database out of reach
	exitInterrupted = 130 // stopped by a signal
)

// run is the whole program: arguments and streams in, an exit code out.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) (string, bool)) int {
	a := newApp(stdin, stdout, stderr, getenv)
	ctx, stop := a.interrupts.watch(ctx)
	defer stop()
	return a.execute(ctx, args)
}

// execute runs one command line. demo calls it again for each command that it shows.
func (a *app) execute(ctx context.Context, args []string) int {
	root := a.rootCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	a.endProgress()
	if err == nil {
		return a.code
	}
	if !a.started && curfew.KindOf(err) == curfew.KindFailed {
		err = usageError(`"curfew --help" lists the commands`, "%w", err) // the argument parser's own
	}
	a.printError(err)
	if ctx.Err() != nil {
		return exitInterrupted
	}
	return exitCode(err)
}

// exitCode is the exit code of a command that returned err.
func exitCode(err error) int {
	switch curfew.KindOf(err) {
	case curfew.KindUsage, curfew.KindConfig, curfew.KindNotFound, curfew.KindRefused:
		return exitRefused
	case curfew.KindInterrupted:
		return exitInterrupted
	default:
		return exitFailed
	}
}

// interrupts turns Ctrl-C and SIGTERM into what the command at hand makes of them. A command that can stop in good order
// says so with graceful: then the first signal closes its channel, and only the second one cancels its context. For any
// other command the first cancels. A third signal kills the process as usual.
type interrupts struct {
	stop     atomic.Pointer[chan struct{}]
	onSignal func() // called after the first signal of a graceful command
}

// watch starts listening; the function that it returns ends that.
func (i *interrupts) watch(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-signals:
			}
			if stop := i.stop.Swap(nil); stop != nil {
				close(*stop)
				i.onSignal()
				continue
			}
			cancel()
			signal.Stop(signals)
			return
		}
	}()
	return ctx, func() { signal.Stop(signals); cancel() }
}

// graceful makes the next signal close the channel that it returns.
func (i *interrupts) graceful() <-chan struct{} {
	stop := make(chan struct{})
	i.stop.Store(&stop)
	return stop
}

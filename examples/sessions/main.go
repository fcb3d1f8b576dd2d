// Sessions is the story of a service with many login sessions, a small pool of workers, and a scheduler outside that calls
// a URL: sometimes twice, and sometimes not at all. It builds curfew and lets it clean up for real, while sessions that had
// expired are being refreshed, and checks at the end that none of those is gone. See README.md.
package main

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/examples/internal/stage"
)

//go:embed curfew.yaml
var policyFile string

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "sessions:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	s, err := open(ctx, args, out)
	if err != nil {
		return err
	}
	defer s.app.DB.Close()
	if err := s.play(ctx); err != nil {
		return err
	}
	if err := s.verify(ctx); err != nil {
		return err
	}
	s.Say("The files stay in %s. To look around:", s.Dir)
	s.Line("cd %s", s.Dir)
	s.Line("%s show %.12s", s.Bin(), s.first.ID)
	s.Line("%s explain sessions %s    # one that was refreshed", s.Bin(), s.app.kept[0])
	s.Line("%s gaps --each", s.Bin())
	return s.Verdict()
}

// open makes the folder, the policy file in it, and the sessions.
func open(ctx context.Context, args []string, out io.Writer) (*story, error) {
	flags := flag.NewFlagSet("sessions", flag.ContinueOnError)
	dir := flags.String("dir", "", "an empty `folder` for the files (default: one for temporary files)")
	bin := flags.String("curfew", "", "the `program` (default: build it from here)")
	rows := flags.Int("rows", 50_000, "sessions to make up: `N`")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if *rows < 2000 || flags.NArg() > 0 {
		return nil, errors.New("-rows must be 2000 or more, and nothing else is expected")
	}
	st, err := stage.New(ctx, out, "sessions", *dir, *bin)
	if err != nil {
		return nil, err
	}
	s := &story{Stage: st}
	address := os.Getenv("SESSIONS_URL")
	if s.app, err = connect(cmp.Or(address, "sqlite:"+s.Path("app.db"))); err != nil {
		return nil, err
	}
	s.Say("The database of a service gets %d login sessions: four in five have expired.", *rows)
	err = s.app.populate(ctx, *rows)
	if err == nil {
		err = s.writePolicy(address != "")
	}
	if err != nil {
		return nil, errors.Join(err, s.app.DB.Close())
	}
	return s, nil
}

// story is what happens, and what is to be held against the database afterwards.
type story struct {
	*stage.Stage
	app    *application
	daemon *stage.Daemon

	scheduler scheduler
	dashboard scheduler // whose token may only read

	strangers int     // runs in the ledger after the calls that were refused
	first     api.Run // the run of the first calls
	second    api.Run // that of the calls under a key
	clean     bool    // the daemon ended with exit code 0
}

// writePolicy puts the policy file into the folder: curfew.yaml as it is, or with two lines that say which database it is.
func (s *story) writePolicy(server bool) error {
	text := policyFile
	if server {
		for _, line := range [][2]string{{`"sqlite:app.db"`, `"${SESSIONS_URL}"`}, {"{column: expires_at, unit: s}", s.app.until}} {
			if !strings.Contains(text, line[0]) {
				return fmt.Errorf("curfew.yaml has no %s", line[0])
			}
			text = strings.Replace(text, line[0], line[1], 1)
		}
	}
	return os.WriteFile(s.Path("curfew.yaml"), []byte(text), 0o666)
}

// play goes through the story. At its end nothing is running any more.
func (s *story) play(ctx context.Context) error {
	defer func() {
		if s.daemon != nil {
			s.daemon.Kill()
		}
	}()
	for _, chapter := range []func(context.Context) error{s.prepare, s.silence, s.refused, s.calls, s.key, s.lookBack} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

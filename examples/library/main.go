// Library is the story of a public library: who borrowed what is forgotten thirty days after the return, or when the patron
// has chosen, loans are destroyed after two years, open fines and a court's hold keep what they are about. It builds curfew,
// lets it go through three nights, and checks in the database itself that what should be gone is gone, and nothing else. See README.md.
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
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/examples/internal/stage"
)

//go:embed curfew.yaml
var policyFile string

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "library:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	s, err := open(ctx, args, out)
	if err != nil {
		return err
	}
	defer s.lib.DB.Close()
	if err := s.play(ctx); err != nil {
		return err
	}
	if err := s.verify(ctx); err != nil {
		return err
	}
	s.Say("The files stay in %s. To look around:", s.Dir)
	s.Line("cd %s", s.Dir)
	s.Line("%s runs", s.Bin())
	s.Line("%s hold list --all", s.Bin())
	s.Line("%s explain circulation %d    # kept: its fine is open", s.Bin(), s.disputed)
	return s.Verdict()
}

// open makes the folder, the policy file in it, and the library.
func open(ctx context.Context, args []string, out io.Writer) (*story, error) {
	flags := flag.NewFlagSet("library", flag.ContinueOnError)
	dir := flags.String("dir", "", "an empty `folder` for the files (default: one for temporary files)")
	bin := flags.String("curfew", "", "the `program` (default: build it from here)")
	loans := flags.Int("loans", 20_000, "loans to make up: `N`")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	if *loans < 2000 || flags.NArg() > 0 {
		return nil, errors.New("-loans must be 2000 or more, and nothing else is expected")
	}
	st, err := stage.New(ctx, out, "library", *dir, *bin)
	if err != nil {
		return nil, err
	}
	s := &story{Stage: st}
	for i := range s.nights {
		s.nights[i] = lastNight(time.Now()).AddDate(0, 0, i-len(s.nights)+1)
	}
	address := os.Getenv("LIBRARY_URL")
	if s.lib, err = connect(cmp.Or(address, "sqlite:"+s.Path("library.db"))); err != nil {
		return nil, err
	}
	s.Say("The database of a public library gets %d loans of the last four years.", *loans)
	err = s.lib.populate(ctx, *loans, s.nights[0])
	if err == nil {
		err = s.writePolicy(address != "")
	}
	if err != nil {
		return nil, errors.Join(err, s.lib.DB.Close())
	}
	return s, nil
}

// lastNight is the last time that it was 02:00, when the library's purge is due.
func lastNight(now time.Time) time.Time {
	return now.UTC().Add(-2 * time.Hour).Truncate(24 * time.Hour).Add(2 * time.Hour)
}

// story is what happens, and what is to be held against the database afterwards.
type story struct {
	*stage.Stage
	lib    *library
	daemon *stage.Daemon

	nights [3]time.Time          // the instants that the runs stand for
	runs   map[string][3]api.Run // of each policy, by night

	disputed int64 // the loan for which a fine was booked while the run was at work
	before   tally
	heldThen int64 // loans of the patron on hold that were there before the release
	clean    bool  // the daemon ended with exit code 0
}

// writePolicy puts the policy file into the folder: curfew.yaml as it is, or with what says which database it is.
func (s *story) writePolicy(server bool) error {
	text := policyFile
	if server {
		for _, part := range [][2]string{{`"sqlite:library.db"`, `"${LIBRARY_URL}"`}, {"{column: returned_at, unit: s, null: never}", s.lib.since}} {
			if !strings.Contains(text, part[0]) {
				return fmt.Errorf("curfew.yaml has no %s", part[0])
			}
			text = strings.ReplaceAll(text, part[0], part[1])
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
	for _, chapter := range []func(context.Context) error{s.prepare, s.court, s.firstNight, s.day, s.secondNight, s.released, s.thirdNight, s.auditor} {
		if err := chapter(ctx); err != nil {
			return err
		}
	}
	return nil
}

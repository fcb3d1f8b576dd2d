package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"curfew.dev/curfew"
	"curfew.dev/curfew/internal/demo"
)

const demoLong = `Make up a library with five years of circulation records in a SQLite file, with a
policy file beside it, and show what curfew does there: the real commands with their
real answers, one after the other, on a database you can look into.

The files stay in the folder, to go on exploring. Calling demo again starts afresh: it
removes the files that it made, and nothing else.`

func (a *app) demoCommand() *cobra.Command {
	var d demonstration
	var force bool
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Make a library to play with, and show what curfew does there",
		Long:  demoLong,
		Example: `  curfew demo
  curfew demo --dir /tmp/library --rows 1000000`,
		Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.rows < 1000 || d.rows > 50_000_000 {
				return usageError("--rows 200000 is the default", "--rows must be between 1,000 and 50,000,000")
			}
			d.app, d.out = a, a.stdout
			d.config = filepath.Join(d.dir, "curfew.yaml")
			if err := prepareDemo(d.dir, force); err != nil {
				return err
			}
			return d.show(cmd.Context())
		},
	}
	cmd.Flags().StringVar(&d.dir, "dir", "demo", "the `FOLDER` to make the files in")
	cmd.Flags().IntVar(&d.rows, "rows", 200_000, "circulation records to make up: `N`")
	cmd.Flags().BoolVar(&force, "force", false, "start afresh although the demo's curfew.yaml was edited")
	_ = cmd.MarkFlagDirname("dir")
	_ = cmd.RegisterFlagCompletionFunc("rows", cobra.NoFileCompletions)
	return cmd
}

// demoManifest marks a folder as one that demo made. Only the files that it lists, by these very names, are ever removed.
const demoManifest = ".curfew-demo"

var demoFiles = []string{
	"library.db", "library.db-journal", "library.db-wal", "library.db-shm",
	"curfew.db", "curfew.db-journal", "curfew.db-wal", "curfew.db-shm", "curfew.key", "curfew.yaml",
}

type manifest struct {
	Note   string `json:"note"`
	Config string `json:"config_sha256"` // of curfew.yaml as it was made
}

// prepareDemo makes the folder, or empties it of what an earlier demo made. The manifest is there before the first
// file: a demo that was interrupted at any point can be started again.
func prepareDemo(dir string, force bool) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return usageError("--dir names another folder", "%w", err)
	}
	marked, err := os.ReadFile(filepath.Join(dir, demoManifest))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		entries, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		if len(entries) > 0 {
			return usageError("--dir names another folder, one that is empty or not there yet",
				"%s has files in it that demo did not make", dir)
		}
	case err != nil:
		return err
	default:
		if err := removeDemo(dir, marked, force); err != nil {
			return err
		}
	}
	sum := sha256.Sum256([]byte(demo.Config))
	text, err := json.Marshal(manifest{Note: "made by curfew demo, which will remove its files when it is called again", Config: hex.EncodeToString(sum[:])})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, demoManifest), append(text, '\n'), 0o666)
}

func removeDemo(dir string, marked []byte, force bool) error {
	var m manifest
	if err := json.Unmarshal(marked, &m); err != nil {
		return usageError("--dir names another folder", "%s is not as demo wrote it: %w", filepath.Join(dir, demoManifest), err)
	}
	config, err := os.ReadFile(filepath.Join(dir, "curfew.yaml"))
	if sum := sha256.Sum256(config); err == nil && hex.EncodeToString(sum[:]) != m.Config && !force {
		return usageError("--force starts afresh without it; --dir names another folder",
			"%s was edited since demo made it", filepath.Join(dir, "curfew.yaml"))
	}
	for _, name := range demoFiles {
		if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// demonstration is one performance of the demo.
type demonstration struct {
	app    *app
	out    io.Writer
	dir    string
	config string
	rows   int
}

// show makes the library and goes through the story.
func (d *demonstration) show(ctx context.Context) error {
	library := filepath.Join(d.dir, "library.db")
	now := time.Now().UTC()
	d.app.note("making a library with %s circulation records …", count(int64(d.rows)))
	cutoff := yearsBefore(now, 2)
	made, err := demo.Generate(ctx, library, demo.Options{
		Rows: d.rows, Until: now, Seed: 1,
		// Nothing becomes due while people watch, so that the second run has nothing to do.
		Closed: demo.Span{From: cutoff, To: cutoff.Add(2 * time.Hour)},
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(d.config, []byte(demo.Config), 0o666); err != nil {
		return err
	}
	d.say("%s now holds a public library: %s patrons, %s circulation records of the last five years,\n"+
		"%s fines (%s still open) and %s insurance claims. The policies are in %s.",
		library, count(int64(made.Patrons)), count(int64(made.Events)), count(int64(made.Fines)), count(int64(made.OpenFines)),
		count(int64(made.Claims)), d.config)

	before, err := demo.Rows(ctx, library)
	if err != nil {
		return err
	}
	for _, step := range []struct {
		say     string
		command []string
	}{
		{"Once for each database: the tables for receipts and holds.", []string{"install", "library"}},
		{"Is everything in order, in the file and in the database?", []string{"check"}},
		{"What would go now? Nothing is changed yet.", []string{"plan"}},
		{"Records older than two years leave. One with an open fine stays; one that an insurance claim\nrefers to cannot go, and does not keep the others.", []string{"run", "circulation"}},
	} {
		d.say("%s", step.say)
		if err := d.command(ctx, step.command...); err != nil {
			return err
		}
	}
	return d.prove(ctx, library, before)
}

// prove compares what is gone with what the ledger says, and shows that a second run changes nothing.
func (d *demonstration) prove(ctx context.Context, library string, before map[string]int64) error {
	after, err := demo.Rows(ctx, library)
	if err != nil {
		return err
	}
	run, err := d.newest(ctx)
	if err != nil {
		return err
	}
	d.say("The ledger keeps what was done, and the proof.")
	if err := d.command(ctx, "show", shortID(run)); err != nil {
		return err
	}
	d.say("Again: whatever is left of the due rows still cannot go, and nothing else is touched.")
	if err := d.command(ctx, "run", "circulation"); err != nil {
		return err
	}
	if err := d.command(ctx, "runs"); err != nil {
		return err
	}
	again, err := demo.Rows(ctx, library)
	if err != nil {
		return err
	}
	d.say("Counted in %s itself, before and after:", library)
	p := &printer{}
	rows := [][]cell{heads("  TABLE", "BEFORE", "AFTER THE RUN", "AFTER THE SECOND")}
	for _, table := range []string{"circulation_event", "fine", "damage_claim", "patron"} {
		rows = append(rows, []cell{text("  " + table), number(before[table]), number(after[table]), number(again[table])})
	}
	p.table(rows)
	if _, err := io.WriteString(d.out, p.b.String()); err != nil {
		return err
	}
	if after["circulation_event"] != again["circulation_event"] || after["fine"] != again["fine"] {
		return errors.New("the second run changed the library")
	}
	return d.next(ctx, library)
}

// next says what to try.
func (d *demonstration) next(ctx context.Context, library string) error {
	kept, err := demo.Oldest(ctx, library)
	if err != nil {
		return err
	}
	d.say("The files stay in %s. Try next:\n", d.dir)
	p := &printer{}
	p.table([][]cell{
		{text("  " + d.line("explain", "circulation", strconv.FormatInt(kept, 10))), text("# why this old record stays")},
		{text("  " + d.line("run", "searches")), text("# a policy in shadow mode: it counts and changes nothing")},
		{text("  $EDITOR " + d.config), text("# change a policy, then check and plan again")},
		{text("  " + d.line("gaps")), text("# month by month, as an auditor asks for it; docs/daemon.md: curfew serve keeps schedules")},
		{text("  " + programName() + " init URL"), text("# look at a database of yours")},
	})
	_, err = io.WriteString(d.out, p.b.String())
	return err
}

// newest is the id of the newest run.
func (d *demonstration) newest(ctx context.Context) (string, error) {
	c, err := curfew.New(curfew.Options{ConfigPath: d.config, Logger: d.app.logger(), Clock: ledgerClock})
	if err != nil {
		return "", err
	}
	defer c.Close()
	runs, err := c.Runs(ctx, curfew.RunFilter{Limit: 1})
	if err == nil && len(runs) == 0 {
		err = errors.New("the run is not in the ledger")
	}
	if err != nil {
		return "", err
	}
	return runs[0].ID, nil
}

func (d *demonstration) say(format string, args ...any) {
	fmt.Fprintf(d.out, "\n"+format+"\n", args...)
}

// line is a command as the user would type it.
func (d *demonstration) line(args ...string) string {
	return strings.Join(append([]string{programName()}, append(args, "-c", d.config)...), " ")
}

// command shows a command and runs it, as the user would.
func (d *demonstration) command(ctx context.Context, args ...string) error {
	fmt.Fprintf(d.out, "\n$ %s\n", d.line(args...))
	a := *d.app
	a.started, a.code = false, exitDone
	if code := a.execute(ctx, append(args, "-c", d.config)); code != exitDone {
		d.app.code = code
		return &curfew.Error{Kind: kindOfCode(code), Hint: "the files are still in " + d.dir,
			Err: fmt.Errorf("the demo stops here: %s ended with exit code %d", strings.Join(args, " "), code)}
	}
	return nil
}

// kindOfCode is a kind of error with that exit code.
func kindOfCode(code int) curfew.Kind {
	switch code {
	case exitInterrupted:
		return curfew.KindInterrupted
	case exitRefused:
		return curfew.KindRefused
	default:
		return curfew.KindFailed
	}
}

// programName is this program as it was called, so that what is printed can be typed.
func programName() string {
	if name := os.Args[0]; filepath.Base(name) == "curfew" {
		return name
	}
	return "curfew"
}

// yearsBefore goes back by the calendar; 29 February becomes the 28th.
func yearsBefore(t time.Time, years int) time.Time {
	back := t.AddDate(-years, 0, 0)
	if back.Day() != t.Day() {
		back = back.AddDate(0, 0, -back.Day())
	}
	return back
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"curfew.dev/curfew"
)

// How curfew speaks:
//
//   - stdout carries the answer and nothing else, so that it can be piped: a table, or JSON with --output json.
//   - stderr carries the rest: errors, hints, progress, log lines.
//   - An error is one line "curfew: error: …", lower case, no full stop; what to do next follows as "curfew: hint: …".
//     Every error that a user can cause has a hint.
//   - Colour only marks words that are there anyway, and only on a terminal.

// app is one invocation of the program.
type app struct {
	stdin  io.Reader
	stdout io.Writer
	stderr *console
	getenv func(string) (string, bool)

	interrupts *interrupts
	started    bool // the command line was understood, and its command called
	code       int  // exit code of a command that ended without an error

	// Global flags.
	config   string
	output   string
	noColor  bool
	logLevel string
}

func newApp(stdin io.Reader, stdout, stderr io.Writer, getenv func(string) (string, bool)) *app {
	a := &app{stdin: stdin, stdout: stdout, stderr: newConsole(stderr), getenv: getenv, interrupts: &interrupts{}}
	a.interrupts.onSignal = func() {
		a.note("finishing the batch in hand; press Ctrl-C again to abort it")
	}
	return a
}

const rootLong = `curfew deletes rows of SQL tables when a retention policy says that their time is
up: exactly once, with a record of every run that anyone can check. As a service it keeps the
schedules of your policies and says when one was missed; it also runs when it is called:
by hand, by cron, by your orchestrator.

The policies are in one file, curfew.yaml. Start with one of:

  curfew demo                 a library with five years of data, to play with
  curfew init URL             look at your database and propose policies for it

then, with a file in place:

  curfew check                is everything in order, in the file and in the databases?
  curfew plan                 what would go now, and what would stay?
  curfew run POLICY           do it
  curfew show RUN             what came of it
  curfew serve                have it done on schedule, from now on
  curfew status               and is it?

Exit codes: 0 done; 1 the answer is "not well"; 2 wrong usage, wrong configuration
or refused; 3 failed or a database is out of reach; 130 interrupted.`

// rootCommand builds the command tree.
func (a *app) rootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:   "curfew",
		Short: "Delete rows when their time is up, exactly once, with proof",
		Long:  rootLong,
		Args:  a.noSuchCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cmd.SetOut(a.stderr)
			a.code = exitRefused
			return cmd.Help()
		},
		PersistentPreRunE: func(*cobra.Command, []string) error {
			a.started = true
			return a.checkGlobals()
		},
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(flagError)
	root.CompletionOptions.DisableDefaultCmd = true
	flags := root.PersistentFlags()
	flags.StringVarP(&a.config, "config", "c", "", "policy `FILE` (default ./curfew.yaml, or $CURFEW_CONFIG)")
	flags.StringVarP(&a.output, "output", "o", "table", "`FORMAT` of the answer on stdout: table or json")
	flags.BoolVar(&a.noColor, "no-color", false, "no colour, as with $NO_COLOR")
	flags.StringVar(&a.logLevel, "log-level", "", "log lines on stderr from this `LEVEL` on: debug, info, warn or error\n(default warn on a terminal, info elsewhere, or $CURFEW_LOG)")
	_ = root.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
	_ = root.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions([]string{"debug", "info", "warn", "error"}, cobra.ShellCompDirectiveNoFileComp))
	_ = root.MarkPersistentFlagFilename("config", "yaml", "yml")

	root.AddGroup(&cobra.Group{ID: "start", Title: "Start:"}, &cobra.Group{ID: "work", Title: "Look and do:"},
		&cobra.Group{ID: "serve", Title: "On schedule:"}, &cobra.Group{ID: "set", Title: "Set up:"})
	for group, commands := range map[string][]*cobra.Command{
		"start": {a.demoCommand(), a.initCommand()},
		"work":  {a.checkCommand(), a.planCommand(), a.runCommand(), a.runsCommand(), a.showCommand(), a.explainCommand(), a.approveCommand(), a.cancelCommand(), a.holdCommand()},
		"serve": {a.serveCommand(), a.workerCommand(), a.statusCommand(), a.gapsCommand(), a.callsCommand(), a.pauseCommand(), a.resumeCommand(), a.taskCommand(), a.tokenCommand()},
		"set":   {a.schemaCommand(), a.installCommand(), a.adoptCommand(), a.migrateCommand(), a.completionCommand(), a.versionCommand()},
	} {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID("set")
	return root
}

// noSuchCommand answers a first word that is no command.
func (a *app) noSuchCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		names = append(names, c.Name())
	}
	hint := `"curfew --help" lists the commands`
	if near := nearest(args[0], names); near != "" {
		hint = fmt.Sprintf("did you mean %q?", "curfew "+near)
	}
	return usageError(hint, "no command %q", args[0])
}

// flagError explains a flag that is wrong.
func flagError(cmd *cobra.Command, err error) error {
	hint := fmt.Sprintf("%q lists the flags", cmd.CommandPath()+" --help")
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		if near := nearest(unknown.GetSpecifiedName(), names); near != "" {
			hint = fmt.Sprintf("did you mean --%s? %s", near, hint)
		}
	}
	return &curfew.Error{Kind: curfew.KindUsage, Hint: hint, Err: err}
}

// usageError is an error about how the command was called.
func usageError(hint, format string, args ...any) error {
	return &curfew.Error{Kind: curfew.KindUsage, Hint: hint, Err: fmt.Errorf(format, args...)}
}

// args wants between min and max arguments, and says with the command's usage line which ones.
func args(min, max int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		usage := "usage: " + cmd.UseLine()
		switch {
		case len(args) < min:
			return usageError(usage, "%s needs %s", cmd.CommandPath(), what)
		case max >= 0 && len(args) > max:
			return usageError(usage, "%s does not take %q", cmd.CommandPath(), args[max])
		}
		return nil
	}
}

// checkGlobals fills in the global flags from the environment and refuses wrong ones.
func (a *app) checkGlobals() error {
	if a.output != "table" && a.output != "json" {
		return usageError("--output table, or --output json", "no output format %q", a.output)
	}
	if a.config == "" {
		a.config, _ = a.getenv("CURFEW_CONFIG")
	}
	if a.config == "" {
		a.config = "curfew.yaml"
	}
	if a.logLevel == "" {
		a.logLevel, _ = a.getenv("CURFEW_LOG")
	}
	if _, err := a.level(); err != nil {
		return usageError("debug, info, warn or error, as --log-level or in CURFEW_LOG", "no log level %q", a.logLevel)
	}
	return nil
}

func (a *app) level() (slog.Level, error) {
	if a.logLevel == "" {
		if a.stderr.terminal {
			return slog.LevelWarn, nil
		}
		return slog.LevelInfo, nil
	}
	levels := map[string]slog.Level{"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}
	level, ok := levels[a.logLevel]
	if !ok {
		return 0, errors.New("unknown level")
	}
	return level, nil
}

// logger writes to stderr: text on a terminal, JSON elsewhere.
func (a *app) logger() *slog.Logger {
	level, _ := a.level()
	opts := &slog.HandlerOptions{Level: level}
	if a.stderr.terminal {
		return slog.New(slog.NewTextHandler(a.stderr, opts))
	}
	return slog.New(slog.NewJSONHandler(a.stderr, opts))
}

// Set in tests only.
var (
	ledgerClock func() time.Time // replaces the machine's clock for SQLite
	stopWithin  time.Duration    // replaces the default of curfew serve
)

func (a *app) options() curfew.Options {
	return curfew.Options{ConfigPath: a.config, Logger: a.logger(), Clock: ledgerClock}
}

// open opens the policy file that the flags name.
func (a *app) open(ctx context.Context) (*curfew.Curfew, error) {
	return curfew.New(a.options())
}

// note tells the user something that is neither the answer nor an error.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.stderr, "curfew: "+format+"\n", args...)
}

// printError writes an error and its hint. A message of several lines (a place in the policy file) is indented.
func (a *app) printError(err error) {
	a.note("error: %s", indentRest(err.Error()))
	if hint := hintFor(err); hint != "" {
		a.note("hint: %s", indentRest(hint))
	}
}

// hintFor is the error's own hint, or one that its kind suggests.
func hintFor(err error) string {
	if hint := curfew.HintOf(err); hint != "" {
		return hint
	}
	switch {
	case errors.Is(err, context.Canceled):
		return "nothing is half done: run the same command again"
	case curfew.KindOf(err) == curfew.KindUnreachable:
		return "is the database up, and may we connect? the URL is in the policy file"
	default:
		return "--log-level debug shows more"
	}
}

func indentRest(s string) string {
	return strings.ReplaceAll(strings.TrimRight(s, "\n"), "\n", "\n  ")
}

// nearest is the candidate that was probably meant, or "".
func nearest(word string, candidates []string) string {
	best, distance := "", len(word)/3+2
	for _, c := range slices.Sorted(slices.Values(candidates)) {
		if d := editDistance(word, c); d < distance {
			best, distance = c, d
		}
	}
	if best == "" {
		for _, c := range slices.Sorted(slices.Values(candidates)) {
			if len(word) >= 2 && strings.HasPrefix(c, word) {
				return c
			}
		}
	}
	return best
}

// editDistance counts the insertions, deletions, replacements and swaps of neighbours between two words.
func editDistance(a, b string) int {
	var before []int
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// isTerminal reports whether w is a terminal, and how wide it is.
func isTerminal(w io.Writer) (bool, int) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return false, 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil || width <= 0 {
		width = 80
	}
	return true, width
}

// Command bench measures curfew beside what people use instead of it: one plain DELETE, a loop of limited ones, reading keys
// and deleting them as an application does, and pt-archiver.
//
// Its one rule: numbers of different moments are not compared. The contenders take turns within a round, each on a fresh
// copy of one table, and a ratio is always one between neighbours. Nothing here passes or fails by its speed; a contender
// that leaves a due row, or takes one that is not due, ends the measurement.
//
// It is what make bench runs; scripts/bench.sh gives it servers that write through.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings are what the command line says.
type settings struct {
	curfew    string // the program under test
	postgres  string // URL of a server's database, from the environment
	mariadb   string
	rows      int
	rounds    int
	load      int // rounds with a foreground load
	ops       int // of the foreground, a second
	inFlight  []int
	batchRows []int
	only      []string
	out       string
	args      string // as given, for the report
	dir       string // scratch
	log       io.Writer
}

// part is a part of the report, under its own mark in the document.
type part struct {
	name    string
	measure func(context.Context, *settings) (string, error)
}

// parts are what can be measured, in the order of the report. The first three are measured unless asked otherwise.
var parts = []part{
	{"postgres", measurePostgres},
	{"mariadb", measureMariaDB},
	{"sqlite", measureSQLite},
	{"idle", measureIdle},
	{"big", measureBig},
	{"serve", measureServe},
	{"tasks", measureTasks},
	{"costs", measureCosts},
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	s := &settings{log: stderr, postgres: os.Getenv("CURFEW_TEST_POSTGRES"), mariadb: os.Getenv("CURFEW_TEST_MARIADB"),
		inFlight: []int{4, 2}, batchRows: []int{20000}, only: []string{"postgres", "mariadb", "sqlite"}}
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&s.curfew, "curfew", "bin/curfew", "the program to measure")
	flags.IntVar(&s.rows, "rows", 3_000_000, "rows of the PostgreSQL tables, 40 % of them due; the other tables are smaller in proportion")
	flags.IntVar(&s.rounds, "rounds", 3, "rounds of each comparison")
	flags.IntVar(&s.load, "load-rounds", 2, "rounds of each comparison with a foreground load; 0 for none")
	flags.IntVar(&s.ops, "ops", 300, "operations a second of the foreground load")
	flags.Func("in-flight", "batches at once, flat out: a list (default 4,2)", intList(&s.inFlight))
	flags.Func("batch-rows", "rows a batch, flat out: a list (default 20000)", intList(&s.batchRows))
	flags.StringVar(&s.out, "out", "docs/benchmarks.md", "the document to write the tables into; empty for none")
	flags.Func("only", "what to measure, a list of postgres, mariadb, sqlite, idle, big, serve, tasks, costs (default the first three)",
		func(text string) error { s.only = strings.Split(text, ","); return knownParts(s.only) })
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if s.rows < 1000 || s.rounds < 1 || s.ops < 1 {
		return errors.New("at least 1000 rows, 1 round and 1 operation a second, please")
	}
	s.args = reproducing(args)
	var err error
	if s.curfew, err = filepath.Abs(s.curfew); err != nil {
		return err
	}
	if _, err := os.Stat(s.curfew); err != nil {
		return fmt.Errorf("the program to measure: %w (make build)", err)
	}
	if s.dir, err = os.MkdirTemp("", "curfew-bench."); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	return s.measure(ctx, stdout)
}

// measure does the chosen parts, and keeps each in the report as soon as there is one.
func (s *settings) measure(ctx context.Context, stdout io.Writer) error {
	began := time.Now()
	for _, p := range parts {
		if !slices.Contains(s.only, p.name) {
			continue
		}
		text, err := p.measure(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		fmt.Fprintf(stdout, "%s\n", text)
		if s.out == "" || p.name == "costs" {
			continue
		}
		if err := splice(s.out, p.name, text); err != nil {
			return err
		}
	}
	s.say("all of it took %s", time.Since(began).Round(time.Second))
	return nil
}

// say tells whoever waits what is going on.
func (s *settings) say(format string, args ...any) {
	fmt.Fprintf(s.log, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

func intList(to *[]int) func(string) error {
	return func(text string) error {
		*to = nil
		for _, f := range strings.Split(text, ",") {
			n, err := strconv.Atoi(f)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is no list of numbers", text)
			}
			*to = append(*to, n)
		}
		return nil
	}
}

// reproducing are the arguments that matter to who wants to see the same: not where the program lies, nor where the answer goes.
func reproducing(args []string) string {
	var kept []string
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if name == "curfew" || name == "out" {
			if !joined {
				i++
			}
			continue
		}
		kept = append(kept, args[i])
	}
	return strings.Join(kept, " ")
}

func knownParts(names []string) error {
	for _, n := range names {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == n }) {
			return fmt.Errorf("there is no part %q", n)
		}
	}
	return nil
}

package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"curfew.dev/curfew"
	"curfew.dev/curfew/api"
)

const taskLong = `Look at tasks, do one by hand, have one called later, and deal with calls that failed.

A task is a piece of recurring or deferred work beside retention: a command or an HTTP request
of the file, or a function of an application that embeds curfew. A call is one execution of it.
curfew serve keeps the schedules of the file's tasks, as it keeps those of policies: status,
gaps, runs, show, pause and resume speak of both.`

func (a *app) taskCommand() *cobra.Command {
	names := []string{"list", "run", "defer", "calls", "failed"}
	cmd := &cobra.Command{
		Use:   "task",
		Short: "List, run and defer tasks; retry what failed",
		Long:  taskLong,
		Args:  a.subcommand("task", names),
		RunE:  func(*cobra.Command, []string) error { return nil },
	}
	cmd.AddCommand(a.taskListCommand(), a.taskRunCommand(), a.taskDeferCommand(), a.taskCallsCommand(), a.taskFailedCommand())
	return cmd
}

// subcommand answers a first word that is no command of a group.
func (a *app) subcommand(group string, names []string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		hint := fmt.Sprintf("%q lists them", "curfew "+group+" --help")
		if len(args) == 0 {
			return usageError(hint, "curfew %s needs one of %s", group, strings.Join(names, ", "))
		}
		if near := nearest(args[0], names); near != "" {
			hint = fmt.Sprintf("did you mean %q?", "curfew "+group+" "+near)
		}
		return usageError(hint, "no command %q", group+" "+args[0])
	}
}

func (a *app) taskListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list [TASK…]",
		Short: "List the tasks: when each is due, and how it is",
		Long: `List the tasks of the file, and those that applications have on the same ledger: the cron in
words, when the task last was done, when it is next due, and its calls. Exit code 1 means that
one is not well.`,
		Example: `  curfew task list
  curfew task list --output json | jq -r '.[] | select(.failed > 0) | .name'`,
		ValidArgsFunction: a.completeTasks(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			tasks, err := c.Tasks(cmd.Context(), args...)
			if err != nil {
				return err
			}
			if len(tasks) == 0 {
				a.note("no tasks; they are under tasks: in the policy file, or in an application")
			}
			for _, t := range tasks {
				if !t.Well {
					a.code = exitNotWell
				}
			}
			return a.answer(tasks, func(p *printer) { p.tasks(tasks) })
		},
	}
}

const taskRunLong = `Do a task now, in this process, and wait for it: the very thing that its schedule does, with the
same settings and under the same locks, recorded as a call. What a command prints goes to
stderr as it comes. It is not tried again when it fails: that is exit code 3.

Words after -- are added to the task's command.`

func (a *app) taskRunCommand() *cobra.Command {
	var given string
	cmd := &cobra.Command{
		Use:   "run TASK [--args JSON] [-- WORD…]",
		Short: "Do a task by hand",
		Long:  taskRunLong,
		Example: `  curfew task run core.clear_sessions
  curfew task run core.clear_sessions -- --dry-run`,
		ValidArgsFunction: a.completeTasks(1),
		Args: func(cmd *cobra.Command, words []string) error {
			own := len(words)
			if at := cmd.ArgsLenAtDash(); at >= 0 {
				own = at
			}
			return args(1, 1, "a task")(cmd, words[:own])
		},
		RunE: func(cmd *cobra.Command, words []string) error {
			req := curfew.TaskRunRequest{Task: words[0], Argv: words[1:], Output: a.stderr, Waiting: func() { a.note("waiting: it is being done elsewhere, or its lock is taken") }}
			var err error
			if req.Args, err = jsonFlag(cmd, "args", given); err != nil {
				return err
			}
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			call, err := c.RunTask(cmd.Context(), req)
			if err != nil {
				return err
			}
			if call.State != api.CallSucceeded {
				a.code = exitFailed
			}
			return a.answer(call, func(p *printer) { p.taskCall(call) })
		},
	}
	cmd.Flags().StringVar(&given, "args", "", "the task's arguments, as `JSON`")
	_ = cmd.RegisterFlagCompletionFunc("args", cobra.NoFileCompletions)
	return cmd
}

// jsonFlag is the value of a flag that has to be JSON, nil when it was not given.
func jsonFlag(cmd *cobra.Command, name, value string) (json.RawMessage, error) {
	if !cmd.Flags().Changed(name) {
		return nil, nil
	}
	if !json.Valid([]byte(value)) {
		return nil, usageError(`for example --`+name+` '{"order": 4711}'; mind the shell's quotes`, "--%s is not JSON", name)
	}
	return json.RawMessage(value), nil
}

const taskDeferLong = `Have a task called later, or as soon as a worker is free, by curfew serve or the application that
has it. The call survives every process; it is executed at least once.`

func (a *app) taskDeferCommand() *cobra.Command {
	var given, in, at, unique string
	var priority int
	cmd := &cobra.Command{
		Use:   "defer TASK [--args JSON] [--in LENGTH | --at INSTANT]",
		Short: "Have a task called, once, now or later",
		Long:  taskDeferLong,
		Example: `  curfew task defer core.clear_sessions --in 10m
  curfew task defer mail.send --args '{"order": 4711}' --unique order-4711`,
		Args:              args(1, 1, "a task"),
		ValidArgsFunction: a.completeTasks(1),
		RunE: func(cmd *cobra.Command, words []string) error {
			data, err := jsonFlag(cmd, "args", given)
			if err != nil {
				return err
			}
			var opts []curfew.DeferOption
			if cmd.Flags().Changed("in") {
				d, err := time.ParseDuration(in)
				if err != nil || d <= 0 {
					return usageError("as in --in 90s, --in 10m, --in 36h", "--in is no length of time: %q", in)
				}
				opts = append(opts, curfew.In(d))
			}
			if cmd.Flags().Changed("at") {
				t, err := time.Parse(time.RFC3339, at)
				if err != nil {
					return usageError("as in --at 2026-07-01T02:00:00Z", "--at is no RFC 3339 instant: %q", at)
				}
				opts = append(opts, curfew.At(t))
			}
			if cmd.Flags().Changed("unique") {
				if unique == "" {
					return usageError("give it a value; an unset variable in a script gives none", "--unique is empty")
				}
				opts = append(opts, curfew.Unique(unique))
			}
			if cmd.Flags().Changed("priority") {
				opts = append(opts, curfew.Priority(priority))
			}
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			made, err := c.DeferNamed(cmd.Context(), words[0], data, opts...)
			if err != nil {
				return err
			}
			call, err := c.TaskCall(cmd.Context(), made.ID)
			if err != nil {
				return err
			}
			if call.Duplicate = made.Duplicate; made.Duplicate {
				a.note("an open call has this key already; no second one was made")
			}
			return a.answer(call, func(p *printer) { p.taskCall(call) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&given, "args", "", "the task's arguments, as `JSON`")
	f.StringVar(&in, "in", "", "not before this `LENGTH` of time has passed: 90s, 10m, 36h")
	f.StringVar(&at, "at", "", "not before this `INSTANT` (RFC 3339)")
	f.StringVar(&unique, "unique", "", "no second call with this `KEY` while one is open")
	f.IntVar(&priority, "priority", 1, "`N` from 1, which comes first, to 4")
	for _, free := range []string{"args", "in", "at", "unique", "priority"} {
		_ = cmd.RegisterFlagCompletionFunc(free, cobra.NoFileCompletions)
	}
	return cmd
}

var callStates = []string{api.CallWaiting, api.CallRunning, api.CallRetrying, api.CallSucceeded, api.CallFailed, api.CallDiscarded}

func (a *app) taskCallsCommand() *cobra.Command {
	filter := curfew.TaskCallFilter{Limit: 50}
	cmd := &cobra.Command{
		Use:   "calls [ID]",
		Short: "List calls of tasks, or show one",
		Long: `List calls of tasks, the newest first, or show one with its arguments and its result. Those that
are done are kept for a while: retention in the file says how long.`,
		Example: `  curfew task calls --task mail.send
  curfew task calls 4711
  curfew task calls --state retrying --output json`,
		Args: args(0, 1, ""),
		RunE: func(cmd *cobra.Command, words []string) error {
			if filter.State != "" && !known(callStates, filter.State) {
				return usageError("one of "+strings.Join(callStates, ", "), "no state %q of a call", filter.State)
			}
			if filter.Limit <= 0 {
				return usageError("as in --limit 100", "--limit must be positive")
			}
			ids, err := callIDs(words)
			if err != nil {
				return err
			}
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			if len(ids) == 1 {
				call, err := c.TaskCall(cmd.Context(), ids[0])
				if err != nil {
					return err
				}
				return a.answer(call, func(p *printer) { p.taskCall(call) })
			}
			return a.listCalls(cmd, c, filter)
		},
	}
	a.callFlags(cmd, &filter)
	cmd.Flags().StringVar(&filter.State, "state", "", "only calls in this `STATE`: "+strings.Join(callStates, ", "))
	_ = cmd.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(callStates, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func (a *app) callFlags(cmd *cobra.Command, filter *curfew.TaskCallFilter) {
	cmd.Flags().StringVar(&filter.Task, "task", "", "only calls of this `TASK`")
	cmd.Flags().StringVar(&filter.Match, "match", "", "only calls whose last error has this `TEXT` in it")
	_ = cmd.RegisterFlagCompletionFunc("task", a.completeTasks(-1))
	_ = cmd.RegisterFlagCompletionFunc("match", cobra.NoFileCompletions)
	if filter.Limit > 0 {
		cmd.Flags().IntVar(&filter.Limit, "limit", filter.Limit, "at most `N` calls")
		_ = cmd.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
	}
}

func (a *app) listCalls(cmd *cobra.Command, c *curfew.Curfew, filter curfew.TaskCallFilter) error {
	if filter.Task != "" {
		if _, err := c.Tasks(cmd.Context(), filter.Task); err != nil {
			return err
		}
	}
	calls, err := c.TaskCalls(cmd.Context(), filter)
	if err != nil {
		return err
	}
	if len(calls) == 0 {
		a.note("no call matches")
	}
	return a.answer(calls, func(p *printer) { p.taskCalls(calls) })
}

func callIDs(words []string) ([]int64, error) {
	var ids []int64
	for _, w := range words {
		id, err := strconv.ParseInt(w, 10, 64)
		if err != nil || id < 1 {
			return nil, usageError("curfew task calls lists them, by their numbers", "%q is not a call's number", w)
		}
		ids = append(ids, id)
	}
	return ids, nil
}

const taskFailedLong = `List the calls that failed for good: those that used up their attempts, or that their task or the
other side said would fail again. They stay in the list until they are retried or discarded,
or their time is up (retention in the file).

A run whose call failed stays failed in the record, whatever becomes of the call later.`

func (a *app) taskFailedCommand() *cobra.Command {
	filter := curfew.TaskCallFilter{Limit: 50, State: api.CallFailed}
	cmd := &cobra.Command{
		Use:   "failed",
		Short: "List the calls that failed for good; retry or discard them",
		Long:  taskFailedLong,
		Example: `  curfew task failed
  curfew task failed retry 4711
  curfew task failed retry --task mail.send --match "connection refused" --yes
  curfew task failed discard 4711 --reason "the order was cancelled"`,
		Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if filter.Limit <= 0 {
				return usageError("as in --limit 100", "--limit must be positive")
			}
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			return a.listCalls(cmd, c, filter)
		},
	}
	a.callFlags(cmd, &filter)
	cmd.AddCommand(a.failedChangeCommand("retry"), a.failedChangeCommand("discard"))
	return cmd
}

// failedChangeCommand retries or discards calls: some by their numbers, or all that match, which are counted first.
func (a *app) failedChangeCommand(verb string) *cobra.Command {
	var filter curfew.TaskCallFilter
	var yes bool
	var reason string
	short, long := "Have calls that failed executed again", `Have calls that failed for good executed again, with all their attempts: those that are named by
their numbers or, with --task or --match, all that match. These are only counted unless --yes
is given.`
	if verb == "discard" {
		short, long = "Give calls that failed up", `Give calls that failed for good up, with a reason that is kept beside them and in the audit trail:
those that are named by their numbers, which may also be waiting still, or, with --task or
--match, all that match. These are only counted unless --yes is given.`
	}
	cmd := &cobra.Command{
		Use:   verb + " [ID…]",
		Short: short,
		Long:  long,
		RunE: func(cmd *cobra.Command, words []string) error {
			var err error
			if filter.IDs, err = callIDs(words); err != nil {
				return err
			}
			matching := filter.Task != "" || filter.Match != ""
			switch {
			case len(filter.IDs) > 0 && matching:
				return usageError("give numbers, or --task and --match", "calls are named by their numbers and by what matches")
			case len(filter.IDs) == 0 && !matching:
				return usageError("curfew task failed lists them; give numbers, or --task and --match", "it was not said which calls")
			}
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			count := matching && !yes
			var changed api.CallsChanged
			if verb == "retry" {
				changed, err = c.RetryCalls(cmd.Context(), filter, count)
			} else {
				changed, err = c.DiscardCalls(cmd.Context(), filter, reason, count)
			}
			if err != nil {
				return err
			}
			if count {
				a.code = exitNotWell
				a.note("nothing was changed; with --yes these calls are %s", map[string]string{"retry": "retried", "discard": "discarded"}[verb])
			}
			return a.answer(changed, func(p *printer) {
				p.linef("%s", map[int64]string{1: "1 call"}[changed.Calls]+map[bool]string{true: count64(changed.Calls) + " calls"}[changed.Calls != 1])
			})
		},
	}
	a.callFlags(cmd, &filter)
	cmd.Flags().BoolVar(&yes, "yes", false, verb+" all that match, and do not only count them")
	if verb == "discard" {
		cmd.Flags().StringVar(&reason, "reason", "", "`WHY`, kept beside the calls and in the audit trail")
		_ = cmd.RegisterFlagCompletionFunc("reason", cobra.NoFileCompletions)
	}
	return cmd
}

func count64(n int64) string { return count(n) }

// completeTasks offers the tasks of this process.
func (a *app) completeTasks(max int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if max >= 0 && len(args) >= max {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.complete(cmd, (*curfew.Curfew).TaskNames)
	}
}

// tasks writes how tasks are: a line each, and below the table what is wrong.
func (p *printer) tasks(all []api.Task) {
	if len(all) == 0 {
		return
	}
	rows := [][]cell{heads("TASK", "STATE", "IS", "LAST OK", "NEXT DUE", "WAITING", "FAILED", "SCHEDULE")}
	for _, t := range all {
		is := colored(good, "well")
		if !t.Well {
			is = colored(bad, "not well")
		}
		schedule := t.Schedule
		if schedule == "" {
			schedule = "when called"
		}
		rows = append(rows, []cell{text(t.Name), text(t.State), is, text(secondOr(t.LastOK, "never")), text(secondOr(t.NextDue, "-")),
			number(t.Waiting + t.Retrying), number(t.Failed), text(schedule)})
	}
	p.list(rows)
	for _, t := range all {
		if t.Well {
			continue
		}
		p.linef("")
		p.linef("%s", p.paint(bold, t.Name))
		p.facts("  ", [2]string{"problem", wrap(t.Problem, "", p.columns()-11)}, [2]string{"do", wrap(t.Hint, "", p.columns()-11)})
	}
}

// taskCalls writes calls, a line each.
func (p *printer) taskCalls(calls []api.TaskCall) {
	if len(calls) == 0 {
		return
	}
	rows := [][]cell{heads("CALL", "TASK", "STATE", "ATTEMPT", "CAUSE", "CREATED", "NOT BEFORE", "ERROR")}
	for _, c := range calls {
		first, _, _ := strings.Cut(c.Error, "\n")
		rows = append(rows, []cell{number(c.ID), text(c.Task), colored(callColor(c.State), c.State), text(fmt.Sprintf("%d of %d", c.Attempt, c.Attempts)), text(c.Cause),
			text(second(c.CreatedAt)), text(secondOr(c.NotBefore, "-")), text(first)})
	}
	p.list(rows)
}

func callColor(state string) string {
	switch state {
	case api.CallSucceeded:
		return good
	case api.CallFailed:
		return bad
	case api.CallRetrying, api.CallDiscarded:
		return warn
	}
	return ""
}

// taskCall writes one call.
func (p *printer) taskCall(c api.TaskCall) {
	run := c.Run
	if run != "" {
		run = shortID(run)
	}
	args := string(c.Args)
	if args == "null" {
		args = ""
	}
	var printed string
	if json.Unmarshal(c.Result, &printed) != nil {
		printed = string(c.Result)
	}
	discarded := ""
	if c.DiscardedBy != "" {
		discarded = c.DiscardedBy + ": " + c.Reason
	}
	p.facts("", [2]string{"call", strconv.FormatInt(c.ID, 10)}, [2]string{"task", c.Task}, [2]string{"state", p.paint(callColor(c.State), c.State)},
		[2]string{"attempt", fmt.Sprintf("%d of %d", c.Attempt, c.Attempts)}, [2]string{"cause", c.Cause}, [2]string{"scheduled", secondOr(c.ScheduledAt, "")},
		[2]string{"run", run}, [2]string{"arguments", args}, [2]string{"words", strings.Join(c.Argv, " ")}, [2]string{"unique key", c.Key},
		[2]string{"created", second(c.CreatedAt)}, [2]string{"not before", secondOr(c.NotBefore, "")}, [2]string{"started", secondOr(c.StartedAt, "")},
		[2]string{"ended", secondOr(c.EndedAt, "")}, [2]string{"discarded", discarded}, [2]string{"error", c.Error}, [2]string{"result", strings.TrimRight(printed, "\n")})
}

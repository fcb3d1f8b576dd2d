// Package task is background work that an application registers by name: what
// comes at set times, and what is put off until later. A task is a name, a
// handler with typed arguments, and settings; a call is one piece of its work,
// which is tried again when it fails.
//
//	var Welcome = task.New("mail.welcome", func(ctx context.Context, call task.Call[Member]) error {
//		return mailer.Send(ctx, call.Args.Address, "Welcome")
//	}, task.Options{Priority: 2})
//
//	var Clear = task.New("core.clear_sessions", func(ctx context.Context, call task.Call[struct{}]) error {
//		return sessions.Clear(ctx, call.Scheduled)
//	}, task.Options{Cron: "42 2 * * 1"})
//
// Both are the same: a call of a periodic task carries the instant it was
// scheduled for, any other carries none ([Info.Scheduled] is zero). The engine
// that keeps and executes calls is the root package's; this package imports none
// of curfew, so that tasks can be declared where their work is.
//
// Its one invariant: a handler returns, or its call is tried again. Whatever
// ends an attempt, an error, a panic, arguments that cannot be read, an exit
// code, a timeout or the death of the process, is an error with a reason, and
// only [Fail] ends the attempts before their number does. An attempt may
// therefore be a repetition of one that did its work and could not say so any
// more: handlers must bear that, for instance by inserting under [Info.ID].
package task

package curfew

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/riverq"
)

// TaskRunRequest asks for a task to be done by hand.
type TaskRunRequest struct {
	Task string
	Args json.RawMessage // JSON; nil is none
	Argv []string        // words added to a command
	// Output gets what a command prints, as it prints it. May be nil.
	Output io.Writer
	// Waiting is called when the call has to wait for a lock. May be nil.
	Waiting func()
}

// RunTask does a task once, in this process, and waits for it: the very thing that its schedule or a deferral would do, recorded as a
// call like any other, under the same locks. It is not tried again when it fails, since somebody is looking. A task that is a function
// of an application runs where that is: elsewhere it is refused.
func (c *Curfew) RunTask(ctx context.Context, req TaskRunRequest) (api.TaskCall, error) {
	d := c.tasks[req.Task]
	if d == nil {
		if _, err := c.taskRecord(ctx, req.Task); err != nil {
			return api.TaskCall{}, err
		}
		return api.TaskCall{}, fail(KindRefused, "curfew task defer "+req.Task+" has it done by a process that has it", "this process does not have task %s", req.Task)
	}
	if len(req.Argv) > 0 && d.kind != api.TaskCommand {
		return api.TaskCall{}, fail(KindUsage, "give --args '{…}'", "task %s is no command, and takes no words", req.Task)
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return api.TaskCall{}, err
	}
	db, err := l.QueueDB(ctx)
	if err != nil {
		return api.TaskCall{}, ledgerError(err)
	}
	defer db.Close()
	if err := migrateQueue(ctx, db); err != nil {
		return api.TaskCall{}, err
	}
	// A queue that nobody else looks at: no service takes the call, and this process no other.
	queue := riverq.ByHand + strings.ToLower(rand.Text()[:12])
	var q *riverq.Client
	x := &executing{c: c, l: l, queue: func() *riverq.Client { return q }, owner: newOwner(), stdout: req.Output}
	waited := false
	do := func(ctx context.Context, a riverq.Attempt) (json.RawMessage, error) {
		out, err := x.do(ctx, a)
		if later := (*riverq.LaterError)(nil); errors.As(err, &later) && !waited && req.Waiting != nil {
			waited = true
			req.Waiting()
		}
		return out, err
	}
	q, err = riverq.New(riverq.Options{DB: db.DB, SQLite: db.SQLite, Schema: db.Schema, ID: x.owner, Logger: c.log, Clock: c.queueClock(db),
		Tasks: []string{req.Task}, Do: do, Queues: map[string]int{queue: 1}})
	if err != nil {
		return api.TaskCall{}, err
	}
	if err := q.Start(ctx); err != nil {
		return api.TaskCall{}, ledgerError(err)
	}
	stopped := false
	stop := func() error {
		if stopped {
			return nil
		}
		stopped = true
		aborted, cancel := context.WithTimeout(context.WithoutCancel(ctx), 0) // what still executes was interrupted by the caller
		defer cancel()
		return q.Stop(aborted)
	}
	defer stop()
	made, err := c.deferCall(ctx, req.Task, req.Args, req.Argv, "cli", []DeferOption{func(d *deferral) {
		d.call.Queue, d.call.Attempts = queue, 1
	}})
	if err != nil {
		return api.TaskCall{}, err
	}
	q.Wake(queue)
	var lost error
	for lost == nil {
		call, err := c.TaskCall(ctx, made.ID)
		if err != nil {
			lost = err
			break
		}
		if call.EndedAt != nil {
			return call, nil
		}
		lost = pause(ctx, 50*time.Millisecond)
	}
	after := context.WithoutCancel(ctx)
	if ctx.Err() != nil {
		lost = fail(KindInterrupted, fmt.Sprintf("curfew task calls %d shows what there is of it; whether its work can be done again is for the task to say", made.ID), "call %d of %s was interrupted", made.ID, req.Task)
	}
	err = errors.Join(lost, stop())
	if call, cerr := c.TaskCall(after, made.ID); cerr == nil && call.EndedAt == nil {
		// Nobody else will ever look into this queue.
		_, derr := c.discardCalls(after, TaskCallFilter{IDs: []int64{made.ID}}, "interrupted by hand", false, c.actor)
		err = errors.Join(err, derr)
	}
	return api.TaskCall{}, err
}

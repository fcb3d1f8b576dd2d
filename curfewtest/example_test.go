package curfewtest_test

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"curfew.dev/curfew"
	"curfew.dev/curfew/curfewtest"
	"curfew.dev/curfew/policy"
	"curfew.dev/curfew/task"
)

type welcome struct {
	To string `json:"to"`
}

var (
	welcomed []string

	sendWelcome = task.New("mail.welcome", func(_ context.Context, c task.Call[welcome]) error {
		welcomed = append(welcomed, c.Args.To)
		return nil
	}, task.Options{})
	report = task.New("mail.report", func(context.Context, task.Call[struct{}]) error { return nil }, task.Options{Cron: "0 6 * * 1"})
)

// What a request deferred, and what comes of it.
func Example() {
	var t *testing.T // of the test

	k := curfewtest.New(t, curfewtest.Options{Tasks: []*task.Task{sendWelcome, report}})
	if _, err := k.App().DeferIn(t.Context(), time.Hour, sendWelcome, welcome{To: "ada@example.org"}); err != nil {
		t.Fatal(err)
	}
	k.RequireDeferred(sendWelcome, welcome{To: "ada@example.org"})
	k.Advance(time.Hour)
	if len(welcomed) != 1 {
		t.Errorf("welcomed: %q", welcomed)
	}
	k.RequireWell()
}

// The application's tables are in the ledger's database, and what it defers commits with what it writes.
func ExampleKit_Tx() {
	var t *testing.T // of the test

	k := curfewtest.New(t, curfewtest.Options{Tasks: []*task.Task{sendWelcome}})
	err := k.Tx(func(tx *sql.Tx) error {
		_, err := k.App().DeferTx(t.Context(), tx, sendWelcome, welcome{To: "ada@example.org"}, curfew.Unique("ada"))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	k.Drain()
}

// Schedules keep the kit's time: two weeks, and what was missed while nobody worked.
func ExampleKit_Advance() {
	var t *testing.T // of the test

	k := curfewtest.New(t, curfewtest.Options{
		Tasks: []*task.Task{report},
		Start: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC),
		Env:   map[string]string{"CURFEW_TASK_MAIL_REPORT_CRON": "0 7 * * 1"},
	})
	k.Advance(14 * 24 * time.Hour)
	if calls := k.Calls(report); len(calls) != 2 || calls[0].ScheduledAt.Hour() != 7 {
		t.Errorf("%+v", calls)
	}
	k.Sleep(14 * 24 * time.Hour) // every process is down
	k.Drain()
	gaps, err := k.App().Gaps(t.Context(), curfew.GapFilter{Policy: "mail.report"})
	if err != nil || gaps[0].Missed != 2 {
		t.Errorf("%+v, %v", gaps, err)
	}
}

// A policy file over a test database: the policies run when their schedules say so.
func ExampleNew_policies() {
	var t *testing.T // of the test

	file, err := policy.Load("curfew.yaml")
	if err != nil {
		t.Fatal(err)
	}
	k := curfewtest.New(t, curfewtest.Options{Config: file})
	if _, err := k.App().Install(t.Context(), "library", false); err != nil { // curfew's tables in it
		t.Fatal(err)
	}
	k.Advance(24 * time.Hour)
	k.RequireWell()
}

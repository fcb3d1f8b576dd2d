package curfew

import (
	"database/sql"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/internal/riverq"
)

// TestDeferSQLIsDeferTx: curfew.defer and a service's own client insert the same rows, and find each other's open calls.
func TestDeferSQLIsDeferTx(t *testing.T) {
	p := newDeferPlace(t)
	c, err := riverq.New(riverq.Options{DB: p.queue.DB, Schema: p.queue.Schema})
	if err != nil {
		t.Fatal(err)
	}
	const long = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa" // just what River takes
	now := time.Now().Truncate(time.Microsecond)
	for _, queue := range []string{"", "mail", "Mail", "task:core.clear_sessions", "--", "a_-b", "Zürich", "x2-", "0", long, long + "b",
		"a-very-long-name.of a queue, that is cut off somewhere", "thirty-nine-letters-and-then-a-hyphen-x-_y.."} {
		for i, task := range []string{"mail.send", "core.Clear_sessions-2"} {
			r := deferrable(task, queue)
			if i == 1 {
				r.Priority, r.Attempts, r.Backoff, r.Factor, r.Timeout = 0, 1, 0, 1, time.Nanosecond
			}
			p.put(t, r)
			for _, at := range []time.Time{{}, now.Add(3 * time.Second), now.Add(time.Hour), now.Add(-time.Hour)} {
				for _, args := range []string{`{"to": "Zoë", "n": null, "deep": [{"x": null}, 12345678901234567890]}`, `null`, ``} {
					for _, key := range []string{"", "ключ\n"} {
						p.compare(t, c, riverq.Call{Task: task, Args: json.RawMessage(args), Cause: "sql", Key: key, Queue: queue, Priority: r.Priority,
							At: at, Attempts: r.Attempts, Backoff: r.Backoff, Factor: r.Factor, Timeout: r.Timeout})
					}
				}
			}
		}
	}
}

// compare defers a call by DeferTx and by curfew.defer, and leaves no call.
func (p *deferPlace) compare(t *testing.T, c *riverq.Client, call riverq.Call) {
	t.Helper()
	byTx := func() riverq.Deferred {
		tx, err := p.queue.DB.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		made, err := c.DeferTx(t.Context(), tx, []riverq.Call{call})
		if err == nil {
			err = tx.Commit()
		}
		if err != nil {
			t.Fatal(err)
		}
		return made[0]
	}
	bySQL := func() (id int64) {
		args := sql.NullString{String: string(call.Args), Valid: len(call.Args) > 0}
		err := p.app.QueryRowContext(t.Context(), `SELECT curfew.defer($1, $2::text::jsonb, $3, $4)`, call.Task, args,
			sql.NullTime{Time: call.At, Valid: !call.At.IsZero()}, call.Key).Scan(&id)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	clear := func() {
		if _, err := p.admin.ExecContext(t.Context(), `DELETE FROM curfew.river_job`); err != nil {
			t.Fatal(err)
		}
	}
	made := byTx()
	want := p.jobRow(t, made.ID, call.At.IsZero())
	if id := bySQL(); (id == made.ID) != (call.Key != "") {
		t.Errorf("key %q: call %d, the open one is %d", call.Key, id, made.ID)
	}
	clear()
	id := bySQL()
	if diff := cmp.Diff(want, p.jobRow(t, id, call.At.IsZero())); diff != "" {
		t.Errorf("%+v (-DeferTx +curfew.defer):\n%s", call, diff)
	}
	if d := byTx(); d.Duplicate != (call.Key != "") || d.Duplicate && d.ID != id {
		t.Errorf("key %q: %+v, the open one is %d", call.Key, d, id)
	}
	clear()
}

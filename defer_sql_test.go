package curfew

import (
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/riverq"
)

// deferPlace is a migrated ledger with its queue, and the connections of an application that may defer.
type deferPlace struct {
	admin *sql.DB
	app   *sql.DB
	url   string // the application's
	l     *ledger.Ledger
	queue *ledger.QueueDB
}

func newDeferPlace(t *testing.T) *deferPlace {
	t.Helper()
	url := dbtest.Postgres(t)
	asRole, role := dbtest.PostgresRole(t, url)
	p := &deferPlace{url: asRole}
	if _, err := ledger.Migrate(t.Context(), ledger.Options{URL: url}); err != nil {
		t.Fatal(err)
	}
	var err error
	if p.l, err = ledger.Open(t.Context(), ledger.Options{URL: url, Actor: "test"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.l.Close() })
	if p.queue, err = p.l.QueueDB(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.queue.Close() })
	if err := riverq.Migrate(t.Context(), p.queue.DB, p.queue.SQLite, p.queue.Schema); err != nil {
		t.Fatal(err)
	}
	p.admin, p.app = dbtest.Open(t, url), dbtest.Open(t, asRole)
	if code := sqlState(p.call(t, `SELECT curfew.defer('mail')`)); code != "42501" {
		t.Errorf("who was granted nothing: SQLSTATE %q", code)
	}
	for _, g := range ledger.ApplicationGrants(role) {
		if _, err := p.admin.ExecContext(t.Context(), g); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// call runs a statement as the application, and drops its answer.
func (p *deferPlace) call(t *testing.T, stmt string, args ...any) error {
	t.Helper()
	return p.app.QueryRowContext(t.Context(), stmt, args...).Scan(new(any))
}

func (p *deferPlace) put(t *testing.T, tasks ...ledger.TaskRecord) {
	t.Helper()
	if _, err := p.l.PutTasks(t.Context(), "file", tasks); err != nil {
		t.Fatal(err)
	}
}

func sqlState(err error) string {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code
	}
	return ""
}

func deferrable(name, queue string) ledger.TaskRecord {
	return ledger.TaskRecord{Name: name, Revision: "1", Body: []byte("{}"), Queue: queue, Priority: 2, Attempts: 5, Backoff: 10 * time.Second, Factor: 10,
		Timeout: 10 * time.Minute}
}

// jobRow is a row of the queue, but for its number and the instants that are its own.
func (p *deferPlace) jobRow(t *testing.T, id int64, atOnce bool) map[string]any {
	t.Helper()
	var text string
	if err := p.admin.QueryRowContext(t.Context(), `SELECT to_jsonb(j) FROM curfew.river_job j WHERE id = $1`, id).Scan(&text); err != nil {
		t.Fatal(err)
	}
	var row map[string]any
	if err := json.Unmarshal([]byte(text), &row); err != nil {
		t.Fatal(err)
	}
	if atOnce {
		if row["created_at"] != row["scheduled_at"] {
			t.Errorf("created at %s, due at %s", row["created_at"], row["scheduled_at"])
		}
		delete(row, "scheduled_at")
	}
	delete(row, "id")
	delete(row, "created_at")
	return row
}

// TestDeferSQL: what curfew.defer inserts, in the caller's own transaction and with no other right.
func TestDeferSQL(t *testing.T) {
	p := newDeferPlace(t)
	p.put(t, deferrable("mail.send", "mail"))
	at := time.Date(2126, 3, 1, 2, 42, 0, 123456000, time.UTC)
	row := func(edit func(row map[string]any)) map[string]any {
		row := map[string]any{
			"args":    map[string]any{"args": map[string]any{"to": "Zoë", "n": nil}, "cause": "sql", "backoff_ns": 1e10, "factor": 10.0, "timeout_ns": 6e11},
			"attempt": 0.0, "attempted_at": nil, "attempted_by": nil, "errors": nil, "finalized_at": nil, "kind": "task:mail.send", "max_attempts": 5.0,
			"metadata": map[string]any{}, "priority": 2.0, "queue": "mail", "state": "available", "tags": []any{}, "unique_key": nil, "unique_states": nil,
		}
		edit(row)
		return row
	}
	for _, c := range []struct {
		stmt string
		want map[string]any
	}{
		{`SELECT curfew.defer('mail.send', '{"to": "Zoë", "n": null}')`, row(func(map[string]any) {})},
		{`SELECT curfew.defer('mail.send')`, row(func(r map[string]any) { r["args"].(map[string]any)["args"] = map[string]any{} })},
		{`SELECT curfew.defer('mail.send', NULL)`, row(func(r map[string]any) { delete(r["args"].(map[string]any), "args") })},
		{`SELECT curfew.defer('mail.send', '{"to": "Zoë", "n": null}', '2126-03-01 02:42:00.123456+00', 'order 4711')`, row(func(r map[string]any) {
			r["state"], r["scheduled_at"] = "scheduled", at.Format("2006-01-02T15:04:05.000000+00:00")
			r["unique_key"] = fmt.Sprintf(`\x%x`, sha256.Sum256([]byte("task:mail.send\nkey:order 4711")))
			r["unique_states"], r["args"].(map[string]any)["key"] = "11110001", "order 4711"
		})},
	} {
		var id int64
		if err := p.app.QueryRowContext(t.Context(), c.stmt).Scan(&id); err != nil {
			t.Fatalf("%s: %v", c.stmt, err)
		}
		got := p.jobRow(t, id, c.want["scheduled_at"] == nil)
		if s, ok := got["scheduled_at"].(string); ok { // whatever the session's zone is
			when, err := time.Parse("2006-01-02T15:04:05.999999-07:00", s)
			if err != nil {
				t.Fatal(err)
			}
			got["scheduled_at"] = when.UTC().Format("2006-01-02T15:04:05.000000+00:00")
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.stmt, diff)
		}
	}

	tx, err := p.app.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	var id int64
	if err := tx.QueryRowContext(t.Context(), `SELECT curfew.defer('mail.send')`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if n := p.count(t, "id = $1", id); n != 0 {
		t.Error("a transaction that was rolled back left its call")
	}
}

func (p *deferPlace) count(t *testing.T, where string, args ...any) (n int) {
	t.Helper()
	if err := p.admin.QueryRowContext(t.Context(), `SELECT count(*) FROM curfew.river_job WHERE `+where, args...).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestDeferSQLUnique: one open call a key, which a rival that is not committed yet has to wait for; and another when that is done.
func TestDeferSQLUnique(t *testing.T) {
	p := newDeferPlace(t)
	p.put(t, deferrable("mail", ""), deferrable("other", ""))
	defers := func(task, key string) (id int64) {
		t.Helper()
		if err := p.app.QueryRowContext(t.Context(), `SELECT curfew.defer($1, '{}', NULL, $2)`, task, key).Scan(&id); err != nil {
			t.Fatal(err)
		}
		return id
	}
	tx, err := p.app.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var first int64
	if err := tx.QueryRowContext(t.Context(), `SELECT curfew.defer('mail', unique_key => 'k')`).Scan(&first); err != nil {
		t.Fatal(err)
	}
	rival := make(chan int64)
	go func() {
		var id int64
		_ = p.app.QueryRow(`SELECT curfew.defer('mail', unique_key => 'k')`).Scan(&id)
		rival <- id
	}()
	for waiting := 0; waiting == 0; {
		if err := p.admin.QueryRowContext(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	if id := <-rival; id != first {
		t.Errorf("the rival has call %d, the first is %d", id, first)
	}
	if id := defers("mail", "k"); id != first {
		t.Errorf("again: call %d, the first is %d", id, first)
	}
	ids := map[int64]bool{first: true, defers("mail", "l"): true, defers("other", "k"): true, defers("mail", ""): true, defers("mail", ""): true}
	if len(ids) != 5 {
		t.Errorf("%v", ids)
	}
	if _, err := p.admin.ExecContext(t.Context(), `UPDATE curfew.river_job SET state = 'completed', finalized_at = now() WHERE id = $1`, first); err != nil {
		t.Fatal(err)
	}
	if id := defers("mail", "k"); id == first {
		t.Error("a call that is done keeps its key")
	}
}

// TestDeferSQLRefused: what cannot be deferred says what is wrong and what to do, and who calls gets no other right by it.
func TestDeferSQLRefused(t *testing.T) {
	p := newDeferPlace(t)
	p.put(t, deferrable("mail", ""))
	for _, c := range []struct{ stmt, code, message string }{
		{`SELECT curfew.defer('mall')`, "42704", `curfew knows no task "mall"`},
		{`SELECT curfew.defer(NULL)`, "42704", `curfew knows no task`},
		{`SELECT curfew.defer('mail', '{', NULL)`, "22P02", "invalid input syntax"},
		{`SELECT curfew.defer('mail', to_jsonb(repeat('x', 1048576)))`, "54000", "at most 1048576"},
		{`SELECT curfew.defer('mail', '{}', NULL, repeat('k', 501))`, "54000", "has 501 bytes, at most 500"},
		{`SELECT curfew.defer('mail', '{}', 'infinity')`, "22008", "it is no instant"},
		{`SELECT count(*) FROM curfew.task`, "42501", "permission denied"},
		{`SELECT count(*) FROM curfew.river_job`, "42501", "permission denied"},
	} {
		err := p.call(t, c.stmt)
		if sqlState(err) != c.code || !strings.Contains(err.Error(), c.message) {
			t.Errorf("%s: %v", c.stmt, err)
		}
	}
	if n := p.count(t, "true"); n != 0 {
		t.Errorf("%d calls", n)
	}
	// What the caller's own path finds first is not what the function, with its owner's rights, runs.
	conn, err := p.app.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, stmt := range []string{
		`CREATE TEMPORARY TABLE river_job (id bigint)`,
		`CREATE FUNCTION pg_temp.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked'; END $$`,
		`CREATE FUNCTION pg_temp.pg_notify(text, text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'hijacked'; END $$`,
		`SET search_path = pg_temp, public, pg_catalog`,
		`SELECT curfew.defer('mail')`,
	} {
		if _, err := conn.ExecContext(t.Context(), stmt); err != nil {
			t.Errorf("%s: %v", stmt, err)
		}
	}
	if n := p.count(t, "true"); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// TestDeferSQLNotifies: who listens as the services do is told when the caller commits, of the queue's name in the queue's tables;
// what is due later is not told.
func TestDeferSQLNotifies(t *testing.T) {
	p := newDeferPlace(t)
	p.put(t, deferrable("mail", "mail"), deferrable("Weekly.Report", "task:Weekly.Report"))
	conn, err := pgx.Connect(t.Context(), p.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `LISTEN "curfew.river_insert"`); err != nil {
		t.Fatal(err)
	}
	for _, stmt := range []string{`SELECT curfew.defer('mail', '{}', now() + interval '1 hour')`, `SELECT curfew.defer('mail', '{}', now() - interval '1 hour')`,
		`SELECT curfew.defer('Weekly.Report')`} {
		if err := p.call(t, stmt); err != nil {
			t.Fatal(err)
		}
	}
	for _, queue := range []string{"mail", fmt.Sprintf("task-weekly-report-%.6x", sha256.Sum256([]byte("task:Weekly.Report")))} {
		n, err := conn.WaitForNotification(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if want := `{"queue":"` + queue + `"}`; n.Payload != want {
			t.Errorf("told %s, want %s", n.Payload, want)
		}
		if p.count(t, "queue = $1 AND state = 'available'", queue) != 1 {
			t.Errorf("no call in queue %s", queue)
		}
	}
}

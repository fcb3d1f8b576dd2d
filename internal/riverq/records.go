package riverq

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// CallState is what has become of a call.
type CallState string

// The states of a call.
const (
	Waiting   CallState = "waiting"  // not begun: due, or to come
	Retrying  CallState = "retrying" // an attempt failed, and another is to come
	Running   CallState = "running"
	Succeeded CallState = "succeeded"
	Failed    CallState = "failed"    // for good
	Discarded CallState = "discarded" // by a person
)

// of the states in the words of River's table: what is between waiting and retrying
// is in the attempts that counted.
var stateIs = map[CallState]string{
	Waiting:   `(state IN ('available', 'scheduled', 'pending', 'retryable') AND attempt = 0)`,
	Retrying:  `(state IN ('available', 'scheduled', 'pending', 'retryable') AND attempt > 0)`,
	Running:   `state = 'running'`,
	Succeeded: `state = 'completed'`,
	Failed:    `(state = 'discarded' OR state = 'cancelled' AND NOT @marked)`,
	Discarded: `(state = 'cancelled' AND @marked)`,
}

// AttemptError is why an attempt failed.
type AttemptError struct {
	At      time.Time `json:"at"`
	Attempt int       `json:"attempt"`
	Error   string    `json:"error"`
}

// CallRecord is a call with what has become of it.
type CallRecord struct {
	ID int64
	Call
	State   CallState
	Attempt int // made, or being made
	Error   string
	Errors  []AttemptError
	Output  json.RawMessage
	Created time.Time
	// Due is when the call is to begin, or to begin again.
	Due                 time.Time
	Started, Ended      time.Time // of the last attempt; of the call
	DiscardedBy, Reason string
}

// CallFilter says which calls are meant: those that fit all that is set.
type CallFilter struct {
	Task   string
	State  CallState
	Before int64 // ids below
	Limit  int   // 0: 100 of Calls, all of the others
	IDs    []int64
	Match  string // a part of the last error
}

// where is the filter as a condition, whose parameters begin after n others.
func (c *Client) where(f CallFilter, n int) (string, []any, error) {
	var args []any
	and := []string{`kind LIKE 'task:%'`}
	arg := func(v any) string {
		args = append(args, v)
		return "$" + strconv.Itoa(n+len(args))
	}
	if f.Task != "" {
		and[0] = `kind = ` + arg(kindPrefix+f.Task)
	}
	if f.State != "" {
		is, ok := stateIs[f.State]
		if !ok {
			return "", nil, fmt.Errorf("there is no state %q", f.State)
		}
		and = append(and, strings.ReplaceAll(is, "@marked", c.pick(`metadata ? 'discarded_by'`, `json_extract(metadata, '$.discarded_by') IS NOT NULL`)))
	}
	if f.Before > 0 {
		and = append(and, `id < `+arg(f.Before))
	}
	if f.IDs != nil {
		ids, err := json.Marshal(f.IDs)
		if err != nil {
			return "", nil, err
		}
		p := arg(string(ids))
		and = append(and, c.pick(`id IN (SELECT value::bigint FROM json_array_elements_text(`+p+`::json))`, `id IN (SELECT value FROM json_each(`+p+`))`))
	}
	if f.Match != "" {
		p := arg(f.Match)
		and = append(and, c.pick(`position(`+p+`::text in errors[cardinality(errors)]->>'error') > 0`, `instr(json_extract(errors, '$[#-1].error'), `+p+`) > 0`))
	}
	return strings.Join(and, " AND "), args, nil
}

func (c *Client) pick(postgres, sqlite string) string {
	if c.o.SQLite {
		return sqlite
	}
	return postgres
}

func (c *Client) sql(postgres, sqlite string) string { return c.text(text{postgres, sqlite}) }

// Calls returns calls, the newest first.
func (c *Client) Calls(ctx context.Context, f CallFilter) ([]CallRecord, error) {
	where, args, err := c.where(f, 0)
	if err != nil {
		return nil, err
	}
	if f.Limit <= 0 {
		f.Limit = 100
	}
	columns := c.pick(`args::text, to_jsonb(errors)::text, metadata::text`, `json(args), json(errors), json(metadata)`)
	rows, err := c.o.DB.QueryContext(ctx, c.sql(`SELECT id, kind, queue, priority, max_attempts, attempt, CAST(state AS text), created_at, scheduled_at, attempted_at, finalized_at, `+
		columns+` FROM %river_job WHERE `+where+` ORDER BY id DESC LIMIT `+strconv.Itoa(f.Limit), `SELECT id, kind, queue, priority, max_attempts, attempt, state, created_at, scheduled_at, attempted_at, finalized_at, `+
		columns+` FROM %river_job WHERE `+where+` ORDER BY id DESC LIMIT `+strconv.Itoa(f.Limit)), args...)
	if err != nil {
		return nil, fmt.Errorf("read calls: %w", err)
	}
	defer rows.Close()
	var out []CallRecord
	for rows.Next() {
		r, err := c.record(rows)
		if err != nil {
			return nil, fmt.Errorf("read calls: %w", err)
		}
		out = append(out, r)
	}
	return out, rows.Err()
}

// metadata is what we keep in River's column of that name.
type metadata struct {
	Output json.RawMessage `json:"output"`
	By     *string         `json:"discarded_by"`
	Reason string          `json:"discard_reason"`
}

func (c *Client) record(rows *sql.Rows) (CallRecord, error) {
	var (
		r                       CallRecord
		kind, queue, state      string
		created, due, began, at stampScan
		args                    string
		errs, meta              sql.NullString
		priority, most          int
	)
	if err := rows.Scan(&r.ID, &kind, &queue, &priority, &most, &r.Attempt, &state, &created, &due, &began, &at, &args, &errs, &meta); err != nil {
		return r, err
	}
	var a callArgs
	var m metadata
	err := json.Unmarshal([]byte(args), &a)
	if err == nil && errs.Valid {
		err = json.Unmarshal([]byte(errs.String), &r.Errors)
	}
	if err == nil && meta.Valid {
		err = json.Unmarshal([]byte(meta.String), &m)
	}
	if err == nil {
		r.Call, err = a.call(strings.TrimPrefix(kind, kindPrefix))
	}
	if err != nil {
		return r, fmt.Errorf("call %d: %w", r.ID, err)
	}
	r.Queue, r.Priority, r.Attempts = c.queueOf(queue), priority, most
	r.Created, r.Due, r.Started, r.Ended = created.t, due.t, began.t, at.t
	r.State, r.Output, r.Reason = stateOf(state, r.Attempt, m.By != nil), m.Output, m.Reason
	if m.By != nil {
		r.DiscardedBy = *m.By
	}
	if n := len(r.Errors); n > 0 {
		r.Error = r.Errors[n-1].Error
	}
	return r, nil
}

func stateOf(river string, attempt int, marked bool) CallState {
	switch {
	case river == "running":
		return Running
	case river == "completed":
		return Succeeded
	case river == "cancelled" && marked:
		return Discarded
	case river == "cancelled", river == "discarded":
		return Failed
	case attempt > 0:
		return Retrying
	}
	return Waiting
}

// stampScan reads an instant, or none, as either engine keeps it.
type stampScan struct{ t time.Time }

func (s *stampScan) Scan(v any) (err error) {
	switch v := v.(type) {
	case nil:
	case time.Time:
		s.t = v.UTC()
	case string:
		s.t, err = time.Parse("2006-01-02 15:04:05.999999999", v)
	default:
		err = fmt.Errorf("no instant: %T", v)
	}
	return err
}

// CountCalls counts the calls that fit, whatever Limit says.
func (c *Client) CountCalls(ctx context.Context, f CallFilter) (n int64, err error) {
	where, args, err := c.where(f, 0)
	if err != nil {
		return 0, err
	}
	q := `SELECT count(*) FROM %river_job WHERE ` + where
	if err := c.o.DB.QueryRowContext(ctx, c.sql(q, q), args...).Scan(&n); err != nil {
		return 0, fmt.Errorf("count calls: %w", err)
	}
	return n, nil
}

// CallStats counts the calls of each task by their state, those that succeeded left out: there may be a million of them, and the
// others have an index.
func (c *Client) CallStats(ctx context.Context) (map[string]map[CallState]int64, error) {
	q := `SELECT kind, CAST(state AS text), CASE WHEN attempt > 0 THEN 1 ELSE 0 END, CASE WHEN state = 'cancelled' AND ` +
		c.pick(`metadata ? 'discarded_by'`, `json_extract(metadata, '$.discarded_by') IS NOT NULL`) +
		` THEN 1 ELSE 0 END, count(*) FROM %river_job WHERE kind LIKE 'task:%'
		AND state IN ('available', 'scheduled', 'pending', 'retryable', 'running', 'discarded', 'cancelled') GROUP BY 1, 2, 3, 4`
	rows, err := c.o.DB.QueryContext(ctx, c.sql(q, q))
	if err != nil {
		return nil, fmt.Errorf("count calls: %w", err)
	}
	defer rows.Close()
	out := map[string]map[CallState]int64{}
	for rows.Next() {
		var kind, state string
		var attempt, marked int
		var n int64
		if err := rows.Scan(&kind, &state, &attempt, &marked, &n); err != nil {
			return nil, fmt.Errorf("count calls: %w", err)
		}
		task := strings.TrimPrefix(kind, kindPrefix)
		if out[task] == nil {
			out[task] = map[CallState]int64{}
		}
		out[task][stateOf(state, attempt, marked == 1)] += n
	}
	return out, rows.Err()
}

// A Backlog is what is left to do of a task's calls.
type Backlog struct {
	Failed  int64 // for good
	Running int64
	Oldest  time.Time // since when the oldest that waits could have begun, or will be able to; zero when none waits
}

// Backlogs says of each task what is left to do. Calls that are done, which are many, it does not look at.
func (c *Client) Backlogs(ctx context.Context) (map[string]Backlog, error) {
	failed := strings.ReplaceAll(stateIs[Failed], "@marked", c.pick(`metadata ? 'discarded_by'`, `json_extract(metadata, '$.discarded_by') IS NOT NULL`))
	q := `SELECT kind, sum(CASE WHEN ` + failed + ` THEN 1 ELSE 0 END), sum(CASE WHEN state = 'running' THEN 1 ELSE 0 END),
		min(CASE WHEN state IN ('available', 'scheduled', 'retryable') THEN scheduled_at END)
		FROM %river_job WHERE kind LIKE 'task:%' AND state IN ('available', 'scheduled', 'retryable', 'running', 'cancelled', 'discarded') GROUP BY kind`
	rows, err := c.o.DB.QueryContext(ctx, c.sql(q, q))
	if err != nil {
		return nil, fmt.Errorf("look for calls that are left: %w", err)
	}
	defer rows.Close()
	out := map[string]Backlog{}
	for rows.Next() {
		var kind string
		var b Backlog
		var oldest stampScan
		if err := rows.Scan(&kind, &b.Failed, &b.Running, &oldest); err != nil {
			return nil, fmt.Errorf("look for calls that are left: %w", err)
		}
		b.Oldest = oldest.t
		out[strings.TrimPrefix(kind, kindPrefix)] = b
	}
	return out, rows.Err()
}

// RetryTx gives calls that failed for good a fresh set of attempts, the first of them
// at once. One whose key, or run, an open call has stays failed, and of several with
// one key only the newest is retried, and one that was done by hand goes where others are. It is no run's any more: that one has ended.
// tx is the caller's. Wake the queues after.
func (c *Client) RetryTx(ctx context.Context, tx *sql.Tx, f CallFilter) (int64, error) {
	if f.State != "" && f.State != Failed {
		return 0, nil
	}
	f.State = Failed
	where, args, err := c.where(f, 0)
	if err != nil {
		return 0, err
	}
	open := c.pick(`AND NOT EXISTS (SELECT 1 FROM %river_job AS o WHERE o.unique_key = j.unique_key AND o.id <> j.id
			AND o.state IN ('available', 'pending', 'retryable', 'running', 'scheduled'))`, `AND NOT EXISTS (SELECT 1 FROM river_job AS o
			WHERE o.unique_key = j.unique_key AND o.id <> j.id AND o.state IN ('available', 'pending', 'retryable', 'running', 'scheduled'))`)
	q := `UPDATE %river_job AS j SET state = 'available', attempt = 0, finalized_at = NULL, scheduled_at = @now,
		queue = CASE WHEN queue LIKE '` + ByHand + `%' THEN '` + Interactive + `' ELSE queue END, args = ` +
		c.pick(`(args - 'run') || '{"cause": "retry"}'`, `jsonb_set(jsonb_remove(args, '$.run'), '$.cause', 'retry')`) + `
		WHERE id IN (SELECT max(id) FROM (SELECT id, unique_key FROM %river_job WHERE ` + where + ` ORDER BY id DESC` + limit(f) + `) AS f
			GROUP BY coalesce(unique_key, ` + c.pick(`id::text::bytea`, `id`) + `)) AND state IN ('discarded', 'cancelled') ` + open
	return c.changed(c.execOn(ctx, tx, text{q, q}, args...))
}

// DiscardTx ends calls that failed for good, wait or are between two attempts, for a
// reason that is kept. tx is the caller's.
func (c *Client) DiscardTx(ctx context.Context, tx *sql.Tx, f CallFilter, by, reason string) (int64, error) {
	if by == "" || !storable(by) || !storable(reason) {
		return 0, errors.New("discard calls: say who does it, and why, in UTF-8")
	}
	where, args, err := c.where(f, 2)
	if err != nil {
		return 0, err
	}
	may := strings.ReplaceAll(`(`+stateIs[Waiting]+` OR `+stateIs[Retrying]+` OR `+stateIs[Failed]+`)`, "@marked",
		c.pick(`metadata ? 'discarded_by'`, `json_extract(metadata, '$.discarded_by') IS NOT NULL`))
	q := `UPDATE %river_job SET state = 'cancelled', finalized_at = coalesce(finalized_at, @now), metadata = ` +
		c.pick(`metadata || jsonb_build_object('discarded_by', $1::text, 'discard_reason', $2::text)`, `jsonb_set(metadata, '$.discarded_by', $1, '$.discard_reason', $2)`) +
		` WHERE id IN (SELECT id FROM %river_job WHERE ` + where + ` AND ` + may + ` ORDER BY id DESC` + limit(f) + `) AND ` + may
	return c.changed(c.execOn(ctx, tx, text{q, q}, append([]any{by, reason}, args...)...))
}

func limit(f CallFilter) string {
	if f.Limit <= 0 {
		return ""
	}
	return ` LIMIT ` + strconv.Itoa(f.Limit)
}

func (c *Client) changed(n int64, err error) (int64, error) {
	if err != nil {
		return 0, fmt.Errorf("change calls: %w", err)
	}
	return n, nil
}

// JobAttempt names an attempt at a call.
type JobAttempt = struct {
	ID      int64
	Attempt int
	By      string // Options.ID of the client that makes it; "" for whichever
}

// RunningTx says of each attempt whether it is the one that is running.
func (c *Client) RunningTx(ctx context.Context, tx *sql.Tx, attempts []JobAttempt) ([]bool, error) {
	out := make([]bool, len(attempts))
	if len(attempts) == 0 {
		return out, nil
	}
	ids := make([]int64, len(attempts))
	for i, a := range attempts {
		ids[i] = a.ID
	}
	list, err := json.Marshal(ids)
	if err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, c.sql(`SELECT id, attempt, attempted_by[cardinality(attempted_by)] FROM %river_job WHERE state = 'running' AND id IN (SELECT value::bigint FROM json_array_elements_text($1::json))`,
		`SELECT id, attempt, json_extract(attempted_by, '$[#-1]') FROM %river_job WHERE state = 'running' AND id IN (SELECT value FROM json_each($1))`), string(list))
	if err != nil {
		return nil, fmt.Errorf("which calls run: %w", err)
	}
	defer rows.Close()
	running := map[int64]JobAttempt{}
	for rows.Next() {
		var r JobAttempt
		if err := rows.Scan(&r.ID, &r.Attempt, &r.By); err != nil {
			return nil, fmt.Errorf("which calls run: %w", err)
		}
		running[r.ID] = r
	}
	for i, a := range attempts {
		r, ok := running[a.ID]
		out[i] = ok && r.Attempt == a.Attempt && (a.By == "" || strings.HasPrefix(r.By, a.By+"-"))
	}
	return out, rows.Err()
}

// ExecutesTx reports whether a batch of the run is executing.
func (c *Client) ExecutesTx(ctx context.Context, tx *sql.Tx, run string) (executes bool, err error) {
	err = tx.QueryRowContext(ctx, c.sql(`SELECT EXISTS (SELECT 1 FROM %river_job WHERE state = 'running' AND kind = 'curfew_batch' AND args->>'run' = $1)`,
		`SELECT EXISTS (SELECT 1 FROM %river_job WHERE state = 'running' AND kind = 'curfew_batch' AND json_extract(args, '$.run') = $1)`), run).Scan(&executes)
	if err != nil {
		return false, fmt.Errorf("whether a batch of a run executes: %w", err)
	}
	return executes, nil
}

package riverq

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"time"

	"github.com/riverqueue/river"
)

// inserted is a call in River's table.
type inserted struct {
	id   int64
	dupe bool // an open call was there already: this is its id
}

// insert puts calls into River's table.
func (c *Client) insert(ctx context.Context, tx *sql.Tx, params []river.InsertManyParams) ([]inserted, error) {
	if !c.o.SQLite {
		return c.insertPostgres(ctx, tx, params)
	}
	rows, err := c.river.InsertManyTx(ctx, tx, params)
	if err != nil {
		return nil, err
	}
	out := make([]inserted, len(rows))
	for i, r := range rows {
		out[i] = inserted{r.Job.ID, r.UniqueSkippedAsDuplicate}
	}
	return out, nil
}

// newCall is a row of it, as text that every driver takes.
type newCall struct {
	Args        callArgs   `json:"args"`
	Kind        string     `json:"kind"`
	MaxAttempts int        `json:"max_attempts"`
	Priority    int        `json:"priority"`
	Queue       string     `json:"queue"`
	ScheduledAt *time.Time `json:"scheduled_at"` // null: now
	State       string     `json:"state"`
	Unique      *string    `json:"unique_key"` // hexadecimal, or null
}

// River reads back whole rows of what it inserts, for which nobody has a use: that takes as long as inserting them. The row is
// the one that it would write, as it is for curfew.defer.
const insertCalls = `INSERT INTO %river_job AS j (args, created_at, kind, max_attempts, metadata, priority, queue, scheduled_at, state, tags, unique_key, unique_states)
	SELECT c.args, @now, c.kind, c.max_attempts, '{}', c.priority, c.queue, coalesce(c.scheduled_at, @now), c.state::%river_job_state, '{}',
		decode(c.unique_key, 'hex'), CASE WHEN c.unique_key IS NOT NULL THEN B'11110001' END
	FROM json_to_recordset($1::json) AS c (args jsonb, kind text, max_attempts smallint, priority smallint, queue text, scheduled_at timestamptz, state text, unique_key text)
	ON CONFLICT (unique_key) WHERE unique_key IS NOT NULL AND unique_states IS NOT NULL AND %river_job_state_in_bitmask(unique_states, state)
	DO UPDATE SET kind = excluded.kind -- changes nothing, and gives the open one
	RETURNING j.id, j.xmax <> 0`

func (c *Client) insertPostgres(ctx context.Context, tx *sql.Tx, params []river.InsertManyParams) ([]inserted, error) {
	calls := make([]newCall, len(params))
	for i, p := range params {
		a := p.Args.(callArgs)
		n := newCall{Args: a, Kind: a.Kind(), MaxAttempts: p.InsertOpts.MaxAttempts, Priority: p.InsertOpts.Priority, Queue: p.InsertOpts.Queue, State: "available"}
		if at := p.InsertOpts.ScheduledAt; !at.IsZero() {
			at = at.UTC()
			n.ScheduledAt = &at
			if at.Sub(c.now()) > soon {
				n.State = "scheduled"
			}
		}
		if key := a.uniqueKey(); key != nil {
			text := hex.EncodeToString(key)
			n.Unique = &text
		}
		calls[i] = n
	}
	text, err := json.Marshal(calls)
	if err != nil {
		return nil, err
	}
	rows, err := tx.QueryContext(ctx, c.sql(insertCalls, ""), string(text))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	out := make([]inserted, 0, len(calls))
	for rows.Next() {
		var r inserted
		if err := rows.Scan(&r.id, &r.dupe); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	if len(out) != len(calls) {
		return nil, errors.New("the database did not answer for each of them")
	}
	return out, nil
}

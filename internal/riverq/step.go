package riverq

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
)

// Hold has a client that works fetch nothing until Release: it is for who drives the
// clock.
func (c *Client) Hold() { c.held.Store(true) }

// Release ends Hold. Idle then has what waits fetched.
func (c *Client) Release() { c.held.Store(false) }

func (d waking) GetExecutor() riverdriver.Executor { return holding{d.Driver.GetExecutor(), d.c} }

// holding is where River fetches.
type holding struct {
	riverdriver.Executor
	c *Client
}

func (h holding) JobGetAvailable(ctx context.Context, params *riverdriver.JobGetAvailableParams) (*riverdriver.JobGetAvailableResult, error) {
	if h.c.held.Load() {
		return &riverdriver.JobGetAvailableResult{}, nil
	}
	return h.Executor.JobGetAvailable(ctx, params)
}

// Idle reports whether nothing that this client could execute is due or executing,
// and has it look for what is due. It is for who drives the clock, and waits until all
// is done.
func (c *Client) Idle(ctx context.Context) (bool, error) {
	if c.pulse.busy() {
		return false, nil
	}
	kinds, args := c.kinds()
	q := `SELECT state FROM %river_job WHERE kind IN (` + kinds + `)
		AND (state = 'running' OR state IN ('available', 'scheduled', 'retryable') AND scheduled_at <= @now) ORDER BY state LIMIT 1`
	var state string
	err := c.o.DB.QueryRowContext(ctx, c.sql(q, q), args...).Scan(&state)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return !c.pulse.busy(), nil
	case err != nil:
		return false, fmt.Errorf("look for work: %w", err)
	case state == "available":
		c.woken.wakeAll()
	}
	return false, nil
}

// NextCall is when the next call is due that waits for its time; false when none does.
func (c *Client) NextCall(ctx context.Context) (time.Time, bool, error) {
	q := `SELECT min(scheduled_at) FROM %river_job WHERE kind LIKE 'task:%' AND state IN ('available', 'scheduled', 'retryable') AND scheduled_at > @now`
	var at stampScan
	if err := c.o.DB.QueryRowContext(ctx, c.sql(q, q)).Scan(&at); err != nil && !errors.Is(err, sql.ErrNoRows) {
		return time.Time{}, false, fmt.Errorf("look for the next call: %w", err)
	}
	return at.t, !at.t.IsZero(), nil
}

// kinds are what this client executes, as parameters of a statement.
func (c *Client) kinds() (list string, args []any) {
	all := []string{batchArgs{}.Kind()}
	for _, t := range c.o.Tasks {
		all = append(all, kindPrefix+t)
	}
	for i, k := range all {
		if i > 0 {
			list += ", "
		}
		args = append(args, k)
		list += fmt.Sprintf("$%d", i+1)
	}
	return list, args
}

// dropping ends an attempt's call as discarded. River finds it ended, and leaves it so.
var dropping = text{
	`UPDATE %river_job SET state = 'cancelled', finalized_at = @now, metadata = metadata || jsonb_build_object('discarded_by', 'curfew', 'discard_reason', $3::text)
		WHERE id = $1 AND attempt = $2 AND state = 'running'`,
	`UPDATE %river_job SET state = 'cancelled', finalized_at = @now, metadata = jsonb_set(metadata, '$.discarded_by', 'curfew', '$.discard_reason', $3)
		WHERE id = $1 AND attempt = $2 AND state = 'running'`,
}

// discard ends a call that Do would not do, and says why.
func (c *Client) discard(ctx context.Context, a Attempt, reason string) error {
	_, err := c.exec(context.WithoutCancel(ctx), dropping, a.ID, a.Attempt, readable(reason))
	return err
}

// complete writes down at once that a job is done. River does that by itself, a good
// many at a time and a quarter of a second late, which who drives the clock would
// wait for each time.
func (c *Client) complete(ctx context.Context, job *river.Job[callArgs]) error {
	tx, err := c.o.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := river.JobCompleteTx[waking](ctx, tx, job); err != nil {
		return err
	}
	return tx.Commit()
}

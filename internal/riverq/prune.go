package riverq

import (
	"context"
	"fmt"
	"time"
)

// River would remove calls and batches by one rule. Batches are of no use once they
// are done: the ledger knows what became of them. Calls are the only record of
// themselves, and stay until PruneCalls is told that they may go.

const (
	keepDone    = time.Hour      // a batch
	keepBroken  = 24 * time.Hour // a batch that somebody has ended by hand
	pruneAtOnce = 1000
	pruneEvery  = time.Minute
)

var (
	// What is asked for is asked for again of each row that goes: a call that somebody retries meanwhile is not what was found. On
	// PostgreSQL what was found is materialised: a plan that looked it up row by row would go past the limit.
	// By kind first: there may be a million calls, and no batch.
	doneBatches = text{
		`WITH old AS MATERIALIZED (SELECT id FROM %river_job WHERE kind = 'curfew_batch'
			AND (state = 'completed' AND finalized_at < @now - make_interval(secs => $1)
				OR state IN ('cancelled', 'discarded') AND finalized_at < @now - make_interval(secs => $2)) LIMIT $3 FOR UPDATE SKIP LOCKED)
		DELETE FROM %river_job AS j USING old WHERE j.id = old.id AND (j.state = 'completed' AND j.finalized_at < @now - make_interval(secs => $1)
			OR j.state IN ('cancelled', 'discarded') AND j.finalized_at < @now - make_interval(secs => $2))`,
		`DELETE FROM %river_job WHERE id IN (SELECT id FROM %river_job WHERE kind = 'curfew_batch'
			AND (state = 'completed' AND finalized_at < datetime(@at, 'subsec', -$1 || ' seconds')
				OR state IN ('cancelled', 'discarded') AND finalized_at < datetime(@at, 'subsec', -$2 || ' seconds')) LIMIT $3)`,
	}
	succeededCalls = oldCalls(`('completed')`)
	failedCalls    = oldCalls(`('discarded', 'cancelled')`)
)

// oldCalls drops calls in some states that ended before an instant.
func oldCalls(states string) text {
	return text{
		`WITH old AS MATERIALIZED (SELECT id FROM %river_job WHERE kind LIKE 'task:%' AND state IN ` + states + ` AND finalized_at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED)
		DELETE FROM %river_job AS j USING old WHERE j.id = old.id AND j.state IN ` + states + ` AND j.finalized_at < $1`,
		`DELETE FROM %river_job WHERE id IN (SELECT id FROM %river_job WHERE kind LIKE 'task:%' AND state IN ` + states + ` AND finalized_at < $1 LIMIT $2)
			AND state IN ` + states + ` AND finalized_at < $1`,
	}
}

// pruneBatches removes some of the batches that are done, once in a while.
func (c *Client) pruneBatches(ctx context.Context) error {
	if time.Since(c.pruned) < pruneEvery && c.pruneLeft == 0 {
		return nil
	}
	n, err := c.exec(ctx, doneBatches, keepDone.Seconds(), keepBroken.Seconds(), pruneAtOnce)
	c.pruned, c.pruneLeft = time.Now(), n
	return err
}

// PruneCalls removes calls that succeeded before an instant, and calls that failed
// for good or were discarded before another, at most limit of them in all; a zero
// instant is none. Fewer than limit means that there are no more. It is a transaction
// of its own, so bound it.
func (c *Client) PruneCalls(ctx context.Context, succeededBefore, failedBefore time.Time, limit int) (int64, error) {
	var removed int64
	for _, some := range []struct {
		before time.Time
		which  text
	}{{succeededBefore, succeededCalls}, {failedBefore, failedCalls}} {
		left := int64(limit) - removed
		if some.before.IsZero() || left <= 0 {
			continue
		}
		n, err := c.exec(ctx, some.which, c.stamp(some.before), left)
		if err != nil {
			return removed, fmt.Errorf("remove old calls: %w", err)
		}
		removed += n
	}
	return removed, nil
}

// stamp is an instant as the engine keeps it.
func (c *Client) stamp(t time.Time) any {
	if c.o.SQLite {
		return t.UTC().Format("2006-01-02 15:04:05.000")
	}
	return t
}

// OldCalls counts what PruneCalls would remove.
func (c *Client) OldCalls(ctx context.Context, succeededBefore, failedBefore time.Time) (succeeded, failed int64, err error) {
	q := `SELECT COALESCE(sum(CASE WHEN state = 'completed' AND finalized_at < $1 THEN 1 ELSE 0 END), 0),
		COALESCE(sum(CASE WHEN state IN ('discarded', 'cancelled') AND finalized_at < $2 THEN 1 ELSE 0 END), 0) FROM %river_job WHERE kind LIKE 'task:%'`
	if err := c.o.DB.QueryRowContext(ctx, c.sql(q, q), c.stamp(succeededBefore), c.stamp(failedBefore)).Scan(&succeeded, &failed); err != nil {
		return 0, 0, fmt.Errorf("count old calls: %w", err)
	}
	return succeeded, failed, nil
}

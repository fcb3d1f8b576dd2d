package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// This file answers what whoever tells people asks of the ledger.

// RunsBefore returns up to limit runs of the same policy, stage and mode that
// succeeded and were accepted before r, the last accepted first.
func (l *Ledger) RunsBefore(ctx context.Context, r Run, limit int) ([]Run, error) {
	rows, err := l.query(ctx, `SELECT `+runColumns+` FROM @run
		WHERE policy = $1 AND stage = $2 AND mode = $3 AND accepted_at < $4 AND state = 'succeeded'
		ORDER BY accepted_at DESC, id DESC LIMIT $5`, r.Policy, r.Stage, r.Mode, stamp(r.AcceptedAt), limit)
	if err != nil {
		return nil, fmt.Errorf("list the runs before %s: %w", short(r.ID), err)
	}
	runs, err := collectRuns(rows)
	if err != nil {
		return nil, fmt.Errorf("list the runs before %s: %w", short(r.ID), err)
	}
	return runs, nil
}

// LastBefore returns the last run of the same policy and stage in a mode that was
// accepted before r; with scheduled only one that the schedule made.
func (l *Ledger) LastBefore(ctx context.Context, r Run, mode string, scheduled bool) (last Run, found bool, err error) {
	cause := ""
	if scheduled {
		cause = ` AND cause IN ('schedule', 'catch_up')`
	}
	last, err = scanRun(l.queryRow(ctx, `SELECT `+runColumns+` FROM @run
		WHERE policy = $1 AND stage = $2 AND mode = $3 AND accepted_at < $4`+cause+`
		ORDER BY accepted_at DESC, id DESC LIMIT 1`, r.Policy, r.Stage, mode, stamp(r.AcceptedAt)))
	if errors.Is(err, sql.ErrNoRows) {
		return Run{}, false, nil
	}
	if err != nil {
		return Run{}, false, fmt.Errorf("read the run before %s: %w", short(r.ID), err)
	}
	return last, true, nil
}

// SkipStreak counts the occurrences of a policy stage that were skipped one after
// the other, up to and with the instant at, and returns the first of them. A
// pause skips on purpose: what it skipped neither counts nor ends a streak.
func (l *Ledger) SkipStreak(ctx context.Context, policy, stage string, at time.Time) (n int64, first time.Time, err error) {
	var since time.Time
	err = l.queryRow(ctx, `SELECT max(at) FROM @occurrence
		WHERE policy = $1 AND stage = $2 AND at <= $3 AND state NOT IN ('pending', 'skipped')`,
		policy, stage, stamp(at)).Scan((*stamp)(&since))
	if err == nil {
		err = l.queryRow(ctx, `SELECT count(*), min(at) FROM @occurrence WHERE policy = $1 AND stage = $2 AND at <= $3
			AND at > $4 AND state = 'skipped' AND why <> '`+WhyPaused+`'`,
			policy, stage, stamp(at), orEarliest(since)).Scan(&n, (*stamp)(&first))
	}
	if err != nil {
		return 0, time.Time{}, fmt.Errorf("count the skipped occurrences of %s: %w", policy, err)
	}
	return n, first, nil
}

// orEarliest binds the zero time as an instant before every other, not as NULL.
func orEarliest(t time.Time) stamp {
	if t.IsZero() {
		t = time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC)
	}
	return stamp(t)
}

// Stall is an open run on which nothing happens.
type Stall struct {
	Run  Run
	Last time.Time // when its last batch settled; else when it started, or was accepted
}

// Stalled returns the open runs that nothing has happened to since the instant:
// of a running one no batch has settled, to an accepted one nobody has come. Those
// of tasks have no batches: their queue and their schedule bound how long they last.
func (l *Ledger) Stalled(ctx context.Context, since time.Time) (stalls []Stall, err error) {
	rows, err := l.query(ctx, `SELECT `+runColumns+`, (SELECT max(settled_at) FROM @batch WHERE run = @run.id)
		FROM @run WHERE ended_at IS NULL AND mode <> 'task' AND state IN ('accepted', 'running') AND accepted_at < $1
		ORDER BY accepted_at, id`, stamp(since))
	if err != nil {
		return nil, fmt.Errorf("look for stalled runs: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var s Stall
		var settled time.Time
		if s.Run, err = scanRun(rows, (*stamp)(&settled)); err != nil {
			return nil, fmt.Errorf("look for stalled runs: %w", err)
		}
		s.Last = s.Run.AcceptedAt
		seen := []time.Time{s.Run.StartedAt, settled}
		if s.Run.State == Accepted {
			seen = append(seen, s.Run.Heartbeat) // it waits for another policy, in good hands
		}
		seen = append(seen, opens(s.Run.Detail))
		for _, t := range seen {
			if t.After(s.Last) {
				s.Last = t
			}
		}
		if s.Last.Before(since) {
			stalls = append(stalls, s)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("look for stalled runs: %w", err)
	}
	return stalls, nil
}

package ledger

import (
	"context"
	"fmt"
)

// OpenRuns returns the runs that are accepted or running, of all policies, the oldest first. A run whose heartbeat is old
// was left behind by its owner. Runs that await approval are not among them, nor those of tasks: see OpenCalls.
func (l *Ledger) OpenRuns(ctx context.Context) ([]Run, error) {
	rows, err := l.query(ctx, `SELECT `+runColumns+` FROM @run WHERE ended_at IS NULL AND mode <> 'task' AND state IN ('accepted', 'running')
		ORDER BY accepted_at, id`)
	if err != nil {
		return nil, fmt.Errorf("list open runs: %w", err)
	}
	runs, err := collectRuns(rows)
	if err != nil {
		return nil, fmt.Errorf("list open runs: %w", err)
	}
	return runs, nil
}

package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
)

// EnqueueCall has the job of a task's run made, once: make runs in the transaction and says the job's number, which is the run's plan
// from then on. A run that has a job, or has ended, is left as it is.
func (l *Ledger) EnqueueCall(ctx context.Context, id string, make func(ctx context.Context, tx *sql.Tx) (int64, error)) error {
	err := l.tx(ctx, func(t *txn) error {
		r, err := t.lock(ctx, id)
		if err != nil || r.State.Ended() || len(r.Plan) > 0 {
			return err
		}
		job, err := make(ctx, t.tx)
		if err != nil {
			return err
		}
		_, err = t.exec(ctx, `UPDATE @run SET plan = $1 WHERE id = $2`, []byte(strconv.FormatInt(job, 10)), id)
		return err
	})
	if err != nil {
		return fmt.Errorf("enqueue run %s: %w", short(id), err)
	}
	return nil
}

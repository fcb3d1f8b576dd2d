package ledger

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
)

// ErrOffered: a batch of the run is offered to its pool, and nothing more of the
// run is admitted before that is decided. Another process offers it, or has left
// it behind: look for it with Unsettled.
var ErrOffered = errors.New("an offer of the run stands")

// ActionBatchAdmitted says that the pool of another system has let a batch in.
const ActionBatchAdmitted = "batch_admitted"

// noOffer is ErrOffered while an offer of the run stands. The run is locked, so
// that of two processes which paged at once only one makes an offer: what the
// other one read may overlap with it.
func (t *txn) noOffer(ctx context.Context, r *Run) error {
	var standing int
	err := t.queryRow(ctx, `SELECT count(*) FROM @batch WHERE run = $1 AND state = 'offered'`, r.ID).Scan(&standing)
	if err == nil && standing > 0 {
		err = ErrOffered
	}
	return err
}

// Admitted says that the pool has let an offered batch in: it is pending from now
// on, and the cursor moves behind it, in one transaction. The admission names no
// batches; an OldCursor that is the NewCursor moves nothing. A batch that is not
// offered any more stays as it is, and so does the cursor: somebody said so before.
// ErrCursorMoved and ErrRunEnded mean that nothing was changed, though the pool has
// the batch.
func (l *Ledger) Admitted(ctx context.Context, run string, key BatchKey, a Admission) (Run, error) {
	var r Run
	err := l.tx(ctx, func(t *txn) (err error) {
		if r, err = t.lock(ctx, run); err != nil {
			return err
		}
		if r.State.Ended() {
			return fmt.Errorf("%w: %s", ErrRunEnded, r.State)
		}
		var seq int64
		var state BatchState
		err = t.queryRow(ctx, `SELECT seq, state FROM @batch WHERE key = $1 AND run = $2`, key[:], r.ID).Scan(&seq, &state)
		if errors.Is(err, sql.ErrNoRows) {
			err = fmt.Errorf("%w: no such batch", ErrNotFound)
		}
		if err != nil || state != Offered {
			return err
		}
		if !bytes.Equal(r.Cursor, a.OldCursor) {
			return ErrCursorMoved
		}
		if _, err := t.exec(ctx, `UPDATE @batch SET state = 'pending' WHERE key = $1 AND run = $2 AND state = 'offered'`, key[:], r.ID); err != nil {
			return err
		}
		moved := !bytes.Equal(a.OldCursor, a.NewCursor)
		r.Cursor, r.PagedOut = a.NewCursor, r.PagedOut || a.PagedOut
		if a.PageRows > 0 {
			r.PageRows = a.PageRows
		}
		if err := t.audit(entry{action: ActionBatchAdmitted, policy: r.Policy, run: r.ID, batch: key[:], body: struct {
			Seq   int64 `json:"seq"`
			Moved bool  `json:"cursor_moved"`
		}{seq, moved}}); err != nil {
			return err
		}
		return t.saveCounts(ctx, &r)
	})
	if err != nil {
		return Run{}, fmt.Errorf("admit batch %s of run %s: %w", key, short(run), err)
	}
	return r, nil
}

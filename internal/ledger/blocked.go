package ledger

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// BlockedRow is a row that a batch could not change.
type BlockedRow struct {
	Hash    [16]byte
	Outcome string // blocked or failed
	Reason  string // the constraint's or trigger's name, never a key value
}

// Blocked is a row that was blocked when it was last met, and has been since
// FirstSeen for the same reason.
type Blocked struct {
	Policy, Stage string
	BlockedRow
	KeyID     string
	FirstRun  string
	FirstSeen time.Time
	LastRun   string
	LastSeen  time.Time
}

// blockedChunk is how many rows go into one statement.
const blockedChunk = 50

// blockedText is the statement for n rows. The shared values are $1 to $7. A row
// that is new, or blocked for another reason than before, comes back with this
// batch as its first: one statement decides that, also between two runs at once.
func blockedText(n int) string {
	var b strings.Builder
	b.WriteString(`INSERT INTO @blocked AS b (policy, stage, key_id, first_run, first_batch, first_seen, last_run, last_as_of, last_seen, row_hash, outcome, reason) VALUES `)
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "($1, $2, $3, $4, $5, $6, $4, $7, $6, $%d, $%d, $%d)", 3*i+8, 3*i+9, 3*i+10)
	}
	const same = `b.outcome = excluded.outcome AND b.reason = excluded.reason AND b.key_id = excluded.key_id`
	b.WriteString(` ON CONFLICT (policy, stage, row_hash) DO UPDATE SET
		first_run = CASE WHEN ` + same + ` THEN b.first_run ELSE excluded.first_run END,
		first_batch = CASE WHEN ` + same + ` THEN b.first_batch ELSE excluded.first_batch END,
		first_seen = CASE WHEN ` + same + ` THEN b.first_seen ELSE excluded.first_seen END,
		key_id = excluded.key_id, outcome = excluded.outcome, reason = excluded.reason,
		last_run = excluded.last_run, last_as_of = excluded.last_as_of, last_seen = excluded.last_seen
		RETURNING row_hash, first_batch`)
	return b.String()
}

// block records a batch's blocked rows, and audits those that are news.
func (t *txn) block(ctx context.Context, r *Run, s *Settlement, now time.Time) error {
	if len(s.Blocked) == 0 {
		return nil
	}
	// One order for everybody: two runs that block the same rows do not
	// deadlock. A row named twice would be changed twice by one statement,
	// which PostgreSQL refuses.
	rows := slices.Clone(s.Blocked)
	slices.SortStableFunc(rows, func(a, b BlockedRow) int { return bytes.Compare(a.Hash[:], b.Hash[:]) })
	rows = slices.CompactFunc(rows, func(a, b BlockedRow) bool { return a.Hash == b.Hash })

	for chunk := range slices.Chunk(rows, blockedChunk) {
		args := []any{r.Policy, r.Stage, s.KeyID, r.ID, s.Batch[:], stamp(now), stamp(r.AsOf)}
		reasons := make(map[[16]byte]BlockedRow, len(chunk))
		for _, row := range chunk {
			row.Reason = text(row.Reason)
			reasons[row.Hash] = row
			args = append(args, row.Hash[:], row.Outcome, row.Reason)
		}
		fresh, err := t.blockChunk(ctx, s.Batch, blockedText(len(chunk)), args)
		if err != nil {
			return fmt.Errorf("record the blocked rows of batch %s: %w", s.Batch, err)
		}
		for _, hash := range fresh {
			row := reasons[hash]
			if err := t.audit(entry{action: ActionRowBlocked, policy: r.Policy, run: r.ID, batch: s.Batch[:], body: struct {
				Row     string `json:"row"`
				KeyID   string `json:"key_id,omitempty"`
				Outcome string `json:"outcome"`
				Reason  string `json:"reason"`
			}{fmt.Sprintf("%x", hash), s.KeyID, row.Outcome, row.Reason}}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *txn) blockChunk(ctx context.Context, batch BatchKey, query string, args []any) (fresh [][16]byte, err error) {
	rows, err := t.query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var hash, first []byte
		if err := rows.Scan(&hash, &first); err != nil {
			return nil, err
		}
		if bytes.Equal(first, batch[:]) {
			fresh = append(fresh, [16]byte(hash))
		}
	}
	// The databases promise no order; the audit log has one.
	slices.SortFunc(fresh, func(a, b [16]byte) int { return bytes.Compare(a[:], b[:]) })
	return fresh, rows.Err()
}

// release forgets the rows that an earlier run found blocked and this one, which
// looked at all that is due by a later or equal as_of, did not: they are gone, or
// free, or no longer due.
func (t *txn) release(ctx context.Context, r *Run) error {
	res, err := t.exec(ctx, `DELETE FROM @blocked WHERE policy = $1 AND stage = $2 AND last_run <> $3 AND last_as_of <= $4`,
		r.Policy, r.Stage, r.ID, stamp(r.AsOf))
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err != nil || n == 0 {
		return err
	}
	return t.audit(entry{action: ActionBlockedReleased, policy: r.Policy, run: r.ID, body: struct {
		Rows int64 `json:"rows"`
	}{n}})
}

// CountBlocked is the number of rows of a policy's stage that are blocked.
func (l *Ledger) CountBlocked(ctx context.Context, policy, stage string) (int64, error) {
	var n int64
	err := l.queryRow(ctx, `SELECT count(*) FROM @blocked WHERE policy = $1 AND stage = $2`, policy, stage).Scan(&n)
	if err != nil {
		return 0, fmt.Errorf("count the blocked rows of %s: %w", policy, err)
	}
	return n, nil
}

// BlockedRows returns up to limit blocked rows of a policy's stage, the longest
// blocked first.
func (l *Ledger) BlockedRows(ctx context.Context, policy, stage string, limit int) ([]Blocked, error) {
	rows, err := l.query(ctx, `SELECT policy, stage, row_hash, key_id, outcome, reason, first_run, first_seen, last_run, last_seen
		FROM @blocked WHERE policy = $1 AND stage = $2 ORDER BY first_seen, row_hash LIMIT $3`, policy, stage, limit)
	if err != nil {
		return nil, fmt.Errorf("read the blocked rows of %s: %w", policy, err)
	}
	defer rows.Close()
	var all []Blocked
	for rows.Next() {
		var b Blocked
		var hash []byte
		if err := rows.Scan(&b.Policy, &b.Stage, &hash, &b.KeyID, &b.Outcome, &b.Reason,
			&b.FirstRun, (*stamp)(&b.FirstSeen), &b.LastRun, (*stamp)(&b.LastSeen)); err != nil {
			return nil, fmt.Errorf("read the blocked rows of %s: %w", policy, err)
		}
		copy(b.Hash[:], hash)
		all = append(all, b)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the blocked rows of %s: %w", policy, err)
	}
	return all, nil
}

package ledger

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"
)

// BatchKey names a batch: a function of its run and bounds, made by the caller.
type BatchKey [32]byte

func (k BatchKey) String() string { return hex.EncodeToString(k[:]) }

// Scan reads a stored key.
func (k *BatchKey) Scan(src any) error {
	b, ok := src.([]byte)
	if !ok || len(b) != len(k) {
		return fmt.Errorf("a batch's key in the ledger is a %T of %d bytes", src, len(b))
	}
	copy(k[:], b)
	return nil
}

// BatchState is where a batch stands.
type BatchState string

// The states of a batch. Offered is a batch in the outbox of another system's
// pool that has not admitted it yet.
const (
	Offered BatchState = "offered"
	Pending BatchState = "pending"
	Settled BatchState = "settled"
)

// Batch is a bounded range of one run.
type Batch struct {
	Key       BatchKey
	Run       string
	Seq       int64 // 1, 2, 3… in order of admission, without gaps
	Phase     string
	Planned   int64 // as scanned while pending, as executed once settled
	State     BatchState
	Outcomes  Outcomes
	Cascaded  int64
	Deferred  int64 // rows left out, to be tried in a later batch
	Attempts  int64
	Root      []byte // of the evidence
	KeyID     string // of the key that made the hashes under Root
	Duration  time.Duration
	Created   time.Time
	SettledAt time.Time

	Bounds []byte // sealed; only from Unsettled and BatchOf
	Keys   []byte // sealed, gone once settled; only from Unsettled and BatchOf
}

const batchColumns = `key, run, seq, phase, planned, state, outcomes, cascaded, deferred, attempts, root, key_id, duration_us, created, settled_at`

// scan reads batchColumns, and more columns into more.
func (b *Batch) scan(row scanner, more ...any) error {
	var us int64
	dest := []any{&b.Key, &b.Run, &b.Seq, &b.Phase, &b.Planned, &b.State, &b.Outcomes, &b.Cascaded, &b.Deferred,
		&b.Attempts, &b.Root, &b.KeyID, &us, (*stamp)(&b.Created), (*stamp)(&b.SettledAt)}
	err := row.Scan(append(dest, more...)...)
	b.Duration = time.Duration(us) * time.Microsecond
	return err
}

func (l *Ledger) batches(ctx context.Context, sealed bool, query string, args ...any) ([]Batch, error) {
	rows, err := l.query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var batches []Batch
	for rows.Next() {
		var b Batch
		var more []any
		if sealed {
			more = []any{&b.Bounds, &b.Keys}
		}
		if err := b.scan(rows, more...); err != nil {
			return nil, err
		}
		batches = append(batches, b)
	}
	return batches, rows.Err()
}

// Batches returns a run's batches with a seq above after, in order; limit 0 is
// all of them.
func (l *Ledger) Batches(ctx context.Context, run string, after int64, limit int) ([]Batch, error) {
	query, args := `SELECT `+batchColumns+` FROM @batch WHERE run = $1 AND seq > $2 ORDER BY seq`, []any{run, after}
	if limit > 0 {
		query, args = query+` LIMIT $3`, append(args, limit)
	}
	batches, err := l.batches(ctx, false, query, args...)
	if err != nil {
		return nil, fmt.Errorf("read the batches of run %s: %w", short(run), err)
	}
	return batches, nil
}

// Unsettled returns a run's batches that are not settled, in order, with what is
// needed to execute them.
func (l *Ledger) Unsettled(ctx context.Context, run string) ([]Batch, error) {
	batches, err := l.batches(ctx, true, `SELECT `+batchColumns+`, bounds, keys FROM @batch
		WHERE run = $1 AND state <> 'settled' ORDER BY seq`, run)
	if err != nil {
		return nil, fmt.Errorf("read the unsettled batches of run %s: %w", short(run), err)
	}
	return batches, nil
}

// DeferredRows are rows that a settled batch left out.
type DeferredRows struct {
	From BatchKey
	Seq  int64
	Rows int64
	Keys []byte // sealed
}

// Deferred returns the rows of a run that wait for a later batch. Name the batches
// in Admission.FromDeferred to take them.
func (l *Ledger) Deferred(ctx context.Context, run string) ([]DeferredRows, error) {
	rows, err := l.query(ctx, `SELECT key, seq, deferred, deferred_keys FROM @batch
		WHERE run = $1 AND deferred > 0 AND NOT deferred_taken ORDER BY seq`, run)
	if err != nil {
		return nil, fmt.Errorf("read the deferred rows of run %s: %w", short(run), err)
	}
	defer rows.Close()
	var deferred []DeferredRows
	for rows.Next() {
		var d DeferredRows
		if err := rows.Scan(&d.From, &d.Seq, &d.Rows, &d.Keys); err != nil {
			return nil, fmt.Errorf("read the deferred rows of run %s: %w", short(run), err)
		}
		deferred = append(deferred, d)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the deferred rows of run %s: %w", short(run), err)
	}
	return deferred, nil
}

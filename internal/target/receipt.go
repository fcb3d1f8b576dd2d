package target

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

// Errors that stop a run.
var (
	// ErrSchemaChanged says that the table is not the one the run began with.
	ErrSchemaChanged = errors.New("the table changed since the run began")
	// ErrPolicySQL says that the table is as it was, and the policy's own SQL cannot be evaluated on it.
	ErrPolicySQL = errors.New("the policy's SQL cannot be evaluated")
	// ErrDiverged says that the governed database has a receipt for this place of the run, but for other rows: the ledger
	// was restored to an older state, or two ledgers claim one run.
	ErrDiverged = errors.New("the ledger and the receipts disagree")
	// ErrLate says that the run's receipts were dropped: nobody can tell any more whether this batch was done.
	ErrLate = errors.New("the run was closed and its receipts are dropped: a late batch is refused")
	// ErrTooLong says that a batch did not finish inside the statement timeout; nothing of it was changed.
	ErrTooLong = errors.New("the batch did not finish inside the statement timeout")
)

// Work is one batch to execute, as the ledger knows it.
type Work struct {
	Key    []byte // the batch key
	Seq    int64
	Phase  string
	Rows   int    // planned
	Bounds []byte // as Page gave them
	Keys   []byte // empty: the batch is a range, and finds its rows itself
}

// A RowResult is a row that was not simply done, named by its keyed hash.
type RowResult struct {
	Hash    [16]byte `json:"-"`
	Row     string   `json:"row"` // the hash in hex
	Outcome string   `json:"outcome"`
	Reason  string   `json:"reason"`
}

// Result is what became of a batch: planned is the sum of the outcomes, always.
type Result struct {
	Planned  int64
	Outcomes map[string]int64
	Cascaded int64
	Rows     []RowResult // blocked and failed rows
	Deferred []byte      // what is handed on to later batches, for Split; not in Planned
	NDefer   int         // how many rows that is; of a range, about
	Root     []byte      // SHA-256 of the evidence
	Settled  bool        // an earlier execution had done the work: this is its receipt
	Took     time.Duration
}

// receiptDetail is the receipt's detail column.
type receiptDetail struct {
	Rows     []RowResult `json:"rows,omitempty"`
	Deferred int         `json:"deferred,omitempty"`
}

// A tally collects what became of each row of a batch.
type tally struct {
	byOutcome map[string][]tuple
	rows      []rowNote
	deferred  []tuple
	rest      *span // a range handed on whole, and about how many rows it has
	restRows  int
	cascaded  int64
}

type rowNote struct {
	key             tuple
	outcome, reason string
}

func newTally() *tally { return &tally{byOutcome: map[string][]tuple{}} }

func (t *tally) put(outcome string, keys ...tuple) {
	if len(keys) > 0 {
		t.byOutcome[outcome] = append(t.byOutcome[outcome], keys...)
	}
}

func (t *tally) note(outcome, reason string, key tuple) {
	t.put(outcome, key)
	t.rows = append(t.rows, rowNote{key, outcome, reason})
}

func (t *tally) outcomes() (planned int64, out map[string]int64) {
	out = map[string]int64{}
	for o, keys := range t.byOutcome {
		out[o] = int64(len(keys))
		planned += int64(len(keys))
	}
	return planned, out
}

// outcomeCodes number the outcomes in the evidence; a number, once given, keeps its meaning.
var outcomeCodes = []string{"deleted", "anonymised", "archived", "set", "notified", "called", "due", "no_longer_due", "gone",
	"held", "guarded", "blocked", "locked", "unreadable", "failed"}

// evidence is, for each outcome that occurred, its code, the number of rows (4 bytes, big endian) and their hashes.
func (j *Job) evidence(t *tally) []byte {
	h := j.keys.RowHasher(j.p.Database, j.p.Table)
	size := 0
	for _, keys := range t.byOutcome {
		size += 5 + 16*len(keys)
	}
	out, buf := make([]byte, 0, size), make([]byte, 0, 64)
	for code, o := range outcomeCodes {
		keys := t.byOutcome[o]
		if len(keys) == 0 {
			continue
		}
		n := len(keys)
		out = append(out, byte(code), byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
		for _, k := range keys {
			var sum [16]byte
			buf = k.appendCanonical(buf[:0])
			h.Sum(&sum, buf)
			out = append(out, sum[:]...)
		}
	}
	return out
}

// result sums a tally up, with the evidence behind it.
func (j *Job) result(t *tally) (*Result, []byte) {
	res := &Result{Cascaded: t.cascaded}
	res.Deferred, res.NDefer = t.handOn()
	res.Planned, res.Outcomes = t.outcomes()
	for _, n := range t.rows {
		h := j.rowHash(n.key)
		res.Rows = append(res.Rows, RowResult{Hash: h, Row: fmt.Sprintf("%x", h[:]), Outcome: n.outcome, Reason: n.reason})
	}
	ev := j.evidence(t)
	root := sha256.Sum256(ev)
	res.Root = root[:]
	return res, ev
}

// rowHash names a row the way evidence does.
func (j *Job) rowHash(k tuple) [16]byte {
	var sum [16]byte
	j.keys.RowHasher(j.p.Database, j.p.Table).Sum(&sum, k.appendCanonical(nil))
	return sum
}

func (j *Job) sealContext() []byte { return []byte("receipt\x00" + j.run) }

// claim inserts the receipt before anything else: a rival with the same batch waits here until we commit, and then finds
// the work done. It answers the earlier result when there is one.
func (x *execution) claim(ctx context.Context, w Work) (*Result, error) {
	j := x.j
	at := func(t time.Time) any { return t.UTC().Format("2006-01-02 15:04:05.000000") }
	cast := ""
	if j.db.Engine == Postgres {
		cast = "::text::timestamptz"
	}
	q := newQuery(j.d).add("INSERT INTO ", j.d.own("receipt"), " (batch_key, run, seq, policy, stage, relation, as_of, cutoff, key_id, started_at) VALUES (")
	for _, v := range []any{w.Key, j.run, w.Seq, j.p.Name, j.p.StageName(), j.p.Table} {
		q.arg(v).add(", ")
	}
	q.arg(at(x.asOf)).add(cast, ", ").arg(at(j.bound.instant)).add(cast, ", ").arg(j.keys.ID()).add(", ", now(j.db.Engine), ")")
	if j.db.Engine == MySQL {
		_, err := x.c.ExecContext(ctx, q.String(), q.args...)
		if err == nil {
			return nil, nil
		}
		if !isDuplicate(err) {
			return nil, err
		}
		return x.earlier(ctx, w)
	}
	r, err := x.c.ExecContext(ctx, q.add(" ON CONFLICT DO NOTHING").String(), q.args...)
	if err != nil {
		return nil, err
	}
	if n, err := r.RowsAffected(); err != nil || n == 1 {
		return nil, err
	}
	return x.earlier(ctx, w)
}

// earlier reads the receipt that stands in the way.
func (x *execution) earlier(ctx context.Context, w Work) (*Result, error) {
	j := x.j
	q := newQuery(j.d).add("SELECT batch_key, planned, outcomes, cascaded, detail, evidence_root, deferred FROM ", j.d.own("receipt"),
		" WHERE run = ").arg(j.run).add(" AND seq = ").arg(w.Seq)
	var key, root, deferred []byte
	var planned, cascaded sql.NullInt64
	var outcomes, detail sql.NullString
	err := x.c.QueryRowContext(ctx, q.String(), q.args...).Scan(&key, &planned, &outcomes, &cascaded, &detail, &root, &deferred)
	if errors.Is(err, sql.ErrNoRows) || err == nil && string(key) != string(w.Key) {
		return nil, ErrDiverged
	}
	if err != nil {
		return nil, err
	}
	res := &Result{Planned: planned.Int64, Cascaded: cascaded.Int64, Root: root, Settled: true}
	if err := json.Unmarshal([]byte(outcomes.String), &res.Outcomes); err != nil {
		return nil, fmt.Errorf("receipt %d of run %.12s cannot be read: %w", w.Seq, j.run, err)
	}
	var d receiptDetail
	if detail.String != "" {
		if err := json.Unmarshal([]byte(detail.String), &d); err != nil {
			return nil, fmt.Errorf("receipt %d of run %.12s cannot be read: %w", w.Seq, j.run, err)
		}
	}
	res.Rows, res.NDefer = d.Rows, d.Deferred
	for i := range res.Rows {
		if err := decodeHash(res.Rows[i].Row, &res.Rows[i].Hash); err != nil {
			return nil, err
		}
	}
	if len(deferred) > 0 {
		if res.Deferred, err = j.keys.Open(deferred, j.sealContext()); err != nil {
			return nil, fmt.Errorf("receipt %d of run %.12s: %w", w.Seq, j.run, err)
		}
	}
	return res, nil
}

// complete writes what was done into the receipt, and is the last statement before the commit.
func (x *execution) complete(ctx context.Context, w Work, t *tally) (*Result, error) {
	j := x.j
	res, ev := j.result(t)
	outcomes, err := json.Marshal(res.Outcomes)
	if err != nil {
		return nil, err
	}
	detail, err := json.Marshal(receiptDetail{Rows: res.Rows, Deferred: res.NDefer})
	if err != nil {
		return nil, err
	}
	var sealed []byte
	if len(res.Deferred) > 0 {
		sealed = j.keys.Seal(res.Deferred, j.sealContext())
	}
	q := newQuery(j.d).add("UPDATE ", j.d.own("receipt"), " SET planned = ").arg(res.Planned).add(", outcomes = ").arg(string(outcomes)).
		add(", cascaded = ").arg(res.Cascaded).add(", detail = ").arg(string(detail)).add(", evidence = ").arg(ev).
		add(", evidence_root = ").arg(res.Root).add(", deferred = ").arg(sealed).add(", completed_at = ", now(j.db.Engine), " WHERE batch_key = ").arg(w.Key)
	r, err := x.c.ExecContext(ctx, q.String(), q.args...)
	if err != nil {
		return nil, err
	}
	if n, err := r.RowsAffected(); err != nil || n != 1 {
		return nil, fmt.Errorf("the receipt of batch %d vanished while it was open (%d rows, %v)", w.Seq, n, err)
	}
	return res, nil
}

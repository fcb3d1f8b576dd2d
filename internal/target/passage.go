package target

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"curfew.dev/curfew/policy"
)

// A PassageState says how far a row came in passing a stage.
type PassageState string

// The states. What the database does is done at once, in the transaction of the change. What is done outside of it is claimed in
// one transaction, committed as sending before it is handed over, and then done, failed, or uncertain when nobody knows.
const (
	PassageDone      PassageState = "done"
	PassageClaimed   PassageState = "claimed"
	PassageSending   PassageState = "sending"
	PassageFailed    PassageState = "failed"
	PassageUncertain PassageState = "uncertain"
)

// A Passage is the record that a row passes a stage of a policy, once for each due instant. The row is named by its keyed hash.
type Passage struct {
	Stage    string
	Row      [16]byte
	Due      int64 // the row's due instant, before the stage's offset: microseconds since 1970, or AlwaysDue
	State    PassageState
	AsOf     time.Time // of the run that changed the state last
	Run      string
	BatchKey []byte
	Attempt  int
	Detail   string // why, in words that may be shown
}

// AlwaysDue is the due instant of a row that was due before all time: its trigger is NULL where NULL is due, −infinity, or
// earlier than time.Time reaches.
const AlwaysDue = policy.AlwaysDue

// neverDue is that of a row whose trigger is beyond what time.Time reaches.
const neverDue = policy.NeverDue

// DueAt is the due instant; nil for one before all time.
func (p Passage) DueAt() *time.Time {
	if p.Due == AlwaysDue || p.Due == neverDue {
		return nil
	}
	t := time.UnixMicro(p.Due).UTC()
	return &t
}

// Rows are due, or were when they were read, so that what no time.Time holds lies before all time: but for what says itself that
// it is far ahead.
func (j *Job) dueMicros(v value) int64 {
	if v.kind == nullValue {
		return AlwaysDue
	}
	if at := j.trig.instantOf(v.s); at != nil {
		return j.p.DueAt(*at).UnixMicro()
	}
	number := j.trig.domain == numberDomain && v.s != "" && v.s[0] != '-'
	if digits := strings.IndexFunc(v.s, func(r rune) bool { return r < '0' || r > '9' }); number || v.s == "infinity" || digits > 4 && !strings.HasSuffix(v.s, "BC") {
		return neverDue
	}
	return AlwaysDue
}

// A dueRow is a row and its due instant in microseconds.
type dueRow struct {
	key     tuple
	due     int64
	printed string // the trigger as instantOf reads it
}

// dueRows reads the due instants of rows that are due. In a transaction that holds them locked they cannot change any more. A row
// that is not there is left out; the order is the database's.
func (x *execution) dueRows(ctx context.Context, keys []tuple) ([]dueRow, error) {
	var out []dueRow
	for chunk := range slices.Chunk(keys, x.j.d.maxKeys()) {
		found, err := x.j.readDue(ctx, x.c, chunk)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

func (j *Job) readDue(ctx context.Context, c querier, keys []tuple) ([]dueRow, error) {
	q := newQuery(j.d).add("SELECT ", j.readKey(), ", ", j.printed(), " AS curfew_trigger FROM ", j.d.rows(j.t), " WHERE ")
	j.d.keyIn(q, j.key, keys)
	found, err := j.tuples(ctx, c, q, append(slices.Clone(j.key), Column{Name: "curfew_trigger", Kind: KindText}))
	out := make([]dueRow, 0, len(found))
	for _, f := range found {
		n := len(f) - 1
		out = append(out, dueRow{f[:n:n], j.dueMicros(f[n]), f[n].s})
	}
	return out, err
}

// rowHashes names rows the way evidence and passages do.
func (j *Job) rowHashes(keys []tuple) [][16]byte {
	h, out, buf := j.keys.RowHasher(j.p.Database, j.p.Table), make([][16]byte, len(keys)), make([]byte, 0, 64)
	for i, k := range keys {
		buf = k.appendCanonical(buf[:0])
		h.Sum(&out[i], buf)
	}
	return out
}

// passageColumns are in the order of Passage's fields.
const passageColumns = "stage, row_hash, due_us, state, as_of_us, run, batch_key, attempt, detail"

// passageChunk is how many rows one statement about passages names.
const passageChunk = 500

// passages reads what is recorded of the rows for the policy, in all stages.
func (j *Job) passages(ctx context.Context, c querier, rows [][16]byte) (map[[16]byte][]Passage, error) {
	out := map[[16]byte][]Passage{}
	for chunk := range slices.Chunk(rows, passageChunk) {
		q := newQuery(j.d).add("SELECT ", passageColumns, " FROM ", j.d.own("passage"), " WHERE policy = ").arg(j.p.Name)
		q.rowIn(chunk)
		found, err := scanPassages(ctx, c, q.add(" ORDER BY row_hash, stage, due_us"))
		if err != nil {
			return nil, err
		}
		for _, p := range found {
			out[p.Row] = append(out[p.Row], p)
		}
	}
	return out, nil
}

// rowIn writes "and the row is one of these".
func (q *query) rowIn(rows [][16]byte) {
	if _, ok := q.d.(postgresDialect); ok {
		q.add(" AND row_hash = ANY(").arg(byteaArray(rows)).add("::text::bytea[])")
		return
	}
	q.add(" AND row_hash IN (")
	for i := range rows {
		if i > 0 {
			q.add(", ")
		}
		q.arg(rows[i][:])
	}
	q.add(")")
}

func byteaArray(rows [][16]byte) string {
	var sb strings.Builder
	for i, r := range rows {
		sb.WriteString(map[bool]string{true: `{"\\x`, false: `,"\\x`}[i == 0] + hex.EncodeToString(r[:]) + `"`)
	}
	return sb.String() + "}"
}

func scanPassages(ctx context.Context, c querier, q *query) ([]Passage, error) {
	rows, err := c.QueryContext(ctx, q.String(), q.args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []Passage
	for rows.Next() {
		var p Passage
		var hash []byte
		var asOf int64
		if err := rows.Scan(&p.Stage, &hash, &p.Due, &p.State, &asOf, &p.Run, &p.BatchKey, &p.Attempt, &p.Detail); err != nil {
			return nil, err
		}
		if len(hash) != len(p.Row) {
			return nil, errors.New("a row hash among the passages cannot be read")
		}
		copy(p.Row[:], hash)
		p.AsOf = time.UnixMicro(asOf).UTC()
		out = append(out, p)
	}
	return out, rows.Err()
}

// record writes passages that are not there yet and returns those of them that were: another transaction, which this one waited
// for, recorded the same row, stage and due instant. They are returned as they stand.
func (j *Job) record(ctx context.Context, c querier, ps []Passage) (taken []Passage, err error) {
	for chunk := range slices.Chunk(ps, passageChunk) {
		found, err := j.recordChunk(ctx, c, chunk)
		if err != nil {
			return nil, err
		}
		taken = append(taken, found...)
	}
	return taken, nil
}

func (j *Job) recordChunk(ctx context.Context, c querier, ps []Passage) (taken []Passage, err error) {
	for len(ps) > 0 {
		q := newQuery(j.d).add("INSERT INTO ", j.d.own("passage"), " (policy, ", passageColumns, ", changed_at) VALUES ")
		for i, p := range ps {
			if i > 0 {
				q.add(", ")
			}
			q.add("(").arg(j.p.Name)
			for _, v := range []any{p.Stage, p.Row[:], p.Due, string(p.State), p.AsOf.UnixMicro(), p.Run, p.BatchKey, p.Attempt, p.Detail} {
				q.add(", ").arg(v)
			}
			q.add(", ", now(j.db.Engine), ")")
		}
		if j.db.Engine != MySQL { // where a duplicate ends the statement, and nothing else
			q.add(" ON CONFLICT DO NOTHING")
		}
		r, err := c.ExecContext(ctx, q.String(), q.args...)
		duplicate := err != nil && j.db.Engine == MySQL && isDuplicate(err)
		if err != nil && !duplicate {
			return nil, err
		}
		if !duplicate {
			if n, err := r.RowsAffected(); err != nil || n == int64(len(ps)) {
				return taken, err
			}
		}
		there, err := j.standing(ctx, c, ps, duplicate)
		if err != nil || !duplicate {
			return there, err
		}
		left := slices.DeleteFunc(slices.Clone(ps), func(p Passage) bool { return slices.ContainsFunc(there, p.same) })
		if len(left) == len(ps) {
			return nil, errors.New("a passage is recorded and cannot be found")
		}
		taken, ps = append(taken, there...), left
	}
	return taken, nil
}

// same reports whether both are about one row, stage and due instant.
func (p Passage) same(o Passage) bool { return p.Stage == o.Stage && p.Row == o.Row && p.Due == o.Due }

// standing reads those of the passages that are there, but not by this batch unless all is set.
func (j *Job) standing(ctx context.Context, c querier, ps []Passage, all bool) ([]Passage, error) {
	rows := make([][16]byte, len(ps))
	for i, p := range ps {
		rows[i] = p.Row
	}
	have, err := j.passages(ctx, c, rows)
	if err != nil {
		return nil, err
	}
	var out []Passage
	for _, p := range ps {
		for _, h := range have[p.Row] {
			ours := h.Run == p.Run && string(h.BatchKey) == string(p.BatchKey) && h.Attempt == p.Attempt && h.State == p.State
			if p.same(h) && (all || !ours) {
				out = append(out, h)
			}
		}
	}
	return out, nil
}

// move changes what is recorded of a passage from the state and the attempt that were read, and reports whether it was still so.
// The passage's key stays; its state, run, batch, attempt, as_of and detail become those of to.
func (j *Job) move(ctx context.Context, c querier, to Passage, from PassageState, attempt int) (bool, error) {
	q := newQuery(j.d).add("UPDATE ", j.d.own("passage"), " SET state = ").arg(string(to.State)).add(", as_of_us = ").arg(to.AsOf.UnixMicro()).
		add(", run = ").arg(to.Run).add(", batch_key = ").arg(to.BatchKey).add(", attempt = ").arg(to.Attempt).add(", detail = ").arg(to.Detail).
		add(", changed_at = ", now(j.db.Engine), " WHERE policy = ").arg(j.p.Name).add(" AND row_hash = ").arg(to.Row[:]).
		add(" AND stage = ").arg(to.Stage).add(" AND due_us = ").arg(to.Due).add(" AND state = ").arg(string(from)).add(" AND attempt = ").arg(attempt)
	r, err := c.ExecContext(ctx, q.String(), q.args...)
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	if err == nil && n > 1 {
		err = fmt.Errorf("%d passages changed in place of one", n)
	}
	return n == 1, err
}

// errRecorded says that a passage was recorded which this transaction alone could have recorded.
var errRecorded = errors.New("the stage is recorded as passed by somebody else: does another program write curfew's tables?")

// forget removes what is recorded of rows that are gone: a row that has their key later is another row.
func (j *Job) forget(ctx context.Context, c querier, rows [][16]byte, only ...func(*query)) error {
	for chunk := range slices.Chunk(rows, passageChunk) {
		q := newQuery(j.d).add("DELETE FROM ", j.d.own("passage"), " WHERE policy = ").arg(j.p.Name)
		q.rowIn(chunk)
		for _, cond := range only {
			cond(q)
		}
		if _, err := c.ExecContext(ctx, q.String(), q.args...); err != nil {
			return err
		}
	}
	return nil
}

package target

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"curfew.dev/curfew/policy"
)

// What is done outside of the database cannot be in one transaction with its receipt. So a batch of such an action is done in
// rounds. A round is one transaction: it judges every row, claims those that are to be told, and, when none is left, completes the
// receipt. Between rounds each row is sent by itself: a short transaction judges it again and moves its passage from claimed to
// sending, then it is sent, then the passage says what came of it. No lock is held while something is sent.
//
// What a crash leaves: a claimed passage was not sent, and whoever executes the batch next sends it. One that is sending may have
// been: once nobody can be at it any more it becomes uncertain. An uncertain e-mail is never sent again; an uncertain request is
// repeated under the same key, by which its receiver can tell.

// TellWithin, when set, is how long a message may be under way once it is recorded as being sent. It is for tests, in which
// processes die and nobody wants to wait for as long as a real mail server may take to answer; it is zero in every program.
var TellWithin time.Duration

// A Row is a row of a batch that is to be told.
type Row struct {
	Hash    [16]byte
	Due     *time.Time // nil: before all time
	Again   bool       // it may have arrived already: only the very same may be sent
	key     tuple
	due     int64
	state   PassageState // as recorded
	attempt int
	order   int
}

// A Round is one look at a batch.
type Round struct {
	Result *Result       // set when the batch is complete
	Rows   []Row         // to be sent now, in the order of the batch
	Wait   time.Duration // another process may be sending one of the batch's rows for so long
}

// RoundOptions say how to look.
type RoundOptions struct {
	// Within is how long after it was recorded as sending a row may still be under way.
	Within time.Duration
	// GiveUp, when set, claims nothing more: rows that were not sent have failed, for this reason if not for one of their own.
	GiveUp error
	// First says that this execution of the batch has just begun: rows that another run claimed and has not sent are taken over.
	// Later on they are left to it, so that two runs do not take turns.
	First bool
}

// Reasons that are recorded of rows.
const (
	uncertainPrefix = "uncertain: "
	reasonNoAnswer  = uncertainPrefix + "the process that was sending it ended, or was too slow, before it recorded what came of it"
	reasonWithdrawn = uncertainPrefix + "it may have arrived, and is not sent again because the row is not due any more or is held"
	reasonRowLocked = "another session kept the row locked"
)

// repeatable reports whether the receiver can tell a repetition.
func (j *Job) repeatable() bool {
	return j.p.Action.Message == nil || j.p.Action.Message.Webhook != nil
}

// perBatch reports whether one request is about all rows.
func (j *Job) perBatch() bool {
	return j.p.Action.Request != nil && j.p.Action.Request.Per == policy.PerBatch
}

// Round looks at a batch of an action that is done outside of the database.
func (j *Job) Round(ctx context.Context, asOf time.Time, w Work, o RoundOptions) (*Round, error) {
	var r *Round
	start := time.Now()
	err := j.again(ctx, func() (err error) {
		r, err = j.round(ctx, asOf, w, o)
		return err
	})
	if err == nil && r.Result != nil {
		r.Result.Took = time.Since(start)
	}
	return r, err
}

func (j *Job) round(ctx context.Context, asOf time.Time, w Work, o RoundOptions) (*Round, error) {
	tx, err := j.db.SQL.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	x := &execution{j: j, c: tx, asOf: asOf}
	done, err := x.open(ctx, w)
	if err != nil || done != nil {
		return &Round{Result: done}, err
	}
	hook("round")
	f, err := x.find(ctx, w)
	if err != nil {
		return nil, err
	}
	t := &telling{execution: x, w: w, o: o, tally: f.tally()}
	if t.tally == nil {
		t.tally = newTally()
		if err := t.look(ctx, f.keys); err != nil {
			return nil, err
		}
	}
	r := &Round{Rows: t.rows, Wait: t.wait}
	if len(t.rows) > 0 || t.wait > 0 {
		if err := x.unclaim(ctx, w); err != nil {
			return nil, err
		}
	} else {
		if err := x.sameTable(ctx); err != nil {
			return nil, err
		}
		if r.Result, err = x.complete(ctx, w, t.tally); err != nil {
			return nil, err
		}
	}
	hook("round_looked")
	if err := tx.Commit(); err != nil {
		return nil, err
	}
	hook("round_committed")
	return r, nil
}

// unclaim takes the receipt back, in the transaction that wrote it: it kept other executions of the batch out until now, and comes
// again when there is something to say.
func (x *execution) unclaim(ctx context.Context, w Work) error {
	q := newQuery(x.j.d).add("DELETE FROM ", x.j.d.own("receipt"), " WHERE completed_at IS NULL AND batch_key = ").arg(w.Key)
	_, err := x.c.ExecContext(ctx, q.String(), q.args...)
	return err
}

// telling is a round in its transaction.
type telling struct {
	*execution
	w     Work
	o     RoundOptions
	tally *tally
	rows  []Row
	wait  time.Duration
}

// look gives each row its outcome, or a place among those that are to be sent.
func (t *telling) look(ctx context.Context, keys []tuple) error {
	hashes := t.j.rowHashes(keys)
	have, err := t.j.passages(ctx, t.c, hashes)
	if err != nil {
		return err
	}
	late, err := t.j.sendingFor(ctx, t.c, hashes)
	if err != nil {
		return err
	}
	var open []tuple
	mine := map[string][]Passage{} // by row: what this stage has recorded of it
	order := map[string]int{}
	for i, k := range keys {
		id := k.id()
		order[id] = i
		ps := slices.DeleteFunc(have[hashes[i]], func(p Passage) bool { return p.Stage != t.j.p.StageName() })
		settled, err := t.settled(ctx, k, i, ps, late)
		if err != nil {
			return err
		}
		if !settled {
			open, mine[id] = append(open, k), ps
		}
	}
	if err := t.judge(ctx, open, mine, order); err != nil {
		return err
	}
	slices.SortFunc(t.rows, func(a, b Row) int { return a.order - b.order })
	return nil
}

// settled takes what this batch has recorded of a row, if that is more than a claim.
func (t *telling) settled(ctx context.Context, k tuple, order int, ps []Passage, late map[passageID]time.Duration) (bool, error) {
	for i := range ps {
		p := &ps[i]
		ours := string(p.BatchKey) == string(t.w.Key)
		if p.State == PassageSending {
			if left := t.o.Within - late[p.id()]; left > 0 {
				if ours {
					t.wait = max(t.wait, left)
					return true, nil
				}
				continue
			}
			// Nobody can be at it any more. It is this batch's from now on, also when another run began it and will not end it.
			from, repeat := *p, t.j.repeatable() && (ours || !t.j.perBatch())
			p.State, p.Detail, p.Run, p.BatchKey, p.AsOf = PassageUncertain, reasonNoAnswer, t.j.run, t.w.Key, t.stands
			if !repeat {
				p.Detail = reasonNoAnswer + ", and it is not sent again"
			}
			if ok, err := t.j.move(ctx, t.c, *p, from.State, from.Attempt); err != nil || !ok {
				return true, moved(err)
			}
			ours = true
		}
		if !ours {
			continue
		}
		switch p.State {
		case PassageDone:
			t.tally.put(t.j.p.Action.Kind.Outcome(), k)
		case PassageFailed:
			t.tally.note("failed", p.Detail, k)
		case PassageUncertain:
			if t.j.repeatable() && t.o.GiveUp == nil && p.Detail != reasonWithdrawn && !strings.HasSuffix(p.Detail, ", and it is not sent again") {
				t.send(k, order, *p)
			} else {
				t.tally.note("failed", p.Detail, k)
			}
		default:
			continue
		}
		return true, nil
	}
	return false, nil
}

func (t *telling) send(k tuple, order int, p Passage) {
	t.rows = append(t.rows, Row{Hash: p.Row, Due: p.DueAt(), Again: p.State == PassageUncertain, key: k, due: p.Due, state: p.State, attempt: p.Attempt, order: order})
}

// judge asks of the rest whether it is due, and claims what is.
func (t *telling) judge(ctx context.Context, keys []tuple, mine map[string][]Passage, order map[string]int) error {
	var due []dueRow
	for chunk := range slices.Chunk(keys, t.j.d.maxKeys()) {
		open, err := t.sift(ctx, t.tally, chunk, none)
		if err != nil {
			return err
		}
		if open, _, err = t.gate(ctx, open, t.tally); err != nil {
			return err
		}
		found, err := t.dueRows(ctx, open)
		if err != nil {
			return err
		}
		for _, k := range without(open, keysOf(found)) { // removed between two statements
			t.tally.put("gone", k)
		}
		due = append(due, found...)
	}
	var fresh []Passage
	of := map[[16]byte]tuple{}
	for _, d := range due {
		id := d.key.id()
		p, err := t.claim(ctx, d, mine[id])
		if err != nil {
			return err
		}
		switch {
		case p == nil:
		case p.Attempt < 0: // not recorded yet
			p.Attempt = 0
			of[p.Row] = d.key
			fresh = append(fresh, *p)
		default:
			t.send(d.key, order[id], *p)
		}
		mine[id] = slices.DeleteFunc(mine[id], func(p Passage) bool { return p.Due == d.due })
	}
	taken, err := t.j.record(ctx, t.c, fresh)
	if err != nil {
		return err
	}
	for _, p := range fresh {
		if slices.ContainsFunc(taken, p.same) {
			t.tally.put("no_longer_due", of[p.Row]) // another run has it
			continue
		}
		t.send(of[p.Row], order[of[p.Row].id()], p)
	}
	for _, ps := range mine {
		for _, p := range ps {
			if err := t.release(ctx, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func keysOf(rows []dueRow) []tuple {
	out := make([]tuple, len(rows))
	for i, r := range rows {
		out[i] = r.key
	}
	return out
}

// claim makes a row that is due this batch's to tell, and returns its passage; one with attempt -1 is to be recorded. It is nil when
// the row has its outcome.
func (t *telling) claim(ctx context.Context, d dueRow, ps []Passage) (*Passage, error) {
	to := Passage{Stage: t.j.p.StageName(), Row: t.j.rowHash(d.key), Due: d.due, State: PassageClaimed, AsOf: t.stands, Run: t.j.run, BatchKey: t.w.Key, Attempt: -1}
	i := slices.IndexFunc(ps, to.same)
	if i < 0 {
		if t.o.GiveUp == nil {
			return &to, nil
		}
		t.tally.note("failed", t.o.GiveUp.Error(), d.key)
		return nil, nil
	}
	from := ps[i]
	to.Attempt, to.Detail = from.Attempt, from.Detail
	switch ours := string(from.BatchKey) == string(t.w.Key); {
	case from.State == PassageClaimed && ours && t.o.GiveUp == nil:
		return &from, nil
	case from.State == PassageClaimed && ours:
		if to.Detail == "" {
			to.Detail = t.o.GiveUp.Error()
		}
		to.State = PassageFailed
		if to.Detail == reasonRowLocked {
			t.tally.put("locked", d.key)
		} else {
			t.tally.note("failed", to.Detail, d.key)
		}
		ok, err := t.j.move(ctx, t.c, to, from.State, from.Attempt)
		if err == nil && !ok {
			err = errMoved
		}
		return nil, err
	case from.State == PassageDone && from.Run == t.j.run: // told by another batch of the run, in which it was too
		t.tally.put(t.j.p.Action.Kind.Outcome(), d.key)
		return nil, nil
	case from.State == PassageFailed, from.State == PassageClaimed && t.o.First:
		if t.o.GiveUp != nil {
			t.tally.note("failed", t.o.GiveUp.Error(), d.key)
			return nil, nil
		}
		to.Detail = ""
		ok, err := t.j.move(ctx, t.c, to, from.State, from.Attempt)
		if err == nil && !ok {
			err = errMoved
		}
		return &to, err
	}
	t.tally.put("no_longer_due", d.key) // it was told of this due instant, or is being told, by another run
	return nil, nil
}

// release takes back a claim of this batch that it has no use for: the row is not due any more, or at another instant.
func (t *telling) release(ctx context.Context, p Passage) error {
	if p.State != PassageClaimed || string(p.BatchKey) != string(t.w.Key) {
		return nil
	}
	q := newQuery(t.j.d).add("DELETE FROM ", t.j.d.own("passage"), " WHERE policy = ").arg(t.j.p.Name).add(" AND row_hash = ").arg(p.Row[:]).
		add(" AND stage = ").arg(p.Stage).add(" AND due_us = ").arg(p.Due).add(" AND state = ").arg(string(PassageClaimed)).add(" AND attempt = ").arg(p.Attempt)
	_, err := t.c.ExecContext(ctx, q.String(), q.args...)
	return err
}

// errMoved says that another process changed a passage since it was read: the round is looked at again.
var errMoved = fmt.Errorf("%w: another process was at the same row", errAgain)

func moved(err error) error {
	if err == nil {
		return errMoved
	}
	return err
}

// passageID names a passage of the policy.
type passageID struct {
	row   [16]byte
	stage string
	due   int64
}

func (p Passage) id() passageID { return passageID{p.Row, p.Stage, p.Due} }

// sendingFor is how long ago, by the database's clock, those of the rows that are being sent were recorded as such.
func (j *Job) sendingFor(ctx context.Context, c querier, rows [][16]byte) (map[passageID]time.Duration, error) {
	us := map[Engine]string{
		Postgres: "(extract(epoch FROM clock_timestamp() - changed_at) * 1000000)::bigint",
		MySQL:    "TIMESTAMPDIFF(MICROSECOND, changed_at, UTC_TIMESTAMP(6))",
		SQLite:   "CAST((julianday('now') - julianday(changed_at)) * 86400000000 AS INTEGER)",
	}[j.db.Engine]
	out := map[passageID]time.Duration{}
	for chunk := range slices.Chunk(rows, passageChunk) {
		q := newQuery(j.d).add("SELECT row_hash, stage, due_us, ", us, " FROM ", j.d.own("passage"), " WHERE policy = ").arg(j.p.Name)
		q.rowIn(chunk)
		found, err := c.QueryContext(ctx, q.add(" AND state = ").arg(string(PassageSending)).String(), q.args...)
		if err != nil {
			return nil, err
		}
		for found.Next() {
			var id passageID
			var hash []byte
			var age int64
			if err := found.Scan(&hash, &id.stage, &id.due, &age); err != nil {
				found.Close()
				return nil, err
			}
			copy(id.row[:], hash)
			out[id] = time.Duration(age) * time.Microsecond
		}
		if err := found.Err(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

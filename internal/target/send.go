package target

import (
	"context"
	"errors"
	"slices"
	"time"
)

var (
	// ErrNotNow says that a row is not to be told as things stand: it is not due any more, is held or guarded, or another process
	// is at it. The next round says which.
	ErrNotNow = errors.New("the row is not to be told now")
	// ErrRowLocked says that another session holds the row, and may be about to change it.
	ErrRowLocked = errors.New(reasonRowLocked)
)

// Sending judges rows once more and records that they are about to be sent, all or none. It commits before it returns. The rows are
// then as recorded.
func (j *Job) Sending(ctx context.Context, asOf time.Time, w Work, rows []Row) error {
	hook("sending")
	var now []Row
	err := j.again(ctx, func() (err error) {
		now, err = j.sending(ctx, asOf, w, rows)
		return err
	})
	if err != nil {
		return err
	}
	copy(rows, now)
	hook("sending_committed")
	return nil
}

func (j *Job) sending(ctx context.Context, asOf time.Time, w Work, rows []Row) ([]Row, error) {
	tx, err := j.db.SQL.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	x := &execution{j: j, c: tx, asOf: asOf}
	if err := x.waitFor(ctx, rivalWait); err != nil {
		return nil, err
	}
	if err := x.shareHolds(ctx); err != nil {
		return nil, err
	}
	if err := x.stand(ctx); err != nil {
		return nil, err
	}
	if err = x.obeyHolds(ctx); err != nil {
		return nil, err
	}
	ready, err := x.stillDue(ctx, rows)
	if err != nil {
		return nil, err
	}
	if ready < len(rows) {
		return nil, x.notNow(ctx, w, rows)
	}
	out := slices.Clone(rows)
	attempt := 0
	for _, r := range rows {
		attempt = max(attempt, r.attempt)
	}
	for i := range out {
		r := &out[i]
		to := x.passageOf(w, *r, PassageSending, "")
		to.Attempt = attempt + 1
		ok, err := j.move(ctx, tx, to, r.state, r.attempt)
		if err != nil {
			return nil, err
		}
		if !ok {
			return nil, ErrNotNow
		}
		r.state, r.attempt = to.State, to.Attempt
	}
	return out, tx.Commit()
}

// stillDue locks the rows and counts those that are due, at the instant that they were claimed for, in scope, not held, not guarded.
func (x *execution) stillDue(ctx context.Context, rows []Row) (int, error) {
	var keys []tuple
	was := map[string]int64{}
	for _, r := range rows {
		keys = append(keys, r.key)
		was[r.key.id()] = r.due
	}
	n := 0
	for chunk := range slices.Chunk(keys, x.j.d.maxKeys()) {
		free, err := x.lock(ctx, chunk, false)
		if err != nil {
			return 0, err
		}
		if x.j.readsOthers() {
			if free, err = x.only(ctx, free, func(q *query) { q.add(" AND "); x.j.isDue(q); x.j.inScope(q) }); err != nil {
				return 0, err
			}
		}
		if free, err = x.freeOf(ctx, free); err != nil {
			return 0, err
		}
		if free, _, err = x.gate(ctx, free, newTally()); err != nil {
			return 0, err
		}
		due, err := x.dueRows(ctx, free)
		if err != nil {
			return 0, err
		}
		for _, d := range due {
			if was[d.key.id()] == d.due {
				n++
			}
		}
	}
	return n, nil
}

// freeOf leaves out the rows that a guard keeps.
func (x *execution) freeOf(ctx context.Context, keys []tuple) ([]tuple, error) {
	if x.j.p.Unless == "" {
		return keys, nil
	}
	return x.unguardedOf(ctx, keys)
}

// notNow says why rows are not sent. What may have arrived already, and is not to be sent any more, stays uncertain for good.
func (x *execution) notNow(ctx context.Context, w Work, rows []Row) error {
	j := x.j
	var keys []tuple
	for _, r := range rows {
		keys = append(keys, r.key)
	}
	open := 0
	for chunk := range slices.Chunk(keys, j.d.maxKeys()) {
		found, err := x.sift(ctx, newTally(), chunk, none)
		if err != nil {
			return err
		}
		if found, _, err = x.gate(ctx, found, newTally()); err != nil {
			return err
		}
		due, err := x.dueRows(ctx, found)
		if err != nil {
			return err
		}
		for _, d := range due {
			if slices.ContainsFunc(rows, func(r Row) bool { return r.due == d.due && equal(r.key, d.key) }) {
				open++
			}
		}
	}
	if open == len(rows) {
		return ErrRowLocked
	}
	again := false
	for _, r := range rows {
		if !r.Again {
			continue
		}
		again = true
		if _, err := j.move(ctx, x.c, x.passageOf(w, r, PassageUncertain, reasonWithdrawn), r.state, r.attempt); err != nil {
			return err
		}
	}
	if again {
		if err := x.c.(interface{ Commit() error }).Commit(); err != nil {
			return err
		}
	}
	return ErrNotNow
}

func (x *execution) passageOf(w Work, r Row, state PassageState, detail string) Passage {
	return Passage{Stage: x.j.p.StageName(), Row: r.Hash, Due: r.due, State: state, AsOf: x.stands, Run: x.j.run, BatchKey: w.Key, Attempt: r.attempt, Detail: detail}
}

// Sent records what came of rows. PassageClaimed is for rows that were not taken and are to be sent later. The reason of an
// uncertain one is put into words that say so. A row that another process took in hand meanwhile is left as that one says.
func (j *Job) Sent(ctx context.Context, w Work, rows []Row, state PassageState, detail string) error {
	hook("sent")
	if state == PassageUncertain {
		detail = uncertainPrefix + detail
	}
	err := j.again(ctx, func() error {
		tx, err := j.db.SQL.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		x := &execution{j: j, c: tx}
		if err := x.stand(ctx); err != nil {
			return err
		}
		for _, r := range rows {
			to := x.passageOf(w, r, state, detail)
			ok, err := j.move(ctx, tx, to, r.state, r.attempt)
			if err == nil && !ok && state == PassageDone {
				// We were taken for dead, and know better.
				_, err = j.move(ctx, tx, to, PassageUncertain, r.attempt)
			}
			if err != nil {
				return err
			}
		}
		return tx.Commit()
	})
	if err == nil {
		hook("sent_committed")
	}
	return err
}

// Token is what names the telling of one row, the same for each attempt and in every process of the installation.
func (j *Job) Token(r Row) [32]byte {
	return j.keys.MAC("tell", []byte(j.p.Name), []byte(j.p.StageName()), r.Hash[:], []byte(itoa64(r.due)))
}

// BatchToken is what names one request about these rows of a batch.
func (j *Job) BatchToken(w Work, rows []Row) [32]byte {
	parts := [][]byte{w.Key}
	for _, r := range rows {
		t := j.Token(r)
		parts = append(parts, t[:])
	}
	return j.keys.MAC("tell batch", parts...)
}

package target

import (
	"context"
	"slices"
	"time"
)

// account finds out what became of planned rows that did not go: each gets its outcome. ours says whether we hold a row
// locked; last that rows still locked by others have had their second chance.
func (x *execution) account(ctx context.Context, t *tally, missing []tuple, ours func(tuple) bool, last bool) error {
	for chunk := range slices.Chunk(missing, x.j.d.maxKeys()) {
		open, err := x.sift(ctx, t, chunk, ours)
		if err != nil {
			return err
		}
		// What is left is due, and nothing of ours keeps it: another session holds it, or the database kept it.
		for _, k := range open {
			switch {
			case ours(k):
				t.note("blocked", reasonVeto, k)
			case last:
				t.put("locked", k)
			default:
				t.deferred = append(t.deferred, k)
			}
		}
	}
	return nil
}

// none is the answer of the quick way, which knows nothing of rows that it did not delete.
func none(tuple) bool { return false }

// among answers for the rows in keys.
func among(keys []tuple) func(tuple) bool {
	have := make(map[string]bool, len(keys))
	for _, k := range keys {
		have[k.id()] = true
	}
	return func(k tuple) bool { return have[k.id()] }
}

// sift gives each row that is gone, no longer due, held or guarded its outcome, and returns the rest. The questions are asked
// in that order, so a row has one answer. A row that we hold locked and that is gone went along with another of this batch.
func (x *execution) sift(ctx context.Context, t *tally, keys []tuple, ours func(tuple) bool) ([]tuple, error) {
	steps := []struct {
		outcome string
		cond    func(*query)
	}{
		{"gone", nil},
		{"no_longer_due", func(q *query) { q.add(" AND "); x.j.isDue(q); x.j.inScope(q) }},
		{"held", x.free},
		{"guarded", x.j.unguarded},
	}
	for _, s := range steps {
		pass, err := x.only(ctx, keys, s.cond)
		if err != nil {
			return nil, err
		}
		kept := without(keys, pass)
		if s.outcome == "held" {
			if err := x.noteHeld(ctx, t, kept); err != nil {
				return nil, err
			}
			kept = nil
		}
		for _, k := range kept {
			if s.outcome == "gone" && ours(k) && x.j.quick() { // archived it is not
				t.put("deleted", k)
			} else {
				t.put(s.outcome, k)
			}
		}
		keys = pass
	}
	return keys, nil
}

// only returns those of the keys whose rows exist and meet the condition.
func (x *execution) only(ctx context.Context, keys []tuple, cond func(*query)) ([]tuple, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	j := x.j
	q := newQuery(j.d).add("SELECT ", j.readKey(), " FROM ", j.d.rows(j.t), " WHERE ")
	j.d.keyIn(q, j.key, keys)
	if cond != nil {
		cond(q)
	}
	return j.tuples(ctx, x.c, q, j.key)
}

// rehearse is a batch of a shadow run: the same questions, no change, no receipt.
func (j *Job) rehearse(ctx context.Context, w Work) (*Result, error) {
	start := time.Now()
	x := &execution{j: j, c: j.db.SQL}
	f, err := x.find(ctx, w)
	if err != nil {
		return nil, redact(err)
	}
	if t := f.tally(); t != nil {
		res, _ := j.result(t)
		return res, nil
	}
	if err := x.obeyHolds(ctx); err != nil && classify(err) != classUndefined { // a database without curfew's tables has no holds to obey
		return nil, redact(err)
	}
	t := newTally()
	for chunk := range slices.Chunk(f.keys, j.d.maxKeys()) {
		open, err := x.sift(ctx, t, chunk, none)
		if err != nil {
			return nil, redact(err)
		}
		if open, _, err = x.gate(ctx, open, t); err != nil {
			return nil, redact(err)
		}
		kept, err := x.keptBy(ctx, open, t)
		if err != nil {
			return nil, redact(err)
		}
		open = without(open, kept)
		if j.family != nil {
			if err := x.rehearseAlong(ctx, open, t, func(*doomed) {}); err != nil {
				return nil, redact(err)
			}
			continue
		}
		along, err := x.countCascade(ctx, open)
		if err != nil {
			return nil, redact(err)
		}
		t.cascaded += along
		t.put("due", open...)
	}
	res, _ := j.result(t)
	res.Took = time.Since(start)
	return res, nil
}

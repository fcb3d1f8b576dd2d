package target

import (
	"context"
	"slices"
	"time"

	"curfew.dev/curfew/policy"
)

// staged reports whether the job is one stage of several: then what a row has passed decides, besides its trigger.
func (j *Job) staged() bool { return j.p.Stage() != nil }

// byRow reports whether what is recorded of a row decides, besides its trigger: in a stage, or because it was told of. Then
// batches are lists of rows.
func (j *Job) byRow() bool { return j.staged() || j.p.Action.Kind.Tells() }

// bindStage makes the job that of one stage. Batches are lists of rows and never ranges, since which rows of a range a stage
// acts on is more than a condition of a statement can say; and they are locked before they are judged (see change).
func (j *Job) bindStage(step time.Duration) {
	if !j.staged() {
		return
	}
	floor, ok := j.p.Floor(j.asOf)
	if !ok {
		return
	}
	// A reminder is about what is still to come. What is due whatever the time is not.
	j.trig.nulls = policy.NullNever
	f := newBound(floor.Add(step), j.trig.zone)
	j.reached = &f
}

// A ruling is what a row's stage was judged by.
type ruling struct {
	dueRow
	row    [16]byte
	passed []Passage // of all stages
	policy.Judgement
}

// rulings judges rows that are due by their trigger. In a transaction that holds them locked, neither their due instants nor
// what they have passed changes any more.
func (x *execution) rulings(ctx context.Context, keys []tuple) ([]ruling, error) {
	j := x.j
	rows, err := x.dueRows(ctx, keys)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	found := make([]tuple, len(rows))
	for i, r := range rows {
		found[i] = r.key
	}
	hashes := j.rowHashes(found)
	have, err := j.passages(ctx, x.c, hashes)
	if err != nil && (!j.shadow || classify(err) != classUndefined) { // a database without curfew's tables has nothing recorded
		return nil, err
	}
	out := make([]ruling, len(rows))
	for i, r := range rows {
		ps := have[hashes[i]]
		at := j.asOf
		if j.staged() && j.p.Stage().At.Before && x.stands.After(at) { // it would go out now
			at = x.stands
		}
		out[i] = ruling{r, hashes[i], ps, j.p.Judge(r.due, Done(ps), at)}
	}
	return out, nil
}

// Done are the passages that count.
func Done(ps []Passage) []policy.Passed {
	var out []policy.Passed
	for _, p := range ps {
		if p.State == PassageDone {
			out = append(out, policy.Passed{Stage: p.Stage, Due: p.Due, AsOf: p.AsOf})
		}
	}
	return out
}

// planned leaves out of a page the rows that are not this stage's business: those that have passed it, and those that it counts
// to from a stage which came late. Rows that wait for an earlier stage stay, to be counted.
func (j *Job) planned(ctx context.Context, b *Batch) (*Batch, error) {
	if b == nil || !j.staged() || len(b.Keys) == 0 {
		return b, nil
	}
	keys, err := decodeTuples(b.Keys)
	if err != nil {
		return nil, err
	}
	rulings, err := (&execution{j: j, c: j.db.SQL}).rulings(ctx, keys)
	if err != nil {
		return nil, err
	}
	var left []tuple
	for _, r := range rulings {
		if r.Turn == policy.TurnNow || r.Turn.Waits() {
			left = append(left, r.key)
		}
	}
	if len(left) == 0 {
		return nil, nil
	}
	out := *b
	out.Rows, out.Keys = len(left), encodeTuples(left)
	return &out, nil
}

// gate lets through the rows whose turn it is, and gives the others their outcome; settled are those. The rows are locked, or it
// is a shadow run, which only looks.
func (x *execution) gate(ctx context.Context, keys []tuple, t *tally) (free, settled []tuple, err error) {
	if !x.j.staged() || len(keys) == 0 {
		return keys, nil, nil
	}
	rulings, err := x.rulings(ctx, keys)
	if err != nil {
		return nil, nil, err
	}
	for _, r := range rulings {
		switch {
		case r.Turn == policy.TurnNow:
			free = append(free, r.key)
			x.rule(r)
			continue
		case r.Turn.Waits():
			t.note("guarded", r.Why(), r.key)
		default: // since the page was read: its due instant moved, or another run was at it
			t.put("no_longer_due", r.key)
		}
		settled = append(settled, r.key)
	}
	hook("judged")
	return free, settled, nil
}

// rule remembers a ruling until the passage is recorded.
func (x *execution) rule(r ruling) {
	if x.ruled == nil {
		x.ruled = map[string]ruling{}
	}
	x.ruled[r.key.id()] = r
}

// pass records, in the transaction of the change, that rows have passed the stage. What is recorded of rows that are gone goes
// with them: a row that gets their key later is another one.
func (x *execution) pass(ctx context.Context, w Work, t *tally) error {
	j := x.j
	if !j.staged() {
		return nil
	}
	kind := j.p.Action.Kind
	if kind.Tells() {
		return nil // it records what it did itself, in steps
	}
	acted := t.byOutcome[kind.Outcome()]
	gone := slices.Clone(t.byOutcome["gone"])
	if kind == policy.Delete || kind == policy.Archive {
		gone, acted = append(gone, acted...), nil
	}
	if err := j.forget(ctx, x.c, j.rowHashes(gone)); err != nil {
		return err
	}
	var ps []Passage
	for _, k := range acted {
		if r, ok := x.ruled[k.id()]; ok {
			ps = append(ps, x.passage(r.row, r.due, PassageDone, w))
		}
	}
	taken, err := j.record(ctx, x.c, ps)
	if err != nil {
		return err
	}
	for _, p := range taken {
		if p.State == PassageDone {
			// The row was ours and had not passed: nobody else could have recorded it. Rather nothing is done.
			return errRecorded
		}
		ok, err := j.move(ctx, x.c, x.passage(p.Row, p.Due, PassageDone, w), p.State, p.Attempt)
		if err != nil {
			return err
		}
		if !ok {
			return errRecorded
		}
	}
	hook("passed")
	return nil
}

// passage is the record that a batch makes of a row in this stage.
func (x *execution) passage(row [16]byte, due int64, state PassageState, w Work) Passage {
	return Passage{Stage: x.j.p.StageName(), Row: row, Due: due, State: state, AsOf: x.stands, Run: x.j.run, BatchKey: w.Key, Attempt: 1}
}

// lateFor is how late a run may be at work and still count as on time: as late as it may start, unless its schedule says more.
const lateFor = time.Hour

// stand finds out as of when this batch's stage is recorded.
func (x *execution) stand(ctx context.Context) error {
	x.stands = x.j.asOf
	if !x.j.staged() || !x.j.live {
		return nil
	}
	now, err := x.j.db.clockIn(ctx, x.c)
	if err == nil && now.Sub(x.stands) > lateFor {
		x.stands = now
	}
	return err
}

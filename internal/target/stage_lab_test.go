package target

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"curfew.dev/curfew/policy"
)

// begun is where these tests begin, in the future: what is due by their clock, and what the databases' own clock says, must not be mixed up.
var begun = time.Date(2031, 5, 1, 12, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

// A stageLab is a table of organisations, and a policy with stages over it. What set and notify will do is done here by hand in
// the transaction of the batch.
type stageLab struct {
	*lab
	p   *policy.Policy
	run int
}

func offset(text string) policy.Offset {
	o, err := policy.ParseOffset(text)
	if err != nil {
		panic(err)
	}
	return o
}

// trials reminds, pauses and tears down.
func (l *lab) trials(edit func(*policy.Policy)) *stageLab {
	l.Helper()
	typ, _ := l.instant()
	l.exec("CREATE TABLE org (id int NOT NULL PRIMARY KEY, at " + typ + " NOT NULL, state varchar(20) NOT NULL)")
	l.exec("CREATE INDEX org_at ON org (at)")
	return l.stages(edit)
}

func (l *lab) stages(edit func(*policy.Policy)) *stageLab {
	l.Helper()
	note := policy.Action{Kind: policy.Notify, Message: &policy.Message{Email: "owner"}}
	p := l.policy("org", func(p *policy.Policy) {
		p.Name, p.Action = "trials", policy.Action{}
		p.Stages = []policy.Stage{
			{Name: "week", At: offset("-7d"), Action: note},
			{Name: "remind", At: offset("-2d"), Action: note},
			{Name: "pause", At: offset("0d"), Where: "state = 'active'", Action: policy.Action{Kind: policy.Set, Columns: []policy.Change{{Column: "state", Value: &policy.Value{Kind: policy.TextValue, Text: "paused"}}}}},
			{Name: "teardown", At: offset("14d"), Where: "state = 'paused'", Action: policy.Action{Kind: policy.Delete}},
		}
	})
	if edit != nil {
		edit(p)
	}
	return &stageLab{lab: l, p: p}
}

func (l *stageLab) org(id int, ends time.Time) {
	l.Helper()
	l.exec(fmt.Sprintf("INSERT INTO org VALUES (%d, %s, 'active')", id, l.lit(ends)))
}

func (l *stageLab) move(id int, ends time.Time) {
	l.Helper()
	l.exec(fmt.Sprintf("UPDATE org SET at = %s WHERE id = %d", l.lit(ends), id))
}

// job is a new run of a stage.
func (l *stageLab) job(stage string, at time.Time) *Job {
	l.Helper()
	p, ok := l.p.Narrow(stage)
	if !ok {
		l.Fatalf("no stage %s", stage)
	}
	tab, err := l.db.Inspect(l.Context(), p.Table)
	if err != nil {
		l.Fatal(err)
	}
	l.run++
	run := fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%s %s %d", l.Name(), stage, l.run)))
	j, err := NewJob(l.db, JobOptions{Policy: p, Table: tab, AsOf: at, Cutoff: p.Cutoff(at), Shadow: p.Mode == policy.Shadow, Run: run, Keys: l.keys})
	if err != nil {
		l.Fatal(err)
	}
	if j.fingerprint, err = j.FingerprintNow(l.Context()); err != nil {
		l.Fatal(err)
	}
	return j
}

// do runs a stage as of an instant, and answers its outcomes.
func (l *stageLab) do(stage string, at time.Time) map[string]int64 {
	l.Helper()
	return l.finish(l.job(stage, at), nil)
}

// finish pages a job and executes its batches; between is called before each.
func (l *stageLab) finish(j *Job, between func()) map[string]int64 {
	l.Helper()
	out := map[string]int64{}
	for _, b := range l.pages(j, 3) {
		if between != nil {
			between()
		}
		res, err := l.perform(j, b)
		if err != nil {
			l.Fatal(err)
		}
		var sum int64
		for o, n := range res.Outcomes {
			out[o] += n
			sum += n
		}
		if sum != res.Planned || res.Planned < int64(b.Rows) {
			l.Fatalf("a batch of %d planned %d: %v", b.Rows, res.Planned, res.Outcomes)
		}
	}
	return out
}

// perform executes a batch of a delete; of another action it does what that action does.
func (l *stageLab) perform(j *Job, b *Batch) (*Result, error) {
	w := Work{Seq: l.seq + 1, Phase: b.Phase, Rows: b.Rows, Bounds: b.Bounds, Keys: b.Keys}
	l.seq++
	key := sha256.Sum256(bytes.Join([][]byte{[]byte(j.run), []byte(b.Phase), b.Bounds, b.Keys}, []byte{0}))
	w.Key = key[:]
	if j.p.Action.Kind == policy.Delete || j.shadow {
		return j.Execute(l.Context(), j.asOf, w)
	}
	return j.actByHand(l.Context(), w)
}

// actByHand is a batch of a stage that changes or tells, with the parts of the real one around it.
func (j *Job) actByHand(ctx context.Context, w Work) (*Result, error) {
	tx, err := j.db.SQL.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	x := &execution{j: j, c: tx, asOf: j.asOf}
	done, err := x.open(ctx, w)
	if err != nil || done != nil {
		return done, err
	}
	hook("claimed")
	keys, err := decodeTuples(w.Keys)
	if err != nil {
		return nil, err
	}
	ours, err := x.lock(ctx, keys, true)
	if err != nil {
		return nil, err
	}
	t := newTally()
	free, settled, err := x.gate(ctx, ours, t)
	if err != nil {
		return nil, err
	}
	if j.p.Action.Kind == policy.Set && len(free) > 0 {
		q := newQuery(j.d).add("UPDATE org SET state = 'paused' WHERE ")
		j.d.keyIn(q, j.key, free)
		if _, err := tx.ExecContext(ctx, q.String(), q.args...); err != nil {
			return nil, err
		}
	}
	t.put(j.p.Action.Kind.Outcome(), free...)
	if err := x.account(ctx, t, without(keys, append(settled, free...)), among(ours), true); err != nil {
		return nil, err
	}
	if j.p.Action.Kind.Tells() {
		var ps []Passage
		for _, k := range free {
			r := x.ruled[k.id()]
			ps = append(ps, x.passage(r.row, r.due, PassageDone, w))
		}
		if _, err := j.record(ctx, tx, ps); err != nil {
			return nil, err
		}
	}
	if err := x.pass(ctx, w, t); err != nil {
		return nil, err
	}
	hook("changed")
	res, err := x.complete(ctx, w, t)
	if err != nil {
		return nil, err
	}
	hook("completed")
	return res, tx.Commit()
}

func (l *stageLab) want(what string, got map[string]int64, want string) {
	l.Helper()
	var words []string
	for _, o := range outcomeCodes {
		if got[o] > 0 {
			words = append(words, fmt.Sprintf("%d %s", got[o], o))
		}
	}
	if text := strings.Join(words, ", "); text != want {
		l.Errorf("%s: %q, want %q", what, text, want)
	}
}

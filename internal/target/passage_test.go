package target

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"curfew.dev/curfew/policy"
)

// checkDueInstants compares what is read of each due row with the instant that it was written as; of rows after plain only the
// side of the cutoff is known.
func (l *lab) checkDueInstants(j *Job, samples []sample, plain int) {
	l.Helper()
	x := &execution{j: j, c: j.db.SQL}
	ids, err := x.only(l.Context(), l.allKeys(j), func(q *query) { q.add(" AND "); j.isDue(q) })
	if err != nil {
		l.Fatal(err)
	}
	found, err := x.dueRows(l.Context(), ids)
	if err != nil || len(found) != len(ids) {
		l.Fatalf("%d of %d rows read: %v", len(found), len(ids), err)
	}
	for _, r := range found {
		var id int
		fmt.Sscan(r.key[0].s, &id)
		tolerance := int64(0)
		if j.trig.unit == policy.JulianDay { // a double of that size tells about 40 µs apart
			tolerance = 50
		}
		off := r.due - samples[id].at.UnixMicro()
		if id < plain && max(off, -off) > tolerance || r.due > j.bound.instant.UnixMicro() {
			l.Errorf("row %d, %s: due at %d, want %d", id, samples[id].lit, r.due, samples[id].at.UnixMicro())
		}
	}
}

func (l *lab) allKeys(j *Job) []tuple {
	l.Helper()
	q := newQuery(j.d).add("SELECT ", j.readKey(), " FROM ", j.d.rows(j.t))
	keys, err := j.tuples(l.Context(), j.db.SQL, q, j.key)
	if err != nil {
		l.Fatal(err)
	}
	return keys
}

// What no time.Time holds has a due instant all the same.
func TestDueBeforeAllTime(t *testing.T) {
	l := newLab(t, Postgres)
	l.exec("CREATE TABLE session (id bigint NOT NULL PRIMARY KEY, at timestamptz)")
	l.exec("INSERT INTO session VALUES (1, NULL), (2, '-infinity'), (3, '4000-01-01 BC'), (4, '12000-01-01'), (5, '2026-01-01 00:00:00.000001+00')")
	j := l.job(l.policy("session", func(p *policy.Policy) { p.Trigger.Null = policy.NullDue }))
	found, err := (&execution{j: j, c: j.db.SQL}).dueRows(t.Context(), l.allKeys(j))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int64{}
	for _, r := range found {
		got[r.key[0].s] = r.due
	}
	if diff := cmp.Diff(map[string]int64{"1": AlwaysDue, "2": AlwaysDue, "3": AlwaysDue, "4": neverDue, "5": time.Date(2026, 1, 1, 0, 0, 0, 1000, time.UTC).UnixMicro()}, got); diff != "" {
		t.Error(diff)
	}
}

func passageOf(n byte, edit func(*Passage)) Passage {
	p := Passage{Stage: "pause", Row: [16]byte{n, 0xff, '"', '\\'}, Due: asOf.UnixMicro(), State: PassageDone, AsOf: asOf, Run: "r", BatchKey: []byte{n, 0, 1}, Attempt: 1}
	if edit != nil {
		edit(&p)
	}
	return p
}

func (l *lab) read(j *Job, rows ...Passage) (out []Passage) {
	l.Helper()
	var hashes [][16]byte
	for _, r := range rows {
		hashes = append(hashes, r.Row)
	}
	have, err := j.passages(l.Context(), j.db.SQL, hashes)
	if err != nil {
		l.Fatal(err)
	}
	for _, h := range hashes {
		out = append(out, have[h]...)
	}
	return out
}

func TestPassages(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(1)
		j := l.job(l.policy("session", nil))
		p := l.policy("session", func(p *policy.Policy) { p.Name = "P" }) // another one, also where case is not looked at
		elsewhere := l.job(p)
		ctx := l.Context()
		var all []Passage
		for i := range 2*passageChunk + 3 {
			all = append(all, passageOf(byte(i), func(p *Passage) { p.Row[5], p.Row[6] = byte(i>>8), byte(i) }))
		}
		all[7].Due, all[7].Detail = AlwaysDue, "before all time: ☠"
		if taken, err := j.record(ctx, j.db.SQL, all); err != nil || len(taken) != 0 {
			l.Fatalf("taken %v, %v", taken, err)
		}
		if diff := cmp.Diff(all, l.read(j, all...), cmpopts.EquateEmpty()); diff != "" {
			l.Fatal(diff)
		}
		if got := l.read(elsewhere, all...); len(got) != 0 {
			l.Errorf("another policy has %v", got)
		}
		// Again: what is there is told, and what is not is written.
		more := []Passage{all[3], passageOf(200, nil), passageOf(3, func(p *Passage) { p.Row = all[3].Row; p.Due++ })}
		more[0].Run = "another"
		taken, err := j.record(ctx, j.db.SQL, more)
		if diff := cmp.Diff([]Passage{all[3]}, taken); diff != "" || err != nil {
			l.Errorf("taken: %v\n%s", err, diff)
		}
		if diff := cmp.Diff([]Passage{all[3], more[2], more[1]}, l.read(j, all[3], more[1])); diff != "" {
			l.Error(diff)
		}
		// A change counts only from what was read.
		to := all[3]
		to.State, to.Attempt, to.Run, to.Detail = PassageUncertain, 2, "r2", "no answer"
		for _, try := range []struct {
			from    PassageState
			attempt int
			ok      bool
		}{{PassageSending, 1, false}, {PassageDone, 2, false}, {PassageDone, 1, true}, {PassageDone, 1, false}} {
			if ok, err := j.move(ctx, j.db.SQL, to, try.from, try.attempt); err != nil || ok != try.ok {
				l.Errorf("from %s, attempt %d: %v, %v", try.from, try.attempt, ok, err)
			}
		}
		if diff := cmp.Diff(to, l.read(j, to)[0]); diff != "" {
			l.Error(diff)
		}
		if err := j.forget(ctx, j.db.SQL, [][16]byte{all[3].Row}); err != nil {
			l.Fatal(err)
		}
		if got := l.read(j, all[3], all[4]); len(got) != 1 || got[0].Row != all[4].Row {
			l.Errorf("after the row went: %v", got)
		}
	})
}

// Of two transactions that record the same passage one waits, and is told what the other wrote.
func TestPassageRivals(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(1)
		j := l.job(l.policy("session", nil))
		var wins, losses int
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 6 {
			wg.Go(func() {
				mine := []Passage{passageOf(1, nil), passageOf(2, nil)}
				for k := range mine {
					mine[k].Run = fmt.Sprint("run ", i)
				}
				for {
					taken, err := l.recordAlone(j, mine)
					if err != nil && classify(err) == classRetryable {
						continue
					}
					mu.Lock()
					defer mu.Unlock()
					switch {
					case err != nil:
						t.Error(err)
					case len(taken) == 0:
						wins++
					case len(taken) == 2 && taken[0].Run != mine[0].Run && taken[0].Run == taken[1].Run:
						losses++
					default:
						t.Errorf("taken %v", taken)
					}
					return
				}
			})
		}
		wg.Wait()
		if wins != 1 || losses != 5 {
			t.Errorf("%d recorded it, %d were told", wins, losses)
		}
	})
}

func (l *lab) recordAlone(j *Job, ps []Passage) ([]Passage, error) {
	tx, err := j.db.SQL.BeginTx(context.WithoutCancel(l.Context()), nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	taken, err := j.record(l.Context(), tx, ps)
	if err != nil {
		return nil, err
	}
	return taken, tx.Commit()
}

// A database that an older curfew installed is told from one that is ready, and installing again makes it ready and keeps what
// is there.
func TestLayoutUpgrade(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(3)
		d := dialectFor(l.db.server)
		l.drain(l.job(l.policy("session", nil)), 10)
		l.exec("DROP TABLE " + d.own("passage"))
		l.exec("UPDATE " + d.own("layout") + " SET version = 1")
		err := l.db.Installed(l.Context())
		if err == nil || !strings.Contains(err.Error(), ErrOldLayout.Error()) {
			l.Fatalf("an old layout: %v", err)
		}
		before := l.ids("SELECT count(*) FROM " + d.own("receipt"))
		for range 2 {
			if err := l.db.Install(l.Context()); err != nil {
				l.Fatal(err)
			}
			if err := l.db.Installed(l.Context()); err != nil {
				l.Error(err)
			}
		}
		if diff := cmp.Diff([]int{1, layout, before[0]}, append(l.ids("SELECT count(*) FROM "+d.own("layout")), append(l.ids("SELECT version FROM "+d.own("layout")), l.ids("SELECT count(*) FROM "+d.own("receipt"))...)...)); diff != "" {
			l.Error(diff)
		}
		if got := l.read(l.job(l.policy("session", nil)), passageOf(1, nil)); len(got) != 0 {
			l.Errorf("passages %v", got)
		}
		l.exec("UPDATE " + d.own("layout") + " SET version = " + itoa(layout+1))
		if err := l.db.Installed(l.Context()); err == nil || !strings.Contains(err.Error(), "newer") {
			l.Errorf("a newer layout: %v", err)
		}
	})
}

// What is recorded of rows that others removed is dropped in time; what is recorded of rows that are there never is.
func TestSweepPassages(t *testing.T) {
	onEach(t, func(lab *lab) {
		defer func(w int) { window = w }(window)
		window = 2
		l := lab.trials(nil)
		for id := range 7 {
			l.org(id, begun)
		}
		l.want("pause", l.do("pause", begun.Add(time.Hour)), "7 set")
		l.exec("DELETE FROM org WHERE id IN (2, 3, 6)")
		j := l.job("pause", begun)
		now, err := l.db.Now(t.Context())
		if err != nil {
			l.Fatal(err)
		}
		for _, c := range []struct {
			before        time.Time
			dropped, left int
		}{{now.Add(-time.Hour), 0, 7}, {now.Add(time.Hour), 3, 4}, {now.Add(time.Hour), 0, 4}} {
			n, err := j.SweepPassages(t.Context(), c.before, func() {})
			if left := l.ids("SELECT count(*) FROM " + j.d.own("passage")); err != nil || n != c.dropped || left[0] != c.left {
				l.Errorf("before %s: %d dropped, %d left, %v", c.before, n, left[0], err)
			}
		}
		l.want("pause once more", l.do("pause", begun.Add(day)), "")
	})
}

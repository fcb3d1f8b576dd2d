package ledger

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// errCrash is a process that dies in the middle of a tick.
var errCrash = errors.New("crash")

// tickModel is one schedule, several processes that tick it, and the world around them.
type tickModel struct {
	processes []*Ledger
	h         *hands
	s         Scheduled
	start     time.Time // the first tick
	latest    time.Time // of any tick that went through
	ahead     time.Time // the latest that the clock ever said
	paused    bool
	seen      map[time.Time]OccurrenceState // how occurrences ended: they stay so
}

func (m *tickModel) wait(d time.Duration) {
	m.h.add(d)
	if now := m.h.read(); now.After(m.ahead) {
		m.ahead = now
	}
}

func (m *tickModel) l() *Ledger { return m.processes[0] }

func (m *tickModel) tick(t *rapid.T) {
	l := m.processes[rapid.IntRange(0, len(m.processes)-1).Draw(t, "process")]
	s := m.s
	crash := rapid.IntRange(0, 5).Draw(t, "crash") == 0
	if crash {
		s.Cutoff = func(time.Time) time.Time { panic(errCrash) }
	}
	var err error
	var got Ticked
	func() {
		defer func() {
			if r := recover(); r != nil && r != errCrash {
				panic(r)
			}
		}()
		if got, err = l.Tick(context.Background(), s); err == nil && m.h.read().After(m.latest) {
			m.latest = m.h.read()
		}
	}()
	if err != nil {
		t.Fatalf("tick: %v", err)
	}
	if len(got.Accepted) > 0 && m.s.Overlap != "allow" {
		m.alone(t)
	}
}

// alone is so when a run was just made: no other is in its way.
func (m *tickModel) alone(t *rapid.T) {
	n := 0
	for _, r := range m.openRuns(t) {
		if r.State != Running || r.Owner != "" || !m.task() { // else it rests
			n++
		}
	}
	if n != 1 {
		t.Fatalf("a run was made, and %d are in each other's way", n)
	}
}

func (m *tickModel) task() bool { return m.s.Mode == ModeTask }

// work does something with an open run, as other processes do.
func (m *tickModel) work(t *rapid.T) {
	ctx := context.Background()
	for _, r := range m.openRuns(t) {
		switch do := rapid.SampledFrom([]string{"nothing", "start", "succeed", "fail", "cancel", "await", "rest"}).Draw(t, "work"); {
		case do == "start":
			m.begin(t, r)
		case do == "succeed":
			m.succeed(t, r)
		case do == "fail":
			m.end(t, r, Failed, WhyError)
		case do == "cancel":
			m.end(t, r, Cancelled, WhyCancelled)
		case do == "rest" && m.task():
			m.must(t, m.l().RestCall(ctx, r.ID, r.Owner, "attempt 1 of 5: no"))
		case do == "await" && r.State == Accepted && !m.task():
			m.exec(t, `UPDATE @run SET state = 'awaiting_approval' WHERE id = $1`, r.ID)
		}
	}
}

// begin starts a run, unless it has expired by now.
func (m *tickModel) begin(t *rapid.T, r Run) (Run, bool) {
	id, err := r.ID, error(nil)
	if m.task() {
		r, err = m.l().BeginCall(context.Background(), id, "process")
	} else {
		r, err = m.l().Start(context.Background(), id, nil)
	}
	if errors.Is(err, ErrRunEnded) {
		return r, false
	}
	m.must(t, err)
	return r, true
}

func (m *tickModel) succeed(t *rapid.T, r Run) {
	r, ok := m.begin(t, r)
	if !ok {
		return
	}
	if !m.task() {
		_, err := m.l().Admit(context.Background(), r.ID, Admission{OldCursor: r.Cursor, NewCursor: r.Cursor, PagedOut: true})
		m.must(t, err)
	}
	m.end(t, r, Succeeded, WhyDone)
}

func (m *tickModel) end(t *rapid.T, r Run, state State, why string) {
	end := m.l().End
	if m.task() {
		end = func(ctx context.Context, id string, state State, why, detail string) (Run, error) {
			return m.l().EndCall(ctx, id, "", state, why, detail)
		}
	}
	_, err := end(context.Background(), r.ID, state, why, "")
	m.must(t, err)
}

func (m *tickModel) must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (m *tickModel) exec(t *rapid.T, query string, args ...any) {
	t.Helper()
	_, err := m.l().write.ExecContext(context.Background(), m.l().q(query), args...)
	m.must(t, err)
}

func (m *tickModel) openRuns(t *rapid.T) (mine []Run) {
	t.Helper()
	list := m.l().OpenRuns
	if m.task() {
		list = m.l().OpenCalls
	}
	open, err := list(context.Background())
	m.must(t, err)
	for _, r := range open {
		if r.Policy == m.s.Policy {
			mine = append(mine, r)
		}
	}
	return mine
}

func (m *tickModel) occurrences(t *rapid.T) []Occurrence {
	t.Helper()
	all, err := m.l().Occurrences(context.Background(), OccurrenceFilter{Policy: m.s.Policy, Limit: 1_000_000})
	m.must(t, err)
	return all
}

// check compares the occurrences with the instants that came, with the runs, and with what they were before.
func (m *tickModel) check(t *rapid.T) {
	ctx := context.Background()
	all := m.occurrences(t)
	if n := len(m.openRuns(t)); n > 1 && !m.task() {
		t.Fatalf("%d runs are open", n)
	}
	want := every(time.Hour)(m.start, m.latest, 1_000_000)
	if len(all) != len(want) {
		t.Fatalf("%d occurrences of %d instants", len(all), len(want))
	}
	runs := map[string]int{}
	for i, o := range all {
		if at := want[len(want)-1-i]; o.At != at {
			t.Fatalf("an occurrence of %s, the instant is %s", o.At, at)
		}
		if was := m.seen[o.At]; was != "" && was != o.State {
			t.Fatalf("the occurrence of %s was %s and is %s", o.At, was, o.State)
		}
		if o.State != OccurrencePending {
			m.seen[o.At] = o.State
		}
		switch {
		case o.State == OccurrenceMissed:
			if late := o.Created.Sub(o.StartBy); late <= 0 {
				t.Fatalf("missed %s before it was too late", -late)
			}
			continue
		case o.Run == "":
			if o.State != OccurrenceSkipped && o.State != OccurrenceExpired && o.State != OccurrencePending {
				t.Fatalf("%+v without a run", o)
			}
			continue
		}
		runs[o.Run]++
		r, err := m.l().Get(ctx, o.Run)
		m.must(t, err)
		if state, why := r.became(); r.AsOf != o.At || r.Cause != "schedule" || r.State.Ended() != (o.State != OccurrencePending) ||
			r.State.Ended() && (o.State != state || o.Why != why || o.Ended != r.EndedAt) {
			t.Fatalf("the occurrence is %+v, its run %+v", o, r)
		}
		if r.StartedAt.After(o.StartBy) {
			t.Fatalf("a run was started %s too late", r.StartedAt.Sub(o.StartBy))
		}
	}
	made := one[int64](t, m.l(), `SELECT count(*) FROM @run WHERE policy = $1 AND cause = 'schedule'`, m.s.Policy)
	if made != int64(len(runs)) {
		t.Fatalf("%d runs for %d occurrences", made, len(runs))
	}
	for id, n := range runs {
		if n != 1 {
			t.Fatalf("run %s stands for %d occurrences", id, n)
		}
	}
}

// settle lets everything come to its end: nobody dies any more, the pause is over, runs end well.
func (m *tickModel) settle(t *rapid.T) {
	ctx := context.Background()
	m.exec(t, `DELETE FROM @pause WHERE policy = $1`, m.s.Policy)
	m.exec(t, `UPDATE @run SET state = 'accepted' WHERE policy = $1 AND state = 'awaiting_approval'`, m.s.Policy)
	for range 1000 {
		got, err := m.l().Tick(ctx, m.s)
		m.must(t, err)
		if m.h.read().After(m.latest) {
			m.latest = m.h.read()
		}
		open := m.openRuns(t)
		for _, r := range open {
			m.succeed(t, r)
		}
		if len(open) == 0 && len(got.Ended) == 0 && len(got.Accepted) == 0 {
			break
		}
	}
	m.check(t)
	var covered time.Time // by an instant that was run, or by a run that succeeded
	for _, o := range m.occurrences(t) {
		switch {
		case o.State == OccurrencePending:
			t.Fatalf("%+v waits for ever", o)
		case o.State == OccurrenceMissed && o.Run == "" && m.s.CatchUp == "all" && o.Why != WhyCatchUpCap,
			o.State == OccurrenceMissed && o.Run == "" && m.s.CatchUp == "latest" && o.At.After(covered):
			t.Fatalf("%+v was not caught up", o)
		case o.Run != "" && (o.State == OccurrenceOK || o.State == OccurrenceFailed) && o.At.After(covered):
			covered = o.At
		}
		if o.State == OccurrenceMissed && o.Run != "" {
			r, err := m.l().Get(ctx, o.Run)
			m.must(t, err)
			if r.AsOf.Before(o.At) {
				t.Fatalf("%s was caught up by a run as of %s", o.At, r.AsOf)
			}
		}
	}
}

// TestTickModel: whoever ticks whenever, dies in the middle of it or not, whatever becomes of the runs, and although the clock
// goes back a little: every instant gets one occurrence, which ends once and with its run.
func TestTickModel(t *testing.T) {
	onHands(t, func(t *testing.T, l *Ledger, h *hands, more func() *Ledger) {
		processes := []*Ledger{l, more(), more()}
		n := 0
		rapid.Check(t, func(t *rapid.T) {
			n++
			m := &tickModel{processes: processes, h: h, start: h.read(), latest: h.read(), ahead: h.read(), seen: map[time.Time]OccurrenceState{},
				s: nightly(func(s *Scheduled) {
					s.Policy, s.Between = fmt.Sprintf("p%d", n), every(time.Hour)
					overlaps := []string{"skip", "queue"}
					if rapid.Bool().Draw(t, "task") {
						s.Mode, overlaps = ModeTask, append(overlaps, "allow")
					}
					s.Overlap = rapid.SampledFrom(overlaps).Draw(t, "overlap")
					s.CatchUp = rapid.SampledFrom([]string{"latest", "all", "none"}).Draw(t, "catch up")
					s.CatchUpCap = rapid.IntRange(0, 4).Draw(t, "cap")
					s.StartWithin = time.Duration(rapid.IntRange(0, 200).Draw(t, "start within")) * time.Minute
				})}
			if got, err := l.Tick(context.Background(), m.s); err != nil || !got.FirstSeen {
				t.Fatalf("first tick: %+v, %v", got, err)
			}
			t.Repeat(map[string]func(*rapid.T){
				"":      m.check,
				"tick":  m.tick,
				"tick2": m.tick,
				"work":  m.work,
				"wait":  func(t *rapid.T) { m.wait(time.Duration(rapid.IntRange(1, 90).Draw(t, "minutes")) * time.Minute) },
				"down":  func(t *rapid.T) { m.wait(time.Duration(rapid.IntRange(3, 12).Draw(t, "hours")) * time.Hour) },
				"back": func(t *rapid.T) {
					if back := h.read().Add(-time.Duration(rapid.IntRange(1, 280).Draw(t, "seconds")) * time.Second); back.After(m.ahead.Add(-280 * time.Second)) {
						h.set(back)
					}
				},
				"pause": func(t *rapid.T) {
					if m.paused = !m.paused; m.paused {
						m.exec(t, `INSERT INTO @pause (policy, since, actor) VALUES ($1, $2, 'ann')`, m.s.Policy, stamp(h.read()))
					} else {
						m.exec(t, `DELETE FROM @pause WHERE policy = $1`, m.s.Policy)
					}
				},
			})
			h.add(10 * time.Minute) // past every step back
			m.settle(t)
		})
	})
}

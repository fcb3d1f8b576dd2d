package ledger

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// TestMeter: a meter that has been reading all along says what one says that reads everything now, at every moment of a
// long history in which runs stay open and end late, and occurrences stay pending.
func TestMeter(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		rnd := rand.New(rand.NewPCG(1, 2))
		now, err := l.Now(ctx)
		if err != nil {
			t.Fatal(err)
		}
		exec := func(q string, args ...any) {
			t.Helper()
			if _, err := l.write.ExecContext(ctx, l.q(q), args...); err != nil {
				t.Fatalf("%s: %v", q, err)
			}
		}
		exec(`INSERT INTO @revision (id, policy, body, first_seen) VALUES ('r', 'p0', '{}', $1)`, stamp(now))
		for p := range 2 {
			exec(`INSERT INTO @schedule (policy, stage, expr, cursor, ticked_at, read_at) VALUES ($1, '', 'x', $2, $2, $2)`, fmt.Sprint("p", p), stamp(now.Add(-1000*time.Hour)))
		}
		m := l.NewMeter()
		var clock time.Time
		m.now = func(context.Context) (time.Time, error) { return clock, nil }
		var open []string
		var pending []time.Time
		for step := range 60 {
			// An hour passes; the last steps are within what a meter does not take for final.
			at := now.Add(-time.Duration(55-step) * time.Hour)
			if step >= 55 {
				at = now.Add(-time.Duration(60-step) * time.Second)
			}
			clock = at.Add(time.Second)
			policy, id := fmt.Sprint("p", rnd.IntN(2)), fmt.Sprint("run", step)
			exec(`INSERT INTO @run (id, policy, stage, mode, identity, operation, cause, as_of, cutoff, revision, state, accepted_at)
				VALUES ($1, $2, '', 'enforce', $1, '', 'schedule', $3, $3, 'r', 'accepted', $3)`, id, policy, stamp(at))
			open = append(open, id)
			exec(`INSERT INTO @occurrence (policy, stage, at, start_by, state, created) VALUES ('p0', '', $1, $1, 'pending', $1)`, stamp(at))
			pending = append(pending, at)
			if step == 58 { // a process that was down ticks: instants of long ago, and all at once
				for h := range 20 {
					exec(`INSERT INTO @occurrence (policy, stage, at, start_by, state, created, ended) VALUES ('p1', '', $1, $1, 'missed', $2, $2)`,
						stamp(now.Add(-time.Duration(h+1)*time.Hour)), stamp(at))
				}
				exec(`UPDATE @schedule SET cursor = $1, oldest_due = $1, oldest_at = $1 WHERE policy = 'p1'`, stamp(at))
			}
			exec(`UPDATE @schedule SET cursor = $1 WHERE policy = 'p0'`, stamp(at))
			for len(open) > 0 && (rnd.IntN(3) > 0 || step == 57) && step < 58 {
				i := rnd.IntN(len(open))
				state := []State{Succeeded, Failed}[rnd.IntN(2)]
				exec(`UPDATE @run SET state = $1, outcomes = '{"deleted":3,"held":1}', cascaded = 2, ended_at = $2 WHERE id = $3`, string(state), stamp(at), open[i])
				open = append(open[:i], open[i+1:]...)
				exec(`UPDATE @occurrence SET state = 'ok', ended = $1 WHERE policy = 'p0' AND at = $2`, stamp(at), stamp(pending[i]))
				pending = append(pending[:i], pending[i+1:]...)
			}
			if rnd.IntN(3) == 0 {
				continue
			}
			got, err := m.Read(ctx)
			if err != nil {
				t.Fatal(err)
			}
			want, err := l.NewMeter().Read(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got, cmpopts.IgnoreFields(Counts{}, "Now")); d != "" {
				t.Fatalf("step %d: %s", step, d)
			}
		}
		got, err := m.Read(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var runs, occurrences int64
		for _, n := range got.Runs {
			runs += n
		}
		for _, n := range got.Occurrences {
			occurrences += n
		}
		if runs != 60 || occurrences != 80 || got.Undispatched != int64(len(open)) {
			t.Errorf("%d runs, %d occurrences, %d undispatched; want 60, 80, %d", runs, occurrences, got.Undispatched, len(open))
		}
		deleted := got.Rows[RowSeries{"p0", "", "enforce", "deleted"}] + got.Rows[RowSeries{"p1", "", "enforce", "deleted"}]
		cascaded := got.Cascaded[RowSeries{"p0", "", "enforce", ""}] + got.Cascaded[RowSeries{"p1", "", "enforce", ""}]
		if ended := 60 - int64(len(open)); deleted != 3*ended || cascaded != 2*ended {
			t.Errorf("%d deleted and %d cascaded by %d runs", deleted, cascaded, ended)
		}
		if n := got.Occurrences[OccurrenceSeries{"p1", "", "missed"}]; n != 20 {
			t.Errorf("%d missed, want 20", n)
		}
		if s := got.Schedules[StageSeries{"p1", ""}]; s.OldestDue.IsZero() || s.OldestAt.IsZero() {
			t.Errorf("%+v", s)
		}
		// It does not read the history again.
		if m.upto.Before(now.Add(-20*time.Hour)) || m.stages[StageSeries{"p1", ""}].Before(now.Add(-time.Hour)) {
			t.Errorf("final up to %v and %v, now is %v", m.upto, m.stages, now)
		}
	})
}

package target

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/policy"
)

// A row passes its stages in order, each once, each at its time.
func TestStagesInOrder(t *testing.T) {
	onEach(t, func(lab *lab) {
		l := lab.trials(nil)
		ends := begun.Add(10 * day)
		for id := range 5 {
			l.org(id, ends)
		}
		at := func(d time.Duration) time.Time { return ends.Add(d) }
		for _, step := range []struct {
			at    time.Duration
			stage string
			want  string
		}{
			{-8 * day, "week", ""},
			{-7 * day, "week", ""}, // a row exactly at its instant stays
			{-7*day + 1000, "week", "5 notified"},
			{-6 * day, "week", ""},
			{-6 * day, "remind", ""},
			{-6 * day, "pause", ""},
			{-1 * day, "week", ""}, // a nearer one is for them
			{-1 * day, "teardown", ""},
			{-1 * day, "remind", "5 notified"},
			{-1*day + time.Hour, "remind", ""},
			{time.Hour, "remind", ""}, // it is over
			{time.Hour, "teardown", ""},
			{time.Hour, "pause", "5 set"},
			{2 * time.Hour, "pause", ""},
			{14*day + time.Minute, "teardown", ""}, // the pause was an hour late
			{14*day + time.Hour, "teardown", "5 deleted"},
			{15 * day, "teardown", ""},
		} {
			l.want(fmt.Sprintf("%s at %s", step.stage, step.at), l.do(step.stage, at(step.at)), step.want)
		}
		if n := l.ids("SELECT count(*) FROM " + dialectFor(l.db.server).own("passage")); n[0] != 0 {
			l.Errorf("%d passages of rows that are gone", n[0])
		}
	})
}

// A row that is found late is paused at once, and torn down as long after that as it would have been.
func TestFoundLate(t *testing.T) {
	onEach(t, func(lab *lab) {
		l := lab.trials(nil)
		l.org(1, begun.Add(-20*day))
		l.want("teardown before the pause", l.do("teardown", begun), "")
		l.exec("UPDATE org SET state = 'paused'") // somebody did it by hand: nobody knows when
		got := l.job("teardown", begun)
		b := l.pages(got, 10)
		res, err := l.perform(got, b[0])
		if err != nil {
			l.Fatal(err)
		}
		l.want("teardown without a recorded pause", res.Outcomes, "1 guarded")
		if len(res.Rows) != 1 || res.Rows[0].Reason != "it has not passed stage pause, which comes before" || res.Rows[0].Outcome != "guarded" {
			l.Errorf("reasons %+v", res.Rows)
		}
		l.exec("UPDATE org SET state = 'active'")
		l.want("pause", l.do("pause", begun), "1 set")
		l.want("teardown at once", l.do("teardown", begun.Add(time.Hour)), "")
		l.want("teardown too early", l.do("teardown", begun.Add(14*day-time.Second)), "")
		l.want("teardown", l.do("teardown", begun.Add(14*day)), "1 deleted")
	})
}

// What was recorded holds for the due instant that the row has, or that it had when the stage would have come by then anyway.
func TestMovedDueInstant(t *testing.T) {
	onEach(t, func(lab *lab) {
		l := lab.trials(nil)
		ends := begun
		for id := 1; id <= 4; id++ {
			l.org(id, ends)
		}
		l.want("remind", l.do("remind", ends.Add(-day)), "4 notified")
		late := ends.Add(10 * day)
		l.want("pause, late", l.do("pause", late), "4 set")
		l.move(1, ends.Add(-3*day)) // back
		l.move(2, ends.Add(5*day))  // forward, and still before the pause
		l.move(3, ends.Add(40*day)) // extended
		l.exec("UPDATE org SET state = 'active' WHERE id < 4")
		l.want("pause again", l.do("pause", late.Add(day)), "")
		l.exec("UPDATE org SET state = 'paused' WHERE id < 3")
		l.want("too early for all", l.do("teardown", late.Add(13*day)), "")
		l.want("teardown", l.do("teardown", late.Add(14*day)), "3 deleted")
		// The extended one starts over, with its reminder.
		l.want("remind again", l.do("remind", ends.Add(39*day)), "1 notified")
		l.want("once", l.do("remind", ends.Add(39*day+time.Hour)), "")
		l.want("pause again", l.do("pause", ends.Add(41*day)), "1 set")
		l.want("not by the first pause", l.do("teardown", ends.Add(54*day+time.Hour)), "")
		l.want("teardown", l.do("teardown", ends.Add(55*day)), "1 deleted")
	})
}

// A state that was set by hand after an extension is no pause.
func TestExtendedButPaused(t *testing.T) {
	l := newLab(t, SQLite).trials(nil)
	l.org(1, begun)
	l.want("pause", l.do("pause", begun.Add(time.Hour)), "1 set")
	l.move(1, begun.Add(2*day)) // and nobody set it to active again
	l.want("teardown", l.do("teardown", begun.Add(30*day)), "1 guarded")
}

func TestMinNotice(t *testing.T) {
	onEach(t, func(lab *lab) {
		l := lab.trials(func(p *policy.Policy) {
			p.Stages[3].MinNotice = 3 * day
			p.Stages[2].Where = ""
			p.Stages[3].Where = ""
		})
		for id := 1; id <= 3; id++ {
			l.org(id, begun.Add(time.Duration(id)*time.Minute))
		}
		l.want("remind", l.do("remind", begun.Add(-time.Hour)), "3 notified")
		l.move(2, begun.Add(-10*day)) // its notice was for another instant
		l.want("pause", l.do("pause", begun.Add(time.Hour)), "3 set")
		l.exec("DELETE FROM org WHERE id = 3")
		got := l.job("teardown", begun.Add(15*day))
		res, err := l.perform(got, l.pages(got, 10)[0])
		if err != nil {
			l.Fatal(err)
		}
		l.want("teardown", res.Outcomes, "1 deleted, 1 guarded")
		if len(res.Rows) != 1 || !strings.HasPrefix(res.Rows[0].Reason, "min_notice: no stage before this one") {
			l.Errorf("reasons %+v", res.Rows)
		}
	})
}

// The notice must have been out for as long as it says, counted from when it went out.
func TestMinNoticeLate(t *testing.T) {
	l := newLab(t, SQLite).trials(func(p *policy.Policy) {
		p.Stages = append(p.Stages[:3:3], policy.Stage{Name: "teardown", At: offset("12h"), MinNotice: 3 * day, Action: policy.Action{Kind: policy.Delete}})
	})
	l.org(1, begun)
	l.want("remind", l.do("remind", begun.Add(-time.Hour)), "1 notified")
	l.want("pause", l.do("pause", begun.Add(time.Hour)), "1 set")
	l.want("too early", l.do("teardown", begun.Add(2*day)), "1 guarded")
	l.want("still", l.do("teardown", begun.Add(3*day-time.Hour-time.Microsecond)), "1 guarded")
	l.want("teardown", l.do("teardown", begun.Add(3*day-time.Hour)), "1 deleted")
}

func TestStageSnap(t *testing.T) {
	onEach(t, func(lab *lab) {
		l := lab.trials(func(p *policy.Policy) { p.Timezone = "Europe/Berlin"; p.Stages[2].Snap = &policy.Clock{Hour: 9} })
		berlin := l.p.Location()
		l.org(1, time.Date(2031, 5, 1, 8, 59, 0, 0, berlin))
		l.org(2, time.Date(2031, 5, 1, 9, 0, 1, 0, berlin))
		l.want("before nine", l.do("pause", time.Date(2031, 5, 1, 8, 59, 59, 0, berlin)), "")
		l.want("after nine", l.do("pause", time.Date(2031, 5, 1, 9, 0, 1, 0, berlin)), "1 set")
		l.want("in the evening", l.do("pause", time.Date(2031, 5, 1, 20, 0, 0, 0, berlin)), "")
		l.want("the next day", l.do("pause", time.Date(2031, 5, 2, 9, 0, 1, 0, berlin)), "1 set")
	})
}

// The trial is extended, paid, moved or taken away between the page and the commit.
func TestStageRaces(t *testing.T) {
	onEach(t, func(lab *lab) {
		l := lab.trials(nil)
		ends := begun
		for i, c := range []struct {
			what, change, want string
			held               bool // the other session has not committed when the batch comes
		}{
			{"extended", "UPDATE org SET at = " + l.lit(ends.Add(60*day)) + " WHERE id = ?", "1 deleted, 1 no_longer_due", false},
			{"extended for a moment", "UPDATE org SET at = " + l.lit(ends.Add(2*day)) + " WHERE id = ?", "1 deleted, 1 guarded", false},
			{"extended, not committed", "UPDATE org SET at = " + l.lit(ends.Add(60*day)) + " WHERE id = ?", "1 deleted, 1 no_longer_due", true},
			{"extended for a moment, not committed", "UPDATE org SET at = " + l.lit(ends.Add(2*day)) + " WHERE id = ?", "1 deleted, 1 guarded", true},
			{"paid", "UPDATE org SET state = 'active' WHERE id = ?", "1 deleted, 1 no_longer_due", false},
			{"gone", "DELETE FROM org WHERE id = ?", "1 deleted, 1 gone", false},
		} {
			if c.held && l.engine == SQLite {
				continue
			}
			l.exec("DELETE FROM org")
			l.org(2*i, ends) // a row that comes back with its key and its due instant has passed what it had passed
			l.org(2*i+1, ends)
			c.change = strings.ReplaceAll(c.change, "?", fmt.Sprint(2*i))
			l.want(c.what+": pause", l.do("pause", ends.Add(time.Hour)), "2 set")
			j := l.job("teardown", ends.Add(30*day))
			batches := l.pages(j, 10)
			if !c.held {
				l.exec(c.change)
			}
			got := map[string]int64{}
			if c.held {
				commit := l.hold(c.change)
				res, err := l.perform(j, batches[0])
				commit()
				if err != nil {
					l.Fatal(err)
				}
				if res.NDefer != 1 {
					l.Errorf("%s: %v, %d deferred", c.what, res.Outcomes, res.NDefer)
				}
				more, err := Split(res.Deferred, 10)
				if err != nil {
					l.Fatal(err)
				}
				batches = []*Batch{&more[0]}
				for o, n := range res.Outcomes {
					got[o] += n
				}
			}
			res, err := l.perform(j, batches[0])
			if err != nil {
				l.Fatal(err)
			}
			for o, n := range res.Outcomes {
				got[o] += n
			}
			l.want(c.what, got, c.want)
		}
	})
}

// Two runs of one stage that paged the same rows: each row is done by one of them.
func TestStageTwice(t *testing.T) {
	onEach(t, func(lab *lab) {
		l := lab.trials(func(p *policy.Policy) { p.Stages[2].Where = "" })
		for id := range 4 {
			l.org(id, begun)
		}
		one, two := l.job("pause", begun.Add(time.Hour)), l.job("pause", begun.Add(2*time.Hour))
		a, b := l.pages(one, 10), l.pages(two, 10)
		for i, j := range []*Job{one, two} {
			res, err := l.perform(j, [][]*Batch{a, b}[i][0])
			if err != nil {
				l.Fatal(err)
			}
			l.want(fmt.Sprint("run ", i), res.Outcomes, []string{"4 set", "4 no_longer_due"}[i])
		}
		ps := l.read(one, l.passagesOf(one)...)
		if len(ps) != 4 || ps[0].Run != one.run || !ps[0].AsOf.Equal(begun.Add(time.Hour)) || ps[0].Due != begun.UnixMicro() || ps[0].Stage != "pause" {
			l.Errorf("recorded: %+v", ps)
		}
	})
}

// passagesOf stands for all rows of the table.
func (l *stageLab) passagesOf(j *Job) (out []Passage) {
	l.Helper()
	for _, h := range j.rowHashes(l.allKeys(j)) {
		out = append(out, Passage{Row: h})
	}
	return out
}

// A run that makes up for missed ones, or was interrupted, stands for an instant that has long passed; what it does counts from
// when it came. The one that somebody gave an as_of stands for that.
func TestStageCaughtUp(t *testing.T) {
	onEach(t, func(lab *lab) {
		l := lab.trials(nil)
		now, err := l.db.Now(t.Context())
		if err != nil {
			l.Fatal(err)
		}
		ends := now.Add(-20 * day).Truncate(time.Hour)
		l.org(1, ends)
		j := l.job("pause", ends.Add(time.Hour))
		j.live = true
		l.want("pause", l.finish(j, nil), "1 set")
		l.want("teardown", l.do("teardown", now), "")
		l.want("teardown", l.do("teardown", now.Add(14*day-time.Second)), "")
		l.want("teardown", l.do("teardown", now.Add(14*day+time.Minute)), "1 deleted")
		l.org(2, ends)
		l.want("pause by hand", l.do("pause", ends.Add(time.Hour)), "1 set")
		l.want("teardown", l.do("teardown", ends.Add(14*day+time.Hour)), "1 deleted")
		l.org(3, now.Add(-day))
		j = l.job("remind", now.Add(-2*day))
		j.live = true
		l.want("a reminder of what is over", l.finish(j, nil), "1 no_longer_due")
		l.exec("DELETE FROM org WHERE id = 3")
		l.org(4, now.Add(day))
		j = l.job("week", now.Add(-3*day))
		j.live = true
		l.want("a reminder when a nearer one is due", l.finish(j, nil), "1 no_longer_due")
		j = l.job("remind", now.Add(-59*time.Minute)) // no later than a run may start
		j.live = true
		l.want("a reminder in time", l.finish(j, nil), "1 notified")
		if p := l.read(j, l.passagesOf(j)...); len(p) != 1 || !p[0].AsOf.Equal(j.asOf) {
			l.Errorf("recorded %+v", p)
		}
	})
}

// A crash at any point of the batch leaves it done with its passage, or undone without.
func TestStageAborted(t *testing.T) {
	onEach(t, func(lab *lab) {
		l := lab.trials(nil)
		abort := errors.New("aborted")
		at := begun.Add(time.Hour)
		id := 0
		for _, stage := range []string{"pause", "teardown"} {
			for _, point := range []string{"begun", "claimed", "found", "judged", "passed", "changed", "completed"} {
				l.exec("DELETE FROM org")
				id++
				l.org(id, begun)
				when, want := at, "1 set"
				if stage == "teardown" {
					l.want("pause", l.do("pause", at), "1 set")
					when, want = at.Add(14*day), "1 deleted"
				}
				j := l.job(stage, when)
				b := l.pages(j, 10)
				met := false
				TestHook = func(p string) {
					if p == point {
						met = true
						panic(abort)
					}
				}
				func() {
					defer func() {
						TestHook = nil
						if r := recover(); r != nil && r != abort {
							panic(r)
						}
					}()
					l.perform(j, b[0])
				}()
				if !met && stage == "teardown" {
					l.Errorf("%s: the batch does not come by %s", stage, point)
				}
				if n := l.ids("SELECT count(*) FROM org"); n[0] != 1 && met {
					l.Errorf("%s at %s: the row is gone", stage, point)
				}
				l.seq-- // the same batch again
				if !met {
					continue
				}
				res, err := l.perform(j, b[0])
				if err != nil {
					l.Fatal(err)
				}
				l.want(stage+" after "+point, res.Outcomes, want)
				l.want(stage+" once more", l.do(stage, when.Add(time.Hour)), "")
			}
		}
	})
}

// A shadow run of a stage says what would be done, and records nothing.
func TestStageShadow(t *testing.T) {
	l := newLab(t, SQLite).trials(func(p *policy.Policy) { p.Mode = policy.Shadow; p.Stages[3].Where = "" })
	l.org(1, begun)
	l.want("pause", l.do("pause", begun.Add(time.Hour)), "1 due")
	l.want("pause again", l.do("pause", begun.Add(time.Hour)), "1 due")
	l.want("teardown", l.do("teardown", begun.Add(30*day)), "1 guarded")
	l.exec("DROP TABLE curfew_passage")
	l.want("pause where nothing is installed", l.do("pause", begun.Add(time.Hour)), "1 due")
}

// Rows that are due whatever the time pass their stages too, and are not reminded.
func TestStagesOfNullTriggers(t *testing.T) {
	onEach(t, func(lab *lab) {
		typ, _ := lab.instant()
		lab.exec("CREATE TABLE org (id int NOT NULL PRIMARY KEY, at " + typ + ", state varchar(20) NOT NULL)")
		l := lab.stages(func(p *policy.Policy) { p.Trigger.Null = policy.NullDue })
		l.exec("INSERT INTO org VALUES (1, NULL, 'active')")
		l.want("remind", l.do("remind", begun), "")
		l.want("pause", l.do("pause", begun), "1 set")
		l.want("pause again", l.do("pause", begun.Add(day)), "")
		l.want("teardown", l.do("teardown", begun.Add(13*day)), "")
		l.move(1, begun.Add(-5*day))
		l.want("teardown", l.do("teardown", begun.Add(13*day)), "")
		l.want("teardown", l.do("teardown", begun.Add(14*day)), "1 deleted")
	})
}

// Where a stage acts on rows at their instant, so do the bounds of a reminder.
func TestStageAtCutoff(t *testing.T) {
	l := newLab(t, SQLite).trials(func(p *policy.Policy) { p.AtCutoff = policy.DueAtCutoff })
	l.org(1, begun)
	l.want("too early", l.do("week", begun.Add(-7*day-time.Microsecond)), "")
	l.want("week", l.do("week", begun.Add(-7*day)), "1 notified")
	l.want("not week", l.do("week", begun.Add(-2*day)), "")
	l.want("remind", l.do("remind", begun.Add(-2*day)), "1 notified")
	l.move(1, begun.Add(time.Microsecond))
	l.want("remind, at the end", l.do("remind", begun), "1 notified")
	l.move(1, begun)
	l.want("not when it is over", l.do("remind", begun), "")
	if diff := cmp.Diff(map[string]int64{"set": 1}, l.do("pause", begun)); diff != "" {
		t.Error(diff)
	}
}

// What a plan counts is what a run would do, and what a row has passed is no lag.
func TestStageCountAndLag(t *testing.T) {
	onEach(t, func(lab *lab) {
		l := lab.trials(func(p *policy.Policy) { p.Stages[2].Where, p.Stages[3].Where = "", "" })
		for id := 1; id <= 6; id++ {
			l.org(id, begun.Add(time.Duration(id)*time.Hour))
		}
		count := func(stage string, at time.Time) string {
			p := *l.p
			p.Mode = policy.Shadow
			c, err := (&stageLab{lab: l.lab, p: &p, run: l.run}).job(stage, at).Count(t.Context())
			if err != nil {
				l.Fatal(err)
			}
			return fmt.Sprintf("%d due, %d guarded, %s", c.Due, c.Guarded, c.Oldest)
		}
		lag := func(stage string, at time.Time) string {
			due, known, err := l.job(stage, at).OldestDue(t.Context())
			if err != nil {
				l.Fatal(err)
			}
			if known != (l.engine != SQLite) { // text that no index orders
				l.Errorf("%s: known %v", stage, known)
			}
			if due == nil {
				return ""
			}
			return due.UTC().Format(time.RFC3339)
		}
		noon := begun.Add(4*time.Hour + time.Minute)
		for _, c := range []struct{ what, got, want string }{
			{"pause", count("pause", noon), "4 due, 0 guarded, 2031-05-01T13:00:00Z"},
			{"teardown", count("teardown", begun.Add(20*day)), "6 due, 6 guarded, 2031-05-01T13:00:00Z"},
			{"remind", count("remind", noon), "2 due, 0 guarded, 2031-05-01T17:00:00Z"},
		} {
			if c.got != c.want {
				l.Errorf("%s: %s, want %s", c.what, c.got, c.want)
			}
		}
		if l.engine != SQLite {
			if got := lag("pause", noon); got != "2031-05-01T13:00:00Z" {
				l.Errorf("lag of the pause: %s", got)
			}
		}
		l.want("pause", l.do("pause", noon), "4 set")
		if got := count("pause", begun.Add(10*time.Hour)); got != "2 due, 0 guarded, 2031-05-01T17:00:00Z" {
			l.Errorf("pause, once more: %s", got)
		}
		if got := count("teardown", begun.Add(20*day)); got != "6 due, 2 guarded, 2031-05-01T13:00:00Z" {
			l.Errorf("teardown, then: %s", got)
		}
		if l.engine == SQLite {
			return
		}
		if got := lag("pause", begun.Add(10*time.Hour)); got != "2031-05-01T17:00:00Z" {
			l.Errorf("lag of the pause: %s", got)
		}
		if got := lag("teardown", begun.Add(20*day)); got != "2031-05-15T16:01:00Z" {
			l.Errorf("lag of the teardown: %s", got)
		}
	})
}

package target

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"curfew.dev/curfew/policy"
)

// stageModel is what may become of organisations, in plain Go: it knows what happened to each and when, and nothing of cutoffs,
// pages or passages.
type stageModel struct {
	l    *stageLab
	now  time.Time
	orgs map[int]*modelOrg
	made int
	min  time.Duration // min_notice
	held map[int]bool
}

type modelOrg struct {
	ends   time.Time
	paused bool
	past   []modelEvent
}

type modelEvent struct {
	stage    string
	at, ends time.Time
}

var errAbort = errors.New("abort")

// last is when the stage happened to the organisation, last, so that it still counts.
func (o *modelOrg) last(stage string) (at time.Time, ok bool) {
	for _, e := range o.past {
		counts := e.ends.Equal(o.ends) || stage == "pause" && !o.ends.After(e.at)
		if e.stage == stage && counts && (!ok || e.at.After(at)) {
			at, ok = e.at, true
		}
	}
	return at, ok
}

// may reports whether the stage is right for the organisation now.
func (m *stageModel) may(stage string, o *modelOrg) bool {
	reminded, wasReminded := o.last("remind")
	paused, wasPaused := o.last("pause")
	switch stage {
	case "remind":
		return m.now.After(o.ends.Add(-2*day)) && !m.now.After(o.ends) && !wasReminded
	case "pause":
		return m.now.After(o.ends) && !o.paused && !wasPaused
	default:
		told := m.min == 0 || wasReminded && !m.now.Before(reminded.Add(m.min))
		return m.now.After(o.ends.Add(14*day)) && o.paused && wasPaused && !m.now.Before(paused.Add(14*day)) && told
	}
}

func (m *stageModel) ids() []int {
	var ids []int
	for id := range m.orgs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

func (m *stageModel) pick(t *rapid.T) (int, bool) {
	if len(m.orgs) == 0 {
		return 0, false
	}
	return rapid.SampledFrom(m.ids()).Draw(t, "org"), true
}

func (m *stageModel) someTime(t *rapid.T, name string) time.Duration {
	return rapid.SampledFrom([]time.Duration{0, time.Hour, day, 2 * day, 3 * day, 13 * day, 14 * day, 15 * day, 40 * day}).Draw(t, name) +
		rapid.SampledFrom([]time.Duration{0, 0, time.Microsecond, time.Hour}).Draw(t, name+" and")
}

func (m *stageModel) sign(t *rapid.T) time.Duration {
	if rapid.Bool().Draw(t, "back") {
		return -1
	}
	return 1
}

// change is what others do to an organisation.
func (m *stageModel) change(t *rapid.T) {
	id, ok := m.pick(t)
	if !ok {
		return
	}
	o := m.orgs[id]
	switch rapid.SampledFrom([]string{"moved", "extended", "paid", "frozen", "gone"}).Draw(t, "change") {
	case "moved":
		o.ends = o.ends.Add(m.sign(t) * m.someTime(t, "by"))
	case "extended":
		o.ends = m.now.Add(m.someTime(t, "for"))
	case "paid":
		o.ends, o.paused = m.now.Add(40*day), false
	case "frozen": // by hand, without a stage
		o.paused = true
	case "gone":
		if rapid.IntRange(0, 3).Draw(t, "really") == 0 {
			m.l.exec(fmt.Sprintf("DELETE FROM org WHERE id = %d", id))
			delete(m.orgs, id)
			return
		}
	}
	state := map[bool]string{true: "paused", false: "active"}[o.paused]
	m.l.exec(fmt.Sprintf("UPDATE org SET at = %s, state = '%s' WHERE id = %d", m.l.lit(o.ends), state, id))
}

// hold places or releases a legal hold.
func (m *stageModel) hold(t *rapid.T) {
	id, ok := m.pick(t)
	if !ok {
		return
	}
	own := dialectFor(m.l.db.server).own("hold")
	if m.held[id] {
		delete(m.held, id)
		m.l.exec(fmt.Sprintf("DELETE FROM %s WHERE id = 'h%d'", own, id))
		return
	}
	m.held[id] = true
	m.l.exec(fmt.Sprintf(`INSERT INTO %s (id, name, relation, conditions, placed_at) VALUES ('h%d', 'n', 'org', '[{"column":"id","value":"%d"}]', '2031-01-01 00:00:00')`, own, id, id))
}

// run runs a stage. It may be aborted at any point of any batch, and others may act between its pages and its batches.
func (m *stageModel) run(t *rapid.T) {
	stage := rapid.SampledFrom([]string{"remind", "pause", "teardown"}).Draw(t, "stage")
	point := rapid.SampledFrom([]string{"", "", "", "claimed", "judged", "passed", "changed", "completed"}).Draw(t, "abort at")
	left := rapid.IntRange(0, 2).Draw(t, "after")
	j := m.l.job(stage, m.now)
	batches := m.l.pages(j, rapid.IntRange(1, 4).Draw(t, "rows"))
	planned := map[int]bool{} // what becomes due later is another run's
	for id, o := range m.orgs {
		planned[id] = m.may(stage, o)
	}
	for range rapid.IntRange(0, 2).Draw(t, "meanwhile") {
		m.change(t)
	}
	aborted := false
	TestHook = func(at string) {
		if at == point {
			if left--; left < 0 {
				aborted = true
				panic(errAbort)
			}
		}
	}
	defer func() { TestHook = nil }()
	before := m.ids()
	for _, b := range batches {
		m.batch(t, j, b)
	}
	acted := m.acted(t, stage, before)
	for _, id := range before {
		o := m.orgs[id]
		switch may := m.may(stage, o) && !m.held[id]; {
		case acted[id] && !may:
			t.Fatalf("%s acted on organisation %d at %s: %s", stage, id, m.now, m.story(o))
		case !acted[id] && may && planned[id] && !aborted:
			t.Fatalf("%s left organisation %d alone at %s: %s", stage, id, m.now, m.story(o))
		case acted[id]:
			o.past = append(o.past, modelEvent{stage, m.now, o.ends})
			o.paused = o.paused || stage == "pause"
			if stage == "teardown" {
				delete(m.orgs, id)
			}
		}
	}
}

func (m *stageModel) batch(t *rapid.T, j *Job, b *Batch) {
	defer func() {
		if r := recover(); r != nil && r != errAbort {
			panic(r)
		}
	}()
	if _, err := m.l.perform(j, b); err != nil {
		t.Fatalf("a batch: %v", err)
	}
}

// acted looks in the database which organisations the run acted on: of a reminder only its records tell.
func (m *stageModel) acted(t *rapid.T, stage string, ids []int) map[int]bool {
	out := map[int]bool{}
	there := m.l.ids("SELECT id FROM org")
	paused := m.l.ids("SELECT id FROM org WHERE state = 'paused'")
	told := map[int]bool{}
	j := m.l.job("remind", m.now)
	for _, k := range m.l.allKeys(j) {
		var id int
		fmt.Sscan(k[0].s, &id)
		have, err := j.passages(m.l.Context(), j.db.SQL, [][16]byte{j.rowHash(k)})
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range have[j.rowHash(k)] {
			// Not one that stood before: a row is reminded once for each instant, and a second record of it cannot be.
			known := slices.ContainsFunc(m.orgs[id].past, func(e modelEvent) bool { return e.stage == "remind" && e.ends.UnixMicro() == p.Due })
			told[id] = told[id] || p.Stage == "remind" && !known
		}
	}
	for _, id := range ids {
		switch stage {
		case "remind":
			out[id] = told[id]
		case "pause":
			out[id] = slices.Contains(paused, id) && !m.orgs[id].paused
		default:
			out[id] = !slices.Contains(there, id)
		}
		if stage != "remind" && told[id] || stage != "teardown" && !slices.Contains(there, id) {
			t.Fatalf("%s did something else to organisation %d", stage, id)
		}
	}
	return out
}

func (m *stageModel) story(o *modelOrg) string {
	var sb strings.Builder
	fmt.Fprintf(&sb, "it ends %s, paused %v", o.ends, o.paused)
	for _, e := range o.past {
		fmt.Fprintf(&sb, "; %s at %s, when it ended %s", e.stage, e.at, e.ends)
	}
	return sb.String()
}

// Whatever is extended, paid, held or aborted, in whatever order: no organisation is torn down without its pause (and its reminder,
// where min_notice says so), none passes a stage twice for one due instant, and what may be done is done.
func TestStageModel(t *testing.T) {
	labs := map[Engine]*lab{}
	for _, e := range []Engine{SQLite, Postgres, MySQL} {
		labs[e] = newLab(t, e)
		labs[e].trials(nil)
	}
	mostly := append(slices.Repeat([]Engine{SQLite}, 18), Postgres, MySQL)
	rapid.Check(t, func(t *rapid.T) {
		l := labs[rapid.SampledFrom(mostly).Draw(t, "engine")]
		m := &stageModel{now: begun, orgs: map[int]*modelOrg{}, held: map[int]bool{}}
		if rapid.Bool().Draw(t, "min_notice") {
			m.min = 3 * day
		}
		m.l = l.stages(func(p *policy.Policy) { p.Stages = p.Stages[1:]; p.Stages[2].MinNotice = m.min })
		m.l.run = int(time.Now().UnixNano()) // runs of another check are others
		d := dialectFor(l.db.server)
		for _, table := range []string{"org", d.own("passage"), d.own("hold"), d.own("receipt")} {
			l.exec("DELETE FROM " + table)
		}
		t.Repeat(map[string]func(*rapid.T){
			"begin": func(t *rapid.T) {
				m.made++
				o := &modelOrg{ends: m.now.Add(m.sign(t) * m.someTime(t, "ends"))}
				m.orgs[m.made] = o
				m.l.org(m.made, o.ends)
			},
			"wait":   func(t *rapid.T) { m.now = m.now.Add(m.someTime(t, "wait")) },
			"back":   func(t *rapid.T) { m.now = m.now.Add(-m.someTime(t, "back")) },
			"change": m.change,
			"hold":   m.hold,
			"run":    m.run,
			"run 2":  m.run,
			"again": func(t *rapid.T) { // at once
				m.run(t)
				m.run(t)
			},
		})
	})
}

package target

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"curfew.dev/curfew/policy"
)

// A pageModel is a table with what a test knows about it: what is in it, and which rows nobody touched since the run began.
type pageModel struct {
	l       *lab
	p       *policy.Policy
	at      map[int]*int // id → trigger in minutes before the cutoff (negative: after), nil for NULL
	scoped  map[int]bool
	touched map[int]bool
	deleted map[int]bool
	due     int // rows that were due when the run began
}

// floor is implausible_before in minutes before the cutoff.
const floorMinutes = 3 * 24 * 60

func (m *pageModel) isDue(id int) bool {
	at, ok := m.at[id]
	switch {
	case !ok || !m.scoped[id]:
		return false
	case at == nil:
		return m.p.Trigger.Null == policy.NullDue
	case m.p.Trigger.ImplausibleBefore != nil && *at > floorMinutes:
		return false
	case *at == 0:
		return m.p.AtCutoff == policy.DueAtCutoff
	}
	return *at > 0
}

func (m *pageModel) lit(at *int) string {
	if at == nil {
		return "NULL"
	}
	_, _, lit := m.l.clock()
	return lit(pageCutoff.Add(-time.Duration(*at) * time.Minute))
}

// pageCutoff is midnight, so that implausible_before, which is a day, falls between two triggers.
var pageCutoff = time.Date(2026, 6, 10, 0, 0, 0, 0, time.UTC)

func (m *pageModel) insert(ids ...int) {
	var rows []string
	for _, id := range ids {
		rows = append(rows, fmt.Sprintf("(%d, %s, %d)", id, m.lit(m.at[id]), map[bool]int{true: 1}[m.scoped[id]]))
	}
	m.l.exec("INSERT INTO paged VALUES " + strings.Join(rows, ", "))
}

// minutes draws a trigger out of few, so that there are ties at page boundaries, and on both sides of every bound.
func minutes(t *rapid.T) *int {
	v := rapid.SampledFrom([]int{-5, -1, 0, 1, 1, 2, 2, 2, 3, 60, floorMinutes - 1, floorMinutes + 1, 9999, 1 << 20}).Draw(t, "minutes")
	if v == 1<<20 {
		return nil
	}
	return &v
}

// interfere does what other sessions do to a table between two steps of a run.
func (m *pageModel) interfere(t *rapid.T) {
	for range rapid.IntRange(0, 2).Draw(t, "changes") {
		id := rapid.IntRange(1, 30).Draw(t, "id")
		_, there := m.at[id]
		m.touched[id] = true
		switch what := rapid.SampledFrom([]string{"delete", "insert", "move", "scope"}).Draw(t, "change"); {
		case what == "delete" && there:
			m.l.exec(fmt.Sprintf("DELETE FROM paged WHERE id = %d", id))
			delete(m.at, id)
		case what == "insert" && !there:
			m.at[id], m.scoped[id] = minutes(t), true
			delete(m.deleted, id)
			m.insert(id)
		case what == "move" && there:
			m.at[id] = minutes(t)
			m.l.exec(fmt.Sprintf("UPDATE paged SET at = %s WHERE id = %d", m.lit(m.at[id]), id))
		case what == "scope" && there:
			m.scoped[id] = !m.scoped[id]
			m.l.exec(fmt.Sprintf("UPDATE paged SET scoped = %d WHERE id = %d", map[bool]int{true: 1}[m.scoped[id]], id))
		}
	}
}

// settle compares the table with what it may look like after a batch: rows that went were due at that moment.
func (m *pageModel) settle(t *rapid.T, res *Result) {
	left := m.l.ids("SELECT id FROM paged ORDER BY id")
	var went int64
	for id := range m.at {
		if slices.Contains(left, id) {
			continue
		}
		if !m.isDue(id) {
			t.Errorf("row %d went and was not due", id)
		}
		delete(m.at, id)
		m.deleted[id] = true
		went++
	}
	var sum int64
	for _, n := range res.Outcomes {
		sum += n
	}
	if went != res.Outcomes["deleted"] || sum != res.Planned {
		t.Errorf("%d rows went; planned %d, outcomes %v", went, res.Planned, res.Outcomes)
	}
	if n := res.Outcomes["blocked"] + res.Outcomes["failed"] + res.Outcomes["locked"] + res.Outcomes["guarded"] + res.Outcomes["held"]; n > 0 {
		t.Errorf("nothing keeps a row here, and yet: %v", res.Outcomes)
	}
}

// Rows come and go, are renewed and become due, between the pages of a run and before their batches: only what is due at that
// moment goes, every row that was due from beginning to end goes exactly once, and everything is accounted for.
func TestPagingProperty(t *testing.T) {
	defer func(n int) { window = n }(window)
	checks := flag.Lookup("rapid.checks")
	defer flag.Set("rapid.checks", checks.Value.String())
	for engine, n := range map[Engine]int{Postgres: 100, MySQL: 50, SQLite: 50} {
		flag.Set("rapid.checks", fmt.Sprint(n))
		t.Run(string(engine), func(t *testing.T) {
			l := newLab(t, engine)
			typ, _, _ := l.clock()
			l.exec("CREATE TABLE paged (id int NOT NULL PRIMARY KEY, at " + typ + ", scoped int NOT NULL)")
			rapid.Check(t, func(t *rapid.T) { l.checkPaging(t) })
		})
	}
}

func (l *lab) checkPaging(t *rapid.T) {
	window = rapid.SampledFrom([]int{1, 2, 5, 20000}).Draw(t, "window")
	n := rapid.IntRange(1, 6).Draw(t, "rows a page")
	m := &pageModel{l: l, at: map[int]*int{}, scoped: map[int]bool{}, touched: map[int]bool{}, deleted: map[int]bool{}}
	m.p = l.clocked("paged", func(p *policy.Policy) {
		p.Trigger.Null = rapid.SampledFrom([]policy.NullRule{policy.NullNever, policy.NullDue}).Draw(t, "null")
		p.AtCutoff = rapid.SampledFrom([]policy.AtCutoff{policy.StaysAtCutoff, policy.DueAtCutoff}).Draw(t, "at cutoff")
		if rapid.Bool().Draw(t, "implausible") {
			d := policy.DateOf(pageCutoff.Add(-floorMinutes*time.Minute), time.UTC)
			p.Trigger.ImplausibleBefore = &d
		}
		p.Where = "scoped = 1"
	})
	l.exec("DELETE FROM paged")
	var ids []int
	for id := 1; id <= 30; id++ {
		if rapid.IntRange(0, 3).Draw(t, "there") > 0 {
			m.at[id], m.scoped[id] = minutes(t), rapid.IntRange(0, 5).Draw(t, "scoped") > 0
			ids = append(ids, id)
			if m.isDue(id) {
				m.due++
			}
		}
	}
	if len(ids) > 0 {
		m.insert(ids...)
	}
	tab, err := l.db.Inspect(l.Context(), "paged")
	if err != nil {
		t.Fatal(err)
	}
	if rapid.Bool().Draw(t, "index") {
		tab.Indexes = append(tab.Indexes, Index{Name: "as if", Columns: []string{"at"}, Ordered: true, Valid: true})
	}
	l.seq++
	j, err := NewJob(l.db, JobOptions{Policy: m.p, Table: tab, AsOf: pageCutoff, Cutoff: pageCutoff, Keys: l.keys,
		Run: fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, l.Name(), l.seq)))})
	if err != nil {
		t.Fatal(err)
	}
	if l.engine == Postgres && rapid.Bool().Draw(t, "place") {
		if err := j.SetStrategy(ByPlace); err != nil {
			t.Fatal(err)
		}
	}
	j.careful = j.careful || rapid.Bool().Draw(t, "careful")
	m.run(t, j, n)
	for id, at := range m.at {
		if !m.touched[id] && m.isDue(id) {
			t.Errorf("row %d (%v minutes) was due all the time and is still there", id, at)
		}
	}
}

// run pages and executes as a run does: with batches in flight while the next page is read, and what they hand on at the end.
func (m *pageModel) run(t *rapid.T, j *Job, n int) {
	var waiting []*Batch
	execute := func() {
		b := waiting[0]
		waiting = waiting[1:]
		w := m.l.work(b)
		w.Key = append(w.Key[:20], fmt.Append(nil, m.l.seq)...)
		res, err := j.Execute(m.l.Context(), pageCutoff, w)
		if err != nil {
			t.Fatal(err)
		}
		if len(b.Keys) > 0 && int64(b.Rows) > res.Planned+int64(res.NDefer) {
			t.Errorf("batch of %d rows accounts for %d and hands on %d", b.Rows, res.Planned, res.NDefer)
		}
		m.settle(t, res)
		if res.NDefer > 0 {
			more, err := Split(res.Deferred, n)
			if err != nil {
				t.Fatal(err)
			}
			for i := range more {
				waiting = append(waiting, &more[i])
			}
		}
	}
	var at []byte
	for pages := 0; ; pages++ {
		m.interfere(t)
		p, err := j.Page(m.l.Context(), at, n)
		if err != nil {
			t.Fatal(err)
		}
		if pages > 500 {
			t.Fatal("the run does not end")
		}
		if p.Batch != nil {
			if p.Batch.Rows < 1 || p.Batch.Rows > 2*n {
				t.Errorf("a batch of %d rows, asked for %d", p.Batch.Rows, n)
			}
			waiting = append(waiting, p.Batch)
		}
		if at = p.Cursor; p.Done {
			break
		}
		for len(waiting) > rapid.IntRange(0, 3).Draw(t, "in flight") {
			m.interfere(t)
			execute()
		}
	}
	for len(waiting) > 0 {
		m.interfere(t)
		execute()
	}
}

// Ten rows with one trigger, three a page: none is lost where the pages meet, by whatever order they are read.
func TestTiesAtPageBoundaries(t *testing.T) {
	onEach(t, func(l *lab) {
		typ, _, lit := l.clock()
		l.exec("CREATE TABLE session (id bigint NOT NULL PRIMARY KEY, at " + typ + " NOT NULL)")
		l.exec("CREATE INDEX session_at ON session (at)")
		var rows []string
		for i := range 10 {
			rows = append(rows, fmt.Sprintf("(%d, %s)", 1+i*7%10, lit(asOf.Add(-time.Hour)))) // ids in another order than place
		}
		for _, s := range []Strategy{ByTrigger, ByKey, ByPlace} {
			if s == ByPlace && l.engine != Postgres {
				continue
			}
			l.exec("INSERT INTO session VALUES " + strings.Join(rows, ", "))
			j := l.job(l.clocked("session", func(p *policy.Policy) { p.Name = string(s) }))
			if err := j.SetStrategy(s); err != nil {
				l.Fatal(err)
			}
			pages, sum := l.pages(j, 3), 0
			for _, b := range pages {
				sum += b.Rows
			}
			if len(pages) < 2 || sum != 10 {
				l.Errorf("by %s: %d rows on %d pages", s, sum, len(pages))
			}
			l.seq += 100
			if got := l.execute(j, pages); got.outcomes["deleted"] != 10 {
				l.Errorf("by %s: outcomes %v", s, got.outcomes)
			}
		}
	})
}

// A row that becomes due behind the cursor is left for the next run; one before it goes with this one.
func TestDueBehindTheCursor(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(9) // rows 1 to 9, the first the oldest
		j := l.job(l.policy("session", nil))
		first, err := j.Page(t.Context(), nil, 3)
		if err != nil {
			t.Fatal(err)
		}
		if first.Batch == nil { // the step that looks for unreadable rows
			if first, err = j.Page(t.Context(), first.Cursor, 3); err != nil {
				t.Fatal(err)
			}
		}
		l.execute(j, []*Batch{first.Batch})
		l.exec("INSERT INTO session VALUES (1, " + l.lit(asOf.Add(-99*time.Hour)) + ", 'behind'), (50, " + l.lit(asOf.Add(-time.Minute)) + ", 'before')")
		at := first.Cursor
		for {
			p, err := j.Page(t.Context(), at, 3)
			if err != nil {
				t.Fatal(err)
			}
			if p.Batch != nil {
				l.execute(j, []*Batch{p.Batch})
			}
			if at = p.Cursor; p.Done {
				break
			}
		}
		if diff := cmp.Diff([]int{1}, l.ids("SELECT id FROM session")); diff != "" {
			t.Error(diff)
		}
		next := l.job(l.policy("session", nil))
		next.run = strings.Repeat("c", 64)
		l.drain(next, 3)
		if n := l.ids("SELECT count(*) FROM session")[0]; n != 0 {
			t.Errorf("the next run left %d rows", n)
		}
	})
}

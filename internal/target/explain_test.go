package target

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/policy"
)

func (l *lab) explain(j *Job, key ...string) *Answers {
	l.Helper()
	a, err := j.Explain(l.Context(), key)
	if err != nil {
		l.Fatal(err)
	}
	return a
}

// A row that a run deleted is found in its receipts, however its key is typed; one that never was is not.
func TestExplainDeleted(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(30)
		p := l.policy("session", nil)
		j := l.job(p)
		before := l.explain(j, "7")
		if !before.Exists || !before.Due || before.Fate != nil {
			t.Fatalf("before the run: %+v", before)
		}
		if got := l.drain(j, 7); got.outcomes["deleted"] != 30 {
			t.Fatalf("outcomes %v", got.outcomes)
		}
		for _, key := range []string{"7", "007"} {
			a := l.explain(j, key)
			if a.Exists || a.Row != before.Row || a.Fate == nil || a.Fate.Run != j.run || a.Fate.Policy != p.Name {
				t.Fatalf("key %s after the run: %+v, fate %+v", key, a, a.Fate)
			}
			if since := time.Since(a.Fate.At); since < -time.Minute || since > time.Hour {
				t.Errorf("it was deleted at %s", a.Fate.At)
			}
		}
		if a := l.explain(j, "31"); a.Exists || a.Fate != nil {
			t.Errorf("a row that never was: %+v", a)
		}
		l.exec("DROP TABLE " + j.d.own("receipt"))
		if a := l.explain(j, "7"); a.Exists || a.Fate != nil {
			t.Errorf("without receipts: %+v", a)
		}
	})
}

// The key is hashed as the database writes it, not as it was typed.
func TestExplainKeyAsStored(t *testing.T) {
	engineIn(t, []Engine{Postgres, SQLite}, func(l *lab) {
		typ, id, typed := "uuid", "0e6ff9a5-7c1e-4a2b-9d0b-61ab02cf33aa", "0E6FF9A5-7C1E-4A2B-9D0B-61AB02CF33AA"
		if l.engine == SQLite {
			typ, id, typed = "", "7", "7"
		}
		column, _ := l.instant()
		l.exec("CREATE TABLE session (id " + typ + " PRIMARY KEY NOT NULL, at " + column + " NOT NULL)")
		l.exec("INSERT INTO session VALUES ('" + id + "', " + l.lit(asOf.Add(-time.Hour)) + ")")
		j := l.job(l.policy("session", nil))
		before := l.explain(j, typed)
		l.drain(j, 10)
		after := l.explain(j, typed)
		if !before.Exists || after.Exists || after.Fate == nil || after.Row != before.Row {
			t.Errorf("before %+v, after %+v", before, after)
		}
	})
}

// What the database cannot answer is said to be unknown, never that it keeps the row.
func TestExplainFaults(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(3)
		j := l.job(l.policy("session", func(p *policy.Policy) {
			p.Unless = "EXISTS (SELECT 1 FROM fines f WHERE f.session_id = session.id)"
		}))
		a := l.explain(j, "1")
		if !a.Exists || !a.InScope || !a.Due || !strings.Contains(a.Faults[AskGuard], "fines") || len(a.Faults) != 1 {
			t.Errorf("guard: %+v", a)
		}
		j = l.job(l.policy("session", func(p *policy.Policy) { p.Where = "nosuch = 1" }))
		if a := l.explain(j, "1"); a.InScope || !strings.Contains(a.Faults[AskScope], "nosuch") {
			t.Errorf("scope: %+v", a)
		}
	})
}

// Whether a trigger is an instant is the database's answer, and the instant agrees with it.
func TestExplainTrigger(t *testing.T) {
	l := newLab(t, SQLite)
	l.exec(`CREATE TABLE session (id integer PRIMARY KEY, at text);
INSERT INTO session VALUES (1, '2026-01-01T00:00:00Z'), (2, ' 2026-01-01T00:00:00Z'), (3, NULL), (4, '1970-01-01T00:00:00Z'), (5, 'soon')`)
	j := l.job(l.policy("session", func(p *policy.Policy) {
		p.Trigger.Null = policy.NullNever
		from, err := policy.ParseDate("2000-01-01")
		if err != nil {
			t.Fatal(err)
		}
		p.Trigger.ImplausibleBefore = &from
	}))
	type answer struct {
		Readable, Null, Instant, Due, Implausible bool
	}
	want := map[string]answer{
		"1": {Readable: true, Instant: true, Due: true},
		"2": {},
		"3": {Readable: true, Null: true},
		"4": {Readable: true, Instant: true, Implausible: true},
		"5": {},
	}
	for key, want := range want {
		a := l.explain(j, key)
		if diff := cmp.Diff(want, answer{a.Readable, a.Null, a.Instant != nil, a.Due, a.Implausible}); diff != "" {
			t.Errorf("row %s (-want +got):\n%s", key, diff)
		}
	}
}

// Evidence is read as it is written, and cut evidence to its end.
func TestRemovedIn(t *testing.T) {
	l := newLab(t, SQLite)
	l.sessions(1)
	j := l.job(l.policy("session", nil))
	k := func(id string) tuple { return tuple{{intValue, id}} }
	tl := newTally()
	tl.put("held", k("1"))
	tl.put("deleted", k("2"), k("3"))
	tl.put("archived", k("5"))
	ev := j.evidence(tl)
	for id, want := range map[string]string{"1": "", "2": "deleted", "3": "deleted", "4": "", "5": "archived"} {
		if _, got := removedIn(ev, [][16]byte{j.rowHash(k(id))}); got != want {
			t.Errorf("row %s: %q, want %q", id, got, want)
		}
	}
	for n := range ev {
		removedIn(ev[:n], [][16]byte{j.rowHash(k("4"))})
	}
	if _, got := removedIn(ev[:len(ev)-2*(5+16)-16], [][16]byte{j.rowHash(k("3"))}); got != "" {
		t.Error("found in what was cut off")
	}
}

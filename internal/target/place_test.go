package target

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"curfew.dev/curfew/policy"
)

// In physical order every due row goes exactly once, whatever the page size: also rows that moved to another block between the
// scan and the commit, and more rows in one block than a page holds.
func TestByPlace(t *testing.T) {
	for _, n := range []int{1, 7, 500} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			l := newLab(t, Postgres)
			l.exec(`CREATE TABLE session (id bigint NOT NULL PRIMARY KEY, at timestamptz NOT NULL, state text NOT NULL) WITH (fillfactor = 100)`)
			l.exec(`INSERT INTO session SELECT g, '2026-03-29 01:00:00+00'::timestamptz + (random() - 0.5) * interval '100 days', repeat('x', 40) FROM generate_series(1, 3000) g`)
			l.exec(`CREATE INDEX ON session (at)`)
			l.exec(`ANALYZE session`)
			j := l.job(l.policy("session", nil))
			if l.begin(j); j.Strategy() != ByPlace {
				t.Fatalf("strategy %s", j.Strategy())
			}
			due := l.ids(`SELECT id FROM session WHERE at < '2026-03-29 01:00:00+00' ORDER BY ctid`)
			kept := 3000 - len(due)
			renewed, back, along, tail := due[1], due[len(due)/3], due[len(due)/2], due[len(due)-1]
			l.exec("DELETE FROM session WHERE id = " + fmt.Sprint(due[0]))
			l.exec("VACUUM session") // room in the first block
			move := func(id int) string {
				return fmt.Sprintf("UPDATE session SET state = repeat('y', 40) WHERE id = %d", id)
			}
			got := l.step(j, n, func(page int) {
				switch page {
				case 0:
					l.exec(fmt.Sprintf("UPDATE session SET at = %s WHERE id = %d", l.lit(asOf.Add(time.Hour)), renewed))
					l.exec(fmt.Sprintf("UPDATE session SET state = repeat('z', 2000) WHERE id = %d", along)) // goes to another block
				case 1:
					l.exec(move(back)) // behind the scan, unless the pages are large
					l.exec(fmt.Sprintf("UPDATE session SET state = repeat('z', 2000) WHERE id = %d", tail))
				}
			})
			// What moved may be met twice: the second time it is gone.
			gone, renewals := got.outcomes["gone"], got.outcomes["no_longer_due"]
			delete(got.outcomes, "gone")
			delete(got.outcomes, "no_longer_due")
			if diff := cmp.Diff(map[string]int64{"deleted": int64(len(due) - 2)}, got.outcomes); diff != "" || gone > 3 || renewals > 1 {
				t.Errorf("%d gone, %d renewed\n%s", gone, renewals, diff)
			}
			if n := l.ids("SELECT count(*) FROM session")[0]; n != kept+1 {
				t.Errorf("%d rows left, want %d", n, kept+1)
			}
			if n := l.ids(fmt.Sprintf("SELECT count(*) FROM session WHERE at < %s", l.lit(asOf)))[0]; n != 0 {
				t.Errorf("%d due rows left", n)
			}
		})
	}
}

// A server that does not count updates cannot say that there were none: what moved is looked for then, too.
func TestMovedUncounted(t *testing.T) {
	l := newLab(t, Postgres)
	l.db.SQL.SetMaxOpenConns(1)
	if _, err := l.db.SQL.ExecContext(t.Context(), "SET track_counts = off"); err != nil {
		t.Fatal(err)
	}
	l.exec(`CREATE TABLE session (id bigint NOT NULL PRIMARY KEY, at timestamptz NOT NULL, state text NOT NULL)`)
	l.exec(`INSERT INTO session SELECT g, '2026-03-28 01:00:00+00', repeat('x', 100) FROM generate_series(1, 3000) g`)
	l.exec(`DELETE FROM session WHERE id <= 50`)
	l.exec(`VACUUM session`) // room in the first block
	j := l.job(l.policy("session", nil))
	j.strategy = ByPlace
	s := Start{Strategy: ByPlace, Fingerprint: j.fingerprint}
	if err := l.db.SQL.QueryRowContext(t.Context(), "SELECT pg_snapshot_xmin(pg_current_snapshot())::text, "+j.updates()).Scan(&s.Horizon, &s.Updates); err != nil || s.Updates != -1 {
		t.Fatal(s, err)
	}
	if err := j.Adopt(s, s); err != nil {
		t.Fatal(err)
	}
	got := l.step(j, 500, func(page int) {
		if page == 1 {
			l.other.SQL.SetMaxIdleConns(0) // a session of its own, that looks for room anywhere
			l.exec("UPDATE session SET state = repeat('y', 101) WHERE id = 2900")
			if block := l.ids("SELECT (ctid::text::point)[0]::int FROM session WHERE id = 2900")[0]; block > 2 {
				t.Fatalf("the row moved to block %d, and not behind the scan", block)
			}
		}
	})
	if n := l.ids("SELECT count(*) FROM session")[0]; n != 0 || got.outcomes["deleted"] != 2950 {
		t.Errorf("%d rows left, %v", n, got.outcomes)
	}
}

// moved changes all rows of the job's table, since the run has begun, and reads the page that looks for such rows.
func (l *lab) moved(j *Job) *Batch {
	l.Helper()
	l.exec("UPDATE session SET state = state")
	// From the first address on, and not from the start of the phase: the server counts updates in its own time.
	p, err := j.Page(l.Context(), cursor{phaseMoved, place(address{})}.encode(), 1000)
	if err != nil {
		l.Fatal(err)
	}
	if n := l.ids("SELECT count(*) FROM session")[0]; p.Batch == nil || p.Batch.Phase != phaseMoved || p.Batch.Rows != n {
		l.Fatalf("the page is %+v, want one of %d rows that moved", p, n)
	}
	return p.Batch
}

// What another session does to rows that moved, between the page that found them and the batch (see TestNothingThatChangedGoes for
// rows that are renewed, replaced, held or guarded): what was removed is gone by another hand, and what moved again goes all the
// same, as it is named by its key.
func TestMovedIsChangedAgain(t *testing.T) {
	for _, moment := range []string{"scanned", "begun", "claimed", "found"} {
		t.Run(moment, func(t *testing.T) {
			l := newLab(t, Postgres)
			l.sessions(10)
			j := l.job(l.policy("session", nil))
			j.strategy = ByPlace
			l.begin(j)
			b := l.moved(j)
			stepIn := sync.OnceFunc(func() {
				l.exec("DELETE FROM session WHERE id IN (3, 4)")
				l.exec("UPDATE session SET state = 'again' WHERE id = 5")
				l.exec("INSERT INTO session VALUES (4, " + l.lit(asOf.Add(time.Hour)) + ", 'anew')")
			})
			if l.atPoint(moment, stepIn); moment == "scanned" {
				stepIn()
			}
			got := l.execute(j, []*Batch{b})
			if diff := cmp.Diff(map[string]int64{"deleted": 8, "gone": 1, "no_longer_due": 1}, got.outcomes); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]int{4}, l.ids("SELECT id FROM session")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A table that is another one by the time the batch commits, and a cascade that nobody accepted: nothing that moved goes.
func TestMovedSchemaChanged(t *testing.T) {
	for _, ddl := range []string{
		"ALTER TABLE session RENAME COLUMN id TO old_id;\nALTER TABLE session RENAME COLUMN x TO id",
		"CREATE TABLE late (id bigint PRIMARY KEY, session_id bigint REFERENCES session (id) ON DELETE CASCADE)",
	} {
		for _, moment := range []string{"scanned", "begun", "claimed", "found"} {
			t.Run(ddl[:6]+"/"+moment, func(t *testing.T) {
				l := newLab(t, Postgres)
				l.sessions(5)
				l.exec("ALTER TABLE session ADD COLUMN x bigint")
				l.exec("UPDATE session SET x = 6 - id")
				j := l.job(l.policy("session", nil))
				j.strategy = ByPlace
				l.begin(j)
				b := l.moved(j)
				change := sync.OnceFunc(func() { l.exec(ddl) })
				if l.atPoint(moment, change); moment == "scanned" {
					change()
				}
				if _, err := j.Execute(t.Context(), asOf, l.work(b)); !errors.Is(err, ErrSchemaChanged) {
					t.Errorf("got %v, want %v", err, ErrSchemaChanged)
				}
				if n := l.ids("SELECT count(*) FROM session")[0]; n != 5 {
					t.Errorf("%d rows left of 5", n)
				}
				if n := l.ids("SELECT count(*) FROM " + j.d.own("receipt"))[0]; n != 0 {
					t.Errorf("%d receipts of what was not done", n)
				}
			})
		}
	}
}

// A range that holds far more rows than was thought, and the whole of a table that was rewritten, are cut until they fit.
func TestRangeTooFull(t *testing.T) {
	for _, mode := range []policy.Mode{policy.Enforce, policy.Shadow} {
		l := newLab(t, Postgres)
		l.exec(`CREATE TABLE session (id bigint NOT NULL PRIMARY KEY, at timestamptz NOT NULL)`)
		l.exec(`INSERT INTO session SELECT g, '2026-03-28 01:00:00+00' FROM generate_series(1, 20000) g`)
		j := l.job(l.policy("session", func(p *policy.Policy) { p.Mode = mode }))
		j.strategy = ByPlace
		first, err := j.Page(t.Context(), cursor{phase: phaseMain}.encode(), 100)
		if err != nil {
			t.Fatal(err)
		}
		s, err := decodeSpan(first.Batch.Bounds)
		if err != nil {
			t.Fatal(err)
		}
		s.lo, s.hi = place(address{}), nil // everything, as 100 rows
		b := &Batch{Phase: phaseMain, Rows: 100, Bounds: s.encode()}
		res, err := j.Execute(t.Context(), asOf, l.work(b))
		if err != nil || res.Planned != 0 || res.NDefer < 200 || res.NDefer > 300 {
			t.Fatalf("%+v, %v", res, err)
		}
		outcome, left := "deleted", 0
		if mode == policy.Shadow {
			outcome, left = "due", 20000
		}
		s.from = "again" // another batch
		got := l.execute(j, []*Batch{{Phase: phaseMain, Rows: 3, Bounds: s.encode()}})
		if diff := cmp.Diff(map[string]int64{outcome: 20000}, got.outcomes); diff != "" {
			t.Errorf("%s: %s", mode, diff)
		}
		if n := l.ids("SELECT count(*) FROM session")[0]; n != left {
			t.Errorf("%s: %d rows left", mode, n)
		}
	}
}

// Cutting a range loses no address and looks at none twice, down to single rows.
func TestSplitPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.Custom(func(t *rapid.T) int64 { return rapid.Int64Range(0, 40*lines).Draw(t, "at") })
		lo := at.Draw(t, "lo")
		hi := lo + 1 + at.Draw(t, "length")
		s := span{lo: place(address{lo / lines, lo % lines}), hi: place(address{hi / lines, hi % lines})}
		parts, err := splitPlace(s)
		if err != nil {
			t.Fatal(err)
		}
		if len(parts) > 8 || hi-lo > 1 && len(parts) < 2 {
			t.Fatalf("%d parts of %d lines", len(parts), hi-lo)
		}
		next := s.lo[0].s
		for _, p := range parts {
			if p.lo[0].s != next {
				t.Fatalf("a part begins at %s, the last ended at %s", p.lo[0].s, next)
			}
			next = p.hi[0].s
		}
		if next != s.hi[0].s {
			t.Fatalf("the last part ends at %s, not %s", next, s.hi[0].s)
		}
	})
}

// A run that follows the heap stays with the index, and so does one with nothing due or with few rows to an instant.
func TestStrategy(t *testing.T) {
	for _, c := range []struct {
		name, at, order string
		want            Strategy
	}{
		{"in order", "'2026-01-01 00:00:00+00'::timestamptz + g * interval '10 minutes'", "g", ByTrigger},
		{"scattered", "'2026-01-01 00:00:00+00'::timestamptz + g * interval '10 minutes'", "random()", ByPlace},
		{"nothing due", "'2036-01-01 00:00:00+00'::timestamptz + g * interval '10 minutes'", "random()", ByTrigger},
		{"many a day", "'2026-03-01 00:00:00+00'::timestamptz + g / 10000 * interval '24 hours'", "g", ByPlace},
		{"some a day", "'2026-01-01 00:00:00+00'::timestamptz + g / 500 * interval '24 hours'", "g", ByTrigger},
		{"many on a day to come, and few due", "'2026-03-28 00:00:00+00'::timestamptz + least(g / 200, 10) * interval '24 hours'", "g", ByTrigger},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t, Postgres)
			l.exec(`CREATE TABLE session (id bigint NOT NULL PRIMARY KEY, at timestamptz NOT NULL)`)
			l.exec(`INSERT INTO session SELECT g, ` + c.at + ` FROM generate_series(1, 30000) g ORDER BY ` + c.order)
			l.exec(`CREATE INDEX ON session (at)`)
			l.exec(`ANALYZE session`)
			j := l.job(l.policy("session", nil))
			if err := j.ChooseStrategy(t.Context()); err != nil {
				t.Fatal(err)
			}
			if j.Strategy() != c.want {
				t.Errorf("strategy %s, want %s (%+v)", j.Strategy(), c.want, j.t.Spread["at"])
			}
		})
	}
}

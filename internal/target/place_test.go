package target

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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
			if err := j.ChooseStrategy(t.Context()); err != nil || j.Strategy() != ByPlace {
				t.Fatalf("strategy %s, %v", j.Strategy(), err)
			}
			want := l.ids(`SELECT id FROM session WHERE at >= '2026-03-29 01:00:00+00' ORDER BY id`)
			due := l.ids(`SELECT id FROM session WHERE at < '2026-03-29 01:00:00+00' ORDER BY id`)
			pages := l.pages(j, n)
			moved, renewed := due[len(due)/2], due[len(due)/3]
			l.exec(fmt.Sprintf(`UPDATE session SET state = repeat('y', 2000) WHERE id = %d`, moved)) // goes to another block
			l.exec(fmt.Sprintf(`UPDATE session SET at = %s WHERE id = %d`, l.lit(asOf.Add(time.Hour)), renewed))
			got := l.execute(j, pages)
			// The row that moved goes with the batch of its new place, or by its key at the end; in the first case it was
			// planned twice, and the second time it is gone.
			gone := got.outcomes["gone"]
			delete(got.outcomes, "gone")
			if diff := cmp.Diff(map[string]int64{"deleted": int64(len(due) - 1), "no_longer_due": 1}, got.outcomes); diff != "" || gone > 1 {
				t.Errorf("%d gone\n%s", gone, diff)
			}
			want = append(want, renewed)
			if n := l.ids("SELECT count(*) FROM session")[0]; n != len(want) {
				t.Errorf("%d rows left, want %d", n, len(want))
			}
			if n := l.ids(fmt.Sprintf("SELECT count(*) FROM session WHERE at < %s", l.lit(asOf)))[0]; n != 0 {
				t.Errorf("%d due rows left", n)
			}
		})
	}
}

// A run that follows the heap stays with the index, and so does one with nothing due.
func TestStrategy(t *testing.T) {
	for name, by := range map[string]string{"in order": "g", "scattered": "random()", "nothing due": "random(), at + interval '10 years'"} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, Postgres)
			l.exec(`CREATE TABLE session (id bigint NOT NULL PRIMARY KEY, at timestamptz NOT NULL)`)
			shift := ""
			if name == "nothing due" {
				by, shift = "random()", " + interval '10 years'"
			}
			l.exec(`INSERT INTO session SELECT g, '2026-01-01 00:00:00+00'::timestamptz + g * interval '10 minutes'` + shift + ` FROM generate_series(1, 30000) g ORDER BY ` + by)
			l.exec(`CREATE INDEX ON session (at)`)
			l.exec(`ANALYZE session`)
			j := l.job(l.policy("session", nil))
			if err := j.ChooseStrategy(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := ByTrigger
			if name == "scattered" {
				want = ByPlace
			}
			if j.Strategy() != want {
				t.Errorf("strategy %s, want %s", j.Strategy(), want)
			}
		})
	}
}

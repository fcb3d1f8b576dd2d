package target

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"curfew.dev/curfew/policy"
)

// ownedVisits makes a table of n rows; row i was at asOf minus (n-i) hours, of owner i modulo 3, NULL for every tenth.
func (l *lab) ownedVisits(n int) {
	typ, _ := l.instant()
	l.exec("CREATE TABLE visit (id bigint NOT NULL PRIMARY KEY, at " + typ + ", owner bigint, kind varchar(10) NOT NULL DEFAULT 'a', privacy varchar(10))")
	for i := 1; i <= n; i++ {
		owner := fmt.Sprint(i % 3)
		if i%10 == 0 {
			owner = "NULL"
		}
		l.exec(fmt.Sprintf("INSERT INTO visit (id, at, owner) VALUES (%d, %s, %s)", i, l.lit(asOf.Add(-time.Duration(n-i+1)*time.Hour)), owner))
	}
	l.exec("CREATE INDEX visit_owner ON visit (owner, at);\nCREATE INDEX visit_at ON visit (at)")
}

func last(n int) func(*policy.Policy) {
	return func(p *policy.Policy) {
		p.KeepLast = &policy.KeepLast{N: n, Per: "owner"}
		p.Trigger.Null = policy.NullDue
	}
}

func TestKeepLast(t *testing.T) {
	for _, n := range []int{1, 7, 1000} {
		onEach(t, func(l *lab) {
			l.ownedVisits(30)
			l.exec("UPDATE visit SET at = NULL WHERE id IN (28, 29)")                                  // the newest by their ids become the oldest
			l.exec("UPDATE visit SET at = " + l.lit(asOf.Add(-4*time.Hour)) + " WHERE id IN (21, 24)") // of one instant as 27: the key decides
			l.exec("UPDATE visit SET kind = 'b' WHERE id IN (25, 22)")                                 // outside of the scope
			p := l.policy("visit", func(p *policy.Policy) { last(2)(p); p.Where = "kind = 'a'" })
			if err := Refused(l.fit(p)); err != nil {
				t.Fatal(err)
			}
			j := l.job(p)
			c, err := j.Count(t.Context())
			if err != nil || c.Due != 28 || c.Guarded != 8 {
				t.Errorf("plan: %+v %v", c, err)
			}
			got := l.drain(j, n)
			if diff := cmp.Diff(map[string]int64{"deleted": 20, "guarded": 8}, got.outcomes); diff != "" {
				t.Error(diff)
			}
			// Owner 0: 27 and 24; 1: 19 and 16, as 22 and 25 are not of this policy and 28 has no instant; 2: 26 and 23; nobody: 30 and 20.
			if diff := cmp.Diff([]int{16, 19, 20, 22, 23, 24, 25, 26, 27, 30}, l.ids("SELECT id FROM visit ORDER BY id")); diff != "" {
				t.Error(diff)
			}
			a, err := j.Explain(t.Context(), []string{"16"})
			if err != nil || !a.Guarded || !a.Last {
				t.Errorf("explain: %+v %v", a, err)
			}
			l.salt = "again"
			if again := l.drain(l.job(l.policy("visit", func(p *policy.Policy) { last(2)(p); p.Where = "kind = 'a'"; p.Name = "again" })), n); again.outcomes["deleted"] != 0 {
				t.Errorf("again: %v", again.outcomes)
			}
		})
	}
}

// Batches that delete at the same time never leave fewer than the last n: every row they take has n later ones, whatever the
// others take. And a row that became the last since the scan stays.
func TestKeepLastConcurrent(t *testing.T) {
	onEach(t, func(l *lab) {
		l.ownedVisits(60)
		l.exec("UPDATE visit SET owner = 1")
		j := l.job(l.policy("visit", last(5)))
		pages := l.pages(j, 10)
		l.exec("DELETE FROM visit WHERE id IN (58, 59)") // the application takes two of the last: 54 and 55 take their place
		var wg sync.WaitGroup
		var mu sync.Mutex
		deleted := int64(0)
		works := make([]Work, len(pages))
		for i, b := range pages {
			works[i] = l.work(b)
		}
		meet := make(chan struct{})
		waiting := 0
		if l.engine != SQLite { // which has one writer
			TestHook = func(point string) {
				if point != "found" {
					return
				}
				mu.Lock()
				if waiting++; waiting == 3 {
					close(meet)
				}
				mu.Unlock()
				<-meet // three batches have begun before the first deletes
			}
			t.Cleanup(func() { TestHook = nil })
		}
		for _, w := range works {
			wg.Add(1)
			go func() {
				defer wg.Done()
				res, err := j.Execute(t.Context(), asOf, w)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				deleted += res.Outcomes["deleted"]
				mu.Unlock()
			}()
		}
		wg.Wait()
		if diff := cmp.Diff([]int{54, 55, 56, 57, 60}, l.ids("SELECT id FROM visit ORDER BY id")); diff != "" || deleted != 53 {
			t.Error(diff, deleted)
		}
	})
}

func values(kind policy.ValueKind, text ...string) []policy.Value {
	var out []policy.Value
	for _, s := range text {
		out = append(out, policy.Value{Kind: kind, Text: s})
	}
	return out
}

// Every choice, with and without a list of what means the policy's period, from a column and from the subject's own table.
func TestPrivacy(t *testing.T) {
	for _, from := range []string{"column", "expr"} {
		for _, list := range []bool{false, true} {
			onEach(t, func(l *lab) {
				l.ownedVisits(12) // 1 to 12 are 12 to 1 hours old; the period ends 6 hours before
				l.exec("CREATE TABLE reader (id bigint NOT NULL PRIMARY KEY, privacy smallint);\nINSERT INTO reader VALUES (0, 0), (1, 1), (2, 2), (3, NULL), (4, 7)")
				// By twos: 1, 7 forever; 2, 8 the period; 3, 9 never; 4, 10 NULL; 5, 11 unlisted; 6, 12 nobody at all.
				for i := 1; i <= 12; i++ {
					owner := (i - 1) % 6
					choice := []string{"'0'", "'1'", "'2'", "NULL", "'7'", "NULL"}[owner]
					l.exec(fmt.Sprintf("UPDATE visit SET owner = %d, privacy = %s WHERE id = %d", owner, choice, i))
				}
				l.exec("INSERT INTO visit VALUES (20, NULL, 2, 'a', '2')")                // not yet happened
				l.exec("INSERT INTO visit VALUES (21, " + l.lit(asOf) + ", 2, 'a', '2')") // this very instant
				l.exec("INSERT INTO visit VALUES (22, " + l.lit(asOf.Add(-time.Microsecond)) + ", 2, 'a', '2')")
				p := l.policy("visit", func(p *policy.Policy) {
					p.Trigger.Until, p.Trigger.Null = false, policy.NullNever
					var err error
					if p.Keep, err = policy.ParsePeriod("6h"); err != nil {
						t.Fatal(err)
					}
					kind := policy.TextValue
					p.Privacy = &policy.Privacy{Column: "privacy"}
					if from == "expr" {
						kind = policy.NumberValue
						p.Privacy = &policy.Privacy{Expr: "SELECT r.privacy FROM reader r WHERE r.id = visit.owner"}
					}
					p.Privacy.Never, p.Privacy.Forever = values(kind, "2"), values(kind, "0")
					if list {
						p.Privacy.Default = values(kind, "1")
					}
				})
				if err := Refused(l.fit(p)); err != nil {
					t.Fatal(err)
				}
				j := l.job(p)
				if found, err := j.Probe(t.Context()); err != nil || Refused(found) != nil {
					t.Fatal(found, err)
				}
				// Due: 1 to 6 by the period, of which 3 at once; 9 and 22 at once.
				want, left := map[string]int64{"deleted": 5, "guarded": 3}, []int{1, 4, 6, 7, 8, 10, 11, 12, 20, 21}
				if list {
					want, left = map[string]int64{"deleted": 4, "guarded": 4}, []int{1, 4, 5, 6, 7, 8, 10, 11, 12, 20, 21}
				}
				c, err := j.Count(t.Context())
				if err != nil || c.Due != 8 || c.Guarded != want["guarded"] {
					t.Errorf("plan: %+v %v", c, err)
				}
				for id, choice := range map[string]string{"1": "forever", "2": "default", "9": "never", "4": "none", "5": map[bool]string{true: "unlisted", false: "default"}[list]} {
					a, err := j.Explain(t.Context(), []string{id})
					if err != nil || a.Choice != choice || len(a.Faults) > 0 {
						t.Errorf("explain %s: %+v %v, want %s", id, a, err, choice)
					}
					if choice == "never" && (a.DueAt == nil || a.DueAt.After(asOf)) {
						t.Errorf("explain %s: due at %v", id, a.DueAt)
					}
				}
				if due, known, err := j.OldestDue(t.Context()); err != nil || known && (due == nil || !due.Equal(asOf.Add(-10*time.Hour))) {
					t.Errorf("lag: %v %v", due, err) // 3, which was due at once, ten hours ago
				}
				got := l.drain(j, 3)
				if diff := cmp.Diff(want, got.outcomes); diff != "" {
					t.Errorf("%s, list %v: %s %v", from, list, diff, got.rows)
				}
				if diff := cmp.Diff(left, l.ids("SELECT id FROM visit ORDER BY id")); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// A choice that is changed between the scan and the batch counts.
func TestPrivacyChanged(t *testing.T) {
	onEach(t, func(l *lab) {
		l.ownedVisits(4)
		l.exec("UPDATE visit SET privacy = 'never'")
		j := l.job(l.policy("visit", func(p *policy.Policy) {
			p.Trigger.Null = policy.NullNever
			p.Privacy = &policy.Privacy{Column: "privacy", Never: values(policy.TextValue, "never"), Forever: values(policy.TextValue, "forever")}
		}))
		pages := l.pages(j, 1000)
		l.exec("UPDATE visit SET privacy = 'forever' WHERE id = 2")
		got := l.execute(j, pages)
		if diff := cmp.Diff(map[string]int64{"deleted": 3, "guarded": 1}, got.outcomes); diff != "" {
			t.Error(diff)
		}
	})
}

// keep_last against counting by hand, over random instants, ties, NULLs and owners.
func TestKeepLastLikeBruteForce(t *testing.T) {
	l := newLab(t, SQLite)
	l.exec("CREATE TABLE visit (id bigint NOT NULL PRIMARY KEY, at text, owner bigint, kind text NOT NULL)")
	run := 0
	rapid.Check(t, func(rt *rapid.T) {
		type row struct{ id, at, owner, kind int }
		var rows []row
		l.exec("DELETE FROM visit")
		for i := range rapid.IntRange(0, 25).Draw(rt, "rows") {
			r := row{i, rapid.IntRange(-1, 6).Draw(rt, "at"), rapid.IntRange(-1, 2).Draw(rt, "owner"), rapid.IntRange(0, 3).Draw(rt, "kind")}
			rows = append(rows, r)
			at, owner := "NULL", "NULL"
			if r.at >= 0 {
				at = l.lit(asOf.Add(time.Duration(r.at-5) * time.Hour))
			}
			if r.owner >= 0 {
				owner = fmt.Sprint(r.owner)
			}
			l.exec(fmt.Sprintf("INSERT INTO visit VALUES (%d, %s, %s, '%s')", r.id, at, owner, strings.Repeat("x", min(r.kind, 1))))
		}
		n, scoped := rapid.IntRange(1, 4).Draw(rt, "n"), rapid.Bool().Draw(rt, "scoped")
		run++
		l.salt = fmt.Sprint(run)
		j := l.job(l.policy("visit", func(p *policy.Policy) {
			last(n)(p)
			if p.Name = fmt.Sprint("p", run); scoped {
				p.Where = "kind = 'x'"
			}
		}))
		want := []int{}
		for _, r := range rows {
			in := !scoped || r.kind > 0
			var later int
			for _, o := range rows {
				if o.owner == r.owner && (!scoped || o.kind > 0) && (o.at > r.at || o.at == r.at && o.id > r.id) {
					later++
				}
			}
			if !in || r.at >= 5 || later < n {
				want = append(want, r.id)
			}
		}
		l.drain(j, rapid.IntRange(1, 10).Draw(rt, "batch"))
		if got := l.ids("SELECT id FROM visit ORDER BY id"); !slices.Equal(want, got) {
			rt.Fatalf("left %v, want %v", got, want)
		}
	})
}

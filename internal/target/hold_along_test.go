package target

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/internal/hold"
	"curfew.dev/curfew/policy"
)

// place places a hold the way the commands do.
func (l *lab) place(name, relation string, conditions ...string) {
	l.Helper()
	var list []hold.Condition
	for _, text := range conditions {
		column, value, _ := strings.Cut(text, "=")
		list = append(list, hold.Condition{Column: column, Value: value})
	}
	text, err := json.Marshal(list)
	if err != nil {
		l.Fatal(err)
	}
	row := hold.Row{ID: name, Name: name, Relation: relation, Conditions: string(text)}
	if err := l.other.SettleHolds(l.Context(), adding(row)); err != nil {
		l.Fatal(err)
	}
}

func (l *lab) lift(names ...string) {
	l.Helper()
	if err := l.other.SettleHolds(l.Context(), dropping(names...)); err != nil {
		l.Fatal(err)
	}
}

// family makes a table whose rows have children in three generations, one child that only loses its reference, and rows that
// reference each other.
func (l *lab) family() {
	typ, _ := l.instant()
	l.exec("CREATE TABLE patron (id bigint NOT NULL PRIMARY KEY, at " + typ + " NOT NULL, up bigint, person varchar(20), FOREIGN KEY (up) REFERENCES patron (id) ON DELETE CASCADE)")
	l.exec("CREATE TABLE loan (id bigint NOT NULL PRIMARY KEY, patron_id bigint NOT NULL, person varchar(20), FOREIGN KEY (patron_id) REFERENCES patron (id) ON DELETE CASCADE)")
	l.exec("CREATE TABLE fine (id bigint NOT NULL PRIMARY KEY, loan_id bigint NOT NULL, person bigint, FOREIGN KEY (loan_id) REFERENCES loan (id) ON DELETE CASCADE)")
	l.exec("CREATE TABLE letter (id bigint NOT NULL PRIMARY KEY, fine_id bigint, person bigint, FOREIGN KEY (fine_id) REFERENCES fine (id) ON DELETE SET NULL)")
	l.fillFamily()
}

func (l *lab) fillFamily() {
	rows := map[string][]string{}
	for i := 1; i <= 20; i++ {
		up := "NULL"
		if i > 10 {
			up = fmt.Sprint(i - 1) // 10 <- 11 <- 12 … <- 20
		}
		rows["patron"] = append(rows["patron"], fmt.Sprintf("(%d, %s, %s, 'p%d')", i, l.lit(asOf.Add(-time.Duration(40-i)*time.Hour)), up, i))
		rows["loan"] = append(rows["loan"], fmt.Sprintf("(%d, %d, 'l%d')", i, i, i))
		rows["fine"] = append(rows["fine"], fmt.Sprintf("(%d, %d, %d)", i, i, 100+i))
		rows["letter"] = append(rows["letter"], fmt.Sprintf("(%d, %d, %d)", i, i, 200+i))
	}
	for _, table := range []string{"patron", "loan", "fine", "letter"} {
		l.exec("INSERT INTO " + table + " VALUES " + strings.Join(rows[table], ", "))
	}
}

// A hold on a row that would change with ours keeps ours, however it hangs on it, and on no other row.
func TestHoldsKeepWhatTheyHangOn(t *testing.T) {
	onEach(t, func(l *lab) {
		subjects := func(p *policy.Policy) {
			p.Subject, p.Cascade = "person", []string{"patron", "loan", "fine", "letter"}
			p.CascadeSubjects = []policy.CascadeSubject{{Table: "fine", Subject: "person"}, {Table: "letter", Subject: "person"}, {Table: "loan", NoSubject: true}}
		}
		cases := []struct {
			name, relation, condition string
			kept                      []int
		}{
			{"a child", "loan", "person=l3", []int{3}},
			{"a grandchild", "fine", "id=4", []int{4}},
			{"one that loses its reference", "letter", "person=205", []int{5}},
			{"one of our own", "patron", "id=12", []int{10, 11, 12}},
			{"a child of one of our own", "fine", "id=13", []int{10, 11, 12, 13}},
			{"our own subject", "*", "=p2", []int{2}},
			{"a subject of a child", "*", "=106", []int{6}},
			{"a subject of one that loses its reference", "*", "=207", []int{7}},
			{"a child that names no subject", "*", "=l3", nil},
			{"a value that a column cannot have", "fine", "id=none", nil},
			{"a number beyond its column", "fine", "id=18446744073709551615", nil},
			{"far below", "patron", "id=20", []int{10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20}},
		}
		l.family()
		for _, c := range cases {
			l.Run(c.name, func(t *testing.T) {
				l := l.at(t)
				for _, table := range []string{"letter", "fine", "loan", dialectFor(l.db.server).own("receipt")} {
					l.exec("DELETE FROM " + table)
				}
				l.exec("DELETE FROM patron")
				l.fillFamily()
				p := l.policy("patron", subjects)
				p.Name = c.name
				j := l.job(p)
				l.place("court", c.relation, c.condition)
				defer l.lift("court")
				n, err := j.Count(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				got := l.drain(j, 1000)
				left := l.ids("SELECT id FROM patron ORDER BY id")
				if diff := cmp.Diff(append([]int{}, c.kept...), left); diff != "" {
					t.Error(diff)
				}
				if n.Held != int64(len(c.kept)) || got.outcomes["held"] != int64(len(c.kept)) || got.outcomes["deleted"] != int64(20-len(c.kept)) {
					t.Errorf("counted %d, outcomes %v", n.Held, got.outcomes)
				}
				for _, r := range got.rows {
					if r.Outcome != "held" || r.Reason != "hold court" {
						t.Errorf("row %+v", r)
					}
				}
				for _, id := range c.kept {
					a, err := j.Explain(t.Context(), []string{fmt.Sprint(id)})
					if err != nil || !a.Held || len(a.HeldBy) != 1 || a.HeldBy[0] != "court" {
						t.Errorf("row %d: %+v, %v", id, a, err)
					}
				}
				l.lift("court")
				if got := l.drain(j, 1000); got.outcomes["deleted"] != int64(len(c.kept)) {
					t.Errorf("after the release: %v", got.outcomes)
				}
			})
		}
	})
}

// A row that comes to hang on ours while the batch waits, and is held, keeps ours.
func TestHeldChildComesWhileWaiting(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.waits(20*time.Second, 20*time.Second)
		l.family()
		p := l.policy("patron", func(p *policy.Policy) { p.Cascade = []string{"patron", "loan", "fine", "letter"} })
		j := l.job(p)
		l.place("court", "loan", "person=late")
		pages := l.pages(j, 1000)
		commit := l.transact([]string{"INSERT INTO loan VALUES (99, 3, 'late')"})
		done := make(chan sums, 1)
		go func() { done <- l.execute(j, pages) }()
		if l.engine == MySQL {
			l.waitBlocked() // PostgreSQL skips what is locked and comes back
		}
		commit()
		if got := <-done; got.outcomes["held"] != 1 || got.outcomes["deleted"] != 19 {
			t.Errorf("outcomes %v", got.outcomes)
		}
		if diff := cmp.Diff([]int{3}, l.ids("SELECT id FROM patron")); diff != "" {
			t.Error(diff)
		}
	})
}

// Of a row that several holds keep, each is told; the listing names the first, and the next one when that is released.
func TestSeveralHolds(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(10)
		j := l.job(l.policy("session", nil))
		for i, name := range []string{"c", "a", "b", "e", "d"} {
			l.place(name, "session", fmt.Sprintf("id=%d", i+1))
		}
		l.place("aa", "session", "id=1")
		reasons := func(s sums) map[string]string {
			of := map[string]string{}
			for i := 1; i <= 5; i++ {
				a, err := j.Explain(t.Context(), []string{fmt.Sprint(i)})
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range s.rows {
					if r.Row == a.Row {
						of[fmt.Sprint(i)] = strings.TrimPrefix(r.Reason, "hold ") + " of " + strings.Join(a.HeldBy, ",")
					}
				}
			}
			return of
		}
		want := map[string]string{"1": "aa of aa,c", "2": "a of a", "3": "b of b", "4": "e of e", "5": "d of d"}
		if diff := cmp.Diff(want, reasons(l.drain(j, 1000))); diff != "" {
			t.Error(diff)
		}
		l.lift("aa", "e")
		want = map[string]string{"1": "c of c", "2": "a of a", "3": "b of b", "5": "d of d"}
		if diff := cmp.Diff(want, reasons(l.drain(j, 1000))); diff != "" {
			t.Error(diff)
		}
	})
}

// What the ledger says about the holds is compared before anything is changed, in the transaction of each batch; a shadow run,
// which changes nothing, goes on.
func TestHoldsAreCompared(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(5)
		l.place("court", "session", "id=3")
		j := l.job(l.policy("session", nil))
		var seen []hold.Row
		differ := &hold.StaleError{Database: "lab", Missing: []string{"other"}}
		answer := error(differ)
		j.checkHolds = func(_ context.Context, have []hold.Row) error { seen = have; return answer }
		page := l.pages(j, 1000)[0]
		work := l.work(page)
		if _, err := j.Execute(t.Context(), asOf, work); !errors.Is(err, hold.ErrStale) {
			t.Errorf("%v", err)
		}
		if _, err := j.Void(t.Context(), asOf, work, errors.New("reason")); !errors.Is(err, hold.ErrStale) {
			t.Errorf("%v", err)
		}
		if len(seen) != 1 || seen[0].Name != "court" {
			t.Errorf("compared with %+v", seen)
		}
		if n := l.ids("SELECT count(*) FROM session")[0] + l.ids("SELECT count(*) FROM " + j.d.own("receipt"))[0]; n != 5 {
			t.Errorf("%d rows and receipts", n)
		}
		answer = nil
		if got := l.execute(j, []*Batch{page}); got.outcomes["held"] != 1 || got.outcomes["deleted"] != 4 {
			t.Errorf("outcomes %v", got.outcomes)
		}
		if err := l.db.CheckHolds(t.Context(), func(_ context.Context, have []hold.Row) error { seen = have; return differ }); !errors.Is(err, hold.ErrStale) || len(seen) != 1 {
			t.Errorf("%v", err)
		}
	})
}

// A hold that cannot be compared with a column is refused before it is placed; a value is not told.
func TestFitHold(t *testing.T) {
	onEach(t, func(l *lab) {
		typ, _ := l.instant()
		l.exec("CREATE TABLE doc (id bigint NOT NULL PRIMARY KEY, at " + typ + " NOT NULL, share double precision, name varchar(20))")
		table, err := l.db.Inspect(t.Context(), "doc")
		if err != nil {
			t.Fatal(err)
		}
		fit := func(relation string, c ...hold.Condition) error {
			return FitHold(table, hold.Hold{Name: "court", Relation: relation, Conditions: c}, "name")
		}
		if err := errors.Join(fit("doc", hold.Condition{Column: "id", Value: "7"}), fit("doc", hold.Condition{Column: "name", Value: "Smith"}), fit("*", hold.Condition{Value: "x"})); err != nil {
			t.Error(err)
		}
		bad := map[string]hold.Condition{"no such column": {Column: "nothing", Value: "secret"}}
		if l.engine != SQLite {
			bad["no number"] = hold.Condition{Column: "id", Value: "secret"}
			bad["a fraction"] = hold.Condition{Column: "share", Value: "0.1"}
		}
		for name, c := range bad {
			if err := fit("doc", c); !errors.Is(err, ErrHold) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

func adding(rows ...hold.Row) func(context.Context, []hold.Row) (HoldChange, error) {
	return func(context.Context, []hold.Row) (HoldChange, error) { return HoldChange{Add: rows}, nil }
}

func dropping(ids ...string) func(context.Context, []hold.Row) (HoldChange, error) {
	return func(context.Context, []hold.Row) (HoldChange, error) { return HoldChange{Drop: ids}, nil }
}

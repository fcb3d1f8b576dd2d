package target

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/policy"
)

// orgs makes organisations 1 to 6, of which 5 is not due and 6 is newer still, and what hangs on them: members, who may have a
// boss among them, posts by a member, marks on posts, and a bill for some.
func (l *lab) orgs(defer_ string) {
	l.Helper()
	typ, _ := l.instant()
	if l.engine == MySQL {
		defer_ = ""
	}
	fk := func(name, col, parent string) string {
		return fmt.Sprintf("CONSTRAINT %s FOREIGN KEY (%s) REFERENCES %s (id) %s", name, col, parent, defer_)
	}
	l.exec(`CREATE TABLE org (id bigint NOT NULL PRIMARY KEY, at ` + typ + ` NOT NULL, state varchar(20) NOT NULL DEFAULT 'open');
CREATE TABLE member (id bigint NOT NULL PRIMARY KEY, org_id bigint NOT NULL, boss_id bigint, ` + fk("member_org", "org_id", "org") + `, ` + fk("member_boss", "boss_id", "member") + `);
CREATE TABLE post (id bigint NOT NULL PRIMARY KEY, org_id bigint NOT NULL, author_id bigint NOT NULL, ` + fk("post_org", "org_id", "org") + `, ` + fk("post_author", "author_id", "member") + `);
CREATE TABLE mark (id bigint NOT NULL PRIMARY KEY, post_id bigint NOT NULL, member_id bigint, ` + fk("mark_post", "post_id", "post") + `, ` + fk("mark_member", "member_id", "member") + `);
CREATE TABLE bill (id bigint NOT NULL PRIMARY KEY, org_id bigint, ` + fk("bill_org", "org_id", "org") + `);
CREATE INDEX org_at ON org (at);
CREATE INDEX member_org ON member (org_id);
CREATE INDEX post_org ON post (org_id);
CREATE INDEX mark_post ON mark (post_id)`)
	for o := 1; o <= 6; o++ {
		at := asOf.Add(-time.Duration(10-o) * time.Hour)
		if o >= 5 {
			at = asOf.Add(time.Duration(o) * time.Hour)
		}
		l.exec(fmt.Sprintf("INSERT INTO org (id, at) VALUES (%d, %s)", o, l.lit(at)))
		for m := 1; m <= 4; m++ {
			// Bosses come before and after those they lead: 1 and 4 lead nobody twice over, 4 → 3 → 1, 2 → 1.
			boss := []string{"NULL", fmt.Sprint(o*10 + 1), fmt.Sprint(o*10 + 1), fmt.Sprint(o*10 + 3)}[m-1]
			l.exec(fmt.Sprintf("INSERT INTO member VALUES (%d, %d, %s)", o*10+m, o, boss))
		}
		l.exec(fmt.Sprintf("UPDATE member SET boss_id = %d WHERE id = %d", o*10+2, o*10+1)) // 1 and 2 lead each other
		l.exec(fmt.Sprintf("UPDATE member SET boss_id = NULL WHERE id = %d", o*10+2))
		for p := 1; p <= 3; p++ {
			l.exec(fmt.Sprintf("INSERT INTO post VALUES (%d, %d, %d)", o*100+p, o, o*10+p))
			l.exec(fmt.Sprintf("INSERT INTO mark VALUES (%d, %d, %d)", o*1000+p, o*100+p, o*10+1))
		}
	}
}

const perOrg = 4 + 3 + 3

func auto(p *policy.Policy) { p.Action.Dependents = &policy.Dependents{Auto: true} }

// listed is the explicit list: a post goes with its own organisation only, and bills are left out.
func listed(p *policy.Policy) {
	p.Action.Dependents = &policy.Dependents{List: []policy.Dependent{{Table: "mark"}, {Table: "post", On: "post.org_id = org.id"}, {Table: "member", On: "member.org_id = org.id"}}}
}

// of lists what is left of the organisations, as table:org.
func (l *lab) left() []string {
	l.Helper()
	var out []string
	for _, q := range []struct{ table, sql string }{
		{"org", "SELECT id FROM org ORDER BY 1"}, {"member", "SELECT DISTINCT org_id FROM member ORDER BY 1"}, {"post", "SELECT DISTINCT org_id FROM post ORDER BY 1"},
		{"mark", "SELECT DISTINCT p.org_id FROM mark m JOIN post p ON p.id = m.post_id ORDER BY 1"},
	} {
		out = append(out, fmt.Sprint(q.table, l.ids(q.sql)))
	}
	return out
}

func whole(orgs ...int) []string {
	return []string{fmt.Sprint("org", orgs), fmt.Sprint("member", orgs), fmt.Sprint("post", orgs), fmt.Sprint("mark", orgs)}
}

func (l *lab) fit(p *policy.Policy) []Finding {
	l.Helper()
	tab, err := l.db.InspectFor(l.Context(), p)
	if err != nil {
		l.Fatal(err)
	}
	return Judge(p, tab, l.db.Described())
}

func TestDependents(t *testing.T) {
	for _, constraints := range []string{"", "DEFERRABLE INITIALLY DEFERRED"} {
		for name, action := range map[string]func(*policy.Policy){"auto": auto, "listed": listed} {
			for _, n := range []int{1, 7, 1000} {
				onEach(t, func(l *lab) {
					l.orgs(constraints)
					p := l.policy("org", action)
					if err := Refused(l.fit(p)); err != nil {
						t.Fatal(err)
					}
					q := *p
					q.Mode = policy.Shadow
					dry := l.drain(l.job(&q), n)
					if dry.outcomes["due"] != 4 || dry.cascaded != 4*perOrg {
						t.Errorf("%s: shadow: outcomes %v, cascaded %d", name, dry.outcomes, dry.cascaded)
					}
					j := l.job(p)
					c, err := j.Count(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if c.Due != 4 || c.Blocked != 0 || c.Cascaded != 4*perOrg || c.Partial {
						t.Errorf("%s: plan: %+v", name, c)
					}
					want := []Along{{"mark", 12}, {"post", 12}, {"member", 16}}
					if name == "auto" {
						want = append(want, Along{"bill", 0})
						slices.SortFunc(c.Along, func(a, b Along) int { return strings.Compare(a.Table, b.Table) })
						slices.SortFunc(want, func(a, b Along) int { return strings.Compare(a.Table, b.Table) })
					}
					if diff := cmp.Diff(want, c.Along); diff != "" {
						t.Error(diff)
					}
					got := l.drain(j, n)
					if got.outcomes["deleted"] != 4 || got.planned != 4 || got.cascaded != 4*perOrg {
						t.Errorf("%s: outcomes %v, cascaded %d, %v", name, got.outcomes, got.cascaded, got.rows)
					}
					if diff := cmp.Diff(whole(5, 6), l.left()); diff != "" {
						t.Error(diff)
					}
					again := l.drain(l.job(l.policy("org", func(p *policy.Policy) { action(p); p.Name = "again" })), n)
					if again.planned != 0 || again.cascaded != 0 {
						t.Errorf("again: %v", again)
					}
				})
			}
		}
	}
}

// A row outside the list, or of an organisation that stays, keeps the whole organisation; the others go.
func TestDependentsBlocked(t *testing.T) {
	for _, constraints := range []string{"", "DEFERRABLE INITIALLY DEFERRED"} {
		onEach(t, func(l *lab) {
			l.orgs(constraints)
			l.exec("INSERT INTO bill VALUES (1, 2), (2, 5)")       // keeps 2, directly
			l.exec("INSERT INTO post VALUES (599, 5, 31)")         // a post of 5 by a member of 3
			l.exec("UPDATE member SET boss_id = 42 WHERE id = 51") // a member of 5 led by one of 4
			p := l.policy("org", listed)
			want := map[string]int64{"deleted": 1, "blocked": 3}
			q := *p
			q.Mode = policy.Shadow
			dry := l.drain(l.job(&q), 1000)
			if diff := cmp.Diff(map[string]int64{"due": 1, "blocked": 3}, dry.outcomes); diff != "" || dry.cascaded != perOrg {
				t.Error("shadow", diff, dry.cascaded)
			}
			j := l.job(p)
			if c, err := j.Count(t.Context()); err != nil || c.Blocked != 3 || c.Cascaded != perOrg {
				t.Errorf("plan: %+v %v", c, err)
			}
			got := l.drain(j, 1000)
			if diff := cmp.Diff(want, got.outcomes); diff != "" || got.cascaded != perOrg {
				t.Error(diff, got.cascaded)
			}
			for _, rows := range [][]RowResult{dry.rows, got.rows} {
				var reasons []string
				for _, r := range rows {
					reasons = append(reasons, r.Reason)
				}
				slices.Sort(reasons)
				names := []string{"bill_org", "member_boss", "post_author"}
				if diff := cmp.Diff(names, reasons); diff != "" {
					t.Error(diff)
				}
			}
			if diff := cmp.Diff(whole(2, 3, 4, 5, 6), l.left()); diff != "" {
				t.Error(diff)
			}
			if n := l.ids("SELECT count(*) FROM member")[0]; n != 20 {
				t.Errorf("%d members", n)
			}
			a, err := j.Explain(t.Context(), []string{"3"})
			if err != nil || strings.Join(a.Keeping, " ") != "post_author" {
				t.Errorf("explain: %+v %v", a, err)
			}
			if a, err = j.Explain(t.Context(), []string{"5"}); err != nil || a.Due {
				t.Errorf("explain: %+v %v", a, err)
			}
			// auto takes the strangers' rows too: they hang on what goes.
			if got := l.drain(l.job(l.policy("org", func(p *policy.Policy) { auto(p); p.Name = "auto" })), 1000); got.outcomes["deleted"] != 3 {
				t.Errorf("auto: %v %v", got.outcomes, got.rows)
			}
			if diff := cmp.Diff([]int{5, 6}, l.ids("SELECT id FROM org ORDER BY id")); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]int{}, l.ids("SELECT id FROM post WHERE id = 599")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

package target

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/policy"
)

// A role with the grants that install prints, and no others, can do the whole of a run.
func TestGrantsAreEnough(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.sessions(20)
		l.exec("CREATE TABLE fine (id bigint PRIMARY KEY, session_id bigint NOT NULL, CONSTRAINT fine_session FOREIGN KEY (session_id) REFERENCES session (id))")
		l.exec("INSERT INTO fine VALUES (1, 4)")
		var url, account string
		if l.engine == Postgres {
			url, account = dbtest.PostgresRole(t, l.url)
		} else {
			url, account = dbtest.MariaDBUser(t, l.url)
		}
		for _, g := range GrantSQL(l.engine, account, []Use{{Table: "session", Delete: true}}, nil) {
			l.exec(g)
		}
		db, err := Open(t.Context(), "lab", url, OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		l.db = db
		if err := db.Installed(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, unless := range []string{"id = 99", "id = 7 OR EXISTS (SELECT 1 FROM session s WHERE s.id = -session.id)"} {
			p := l.policy("session", func(p *policy.Policy) { p.Unless = unless; p.Name = unless })
			tab, err := db.Inspect(t.Context(), "session")
			if err != nil {
				t.Fatal(err)
			}
			if err := Refused(Judge(p, tab, db.Described())); err != nil {
				t.Fatal(err)
			}
			j := l.job(p)
			if err := j.ChooseStrategy(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := l.drain(j, 7)
			if got.outcomes["blocked"] != 1 || strings.Contains(unless, "99") && got.outcomes["deleted"] != 19 {
				t.Errorf("outcomes %v", got.outcomes)
			}
			if _, err := db.DropReceipts(t.Context(), j.run); err != nil {
				t.Error(err)
			}
		}
		if diff := cmp.Diff([]int{4}, l.ids("SELECT id FROM session")); diff != "" {
			t.Error(diff)
		}
	})
}

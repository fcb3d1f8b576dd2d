package target

import (
	"strings"
	"testing"

	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/policy"
)

// The setting whose SQL the database does not accept is named.
func TestProbe(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(2)
		l.exec("CREATE TABLE fine (id bigint PRIMARY KEY, session_id bigint NOT NULL)")
		for _, c := range []struct {
			edit func(*policy.Policy)
			want []string // parts of the message; none: all is well
		}{
			{func(p *policy.Policy) {}, nil},
			{func(p *policy.Policy) {
				p.Unless = "EXISTS (SELECT 1 FROM fine f WHERE f.session_id = session.id)"
				p.Where = "state = 'open'"
			}, nil},
			{func(p *policy.Policy) {
				p.Unless = "EXISTS (SELECT 1 FROM fines f WHERE f.session_id = session.id)"
			}, []string{"unless", "fines"}},
			{func(p *policy.Policy) { p.Where = "staet = 'open'" }, []string{"where", "staet"}},
			{func(p *policy.Policy) { p.Trigger.Column, p.Trigger.Expr, p.Trigger.Type = "", "nosuch", "timestamptz" }, []string{"the trigger's expr", "nosuch"}},
		} {
			p := l.policy("session", c.edit)
			if p.Trigger.Expr != "" && l.engine == MySQL {
				p.Trigger.Type = "datetime"
			}
			if p.Trigger.Expr != "" && l.engine == SQLite {
				p.Trigger.Type = ""
			}
			found, err := l.job(p).Probe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if (len(found) == 0) != (c.want == nil) {
				t.Errorf("want %q, got %+v", c.want, found)
				continue
			}
			for _, w := range c.want {
				if f := found[0]; f.Level != LevelRefuse || f.Code != "policy_sql" || !strings.Contains(f.Message, w) {
					t.Errorf("want %q, got %+v", w, f)
				}
			}
		}
	})
}

// A table that a guard reads and our role may not, and curfew's own tables, are found out without a run.
func TestProbeRights(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.sessions(2)
		l.exec("CREATE TABLE fine (id bigint PRIMARY KEY, session_id bigint NOT NULL)")
		var url, account string
		if l.engine == Postgres {
			url, account = dbtest.PostgresRole(t, l.url)
		} else {
			url, account = dbtest.MariaDBUser(t, l.url)
		}
		grants := GrantSQL(l.engine, account, []Use{{Table: "session", Delete: true}}, nil)
		for _, g := range grants {
			if !strings.Contains(g, "receipt") && !strings.Contains(g, "hold_epoch") {
				l.exec(g)
			}
		}
		db, err := Open(t.Context(), "lab", url, OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		l.db = db
		j := l.job(l.policy("session", func(p *policy.Policy) {
			p.Unless = "EXISTS (SELECT 1 FROM fine f WHERE f.session_id = session.id)"
		}))
		found, err := j.Probe(t.Context())
		if err != nil || len(found) != 1 {
			t.Fatalf("%+v, %v", found, err)
		}
		if !strings.Contains(found[0].Message, "unless") || found[0].Statement == "" {
			t.Errorf("%+v", found[0])
		}
		l.exec(found[0].Statement)
		if found, err := j.Probe(t.Context()); err != nil || len(found) != 0 {
			t.Errorf("after the grant: %+v, %v", found, err)
		}

		own, err := db.CheckOwn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if text := codes(own); !strings.Contains(text, "refuse own_tables") || len(own) < 3 {
			t.Errorf("own tables: %+v", own)
		}
		for _, f := range own {
			l.exec(f.Statement)
		}
		if own, err := db.CheckOwn(t.Context()); err != nil || len(own) != 0 {
			t.Errorf("after the statements it prints: %+v, %v", own, err)
		}
	})
}

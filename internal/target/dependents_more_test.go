package target

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/policy"
)

// A row that the list's earlier steps took away is what on of a later one asks about: all is found before the first delete. What
// goes last is here what the others reference.
func TestDependentsFoundFirst(t *testing.T) {
	onEach(t, func(l *lab) {
		typ, _ := l.instant()
		l.exec(`CREATE TABLE box (id bigint NOT NULL PRIMARY KEY);
CREATE TABLE org (id bigint NOT NULL PRIMARY KEY, at ` + typ + ` NOT NULL);
CREATE TABLE person (id bigint NOT NULL PRIMARY KEY, org_id bigint NOT NULL REFERENCES org (id), box_id bigint REFERENCES box (id));
INSERT INTO box VALUES (1), (2), (3), (4);
INSERT INTO org VALUES (1, ` + l.lit(asOf.Add(-time.Hour)) + `), (2, ` + l.lit(asOf.Add(time.Hour)) + `);
INSERT INTO person VALUES (1, 1, 1), (2, 1, 2), (3, 2, 3)`)
		p := l.policy("org", func(p *policy.Policy) {
			p.Action.Dependents = &policy.Dependents{List: []policy.Dependent{{Table: "person", On: "person.org_id = org.id"},
				{Table: "box", On: "EXISTS (SELECT 1 FROM person h WHERE h.box_id = box.id AND h.org_id = org.id)"}}}
			// Asked again after the people are gone, these would keep the organisation.
			p.Where = "EXISTS (SELECT 1 FROM person h WHERE h.org_id = org.id)"
			p.Unless = "NOT EXISTS (SELECT 1 FROM person h WHERE h.org_id = org.id)"
		})
		if err := Refused(l.fit(p)); err != nil {
			t.Fatal(err)
		}
		j := l.job(p)
		if found, err := j.Probe(t.Context()); err != nil || Refused(found) != nil {
			t.Fatal(found, err)
		}
		got := l.drain(j, 10)
		if got.outcomes["deleted"] != 1 || got.cascaded != 4 {
			t.Errorf("%v, %d cascaded, %v", got.outcomes, got.cascaded, got.rows)
		}
		if diff := cmp.Diff([]int{3, 4}, l.ids("SELECT id FROM box ORDER BY id")); diff != "" {
			t.Error(diff)
		}
	})
}

// Children that the database takes along or lets go of are counted and accepted as ever, those of children too.
func TestDependentsWithCascades(t *testing.T) {
	onEach(t, func(l *lab) {
		l.orgs("")
		l.exec(`CREATE TABLE tag (id bigint NOT NULL PRIMARY KEY, post_id bigint NOT NULL, CONSTRAINT tag_post FOREIGN KEY (post_id) REFERENCES post (id) ON DELETE CASCADE);
CREATE TABLE tagnote (id bigint NOT NULL PRIMARY KEY, tag_id bigint NOT NULL, CONSTRAINT tagnote_tag FOREIGN KEY (tag_id) REFERENCES tag (id));
CREATE TABLE log (id bigint NOT NULL PRIMARY KEY, member_id bigint, CONSTRAINT log_member FOREIGN KEY (member_id) REFERENCES member (id) ON DELETE SET NULL);
INSERT INTO tag VALUES (1, 101), (2, 501);
INSERT INTO tagnote VALUES (1, 1), (2, 2);
INSERT INTO log VALUES (1, 11), (2, 51)`)
		p := l.policy("org", auto)
		if err := Refused(l.fit(p)); err == nil || !strings.Contains(err.Error(), "cascade: [log]") {
			t.Fatalf("SET NULL was not refused: %v", err)
		}
		p.Cascade = []string{"log"}
		if err := Refused(l.fit(p)); err != nil {
			t.Fatal(err)
		}
		list := l.policy("org", func(p *policy.Policy) { listed(p); p.Cascade = []string{"log"} })
		if err := Refused(l.fit(list)); err == nil || !strings.Contains(err.Error(), "tag (post_id) ON DELETE CASCADE") {
			t.Errorf("a cascade that is not listed: %v", err)
		}
		got := l.drain(l.job(p), 3)
		if got.outcomes["deleted"] != 4 || got.cascaded != 4*perOrg+2 {
			t.Errorf("%v, %d cascaded, %v", got.outcomes, got.cascaded, got.rows)
		}
		if diff := cmp.Diff([]int{1, 2}, l.ids("SELECT id FROM log ORDER BY id")); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]int{2}, l.ids("SELECT t.id FROM tag t JOIN tagnote n ON n.tag_id = t.id")); diff != "" {
			t.Error(diff)
		}
	})
}

// Much hangs on a few rows: a batch takes so much along and hands the rest on; a single row with very much goes whole.
func TestDependentsFanOut(t *testing.T) {
	onEach(t, func(l *lab) {
		l.orgs("")
		var rows []string
		for o := 1; o <= 4; o++ {
			for i := range 1500 {
				rows = append(rows, fmt.Sprintf("(%d, %d)", o*10000+i, o*100+1))
			}
		}
		l.exec("INSERT INTO mark (id, post_id) VALUES " + strings.Join(rows, ", "))
		p := l.policy("org", func(p *policy.Policy) { auto(p); p.Batch.Rows = 100 }) // so 1000 may go along
		j := l.job(p)
		res, err := j.Execute(t.Context(), asOf, l.work(l.pages(j, 100)[0]))
		if err != nil {
			t.Fatal(err)
		}
		if res.Outcomes["deleted"] != 1 || res.Cascaded != perOrg+1500 || res.NDefer != 3 {
			t.Errorf("the first batch: %v, %d cascaded, %d handed on", res.Outcomes, res.Cascaded, res.NDefer)
		}
		got := l.drain(l.job(l.policy("org", func(p *policy.Policy) { auto(p); p.Batch.Rows = 100; p.Name = "rest" })), 100)
		if got.outcomes["deleted"] != 3 || got.cascaded != 3*(perOrg+1500) {
			t.Errorf("the rest: %v, %d cascaded", got.outcomes, got.cascaded)
		}
		if diff := cmp.Diff(whole(5, 6), l.left()); diff != "" {
			t.Error(diff)
		}
	})
}

// More than can be held in memory is told, and nothing of it goes.
func TestDependentsTooMany(t *testing.T) {
	most := maxHanging
	maxHanging = perOrg
	t.Cleanup(func() { maxHanging = most })
	onEach(t, func(l *lab) {
		l.orgs("")
		l.exec("INSERT INTO mark (id, post_id) VALUES (9999, 201)")
		got := l.drain(l.job(l.policy("org", auto)), 100)
		if diff := cmp.Diff(map[string]int64{"deleted": 3, "failed": 1}, got.outcomes); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(whole(2, 5, 6), l.left()); diff != "" {
			t.Error(diff)
		}
	})
}

// Rows that reference each other in a circle, across tables: they go where a constraint can be deferred, else they are blocked
// whole. A row of the policy's own table goes by its own time only.
func TestDependentsCircle(t *testing.T) {
	for _, constraints := range []string{"", "DEFERRABLE INITIALLY DEFERRED"} {
		onEach(t, func(l *lab) {
			l.orgs(constraints)
			defers := constraints != "" && l.engine != MySQL
			switch {
			case l.engine == SQLite:
				l.exec("ALTER TABLE org ADD COLUMN owner_id bigint REFERENCES member (id) " + constraints)
			case l.engine == MySQL:
				l.exec("ALTER TABLE org ADD COLUMN owner_id bigint, ADD CONSTRAINT org_owner FOREIGN KEY (owner_id) REFERENCES member (id)")
			default:
				l.exec("ALTER TABLE org ADD COLUMN owner_id bigint CONSTRAINT org_owner REFERENCES member (id) " + constraints)
			}
			l.exec("UPDATE org SET owner_id = 11 WHERE id = 1") // a circle
			l.exec("UPDATE org SET owner_id = 32 WHERE id = 5") // 5 stays, and with it 3
			l.exec("UPDATE member SET boss_id = 44 WHERE id = 41")
			l.exec("UPDATE member SET boss_id = 44 WHERE id = 43") // 4: 43 and 44 lead each other
			got := l.drain(l.job(l.policy("org", auto)), 100)
			want, left := map[string]int64{"deleted": 3, "blocked": 1}, whole(3, 5, 6)
			switch {
			case !defers && l.engine == MySQL: // InnoDB judges each row by itself
				want, left = map[string]int64{"deleted": 1, "blocked": 3}, whole(1, 3, 4, 5, 6)
			case !defers: // in one statement the members let each other go
				want, left = map[string]int64{"deleted": 2, "blocked": 2}, whole(1, 3, 5, 6)
			}
			if diff := cmp.Diff(want, got.outcomes); diff != "" {
				t.Errorf("deferred %v: %s %v", defers, diff, got.rows)
			}
			if diff := cmp.Diff(left, l.left()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A trigger that keeps one of the rows that hang on an organisation keeps it whole.
func TestDependentsVeto(t *testing.T) {
	engineIn(t, []Engine{Postgres, SQLite}, func(l *lab) {
		l.orgs("")
		if l.engine == Postgres {
			l.exec("CREATE FUNCTION veto() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.id = 2002 THEN RETURN NULL; END IF; RETURN OLD; END $$;\nCREATE TRIGGER veto BEFORE DELETE ON mark FOR EACH ROW EXECUTE FUNCTION veto()")
		} else {
			l.exec("CREATE TRIGGER veto BEFORE DELETE ON mark WHEN OLD.id = 2002 BEGIN SELECT RAISE(IGNORE); END")
		}
		p := l.policy("org", auto)
		if err := Refused(l.fit(p)); err == nil || !strings.Contains(err.Error(), "triggers: [veto]") {
			t.Fatalf("a trigger of a dependent: %v", err)
		}
		p.Triggers = []string{"veto"}
		if err := Refused(l.fit(p)); err != nil {
			t.Fatal(err)
		}
		got := l.drain(l.job(p), 100)
		if diff := cmp.Diff(map[string]int64{"deleted": 3, "blocked": 1}, got.outcomes); diff != "" || !strings.Contains(got.rows[0].Reason, "mark") {
			t.Error(diff, got.rows)
		}
		if diff := cmp.Diff(whole(2, 5, 6), l.left()); diff != "" {
			t.Error(diff)
		}
	})
}

// What other sessions do between the scan and the commit: a renewal keeps the organisation with all of it, a child that came
// meanwhile goes along, a child of another organisation can be written at any moment, and one locked by somebody is waited for.
func TestDependentsConcurrent(t *testing.T) {
	onEach(t, func(l *lab) {
		l.orgs("")
		j := l.job(l.policy("org", auto))
		pages := l.pages(j, 1000)
		l.exec("UPDATE org SET at = " + l.lit(asOf.Add(time.Hour)) + " WHERE id = 2;\nINSERT INTO post VALUES (199, 1, 11);\nINSERT INTO mark VALUES (1999, 199, 51)")
		if l.engine != SQLite { // there our transaction keeps all writers out
			l.atPoint("gathered", func() {
				l.exec("INSERT INTO post VALUES (598, 5, 51);\nINSERT INTO mark VALUES (5998, 598, 52)")
				TestHook = nil
			})
		}
		got := l.execute(j, pages)
		if diff := cmp.Diff(map[string]int64{"deleted": 3, "no_longer_due": 1}, got.outcomes); diff != "" || got.cascaded != 3*perOrg+2 {
			t.Error(diff, got.cascaded, got.rows)
		}
		if diff := cmp.Diff(whole(2, 5, 6), l.left()); diff != "" {
			t.Error(diff)
		}
	})
}

// Nothing can come to hang on a row that a batch has found: the insert waits, and then fails as the row is gone.
func TestDependentsInsertWaits(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.orgs("")
		j := l.job(l.policy("org", auto))
		pages := l.pages(j, 1000)
		inserted := make(chan error, 1)
		l.atPoint("gathered", func() {
			TestHook = nil
			go func() {
				_, err := l.other.SQL.Exec("INSERT INTO mark VALUES (1999, 101, 51)")
				inserted <- err
			}()
			l.waitBlocked()
		})
		got := l.execute(j, pages)
		// InnoDB may see a deadlock instead, and sacrifice the insert, or us: then we try again, and it goes along.
		if err := <-inserted; classify(err) != classConstraint && l.engine == Postgres {
			t.Errorf("the insert: %v", err)
		}
		if got.outcomes["deleted"] != 4 {
			t.Errorf("%v %v", got.outcomes, got.rows)
		}
		if diff := cmp.Diff(whole(5, 6), l.left()); diff != "" {
			t.Error(diff)
		}
	})
}

// A row that hangs on one organisation is locked by somebody: the others go at once, and that one when it is free.
func TestDependentsLocked(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.orgs("")
		l.waits(50*time.Millisecond, 20*time.Second)
		var many []string // of a table that is to go for the most part MySQL reads every row, and waits for each
		for i := range 300 {
			many = append(many, fmt.Sprintf("(%d, 601)", 7000+i))
		}
		l.exec("INSERT INTO mark (id, post_id) VALUES " + strings.Join(many, ", "))
		j := l.job(l.policy("org", auto))
		commit := l.hold("UPDATE mark SET member_id = NULL WHERE id = 2001")
		res, err := j.Execute(t.Context(), asOf, l.work(l.pages(j, 1000)[0]))
		if err != nil {
			t.Fatal(err)
		}
		if res.Outcomes["deleted"] != 3 || res.NDefer != 1 {
			commit()
			t.Fatalf("outcomes %v, %d handed on; left %v", res.Outcomes, res.NDefer, l.left())
		}
		if diff := cmp.Diff(whole(2, 5, 6), l.left()); diff != "" {
			t.Error(diff)
		}
		more, err := Split(res.Deferred, 1000)
		if err != nil {
			t.Fatal(err)
		}
		waiting := make(chan sums, 1)
		go func() { waiting <- l.execute(j, []*Batch{&more[0]}) }()
		l.waitBlocked()
		commit()
		if got := <-waiting; got.outcomes["deleted"] != 1 || got.cascaded != perOrg {
			t.Errorf("%v", got)
		}
		if diff := cmp.Diff(whole(5, 6), l.left()); diff != "" {
			t.Error(diff)
		}
	})
}

// A hold on a data subject keeps the organisation that one of its rows hangs on.
func TestDependentsHeld(t *testing.T) {
	onEach(t, func(l *lab) {
		l.orgs("")
		l.exec("INSERT INTO " + dialectFor(l.db.server).own("hold") + " (id, name, relation, conditions" + map[bool]string{true: ", placed_at", false: ""}[l.engine != Postgres] + ") VALUES ('h', 'h', '*', '[{\"column\": \"\", \"value\": \"23\"}]'" +
			map[bool]string{true: ", '2026-01-01'", false: ""}[l.engine != Postgres] + ")")
		p := l.policy("org", func(p *policy.Policy) {
			listed(p)
			p.Subject = "id"
			p.Action.Dependents.List[2].Subject = "id"
		})
		got := l.drain(l.job(p), 100)
		if diff := cmp.Diff(map[string]int64{"deleted": 3, "held": 1}, got.outcomes); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(whole(2, 5, 6), l.left()); diff != "" {
			t.Error(diff)
		}
	})
}

// A foreign key to a dependent that appears while a run is under way stops it, as one to the table itself does.
func TestDependentsSchemaChanged(t *testing.T) {
	engineIn(t, []Engine{Postgres, SQLite}, func(l *lab) {
		l.orgs("")
		j := l.job(l.policy("org", auto))
		pages := l.pages(j, 1)
		l.exec("CREATE TABLE late (id bigint NOT NULL PRIMARY KEY, mark_id bigint REFERENCES mark (id) ON DELETE CASCADE)")
		if _, err := j.Execute(t.Context(), asOf, l.work(pages[0])); err == nil || !strings.Contains(err.Error(), ErrSchemaChanged.Error()) {
			t.Errorf("error %v", err)
		}
		if diff := cmp.Diff(whole(1, 2, 3, 4, 5, 6), l.left()); diff != "" {
			t.Error(diff)
		}
	})
}

// A batch that ends anywhere before its commit, as when its process is killed, leaves everything; whoever follows does all of it
// once, and the receipt answers after that.
func TestDependentsCutShort(t *testing.T) {
	onEach(t, func(l *lab) {
		l.orgs("")
		j := l.job(l.policy("org", auto))
		w := l.work(l.pages(j, 1000)[0])
		for _, at := range []string{"begun", "claimed", "found", "gathered", "changed", "completed"} {
			l.atPoint(at, func() { panic("killed") })
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("no batch came to %s", at)
					}
				}()
				_, _ = j.Execute(t.Context(), asOf, w)
			}()
			TestHook = nil
			if diff := cmp.Diff(whole(1, 2, 3, 4, 5, 6), l.left()); diff != "" {
				t.Fatalf("ended at %s: %s", at, diff)
			}
		}
		for i := range 2 {
			res, err := j.Execute(t.Context(), asOf, w)
			if err != nil || res.Outcomes["deleted"] != 4 || res.Cascaded != 4*perOrg || res.Settled != (i == 1) {
				t.Errorf("%+v %v", res, err)
			}
		}
		if diff := cmp.Diff(whole(5, 6), l.left()); diff != "" {
			t.Error(diff)
		}
	})
}

// What check has to say of a list that does not fit.
func TestDependentsJudged(t *testing.T) {
	list := func(deps ...policy.Dependent) func(*policy.Policy) {
		return func(p *policy.Policy) { p.Action.Dependents = &policy.Dependents{List: deps} }
	}
	onEach(t, func(l *lab) {
		l.orgs("")
		l.exec("CREATE TABLE stray (id bigint NOT NULL PRIMARY KEY, org bigint);\nCREATE TABLE keyless (org_id bigint REFERENCES org (id))")
		for want, edit := range map[string]func(*policy.Policy){
			"there is no table nothing":                      list(policy.Dependent{Table: "nothing"}),
			"org is the policy's own table":                  list(policy.Dependent{Table: "org"}),
			"bill is listed twice":                           list(policy.Dependent{Table: "bill"}, policy.Dependent{Table: "bill"}),
			"no foreign key leads from stray to org":         list(policy.Dependent{Table: "stray"}),
			"put mark before post":                           list(policy.Dependent{Table: "post"}, policy.Dependent{Table: "mark"}, policy.Dependent{Table: "member"}),
			"keyless has neither a primary key nor a unique": list(policy.Dependent{Table: "keyless", On: "keyless.org_id = org.id"}),
			`subject: table bill has no column "who"`:        list(policy.Dependent{Table: "bill", Subject: "who"}),
		} {
			if err := Refused(l.fit(l.policy("org", edit))); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("want %q, got %v", want, err)
			}
		}
		found := l.fit(l.policy("org", list(policy.Dependent{Table: "stray", On: "stray.org = org.id"})))
		if err := Refused(found); err != nil {
			t.Error(err)
		}
		best := false
		for _, f := range found {
			best = best || f.Code == "dependent_best_effort"
		}
		if best != (l.engine != SQLite) {
			t.Errorf("%v", found)
		}
		j := l.job(l.policy("org", list(policy.Dependent{Table: "stray", On: "stray.nothing = org.id"})))
		if found, err := j.Probe(t.Context()); err != nil || Refused(found) == nil {
			t.Errorf("on that names no column: %v %v", found, err)
		}
	})
}

// The rights that check asks for are enough: no more is needed for a whole run.
func TestDependentsGrants(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.orgs("")
		var url, account string
		if l.engine == Postgres {
			url, account = dbtest.PostgresRole(t, l.url)
		} else {
			url, account = dbtest.MariaDBUser(t, l.url)
		}
		for _, g := range GrantSQL(l.engine, account, []Use{{Table: "org", Delete: true}}, []string{"mark", "post", "member", "bill"}) {
			l.exec(g)
		}
		db, err := Open(t.Context(), "lab", url, OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		l.db = db
		p := l.policy("org", auto)
		var statements []string
		for _, f := range l.fit(p) {
			if f.Code == "dependent_rights" {
				statements = append(statements, f.Statement)
			}
		}
		if len(statements) != 4 {
			t.Fatalf("rights that lack: %v", statements)
		}
		for _, s := range statements {
			l.exec(s)
		}
		if err := Refused(l.fit(p)); err != nil {
			t.Fatal(err)
		}
		if got := l.drain(l.job(p), 100); got.outcomes["deleted"] != 4 || got.cascaded != 4*perOrg {
			t.Errorf("%v %v", got.outcomes, got.rows)
		}
	})
}

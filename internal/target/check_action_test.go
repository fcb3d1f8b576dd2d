package target

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/policy"
)

// judged are the codes of what keeps a policy from running on the live tables.
func (l *lab) judged(p *policy.Policy) []string {
	l.Helper()
	tab, err := l.db.InspectFor(l.Context(), p)
	if err != nil {
		l.Fatal(err)
	}
	var codes []string
	for _, f := range Judge(p, tab, l.db.Described()) {
		if f.Level == LevelRefuse && !slices.Contains(codes, f.Code) {
			codes = append(codes, f.Code)
		}
	}
	return codes
}

// What cannot become of a column is refused before a run begins.
func TestJudgeChanges(t *testing.T) {
	onEach(t, func(l *lab) {
		typ, _ := l.instant()
		l.exec("CREATE TABLE rec (id bigint NOT NULL PRIMARY KEY, at " + typ + ` NOT NULL, code varchar(20) NOT NULL, mail varchar(60), n smallint, d decimal(4,1), day date, plain varchar(20), other varchar(20),
			twice integer GENERATED ALWAYS AS (id * 2) STORED, CONSTRAINT rec_code UNIQUE (code), CONSTRAINT rec_mail UNIQUE (mail, n))`)
		l.exec("CREATE TABLE child (id bigint PRIMARY KEY, code varchar(20), FOREIGN KEY (code) REFERENCES rec (code))")
		week, _ := policy.ParsePeriod("7d")
		yes := &policy.Value{Kind: policy.BoolValue, Text: "true"}
		strict := l.engine != SQLite // where each value has a type of its own
		for _, c := range []struct {
			kind   policy.ActionKind
			change policy.Change
			want   string // "" for what is accepted
			always bool   // on SQLite too
		}{
			{policy.Set, policy.Change{Column: "nothing", Value: text("x")}, "column_missing", true},
			{policy.Set, policy.Change{Column: "id", Value: num("1")}, "column_key", true},
			{policy.Set, policy.Change{Column: "twice", Value: num("1")}, "column_generated", true},
			{policy.Set, policy.Change{Column: "code", Value: text("x")}, "column_referenced", true},
			{policy.Set, policy.Change{Column: "at", Value: text("2030-01-01")}, "column_trigger", true},
			{policy.Set, policy.Change{Column: "at", AsOfPlus: &week}, "", true},
			{policy.Anonymise, policy.Change{Column: "at", Truncate: policy.ToYear}, "column_trigger", true},
			{policy.Set, policy.Change{Column: "code", Value: null}, "column_referenced", true},
			{policy.Set, policy.Change{Column: "at", Value: null}, "column_trigger", true},
			{policy.Set, policy.Change{Column: "plain", Value: text(strings.Repeat("x", 21))}, "column_value", false},
			{policy.Set, policy.Change{Column: "plain", Value: text(strings.Repeat("★", 20))}, "", true},
			{policy.Anonymise, policy.Change{Column: "plain", Hash: true}, "column_value", false}, // too short
			{policy.Anonymise, policy.Change{Column: "mail", Hash: true}, "", true},
			{policy.Anonymise, policy.Change{Column: "n", Hash: true}, "column_value", false},
			{policy.Set, policy.Change{Column: "n", Value: num("40000")}, "column_value", false},
			{policy.Set, policy.Change{Column: "n", Value: num("1.5")}, "column_value", false},
			{policy.Set, policy.Change{Column: "n", Value: text("many")}, "column_value", false},
			{policy.Set, policy.Change{Column: "n", Value: yes}, "", true},
			{policy.Set, policy.Change{Column: "n", AsOfPlus: &week}, "column_value", true}, // in which unit?
			{policy.Set, policy.Change{Column: "d", Value: num("1.25")}, "column_value", false},
			{policy.Set, policy.Change{Column: "d", Value: num("1234")}, "column_value", false},
			{policy.Set, policy.Change{Column: "d", Value: num("123.4")}, "", true},
			{policy.Set, policy.Change{Column: "day", Value: text("tomorrow")}, "column_value", false},
			{policy.Anonymise, policy.Change{Column: "day", Band: 3}, "column_value", false},
			{policy.Anonymise, policy.Change{Column: "n", Prefix: 3}, "column_value", false},
			{policy.Anonymise, policy.Change{Column: "n", Truncate: policy.ToMonth}, "column_value", false},
		} {
			p := l.policy("rec", func(p *policy.Policy) {
				p.Action = policy.Action{Kind: c.kind, Columns: []policy.Change{c.change, {Column: "other", Value: text("done")}}}
			})
			var want []string
			if c.want != "" && (strict || c.always) {
				want = []string{c.want}
			}
			if diff := cmp.Diff(want, l.judged(p)); diff != "" {
				l.Errorf("%s %+v: %s", c.kind, c.change, diff)
			}
		}
		// A unique index all of whose columns would be the same in each row.
		p := l.policy("rec", func(p *policy.Policy) {
			p.Action = policy.Action{Kind: policy.Set, Columns: []policy.Change{{Column: "mail", Value: text("x")}, {Column: "n", Value: num("1")}}}
		})
		if diff := cmp.Diff([]string{"column_unique"}, l.judged(p)); diff != "" {
			l.Error(diff)
		}
	})
}

// An archive that would not hold each row as it is, once, is refused.
func TestJudgeArchive(t *testing.T) {
	onEach(t, func(l *lab) {
		typ, _ := l.instant()
		l.exec("CREATE TABLE rec (id bigint NOT NULL PRIMARY KEY, at " + typ + " NOT NULL, name varchar(40), n integer)")
		l.exec("CREATE TABLE node (id bigint NOT NULL PRIMARY KEY, at " + typ + " NOT NULL, up bigint, FOREIGN KEY (up) REFERENCES node (id) ON DELETE CASCADE)")
		l.exec("CREATE TABLE node_old (id bigint NOT NULL PRIMARY KEY, at " + typ + " NOT NULL, up bigint)")
		good := "id bigint NOT NULL PRIMARY KEY, at " + typ + " NOT NULL, name varchar(40), n integer"
		for name, c := range map[string]struct {
			ddl  string
			want []string
			only []Engine
		}{
			"good":          {ddl: good},
			"more":          {ddl: good + ", moved varchar(9) DEFAULT 'x' NOT NULL, note varchar(9)"},
			"wider":         {ddl: strings.Replace(strings.Replace(good, "varchar(40)", "varchar(80)", 1), "n integer", "n bigint", 1)},
			"without_key":   {ddl: strings.Replace(good, " PRIMARY KEY", "", 1), want: []string{"archive_key"}},
			"column_less":   {ddl: strings.Replace(good, ", n integer", "", 1), want: []string{"archive_column"}},
			"narrower":      {ddl: strings.Replace(good, "varchar(40)", "varchar(39)", 1), want: []string{"archive_column"}, only: []Engine{Postgres, MySQL}},
			"smaller":       {ddl: strings.Replace(good, "n integer", "n smallint", 1), want: []string{"archive_column"}, only: []Engine{Postgres, MySQL}},
			"another_type":  {ddl: strings.Replace(good, "n integer", "n varchar(20)", 1), want: []string{"archive_column"}},
			"not_null":      {ddl: strings.Replace(good, "varchar(40)", "varchar(40) NOT NULL", 1), want: []string{"archive_column"}},
			"asks_for_more": {ddl: good + ", why varchar(9) NOT NULL", want: []string{"archive_column"}},
			"latin":         {ddl: strings.Replace(good, "varchar(40)", "varchar(40) CHARACTER SET latin1", 1), want: []string{"archive_column"}, only: []Engine{MySQL}},
			"other_key":     {ddl: strings.Replace(good, " PRIMARY KEY", "", 1) + ", PRIMARY KEY (id, at)", want: []string{"archive_key"}},
		} {
			if c.only != nil && !slices.Contains(c.only, l.engine) {
				continue
			}
			l.exec("CREATE TABLE " + name + " (" + c.ddl + ")")
			p := l.policy("rec", func(p *policy.Policy) { p.Action = policy.Action{Kind: policy.Archive, To: name} })
			if diff := cmp.Diff(c.want, l.judged(p)); diff != "" {
				l.Errorf("%s: %s", name, diff)
			}
		}
		l.exec("CREATE VIEW seen AS SELECT * FROM rec")
		for to, want := range map[string]string{"nowhere": "archive_missing", "rec": "archive_itself", "seen": "archive_table_is_view"} {
			p := l.policy("rec", func(p *policy.Policy) { p.Action = policy.Action{Kind: policy.Archive, To: to} })
			if diff := cmp.Diff([]string{want}, l.judged(p)); diff != "" {
				l.Errorf("%s: %s", to, diff)
			}
		}
		p := l.policy("node", func(p *policy.Policy) {
			p.Action, p.Cascade = policy.Action{Kind: policy.Archive, To: "node_old"}, []string{"node"}
		})
		if diff := cmp.Diff([]string{"archive_self_cascade"}, l.judged(p)); diff != "" {
			l.Error(diff)
		}
	})
}

// The triggers that an action sets off are to be accepted by name, those that it does not are not its concern.
func TestJudgeActionTriggers(t *testing.T) {
	eachAction(t, everyEngine, func(l *lab, a acting) {
		l.visits(1)
		if l.engine == Postgres {
			l.exec("CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
		}
		for _, g := range []struct{ name, event, table string }{{"on_insert", "INSERT", "visit"}, {"on_update", "UPDATE", "visit"}, {"on_delete", "DELETE", "visit"}, {"on_archive", "INSERT", "visit_old"}} {
			body := map[Engine]string{Postgres: "FOR EACH ROW EXECUTE FUNCTION nothing()", MySQL: "FOR EACH ROW SET @x = 1", SQLite: "BEGIN SELECT 1; END"}[l.engine]
			l.exec(fmt.Sprintf("CREATE TRIGGER %s AFTER %s ON %s %s", g.name, g.event, g.table, body))
		}
		accepted := []string{"on_update"}
		if a.kind == policy.Archive {
			accepted = []string{"on_delete", "on_archive"}
		}
		if diff := cmp.Diff([]string{"triggers_not_accepted"}, l.judged(l.acting(a, nil))); diff != "" {
			l.Error(diff)
		}
		if got := l.judged(l.acting(a, func(p *policy.Policy) { p.Triggers = accepted })); len(got) > 0 {
			l.Errorf("refused: %v", got)
		}
	})
}

// A role with the grants that install prints for these actions, and no others, can do the whole of a run.
func TestActionGrantsAreEnough(t *testing.T) {
	eachAction(t, []Engine{Postgres, MySQL}, func(l *lab, a acting) {
		l.visits(9)
		var url, account string
		if l.engine == Postgres {
			url, account = dbtest.PostgresRole(t, l.url)
		} else {
			url, account = dbtest.MariaDBUser(t, l.url)
			l.exec("ALTER TABLE visit ADD COLUMN touched timestamp NOT NULL DEFAULT '2020-01-01 00:00:00' ON UPDATE CURRENT_TIMESTAMP")
			l.exec("ALTER TABLE visit_old ADD COLUMN touched timestamp NOT NULL DEFAULT '2020-01-01 00:00:00'")
		}
		p := l.acting(a, nil)
		grants := GrantSQL(l.engine, account, UsesOf([]*policy.Policy{p}), nil)
		for _, g := range grants {
			l.exec(g)
			if a.kind != policy.Archive && strings.Contains(g, "DELETE") && !strings.Contains(g, "receipt") && !strings.Contains(g, "passage") {
				l.Errorf("more than is needed: %s", g)
			}
		}
		db, err := Open(t.Context(), "lab", url, OpenOptions{})
		if err != nil {
			l.Fatal(err)
		}
		defer db.Close()
		l.db = db
		if got := l.judged(p); len(got) > 0 {
			l.Fatalf("refused: %v", got)
		}
		j := l.job(p)
		if f, err := j.ProbeAction(t.Context()); err != nil || Refused(f) != nil {
			l.Fatal(f, err)
		}
		l.begin(j)
		if got := l.drain(j, 4); got.outcomes[a.kind.Outcome()] != 9 {
			l.Errorf("outcomes %v", got.outcomes)
		}
	})
}

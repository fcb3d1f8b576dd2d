package target

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/policy"
)

// A column that an action changes: its type in each engine, what is stored, and what becomes of it as each engine prints it.
type changed struct {
	name    string
	engines []Engine
	typ     string // "" for what types says
	types   map[Engine]string
	change  policy.Change
	zone    string
	values  map[string]string // SQL literal → text after; "NULL" for NULL
}

func texts3(pg, my, li string) map[Engine]string {
	return map[Engine]string{Postgres: pg, MySQL: my, SQLite: li}
}

func changedColumns() []changed {
	fortnight, _ := policy.ParsePeriod("14d")
	month, _ := policy.ParsePeriod("1mo")
	both := []Engine{Postgres, MySQL}
	return []changed{
		{name: "prefix", engines: everyEngine, types: texts3("varchar(20)", "varchar(20) CHARACTER SET utf8mb4", "varchar(20)"), change: policy.Change{Prefix: 3},
			values: map[string]string{"'81925'": "819", "'Zoë★x'": "Zoë", "'ab'": "ab", "''": "", "NULL": "NULL"}},
		{name: "prefix of a padded text", engines: both, typ: "char(8)", change: policy.Change{Prefix: 3}, values: map[string]string{"'81925'": "819", "'a'": "a"}},
		{name: "band", engines: everyEngine, typ: "integer", change: policy.Change{Band: 10}, values: map[string]string{"37": "30", "30": "30", "0": "0", "-7": "-10", "-10": "-10", "NULL": "NULL"}},
		{name: "band of small numbers", engines: both, typ: "smallint", change: policy.Change{Band: 7}, values: map[string]string{"32767": "32767", "-32760": "-32760", "13": "7"}},
		{name: "band of large numbers", engines: everyEngine, typ: "bigint", change: policy.Change{Band: 100000}, values: map[string]string{"999999999999999": "999999999900000", "99999": "0", "-1": "-100000"}},
		{name: "band of decimals", engines: both, typ: "decimal(10,2)", change: policy.Change{Band: 5}, values: map[string]string{"12.34": "10.00", "-0.01": "-5.00", "4.99": "0.00"}},
		{name: "band of doubles", engines: everyEngine, types: texts3("double precision", "double", "real"), change: policy.Change{Band: 10}, values: map[string]string{"37.5": "30", "-0.5": "-10", "20": "20"}},
		{name: "truncate a date", engines: both, typ: "date", change: policy.Change{Truncate: policy.ToYear}, values: map[string]string{"'1984-05-17'": "1984-01-01", "'1984-01-01'": "1984-01-01", "NULL": "NULL"}},
		{name: "truncate a time", engines: both, types: texts3("timestamp", "datetime(6)", ""), change: policy.Change{Truncate: policy.ToMonth}, zone: "Asia/Tokyo",
			values: map[string]string{"'1984-05-17 10:11:12.5'": "1984-05-01 00:00:00", "'1984-05-01 00:00:00'": "1984-05-01 00:00:00"}},
		{name: "truncate an instant", engines: both, types: texts3("timestamptz", "timestamp", ""), change: policy.Change{Truncate: policy.ToYear},
			values: map[string]string{"'1999-12-31 23:30:00'": "1999-01-01 00:00:00"}},
		{name: "truncate an instant by the calendar of a zone", engines: []Engine{Postgres}, typ: "timestamptz", change: policy.Change{Truncate: policy.ToYear}, zone: "Europe/Berlin",
			values: map[string]string{"'1999-12-31 23:30:00+00'": "1999-12-31 23:00:00+00", "'-infinity'": "-infinity"}},
		{name: "truncate a text", engines: everyEngine, typ: "varchar(40)", change: policy.Change{Truncate: policy.ToMonth}, values: map[string]string{
			"'2024-05-17'": "2024-05-01", "'2024-05-17T10:20:30.123Z'": "2024-05-01T00:00:00Z", "'2024-05-17 10:20+02:00'": "2024-05-01 00:00+02:00",
			"'2024-05-17 10:20:30-05'": "2024-05-01 00:00:00-05", "'soon'": "soon", "'2024-02-30'": "2024-02-30", "NULL": "NULL"}},
		{name: "a text", engines: everyEngine, typ: "varchar(20)", change: policy.Change{Value: text("gone")}, values: map[string]string{"'Jöns'": "gone", "'GONE'": "gone", "'gone'": "gone", "NULL": "gone", "'gone '": "gone"}},
		{name: "a text in latin1", engines: []Engine{MySQL}, typ: "varchar(20) CHARACTER SET latin1", change: policy.Change{Value: text("fährt")}, values: map[string]string{"'x'": "fährt", "'fahrt'": "fährt", "NULL": "fährt"}},
		{name: "a text where case is ignored", engines: []Engine{SQLite}, typ: "text COLLATE NOCASE", change: policy.Change{Value: text("gone")}, values: map[string]string{"'GONE'": "gone", "7": "gone"}},
		{name: "an empty text", engines: everyEngine, typ: "varchar(20)", change: policy.Change{Value: text("")}, values: map[string]string{"'x'": "", "NULL": ""}},
		{name: "null", engines: everyEngine, typ: "varchar(20)", change: policy.Change{Value: null}, values: map[string]string{"'x'": "NULL", "NULL": "NULL"}},
		{name: "a number", engines: everyEngine, typ: "integer", change: policy.Change{Value: num("-3")}, values: map[string]string{"7": "-3", "-3": "-3", "NULL": "-3"}},
		{name: "a number in a text", engines: everyEngine, typ: "varchar(9)", change: policy.Change{Value: num("3")}, values: map[string]string{"'7'": "3", "'3'": "3"}},
		{name: "a decimal", engines: both, typ: "decimal(6,2)", change: policy.Change{Value: num("0.5")}, values: map[string]string{"7": "0.50", "0.5": "0.50", "NULL": "0.50"}},
		{name: "a double", engines: everyEngine, types: texts3("double precision", "double", "real"), change: policy.Change{Value: num("0.1")}, values: map[string]string{"7": "0.1", "0.1": "0.1"}},
		{name: "a real", engines: []Engine{Postgres}, typ: "real", change: policy.Change{Value: num("0.1")}, values: map[string]string{"7": "0.1", "0.1": "0.1"}},
		{name: "true", engines: everyEngine, typ: "boolean", change: policy.Change{Value: &policy.Value{Kind: policy.BoolValue, Text: "true"}},
			values: map[string]string{"false": "true", "NULL": "true", "true": "true"}},
		{name: "a date", engines: both, typ: "date", change: policy.Change{Value: text("2000-01-31")}, values: map[string]string{"'2001-01-01'": "2000-01-31", "NULL": "2000-01-31"}},
		{name: "a moment", engines: both, types: texts3("timestamptz", "timestamp NULL", ""), change: policy.Change{Value: text("2000-01-31 12:00:00")}, zone: "Asia/Tokyo",
			values: map[string]string{"'2001-01-01 00:00:00'": "2000-01-31 03:00:00"}},
		{name: "bytes", engines: both, types: texts3("bytea", "varbinary(9)", ""), change: policy.Change{Value: text("ab")}, values: map[string]string{"'x'": "ab"}},
		{name: "an enum", engines: []Engine{MySQL}, typ: "enum('on','off')", change: policy.Change{Value: text("off")}, values: map[string]string{"'on'": "off", "NULL": "off"}},
		{name: "json", engines: []Engine{Postgres}, typ: "json", change: policy.Change{Value: text(`{}`)}, values: map[string]string{`'{"a": 1}'`: "{}", "NULL": "{}"}},
		{name: "as_of plus: an instant", engines: both, types: texts3("timestamptz", "timestamp NULL", ""), change: policy.Change{AsOfPlus: &fortnight}, values: map[string]string{"NULL": "2026-04-12 01:00:00"}},
		{name: "as_of plus: a time in the trigger's zone", engines: []Engine{MySQL}, typ: "datetime", change: policy.Change{AsOfPlus: &fortnight}, zone: "Asia/Tokyo", values: map[string]string{"NULL": "2026-04-12 01:00:00"}},
		{name: "as_of plus: a time in the policy's zone", engines: []Engine{Postgres}, typ: "timestamp", change: policy.Change{AsOfPlus: &fortnight}, zone: "Asia/Tokyo", values: map[string]string{"NULL": "2026-04-12 10:00:00"}},
		{name: "as_of plus: a day", engines: both, typ: "date", change: policy.Change{AsOfPlus: &month}, values: map[string]string{"NULL": "2026-04-29"}},
		{name: "as_of plus: a text", engines: []Engine{SQLite}, typ: "text", change: policy.Change{AsOfPlus: &fortnight}, values: map[string]string{"NULL": "2026-04-12 01:00:00"}},
	}
}

// Each column becomes what was asked for, in its own form; a second run finds nothing to do; and no other column changes.
func TestChangedColumns(t *testing.T) {
	for _, c := range changedColumns() {
		t.Run(c.name, func(t *testing.T) {
			engineIn(t, c.engines, func(l *lab) { c.try(l) })
		})
	}
}

func (c changed) try(l *lab) {
	typ, _ := l.instant()
	column := c.typ
	if column == "" {
		column = c.types[l.engine]
	}
	touched := ""
	if l.engine == MySQL {
		touched = ", touched timestamp NOT NULL DEFAULT '2020-01-01 00:00:00' ON UPDATE CURRENT_TIMESTAMP"
	}
	l.exec("CREATE TABLE rec (id bigint NOT NULL PRIMARY KEY, at " + typ + " NOT NULL, other varchar(20) NOT NULL, x " + column + touched + ")")
	want := map[int]string{}
	for literal, after := range c.values {
		id := len(want) + 1
		want[id] = after
		l.exec(fmt.Sprintf("INSERT INTO rec (id, at, other, x) VALUES (%d, %s, 'as it was', %s)", id, l.lit(asOf.Add(-time.Hour)), literal))
	}
	kind := policy.Anonymise
	c.change.Column = "x"
	changes := []policy.Change{c.change}
	if c.change.AsOfPlus != nil {
		kind = policy.Set
		changes = append(changes, policy.Change{Column: "other", Value: text("set")})
	}
	p := l.policy("rec", func(p *policy.Policy) {
		p.Action = policy.Action{Kind: kind, Columns: changes}
		if c.zone != "" {
			p.Timezone = c.zone
		}
	})
	tab, err := l.db.InspectFor(l.Context(), p)
	if err != nil {
		l.Fatal(err)
	}
	if err := Refused(Judge(p, tab, l.db.Described())); err != nil {
		l.Fatal(err)
	}
	j := l.job(p)
	if f, err := j.ProbeAction(l.Context()); err != nil || Refused(f) != nil {
		l.Fatal(err, f)
	}
	l.begin(j)
	got := l.drain(j, 1000)
	if got.outcomes[kind.Outcome()] != got.planned {
		l.Errorf("outcomes %v of %d", got.outcomes, got.planned)
	}
	print := map[Engine]string{Postgres: "x::text", MySQL: "CAST(x AS CHAR)", SQLite: "CAST(x AS TEXT)"}[l.engine]
	for id, after := range want {
		var x sql.NullString
		var n int
		if err := l.other.SQL.QueryRowContext(l.Context(), fmt.Sprintf("SELECT %s, (SELECT count(*) FROM rec) FROM rec WHERE id = %d", print, id)).Scan(&x, &n); err != nil {
			l.Fatal(err)
		}
		have := x.String
		if !x.Valid {
			have = "NULL"
		}
		if have != after && !sameForm(have, after) {
			l.Errorf("row %d is %q, want %q", id, have, after)
		}
	}
	if kind == policy.Anonymise {
		if n := l.ids("SELECT count(*) FROM rec WHERE other <> 'as it was'")[0]; n != 0 {
			l.Errorf("another column was changed in %d rows", n)
		}
	}
	if l.engine == MySQL {
		if n := l.ids("SELECT count(*) FROM rec WHERE touched <> '2020-01-01 00:00:00'")[0]; n != 0 {
			l.Errorf("the time of the last change was set anew in %d rows", n)
		}
	}
	p.Name = "again"
	if again := l.drain(l.job(p), 1000); again.planned != 0 {
		l.Errorf("a second run: %v", again.outcomes)
	}
}

// sameForm forgives what the engines print differently.
func sameForm(have, want string) bool {
	have = strings.TrimSuffix(strings.TrimSuffix(have, ".000000"), "+00")
	want = strings.TrimSuffix(want, "+00")
	return have == want || have == map[string]string{"true": "1", "ab": `\x6162`}[want] || strings.TrimSuffix(have, ".0") == want
}

// The hash of a value is the same wherever it stands in the column, says nothing of it, and a value that only looks like one is
// hashed all the same.
func TestHashedColumn(t *testing.T) {
	onEach(t, func(l *lab) {
		l.visits(300)
		l.exec("UPDATE visit SET name = 'Same' WHERE id <= 3")
		l.exec("UPDATE visit SET name = 'anon:joe' WHERE id = 4")
		p := l.policy("visit", func(p *policy.Policy) {
			p.Action = policy.Action{Kind: policy.Anonymise, Columns: []policy.Change{{Column: "name", Hash: true}, {Column: "state", Hash: true}}}
		})
		l.exec("ALTER TABLE visit DROP COLUMN state")
		l.exec("ALTER TABLE visit ADD COLUMN state varchar(40)") // NULL, which stays NULL
		got := l.drain(l.job(p), 1000)
		if got.outcomes["anonymised"] != 300 {
			l.Errorf("outcomes %v", got.outcomes)
		}
		if n := l.ids("SELECT count(DISTINCT name) FROM visit WHERE length(name) = 37")[0]; n != 298 {
			l.Errorf("%d different hashes", n)
		}
		if n := l.ids("SELECT count(*) FROM visit WHERE state IS NULL AND name <> 'anon:joe'")[0]; n != 300 {
			l.Errorf("%d rows have no state and a hash", n)
		}
	})
}

// A sentinel whose row is gone by the time of the change: the rows are blocked by the foreign key's name.
func TestSentinelGone(t *testing.T) {
	onEach(t, func(l *lab) {
		typ, _ := l.instant()
		l.exec("CREATE TABLE patron (id bigint NOT NULL PRIMARY KEY)")
		l.exec("INSERT INTO patron VALUES (1), (2)")
		l.exec("CREATE TABLE loan (id bigint NOT NULL PRIMARY KEY, at " + typ + " NOT NULL, patron bigint, CONSTRAINT loan_patron FOREIGN KEY (patron) REFERENCES patron (id))")
		for i := range 5 {
			l.exec(fmt.Sprintf("INSERT INTO loan VALUES (%d, %s, 2)", i+1, l.lit(asOf.Add(-time.Hour))))
		}
		p := l.policy("loan", func(p *policy.Policy) {
			p.Action = policy.Action{Kind: policy.Anonymise, Columns: []policy.Change{{Column: "patron", Sentinel: num("1")}}}
		})
		j := l.job(p)
		if f, err := j.ProbeAction(t.Context()); err != nil || len(f) != 0 {
			l.Errorf("findings %v, %v", f, err)
		}
		pages := l.pages(j, 1000)
		l.exec("DELETE FROM patron WHERE id = 1")
		f, err := j.ProbeAction(t.Context())
		if err != nil || len(f) != 1 || f[0].Code != "sentinel_missing" || f[0].Level != LevelRefuse {
			l.Errorf("findings %v, %v", f, err)
		}
		got := l.execute(j, pages)
		if diff := cmp.Diff(map[string]int64{"blocked": 5}, got.outcomes); diff != "" {
			l.Error(diff)
		}
		for _, r := range got.rows {
			if l.engine != SQLite && r.Reason != "loan_patron" {
				l.Errorf("reason %q", r.Reason)
			}
		}
		l.exec("INSERT INTO patron VALUES (1)")
		p.Name = "again"
		if got := l.drain(l.job(p), 2); got.outcomes["anonymised"] != 5 {
			l.Errorf("outcomes %v", got.outcomes)
		}
	})
}

// A row that is in the archive already, or that the archive's own trigger or constraint does not take, has failed; the rest goes.
func TestArchiveRefuses(t *testing.T) {
	onEach(t, func(l *lab) {
		l.visits(20)
		l.exec("INSERT INTO visit_old (id, at, name) SELECT id, at, 'there already' FROM visit WHERE id IN (4, 9)")
		switch l.engine {
		case Postgres:
			l.exec("ALTER TABLE visit_old ADD CONSTRAINT not_six CHECK (id <> 6)")
			l.exec(`CREATE FUNCTION skip() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.id = 7 THEN RETURN NULL; END IF; RETURN NEW; END $$`)
			l.exec(`CREATE TRIGGER skip BEFORE INSERT ON visit_old FOR EACH ROW EXECUTE FUNCTION skip()`)
		case MySQL:
			l.exec("ALTER TABLE visit_old ADD CONSTRAINT not_six CHECK (id <> 6)")
		default:
			l.exec(`CREATE TRIGGER skip BEFORE INSERT ON visit_old WHEN NEW.id = 7 BEGIN SELECT RAISE(IGNORE); END`)
		}
		a := actings()[2]
		got := l.drain(l.job(l.acting(a, func(p *policy.Policy) { p.Triggers = []string{"skip"} })), 7)
		want := map[Engine]map[string]int64{
			Postgres: {"archived": 16, "failed": 3, "blocked": 1}, MySQL: {"archived": 17, "failed": 3}, SQLite: {"archived": 17, "failed": 2, "blocked": 1}}[l.engine]
		if diff := cmp.Diff(want, got.outcomes); diff != "" {
			l.Error(diff)
		}
		reasons := map[string]int{}
		for _, r := range got.rows {
			reasons[r.Reason]++
			if strings.Contains(r.Reason, "Name") {
				l.Errorf("a reason quotes data: %q", r.Reason)
			}
		}
		if l.engine != SQLite && (reasons["not_six"] != 1 || reasons[map[Engine]string{Postgres: "visit_old_pkey", MySQL: "PRIMARY"}[l.engine]] != 2) {
			l.Errorf("reasons %v", reasons)
		}
		l.inOne(20)
		if n := l.ids("SELECT count(*) FROM visit_old WHERE name = 'there already'")[0]; n != 2 {
			l.Errorf("%d rows are as they were in the archive", n)
		}
	})
}

// A number 0 is a number, for which MariaDB would take the next one; and a row whose copy goes along with it stays.
func TestArchiveArrives(t *testing.T) {
	engineIn(t, everyEngine, func(l *lab) {
		typ, _ := l.instant()
		serial := map[Engine]string{MySQL: " AUTO_INCREMENT"}[l.engine]
		l.exec("CREATE TABLE ev (id bigint NOT NULL" + serial + " PRIMARY KEY, at " + typ + " NOT NULL)")
		l.exec("CREATE TABLE ev_old (id bigint NOT NULL" + serial + " PRIMARY KEY, at " + typ + " NOT NULL)")
		l.exec("INSERT INTO ev VALUES (7, '2001-01-01'), (5, '2001-01-01')")
		l.exec("UPDATE ev SET id = 0 WHERE id = 7")
		j := l.job(l.policy("ev", func(p *policy.Policy) { p.Action = policy.Action{Kind: policy.Archive, To: "ev_old"} }))
		if got := l.drain(j, 100); got.outcomes["archived"] != 2 {
			l.Error(got.outcomes)
		}
		if diff := cmp.Diff([]int{0, 5}, l.ids("SELECT id FROM ev_old ORDER BY id")); diff != "" {
			l.Error(diff)
		}
		l.exec("CREATE TABLE gone_too (id bigint NOT NULL PRIMARY KEY, at " + typ + " NOT NULL, FOREIGN KEY (id) REFERENCES ev (id) ON DELETE CASCADE)")
		l.exec("INSERT INTO ev VALUES (9, '2001-01-01')")
		p := l.policy("ev", func(p *policy.Policy) {
			p.Name, p.Action, p.Cascade = "again", policy.Action{Kind: policy.Archive, To: "gone_too"}, []string{"gone_too"}
		})
		if diff := cmp.Diff([]string{"archive_along"}, l.judged(p)); diff != "" {
			l.Error(diff)
		}
		if got := l.drain(l.job(p), 100); got.outcomes["blocked"] != 1 { // the foreign key came after check
			l.Error(got.outcomes)
		}
		if diff := cmp.Diff([]int{9}, l.ids("SELECT id FROM ev")); diff != "" {
			l.Error(diff)
		}
	})
}

// inOne checks that each of the visits is in the table or in the archive, and what is told of the archive's rows is what they were.
func (l *lab) inOne(n int) {
	l.Helper()
	if got := l.ids("SELECT count(*) FROM (SELECT id FROM visit UNION SELECT id FROM visit_old) u")[0]; got != n {
		l.Errorf("%d of %d rows are left in both tables together", got, n)
	}
	if got := l.ids("SELECT count(*) FROM visit v JOIN visit_old o ON o.id = v.id WHERE o.name <> 'there already'")[0]; got != 0 {
		l.Errorf("%d rows are in both tables", got)
	}
}

// Generated columns, an archive with columns of its own and an identity: each row arrives as it was.
func TestArchiveColumns(t *testing.T) {
	onEach(t, func(l *lab) {
		typ, _ := l.instant()
		id := map[Engine]string{Postgres: "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", MySQL: "bigint NOT NULL AUTO_INCREMENT PRIMARY KEY", SQLite: "integer PRIMARY KEY"}[l.engine]
		l.exec("CREATE TABLE act (id " + id + ", at " + typ + " NOT NULL, n integer NOT NULL, twice integer GENERATED ALWAYS AS (n * 2) STORED, thrice integer GENERATED ALWAYS AS (n * 3) STORED)")
		l.exec("CREATE TABLE old_act (note varchar(20) DEFAULT 'from curfew' NOT NULL, thrice integer, id " + id + ", twice integer GENERATED ALWAYS AS (n * 2) STORED, n integer NOT NULL, at " + typ + " NOT NULL)")
		for i := range 5 {
			l.exec(fmt.Sprintf("INSERT INTO act (at, n) VALUES (%s, %d)", l.lit(asOf.Add(-time.Hour)), i+10))
		}
		p := l.policy("act", func(p *policy.Policy) { p.Action = policy.Action{Kind: policy.Archive, To: "old_act"} })
		tab, err := l.db.InspectFor(t.Context(), p)
		if err != nil {
			l.Fatal(err)
		}
		if err := Refused(Judge(p, tab, l.db.Described())); err != nil {
			l.Fatal(err)
		}
		j := l.job(p)
		l.begin(j)
		if got := l.drain(j, 2); got.outcomes["archived"] != 5 {
			l.Errorf("outcomes %v", got.outcomes)
		}
		if n := l.ids("SELECT count(*) FROM old_act WHERE n = id + 9 AND twice = 2 * n AND thrice = 3 * n AND note = 'from curfew'")[0]; n != 5 {
			l.Errorf("%d rows arrived as they were", n)
		}
	})
}

// Children that go along are counted as with delete, and one that keeps the row keeps it out of the archive.
func TestArchiveChildren(t *testing.T) {
	onEach(t, func(l *lab) {
		l.visits(10)
		l.exec("CREATE TABLE note (id bigint PRIMARY KEY, visit_id bigint, FOREIGN KEY (visit_id) REFERENCES visit (id) ON DELETE CASCADE)")
		l.exec("CREATE TABLE claim (id bigint PRIMARY KEY, visit_id bigint, CONSTRAINT claim_visit FOREIGN KEY (visit_id) REFERENCES visit (id))")
		l.exec("INSERT INTO note VALUES (1, 3), (2, 3), (3, 4)")
		l.exec("INSERT INTO claim VALUES (1, 4)")
		got := l.drain(l.job(l.acting(actings()[2], func(p *policy.Policy) { p.Cascade = []string{"note"} })), 4)
		if diff := cmp.Diff(map[string]int64{"archived": 9, "blocked": 1}, got.outcomes); diff != "" || got.cascaded != 2 {
			l.Errorf("cascaded %d\n%s", got.cascaded, diff)
		}
		l.inOne(10)
	})
}

// What explain says of a row that was changed, and of one that was archived.
func TestExplainActions(t *testing.T) {
	eachAction(t, everyEngine, func(l *lab, a acting) {
		l.visits(2)
		j := l.job(l.acting(a, nil))
		before, err := j.Explain(t.Context(), []string{"1"})
		if err != nil || !before.Due || before.Done {
			l.Fatalf("before: %+v, %v", before, err)
		}
		l.drain(j, 10)
		after, err := j.Explain(t.Context(), []string{"1"})
		if err != nil {
			l.Fatal(err)
		}
		if a.kind == policy.Archive {
			if after.Exists || after.Fate == nil || after.Fate.Was != "archived" {
				l.Errorf("after: %+v", after)
			}
		} else if !after.Done || !after.InScope {
			l.Errorf("after: %+v", after)
		}
	})
}

// set may move the row's own clock: it is due again when the new time is up.
func TestSetMovesTheTrigger(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.visits(20)
		fortnight, _ := policy.ParsePeriod("14d")
		p := l.policy("visit", func(p *policy.Policy) {
			p.Action = policy.Action{Kind: policy.Set, Columns: []policy.Change{{Column: "at", AsOfPlus: &fortnight}, {Column: "state", Value: text("paused")}}}
		})
		for _, s := range []Strategy{ByTrigger, ByKey} {
			l.exec("UPDATE visit SET state = 'open', at = " + l.lit(asOf.Add(-time.Hour)))
			p.Name = string(s)
			j := l.job(p)
			if err := j.SetStrategy(s); err != nil {
				l.Fatal(err)
			}
			got := l.step(j, 3, func(int) {})
			if diff := cmp.Diff(map[string]int64{"set": 20}, got.outcomes); diff != "" {
				l.Errorf("%s: %s", s, diff)
			}
		}
		if n := l.ids("SELECT count(*) FROM visit WHERE at = " + l.lit(asOf.Add(14*24*time.Hour)))[0]; n != 20 {
			l.Errorf("%d rows have the new time", n)
		}
	})
}

// By place, where a changed row has another address, each is changed once.
func TestActionsByPlace(t *testing.T) {
	eachAction(t, []Engine{Postgres}, func(l *lab, a acting) {
		l.visits(1)
		l.exec(`INSERT INTO visit (id, at, name, state) SELECT g, '2026-03-29 01:00:00+00'::timestamptz + (random() - 0.7) * interval '100 days', 'Name ' || g, 'open' FROM generate_series(2, 3000) g`)
		l.exec("ANALYZE visit")
		due := l.ids("SELECT count(*) FROM visit WHERE at < '2026-03-29 01:00:00+00'")[0]
		j := l.job(l.acting(a, nil))
		l.begin(j)
		if err := j.SetStrategy(ByPlace); err != nil {
			l.Fatal(err)
		}
		if j.began.Horizon == "" {
			l.Skip("the planner chose another way")
		}
		got := l.step(j, 100, func(int) {})
		if diff := cmp.Diff(map[string]int64{a.kind.Outcome(): int64(due)}, got.outcomes); diff != "" || len(l.ids(a.done)) != due {
			l.Errorf("%d were due: %s", due, diff)
		}
	})
}

// What takes longer than a statement may is handed on whole, and nothing of it is changed.
func TestActionsTooLong(t *testing.T) {
	eachAction(t, []Engine{Postgres}, func(l *lab, a acting) {
		l.visits(6)
		event, row := "UPDATE", "NEW"
		if a.kind == policy.Archive {
			event, row = "DELETE", "OLD"
		}
		l.exec(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.2); RETURN ` + row + `; END $$`)
		l.exec(`CREATE TRIGGER slow BEFORE ` + event + ` ON visit FOR EACH ROW EXECUTE FUNCTION slow()`)
		l.exec(`DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET statement_timeout = ''500ms''', current_database()); END $$`)
		db, err := Open(t.Context(), "lab", l.url, OpenOptions{MaxConns: 4})
		if err != nil {
			l.Fatal(err)
		}
		defer db.Close()
		l.db = db
		j := l.job(l.acting(a, func(p *policy.Policy) { p.Triggers = []string{"slow"} }))
		w := l.work(l.pages(j, 1000)[0])
		_, err = j.Execute(t.Context(), asOf, w)
		if !errors.Is(err, ErrTooLong) {
			l.Fatalf("got %v", err)
		}
		l.expectRows(a, []int{}, upTo(6))
		res, err := j.Void(t.Context(), asOf, w, err)
		if err != nil || res.NDefer != 6 {
			l.Fatalf("%+v, %v", res, err)
		}
		one, err := Split(res.Deferred, 1)
		if err != nil {
			l.Fatal(err)
		}
		all := []*Batch{}
		for i := range one {
			all = append(all, &one[i])
		}
		if got := l.execute(j, all); got.outcomes[a.kind.Outcome()] != 6 {
			l.Errorf("outcomes %v", got.outcomes)
		}
	})
}

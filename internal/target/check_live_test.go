package target

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/policy"
)

func examine(t *testing.T, d *DB, p *policy.Policy, page PageQuery) []Finding {
	t.Helper()
	got, err := d.Examine(t.Context(), p, inspect(t, d, p.Table), page)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func find(fs []Finding, code string) Finding {
	for _, f := range fs {
		if f.Code == code {
			return f
		}
	}
	return Finding{}
}

// fill makes rows 1 to n of a table, at being an SQL expression over i.
func fill(e Engine, table string, n int, at string) string {
	series := map[Engine]string{
		Postgres: fmt.Sprintf("generate_series(1, %d) AS g(i)", n),
		MySQL:    fmt.Sprintf("(SELECT seq AS i FROM seq_1_to_%d) g", n),
		SQLite:   fmt.Sprintf("(WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < %d) SELECT i FROM s) g", n),
	}[e]
	return fmt.Sprintf("INSERT INTO %s (id, at) SELECT i, %s FROM %s", table, at, series)
}

func numbers(unit policy.Unit) policy.Trigger { return policy.Trigger{Column: "at", Unit: unit} }

func TestExamineUnits(t *testing.T) {
	now := time.Now().Unix()
	cases := []struct {
		name  string
		at    string // over i
		unit  policy.Unit
		level Level
		hint  string
	}{
		{"seconds", fmt.Sprint(now, " - i"), policy.Seconds, "", ""},
		{"milliseconds", fmt.Sprint(now, "000 - i"), policy.Milliseconds, "", ""},
		{"milliseconds as seconds", fmt.Sprint(now, "000 - i"), policy.Seconds, LevelRefuse, "unit: ms"},
		{"seconds as milliseconds", fmt.Sprint(now, " - i"), policy.Milliseconds, LevelRefuse, "unit: s"},
		{"microseconds as seconds", fmt.Sprint(now, "000000 - i"), policy.Seconds, LevelRefuse, "unit: us"},
		{"nanoseconds as milliseconds", fmt.Sprint(now, "000000000 - i"), policy.Milliseconds, LevelRefuse, "unit: ns"},
		{"Julian days as seconds", "2460000 - i", policy.Seconds, LevelRefuse, "unit: julian_day"},
		{"half sentinels", fmt.Sprint("CASE WHEN i % 2 = 0 THEN 0 ELSE ", now, " END"), policy.Seconds, "", ""},
		{"a minority of others", fmt.Sprint("CASE WHEN i % 3 = 0 THEN 5 ELSE ", now, " END"), policy.Seconds, "", ""},
		{"nothing of the kind", "i", policy.Seconds, LevelRefuse, "declare the unit"},
	}
	eachEngine(t, func(t *testing.T, e Engine) {
		d := arrange(t, e, `CREATE TABLE session (id integer NOT NULL PRIMARY KEY, at bigint NOT NULL)`)
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				for _, s := range []string{`DELETE FROM session`, fill(e, "session", 300, c.at)} {
					if _, err := d.SQL.Exec(s); err != nil {
						t.Fatal(err)
					}
				}
				p, _, _ := fit(e)
				p.Trigger = numbers(c.unit)
				got := find(examine(t, d, p, PageQuery{}), "unit_implausible")
				if got.Level != c.level || !strings.Contains(got.Hint, c.hint) {
					t.Errorf("%+v, want %q saying %q", got, c.level, c.hint)
				}
			})
		}
	})
}

func TestExamineShares(t *testing.T) {
	stamp := map[Engine]string{Postgres: "timestamptz", MySQL: "datetime", SQLite: "datetime"}
	plain := func(s string) string { return s }
	cast := map[Engine]func(string) string{Postgres: func(s string) string { return "(" + s + ")::timestamptz" }, MySQL: plain, SQLite: plain}
	eachEngine(t, func(t *testing.T, e Engine) {
		d := arrange(t, e, `CREATE TABLE session (id integer NOT NULL PRIMARY KEY, at `+stamp[e]+`)`,
			fill(e, "session", 100, cast[e](`CASE WHEN i <= 10 THEN NULL WHEN i <= 30 THEN '1969-12-31 00:00:00' WHEN i <= 35 THEN '2099-01-01 00:00:00' ELSE '2020-01-01 00:00:00' END`)))
		switch e {
		case Postgres:
			if _, err := d.SQL.Exec(`UPDATE session SET at = CASE id WHEN 20 THEN '-infinity' ELSE 'infinity' END::timestamptz WHERE id IN (20, 31)`); err != nil {
				t.Fatal(err)
			}
		case MySQL:
			if _, err := d.SQL.Exec(`UPDATE session SET at = '0000-00-00' WHERE id > 96`); err != nil {
				t.Fatal(err)
			}
		case SQLite:
			if _, err := d.SQL.Exec(`UPDATE session SET at = CASE id WHEN 100 THEN 17 WHEN 99 THEN '' WHEN 98 THEN 'soon' ELSE x'00' END WHERE id > 96`); err != nil {
				t.Fatal(err)
			}
		}
		p, _, _ := fit(e)
		p.Trigger = policy.Trigger{Column: "at", Zone: "UTC", Null: policy.NullNever}
		if e == Postgres {
			p.Trigger.Zone = ""
		}
		got := examine(t, d, p, PageQuery{})
		want := map[string]string{
			"null_share": "info 10 %", "sentinel_share": "warn 20 %", "future_share": "warn 5 %", "unreadable_share": "warn 4 %"}
		if e == Postgres { // where nothing can be unreadable
			delete(want, "unreadable_share")
		}
		for code, says := range want {
			f := find(got, code)
			if s := string(f.Level) + " " + f.Message; !strings.HasPrefix(s, says+" of a sample of 100 rows") {
				t.Errorf("%s: %q, want %q", code, s, says)
			}
		}
		p.Trigger.Null, p.Trigger.Until, p.Trigger.ImplausibleBefore = policy.NullDue, true, &policy.Date{Year: 1990, Month: 1, Day: 1}
		got = examine(t, d, p, PageQuery{})
		if f := find(got, "null_share"); f.Level != LevelWarn || !strings.Contains(f.Message, "due at once") {
			t.Errorf("%+v", f)
		}
		if f := find(got, "future_share"); f.Level != LevelInfo {
			t.Errorf("%+v", f)
		}
		if f := find(got, "sentinel_share"); f.Level != LevelInfo {
			t.Errorf("%+v", f)
		}
	})
}

func TestExamineFormats(t *testing.T) {
	text := map[Engine]string{Postgres: "text", MySQL: "varchar(40)", SQLite: "text"}
	eachEngine(t, func(t *testing.T, e Engine) {
		d := arrange(t, e, `CREATE TABLE session (id integer NOT NULL PRIMARY KEY, at `+text[e]+` NOT NULL)`,
			fill(e, "session", 100, `CASE WHEN i <= 60 THEN '' WHEN i <= 62 THEN 'soon' ELSE '20200101120000' END`))
		p, _, _ := fit(e)
		for format, want := range map[policy.Format]Level{policy.Compact: LevelWarn, policy.ISO8601: LevelRefuse} {
			p.Trigger = policy.Trigger{Column: "at", Zone: "UTC", Format: format}
			if f := find(examine(t, d, p, PageQuery{}), "unreadable_share"); f.Level != want {
				t.Errorf("%s: %+v, want %s", format, f, want)
			}
		}
	})
}

func TestExamineExpression(t *testing.T) {
	eachEngine(t, func(t *testing.T, e Engine) {
		d := arrange(t, e, `CREATE TABLE session (id integer NOT NULL PRIMARY KEY, at bigint, b bigint)`, fill(e, "session", 10, "CASE WHEN i = 1 THEN NULL ELSE 1700000000 END"))
		p, _, _ := fit(e)
		p.Trigger = policy.Trigger{Expr: "COALESCE(b, at)", Unit: policy.Seconds}
		got := examine(t, d, p, PageQuery{})
		if f := find(got, "null_share"); f.Level != LevelWarn || !strings.Contains(f.Hint, "null: never") {
			t.Errorf("%+v", f)
		}
		if f := find(got, "paged_by_key"); f.Level != LevelInfo {
			t.Errorf("%+v", f)
		}
		p.Trigger.Expr = "COALESCE(c, at)"
		if f := find(examine(t, d, p, PageQuery{}), "trigger_sql"); f.Level != LevelRefuse || !strings.Contains(f.Message, "c") {
			t.Errorf("%+v", f)
		}
	})
}

func TestExamineIndexes(t *testing.T) {
	want := map[Engine][2]string{
		Postgres: {`CREATE INDEX CONCURRENTLY ON "public"."session" ("at", "id")`, `CREATE INDEX CONCURRENTLY ON "fine" ("session_id")`},
		MySQL:    {"ALTER TABLE `session` ADD INDEX (`at`), ALGORITHM=INPLACE, LOCK=NONE", ""},
		SQLite:   {`CREATE INDEX "session_at_id" ON "session" ("at", "id")`, `CREATE INDEX "fine_session_id" ON "fine" ("session_id")`},
	}
	eachEngine(t, func(t *testing.T, e Engine) {
		d := arrange(t, e, `CREATE TABLE session (id integer NOT NULL PRIMARY KEY, at bigint NOT NULL)`,
			`CREATE TABLE fine (id integer NOT NULL PRIMARY KEY, session_id integer, FOREIGN KEY (session_id) REFERENCES session (id))`)
		p, _, _ := fit(e)
		p.Trigger = numbers(policy.Seconds)
		got := examine(t, d, p, PageQuery{})
		for i, code := range []string{"trigger_index", "child_index"} {
			f := find(got, code)
			if f.Statement != want[e][i] {
				t.Errorf("%s: %q, want %q", code, f.Statement, want[e][i])
			}
			if f.Statement == "" {
				continue
			}
			if _, err := d.SQL.Exec(f.Statement); err != nil { // it must work as it stands
				t.Errorf("%s: %v", f.Statement, err)
			}
		}
		got = examine(t, d, p, PageQuery{})
		if f := find(got, "trigger_index"); f.Code != "" {
			t.Errorf("still %+v", f)
		}
		if f := find(got, "child_index"); f.Code != "" {
			t.Errorf("still %+v", f)
		}
	})
}

// A trigger that is part of the key stands in the index once.
func TestExamineIndexOnce(t *testing.T) {
	d := arrange(t, SQLite, `CREATE TABLE session (id integer NOT NULL, at bigint NOT NULL, PRIMARY KEY (id, at))`)
	p, _, _ := fit(SQLite)
	p.Trigger = numbers(policy.Seconds)
	if got, want := find(examine(t, d, p, PageQuery{}), "trigger_index").Statement, `CREATE INDEX "session_at_id" ON "session" ("at", "id")`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestExamineIndexPartitioned(t *testing.T) {
	d := arrange(t, Postgres, `CREATE TABLE session (id int, at bigint NOT NULL, PRIMARY KEY (id)) PARTITION BY HASH (id)`,
		`CREATE TABLE s0 PARTITION OF session FOR VALUES WITH (MODULUS 1, REMAINDER 0)`)
	p, _, _ := fit(Postgres)
	p.Trigger = numbers(policy.Seconds)
	f := find(examine(t, d, p, PageQuery{}), "trigger_index")
	if _, err := d.SQL.Exec(f.Statement); err != nil {
		t.Errorf("%s: %v", f.Statement, err)
	}
	if f := find(examine(t, d, p, PageQuery{}), "trigger_index"); f.Code != "" {
		t.Errorf("still %+v", f)
	}
}

func TestExaminePlan(t *testing.T) {
	eachEngine(t, func(t *testing.T, e Engine) {
		d := arrange(t, e, `CREATE TABLE session (id integer NOT NULL PRIMARY KEY, at bigint NOT NULL, other bigint)`,
			fill(e, "session", 20000, "1700000000 + i"), `CREATE INDEX session_at ON session (at)`)
		if e != MySQL {
			if _, err := d.SQL.Exec("ANALYZE"); err != nil {
				t.Fatal(err)
			}
		} else if _, err := d.SQL.Exec("ANALYZE TABLE session"); err != nil {
			t.Fatal(err)
		}
		p, _, _ := fit(e)
		p.Trigger = numbers(policy.Seconds)
		mark := dialectFor(d.server).placeholder(1)
		with := func(col string) (string, bool) {
			t.Helper()
			summary, indexed, err := d.explainPlan(t.Context(), "SELECT id FROM session WHERE "+col+" < "+mark+" LIMIT 10", []any{1700000050})
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(summary, "17000000") {
				t.Errorf("%s holds a value", summary)
			}
			return summary, indexed
		}
		if s, ok := with("at"); !ok || !strings.Contains(s, "session_at") {
			t.Errorf("at: %v %s", ok, s)
		}
		if s, ok := with("other"); ok {
			t.Errorf("other: %v %s", ok, s)
		}
		page := PageQuery{SQL: "SELECT id FROM session WHERE other < " + mark, Args: []any{5}}
		table := inspect(t, d, "session")
		table.EstRows = largeTable
		got, err := d.Examine(t.Context(), p, table, page)
		if f := find(got, "plan"); err != nil || f.Level != LevelWarn {
			t.Errorf("%+v, %v", f, err)
		}
		page.SQL = "SELECT id FROM session WHERE missing < " + mark
		if f := find(examine(t, d, p, page), "policy_sql"); f.Level != LevelRefuse || !strings.Contains(f.Message, "missing") {
			t.Errorf("%+v", f)
		}
	})
}

// A sample is of bounded size, whatever the table's, and holds new rows as well as old ones.
func TestSampleBounds(t *testing.T) {
	eachEngine(t, func(t *testing.T, e Engine) {
		d := arrange(t, e, `CREATE TABLE session (id integer NOT NULL PRIMARY KEY, at bigint NOT NULL)`,
			fill(e, "session", 60000, "CASE WHEN i <= 30000 THEN 0 ELSE 1700000000 END"))
		analyze := map[Engine]string{Postgres: "ANALYZE session", MySQL: "ANALYZE TABLE session", SQLite: "ANALYZE"}
		if _, err := d.SQL.Exec(analyze[e]); err != nil {
			t.Fatal(err)
		}
		p, _, _ := fit(e)
		p.Trigger = numbers(policy.Seconds)
		table := inspect(t, d, "session")
		tr, err := resolveTrigger(p, table, d.server)
		if err != nil {
			t.Fatal(err)
		}
		s, err := d.take(t.Context(), table, tr)
		if err != nil {
			t.Fatal(err)
		}
		if s.rows > sampleRows || s.rows < sampleRows/2 || s.low < s.rows/4 || s.low > 3*s.rows/4 {
			t.Errorf("sample of %d rows, of which %d old ones", s.rows, s.low)
		}
	})
}

func TestClockSkew(t *testing.T) {
	before := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	after := before.Add(time.Second)
	for theirs, want := range map[time.Duration]string{0: "", 10 * time.Second: "", -20 * time.Second: "", time.Hour: "1h0m0s", -time.Hour: "1h0m0s"} {
		j := &judgement{}
		at := after
		if theirs < 0 {
			at = before
		}
		j.skew(at.Add(theirs), before, after)
		if got := find(j.out, "clock_skew").Message; (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", theirs, got, want)
		}
	}
}

func TestExamineBinlog(t *testing.T) {
	d := arrange(t, MySQL)
	j := &judgement{s: d.server}
	if err := d.examineBinlog(t.Context(), j); err != nil || len(j.out) != 0 {
		t.Errorf("%+v, %v", j.out, err) // the test server keeps no binary log of statements
	}
}

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		n, of int64
		want  string
	}{{1, 1000, "less than 1 %"}, {999, 1000, "more than 99 %"}, {1000, 1000, "all"}, {1, 3, "33 %"}} {
		if got := percent(c.n, c.of); got != c.want {
			t.Errorf("%d of %d: %q", c.n, c.of, got)
		}
	}
}

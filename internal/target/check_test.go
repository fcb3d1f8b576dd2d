package target

import (
	"fmt"
	"strings"
	"testing"

	"curfew.dev/curfew/policy"
)

// fit is a policy and a table between which nothing stands.
func fit(e Engine) (*policy.Policy, *Table, Server) {
	p := &policy.Policy{Name: "sessions", Database: "lib", Table: "session", Trigger: policy.Trigger{Column: "at"},
		Action: policy.Action{Kind: policy.Delete}, Mode: policy.Enforce, Timezone: "UTC"}
	t := &Table{
		Engine: e, Name: "session", Label: "session",
		Columns: []Column{
			{Name: "id", Type: "bigint", Declared: "bigint", Kind: KindInt, NotNull: true, Position: 1},
			{Name: "at", Type: "timestamptz", Declared: "timestamptz", Kind: KindInstant, NotNull: true, Position: 2},
			{Name: "patron_id", Type: "bigint", Declared: "bigint", Kind: KindInt, Position: 3},
		},
		Indexes:    []Index{{Name: "session_pkey", Columns: []string{"id"}, Unique: true, Primary: true, Ordered: true, Valid: true}},
		Privileges: Privileges{Select: true, Delete: true, Update: true},
	}
	s := Server{Engine: e, Version: "15.6", Major: 15, Minor: 6, Role: "curfew"}
	switch e {
	case Postgres:
		t.Schema = "public"
	case MySQL:
		t.Storage = "InnoDB"
		s = Server{Engine: e, Version: "10.11-MariaDB", Major: 10, Minor: 11, MariaDB: true, Role: "curfew@%", Database: "lib"}
	case SQLite:
		t.Columns[1] = Column{Name: "at", Type: "NUMERIC", Declared: "datetime", Kind: KindAny, NotNull: true, Position: 2}
		p.Trigger.Zone = "UTC"
		s = Server{Engine: e, Version: "3.45", Major: 3, Minor: 45}
	}
	return p, t, s
}

func codes(fs []Finding) string {
	var out []string
	for _, f := range fs {
		out = append(out, string(f.Level)+" "+f.Code)
	}
	return strings.Join(out, ", ")
}

func TestJudgeFit(t *testing.T) {
	eachEngine(t, func(t *testing.T, e Engine) {
		p, table, s := fit(e)
		if got := Judge(p, table, s); len(got) != 0 {
			t.Errorf("findings %+v", got)
		}
		if err := Refused(Judge(p, table, s)); err != nil {
			t.Error(err)
		}
		if got := codes(Judge(p, nil, s)); got != "refuse table_missing" {
			t.Errorf("no table: %s", got)
		}
	})
}

// column replaces the trigger's column and its declaration.
func column(c Column, tr policy.Trigger) func(*policy.Policy, *Table, *Server) {
	return func(p *policy.Policy, t *Table, s *Server) {
		c.Name, tr.Column = "at", "at"
		t.Columns[1], p.Trigger = c, tr
	}
}

func expr(tr policy.Trigger) func(*policy.Policy, *Table, *Server) {
	return func(p *policy.Policy, t *Table, s *Server) {
		tr.Expr = "coalesce(a, b)"
		p.Trigger = tr
	}
}

type change = func(*policy.Policy, *Table, *Server)

func inShadow(f change) change {
	return func(p *policy.Policy, t *Table, s *Server) { p.Mode = policy.Shadow; f(p, t, s) }
}

func child(name string, rule Rule) ForeignKey {
	return ForeignKey{Name: "c", Child: name, ChildColumns: []string{"session_id"}, Parent: "session", ParentColumns: []string{"id"}, OnDelete: rule}
}

func kids(accepted ...string) change {
	return func(p *policy.Policy, t *Table, s *Server) {
		deep := child("scan", Cascade)
		deep.Parent = "fine"
		t.Children = []ForeignKey{child("fine", Cascade), child("log", SetNull), child("loan", Restrict), deep}
		p.Cascade = accepted
	}
}

func twoTriggers(accepted ...string) change {
	return func(p *policy.Policy, t *Table, s *Server) {
		t.Triggers = []Trigger{{"copy", "session", "AFTER", true, ""}, {"Veto", "session", "BEFORE", true, ""}}
		p.Triggers = accepted
	}
}

func aRule(p *policy.Policy, t *Table, s *Server) {
	t.Triggers = []Trigger{{"r", "session", "RULE", false, ""}}
}

func hidden(p *policy.Policy, t *Table, s *Server) { t.Hidden = []string{"foreign keys", "triggers"} }

func rights(r Privileges) change {
	return func(_ *policy.Policy, t *Table, s *Server) { t.Privileges = r }
}

func set(f func(t *Table)) change { return func(_ *policy.Policy, t *Table, _ *Server) { f(t) } }

func key(cols ...string) change { return func(p *policy.Policy, _ *Table, _ *Server) { p.Key = cols } }

func index(ix Index, cols ...string) change {
	return func(p *policy.Policy, t *Table, s *Server) { t.Indexes, p.Key = []Index{ix}, cols }
}

func unless(sql string, f ...ForeignKey) change {
	return func(p *policy.Policy, t *Table, s *Server) { p.Unless, t.Children = sql, f }
}

type judgeCase struct {
	name   string
	e      Engine
	change change
	want   string
	says   string // in the message or the hint of the first
}

func judgeAll(t *testing.T, cases []judgeCase) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, table, s := fit(c.e)
			c.change(p, table, &s)
			got := Judge(p, table, s)
			if codes(got) != c.want {
				t.Fatalf("findings %s\nwant     %s\n%+v", codes(got), c.want, got)
			}
			if c.says != "" && !strings.Contains(got[0].Message+got[0].Hint, c.says) {
				t.Errorf("%q, %q do not say %q", got[0].Message, got[0].Hint, c.says)
			}
			refused := Refused(got)
			if (refused != nil) != strings.Contains(c.want, "refuse") {
				t.Errorf("Refused = %v", refused)
			}
			for _, f := range got {
				if f.Level == LevelRefuse && !strings.Contains(refused.Error(), f.Message) {
					t.Errorf("Refused = %v leaves out %q", refused, f.Message)
				}
			}
		})
	}
}

func TestJudgeTable(t *testing.T) {
	judgeAll(t, []judgeCase{
		{"view", Postgres, set(func(t *Table) { t.IsView = true; t.Columns = nil }), "refuse table_is_view", ""},
		{"system", MySQL, set(func(t *Table) { t.System = true }), "refuse table_is_system", ""},
		{"temporary", Postgres, set(func(t *Table) { t.Temporary = true }), "refuse table_is_temporary", ""},
		{"virtual", SQLite, set(func(t *Table) { t.Storage = "virtual" }), "refuse table_is_virtual", ""},
		{"foreign", Postgres, set(func(t *Table) { t.Storage = "foreign" }), "refuse table_is_foreign", ""},
		{"myisam", MySQL, set(func(t *Table) { t.Storage = "MyISAM" }), "refuse storage_engine", "no transactions"},
		{"row security", Postgres, set(func(t *Table) { t.RowSecurity = true }), "refuse row_security", "BYPASSRLS"},
		{"inheritance", Postgres, set(func(t *Table) { t.Inherited = true }), "info inheritance", ""},
		{"versioned", MySQL, set(func(t *Table) { t.Versioned = true }), "warn system_versioned", "history"},
		{"partitions", Postgres, set(func(t *Table) { t.Partitioned, t.Partitions = true, []string{"a", "b"} }), "info partitions", "2 partitions"},
		{"old", Postgres, func(_ *policy.Policy, _ *Table, s *Server) { s.Major = 11 }, "refuse server_too_old", "15.6"},
		{"old maria", MySQL, func(_ *policy.Policy, _ *Table, s *Server) { s.Minor = 5 }, "refuse server_too_old", ""},
		{"old mysql", MySQL, func(_ *policy.Policy, _ *Table, s *Server) { s.MariaDB, s.Major, s.Minor = false, 5, 7 }, "refuse server_too_old", ""},
		{"mysql 8", MySQL, func(_ *policy.Policy, _ *Table, s *Server) { s.MariaDB, s.Major, s.Minor = false, 8, 0 }, "", ""},
		{"standby", Postgres, func(_ *policy.Policy, _ *Table, s *Server) { s.ReadOnly = true }, "refuse read_only", ""},
		{"standby in shadow", Postgres, inShadow(func(_ *policy.Policy, _ *Table, s *Server) { s.ReadOnly = true }), "warn read_only", ""},
		{"subject", Postgres, func(p *policy.Policy, _ *Table, _ *Server) { p.Subject = "patronid" }, "refuse subject_missing", `there is a column "patron_id"`},
	})
}

func TestJudgeKey(t *testing.T) {
	judgeAll(t, []judgeCase{
		{"key missing", Postgres, key("idd"), "refuse key_missing", "its columns are id, at, patron_id"},
		{"key not unique", Postgres, key("patron_id"), "refuse key_unusable", "leave key out to use the primary key (id)"},
		{"key of other capitals there", Postgres, key("ID"), "refuse key_missing", `"id"`},
		{"no key", Postgres, set(func(t *Table) { t.Indexes = nil }), "refuse key_unusable", "add a primary key"},
		{"null in the key", Postgres, index(Index{Columns: []string{"patron_id"}, Unique: true, Ordered: true, Valid: true}), "refuse key_unusable", "may be NULL"},
		{"partial", Postgres, index(Index{Columns: []string{"id"}, Unique: true, Ordered: true, Valid: true, Partial: true}), "refuse key_unusable", ""},
		{"invalid", Postgres, index(Index{Columns: []string{"id"}, Unique: true, Ordered: true}), "refuse key_unusable", ""},
		{"expression", Postgres, index(Index{Columns: []string{""}, Unique: true, Ordered: true, Valid: true}), "refuse key_unusable", ""},
		{"another order", Postgres, index(Index{Columns: []string{"id"}, Unique: true, Valid: true}), "refuse key_unordered", ""},
		{"enum key", MySQL, set(func(t *Table) { t.Columns[0].Kind = KindEnum }), "refuse key_unusable", "id"},
		{"float key", MySQL, set(func(t *Table) { t.Columns[0].Kind = KindFloat }), "refuse key_unusable", ""},
		{"enum key there", Postgres, set(func(t *Table) { t.Columns[0].Kind = KindEnum }), "", ""},
		{"json key", Postgres, set(func(t *Table) { t.Columns[0].Kind = KindOther }), "refuse key_unusable", ""},
		{"nullable primary key", SQLite, set(func(t *Table) { t.Columns[0].NotNull, t.Columns[0].Kind = false, KindAny }), "warn key_nullable", ""},
	})
}

func TestJudgeTrigger(t *testing.T) {
	judgeAll(t, []judgeCase{
		{"no trigger", Postgres, func(p *policy.Policy, _ *Table, _ *Server) { p.Trigger.Column = "At" }, "refuse trigger_missing", `there is a column "at"`},
		{"zone on an instant", Postgres, column(Column{Kind: KindInstant, NotNull: true}, policy.Trigger{Zone: "UTC"}), "refuse trigger_zone", "remove zone"},
		{"unit on an instant", Postgres, column(Column{Kind: KindInstant, NotNull: true}, policy.Trigger{Unit: "s"}), "refuse trigger_unit", ""},
		{"format on an instant", Postgres, column(Column{Kind: KindInstant, NotNull: true}, policy.Trigger{Format: "iso8601"}), "refuse trigger_format", ""},
		{"civil", Postgres, column(Column{Kind: KindTime, NotNull: true}, policy.Trigger{Zone: "UTC"}), "", ""},
		{"civil without zone", MySQL, column(Column{Kind: KindTime, Declared: "datetime", NotNull: true}, policy.Trigger{}), "refuse trigger_zone", "datetime"},
		{"date", MySQL, column(Column{Kind: KindDate, NotNull: true}, policy.Trigger{Zone: "UTC"}), "", ""},
		{"date without zone", Postgres, column(Column{Kind: KindDate, NotNull: true}, policy.Trigger{}), "refuse trigger_zone", ""},
		{"date with unit", Postgres, column(Column{Kind: KindDate, NotNull: true}, policy.Trigger{Zone: "UTC", Unit: "s"}), "refuse trigger_unit", ""},
		{"number", Postgres, column(Column{Kind: KindInt, NotNull: true}, policy.Trigger{Unit: "ms"}), "", ""},
		{"number without unit", Postgres, column(Column{Kind: KindInt, Declared: "bigint", NotNull: true}, policy.Trigger{}), "refuse trigger_unit", "s, ms, us or ns"},
		{"number with zone", Postgres, column(Column{Kind: KindDecimal, NotNull: true}, policy.Trigger{Unit: "s", Zone: "UTC"}), "refuse trigger_zone", ""},
		{"number with format", MySQL, column(Column{Kind: KindInt, NotNull: true}, policy.Trigger{Format: "yyyymmddhhmmss", Zone: "UTC"}), "refuse trigger_zone, refuse trigger_format, refuse trigger_unit", ""},
		{"text", Postgres, column(Column{Kind: KindText, NotNull: true}, policy.Trigger{Format: "iso8601", Zone: "UTC"}), "", ""},
		{"text without offsets", Postgres, column(Column{Kind: KindText, NotNull: true}, policy.Trigger{Format: "iso8601"}), "info trigger_offset", ""},
		{"text without format", Postgres, column(Column{Kind: KindText, Declared: "text", NotNull: true}, policy.Trigger{}), "refuse trigger_format", "iso8601 or yyyymmddhhmmss"},
		{"text with unit", Postgres, column(Column{Kind: KindText, NotNull: true}, policy.Trigger{Unit: "s"}), "refuse trigger_unit, refuse trigger_format", ""},
		{"compact", MySQL, column(Column{Kind: KindBytes, NotNull: true}, policy.Trigger{Format: "yyyymmddhhmmss", Zone: "UTC"}), "", ""},
		{"compact without zone", MySQL, column(Column{Kind: KindText, NotNull: true}, policy.Trigger{Format: "yyyymmddhhmmss"}), "refuse trigger_zone", ""},
		{"iso bytes", MySQL, column(Column{Kind: KindBytes, NotNull: true}, policy.Trigger{Format: "iso8601", Zone: "UTC"}), "refuse trigger_format", ""},
		{"uuid", Postgres, column(Column{Kind: KindUUID, NotNull: true}, policy.Trigger{}), "refuse trigger_kind", ""},
		{"time of day", Postgres, column(Column{Kind: KindTimeOfDay, NotNull: true}, policy.Trigger{Zone: "UTC"}), "refuse trigger_kind", ""},
		{"nullable", Postgres, column(Column{Kind: KindInstant}, policy.Trigger{}), "refuse trigger_null", "null: never"},
		{"nullable and said", Postgres, column(Column{Kind: KindInstant}, policy.Trigger{Null: policy.NullDue}), "", ""},
		{"on update", MySQL, column(Column{Kind: KindInstant, NotNull: true, OnUpdate: true}, policy.Trigger{}), "info trigger_on_update", ""},
		{"any", SQLite, column(Column{Kind: KindAny, Declared: "date", NotNull: true}, policy.Trigger{}), "refuse trigger_format", "no time type"},
		{"any with zone", SQLite, column(Column{Kind: KindAny, Declared: "DateTime", NotNull: true}, policy.Trigger{Zone: "UTC"}), "", ""},
		{"any with zone of another type", SQLite, column(Column{Kind: KindAny, Declared: "text", NotNull: true}, policy.Trigger{Zone: "UTC"}), "refuse trigger_format", ""},
		{"any with unit", SQLite, column(Column{Kind: KindAny, NotNull: true}, policy.Trigger{Unit: "s"}), "", ""},
		{"any with format", SQLite, column(Column{Kind: KindAny, NotNull: true}, policy.Trigger{Format: "iso8601", Zone: "UTC"}), "", ""},
		{"any with both", SQLite, column(Column{Kind: KindAny, NotNull: true}, policy.Trigger{Format: "iso8601", Unit: "s"}), "refuse trigger_format", ""},
		{"any with unit and zone", SQLite, column(Column{Kind: KindAny, Declared: "date", NotNull: true}, policy.Trigger{Unit: "s", Zone: "UTC"}), "refuse trigger_zone", ""},
	})
}

func TestJudgeExpression(t *testing.T) {
	judgeAll(t, []judgeCase{
		{"expr", Postgres, expr(policy.Trigger{Type: policy.TimestampTZ}), "", ""},
		{"expr of nothing", Postgres, expr(policy.Trigger{}), "refuse trigger_type", ""},
		{"expr of two", Postgres, expr(policy.Trigger{Type: policy.TimestampTZ, Unit: "s"}), "refuse trigger_type", ""},
		{"expr civil", MySQL, expr(policy.Trigger{Type: policy.Timestamp}), "refuse trigger_zone", ""},
		{"expr date", MySQL, expr(policy.Trigger{Type: policy.DateType, Zone: "UTC"}), "", ""},
		{"expr instant with zone", MySQL, expr(policy.Trigger{Type: policy.TimestampTZ, Zone: "UTC"}), "refuse trigger_zone", ""},
		{"expr number", SQLite, expr(policy.Trigger{Unit: "s"}), "", ""},
		{"expr number with zone", SQLite, expr(policy.Trigger{Unit: "s", Zone: "UTC"}), "refuse trigger_zone", ""},
		{"expr typed", SQLite, expr(policy.Trigger{Type: policy.TimestampTZ}), "refuse trigger_type", ""},
		{"expr compact", SQLite, expr(policy.Trigger{Format: policy.Compact}), "refuse trigger_zone", ""},
	})
}

func TestJudgeCascades(t *testing.T) {
	judgeAll(t, []judgeCase{
		{"cascades", Postgres, kids(), "refuse cascade_not_accepted, info restricting_children", "cascade: [fine, log, scan]"},
		{"cascades in part", Postgres, kids("fine"), "refuse cascade_not_accepted, info restricting_children, info cascade_accepted", "cascade: [fine, log, scan]"},
		{"cascades accepted", Postgres, kids("fine", "public.log", "scan"), "info restricting_children, info cascade_accepted, info cascade_accepted, info cascade_accepted", "loan (session_id) ON DELETE RESTRICT"},
		{"cascades in another schema", Postgres, kids("fine", "other.log", "scan"), "refuse cascade_not_accepted, warn cascade_unknown, info restricting_children, info cascade_accepted, info cascade_accepted", "log (session_id) ON DELETE SET NULL"},
		{"cascades of other capitals", MySQL, kids("FINE", "log", "scan"), "info restricting_children, info cascade_accepted, info cascade_accepted, info cascade_accepted", ""},
		{"cascade unknown", Postgres, func(p *policy.Policy, _ *Table, _ *Server) { p.Cascade = []string{"fines"} }, "warn cascade_unknown", ""},
		{"cascade of a restricting child", Postgres, kids("fine", "log", "scan", "loan"), "warn cascade_unknown, info restricting_children, info cascade_accepted, info cascade_accepted, info cascade_accepted", "loan"},
		{"self", Postgres, set(func(t *Table) { t.Children = []ForeignKey{child("session", Cascade)} }), "refuse cascade_not_accepted", "cascade: [session]"},
		{"set default", Postgres, set(func(t *Table) { t.Children = []ForeignKey{child("x", SetDefault)} }), "refuse cascade_not_accepted", ""},
		{"hidden", MySQL, hidden, "refuse foreign_keys_hidden, warn triggers_hidden", "REFERENCES"},
		{"hidden in shadow", MySQL, inShadow(hidden), "warn foreign_keys_hidden, warn triggers_hidden", ""},
	})
}

func TestJudgeTriggers(t *testing.T) {
	judgeAll(t, []judgeCase{
		{"triggers", Postgres, twoTriggers("copy", "Veto"), "", ""},
		{"triggers refused", Postgres, twoTriggers("copy"), "refuse triggers_not_accepted", "triggers: [copy, Veto]"},
		{"triggers of other capitals", Postgres, twoTriggers("copy", "veto"), "refuse triggers_not_accepted, warn trigger_unknown", ""},
		{"triggers of other capitals there", SQLite, twoTriggers("copy", "veto"), "", ""},
		{"trigger unknown", SQLite, func(p *policy.Policy, _ *Table, _ *Server) { p.Triggers = []string{"x"} }, "warn trigger_unknown", ""},
		{"rule", Postgres, aRule, "refuse delete_rule", ""},
		{"rule accepted", Postgres, func(p *policy.Policy, t *Table, s *Server) { aRule(p, t, s); p.Triggers = []string{"r"} }, "refuse delete_rule, warn trigger_unknown", ""},
	})
}

func TestJudgeRights(t *testing.T) {
	judgeAll(t, []judgeCase{
		{"no rights", Postgres, rights(Privileges{}), "refuse no_select, refuse no_delete, refuse no_lock", ""},
		{"no rights in shadow", Postgres, inShadow(rights(Privileges{Select: true})), "info no_delete", ""},
		{"no lock", Postgres, rights(Privileges{Select: true, Delete: true}), "refuse no_lock", ""},
		{"no lock there", MySQL, rights(Privileges{Select: true, Delete: true}), "", ""},
		{"no rights there", MySQL, rights(Privileges{Select: true}), "refuse no_delete", ""},
	})
}

func TestJudgeGuards(t *testing.T) {
	const bestEffort = "warn guard_best_effort"
	judgeAll(t, []judgeCase{
		{"guard with a key", Postgres, unless(`EXISTS (SELECT 1 FROM fine f WHERE f.session_id = session.id)`, child("fine", Restrict)), "info restricting_children", ""},
		{"guard", Postgres, unless(`EXISTS (SELECT 1 FROM fine f JOIN public.debt ON true WHERE f.session_id = session.id)`), bestEffort, "fine, public.debt"},
		{"guard in one file", SQLite, unless(`EXISTS (SELECT 1 FROM fine f WHERE f.session_id = session.id)`), "", ""},
		{"guard without tables", Postgres, unless(`extract(year FROM at) > 2000 AND a IS DISTINCT FROM b`), "", ""},
		{"scope", MySQL, func(p *policy.Policy, _ *Table, _ *Server) { p.Where = "tenant IN (SELECT id FROM tenant)" }, bestEffort, "where reads tenant"},
	})
}

// What Judge lets pass, a job can be made of.
func TestJudgeAgreesWithResolveTrigger(t *testing.T) {
	kinds := []Kind{KindInt, KindDecimal, KindFloat, KindText, KindBytes, KindUUID, KindBool, KindDate, KindTime, KindInstant, KindEnum, KindAny, KindOther, KindTimeOfDay}
	for _, e := range engines {
		for _, k := range kinds {
			if untyped := k == KindAny || k == KindInt || k == KindFloat || k == KindText || k == KindBytes; e == SQLite && !untyped || e != SQLite && k == KindAny {
				continue // a kind that Inspect never finds there
			}
			for bits := range 16 {
				p, table, s := fit(e)
				table.Columns[1].Kind, table.Columns[1].Declared = k, "datetime"
				p.Trigger = policy.Trigger{Column: "at"}
				if bits&1 != 0 {
					p.Trigger.Zone = "Europe/Berlin"
				}
				if bits&2 != 0 {
					p.Trigger.Unit = policy.Seconds
				}
				switch bits >> 2 {
				case 1:
					p.Trigger.Format = policy.ISO8601
				case 2:
					p.Trigger.Format = policy.Compact
				case 3:
					p.Trigger.Null = policy.NullNever
				}
				name := fmt.Sprintf("%s %s %+v", e, k, p.Trigger)
				if Refused(Judge(p, table, s)) != nil {
					continue
				}
				tr, err := resolveTrigger(p, table, s)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				} else if tr.domain == "" {
					t.Errorf("%s: no domain", name)
				}
			}
		}
	}
}

func TestTablesRead(t *testing.T) {
	for sql, want := range map[string]string{
		`a = 1`: "", `id IN (SELECT x FROM y)`: "y", `(SELECT 1 FROM a, b AS c, "d e".f JOIN g ON g.x IN (1, 2) WHERE x IN (p, q))`: "a b d e.f g",
		`EXISTS (SELECT FROM (SELECT 1 FROM in1) s, LATERAL (SELECT 2 FROM in2) t, ONLY out1)`:                     "in1 in2 out1",
		`extract(epoch FROM x) > 1 AND EXISTS (SELECT trim(both FROM y), z FROM t WHERE a IS NOT DISTINCT FROM b)`: "t",
		"EXISTS (SELECT 1 FROM `a`.`b`)": "a.b", `'FROM x' = (SELECT 1 FROM [q r])`: "q r", `(((`: "", `))) FROM`: "", `(SELECT 1 FROM`: "",
		`EXISTS (SELECT a, b FROM x UNION SELECT c, d FROM y)`: "x y",
	} {
		if got := strings.Join(tablesRead(sql), " "); got != want {
			t.Errorf("%s reads %q, want %q", sql, got, want)
		}
	}
}

func TestTablesReadAsStored(t *testing.T) {
	const sql = `EXISTS (SELECT 1 FROM Loan l JOIN "Fine" f ON f.id = l.id JOIN Public."Debt" d ON true)`
	same(t, "postgres", TablesRead(Postgres, sql), []string{"loan", "Fine", "public.Debt"})
	same(t, "mysql", TablesRead(MySQL, sql), []string{"Loan", "Fine", "Public.Debt"})
}

func TestJudgeStatements(t *testing.T) {
	p, table, s := fit(MySQL)
	table.Hidden, table.Privileges = []string{"foreign keys"}, Privileges{Select: true}
	same(t, "mysql", statements(Judge(p, table, s)), []string{"GRANT REFERENCES ON `lib`.* TO 'curfew'@'%'", "GRANT DELETE ON `session` TO 'curfew'@'%'"})
	p, table, s = fit(Postgres)
	table.Privileges = Privileges{}
	same(t, "postgres", statements(Judge(p, table, s)), []string{
		`GRANT SELECT ON "public"."session" TO "curfew"`, `GRANT DELETE ON "public"."session" TO "curfew"`, `GRANT UPDATE ("id") ON "public"."session" TO "curfew"`})
}

func statements(fs []Finding) (out []string) {
	for _, f := range fs {
		out = append(out, f.Statement)
	}
	return out
}

func TestGrantee(t *testing.T) {
	if got := grantee(Server{Engine: MySQL, Role: "a@%"}); got != "'a'@'%'" {
		t.Error(got)
	}
	if got := grantee(Server{Engine: Postgres, Role: `o"d`}); got != `"o""d"` {
		t.Error(got)
	}
}

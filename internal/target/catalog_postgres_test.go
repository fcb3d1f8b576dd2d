package target

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"curfew.dev/curfew/internal/dbtest"
)

func TestInspectPostgres(t *testing.T) {
	d := arrange(t, Postgres,
		`CREATE DOMAIN short AS varchar(12) NOT NULL`,
		`CREATE TYPE mood AS ENUM ('b', 'a')`,
		`CREATE TABLE kinds (
			id bigint PRIMARY KEY, i2 smallint, num numeric(10,2), f8 double precision, tx text COLLATE "C", vc varchar(40) COLLATE "en-x-icu",
			bp char(5), one "char", by bytea, u uuid, b boolean, d date, ts timestamp(3), tz timestamptz, tod time, iv interval,
			m mood, j jsonb, arr int[], dom short, gen int GENERATED ALWAYS AS (i2 + 1) STORED)`,
		`ALTER TABLE kinds DROP COLUMN f8`,
		`CREATE UNIQUE INDEX kinds_u ON kinds (u) INCLUDE (d)`,
		`CREATE INDEX kinds_expr ON kinds (lower(tx))`,
		`CREATE INDEX kinds_hash ON kinds USING hash (tz)`,
		`CREATE INDEX kinds_like ON kinds (vc varchar_pattern_ops)`,
		`CREATE INDEX kinds_coll ON kinds (vc COLLATE "C")`,
		`CREATE INDEX kinds_part ON kinds (d) WHERE b`,
		`CREATE INDEX kinds_two ON kinds (tz DESC, id)`,
		`CREATE INDEX kinds_vc ON kinds (vc)`,
	)
	got := inspect(t, d, "kinds")
	want := &Table{
		Engine: Postgres, Schema: "public", Name: "kinds", Label: "kinds",
		Columns: []Column{
			{Name: "id", Type: "bigint", Declared: "bigint", Kind: KindInt, NotNull: true, Position: 1},
			{Name: "i2", Type: "smallint", Declared: "smallint", Kind: KindInt, Position: 2},
			{Name: "num", Type: "numeric", Declared: "numeric(10,2)", Kind: KindDecimal, Position: 3},
			{Name: "tx", Type: "text", Declared: "text", Kind: KindText, Collation: "C", Position: 5},
			{Name: "vc", Type: "character varying", Declared: "character varying(40)", Kind: KindText, Collation: "en-x-icu", Position: 6},
			{Name: "bp", Type: "bpchar", Declared: "character(5)", Kind: KindText, Position: 7},
			{Name: "one", Type: `"char"`, Declared: `"char"`, Kind: KindText, Position: 8},
			{Name: "by", Type: "bytea", Declared: "bytea", Kind: KindBytes, Position: 9},
			{Name: "u", Type: "uuid", Declared: "uuid", Kind: KindUUID, Position: 10},
			{Name: "b", Type: "boolean", Declared: "boolean", Kind: KindBool, Position: 11},
			{Name: "d", Type: "date", Declared: "date", Kind: KindDate, Position: 12},
			{Name: "ts", Type: "timestamp without time zone", Declared: "timestamp(3) without time zone", Kind: KindTime, Position: 13},
			{Name: "tz", Type: "timestamp with time zone", Declared: "timestamp with time zone", Kind: KindInstant, Position: 14},
			{Name: "tod", Type: "time without time zone", Declared: "time without time zone", Kind: KindTimeOfDay, Position: 15},
			{Name: "iv", Type: "interval", Declared: "interval", Kind: KindTimeOfDay, Position: 16},
			{Name: "m", Type: "mood", Declared: "mood", Kind: KindEnum, Position: 17},
			{Name: "j", Type: "jsonb", Declared: "jsonb", Kind: KindOther, Position: 18},
			{Name: "arr", Type: "integer[]", Declared: "integer[]", Kind: KindOther, Position: 19},
			{Name: "dom", Type: "character varying", Declared: "short", Kind: KindText, NotNull: true, Position: 20},
			{Name: "gen", Type: "integer", Declared: "integer", Kind: KindInt, Position: 21, Generated: true},
		},
		Indexes: []Index{
			{Name: "kinds_pkey", Columns: []string{"id"}, Unique: true, Primary: true, Ordered: true, Valid: true},
			{Name: "kinds_coll", Columns: []string{"vc"}, Valid: true},
			{Name: "kinds_expr", Columns: []string{""}, Ordered: true, Valid: true},
			{Name: "kinds_hash", Columns: []string{"tz"}, Valid: true},
			{Name: "kinds_like", Columns: []string{"vc"}, Valid: true},
			{Name: "kinds_part", Columns: []string{"d"}, Partial: true, Ordered: true, Valid: true},
			{Name: "kinds_two", Columns: []string{"tz", "id"}, Ordered: true, Valid: true},
			{Name: "kinds_u", Columns: []string{"u"}, Unique: true, Ordered: true, Valid: true},
			{Name: "kinds_vc", Columns: []string{"vc"}, Ordered: true, Valid: true},
		},
		Privileges: Privileges{Select: true, Delete: true, Update: true, Insert: true},
	}
	if got.OID == "" {
		t.Error("no OID")
	}
	same(t, "kinds", got, want, cmpopts.IgnoreFields(Table{}, "OID"))
}

func TestInspectPostgresPartitions(t *testing.T) {
	d := arrange(t, Postgres,
		`CREATE TABLE ev (id bigint, at timestamptz NOT NULL, PRIMARY KEY (id, at)) PARTITION BY RANGE (at)`,
		`CREATE TABLE ev_old PARTITION OF ev FOR VALUES FROM (MINVALUE) TO ('2020-01-01')`,
		`CREATE TABLE ev_new PARTITION OF ev FOR VALUES FROM ('2020-01-01') TO ('2030-01-01') PARTITION BY RANGE (at)`,
		`CREATE TABLE ev_new_a PARTITION OF ev_new FOR VALUES FROM ('2020-01-01') TO ('2025-01-01')`,
		`CREATE TABLE ev_def PARTITION OF ev DEFAULT`,
		`CREATE TABLE tag (ev_id bigint, ev_at timestamptz, FOREIGN KEY (ev_id, ev_at) REFERENCES ev ON DELETE CASCADE)`,
		`CREATE TABLE pin (ev_id bigint, ev_at timestamptz, CONSTRAINT pin_old FOREIGN KEY (ev_id, ev_at) REFERENCES ev_old)`,
		`CREATE FUNCTION nop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'`,
		`CREATE TRIGGER whole AFTER DELETE ON ev FOR EACH ROW EXECUTE FUNCTION nop()`,
		`CREATE TRIGGER part AFTER DELETE ON ev_old FOR EACH ROW EXECUTE FUNCTION nop()`,
		`INSERT INTO ev SELECT g, '2019-01-01' FROM generate_series(1, 1000) g`,
		`INSERT INTO ev SELECT g, '2021-01-01' FROM generate_series(1, 500) g`,
	)
	cascade := ForeignKey{Name: "tag_ev_id_ev_at_fkey", Child: "tag", ChildColumns: []string{"ev_id", "ev_at"}, Parent: "ev",
		ParentColumns: []string{"id", "at"}, OnDelete: Cascade, ChildSelect: true}
	pin := ForeignKey{Name: "pin_old", Child: "pin", ChildColumns: []string{"ev_id", "ev_at"}, Parent: "ev_old",
		ParentColumns: []string{"id", "at"}, OnDelete: NoAction, ChildSelect: true}

	got := inspect(t, d, "ev")
	if !got.Partitioned || got.Inherited {
		t.Errorf("partitioned %v, inherited %v", got.Partitioned, got.Inherited)
	}
	same(t, "partitions", got.Partitions, []string{"ev_def", "ev_new_a", "ev_old"})
	same(t, "children of the whole", got.Children, []ForeignKey{cascade, pin})
	same(t, "triggers of the whole", got.Triggers, []Trigger{{"whole", "ev", "AFTER", true, ""}, {"part", "ev_old", "AFTER", true, ""}})
	if got.EstRows != -1 || got.Blocks == 0 {
		t.Errorf("before ANALYZE: rows %d in %d blocks, want -1", got.EstRows, got.Blocks)
	}
	if _, err := d.SQL.Exec("ANALYZE"); err != nil {
		t.Fatal(err)
	}
	if got := inspect(t, d, "ev"); got.EstRows != 1500 {
		t.Errorf("rows %d, want 1500", got.EstRows)
	}

	leaf := inspect(t, d, "ev_old") // whose part of the cascade is a constraint of another name
	same(t, "children of the leaf", leaf.Children, []ForeignKey{pin, {
		Name: leaf.Children[1].Name, Child: "tag", ChildColumns: []string{"ev_id", "ev_at"}, Parent: "ev_old",
		ParentColumns: []string{"id", "at"}, OnDelete: Cascade, ChildSelect: true}})
	same(t, "triggers of the leaf", leaf.Triggers, []Trigger{{"part", "ev_old", "AFTER", true, ""}, {"whole", "ev_old", "AFTER", true, ""}})
	if leaf.EstRows != 1000 {
		t.Errorf("leaf has %d rows", leaf.EstRows)
	}
}

func TestInspectPostgresDetails(t *testing.T) {
	d := arrange(t, Postgres,
		`CREATE SCHEMA auth`,
		`CREATE TABLE auth.users (id int PRIMARY KEY)`,
		`CREATE TABLE auth.ident (id int PRIMARY KEY, u int REFERENCES auth.users ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED)`,
		`CREATE INDEX ON auth.ident (u) WHERE u IS NOT NULL`,
		`CREATE TABLE public.log (id int PRIMARY KEY, u int REFERENCES auth.users DEFERRABLE)`,
		`CREATE TABLE base (id int PRIMARY KEY)`, `CREATE TABLE derived () INHERITS (base)`,
		`CREATE FUNCTION nop() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END'`,
		`CREATE TRIGGER stmt BEFORE DELETE ON auth.users EXECUTE FUNCTION nop()`,
		`CREATE TRIGGER ins BEFORE INSERT OR UPDATE ON auth.users FOR EACH ROW EXECUTE FUNCTION nop()`,
		`CREATE TRIGGER off AFTER DELETE ON auth.users FOR EACH ROW EXECUTE FUNCTION nop()`,
		`ALTER TABLE auth.users DISABLE TRIGGER off`,
		`CREATE TRIGGER replica AFTER DELETE ON auth.users FOR EACH ROW EXECUTE FUNCTION nop()`,
		`ALTER TABLE auth.users ENABLE REPLICA TRIGGER replica`,
		`CREATE TRIGGER along AFTER DELETE OR UPDATE ON auth.ident FOR EACH ROW EXECUTE FUNCTION nop()`,
		`CREATE TRIGGER beside AFTER DELETE ON public.log FOR EACH ROW EXECUTE FUNCTION nop()`,
		`CREATE RULE never AS ON DELETE TO base DO INSTEAD NOTHING`,
		`CREATE UNLOGGED TABLE stat (id int PRIMARY KEY, at int)`,
		`INSERT INTO stat SELECT g, -g FROM generate_series(1, 1000) g`, `ANALYZE stat`,
	)
	users := inspect(t, d, "auth.users")
	if users.Schema != "auth" || users.Label != "auth.users" {
		t.Errorf("schema %q label %q", users.Schema, users.Label)
	}
	same(t, "children", users.Children, []ForeignKey{
		{Name: "ident_u_fkey", Child: "auth.ident", ChildColumns: []string{"u"}, Parent: "auth.users", ParentColumns: []string{"id"},
			OnDelete: Cascade, Deferrable: true, Deferred: true, Indexed: true, ChildSelect: true},
		{Name: "log_u_fkey", Child: "log", ChildColumns: []string{"u"}, Parent: "auth.users", ParentColumns: []string{"id"},
			OnDelete: NoAction, Deferrable: true, ChildSelect: true},
	})
	same(t, "triggers", users.Triggers, []Trigger{{"along", "auth.ident", "AFTER", true, ""}, {"stmt", "auth.users", "BEFORE", false, ""}})

	base := inspect(t, d, "base")
	if !base.Inherited {
		t.Error("base has an inheritance child")
	}
	same(t, "rule", base.Triggers, []Trigger{{"never", "base", "RULE", false, ""}})
	if got := inspect(t, d, "derived"); got.Inherited {
		t.Error("derived has none")
	}
	if got := inspect(t, d, "pg_catalog.pg_class"); !got.System {
		t.Error("pg_class is the system's")
	}
	stat := inspect(t, d, "public.stat")
	same(t, "spread", stat.Spread, map[string]Spread{"id": {1, 1}, "at": {-1, 1}})
	if stat.EstRows != 1000 || stat.Label != "stat" {
		t.Errorf("rows %d, label %q", stat.EstRows, stat.Label)
	}
}

func TestInspectPostgresRights(t *testing.T) {
	url := dbtest.Postgres(t)
	asRole, role := dbtest.PostgresRole(t, url)
	execAll(t, url,
		`CREATE TABLE seen (id int PRIMARY KEY, secret text)`,
		`CREATE TABLE kid (id int PRIMARY KEY, seen_id int REFERENCES seen ON DELETE CASCADE)`,
		`CREATE TABLE bits (id int PRIMARY KEY, secret text)`,
		`CREATE TABLE guarded (id int PRIMARY KEY)`,
		`CREATE TABLE owned (id int PRIMARY KEY)`, `CREATE TABLE forced (id int PRIMARY KEY)`,
		`GRANT SELECT, DELETE ON seen, guarded, owned, forced TO `+role,
		`GRANT SELECT (id) ON bits TO `+role,
		`ALTER TABLE guarded ENABLE ROW LEVEL SECURITY`,
		`ALTER TABLE owned ENABLE ROW LEVEL SECURITY`, `ALTER TABLE owned OWNER TO `+role,
		`ALTER TABLE forced ENABLE ROW LEVEL SECURITY`, `ALTER TABLE forced FORCE ROW LEVEL SECURITY`, `ALTER TABLE forced OWNER TO `+role,
	)
	d := openDB(t, asRole)
	if d.server.Role != role {
		t.Errorf("role %q, want %q", d.server.Role, role)
	}
	seen := inspect(t, d, "seen")
	same(t, "privileges", seen.Privileges, Privileges{Select: true, Delete: true})
	if seen.RowSecurity {
		t.Error("seen has no row security")
	}
	if len(seen.Children) != 1 || seen.Children[0].ChildSelect {
		t.Errorf("children %+v: one, which we may not read", seen.Children)
	}
	same(t, "a column only", inspect(t, d, "bits").Privileges, Privileges{Select: true})
	for table, want := range map[string]bool{"guarded": true, "owned": false, "forced": true} {
		if got := inspect(t, d, table).RowSecurity; got != want {
			t.Errorf("row security on %s is %v, want %v", table, got, want)
		}
	}
	if inspect(t, openDB(t, url), "guarded").RowSecurity {
		t.Error("row security does not hold a superuser")
	}
}

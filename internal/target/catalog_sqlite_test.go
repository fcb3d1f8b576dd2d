package target

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestInspectSQLite(t *testing.T) {
	d := arrange(t, SQLite,
		`CREATE TABLE kinds (id INTEGER PRIMARY KEY, n varchar(10) COLLATE NOCASE UNIQUE, at DATETIME NOT NULL, any, f REAL,
			gen AS (n || 'x'), b BLOB, UNIQUE (at, n))`,
		`CREATE INDEX kinds_at ON kinds (at)`, `CREATE INDEX kinds_part ON kinds (f) WHERE f > 1`, `CREATE INDEX kinds_expr ON kinds (lower(n))`,
		`INSERT INTO kinds (n, at) SELECT value, value FROM (WITH RECURSIVE s(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM s WHERE value < 500) SELECT value FROM s)`,
	)
	want := &Table{
		Engine: SQLite, Name: "kinds", Label: "kinds", EstRows: 500,
		Columns: []Column{
			{Name: "id", Type: "INTEGER", Declared: "INTEGER", Kind: KindInt, NotNull: true, Default: true},
			{Name: "n", Type: "TEXT", Declared: "varchar(10)", Kind: KindAny, Collation: "NOCASE", Position: 1},
			{Name: "at", Type: "NUMERIC", Declared: "DATETIME", Kind: KindAny, NotNull: true, Position: 2},
			{Name: "any", Type: "BLOB", Kind: KindAny, Position: 3},
			{Name: "f", Type: "REAL", Declared: "REAL", Kind: KindAny, Position: 4},
			{Name: "gen", Type: "BLOB", Kind: KindAny, Position: 5, Generated: true},
			{Name: "b", Type: "BLOB", Declared: "BLOB", Kind: KindAny, Position: 6},
		},
		Indexes: []Index{
			{Name: "rowid", Columns: []string{"id"}, Unique: true, Primary: true, Ordered: true, Valid: true},
			{Name: "kinds_at", Columns: []string{"at"}, Ordered: true, Valid: true},
			{Name: "kinds_expr", Columns: []string{""}, Ordered: true, Valid: true},
			{Name: "kinds_part", Columns: []string{"f"}, Partial: true, Ordered: true, Valid: true},
			{Name: "sqlite_autoindex_kinds_1", Columns: []string{"n"}, Unique: true, Ordered: true, Valid: true},
			{Name: "sqlite_autoindex_kinds_2", Columns: []string{"at", "n"}, Unique: true, Ordered: true, Valid: true},
		},
		Privileges: Privileges{Select: true, Delete: true, Update: true, Insert: true},
	}
	same(t, "kinds", inspect(t, d, "main.KINDS"), want)
}

func TestInspectSQLiteKeys(t *testing.T) {
	pk := func(c Column) Column { return c }
	cases := []struct {
		name, create string
		without      bool
		key          Column
	}{
		{"text may be null", `CREATE TABLE t (id TEXT PRIMARY KEY)`, false, pk(Column{Name: "id", Type: "TEXT", Declared: "TEXT", Kind: KindAny})},
		{"text not null", `CREATE TABLE t (id TEXT NOT NULL PRIMARY KEY)`, false, pk(Column{Name: "id", Type: "TEXT", Declared: "TEXT", Kind: KindAny, NotNull: true})},
		{"without rowid", `CREATE TABLE t (id TEXT PRIMARY KEY) WITHOUT ROWID`, true, pk(Column{Name: "id", Type: "TEXT", Declared: "TEXT", Kind: KindAny, NotNull: true})},
		{"integer without rowid", `CREATE TABLE t (id INTEGER PRIMARY KEY) WITHOUT ROWID`, true, pk(Column{Name: "id", Type: "INTEGER", Declared: "INTEGER", Kind: KindAny, NotNull: true})},
		{"not the rowid", `CREATE TABLE t (id INTEGER PRIMARY KEY DESC)`, false, pk(Column{Name: "id", Type: "INTEGER", Declared: "INTEGER", Kind: KindAny})},
		{"int is not integer", `CREATE TABLE t (id INT PRIMARY KEY)`, false, pk(Column{Name: "id", Type: "INTEGER", Declared: "INT", Kind: KindAny})},
		{"strict", `CREATE TABLE t (id TEXT PRIMARY KEY, "WITHOUT" INT) STRICT`, false, pk(Column{Name: "id", Type: "TEXT", Declared: "TEXT", Kind: KindText, NotNull: true})},
		{"strict and more", `CREATE TABLE t (id BLOB PRIMARY KEY) WITHOUT ROWID, STRICT`, true, pk(Column{Name: "id", Type: "BLOB", Declared: "BLOB", Kind: KindBytes, NotNull: true})},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := inspect(t, arrange(t, SQLite, c.create), "t")
			same(t, "key column", got.Columns[0], c.key)
			if got.WithoutRow != c.without {
				t.Errorf("without rowid %v", got.WithoutRow)
			}
			if len(got.Indexes) != 1 || !got.Indexes[0].Primary || !got.Indexes[0].Unique || !cmp.Equal(got.Indexes[0].Columns, []string{"id"}) {
				t.Errorf("indexes %+v", got.Indexes)
			}
		})
	}
}

func TestInspectSQLiteDetails(t *testing.T) {
	d := arrange(t, SQLite,
		`CREATE TABLE "user" (id TEXT NOT NULL PRIMARY KEY, a, b, UNIQUE (a, b))`,
		`CREATE TABLE "odd ""name" (id INTEGER PRIMARY KEY,
			u TEXT /* REFERENCES nobody ( , */ REFERENCES "user" ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED, -- REFERENCES x
			"references" TEXT DEFAULT 'x REFERENCES y' CONSTRAINT nn NOT NULL CONSTRAINT second REFERENCES USER (id) ON DELETE SET NULL NOT DEFERRABLE INITIALLY DEFERRED,
			a, b, CHECK (a IN ('(', ')', ',')), CONSTRAINT [the third] FOREIGN KEY (b, a) REFERENCES "user" (b, a) ON DELETE SET DEFAULT)`,
		`CREATE INDEX odd_ba ON "odd ""name" (a, b, u)`,
		`CREATE TABLE cyc (id INTEGER PRIMARY KEY, o REFERENCES "odd ""name" (id) ON DELETE CASCADE, c REFERENCES cyc (id) ON DELETE CASCADE)`,
		`CREATE VIRTUAL TABLE words USING fts5(x)`,
		`CREATE TRIGGER plain DELETE ON "user" BEGIN SELECT 1; END`,
		`CREATE TRIGGER IF NOT EXISTS "after" AFTER DELETE ON user WHEN OLD.a > 1 BEGIN SELECT 1; END`,
		`CREATE TRIGGER "insert" /* BEFORE DELETE ON user */ BEFORE UPDATE OF a ON user BEGIN DELETE FROM cyc; END`,
		`CREATE TRIGGER deep BEFORE DELETE ON cyc BEGIN SELECT 1; END`,
	)
	odd := `odd "name`
	got := inspect(t, d, "user")
	same(t, "children", got.Children, []ForeignKey{
		{Child: odd, ChildColumns: []string{"u"}, Parent: "user", ParentColumns: []string{"id"}, OnDelete: Cascade, Deferrable: true, Deferred: true, ChildSelect: true},
		{Name: "second", Child: odd, ChildColumns: []string{"references"}, Parent: "USER", ParentColumns: []string{"id"}, OnDelete: SetNull, ChildSelect: true},
		{Name: "the third", Child: odd, ChildColumns: []string{"b", "a"}, Parent: "user", ParentColumns: []string{"b", "a"}, OnDelete: SetDefault, Indexed: true, ChildSelect: true},
		{Child: "cyc", ChildColumns: []string{"o"}, Parent: odd, ParentColumns: []string{"id"}, OnDelete: Cascade, ChildSelect: true},
		{Child: "cyc", ChildColumns: []string{"c"}, Parent: "cyc", ParentColumns: []string{"id"}, OnDelete: Cascade, ChildSelect: true},
	})
	same(t, "triggers", got.Triggers, []Trigger{{"deep", "cyc", "BEFORE", true, ""}, {"after", "user", "AFTER", true, ""}, {"plain", "user", "BEFORE", true, ""}})
	if got := inspect(t, d, "words"); got.Storage != "virtual" {
		t.Errorf("words: storage %q", got.Storage)
	}
	if got := inspect(t, d, "words_data"); got.Storage != "" {
		t.Errorf("words_data: storage %q", got.Storage)
	}
}

func TestInspectSQLiteCycle(t *testing.T) {
	d := arrange(t, SQLite,
		`CREATE TABLE a (id INTEGER PRIMARY KEY, b INTEGER REFERENCES b ON DELETE CASCADE)`,
		`CREATE TABLE b (id INTEGER PRIMARY KEY, a INTEGER REFERENCES a ON DELETE CASCADE)`)
	same(t, "children", inspect(t, d, "a").Children, []ForeignKey{
		{Child: "b", ChildColumns: []string{"a"}, Parent: "a", ParentColumns: []string{"id"}, OnDelete: Cascade, ChildSelect: true},
		{Child: "a", ChildColumns: []string{"b"}, Parent: "b", ParentColumns: []string{"id"}, OnDelete: Cascade, ChildSelect: true},
	})
}

func TestInspectSQLiteSize(t *testing.T) {
	d := arrange(t, SQLite, `CREATE TABLE t (id INTEGER PRIMARY KEY, a)`, `INSERT INTO t (id) VALUES (1), (9223372036854775806)`)
	if got := inspect(t, d, "t").EstRows; got < 2 || got > 10000 {
		t.Errorf("rows %d: as many as the file can hold, not as the numbers run", got)
	}
	execAll(t, "sqlite:"+d.path, `CREATE INDEX t_a ON t (a)`, `ANALYZE`)
	if got := inspect(t, d, "t").EstRows; got != 2 {
		t.Errorf("rows %d after ANALYZE", got)
	}
	if got := inspect(t, arrange(t, SQLite, `CREATE TABLE t (id INTEGER PRIMARY KEY)`), "t").EstRows; got != 0 {
		t.Errorf("rows %d of an empty table", got)
	}
}

// Whatever the text, reading it ends; what is in quotes or comments is never taken for a word.
func TestSQLTokens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringOf(rapid.SampledFrom([]rune("a,() \n'\"`[]-*/;é"))).Draw(t, "s")
		sqlTokens(s)
		triggerHead("CREATE TRIGGER " + s)
		referenceClauses(s + " REFERENCES " + s)
	})
	same(t, "tokens", sqlTokens("a-- b\n/* c */'d''e' [f g] \"h\"\"i\"(1.5)/**/"), []string{"a", "'d'e", "[f g", `"h"i`, "(", "1", ".", "5", ")"})
}

func TestDeleteRule(t *testing.T) {
	text := "CREATE TABLE `k` (`a` int COMMENT 'CONSTRAINT `b` ON DELETE CASCADE',\n CONSTRAINT `a` FOREIGN KEY (`a`) REFERENCES `r` (`id`) ON DELETE SET NULL ON UPDATE CASCADE,\n" +
		" CONSTRAINT `b` FOREIGN KEY (`a`) REFERENCES `r` (`id`) ON UPDATE CASCADE,\n CONSTRAINT `c` FOREIGN KEY (`a`) REFERENCES `r` (`id`) ON DELETE CASCADE)"
	for name, want := range map[string]Rule{"a": SetNull, "b": Restrict, "c": Cascade} {
		if got := deleteRule(text, name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

package target

import (
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"

	"curfew.dev/curfew/internal/dbtest"
)

func TestInspectMariaDB(t *testing.T) {
	d := arrange(t, MySQL,
		`CREATE TABLE kinds (
			id int(11) unsigned NOT NULL AUTO_INCREMENT PRIMARY KEY, ti tinyint(1), dc decimal(10,2), fl double,
			vc varchar(40) COLLATE utf8mb4_bin NOT NULL, tx longtext, bin binary(16), bl blob, uu uuid, d date, dt datetime(6) NOT NULL,
			ts timestamp NOT NULL DEFAULT current_timestamp() ON UPDATE current_timestamp(), tm time, en enum('b','a'), st set('a'),
			js json, y year, gen int GENERATED ALWAYS AS (y + 1) STORED,
			UNIQUE KEY vc (vc), UNIQUE KEY two (dt, id), KEY tx (tx(10)), FULLTEXT KEY ft (tx), KEY off (ti) IGNORED
		) ENGINE=InnoDB`)
	want := &Table{
		Engine: MySQL, Name: "kinds", Label: "kinds", Storage: "InnoDB", Blocks: 1,
		Columns: []Column{
			{Name: "id", Type: "int", Declared: "int(11) unsigned", Kind: KindInt, NotNull: true, Unsigned: true, Position: 1, Default: true},
			{Name: "ti", Type: "tinyint", Declared: "tinyint(1)", Kind: KindInt, Position: 2},
			{Name: "dc", Type: "decimal", Declared: "decimal(10,2)", Kind: KindDecimal, Position: 3},
			{Name: "fl", Type: "double", Declared: "double", Kind: KindFloat, Position: 4},
			{Name: "vc", Type: "varchar", Declared: "varchar(40)", Kind: KindText, NotNull: true, Collation: "utf8mb4_bin", Position: 5},
			{Name: "tx", Type: "longtext", Declared: "longtext", Kind: KindText, Collation: "utf8mb4_unicode_ci", Position: 6},
			{Name: "bin", Type: "binary", Declared: "binary(16)", Kind: KindBytes, Position: 7},
			{Name: "bl", Type: "blob", Declared: "blob", Kind: KindBytes, Position: 8},
			{Name: "uu", Type: "uuid", Declared: "uuid", Kind: KindUUID, Position: 9},
			{Name: "d", Type: "date", Declared: "date", Kind: KindDate, Position: 10},
			{Name: "dt", Type: "datetime", Declared: "datetime(6)", Kind: KindTime, NotNull: true, Position: 11},
			{Name: "ts", Type: "timestamp", Declared: "timestamp", Kind: KindInstant, NotNull: true, Position: 12, OnUpdate: true, Default: true},
			{Name: "tm", Type: "time", Declared: "time", Kind: KindTimeOfDay, Position: 13},
			{Name: "en", Type: "enum", Declared: "enum('b','a')", Kind: KindEnum, Collation: "utf8mb4_unicode_ci", Position: 14},
			{Name: "st", Type: "set", Declared: "set('a')", Kind: KindOther, Collation: "utf8mb4_unicode_ci", Position: 15},
			{Name: "js", Type: "longtext", Declared: "longtext", Kind: KindText, Collation: "utf8mb4_bin", Position: 16},
			{Name: "y", Type: "year", Declared: "year(4)", Kind: KindInt, Position: 17, Unsigned: false},
			{Name: "gen", Type: "int", Declared: "int(11)", Kind: KindInt, Position: 18, Generated: true},
		},
		Indexes: []Index{
			{Name: "PRIMARY", Columns: []string{"id"}, Unique: true, Primary: true, Ordered: true, Valid: true},
			{Name: "ft", Columns: []string{"tx"}, Valid: true},
			{Name: "off", Columns: []string{"ti"}, Ordered: true},
			{Name: "two", Columns: []string{"dt", "id"}, Unique: true, Ordered: true, Valid: true},
			{Name: "tx", Columns: []string{"tx"}, Ordered: true, Valid: true, Partial: true},
			{Name: "vc", Columns: []string{"vc"}, Unique: true, Ordered: true, Valid: true},
		},
		Privileges: Privileges{Select: true, Delete: true, Update: true, Insert: true},
	}
	same(t, "kinds", inspect(t, d, "kinds"), want)
}

func TestInspectMariaDBDetails(t *testing.T) {
	d := arrange(t, MySQL,
		`CREATE TABLE iam (id int PRIMARY KEY) ENGINE=MyISAM`,
		`CREATE TABLE parts (id int, y int, PRIMARY KEY (id, y)) PARTITION BY RANGE (y) (PARTITION p0 VALUES LESS THAN (2020), PARTITION p1 VALUES LESS THAN MAXVALUE)`,
		`CREATE TABLE ver (id int PRIMARY KEY) WITH SYSTEM VERSIONING`,
		`CREATE TABLE root (id int PRIMARY KEY)`,
		`CREATE TABLE kid (id int PRIMARY KEY, a int, CONSTRAINT k1 FOREIGN KEY (a) REFERENCES root (id) ON DELETE CASCADE)`,
		`CREATE TRIGGER root_del BEFORE DELETE ON root FOR EACH ROW SET @x = 1`,
		`CREATE TRIGGER root_ins BEFORE INSERT ON root FOR EACH ROW SET @x = 1`,
		`CREATE TRIGGER kid_del AFTER DELETE ON kid FOR EACH ROW SET @x = 1`,
		`INSERT INTO root SELECT seq FROM seq_1_to_2000`, `ANALYZE TABLE root`,
	)
	if got := inspect(t, d, "iam").Storage; got != "MyISAM" {
		t.Errorf("storage %q", got)
	}
	parts := inspect(t, d, "parts")
	if !parts.Partitioned {
		t.Error("parts is partitioned")
	}
	same(t, "partitions", parts.Partitions, []string{"p0", "p1"})
	ver := inspect(t, d, "ver")
	if !ver.Versioned || ver.IsView {
		t.Errorf("ver: versioned %v, view %v", ver.Versioned, ver.IsView)
	}
	root := inspect(t, d, "root")
	same(t, "triggers", root.Triggers, []Trigger{{"root_del", "root", "BEFORE", true, ""}}) // those of a cascade's child do not fire
	if root.EstRows < 1000 || root.EstRows > 3000 {
		t.Errorf("rows %d", root.EstRows)
	}
	if got := inspect(t, d, "mysql.global_priv"); !got.System || got.Schema != "mysql" || got.Label != "mysql.global_priv" {
		t.Errorf("system %v, schema %q, label %q", got.System, got.Schema, got.Label)
	}
}

// What a role with few rights does not see must not pass for not being there.
func TestInspectMariaDBRights(t *testing.T) {
	url := dbtest.MariaDB(t)
	admin := openDB(t, url)
	db := ""
	if err := admin.SQL.QueryRow("SELECT DATABASE()").Scan(&db); err != nil {
		t.Fatal(err)
	}
	execAll(t, url,
		`CREATE TABLE root (id int PRIMARY KEY)`,
		`CREATE TABLE kid (id int PRIMARY KEY, a int, CONSTRAINT k1 FOREIGN KEY (a) REFERENCES root (id) ON DELETE CASCADE)`,
		`CREATE TRIGGER root_del BEFORE DELETE ON root FOR EACH ROW SET @x = 1`)
	cases := []struct {
		name               string
		grants             []string
		children, triggers int
		hidden             []string
		want               Privileges
	}{
		{"the table only", []string{"SELECT, DELETE ON " + db + ".root"}, 0, 1, []string{"foreign keys"}, Privileges{Select: true, Delete: true}},
		{"to look only", []string{"SELECT, REFERENCES ON " + db + ".root"}, 0, 0, []string{"foreign keys", "triggers"}, Privileges{Select: true}},
		{"REFERENCES on the database", []string{"SELECT, DELETE ON " + db + ".root", "REFERENCES ON " + db + ".*"}, 1, 1, nil, Privileges{Select: true, Delete: true}},
		{"with TRIGGER", []string{"SELECT, DELETE, TRIGGER ON " + db + ".root"}, 0, 1, []string{"foreign keys"}, Privileges{Select: true, Delete: true}},
		{"the database", []string{"SELECT ON " + db + ".*"}, 1, 0, []string{"triggers"}, Privileges{Select: true}},
		{"with PROCESS", []string{"SELECT, DELETE ON " + db + ".root", "PROCESS ON *.*"}, 0, 1, []string{"foreign keys"}, Privileges{Select: true, Delete: true}},
		{"PROCESS and the child", []string{"SELECT, DELETE, TRIGGER ON " + db + ".root", "SELECT ON " + db + ".kid", "PROCESS ON *.*"}, 1, 1, nil, Privileges{Select: true, Delete: true}},
		{"a column", []string{"SELECT (id) ON " + db + ".root", "UPDATE ON " + db + ".*"}, 1, 1, nil, Privileges{Select: true, Update: true}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			asUser, account := dbtest.MariaDBUser(t, url)
			for _, g := range c.grants {
				execAll(t, url, "GRANT "+g+" TO "+account)
			}
			got := inspect(t, openDB(t, asUser), "root")
			same(t, "hidden", got.Hidden, c.hidden, cmpopts.SortSlices(func(a, b string) bool { return a < b }))
			same(t, "privileges", got.Privileges, c.want)
			if len(got.Children) == 1 && got.Children[0].OnDelete != Cascade {
				t.Errorf("rule %q", got.Children[0].OnDelete)
			}
			if len(got.Children) != c.children || len(got.Triggers) != c.triggers {
				t.Errorf("sees %d children, %d triggers, want %d, %d", len(got.Children), len(got.Triggers), c.children, c.triggers)
			}
		})
	}
}

func TestInspectMariaDBOtherDatabase(t *testing.T) {
	url, elsewhere := dbtest.MariaDB(t), dbtest.MariaDB(t)
	d, e := openDB(t, url), openDB(t, elsewhere)
	var here, there string
	if err := d.SQL.QueryRow("SELECT DATABASE()").Scan(&here); err != nil {
		t.Fatal(err)
	}
	if err := e.SQL.QueryRow("SELECT DATABASE()").Scan(&there); err != nil {
		t.Fatal(err)
	}
	execAll(t, url, `CREATE TABLE root (id int PRIMARY KEY)`)
	execAll(t, elsewhere, `CREATE TABLE kid (id int PRIMARY KEY, a int, CONSTRAINT far FOREIGN KEY (a) REFERENCES `+here+`.root (id) ON DELETE CASCADE)`)
	t.Cleanup(func() { execAll(t, elsewhere, "DROP TABLE kid") })
	want := ForeignKey{Name: "far", Child: there + ".kid", ChildColumns: []string{"a"}, Parent: "root", ParentColumns: []string{"id"},
		OnDelete: Cascade, Indexed: true, ChildSelect: true}
	same(t, "children", inspect(t, d, "root").Children, []ForeignKey{want})
	want.Child, want.Parent = "kid", here+".root"
	got := inspect(t, e, here+".root")
	same(t, "children seen from there", got.Children, []ForeignKey{want})
	if got.Schema != here || got.Label != here+".root" {
		t.Errorf("schema %q, label %q", got.Schema, got.Label)
	}
}

func TestInnoDBName(t *testing.T) {
	for in, want := range map[string]string{"a/b": "a/b", "a@002db/c@0024": "a-b/c$", "a/@": "a/@", "a/@0t": "a/@0t"} {
		if got := innodbName(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}

// A child with a name that InnoDB encodes is found all the same, and hidden all the same.
func TestInspectMariaDBOddNames(t *testing.T) {
	url := dbtest.MariaDB(t)
	execAll(t, url, "CREATE TABLE `the-root` (id int PRIMARY KEY)",
		"CREATE TABLE `odd.kid$` (id int PRIMARY KEY, a int, CONSTRAINT k1 FOREIGN KEY (a) REFERENCES `the-root` (id) ON DELETE CASCADE)")
	d := openDB(t, url)
	if got := inspect(t, d, "the-root"); len(got.Children) != 1 || got.Children[0].Child != "odd.kid$" || len(got.Hidden) != 0 {
		t.Errorf("children %+v, hidden %v", got.Children, got.Hidden)
	}
	asUser, account := dbtest.MariaDBUser(t, url)
	execAll(t, url, "GRANT SELECT, DELETE ON `the-root` TO "+account, "GRANT PROCESS ON *.* TO "+account)
	if got := inspect(t, openDB(t, asUser), "the-root"); len(got.Hidden) != 1 {
		t.Errorf("hidden %v", got.Hidden)
	}
}

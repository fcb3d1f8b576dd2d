package target

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// mysqlLabel is a table's name as a policy would write it. DATABASE() is the connection's own.
func mysqlLabel(schemaCol, tableCol string) string {
	return fmt.Sprintf("CASE WHEN %s = DATABASE() THEN %s ELSE CONCAT(%s, '.', %s) END", schemaCol, tableCol, schemaCol, tableCol)
}

func (d *DB) inspectMySQL(ctx context.Context, name string) (*Table, error) {
	t := &Table{Engine: MySQL}
	schema, table := parts(name)
	var kind string
	var created sql.NullString
	err := d.SQL.QueryRowContext(ctx, `
		SELECT IF(TABLE_SCHEMA = DATABASE(), '', TABLE_SCHEMA), TABLE_NAME, `+mysqlLabel("TABLE_SCHEMA", "TABLE_NAME")+`, TABLE_TYPE,
		       COALESCE(ENGINE, ''), COALESCE(TABLE_ROWS, -1), COALESCE(DATA_LENGTH DIV @@innodb_page_size, 0), COALESCE(CREATE_OPTIONS, ''),
		       TABLE_SCHEMA IN ('mysql', 'information_schema', 'performance_schema', 'sys')
		FROM information_schema.TABLES WHERE TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND TABLE_NAME = ?`, schema, table).
		Scan(&t.Schema, &t.Name, &t.Label, &kind, &t.Storage, &t.EstRows, &t.Blocks, &created, &t.System)
	if errors.Is(err, sql.ErrNoRows) {
		near, err := texts(d.SQL.QueryContext(ctx, `
			SELECT `+mysqlLabel("TABLE_SCHEMA", "TABLE_NAME")+` FROM information_schema.TABLES
			WHERE LOWER(TABLE_NAME) = LOWER(?) AND TABLE_TYPE = 'BASE TABLE' ORDER BY 1 LIMIT 3`, table))
		if err != nil {
			return nil, err
		}
		return nil, missing(near)
	}
	if err != nil {
		return nil, err
	}
	t.IsView = strings.HasSuffix(kind, "VIEW")
	t.Temporary = strings.Contains(kind, "TEMPORARY")
	t.Versioned = kind == "SYSTEM VERSIONED"
	t.Partitioned = strings.Contains(created.String, "partitioned")
	if t.IsView {
		return t, nil
	}
	for _, read := range []func(context.Context, *Table) error{
		d.mysqlColumns, d.mysqlIndexes, d.mysqlPartitions, d.mysqlReferences, d.mysqlPrivileges,
	} {
		if err := read(ctx, t); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// mysqlThis restricts an information_schema view to the table; its parameters are mysqlArgs. Both names given as they are,
// the server opens that one table only.
const mysqlThis = "TABLE_SCHEMA = COALESCE(NULLIF(?, ''), DATABASE()) AND TABLE_NAME = ?"

func mysqlArgs(t *Table) []any { return []any{t.Schema, t.Name} }

func (d *DB) mysqlColumns(ctx context.Context, t *Table) error {
	rows, err := d.SQL.QueryContext(ctx, `
		SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE = 'NO', COALESCE(COLLATION_NAME, ''), ORDINAL_POSITION,
		       COALESCE(GENERATION_EXPRESSION, '') <> '', LOWER(EXTRA) LIKE '%on update%', COALESCE(COLUMN_DEFAULT, 'NULL') <> 'NULL' OR LOWER(EXTRA) LIKE '%auto_increment%'
		FROM information_schema.COLUMNS WHERE `+mysqlThis+` ORDER BY ORDINAL_POSITION`, mysqlArgs(t)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var c Column
		if err := rows.Scan(&c.Name, &c.Type, &c.Declared, &c.NotNull, &c.Collation, &c.Position, &c.Generated, &c.OnUpdate, &c.Default); err != nil {
			return err
		}
		c.Kind = mysqlKind(c.Type)
		c.Unsigned = strings.Contains(c.Declared, "unsigned")
		t.Columns = append(t.Columns, c)
	}
	return rows.Err()
}

func mysqlKind(dataType string) Kind {
	switch strings.ToLower(dataType) {
	case "tinyint", "smallint", "mediumint", "int", "bigint", "year":
		return KindInt
	case "decimal":
		return KindDecimal
	case "float", "double":
		return KindFloat
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext":
		return KindText
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		return KindBytes
	case "uuid":
		return KindUUID
	case "date":
		return KindDate
	case "datetime":
		return KindTime
	case "timestamp":
		return KindInstant
	case "time":
		return KindTimeOfDay
	case "enum":
		return KindEnum
	}
	return KindOther
}

func (d *DB) mysqlIndexes(ctx context.Context, t *Table) error {
	hidden := "IS_VISIBLE = 'NO'"
	if d.server.MariaDB {
		hidden = "FALSE"
		if d.server.Major > 10 || d.server.Major == 10 && d.server.Minor >= 6 {
			hidden = "IGNORED = 'YES'"
		}
	}
	rows, err := d.SQL.QueryContext(ctx, `
		SELECT INDEX_NAME, NON_UNIQUE = 0, INDEX_TYPE = 'BTREE', `+hidden+`, COALESCE(COLUMN_NAME, ''), SUB_PART IS NOT NULL
		FROM information_schema.STATISTICS WHERE `+mysqlThis+`
		ORDER BY INDEX_NAME <> 'PRIMARY', INDEX_NAME, SEQ_IN_INDEX`, mysqlArgs(t)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var ix Index
		var column string
		var hidden, prefix bool
		if err := rows.Scan(&ix.Name, &ix.Unique, &ix.Ordered, &hidden, &column, &prefix); err != nil {
			return err
		}
		if n := len(t.Indexes); n == 0 || t.Indexes[n-1].Name != ix.Name {
			ix.Primary, ix.Valid = ix.Name == "PRIMARY", !hidden
			t.Indexes = append(t.Indexes, ix)
		}
		last := &t.Indexes[len(t.Indexes)-1]
		last.Columns = append(last.Columns, column)
		last.Partial = last.Partial || prefix
	}
	return rows.Err()
}

func (d *DB) mysqlPartitions(ctx context.Context, t *Table) error {
	if !t.Partitioned {
		return nil
	}
	var err error
	t.Partitions, err = texts(d.SQL.QueryContext(ctx, `
		SELECT COALESCE(SUBPARTITION_NAME, PARTITION_NAME) FROM information_schema.PARTITIONS
		WHERE `+mysqlThis+` AND PARTITION_NAME IS NOT NULL ORDER BY PARTITION_ORDINAL_POSITION, SUBPARTITION_ORDINAL_POSITION`, mysqlArgs(t)...))
	return err
}

// mysqlReferences reads the foreign keys that our role can see, in every database, and walks them.
func (d *DB) mysqlReferences(ctx context.Context, t *Table) error {
	rows, err := d.SQL.QueryContext(ctx, `
		SELECT k.CONSTRAINT_SCHEMA, k.CONSTRAINT_NAME, k.TABLE_SCHEMA, k.TABLE_NAME, k.REFERENCED_TABLE_SCHEMA, k.REFERENCED_TABLE_NAME,
		       `+mysqlLabel("k.TABLE_SCHEMA", "k.TABLE_NAME")+`, `+mysqlLabel("k.REFERENCED_TABLE_SCHEMA", "k.REFERENCED_TABLE_NAME")+`,
		       COALESCE(r.DELETE_RULE, ''), k.COLUMN_NAME, k.REFERENCED_COLUMN_NAME
		FROM information_schema.KEY_COLUMN_USAGE k
		LEFT JOIN information_schema.REFERENTIAL_CONSTRAINTS r ON r.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA
		     AND r.CONSTRAINT_NAME = k.CONSTRAINT_NAME AND r.TABLE_NAME = k.TABLE_NAME
		WHERE k.REFERENCED_TABLE_NAME IS NOT NULL
		ORDER BY k.TABLE_SCHEMA, k.TABLE_NAME, k.CONSTRAINT_NAME, k.ORDINAL_POSITION`)
	if err != nil {
		return err
	}
	defer rows.Close()
	var refs []reference
	for rows.Next() {
		var r reference
		var owner, childSchema, childTable, parentSchema, parentTable, rule, col, parentCol string
		if err := rows.Scan(&owner, &r.Name, &childSchema, &childTable, &parentSchema, &parentTable,
			&r.Child, &r.Parent, &rule, &col, &parentCol); err != nil {
			return err
		}
		r.id = owner + "/" + r.Name
		if n := len(refs); n == 0 || refs[n-1].id != r.id || refs[n-1].Child != r.Child {
			r.child, r.parent = childSchema+"/"+childTable, parentSchema+"/"+parentTable
			// InnoDB keeps an index on the columns of every foreign key; what is seen here may be read, at least in part.
			r.OnDelete, r.Indexed, r.ChildSelect = Rule(rule), true, true
			refs = append(refs, r)
		}
		last := &refs[len(refs)-1]
		last.ChildColumns = append(last.ChildColumns, col)
		last.ParentColumns = append(last.ParentColumns, parentCol)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for i := range refs {
		if err := d.mysqlRule(ctx, &refs[i]); err != nil {
			return err
		}
	}
	var self string
	if err := d.SQL.QueryRowContext(ctx, `SELECT COALESCE(NULLIF(?, ''), DATABASE())`, t.Schema).Scan(&self); err != nil {
		return err
	}
	var tables []string
	t.Children, tables = reach(self+"/"+t.Name, refs, noPartitions)
	t.Parents = parentsOf(self+"/"+t.Name, refs)
	if hidden, err := d.mysqlHiddenReferences(ctx, self, tables, refs); err != nil {
		return err
	} else if hidden {
		t.Hidden = append(t.Hidden, "foreign keys")
	}
	// A cascade of InnoDB fires no trigger of the child: only our own table's count.
	if err := d.mysqlTriggers(ctx, t, tables[:1]); err != nil {
		return err
	}
	writes, err := d.SQL.QueryContext(ctx, `
		SELECT TRIGGER_NAME, EVENT_MANIPULATION, ACTION_TIMING, ACTION_ORIENTATION = 'ROW' FROM information_schema.TRIGGERS
		WHERE EVENT_OBJECT_SCHEMA = ? AND EVENT_OBJECT_TABLE = ? AND EVENT_MANIPULATION IN ('INSERT', 'UPDATE') ORDER BY 1, 2`, self, t.Name)
	if err != nil {
		return err
	}
	return scanWrites(t, writes)
}

// mysqlRule reads the rule of a foreign key from the child's definition where our privileges on the child are too few for
// information_schema to tell it.
func (d *DB) mysqlRule(ctx context.Context, r *reference) error {
	if r.OnDelete != "" {
		return nil
	}
	schema, table, _ := strings.Cut(r.child, "/")
	var name, text string
	if err := d.SQL.QueryRowContext(ctx, "SHOW CREATE TABLE "+quoted(dialectFor(d.server), schema, table)).Scan(&name, &text); err != nil {
		return err
	}
	r.OnDelete = deleteRule(text, r.Name)
	return nil
}

// mysqlHiddenReferences says whether there may be foreign keys to the tables that our role does not see: information_schema
// leaves out the children on which it has no privilege, and a cascade into one of those would be missed. With PROCESS the
// engine's own list tells; without, a privilege on the whole database has to do, and a child in another database stays unseen.
func (d *DB) mysqlHiddenReferences(ctx context.Context, schema string, tables []string, refs []reference) (bool, error) {
	view := "information_schema.INNODB_FOREIGN"
	if d.server.MariaDB {
		view = "information_schema.INNODB_SYS_FOREIGN"
	}
	pairs, err := texts(d.SQL.QueryContext(ctx, "SELECT CONCAT(FOR_NAME, ' ', REF_NAME) FROM "+view))
	if err != nil {
		if classify(err) != classPermission {
			return false, err
		}
		rights, err := d.mysqlRights(ctx, schema, "")
		return len(rights) == 0, err
	}
	for _, p := range pairs {
		child, parent, _ := strings.Cut(p, " ")
		child, parent = innodbName(child), innodbName(parent)
		ours := slices.ContainsFunc(tables, func(t string) bool { return strings.EqualFold(t, parent) })
		if ours && !slices.ContainsFunc(refs, func(r reference) bool {
			return strings.EqualFold(r.child, child) && strings.EqualFold(r.parent, parent)
		}) {
			return true, nil
		}
	}
	return false, nil
}

// innodbEncoded matches a character of a table's name that InnoDB's own lists encode: @002d is a hyphen.
var innodbEncoded = regexp.MustCompile(`@[0-9a-f]{4}`)

// innodbName decodes database/table. Letters beyond ASCII have codes of their own, which stay: such a name is then one that
// is not seen elsewhere.
func innodbName(s string) string {
	return innodbEncoded.ReplaceAllStringFunc(s, func(m string) string {
		n, err := strconv.ParseUint(m[1:], 16, 32)
		if err != nil {
			return m
		}
		return string(rune(n))
	})
}

func (d *DB) mysqlTriggers(ctx context.Context, t *Table, tables []string) error {
	for _, table := range tables {
		schema, name, _ := strings.Cut(table, "/")
		rows, err := d.SQL.QueryContext(ctx, `
			SELECT TRIGGER_NAME, `+mysqlLabel("EVENT_OBJECT_SCHEMA", "EVENT_OBJECT_TABLE")+`, ACTION_TIMING, ACTION_ORIENTATION = 'ROW'
			FROM information_schema.TRIGGERS
			WHERE EVENT_OBJECT_SCHEMA = ? AND EVENT_OBJECT_TABLE = ? AND EVENT_MANIPULATION = 'DELETE' ORDER BY 1`, schema, name)
		if err != nil {
			return err
		}
		for rows.Next() {
			var g Trigger
			if err := rows.Scan(&g.Name, &g.Table, &g.Timing, &g.Row); err != nil {
				rows.Close()
				return err
			}
			t.Triggers = append(t.Triggers, g)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (d *DB) mysqlPrivileges(ctx context.Context, t *Table) error {
	schema := t.Schema
	if schema == "" {
		if err := d.SQL.QueryRowContext(ctx, `SELECT DATABASE()`).Scan(&schema); err != nil {
			return err
		}
	}
	rights, err := d.mysqlRights(ctx, schema, t.Name)
	if err != nil {
		return err
	}
	has := func(r string) bool { return slices.Contains(rights, r) }
	t.Privileges = Privileges{Select: has("SELECT"), Delete: has("DELETE"), Update: has("UPDATE"), Insert: has("INSERT")}
	// MySQL shows triggers to who has TRIGGER; MariaDB to who may change the table in any way.
	if !has("TRIGGER") && !(d.server.MariaDB && slices.ContainsFunc(rights, func(r string) bool { return r != "SELECT" && r != "REFERENCES" })) {
		t.Hidden = append(t.Hidden, "triggers")
	}
	return nil
}

// mysqlRights lists the privileges of our role on a table, or, with table "", on the whole database. It asks the views for
// the account itself and for the roles enabled in this session; privileges on single columns count as the privilege.
func (d *DB) mysqlRights(ctx context.Context, schema, table string) ([]string, error) {
	query := `
		SELECT PRIVILEGE_TYPE FROM information_schema.USER_PRIVILEGES WHERE GRANTEE IN (%[1]s)
		UNION SELECT PRIVILEGE_TYPE FROM information_schema.SCHEMA_PRIVILEGES WHERE GRANTEE IN (%[1]s) AND ? LIKE TABLE_SCHEMA ESCAPE '\'`
	args := []any{schema}
	if table != "" {
		query += `
		UNION SELECT PRIVILEGE_TYPE FROM information_schema.TABLE_PRIVILEGES WHERE GRANTEE IN (%[1]s) AND TABLE_SCHEMA = ? AND TABLE_NAME = ?
		UNION SELECT PRIVILEGE_TYPE FROM information_schema.COLUMN_PRIVILEGES WHERE GRANTEE IN (%[1]s) AND TABLE_SCHEMA = ? AND TABLE_NAME = ?`
		args = append(args, schema, table, schema, table)
	}
	grantees := `SELECT CONCAT('''', SUBSTRING_INDEX(CURRENT_USER(), '@', 1), '''@''', SUBSTRING_INDEX(CURRENT_USER(), '@', -1), '''')`
	if d.server.MariaDB {
		grantees += ` UNION ALL SELECT CONCAT('''', ROLE_NAME, '''@''''') FROM information_schema.ENABLED_ROLES WHERE ROLE_NAME IS NOT NULL` +
			` UNION ALL SELECT ROLE_NAME FROM information_schema.ENABLED_ROLES WHERE ROLE_NAME IS NOT NULL`
	} else if d.server.Major >= 8 {
		grantees += ` UNION ALL SELECT CONCAT('''', ROLE_NAME, '''@''', ROLE_HOST, '''') FROM information_schema.ENABLED_ROLES`
	}
	rights, err := texts(d.SQL.QueryContext(ctx, fmt.Sprintf(query, grantees), args...))
	return slices.DeleteFunc(rights, func(r string) bool { return r == "USAGE" }), err
}

// mysqlFingerprint reads columns and key by name: the server gives tables no identity that every role may see. Each view of
// information_schema costs a millisecond, so a primary key, which the columns tell, is not looked up among the indexes.
func mysqlFingerprint(t *Table, key []string) (string, []any) {
	columns := `MD5(GROUP_CONCAT(ORDINAL_POSITION, ' ', QUOTE(COLUMN_NAME), ' ', COLUMN_TYPE, ' ', COALESCE(COLLATION_NAME, ''), ' ', IS_NULLABLE
	ORDER BY ORDINAL_POSITION))`
	from := ` FROM information_schema.COLUMNS WHERE ` + mysqlThis
	if ix, ok := t.KeyIndex(key); ok && ix.Primary {
		return `
SELECT CONCAT(` + columns + `, ':', SUM(COLUMN_KEY = 'PRI') = ? AND SUM(COLUMN_KEY = 'PRI' AND COLUMN_NAME IN (?` + strings.Repeat(", ?", len(key)-1) + `)) = ?)` + from, append(mysqlKeyArgs(key), mysqlArgs(t)...)
	}
	query := `
SELECT CONCAT((SELECT ` + columns + from + `), ':',
	EXISTS (SELECT 1 FROM information_schema.STATISTICS WHERE ` + mysqlThis + ` AND NON_UNIQUE = 0
	        GROUP BY INDEX_NAME HAVING COUNT(*) = ? AND SUM(SUB_PART IS NULL AND COLUMN_NAME IN (?` + strings.Repeat(", ?", max(0, len(key)-1)) + `)) = ?))`
	args := append(mysqlArgs(t), mysqlArgs(t)...)
	return query, append(args, mysqlKeyArgs(key)...)
}

func mysqlKeyArgs(key []string) []any {
	args := []any{len(key)}
	for _, k := range key {
		args = append(args, k)
	}
	if len(key) == 0 {
		args = append(args, "")
	}
	return append(args, len(key))
}

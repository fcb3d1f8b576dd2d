package target

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
)

func (d *DB) inspectSQLite(ctx context.Context, name string) (*Table, error) {
	schema, table := parts(name)
	if schema != "" && !strings.EqualFold(schema, "main") {
		return nil, fmt.Errorf("%w: a SQLite file has no schema %s", ErrNoTable, schema)
	}
	t := &Table{Engine: SQLite}
	var kind, text string
	err := d.SQL.QueryRowContext(ctx, `
		SELECT name, type, coalesce(sql, ''), name LIKE 'sqlite\_%' ESCAPE '\' FROM main.sqlite_master
		WHERE type IN ('table', 'view') AND name = $1 COLLATE NOCASE`, table).Scan(&t.Name, &kind, &text, &t.System)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, ErrNoTable
	}
	if err != nil {
		return nil, err
	}
	t.Label = t.Name
	if t.IsView = kind == "view"; t.IsView {
		return t, nil
	}
	tokens := sqlTokens(text)
	if tokensAt(tokens, 1, "VIRTUAL") {
		t.Storage = "virtual"
	}
	if err := d.sqliteColumns(ctx, t, tokens); err != nil {
		return nil, err
	}
	for _, read := range []func(context.Context, *Table) error{d.sqliteIndexes, d.sqliteReferences, d.sqliteSize} {
		if err := read(ctx, t); err != nil {
			return nil, err
		}
	}
	ok := !d.server.ReadOnly
	t.Privileges = Privileges{Select: true, Delete: ok, Update: ok, Insert: ok}
	return t, nil
}

// sqliteColumns reads the columns. Without STRICT a column takes a value of any type whatever it is declared as, so the
// declared type says nothing about what a row holds; only the rowid's alias is sure to be a whole number.
func (d *DB) sqliteColumns(ctx context.Context, t *Table, tokens []string) error {
	strict := false
	for i := len(tokens) - 1; i >= 0 && tokens[i] != ")"; i-- { // the options after the column list
		switch {
		case strings.EqualFold(tokens[i], "STRICT"):
			strict = true
		case strings.EqualFold(tokens[i], "WITHOUT"):
			t.WithoutRow = true
		}
	}
	rows, err := d.SQL.QueryContext(ctx, `SELECT name, type, "notnull", pk, hidden, cid, dflt_value IS NOT NULL FROM pragma_table_xinfo($1, 'main') ORDER BY cid`, t.Name)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var c Column
		var pk, hidden int
		if err := rows.Scan(&c.Name, &c.Declared, &c.NotNull, &pk, &hidden, &c.Position, &c.Default); err != nil {
			return err
		}
		if hidden == 1 { // a virtual table's own
			continue
		}
		c.Generated = hidden > 1
		c.Type = sqliteAffinity(c.Declared)
		c.Kind = KindAny
		if strict {
			c.Kind = sqliteStrictKind(c.Declared)
		}
		if pk > 0 {
			c.NotNull = c.NotNull || t.WithoutRow
		}
		t.Columns = append(t.Columns, c)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	alias, err := d.sqliteRowid(ctx, t.Name)
	for i := range t.Columns {
		if alias != "" && t.Columns[i].Name == alias {
			t.Columns[i].Kind, t.Columns[i].NotNull, t.Columns[i].Default = KindInt, true, true
		}
	}
	return err
}

// sqliteRowid names the column that is the rowid: an INTEGER PRIMARY KEY, known from one that is not (INTEGER PRIMARY KEY
// DESC, WITHOUT ROWID) by having no index of its own.
func (d *DB) sqliteRowid(ctx context.Context, table string) (string, error) {
	names, err := texts(d.SQL.QueryContext(ctx, `
		SELECT name FROM pragma_table_xinfo($1, 'main')
		WHERE pk = 1 AND type = 'INTEGER' COLLATE NOCASE
		  AND NOT EXISTS (SELECT 1 FROM pragma_table_xinfo($1, 'main') WHERE pk = 2)
		  AND NOT EXISTS (SELECT 1 FROM pragma_index_list($1, 'main') WHERE origin = 'pk')`, table))
	if len(names) == 0 {
		return "", err
	}
	return names[0], err
}

// sqliteAffinity follows the five rules of the SQLite manual, in their order.
func sqliteAffinity(declared string) string {
	u := strings.ToUpper(declared)
	has := func(words ...string) bool {
		for _, w := range words {
			if strings.Contains(u, w) {
				return true
			}
		}
		return false
	}
	switch {
	case has("INT"):
		return "INTEGER"
	case has("CHAR", "CLOB", "TEXT"):
		return "TEXT"
	case u == "" || has("BLOB"):
		return "BLOB"
	case has("REAL", "FLOA", "DOUB"):
		return "REAL"
	}
	return "NUMERIC"
}

func sqliteStrictKind(declared string) Kind {
	switch strings.ToUpper(declared) {
	case "INT", "INTEGER":
		return KindInt
	case "REAL":
		return KindFloat
	case "TEXT":
		return KindText
	case "BLOB":
		return KindBytes
	}
	return KindAny
}

func (d *DB) sqliteIndexes(ctx context.Context, t *Table) error {
	// The rowid is a key without an index in the list.
	alias, err := d.sqliteRowid(ctx, t.Name)
	if err != nil {
		return err
	}
	if alias != "" {
		t.Indexes = append(t.Indexes, Index{Name: "rowid", Columns: []string{alias}, Unique: true, Primary: true, Ordered: true, Valid: true})
	}
	rows, err := d.SQL.QueryContext(ctx, `
		SELECT l.name, l."unique", l.origin = 'pk', l.partial, coalesce(x.name, ''), x.coll
		FROM pragma_index_list($1, 'main') l, pragma_index_xinfo(l.name, 'main') x
		WHERE x.key ORDER BY l.origin <> 'pk', l.name, x.seqno`, t.Name)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var ix Index
		var column, coll string
		if err := rows.Scan(&ix.Name, &ix.Unique, &ix.Primary, &ix.Partial, &column, &coll); err != nil {
			return err
		}
		if n := len(t.Indexes); n == 0 || t.Indexes[n-1].Name != ix.Name {
			ix.Ordered, ix.Valid = true, true
			t.Indexes = append(t.Indexes, ix)
		}
		last := &t.Indexes[len(t.Indexes)-1]
		last.Columns = append(last.Columns, column)
		if coll != "BINARY" && (last.Primary || last.Unique) {
			// The index that a column constraint made has the column's own collation.
			for i, c := range t.Columns {
				if t.sameName(c.Name, column) && strings.HasPrefix(last.Name, "sqlite_autoindex_") {
					t.Columns[i].Collation = coll
				}
			}
		}
	}
	return rows.Err()
}

// sqliteReferences reads all foreign keys of the file and walks them, then the triggers of the tables reached.
func (d *DB) sqliteReferences(ctx context.Context, t *Table) error {
	refs, err := d.sqliteAllReferences(ctx)
	if err != nil {
		return err
	}
	var tables []string
	t.Children, tables = reach(strings.ToLower(t.Name), refs, noPartitions)
	t.Parents = parentsOf(strings.ToLower(t.Name), refs)
	for i, fk := range t.Children {
		if t.Children[i].Indexed, err = d.sqliteIndexed(ctx, fk.Child, fk.ChildColumns); err != nil {
			return err
		}
	}
	rows, err := d.SQL.QueryContext(ctx, `SELECT name, tbl_name, sql FROM main.sqlite_master WHERE type = 'trigger' ORDER BY tbl_name, name`)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		g := Trigger{Row: true}
		var text string
		if err := rows.Scan(&g.Name, &g.Table, &text); err != nil {
			return err
		}
		timing, event := triggerHead(text)
		g.Timing = timing
		if (event == "INSERT" || event == "UPDATE") && strings.EqualFold(t.Name, g.Table) {
			w := g
			w.Event = event
			t.Writes = append(t.Writes, w)
		}
		for _, table := range tables {
			if event == "DELETE" && strings.EqualFold(table, g.Table) {
				t.Triggers = append(t.Triggers, g)
			}
		}
	}
	return rows.Err()
}

func (d *DB) sqliteAllReferences(ctx context.Context) ([]reference, error) {
	rows, err := d.SQL.QueryContext(ctx, `
		SELECT m.name, m.sql, f.id, f."table", f."from",
		       -- without a column it is the parent's primary key that is meant
		       coalesce(f."to", (SELECT p.name FROM pragma_table_xinfo(f."table", 'main') p WHERE p.pk = f.seq + 1), ''),
		       f.on_delete,
		       (SELECT count(DISTINCT id) FROM pragma_foreign_key_list(m.name, 'main'))
		FROM main.sqlite_master m, pragma_foreign_key_list(m.name, 'main') f
		WHERE m.type = 'table' ORDER BY m.name, f.id DESC, f.seq`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var refs []reference
	for rows.Next() {
		var r reference
		var text, col, parentCol, rule string
		var id, count int
		if err := rows.Scan(&r.Child, &text, &id, &r.Parent, &col, &parentCol, &rule, &count); err != nil {
			return nil, err
		}
		r.id = fmt.Sprintf("%s/%d", r.Child, id)
		if n := len(refs); n == 0 || refs[n-1].id != r.id {
			r.child, r.parent, r.OnDelete, r.ChildSelect = strings.ToLower(r.Child), strings.ToLower(r.Parent), Rule(rule), true
			// The pragma counts backwards from the last that was declared.
			if clauses := referenceClauses(text); len(clauses) == count {
				clause := clauses[count-1-id]
				r.Name, r.Deferrable, r.Deferred = clause.name, clause.deferred, clause.deferred
			}
			refs = append(refs, r)
		}
		last := &refs[len(refs)-1]
		last.ChildColumns = append(last.ChildColumns, col)
		last.ParentColumns = append(last.ParentColumns, parentCol)
	}
	return refs, rows.Err()
}

// sqliteIndexed says whether an index, or the rowid, leads with the columns in any order.
func (d *DB) sqliteIndexed(ctx context.Context, table string, cols []string) (bool, error) {
	c := &Table{Engine: SQLite, Name: table}
	if err := d.sqliteColumns(ctx, c, nil); err != nil {
		return false, err
	}
	if err := d.sqliteIndexes(ctx, c); err != nil {
		return false, err
	}
	for _, ix := range c.Indexes {
		if !ix.Partial && len(ix.Columns) >= len(cols) && c.sameSet(cols, ix.Columns[:len(cols)]) {
			return true, nil
		}
	}
	return false, nil
}

// sqliteSize takes the estimate of ANALYZE; without one, what the range of the rowids and the size of the file admit.
func (d *DB) sqliteSize(ctx context.Context, t *Table) error {
	t.EstRows = -1
	var analyzed bool
	if err := d.SQL.QueryRowContext(ctx, `SELECT count(*) FROM main.sqlite_master WHERE name = 'sqlite_stat1'`).Scan(&analyzed); err != nil {
		return err
	}
	if analyzed {
		err := d.SQL.QueryRowContext(ctx, `
			SELECT CAST(stat AS INTEGER) FROM main.sqlite_stat1 WHERE tbl = $1 COLLATE NOCASE AND stat <> '' ORDER BY idx LIMIT 1`, t.Name).Scan(&t.EstRows)
		if err == nil || !errors.Is(err, sql.ErrNoRows) {
			return err
		}
	}
	if t.WithoutRow || t.Storage != "" {
		return nil
	}
	return d.SQL.QueryRowContext(ctx, `
		SELECT min(coalesce(b.last - a.first + 1, 0), p.page_count * z.page_size / 4)
		FROM (SELECT min(rowid) AS first FROM main.`+sqliteDialect{}.ident(t.Name)+`) a,
		     (SELECT max(rowid) AS last FROM main.`+sqliteDialect{}.ident(t.Name)+`) b, pragma_page_count p, pragma_page_size z`).Scan(&t.EstRows)
}

// sqliteFingerprint reads the columns, whether the key is still one, and what a delete sets off.
func sqliteFingerprint(t *Table, key []string) (string, []any) {
	args := []any{t.Name, len(key)}
	in := make([]string, len(key))
	for i, k := range key {
		args = append(args, strings.ToLower(k))
		in[i] = fmt.Sprintf("$%d", len(args))
	}
	names, tables := strings.Join(in, ", "), "lower($1)"
	for _, name := range t.along() {
		args = append(args, name)
		tables += fmt.Sprintf(", lower($%d)", len(args))
	}
	return `
SELECT (SELECT group_concat(cid || ' ' || quote(name) || ' ' || quote(type) || ' ' || "notnull" || ' ' || pk || ' ' || hidden)
        FROM pragma_table_xinfo($1, 'main')) || ':' ||
       (EXISTS (SELECT 1 FROM pragma_index_list($1, 'main') l
                WHERE l."unique" AND NOT l.partial
                  AND (SELECT count(*) = $2 AND coalesce(sum(lower(x.name) IN (` + names + `)), 0) = $2
                       FROM pragma_index_xinfo(l.name, 'main') x WHERE x.key))
        OR (SELECT count(*) = $2 AND coalesce(sum(lower(name) IN (` + names + `)), 0) = $2 FROM pragma_table_xinfo($1, 'main') WHERE pk > 0)) || ':' ||
       coalesce((SELECT group_concat(sql) FROM sqlite_master WHERE type = 'trigger' AND lower(tbl_name) IN (` + tables + `)), '') || ':' ||
       coalesce((SELECT group_concat(m.name || ' ' || f."from" || ' ' || f.on_delete)
                 FROM sqlite_master m, pragma_foreign_key_list(m.name) f WHERE m.type = 'table' AND lower(f."table") IN (` + tables + `)), '')`, args
}

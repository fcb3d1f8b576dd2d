package target

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// pgLabel is a table's name as a policy would write it, for the pg_class row c and its pg_namespace row n.
const pgLabel = `CASE WHEN pg_table_is_visible(c.oid) THEN c.relname::text ELSE n.nspname || '.' || c.relname END`

// pgLabelOf is pgLabel for a table's oid.
const pgLabelOf = `(SELECT ` + pgLabel + ` FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %s)`

func (d *DB) inspectPostgres(ctx context.Context, name string) (*Table, error) {
	t, err := d.pgTable(ctx, name)
	if err != nil || t.IsView {
		return t, err
	}
	for _, read := range []func(context.Context, *Table) error{
		d.pgColumns, d.pgIndexes, d.pgPartitions, d.pgSize, d.pgReferences, d.pgSpread,
	} {
		if err := read(ctx, t); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (d *DB) pgTable(ctx context.Context, name string) (*Table, error) {
	schema, table := parts(name)
	t := &Table{Engine: Postgres}
	var relkind, persistence string
	err := d.SQL.QueryRowContext(ctx, `
		SELECT c.oid::text, n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text, `+pgLabel+`,
		       row_security_active(c.oid),
		       EXISTS (SELECT FROM pg_inherits i JOIN pg_class k ON k.oid = i.inhrelid WHERE i.inhparent = c.oid AND NOT k.relispartition),
		       n.nspname IN ('pg_catalog', 'information_schema', 'pg_toast'),
		       u.usage AND (has_table_privilege(c.oid, 'SELECT') OR has_any_column_privilege(c.oid, 'SELECT')),
		       u.usage AND has_table_privilege(c.oid, 'DELETE'),
		       u.usage AND (has_table_privilege(c.oid, 'UPDATE') OR has_any_column_privilege(c.oid, 'UPDATE')),
		       u.usage AND has_table_privilege(c.oid, 'INSERT')
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace,
		     LATERAL (SELECT has_schema_privilege(n.oid, 'USAGE') AS usage) u
		WHERE c.relname = $2 AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
		  AND CASE WHEN $1 = '' THEN pg_table_is_visible(c.oid) ELSE n.nspname = $1 END`, schema, table).
		Scan(&t.OID, &t.Schema, &t.Name, &relkind, &persistence, &t.Label, &t.RowSecurity, &t.Inherited, &t.System,
			&t.Privileges.Select, &t.Privileges.Delete, &t.Privileges.Update, &t.Privileges.Insert)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, d.pgMissing(ctx, table)
	}
	if err != nil {
		return nil, err
	}
	t.Partitioned = relkind == "p"
	t.IsView = relkind == "v" || relkind == "m"
	if relkind == "f" {
		t.Storage = "foreign"
	}
	t.Temporary = persistence == "t"
	return t, nil
}

// pgMissing says which tables a misspelt name may have meant: another schema, or other capitals.
func (d *DB) pgMissing(ctx context.Context, table string) error {
	near, err := texts(d.SQL.QueryContext(ctx, `
		SELECT `+pgLabel+` FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE lower(c.relname) = lower($1) AND c.relkind IN ('r', 'p') AND n.nspname NOT LIKE 'pg\_%' ORDER BY 1 LIMIT 3`, table))
	if err != nil {
		return err
	}
	return missing(near)
}

func missing(near []string) error {
	if len(near) == 0 {
		return ErrNoTable
	}
	return fmt.Errorf("%w; there is %s", ErrNoTable, strings.Join(near, ", "))
}

func (d *DB) pgColumns(ctx context.Context, t *Table) error {
	rows, err := d.SQL.QueryContext(ctx, `
		WITH RECURSIVE base AS (
			SELECT a.attnum, a.atttypid AS typid, false AS strict FROM pg_attribute a
			WHERE a.attrelid = $1::text::oid AND a.attnum > 0 AND NOT a.attisdropped
			UNION ALL
			SELECT b.attnum, y.typbasetype, y.typnotnull FROM base b JOIN pg_type y ON y.oid = b.typid WHERE y.typtype = 'd'
		)
		SELECT a.attname::text, y.typname::text, yn.nspname = 'pg_catalog' OR y.typname = 'citext', y.typtype::text,
		       format_type(y.oid, NULL), format_type(a.atttypid, a.atttypmod),
		       a.attnotnull OR EXISTS (SELECT FROM base s WHERE s.attnum = a.attnum AND s.strict),
		       CASE WHEN a.attcollation = 0 OR o.collname = 'default' THEN ''
		            WHEN cn.nspname = 'pg_catalog' THEN o.collname::text ELSE cn.nspname || '.' || o.collname END,
		       a.attnum, a.attgenerated <> '', a.atthasdef AND a.attgenerated = '' OR a.attidentity <> ''
		FROM pg_attribute a
		JOIN base b ON b.attnum = a.attnum
		JOIN pg_type y ON y.oid = b.typid AND y.typtype <> 'd'
		JOIN pg_namespace yn ON yn.oid = y.typnamespace
		LEFT JOIN pg_collation o ON o.oid = a.attcollation
		LEFT JOIN pg_namespace cn ON cn.oid = o.collnamespace
		WHERE a.attrelid = $1::text::oid
		ORDER BY a.attnum`, t.OID)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var c Column
		var typname, typtype string
		var builtin bool
		if err := rows.Scan(&c.Name, &typname, &builtin, &typtype, &c.Type, &c.Declared, &c.NotNull, &c.Collation, &c.Position, &c.Generated, &c.Default); err != nil {
			return err
		}
		switch {
		case typtype == "e":
			c.Kind = KindEnum
		case builtin:
			c.Kind = pgKind(typname)
		default:
			c.Kind = KindOther
		}
		switch typname { // whose SQL name, without a length, means length one
		case "bpchar":
			c.Type = "bpchar"
		case "char":
			c.Type = `"char"`
		}
		t.Columns = append(t.Columns, c)
	}
	return rows.Err()
}

func pgKind(typname string) Kind {
	switch typname {
	case "int2", "int4", "int8":
		return KindInt
	case "numeric":
		return KindDecimal
	case "float4", "float8":
		return KindFloat
	case "text", "varchar", "bpchar", "citext", "name", "char":
		return KindText
	case "bytea":
		return KindBytes
	case "uuid":
		return KindUUID
	case "bool":
		return KindBool
	case "date":
		return KindDate
	case "timestamp":
		return KindTime
	case "timestamptz":
		return KindInstant
	case "time", "timetz", "interval":
		return KindTimeOfDay
	}
	return KindOther
}

func (d *DB) pgIndexes(ctx context.Context, t *Table) error {
	rows, err := d.SQL.QueryContext(ctx, `
		SELECT x.relname::text, i.indisunique, i.indisprimary, i.indpred IS NOT NULL, i.indisvalid AND i.indisready,
		       m.amname = 'btree' AND k.ordered, k.names
		FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam,
		     LATERAL (
			SELECT json_agg(coalesce(a.attname::text, '') ORDER BY u.n)::text AS names,
			       -- the default order of the column's type and collation: not that of the pattern operator classes
			       bool_and(EXISTS (SELECT FROM pg_opclass q JOIN pg_opclass df ON df.opcfamily = q.opcfamily AND df.opcdefault
			                        WHERE q.oid = u.class)
			                AND coalesce(u.coll = a.attcollation, true)) AS ordered
			FROM unnest(i.indkey::int2[], i.indclass::oid[], i.indcollation::oid[]) WITH ORDINALITY u(att, class, coll, n)
			LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = u.att
			WHERE u.n <= i.indnkeyatts) k
		WHERE i.indrelid = $1::text::oid
		ORDER BY i.indisprimary DESC, x.relname`, t.OID)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var ix Index
		var names string
		if err := rows.Scan(&ix.Name, &ix.Unique, &ix.Primary, &ix.Partial, &ix.Valid, &ix.Ordered, &names); err != nil {
			return err
		}
		if err := json.Unmarshal([]byte(names), &ix.Columns); err != nil {
			return err
		}
		t.Indexes = append(t.Indexes, ix)
	}
	return rows.Err()
}

func (d *DB) pgPartitions(ctx context.Context, t *Table) error {
	if !t.Partitioned {
		return nil
	}
	var err error
	t.Partitions, err = texts(d.SQL.QueryContext(ctx, `
		SELECT `+pgLabel+` FROM pg_partition_tree($1::text::oid::regclass) p
		JOIN pg_class c ON c.oid = p.relid JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE p.isleaf AND p.relid <> $1::text::oid ORDER BY 1`, t.OID))
	return err
}

// pgSize estimates as the planner does: the density at the last ANALYZE times the size of now.
func (d *DB) pgSize(ctx context.Context, t *Table) error {
	var unknown bool
	err := d.SQL.QueryRowContext(ctx, `
		SELECT coalesce(sum(s.blocks), 0)::bigint, coalesce(bool_or(s.blocks > 0 AND (c.relpages = 0 OR c.reltuples < 0)), false),
		       coalesce(round(sum(CASE WHEN c.relpages > 0 THEN greatest(c.reltuples, 0)::float8 / c.relpages * s.blocks ELSE 0 END)), 0)::bigint
		FROM pg_class c, LATERAL (SELECT pg_relation_size(c.oid) / current_setting('block_size')::int AS blocks) s
		WHERE c.oid = $1::text::oid AND c.relkind = 'r'
		   OR c.oid IN (SELECT relid FROM pg_partition_tree($1::text::oid::regclass) WHERE isleaf) AND c.relkind = 'r'`, t.OID).
		Scan(&t.Blocks, &unknown, &t.EstRows)
	if unknown || t.Storage != "" {
		t.EstRows = -1
	}
	return err
}

// pgReferences reads the foreign keys of the whole database, since a cascade may lead anywhere, and walks them.
func (d *DB) pgReferences(ctx context.Context, t *Table) error {
	rows, err := d.SQL.QueryContext(ctx, `
		SELECT r.oid::text, r.conparentid::text, r.conname::text, r.conrelid::text, r.confrelid::text,
		       `+fmt.Sprintf(pgLabelOf, "r.conrelid")+`, `+fmt.Sprintf(pgLabelOf, "r.confrelid")+`,
		       r.confdeltype::text, r.condeferrable, r.condeferred,
		       (SELECT json_agg(a.attname ORDER BY k.n)::text FROM unnest(r.conkey) WITH ORDINALITY k(att, n)
		        JOIN pg_attribute a ON a.attrelid = r.conrelid AND a.attnum = k.att),
		       (SELECT json_agg(a.attname ORDER BY k.n)::text FROM unnest(r.confkey) WITH ORDINALITY k(att, n)
		        JOIN pg_attribute a ON a.attrelid = r.confrelid AND a.attnum = k.att),
		       EXISTS (SELECT FROM pg_index i WHERE i.indrelid = r.conrelid AND i.indisvalid AND i.indkey[0] = ANY (r.conkey)
		               AND (i.indpred IS NULL OR pg_get_expr(i.indpred, i.indrelid) = '(' ||
		                    quote_ident((SELECT attname FROM pg_attribute WHERE attrelid = r.conrelid AND attnum = r.conkey[1])) || ' IS NOT NULL)')
		               AND (i.indkey::int2[])[0:cardinality(r.conkey) - 1] @> r.conkey),
		       coalesce(has_table_privilege(r.conrelid, 'SELECT'), false)
		FROM pg_constraint r WHERE r.contype = 'f'
		ORDER BY 6, r.conname`)
	if err != nil {
		return err
	}
	defer rows.Close()
	var refs []reference
	for rows.Next() {
		var r reference
		var action, cols, parentCols string
		if err := rows.Scan(&r.id, &r.of, &r.Name, &r.child, &r.parent, &r.Child, &r.Parent, &action, &r.Deferrable, &r.Deferred,
			&cols, &parentCols, &r.Indexed, &r.ChildSelect); err != nil {
			return err
		}
		r.OnDelete = map[string]Rule{"a": NoAction, "r": Restrict, "c": Cascade, "n": SetNull, "d": SetDefault}[action]
		if err := errors.Join(json.Unmarshal([]byte(cols), &r.ChildColumns), json.Unmarshal([]byte(parentCols), &r.ParentColumns)); err != nil {
			return err
		}
		refs = append(refs, r)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	below, err := d.pgBelow(ctx)
	if err != nil {
		return err
	}
	var tables []string
	t.Children, tables = reach(t.OID, refs, below)
	t.Parents = parentsOf(t.OID, refs)
	if err := d.pgTriggers(ctx, t, tables); err != nil {
		return err
	}
	return d.pgWrites(ctx, t)
}

// pgBelow gives the partitions of a partitioned table, of every level.
func (d *DB) pgBelow(ctx context.Context) (func(string) []string, error) {
	rows, err := d.SQL.QueryContext(ctx, `
		SELECT i.inhparent::text, i.inhrelid::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE c.relispartition AND c.relkind IN ('r', 'p', 'f') ORDER BY 1, 2`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	direct := map[string][]string{}
	for rows.Next() {
		var parent, part string
		if err := rows.Scan(&parent, &part); err != nil {
			return nil, err
		}
		direct[parent] = append(direct[parent], part)
	}
	var below func(string) []string
	below = func(oid string) []string {
		out := slices.Clone(direct[oid])
		for _, part := range direct[oid] {
			out = append(out, below(part)...)
		}
		return out
	}
	return below, rows.Err()
}

// pgTriggers reads what fires for a row that goes, here and in the tables whose rows go along. A row trigger of a partitioned
// table is named once, not with each partition. Disabled ones and those for replicas do not fire for us.
func (d *DB) pgTriggers(ctx context.Context, t *Table, tables []string) error {
	rows, err := d.SQL.QueryContext(ctx, `
		SELECT g.tgname::text, `+fmt.Sprintf(pgLabelOf, "g.tgrelid")+`,
		       CASE WHEN g.tgtype & 2 <> 0 THEN 'BEFORE' WHEN g.tgtype & 64 <> 0 THEN 'INSTEAD OF' ELSE 'AFTER' END, g.tgtype & 1 <> 0
		FROM pg_trigger g
		WHERE g.tgrelid = ANY ($1::text[]::oid[]) AND g.tgtype & 8 <> 0 AND NOT g.tgisinternal AND g.tgenabled IN ('O', 'A')
		  AND NOT EXISTS (SELECT FROM pg_trigger w WHERE w.oid = g.tgparentid AND w.tgrelid = ANY ($1::text[]::oid[]))
		UNION ALL
		SELECT w.rulename::text, `+fmt.Sprintf(pgLabelOf, "w.ev_class")+`, 'RULE', false
		FROM pg_rewrite w WHERE w.ev_class = ANY ($1::text[]::oid[]) AND w.ev_type = '4' AND w.ev_enabled IN ('O', 'A')
		ORDER BY 2, 1`, tables)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var g Trigger
		if err := rows.Scan(&g.Name, &g.Table, &g.Timing, &g.Row); err != nil {
			return err
		}
		t.Triggers = append(t.Triggers, g)
	}
	return rows.Err()
}

// pgWrites reads what fires for a row that is inserted or changed.
func (d *DB) pgWrites(ctx context.Context, t *Table) error {
	rows, err := d.SQL.QueryContext(ctx, `
		SELECT DISTINCT g.tgname::text, e.name, CASE WHEN g.tgtype & 2 <> 0 THEN 'BEFORE' WHEN g.tgtype & 64 <> 0 THEN 'INSTEAD OF' ELSE 'AFTER' END, g.tgtype & 1 <> 0
		FROM pg_trigger g, (VALUES ('INSERT', 4), ('UPDATE', 16)) e(name, bit)
		WHERE g.tgrelid IN (SELECT $1::text::oid UNION ALL SELECT relid FROM pg_partition_tree($1::text::oid::regclass))
		  AND g.tgtype & e.bit <> 0 AND NOT g.tgisinternal AND g.tgenabled IN ('O', 'A')
		UNION ALL
		SELECT w.rulename::text, CASE w.ev_type WHEN '2' THEN 'UPDATE' ELSE 'INSERT' END, 'RULE', false
		FROM pg_rewrite w WHERE w.ev_class = $1::text::oid AND w.ev_type IN ('2', '3') AND w.ev_enabled IN ('O', 'A')
		ORDER BY 1, 2`, t.OID)
	if err != nil {
		return err
	}
	return scanWrites(t, rows)
}

// scanWrites reads rows of name, event, timing and whether it fires for each row.
func scanWrites(t *Table, rows *sql.Rows) error {
	defer rows.Close()
	for rows.Next() {
		g := Trigger{Table: t.Label}
		if err := rows.Scan(&g.Name, &g.Event, &g.Timing, &g.Row); err != nil {
			return err
		}
		t.Writes = append(t.Writes, g)
	}
	return rows.Err()
}

// pgSpread reads the statistics of columns. A value among the most common has a share of f of the rows, so a share f of the rows
// has f times all of them for ties; the others share the rest evenly.
func (d *DB) pgSpread(ctx context.Context, t *Table) error {
	rows, err := d.SQL.QueryContext(ctx, `
		SELECT attname::text, correlation, n_distinct, coalesce(m.n, 0), coalesce(m.f, 0), coalesce(m.ff, 0)
		FROM pg_stats, LATERAL (SELECT count(*) AS n, sum(f) AS f, sum(f * f) AS ff FROM unnest(most_common_freqs::float8[]) f) m
		WHERE schemaname = $1 AND tablename = $2 AND NOT inherited AND correlation IS NOT NULL`, t.Schema, t.Name)
	if err != nil {
		return err
	}
	defer rows.Close()
	t.Spread = map[string]Spread{}
	for rows.Next() {
		var name string
		var s Spread
		var distinct, common, share, squares float64
		if err := rows.Scan(&name, &s.Correlation, &distinct, &common, &share, &squares); err != nil {
			return err
		}
		if all := float64(t.EstRows); all > 0 {
			if distinct < 0 {
				distinct *= -all
			}
			rest := max(1-share, 0)
			s.Ties = all * (squares + rest*rest/max(distinct-common, 1))
		}
		t.Spread[name] = s
	}
	return rows.Err()
}

// postgresFingerprint finds the table by name, so that another table under the name is another fingerprint. The key is given
// by the places of its columns, which the first part ties to their names. The triggers that fire on DELETE are the user's and,
// one for each foreign key that references the table, the server's own.
func postgresFingerprint(t *Table, key []string, event int) (string, []any) {
	var places []int
	for _, k := range key {
		c, _ := t.Column(k)
		places = append(places, c.Position)
	}
	var along []tuple
	for _, name := range t.along() {
		along = append(along, tuple{{textValue, childTable(postgresDialect{}, name)}})
	}
	list := strings.Trim(strings.Join(strings.Fields(fmt.Sprint(places)), ","), "[]")
	return `
SELECT o.oid || ':' || md5((
	SELECT string_agg(attnum || ' ' || attname || ' ' || atttypid || ' ' || atttypmod || ' ' || attcollation || ' ' || attnotnull, ',' ORDER BY attnum)
	FROM pg_attribute WHERE attrelid = o.oid AND attnum > 0 AND NOT attisdropped)) || ':' ||
	EXISTS (SELECT FROM pg_index WHERE indrelid = o.oid AND indisunique AND indisvalid AND indpred IS NULL AND indnkeyatts = cardinality($2::text::int2[])
		AND (indkey::int2[])[0:indnkeyatts - 1] @> $2::text::int2[]) || ':' || (
	SELECT concat(relrowsecurity, relforcerowsecurity, relhasrules) FROM pg_class WHERE oid = o.oid) || ':' || coalesce((
	SELECT string_agg(concat_ws(' ', tgfoid::oid, tgconstraint, tgenabled), ',' ORDER BY oid)
	FROM pg_trigger WHERE tgrelid IN (SELECT t FROM (SELECT o.oid UNION ALL SELECT to_regclass(n)::oid FROM unnest($3::text::text[]) n) a(t)
		UNION ALL SELECT p.relid FROM (SELECT o.oid UNION ALL SELECT to_regclass(n)::oid FROM unnest($3::text::text[]) n) a(t), pg_partition_tree(a.t) p) AND tgtype & ` + itoa(event) + ` <> 0), '')
FROM (SELECT to_regclass($1::text)::oid AS oid OFFSET 0) o WHERE o.oid IS NOT NULL`,
		[]any{quoted(postgresDialect{}, t.Schema, t.Name), "{" + list + "}", textArray(along, 0)}
}

// texts reads a query of one text column.
func texts(rows *sql.Rows, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return out, rows.Err()
}

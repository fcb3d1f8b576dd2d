package target

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"strings"
)

// explainPlan asks how the database would run a query: a line for people, without any value of the query, and whether an index
// leads to the rows of the first table.
func (d *DB) explainPlan(ctx context.Context, query string, args []any) (summary string, usesIndex bool, err error) {
	switch d.Engine {
	case Postgres:
		return d.explainPostgres(ctx, query, args)
	case MySQL:
		return d.explainMySQL(ctx, query, args)
	default:
		return d.explainSQLite(ctx, query, args)
	}
}

type pgPlan struct {
	NodeType string   `json:"Node Type"`
	Index    string   `json:"Index Name"`
	Relation string   `json:"Relation Name"`
	Rows     float64  `json:"Plan Rows"`
	Plans    []pgPlan `json:"Plans"`
}

func (d *DB) explainPostgres(ctx context.Context, query string, args []any) (string, bool, error) {
	var text string
	if err := d.SQL.QueryRowContext(ctx, "EXPLAIN (FORMAT JSON) "+query, args...).Scan(&text); err != nil {
		return "", false, err
	}
	var top []struct{ Plan pgPlan }
	if err := json.Unmarshal([]byte(text), &top); err != nil || len(top) == 0 {
		return "", false, fmt.Errorf("the plan cannot be read: %w", err)
	}
	var nodes []string
	const most = 3
	index, scans := false, 0
	var walk func(p pgPlan)
	walk = func(p pgPlan) {
		s := p.NodeType
		if p.Index != "" {
			s += " using " + p.Index
		}
		if p.Relation != "" {
			s += " on " + p.Relation
		}
		nodes = append(nodes, s)
		if strings.HasSuffix(p.NodeType, "Scan") && !strings.HasPrefix(p.NodeType, "Bitmap Heap") && p.NodeType != "Subquery Scan" {
			if scans == 0 {
				index = p.Index != ""
			}
			scans++
		}
		for i, child := range p.Plans {
			if i == most { // of many partitions some tell enough
				nodes = append(nodes, fmt.Sprintf("and %d more", len(p.Plans)-most))
				break
			}
			walk(child)
		}
	}
	walk(top[0].Plan)
	return strings.Join(nodes, " ← "), index, nil
}

func (d *DB) explainMySQL(ctx context.Context, query string, args []any) (string, bool, error) {
	rows, err := d.SQL.QueryContext(ctx, "EXPLAIN "+query, args...)
	if err != nil {
		return "", false, err
	}
	defer rows.Close()
	cols, err := rows.Columns()
	if err != nil {
		return "", false, err
	}
	var parts []string
	index := false
	for rows.Next() {
		vals, dest := make([]sql.NullString, len(cols)), make([]any, len(cols))
		row := map[string]string{}
		for i := range vals {
			dest[i] = &vals[i]
		}
		if err := rows.Scan(dest...); err != nil {
			return "", false, err
		}
		for i, c := range cols {
			row[c] = vals[i].String
		}
		if len(parts) == 0 {
			index = row["key"] != "" && row["type"] != "ALL"
		}
		s := row["type"] + " access"
		if row["table"] != "" {
			s += " on " + row["table"]
		}
		if row["key"] != "" {
			s += " using " + row["key"]
		}
		if row["rows"] != "" {
			s += ", about " + row["rows"] + " rows"
		}
		if strings.Contains(row["Extra"], "filesort") {
			s += ", sorted"
		}
		parts = append(parts, s)
	}
	return strings.Join(parts, "; "), index, rows.Err()
}

func (d *DB) explainSQLite(ctx context.Context, query string, args []any) (string, bool, error) {
	rows, err := d.SQL.QueryContext(ctx, "EXPLAIN QUERY PLAN "+query, args...)
	if err != nil {
		return "", false, err
	}
	defer rows.Close()
	var parts []string
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			return "", false, err
		}
		parts = append(parts, detail)
	}
	first := strings.Join(parts, "; ")
	index := len(parts) > 0 && (strings.Contains(parts[0], "USING INDEX") || strings.Contains(parts[0], "USING COVERING INDEX") ||
		strings.Contains(parts[0], "USING INTEGER PRIMARY KEY") || strings.Contains(parts[0], "USING PRIMARY KEY"))
	return first, index, rows.Err()
}

package ledger

import (
	"database/sql"
	"fmt"
	"strings"
)

// defaultLimit is how many a list has when nobody says.
const defaultLimit = 100

// conditions are the WHERE of a list under construction, with what is bound in it.
type conditions struct {
	where []string
	args  []any
}

// and adds a condition in which $%d stands for arg.
func (c *conditions) and(cond string, arg any) {
	c.args = append(c.args, arg)
	c.where = append(c.where, fmt.Sprintf(cond, len(c.args)))
}

// only adds a condition without an argument.
func (c *conditions) only(cond string) { c.where = append(c.where, cond) }

// end is the rest of the statement: the conditions, the order, and the limit, which is defaultLimit unless it is positive.
func (c *conditions) end(order string, limit int) string {
	if limit <= 0 {
		limit = defaultLimit
	}
	c.args = append(c.args, limit)
	where := ""
	if len(c.where) > 0 {
		where = " WHERE " + strings.Join(c.where, " AND ")
	}
	return where + fmt.Sprintf(" ORDER BY %s LIMIT $%d", order, len(c.args))
}

// collect reads rows to their end and closes them.
func collect[T any](rows *sql.Rows, scan func(scanner) (T, error)) ([]T, error) {
	defer rows.Close()
	var all []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

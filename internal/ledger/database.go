package ledger

import (
	"context"
	"fmt"
)

// SeeDatabase records which physical database a configured name leads to, the
// first time, and returns the identity on record. Another one than identity means
// that the name now leads to a restored or cloned database; the record stays.
func (l *Ledger) SeeDatabase(ctx context.Context, name, identity string) (recorded string, err error) {
	err = l.tx(ctx, func(t *txn) error {
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		fresh, err := t.execOne(ctx, `INSERT INTO @database (name, identity, seen) VALUES ($1, $2, $3)
			ON CONFLICT (name) DO NOTHING`, name, identity, stamp(now))
		if err != nil {
			return err
		}
		if fresh {
			if err := t.audit(entry{action: ActionDatabaseSeen, body: struct {
				Database string `json:"database"`
				Identity string `json:"identity"`
			}{name, identity}}); err != nil {
				return err
			}
		}
		return t.queryRow(ctx, `SELECT identity FROM @database WHERE name = $1`, name).Scan(&recorded)
	})
	if err != nil {
		return "", fmt.Errorf("record database %s: %w", name, err)
	}
	return recorded, nil
}

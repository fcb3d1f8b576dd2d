package ledger

import (
	"context"
	"fmt"
	"time"
)

// Call is one request for a run over HTTP with a valid token, and what the answer was.
type Call struct {
	ID     int64     // 0 of one that is to be recorded
	At     time.Time // of one that is to be recorded: zero is the ledger's now
	Token  string    // its name
	Policy string    // as asked for; there may be no such policy
	Stage  string
	Answer int    // HTTP status
	Run    string // "" when it was refused
	Fresh  bool   // the call made the run
	Detail string // why it was refused
}

// callText is how much of what a caller sent is kept.
const callText = 200

// RecordCall keeps a call.
func (l *Ledger) RecordCall(ctx context.Context, c Call) error {
	clip := func(s string) string { return text(s[:min(len(s), callText)]) }
	err := l.tx(ctx, func(t *txn) (err error) {
		at := c.At
		if at.IsZero() {
			if at, err = t.clock(ctx); err != nil {
				return err
			}
		}
		_, err = t.exec(ctx, `INSERT INTO @call (at, token, policy, stage, answer, run, fresh, detail) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`,
			stamp(at), clip(c.Token), clip(c.Policy), clip(c.Stage), c.Answer, c.Run, c.Fresh, clip(c.Detail))
		return err
	})
	if err != nil {
		return fmt.Errorf("record a call: %w", err)
	}
	return nil
}

// CallFilter selects calls. Zero fields select all.
type CallFilter struct {
	Policy string
	Since  time.Time // at or after
	Before int64     // a call's id: what is older than it, to read on from the last answer
	Limit  int       // default 100
}

// Calls returns calls, the last first.
func (l *Ledger) Calls(ctx context.Context, f CallFilter) ([]Call, error) {
	var c conditions
	if f.Policy != "" {
		c.and("policy = $%d", f.Policy)
	}
	if !f.Since.IsZero() {
		c.and("at >= $%d", stamp(f.Since))
	}
	if f.Before > 0 {
		c.and("(at, id) < (SELECT at, id FROM @call WHERE id = $%d)", f.Before)
	}
	query := `SELECT id, at, token, policy, stage, answer, run, fresh, detail FROM @call` + c.end("at DESC, id DESC", f.Limit)
	rows, err := l.query(ctx, query, c.args...)
	if err != nil {
		return nil, fmt.Errorf("list calls: %w", err)
	}
	calls, err := collect(rows, func(row scanner) (c Call, err error) {
		err = row.Scan(&c.ID, (*stamp)(&c.At), &c.Token, &c.Policy, &c.Stage, &c.Answer, &c.Run, &c.Fresh, &c.Detail)
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("list calls: %w", err)
	}
	return calls, nil
}

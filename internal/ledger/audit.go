package ledger

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The actions in the audit log.
const (
	ActionLedgerCreated    = "ledger_created"
	ActionClockAccepted    = "clock_accepted"
	ActionRevisionSeen     = "revision_seen"
	ActionPolicyInForce    = "policy_in_force"
	ActionPolicyOutOfForce = "policy_out_of_force"
	ActionDatabaseSeen     = "database_seen"
	ActionRunAccepted      = "run_accepted"
	ActionRunStarted       = "run_started"
	ActionRunResumed       = "run_resumed"
	ActionRunInterrupted   = "run_interrupted"
	ActionRunEnded         = "run_ended"
	ActionBatchIntent      = "batch_intent"
	ActionBatchSettled     = "batch_settled"
	ActionRowBlocked       = "row_blocked"
	ActionBlockedReleased  = "blocked_released"
)

// auditChunk is how many entries go into one statement: few distinct texts for
// the statement caches, and far below any engine's limit on parameters.
const auditChunk = 50

// Entry is one line of the audit log.
type Entry struct {
	Seq    int64
	At     time.Time
	Actor  string
	Action string
	Policy string
	Run    string // "" when it concerns none
	Batch  []byte // a batch's key, or nil
	Body   json.RawMessage
}

type entry struct {
	actor, action, policy, run string
	batch                      []byte
	body                       any
	text                       string // body as stored
}

// audit adds an entry to the transaction.
func (t *txn) audit(e entry) error {
	if e.actor == "" {
		e.actor = t.l.actor
	}
	b, err := json.Marshal(e.body)
	if err != nil {
		return fmt.Errorf("audit %s: %w", e.action, err)
	}
	e.text = string(b)
	t.entries = append(t.entries, e)
	return nil
}

const auditInsert = `INSERT INTO @audit (at, actor, action, policy, run, batch, body) VALUES `

// auditValues is the text for n entries.
func auditValues(n int) string {
	var b strings.Builder
	b.WriteString(auditInsert)
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "($%d, $%d, $%d, $%d, $%d, $%d, $%d)", 7*i+1, 7*i+2, 7*i+3, 7*i+4, 7*i+5, 7*i+6, 7*i+7)
	}
	return b.String()
}

// auditTexts are the texts for up to auditChunk entries.
var auditTexts = func() (texts [auditChunk + 1]string) {
	for n := 1; n <= auditChunk; n++ {
		texts[n] = auditValues(n)
	}
	return texts
}()

// flushAudit writes the collected entries. It is the last thing before the commit.
func (t *txn) flushAudit(ctx context.Context) error {
	if len(t.entries) == 0 {
		return nil
	}
	now, err := t.clock(ctx)
	if err != nil {
		return err
	}
	for rest := t.entries; len(rest) > 0; {
		n := min(len(rest), auditChunk)
		args := make([]any, 0, 7*n)
		for _, e := range rest[:n] {
			args = append(args, stamp(now), text(e.actor), e.action, e.policy, e.run, blob(e.batch), e.text)
		}
		if _, err := t.exec(ctx, auditTexts[n], args...); err != nil {
			return fmt.Errorf("write the audit log: %w", err)
		}
		rest = rest[n:]
	}
	return nil
}

// AuditEntries returns up to limit entries with a seq above after, in order of
// seq. On PostgreSQL an entry may become visible after one with a larger seq, so
// a reader that follows the log must look back for gaps.
func (l *Ledger) AuditEntries(ctx context.Context, after int64, limit int) ([]Entry, error) {
	if limit <= 0 {
		return nil, errors.New("read the audit log: limit must be positive")
	}
	rows, err := l.query(ctx, `SELECT seq, at, actor, action, policy, run, batch, body FROM @audit
		WHERE seq > $1 ORDER BY seq LIMIT $2`, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	defer rows.Close()
	var entries []Entry
	for rows.Next() {
		var e Entry
		var body string
		if err := rows.Scan(&e.Seq, (*stamp)(&e.At), &e.Actor, &e.Action, &e.Policy, &e.Run, &e.Batch, &body); err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		e.Body = json.RawMessage(body)
		entries = append(entries, e)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	return entries, nil
}

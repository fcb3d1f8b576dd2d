package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The actions of approvals in the audit log.
const (
	ActionRunAwaiting = "run_awaiting_approval"
	ActionRunApproved = "run_approved"
	ActionRunCompared = "run_compared" // with what the policy's text of before would have removed: it keeps more
)

// ErrAwaiting: the run waits for approval, and neither starts nor admits anything.
var ErrAwaiting = errors.New("the run waits for approval")

// NotAwaitingError says that there is nothing to approve.
type NotAwaitingError struct{ Run Run }

func (e *NotAwaitingError) Error() string {
	return fmt.Sprintf("run %s does not wait for approval: it is %s", short(e.Run.ID), e.Run.State)
}

// Approval is what a run was found to be about to do, and who approved it.
type Approval struct {
	Run     string
	Asked   time.Time
	Plan    json.RawMessage // the asker's own
	Granted time.Time       // zero: nobody has
	Actor   string          // who did
	Reason  string
}

// Begun reports whether anything of the run was let in, or its scan ended with nothing to let in. What was let in was within
// bounds, or approved.
func (r *Run) Begun() bool { return r.BatchesTotal > 0 || r.PagedOut || len(r.Cursor) > 0 }

// Await makes a running run of which nothing was let in yet wait for approval, and gives it up. In the same transaction its
// plan becomes the question, and an earlier answer is gone. A run that has ended, has begun or waits already stays as it is:
// look at what comes back.
func (l *Ledger) Await(ctx context.Context, id, detail string, plan []byte) (Run, error) {
	if !json.Valid(plan) {
		return Run{}, fmt.Errorf("run %s: a plan to approve is JSON", short(id))
	}
	detail = text(detail)
	var r Run
	err := l.tx(ctx, func(t *txn) (err error) {
		if r, err = t.lock(ctx, id); err != nil || r.State != Running || r.Begun() {
			return err
		}
		r.State, r.Detail, r.Owner, r.Heartbeat = AwaitingApproval, detail, "", time.Time{}
		if _, err := t.exec(ctx, `UPDATE @run SET state = $1, detail = $2, owner = '', heartbeat = NULL WHERE id = $3`,
			string(AwaitingApproval), detail, id); err != nil {
			return err
		}
		if _, err := t.exec(ctx, `INSERT INTO @approval (run, asked, plan) VALUES ($1, $2, $3) ON CONFLICT (run) DO UPDATE SET
			asked = excluded.asked, plan = excluded.plan, granted = NULL, actor = '', reason = ''`, id, stamp(t.now), string(plan)); err != nil {
			return err
		}
		return t.audit(entry{action: ActionRunAwaiting, policy: r.Policy, run: id, body: json.RawMessage(plan)})
	})
	if err != nil {
		return Run{}, fmt.Errorf("have run %s wait for approval: %w", short(id), err)
	}
	return r, nil
}

// Approve lets a run go on that waits. Of several who approve at once one does; the others get a *NotAwaitingError. actor is
// who approves; "" is the ledger's.
func (l *Ledger) Approve(ctx context.Context, id, actor, reason string) (Run, error) {
	if actor == "" {
		actor = l.actor
	}
	actor, reason = text(actor), text(reason)
	var r Run
	err := l.tx(ctx, func(t *txn) (err error) {
		if r, err = t.lock(ctx, id); err != nil {
			return err
		}
		if r.State != AwaitingApproval {
			return &NotAwaitingError{Run: r}
		}
		var plan string
		if err := t.queryRow(ctx, `SELECT plan FROM @approval WHERE run = $1`, id).Scan(&plan); err != nil {
			return err
		}
		r.State, r.Detail = Running, ""
		if _, err := t.exec(ctx, `UPDATE @run SET state = $1, detail = '' WHERE id = $2`, string(Running), id); err != nil {
			return err
		}
		if _, err := t.exec(ctx, `UPDATE @approval SET granted = $1, actor = $2, reason = $3 WHERE run = $4`,
			stamp(t.now), actor, reason, id); err != nil {
			return err
		}
		return t.audit(entry{actor: actor, action: ActionRunApproved, policy: r.Policy, run: id, body: struct {
			Reason string          `json:"reason,omitempty"`
			Plan   json.RawMessage `json:"plan"`
		}{reason, json.RawMessage(plan)}})
	})
	if err != nil {
		return Run{}, fmt.Errorf("approve run %s: %w", short(id), err)
	}
	return r, nil
}

// Approval returns what was asked about a run, and answered; found is false when nobody asked.
func (l *Ledger) Approval(ctx context.Context, run string) (a Approval, found bool, err error) {
	var plan string
	err = l.queryRow(ctx, `SELECT run, asked, plan, granted, actor, reason FROM @approval WHERE run = $1`, run).
		Scan(&a.Run, (*stamp)(&a.Asked), &plan, (*stamp)(&a.Granted), &a.Actor, &a.Reason)
	if errors.Is(err, sql.ErrNoRows) {
		return Approval{}, false, nil
	}
	if err != nil {
		return Approval{}, false, fmt.Errorf("read the approval of run %s: %w", short(run), err)
	}
	a.Plan = json.RawMessage(plan)
	return a, true, nil
}

// Compared notes that a run keeps rows which the policy's text of before would have removed.
func (l *Ledger) Compared(ctx context.Context, r Run, body any) error {
	err := l.tx(ctx, func(t *txn) error {
		return t.audit(entry{action: ActionRunCompared, policy: r.Policy, run: r.ID, body: body})
	})
	if err != nil {
		return fmt.Errorf("note what run %s keeps: %w", short(r.ID), err)
	}
	return nil
}

// BegunBefore returns the last run of the same policy and stage in a mode that was accepted before r and has begun.
func (l *Ledger) BegunBefore(ctx context.Context, r Run, mode string) (last Run, found bool, err error) {
	last, err = scanRun(l.queryRow(ctx, `SELECT `+runColumns+` FROM @run
		WHERE policy = $1 AND stage = $2 AND mode = $3 AND (accepted_at, id) < ($4, $5) AND (batches_total > 0 OR paged_out)
		ORDER BY accepted_at DESC, id DESC LIMIT 1`, r.Policy, r.Stage, mode, stamp(r.AcceptedAt), r.ID))
	if errors.Is(err, sql.ErrNoRows) {
		return Run{}, false, nil
	}
	if err != nil {
		return Run{}, false, fmt.Errorf("read the run before %s: %w", short(r.ID), err)
	}
	return last, true, nil
}

// OutsideWindow begins the detail of an open run that waits for a window of its policy, until it has got on in it: nothing is
// wrong with such a run.
const OutsideWindow = "outside its window, which opens at "

// opens is when the window opens that the detail of a run speaks of.
func opens(detail string) time.Time {
	text, ok := strings.CutPrefix(detail, OutsideWindow)
	if !ok {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return at
}

// WaitForWindow notes that a running run waits for a window, or with the zero time that it does so no more. It is no change of
// state, and has no audit entry.
func (l *Ledger) WaitForWindow(ctx context.Context, id string, until time.Time) error {
	detail := ""
	if !until.IsZero() {
		detail = OutsideWindow + until.UTC().Format(time.RFC3339)
	}
	err := l.tx(ctx, func(t *txn) error {
		_, err := t.exec(ctx, `UPDATE @run SET detail = $1 WHERE id = $2 AND state = 'running' AND (detail = '' OR detail LIKE '`+OutsideWindow+`%')`,
			detail, id)
		return err
	})
	if err != nil {
		return fmt.Errorf("note what run %s waits for: %w", short(id), err)
	}
	return nil
}

package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// The actions of pauses in the audit log.
const (
	ActionPolicyPaused  = "policy_paused"
	ActionPauseReason   = "policy_pause_reason" // another reason for a pause that is in force
	ActionPolicyResumed = "policy_resumed"
)

// Pause is a policy whose schedule is stopped: its occurrences are skipped until
// it is resumed, and calls for it are refused. It is no legal hold: by hand it
// still runs, and a run under way goes on.
type Pause struct {
	Policy string
	Since  time.Time
	Actor  string // who gave the reason
	Reason string
}

// Pause stops a policy's schedule for every process on the ledger. A policy that
// is paused already stays so since when it was; another reason than the one it
// has, if there is any, takes its place, with who gives it.
func (l *Ledger) Pause(ctx context.Context, policy, actor, reason string) error {
	if policy == "" {
		return errors.New("pause: a policy is needed")
	}
	if actor == "" {
		actor = l.actor
	}
	actor, reason = text(actor), text(reason)
	err := l.tx(ctx, func(t *txn) error {
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		var since time.Time
		err = t.queryRow(ctx, `INSERT INTO @pause AS p (policy, since, actor, reason) VALUES ($1, $2, $3, $4)
			ON CONFLICT (policy) DO UPDATE SET actor = excluded.actor, reason = excluded.reason
			WHERE excluded.reason <> '' AND excluded.reason <> p.reason RETURNING since`, policy, stamp(now), actor, reason).Scan((*stamp)(&since))
		if errors.Is(err, sql.ErrNoRows) {
			return nil // nothing new
		}
		if err != nil {
			return err
		}
		action := ActionPolicyPaused
		if !since.Equal(now) {
			action = ActionPauseReason
		}
		return t.audit(entry{actor: actor, action: action, policy: policy, body: struct {
			Reason string `json:"reason,omitempty"`
		}{reason}})
	})
	if err != nil {
		return fmt.Errorf("pause %s: %w", policy, err)
	}
	return nil
}

// Resume lets a paused policy's schedule go on. One that is not paused is
// ErrNotFound.
func (l *Ledger) Resume(ctx context.Context, policy, actor string) error {
	err := l.tx(ctx, func(t *txn) error {
		var since time.Time
		err := t.queryRow(ctx, `DELETE FROM @pause WHERE policy = $1 RETURNING since`, policy).Scan((*stamp)(&since))
		if errors.Is(err, sql.ErrNoRows) {
			return fmt.Errorf("%w: it is not paused", ErrNotFound)
		}
		if err != nil {
			return err
		}
		return t.audit(entry{actor: text(actor), action: ActionPolicyResumed, policy: policy, body: struct {
			Since time.Time `json:"paused_since"`
		}{since}})
	})
	if err != nil {
		return fmt.Errorf("resume %s: %w", policy, err)
	}
	return nil
}

// Pauses returns the paused policies by name.
func (l *Ledger) Pauses(ctx context.Context) ([]Pause, error) {
	rows, err := l.query(ctx, `SELECT policy, since, actor, reason FROM @pause ORDER BY policy`)
	if err != nil {
		return nil, fmt.Errorf("read the pauses: %w", err)
	}
	all, err := collect(rows, func(row scanner) (p Pause, err error) {
		err = row.Scan(&p.Policy, (*stamp)(&p.Since), &p.Actor, &p.Reason)
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the pauses: %w", err)
	}
	return all, nil
}

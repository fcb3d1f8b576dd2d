package curfew

import (
	"context"
	"errors"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
)

// Pause keeps a policy from being started by its schedule or a call over HTTP until it is resumed: its occurrences are
// skipped, calls refused. A run that is under way goes on. Where it is paused already, another reason takes the place of the
// one before. It is not a legal hold: Run still runs the policy.
func (c *Curfew) Pause(ctx context.Context, policy, reason string) (api.Pause, error) {
	p, err := c.named(policy)
	if err != nil {
		return api.Pause{}, err
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return api.Pause{}, err
	}
	if err := l.Pause(ctx, p.Name, c.actor, reason); err != nil {
		return api.Pause{}, ledgerError(err)
	}
	pauses, err := c.pauses(ctx, l)
	if err != nil {
		return api.Pause{}, err
	}
	return pauses[p.Name], nil
}

// Resume ends a pause, and returns what it was. The policy need not be in the file any more.
func (c *Curfew) Resume(ctx context.Context, policy string) (api.Pause, error) {
	notPaused := fail(KindNotFound, "curfew status shows which policies are", "policy %s is not paused", policy)
	if c.noLedgerYet() {
		return api.Pause{}, notPaused
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return api.Pause{}, err
	}
	pauses, err := c.pauses(ctx, l)
	if err != nil {
		return api.Pause{}, err
	}
	err = l.Resume(ctx, policy, c.actor)
	if errors.Is(err, ledger.ErrNotFound) {
		if _, perr := c.named(policy); perr != nil { // a name that was mistyped
			return api.Pause{}, perr
		}
		return api.Pause{}, notPaused
	}
	if err != nil {
		return api.Pause{}, ledgerError(err)
	}
	return pauses[policy], nil
}

// pauses are the pauses in force, by policy.
func (c *Curfew) pauses(ctx context.Context, l *ledger.Ledger) (map[string]api.Pause, error) {
	all, err := l.Pauses(ctx)
	if err != nil {
		return nil, ledgerError(err)
	}
	pauses := make(map[string]api.Pause, len(all))
	for _, p := range all {
		pauses[p.Policy] = api.Pause{Policy: p.Policy, Since: p.Since.UTC(), Actor: p.Actor, Reason: p.Reason}
	}
	return pauses, nil
}

package ledger

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
)

// ErrOtherBody: the caller's key was used before, for something else.
var ErrOtherBody = errors.New("this key was used before with another request")

// AcceptOperation is Accept for a run that its caller named, with Operation and IdentityKey set: it remembers what the
// key was used for. The same key with the same body, which the caller hashes, is answered with the same run for ever,
// whatever the policy says by then; with another body it is ErrOtherBody. Key and run commit together: a run that is
// refused leaves its key free.
func (l *Ledger) AcceptOperation(ctx context.Context, a Acceptance, body [32]byte) (Run, bool, error) {
	switch {
	case a.Policy == "" || a.Mode == "" || a.Operation == "" || a.Identity != IdentityKey(a.Operation) || a.Cutoff == nil || a.JoinOpen:
		return Run{}, false, errors.New("accept an operation: policy, mode, operation with its identity, and cutoff are needed, and no open run is joined")
	case RevisionID(a.Revision) != a.RevisionID:
		return Run{}, false, errors.New("accept an operation: the revision's id is not the hash of its text")
	}
	if err := a.checkAsOf(); err != nil {
		return Run{}, false, err
	}
	var run Run
	var created bool
	err := l.tx(ctx, func(t *txn) (err error) {
		created = false
		id, err := t.useOperation(ctx, a, body)
		if err != nil {
			return err
		}
		if run, err = t.run(ctx, id); !errors.Is(err, ErrNotFound) {
			return err
		}
		if created, err = t.insertRun(ctx, id, a, a.AsOf); err != nil {
			return err
		}
		run, err = t.run(ctx, id)
		return err
	})
	if err != nil {
		return Run{}, false, fmt.Errorf("accept a run of %s: %w", a.Policy, err)
	}
	if a.AsOf != nil && !micros(*a.AsOf).Equal(run.AsOf) {
		// Of a run that was named on the command line, where no body is kept.
		return Run{}, false, &AsOfSticksError{Run: run, Asked: micros(*a.AsOf)}
	}
	return run, created, nil
}

// useOperation takes the key, or finds what it was taken for, and returns the id of its run. A rival's uncommitted key
// makes it wait.
func (t *txn) useOperation(ctx context.Context, a Acceptance, body [32]byte) (run string, err error) {
	run = RunID(a.Policy, a.Stage, a.Mode, a.Identity)
	fresh, err := t.execOne(ctx, `INSERT INTO @operation (policy, key, body_hash, run) VALUES ($1, $2, $3, $4) ON CONFLICT (policy, key) DO NOTHING`,
		a.Policy, a.Operation, body[:], run)
	if err != nil || fresh {
		return run, err
	}
	var was []byte
	if err := t.queryRow(ctx, `SELECT body_hash, run FROM @operation WHERE policy = $1 AND key = $2`, a.Policy, a.Operation).Scan(&was, &run); err != nil {
		return "", err
	}
	if subtle.ConstantTimeCompare(was, body[:]) != 1 {
		return "", ErrOtherBody
	}
	return run, nil
}

package ledger

import (
	"context"
	"crypto/subtle"
	"database/sql"
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

// DeferOperation has something made under the caller's own key, once: make runs in the transaction and says what it made. The same
// key with the same body, which the caller hashes, gives that for ever; with another body it is ErrOtherBody. Key and what was made
// commit together.
func (l *Ledger) DeferOperation(ctx context.Context, name, key string, body [32]byte, make func(ctx context.Context, tx *sql.Tx) (string, error)) (made string, fresh bool, err error) {
	err = l.tx(ctx, func(t *txn) error {
		var was []byte
		made, fresh = "", false
		// The row first: a rival's uncommitted key makes us wait, and find what it made.
		if fresh, err = t.execOne(ctx, `INSERT INTO @operation (policy, key, body_hash, run) VALUES ($1, $2, $3, '') ON CONFLICT (policy, key) DO NOTHING`, name, key, body[:]); err != nil {
			return err
		}
		if fresh {
			if made, err = make(ctx, t.tx); err != nil {
				return err
			}
			_, err = t.exec(ctx, `UPDATE @operation SET run = $1 WHERE policy = $2 AND key = $3`, made, name, key)
			return err
		}
		if err := t.queryRow(ctx, `SELECT body_hash, run FROM @operation WHERE policy = $1 AND key = $2`, name, key).Scan(&was, &made); err != nil {
			return err
		}
		if subtle.ConstantTimeCompare(was, body[:]) != 1 {
			return ErrOtherBody
		}
		return nil
	})
	if err != nil {
		return "", false, fmt.Errorf("defer a call of %s: %w", name, err)
	}
	return made, fresh, nil
}

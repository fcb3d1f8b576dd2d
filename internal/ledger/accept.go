package ledger

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

const (
	// clockAhead is how long a ledger may have been silent before its clock is
	// doubted. Nobody schedules a purge more rarely than yearly.
	clockAhead = 300 * 24 * time.Hour
	// clockBehind is how far the clock may be before the last entry.
	clockBehind = 5 * time.Minute
)

// Acceptance asks for a run.
type Acceptance struct {
	Policy, Stage, Mode string
	// Identity makes it one run: what is accepted twice under one identity is
	// accepted once. See IdentityAsOf, IdentityKey and IdentityOnce.
	Identity  string
	Operation string // the caller's own key, or ""
	Cause     string // schedule, http, cli, catch_up
	// AsOf is the instant the run stands for; nil is the ledger's now. Digits
	// beyond microseconds are cut off.
	AsOf *time.Time
	// Cutoff derives the cutoff from the as_of that was settled on.
	Cutoff func(asOf time.Time) time.Time
	// Revision is the policy text that the run executes, and RevisionID its
	// RevisionID.
	RevisionID string
	Revision   []byte
	// Actor overrides the ledger's in the audit entry.
	Actor string
	// JoinOpen takes the open run of the same policy, stage and mode, when there is one, instead of making another. Of any
	// number of callers at once, one makes it.
	JoinOpen bool
}

// RevisionID names a policy text: hex SHA-256.
func RevisionID(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:])
}

// RunID is the id of the one run with this identity.
func RunID(policy, stage, mode, identity string) string {
	h := sha256.New()
	var n [8]byte
	for _, s := range []string{policy, stage, mode, identity} {
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// IdentityAsOf is the identity of a run that stands for a given instant.
func IdentityAsOf(asOf time.Time) string { return "as_of:" + micros(asOf).Format(time.RFC3339Nano) }

// IdentityKey is the identity of a run that its caller named.
func IdentityKey(operation string) string { return "key:" + operation }

// IdentityOnce is an identity nobody else has.
func IdentityOnce() string {
	var b [16]byte
	rand.Read(b[:])
	return "cli:" + hex.EncodeToString(b[:])
}

// Accept records a run, or finds the one that has its identity, and reports
// whether it was created. The run's id, under a unique constraint, decides; of
// any number of callers one creates. A new run's as_of is read from the ledger's
// clock unless given.
//
// Refused: a future as_of (*FutureError), another as_of than the operation
// already has (*AsOfSticksError), and a new run under a clock that cannot be
// right (*ClockError).
func (l *Ledger) Accept(ctx context.Context, a Acceptance) (Run, bool, error) {
	switch {
	case a.Policy == "" || a.Mode == "" || a.Identity == "" || a.Cutoff == nil:
		return Run{}, false, errors.New("accept: policy, mode, identity and cutoff are needed")
	case RevisionID(a.Revision) != a.RevisionID:
		return Run{}, false, errors.New("accept: the revision's id is not the hash of its text")
	}
	if err := a.checkAsOf(); err != nil {
		return Run{}, false, err
	}
	id := RunID(a.Policy, a.Stage, a.Mode, a.Identity)
	var run Run
	var created bool
	err := l.tx(ctx, func(t *txn) (err error) {
		if run, err = t.run(ctx, id); !errors.Is(err, ErrNotFound) {
			created = false
			return err
		}
		if a.JoinOpen {
			found := false
			if run, found, err = t.openRun(ctx, a); err != nil || found {
				created = false
				return err
			}
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
		return Run{}, false, &AsOfSticksError{Run: run, Asked: micros(*a.AsOf)}
	}
	return run, created, nil
}

// earliestAsOf is before every instant that a retention policy was ever run for. What is earlier is a time that somebody forgot
// to set: the year 1 of Go and .NET, the 1900 of others.
var earliestAsOf = time.Date(1970, 1, 2, 0, 0, 0, 0, time.UTC)

// checkAsOf refuses an as_of that nobody can have meant.
func (a *Acceptance) checkAsOf() error {
	if a.AsOf != nil && a.AsOf.Before(earliestAsOf) {
		return fmt.Errorf("accept a run of %s: %w", a.Policy, &UnsetError{AsOf: *a.AsOf})
	}
	return nil
}

// lockOpen keeps rivals from making an open run of the same policy, stage and mode until this transaction ends.
func (t *txn) lockOpen(ctx context.Context, policy, stage, mode string) error {
	if t.l.sqlite { // its writers take turns anyway
		return nil
	}
	_, err := t.exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('curfew open run ' || $1::text, 0))`, policy+"/"+stage+"/"+mode)
	return err
}

// openRun looks for the open run, alone: a rival that would make one waits until this transaction ends.
func (t *txn) openRun(ctx context.Context, a Acceptance) (Run, bool, error) {
	if err := t.lockOpen(ctx, a.Policy, a.Stage, a.Mode); err != nil {
		return Run{}, false, err
	}
	run, err := scanRun(t.queryRow(ctx, openRunQuery, a.Policy, a.Stage, a.Mode))
	if errors.Is(err, sql.ErrNoRows) {
		return Run{}, false, nil
	}
	return run, err == nil, err
}

func (t *txn) insertRun(ctx context.Context, id string, a Acceptance, asked *time.Time) (created bool, err error) {
	now, err := t.clock(ctx)
	if err != nil {
		return false, err
	}
	if err := t.checkClock(ctx, now); err != nil {
		return false, err
	}
	asOf := now
	if asked != nil {
		asOf = micros(*asked)
	}
	if asOf.After(now) {
		return false, &FutureError{AsOf: asOf, Now: now}
	}
	if err := t.seeRevision(ctx, a, now); err != nil {
		return false, err
	}
	cutoff := micros(a.Cutoff(asOf))
	// A rival's uncommitted row makes this wait; then it inserts nothing.
	created, err = t.execOne(ctx, `INSERT INTO @run (id, policy, stage, mode, identity, operation, cause, as_of, cutoff, revision, state, accepted_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT (id) DO NOTHING`,
		id, a.Policy, a.Stage, a.Mode, a.Identity, a.Operation, a.Cause, stamp(asOf), stamp(cutoff), a.RevisionID, string(Accepted), stamp(now))
	if err != nil || !created {
		return false, err
	}
	return true, t.audit(entry{actor: a.Actor, action: ActionRunAccepted, policy: a.Policy, run: id, body: struct {
		Stage     string    `json:"stage"`
		Mode      string    `json:"mode"`
		Operation string    `json:"operation,omitempty"`
		Cause     string    `json:"cause"`
		AsOf      time.Time `json:"as_of"`
		Cutoff    time.Time `json:"cutoff"`
		Revision  string    `json:"revision"`
	}{a.Stage, a.Mode, a.Operation, a.Cause, asOf, cutoff, a.RevisionID}})
}

// PutInForce notes the text of a policy that a service keeps from now on, and audits when it is another one than before, also one
// that comes back. Runs under way keep the text that they were accepted with. source names the file that it is from.
func (l *Ledger) PutInForce(ctx context.Context, policy, id string, body []byte, source string) error {
	if RevisionID(body) != id {
		return errors.New("put a policy in force: the revision's id is not the hash of its text")
	}
	err := l.tx(ctx, func(t *txn) error {
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		if err := t.seeRevision(ctx, Acceptance{Policy: policy, RevisionID: id, Revision: body}, now); err != nil {
			return err
		}
		var was string
		err = t.queryRow(ctx, `SELECT revision FROM @policy WHERE name = $1 {lock}`, policy).Scan(&was)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		if _, err := t.exec(ctx, `INSERT INTO @policy (name, revision, source, since) VALUES ($1, $2, $3, $4)
			ON CONFLICT (name) DO UPDATE SET revision = excluded.revision, source = excluded.source, since = excluded.since`,
			policy, id, source, stamp(now)); err != nil || was == id {
			return err
		}
		return t.audit(entry{action: ActionPolicyInForce, policy: policy, body: struct {
			Revision string `json:"revision"`
			Was      string `json:"was"`
		}{id, was}})
	})
	if err != nil {
		return fmt.Errorf("put policy %s in force: %w", policy, err)
	}
	return nil
}

// InForceFrom are the policies that a file put in force last.
func (l *Ledger) InForceFrom(ctx context.Context, source string) (names []string, err error) {
	rows, err := l.query(ctx, `SELECT name FROM @policy WHERE source = $1 ORDER BY name`, source)
	if err != nil {
		return nil, fmt.Errorf("list the policies in force: %w", err)
	}
	names, err = collect(rows, func(row scanner) (name string, err error) { err = row.Scan(&name); return name, err })
	if err != nil {
		return nil, fmt.Errorf("list the policies in force: %w", err)
	}
	return names, nil
}

// PutOutOfForce forgets the text of a policy that left its file.
func (l *Ledger) PutOutOfForce(ctx context.Context, policy string) error {
	err := l.tx(ctx, func(t *txn) error {
		gone, err := t.execOne(ctx, `DELETE FROM @policy WHERE name = $1`, policy)
		if err != nil || !gone {
			return err
		}
		return t.audit(entry{action: ActionPolicyOutOfForce, policy: policy, body: struct{}{}})
	})
	if err != nil {
		return fmt.Errorf("put policy %s out of force: %w", policy, err)
	}
	return nil
}

// seeRevision keeps a policy text the first time it is seen.
func (t *txn) seeRevision(ctx context.Context, a Acceptance, now time.Time) error {
	fresh, err := t.execOne(ctx, `INSERT INTO @revision (id, policy, body, first_seen) VALUES ($1, $2, $3, $4)
		ON CONFLICT (id) DO NOTHING`, a.RevisionID, a.Policy, string(a.Revision), stamp(now))
	if err != nil || !fresh {
		return err
	}
	return t.audit(entry{actor: a.Actor, action: ActionRevisionSeen, policy: a.Policy, body: struct {
		Revision string `json:"revision"`
	}{a.RevisionID}})
}

// checkClock compares the clock with the last thing the ledger knows.
func (t *txn) checkClock(ctx context.Context, now time.Time) error {
	last, err := t.lastEntry(ctx)
	if err != nil || last.IsZero() {
		return err
	}
	if d := now.Sub(last); d > clockAhead || d < -clockBehind {
		return &ClockError{Now: now, Last: last}
	}
	return nil
}

func (t *txn) lastEntry(ctx context.Context) (time.Time, error) {
	var last time.Time
	err := t.queryRow(ctx, `SELECT at FROM @audit ORDER BY seq DESC LIMIT 1`).Scan((*stamp)(&last))
	if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	return last, err
}

// AcceptClock records that the clock is right although the last entry is far from
// it, so that runs are accepted again. It returns both times.
func (l *Ledger) AcceptClock(ctx context.Context, actor string) (now, last time.Time, err error) {
	err = l.tx(ctx, func(t *txn) (err error) {
		if now, err = t.clock(ctx); err != nil {
			return err
		}
		if last, err = t.lastEntry(ctx); err != nil {
			return err
		}
		return t.audit(entry{actor: actor, action: ActionClockAccepted, body: struct {
			Now  time.Time `json:"now"`
			Last time.Time `json:"last"`
		}{now, last}})
	})
	if err != nil {
		return time.Time{}, time.Time{}, fmt.Errorf("accept the clock: %w", err)
	}
	return now, last, nil
}

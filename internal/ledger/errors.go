package ledger

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// What callers branch on. Everything else is an error of the database or of the
// program, and ends the operation.
var (
	// ErrNotFound: no such run, revision or batch.
	ErrNotFound = errors.New("not in the ledger")
	// ErrRunEnded: the run has ended and admits nothing more. Somebody
	// cancelled it, or another process finished it.
	ErrRunEnded = errors.New("the run has ended")
	// ErrUnfinished: the run cannot have succeeded yet. Another process admitted
	// or left something; it is open, and there is work to do.
	ErrUnfinished = errors.New("the run is not finished")
	// ErrCursorMoved: another process advanced the run's cursor. Read the run
	// again and go on from there.
	ErrCursorMoved = errors.New("the run's cursor has moved")
	// ErrDeferredTaken: another batch already took those deferred rows.
	ErrDeferredTaken = errors.New("the deferred rows were already taken")
	// ErrSettledDifferently: the batch is settled with another result than the
	// one given. The ledger and the governed database tell different stories.
	ErrSettledDifferently = errors.New("the batch is already settled with another result")
	// ErrOutcomesDiffer: planned is not the sum of the outcomes.
	ErrOutcomesDiffer = errors.New("planned is not the sum of the outcomes")
)

// MigrationNeededError says that a PostgreSQL ledger lacks tables of this
// program's version. A program does not change a shared schema on its own.
type MigrationNeededError struct {
	Have, Want int64 // schema versions; Have is 0 when there is no ledger yet
}

func (e *MigrationNeededError) Error() string {
	if e.Have == 0 {
		return "the PostgreSQL database holds no ledger yet: run `curfew migrate`, once, as the role that shall own the tables"
	}
	return fmt.Sprintf("the ledger has schema version %d, this program needs %d: run `curfew migrate`", e.Have, e.Want)
}

// NewerLedgerError says that a newer curfew has migrated the ledger. An older
// program would misread it.
type NewerLedgerError struct {
	Have, Know int64 // schema versions
}

func (e *NewerLedgerError) Error() string {
	return fmt.Sprintf("the ledger has schema version %d, this program knows versions up to %d: use the newer curfew that migrated it", e.Have, e.Know)
}

// ClockError refuses to accept a run because the ledger database's clock and the
// ledger's last entry cannot both be right. A clock a year ahead would make a
// year of rows due at once.
type ClockError struct {
	Now, Last time.Time // the clock, and the last audit entry
}

func (e *ClockError) Error() string {
	now, last := e.Now.Format(time.RFC3339), e.Last.Format(time.RFC3339)
	what := fmt.Sprintf("the ledger's clock says %s, %d days after its last entry (%s)", now, int(e.Now.Sub(e.Last).Hours()/24), last)
	if e.Now.Before(e.Last) {
		what = fmt.Sprintf("the ledger's clock says %s, before its last entry (%s)", now, last)
	}
	return what + ": no run is accepted. Correct the clock; if it is right, say so with `curfew migrate --accept-clock`"
}

// UnsetError refuses an as_of so long ago that it must be a time that nobody set.
type UnsetError struct{ AsOf time.Time }

func (e *UnsetError) Error() string {
	return fmt.Sprintf("as_of %s is no instant that a run can stand for: it looks like a time that was never set", e.AsOf.Format(time.RFC3339Nano))
}

// FutureError refuses an as_of after the ledger's now.
type FutureError struct {
	AsOf, Now time.Time
}

func (e *FutureError) Error() string {
	return fmt.Sprintf("as_of %s lies in the future: the ledger's clock says %s",
		e.AsOf.Format(time.RFC3339Nano), e.Now.Format(time.RFC3339Nano))
}

// AsOfSticksError says that an operation already stands for another as_of.
type AsOfSticksError struct {
	Run   Run       // as it was accepted
	Asked time.Time // what was asked for now
}

func (e *AsOfSticksError) Error() string {
	return fmt.Sprintf("run %s was accepted for as_of %s, and that does not change: asked for %s; another as_of needs another operation",
		short(e.Run.ID), e.Run.AsOf.Format(time.RFC3339Nano), e.Asked.Format(time.RFC3339Nano))
}

// AmbiguousError says that several runs' ids start with a prefix.
type AmbiguousError struct {
	Prefix string
	IDs    []string // some of them
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("several runs start with %q: %s", e.Prefix, strings.Join(e.IDs, ", "))
}

// OwnedError says that a living process works on the run.
type OwnedError struct {
	Run, Owner string
	Heartbeat  time.Time
}

func (e *OwnedError) Error() string {
	return fmt.Sprintf("run %s is worked on by %s (last sign of life %s)", short(e.Run), e.Owner, e.Heartbeat.Format(time.RFC3339))
}

// short is how messages name a run.
func short(id string) string { return id[:min(len(id), 12)] }

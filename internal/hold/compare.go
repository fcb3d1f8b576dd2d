package hold

import (
	"errors"
	"fmt"
	"strings"
)

// Row is a hold as a governed database has it.
type Row struct {
	ID, Name, Relation string
	Conditions         string // JSON, a list of Condition
}

// Wanted is what the ledger says about a hold and one database.
type Wanted struct {
	ID, Name string
	Subject  bool  // it is on a data subject, and so concerns every database
	Hold     State // the whole hold's
	Here     State // in this database; "" when it was never meant for it
}

// Pending reports whether no batch may begin on account of this hold. subjects says whether data subjects are known there: then
// one who is held elsewhere and not here is pending.
func (w Wanted) Pending(subjects bool) bool {
	return w.Here == Releasing || w.Here == Placing || w.Here == "" && w.Subject && subjects && w.Hold != Releasing
}

var (
	// ErrPending says that a hold is being placed or released: until that is done, no batch may begin.
	ErrPending = errors.New("a hold is being placed or released")
	// ErrStale says that the ledger and a governed database do not agree about the holds.
	ErrStale = errors.New("the holds of the ledger and of the database differ")
)

// PendingError is an ErrPending that says which hold.
type PendingError struct {
	Database, Name string
	Releasing      bool
}

func (e *PendingError) Error() string {
	if e.Releasing {
		return fmt.Sprintf("the release of hold %s is not done in database %s, and until it is, nothing may be changed there: curfew hold release %s goes on with it", e.Name, e.Database, e.Name)
	}
	return fmt.Sprintf("hold %s is NOT yet in force in database %s, and until it is, nothing may be changed there: curfew hold replay %s goes on with it", e.Name, e.Database, e.Database)
}

// Is makes it an ErrPending.
func (e *PendingError) Is(target error) bool { return target == ErrPending }

// StaleError is an ErrStale that says how they differ. Holds are told by name.
type StaleError struct {
	Database string
	Missing  []string // in force, as the ledger says, and not in the database
	Released []string // released, as the ledger says, and still in the database
	Unknown  []string // in the database, and unknown to the ledger
}

func (e *StaleError) Error() string {
	var parts []string
	say := func(names []string, what string) {
		if len(names) > 0 {
			parts = append(parts, fmt.Sprintf(what, strings.Join(names, ", ")))
		}
	}
	say(e.Missing, "it does not have %s, which the ledger has in force")
	say(e.Released, "it still has %s, which the ledger has released")
	say(e.Unknown, "it has %s, which the ledger does not know")
	why, command := "the database was restored to an older state", "curfew hold replay "+e.Database+" writes the ledger's holds into it"
	if len(e.Unknown) > 0 {
		why, command = "the ledger was restored to an older state, or another ledger has governed the database",
			"curfew hold replay "+e.Database+" --adopt takes them into the ledger"
	}
	return fmt.Sprintf("the holds of database %s are not the ledger's: %s. Probably %s; nothing was changed. %s", e.Database, strings.Join(parts, "; "), why, command)
}

// Is makes it an ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Compare says whether a batch may begin in a database that has these holds. want is all that the ledger has not released, and
// what it says of those that have is looked up by released. subjects says whether data subjects are known in the database: then
// a hold on one that was never placed there is pending.
//
// Both must have been read while no hold could be placed in the database. A row of a hold that the ledger wants elsewhere does
// no harm: two names may lead to one database.
func Compare(database string, subjects bool, want []Wanted, have []Row, released func(id string) bool) error {
	stale := &StaleError{Database: database}
	var pending *PendingError
	there, known, gone := make(map[string]bool, len(have)), make(map[string]bool, len(want)), map[string]bool{}
	for _, r := range have {
		there[r.ID] = true
	}
	for _, w := range want {
		known[w.ID], gone[w.ID] = true, w.Here == Released
		switch {
		case w.Here == InForce && !there[w.ID]:
			stale.Missing = append(stale.Missing, w.Name)
		case w.Pending(subjects):
			if pending == nil {
				pending = &PendingError{Database: database, Name: w.Name, Releasing: w.Here == Releasing}
			}
		}
	}
	for _, r := range have {
		switch {
		case known[r.ID] && !gone[r.ID]:
		case gone[r.ID] || released(r.ID):
			stale.Released = append(stale.Released, r.Name)
		default:
			stale.Unknown = append(stale.Unknown, r.Name)
		}
	}
	switch {
	case len(stale.Missing)+len(stale.Released)+len(stale.Unknown) > 0:
		return stale
	case pending != nil:
		return pending
	}
	return nil
}

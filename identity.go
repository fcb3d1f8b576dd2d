package curfew

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/target"
)

// changedError says that a name leads to another database than the ledger knows by it.
type changedError struct {
	database string
	differs  []string
}

func (e *changedError) Error() string {
	return fmt.Sprintf("database %s is not the one that the ledger knows: %s", e.database, strings.Join(e.differs, "; "))
}

// sighting is what a governed database is now, and what the ledger has on record.
type sighting struct {
	ledger   string // the ledger's id
	identity target.Identity
	claim    target.Claim
	claimed  bool // there is a claim on it
	claims   bool // it can keep one
	newest   string
	record   ledger.Database
	differs  []string
}

// known reports whether the ledger has accepted a database of that name.
func (s *sighting) known() bool { return s.record.Identity != "" }

// sameDatabase refuses a database that is not the one on record: restored, cloned, or another ledger's. One that is seen for the
// first time is put on record, on both sides.
func (c *Curfew) sameDatabase(ctx context.Context, l *ledger.Ledger, db *target.DB) error {
	s, err := c.sight(ctx, l, db)
	if err != nil {
		return err
	}
	if len(s.differs) == 0 && (!s.known() || s.record.Epoch == "" && s.claims) {
		if err := c.record(ctx, l, db, s); err != nil {
			return err
		}
	}
	differs := strings.Join(s.differs, "; ")
	if differs != s.record.Differs {
		if err := l.DatabaseDiffers(ctx, db.Name, differs); err != nil {
			return ledgerError(err)
		}
	}
	if differs == "" {
		return nil
	}
	return &Error{Kind: KindRefused, Err: &changedError{db.Name, s.differs},
		Hint: "nothing is changed there. Is it a copy, or restored to an older state? If the policies are to be kept in it all the same: curfew adopt " + db.Name}
}

// record puts a database on record that is as it should be, first there and then here: a crash in between leaves a claim of ours,
// which the next look takes for what it is.
func (c *Curfew) record(ctx context.Context, l *ledger.Ledger, db *target.DB, s *sighting) error {
	epoch := ""
	if s.claims {
		claim, err := db.TakeClaim(ctx, target.Claim{Ledger: s.ledger, Epoch: newEpoch()})
		switch {
		case errors.Is(err, target.ErrNoClaims): // the role may look and not write
			c.log.WarnContext(ctx, "database_unclaimed", "database", db.Name, "err", err, "hint", "curfew install "+db.Name+" --print shows what is missing")
		case target.Transient(err): // its only writer is somebody else (SQLite): the run begins, and the next one claims
			c.log.InfoContext(ctx, "database_unclaimed", "database", db.Name, "err", err)
		case err != nil:
			return targetError(db.Name, err)
		case claim.Ledger != s.ledger:
			s.differs = append(s.differs, anotherLedger(claim))
			return nil
		}
		epoch = claim.Epoch
	}
	if _, err := l.SeeDatabase(ctx, db.Name, s.identity.String(), epoch, s.newest); err != nil {
		return ledgerError(err)
	}
	return nil
}

func newEpoch() string {
	var b [16]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func anotherLedger(c target.Claim) string {
	return fmt.Sprintf("it belongs to another ledger (%.8s)", c.Ledger)
}

// sight looks at a governed database, and compares it with what is on record.
func (c *Curfew) sight(ctx context.Context, l *ledger.Ledger, db *target.DB) (*sighting, error) {
	s := &sighting{}
	var err error
	if s.ledger, err = l.ID(ctx); err != nil {
		return nil, ledgerError(err)
	}
	all, err := l.Databases(ctx)
	if err != nil {
		return nil, ledgerError(err)
	}
	for _, d := range all {
		if d.Name == db.Name {
			s.record = d
		}
	}
	if s.identity, err = db.Identity(ctx); err != nil {
		return nil, targetError(db.Name, err)
	}
	if s.known() {
		was, err := target.ParseIdentity(s.record.Identity)
		if err != nil {
			return nil, err
		}
		s.differs = was.Differs(s.identity)
	}
	if err := s.lookAtClaim(ctx, db); err != nil {
		return nil, err
	}
	if s.newest, err = db.NewestReceipt(ctx); err != nil {
		return nil, targetError(db.Name, err)
	}
	return s, c.lookAtReceipts(ctx, l, db, s)
}

// lookAtClaim compares what both sides have agreed on.
func (s *sighting) lookAtClaim(ctx context.Context, db *target.DB) error {
	var err error
	s.claim, s.claimed, err = db.Claim(ctx)
	if s.claims = !errors.Is(err, target.ErrNoClaims); !s.claims {
		return nil
	}
	if err != nil {
		return targetError(db.Name, err)
	}
	agreed := s.record.Epoch
	switch {
	case s.claimed && s.claim.Ledger != s.ledger:
		s.differs = append(s.differs, anotherLedger(s.claim))
	case s.claimed && agreed != "" && s.claim.Epoch != agreed:
		s.differs = append(s.differs, fmt.Sprintf("what it and the ledger agreed on last was %.8s, and in it stands %.8s: one of the two was restored to an older state", agreed, s.claim.Epoch))
	case !s.claimed && agreed != "":
		s.differs = append(s.differs, "this ledger's claim on it is gone: it was restored to a state from before, or curfew's tables were made anew")
	}
	return nil
}

// lookAtReceipts compares what each side has of the last changes. A database restored to an older state lacks receipts; a ledger
// restored to an older one does not know all of them.
func (c *Curfew) lookAtReceipts(ctx context.Context, l *ledger.Ledger, db *target.DB, s *sighting) error {
	if s.newest != "" && s.newest != s.record.Baseline && (s.known() || s.claimed) {
		_, err := l.Get(ctx, s.newest)
		if errors.Is(err, ledger.ErrNotFound) {
			s.differs = append(s.differs, fmt.Sprintf("it was changed last by run %.12s, which the ledger does not know: the ledger was restored to an older state, or another one works on it", s.newest))
		} else if err != nil {
			return ledgerError(err)
		}
	}
	if !s.known() {
		return nil
	}
	for _, p := range c.file.Policies {
		if p.Database != db.Name {
			continue
		}
		run, found, err := l.LastChange(ctx, p.Name, s.record.Seen)
		if err != nil {
			return ledgerError(err)
		}
		if !found {
			continue
		}
		if then, err := c.storedPolicy(ctx, l, run); err != nil || then.Database != db.Name {
			continue
		}
		n, dropped, err := db.Receipts(ctx, run.ID)
		if err != nil {
			return targetError(db.Name, err)
		}
		if !dropped && n < run.BatchesSettled {
			s.differs = append(s.differs, fmt.Sprintf("it has receipts of %d of the %s that run %.12s settled in it: it was restored to an older state", n, batches(run.BatchesSettled), run.ID))
			break // one says it
		}
	}
	return nil
}

func batches(n int64) string {
	if n == 1 {
		return "1 batch"
	}
	return fmt.Sprintf("%d batches", n)
}

// Adopt makes the database that a name leads to the one that the ledger knows by it, whatever differs.
func (c *Curfew) Adopt(ctx context.Context, name string) (api.Adoption, error) {
	l, err := c.ledger(ctx)
	if err != nil {
		return api.Adoption{}, err
	}
	db, err := c.database(ctx, name)
	if err != nil {
		return api.Adoption{}, err
	}
	if err := db.Installed(ctx); err != nil {
		return api.Adoption{}, &Error{Kind: KindRefused, Err: fmt.Errorf("database %s: %w", name, err), Hint: "run curfew install " + name + " first"}
	}
	s, err := c.sight(ctx, l, db)
	if err != nil {
		return api.Adoption{}, err
	}
	answer := api.Adoption{Database: name, Differs: list(s.differs), Identity: s.identity}
	claim := target.Claim{Ledger: s.ledger, Epoch: newEpoch()}
	switch err := db.ReplaceClaim(ctx, claim); {
	case errors.Is(err, target.ErrNoClaims):
		claim.Epoch = ""
	case err != nil:
		return api.Adoption{}, targetError(name, err)
	default:
		answer.Claimed = true
	}
	hook("claimed")
	if err := l.AdoptDatabase(ctx, name, s.identity.String(), claim.Epoch, s.newest, strings.Join(s.differs, "; ")); err != nil {
		return api.Adoption{}, ledgerError(err)
	}
	c.log.InfoContext(ctx, "database_adopted", "database", name, "differs", strings.Join(s.differs, "; "))
	return answer, nil
}

// checkIdentity finds out whether a database is the one on record, and writes nothing.
func (c *Curfew) checkIdentity(ctx context.Context, l *ledger.Ledger, db *target.DB, add func(api.Finding)) {
	s, err := c.sight(ctx, l, db)
	if err != nil {
		add(findingOf(err, "identity"))
		return
	}
	if len(s.differs) > 0 {
		add(api.Finding{Level: api.LevelRefuse, Code: "database_changed", Message: "it is not the database that the ledger knows: " + strings.Join(s.differs, "; "),
			Hint: "if the policies are to be kept in it all the same: curfew adopt " + db.Name})
	}
	if !s.claims {
		add(api.Finding{Level: api.LevelWarn, Code: "database_unclaimed", Message: "it cannot keep which ledger it belongs to, by which a copy of it would be noticed",
			Hint: "curfew install " + db.Name + " --print shows the table and the right that are missing"})
	}
}

// noteInstalled puts a database on record when curfew was installed in it, as far as there is a ledger to do so: a run does it too.
func (c *Curfew) noteInstalled(ctx context.Context, db *target.DB) {
	l, err := c.ledger(ctx)
	if err == nil {
		err = c.sameDatabase(ctx, l, db)
	}
	if errors.As(err, new(*ledger.ClockError)) {
		return // the first run does it, once somebody has said what time it is
	}
	if err != nil {
		c.log.WarnContext(ctx, "database_not_recorded", "database", db.Name, "err", err, "hint", HintOf(err))
	}
}

// databaseChanged ends a run whose database is not the one on record, and reports whether that is what the error says. Of a run
// that has changed rows something is amiss; any other is only left out.
func (e *engine) databaseChanged(ctx context.Context, run ledger.Run, cause error) (bool, error) {
	changed := (*changedError)(nil)
	if !errors.As(cause, &changed) {
		return false, nil
	}
	state := ledger.Skipped
	if run.Begun() {
		state = ledger.Failed
	}
	ended, err := e.l.End(context.WithoutCancel(ctx), run.ID, state, ledger.WhyDatabaseChanged, changed.Error())
	if err == nil && ended.WhyEnded == ledger.WhyDatabaseChanged {
		name := "run_skipped"
		if state == ledger.Failed {
			name = "run_failed"
		}
		e.c.event(ctx, name, ended)
	}
	return true, err
}

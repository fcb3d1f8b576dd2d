package curfew

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/hold"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/policy"
)

// settleOptions say how far a database is brought to the ledger's holds.
type settleOptions struct {
	replay bool // also where it lacks what the ledger took it to have
	adopt  bool // and the ledger to what it has

	subjects bool // data subjects are known there, whatever the file says now
}

// settleHolds brings a database to what the ledger wants of its holds: it places what is being placed and removes what is being
// released. Placing, releasing, replaying, and going on after a crash are all this.
//
// The ledger says first what is pending, and from then on no batch begins there; the database follows; the ledger records that it
// did. A crash between any two of them leaves something pending, and this function, called again, goes on.
func (c *Curfew) settleHolds(ctx context.Context, l *ledger.Ledger, database string, o settleOptions) (api.HoldReplay, error) {
	done := api.HoldReplay{Database: database, Placed: []string{}, Removed: []string{}, Adopted: []string{}}
	if err := c.extendHolds(ctx, l, database, o.subjects); err != nil {
		return done, err
	}
	db, err := c.database(ctx, database)
	if err != nil {
		return done, err
	}
	s := &settlement{c: c, l: l, database: database, o: o}
	err = db.SettleHolds(ctx, s.decide)
	switch {
	case errors.As(err, new(*Error)):
		return done, err
	case errors.Is(err, hold.ErrStale):
		return done, &Error{Kind: KindRefused, Err: err, Hint: "curfew hold replay " + database + " --adopt takes them into the ledger; look at what they are first, in curfew's table of holds there"}
	case target.Denied(err):
		return done, &Error{Kind: KindRefused, Err: fmt.Errorf("database %s: %w", database, err), Hint: "curfew install " + database + " --print shows what the role of who places holds needs"}
	case target.Unevaluable(err):
		return done, &Error{Kind: KindRefused, Err: fmt.Errorf("database %s: %w", database, target.ErrNotInstalled), Hint: "run curfew install " + database + " once"}
	case err != nil:
		return done, targetError(database, err)
	}
	for _, m := range s.marks {
		if err := l.HoldDone(ctx, m.name, database, m.was); err != nil {
			return done, ledgerError(err)
		}
		c.log.InfoContext(ctx, map[hold.State]string{hold.Placing: "hold_placed", hold.Releasing: "hold_released"}[m.was], "hold", m.name, "database", database)
	}
	for _, r := range s.adopt {
		if err := c.adoptHold(ctx, l, database, r); err != nil {
			return done, err
		}
		done.Adopted = append(done.Adopted, r.Name)
	}
	hook("hold_marked")
	done.Placed, done.Removed = append(done.Placed, s.placed...), append(done.Removed, s.removed...)
	return done, nil
}

// extendHolds means holds on data subjects for a database whose policies have come to know such.
func (c *Curfew) extendHolds(ctx context.Context, l *ledger.Ledger, database string, subjects bool) error {
	if !subjects && !c.knowsSubjects(database) {
		return nil
	}
	want, err := l.WantedHolds(ctx, database)
	for _, w := range want {
		if err == nil && w.Subject && w.Here == "" {
			err = l.ExtendHold(ctx, w.Name, []string{database})
		}
	}
	return ledgerError(err)
}

// A settlement decides what a database lacks, while it has the holds there to itself.
type settlement struct {
	c        *Curfew
	l        *ledger.Ledger
	database string
	o        settleOptions

	marks           []mark // what the ledger is told afterwards
	adopt           []hold.Row
	placed, removed []string
}

type mark struct {
	name string
	was  hold.State
}

// decide asks the ledger now, not before: what was released meanwhile must not be placed, and the other way round.
func (s *settlement) decide(ctx context.Context, have []hold.Row) (target.HoldChange, error) {
	s.marks, s.adopt, s.placed, s.removed = nil, nil, nil, nil
	var change target.HoldChange
	all, err := s.l.Holds(ctx, false)
	if err != nil {
		return change, ledgerError(err)
	}
	there := map[string]bool{}
	for _, r := range have {
		there[r.ID] = true
	}
	known := map[string]bool{}
	drop := func(id, name string) {
		change.Drop, s.removed = append(change.Drop, id), append(s.removed, name)
	}
	for _, h := range all {
		known[h.ID] = true
		here := hold.State("")
		for _, copied := range h.Copies {
			if copied.Database == s.database {
				here = copied.State
			}
		}
		if here == hold.Placing || here == hold.Releasing {
			s.marks = append(s.marks, mark{h.Name, here})
		}
		switch {
		case !there[h.ID] && (here == hold.Placing || here == hold.InForce && s.o.replay):
			row, err := s.c.holdRow(h)
			if err != nil {
				return change, err
			}
			change.Add, s.placed = append(change.Add, row), append(s.placed, h.Name)
		case there[h.ID] && (here == hold.Releasing || here == hold.Released && s.o.replay):
			drop(h.ID, h.Name)
		case there[h.ID] && here == "" && s.o.replay: // of another name for this database
		}
	}
	if !s.o.replay {
		return change, nil
	}
	stale := &hold.StaleError{Database: s.database}
	for _, r := range have {
		if known[r.ID] {
			continue
		}
		released, err := wasReleased(ctx, s.l, r.ID)
		switch {
		case err != nil:
			return change, err
		case released:
			drop(r.ID, r.Name)
		case s.o.adopt:
			s.adopt = append(s.adopt, r)
		default:
			stale.Unknown = append(stale.Unknown, r.Name)
		}
	}
	if len(stale.Unknown) > 0 {
		return target.HoldChange{}, stale
	}
	return change, nil
}

// wasReleased reports whether the ledger knows the hold, and that it was released.
func wasReleased(ctx context.Context, l *ledger.Ledger, id string) (bool, error) {
	h, err := l.HoldOf(ctx, id)
	if errors.Is(err, ledger.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, ledgerError(err)
	}
	return h.State == hold.Released, nil
}

// holdRow is a hold as a database has it.
func (c *Curfew) holdRow(s ledger.SealedHold) (hold.Row, error) {
	h, err := c.opened(s)
	if err != nil {
		return hold.Row{}, err
	}
	text, err := json.Marshal(h.Conditions)
	return hold.Row{ID: h.ID, Name: h.Name, Relation: h.Relation, Conditions: string(text)}, err
}

// adoptHold takes a hold into the ledger that a database has.
func (c *Curfew) adoptHold(ctx context.Context, l *ledger.Ledger, database string, r hold.Row) error {
	keys, err := c.keys()
	if err != nil {
		return err
	}
	h := hold.Hold{ID: r.ID, Name: r.Name, Reason: "adopted from database " + database, Relation: r.Relation, AskedBy: c.actor}
	if err := json.Unmarshal([]byte(r.Conditions), &h.Conditions); err != nil || hold.CheckConditions(h.Conditions) != nil {
		return fail(KindRefused, "look at it in curfew's table of holds there", "the conditions of hold %s in database %s cannot be read", r.Name, database)
	}
	if !h.OnSubject() {
		h.Database = database
	}
	switch other, err := l.HoldNamed(ctx, h.Name); {
	case err == nil && other.ID != h.ID: // the name was given anew since
		h.Name += "." + h.ID[:min(8, len(h.ID))]
	case err != nil && !errors.Is(err, ledger.ErrNotFound):
		return ledgerError(err)
	}
	text, err := json.Marshal(h.Conditions)
	if err != nil {
		return err
	}
	return ledgerError(l.AdoptHold(ctx, ledger.SealedHold{Hold: h, Columns: h.Columns(), Sealed: keys.Seal(text, sealOf(h.ID))}, database))
}

// checkHolds compares the holds that a database has with what the ledger says of them.
func (c *Curfew) checkHolds(l *ledger.Ledger, p *policy.Policy) func(context.Context, []hold.Row) error {
	return func(ctx context.Context, have []hold.Row) error {
		want, err := l.WantedHolds(ctx, p.Database)
		if err != nil {
			return ledgerError(err)
		}
		var failed error
		err = hold.Compare(p.Database, p.Subjects(), want, have, func(id string) bool {
			released, err := wasReleased(ctx, l, id)
			failed = errors.Join(failed, err)
			return released
		})
		return errors.Join(failed, err)
	}
}

const (
	// holdPatience is how long who places a hold is left to finish, before a process that waits for it does.
	holdPatience = 2 * time.Second
	// holdWait is how long a batch waits for a hold that is being placed.
	holdWait = 10 * time.Second
)

// awaitHolds waits until no hold is pending in the policy's database; when that takes long, it sees to it itself.
func (c *Curfew) awaitHolds(ctx context.Context, l *ledger.Ledger, p *policy.Policy) error {
	for began, tried := time.Now(), false; ; {
		pending, err := holdPending(ctx, l, p)
		if err != nil || pending == nil {
			return err
		}
		if time.Since(began) > holdWait {
			return pending
		}
		if time.Since(began) > holdPatience && !tried {
			tried = true
			if _, err := c.settleHolds(ctx, l, p.Database, settleOptions{subjects: p.Subjects()}); err != nil {
				c.log.WarnContext(ctx, "hold_pending", "database", p.Database, "err", err)
			}
			continue
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return err
		}
	}
}

// holdPending is the hold that keeps batches from beginning in the policy's database, as an ErrPending; nil when there is none.
func holdPending(ctx context.Context, l *ledger.Ledger, p *policy.Policy) (pending, err error) {
	want, err := l.WantedHolds(ctx, p.Database)
	if err != nil {
		return nil, ledgerError(err)
	}
	for _, w := range want {
		if w.Pending(p.Subjects()) {
			return &hold.PendingError{Database: p.Database, Name: w.Name, Releasing: w.Here == hold.Releasing}, nil
		}
	}
	return nil, nil
}

// holdsAgree ends a run whose database does not have the holds that the ledger says it has, before anything is changed.
func (w *work) holdsAgree(ctx context.Context) error {
	if w.run.Mode == string(policy.Shadow) {
		return nil
	}
	if w.remote != nil { // its pool cannot be told of holds: while there is one to tell, it gets no work
		return w.noHoldPending(ctx)
	}
	db, err := w.c.database(ctx, w.p.Database)
	if err != nil {
		return err
	}
	check := w.c.checkHolds(w.l, w.p)
	err = db.CheckHolds(ctx, check)
	if errors.Is(err, hold.ErrPending) {
		if err = w.c.awaitHolds(ctx, w.l, w.p); err == nil {
			err = db.CheckHolds(ctx, check)
		}
	}
	switch {
	case errors.Is(err, hold.ErrStale):
		return w.fail(ctx, "holds_stale", err)
	case errors.Is(err, hold.ErrPending):
		return pendingError(err)
	case err != nil:
		return targetError(w.p.Database, err)
	}
	return nil
}

// noHoldPending is an error while a hold is pending in the run's database.
func (w *work) noHoldPending(ctx context.Context) error {
	pending, err := holdPending(ctx, w.l, w.p)
	if err == nil && pending != nil {
		err = pendingError(pending)
	}
	return err
}

func pendingError(err error) error {
	return &Error{Kind: KindUnreachable, Err: err, Hint: "curfew hold list shows what is pending; no row was changed"}
}

// settleEvery is how often a service looks for holds that somebody left unfinished.
const settleEvery = 5 * time.Second

// watchHolds goes on with holds whose placing or release was left unfinished: its process died, or a database was out of reach.
func (e *engine) watchHolds(ctx context.Context, beat func()) error {
	waits := map[string]int{} // rounds to leave a database alone that could not be settled
	for {
		databases, err := e.l.PendingHolds(ctx)
		if err != nil {
			return err
		}
		for _, name := range databases {
			conf, ok := e.c.file.Databases[name]
			if !ok || conf.Workers != nil {
				continue
			}
			if waits[name]--; waits[name] > 0 {
				continue
			}
			if _, err := e.c.settleHolds(ctx, e.l, name, settleOptions{}); err != nil && ctx.Err() == nil {
				e.c.log.WarnContext(ctx, "hold_pending", "database", name, "err", err)
				waits[name] = 12
			}
		}
		beat()
		if pause(ctx, settleEvery) != nil {
			return nil
		}
	}
}

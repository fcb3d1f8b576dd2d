package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"curfew.dev/curfew/internal/hold"
)

// The actions of legal holds in the audit log. Values that a hold compares are in none of them.
const (
	ActionHoldPlacing   = "hold_placing"
	ActionHoldPlaced    = "hold_placed"
	ActionHoldReleasing = "hold_releasing"
	ActionHoldReleased  = "hold_released"
	ActionHoldAdopted   = "hold_adopted"
)

// ErrHoldReleased says that a hold was released, or is being released, and is not placed again under its name.
var ErrHoldReleased = errors.New("the hold was released")

// SealedHold is a hold whose conditions are sealed: the ledger keeps no values in the clear.
type SealedHold struct {
	hold.Hold // without Conditions
	Columns   []string
	Sealed    []byte
}

const holdColumns = `id, name, reason, state, database, relation, columns, conditions, asked_at, asked_by, placed_at, release_reason, released_by, released_at`

func scanHold(row scanner) (h SealedHold, err error) {
	var columns string
	err = row.Scan(&h.ID, &h.Name, &h.Reason, &h.State, &h.Database, &h.Relation, &columns, &h.Sealed, (*stamp)(&h.AskedAt), &h.AskedBy,
		(*stamp)(&h.PlacedAt), &h.ReleaseReason, &h.ReleasedBy, (*stamp)(&h.ReleasedAt))
	if columns != "" {
		h.Columns = strings.Split(columns, ",")
	}
	return h, err
}

// PlaceHold records that a hold is being placed in these databases. From then on no batch begins there until HoldDone has said of
// each that it has the hold. A hold of that name that is there already is returned instead, unchanged: the caller compares.
func (l *Ledger) PlaceHold(ctx context.Context, h SealedHold, databases []string) (found SealedHold, fresh bool, err error) {
	err = l.tx(ctx, func(t *txn) error {
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		fresh, err = t.execOne(ctx, `INSERT INTO @legal_hold (id, name, reason, state, database, relation, columns, conditions, asked_at, asked_by)
			VALUES ($1, $2, $3, 'placing', $4, $5, $6, $7, $8, $9) ON CONFLICT (name) DO NOTHING`,
			h.ID, h.Name, text(h.Reason), h.Database, h.Relation, strings.Join(h.Columns, ","), h.Sealed, stamp(now), text(h.AskedBy))
		if err != nil {
			return err
		}
		if fresh {
			if err := t.audit(entry{actor: text(h.AskedBy), action: ActionHoldPlacing, body: holdBody(h, h.Reason, databases)}); err != nil {
				return err
			}
			if err := t.addCopies(ctx, h.ID, databases); err != nil {
				return err
			}
		}
		found, err = t.holdNamed(ctx, h.Name)
		return err
	})
	if err != nil {
		return SealedHold{}, false, fmt.Errorf("place hold %s: %w", h.Name, err)
	}
	return found, fresh, nil
}

// holdAudit is what the audit log says of a hold.
type holdAudit struct {
	Hold      string   `json:"hold"`
	Database  string   `json:"database,omitempty"`
	Relation  string   `json:"relation"`
	Columns   []string `json:"columns,omitempty"`
	Databases []string `json:"databases,omitempty"`
	Reason    string   `json:"reason,omitempty"`
}

func holdBody(h SealedHold, reason string, databases []string) holdAudit {
	return holdAudit{h.Name, h.Database, h.Relation, h.Columns, databases, text(reason)}
}

func (t *txn) holdNamed(ctx context.Context, name string) (SealedHold, error) {
	h, err := scanHold(t.queryRow(ctx, `SELECT `+holdColumns+` FROM @legal_hold WHERE name = $1 {lock}`, name))
	if errors.Is(err, sql.ErrNoRows) {
		return h, fmt.Errorf("%w: hold %s", ErrNotFound, name)
	}
	return h, err
}

func (t *txn) addCopies(ctx context.Context, id string, databases []string) error {
	for _, db := range databases {
		if _, err := t.exec(ctx, `INSERT INTO @hold_copy (hold, database, state) VALUES ($1, $2, 'placing') ON CONFLICT (hold, database) DO NOTHING`, id, db); err != nil {
			return err
		}
	}
	return nil
}

// ExtendHold records that a hold is being placed in databases that it was not meant for before, such as one that has come into
// the policy file since. A hold that is being released is left as it is.
func (l *Ledger) ExtendHold(ctx context.Context, name string, databases []string) error {
	err := l.tx(ctx, func(t *txn) error {
		h, err := t.holdNamed(ctx, name)
		if err != nil || h.State == hold.Releasing || h.State == hold.Released {
			return err
		}
		if err := t.addCopies(ctx, h.ID, databases); err != nil {
			return err
		}
		return t.settleHold(ctx, h)
	})
	if err != nil {
		return fmt.Errorf("extend hold %s: %w", name, err)
	}
	return nil
}

// ReleaseHold records that a hold is being released. Its rows stay until HoldDone has said of each database that its copy is gone.
func (l *Ledger) ReleaseHold(ctx context.Context, name, actor, reason string) error {
	err := l.tx(ctx, func(t *txn) error {
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		h, err := t.holdNamed(ctx, name)
		if err != nil || h.State == hold.Releasing || h.State == hold.Released {
			return err
		}
		if _, err := t.exec(ctx, `UPDATE @legal_hold SET state = 'releasing', release_reason = $1, released_by = $2, released_at = $3 WHERE id = $4`,
			text(reason), text(actor), stamp(now), h.ID); err != nil {
			return err
		}
		if _, err := t.exec(ctx, `UPDATE @hold_copy SET state = 'releasing' WHERE hold = $1`, h.ID); err != nil {
			return err
		}
		h.State, h.ReleasedBy, h.ReleaseReason = hold.Releasing, actor, reason
		if err := t.audit(entry{actor: text(actor), action: ActionHoldReleasing, body: holdBody(h, reason, nil)}); err != nil {
			return err
		}
		return t.settleHold(ctx, h)
	})
	if err != nil {
		return fmt.Errorf("release hold %s: %w", name, err)
	}
	return nil
}

// HoldDone records that a database has come to what its ledger wanted of a hold: state is what that was, Placing or Releasing.
// What has changed since is left as it is.
func (l *Ledger) HoldDone(ctx context.Context, name, database string, was hold.State) error {
	done := map[hold.State]hold.State{hold.Placing: hold.InForce, hold.Releasing: hold.Released}[was]
	err := l.tx(ctx, func(t *txn) error {
		h, err := t.holdNamed(ctx, name) // locks it: two databases that are done at once see each other
		if err != nil {
			return err
		}
		moved, err := t.execOne(ctx, `UPDATE @hold_copy SET state = $1 WHERE hold = $2 AND database = $3 AND state = $4`, string(done), h.ID, database, string(was))
		if err != nil || !moved {
			return err
		}
		return t.settleHold(ctx, h)
	})
	if err != nil {
		return fmt.Errorf("hold %s in database %s: %w", name, database, err)
	}
	return nil
}

// settleHold brings a hold's own state to what those of its copies add up to.
func (t *txn) settleHold(ctx context.Context, h SealedHold) error {
	var pending int
	if err := t.queryRow(ctx, `SELECT count(*) FROM @hold_copy WHERE hold = $1 AND state IN ('placing', 'releasing')`, h.ID).Scan(&pending); err != nil {
		return err
	}
	var state hold.State
	action, actor, reason := "", h.AskedBy, h.Reason
	switch {
	case h.State == hold.Placing && pending == 0:
		state, action = hold.InForce, ActionHoldPlaced
	case h.State == hold.InForce && pending > 0:
		state, action = hold.Placing, ActionHoldPlacing
	case h.State == hold.Releasing && pending == 0:
		state, action, actor, reason = hold.Released, ActionHoldReleased, h.ReleasedBy, h.ReleaseReason
	default:
		return nil
	}
	now, err := t.clock(ctx)
	if err != nil {
		return err
	}
	placed := h.PlacedAt
	if state == hold.InForce && placed.IsZero() {
		placed = now
	}
	if _, err := t.exec(ctx, `UPDATE @legal_hold SET state = $1, placed_at = $2 WHERE id = $3`, string(state), stamp(placed), h.ID); err != nil {
		return err
	}
	return t.audit(entry{actor: text(actor), action: action, body: holdBody(h, reason, nil)})
}

// AdoptHold takes a hold into the ledger that a database has and the ledger does not know: it was restored to an older state.
func (l *Ledger) AdoptHold(ctx context.Context, h SealedHold, database string) error {
	err := l.tx(ctx, func(t *txn) error {
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		fresh, err := t.execOne(ctx, `INSERT INTO @legal_hold (id, name, reason, state, database, relation, columns, conditions, asked_at, asked_by, placed_at)
			VALUES ($1, $2, $3, 'in_force', $4, $5, $6, $7, $8, $9, $8) ON CONFLICT (id) DO NOTHING`,
			h.ID, h.Name, text(h.Reason), h.Database, h.Relation, strings.Join(h.Columns, ","), h.Sealed, stamp(now), text(h.AskedBy))
		if err != nil {
			return err
		}
		if _, err := t.exec(ctx, `INSERT INTO @hold_copy (hold, database, state) VALUES ($1, $2, 'in_force') ON CONFLICT (hold, database) DO NOTHING`, h.ID, database); err != nil || !fresh {
			return err
		}
		return t.audit(entry{actor: text(h.AskedBy), action: ActionHoldAdopted, body: holdBody(h, h.Reason, []string{database})})
	})
	if err != nil {
		return fmt.Errorf("adopt hold %s: %w", h.Name, err)
	}
	return nil
}

// WantedHolds is what the ledger says about the holds of a database: all that are not released.
func (l *Ledger) WantedHolds(ctx context.Context, database string) ([]hold.Wanted, error) {
	rows, err := l.query(ctx, `SELECT h.id, h.name, h.relation, h.state, COALESCE(c.state, '') FROM @legal_hold h
		LEFT JOIN @hold_copy c ON c.hold = h.id AND c.database = $1 WHERE h.state <> 'released' ORDER BY h.name`, database)
	if err != nil {
		return nil, fmt.Errorf("read the holds: %w", err)
	}
	all, err := collect(rows, func(row scanner) (w hold.Wanted, err error) {
		var relation string
		err = row.Scan(&w.ID, &w.Name, &relation, &w.Hold, &w.Here)
		w.Subject = relation == hold.AnyTable
		return w, err
	})
	if err != nil {
		return nil, fmt.Errorf("read the holds: %w", err)
	}
	return all, nil
}

// Holds lists the holds by name, released ones too if asked for, with their copies.
func (l *Ledger) Holds(ctx context.Context, released bool) ([]SealedHold, error) {
	return l.holds(ctx, `($1 = 1 OR state <> 'released')`, boolean(released))
}

// HoldNamed gives one hold. One that is not there is ErrNotFound.
func (l *Ledger) HoldNamed(ctx context.Context, name string) (SealedHold, error) {
	return l.oneHold(ctx, `name = $1`, name)
}

// HoldOf gives the hold with an id. One that is not there is ErrNotFound.
func (l *Ledger) HoldOf(ctx context.Context, id string) (SealedHold, error) {
	return l.oneHold(ctx, `id = $1`, id)
}

func (l *Ledger) oneHold(ctx context.Context, where, arg string) (SealedHold, error) {
	all, err := l.holds(ctx, where, arg)
	if err == nil && len(all) == 0 {
		err = fmt.Errorf("%w: no such hold", ErrNotFound)
	}
	if err != nil {
		return SealedHold{}, err
	}
	return all[0], nil
}

func (l *Ledger) holds(ctx context.Context, where string, arg any) ([]SealedHold, error) {
	rows, err := l.query(ctx, `SELECT `+holdColumns+` FROM @legal_hold WHERE `+where+` ORDER BY name`, arg)
	if err != nil {
		return nil, fmt.Errorf("read the holds: %w", err)
	}
	all, err := collect(rows, scanHold)
	if err != nil {
		return nil, fmt.Errorf("read the holds: %w", err)
	}
	for i := range all {
		rows, err := l.query(ctx, `SELECT database, state FROM @hold_copy WHERE hold = $1 ORDER BY database`, all[i].ID)
		if err != nil {
			return nil, fmt.Errorf("read the holds: %w", err)
		}
		all[i].Copies, err = collect(rows, func(row scanner) (c hold.Copy, err error) {
			err = row.Scan(&c.Database, &c.State)
			return c, err
		})
		if err != nil {
			return nil, fmt.Errorf("read the holds: %w", err)
		}
	}
	return all, nil
}

// PendingHolds lists the databases in which a hold is left to be placed or released.
func (l *Ledger) PendingHolds(ctx context.Context) ([]string, error) {
	rows, err := l.query(ctx, `SELECT DISTINCT database FROM @hold_copy WHERE state IN ('placing', 'releasing') ORDER BY database`)
	if err != nil {
		return nil, fmt.Errorf("read the holds: %w", err)
	}
	return collect(rows, func(row scanner) (name string, err error) {
		err = row.Scan(&name)
		return name, err
	})
}

// boolean is a flag as both databases compare it.
func boolean(b bool) int {
	if b {
		return 1
	}
	return 0
}

package curfew

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/hold"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/internal/web"
	"curfew.dev/curfew/policy"
)

// HoldRequest asks for a legal hold: on the rows of one table that meet all conditions (Where with Policy, or with Database and
// Table), or on a data subject, wherever policies name one.
type HoldRequest struct {
	Name, Reason    string
	Policy          string // whose table it is
	Database, Table string
	Where           []hold.Condition
	Subject         string
	Actor           string // default: who runs this process
}

// Condition reads column=value.
func Condition(text string) (hold.Condition, error) {
	c, err := hold.ParseCondition(text)
	if err != nil {
		return c, &Error{Kind: KindUsage, Err: err, Hint: "for example patron_id=4711; give several to hold only rows that meet all of them"}
	}
	return c, nil
}

// PlaceHold places a legal hold. It is in force when this returns without an error: the batches in flight are waited for, and every
// later one sees it. With an error of KindUnreachable it is not in force in the databases of Pending; nothing is changed there until
// it is, and asking again under the same name goes on with it.
func (c *Curfew) PlaceHold(ctx context.Context, req HoldRequest) (api.Hold, error) {
	h, err := c.asked(req)
	if err != nil {
		return api.Hold{}, err
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return api.Hold{}, err
	}
	keys, err := c.keys()
	if err != nil {
		return api.Hold{}, err
	}
	databases := []string{h.Database}
	if h.OnSubject() {
		if databases = c.subjectDatabases(); len(databases) == 0 {
			return api.Hold{}, fail(KindUsage, "write subject: COLUMN under a policy, or hold rows with --policy and --where", "no policy of %s names a data subject", c.fileName())
		}
	}
	fresh := false
	known, err := l.HoldNamed(ctx, h.Name)
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return api.Hold{}, ledgerError(err)
	}
	if err != nil {
		if err := c.fits(ctx, h); err != nil {
			return api.Hold{}, err
		}
		text, err := json.Marshal(h.Conditions)
		if err != nil {
			return api.Hold{}, err
		}
		sealed := ledger.SealedHold{Hold: h, Columns: h.Columns(), Sealed: keys.Seal(text, sealOf(h.ID))}
		if known, fresh, err = l.PlaceHold(ctx, sealed, databases); err != nil {
			return api.Hold{}, ledgerError(err)
		}
	}
	if err := c.sameHold(known, h); err != nil {
		return api.Hold{}, err
	}
	if !fresh { // what an earlier try placed may lack a database that is in the file now
		if err := l.ExtendHold(ctx, h.Name, databases); err != nil {
			return api.Hold{}, ledgerError(err)
		}
	}
	hook("hold_recorded")
	return c.finishHold(ctx, l, h.Name)
}

// asked is the hold that a request asks for.
func (c *Curfew) asked(req HoldRequest) (hold.Hold, error) {
	usage := func(hint, format string, args ...any) (hold.Hold, error) {
		return hold.Hold{}, fail(KindUsage, hint, format, args...)
	}
	h := hold.Hold{ID: strings.ToLower(rand.Text()), Name: req.Name, Reason: strings.TrimSpace(req.Reason), State: hold.Placing, AskedBy: req.Actor}
	if h.AskedBy == "" {
		h.AskedBy = c.actor
	}
	if err := hold.CheckName(h.Name); err != nil {
		return usage("a docket number makes a good name; a person's name does not, as it is shown everywhere", "%w", err)
	}
	if h.Reason == "" {
		return usage("say who asked for it, and why: --reason \"court order 12 C 345/26\"", "a hold needs a reason")
	}
	rows := req.Policy != "" || req.Database != "" || req.Table != "" || len(req.Where) > 0
	switch {
	case rows == (req.Subject != ""):
		return usage("--policy POLICY --where column=value, or --database DATABASE --table TABLE --where column=value, or --subject VALUE",
			"a hold is on the rows of one table or on a data subject: one of both")
	case req.Subject != "":
		h.Relation, h.Conditions = hold.AnyTable, []hold.Condition{{Value: req.Subject}}
	case req.Policy != "" && (req.Database != "" || req.Table != ""):
		return usage("leave --database and --table out", "the policy says which table it is")
	case req.Policy != "":
		p, err := c.policy(req.Policy)
		if err != nil {
			return hold.Hold{}, err
		}
		h.Database, h.Relation, h.Conditions = p.Database, p.Table, req.Where
	case req.Database == "" || req.Table == "":
		return usage("or give --policy, which has both", "a table is named by --database and --table")
	default:
		if _, ok := c.file.Databases[req.Database]; !ok {
			_, err := c.databaseConfig(req.Database)
			return hold.Hold{}, err
		}
		h.Database, h.Relation, h.Conditions = req.Database, req.Table, req.Where
	}
	if h.Relation == hold.AnyTable && req.Subject == "" {
		return usage("name the table", "a table cannot be called %q here", h.Relation)
	}
	if err := hold.CheckConditions(h.Conditions); err != nil {
		return usage("for example --where patron_id=4711", "%w", err)
	}
	return h, nil
}

// sealOf binds the sealed conditions to their hold.
func sealOf(id string) []byte { return []byte("hold\x00" + id) }

// opened is a hold with its conditions in the clear.
func (c *Curfew) opened(s ledger.SealedHold) (hold.Hold, error) {
	keys, err := c.keys()
	if err != nil {
		return hold.Hold{}, err
	}
	h := s.Hold
	text, err := keys.Open(s.Sealed, sealOf(h.ID))
	if err == nil {
		err = json.Unmarshal(text, &h.Conditions)
	}
	if err != nil {
		return h, &Error{Kind: KindConfig, Err: fmt.Errorf("the conditions of hold %s cannot be read: %w", h.Name, err), Hint: "give this command the installation's key that the hold was placed with"}
	}
	return h, nil
}

// sameHold refuses to take one hold for another.
func (c *Curfew) sameHold(known ledger.SealedHold, h hold.Hold) error {
	was, err := c.opened(known)
	if err != nil {
		return err
	}
	switch {
	case known.State == hold.Released || known.State == hold.Releasing:
		return &Error{Kind: KindRefused, Err: fmt.Errorf("%w: hold %s, on %s", ledger.ErrHoldReleased, known.Name, known.ReleasedAt.UTC().Format("2006-01-02")),
			Hint: "a name is given once, so that the audit log means one hold by it: take another name"}
	case !was.Same(h):
		return fail(KindRefused, "curfew hold list shows it; take another name", "there is a hold %s already, and it holds something else", h.Name)
	}
	return nil
}

// subjectDatabases are the databases in which policies know data subjects.
func (c *Curfew) subjectDatabases() []string {
	return slices.DeleteFunc(c.DatabaseNames(), func(name string) bool { return !c.knowsSubjects(name) })
}

func (c *Curfew) knowsSubjects(database string) bool {
	return slices.ContainsFunc(c.file.Policies, func(p *policy.Policy) bool { return p.Database == database && p.Subjects() })
}

// fits refuses a hold that could not be applied: it would stop every run. A database that is out of reach is not asked.
func (c *Curfew) fits(ctx context.Context, h hold.Hold) error {
	look := func(database, table, subject string) error {
		if c.file.Databases[database].Workers != nil {
			return nil
		}
		db, err := c.database(ctx, database)
		if err != nil {
			return nil
		}
		t, err := db.Inspect(ctx, table)
		if target.Transient(err) {
			return nil
		}
		if err == nil {
			err = target.FitHold(t, h, subject)
		}
		if err != nil {
			return &Error{Kind: KindUsage, Err: err, Hint: "nothing was placed; a column is written exactly as the database spells it"}
		}
		return nil
	}
	if !h.OnSubject() {
		return look(h.Database, h.Relation, "")
	}
	for _, p := range c.file.Policies {
		if p.Subject != "" {
			if err := look(p.Database, p.Table, p.Subject); err != nil {
				return err
			}
		}
		for _, child := range p.CascadeSubjects {
			if child.Subject != "" {
				if err := look(p.Database, child.Table, child.Subject); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// finishHold brings every database of a hold to what the ledger wants of it.
func (c *Curfew) finishHold(ctx context.Context, l *ledger.Ledger, name string) (api.Hold, error) {
	h, err := l.HoldNamed(ctx, name)
	if err != nil {
		return api.Hold{}, ledgerError(err)
	}
	var causes []string
	for _, database := range h.Pending() {
		if _, err := c.settleHolds(ctx, l, database, settleOptions{}); err != nil {
			causes = append(causes, err.Error())
			if hint := HintOf(err); hint != "" {
				causes = append(causes, hint)
			}
		}
	}
	if h, err = l.HoldNamed(ctx, name); err != nil {
		return api.Hold{}, ledgerError(err)
	}
	wire, err := c.wireHold(h, true)
	if err != nil {
		return wire, err
	}
	if pending := h.Pending(); len(pending) > 0 {
		what, again := "NOT in force in", "curfew hold place with the same words goes on with it"
		if h.State == hold.Releasing {
			what, again = "not yet released in", "curfew hold release "+name+" goes on with it"
		}
		return wire, fail(KindUnreachable, again+", and so does curfew serve; until then nothing is changed there", "hold %s is %s %s: %s", name, what, strings.Join(pending, ", "), strings.Join(causes, "; "))
	}
	return wire, nil
}

// ReleaseHold releases a hold: its rows go at the next run that finds them due. Of a hold that is released already it changes nothing.
func (c *Curfew) ReleaseHold(ctx context.Context, name, actor, reason string) (api.Hold, error) {
	if c.noLedgerYet() {
		return api.Hold{}, fail(KindNotFound, "curfew hold list --all lists them", "there is no hold %s", name)
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return api.Hold{}, err
	}
	if actor == "" {
		actor = c.actor
	}
	switch err := l.ReleaseHold(ctx, name, actor, reason); {
	case errors.Is(err, ledger.ErrNotFound):
		return api.Hold{}, fail(KindNotFound, "curfew hold list --all lists them", "there is no hold %s", name)
	case err != nil:
		return api.Hold{}, ledgerError(err)
	}
	hook("hold_release_recorded")
	return c.finishHold(ctx, l, name)
}

// Holds lists the holds by name; released ones with all. Their values are shown with values.
func (c *Curfew) Holds(ctx context.Context, all, values bool) ([]api.Hold, error) {
	holds := []api.Hold{}
	if c.noLedgerYet() {
		return holds, nil
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return nil, err
	}
	found, err := l.Holds(ctx, all)
	if err != nil {
		return nil, ledgerError(err)
	}
	for _, s := range found {
		h, err := c.wireHold(s, values)
		if err != nil {
			return nil, err
		}
		holds = append(holds, h)
	}
	return holds, nil
}

// Holds lists the holds.
func (f front) Holds(ctx context.Context, all, values bool) ([]api.Hold, error) {
	return f.current().c.Holds(ctx, all, values)
}

// PlaceHold places a hold that was asked for over HTTP.
func (f front) PlaceHold(ctx context.Context, r web.HoldRequest) (api.Hold, error) {
	return f.current().c.PlaceHold(ctx, HoldRequest{Name: r.Name, Reason: r.Reason, Policy: r.Policy, Database: r.Database, Table: r.Table, Where: r.Where, Subject: r.Subject,
		Actor: "token:" + r.Token})
}

// ReleaseHold releases a hold.
func (f front) ReleaseHold(ctx context.Context, name, actor, reason string) (api.Hold, error) {
	return f.current().c.ReleaseHold(ctx, name, "token:"+actor, reason)
}

// wireHold is a hold as it is shown.
func (c *Curfew) wireHold(s ledger.SealedHold, values bool) (api.Hold, error) {
	h := api.Hold{Name: s.Name, State: string(s.State), Reason: s.Reason, Database: s.Database, Where: list(s.Columns), Databases: []string{}, Pending: list(s.Pending()),
		AskedBy: s.AskedBy, AskedAt: s.AskedAt.UTC(), PlacedAt: orNil(s.PlacedAt), ReleasedBy: s.ReleasedBy, ReleasedAt: orNil(s.ReleasedAt), ReleaseReason: s.ReleaseReason}
	if !s.OnSubject() {
		h.Table = s.Relation
	}
	for _, copied := range s.Copies {
		h.Databases = append(h.Databases, copied.Database)
	}
	if !values {
		return h, nil
	}
	full, err := c.opened(s)
	if err != nil {
		return h, err
	}
	h.Where = []string{}
	for _, cond := range full.Conditions {
		if cond.Column == "" {
			h.Subject = cond.Value
		} else {
			h.Where = append(h.Where, cond.Column+"="+cond.Value)
		}
	}
	return h, nil
}

// ReplayHolds brings a database to the holds of the ledger, whatever either was restored to. With adopt, holds that the database has
// and the ledger does not know are taken into the ledger; without, they are an error, and nothing is changed.
func (c *Curfew) ReplayHolds(ctx context.Context, database string, adopt bool) (api.HoldReplay, error) {
	if _, err := c.databaseConfig(database); err != nil {
		return api.HoldReplay{}, err
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return api.HoldReplay{}, err
	}
	return c.settleHolds(ctx, l, database, settleOptions{replay: true, adopt: adopt})
}

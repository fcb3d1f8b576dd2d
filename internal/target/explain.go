package target

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"

	"curfew.dev/curfew/policy"
)

// Answers about one row, in the order in which a batch asks. A question that no longer matters is not asked.
type Answers struct {
	Row         string // the row's keyed hash, as receipts and reports name it
	Exists      bool
	Fate        *Fate // of a row that is not there, when a receipt tells it
	InScope     bool
	Done        bool       // set or anonymised already: every column that lasts has its value
	Null        bool       // the trigger is NULL
	Readable    bool       // the trigger is an instant
	Instant     *time.Time // of the trigger; nil when it is none, or infinite
	DueAt       *time.Time // from then on
	Due         bool
	Implausible bool // before implausible_before, which keeps the row
	Guarded     bool
	Held        bool
	HeldBy      []string // names of the holds
	Keeping     []string // constraints whose child rows keep the row
	Unseen      []string // child tables that would keep the row by a row of theirs, and that our role may not read
	Along       int64    // rows of other tables that would go along
	Choice      string   // what the data subject chose: one of policy's words, or "none" or "unlisted"; "" where the policy does not ask
	Last        bool     // keep_last keeps the row
	// Of a policy with stages: the due instant as passages have it, nil when there is none, and what is recorded of the row.
	DueUS    *int64
	Passages []Passage
	// Faults are the questions that the database could not answer, and why in words that may be shown. The answer to such a
	// question means nothing.
	Faults map[Question]string
}

// A Question is one that can fail on its own: it asks with the policy's own SQL, or looks at other tables.
type Question string

// The questions.
const (
	AskScope    Question = "in_scope"
	AskTrigger  Question = "trigger"
	AskDue      Question = "due"
	AskGuard    Question = "guard"
	AskChildren Question = "children"
)

// ErrKeyShape says that the values given are no key of the table.
var ErrKeyShape = errors.New("not a key of this table")

// Explain looks at one row, named by the values of its key in order. It changes nothing.
func (j *Job) Explain(ctx context.Context, key []string) (*Answers, error) {
	keys, err := j.parseKey(key)
	if err != nil {
		return nil, err
	}
	x := &execution{j: j, c: j.db.SQL}
	if err = x.obeyHolds(ctx); err != nil && classify(err) != classUndefined { // a database without curfew's tables has no holds to obey
		return nil, redact(err)
	}
	one, err := x.only(ctx, keys, nil)
	if err != nil && j.db.Engine == Postgres && strings.HasPrefix(faultOf(err).Code, "22") {
		return nil, fmt.Errorf("%w: a value cannot be read as its column's type", ErrKeyShape)
	}
	if err != nil {
		return nil, redact(err)
	}
	a := &Answers{Exists: len(one) > 0, Faults: map[Question]string{}}
	if !a.Exists {
		return a, redact(j.explainGone(ctx, keys, a))
	}
	one = one[:1]
	h := j.rowHash(one[0]) // as the database writes the key: that is what receipts hash
	a.Row = fmt.Sprintf("%x", h[:])
	steps := []func() error{
		func() error { return x.ask(ctx, a, AskScope, &a.InScope, one, j.inWhere) },
		func() error {
			open, err := x.only(ctx, one, j.undone)
			a.Done = len(open) == 0
			return err
		},
		func() error { return x.ask(ctx, a, AskDue, &a.Due, one, func(q *query) { q.add(" AND "); j.isDue(q) }) },
		func() error { return x.explainGuards(ctx, one, a) }, // before the trigger: a choice may set when it is due
		func() error { return x.explainTrigger(ctx, one, a) },
		func() error { return x.explainStages(ctx, one, a) },
		func() error {
			return x.explainHolds(ctx, one, a)
		},
		func() error { return a.failing(AskChildren, x.explainChildren(ctx, one, a)) },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return nil, redact(err)
		}
	}
	return a, nil
}

// ask sets yes to whether the row meets the condition.
func (x *execution) ask(ctx context.Context, a *Answers, name Question, yes *bool, one []tuple, cond func(*query)) error {
	found, err := x.only(ctx, one, cond)
	*yes = len(found) == 1
	return a.failing(name, err)
}

// failing keeps an error that only spoils one answer, and returns one that spoils all.
func (a *Answers) failing(name Question, err error) error {
	switch classify(err) {
	case classNone:
		return nil
	case classCancelled, classConnection:
		return err
	}
	a.Faults[name] = redact(err).Error()
	return nil
}

// explainHolds finds out which holds keep the row.
func (x *execution) explainHolds(ctx context.Context, one []tuple, a *Answers) error {
	free, err := x.only(ctx, one, x.free)
	if a.Held = len(free) == 0; err != nil || !a.Held {
		return err
	}
	ids, names := x.holdNames()
	for _, id := range ids {
		y := x.under([]string{id})
		free, err := y.only(ctx, one, y.free)
		if err != nil {
			return err
		}
		if len(free) == 0 {
			a.HeldBy = append(a.HeldBy, names[id])
		}
	}
	return nil
}

func (x *execution) explainChildren(ctx context.Context, one []tuple, a *Answers) (err error) {
	t := newTally()
	kept, err := x.keptBy(ctx, one, t)
	if err != nil {
		return err
	}
	if x.j.family != nil && len(kept) == 0 {
		err = x.rehearseAlong(ctx, one, t, func(d *doomed) { a.Along = int64(d.n) })
		a.Held = a.Held || len(t.byOutcome["held"]) > 0
	}
	for _, r := range t.rows {
		a.Keeping = append(a.Keeping, r.reason)
	}
	for _, fk := range x.j.restricting {
		if !fk.ChildSelect && fk.Child != x.j.t.Label && len(a.Keeping) == 0 && !slices.Contains(a.Unseen, fk.Child) {
			a.Unseen = append(a.Unseen, fk.Child)
		}
	}
	if err != nil || x.j.family != nil {
		return err
	}
	a.Along, err = x.countCascade(ctx, one)
	return err
}

// explainGuards says which of the guards keeps the row.
func (x *execution) explainGuards(ctx context.Context, one []tuple, a *Answers) error {
	j := x.j
	free := false
	if err := x.ask(ctx, a, AskGuard, &free, one, j.unguarded); err != nil {
		return err
	}
	a.Guarded = !free
	if j.p.KeepLast != nil {
		if err := x.ask(ctx, a, AskGuard, &free, one, j.notLast); err != nil {
			return err
		}
		a.Last = !free
	}
	p := j.p.Privacy
	if p == nil {
		return nil
	}
	for _, c := range []struct {
		word   string
		values []policy.Value
	}{{policy.PrivacyNever, p.Never}, {policy.PrivacyDefault, p.Default}, {policy.PrivacyForever, p.Forever}} {
		if len(c.values) == 0 {
			continue
		}
		var yes bool
		if err := x.ask(ctx, a, AskGuard, &yes, one, func(q *query) { q.add(" AND "); j.chosen(q, c.values) }); err != nil {
			return err
		}
		if yes {
			a.Choice = c.word
			return nil
		}
	}
	var some bool
	err := x.ask(ctx, a, AskGuard, &some, one, func(q *query) { q.add(" AND ", j.choice(), " IS NOT NULL") })
	switch a.Choice = "none"; {
	case some && len(p.Default) > 0:
		a.Choice = "unlisted"
	case some:
		a.Choice = policy.PrivacyDefault
	}
	return err
}

// parseKey reads key values as a person types them. Where a value can be stored in two ways, as 7 and '7' can in SQLite,
// there is a key for each.
func (j *Job) parseKey(text []string) ([]tuple, error) {
	if len(text) != len(j.key) {
		return nil, fmt.Errorf("%w: it is (%s), %d values were given", ErrKeyShape, strings.Join(names(j.key), ", "), len(text))
	}
	keys := []tuple{make(tuple, len(text))}
	for i, s := range text {
		c := j.key[i]
		n, notInt := strconv.ParseInt(s, 10, 64)
		u, notUint := strconv.ParseUint(s, 10, 64)
		whole := strconv.FormatInt(n, 10)
		if notInt != nil {
			whole = strconv.FormatUint(u, 10)
		}
		v := value{textValue, s}
		switch {
		case c.Kind == KindInt && notInt != nil && notUint != nil:
			return nil, fmt.Errorf("%w: %s holds whole numbers", ErrKeyShape, c.Name)
		case j.db.Engine == Postgres && c.Kind == KindInt:
			v.s = whole
		case j.db.Engine == Postgres:
		case c.Kind == KindInt:
			v = value{intValue, whole}
		case c.Kind == KindBytes && j.db.Engine == MySQL:
			v.kind = bytesValue
		case c.Kind == KindAny && notInt == nil:
			for _, k := range keys {
				k = slices.Clone(k)
				k[i] = value{intValue, whole}
				keys = append(keys, k)
			}
		}
		for _, k := range keys {
			if k[i].s == "" {
				k[i] = v
			}
		}
	}
	return keys, nil
}

// explainTrigger says what instant the trigger denotes. Whether it is one at all is for the database to say, as it is in a run.
func (x *execution) explainTrigger(ctx context.Context, one []tuple, a *Answers) error {
	j, unreadable := x.j, false
	sql := j.trig.sql(j.d)
	if err := x.ask(ctx, a, AskTrigger, &unreadable, one, func(q *query) { q.add(" AND "); j.d.unreadable(q, sql, j.trig) }); err != nil {
		return err
	}
	if j.floor != nil {
		err := x.ask(ctx, a, AskTrigger, &a.Implausible, one, func(q *query) { q.add(" AND "); j.d.due(q, sql, j.trig, *j.floor) })
		if err != nil {
			return err
		}
	}
	a.Readable = !unreadable
	if len(a.Faults) > 0 && a.Faults[AskTrigger] != "" {
		return nil
	}
	return a.failing(AskTrigger, j.readTrigger(ctx, one[0], a))
}

// printed is the trigger as instantOf reads it.
func (j *Job) printed() string {
	x := j.trig.sql(j.d)
	switch {
	case j.trig.domain == instantDomain && j.db.Engine == Postgres:
		return "to_char(" + x + " AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US BC')"
	case j.trig.domain == wallDomain && j.db.Engine == Postgres:
		return "to_char(" + x + ", 'YYYY-MM-DD HH24:MI:SS.US BC')"
	case j.trig.bytes && j.db.Engine == Postgres:
		return "convert_from(" + x + ", 'LATIN1')"
	case j.db.Engine == Postgres:
		return "(" + x + ")::text"
	case j.db.Engine == MySQL && j.trig.column != nil && j.trig.column.Kind == KindFloat:
		return "CAST(" + x + " + 0e0 AS CHAR)" // a FLOAT by itself is printed with six digits
	case j.db.Engine == MySQL:
		return "CAST(" + x + " AS CHAR)"
	}
	return "+" + x // as it is: SQLite prints a REAL with fifteen digits
}

// readTrigger reads the trigger as the database prints it.
func (j *Job) readTrigger(ctx context.Context, k tuple, a *Answers) error {
	x := j.printed()
	q := newQuery(j.d).add("SELECT ", x, " FROM ", j.d.rows(j.t), " WHERE ")
	j.d.keyIn(q, j.key, []tuple{k})
	var text sql.NullString
	err := j.db.SQL.QueryRowContext(ctx, q.String(), q.args...).Scan(&text)
	if errors.Is(err, sql.ErrNoRows) {
		return nil // it went this moment
	}
	if err != nil {
		return err
	}
	if a.Null = !text.Valid; a.Null {
		return nil
	}
	at := j.trig.instantOf(text.String)
	if !a.Readable || at == nil {
		return nil
	}
	due := j.p.DueAt(*at)
	if a.Choice == policy.PrivacyNever {
		due = *at
	}
	a.Instant, a.DueAt = at, &due
	return nil
}

// instantOf reads a trigger as the database prints it. What is no instant, or one that time.Time does not reach, like infinity,
// is nil.
func (tr *trigger) instantOf(text string) *time.Time {
	var at time.Time
	switch tr.domain {
	case instantDomain, wallDomain:
		t, err := time.Parse("2006-01-02 15:04:05.999999", strings.TrimSuffix(text, " AD"))
		if err != nil {
			return nil
		}
		at = t
		if tr.domain == wallDomain {
			at = policy.WallFromUTC(t).Instant(tr.zone)
		}
	case dateDomain:
		d, err := policy.ParseDate(text)
		if err != nil {
			return nil
		}
		at = policy.DayOver(d, tr.zone)
	case numberDomain:
		n, ok := new(big.Rat).SetString(text)
		if !ok {
			return nil
		}
		if tr.unit == unitJulian {
			n.Sub(n, big.NewRat(24405875, 10)).Mul(n, new(big.Rat).SetInt64(86400*1e9))
		} else {
			n.Mul(n, new(big.Rat).SetInt64(unitNanos[tr.unit]))
		}
		ns := new(big.Int).Quo(n.Num(), n.Denom())
		s, rest := new(big.Int).DivMod(ns, big.NewInt(1e9), new(big.Int))
		if !s.IsInt64() || s.Int64() > 1<<37 || s.Int64() < -1<<37 {
			return nil
		}
		at = time.Unix(s.Int64(), rest.Int64()).UTC()
	default:
		t, err := policy.ParseInstant(text, tr.format, tr.zone)
		if err != nil {
			return nil
		}
		at = t
	}
	return &at
}

package target

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"curfew.dev/curfew/policy"
)

// Answers about one row, in the order in which a batch asks. A question that no longer matters is not asked.
type Answers struct {
	Row      string // the row's keyed hash, as receipts and reports name it
	Exists   bool
	InScope  bool
	Null     bool       // the trigger is NULL
	Readable bool       // the trigger is an instant
	Instant  *time.Time // of the trigger; nil when it is none, or infinite
	DueAt    *time.Time // from then on
	Due      bool
	Guarded  bool
	Held     bool
	Keeping  []string // constraints whose child rows keep the row
	Along    int64    // rows of other tables that would go along
}

// ErrKeyShape says that the values given are no key of the table.
var ErrKeyShape = errors.New("not a key of this table")

// Explain looks at one row, named by the values of its key in order. It changes nothing.
func (j *Job) Explain(ctx context.Context, key []string) (*Answers, error) {
	k, err := j.parseKey(key)
	if err != nil {
		return nil, err
	}
	h := j.rowHash(k)
	a := &Answers{Row: fmt.Sprintf("%x", h[:])}
	x := &execution{j: j, c: j.db.SQL}
	holds, err := x.readHolds(ctx)
	if err != nil && classify(err) != classUndefined {
		return nil, redact(err)
	}
	x.holds = holds
	one := []tuple{k}
	ask := func(cond func(*query)) bool {
		if err != nil && classify(err) != classUndefined {
			return false
		}
		var found []tuple
		found, err = x.only(ctx, one, cond)
		return len(found) == 1
	}
	err = nil
	if a.Exists = ask(nil); !a.Exists || err != nil {
		return a, redact(err)
	}
	a.InScope = ask(j.inScope)
	a.Due = ask(func(q *query) { q.add(" AND "); j.isDue(q) })
	a.Guarded = !ask(j.unguarded)
	a.Held = !ask(x.notHeld)
	if err != nil {
		return nil, redact(err)
	}
	if err := j.explainTrigger(ctx, k, a); err != nil {
		return nil, redact(err)
	}
	t := newTally()
	if _, err := x.keptBy(ctx, one, t); err != nil {
		return nil, redact(err)
	}
	for _, r := range t.rows {
		a.Keeping = append(a.Keeping, r.reason)
	}
	a.Along, err = x.countCascade(ctx, one)
	return a, redact(err)
}

// parseKey reads key values as a person types them.
func (j *Job) parseKey(text []string) (tuple, error) {
	if len(text) != len(j.key) {
		var names []string
		for _, c := range j.key {
			names = append(names, c.Name)
		}
		return nil, fmt.Errorf("%w: it is (%s), %d values were given", ErrKeyShape, strings.Join(names, ", "), len(text))
	}
	k := make(tuple, len(text))
	for i, s := range text {
		c := j.key[i]
		_, notInt := strconv.ParseInt(s, 10, 64)
		_, notUint := strconv.ParseUint(s, 10, 64)
		switch {
		case c.Kind == KindInt && notInt != nil && notUint != nil:
			return nil, fmt.Errorf("%w: %s holds whole numbers", ErrKeyShape, c.Name)
		case j.db.Engine == Postgres:
			k[i] = value{textValue, s}
		case c.Kind == KindInt, c.Kind == KindAny && notInt == nil:
			k[i] = value{intValue, s}
		case c.Kind == KindBytes && j.db.Engine == MySQL:
			k[i] = value{bytesValue, s}
		default:
			k[i] = value{textValue, s}
		}
	}
	return k, nil
}

// explainTrigger reads the trigger and says what instant it denotes.
func (j *Job) explainTrigger(ctx context.Context, k tuple, a *Answers) error {
	x := j.trig.sql(j.d)
	switch {
	case j.trig.domain == instantDomain && j.db.Engine == Postgres:
		x = "to_char(" + x + " AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US BC')"
	case j.trig.domain == wallDomain && j.db.Engine == Postgres:
		x = "to_char(" + x + ", 'YYYY-MM-DD HH24:MI:SS.US BC')"
	case j.trig.bytes && j.db.Engine == Postgres:
		x = "convert_from(" + x + ", 'LATIN1')"
	case j.db.Engine == Postgres:
		x = "(" + x + ")::text"
	case j.db.Engine == MySQL:
		x = "CAST(" + x + " AS CHAR)"
	default:
		x = "CAST(" + x + " AS TEXT)"
	}
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
	at, ok := j.trig.instantOf(text.String)
	a.Readable = ok
	if at == nil {
		return nil
	}
	due := j.p.DueAt(*at)
	a.Instant, a.DueAt = at, &due
	return nil
}

// instantOf reads a trigger as the database prints it. It reports false for what is no instant; an instant that time.Time
// does not reach, like infinity, is nil.
func (tr *trigger) instantOf(text string) (*time.Time, bool) {
	text = strings.TrimSpace(text)
	var at time.Time
	switch tr.domain {
	case instantDomain, wallDomain:
		t, err := time.Parse("2006-01-02 15:04:05.999999", strings.TrimSuffix(text, " AD"))
		if err != nil {
			return nil, !strings.HasPrefix(text, "0000-") && !strings.Contains(text, "-00")
		}
		at = t
		if tr.domain == wallDomain {
			at = policy.WallFromUTC(t).Instant(tr.zone)
		}
	case dateDomain:
		d, err := policy.ParseDate(text)
		if err != nil {
			return nil, !strings.Contains(text, "-00")
		}
		at = policy.DayOver(d, tr.zone)
	case numberDomain:
		n, ok := new(big.Rat).SetString(text)
		if !ok {
			return nil, false
		}
		if tr.unit == unitJulian {
			n.Sub(n, big.NewRat(24405875, 10)).Mul(n, new(big.Rat).SetInt64(86400*1e9))
		} else {
			n.Mul(n, new(big.Rat).SetInt64(unitNanos[tr.unit]))
		}
		ns := new(big.Int).Quo(n.Num(), n.Denom())
		s, rest := new(big.Int).DivMod(ns, big.NewInt(1e9), new(big.Int))
		if !s.IsInt64() || s.Int64() > 1<<37 || s.Int64() < -1<<37 {
			return nil, true
		}
		at = time.Unix(s.Int64(), rest.Int64()).UTC()
	default:
		t, err := policy.ParseInstant(text, tr.format, tr.zone)
		if err != nil {
			return nil, false
		}
		at = t
	}
	return &at, true
}

package target

import (
	"fmt"
	"math/big"
	"strconv"
	"time"

	"curfew.dev/curfew/policy"
)

func itoa(n int) string { return strconv.Itoa(n) }

// A domain says how the trigger's stored values denote instants, and so how they are compared.
type domain string

const (
	instantDomain domain = "instant" // timestamptz; TIMESTAMP on a UTC session
	wallDomain    domain = "wall"    // civil time in a declared zone
	dateDomain    domain = "date"    // a whole day in a declared zone
	numberDomain  domain = "number"  // a count of units since 1970, or a Julian day
	isoDomain     domain = "iso8601"
	compactDomain domain = "yyyymmddhhmmss"
)

const unitJulian = policy.Unit("julian_day")

// isoOffset matches the end of text that says its own offset; the text is already known to match policy.ISO8601Pattern,
// and to be longer than a bare date (whose "-05" would match too).
const isoOffset = "([Zz]|[+-][0-9]{2}(:?[0-9]{2})?)$"

// A trigger is the policy's clock bound to a column or expression of the live table.
type trigger struct {
	domain  domain
	column  *Column // nil for an expression
	expr    string
	zone    *time.Location
	unit    policy.Unit
	format  policy.Format
	whole   bool   // numbers: the column holds whole numbers only
	cast    string // numbers: the type a bound is cast to (PostgreSQL)
	bytes   bool   // compact text stored as bytes
	nulls   policy.NullRule
	indexed bool // an index leads with the column and can serve ranges in order
}

// castInt is the type of a bound compared with a whole-number column: one that an index on the column still serves.
func (tr *trigger) castInt() string {
	if tr.cast == "numeric" {
		return "numeric"
	}
	return "bigint"
}

// resolveTrigger binds the policy's trigger. The declaration was judged before (see Judge); what does not fit here all the
// same is an error, never a guess.
func resolveTrigger(p *policy.Policy, t *Table, s Server) (*trigger, error) {
	pt := p.Trigger
	tr := &trigger{expr: pt.Expr, unit: pt.Unit, format: pt.Format, nulls: pt.Null}
	if pt.Zone != "" {
		loc, err := time.LoadLocation(pt.Zone)
		if err != nil {
			return nil, fmt.Errorf("trigger zone %q: %w", pt.Zone, err)
		}
		tr.zone = loc
	}
	kind, declared := KindOther, ""
	if pt.Column != "" {
		c, ok := t.Column(pt.Column)
		if !ok {
			return nil, fmt.Errorf("table %s has no column %q", p.Table, pt.Column)
		}
		tr.column, kind, declared = &c, c.Kind, c.Type
		tr.indexed = leads(t, c.Name)
	}
	switch {
	case pt.Unit != "":
		tr.domain, tr.cast = numberDomain, "numeric"
		if kind == KindInt && pt.Unit != unitJulian {
			tr.whole, tr.cast = true, declared
		} else if kind == KindFloat {
			tr.cast = "double precision"
		}
	case pt.Format != "":
		tr.domain = domain(pt.Format)
		tr.bytes = kind == KindBytes
	case s.Engine == SQLite:
		if pt.Zone == "" {
			return nil, fmt.Errorf("SQLite has no time type: say unit or format for %q", pt.Column)
		}
		tr.domain, tr.format = isoDomain, policy.Format(isoDomain)
	case pt.Expr != "":
		tr.domain = map[string]domain{"timestamptz": instantDomain, "timestamp": wallDomain, "datetime": wallDomain, "date": dateDomain}[string(pt.Type)]
	default:
		tr.domain = map[Kind]domain{KindInstant: instantDomain, KindTime: wallDomain, KindDate: dateDomain}[kind]
	}
	if tr.domain == "" {
		return nil, fmt.Errorf("trigger of table %s: a %s cannot be read as a time; declare its unit or format", p.Table, declared)
	}
	if (tr.domain == wallDomain || tr.domain == dateDomain || tr.domain == compactDomain) && tr.zone == nil {
		return nil, fmt.Errorf("trigger of table %s: values without a zone need a declared zone", p.Table)
	}
	return tr, nil
}

// leads reports whether a usable index starts with the column.
func leads(t *Table, column string) bool {
	for _, ix := range t.Indexes {
		if ix.Ordered && ix.Valid && !ix.Partial && len(ix.Columns) > 0 && t.sameName(ix.Columns[0], column) {
			return true
		}
	}
	return false
}

// ordered reports whether pages may follow the trigger: its values are compared as stored, from an index.
func (tr *trigger) ordered() bool {
	switch tr.domain {
	case isoDomain, compactDomain:
		return false
	case numberDomain:
		return tr.indexed && tr.column.Kind != KindFloat
	default:
		return tr.indexed
	}
}

// unsorted reports whether the column's values have another order than the instants they stand for, so that no index can serve.
func (tr *trigger) unsorted() bool {
	return tr.domain == isoDomain || tr.domain == compactDomain || tr.column != nil && tr.column.Kind == KindFloat
}

// sql is the trigger as SQL text.
func (tr *trigger) sql(d dialect) string {
	if tr.column != nil {
		return d.ident(tr.column.Name)
	}
	return "(\n" + tr.expr + "\n)"
}

// A bound is one instant in every domain: a value is before the bound when its instant is strictly before bound.instant.
type bound struct {
	instant time.Time
	wall    policy.WallBound
	date    policy.Date
	zoned   bool // wall and date are set
}

func newBound(at time.Time, zone *time.Location) bound {
	b := bound{instant: at}
	if zone != nil {
		b.zoned = true
		b.wall = policy.WallCutoff(at, zone)
		b.date = policy.DateCutoff(at, zone)
	}
	return b
}

var unitNanos = map[policy.Unit]int64{"s": 1e9, "ms": 1e6, "us": 1e3, "ns": 1}

// exact is the bound as a count of units.
func (b bound) exact(u policy.Unit) *big.Rat {
	n := new(big.Int).Mul(big.NewInt(b.instant.Unix()), big.NewInt(1e9))
	n.Add(n, big.NewInt(int64(b.instant.Nanosecond())))
	r := new(big.Rat).SetInt(n)
	if u == unitJulian {
		r.Quo(r, new(big.Rat).SetInt64(86400*1e9))
		return r.Add(r, big.NewRat(24405875, 10))
	}
	return r.Quo(r, new(big.Rat).SetInt64(unitNanos[u]))
}

// whole is the smallest whole number that is not before the bound.
func (b bound) whole(u policy.Unit) *big.Int {
	r := b.exact(u)
	q, m := new(big.Int).DivMod(r.Num(), r.Denom(), new(big.Int))
	if m.Sign() != 0 {
		q.Add(q, big.NewInt(1))
	}
	return q
}

func (b bound) decimal(u policy.Unit) string { return b.exact(u).FloatString(12) }

func (b bound) julian() float64 {
	f, _ := b.exact(unitJulian).Float64()
	return f
}

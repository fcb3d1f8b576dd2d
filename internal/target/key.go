package target

import (
	"context"
	"crypto/sha256"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"curfew.dev/curfew/policy"
	"github.com/go-sql-driver/mysql"
	"modernc.org/sqlite"
)

// ErrNoKey says that the table has no key by which a row can be named and pages can be ordered.
var ErrNoKey = errors.New("no usable key")

// errUnordered is a unique index with an operator class or collation of its own.
var errUnordered = fmt.Errorf("%w", ErrNoKey)

// ResolveKey returns the columns that name a row: those the policy lists, else the primary key, else the first unique key.
// They must be unique and never NULL: without that a row could be missed, or another one hit.
func ResolveKey(p *policy.Policy, t *Table) ([]Column, error) {
	var why, unordered []string
	for _, ix := range slices.SortedStableFunc(slices.Values(t.Indexes), primaryFirst) {
		if !ix.Unique || ix.Partial || !ix.Valid || len(p.Key) > 0 && !t.sameColumns(p.Key, ix.Columns) {
			continue
		}
		cols, err := keyColumns(t, ix.Columns, ix.Primary)
		if err != nil {
			why = append(why, err.Error())
			continue
		}
		if !ix.Ordered {
			unordered = ix.Columns
			continue
		}
		return cols, nil
	}
	if len(unordered) > 0 {
		return nil, fmt.Errorf("%w: the only unique index over (%s) is not in the columns' own order, so pages cannot follow it", errUnordered, strings.Join(unordered, ", "))
	}
	what := fmt.Sprintf("table %s has neither a primary key nor a unique key over NOT NULL columns", p.Table)
	if len(p.Key) > 0 {
		what = fmt.Sprintf("table %s has no unique index over exactly (%s)", p.Table, strings.Join(p.Key, ", "))
	}
	if len(why) > 0 {
		what = fmt.Sprintf("table %s: %s", p.Table, strings.Join(why, "; "))
	}
	return nil, fmt.Errorf("%w: %s", ErrNoKey, what)
}

func primaryFirst(a, b Index) int {
	switch {
	case a.Primary && !b.Primary:
		return -1
	case b.Primary && !a.Primary:
		return 1
	}
	return 0
}

// sameColumns compares lists of column names as the engine compares them, in any order.
func (t *Table) sameColumns(a, b []string) bool {
	return len(a) == len(b) && !slices.ContainsFunc(a, func(n string) bool {
		return !slices.ContainsFunc(b, func(m string) bool { return t.sameName(n, m) })
	})
}

// keyColumns looks up the columns of a unique index. SQLite lets NULL into primary keys that are not declared NOT NULL; such
// rows have no name and are never touched (see Job.named).
func keyColumns(t *Table, names []string, primary bool) ([]Column, error) {
	var cols []Column
	for _, n := range names {
		c, ok := t.Column(n)
		switch {
		case !ok:
			return nil, errors.New("a unique index is over an expression")
		case !c.NotNull && !(t.Engine == SQLite && primary):
			return nil, fmt.Errorf("key column %s may be NULL", n)
		case !carried(t.Engine, c.Kind):
			return nil, fmt.Errorf("key column %s of type %s cannot be compared reliably", n, c.Declared)
		}
		cols = append(cols, c)
	}
	return cols, nil
}

// carried reports whether values of the kind survive the way out and back, and sort as they compare. On MySQL an ENUM sorts
// by number and compares as text, and a float is never equal to what it prints.
func carried(e Engine, k Kind) bool {
	switch k {
	case KindInt, KindDecimal, KindText, KindBytes, KindUUID, KindDate, KindTime, KindInstant:
		return true
	case KindFloat, KindEnum, KindBool:
		return e == Postgres || e == SQLite
	case KindAny:
		return e == SQLite
	}
	return false
}

// fingerprint asks the database, in the transaction c, what the table looks like.
func (d *DB) fingerprint(ctx context.Context, c querier, t *Table, key []Column, event int) (string, error) {
	names := make([]string, len(key))
	for i, k := range key {
		names[i] = k.Name
	}
	text, args := fingerprintSQL(t, names, event)
	var out *string
	if err := c.QueryRowContext(ctx, text, args...).Scan(&out); err != nil {
		return "", err
	}
	if out == nil {
		return "", ErrSchemaChanged
	}
	return fmt.Sprintf("%x", sha256.Sum256([]byte(*out))), nil
}

// FingerprintNow is the table as it is now, to be given to every job of a run.
func (j *Job) FingerprintNow(ctx context.Context) (string, error) {
	f, err := j.fingerprintIn(ctx, j.db.SQL)
	return f, redact(err)
}

// The triggers that a run sets off, as PostgreSQL numbers their events.
const (
	onInsert = 4
	onDelete = 8
	onUpdate = 16
)

// fingerprintIn asks in the transaction c what the table looks like, and the one that its rows are archived to.
func (j *Job) fingerprintIn(ctx context.Context, c querier) (string, error) {
	event := onDelete
	if edits(j.p.Action.Kind) {
		event = onUpdate
	}
	f, err := j.db.fingerprint(ctx, c, j.t, j.key, event)
	if err != nil || j.t.Archive == nil {
		return f, err
	}
	to, err := j.db.fingerprint(ctx, c, j.t.Archive, j.archiveKey(), onInsert)
	return f + to, err
}

func isDuplicate(err error) bool {
	var my *mysql.MySQLError
	return errors.As(err, &my) && my.Number == 1062
}

// errRegister is what came of giving SQLite the function curfew_instant(value, format, zone). The driver's registry is one for the
// whole process, connections get what is in it when they are made, and nothing guards it: so this happens before main.
var errRegister = sqlite.RegisterDeterministicScalarFunction("curfew_instant", 3, sqliteInstantOf)

// sqliteInstantOf is microseconds since 1970, rounded up, of a text in the format, or NULL when it is none.
func sqliteInstantOf(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
	var text string
	switch x := args[0].(type) {
	case string:
		text = x
	case []byte:
		text = string(x)
	default:
		return nil, nil
	}
	format, _ := args[1].(string)
	zone, _ := args[2].(string)
	var loc *time.Location
	if zone != "" {
		var err error
		if loc, err = location(zone); err != nil {
			return nil, err
		}
	}
	t, err := policy.ParseInstant(text, policy.Format(format), loc)
	if err != nil {
		return nil, nil
	}
	us := t.UnixMicro()
	if t.Nanosecond()%1000 != 0 {
		us++
	}
	return us, nil
}

var zones sync.Map // name → *time.Location: loading one costs a thousand times what reading a text does

func location(name string) (*time.Location, error) {
	if l, ok := zones.Load(name); ok {
		return l.(*time.Location), nil
	}
	l, err := time.LoadLocation(name)
	if err == nil {
		zones.Store(name, l)
	}
	return l, err
}

// Described is what the server said of itself when it was opened.
func (d *DB) Described() Server { return d.server }

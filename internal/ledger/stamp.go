package ledger

import (
	"database/sql/driver"
	"fmt"
	"strings"
	"time"
)

// stampLayout has one width for every instant, so that SQLite's text order is
// the order in time. PostgreSQL takes the same text for a timestamptz, and no
// session's time zone has a say in it.
const stampLayout = "2006-01-02T15:04:05.000000Z"

// stamp carries an instant to and from both databases in microseconds of UTC. The
// zero time is NULL.
type stamp time.Time

// micros is the precision that everything in the ledger has. It rounds down: a
// run never claims an instant that has not come yet.
func micros(t time.Time) time.Time { return t.UTC().Truncate(time.Microsecond) }

func (s stamp) Value() (driver.Value, error) {
	t := time.Time(s)
	if t.IsZero() {
		return nil, nil
	}
	t = micros(t)
	if y := t.Year(); y < 1 || y > 9999 {
		return nil, fmt.Errorf("instant %s is outside the years 1 to 9999", t.Format(time.RFC3339))
	}
	return t.Format(stampLayout), nil
}

func (s *stamp) Scan(src any) error {
	switch v := src.(type) {
	case nil:
		*s = stamp{}
	case time.Time:
		*s = stamp(v.UTC())
	case string:
		t, err := time.Parse(stampLayout, v)
		if err != nil {
			return fmt.Errorf("an instant in the ledger: %w", err)
		}
		*s = stamp(t)
	default:
		return fmt.Errorf("an instant in the ledger is a %T", src)
	}
	return nil
}

// blob binds empty bytes as NULL on both databases; a driver may make an empty
// value of a nil slice.
func blob(p []byte) any {
	if len(p) == 0 {
		return nil
	}
	return p
}

// text makes what a driver or a database said storable: PostgreSQL refuses
// NUL and invalid UTF-8, and a message is no reason to lose a transaction.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

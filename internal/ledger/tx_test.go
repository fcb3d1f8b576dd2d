package ledger

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"pgregory.net/rapid"

	"curfew.dev/curfew/internal/dbtest"
)

// TestTxRetries: a transaction that the database asks to repeat is repeated as if
// it had never run, and one that failed for good is not.
func TestTxRetries(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		for _, c := range []struct {
			code      string
			failures  int
			wantTries int
			wantErr   bool
		}{
			{"40001", 2, 3, false},
			{"40P01", 1, 2, false},
			{"40001", maxTries, maxTries, true},
			{"23505", 1, 1, true},
		} {
			before, tries := count(t, l, "probe"), 0
			err := l.tx(t.Context(), func(tx *txn) error {
				tries++
				if err := tx.audit(entry{action: "probe", body: tries}); err != nil {
					return err
				}
				if tries <= c.failures {
					return fmt.Errorf("wrapped: %w", &pgconn.PgError{Code: c.code})
				}
				return nil
			})
			if tries != c.wantTries || (err != nil) != c.wantErr {
				t.Errorf("%s: %d tries, %v", c.code, tries, err)
			}
			want := 1
			if c.wantErr {
				want = 0
			}
			if n := count(t, l, "probe") - before; n != want {
				t.Errorf("%s: %d entries, want %d", c.code, n, want)
			}
		}
	})
}

// TestTxAuditIsPartOfIt: when the audit entry cannot be written, nothing is.
func TestTxAuditIsPartOfIt(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		r := accept(t, l, an("p", "key:1"))
		run(t, l.write, l.q(`ALTER TABLE @audit RENAME COLUMN body TO gone`))
		if _, err := l.Start(t.Context(), r.ID, nil); err == nil {
			t.Error("a run started without an audit entry")
		}
		if got, err := l.Get(t.Context(), r.ID); err != nil || got.State != Accepted {
			t.Errorf("the run is %s, %v", got.State, err)
		}
	})
}

// TestStampRoundTrip: both databases return the microsecond they were given, and
// order instants as time does.
func TestStampRoundTrip(t *testing.T) {
	lite := open(t, Options{URL: "sqlite:" + dbtest.SQLite(t)})
	pg := open(t, Options{URL: migrated(t, dbtest.PostgresWith(t, dbtest.PostgresOptions{TimeZone: "Asia/Tokyo"}))})
	first := time.Date(1, 1, 2, 0, 0, 0, 0, time.UTC).UnixMicro()
	last := time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC).UnixMicro()
	rapid.Check(t, func(t *rapid.T) {
		a := time.UnixMicro(rapid.Int64Range(first+1e7, last-1e7).Draw(t, "a")).Add(time.Duration(rapid.IntRange(0, 999).Draw(t, "ns")))
		b := time.UnixMicro(rapid.Int64Range(first, last).Draw(t, "b"))
		if rapid.Bool().Draw(t, "neighbours") { // whole seconds next to fractions of them
			a = a.Truncate(time.Second)
			b = a.Add(time.Duration(rapid.IntRange(-20, 20).Draw(t, "tenths")) * time.Second / 10)
		}
		for name, q := range map[*Ledger]string{
			lite: `SELECT $1, $1 < $2`, pg: `SELECT $1::timestamptz, $1::timestamptz < $2::timestamptz`,
		} {
			var got stamp
			var less bool
			if err := name.read.QueryRow(q, stamp(a), stamp(b)).Scan(&got, &less); err != nil {
				t.Fatalf("%v: %v", a, err)
			}
			if want := a.UTC().Truncate(time.Microsecond); time.Time(got) != want || less != want.Before(b) {
				t.Fatalf("%v became %v, before %v: %v", want, time.Time(got), b, less)
			}
		}
	})
	for _, bad := range []time.Time{time.Date(0, 12, 31, 0, 0, 0, 0, time.UTC), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		if v, err := stamp(bad).Value(); err == nil {
			t.Errorf("%v was stored as %v", bad, v)
		}
	}
	var s stamp
	if err := errors.Join(s.Scan("yesterday"), s.Scan(1.5)); err == nil {
		t.Error("nonsense was read as an instant")
	}
}

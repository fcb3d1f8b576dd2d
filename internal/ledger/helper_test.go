package ledger

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"flag"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"curfew.dev/curfew/internal/dbtest"
)

func TestMain(m *testing.M) {
	if job := os.Getenv(childVar); job != "" {
		os.Exit(child(job))
	}
	// Every check writes to real databases. More of them on demand:
	// go test -rapid.checks=1000.
	if err := flag.Set("rapid.checks", "30"); err != nil {
		panic(err)
	}
	code := m.Run()
	if code == 0 {
		// Every ledger was closed: nothing of ours may still run.
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// onBoth runs a test against a fresh ledger on each engine.
func onBoth(t *testing.T, test func(t *testing.T, l *Ledger)) {
	onBothURLs(t, func(t *testing.T, url string) { test(t, open(t, Options{URL: url})) })
}

// onBothURLs runs a test with the URL of a place for a ledger, migrated.
func onBothURLs(t *testing.T, test func(t *testing.T, url string)) {
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, "sqlite:"+dbtest.SQLite(t))
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		test(t, migrated(t, dbtest.Postgres(t)))
	})
}

func migrated(t testing.TB, url string) string {
	t.Helper()
	if _, err := Migrate(t.Context(), Options{URL: url}); err != nil {
		t.Fatal(err)
	}
	return url
}

func open(t testing.TB, opts Options) *Ledger {
	t.Helper()
	opts.Actor = "test"
	l, err := Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

const policyText = `{"name":"circulation","keep":"2y"}`

// an returns an acceptance of a policy's run, changed by edit.
func an(policy, identity string, edit ...func(*Acceptance)) Acceptance {
	a := Acceptance{
		Policy: policy, Mode: "enforce", Identity: identity, Cause: "cli",
		Cutoff:     func(asOf time.Time) time.Time { return asOf.AddDate(-2, 0, 0) },
		RevisionID: RevisionID([]byte(policyText)), Revision: []byte(policyText),
	}
	for _, e := range edit {
		e(&a)
	}
	return a
}

func accept(t testing.TB, l *Ledger, a Acceptance) Run {
	t.Helper()
	r, created, err := l.Accept(t.Context(), a)
	if err != nil || !created {
		t.Fatalf("accept: created %v, %v", created, err)
	}
	return r
}

func started(t testing.TB, l *Ledger, policy string, edit ...func(*Acceptance)) Run {
	t.Helper()
	r := accept(t, l, an(policy, IdentityOnce(), edit...))
	r, err := l.Start(t.Context(), r.ID, []byte(`{"strategy":"trigger"}`))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func key(run string, n int) BatchKey { return sha256.Sum256(fmt.Appendf(nil, "%s/%d", run, n)) }

// batch is the n-th batch of a run.
func batch(run string, n int, planned int64) NewBatch {
	return NewBatch{Key: key(run, n), Phase: "trigger", Bounds: fmt.Appendf(nil, "bounds %d", n),
		Keys: fmt.Appendf(nil, "keys %d", n), Planned: planned}
}

func admitOne(t testing.TB, l *Ledger, r Run, n int, planned int64) Run {
	t.Helper()
	r, err := l.Admit(t.Context(), r.ID, Admission{OldCursor: r.Cursor, NewCursor: fmt.Appendf(nil, "cursor %d", n),
		Batches: []NewBatch{batch(r.ID, n, planned)}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func settleOne(t testing.TB, l *Ledger, r Run, n int, o Outcomes, edit ...func(*Settlement)) Run {
	t.Helper()
	s := settlement(r.ID, n, o)
	for _, e := range edit {
		e(&s)
	}
	r, err := l.Settle(t.Context(), r.ID, s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func settlement(run string, n int, o Outcomes) Settlement {
	return Settlement{Batch: key(run, n), Planned: o.Sum(), Outcomes: o, Attempts: 1, Root: []byte{byte(n)}, KeyID: "6c1d3b0a",
		Duration: 1234 * time.Microsecond}
}

// pagedOut ends a run's scan.
func pagedOut(t testing.TB, l *Ledger, r Run) Run {
	t.Helper()
	r, err := l.Admit(t.Context(), r.ID, Admission{OldCursor: r.Cursor, NewCursor: r.Cursor, PagedOut: true})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func entries(t testing.TB, l *Ledger) []Entry {
	t.Helper()
	all, err := l.AuditEntries(t.Context(), 0, 1_000_000)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// count counts the audit entries of an action.
func count(t testing.TB, l *Ledger, action string) int {
	t.Helper()
	n := 0
	for _, e := range entries(t, l) {
		if e.Action == action {
			n++
		}
	}
	return n
}

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// one reads a single value.
func one[T any](t fataler, l *Ledger, query string, args ...any) T {
	t.Helper()
	var v T
	if err := l.queryRow(context.Background(), query, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// checkRun reads everything the ledger says of a run, and compares each part with
// the others.
func checkRun(t fataler, l *Ledger, id string) Run {
	t.Helper()
	ctx := context.Background()
	r, err := l.Get(ctx, id)
	if err != nil {
		t.Fatalf("get: %v", err)
	}
	batches, err := l.Batches(ctx, id, 0, 0)
	if err != nil {
		t.Fatalf("batches: %v", err)
	}
	var planned, cascaded, settled int64
	sum := Outcomes{}
	for i, b := range batches {
		if b.Seq != int64(i+1) {
			t.Fatalf("batch %d has seq %d", i+1, b.Seq)
		}
		if b.State != Settled {
			continue
		}
		settled++
		planned += b.Planned
		cascaded += b.Cascaded
		sum = sum.add(b.Outcomes)
		if b.Planned != b.Outcomes.Sum() {
			t.Fatalf("batch %d: planned %d, outcomes %v", b.Seq, b.Planned, b.Outcomes)
		}
		if b.SettledAt.Before(b.Created) {
			t.Fatalf("batch %d settled %v, before it was made at %v", b.Seq, b.SettledAt, b.Created)
		}
	}
	if r.Planned != planned || r.Planned != r.Outcomes.Sum() || !r.Outcomes.Equal(sum) || r.Cascaded != cascaded ||
		r.BatchesTotal != int64(len(batches)) || r.BatchesSettled != settled {
		t.Fatalf("the run says %d planned, %v, %d cascaded, %d of %d batches; the batches say %d, %v, %d, %d of %d",
			r.Planned, r.Outcomes, r.Cascaded, r.BatchesSettled, r.BatchesTotal, planned, sum, cascaded, settled, len(batches))
	}
	for action, want := range map[string]int64{ActionBatchIntent: r.BatchesTotal, ActionBatchSettled: settled} {
		n := one[int64](t, l, `SELECT count(DISTINCT batch) FROM @audit WHERE run = $1 AND action = $2`, id, action)
		all := one[int64](t, l, `SELECT count(*) FROM @audit WHERE run = $1 AND action = $2`, id, action)
		if n != want || all != want {
			t.Fatalf("%d %s entries about %d batches, want one for each of %d", all, action, n, want)
		}
	}
	if n := one[int64](t, l, `SELECT count(*) FROM @batch WHERE run = $1 AND state = 'settled' AND keys IS NOT NULL`, id); n > 0 {
		t.Fatalf("%d settled batches keep their keys", n)
	}
	if r.State.Ended() {
		n := one[int64](t, l, `SELECT count(*) FROM @batch WHERE run = $1 AND (keys IS NOT NULL OR deferred_keys IS NOT NULL)`, id)
		if n > 0 || r.Cursor != nil {
			t.Fatalf("the run has ended and %d batches keep keys, the cursor is %q", n, r.Cursor)
		}
	}
	if r.State == Succeeded && (r.BatchesSettled != r.BatchesTotal || !r.PagedOut) {
		t.Fatalf("succeeded with %d of %d batches settled, paged out %v", r.BatchesSettled, r.BatchesTotal, r.PagedOut)
	}
	return r
}

// raw opens the ledger's database past the ledger.
func raw(t testing.TB, url string) *sql.DB { return dbtest.Open(t, url) }

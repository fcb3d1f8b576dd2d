package curfew

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/internal/hold"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/policy"
)

const secretValue = "914711" // of a data subject: in no log, no error and no audit entry

// holdLab is a library of loans and fines on one engine, with a policy, and a SQLite ledger.
type holdLab struct {
	*testing.T
	engine target.Engine
	c      *Curfew
	clerk  *Curfew // another process, which places holds
	db     *sql.DB // another session
	led    *sql.DB // the ledger's file
	logs   *lockedBuffer
	due    string
}

func onEachHoldLab(t *testing.T, test func(l *holdLab)) {
	for _, e := range []target.Engine{target.Postgres, target.MySQL, target.SQLite} {
		t.Run(string(e), func(t *testing.T) { test(newHoldLab(t, e)) })
	}
}

func newHoldLab(t *testing.T, e target.Engine) *holdLab {
	t.Helper()
	l := &holdLab{T: t, engine: e, logs: &lockedBuffer{}, due: "2020-01-01 00:00:00"}
	dir := t.TempDir()
	url, typ, zone := "", "", "zone: UTC"
	switch e {
	case target.Postgres:
		url, typ = dbtest.Postgres(t), "timestamp"
	case target.MySQL:
		url, typ = dbtest.MariaDB(t), "datetime(6)"
	default:
		path := filepath.Join(dir, "app.db")
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		url, typ, zone = "sqlite:"+path, "text", "zone: UTC, format: iso8601"
	}
	l.db = dbtest.Open(t, strings.TrimPrefix(url, "sqlite:"))
	l.exec("CREATE TABLE loan (id bigint NOT NULL PRIMARY KEY, patron_id bigint NOT NULL, at " + typ + " NOT NULL)")
	l.exec("CREATE TABLE fine (id bigint NOT NULL PRIMARY KEY, loan_id bigint NOT NULL, patron_id bigint NOT NULL, FOREIGN KEY (loan_id) REFERENCES loan (id) ON DELETE CASCADE)")
	file, err := policy.Parse([]byte(fmt.Sprintf("version: 1\nledger: sqlite:curfew.db\nkey: 7f2c9b4e1a6d8035f0c2e4b6a8d0917365c4e2f0b1a39d8c7e6f5a4b3c2d1e0f\ndatabases: {library: {url: %q}}\npolicies:\n"+
		"  loans: {database: library, table: loan, subject: patron_id, until: {column: at, %s}, action: delete, mode: enforce,\n"+
		"    cascade: [{table: fine, subject: patron_id}], batch: {rows: 1000, pace: none}}\n", url, zone)), policy.Options{Path: filepath.Join(dir, "curfew.yaml")})
	if err != nil {
		t.Fatal(err)
	}
	l.c, err = New(Options{Config: file, Logger: slog.New(slog.NewTextHandler(l.logs, nil)), Actor: "clerk"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.c.Close() })
	if l.clerk, err = New(Options{Config: file, Logger: l.c.log, Actor: "clerk"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.clerk.Close() })
	if _, err := l.c.Install(t.Context(), "library", false); err != nil {
		t.Fatal(err)
	}
	if _, err := l.c.ledger(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.led = dbtest.Open(t, filepath.Join(dir, "curfew.db"))
	return l
}

func (l *holdLab) exec(stmt string) {
	l.Helper()
	if _, err := l.db.ExecContext(context.WithoutCancel(l.Context()), stmt); err != nil {
		l.Fatalf("%s: %v", stmt, err)
	}
}

// loans makes n loans that are due; each is of the patron with its number, and has a fine of patron 1000 more.
func (l *holdLab) loans(n int) {
	var loans, fines []string
	for i := 1; i <= n; i++ {
		loans = append(loans, fmt.Sprintf("(%d, %d, '%s')", i, i, l.due))
		fines = append(fines, fmt.Sprintf("(%d, %d, %d)", i, i, 1000+i))
	}
	l.exec("DELETE FROM loan")
	l.exec("INSERT INTO loan VALUES " + strings.Join(loans, ", "))
	l.exec("INSERT INTO fine VALUES " + strings.Join(fines, ", "))
}

func (l *holdLab) ids(query string) []int64 {
	l.Helper()
	rows, err := l.db.QueryContext(l.Context(), query)
	if err != nil {
		l.Fatal(err)
	}
	defer rows.Close()
	ids := []int64{}
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			l.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

func (l *holdLab) left() []int64 { l.Helper(); return l.ids("SELECT id FROM loan ORDER BY id") }

func (l *holdLab) run() api.Run {
	l.Helper()
	r, err := l.c.Run(l.Context(), RunRequest{Policy: "loans"})
	if err != nil {
		l.Fatalf("run: %v (%s)", err, HintOf(err))
	}
	return r
}

func rowsHold(name, where string) HoldRequest {
	cond, err := hold.ParseCondition(where)
	if err != nil {
		panic(err)
	}
	return HoldRequest{Name: name, Reason: "order", Policy: "loans", Where: []hold.Condition{cond}}
}

func (l *holdLab) place(req HoldRequest) api.Hold {
	l.Helper()
	h, err := l.clerk.PlaceHold(context.WithoutCancel(l.Context()), req)
	if err != nil || h.State != api.HoldInForce || len(h.Pending) > 0 {
		l.Fatalf("place: %+v %v", h, err)
	}
	return h
}

func (l *holdLab) equal(what string, got, want any) {
	l.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		l.Errorf("%s: %s", what, diff)
	}
}

// at calls fn the first time that a batch or a placing comes by the point.
func (l *holdLab) at(point string, fn func()) {
	var once sync.Once
	target.TestHook = func(p string) {
		if p == point {
			once.Do(fn)
		}
	}
	l.Cleanup(func() { target.TestHook = nil })
}

// A hold on rows, one on a subject, one on a child that would go along: their rows stay, are counted and listed by hash, told to the
// audit log once, and go at the next run after the release. What is held is told nowhere.
func TestHoldsFromPlacingToRelease(t *testing.T) {
	onEachHoldLab(t, func(l *holdLab) {
		l.loans(10)
		l.exec("UPDATE loan SET patron_id = " + secretValue + " WHERE id = 4")
		l.exec("UPDATE fine SET patron_id = " + secretValue + " WHERE id = 5")
		l.place(HoldRequest{Name: "court-1", Reason: "district court", Subject: secretValue})
		l.place(rowsHold("audit", "id=2"))
		l.place(HoldRequest{Name: "fines", Reason: "appeal", Database: "library", Table: "fine", Where: []hold.Condition{{Column: "id", Value: "7"}}})
		first := l.run()
		l.equal("left", l.left(), []int64{2, 4, 5, 7})
		l.equal("outcomes", first.Outcomes, api.Outcomes{"deleted": 6, "held": 4})
		second := l.run()
		l.equal("outcomes of the next night", second.Outcomes, api.Outcomes{"held": 4})
		detail, err := l.c.Show(l.Context(), second.ID)
		if err != nil {
			l.Fatal(err)
		}
		var reasons []string
		for _, r := range detail.Blocked {
			reasons = append(reasons, r.Outcome+" "+r.Reason)
		}
		slices.Sort(reasons)
		l.equal("listing", reasons, []string{"held hold audit", "held hold court-1", "held hold court-1", "held hold fines"})
		for id, by := range map[string]string{"4": "court-1", "5": "court-1", "7": "fines"} {
			if e, err := l.c.Explain(l.Context(), "loans", []string{id}); err != nil || !strings.Contains(e.Verdict, "a legal hold keeps it: "+by) {
				l.Errorf("explain %s: %q, %v", id, e.Verdict, err)
			}
		}
		status, err := l.c.Status(l.Context())
		if err != nil || status[0].Holds != 3 {
			l.Errorf("status %+v, %v", status, err)
		}
		holds, err := l.c.Holds(l.Context(), false, true)
		if err != nil || len(holds) != 3 || holds[1].Subject != secretValue {
			l.Errorf("holds %+v, %v", holds, err)
		}
		if holds, err = l.c.Holds(l.Context(), false, false); err != nil || strings.Contains(fmt.Sprint(holds), secretValue) {
			l.Errorf("without values %+v, %v", holds, err)
		}
		for _, name := range []string{"court-1", "fines"} {
			if h, err := l.c.ReleaseHold(l.Context(), name, "", "settled"); err != nil || h.State != api.HoldReleased {
				l.Errorf("%+v, %v", h, err)
			}
		}
		if h, err := l.c.ReleaseHold(l.Context(), "fines", "", "again"); err != nil || h.State != api.HoldReleased || h.ReleaseReason != "settled" {
			l.Errorf("released twice: %+v, %v", h, err)
		}
		if _, err := l.c.PlaceHold(l.Context(), rowsHold("fines", "id=7")); KindOf(err) != KindRefused {
			l.Errorf("a released name is placed again: %v", err)
		}
		l.equal("outcomes after the release", l.run().Outcomes, api.Outcomes{"deleted": 3, "held": 1})
		l.equal("left", l.left(), []int64{2})

		entries, err := l.c.led.AuditEntries(l.Context(), 0, 1000)
		if err != nil {
			l.Fatal(err)
		}
		seen := map[string]int{}
		for _, e := range entries {
			seen[e.Action]++
			if bytes.Contains(e.Body, []byte(secretValue)) {
				l.Errorf("the audit log tells the value: %s", e.Body)
			}
		}
		if seen[ledger.ActionRowBlocked] != 4 || seen[ledger.ActionHoldPlaced] != 3 || seen[ledger.ActionHoldReleased] != 2 {
			l.Errorf("audit %v", seen)
		}
		if strings.Contains(l.logs.String(), secretValue) {
			l.Error("a log line tells the value")
		}
	})
}

// A hold placed at any moment of a batch: until the batch has asked the ledger, its row stays; after that, the batch has committed
// before the command returns.
func TestHoldPlacedAtEveryMoment(t *testing.T) {
	onEachHoldLab(t, func(l *holdLab) {
		for i, point := range []string{"begun", "claimed", "found", "changed", "completed", "committed"} {
			l.loans(50)
			name := "at-" + point
			var returned, committed atomic.Bool
			done := make(chan error, 1)
			l.at(point, func() {
				target.TestHook = func(p string) {
					if p == "committed" {
						committed.Store(true)
						if returned.Load() && point != "committed" && point != "begun" {
							l.Errorf("%s: the hold was in force while a batch that does not know it could commit", point)
						}
					}
				}
				go func() {
					_, err := l.clerk.PlaceHold(context.WithoutCancel(l.Context()), rowsHold(name, "id=7"))
					returned.Store(true)
					done <- err
				}()
				for { // until the ledger has it
					if _, err := l.c.led.HoldNamed(context.WithoutCancel(l.Context()), name); err == nil {
						return
					}
				}
			})
			run := l.run()
			err := <-done
			target.TestHook = nil
			if err != nil {
				l.Fatal(point, err)
			}
			if point == "begun" {
				l.equal(point, l.left(), []int64{7})
				l.equal(point, run.Outcomes, api.Outcomes{"deleted": 49, "held": 1})
			} else {
				l.equal(point, run.Outcomes, api.Outcomes{"deleted": 50})
				if !committed.Load() && point != "committed" {
					l.Errorf("%s: no batch committed", point)
				}
			}
			if _, err := l.c.ReleaseHold(l.Context(), name, "", ""); err != nil {
				l.Fatal(i, err)
			}
		}
	})
}

// A hold placed while a run of a thousand rows waits for one that another session has locked keeps that one.
func TestHoldPlacedWhileABatchWaits(t *testing.T) {
	for _, e := range []target.Engine{target.Postgres, target.MySQL} {
		t.Run(string(e), func(t *testing.T) {
			l := newHoldLab(t, e)
			l.loans(1000)
			tx, err := l.db.BeginTx(context.WithoutCancel(t.Context()), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("UPDATE loan SET patron_id = 5 WHERE id = 700"); err != nil {
				t.Fatal(err)
			}
			placed := make(chan error, 1)
			l.at("committed", func() { // the others are gone, and 700 was found locked
				go func() {
					_, err := l.clerk.PlaceHold(context.WithoutCancel(t.Context()), rowsHold("court", "id=700"))
					placed <- errors.Join(err, tx.Commit())
				}()
				for {
					if _, err := l.c.led.HoldNamed(context.WithoutCancel(t.Context()), "court"); err == nil {
						return
					}
				}
			})
			r := l.run()
			if err := <-placed; err != nil {
				t.Error(err)
			}
			left := l.left()
			if len(left) != 1 || left[0] != 700 || r.Outcomes["held"] != 1 {
				t.Errorf("left %v, outcomes %v", left, r.Outcomes)
			}
		})
	}
}

// Two who place the same hold place one; two who mean different rows by a name are told apart.
func TestTwoPlaceAtOnce(t *testing.T) {
	onEachHoldLab(t, func(l *holdLab) {
		l.loans(5)
		place := func(reqs ...HoldRequest) (ok, refused int) {
			errs := make(chan error, len(reqs))
			for _, r := range reqs {
				go func() { _, err := l.c.PlaceHold(l.Context(), r); errs <- err }()
			}
			for range reqs {
				switch err := <-errs; {
				case err == nil:
					ok++
				case KindOf(err) == KindRefused:
					refused++
				default:
					l.Error(err)
				}
			}
			return ok, refused
		}
		same := rowsHold("one", "id=3")
		if ok, refused := place(same, same, same, same); ok != 4 || refused != 0 {
			l.Errorf("the same hold: %d placed, %d refused", ok, refused)
		}
		if ok, refused := place(rowsHold("two", "id=1"), rowsHold("two", "id=2")); ok != 1 || refused != 1 {
			l.Errorf("two holds of one name: %d placed, %d refused", ok, refused)
		}
		if n := len(l.run().Outcomes); n != 2 || len(l.left()) != 2 {
			l.Errorf("left %v", l.left())
		}
	})
}

// A governed database or a ledger that was restored to an older state is refused before anything changes, and put right by what the
// message names.
func TestRestoredHolds(t *testing.T) {
	onEachHoldLab(t, func(l *holdLab) {
		own := map[target.Engine]string{target.Postgres: "curfew.hold", target.MySQL: "curfew_hold", target.SQLite: "curfew_hold"}[l.engine]
		l.loans(5)
		l.place(rowsHold("kept", "id=3"))
		stale := func(what, command string) {
			l.Helper()
			r := l.run()
			if r.State != api.StateFailed || r.WhyEnded != "holds_stale" || !strings.Contains(r.Detail, what) || !strings.Contains(r.Detail, command) || r.Planned != 0 {
				l.Errorf("%s %s: %s", r.State, r.WhyEnded, r.Detail)
			}
			l.equal("left", l.left(), []int64{1, 2, 3, 4, 5})
		}
		l.exec("DELETE FROM " + own) // the database, from before the hold
		stale("it does not have kept", "curfew hold replay library")
		if r, err := l.c.ReplayHolds(l.Context(), "library", false); err != nil || !slices.Equal(r.Placed, []string{"kept"}) {
			l.Errorf("%+v, %v", r, err)
		}
		for _, stmt := range []string{"DELETE FROM curfew_hold_copy", "DELETE FROM curfew_legal_hold"} { // the ledger, from before it
			if _, err := l.led.Exec(stmt); err != nil {
				l.Fatal(err)
			}
		}
		stale("the ledger does not know", "--adopt")
		if _, err := l.c.ReplayHolds(l.Context(), "library", false); KindOf(err) != KindRefused || !errors.Is(err, hold.ErrStale) {
			l.Errorf("an unknown hold: %v", err)
		}
		if r, err := l.c.ReplayHolds(l.Context(), "library", true); err != nil || !slices.Equal(r.Adopted, []string{"kept"}) {
			l.Errorf("%+v, %v", r, err)
		}
		l.equal("outcomes", l.run().Outcomes, api.Outcomes{"deleted": 4, "held": 1})
		if _, err := l.c.ReleaseHold(l.Context(), "kept", "", ""); err != nil {
			l.Fatal(err)
		}
		// The database, from before the release.
		l.exec("INSERT INTO " + own + " (id, name, relation, conditions, placed_at) SELECT '" + l.holdID("kept") + "', 'kept', 'loan', '[{\"column\": \"id\", \"value\": \"3\"}]', '2026-01-01 00:00:00'")
		if r := l.run(); r.WhyEnded != "holds_stale" || !strings.Contains(r.Detail, "has released") {
			l.Errorf("%s: %s", r.WhyEnded, r.Detail)
		}
		if r, err := l.c.ReplayHolds(l.Context(), "library", false); err != nil || !slices.Equal(r.Removed, []string{"kept"}) {
			l.Errorf("%+v, %v", r, err)
		}
		l.equal("outcomes", l.run().Outcomes, api.Outcomes{"deleted": 1})
	})
}

func (l *holdLab) holdID(name string) string {
	l.Helper()
	h, err := l.c.led.HoldNamed(l.Context(), name)
	if err != nil {
		l.Fatal(err)
	}
	return h.ID
}

// Where a database is out of reach the hold is said not to be in force, nothing is changed there, and asking again goes on with it.
func TestHoldOutOfReach(t *testing.T) {
	l := newHoldLab(t, target.SQLite)
	l.loans(5)
	other := filepath.Join(t.TempDir(), "other.db")
	p := *l.c.file.Policies[0]
	p.Name, p.Database, p.CascadeSubjects, p.Cascade = "others", "others", nil, nil
	l.c.file.Policies = append(l.c.file.Policies, &p)
	l.c.file.Databases["others"] = &policy.Database{Name: "others", URL: "sqlite:" + other, MaxWorkers: 1}
	req := HoldRequest{Name: "court", Reason: "order", Subject: "3"}
	h, err := l.c.PlaceHold(t.Context(), req)
	if KindOf(err) != KindUnreachable || !strings.Contains(err.Error(), "NOT in force in others") || h.State != api.HoldPlacing || !slices.Equal(h.Pending, []string{"others"}) {
		t.Fatalf("%+v, %v", h, err)
	}
	l.equal("where it is in force", l.run().Outcomes, api.Outcomes{"deleted": 4, "held": 1})
	db := dbtest.Open(t, other)
	for _, stmt := range []string{"CREATE TABLE loan (id bigint NOT NULL PRIMARY KEY, patron_id bigint NOT NULL, at text NOT NULL)", "INSERT INTO loan VALUES (1, 1, '2020-01-01'), (3, 3, '2020-01-01')"} {
		if _, err := db.Exec(stmt); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.c.Install(t.Context(), "others", false); err != nil {
		t.Fatal(err)
	}
	// It answers again. A batch that comes first does what is left to do.
	r, err := l.c.Run(t.Context(), RunRequest{Policy: "others"})
	if err != nil {
		t.Fatal(err)
	}
	l.equal("where it was not", r.Outcomes, api.Outcomes{"deleted": 1, "held": 1})
	if h := l.place(req); !slices.Equal(h.Databases, []string{"library", "others"}) {
		t.Errorf("%+v", h)
	}
}

// Holds are placed while batches come without a pause; how long it took is in the log.
func TestHoldPlacedUnderLoad(t *testing.T) {
	onEachHoldLab(t, func(l *holdLab) {
		n := 25
		if l.engine == target.SQLite {
			n = 5 // its writers take turns in no order, the rows that are put there to be deleted among them
		}
		stop := make(chan struct{})
		var batches atomic.Int64
		begun := make(chan struct{}, 1)
		target.TestHook = func(p string) {
			if p != "found" {
				return
			}
			batches.Add(1)
			select {
			case begun <- struct{}{}:
			default:
			}
		}
		defer func() { target.TestHook = nil }()
		var work sync.WaitGroup
		work.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				l.loans(4000)
				if _, err := l.c.Run(context.WithoutCancel(l.Context()), RunRequest{Policy: "loans"}); err != nil {
					l.Error(err)
					return
				}
			}
		})
		var took []time.Duration
		for i := range n {
			select {
			case <-begun: // a batch is in the middle of its work
			case <-l.Context().Done():
			}
			began := time.Now()
			l.place(rowsHold(fmt.Sprintf("load-%d", i), fmt.Sprintf("id=%d", 100000+i)))
			took = append(took, time.Since(began))
		}
		close(stop)
		work.Wait()
		slices.Sort(took)
		l.Logf("%d holds among %d batches: p50 %s, p99 %s", n, batches.Load(), took[n/2], took[n-1])
	})
}

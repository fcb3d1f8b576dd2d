package alert

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/internal/ledger"
)

func contextOf(b *lab) (context.Context, context.CancelFunc) { return context.WithCancel(b.Context()) }

// TestFirstLook: a ledger with a past is followed from about now.
func TestFirstLook(t *testing.T) {
	b := onlySQLite(t)
	b.end(b.accept("old", "enforce", "http", "1d"), ledger.Failed, ledger.WhyError, "")
	b.later(3 * time.Hour)
	b.end(b.accept("young", "enforce", "http", "1d"), ledger.Failed, ledger.WhyError, "")
	b.later(30 * time.Minute)
	a := b.loop()
	b.pass(a)
	all := b.alerts()
	if len(all) != 1 || all[0].Policy != "young" {
		t.Errorf("%+v", all)
	}
	// From then on nothing is left out, however long nobody looked.
	b.end(b.accept("next", "enforce", "http", "1d"), ledger.Failed, ledger.WhyError, "")
	b.later(50 * time.Hour)
	b.pass(b.loop())
	if all = b.alerts(); len(all) != 2 || all[1].Policy != "next" {
		t.Errorf("%+v", all)
	}
}

func TestRunsThatEnd(t *testing.T) {
	onBoth(t, func(b *lab) {
		a := b.loop()
		b.end(b.accept("late", "enforce", "schedule", "1d"), ledger.Expired, "not_started", "")
		b.end(b.start(b.accept("quiet", "shadow", "schedule", "1d")), ledger.Failed, ledger.WhySchemaChanged, "a column is gone")
		b.end(b.accept("stopped", "enforce", "schedule", "1d"), ledger.Cancelled, ledger.WhyCancelled, "")
		b.end(b.accept("skipped", "enforce", "schedule", "1d"), ledger.Skipped, "overlap", "")
		b.deletes("fine", time.Now().Add(-time.Hour), 10)
		b.pass(a)
		if diff := cmp.Diff([]string{RunExpired, RunFailed}, b.kinds()); diff != "" {
			b.Error(diff)
		}
		if d := b.said(b.alerts()[1]); d.Why != ledger.WhySchemaChanged || d.Mode != "shadow" || d.Detail != "a column is gone" {
			b.Errorf("%+v", d)
		}
	})
}

func TestOccurrences(t *testing.T) {
	onBoth(t, func(b *lab) {
		a := b.loop()
		b.pass(a)
		const entry = `{"stage":%q,"at":%q,"state":%q,"why":%q}`
		b.entry(ledger.ActionOccurrenceEnded, "nightly", entry, "", "2026-07-02T02:00:00Z", "missed", "no_process")
		b.entry(ledger.ActionOccurrenceEnded, "nightly", entry, "", "2026-07-01T02:00:00Z", "missed", "no_process")
		b.entry(ledger.ActionOccurrenceEnded, "nightly", entry, "", "2026-07-03T02:00:00Z", "missed", "no_process")
		b.entry(ledger.ActionOccurrenceEnded, "nightly", entry, "remind", "2026-07-01T02:00:00Z", "missed", "no_process")
		b.entry(ledger.ActionOccurrenceEnded, "called", entry, "", "2026-07-01T02:00:00Z", "missed", "no_call")
		b.entry(ledger.ActionOccurrenceEnded, "queued", entry, "", "2026-07-01T02:00:00Z", "expired", "not_started")
		b.entry(ledger.ActionOccurrenceEnded, "fine", entry, "", "2026-07-01T02:00:00Z", "ok", "")
		b.entry(ledger.ActionOccurrenceEnded, "once", entry, "", "2026-07-01T02:00:00Z", "skipped", "overlap")
		b.entry(ledger.ActionOccurrenceEnded, "torn", `["what is this"]`)
		b.pass(a)
		var got []string
		for _, x := range b.alerts() {
			d := b.said(x)
			line := strings.Join([]string{x.Kind, x.Policy, x.Stage, d.Why}, " ")
			if d.Count > 0 {
				line += " " + strings.Repeat("|", int(d.Count)) + d.First.Format(" 2") + "-" + d.Last.Format("2")
			}
			got = append(got, line)
		}
		slices.Sort(got)
		want := []string{
			"occurrence.expired queued  not_started", "occurrence.missed called  no_call | 1-1",
			"occurrence.missed nightly  no_process ||| 1-3", "occurrence.missed nightly remind no_process | 1-1",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			b.Error(diff)
		}
		if log := b.log.String(); !strings.Contains(log, "alert_entry_unreadable") {
			b.Error("an entry that cannot be read is left out in silence")
		}
		n := len(b.receiver.requests())
		b.pass(a)
		b.pass(b.loop())
		if again := len(b.receiver.requests()); n != 4 || again != n {
			b.Errorf("%d alerts sent, then %d", n, again)
		}
	})
}

func TestSkippedStreak(t *testing.T) {
	onBoth(t, func(b *lab) {
		a := b.loop()
		b.pass(a)
		db, table := dbtest.Open(b.T, b.url), "curfew_occurrence"
		if b.postgres {
			table = "curfew.occurrence"
		}
		for i, state := range []string{"ok", "skipped", "skipped", "skipped", "skipped", "ok", "skipped"} {
			at := time.Date(2026, 7, 1, i, 0, 0, 0, time.UTC).Format("2006-01-02T15:04:05.000000Z")
			if _, err := db.ExecContext(b.Context(), `INSERT INTO `+table+` (policy, stage, at, start_by, state, why, created, ended)
				VALUES ('p', '', $1, $1, $2, 'overlap', $1, $1)`, at, state); err != nil {
				b.Fatal(err)
			}
			b.entry(ledger.ActionOccurrenceEnded, "p", `{"stage":"","at":%q,"state":%q,"why":"overlap"}`, at, state)
			b.pass(a)
			if want := i >= 3; want != (len(b.alerts()) == 1) {
				b.Errorf("after instant %d: %v", i, b.kinds())
			}
		}
		if d := b.said(b.alerts()[0]); d.Count != 3 || d.First.Hour() != 1 || d.Last.Hour() != 3 {
			b.Errorf("%+v", d)
		}
	})
}

func TestSchedules(t *testing.T) {
	onBoth(t, func(b *lab) {
		a := b.loop()
		b.pass(a)
		b.entry(ledger.ActionScheduleSeen, "p", `{"stage":"","expr":"new"}`)
		b.entry(ledger.ActionScheduleChanged, "p", `{"stage":"","expr":"0 3 * * *","was":"0 2 * * *"}`)
		b.entry(ledger.ActionScheduleRemoved, "p", `{"stage":"","expr":"0 3 * * *"}`)
		b.pass(a)
		if diff := cmp.Diff([]string{ScheduleRemoved}, b.kinds()); diff != "" {
			b.Fatal(diff)
		}
		if d := b.said(b.alerts()[0]); d.Was != "0 3 * * *" {
			b.Errorf("%+v", d)
		}
	})
}

func TestPolicyChanged(t *testing.T) {
	type run struct{ mode, cause, keep string }
	for name, c := range map[string]struct {
		runs []run
		want string // of each run: - nothing, k keep changed, m mode changed
	}{
		"stays":             {[]run{{"enforce", "schedule", "1d"}, {"enforce", "http", "1d"}, {"enforce", "catch_up", "1d"}}, "---"},
		"there and back":    {[]run{{"enforce", "schedule", "1d"}, {"enforce", "schedule", "2d"}, {"enforce", "schedule", "2d"}, {"enforce", "http", "1d"}}, "-k-k"},
		"shadow by hand":    {[]run{{"enforce", "schedule", "1d"}, {"shadow", "cli", "1d"}, {"shadow", "cli", "2d"}, {"enforce", "schedule", "1d"}}, "----"},
		"mode":              {[]run{{"shadow", "schedule", "1d"}, {"enforce", "schedule", "1d"}, {"shadow", "schedule", "1d"}, {"enforce", "schedule", "1d"}}, "-mmm"},
		"enforced by hand":  {[]run{{"shadow", "schedule", "1d"}, {"enforce", "cli", "1d"}}, "-m"},
		"always in shadow":  {[]run{{"shadow", "cli", "1d"}, {"shadow", "cli", "2d"}}, "-k"},
		"a shadow to begin": {[]run{{"shadow", "cli", "1d"}, {"enforce", "schedule", "1d"}, {"enforce", "schedule", "2d"}}, "--k"},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, func(b *lab) {
				a := b.loop()
				got := ""
				for _, r := range c.runs {
					was := len(b.alerts())
					b.accept("p", r.mode, r.cause, r.keep)
					b.pass(a)
					switch all := b.alerts()[was:]; {
					case len(all) == 0:
						got += "-"
					case len(all) > 1 || all[0].Kind != PolicyChanged:
						b.Errorf("%v", all)
					default:
						d := b.said(all[0])
						got += map[string]string{"keep": "k", "mode": "m"}[strings.Join(d.Fields, ",")]
						if d.Revision == d.Was || d.Actor != "test" {
							b.Errorf("%+v", d)
						}
					}
				}
				if got != c.want {
					b.Errorf("%s, want %s", got, c.want)
				}
			})
		})
	}
}

func TestUsually(t *testing.T) {
	day := 24 * time.Hour
	at := func(days float64, rows int64) ledger.Run {
		return ledger.Run{AsOf: time.Date(2026, 7, 1, 2, 0, 0, 0, time.UTC).Add(time.Duration(days * float64(day))), Outcomes: ledger.Outcomes{"deleted": rows, "held": 7}}
	}
	for name, c := range map[string]struct {
		run    ledger.Run
		before []ledger.Run
		want   int64 // -1: too little is known
	}{
		"no history": {at(1, 9), nil, -1}, "three runs": {at(3, 9), []ledger.Run{at(0, 5), at(1, 5), at(2, 5)}, -1},
		"steady": {at(4, 9), []ledger.Run{at(3, 10), at(1, 10), at(2, 10), at(0, 10)}, 10}, "three nights": {at(6, 9), []ledger.Run{at(3, 10), at(1, 10), at(2, 10), at(0, 10)}, 30},
		"median": {at(4, 9), []ledger.Run{at(0, 1000), at(1, 10), at(2, 5000), at(3, 20)}, 20}, "later ones": {at(3.5, 9), []ledger.Run{at(0, 10), at(1, 10), at(2, 10), at(3, 10), at(8, 999)}, 5},
		"one as_of": {at(4, 9), []ledger.Run{at(0, 1), at(0, 1), at(0, 1), at(1, 10)}, -1}, "nothing": {at(4, 9), []ledger.Run{at(0, 0), at(1, 0), at(2, 0), at(3, 0)}, 0},
	} {
		got, ok := usually(c.run, c.before)
		if ok != (c.want >= 0) || ok && got != c.want {
			t.Errorf("%s: %d, %v, want %d", name, got, ok, c.want)
		}
	}
}

func TestSpike(t *testing.T) {
	onBoth(t, func(b *lab) {
		a := b.loop()
		b.pass(a)
		day := func(n int) time.Time { return time.Now().Add(time.Duration(n-20) * 24 * time.Hour) }
		for n := range 6 {
			b.deletes("p", day(n), 40)
		}
		b.deletes("p", day(6), 190)  // not five times as many
		b.deletes("p", day(9), 500)  // three nights at once
		b.deletes("p", day(10), 900) // this is one
		b.deletes("few", day(1), 49)
		b.pass(a)
		all := b.alerts()
		if len(all) != 1 || all[0].Kind != RunSpike {
			b.Fatalf("%v", b.kinds())
		}
		if d := b.said(all[0]); d.Changed != 900 || d.Usual < 39 || d.Usual > 41 {
			b.Errorf("%+v", d)
		}
	})
}

func TestNoProgress(t *testing.T) {
	b := onlySQLite(t)
	a := b.loop()
	r := b.start(b.accept("p", "enforce", "schedule", "1d"))
	b.pass(a)
	b.later(14 * time.Minute)
	b.pass(a)
	if all := b.alerts(); len(all) != 0 {
		t.Fatalf("too soon: %v", all)
	}
	b.later(2 * time.Minute)
	b.pass(a)
	b.later(time.Hour)
	b.pass(a)
	if all := b.alerts(); len(all) != 1 || all[0].Kind != RunNoProgress || all[0].Run != r.ID {
		t.Fatalf("%v", all)
	}
	if d := b.said(b.alerts()[0]); !strings.Contains(d.Message, "no process is at work") || d.Seconds < 900 {
		t.Errorf("%+v", d)
	}
	// It goes on, and stalls again in living hands.
	if _, err := b.l.Admit(t.Context(), r.ID, ledger.Admission{NewCursor: []byte("c"), Batches: []ledger.NewBatch{{Key: ledger.BatchKey{1}, Planned: 1}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.l.Settle(t.Context(), r.ID, ledger.Settlement{Batch: ledger.BatchKey{1}, Planned: 1, Outcomes: ledger.Outcomes{"deleted": 1}}); err != nil {
		t.Fatal(err)
	}
	b.pass(a)
	b.later(20 * time.Minute)
	if err := b.l.Claim(t.Context(), r.ID, "me", 0); err != nil {
		t.Fatal(err)
	}
	b.pass(a)
	if all := b.alerts(); len(all) != 2 || !strings.Contains(b.said(all[1]).Message, "a process is at work") {
		t.Errorf("%v", all)
	}
}

func TestPauseForgotten(t *testing.T) {
	b := onlySQLite(t)
	a := b.loop()
	if err := b.l.Pause(t.Context(), "p", "anna", "an audit"); err != nil {
		t.Fatal(err)
	}
	b.later(6 * 24 * time.Hour)
	b.pass(a)
	if all := b.alerts(); len(all) != 0 {
		t.Errorf("on day 6: %v", all)
	}
	for range 9 { // days 7 to 15
		b.later(24 * time.Hour)
		b.pass(a)
	}
	if diff := cmp.Diff([]string{PauseForgotten, PauseForgotten}, b.kinds()); diff != "" {
		t.Fatal(diff)
	}
	if d := b.said(b.alerts()[0]); d.Actor != "anna" || d.Detail != "an audit" || !strings.Contains(d.Message, "curfew resume p") {
		t.Errorf("%+v", d)
	}
}

func TestGaps(t *testing.T) {
	start := time.Now()
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	seqs := func(ns ...int64) (es []ledger.Entry) {
		for _, n := range ns {
			es = append(es, ledger.Entry{Seq: n})
		}
		return es
	}
	const wait = 75 * time.Second
	g := new(gaps)
	for i, c := range []struct {
		second int
		from   int64
		seqs   []ledger.Entry
		want   int
	}{
		{0, 0, seqs(1, 2, 3), 3}, {1, 3, nil, 0},
		{10, 3, seqs(5, 6), 0},           // 4 may be late
		{20, 3, seqs(4, 5, 6), 3},        // it was
		{30, 6, seqs(7, 9, 10), 1},       // 8
		{60, 7, seqs(9, 10, 12), 0},      // and 11
		{104, 7, seqs(9, 10, 12, 13), 0}, // almost
		{105, 7, seqs(9, 10, 12, 13), 2}, // 8 will not come any more; 11 was missed later
		{134, 10, seqs(12, 13), 0},
		{135, 10, seqs(12, 13), 2},
		{500, 13, seqs(15), 0}, // nobody looked for long, which proves nothing
		{575, 13, seqs(15, 17), 1},
	} {
		if got := g.final(c.from, c.seqs, at(c.second), wait); got != c.want {
			t.Errorf("step %d: %d, want %d (%v)", i, got, c.want, g.seen)
		}
	}
}

// TestLateEntry: on PostgreSQL an entry becomes visible after one with a larger
// seq, and is told all the same; one that was rolled back holds nobody up for ever.
func TestLateEntry(t *testing.T) {
	b := newLab(t, dbtest.Postgres(t))
	now := time.Now()
	var mu sync.Mutex
	a := b.loop(func(o *Options) {
		o.Clock = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	})
	later := func(d time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
	}
	b.pass(a)
	db := dbtest.Open(t, b.url)
	const insert = `INSERT INTO curfew.audit (at, actor, action, policy, run, body) VALUES (now(), 'test', 'schedule_removed', $1, '', '{}')`
	for _, commit := range []bool{true, false} {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.ExecContext(t.Context(), insert, "late"); err != nil {
			t.Fatal(err)
		}
		b.entry(ledger.ActionScheduleRemoved, "early", `{}`)
		was := len(b.alerts())
		later(10 * time.Second)
		b.pass(a)
		later(gapWait - time.Second)
		b.pass(a)
		if got := b.alerts()[was:]; len(got) != 0 {
			t.Fatalf("told although an entry before it may come: %v", got)
		}
		want := []string{"late", "early"}
		if commit {
			err = tx.Commit()
		} else {
			err, want = tx.Rollback(), want[1:]
			later(gapWait)
		}
		if err != nil {
			t.Fatal(err)
		}
		b.pass(a)
		var got []string
		for _, x := range b.alerts()[was:] {
			got = append(got, x.Policy)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("committed %v: %s", commit, diff)
		}
	}
}

func TestManyEntries(t *testing.T) {
	b := onlySQLite(t)
	a := b.loop()
	b.pass(a)
	for range 3 * page / 2 {
		b.accept("p", "enforce", "http", "1d")
	}
	b.end(b.accept("q", "enforce", "http", "1d"), ledger.Failed, ledger.WhyError, "")
	b.pass(a)
	if all := b.alerts(); len(all) != 1 || all[0].Policy != "q" {
		t.Errorf("%v", all)
	}
}

// TestAlive: a loop that cannot read the ledger says so, and recovers.
func TestAlive(t *testing.T) {
	b := onlySQLite(t)
	now := time.Now()
	a := b.loop(func(o *Options) { o.Clock = func() time.Time { return now } })
	if err := a.Alive(); err == nil {
		t.Error("alive before it runs")
	}
	a.passed(nil)
	a.passed(context.DeadlineExceeded)
	now = now.Add(deadAfter)
	if err := a.Alive(); err != nil {
		t.Error(err)
	}
	now = now.Add(time.Second)
	if err := a.Alive(); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
		t.Error(err)
	}
	a.passed(nil)
	if err := a.Alive(); err != nil {
		t.Error(err)
	}
	if err := safely(func() error { panic("oh") }); err == nil || !strings.Contains(err.Error(), "oh") {
		t.Error(err)
	}
}

func TestRetentionLag(t *testing.T) {
	onBoth(t, func(b *lab) {
		table := "curfew_schedule"
		if b.postgres {
			table = "curfew.schedule"
		}
		db := dbtest.Open(b.T, b.url)
		const at = "2026-07-10T02:00:00.000000Z"
		for policy, oldest := range map[string]any{"behind": "2026-07-08T01:59:59.000000Z", "fine": "2026-07-09T02:00:00.000000Z",
			"unlimited": "2020-01-01T00:00:00.000000Z", "empty": nil} {
			if _, err := db.ExecContext(b.Context(), `INSERT INTO `+table+` (policy, stage, expr, cursor, ticked_at, read_at, oldest_due, oldest_at)
				VALUES ($1, '', '@daily', $2, $2, $2, $3, $2)`, policy, at, oldest); err != nil {
				b.Fatal(err)
			}
		}
		a := b.loop(func(o *Options) {
			o.Lag = func(policy string) time.Duration {
				return map[string]time.Duration{"behind": 48 * time.Hour, "fine": 48 * time.Hour, "empty": time.Minute}[policy]
			}
		})
		b.pass(a)
		b.pass(a)
		all := b.alerts()
		if len(all) != 1 || all[0].Policy != "behind" || all[0].Kind != RetentionLag {
			b.Fatalf("%v", b.kinds())
		}
		if d := b.said(all[0]); d.Seconds != 48*3600+1 || d.Limit != 48*3600 {
			b.Errorf("%+v", d)
		}
		// Told again on another day.
		for day, want := range []int{1, 2} {
			next := time.Date(2026, 7, 10+day, 4, 0, 0, 0, time.UTC).Format("2006-01-02T15:04:05.000000Z")
			if _, err := db.ExecContext(b.Context(), `UPDATE `+table+` SET oldest_at = $1 WHERE policy = 'behind'`, next); err != nil {
				b.Fatal(err)
			}
			b.pass(a)
			if got := len(b.alerts()); got != want {
				b.Errorf("%d alerts on day %d, want %d", got, day, want)
			}
		}
	})
}

package target

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/policy"
)

// What is counted before a run is what the run then changes.
func TestCountChanging(t *testing.T) {
	onEach(t, func(l *lab) {
		l.sessions(40)
		l.exec("CREATE TABLE fine (id bigint PRIMARY KEY, session_id bigint NOT NULL, CONSTRAINT fine_session FOREIGN KEY (session_id) REFERENCES session (id))")
		l.exec("INSERT INTO fine VALUES (1, 4), (2, 5)")
		hold := dialectFor(l.db.server).own("hold")
		l.exec("INSERT INTO " + hold + ` (id, name, relation, conditions, placed_at) VALUES ('1', 'court', 'session', '[{"column": "id", "value": "6"}]', '2026-01-01 00:00:00')`)
		j := l.job(l.policy("session", func(p *policy.Policy) {
			p.Where, p.Unless = "id <= 30", "id IN (7, 8, 9)"
		}))
		want := 0
		for _, id := range l.ids("SELECT id FROM session WHERE id <= 30 ORDER BY id") {
			if id < 4 || id > 9 {
				want++
			}
		}
		due, err := j.CountDue(t.Context())
		if err != nil || due.Due <= int64(want) {
			t.Fatalf("%d are due, %v", due.Due, err)
		}
		want -= 30 - int(due.Due) // of the fixture's rows some are not due
		for limit, want := range map[int64]int64{0: int64(want), 5: 5, int64(want): int64(want), int64(want) + 1: int64(want)} {
			if n, err := j.CountChanging(t.Context(), limit); err != nil || n != want {
				t.Errorf("up to %d: %d, %v; want %d", limit, n, err, want)
			}
		}
		for limit, want := range map[int64]int64{0: 30, 7: 7, 31: 30} {
			if n, err := j.CountScope(t.Context(), limit); err != nil || n != want {
				t.Errorf("in scope up to %d: %d, %v; want %d", limit, n, err, want)
			}
		}
		if got := l.drain(j, 7); got.outcomes["deleted"] != int64(want) {
			t.Errorf("the run did %v, and %d were counted", got.outcomes, want)
		}
		if n, err := j.CountChanging(t.Context(), 0); err != nil || n != 0 {
			t.Errorf("after the run: %d, %v", n, err)
		}
	})
}

// Rows without a trigger count where the policy calls them due.
func TestCountChangingNulls(t *testing.T) {
	onEach(t, func(l *lab) {
		kind, _ := l.instant()
		l.exec("CREATE TABLE doc (id bigint PRIMARY KEY, at " + kind + " NULL)")
		for i := range 9 {
			at := "NULL"
			if i%3 > 0 {
				at = l.lit(asOf.Add(time.Duration(i%3*2-3) * time.Hour)) // one hour before, one hour after
			}
			l.exec(fmt.Sprintf("INSERT INTO doc VALUES (%d, %s)", i+1, at))
		}
		for null, want := range map[policy.NullRule]int64{policy.NullNever: 3, policy.NullDue: 6} {
			j := l.job(l.policy("doc", func(p *policy.Policy) { p.Trigger.Null = null }))
			if n, err := j.CountChanging(t.Context(), 0); err != nil || n != want {
				t.Errorf("%s: %d, %v; want %d", null, n, err, want)
			}
			if n, err := j.CountChanging(t.Context(), 4); err != nil || n != min(want, 4) {
				t.Errorf("%s up to 4: %d, %v", null, n, err)
			}
		}
	})
}

// Of two texts over one table, what the one removes and the other does not. An answer that is unknown is no removal.
func TestCountBeyond(t *testing.T) {
	onEach(t, func(l *lab) {
		kind, _ := l.instant()
		l.exec("CREATE TABLE doc (id bigint PRIMARY KEY, at " + kind + " NULL, state varchar(10) NULL)")
		for i := range 12 {
			state := "NULL"
			if i%4 > 0 {
				state = fmt.Sprintf("'s%d'", i%4)
			}
			l.exec(fmt.Sprintf("INSERT INTO doc VALUES (%d, %s, %s)", i+1, l.lit(asOf.Add(-time.Duration(i)*24*time.Hour-time.Hour)), state))
		}
		text := func(edit func(*policy.Policy)) *Job {
			return l.job(l.policy("doc", func(p *policy.Policy) { p.Trigger.Null = policy.NullNever; edit(p) }))
		}
		all := text(func(*policy.Policy) {})
		for name, c := range map[string]struct {
			now, old *Job
			want     int64
		}{
			"the same":                 {all, all, 0},
			"a scope that went":        {all, text(func(p *policy.Policy) { p.Where = "state = 's1'" }), 9}, // NULL among them
			"a scope that came":        {text(func(p *policy.Policy) { p.Where = "state = 's1'" }), all, 0},
			"another scope":            {text(func(p *policy.Policy) { p.Where = "state = 's1'" }), text(func(p *policy.Policy) { p.Where = "state = 's2'" }), 3},
			"a guard that went":        {all, text(func(p *policy.Policy) { p.Unless = "state IS NULL" }), 3},
			"a guard that is unknown":  {all, text(func(p *policy.Policy) { p.Unless = "state = 's1'" }), 3},
			"a longer period":          {all, text(func(p *policy.Policy) { p.Keep = policy.Period{Exact: 5 * 24 * time.Hour} }), 5},
			"a shorter one":            {text(func(p *policy.Policy) { p.Keep = policy.Period{Exact: 5 * 24 * time.Hour} }), all, 0},
			"NULL that became due":     {text(func(p *policy.Policy) { p.Trigger.Null = policy.NullDue }), all, 0},
			"plausible from now on":    {all, text(func(p *policy.Policy) { p.Trigger.ImplausibleBefore = &policy.Date{Year: 2026, Month: 3, Day: 25} }), 7},
			"a list that has a NULL":   {all, text(func(p *policy.Policy) { p.Where = "state NOT IN ('s1', NULL)" }), 12},
			"with all of them at once": {all, text(func(p *policy.Policy) { p.Where, p.Unless = "id > 6", "state = 's1'" }), 7},
		} {
			if n, err := c.now.CountBeyond(t.Context(), c.old); err != nil || n != c.want {
				t.Errorf("%s: %d, %v; want %d", name, n, err, c.want)
			}
		}
	})
}

// A database says the same of itself to every role that may work on it, and a role with the printed grants may keep a claim.
func TestIdentityAndClaim(t *testing.T) {
	onEach(t, func(l *lab) {
		mine, err := l.db.Identity(t.Context())
		if err != nil || mine[signalInstallation] == "" || len(mine) < 2 {
			t.Fatalf("%v, %v", mine, err)
		}
		weak := l.db
		if l.engine != SQLite {
			var url, account string
			if l.engine == Postgres {
				url, account = dbtest.PostgresRole(t, l.url)
			} else {
				url, account = dbtest.MariaDBUser(t, l.url)
			}
			claims := ""
			for _, g := range GrantSQL(l.engine, account, nil, nil) {
				if strings.Contains(g, "claim") {
					claims = g
				} else {
					l.exec(g)
				}
			}
			if weak, err = Open(t.Context(), "lab", url, OpenOptions{}); err != nil {
				t.Fatal(err)
			}
			defer weak.Close()
			if _, _, err := weak.Claim(t.Context()); err != ErrNoClaims {
				t.Errorf("without the right: %v", err)
			}
			l.exec(claims)
		}
		theirs, err := weak.Identity(t.Context())
		if err != nil || len(mine.Differs(theirs)) > 0 || len(theirs) != len(mine) {
			t.Errorf("%v and %v, %v", mine, theirs, err)
		}
		again, err := ParseIdentity(mine.String())
		if err != nil || again.String() != mine.String() {
			t.Errorf("%v reads back as %v, %v", mine, again, err)
		}

		if _, found, err := weak.Claim(t.Context()); found || err != nil {
			t.Fatalf("claimed before: %v, %v", found, err)
		}
		one, two := Claim{Ledger: "one", Epoch: "1"}, Claim{Ledger: "two", Epoch: "2"}
		for i, c := range []struct {
			take, want Claim
			replace    bool
		}{{one, one, false}, {one, one, false}, {two, one, false}, {two, two, true}, {two, two, true}, {one, two, false}} {
			var got Claim
			if c.replace {
				err = weak.ReplaceClaim(t.Context(), c.take)
				got, _, _ = weak.Claim(t.Context())
			} else {
				got, err = weak.TakeClaim(t.Context(), c.take)
			}
			if err != nil || got != c.want {
				t.Errorf("%d: %+v, %v; want %+v", i, got, err, c.want)
			}
		}
		l.exec("DROP TABLE " + dialectFor(l.db.server).own("claim"))
		if _, _, err := weak.Claim(t.Context()); err != ErrNoClaims {
			t.Errorf("without the table: %v", err)
		}
		if _, err := weak.TakeClaim(t.Context(), one); err != ErrNoClaims {
			t.Errorf("without the table: %v", err)
		}
	})
}

func TestReceiptsOfRun(t *testing.T) {
	onEach(t, func(l *lab) {
		if run, err := l.db.NewestReceipt(t.Context()); run != "" || err != nil {
			t.Errorf("before: %q, %v", run, err)
		}
		l.sessions(20)
		j := l.job(l.policy("session", nil))
		l.drain(j, 7)
		n, dropped, err := l.db.Receipts(t.Context(), j.run)
		if err != nil || dropped || n != l.seq {
			t.Errorf("%d receipts, dropped %v, %v; want %d", n, dropped, err, l.seq)
		}
		if run, err := l.db.NewestReceipt(t.Context()); run != j.run || err != nil {
			t.Errorf("%q, %v", run, err)
		}
		if _, err := l.db.DropReceipts(t.Context(), j.run); err != nil {
			t.Fatal(err)
		}
		if n, dropped, err := l.db.Receipts(t.Context(), j.run); n != 0 || !dropped || err != nil {
			t.Errorf("dropped: %d, %v, %v", n, dropped, err)
		}
	})
}

// A signal tells databases apart when both have it.
func TestIdentityDiffers(t *testing.T) {
	base := Identity{signalSystem: "1", signalDatabase: "2", signalInstallation: "3"}
	file := Identity{signalFile: "10", signalPath: "/a", signalInstallation: "3"}
	with := func(id Identity, change ...string) Identity {
		out := Identity{}
		for k, v := range id {
			out[k] = v
		}
		for i := 0; i < len(change); i += 2 {
			if out[change[i]] = change[i+1]; change[i+1] == "" {
				delete(out, change[i])
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		was, now Identity
		words    string // "": the same
	}{
		"the same": {base, base, ""}, "another cluster": {base, with(base, signalSystem, "9"), "system identifier"}, "another database": {base, with(base, signalDatabase, "9"), "the database was 2 and is 9"},
		"installed anew": {base, with(base, signalInstallation, "9"), "installation"}, "closed to the role": {base, with(base, signalSystem, ""), ""},
		"moved": {file, with(file, signalPath, "/b"), ""}, "replaced in its place": {file, with(file, signalFile, "11"), ""},
		"copied": {file, with(file, signalPath, "/b", signalFile, "11"), "the file was /a and is /b"}, "no inodes": {with(file, signalFile, ""), with(file, signalFile, "", signalPath, "/b"), "the file was"},
	} {
		if got := strings.Join(c.was.Differs(c.now), "; "); (got == "") != (c.words == "") || !strings.Contains(got, c.words) {
			t.Errorf("%s: %q, want %q", name, got, c.words)
		}
	}
}

// The copy of a file differs; a file that was moved, and one that links lead to, do not.
func TestFileIdentity(t *testing.T) {
	l := newLab(t, SQLite)
	was, err := l.db.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path := strings.TrimPrefix(l.url, "sqlite:")
	at := func(path string) []string {
		db, err := Open(t.Context(), "lab", "sqlite:"+path, OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		now, err := db.Identity(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return was.Differs(now)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".copy", b, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(path, path+".link"); err != nil {
		t.Fatal(err)
	}
	if got := at(path + ".copy"); len(got) != 1 {
		t.Errorf("a copy: %v", got)
	}
	if got := at(path + ".link"); len(got) != 0 {
		t.Errorf("a link: %v", got)
	}
	l.db.Close()
	l.other.Close()
	if err := os.Rename(path, path+".moved"); err != nil {
		t.Fatal(err)
	}
	if got := at(path + ".moved"); len(got) != 0 {
		t.Errorf("moved: %v", got)
	}
}

package ledger

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/internal/dbtest"
)

// TestAuditIsAppendOnly attacks the audit log with SQL, past the program.
func TestAuditIsAppendOnly(t *testing.T) {
	attacks := map[string][]string{
		"sqlite": {
			`UPDATE curfew_audit SET actor = 'nobody'`,
			`UPDATE curfew_audit SET seq = seq + 100`,
			`UPDATE OR REPLACE curfew_audit SET actor = 'nobody'`,
			`DELETE FROM curfew_audit`,
			`DELETE FROM curfew_audit WHERE seq = 1`,
			`INSERT OR REPLACE INTO curfew_audit (seq, at, actor, action, policy, run, body) VALUES (1, '', 'nobody', '', '', '', '')`,
			`REPLACE INTO curfew_audit (seq, at, actor, action, policy, run, body) SELECT seq, at, 'nobody', action, policy, run, body FROM curfew_audit`,
			`INSERT INTO curfew_audit (seq, at, actor, action, policy, run, body) VALUES (1, '', '', '', '', '', '') ON CONFLICT (seq) DO UPDATE SET actor = 'nobody'`,
		},
		"postgres": {
			`UPDATE curfew.audit SET actor = 'nobody'`,
			`UPDATE curfew.audit SET actor = 'nobody' WHERE false`,
			`DELETE FROM curfew.audit`,
			`DELETE FROM curfew.audit WHERE seq = 1`,
			`TRUNCATE curfew.audit`,
			`INSERT INTO curfew.audit (seq, at, actor, action, policy, run, body) OVERRIDING SYSTEM VALUE
				VALUES (1, now(), '', '', '', '', '{}') ON CONFLICT (seq) DO UPDATE SET actor = 'nobody'`,
			`INSERT INTO curfew.audit (seq, at, actor, action, policy, run, body) VALUES (1, now(), '', '', '', '', '{}')`,
			`WITH x AS (DELETE FROM curfew.audit RETURNING 1) SELECT * FROM x`,
			`MERGE INTO curfew.audit a USING (SELECT 1 AS seq) s ON a.seq = s.seq WHEN MATCHED THEN DELETE`,
		},
	}
	onBothURLs(t, func(t *testing.T, url string) {
		l := open(t, Options{URL: url})
		r := admitOne(t, l, started(t, l, "p"), 1, 1)
		settleOne(t, l, r, 1, Outcomes{"deleted": 1})
		before := entries(t, l)
		db := raw(t, url)
		engine := "postgres"
		if l.sqlite {
			engine = "sqlite"
		}
		for _, attack := range attacks[engine] {
			_, err := db.ExecContext(t.Context(), attack)
			if err == nil {
				t.Errorf("%s: done", attack)
			} else if !strings.Contains(err.Error(), "append-only") && !strings.Contains(err.Error(), "428C9") {
				t.Errorf("%s: refused for another reason: %v", attack, err)
			}
		}
		if d := cmp.Diff(before, entries(t, l)); d != "" {
			t.Error(d)
		}
	})
}

// TestGrants: the role that the migrations' comments describe can do the ledger's
// work, and has no right to change the audit log even without the trigger.
func TestGrants(t *testing.T) {
	url := migrated(t, dbtest.Postgres(t))
	app, role := dbtest.PostgresRole(t, url)
	admin := raw(t, url)
	for _, name := range allMigrations {
		grants := 0
		text, err := migrations.ReadFile("migrations/postgres/" + name + ".sql")
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if grant, ok := strings.CutPrefix(strings.TrimSpace(line), "--   GRANT"); ok {
				grants++
				if _, err := admin.ExecContext(t.Context(), "GRANT"+strings.ReplaceAll(grant, "curfew_app", role)); err != nil {
					t.Fatal(err)
				}
			}
		}
		if grants == 0 {
			t.Fatalf("the migration %s names no grants", name)
		}
	}
	l := open(t, Options{URL: app})
	r := admitOne(t, l, started(t, l, "p"), 1, 2)
	r = pagedOut(t, l, r)
	settleOne(t, l, r, 1, Outcomes{"deleted": 1, "blocked": 1}, func(s *Settlement) { s.Blocked = []BlockedRow{row(1, "blocked", "fk")} })
	if err := l.Claim(t.Context(), r.ID, "me", 0); err != nil {
		t.Error(err)
	}
	if _, err := l.Heartbeat(t.Context(), r.ID, "me"); err != nil {
		t.Error(err)
	}
	if _, err := l.Interrupt(t.Context(), r.ID, ""); err != nil {
		t.Error(err)
	}
	if r, err := l.End(t.Context(), r.ID, Succeeded, WhyDone, ""); err != nil || r.State != Succeeded {
		t.Errorf("%s, %v", r.State, err)
	}
	if r, err := l.End(t.Context(), started(t, l, "p").ID, Failed, WhyError, ""); err != nil || r.State != Failed {
		t.Errorf("%s, %v", r.State, err)
	}
	if _, err := l.SeeDatabase(t.Context(), "library", "x", "", ""); err != nil {
		t.Error(err)
	}
	if err := errors.Join(l.DatabaseDiffers(t.Context(), "library", "it is a copy"), l.AdoptDatabase(t.Context(), "library", "y", "e", "", "it is a copy")); err != nil {
		t.Error(err)
	}
	for range 2 { // asked for, and once more
		if _, err := l.Approve(t.Context(), await(t, l, started(t, l, "p")).ID, "eve", "agreed"); err != nil {
			t.Error(err)
		}
	}
	scheduled := nightly(func(s *Scheduled) { s.Policy = "q" })
	firstTick(t, l, scheduled)
	if _, err := admin.ExecContext(t.Context(), `UPDATE curfew.schedule SET cursor = cursor - interval '3 days'`); err != nil {
		t.Fatal(err)
	}
	if got := tickOf(t, l, scheduled); len(got.Accepted) != 1 {
		t.Errorf("%+v", got)
	}
	putTasks(t, l, "file", aTask("mail", "1"), aTask("sms", "1"))
	putTasks(t, l, "file", aTask("mail", "2"))
	call := Holder{Job: 1, Attempt: 1}
	takes(t, l, "x", 1, call, nil, true)
	takes(t, l, "x", 1, Holder{Job: 2, Attempt: 1}, all(false), true)
	if err := l.Unlock(t.Context(), "x", call); err != nil {
		t.Error(err)
	}
	if err := l.SetOldestDue(t.Context(), "q", "", nil); err != nil {
		t.Error(err)
	}
	if err := l.Unschedule(t.Context(), "q", ""); err != nil {
		t.Error(err)
	}
	if _, _, err := l.AcceptClock(t.Context(), ""); err != nil {
		t.Error(err)
	}
	checkRun(t, l, r.ID)
	if _, err := admin.ExecContext(t.Context(), `ALTER TABLE curfew.audit DISABLE TRIGGER append_only`); err != nil {
		t.Fatal(err)
	}
	for _, attack := range []string{`UPDATE curfew.audit SET actor = ''`, `DELETE FROM curfew.audit`, `TRUNCATE curfew.audit`,
		`DELETE FROM curfew.run`, `UPDATE curfew.revision SET body = '{}'`, `ALTER TABLE curfew.audit ENABLE TRIGGER append_only`} {
		if _, err := l.write.ExecContext(t.Context(), attack); err == nil {
			t.Errorf("%s: done", attack)
		}
	}
}

func TestAuditEntries(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		r := admitOne(t, l, started(t, l, "p", func(a *Acceptance) { a.Stage = "pause" }), 1, 7)
		settleOne(t, l, r, 1, Outcomes{"deleted": 7}, func(s *Settlement) { s.Cascaded = 2 })
		if _, err := l.End(t.Context(), r.ID, Failed, WhyError, "no more"); err != nil {
			t.Fatal(err)
		}
		all := entries(t, l)
		got := map[string]map[string]any{}
		for i, e := range all {
			if e.At.IsZero() || e.Actor == "" || i > 0 && (e.Seq <= all[i-1].Seq || e.At.Before(all[i-1].At)) {
				t.Errorf("entry %d: %+v", i, e)
			}
			if e.Run != "" && (e.Run != r.ID || e.Policy != "p") {
				t.Errorf("entry %d is about run %q of %q", i, e.Run, e.Policy)
			}
			body := map[string]any{}
			if err := json.Unmarshal(e.Body, &body); err != nil {
				t.Errorf("entry %d: %v", i, err)
			}
			got[e.Action] = body
		}
		for action, want := range map[string]map[string]any{
			ActionBatchIntent: {"seq": 1.0, "phase": "trigger", "planned": 7.0},
			ActionBatchSettled: {"seq": 1.0, "planned": 7.0, "outcomes": map[string]any{"deleted": 7.0}, "cascaded": 2.0,
				"root": "01", "key_id": "6c1d3b0a"},
			ActionRunEnded: {"state": "failed", "why_ended": "error", "detail": "no more", "planned": 7.0,
				"outcomes": map[string]any{"deleted": 7.0}, "cascaded": 2.0, "batches_settled": 1.0, "batches_total": 1.0},
		} {
			if d := cmp.Diff(want, got[action]); d != "" {
				t.Errorf("%s: %s", action, d)
			}
		}
		if got[ActionRunAccepted]["stage"] != "pause" || got[ActionRunAccepted]["as_of"] == "" {
			t.Errorf("%v", got[ActionRunAccepted])
		}

		var paged []Entry
		for after := int64(0); ; {
			page, err := l.AuditEntries(t.Context(), after, 2)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			paged = append(paged, page...)
			after = page[len(page)-1].Seq
		}
		if d := cmp.Diff(all, paged); d != "" {
			t.Error(d)
		}
		if l.sqlite && all[len(all)-1].Seq != int64(len(all)) {
			t.Errorf("the last of %d entries has seq %d: there is a gap", len(all), all[len(all)-1].Seq)
		}
		if _, err := l.AuditEntries(t.Context(), 0, 0); err == nil {
			t.Error("no limit, no error")
		}
	})
}

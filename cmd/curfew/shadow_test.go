//go:build unix

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dbtest"
)

// rehearsed is what a shadow run says of a stock: the same, but that the rows which would go are due.
func rehearsed(k *stock) api.Outcomes {
	o := api.Outcomes{}
	for name, n := range k.outcomes {
		o[map[bool]string{true: "due", false: name}[name == "deleted"]] = n
	}
	return o
}

// TestShadowThenEnforce runs both for one instant: they are two runs, and only the second changes anything.
func TestShadowThenEnforce(t *testing.T) {
	onEachSite(t, twoPolicies, twoTables, func(s *site) {
		for _, policy := range []string{"plain", "rich"} {
			k := s.fill(policy, 200)
			all := s.left(k)
			shadow := s.answer(s.must(runArgs(policy, k.asOf, "--shadow")...))
			if diff := cmp.Diff(rehearsed(k), shadow.Outcomes); diff != "" || shadow.State != api.StateSucceeded || shadow.Mode != api.ModeShadow {
				s.Errorf("the shadow run is %s in mode %s; outcomes (-want +got):\n%s", shadow.State, shadow.Mode, diff)
			}
			if diff := cmp.Diff(all, s.left(k)); diff != "" {
				s.Errorf("the shadow run changed rows:\n%s", diff)
			}
			if n := s.count(s.db, "SELECT count(*) FROM "+s.inDatabase("receipt")+" WHERE run = '"+shadow.ID+"'"); n != 0 {
				s.Errorf("the shadow run left %d receipts", n)
			}
			s.audited(shadow)
			enforced := s.answer(s.must(runArgs(policy, k.asOf)...))
			if enforced.ID == shadow.ID || !enforced.AsOf.Equal(shadow.AsOf) || enforced.Mode != api.ModeEnforce {
				s.Errorf("shadow %+v\nenforced %+v", shadow, enforced)
			}
			s.exact(k, enforced)
			// Both are still what they were.
			if diff := cmp.Diff(shadow, s.answer(s.must(runArgs(policy, k.asOf, "--shadow")...))); diff != "" {
				s.Errorf("the shadow run changed:\n%s", diff)
			}
		}
	})
}

// TestShadowWithARoleThatMayNotDelete: a shadow run needs no right but to read, the holds included. The same role is refused
// an enforcing run before anything is recorded.
func TestShadowWithARoleThatMayNotDelete(t *testing.T) {
	for _, engine := range []string{postgres, mariadb} {
		for _, c := range []struct {
			name      string
			arrange   func(s *site)
			rehearses bool
		}{
			{"not installed", (*site).uninstall, true},
			{"installed", func(*site) {}, false},
			{"installed, with curfew's own grants", (*site).grantOwn, true},
		} {
			t.Run(engine+"/"+c.name, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, engine, ledgerFile, twoPolicies, twoTables...)
				s.asReader()
				c.arrange(s)
				for _, policy := range []string{"plain", "rich"} {
					k := s.fill(policy, 200)
					all := s.left(k)
					if shadow := s.start("", runArgs(policy, k.asOf, "--shadow")...); c.rehearses {
						s.well(shadow)
						r := s.answer(shadow)
						if diff := cmp.Diff(rehearsed(k), r.Outcomes); diff != "" || r.State != api.StateSucceeded {
							s.Errorf("the shadow run is %s; outcomes (-want +got):\n%s", r.State, diff)
						}
					} else {
						s.refused(shadow, exitRefused, "our role may not read curfew's tables", "curfew: hint: curfew install d --print")
					}
					s.refused(s.start("", runArgs(policy, k.asOf)...), exitRefused, "curfew: hint: ")
					if diff := cmp.Diff(all, s.left(k)); diff != "" {
						s.Errorf("rows changed:\n%s", diff)
					}
					if n := s.count(s.led, "SELECT count(*) FROM curfew_run WHERE mode = 'enforce'"); n != 0 {
						s.Errorf("a run that was refused is in the ledger")
					}
				}
			})
		}
	}
}

// asReader makes the program connect as a role that may only read.
func (s *site) asReader() {
	s.Helper()
	tables := []string{"session", "pin", "loan", "note", "claim", "fine"}
	if s.engine == postgres {
		s.url, s.role = dbtest.PostgresRole(s.T, s.url)
		s.exec("GRANT SELECT ON " + strings.Join(tables, ", ") + " TO " + s.role)
	} else {
		s.url, s.role = dbtest.MariaDBUser(s.T, s.url)
		for _, table := range tables {
			s.exec("GRANT SELECT ON " + table + " TO " + s.role)
		}
		s.exec("GRANT REFERENCES ON * TO " + s.role) // to see foreign keys; it gives no right over rows
	}
	s.configure(s.dir, twoPolicies)
}

// uninstall removes curfew's tables. On MariaDB a table that is not there looks like one that may not be read, unless the
// right to read is on the database.
func (s *site) uninstall() {
	s.Helper()
	if s.engine == postgres {
		s.exec("DROP SCHEMA curfew CASCADE")
		return
	}
	for _, table := range []string{"layout", "receipt", "tombstone", "hold", "hold_epoch", "passage"} {
		s.exec("DROP TABLE curfew_" + table)
	}
	s.exec("GRANT SELECT ON * TO " + s.role)
}

// grantOwn grants what curfew install lists for its own tables.
func (s *site) grantOwn() {
	s.Helper()
	var out struct{ Grants []string }
	if err := json.Unmarshal(s.must("install", "d", "--print", "--output", "json").stdout.Bytes(), &out); err != nil {
		s.Fatal(err)
	}
	granted := 0
	for _, grant := range out.Grants {
		if strings.Contains(grant, "curfew.") || strings.Contains(grant, "curfew_") || strings.Contains(grant, "SCHEMA curfew") {
			s.exec(strings.NewReplacer(`"CURFEW_ROLE"`, s.role, "CURFEW_ROLE", s.role).Replace(grant))
			granted++
		}
	}
	if granted < 4 {
		s.Fatalf("curfew install lists %q", out.Grants)
	}
}

// TestStoredRevisionExecutes: a run is accepted under one policy file and resumed under another, from another folder and then
// from its own, which was edited. It goes on as it was accepted; only the next run follows the new file.
func TestStoredRevisionExecutes(t *testing.T) {
	onEachSite(t, twoPolicies, twoTables, func(s *site) {
		elsewhere := t.TempDir()
		if b, err := os.ReadFile(filepath.Join(s.dir, "curfew.key")); err == nil {
			if err := os.WriteFile(filepath.Join(elsewhere, "curfew.key"), b, 0o600); err != nil {
				s.Fatal(err)
			}
		}
		// All that the first file keeps for its date or its branch would go under this one.
		greedy := strings.NewReplacer("keep: 30d", "keep: 1s", "branch <> 'archive'", "1 = 1", "rows: 50", "rows: 7", "rows: 40", "rows: 7").Replace(twoPolicies)
		s.configure(elsewhere, greedy)
		for _, policy := range []string{"plain", "rich"} {
			k := s.fill(policy, 200)
			if !s.kill(k, "committed:2") {
				s.Fatal("the run was not killed")
			}
			p := s.startIn(elsewhere, []string{atVar + "=committed:1:kill"}, runArgs(policy, k.asOf)...)
			if code := s.ended(p); code != -1 {
				s.Fatalf("the run was not killed: %d\n%s", code, p.stderr.String())
			}
			open := s.answer(s.start("", "show", s.runID(k), "--output", "json").waited())
			s.configure(s.dir, greedy)
			r := s.answer(s.must(runArgs(policy, k.asOf)...))
			s.exact(k, r)
			if r.ID != open.ID || r.Revision != open.Revision || !r.Cutoff.Equal(open.Cutoff) {
				s.Errorf("the run changed: it was %+v\nand is %+v", open, r)
			}

			// It removes what the text of before would have kept, and waits for somebody's word.
			args := runArgs(policy, k.asOf.Add(30*time.Second))
			waits := s.start("", args...)
			if code := s.ended(waits); code != exitNotWell {
				s.Fatalf("the run under a greedier text ended with %d\n%s", code, waits.stderr.String())
			}
			s.must("approve", s.answer(waits).ID)
			next := s.answer(s.must(args...))
			if next.Revision == r.Revision || !next.Cutoff.After(r.Cutoff) || next.Outcomes["deleted"] == 0 {
				s.Errorf("the next run does not follow the new file: %+v", next)
			}
			s.configure(s.dir, twoPolicies)
		}
	})
}

// waited is the process after its end.
func (p *process) waited() *process {
	p.t.Helper()
	p.wait()
	return p
}

// runID is the id of the stock's run that enforces.
func (s *site) runID(k *stock) string {
	s.Helper()
	layout := "2006-01-02T15:04:05.000000Z"
	return s.column(s.led, "SELECT id FROM "+s.inLedger("run")+" WHERE mode = 'enforce' AND policy = '"+k.policy+"' AND as_of = '"+k.asOf.Format(layout)+"'")[0]
}

//go:build unix

package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/api"
)

const actionPolicies = `
  pausing: {database: d, table: visit, keep: 30d, since: {SINCE}, action: {set: {state: paused, until: {as_of_plus: 14d}}}, mode: enforce, batch: {rows: 10, in_flight: 2, pace: none}}
  hiding: {database: d, table: visit, keep: 30d, since: {SINCE}, action: {anonymise: {name: {hash: true}, state: null}}, mode: enforce, batch: {rows: 10, in_flight: 2, pace: none}}
  moving: {database: d, table: visit, keep: 30d, since: {SINCE}, action: {archive: {to: visit_old}}, mode: enforce, batch: {rows: 10, in_flight: 2, pace: none}}
`

var actionTables = []string{
	"CREATE TABLE visit (id VARCHAR(64) NOT NULL PRIMARY KEY, at INSTANT NOT NULL, name VARCHAR(60) NOT NULL, state VARCHAR(20), until INSTANT)",
	"CREATE INDEX visit_at ON visit (at)",
	"CREATE TABLE visit_old (id VARCHAR(64) NOT NULL PRIMARY KEY, at INSTANT NOT NULL, name VARCHAR(60) NOT NULL, state VARCHAR(20), until INSTANT)",
}

// TestActionsKilled kills runs that set, anonymise and archive at each point of a batch, the first time and in the middle. Whoever
// follows does the rest: each due row was changed once, no other was, and an archived one is in one table.
func TestActionsKilled(t *testing.T) {
	const due, stay = 35, 5
	outcomes := map[string]string{"pausing": "set", "hiding": "anonymised", "moving": "archived"}
	done := map[string]string{
		"pausing": "SELECT count(*) FROM visit WHERE state = 'paused' AND until IS NOT NULL",
		"hiding":  "SELECT count(*) FROM visit WHERE name LIKE 'anon:%' AND state IS NULL",
		"moving":  "SELECT count(*) FROM visit_old WHERE name LIKE 'Name%' AND state = 'open'",
	}
	onEachSite(t, actionPolicies, actionTables, func(s *site) {
		for policy, outcome := range outcomes {
			for i, point := range []string{"stepped", "executing", "begun", "claimed", "copied", "changed", "completed", "committed", "executed", "ending"} {
				if point == "copied" && policy != "moving" {
					continue
				}
				s.asOf = s.asOf.Add(time.Minute)
				s.exec("DELETE FROM visit")
				s.exec("DELETE FROM visit_old")
				var rows []string
				for n := range due + stay {
					at := s.asOf.Add(-30*24*time.Hour - time.Duration(n+1)*time.Minute)
					if n >= due {
						at = s.asOf.Add(-30*24*time.Hour + time.Duration(n-due)*time.Minute) // the first lies exactly at the cutoff
					}
					rows = append(rows, fmt.Sprintf("('%s-%d', %s, 'Name %d', 'open')", keyMark, n, s.instant(at), n))
				}
				s.exec("INSERT INTO visit (id, at, name, state) VALUES " + strings.Join(rows, ", "))
				args := runArgs(policy, s.asOf)
				for turn, nth := range []int{1, 1 + i%2} {
					if code := s.ended(s.start(fmt.Sprintf("%s:%d:kill", point, nth), args...)); code != -1 && (code != exitDone || turn == 0) {
						s.Fatalf("%s: a run that is to be killed at %s ended with %d", policy, point, code)
					}
				}
				for range 2 { // asked for again it is the same run
					r := s.answer(s.must(args...))
					if diff := cmp.Diff(api.Outcomes{outcome: due}, r.Outcomes); diff != "" || r.State != api.StateSucceeded || r.Planned != due {
						s.Errorf("%s killed at %s: %s, outcomes (-want +got):\n%s", policy, point, r.State, diff)
					}
					s.consistent(r)
				}
				if n := s.count(s.db, done[policy]); n != due {
					s.Errorf("%s killed at %s: done to %d rows", policy, point, n)
				}
				if n := s.count(s.db, "SELECT count(*) FROM visit WHERE name LIKE 'Name%' AND state = 'open'"); n != stay {
					s.Errorf("%s killed at %s: %d rows are as they were", policy, point, n)
				}
				if n := s.count(s.db, "SELECT count(*) FROM (SELECT id FROM visit UNION ALL SELECT id FROM visit_old) u"); n != due+stay {
					s.Errorf("%s killed at %s: %d rows in both tables together", policy, point, n)
				}
			}
			// A run of its own finds nothing.
			if r := s.answer(s.must(append(runArgs(policy, s.asOf), "--operation", "again-"+policy)...)); r.Planned != 0 {
				s.Errorf("%s: a second run: %v", policy, r.Outcomes)
			}
		}
	})
}

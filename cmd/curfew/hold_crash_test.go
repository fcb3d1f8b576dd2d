//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"testing"

	"curfew.dev/curfew/api"
)

// Who places or releases a hold is killed at every step of it. A hold that the ledger has keeps its row in every run that follows,
// and the same command, or the run itself, goes on with it; of one whose release the ledger has, the row goes.
func TestHoldKilledAtEveryStep(t *testing.T) {
	onEachSite(t, twoPolicies, twoTables, func(s *site) {
		for i, point := range []string{"hold_recorded", "hold_locked", "hold_written", "hold_committed", "hold_marked"} {
			name, row := fmt.Sprintf("court-%d", i), fmt.Sprintf("held-%d", i)
			k := s.fill("plain", 10)
			s.exec("INSERT INTO session VALUES ('" + row + "', '2001-01-01 00:00:00', 'main')")
			place := []string{"hold", "place", "--name", name, "--reason", "order", "--policy", "plain", "--where", "id=" + row, "--output", "json"}
			if code := s.ended(s.start(point+":1:kill", place...)); code != -1 {
				s.Fatalf("%s: the placing was not killed: %d", point, code)
			}
			there := func() bool { return len(s.column(s.db, "SELECT id FROM session WHERE id = '"+row+"'")) == 1 }
			run := func() api.Run { return s.answer(s.must(runArgs("plain", k.asOf)...)) }
			if i%2 == 0 { // the run finds it unfinished
				if r := run(); r.Outcomes["held"] != 1 || !there() {
					s.Errorf("%s: %v", point, r.Outcomes)
				}
			}
			var h api.Hold
			if err := json.Unmarshal(s.must(place...).stdout.Bytes(), &h); err != nil || h.State != api.HoldInForce {
				s.Errorf("%s: placed again it is %+v, %v", point, h, err)
			}
			if i%2 == 1 {
				if r := run(); r.Outcomes["held"] != 1 || !there() {
					s.Errorf("%s: %v", point, r.Outcomes)
				}
			}
			at := point
			if point == "hold_recorded" {
				at = "hold_release_recorded"
			}
			if code := s.ended(s.start(at+":1:kill", "hold", "release", name)); code != -1 {
				s.Fatalf("%s: the release was not killed: %d", at, code)
			}
			if i%2 == 0 {
				s.must("hold", "release", name)
			}
			k = s.fill("plain", 10)
			if r := run(); r.Outcomes["held"] != 0 || there() {
				s.Errorf("%s, released: %v", at, r.Outcomes)
			}
		}
	})
}

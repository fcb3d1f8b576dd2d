package main

import "testing"

// stagedPolicy is plain of twoPolicies as the only stage of a policy.
const stagedPolicy = `
  plain: {database: d, table: session, keep: 20d, since: {SINCE}, mode: enforce, batch: {rows: 50, in_flight: 2, pace: none},
    stages: [{name: end, at: 10d, action: delete}]}
`

// TestStageKilled kills runs of a stage where rows are judged, where their passage is recorded, and around. Whoever follows does
// the rest, exactly.
func TestStageKilled(t *testing.T) {
	onEachSite(t, stagedPolicy, twoTables, func(s *site) {
		for _, at := range []string{"claimed:2", "judged:1", "judged:2", "passed:1", "passed:3", "changed:2", "completed:1", "committed:2"} {
			k := s.fill("plain", 180)
			if !s.kill(k, at) {
				s.Errorf("a run passed %q and was not killed", at)
			}
			s.finish(k)
		}
	})
}

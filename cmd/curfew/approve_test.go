//go:build unix

package main

import (
	"strings"
	"testing"

	"curfew.dev/curfew/api"
)

// TestAwaitsApproval: a run that would remove more than its policy allows is killed while it is counted, waits, is approved by two
// people at once, is killed again in the middle, and has in the end removed exactly what it was to remove.
func TestAwaitsApproval(t *testing.T) {
	limited := strings.NewReplacer("batch: {rows: 50", "limits: {max_rows: 60, max_share: 90%}, batch: {rows: 50", "batch: {rows: 40", "limits: {max_rows: 60}, batch: {rows: 40").Replace(twoPolicies)
	onEachSite(t, limited, twoTables, func(s *site) {
		for _, policy := range []string{"plain", "rich"} {
			k := s.fill(policy, 200)
			goes := int(k.outcomes["deleted"])
			before := len(s.left(k))
			if !s.kill(k, "awaiting:1") {
				s.Fatal("the run was not killed")
			}
			p := s.start("", runArgs(policy, k.asOf)...)
			s.refused(p, exitNotWell, "awaiting approval", "curfew approve", "max_rows is 60")
			run := s.answer(p)
			if run.State != api.StateAwaitingApproval || len(s.left(k)) != before {
				s.Fatalf("%+v; %d rows of %d are left", run, len(s.left(k)), before)
			}
			shown := s.must("show", run.ID[:12]).stdout.String()
			for _, want := range []string{"asked for since", "it would remove " + count(int64(goes)), "would remove  " + count(int64(goes))} {
				if !strings.Contains(shown, want) {
					s.Errorf("show does not say %q:\n%s", want, shown)
				}
			}
			one, two := s.start("", "approve", run.ID[:12], "--reason", "agreed"), s.start("", "approve", run.ID)
			if a, b := s.ended(one), s.ended(two); a+b != exitRefused || a == b {
				s.Errorf("two approvals at once ended with %d and %d", a, b)
			}
			if !s.kill(k, "committed:2") {
				s.Fatal("the run was not killed")
			}
			s.finish(k)

			k = s.fill(policy, 200)
			p = s.start("", runArgs(policy, k.asOf)...)
			s.refused(p, exitNotWell)
			before = len(s.left(k))
			s.must("cancel", s.answer(p).ID, "--reason", "not now")
			s.refused(s.start("", "approve", s.answer(p).ID), exitRefused, "does not wait for approval: it is cancelled")
			if len(s.left(k)) != before {
				s.Errorf("%d rows of %d are left", len(s.left(k)), before)
			}
		}
	})
}

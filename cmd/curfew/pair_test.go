//go:build unix

package main

import (
	"strings"
	"syscall"
	"testing"

	"curfew.dev/curfew/api"
)

// TestTwoProcessesOneRun lets two processes work on one run, several times: both end well, and the work is done once.
func TestTwoProcessesOneRun(t *testing.T) {
	for _, kind := range []struct{ engine, ledger string }{{postgres, ledgerWithin}, {mariadb, ledgerFile}, {sqlite, ledgerWithin}, {sqlite, ledgerPostgres}} {
		t.Run(kind.engine+"/ledger="+kind.ledger, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, kind.engine, kind.ledger, twoPolicies, twoTables...)
			for round := range 6 {
				k := s.fill([]string{"plain", "rich"}[round%2], 400)
				letGo := func() {}
				if kind.engine == postgres { // some rows are left for the pass at the end, which both come to
					letGo = s.hold(k, k.due[:5])
				}
				one := s.start("", runArgs(k.policy, k.asOf)...)
				two := s.start("", runArgs(k.policy, k.asOf)...)
				s.lastPass(k, one)
				letGo()
				s.well(one)
				s.well(two)
				s.exact(k, s.answer(one))
				s.exact(k, s.answer(two))
			}
		})
	}
}

// lastPass waits, on PostgreSQL, until a run has taken up its deferred rows.
func (s *site) lastPass(k *stock, p *process) {
	s.Helper()
	if s.engine != postgres {
		return
	}
	s.eventually(p, "take up the deferred rows", func() bool {
		return s.count(s.led, "SELECT count(*) FROM "+s.inLedger("batch")+" JOIN "+s.inLedger("run")+" r ON r.id = run WHERE phase = 'retry' AND as_of = "+s.instant(k.asOf)) > 0
	})
}

// TestOnePagesWhileTheOtherSettles: a process that only settles, because the pace makes it wait with its next page, learns by
// that how far another has paged. It must go on from there, not from where itself was.
func TestOnePagesWhileTheOtherSettles(t *testing.T) {
	t.Parallel()
	s := newSite(t, postgres, ledgerWithin, strings.ReplaceAll(oneByOne, "pace: none", "pace: 10"), twoTables...)
	k := s.fill("plain", 63)
	one := s.start("executed:1:stop", runArgs("plain", k.asOf)...)
	one.stopped("executed")
	two := s.start("executing:2:pause", runArgs("plain", k.asOf)...)
	two.stopped("executing")
	one.signal(syscall.SIGCONT)
	s.well(one)
	s.exact(k, s.answer(one))
	two.signal(syscall.SIGCONT)
	s.well(two)
	s.exact(k, s.answer(two))
}

// TestOneEndsWhileTheOtherRetries: one process has seen that all batches are settled; before it looks for deferred rows, the
// other takes them up. The run is not finished then, and the first must not end it.
func TestOneEndsWhileTheOtherRetries(t *testing.T) {
	for _, kind := range sites[:2] {
		t.Run(kind.engine, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, kind.engine, kind.ledger, oneByOne, twoTables...)
			for _, policy := range []string{"plain", "rich"} {
				k := s.fill(policy, 400)
				letGo := s.hold(k, k.due[:1])
				one := s.start("finishing:1:stop", runArgs(policy, k.asOf)...)
				one.stopped("finishing")
				two := s.start("executing:1:pause", runArgs(policy, k.asOf)...)
				two.stopped("executing")
				one.signal(syscall.SIGCONT)
				s.waitsForALock(one) // it helps, and comes to the rows that are locked
				letGo()
				s.well(one)
				s.exact(k, s.answer(one))
				two.signal(syscall.SIGCONT)
				s.well(two)
				s.exact(k, s.answer(two))
			}
		})
	}
}

// TestKilledInTheLastPass kills a run that waits for locked rows, which it has taken up again.
func TestKilledInTheLastPass(t *testing.T) {
	for _, kind := range sites[:2] {
		t.Run(kind.engine, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, kind.engine, kind.ledger, oneByOne, twoTables...)
			passes := []string{"plain changed:1", "rich committed:1"}
			if kind.engine == postgres { // MariaDB waits for whole seconds
				passes = append(passes, "plain stepping:1", "rich executing:1", "plain executed:1", "rich changed:1", "plain finishing:2")
			}
			for _, pass := range passes {
				policy, point, _ := strings.Cut(pass, " ")
				k := s.fill(policy, 400)
				letGo := s.hold(k, k.due[:1])
				if !s.kill(k, "finishing:1") {
					s.Fatal("the run was not killed before its last pass")
				}
				letGo()
				if !s.kill(k, point) {
					s.Errorf("the run was not killed at %s in its last pass", point)
				}
				s.finish(k)
			}
		})
	}
}

// TestLockedToTheEnd: rows that another session keeps locked through both passes are told as such; the next run takes them.
func TestLockedToTheEnd(t *testing.T) {
	t.Parallel()
	s := newSite(t, postgres, ledgerFile, oneByOne, twoTables...)
	k := s.fill("plain", 40)
	letGo := s.hold(k, k.due[:1])
	r := s.answer(s.must(runArgs("plain", k.asOf)...))
	letGo()
	if r.State != api.StateSucceeded || r.Outcomes["locked"] != 1 || r.Outcomes["deleted"] != k.outcomes["deleted"]-1 {
		t.Errorf("the run is %+v", r)
	}
	r = s.answer(s.must("run", "plain", "--output", "json"))
	if r.Outcomes["deleted"] < 1 || len(s.left(k)) > len(k.stay) {
		t.Errorf("the next run is %+v", r)
	}
}

//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// points are where a run can be killed, in the order in which a batch passes them.
var points = []string{
	"accepted", "started", "paging", "paged", "stepping", "stepped", "executing", "begun", "claimed", "changed", "completed", "committed",
	"executed", "finishing", "ending", "ended",
}

// sites are the databases and ledgers that a test goes through.
var sites = []struct{ engine, ledger string }{
	{postgres, ledgerWithin},
	{mariadb, ledgerFile},
	{sqlite, ledgerWithin},
}

func onEachSite(t *testing.T, policies string, tables []string, test func(s *site)) {
	t.Helper()
	for _, kind := range sites {
		t.Run(kind.engine+"/ledger="+kind.ledger, func(t *testing.T) {
			t.Parallel()
			test(newSite(t, kind.engine, kind.ledger, policies, tables...))
		})
	}
}

// kill starts a run that is to be killed at the point, and reports whether it was; else it has ended well.
func (s *site) kill(k *stock, at string) bool {
	s.Helper()
	p := s.start(at+":kill", runArgs(k.policy, k.asOf)...)
	code := s.ended(p)
	if code != -1 && code != exitDone {
		s.Fatalf("a run that is to be killed at %s ended with %d:\n%s", at, code, p.stderr.String())
	}
	return code == -1
}

// finish resumes the run and checks what became of it.
func (s *site) finish(k *stock) {
	s.Helper()
	s.exact(k, s.answer(s.must(runArgs(k.policy, k.asOf)...)))
	if s.Failed() {
		s.FailNow()
	}
}

// passed counts how often an undisturbed run passes each point.
func (s *site) passed(policy string, rows int) map[string]int {
	s.Helper()
	k := s.fill(policy, rows)
	trace := filepath.Join(s.dir, "trace-"+policy)
	s.well(s.startIn(s.dir, []string{traceVar + "=" + trace}, runArgs(policy, k.asOf)...))
	s.finish(k)
	text, err := os.ReadFile(trace)
	if err != nil {
		s.Fatal(err)
	}
	seen := map[string]int{}
	for point := range strings.Lines(string(text)) {
		seen[strings.TrimSpace(point)]++
		seen["any"]++
	}
	return seen
}

// TestKilledAtEveryPoint kills a run the first time it comes by each point, its successor the second time, and another run
// the last time. Whoever follows finds what is there and does the rest, exactly.
func TestKilledAtEveryPoint(t *testing.T) {
	const few, many = 120, 250
	onEachSite(t, twoPolicies, twoTables, func(s *site) {
		passes := map[string]map[string]int{"plain": s.passed("plain", many), "rich": s.passed("rich", few)}
		for i, point := range points {
			one, other := "plain", "rich"
			if i%2 == 1 {
				one, other = other, one
			}
			if passes[one][point] == 0 {
				s.Fatalf("no run passes %q", point)
			}
			k := s.fill(one, few)
			if !s.kill(k, point+":1") {
				s.Errorf("a run passed %q and was not killed", point)
			}
			s.kill(k, point+":2")
			s.finish(k)

			// How often some points are passed varies a little with who is first: the last time is looked for from above.
			for n := passes[other][point]; ; n-- {
				k := s.fill(other, map[string]int{"plain": many, "rich": few}[other])
				killed := s.kill(k, fmt.Sprintf("%s:%d", point, n))
				s.finish(k)
				if killed {
					break
				}
			}
		}
	})
}

// TestKilledAtRandom kills fifty processes on each database: between two steps, and at any moment.
func TestKilledAtRandom(t *testing.T) {
	const kills, rows = 50, 200
	onEachSite(t, twoPolicies, twoTables, func(s *site) {
		start := time.Now()
		passes := s.passed("rich", rows)["any"]
		whole := time.Since(start)
		for killed := 0; killed < kills; {
			k := s.fill([]string{"plain", "rich"}[s.rand.IntN(2)], rows)
			for alive := false; !alive && killed < kills; {
				if s.rand.IntN(2) == 0 {
					alive = !s.kill(k, fmt.Sprintf("any:%d", 1+s.rand.IntN(passes/2)))
				} else {
					alive = !s.killAfter(k, time.Duration(s.rand.Int64N(int64(whole/2))))
				}
				if !alive {
					killed++
				}
			}
			s.finish(k)
		}
		// The same said once more, over all runs.
		var deleted int64
		runs := s.accounts(s.led, "SELECT ROW_NUMBER() OVER (), planned, outcomes FROM "+s.inLedger("run")+" WHERE state = 'succeeded'")
		for _, a := range runs {
			deleted += a.Outcomes["deleted"]
		}
		if deleted != s.gone {
			s.Errorf("%d rows are gone, the runs deleted %d", s.gone, deleted)
		}
		s.Logf("%d runs, %d rows deleted", len(runs), deleted)
	})
}

// killAfter is kill by the clock.
func (s *site) killAfter(k *stock, d time.Duration) bool {
	s.Helper()
	p := s.start("", runArgs(k.policy, k.asOf)...)
	// The clock starts when the process has: a deadline that has passed before is no kill.
	timer := time.AfterFunc(d, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	code := s.ended(p)
	if code != -1 && code != exitDone {
		s.Fatalf("a run that is to be killed ended with %d:\n%s", code, p.stderr.String())
	}
	return code == -1
}

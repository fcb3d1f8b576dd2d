//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestMaxWorkersOfAllProcesses: of three processes with different policies on one database with max_workers: 2, the third begins no
// batch while the first two, which are frozen, have one at work each. It goes on as soon as one of them does, or is killed; and with
// max_workers: 3 it never waits.
func TestMaxWorkersOfAllProcesses(t *testing.T) {
	policies := oneByOne + "  third: {database: d, table: extra, keep: 30d, since: {SINCE}, action: delete, mode: enforce, batch: {rows: 20, in_flight: 1, pace: none}}\n"
	tables := append([]string{"CREATE TABLE extra (id VARCHAR(64) NOT NULL PRIMARY KEY, at INSTANT NOT NULL)"}, twoTables...)
	for _, kind := range sites[:2] { // SQLite has one writer
		t.Run(kind.engine, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, kind.engine, kind.ledger, policies, tables...)
			file := filepath.Join(s.dir, "curfew.yaml")
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range []struct {
				workers int
				wake    syscall.Signal
			}{{2, syscall.SIGCONT}, {2, syscall.SIGKILL}, {3, syscall.SIGCONT}} {
				write(t, file, strings.Replace(string(text), "max_workers: 4", fmt.Sprintf("max_workers: %d", c.workers), 1))
				var stocks [2]*stock
				var frozen [2]*process
				for i, policy := range []string{"plain", "rich"} {
					stocks[i] = s.fill(policy, 100)
					frozen[i] = s.start("claimed:2:pause", runArgs(policy, stocks[i].asOf)...)
					frozen[i].stopped("claimed")
				}
				s.exec("INSERT INTO extra VALUES ('" + keyMark + "', " + s.instant(s.asOf.AddDate(-1, 0, 0)) + ")")
				trace := filepath.Join(s.dir, fmt.Sprintf("trace-%d-%d", c.workers, c.wake))
				third := s.startIn(s.dir, []string{atVar + "=full:1:say", traceVar + "=" + trace}, runArgs("third", s.asOf)...)
				if c.workers == 2 {
					third.says(marker + "full")
					s.eventually(third, "ask again", func() bool { return s.reached(trace, "full") > 3 })
					if n := s.reached(trace, "begun"); n > 0 {
						t.Errorf("%d batches were begun beside two that are at work, with max_workers: 2", n)
					}
					frozen[0].signal(c.wake)
					s.well(third)
				} else {
					s.well(third)
					if n := s.reached(trace, "full"); n > 0 {
						t.Errorf("it waited %d times, with max_workers: 3", n)
					}
					frozen[0].signal(c.wake)
				}
				if r := s.answer(third); r.Outcomes["deleted"] != 1 {
					t.Errorf("%+v, want one row deleted", r)
				}
				frozen[1].signal(syscall.SIGCONT)
				if c.wake == syscall.SIGKILL {
					if code := s.ended(frozen[0]); code != -1 {
						t.Errorf("the first ended with %d and was not killed", code)
					}
					frozen[0] = s.start("", runArgs("plain", stocks[0].asOf)...)
				}
				for i, p := range frozen {
					s.well(p)
					s.exact(stocks[i], s.answer(p))
				}
			}
		})
	}
}

// reached is how often a process came by a point.
func (s *site) reached(trace, point string) int {
	s.Helper()
	b, err := os.ReadFile(trace)
	if err != nil {
		s.Fatal(err)
	}
	n := 0
	for line := range strings.SplitSeq(string(b), "\n") {
		if line == point {
			n++
		}
	}
	return n
}

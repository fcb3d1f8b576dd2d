//go:build unix

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// TestServeKilledAtEachPoint kills a service at each point that a run comes by, on its way from the schedule to its end; another
// one, started after it, finds all that is needed in the ledger.
func TestServeKilledAtEachPoint(t *testing.T) {
	points := []string{"started:1", "paging:1", "paged:2", "stepping:2", "stepped:2", "begun:1", "claimed:2", "found:1", "changed:2",
		"completed:1", "committed:2", "finishing:1", "ending:1", "ended:1"}
	for _, c := range []struct {
		engine, ledger string
		points         []string
	}{{sqlite, ledgerFile, points}, {postgres, ledgerWithin, []string{"paged:2", "stepped:2", "changed:2", "committed:2", "ending:1"}}} {
		for _, point := range c.points {
			t.Run(c.engine+"/"+point, func(t *testing.T) {
				t.Parallel()
				s := newSite(t, c.engine, c.ledger, firePolicies(1), twoTables...)
				s.hasten()
				var rows []string
				for i := range 90 {
					rows = append(rows, fmt.Sprintf("('%s-%d', %s, 'b0')", keyMark, i, s.instant(s.asOf.AddDate(-1, 0, 0))))
				}
				s.exec("INSERT INTO session VALUES " + strings.Join(rows, ", "))
				env := []string{fmt.Sprintf("%s=%d", speedVar, fastTime)}
				one := s.startIn(s.dir, append(env, atVar+"="+point+":kill"), "serve", "--listen", "127.0.0.1:0")
				if code := s.ended(one); code != -1 {
					t.Fatalf("it ended with exit code %d and was not killed:\n%s", code, tail(one.stderr.String()))
				}
				two := s.startIn(s.dir, env, "serve", "--listen", "127.0.0.1:0")
				two.says("listening")
				first := "SELECT count(*) FROM " + s.inLedger("occurrence") + " WHERE state = 'ok' AND at = (SELECT min(at) FROM " + s.inLedger("occurrence") + ")"
				s.eventually(two, "end the first occurrence well", func() bool { return s.count(s.led, first) == 1 })
				two.signal(syscall.SIGTERM)
				if code := s.ended(two); code != 0 {
					t.Errorf("the second ended with exit code %d:\n%s", code, tail(two.stderr.String()))
				}
				f := &fire{site: s, fed: len(rows), hits: map[string]int{}}
				f.reckon(1)
			})
		}
	}
}

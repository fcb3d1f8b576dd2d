//go:build unix

package main

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

const crashPoolToken = "pool-token-9d2b7c5e1f3a8064b7d95e21"

// startPool starts a worker pool on the site's database, at an address or, when that is "", at any, and returns where it listens.
func (s *site) startPool(at, address string) (p *process, listens string) {
	s.Helper()
	if address == "" {
		address = "127.0.0.1:0"
	}
	p = s.startIn(s.dir, []string{atVar + "=" + at, "CURFEW_POOL_TOKEN=" + crashPoolToken}, "worker", "--listen", address)
	p.says("listening")
	m := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(p.stderr.String())
	if m == "" {
		s.Fatalf("it does not say where it listens:\n%s", p.stderr.String())
	}
	return p, m
}

// TestPoolKilledAtEachPoint kills the dispatcher between offer and admission, or the pool in the middle of a batch; whoever comes next
// finds what it needs in the ledger and in the receipts, and every row goes once.
func TestPoolKilledAtEachPoint(t *testing.T) {
	const policies = "  plain: {database: d, table: session, keep: 30d, since: {column: at}, action: delete, mode: enforce, batch: {rows: 20, in_flight: 2, pace: none}}\n"
	for _, c := range []struct{ who, point string }{
		{"dispatcher", "started:1"}, {"dispatcher", "paged:2"}, {"dispatcher", "offered:1"}, {"dispatcher", "offered:3"}, {"dispatcher", "offering:2"},
		{"dispatcher", "admitted:1"}, {"dispatcher", "admitted:3"}, {"dispatcher", "moved:2"}, {"dispatcher", "executed:2"}, {"dispatcher", "ending:1"},
		{"pool", "claimed:1"}, {"pool", "changed:2"}, {"pool", "completed:3"}, {"pool", "committed:2"},
	} {
		t.Run(c.who+"/"+c.point, func(t *testing.T) {
			t.Parallel()
			s := newSite(t, postgres, ledgerFile, policies, twoTables...)
			s.secrets["the pool's token"] = crashPoolToken
			var rows []string
			for i := range 130 {
				rows = append(rows, fmt.Sprintf("('%s-%d', %s, 'b0')", keyMark, i, s.instant(s.asOf.AddDate(-1, 0, 0))))
			}
			s.exec("INSERT INTO session VALUES " + strings.Join(rows, ", "))
			atPool, atDispatcher := "", c.point+":kill"
			if c.who == "pool" {
				atPool, atDispatcher = c.point+":kill", ""
			}
			pool, address := s.startPool(atPool, "")
			dir := t.TempDir()
			write(t, filepath.Join(dir, "curfew.yaml"), fmt.Sprintf("version: 1\ndatabases: {d: {workers: {url: %q, token: %q}}}\npolicies:\n%s", "http://"+address, crashPoolToken, policies))
			one := s.startIn(dir, []string{atVar + "=" + atDispatcher}, runArgs("plain", s.asOf)...)
			if c.who == "pool" {
				if code := s.ended(pool); code != -1 {
					t.Fatalf("the pool ended with %d and was not killed:\n%s", code, tail(pool.stderr.String()))
				}
				pool, _ = s.startPool("", address)
				s.well(one)
			} else if code := s.ended(one); code != -1 {
				t.Fatalf("it ended with %d and was not killed:\n%s", code, tail(one.stderr.String()))
			}
			two := s.startIn(dir, nil, runArgs("plain", s.asOf)...)
			s.well(two)
			run := s.answer(two)
			if run.Planned != 130 || run.Outcomes["deleted"] != 130 || len(run.Outcomes) != 1 || run.Batches.Total != run.Batches.Settled {
				t.Errorf("run %+v", run)
			}
			if n := s.count(s.db, "SELECT count(*) FROM session"); n != 0 {
				t.Errorf("%d rows are left", n)
			}
			if n := s.count(s.db, "SELECT count(*) FROM curfew.receipt"); int64(n) != run.Batches.Total {
				t.Errorf("%d receipts for %d batches", n, run.Batches.Total)
			}
			pool.signal(syscall.SIGTERM)
			begin := time.Now()
			if code := s.ended(pool); code != exitDone {
				t.Errorf("after %v the pool ended with %d:\n%s", time.Since(begin), code, tail(pool.stderr.String()))
			}
		})
	}
}

//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"curfew.dev/curfew/internal/dbtest"
)

// address is where a service that was started answers.
func (p *process) address() string {
	p.t.Helper()
	p.says(`"msg":"listening"`)
	for line := range strings.SplitSeq(p.stderr.String(), "\n") {
		var entry struct{ Msg, Address string }
		if json.Unmarshal([]byte(line), &entry) == nil && entry.Msg == "listening" {
			return "http://" + entry.Address
		}
	}
	p.t.Fatalf("it listens, and does not say where:\n%s", p.stderr.String())
	return ""
}

// readiness is what a service says of itself, and the status with it.
func (s *site) readiness(url string) (status int, failed []string) {
	s.Helper()
	res, err := http.Get(url + "/readyz")
	if err != nil {
		s.Fatal(err)
	}
	defer res.Body.Close()
	var body struct{ Failed []string }
	if err := json.NewDecoder(res.Body).Decode(&body); err != nil {
		s.Fatal(err)
	}
	return res.StatusCode, body.Failed
}

// TestDatabaseRestarts: the server with the governed database crashes and comes back.
func TestDatabaseRestarts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	server := dbtest.PostgresServer(t)
	t.Setenv(dbtest.PostgresVar, server.URL)
	t.Run("storm", func(t *testing.T) { restartsInTheStorm(t, server) })
	t.Run("commits", func(t *testing.T) { crashAfterTheRun(t, server) })
}

// restartsInTheStorm: the server has the ledger too. It crashes in the midst of the work of a service and a worker, twice to come
// back at once, and once to stay away for a while. Afterwards all is as if it had not: each instant has its one run, each due row is gone
// once, by the counts of the runs, and each that was renewed is there. Meanwhile the service says that it is not ready, and later
// that it is.
func restartsInTheStorm(t *testing.T, server *dbtest.Server) {
	const policies = 3
	s := newSite(t, postgres, ledgerWithin, firePolicies(policies), twoTables...)
	s.hasten()
	s.db.SetMaxIdleConns(0) // a connection kept is one that the server has ended meanwhile
	f := &fire{site: s, hits: map[string]int{}, args: [][]string{{"serve", "--listen", "127.0.0.1:0"}, {"worker"}}, live: make([]*process, 2)}
	for i := range f.args {
		f.launch(i)
	}
	serve := f.live[0]
	url := serve.address()
	ready := func() bool { status, _ := s.readiness(url); return status == http.StatusOK }
	s.eventually(serve, "get ready", ready)

	var fed sync.WaitGroup
	ctx, over := context.WithCancel(t.Context())
	defer over()
	fed.Go(func() { f.feed(ctx, s.db, policies) })

	ok := "SELECT count(*) FROM curfew.occurrence WHERE state = 'ok'"
	for i, outage := range []func(){
		func() { server.Restart("immediate") },
		func() {
			server.Stop("immediate")
			s.eventually(serve, "stop being ready", func() bool {
				status, failed := s.readiness(url)
				return status == http.StatusServiceUnavailable && slices.Contains(failed, "ledger")
			})
			server.Start()
		},
		func() { server.Restart("immediate") },
	} {
		before := s.count(s.db, ok)
		s.eventually(serve, fmt.Sprintf("get on, %d. time", i), func() bool { return s.count(s.db, ok) >= before+policies })
		s.eventually(serve, "have a batch in hand", func() bool { return s.count(s.db, "SELECT count(*) FROM curfew.batch WHERE state = 'pending'") > 0 })
		f.gate.Lock()
		outage()
		f.gate.Unlock()
		s.eventually(serve, "get ready again", ready)
	}
	before := s.count(s.db, ok)
	s.eventually(serve, "get on at last", func() bool { return s.count(s.db, ok) >= before+policies })
	for _, p := range f.live {
		if !p.running() {
			t.Errorf("%v ended by itself:\n%s", p.cmd.Args, tail(p.stderr.String()))
		}
	}
	over()
	fed.Wait()
	f.settle()
	f.reckon(policies)
}

// crashAfterTheRun: where a database gives up durable commits for speed, a batch does not: its ledger, which is elsewhere, would
// count rows as deleted that are back after a crash.
func crashAfterTheRun(t *testing.T, server *dbtest.Server) {
	s := newSite(t, postgres, ledgerFile, twoPolicies, twoTables...)
	s.db.SetMaxIdleConns(0)
	s.exec("ALTER SYSTEM SET wal_writer_delay = '10s'") // so that nothing is written by the way
	s.exec("ALTER DATABASE " + s.column(s.db, "SELECT current_database()")[0] + " SET synchronous_commit = off")
	s.exec("SELECT pg_reload_conf()")
	for _, policy := range []string{"plain", "rich"} {
		k := s.fill(policy, 100)
		done := s.answer(s.must(runArgs(policy, k.asOf)...))
		server.Restart("immediate")
		s.exact(k, done)
	}
}

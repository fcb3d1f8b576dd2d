//go:build unix

package main

import (
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"curfew.dev/curfew/internal/mailtest"
)

// TestServeTells keeps two stages of a policy with two services on one ledger, of which one is killed: what the mail server does
// not take for longer than a batch is patient comes back through the queue, and everybody is told once by each stage.
func TestServeTells(t *testing.T) {
	for _, kind := range []struct{ engine, ledger string }{{sqlite, ledgerFile}, {postgres, ledgerWithin}} {
		t.Run(kind.engine, func(t *testing.T) {
			t.Parallel()
			var open atomic.Bool
			m := &mailtest.Server{Fate: func(to string) mailtest.Fate {
				if !open.Load() && to != "" {
					return mailtest.LaterAddress
				}
				return mailtest.Accept
			}}
			m.Start(t)
			s := newSite(t, kind.engine, kind.ledger, fmt.Sprintf(`
  trials:
    database: d
    table: organization
    until: {SINCE}
    mode: enforce
    retry: {attempts: 20, backoff: 1s, factor: 1}
    schedule: {cron: "* * * * *", start_within: 30d}
    stages:
      - {name: remind, at: -30d, action: {notify: {email: email, subject: "{{.name}} ends", text: "{{.stage}} {{.due}}"}}}
      - {name: tell, at: 0d, action: {notify: {email: email, subject: "{{.name}} ended", text: "{{.stage}} {{.due}}"}}}
mail: {server: "smtp://%s", from: portal@example.org}
`, m.Addr), tellTable)
			s.hasten()
			now, within := time.Now(), "20s" // of the database's time
			if kind.engine == sqlite {       // whose time is ours, but for the ledger's
				zero := fastZero()
				now, within = zero.Add(fastTime*now.Sub(zero)), "1s"
			}
			const each = 30
			var rows []string
			for i := range each { // half of them end soon, half have ended
				for n, at := range []time.Time{now.AddDate(0, 0, 20), now.AddDate(0, 0, -20)} {
					id := 2*i + n
					rows = append(rows, fmt.Sprintf("(%d, 'Org %d', 'org%d@%s.example.org', %s)", id, id, id, keyMark, s.instant(at)))
				}
			}
			s.exec("INSERT INTO organization VALUES " + strings.Join(rows, ", "))
			env := []string{withinVar + "=" + within, fmt.Sprintf("%s=%d", speedVar, fastTime)}
			one := s.startIn(s.dir, env, "serve", "--listen", "127.0.0.1:0")
			two := s.startIn(s.dir, env, "serve", "--listen", "127.0.0.1:0")
			one.says("batch_retried")
			open.Store(true)
			one.cmd.Process.Kill()
			if code := s.ended(one); code != -1 {
				t.Fatalf("the first ended with exit code %d", code)
			}
			s.eventually(two, "tell everybody", func() bool {
				return s.count(s.db, "SELECT count(*) FROM "+s.inDatabase("passage")+" WHERE state IN ('done', 'uncertain')") == 2*each
			})
			two.signal(syscall.SIGTERM)
			if code := s.ended(two); code != 0 {
				t.Errorf("the second ended with exit code %d:\n%s", code, tail(two.stderr.String()))
			}
			told := map[string]int{}
			for _, x := range m.Accepted() {
				stage := map[bool]string{true: "ended", false: "ends"}[strings.HasSuffix(x.Header.Get("Subject"), "ended")]
				told[stage+" "+x.To[0]]++
			}
			ended := 0
			for what, n := range told {
				if n != 1 {
					t.Errorf("%s: %d messages", what, n)
				}
				if strings.HasPrefix(what, "ended") {
					ended++
				}
			}
			uncertain := s.count(s.db, "SELECT count(*) FROM "+s.inDatabase("passage")+" WHERE state = 'uncertain'")
			if len(told) > 2*each || len(told) < 2*each-uncertain || uncertain > 4 || ended > each || ended < each-uncertain {
				t.Errorf("%d were told, %d of them of the end; %d uncertain", len(told), ended, uncertain)
			}
		})
	}
}

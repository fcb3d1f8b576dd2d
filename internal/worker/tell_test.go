package worker

import (
	"bytes"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"curfew.dev/curfew/internal/mailtest"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/policy"
)

func TestNotify(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(6)
		l.exec("UPDATE organization SET email = NULL WHERE id = 2")
		l.exec("UPDATE organization SET email = 'nobody at home' WHERE id = 3")
		l.exec("UPDATE organization SET name = 'x\r\nBcc: eve@example.org' WHERE id = 4")
		refuse := true
		tries := map[string]int{}
		l.mail.Fate = func(to string) mailtest.Fate {
			tries[to]++
			switch {
			case to == "org5@example.org" && refuse:
				return mailtest.RefuseAddress
			case to == "org6@example.org" && tries[to] <= 2:
				return mailtest.LaterAddress
			}
			return mailtest.Accept
		}
		outcomes, reasons := l.run(l.notice(nil), "").all()
		l.want("outcomes", outcomes, map[string]int64{"notified": 2, "failed": 4})
		l.want("reasons", reasons, map[string]int{"the address is empty": 1, "the address is malformed": 1,
			"the subject has a line break or a control character in it": 1, "the mail server answered an address with 550 5.1.1": 1})
		l.want("accepted", l.toWhom(), map[string]int{"org1@example.org": 1, "org6@example.org": 1})
		m := l.mail.Accepted()[0]
		if m.Header.Get("Subject") != "Org 1 ends" && m.Header.Get("Subject") != "Org 6 ends" {
			l.Errorf("subject %q", m.Header.Get("Subject"))
		}
		if m.To[0] == "org1@example.org" && !strings.Contains(strings.ReplaceAll(m.Body, "=\r\n", ""), "Dear Org 1, your trial ends 2026-03-29 01:59 CET.") {
			l.Errorf("body %q", m.Body)
		}

		// What was told of is not told again; what failed is tried by the next run.
		refuse = false
		l.exec("UPDATE organization SET email = 'org2@example.org' WHERE id = 2")
		outcomes, _ = l.run(l.notice(nil), "").all()
		l.want("outcomes of the next run", outcomes, map[string]int64{"notified": 2, "failed": 2})
		outcomes, _ = l.run(l.notice(nil), "").all()
		l.want("outcomes of the third", outcomes, map[string]int64{"failed": 2})

		// Another due instant is another message, under another id.
		l.exec("UPDATE organization SET ends = " + l.at(asOf.Add(-time.Hour)) + " WHERE id = 1")
		outcomes, _ = l.run(l.notice(nil), "").all()
		l.want("outcomes after one moved", outcomes, map[string]int64{"notified": 1, "failed": 2})
		l.want("accepted", l.toWhom(), map[string]int{"org1@example.org": 2, "org2@example.org": 1, "org5@example.org": 1, "org6@example.org": 1})
		ids := map[string]bool{}
		for _, m := range l.mail.Accepted() {
			ids[m.ID] = true
		}
		if len(ids) != 5 {
			l.Errorf("%d ids of 5 messages", len(ids))
		}
	})
}

// A shadow run tells nobody and counts what would be told.
func TestShadow(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(3)
		shadow := l.notice(func(p *policy.Policy) { p.Mode = policy.Shadow })
		outcomes, _ := l.run(shadow, "").all()
		l.want("outcomes", outcomes, map[string]int64{"due": 3})
		l.run(l.notice(nil), "").all()
		l.exec("UPDATE organization SET ends = " + l.at(asOf.Add(-time.Hour)) + " WHERE id = 1")
		outcomes, _ = l.run(shadow, "").all()
		l.want("outcomes after a run", outcomes, map[string]int64{"due": 1})
		if n := len(l.mail.Accepted()); n != 3 {
			l.Errorf("%d messages", n)
		}
	})
}

func TestNotifyQuery(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(3)
		l.exec("INSERT INTO member VALUES (1, 1, 'ada@example.org'), (2, 1, 'bob@example.org'), (3, 2, 'gone@example.org'), (4, 2, 'cy@example.org'), (5, 1, NULL)")
		l.mail.Fate = func(to string) mailtest.Fate {
			if to == "gone@example.org" {
				return mailtest.RefuseAddress
			}
			return mailtest.Accept
		}
		p := l.notice(func(p *policy.Policy) {
			p.Action.Message.Email, p.Action.Message.Query = "", "SELECT m.email FROM member m WHERE m.organization_id = organization.id ORDER BY m.id"
		})
		x := l.run(p, "")
		if found, err := x.w.Job.Probe(l.Context()); err != nil || len(found) > 0 {
			l.Fatal(found, err)
		}
		outcomes, reasons := x.all()
		l.want("outcomes", outcomes, map[string]int64{"notified": 2, "failed": 1})
		l.want("reasons", reasons, map[string]int{"the query finds no address": 1})
		l.want("accepted", l.toWhom(), map[string]int{"ada@example.org": 1, "bob@example.org": 1, "cy@example.org": 1})
		if n := len(l.mail.Accepted()); n != 2 {
			l.Errorf("%d messages", n)
		}
	})
}

// hookAt calls do at the n-th time that a batch comes to the point.
func hookAt(t testing.TB, point string, n int64, do func()) {
	var seen atomic.Int64
	target.TestHook = func(p string) {
		if p == point && seen.Add(1) == n {
			do()
		}
	}
	t.Cleanup(func() { target.TestHook = nil })
}

// What happens between the claim and the sending of a message stops it.
func TestJudgedBeforeItIsSent(t *testing.T) {
	for name, tc := range map[string]struct {
		stmt string
		want map[string]int64
	}{
		"hold":      {"INSERT INTO @hold (id, name, relation, conditions, placed_at) VALUES ('h', 'h', 'organization', '[{\"column\":\"id\",\"value\":\"2\"}]', '2026-01-01')", map[string]int64{"notified": 2, "held": 1}},
		"refreshed": {"UPDATE organization SET ends = '2027-01-01 00:00:00' WHERE id = 2", map[string]int64{"notified": 2, "no_longer_due": 1}},
		"gone":      {"DELETE FROM organization WHERE id = 2", map[string]int64{"notified": 2, "gone": 1}},
		"guarded":   {"UPDATE organization SET paused = true WHERE id = 2", map[string]int64{"notified": 2, "guarded": 1}},
		"moved":     {"UPDATE organization SET ends = '2026-01-01 00:00:00' WHERE id = 2", map[string]int64{"notified": 3}},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(l *lab) {
				l.organisations(3)
				hookAt(l, "round_committed", 1, func() {
					l.exec(strings.ReplaceAll(tc.stmt, "@hold", l.own("hold")))
				})
				outcomes, reasons := l.run(l.notice(func(p *policy.Policy) { p.Unless = "paused" }), "").all()
				l.want("outcomes", outcomes, tc.want)
				why := map[string]int{}
				if tc.want["held"] > 0 {
					why["hold h"] = 1
				}
				l.want("reasons", reasons, why)
				told := l.toWhom()
				if n := told["org2@example.org"]; int64(n) != tc.want["notified"]-2 {
					l.Errorf("%v", told)
				}
			})
		})
	}
}

// A row that another session is changing is not told of, and does not keep the others.
func TestLockedRow(t *testing.T) {
	for _, e := range []target.Engine{target.Postgres, target.MySQL} {
		t.Run(string(e), func(t *testing.T) {
			l := newLab(t, e)
			l.organisations(3)
			tx, err := l.db.SQL.BeginTx(l.Context(), nil)
			if err != nil {
				l.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.ExecContext(l.Context(), "UPDATE organization SET ends = '2027-01-01 00:00:00' WHERE id = 2"); err != nil {
				l.Fatal(err)
			}
			x := l.run(l.notice(nil), "")
			x.w.Tell.Final = true
			outcomes, _ := x.all()
			l.want("outcomes", outcomes, map[string]int64{"notified": 2, "locked": 1})
		})
	}
}

// Each worker of a batch sends some, and none of them what another one sends.
func TestTwoWorkers(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(40)
		n := 0
		var mu sync.Mutex
		l.mail.Fate = func(string) mailtest.Fate {
			mu.Lock()
			defer mu.Unlock()
			if n++; n%10 == 0 {
				return mailtest.LaterAddress
			}
			return mailtest.Accept
		}
		p := l.notice(nil)
		first := l.run(p, "one")
		work := first.batches()
		if len(work) != 1 {
			l.Fatalf("%d batches", len(work))
		}
		var wg sync.WaitGroup
		results := make([]Result, 3)
		for i := range results {
			x := l.run(p, "one")
			x.w.Tell.Waits = make([]time.Duration, 100)
			wg.Go(func() {
				var err error
				if results[i], err = x.w.Execute(l.Context(), work[0]); err != nil {
					l.Error(err)
				}
			})
		}
		wg.Wait()
		for _, r := range results {
			if !maps.Equal(r.Settlement.Outcomes, map[string]int64{"notified": 40}) || !bytes.Equal(r.Settlement.Root, results[0].Settlement.Root) {
				l.Errorf("%v", r.Settlement.Outcomes)
			}
		}
		told := l.toWhom()
		for to, n := range told {
			if n != 1 {
				l.Errorf("%s: %d messages", to, n)
			}
		}
		if len(told) != 40 {
			l.Errorf("%d were told", len(told))
		}
	})
}

// A connection that is lost after the final dot leaves one message uncertain, whether the server has it or not, and it is never
// sent again.
func TestUncertain(t *testing.T) {
	for name, fate := range map[string]mailtest.Fate{"taken": mailtest.DieTaken, "untaken": mailtest.DieUntaken} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(l *lab) {
				l.organisations(3)
				l.mail.Fate = func(to string) mailtest.Fate {
					if to == "org2@example.org" {
						return fate
					}
					return mailtest.Accept
				}
				outcomes, reasons := l.run(l.notice(nil), "").all()
				l.want("outcomes", outcomes, map[string]int64{"notified": 2, "failed": 1})
				l.want("reasons", reasons, map[string]int{"uncertain: the mail server was lost after the message was sent and before it said that it has it: connection lost": 1})
				l.mail.Fate = nil
				outcomes, _ = l.run(l.notice(nil), "").all()
				l.want("outcomes of the next run", outcomes, map[string]int64{})
				if n := l.toWhom()["org2@example.org"]; n > 1 || n == 1 != (fate == mailtest.DieTaken) {
					l.Errorf("%d messages", n)
				}
			})
		})
	}
}

// A process that dies between any two steps leaves what the next one needs: nobody is told twice.
func TestDies(t *testing.T) {
	for _, tc := range []struct {
		point     string
		uncertain bool
		accepted  int // of the message in hand
	}{
		{"round", false, 1}, {"round_looked", false, 1}, {"round_committed", false, 1}, {"sending", false, 1},
		{"sending_committed", true, 0}, {"sent", true, 1}, {"sent_committed", false, 1},
	} {
		t.Run(tc.point, func(t *testing.T) {
			onEach(t, func(l *lab) {
				l.organisations(3)
				p := l.notice(nil)
				x := l.run(p, "one")
				work := x.batches()[0]
				died := make(chan struct{})
				hookAt(l, tc.point, 1, func() {
					close(died)
					panic("died")
				})
				func() {
					defer func() { recover() }()
					x.w.Execute(l.Context(), work)
				}()
				<-died
				target.TestHook = nil
				outcomes, reasons := map[string]int64{}, map[string]int{}
				l.run(p, "one").add(work, outcomes, reasons)
				want, why := map[string]int64{"notified": 3}, map[string]int{}
				if tc.uncertain {
					want = map[string]int64{"notified": 2, "failed": 1}
					why["uncertain: the process that was sending it ended, or was too slow, before it recorded what came of it, and it is not sent again"] = 1
				}
				l.want("outcomes", outcomes, want)
				l.want("reasons", reasons, why)
				told := l.toWhom()
				total := 0
				for to, n := range told {
					if total += n; n != 1 {
						l.Errorf("%s: %d", to, n)
					}
				}
				if total != 2+tc.accepted {
					l.Errorf("%d messages", total)
				}
			})
		})
	}
}

// A mail server that is down puts a batch off; what cannot be sent in the end has failed, and the next run sends it.
func TestGivesUp(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(3)
		p := l.notice(nil)
		x := l.run(p, "one")
		l.mail.Kill()
		work := x.batches()[0]
		_, err := x.w.Execute(l.Context(), work)
		if err == nil || err.Error() != "not sent yet: the mail server cannot be reached: connection refused" {
			l.Fatal(err)
		}
		res, err := x.w.GiveUp(l.Context(), work, err)
		if err != nil {
			l.Fatal(err)
		}
		outcomes, reasons := map[string]int64{}, map[string]int{}
		count(l, res, outcomes, reasons)
		l.want("outcomes", outcomes, map[string]int64{"failed": 3})
		l.mail.Run()
		outcomes, _ = l.run(p, "two").all()
		l.want("outcomes of the next run", outcomes, map[string]int64{"notified": 3})
	})
}

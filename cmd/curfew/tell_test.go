//go:build unix

package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/mailtest"
)

// Addresses hold keyMark, so that none of them may be printed.
const tellTable = "CREATE TABLE organization (id integer NOT NULL PRIMARY KEY, name varchar(80) NOT NULL, email varchar(200), at INSTANT NOT NULL)"

// teller is a site with organisations that are told by e-mail.
type teller struct {
	*site
	mail *mailtest.Server
	n    int
}

func newTeller(t *testing.T, engine, ledger string, n int, fate func(to string) mailtest.Fate) *teller {
	t.Helper()
	m := &mailtest.Server{Fate: fate}
	m.Start(t)
	s := newSite(t, engine, ledger, fmt.Sprintf(`
  trials:
    {database: d, table: organization, until: {SINCE}, mode: enforce, batch: {rows: 100, in_flight: 8, pace: none}, retry: {attempts: 6, backoff: 1s, factor: 1},
     action: {notify: {email: email, subject: "{{.name}} ends", text: "Your trial ends {{.due}}"}}}
mail: {server: "smtp://%s", from: "Portal <portal@example.org>"}
`, m.Addr), tellTable)
	x := &teller{s, m, n}
	for i := 0; i < n; {
		var rows []string
		for ; i < n && len(rows) < 500; i++ {
			rows = append(rows, fmt.Sprintf("(%d, 'Org %d', '%s', %s)", i, i, x.address(i), s.instant(s.asOf.Add(-time.Duration(i+1)*time.Second))))
		}
		s.exec("INSERT INTO organization VALUES " + strings.Join(rows, ", "))
	}
	return x
}

func (x *teller) address(i int) string { return fmt.Sprintf("org%d@%s.example.org", i, keyMark) }

func (x *teller) args() []string { return runArgs("trials", x.asOf) }

// begin starts a run whose processes take one for dead that has been sending for longer than a test likes to wait.
func (x *teller) begin(at, within string) *process {
	return x.startIn(x.dir, []string{atVar + "=" + at, withinVar + "=" + within}, x.args()...)
}

// reckon compares what the server took with what the ledger says, row by row.
func (x *teller) reckon(r api.Run) (uncertain int) {
	x.Helper()
	taken := map[string]int{}
	for _, m := range x.mail.Accepted() {
		for _, to := range m.To {
			taken[to]++
		}
	}
	for to, n := range taken {
		if n != 1 {
			x.Errorf("%d messages to one organisation (%s)", n, to)
		}
	}
	states := map[string]int{}
	for _, line := range x.column(x.db, "SELECT state FROM "+x.inDatabase("passage")) {
		states[line]++
	}
	uncertain = states["uncertain"]
	if states["done"]+uncertain != x.n || len(states) > 2 {
		x.Errorf("passages of %d organisations: %v", x.n, states)
	}
	if len(taken) < states["done"] || len(taken) > states["done"]+uncertain {
		x.Errorf("%d were told, the database says %v", len(taken), states)
	}
	if r.State != "succeeded" || r.Planned != int64(x.n) || r.Outcomes["notified"] != int64(states["done"]) || r.Outcomes["failed"] != int64(uncertain) {
		x.Errorf("run %+v, passages %v", r, states)
	}
	listed := x.count(x.led, "SELECT count(*) FROM "+x.inLedger("blocked")+" WHERE reason LIKE 'uncertain: %'")
	if listed != uncertain {
		x.Errorf("the ledger lists %d uncertain rows of %d", listed, uncertain)
	}
	return uncertain
}

// TestTellKilledAtEachPoint kills a run at each point that a message passes. Whoever follows tells everybody else once.
func TestTellKilledAtEachPoint(t *testing.T) {
	for _, kind := range sites {
		for point, uncertain := range map[string]int{"executing:1": 0, "round:1": 0, "round_looked:1": 0, "round_committed:1": 0, "round_committed:2": 0, "sending:2": 0,
			"sending_committed:3": 1, "sent:4": 1, "sent_committed:5": 0, "stepped:2": 0, "executed:1": 0, "ending:1": 0} {
			t.Run(kind.engine+"/"+point, func(t *testing.T) {
				t.Parallel()
				x := newTeller(t, kind.engine, kind.ledger, 12, nil)
				if code := x.ended(x.begin(point+":kill", "1s")); code != -1 {
					t.Fatalf("it ended with exit code %d and was not killed", code)
				}
				p := x.begin("", "1s")
				x.well(p)
				if n := x.reckon(x.answer(p)); n != uncertain {
					t.Errorf("%d uncertain, want %d", n, uncertain)
				}
				// Again: nobody is told.
				before := len(x.mail.Accepted())
				x.must("run", "trials", "--output", "json")
				if n := len(x.mail.Accepted()); n != before {
					t.Errorf("the next run told %d", n-before)
				}
			})
		}
	}
}

// TestNotifications tells many, by a mail server that puts one in ten off and is killed twice, with processes that are killed
// twice. CURFEW_TEST_NOTIFICATIONS says how many; 20000 take about a minute.
func TestNotifications(t *testing.T) {
	n := 1500
	if v, err := strconv.Atoi(os.Getenv("CURFEW_TEST_NOTIFICATIONS")); err == nil {
		n = v
	}
	for _, kind := range sites {
		t.Run(kind.engine, func(t *testing.T) {
			var mu sync.Mutex
			asked := 0
			events := map[int]func(){}
			x := newTeller(t, kind.engine, kind.ledger, n, func(to string) mailtest.Fate {
				if to == "" { // the sender
					return mailtest.Accept
				}
				mu.Lock()
				defer mu.Unlock()
				asked++
				if do := events[asked]; do != nil {
					go do()
				}
				if asked%10 == 0 {
					return mailtest.LaterAddress
				}
				return mailtest.Accept
			})
			var p *process
			kill := make(chan struct{}, 2)
			killServer := func() {
				x.mail.Kill()
				time.AfterFunc(300*time.Millisecond, x.mail.Run)
			}
			events[n/5], events[n*3/5] = killServer, killServer
			events[n*2/5] = func() { kill <- struct{}{} }
			events[n*4/5] = func() { kill <- struct{}{} }
			start := time.Now()
			for range 2 {
				p = x.begin("", "4s")
				<-kill
				p.cmd.Process.Kill()
				if code := x.ended(p); code != -1 {
					t.Fatalf("it ended with exit code %d:\n%s", code, tail(p.stderr.String()))
				}
			}
			p = x.begin("", "4s")
			select { // longer than a test is patient otherwise
			case <-p.ended:
			case <-time.After(10 * time.Minute):
			}
			x.well(p)
			took := time.Since(start)
			uncertain := x.reckon(x.answer(p))
			// Each of four kills catches what was under way on at most eight connections.
			if uncertain > 4*8 {
				t.Errorf("%d uncertain", uncertain)
			}
			t.Logf("%d organisations in %s (%.0f a second); %d uncertain; the server took %d messages over %d connections", n, took.Round(time.Millisecond),
				float64(n)/took.Seconds(), uncertain, len(x.mail.Accepted()), x.mail.Opened())
		})
	}
}

// TestCallKilledAtEachPoint does the same to requests, which are repeated under their keys.
func TestCallKilledAtEachPoint(t *testing.T) {
	for _, per := range []string{"row", "batch"} {
		for _, point := range []string{"round_committed:1", "sending_committed:1", "sent:1", "sent_committed:1"} {
			t.Run(per+"/"+point, func(t *testing.T) {
				var mu sync.Mutex
				done := map[string]string{} // what was done, by key
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					body, _ := io.ReadAll(r.Body)
					mu.Lock()
					defer mu.Unlock()
					key := r.Header.Get("Idempotency-Key")
					if was, ok := done[key]; ok && was != string(body) {
						t.Error("another request under the same key")
					}
					if r.Header.Get("Authorization") != "Bearer t0ken-7f3a" || r.URL.Path != "/s3cret-7f3a" {
						t.Errorf("%s %v", r.URL, r.Header)
					}
					done[key] = string(body)
				}))
				defer s.Close()
				t.Setenv("TEARDOWN_URL", s.URL+"/s3cret-7f3a")
				x := newSite(t, sqlite, ledgerFile, `
  trials:
    {database: d, table: organization, until: {SINCE}, mode: enforce,
     action: {call: {url: "${TEARDOWN_URL}", token: t0ken-7f3a, timeout: 1s, per: `+per+`}}}
`, tellTable)
				x.secrets["the url"], x.secrets["the token"] = "s3cret-7f3a", "t0ken-7f3a"
				x.exec("INSERT INTO organization VALUES (1, 'a', NULL, " + x.instant(x.asOf.Add(-time.Hour)) + "), (2, 'b', NULL, " + x.instant(x.asOf.Add(-time.Hour)) + ")")
				begin := func(at string) *process {
					return x.startIn(x.dir, []string{atVar + "=" + at, withinVar + "=1s"}, runArgs("trials", x.asOf)...)
				}
				if code := x.ended(begin(point + ":kill")); code != -1 {
					t.Fatalf("it ended with exit code %d and was not killed", code)
				}
				p := begin("")
				x.well(p)
				if r := x.answer(p); r.Outcomes["called"] != 2 || r.Planned != 2 {
					t.Errorf("%+v", r)
				}
				if want := map[string]int{"row": 2, "batch": 1}[per]; len(done) != want {
					t.Errorf("%d requests were done, want %d", len(done), want)
				}
			})
		}
	}
}

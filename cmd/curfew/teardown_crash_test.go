//go:build unix

package main

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/api"
)

// teardownPolicies delete organisations with what hangs on them; an invoice is left out of the list, and keeps its organisation whole.
const teardownPolicies = `
  orgs:
    {database: d, table: org, keep: 30d, since: {SINCE}, subject: owner, mode: enforce, batch: {rows: ROWS, in_flight: FLIGHT, pace: none},
     action: {delete: {dependents: [{table: post, no_subject: true}, {table: member, subject: person}]}}}
`

func teardownPolicy(rows, inFlight int) string {
	return strings.NewReplacer("ROWS", fmt.Sprint(rows), "FLIGHT", fmt.Sprint(inFlight)).Replace(teardownPolicies)
}

var teardownTables = []string{
	"CREATE TABLE org (id VARCHAR(64) NOT NULL PRIMARY KEY, at INSTANT NOT NULL, owner VARCHAR(64) NOT NULL)",
	"CREATE INDEX org_at ON org (at)",
	"CREATE TABLE member (id VARCHAR(64) NOT NULL PRIMARY KEY, org VARCHAR(64) NOT NULL, person VARCHAR(64) NOT NULL, CONSTRAINT member_org FOREIGN KEY (org) REFERENCES org (id))",
	"CREATE INDEX member_org_index ON member (org)",
	"CREATE TABLE post (id VARCHAR(64) NOT NULL PRIMARY KEY, org VARCHAR(64) NOT NULL, author VARCHAR(64) NOT NULL, " +
		"CONSTRAINT post_org FOREIGN KEY (org) REFERENCES org (id), CONSTRAINT post_author FOREIGN KEY (author) REFERENCES member (id))",
	"CREATE INDEX post_org_index ON post (org)",
	"CREATE INDEX post_author_index ON post (author)",
	"CREATE TABLE invoice (id VARCHAR(64) NOT NULL PRIMARY KEY, org VARCHAR(64) NOT NULL, CONSTRAINT invoice_org FOREIGN KEY (org) REFERENCES org (id))",
	"CREATE INDEX invoice_org_index ON invoice (org)",
}

// orgs are organisations with what hangs on them, and what a run for asOf must make of them.
type orgs struct {
	*site
	asOf    time.Time
	hanging map[string]int // members and posts, by organisation
	due     []string       // those that are to go
	blocked []string
	stay    []string // not due
}

// fillOrgs empties the tables and makes organisations for a run a minute after the last one, the oldest first.
func (s *site) fillOrgs(due, stay int, invoices bool) *orgs {
	s.Helper()
	s.asOf = s.asOf.Add(time.Minute)
	o := &orgs{site: s, asOf: s.asOf, hanging: map[string]int{}}
	rows := map[string][]string{}
	mark := s.rand.Uint32()
	for i := range due + stay {
		org := fmt.Sprintf("org-%08x-%03d", mark, i)
		at := s.asOf.Add(-30*24*time.Hour - time.Duration(due-i)*time.Minute) // the first that stays lies exactly at the cutoff
		rows["org"] = append(rows["org"], fmt.Sprintf("('%s', %s, 'owner-%s')", org, s.instant(at), org))
		for m := range 1 + i%3 {
			member := fmt.Sprintf("%s-m%d", org, m)
			rows["member"] = append(rows["member"], fmt.Sprintf("('%s', '%s', 'person-%s')", member, org, member))
			rows["post"] = append(rows["post"], fmt.Sprintf("('%s-p', '%s', '%s')", member, org, member), fmt.Sprintf("('%s-q', '%s', '%s')", member, org, member))
			o.hanging[org] += 3
		}
		switch {
		case i >= due:
			o.stay = append(o.stay, org)
		case invoices && i%7 == 3:
			o.blocked = append(o.blocked, org)
			rows["invoice"] = append(rows["invoice"], fmt.Sprintf("('%s-i', '%s')", org, org))
		default:
			o.due = append(o.due, org)
		}
	}
	for _, table := range []string{"invoice", "post", "member", "org"} {
		s.exec("DELETE FROM " + table)
	}
	for _, table := range []string{"org", "member", "post", "invoice"} {
		if len(rows[table]) > 0 {
			s.exec("INSERT INTO " + table + " VALUES " + strings.Join(rows[table], ", "))
		}
	}
	return o
}

func (o *orgs) args() []string { return runArgs("orgs", o.asOf) }

// wholes are the organisations that are there. Each must have all that hung on it, and of one that is gone there is nothing.
func (o *orgs) wholes(when string) []string {
	o.Helper()
	hanging := map[string]int{}
	for _, org := range o.column(o.db, "SELECT org FROM member UNION ALL SELECT org FROM post") {
		hanging[org]++
	}
	there := o.column(o.db, "SELECT id FROM org")
	slices.Sort(there)
	want := map[string]int{}
	for _, org := range there {
		want[org] = o.hanging[org]
	}
	if diff := cmp.Diff(want, hanging); diff != "" {
		o.Errorf("%s: what hangs on the organisations that are there (-want +got):\n%s", when, diff)
	}
	return there
}

// exactly checks a run that has ended: who stayed, and what it counted.
func (o *orgs) exactly(when string, r api.Run, held ...string) {
	o.Helper()
	var cascaded int64
	want := slices.Concat(o.blocked, o.stay, held)
	outcomes := api.Outcomes{}
	for _, org := range o.due {
		if !slices.Contains(held, org) {
			outcomes["deleted"]++
			cascaded += int64(o.hanging[org])
		}
	}
	if n := int64(len(held)); n > 0 {
		outcomes["held"] = n
	}
	if n := int64(len(o.blocked)); n > 0 {
		outcomes["blocked"] = n
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, o.wholes(when)); diff != "" {
		o.Errorf("%s: organisations left (-want +got):\n%s", when, diff)
	}
	if diff := cmp.Diff(outcomes, r.Outcomes); diff != "" || r.State != api.StateSucceeded || r.Planned != outcomes.Sum() || r.Cascaded != cascaded {
		o.Errorf("%s: %s, planned %d, %d went along, want %d; outcomes (-want +got):\n%s", when, r.State, r.Planned, r.Cascaded, cascaded, diff)
	}
	o.consistent(r)
}

// TestTeardownKilled kills runs that delete with dependents at each point of a batch, and their successors at a later one. After
// each death every organisation is there whole or gone whole; whoever follows does the rest, and nothing twice.
func TestTeardownKilled(t *testing.T) {
	onEachSite(t, teardownPolicy(6, 2), teardownTables, func(s *site) {
		for i, point := range []string{"stepped", "executing", "begun", "claimed", "found", "gathered", "changed", "completed", "committed", "executed", "ending"} {
			o := s.fillOrgs(26, 3, true)
			for turn, nth := range []int{1, 2 + i%2} {
				code := s.ended(s.start(fmt.Sprintf("%s:%d:kill", point, nth), o.args()...))
				if code != -1 && (code != exitDone || turn == 0) {
					s.Fatalf("a run that is to be killed at %s ended with %d", point, code)
				}
				there := o.wholes(fmt.Sprintf("killed at %s:%d", point, nth))
				if before := len(o.due) + len(o.blocked) + len(o.stay); turn == 0 && point == "committed" && len(there) == before {
					s.Errorf("killed at %s, and nothing was committed", point)
				}
			}
			for range 2 { // asked for again it is the same run
				o.exactly("killed at "+point, s.answer(s.must(o.args()...)))
			}
			if r := s.answer(s.must(append(o.args(), "--operation", "again-"+point)...)); r.Cascaded != 0 || r.Outcomes["deleted"] != 0 {
				s.Errorf("killed at %s: a run of its own finds %v", point, r.Outcomes)
			}
		}
	})
}

// TestTeardownKilledAtRandom kills one run after the other anywhere, each of them until it gets through.
func TestTeardownKilledAtRandom(t *testing.T) {
	onEachSite(t, teardownPolicy(4, 2), teardownTables, func(s *site) {
		for kills := 0; kills < 25; {
			o := s.fillOrgs(20, 2, true)
			var at []string
			for killed := true; killed; {
				at = append(at, fmt.Sprintf("any:%d", 1+s.rand.IntN(60)))
				killed = s.ended(s.start(at[len(at)-1]+":kill", o.args()...)) == -1
				o.wholes(fmt.Sprint("killed at ", at))
				if killed {
					kills++
				}
			}
			o.exactly(fmt.Sprint("killed at ", at), s.answer(s.must(o.args()...)))
		}
	})
}

// recorded waits until the ledger has the hold: from then on no batch begins that does not know it.
func (s *site) recorded(name string) {
	s.Helper()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(patience); s.count(s.led, "SELECT count(*) FROM "+s.inLedger("legal_hold")+" WHERE name = '"+name+"'") == 0; <-look.C {
		if time.Now().After(end) {
			s.Fatalf("the hold %s does not come into the ledger", name)
		}
	}
}

// TestHoldPlacedBeforeTeardown has other processes place holds while a run has found its rows and not begun to change them: on an
// organisation, on a member of another, and on a person who is a member of a third. All three stay, with all that hangs on them.
func TestHoldPlacedBeforeTeardown(t *testing.T) {
	onEachSite(t, teardownPolicy(100, 1), teardownTables, func(s *site) {
		for _, point := range []string{"stepped", "executing", "begun"} {
			if point == "begun" && s.engine == sqlite {
				continue // that batch is the file's only writer, and the ledger is in the file
			}
			o := s.fillOrgs(8, 2, false)
			run := s.start(point+":1:pause", o.args()...)
			run.stopped(point)
			names := []string{"row-" + point, "dependent-" + point, "person-" + point}
			held := []string{o.due[2], o.due[4], o.due[5]}
			var placing []*process
			for i, on := range [][]string{
				{"--policy", "orgs", "--where", "id=" + held[0]},
				{"--database", "d", "--table", "member", "--where", "id=" + held[1] + "-m1"},
				{"--subject", "person-" + held[2] + "-m2"},
			} {
				placing = append(placing, s.start("", append([]string{"hold", "place", "--name", names[i], "--reason", "order"}, on...)...))
			}
			for i, p := range placing {
				s.recorded(names[i])
				s.well(p)
			}
			run.signal(syscall.SIGCONT)
			s.well(run)
			o.exactly("holds placed at "+point, s.answer(run), held...)
			for _, name := range names {
				s.must("hold", "release", name)
			}
			r := s.answer(s.must(append(o.args(), "--operation", "released-"+point)...))
			if left := o.wholes("released"); r.Outcomes["deleted"] != 3 || len(left) != len(o.stay) {
				s.Errorf("%s, released: %v, left %v", point, r.Outcomes, left)
			}
		}
	})
}

// TestHoldPlacedInTeardown has another process place holds while a batch has locked its rows and what hangs on them. The command
// does not return before the batch has committed; what the batch had found is gone, and a later batch of the same run keeps its row.
func TestHoldPlacedInTeardown(t *testing.T) {
	onEachSite(t, teardownPolicy(3, 1), teardownTables, func(s *site) {
		for _, point := range []string{"claimed", "gathered", "completed"} {
			o := s.fillOrgs(14, 2, false)
			stop := "pause" // with no transaction of the ledger open
			if s.engine == sqlite {
				stop = "stop" // there it would wait for our batch, the only writer of the file
			}
			run := s.start(point+":1:"+stop+",committed:1:"+stop, o.args()...)
			run.stopped(point)
			held := o.due[len(o.due)-1] // a member of the last one
			name := "late-" + point
			place := s.start("hold_locked:1:say", "hold", "place", "--name", name, "--reason", "order", "--database", "d", "--table", "member", "--where", "org="+held)
			if s.engine != sqlite { // whose ledger is in the file that the batch writes to
				s.recorded(name)
			}
			if n := len(o.wholes("while the batch is at " + point)); n != 16 {
				s.Errorf("%s: %d organisations are seen while the batch has not committed", point, n)
			}
			if strings.Contains(place.stderr.String(), marker) || !place.running() {
				s.Errorf("%s: the hold was placed beside a batch that does not know it", point)
			}
			run.signal(syscall.SIGCONT)
			run.stopped("committed")
			s.well(place) // the run has committed, and lies still
			if n := len(o.wholes("committed")); n >= 16 {
				s.Errorf("%s: %d organisations after the first batch", point, n)
			}
			run.signal(syscall.SIGCONT)
			s.well(run)
			o.exactly("a hold placed at "+point, s.answer(run), held)
			s.must("hold", "release", name)
		}
	})
}

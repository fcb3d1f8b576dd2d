//go:build unix

package main

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/api"
)

// A stock is what a table was filled with, and what a run for asOf must make of it.
type stock struct {
	policy, table string
	asOf          time.Time
	outcomes      api.Outcomes
	cascaded      int64
	stay          []string // keys
	due           []string // keys of the rows that go
}

// fill empties the tables of a policy and fills them with n rows, for a run a minute after the last one.
func (s *site) fill(policy string, n int) *stock {
	s.Helper()
	s.asOf = s.asOf.Add(time.Minute)
	k := &stock{policy: policy, table: map[string]string{"plain": "session", "rich": "loan"}[policy], asOf: s.asOf, outcomes: api.Outcomes{}}
	rich := policy == "rich"
	cutoff := s.asOf.Add(-30 * 24 * time.Hour)
	rows := map[string][]string{}
	mark := s.rand.Uint32()
	for i := range n {
		id := fmt.Sprintf("%s-%08x-%d", keyMark, mark, i)
		at, branch, outcome := cutoff.Add(-time.Duration(1+i*7919%n)*time.Hour), "main", "deleted"
		child := func(table string) { rows[table] = append(rows[table], "('"+id+"')") }
		switch {
		case i%20 == 0:
			at, outcome = cutoff.Add(time.Duration(i)*time.Minute), "" // the first lies exactly at the cutoff
		case rich && i%20 == 1:
			branch, outcome = "archive", ""
		case i%40 == 2:
			outcome = "blocked"
			child(map[bool]string{true: "claim", false: "pin"}[rich])
		case rich && i%40 == 3:
			outcome = "guarded"
			child("fine")
		case rich && i%20 == 4:
			child("note")
			child("note")
			k.cascaded += 2
		}
		if outcome != "" {
			k.outcomes[outcome]++
		}
		if outcome == "deleted" {
			k.due = append(k.due, id)
		} else {
			k.stay = append(k.stay, id)
		}
		rows[k.table] = append(rows[k.table], fmt.Sprintf("('%s', %s, '%s')", id, s.instant(at), branch))
	}
	for _, table := range map[bool][]string{true: {"note", "claim", "fine", "loan"}, false: {"pin", "session"}}[rich] {
		s.exec("DELETE FROM " + table)
	}
	for _, table := range []string{k.table, "note", "claim", "fine", "pin"} {
		if len(rows[table]) > 0 {
			s.exec("INSERT INTO " + table + " VALUES " + strings.Join(rows[table], ", "))
		}
	}
	return k
}

// instant writes an instant as the governed database reads it.
func (s *site) instant(at time.Time) string {
	text := at.UTC().Format("2006-01-02 15:04:05.000000")
	if s.engine == postgres {
		text += "+00"
	}
	return "'" + text + "'"
}

// left are the keys of the rows that are in the table.
func (s *site) left(k *stock) []string {
	s.Helper()
	ids := s.column(s.db, "SELECT id FROM "+k.table)
	slices.Sort(ids)
	return ids
}

// exact checks the run that a process answered with against the stock, row by row, and against what is recorded.
func (s *site) exact(k *stock, r api.Run) {
	s.Helper()
	if r.State != api.StateSucceeded || r.WhyEnded != "done" || r.Planned != r.Outcomes.Sum() {
		s.Errorf("the run is %s (%s: %s), planned %d of %v", r.State, r.WhyEnded, r.Detail, r.Planned, r.Outcomes)
	}
	if diff := cmp.Diff(k.outcomes, r.Outcomes); diff != "" || r.Cascaded != k.cascaded {
		s.Errorf("outcomes (-want +got), cascaded %d of %d:\n%s", r.Cascaded, k.cascaded, diff)
	}
	slices.Sort(k.stay)
	left := s.left(k)
	if diff := cmp.Diff(k.stay, left); diff != "" {
		s.Errorf("the rows that are left (-want +got):\n%s", diff)
	}
	s.gone += int64(len(k.stay) + len(k.due) - len(left))
	s.consistent(r)
}

// consistent checks that ledger, receipts and audit log tell one story of a run that ended.
func (s *site) consistent(r api.Run) {
	s.Helper()
	batches := s.accounts(s.led, "SELECT seq, planned, outcomes FROM "+s.inLedger("batch")+" WHERE state = 'settled' AND run = '"+r.ID+"'")
	receipts := s.accounts(s.db, "SELECT seq, planned, outcomes FROM "+s.inDatabase("receipt")+" WHERE completed_at IS NOT NULL AND run = '"+r.ID+"'")
	if diff := cmp.Diff(batches, receipts); diff != "" {
		s.Errorf("batches and receipts differ (-ledger +receipts):\n%s", diff)
	}
	if int64(len(batches)) != r.Batches.Total || r.Batches.Total != r.Batches.Settled {
		s.Errorf("%d batches are settled, the run says %+v", len(batches), r.Batches)
	}
	sum := api.Outcomes{}
	for _, b := range batches {
		for outcome, n := range b.Outcomes {
			sum[outcome] += n
		}
	}
	if diff := cmp.Diff(r.Outcomes, sum); diff != "" {
		s.Errorf("the batches' sum is not the run's (-run +batches):\n%s", diff)
	}
	s.audited(r)
}

type account struct {
	Planned  int64
	Outcomes api.Outcomes
}

func (s *site) accounts(db *sql.DB, query string) map[int64]account {
	s.Helper()
	rows, err := db.QueryContext(s.Context(), query)
	if err != nil {
		s.Fatal(err)
	}
	defer rows.Close()
	out := map[int64]account{}
	for rows.Next() {
		var seq int64
		var a account
		var text []byte
		if err := rows.Scan(&seq, &a.Planned, &text); err != nil {
			s.Fatal(err)
		}
		if err := json.Unmarshal(text, &a.Outcomes); err != nil {
			s.Fatal(err)
		}
		maps.DeleteFunc(a.Outcomes, func(_ string, n int64) bool { return n == 0 })
		out[seq] = a
	}
	if err := rows.Err(); err != nil {
		s.Fatal(err)
	}
	return out
}

// audited checks the order of a run's entries: each batch was intended before it was settled, once, between one beginning
// and one end.
func (s *site) audited(r api.Run) {
	s.Helper()
	seen := map[string]int{}
	for i, line := range s.column(s.led, "SELECT action || ' ' || CASE WHEN batch IS NULL THEN '' ELSE "+s.hexOf("batch")+" END FROM "+s.inLedger("audit")+
		" WHERE run = '"+r.ID+"' ORDER BY seq") {
		action, batch, _ := strings.Cut(line, " ")
		seen[action]++
		bad := ""
		switch action {
		case "run_accepted", "run_started":
			if i != seen["run_accepted"]+seen["run_started"]-1 {
				bad = "not at the beginning"
			}
		case "batch_intent", "batch_settled":
			seen[action+batch]++
			if seen[action+batch] > 1 || action == "batch_settled" && seen["batch_intent"+batch] == 0 || seen["run_ended"] > 0 {
				bad = "twice, without an intent, or after the end"
			}
		}
		if bad != "" {
			s.Errorf("audit entry %d is %q: %s", i, line, bad)
		}
	}
	for action, want := range map[string]int64{"run_accepted": 1, "run_started": 1, "run_ended": 1, "batch_intent": r.Batches.Total, "batch_settled": r.Batches.Total} {
		if int64(seen[action]) != want {
			s.Errorf("%d audit entries are %s, want %d", seen[action], action, want)
		}
	}
}

func (s *site) hexOf(column string) string {
	if strings.HasPrefix(s.ledger, postgres) {
		return "encode(" + column + ", 'hex')"
	}
	return "hex(" + column + ")"
}

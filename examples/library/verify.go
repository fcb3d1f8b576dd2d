package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"curfew.dev/curfew/api"
)

// tally is what statistics are made of, and how many rows there are.
type tally struct {
	loans, fines, open int64
	statistics         map[string]int64 // loans of the last two years by branch and category
}

func (l *library) tally(ctx context.Context, night time.Time) (t tally, err error) {
	for _, q := range []struct {
		into *int64
		sql  string
	}{{&t.loans, "SELECT count(*) FROM loan"}, {&t.fines, "SELECT count(*) FROM fine"}, {&t.open, "SELECT count(*) FROM fine WHERE paid_at IS NULL"}} {
		if *q.into, err = l.Count(ctx, q.sql); err != nil {
			return t, err
		}
	}
	rows, err := l.DB.QueryContext(ctx, l.SQL("SELECT branch, category, count(*) FROM loan WHERE returned_at >= ? GROUP BY branch, category"), l.At(night.AddDate(-2, 0, 1)))
	if err != nil {
		return t, err
	}
	defer rows.Close()
	t.statistics = map[string]int64{}
	for rows.Next() {
		var branch, category string
		var n int64
		if err := rows.Scan(&branch, &category, &n); err != nil {
			return t, err
		}
		t.statistics[branch+" "+category] = n
	}
	return t, rows.Err()
}

// receipts adds up what curfew wrote beside the data, in the transactions that changed it.
func (l *library) receipts(ctx context.Context) (map[string]int64, error) {
	found, err := l.DB.QueryContext(ctx, "SELECT outcomes FROM "+l.Own()+"receipt")
	if err != nil {
		return nil, err
	}
	defer found.Close()
	sum := map[string]int64{}
	for found.Next() {
		var text []byte
		var outcomes map[string]int64
		if err := found.Scan(&text); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &outcomes); err != nil {
			return nil, fmt.Errorf("a receipt's outcomes: %w", err)
		}
		for name, n := range outcomes {
			sum[name] += n
		}
	}
	return sum, found.Err()
}

// verify counts in the database itself, and holds what was said above against it.
func (s *story) verify(ctx context.Context) error {
	s.Say("Is that true? Counted in the database itself:")
	for _, part := range []func(context.Context) error{s.verifyRows, s.verifyCounts, s.verifyAudit, s.verifySecrets} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	s.Check(s.clean, "SIGTERM ended curfew serve cleanly")
	return nil
}

// none checks that a query counts no row.
func (s *story) none(ctx context.Context, claim, query string, args ...any) error {
	n, err := s.lib.Count(ctx, query, args...)
	s.Check(err == nil && n == 0, "%s: %d", claim, n)
	return err
}

func (s *story) verifyRows(ctx context.Context) error {
	last := len(s.nights) - 1
	old, month := s.lib.At(s.runs[circulation][last].Cutoff), s.lib.At(s.runs[history][last].Cutoff)
	for _, c := range []struct {
		claim, query string
		args         []any
	}{
		{"loans older than two years left, without an open fine", "SELECT count(*) FROM loan WHERE returned_at < ? AND NOT " + openFine, []any{old}},
		{"loans older than thirty days that name a patron who did not ask for that, without an open fine",
			"SELECT count(*) FROM loan JOIN patron p ON p.id = loan.patron_id WHERE returned_at < ? AND p.privacy <> 'forever' AND p.id <> ? AND NOT " + openFine, []any{month, nobody}},
		{"returned loans that name a patron who chose never, without an open fine",
			"SELECT count(*) FROM loan JOIN patron p ON p.id = loan.patron_id WHERE returned_at < ? AND p.privacy = 'never' AND NOT " + openFine, []any{s.lib.At(s.nights[last])}},
		{"anonymised loans with more of a postcode than the area, or a note", "SELECT count(*) FROM loan WHERE patron_id = ? AND (LENGTH(postcode) <> 2 OR note IS NOT NULL)", []any{nobody}},
	} {
		if err := s.none(ctx, c.claim, c.query, c.args...); err != nil {
			return err
		}
	}
	there, err := s.lib.Count(ctx, "SELECT count(*) FROM loan WHERE id = ? AND patron_id = ?", s.disputed, reader)
	s.Check(there == 1, "the loan whose fine was booked while the run was at work is there: %d", there)
	return err
}

func (s *story) verifyCounts(ctx context.Context) error {
	after, err := s.lib.tally(ctx, s.nights[len(s.nights)-1])
	if err != nil {
		return err
	}
	receipts, err := s.lib.receipts(ctx)
	if err != nil {
		return err
	}
	var sums, cascaded int64
	done := map[string]int64{}
	var unbalanced int
	for _, runs := range s.runs {
		for _, r := range runs {
			for _, n := range r.Outcomes {
				sums += n
			}
			if r.Planned != r.Outcomes.Sum() || r.State != api.StateSucceeded {
				unbalanced++
			}
			done["deleted"] += r.Outcomes["deleted"]
			done["anonymised"] += r.Outcomes["anonymised"]
			cascaded += r.Cascaded
		}
	}
	s.Check(unbalanced == 0 && sums > 0, "runs whose outcomes do not add up to what was planned: %d", unbalanced)
	gone := s.before.loans - after.loans
	s.Check(gone > 0 && gone == done["deleted"] && gone == receipts["deleted"], "loans gone: %d; deleted by the ledger %d, by the receipts %d", gone, done["deleted"], receipts["deleted"])
	// A loan that was anonymised on one night and destroyed on another is counted among both.
	s.Check(done["anonymised"] > 0 && done["anonymised"] == receipts["anonymised"], "anonymised by the ledger %d, by the receipts %d", done["anonymised"], receipts["anonymised"])
	s.Check(s.before.fines+1-after.fines == cascaded && cascaded > 0, "fines that went with their loans: %d; by the ledger %d", s.before.fines+1-after.fines, cascaded)
	s.Check(after.open == s.before.open+1-finesPaid, "open fines still there: %d of %d, and the one that was booked, less %d paid", after.open, s.before.open, finesPaid)
	s.Check(maps.Equal(after.statistics, s.before.statistics) && len(after.statistics) == 9, "loans of two years by branch and category: the same %d numbers as before", len(after.statistics))

	held := [3]int64{}
	for i := range held {
		held[i] = s.runs[circulation][i].Outcomes["held"] + s.runs[history][i].Outcomes["held"]
	}
	left, err := s.lib.Count(ctx, "SELECT count(*) FROM loan WHERE patron_id = ? AND returned_at < ? AND NOT "+openFine, accused, s.lib.At(s.runs[history][2].Cutoff))
	s.Check(held[0] > 0 && held[1] >= held[0] && held[2] == 0 && s.heldThen > 0 && left == 0,
		"held in the three nights: %d, %d, %d; of the %d loans of patron %d, left that should be gone: %d", held[0], held[1], held[2], s.heldThen, accused, left)
	return err
}

// verifyAudit looks for what must be in the audit log: of each run that it was accepted, that it ended, and what each batch was about to do and did.
func (s *story) verifyAudit(ctx context.Context) error {
	var missing, entries int
	for _, runs := range s.runs {
		for _, r := range runs {
			var detail api.RunDetail
			if err := s.Answer(ctx, &detail, "show", r.ID); err != nil {
				return err
			}
			seen := map[string]int64{}
			for _, e := range detail.Audit {
				seen[e.Event]++
				entries++
			}
			if seen["run_accepted"] != 1 || seen["run_ended"] != 1 || seen["batch_settled"] != r.Batches.Settled || seen["batch_intent"] < r.Batches.Settled {
				missing++
			}
		}
	}
	s.Check(missing == 0 && entries > 0, "runs of which the audit log lacks something, in its %d entries about them: %d", entries, missing)

	var months []api.GapMonth
	if err := s.Answer(ctx, &months, "gaps"); err != nil {
		return err
	}
	var runs, changed, want int64
	for _, m := range months {
		runs, changed = runs+m.Runs, changed+m.Changed
	}
	for _, of := range s.runs {
		for _, r := range of {
			want += r.Outcomes["deleted"] + r.Outcomes["anonymised"]
		}
	}
	s.Check(runs == 6 && changed == want, "by the report for the auditor: %d runs that changed %d rows", runs, changed)
	return nil
}

func (s *story) verifySecrets(context.Context) error {
	files, err := filepath.Glob(s.Path("curfew.db*"))
	if err != nil {
		return err
	}
	found := 0
	for _, name := range append(files, s.daemon.Log) {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		found += bytes.Count(text, []byte(domain))
	}
	s.Check(found == 0 && len(files) > 0, "patrons named in the ledger and the log: %d", found)
	return nil
}

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/examples/internal/stage"
)

const (
	circulation = "circulation"
	history     = "reading_history"
	docket      = "12-C-345"

	openFine = "EXISTS (SELECT 1 FROM fine f WHERE f.loan_id = loan.id AND f.paid_at IS NULL)"
)

// prepare is what is done once.
func (s *story) prepare(ctx context.Context) error {
	s.Say("Once: curfew's tables for receipts and holds in that database. Then: is everything in order, and what would go?")
	for _, args := range [][]string{{"install", "library"}, {"check"}, {"plan"}} {
		if err := s.Command(ctx, 0, args...); err != nil {
			return err
		}
	}
	return nil
}

// court is a legal hold on a person, whichever table names that one.
func (s *story) court(ctx context.Context) error {
	s.Say("A court wants whatever is on record of patron %d kept. When the command returns, it is.", accused)
	return s.Command(ctx, 0, "hold", "place", "--name", docket, "--reason", "district court, order of this morning", "--subject", fmt.Sprint(accused))
}

// night runs both policies as of an instant, circulation first: what is destroyed need not be anonymised.
func (s *story) night(ctx context.Context, n int) error {
	for _, policy := range []string{circulation, history} {
		if err := s.purge(ctx, policy, n); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) purge(ctx context.Context, policy string, n int) error {
	args := []string{"run", policy, "--as-of", s.nights[n].Format(time.RFC3339)}
	if err := s.Command(ctx, 0, args...); err != nil {
		return err
	}
	// The same run asked for again is shown, not run: the answer comes from the ledger.
	runs := s.runs[policy]
	if err := s.Answer(ctx, &runs[n], args...); err != nil {
		return err
	}
	if s.runs == nil {
		s.runs = map[string][3]api.Run{}
	}
	s.runs[policy] = runs
	return nil
}

func (s *story) firstNight(ctx context.Context) error {
	var err error
	if s.before, err = s.lib.tally(ctx, s.nights[len(s.nights)-1]); err != nil {
		return err
	}
	var wanted int64
	if err := s.lib.DB.QueryRowContext(ctx, s.lib.SQL("SELECT MIN(id) FROM loan WHERE patron_id = ? AND returned_at < ?"), accused, s.lib.At(s.nights[0].AddDate(-2, 0, -2))).Scan(&wanted); err != nil {
		return err
	}
	s.Say("The first night.")
	if err := s.night(ctx, 0); err != nil {
		return err
	}
	s.Say("What the court wants is still there: loan %d for example, or whatever the second run lists as held.", wanted)
	if err := s.Command(ctx, 0, "explain", circulation, fmt.Sprint(wanted)); err != nil {
		return err
	}
	return s.Command(ctx, 0, "show", s.runs[history][0].ID[:12])
}

// What happens in a day.
const (
	finesPaid = 40
	minds     = 20 // patrons who change their mind
)

func (s *story) day(ctx context.Context) error {
	s.Say("The day: %d of the oldest open fines are paid, and %d patrons choose that their loans are forgotten at once.", finesPaid, minds)
	paid := `UPDATE fine SET paid_at = ? WHERE id IN (SELECT id FROM (SELECT f.id FROM fine f JOIN loan l ON l.id = f.loan_id
		WHERE f.paid_at IS NULL ORDER BY l.returned_at, f.id LIMIT ` + fmt.Sprint(finesPaid) + `) oldest)`
	if err := s.lib.Exec(ctx, paid, s.lib.At(s.nights[1].Add(-8*time.Hour))); err != nil {
		return err
	}
	return s.lib.Exec(ctx, `UPDATE patron SET privacy = 'never' WHERE id IN (SELECT id FROM (SELECT id FROM patron
		WHERE privacy = 'default' AND id NOT IN (?, ?) ORDER BY id LIMIT `+fmt.Sprint(minds)+`) chosen)`, nobody, accused)
}

// secondNight has somebody at the desk who books a fine for a loan that is about to be destroyed.
func (s *story) secondNight(ctx context.Context) error {
	err := s.lib.DB.QueryRowContext(ctx, s.lib.SQL(`SELECT id FROM loan WHERE returned_at >= ? AND patron_id = ?
		AND NOT EXISTS (SELECT 1 FROM fine f WHERE f.loan_id = loan.id) ORDER BY returned_at, id LIMIT 1`), s.lib.At(s.runs[circulation][0].Cutoff), reader).Scan(&s.disputed)
	if err != nil {
		return err
	}
	s.Say("The second night. At the desk somebody is just booking a fine for loan %d, which is due by now: written, not committed yet.", s.disputed)
	tx, err := s.lib.book(ctx, s.disputed)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.night(ctx, 1) }()
	err = stage.Until(ctx, stage.Patience, "the scan has found the loan", func() (bool, error) {
		var runs []api.Run
		err := s.Answer(ctx, &runs, "runs")
		return len(runs) > 0 && runs[0].AsOf.Equal(s.nights[1]) && runs[0].Batches.Total > 0, err
	})
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		cancel()
		return errors.Join(err, <-done)
	}
	if err := <-done; err != nil {
		return err
	}
	s.Say("The fine was committed when the run had found its loan already. The run waited, asked again, and left it:")
	return s.Command(ctx, 0, "explain", circulation, fmt.Sprint(s.disputed))
}

func (s *story) released(ctx context.Context) error {
	var err error
	if s.heldThen, err = s.lib.Count(ctx, "SELECT count(*) FROM loan WHERE patron_id = ?", accused); err != nil {
		return err
	}
	s.Say("The court has what it wanted.")
	return s.Command(ctx, 0, "hold", "release", docket, "--reason", "settled")
}

func (s *story) thirdNight(ctx context.Context) error {
	s.Say("The third night.")
	return s.night(ctx, 2)
}

// auditor is what somebody asks for who was not there; and the daemon that does all this every night.
func (s *story) auditor(ctx context.Context) error {
	s.Say("From now on by itself, every night at 02:00. And for the auditor: what ran, what it destroyed, what was held, and is all well?")
	var err error
	if s.daemon, err = s.Serve(ctx); err != nil {
		return err
	}
	for _, args := range [][]string{{"runs"}, {"gaps"}, {"hold", "list", "--all"}, {"show", s.runs[circulation][2].ID[:12]}, {"explain", circulation, "7"}, {"status"}} {
		if err := s.Command(ctx, 0, args...); err != nil {
			return err
		}
	}
	code, err := s.daemon.Stop()
	s.Say("$ kill -TERM $!\n(curfew serve ended with exit code %d)", code)
	s.clean = code == 0
	return err
}

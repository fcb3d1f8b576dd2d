package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"curfew.dev/curfew/api"
)

// verify counts in the database itself, and holds what was said above against it.
func (s *story) verify(ctx context.Context) error {
	s.Say("Is that true? Counted in the database itself:")
	if err := s.verifyRows(ctx); err != nil {
		return err
	}
	if err := s.verifyLedger(ctx); err != nil {
		return err
	}
	s.Check(s.clean, "SIGTERM ended curfew serve cleanly")
	return nil
}

func (s *story) verifyRows(ctx context.Context) error {
	var there int
	for _, id := range s.app.kept {
		n, err := s.app.Count(ctx, "SELECT count(*) FROM user_session WHERE id = ?", id)
		if err != nil {
			return err
		}
		there += int(n)
	}
	s.Check(there == len(s.app.kept) && there >= signingIn, "refreshed sessions kept: %d of %d", there, len(s.app.kept))

	left, err := s.app.Count(ctx, "SELECT count(*) FROM user_session WHERE expires_at < ?", s.app.At(s.second.Cutoff))
	if err != nil {
		return err
	}
	s.Check(left == 0, "sessions left that had expired by the cutoff of the last run: %d", left)

	rows, err := s.app.Count(ctx, "SELECT count(*) FROM user_session")
	if err != nil {
		return err
	}
	deleted, err := s.app.receipts(ctx)
	if err != nil {
		return err
	}
	gone := s.app.made - rows
	s.Check(gone == deleted && gone > 0, "deleted by the receipts: %d; rows that are gone: %d", deleted, gone)
	byLedger := s.first.Outcomes["deleted"] + s.second.Outcomes["deleted"]
	s.Check(byLedger == gone, "deleted by the ledger's two runs: %d + %d", s.first.Outcomes["deleted"], s.second.Outcomes["deleted"])
	want := int64(len(s.app.expired) - len(s.app.kept) + signedOut)
	s.Check(gone == want, "expired, less refreshed, plus signed out: %d - %d + %d = %d", len(s.app.expired), len(s.app.kept), signedOut, want)
	late := s.first.Outcomes["no_longer_due"]
	s.Check(late >= signingIn, "refreshed after the scan had found them, and left alone: %d", late)
	return nil
}

// receipts adds up what curfew wrote beside the data, in the transactions that deleted.
func (a *application) receipts(ctx context.Context) (deleted int64, err error) {
	found, err := a.DB.QueryContext(ctx, "SELECT outcomes FROM "+a.Own()+"receipt")
	if err != nil {
		return 0, err
	}
	defer found.Close()
	for found.Next() {
		var text []byte
		var outcomes map[string]int64
		if err := found.Scan(&text); err != nil {
			return 0, err
		}
		if err := json.Unmarshal(text, &outcomes); err != nil {
			return 0, fmt.Errorf("a receipt's outcomes: %w", err)
		}
		deleted += outcomes["deleted"]
	}
	return deleted, found.Err()
}

func (s *story) verifyLedger(ctx context.Context) error {
	var runs []api.Run
	if err := s.Answer(ctx, &runs, "runs"); err != nil {
		return err
	}
	var calls []api.Call
	if err := s.Answer(ctx, &calls, "calls"); err != nil {
		return err
	}
	made := map[string]int{}
	for _, c := range calls {
		if c.Fresh {
			made[c.Run]++
		}
	}
	s.Check(len(runs) == 2 && made[s.first.ID] == 1 && made[s.second.ID] == 1, "%d calls made %d runs", len(calls), len(runs))
	strange := s.strangers
	for _, c := range calls {
		if c.Token != "scheduler" || c.Answer != http.StatusAccepted {
			strange++
		}
	}
	s.Check(strange == 0, "what is in the ledger of the two calls that were refused: %d", strange)

	var months []api.GapMonth
	if err := s.Answer(ctx, &months, "gaps"); err != nil {
		return err
	}
	var missed int64
	for _, m := range months {
		missed += m.Missed
	}
	s.Check(missed >= 2, "calls that did not come, on record: %d", missed)

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
		found += bytes.Count(text, []byte(idPrefix))
	}
	s.Check(found == 0 && len(files) > 0, "ids of sessions in the ledger and the log, which are as good as passwords: %d", found)
	return nil
}

package alert

import (
	"strings"
	"testing"

	"curfew.dev/curfew/internal/ledger"
)

// Rows of which nobody knows whether their message arrived are one alert for each run; other failures of rows are none.
func TestUncertain(t *testing.T) {
	onBoth(t, func(b *lab) {
		a := b.loop()
		r := b.start(b.accept("trials", "enforce", "schedule", "2y"))
		key := ledger.BatchKey{1}
		if _, err := b.l.Step(b.Context(), r.ID, ledger.StepRequest{Admit: &ledger.Admission{NewCursor: []byte("c"), PagedOut: true,
			Batches: []ledger.NewBatch{{Key: key, Phase: "main", Planned: 4}}}}); err != nil {
			b.Fatal(err)
		}
		if _, err := b.l.Settle(b.Context(), r.ID, ledger.Settlement{Batch: key, Planned: 4, Outcomes: ledger.Outcomes{"notified": 1, "failed": 3}, KeyID: "k", Attempts: 1,
			Blocked: []ledger.BlockedRow{
				{Hash: [16]byte{1}, Outcome: "failed", Reason: "uncertain: the mail server was lost"},
				{Hash: [16]byte{2}, Outcome: "failed", Reason: "the address is malformed"},
				{Hash: [16]byte{3}, Outcome: "failed", Reason: "uncertain: the mail server was lost"}}}); err != nil {
			b.Fatal(err)
		}
		b.pass(a)
		b.pass(a)
		var told []data
		for _, x := range b.alerts() {
			if x.Kind == RowUncertain {
				told = append(told, b.said(x))
			}
		}
		if len(told) != 1 || told[0].Run != r.ID || !strings.Contains(told[0].Message, "curfew show "+r.ID[:12]) || strings.Contains(told[0].Detail, "malformed") {
			b.Errorf("%+v", told)
		}
	})
}

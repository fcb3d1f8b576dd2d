package ledger

import (
	"fmt"
	"testing"

	"curfew.dev/curfew/internal/dbtest"
)

// BenchmarkStep is the hot path: settle the batch before, admit the next, with
// sealed keys of a thousand rows, in one durable transaction.
func BenchmarkStep(b *testing.B) {
	for _, engine := range []string{"sqlite", "postgres"} {
		b.Run(engine, func(b *testing.B) {
			url := "sqlite:" + dbtest.SQLite(b)
			if engine == "postgres" {
				url = migrated(b, dbtest.Postgres(b))
			}
			l := open(b, Options{URL: url})
			r := started(b, l, "p")
			keys := make([]byte, 12_000)
			n := 0
			for b.Loop() {
				n++
				req := StepRequest{Admit: &Admission{OldCursor: r.Cursor, NewCursor: fmt.Appendf(nil, "cursor %d", n), Batches: []NewBatch{
					{Key: key(r.ID, n), Phase: "trigger", Bounds: keys[:100], Keys: keys, Planned: 1000}}}}
				if n > 1 {
					req.Settle = []Settlement{settlement(r.ID, n-1, Outcomes{"deleted": 997, "gone": 2, "held": 1})}
				}
				var err error
				if r, err = l.Step(b.Context(), r.ID, req); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "steps/s")
		})
	}
}

func BenchmarkAccept(b *testing.B) {
	for _, engine := range []string{"sqlite", "postgres"} {
		b.Run(engine, func(b *testing.B) {
			url := "sqlite:" + dbtest.SQLite(b)
			if engine == "postgres" {
				url = migrated(b, dbtest.Postgres(b))
			}
			l := open(b, Options{URL: url})
			for b.Loop() {
				if _, _, err := l.Accept(b.Context(), an("p", IdentityOnce())); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

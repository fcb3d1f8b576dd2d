package target

import (
	"sync"
	"testing"
	"time"

	"curfew.dev/curfew/policy"
)

// BenchmarkDrain deletes a third of a million rows of a table in batches, four at a time, without a ledger, beside one plain
// DELETE of as many.
func BenchmarkDrain(b *testing.B) {
	const rows = 1_000_000
	for _, order := range []string{"clustered", "scattered"} {
		for _, how := range []string{"plain", "batches"} {
			b.Run(order+"/"+how, func(b *testing.B) {
				for range b.N {
					b.StopTimer()
					benchDrain(b, order, how, rows)
				}
			})
		}
	}
}

func benchDrain(b *testing.B, order, how string, rows int) {
	l := newBenchLab(b)
	l.exec(b, `CREATE TABLE ev (id bigint NOT NULL, at timestamptz NOT NULL, branch int, note text)`)
	by := "g"
	if order == "scattered" {
		by = "random()"
	}
	l.exec(b, `INSERT INTO ev SELECT g, '2024-01-01'::timestamptz + g * interval '1 second', g % 7, repeat('x', 60) FROM generate_series(1, `+itoa(rows)+`) g ORDER BY `+by)
	l.exec(b, `ALTER TABLE ev ADD PRIMARY KEY (id)`)
	l.exec(b, `CREATE INDEX ON ev (at)`)
	l.exec(b, `VACUUM ANALYZE ev`)
	cut := time.Date(2024, 1, 1, 5, 0, 0, 0, time.UTC).Add(time.Duration(rows/2) * time.Second)
	p := &policy.Policy{Name: "p", Database: "lab", Table: "ev", Trigger: policy.Trigger{Column: "at", Until: true}, Action: policy.Action{Kind: policy.Delete}, Mode: policy.Enforce, Timezone: "UTC"}
	tab, err := l.db.Inspect(b.Context(), "ev")
	if err != nil {
		b.Fatal(err)
	}
	j, err := NewJob(l.db, JobOptions{Policy: p, Table: tab, AsOf: cut, Cutoff: cut, Run: "bench", Keys: l.keys})
	if err != nil {
		b.Fatal(err)
	}
	if j.fingerprint, err = j.FingerprintNow(b.Context()); err != nil {
		b.Fatal(err)
	}
	if err := j.ChooseStrategy(b.Context()); err != nil {
		b.Fatal(err)
	}
	b.StartTimer()
	start := time.Now()
	n := int64(0)
	if how == "plain" {
		r, err := l.db.SQL.Exec(`DELETE FROM ev WHERE at < '` + cut.Format(time.RFC3339) + `'`)
		if err != nil {
			b.Fatal(err)
		}
		n, _ = r.RowsAffected()
	} else {
		work := make(chan Work)
		var wg sync.WaitGroup
		var mu sync.Mutex
		for range 3 {
			wg.Go(func() {
				for w := range work {
					res, err := j.Execute(b.Context(), cut, w)
					if err != nil {
						b.Error(err)
						return
					}
					mu.Lock()
					n += res.Outcomes["deleted"]
					mu.Unlock()
				}
			})
		}
		var at []byte
		for {
			pg, err := j.Page(b.Context(), at, 20000)
			if err != nil {
				b.Fatal(err)
			}
			if pg.Batch != nil {
				work <- l.work(pg.Batch)
			}
			at = pg.Cursor
			if pg.Done {
				break
			}
		}
		close(work)
		wg.Wait()
	}
	b.ReportMetric(float64(n)/time.Since(start).Seconds(), "rows/s")
}

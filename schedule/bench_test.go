package schedule_test

import (
	"testing"
	"time"

	"curfew.dev/curfew/schedule"
)

func BenchmarkNext(b *testing.B) {
	for _, c := range []struct{ name, expr, zone string }{
		{"minutely", "* * * * *", "Europe/Berlin"},
		{"daily", "0 2 * * *", "Europe/Berlin"},
		{"leap day", "0 12 29 2 *", "Europe/Berlin"},
		{"leap Sunday", "0 12 29 2 */7", "Europe/Berlin"},
		{"daily UTC", "0 2 * * *", "UTC"},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := schedule.Schedule{Cron: parse(b, c.expr), Location: location(b, c.zone)}
			from := time.Date(2096, 3, 1, 0, 0, 0, 0, time.UTC)
			for b.Loop() {
				if _, ok := s.Next(from); !ok {
					b.Fatal("it never comes")
				}
				if _, ok := s.Prev(from); !ok {
					b.Fatal("it never came")
				}
			}
		})
	}
}

func BenchmarkBetween(b *testing.B) {
	s := schedule.Schedule{Cron: parse(b, "* * * * *"), Location: location(b, "Europe/Berlin")}
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	n := 0
	for b.Loop() {
		for range s.Between(from, from.AddDate(0, 1, 0)) {
			n++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/instant")
}

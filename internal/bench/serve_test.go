package main

import (
	"strings"
	"testing"
	"time"
)

func TestInstant(t *testing.T) {
	want := time.Date(2026, 7, 1, 2, 0, 0, 250e6, time.UTC)
	for _, v := range []any{want, "2026-07-01T02:00:00.250000Z", "2026-07-01 02:00:00.250"} {
		if got, err := instant(v); err != nil || !got.Equal(want) {
			t.Errorf("%v is %s, %v", v, got, err)
		}
	}
	for _, v := range []any{nil, "", "yesterday", int64(3)} {
		if got, err := instant(v); err == nil {
			t.Errorf("%v was read as %s", v, got)
		}
	}
}

// TestPassages compares within a round only: the second round is ten times as slow for both, and no ratio may show it.
func TestPassages(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	one := func(wall int, waits ...time.Duration) passage {
		return passage{wall: ms(wall), rows: 1000, batches: 2, waits: waits, takes: []time.Duration{ms(10), ms(10)}, totals: []time.Duration{ms(40), ms(40)}}
	}
	direct, queued := []passage{one(100), one(1000)}, []passage{one(200, ms(20), ms(30)), one(2000, ms(20), ms(30))}
	r := &report{}
	r.passages("direct", direct, direct)
	r.passages("queued", queued, direct)
	for _, want := range []string{"| direct | 5,500 | 1.00 | 0.0 | – | – | 10.0 ms | 40.0 ms | 75 % |", "| queued | 2,750 | 2.00 | 0.0 | 20.0 ms | 30.0 ms |"} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("no %q in\n%s", want, r)
		}
	}
	if got := (passage{}).idle(); got != 1 {
		t.Errorf("without a batch, %v of the time went into nothing", got)
	}
}

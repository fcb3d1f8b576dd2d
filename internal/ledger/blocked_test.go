package ledger

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func row(n byte, outcome, reason string) BlockedRow {
	return BlockedRow{Hash: [16]byte{n, 0xff}, Outcome: outcome, Reason: reason}
}

// TestBlocked follows rows over several nights.
func TestBlocked(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		night := func(n int, mode string, blocked ...BlockedRow) Run {
			t.Helper()
			at := time.Date(2026, 7, n, 2, 0, 0, 0, time.UTC)
			r := started(t, l, "p", func(a *Acceptance) { a.AsOf, a.Mode = &at, mode })
			r = pagedOut(t, l, admitOne(t, l, r, n, 100))
			o := Outcomes{"deleted": 100 - int64(len(blocked)), "blocked": int64(len(blocked))}
			r = settleOne(t, l, r, n, o, func(s *Settlement) { s.Blocked = blocked })
			r, err := l.End(ctx, r.ID, Succeeded, WhyDone, "")
			if err != nil || r.State != Succeeded {
				t.Fatalf("%s %s, %v", r.State, r.Detail, err)
			}
			return r
		}
		expect := func(when string, news, released int, left ...BlockedRow) []Blocked {
			t.Helper()
			if n, m := count(t, l, ActionRowBlocked), count(t, l, ActionBlockedReleased); n != news || m != released {
				t.Errorf("%s: %d row_blocked and %d blocked_released entries, want %d and %d", when, n, m, news, released)
			}
			rows, err := l.BlockedRows(ctx, "p", "", 100)
			if err != nil {
				t.Fatal(err)
			}
			var got []BlockedRow
			for _, b := range rows {
				got = append(got, b.BlockedRow)
			}
			if d := cmp.Diff(left, got); d != "" {
				t.Errorf("%s: %s", when, d)
			}
			if n, err := l.CountBlocked(ctx, "p", ""); err != nil || n != int64(len(left)) {
				t.Errorf("%s: %d blocked, %v", when, n, err)
			}
			return rows
		}
		a, b := row(1, "blocked", "fine_fk"), row(2, "failed", "check_x")

		first := night(10, "enforce", b, a, b) // b twice in one settlement
		rows := expect("first night", 2, 0, a, b)
		if rows[0].FirstRun != first.ID || rows[0].KeyID != "6c1d3b0a" || rows[0].FirstSeen != rows[0].LastSeen {
			t.Errorf("%+v", rows[0])
		}
		second := night(11, "enforce", a, b)
		rows = expect("the same rows the next night", 2, 0, a, b)
		if rows[0].FirstRun != first.ID || rows[0].LastRun != second.ID || !rows[0].LastSeen.After(rows[0].FirstSeen) {
			t.Errorf("%+v", rows[0])
		}
		night(12, "shadow")
		expect("a shadow run frees nothing", 2, 0, a, b)
		night(5, "enforce")
		expect("an older as_of does not cover them", 2, 0, a, b)

		b.Reason = "veto_trigger"
		night(13, "enforce", a, b)
		expect("another reason is news", 3, 0, a, b)
		night(14, "enforce", b)
		expect("one is gone", 3, 1, b)
		night(15, "enforce", a, b)
		expect("and back", 4, 1, b, a)
		night(16, "enforce")
		expect("all are gone", 4, 2)

		for _, e := range entries(t, l) {
			if e.Action != ActionRowBlocked {
				continue
			}
			var body struct{ Row, Outcome, Reason string }
			if err := json.Unmarshal(e.Body, &body); err != nil || len(body.Row) != 32 || body.Outcome == "" || body.Reason == "" || len(e.Batch) != 32 {
				t.Errorf("%s, %v", e.Body, err)
			}
		}
	})
}

// TestBlockedFailedRunFreesNothing: it did not look at everything.
func TestBlockedFailedRunFreesNothing(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		r := admitOne(t, l, started(t, l, "p"), 1, 1)
		settleOne(t, l, r, 1, Outcomes{"blocked": 1}, func(s *Settlement) { s.Blocked = []BlockedRow{row(1, "blocked", "fk")} })
		for _, state := range []State{Failed, Cancelled} {
			if _, err := l.End(t.Context(), started(t, l, "p").ID, state, WhyError, ""); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := l.CountBlocked(t.Context(), "p", ""); err != nil || n != 1 {
			t.Errorf("%d blocked, %v", n, err)
		}
	})
}

// TestBlockedMany: more rows than one statement takes, and a settlement repeated.
func TestBlockedMany(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		const n = 3*blockedChunk + 7
		r := admitOne(t, l, started(t, l, "p"), 1, n)
		var rows []BlockedRow
		for i := range n {
			rows = append(rows, BlockedRow{Hash: [16]byte{byte(i), byte(i >> 8)}, Outcome: "blocked", Reason: "fk\x00\xff"})
		}
		for range 2 {
			settleOne(t, l, r, 1, Outcomes{"blocked": n}, func(s *Settlement) { s.Blocked = rows })
		}
		if got := count(t, l, ActionRowBlocked); got != n {
			t.Errorf("%d entries, want %d", got, n)
		}
		if got, err := l.CountBlocked(t.Context(), "p", ""); err != nil || got != n {
			t.Errorf("%d blocked, %v", got, err)
		}
	})
}

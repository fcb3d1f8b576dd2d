package alert

import (
	"context"
	"errors"
	"time"

	"curfew.dev/curfew/internal/ledger"
)

// page is how many entries are read at once.
const page = 500

// gapWait is how long a missing seq may still appear. PostgreSQL hands out a seq
// before the commit, and ends a transaction that sleeps for a minute.
const gapWait = 75 * time.Second

// watch reads the audit log to its end and records what is to be told.
func (a *Loop) watch(ctx context.Context) error {
	from, err := a.l.Tail(ctx, tailName)
	if errors.Is(err, ledger.ErrNotFound) {
		from, err = a.l.StartTail(ctx, tailName, firstLook)
	}
	if err != nil {
		return err
	}
	for {
		entries, err := a.l.AuditEntries(ctx, from, page)
		if err != nil {
			return err
		}
		more := len(entries) == page
		entries = entries[:a.gaps.final(from, entries, a.o.Clock(), a.gapWait)]
		if len(entries) == 0 {
			return nil
		}
		alerts, err := a.read(ctx, entries)
		if err != nil {
			return err
		}
		upTo := entries[len(entries)-1].Seq
		if err := a.add(ctx, tailName, from, upTo, alerts); err != nil {
			if errors.Is(err, ledger.ErrTailMoved) {
				return nil // another process told what was to be told
			}
			return err
		}
		if from = upTo; !more {
			return nil
		}
	}
}

// add records alerts and wakes the sender.
func (a *Loop) add(ctx context.Context, tail string, from, upTo int64, alerts []ledger.NewAlert) error {
	for i := range alerts {
		if !isPing(alerts[i].Kind) {
			alerts[i].Silent = a.webhook == nil
		}
	}
	n, err := a.l.AddAlerts(ctx, tail, from, upTo, alerts)
	if err != nil || n == 0 {
		return err
	}
	for _, x := range alerts {
		if !isPing(x.Kind) {
			a.log.InfoContext(ctx, "alert", "kind", x.Kind, "policy", x.Policy, "stage", x.Stage, "run", x.Run)
		}
	}
	select {
	case a.wake <- struct{}{}:
	default:
	}
	return nil
}

// gaps remembers up to which seq entries had been seen when, to tell a seq that
// will never come (its transaction was rolled back) from one that is late.
type gaps struct{ seen []sighting }

type sighting struct {
	seq int64
	at  time.Time
}

// final returns how many of the entries after from can be read for good: those
// before the first gap that may yet be filled. An entry that was seen wait ago has
// nothing before it that is still to come.
func (g *gaps) final(from int64, entries []ledger.Entry, now time.Time, wait time.Duration) int {
	old := int64(0)
	for len(g.seen) > 0 && now.Sub(g.seen[0].at) >= wait {
		old = g.seen[0].seq
		// Kept as long as it is the only one that says so.
		if len(g.seen) == 1 || now.Sub(g.seen[1].at) < wait {
			break
		}
		g.seen = g.seen[1:]
	}
	if n := len(entries); n > 0 {
		last := entries[n-1].Seq
		if k := len(g.seen); k == 0 || g.seen[k-1].seq < last && now.Sub(g.seen[k-1].at) >= wait/16 {
			g.seen = append(g.seen, sighting{last, now})
		}
	}
	next := from + 1
	for i, e := range entries {
		if e.Seq != next && e.Seq > old {
			return i
		}
		next = e.Seq + 1
	}
	return len(entries)
}

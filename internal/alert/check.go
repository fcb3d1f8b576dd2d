package alert

import (
	"context"
	"fmt"
	"slices"
	"time"

	"curfew.dev/curfew/internal/ledger"
)

const (
	noProgress  = 15 * time.Minute   // how long nothing may happen to an open run
	pauseAtMost = 7 * 24 * time.Hour // a pause longer than this was forgotten; told again after as long

	// A run is a spike when it changed spikeTimes as many rows, for the time since
	// the run before it, as the median of the last spikeRuns runs; spikeFewest
	// runs and spikeRows rows are needed to speak of what is usual.
	spikeTimes  = 5
	spikeRuns   = 10
	spikeFewest = 3
	spikeRows   = 50
)

// changed counts the rows that are not as they were.
func changed(o ledger.Outcomes) int64 {
	var n int64
	for _, name := range []string{"deleted", "anonymised", "archived", "set", "notified", "called"} {
		n += o[name]
	}
	return n
}

// spike compares a run with those before it.
func (r *reading) spike(ctx context.Context, run ledger.Run, d data, at time.Time) error {
	if d.Changed < spikeRows {
		return nil
	}
	before, err := r.a.l.RunsBefore(ctx, run, spikeRuns+1)
	if err != nil {
		return err
	}
	usual, ok := usually(run, before)
	if !ok || d.Changed <= spikeTimes*usual {
		return nil
	}
	d.Usual = usual
	d.Message = fmt.Sprintf("%s: the run %s for %s changed %d rows; for that stretch of time about %d are usual",
		name(run.Policy, run.Stage), short(run.ID), shown(run.AsOf), d.Changed, usual)
	return r.add(d, RunSpike, run.ID, at)
}

// usually is how many rows a run would have changed by the median rate of the
// runs before it, over the time that it covers: since the as_of before its own.
func usually(run ledger.Run, before []ledger.Run) (rows int64, ok bool) {
	before = slices.DeleteFunc(slices.Clone(before), func(b ledger.Run) bool { return !b.AsOf.Before(run.AsOf) })
	slices.SortFunc(before, func(a, b ledger.Run) int { return a.AsOf.Compare(b.AsOf) })
	var rates []float64 // rows a second
	for i := 1; i < len(before); i++ {
		if covered := before[i].AsOf.Sub(before[i-1].AsOf); covered > 0 {
			rates = append(rates, float64(changed(before[i].Outcomes))/covered.Seconds())
		}
	}
	if len(rates) < spikeFewest {
		return 0, false
	}
	slices.Sort(rates)
	median := (rates[(len(rates)-1)/2] + rates[len(rates)/2]) / 2
	covered := run.AsOf.Sub(before[len(before)-1].AsOf)
	return int64(median*covered.Seconds() + 0.5), true
}

// check looks for what no entry says, because nothing happened.
func (a *Loop) check(ctx context.Context) error {
	now, err := a.l.Now(ctx)
	if err != nil {
		return err
	}
	r := &reading{a: a}
	for _, look := range []func(context.Context, *reading, time.Time) error{a.stalled, a.lagging, a.paused} {
		if err := look(ctx, r, now); err != nil {
			return err
		}
	}
	if len(r.alerts) == 0 {
		return nil
	}
	return a.add(ctx, "", 0, 0, r.alerts)
}

func (a *Loop) stalled(ctx context.Context, r *reading, now time.Time) error {
	stalls, err := a.l.Stalled(ctx, now.Add(-noProgress))
	if err != nil {
		return err
	}
	for _, s := range stalls {
		run := s.Run
		d := data{Policy: run.Policy, Stage: run.Stage, Run: run.ID, Mode: run.Mode, AsOf: when(run.AsOf), Detail: run.Detail,
			Since: when(s.Last), Heartbeat: when(run.Heartbeat), Seconds: int64(now.Sub(s.Last).Seconds())}
		d.Message = fmt.Sprintf("%s: nothing has happened to the run %s since %s", name(run.Policy, run.Stage), short(run.ID), shown(s.Last))
		if run.Heartbeat.IsZero() || now.Sub(run.Heartbeat) > noProgress {
			d.Message += ", and no process is at work on it. Is `curfew serve` running?"
		} else {
			d.Message += ", though a process is at work on it. Is the database slow, locked or out of reach?"
		}
		if err := r.add(d, RunNoProgress, run.ID+"/"+shown(s.Last), now); err != nil {
			return err
		}
	}
	return nil
}

func (a *Loop) lagging(ctx context.Context, r *reading, _ time.Time) error {
	if a.o.Lag == nil {
		return nil
	}
	schedules, err := a.l.Schedules(ctx)
	if err != nil {
		return err
	}
	for _, s := range schedules {
		limit := a.o.Lag(s.Policy)
		if limit <= 0 || s.OldestDue == nil || s.OldestAt == nil {
			continue
		}
		lag := s.OldestAt.Sub(*s.OldestDue)
		if lag <= limit {
			continue
		}
		d := data{Policy: s.Policy, Stage: s.Stage, Since: s.OldestDue, Seconds: int64(lag.Seconds()), Limit: int64(limit.Seconds())}
		d.Message = fmt.Sprintf("%s: the oldest due row has been due since %s; the limit is %s", name(s.Policy, s.Stage), shown(*s.OldestDue), limit)
		// Told again each day that it lasts.
		if err := r.add(d, RetentionLag, join(s.Policy, s.Stage, s.OldestAt.UTC().Format(time.DateOnly)), *s.OldestAt); err != nil {
			return err
		}
	}
	return nil
}

func (a *Loop) paused(ctx context.Context, r *reading, now time.Time) error {
	pauses, err := a.l.Pauses(ctx)
	if err != nil {
		return err
	}
	for _, p := range pauses {
		times := int64(now.Sub(p.Since) / pauseAtMost)
		if times < 1 {
			continue
		}
		what, mode, err := r.subject(ctx, p.Policy, "")
		if err != nil {
			return err
		}
		effect := "nothing is deleted"
		if mode != "" {
			effect = "its schedule starts no call"
		}
		d := data{Policy: p.Policy, Mode: mode, Actor: p.Actor, Detail: p.Reason, Since: when(p.Since), Seconds: int64(now.Sub(p.Since).Seconds())}
		d.Message = fmt.Sprintf("%s: paused since %s by %s; %s. `curfew resume %s` lets it go on", what, shown(p.Since), p.Actor, effect, p.Policy)
		if err := r.add(d, PauseForgotten, fmt.Sprintf("%s/%s/%d", p.Policy, shown(p.Since), times), now); err != nil {
			return err
		}
	}
	return nil
}

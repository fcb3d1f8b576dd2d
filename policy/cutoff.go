package policy

import "time"

// Cutoff is the instant that a row's trigger must be before to be due in a run
// that stands for asOf: asOf − keep.
//
// Years and months are counted by the calendar of the policy's zone and the
// day is clamped to the end of the month: 31 March minus one month is the last
// of February. (Go's AddDate makes it 3 March, which deletes too much.) Days
// and shorter units are exact lengths, 1d = 24 h.
//
// Calendar arithmetic has two readings, "trigger + keep has passed" and
// "trigger is before asOf − keep", and they disagree at the ends of months and
// around changes of the clock. A row is due only when both say so. For every
// t before the cutoff, t + keep, read as late as it can be, is before asOf.
//
// In the last days of a month that is longer than the month it reaches back
// to, the cutoff stands on that month's last day at the same time of day: at
// 09:00 on 29, 30 and 31 March it is 09:00 on 28 February. So a later as_of may
// have an earlier cutoff, within one day.
//
// In a policy that was narrowed to a stage it is asOf − offset − keep, the
// offset counted in the same way, and the snap of the stage is in it.
func (p *Policy) Cutoff(asOf time.Time) time.Time {
	return p.Keep.before(p.dueBefore(asOf), p.Location())
}

// before is at − p, see [Policy.Cutoff].
func (p Period) before(at time.Time, loc *time.Location) time.Time {
	at = at.UTC()
	months := 12*p.Years + p.Months
	if months == 0 {
		return at.Add(-p.Exact)
	}
	// P1M1D: a month and then a day, or a day and then a month? The earlier
	// cutoff is the later due instant.
	a := monthsBefore(at, months, loc).Add(-p.Exact)
	b := monthsBefore(at.Add(-p.Exact), months, loc)
	if b.Before(a) {
		return b
	}
	return a
}

// monthsBefore goes back by calendar months. It starts from the earliest
// reading whose latest instant is not before at, goes back on the calendar and
// takes the first instant that shows the result.
func monthsBefore(at time.Time, months int, loc *time.Location) time.Time {
	w := earliestNotBefore(at, loc)
	return addMonths(w, -months).first(loc)
}

// addMonths moves a reading by calendar months, with the day clamped to the
// end of the month.
func addMonths(w Wall, months int) Wall {
	y, m, d := w.t.Date()
	first := time.Date(y, m+time.Month(months), 1, 0, 0, 0, 0, time.UTC)
	d = min(d, daysIn(first.Year(), first.Month()))
	clock := w.t.Sub(time.Date(y, m, w.t.Day(), 0, 0, 0, 0, time.UTC))
	return Wall{first.AddDate(0, 0, d-1).Add(clock)}
}

func daysIn(year int, month time.Month) int {
	return time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// earliestNotBefore is the least reading w with w.Instant(loc) ≥ t. It is what
// clocks show at t, except the first time that they show a stretch twice (then
// it is the start of the stretch: the whole of it reads as the second time)
// and just after they skipped one (then it lies in the skipped stretch, whose
// readings count on from the offset before).
func earliestNotBefore(t time.Time, loc *time.Location) Wall {
	least := WallOf(t, loc)
	rs := regimes(t, loc)
	for i, r := range rs[:len(rs)-1] {
		before, after := Wall{r.end.Add(r.offset)}, Wall{r.end.Add(rs[i+1].offset)}
		jump := rs[i+1].offset - r.offset
		switch {
		case jump > 0 && !t.Before(r.end) && t.Before(r.end.Add(jump)): // just after a gap
			if w := before.add(t.Sub(r.end)); w.Before(least) {
				least = w
			}
		case jump < 0 && t.Before(r.end) && !t.Before(r.end.Add(jump)): // the first pass of a fold
			if after.Before(least) {
				least = after
			}
		}
	}
	return least
}

// WallBound says which zone-less readings are before an instant: those before
// End, except those from GapFrom up to and without GapTo. The exception is
// there only just after a change of the clock, for readings that clocks
// skipped; otherwise GapFrom and GapTo are zero.
type WallBound struct {
	End            Wall
	GapFrom, GapTo Wall
}

// Before reports whether w is before the instant that the bound was made from.
func (b WallBound) Before(w Wall) bool {
	if !w.Before(b.End) {
		return false
	}
	return b.GapTo.IsZero() || w.Before(b.GapFrom) || !w.Before(b.GapTo)
}

// WallCutoff turns a cutoff into a bound for values without a zone that are
// readings of clocks in loc: b.Before(w) exactly when w.Instant(loc) is before
// c. For values up to and including the cutoff (at_cutoff: due) take the bound
// of c plus the smallest step of the column, a microsecond.
func WallCutoff(c time.Time, loc *time.Location) WallBound {
	shown, least := WallOf(c, loc), earliestNotBefore(c, loc)
	b := WallBound{End: least}
	if !least.Before(shown) {
		return b
	}
	for i, rs := 0, regimes(c, loc); i+1 < len(rs); i++ {
		gapFrom, gapTo := Wall{rs[i].end.Add(rs[i].offset)}, Wall{rs[i].end.Add(rs[i+1].offset)}
		// least was skipped, so the readings from the end of the gap to what
		// is shown now are past, and the rest of the gap is not.
		if !least.Before(gapFrom) && least.Before(gapTo) && gapTo.Before(shown) {
			return WallBound{End: shown, GapFrom: least, GapTo: gapTo}
		}
	}
	return b
}

// DateCutoff turns a cutoff into a bound for values that are days in loc: a
// day is before the cutoff exactly when it is before the returned day. A day's
// clock starts when the day is over for good ([DayOver]), so the day that a
// cutoff at midnight begins right after is not due yet: its end is the cutoff,
// not before it. For days up to and including the cutoff (at_cutoff: due) take
// the bound of c plus a microsecond.
func DateCutoff(c time.Time, loc *time.Location) Date {
	d := DateOf(c, loc).AddDays(-3)
	for DayOver(d, loc).Before(c) {
		d = d.AddDays(1)
	}
	return d
}

// DayOver is the instant at which a day is over in loc: from then on clocks
// show later dates only. Midnight, the end of the gap where clocks skip it, and
// the second midnight where they go back across it. A day that a zone skipped
// altogether (30 December 2011 in Apia) is over when the skip happens.
func DayOver(d Date, loc *time.Location) time.Time { return d.AddDays(1).Midnight().end(loc) }

// DueAt is the due instant of a row with this trigger: no as_of before it finds
// the row due, and one right after it does. (At the instant itself the row
// stays, as a row at the cutoff does, unless its day is missing from the month
// it falls into: kept for a month, 31 January is due as 1 March begins.) It is
// the later of the two readings that [Policy.Cutoff] describes. For the days at
// the end of March that share 28 February, a run up to three days after DueAt
// but earlier in the day may find the row not due once more.
func (p *Policy) DueAt(t time.Time) time.Time { return p.Keep.after(t, p.Location()) }

// AsOfPlus is asOf plus a period, counted as keep is: by the calendar of the
// policy's zone, and of two readings the later.
func (p *Policy) AsOfPlus(asOf time.Time, period Period) time.Time {
	return period.after(asOf, p.Location())
}

// after is the infimum of the instants whose cutoff is after t.
func (p Period) after(t time.Time, loc *time.Location) time.Time {
	t = t.UTC()
	months := 12*p.Years + p.Months
	if months == 0 {
		return t.Add(p.Exact)
	}
	a := monthsAfter(t.Add(p.Exact), months, loc)
	b := monthsAfter(t, months, loc).Add(p.Exact)
	if b.After(a) {
		return b
	}
	return a
}

// monthsAfter inverts monthsBefore step by step.
func monthsAfter(t time.Time, months int, loc *time.Location) time.Time {
	// The greatest reading whose first instant is not after t: what is shown
	// at t, or the last reading of a stretch shown twice when t is in its
	// second pass.
	w := WallOf(t, loc)
	for i, rs := 0, regimes(t, loc); i+1 < len(rs); i++ {
		jump := rs[i+1].offset - rs[i].offset
		if jump < 0 && !t.Before(rs[i].end) && t.Before(rs[i].end.Add(-jump)) {
			if top := (Wall{rs[i].end.Add(rs[i].offset)}); w.Before(top) {
				w = top
			}
		}
	}
	// Forward on the calendar. Where that month has no such day, the readings
	// that reach back beyond w begin with the next month.
	y, m, d := w.t.Date()
	target := time.Date(y, m+time.Month(months), 1, 0, 0, 0, 0, time.UTC)
	if d > daysIn(target.Year(), target.Month()) {
		w = Wall{target.AddDate(0, 1, 0)}
	} else {
		w = addMonths(w, months)
	}
	// The infimum of the instants whose earliest reading is beyond w.
	at := w.Instant(loc)
	for i, rs := 0, regimes(w.t, loc); i+1 < len(rs); i++ {
		jump := rs[i+1].offset - rs[i].offset
		gapFrom, passed := Wall{rs[i].end.Add(rs[i].offset)}, rs[i].end.Add(jump)
		if jump > 0 && !w.Before(gapFrom) && at.Before(passed) && !at.Before(rs[i].end) && !w.Before(gapFrom.add(jump)) {
			at = passed
		}
	}
	return at
}

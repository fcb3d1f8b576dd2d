package policy

import (
	"fmt"
	"math"
	"time"
)

// AlwaysDue stands, among due instants in microseconds since 1970, for one
// before all time: of a row whose trigger is NULL where NULL is due, or
// −infinity. NeverDue stands for one beyond all time.
const (
	AlwaysDue = math.MinInt64
	NeverDue  = math.MaxInt64
)

// Passed is the record that a row passed a stage.
type Passed struct {
	Stage string
	Due   int64     // the due instant that the row had then, in microseconds since 1970
	AsOf  time.Time // of the run that did it
}

// Turn says what a run of a stage does with a row that is due by its trigger.
type Turn string

// The turns.
const (
	TurnNow    Turn = "now"    // the stage acts on it
	TurnPassed Turn = "passed" // it has passed the stage for this due instant
	TurnLater  Turn = "later"  // the stage counts from an earlier one that came late
	TurnOrder  Turn = "order"  // an earlier stage has not been passed
	TurnNotice Turn = "notice" // min_notice: nobody was told, or not long enough ago
	TurnOver   Turn = "over"   // a reminder of what has come, or for which a nearer one is due
)

// Waits reports whether the row is somebody's concern: it is due, and what
// should have been before is not.
func (t Turn) Waits() bool { return t == TurnOrder || t == TurnNotice }

// Judgement is the turn of a row, and what decided it.
type Judgement struct {
	Turn  Turn
	Stage string    // TurnPassed: itself; TurnLater, TurnOrder: the earlier one; TurnNotice: the one that notified, "" for none
	From  time.Time // the stage may act from then on, by what is recorded; zero when nothing recorded says so
}

// Why is the judgement in words; "" for TurnNow. It names no instant that is
// another in each run.
func (j Judgement) Why() string {
	stamp := j.From.UTC().Format(time.RFC3339)
	switch {
	case j.Turn == TurnPassed:
		return "it has passed stage " + j.Stage + " for this due instant"
	case j.Turn == TurnLater:
		return fmt.Sprintf("stage %s came late, and this one counts from it: not before %s", j.Stage, stamp)
	case j.Turn == TurnOrder:
		return "it has not passed stage " + j.Stage + ", which comes before"
	case j.Turn == TurnOver && j.Stage == "":
		return "its due instant has come"
	case j.Turn == TurnOver:
		return "reminder " + j.Stage + " is nearer to its due instant"
	case j.Turn == TurnNotice && j.Stage == "":
		return "min_notice: no stage before this one has given notice for this due instant"
	case j.Turn == TurnNotice:
		return fmt.Sprintf("min_notice: stage %s gave notice, which must have been out for longer: not before %s", j.Stage, stamp)
	}
	return ""
}

// Judge says whether the stage that the policy was narrowed to may act, in a
// run that stands for asOf, on a row with this due instant of which passed is
// recorded. Whether the row is due by its trigger is not asked here.
//
// A record of a stage before the due instant holds for that due instant alone.
// One of a later stage also holds for another due instant under which the stage
// would have come by then; a row whose due instant moved beyond that starts
// over. Of several records of a stage the latest counts.
func (p *Policy) Judge(due int64, passed []Passed, asOf time.Time) Judgement {
	if p.stage == nil {
		return Judgement{Turn: TurnNow}
	}
	if _, ok := p.valid(p.stage, due, passed); ok {
		return Judgement{Turn: TurnPassed, Stage: p.stage.Name}
	}
	if p.stage.At.Before {
		next := p.after()
		if at, ok := next.StageOf(due); due == AlwaysDue || ok && (at.Before(asOf) || p.AtCutoff == DueAtCutoff && at.Equal(asOf)) {
			return Judgement{Turn: TurnOver, Stage: next.stage.Name}
		}
	}
	later := Judgement{Turn: TurnNow}
	for _, e := range p.Earlier() {
		r, ok := p.valid(&e, due, passed)
		if !ok {
			return Judgement{Turn: TurnOrder, Stage: e.Name}
		}
		// As if the row had been due when the earlier stage was on time.
		if from := p.stageInstant(e.At.before(r.AsOf, p.Location())); from.After(later.From) {
			later.From, later.Stage = from, e.Name
		}
	}
	if asOf.Before(later.From) {
		later.Turn = TurnLater
		return later
	}
	later.Stage = ""
	if p.stage.MinNotice > 0 {
		if n := p.notice(due, passed); n.Stage == "" || asOf.Before(n.From) {
			return n
		}
	}
	return later
}

// notice is the earliest notice that a stage before this one gave for the due
// instant, and from when on it is long enough ago.
func (p *Policy) notice(due int64, passed []Passed) Judgement {
	n := Judgement{Turn: TurnNotice}
	for i := range p.Stages {
		s := &p.Stages[i]
		if s.Name == p.stage.Name {
			break
		}
		if s.Action.Kind != Notify {
			continue
		}
		if r, ok := p.valid(s, due, passed); ok {
			if from := r.AsOf.Add(p.stage.MinNotice); n.Stage == "" || from.Before(n.From) {
				n.Stage, n.From = s.Name, from
			}
		}
	}
	return n
}

// valid is the latest record of the stage that holds for the due instant.
func (p *Policy) valid(s *Stage, due int64, passed []Passed) (best Passed, ok bool) {
	at := *p
	at.stage = s
	for _, r := range passed {
		if r.Stage != s.Name || ok && !r.AsOf.After(best.AsOf) {
			continue
		}
		holds := r.Due == due
		switch {
		case holds, s.At.Before:
		case due == AlwaysDue:
			holds = true
		case due != NeverDue:
			holds = !at.stageInstant(time.UnixMicro(due)).After(r.AsOf)
		}
		if holds {
			best, ok = r, true
		}
	}
	return best, ok
}

// PassedAt is the record that the row passed the stage for this due instant.
func (p *Policy) PassedAt(stage string, due int64, passed []Passed) (Passed, bool) {
	for i := range p.Stages {
		if p.Stages[i].Name == stage {
			return p.valid(&p.Stages[i], due, passed)
		}
	}
	return Passed{}, false
}

// StageOf is the instant at which the (narrowed) policy acts on a row with this
// due instant in microseconds, when there is one.
func (p *Policy) StageOf(due int64) (time.Time, bool) {
	if due == AlwaysDue || due == NeverDue {
		return time.Time{}, false
	}
	return p.stageInstant(time.UnixMicro(due).UTC()), true
}

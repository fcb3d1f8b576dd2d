package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"
)

// The actions of schedules in the audit log.
const (
	ActionScheduleSeen    = "schedule_seen"
	ActionScheduleChanged = "schedule_changed"
	ActionScheduleRemoved = "schedule_removed"
)

// Scheduled is the schedule of one policy stage, as the file of the process that ticks has it.
type Scheduled struct {
	Policy, Stage string
	Mode          string // of the runs: enforce, shadow, ModeTask
	// Expr is the schedule's identity: cron, zone and by whom. Another one starts afresh, with no past.
	Expr string
	// Between returns the instants in (after, until], ascending, at most limit of them. It is a function of its arguments.
	Between func(after, until time.Time, limit int) []time.Time
	// Read is when the file was read that this is from, by the ledger's clock. Of two processes with different files the one that
	// read later decides, and the other keeps its schedule. Zero: this one decides.
	Read time.Time
	// Was returns Between for an Expr of before, or nil when that can no longer be read. With it, what was due under the
	// old schedule until it changed is recorded as well. May be nil.
	Was func(expr string) func(after, until time.Time, limit int) []time.Time
	// StartWithin is how late a run may begin; of an external schedule, how late the call may come (its grace).
	StartWithin time.Duration
	External    bool   // somebody calls: an instant is expected, not started
	Overlap     string // of an instant while a run is in its way: "skip" (the default), "queue" or, of a task, "allow"
	CatchUp     string // of missed instants: "latest" (the default), "all" or "none"
	CatchUpCap  int    // of "all": how many at most, the newest; 0 is 100
	RevisionID  string
	Revision    []byte
	Cutoff      func(asOf time.Time) time.Time
}

// Ticked is what a tick did.
type Ticked struct {
	Accepted []Run        // runs made
	Ended    []Occurrence // occurrences that ended in this tick, whatever became of them
	More     bool         // there was too much for one transaction: tick again at once
	// FirstSeen and Changed say that the schedule starts afresh from now.
	FirstSeen, Changed bool
	Older              bool // another process read its file later: its schedule was kept, not this one
}

// was enumerates another expression, or is nil when nobody can.
func (s *Scheduled) was(expr string) func(after, until time.Time, limit int) []time.Time {
	if s.Was == nil || expr == "" {
		return nil
	}
	return s.Was(expr)
}

// ScheduleState is how far a schedule has been turned into occurrences.
type ScheduleState struct {
	Policy, Stage, Expr string
	Cursor              time.Time // every instant up to and with this one has its occurrence
	TickedAt            time.Time
	ReadAt              time.Time  // when the file was read that Expr is from; only from Tick
	OldestDue           *time.Time // due instant of the oldest due row when last looked up; nil: none was due, or nobody looked
	OldestAt            *time.Time // when that was; nil: nobody looked
}

func (s *Scheduled) check() error {
	switch {
	case s.Policy == "" || s.Mode == "" || s.Expr == "" || s.Between == nil || s.Cutoff == nil || s.StartWithin < 0:
		return errors.New("policy, mode, expr, between and cutoff are needed, and start_within is not negative")
	case RevisionID(s.Revision) != s.RevisionID:
		return errors.New("the revision's id is not the hash of its text")
	case s.Mode == ModeTask && (s.External || s.Stage != ""):
		return errors.New("a task has no stages, and nobody else calls it by a schedule")
	case s.Overlap == "allow" && s.Mode == ModeTask:
	case s.Overlap != "" && s.Overlap != "skip" && s.Overlap != "queue":
		return fmt.Errorf("overlap is %q", s.Overlap)
	}
	switch s.CatchUp {
	case "", "latest", "all", "none":
	default:
		return fmt.Errorf("catch_up is %q", s.CatchUp)
	}
	return nil
}

// The clock is read outside of what locks, so after any wait for a rival's tick.
const selectSchedule = `WITH s AS (SELECT expr, cursor, ticked_at, read_at FROM @schedule WHERE policy = $1 AND stage = $2 {lock})
	SELECT expr, cursor, ticked_at, read_at, {now} FROM s`

// lockSchedule reads a schedule and keeps other ticks of it out until the transaction ends. One that was never seen starts
// now: it has no past.
func (t *txn) lockSchedule(ctx context.Context, s *Scheduled) (st ScheduleState, fresh bool, err error) {
	st.Policy, st.Stage = s.Policy, s.Stage
	read := func() error {
		var now stamp
		err := t.queryRow(ctx, selectSchedule, s.Policy, s.Stage).Scan(&st.Expr, (*stamp)(&st.Cursor), (*stamp)(&st.TickedAt), (*stamp)(&st.ReadAt), &now)
		if t.now = micros(time.Time(now)); t.l.sqlite {
			t.now = micros(t.l.clock())
		}
		return err
	}
	if err = read(); !errors.Is(err, sql.ErrNoRows) {
		return st, false, err
	}
	t.now = time.Time{}
	now, err := t.clock(ctx)
	if err != nil {
		return st, false, err
	}
	file := s.Read
	if file.IsZero() {
		file = now
	}
	fresh, err = t.execOne(ctx, `INSERT INTO @schedule (policy, stage, expr, cursor, ticked_at, read_at) VALUES ($1, $2, $3, $4, $4, $5)
		ON CONFLICT (policy, stage) DO NOTHING`, s.Policy, s.Stage, s.Expr, stamp(now), stamp(file))
	if err != nil || fresh {
		return st, fresh, err
	}
	return st, false, read() // a rival made it while we waited
}

// Schedules returns the schedules that files have, by policy and stage.
func (l *Ledger) Schedules(ctx context.Context) ([]ScheduleState, error) {
	rows, err := l.query(ctx, `SELECT policy, stage, expr, cursor, ticked_at, oldest_due, oldest_at FROM @schedule
		WHERE expr <> '' ORDER BY policy, stage`)
	if err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	defer rows.Close()
	var all []ScheduleState
	for rows.Next() {
		var s ScheduleState
		var due, at stamp
		if err := rows.Scan(&s.Policy, &s.Stage, &s.Expr, (*stamp)(&s.Cursor), (*stamp)(&s.TickedAt), &due, &at); err != nil {
			return nil, fmt.Errorf("list schedules: %w", err)
		}
		s.OldestDue, s.OldestAt = due.pointer(), at.pointer()
		all = append(all, s)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("list schedules: %w", err)
	}
	return all, nil
}

// pointer is nil for an instant that there is none of.
func (s stamp) pointer() *time.Time {
	t := time.Time(s)
	if t.IsZero() {
		return nil
	}
	return &t
}

// SetOldestDue notes the due instant of a stage's oldest due row, nil for none, and that somebody looked. No such schedule
// is ErrNotFound.
func (l *Ledger) SetOldestDue(ctx context.Context, policy, stage string, due *time.Time) error {
	err := l.tx(ctx, func(t *txn) error {
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		var at stamp
		if due != nil {
			at = stamp(*due)
		}
		there, err := t.execOne(ctx, `UPDATE @schedule SET oldest_due = $1, oldest_at = $2 WHERE policy = $3 AND stage = $4`,
			at, stamp(now), policy, stage)
		if err == nil && !there {
			err = fmt.Errorf("%w: no schedule of %s %q", ErrNotFound, policy, stage)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("note the oldest due row of %s: %w", policy, err)
	}
	return nil
}

// Unschedule ends a schedule that left the file: what it still expected is skipped, and should it come back it starts
// afresh. Its runs are not touched. A schedule that is not there stays so.
func (l *Ledger) Unschedule(ctx context.Context, policy, stage string) error {
	err := l.tx(ctx, func(t *txn) error {
		st, _, err := t.lockSchedule(ctx, &Scheduled{Policy: policy, Stage: stage})
		if err != nil || st.Expr == "" {
			return err
		}
		if err := t.audit(entry{action: ActionScheduleRemoved, policy: policy, body: struct {
			Stage string    `json:"stage"`
			Expr  string    `json:"expr"`
			Until time.Time `json:"until"`
		}{stage, st.Expr, st.Cursor}}); err != nil {
			return err
		}
		pending, err := t.pending(ctx, policy, stage)
		if err != nil {
			return err
		}
		for _, p := range pending {
			if p.Run != "" {
				continue
			}
			if _, err := t.endOccurrence(ctx, &p.Occurrence, OccurrenceSkipped, WhyUnscheduled); err != nil {
				return err
			}
		}
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		// From now: a process with an older file does not bring it back.
		_, err = t.exec(ctx, `UPDATE @schedule SET expr = '', read_at = $1 WHERE policy = $2 AND stage = $3`, stamp(now), policy, stage)
		return err
	})
	if err != nil {
		return fmt.Errorf("unschedule %s: %w", policy, err)
	}
	return nil
}

package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// The actions of occurrences in the audit log.
const (
	ActionOccurrenceEnded = "occurrence_ended" // otherwise than with its run
	ActionCatchUpDropped  = "catch_up_dropped" // more was missed than is caught up
)

// OccurrenceState is what became of a scheduled instant.
type OccurrenceState string

// The states of an occurrence. All but the first are final.
const (
	OccurrencePending OccurrenceState = "pending"
	OccurrenceOK      OccurrenceState = "ok"
	OccurrenceFailed  OccurrenceState = "failed"
	OccurrenceSkipped OccurrenceState = "skipped"
	OccurrenceExpired OccurrenceState = "expired"
	OccurrenceMissed  OccurrenceState = "missed"
	OccurrenceShadow  OccurrenceState = "shadow" // a shadow run succeeded: nothing was changed
)

// Why an occurrence ended, when no run's why_ended says so.
const (
	WhyNoProcess   = "no_process"   // missed: no process ticked in time
	WhyNoCall      = "no_call"      // missed: the expected call did not come
	WhyPaused      = "paused"       // skipped
	WhyOverlap     = "overlap"      // skipped: a run was open
	WhyNotStarted  = "not_started"  // expired: accepted or queued, and not begun in time
	WhySuperseded  = "superseded"   // failed: its run awaited approval when the next instant came
	WhyUnscheduled = "unscheduled"  // skipped: the schedule left the file
	WhyCatchUpCap  = "catch_up_cap" // missed, and one too many to be caught up
)

// Occurrence is one scheduled instant of a policy's stage.
type Occurrence struct {
	Policy, Stage string
	At            time.Time
	StartBy       time.Time // begun later it would be too late; of an external one: the call must have come
	External      bool
	State         OccurrenceState
	Why           string
	Run           string // the run that stands for it; of a missed one: the run that caught up; or ""
	Created       time.Time
	Ended         time.Time // zero while pending
}

const occurrenceColumns = `o.policy, o.stage, o.at, o.start_by, o.external, o.state, o.why, o.run, o.created, o.ended`

// scan reads occurrenceColumns, and more columns into more.
func (o *Occurrence) scan(row scanner, more ...any) error {
	return row.Scan(append([]any{&o.Policy, &o.Stage, (*stamp)(&o.At), (*stamp)(&o.StartBy), &o.External, &o.State, &o.Why, &o.Run,
		(*stamp)(&o.Created), (*stamp)(&o.Ended)}, more...)...)
}

func collectOccurrences(rows *sql.Rows) ([]Occurrence, error) {
	return collect(rows, func(row scanner) (o Occurrence, err error) { err = o.scan(row); return o, err })
}

// OccurrenceFilter selects occurrences. Zero fields select all.
type OccurrenceFilter struct {
	Policy string
	Stage  string // "" is every stage: a policy with a stage of that name has no other
	State  OccurrenceState
	Before time.Time // only instants before this one, to read on from the last answer
	Limit  int       // default 100
}

// Occurrences returns occurrences, the newest instant first.
func (l *Ledger) Occurrences(ctx context.Context, f OccurrenceFilter) ([]Occurrence, error) {
	var c conditions
	if f.Policy != "" {
		c.and("o.policy = $%d", f.Policy)
	}
	if f.Stage != "" {
		c.and("o.stage = $%d", f.Stage)
	}
	if f.State != "" {
		c.and("o.state = $%d", string(f.State))
	}
	if !f.Before.IsZero() {
		c.and("o.at < $%d", stamp(f.Before))
	}
	query := `SELECT ` + occurrenceColumns + ` FROM @occurrence o` + c.end("o.at DESC, o.policy, o.stage", f.Limit)
	rows, err := l.query(ctx, query, c.args...)
	if err != nil {
		return nil, fmt.Errorf("list occurrences: %w", err)
	}
	all, err := collectOccurrences(rows)
	if err != nil {
		return nil, fmt.Errorf("list occurrences: %w", err)
	}
	return all, nil
}

// became is how an occurrence ends when its run has ended.
func (r *Run) became() (state OccurrenceState, why string) {
	if why = r.WhyEnded; why == WhyDone {
		why = ""
	}
	switch r.State {
	case Succeeded:
		if r.Mode == shadow {
			return OccurrenceShadow, why
		}
		return OccurrenceOK, why
	case Skipped:
		return OccurrenceSkipped, why
	case Expired:
		return OccurrenceExpired, why
	case Cancelled:
		if why == "" {
			why = WhyCancelled
		}
	}
	return OccurrenceFailed, why
}

// settleOccurrences ends what waits for a run, in the transaction in which the run ends: its run_ended is their entry.
func (t *txn) settleOccurrences(ctx context.Context, r *Run) error {
	state, why := r.became()
	_, err := t.exec(ctx, `UPDATE @occurrence SET state = $1, why = $2, ended = $3 WHERE run = $4 AND run <> '' AND state = 'pending'`,
		string(state), why, stamp(r.EndedAt), r.ID)
	return err
}

// startsLate reports whether a run would begin too late for its occurrence. Of an external one, only the call had a deadline.
func (t *txn) startsLate(ctx context.Context, run string, now time.Time) (late bool, err error) {
	err = t.queryRow(ctx, `SELECT EXISTS (SELECT 1 FROM @occurrence WHERE run = $1 AND run <> '' AND state = 'pending' AND NOT external
		AND start_by < $2)`, run, stamp(now)).Scan(&late)
	return late, err
}

// insertOccurrence records an instant, once.
func (t *txn) insertOccurrence(ctx context.Context, o *Occurrence) (created bool, err error) {
	created, err = t.execOne(ctx, `INSERT INTO @occurrence (policy, stage, at, start_by, external, state, why, run, created, ended)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (policy, stage, at) DO NOTHING`,
		o.Policy, o.Stage, stamp(o.At), stamp(o.StartBy), o.External, string(o.State), o.Why, o.Run, stamp(o.Created), stamp(o.Ended))
	if err != nil || !created || o.State == OccurrencePending {
		return created, err
	}
	return true, t.auditOccurrence(o)
}

// endOccurrence ends a pending occurrence and reports whether it still was one.
func (t *txn) endOccurrence(ctx context.Context, o *Occurrence, state OccurrenceState, why string) (bool, error) {
	now, err := t.clock(ctx)
	if err != nil {
		return false, err
	}
	ended, err := t.execOne(ctx, `UPDATE @occurrence SET state = $1, why = $2, run = $3, ended = $4
		WHERE policy = $5 AND stage = $6 AND at = $7 AND state = 'pending'`,
		string(state), why, o.Run, stamp(now), o.Policy, o.Stage, stamp(o.At))
	if err != nil || !ended {
		return false, err
	}
	o.State, o.Why, o.Ended = state, why, now
	return true, t.auditOccurrence(o)
}

func (t *txn) auditOccurrence(o *Occurrence) error {
	return t.audit(entry{action: ActionOccurrenceEnded, policy: o.Policy, run: o.Run, body: struct {
		Stage string          `json:"stage"`
		At    time.Time       `json:"at"`
		State OccurrenceState `json:"state"`
		Why   string          `json:"why"`
	}{o.Stage, o.At, o.State, o.Why}})
}

// pendingOccurrence is an occurrence that waits, and the state of what it waits for.
type pendingOccurrence struct {
	Occurrence
	runState State // "" without a run
}

// pending returns what of a stage waits, the oldest first.
func (t *txn) pending(ctx context.Context, policy, stage string) ([]pendingOccurrence, error) {
	rows, err := t.query(ctx, `SELECT `+occurrenceColumns+`, COALESCE(r.state, '') FROM @occurrence o LEFT JOIN @run r ON r.id = o.run
		WHERE o.policy = $1 AND o.stage = $2 AND o.state = 'pending' ORDER BY o.at`, policy, stage)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []pendingOccurrence
	for rows.Next() {
		var p pendingOccurrence
		if err := p.scan(rows, &p.runState); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, rows.Err()
}

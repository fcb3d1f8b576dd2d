package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"
)

// changing are the outcomes of rows that were changed.
var changing = []string{"deleted", "anonymised", "archived", "set", "notified", "called"}

// Gap is what became of a stage's occurrences in one month of the policy's zone.
type Gap struct {
	Policy, Stage string
	Month         string // 2026-04
	Occurrences   int64  // instants in that month: the sum of the next seven
	OK            int64
	Failed        int64
	Skipped       int64
	Expired       int64
	Missed        int64
	Shadow        int64
	Pending       int64 // not over yet
	Runs          int64 // accepted in that month, by whatever cause, in whatever mode
	Changed       int64 // rows those runs changed
}

// Gaps counts occurrences and runs by policy, stage and month, from an instant on. The policy "" is all of them; zone
// gives a policy's time zone (nil, or a nil answer: UTC).
func (l *Ledger) Gaps(ctx context.Context, policy string, from time.Time, zone func(policy string) *time.Location) ([]Gap, error) {
	months := months{zone: zone, zones: map[string]*time.Location{}, gaps: map[monthKey]*Gap{}}
	if err := months.occurrences(l.query(ctx, `SELECT policy, stage, at, state FROM @occurrence
		WHERE at >= $1 AND ($2 = '' OR policy = $2)`, stamp(from), policy)); err != nil {
		return nil, fmt.Errorf("read the gaps: %w", err)
	}
	if err := months.runs(l.query(ctx, `SELECT policy, stage, accepted_at, mode, outcomes FROM @run
		WHERE accepted_at >= $1 AND ($2 = '' OR policy = $2)`, stamp(from), policy)); err != nil {
		return nil, fmt.Errorf("read the gaps: %w", err)
	}
	gaps := make([]Gap, 0, len(months.gaps))
	for _, g := range months.gaps {
		gaps = append(gaps, *g)
	}
	slices.SortFunc(gaps, func(a, b Gap) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Month, b.Month))
	})
	return gaps, nil
}

type monthKey struct {
	policy, stage string
	year          int
	month         time.Month
}

// months adds up by month, each policy by its own calendar.
type months struct {
	zone  func(policy string) *time.Location
	zones map[string]*time.Location
	gaps  map[monthKey]*Gap
}

func (m *months) at(policy, stage string, at time.Time) *Gap {
	loc := m.zones[policy]
	if loc == nil {
		if m.zone != nil {
			loc = m.zone(policy)
		}
		if loc == nil {
			loc = time.UTC
		}
		m.zones[policy] = loc
	}
	year, month, _ := at.In(loc).Date()
	key := monthKey{policy, stage, year, month}
	g := m.gaps[key]
	if g == nil {
		g = &Gap{Policy: policy, Stage: stage, Month: fmt.Sprintf("%04d-%02d", year, month)}
		m.gaps[key] = g
	}
	return g
}

func (m *months) occurrences(rows *sql.Rows, err error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var policy, stage string
		var at time.Time
		var state OccurrenceState
		if err := rows.Scan(&policy, &stage, (*stamp)(&at), &state); err != nil {
			return err
		}
		g := m.at(policy, stage, at)
		g.Occurrences++
		switch state {
		case OccurrenceOK:
			g.OK++
		case OccurrenceFailed:
			g.Failed++
		case OccurrenceSkipped:
			g.Skipped++
		case OccurrenceExpired:
			g.Expired++
		case OccurrenceMissed:
			g.Missed++
		case OccurrenceShadow:
			g.Shadow++
		default:
			g.Pending++
		}
	}
	return rows.Err()
}

func (m *months) runs(rows *sql.Rows, err error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var policy, stage, mode string
		var at time.Time
		var outcomes Outcomes
		if err := rows.Scan(&policy, &stage, (*stamp)(&at), &mode, &outcomes); err != nil {
			return err
		}
		g := m.at(policy, stage, at)
		g.Runs++
		if mode == shadow {
			continue
		}
		for _, name := range changing {
			g.Changed += outcomes[name]
		}
	}
	return rows.Err()
}

// StageHealth is how a stage has fared lately.
type StageHealth struct {
	Policy, Stage string
	LastOK        Run // the succeeded run, no shadow one, with the latest as_of; its ID is "" when there is none
	Last          Run // the last accepted run that has ended, in whatever mode and state; its ID is "" when there is none
	// Missed, Failed and Expired count the occurrences after the as_of of LastOK, and after the last occurrence that ended
	// as ok or shadow.
	Missed, Failed, Expired int64
	Skips                   int64 // how many of the last occurrences in a row were skipped, since the last ok run
}

// LastRuns returns the health of every stage that has a schedule or ever had a run, by policy and stage.
func (l *Ledger) LastRuns(ctx context.Context) ([]StageHealth, error) {
	rows, err := l.query(ctx, `SELECT policy, stage FROM @run GROUP BY policy, stage
		UNION SELECT policy, stage FROM @schedule WHERE expr <> ''`)
	if err != nil {
		return nil, fmt.Errorf("read the last runs: %w", err)
	}
	all, err := collectStages(rows)
	if err != nil {
		return nil, fmt.Errorf("read the last runs: %w", err)
	}
	slices.SortFunc(all, func(a, b StageHealth) int {
		return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Stage, b.Stage))
	})
	for i := range all {
		if err := l.fillHealth(ctx, &all[i]); err != nil {
			return nil, fmt.Errorf("read the last runs of %s: %w", all[i].Policy, err)
		}
	}
	return all, nil
}

func collectStages(rows *sql.Rows) ([]StageHealth, error) {
	defer rows.Close()
	var all []StageHealth
	for rows.Next() {
		var h StageHealth
		if err := rows.Scan(&h.Policy, &h.Stage); err != nil {
			return nil, err
		}
		all = append(all, h)
	}
	return all, rows.Err()
}

func (l *Ledger) fillHealth(ctx context.Context, h *StageHealth) (err error) {
	first := func(query string) (Run, error) {
		r, err := scanRun(l.queryRow(ctx, `SELECT `+runColumns+` FROM @run WHERE policy = $1 AND stage = $2 AND `+query+` LIMIT 1`, h.Policy, h.Stage))
		if errors.Is(err, sql.ErrNoRows) {
			return Run{}, nil
		}
		return r, err
	}
	if h.LastOK, err = first(`mode <> 'shadow' AND state = 'succeeded' ORDER BY as_of DESC, accepted_at DESC`); err != nil {
		return err
	}
	if h.Last, err = first(`ended_at IS NOT NULL ORDER BY ended_at DESC, id`); err != nil {
		return err
	}
	// since is before all when nothing ever went well.
	since := time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC)
	if h.LastOK.ID != "" {
		since = h.LastOK.AsOf
	}
	if err := l.queryRow(ctx, `SELECT COALESCE(sum(CASE state WHEN 'missed' THEN 1 ELSE 0 END), 0),
			COALESCE(sum(CASE state WHEN 'failed' THEN 1 ELSE 0 END), 0), COALESCE(sum(CASE state WHEN 'expired' THEN 1 ELSE 0 END), 0)
		FROM @occurrence WHERE policy = $1 AND stage = $2 AND at > $3 AND at > COALESCE((SELECT at FROM @occurrence
			WHERE policy = $1 AND stage = $2 AND state IN ('ok', 'shadow') ORDER BY at DESC LIMIT 1), $3)`,
		h.Policy, h.Stage, stamp(since)).Scan(&h.Missed, &h.Failed, &h.Expired); err != nil {
		return err
	}
	return l.queryRow(ctx, `SELECT count(*) FROM @occurrence WHERE policy = $1 AND stage = $2 AND state = 'skipped'
		AND at > $3 AND at > COALESCE((SELECT at FROM @occurrence WHERE policy = $1 AND stage = $2 AND state NOT IN ('skipped', 'pending')
			ORDER BY at DESC LIMIT 1), $3)`, h.Policy, h.Stage, stamp(since)).Scan(&h.Skips)
}

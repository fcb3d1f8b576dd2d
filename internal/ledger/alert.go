package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The actions of alerts in the audit log. Pings are too many and say too little
// to be there.
const (
	ActionAlertSent    = "alert_sent"
	ActionAlertGivenUp = "alert_given_up"
)

// PingKind begins the kinds of alerts that are pings.
const PingKind = "ping."

// ErrTailMoved: another process read on. Read the tail again and go on from there.
var ErrTailMoved = errors.New("another process has read on")

// NewAlert is something that people are to be told.
type NewAlert struct {
	// Key makes it one alert: what is added twice under one key is told once.
	Key    string
	Kind   string // run.failed, occurrence.missed, ping.start …
	Policy string
	Stage  string
	Run    string          // "" when it concerns none
	Body   json.RawMessage // as it is sent
	Silent bool            // recorded, and sent to nobody
}

// Alert is what was or is to be told.
type Alert struct {
	ID       int64
	Key      string
	Kind     string
	Policy   string
	Stage    string
	Run      string
	At       time.Time
	Body     json.RawMessage
	Attempts int64
	NextTry  time.Time // zero: sent, given up, dropped, or silent
	Sent     time.Time // zero: not yet, or never
	Error    string    // of the last attempt that failed
}

// GivenUp reports whether it was tried and is not tried any more.
func (a *Alert) GivenUp() bool { return a.Sent.IsZero() && a.NextTry.IsZero() && a.Attempts > 0 }

// StartTail makes a reader of the audit log that has read everything older than
// back, unless there is one of that name. It returns the seq up to which the
// reader has read.
func (l *Ledger) StartTail(ctx context.Context, name string, back time.Duration) (int64, error) {
	var seq int64
	err := l.tx(ctx, func(t *txn) error {
		err := t.queryRow(ctx, `SELECT seq FROM @tail WHERE name = $1`, name).Scan(&seq)
		if !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		// From the end: what is young is little, whatever the age of the log.
		err = t.queryRow(ctx, `SELECT seq FROM @audit WHERE at < $1 ORDER BY seq DESC LIMIT 1`, stamp(now.Add(-back))).Scan(&seq)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return err
		}
		// A rival's row makes this wait, and then stands.
		if _, err := t.exec(ctx, `INSERT INTO @tail (name, seq) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING`, name, seq); err != nil {
			return err
		}
		return t.queryRow(ctx, `SELECT seq FROM @tail WHERE name = $1`, name).Scan(&seq)
	})
	if err != nil {
		return 0, fmt.Errorf("start reading the audit log for %s: %w", name, err)
	}
	return seq, nil
}

// Tail is how far a reader of the audit log has read; ErrNotFound when it was
// never started.
func (l *Ledger) Tail(ctx context.Context, name string) (int64, error) {
	var seq int64
	err := l.queryRow(ctx, `SELECT seq FROM @tail WHERE name = $1`, name).Scan(&seq)
	if errors.Is(err, sql.ErrNoRows) {
		err = ErrNotFound
	}
	if err != nil {
		return 0, fmt.Errorf("read the tail of %s: %w", name, err)
	}
	return seq, nil
}

// AddAlerts records alerts and moves a reader of the audit log from where it was
// to upTo, in one transaction: a crash leaves both or neither. It returns how
// many of the alerts were new. ErrTailMoved when the reader is not at from any
// more. Without a name it records only.
func (l *Ledger) AddAlerts(ctx context.Context, tail string, from, upTo int64, alerts []NewAlert) (added int, err error) {
	err = l.tx(ctx, func(t *txn) error {
		added = 0
		if tail != "" {
			moved, err := t.execOne(ctx, `UPDATE @tail SET seq = $1 WHERE name = $2 AND seq = $3`, upTo, tail, from)
			if err != nil {
				return err
			}
			if !moved {
				return ErrTailMoved
			}
		}
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		for _, a := range alerts {
			next := stamp(now)
			if a.Silent {
				next = stamp{}
			}
			fresh, err := t.execOne(ctx, `INSERT INTO @alert (key, kind, policy, stage, run, at, body, next_try)
				VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT (key) DO NOTHING`,
				a.Key, a.Kind, a.Policy, a.Stage, a.Run, stamp(now), string(a.Body), next)
			if err != nil {
				return err
			}
			if fresh {
				added++
			}
		}
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("record alerts: %w", err)
	}
	return added, nil
}

const alertColumns = `id, key, kind, policy, stage, run, at, body, attempts, next_try, sent, error`

func scanAlert(row scanner) (Alert, error) {
	var a Alert
	var body string
	err := row.Scan(&a.ID, &a.Key, &a.Kind, &a.Policy, &a.Stage, &a.Run, (*stamp)(&a.At), &body, &a.Attempts,
		(*stamp)(&a.NextTry), (*stamp)(&a.Sent), &a.Error)
	a.Body = json.RawMessage(body)
	return a, err
}

// NextAlerts takes up to limit alerts that are due, the longest due first, and
// counts an attempt for each. Nobody else gets them before the lease is over, so
// what a crash leaves unsent is sent again after it.
func (l *Ledger) NextAlerts(ctx context.Context, lease time.Duration, limit int) ([]Alert, error) {
	// Mostly there is none, and that is found out without a write.
	now, err := l.Now(ctx)
	if err != nil {
		return nil, fmt.Errorf("take the next alerts: %w", err)
	}
	var some bool
	err = l.queryRow(ctx, `SELECT EXISTS (SELECT 1 FROM @alert WHERE next_try <= $1)`, stamp(now)).Scan(&some)
	if err != nil {
		return nil, fmt.Errorf("take the next alerts: %w", err)
	}
	if !some {
		return nil, nil
	}
	var due []Alert
	err = l.tx(ctx, func(t *txn) error {
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		rows, err := t.query(ctx, `SELECT `+alertColumns+` FROM @alert WHERE next_try <= $1
			ORDER BY next_try, id LIMIT $2 {lock}`, stamp(now), limit)
		if err != nil {
			return err
		}
		if due, err = collect(rows, scanAlert); err != nil {
			return err
		}
		for i := range due {
			a := &due[i]
			a.Attempts, a.NextTry = a.Attempts+1, micros(now.Add(lease))
			if _, err := t.exec(ctx, `UPDATE @alert SET attempts = $1, next_try = $2 WHERE id = $3`,
				a.Attempts, stamp(a.NextTry), a.ID); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("take the next alerts: %w", err)
	}
	return due, nil
}

// AlertSent records that an alert has reached its receiver.
func (l *Ledger) AlertSent(ctx context.Context, id int64) error {
	return l.settleAlert(ctx, id, ActionAlertSent, func(t *txn, now time.Time) (bool, error) {
		return t.execOne(ctx, `UPDATE @alert SET sent = $1, next_try = NULL, error = '' WHERE id = $2 AND sent IS NULL`, stamp(now), id)
	})
}

// AlertFailed records why an alert did not reach its receiver, and when it is
// tried again; at the zero time never. One that somebody else has sent
// meanwhile, after the lease was over, stays sent.
func (l *Ledger) AlertFailed(ctx context.Context, id int64, why string, next time.Time) error {
	action := ActionAlertGivenUp
	if !next.IsZero() {
		action = ""
	}
	return l.settleAlert(ctx, id, action, func(t *txn, _ time.Time) (bool, error) {
		return t.execOne(ctx, `UPDATE @alert SET error = $1, next_try = $2 WHERE id = $3 AND sent IS NULL AND next_try IS NOT NULL`,
			text(why), stamp(next), id)
	})
}

// AlertDropped takes an alert off the list of what is to be sent: it has become
// pointless. It does not count as given up.
func (l *Ledger) AlertDropped(ctx context.Context, id int64, why string) error {
	return l.settleAlert(ctx, id, "", func(t *txn, _ time.Time) (bool, error) {
		return t.execOne(ctx, `UPDATE @alert SET error = $1, next_try = NULL, attempts = 0 WHERE id = $2 AND sent IS NULL`, text(why), id)
	})
}

func (l *Ledger) settleAlert(ctx context.Context, id int64, action string, change func(*txn, time.Time) (bool, error)) error {
	err := l.tx(ctx, func(t *txn) error {
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		changed, err := change(t, now)
		if err != nil || !changed || action == "" {
			return err
		}
		a, err := scanAlert(t.queryRow(ctx, `SELECT `+alertColumns+` FROM @alert WHERE id = $1`, id))
		if err != nil || strings.HasPrefix(a.Kind, PingKind) {
			return err
		}
		return t.audit(entry{action: action, policy: a.Policy, run: a.Run, body: struct {
			Alert    int64  `json:"alert"`
			Kind     string `json:"kind"`
			Attempts int64  `json:"attempts"`
			Error    string `json:"error,omitempty"`
		}{a.ID, a.Kind, a.Attempts, a.Error}})
	})
	if err != nil {
		return fmt.Errorf("settle alert %d: %w", id, err)
	}
	return nil
}

// NewerPing reports whether there is a later alert of one of the kinds about the
// same policy stage, which makes an old ping pointless or wrong.
func (l *Ledger) NewerPing(ctx context.Context, a Alert, kinds ...string) (bool, error) {
	args := []any{a.ID, a.Policy, a.Stage}
	marks := make([]string, len(kinds))
	for i, k := range kinds {
		args = append(args, k)
		marks[i] = fmt.Sprintf("$%d", len(args))
	}
	var newer bool
	err := l.queryRow(ctx, `SELECT EXISTS (SELECT 1 FROM @alert WHERE id > $1 AND policy = $2 AND stage = $3
		AND kind IN (`+strings.Join(marks, ", ")+`))`, args...).Scan(&newer)
	if err != nil {
		return false, fmt.Errorf("look for a later ping of %s: %w", a.Policy, err)
	}
	return newer, nil
}

// AlertFilter selects alerts. Zero fields select all.
type AlertFilter struct {
	Policy  string
	Kind    string
	Run     string
	Unsent  bool      // still to be sent, or given up
	GivenUp bool      // tried, and not tried any more
	Since   time.Time // recorded then or later
	Before  int64     // an alert's id: what is older than it, to read on from the last answer
	Limit   int       // default 100
}

// Alerts returns alerts, the newest first.
func (l *Ledger) Alerts(ctx context.Context, f AlertFilter) ([]Alert, error) {
	var c conditions
	if f.Policy != "" {
		c.and("policy = $%d", f.Policy)
	}
	if f.Kind != "" {
		c.and("kind = $%d", f.Kind)
	}
	if f.Run != "" {
		c.and("run = $%d", f.Run)
	}
	if f.Unsent {
		c.only("sent IS NULL AND (next_try IS NOT NULL OR attempts > 0)")
	}
	if f.GivenUp {
		c.only("sent IS NULL AND next_try IS NULL AND attempts > 0")
	}
	if !f.Since.IsZero() {
		c.and("at >= $%d", stamp(f.Since))
	}
	if f.Before > 0 {
		c.and("id < $%d", f.Before)
	}
	query := `SELECT ` + alertColumns + ` FROM @alert` + c.end("id DESC", f.Limit)
	rows, err := l.query(ctx, query, c.args...)
	if err != nil {
		return nil, fmt.Errorf("list alerts: %w", err)
	}
	all, err := collect(rows, scanAlert)
	if err != nil {
		return nil, fmt.Errorf("list alerts: %w", err)
	}
	return all, nil
}

package alert

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"curfew.dev/curfew/internal/ledger"
)

// The kinds of alerts: the type of the document that a webhook gets.
const (
	RunFailed       = "run.failed"
	RunExpired      = "run.expired" // accepted, and not started in time
	RunAwaiting     = "run.awaiting_approval"
	RunSpike        = "run.spike"       // changed far more than the policy's runs do
	RunNoProgress   = "run.no_progress" // open, and nothing happens
	RowUncertain    = "row.uncertain"   // nobody knows whether a message or request arrived
	Missed          = "occurrence.missed"
	Expired         = "occurrence.expired"
	SkippedStreak   = "occurrence.skipped_streak"
	PolicyChanged   = "policy.changed" // another text is in force, or a run by hand executes one
	ScheduleRemoved = "schedule.removed"
	TaskFailed      = "task.failed" // calls without a schedule, for good: one alert a task and hour
	RetentionLag    = "retention.lag"
	PauseForgotten  = "policy.pause_forgotten"
	DatabaseChanged = "database.changed" // not the one that the ledger knows: nothing is changed in it
)

// The kinds of pings.
const (
	pingStart   = ledger.PingKind + "start"
	pingSuccess = ledger.PingKind + "success"
	pingFail    = ledger.PingKind + "fail"
)

func isPing(kind string) bool { return strings.HasPrefix(kind, ledger.PingKind) }

// streak is how many skips in a row are told.
const streak = 3

// document is what a webhook gets.
type document struct {
	Type      string    `json:"type"`
	Timestamp time.Time `json:"timestamp"` // when it happened, or was found
	Data      data      `json:"data"`
}

// data says what happened, once in words and once in fields. No field carries a
// secret or a key of a row; the ledger has none in plain.
type data struct {
	Message   string     `json:"message"`
	Policy    string     `json:"policy"`
	Stage     string     `json:"stage"`
	Run       string     `json:"run,omitempty"`
	Mode      string     `json:"mode,omitempty"`
	AsOf      *time.Time `json:"as_of,omitempty"`
	Why       string     `json:"why,omitempty"`
	Detail    string     `json:"detail,omitempty"`
	Count     int64      `json:"count,omitempty"`
	First     *time.Time `json:"first,omitempty"`
	Last      *time.Time `json:"last,omitempty"`
	Changed   int64      `json:"changed,omitempty"`
	Usual     int64      `json:"usual,omitempty"`
	Seconds   int64      `json:"seconds,omitempty"`
	Limit     int64      `json:"limit_seconds,omitempty"`
	Fields    []string   `json:"fields,omitempty"`
	Revision  string     `json:"revision,omitempty"`
	Was       string     `json:"was,omitempty"`
	Now       string     `json:"now,omitempty"`
	Actor     string     `json:"actor,omitempty"`
	Since     *time.Time `json:"since,omitempty"`
	Heartbeat *time.Time `json:"heartbeat,omitempty"`
}

func when(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func shown(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// name is a policy stage in words.
func name(policy, stage string) string {
	if stage == "" {
		return policy
	}
	return policy + "/" + stage
}

func short(id string) string { return id[:min(len(id), 12)] }

// alert makes one.
func (d data) alert(kind, key string, at time.Time) (ledger.NewAlert, error) {
	const most = 2000 // a receiver need not take more
	if len(d.Detail) > most {
		d.Detail = strings.ToValidUTF8(d.Detail[:most], "") + "…"
	}
	body, err := json.Marshal(document{kind, at.UTC(), d})
	if err != nil {
		return ledger.NewAlert{}, fmt.Errorf("alert %s of %s: %w", kind, d.Policy, err)
	}
	return ledger.NewAlert{Key: kind + "/" + key, Kind: kind, Policy: d.Policy, Stage: d.Stage, Run: d.Run, Body: body}, nil
}

// reading collects what a page of the audit log gives to tell.
type reading struct {
	a      *Loop
	alerts []ledger.NewAlert
	missed map[[3]string]*data // by policy, stage and why: a night of minutely instants is one alert
	order  []*data
	missAt map[*data]time.Time
	failed []*failures
	tasks  map[string]bool // by name: whether it is one
}

// read turns entries into alerts. An entry that cannot be understood is logged
// and left behind: it must not keep the ones after it from being told.
func (a *Loop) read(ctx context.Context, entries []ledger.Entry) ([]ledger.NewAlert, error) {
	r := &reading{a: a, missed: make(map[[3]string]*data), missAt: make(map[*data]time.Time)}
	for _, e := range entries {
		err := r.entry(ctx, e)
		if unreadable := (*unreadableError)(nil); errors.As(err, &unreadable) || errors.Is(err, ledger.ErrNotFound) {
			a.log.WarnContext(ctx, "alert_entry_unreadable", "seq", e.Seq, "action", e.Action, "err", err)
			continue
		}
		if err != nil {
			return nil, err
		}
	}
	for _, d := range r.order {
		what, mode, err := r.subject(ctx, d.Policy, d.Stage)
		if err != nil {
			return nil, err
		}
		d.Mode = mode
		d.Message = fmt.Sprintf("%s: %s missed", what, instants(d.Count, *d.First, *d.Last))
		switch d.Why {
		case ledger.WhyNoProcess:
			d.Message += ", because no curfew process was running. Is `curfew serve` supervised? `curfew gaps` shows what else is missing"
		case ledger.WhyNoCall:
			d.Message += ", because the expected call did not come. Look at the caller; `curfew calls` shows which calls came"
		}
		if err := r.add(*d, Missed, join(d.Policy, d.Stage, d.Why, shown(*d.First)), r.missAt[d]); err != nil {
			return nil, err
		}
	}
	if err := r.tellFailed(); err != nil {
		return nil, err
	}
	return r.alerts, nil
}

func instants(n int64, first, last time.Time) string {
	if n == 1 {
		return "the instant " + shown(first) + " was"
	}
	return fmt.Sprintf("%d instants from %s to %s were", n, shown(first), shown(last))
}

// join makes a key of parts, none of which contains a slash.
func join(parts ...string) string { return strings.Join(parts, "/") }

func (r *reading) add(d data, kind, key string, at time.Time) error {
	x, err := d.alert(kind, key, at)
	if err == nil {
		r.alerts = append(r.alerts, x)
	}
	return err
}

// unreadableError is an entry whose body is not what this version expects.
type unreadableError struct{ err error }

func (e *unreadableError) Error() string { return "the body of an audit entry: " + e.err.Error() }

func body[T any](e ledger.Entry) (v T, err error) {
	if err := json.Unmarshal(e.Body, &v); err != nil {
		return v, &unreadableError{err}
	}
	return v, nil
}

func (r *reading) entry(ctx context.Context, e ledger.Entry) error {
	switch e.Action {
	case ledger.ActionRunAccepted:
		return r.runAccepted(ctx, e)
	case ledger.ActionPolicyInForce:
		return r.policyInForce(ctx, e)
	case ledger.ActionRunStarted:
		run, err := r.a.l.Get(ctx, e.Run)
		if err == nil {
			r.ping(run, pingStart)
		}
		return err
	case ledger.ActionRunAwaiting:
		return r.runAwaiting(ctx, e)
	case ledger.ActionRunCompared:
		return r.runCompared(ctx, e)
	case ledger.ActionDatabaseChanged:
		return r.databaseChanged(e)
	case ledger.ActionRunEnded:
		return r.runEnded(ctx, e)
	case ledger.ActionRowBlocked:
		return r.rowBlocked(ctx, e)
	case ledger.ActionCallFailed:
		return r.callFailed(e)
	case ledger.ActionOccurrenceEnded:
		return r.occurrenceEnded(ctx, e)
	case ledger.ActionScheduleRemoved: // another cron is another text of the policy, and told as that
		return r.scheduleRemoved(ctx, e)
	}
	return nil
}

// scheduleRemoved tells that nothing starts a policy or a task any more.
func (r *reading) scheduleRemoved(ctx context.Context, e ledger.Entry) error {
	b, err := body[struct{ Stage, Expr string }](e)
	if err != nil {
		return err
	}
	what, mode, err := r.subject(ctx, e.Policy, b.Stage)
	if err != nil {
		return err
	}
	where := "in the policy file"
	if mode != "" {
		where = "there" // it may have been a program's
	}
	d := data{Policy: e.Policy, Stage: b.Stage, Mode: mode, Actor: e.Actor, Was: b.Expr}
	d.Message = fmt.Sprintf("%s: its schedule (%s) is no longer %s; nothing starts it any more", what, strings.ReplaceAll(strings.Trim(b.Expr, ";"), ";", ", "), where)
	return r.add(d, ScheduleRemoved, fmt.Sprint(e.Seq), e.At)
}

// rowBlocked tells, once for each run, that of a row nobody knows whether somebody was told of it.
func (r *reading) rowBlocked(ctx context.Context, e ledger.Entry) error {
	b, err := body[struct{ Reason string }](e)
	if err != nil || !strings.HasPrefix(b.Reason, "uncertain: ") {
		return err
	}
	run, err := r.a.l.Get(ctx, e.Run)
	if err != nil {
		return err
	}
	d := data{Policy: run.Policy, Stage: run.Stage, Run: run.ID, Mode: run.Mode, AsOf: when(run.AsOf), Why: "uncertain", Detail: b.Reason}
	d.Message = fmt.Sprintf("%s: of at least one row nobody knows whether its message arrived, and it is not sent again. `curfew show %s` lists them", name(run.Policy, run.Stage), short(run.ID))
	return r.add(d, RowUncertain, run.ID, e.At)
}

// ping tells the ping URL of an enforcing run.
func (r *reading) ping(run ledger.Run, kind string) {
	if r.a.o.PingURL == "" || run.Mode != "enforce" {
		return
	}
	key := "ping.end/" + run.ID // one end only
	if kind == pingStart {
		key = kind + "/" + run.ID
	}
	r.alerts = append(r.alerts, ledger.NewAlert{Key: key, Kind: kind, Policy: run.Policy, Stage: run.Stage, Run: run.ID,
		Body: json.RawMessage(`{}`)})
}

func (r *reading) runEnded(ctx context.Context, e ledger.Entry) error {
	run, err := r.a.l.Get(ctx, e.Run)
	if err != nil {
		return err
	}
	kind := pingFail
	if run.State == ledger.Succeeded {
		kind = pingSuccess
	}
	r.ping(run, kind)
	d := data{Policy: run.Policy, Stage: run.Stage, Run: run.ID, Mode: run.Mode, AsOf: when(run.AsOf), Why: run.WhyEnded, Detail: run.Detail,
		Changed: changed(run.Outcomes)}
	what := fmt.Sprintf("%s: the run %s for %s", called(run), short(run.ID), shown(run.AsOf))
	switch run.State {
	case ledger.Failed:
		d.Message = fmt.Sprintf("%s failed (%s): %s. `curfew show %s` says more", what, run.WhyEnded, cmp.Or(run.Detail, "no detail"), short(run.ID))
		err = r.add(d, RunFailed, run.ID, e.At)
	case ledger.Expired:
		d.Message = what + " expired: it was not started in time. Is the pool full, or a database out of reach?"
		if run.Mode == ledger.ModeTask {
			d.Message = what + " expired: it was not started in time. Is a process running that has the task, and are its workers free?"
		}
		err = r.add(d, RunExpired, run.ID, e.At)
	case ledger.Skipped:
		return r.skipped(ctx, run.Policy, run.Stage, run.AsOf, e.At)
	}
	if err != nil || run.Mode != "enforce" {
		return err
	}
	return r.spike(ctx, run, d, e.At)
}

func (r *reading) occurrenceEnded(ctx context.Context, e ledger.Entry) error {
	b, err := body[struct {
		Stage      string
		At         time.Time
		State, Why string
	}](e)
	if err != nil {
		return err
	}
	switch ledger.OccurrenceState(b.State) {
	case ledger.OccurrenceMissed:
		key := [3]string{e.Policy, b.Stage, b.Why}
		d := r.missed[key]
		if d == nil {
			d = &data{Policy: e.Policy, Stage: b.Stage, Why: b.Why, First: when(b.At), Last: when(b.At)}
			r.missed[key] = d
			r.order = append(r.order, d)
		}
		d.Count++
		if b.At.Before(*d.First) {
			d.First = when(b.At)
		}
		if b.At.After(*d.Last) {
			d.Last = when(b.At)
		}
		r.missAt[d] = e.At
	case ledger.OccurrenceExpired:
		if e.Run != "" {
			return nil // the run's own end says so
		}
		what, mode, err := r.subject(ctx, e.Policy, b.Stage)
		if err != nil {
			return err
		}
		d := data{Policy: e.Policy, Stage: b.Stage, Mode: mode, AsOf: when(b.At), Why: b.Why}
		d.Message = fmt.Sprintf("%s: the instant %s expired: no run of it could start in time", what, shown(b.At))
		return r.add(d, Expired, join(e.Policy, b.Stage, shown(b.At)), e.At)
	case ledger.OccurrenceSkipped:
		if b.Why != ledger.WhyPaused && b.Why != ledger.WhyUnscheduled {
			return r.skipped(ctx, e.Policy, b.Stage, b.At, e.At)
		}
	}
	return nil
}

// skipped tells a streak, once.
func (r *reading) skipped(ctx context.Context, policy, stage string, at, now time.Time) error {
	n, first, err := r.a.l.SkipStreak(ctx, policy, stage, at)
	if err != nil || n < streak {
		return err
	}
	what, mode, err := r.subject(ctx, policy, stage)
	if err != nil {
		return err
	}
	d := data{Policy: policy, Stage: stage, Mode: mode, Count: n, First: when(first), Last: when(at)}
	d.Message = fmt.Sprintf("%s: skipped %d times in a row, since %s: the run before it does not end. `curfew runs %s` shows it",
		what, n, shown(first), policy)
	return r.add(d, SkippedStreak, join(policy, stage, shown(first)), now)
}

// policyInForce tells when a service keeps another text of a policy than services
// did before.
func (r *reading) policyInForce(ctx context.Context, e ledger.Entry) error {
	b, err := body[struct{ Revision, Was string }](e)
	if err != nil || b.Was == "" {
		return err
	}
	fields, err := r.differ(ctx, b.Was, b.Revision)
	if err != nil {
		return err
	}
	d := data{Policy: e.Policy, Actor: e.Actor, Revision: b.Revision, Was: b.Was, Fields: fields}
	d.Message = fmt.Sprintf("%s: the policy changed (%s), and is in force from now on", name(e.Policy, ""), strings.Join(fields, ", "))
	return r.add(d, PolicyChanged, fmt.Sprint(e.Seq), e.At)
}

// runAccepted tells when a run that somebody started by hand executes another
// policy text than the run before it: that may come from a file that no service
// has read. A text that comes back is a change too.
func (r *reading) runAccepted(ctx context.Context, e ledger.Entry) error {
	run, err := r.a.l.Get(ctx, e.Run)
	if err != nil || run.Cause != "cli" {
		return err
	}
	last, found, err := r.before(ctx, run)
	if err != nil || !found || last.Revision == run.Revision {
		return err
	}
	fields, err := r.differ(ctx, last.Revision, run.Revision)
	if err != nil {
		return err
	}
	d := data{Policy: run.Policy, Stage: run.Stage, Run: run.ID, Mode: run.Mode, AsOf: when(run.AsOf), Actor: e.Actor,
		Revision: run.Revision, Was: last.Revision, Fields: fields}
	d.Message = fmt.Sprintf("%s: the policy changed (%s); run %s is the first with it", name(run.Policy, run.Stage), strings.Join(fields, ", "), short(run.ID))
	return r.add(d, PolicyChanged, join(run.Policy, run.Stage, last.ID, run.Revision), e.At)
}

// before is the run with whose text a run's is to be compared. A shadow run that
// somebody asked for says nothing of an enforcing policy, so a change of mode
// shows only in what the schedule started.
func (r *reading) before(ctx context.Context, run ledger.Run) (last ledger.Run, found bool, err error) {
	last, found, err = r.a.l.LastBefore(ctx, run, run.Mode, false)
	if err != nil {
		return last, false, err
	}
	scheduled := run.Cause == "schedule" || run.Cause == "catch_up"
	if run.Mode == "shadow" && !scheduled {
		_, enforced, err := r.a.l.LastBefore(ctx, run, "enforce", false)
		return last, found && !enforced, err
	}
	otherMode := map[string]string{"enforce": "shadow", "shadow": "enforce"}[run.Mode]
	other, switched, err := r.a.l.LastBefore(ctx, run, otherMode, true)
	if switched && (!found || other.AcceptedAt.After(last.AcceptedAt)) {
		return other, true, err
	}
	return last, found, err
}

// differ names the settings in which two policy texts differ. Their values stay
// in the ledger: a condition may quote what is in a row.
func (r *reading) differ(ctx context.Context, one, other string) ([]string, error) {
	var texts [2]map[string]json.RawMessage
	for i, id := range []string{one, other} {
		b, err := r.a.l.RevisionBody(ctx, id)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(b, &texts[i]); err != nil {
			return nil, &unreadableError{err}
		}
	}
	names := make(map[string]bool)
	for i := range texts {
		for k, v := range texts[i] {
			if string(v) != string(texts[1-i][k]) {
				names[k] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names)), nil
}

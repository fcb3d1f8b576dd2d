package ledger

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
)

// State is where a run stands.
type State string

// The states of a run. An interrupted run stays Running; its detail says so.
const (
	Accepted         State = "accepted"
	AwaitingApproval State = "awaiting_approval"
	Running          State = "running"
	Succeeded        State = "succeeded"
	Failed           State = "failed"
	Skipped          State = "skipped"
	Expired          State = "expired"
	Cancelled        State = "cancelled"
)

// Ended reports whether s is final.
func (s State) Ended() bool {
	switch s {
	case Succeeded, Failed, Skipped, Expired, Cancelled:
		return true
	}
	return false
}

// Why a run ended.
const (
	WhyDone           = "done"
	WhySchemaChanged  = "schema_changed"
	WhyDiverged       = "ledger_diverged"
	WhyOutcomesDiffer = "outcomes_differ"
	WhyCancelled      = "cancelled"
	WhyRefused        = "refused"
	WhyError          = "error"
)

// Outcomes counts rows by what became of them. Zero counts are left out.
type Outcomes map[string]int64

// Sum is the number of rows.
func (o Outcomes) Sum() int64 {
	var n int64
	for _, c := range o {
		n += c
	}
	return n
}

// Equal reports whether both count the same, absent being zero.
func (o Outcomes) Equal(p Outcomes) bool { return maps.Equal(o.compact(), p.compact()) }

// compact is a copy without zeros.
func (o Outcomes) compact() Outcomes {
	c := make(Outcomes, len(o))
	for name, n := range o {
		if n != 0 {
			c[name] = n
		}
	}
	return c
}

func (o Outcomes) add(p Outcomes) Outcomes {
	sum := o.compact()
	for name, n := range p {
		sum[name] += n
	}
	return sum.compact()
}

// text is the stored form; encoding/json sorts the names.
func (o Outcomes) text() (string, error) {
	b, err := json.Marshal(o.compact())
	return string(b), err
}

// Scan reads the stored form.
func (o *Outcomes) Scan(src any) error {
	var b []byte
	switch v := src.(type) {
	case string:
		b = []byte(v)
	case []byte:
		b = v
	default:
		return fmt.Errorf("outcomes are a %T", src)
	}
	*o = nil
	return json.Unmarshal(b, o)
}

// Run is the work of one policy stage in one mode at one as_of. An instant that
// has not come is the zero time.
type Run struct {
	ID        string
	Policy    string
	Stage     string
	Mode      string
	Identity  string // what made it one run, see RunID
	Operation string // the caller's own key, or ""
	Cause     string
	AsOf      time.Time
	Cutoff    time.Time
	Revision  string
	State     State
	WhyEnded  string
	Detail    string

	// Planned, Outcomes and Cascaded are sums over the settled batches, so
	// Planned is Outcomes.Sum() at every moment.
	Planned        int64
	Outcomes       Outcomes
	Cascaded       int64
	BatchesTotal   int64
	BatchesSettled int64

	Cursor   []byte // sealed; nil before the first page and after the end
	PagedOut bool   // the scan has finished
	PageRows int    // page size in use; 0 before the first page
	Plan     []byte // the dispatcher's own, fixed at the start

	Owner      string
	Heartbeat  time.Time
	AcceptedAt time.Time
	StartedAt  time.Time
	EndedAt    time.Time
}

const runColumns = `id, policy, stage, mode, identity, operation, cause, as_of, cutoff, revision,
	state, why_ended, detail, planned, outcomes, cascaded, batches_total, batches_settled,
	cursor, paged_out, page_rows, plan, owner, heartbeat, accepted_at, started_at, ended_at`

type scanner interface{ Scan(dest ...any) error }

// scanRun reads runColumns, and more columns into more.
func scanRun(row scanner, more ...any) (Run, error) {
	var r Run
	err := row.Scan(append([]any{&r.ID, &r.Policy, &r.Stage, &r.Mode, &r.Identity, &r.Operation, &r.Cause,
		(*stamp)(&r.AsOf), (*stamp)(&r.Cutoff), &r.Revision,
		&r.State, &r.WhyEnded, &r.Detail, &r.Planned, &r.Outcomes, &r.Cascaded, &r.BatchesTotal, &r.BatchesSettled,
		&r.Cursor, &r.PagedOut, &r.PageRows, &r.Plan, &r.Owner,
		(*stamp)(&r.Heartbeat), (*stamp)(&r.AcceptedAt), (*stamp)(&r.StartedAt), (*stamp)(&r.EndedAt)},
		more...)...)
	return r, err
}

func collectRuns(rows *sql.Rows) ([]Run, error) {
	return collect(rows, func(row scanner) (Run, error) { return scanRun(row) })
}

// MinPrefix is how many digits of a run's id name it.
const MinPrefix = 6

// Get returns the run with that id, or the only one whose id starts with it. No
// such run is ErrNotFound, several are an *AmbiguousError.
func (l *Ledger) Get(ctx context.Context, id string) (Run, error) {
	id = strings.ToLower(id)
	if len(id) < MinPrefix || len(id) > 64 || strings.Trim(id, "0123456789abcdef") != "" {
		return Run{}, fmt.Errorf("%w: %q is not a run's id: give at least its first %d hex digits", ErrNotFound, id, MinPrefix)
	}
	rows, err := l.query(ctx, `SELECT `+runColumns+` FROM @run WHERE id >= $1 AND id < $2 ORDER BY id LIMIT 4`,
		id, id+"g")
	if err != nil {
		return Run{}, fmt.Errorf("read run %s: %w", short(id), err)
	}
	runs, err := collectRuns(rows)
	switch {
	case err != nil:
		return Run{}, fmt.Errorf("read run %s: %w", short(id), err)
	case len(runs) == 0:
		return Run{}, fmt.Errorf("%w: no run %s", ErrNotFound, id)
	case len(runs) > 1:
		e := &AmbiguousError{Prefix: id}
		for _, r := range runs {
			e.IDs = append(e.IDs, r.ID)
		}
		return Run{}, e
	}
	return runs[0], nil
}

const openRunQuery = `SELECT ` + runColumns + ` FROM @run
	WHERE policy = $1 AND stage = $2 AND mode = $3 AND ended_at IS NULL
	ORDER BY accepted_at DESC, id DESC LIMIT 1`

// OpenRun returns the newest run of a policy's stage and mode that has not ended.
func (l *Ledger) OpenRun(ctx context.Context, policy, stage, mode string) (r Run, found bool, err error) {
	r, err = scanRun(l.queryRow(ctx, openRunQuery, policy, stage, mode))
	if errors.Is(err, sql.ErrNoRows) {
		return Run{}, false, nil
	}
	if err != nil {
		return Run{}, false, fmt.Errorf("read the open run of %s: %w", policy, err)
	}
	return r, true, nil
}

// Filter selects runs. Zero fields select all.
type Filter struct {
	Policy string
	State  State
	Limit  int    // default 100
	Before string // a run's id: what is older than it, to read on from the last answer
}

// List returns runs, the last accepted first.
func (l *Ledger) List(ctx context.Context, f Filter) ([]Run, error) {
	var c conditions
	if f.Policy != "" {
		c.and("policy = $%d", f.Policy)
	}
	if f.State != "" {
		c.and("state = $%d", string(f.State))
	}
	if f.Before != "" {
		c.and("(accepted_at, id) < (SELECT accepted_at, id FROM @run WHERE id = $%d)", f.Before)
	}
	query := `SELECT ` + runColumns + ` FROM @run` + c.end("accepted_at DESC, id DESC", f.Limit)
	rows, err := l.query(ctx, query, c.args...)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	runs, err := collectRuns(rows)
	if err != nil {
		return nil, fmt.Errorf("list runs: %w", err)
	}
	return runs, nil
}

// RevisionBody returns a policy revision byte for byte. A body that no longer
// hashes to its id is an error: it must not be executed.
func (l *Ledger) RevisionBody(ctx context.Context, id string) ([]byte, error) {
	var body string
	err := l.queryRow(ctx, `SELECT body FROM @revision WHERE id = $1`, id).Scan(&body)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("%w: no policy revision %s", ErrNotFound, id)
	}
	if err != nil {
		return nil, fmt.Errorf("read policy revision %s: %w", short(id), err)
	}
	if RevisionID([]byte(body)) != id {
		return nil, fmt.Errorf("policy revision %s was changed in the ledger: its text has another hash", short(id))
	}
	return []byte(body), nil
}

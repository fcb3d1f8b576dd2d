package api

import "time"

// The levels of a finding.
const (
	LevelGood        = "good"        // as it should be
	LevelInfo        = "info"        // worth knowing
	LevelWarn        = "warn"        // works, but somebody should look
	LevelRefuse      = "refuse"      // no run may start
	LevelUnreachable = "unreachable" // nothing could be found out
)

// Finding is one thing that check found out about a policy, its database or the ledger.
type Finding struct {
	Policy    string `json:"policy"`   // "" when it is about the database, the ledger or the environment
	Database  string `json:"database"` // the database's name in the file; "" for the ledger and the mail server
	Level     string `json:"level"`
	Code      string `json:"code"` // a stable word for programs
	Message   string `json:"message"`
	Hint      string `json:"hint"`
	Statement string `json:"statement"` // SQL that would settle it; "" when there is none
}

// CodeStrayVariable is the code of a finding about the environment.
const CodeStrayVariable = "stray_variable"

// PolicyPlan says what a run of a policy stage would do if it started now.
type PolicyPlan struct {
	Policy     string    `json:"policy"`
	Stage      string    `json:"stage"`
	Mode       string    `json:"mode"`
	Action     string    `json:"action"`
	Authority  string    `json:"authority"`
	Database   string    `json:"database"`
	Table      string    `json:"table"`
	Rule       string    `json:"rule"`   // the trigger and the period in words
	Where      string    `json:"where"`  // the scope, as the file states it
	Unless     string    `json:"unless"` // the guard, as the file states it
	AsOf       time.Time `json:"as_of"`
	Cutoff     time.Time `json:"cutoff"`
	Due        int64     `json:"due"`        // rows a run would take up
	Oldest     string    `json:"oldest"`     // the smallest trigger among them, as the database prints it; "" for none
	Nulls      int64     `json:"nulls"`      // of the due rows: those without a trigger
	Unreadable int64     `json:"unreadable"` // never due: their trigger is no instant
	Guarded    int64     `json:"guarded"`    // of the due rows: kept by a guard, or waiting for an earlier stage
	Held       int64     `json:"held"`       // of the due rows: on hold
	Blocked    int64     `json:"blocked"`    // estimate, of the due rows: a foreign key would refuse
	Cascaded   int64     `json:"cascaded"`   // estimate: child rows that would go along
	// Along is the same by table, of a policy with dependents, in the order in which rows go; AlongPartial says that only some of
	// the due rows were looked at for it, so that there are more.
	Along        []AlongRows `json:"along,omitempty"`
	AlongPartial bool        `json:"along_partial,omitempty"`
	Schedule     string      `json:"schedule"` // in words; "" when nothing runs it

	Next    []time.Time `json:"next"`     // the next five instants of the schedule
	OpenRun string      `json:"open_run"` // id of a run that is under way or was interrupted; "" when there is none
	// WouldWait says why such a run would wait for approval; "" when it would not.
	WouldWait string `json:"would_wait"`
}

// AlongRows is how many rows of a table would go along with due ones.
type AlongRows struct {
	Table string `json:"table"`
	Rows  int64  `json:"rows"`
}

// Explanation says of one row whether it is due, and why.
type Explanation struct {
	Policy     string      `json:"policy"`
	Stage      string      `json:"stage"`
	Row        string      `json:"row"` // the row's keyed hash, as in blocked rows and evidence
	AsOf       time.Time   `json:"as_of"`
	Cutoff     time.Time   `json:"cutoff"`
	Exists     bool        `json:"exists"`
	Trigger    *time.Time  `json:"trigger"` // as an instant; null when it is none
	DueAt      *time.Time  `json:"due_at"`
	Due        bool        `json:"due"`                   // a run at as_of would take it up
	DeletedAt  *time.Time  `json:"deleted_at"`            // of a row that is not there: when a receipt says it was deleted; else null
	ArchivedAt *time.Time  `json:"archived_at,omitempty"` // instead, of a row that a run moved to its archive
	DeletedBy  string      `json:"deleted_by"`            // the run that deleted or archived it; "" when no receipt tells
	Conditions []Condition `json:"conditions"`
	Verdict    string      `json:"verdict"` // one sentence

	Stages []StageState `json:"stages,omitempty"` // of a policy with stages, all of them in their order
}

// What a row has to do with a stage.
const (
	StagePassed = "passed" // recorded for its due instant
	StageOver   = "over"   // a reminder that comes too late, or for which a nearer one is due
	StageNow    = "now"    // due by its trigger, and nothing that is recorded speaks against it
	StageWaits  = "waits"  // due by its trigger, and something that comes before is not recorded
	StageLater  = "later"
)

// StageState says what a row has passed, or when it may.
type StageState struct {
	Stage     string     `json:"stage"`
	Action    string     `json:"action"`
	State     string     `json:"state"`
	At        *time.Time `json:"at"`         // by the row's trigger; null when that is no instant
	NotBefore *time.Time `json:"not_before"` // by what is recorded, when that is later; else null
	PassedAt  *time.Time `json:"passed_at"`  // the as_of that it was passed at
	Run       string     `json:"run"`        // which did it; "" when it is not passed
	Why       string     `json:"why"`
}

// Condition is one of the questions that decide about a row.
type Condition struct {
	Name   string `json:"name"`   // exists, in_scope, open, trigger, due, guard, hold, children
	Passes *bool  `json:"passes"` // true: speaks for the change; null: could not be asked
	Detail string `json:"detail"`
}

// Installation is what curfew needs in a governed database.
type Installation struct {
	Database   string   `json:"database"`
	Engine     string   `json:"engine"`
	Statements []string `json:"statements"` // what creates it, in order
	Grants     []string `json:"grants"`     // the least a role needs to do the work of the policies
	Executed   bool     `json:"executed"`   // false after --print

	HoldGrants []string `json:"hold_grants"` // the least a role needs to place and release holds
}

// Migration is what migrate did in the ledger.
type Migration struct {
	Ledger  string   `json:"ledger"`  // without secrets
	Applied []string `json:"applied"` // names of the migrations; none when there was nothing to do
	Grants  []string `json:"grants"`  // the least a role needs there that does not own it; none in a file
	// ApplicationGrants are what the role of an application needs that defers calls of tasks by SELECT curfew.defer(…); none in a file.
	ApplicationGrants []string `json:"application_grants"`
}

// Proposal is what init found in a database.
type Proposal struct {
	Engine   string          `json:"engine"`
	Server   string          `json:"server"`
	Policies []ProposedTable `json:"policies"`
	LeftOut  []string        `json:"left_out"` // tables that were looked at and not proposed
}

// ProposedTable is one table that looks as if its rows should not stay for ever.
type ProposedTable struct {
	Name     string            `json:"name"` // of the policy
	Table    string            `json:"table"`
	Key      []string          `json:"key"`
	Trigger  string            `json:"trigger"` // since or until
	Column   string            `json:"column"`
	Options  map[string]string `json:"options"` // zone, unit, format, null: what the column's type leaves open
	Keep     string            `json:"keep"`    // a starting point for since; "" for until
	Rows     int64             `json:"rows"`    // -1 when unknown
	Subject  string            `json:"subject"` // a column that names a person; "" when none was seen
	Cascade  []string          `json:"cascade"` // child tables that would go along, to be accepted by a person
	Triggers []string          `json:"triggers"`
	Why      []string          `json:"why"`
	Caveats  []string          `json:"caveats"`  // what a person must look at before enforcing it
	Refusals []string          `json:"refusals"` // what keeps it from running as it stands
}

// Version is what the program says of itself.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

// Problem is an error over HTTP (application/problem+json, RFC 9457) and with --output json.
type Problem struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Hint   string `json:"hint,omitempty"` // what to do next
}

// Package policy says what goes when. It owns the file of policies
// (curfew.yaml), the periods in it and the calendar arithmetic that turns a
// run's as_of into a cutoff.
//
// Its one invariant: whatever it accepts, it understood in full. A setting
// that is misspelt, blank, ambiguous or not implemented is an error that names
// its place, never a default; and where a calendar leaves two readings, the
// one under which a row stays longer is taken.
//
// The package is pure: it takes instants and never asks for the time. Only
// [Load] touches the file system.
package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	_ "time/tzdata" // policies name zones; the binary must know them on any machine
)

// File is one parsed curfew.yaml.
type File struct {
	Version   int                  // always 1
	Ledger    string               // expanded URL: sqlite:PATH or postgres://…
	Key       string               // the installation's key, "" when the file gives none
	Databases map[string]*Database // by name
	Engine    Engine
	Policies  []*Policy // sorted by name
	Tasks     []*Task   `json:",omitempty"` // sorted by name
	Retention Retention
	Alerts    Alerts
	Mail      *Mail  `json:",omitempty"` // nil: no e-mail can be sent
	Path      string // where it was read from, as given

	options Options
}

// Database is a governed database.
type Database struct {
	Name       string
	URL        string // expanded; a secret, never to be printed; "" with Workers
	MaxWorkers int
	Workers    *Workers `json:",omitempty"` // set when a worker pool beside the database does the work
}

// Workers is a worker pool beside a database: it alone reads and changes the
// rows, and is asked over HTTP.
type Workers struct {
	URL   string // expanded; https, or http on this machine; without a user, a query or a / at its end
	Token string // expanded; a secret, never to be printed
}

// Engine sizes the worker pool of the daemon.
type Engine struct {
	Workers  int // all workers of the process
	Reserved int // of these, how many cleanup may never take
	// Queues are further queues of tasks, with the workers of each, which are
	// besides Workers.
	Queues map[string]int `json:",omitempty"`
}

// Policy is everything needed to execute one policy, without secrets. Its JSON
// form is the revision that a run is bound to, see [Policy.Revision]; a field
// may be added to it, with omitempty, but never renamed or given new meaning.
type Policy struct {
	Name        string    `json:"name"`
	Description string    `json:"description,omitempty"`
	Authority   string    `json:"authority,omitempty"`
	Database    string    `json:"database"`
	Table       string    `json:"table"`         // name or schema.name, exactly as the database spells it
	Key         []string  `json:"key,omitempty"` // empty: the primary key, else a unique key over NOT NULL columns
	Trigger     Trigger   `json:"trigger"`
	Keep        Period    `json:"keep,omitzero"` // zero only with Trigger.Until
	Where       string    `json:"where,omitempty"`
	Unless      string    `json:"unless,omitempty"`
	Subject     string    `json:"subject,omitempty"`
	Action      Action    `json:"action,omitzero"`  // zero with Stages
	Stages      []Stage   `json:"stages,omitempty"` // in the order of their offsets
	Cascade     []string  `json:"cascade,omitempty"`
	Triggers    []string  `json:"triggers,omitempty"`
	After       string    `json:"after,omitempty"`
	Mode        Mode      `json:"mode"`
	Timezone    string    `json:"timezone"` // IANA name, never empty
	Schedule    *Schedule `json:"schedule,omitempty"`
	Batch       Batch     `json:"batch"`
	Retry       Retry     `json:"retry"`
	Limits      Limits    `json:"limits,omitzero"`
	AtCutoff    AtCutoff  `json:"at_cutoff,omitempty"`
	KeepLast    *KeepLast `json:"keep_last,omitempty"`
	Privacy     *Privacy  `json:"privacy,omitempty"`
	Windows     []Window  `json:"windows,omitempty"` // when batches may begin; none: always
	Lock        string    `json:"lock,omitempty"`    // of all that name it, one is executed at a time

	// CascadeSubjects are those of Cascade that say how they name the data subject.
	CascadeSubjects []CascadeSubject `json:"cascade_subjects,omitempty"`

	whole *Policy // what this one was narrowed from
	stage *Stage  // and to
}

// CascadeSubject says how a table of Cascade names the data subject: by a
// column of its own, or not at all. Of one that says neither, the row that it
// goes along with decides.
type CascadeSubject struct {
	Table     string `json:"table"`
	Subject   string `json:"subject,omitempty"`
	NoSubject bool   `json:"no_subject,omitempty"`
}

// Subjects reports whether the policy knows data subjects: in its own table or
// in one whose rows go along.
func (p *Policy) Subjects() bool {
	return p.Subject != "" || slices.ContainsFunc(p.CascadeSubjects, func(c CascadeSubject) bool { return c.Subject != "" })
}

// Mode says whether a policy changes anything.
type Mode string

// The modes.
const (
	Shadow  Mode = "shadow"  // plan, count and record; change nothing
	Enforce Mode = "enforce" // the action is carried out
)

// AtCutoff says what happens to a row whose trigger is exactly the cutoff.
type AtCutoff string

// The boundary rules.
const (
	StaysAtCutoff AtCutoff = ""    // the default: a row exactly at the cutoff stays
	DueAtCutoff   AtCutoff = "due" // a row exactly at the cutoff is due
)

// Trigger is what starts (since) or states (until) the clock of a row. Exactly
// one of Column and Expr is set.
type Trigger struct {
	Until             bool     `json:"until,omitempty"` // the value is itself the due instant
	Column            string   `json:"column,omitempty"`
	Expr              string   `json:"expr,omitempty"`
	Type              Type     `json:"type,omitempty"` // of Expr; a column's type is the database's to say
	Zone              string   `json:"zone,omitempty"` // IANA zone of values that carry none
	Unit              Unit     `json:"unit,omitempty"`
	Format            Format   `json:"format,omitempty"`
	Null              NullRule `json:"null,omitempty"`
	ImplausibleBefore *Date    `json:"implausible_before,omitempty"` // instants before this day (in the trigger's zone, else the policy's) stay
}

// Type is the declared type of a trigger expression.
type Type string

// The types of a trigger expression.
const (
	TimestampTZ Type = "timestamptz" // an instant
	Timestamp   Type = "timestamp"   // a date and time without a zone; the file may also say datetime
	DateType    Type = "date"        // a whole day
)

// Unit is the declared unit of a numeric trigger.
type Unit string

// The units. All but JulianDay count from 1970-01-01T00:00:00Z.
const (
	Seconds      Unit = "s"
	Milliseconds Unit = "ms"
	Microseconds Unit = "us"
	Nanoseconds  Unit = "ns"
	JulianDay    Unit = "julian_day" // days from noon UTC of 24 November 4714 BC, with a fraction
)

// Format is the declared format of a text or binary trigger, see [ParseInstant].
type Format string

// The formats.
const (
	ISO8601 Format = "iso8601"
	Compact Format = "yyyymmddhhmmss"
)

// NullRule says what a NULL trigger means.
type NullRule string

// The NULL rules. A nullable trigger needs one of them.
const (
	NullUnset NullRule = ""
	NullNever NullRule = "never" // the row is never due
	NullDue   NullRule = "due"   // the row is due at once
)

// Schedule says when the daemon starts a policy.
type Schedule struct {
	Cron        string        `json:"cron"`
	StartWithin time.Duration `json:"start_within_ns,omitempty"` // how late a run may start; 0 only with By
	Overlap     string        `json:"overlap,omitempty"`         // "skip" or "queue"; "" only with By
	CatchUp     string        `json:"catch_up,omitempty"`        // "latest", "all" or "none"; "" only with By
	By          string        `json:"by,omitempty"`              // "external": curfew starts nothing, a call is expected
	Grace       time.Duration `json:"grace_ns,omitempty"`        // how late such a call may be
}

// External is the [Schedule] by which others call.
const External = "external"

// Batch bounds the work of one transaction.
type Batch struct {
	Rows     int           `json:"rows"`           // the most rows a batch starts with
	InFlight int           `json:"in_flight"`      // batches under way at once
	Target   time.Duration `json:"target_ns"`      // the time a batch should take
	Pace     int           `json:"pace,omitempty"` // rows a second; 0 is flat out
}

// Retry says how often and how patiently a failed batch is tried again.
type Retry struct {
	Attempts int           `json:"attempts"`
	Backoff  time.Duration `json:"backoff_ns"`
	Factor   int           `json:"factor"`
}

// The defaults of what a file may leave out.
const (
	DefaultLedger      = "sqlite:curfew.db"
	DefaultTimezone    = "UTC"
	DefaultStartWithin = time.Hour
	DefaultGrace       = 15 * time.Minute
	DefaultMaxWorkers  = 4
)

// DefaultEngine, DefaultSchedule, DefaultBatch and DefaultRetry give the sections that a file
// leaves out.
func DefaultEngine() Engine { return Engine{Workers: 8, Reserved: 2} }

// DefaultSchedule is what a schedule is besides its cron: an hour to start in, no
// run on top of another, one run for what was missed.
func DefaultSchedule() Schedule {
	return Schedule{StartWithin: DefaultStartWithin, Overlap: "skip", CatchUp: "latest"}
}

// DefaultBatch is the gentle default: it leaves the foreground its latency.
func DefaultBatch() Batch {
	return Batch{Rows: 1000, InFlight: 2, Target: 500 * time.Millisecond, Pace: 50000}
}

// DefaultRetry is five attempts, 10 s, 100 s, 1000 s … apart.
func DefaultRetry() Retry { return Retry{Attempts: 5, Backoff: 10 * time.Second, Factor: 10} }

// Policy returns the policy of that name. The error of an unknown name
// suggests the nearest and lists the rest.
func (f *File) Policy(name string) (*Policy, error) {
	names := make([]string, len(f.Policies))
	for i, p := range f.Policies {
		if p.Name == name {
			return p, nil
		}
		names[i] = p.Name
	}
	return nil, f.unknown("policy", "policies", name, names)
}

// unknown is the error of a name that the file does not have: it suggests the nearest and lists the rest.
func (f *File) unknown(one, several, name string, names []string) error {
	where := cmp.Or(f.Path, "the file")
	if len(names) == 0 {
		return fmt.Errorf("there is no %s %q: %s has no %s", one, name, where, several)
	}
	if near := nearest(name, names); near != "" {
		return fmt.Errorf("there is no %s %q in %s; did you mean %q? (it has: %s)", one, name, where, near, strings.Join(names, ", "))
	}
	return fmt.Errorf("there is no %s %q in %s; it has: %s", one, name, where, strings.Join(names, ", "))
}

// Location is the time zone of the policy: the one its periods are counted in.
func (p *Policy) Location() *time.Location {
	return mustLocation(cmp.Or(p.Timezone, DefaultTimezone))
}

// TriggerLocation is the zone in which the trigger's zone-less values are
// read, nil when the trigger declares none.
func (p *Policy) TriggerLocation() *time.Location {
	if p.Trigger.Zone == "" {
		return nil
	}
	return mustLocation(p.Trigger.Zone)
}

// zones are the time zones loaded so far. They are read once, so that a zone
// means the same from the first run of a process to its last.
var zones sync.Map // name → *time.Location

// mustLocation is a zone that was loaded once already, when the policy was
// parsed or read back.
func mustLocation(name string) *time.Location {
	loc, err := loadLocation(name)
	if err != nil {
		panic(fmt.Sprintf("policy: zone %q was never accepted: %v", name, err))
	}
	return loc
}

// loadLocation is time.LoadLocation without the names whose meaning depends on
// the machine, and without those that count leap seconds.
func loadLocation(name string) (*time.Location, error) {
	if loc, ok := zones.Load(name); ok {
		return loc.(*time.Location), nil
	}
	if oneOf(name, "", "Local", "localtime", "posixrules", "Factory") || strings.HasPrefix(name, "right/") || strings.HasPrefix(name, "posix/") {
		return nil, fmt.Errorf("%q is not an IANA time zone", name)
	}
	loc, err := time.LoadLocation(name)
	if err != nil {
		return nil, err
	}
	zones.Store(name, loc)
	return loc, nil
}

// nearest returns the name closest to the one that was meant, or "" when none
// is close enough to be a slip of the finger.
func nearest(name string, names []string) string {
	best, bestAt := "", 1+min(3, max(1, len(name)/3))
	for _, n := range slices.Sorted(slices.Values(names)) {
		if d := distance(name, n); d < bestAt {
			best, bestAt = n, d
		}
	}
	return best
}

// distance is the Levenshtein distance of two short names.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next := min(diagonal+cost, row[j]+1, row[j+1]+1)
			diagonal, row[j+1] = row[j+1], next
		}
	}
	return row[len(b)]
}

package policy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// ActionKind is what is done to a due row.
type ActionKind string

// The actions.
const (
	Delete    ActionKind = "delete"    // the row is removed, and what depends on it where that is asked for
	Anonymise ActionKind = "anonymise" // named columns are changed so that they tell of nobody
	Archive   ActionKind = "archive"   // the row moves to another table of the same database
	Set       ActionKind = "set"       // named columns get values
	Notify    ActionKind = "notify"    // somebody is told, once
	Call      ActionKind = "call"      // another system is asked to act, over HTTP
)

// Outcome is the word for a row to which the action was done.
func (k ActionKind) Outcome() string {
	return map[ActionKind]string{Delete: "deleted", Anonymise: "anonymised", Archive: "archived", Set: "set", Notify: "notified", Call: "called"}[k]
}

// Tells reports whether the action is done outside the database: rows stay as
// they are, and what happened is remembered beside them.
func (k ActionKind) Tells() bool { return k == Notify || k == Call }

// Action is an action with its settings: of the fields after Kind, those of
// other kinds are zero. Its JSON form is the name alone for an action without
// settings.
type Action struct {
	Kind       ActionKind  `json:"kind"`
	Dependents *Dependents `json:"dependents,omitempty"` // of delete
	Columns    []Change    `json:"columns,omitempty"`    // of anonymise and set, in the order of the file
	To         string      `json:"to,omitempty"`         // of archive: the table, name or schema.name
	Message    *Message    `json:"message,omitempty"`    // of notify
	Request    *Request    `json:"request,omitempty"`    // of call
}

// IsZero reports whether there is no action, as in a policy with stages.
func (a Action) IsZero() bool { return a.Kind == "" }

type plainAction Action // without the methods

// MarshalJSON writes the action's name, or an object where it has settings.
func (a Action) MarshalJSON() ([]byte, error) {
	if a.Dependents == nil && a.Columns == nil && a.To == "" && a.Message == nil && a.Request == nil {
		return json.Marshal(a.Kind)
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // as the revision around it
	err := enc.Encode(plainAction(a))
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// UnmarshalJSON reads what MarshalJSON wrote, and nothing it does not know.
func (a *Action) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &a.Kind)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	return dec.Decode((*plainAction)(a))
}

// Change is what becomes of one column. Exactly one of the fields after Column
// is set.
type Change struct {
	Column   string      `json:"column"`
	Value    *Value      `json:"value,omitempty"`    // a constant, or NULL
	Sentinel *Value      `json:"sentinel,omitempty"` // a constant that names an existing row which stands for nobody
	AsOfPlus *Period     `json:"as_of_plus,omitempty"`
	Hash     bool        `json:"hash,omitempty"`     // anonymise: a keyed hash, as text that begins with [HashPrefix]
	Truncate CalendarBit `json:"truncate,omitempty"` // anonymise: a date or time, cut to the first of its month or year
	Prefix   int         `json:"prefix,omitempty"`   // anonymise: the first so many characters of a text
	Band     int         `json:"band,omitempty"`     // anonymise: a number, rounded down to a multiple
}

// Constant is the value that every row gets; nil when a row's own value says
// what it gets, or the run's as_of does.
func (c Change) Constant() *Value {
	if c.Sentinel != nil {
		return c.Sentinel
	}
	return c.Value
}

// HashPrefix begins a text that anonymise made with a keyed hash. It is how a
// value that was hashed is told from one that was not.
const HashPrefix = "anon:"

// CalendarBit is what a date is cut to.
type CalendarBit string

// What a date can be cut to.
const (
	ToMonth CalendarBit = "month"
	ToYear  CalendarBit = "year"
)

// Value is a constant of the file, to be stored in a column of whatever type.
type Value struct {
	Kind ValueKind `json:"kind"`
	Text string    `json:"text,omitempty"` // as written; "" for NULL
}

// ValueKind is how a constant was written.
type ValueKind string

// How a constant can be written.
const (
	NullValue   ValueKind = "null"
	TextValue   ValueKind = "text"
	NumberValue ValueKind = "number"
	BoolValue   ValueKind = "bool" // Text is true or false
)

// Dependents are the rows of other tables that a delete takes along, children
// first, all or nothing with each row.
type Dependents struct {
	Auto bool        `json:"auto,omitempty"` // all that references the row, by foreign keys, transitively
	List []Dependent `json:"list,omitempty"` // or these tables, in the order in which their rows are deleted
}

// Dependent is one table whose rows go with a row of the policy's table.
type Dependent struct {
	Table     string `json:"table"`
	On        string `json:"on,omitempty"`      // SQL that joins it to the policy's table; "": by its foreign keys
	Subject   string `json:"subject,omitempty"` // the column that names the data subject, for legal holds
	NoSubject bool   `json:"no_subject,omitempty"`
}

// Message is what notify sends, once for each row and due instant: by e-mail,
// or to a webhook.
type Message struct {
	Email   string    `json:"email,omitempty"`   // the column with the address
	Query   string    `json:"query,omitempty"`   // or SQL, a sub-select of addresses
	From    string    `json:"from,omitempty"`    // "": as the file's mail section says
	Subject string    `json:"subject,omitempty"` // of the e-mail; a template
	Text    string    `json:"text,omitempty"`    // of the e-mail; a template, read from its file when the policy was
	Webhook *Endpoint `json:"webhook,omitempty"`
}

// Endpoint is a web address that gets what happened, signed as Standard
// Webhooks says. Its texts are with ${…} as written, because a revision holds no
// secret; see [File.Expand].
type Endpoint struct {
	URL    string `json:"url"`
	Secret string `json:"secret,omitempty"` // "" sends without a signature
}

// Request is what call asks another system.
type Request struct {
	URL     string        `json:"url"` // with ${…} as written
	Method  string        `json:"method"`
	Token   string        `json:"token,omitempty"` // a bearer token, with ${…} as written
	Per     Per           `json:"per"`
	Timeout time.Duration `json:"timeout_ns"`
}

// Per says what one request is about.
type Per string

// What one request can be about.
const (
	PerRow   Per = "row"
	PerBatch Per = "batch"
)

// DefaultTimeout is how long one request of call may take.
const DefaultTimeout = 30 * time.Second

// understood reports what of an action, read back from a revision, this
// version cannot execute.
func (a Action) understood() error {
	if !oneOf(a.Kind, Delete, Anonymise, Archive, Set, Notify, Call) {
		return fmt.Errorf("action %q", a.Kind)
	}
	changes := a.Kind == Anonymise || a.Kind == Set
	switch {
	case changes != (len(a.Columns) > 0), (a.Kind == Archive) != (a.To != ""), (a.Kind == Notify) != (a.Message != nil),
		(a.Kind == Call) != (a.Request != nil), a.Dependents != nil && a.Kind != Delete:
		return fmt.Errorf("action %s with settings that are not its own", a.Kind)
	}
	for _, c := range a.Columns {
		n := 0
		for _, set := range []bool{c.Value != nil, c.Sentinel != nil, c.AsOfPlus != nil, c.Hash, c.Truncate != "", c.Prefix > 0, c.Band > 0} {
			if set {
				n++
			}
		}
		if c.Column == "" || n != 1 || !oneOf(c.Truncate, "", ToMonth, ToYear) {
			return fmt.Errorf("action %s of column %q", a.Kind, c.Column)
		}
		for _, v := range []*Value{c.Value, c.Sentinel} {
			if v != nil && !oneOf(v.Kind, NullValue, TextValue, NumberValue, BoolValue) {
				return fmt.Errorf("a constant of kind %q", v.Kind)
			}
		}
	}
	if d := a.Dependents; d != nil && d.Auto == (len(d.List) > 0) {
		return fmt.Errorf("dependents that are neither automatic nor a list")
	}
	if m := a.Message; m != nil {
		n := 0
		for _, set := range []bool{m.Email != "", m.Query != "", m.Webhook != nil} {
			if set {
				n++
			}
		}
		if n != 1 {
			return fmt.Errorf("a message for nobody, or by two ways")
		}
	}
	if r := a.Request; r != nil && (!oneOf(r.Per, PerRow, PerBatch) || r.Timeout <= 0 || !slices.Contains(requestMethods, r.Method)) {
		return fmt.Errorf("request %s per %q", r.Method, r.Per)
	}
	return nil
}

// requestMethods are those that ask for something to be done.
var requestMethods = []string{"POST", "PUT", "PATCH", "DELETE"}

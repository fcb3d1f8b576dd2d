// Package hold says what a legal hold is, and when a governed database has the holds that the ledger says it should have.
//
// Its one invariant: of two records that do not agree neither is taken for right. Who compares is told which way they differ,
// and nothing changes until somebody has put them right. The package is pure.
package hold

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// State is how far the placing or the release of a hold has come.
type State string

// The states. In every one but Released the rows stay: while a hold is placed or released, no batch begins in the databases that
// are not done.
const (
	Placing   State = "placing"   // recorded, and not yet in every database
	InForce   State = "in_force"  // in every database
	Releasing State = "releasing" // its release is recorded, and not yet done in every database
	Released  State = "released"
)

// AnyTable is the relation of a hold on a data subject, whatever the table.
const AnyTable = "*"

// Condition is "the column has this value". Values are as good as keys: they are in no log line, error or URL.
type Condition struct {
	Column string `json:"column"` // "": the column that names the data subject, whatever a policy calls it
	Value  string `json:"value"`
}

// Hold is a legal hold: the rows that meet all its conditions stay, whatever any policy says.
type Hold struct {
	ID     string // random; what a governed database's copy is known by
	Name   string // given once, for good
	Reason string
	State  State

	Database   string // "" for a data subject, who is held in every database
	Relation   string // a table, or AnyTable
	Conditions []Condition

	AskedAt  time.Time
	AskedBy  string
	PlacedAt time.Time // in force everywhere since; zero before

	ReleaseReason string
	ReleasedBy    string
	ReleasedAt    time.Time // when it was asked for; zero before

	Copies []Copy // by database
}

// Copy is how far a hold is in one database.
type Copy struct {
	Database string
	State    State
}

// OnSubject reports whether the hold is on a data subject.
func (h Hold) OnSubject() bool { return h.Relation == AnyTable }

// Columns are the columns of the conditions: what may be told of them.
func (h Hold) Columns() []string {
	var names []string
	for _, c := range h.Conditions {
		if c.Column != "" {
			names = append(names, c.Column)
		}
	}
	return names
}

// Same reports whether both hold the same rows.
func (h Hold) Same(o Hold) bool {
	return h.Database == o.Database && h.Relation == o.Relation && slices.Equal(sorted(h.Conditions), sorted(o.Conditions))
}

func sorted(conditions []Condition) []Condition {
	s := slices.Clone(conditions)
	slices.SortFunc(s, func(a, b Condition) int {
		if n := strings.Compare(a.Column, b.Column); n != 0 {
			return n
		}
		return strings.Compare(a.Value, b.Value)
	})
	return s
}

// Pending lists the databases in which something is left to be done.
func (h Hold) Pending() []string {
	var names []string
	for _, c := range h.Copies {
		if c.State == Placing || c.State == Releasing {
			names = append(names, c.Database)
		}
	}
	return names
}

// CheckName accepts what may name a hold: it is in logs, in reasons and in URLs, and so is no place for a person's name.
func CheckName(name string) error {
	if name == "" || len(name) > 63 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" || strings.ContainsAny(name[:1], "._-") {
		return errors.New("a hold's name is up to 63 letters, digits, dots, _ and -, and begins with a letter or a digit")
	}
	return nil
}

// ErrCondition says that text is no condition; it does not repeat it.
var ErrCondition = errors.New("a condition is column=value, with a value that is not empty")

// ParseCondition reads column=value. The value is what follows the first =, spaces included.
func ParseCondition(text string) (Condition, error) {
	column, value, found := strings.Cut(text, "=")
	c := Condition{Column: column, Value: value}
	if !found || column == "" || strings.TrimSpace(column) != column {
		return Condition{}, ErrCondition
	}
	return c, CheckConditions([]Condition{c})
}

// CheckConditions accepts conditions that can be compared with rows: each column once, and no value that is empty or that a
// database could not store.
func CheckConditions(conditions []Condition) error {
	if len(conditions) == 0 {
		return errors.New("a hold needs a condition: one without would hold a whole table")
	}
	seen := map[string]bool{}
	for _, c := range conditions {
		switch {
		case c.Value == "" || len(c.Value) > 1024 || strings.ContainsRune(c.Value, 0) || strings.ToValidUTF8(c.Value, "") != c.Value:
			return ErrCondition
		case seen[c.Column]:
			return fmt.Errorf("column %q is there twice: no row has two values in it", c.Column)
		}
		seen[c.Column] = true
	}
	return nil
}

package target

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"

	"curfew.dev/curfew/policy"
)

// Engine names a database product family.
type Engine string

// The engines. MariaDB and MySQL speak one dialect; Server tells them apart.
const (
	Postgres Engine = "postgres"
	MySQL    Engine = "mysql"
	SQLite   Engine = "sqlite"
)

// Server is what a governed database says of itself.
type Server struct {
	Engine   Engine
	Version  string // as the server prints it
	Major    int    // 15 for PostgreSQL 15.6, 10 for MariaDB 10.11, 3 for SQLite
	Minor    int
	MariaDB  bool
	Identity string // system identifier, server uuid, or file identity: changes when the database is another one
	Role     string // the role we are; MySQL: user@host
	Database string // PostgreSQL, MySQL: the database that the connections are in
	ReadOnly bool   // a standby, a read-only server, or a file that we may not write
}

// Kind groups column types by how their values travel and compare.
type Kind string

// Column kinds. A key may be made of KindInt … KindBytes, KindTime, KindEnum (PostgreSQL) and KindAny (SQLite).
const (
	KindInt       Kind = "int"       // whole numbers of any width
	KindDecimal   Kind = "decimal"   // exact numeric
	KindFloat     Kind = "float"     // real, double
	KindText      Kind = "text"      // char, varchar, text, citext
	KindBytes     Kind = "bytes"     // bytea, binary, varbinary, blob
	KindUUID      Kind = "uuid"      // PostgreSQL and MariaDB uuid
	KindBool      Kind = "bool"      // PostgreSQL boolean
	KindDate      Kind = "date"      // civil date
	KindTime      Kind = "timestamp" // civil timestamp without zone: timestamp, datetime
	KindInstant   Kind = "instant"   // timestamptz, MySQL TIMESTAMP
	KindEnum      Kind = "enum"      //
	KindAny       Kind = "any"       // SQLite: whatever a row holds
	KindOther     Kind = "other"     // json, arrays, geometry, …
	KindTimeOfDay Kind = "time"      // time, interval
)

// Column is one column of a governed table.
type Column struct {
	Name      string
	Type      string // the base type without length or precision: what a cast may name. SQLite: the affinity
	Declared  string // as declared, length and precision included
	Kind      Kind
	NotNull   bool
	Unsigned  bool   // MySQL integers
	Collation string // text columns: the collation's name, "" for the database's default. SQLite: known for indexed columns only
	Position  int    // attnum, ordinal or cid: part of the fingerprint
	Generated bool
	OnUpdate  bool // MySQL: ON UPDATE CURRENT_TIMESTAMP
	Default   bool // an INSERT that leaves it out gives it a value
}

// Index is one index; Unique ones over NOT NULL columns may serve as a key.
type Index struct {
	Name    string
	Columns []string // "" for an expression
	Unique  bool
	Primary bool
	Partial bool // has a WHERE, or a prefix length: not usable as a key or for every row
	// Ordered: a btree in the columns' own order, so that it serves ORDER BY and ranges. PostgreSQL's *_pattern_ops and
	// indexes in another collation are not.
	Ordered bool
	Valid   bool // built and not hidden from the planner
}

// Rule is what a foreign key does to its rows when ours go.
type Rule string

// Foreign key rules.
const (
	NoAction   Rule = "NO ACTION"
	Restrict   Rule = "RESTRICT"
	Cascade    Rule = "CASCADE"
	SetNull    Rule = "SET NULL"
	SetDefault Rule = "SET DEFAULT"
)

// ForeignKey is a constraint of Child that references Parent.
type ForeignKey struct {
	Name          string   // "" where SQLite was not told one
	Child         string   // qualified as the policy would write it: "fine", "auth.identities"
	ChildColumns  []string // in order
	Parent        string
	ParentColumns []string
	OnDelete      Rule
	Deferrable    bool
	Deferred      bool // INITIALLY DEFERRED
	Indexed       bool // an index of the child leads with the columns
	ChildSelect   bool // our role may SELECT the child
}

// Trigger is a user trigger that fires when rows are changed.
type Trigger struct {
	Name   string
	Table  string // qualified like ForeignKey.Child
	Timing string // BEFORE, AFTER, INSTEAD OF; RULE for a PostgreSQL rewrite rule
	Row    bool   // FOR EACH ROW
	Event  string // INSERT or UPDATE; "" for DELETE
}

// Table is what the catalog says of a governed table: facts only, no judgement.
type Table struct {
	Engine      Engine
	Schema      string // PostgreSQL: always; MySQL: when it is not the connection's database; SQLite: never
	Name        string // as the catalog spells it
	Label       string // as a policy would write it: unqualified when the search path finds it
	OID         string // identity of the table: oid, table id or rootpage; "" when the engine gives none
	IsView      bool
	Partitioned bool
	Partitions  []string // leaf partitions
	Inherited   bool     // PostgreSQL: has inheritance children that are not partitions
	Temporary   bool
	System      bool   // belongs to the engine
	Versioned   bool   // MariaDB: WITH SYSTEM VERSIONING, so that a deleted row lives on in the history
	Storage     string // MySQL: the storage engine; SQLite: "virtual" for a virtual table; else ""
	Columns     []Column
	Indexes     []Index
	// Children are all foreign keys reached from this table: those that reference it, and, through CASCADE, those that
	// reference the rows which would go along, breadth first, each constraint once.
	Children []ForeignKey
	Triggers []Trigger // on DELETE, on this table and on tables reached by CASCADE
	// Parents are the foreign keys of this table: what its rows reference.
	Parents     []ForeignKey
	Writes      []Trigger // on INSERT and UPDATE, on this table; one that fires on both is here twice
	Archive     *Table    // the table that a policy's rows go to, see InspectFor; nil when there is none
	RowSecurity bool      // active for our role
	WithoutRow  bool      // SQLite: WITHOUT ROWID
	EstRows     int64     // the planner's estimate; -1 when unknown
	Blocks      int64     // heap pages; 0 when unknown
	Privileges  Privileges
	Spread      map[string]Spread // what the last ANALYZE found, by column name; PostgreSQL only
	// Dependents are the tables whose rows go along by the policy's action; see InspectFor. One that is not there is nil.
	Dependents []*Table
	// Hidden is what our role may not see and which is therefore missing here: "foreign keys", "triggers". MySQL only.
	Hidden []string

	// ChildColumns are the columns of the tables whose rows go along or lose their reference, by label.
	ChildColumns map[string][]Column
}

// A Spread is how a column's values lie in the table.
type Spread struct {
	Correlation float64 // with the physical order, in [-1, 1]
	Ties        float64 // rows that have the same value as an average row, itself included; 0 when unknown
}

// Privileges are our role's rights on the table.
type Privileges struct{ Select, Delete, Update, Insert bool }

// ErrNoTable is wrapped by Inspect when there is no such table, or none that our role can see.
var ErrNoTable = errors.New("no such table")

// Column returns the named column. Names are case-sensitive on PostgreSQL only.
func (t *Table) Column(name string) (Column, bool) {
	for _, c := range t.Columns {
		if t.sameName(c.Name, name) {
			return c, true
		}
	}
	return Column{}, false
}

func (t *Table) sameName(a, b string) bool {
	return a == b || t.Engine != Postgres && strings.EqualFold(a, b)
}

// KeyIndex returns the index that makes cols a key: unique over exactly these columns, in any order, and in their own
// collations, for every row. Whether they are NOT NULL is another question.
func (t *Table) KeyIndex(cols []string) (Index, bool) {
	for _, ix := range t.Indexes {
		if !ix.Unique || ix.Partial || !ix.Ordered || !ix.Valid || len(ix.Columns) != len(cols) {
			continue
		}
		if t.sameSet(ix.Columns, cols) {
			return ix, true
		}
	}
	return Index{}, false
}

func (t *Table) sameSet(a, b []string) bool {
	for _, x := range a {
		if !slices.ContainsFunc(b, func(y string) bool { return t.sameName(x, y) }) {
			return false
		}
	}
	return len(a) == len(b)
}

// InspectFor reads what the catalog says of a policy's table, and of the tables that its action reaches: the one that rows are
// archived to, and those whose rows go along. What is not there is for Judge to tell.
func (d *DB) InspectFor(ctx context.Context, p *policy.Policy) (*Table, error) {
	t, err := d.Inspect(ctx, p.Table)
	switch {
	case err != nil:
	case p.Action.Kind == policy.Archive:
		if t.Archive, err = d.Inspect(ctx, p.Action.To); errors.Is(err, ErrNoTable) {
			err = nil
		}
	case p.Action.Dependents != nil:
		err = d.inspectDependents(ctx, t, p.Action.Dependents)
	}
	return t, err
}

// Inspect reads what the catalog says of a table, named as a policy does: table or schema.table.
func (d *DB) Inspect(ctx context.Context, table string) (*Table, error) {
	var t *Table
	var err error
	switch d.Engine {
	case Postgres:
		t, err = d.inspectPostgres(ctx, table)
	case MySQL:
		// A table of any database that is dropped while the server looks through them all is an error there: look again.
		for range 5 {
			if t, err = d.inspectMySQL(ctx, table); !hasCode(err, "1146") {
				break
			}
		}
	default:
		t, err = d.inspectSQLite(ctx, table)
	}
	if err == nil {
		err = d.childColumns(ctx, t)
	}
	if err != nil {
		return nil, fmt.Errorf("table %s of database %q: %w", table, d.Name, redact(err))
	}
	return t, nil
}

// childColumns reads the columns of the tables whose rows change when ours go.
func (d *DB) childColumns(ctx context.Context, t *Table) error {
	for _, fk := range t.Children {
		if fk.OnDelete == NoAction || fk.OnDelete == Restrict || fk.Child == t.Label || t.ChildColumns[fk.Child] != nil {
			continue
		}
		child := &Table{Engine: d.Engine}
		child.Schema, child.Name = parts(fk.Child)
		var err error
		switch d.Engine {
		case Postgres:
			if child, err = d.pgTable(ctx, fk.Child); err == nil {
				err = d.pgColumns(ctx, child)
			}
		case MySQL:
			err = d.mysqlColumns(ctx, child)
		default:
			err = d.sqliteColumns(ctx, child, nil)
		}
		if errors.Is(err, ErrNoTable) { // dropped this moment: the fingerprint tells
			continue
		}
		if err != nil {
			return err
		}
		if t.ChildColumns == nil {
			t.ChildColumns = map[string][]Column{}
		}
		t.ChildColumns[fk.Child] = child.Columns
	}
	return nil
}

// A reference is a foreign key as the catalog has it: names as the graph is walked, not as they are shown.
type reference struct {
	ForeignKey
	child, parent string // identity of the tables
	id, of        string // PostgreSQL: identity, and the constraint of the partitioned table that this one is a part of
}

// reach walks the references breadth first from the table: those to our rows, then, through CASCADE, those to the rows that
// would go along. Each is met once, so cycles end. It also returns the tables whose rows may go. below gives the partitions
// of a table, whose rows are its own.
func reach(table string, refs []reference, below func(string) []string) (found []ForeignKey, tables []string) {
	tables = append([]string{table}, below(table)...)
	byID := map[string]reference{}
	for _, r := range refs {
		byID[r.id] = r
	}
	used := make([]bool, len(refs))
	for i := 0; i < len(tables); i++ {
		for n, r := range refs {
			if used[n] || r.parent != tables[i] {
				continue
			}
			if whole, ok := byID[r.of]; ok && r.of != "" && slices.Contains(tables, whole.parent) {
				continue // the whole constraint is there, or comes
			}
			used[n] = true
			found = append(found, r.ForeignKey)
			if r.OnDelete == Cascade && !slices.Contains(tables, r.child) {
				tables = append(append(tables, r.child), below(r.child)...)
			}
		}
	}
	return found, tables
}

func noPartitions(string) []string { return nil }

// parentsOf are the foreign keys of the table itself.
func parentsOf(table string, refs []reference) (found []ForeignKey) {
	for _, r := range refs {
		if r.child == table {
			found = append(found, r.ForeignKey)
		}
	}
	return found
}

// Fingerprint is a hash over the identity of the table and the named columns as Inspect saw them; with none named, all.
// It is for comparing what was looked at on two occasions; inside a transaction there is fingerprintSQL.
func Fingerprint(t *Table, cols []string) string {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %q", t.OID, t.Schema, t.Name)
	for _, c := range t.Columns {
		if len(cols) > 0 && !slices.ContainsFunc(cols, func(n string) bool { return t.sameName(n, c.Name) }) {
			continue
		}
		fmt.Fprintf(h, " %q %d %q %q %t", c.Name, c.Position, c.Declared, c.Collation, c.NotNull)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// along are the other tables from which rows go along with a deleted one, by label.
func (t *Table) along() []string {
	var out []string
	for _, fk := range t.Children {
		if fk.OnDelete == Cascade && fk.Child != t.Label && !slices.Contains(out, fk.Child) {
			out = append(out, fk.Child)
		}
	}
	for _, c := range t.Dependents {
		for _, label := range append([]string{c.Label}, c.along()...) {
			if label != t.Label && !slices.Contains(out, label) {
				out = append(out, label)
			}
		}
	}
	return out
}

// fingerprintSQL is a query for one text that changes when the table is another one, when any of its columns changes its
// name, place, type, collation or nullability, when the key is no longer unique, and, on PostgreSQL and SQLite, when a delete
// trigger or a foreign key that references it comes or goes, on this table or on one from which rows go along: what a delete
// takes along was accepted by name. (event says which triggers: those of the statement that a run makes.) (MySQL opens every table of the schema to tell; there each process looks once, when it
// begins.) All columns, since the policy's SQL may read any of them; other indexes may come and go.
//
// Run it once the transaction holds a lock on the table, which any statement that touches the table takes and which keeps
// the definition as it is until the end: before that, a change could slip in between.
func fingerprintSQL(t *Table, key []string, event int) (query string, args []any) {
	switch t.Engine {
	case Postgres:
		return postgresFingerprint(t, key, event)
	case MySQL:
		return mysqlFingerprint(t, key)
	default:
		return sqliteFingerprint(t, key)
	}
}

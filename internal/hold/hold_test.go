package hold

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestParseCondition(t *testing.T) {
	for text, want := range map[string]Condition{"a=b": {"a", "b"}, "a= b=c ": {"a", " b=c "}, "straße=ä": {"straße", "ä"}} {
		if got, err := ParseCondition(text); err != nil || got != want {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "secret", "=secret", "secret=", " a=secret", "a =secret", "a=secret\x00", "a=secret\xff", "a=" + strings.Repeat("secret", 1000)} {
		if _, err := ParseCondition(text); !errors.Is(err, ErrCondition) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if err := CheckConditions(nil); err == nil {
		t.Error("a hold without a condition holds a whole table")
	}
	if err := CheckConditions([]Condition{{"a", "1"}, {"a", "2"}}); err == nil {
		t.Error("no row has two values in a column")
	}
}

func TestNames(t *testing.T) {
	for name, ok := range map[string]bool{"12-C-345": true, "a": true, "A.b_c-9": true, "": false, "-a": false, ".a": false, "a b": false, "a/b": false, "ä": false,
		strings.Repeat("a", 63): true, strings.Repeat("a", 64): false} {
		if err := CheckName(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestSame(t *testing.T) {
	h := Hold{Database: "d", Relation: "t", Conditions: []Condition{{"a", "1"}, {"b", "2"}}}
	turned := Hold{Name: "other", Database: "d", Relation: "t", Conditions: []Condition{{"b", "2"}, {"a", "1"}}}
	if !h.Same(turned) {
		t.Error("the order of conditions makes another hold")
	}
	for _, o := range []Hold{{Database: "e", Relation: "t", Conditions: h.Conditions}, {Database: "d", Relation: "u", Conditions: h.Conditions}, {Database: "d", Relation: "t", Conditions: h.Conditions[:1]}} {
		if h.Same(o) {
			t.Errorf("taken for the same: %+v", o)
		}
	}
}

func TestCompare(t *testing.T) {
	row := func(ids ...string) (rows []Row) {
		for _, id := range ids {
			rows = append(rows, Row{ID: id, Name: "n" + id})
		}
		return rows
	}
	want := func(id string, here State) Wanted { return Wanted{ID: id, Name: "n" + id, Here: here, Hold: InForce} }
	released := func(id string) bool { return id == "old" }
	for _, c := range []struct {
		name     string
		subjects bool
		want     []Wanted
		have     []Row
		says     string // "": a batch may begin
		is       error
	}{
		{"nothing", true, nil, nil, "", nil},
		{"as it should be", true, []Wanted{want("1", InForce)}, row("1"), "", nil},
		{"restored", true, []Wanted{want("1", InForce), want("2", InForce)}, row("1"), "it does not have n2, which the ledger has in force", ErrStale},
		{"restored to before a release", true, nil, row("old"), "it still has nold, which the ledger has released", ErrStale},
		{"one copy released, and there again", true, []Wanted{{ID: "1", Name: "n1", Hold: Releasing, Here: Released}}, row("1"), "it still has n1", ErrStale},
		{"the ledger restored", true, nil, row("9"), "it has n9, which the ledger does not know", ErrStale},
		{"being placed", true, []Wanted{want("1", Placing)}, nil, "hold n1 is NOT yet in force in database d", ErrPending},
		{"placed, and the ledger not told", true, []Wanted{want("1", Placing)}, row("1"), "NOT yet in force", ErrPending},
		{"being released", true, []Wanted{want("1", Releasing)}, row("1"), "the release of hold n1", ErrPending},
		{"removed, and the ledger not told", true, []Wanted{want("1", Releasing)}, nil, "the release of hold n1", ErrPending},
		{"stale and pending", true, []Wanted{want("1", Placing), want("2", InForce)}, nil, "it does not have n2", ErrStale},
		{"of another name for this database", true, []Wanted{want("1", "")}, row("1"), "", nil},
		{"rows of another database", true, []Wanted{want("1", "")}, nil, "", nil},
		{"a subject that is held elsewhere", true, []Wanted{{ID: "1", Name: "n1", Subject: true, Hold: InForce}}, nil, "NOT yet in force", ErrPending},
		{"which nobody knows here", false, []Wanted{{ID: "1", Name: "n1", Subject: true, Hold: InForce}}, nil, "", nil},
		{"or is released elsewhere", true, []Wanted{{ID: "1", Name: "n1", Subject: true, Hold: Releasing}}, nil, "", nil},
	} {
		err := Compare("d", c.subjects, c.want, c.have, released)
		switch {
		case c.says == "" && err != nil, c.says != "" && (!errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "curfew hold ")):
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// Whatever the states: a batch begins only where every hold in force is there, and nothing is under way.
func TestCompareLetsNothingThrough(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var want []Wanted
		var have []Row
		safe := true
		for i := range rapid.IntRange(0, 6).Draw(r, "holds") {
			id := string(rune('a' + i))
			here := rapid.SampledFrom([]State{"", Placing, InForce, Releasing, Released}).Draw(r, "here")
			there := rapid.Bool().Draw(r, "there")
			known := rapid.Bool().Draw(r, "known")
			if known {
				want = append(want, Wanted{ID: id, Name: id, Here: here, Hold: InForce})
			}
			if there {
				have = append(have, Row{ID: id, Name: id})
			}
			switch {
			case !known && there, known && here == InForce && !there, known && (here == Placing || here == Releasing), known && here == Released && there:
				safe = false
			}
		}
		if err := Compare("d", false, want, have, func(string) bool { return false }); (err == nil) != safe {
			r.Errorf("%v with %s", err, cmp.Diff(want, have))
		}
	})
}

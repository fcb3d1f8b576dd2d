package curfew

import (
	"testing"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/target"
)

// Where a table that may keep a row cannot be read, it is not said that nothing keeps the row.
func TestExplainUnseen(t *testing.T) {
	p := statusPolicy(t, "circulation")
	a := &target.Answers{Exists: true, InScope: true, Readable: true, Due: true, Unseen: []string{"claim", "loan"}, Faults: map[target.Question]string{}}
	conditions, verdict := explainWords(p, api.Explanation{}, a)
	if last := conditions[len(conditions)-1]; last.Name != "children" || last.Passes != nil || last.Detail != "it stays if a row of claim or loan refers to it, which our role may not see" {
		t.Errorf("%+v", last)
	}
	if verdict != "It would go now, unless a row of claim or loan refers to it, which our role may not see." {
		t.Error(verdict)
	}
	a.Held, a.HeldBy = true, []string{"7-O-12"}
	if _, verdict = explainWords(p, api.Explanation{}, a); verdict != "It stays: a legal hold keeps it: 7-O-12." {
		t.Error(verdict)
	}
}

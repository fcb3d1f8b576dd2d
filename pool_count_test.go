package curfew

import (
	"strings"
	"testing"

	"curfew.dev/curfew/api"
)

// What a run is about to do is counted beside the data: limits and a changed policy have it wait here as elsewhere.
func TestPoolCounts(t *testing.T) {
	g := newRegion(t, strings.Replace(loans, "mode: enforce,", `mode: enforce, where: "id LIKE '%1'", limits: {max_rows: 4},`, 1))
	g.startPool()
	defer g.stopPool()
	g.fill(40) // of which four end in 1
	run := func() api.Run {
		run, err := g.dispatcher().Run(t.Context(), RunRequest{Policy: "loans"})
		if err != nil {
			t.Fatal(err)
		}
		return run
	}
	if r := run(); r.Outcomes["deleted"] != 4 {
		t.Fatalf("%+v", r)
	}
	g.exec("DELETE FROM loan")
	g.fill(50)
	waits := run()
	if waits.State != api.StateAwaitingApproval || !strings.Contains(waits.Detail, "it would remove 5 rows, and max_rows is 4") || g.count("SELECT count(*) FROM loan") != 50 {
		t.Fatalf("%+v", waits)
	}
	approve := func(r api.Run) {
		if _, err := g.dispatcher().Approve(t.Context(), r.ID, ""); err != nil {
			t.Fatal(err)
		}
	}
	approve(waits)
	if r := run(); r.ID != waits.ID || r.Outcomes["deleted"] != 5 {
		t.Fatalf("%+v", r)
	}
	g.rules = strings.Replace(loans, "mode: enforce,", `mode: enforce, where: "id LIKE '%1' OR id LIKE '%2'",`, 1)
	waits = run()
	if waits.State != api.StateAwaitingApproval || !strings.Contains(waits.Detail, "it would remove 5 rows, and 0 as it was before; 5 rows would have stayed") {
		t.Fatalf("%+v", waits)
	}
	approve(waits)
	if r := run(); r.Outcomes["deleted"] != 5 || g.count("SELECT count(*) FROM loan") != 40 {
		t.Fatalf("%+v", r)
	}
}

package target

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/policy"
)

// A row that hangs on one organisation is locked by somebody when the batch comes; while the batch has handed that one on, a hold is
// placed on another row of it, or on itself. It stays whole, as held.
func TestDependentsHeldWhileLocked(t *testing.T) {
	for _, on := range []struct {
		relation, condition string
		action              func(*policy.Policy)
	}{{"org", "id=2", listed}, {"mark", "post_id=203", auto}} {
		engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
			l.orgs("")
			l.waits(50*time.Millisecond, 20*time.Second)
			j := l.job(l.policy("org", on.action))
			commit := l.hold("UPDATE member SET boss_id = NULL WHERE id = 24")
			res, err := j.Execute(t.Context(), asOf, l.work(l.pages(j, 1000)[0]))
			if err != nil || res.Outcomes["deleted"] != 3 || res.NDefer != 1 {
				commit()
				t.Fatalf("outcomes %+v, %v", res, err)
			}
			l.place("court", on.relation, on.condition)
			commit()
			more, err := Split(res.Deferred, 1000)
			if err != nil {
				t.Fatal(err)
			}
			got := l.execute(j, []*Batch{&more[0]})
			if diff := cmp.Diff(map[string]int64{"held": 1}, got.outcomes); diff != "" || got.cascaded != 0 {
				t.Errorf("hold on %s %s: %s, %d went along", on.relation, on.condition, diff, got.cascaded)
			}
			if diff := cmp.Diff(whole(2, 5, 6), l.left()); diff != "" {
				t.Error(diff)
			}
			l.lift("court")
			if got := l.drain(l.job(l.policy("org", on.action)), 1000); got.outcomes["deleted"] != 1 || got.cascaded != perOrg {
				t.Errorf("released: %v, %d went along", got.outcomes, got.cascaded)
			}
		})
	}
}

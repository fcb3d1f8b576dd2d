package target

import (
	"testing"

	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/internal/hold"
)

// Who places holds needs no more than install prints for that, and cannot read or change a governed row; who works can read holds
// and place none.
func TestGrantsOfWhoPlacesHolds(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.sessions(5)
		as := func(grants func(account string) []string) *DB {
			var url, account string
			if l.engine == Postgres {
				url, account = dbtest.PostgresRole(t, l.url)
			} else {
				url, account = dbtest.MariaDBUser(t, l.url)
			}
			for _, g := range grants(account) {
				l.exec(g)
			}
			db, err := Open(t.Context(), "lab", url, OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			return db
		}
		row := hold.Row{ID: "1", Name: "court", Relation: "session", Conditions: `[{"column": "id", "value": "3"}]`}
		clerk := as(func(account string) []string { return HoldGrantSQL(l.engine, account) })
		worker := as(func(account string) []string {
			return GrantSQL(l.engine, account, []Use{{Table: "session", Delete: true}}, nil)
		})
		if err := clerk.Installed(t.Context()); err != nil {
			t.Error(err)
		}
		table, err := clerk.Inspect(t.Context(), "session")
		if err != nil {
			t.Fatal(err)
		}
		if err := FitHold(table, hold.Hold{Relation: "session", Conditions: []hold.Condition{{Column: "id", Value: "3"}}}, ""); err != nil {
			t.Error(err)
		}
		if err := worker.SettleHolds(t.Context(), adding(row)); !Denied(err) {
			t.Errorf("a worker places a hold: %v", err)
		}
		if err := clerk.SettleHolds(t.Context(), adding(row)); err != nil {
			t.Fatal(err)
		}
		if rows, err := worker.Holds(t.Context()); err != nil || len(rows) != 1 {
			t.Errorf("%v, %v", rows, err)
		}
		if err := worker.SettleHolds(t.Context(), dropping("1")); !Denied(err) {
			t.Errorf("a worker releases a hold: %v", err)
		}
		for _, stmt := range []string{"SELECT count(*) FROM session", "DELETE FROM session"} {
			if _, err := clerk.SQL.ExecContext(t.Context(), stmt); !Denied(err) {
				t.Errorf("who places holds may %s: %v", stmt, err)
			}
		}
		if err := clerk.SettleHolds(t.Context(), dropping("1")); err != nil {
			t.Error(err)
		}
	})
}

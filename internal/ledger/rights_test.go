package ledger

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/internal/dbtest"
)

// A role that got what Grants says lacks nothing, and without any of it something is missing, by name.
func TestRights(t *testing.T) {
	admin := dbtest.Postgres(t)
	asRole, role := dbtest.PostgresRole(t, admin)
	if _, err := Migrate(t.Context(), Options{URL: admin}); err != nil {
		t.Fatal(err)
	}
	db := dbtest.Open(t, admin)
	exec := func(stmt string) {
		t.Helper()
		if _, err := db.ExecContext(t.Context(), stmt); err != nil {
			t.Fatalf("%s: %v", stmt, err)
		}
	}
	// The queue's, which another package makes, by their names.
	for _, table := range []string{"river_job", "river_leader", "river_queue", "queue_client"} {
		exec("CREATE TABLE curfew." + table + " (id bigserial)")
	}
	for _, g := range Grants(role) {
		exec(g)
	}
	l, err := Open(t.Context(), Options{URL: asRole})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, c := range []struct {
		right, on string
		want      []MissingRight
		queue     bool
	}{
		{"", "", nil, false},
		{"INSERT", "curfew.queue_client", []MissingRight{{"INSERT", "queue_client"}}, true},
		{"UPDATE, DELETE", "curfew.river_job", []MissingRight{{"UPDATE", "river_job"}, {"DELETE", "river_job"}}, true},
		{"USAGE", "SEQUENCE curfew.river_job_id_seq", []MissingRight{{"USAGE", "river_job_id_seq"}}, true},
		{"INSERT", "curfew.audit", []MissingRight{{"INSERT", "audit"}}, false},
		{"SELECT", "curfew.run", []MissingRight{{"SELECT", "run"}}, false},
	} {
		if c.right != "" {
			exec("REVOKE " + c.right + " ON " + c.on + " FROM " + role)
		}
		got, err := l.MissingRights(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("without %s on %s (-want +got):\n%s", c.right, c.on, diff)
		}
		for _, m := range got {
			if m.Queue() != c.queue {
				t.Errorf("%s: of the queue: %v", m, m.Queue())
			}
		}
		if c.right != "" {
			exec("GRANT " + c.right + " ON " + c.on + " TO " + role)
		}
	}
	exec("REVOKE INSERT ON curfew.run FROM " + role)
	if _, err := l.write.ExecContext(t.Context(), "INSERT INTO curfew.run (id) VALUES ('x')"); !Denied(err) {
		t.Errorf("%v is no right that is missing", err)
	}
	lite, err := Open(t.Context(), Options{URL: "sqlite:" + dbtest.SQLite(t)})
	if err != nil {
		t.Fatal(err)
	}
	defer lite.Close()
	if got, err := lite.MissingRights(t.Context()); err != nil || len(got) != 0 {
		t.Errorf("a file lacks %v, %v", got, err)
	}
}

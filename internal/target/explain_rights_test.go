package target

import (
	"slices"
	"testing"

	"curfew.dev/curfew/internal/dbtest"
)

// Of children that our role may not read nobody says that they keep no row, nor that they do; the database looks at them all the same.
func TestExplainUnseenChildren(t *testing.T) {
	l := newLab(t, Postgres)
	l.sessions(2)
	l.exec("CREATE TABLE loan (id bigint PRIMARY KEY, session_id bigint NOT NULL REFERENCES session DEFERRABLE INITIALLY DEFERRED)")
	l.exec("INSERT INTO loan VALUES (1, 1)")
	url, role := dbtest.PostgresRole(t, l.url)
	for _, g := range append(GrantSQL(Postgres, role, nil, nil), "GRANT SELECT, DELETE, UPDATE (id) ON session TO "+role) {
		l.exec(g)
	}
	owner := l.db
	weak, err := Open(t.Context(), "lab", url, OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer weak.Close()
	for _, c := range []struct {
		db      *DB
		key     string
		keeping []string
		unseen  []string
	}{{owner, "1", []string{"loan_session_id_fkey"}, nil}, {owner, "2", nil, nil}, {weak, "1", nil, []string{"loan"}}, {weak, "2", nil, []string{"loan"}}} {
		l.db = c.db
		a := l.explain(l.job(l.policy("session", nil)), c.key)
		if !a.Due || !slices.Equal(a.Keeping, c.keeping) || !slices.Equal(a.Unseen, c.unseen) {
			t.Errorf("row %s as %s: %+v", c.key, c.db.server.Role, a)
		}
	}
	l.db = owner
}

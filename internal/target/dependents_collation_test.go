package target

import (
	"testing"
)

// A child in another spelling of the key, which the collation calls the same, is held.
func TestDependentsInAnotherSpelling(t *testing.T) {
	engineIn(t, []Engine{MySQL}, func(l *lab) {
		typ, _ := l.instant()
		l.exec("CREATE TABLE org (name varchar(20) COLLATE utf8mb4_general_ci NOT NULL PRIMARY KEY, at " + typ + " NOT NULL)")
		l.exec("CREATE TABLE post (id bigint NOT NULL PRIMARY KEY, org varchar(20) COLLATE utf8mb4_general_ci, FOREIGN KEY (org) REFERENCES org (name) ON DELETE CASCADE)")
		l.exec("CREATE TABLE mark (id bigint NOT NULL PRIMARY KEY, post bigint, FOREIGN KEY (post) REFERENCES post (id) ON DELETE CASCADE)")
		l.exec("INSERT INTO org VALUES ('abc', '2001-01-01'), ('xyz', '2001-01-01')")
		l.exec("INSERT INTO post VALUES (1, 'ABC'), (2, 'xyz '), (3, NULL)")
		l.exec("INSERT INTO mark VALUES (1, 1), (2, 2), (3, 3)")
		l.place("court", "mark", "id=1")
		got := l.drain(l.job(l.policy("org", auto)), 100)
		t.Log(got.outcomes, got.cascaded, got.rows)
		if ids := l.ids("SELECT id FROM mark ORDER BY id"); len(ids) != 2 || ids[0] != 1 {
			t.Errorf("marks left %v", ids)
		}
		if got.cascaded != 2 {
			t.Errorf("cascaded %d", got.cascaded)
		}
	})
}

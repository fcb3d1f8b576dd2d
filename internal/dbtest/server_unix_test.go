//go:build unix

package dbtest_test

import (
	"testing"

	"curfew.dev/curfew/internal/dbtest"
)

// What a server of one's own had committed is there after a crash, what was open is not, and while it is down it is down.
func TestPostgresServer(t *testing.T) {
	server := dbtest.PostgresServer(t)
	t.Setenv(dbtest.PostgresVar, server.URL)
	target := dbtest.Postgres(t)
	db := dbtest.Open(t, target)
	exec1(t, db, "CREATE TABLE x (id int); INSERT INTO x VALUES (1)")
	open, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer open.Rollback()
	if _, err := open.Exec("INSERT INTO x VALUES (2)"); err != nil {
		t.Fatal(err)
	}
	server.Stop("immediate")
	if err := dbtest.Open(t, target).Ping(); err == nil {
		t.Error("a server that was stopped answers")
	}
	server.Start()
	if n := one[int](t, dbtest.Open(t, target), "SELECT sum(id) FROM x"); n != 1 {
		t.Errorf("after a crash the sum is %d, want 1", n)
	}
	server.Restart("fast")
	if n := one[int](t, dbtest.Open(t, target), "SELECT sum(id) FROM x"); n != 1 {
		t.Errorf("after a restart the sum is %d, want 1", n)
	}
}

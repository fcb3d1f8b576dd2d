package dbtest

import (
	"context"
	"testing"
)

// MariaDB returns the URL of a fresh MariaDB database (utf8mb4,
// utf8mb4_unicode_ci), reached as an administrator: mysql://user:pass@host:port/db.
func MariaDB(t testing.TB) string {
	t.Helper()
	root := server(t, MariaDBVar, "MariaDB")
	name := freshName()
	must(t, root, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci")
	t.Cleanup(func() {
		// Other than on PostgreSQL nothing disconnects a session that holds a
		// metadata lock; lock_wait_timeout turns the wait into an error.
		if err := admin(root, "SET lock_wait_timeout = 20", "DROP DATABASE IF EXISTS "+name); err != nil {
			t.Errorf("dbtest: %v", err)
		}
	})
	return withDatabase(t, root, name, "")
}

// MariaDBUser returns the given database's URL for a new user without any
// rights, and the account for the GRANTs to come, quoted as GRANT wants it. The
// user cannot connect to the database before it has been granted something there.
func MariaDBUser(t testing.TB, target string) (asUser, account string) {
	t.Helper()
	root := server(t, MariaDBVar, "MariaDB")
	user := freshName()
	account = "'" + user + "'@'%'"
	must(t, root, "CREATE USER "+account+" IDENTIFIED BY "+literal(user))
	t.Cleanup(func() {
		if err := admin(root, "DROP USER "+account); err != nil {
			t.Errorf("dbtest: %v", err)
		}
	})
	return withDatabase(t, target, databaseOf(t, target), user), account
}

// MariaDBTimeZone sets the server's default time zone for sessions opened from
// now on, e.g. "+09:00", and puts the old one back with the test. MariaDB has no
// setting per database, so other tests' new sessions get it too: harmless, since
// a program that depends on the server's zone is wrong under the old one as well.
// Tests that use it wait for each other, also across processes.
func MariaDBTimeZone(t testing.TB, zone string) {
	t.Helper()
	root := server(t, MariaDBVar, "MariaDB")
	db, err := Connect(root)
	if err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	db.SetMaxOpenConns(1) // the lock belongs to the connection
	t.Cleanup(func() { db.Close() })
	ctx := context.Background()
	var got int
	if err := db.QueryRowContext(ctx, "SELECT COALESCE(GET_LOCK('curfew_dbtest_time_zone', 600), 0)").Scan(&got); err != nil || got != 1 {
		t.Fatalf("dbtest: wait for the server's time zone: got %d, %v", got, err)
	}
	var old string
	if err := db.QueryRowContext(ctx, "SELECT @@GLOBAL.time_zone").Scan(&old); err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	if _, err := db.ExecContext(ctx, "SET GLOBAL time_zone = "+literal(zone)); err != nil {
		t.Fatalf("dbtest: %v", err)
	}
	t.Cleanup(func() { // runs before the connection, and the lock with it, goes
		if _, err := db.ExecContext(ctx, "SET GLOBAL time_zone = "+literal(old)); err != nil {
			t.Errorf("dbtest: put the server's time zone back: %v", err)
		}
	})
}

package dbtest

import (
	"strings"
	"sync"
	"testing"
)

// PostgresOptions are the properties of a database that a test may want odd.
// The zero value is the server's default time zone and the C.UTF-8 locale.
type PostgresOptions struct {
	// ICULocale makes the default collation an ICU one, e.g. "en-US", whose
	// order of text keys differs from the order of their bytes.
	ICULocale string
	// TimeZone is what every session starts with, e.g. "Asia/Tokyo".
	TimeZone string
	// Template is the URL of a database of this test to copy, collation
	// included. Nobody may be connected to it.
	Template string
}

// rolesOf holds, by database, the roles made for it. A role cannot be dropped
// before the database in which it has rights, so the database's clean-up does it.
var rolesOf = struct {
	sync.Mutex
	m map[string][]string
}{m: map[string][]string{}}

// Postgres returns the URL of a fresh PostgreSQL database, reached as the
// server's superuser. It is dropped with the test, whoever is still connected.
func Postgres(t testing.TB) string {
	t.Helper()
	return PostgresWith(t, PostgresOptions{})
}

// PostgresWith is Postgres for a database with odd properties.
func PostgresWith(t testing.TB, o PostgresOptions) string {
	t.Helper()
	root := server(t, PostgresVar, "PostgreSQL")
	name := freshName()
	create := "CREATE DATABASE " + name
	if o.Template != "" {
		create += " TEMPLATE " + databaseOf(t, o.Template)
	} else {
		create += " TEMPLATE template0 ENCODING 'UTF8' LOCALE 'C.UTF-8'"
	}
	if o.ICULocale != "" {
		create += " LOCALE_PROVIDER icu ICU_LOCALE " + literal(o.ICULocale)
	}
	must(t, root, create)
	t.Cleanup(func() {
		rolesOf.Lock()
		roles := rolesOf.m[name]
		delete(rolesOf.m, name)
		rolesOf.Unlock()
		statements := []string{"DROP DATABASE IF EXISTS " + name + " WITH (FORCE)"}
		for _, r := range roles {
			statements = append(statements, "DROP ROLE "+r)
		}
		if err := admin(root, statements...); err != nil {
			t.Errorf("dbtest: %v", err)
		}
	})
	if o.TimeZone != "" {
		must(t, root, "ALTER DATABASE "+name+" SET timezone = "+literal(o.TimeZone))
	}
	return withDatabase(t, root, name, "")
}

// PostgresRole returns the given database's URL for a new login role without
// any rights but to connect, and the role's name for the GRANTs to come.
// The role goes with the database.
func PostgresRole(t testing.TB, target string) (asRole, role string) {
	t.Helper()
	root := server(t, PostgresVar, "PostgreSQL")
	database := databaseOf(t, target)
	role = freshName()
	must(t, root, "CREATE ROLE "+role+" LOGIN PASSWORD "+literal(role))
	rolesOf.Lock()
	rolesOf.m[database] = append(rolesOf.m[database], role)
	rolesOf.Unlock()
	return withDatabase(t, target, database, role), role
}

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

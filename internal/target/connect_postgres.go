package target

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// pgSettings are set on every connection, as the server prints them back.
//
// row_security off makes PostgreSQL raise an error where a policy would hide rows: otherwise a DELETE sees nothing and
// succeeds. idle_in_transaction_session_timeout ends the transaction of a worker that was stopped between change and commit.
// search_path stays as the role has it. statement_timeout and lock_timeout are each transaction's own matter.
//
// They are set by a statement and not as startup parameters, which PgBouncer refuses. Behind PgBouncer in transaction mode
// only the reported ones (TimeZone, DateStyle, IntervalStyle, standard_conforming_strings) follow us from server to server;
// a transaction that relies on another sets it again with SET LOCAL.
var pgSettings = [...]struct{ name, value string }{
	{"TimeZone", "UTC"},
	{"DateStyle", "ISO, YMD"},
	{"IntervalStyle", "postgres"},
	{"client_encoding", "UTF8"},
	{"standard_conforming_strings", "on"},
	{"transform_null_equals", "off"},
	{"extra_float_digits", "1"},
	{"jit", "off"}, // our statements are short: compiling them takes longer than they do
	{"bytea_output", "hex"},
	{"row_security", "off"},
	{"default_transaction_isolation", "read committed"},
	{"idle_in_transaction_session_timeout", "1min"},
	{"application_name", "curfew"},
}

func postgresConnector(rawURL string) (driver.Connector, error) {
	cfg, err := pgx.ParseConfig(rawURL)
	if err != nil {
		return nil, errURL
	}
	// What the URL says of the settings would be overridden anyway; sent at startup it could fail the connection.
	for _, s := range pgSettings {
		for k := range cfg.RuntimeParams {
			if strings.EqualFold(k, s.name) {
				delete(cfg.RuntimeParams, k)
			}
		}
	}
	// Statements go unnamed: the server plans each for its own values. A plan made for any values would take a page for a third
	// of the table. plan_cache_mode would do that too, and plan the foreign keys' own queries anew for every row deleted.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec
	return stdlib.GetConnector(*cfg, stdlib.OptionAfterConnect(pgSettle), stdlib.OptionResetSession(pgAssert)), nil
}

// pgSettle gives a new connection its settings and refuses it unless they took.
func pgSettle(ctx context.Context, conn *pgx.Conn) error {
	var sb strings.Builder
	sb.WriteString("SELECT current_setting('session_replication_role')")
	for _, s := range pgSettings {
		fmt.Fprintf(&sb, ", set_config('%s', '%s', false)", s.name, s.value)
	}
	res, err := conn.PgConn().Exec(ctx, sb.String()).ReadAll()
	if err != nil {
		return err
	}
	if len(res) != 1 || len(res[0].Rows) != 1 || len(res[0].Rows[0]) != 1+len(pgSettings) {
		return fmt.Errorf("the server does not answer like PostgreSQL")
	}
	row := res[0].Rows[0]
	if role := string(row[0]); role != "origin" {
		return fmt.Errorf("session_replication_role is %s for this role: foreign keys and triggers would not act", role)
	}
	for i, s := range pgSettings {
		if got := string(row[i+1]); got != s.value {
			return fmt.Errorf("setting %s is %q on this connection and cannot be made %q", s.name, got, s.value)
		}
	}
	return nil
}

// pgAssert looks at a connection that comes out of the pool. It costs nothing: the server reports these settings whenever
// they change.
func pgAssert(_ context.Context, conn *pgx.Conn) error {
	for _, s := range pgSettings {
		got := conn.PgConn().ParameterStatus(s.name)
		if got != "" && got != s.value {
			return driver.ErrBadConn
		}
	}
	return nil
}

func (d *DB) postgresServer(ctx context.Context) (Server, error) {
	s := Server{Engine: Postgres}
	var num int
	var oid string
	err := d.SQL.QueryRowContext(ctx, `
		SELECT current_setting('server_version'), current_setting('server_version_num')::int, current_user::text, current_database()::text,
		       pg_is_in_recovery(), (SELECT oid::text FROM pg_database WHERE datname = current_database())`).
		Scan(&s.Version, &num, &s.Role, &s.Database, &s.ReadOnly, &oid)
	if err != nil {
		return Server{}, redact(err)
	}
	s.Major, s.Minor = num/10000, num%10000
	var system string
	err = d.SQL.QueryRowContext(ctx, `SELECT system_identifier::text FROM pg_control_system()`).Scan(&system)
	switch {
	case err == nil:
		s.Identity = "system:" + system + ":" + oid
	case classify(err) == classPermission:
		// Where that function is closed to us, the address of the server has to do.
		err = d.SQL.QueryRowContext(ctx, `
			SELECT coalesce(host(inet_server_addr()), 'local') || ':' || coalesce(inet_server_port(), 0)`).Scan(&system)
		if err != nil {
			return Server{}, redact(err)
		}
		s.Identity = "server:" + system + ":" + oid
	default:
		return Server{}, redact(err)
	}
	return s, nil
}

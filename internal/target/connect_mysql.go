package target

import (
	"context"
	"database/sql/driver"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// mysqlMode is the sql_mode of every connection, so that the policy's SQL means the same whatever the server's is.
//
//   - NO_BACKSLASH_ESCAPES: a text ends at the next single quote, as the policy parser reads it and as PostgreSQL and SQLite
//     do. Otherwise '\' would end one place earlier here than there. LIKE has no escape character then unless ESCAPE names one.
//   - NO_UNSIGNED_SUBTRACTION: "expires - 3600" over an unsigned column is negative for a small value, and not an error that
//     stops every statement which meets it.
//   - NO_ENGINE_SUBSTITUTION: our own tables are InnoDB or are not made.
//
// Left out on purpose: the strict modes (a predicate over a bad value warns and does not sink the DELETE; what we insert
// ourselves is ours to keep in bounds), NO_ZERO_DATE (a stored zero date stays visible as what it is), ANSI_QUOTES and
// PIPES_AS_CONCAT (|| is OR, as everywhere on this engine).
const mysqlMode = "NO_BACKSLASH_ESCAPES,NO_UNSIGNED_SUBTRACTION,NO_ENGINE_SUBSTITUTION"

// mysqlSettings are set on every connection.
//
// READ COMMITTED: under REPEATABLE READ a delete locks gaps, and inserts outside its range time out. sql_auto_is_null would
// make "id IS NULL" find the last inserted row. group_concat_max_len is for the fingerprint.
const mysqlSettings = "SET time_zone = '+00:00', sql_mode = '" + mysqlMode + "', foreign_key_checks = 1, unique_checks = 1, " +
	"sql_safe_updates = 0, sql_auto_is_null = 0, sql_select_limit = DEFAULT, sql_big_selects = 1, autocommit = 1, " +
	"innodb_lock_wait_timeout = 50, group_concat_max_len = 1048576"

type mysqlConnector struct{ driver.Connector }

func newMySQLConnector(rawURL string) (driver.Connector, error) {
	cfg, err := mysqlConfig(rawURL)
	if err != nil {
		return nil, err
	}
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, errURL
	}
	return mysqlConnector{c}, nil
}

// mysqlConfig reads a mysql:// or mariadb:// URL. Only options that say how to reach the server are known; what changes the
// meaning of a statement is not the URL's to decide.
func mysqlConfig(rawURL string) (*mysql.Config, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Opaque != "" {
		return nil, errURL
	}
	cfg := mysql.NewConfig()
	cfg.User = u.User.Username()
	cfg.Passwd, _ = u.User.Password()
	cfg.DBName = strings.Trim(u.Path, "/")
	if cfg.DBName == "" {
		return nil, fmt.Errorf("the url names no database: mysql://user:password@host:port/database")
	}
	host, port := u.Hostname(), u.Port()
	if host == "" {
		host = "127.0.0.1"
	}
	if port == "" {
		port = "3306"
	}
	cfg.Net, cfg.Addr = "tcp", net.JoinHostPort(host, port)
	cfg.Timeout = 10 * time.Second
	cfg.Logger = discardMySQL{} // the driver would write to stderr on its own
	if err := cfg.Apply(mysql.Charset("utf8mb4", "")); err != nil {
		return nil, err
	}
	cfg.ConnectionAttributes = "program_name:curfew"
	return cfg, mysqlOptions(cfg, u.Query())
}

func mysqlOptions(cfg *mysql.Config, options url.Values) error {
	for k, vs := range options {
		v := vs[len(vs)-1]
		var err error
		switch k {
		case "tls":
			cfg.TLSConfig = v
		case "socket":
			cfg.Net, cfg.Addr = "unix", v
		case "timeout":
			cfg.Timeout, err = time.ParseDuration(v)
		case "readTimeout":
			cfg.ReadTimeout, err = time.ParseDuration(v)
		case "writeTimeout":
			cfg.WriteTimeout, err = time.ParseDuration(v)
		case "allowCleartextPasswords":
			cfg.AllowCleartextPasswords = v == "true"
		default:
			return fmt.Errorf("the url has an option %q that is not known: "+
				"tls, socket, timeout, readTimeout, writeTimeout and allowCleartextPasswords are", k)
		}
		if err != nil {
			return fmt.Errorf("option %s of the url is not a duration such as 10s", k)
		}
	}
	return nil
}

type discardMySQL struct{}

func (discardMySQL) Print(...any) {}

// Connect gives a new connection its settings and refuses it unless they took.
func (c mysqlConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := mysqlSettle(ctx, conn); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func mysqlSettle(ctx context.Context, conn driver.Conn) error {
	row, err := connRow(ctx, conn, "SELECT VERSION()")
	if err != nil {
		return err
	}
	statements := []string{mysqlSettings, "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"}
	if isMariaDB(row[0]) {
		// Ends the transaction of a worker that was stopped between change and commit. MySQL has no such setting.
		statements = append(statements, "SET idle_transaction_timeout = 60")
	} else {
		statements = append(statements, "SET sql_mode = CONCAT(@@sql_mode, ',TIME_TRUNCATE_FRACTIONAL')") // as MariaDB does
	}
	ex, ok := conn.(driver.ExecerContext)
	if !ok {
		return fmt.Errorf("driver connection %T cannot execute", conn)
	}
	for _, s := range statements {
		if _, err := ex.ExecContext(ctx, s, nil); err != nil {
			return fmt.Errorf("setting up the session: %w", err)
		}
	}
	row, err = connRow(ctx, conn, `SELECT @@session.time_zone, @@session.foreign_key_checks, @@session.autocommit,
		@@session.sql_mode LIKE '%NO_BACKSLASH_ESCAPES%' AND @@session.sql_mode NOT LIKE '%STRICT%', @@character_set_connection`)
	if err != nil {
		return err
	}
	if got, want := strings.Join(row, " "), "+00:00 1 1 1 utf8mb4"; got != want {
		return fmt.Errorf("session settings (time_zone, foreign_key_checks, autocommit, sql_mode, character set) are %q, not %q", got, want)
	}
	return nil
}

func isMariaDB(version string) bool { return strings.Contains(strings.ToLower(version), "mariadb") }

func (d *DB) mysqlServer(ctx context.Context) (Server, error) {
	s := Server{Engine: MySQL}
	var host string
	var port int
	err := d.SQL.QueryRowContext(ctx, `SELECT VERSION(), CURRENT_USER(), DATABASE(), @@hostname, @@port, @@read_only`).
		Scan(&s.Version, &s.Role, &s.Database, &host, &port, &s.ReadOnly)
	if err != nil {
		return Server{}, redact(err)
	}
	s.MariaDB = isMariaDB(s.Version)
	s.Major, s.Minor = versionNumbers(strings.TrimPrefix(s.Version, "5.5.5-")) // old MariaDB hid behind that prefix
	id, unique := "", "@@server_uuid"
	if s.MariaDB {
		unique = "@@server_uid" // derived from the machine and the port; absent before 10.11
	}
	if err := d.SQL.QueryRowContext(ctx, "SELECT "+unique).Scan(&id); err != nil {
		if !hasCode(err, "1193") { // unknown system variable
			return Server{}, redact(err)
		}
		id = fmt.Sprintf("%s:%d", host, port)
	}
	s.Identity = "server:" + id + ":" + s.Database
	return s, nil
}

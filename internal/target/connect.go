package target

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"modernc.org/sqlite"
)

// OpenOptions are what Open may be told beside the URL.
type OpenOptions struct {
	// MaxConns is how many connections the pool may hold, and how many batches may be at work in the database at once, those of
	// other processes included; 0 means 4. SQLite always has one: it has one writer.
	MaxConns int
	Logger   *slog.Logger
	// Clock replaces the machine's clock, which is SQLite's. The other engines have their own.
	Clock func() time.Time
}

// DB is one governed database: a pool of connections which all have the session settings that curfew's SQL is written
// for, whatever the server, the role or the URL would have them be.
type DB struct {
	Name   string // as the policy file names it
	Engine Engine
	SQL    *sql.DB

	server Server // as it was when the database was opened
	log    *slog.Logger
	path   string // SQLite: the file
	clock  func() time.Time
	seats  int // for batches; 0 where there is no need of them
}

// errURL is deliberately mute about the cause: the parsers quote what they cannot read, and that may be the password.
var errURL = errors.New("the url cannot be read: it has the form postgres://user:password@host:port/database, " +
	"mysql://user:password@host:port/database or sqlite:path; write @ : / ? # % in a password as %40 %3A %2F %3F %23 %25")

// Open connects to the database called name in the policy file and asks the server what it is. A SQLite file must exist.
// No error names a password.
func Open(ctx context.Context, name, rawURL string, opts OpenOptions) (*DB, error) {
	d := &DB{Name: name, log: opts.Logger, clock: opts.Clock}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	scheme, _, _ := strings.Cut(rawURL, ":")
	var connector driver.Connector
	var err error
	conns := cmp.Or(opts.MaxConns, 4)
	switch scheme {
	case "postgres", "postgresql":
		d.Engine = Postgres
		connector, err = postgresConnector(rawURL)
	case "mysql", "mariadb":
		d.Engine = MySQL
		connector, err = newMySQLConnector(rawURL)
	case "sqlite":
		d.Engine = SQLite
		conns = 1
		d.path = strings.TrimPrefix(rawURL, "sqlite:")
		connector, err = newSQLiteConnector(d.path)
	default:
		err = errURL
	}
	if err != nil {
		return nil, fmt.Errorf("database %q: %w", name, err)
	}
	if d.Engine != SQLite {
		d.seats = conns
	}
	d.SQL = sql.OpenDB(connector)
	d.SQL.SetMaxOpenConns(conns)
	d.SQL.SetMaxIdleConns(conns)
	d.SQL.SetConnMaxIdleTime(5 * time.Minute)
	if d.server, err = d.Server(ctx); err != nil {
		d.SQL.Close()
		return nil, fmt.Errorf("cannot open database %q: %w", name, scrub(err, rawURL))
	}
	return d, nil
}

// Close closes the pool.
func (d *DB) Close() error { return d.SQL.Close() }

// Server asks the database what it is now. Its Identity is to be compared before every run: a restored or cloned database
// must not be taken for the one that the ledger knows.
func (d *DB) Server(ctx context.Context) (Server, error) {
	switch d.Engine {
	case Postgres:
		return d.postgresServer(ctx)
	case MySQL:
		return d.mysqlServer(ctx)
	default:
		return d.sqliteServer(ctx)
	}
}

// Now is the database's clock.
func (d *DB) Now(ctx context.Context) (time.Time, error) { return d.clockIn(ctx, d.SQL) }

// clockIn asks over a connection that is open already.
func (d *DB) clockIn(ctx context.Context, c querier) (time.Time, error) {
	if d.clock != nil && d.Engine == SQLite {
		return d.clock().UTC().Truncate(time.Microsecond), nil
	}
	text := map[Engine]string{
		Postgres: `SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')`,
		MySQL:    `SELECT CAST(UTC_TIMESTAMP(6) AS CHAR)`,
		SQLite:   `SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')`,
	}
	var s string
	if err := c.QueryRowContext(ctx, text[d.Engine]).Scan(&s); err != nil {
		return time.Time{}, fmt.Errorf("clock of database %q: %w", d.Name, redact(err))
	}
	t, err := time.Parse("2006-01-02 15:04:05.999999", s)
	if err != nil {
		return time.Time{}, fmt.Errorf("clock of database %q says %q", d.Name, s)
	}
	return t, nil
}

// scrub makes sure that a password of the URL is in no message, whoever wrote it.
func scrub(err error, rawURL string) error {
	err = redact(err)
	u, perr := url.Parse(rawURL)
	if perr != nil {
		return err
	}
	pw, _ := u.User.Password()
	if pw == "" || !strings.Contains(err.Error(), pw) || pw == u.User.Username() {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), pw, "…"))
}

// sqliteSettings are set on every connection. Never journal_mode: it is a property of the user's file, and not ours to
// change. A double-quoted word that names no column is an error here: SQLite would read it as a text, so that the misspelt
// scope "statsu" <> 'active' held for every row.
const sqliteSettings = "mode=rw&_txlock=immediate&_dqs=0&_pragma=busy_timeout(10000)&_pragma=foreign_keys(1)"

type sqliteConnector struct{ driver.Connector }

func newSQLiteConnector(path string) (driver.Connector, error) {
	if err := errors.Join(errRegister, errTruncated); err != nil {
		return nil, err
	}
	if path == "" || strings.HasPrefix(path, ":memory:") {
		return nil, errors.New("the url has no path: it has the form sqlite:path/to/file.db")
	}
	if fi, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("there is no SQLite file %s: curfew does not create a database it is to look after", path)
	} else if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", path)
	}
	escaped := (&url.URL{Path: filepath.ToSlash(path)}).EscapedPath()
	c, err := sqlite.NewConnector("file:" + escaped + "?" + sqliteSettings)
	if err != nil {
		return nil, fmt.Errorf("SQLite file %s: %w", path, err)
	}
	return sqliteConnector{c}, nil
}

// Connect asserts what is silently lost where it is not supported: without foreign keys a delete leaves orphans.
func (c sqliteConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	row, err := connRow(ctx, conn, "PRAGMA foreign_keys")
	if err == nil && (len(row) != 1 || row[0] != "1") {
		err = errors.New("PRAGMA foreign_keys could not be turned on")
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

func (d *DB) sqliteServer(ctx context.Context) (Server, error) {
	s := Server{Engine: SQLite, Identity: fileIdentity(d.path)}
	// Reading the schema proves that the file is a database.
	err := d.SQL.QueryRowContext(ctx, `SELECT sqlite_version() FROM (SELECT count(*) FROM sqlite_master)`).Scan(&s.Version)
	if err != nil {
		return Server{}, redact(err)
	}
	s.Major, s.Minor = versionNumbers(s.Version)
	f, err := os.OpenFile(d.path, os.O_RDWR, 0)
	if err != nil {
		s.ReadOnly = true
		return s, nil
	}
	return s, f.Close()
}

// versionNumbers reads the first two numbers of a version.
func versionNumbers(v string) (major, minor int) {
	if n, _ := fmt.Sscanf(v, "%d.%d", &major, &minor); n == 0 {
		return 0, 0
	}
	return major, minor
}

// connRow runs a query on a bare driver connection and returns its first row as text. It is how a new connection is
// examined before database/sql hands it to anybody.
func connRow(ctx context.Context, conn driver.Conn, query string) ([]string, error) {
	q, ok := conn.(driver.QueryerContext)
	if !ok {
		return nil, fmt.Errorf("driver connection %T cannot query", conn)
	}
	rows, err := q.QueryContext(ctx, query, nil)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	vals := make([]driver.Value, len(rows.Columns()))
	if err := rows.Next(vals); err != nil {
		if err == io.EOF {
			err = sql.ErrNoRows
		}
		return nil, err
	}
	out := make([]string, len(vals))
	for i, v := range vals {
		if b, ok := v.([]byte); ok {
			out[i] = string(b)
		} else {
			out[i] = fmt.Sprint(v)
		}
	}
	return out, nil
}

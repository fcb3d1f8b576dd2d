package stage

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"
)

// Database is the application's own way to its database, which is one of three.
type Database struct {
	DB     *sql.DB
	Engine string // sqlite, postgres or mysql
}

// Open opens the database that an address names. variable is where that comes from, for the message when it is none.
func Open(variable, address string) (Database, error) {
	scheme, rest, _ := strings.Cut(address, ":")
	d, driver, source := Database{Engine: scheme}, "", address
	switch scheme {
	case "sqlite":
		driver, source = "sqlite", "file:"+rest+"?_txlock=immediate&_pragma=busy_timeout(30000)&_pragma=foreign_keys(1)&_pragma=journal_mode(WAL)"
	case "postgres", "postgresql":
		driver, d.Engine = "pgx", "postgres"
	case "mysql", "mariadb":
		driver, d.Engine = "mysql", "mysql"
		u, err := url.Parse(address)
		if err != nil {
			return d, errors.New(variable + " is not a URL like mysql://user:password@host:3306/database")
		}
		conf := mysql.NewConfig()
		conf.User = u.User.Username()
		conf.Passwd, _ = u.User.Password()
		conf.Net, conf.Addr, conf.DBName = "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
		source = conf.FormatDSN()
	default:
		return d, errors.New(variable + " must begin with postgres:// or mysql://; without it the example makes a SQLite file")
	}
	var err error
	d.DB, err = sql.Open(driver, source)
	return d, err
}

// SQL writes ? as the database wants it.
func (d Database) SQL(text string) string {
	if d.Engine != "postgres" {
		return text
	}
	var b strings.Builder
	n := 0
	for _, r := range text {
		if r == '?' {
			n++
			b.WriteString("$" + strconv.Itoa(n))
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// At is an instant as the tables of the examples have it: seconds since 1970 on SQLite.
func (d Database) At(t time.Time) any {
	if d.Engine == "sqlite" {
		return t.Unix()
	}
	return t.UTC()
}

// Count is the number that a query gives.
func (d Database) Count(ctx context.Context, query string, args ...any) (int64, error) {
	var n int64
	err := d.DB.QueryRowContext(ctx, d.SQL(query), args...).Scan(&n)
	return n, err
}

// Exec executes a statement.
func (d Database) Exec(ctx context.Context, statement string, args ...any) error {
	_, err := d.DB.ExecContext(ctx, d.SQL(statement), args...)
	return err
}

// Own begins the names of curfew's own tables there.
func (d Database) Own() string {
	if d.Engine == "postgres" {
		return "curfew."
	}
	return "curfew_"
}

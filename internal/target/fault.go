package target

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// An errClass says what to do about an error of a governed database.
type errClass string

const (
	classNone             errClass = ""                  // no error
	classRetryable        errClass = "retryable"         // serialisation failure, deadlock, busy: the same again may work
	classLockTimeout      errClass = "lock timeout"      // waited for a row as long as we were told to
	classStatementTimeout errClass = "statement timeout" // too much for one statement, or cancelled by an administrator
	classConstraint       errClass = "constraint"        // the database refused a row
	classRaised           errClass = "raised"            // a trigger refused a row
	classPermission       errClass = "permission"        // our role may not
	classConnection       errClass = "connection"        // the connection is lost or cannot be had
	classUndefined        errClass = "undefined"         // a table or column is not there
	classCancelled        errClass = "cancelled"         // our own context was cancelled
	classOther            errClass = "other"
)

// A Fault is a database error without the data in it. A driver's error may quote a row: PostgreSQL's detail and MySQL's
// "Duplicate entry 'x'" do. So a Fault does not unwrap to it, and its message is made of what can be told.
type Fault struct {
	Class      errClass
	Engine     Engine
	Code       string // SQLSTATE, MySQL error number or SQLite extended result code; "" when no database spoke
	Constraint string // the constraint that refused, where the engine names it
	Message    string // safe to show
	cancelled  error  // context.Canceled or context.DeadlineExceeded
}

func (f *Fault) Error() string {
	if f.Code == "" {
		return f.Message
	}
	names := map[Engine]string{Postgres: "SQLSTATE", MySQL: "error", SQLite: "SQLite code"}
	return fmt.Sprintf("%s (%s %s)", f.Message, names[f.Engine], f.Code)
}

// Unwrap lets errors.Is see a cancelled context, and nothing of the driver.
func (f *Fault) Unwrap() error { return f.cancelled }

// classify says what kind of error a governed database gave.
func classify(err error) errClass {
	if err == nil {
		return classNone
	}
	return faultOf(err).Class
}

// redact returns an error that may be shown and logged. What it cannot take apart it leaves as it is: only drivers quote data.
func redact(err error) error {
	if err == nil {
		return nil
	}
	f := faultOf(err)
	if f.Class == classOther && f.Code == "" {
		return err
	}
	return f
}

// mayQuote stands for a text that cannot be shown; the code beside it says what it was.
const mayQuote = "the database reports an error whose text may quote data"

// hasCode says whether the database gave this error code.
func hasCode(err error, code string) bool { return err != nil && faultOf(err).Code == code }

// faultOf takes an error apart. It never returns nil for an error.
func faultOf(err error) *Fault {
	var (
		f  *Fault
		pg *pgconn.PgError
		my *mysql.MySQLError
		li *sqlite.Error
	)
	switch {
	case errors.As(err, &f):
		return f
	case errors.As(err, &pg):
		f = postgresFault(pg)
	case errors.As(err, &my):
		f = mysqlFault(my)
	case errors.As(err, &li):
		f = sqliteFault(li)
	default:
		f = &Fault{Class: classOther, Message: err.Error()}
		if lostConnection(err) {
			f.Class = classConnection
		}
	}
	// When our own context ended, that is what happened, whatever the driver made of it. A deadline is how SQLite, which
	// has no statement timeout, is told to give up.
	switch {
	case errors.Is(err, context.Canceled):
		f.Class, f.cancelled = classCancelled, context.Canceled
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		f.Class, f.cancelled = classStatementTimeout, context.DeadlineExceeded
	}
	return f
}

func lostConnection(err error) bool {
	var ne net.Error
	var ce *pgconn.ConnectError
	return errors.Is(err, driver.ErrBadConn) || errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, sql.ErrConnDone) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &ne) || errors.As(err, &ce) ||
		pgconn.SafeToRetry(err) // "conn closed": found before anything was sent
}

// postgresFault reads fields only; a message may be translated, and quotes values in the classes 22, 23 and P0.
func postgresFault(e *pgconn.PgError) *Fault {
	f := &Fault{Class: classOther, Engine: Postgres, Code: e.Code, Constraint: e.ConstraintName}
	class := e.Code[:min(2, len(e.Code))]
	switch class {
	case "40":
		f.Class = classRetryable
	case "23":
		f.Class = classConstraint
	case "08", "28", "53":
		f.Class = classConnection
	case "P0":
		f.Class = classRaised
	}
	switch e.Code {
	case "55P03":
		f.Class = classLockTimeout
	case "57014":
		f.Class = classStatementTimeout
	case "42501":
		f.Class = classPermission
	case "42703", "42P01", "3F000":
		f.Class = classUndefined
	case "57P01", "57P02", "57P03", "57P04", "57P05", "25P03", "25P04":
		f.Class = classConnection
	}
	if e.Code == "0A000" && e.Routine == "RevalidateCachedQuery" { // "cached plan must not change result type"
		f.Class = classRetryable // the table was altered; the driver has dropped the statement and will prepare it anew
	}
	if e.Routine == "exec_stmt_raise" { // RAISE with an SQLSTATE of its own
		f.Class = classRaised
	}
	switch {
	case f.Class == classRaised:
		f.Message = "a trigger of the database raised an error"
	case class == "23" && e.ConstraintName != "":
		f.Message = fmt.Sprintf("constraint %s refused it", e.ConstraintName)
		if e.TableName != "" {
			f.Message = fmt.Sprintf("constraint %s of table %s refused it", e.ConstraintName, e.TableName)
		}
	case class == "23" && e.ColumnName != "":
		f.Message = fmt.Sprintf("column %s may not be NULL", e.ColumnName)
	case strings.Contains("08 25 26 28 40 42 3D 3F 53 54 55 57 58 0A", class):
		f.Message = e.Message // about the statement, the server or the connection: never about a row's values
	default:
		f.Message = mayQuote
	}
	return f
}

func mysqlFault(e *mysql.MySQLError) *Fault {
	f := &Fault{Class: classOther, Engine: MySQL, Code: strconv.Itoa(int(e.Number))}
	shown := false // whether the server's text is about the statement and never about values
	switch e.Number {
	case 1213, 1020, 1412, 1615, 3101: // deadlock, record changed since read, table definition changed, re-prepare, group replication
		f.Class = classRetryable
	case 1205, 3572: // lock wait timeout, NOWAIT
		f.Class, shown = classLockTimeout, true
	case 3024, 1969, 1317: // max_execution_time, max_statement_time, KILL QUERY
		f.Class, shown = classStatementTimeout, true
	case 1451, 1452, 1216, 1217, 1761, 1762, 1048, 1062, 1586, 3819, 4025:
		f.Class = classConstraint
	case 1644:
		f.Class = classRaised
	case 1044, 1045, 1142, 1143, 1227, 1370, 1290, 1792, 1836:
		f.Class, shown = classPermission, true
	case 1040, 1053, 1077, 1079, 1152, 1158, 1159, 1160, 1161, 1184, 1203, 1226, 1927, 4031:
		f.Class, shown = classConnection, true
	case 1054, 1146, 1051, 1049, 1109, 1176: // 1176: an index named in FORCE INDEX
		f.Class, shown = classUndefined, true
	case 1064, 1193, 1305, 1665, 1234, 1231, 1286:
		shown = true
	}
	if string(e.SQLState[:]) == "45000" { // SIGNAL with a number of its own
		f.Class, shown = classRaised, false
	}
	switch {
	case shown:
		f.Message = e.Message
	case f.Class == classRaised:
		f.Message = "a trigger of the database raised an error"
	case f.Class == classConstraint:
		f.Constraint = mysqlConstraint(e)
		f.Message = "a constraint refused it"
		if f.Constraint != "" {
			f.Message = fmt.Sprintf("constraint %s refused it", f.Constraint)
		}
	case f.Class == classRetryable:
		f.Message = "the transaction lost against another one"
	default:
		f.Message = mayQuote
	}
	return f
}

// mysqlConstraint reads the constraint's name from a message, the only place where the server puts it:
// (`db`.`t`, CONSTRAINT `name` FOREIGN KEY …) for foreign keys, CONSTRAINT `name` failed for … for MariaDB's checks, and
// Duplicate entry 'a value' for key 'name' (MySQL writes 'table.name').
func mysqlConstraint(e *mysql.MySQLError) string {
	switch e.Number {
	case 1062, 1586:
		const before = "' for key '"
		i := strings.LastIndex(e.Message, before)
		name, ok := strings.CutSuffix(e.Message[max(i, 0):], "'")
		if i < 0 || !ok {
			return ""
		}
		name = name[len(before):]
		return name[strings.LastIndexByte(name, '.')+1:]
	case 1451, 1452, 4025:
	default:
		return ""
	}
	_, rest, _ := strings.Cut(e.Message, "CONSTRAINT `")
	name, _, ok := strings.Cut(rest, "`")
	if !ok {
		return ""
	}
	return name
}

// sqliteFKMessage is what SQLite says for a foreign key, with the code of a trigger when the rule is RESTRICT: it enforces
// that rule with a trigger of its own. No code tells the two apart.
const sqliteFKMessage = "FOREIGN KEY constraint failed"

func sqliteFault(e *sqlite.Error) *Fault {
	f := &Fault{Class: classOther, Engine: SQLite, Code: strconv.Itoa(e.Code()), Message: mayQuote}
	text := e.Error()
	switch e.Code() & 0xff {
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		f.Class, f.Message = classRetryable, "the database file is locked by another process"
	case sqlite3.SQLITE_INTERRUPT:
		f.Class, f.Message = classStatementTimeout, "the statement was interrupted"
	case sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_READONLY:
		f.Class, f.Message = classPermission, "the database file may not be written"
	case sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR:
		f.Class, f.Message = classConnection, "the database file cannot be read or written"
	case sqlite3.SQLITE_FULL:
		f.Message = "the disk is full"
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		f.Message = "the file is damaged or is not a SQLite database"
	case sqlite3.SQLITE_SCHEMA:
		f.Class, f.Message = classRetryable, "the schema changed"
	case sqlite3.SQLITE_CONSTRAINT:
		f.Class, f.Message = classConstraint, "a constraint refused it"
		switch {
		case strings.Contains(text, sqliteFKMessage):
			f.Message = "a foreign key refused it"
		case e.Code() == sqlite3.SQLITE_CONSTRAINT_TRIGGER:
			f.Class, f.Message = classRaised, "a trigger of the database raised an error"
		case e.Code() == sqlite3.SQLITE_CONSTRAINT_NOTNULL, e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE, e.Code() == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY:
			f.Message = text // names the column
		}
	case sqlite3.SQLITE_ERROR:
		// The code of everything that is wrong with a statement; the words are all there is.
		if strings.Contains(text, "no such table") || strings.Contains(text, "no such column") {
			f.Class, f.Message = classUndefined, text
		} else if strings.Contains(text, "syntax error") || strings.Contains(text, "no such function") {
			f.Message = text
		}
	}
	return f
}

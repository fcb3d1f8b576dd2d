package target

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/internal/dbtest"
)

const canary = "canary-4711" // a value that no message may carry

// Errors as the engines really give them, and what is made of them.
func TestFaults(t *testing.T) {
	eachEngine(t, func(t *testing.T, e Engine) {
		text := map[Engine]string{Postgres: "text", MySQL: "varchar(40)", SQLite: "text"}[e]
		d := arrange(t, e,
			`CREATE TABLE p (id `+text+` NOT NULL PRIMARY KEY, n integer NOT NULL, CONSTRAINT p_positive CHECK (n > 0))`,
			`CREATE TABLE plain (id integer NOT NULL PRIMARY KEY, p_id `+text+`, CONSTRAINT plain_p FOREIGN KEY (p_id) REFERENCES p (id))`,
			`CREATE TABLE strict_kid (id integer NOT NULL PRIMARY KEY, p_id `+text+`, CONSTRAINT strict_p FOREIGN KEY (p_id) REFERENCES p (id) ON DELETE RESTRICT)`,
			`INSERT INTO p VALUES ('`+canary+`', 1), ('b-`+canary+`', 1), ('c-`+canary+`', 1)`,
			`INSERT INTO plain VALUES (1, '`+canary+`')`, `INSERT INTO strict_kid VALUES (1, 'b-`+canary+`')`,
		)
		raise := map[Engine][]string{
			Postgres: {`CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''not %'', OLD.id USING ERRCODE = ''XX123''; END'`,
				`CREATE TRIGGER no BEFORE DELETE ON p FOR EACH ROW WHEN (OLD.id LIKE 'c-%') EXECUTE FUNCTION no()`},
			MySQL:  {`CREATE TRIGGER no BEFORE DELETE ON p FOR EACH ROW BEGIN IF OLD.id LIKE 'c-%' THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '` + canary + `', MYSQL_ERRNO = 1999; END IF; END`},
			SQLite: {`CREATE TRIGGER no BEFORE DELETE ON p WHEN OLD.id LIKE 'c-%' BEGIN SELECT RAISE(ABORT, '` + canary + `'); END`},
		}[e]
		for _, s := range raise {
			if _, err := d.SQL.Exec(s); err != nil {
				t.Fatal(err)
			}
		}
		names := e != SQLite // which does not say what refused
		cases := []struct {
			name, stmt string
			class      errClass
			constraint string
		}{
			{"no action", `DELETE FROM p WHERE id = '` + canary + `'`, classConstraint, "plain_p"},
			{"restrict", `DELETE FROM p WHERE id = 'b-` + canary + `'`, classConstraint, "strict_p"},
			{"raised", `DELETE FROM p WHERE id = 'c-` + canary + `'`, classRaised, ""},
			{"duplicate", `INSERT INTO p VALUES ('` + canary + `', 1)`, classConstraint, map[Engine]string{Postgres: "p_pkey", MySQL: "PRIMARY"}[e]},
			{"check", `UPDATE p SET n = -4711 WHERE id = '` + canary + `'`, classConstraint, "p_positive"},
			{"null", `UPDATE p SET n = NULL WHERE id = '` + canary + `'`, classConstraint, map[Engine]string{MySQL: "p_positive"}[e]},
			{"child", `INSERT INTO plain VALUES (9, 'x-` + canary + `')`, classConstraint, "plain_p"},
			{"column", `SELECT missing_one FROM p`, classUndefined, ""},
			{"table", `SELECT 1 FROM missing_one`, classUndefined, ""},
			{"syntax", `SELECT FROM WHERE`, classOther, ""},
		}
		for _, c := range cases {
			t.Run(c.name, func(t *testing.T) {
				_, err := d.SQL.Exec(c.stmt)
				if err == nil {
					t.Fatal("no error")
				}
				f := faultOf(fmt.Errorf("wrapped: %w", err))
				if f.Class != c.class || f.Code == "" || names && f.Constraint != c.constraint {
					t.Errorf("%v is %+v, want class %q, constraint %q", err, f, c.class, c.constraint)
				}
				safe := redact(fmt.Errorf("delete %s: %w", canary, err))
				if strings.Contains(safe.Error(), "4711") || !strings.Contains(safe.Error(), f.Code) {
					t.Errorf("redacted: %v", safe)
				}
				if classify(safe) != c.class || classify(fmt.Errorf("batch: %w", safe)) != c.class {
					t.Errorf("%v lost its class", safe)
				}
			})
		}
	})
}

func TestFaultDeferred(t *testing.T) {
	d := arrange(t, Postgres,
		`CREATE TABLE p (id int PRIMARY KEY)`, `INSERT INTO p VALUES (1)`,
		`CREATE TABLE k (p_id int CONSTRAINT k_p REFERENCES p DEFERRABLE INITIALLY DEFERRED)`, `INSERT INTO k VALUES (1)`)
	tx, err := d.SQL.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(`DELETE FROM p`); err != nil {
		t.Fatal(err)
	}
	if f := faultOf(tx.Commit()); f.Class != classConstraint || f.Constraint != "k_p" {
		t.Errorf("at commit: %+v", f)
	}
}

// Two transactions in each other's way.
func TestFaultLocks(t *testing.T) {
	setup := []string{`CREATE TABLE p (id integer NOT NULL PRIMARY KEY, n integer)`, `INSERT INTO p VALUES (1, 0), (2, 0)`}
	hold := func(t *testing.T, d *DB) *sql.Tx {
		t.Helper()
		tx, err := d.SQL.Begin()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tx.Rollback() })
		if _, err := tx.Exec(`UPDATE p SET n = 1 WHERE id = 1`); err != nil {
			t.Fatal(err)
		}
		return tx
	}
	cases := []struct {
		name  string
		e     Engine
		set   string
		stmt  string
		class errClass
	}{
		{"lock_timeout", Postgres, `SET lock_timeout = '50ms'`, `DELETE FROM p WHERE id = 1`, classLockTimeout},
		{"nowait", Postgres, ``, `SELECT * FROM p WHERE id = 1 FOR UPDATE NOWAIT`, classLockTimeout},
		{"statement_timeout", Postgres, `SET statement_timeout = '50ms'`, `SELECT pg_sleep(10)`, classStatementTimeout},
		{"lock_wait_timeout", MySQL, `SET innodb_lock_wait_timeout = 0`, `DELETE FROM p WHERE id = 1`, classLockTimeout},
		{"nowait", MySQL, ``, `SELECT * FROM p WHERE id = 1 FOR UPDATE NOWAIT`, classLockTimeout},
		{"max_statement_time", MySQL, `SET max_statement_time = 0.05`, `SELECT COUNT(*) FROM seq_1_to_1000000 a, seq_1_to_1000000 b`, classStatementTimeout},
	}
	for _, c := range cases {
		t.Run(string(c.e)+"/"+c.name, func(t *testing.T) {
			d := arrange(t, c.e, setup...)
			hold(t, d)
			conn, err := d.SQL.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if c.set != "" {
				if _, err := conn.ExecContext(t.Context(), c.set); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := conn.ExecContext(t.Context(), c.stmt); classify(err) != c.class {
				t.Errorf("%v is %q, want %q", err, classify(err), c.class)
			}
		})
	}
	t.Run("sqlite/busy", func(t *testing.T) {
		path := dbtest.SQLite(t)
		execAll(t, "sqlite:"+path, setup...)
		hold(t, openDB(t, "sqlite:"+path))
		d := openDB(t, "sqlite:"+path)
		if _, err := d.SQL.Exec(`PRAGMA busy_timeout = 20`); err != nil {
			t.Fatal(err)
		}
		if _, err := d.SQL.Exec(`DELETE FROM p WHERE id = 1`); classify(err) != classRetryable {
			t.Errorf("%v is %q", err, classify(err))
		}
	})
}

func TestFaultDeadlock(t *testing.T) {
	for _, e := range []Engine{Postgres, MySQL} {
		t.Run(string(e), func(t *testing.T) {
			d := arrange(t, e, `CREATE TABLE p (id integer NOT NULL PRIMARY KEY, n integer)`, `INSERT INTO p VALUES (1, 0), (2, 0)`)
			var txs [2]*sql.Tx
			for i := range txs {
				tx, err := d.SQL.Begin()
				if err != nil {
					t.Fatal(err)
				}
				defer tx.Rollback()
				if _, err := tx.Exec(fmt.Sprintf(`UPDATE p SET n = 1 WHERE id = %d`, i+1)); err != nil {
					t.Fatal(err)
				}
				txs[i] = tx
			}
			errs := make(chan error, 2)
			for i, tx := range txs {
				go func() {
					_, err := tx.Exec(fmt.Sprintf(`UPDATE p SET n = 2 WHERE id = %d`, 2-i))
					if err != nil {
						tx.Rollback() // lets the other one go on
					}
					errs <- err
				}()
			}
			var classes []string
			for range 2 {
				classes = append(classes, string(classify(<-errs)))
			}
			if got := strings.Join(classes, ""); got != string(classRetryable) {
				t.Errorf("classes %q, want one retryable", classes)
			}
		})
	}
}

func TestFaultPermission(t *testing.T) {
	pg := dbtest.Postgres(t)
	execAll(t, pg, `CREATE TABLE p (id int PRIMARY KEY)`)
	asRole, _ := dbtest.PostgresRole(t, pg)
	my := dbtest.MariaDB(t)
	execAll(t, my, `CREATE TABLE p (id int PRIMARY KEY)`, `CREATE TABLE q (id int PRIMARY KEY)`)
	asUser, account := dbtest.MariaDBUser(t, my)
	execAll(t, my, `GRANT SELECT ON p TO `+account)
	for _, u := range []string{asRole, asUser} {
		d := openDB(t, u)
		if _, err := d.SQL.Exec(`DELETE FROM p`); classify(err) != classPermission {
			t.Errorf("%v is %q", err, classify(err))
		}
	}
}

func TestFaultConnection(t *testing.T) {
	for _, e := range []Engine{Postgres, MySQL} {
		t.Run(string(e), func(t *testing.T) {
			d := arrange(t, e)
			conn, err := d.SQL.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			var id int
			ask, kill := `SELECT pg_backend_pid()`, `SELECT pg_terminate_backend(%d)`
			if e == MySQL {
				ask, kill = `SELECT CONNECTION_ID()`, `KILL %d`
			}
			if err := conn.QueryRowContext(t.Context(), ask).Scan(&id); err != nil {
				t.Fatal(err)
			}
			if _, err := d.SQL.Exec(fmt.Sprintf(kill, id)); err != nil {
				t.Fatal(err)
			}
			// The server may need a moment to close it; the first error is the one that counts.
			for err == nil {
				_, err = conn.ExecContext(t.Context(), `SELECT 1`)
			}
			if classify(err) != classConnection {
				t.Errorf("%v is %q", err, classify(err))
			}
		})
	}
	if d, err := Open(t.Context(), "x", "postgres://127.0.0.1:1/x", OpenOptions{}); err == nil {
		d.Close()
		t.Error("opened")
	} else if classify(err) != classConnection {
		t.Errorf("%v is %q", err, classify(err))
	}
}

func TestFaultContext(t *testing.T) {
	slow := map[Engine]string{
		Postgres: `SELECT pg_sleep(20)`, MySQL: `SELECT SLEEP(20)`,
		SQLite: `WITH RECURSIVE s(v) AS (SELECT 1 UNION ALL SELECT v + 1 FROM s) SELECT count(*) FROM s`,
	}
	eachEngine(t, func(t *testing.T, e Engine) {
		d := arrange(t, e)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		var x any
		err := d.SQL.QueryRowContext(ctx, slow[e]).Scan(&x)
		if classify(err) != classStatementTimeout || !errors.Is(redact(err), context.DeadlineExceeded) {
			t.Errorf("deadline: %v is %q", err, classify(err))
		}
		ctx, cancel = context.WithCancel(t.Context())
		cancel()
		err = d.SQL.QueryRowContext(ctx, slow[e]).Scan(&x)
		if classify(err) != classCancelled || !errors.Is(redact(err), context.Canceled) {
			t.Errorf("cancelled: %v is %q", err, classify(err))
		}
	})
}

func TestRedactLeavesOthers(t *testing.T) {
	mine := errors.New("mine")
	if got := redact(fmt.Errorf("about: %w", mine)); !errors.Is(got, mine) {
		t.Errorf("redact = %v", got)
	}
	if redact(nil) != nil || classify(nil) != classNone || hasCode(nil, "") {
		t.Error("nil is no error")
	}
}

package target

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/policy"
)

// hostileConditions are texts that an operator could write, by mistake or in the belief that a policy is a harmless place,
// and each of which would reach past its own end in a program that pastes it into a statement.
var hostileConditions = []string{
	// What ends the condition around it.
	"1=1) OR (1=1", "state = 'open') OR (1=1", "x) OR (1=1", "1=1) OR 1=1 --", "1=1)) OR ((1=1", ") OR (1=1", "(1=1))", "1=1)",
	"1=1) --", "1=1) OR TRUE #", "1=1) /*", "state = 'open'))--", "id = 1)\nOR (id > 0", "COALESCE(id, 1)) > 0 OR (1=1",
	// Comments.
	"state = 'open' -- remark", "state = 'open' --", "1=1 --\n", "1=1 /* AND */", "1=1 /* unclosed", "1=1 */ OR /* 1=1",
	"1=1 /* a /* nested */ b */", "1=1 /* a /* nested */", "1=1 # remark", "#1=1", "--1=1", "/**/1=1", "1=1/**/", "1=1 /*! OR 1=1 */",
	"1=1 /*!50000 OR 1=1 */", "1=1 /*M! OR 1=1 */", "1=1 /*!99999 ) OR (1=1 */", "1=1 --x\r", "1 - -1 = 2", "1--1 = 2", "1 --1 = 2",
	// Statements of their own.
	"1=1; DELETE FROM victim", "1=1; DROP TABLE victim; --", ";", "1=1;", "id = 1; SELECT 1", "1=1 RETURNING id", "1=1 UNION SELECT 1",
	"id IN (DELETE FROM victim RETURNING id)", "EXISTS (WITH d AS (DELETE FROM victim RETURNING id) SELECT 1 FROM d)",
	"1=1 INTO OUTFILE 'x'", "1=1 FOR UPDATE", "1=1 ORDER BY id", "1=1 LIMIT 1", "1=1 LIMIT 0 OFFSET 5", "1=1 GROUP BY id", "1=1 HAVING 1=1",
	"SELECT 1", "SELECT TRUE", "VALUES (1)", "TABLE victim", "(SELECT count(*) FROM victim) > 0",
	// Quotes that one engine closes and another does not.
	"state = 'open", "state = 'it''s' OR 'a' = 'a'", "state = '' OR '1'='1'", "state = 'a''", "state = 'a''' OR 1=1", "'", "''", "'''", `"`, "`", "``",
	`state = "open" OR "1" = "1"`, `"state" = 'open' OR 1=1`, `"state' = 'open" OR 1=1`, "`state` = 'open' OR 1=1", "`state = 'open'", "`state' = '`",
	"[state] = 'open' OR 1=1", "[state) OR (1=1]", "[state = 'open'", "state] = 1", "[a'] OR (1=1) OR ['b]", `state = 'a"' OR "id" > 0 OR state = '"'`,
	`state = E'a\' OR 1=1 --'`, `state = E'open' OR 1=1`, `state = 'a\' OR 1=1 --'`, `state = 'a\\' OR 1=1`, `state = "a\" OR 1=1 --"`, `\`, "state = N'open' OR 1=1",
	"state = _utf8'open' OR 1=1", "state = U&'open' OR 1=1", "state = B'1' OR 1=1", "state = X'6f70656e' OR 1=1", "state = q'[open]' OR 1=1",
	"state = $$open$$ OR 1=1", "state = $x$ ) OR (1=1 $x$", "state = $$ OR 1=1", "$1 = $1", "state = 'x' AND $2 IS NULL",
	"state = ‘open’ OR 1=1", "state = “open” OR 1=1", "state ＝ 'open'", "state = ＇open＇ OR 1=1", "1=1\u00a0OR\u00a01=1", "1=1\u2028OR 1=1", "state = 'open'\u202e", "1=1\u0000", "1=1\x1a OR 1=1", "1=1 ；", "（1=1） OR （1=1）",
	// Bound values.
	"state = ?", "id = ? OR 1=1", "?", "note ? 'a' OR 1=1", "id = :id", "id = @id OR 1=1", "id = @@version", "(@x := 1) = 1", "id = ?1", "id = {fn now()}",
	// Precedence.
	"1=1 OR", "1=1 OR 1=1", "OR 1=1", "TRUE", "TRUE OR TRUE", "NOT FALSE", "NOT", "state = 'open' OR TRUE", "state = 'open' AND", "AND 1=1", "1", "2 > 1 XOR FALSE",
	"1=1 || 1=1", "state = 'open' OR state <> 'open' OR state IS NULL", "id = id", "NOT (id < 0)", "id BETWEEN 0 AND", "1=1 OR NOT", "NULL", "NULL IS NULL", "id, 1", "(1, 1)", "(1=1), (1=1)", "CASE WHEN 1=1 THEN TRUE END",
	"CASE WHEN 1=1 THEN", "END", "state LIKE '%'", "state LIKE '%--%' OR 1=1", "state LIKE '%' ESCAPE '!'", "id = 1 COLLATE nocase", "1=1 IS NOT TRUE", "EXISTS (SELECT 1)", "id IN (SELECT id FROM t)", "at IS NOT NULL OR at IS NULL",
	"id = 1 AS x", "t.id > 0 OR (SELECT 1) = 1", "1=1 AND at > at OR 1=1", "id IN (1, 2, 3, 11, 12)", "id::text = '1' OR 1=1", "1=1::boolean",
	// The clock.
	"at < now()", "at < CURRENT_TIMESTAMP OR 1=1", "at < '2999-01-01'", "pg_sleep(0) IS NULL OR 1=1",
}

// hostileTable has rows 1 to 6 long overdue, rows 11 to 16 not due, and a table beside it that is nobody's business.
func (l *lab) hostileTable() (restore func()) {
	typ, _ := l.instant()
	l.exec("CREATE TABLE t (id int NOT NULL PRIMARY KEY, at " + typ + " NOT NULL, secs bigint NOT NULL, state varchar(20), note varchar(20))")
	l.exec("CREATE TABLE victim (id int NOT NULL PRIMARY KEY)")
	l.exec("INSERT INTO victim VALUES (1), (2), (3)")
	var rows []string
	for i := range 6 {
		state := []string{"'open'", "'closed'", "NULL"}[i%3]
		old, young := asOf.Add(-time.Duration(i+1)*time.Hour), asOf.Add(time.Duration(i)*time.Hour)
		rows = append(rows, fmt.Sprintf("(%d, %s, %d, %s, NULL)", i+1, l.lit(old), old.Unix(), state),
			fmt.Sprintf("(%d, %s, %d, %s, '')", i+11, l.lit(young), young.Unix(), state))
	}
	insert := "INSERT INTO t VALUES " + strings.Join(rows, ", ")
	l.exec(insert)
	return func() { l.exec("DELETE FROM t"); l.exec(insert) }
}

var hostileIDs = []int{1, 2, 3, 4, 5, 6, 11, 12, 13, 14, 15, 16}

// attack runs a policy as a program would that did not look at its text, and returns the ids that went.
func (l *lab) attack(p *policy.Policy) (gone []int, err error) {
	l.Helper()
	ctx, cancel := context.WithTimeout(l.Context(), time.Minute)
	defer cancel()
	tab, err := l.db.Inspect(ctx, "t")
	if err != nil {
		l.Fatal(err)
	}
	l.seq++
	run := fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, l.Name(), l.seq)))
	j, err := NewJob(l.db, JobOptions{Policy: p, Table: tab, AsOf: asOf, Cutoff: asOf, Run: run, Keys: l.keys})
	if err != nil {
		return nil, err
	}
	var at []byte
	for {
		page, perr := j.Page(ctx, at, 4)
		if perr != nil {
			err = perr
			break
		}
		if page.Batch != nil {
			w := l.work(page.Batch)
			w.Key = append(w.Key[:24], fmt.Append(nil, l.seq)...) // another run, another key
			if _, err = j.Execute(ctx, asOf, w); err != nil {
				break
			}
		}
		if at = page.Cursor; page.Done {
			break
		}
	}
	left := l.ids("SELECT id FROM t ORDER BY id")
	for _, id := range hostileIDs {
		if !slices.Contains(left, id) {
			gone = append(gone, id)
		}
	}
	return gone, err
}

// Whatever a condition says: it is refused, or the database refuses it and nothing is changed, or the cutoff still rules.
func TestHostileConditions(t *testing.T) {
	if len(hostileConditions) < 80 {
		t.Fatalf("only %d texts", len(hostileConditions))
	}
	onEach(t, func(l *lab) {
		restore := l.hostileTable()
		var refused, failed, ran int
		for _, text := range hostileConditions {
			if policy.CheckSQL(text) != nil {
				refused++
				continue
			}
			for _, edit := range []func(*policy.Policy){
				func(p *policy.Policy) { p.Where = text },
				func(p *policy.Policy) { p.Unless = text },
				func(p *policy.Policy) { p.Where, p.Unless, p.Trigger.Null = text, text, policy.NullDue },
			} {
				p := l.policy("t", edit)
				gone, err := l.attack(p)
				switch {
				case err != nil && len(gone) > 0:
					l.Errorf("where %q unless %q: %v, and rows %v went before that", p.Where, p.Unless, err, gone)
				case err != nil:
					failed++
				default:
					ran++
				}
				if len(gone) > 0 && gone[len(gone)-1] > 6 {
					l.Errorf("where %q unless %q: rows that were not due went: %v", p.Where, p.Unless, gone)
				}
				if n := l.ids("SELECT count(*) FROM victim")[0]; n != 3 {
					l.Fatalf("where %q unless %q: another table has %d rows left of 3", p.Where, p.Unless, n)
				}
				if len(gone) > 0 {
					restore()
				}
			}
		}
		// Each of the three ways is taken, or this test shows nothing.
		l.Logf("%d texts: %d refused, %d executions failed, %d ran", len(hostileConditions), refused, failed, ran)
		if refused < 80 || failed < 10 || ran < 30 {
			l.Errorf("%d refused, %d failed, %d ran", refused, failed, ran)
		}
	})
}

// The same texts after a column of seconds, as the expression of a trigger.
func TestHostileExpressions(t *testing.T) {
	texts := []string{"secs", "secs + 0", "COALESCE(secs, 0)", "(secs)", "secs -- x", "secs) < 0 OR (1=1", "secs) OR (secs", "0) = 0 OR (secs", "secs, 0", "secs IS NULL", "secs > 0",
		"CASE WHEN state = 'open' THEN secs END", "CASE WHEN id < 3 THEN secs ELSE NULL END", "NULLIF(secs, 0) * 1", "SELECT 0", "(SELECT 0)", "secs OR 0", "secs AND 1", "- secs", "-secs", "- -secs", "secs - - 1", "'secs'",
		`"secs"`, "`secs`", "[secs]", "secs = secs", "secs BETWEEN 0 AND 1", "secs IN (0)", "secs NOT IN (0)", "NULL", "secs + NULL", "note", "state", "at", "secs < 5 OR secs", "CAST(secs AS varchar(20))", "secs || ''", "id", "abs(secs)", "secs / 0", "secs % 7", "1e300 * secs"}
	for _, c := range hostileConditions {
		texts = append(texts, "secs "+c, "COALESCE(secs, 0"+c)
	}
	onEach(t, func(l *lab) {
		restore := l.hostileTable()
		var refused, failed, ran int
		for _, text := range texts {
			if policy.CheckSQL(text) != nil {
				refused++
				continue
			}
			want, werr := l.meant(text)
			gone, err := l.attack(l.policy("t", func(p *policy.Policy) {
				p.Trigger = policy.Trigger{Until: true, Expr: text, Unit: policy.Seconds, Null: policy.NullNever}
			}))
			switch {
			case err != nil && len(gone) > 0, werr != nil && len(gone) > 0:
				l.Errorf("expr %q: %v %v, and rows %v went", text, err, werr, gone)
			case err != nil:
				failed++
			default:
				ran++
				if diff := cmp.Diff(want, gone); diff != "" && werr == nil {
					l.Errorf("expr %q: rows that went (-want +got):\n%s", text, diff)
				}
			}
			if n := l.ids("SELECT count(*) FROM victim")[0]; n != 3 {
				l.Fatalf("expr %q: another table has %d rows left of 3", text, n)
			}
			if len(gone) > 0 {
				restore()
			}
		}
		l.Logf("%d texts: %d refused, %d failed, %d ran", len(texts), refused, failed, ran)
		if refused < 150 || failed < 10 || ran < 15 {
			l.Errorf("%d refused, %d failed, %d ran", refused, failed, ran)
		}
	})
}

// meant evaluates the text as a column of its own, out of reach of every condition, and returns the rows whose value is a
// number before the cutoff.
func (l *lab) meant(text string) ([]int, error) {
	isNumber := "TRUE"
	if l.engine == SQLite {
		isNumber = "typeof(v) IN ('integer', 'real')"
	}
	rows, err := l.other.SQL.QueryContext(l.Context(), fmt.Sprintf("SELECT id FROM (SELECT id, (\n%s\n) AS v FROM t) q WHERE %s AND v < %d ORDER BY id", text, isNumber, asOf.Unix()))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var ids []int
	for rows.Next() {
		var id int
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

package target

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/policy"
)

// Every kind of key that an engine offers, with values that are out to break it, at page sizes of one, three and all, by the
// trigger and by windows of the key: what goes is what was due, each row once, and the sums hold.
func TestKeys(t *testing.T) {
	defer func(n int) { window = n }(window)
	window = 4
	onEach(t, func(l *lab) {
		for i, k := range keyCases() {
			if !slices.Contains(k.engines, l.engine) {
				continue
			}
			l.Run(k.name, func(t *testing.T) { l.at(t).checkKey(k, fmt.Sprint("keyed", i)) })
		}
	})
}

// clock is like instant, but of a kind that every engine orders: pages can follow it.
func (l *lab) clock() (columnType string, tr policy.Trigger, lit func(time.Time) string) {
	typ, tr := l.instant()
	if l.engine != SQLite {
		return typ, tr, l.lit
	}
	return "integer", policy.Trigger{Column: "at", Unit: policy.Microseconds}, func(t time.Time) string { return fmt.Sprint(t.UnixMicro()) }
}

// clocked is a policy over a column of that kind.
func (l *lab) clocked(table string, edit func(*policy.Policy)) *policy.Policy {
	_, tr, _ := l.clock()
	tr.Until = true
	return l.policy(table, func(p *policy.Policy) {
		p.Trigger = tr
		if edit != nil {
			edit(p)
		}
	})
}

// at is the lab in a test below its own.
func (l *lab) at(t *testing.T) *lab {
	return &lab{T: t, engine: l.engine, db: l.db, other: l.other, keys: l.keys, url: l.url}
}

// insertNew begins an INSERT that leaves out rows whose key is there already.
func (l *lab) insertNew(table string, rows []string) {
	l.Helper()
	text := "INSERT INTO " + table + " VALUES " + strings.Join(rows, ", ")
	switch l.engine {
	case MySQL:
		text = strings.Replace(text, "INSERT", "INSERT IGNORE", 1)
	default:
		text += " ON CONFLICT DO NOTHING"
	}
	l.exec(text)
}

func (l *lab) checkKey(k keyCase, table string) {
	rng := rand.New(rand.NewPCG(7, 11))
	typ, _, lit := l.clock()
	l.exec(k.before)
	l.exec("DROP TABLE IF EXISTS corpus")
	for _, name := range []string{"corpus", table} {
		l.exec("CREATE TABLE " + name + " (" + strings.Join(k.columns, ", ") + ", at " + typ + " NOT NULL, serial int NOT NULL, PRIMARY KEY (" + k.names() + "))" + k.suffix)
	}
	l.exec("CREATE INDEX " + table + "_at ON " + table + " (at)")
	var rows []string
	for i, r := range k.rows(l, rng) {
		at := asOf.Add(-time.Duration(1+i%3) * time.Hour) // many ties
		if rng.IntN(3) == 0 {
			at = asOf.Add(time.Duration(i) * time.Minute)
		}
		rows = append(rows, "("+strings.Join(r, ", ")+", "+lit(at)+fmt.Sprintf(", %d)", i))
	}
	l.insertNew("corpus", rows)
	stay := l.ids("SELECT serial FROM corpus WHERE at >= " + lit(asOf) + " ORDER BY serial")
	due := l.ids("SELECT count(*) FROM corpus")[0] - len(stay)
	if due < 2 {
		l.Fatalf("%d rows are due: that shows nothing", due)
	}
	small := map[bool]Strategy{true: ByTrigger, false: ByKey}[len(k.name)%2 == 0] // one row a page is dear: each case does it one way
	for _, s := range []Strategy{ByTrigger, ByKey, ByPlace} {
		for _, n := range []int{1, 3, 1000} {
			if n == 1 && s != small || s == ByPlace && l.engine != Postgres {
				continue
			}
			l.exec("INSERT INTO " + table + " SELECT * FROM corpus")
			j, err := l.keyJob(table, fmt.Sprint(s, n))
			if err != nil {
				l.Fatal(err)
			}
			if err := j.SetStrategy(s); err != nil {
				l.Fatal(err)
			}
			// Half of the cases go the way of policies that read other tables.
			j.careful = j.careful || n == 3 && s != small
			got := l.drain(j, n)
			if diff := cmp.Diff(map[string]int64{"deleted": int64(due)}, got.outcomes); diff != "" || got.planned != int64(due) {
				l.Errorf("by %s, page %d: planned %d of %d, outcomes:\n%s", s, n, got.planned, due, diff)
			}
			if diff := cmp.Diff(stay, l.ids("SELECT serial FROM "+table+" ORDER BY serial")); diff != "" {
				l.Errorf("by %s, page %d: rows that stay (-want +got):\n%s", s, n, diff)
			}
			if l.Failed() {
				return
			}
			l.exec("DELETE FROM " + table)
		}
	}
}

func (l *lab) keyJob(table, salt string) (*Job, error) {
	l.Helper()
	tab, err := l.db.Inspect(l.Context(), table)
	if err != nil {
		l.Fatal(err)
	}
	p := l.clocked(table, nil)
	for _, f := range Judge(p, tab, l.db.Described()) {
		if f.Level == LevelRefuse {
			return nil, fmt.Errorf("%s: %s", f.Code, f.Message)
		}
	}
	run := fmt.Sprintf("%x", sha256.Sum256([]byte(l.Name()+salt)))
	j, err := NewJob(l.db, JobOptions{Policy: p, Table: tab, AsOf: asOf, Cutoff: asOf, Run: run, Keys: l.keys})
	if err != nil {
		return nil, err
	}
	j.fingerprint, err = j.FingerprintNow(l.Context())
	l.exec("DELETE FROM " + j.d.own("receipt"))
	return j, err
}

// A table that was altered between two runs of one process: what the driver had prepared for the first is not the second's
// end. The error is one after which the same again works.
func TestPlansOfAnAlteredTable(t *testing.T) {
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		l.sessions(12)
		l.exec("CREATE TABLE copy_of AS SELECT * FROM session")
		work := func(run string) {
			j := l.job(l.policy("session", nil))
			j.run = run
			var at []byte
			for done := false; !done; {
				p, err := j.Page(l.Context(), at, 5)
				if err != nil && Transient(err) {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				if p.Batch != nil {
					res, err := j.Execute(l.Context(), asOf, l.work(p.Batch))
					if err != nil {
						t.Fatal(err)
					}
					if res.Outcomes["deleted"] != int64(p.Batch.Rows) {
						t.Errorf("outcomes %v of %d", res.Outcomes, p.Batch.Rows)
					}
				}
				at, done = p.Cursor, p.Done
			}
		}
		work("first")
		to := map[Engine]string{Postgres: `ALTER TABLE session ALTER COLUMN id TYPE varchar(20) COLLATE "en-US-x-icu" USING id::text`, MySQL: "ALTER TABLE session MODIFY id varchar(20) CHARACTER SET latin1"}[l.engine]
		l.exec(to)
		l.exec("INSERT INTO session SELECT " + map[Engine]string{Postgres: "id::text", MySQL: "id"}[l.engine] + ", at, state FROM copy_of")
		l.exec("DELETE FROM " + dialectFor(l.db.server).own("receipt"))
		work("second")
		if n := l.ids("SELECT count(*) FROM session")[0]; n != 0 {
			t.Errorf("%d rows left", n)
		}
	})
}

// A kind of key that cannot be carried or compared reliably is refused before anything is paged.
func TestKeysRefused(t *testing.T) {
	cases := map[Engine][]string{
		Postgres: {"k int[] NOT NULL", "k jsonb NOT NULL", "k inet NOT NULL", "k cidr NOT NULL", "k macaddr NOT NULL", "k time NOT NULL", "k timetz NOT NULL", "k interval NOT NULL", "k money NOT NULL", "k bit(3) NOT NULL", "k tsvector NOT NULL", "k int4range NOT NULL", "k oid NOT NULL", "k pg_lsn NOT NULL"},
		MySQL:    {"k enum('b', 'a') NOT NULL", "k set('b', 'a') NOT NULL", "k float NOT NULL", "k double NOT NULL", "k bit(3) NOT NULL", "k time NOT NULL", "k inet6 NOT NULL"},
	}
	engineIn(t, []Engine{Postgres, MySQL}, func(l *lab) {
		typ, _ := l.instant()
		for _, c := range cases[l.engine] {
			l.Run(c, func(t *testing.T) {
				l := l.at(t)
				l.exec("DROP TABLE IF EXISTS keyed")
				l.exec("CREATE TABLE keyed (" + c + ", at " + typ + " NOT NULL, PRIMARY KEY (k))")
				l.refused("key_unusable")
			})
		}
		more := map[Engine]map[string]string{
			Postgres: {
				"nothing unique":          "CREATE TABLE keyed (k int NOT NULL, at timestamptz NOT NULL)",
				"unique but NULL":         "CREATE TABLE keyed (k int UNIQUE, at timestamptz NOT NULL)",
				"unique in part":          "CREATE TABLE keyed (k int NOT NULL, at timestamptz NOT NULL);\nCREATE UNIQUE INDEX ON keyed (k) WHERE k > 5",
				"unique by an expression": "CREATE TABLE keyed (k text NOT NULL, at timestamptz NOT NULL);\nCREATE UNIQUE INDEX ON keyed (lower(k))",
				"in another collation":    "CREATE TABLE keyed (k text NOT NULL, at timestamptz NOT NULL);\nCREATE UNIQUE INDEX ON keyed (k COLLATE \"en-US-x-icu\")",
				"by a pattern":            "CREATE TABLE keyed (k text NOT NULL, at timestamptz NOT NULL);\nCREATE UNIQUE INDEX ON keyed (k text_pattern_ops)",
			},
			MySQL: {
				"nothing unique":   "CREATE TABLE keyed (k int NOT NULL, at datetime(6) NOT NULL)",
				"unique but NULL":  "CREATE TABLE keyed (k int UNIQUE, at datetime(6) NOT NULL)",
				"unique by prefix": "CREATE TABLE keyed (k varchar(50) NOT NULL, at datetime(6) NOT NULL, UNIQUE (k(10)))",
				"unique by a hash": "CREATE TABLE keyed (k text NOT NULL, at datetime(6) NOT NULL, UNIQUE (k))",
			},
		}
		for name, ddl := range more[l.engine] {
			l.Run(name, func(t *testing.T) {
				l := l.at(t)
				l.exec("DROP TABLE IF EXISTS keyed")
				l.exec(ddl)
				l.refused("key_")
			})
		}
	})
}

func (l *lab) refused(code string) {
	l.Helper()
	tab, err := l.db.Inspect(l.Context(), "keyed")
	if err != nil {
		l.Fatal(err)
	}
	p := l.policy("keyed", nil)
	if _, err := NewJob(l.db, JobOptions{Policy: p, Table: tab, AsOf: asOf, Cutoff: asOf, Run: "r", Keys: l.keys}); err == nil {
		l.Error("a job is made for it")
	}
	if !slices.ContainsFunc(Judge(p, tab, l.db.Described()), func(f Finding) bool { return f.Level == LevelRefuse && strings.HasPrefix(f.Code, code) }) {
		l.Errorf("no finding %s", code)
	}
}

// SQLite lets NULL into a primary key that is not declared NOT NULL. Such rows have no name: they stay, and they hide no
// others, however many there are.
func TestKeysOfSQLiteWithNull(t *testing.T) {
	defer func(n int) { window = n }(window)
	window = 4
	for name, key := range map[string]string{"k": "one", "k, b": "two", "b, k": "the other way"} {
		for _, null := range []policy.NullRule{policy.NullNever, policy.NullDue} {
			for _, index := range []bool{false, true} {
				for _, n := range []int{1, 3, 1000} {
					t.Run(fmt.Sprintf("%s/null %s/index=%v/page=%d", key, null, index, n), func(t *testing.T) {
						newLab(t, SQLite).checkNullKeys(name, null, index, n)
					})
				}
			}
		}
	}
}

func (l *lab) checkNullKeys(key string, null policy.NullRule, index bool, n int) {
	l.exec("CREATE TABLE keyed (k TEXT, b INT, at INTEGER, serial INT, PRIMARY KEY (" + key + "))")
	if index {
		l.exec("CREATE INDEX keyed_at ON keyed (at)")
	}
	var rows []string
	for i := range 30 {
		rows = append(rows, fmt.Sprintf("(NULL, %d, %d, %d)", i, i, 100+i), fmt.Sprintf("(NULL, %d, NULL, %d)", i, 200+i))
		if strings.Contains(key, "b") {
			rows = append(rows, fmt.Sprintf("('x', NULL, %d, %d)", i, 300+i), fmt.Sprintf("('x', NULL, NULL, %d)", 400+i))
		}
	}
	nameless := len(rows)
	for i := range 12 {
		rows = append(rows, fmt.Sprintf("('x%d', %d, %d, %d)", i, i, i%3, i), fmt.Sprintf("('y%d', %d, NULL, %d)", i, i, 50+i))
	}
	l.exec("INSERT INTO keyed VALUES " + strings.Join(rows, ", "))
	got := l.drain(l.job(l.policy("keyed", func(p *policy.Policy) {
		p.Trigger = policy.Trigger{Until: true, Column: "at", Unit: policy.Seconds, Null: null}
	})), n)
	due := map[policy.NullRule]int{policy.NullNever: 12, policy.NullDue: 24}[null]
	if diff := cmp.Diff(map[string]int64{"deleted": int64(due)}, got.outcomes); diff != "" {
		l.Error(diff)
	}
	if left := l.ids("SELECT count(*) FROM keyed WHERE serial >= 100")[0]; left != nameless {
		l.Errorf("%d rows without a key are left of %d", left, nameless)
	}
	if left := l.ids("SELECT count(*) FROM keyed WHERE serial < 100")[0]; left != 24-due {
		l.Errorf("%d rows with a key are left, want %d", left, 24-due)
	}
}

// Names that must be quoted, everywhere a name is written: the table, its trigger, its scope, children that keep rows and
// children that go along, and holds.
func TestNamesMustBeQuoted(t *testing.T) {
	onEach(t, func(l *lab) {
		q := func(s string) string { return dialectFor(l.db.server).ident(s) }
		typ, tr := l.instant()
		table, key, trig, up := "order by \"x\" 50%?$1", "Select", "group`s at", "from"
		l.exec("CREATE TABLE " + q(table) + " (" + q(key) + " int NOT NULL PRIMARY KEY, " + q(trig) + " " + typ + " NOT NULL, " + q("userId") + " int)")
		l.exec("CREATE INDEX " + q("an index") + " ON " + q(table) + " (" + q(trig) + ")")
		l.exec("CREATE TABLE " + q("Where") + " (id int PRIMARY KEY, " + q(up) + " int, FOREIGN KEY (" + q(up) + ") REFERENCES " + q(table) + " (" + q(key) + "))")
		l.exec("CREATE TABLE " + q("and \"or\"") + " (id int PRIMARY KEY, " + q(up) + " int, FOREIGN KEY (" + q(up) + ") REFERENCES " + q(table) + " (" + q(key) + ") ON DELETE CASCADE)")
		var rows []string
		for i := range 12 {
			rows = append(rows, fmt.Sprintf("(%d, %s, %d)", i, l.lit(asOf.Add(-time.Hour)), i))
		}
		l.exec("INSERT INTO " + q(table) + " VALUES " + strings.Join(rows, ", ") + ", (50, " + l.lit(asOf) + ", 1)")
		l.exec("INSERT INTO " + q("Where") + " VALUES (1, 3)")
		l.exec("INSERT INTO " + q("and \"or\"") + " VALUES (1, 4), (2, 4), (3, 50)")
		tr.Column, tr.Until = trig, true
		p := l.policy(table, func(p *policy.Policy) {
			p.Trigger, p.Cascade, p.Subject = tr, []string{"and \"or\""}, "userId"
			p.Unless = q(key) + " = 7"
		})
		j := l.job(p)
		l.exec("INSERT INTO " + j.d.own("hold") + ` (id, name, relation, conditions, placed_at) VALUES ('1', 'court', '*', '[{"column": "", "value": "9"}]', '2026-01-01 00:00:00')`)
		got := l.drain(j, 5)
		if diff := cmp.Diff(map[string]int64{"deleted": 9, "blocked": 1, "guarded": 1, "held": 1}, got.outcomes); diff != "" {
			l.Error(diff)
		}
		if got.cascaded != 2 {
			l.Errorf("cascaded %d", got.cascaded)
		}
		if diff := cmp.Diff([]int{3, 7, 9, 50}, l.ids("SELECT "+q(key)+" FROM "+q(table)+" ORDER BY 1")); diff != "" {
			l.Error(diff)
		}
		if c, err := j.Count(context.Background()); err != nil || c.Due != 3 || c.Guarded != 1 {
			l.Errorf("count %+v, %v", c, err)
		}
	})
}

package target

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/internal/keyring"
	"curfew.dev/curfew/policy"
)

// A lab is a fresh database of one engine with curfew installed, and a second session to interfere with.
type lab struct {
	*testing.T
	engine Engine
	db     *DB // ours
	other  *DB // somebody else's
	keys   *keyring.Keyring
	url    string
	seq    int64
	salt   string // of another run over the same pages
}

// asOf is the instant that runs in these tests stand for.
var asOf = time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)

// onEach runs the test on every engine.
func onEach(t *testing.T, test func(l *lab)) {
	for _, e := range []Engine{Postgres, MySQL, SQLite} {
		t.Run(string(e), func(t *testing.T) { test(newLab(t, e)) })
	}
}

func newLab(t *testing.T, e Engine) *lab {
	t.Helper()
	l := &lab{T: t, engine: e}
	switch e {
	case Postgres:
		l.url = dbtest.Postgres(t)
	case MySQL:
		l.url = dbtest.MariaDB(t)
	case SQLite:
		path := dbtest.SQLite(t)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		l.url = "sqlite:" + path
	}
	open := func() *DB {
		db, err := Open(t.Context(), "lab", l.url, OpenOptions{MaxConns: 8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { db.Close() })
		return db
	}
	l.db, l.other = open(), open()
	if err := l.db.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	var err error
	if l.keys, err = keyring.New([]byte("7f2c9b4e1a6d8035f0c2e4b6a8d0917365c4e2f0b1a39d8c7e6f5a4b3c2d1e0f")); err != nil {
		t.Fatal(err)
	}
	return l
}

// exec runs statements, separated by semicolons at line ends, as the other session.
func (l *lab) exec(script string) {
	l.Helper()
	for stmt := range strings.SplitSeq(script, ";\n") {
		if strings.TrimSpace(stmt) == "" {
			continue
		}
		if _, err := l.other.SQL.ExecContext(l.Context(), stmt); err != nil {
			l.Fatalf("%s: %v", stmt, err)
		}
	}
}

// ids reads one integer column.
func (l *lab) ids(query string) []int {
	l.Helper()
	rows, err := l.other.SQL.QueryContext(l.Context(), query)
	if err != nil {
		l.Fatal(err)
	}
	defer rows.Close()
	out := []int{}
	for rows.Next() {
		var id int
		if err := rows.Scan(&id); err != nil {
			l.Fatal(err)
		}
		out = append(out, id)
	}
	return out
}

// instant is the trigger declaration and column type of a plain instant on this engine, and how to write one.
func (l *lab) instant() (columnType string, tr policy.Trigger) {
	switch l.engine {
	case Postgres:
		return "timestamptz", policy.Trigger{Column: "at"}
	case MySQL:
		return "datetime(6)", policy.Trigger{Column: "at", Zone: "UTC"}
	default:
		return "text", policy.Trigger{Column: "at", Format: policy.ISO8601, Zone: "UTC"}
	}
}

func (l *lab) lit(t time.Time) string {
	s := t.UTC().Format("2006-01-02 15:04:05.000000")
	if l.engine == Postgres {
		s += "+00"
	}
	return "'" + s + "'"
}

func (l *lab) policy(table string, edit func(*policy.Policy)) *policy.Policy {
	_, tr := l.instant()
	tr.Until = true
	p := &policy.Policy{Name: "p", Database: "lab", Table: table, Trigger: tr, Action: policy.Action{Kind: policy.Delete}, Mode: policy.Enforce, Timezone: "UTC",
		Batch: policy.DefaultBatch(), Retry: policy.DefaultRetry()}
	if edit != nil {
		edit(p)
	}
	return p
}

// job binds a policy to the table as it is now.
func (l *lab) job(p *policy.Policy) *Job {
	l.Helper()
	tab, err := l.db.InspectFor(l.Context(), p)
	if err != nil {
		l.Fatal(err)
	}
	run := fmt.Sprintf("%x", sha256.Sum256([]byte(l.Name()+p.Name)))
	j, err := NewJob(l.db, JobOptions{Policy: p, Table: tab, AsOf: asOf, Cutoff: p.Cutoff(asOf), Shadow: p.Mode == policy.Shadow, Run: run, Keys: l.keys})
	if err != nil {
		l.Fatal(err)
	}
	if j.fingerprint, err = j.FingerprintNow(l.Context()); err != nil {
		l.Fatal(err)
	}
	return j
}

func (l *lab) work(b *Batch) Work {
	l.seq++
	key := sha256.Sum256(bytes.Join([][]byte{[]byte(b.Phase + l.salt), b.Bounds, b.Keys}, []byte{0}))
	return Work{Key: key[:], Seq: l.seq, Phase: b.Phase, Rows: b.Rows, Bounds: b.Bounds, Keys: b.Keys}
}

// pages reads all pages of a job.
func (l *lab) pages(j *Job, n int) []*Batch {
	l.Helper()
	var out []*Batch
	var at []byte
	for {
		p, err := j.Page(l.Context(), at, n)
		if err != nil {
			l.Fatal(err)
		}
		if p.Batch != nil {
			out = append(out, p.Batch)
		}
		if p.Done {
			return out
		}
		if bytes.Equal(p.Cursor, at) {
			l.Fatal("the cursor does not move")
		}
		at = p.Cursor
	}
}

// sums are the results of a whole run.
type sums struct {
	planned  int64
	outcomes map[string]int64
	cascaded int64
	rows     []RowResult
}

// execute does batches and what they hand on, and checks that everything adds up.
func (l *lab) execute(j *Job, batches []*Batch) sums {
	l.Helper()
	s := sums{outcomes: map[string]int64{}}
	for len(batches) > 0 {
		b := batches[0]
		batches = batches[1:]
		res, err := j.Execute(l.Context(), asOf, l.work(b))
		if err != nil {
			l.Fatal(err)
		}
		var sum int64
		for o, n := range res.Outcomes {
			s.outcomes[o] += n
			sum += n
		}
		if sum != res.Planned {
			l.Fatalf("batch: planned %d, outcomes %v", res.Planned, res.Outcomes)
		}
		if len(b.Keys) > 0 && int64(b.Rows) > res.Planned+int64(res.NDefer) {
			l.Fatalf("batch of %d rows accounts for %d and hands on %d", b.Rows, res.Planned, res.NDefer)
		}
		s.planned += res.Planned
		s.cascaded += res.Cascaded
		s.rows = append(s.rows, res.Rows...)
		if res.NDefer > 0 {
			more, err := Split(res.Deferred, 1000)
			if err != nil {
				l.Fatal(err)
			}
			for i := range more {
				batches = append(batches, &more[i])
			}
		}
	}
	return s
}

// step pages and executes in turns, as a dispatcher does, and calls between after each page that was read, before its batch.
func (l *lab) step(j *Job, n int, between func(page int)) sums {
	l.Helper()
	all := sums{outcomes: map[string]int64{}}
	var at []byte
	for i := 0; ; i++ {
		p, err := j.Page(l.Context(), at, n)
		if err != nil {
			l.Fatal(err)
		}
		between(i)
		if p.Batch != nil {
			s := l.execute(j, []*Batch{p.Batch})
			all.planned += s.planned
			for o, n := range s.outcomes {
				all.outcomes[o] += n
			}
		}
		if at = p.Cursor; p.Done {
			return all
		}
	}
}

// begin starts a run over the job's table, which the job then works on.
func (l *lab) begin(j *Job) {
	l.Helper()
	s, err := j.Begin(l.Context())
	if err == nil {
		err = j.Adopt(s, s)
	}
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) drain(j *Job, n int) sums {
	l.Helper()
	return l.execute(j, l.pages(j, n))
}

// hold opens a transaction of the other session that runs stmt, and returns how to end it.
func (l *lab) hold(stmt string) (commit func()) {
	l.Helper()
	tx, err := l.other.SQL.BeginTx(context.WithoutCancel(l.Context()), nil)
	if err != nil {
		l.Fatal(err)
	}
	if _, err := tx.Exec(stmt); err != nil {
		l.Fatal(err)
	}
	return func() {
		if err := tx.Commit(); err != nil {
			l.Error(err)
		}
	}
}

//go:build unix

package main

import (
	"bytes"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dbtest"
)

// A site is an installation of the real program: a policy file, a ledger and a governed database of its own. Everything
// that its processes print is searched for secrets at the end of the test.
type site struct {
	*testing.T
	engine string
	dir    string
	url    string // of the governed database, as the program connects
	role   string // as GRANT names it
	ledger string // URL
	key    string // of the installation; "" when the program makes one
	db     *sql.DB
	led    *sql.DB
	rand   *rand.Rand
	asOf   time.Time // of the last run
	gone   int64     // rows that runs which were found exact have removed

	secrets map[string]string // what may not be printed, by what it is

	mu      sync.Mutex
	printed bytes.Buffer
}

const (
	postgres = "postgres"
	mariadb  = "mariadb"
	sqlite   = "sqlite"
)

// Ledgers: a SQLite file beside the policy file, the governed database itself (MariaDB cannot hold a ledger), or a
// PostgreSQL database of its own.
const (
	ledgerFile     = "file"
	ledgerWithin   = "within"
	ledgerPostgres = "postgres"
)

// keyMark is in every key value.
const keyMark = "key-7f3a"

// twoPolicies are what most tests run. plain takes the quick way, one statement for a batch; rich has a scope, a guard over
// another table and children that go along. Both have children that keep a row.
const twoPolicies = `
  plain: {database: d, table: session, keep: 30d, since: {SINCE}, action: delete, mode: enforce, batch: {rows: 50, in_flight: 2, pace: none}}
  rich:
    {database: d, table: loan, keep: 30d, since: {SINCE}, where: "branch <> 'archive'", unless: "EXISTS (SELECT 1 FROM fine WHERE fine.loan = loan.id)",
     cascade: [note], action: delete, mode: enforce, batch: {rows: 40, in_flight: 2, pace: none}}
`

var twoTables = []string{
	"CREATE TABLE session (id VARCHAR(64) NOT NULL PRIMARY KEY, at INSTANT NOT NULL, branch VARCHAR(20) NOT NULL)",
	"CREATE INDEX session_at ON session (at)",
	"CREATE TABLE pin (session VARCHAR(64) NOT NULL, CONSTRAINT pin_session FOREIGN KEY (session) REFERENCES session (id))",
	"CREATE INDEX pin_session_index ON pin (session)",
	"CREATE TABLE loan (id VARCHAR(64) NOT NULL PRIMARY KEY, at INSTANT NOT NULL, branch VARCHAR(20) NOT NULL)",
	"CREATE INDEX loan_at ON loan (at)",
	"CREATE TABLE note (loan VARCHAR(64) NOT NULL, CONSTRAINT note_loan FOREIGN KEY (loan) REFERENCES loan (id) ON DELETE CASCADE)",
	"CREATE INDEX note_loan_index ON note (loan)",
	"CREATE TABLE claim (loan VARCHAR(64) NOT NULL, CONSTRAINT claim_loan FOREIGN KEY (loan) REFERENCES loan (id))",
	"CREATE INDEX claim_loan_index ON claim (loan)",
	"CREATE TABLE fine (loan VARCHAR(64) NOT NULL)",
	"CREATE INDEX fine_loan ON fine (loan)",
}

// newSite makes a database with the tables, a policy file and a ledger, and installs curfew.
func newSite(t *testing.T, engine, ledger, policies string, tables ...string) *site {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if v := os.Getenv("CURFEW_TEST_SEED"); v != "" {
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("CURFEW_TEST_SEED=%d makes the same again", seed)
	s := &site{T: t, engine: engine, dir: t.TempDir(), rand: rand.New(rand.NewPCG(seed, 1)), secrets: map[string]string{"a key": keyMark},
		asOf: time.Date(2025, 7, 1, 2, 0, 0, 0, time.UTC)}
	s.makeDatabase()
	for _, stmt := range tables {
		s.exec(strings.ReplaceAll(stmt, "INSTANT", map[string]string{postgres: "timestamptz", mariadb: "datetime(6)", sqlite: "text"}[engine]))
	}
	s.makeLedger(ledger)
	s.configure(s.dir, policies)
	s.Cleanup(s.keepsSecrets)
	if s.led != s.db && strings.HasPrefix(s.ledger, postgres) || ledger == ledgerWithin {
		s.must("migrate")
	}
	s.must("install", "d")
	return s
}

// makeDatabase makes the governed database and a user of the program's own, whose password is worth looking for.
func (s *site) makeDatabase() {
	s.Helper()
	const password = "pw-5c71f0"
	switch s.engine {
	case postgres:
		admin := dbtest.Postgres(s.T)
		asRole, role := dbtest.PostgresRole(s.T, admin)
		s.role = role
		s.db = dbtest.Open(s.T, admin)
		s.exec("ALTER ROLE " + role + " SUPERUSER PASSWORD '" + password + "'")
		s.url = withPassword(s.T, asRole, password)
	case mariadb:
		admin := dbtest.MariaDB(s.T)
		asUser, account := dbtest.MariaDBUser(s.T, admin)
		s.role = account
		s.db = dbtest.Open(s.T, admin)
		s.exec("ALTER USER " + account + " IDENTIFIED BY '" + password + "'")
		u, err := url.Parse(asUser)
		if err != nil {
			s.Fatal(err)
		}
		s.exec("GRANT ALL ON " + strings.TrimPrefix(u.Path, "/") + ".* TO " + account)
		s.url = withPassword(s.T, asUser, password)
	default:
		path := filepath.Join(s.dir, "d.db")
		s.db = dbtest.Open(s.T, path)
		s.exec("CREATE TABLE unrelated (n INTEGER)") // a file that is an application's
		s.url = "sqlite:" + path
		return
	}
	s.secrets["the database's password"] = password
}

func withPassword(t *testing.T, rawURL, password string) string {
	t.Helper()
	u, err := url.Parse(rawURL)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(u.User.Username(), password)
	return u.String()
}

func (s *site) makeLedger(kind string) {
	s.Helper()
	switch kind {
	case ledgerFile:
		s.ledger = "sqlite:" + filepath.Join(s.dir, "curfew.db")
	case ledgerWithin:
		s.ledger = s.url
	case ledgerPostgres:
		s.ledger = dbtest.Postgres(s.T)
	}
	if s.led = s.db; kind != ledgerWithin {
		s.led = dbtest.Open(s.T, s.ledger)
	}
	if strings.HasPrefix(s.ledger, postgres) {
		s.key = "installation-7d1e0c9f4b2a68d3e5f70a1b2c3d4e5f60718293a4b5c6d7"
		s.secrets["the installation's key"] = s.key
	}
}

// configure writes the policy file into a folder.
func (s *site) configure(dir, policies string) {
	s.Helper()
	since := map[string]string{postgres: "column: at", mariadb: "column: at, zone: UTC", sqlite: "column: at, format: iso8601, zone: UTC"}[s.engine]
	key := ""
	if s.key != "" {
		key = "key: " + s.key + "\n"
	}
	write(s.T, filepath.Join(dir, "curfew.yaml"), fmt.Sprintf("version: 1\nledger: %q\n%sdatabases: {d: {url: %q, max_workers: 4}}\npolicies:\n%s",
		s.ledger, key, s.url, strings.ReplaceAll(policies, "SINCE", since)))
}

// keepsSecrets searches everything that was printed, and the ledger, which is another place where keys have no business.
func (s *site) keepsSecrets() {
	if b, err := os.ReadFile(filepath.Join(s.dir, "curfew.key")); err == nil {
		s.secrets["the installation's key"] = strings.TrimSpace(string(b))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for what, secret := range s.secrets {
		for line := range strings.SplitSeq(s.printed.String(), "\n") {
			if strings.Contains(line, secret) {
				s.Errorf("%s was printed: %s", what, line)
				break
			}
		}
	}
	if s.led != s.db && strings.HasPrefix(s.ledger, sqlite) {
		for _, suffix := range []string{"", "-wal"} {
			if b, err := os.ReadFile(strings.TrimPrefix(s.ledger, "sqlite:") + suffix); err == nil && bytes.Contains(b, []byte(keyMark)) {
				s.Error("the ledger holds a key in the clear")
			}
		}
	}
}

func (s *site) exec(query string) {
	s.Helper()
	if _, err := s.db.ExecContext(s.Context(), query); err != nil {
		s.Fatalf("%.200s: %v", query, err)
	}
}

// column reads a query's first column as text.
func (s *site) column(db *sql.DB, query string) []string {
	s.Helper()
	rows, err := db.QueryContext(s.Context(), query)
	if err != nil {
		s.Fatalf("%s: %v", query, err)
	}
	defer rows.Close()
	var out []string
	for rows.Next() {
		var v sql.NullString
		if err := rows.Scan(&v); err != nil {
			s.Fatal(err)
		}
		out = append(out, v.String)
	}
	if err := rows.Err(); err != nil {
		s.Fatal(err)
	}
	return out
}

// count reads one number.
func (s *site) count(db *sql.DB, query string) int {
	s.Helper()
	n, err := strconv.Atoi(s.column(db, query)[0])
	if err != nil {
		s.Fatal(err)
	}
	return n
}

// inLedger writes the name of one of the ledger's tables.
func (s *site) inLedger(table string) string {
	if strings.HasPrefix(s.ledger, postgres) {
		return "curfew." + table
	}
	return "curfew_" + table
}

// inDatabase writes the name of one of curfew's tables in the governed database.
func (s *site) inDatabase(table string) string {
	if s.engine == postgres {
		return "curfew." + table
	}
	return "curfew_" + table
}

// start starts curfew with a hook (see atVar) in the site's folder.
func (s *site) start(at string, args ...string) *process {
	s.Helper()
	return s.startIn(s.dir, []string{atVar + "=" + at}, args...)
}

func (s *site) startIn(dir string, env []string, args ...string) *process {
	s.Helper()
	return launch(s.T, dir, append(env, "CURFEW_LOG=debug"), args...)
}

// ended waits for a process and keeps what it printed.
func (s *site) ended(p *process) int {
	s.Helper()
	code := p.wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.printed.Write(p.stdout.Bytes())
	s.printed.WriteString(p.stderr.String())
	return code
}

// must runs curfew, which must end well.
func (s *site) must(args ...string) *process {
	s.Helper()
	p := s.start("", args...)
	s.well(p)
	return p
}

// well waits for a process, which must end with exit code 0.
func (s *site) well(p *process) {
	s.Helper()
	if code := s.ended(p); code != exitDone {
		s.Fatalf("%v ended with %d:\n%s%s", p.cmd.Args, code, p.stdout.String(), p.stderr.String())
	}
}

// refused waits for a process, which must end with the exit code and have said each of the texts.
func (s *site) refused(p *process, code int, texts ...string) {
	s.Helper()
	if got := s.ended(p); got != code {
		s.Errorf("%v ended with %d, want %d:\n%s%s", p.cmd.Args, got, code, p.stdout.String(), p.stderr.String())
	}
	for _, text := range texts {
		if !strings.Contains(p.stderr.String(), text) {
			s.Errorf("%v does not say %q:\n%s", p.cmd.Args, text, p.stderr.String())
		}
	}
}

// runArgs is the command line for a run of a policy.
func runArgs(policy string, asOf time.Time, more ...string) []string {
	return append([]string{"run", policy, "--as-of", asOf.Format(time.RFC3339Nano), "--output", "json"}, more...)
}

// answer is the run that a process answered with.
func (s *site) answer(p *process) api.Run {
	s.Helper()
	return decodeRun(s.T, bytes.NewReader(p.stdout.Bytes()))
}

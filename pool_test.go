package curfew

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/policy"
)

const (
	// keyMark is in every key of the governed table, and nowhere else.
	keyMark   = "zebra-of-munich"
	poolToken = "token-of-the-pool-0123456789abcdef"
)

// region is a database on PostgreSQL with a pool beside it, and a dispatcher elsewhere: its ledger is a SQLite file, and all that
// goes between the two is captured.
type region struct {
	*testing.T
	dir   string
	url   string // of the governed database
	db    *sql.DB
	wire  *wiretap
	logs  *lockedBuffer // of both sides
	stop  chan struct{}
	done  chan error
	rules string
}

const loans = `  loans: {database: app, table: loan, until: ended, action: delete, mode: enforce,
    batch: {rows: 20, in_flight: 2, target: 500ms, pace: none}, retry: {attempts: 3, backoff: 50ms, factor: 1}}
`

func newRegion(t *testing.T, rules string) *region {
	t.Helper()
	g := &region{T: t, dir: t.TempDir(), url: dbtest.Postgres(t), logs: &lockedBuffer{}, rules: rules}
	g.db = dbtest.Open(t, g.url)
	g.exec(`CREATE TABLE loan (id text PRIMARY KEY, ended timestamptz NOT NULL)`, `CREATE TABLE fine (id int PRIMARY KEY, loan text NOT NULL REFERENCES loan)`)
	c, err := New(g.here())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Install(t.Context(), "app", false); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	g.wire = tap(t)
	return g
}

func (g *region) exec(statements ...string) {
	g.Helper()
	for _, s := range statements {
		if _, err := g.db.ExecContext(g.Context(), s); err != nil {
			g.Fatal(s, err)
		}
	}
}

func (g *region) count(query string) (n int) {
	g.Helper()
	if err := g.db.QueryRowContext(g.Context(), query).Scan(&n); err != nil {
		g.Fatal(query, err)
	}
	return n
}

func (g *region) options(name, text string) Options {
	g.Helper()
	file, err := policy.Parse([]byte(text), policy.Options{Path: filepath.Join(g.dir, name, "curfew.yaml")})
	if err != nil {
		g.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(g.dir, name), 0o777); err != nil {
		g.Fatal(err)
	}
	return Options{Config: file, Logger: slog.New(slog.NewTextHandler(g.logs, &slog.HandlerOptions{Level: slog.LevelDebug})), Actor: "test"}
}

// here is the pool's side, elsewhere the dispatcher's. Each has a key of its own, beside its file.
func (g *region) here() Options {
	return g.options("here", fmt.Sprintf("version: 1\ndatabases: {app: {url: %q}}\nengine: {workers: 3, reserved: 1}\npolicies: {}\n", g.url))
}

func (g *region) elsewhere() Options {
	return g.options("elsewhere", fmt.Sprintf("version: 1\ndatabases: {app: {workers: {url: \"http://%s\", token: %q}}}\npolicies:\n%s", g.wire.addr, poolToken, g.rules))
}

// startPool serves as the pool until stopPool, where the tap sends to.
func (g *region) startPool() {
	g.Helper()
	g.stop, g.done = make(chan struct{}), make(chan error, 1)
	addr, opts, stop := make(chan string, 1), g.here(), g.stop
	go func() {
		g.done <- ServePool(context.WithoutCancel(g.Context()), opts, PoolOptions{Listen: "127.0.0.1:0", Token: poolToken, Stop: stop, Listening: func(a string) { addr <- a }})
	}()
	select {
	case a := <-addr:
		g.wire.to(a)
	case err := <-g.done:
		g.Fatalf("the pool: %v\n%s", err, g.logs)
	}
	g.Cleanup(g.stopPool)
}

func (g *region) stopPool() {
	if g.stop == nil {
		return
	}
	close(g.stop)
	g.stop = nil
	if err := <-g.done; err != nil {
		g.Errorf("the pool: %v", err)
	}
}

func (g *region) dispatcher() *Curfew {
	g.Helper()
	c, err := New(g.elsewhere())
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(func() { c.Close() })
	return c
}

// fill adds loans that have ended, n of them.
func (g *region) fill(n int) {
	g.exec(fmt.Sprintf("INSERT INTO loan SELECT '%s-' || i, now() - interval '1 day' FROM generate_series(1, %d) i", keyMark, n))
}

// wiretap is a proxy that keeps all that goes through it.
type wiretap struct {
	addr string

	mu     sync.Mutex // guards what follows
	target string
	bytes  bytes.Buffer
	watch  func(all []byte) // called with all so far
}

func tap(t *testing.T) *wiretap {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	w := &wiretap{addr: ln.Addr().String()}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go w.carry(conn)
		}
	}()
	return w
}

func (w *wiretap) to(target string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.target = target
}

func (w *wiretap) carry(from net.Conn) {
	defer from.Close()
	w.mu.Lock()
	target := w.target
	w.mu.Unlock()
	to, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		_, _ = io.Copy(io.MultiWriter(w, to), from)
		to.Close()
	}()
	_, _ = io.Copy(io.MultiWriter(w, from), to)
}

// Write keeps bytes of either way.
func (w *wiretap) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bytes.Write(p)
	if w.watch != nil {
		w.watch(w.bytes.Bytes())
	}
	return len(p), nil
}

func (w *wiretap) captured() []byte {
	w.mu.Lock()
	defer w.mu.Unlock()
	return bytes.Clone(w.bytes.Bytes())
}

// disguises are the forms in which a key could be in a text.
func disguises(mark string) map[string]string {
	d := map[string]string{"as it is": mark, "in hex": hex.EncodeToString([]byte(mark))}
	for shift := range 3 {
		// Where the text begins within a group of three bytes decides what its middle looks like in base64.
		coded := base64.RawStdEncoding.EncodeToString(append(make([]byte, shift), mark...))
		d[fmt.Sprintf("in base64, at %d", shift)] = coded[4 : len(coded)-4]
	}
	return d
}

func (g *region) noKeys(where string, text []byte) {
	g.Helper()
	for how, mark := range disguises(keyMark) {
		if i := bytes.Index(bytes.ToLower(text), []byte(strings.ToLower(mark))); i >= 0 {
			g.Errorf("a key value is in %s, %s: …%q…", where, how, text[max(0, i-80):min(len(text), i+80)])
		}
	}
}

// A whole run with a pool: rows that go, rows that a foreign key keeps, a row that is locked while its batch is done and free
// when it is tried again. Whatever crosses, and whatever is kept or logged elsewhere, has no key value in it.
func TestPoolKeepsKeysHome(t *testing.T) {
	g := newRegion(t, loans)
	g.fill(150)
	g.exec("INSERT INTO loan VALUES ('"+keyMark+"-kept', now() + interval '1 day')",
		"INSERT INTO fine SELECT i, '"+keyMark+"-' || i FROM generate_series(10, 140, 13) i") // 11 of them
	lock, err := g.db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Rollback()
	if _, err := lock.ExecContext(t.Context(), "SELECT FROM loan WHERE id = '"+keyMark+"-77' FOR UPDATE"); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	g.wire.watch = func(all []byte) {
		if bytes.Contains(all[max(0, len(all)-4096):], []byte("POST /v1/splits")) { // the run is at its end, and takes up what was handed on
			once.Do(func() { go lock.Rollback() })
		}
	}
	g.startPool()
	c := g.dispatcher()
	if found, err := c.Check(t.Context()); err != nil || len(found) == 0 {
		t.Fatal(found, err)
	} else {
		for _, f := range found {
			if f.Level == api.LevelRefuse || f.Level == api.LevelUnreachable {
				t.Errorf("check: %+v", f)
			}
		}
	}
	run, err := c.Run(t.Context(), RunRequest{Policy: "loans"})
	if err != nil {
		t.Fatalf("%v\n%s", err, g.logs)
	}
	if run.State != api.StateSucceeded || run.Planned != 150 || run.Outcomes["deleted"] != 139 || run.Outcomes["blocked"] != 11 || len(run.Outcomes) != 2 {
		t.Errorf("run %+v", run)
	}
	if n := g.count("SELECT count(*) FROM loan"); n != 12 {
		t.Errorf("%d loans are left, want 12", n)
	}
	g.stopPool()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	crossed := g.wire.captured()
	for _, want := range []string{"POST /v1/pages", "POST /v1/batches", "POST /v1/splits", "Idempotency-Key", `"outcomes"`, `"blocked"`} {
		if !bytes.Contains(crossed, []byte(want)) {
			t.Errorf("the capture has no %s: it is not what crossed", want)
		}
	}
	g.noKeys("what crossed", crossed)
	g.noKeys("the logs", []byte(g.logs.String()))
	files, err := filepath.Glob(filepath.Join(g.dir, "elsewhere", "curfew.db*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		g.noKeys("the ledger's "+filepath.Base(f), text)
	}
	if strings.Contains(g.logs.String(), poolToken) {
		t.Error("the token is in the logs")
	}
	// The test can see: the same look at a text that has a key finds it.
	for _, text := range []string{"x" + keyMark + "x", hex.EncodeToString([]byte("x" + keyMark)), base64.StdEncoding.EncodeToString([]byte("xx" + keyMark + "xx"))} {
		seen := false
		for _, mark := range disguises(keyMark) {
			seen = seen || strings.Contains(text, mark)
		}
		if !seen {
			t.Errorf("a key in %q goes unseen", text)
		}
	}
}

// A pool that is started anew in the middle knows nothing of what it was doing: it is offered the same batches, and answers those
// that were done from their receipts.
func TestPoolRestarted(t *testing.T) {
	g := newRegion(t, loans)
	g.fill(300)
	g.startPool()
	var mu sync.Mutex
	restart, seen := make(chan struct{}), 0
	dispatch.TestHook = func(point string) {
		mu.Lock()
		defer mu.Unlock()
		if point == "moved" {
			if seen++; seen == 5 {
				close(restart)
			}
		}
	}
	defer func() { dispatch.TestHook = nil }()
	c := g.dispatcher()
	type result struct {
		run api.Run
		err error
	}
	done := make(chan result, 1)
	go func() {
		run, err := c.Run(g.Context(), RunRequest{Policy: "loans"})
		done <- result{run, err}
	}()
	<-restart
	g.stopPool()
	g.startPool()
	r := <-done
	if r.err != nil || r.run.State != api.StateSucceeded || r.run.Outcomes["deleted"] != 300 || r.run.Planned != 300 {
		t.Errorf("%v: %+v\n%s", r.err, r.run, g.logs)
	}
	if n := g.count("SELECT count(*) FROM loan"); n != 0 {
		t.Errorf("%d loans are left", n)
	}
	if n := g.count("SELECT count(*) FROM curfew.receipt"); int64(n) != r.run.Batches.Total {
		t.Errorf("%d receipts for %d batches", n, r.run.Batches.Total)
	}
}

// A daemon works such a run too, and its schedule, its trigger and its end are as for any other.
func TestServeWithAPool(t *testing.T) {
	g := newRegion(t, loans)
	g.fill(100)
	g.startPool()
	stop, done, addr := make(chan struct{}), make(chan error, 1), make(chan string, 1)
	opts := g.elsewhere()
	go func() {
		done <- Serve(context.WithoutCancel(t.Context()), opts, ServeOptions{Listen: "127.0.0.1:0", Stop: stop, Listening: func(a string) { addr <- a }})
	}()
	d := &daemon{T: t, logs: g.logs}
	select {
	case d.addr = <-addr:
	case err := <-done:
		t.Fatal(err)
	}
	c := g.dispatcher()
	token, err := mustLedger(d, c).CreateToken(t.Context(), "caller", []string{"trigger"})
	if err != nil {
		t.Fatal(err)
	}
	status, run := d.post(token, "/v1/policies/loans/runs", "{}")
	if status != http.StatusAccepted {
		t.Fatalf("status %d", status)
	}
	d.eventually("the run is done", func() bool { r, err := c.Show(t.Context(), run.ID); return err == nil && r.State == api.StateSucceeded })
	if n := g.count("SELECT count(*) FROM loan"); n != 0 {
		t.Errorf("%d loans are left", n)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if s := g.logs.String(); strings.Contains(s, "level=ERROR") || strings.Contains(s, "level=WARN") {
		t.Errorf("complaints:\n%s", s)
	}
}

// What the pool refuses ends the run as refused, with the pool's words.
func TestPoolRefuses(t *testing.T) {
	g := newRegion(t, strings.Replace(loans, "table: loan", "table: lone", 1))
	g.startPool()
	c := g.dispatcher()
	run, err := c.Run(t.Context(), RunRequest{Policy: "loans"})
	if KindOf(err) != KindRefused || !strings.Contains(err.Error(), "lone") {
		t.Fatalf("%v: %+v", err, run)
	}
	e, err := newEngine(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.qdb.Close()
	open, err := e.l.Get(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.see(t.Context(), open); err != nil {
		t.Error(err)
	}
	ended, err := e.l.Get(t.Context(), run.ID)
	if err != nil || ended.State != ledger.Failed || ended.WhyEnded != "refused" || !strings.Contains(ended.Detail, "lone") {
		t.Errorf("%v: %s (%s): %s", err, ended.State, ended.WhyEnded, ended.Detail)
	}
}

// A batch that fails again and again is recorded row by row, as the policy's retries say, and the rest goes on.
func TestPoolTroubles(t *testing.T) {
	g := newRegion(t, loans)
	g.fill(60)
	// The second batch fails in a way that speaks of no row.
	g.exec(`CREATE FUNCTION trouble() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF NEW.seq = 2 AND NEW.outcomes::text LIKE '%deleted%' THEN RAISE EXCEPTION 'trouble'; END IF; RETURN NEW; END $$`,
		"CREATE TRIGGER trouble BEFORE UPDATE ON curfew.receipt FOR EACH ROW EXECUTE FUNCTION trouble()")
	g.startPool()
	c := g.dispatcher()
	run, err := c.Run(t.Context(), RunRequest{Policy: "loans"})
	if err != nil {
		t.Fatalf("%v\n%s", err, g.logs)
	}
	if run.State != api.StateSucceeded || run.Planned != 60 || run.Outcomes["failed"] != 20 || run.Outcomes["deleted"] != 40 {
		t.Errorf("run %+v", run)
	}
	batches, err := mustLedger(&daemon{T: t}, c).Batches(t.Context(), run.ID, 0, 0)
	if err != nil || len(batches) != 3 || batches[1].Attempts != 3 || batches[0].Attempts != 1 {
		t.Errorf("%v: batches %+v", err, batches)
	}
	g.noKeys("what crossed", g.wire.captured())
	g.noKeys("the logs", []byte(g.logs.String()))
}

// A table that changes under a run stops it, whoever asks the pool next.
func TestPoolSchemaChanged(t *testing.T) {
	g := newRegion(t, loans)
	g.fill(100)
	g.startPool()
	var once sync.Once
	dispatch.TestHook = func(point string) {
		if point == "moved" {
			once.Do(func() { g.exec("ALTER TABLE loan ADD COLUMN note text") })
		}
	}
	defer func() { dispatch.TestHook = nil }()
	run, err := g.dispatcher().Run(t.Context(), RunRequest{Policy: "loans"})
	if err != nil || run.State != api.StateFailed || run.WhyEnded != "schema_changed" {
		t.Errorf("%v: run %+v", err, run)
	}
}

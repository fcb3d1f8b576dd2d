package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net/mail"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"curfew.dev/curfew/internal/dbtest"
	"curfew.dev/curfew/internal/deliver"
	"curfew.dev/curfew/internal/keyring"
	"curfew.dev/curfew/internal/mailtest"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/policy"
)

var asOf = time.Date(2026, 3, 29, 1, 0, 0, 0, time.UTC)

// A lab is a fresh database with organisations whose trials end, and those who are told.
type lab struct {
	*testing.T
	engine target.Engine
	db     *target.DB
	keys   *keyring.Keyring
	mail   *mailtest.Server
	runs   int
}

func onEach(t *testing.T, test func(l *lab)) {
	for _, e := range []target.Engine{target.Postgres, target.MySQL, target.SQLite} {
		t.Run(string(e), func(t *testing.T) { test(newLab(t, e)) })
	}
}

func newLab(t *testing.T, e target.Engine) *lab {
	t.Helper()
	var url string
	switch e {
	case target.Postgres:
		url = dbtest.Postgres(t)
	case target.MySQL:
		url = dbtest.MariaDB(t)
	default:
		path := dbtest.SQLite(t)
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		url = "sqlite:" + path
	}
	db, err := target.Open(t.Context(), "lab", url, target.OpenOptions{MaxConns: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if err := db.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	keys, err := keyring.New([]byte("7f2c9b4e1a6d8035f0c2e4b6a8d0917365c4e2f0b1a39d8c7e6f5a4b3c2d1e0f"))
	if err != nil {
		t.Fatal(err)
	}
	l := &lab{T: t, engine: e, db: db, keys: keys, mail: &mailtest.Server{}}
	l.exec("CREATE TABLE organization (id integer NOT NULL PRIMARY KEY, name varchar(80), email varchar(200), ends " + l.timeType() + ", paused boolean NOT NULL DEFAULT false)")
	l.exec("CREATE TABLE member (id integer NOT NULL PRIMARY KEY, organization_id integer NOT NULL, email varchar(200))")
	return l
}

func (l *lab) timeType() string {
	return map[target.Engine]string{target.Postgres: "timestamptz", target.MySQL: "datetime(6)", target.SQLite: "text"}[l.engine]
}

func (l *lab) at(t time.Time) string {
	s := t.UTC().Format("2006-01-02 15:04:05.000000")
	if l.engine == target.Postgres {
		s += "+00"
	}
	return "'" + s + "'"
}

func (l *lab) exec(stmt string) {
	l.Helper()
	if _, err := l.db.SQL.ExecContext(context.Background(), stmt); err != nil {
		l.Fatalf("%s: %v", stmt, err)
	}
}

func (l *lab) own(table string) string {
	if l.engine == target.Postgres {
		return "curfew." + table
	}
	return "curfew_" + table
}

// organisations inserts n of them, due, with the addresses org1@example.org and so on.
func (l *lab) organisations(n int) {
	l.Helper()
	var rows []string
	for i := 1; i <= n; i++ {
		rows = append(rows, fmt.Sprintf("(%d, 'Org %d', 'org%d@example.org', %s)", i, i, i, l.at(asOf.Add(-time.Duration(i)*time.Minute))))
	}
	l.exec("INSERT INTO organization (id, name, email, ends) VALUES " + strings.Join(rows, ", "))
}

// notice is a policy that tells organisations by e-mail.
func (l *lab) notice(edit func(*policy.Policy)) *policy.Policy {
	p := &policy.Policy{Name: "trials", Database: "lab", Table: "organization", Trigger: policy.Trigger{Column: "ends", Until: true, Null: policy.NullNever}, Mode: policy.Enforce,
		Timezone: "Europe/Berlin", Batch: policy.DefaultBatch(), Retry: policy.DefaultRetry(),
		Action: policy.Action{Kind: policy.Notify, Message: &policy.Message{Email: "email", Subject: "{{.name}} ends", Text: "Dear {{.name}}, your trial ends {{.due}}."}}}
	switch l.engine {
	case target.MySQL:
		p.Trigger.Zone = "UTC"
	case target.SQLite:
		p.Trigger.Zone, p.Trigger.Format = "UTC", policy.ISO8601
	}
	if edit != nil {
		edit(p)
	}
	return p
}

// A process is one that executes batches of one run.
type process struct {
	l *lab
	w *Worker
	p *policy.Policy
}

// run begins a run of the policy, another one each time, or goes on with run if that is not "".
func (l *lab) run(p *policy.Policy, run string) *process {
	l.Helper()
	if run == "" {
		l.runs++
		run = fmt.Sprint(p.Name, l.runs)
	}
	table, err := l.db.Inspect(l.Context(), p.Table)
	if err != nil {
		l.Fatal(err)
	}
	if err := target.Refused(target.Judge(p, table, l.db.Described())); err != nil {
		l.Fatal(err)
	}
	id := fmt.Sprintf("%x", sha256.Sum256([]byte(run)))
	job, err := target.NewJob(l.db, target.JobOptions{Policy: p, Table: table, AsOf: asOf, Cutoff: p.Cutoff(asOf), Shadow: p.Mode == policy.Shadow, Run: id, Keys: l.keys})
	if err != nil {
		l.Fatal(err)
	}
	began, err := job.Begin(l.Context())
	if err == nil {
		err = job.Adopt(began, began)
	}
	if err != nil {
		l.Fatal(err)
	}
	t := &Telling{Policy: p.Name, Run: id, PerRow: true, Waits: []time.Duration{time.Millisecond, time.Millisecond, time.Millisecond}, Within: 400 * time.Millisecond}
	switch m, r := p.Action.Message, p.Action.Request; {
	case p.Mode == policy.Shadow:
		t = nil
	case r != nil:
		t.Caller, t.PerRow = deliver.NewCaller(), r.Per == policy.PerRow
		t.Request = deliver.Request{Method: r.Method, URL: r.URL, Token: r.Token, Timeout: r.Timeout}
	case m.Webhook != nil:
		t.Caller, t.Webhook = deliver.NewCaller(), true
		signer, err := deliver.NewSigner(m.Webhook.Secret)
		if err != nil {
			l.Fatal(err)
		}
		t.Request = deliver.Request{Method: "POST", URL: m.Webhook.URL, Timeout: 200 * time.Millisecond, Signer: signer}
	default:
		if l.mail.Addr == "" {
			l.mail.Start(l)
		}
		if t.Mailer, err = deliver.NewMailer(deliver.MailOptions{Server: "smtp://" + l.mail.Addr, Timeout: 5 * time.Second, Answer: 300 * time.Millisecond}); err != nil {
			l.Fatal(err)
		}
		l.Cleanup(t.Mailer.Close)
		t.From = &mail.Address{Name: "Portal", Address: "portal@example.org"}
		if t.Subject, err = deliver.ParseText(m.Subject); err != nil {
			l.Fatal(err)
		}
		if t.Text, err = deliver.ParseText(m.Text); err != nil {
			l.Fatal(err)
		}
	}
	if t != nil && t.Caller != nil {
		l.Cleanup(t.Caller.Close)
	}
	return &process{l, &Worker{Job: job, AsOf: asOf, KeyID: l.keys.ID(), Logger: slog.New(slog.DiscardHandler), Tell: t}, p}
}

// batches pages the whole run.
func (x *process) batches() (out []target.Work) {
	x.l.Helper()
	var at []byte
	for {
		p, err := x.w.Job.Page(x.l.Context(), at, x.p.Batch.Rows)
		if err != nil {
			x.l.Fatal(err)
		}
		if b := p.Batch; b != nil {
			key := sha256.Sum256(bytes.Join([][]byte{[]byte(x.w.Tell.run()), []byte(b.Phase), b.Bounds, b.Keys}, []byte{0}))
			out = append(out, target.Work{Key: key[:], Seq: int64(len(out) + 1), Phase: b.Phase, Rows: b.Rows, Bounds: b.Bounds, Keys: b.Keys})
		}
		if at = p.Cursor; p.Done {
			return out
		}
	}
}

func (t *Telling) run() string {
	if t == nil {
		return ""
	}
	return t.Run
}

// all pages and executes, and sums up.
func (x *process) all() (map[string]int64, map[string]int) {
	x.l.Helper()
	outcomes, reasons := map[string]int64{}, map[string]int{}
	for _, w := range x.batches() {
		x.add(w, outcomes, reasons)
	}
	return outcomes, reasons
}

func (x *process) add(w target.Work, outcomes map[string]int64, reasons map[string]int) {
	x.l.Helper()
	res, err := x.w.Execute(x.l.Context(), w)
	if err != nil {
		x.l.Fatal(err)
	}
	count(x.l, res, outcomes, reasons)
}

func count(t testing.TB, res Result, outcomes map[string]int64, reasons map[string]int) {
	t.Helper()
	var sum int64
	for o, n := range res.Settlement.Outcomes {
		outcomes[o] += n
		sum += n
	}
	if sum != res.Settlement.Planned {
		t.Errorf("planned %d, outcomes %v", res.Settlement.Planned, res.Settlement.Outcomes)
	}
	for _, b := range res.Settlement.Blocked {
		reasons[b.Reason]++
	}
}

// toWhom counts the accepted messages by address.
func (l *lab) toWhom() map[string]int {
	out := map[string]int{}
	for _, m := range l.mail.Accepted() {
		for _, to := range m.To {
			out[to]++
		}
	}
	return out
}

func (l *lab) want(what string, got, want any) {
	l.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		l.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

package worker

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/mail"
	"os"
	"strings"
	"sync"
	"sync/atomic"
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

func TestNotify(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(6)
		l.exec("UPDATE organization SET email = NULL WHERE id = 2")
		l.exec("UPDATE organization SET email = 'nobody at home' WHERE id = 3")
		l.exec("UPDATE organization SET name = 'x\r\nBcc: eve@example.org' WHERE id = 4")
		refuse := true
		tries := map[string]int{}
		l.mail.Fate = func(to string) mailtest.Fate {
			tries[to]++
			switch {
			case to == "org5@example.org" && refuse:
				return mailtest.RefuseAddress
			case to == "org6@example.org" && tries[to] <= 2:
				return mailtest.LaterAddress
			}
			return mailtest.Accept
		}
		outcomes, reasons := l.run(l.notice(nil), "").all()
		l.want("outcomes", outcomes, map[string]int64{"notified": 2, "failed": 4})
		l.want("reasons", reasons, map[string]int{"the address is empty": 1, "the address is malformed": 1,
			"the subject has a line break or a control character in it": 1, "the mail server answered an address with 550 5.1.1": 1})
		l.want("accepted", l.toWhom(), map[string]int{"org1@example.org": 1, "org6@example.org": 1})
		m := l.mail.Accepted()[0]
		if m.Header.Get("Subject") != "Org 1 ends" && m.Header.Get("Subject") != "Org 6 ends" {
			l.Errorf("subject %q", m.Header.Get("Subject"))
		}
		if m.To[0] == "org1@example.org" && !strings.Contains(strings.ReplaceAll(m.Body, "=\r\n", ""), "Dear Org 1, your trial ends 2026-03-29 01:59 CET.") {
			l.Errorf("body %q", m.Body)
		}

		// What was told of is not told again; what failed is tried by the next run.
		refuse = false
		l.exec("UPDATE organization SET email = 'org2@example.org' WHERE id = 2")
		outcomes, _ = l.run(l.notice(nil), "").all()
		l.want("outcomes of the next run", outcomes, map[string]int64{"notified": 2, "failed": 2})
		outcomes, _ = l.run(l.notice(nil), "").all()
		l.want("outcomes of the third", outcomes, map[string]int64{"failed": 2})

		// Another due instant is another message, under another id.
		l.exec("UPDATE organization SET ends = " + l.at(asOf.Add(-time.Hour)) + " WHERE id = 1")
		outcomes, _ = l.run(l.notice(nil), "").all()
		l.want("outcomes after one moved", outcomes, map[string]int64{"notified": 1, "failed": 2})
		l.want("accepted", l.toWhom(), map[string]int{"org1@example.org": 2, "org2@example.org": 1, "org5@example.org": 1, "org6@example.org": 1})
		ids := map[string]bool{}
		for _, m := range l.mail.Accepted() {
			ids[m.ID] = true
		}
		if len(ids) != 5 {
			l.Errorf("%d ids of 5 messages", len(ids))
		}
	})
}

// A shadow run tells nobody and counts what would be told.
func TestShadow(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(3)
		shadow := l.notice(func(p *policy.Policy) { p.Mode = policy.Shadow })
		outcomes, _ := l.run(shadow, "").all()
		l.want("outcomes", outcomes, map[string]int64{"due": 3})
		l.run(l.notice(nil), "").all()
		l.exec("UPDATE organization SET ends = " + l.at(asOf.Add(-time.Hour)) + " WHERE id = 1")
		outcomes, _ = l.run(shadow, "").all()
		l.want("outcomes after a run", outcomes, map[string]int64{"due": 1})
		if n := len(l.mail.Accepted()); n != 3 {
			l.Errorf("%d messages", n)
		}
	})
}

func TestNotifyQuery(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(3)
		l.exec("INSERT INTO member VALUES (1, 1, 'ada@example.org'), (2, 1, 'bob@example.org'), (3, 2, 'gone@example.org'), (4, 2, 'cy@example.org'), (5, 1, NULL)")
		l.mail.Fate = func(to string) mailtest.Fate {
			if to == "gone@example.org" {
				return mailtest.RefuseAddress
			}
			return mailtest.Accept
		}
		p := l.notice(func(p *policy.Policy) {
			p.Action.Message.Email, p.Action.Message.Query = "", "SELECT m.email FROM member m WHERE m.organization_id = organization.id ORDER BY m.id"
		})
		x := l.run(p, "")
		if found, err := x.w.Job.Probe(l.Context()); err != nil || len(found) > 0 {
			l.Fatal(found, err)
		}
		outcomes, reasons := x.all()
		l.want("outcomes", outcomes, map[string]int64{"notified": 2, "failed": 1})
		l.want("reasons", reasons, map[string]int{"the query finds no address": 1})
		l.want("accepted", l.toWhom(), map[string]int{"ada@example.org": 1, "bob@example.org": 1, "cy@example.org": 1})
		if n := len(l.mail.Accepted()); n != 2 {
			l.Errorf("%d messages", n)
		}
	})
}

// hookAt calls do at the n-th time that a batch comes to the point.
func hookAt(t testing.TB, point string, n int64, do func()) {
	var seen atomic.Int64
	target.TestHook = func(p string) {
		if p == point && seen.Add(1) == n {
			do()
		}
	}
	t.Cleanup(func() { target.TestHook = nil })
}

// What happens between the claim and the sending of a message stops it.
func TestJudgedBeforeItIsSent(t *testing.T) {
	for name, tc := range map[string]struct {
		stmt string
		want map[string]int64
	}{
		"hold":      {"INSERT INTO @hold (id, name, relation, conditions, placed_at) VALUES ('h', 'h', 'organization', '[{\"column\":\"id\",\"value\":\"2\"}]', '2026-01-01')", map[string]int64{"notified": 2, "held": 1}},
		"refreshed": {"UPDATE organization SET ends = '2027-01-01 00:00:00' WHERE id = 2", map[string]int64{"notified": 2, "no_longer_due": 1}},
		"gone":      {"DELETE FROM organization WHERE id = 2", map[string]int64{"notified": 2, "gone": 1}},
		"guarded":   {"UPDATE organization SET paused = true WHERE id = 2", map[string]int64{"notified": 2, "guarded": 1}},
		"moved":     {"UPDATE organization SET ends = '2026-01-01 00:00:00' WHERE id = 2", map[string]int64{"notified": 3}},
	} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(l *lab) {
				l.organisations(3)
				hookAt(l, "round_committed", 1, func() {
					l.exec(strings.ReplaceAll(tc.stmt, "@hold", l.own("hold")))
				})
				outcomes, reasons := l.run(l.notice(func(p *policy.Policy) { p.Unless = "paused" }), "").all()
				l.want("outcomes", outcomes, tc.want)
				l.want("reasons", reasons, map[string]int{})
				told := l.toWhom()
				if n := told["org2@example.org"]; int64(n) != tc.want["notified"]-2 {
					l.Errorf("%v", told)
				}
			})
		})
	}
}

// A row that another session is changing is not told of, and does not keep the others.
func TestLockedRow(t *testing.T) {
	for _, e := range []target.Engine{target.Postgres, target.MySQL} {
		t.Run(string(e), func(t *testing.T) {
			l := newLab(t, e)
			l.organisations(3)
			tx, err := l.db.SQL.BeginTx(l.Context(), nil)
			if err != nil {
				l.Fatal(err)
			}
			defer tx.Rollback()
			if _, err := tx.ExecContext(l.Context(), "UPDATE organization SET ends = '2027-01-01 00:00:00' WHERE id = 2"); err != nil {
				l.Fatal(err)
			}
			x := l.run(l.notice(nil), "")
			x.w.Tell.Final = true
			outcomes, _ := x.all()
			l.want("outcomes", outcomes, map[string]int64{"notified": 2, "locked": 1})
		})
	}
}

// Each worker of a batch sends some, and none of them what another one sends.
func TestTwoWorkers(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(40)
		n := 0
		var mu sync.Mutex
		l.mail.Fate = func(string) mailtest.Fate {
			mu.Lock()
			defer mu.Unlock()
			if n++; n%10 == 0 {
				return mailtest.LaterAddress
			}
			return mailtest.Accept
		}
		p := l.notice(nil)
		first := l.run(p, "one")
		work := first.batches()
		if len(work) != 1 {
			l.Fatalf("%d batches", len(work))
		}
		var wg sync.WaitGroup
		results := make([]Result, 3)
		for i := range results {
			x := l.run(p, "one")
			x.w.Tell.Waits = make([]time.Duration, 100)
			wg.Go(func() {
				var err error
				if results[i], err = x.w.Execute(l.Context(), work[0]); err != nil {
					l.Error(err)
				}
			})
		}
		wg.Wait()
		for _, r := range results {
			if !maps.Equal(r.Settlement.Outcomes, map[string]int64{"notified": 40}) || !bytes.Equal(r.Settlement.Root, results[0].Settlement.Root) {
				l.Errorf("%v", r.Settlement.Outcomes)
			}
		}
		told := l.toWhom()
		for to, n := range told {
			if n != 1 {
				l.Errorf("%s: %d messages", to, n)
			}
		}
		if len(told) != 40 {
			l.Errorf("%d were told", len(told))
		}
	})
}

// A connection that is lost after the final dot leaves one message uncertain, whether the server has it or not, and it is never
// sent again.
func TestUncertain(t *testing.T) {
	for name, fate := range map[string]mailtest.Fate{"taken": mailtest.DieTaken, "untaken": mailtest.DieUntaken} {
		t.Run(name, func(t *testing.T) {
			onEach(t, func(l *lab) {
				l.organisations(3)
				l.mail.Fate = func(to string) mailtest.Fate {
					if to == "org2@example.org" {
						return fate
					}
					return mailtest.Accept
				}
				outcomes, reasons := l.run(l.notice(nil), "").all()
				l.want("outcomes", outcomes, map[string]int64{"notified": 2, "failed": 1})
				l.want("reasons", reasons, map[string]int{"uncertain: the mail server was lost after the message was sent and before it said that it has it: connection lost": 1})
				l.mail.Fate = nil
				outcomes, _ = l.run(l.notice(nil), "").all()
				l.want("outcomes of the next run", outcomes, map[string]int64{})
				if n := l.toWhom()["org2@example.org"]; n > 1 || n == 1 != (fate == mailtest.DieTaken) {
					l.Errorf("%d messages", n)
				}
			})
		})
	}
}

// A process that dies between any two steps leaves what the next one needs: nobody is told twice.
func TestDies(t *testing.T) {
	for _, tc := range []struct {
		point     string
		uncertain bool
		accepted  int // of the message in hand
	}{
		{"round", false, 1}, {"round_looked", false, 1}, {"round_committed", false, 1}, {"sending", false, 1},
		{"sending_committed", true, 0}, {"sent", true, 1}, {"sent_committed", false, 1},
	} {
		t.Run(tc.point, func(t *testing.T) {
			onEach(t, func(l *lab) {
				l.organisations(3)
				p := l.notice(nil)
				x := l.run(p, "one")
				work := x.batches()[0]
				died := make(chan struct{})
				hookAt(l, tc.point, 1, func() {
					close(died)
					panic("died")
				})
				func() {
					defer func() { recover() }()
					x.w.Execute(l.Context(), work)
				}()
				<-died
				target.TestHook = nil
				outcomes, reasons := map[string]int64{}, map[string]int{}
				l.run(p, "one").add(work, outcomes, reasons)
				want, why := map[string]int64{"notified": 3}, map[string]int{}
				if tc.uncertain {
					want = map[string]int64{"notified": 2, "failed": 1}
					why["uncertain: the process that was sending it ended, or was too slow, before it recorded what came of it, and it is not sent again"] = 1
				}
				l.want("outcomes", outcomes, want)
				l.want("reasons", reasons, why)
				told := l.toWhom()
				total := 0
				for to, n := range told {
					if total += n; n != 1 {
						l.Errorf("%s: %d", to, n)
					}
				}
				if total != 2+tc.accepted {
					l.Errorf("%d messages", total)
				}
			})
		})
	}
}

// receiver is a web server that remembers.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	keys   []string
	bodies []string
	answer func(n int, w http.ResponseWriter, r *http.Request, body []byte)
}

func (l *lab) receiver(answer func(n int, w http.ResponseWriter, r *http.Request, body []byte)) *receiver {
	x := &receiver{answer: answer}
	x.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		x.mu.Lock()
		key := r.Header.Get("Idempotency-Key") + r.Header.Get("Webhook-Id")
		x.keys, x.bodies = append(x.keys, key), append(x.bodies, string(body))
		n := len(x.keys)
		x.mu.Unlock()
		if x.answer != nil {
			x.answer(n, w, r, body)
		}
	}))
	l.Cleanup(x.Close)
	return x
}

func (x *receiver) seen() (keys, bodies []string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]string(nil), x.keys...), append([]string(nil), x.bodies...)
}

func (x *receiver) requests() int {
	keys, _ := x.seen()
	return len(keys)
}

func (x *receiver) byKey() map[string]int {
	x.mu.Lock()
	defer x.mu.Unlock()
	out := map[string]int{}
	for _, k := range x.keys {
		out[k]++
	}
	return out
}

func (l *lab) call(x *receiver, per policy.Per) *policy.Policy {
	return l.notice(func(p *policy.Policy) {
		p.Action = policy.Action{Kind: policy.Call, Request: &policy.Request{URL: x.URL, Method: "POST", Token: "t0ken", Per: per, Timeout: 200 * time.Millisecond}}
	})
}

func TestCallPerRow(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(4)
		slow := make(chan struct{})
		defer close(slow)
		x := l.receiver(func(n int, w http.ResponseWriter, r *http.Request, body []byte) {
			var b callBody
			if err := json.Unmarshal(body, &b); err != nil || len(b.Rows) != 1 || b.Policy != "trials" || !b.AsOf.Equal(asOf) || r.Header.Get("Authorization") != "Bearer t0ken" {
				l.Errorf("%s %v", body, err)
			}
			switch id := fmt.Sprint(b.Rows[0].Key["id"]); {
			case id == "1" && n < 6:
				w.Header().Set("Retry-After", "0")
				w.WriteHeader(http.StatusServiceUnavailable)
			case id == "2" && n < 6:
				<-slow
			case id == "3":
				w.WriteHeader(http.StatusConflict)
			}
		})
		outcomes, reasons := l.run(l.call(x, policy.PerRow), "").all()
		l.want("outcomes", outcomes, map[string]int64{"called": 3, "failed": 1})
		l.want("reasons", reasons, map[string]int{"the receiver answered 409 Conflict": 1})
		if keys := x.byKey(); len(keys) != 4 || x.requests() < 6 {
			l.Errorf("%v", keys)
		}
	})
}

// A time-out is followed by the very same request, in this process or in the next one.
func TestCallPerBatch(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(4)
		slow := make(chan struct{})
		defer close(slow)
		x := l.receiver(func(n int, w http.ResponseWriter, r *http.Request, body []byte) {
			if n <= 2 {
				<-slow
			}
		})
		p := l.call(x, policy.PerBatch)
		first := l.run(p, "one")
		first.w.Tell.Waits = nil
		work := first.batches()[0]
		if _, err := first.w.Execute(l.Context(), work); err == nil || !strings.Contains(err.Error(), "no answer in time") {
			l.Fatal(err)
		}
		outcomes, reasons := map[string]int64{}, map[string]int{}
		l.run(p, "one").add(work, outcomes, reasons)
		l.want("outcomes", outcomes, map[string]int64{"called": 4})
		if keys, bodies := x.seen(); len(x.byKey()) != 1 || len(keys) != 3 || bodies[0] != bodies[2] {
			l.Errorf("%v %v", keys, bodies)
		}
	})
}

// Rows of a request that may have arrived are not sent without one of them: then nobody knows, and nobody is told again.
func TestCallPerBatchWithdrawn(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(3)
		slow := make(chan struct{})
		defer close(slow)
		x := l.receiver(func(int, http.ResponseWriter, *http.Request, []byte) { <-slow })
		hookAt(l, "sending", 2, func() { l.exec("UPDATE organization SET ends = '2027-01-01 00:00:00' WHERE id = 2") })
		outcomes, reasons := l.run(l.call(x, policy.PerBatch), "").all()
		l.want("outcomes", outcomes, map[string]int64{"failed": 3})
		l.want("reasons", reasons, map[string]int{"uncertain: it may have arrived, and is not sent again because the row is not due any more or is held": 3})
		if n := x.requests(); n != 1 {
			l.Errorf("%d requests", n)
		}
	})
}

func TestCallRefusesBatch(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(3)
		x := l.receiver(func(_ int, w http.ResponseWriter, _ *http.Request, _ []byte) { w.WriteHeader(http.StatusForbidden) })
		outcomes, _ := l.run(l.call(x, policy.PerBatch), "").all()
		l.want("outcomes", outcomes, map[string]int64{"failed": 3})
		if n := x.requests(); n != 1 {
			l.Errorf("%d requests", n)
		}
	})
}

// The next process repeats a request that was under way when the last one died, under its id.
func TestWebhookAfterDeath(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(2)
		x := l.receiver(nil)
		p := l.notice(func(p *policy.Policy) {
			p.Action.Message = &policy.Message{Webhook: &policy.Endpoint{URL: x.URL, Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}}
		})
		first := l.run(p, "one")
		work := first.batches()[0]
		hookAt(l, "sent", 1, func() { panic("died") })
		func() {
			defer func() { recover() }()
			first.w.Execute(l.Context(), work)
		}()
		target.TestHook = nil
		outcomes, reasons := map[string]int64{}, map[string]int{}
		l.run(p, "one").add(work, outcomes, reasons)
		l.want("outcomes", outcomes, map[string]int64{"notified": 2})
		if keys := x.byKey(); len(keys) != 2 || x.requests() != 3 {
			l.Errorf("%v", keys)
		}
		for k := range x.byKey() {
			if !strings.HasPrefix(k, "msg_") {
				l.Errorf("id %q", k)
			}
		}
	})
}

// A mail server that is down puts a batch off; what cannot be sent in the end has failed, and the next run sends it.
func TestGivesUp(t *testing.T) {
	onEach(t, func(l *lab) {
		l.organisations(3)
		p := l.notice(nil)
		x := l.run(p, "one")
		l.mail.Kill()
		work := x.batches()[0]
		_, err := x.w.Execute(l.Context(), work)
		if err == nil || err.Error() != "not sent yet: the mail server cannot be reached: connection refused" {
			l.Fatal(err)
		}
		res, err := x.w.GiveUp(l.Context(), work, err)
		if err != nil {
			l.Fatal(err)
		}
		outcomes, reasons := map[string]int64{}, map[string]int{}
		count(l, res, outcomes, reasons)
		l.want("outcomes", outcomes, map[string]int64{"failed": 3})
		l.mail.Run()
		outcomes, _ = l.run(p, "two").all()
		l.want("outcomes of the next run", outcomes, map[string]int64{"notified": 3})
	})
}

package curfew

import (
	"context"
	"errors"
	"fmt"
	"net/mail"
	"slices"
	"strings"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/deliver"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/internal/worker"
	"curfew.dev/curfew/policy"
)

const (
	// mostTold bounds a batch of single messages, each of which may take long: a run that is cancelled or a process that is told
	// to stop waits for a batch.
	mostTold = 100
	// checkWithin is how long check waits for the mail server.
	checkWithin = 10 * time.Second
)

// quickWaits are between passes over messages that were not taken, before the policy's own patience begins.
var quickWaits = []time.Duration{250 * time.Millisecond, time.Second, 3 * time.Second}

// ways are the connections to those who are told. They are kept by the process and shared by its runs.
type ways struct {
	mailer *deliver.Mailer
	caller *deliver.Caller
}

func (w *ways) close() {
	if w.mailer != nil {
		w.mailer.Close()
	}
	if w.caller != nil {
		w.caller.Close()
	}
}

// mailer is the way to the file's mail server.
func (c *Curfew) mailer() (*deliver.Mailer, error) {
	if c.file.Mail == nil {
		return nil, fail(KindConfig, `add for example mail: {server: "smtp://localhost:25", from: "Portal <portal@example.org>"}`, "%s has no mail section", c.fileName())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ways.mailer == nil {
		m, err := deliver.NewMailer(deliver.MailOptions{Server: c.file.Mail.Server, Answer: target.TellWithin})
		if err != nil {
			return nil, &Error{Kind: KindConfig, Err: err, Hint: "write smtp://user:password@host:587 under mail in " + c.fileName()}
		}
		c.ways.mailer = m
	}
	return c.ways.mailer, nil
}

func (c *Curfew) caller() *deliver.Caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ways.caller == nil {
		c.ways.caller = deliver.NewCaller()
	}
	return c.ways.caller
}

// telling says how the rows of a run are told of; nil for an action of the database and for a shadow run, which tells nobody.
func (c *Curfew) telling(p *policy.Policy, run ledger.Run) (*worker.Telling, error) {
	if !p.Action.Kind.Tells() || run.Mode == string(policy.Shadow) {
		return nil, nil
	}
	t := &worker.Telling{Policy: p.Name, Stage: p.StageName(), Run: run.ID, Waits: quickWaits, PerRow: true, Within: target.TellWithin}
	if t.Within > 0 {
		t.Within += target.TellWithin
	}
	var err error
	switch m, r := p.Action.Message, p.Action.Request; {
	case r != nil:
		t.PerRow = r.Per == policy.PerRow
		t.Request = deliver.Request{Method: r.Method, Timeout: r.Timeout}
		if t.Request.Token, err = c.expand(p, "the token", r.Token); err != nil {
			return nil, err
		}
		t.Request.URL, err = c.expand(p, "the url", r.URL)
	case m.Webhook != nil:
		t.Webhook = true
		t.Request = deliver.Request{Method: "POST", Timeout: policy.DefaultTimeout}
		var secret string
		if secret, err = c.expand(p, "the secret", m.Webhook.Secret); err != nil {
			return nil, err
		}
		if t.Request.Signer, err = deliver.NewSigner(secret); err != nil {
			return nil, &Error{Kind: KindConfig, Err: fmt.Errorf("policy %s: %w", p.Name, err), Hint: "check the variable or file that the secret comes from"}
		}
		t.Request.URL, err = c.expand(p, "the url", m.Webhook.URL)
	default:
		return t, c.letters(t, p, m)
	}
	t.Caller = c.caller()
	return t, err
}

// expand takes a secret of an action from where it is.
func (c *Curfew) expand(p *policy.Policy, what, text string) (string, error) {
	out, err := c.file.Expand(text)
	if err != nil {
		return "", &Error{Kind: KindConfig, Err: fmt.Errorf("policy %s: %s: %w", p.Name, what, err), Hint: "every process that executes the policy needs the variable or file"}
	}
	return out, nil
}

// letters is telling by e-mail.
func (c *Curfew) letters(t *worker.Telling, p *policy.Policy, m *policy.Message) (err error) {
	if t.Mailer, err = c.mailer(); err != nil {
		return err
	}
	from := m.From
	if from == "" {
		from = c.file.Mail.From
	}
	if t.From, err = mail.ParseAddress(from); err != nil {
		return fail(KindConfig, "write for example from: Portal <portal@example.org>", "policy %s: from is no e-mail address", p.Name)
	}
	if t.Subject, err = deliver.ParseText(m.Subject); err == nil {
		t.Text, err = deliver.ParseText(m.Text)
	}
	if err != nil {
		return &Error{Kind: KindConfig, Err: fmt.Errorf("policy %s: %w", p.Name, err), Hint: "correct the template"}
	}
	return nil
}

// checkTexts holds the templates of a message against the table; an error names the column that is not there.
func checkTexts(p *policy.Policy, table *target.Table) error {
	m := p.Action.Message
	if m == nil || m.Webhook != nil {
		return nil
	}
	for _, part := range []struct{ name, text string }{{"subject", m.Subject}, {"text", m.Text}} {
		text, err := deliver.ParseText(part.text)
		if err != nil {
			return &Error{Kind: KindRefused, Err: fmt.Errorf("policy %s: %s: %w", p.Name, part.name, err), Hint: "correct the template"}
		}
		sample := map[string]any{}
		for _, name := range deliver.Reserved {
			sample[name] = "text"
		}
		for _, name := range text.Columns() {
			c, ok := table.Column(name)
			if !ok {
				return &Error{Kind: KindRefused, Err: fmt.Errorf("policy %s: %s: table %s has no column %q", p.Name, part.name, table.Label, name),
					Hint: "{{.NAME}} stands for a column of the table, or for " + strings.Join(deliver.Reserved, ", ")}
			}
			sample[name] = sampleOf(c)
		}
		if _, err := text.Fill(sample); err != nil {
			return &Error{Kind: KindRefused, Err: fmt.Errorf("policy %s: %s: the template cannot be filled in with a row of table %s", p.Name, part.name, table.Label),
				Hint: "{{.NAME}} stands for a text, a whole number or true and false, as the column is; nothing is inside of it"}
		}
	}
	return nil
}

// sampleOf is a value of the kind that a message gets of the column.
func sampleOf(c target.Column) any {
	switch c.Kind {
	case target.KindInt:
		return int64(1)
	case target.KindBool:
		return true
	}
	return "text"
}

// checkWays finds out whether those whom the policies tell can be told, as far as that can be known without telling them.
func (c *Curfew) checkWays(ctx context.Context, policies []*policy.Policy) []api.Finding {
	var findings []api.Finding
	letters := false
	for _, p := range stagesOf(policies) {
		if !p.Action.Kind.Tells() {
			continue
		}
		letters = letters || p.Action.Message != nil && p.Action.Message.Webhook == nil
		if _, err := c.telling(p, ledger.Run{Mode: string(policy.Enforce)}); err != nil {
			f := findingOf(err, "telling")
			f.Policy = p.Name
			if !slices.Contains(findings, f) {
				findings = append(findings, f)
			}
		}
	}
	if !letters || c.file.Mail == nil {
		return findings
	}
	m, err := c.mailer()
	if err != nil { // told already
		return findings
	}
	ctx, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	if err := m.Check(ctx); err != nil {
		return append(findings, api.Finding{Level: api.LevelUnreachable, Code: "mail_server", Message: err.Error(), Hint: "its address is under mail in " + c.fileName()})
	}
	return append(findings, api.Finding{Level: api.LevelGood, Code: "mail_server", Message: "the mail server takes messages from here"})
}

// tellOptions makes batches of messages small, and waits for the policy's patience where nobody else would.
func (w *work) tellOptions(waits []time.Duration, stop <-chan struct{}) *worker.Telling {
	if w.tell == nil {
		return nil
	}
	t := *w.tell
	t.Stop = stop
	if waits != nil {
		t.Waits, t.Final = slices.Concat(t.Waits, worker.Waits(w.p.Retry)), true
	}
	return &t
}

// batchOf are the sizes of a policy's batches.
func batchOf(p *policy.Policy) policy.Batch {
	b := p.Batch
	if r := p.Action.Request; p.Action.Kind.Tells() && (r == nil || r.Per == policy.PerRow) {
		b.Rows = min(b.Rows, mostTold)
	}
	return b
}

// stopped makes an interruption of what the worker left because it was told to stop.
func stopped(err error, as error) error {
	if errors.Is(err, worker.ErrStopped) {
		return as
	}
	return err
}

// toldOf reports whether a row was told of for its due instant, or may have been, in words.
func toldOf(p *policy.Policy, a *target.Answers) (bool, string) {
	for _, x := range a.Passages {
		if a.DueUS == nil || x.Stage != p.StageName() || x.Due != *a.DueUS {
			continue
		}
		switch x.State {
		case target.PassageDone:
			return true, fmt.Sprintf("it was told of for this due instant, by run %s", shortID(x.Run))
		case target.PassageUncertain:
			return true, fmt.Sprintf("nobody knows whether run %s told of it (%s)", shortID(x.Run), x.Detail)
		}
	}
	return false, ""
}

package policy

import (
	"encoding/base64"
	"net/url"
	"strings"
)

// Alerts says where curfew tells what nobody may miss. The zero value tells
// nobody; what there was to tell is then in the ledger alone.
type Alerts struct {
	Webhook *Webhook
	Ping    *Ping
}

// Webhook gets every alert as a JSON document, by POST, signed as Standard
// Webhooks (standardwebhooks.com) says.
type Webhook struct {
	URL    string // expanded; a secret: an address is often all a receiver asks for
	Secret string // expanded: whsec_ and base64; "" sends without a signature
}

// Ping is told the start and the end of every enforcing run, by the protocol
// of healthchecks.io.
type Ping struct {
	URL string // expanded; a secret. {policy} in it stands for the policy's name
}

// alerts judges the section, which may be left out.
func (b *builder) alerts(raw *rawAlerts) Alerts {
	var a Alerts
	if raw == nil {
		return a
	}
	if raw.Webhook == nil && raw.Ping == nil && !b.failed(raw.field) {
		b.fail(raw.at, raw.field, "it names nobody to tell", `write for example alerts: {webhook: {url: "${ALERT_URL}"}}, or leave it out`)
	}
	if w := raw.Webhook; w != nil {
		a.Webhook = &Webhook{URL: b.address(w.place, w.URL), Secret: b.webhookSecret(w.Secret)}
	}
	if p := raw.Ping; p != nil {
		a.Ping = &Ping{URL: b.address(p.place, p.URL)}
	}
	return a
}

// address expands and judges the address of a receiver, and never shows it.
func (b *builder) address(p place, s secret) string {
	if !s.set() {
		if !b.failed(p.field) {
			b.missing(p, "url", `write for example url: "${ALERT_URL}"`)
		}
		return ""
	}
	u, ok := b.expand(s)
	if !ok {
		return ""
	}
	if err := checkAddress(u); err != nil {
		problem, hint := split(err)
		b.fail(s.n, s.field, problem, hint)
	}
	return u
}

func checkAddress(u string) error {
	if strings.ContainsFunc(u, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return &fault{"the address contains a space or a control character", "check the variable or file it comes from"}
	}
	parsed, err := url.Parse(strings.ReplaceAll(u, "{policy}", "policy")) // its error repeats the address
	switch {
	case err != nil:
		return &fault{"the address cannot be read", "write https://host/path"}
	case parsed.Scheme != "https" && parsed.Scheme != "http" || parsed.Hostname() == "":
		return &fault{"this is no address on the web", "begin it with https:// and a host"}
	case parsed.Fragment != "" || strings.HasSuffix(u, "#"):
		return &fault{"the address contains a #", "percent-encode it as %23"}
	}
	return nil
}

// The key of a signature, in bytes: what Standard Webhooks asks for.
const (
	minWebhookKey = 24
	maxWebhookKey = 64
)

func (b *builder) webhookSecret(s secret) string {
	if !s.set() {
		return ""
	}
	text, ok := b.expand(s)
	if !ok {
		return ""
	}
	const hint = `put what this prints into it: echo "whsec_$(openssl rand -base64 32)"`
	coded, found := strings.CutPrefix(text, "whsec_")
	key, err := base64.StdEncoding.DecodeString(coded)
	switch {
	case !found:
		b.fail(s.n, s.field, "the secret of a webhook begins with whsec_", hint)
	case err != nil:
		b.fail(s.n, s.field, "what follows whsec_ is not base64", hint)
	case len(key) < minWebhookKey || len(key) > maxWebhookKey:
		b.fail(s.n, s.field, "what follows whsec_ must be from 24 to 64 bytes in base64", hint)
	}
	return text
}

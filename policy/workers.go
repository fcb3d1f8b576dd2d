package policy

import (
	"net"
	"net/url"
	"strings"
)

// MinPoolToken is how many characters the token of a worker pool has at least.
const MinPoolToken = 32

// workers judges the section of a worker pool. What belongs beside the data is
// in the pool's own file: given here too, it would be ignored.
func (b *builder) workers(raw *rawDatabase) *Workers {
	for _, other := range []struct {
		leaf
		name string
	}{{raw.URL.leaf, "url"}, {raw.MaxWorkers.leaf, "max_workers"}} {
		if other.set() {
			b.fail(other.n, other.field, other.name+" and workers are both given", "keep workers; "+other.name+" belongs into the policy file of the pool, beside the data")
		}
	}
	w := raw.Workers
	for _, need := range []struct {
		secret
		name, hint string
	}{{w.URL, "url", `write where the pool answers, for example url: "https://pool.example.org"`},
		{w.Token, "token", `write for example token: "${POOL_TOKEN}"; it is the pool's CURFEW_POOL_TOKEN`}} {
		if !need.set() && !b.failed(w.field+"."+need.name) && !b.malformed(w.place) {
			b.missing(w.place, need.name, need.hint)
		}
	}
	out := &Workers{}
	if u, ok := b.expand(w.URL); w.URL.set() && ok {
		if err := checkPoolAddress(u); err != nil {
			problem, hint := split(err)
			b.fail(w.URL.n, w.URL.field, problem, hint)
		}
		out.URL = strings.TrimRight(u, "/")
	}
	if token, ok := b.expand(w.Token); w.Token.set() && ok {
		if err := CheckPoolToken(token); err != nil {
			problem, hint := split(err)
			b.fail(w.Token.n, w.Token.field, problem, hint)
		}
		out.Token = token
	}
	return out
}

// checkPoolAddress accepts an address under which a token may be sent.
func checkPoolAddress(u string) error {
	if err := checkAddress(u); err != nil {
		return err
	}
	parsed, err := url.Parse(u) // without a fragment: checkAddress has seen to that
	switch {
	case err != nil:
		return &fault{"the address cannot be read", "write https://host"}
	case parsed.User != nil || parsed.RawQuery != "" || parsed.ForceQuery:
		return &fault{"the address of a worker pool has no user and no query", "write https://host, and give the token as token:"}
	case parsed.Scheme == "http" && !ownMachine(parsed.Hostname()):
		return &fault{"the token would cross the network unencrypted", "begin the address with https://; http is for a proxy or tunnel on this machine"}
	}
	return nil
}

func ownMachine(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// CheckPoolToken accepts a text as the token of a worker pool: a long one, of
// characters that a header can hold. The error does not repeat it.
func CheckPoolToken(token string) error {
	const hint = "openssl rand -hex 32 makes one"
	switch {
	case len(token) < MinPoolToken:
		return &fault{"the token of a worker pool has at least 32 characters", hint}
	case strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return &fault{"the token of a worker pool is of plain characters without spaces", hint}
	}
	return nil
}

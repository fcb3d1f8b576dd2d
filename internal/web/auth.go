package web

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
)

// authorise returns the caller's token when it is good for the scope. A request without one leaves no row anywhere: it is
// counted, and its address may not do that often.
//
// The token is looked up first, whatever its address did before: a limit ahead of that would let anybody behind the same
// proxy lock the real caller out. What is no token by its form costs no look-up.
func (s *server) authorise(r *http.Request, scope string) (ledger.Token, error) {
	secret, found := bearer(r)
	if !found {
		return ledger.Token{}, s.turnedAway(r, http.StatusUnauthorized, "send Authorization: Bearer and a token; curfew token create makes one", "a token is needed")
	}
	token, err := s.ledger.Token(r.Context(), secret)
	if errors.Is(err, ledger.ErrNotFound) {
		return ledger.Token{}, s.turnedAway(r, http.StatusUnauthorized, "curfew token list shows those that are good", "this token is not known, or was revoked")
	}
	if err != nil { // nobody is known while the ledger is out of reach; the caller may come again
		s.log.ErrorContext(r.Context(), "tokens_unreadable", "pattern", r.Pattern, "err", err)
		return ledger.Token{}, &refusal{Problem: api.Problem{Status: http.StatusServiceUnavailable, Detail: "the ledger is out of reach"}, retryAfter: busyFor}
	}
	if !token.Allows(scope) {
		return token, s.lacks(r, token, scope, "this")
	}
	return token, nil
}

// lacks refuses what the token has no scope for.
func (s *server) lacks(r *http.Request, token ledger.Token, scope, what string) error {
	return s.turnedAway(r, http.StatusForbidden, "curfew token create --scope "+scope+" makes one that may", "%s needs scope %s, which token %s does not have", what, scope, token.Name)
}

func (s *server) turnedAway(r *http.Request, status int, hint, format string, args ...any) error {
	s.metrics.unauthorised.WithLabelValues(strconv.Itoa(status)).Inc()
	if wait := s.refused.take(address(r)); wait > 0 {
		return tooMany(wait, "too many requests from this address were refused")
	}
	return refuse(status, hint, format, args...)
}

func tooMany(wait time.Duration, detail string) *refusal {
	r := refuse(http.StatusTooManyRequests, "wait as Retry-After says", "%s", detail)
	r.retryAfter = wait
	return r
}

// bearer reads the one Authorization header. Two of them are none.
func bearer(r *http.Request) (secret string, found bool) {
	headers := r.Header.Values("Authorization")
	if len(headers) != 1 {
		return "", false
	}
	scheme, secret, found := strings.Cut(headers[0], " ")
	secret = strings.TrimSpace(secret)
	return secret, found && strings.EqualFold(scheme, "bearer") && secret != ""
}

// address is who sent the request, as the connection says: a header could say anything. Of IPv6 it is the network, which
// one machine has all of.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	ip := net.ParseIP(host)
	if ip == nil || ip.To4() != nil {
		return host
	}
	return ip.Mask(net.CIDRMask(64, 128)).String()
}

// limiterKeys is how many keys a limiter knows. Beyond it, those that could have everything again are forgotten, and when
// none could, all that follow share one.
const limiterKeys = 4096

// limiter allows each key so many a second.
type limiter struct {
	perSecond float64
	burst     int
	clock     func() time.Time

	mu   sync.Mutex // guards keys
	keys map[string]*rate.Limiter
}

func newLimiter(perSecond float64, burst int, clock func() time.Time) *limiter {
	return &limiter{perSecond: perSecond, burst: burst, clock: clock, keys: map[string]*rate.Limiter{}}
}

// take takes one. When there is none it returns how long to wait for it, and takes nothing.
func (l *limiter) take(key string) time.Duration {
	now := l.clock()
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.keys[key]
	if k == nil {
		if len(l.keys) >= limiterKeys {
			l.forget(now)
		}
		if len(l.keys) >= limiterKeys {
			key = ""
		}
		if k = l.keys[key]; k == nil {
			k = rate.NewLimiter(rate.Limit(l.perSecond), l.burst)
			l.keys[key] = k
		}
	}
	res := k.ReserveN(now, 1)
	wait := res.DelayFrom(now)
	if wait > 0 {
		res.CancelAt(now)
	}
	return wait
}

// forget drops the keys that a new limiter would treat no differently.
func (l *limiter) forget(now time.Time) {
	for key, k := range l.keys {
		if k.TokensAt(now) >= float64(l.burst) {
			delete(l.keys, key)
		}
	}
}

package ledger

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestTokens(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		ctx := t.Context()
		secret, err := l.CreateToken(ctx, "nightly", []string{ScopeRead, ScopeTrigger, ScopeRead})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(secret, "cfw_") || len(secret) != 47 {
			t.Errorf("a token looks like %q", secret)
		}
		boss, err := l.CreateToken(ctx, "boss", []string{ScopeAdmin})
		if err != nil {
			t.Fatal(err)
		}
		k, err := l.Token(ctx, secret)
		if err != nil {
			t.Fatal(err)
		}
		want := Token{Name: "nightly", Scopes: []string{ScopeTrigger, ScopeRead}}
		if d := cmp.Diff(want, k, cmpopts.IgnoreTypes(time.Time{})); d != "" {
			t.Error(d)
		}
		if k.Created.IsZero() || k.LastUsed.Before(k.Created) || !k.Revoked.IsZero() {
			t.Errorf("%+v", k)
		}
		admin, err := l.Token(ctx, boss)
		if err != nil {
			t.Fatal(err)
		}
		for _, scope := range Scopes {
			if k.Allows(scope) != (scope == ScopeRead || scope == ScopeTrigger) || !admin.Allows(scope) {
				t.Errorf("%s: nightly %v, boss %v", scope, k.Allows(scope), admin.Allows(scope))
			}
		}

		flipped := secret[:20] + string(secret[20]^1) + secret[21:]
		for _, bad := range []string{"", "cfw_", secret[:46], secret + "A", flipped, strings.ToUpper(secret), "xfw_" + secret[4:], " " + secret[:46]} {
			if _, err := l.Token(ctx, bad); !errors.Is(err, ErrNotFound) {
				t.Errorf("%q is a token: %v", bad, err)
			} else if len(bad) > 10 && strings.Contains(err.Error(), bad[5:]) {
				t.Errorf("the error repeats the token: %v", err)
			}
		}

		if err := l.RevokeToken(ctx, "nightly"); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Token(ctx, secret); !errors.Is(err, ErrNotFound) {
			t.Errorf("a revoked token is good: %v", err)
		}
		if err := l.RevokeToken(ctx, "nightly"); err != nil {
			t.Errorf("revoked again: %v", err)
		}
		if err := l.RevokeToken(ctx, "nobody"); !errors.Is(err, ErrNotFound) {
			t.Errorf("revoke nobody: %v", err)
		}
		if _, err := l.CreateToken(ctx, "nightly", []string{ScopeRead}); !errors.Is(err, ErrTokenExists) {
			t.Errorf("the name of a revoked token was given again: %v", err)
		}
		all, err := l.ListTokens(ctx)
		if err != nil || len(all) != 2 || all[0].Name != "boss" || all[1].Revoked.IsZero() || !all[0].Revoked.IsZero() {
			t.Errorf("%+v, %v", all, err)
		}
		if c, r := count(t, l, ActionTokenCreated), count(t, l, ActionTokenRevoked); c != 2 || r != 1 {
			t.Errorf("%d token_created and %d token_revoked entries, want 2 and 1", c, r)
		}
		for _, e := range entries(t, l) {
			if strings.Contains(string(e.Body), secret[5:]) {
				t.Errorf("the audit log has the token: %s", e.Body)
			}
		}
		if n := one[int64](t, l, `SELECT count(*) FROM @token WHERE length(hash) = 32`); n != 2 {
			t.Errorf("%d tokens are stored as hashes, want 2", n)
		}
	})
}

func TestTokenRefused(t *testing.T) {
	onBoth(t, func(t *testing.T, l *Ledger) {
		for name, scopes := range map[string][]string{
			"ok": nil, "ok2": {"trigger", "everything"}, "ok3": {""}, "": {"read"}, "a b": {"read"}, "line\nbreak": {"read"}, ".x": {"read"},
			strings.Repeat("a", 65): {"read"}, "tök": {"read"},
		} {
			if _, err := l.CreateToken(t.Context(), name, scopes); !errors.Is(err, ErrTokenInvalid) {
				t.Errorf("%q with %v: %v", name, scopes, err)
			}
		}
		if all, err := l.ListTokens(t.Context()); err != nil || len(all) != 0 || count(t, l, ActionTokenCreated) != 0 {
			t.Errorf("%+v, %v", all, err)
		}
	})
}

// TestTokenUse: the last use is known to the minute, and costs a write a minute.
func TestTokenUse(t *testing.T) {
	onBothURLs(t, func(t *testing.T, url string) {
		now := time.Date(2026, 7, 1, 2, 0, 0, 0, time.UTC)
		l := open(t, Options{URL: url, Clock: func() time.Time { return now }})
		secret, err := l.CreateToken(t.Context(), "k", []string{ScopeRead})
		if err != nil {
			t.Fatal(err)
		}
		use := func() time.Time {
			t.Helper()
			if _, err := l.Token(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
			return time.Time(one[stamp](t, l, `SELECT last_used FROM @token`))
		}
		pass := func(d time.Duration) { // PostgreSQL has its own clock: there the past moves instead
			t.Helper()
			if now = now.Add(d); l.sqlite {
				return
			}
			if _, err := l.write.ExecContext(t.Context(), `UPDATE curfew.token SET last_used = last_used - make_interval(secs => $1)`, d.Seconds()); err != nil {
				t.Fatal(err)
			}
		}
		first := use()
		pass(30 * time.Second)
		before := time.Time(one[stamp](t, l, `SELECT last_used FROM @token`))
		if got := use(); !got.Equal(before) {
			t.Errorf("used within the minute: %v became %v", before, got)
		}
		pass(31 * time.Second)
		before = time.Time(one[stamp](t, l, `SELECT last_used FROM @token`))
		if got := use(); !got.After(before) {
			t.Errorf("used after a minute: still %v, first %v", got, first)
		}
	})
}

package curfew

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"strings"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
)

// Scopes lists what a token may allow its bearer, the narrowest first.
func Scopes() []string { return slices.Clone(ledger.Scopes) }

// CreateToken makes a token for the HTTP interface. Only its hash is kept: the answer is the one time that it can be seen.
// Without a name it gets one from its first scope.
func (c *Curfew) CreateToken(ctx context.Context, name string, scopes []string) (api.NewToken, error) {
	if len(scopes) == 0 {
		return api.NewToken{}, fail(KindUsage, "the scopes are "+strings.Join(ledger.Scopes, ", "), "a token needs a scope: what its bearer may do")
	}
	if name == "" {
		var random [3]byte
		rand.Read(random[:])
		name = "token-" + hex.EncodeToString(random[:])
		if slices.Contains(ledger.Scopes, scopes[0]) {
			name = scopes[0] + name[len("token"):]
		}
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return api.NewToken{}, err
	}
	secret, err := l.CreateToken(ctx, name, scopes)
	switch {
	case errors.Is(err, ledger.ErrTokenExists):
		return api.NewToken{}, &Error{Kind: KindRefused, Err: err, Hint: "curfew token list shows the names that are taken; give it another one"}
	case errors.Is(err, ledger.ErrTokenInvalid):
		return api.NewToken{}, &Error{Kind: KindUsage, Err: err, Hint: "curfew token create --help says what it may be"}
	}
	if err != nil {
		return api.NewToken{}, ledgerError(err)
	}
	kept := slices.DeleteFunc(Scopes(), func(s string) bool { return !slices.Contains(scopes, s) })
	return api.NewToken{Name: name, Scopes: kept, Token: secret}, nil
}

// Tokens lists what may be known of the tokens, by name; revoked ones too.
func (c *Curfew) Tokens(ctx context.Context) ([]api.TokenInfo, error) {
	tokens := []api.TokenInfo{}
	if c.noLedgerYet() {
		return tokens, nil
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return nil, err
	}
	all, err := l.ListTokens(ctx)
	if err != nil {
		return nil, ledgerError(err)
	}
	for _, t := range all {
		tokens = append(tokens, wireToken(t))
	}
	slices.SortStableFunc(tokens, func(a, b api.TokenInfo) int { return strings.Compare(a.Name, b.Name) })
	return tokens, nil
}

// RevokeToken makes a token worthless, at once and for good. One that is revoked already stays so.
func (c *Curfew) RevokeToken(ctx context.Context, name string) (api.TokenInfo, error) {
	none := fail(KindNotFound, "curfew token list shows them", "no token %q", name)
	if c.noLedgerYet() {
		return api.TokenInfo{}, none
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return api.TokenInfo{}, err
	}
	err = l.RevokeToken(ctx, name)
	if errors.Is(err, ledger.ErrNotFound) {
		return api.TokenInfo{}, none
	}
	if err != nil {
		return api.TokenInfo{}, ledgerError(err)
	}
	tokens, err := c.Tokens(ctx)
	if err != nil {
		return api.TokenInfo{}, err
	}
	if i := slices.IndexFunc(tokens, func(t api.TokenInfo) bool { return t.Name == name }); i >= 0 {
		return tokens[i], nil
	}
	return api.TokenInfo{}, none
}

// wireToken is a token as it is shown.
func wireToken(t ledger.Token) api.TokenInfo {
	return api.TokenInfo{Name: t.Name, Scopes: list(t.Scopes), CreatedAt: t.Created.UTC(), LastUsed: orNil(t.LastUsed), RevokedAt: orNil(t.Revoked)}
}

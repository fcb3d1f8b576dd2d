package ledger

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// What a token may do. Admin may do everything.
const (
	ScopeTrigger = "trigger" // start the runs of policies
	ScopeRead    = "read"    // read runs, policies, occurrences, calls and the audit log
	ScopeDefer   = "defer"   // hand in deferred work
	ScopeAdmin   = "admin"
)

// Scopes are all scopes, in the order in which they are shown.
var Scopes = []string{ScopeTrigger, ScopeRead, ScopeDefer, ScopeAdmin}

// The audit entries about tokens.
const (
	ActionTokenCreated = "token_created"
	ActionTokenRevoked = "token_revoked"
)

var (
	// ErrTokenExists: there is, or was, a token of that name. A revoked token keeps its name, so that a call in the
	// ledger never belongs to two.
	ErrTokenExists = errors.New("there is a token of that name already, or was one")
	// ErrTokenInvalid: the name or the scopes of a new token make no sense.
	ErrTokenInvalid = errors.New("no such token can be made")
)

const (
	tokenPrefix = "cfw_" // for people and for scanners that look for secrets in the wrong place
	tokenBytes  = 32
	// usedEvery is how precisely the last use of a token is known: a write for each call would be one too many.
	usedEvery = time.Minute
)

// tokenName is what may go into log lines and audit entries.
var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// Token is what the ledger knows of a token; not the token itself, which is not kept.
type Token struct {
	Name     string
	Scopes   []string
	Created  time.Time
	LastUsed time.Time // to the minute; zero when it never was
	Revoked  time.Time // zero while it is good
}

// Allows reports whether the token may do what the scope names.
func (k Token) Allows(scope string) bool {
	return slices.Contains(k.Scopes, scope) || slices.Contains(k.Scopes, ScopeAdmin)
}

// CreateToken makes a token and returns it, the only time that it can be seen: the ledger keeps its hash. A name that
// is taken is ErrTokenExists; a name or scopes that make no sense are ErrTokenInvalid.
func (l *Ledger) CreateToken(ctx context.Context, name string, scopes []string) (secret string, err error) {
	if !tokenName.MatchString(name) {
		return "", fmt.Errorf("create a token: %w: a name has up to 64 letters, digits, dots, dashes and underscores, not %q", ErrTokenInvalid, name)
	}
	var kept []string
	for _, s := range Scopes {
		if slices.Contains(scopes, s) {
			kept = append(kept, s)
		}
	}
	for _, s := range scopes {
		if !slices.Contains(Scopes, s) {
			return "", fmt.Errorf("create token %s: %w: a scope is one of %s, not %q", name, ErrTokenInvalid, strings.Join(Scopes, ", "), s)
		}
	}
	if len(kept) == 0 {
		return "", fmt.Errorf("create token %s: %w: without a scope it could do nothing; scopes are %s", name, ErrTokenInvalid, strings.Join(Scopes, ", "))
	}
	var b [tokenBytes]byte
	rand.Read(b[:])
	secret = tokenPrefix + base64.RawURLEncoding.EncodeToString(b[:])
	hash := sha256.Sum256([]byte(secret))
	err = l.tx(ctx, func(t *txn) error {
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		created, err := t.execOne(ctx, `INSERT INTO @token (hash, name, scopes, created) VALUES ($1, $2, $3, $4)
			ON CONFLICT (name) DO NOTHING`, hash[:], name, strings.Join(kept, ","), stamp(now))
		if err != nil {
			return err
		}
		if !created {
			return ErrTokenExists
		}
		return t.audit(entry{action: ActionTokenCreated, body: struct {
			Name   string   `json:"name"`
			Scopes []string `json:"scopes"`
		}{name, kept}})
	})
	if err != nil {
		return "", fmt.Errorf("create token %s: %w", name, err)
	}
	return secret, nil
}

const tokenColumns = `name, scopes, created, last_used, revoked`

func scanToken(row scanner, more ...any) (Token, error) {
	var k Token
	var scopes string
	err := row.Scan(append([]any{&k.Name, &scopes, (*stamp)(&k.Created), (*stamp)(&k.LastUsed), (*stamp)(&k.Revoked)}, more...)...)
	k.Scopes = strings.Split(scopes, ",")
	return k, err
}

// Token returns the token that the secret is, and notes its use. One that is not known or was revoked is ErrNotFound,
// and the error does not repeat it.
func (l *Ledger) Token(ctx context.Context, secret string) (Token, error) {
	if !strings.HasPrefix(secret, tokenPrefix) || len(secret) != len(tokenPrefix)+base64.RawURLEncoding.EncodedLen(tokenBytes) {
		return Token{}, fmt.Errorf("%w: no such token", ErrNotFound) // the database need not be asked
	}
	hash := sha256.Sum256([]byte(secret))
	var stored []byte
	var now stamp
	k, err := scanToken(l.queryRow(ctx, `SELECT `+tokenColumns+`, hash, {now} FROM @token WHERE hash = $1`, hash[:]), &stored, &now)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return Token{}, fmt.Errorf("%w: no such token", ErrNotFound)
	case err != nil:
		return Token{}, fmt.Errorf("read a token: %w", err)
	case subtle.ConstantTimeCompare(stored, hash[:]) != 1 || !k.Revoked.IsZero():
		return Token{}, fmt.Errorf("%w: no such token", ErrNotFound)
	}
	at := micros(time.Time(now))
	if l.sqlite {
		at = micros(l.clock())
	}
	if k.LastUsed.IsZero() || at.Sub(k.LastUsed) >= usedEvery {
		if err := l.tx(ctx, func(t *txn) error {
			_, err := t.exec(ctx, `UPDATE @token SET last_used = $1 WHERE hash = $2 AND (last_used IS NULL OR last_used < $1)`, stamp(at), hash[:])
			return err
		}); err != nil {
			return Token{}, fmt.Errorf("note the use of token %s: %w", k.Name, err)
		}
		k.LastUsed = at
	}
	return k, nil
}

// ListTokens returns all tokens by name, revoked ones too.
func (l *Ledger) ListTokens(ctx context.Context) ([]Token, error) {
	rows, err := l.query(ctx, `SELECT `+tokenColumns+` FROM @token ORDER BY name`)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	tokens, err := collect(rows, func(row scanner) (Token, error) { return scanToken(row) })
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}
	return tokens, nil
}

// RevokeToken makes a token good for nothing from now on, for good. To revoke it again changes nothing. No token of that
// name is ErrNotFound.
func (l *Ledger) RevokeToken(ctx context.Context, name string) error {
	err := l.tx(ctx, func(t *txn) error {
		now, err := t.clock(ctx)
		if err != nil {
			return err
		}
		revoked, err := t.execOne(ctx, `UPDATE @token SET revoked = $1 WHERE name = $2 AND revoked IS NULL`, stamp(now), name)
		if err != nil {
			return err
		}
		if !revoked {
			var known int64
			if err := t.queryRow(ctx, `SELECT count(*) FROM @token WHERE name = $1`, name).Scan(&known); err != nil {
				return err
			}
			if known == 0 {
				return fmt.Errorf("%w: no token of that name", ErrNotFound)
			}
			return nil
		}
		return t.audit(entry{action: ActionTokenRevoked, body: struct {
			Name string `json:"name"`
		}{name}})
	})
	if err != nil {
		return fmt.Errorf("revoke token %q: %w", name, err)
	}
	return nil
}

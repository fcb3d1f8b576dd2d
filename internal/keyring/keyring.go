// Package keyring owns the installation's secret and everything derived from
// it: the keyed hashes that name rows, the seal around cursors and kept keys,
// and the keys of batches. Its one invariant: the secret itself is used only to
// derive, so no two purposes, and no two tables, ever share a key.
package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
)

// MinSecret is the least number of bytes a secret has once decoded.
const MinSecret = 32

// A secret has at least this many different byte values, and its base64 text this many different letters. 32 random bytes have
// fewer than 16 with a probability below 10^-13; a repeated word decodes as base64 into bytes that look random, and has few
// letters.
const (
	minDistinct        = 8
	minDistinctLetters = 12
)

const (
	sealVersion = 1
	keyIDLen    = 4
	sealHeader  = 1 + keyIDLen
	gcmOverhead = 12 + 16 // random nonce and tag
)

var (
	// ErrWeakSecret is returned for a secret that is too short or is visibly a
	// placeholder.
	ErrWeakSecret = errors.New("the installation's key is too weak")
	// ErrOtherKey is returned by Open for something sealed under another
	// installation's key.
	ErrOtherKey = errors.New("sealed with another key than this installation's")
	// ErrSeal is returned by Open when the bytes were changed, cut, or sealed
	// for another context.
	ErrSeal = errors.New("the seal is broken")
)

// Keyring derives what an installation needs from its secret. It is safe for
// concurrent use; the RowHashers it makes are not.
type Keyring struct {
	secret []byte
	id     [keyIDLen]byte
	aead   cipher.AEAD // AES-256-GCM, 96-bit random nonces: good for 2^32 seals
	macKey []byte
}

// New makes a keyring from a secret given as hex, as base64 (either alphabet,
// padded or not) or as raw bytes. Text is trimmed of surrounding white space
// first, so a key file may end in a newline. Text that could be hex or base64 is
// measured by what it decodes to: 32 hex digits are 16 bytes, and too few.
func New(secret []byte) (*Keyring, error) {
	raw, form := decode(secret)
	if len(raw) < MinSecret {
		return nil, fmt.Errorf("%w: it is %d bytes (read as %s), at least %d are needed: make one with `openssl rand -hex 32`",
			ErrWeakSecret, len(raw), form, MinSecret)
	}
	if distinct(raw) < minDistinct || form == "base64" && distinct(secret) < minDistinctLetters {
		return nil, fmt.Errorf("%w: it repeats itself like a placeholder: make one with `openssl rand -hex 32`", ErrWeakSecret)
	}

	k := &Keyring{secret: raw}
	id, err := k.derive("curfew key id v1", keyIDLen)
	if err != nil {
		return nil, err
	}
	copy(k.id[:], id)
	sealKey, err := k.derive("curfew seal v1", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(sealKey)
	if err != nil {
		return nil, err
	}
	if k.aead, err = cipher.NewGCMWithRandomNonce(block); err != nil {
		return nil, err
	}
	if k.macKey, err = k.derive("curfew mac v1", sha256.Size); err != nil {
		return nil, err
	}
	return k, nil
}

// distinct counts the different byte values. A repeated word can decode as
// base64 into bytes that look random, so New counts its letters too.
func distinct(p []byte) int {
	var seen [256]bool
	n := 0
	for _, b := range p {
		if !seen[b] {
			seen[b] = true
			n++
		}
	}
	return n
}

// decode reads a secret's text form and says which one it took it for.
func decode(secret []byte) (raw []byte, form string) {
	text, ok := printable(secret)
	if !ok {
		return append([]byte(nil), secret...), "raw bytes"
	}
	if b, err := hex.DecodeString(text); err == nil {
		return b, "hex"
	}
	for _, enc := range []*base64.Encoding{
		base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding,
	} {
		if b, err := enc.DecodeString(text); err == nil {
			return b, "base64"
		}
	}
	return []byte(text), "raw text"
}

// printable trims white space when the whole secret is printable ASCII. Raw
// bytes are left alone: a trailing 0x0a may be part of them.
func printable(secret []byte) (string, bool) {
	space := func(b byte) bool { return b == ' ' || b == '\t' || b == '\r' || b == '\n' }
	for _, b := range secret {
		if (b < 0x20 || b > 0x7e) && !space(b) {
			return "", false
		}
	}
	for len(secret) > 0 && space(secret[0]) {
		secret = secret[1:]
	}
	for len(secret) > 0 && space(secret[len(secret)-1]) {
		secret = secret[:len(secret)-1]
	}
	return string(secret), true
}

func (k *Keyring) derive(info string, n int) ([]byte, error) {
	return hkdf.Key(sha256.New, k.secret, nil, info, n)
}

// ID names the key in eight hex digits. It is stored beside everything the key
// made, and tells nothing about the key.
func (k *Keyring) ID() string { return hex.EncodeToString(k.id[:]) }

// Seal encrypts plaintext for context, which Open must repeat: a cursor cut out
// of one run and pasted into another does not open. Two seals of one text
// differ.
func (k *Keyring) Seal(plaintext, context []byte) []byte {
	dst := make([]byte, sealHeader, sealHeader+len(plaintext)+gcmOverhead)
	dst[0] = sealVersion
	copy(dst[1:], k.id[:])
	return k.aead.Seal(dst, nil, plaintext, k.aad(dst[:sealHeader], context))
}

// Open returns what Seal was given, or ErrOtherKey or ErrSeal.
func (k *Keyring) Open(sealed, context []byte) ([]byte, error) {
	if len(sealed) < sealHeader+gcmOverhead || sealed[0] != sealVersion {
		return nil, ErrSeal
	}
	if id := sealed[1:sealHeader]; string(id) != string(k.id[:]) {
		return nil, fmt.Errorf("%w: key id %x, ours is %x", ErrOtherKey, id, k.id)
	}
	plaintext, err := k.aead.Open(nil, nil, sealed[sealHeader:], k.aad(sealed[:sealHeader], context))
	if err != nil {
		return nil, ErrSeal
	}
	return plaintext, nil
}

// aad binds the header too: a changed version or key id breaks the seal.
func (k *Keyring) aad(header, context []byte) []byte {
	return append(append(make([]byte, 0, len(header)+len(context)), header...), context...)
}

// MAC is HMAC-SHA-256 over a label and parts, each with its length before it,
// so that no two different lists of parts read the same.
func (k *Keyring) MAC(label string, parts ...[]byte) [32]byte {
	h := hmac.New(sha256.New, k.macKey)
	var n [8]byte
	write := func(p []byte) {
		binary.BigEndian.PutUint64(n[:], uint64(len(p)))
		h.Write(n[:])
		h.Write(p)
	}
	write([]byte(label))
	for _, p := range parts {
		write(p)
	}
	var sum [32]byte
	h.Sum(sum[:0])
	return sum
}

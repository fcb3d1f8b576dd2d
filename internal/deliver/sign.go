package deliver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A Signer signs as Standard Webhooks says. A nil one signs nothing.
type Signer struct{ key []byte }

// NewSigner reads a secret: whsec_ and base64. "" is no signer.
func NewSigner(secret string) (*Signer, error) {
	if secret == "" {
		return nil, nil
	}
	coded, found := strings.CutPrefix(secret, "whsec_")
	key, err := base64.StdEncoding.DecodeString(coded)
	if !found || err != nil || len(key) == 0 {
		return nil, errors.New("the webhook's secret is whsec_ and base64")
	}
	return &Signer{key}, nil
}

// Sign sets the headers of a webhook. The id is the same for each attempt, so that a receiver can tell a repetition; the
// signature is of the id, the second it is sent at and the body, so that none of them can be exchanged.
func (s *Signer) Sign(h http.Header, id string, at time.Time, body []byte) {
	h.Set("Webhook-Id", id)
	h.Set("Webhook-Timestamp", strconv.FormatInt(at.Unix(), 10))
	if s == nil {
		return
	}
	mac := hmac.New(sha256.New, s.key)
	fmt.Fprintf(mac, "%s.%d.", id, at.Unix())
	mac.Write(body)
	h.Set("Webhook-Signature", "v1,"+base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

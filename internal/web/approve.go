package web

import (
	"bytes"
	"context"
	"net/http"

	"curfew.dev/curfew/internal/ledger"
)

// approve lets a run go on that waits for approval. The body may say why.
func (s *server) approve(r *http.Request, token ledger.Token) (any, error) {
	if err := checkType(r); err != nil {
		return nil, err
	}
	text, err := readText(nil, r)
	if err != nil {
		return nil, err
	}
	reason := ""
	if len(bytes.TrimSpace(text)) > 0 {
		if err := decodeObject(text, map[string]any{"reason": &reason}, `the body is {} or {"reason": "…"}`); err != nil {
			return nil, err
		}
	}
	if len(reason) > maxReason {
		return nil, refuse(http.StatusUnprocessableEntity, "", "the reason is longer than %d bytes", maxReason)
	}
	// What lets a run go on must not be half known because the caller hung up.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), within)
	defer cancel()
	return s.engine.Approve(ctx, r.PathValue("id"), token.Name, reason)
}

const maxReason = 2000

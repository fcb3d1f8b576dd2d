package curfew

import (
	"context"
	"crypto/sha256"
	"fmt"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/web"
)

// TriggerRequest asks for a run of a policy.
type TriggerRequest struct {
	Policy string
	Stage  string // needed where the policy has several
	Shadow bool   // change nothing, whatever the policy's mode
	// Operation names the request: the same again is the same run, for ever. Without it the answer is the open run, or else that of
	// this minute.
	Operation string
}

// Trigger asks for a run, and returns as soon as it is in the ledger; a service on the ledger, this one or another, does the work. It
// is what POST /v1/policies/POLICY/runs does. Run does the work itself and waits for it.
func (c *Curfew) Trigger(ctx context.Context, req TriggerRequest) (api.Run, error) {
	l, err := c.ledger(ctx)
	if err != nil {
		return api.Run{}, err
	}
	e := &engine{c: c, l: l, kick: make(chan struct{}, 1), kickCalls: make(chan struct{}, 1)}
	if b := c.emb.Load(); b != nil {
		e = b.e
	} else if e.read, err = l.Now(ctx); err != nil {
		return api.Run{}, ledgerError(err)
	}
	asked := web.TriggerRequest{Policy: req.Policy, Stage: req.Stage, Shadow: req.Shadow, Key: req.Operation,
		BodyHash: sha256.Sum256(fmt.Appendf(nil, "%q %t", req.Stage, req.Shadow))}
	done, err := front{func() *engine { return e }}.Trigger(ctx, asked)
	return done.Run, err
}

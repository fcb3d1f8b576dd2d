package curfew

import (
	"context"

	"curfew.dev/curfew/api"
)

var errNotWired = fail(KindUnavailable, "", "not wired yet")

// Explain says of one row whether it is due, and why. The key's values are given in the order of the policy's key.
func (c *Curfew) Explain(ctx context.Context, policy string, key []string) (api.Explanation, error) {
	return api.Explanation{}, errNotWired
}

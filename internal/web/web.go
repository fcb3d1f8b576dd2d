// Package web is curfew over HTTP: the trigger, the lists, health and metrics.
//
// Its one invariant: nothing that a caller sends decides anything before its token is known and has the scope, and of
// every request for a run with a valid token the ledger has a row that says what came of it.
package web

import (
	"context"
	"time"

	"curfew.dev/curfew/api"
)

// Engine is what the requests are about; the root package implements it. Its errors go through Options.Problem. Its
// methods may be called concurrently.
type Engine interface {
	// Trigger asks for a run now, or at AsOf. It returns as soon as the run is in the ledger.
	Trigger(ctx context.Context, req TriggerRequest) (Triggered, error)
	// Cancel ends an open run for good; of one that has ended it is an error.
	Cancel(ctx context.Context, id, actor string) (api.Run, error)
	// Approve lets a run go on that waits for approval; of any other it is an error.
	Approve(ctx context.Context, id, actor, reason string) (api.Run, error)
	// Runs lists runs, the last accepted first, and says where to read on: "" at the end.
	Runs(ctx context.Context, f RunFilter) (runs []api.Run, next string, err error)
	// Run gives one run; id may be a prefix that names one.
	Run(ctx context.Context, id string) (api.RunDetail, error)
	// Policies says how each policy stage is doing.
	Policies(ctx context.Context) ([]api.PolicyStatus, error)
	// Occurrences lists scheduled instants, the latest first, and says where to read on.
	Occurrences(ctx context.Context, f OccurrenceFilter) (items []api.OccurrenceItem, next string, err error)
	// Ready names everything that must work, and what is wrong with it.
	Ready(ctx context.Context) []Check
}

// TriggerRequest asks for a run.
type TriggerRequest struct {
	Policy, Stage string     // of the path and the body; whether there are such is the engine's to say
	AsOf          *time.Time // the caller has the scope for it, and Key is set
	Shadow        bool
	Key           string   // Idempotency-Key, or ""
	BodyHash      [32]byte // of what the body means: spaces and order make no other one
	Token         string   // the token's name, for the audit log
}

// Triggered is the run that a request led to.
type Triggered struct {
	Run   api.Run
	Fresh bool // the request made it
}

// RunFilter selects runs. Zero fields select all.
type RunFilter struct {
	Policy, State string
	Before        string // the next of the last answer
	Limit         int    // always set
}

// OccurrenceFilter selects occurrences. Zero fields select all.
type OccurrenceFilter struct {
	Policy, Stage, State string
	Before               string // the next of the last answer
	Limit                int    // always set
}

// Check is one thing that must work for the process to be ready.
type Check struct {
	Name string
	Err  error // nil when it works
}

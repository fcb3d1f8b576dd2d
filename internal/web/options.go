package web

import (
	"errors"
	"log/slog"
	"net/http"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
)

// Options say what to serve.
type Options struct {
	Ledger  *ledger.Ledger          // for tokens, calls, the audit log and the metrics; needed
	Engine  Engine                  // needed
	Holds   Holds                   // nil: there is nothing at /v1/holds
	Tasks   Tasks                   // nil: there is nothing at /v1/tasks
	Problem func(error) api.Problem // what to answer to an error of the engine; default: 500, and the error in the log only
	Metrics *Metrics                // default NewMetrics(); give one to count what others do
	Logger  *slog.Logger            // default: none
	Clock   func() time.Time        // for limits and caches; default time.Now

	CallsPerSecond float64 // of one token; default 10
	CallBurst      int     // default 50
	// Refused requests of one address: without a valid token or without the scope. Beyond it the answer is 429.
	RefusedPerSecond float64 // default 1
	RefusedBurst     int     // default 20
}

// New returns the handler of the whole HTTP interface.
func New(o Options) (http.Handler, error) {
	if o.Ledger == nil || o.Engine == nil {
		return nil, errors.New("web: a ledger and an engine are needed")
	}
	return newServer(o), nil
}

// Server is an HTTP server for the handler, with the limits that keep a slow or broken client from holding anything. The
// caller listens, and shuts it down.
func Server(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 15 * time.Second, WriteTimeout: 60 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
}

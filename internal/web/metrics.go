package web

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Metrics are the counters of this process, in a registry of its own. The gauges of the ledger come to them at each scrape.
// Labels are names from policy files and words of the program, never what a caller sent.
type Metrics struct {
	registry     *prometheus.Registry
	triggers     *prometheus.CounterVec
	unauthorised *prometheus.CounterVec
	retries      prometheus.Counter
	waits        *prometheus.CounterVec
}

// NewMetrics returns metrics that have counted nothing.
func NewMetrics() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		triggers: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "curfew_triggers_total",
			Help: "Requests for a run over HTTP to this process, by the status that they were answered with."}, []string{"answer"}),
		unauthorised: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "curfew_unauthorised_total",
			Help: "Requests to this process without a valid token (401) or without the scope (403)."}, []string{"answer"}),
		retries: prometheus.NewCounter(prometheus.CounterOpts{Name: "curfew_batch_retries_total",
			Help: "Batches that this process tried again."}),
		waits: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "curfew_admission_waits_total",
			Help: "Batches that were not admitted at once, by reason."}, []string{"reason"}),
	}
	for _, answer := range []string{"401", "403"} {
		m.unauthorised.WithLabelValues(answer) // a series that is not there before its first event has no increase
	}
	for _, answer := range []string{"202", "401", "403", "404", "409", "422", "429", "500", "503"} {
		m.triggers.WithLabelValues(answer)
	}
	for _, reason := range []string{"busy", "unavailable"} { // what a worker pool says
		m.waits.WithLabelValues(reason)
	}
	m.registry.MustRegister(m.triggers, m.unauthorised, m.retries, m.waits,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// BatchRetried counts a batch that was tried again.
func (m *Metrics) BatchRetried() { m.retries.Inc() }

// AdmissionWaited counts a batch that was not admitted at once. The reason is one of the program's own words, never text
// from outside: it becomes a label.
func (m *Metrics) AdmissionWaited(reason string) { m.waits.WithLabelValues(reason).Inc() }

// handler serves the counters and the gauges.
func (m *Metrics) handler(g *gauges, log *slog.Logger) http.Handler {
	ledger := prometheus.NewRegistry() // its own: several handlers may share the counters
	ledger.MustRegister(g)
	serve := promhttp.HandlerFor(prometheus.Gatherers{m.registry, ledger}, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError), MaxRequestsInFlight: 4,
		ErrorHandling: promhttp.ContinueOnError,
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.refresh(r.Context()); err != nil {
			log.WarnContext(r.Context(), "metrics_incomplete", "err", err)
		}
		serve.ServeHTTP(w, r)
	})
}

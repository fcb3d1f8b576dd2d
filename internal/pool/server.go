package pool

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/ledger"
)

// Options say what a server works with.
type Options struct {
	Token   string          // callers must show it; never empty
	Jobs    Jobs            // needed
	Sealer  dispatch.Sealer // with the key of this side; needed
	Workers int             // batches executed at once, at least one
	Logger  *slog.Logger    // default: none
}

// Server answers the requests of dispatchers and executes batches. What it remembers only makes answers shorter: the receipts in
// the database are what a batch that comes again is answered from.
type Server struct {
	o     Options
	token [32]byte // SHA-256
	mux   *http.ServeMux
	tasks tasks
}

// New returns a server. Close it after the last request.
func New(o Options) (*Server, error) {
	if o.Token == "" || o.Jobs == nil || o.Sealer == nil || o.Workers < 1 {
		return nil, errors.New("pool: a token, jobs, a sealer and a worker are needed")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{o: o, token: sha256.Sum256([]byte(o.Token)), mux: http.NewServeMux()}
	s.tasks.most = o.Workers
	s.mux.Handle("POST "+pathPages, s.answer(s.page))
	s.mux.Handle("POST "+pathBatches, s.answer(s.batch))
	s.mux.Handle("POST "+pathSplits, s.answer(s.split))
	s.mux.Handle("POST "+pathCounts, s.answer(s.count))
	s.mux.Handle("GET "+pathDatabases, s.answer(s.databases))
	s.mux.HandleFunc("GET "+pathHealth, func(w http.ResponseWriter, _ *http.Request) {
		write(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	s.mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		writeProblem(w, problem{Problem: api.Problem{Status: http.StatusNotFound, Detail: "a worker pool has nothing at this address"}})
	})
	return s, nil
}

// HTTP is an HTTP server for it, with limits that keep a slow or broken client from holding anything for long.
func (s *Server) HTTP() *http.Server {
	return &http.Server{
		Handler: s, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 3 * time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelWarn),
	}
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	s.mux.ServeHTTP(w, r)
}

// Close lets the batches in hand end until ctx is done, then stops them: their receipts tell whoever asks next.
func (s *Server) Close(ctx context.Context) error { return s.tasks.close(ctx) }

// refusal is a problem as an error.
type refusal struct {
	problem
	retryAfter time.Duration // 0: none
}

func (r *refusal) Error() string { return r.Detail }

func refuse(status int, hint, format string, args ...any) *refusal {
	return &refusal{problem: problem{Problem: api.Problem{Status: status, Hint: hint, Detail: fmt.Sprintf(format, args...)}}}
}

// answer makes a handler of a function, for who shows the token.
func (s *Server) answer(fn func(w http.ResponseWriter, r *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			if p := recover(); p != nil {
				s.o.Logger.ErrorContext(r.Context(), "pool_panic", "pattern", r.Pattern, "err", p, "stack", string(debug.Stack()))
				writeProblem(w, problem{Problem: api.Problem{Status: http.StatusInternalServerError, Detail: "this is a bug of curfew; the pool's log says more"}})
			}
		}()
		err := s.authorise(r)
		if err == nil {
			err = fn(w, r)
		}
		if err == nil {
			return
		}
		ref := refusalOf(err)
		if ref.Status >= http.StatusInternalServerError {
			s.o.Logger.WarnContext(r.Context(), "pool_request_failed", "pattern", r.Pattern, "status", ref.Status, "err", err)
		}
		if ref.retryAfter > 0 {
			w.Header().Set("Retry-After", strconv.Itoa(max(1, int(ref.retryAfter.Seconds()))))
		}
		if ref.Status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="curfew pool"`)
		}
		writeProblem(w, ref.problem)
	})
}

// refusalOf says how an error is answered. What the target says of a database is told: it quotes no data.
func refusalOf(err error) *refusal {
	var (
		own     *refusal
		refused *Refused
		stop    *dispatch.StopError
	)
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &stop):
		own = refuse(http.StatusConflict, "", "%s", stop.Error())
		own.Why = whyStop + stop.Why
	case errors.As(err, &refused):
		own = refuse(http.StatusConflict, refused.Hint, "%s", refused.Detail)
		own.Why = whyRefused
	default:
		own = refuse(http.StatusBadGateway, "", "%s", err.Error())
	}
	return own
}

func (s *Server) authorise(r *http.Request) error {
	if headers := r.Header.Values("Authorization"); len(headers) == 1 {
		scheme, token, found := strings.Cut(headers[0], " ")
		sum := sha256.Sum256([]byte(strings.TrimSpace(token)))
		if found && strings.EqualFold(scheme, "bearer") && subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1 {
			return nil
		}
	}
	return refuse(http.StatusUnauthorized, "the token under workers in the dispatcher's policy file is the pool's CURFEW_POOL_TOKEN", "the pool's token is needed")
}

// read reads a body strictly: what a newer dispatcher says and this pool does not know must not be left undone.
func read(w http.ResponseWriter, r *http.Request, into any) error {
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if errors.As(err, new(*http.MaxBytesError)) {
		return refuse(http.StatusRequestEntityTooLarge, "a smaller batch: rows: in the policy", "the body is larger than %d bytes", maxBody)
	}
	if err != nil {
		return refuse(http.StatusBadRequest, "", "the body could not be read to its end")
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(into); err != nil {
		return refuse(http.StatusUnprocessableEntity, "dispatcher and pool are to be of one version of curfew; update the pool first", "the body is not what it has to be: %v", err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return refuse(http.StatusUnprocessableEntity, "", "there is something after the body's JSON")
	}
	return nil
}

// check refuses what cannot be a run.
func (r *Run) check() error {
	if id, err := hex.DecodeString(r.ID); err != nil || len(id) != 32 || r.ID != strings.ToLower(r.ID) {
		return refuse(http.StatusUnprocessableEntity, "", "run is no id of a run")
	}
	if r.AsOf.IsZero() || r.Cutoff.IsZero() || r.Stage == "" && r.Cutoff.After(r.AsOf) { // what a stage may do is known with its policy
		return refuse(http.StatusUnprocessableEntity, "", "the cutoff is not before as_of")
	}
	return nil
}

// seal keeps a run's key values to this side; nothing stays nothing.
func (s *Server) seal(run, what string, plain []byte) []byte {
	if len(plain) == 0 {
		return nil
	}
	return s.o.Sealer.Seal(plain, []byte("pool\x00"+what+"\x00"+run))
}

func (s *Server) open(run, what string, sealed []byte) ([]byte, error) {
	if len(sealed) == 0 {
		return nil, nil
	}
	plain, err := s.o.Sealer.Open(sealed, []byte("pool\x00"+what+"\x00"+run))
	if err != nil {
		return nil, &dispatch.StopError{Why: "sealed_otherwise", Err: fmt.Errorf("what the pool sealed for run %.12s: %w", run, err)}
	}
	return plain, nil
}

// key names a batch: the same rows of a run are the same batch, whenever they are paged.
func (s *Server) key(run string, b *dispatch.Batch) ledger.BatchKey {
	return s.o.Sealer.MAC("pool batch", []byte(run), []byte(b.Phase), b.Bounds, b.Keys)
}

func (s *Server) wire(run string, b dispatch.Batch) wireBatch {
	return wireBatch{Key: s.key(run, &b).String(), Phase: b.Phase, Rows: b.Rows, Bounds: s.seal(run, "bounds", b.Bounds), Keys: s.seal(run, "keys", b.Keys)}
}

func rowsOf(rows int) (int, error) {
	if rows < 1 {
		return 0, refuse(http.StatusUnprocessableEntity, "", "rows is not at least 1")
	}
	return min(rows, maxRows), nil
}

func (s *Server) page(w http.ResponseWriter, r *http.Request) error {
	var req pageRequest
	if err := cmp.Or(read(w, r, &req), req.check()); err != nil {
		return err
	}
	rows, err := rowsOf(req.Rows)
	if err != nil {
		return err
	}
	cursor, err := s.open(req.ID, "cursor", req.Cursor)
	if err != nil {
		return err
	}
	job, err := s.o.Jobs.Bind(r.Context(), req.Run)
	if err != nil {
		return err
	}
	var a pageAnswer
	if a.Clock, err = job.Clock(r.Context()); err != nil {
		return err
	}
	p, err := job.Page(r.Context(), cursor, rows)
	if err != nil {
		return err
	}
	if len(req.Plan) == 0 {
		a.Plan = job.Plan()
	}
	a.Cursor, a.Done = s.seal(req.ID, "cursor", p.Cursor), p.Done
	if p.Batch != nil {
		b := s.wire(req.ID, *p.Batch)
		a.Batch = &b
	}
	write(w, http.StatusOK, a)
	return nil
}

func (s *Server) split(w http.ResponseWriter, r *http.Request) error {
	var req splitRequest
	if err := cmp.Or(read(w, r, &req), req.check()); err != nil {
		return err
	}
	rows, err := rowsOf(req.Rows)
	if err != nil {
		return err
	}
	handedOn, err := s.open(req.ID, "handed on", req.HandedOn)
	if err != nil {
		return err
	}
	job, err := s.o.Jobs.Bind(r.Context(), req.Run)
	if err != nil {
		return err
	}
	parts, err := job.Split(r.Context(), handedOn, rows)
	if err != nil {
		return err
	}
	a := splitAnswer{Batches: []wireBatch{}}
	for _, b := range parts {
		a.Batches = append(a.Batches, s.wire(req.ID, b))
	}
	write(w, http.StatusOK, a)
	return nil
}

func (s *Server) databases(w http.ResponseWriter, _ *http.Request) error {
	write(w, http.StatusOK, databasesAnswer{Items: s.o.Jobs.Databases()})
	return nil
}

func writeProblem(w http.ResponseWriter, p problem) {
	p.Type = cmp.Or(p.Type, "about:blank")
	p.Title = cmp.Or(p.Title, http.StatusText(p.Status))
	w.Header().Set("Content-Type", "application/problem+json")
	write(w, p.Status, p)
}

func write(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil { // only our own types come here, and all of them can be told
		panic(err)
	}
	if w.Header().Get("Content-Type") == "" {
		w.Header().Set("Content-Type", "application/json")
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n')) // a client that went away is no news
}

package curfew

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/dispatch"
	"curfew.dev/curfew/internal/keyring"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/pool"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/internal/worker"
	"curfew.dev/curfew/policy"
)

// What follows is the side of the dispatcher: a database with workers: in the policy file is worked on by a pool beside it.

// pool is the client of the pool that works on a database; nil when this process does.
func (c *Curfew) pool(database string) *pool.Client {
	conf := c.file.Databases[database]
	if conf == nil || conf.Workers == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	client := c.far[database]
	if client == nil {
		client = pool.NewClient(pool.ClientOptions{URL: conf.Workers.URL, Token: conf.Workers.Token, Waits: shortWaits, Logger: c.log})
		c.far[database] = client
	}
	return client
}

// checkPool asks the pool whether it works on the database. What it thinks of the policies it says when a run begins.
func checkPool(ctx context.Context, database string, client *pool.Client) api.Finding {
	names, err := client.Databases(ctx)
	switch {
	case err != nil:
		return api.Finding{Level: api.LevelUnreachable, Code: "pool_unreachable", Message: fmt.Sprintf("the worker pool at %s: %v", client.Host(), err),
			Hint: "is curfew worker --listen running there, and are its address and token those under workers?"}
	case !slices.Contains(names, database):
		return api.Finding{Level: api.LevelRefuse, Code: "pool_without_database", Message: fmt.Sprintf("the worker pool at %s has no database %s", client.Host(), database),
			Hint: "name it so in the policy file of the pool, with its url"}
	}
	return api.Finding{Level: api.LevelGood, Code: "pool", Message: "the worker pool at " + client.Host() + " works on it; curfew check with its policy file looks at the tables"}
}

// bindPool makes the work of a run that a pool does.
func (c *Curfew) bindPool(l *ledger.Ledger, run ledger.Run, p *policy.Policy, keys *keyring.Keyring, client *pool.Client) *work {
	_, revision := p.Revision()
	w := &work{c: c, l: l, run: run, p: p, keys: keys}
	w.counts = farCounter{w}
	w.remote = client.Remote(pool.RemoteOptions{
		Run: pool.Run{ID: run.ID, Stage: run.Stage, Live: live(run), Revision: string(revision), AsOf: run.AsOf, Cutoff: run.Cutoff, Mode: run.Mode, Plan: run.Plan}, Now: l.Now, MaxSkew: maxSkew,
		Attempts: p.Retry.Attempts, Backoff: p.Retry.Backoff, Factor: p.Retry.Factor,
		Retried: func() {
			if w.retried != nil {
				w.retried()
			}
		}})
	return w
}

// startRemote begins the run, or goes on with it. The pool compares the table with the plan whenever it is asked.
func (w *work) startRemote(ctx context.Context) error {
	plan := w.run.Plan
	if w.run.State == ledger.Accepted {
		var err error
		plan, err = w.remote.Begin(ctx, w.p.Batch.Rows)
		var stop *dispatch.StopError
		if errors.As(err, &stop) {
			return w.fail(ctx, stop.Why, stop)
		}
		if err != nil {
			return poolError(err)
		}
	}
	if err := w.running(ctx, plan); err != nil || over(w.run) {
		return err
	}
	w.remote.Adopt(w.run.Plan)
	return nil
}

func (w *work) remoteOptions() dispatch.Options {
	f := far{w.remote, w}
	return dispatch.Options{Ledger: w.l, Pager: f, Pool: f, Worker: f, Sealer: w.keys, Batch: w.p.Batch, Logger: w.c.log, Weigh: w.weigh, Window: w.window()}
}

// far is a pool whose errors are ours.
type far struct {
	r *pool.Remote
	w *work
}

func (f far) Page(ctx context.Context, cursor []byte, rows int) (dispatch.Page, error) {
	p, err := f.r.Page(ctx, cursor, rows)
	return p, poolError(err)
}

func (f far) Split(ctx context.Context, handedOn []byte, rows int) ([]dispatch.Batch, error) {
	parts, err := f.r.Split(ctx, handedOn, rows)
	return parts, poolError(err)
}

func (f far) Offer(ctx context.Context, b dispatch.Batch) error {
	if f.w.run.Mode != string(policy.Shadow) {
		if err := f.w.noHoldPending(ctx); err != nil {
			return err
		}
	}
	return poolError(f.r.Offer(ctx, b))
}

func (f far) Execute(ctx context.Context, b dispatch.Batch) (dispatch.Done, error) {
	done, err := f.r.Execute(ctx, b)
	return done, poolError(err)
}

// farCounter has a pool count.
type farCounter struct{ w *work }

func (f farCounter) changing(ctx context.Context, limit int64) (int64, error) {
	n, err := f.w.remote.CountChanging(ctx, limit)
	return n, poolError(err)
}

func (f farCounter) scope(ctx context.Context, limit int64) (int64, error) {
	n, err := f.w.remote.CountScope(ctx, limit)
	return n, poolError(err)
}

func (f farCounter) compare(ctx context.Context, old *policy.Policy) (was, extra int64, err error) {
	enforced := *old
	enforced.Mode = policy.Enforce // the pool asks that a run and its text have the same
	_, text := enforced.Revision()
	c, err := f.w.remote.Compare(ctx, string(text))
	if err == nil && c.Fault != "" {
		err = &incomparableError{c.Fault}
	}
	return c.Was, c.Extra, poolError(err)
}

// poolError sorts the errors of a pool. Those that the dispatcher acts on stay as they are.
func poolError(err error) error {
	var refused *pool.Refused
	switch {
	case errors.As(err, &refused):
		return &Error{Kind: KindRefused, Hint: refused.Hint, Err: err}
	case errors.As(err, new(*pool.Unreachable)):
		return &Error{Kind: KindUnreachable, Hint: "is curfew worker --listen running beside the data? its address is under workers", Err: oneLine(err)}
	}
	return err
}

// What follows is the side of the data.

// PoolOptions say how to serve as a worker pool.
type PoolOptions struct {
	Listen string // address
	Token  string // callers must show it
	// Stop, when it is closed, ends the service: batches in hand are finished within StopWithin. Cancelling the context ends it at once.
	Stop <-chan struct{}
	// Listening, when set, is called with the address once requests are answered.
	Listening func(addr string)
}

// ServePool works on the databases of the policy file for dispatchers elsewhere, which ask over HTTP. It needs no ledger, and its
// key is its own.
func ServePool(ctx context.Context, opts Options, po PoolOptions) error {
	if err := policy.CheckPoolToken(po.Token); err != nil {
		return &Error{Kind: KindConfig, Err: err, Hint: "put it into CURFEW_POOL_TOKEN, and into token: under workers in the policy file of the dispatcher"}
	}
	c, err := New(opts)
	if err != nil {
		return err
	}
	defer c.Close()
	keys, err := c.keys()
	if err != nil {
		return err
	}
	jobs := &poolJobs{c: c, keys: keys, bound: map[[32]byte]*boundJob{}}
	if len(jobs.Databases()) == 0 {
		return fail(KindConfig, "a pool is beside a database, and its policy file has that one's url", "%s has no database with a url", c.fileName())
	}
	srv, err := pool.New(pool.Options{Token: po.Token, Jobs: jobs, Sealer: keys, Workers: c.file.Engine.Workers - c.file.Engine.Reserved, Logger: c.log})
	if err != nil {
		return err
	}
	ln, err := net.Listen("tcp", po.Listen)
	if err != nil {
		return &Error{Kind: KindRefused, Err: fmt.Errorf("listen on %s: %w", po.Listen, err), Hint: "is another worker pool serving there?"}
	}
	server, ended := srv.HTTP(), make(chan error, 1)
	go func() { ended <- server.Serve(ln) }()
	c.log.InfoContext(ctx, "listening", "address", ln.Addr().String(), "databases", jobs.Databases())
	if po.Listening != nil {
		po.Listening(ln.Addr().String())
	}
	select {
	case err = <-ended:
	case <-ctx.Done():
	case <-po.Stop:
		c.log.InfoContext(ctx, "stopping", "within", StopWithin)
	}
	return errors.Join(err, stopPool(ctx, srv, server, c))
}

// stopPool ends a pool. Dispatchers are answered until the batches in hand have come to their end.
func stopPool(ctx context.Context, srv *pool.Server, server *http.Server, c *Curfew) error {
	late, cancel := context.WithTimeout(ctx, StopWithin)
	defer cancel()
	if err := srv.Close(late); err != nil {
		c.log.WarnContext(ctx, "batches_stopped", "err", err)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(last); err != nil {
		return server.Close()
	}
	return nil
}

// poolJobs binds the runs of dispatchers to the databases here.
type poolJobs struct {
	c    *Curfew
	keys *keyring.Keyring

	mu    sync.Mutex // guards bound
	bound map[[32]byte]*boundJob
}

// boundJob is a run bound to its table, kept while it is asked about.
type boundJob struct {
	once sync.Once
	job  *poolJob
	err  error
	used time.Time // guarded by poolJobs.mu
}

var _ pool.Jobs = (*poolJobs)(nil)

// Databases names what is worked on here.
func (j *poolJobs) Databases() []string {
	return slices.DeleteFunc(j.c.DatabaseNames(), func(name string) bool { return j.c.file.Databases[name].Workers != nil })
}

// Bind makes a job of a run, once while its requests come.
func (j *poolJobs) Bind(ctx context.Context, r pool.Run) (pool.Job, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	id := sha256.Sum256(text)
	j.mu.Lock()
	k := j.bound[id]
	if k == nil {
		k = &boundJob{}
		j.bound[id] = k
		for other, old := range j.bound {
			if other != id && time.Since(old.used) > idleWork {
				delete(j.bound, other)
			}
		}
	}
	k.used = time.Now()
	j.mu.Unlock()
	k.once.Do(func() { k.job, k.err = j.bind(ctx, r) })
	if k.err != nil || len(r.Plan) == 0 { // a run that begins is looked at anew when it is asked about again
		j.mu.Lock()
		delete(j.bound, id)
		j.mu.Unlock()
	}
	if k.err != nil {
		return nil, k.err
	}
	return k.job, nil
}

// bind looks at everything that curfew looks at before it works on a run, but for the ledger's clock.
func (j *poolJobs) bind(ctx context.Context, r pool.Run) (*poolJob, error) {
	p, err := j.policy(r)
	if err != nil {
		return nil, &pool.Refused{Detail: err.Error(), Hint: HintOf(err)}
	}
	db, table, err := j.c.usable(ctx, p)
	switch KindOf(err) {
	case KindRefused, KindConfig, KindNotFound, KindUsage:
		return nil, &pool.Refused{Detail: err.Error(), Hint: HintOf(err)}
	}
	if err != nil {
		return nil, err
	}
	now, err := db.Now(ctx)
	if err != nil {
		return nil, err
	}
	if r.AsOf.After(now.Add(maxSkew)) {
		return nil, &pool.Refused{Detail: fmt.Sprintf("as_of %s lies in the future: the clock of database %s says %s", r.AsOf.Format(time.RFC3339), p.Database, now.Format(time.RFC3339)),
			Hint: "set the clocks (NTP); nothing was changed"}
	}
	job, err := target.NewJob(db, target.JobOptions{Policy: p, Table: table, AsOf: r.AsOf, Cutoff: r.Cutoff, Live: r.Live, Shadow: r.Mode == string(policy.Shadow), Run: r.ID,
		Keys: j.keys, Logger: j.c.log})
	if err != nil {
		return nil, &pool.Refused{Detail: err.Error(), Hint: "curfew check " + p.Name + " beside the data says more"}
	}
	b := &poolJob{pager: pager{job}, jobs: j, db: db, plan: r.Plan, run: r,
		executor: executor{&worker.Worker{Job: job, AsOf: r.AsOf, KeyID: j.keys.ID(), Waits: shortWaits, Logger: j.c.log}}}
	return b, b.begin(ctx)
}

// policy reads the policy of a run, as strictly as a policy file: it comes from another machine.
func (j *poolJobs) policy(r pool.Run) (*policy.Policy, error) {
	p, err := policy.FromRevision([]byte(r.Revision))
	if err != nil {
		return nil, fail(KindRefused, "update the pool's curfew, if the dispatcher's is newer", "the policy of run %.12s: %w", r.ID, err)
	}
	whole := p
	if p, err = narrow(whole, r.Stage, "stage"); err != nil {
		return nil, err
	}
	for _, sql := range whole.SQL() {
		if err := policy.CheckSQL(sql); err != nil {
			return nil, fmt.Errorf("policy %s: %w", p.Name, err)
		}
	}
	if p.Action.Kind.Tells() && p.Mode != policy.Shadow {
		// Its secrets would be taken from this machine, and sent wherever another one says.
		return nil, fail(KindRefused, "name the database with its url in the file of a service that may send", "policy %s: action %s is not available in a worker pool", p.Name, p.Action.Kind)
	}
	if r.Mode != string(p.Mode) {
		return nil, fmt.Errorf("run %.12s has mode %q, and its policy %q", r.ID, r.Mode, p.Mode)
	}
	if !slices.Contains(j.Databases(), p.Database) {
		return nil, fail(KindRefused, "name it so in the policy file of the pool, with its url", "the worker pool has no database %q", p.Database)
	}
	return p, nil
}

// poolJob is a run as the pool's server works on it.
type poolJob struct {
	pager
	executor
	jobs *poolJobs
	db   *target.DB
	run  pool.Run
	plan json.RawMessage
}

// begin chooses how the run pages, or holds the table against what was chosen.
func (b *poolJob) begin(ctx context.Context) error {
	now, err := b.job.Begin(ctx)
	if err != nil {
		return err
	}
	if len(b.plan) == 0 {
		if b.plan, err = json.Marshal(now); err != nil {
			return err
		}
	}
	var began target.Start
	if err := json.Unmarshal(b.plan, &began); err != nil {
		return &pool.Refused{Detail: "the plan of the run cannot be read"}
	}
	err = b.job.Adopt(began, now)
	if stop := worker.AsStop(err); stop != nil {
		return &dispatch.StopError{Why: stop.Why, Err: stop}
	}
	return err
}

func (b *poolJob) Plan() json.RawMessage { return b.plan }

func (b *poolJob) CountChanging(ctx context.Context, limit int64) (int64, error) {
	return b.job.CountChanging(ctx, limit)
}

func (b *poolJob) CountScope(ctx context.Context, limit int64) (int64, error) {
	return b.job.CountScope(ctx, limit)
}

// Compare reads the other text as strictly as a run's: it comes from another machine too.
func (b *poolJob) Compare(ctx context.Context, text string) (pool.Comparison, error) {
	run := b.run
	run.Revision = text
	old, err := b.jobs.policy(run)
	if err != nil {
		return pool.Comparison{Fault: err.Error()}, nil
	}
	was, extra, err := b.jobs.c.compare(ctx, b.job, old, run.AsOf)
	if not := (*incomparableError)(nil); errors.As(err, &not) {
		return pool.Comparison{Fault: not.why}, nil
	}
	return pool.Comparison{Was: was, Extra: extra}, err
}

func (b *poolJob) Clock(ctx context.Context) (time.Time, error) { return b.db.Now(ctx) }

func (b *poolJob) GiveUp(ctx context.Context, batch dispatch.Batch, reason string) (dispatch.Done, error) {
	return b.executor.giveUp(ctx, batch, errors.New(reason))
}

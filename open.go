package curfew

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"curfew.dev/curfew/internal/keyring"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/pool"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/policy"
	"curfew.dev/curfew/task"
)

// Options say how to open curfew.
type Options struct {
	ConfigPath string       // the policy file; a relative SQLite path in it starts from the file's folder
	Config     *policy.File // the file itself, instead of ConfigPath
	// Ledger, where neither is given, is the ledger's URL: of an application that has tasks and no policies. sqlite::memory: is a
	// ledger that is gone with the Curfew, for tests.
	Ledger string
	Tasks  []*task.Task // what the application does itself; their crons may come from the environment, see EnvPrefix
	// Queues has more workers in this process for queues of the application's tasks, or fewer, by name; where neither it nor the policy file
	// says anything a queue has 4.
	Queues map[string]int
	// EnvPrefix replaces CURFEW_ in the names of variables: PORTAL_ gives PORTAL_TASK_CLEAR_SESSIONS_CRON.
	EnvPrefix string
	// Getenv replaces os.LookupEnv for these variables.
	Getenv func(string) (string, bool)
	Logger *slog.Logger // default slog.Default()
	Actor  string       // who is asking, for the audit log; default user@host
	// Clock replaces the machine's clock, which is that of SQLite, ledger and governed database alike. Servers have their own.
	Clock func() time.Time
}

// Curfew is an open policy file with the databases that it names. Its methods may be called concurrently.
type Curfew struct {
	file  *policy.File
	log   *slog.Logger
	actor string
	clock func() time.Time // nil: the machine's
	stray []policy.StrayVariable

	lent *ledger.Ledger // somebody else's, who closes it

	mu  sync.Mutex // guards what follows; held while something is opened, so that it is opened once
	led *ledger.Ledger
	dbs map[string]*governed
	far map[string]*pool.Client // of databases that a worker pool works on
	key *keyring.Keyring

	ways ways // to those who are told

	tasks   map[string]*definition
	queues  map[string]int // of Options
	inserts *inserting     // for calls; nil until it is needed

	starting sync.Mutex
	emb      atomic.Pointer[embedded] // nil until it is started
}

// New reads the policy file, if there is one. The ledger and the databases are opened when they are first needed, so that a
// command which needs none works while all of them are down.
func New(opts Options) (*Curfew, error) {
	c := &Curfew{file: opts.Config, log: opts.Logger, actor: opts.Actor, clock: opts.Clock, dbs: map[string]*governed{}, far: map[string]*pool.Client{}}
	if c.log == nil {
		c.log = slog.Default()
	}
	if c.actor == "" {
		c.actor = whoami()
	}
	lookup := opts.Getenv
	if lookup == nil {
		lookup = os.LookupEnv
	}
	switch {
	case opts.Ledger != "" && (c.file != nil || opts.ConfigPath != ""):
		return nil, fail(KindConfig, "leave Options.Ledger out", "the policy file says where the ledger is, and so does Options.Ledger")
	case c.file != nil:
	case opts.ConfigPath == "" && opts.Ledger == "":
		return nil, fail(KindConfig, "give Options.Ledger, such as sqlite:app.db or postgres://…, or Options.ConfigPath, a policy file", "nothing says where the ledger is")
	case opts.ConfigPath == "" && !strings.HasPrefix(opts.Ledger, "sqlite:") && !strings.HasPrefix(opts.Ledger, "postgres://") && !strings.HasPrefix(opts.Ledger, "postgresql://"):
		return nil, fail(KindConfig, "sqlite:FILE, sqlite::memory: or postgres://…", "Options.Ledger is not the URL of a ledger")
	case opts.ConfigPath == "":
		c.file = policy.Empty(opts.Ledger)
	default:
		file, err := load(opts.ConfigPath, lookup, opts.EnvPrefix)
		if err != nil {
			return nil, err
		}
		var own []string
		for _, t := range opts.Tasks {
			own = append(own, t.Name())
		}
		c.file, c.stray = file, file.StrayEnv(os.Environ(), opts.EnvPrefix, own...)
	}
	var err error
	c.queues = opts.Queues
	if c.tasks, err = define(c.file, opts.Tasks, opts.EnvPrefix, lookup); err != nil {
		return nil, err
	}
	return c, nil
}

// load reads the policy file. Errors in it say themselves what to do.
func load(path string, lookup func(string) (string, bool), prefix string) (*policy.File, error) {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, fail(KindConfig, "--config FILE or CURFEW_CONFIG says where it is; curfew init URL --write "+path+" makes one",
			"there is no policy file %s", path)
	}
	file, err := policy.Load(path)
	if err != nil {
		return nil, &Error{Kind: KindConfig, Hint: "nothing was done; correct the file and run curfew check", Err: err}
	}
	if err := file.ApplyEnv(lookup, prefix); err != nil {
		return nil, &Error{Kind: KindConfig, Hint: "nothing was done; correct the environment, or the file", Err: err}
	}
	return file, nil
}

func whoami() string {
	name, host := "unknown", "localhost"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}

// Close closes the databases that were opened.
func (c *Curfew) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for name, g := range c.dbs {
		g.mu.Lock()
		if g.db != nil {
			errs = append(errs, g.db.Close())
		}
		g.mu.Unlock()
		delete(c.dbs, name)
	}
	for _, client := range c.far {
		client.Close()
	}
	c.ways.close()
	errs = append(errs, c.inserts.close())
	c.inserts = nil
	if c.led != nil && c.led != c.lent {
		errs = append(errs, c.led.Close())
	}
	c.led = nil
	return errors.Join(errs...)
}

// PolicyNames lists the policies of the file, sorted.
func (c *Curfew) PolicyNames() []string {
	names := make([]string, len(c.file.Policies))
	for i, p := range c.file.Policies {
		names[i] = p.Name
	}
	return names
}

// DatabaseNames lists the databases of the file, sorted.
func (c *Curfew) DatabaseNames() []string {
	var names []string
	for name := range c.file.Databases {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// fileName is how messages name the policy file.
func (c *Curfew) fileName() string { return cmp.Or(c.file.Path, "the policy file") }

// policies are the named policies, or all of them.
func (c *Curfew) policies(names []string) ([]*policy.Policy, error) {
	if len(names) == 0 {
		return c.file.Policies, nil
	}
	var found []*policy.Policy
	for _, name := range names {
		p, err := c.policy(name)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(found, p) {
			found = append(found, p)
		}
	}
	return found, nil
}

func (c *Curfew) policy(name string) (*policy.Policy, error) {
	p, err := c.file.Policy(name)
	if err != nil {
		return nil, &Error{Kind: KindNotFound, Hint: "the policies are in " + c.fileName() + "; --config names another file", Err: err}
	}
	return p, nil
}

// local makes the path of a SQLite URL start from the folder of the policy file, so that it names one file wherever the
// command is called from. Other URLs stay as they are.
func (c *Curfew) local(url string) string {
	path, ok := strings.CutPrefix(url, "sqlite:")
	if !ok || c.file.Path == "" || path == "" {
		return url
	}
	path = strings.TrimPrefix(path, "//")
	if filepath.IsAbs(path) {
		return "sqlite:" + path
	}
	return "sqlite:" + filepath.Join(filepath.Dir(c.file.Path), path)
}

// ledgerFile is the file of a SQLite ledger.
func (c *Curfew) ledgerFile() (string, bool) {
	if c.file.Ledger == inMemory {
		return "", false
	}
	return strings.CutPrefix(c.local(c.file.Ledger), "sqlite:")
}

// noLedgerYet reports whether the ledger is a SQLite file that nobody has made.
func (c *Curfew) noLedgerYet() bool {
	path, ok := c.ledgerFile()
	if !ok {
		return false
	}
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}

// inMemory is the URL of a ledger that is gone with its process.
const inMemory = "sqlite::memory:"

func (c *Curfew) ledgerOptions() ledger.Options {
	o := ledger.Options{URL: c.local(c.file.Ledger), Actor: c.actor, Logger: c.log, Clock: c.clock}
	if c.file.Ledger == inMemory {
		o.URL, o.Memory = "", true
	}
	return o
}

// ledger opens the ledger. A SQLite ledger is made when it is not there.
func (c *Curfew) ledger(ctx context.Context) (*ledger.Ledger, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.led != nil {
		return c.led, nil
	}
	if c.lent != nil {
		c.led = c.lent
		return c.led, nil
	}
	l, err := ledger.Open(ctx, c.ledgerOptions())
	if err != nil {
		return nil, ledgerError(err)
	}
	c.led = l
	return l, nil
}

// now is the ledger's clock. It is asked for without making a ledger.
func (c *Curfew) now(ctx context.Context) (time.Time, error) {
	if c.noLedgerYet() {
		if c.clock != nil {
			return c.clock().UTC().Truncate(time.Microsecond), nil
		}
		return time.Now().UTC().Truncate(time.Microsecond), nil
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return time.Time{}, err
	}
	now, err := l.Now(ctx)
	if err != nil {
		return time.Time{}, ledgerError(err)
	}
	return now, nil
}

// connectWithin is how long a governed database may take to answer the first time.
const connectWithin = 15 * time.Second

// governed is a governed database that is opened when it is first needed. Each has a lock of its own: one that does not answer keeps
// nobody from the others.
type governed struct {
	mu sync.Mutex
	db *target.DB
}

// database opens a governed database.
func (c *Curfew) database(ctx context.Context, name string) (*target.DB, error) {
	conf, err := c.databaseConfig(name)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	g := c.dbs[name]
	if g == nil {
		g = &governed{}
		c.dbs[name] = g
	}
	c.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.db != nil {
		return g.db, nil
	}
	connect, cancel := context.WithTimeout(ctx, connectWithin)
	defer cancel()
	db, err := target.Open(connect, name, c.local(conf.URL), target.OpenOptions{MaxConns: conf.MaxWorkers, Logger: c.log, Clock: c.clock})
	if err != nil {
		hint := "is it up, and may we connect? its URL is under databases in " + c.fileName()
		if engineOf(conf.URL) == target.SQLite {
			hint = "a relative path starts from the folder of " + c.fileName()
		}
		return nil, &Error{Kind: KindUnreachable, Hint: hint, Err: oneLine(err)}
	}
	g.db = db
	return db, nil
}

func (c *Curfew) databaseConfig(name string) (*policy.Database, error) {
	conf, ok := c.file.Databases[name]
	if !ok {
		return nil, fail(KindNotFound, "the databases are "+strings.Join(c.DatabaseNames(), ", "), "no database %q in %s", name, c.fileName())
	}
	if conf.Workers != nil {
		return nil, fail(KindRefused, "run the command beside that pool, with its policy file", "database %s is out of reach from here: a worker pool works on it", name)
	}
	return conf, nil
}

// keys is the installation's keyring: the one of the file (or CURFEW_KEY), or, beside a SQLite ledger, that of a key
// file which is made when it is not there.
func (c *Curfew) keys() (*keyring.Keyring, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.key != nil {
		return c.key, nil
	}
	k, err := c.loadKey()
	if err != nil {
		return nil, err
	}
	c.key = k
	return k, nil
}

func (c *Curfew) loadKey() (*keyring.Keyring, error) {
	if c.file.Key != "" {
		k, err := keyring.New([]byte(c.file.Key))
		if err != nil {
			return nil, &Error{Kind: KindConfig, Hint: "openssl rand -hex 32 makes a key; give it as key: ${file:…} in the file or as CURFEW_KEY", Err: err}
		}
		return k, nil
	}
	path, ok := c.ledgerFile()
	if c.file.Ledger == inMemory {
		return keyring.New([]byte(rand.Text() + rand.Text()))
	}
	if !ok {
		return nil, fail(KindConfig, "openssl rand -hex 32 makes one; give it as key: ${file:…} in the file or as CURFEW_KEY, the same on every machine",
			"a ledger on PostgreSQL needs the installation's key")
	}
	path = strings.TrimSuffix(path, ".db") + ".key"
	k, created, err := keyring.LoadOrCreate(path)
	if err != nil {
		return nil, &Error{Kind: KindConfig, Hint: "the key names rows in the ledger; without it they cannot be recognised. Keep a copy of " + path + " in a safe place", Err: err}
	}
	if created {
		c.log.Info("key_created", "path", path)
	}
	return k, nil
}

// ledgerError sorts the errors of the ledger.
func ledgerError(err error) error {
	var (
		known     *Error
		ambiguous *ledger.AmbiguousError
		unset     *ledger.UnsetError
		future    *ledger.FutureError
		sticks    *ledger.AsOfSticksError
		owned     *ledger.OwnedError
		clock     *ledger.ClockError
		older     *ledger.MigrationNeededError
		newer     *ledger.NewerLedgerError
	)
	wrap := func(kind Kind, hint string) error { return &Error{Kind: kind, Hint: hint, Err: err} }
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, ledger.ErrNotFound):
		return wrap(KindNotFound, "curfew runs lists the runs")
	case errors.As(err, &ambiguous):
		return wrap(KindUsage, "give more digits of the id")
	case errors.As(err, &future):
		return wrap(KindUsage, "give an instant that has passed, or no as_of for now")
	case errors.As(err, &unset):
		return wrap(KindUsage, "give the instant that was meant, or no as_of for now")
	case errors.As(err, &sticks):
		return wrap(KindUsage, fmt.Sprintf("curfew show %s shows that run", shortID(sticks.Run.ID)))
	case errors.As(err, &owned):
		return wrap(KindRefused, fmt.Sprintf("curfew show %s says how far it is; it can be taken over once its process is gone", shortID(owned.Run)))
	case errors.As(err, &clock):
		return wrap(KindRefused, "correct the clock, or say that it is right with curfew migrate --accept-clock")
	case errors.As(err, &older):
		return wrap(KindRefused, "curfew migrate brings the ledger up to date")
	case errors.As(err, &newer):
		return wrap(KindRefused, "use the curfew that migrated it, or a newer one")
	case ledger.Denied(err):
		return wrap(KindUnreachable, "our role lacks a right in the ledger; curfew migrate prints the GRANTs that it needs")
	default:
		err = oneLine(err)
		return wrap(KindUnreachable, "is the ledger's database up? its URL is ledger: in the policy file")
	}
}

func shortID(id string) string { return id[:min(len(id), 12)] }

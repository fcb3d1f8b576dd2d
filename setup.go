package curfew

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/riverq"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/policy"
)

// Install creates what curfew needs in a governed database, or with printOnly only says what that is, without connecting.
func (c *Curfew) Install(ctx context.Context, database string, printOnly bool) (api.Installation, error) {
	conf, err := c.databaseConfig(database)
	if err != nil {
		return api.Installation{}, err
	}
	engine := engineOf(conf.URL)
	answer := api.Installation{
		Database: database, Engine: string(engine), Statements: target.InstallSQL(engine),
		Grants: target.GrantSQL(engine, "", target.UsesOf(c.policiesOf(database)), c.readsOf(database)),
	}
	for _, p := range c.file.Policies {
		if d := p.Action.Dependents; p.Database == database && d != nil && d.Auto && answer.Grants != nil {
			answer.Grants = append(answer.Grants, "-- and SELECT, DELETE, UPDATE on each table whose rows go along with those of "+p.Table+": curfew check "+p.Name+" names what is missing")
		}
	}
	answer.HoldGrants = list(target.HoldGrantSQL(engine, ""))
	if answer.Grants == nil {
		answer.Grants = []string{}
	}
	if printOnly {
		return answer, nil
	}
	db, err := c.database(ctx, database)
	if err != nil {
		return api.Installation{}, err
	}
	if err := db.Install(ctx); err != nil {
		return api.Installation{}, &Error{Kind: KindFailed, Err: err,
			Hint: "curfew install " + database + " --print shows the SQL, for a role that may create tables there"}
	}
	answer.Executed = true
	if !c.noLedgerYet() { // else there is none that could know it, and the first run does it
		c.noteInstalled(ctx, db)
	}
	return answer, nil
}

// engineOf is the engine that a URL is for. The file's parser has looked at the scheme.
func engineOf(url string) target.Engine {
	scheme, _, _ := strings.Cut(url, ":")
	switch scheme {
	case "postgres", "postgresql":
		return target.Postgres
	case "mysql", "mariadb":
		return target.MySQL
	default:
		return target.SQLite
	}
}

// tablesOf lists the tables of a database from which policies remove rows, sorted.
func (c *Curfew) tablesOf(database string) []string {
	var tables []string
	for _, p := range c.policiesOf(database) {
		governed := []string{p.Table}
		if d := p.Action.Dependents; d != nil {
			for _, dep := range d.List {
				governed = append(governed, dep.Table)
			}
		}
		for _, t := range governed {
			if !slices.Contains(tables, t) {
				tables = append(tables, t)
			}
		}
	}
	slices.Sort(tables)
	return tables
}

func (c *Curfew) policiesOf(database string) []*policy.Policy {
	return slices.DeleteFunc(slices.Clone(c.file.Policies), func(p *policy.Policy) bool { return p.Database != database })
}

// readsOf lists the tables of a database that runs only look at, sorted: those whose rows go along with governed ones and are
// counted, and those that the policies' own SQL reads.
func (c *Curfew) readsOf(database string) []string {
	var tables []string
	governed, engine := c.tablesOf(database), engineOf(c.file.Databases[database].URL)
	for _, p := range stagesOf(c.file.Policies) {
		if p.Database != database {
			continue
		}
		reads := slices.Clone(p.Cascade)
		for _, sql := range p.SQL() {
			reads = append(reads, target.TablesRead(engine, sql)...)
		}
		for _, t := range reads {
			if !slices.Contains(tables, t) && !slices.Contains(governed, t) {
				tables = append(tables, t)
			}
		}
	}
	slices.Sort(tables)
	return tables
}

// Migrate brings the ledger to this version's schema.
func (c *Curfew) Migrate(ctx context.Context) (api.Migration, error) {
	applied, err := ledger.Migrate(ctx, c.ledgerOptions())
	if err != nil {
		return api.Migration{}, ledgerError(err)
	}
	if applied == nil {
		applied = []string{}
	}
	if err := c.migrateQueue(ctx); err != nil {
		return api.Migration{}, err
	}
	grants, application := []string{}, []string{}
	if _, file := c.ledgerFile(); !file {
		grants, application = ledger.Grants("CURFEW_ROLE"), ledger.ApplicationGrants("APPLICATION_ROLE")
	}
	return api.Migration{Ledger: withoutSecrets(c.local(c.file.Ledger)), Applied: applied, Grants: grants, ApplicationGrants: application}, nil
}

// migrateQueue brings the queue's tables, which are in the ledger's database, to this program's version.
func (c *Curfew) migrateQueue(ctx context.Context) (err error) {
	l, err := c.ledger(ctx)
	if err != nil {
		return err
	}
	q, err := l.QueueDB(ctx)
	if err != nil {
		return ledgerError(err)
	}
	defer func() { err = errors.Join(err, q.Close()) }()
	return ledgerError(riverq.Migrate(ctx, q.DB, q.SQLite, q.Schema))
}

// AcceptClock records that the ledger's clock is right although its last entry is far from it, so that runs are accepted
// again. It returns both instants.
func (c *Curfew) AcceptClock(ctx context.Context) (now, last time.Time, err error) {
	l, err := c.ledger(ctx)
	if err != nil {
		return time.Time{}, time.Time{}, err
	}
	now, last, err = l.AcceptClock(ctx, c.actor)
	return now, last, ledgerError(err)
}

// withoutSecrets is a URL that may be shown: without user, password and parameters.
func withoutSecrets(raw string) string {
	if strings.HasPrefix(raw, "sqlite:") {
		return raw
	}
	u, err := url.Parse(raw)
	if err != nil {
		scheme, _, _ := strings.Cut(raw, ":")
		return scheme + "://…"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// Schema is the JSON Schema of the policy file.
func Schema() []byte { return policy.Schema() }

// Init looks at a database and proposes policies for its tables. A relative SQLite path starts from the current folder.
func Init(ctx context.Context, url string, logger *slog.Logger) (api.Proposal, error) {
	const forms = "a URL is postgres://user@host/database, mysql://user@host/database or sqlite:FILE"
	if scheme, _, ok := strings.Cut(url, ":"); !ok || !slices.Contains([]string{"postgres", "postgresql", "mysql", "mariadb", "sqlite"}, scheme) {
		return api.Proposal{}, fail(KindUsage, forms, "this is no URL of a database that curfew knows") // it may hold a password: it is not repeated
	}
	name := withoutSecrets(url) // the database has no name yet
	db, err := target.Open(ctx, name, url, target.OpenOptions{Logger: logger})
	if err != nil {
		return api.Proposal{}, &Error{Kind: KindUnreachable, Err: oneLine(err), Hint: forms}
	}
	defer db.Close()
	suggestions, err := db.Suggest(ctx)
	if err != nil {
		return api.Proposal{}, targetError("", err)
	}
	tables, err := db.Tables(ctx)
	if err != nil {
		return api.Proposal{}, targetError("", err)
	}
	server := db.Described()
	proposal := api.Proposal{Engine: string(server.Engine), Server: describe(server), Policies: []api.ProposedTable{}, LeftOut: []string{}}
	for _, s := range suggestions {
		proposal.Policies = append(proposal.Policies, proposed(s))
	}
	for _, t := range tables {
		if !slices.ContainsFunc(suggestions, func(s target.Suggestion) bool { return s.Table == t }) {
			proposal.LeftOut = append(proposal.LeftOut, t)
		}
	}
	return proposal, nil
}

// proposed is a suggestion as it is shown.
func proposed(s target.Suggestion) api.ProposedTable {
	t := api.ProposedTable{
		Name: s.Name, Table: s.Table, Key: list(s.Key), Trigger: "since", Column: s.Column, Options: map[string]string{}, Keep: s.Keep, Rows: s.Rows,
		Subject: s.Subject, Cascade: list(s.Cascade), Triggers: list(s.Triggers), Why: list(s.Why), Caveats: list(s.Caveats), Refusals: list(s.Refusals),
	}
	if s.Until {
		t.Trigger = "until"
	}
	for option, value := range map[string]string{"zone": s.Zone, "unit": string(s.Unit), "format": string(s.Format), "null": string(s.Null)} {
		if value != "" {
			t.Options[option] = value
		}
	}
	return t
}

// list is never nil, which JSON would show as null.
func list(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}

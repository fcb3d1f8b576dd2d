package curfew

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"curfew.dev/curfew/api"
	"curfew.dev/curfew/internal/ledger"
	"curfew.dev/curfew/internal/target"
	"curfew.dev/curfew/policy"
)

// Check looks at the ledger, at the databases of the policies, and at each policy against its live table. Without names it
// checks all policies. What is wrong, or out of reach, is a finding and no error.
func (c *Curfew) Check(ctx context.Context, names ...string) ([]api.Finding, error) {
	var policies []*policy.Policy
	if rest := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return c.tasks[n] != nil }); len(rest) > 0 || len(names) == 0 {
		var err error
		if policies, err = c.policies(rest); err != nil {
			return nil, err
		}
	}
	led, findings := c.checkLedger(ctx)
	for _, v := range c.stray {
		message, hint := strayInWords(v)
		findings = append(findings, api.Finding{Level: api.LevelWarn, Code: api.CodeStrayVariable, Message: message, Hint: hint})
	}
	dbs := map[string]*target.DB{}
	for _, name := range c.DatabaseNames() {
		of := slices.DeleteFunc(slices.Clone(policies), func(p *policy.Policy) bool { return p.Database != name })
		if len(names) > 0 && len(of) == 0 {
			continue
		}
		db, some := c.checkDatabase(ctx, led, name, of)
		findings = append(findings, some...)
		dbs[name] = db
	}
	findings = append(findings, c.checkWays(ctx, policies)...)
	for _, p := range policies {
		if db := dbs[p.Database]; db != nil {
			findings = append(findings, c.checkStages(ctx, db, p)...)
		}
	}
	return append(findings, c.checkTasks(ctx, names)...), ctx.Err()
}

// checkLedger finds out whether the ledger can be used. It does not make one.
func (c *Curfew) checkLedger(ctx context.Context) (*ledger.Ledger, []api.Finding) {
	where := withoutSecrets(c.local(c.file.Ledger))
	if c.noLedgerYet() {
		if path, _ := c.ledgerFile(); !isFolder(filepath.Dir(path)) {
			return nil, []api.Finding{{Level: api.LevelRefuse, Code: "ledger_folder", Message: "there is no folder " + filepath.Dir(path) + " for the ledger " + where,
				Hint: "make it, or correct ledger: in " + c.fileName()}}
		}
		return nil, []api.Finding{{Level: api.LevelGood, Code: "ledger_new", Message: "the ledger " + where + " will be made by the first run"}}
	}
	l, err := c.ledger(ctx)
	if err != nil {
		return nil, []api.Finding{findingOf(err, "ledger_unusable")}
	}
	findings := []api.Finding{{Level: api.LevelGood, Code: "ledger", Message: "the ledger " + where + " can be read"}}
	if _, sqlite := c.ledgerFile(); !sqlite {
		if _, err := c.keys(); err != nil && len(c.file.Policies) > 0 {
			findings = append(findings, findingOf(err, "key"))
		}
		missing, err := l.MissingRights(ctx)
		if err != nil {
			findings = append(findings, findingOf(ledgerError(err), "ledger_rights"))
		}
		for _, m := range missing {
			level := api.LevelRefuse
			if m.Queue() {
				level = api.LevelWarn // curfew run needs no queue
			}
			findings = append(findings, api.Finding{Level: level, Code: "ledger_rights", Message: "our role lacks " + m.String(),
				Hint: "curfew migrate prints the GRANTs that it needs"})
		}
	}
	return l, findings
}

func isFolder(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// findingOf is an error as a finding.
func findingOf(err error, code string) api.Finding {
	level := api.LevelRefuse
	if kind := KindOf(err); kind == KindUnreachable || kind == KindFailed {
		level = api.LevelUnreachable
	}
	return api.Finding{Level: level, Code: code, Message: err.Error(), Hint: HintOf(err)}
}

// checkDatabase finds out whether a database can be used for these policies; the database is nil when it is out of reach.
func (c *Curfew) checkDatabase(ctx context.Context, led *ledger.Ledger, name string, policies []*policy.Policy) (*target.DB, []api.Finding) {
	var findings []api.Finding
	add := func(f api.Finding) {
		f.Database = name
		findings = append(findings, f)
	}
	if client := c.pool(name); client != nil {
		add(checkPool(ctx, name, client))
		return nil, findings
	}
	db, err := c.database(ctx, name)
	if err != nil {
		add(findingOf(err, "database_unreachable"))
		return nil, findings
	}
	add(api.Finding{Level: api.LevelGood, Code: "database", Message: describe(db.Described())})
	level := api.LevelWarn
	if slices.ContainsFunc(policies, func(p *policy.Policy) bool { return p.Mode == policy.Enforce }) {
		level = api.LevelRefuse
	}
	installed := false
	switch err := db.Installed(ctx); {
	case errors.Is(err, target.ErrNotInstalled):
		add(api.Finding{Level: level, Code: "not_installed", Message: "curfew's own tables are not there",
			Hint: "run curfew install " + name + " once (--print shows what it would do)"})
	case errors.Is(err, target.ErrOldLayout):
		add(api.Finding{Level: level, Code: "old_layout", Message: err.Error(),
			Hint: "run curfew install " + name + " once more: it adds what is missing (--print shows what it would do)"})
	case err != nil:
		add(findingOf(targetError("", err), "installation"))
	default:
		installed = true
		add(api.Finding{Level: api.LevelGood, Code: "installed", Message: "curfew's own tables are there"})
		missing, err := db.CheckOwn(ctx)
		for _, f := range missing {
			add(api.Finding{Level: level, Code: f.Code, Message: f.Message, Hint: f.Hint, Statement: f.Statement})
		}
		if err != nil {
			add(findingOf(targetError("", err), "installation"))
		}
	}
	if led != nil {
		if err := c.sameClock(ctx, led, db); err != nil {
			add(findingOf(err, "clock"))
		}
		if installed && level == api.LevelRefuse {
			c.checkIdentity(ctx, led, db, add)
		}
	}
	return db, findings
}

// describe says in words what a server is.
func describe(s target.Server) string {
	product := map[target.Engine]string{target.Postgres: "PostgreSQL", target.MySQL: "MySQL", target.SQLite: "SQLite"}[s.Engine]
	if s.MariaDB {
		product = "MariaDB"
	}
	words := product + " " + s.Version
	if s.Role != "" {
		words += ", as " + s.Role
	}
	return words
}

// checkStages holds each stage of a policy against its live table. What is true of several is said once.
func (c *Curfew) checkStages(ctx context.Context, db *target.DB, p *policy.Policy) []api.Finding {
	var findings []api.Finding
	for _, q := range stages(p) {
		for _, f := range c.checkPolicy(ctx, db, q) {
			if f.Code == "schedule" && q.StageName() != "" {
				f.Message = "stage " + q.StageName() + ": " + f.Message
			}
			if !slices.Contains(findings, f) {
				findings = append(findings, f)
			}
		}
	}
	return findings
}

// checkPolicy holds a policy, or one stage of it, against its live table.
func (c *Curfew) checkPolicy(ctx context.Context, db *target.DB, p *policy.Policy) []api.Finding {
	wire := func(f api.Finding) api.Finding {
		f.Policy, f.Database = p.Name, p.Database
		return f
	}
	table, err := db.InspectFor(ctx, p)
	if err != nil && !errors.Is(err, target.ErrNoTable) {
		return []api.Finding{wire(findingOf(targetError("", err), "table_unreadable"))}
	}
	found := target.Judge(p, table, db.Described())
	var findings []api.Finding
	if err := checkTexts(p, table); err != nil && target.Refused(found) == nil {
		found = append(found, target.Finding{Level: target.LevelRefuse, Code: "template", Message: strings.TrimPrefix(err.Error(), "policy "+p.Name+": "), Hint: HintOf(err)})
	}
	if target.Refused(found) == nil {
		more, err := c.examine(ctx, db, p, table)
		found = append(found, more...)
		if err != nil {
			findings = append(findings, wire(findingOf(targetError("", err), "examination")))
		}
	}
	worst := api.LevelGood
	for _, f := range found {
		if f.Level == target.LevelRefuse || worst == api.LevelGood && f.Level == target.LevelWarn {
			worst = string(f.Level)
		}
		findings = append(findings, wire(api.Finding{Level: string(f.Level), Code: f.Code, Message: f.Message, Hint: f.Hint, Statement: f.Statement}))
	}
	if worst != api.LevelRefuse {
		good := api.Finding{Level: api.LevelGood, Code: "ready", Message: ready(p, table)}
		findings = append([]api.Finding{wire(good)}, findings...)
	}
	if now, err := c.now(ctx); err == nil && p.Schedule != nil {
		findings = append(findings, wire(api.Finding{Level: api.LevelInfo, Code: "schedule",
			Message: scheduleInWords(p) + "; next " + instantsInWords(p, nextInstants(p, now))}))
	}
	return findings
}

// examine looks at the rows of a table that is fit, and at how the database would read them.
func (c *Curfew) examine(ctx context.Context, db *target.DB, p *policy.Policy, t *target.Table) ([]target.Finding, error) {
	now, err := c.now(ctx)
	if err != nil {
		return nil, err
	}
	job, err := target.NewJob(db, target.JobOptions{Policy: p, Table: t, AsOf: now, Cutoff: p.Cutoff(now), Shadow: true, Logger: c.log})
	if err != nil {
		return nil, &Error{Kind: KindRefused, Err: err}
	}
	found, err := job.Probe(ctx)
	if err != nil || target.Refused(found) != nil {
		return found, err
	}
	more, err := job.ProbeAction(ctx)
	if found = append(found, more...); err != nil || target.Refused(found) != nil {
		return found, err
	}
	query, args := job.PageSQL(p.Batch.Rows)
	more, err = db.Examine(ctx, p, t, target.PageQuery{SQL: query, Args: args})
	return append(found, more...), err
}

// look opens a policy's database and reads its table from the catalog; an error says why the policy does not fit it.
func (c *Curfew) look(ctx context.Context, p *policy.Policy) (*target.DB, *target.Table, error) {
	db, err := c.database(ctx, p.Database)
	if err != nil {
		return nil, nil, err
	}
	table, err := db.InspectFor(ctx, p)
	if err != nil && !errors.Is(err, target.ErrNoTable) {
		return nil, nil, targetError(p.Database, err)
	}
	if err := refusal(p, target.Judge(p, table, db.Described())); err != nil {
		return db, table, err
	}
	return db, table, checkTexts(p, table)
}

// probe has the database read the policy's own SQL, and look at what its action needs; an error names what it does not accept.
func (c *Curfew) probe(ctx context.Context, p *policy.Policy, db *target.DB, table *target.Table) error {
	if len(p.SQL()) == 0 && p.Privacy == nil && len(p.Action.Columns) == 0 {
		return nil
	}
	now := time.Now()
	job, err := target.NewJob(db, target.JobOptions{Policy: p, Table: table, AsOf: now, Cutoff: p.Cutoff(now), Shadow: true, Logger: c.log})
	if err != nil {
		return &Error{Kind: KindRefused, Err: fmt.Errorf("policy %s: %w", p.Name, err), Hint: "curfew check " + p.Name + " says more"}
	}
	found, err := job.Probe(ctx)
	if err == nil && target.Refused(found) == nil {
		found, err = job.ProbeAction(ctx)
	}
	if err != nil {
		return targetError(p.Database, err)
	}
	return refusal(p, found)
}

// refusal is the first finding that refuses, as an error whose hint has the statement that would settle it; or nil.
func refusal(p *policy.Policy, found []target.Finding) error {
	for _, f := range found {
		if f.Level == target.LevelRefuse {
			hint := strings.TrimPrefix(f.Hint+"\n"+f.Statement, "\n")
			return &Error{Kind: KindRefused, Hint: strings.TrimSuffix(hint, "\n"), Err: fmt.Errorf("policy %s: %s", p.Name, f.Message)}
		}
	}
	return nil
}

// ready says what a run will go by.
func ready(p *policy.Policy, t *target.Table) string {
	words := ruleInWords(p)
	if key, err := target.ResolveKey(p, t); err == nil {
		names := make([]string, len(key))
		for i, k := range key {
			names[i] = k.Name
		}
		words += fmt.Sprintf("; a row is named by (%s)", strings.Join(names, ", "))
	}
	return words
}

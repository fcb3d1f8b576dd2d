package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"curfew.dev/curfew"
	"curfew.dev/curfew/api"
)

const initLong = `Look at a database and propose policies for the tables whose rows look as if they should
not stay for ever: sessions, tokens, logs, events with an instant in them. Changes
nothing there.

The proposal is a commented curfew.yaml. Every policy in it is in shadow mode, so a run
counts and changes nothing: read it, correct the periods, name the authority, and set
mode: enforce where you mean it. It goes to stdout, or with --write into a file, which
must not be there yet.

A password never gets into the file: the URL of a server is taken from the environment.`

func (a *app) initCommand() *cobra.Command {
	var write string
	cmd := &cobra.Command{
		Use:   "init URL",
		Short: "Look at a database and propose policies for it",
		Long:  initLong,
		Example: `  curfew init sqlite:library.db
  curfew init postgres://reader@db.example.org/library --write curfew.yaml
  curfew init "$LIBRARY_URL" --write curfew.yaml`,
		Args: args(1, 1, "the URL of a database: postgres://…, mysql://… or sqlite:FILE"),
		RunE: func(cmd *cobra.Command, args []string) error {
			proposal, err := curfew.Init(cmd.Context(), args[0], a.logger())
			if err != nil {
				return err
			}
			return a.propose(proposal, args[0], write)
		},
	}
	cmd.Flags().StringVarP(&write, "write", "w", "", "write the proposal into `FILE`, which must not be there yet")
	_ = cmd.MarkFlagFilename("write", "yaml", "yml")
	return cmd
}

// propose answers with a proposal, or writes it into a file.
func (a *app) propose(proposal api.Proposal, rawURL, write string) error {
	db := nameDatabase(rawURL, filepath.Dir(write))
	if write == "" {
		err := a.answer(proposal, func(p *printer) { p.proposal(proposal, db) })
		if err == nil && a.output == "table" {
			a.note("nothing was written; --write curfew.yaml does it")
		}
		return err
	}
	p := &printer{}
	p.proposal(proposal, db)
	f, err := os.OpenFile(write, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, fs.ErrExist) {
		return usageError("--write another file, or leave it out to see the proposal", "%s is there already and is left as it is", write)
	}
	if err != nil {
		return usageError("--write names a file in a folder that you may write to", "%w", err)
	}
	if _, err := io.WriteString(f, p.b.String()); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	a.note("wrote %s with %s in shadow mode", write, policies(len(proposal.Policies)))
	if db.variable != "" {
		a.note("it takes the database's URL from the environment: export %s='…'", db.variable)
	}
	a.note("next: read it, then curfew check --config %s", write)
	if a.output == "json" {
		return a.answer(proposal, nil)
	}
	return nil
}

func policies(n int) string {
	if n == 1 {
		return "1 policy"
	}
	return fmt.Sprintf("%d policies", n)
}

// databaseName says how a database appears in the file.
type databaseName struct {
	name     string
	url      string
	variable string // where the URL comes from; "" when it stands in the file
}

var unfit = regexp.MustCompile(`[^a-z0-9]+`)

// nameDatabase names a database after its URL, for a policy file in folder. What may hold a password stays out of the file.
func nameDatabase(rawURL, folder string) databaseName {
	if file, ok := strings.CutPrefix(rawURL, "sqlite:"); ok {
		name := word(strings.TrimSuffix(path.Base(file), path.Ext(file)))
		if !filepath.IsAbs(file) {
			if rel, err := filepath.Rel(folder, file); err == nil {
				file = filepath.ToSlash(rel)
			} else if abs, err := filepath.Abs(file); err == nil {
				file = abs
			}
		}
		return databaseName{name: name, url: "sqlite:" + file}
	}
	name := "database"
	if u, err := url.Parse(rawURL); err == nil && len(u.Path) > 1 {
		name = word(path.Base(u.Path))
	}
	variable := strings.ToUpper(name) + "_URL"
	return databaseName{name: name, url: "${" + variable + "}", variable: variable}
}

// word makes a name of lower-case letters, digits and underscores, beginning with a letter.
func word(s string) string {
	s = strings.Trim(unfit.ReplaceAllString(strings.ToLower(s), "_"), "_")
	if s == "" || s[0] < 'a' || s[0] > 'z' {
		s = "db_" + s
	}
	return strings.TrimSuffix(s[:min(len(s), 63)], "_")
}

// proposal writes a proposal as a policy file.
func (p *printer) proposal(proposal api.Proposal, db databaseName) {
	p.linef("# Proposed by curfew init after a look at the database (%s).", proposal.Server)
	p.linef("# Every policy is in shadow mode: a run counts what it would delete, and deletes nothing.")
	p.linef("# Read each one, correct its period, say who approved it, and set mode: enforce where you mean it.")
	p.linef("version: 1")
	p.linef("ledger: sqlite:curfew.db        # what was run and what came of it; postgres://… for several machines")
	p.linef("databases:")
	p.linef("  %s: {url: %s}", db.name, quoted(db.url))
	if len(proposal.Policies) == 0 {
		p.linef("# No table has a column that looks like an expiry or like the time of an event.")
		p.linef("policies: {}")
		p.leftOut(proposal.LeftOut)
		return
	}
	if !slices.ContainsFunc(proposal.Policies, func(t api.ProposedTable) bool { return len(t.Refusals) == 0 }) {
		p.linef("policies: {} # remove the braces with the first policy that you take")
	} else {
		p.linef("policies:")
	}
	for i, t := range proposal.Policies {
		if i > 0 {
			p.linef("")
		}
		p.proposedTable(t, db)
	}
	p.leftOut(proposal.LeftOut)
}

// leftOut names the tables without a proposal, so that nobody takes silence for an answer.
func (p *printer) leftOut(tables []string) {
	if len(tables) == 0 {
		return
	}
	p.linef("")
	p.linef("# Looked at and not proposed: no column there says by its name and its values when a row's time is up.")
	p.linef("# %s", wrap(oneLine(strings.Join(tables, ", ")), "# ", 100))
}

// proposedTable writes a policy. One that would be refused as it stands is commented out, with the reasons.
func (p *printer) proposedTable(t api.ProposedTable, db databaseName) {
	for _, why := range t.Why {
		p.linef("  # %s", oneLine(why))
	}
	if t.Rows >= 0 {
		p.linef("  # about %s", rowsOf(t.Rows))
	}
	for _, caveat := range t.Caveats {
		p.linef("  # LOOK: %s", oneLine(caveat))
	}
	off := ""
	for _, refusal := range t.Refusals {
		off = "# "
		p.linef("  # NOT YET: %s", oneLine(refusal))
	}
	line := func(format string, args ...any) { p.linef("  "+off+format, args...) }
	line("%s:", scalar(t.Name))
	line("  # authority: who approved this: the statute or the records schedule, and its date")
	line("  database: %s", db.name)
	line("  table: %s", scalar(t.Table))
	if len(t.Key) > 0 {
		line("  key: %s", scalars(t.Key))
	}
	if t.Keep != "" {
		line("  keep: %-24s # a guess: put the period that applies", t.Keep)
	}
	line("  %s: %s", t.Trigger, proposedTrigger(t))
	if t.Subject != "" {
		line("  subject: %s", scalar(t.Subject))
	}
	if len(t.Cascade) > 0 {
		line("  # cascade: %s  # refused until you accept, by uncommenting this, that rows there go along", scalars(t.Cascade))
	}
	if len(t.Triggers) > 0 {
		line("  # triggers: %s  # refused until you accept, by uncommenting this, what these triggers do", scalars(t.Triggers))
	}
	line("  action: delete")
	line("  mode: shadow")
}

// scalars writes a YAML list.
func scalars(all []string) string {
	texts := make([]string, len(all))
	for i, s := range all {
		texts[i] = scalar(s)
	}
	return "[" + strings.Join(texts, ", ") + "]"
}

// proposedTrigger writes the column, alone or with the options that its type needs.
func proposedTrigger(t api.ProposedTable) string {
	if len(t.Options) == 0 {
		return scalar(t.Column)
	}
	parts := []string{"column: " + scalar(t.Column)}
	for _, k := range slices.Sorted(maps.Keys(t.Options)) {
		parts = append(parts, k+": "+scalar(t.Options[k]))
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

var plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./]*$`)

// scalar writes a YAML string, quoted where it might be read as something else.
func scalar(s string) string {
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "y", "n", "null":
		return quoted(s)
	}
	if plain.MatchString(s) {
		return s
	}
	return quoted(s)
}

// quoted writes a double-quoted YAML string; JSON's are valid ones.
func quoted(s string) string {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s) // a string is always representable
	return strings.TrimSuffix(b.String(), "\n")
}

// oneLine keeps text from the database inside its comment.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

package main

import (
	"strings"

	"github.com/spf13/cobra"

	"curfew.dev/curfew/api"
)

func (a *app) installCommand() *cobra.Command {
	var printOnly bool
	cmd := &cobra.Command{
		Use:   "install DATABASE",
		Short: "Create what curfew needs in a governed database",
		Long: `Create the tables that curfew needs in a governed database: receipts, which are
written in the transaction of the change they prove, and legal holds. Running it again
changes nothing that is there.

The answer ends with the GRANTs that are the least a role needs to do the policies'
work there. curfew runs none of them: create the role and grant it what you agree with.

The database is put on record in the ledger, if there is one by then, so that a copy of it
is noticed; else the first run does that.

--print runs nothing at all and prints the SQL, for databases where somebody else
makes the changes.`,
		Example: `  curfew install library
  curfew install library --print | psql "$LIBRARY_ADMIN_URL"`,
		Args:              args(1, 1, "a database"),
		ValidArgsFunction: a.completeDatabases,
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			i, err := c.Install(cmd.Context(), args[0], printOnly)
			if err != nil {
				return err
			}
			return a.answer(i, func(p *printer) { p.installation(i) })
		},
	}
	cmd.Flags().BoolVar(&printOnly, "print", false, "only print the SQL")
	return cmd
}

// installation writes SQL, with comments around it, so that the answer can be piped into a client as it is.
func (p *printer) installation(i api.Installation) {
	if i.Executed {
		p.linef("-- %s has curfew's tables: receipts, holds, tombstones", i.Database)
	} else {
		p.linef("-- what curfew needs in %s (%s); nothing was executed:", i.Database, i.Engine)
		for _, s := range i.Statements {
			p.linef("%s;", strings.TrimSuffix(s, ";"))
		}
	}
	if len(i.Grants) > 0 {
		p.linef("")
		p.linef("-- the least that the role in the policy file's URL needs; put its name for CURFEW_ROLE:")
		for _, s := range i.Grants {
			p.linef("-- %s;", strings.TrimSuffix(strings.ReplaceAll(s, "\n", "\n-- "), ";"))
		}
	}
	if len(i.HoldGrants) > 0 {
		p.linef("")
		p.linef("-- the least that a role needs to place and release holds (curfew hold), which may be another; put its name for HOLDS_ROLE:")
		for _, s := range i.HoldGrants {
			p.linef("-- %s;", s)
		}
	}
}

package main

import (
	"github.com/spf13/cobra"
)

func (a *app) migrateCommand() *cobra.Command {
	var acceptClock bool
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the ledger to this version's schema",
		Long: `Bring the ledger to this version's schema.

A SQLite ledger is created and migrated when it is first used; a ledger on PostgreSQL
is migrated by this command, so that the role that does the daily work need not own
its tables. The answer ends with the GRANTs that such a role needs; curfew runs none of
them.

A ledger whose clock is far from its last entry accepts no run: a clock that is a year
ahead would make a year of rows due at once. --accept-clock says that the clock is
right, and puts that into the audit log under your name.`,
		Example: `  curfew migrate
  curfew migrate --output json`,
		Args: args(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			m, err := c.Migrate(cmd.Context())
			if err != nil {
				return err
			}
			if acceptClock {
				now, last, err := c.AcceptClock(cmd.Context())
				if err != nil {
					return err
				}
				a.note("the ledger's clock is taken to be right: it is %s, and the last entry was at %s", second(now), second(last))
			}
			return a.answer(m, func(p *printer) {
				if len(m.Applied) == 0 {
					p.linef("%s: nothing to do", m.Ledger)
				}
				for _, name := range m.Applied {
					p.linef("%s: applied %s", m.Ledger, name)
				}
				if len(m.Grants) > 0 {
					p.linef("")
					p.linef("-- the least that the role in the ledger's URL needs, when it does not own the schema; put its name for CURFEW_ROLE:")
				}
				for _, g := range m.Grants {
					p.linef("%s;", g)
				}
				if len(m.ApplicationGrants) > 0 {
					p.linef("")
					p.linef("-- for an application that defers calls of tasks by SELECT curfew.defer(…); put its role for APPLICATION_ROLE:")
				}
				for _, g := range m.ApplicationGrants {
					p.linef("%s;", g)
				}
			})
		},
	}
	cmd.Flags().BoolVar(&acceptClock, "accept-clock", false, "say that the ledger's clock is right, though far from its last entry")
	return cmd
}

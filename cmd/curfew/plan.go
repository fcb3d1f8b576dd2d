package main

import (
	"errors"

	"github.com/spf13/cobra"

	"curfew.dev/curfew/api"
)

func (a *app) planCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "plan [POLICY…]",
		Short: "Say what a run would do now, and change nothing",
		Long: `Say for each policy what a run that started now would do: which rows are due since
when, how many, and how many of them would stay because of a guard, a hold or a
foreign key. Changes nothing, and starts nothing.

The counts are read from the live database, so this may take as long as counting the
due rows takes there.`,
		Example: `  curfew plan
  curfew plan circulation
  curfew plan --output json | jq '.[] | {policy, due}'`,
		Args:              args(0, -1, ""),
		ValidArgsFunction: a.completePolicies(-1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.open(cmd.Context())
			if err != nil {
				return err
			}
			defer c.Close()
			plans, err := c.Plan(cmd.Context(), args...)
			if len(plans) > 0 || err == nil {
				err = errors.Join(a.answer(plans, func(p *printer) { p.plans(plans) }), err)
			}
			return err
		},
	}
}

// plans writes what each policy stage would do.
func (p *printer) plans(plans []api.PolicyPlan) {
	for i, plan := range plans {
		if i > 0 {
			p.linef("")
		}
		p.linef("%s", p.paint(bold, policyStage(plan.Policy, plan.Stage)))
		schedule := plan.Schedule
		if schedule == "" {
			schedule = "none; run it by hand, or have something call it"
		}
		mode := plan.Mode
		if mode == api.ModeShadow {
			mode += ": nothing will be changed"
		}
		p.facts("  ",
			[2]string{"authority", plan.Authority},
			[2]string{"table", plan.Table + " in " + plan.Database},
			[2]string{"rule", plan.Rule},
			[2]string{"where", plan.Where},
			[2]string{"unless", plan.Unless},
			[2]string{"mode", mode},
			[2]string{"schedule", schedule},
			[2]string{"next", instants(plan.Next)},
			[2]string{"as of", instant(plan.AsOf)},
			[2]string{"cutoff", instant(plan.Cutoff)},
			[2]string{"oldest", plan.Oldest},
			[2]string{"open run", plan.OpenRun},
			[2]string{"would wait", wrap(plan.WouldWait, "", p.columns()-14)},
		)
		rows := [][]cell{{text("  due"), number(plan.Due)}}
		add := func(name string, n int64, note string) {
			if n > 0 {
				rows = append(rows, []cell{text("  " + name), number(n), colored(faint, note)})
			}
		}
		add("of them NULL", plan.Nulls, "no trigger, which the policy calls due")
		guard := "of the due rows: kept by a guard"
		if plan.Stage != "" {
			guard += ", or waiting for an earlier stage or for notice"
		}
		add("guarded", plan.Guarded, guard)
		add("on hold", plan.Held, "of the due rows: held")
		add("blocked", plan.Blocked, "of the due rows: referenced by rows that would not go along")
		note := "rows of other tables that would go along"
		if plan.AlongPartial {
			note = "at least: " + note + "; not all of the due rows were looked at"
		}
		add("cascaded", plan.Cascaded, note)
		for _, a := range plan.Along {
			add("  "+a.Table, a.Rows, "")
		}
		add("unreadable", plan.Unreadable, "their trigger is no instant, so they are never due")
		p.linef("")
		p.table(rows)
	}
}

package main

import (
	"slices"

	"github.com/spf13/cobra"

	"curfew.dev/curfew"
)

// Completion asks the real thing: policy and database names come from the file, run ids from the ledger. Whatever goes
// wrong on the way, there is simply nothing to offer.

// completePolicies offers the policies that are not on the line yet, for the first max arguments, or for all with -1.
func (a *app) completePolicies(max int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		if max >= 0 && len(args) >= max {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return a.complete(cmd, func(c *curfew.Curfew) []string {
			return slices.DeleteFunc(c.PolicyNames(), func(name string) bool { return slices.Contains(args, name) })
		})
	}
}

// completeStages offers the stages of the policy on the line.
func (a *app) completeStages(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, func(c *curfew.Curfew) []string { return c.StageNames(args[0]) })
}

func (a *app) completeDatabases(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, (*curfew.Curfew).DatabaseNames)
}

// completeRuns offers the newest runs, with what they were.
func (a *app) completeRuns(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.complete(cmd, func(c *curfew.Curfew) []string {
		runs, err := c.Runs(cmd.Context(), curfew.RunFilter{Limit: 50})
		if err != nil {
			return nil
		}
		var names []string
		for _, r := range runs {
			names = append(names, cobra.CompletionWithDesc(shortID(r.ID), policyStage(r.Policy, r.Stage)+" as of "+second(r.AsOf)+", "+r.State))
		}
		return names
	})
}

func (a *app) complete(cmd *cobra.Command, offer func(*curfew.Curfew) []string) ([]cobra.Completion, cobra.ShellCompDirective) {
	const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
	if a.checkGlobals() != nil {
		return nil, directive
	}
	c, err := a.open(cmd.Context())
	if err != nil {
		return nil, directive
	}
	defer c.Close()
	return offer(c), directive
}

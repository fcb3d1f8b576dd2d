// Package curfew removes rows of SQL tables when a retention policy says so, exactly once, and leaves proof; and it does recurring and
// deferred work beside that.
//
// It is the hub of the module: it reads the policy file, opens the ledger and the governed databases when they are
// first needed, and hands the work to the packages that do it. The command line is a thin layer over this package, and
// another program can embed it the same way:
//
//	c, err := curfew.New(curfew.Options{ConfigPath: "curfew.yaml"})
//	if err != nil { … }
//	defer c.Close()
//	run, err := c.Run(ctx, curfew.RunRequest{Policy: "circulation"})
//
// One that keeps running has the whole engine of curfew serve with [Curfew.Start], its own tasks (package task) with [Options].Tasks,
// and calls them later with [Curfew.Defer] and [Curfew.DeferTx]. Package curfewtest is for its tests.
//
// Errors are of type *Error when there is something to tell the user: what kind it is and what to do next.
package curfew

// Package curfew deletes rows of SQL tables when a retention policy says so, exactly once, and leaves proof.
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
// Errors are of type *Error when there is something to tell the user: what kind it is and what to do next.
package curfew

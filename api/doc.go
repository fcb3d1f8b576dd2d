// Package api holds the wire types: what curfew's commands print with --output json and what its HTTP interface sends.
//
// Its one invariant: the JSON of a type is the contract. Times are UTC, an unset time is null, an outcome nobody had is
// left out, a list is never null. The package imports nothing else of this module, so that other programs can decode
// curfew's answers without taking the daemon along.
package api

package curfew

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Kind sorts errors by who can do something about them. The command line turns it into an exit code.
type Kind int

// The kinds of errors. The zero Kind is an unexpected failure and counts as KindFailed.
const (
	KindFailed      Kind = iota // the work failed
	KindUsage                   // the call makes no sense: a bad argument
	KindConfig                  // the policy file is missing or wrong
	KindNotFound                // no policy, run or database by that name
	KindRefused                 // the work is not safe to do as things stand
	KindUnreachable             // a database or the ledger is out of reach
	KindInterrupted             // the caller stopped it; it can be resumed
	KindUnavailable             // this build cannot do it
)

// Error is an error with something to tell the user.
type Error struct {
	Kind Kind
	Hint string // what to do next; one line, or several
	Err  error
}

// Error gives the message without the hint.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf is the kind of err: that of the outermost *Error in its chain.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindFailed
}

// HintOf is the hint of the outermost *Error in err's chain that has one.
func HintOf(err error) string {
	for {
		var e *Error
		if !errors.As(err, &e) {
			return ""
		}
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
}

// flatError is an error told on one line.
type flatError struct {
	text string
	err  error
}

func (e *flatError) Error() string { return e.text }
func (e *flatError) Unwrap() error { return e.err }

// oneLine puts what a driver says on several lines, one for each address it tried, on one, and each thing once.
func oneLine(err error) error {
	lines := strings.Split(err.Error(), "\n")
	if len(lines) == 1 {
		return err
	}
	var told []string
	for _, l := range lines {
		if l = strings.Join(strings.Fields(l), " "); l != "" && !slices.Contains(told, l) {
			told = append(told, l)
		}
	}
	return &flatError{strings.ReplaceAll(strings.Join(told, "; "), ":; ", ": "), err}
}

// fail makes an *Error from a format and a hint.
func fail(kind Kind, hint, format string, args ...any) *Error {
	return &Error{Kind: kind, Hint: hint, Err: fmt.Errorf(format, args...)}
}

package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Error is one thing wrong with a policy file: where it is, what it is and
// what to do.
type Error struct {
	Path         string // the file, as given
	Line, Column int    // from 1; 0 when the whole file is meant
	Field        string // policies.circulation.keep; "" when the file is no YAML
	Problem      string // the value, when it is no secret, and the rule it breaks
	Hint         string // what to do
	Source       string // the line of the file, secrets blanked out; "" when there is none
	caret        int    // column of Source to point at, 0 for none
}

// Error is the message on one line, followed by the source line and a caret.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(cmp.Or(e.Path, "curfew.yaml"))
	if e.Line > 0 {
		fmt.Fprintf(&b, ":%d:%d", e.Line, e.Column)
	}
	b.WriteString(": ")
	if e.Field != "" {
		b.WriteString(e.Field + ": ")
	}
	b.WriteString(e.Problem)
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	if e.Source != "" {
		number := fmt.Sprintf("%4d", e.Line)
		fmt.Fprintf(&b, "\n%s | %s", number, e.Source)
		if e.caret > 0 {
			// A tab before the caret must be as wide here as it is above.
			pad := strings.Map(func(r rune) rune {
				if r == '\t' {
					return r
				}
				return ' '
			}, firstRunes(e.Source, e.caret-1))
			fmt.Fprintf(&b, "\n%s | %s^", strings.Repeat(" ", len(number)), pad)
		}
	}
	return b.String()
}

func firstRunes(s string, n int) string {
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}

// Errors is everything wrong with a policy file, in the order of its lines.
// [Parse] and [Load] return their findings as this type.
type Errors []*Error

// Error is all messages, one after the other.
func (es Errors) Error() string {
	all := make([]string, len(es))
	for i, e := range es {
		all[i] = e.Error()
	}
	return strings.Join(all, "\n")
}

// Unwrap makes errors.As find the first [Error].
func (es Errors) Unwrap() []error {
	all := make([]error, len(es))
	for i, e := range es {
		all[i] = e
	}
	return all
}

// maxErrors is how many errors are worth reading at once.
const maxErrors = 50

// finish puts the errors into the order of the file and cuts off what nobody
// would read.
func (es Errors) finish() Errors {
	slices.SortStableFunc(es, func(a, b *Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	if more := len(es) - maxErrors; more > 0 {
		es = append(es[:maxErrors:maxErrors], &Error{
			Path: es[0].Path, Line: es[maxErrors].Line, Column: es[maxErrors].Column,
			Problem: fmt.Sprintf("there are %d more problems from here on", more), Hint: "fix those above first",
		})
	}
	return es
}

// fault is a problem with a value, before anyone knows where the value stood.
type fault struct{ problem, hint string }

// Error is the problem and what to do about it.
func (f *fault) Error() string {
	if f.hint == "" {
		return f.problem
	}
	return f.problem + "; " + f.hint
}

// split returns the two halves of an error, the second empty when it is no
// fault.
func split(err error) (problem, hint string) {
	if f, ok := errors.AsType[*fault](err); ok {
		return f.problem, f.hint
	}
	return err.Error(), ""
}

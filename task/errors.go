package task

import (
	"errors"
	"time"
)

// Fail makes an error final: the call has failed for good, however many attempts
// it had left. Fail(nil) is nil.
func Fail(err error) error {
	if err == nil {
		return nil
	}
	return &finalError{err}
}

// IsFinal reports whether the error, or one that it wraps, is of [Fail].
func IsFinal(err error) bool {
	_, ok := errors.AsType[*finalError](err)
	return ok
}

// RetryAfter makes an error that is tried again after d, rather than after the
// wait of the task's [Retry]. The attempt counts as any other: the last one is
// followed by none. A nil err is an error all the same, without a reason of its
// own.
func RetryAfter(d time.Duration, err error) error {
	if err == nil {
		err = errAskedAgain
	}
	return &laterError{err, max(d, 0)}
}

var errAskedAgain = errors.New("the task asked to be called again later")

// After returns the wait that [RetryAfter] asked for. What is final is not
// tried again, whoever asked.
func After(err error) (time.Duration, bool) {
	later, ok := errors.AsType[*laterError](err)
	if !ok || IsFinal(err) {
		return 0, false
	}
	return later.wait, true
}

type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }

type laterError struct {
	err  error
	wait time.Duration
}

func (e *laterError) Error() string { return e.err.Error() }
func (e *laterError) Unwrap() error { return e.err }

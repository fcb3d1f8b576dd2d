// Package deliver carries messages and requests to other systems: e-mail over SMTP, signed webhooks, HTTP calls.
//
// Its one invariant: an answer says no more than what is known. Accepted, refused and "not taken, try later" are told from
// "nobody knows", which is what is left when a connection is lost after the last byte of a message went out. What may be tried
// again after that is for the caller to decide. No error holds an address, a secret or a word of the other side: reasons go into
// the ledger.
package deliver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"
	"time"
)

// A Kind says what is known of something that was not accepted.
type Kind int

// The kinds of failures.
const (
	Refused   Kind = iota // for good: the same again would fare the same
	Later                 // it was not taken, and may be another time
	Uncertain             // it went out, and no answer came back
)

// A Failure is a message or request that was not accepted, as far as anybody knows.
type Failure struct {
	Kind   Kind
	Reason string        // without an address, a secret or a word of the other side
	After  time.Duration // what the other side asked to wait; 0: it did not say
	Down   bool          // it is the way and not this message: the next one would fare the same
}

func (f *Failure) Error() string { return f.Reason }

func refused(format string, args ...any) *Failure {
	return &Failure{Kind: Refused, Reason: fmt.Sprintf(format, args...)}
}

// down is a failure of the way.
func down(format string, args ...any) *Failure {
	return &Failure{Kind: Later, Down: true, Reason: fmt.Sprintf(format, args...)}
}

// inWords says what happened to a connection. The error's own text has the address in it.
func inWords(err error) string {
	var (
		dns     *net.DNSError
		timeout interface{ Timeout() bool }
		host    x509.HostnameError
		signer  x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		cert    *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &dns):
		return "its name cannot be resolved"
	case errors.As(err, &host), errors.As(err, &signer), errors.As(err, &invalid), errors.As(err, &cert):
		return "its certificate is not accepted"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "no way to it"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "no answer in time"
	}
	return "connection lost"
}

// RetryAfter reads seconds or an HTTP date; what is neither is no wait.
func RetryAfter(value string, now time.Time) time.Duration {
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if at, err := http.ParseTime(value); err == nil {
		return max(at.Sub(now), 0)
	}
	return 0
}

func statusInWords(status int) string {
	words := strconv.Itoa(status)
	if text := http.StatusText(status); text != "" {
		words += " " + text
	}
	return words
}

package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits say what of a policy is out of the ordinary. The zero value says
// nothing is.
type Limits struct {
	RetentionLag time.Duration `json:"retention_lag_ns,omitempty"`
	// A run that would change more than one of these waits for approval.
	MaxRows  int64  `json:"max_rows,omitempty"`
	MaxShare Share  `json:"max_share,omitempty"` // of the rows in scope
	Spike    Factor `json:"spike,omitempty"`     // times what the policy's runs usually change
}

// Stop reports whether there is a limit at which a run waits.
func (l Limits) Stop() bool { return l.MaxRows > 0 || l.MaxShare > 0 || l.Spike > 0 }

// Share is a part of a whole, in thousandths of a percent. The zero Share is
// none.
type Share int64

// Factor is a multiple, in thousandths. The zero Factor is none.
type Factor int64

var (
	shareText  = regexp.MustCompile(`^(0|[1-9][0-9]{0,2})(\.[0-9]{1,3})?%$`)
	factorText = regexp.MustCompile(`^(0|[1-9][0-9]{0,5})(\.[0-9]{1,3})?x$`)
)

// ParseShare reads 20% or 0.5%: more than nothing, at most 100%.
func ParseShare(text string) (Share, error) {
	if !shareText.MatchString(text) {
		return 0, &fault{"this is not a percentage", "write a number and a %, for example 20%"}
	}
	n := thousandths(text)
	if n == 0 || n > 100_000 {
		return 0, &fault{"a share must be more than 0% and at most 100%", "write for example 20%"}
	}
	return Share(n), nil
}

// ParseFactor reads 5x or 1.5x: more than once.
func ParseFactor(text string) (Factor, error) {
	if !factorText.MatchString(text) {
		return 0, &fault{"this is not a factor", "write a number and an x, for example 5x"}
	}
	n := thousandths(text)
	if n <= 1000 {
		return 0, &fault{"a factor must be more than 1x", "write for example 5x"}
	}
	return Factor(n), nil
}

// thousandths is a decimal with a unit of one letter, which a pattern has let
// through.
func thousandths(text string) int64 {
	whole, fraction, _ := strings.Cut(text[:len(text)-1], ".")
	n, err := strconv.ParseInt(whole+(fraction + "000")[:3], 10, 64)
	if err != nil {
		panic("policy: " + err.Error()) // the pattern bounds the digits
	}
	return n
}

func decimal(n int64, unit string) string {
	text := strconv.FormatInt(n/1000, 10)
	if rest := n % 1000; rest != 0 {
		text += strings.TrimRight(fmt.Sprintf(".%03d", rest), "0")
	}
	return text + unit
}

// String is the share as the file has it.
func (s Share) String() string { return decimal(int64(s), "%") }

// MarshalText writes the share as [Share.String] does.
func (s Share) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads a share, see [ParseShare].
func (s *Share) UnmarshalText(text []byte) (err error) {
	*s, err = ParseShare(string(text))
	return err
}

// Of is the most whole rows that the share is of n.
func (s Share) Of(n int64) int64 {
	return n/100_000*int64(s) + n%100_000*int64(s)/100_000
}

// Whole is the fewest rows of which n rows are no more than the share.
func (s Share) Whole(n int64) int64 {
	if s <= 0 {
		return 0
	}
	whole := n / int64(s) * 100_000
	rest := n % int64(s) * 100_000
	whole += rest / int64(s)
	if rest%int64(s) != 0 {
		whole++
	}
	return whole
}

// String is the factor as the file has it.
func (f Factor) String() string { return decimal(int64(f), "x") }

// MarshalText writes the factor as [Factor.String] does.
func (f Factor) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads a factor, see [ParseFactor].
func (f *Factor) UnmarshalText(text []byte) (err error) {
	*f, err = ParseFactor(string(text))
	return err
}

// Times is x times the factor.
func (f Factor) Times(x float64) float64 { return x * float64(f) / 1000 }

// Effect is what of the policy decides which rows go, as one text: two policies
// of the same effect remove the same rows at the same as_of. What is not known
// to be without effect, such as a setting that a later version adds, is in it.
// Of a narrowed policy it is that of its stage, with all that comes before it.
func (p *Policy) Effect() string {
	q := *p
	q.whole, q.stage, q.Stages = nil, nil, slices.Clone(p.Stages)
	for i := range q.Stages {
		q.Stages[i].Schedule = nil
	}
	q.Description, q.Authority, q.After, q.Lock = "", "", "", ""
	q.Mode, q.Schedule, q.Windows = Enforce, nil, nil // when it runs, not what it removes
	q.Batch, q.Retry, q.Limits = Batch{}, Retry{}, Limits{}
	id, _ := q.Revision()
	return id
}

func (b *builder) limits(raw *rawLimits) Limits {
	if raw == nil {
		return Limits{}
	}
	l := Limits{RetentionLag: b.duration(raw.RetentionLag, 0, time.Minute, maxDays*24*time.Hour)}
	if raw.MaxRows.set() {
		if l.MaxRows = int64(raw.MaxRows.value); l.MaxRows < 1 || l.MaxRows > maxLimitRows {
			b.bad(raw.MaxRows.leaf, &fault{fmt.Sprintf("it must be from 1 to %d", maxLimitRows), "leave it out for no limit"})
		}
	}
	var err error
	if raw.MaxShare.set() {
		if l.MaxShare, err = ParseShare(raw.MaxShare.String()); err != nil {
			b.bad(raw.MaxShare.leaf, err)
		}
	}
	if raw.Spike.set() {
		if l.Spike, err = ParseFactor(raw.Spike.String()); err != nil {
			b.bad(raw.Spike.leaf, err)
		}
	}
	return l
}

// maxLimitRows is more than a run is let do unasked.
const maxLimitRows = 2_000_000_000

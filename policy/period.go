package policy

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// Period is a length of time as a retention schedule states it: a calendar
// part, counted in the policy's time zone, and an exact part.
type Period struct {
	Years  int
	Months int
	Exact  time.Duration // 1d is exactly 24 h, 1w 168 h, whatever the clocks do
}

// The longest periods. An exact one is bounded by time.Duration, and a longer
// one is meant as calendar years anyway.
const (
	maxYears = 1000
	maxDays  = 36525 // a hundred years
	// maxNumber is more than the longest period has of any unit, and far from where time.Duration ends.
	maxNumber = maxDays * 24 * 60 * 60
)

var (
	simplePeriod = regexp.MustCompile(`^([0-9]+)(s|m|h|d|w|mo|y)$`)
	isoPeriod    = regexp.MustCompile(`^P(?:([0-9]+)Y)?(?:([0-9]+)M)?(?:([0-9]+)W)?(?:([0-9]+)D)?(?:T(?:([0-9]+)H)?(?:([0-9]+)M)?(?:([0-9]+)S)?)?$`)
)

// ParsePeriod reads a period: a whole number and a unit (90s, 36h, 730d, 2w,
// 6mo, 2y; m is minutes, mo months) or ISO 8601 (P1Y6M, P30D, PT36H). Zero,
// blank, negative, fractional and unit-less texts are refused: other products
// read them as "everything", "the default", "off" or "for ever".
func ParsePeriod(text string) (Period, error) {
	if m := simplePeriod.FindStringSubmatch(text); m != nil {
		n, err := number(m[1])
		if err != nil {
			return Period{}, err
		}
		var p Period
		switch m[2] {
		case "y":
			p.Years, err = calendar(n, 1)
		case "mo":
			p.Months, err = calendar(n, 12)
		default:
			p.Exact, err = exact(n, m[2])
		}
		if err != nil {
			return Period{}, err
		}
		return p, p.positive()
	}
	if m := isoPeriod.FindStringSubmatch(text); m != nil && !strings.HasSuffix(text, "T") && text != "P" {
		return parseISO(m)
	}
	return Period{}, periodFault(text)
}

func parseISO(m []string) (Period, error) {
	var p Period
	total := time.Duration(0)
	for i, unit := range []string{"y", "mo", "w", "d", "h", "m", "s"} {
		if m[i+1] == "" {
			continue
		}
		n, err := number(m[i+1])
		if err != nil {
			return Period{}, err
		}
		var d time.Duration
		switch unit {
		case "y":
			p.Years, err = calendar(n, 1)
		case "mo":
			p.Months, err = calendar(n, 12)
		default:
			d, err = exact(n, unit)
		}
		if err != nil {
			return Period{}, err
		}
		if total += d; total > maxDays*24*time.Hour {
			return Period{}, tooLong
		}
	}
	p.Exact = total
	return p, p.positive()
}

var (
	tooLong   = &fault{"the period is too long", fmt.Sprintf("at most %dy, or %dd where days are counted", maxYears, maxDays)}
	zeroFault = &fault{"a period must be greater than zero", "write for example 2y"}
)

// units are the exact ones.
var units = map[string]time.Duration{
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "h": time.Hour, "d": 24 * time.Hour, "w": 7 * 24 * time.Hour,
}

func number(digits string) (int64, error) {
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || n > maxNumber {
		return 0, tooLong
	}
	if n == 0 {
		return 0, nil
	}
	if digits[0] == '0' {
		return 0, &fault{"a period has no leading zeros", fmt.Sprintf("write %d and its unit", n)}
	}
	return n, nil
}

func calendar(n int64, perYear int64) (int, error) {
	if n > maxYears*perYear {
		return 0, tooLong
	}
	return int(n), nil
}

func exact(n int64, unit string) (time.Duration, error) {
	if n > int64(maxDays*24*time.Hour/units[unit]) {
		return 0, tooLong
	}
	return time.Duration(n) * units[unit], nil
}

func (p Period) positive() error {
	if p.IsZero() {
		return zeroFault
	}
	return nil
}

// periodFault finds out what was meant.
func periodFault(text string) error {
	trimmed := strings.TrimSpace(text)
	lower := strings.ToLower(trimmed)
	number := strings.TrimLeft(lower, "0123456789")
	digits := lower[:len(lower)-len(number)]
	switch {
	case trimmed == "":
		return &fault{"a period is blank", "write for example 2y"}
	case lower == "0" || lower == "-0" || lower == "0.0":
		return zeroFault
	case strings.HasPrefix(lower, "-") || strings.HasPrefix(lower, "p-"):
		return &fault{"a period cannot be negative", "write for example 2y"}
	case number == "" && digits != "":
		return &fault{"a period needs a unit", fmt.Sprintf("write for example %sd (s, m, h, d, w, mo, y)", digits)}
	case trimmed != text:
		return &fault{"a period has no spaces around it", "write for example 2y"}
	case text == digits+"M":
		return &fault{"a period in M is ambiguous", fmt.Sprintf("write %smo for months, %sm for minutes", digits, digits)}
	case digits != "" && longUnits[strings.TrimSpace(number)] != "":
		return &fault{"a period is a number and a short unit", "write " + digits + longUnits[strings.TrimSpace(number)]}
	}
	return &fault{"this is not a period", "write a whole number and a unit (90s, 36h, 730d, 2w, 6mo, 2y) or ISO 8601 (P1Y6M)"}
}

var longUnits = map[string]string{
	"y": "y", "yr": "y", "yrs": "y", "year": "y", "years": "y", "mo": "mo", "mon": "mo", "month": "mo", "months": "mo",
	"w": "w", "week": "w", "weeks": "w", "d": "d", "day": "d", "days": "d", "h": "h", "hr": "h", "hour": "h", "hours": "h",
	"m": "m", "min": "m", "minute": "m", "minutes": "m", "s": "s", "sec": "s", "second": "s", "seconds": "s",
}

// IsZero reports whether the period has no length.
func (p Period) IsZero() bool { return p == Period{} }

// String is the shortest text that [ParsePeriod] reads back as p: 2y, 6mo, 36h,
// P1Y6M. It is "" for the zero period.
func (p Period) String() string {
	switch {
	case p.IsZero():
		return ""
	case p.Exact == 0 && p.Months == 0:
		return fmt.Sprintf("%dy", p.Years)
	case p.Exact == 0 && p.Years == 0:
		return fmt.Sprintf("%dmo", p.Months)
	case p.Years == 0 && p.Months == 0:
		return exactText(p.Exact)
	}
	var b strings.Builder
	b.WriteByte('P')
	part := func(n int64, unit byte) {
		if n != 0 {
			b.WriteString(strconv.FormatInt(n, 10))
			b.WriteByte(unit)
		}
	}
	part(int64(p.Years), 'Y')
	part(int64(p.Months), 'M')
	const day = 24 * time.Hour
	part(int64(p.Exact/day), 'D')
	if rest := p.Exact % day; rest != 0 {
		b.WriteByte('T')
		part(int64(rest/time.Hour), 'H')
		part(int64(rest%time.Hour/time.Minute), 'M')
		part(int64(rest%time.Minute/time.Second), 'S')
	}
	return b.String()
}

// exactText writes a duration in its largest whole unit.
func exactText(d time.Duration) string {
	for _, unit := range []string{"d", "h", "m", "s"} {
		if d%units[unit] == 0 {
			return fmt.Sprintf("%d%s", d/units[unit], unit)
		}
	}
	return fmt.Sprintf("%dms", d/time.Millisecond)
}

// MarshalText writes the period as [Period.String] does.
func (p Period) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads a period, see [ParsePeriod].
func (p *Period) UnmarshalText(text []byte) (err error) {
	*p, err = ParsePeriod(string(text))
	return err
}

var simpleDuration = regexp.MustCompile(`^([0-9]+)(ms|s|m|h|d)$`)

// parseDuration reads a machine's duration, such as a timeout: 500ms, 90s,
// 10m, 1h, 2d.
func parseDuration(text string) (time.Duration, error) {
	m := simpleDuration.FindStringSubmatch(text)
	if m == nil {
		return 0, &fault{"this is not a duration", "write a whole number and a unit: 500ms, 90s, 10m, 1h, 2d"}
	}
	n, err := strconv.ParseInt(m[1], 10, 64)
	switch {
	case err != nil || n > int64(maxDays*24*time.Hour/units[m[2]]):
		return 0, &fault{"the duration is too long", "write for example 10m"}
	case n == 0:
		return 0, &fault{"a duration must be greater than zero", "write for example 10m"}
	}
	return time.Duration(n) * units[m[2]], nil
}

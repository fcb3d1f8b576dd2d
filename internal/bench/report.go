package main

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// report is one part of the document.
type report struct{ strings.Builder }

func newReport(s *settings, about string) *report {
	r := &report{}
	command := "make bench"
	if s.args != "" {
		command += " ARGS='" + s.args + "'"
	}
	fmt.Fprintf(r, "%s; %s; %s; `%s`.\n", time.Now().UTC().Format("2 January 2006"), about, here(), command)
	return r
}

// speed is the table of a comparison without a foreground. The first contender is what the others are compared with.
func (r *report) speed(t table, cs []contender, samples [][]sample) {
	fmt.Fprintf(r, "\n**%s**: %s of %s rows are due\n\n", t.title, thousands(t.due), thousands(t.rows))
	r.WriteString("| | rows a second | of the first line | CPU s client | CPU s server | log bytes a row |\n|---|---:|---:|---:|---:|---:|\n")
	for i, c := range cs {
		own := samples[i]
		ratio := span(pairs(own, samples[0], func(a, b sample) float64 { return a.rate() / b.rate() }))
		fmt.Fprintf(r, "| %s | %s | %s | %s | %s | %s |\n", c.name, thousands(int(medianOf(own, sample.rate))), ratio,
			orDash("%.1f", medianOf(own, func(s sample) float64 { return s.perMillion(s.cpu) })),
			orDash("%.1f", medianOf(own, func(s sample) float64 { return s.perMillion(s.server) })),
			orDash("%.0f", medianOf(own, func(s sample) float64 { return float64(s.logged) / float64(s.rows) })))
	}
}

// latency is the table of a comparison with a foreground.
func (r *report) latency(t table, cs []contender, samples [][]sample, ops int) {
	fmt.Fprintf(r, "\n**%s**, beside an application: %d operations a second, each reads a row of the table and changes one of another\n\n", t.title, ops)
	r.WriteString("| | rows a second | p50 idle | p50 meanwhile | p99 idle | p99 meanwhile | p99, times idle |\n|---|---:|---:|---:|---:|---:|---:|\n")
	for i, c := range cs {
		own := samples[i]
		at := func(of func(sample) []time.Duration, p float64) string {
			return fmt.Sprintf("%.1f ms", medianOf(own, func(s sample) float64 { return quantile(of(s), p) }))
		}
		idle, busy := func(s sample) []time.Duration { return s.idle }, func(s sample) []time.Duration { return s.busy }
		ratio := span(pairs(own, own, func(a, b sample) float64 { return quantile(a.busy, 0.99) / quantile(b.idle, 0.99) }))
		fmt.Fprintf(r, "| %s | %s | %s | %s | %s | %s | %s |\n", c.name, thousands(int(medianOf(own, sample.rate))),
			at(idle, 0.5), at(busy, 0.5), at(idle, 0.99), at(busy, 0.99), ratio)
	}
}

// pairs relates the samples of two contenders round by round.
func pairs(a, b []sample, f func(a, b sample) float64) []float64 {
	var out []float64
	for i := range min(len(a), len(b)) {
		out = append(out, f(a[i], b[i]))
	}
	return out
}

func medianOf(samples []sample, f func(sample) float64) float64 {
	var v []float64
	for _, s := range samples {
		v = append(v, f(s))
	}
	return median(v)
}

// median of no values is 0.
func median(v []float64) float64 {
	v = slices.Clone(v)
	slices.Sort(v)
	switch n := len(v); {
	case n == 0:
		return 0
	case n%2 == 1:
		return v[n/2]
	default:
		return (v[n/2-1] + v[n/2]) / 2
	}
}

// quantile in milliseconds: the smallest value that at least the p-th part of them does not exceed. Of none it is 0.
func quantile(v []time.Duration, p float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Clone(v)
	slices.Sort(v)
	i := int(p * float64(len(v)))
	if float64(i) == p*float64(len(v)) {
		i--
	}
	return v[min(max(i, 0), len(v)-1)].Seconds() * 1000
}

// span is a median with the least and the greatest value.
func span(v []float64) string {
	if len(v) == 0 {
		return "–"
	}
	if lo, hi := slices.Min(v), slices.Max(v); fmt.Sprintf("%.2f", lo) != fmt.Sprintf("%.2f", hi) {
		return fmt.Sprintf("%.2f (%.2f–%.2f)", median(v), lo, hi)
	}
	return fmt.Sprintf("%.2f", median(v))
}

func orDash(format string, v float64) string {
	if v == 0 {
		return "–"
	}
	return fmt.Sprintf(format, v)
}

func thousands[T int | int64](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// splice replaces one part of the document, between its two marks.
func splice(path, part, text string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the document for the tables: %w", err)
	}
	out, err := spliced(string(b), part, text)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(out), 0o644)
}

func spliced(doc, part, text string) (string, error) {
	begin, end := "<!-- bench "+part+" -->\n", "<!-- end "+part+" -->"
	head, rest, found := strings.Cut(doc, begin)
	_, tail, closed := strings.Cut(rest, end)
	if !found || !closed {
		return "", fmt.Errorf("it has no place for the tables of %s, between %q and %q", part, strings.TrimSpace(begin), end)
	}
	return head + begin + strings.TrimRight(text, "\n") + "\n" + end + tail, nil
}

// ends are the medians of the first and of the last tenth of values that are in order of time.
func ends(v []float64) (first, last float64) {
	n := min(max(1, len(v)/10), len(v))
	return median(v[:n]), median(v[len(v)-n:])
}

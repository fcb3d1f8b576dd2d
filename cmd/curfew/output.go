package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"curfew.dev/curfew/api"
)

// answer writes the answer to stdout: v as JSON with --output json, else what table makes of it. A list that is empty
// must be given as an empty slice, not nil.
func (a *app) answer(v any, table func(p *printer)) error {
	if a.output == "json" {
		enc := json.NewEncoder(a.stdout)
		enc.SetEscapeHTML(false)
		enc.SetIndent("", "  ")
		return enc.Encode(v)
	}
	terminal, width := isTerminal(a.stdout)
	noColor, _ := a.getenv("NO_COLOR")
	p := &printer{width: width, color: terminal && !a.noColor && noColor == ""}
	table(p)
	_, err := io.WriteString(a.stdout, p.b.String())
	return err
}

// printer collects the lines of an answer.
type printer struct {
	b     strings.Builder
	color bool
	width int // of the terminal; 0 when the answer goes somewhere else
}

// columns is where sentences are wrapped.
func (p *printer) columns() int { return cmp.Or(p.width, 80) }

func (p *printer) linef(format string, args ...any) { fmt.Fprintf(&p.b, format+"\n", args...) }

// Colours, by what they mean.
const (
	good  = "\x1b[32m"
	warn  = "\x1b[33m"
	bad   = "\x1b[31m"
	faint = "\x1b[2m"
	bold  = "\x1b[1m"
)

// paint colours a word, on a terminal.
func (p *printer) paint(color, s string) string {
	if !p.color || color == "" {
		return s
	}
	return color + s + "\x1b[0m"
}

// cell is a piece of a table; number cells are aligned right.
type cell struct {
	text   string
	color  string
	number bool
}

func text(s string) cell           { return cell{text: s} }
func number(n int64) cell          { return cell{text: count(n), number: true} }
func colored(c, s string) cell     { return cell{text: s, color: c} }
func heads(names ...string) []cell { return cells(faint, names...) }

func cells(color string, texts ...string) []cell {
	row := make([]cell, len(texts))
	for i, t := range texts {
		row[i] = colored(color, t)
	}
	return row
}

// table writes rows in columns, two spaces apart. A head above numbers is aligned like them.
func (p *printer) table(rows [][]cell) {
	var widths []int
	var right []bool
	for _, row := range rows {
		for i, c := range row {
			if i == len(widths) {
				widths, right = append(widths, 0), append(right, false)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
			right[i] = right[i] || c.number
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, c := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text))
			if i > 0 {
				b.WriteString("  ")
			}
			if right[i] {
				b.WriteString(pad + p.paint(c.color, c.text))
			} else {
				b.WriteString(p.paint(c.color, c.text) + pad)
			}
		}
		p.linef("%s", strings.TrimRight(b.String(), " "))
	}
}

// list writes rows like table. On a terminal too narrow for that, the last column goes below its row; elsewhere a row is a line,
// for programs that read lines.
func (p *printer) list(rows [][]cell) {
	one := &printer{}
	one.table(rows)
	wide := 0
	for line := range strings.Lines(one.b.String()) {
		wide = max(wide, utf8.RuneCountInString(strings.TrimSuffix(line, "\n")))
	}
	if p.width == 0 || wide <= p.width {
		p.table(rows)
		return
	}
	short := make([][]cell, len(rows))
	for i, row := range rows {
		short[i] = row[:len(row)-1]
	}
	const indent = "    "
	rest := &printer{color: p.color}
	rest.table(short)
	i := 0
	for line := range strings.Lines(rest.b.String()) {
		p.b.WriteString(line)
		last := rows[i][len(rows[i])-1]
		if last.text != "" {
			p.linef("%s%s", indent, p.paint(last.color, wrap(last.text, indent, p.width)))
		}
		i++
	}
}

// facts writes name and value pairs, one a line; a pair without a value is left out.
func (p *printer) facts(indent string, pairs ...[2]string) {
	width := 0
	for _, pair := range pairs {
		if pair[1] != "" {
			width = max(width, utf8.RuneCountInString(pair[0]))
		}
	}
	for _, pair := range pairs {
		if pair[1] == "" {
			continue
		}
		value := strings.ReplaceAll(pair[1], "\n", "\n"+indent+strings.Repeat(" ", width+2))
		p.linef("%s%s  %s", indent, p.paint(faint, fmt.Sprintf("%-*s", width, pair[0])), value)
	}
}

// count writes a number with its thousands apart: 120,431.
func count(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// rowsOf writes "1 row", "2 rows".
func rowsOf(n int64) string { return plural(n, "row") }

func plural(n int64, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return count(n) + " " + word + "s"
}

// instant writes a time as the product does everywhere: RFC 3339 in UTC, to the second unless there is more to say.
func instant(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// second is instant to the second, for lists.
func second(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// instants writes several on one line.
func instants(at []time.Time) string {
	words := make([]string, len(at))
	for i, t := range at {
		words[i] = second(t)
	}
	return strings.Join(words, ", ")
}

// instantOr writes a time that may be unset.
func instantOr(t *time.Time, otherwise string) string {
	if t == nil {
		return otherwise
	}
	return instant(*t)
}

// stateColor is the colour of a run's state.
func stateColor(state string) string {
	switch state {
	case api.StateSucceeded:
		return good
	case api.StateFailed:
		return bad
	case api.StateRunning, api.StateAccepted:
		return ""
	default:
		return warn
	}
}

// shortID is enough of a run's id to find it again.
func shortID(id string) string {
	if len(id) > 12 {
		return id[:12]
	}
	return id
}

// policyStage names a stage of a policy.
func policyStage(policy, stage string) string {
	if stage == "" {
		return policy
	}
	return policy + "/" + stage
}

package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"curfew.dev/curfew"
)

// meter turns reports of how far a run is into a line on a terminal, or into a log line now and then elsewhere.
// It is fed from one goroutine.
type meter struct {
	policy string
	con    *console
	log    *slog.Logger
	now    func() time.Time

	start  time.Time
	from   int64     // rows that were done when we came: an earlier process did them
	marks  []mark    // the last few seconds, for the rate
	shown  time.Time // when the line was last drawn
	logged time.Time // when the last log line was written
}

// mark is how many rows were done at a time.
type mark struct {
	at   time.Time
	done int64
}

const (
	drawEvery = 100 * time.Millisecond
	logEvery  = 10 * time.Second
	rateOver  = 5 * time.Second
)

func newMeter(policy string, con *console, log *slog.Logger, now func() time.Time) *meter {
	return &meter{policy: policy, con: con, log: log, now: now}
}

// report takes in how far the run is.
func (m *meter) report(p curfew.Progress) {
	now := m.now()
	if m.start.IsZero() {
		m.start, m.logged, m.from = now, now, p.Done
	}
	m.marks = append(m.marks, mark{now, p.Done})
	for len(m.marks) > 2 && now.Sub(m.marks[0].at) > rateOver {
		m.marks = m.marks[1:]
	}
	if m.con.terminal {
		if now.Sub(m.shown) >= drawEvery {
			m.shown = now
			m.con.setLine(m.line(p, m.con.width-1))
		}
		return
	}
	if now.Sub(m.logged) >= logEvery {
		m.logged = now
		m.logLine(p)
	}
}

// rate is rows a second over the last few seconds; 0 when nothing can be said.
func (m *meter) rate() float64 {
	first, last := m.marks[0], m.marks[len(m.marks)-1]
	if d := last.at.Sub(first.at).Seconds(); d > 0 {
		return float64(last.done-first.done) / d
	}
	return 0
}

// left is how many rows are left and how long they will take; -1 and 0 when unknown.
func (m *meter) left(p curfew.Progress) (int64, time.Duration) {
	if p.Estimate < 0 {
		return -1, 0
	}
	rows := max(p.Estimate-p.Done, 0)
	if rate := m.rate(); rate > 0 {
		return rows, time.Duration(float64(rows) / rate * float64(time.Second))
	}
	return rows, 0
}

// line is the progress line: rows done, of how many, the rate, what is left and how long that will take. Where the screen is
// narrow the bar gives way to the numbers.
func (m *meter) line(p curfew.Progress, width int) string {
	for _, bar := range []int{20, 10} {
		if line := m.lineWithBar(p, bar); len(line) <= width {
			return line
		}
	}
	return m.lineWithBar(p, 0)
}

func (m *meter) lineWithBar(p curfew.Progress, bar int) string {
	var b strings.Builder
	b.WriteString(m.policy)
	rows, wait := m.left(p)
	if rows >= 0 && p.Estimate > 0 {
		share := min(float64(p.Done)/float64(p.Estimate), 1)
		if bar > 0 {
			full := int(share * float64(bar))
			fmt.Fprintf(&b, "  [%s%s]", strings.Repeat("#", full), strings.Repeat(".", bar-full))
		}
		fmt.Fprintf(&b, " %3.0f%%", share*100)
	}
	fmt.Fprintf(&b, "  %s rows", count(p.Done))
	if rate := m.rate(); rate > 0 {
		fmt.Fprintf(&b, "  %s/s", count(int64(rate)))
	}
	if rows >= 0 {
		fmt.Fprintf(&b, "  %s left", count(rows))
	}
	if wait > 0 {
		fmt.Fprintf(&b, "  about %s", roughly(wait))
	}
	return b.String()
}

func (m *meter) logLine(p curfew.Progress) {
	attrs := []slog.Attr{
		slog.String("run", p.Run), slog.String("policy", m.policy),
		slog.Int64("done", p.Done), slog.Int64("rate", int64(m.rate())),
	}
	if rows, wait := m.left(p); rows >= 0 {
		attrs = append(attrs, slog.Int64("estimate", p.Estimate), slog.Int64("left", rows), slog.String("time_left", roughly(wait)))
	}
	m.log.LogAttrs(context.Background(), slog.LevelInfo, "run_progress", attrs...)
}

// endProgress removes the progress line, if there is one.
func (a *app) endProgress() { a.stderr.setLine("") }

// roughly writes a length of time as people say it, in two units at most: 3s, 2m 10s, 26h 5m, 3d 4h. What is left over counts as one
// more, so that what is beyond a limit never reads as the limit itself. As curfew.Status has it.
func roughly(d time.Duration) string {
	for _, u := range []struct {
		from, large, small time.Duration
		names              [2]string
	}{{48 * time.Hour, 24 * time.Hour, time.Hour, [2]string{"d", "h"}}, {time.Hour, time.Hour, time.Minute, [2]string{"h", "m"}}, {time.Minute, time.Minute, time.Second, [2]string{"m", "s"}}} {
		if d < u.from {
			continue
		}
		up := (d + u.small - 1).Truncate(u.small)
		words := fmt.Sprintf("%d%s", up/u.large, u.names[0])
		if rest := up % u.large / u.small; rest > 0 {
			words += fmt.Sprintf(" %d%s", rest, u.names[1])
		}
		return words
	}
	return fmt.Sprintf("%ds", max(1, (d+time.Second-1)/time.Second))
}

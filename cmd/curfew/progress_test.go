package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew"
)

// clock is a time that tests set.
type clock struct{ t time.Time }

func (c *clock) now() time.Time          { return c.t }
func (c *clock) advance(d time.Duration) { c.t = c.t.Add(d) }

func newClock() *clock { return &clock{time.Date(2026, 7, 1, 2, 0, 0, 0, time.UTC)} }

func TestProgressLine(t *testing.T) {
	var screen bytes.Buffer
	con := &console{terminal: true, width: 100, w: &screen}
	c := newClock()
	m := newMeter("circulation", con, slog.New(slog.DiscardHandler), c.now)
	m.report(curfew.Progress{Estimate: 120_000, Done: 0})
	c.advance(time.Second)
	m.report(curfew.Progress{Estimate: 120_000, Done: 50_000})
	c.advance(time.Second)
	m.report(curfew.Progress{Estimate: 120_000, Done: 100_000})
	lines := strings.Split(screen.String(), clearLine)
	const want = "circulation  [################....]  83%  100,000 rows  50,000/s  20,000 left  about 1s"
	if got := lines[len(lines)-1]; got != want {
		t.Errorf("the line is\n%q, want\n%q", got, want)
	}
}

func TestProgressLineOnNarrowScreen(t *testing.T) {
	for width, want := range map[int]string{
		80: "circulation  [########..]  83%  100,000 rows  50,000/s  20,000 left  about 1s",
		64: "circulation  83%  100,000 rows  50,000/s  20,000 left  about 1s",
	} {
		con := &console{terminal: true, width: width, w: new(bytes.Buffer)}
		c := newClock()
		m := newMeter("circulation", con, slog.New(slog.DiscardHandler), c.now)
		m.report(curfew.Progress{Estimate: 120_000})
		c.advance(2 * time.Second)
		m.report(curfew.Progress{Estimate: 120_000, Done: 100_000})
		if got := string(con.line); got != want {
			t.Errorf("on a screen of %d columns the line is\n%q, want\n%q", width, got, want)
		}
	}
}

// TestProgressLineOfResumedRun: rows that an earlier process settled are done, and say nothing about the rate.
func TestProgressLineOfResumedRun(t *testing.T) {
	con := &console{terminal: true, width: 100, w: new(bytes.Buffer)}
	c := newClock()
	m := newMeter("p", con, slog.New(slog.DiscardHandler), c.now)
	m.report(curfew.Progress{Estimate: 1_000_000, Done: 900_000})
	c.advance(10 * time.Second)
	m.report(curfew.Progress{Estimate: 1_000_000, Done: 901_000})
	const want = "p  [##################..]  90%  901,000 rows  100/s  99,000 left  about 16m 30s"
	if got := string(con.line); got != want {
		t.Errorf("the line is\n%q, want\n%q", got, want)
	}
}

func TestProgressWithoutEstimate(t *testing.T) {
	con := &console{terminal: true, width: 100, w: new(bytes.Buffer)}
	c := newClock()
	m := newMeter("p", con, slog.New(slog.DiscardHandler), c.now)
	m.report(curfew.Progress{Estimate: -1})
	c.advance(2 * time.Second)
	m.report(curfew.Progress{Estimate: -1, Done: 1000})
	if got, want := string(con.line), "p  1,000 rows  500/s"; got != want {
		t.Errorf("the line is %q, want %q", got, want)
	}
}

func TestProgressOffTerminal(t *testing.T) {
	var stderr bytes.Buffer
	con := newConsole(&stderr)
	c := newClock()
	m := newMeter("circulation", con, slog.New(slog.NewJSONHandler(con, nil)), c.now)
	for i := range 26 {
		m.report(curfew.Progress{Run: "ab", Estimate: 26_000, Done: int64(i) * 1000})
		c.advance(time.Second)
	}
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	if len(lines) != 2 {
		t.Fatalf("%d lines in 25 seconds, want one every ten:\n%s", len(lines), stderr.String())
	}
	var line struct {
		Msg, Run, Policy, TimeLeft string
		Done, Rate, Estimate, Left int64
	}
	if err := json.Unmarshal([]byte(lines[0]), &line); err != nil {
		t.Fatal(err)
	}
	if line.Msg != "run_progress" || line.Run != "ab" || line.Policy != "circulation" || line.Done != 10_000 || line.Rate != 1000 || line.Left != 16_000 {
		t.Errorf("the line is %s", lines[0])
	}
	if strings.Contains(stderr.String(), "\x1b") || strings.Contains(stderr.String(), "\r") {
		t.Error("control characters off a terminal")
	}
}

// TestConsoleKeepsLineBelow: a log line scrolls by above the progress line, whole.
func TestConsoleKeepsLineBelow(t *testing.T) {
	var screen bytes.Buffer
	con := &console{terminal: true, width: 20, w: &screen}
	con.setLine("half done")
	screen.Reset()
	if n, err := con.Write([]byte("a log line\n")); n != 11 || err != nil {
		t.Fatalf("wrote %d, %v", n, err)
	}
	if got, want := screen.String(), clearLine+"a log line\nhalf done"; got != want {
		t.Errorf("screen %q, want %q", got, want)
	}
	screen.Reset()
	con.setLine("")
	con.setLine("")
	if got := screen.String(); got != clearLine {
		t.Errorf("removing the line wrote %q, want %q once", got, clearLine)
	}
	con.setLine("a line that is far too wide for the screen")
	if len(con.line) != 19 {
		t.Errorf("the line is %d wide on a screen of 20", len(con.line))
	}
}

func TestRoughly(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "1s", 400 * time.Millisecond: "1s", 59 * time.Second: "59s", time.Minute: "1m", 130 * time.Second: "2m 10s", 59*time.Minute + 59*time.Second: "59m 59s",
		time.Hour: "1h", 4*time.Hour + 20*time.Minute: "4h 20m", 26*time.Hour + time.Second: "26h 1m", 48 * time.Hour: "2d", 76 * time.Hour: "3d 4h",
		72*time.Hour + time.Minute: "3d 1h", 400*24*time.Hour + 30*time.Minute: "400d 1h",
	} {
		if got := roughly(d); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
}

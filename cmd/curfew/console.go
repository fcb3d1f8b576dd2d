package main

import (
	"bytes"
	"io"
	"sync"
)

// console is stderr: it lets one progress line live below everything else that is written. On something that is no
// terminal it only passes on what it is given.
type console struct {
	terminal bool
	width    int

	mu   sync.Mutex // held while a write is under way, so that log lines and the progress line never mix
	w    io.Writer
	line []byte // the progress line on the screen now, without its end; empty when there is none
}

func newConsole(w io.Writer) *console {
	c := &console{w: w}
	c.terminal, c.width = isTerminal(w)
	return c
}

const clearLine = "\r\x1b[K"

// Write writes above the progress line.
func (c *console) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.line) == 0 {
		return c.w.Write(p)
	}
	var b bytes.Buffer
	b.WriteString(clearLine)
	b.Write(p)
	b.Write(c.line)
	if _, err := c.w.Write(b.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// setLine replaces the progress line; "" removes it.
func (c *console) setLine(s string) {
	if !c.terminal {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s == "" && len(c.line) == 0 {
		return
	}
	if r := []rune(s); len(r) >= c.width {
		s = string(r[:c.width-1])
	}
	c.line = []byte(s)
	_, _ = io.WriteString(c.w, clearLine+s)
}

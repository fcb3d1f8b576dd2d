package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestProcess(t *testing.T) {
	if got := parentOf(os.Getpid()); got != os.Getppid() {
		t.Errorf("our parent is %d, want %d", got, os.Getppid())
	}
	if parentOf(-1) != 0 || processCPU(-1, true) != 0 || peakRSS(-1) != 0 {
		t.Error("something is said of a process that does not exist")
	}
	before := ownCPU()
	for ownCPU() == before { // until the clock shows that we did something
	}
	if got := peakRSS(os.Getpid()); got < 1<<20 {
		t.Errorf("our peak is %d bytes", got)
	}
}

// TestWatch measures a program: its memory must be its own, not that of the process it was started from.
func TestWatch(t *testing.T) {
	ballast := make([]byte, 256<<20)
	for i := 0; i < len(ballast); i += 4096 {
		ballast[i] = 1
	}
	e, out, err := watch(exec.Command("sh", "-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo done"))
	if err != nil || strings.TrimSpace(string(out)) != "done" {
		t.Fatalf("%q, %v", out, err)
	}
	if e.cpu == 0 || e.rss == 0 || e.rss >= int64(len(ballast)) {
		t.Errorf("a shell that counts used %v and %d bytes", e.cpu, e.rss)
	}
	if ballast[4096] != 1 {
		t.Error("the ballast was thrown off")
	}
	if _, _, err := watch(exec.Command("sh", "-c", "echo reason >&2; exit 3")); err == nil || !strings.Contains(err.Error(), "reason") {
		t.Errorf("a program that failed: %v", err)
	}
}

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// ownCPU is the processor time that this process has used.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// tick is the unit of /proc: a hundredth of a second on every Linux.
const tick = 10 * time.Millisecond

// processCPU is the processor time of a process, and with children also of those it has and had.
func processCPU(pid int, children bool) time.Duration {
	st := readStat(pid)
	if st == nil {
		return 0
	}
	sum := st.own
	if !children {
		return sum
	}
	sum += st.reaped
	all, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, name := range all {
		child, err := strconv.Atoi(strings.Split(name, "/")[2])
		if err != nil {
			continue
		}
		if c := readStat(child); c != nil && c.parent == pid {
			sum += c.own
		}
	}
	return sum
}

type stat struct {
	parent      int
	own, reaped time.Duration
}

// readStat reads /proc/PID/stat; nil when the process has gone.
func readStat(pid int) *stat {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	// The second field is a name in parentheses, which may hold anything.
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 15 {
		return nil
	}
	n := func(i int) time.Duration {
		v, _ := strconv.Atoi(f[i])
		return time.Duration(v)
	}
	return &stat{parent: int(n(1)), own: (n(11) + n(12)) * tick, reaped: (n(13) + n(14)) * tick}
}

// peakRSS is the most memory that a process had so far, in bytes. What wait(2) says of a child is no use: it counts the
// memory of the parent that the child was forked from.
func peakRSS(pid int) int64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	kib, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, _ := strconv.ParseInt(kib, 10, 64)
	return n << 10
}

// machine says what this one is, without its name.
func machine(cores int) string {
	b, _ := os.ReadFile("/proc/meminfo")
	_, rest, _ := strings.Cut(string(b), "MemTotal:")
	f := strings.Fields(rest)
	if len(f) == 0 {
		return fmt.Sprintf("%d cores", cores)
	}
	kib, _ := strconv.ParseFloat(f[0], 64)
	return fmt.Sprintf("%d cores, %.0f GiB", cores, kib/(1<<20))
}

// parentOf is the process that started another; 0 when that cannot be told.
func parentOf(pid int) int {
	if st := readStat(pid); st != nil {
		return st.parent
	}
	return 0
}

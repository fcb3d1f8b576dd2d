//go:build !linux

package main

import (
	"fmt"
	"time"
)

// Elsewhere than on Linux processor time and memory are left out of the tables.

func ownCPU() time.Duration              { return 0 }
func processCPU(int, bool) time.Duration { return 0 }
func peakRSS(int) int64                  { return 0 }
func parentOf(int) int                   { return 0 }
func machine(cores int) string           { return fmt.Sprintf("%d cores", cores) }

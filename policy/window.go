package policy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Window is a stretch of time of the day in which batches may begin, in the
// policy's zone. One whose end is not after its start passes midnight, and is of
// the day it starts on.
type Window struct {
	Days     Days
	From, To int // minutes since midnight; To may be 1440
}

// Days is a set of days of the week, bit time.Sunday being the first. The zero
// set is every day.
type Days uint8

const dayMinutes = 24 * 60

// dayNames are in the order of the week as the file names it.
var dayNames = []string{"mon", "tue", "wed", "thu", "fri", "sat", "sun"}

var windowText = regexp.MustCompile(`^(?:([a-z,-]+) )?([0-9]{2}):([0-9]{2})-([0-9]{2}):([0-9]{2})$`)

// ParseWindow reads 22:00-05:00, or with days sat,sun 00:00-24:00 and
// mon-fri 22:00-05:00.
func ParseWindow(text string) (Window, error) {
	bad := &fault{"this is no window", `write "22:00-05:00", or with days "sat,sun 00:00-24:00"`}
	m := windowText.FindStringSubmatch(text)
	if m == nil {
		return Window{}, bad
	}
	var w Window
	var err error
	if m[1] != "" {
		if w.Days, err = parseDays(m[1]); err != nil {
			return Window{}, err
		}
	}
	var ok bool
	if w.From, ok = clock(m[2], m[3]); !ok || w.From == dayMinutes {
		return Window{}, &fault{"a window starts from 00:00 to 23:59", bad.hint}
	}
	if w.To, ok = clock(m[4], m[5]); !ok {
		return Window{}, &fault{"a window ends from 00:00 to 24:00", bad.hint}
	}
	if w.From == w.To {
		return Window{}, &fault{"the window ends as it starts", "the whole day is 00:00-24:00"}
	}
	return w, nil
}

// clock reads a time of the day of digits.
func clock(hour, minute string) (int, bool) {
	h, err := strconv.Atoi(hour)
	if err != nil {
		return 0, false
	}
	m, err := strconv.Atoi(minute)
	if err != nil || m > 59 || h > 24 || h == 24 && m > 0 {
		return 0, false
	}
	return 60*h + m, true
}

// parseDays reads sat,sun or mon-fri.
func parseDays(text string) (Days, error) {
	var days Days
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		from, to := slices.Index(dayNames, first), slices.Index(dayNames, last)
		if !ranged {
			to = from
		}
		if from < 0 || to < 0 {
			return 0, &fault{fmt.Sprintf("%q names no day of the week", part), "the days are " + strings.Join(dayNames, ", ") + ", and mon-fri is a range"}
		}
		for i := from; ; i = (i + 1) % 7 {
			bit := Days(1) << ((i + 1) % 7)
			if days&bit != 0 {
				return 0, &fault{dayNames[i] + " is named twice", "name each day once"}
			}
			if days |= bit; i == to {
				break
			}
		}
	}
	return days, nil
}

func (d Days) has(day time.Weekday) bool { return d == 0 || d&(1<<day) != 0 }

// String is the window as a file may have it.
func (w Window) String() string {
	text := fmt.Sprintf("%02d:%02d-%02d:%02d", w.From/60, w.From%60, w.To/60, w.To%60)
	if w.Days == 0 {
		return text
	}
	var names []string
	for i, name := range dayNames {
		if w.Days.has(time.Weekday((i + 1) % 7)) {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",") + " " + text
}

// MarshalText writes the window as [Window.String] does.
func (w Window) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// UnmarshalText reads a window, see [ParseWindow].
func (w *Window) UnmarshalText(text []byte) (err error) {
	*w, err = ParseWindow(string(text))
	return err
}

// shows reports whether a clock that reads so is in the window.
func (w Window) shows(at Wall) bool {
	day := at.t.Weekday()
	minute := 60*at.t.Hour() + at.t.Minute()
	if w.From < w.To {
		return w.Days.has(day) && minute >= w.From && minute < w.To
	}
	return w.Days.has(day) && minute >= w.From || w.Days.has((day+6)%7) && minute < w.To
}

// InWindow reports whether batches may begin at an instant: a clock in the
// policy's zone shows a time inside one of its windows. So a window that the
// clock skips in spring is not there that day, and one that it shows twice in
// autumn is open both times. A policy without windows is always open.
func (p *Policy) InWindow(at time.Time) bool {
	if len(p.Windows) == 0 {
		return true
	}
	wall := WallOf(at, p.Location())
	return slices.ContainsFunc(p.Windows, func(w Window) bool { return w.shows(wall) })
}

// windowWithin is how far the next opening is looked for: there is one in every
// week, but for a clock that skips it.
const windowWithin = 15

// NextWindow is the first instant from at on at which batches may begin.
func (p *Policy) NextWindow(at time.Time) time.Time {
	if p.InWindow(at) {
		return at
	}
	loc := p.Location()
	var best time.Time
	try := func(t time.Time) {
		if t.After(at) && (best.IsZero() || t.Before(best)) && p.InWindow(t) {
			best = t
		}
	}
	// A window opens when the clock comes to its start, or when the clock is
	// changed into it.
	first := DateOf(at, loc).AddDays(-1)
	for day := range windowWithin {
		midnight := first.AddDays(day).Midnight()
		for _, w := range p.Windows {
			for _, r := range regimes(midnight.t, loc) {
				if t := midnight.t.Add(time.Duration(w.From)*time.Minute - r.offset); r.holds(t) {
					try(t)
				}
			}
		}
		for _, r := range regimes(midnight.t, loc) {
			try(r.end)
		}
	}
	if best.IsZero() {
		return at.Add(windowWithin * 24 * time.Hour) // looked at again then
	}
	return best.UTC()
}

func (b *builder) windows(l list) []Window {
	var all []Window
	for _, t := range l.items {
		w, err := ParseWindow(t.String())
		if err != nil {
			b.bad(t.leaf, err)
			continue
		}
		if slices.Contains(all, w) {
			b.bad(t.leaf, &fault{"the window is in the list twice", "remove one"})
		}
		all = append(all, w)
	}
	return all
}

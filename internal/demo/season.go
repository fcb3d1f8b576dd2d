package demo

import (
	"slices"
	"sort"
	"time"
)

// times draws n instants, in order, over the last months before Until: an hour is drawn as often as it is busy.
func (g *generator) times(n, months int) []time.Time {
	var hours []time.Time
	var upTo []float64 // busyness of all hours up to and including this one
	total := 0.0
	for h := g.Until.AddDate(0, -months, 0).Truncate(time.Hour).Add(time.Hour); h.Add(time.Hour).Before(g.Until); h = h.Add(time.Hour) {
		if b := busy(h); b > 0 && !g.Closed.has(h) && !g.Closed.has(h.Add(time.Hour-time.Second)) {
			total += b
			hours, upTo = append(hours, h), append(upTo, total)
		}
	}
	times := make([]time.Time, n)
	for i := range times {
		h := hours[min(sort.SearchFloat64s(upTo, g.rnd.Float64()*total), len(hours)-1)]
		times[i] = h.Add(time.Duration(g.rnd.IntN(3600)) * time.Second)
	}
	slices.SortFunc(times, time.Time.Compare)
	return times
}

// busy says how much goes on in a library in the hour that begins at h: nothing at night, on Sundays and on holidays,
// most after school and on Saturday mornings, a dip in summer, a rush before the holidays, and a little more each year.
func busy(h time.Time) float64 {
	hour, weekday := h.Hour(), h.Weekday()
	if closed(h) {
		return 0
	}
	var b float64
	switch {
	case weekday == time.Saturday:
		b = curve(hour, 10, []float64{1.3, 1.8, 1.7, 1.1})
	case weekday == time.Monday: // opens at noon
		b = curve(hour, 12, []float64{0.8, 0.7, 0.9, 1.5, 1.9, 1.6, 0.9})
	default:
		b = curve(hour, 9, []float64{0.5, 0.8, 0.9, 0.7, 0.6, 0.8, 1.3, 1.7, 1.4, 0.8})
	}
	month := []float64{1.08, 1.02, 1.05, 0.98, 0.95, 0.86, 0.62, 0.58, 1.10, 1.12, 1.15, 1.05}[h.Month()-1]
	if h.Month() == time.December {
		switch {
		case h.Day() < 20:
			month = 1.38 // people stock up
		case h.Day() > 26:
			month = 0.55
		}
	}
	return b * month * (1 + 0.03*float64(h.Year()-2020))
}

// closed reports whether the library is closed on the day of h.
func closed(h time.Time) bool {
	day := h.Format("01-02")
	return h.Weekday() == time.Sunday || slices.Contains([]string{"12-24", "12-25", "12-26", "12-31", "01-01", "05-01", "10-03"}, day)
}

// curve is the busyness of an hour on a day that opens at from.
func curve(hour, from int, by []float64) float64 {
	if hour < from || hour >= from+len(by) {
		return 0
	}
	return by[hour-from]
}

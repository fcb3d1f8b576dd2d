package policy_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"curfew.dev/curfew/policy"
	"pgregory.net/rapid"
)

func TestParseInstantTable(t *testing.T) {
	for _, c := range []struct {
		format           policy.Format
		text, zone, want string
	}{
		{policy.ISO8601, "2026-03-29T01:00:00.000Z", "", "2026-03-29T01:00:00Z"},
		{policy.ISO8601, "2026-03-29 01:00:00", "UTC", "2026-03-29T01:00:00Z"},
		{policy.ISO8601, "2026-03-29 01:00", "UTC", "2026-03-29T01:00:00Z"},
		{policy.ISO8601, "2026-03-29T01:00+02:00", "", "2026-03-28T23:00:00Z"},
		{policy.ISO8601, "2026-03-29T01:00:00.123456789-0930", "", "2026-03-29T10:30:00.123456789Z"},
		{policy.ISO8601, "2026-03-29T01:00:00.5-05", "UTC", "2026-03-29T06:00:00.5Z"},
		{policy.ISO8601, "2026-03-29T02:30:00", "Europe/Berlin", "2026-03-29T01:30:00Z"},
		{policy.ISO8601, "2026-10-25T02:30:00", "Europe/Berlin", "2026-10-25T01:30:00Z"},
		{policy.ISO8601, "2026-03-29", "UTC", "2026-03-30T00:00:00Z"},
		{policy.ISO8601, "2026-03-29", "Europe/Berlin", "2026-03-29T22:00:00Z"},
		{policy.ISO8601, "0001-01-01T00:00:00Z", "", "0001-01-01T00:00:00Z"},
		{policy.ISO8601, "9999-12-31", "UTC", "10000-01-01T00:00:00Z"},
		{policy.Compact, "20260329010000", "UTC", "2026-03-29T01:00:00Z"},
		{policy.Compact, "20261025023000", "Europe/Berlin", "2026-10-25T01:30:00Z"},
		{policy.Compact, "20240229235959", "America/New_York", "2024-03-01T04:59:59Z"},
	} {
		got, err := policy.ParseInstant(c.text, c.format, zoneOrNil(t, c.zone))
		if err != nil || got.Format(time.RFC3339Nano) != c.want {
			t.Errorf("%s %q in %q is %v, %v; want %s", c.format, c.text, c.zone, got.Format(time.RFC3339Nano), err, c.want)
		}
	}
}

func zoneOrNil(t *testing.T, name string) *time.Location {
	if name == "" {
		return nil
	}
	return location(t, name)
}

var patterns = map[policy.Format]*regexp.Regexp{
	policy.ISO8601: regexp.MustCompile(policy.ISO8601Pattern),
	policy.Compact: regexp.MustCompile(policy.CompactPattern),
}

// agree checks that the exported expression and the parser accept the same
// texts, and that the parser reads a match as the standard library does.
func agree(t interface{ Fatalf(string, ...any) }, text string, format policy.Format) {
	matches := patterns[format].MatchString(text)
	got, err := policy.ParseInstant(text, format, time.UTC)
	if matches != (err == nil) {
		t.Fatalf("%s %q: the pattern says %v, the parser %v", format, text, matches, err)
	}
	if !matches {
		return
	}
	layout := "20060102150405"
	if format == policy.ISO8601 {
		layout = strings.NewReplacer("T", " ").Replace("2006-01-02 15:04:05"[:min(len(text), 16)])
		if len(text) > 16 && text[16] == ':' {
			layout += ":05"
		}
	}
	zone := strings.TrimLeft(text[min(len(text), len(layout)):], ".0123456789")
	bare := strings.Replace(strings.TrimSuffix(text, zone), "T", " ", 1)
	want, err := time.Parse(layout, bare)
	if err != nil {
		t.Fatalf("%s %q is no date to the standard library: %v", format, text, err)
	}
	if len(layout) == len(time.DateOnly) {
		want = want.AddDate(0, 0, 1)
	}
	if zone != "" && zone != "Z" {
		var h, m int
		digits := strings.ReplaceAll(zone[1:], ":", "") + "00"
		if _, err := fmt.Sscanf(digits[:4], "%2d%2d", &h, &m); err != nil {
			t.Fatalf("offset %q: %v", zone, err)
		}
		offset := time.Duration(h)*time.Hour + time.Duration(m)*time.Minute
		if zone[0] == '+' {
			offset = -offset
		}
		want = want.Add(offset)
	}
	if !got.Equal(want) {
		t.Fatalf("%s %q is %v, want %v", format, text, got, want)
	}
}

// TestPatternsKnowTheCalendar tries every day that can be written.
func TestPatternsKnowTheCalendar(t *testing.T) {
	years := []int{0, 1, 4, 10, 100, 400, 1000, 1582, 1600, 1700, 1899, 1900, 1904, 1970, 1996, 2000, 2023, 2024, 2026, 2100, 2400, 4000, 9000, 9996, 9999}
	for _, y := range years {
		for m := range 14 {
			for d := range 33 {
				valid := y > 0 && time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC).Format("2006-1-2") == fmt.Sprintf("%04d-%d-%d", y, m, d)
				iso, compact := fmt.Sprintf("%04d-%02d-%02d", y, m, d), fmt.Sprintf("%04d%02d%02d000000", y, m, d)
				if patterns[policy.ISO8601].MatchString(iso) != valid || patterns[policy.Compact].MatchString(compact) != valid {
					t.Errorf("%s is a date: %v, and the patterns disagree", iso, valid)
				}
				agree(t, iso, policy.ISO8601)
				agree(t, iso+"T00:00:00Z", policy.ISO8601)
				agree(t, compact, policy.Compact)
			}
		}
	}
	for h := range 26 {
		for m := range 62 {
			agree(t, fmt.Sprintf("2024-02-29 %02d:%02d", h, m), policy.ISO8601)
			agree(t, fmt.Sprintf("2024-02-29 00:00:00+%02d:%02d", h, m), policy.ISO8601)
			agree(t, fmt.Sprintf("2024-02-29T23:%02d:%02d", m, h+40), policy.ISO8601)
			agree(t, fmt.Sprintf("20240229%02d%02d%02d", h, m, h+40), policy.Compact)
		}
	}
}

// TestUnreadable is what an application may well store, and what no SQL cast
// may make an instant of.
func TestUnreadable(t *testing.T) {
	for _, text := range []string{
		"", " ", "never", "0000-00-00", "0000-00-00 00:00:00", "00000000000000", "2026-03-29T", "2026-3-29", "26-03-29",
		" 2026-03-29", "2026-03-29 ", "2026-03-29\n", "2026-03-29\x00", "2026-03-29T01", "2026-03-29T1:00:00", "2026-03-29  01:00:00",
		"2026-03-29t01:00:00z", "2026-03-29T01:00:00 Z", "2026-03-29T01:00:00,5Z", "2026-03-29T01:00:00.", "2026-03-29T01:00:00.1234567890",
		"2026-03-29T24:00:00Z", "2026-03-29T23:59:60Z", "2026-02-29", "2100-02-29", "2026-13-01", "2026-03-29Z", "2026-03-29+02:00",
		"2026-03-29T01:00:00+2", "2026-03-29T01:00:00+16:00", "2026-03-29T01:00:00+02:60", "2026-W13-7", "20260329T010000Z",
		"+2026-03-29", "-0001-01-01", "12026-03-29", "2026-03-29T01:00:00[Europe/Berlin]", "29/03/2026", "１２３４-03-29", "1774746000",
	} {
		for format := range patterns {
			if at, err := policy.ParseInstant(text, format, time.UTC); err == nil {
				t.Errorf("%s %q reads as %v", format, text, at)
			} else if text != "" && text != " " && strings.Contains(err.Error(), text) {
				t.Errorf("the error repeats the value: %v", err)
			}
			agree(t, text, format)
		}
	}
	for format, text := range map[policy.Format]string{policy.ISO8601: "2026-03-29T01:00:00", policy.Compact: "20260329010000"} {
		if at, err := policy.ParseInstant(text, format, nil); err == nil || !strings.Contains(err.Error(), "zone") {
			t.Errorf("%s %q without a zone reads as %v, %v", format, text, at, err)
		}
	}
	if _, err := policy.ParseInstant("2026-03-29", policy.ISO8601, nil); err == nil {
		t.Error("a date without a zone reads as an instant")
	}
	if _, err := policy.ParseInstant("2026-03-29", "", time.UTC); err == nil {
		t.Error("a text without a format reads as an instant")
	}
}

func TestPatternAndParserAgree(t *testing.T) {
	almost := rapid.StringMatching(`[0-9]{4}-[0-3][0-9]-[0-3][0-9]([T ][0-2][0-9]:[0-6][0-9](:[0-6][0-9](\.[0-9]{1,10})?)?(Z|[+-][01][0-9](:?[0-6][0-9])?)?)?`)
	compact := rapid.StringMatching(`[0-9]{3}[0-9][01][0-9][0-3][0-9][0-2][0-9][0-6][0-9][0-6][0-9]`)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(almost, compact).Draw(t, "text")
		if at := rapid.IntRange(-len(text), len(text)).Draw(t, "edit"); at >= 0 { // half of them with an edit
			text = text[:at] + rapid.SampledFrom([]string{"", "0", "9", "-", ":", " ", "T", "\n", "é"}).Draw(t, "with") + text[min(len(text), at+1):]
		}
		agree(t, text, policy.ISO8601)
		agree(t, text, policy.Compact)
	})
}

// TestPatternsArePortable keeps the expressions to what every database's
// engine understands alike.
func TestPatternsArePortable(t *testing.T) {
	for format, re := range patterns {
		if regexp.MustCompile(`\\[^.]|\(\?|\[\[|'|"|\?\?|\*|\+\?`).MatchString(re.String()) {
			t.Errorf("%s uses more than the common subset: %s", format, re)
		}
		if _, err := regexp.CompilePOSIX(re.String()); err != nil {
			t.Errorf("%s is no POSIX expression: %v", format, err)
		}
	}
}

func FuzzParseInstant(f *testing.F) {
	for _, s := range []string{"2026-03-29T01:00:00.000Z", "2026-03-29 01:00", "20260329010000", "2024-02-29", "0000-00-00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		agree(t, text, policy.ISO8601)
		agree(t, text, policy.Compact)
	})
}

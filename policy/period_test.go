package policy_test

import (
	"testing"
	"time"

	"curfew.dev/curfew/policy"
	"pgregory.net/rapid"
)

func TestParsePeriod(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]policy.Period{
		"90s": {Exact: 90 * time.Second}, "120m": {Exact: 2 * time.Hour}, "36h": {Exact: 36 * time.Hour}, "730d": {Exact: 730 * day}, "2w": {Exact: 14 * day},
		"6mo": {Months: 6}, "24mo": {Months: 24}, "2y": {Years: 2}, "1000y": {Years: 1000}, "36525d": {Exact: 36525 * day},
		"P1Y6M": {Years: 1, Months: 6}, "P30D": {Exact: 30 * day}, "PT36H": {Exact: 36 * time.Hour}, "P2W": {Exact: 14 * day}, "PT1M": {Exact: time.Minute},
		"P1M": {Months: 1}, "P1Y0M": {Years: 1}, "P1Y2M3DT4H5M6S": {Years: 1, Months: 2, Exact: 3*day + 4*time.Hour + 5*time.Minute + 6*time.Second},
	} {
		got, err := policy.ParsePeriod(text)
		if err != nil || got != want {
			t.Errorf("%q is %+v, %v; want %+v", text, got, err, want)
		}
	}
}

func TestPeriodString(t *testing.T) {
	for text, want := range map[string]string{
		"90s": "90s", "120s": "2m", "36h": "36h", "48h": "2d", "2w": "14d", "24mo": "24mo", "2y": "2y", "P2Y": "2y", "P1Y6M": "P1Y6M", "P1DT12H": "36h", "P1M1DT1S": "P1M1DT1S",
	} {
		p, err := policy.ParsePeriod(text)
		if err != nil || p.String() != want {
			t.Errorf("%q prints as %q, want %q (%v)", text, p, want, err)
		}
	}
	if s := (policy.Period{}).String(); s != "" {
		t.Errorf("the zero period prints as %q", s)
	}
}

func TestPeriodRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := policy.Period{
			Years:  rapid.IntRange(0, 1000).Draw(t, "years"),
			Months: rapid.IntRange(0, 12000).Draw(t, "months"),
			Exact:  time.Duration(rapid.Int64Range(0, 36525*24*3600).Draw(t, "seconds")) * time.Second,
		}
		again, err := policy.ParsePeriod(p.String())
		if p.IsZero() != (err != nil) || again != p {
			t.Fatalf("%+v prints as %q and reads as %+v, %v", p, p, again, err)
		}
	})
}

// FuzzParsePeriod looks for texts that are accepted and are not a length of
// time greater than zero that prints and reads back as itself.
func FuzzParsePeriod(f *testing.F) {
	for _, s := range []string{"2y", "0", "", "-5", " 90", "90", "1e9d", "P1Y6M", "PT1S", "P", "PT", "6M", "99999999999999999999d"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := policy.ParsePeriod(text)
		if err != nil {
			if !p.IsZero() {
				t.Fatalf("%q is refused and still gives %+v", text, p)
			}
			return
		}
		if p.Years < 0 || p.Months < 0 || p.Exact < 0 || p.IsZero() {
			t.Fatalf("%q is %+v", text, p)
		}
		if again, err := policy.ParsePeriod(p.String()); err != nil || again != p {
			t.Fatalf("%q is %+v, prints as %q and reads as %+v, %v", text, p, p, again, err)
		}
	})
}

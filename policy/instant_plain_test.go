package policy

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The quick reading and the regular expression agree wherever the quick one is sure.
func TestPlainAgrees(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	sure := 0
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(
			rapid.StringMatching(`[0-9]{4}-[01][0-9]-[0-3][0-9][T ][0-2][0-9]:[0-6][0-9]:[0-6][0-9](\.[0-9]{0,10})?(Z|z|\+02:00|)`),
			rapid.StringMatching(`[0-9.]{4}-[0-9]{2}.[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}:[0-9:]{2}[0-9.Z]{0,4}`),
		).Draw(t, "text")
		loc := rapid.SampledFrom([]*time.Location{nil, time.UTC, berlin}).Draw(t, "zone")
		got, ok := parsePlain(text, ISO8601, loc)
		if !ok {
			return
		}
		sure++
		want, err := parseByPattern(text, ISO8601, loc)
		if err != nil || !want.Equal(got) {
			t.Fatalf("%q: quick %v, by pattern %v, %v", text, got, want, err)
		}
	})
	if sure == 0 {
		t.Error("the quick way never read anything")
	}
}

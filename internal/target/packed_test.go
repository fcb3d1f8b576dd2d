package target

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// What PostgreSQL's array_out writes for any texts comes back as those texts.
func TestUnpack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		width := rapid.IntRange(1, 3).Draw(t, "width")
		n := rapid.IntRange(1, 20).Draw(t, "rows")
		want := make([]tuple, n)
		for i := range want {
			for range width {
				want[i] = append(want[i], value{textValue, rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", "NULL", `a"b`, `\`, "a,b", "{}", "1"})).Draw(t, "v")})
			}
		}
		raw := make([]sql.NullString, width)
		for c := range raw {
			raw[c] = sql.NullString{String: arrayOut(want, c), Valid: true}
		}
		got, err := unpack(raw)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(value{})); diff != "" {
			t.Error(diff)
		}
	})
}

// arrayOut quotes only what needs it, as the server does.
func arrayOut(ts []tuple, col int) string {
	var out []string
	for _, k := range ts {
		s := k[col].s
		if s == "" || strings.EqualFold(s, "NULL") || strings.ContainsAny(s, "{}\",\\ \t\n\r\v\f") {
			s = `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
		}
		out = append(out, s)
	}
	return "{" + strings.Join(out, ",") + "}"
}

// Tuples survive being stored.
func TestTuplesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []tuple
		for range rapid.IntRange(0, 10).Draw(t, "n") {
			k := tuple{}
			for range rapid.IntRange(0, 3).Draw(t, "width") {
				kind := rapid.SampledFrom([]valueKind{nullValue, textValue, intValue, floatValue, bytesValue}).Draw(t, "kind")
				k = append(k, value{kind, rapid.String().Draw(t, "s")})
			}
			want = append(want, k)
		}
		got, err := decodeTuples(encodeTuples(want))
		if err != nil {
			t.Fatal(err)
		}
		if len(want) == 0 && len(got) == 0 {
			return
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(value{})); diff != "" {
			t.Error(diff)
		}
	})
}

func FuzzDecodeTuples(f *testing.F) {
	f.Add(encodeTuples([]tuple{{{textValue, "a"}, {intValue, "1"}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		ts, err := decodeTuples(b)
		if err == nil && len(ts) > len(b) {
			t.Errorf("%d tuples from %d bytes", len(ts), len(b))
		}
	})
}
